/* SPDX-License-Identifier: Apache-2.0
 * links: br_engine
 * Plans as JSON: names, types, refusals, settings put back. */
#include "engine_fixture.h"

#define OWN_SETTING "window_self_join" /* off in every instance: input(k) can be read once */

static void expect_plan(br_session *s, const char *sql, const char *part) {
  br_planned p;
  OK(br_session_plan(s, sql, &p, &err));
  if (p.refused) fail_msg("%s: refused: %s", sql, p.refused);
  assert_non_null(p.json);
  assert_int_equal(strncmp(p.json, "{\"error\":false", 14), 0);
  char *explain = NULL;
  OK(br_session_estimates(s, &p, &explain, &err));
  assert_non_null(explain);
  assert_int_equal(explain[0], '[');
  free(explain);
  if (!strstr(p.json, part)) fail_msg("%s: no %s in %s", sql, part, p.json);
  br_planned_free(&p);
}

static void expect_refused(br_session *s, const char *sql, const char *part) {
  br_planned p;
  OK(br_session_plan(s, sql, &p, &err));
  assert_null(p.json);
  if (!p.refused) fail_msg("%s: not refused", sql);
  if (!strstr(p.refused, part)) fail_msg("%s: refused for another reason: %s", sql, p.refused);
  br_planned_free(&p);
}

static int tables(void **state) {
  if (fixture_open(state)) return 1;
  fixture *f = *state;
  OK(br_session_execute(
      f->session, "CREATE TABLE t AS SELECT range AS a, range % 3 AS b, 'it''s ' || range AS s FROM range(100)", &err));
  return 0;
}

static void plans(void **state) {
  br_session *s = ((fixture *)*state)->session;
  expect_plan(s, "SELECT b, sum(a) FROM t WHERE s <> 'it''s' GROUP BY b", "LOGICAL_AGGREGATE");
  expect_plan(s, "FROM t ORDER BY a -- comment", "LOGICAL_ORDER_BY");
  expect_plan(s, "WITH x AS MATERIALIZED (SELECT a FROM t) SELECT * FROM x x1, x x2 WHERE x1.a = x2.a", "LOGICAL_");
  expect_plan(s, "INSERT INTO t SELECT a, b, s FROM t", "LOGICAL_INSERT");
  expect_plan(s, "SELECT a FROM t LIMIT 0", "LOGICAL_EMPTY_RESULT");
  expect_cell(s, "SELECT count(*) FROM t", "100");
}

/* IN stays an IN: the optimizers of plan-json are off while planning, and on again afterwards. */
static void optimizers(void **state) {
  br_session *s = ((fixture *)*state)->session;
  br_planned p;
  OK(br_session_plan(s, "SELECT * FROM t WHERE a IN (1, 5, 9, 11, 17, 30, 40, 50, 60, 70, 80)", &p, &err));
  assert_null(strstr(p.json, "LOGICAL_CHUNK_GET"));
  br_planned_free(&p);
  expect_cell(s, "SELECT current_setting('disabled_optimizers')", OWN_SETTING);
  expect_cell(s, "SELECT lower(current_setting('explain_output'))", "physical_only");
  OK(br_session_execute(s, "SET disabled_optimizers = 'reorder_filter'", &err));
  expect_plan(s, "FROM t", "LOGICAL_GET");
  expect_cell(s, "SELECT current_setting('disabled_optimizers')", "reorder_filter");
  OK(br_session_execute(s, "RESET disabled_optimizers", &err));
  br_error err = {0};
  assert_int_equal(br_session_plan(s, "SELECT nope FROM t", &p, &err), BR_INVALID);
  expect_cell(s, "SELECT current_setting('disabled_optimizers')", "");
}

static void names_and_types(void **state) {
  br_session *s = ((fixture *)*state)->session;
  static const struct {
    const char *value, *type;
  } cases[] = {{"true", "BOOLEAN"},
               {"1::DECIMAL(7,3)", "DECIMAL(7,3)"},
               {"[[1]]", "INTEGER[][]"},
               {"[1, 2]::UTINYINT[2]", "UTINYINT[2]"},
               {"map(['a'], [1.5::DOUBLE])", "MAP(VARCHAR, DOUBLE)"},
               {"{'a b': 1, 'c': {'d': NULL::UUID}}", "STRUCT(\"a b\" INTEGER, \"c\" STRUCT(\"d\" UUID))"},
               {"union_value(num := 2)::UNION(num INTEGER, str VARCHAR)", "UNION(\"num\" INTEGER, \"str\" VARCHAR)"},
               {"'x'::ENUM('x', 'it''s')", "ENUM('x', 'it''s')"},
               {"'{}'::JSON", "JSON"},
               {"TIMESTAMPTZ '2020-01-01'", "TIMESTAMP WITH TIME ZONE"},
               {"'12:00+01'::TIMETZ", "TIME WITH TIME ZONE"},
               {"1::UHUGEINT", "UHUGEINT"},
               {"'101'::VARCHAR::BIT", "BIT"},
               {"TIMESTAMP_NS '2020-01-01'", "TIMESTAMP_NS"},
               {"INTERVAL 1 DAY", "INTERVAL"},
               {"a", "BIGINT"}};
  br_buf sql = {0};
  size_t n = sizeof cases / sizeof *cases;
  br_buf_str(&sql, "SELECT ");
  for (size_t i = 0; i < n; i++) br_buf_printf(&sql, "%s%s AS \"N %zu\"", i ? ", " : "", cases[i].value, i % 4);
  br_buf_str(&sql, " FROM t");
  br_planned p;
  OK(br_session_plan(s, br_buf_cstr(&sql), &p, &err));
  assert_int_equal(p.columns, n);
  for (size_t i = 0; i < n; i++) {
    char name[16];
    snprintf(name, sizeof name, "N %zu", i % 4); /* names may come twice */
    assert_string_equal(p.names[i], name);
    assert_string_equal(p.types[i], cases[i].type);
    /* the text is a type that DuckDB reads back */
    char *cast = br_asprintf("SELECT typeof(CAST(NULL AS %s)) = typeof(%s) FROM t LIMIT 1", p.types[i], cases[i].value);
    expect_cell(s, cast, "true");
    free(cast);
  }
  br_planned_free(&p);
  br_buf_free(&sql);
}

/* Plain types are told by DESCRIBE: names as they are, also twice. */
static void plain_columns(void **state) {
  br_session *s = ((fixture *)*state)->session;
  static const char *const want[][2] = {{"a", "BIGINT"},         {"a", "VARCHAR"},   {"A", "DATE"},
                                        {"x y", "DECIMAL(9,4)"}, {"f(1)", "DOUBLE"}, {"sum(b)", "HUGEINT"}};
  br_planned p;
  OK(br_session_plan(s,
                     "SELECT a, s AS a, DATE '2020-01-01' AS \"A\", 1::DECIMAL(9,4) AS \"x y\", 1::DOUBLE AS "
                     "\"f(1)\", sum(b) FROM t GROUP BY ALL -- why not",
                     &p, &err));
  assert_int_equal(p.columns, 6);
  for (size_t i = 0; i < 6; i++) {
    assert_string_equal(p.names[i], want[i][0]);
    assert_string_equal(p.types[i], want[i][1]);
  }
  br_planned_free(&p);
}

static void refusals(void **state) {
  fixture *f = *state;
  br_session *s = f->session;
  char *sql = br_asprintf("COPY t TO '%s/t.csv'", f->scratch);
  OK(br_session_execute(s, sql, &err));
  free(sql);
  sql = br_asprintf("SELECT * FROM read_csv('%s/t.csv')", f->scratch);
  expect_refused(s, sql, "not implemented");
  free(sql);
  expect_refused(s, "PIVOT t ON b USING sum(a)", "several statements");
  expect_refused(s, "EXPLAIN SELECT 1", "EXPLAIN");
  expect_refused(s, "SELECT '101'::BIT", "UTF-8");
  expect_refused(s, "SET threads = 2", "not a query");
  br_planned p; /* a refused query still has names and types */
  OK(br_session_plan(s, "SELECT '101'::BIT AS b", &p, &err));
  assert_int_equal(p.columns, 1);
  assert_string_equal(p.names[0], "b");
  assert_string_equal(p.types[0], "BIT");
  br_planned_free(&p);
}

static void failures(void **state) {
  br_session *s = ((fixture *)*state)->session;
  br_planned p;
  br_error err = {0};
  assert_int_equal(br_session_plan(s, "SELECT a,\nb\nFRMO t", &p, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "LINE 3:"));
  assert_int_equal(br_session_plan(s, "SELECT a,\n zz FROM t", &p, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "LINE 2:"));
  assert_non_null(strchr(err.message, '^'));
  assert_int_equal(br_session_plan(s, "SELECT a FROM t WHERE b = $1", &p, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "parameters"));
  assert_int_equal(br_session_plan(s, "SELECT * FROM '/no/such/x.parquet'", &p, &err), BR_IO);
}

static void session_objects(void **state) {
  br_session *s = ((fixture *)*state)->session;
  OK(br_session_execute(s, "CREATE TEMP VIEW v AS SELECT a + 1 AS a1 FROM t", &err));
  OK(br_session_execute(s, "CREATE TEMP TABLE tt AS SELECT 1 AS x", &err));
  OK(br_session_execute(s, "CREATE MACRO twice(x) AS x * 2", &err));
  expect_plan(s, "SELECT twice(a1) FROM v", "LOGICAL_GET");
  expect_plan(s, "SELECT x FROM tt", "LOGICAL_GET");
}

/* Sessions that plan and that run texts at the same time leave the settings as they were. */
static void *plan_many(void *arg) {
  br_session *s = arg;
  for (int i = 0; i < 40; i++) {
    br_planned p;
    br_error err;
    if (br_session_plan(s, "SELECT b, count(*) FROM t GROUP BY b", &p, &err) != BR_OK) return (void *)1;
    br_planned_free(&p);
    br_table t;
    if (br_session_table(s, "SELECT count(*) FROM t", &t, &err) != BR_OK) return (void *)1;
    br_table_free(&t);
  }
  return NULL;
}

static void at_once(void **state) {
  fixture *f = *state;
  br_session *s[3];
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    OK(br_session_open(f->engine, &s[i], &err));
    pthread_create(&threads[i], NULL, plan_many, s[i]);
  }
  for (int i = 0; i < 3; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    assert_null(failed);
    br_session_close(s[i]);
  }
  expect_cell(f->session,
              "SELECT current_setting('disabled_optimizers') || current_setting('preserve_insertion_order')", "true");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans),           cmocka_unit_test(optimizers),
                                     cmocka_unit_test(names_and_types), cmocka_unit_test(plain_columns),
                                     cmocka_unit_test(refusals),        cmocka_unit_test(failures),
                                     cmocka_unit_test(session_objects), cmocka_unit_test(at_once)};
  return cmocka_run_group_tests(tests, tables, fixture_close);
}
