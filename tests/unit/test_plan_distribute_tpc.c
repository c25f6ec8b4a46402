/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan duckdb
 * cost: heavy (left out of sanitizer runs)
 *
 * All queries of TPC-H and TPC-DS, cut into stages and run stage by stage, at scale 0.01, against the plain query. The
 * generators are DuckDB's extensions out of the test environment (deps/fetch.sh); without them the tests fail.
 * BRANT_ROUNDTRIP_ONLY=7 runs one query, BRANT_STAGES_PRINT=1 prints the stages of what fails.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "stage_runner.h"

#if defined(__SANITIZE_ADDRESS__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

static void must(duckdb_connection c, const char *sql) {
  char *why = NULL;
  if (!rt_exec(c, sql, &why)) fail_msg("%s: %s", sql, why);
}

static void all_queries(const char *name, const char *generate, const char *queries, size_t count, unsigned configs) {
  duckdb_database db;
  duckdb_connection c;
  char *path = rt_extension(name), *load, *why = NULL;
  const char *only = getenv("BRANT_ROUNDTRIP_ONLY");
  rt_rows texts = {0};
  size_t failed = 0;
  if (!path) fail_msg("DuckDB's extension %s is not below %s: run deps/fetch.sh test", name, BRANT_DEPS_DIR);
  assert_int_equal(duckdb_open(NULL, &db), DuckDBSuccess);
  assert_int_equal(duckdb_connect(db, &c), DuckDBSuccess);
  load = br_asprintf("LOAD '%s'", path);
  must(c, load);
  must(c, generate);
  must(c, "SET threads = 2");
  must(c, SR_KEYS_BLOOM);
  must(c, SR_KEYS_MAYBE);
  must(c, SR_KEYS_HOLD);
  must(c, SR_MERGE_MOMENTS);
  assert_true(rt_column(c, queries, 0, &texts, &why));
  assert_int_equal(texts.n, count);
  for (size_t i = 0; i < texts.n; i++) {
    char *end = texts.v[i] + strlen(texts.v[i]);
    while (end > texts.v[i] && strchr("; \n", end[-1])) *--end = 0;
    sr_case t = {.sql = texts.v[i]};
    if (only && (size_t)atoi(only) != i + 1) continue;
    /* Under a sanitizer one configuration a query, in turn. */
    if (!sr_check(c, &t, SLOW ? 1u << i % 2 : configs)) {
      fprintf(stderr, "%s query %zu failed\n", name, i + 1);
      failed++;
    }
  }
  rt_rows_free(&texts);
  free(load);
  free(path);
  duckdb_disconnect(&c);
  duckdb_close(&db);
  assert_int_equal(failed, 0);
}

static void tpch(void **state) {
  (void)state;
  all_queries("tpch", "CALL dbgen(sf = 0.01)", "SELECT query FROM tpch_queries() ORDER BY query_nr", 22, 11);
}

static void tpcds(void **state) {
  (void)state;
  all_queries("tpcds", "CALL dsdgen(sf = 0.01)", "SELECT query FROM tpcds_queries() ORDER BY query_nr", 99, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tpch), cmocka_unit_test(tpcds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
