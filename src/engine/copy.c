/* SPDX-License-Identifier: Apache-2.0
 *
 * One COPY … TO statement, with inputs, and what it answers: a count, or with RETURN_STATS a row a file.
 * Order: as a task's run (run.c), without a sink of ours. Threads: the session's user; inputs are read on DuckDB's threads too.
 * Bounds: those of input.c; the answer is in memory.
 */
#include "engine/files.h"
#include "engine/internal.h"
#include <string.h>

void br_written_free(br_written *files, size_t n) {
  for (size_t i = 0; i < n; i++) free(files[i].path);
  free(files);
}

static void set_current(br_session *s, br_run_ctx *c) {
  pthread_mutex_lock(&s->mutex);
  s->run = c;
  pthread_mutex_unlock(&s->mutex);
}

static int64_t count_at(duckdb_vector v, idx_t row) {
  uint64_t *validity = duckdb_vector_get_validity(v);
  if (validity && !duckdb_validity_row_is_valid(validity, row)) return -1;
  return ((int64_t *)duckdb_vector_get_data(v))[row]; /* BIGINT, or UBIGINT below 2^63 */
}

static void add_files(br_copy *c, duckdb_data_chunk chunk, size_t *capacity) {
  duckdb_vector names = duckdb_data_chunk_get_vector(chunk, 0), counts = duckdb_data_chunk_get_vector(chunk, 1);
  for (idx_t i = 0; i < duckdb_data_chunk_get_size(chunk); i++) {
    duckdb_string_t *name = (duckdb_string_t *)duckdb_vector_get_data(names) + i;
    br_written f = {.path = br_strndup(duckdb_string_t_data(name), duckdb_string_t_length(*name)),
                    .rows = count_at(counts, i)};
    br_grow((void **)&c->files, capacity, c->n_files, sizeof *c->files);
    c->files[c->n_files++] = f;
    if (f.rows > 0) c->rows += (uint64_t)f.rows;
  }
}

static void read_answer(br_copy *c, duckdb_result *r) {
  size_t capacity = 0;
  bool stats = duckdb_column_count(r) > 1 && duckdb_column_type(r, 0) == DUCKDB_TYPE_VARCHAR;
  for (duckdb_data_chunk chunk; (chunk = duckdb_fetch_chunk(*r)) != NULL; duckdb_destroy_data_chunk(&chunk)) {
    if (stats)
      add_files(c, chunk, &capacity);
    else if (duckdb_data_chunk_get_size(chunk) > 0)
      c->rows = (uint64_t)count_at(duckdb_data_chunk_get_vector(chunk, 0), 0);
  }
}

static br_status start(br_session *s, const br_copy *c, duckdb_prepared_statement *ps, duckdb_pending_result *pending,
                       br_error *err) {
  BR_TRY(br_gate_enter(s, c->ordered ? BR_MODE_DEFAULT : BR_MODE_UNORDERED, err));
  br_status status = br_stmt_prepare(s, c->sql, ps, err);
  if (status == BR_OK) status = br_stmt_start(s, *ps, false, pending, err);
  br_gate_leave(s);
  return status;
}

br_status br_session_copy(br_session *s, br_copy *c, br_error *err) {
  br_run run = {.inputs = c->inputs, .n_inputs = c->n_inputs};
  br_run_ctx ctx = {.session = s, .run = &run};
  uint64_t start_us = br_now_us();
  double start_cpu_s = br_cpu_seconds();
  duckdb_prepared_statement ps = NULL;
  duckdb_pending_result pending = NULL;
  duckdb_result r;
  br_status status;
  c->rows = 0, c->files = NULL, c->n_files = 0;
  memset(&c->stats, 0, sizeof c->stats);
  pthread_mutex_init(&ctx.mutex, NULL);
  br_session_begin(s);
  BR_TRY_GOTO(br_input_prepare(&ctx, err));
  set_current(s, &ctx);
  BR_TRY_GOTO(start(s, c, &ps, &pending, err));
  BR_TRY_GOTO(br_stmt_finish(s, &pending, &r, err));
  read_answer(c, &r);
  duckdb_destroy_result(&r);
done:
  if (ps) duckdb_destroy_prepare(&ps);
  set_current(s, NULL);
  if (atomic_load(&ctx.failed)) { /* an input's own error says more than what DuckDB made of it */
    *err = ctx.error;
    status = (br_status)err->code;
  }
  br_session_end(s);
  br_input_release(&ctx);
  pthread_mutex_destroy(&ctx.mutex);
  c->stats.rows_out = c->rows;
  c->stats.wall_us = br_now_us() - start_us;
  c->stats.cpu_us = (uint64_t)((br_cpu_seconds() - start_cpu_s) * 1e6);
  return status;
}
