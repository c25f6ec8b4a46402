/* SPDX-License-Identifier: Apache-2.0
 * links: br_source
 * Bounds of columns that stay with the cached footers: how many bytes they are, and that too many are forgotten. */
#include "engine_fixture.h"
#include "source/internal.h"

static void write_file(const fixture *f, char name, const char *rows) {
  char *sql = br_asprintf(
      "COPY (SELECT range AS a, 'text ' || range AS s FROM range(%s)) TO '%s/%c.parquet' "
      "(ROW_GROUP_SIZE 2048)",
      rows, f->scratch, name);
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
}

static br_snapshot *snapshot(const fixture *f, br_source *s, const char *names) {
  char *paths[4] = {0};
  size_t n = strlen(names);
  br_snapshot *snap;
  for (size_t i = 0; i < n; i++) paths[i] = br_asprintf("%s/%c.parquet", f->scratch, names[i]);
  OK(br_source_snapshot(f->session, s, (const char *const *)paths, n, &snap, &err));
  for (size_t i = 0; i < n; i++) free(paths[i]);
  return snap;
}

/* How many row groups stay. */
static size_t prune(const fixture *f, br_source *s, const br_snapshot *snap, const char *column, const char *kind,
                    const char *test) {
  char *text = br_asprintf("[{\"column\":\"%s\",\"kind\":\"%s\",\"scale\":0,\"test\":%s}]", column, kind, test);
  bool **out;
  uint64_t bytes;
  size_t left = 0;
  br_snapshot_prune(f->session, s, snap, text, &out, &bytes);
  for (size_t i = 0; i < snap->n; i++)
    for (size_t g = 0; g < snap->files[i]->file.n_groups; g++) left += !out[i][g];
  br_prune_free(snap, out);
  free(text);
  return left;
}

/* Counted anew. */
static size_t cached(const br_source *s) {
  const char *path;
  void *value;
  size_t bytes = 0;
  for (size_t it = 0; br_smap_next(s->footers, &it, &path, &value);) {
    const footer *f = value;
    for (const column_bounds *b = f->bounds; b; b = b->next) {
      bytes += sizeof *b + strlen(b->column) + f->file.n_groups * sizeof *b->groups;
      for (size_t g = 0; g < f->file.n_groups; g++)
        bytes += (b->groups[g].least ? strlen(b->groups[g].least) : 0) +
                 (b->groups[g].greatest ? strlen(b->groups[g].greatest) : 0);
    }
  }
  return bytes;
}

static void counted(void **state) {
  const fixture *f = *state;
  br_source *s = br_source_new();
  write_file(f, 'a', "20480");
  write_file(f, 'b', "4096");
  br_snapshot *both = snapshot(f, s, "ab");
  assert_int_equal(s->bounds_bytes, 0);
  assert_int_equal(prune(f, s, both, "a", "integer", "[\"<\",\"3000\"]"), 4);
  size_t one = s->bounds_bytes;
  assert_true(one > 0);
  assert_int_equal(one, cached(s));
  assert_int_equal(prune(f, s, both, "a", "integer", "[\"<\",\"1\"]"), 2);
  assert_int_equal(s->bounds_bytes, one); /* it was known */
  prune(f, s, both, "s", "text", "[\"<\",\"t\"]");
  assert_true(s->bounds_bytes > one);
  assert_int_equal(s->bounds_bytes, cached(s));
  write_file(f, 'a', "40960"); /* its footer goes, and what was known of it */
  br_snapshot *changed = snapshot(f, s, "ab");
  assert_int_equal(s->bounds_bytes, cached(s));
  assert_true(s->bounds_bytes > 0);
  prune(f, s, both, "s", "text", "[\"=\",\"t\"]"); /* one of them is not in the cache any more */
  assert_int_equal(s->bounds_bytes, cached(s));
  assert_int_equal(prune(f, s, changed, "a", "integer", "[\"<\",\"3000\"]"), 4);
  assert_int_equal(s->bounds_bytes, cached(s));
  br_snapshot_free(both);
  br_snapshot_free(changed);
  br_source_free(s);
}

static void forgotten(void **state) {
  const fixture *f = *state;
  br_source *s = br_source_new();
  write_file(f, 'c', "20480");
  br_snapshot *snap = snapshot(f, s, "c");
  assert_int_equal(prune(f, s, snap, "a", "integer", "[\"<\",\"1\"]"), 1);
  size_t one = s->bounds_bytes;
  s->bounds_bytes = 65 << 20;
  assert_int_equal(prune(f, s, snap, "a", "integer", "[\"<\",\"1\"]"), 1); /* before they go */
  assert_int_equal(s->bounds_bytes, 0);
  assert_int_equal(cached(s), 0);
  assert_int_equal(prune(f, s, snap, "a", "integer", "[\"<\",\"1\"]"), 1); /* asked for anew */
  assert_int_equal(s->bounds_bytes, one);
  br_snapshot_free(snap);
  br_source_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(counted), cmocka_unit_test(forgotten)};
  return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
