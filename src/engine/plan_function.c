/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that stand in a text for what runs elsewhere: DuckDB binds and plans their calls, and never runs one.
 * Order: registered once a name, for as long as the instance lives (DuckDB can't drop one). Threads: DuckDB's; the counter is atomic.
 */
#include "engine/internal.h"
#include <string.h>

typedef struct stand_in {
  char *message;
  _Atomic uint64_t *bound;
} stand_in;

static void stand_in_free(void *p) {
  stand_in *s = p;
  free(s->message);
  free(s);
}

static void bind(duckdb_bind_info info) {
  const stand_in *s = duckdb_scalar_function_bind_get_extra_info(info);
  atomic_fetch_add(s->bound, 1);
}

static void body(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  (void)in;
  (void)out;
  const stand_in *s = duckdb_scalar_function_get_extra_info(info);
  duckdb_scalar_function_set_error(info, s->message);
}

/* The type that the text stands for. */
static br_status type_of(br_session *s, const char *type, duckdb_logical_type *out, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  char *sql = br_asprintf("SELECT CAST(NULL AS %s)", type);
  br_status status;
  br_session_begin(s);
  BR_TRY_GOTO(br_stmt_prepare(s, sql, &ps, err));
  if (duckdb_prepared_statement_column_count(ps) == 1)
    *out = duckdb_prepared_statement_column_logical_type(ps, 0);
  else
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "this is not one SQL type: %s", type);
done:
  br_session_end(s);
  if (ps) duckdb_destroy_prepare(&ps);
  free(sql);
  return status;
}

br_status br_session_plan_function(br_session *s, const char *name, const char *type, const char *message,
                                   _Atomic uint64_t *bound, br_error *err) {
  duckdb_logical_type result = NULL, any = NULL;
  BR_TRY(type_of(s, type, &result, err));
  br_status status = BR_OK;
  duckdb_scalar_function f = duckdb_create_scalar_function();
  any = duckdb_create_logical_type(DUCKDB_TYPE_ANY);
  stand_in *info = br_calloc(1, sizeof *info);
  *info = (stand_in){.message = br_strdup(message), .bound = bound};
  duckdb_scalar_function_set_name(f, name);
  duckdb_scalar_function_set_varargs(f, any);
  duckdb_scalar_function_set_return_type(f, result);
  duckdb_scalar_function_set_volatile(f);
  duckdb_scalar_function_set_special_handling(f); /* it sees NULLs */
  duckdb_scalar_function_set_extra_info(f, info, stand_in_free);
  duckdb_scalar_function_set_bind(f, bind);
  duckdb_scalar_function_set_function(f, body);
  if (duckdb_register_scalar_function(s->con, f) != DuckDBSuccess)
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "DuckDB did not take a function that returns %s", type);
  duckdb_destroy_scalar_function(&f);
  duckdb_destroy_logical_type(&any);
  duckdb_destroy_logical_type(&result);
  return status;
}
