/* SPDX-License-Identifier: Apache-2.0
 * What the tests of engine/ and source/ share: an engine with a session, a scratch directory, a sink that collects rows as
 * Arrow batches, and an input that serves a list of batches. */
#ifndef BRANT_TESTS_ENGINE_FIXTURE_H
#define BRANT_TESTS_ENGINE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/util.h"
#include "engine/engine.h"
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

/* Fail with the engine's own message. */
#define OK(expr)                                                                            \
  do {                                                                                      \
    br_error err = {0};                                                                     \
    if ((expr) != BR_OK) fail_msg("%s: %s %s", #expr, br_code_name(err.code), err.message); \
  } while (0)

typedef struct fixture {
  br_engine *engine;
  br_session *session;
  char scratch[64];
} fixture;

static UNUSED int fixture_open(void **state) {
  fixture *f = br_calloc(1, sizeof *f);
  strcpy(f->scratch, "/tmp/brant-engine-test-XXXXXX");
  assert_non_null(mkdtemp(f->scratch));
  br_engine_options o = {.threads = 2, .memory_bytes = 2ULL << 30, .temp_dir = f->scratch};
  OK(br_engine_open(&o, &f->engine, &err));
  OK(br_session_open(f->engine, &f->session, &err));
  *state = f;
  return 0;
}

static UNUSED int fixture_close(void **state) {
  fixture *f = *state;
  br_session_close(f->session);
  br_engine_close(f->engine);
  br_remove_tree(f->scratch);
  free(f);
  return 0;
}

/* The first cell of a query. */
static UNUSED void expect_cell(br_session *s, const char *sql, const char *want) {
  br_table t;
  OK(br_session_table(s, sql, &t, &err));
  const char *have = t.rows ? br_table_cell(&t, 0, 0) : "(no rows)";
  if (!have) have = "(null)";
  if (strcmp(have, want)) fail_msg("%s: have %s, want %s", sql, have, want);
  br_table_free(&t);
}

/* ---- a sink that collects */
typedef struct collect {
  pthread_mutex_t mutex;
  br_schema *schema;
  br_batch *batches[4096];
  size_t n;
  _Atomic int opens, begins, ends, abandons;
  _Atomic uint64_t rows;
  uint64_t fail_after_rows; /* 0: never */
  int fail_open, fail_end;
} collect;

static UNUSED br_status collect_open(void *arg, const br_schema *columns, br_error *err) {
  collect *c = arg;
  c->opens++;
  if (c->fail_open) return br_fail(err, BR_NO_SPACE, BR_BLAME_WORKER, "the sink does not open");
  c->schema = br_schema_ref((br_schema *)columns);
  return BR_OK;
}

static UNUSED br_status collect_begin(void *arg, void **state, br_error *err) {
  collect *c = arg;
  br_colset *columns;
  BR_TRY(br_colset_new(c->schema, &columns, err));
  c->begins++;
  *state = columns;
  return BR_OK;
}

static UNUSED br_status collect_flush(collect *c, br_colset *columns, br_error *err) {
  br_buf head = {0}, body = {0};
  br_status status = BR_OK;
  if (!br_colset_rows(columns)) return BR_OK;
  BR_TRY_GOTO(br_colset_encode(columns, BR_CODEC_NONE, &head, &body, false, err));
  br_ipc_body owned = {.data = body.data, .bytes = body.len, .release = free, .owner = body.data};
  memset(&body, 0, sizeof body);
  br_batch *b;
  BR_TRY_GOTO(br_ipc_decode_batch(c->schema, head.data, head.len, owned, &b, err));
  pthread_mutex_lock(&c->mutex);
  assert_true(c->n < sizeof c->batches / sizeof *c->batches);
  c->batches[c->n++] = b;
  pthread_mutex_unlock(&c->mutex);
done:
  br_buf_free(&head);
  br_buf_free(&body);
  return status;
}

static UNUSED br_status collect_write(void *arg, void *state, const br_vec *columns, uint32_t n_columns, uint32_t rows,
                                      br_error *err) {
  collect *c = arg;
  uint32_t all[2048];
  assert_int_equal(n_columns, br_schema_columns(c->schema));
  assert_true(rows <= 2048);
  for (uint32_t i = 0; i < rows; i++) all[i] = i;
  BR_TRY(br_colset_append(state, columns, all, rows, err));
  uint64_t sum = atomic_fetch_add(&c->rows, rows) + rows;
  if (c->fail_after_rows && sum >= c->fail_after_rows)
    return br_fail(err, BR_NO_SPACE, BR_BLAME_WORKER, "the sink's disk is full after %llu rows",
                   (unsigned long long)sum);
  return br_colset_bytes(state) > (8 << 20) ? collect_flush(c, state, err) : BR_OK;
}

static UNUSED br_status collect_end(void *arg, void *state, br_error *err) {
  collect *c = arg;
  c->ends++;
  br_status status = collect_flush(c, state, err);
  br_colset_free(state);
  if (c->fail_end) return br_fail(err, BR_IO, BR_BLAME_WORKER, "the sink does not end");
  return status;
}

static UNUSED void collect_abandon(void *arg, void *state) {
  collect *c = arg;
  c->abandons++;
  br_colset_free(state);
}

static UNUSED collect *collect_new(void) {
  collect *c = br_calloc(1, sizeof *c);
  pthread_mutex_init(&c->mutex, NULL);
  return c;
}

static UNUSED void collect_free(collect *c) {
  for (size_t i = 0; i < c->n; i++) br_batch_unref(c->batches[i]);
  br_schema_unref(c->schema);
  pthread_mutex_destroy(&c->mutex);
  free(c);
}

static UNUSED br_run_sink collect_sink(collect *c) {
  return (br_run_sink){.arg = c,
                       .open = collect_open,
                       .thread_begin = collect_begin,
                       .write = collect_write,
                       .thread_end = collect_end,
                       .abandon = collect_abandon};
}

/* ---- an input over a list of batches, cut to pieces of `step` rows (0: as they are) */
typedef struct served {
  br_batch **batches;
  size_t n;
  _Atomic size_t next;
  uint64_t rows;
} served;

static UNUSED br_status served_next(void *arg, br_batch **out, br_error *err) {
  served *s = arg;
  (void)err;
  size_t i = atomic_fetch_add(&s->next, 1);
  *out = i < s->n ? br_batch_ref(s->batches[i]) : NULL;
  return BR_OK;
}

static UNUSED br_run_input served_input(served *s, uint32_t number, br_schema *schema) {
  return (br_run_input){
      .number = number, .schema = schema, .rows = s->rows, .rows_known = true, .next = served_next, .arg = s};
}

/* Run `sql` over the batches as input(0), into a new collection. */
static UNUSED collect *run_over(fixture *f, const char *sql, br_schema *schema, br_batch **batches, size_t n,
                                bool ordered) {
  collect *c = collect_new();
  br_run_sink sink = collect_sink(c);
  served in = {.batches = batches, .n = n};
  for (size_t i = 0; i < n; i++) in.rows += (uint64_t)br_batch_rows(batches[i]);
  br_run_input input = {0};
  if (schema) input = served_input(&in, 0, schema);
  input.ordered = ordered;
  br_run run = {.sql = sql,
                .inputs = &input,
                .n_inputs = schema ? 1 : 0,
                .sink = &sink,
                .ordered = ordered,
                .scratch_dir = f->scratch};
  OK(br_session_run(f->session, &run, &err));
  assert_int_equal(c->opens, 1);
  assert_int_equal(c->begins, c->ends);
  assert_int_equal(c->abandons, 0);
  assert_int_equal(run.stats.rows_out, c->rows);
  return c;
}

/* Int64 value of a column's row. */
static UNUSED int64_t batch_int64(const br_batch *b, int column, int64_t row) {
  const struct ArrowArray *a = br_batch_arrow(b)->children[column];
  return ((const int64_t *)a->buffers[1])[a->offset + row];
}

#endif
