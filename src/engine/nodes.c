/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that stand for brant's own nodes. A node in a text (plan/README.md) is a filter on a volatile marker, which DuckDB's
 * optimizer leaves where it is; here, in the one process that runs the text, a marker is TRUE and nothing else.
 * monotonically_increasing_id() counts the rows of a run: with the number of a task, task << 36 | row.
 * Order: once an instance. Threads: DuckDB's; counters are atomic. Bounds: ROWS_A_TASK ids a task.
 */
#include "engine/internal.h"

#define TASK_SHIFT 36
#define ROWS_A_TASK (1ull << TASK_SHIFT)
#define TASKS_MOST (1ll << (63 - TASK_SHIFT))

static void marker(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  (void)info;
  bool *values = duckdb_vector_get_data(out);
  for (idx_t i = 0, n = duckdb_data_chunk_get_size(in); i < n; i++) values[i] = true;
}

/* ---- ids: one counter a call in the text, from its binding on */

typedef struct counter {
  atomic_size_t refs;
  _Atomic uint64_t next;
} counter;

static void counter_unref(void *p) {
  counter *c = p;
  if (atomic_fetch_sub(&c->refs, 1) == 1) free(c);
}

static void *counter_ref(void *p) {
  atomic_fetch_add(&((counter *)p)->refs, 1);
  return p;
}

static void ids_bind(duckdb_bind_info info) {
  counter *c = br_calloc(1, sizeof *c);
  atomic_init(&c->refs, 1);
  duckdb_scalar_function_set_bind_data(info, c, counter_unref);
  duckdb_scalar_function_set_bind_data_copy(info, counter_ref);
}

static void ids(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  counter *c = duckdb_scalar_function_get_bind_data(info);
  int64_t *values = duckdb_vector_get_data(out), *tasks = NULL;
  idx_t n = duckdb_data_chunk_get_size(in);
  if (duckdb_data_chunk_get_column_count(in) > 0) tasks = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 0));
  uint64_t first = atomic_fetch_add(&c->next, n);
  if (first + n > ROWS_A_TASK) {
    duckdb_scalar_function_set_error(info,
                                     "monotonically_increasing_id(): a task has more than 2^36 rows; use more splits");
    return;
  }
  for (idx_t i = 0; i < n; i++) {
    int64_t task = tasks ? tasks[i] : 0;
    if (task < 0 || task >= TASKS_MOST) {
      duckdb_scalar_function_set_error(info,
                                       "monotonically_increasing_id(): the number of a task is from 0 to 2^27 - 1");
      return;
    }
    values[i] = (int64_t)((uint64_t)task << TASK_SHIFT | (first + i));
  }
}

/* ---- registration */

static duckdb_scalar_function function_new(const char *name, duckdb_type returns, duckdb_scalar_function_t run) {
  duckdb_scalar_function f = duckdb_create_scalar_function();
  duckdb_logical_type type = duckdb_create_logical_type(returns);
  duckdb_scalar_function_set_name(f, name);
  duckdb_scalar_function_set_return_type(f, type);
  duckdb_scalar_function_set_volatile(f);
  duckdb_scalar_function_set_function(f, run);
  duckdb_destroy_logical_type(&type);
  return f;
}

static bool register_marker(br_engine *e, const char *name) {
  duckdb_scalar_function f = function_new(name, DUCKDB_TYPE_BOOLEAN, marker);
  duckdb_logical_type any = duckdb_create_logical_type(DUCKDB_TYPE_ANY);
  duckdb_scalar_function_set_varargs(f, any);
  duckdb_scalar_function_set_special_handling(f); /* keys may be NULL */
  bool good = duckdb_register_scalar_function(e->helper, f) == DuckDBSuccess;
  duckdb_destroy_logical_type(&any);
  duckdb_destroy_scalar_function(&f);
  return good;
}

static bool register_ids(br_engine *e) {
  static const char name[] = "monotonically_increasing_id";
  duckdb_scalar_function_set set = duckdb_create_scalar_function_set(name);
  bool good = true;
  for (int arguments = 0; arguments < 2; arguments++) {
    duckdb_scalar_function f = function_new(name, DUCKDB_TYPE_BIGINT, ids);
    duckdb_logical_type bigint = duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
    if (arguments > 0) duckdb_scalar_function_add_parameter(f, bigint);
    duckdb_scalar_function_set_bind(f, ids_bind);
    good = duckdb_add_scalar_function_to_set(set, f) == DuckDBSuccess && good;
    duckdb_destroy_logical_type(&bigint);
    duckdb_destroy_scalar_function(&f);
  }
  good = good && duckdb_register_scalar_function_set(e->helper, set) == DuckDBSuccess;
  duckdb_destroy_scalar_function_set(&set);
  return good;
}

br_status br_nodes_register(br_engine *e, br_error *err) {
  static const char *const markers[] = {"__brant_repartition", "__brant_into_partitions", "__brant_into_batches",
                                        "__brant_broadcast"};
  bool good = register_ids(e);
  for (size_t i = 0; i < sizeof markers / sizeof *markers; i++) good = register_marker(e, markers[i]) && good;
  if (!good) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "DuckDB took brant's own functions not");
  return BR_OK;
}
