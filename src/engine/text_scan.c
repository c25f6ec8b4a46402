/* SPDX-License-Identifier: Apache-2.0
 *
 * The table function text_scan('read_csv(…)'): the rows of another table function's text. DuckDB can't write down the plan of its
 * CSV and JSON readers, but it can write down this one, so a query that reads such files gets a plan (source/text_scans.c puts the
 * calls in; tasks get the text itself, or parts of it). Whoever runs it in one process reads the text on a connection of its own.
 *
 * Order: bind, init, rows. Threads: one a scan; the reader inside uses DuckDB's. Bounds: one chunk.
 */
#include "engine/internal.h"
#include <string.h>

typedef struct bound {
  br_engine *engine;
  char *text;
  char **names;
  size_t n;
} bound;

typedef struct scan {
  duckdb_connection con;
  duckdb_result result;
  bool open;
  size_t n;
} scan;

static void bound_free(void *p) {
  bound *b = p;
  for (size_t i = 0; i < b->n; i++) free(b->names[i]);
  free(b->names);
  free(b->text);
  free(b);
}

static void scan_free(void *p) {
  scan *s = p;
  if (s->open) duckdb_destroy_result(&s->result);
  if (s->con) duckdb_disconnect(&s->con);
  free(s);
}

/* Past the gate: the statement that is being bound holds that already. */
static bool add_columns(duckdb_bind_info info, bound *b, duckdb_connection con) {
  duckdb_prepared_statement ps = NULL;
  char *sql = br_asprintf("SELECT * FROM %s", b->text);
  bool good = duckdb_prepare(con, sql, &ps) == DuckDBSuccess;
  if (!good) duckdb_bind_set_error(info, duckdb_prepare_error(ps));
  b->n = good ? duckdb_prepared_statement_column_count(ps) : 0;
  b->names = br_calloc(b->n + 1, sizeof *b->names);
  for (size_t i = 0; i < b->n; i++) {
    const char *name = duckdb_prepared_statement_column_name(ps, i);
    duckdb_logical_type type = duckdb_prepared_statement_column_logical_type(ps, i);
    b->names[i] = br_strdup(name);
    duckdb_bind_add_result_column(info, name, type);
    duckdb_destroy_logical_type(&type);
    duckdb_free((void *)name);
  }
  duckdb_destroy_prepare(&ps);
  free(sql);
  return good;
}

static void bind(duckdb_bind_info info) {
  bound *b = br_calloc(1, sizeof *b);
  duckdb_connection con = NULL;
  duckdb_value value = duckdb_bind_get_parameter(info, 0);
  duckdb_value rows = duckdb_bind_get_named_parameter(info, "rows");
  char *text = duckdb_get_varchar(value);
  b->engine = duckdb_bind_get_extra_info(info);
  b->text = br_strdup(text ? text : "");
  duckdb_bind_set_bind_data(info, b, bound_free);
  if (duckdb_connect(b->engine->db, &con) != DuckDBSuccess)
    duckdb_bind_set_error(info, "cannot connect to DuckDB");
  else if (add_columns(info, b, con) && rows && !duckdb_is_null_value(rows))
    duckdb_bind_set_cardinality(info, duckdb_get_uint64(rows), false);
  if (con) duckdb_disconnect(&con);
  if (rows) duckdb_destroy_value(&rows);
  duckdb_destroy_value(&value);
  duckdb_free(text);
}

static void init(duckdb_init_info info) {
  const bound *b = duckdb_init_get_bind_data(info);
  scan *s = br_calloc(1, sizeof *s);
  br_buf sql = {0};
  duckdb_prepared_statement ps = NULL;
  duckdb_init_set_init_data(info, s, scan_free);
  duckdb_init_set_max_threads(info, 1);
  s->n = duckdb_init_get_column_count(info);
  br_buf_str(&sql, "SELECT ");
  for (size_t i = 0; i < s->n; i++) {
    idx_t id = duckdb_init_get_column_index(info, i);
    if (i) br_buf_str(&sql, ", ");
    if (id < b->n)
      br_buf_sql_ident(&sql, b->names[id]);
    else
      br_buf_str(&sql, "NULL::BOOLEAN"); /* virtual: count(*) */
  }
  br_buf_printf(&sql, "%s FROM %s", s->n ? "" : "NULL::BOOLEAN", b->text);
  if (duckdb_connect(b->engine->db, &s->con) != DuckDBSuccess)
    duckdb_init_set_error(info, "cannot connect to DuckDB");
  else if (duckdb_prepare(s->con, br_buf_cstr(&sql), &ps) != DuckDBSuccess)
    duckdb_init_set_error(info, duckdb_prepare_error(ps));
  else {
    s->open = true;
    if (duckdb_execute_prepared_streaming(ps, &s->result) != DuckDBSuccess)
      duckdb_init_set_error(info, duckdb_result_error(&s->result));
  }
  duckdb_destroy_prepare(&ps);
  br_buf_free(&sql);
}

static void rows(duckdb_function_info info, duckdb_data_chunk out) {
  scan *s = duckdb_function_get_init_data(info);
  duckdb_data_chunk chunk = duckdb_fetch_chunk(s->result);
  const char *why = chunk ? NULL : duckdb_result_error(&s->result);
  if (why && *why) duckdb_function_set_error(info, why);
  idx_t n = chunk ? duckdb_data_chunk_get_size(chunk) : 0;
  for (idx_t i = 0; n > 0 && i < s->n; i++)
    duckdb_vector_reference_vector(duckdb_data_chunk_get_vector(out, i), duckdb_data_chunk_get_vector(chunk, i));
  duckdb_data_chunk_set_size(out, n);
  if (chunk) duckdb_destroy_data_chunk(&chunk);
}

br_status br_text_scan_register(br_engine *e, br_error *err) {
  duckdb_table_function f = duckdb_create_table_function();
  duckdb_logical_type text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR),
                      number = duckdb_create_logical_type(DUCKDB_TYPE_UBIGINT);
  br_status status = BR_OK;
  duckdb_table_function_set_name(f, "text_scan");
  duckdb_table_function_add_parameter(f, text);
  duckdb_table_function_add_named_parameter(f, "rows", number);
  duckdb_table_function_set_extra_info(f, e, NULL);
  duckdb_table_function_set_bind(f, bind);
  duckdb_table_function_set_init(f, init);
  duckdb_table_function_set_function(f, rows);
  duckdb_table_function_supports_projection_pushdown(f, true);
  if (duckdb_register_table_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the table function text_scan(text)");
  duckdb_destroy_logical_type(&text);
  duckdb_destroy_logical_type(&number);
  duckdb_destroy_table_function(&f);
  return status;
}
