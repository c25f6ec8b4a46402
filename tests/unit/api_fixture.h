/* SPDX-License-Identifier: Apache-2.0
 * What the tests of the C API share: one session with two workers for most tests (`shared`), four files with the numbers below 100,000 as its
 * view `numbers`, and reading a result of one BIGINT column. open_shared and close_shared are a group's set-up and end; the latter fails if
 * the session leaves files. */
#ifndef BRANT_TESTS_API_FIXTURE_H
#define BRANT_TESTS_API_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <brant.h>
#include <dirent.h>
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
  strcpy(scratch, "/tmp/brant-unit-test-XXXXXX");
  strcpy(data, "/tmp/brant-unit-data-XXXXXX");
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

#endif
