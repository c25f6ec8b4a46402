/* SPDX-License-Identifier: Apache-2.0
 * links: br_source
 * Columns by which the rows of files lie in order; the rows of a range of values as SQL: each row in exactly one of the ranges. */
#include "engine_fixture.h"
#include "source/source.h"

enum { POINTS = 8 };

/* n goes on from file to file, d steps every 3,000 rows across row groups and files; the other columns are not in order, or hold a NULL. */
static int make_files(void **state) {
  if (fixture_open(state)) return 1;
  fixture *f = *state;
  for (int i = 0; i < 3; i++) {
    char *sql = br_asprintf(
        "COPY (SELECT i - 5000 AS n, DATE '1970-01-01' + (i // 3000)::INTEGER AS d, -i AS down, i %% 5000 AS again, "
        "CASE WHEN i = 7000 THEN NULL ELSE i END AS holes, i AS \"a \"\"b\" FROM range(%d, %d) "
        "t(i)) TO '%s/%d.parquet' (ROW_GROUP_SIZE 2048)",
        i * 5000, i * 5000 + 5000, f->scratch, i);
    OK(br_session_execute(f->session, sql, &err));
    free(sql);
  }
  return 0;
}

static br_snapshot *snapshot(fixture *f, br_source *s, int first, int last) {
  char *paths[4];
  size_t n = 0;
  br_snapshot *snap;
  for (int i = first; i <= last; i++) paths[n++] = br_asprintf("%s/%d.parquet", f->scratch, i);
  OK(br_source_snapshot(f->session, s, (const char *const *)paths, n, &snap, &err));
  for (size_t i = 0; i < n; i++) free(paths[i]);
  return snap;
}

static void in_order(void **state) {
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(*state, s, 0, 2);
  int64_t at[POINTS + 1];
  assert_int_equal(br_snapshot_sorted(snap, "n", BR_RANGE_INTEGER, at, POINTS), 9);
  assert_int_equal(at[0], -5000);
  assert_int_equal(at[POINTS], 9999);
  for (int k = 1; k < POINTS; k++) assert_in_range(at[k] + 5000, 15000 * k / POINTS - 2, 15000 * k / POINTS + 2);
  assert_int_equal(br_snapshot_sorted(snap, "D", BR_RANGE_DATE, at, POINTS), 9);
  assert_int_equal(at[0], 0);
  assert_int_equal(at[POINTS], 4);
  static const char *const others[] = {"down", "again", "holes", "nothing"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_int_equal(br_snapshot_sorted(snap, others[i], BR_RANGE_INTEGER, at, POINTS), 0);
  assert_int_equal(br_snapshot_sorted(snap, "n", BR_RANGE_DATE, at, POINTS), 0);
  br_snapshot_free(snap);
  snap = snapshot(*state, s, 0, 0); /* the hole is in another file */
  assert_int_equal(br_snapshot_sorted(snap, "holes", BR_RANGE_INTEGER, at, POINTS), 3);
  br_snapshot_free(snap);
  br_source_free(s);
}

static uint64_t count(fixture *f, const br_snapshot *snap, const char *column, br_range_kind kind, br_value_range want,
                      const char *condition, uint64_t *rows) {
  br_buf sql = {0};
  br_table t;
  br_buf_printf(&sql, "SELECT concat(count(*), CASE WHEN coalesce(bool_and(%s), true) THEN '' ELSE '!' END) FROM ",
                condition);
  *rows = br_snapshot_range_sql(snap, &(br_sorted_scan){.column = column, .kind = kind}, &want, &sql);
  OK(br_session_table(f->session, br_buf_cstr(&sql), &t, &err));
  assert_null(strchr(br_table_cell(&t, 0, 0), '!'));
  uint64_t n = strtoull(br_table_cell(&t, 0, 0), NULL, 10);
  br_table_free(&t);
  br_buf_free(&sql);
  return n;
}

/* Cuts at ends of files, inside row groups, beyond all values, twice the same. */
static void ranges(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(f, s, 0, 2);
  static const int64_t cuts[] = {-6000, -5000, -4999, 0, 0, 123, 5000, 9999, 20000};
  size_t n = sizeof cuts / sizeof *cuts;
  uint64_t all = 0, rows;
  for (size_t k = 0; k <= n; k++) {
    br_value_range want = {.from_known = k > 0, .to_known = k < n};
    char *condition;
    if (k > 0) want.from = cuts[k - 1];
    if (k < n) want.to = cuts[k];
    condition = br_asprintf("n >= %lld AND n < %lld", (long long)(k > 0 ? want.from : -1000000),
                            (long long)(k < n ? want.to : 1000000));
    uint64_t found = count(f, snap, "n", BR_RANGE_INTEGER, want, condition, &rows);
    assert_true(rows >= found && rows <= found + 2 * 2048);
    all += found;
    free(condition);
  }
  assert_int_equal(all, 15000);
  br_value_range day = {.from_known = true, .from = 1, .to_known = true, .to = 3};
  assert_int_equal(count(f, snap, "d", BR_RANGE_DATE, day, "d BETWEEN '1970-01-02' AND '1970-01-03'", &rows), 6000);
  br_value_range odd = {.to_known = true, .to = 77};
  assert_int_equal(count(f, snap, "a \"b", BR_RANGE_INTEGER, odd, "\"a \"\"b\" < 77", &rows), 77);
  br_snapshot_free(snap);
  br_source_free(s);
}

/* Whole files are read as such: no condition, their true rows. */
static void texts(void **state) {
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(*state, s, 0, 2);
  br_value_range want = {.from_known = true, .from = 0};
  br_buf sql = {0};
  br_sorted_scan scan = {.column = "n", .kind = BR_RANGE_INTEGER, .options = "union_by_name := true"};
  assert_int_equal(br_snapshot_range_sql(snap, &scan, &want, &sql), 10000);
  assert_null(strstr(br_buf_cstr(&sql), "WHERE"));
  assert_null(strstr(br_buf_cstr(&sql), "/0.parquet"));
  assert_non_null(strstr(br_buf_cstr(&sql), "explicit_cardinality := 10000, union_by_name := true"));
  br_buf_free(&sql);
  want.from = 1; /* of the first row group of a file, all but a row */
  assert_int_equal(br_snapshot_range_sql(snap, &scan, &want, &sql), 10000);
  assert_non_null(strstr(br_buf_cstr(&sql), "explicit_cardinality := 50000, union_by_name := true) WHERE \"n\" >= 1)"));
  br_buf_free(&sql);
  br_snapshot_free(snap);
  br_source_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_order), cmocka_unit_test(ranges), cmocka_unit_test(texts)};
  return cmocka_run_group_tests(tests, make_files, fixture_close);
}
