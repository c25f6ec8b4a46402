/* SPDX-License-Identifier: Apache-2.0
 * links: br_engine
 * Scripts, statements, tables, types and the mapping of errors. */
#include "engine_fixture.h"

static void check_split(const char *script, const char *const *want, const size_t *at, size_t n) {
  char **texts;
  size_t *offsets, have;
  OK(br_sql_split(script, &texts, &offsets, &have, &err));
  assert_int_equal(have, n);
  for (size_t i = 0; i < n; i++) {
    assert_string_equal(texts[i], want[i]);
    if (at) assert_int_equal(offsets[i], at[i]);
    assert_memory_equal(script + offsets[i], texts[i], strlen(texts[i]));
    free(texts[i]);
  }
  free(texts);
  free(offsets);
}
#define SPLIT(script, ...)                                       \
  do {                                                           \
    const char *const want[] = {__VA_ARGS__};                    \
    check_split(script, want, NULL, sizeof want / sizeof *want); \
  } while (0)

static void splits(void **state) {
  (void)state;
  check_split("", NULL, NULL, 0);
  check_split(" ;; \n ; -- only a comment\n ; /* and ; another */", NULL, NULL, 0);
  check_split("  SELECT 1 ;\n SELECT 2", (const char *const[]){"SELECT 1", "SELECT 2"}, (const size_t[]){2, 14}, 2);
  SPLIT("SELECT ';'; SELECT 'a'';b'", "SELECT ';'", "SELECT 'a'';b'");
  SPLIT("SELECT \"a;\"\";b\"; SELECT 2", "SELECT \"a;\"\";b\"", "SELECT 2");
  SPLIT("SELECT $$ a; ' b $$; SELECT $x$ ; $$ ; $y$ ; $x$", "SELECT $$ a; ' b $$", "SELECT $x$ ; $$ ; $y$ ; $x$");
  SPLIT("SELECT $1; SELECT a$b; SELECT c$b", "SELECT $1", "SELECT a$b", "SELECT c$b");
  SPLIT("SELECT 1 -- a; b\n, 2; SELECT 3", "SELECT 1 -- a; b\n, 2", "SELECT 3");
  SPLIT("SELECT /* ; /* nested ; */ ; */ 1; SELECT 2", "SELECT /* ; /* nested ; */ ; */ 1", "SELECT 2");
  SPLIT("SELECT E'\\'; x'; SELECT 'back\\'; SELECT 3", "SELECT E'\\'; x'", "SELECT 'back\\'", "SELECT 3");
  SPLIT("SELECT name'x;y'; SELECT 1", "SELECT name'x;y'", "SELECT 1");
  SPLIT("SELECT 'never closed; SELECT 2", "SELECT 'never closed; SELECT 2");
  SPLIT("SELECT 7-1; SELECT 6/2*3", "SELECT 7-1", "SELECT 6/2*3");
  SPLIT("-- head\nSELECT 1;", "-- head\nSELECT 1");
}

static void classify(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql;
    br_statement want;
  } cases[] = {{"SELECT 1", BR_STMT_SELECT},
               {"FROM range(3)", BR_STMT_SELECT},
               {"WITH x AS (SELECT 1) SELECT * FROM x", BR_STMT_SELECT},
               {"VALUES (1), (2)", BR_STMT_SELECT},
               {"DESCRIBE SELECT 1", BR_STMT_SELECT},
               {"SET threads = 2", BR_STMT_SETTING},
               {"RESET threads", BR_STMT_SETTING},
               {"PRAGMA enable_profiling", BR_STMT_SETTING},
               {"CREATE VIEW v AS SELECT 1", BR_STMT_DDL},
               {"CREATE TABLE nt AS SELECT 1 a", BR_STMT_DDL},
               {"DROP TABLE IF EXISTS nt", BR_STMT_DDL},
               {"ATTACH ':memory:' AS other", BR_STMT_ATTACH},
               {"COPY (SELECT 1) TO '/tmp/never.parquet'", BR_STMT_COPY},
               {"EXPLAIN SELECT 1", BR_STMT_EXPLAIN},
               {"INSERT INTO t VALUES (1, 2)", BR_STMT_OTHER},
               {"BEGIN", BR_STMT_OTHER},
               {"PIVOT t ON b USING sum(a)", BR_STMT_SELECT}};
  OK(br_session_execute(f->session, "CREATE TEMP TABLE t(a INT, b INT)", &err));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_statement have;
    OK(br_session_classify(f->session, cases[i].sql, &have, &err));
    if (have != cases[i].want) fail_msg("%s: %d", cases[i].sql, (int)have);
  }
  expect_cell(f->session, "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'nt'",
              "0"); /* nothing was executed */
  OK(br_session_execute(f->session, "DROP TABLE t", &err));
}

static void selects_by_their_words(void **state) {
  (void)state;
  static const struct {
    const char *sql;
    bool yes;
  } cases[] = {{"SELECT 1", true},
               {" -- a comment\n/* and */ select 'insert'", true},
               {"FROM t", true},
               {"values (1)", true},
               {"WITH x AS (SELECT 1) SELECT * FROM x", true},
               {"with x as (select 'delete' as \"update\") from x", true},
               {"WITH x AS (SELECT 1) INSERT INTO t FROM x", false},
               {"WITH x AS MATERIALIZED (SELECT 1) DELETE FROM t USING x", false},
               {"INSERT INTO t VALUES (1)", false},
               {"SELECTED", false},
               {"EXPLAIN SELECT 1", false},
               {"  ", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (br_sql_is_select(cases[i].sql) != cases[i].yes) fail_msg("%s", cases[i].sql);
}

static void expect_error(br_session *s, const char *sql, br_code code, br_blame blame, const char *part) {
  br_error err = {0};
  br_table t;
  assert_int_equal(br_session_table(s, sql, &t, &err), code);
  assert_int_equal(err.code, code);
  assert_int_equal(err.blame, blame);
  if (!strstr(err.message, part)) fail_msg("%s: message lacks '%s': %s", sql, part, err.message);
}

static void errors(void **state) {
  br_session *s = ((fixture *)*state)->session;
  br_statement kind;
  br_error err = {0};
  assert_int_equal(br_session_classify(s, "SELECT 1,\n  2 FRM x", &kind, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "syntax error"));
  assert_non_null(strstr(err.message, "LINE 2:"));
  assert_non_null(strchr(err.message, '^'));
  assert_int_equal(br_session_classify(s, "  ", &kind, &err), BR_INVALID);
  expect_error(s, "SELECT 1,\n\n nope FROM range(3)", BR_INVALID, BR_BLAME_USER, "LINE 3:");
  expect_error(s, "SELECT * FROM no_such_table", BR_INVALID, BR_BLAME_USER, "no_such_table");
  expect_error(s, "SELECT CAST('x' AS INTEGER)", BR_EXECUTION, BR_BLAME_USER, "Could not convert");
  expect_error(s, "SELECT error('boo')", BR_EXECUTION, BR_BLAME_USER, "boo");
  expect_error(s, "SELECT 9223372036854775807 + range FROM range(1, 3)", BR_EXECUTION, BR_BLAME_USER, "Overflow");
  expect_error(s, "SELECT * FROM read_parquet('/no/such/file.parquet')", BR_IO, BR_BLAME_TASK, "/no/such/file.parquet");
  expect_error(s, "SET no_such_setting = 1", BR_INVALID, BR_BLAME_USER, "no_such_setting");
}

static void out_of_memory(void **state) {
  (void)state;
  br_engine *e;
  br_session *s;
  br_engine_options o = {.threads = 1, .memory_bytes = 20 << 20};
  OK(br_engine_open(&o, &e, &err));
  OK(br_session_open(e, &s, &err));
  expect_error(s,
               "SELECT max(s) FROM (SELECT range::VARCHAR || repeat('x', 30) s, row_number() OVER (ORDER BY "
               "hash(range)) FROM range(5000000))",
               BR_OUT_OF_MEMORY, BR_BLAME_TASK, "Out of Memory");
  br_session_close(s);
  br_engine_close(e);
}

static void tables(void **state) {
  br_session *s = ((fixture *)*state)->session;
  br_table t;
  OK(br_session_table(s,
                      "SELECT 1 AS a, NULL AS \"B b\", [1, NULL] AS a, 'x', DATE '2020-01-02', 1.50::DECIMAL(5,2) "
                      "UNION ALL SELECT 2, 'é', [], '', NULL, -1 ORDER BY 1 DESC",
                      &t, &err));
  assert_int_equal(t.rows, 2);
  assert_int_equal(t.columns, 6);
  assert_string_equal(t.names[0], "a");
  assert_string_equal(t.names[1], "B b");
  assert_string_equal(t.names[2], "a");
  assert_string_equal(br_table_cell(&t, 0, 0), "2"); /* the order of the statement is kept */
  assert_string_equal(br_table_cell(&t, 0, 1), "é");
  assert_string_equal(br_table_cell(&t, 0, 2), "[]");
  assert_string_equal(br_table_cell(&t, 0, 3), "");
  assert_null(br_table_cell(&t, 0, 4));
  assert_null(br_table_cell(&t, 1, 1));
  assert_string_equal(br_table_cell(&t, 1, 2), "[1, NULL]");
  assert_string_equal(br_table_cell(&t, 1, 4), "2020-01-02");
  assert_string_equal(br_table_cell(&t, 1, 5), "1.50");
  br_table_free(&t);
  OK(br_session_table(s, "SELECT range FROM range(5000)", &t, &err));
  assert_int_equal(t.rows, 5000);
  assert_string_equal(br_table_cell(&t, 4999, 0), "4999");
  br_table_free(&t);
  OK(br_session_table(s, "SELECT 1 WHERE false", &t, &err));
  assert_int_equal(t.rows, 0);
  br_table_free(&t);
  OK(br_session_table(s, "CREATE OR REPLACE TABLE made AS SELECT range FROM range(7)", &t, &err));
  assert_string_equal(br_table_cell(&t, 0, 0), "7");
  br_table_free(&t);
  OK(br_session_table(s, "EXPLAIN SELECT 1", &t, &err));
  assert_true(t.rows >= 1);
  br_table_free(&t);
  OK(br_session_table(s, "SET VARIABLE x = 3", &t, &err));
  br_table_free(&t);
}

/* Two sessions share an instance, not temporary objects. */
static void sessions(void **state) {
  fixture *f = *state;
  br_session *other;
  OK(br_session_open(f->engine, &other, &err));
  OK(br_session_execute(f->session, "CREATE TEMP VIEW mine AS SELECT 5", &err));
  expect_cell(f->session, "FROM mine", "5");
  expect_error(other, "FROM mine", BR_INVALID, BR_BLAME_USER, "mine");
  br_session_close(other);
  assert_true(br_session_progress(f->session) < 0);
  assert_string_equal(br_engine_version(), "v1.5.5");
  expect_cell(f->session, "SELECT current_setting('autoinstall_known_extensions')", "false");
}

static void schemas(void **state) {
  br_session *s = ((fixture *)*state)->session;
  static const char *const types[] = {"BOOLEAN", "DECIMAL(4,1)", "DECIMAL(18,2)", "DECIMAL(38,0)",
                                      "BLOB",    "TIMESTAMPTZ",  "VARCHAR",       "INTEGER[]",
                                      "HUGEINT", "UUID",         "\"NULL\"",      "TIMESTAMP"};
  static const char *const formats[] = {"c", "d:4,1,32", "d:18,2,64", "d:38,0,128", "z", "tsu:UTC",
                                        "u", "+l",       "w:16",      "w:16",       "n", "tsu:"};
  size_t n = sizeof types / sizeof *types;
  br_schema *schema;
  OK(br_session_schema(s, types, NULL, n, &schema, &err));
  for (size_t i = 0; i < n; i++) {
    assert_string_equal(br_schema_arrow(schema)->children[i]->format, formats[i]);
    char name[8];
    snprintf(name, sizeof name, "c%zu", i);
    assert_string_equal(br_schema_arrow(schema)->children[i]->name, name);
  }
  br_schema_unref(schema);
  static const char *const names[] = {"first", "second"};
  OK(br_session_schema(s, types, names, 2, &schema, &err));
  assert_string_equal(br_schema_arrow(schema)->children[1]->name, "second");
  br_schema_unref(schema);
  br_error err = {0};
  assert_int_equal(br_session_schema(s, (const char *const[]){"NO_SUCH_TYPE"}, NULL, 1, &schema, &err), BR_INVALID);
  assert_int_equal(br_session_schema(s, (const char *const[]){"ENUM('a', 'b')"}, NULL, 1, &schema, &err),
                   BR_UNSUPPORTED);
  assert_non_null(strstr(err.message, "cast it to VARCHAR"));
  assert_int_equal(br_session_schema(s, (const char *const[]){"STRUCT(a ENUM('a', 'b'))[]"}, NULL, 1, &schema, &err),
                   BR_UNSUPPORTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(splits),   cmocka_unit_test(classify),      cmocka_unit_test(selects_by_their_words),
      cmocka_unit_test(errors),   cmocka_unit_test(out_of_memory), cmocka_unit_test(tables),
      cmocka_unit_test(sessions), cmocka_unit_test(schemas)};
  return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
