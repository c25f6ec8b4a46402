/* SPDX-License-Identifier: Apache-2.0
 * links: libbrant
 * Tables of a session through the C API: rows that the program gives, results that stay on the workers, and what is dropped of them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <brant.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static brant_error err; /* of the last call that failed */
#define OK(call)                                                          \
  do {                                                                    \
    if ((call) != 0) fail_msg("%s: %d %s", #call, err.code, err.message); \
  } while (0)

static char scratch[64], data[64]; /* data: four files with the numbers below 100,000 in i */
static brant_session *shared;

static brant_options options(uint32_t workers) {
  brant_options o = BRANT_OPTIONS_INIT;
  o.workers = workers;
  o.threads = 1;
  o.memory_bytes = 512u << 20;
  o.temp_dir = scratch;
  o.distribute = BRANT_DISTRIBUTE_ALWAYS;
  return o;
}

/* Nothing but what was there before: workers remove their folders when they end. */
static int files_left(void) {
  int n = 0;
  DIR *d = opendir(scratch);
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
  if (d != NULL) closedir(d);
  return n;
}

static int close_shared(void **state) {
  (void)state;
  char path[128];
  brant_close(shared);
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "%s/%d.parquet", data, i);
    unlink(path);
  }
  int left = files_left();
  return rmdir(scratch) != 0 || rmdir(data) != 0 || left;
}

/* ---- reading */

static int64_t int_at(const struct ArrowArray *column, int64_t row) {
  return ((const int64_t *)column->buffers[1])[column->offset + row];
}

/* Sums the one BIGINT column; the number of rows in *rows. Returns what get_next returned at last; *text: its error. */
static int drain(struct ArrowArrayStream *st, int64_t *sum, int64_t *rows, char text[2048]) {
  struct ArrowArray batch;
  int rc;
  *sum = *rows = 0;
  while ((rc = st->get_next(st, &batch)) == 0 && batch.release != NULL) {
    assert_int_equal(batch.n_children, 1);
    for (int64_t i = 0; i < batch.length; i++) *sum += int_at(batch.children[0], i);
    *rows += batch.length;
    batch.release(&batch);
  }
  text[0] = 0;
  if (rc != 0) snprintf(text, 2048, "%s", st->get_last_error(st));
  return rc;
}

static void expect_sum(brant_session *s, const char *sql, int64_t want_sum, int64_t want_rows) {
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  char text[2048];
  int64_t sum, rows;
  OK(brant_submit(s, sql, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  if (drain(&st, &sum, &rows, text) != 0) fail_msg("%s: %s", sql, text);
  assert_int_equal(sum, want_sum);
  assert_int_equal(rows, want_rows);
  st.release(&st);
  brant_query_free(q);
}

/* To its end: COPY is done when its list of files was read. */
static void run(brant_session *s, const char *sql) {
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  struct ArrowArray batch;
  OK(brant_submit(s, sql, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  while (st.get_next(&st, &batch) == 0 && batch.release != NULL) batch.release(&batch);
  st.release(&st);
  OK(brant_query_error(q, &err));
  brant_query_free(q);
}

/* ---- the session of most tests */

static int open_shared(void **state) {
  (void)state;
  char sql[512];
  strcpy(scratch, "/tmp/brant-tables-test-XXXXXX");
  strcpy(data, "/tmp/brant-tables-data-XXXXXX");
  if (mkdtemp(scratch) == NULL || mkdtemp(data) == NULL) return 1;
  brant_options o = options(2);
  OK(brant_open(&o, &shared, &err));
  for (int i = 0; i < 4; i++) {
    snprintf(sql, sizeof sql, "COPY (SELECT range AS i FROM range(%d, %d)) TO '%s/%d.parquet' (FORMAT parquet)",
             i * 25000, (i + 1) * 25000, data, i);
    run(shared, sql);
  }
  snprintf(sql, sizeof sql, "CREATE VIEW numbers AS SELECT * FROM read_parquet('%s/*.parquet')", data);
  run(shared, sql);
  return 0;
}

/* ---- tests */

#define SUM 4999950000 /* of the numbers below 100,000 */

static void give(const char *name, const char *sql) {
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  OK(brant_submit(shared, sql, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  OK(brant_register_arrow(shared, name, &st, &err));
  assert_null(st.release); /* it was taken */
  brant_query_free(q);
}

static void rows_that_are_given(void **state) {
  (void)state;
  give("given", "SELECT i FROM numbers");
  expect_sum(shared, "SELECT i FROM given", SUM, 100000);
  expect_sum(shared, "SELECT a.i FROM GIVEN a JOIN numbers b ON a.i = b.i WHERE a.i % 2 = 0", 2499950000, 50000);
  expect_sum(shared, "SELECT count(*) FROM dataset('given')", 100000, 1);
  give("none", "SELECT i FROM numbers WHERE i < 0");
  expect_sum(shared, "SELECT count(*) FROM none", 0, 1);
  OK(brant_drop_table(shared, "given", &err));
  OK(brant_drop_table(shared, "none", &err));
  assert_int_equal(brant_drop_table(shared, "given", &err), BRANT_NOT_FOUND);
  assert_non_null(strstr(err.message, "given"));
}

/* A stream that has one batch of one column less than its schema says, or fails at once. */
static int wrong_schema(struct ArrowArrayStream *st, struct ArrowSchema *out) {
  struct ArrowArrayStream *inner = st->private_data;
  return inner->get_schema(inner, out);
}
static int wrong_next(struct ArrowArrayStream *st, struct ArrowArray *out) {
  (void)st, (void)out;
  return ENOSPC;
}
static const char *wrong_error(struct ArrowArrayStream *st) {
  (void)st;
  return "the cupboard is bare";
}
static void wrong_release(struct ArrowArrayStream *st) {
  struct ArrowArrayStream *inner = st->private_data;
  inner->release(inner);
  st->release = NULL;
}

static void streams_and_names_that_are_wrong(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream inner;
  OK(brant_submit(shared, "SELECT i FROM numbers", &q, &err));
  OK(brant_query_stream(q, &inner, &err));
  struct ArrowArrayStream st = {wrong_schema, wrong_next, wrong_error, wrong_release, &inner};
  assert_int_not_equal(brant_register_arrow(shared, "bare", &st, &err), 0);
  assert_non_null(strstr(err.message, "the cupboard is bare"));
  assert_non_null(strstr(err.message, "bare"));
  assert_null(st.release);
  brant_query_free(q);
  give("twice", "SELECT i FROM numbers WHERE i < 10");
  for (int i = 0; i < 2; i++) {
    OK(brant_submit(shared, "SELECT i FROM numbers", &q, &err));
    OK(brant_query_stream(q, &st, &err));
    assert_int_equal(brant_register_arrow(shared, i == 0 ? "TWICE" : "", &st, &err), BRANT_INVALID);
    assert_non_null(strstr(err.message, i == 0 ? "already" : "name"));
    assert_null(st.release);
    brant_query_free(q);
  }
  expect_sum(shared, "SELECT i FROM twice", 45, 10);
  OK(brant_drop_table(shared, "twice", &err));
}

static void results_that_stay(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  OK(brant_submit(shared, "SELECT i FROM numbers WHERE i % 3 = 0", &q, &err));
  OK(brant_query_persist(q, "thirds", &err));
  assert_int_equal(brant_query_stream(q, &st, &err), BRANT_INVALID); /* its rows are the table's */
  assert_int_equal(brant_query_persist(q, "again", &err), BRANT_INVALID);
  brant_query_free(q); /* the table holds what it needs */
  for (int i = 0; i < 3; i++) expect_sum(shared, "SELECT i FROM thirds", 1666683333, 33334);
  OK(brant_submit(shared, "SELECT max(i) AS i FROM thirds", &q, &err));
  OK(brant_query_persist(q, "most", &err)); /* of a table that goes before it */
  brant_query_free(q);
  OK(brant_drop_table(shared, "thirds", &err));
  expect_sum(shared, "SELECT i FROM most", 99999, 1);
  run(shared, "CREATE TABLE here AS SELECT i FROM most"); /* read in this process */
  expect_sum(shared, "SELECT i FROM here", 99999, 1);
  run(shared, "DROP TABLE here");
  OK(brant_drop_table(shared, "most", &err));
  assert_int_not_equal(brant_submit(shared, "SELECT i FROM most", &q, &err), 0);
}

static void a_result_that_fails_does_not_stay(void **state) {
  (void)state;
  brant_query *q = NULL;
  OK(brant_submit(shared, "SELECT CAST('x' || i AS INTEGER) AS i FROM numbers", &q, &err));
  assert_int_not_equal(brant_query_persist(q, "bad", &err), 0);
  assert_non_null(strstr(err.message, "onver"));
  brant_query_free(q);
  assert_int_equal(brant_drop_table(shared, "bad", &err), BRANT_NOT_FOUND);
}

static void tables_left_at_the_end(void **state) {
  (void)state;
  brant_query *q = NULL;
  give("left1", "SELECT i FROM numbers");
  OK(brant_submit(shared, "SELECT i FROM left1", &q, &err));
  OK(brant_query_persist(q, "left2", &err));
  brant_query_free(q);
  run(shared, "CREATE TEMP TABLE left3 AS SELECT i FROM numbers WHERE i < 1000");
  expect_sum(shared, "SELECT i FROM left3", 499500, 1000); /* close_shared looks at what files are there afterwards */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_that_are_given),    cmocka_unit_test(streams_and_names_that_are_wrong),
      cmocka_unit_test(results_that_stay),      cmocka_unit_test(a_result_that_fails_does_not_stay),
      cmocka_unit_test(tables_left_at_the_end),
  };
  return cmocka_run_group_tests(tests, open_shared, close_shared);
}
