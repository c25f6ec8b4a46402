/* SPDX-License-Identifier: Apache-2.0
 *
 * The table function input(k): batches of the running task, as DuckDB chunks.
 *
 * Batches are cut into slices of at most a vector (2,048 rows) over the projected columns. DuckDB reads an Arrow array in
 * place; column 0 of the chunk owns it. So each slice holds a reference on its batch, dropped when DuckDB lets go of the
 * slice, and besides a thread keeps its batch until it asks for the next slice: by then the slice before has gone
 * through the pipeline.
 * Order: bind, init, then scan from any number of threads. The run is found through the connection that binds.
 * Threads: scan runs on DuckDB's; what they share is atomic. Bounds: one batch a thread, plus what operators hold on to.
 */
#include "engine/internal.h"
#include <string.h>
#include <strings.h>

enum { VECTOR_ROWS = 2048, ROWS_PER_THREAD = 8192, MAX_THREADS = 1024 };

/* What a statement's plan knows of one use of input(k). */
typedef struct scan {
  br_run_ctx *ctx;
  br_input_state *input;
  size_t n;
  uint64_t *ids;
  duckdb_arrow_converted_schema converted;
  void (*free_ctx)(br_run_ctx *ctx); /* NULL: the run's */
} scan;

typedef struct slice slice;
static void slice_unref(slice *s);

typedef struct cursor {
  br_batch *batch;
  slice *slice; /* the last one: see emit */
  int64_t next_row;
  const br_schema *checked; /* the last schema found to be of the input's types */
} cursor;

/* ---- before the run */

static char **unique_names(const struct ArrowSchema *s) {
  size_t n = (size_t)s->n_children;
  char **names = br_calloc(n + 1, sizeof *names);
  for (size_t i = 0; i < n; i++) {
    const char *name = s->children[i]->name;
    bool taken = !name || !*name;
    for (size_t j = 0; j < i && !taken; j++) taken = strcasecmp(names[j], name) == 0;
    names[i] = taken ? br_asprintf("%s_%zu", name ? name : "", i) : br_strdup(name);
  }
  return names;
}

br_status br_input_prepare(br_run_ctx *c, br_error *err) {
  c->inputs = br_calloc(c->run->n_inputs + 1, sizeof *c->inputs);
  for (size_t i = 0; i < c->run->n_inputs; i++) {
    const br_run_input *in = &c->run->inputs[i];
    br_input_state *st = &c->inputs[i];
    st->in = in;
    st->n_columns = (size_t)br_schema_columns(in->schema);
    st->has_union = br_has_union(br_schema_arrow(in->schema));
    st->names = unique_names(br_schema_arrow(in->schema));
    br_status status = br_schema_types(c->session->engine, in->schema, &st->types, err);
    if (status != BR_OK) return br_error_context(err, "input(%u)", in->number);
  }
  return BR_OK;
}

void br_input_release(br_run_ctx *c) {
  if (!c->inputs) return;
  for (size_t i = 0; i < c->run->n_inputs; i++) {
    br_input_state *st = &c->inputs[i];
    br_types_free(st->types, st->n_columns);
    for (size_t k = 0; st->names && k < st->n_columns; k++) free(st->names[k]);
    free(st->names);
  }
  free(c->inputs);
}

/* ---- bind and init */

static void scan_free(void *p) {
  scan *s = p;
  if (s->converted) duckdb_destroy_arrow_converted_schema(&s->converted);
  if (s->free_ctx) s->free_ctx(s->ctx);
  free(s->ids);
  free(s);
}

static void bind(duckdb_bind_info info) {
  br_engine *e = duckdb_bind_get_extra_info(info);
  duckdb_client_context context = NULL;
  duckdb_table_function_get_client_context(info, &context);
  br_session *s = br_session_of(e, context);
  if (!s || !s->run) {
    duckdb_bind_set_error(info, "input(k) exists only while a task runs");
    return;
  }
  duckdb_value value = duckdb_bind_get_parameter(info, 0);
  int64_t number = duckdb_get_int64(value);
  duckdb_destroy_value(&value);
  br_input_state *input = NULL;
  for (size_t i = 0; i < s->run->run->n_inputs && !input; i++)
    if ((int64_t)s->run->run->inputs[i].number == number) input = &s->run->inputs[i];
  if (!input) {
    char text[64];
    snprintf(text, sizeof text, "this task has no input(%lld)", (long long)number);
    duckdb_bind_set_error(info, text);
    return;
  }
  for (size_t i = 0; i < input->n_columns; i++) duckdb_bind_add_result_column(info, input->names[i], input->types[i]);
  if (input->in->rows_known || input->in->rows > 0) /* or an estimate: without one DuckDB takes it for tiny */
    duckdb_bind_set_cardinality(info, input->in->rows, input->in->rows_known);
  scan *bound = br_calloc(1, sizeof *bound);
  bound->ctx = s->run;
  bound->input = input;
  duckdb_bind_set_bind_data(info, bound, scan_free);
}

static uint64_t max_threads(const br_run_input *in) {
  if (in->ordered) return 1;
  if (!in->rows_known) return MAX_THREADS;
  uint64_t wanted = in->rows / ROWS_PER_THREAD + 1;
  return wanted < MAX_THREADS ? wanted : MAX_THREADS;
}

void br_input_scan_init(duckdb_init_info info, br_run_ctx *ctx, br_input_state *input,
                        void (*free_ctx)(br_run_ctx *ctx)) {
  scan *s = br_calloc(1, sizeof *s);
  *s = (scan){.ctx = ctx, .input = input, .free_ctx = free_ctx};
  s->n = duckdb_init_get_column_count(info);
  s->ids = br_calloc(s->n + 1, sizeof *s->ids);
  duckdb_init_set_init_data(info, s, scan_free);
  for (size_t i = 0; i < s->n; i++) {
    s->ids[i] = duckdb_init_get_column_index(info, i);
    if (s->ids[i] >= s->input->n_columns) {
      duckdb_init_set_error(info, "input(k) has no row ids");
      return;
    }
  }
  struct ArrowSchema projected;
  br_error err;
  if (atomic_exchange(&s->input->opened, true)) { /* the second reader would get nothing */
    (void)!br_fail(&err, BR_INTERNAL, BR_BLAME_INTERNAL,
                   "DuckDB's plan reads input(%u) twice, and its rows come once: an optimizer must be switched off",
                   s->input->in->number);
    br_run_store(s->ctx, &err);
    duckdb_init_set_error(info, err.message);
    return;
  }
  br_schema_project(br_schema_arrow(s->input->in->schema), s->ids, s->n, &projected);
  br_status status =
      br_duckdb_check(duckdb_schema_from_arrow(s->ctx->session->engine->helper, &projected, &s->converted),
                      "DuckDB cannot read the Arrow schema", &err);
  projected.release(&projected);
  if (status != BR_OK) {
    br_run_store(s->ctx, &err);
    duckdb_init_set_error(info, err.message);
    return;
  }
  duckdb_init_set_max_threads(info, max_threads(s->input->in));
}

static void init(duckdb_init_info info) {
  const scan *bound = duckdb_init_get_bind_data(info);
  br_input_scan_init(info, bound->ctx, bound->input, NULL);
}

static void cursor_free(void *p) {
  cursor *c = p;
  slice_unref(c->slice);
  br_batch_unref(c->batch);
  free(c);
}

void br_input_local_init(duckdb_init_info info) {
  duckdb_init_set_init_data(info, br_calloc(1, sizeof(cursor)), cursor_free);
}

/* ---- slices */

struct slice {
  atomic_int refs; /* the thread's, and what DuckDB made of it */
  br_batch *batch;
  br_arena *mem; /* NULL without unions */
  const void *no_validity[1];
  struct ArrowArray **pointers;
  struct ArrowArray columns[];
};

static void release_column(struct ArrowArray *a) { a->release = NULL; }

static void slice_unref(slice *s) {
  if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
  br_batch_unref(s->batch);
  br_arena_free(s->mem);
  free(s);
}

static void release_slice(struct ArrowArray *a) {
  slice_unref(a->private_data);
  a->release = NULL;
}

static slice *cut(br_batch *b, const scan *sc, int64_t first, int64_t rows, struct ArrowArray *out) {
  const struct ArrowArray *from = br_batch_arrow(b);
  slice *s = br_malloc(sizeof *s + sc->n * (sizeof *s->columns + sizeof *s->pointers));
  atomic_init(&s->refs, 2);
  s->batch = br_batch_ref(b);
  s->mem = sc->input->has_union ? br_arena_new() : NULL;
  s->no_validity[0] = NULL;
  s->pointers = (struct ArrowArray **)(s->columns + sc->n);
  for (size_t i = 0; i < sc->n; i++) {
    struct ArrowArray *column = &s->columns[i];
    *column = *from->children[sc->ids[i]];
    column->offset += from->offset + first;
    column->length = rows;
    if (column->null_count) column->null_count = -1;
    if (s->mem) br_rebase(br_schema_arrow(sc->input->in->schema)->children[sc->ids[i]], column, s->mem);
    column->release = release_column;
    s->pointers[i] = column;
  }
  *out = (struct ArrowArray){.length = rows,
                             .n_buffers = 1,
                             .buffers = s->no_validity,
                             .n_children = (int64_t)sc->n,
                             .children = s->pointers,
                             .release = release_slice,
                             .private_data = s};
  return s;
}

/* DuckDB gives the array to column 0, and drops it with that when its values were copied (BOOLEAN), before the other columns are
 * converted: so the thread holds the slice, too, until the next one. */
static br_status emit(const scan *sc, cursor *cur, int64_t rows, duckdb_data_chunk out, br_error *err) {
  if (!sc->n) return BR_OK;
  struct ArrowArray array;
  duckdb_data_chunk chunk = NULL;
  slice_unref(cur->slice);
  cur->slice = cut(cur->batch, sc, cur->next_row, rows, &array);
  br_status status =
      br_duckdb_check(duckdb_data_chunk_from_arrow(sc->ctx->session->engine->helper, &array, sc->converted, &chunk),
                      "DuckDB cannot read a batch", err);
  if (array.release) array.release(&array);
  if (status != BR_OK) return status;
  for (size_t i = 0; i < sc->n && sc->input->has_union; i++)
    br_restore_null_unions(duckdb_data_chunk_get_vector(chunk, i), (idx_t)rows);
  for (size_t i = 0; i < sc->n; i++)
    duckdb_vector_reference_vector(duckdb_data_chunk_get_vector(out, i), duckdb_data_chunk_get_vector(chunk, i));
  duckdb_destroy_data_chunk(&chunk);
  return BR_OK;
}

static br_status check_schema(const scan *sc, cursor *cur, br_error *err) {
  const br_schema *have = br_batch_schema(cur->batch), *want = sc->input->in->schema;
  if (have == want || have == cur->checked) return BR_OK;
  br_buf why = {0};
  br_status status = BR_OK;
  if (br_schema_same_types(want, have, &why))
    cur->checked = have;
  else
    status = br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "a batch of input(%u) has other types than announced: %s",
                     sc->input->in->number, br_buf_cstr(&why));
  br_buf_free(&why);
  return status;
}

/* The next batch with rows into cur; at the end cur->batch is NULL. */
static br_status advance(const scan *sc, cursor *cur, br_error *err) {
  const br_run_input *in = sc->input->in;
  for (;;) {
    br_batch_unref(cur->batch);
    cur->batch = NULL;
    cur->next_row = 0;
    if (atomic_load(&sc->input->ended)) return BR_OK;
    BR_TRY(in->next(in->arg, &cur->batch, err));
    if (!cur->batch) {
      atomic_store(&sc->input->ended, true);
      return BR_OK;
    }
    BR_TRY(check_schema(sc, cur, err));
    if (br_batch_rows(cur->batch) > 0) return BR_OK;
  }
}

void br_input_rows(duckdb_function_info info, duckdb_data_chunk out) {
  const scan *sc = duckdb_function_get_init_data(info);
  cursor *cur = duckdb_function_get_local_init_data(info);
  const char *stop;
  br_error err;
  br_status status = BR_OK;
  if (br_run_stopped(sc->ctx, &stop)) {
    duckdb_function_set_error(info, stop);
    return;
  }
  if (!cur->batch || cur->next_row >= br_batch_rows(cur->batch)) status = advance(sc, cur, &err);
  int64_t rows = 0;
  if (status == BR_OK && cur->batch) {
    rows = br_batch_rows(cur->batch) - cur->next_row;
    if (rows > VECTOR_ROWS) rows = VECTOR_ROWS;
    status = emit(sc, cur, rows, out, &err);
  }
  if (status != BR_OK) {
    br_run_store(sc->ctx, &err);
    duckdb_function_set_error(info, err.message);
    return;
  }
  cur->next_row += rows;
  atomic_fetch_add(&sc->input->rows_fed, (uint64_t)rows);
  duckdb_data_chunk_set_size(out, (idx_t)rows);
}

br_status br_input_register(br_engine *e, br_error *err) {
  duckdb_table_function f = duckdb_create_table_function();
  duckdb_logical_type bigint = duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
  br_status status = BR_OK;
  duckdb_table_function_set_name(f, "input");
  duckdb_table_function_add_parameter(f, bigint);
  duckdb_table_function_set_extra_info(f, e, NULL);
  duckdb_table_function_set_bind(f, bind);
  duckdb_table_function_set_init(f, init);
  duckdb_table_function_set_local_init(f, br_input_local_init);
  duckdb_table_function_set_function(f, br_input_rows);
  duckdb_table_function_supports_projection_pushdown(f, true);
  BR_ASSERT(duckdb_vector_size() == VECTOR_ROWS);
  if (duckdb_register_table_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the table function input(k)");
  duckdb_destroy_logical_type(&bigint);
  duckdb_destroy_table_function(&f);
  return status;
}
