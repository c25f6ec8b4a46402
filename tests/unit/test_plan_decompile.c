/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan duckdb
 *
 * The way back from DuckDB's plan to SQL, over tests/sql/roundtrip.sql: every statement is planned, written back, and both
 * texts are run and compared. BRANT_ROUNDTRIP=<file> takes the statements from another file, BRANT_ROUNDTRIP_ONLY=<text>
 * those that contain a text, BRANT_ROUNDTRIP_PRINT=1 shows what was written.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_roundtrip.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
  duckdb_database db;
  duckdb_connection c;
  char dir[64];
  char *script;
} fixture;

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  br_buf b = {0};
  char chunk[65536];
  if (!f) return NULL;
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) br_buf_add(&b, chunk, n);
  fclose(f);
  br_buf_reserve(&b, 1);
  return br_buf_take(&b);
}

static char *replaced(const char *text, const char *what, const char *by) {
  br_buf b = {0};
  for (const char *p; (p = strstr(text, what)) != NULL; text = p + strlen(what)) {
    br_buf_add(&b, text, (size_t)(p - text));
    br_buf_str(&b, by);
  }
  br_buf_str(&b, text);
  br_buf_reserve(&b, 1);
  return br_buf_take(&b);
}

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  const char *path = getenv("BRANT_ROUNDTRIP");
  char *text = read_file(path ? path : BRANT_SOURCE_DIR "/tests/sql/roundtrip.sql");
  strcpy(f->dir, "/tmp/brant-plan-XXXXXX");
  if (!text || !mkdtemp(f->dir)) return -1;
  f->script = replaced(text, "@DIR@", f->dir);
  char *parquet = br_asprintf("%s/pq", f->dir);
  int made = mkdir(parquet, 0700);
  free(parquet);
  if (made) return -1;
  free(text);
  *state = f;
  return duckdb_open(NULL, &f->db) == DuckDBSuccess && duckdb_connect(f->db, &f->c) == DuckDBSuccess ? 0 : -1;
}

static int tear_down(void **state) {
  fixture *f = *state;
  duckdb_disconnect(&f->c);
  duckdb_close(&f->db);
  br_remove_tree(f->dir);
  free(f->script);
  free(f);
  return 0;
}

/* The next statement of the script, up to its ';' outside of quotes and comments; flags stand in the comments before it. */
static bool next_case(char **at, rt_case *t, char **heading) {
  char *p = *at, quote = 0;
  *t = (rt_case){0};
  for (;;) {
    p += strspn(p, " \n");
    if (strncmp(p, "--", 2) != 0) break;
    char *end = strchr(p, '\n');
    if (!end) return false;
    *end = 0;
    if (!strncmp(p, "-- ordered", 10)) t->ordered = true;
    if (!strncmp(p, "-- shape", 8)) t->shape = true;
    if (!strncmp(p, "-- fails", 8)) t->fails = true;
    if (!strncmp(p, "-- refused: ", 12)) t->refused = p + 12;
    if (!strncmp(p, "-- # ", 5)) *heading = p + 5;
    p = end + 1;
  }
  t->sql = p;
  for (; *p && (quote || *p != ';'); p++)
    if (quote ? *p == quote : (*p == '\'' || *p == '"')) quote = quote ? 0 : *p;
  if (!*p) return false;
  *p = 0;
  *at = p + 1;
  return true;
}

static void round_trips(void **state) {
  fixture *f = *state;
  rt_case t;
  char *at = f->script, *why = NULL, *heading = "";
  const char *only = getenv("BRANT_ROUNDTRIP_ONLY");
  size_t cases = 0, failed = 0;
  while (next_case(&at, &t, &heading)) {
    if (!strcmp(heading, "setup")) {
      if (!rt_exec(f->c, t.sql, &why)) fail_msg("setup: %s\n%s", t.sql, why);
      continue;
    }
    if (only && !strstr(t.sql, only)) continue;
    cases++;
    failed += !rt_check(f->c, &t);
  }
  fprintf(stderr, "%zu statements, %zu failed\n", cases, failed);
  assert_true(cases > 0);
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(round_trips, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
