/* SPDX-License-Identifier: Apache-2.0
 *
 * COPY … (FORMAT brant): rows out of DuckDB into the run's sink.
 *
 * With PER_THREAD_OUTPUT each DuckDB thread has a "file", that is a global state, of its own; without it there is one, fed in
 * order. A state starts the sink's thread state with its first rows. DuckDB's finalize is not a commit: the states are ended
 * by br_sink_finish, after the statement has returned success.
 * Order: bind (when the COPY starts; opens the sink), then init and rows, then br_sink_finish. Threads: rows run on DuckDB's.
 * Bounds: a reader a thread (vectors.c); what the sink holds is its own matter.
 */
#include "engine/internal.h"
#include <string.h>

struct br_sink_state {
  br_run_ctx *ctx;
  br_vec_reader *reader;
  void *user;
  bool begun;
  br_sink_state *next;
};

static bool same_types(const duckdb_logical_type *a, const duckdb_logical_type *b, size_t n) {
  bool same = true;
  for (size_t i = 0; i < n && same; i++) {
    br_buf x = {0}, y = {0};
    br_type_sql(a[i], false, &x);
    br_type_sql(b[i], false, &y);
    same = strcmp(br_buf_cstr(&x), br_buf_cstr(&y)) == 0;
    br_buf_free(&x);
    br_buf_free(&y);
  }
  return same;
}

/* DuckDB may bind once more (to say what was wrong; a file or the catalog changed): the plan points into the first types, so those
 * stay, and others are refused. The sink opens with the first: before anything of the statement runs. */
static br_status take_types(br_run_ctx *c, duckdb_copy_function_bind_info info, br_error *err) {
  size_t n = duckdb_copy_function_bind_get_column_count(info);
  duckdb_logical_type *types = br_calloc(n + 1, sizeof *types);
  for (size_t i = 0; i < n; i++) types[i] = duckdb_copy_function_bind_get_column_type(info, i);
  if (c->types == NULL) {
    c->types = types;
    c->n_types = n;
    return br_run_open(c, err);
  }
  bool same = n == c->n_types && same_types(types, c->types, n);
  br_types_free(types, n);
  if (same) return BR_OK;
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "the types of the task's rows changed between planning and running");
}

/* On the thread that starts the statement, before any other has to do with the run. */
static void bind(duckdb_copy_function_bind_info info) {
  br_engine *e = duckdb_copy_function_bind_get_extra_info(info);
  br_session *s = br_session_of(e, duckdb_copy_function_bind_get_client_context(info));
  const char *stop;
  br_error err;
  if (!s || !s->run) {
    duckdb_copy_function_bind_set_error(info, "FORMAT brant exists only while a task runs");
    return;
  }
  br_run_ctx *c = s->run;
  if (br_run_stopped(c, &stop)) {
    duckdb_copy_function_bind_set_error(info, stop);
    return;
  }
  if (take_types(c, info, &err) != BR_OK) {
    br_run_store(c, &err);
    duckdb_copy_function_bind_set_error(info, err.message);
    return;
  }
  duckdb_copy_function_bind_set_bind_data(info, c, NULL);
}

static void global_init(duckdb_copy_function_global_init_info info) {
  br_run_ctx *c = duckdb_copy_function_global_init_get_bind_data(info);
  const char *stop;
  if (br_run_stopped(c, &stop)) {
    duckdb_copy_function_global_init_set_error(info, stop);
    return;
  }
  br_sink_state *st = br_calloc(1, sizeof *st);
  st->ctx = c;
  pthread_mutex_lock(&c->mutex);
  *c->states_end = st;
  c->states_end = &st->next;
  pthread_mutex_unlock(&c->mutex);
  duckdb_copy_function_global_init_set_global_state(info, st, NULL); /* the run frees it */
}

static br_status write_rows(br_sink_state *st, duckdb_data_chunk chunk, uint32_t rows, br_error *err) {
  br_run_ctx *c = st->ctx;
  const br_run_sink *sink = c->run->sink;
  if (!st->begun) {
    BR_TRY(sink->thread_begin(sink->arg, &st->user, err));
    st->begun = true;
    st->reader = br_vec_reader_new(c->plan);
  }
  const br_vec *columns = br_vec_read(st->reader, chunk, rows);
  return sink->write(sink->arg, st->user, columns, (uint32_t)c->n_types, rows, err);
}

static void sink_rows(duckdb_copy_function_sink_info info, duckdb_data_chunk chunk) {
  br_sink_state *st = duckdb_copy_function_sink_get_global_state(info);
  br_run_ctx *c = st->ctx;
  uint32_t rows = (uint32_t)duckdb_data_chunk_get_size(chunk);
  const char *stop;
  br_error err;
  if (br_run_stopped(c, &stop)) {
    duckdb_copy_function_sink_set_error(info, stop);
    return;
  }
  if (!rows) return;
  if (c->run->ordered) pthread_mutex_lock(&c->ordered_mutex);
  br_status status = write_rows(st, chunk, rows, &err);
  if (c->run->ordered) pthread_mutex_unlock(&c->ordered_mutex);
  if (status != BR_OK) {
    br_run_store(c, &err);
    duckdb_copy_function_sink_set_error(info, err.message);
    return;
  }
  atomic_fetch_add(&c->rows_out, rows);
}

static void finalize(duckdb_copy_function_finalize_info info) { (void)info; }

br_status br_sink_finish(br_run_ctx *c, bool success, br_error *err) {
  const br_run_sink *sink = c->run->sink;
  br_status status = BR_OK;
  for (br_sink_state *st = c->states, *next; st; st = next) {
    next = st->next;
    if (st->begun && success && status == BR_OK)
      status = sink->thread_end(sink->arg, st->user, err);
    else if (st->begun)
      sink->abandon(sink->arg, st->user);
    br_vec_reader_free(st->reader);
    free(st);
  }
  c->states = NULL;
  c->states_end = &c->states;
  return status;
}

br_status br_sink_register(br_engine *e, br_error *err) {
  duckdb_copy_function f = duckdb_create_copy_function();
  br_status status = BR_OK;
  duckdb_copy_function_set_name(f, "brant");
  duckdb_copy_function_set_extra_info(f, e, NULL);
  duckdb_copy_function_set_bind(f, bind);
  duckdb_copy_function_set_global_init(f, global_init);
  duckdb_copy_function_set_sink(f, sink_rows);
  duckdb_copy_function_set_finalize(f, finalize);
  if (duckdb_register_copy_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the copy format brant");
  duckdb_destroy_copy_function(&f);
  return status;
}
