/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan duckdb
 *
 * Calls of users' functions in plans that DuckDB makes: which operators get a step, with which arguments, and what the stage reads of
 * it. The functions are scalars without a body that could run, like in the coordinator; the rows of every query are computed
 * by running the steps by hand with a body in SQL, and compared with the same query over a macro.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/stage/stage.h"

#include <duckdb.h>
#include <stdlib.h>
#include <string.h>

static duckdb_database db;
static duckdb_connection con;
static const br_udf functions[] = {{.id = 1, .name = "twice", .deterministic = true},
                                   {.id = 2, .name = "mix"},
                                   {.id = 3, .name = "words", .deterministic = true}};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static void run(const char *sql) {
  duckdb_result r;
  if (duckdb_query(con, sql, &r) != DuckDBSuccess) fail_msg("%s: %s", sql, duckdb_result_error(&r));
  duckdb_destroy_result(&r);
}

static char *text_of(const char *sql, idx_t column) {
  duckdb_result r;
  br_buf b = {0};
  if (duckdb_query(con, sql, &r) != DuckDBSuccess) fail_msg("%s: %s", sql, duckdb_result_error(&r));
  for (idx_t i = 0; i < duckdb_row_count(&r); i++) {
    idx_t first = column == UINT64_MAX ? 0 : column, last = column == UINT64_MAX ? duckdb_column_count(&r) : column + 1;
    for (idx_t c = first; c < last; c++) {
      char *v = duckdb_value_varchar(&r, c, i);
      br_buf_printf(&b, "%s%s", c > first ? "|" : "", v ? v : "NULL");
      duckdb_free(v);
    }
    if (column == UINT64_MAX) br_buf_char(&b, '\n');
  }
  duckdb_destroy_result(&r);
  return br_buf_take(&b);
}

static void body(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  (void)in;
  (void)out;
  duckdb_scalar_function_set_error(info, "it ran here");
}

static void register_function(uint64_t id, duckdb_type type, bool list) {
  char name[64];
  snprintf(name, sizeof name, BR_UDF_PREFIX "%d", (int)id);
  duckdb_scalar_function f = duckdb_create_scalar_function();
  duckdb_logical_type any = duckdb_create_logical_type(DUCKDB_TYPE_ANY), r = duckdb_create_logical_type(type);
  duckdb_logical_type result = list ? duckdb_create_list_type(r) : duckdb_create_logical_type(type);
  duckdb_scalar_function_set_name(f, name);
  duckdb_scalar_function_set_varargs(f, any);
  duckdb_scalar_function_set_return_type(f, result);
  duckdb_scalar_function_set_volatile(f);
  duckdb_scalar_function_set_special_handling(f);
  duckdb_scalar_function_set_function(f, body);
  assert_int_equal(duckdb_register_scalar_function(con, f), DuckDBSuccess);
  duckdb_destroy_logical_type(&any);
  duckdb_destroy_logical_type(&r);
  duckdb_destroy_logical_type(&result);
  duckdb_destroy_scalar_function(&f);
}

static int open_db(void **state) {
  (void)state;
  assert_int_equal(duckdb_open(NULL, &db), DuckDBSuccess);
  assert_int_equal(duckdb_connect(db, &con), DuckDBSuccess);
  register_function(1, DUCKDB_TYPE_BIGINT, false);
  register_function(2, DUCKDB_TYPE_VARCHAR, false);
  register_function(3, DUCKDB_TYPE_VARCHAR, true);
  run("SET threads = 1");
  run("SET disabled_optimizers = 'column_lifetime,compressed_materialization,late_materialization,join_filter_pushdown,"
      "common_aggregate,top_n_window_elimination,window_self_join,in_clause'");
  run("CREATE TABLE t AS SELECT i::BIGINT AS i, 'w' || i || ' x' AS s, i % 3 AS g FROM range(20) r(i)");
  run("CREATE TABLE u AS SELECT (i * 3)::BIGINT AS k, 'v' || i AS v FROM range(20) r(i)");
  return 0;
}

static int close_db(void **state) {
  (void)state;
  duckdb_disconnect(&con);
  duckdb_close(&db);
  return 0;
}

/* $twice(x) as the function of the plan, or as its body. */
static char *with_functions(const char *sql, bool bodies_too) {
  br_buf b = {0};
  for (const char *s = sql; *s; s++) {
    size_t f = 0, n = 0;
    for (; *s == '$' && f < N_FUNCTIONS; f++) {
      n = strlen(functions[f].name);
      if (!strncmp(s + 1, functions[f].name, n)) break;
    }
    if (*s != '$' || f == N_FUNCTIONS) {
      br_buf_char(&b, *s);
      continue;
    }
    if (bodies_too)
      br_buf_printf(&b, "m_%s", functions[f].name);
    else
      br_buf_printf(&b, BR_UDF_PREFIX "%d", (int)functions[f].id);
    s += n;
  }
  return br_buf_take(&b);
}

static br_plan *plan_of(const char *sql, br_status want, br_error *err) {
  br_buf ask = {0};
  br_plan *p = NULL;
  char *named = with_functions(sql, false);
  br_buf_str(&ask, "SELECT json_serialize_plan(");
  br_buf_sql_literal(&ask, named, strlen(named));
  br_buf_str(&ask, ", optimize := true)");
  char *json = text_of(br_buf_cstr(&ask), 0);
  if (br_plan_parse(json, NULL, &p, err) != BR_OK) fail_msg("%s: %s", sql, err->message);
  br_status status = br_plan_steps(p, functions, N_FUNCTIONS, err);
  if (status != want) fail_msg("%s: %s", sql, status ? err->message : "no error");
  free(json);
  free(named);
  br_buf_free(&ask);
  if (status == BR_OK) return p;
  br_plan_free(p);
  return NULL;
}

static br_stages *cut(const char *sql) {
  br_error err;
  br_stages *s = NULL;
  br_plan *p = plan_of(sql, BR_OK, &err);
  br_distribute_options o = {
      .partitions = 2, .two_step_aggregate = true, .functions = functions, .n_functions = N_FUNCTIONS};
  if (br_distribute(p, &o, &s, &err) != BR_OK) fail_msg("%s: %s", sql, err.message);
  br_plan_free(p);
  return s;
}

/* ---- running the stages: every stage's output is a table, every step's too */

static char *replace(const char *sql, const char *what, const char *with) {
  br_buf b = {0};
  for (const char *s = sql, *hit;; s = hit + strlen(what)) {
    hit = strstr(s, what);
    br_buf_add(&b, s, hit ? (size_t)(hit - s) : strlen(s));
    if (!hit) break;
    br_buf_str(&b, with);
  }
  br_buf_str(&b, "");
  return br_buf_take(&b);
}

static char *runnable(const br_stage *st, const char *sql) {
  char *text = br_strdup(sql);
  for (size_t i = 0; i < st->n_scans; i++) {
    char *more = replace(text, st->scans[i].token, st->scans[i].scan.table);
    free(text);
    text = more;
  }
  for (size_t i = 0; i < st->n_inputs + st->n_steps; i++) {
    char from[32], to[64];
    snprintf(from, sizeof from, "input(%zu)", i);
    if (i < st->n_inputs)
      snprintf(to, sizeof to, "stage_%u", st->inputs[i].producer);
    else
      snprintf(to, sizeof to, "step_%u_%zu", st->id, i);
    char *more = replace(text, from, to);
    free(text);
    text = more;
  }
  return text;
}

static void run_step(const br_stage *st, const br_stage_step *step) {
  char *sql = runnable(st, step->sql);
  br_buf b = {0};
  br_buf_printf(&b, "CREATE OR REPLACE TABLE step_%u_%u AS SELECT *", st->id, step->number);
  for (size_t c = 0; c < step->n_calls; c++) {
    const br_step_call *call = &step->calls[c];
    char a[2][16] = {"", ""};
    for (size_t i = 0; i < call->n_arguments && i < 2; i++) snprintf(a[i], sizeof a[i], "c%u", call->arguments[i]);
    br_buf_str(&b, ", ");
    if (call->function == 2)
      br_buf_printf(&b, "(%s::VARCHAR || '-' || %s::VARCHAR)", a[0], a[1]);
    else if (call->function == 1)
      br_buf_printf(&b, "(2 * %s)::BIGINT", a[0]);
    else
      br_buf_printf(&b, "string_split(%s, ' ')", a[0]);
    br_buf_printf(&b, " AS c%zu", step->n_columns + c);
  }
  br_buf_printf(&b, " FROM (%s) t", sql);
  run(br_buf_cstr(&b));
  br_buf_free(&b);
  free(sql);
}

static void run_stage(const br_stage *st) {
  for (size_t i = 0; i < st->n_steps; i++) run_step(st, &st->steps[i]);
  char *sql = runnable(st, st->sql);
  br_buf b = {0};
  br_buf_printf(&b, "CREATE OR REPLACE TABLE stage_%u AS %s", st->id, sql);
  run(br_buf_cstr(&b));
  br_buf_free(&b);
  free(sql);
}

static size_t check(const char *sql, size_t steps_wanted) {
  br_stages *s = cut(sql);
  size_t steps = 0;
  char *named = with_functions(sql, true), *out = NULL;
  if (!s->n_stages) fail_msg("%s: %s", sql, s->whole_query_reason);
  for (size_t i = 0; i < s->n_stages; i++) {
    steps += s->stages[i].n_steps;
    assert_null(strstr(s->stages[i].sql, BR_UDF_PREFIX));
    run_stage(&s->stages[i]);
  }
  if (steps != steps_wanted) {
    br_buf b = {0};
    br_stages_print(s, &b);
    fail_msg("%s: %zu steps instead of %zu\n%s", sql, steps, steps_wanted, br_buf_cstr(&b));
  }
  br_buf ask = {0};
  br_buf_printf(&ask, "SELECT * FROM stage_%u ORDER BY ALL", s->stages[s->n_stages - 1].id);
  out = text_of(br_buf_cstr(&ask), UINT64_MAX);
  br_buf_clear(&ask);
  br_buf_printf(&ask, "SELECT * FROM (%s) ORDER BY ALL", named);
  char *expected = text_of(br_buf_cstr(&ask), UINT64_MAX);
  if (strcmp(out, expected)) fail_msg("%s:\n%s\ninstead of\n%s", sql, out, expected);
  br_buf_free(&ask);
  free(out);
  free(expected);
  free(named);
  br_stages_free(s);
  return steps;
}

static void answers(void **state) {
  (void)state;
  run("CREATE OR REPLACE MACRO m_twice(x) AS (2 * x)::BIGINT");
  run("CREATE OR REPLACE MACRO m_mix(a, b) AS (a::VARCHAR || '-' || b::VARCHAR)");
  run("CREATE OR REPLACE MACRO m_words(s) AS string_split(s, ' ')");
  check("SELECT $twice(i) FROM t", 1);
  check("SELECT i, s, $twice(i + 1) + 1, $mix(i, s) FROM t", 1);
  check("SELECT $twice($twice(i)) FROM t", 2);
  check("SELECT $twice(i), $twice(i) + 1, g FROM t", 1);
  check("SELECT i FROM t WHERE $twice(i) > 10 AND g = 1", 1);
  check("SELECT s FROM t WHERE g = 1 OR $mix(i, g) = '4-1'", 1);
  check("SELECT CASE WHEN g = 0 THEN $twice(i) ELSE -1 END FROM t", 1);
  check("SELECT g, sum($twice(i)), count(*) FROM t GROUP BY g", 1);
  check("SELECT sum($twice(i)) FILTER (WHERE $twice(g) > 1) FROM t", 1);
  check("SELECT $twice(g), count(*) FROM t GROUP BY ALL", 1);
  check("SELECT $twice(n) FROM (SELECT count(*) AS n FROM t GROUP BY g)", 1);
  check("SELECT i, s FROM t ORDER BY $twice(-i) LIMIT 5", 1);
  check("SELECT i FROM t ORDER BY $mix(g, s)", 1);
  check("SELECT DISTINCT $twice(g) FROM t", 1);
  check("SELECT i, unnest($words(s)) FROM t", 1);
  check("SELECT i, row_number() OVER (PARTITION BY $twice(g) ORDER BY i) FROM t", 1);
  check("SELECT i, sum($twice(i)) OVER (PARTITION BY g ORDER BY i) FROM t", 1);
  check("SELECT t.i, u.v FROM t JOIN u ON $twice(t.i) = u.k", 1);
  check("SELECT t.i, u.v FROM t JOIN u ON $twice(t.i) = $twice(u.k)", 2);
  check("SELECT t.i, u.v FROM t LEFT JOIN u ON $twice(t.i) = u.k", 1);
  check("SELECT t.i, u.v FROM t JOIN u ON $mix(t.i, u.k) = '3-3'", 1);
  check("SELECT t.i, u.v FROM t JOIN u ON t.i = u.k AND $mix(t.s, u.v) < 'w3'", 1);
  check("SELECT t.i, u.v FROM t JOIN u ON $twice(t.i) < u.k + t.g", 1);
  check("SELECT i FROM t WHERE i IN (SELECT $twice(k) FROM u)", 1);
  check("SELECT $twice(i) FROM t UNION ALL SELECT $twice(k) FROM u", 2);
  check("SELECT $twice(x) FROM (SELECT i AS x FROM t UNION ALL SELECT k FROM u)", 2);
  check("WITH c AS MATERIALIZED (SELECT i, $twice(i) AS d FROM t) SELECT a.i, b.d FROM c a JOIN c b ON a.i = b.d", 1);
  check("SELECT $twice(3)", 1);
  check("SELECT $twice(x) FROM (VALUES (1), (2)) v(x)", 1);
  check("SELECT i FROM (SELECT i, $twice(i) AS unused FROM t)", 0);
  check("SELECT count(*) FROM (SELECT $twice(i) FROM t UNION ALL SELECT $twice(i) + 1 FROM t)", 0);
  check("SELECT i FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE $twice(u.k) = t.i)", 1);
}

static void one_step(void **state) {
  (void)state;
  br_stages *s = cut("SELECT i, $mix(s, i + 1) AS m FROM t WHERE g = 1");
  const br_stage *st = &s->stages[s->n_stages - 1];
  assert_int_equal(st->n_steps, 1);
  const br_stage_step *step = &st->steps[0];
  assert_int_equal(step->number, st->n_inputs);
  assert_int_equal(step->n_columns, 3); /* i, and the two arguments */
  assert_int_equal(step->n_calls, 1);
  assert_int_equal(step->calls[0].function, 2);
  assert_int_equal(step->calls[0].n_arguments, 2);
  assert_int_equal(step->calls[0].arguments[0], 1);
  assert_int_equal(step->calls[0].arguments[1], 2);
  assert_string_equal(step->types[0], "BIGINT");
  assert_string_equal(step->types[3], "VARCHAR");
  assert_true(st->indeterminate); /* mix is not said to be deterministic */
  assert_non_null(strstr(st->label, "mix()"));
  br_buf b = {0};
  br_stages_print(s, &b);
  assert_non_null(strstr(br_buf_cstr(&b), "<- mix(c1, c2) in processes, over"));
  json_t *j = br_stages_json(s);
  json_t *stages = json_object_get(j, "stages");
  assert_int_equal(json_array_size(json_object_get(json_array_get(stages, json_array_size(stages) - 1), "steps")), 1);
  json_decref(j);
  br_buf_free(&b);
  br_stages_free(s);
  s = cut("SELECT $twice(i) FROM t");
  assert_false(s->stages[0].indeterminate);
  br_stages_free(s);
}

static void kept(void **state) {
  (void)state;
  /* the rows of a group stay together: no second exchange */
  br_stages *s =
      cut("SELECT g, max(d) FROM (SELECT DISTINCT g, $twice(g) AS d FROM (SELECT g FROM t GROUP BY g)) GROUP BY g");
  size_t hashes = 0, splittable = 0;
  for (size_t i = 0; i < s->n_stages; i++) {
    hashes += s->stages[i].output == BR_EX_HASH;
    splittable += s->stages[i].n_steps && br_stage_splittable(&s->stages[i]);
  }
  assert_int_equal(hashes, 1);
  assert_int_equal(splittable, 0);
  br_stages_free(s);
}

static void refused(void **state) {
  (void)state;
  br_error err;
  plan_of("SELECT list_transform([1, 2], lambda x: $twice(x) + i) FROM t", BR_UNSUPPORTED, &err);
  assert_non_null(
      strstr(err.message, "twice() runs in processes beside the engine and can't be called inside a lambda"));
  plan_of("SELECT t.i FROM t LEFT JOIN u ON $mix(t.i, u.k) = '3-3'", BR_UNSUPPORTED, &err);
  assert_non_null(strstr(err.message, "mix() runs in processes"));
  br_stages *s = cut("WITH RECURSIVE r(n) AS (SELECT 1::BIGINT UNION ALL SELECT $twice(n) FROM r WHERE n < 50) FROM r");
  assert_int_equal(s->n_stages, 0);
  assert_non_null(strstr(s->whole_query_reason, "user's function"));
  br_stages_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(one_step), cmocka_unit_test(kept),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, open_db, close_db);
}
