/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * Which of a session's variables a text may read, and so are set on a connection of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "coordinator/session.h"
#include <stdlib.h>
#include <string.h>

#define MOST 100

static void set(brant_session *s, const char *name, const char *text) {
  br_texts_add(&s->variable_names, name);
  br_texts_add(&s->variable_texts, text);
}

static void forget(brant_session *s) {
  br_texts_free(&s->variable_names);
  br_texts_free(&s->variable_texts);
  br_texts_free(&s->views);
  br_texts_free(&s->attach);
}

/* The names of those that are needed, a blank behind each; "no": another connection can't have them. */
static void expect_needed(const brant_session *s, const char *sql, const char *want) {
  br_texts texts;
  char got[64] = "no";
  if (br_variables_needed(s, sql, MOST, &texts)) *got = 0;
  for (size_t i = 0; i < texts.count; i++)
    for (size_t k = 0; k < s->variable_texts.count; k++)
      if (strcmp(texts.items[i], s->variable_texts.items[k]) == 0) strcat(strcat(got, s->variable_names.items[k]), " ");
  if (strcmp(got, want) != 0) fail_msg("%s\nneeds \"%s\", not \"%s\"", sql, got, want);
  br_texts_free(&texts);
}

static void fill(brant_session *s) {
  char text[MOST + 2];
  memset(text, 'x', MOST + 1);
  text[MOST + 1] = 0;
  set(s, "a", "SET VARIABLE \"a\" = 1");
  set(s, "long", text);
  set(s, "which", "SET VARIABLE \"which\" = 'v'");
  set(s, "untold", "");
  br_texts_add(&s->views, "CREATE OR REPLACE VIEW v AS SELECT getvariable('a') AS x");
  br_texts_add(&s->views, "CREATE OR REPLACE MACRO read(n) AS getvariable(n)");
}

static void only_what_is_read(void **state) {
  (void)state;
  static const struct {
    const char *sql, *want;
  } cases[] = {
      {"SELECT 1", ""},
      {"SELECT count(*) FROM 'f.parquet'", ""},
      {"SELECT getvariable('A') + 1", "a "},
      {"SELECT x FROM v", "a "},
      {"FROM query('FROM v')", "a "},
      {"FROM query_table(getvariable('which'))", "no"}, /* a computed name may be any */
      {"SELECT read('which')", "no"},
      {"SELECT 'which', 1", "a which "}, /* and the view that it names */
      {"SELECT getvariable('long')", "no"},
      {"SELECT getvariable('untold')", "no"},
      {"SELECT getvariable('l' || 'ong')", "no"},
  };
  brant_session s = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_needed(&s, cases[i].sql, "");
  fill(&s);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_needed(&s, cases[i].sql, cases[i].want);
  forget(&s);
}

/* Views of attached files, and generated columns of tables here, read variables that no text names. */
static void all_where_texts_are_unseen(void **state) {
  (void)state;
  brant_session s = {0};
  set(&s, "a", "SET VARIABLE \"a\" = 1");
  set(&s, "b", "SET VARIABLE \"b\" = 1.5");
  expect_needed(&s, "FROM f.v", "");
  br_texts_add(&s.attach, "ATTACH 'f.duckdb' AS f");
  expect_needed(&s, "FROM f.v", "a b ");
  br_texts_remove(&s.attach, 0);
  s.has_local_tables = true;
  expect_needed(&s, "FROM t", "a b ");
  set(&s, "untold", "");
  expect_needed(&s, "FROM t", "no");
  forget(&s);
}

/* Together, too. */
static void many_are_long(void **state) {
  (void)state;
  brant_session s = {0};
  char name[8], sql[400] = "SELECT 0", text[64];
  for (int i = 0; i < 5; i++) {
    snprintf(name, sizeof name, "n%d", i);
    snprintf(text, sizeof text, "SET VARIABLE \"%s\" = 'ten bytes'", name);
    set(&s, name, text);
    snprintf(sql + strlen(sql), sizeof sql - strlen(sql), ", getvariable('%s')", name);
    expect_needed(&s, sql, i == 0 ? "n0 " : i == 1 ? "n0 n1 " : i == 2 ? "n0 n1 n2 " : "no");
  }
  forget(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_is_read), cmocka_unit_test(all_where_texts_are_unseen),
                                     cmocka_unit_test(many_are_long)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
