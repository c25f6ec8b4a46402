/* SPDX-License-Identifier: Apache-2.0
 * links: br_source
 * What footers say of a column's values, a row group and a split at a time: whole numbers and dates, and where nothing is known. */
#include "engine_fixture.h"
#include "source/source.h"

/* a.parquet: 4 row groups of 2,048 rows; b.parquet: one, whose n and d are NULL. */
static int make_files(void **state) {
  if (fixture_open(state)) return 1;
  fixture *f = *state;
  char *sql = br_asprintf(
      "COPY (SELECT i::INTEGER AS n, -i AS \"Low er\", DATE '1970-01-01' + i::INTEGER AS d, i::VARCHAR AS s, i / 2.0 "
      "AS x, "
      "CASE WHEN i < 2048 THEN NULL ELSE i END AS some, i::DECIMAL(9,1) AS e FROM range(8192) t(i)) TO '%s/a.parquet' "
      "(ROW_GROUP_SIZE 2048)",
      f->scratch);
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
  sql = br_asprintf(
      "COPY (SELECT NULL::INTEGER AS n, 7::BIGINT AS \"Low er\", NULL::DATE AS d FROM range(10)) TO '%s/b.parquet'",
      f->scratch);
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
  return 0;
}

static br_snapshot *snapshot(fixture *f, br_source *s, const char *const *names, size_t n) {
  char *paths[2];
  br_snapshot *snap;
  for (size_t i = 0; i < n; i++) paths[i] = br_asprintf("%s/%s", f->scratch, names[i]);
  OK(br_source_snapshot(f->session, s, (const char *const *)paths, n, &snap, &err));
  for (size_t i = 0; i < n; i++) free(paths[i]);
  return snap;
}

static void expect(const br_snapshot *s, const br_split *split, const char *column, br_range_kind kind, bool known,
                   int64_t least, int64_t greatest) {
  br_range r = br_split_range(s, split, column, kind);
  assert_int_equal(r.known, known);
  if (!known) return;
  assert_int_equal(r.least, least);
  assert_int_equal(r.greatest, greatest);
}

static void row_groups(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(f, s, (const char *const[]){"a.parquet"}, 1);
  br_piece piece = {.first_row = 2048, .last_row = 6000}; /* the second group, and part of the third */
  br_split split = {.pieces = &piece, .n = 1};
  expect(snap, &split, "n", BR_RANGE_INTEGER, true, 2048, 6143);
  expect(snap, &split, "LOW ER", BR_RANGE_INTEGER, true, -6143, -2048);
  expect(snap, &split, "d", BR_RANGE_DATE, true, 2048, 6143);
  expect(snap, &split, "some", BR_RANGE_INTEGER, true, 2048, 6143);
  expect(snap, &split, "n", BR_RANGE_DATE, false, 0, 0);    /* numbers are no dates */
  expect(snap, &split, "s", BR_RANGE_INTEGER, false, 0, 0); /* '9' is less than '10' */
  expect(snap, &split, "x", BR_RANGE_INTEGER, false, 0, 0);
  expect(snap, &split, "nothing", BR_RANGE_INTEGER, false, 0, 0);
  piece = (br_piece){.whole_file = true};
  expect(snap, &split, "n", BR_RANGE_INTEGER, true, 0, 8191);
  expect(snap, &split, "some", BR_RANGE_INTEGER, false, 0, 0); /* a group of NULLs alone: it says nothing */
  br_snapshot_free(snap);
  br_source_free(s);
}

static void several_files(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(f, s, (const char *const[]){"a.parquet", "b.parquet"}, 2);
  br_piece pieces[] = {{.file = 0, .first_row = 0, .last_row = 99}, {.file = 1, .whole_file = true}};
  br_split split = {.pieces = pieces, .n = 2};
  expect(snap, &split, "Low er", BR_RANGE_INTEGER, true, -2047, 7);
  expect(snap, &split, "n", BR_RANGE_INTEGER, false, 0, 0);
  split.n = 1;
  expect(snap, &split, "n", BR_RANGE_INTEGER, true, 0, 2047);
  br_snapshot_free(snap);
  snap = snapshot(f, s, (const char *const[]){"b.parquet"}, 1); /* the footers are remembered, with what they said */
  split = (br_split){.pieces = &(br_piece){.whole_file = true}, .n = 1};
  expect(snap, &split, "Low er", BR_RANGE_INTEGER, true, 7, 7);
  br_snapshot_free(snap);
  br_source_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(row_groups), cmocka_unit_test(several_files)};
  return cmocka_run_group_tests(tests, make_files, fixture_close);
}
