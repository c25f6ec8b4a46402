/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan duckdb
 *
 * Each query of tests/sql/distribute.sql: cut into stages under several settings, run stage by stage (stage_runner.h), and
 * compared with the plain query; its stages and exchanges are counted where the file says how many. Then what the printed
 * and the JSON form show, and what is refused. BRANT_DISTRIBUTE_ONLY=text runs the queries that hold the text.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "stage_runner.h"

#include <unistd.h>

typedef struct fixture {
  duckdb_database db;
  duckdb_connection c;
  char dir[64];
} fixture;

static void must(duckdb_connection c, const char *sql) {
  char *why = NULL;
  if (!rt_exec(c, sql, &why)) fail_msg("%s: %s", sql, why);
}

static char *file_text(const char *path) {
  br_buf b = {0};
  char piece[4096];
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) br_buf_add(&b, piece, n);
  fclose(f);
  return br_buf_take(&b);
}

/* One statement of the file with the marks before it; both are cut out of the text. */
typedef struct statement {
  sr_case t;
  char *sql;
  bool queries; /* the mark "@queries" stands before it */
} statement;

static void free_statement(statement *s) {
  for (size_t i = 0; i < SR_N_CONFIGS; i++) free((char *)s->t.expect[i]);
  free(s->sql);
  *s = (statement){0};
}

static void read_mark(statement *s, const char *line, size_t n) {
  char *text = br_strndup(line + 3, n - 3);
  if (!strcmp(text, "@ordered")) s->t.ordered = true;
  if (!strcmp(text, "@shape")) s->t.shape = true;
  if (!strcmp(text, "@fails")) s->t.fails = true;
  if (!strcmp(text, "@whole")) s->t.whole = true;
  if (!strcmp(text, "@queries")) s->queries = true;
  for (size_t i = 0; i < SR_N_CONFIGS; i++) {
    size_t name = strlen(sr_configs[i].name);
    if (!strncmp(text, sr_configs[i].name, name) && text[name] == ':') s->t.expect[i] = br_strdup(text + name + 2);
  }
  free(text);
}

/* The next statement; false at the end. @/ becomes the directory. */
static bool next_statement(const char **at, const char *dir, statement *s) {
  br_buf b = {0};
  *s = (statement){0};
  while (**at) {
    size_t n = strcspn(*at, "\n");
    const char *line = *at;
    *at += n + (line[n] ? 1 : 0);
    if (!b.len && n > 3 && !strncmp(line, "-- ", 3)) {
      read_mark(s, line, n);
      continue;
    }
    if (!b.len && !n) continue;
    for (size_t i = 0; i < n; i++) {
      if (line[i] == '@' && line[i + 1] == '/')
        br_buf_str(&b, dir);
      else
        br_buf_char(&b, line[i]);
    }
    if (line[n - 1] == ';') {
      b.data[--b.len] = 0;
      break;
    }
    br_buf_char(&b, '\n');
  }
  if (!b.len) {
    br_buf_free(&b);
    return false;
  }
  br_buf_str(&b, "");
  s->sql = br_buf_take(&b);
  s->t.sql = s->sql;
  return true;
}

static int open_fixture(void **state) {
  fixture *f = br_calloc(1, sizeof *f);
  snprintf(f->dir, sizeof f->dir, "/tmp/brant-distribute-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  assert_int_equal(duckdb_open(NULL, &f->db), DuckDBSuccess);
  assert_int_equal(duckdb_connect(f->db, &f->c), DuckDBSuccess);
  must(f->c, "SET threads = 1");
  *state = f;
  return 0;
}

static int close_fixture(void **state) {
  fixture *f = *state;
  duckdb_disconnect(&f->c);
  duckdb_close(&f->db);
  br_remove_tree(f->dir);
  free(f);
  return 0;
}

static void queries(void **state) {
  fixture *f = *state;
  char *text = file_text(BRANT_SOURCE_DIR "/tests/sql/distribute.sql");
  const char *at = text, *only = getenv("BRANT_DISTRIBUTE_ONLY");
  statement s;
  bool in_queries = false;
  size_t count = 0, shapes = 0, failed = 0;
  while (next_statement(&at, f->dir, &s)) {
    in_queries = in_queries || s.queries;
    if (!in_queries) {
      must(f->c, s.sql);
    } else if (!only || strstr(s.sql, only)) {
      if (getenv("BRANT_SHAPES")) fprintf(stderr, "%s\n", s.sql);
      count++;
      for (size_t i = 0; i < SR_N_CONFIGS; i++) shapes += s.t.expect[i] != NULL;
      if (!sr_check(f->c, &s.t, 7)) failed++;
    }
    free_statement(&s);
  }
  free(text);
  fprintf(stderr, "%zu queries, %zu shapes, %zu failed\n", count, shapes, failed);
  assert_int_equal(failed, 0);
  if (!only) assert_true(count >= 150 && shapes >= 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(queries)};
  return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
