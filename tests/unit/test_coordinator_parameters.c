/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * Places of parameters in a text, and values put there; INSERT and CREATE TABLE AS taken apart. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/parameters.h"
#include "coordinator/stored_text.h"
#include <stdlib.h>
#include <string.h>

static void places(void **state) {
  (void)state;
  static const struct {
    const char *sql, *names; /* in their order, a blank behind each */
  } cases[] = {
      {"SELECT 1", ""},
      {"SELECT ?, ? + ?", "1 2 3 "},
      {"SELECT $2, $1, ?", "2 1 3 "},
      {"SELECT ?2, ?1, ?", "2 1 3 "},
      {"SELECT $a_1, $B, $a_1", "a_1 B a_1 "},
      {"SELECT '$1 ?', \"?\", e'\\'?', $$ ? $1 $$, $x$ $1 ? $y$ $x$ /* ? /* $1 */ ? */, ? -- ?", "1 "},
      {"SELECT a$1, b$c FROM t", ""},
      {"SELECT x<$1AND y", "1 "},
      {"SELECT $, $$", ""},
      {"SELECT $\xc3\xa4", "\xc3\xa4 "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_parameter *p;
    size_t n;
    br_error err;
    char names[64] = "";
    assert_int_equal(br_parameters(cases[i].sql, &p, &n, &err), BR_OK);
    for (size_t k = 0; k < n; k++) {
      assert_true(cases[i].sql[p[k].at] == '$' || cases[i].sql[p[k].at] == '?');
      strcat(strcat(names, p[k].name), " ");
    }
    assert_string_equal(names, cases[i].names);
    br_parameters_free(p, n);
  }
}

static void bound(void **state) {
  (void)state;
  static const struct {
    const char *sql;
    br_value values[2];
    size_t n;
    const char *want; /* NULL: an error that has */
    const char *message;
  } cases[] = {
      {"SELECT ?, $1", {{"1", "'it''s ?'"}}, 1, "SELECT 'it''s ?', 'it''s ?'", NULL},
      {"a<$x AND $Y", {{"X", "1"}, {"y", "-2"}}, 2, "a<1 AND (-2\n)", NULL},
      {"LIMIT$1 OFFSET?", {{"1", "5"}}, 1, "LIMIT$1 OFFSET 5", NULL},
      {"($1)[$2]", {{"2", "'a' || 'b'"}, {"1", "[1]"}}, 2, "(([1]\n))[('a' || 'b'\n)]", NULL},
      {"SELECT ?", {{0}}, 0, NULL, "no value for the parameter $1"},
      {"SELECT ?", {{"1", "1"}, {"2", "2"}}, 2, NULL, "there is a value for $2"},
      {"SELECT $a", {{"a", "1"}, {"A", "2"}}, 2, NULL, "two values for $A"},
      {"SELECT $a, ?", {{"a", "1"}}, 1, NULL, "use one kind"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *out = NULL;
    br_error err;
    br_status status = br_parameters_bind(cases[i].sql, cases[i].values, cases[i].n, &out, &err);
    if (cases[i].want == NULL) {
      assert_int_equal(status, BR_INVALID);
      assert_non_null(strstr(err.message, cases[i].message));
      continue;
    }
    assert_int_equal(status, BR_OK);
    assert_string_equal(out, cases[i].want);
    free(out);
  }
}

static void stored(void **state) {
  (void)state;
  static const struct {
    const char *sql, *select, *directory;
    bool conflict, returning;
    size_t columns;
  } cases[] = {
      {"CREATE TABLE a.b.\"C d\" AS SELECT 1 AS returning, 2 ;", "SELECT 1 AS returning, 2", NULL, false, false, 0},
      {"create or replace table if not exists t (x, \"Y\") as (from u)", "(from u)", NULL, false, false, 2},
      {"CREATE TABLE 'a''b/' AS FROM t -- end", "FROM t", "a'b/", false, false, 0},
      {"INSERT INTO t SELECT f(a, (b)) FROM u", "SELECT f(a, (b)) FROM u", NULL, false, false, 0},
      {"INSERT INTO 'd/' (a, b) VALUES (1, 2)", "VALUES (1, 2)", "d/", false, false, 2},
      {"INSERT INTO t (SELECT 1)", "(SELECT 1)", NULL, false, false, 0},
      {"WITH q AS (SELECT 'insert') INSERT OR IGNORE INTO x.t AS k BY NAME FROM q",
       "WITH q AS (SELECT 'insert') FROM q", NULL, true, false, 0},
      {"INSERT INTO t (a) SELECT a FROM u JOIN v ON conflict = 1 ON CONFLICT (a) DO UPDATE SET b = 1 RETURNING *",
       "SELECT a FROM u JOIN v ON conflict = 1", NULL, true, true, 1},
      {"INSERT INTO t (values, b) SELECT 1, 2", "SELECT 1, 2", NULL, false, false, 2},
      {"INSERT INTO t (values) VALUES (1)", "VALUES (1)", NULL, false, false, 1},
      {"INSERT INTO t (VALUES (1), (2))", "(VALUES (1), (2))", NULL, false, false, 0},
      {"INSERT INTO t (FROM values)", "(FROM values)", NULL, false, false, 0},
      {"CREATE TABLE t (\"pivot\", values) AS VALUES (1, 2)", "VALUES (1, 2)", NULL, false, false, 2},
      {"INSERT INTO t SELECT (SELECT 1 AS returning) RETURNING a", "SELECT (SELECT 1 AS returning)", NULL, false, true,
       0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stored_text t;
    assert_true(br_stored_parse(cases[i].sql, &t));
    assert_string_equal(t.select, cases[i].select);
    if (cases[i].directory == NULL)
      assert_null(t.directory);
    else
      assert_string_equal(t.directory, cases[i].directory);
    assert_int_equal(t.conflict, cases[i].conflict);
    assert_int_equal(t.returning, cases[i].returning);
    assert_int_equal(t.n_columns, cases[i].columns);
    br_stored_text_free(&t);
  }
}

static void not_stored(void **state) {
  (void)state;
  static const char *const cases[] = {"SELECT 1",
                                      "CREATE TABLE t (a INT, b VARCHAR)",
                                      "CREATE TABLE t (a INT)",
                                      "CREATE TEMP TABLE t AS SELECT 1",
                                      "CREATE VIEW v AS SELECT 1",
                                      "CREATE TABLE t AS SELECT 1 WITH NO DATA",
                                      "WITH q AS (SELECT 1) SELECT 'insert' FROM q",
                                      "WITH q AS (SELECT 1) UPDATE t SET a = 1",
                                      "WITH",
                                      "INSERT",
                                      "INSERT INTO",
                                      "INSERT INTO t",
                                      "INSERT INTO t (a",
                                      "INSERT INTO t (a,) SELECT 1",
                                      "INSERT INTO t (a;) SELECT 1",
                                      "INSERT INTO t (a b) SELECT 1",
                                      "CREATE",
                                      ""};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stored_text t;
    assert_false(br_stored_parse(cases[i], &t));
    assert_null(t.select);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(places), cmocka_unit_test(bound), cmocka_unit_test(stored),
                                     cmocka_unit_test(not_stored)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
