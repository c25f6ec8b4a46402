/* SPDX-License-Identifier: Apache-2.0
 * links: br_source
 * True cardinalities put into texts: the text around stays, the meaning stays. */
#include "engine_fixture.h"
#include "source/source.h"
#include <sys/stat.h>

static int make_files(void **state) {
  if (fixture_open(state)) return 1;
  fixture *f = *state;
  static const struct {
    const char *name;
    int rows;
  } files[] = {
      {"x.y.parquet", 10}, {"p1.parquet", 100}, {"p2.parquet", 3000}, {"é'q.PARQUET", 5}, {"empty.parquet", 0}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    br_buf sql = {0};
    char *path = br_asprintf("%s/%s", f->scratch, files[i].name);
    br_buf_printf(&sql, "COPY (SELECT range AS a, range %% 7 AS b FROM range(%d)) TO ", files[i].rows);
    br_buf_sql_literal(&sql, path, strlen(path));
    br_buf_str(&sql, " (FORMAT parquet)");
    OK(br_session_execute(f->session, br_buf_cstr(&sql), &err));
    br_buf_free(&sql);
    free(path);
  }
  return 0;
}

/* @ stands for the scratch directory. */
static char *at_scratch(fixture *f, const char *text) {
  br_buf out = {0};
  for (; *text; text++) {
    if (*text == '@')
      br_buf_str(&out, f->scratch);
    else
      br_buf_char(&out, *text);
  }
  return br_buf_take(&out);
}

static char *rewrite(fixture *f, const char *text, uint64_t *bytes) {
  br_source *s = br_source_new();
  char *sql = at_scratch(f, text), *out;
  OK(br_source_rewrite(f->session, s, sql, &out, bytes, &err));
  br_source_free(s);
  free(sql);
  return out;
}

static void check(fixture *f, const char *text, const char *want) {
  uint64_t bytes;
  char *have = rewrite(f, text, &bytes), *expected = at_scratch(f, want);
  assert_string_equal(have, expected);
  free(have);
  free(expected);
}

static void texts(void **state) {
  fixture *f = *state;
  check(f, "SELECT * FROM '@/p1.parquet'",
        "SELECT * FROM read_parquet('@/p1.parquet', explicit_cardinality := 100) AS \"p1\"");
  check(f, "from '@/x.y.parquet' select x.a",
        "from read_parquet('@/x.y.parquet', explicit_cardinality := 10) AS \"x\" select x.a");
  check(f, "SELECT t.a -- it's\nFROM \"@/p1.parquet\" /* ; */ AS t(a, b)",
        "SELECT t.a -- it's\nFROM read_parquet('@/p1.parquet', explicit_cardinality := 100) /* ; */ AS t(a, b)");
  check(f, "SELECT 'é', * FROM '@/é''q.PARQUET' z",
        "SELECT 'é', * FROM read_parquet('@/é''q.PARQUET', explicit_cardinality := 5) z");
  check(f, "SELECT * FROM '@/p*.parquet'", "SELECT * FROM read_parquet('@/p*.parquet', explicit_cardinality := 3100)");
  check(f, "SELECT * FROM '@/empty.parquet' e",
        "SELECT * FROM read_parquet('@/empty.parquet', explicit_cardinality := 1) e");
  check(f,
        "SELECT * FROM read_parquet('@/p?.parquet', union_by_name = true) a JOIN main.PARQUET_SCAN(['@/p1.parquet', "
        "'@/x.y.parquet']) USING (a)",
        "SELECT * FROM read_parquet('@/p?.parquet', union_by_name = true, explicit_cardinality := 3100) a JOIN "
        "main.PARQUET_SCAN(['@/p1.parquet', "
        "'@/x.y.parquet'], explicit_cardinality := 110) USING (a)");
  check(f,
        "WITH w AS (SELECT * FROM '@/p1.parquet'), v AS (FROM '@/p2.parquet') SELECT (SELECT max(a) FROM "
        "'@/p2.parquet') FROM w, v WHERE EXISTS (FROM '@/p1.parquet' i WHERE i.a = w.a)",
        "WITH w AS (SELECT * FROM read_parquet('@/p1.parquet', explicit_cardinality := 100) AS \"p1\"), v AS (FROM "
        "read_parquet('@/p2.parquet', explicit_cardinality := "
        "3000) AS \"p2\") SELECT (SELECT max(a) FROM read_parquet('@/p2.parquet', explicit_cardinality := 3000) AS "
        "\"p2\") FROM w, v WHERE EXISTS (FROM "
        "read_parquet('@/p1.parquet', explicit_cardinality := 100) i WHERE i.a = w.a)");
  check(f, "CREATE OR REPLACE TEMP VIEW v(k, \"AS\") AS -- x\n SELECT * FROM '@/p1.parquet'",
        "CREATE OR REPLACE TEMP VIEW v(k, \"AS\") AS -- x\n SELECT * FROM read_parquet('@/p1.parquet', "
        "explicit_cardinality := 100) AS \"p1\"");
  check(f, "create table if not exists t2 as from '@/p2.parquet'",
        "create table if not exists t2 as from read_parquet('@/p2.parquet', explicit_cardinality := 3000) AS \"p2\"");
}

static void unchanged(void **state) {
  fixture *f = *state;
  static const char *const same[] = {"SELECT 1",
                                     "SELECT * FROM read_parquet('@/p1.parquet', explicit_cardinality := 7)",
                                     "SELECT * FROM '@/missing.parquet'",
                                     "SELECT * FROM read_parquet('@/none*.parquet')",
                                     "SELECT * FROM read_parquet(getvariable('x'))",
                                     "SELECT * FROM read_parquet(['@/p1.parquet', getvariable('x')])",
                                     "SELECT '@/p1.parquet' AS \"from '@/p1.parquet'\"",
                                     "SELECT * FRM '@/p1.parquet'",
                                     "DESCRIBE '@/p1.parquet'",
                                     "SUMMARIZE '@/p1.parquet'",
                                     "TABLE '@/p1.parquet'",
                                     "INSERT INTO t SELECT * FROM '@/p1.parquet'",
                                     "PIVOT '@/p1.parquet' ON b USING sum(a)",
                                     "SET threads = 2",
                                     ""};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) check(f, same[i], same[i]);
}

static void meaning(void **state) {
  fixture *f = *state;
  static const char *const sqls[] = {
      "SELECT sum(p1.a) + count(*) FROM '@/p1.parquet' JOIN '@/p2.parquet' q ON p1.a = q.a",
      "SELECT sum(a) FROM (FROM '@/p*.parquet' UNION ALL FROM read_parquet(['@/x.y.parquet']))",
      "SELECT count(*) FROM '@/p2.parquet' TABLESAMPLE 100%", "SELECT sum(x.b) FROM \"@/x.y.parquet\""};
  for (size_t i = 0; i < sizeof sqls / sizeof *sqls; i++) {
    uint64_t bytes;
    char *before = at_scratch(f, sqls[i]), *after = rewrite(f, sqls[i], &bytes);
    br_table t;
    assert_true(strcmp(before, after) != 0);
    OK(br_session_table(f->session, before, &t, &err));
    expect_cell(f->session, after, br_table_cell(&t, 0, 0));
    br_table_free(&t);
    free(before);
    free(after);
  }
}

static void sizes(void **state) {
  fixture *f = *state;
  uint64_t bytes, want = 0;
  static const char *const names[] = {"p1.parquet", "p2.parquet", "p1.parquet"};
  for (size_t i = 0; i < 3; i++) {
    struct stat st;
    char *path = br_asprintf("%s/%s", f->scratch, names[i]);
    assert_int_equal(stat(path, &st), 0);
    want += (uint64_t)st.st_size;
    free(path);
  }
  free(rewrite(
      f, "FROM read_parquet('@/p*.parquet') UNION ALL FROM read_parquet('@/p1.parquet', explicit_cardinality := 4)",
      &bytes));
  assert_int_equal(bytes, want);
  free(rewrite(f, "SELECT 1", &bytes));
  assert_int_equal(bytes, 0);
}

/* The guess that this is for: a small file beside a large one. */
static void plans(void **state) {
  fixture *f = *state;
  uint64_t bytes;
  char *sql = rewrite(f, "SELECT * FROM read_parquet(['@/p1.parquet', '@/p2.parquet'])", &bytes);
  br_planned p;
  OK(br_session_plan(f->session, sql, &p, &err));
  char *explain = NULL;
  OK(br_session_estimates(f->session, &p, &explain, &err));
  assert_non_null(strstr(explain, "3100"));
  free(explain);
  br_planned_free(&p);
  free(sql);
}

/* It may be one that the query's filters leave out: its rows are not counted, and whoever reads it says so. */
static void broken_file(void **state) {
  fixture *f = *state;
  char *path = br_asprintf("%s/cut.parquet", f->scratch), *sql = at_scratch(f, "SELECT * FROM '@/cut.parquet'"), *out;
  FILE *file = fopen(path, "wb");
  fwrite("PAR1 and then nothing more", 1, 26, file);
  fclose(file);
  br_source *s = br_source_new();
  uint64_t bytes;
  br_planned p;
  OK(br_source_rewrite(f->session, s, sql, &out, &bytes, &err));
  br_error err = {0};
  assert_string_equal(out, sql);
  assert_int_not_equal(br_session_plan(f->session, out, &p, &err), BR_OK);
  assert_non_null(strstr(err.message, path));
  unlink(path);
  free(out);
  br_source_free(s);
  free(path);
  free(sql);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts),   cmocka_unit_test(unchanged),
                                     cmocka_unit_test(meaning), cmocka_unit_test(sizes),
                                     cmocka_unit_test(plans),   cmocka_unit_test(broken_file)};
  return cmocka_run_group_tests(tests, make_files, fixture_close);
}
