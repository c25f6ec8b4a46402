/* SPDX-License-Identifier: Apache-2.0
 *
 * The table function dataset('name'): rows that the caller of the engine holds, read in place.
 *
 * Each scan opens a reader of its own and goes on as input(k) does, with a run of its own that nobody else knows.
 * Order: put, then statements that name it, then drop; a statement that was bound keeps what it reads. Threads: any.
 * Bounds: one reader a scan, read by one thread.
 */
#include "engine/internal.h"
#include <string.h>
#include <strings.h>

typedef struct named {
  atomic_size_t refs;
  br_engine *engine;
  br_engine_dataset d;
  duckdb_logical_type *types;
  size_t n_columns;
} named;

static void named_unref(named *x) {
  if (atomic_fetch_sub(&x->refs, 1) != 1) return;
  br_types_free(x->types, x->n_columns);
  br_schema_unref(x->d.schema);
  if (x->d.free) x->d.free(x->d.arg);
  free(x);
}

static void bound_free(void *p) { named_unref(p); }

static char *lower(const char *name) { /* names are compared as DuckDB compares them */
  char *copy = br_strdup(name);
  for (char *p = copy; *p; p++)
    if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
  return copy;
}

br_status br_engine_dataset_put(br_engine *e, const char *name, const br_engine_dataset *d, br_error *err) {
  named *x = br_calloc(1, sizeof *x);
  char *key = lower(name);
  atomic_init(&x->refs, 1);
  x->engine = e;
  x->d = *d;
  br_schema_ref(d->schema);
  x->n_columns = (size_t)br_schema_columns(d->schema);
  br_status status = br_schema_types(e, d->schema, &x->types, err);
  if (status == BR_OK) {
    pthread_mutex_lock(&e->mutex);
    if (br_smap_get(e->datasets, key) != NULL)
      status = br_fail(err, BR_INVALID, BR_BLAME_USER, "there is a table %s already: drop it first", name);
    else
      br_smap_put(e->datasets, key, x);
    pthread_mutex_unlock(&e->mutex);
  } else {
    x->n_columns = 0;
  }
  if (status != BR_OK) named_unref(x);
  free(key);
  return status;
}

void br_engine_dataset_drop(br_engine *e, const char *name) {
  char *key = lower(name);
  pthread_mutex_lock(&e->mutex);
  named *x = br_smap_remove(e->datasets, key);
  pthread_mutex_unlock(&e->mutex);
  free(key);
  if (x) named_unref(x);
}

void br_datasets_free(br_engine *e) {
  const char *key;
  void *v;
  for (size_t it = 0; br_smap_next(e->datasets, &it, &key, &v);) named_unref(v);
  br_smap_free(e->datasets);
}

static named *find(br_engine *e, const char *name) {
  char *key = lower(name);
  pthread_mutex_lock(&e->mutex);
  named *x = br_smap_get(e->datasets, key);
  if (x) atomic_fetch_add(&x->refs, 1);
  pthread_mutex_unlock(&e->mutex);
  free(key);
  return x;
}

static void bind(duckdb_bind_info info) {
  duckdb_value value = duckdb_bind_get_parameter(info, 0);
  char *name = duckdb_get_varchar(value);
  named *x = name ? find(duckdb_bind_get_extra_info(info), name) : NULL;
  if (!x) {
    char *text = br_asprintf("there is no dataset %.200s in this session", name ? name : "");
    duckdb_bind_set_error(info, text);
    free(text);
  } else {
    const struct ArrowSchema *s = br_schema_arrow(x->d.schema);
    for (size_t i = 0; i < x->n_columns; i++) duckdb_bind_add_result_column(info, s->children[i]->name, x->types[i]);
    duckdb_bind_set_cardinality(info, x->d.rows, true);
    duckdb_bind_set_bind_data(info, x, bound_free);
  }
  duckdb_free(name);
  duckdb_destroy_value(&value);
}

/* ---- one scan's run */

typedef struct own_run {
  br_run_ctx ctx; /* first: free_run gets it */
  br_session session;
  br_run run;
  br_run_input in;
  named *table;
} own_run;

static void free_run(br_run_ctx *c) {
  own_run *r = (own_run *)c;
  br_input_release(c);
  if (r->in.arg) r->table->d.close(r->in.arg);
  pthread_mutex_destroy(&c->mutex);
  named_unref(r->table);
  free(r);
}

static void init(duckdb_init_info info) {
  named *x = duckdb_init_get_bind_data(info);
  br_error err;
  own_run *r = br_calloc(1, sizeof *r);
  atomic_fetch_add(&x->refs, 1);
  r->table = x;
  r->session.engine = x->engine;
  r->in =
      (br_run_input){.schema = x->d.schema, .rows = x->d.rows, .rows_known = true, .ordered = true, .next = x->d.next};
  r->run = (br_run){.inputs = &r->in, .n_inputs = 1};
  r->ctx.session = &r->session;
  r->ctx.run = &r->run;
  pthread_mutex_init(&r->ctx.mutex, NULL);
  br_status status = br_input_prepare(&r->ctx, &err);
  if (status == BR_OK) status = x->d.open(x->d.arg, &r->in.arg, &err);
  if (status != BR_OK) {
    duckdb_init_set_error(info, err.message);
    free_run(&r->ctx);
    return;
  }
  br_input_scan_init(info, &r->ctx, &r->ctx.inputs[0], free_run);
}

br_status br_dataset_function_register(br_engine *e, br_error *err) {
  duckdb_table_function f = duckdb_create_table_function();
  duckdb_logical_type text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR);
  br_status status = BR_OK;
  duckdb_table_function_set_name(f, "dataset");
  duckdb_table_function_add_parameter(f, text);
  duckdb_table_function_set_extra_info(f, e, NULL);
  duckdb_table_function_set_bind(f, bind);
  duckdb_table_function_set_init(f, init);
  duckdb_table_function_set_local_init(f, br_input_local_init);
  duckdb_table_function_set_function(f, br_input_rows);
  duckdb_table_function_supports_projection_pushdown(f, true);
  if (duckdb_register_table_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the table function dataset(name)");
  duckdb_destroy_logical_type(&text);
  duckdb_destroy_table_function(&f);
  return status;
}
