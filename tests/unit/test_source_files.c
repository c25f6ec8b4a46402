/* SPDX-License-Identifier: Apache-2.0
 * links: br_source
 * Globs, footers, their cache, snapshots, splits of files and of tables, and the SQL of splits. */
#include "engine_fixture.h"
#include "source/source.h"
#include <fcntl.h>
#include <sys/stat.h>

static char *path_of(fixture *f, const char *name) { return br_asprintf("%s/%s", f->scratch, name); }

static void exec(fixture *f, const char *format, const char *path) {
  char *sql = br_asprintf(format, path); /* NOLINT: the formats are ours */
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
}

/* big.parquet: 5 row groups of 20480 rows (the last 18080); small<i>.parquet: 10 rows; none.parquet: no rows. */
static int make_files(void **state) {
  if (fixture_open(state)) return 1;
  fixture *f = *state;
  char *sql = br_asprintf(
      "COPY (SELECT range AS a, 'text ' || range AS S, {'k': range, 'l': [range]} AS st FROM range(100000)) TO "
      "'%s/big.parquet' "
      "(ROW_GROUP_SIZE 20480)",
      f->scratch);
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
  for (int i = 0; i < 6; i++) {
    sql = br_asprintf(
        "COPY (SELECT range + %d AS a, 'it''s' AS S, {'k': range, 'l': [range]} AS st FROM range(10)) TO "
        "'%s/small''%d.parquet'",
        1000000 + i * 10, f->scratch, i);
    OK(br_session_execute(f->session, sql, &err));
    free(sql);
  }
  sql = br_asprintf(
      "COPY (SELECT range AS a, '' AS S, {'k': range, 'l': [range]} AS st FROM range(0)) TO '%s/none.parquet'",
      f->scratch);
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
  return 0;
}

static br_snapshot *snapshot(fixture *f, br_source *s, const char *glob) {
  char *pattern = path_of(f, glob), **paths;
  size_t n;
  br_snapshot *snap;
  OK(br_source_expand(f->session, (const char *const[]){pattern}, 1, &paths, &n, &err));
  OK(br_source_snapshot(f->session, s, (const char *const *)paths, n, &snap, &err));
  for (size_t i = 0; i < n; i++) free(paths[i]);
  free(paths);
  free(pattern);
  return snap;
}

static void footers(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(f, s, "*.parquet");
  assert_int_equal(br_snapshot_files(snap), 8);
  assert_int_equal(br_snapshot_rows(snap), 100060);
  const br_file *big = br_snapshot_file(snap, 0), *none = br_snapshot_file(snap, 1);
  assert_non_null(strstr(big->path, "/big.parquet"));
  assert_int_equal(big->rows, 100000);
  assert_int_equal(big->n_groups, 5);
  assert_int_equal(big->groups[4].first_row, 4 * 20480);
  assert_int_equal(big->groups[4].rows, 100000 - 4 * 20480);
  assert_true(big->local && big->size_bytes > 100000 && big->mtime_ns > 0);
  assert_int_equal(big->n_columns, 3); /* nested columns are one */
  uint64_t sum = 0, groups = 0;
  for (size_t i = 0; i < 3; i++) sum += big->columns[i].bytes;
  for (size_t i = 0; i < 5; i++) groups += big->groups[i].bytes;
  assert_int_equal(sum, groups);
  assert_true(sum < big->size_bytes && sum > big->size_bytes / 2);
  assert_int_equal(none->rows, 0);
  assert_int_equal(none->n_groups, 0);
  uint64_t all = br_snapshot_bytes(snap, NULL, 0), a = br_snapshot_bytes(snap, (const char *const[]){"A"}, 1);
  uint64_t rest = br_snapshot_bytes(snap, (const char *const[]){"s", "ST"}, 2);
  assert_true(a > 0 && a < all);
  assert_int_equal(a + rest, all);
  assert_int_equal(br_snapshot_bytes(snap, (const char *const[]){"other"}, 1), 0);
  OK(br_snapshot_check(snap, &err));
  /* the second time the footers are those of the cache */
  br_snapshot *again = snapshot(f, s, "*.parquet");
  for (size_t i = 0; i < 8; i++) assert_ptr_equal(br_snapshot_file(again, i), br_snapshot_file(snap, i));
  br_source_free(s);
  assert_int_equal(br_snapshot_rows(again), 100060); /* snapshots outlive the cache */
  br_snapshot_free(again);
  br_snapshot_free(snap);
}

static void remote_paths(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  char *url = br_asprintf("file://%s/big.parquet", f->scratch);
  br_snapshot *snap;
  br_error err = {0};
  br_status status = br_source_snapshot(f->session, s, (const char *const[]){url}, 1, &snap, &err);
  if (status != BR_OK) fail_msg("%s", err.message);
  assert_false(br_snapshot_file(snap, 0)->local);
  assert_int_equal(br_snapshot_rows(snap), 100000);
  assert_true(br_snapshot_file(snap, 0)->size_bytes > 100000);
  assert_true(br_snapshot_file(snap, 0)->mtime_ns > 0);
  br_snapshot_free(snap);
  br_source_free(s);
  s = br_source_new(); /* one file under two names */
  assert_int_equal(br_source_snapshot(f->session, s, (const char *const[]){url, url + 7, url}, 3, &snap, &err), BR_OK);
  assert_int_equal(br_snapshot_rows(snap), 300000);
  br_snapshot_free(snap);
  br_source_free(s);
  free(url);
}

static void changed_files(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  exec(f, "COPY (SELECT 1 AS a) TO '%s/moving.pq' (FORMAT parquet)", f->scratch);
  br_snapshot *snap = snapshot(f, s, "moving.pq"), *later;
  exec(f, "COPY (SELECT range AS a FROM range(1000)) TO '%s/moving.pq' (FORMAT parquet)", f->scratch);
  br_error err = {0};
  assert_int_equal(br_snapshot_check(snap, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "moving.pq"));
  assert_non_null(strstr(err.message, "changed"));
  later = snapshot(f, s, "moving.pq"); /* a new query sees the new file */
  assert_int_equal(br_snapshot_rows(snap), 1);
  assert_int_equal(br_snapshot_rows(later), 1000);
  char *path = path_of(f, "moving.pq");
  struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                              {.tv_sec = 1000000000, .tv_nsec = 5}}; /* the same size, another time */
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
  assert_int_equal(br_snapshot_check(later, &err), BR_INVALID);
  unlink(path);
  assert_int_equal(br_snapshot_check(later, &err), BR_NOT_FOUND);
  assert_non_null(strstr(err.message, path));
  free(path);
  br_snapshot_free(snap);
  br_snapshot_free(later);
  br_source_free(s);
}

static void bad_files(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap;
  char *big = path_of(f, "big.parquet"), *cut = path_of(f, "cut.pq"), *tiny = path_of(f, "tiny.pq"),
       *lying = path_of(f, "lying.pq");
  char bytes[5000];
  FILE *in = fopen(big, "rb"), *out = fopen(cut, "wb");
  assert_int_equal(fread(bytes, 1, sizeof bytes, in), sizeof bytes);
  fwrite(bytes, 1, sizeof bytes, out);
  fclose(in);
  fclose(out);
  out = fopen(tiny, "wb");
  fclose(out);
  out = fopen(lying, "wb");
  fwrite("PAR1 this footer does not parse PAR1", 1, 36, out);
  fclose(out);
  static const struct {
    const char *name;
    br_code code;
  } cases[] = {{"cut.pq", BR_CORRUPT}, {"tiny.pq", BR_CORRUPT}, {"missing.pq", BR_NOT_FOUND}, {"", BR_INVALID}};
  for (size_t i = 0; i < 4; i++) {
    char *path = path_of(f, cases[i].name);
    br_error err = {0};
    assert_int_equal(br_source_snapshot(f->session, s, (const char *const[]){big, path}, 2, &snap, &err),
                     cases[i].code);
    if (!strstr(err.message, path)) fail_msg("the message does not name %s: %s", path, err.message);
    assert_null(strchr(err.message, '\n'));
    free(path);
  }
  br_error err = {0};
  assert_true(br_source_snapshot(f->session, s, (const char *const[]){lying}, 1, &snap, &err) != BR_OK);
  assert_non_null(strstr(err.message, lying));
  char *pattern = path_of(f, "no*match.parquet"), **paths;
  size_t n;
  assert_int_equal(br_source_expand(f->session, (const char *const[]){pattern}, 1, &paths, &n, &err), BR_NOT_FOUND);
  assert_non_null(strstr(err.message, pattern));
  free(pattern);
  unlink(cut);
  unlink(tiny);
  unlink(lying);
  free(big);
  free(cut);
  free(tiny);
  free(lying);
  br_source_free(s);
}

/* Every row is in exactly one split, whatever the options; and the SQL of the splits together gives the files' rows. */
static void check_cover(fixture *f, const br_snapshot *snap, const br_split *splits, size_t n) {
  uint64_t rows = 0;
  br_buf sql = {0};
  br_buf_str(
      &sql,
      "SELECT concat(count(*), ' ', count(DISTINCT a), ' ', sum(a), ' ', count(DISTINCT S), ' ', sum(st.k)) FROM (");
  for (size_t i = 0; i < n; i++) {
    uint64_t sum = 0;
    assert_true(splits[i].n > 0);
    for (size_t k = 0; k < splits[i].n; k++) {
      assert_int_equal(splits[i].pieces[k].rows, splits[i].pieces[k].last_row - splits[i].pieces[k].first_row + 1);
      sum += splits[i].pieces[k].rows;
    }
    assert_int_equal(sum, splits[i].rows);
    rows += sum;
    br_buf_str(&sql, i ? " UNION ALL SELECT * FROM " : "SELECT * FROM ");
    br_split_sql(snap, &splits[i], NULL, &sql);
  }
  br_buf_char(&sql, ')');
  assert_int_equal(rows, br_snapshot_rows(snap));
  char *truth = br_asprintf(
      "SELECT concat(count(*), ' ', count(DISTINCT a), ' ', sum(a), ' ', count(DISTINCT S), ' ', sum(st.k)) FROM "
      "'%s/*.parquet'",
      f->scratch);
  br_table t;
  OK(br_session_table(f->session, truth, &t, &err));
  expect_cell(f->session, br_buf_cstr(&sql), br_table_cell(&t, 0, 0));
  br_table_free(&t);
  free(truth);
  br_buf_free(&sql);
}

static void file_splits(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(f, s, "*.parquet");
  uint64_t bytes = br_snapshot_bytes(snap, NULL, 0);
  static const char *const only_a[] = {"a"};
  const br_split_options options[] = {{0},
                                      {.target_bytes = bytes / 3},
                                      {.target_bytes = 1},
                                      {.min_splits = 4},
                                      {.min_splits = 1000},
                                      {.target_bytes = 1, .max_splits = 2},
                                      {.columns = only_a, .n_columns = 1, .min_splits = 3},
                                      {.columns = only_a, .n_columns = 0, .min_splits = 5}};
  const size_t at_most[] = {1, 4, 11, 4, 11, 2, 3, 5}, at_least[] = {1, 3, 5, 4, 5, 2, 3, 5};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    br_split *splits;
    size_t n;
    OK(br_snapshot_splits(snap, &options[i], &splits, &n, &err));
    if (n > at_most[i] || n < at_least[i]) fail_msg("options %zu: %zu splits", i, n);
    check_cover(f, snap, splits, n);
    br_splits_free(splits, n);
  }
  /* the small files together are one split, the empty one is in none */
  br_split *splits;
  size_t n;
  OK(br_snapshot_splits(snap, &(br_split_options){.target_bytes = bytes / 5}, &splits, &n, &err));
  assert_int_equal(splits[n - 1].pieces[splits[n - 1].n - 1].file, 7);
  assert_true(splits[n - 1].n >= 6);
  br_splits_free(splits, n);
  br_snapshot_free(snap);
  snap = snapshot(f, s, "none.parquet");
  OK(br_snapshot_splits(snap, &(br_split_options){.min_splits = 4}, &splits, &n, &err));
  assert_int_equal(n, 0);
  br_snapshot_free(snap);
  br_source_free(s);
}

static void split_texts(void **state) {
  fixture *f = *state;
  br_source *s = br_source_new();
  br_snapshot *snap = snapshot(f, s, "small*.parquet"), *one = snapshot(f, s, "big.parquet");
  br_split *splits;
  size_t n;
  br_buf have = {0};
  OK(br_snapshot_splits(snap, &(br_split_options){.max_splits = 1}, &splits, &n, &err));
  br_split_sql(snap, &splits[0], "union_by_name := true", &have);
  char *want = br_asprintf("read_parquet(['%s/small''0.parquet', ", f->scratch);
  assert_int_equal(strncmp(br_buf_cstr(&have), want, strlen(want)), 0);
  assert_non_null(strstr(br_buf_cstr(&have), "], explicit_cardinality := 60, union_by_name := true)"));
  free(want);
  br_splits_free(splits, n);
  br_piece piece = {.file = 0, .whole_file = true}; /* made by hand: the rows are the file's */
  br_buf_clear(&have);
  br_split_sql(one, &(br_split){.pieces = &piece, .n = 1}, NULL, &have);
  want = br_asprintf("read_parquet(['%s/big.parquet'], explicit_cardinality := 100000)", f->scratch);
  assert_string_equal(br_buf_cstr(&have), want);
  free(want);
  OK(br_snapshot_splits(one, &(br_split_options){.min_splits = 5}, &splits, &n, &err));
  assert_int_equal(n, 5);
  br_buf_clear(&have);
  br_split_sql(one, &splits[1], NULL, &have);
  want = br_asprintf(
      "(SELECT * EXCLUDE (file_row_number) FROM read_parquet('%s/big.parquet', file_row_number := true) WHERE "
      "file_row_number BETWEEN 20480 AND 40959)",
      f->scratch);
  assert_string_equal(br_buf_cstr(&have), want);
  free(want);
  char *sql = br_asprintf("SELECT concat(min(a), ' ', max(a), ' ', count(*)) FROM %s", br_buf_cstr(&have));
  expect_cell(f->session, sql, "20480 40959 20480");
  free(sql);
  br_buf_clear(&have);
  br_split_sql(one, &splits[1], "file_row_number := true", &have); /* asked for: stays */
  sql = br_asprintf("SELECT concat(min(file_row_number), ' ', count(*)) FROM %s", br_buf_cstr(&have));
  expect_cell(f->session, sql, "20480 20480");
  free(sql);
  br_splits_free(splits, n);
  br_buf_free(&have);
  br_snapshot_free(snap);
  br_snapshot_free(one);
  br_source_free(s);
}

static void table_splits(void **state) {
  fixture *f = *state;
  exec(f, "ATTACH '%s/a.duckdb' AS \"at t\"", f->scratch);
  OK(br_session_execute(f->session,
                        "CREATE TABLE \"at t\".main.t AS SELECT range AS a FROM range(1000000); DELETE FROM \"at "
                        "t\".main.t WHERE a % 10 = 3",
                        &err));
  OK(br_session_execute(f->session,
                        "CREATE TABLE \"at t\".main.own AS SELECT range AS a, 7 AS RowId FROM range(500000); CREATE "
                        "TABLE \"at t\".main.e(a INT)",
                        &err));
  const struct {
    uint64_t target;
    uint32_t least, most;
    size_t want;
  } cases[] = {{0, 0, 0, 1}, {0, 4, 0, 4}, {100000, 0, 0, 9}, {1, 0, 0, 9}, {1, 0, 3, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_table_split *splits;
    size_t n;
    OK(br_table_splits(f->session, "at t", "main", "t", cases[i].target, cases[i].least, cases[i].most, &splits, &n,
                       &err));
    assert_int_equal(n, cases[i].want);
    br_buf sql = {0};
    uint64_t rows = 0;
    br_buf_str(&sql, "SELECT concat(count(*), ' ', count(DISTINCT a), ' ', sum(a)) FROM (");
    for (size_t k = 0; k < n; k++) {
      br_buf_str(&sql, k ? " UNION ALL SELECT a FROM " : "SELECT a FROM ");
      br_table_split_sql("at t", "main", "t", &splits[k], &sql);
      br_buf_str(&sql, " x WHERE x.rowid >= 0");
      rows += splits[k].rows;
    }
    br_buf_char(&sql, ')');
    assert_int_equal(rows, 900000);
    expect_cell(f->session, br_buf_cstr(&sql), "900000 900000 449999700000");
    br_buf_free(&sql);
    free(splits);
  }
  br_table_split *splits;
  size_t n;
  OK(br_table_splits(f->session, "at t", "main", "own", 1, 4, 0, &splits, &n, &err));
  assert_int_equal(n, 1);
  assert_true(splits[0].whole_table);
  free(splits);
  OK(br_table_splits(f->session, "at t", "main", "e", 1, 4, 0, &splits, &n, &err));
  assert_int_equal(n, 1);
  assert_int_equal(splits[0].rows, 0);
  free(splits);
  br_error e = {0};
  assert_int_equal(br_table_splits(f->session, "at t", "main", "nope", 1, 4, 0, &splits, &n, &e), BR_INVALID);
  OK(br_session_execute(f->session, "DETACH \"at t\"", &err));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(footers),       cmocka_unit_test(remote_paths),
                                     cmocka_unit_test(changed_files), cmocka_unit_test(bad_files),
                                     cmocka_unit_test(file_splits),   cmocka_unit_test(split_texts),
                                     cmocka_unit_test(table_splits)};
  return cmocka_run_group_tests(tests, make_files, fixture_close);
}
