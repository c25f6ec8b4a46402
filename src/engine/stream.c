/* SPDX-License-Identifier: Apache-2.0
 *
 * A statement's rows as a stream of Arrow batches, in the caller's process.
 *
 * The batches are built like those of a task (vectors.c, arrow/columns), not by DuckDB's own export, so that a result has
 * the same types wherever it was computed. Enums become VARCHAR by a cast around the statement, and the
 * schema notes their values.
 * Order: br_session_stream, next until NULL, free; the session is busy until then. Threads: the session's user.
 * Bounds: one batch of at most BATCH_ROWS rows, or of the first chunk that passes BATCH_BYTES.
 */
#include "arrow/columns.h"
#include "engine/internal.h"
#include <string.h>

enum { FIRST_BATCH_ROWS = 2048, BATCH_ROWS = 65536, BATCH_BYTES = 16 << 20 };

struct br_local_stream {
  br_session *session;
  duckdb_prepared_statement ps;
  duckdb_result result;
  bool has_result, at_end;
  duckdb_logical_type *types, *given; /* given: before the cast; NULL: without one */
  size_t n;
  br_schema *schema;
  br_vec_plan *plan;
  br_vec_reader *reader;
  br_colset *columns;
  int64_t batch_rows; /* grows: the first rows come at once */
  bool exact;         /* batch_rows is what the reader wants */
  uint64_t batch_bytes;
  duckdb_data_chunk held; /* exact: rows of it from held_at on belong to the next batch */
  uint32_t held_at, held_rows;
  uint32_t *all_rows;
  br_run run; /* of br_session_stream_over: its inputs, and the first error of their callbacks */
  br_run_ctx ctx;
  bool over;
};

br_schema *br_local_stream_schema(br_local_stream *st) { return st->schema; }

static void read_types(br_local_stream *st) {
  br_types_free(st->types, st->n);
  st->n = duckdb_prepared_statement_column_count(st->ps);
  st->types = br_calloc(st->n + 1, sizeof *st->types);
  for (size_t i = 0; i < st->n; i++) st->types[i] = duckdb_prepared_statement_column_logical_type(st->ps, i);
}

/* The statement with a cast around each column that holds an enum. */
static char *without_enums(br_local_stream *st, const char *sql) {
  br_buf out = {0};
  br_buf_str(&out, "SELECT ");
  for (size_t i = 0; i < st->n; i++) {
    const char *name = duckdb_prepared_statement_column_name(st->ps, i);
    if (i) br_buf_str(&out, ", ");
    if (br_type_has_enum(st->types[i])) {
      br_buf_printf(&out, "CAST(c%zu AS ", i);
      br_type_sql(st->types[i], true, &out);
      br_buf_str(&out, ") AS ");
    } else
      br_buf_printf(&out, "c%zu AS ", i);
    br_buf_sql_ident(&out, name);
    duckdb_free((void *)name);
  }
  br_buf_printf(&out, " FROM (%s\n) AS brant_result(", sql);
  for (size_t i = 0; i < st->n; i++) br_buf_printf(&out, "%sc%zu", i ? ", " : "", i);
  br_buf_char(&out, ')');
  return br_buf_take(&out);
}

static br_status prepare(br_local_stream *st, const char *sql, br_error *err) {
  bool enums = false;
  BR_TRY(br_stmt_prepare_last(st->session, sql, &st->ps, err));
  read_types(st);
  for (size_t i = 0; i < st->n && !enums; i++) enums = br_type_has_enum(st->types[i]);
  if (!enums) return BR_OK;
  if (duckdb_prepared_statement_type(st->ps) != DUCKDB_STATEMENT_TYPE_SELECT) /* before it changes anything */
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "a column that the statement gives is an enum: cast it to VARCHAR there (RETURNING m::VARCHAR)");
  char *wrapped = without_enums(st, sql);
  duckdb_destroy_prepare(&st->ps);
  br_status status = br_stmt_prepare(st->session, wrapped, &st->ps, err);
  free(wrapped);
  if (status != BR_OK) return status;
  st->given = st->types;
  st->types = NULL;
  read_types(st);
  return BR_OK;
}

/* Statements without columns of their own (SET, CREATE …) answer with what DuckDB reports: the result's columns. */
static br_status open_columns(br_local_stream *st, br_error *err) {
  size_t n = duckdb_column_count(&st->result);
  const char **names = br_calloc(n + 1, sizeof *names);
  br_types_free(st->types, st->n);
  st->n = n;
  st->types = br_calloc(n + 1, sizeof *st->types);
  for (size_t i = 0; i < n; i++) {
    names[i] = duckdb_column_name(&st->result, i);
    st->types[i] = duckdb_column_logical_type(&st->result, i);
  }
  br_status status = br_types_schema(st->session->engine, st->types, st->given, names, n, &st->schema, err);
  free(names);
  if (status == BR_OK) status = br_vec_plan_new(st->types, n, st->schema, &st->plan, err);
  if (status == BR_OK) status = br_colset_new(st->schema, &st->columns, err);
  if (status == BR_OK) st->reader = br_vec_reader_new(st->plan);
  return status;
}

/* An input's own error says more than what DuckDB made of it. */
static br_status own_error(br_local_stream *st, br_status status, br_error *err) {
  if (status == BR_OK || !st->over || !atomic_load(&st->ctx.failed)) return status;
  *err = st->ctx.error;
  return (br_status)err->code;
}

static void set_run(br_session *s, br_run_ctx *c) {
  pthread_mutex_lock(&s->mutex);
  s->run = c;
  pthread_mutex_unlock(&s->mutex);
}

static br_status bind_inputs(br_local_stream *st, const br_run_input *inputs, size_t n_inputs, br_error *err) {
  br_run_input *copy = br_calloc(n_inputs, sizeof *copy);
  memcpy(copy, inputs, n_inputs * sizeof *copy);
  st->run = (br_run){.inputs = copy, .n_inputs = n_inputs};
  st->ctx.session = st->session;
  st->ctx.run = &st->run;
  pthread_mutex_init(&st->ctx.mutex, NULL);
  st->over = true;
  BR_TRY(br_input_prepare(&st->ctx, err));
  set_run(st->session, &st->ctx); /* from here on cancel and progress look at the inputs */
  return BR_OK;
}

/* DuckDB waits for its threads when a result is dropped half-way: none of them may be left waiting for a batch. */
static void wake_inputs(br_local_stream *st) {
  if (!st->over) return;
  br_error stop;
  (void)!br_fail(&stop, BR_CANCELLED, BR_BLAME_NONE, "the stream was given up");
  br_run_store(&st->ctx, &stop);
}

static void release_inputs(br_local_stream *st) {
  if (!st->over) return;
  set_run(st->session, NULL);
  br_input_release(&st->ctx);
  pthread_mutex_destroy(&st->ctx.mutex);
  free((void *)(uintptr_t)st->run.inputs);
}

void br_session_join_filters(br_session *s, bool on) { s->no_join_filters = !on; }

br_status br_session_stream(br_session *s, const char *sql, br_local_stream **out, br_error *err) {
  return br_session_stream_over(s, sql, NULL, 0, out, err);
}

br_status br_session_stream_over(br_session *s, const char *sql, const br_run_input *inputs, size_t n_inputs,
                                 br_local_stream **out, br_error *err) {
  br_local_stream *st = br_calloc(1, sizeof *st);
  br_status status;
  st->session = s;
  st->batch_rows = FIRST_BATCH_ROWS;
  st->batch_bytes = BATCH_BYTES;
  br_session_begin(s);
  if (n_inputs) BR_TRY_GOTO(bind_inputs(st, inputs, n_inputs, err));
  BR_TRY_GOTO(br_gate_enter(s, s->no_join_filters ? BR_MODE_NO_JOIN_FILTERS : BR_MODE_DEFAULT, err));
  status = prepare(st, sql, err);
  br_gate_leave(s);
  if (status != BR_OK) goto done;
  BR_TRY_GOTO(br_stmt_execute(s, st->ps, true, &st->result, err));
  st->has_result = true;
  BR_TRY_GOTO(open_columns(st, err));
  idx_t vector_rows = duckdb_vector_size();
  st->all_rows = br_malloc(vector_rows * sizeof *st->all_rows);
  for (idx_t i = 0; i < vector_rows; i++) st->all_rows[i] = (uint32_t)i;
  *out = st;
  st = NULL;
done:
  if (st) {
    status = own_error(st, status, err);
    br_local_stream_free(st);
  }
  return status;
}

/* The failure of the result that has just ended; DUCKDB_ERROR_INVALID in *type when there is none. */
static br_status result_error(br_local_stream *st, duckdb_error_type *type, br_error *err) {
  const char *message = duckdb_result_error(&st->result);
  *type = DUCKDB_ERROR_INVALID;
  if (!message || !*message) return BR_OK;
  if (br_session_cancelled(st->session)) return br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "cancelled");
  *type = duckdb_result_error_type(&st->result);
  return br_duckdb_fail(err, *type, message);
}

/* When a statement fails on one thread, DuckDB interrupts the others, and the one that fetches may then report that interrupt
 * instead of the failure (seen in 3 of 1,000 failing streams). Nobody cancelled: run a query again to hear the reason. */
static br_status lost_reason(br_local_stream *st, br_error *err) {
  enum { TRIES = 3 };
  bool again = !st->over && duckdb_prepared_statement_type(st->ps) == DUCKDB_STATEMENT_TYPE_SELECT;
  for (int i = 0; i < TRIES && again; i++) {
    duckdb_error_type type;
    duckdb_destroy_result(&st->result);
    st->has_result = false;
    br_status status = br_stmt_execute(st->session, st->ps, true, &st->result, err);
    if (status != BR_OK) return status;
    st->has_result = true;
    for (duckdb_data_chunk chunk;
         !br_session_cancelled(st->session) && (chunk = duckdb_fetch_chunk(st->result)) != NULL;)
      duckdb_destroy_data_chunk(&chunk);
    if (br_session_cancelled(st->session)) return br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "cancelled");
    status = result_error(st, &type, err);
    if (status != BR_OK && type != DUCKDB_ERROR_INTERRUPT) return status;
    if (status == BR_OK) break;
  }
  return br_interrupted_fail(err);
}

void br_local_stream_exact(br_local_stream *st, uint32_t rows, uint64_t bytes) {
  st->exact = true;
  st->batch_rows = rows;
  st->batch_bytes = bytes;
}

/* What still fits of the chunk. */
static br_status append_held(br_local_stream *st, br_error *err) {
  int64_t room = st->exact ? st->batch_rows - br_colset_rows(st->columns) : INT64_MAX;
  uint32_t rows = st->held_rows - st->held_at;
  if (rows > room) rows = (uint32_t)room;
  br_status status = br_colset_append(st->columns, br_vec_read(st->reader, st->held, st->held_rows),
                                      st->all_rows + st->held_at, rows, err);
  st->held_at += rows;
  if (st->held_at == st->held_rows || status != BR_OK) duckdb_destroy_data_chunk(&st->held);
  return status;
}

/* One chunk more, or the rest of one; at the end st->at_end. */
static br_status pull(br_local_stream *st, br_error *err) {
  if (br_session_cancelled(st->session)) return br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "cancelled");
  if (st->held) return append_held(st, err);
  duckdb_data_chunk chunk = duckdb_fetch_chunk(st->result);
  if (!chunk) {
    duckdb_error_type type;
    st->at_end = true;
    br_status failed = result_error(st, &type, err);
    return type == DUCKDB_ERROR_INTERRUPT ? lost_reason(st, err) : failed;
  }
  st->held = chunk;
  st->held_at = 0;
  st->held_rows = (uint32_t)duckdb_data_chunk_get_size(chunk);
  if (st->held_rows) return append_held(st, err);
  duckdb_destroy_data_chunk(&st->held);
  return BR_OK;
}

static br_status take_batch(br_local_stream *st, br_batch **out, br_error *err) {
  br_buf head = {0}, body = {0};
  br_status status;
  BR_TRY_GOTO(br_colset_encode(st->columns, BR_CODEC_NONE, &head, &body, true, err));
  br_ipc_body owned = {.data = body.data, .bytes = body.len, .release = free, .owner = body.data};
  memset(&body, 0, sizeof body); /* the batch's now, also if decoding fails */
  status = br_ipc_decode_batch(st->schema, head.data, head.len, owned, out, err);
done:
  br_buf_free(&head);
  br_buf_free(&body);
  return status;
}

br_status br_local_stream_next(br_local_stream *st, br_batch **out, br_error *err) {
  *out = NULL;
  while (!st->at_end && br_colset_rows(st->columns) < st->batch_rows &&
         br_colset_bytes(st->columns) < st->batch_bytes) {
    br_status status = own_error(st, pull(st, err), err);
    if (status != BR_OK) {
      st->at_end = true;
      br_colset_free(st->columns);
      st->columns = NULL;
      return status;
    }
  }
  if (!st->columns || br_colset_rows(st->columns) == 0) return BR_OK;
  if (!st->exact && st->batch_rows < BATCH_ROWS) st->batch_rows *= 2;
  return take_batch(st, out, err);
}

void br_local_stream_free(br_local_stream *st) {
  if (!st) return;
  wake_inputs(st);
  if (st->held) duckdb_destroy_data_chunk(&st->held);
  if (st->has_result) duckdb_destroy_result(&st->result);
  if (st->ps) duckdb_destroy_prepare(&st->ps);
  release_inputs(st);
  br_vec_reader_free(st->reader);
  br_vec_plan_free(st->plan);
  br_colset_free(st->columns);
  br_types_free(st->types, st->n);
  br_types_free(st->given, st->n);
  br_schema_unref(st->schema);
  free(st->all_rows);
  br_session_end(st->session);
  free(st);
}
