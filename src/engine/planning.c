/* SPDX-License-Identifier: Apache-2.0
 *
 * A text's optimised plan, as DuckDB's JSON, for plan/decompile.
 *
 * The text is prepared first: that finds what the user got wrong, with its place, and gives the names and types of the result.
 * What DuckDB then cannot serialise is no error but `refused`: such a text runs as one local task.
 * Order: one call. Threads: the session's user. Bounds: the JSON is in memory, twice for a moment.
 */
#include "engine/internal.h"
#include <string.h>

#define ERROR_PREFIX "{\"error\":true"

static br_status refuse(br_planned *out, const char *why) {
  out->refused = br_strdup(why);
  return BR_OK;
}

static void columns(duckdb_prepared_statement ps, br_planned *out) {
  out->columns = duckdb_prepared_statement_column_count(ps);
  out->names = br_calloc(out->columns + 1, sizeof *out->names);
  out->types = br_calloc(out->columns + 1, sizeof *out->types);
  for (size_t i = 0; i < out->columns; i++) {
    const char *name = duckdb_prepared_statement_column_name(ps, i);
    duckdb_logical_type type = duckdb_prepared_statement_column_logical_type(ps, i);
    br_buf text = {0};
    out->names[i] = br_strdup(name ? name : "");
    br_type_sql(type, false, &text);
    out->types[i] = br_buf_take(&text);
    duckdb_free((void *)name);
    duckdb_destroy_logical_type(&type);
  }
}

static const char *not_a_query(duckdb_statement_type t) {
  switch (t) {
    case DUCKDB_STATEMENT_TYPE_SELECT:
    case DUCKDB_STATEMENT_TYPE_INSERT:
    case DUCKDB_STATEMENT_TYPE_UPDATE:
    case DUCKDB_STATEMENT_TYPE_DELETE:
    case DUCKDB_STATEMENT_TYPE_CREATE:
    case DUCKDB_STATEMENT_TYPE_COPY:
    case DUCKDB_STATEMENT_TYPE_MERGE_INTO: return NULL;
    case DUCKDB_STATEMENT_TYPE_EXPLAIN: return "EXPLAIN is not a query";
    case DUCKDB_STATEMENT_TYPE_CALL: return "CALL runs locally";
    case DUCKDB_STATEMENT_TYPE_EXECUTE: return "EXECUTE of a prepared statement runs locally";
    default: return "the statement is not a query";
  }
}

/* The text in a row's column of a query's first row; *out NULL for NULL. */
static br_status one_cell(br_session *s, const char *sql, size_t column, char **out, br_error *err) {
  duckdb_result r;
  *out = NULL;
  BR_TRY(br_stmt_query_once(s, sql, &r, err));
  duckdb_data_chunk chunk = duckdb_fetch_chunk(r);
  if (chunk && duckdb_data_chunk_get_size(chunk) && column < duckdb_data_chunk_get_column_count(chunk)) {
    duckdb_vector v = duckdb_data_chunk_get_vector(chunk, column);
    uint64_t *validity = duckdb_vector_get_validity(v);
    if (!validity || duckdb_validity_row_is_valid(validity, 0)) {
      duckdb_string_t *text = duckdb_vector_get_data(v);
      *out = br_strndup(duckdb_string_t_data(text), duckdb_string_t_length(*text));
    }
  }
  if (chunk) duckdb_destroy_data_chunk(&chunk);
  duckdb_destroy_result(&r);
  return BR_OK;
}

/* The message inside DuckDB's error object. */
static br_status refusal(br_session *s, const char *json, br_planned *out, br_error *err) {
  br_buf sql = {0};
  char *text = NULL;
  br_buf_str(&sql, "SELECT json_extract_string(");
  br_buf_sql_literal(&sql, json, strlen(json));
  br_buf_str(&sql, ", '$.error_message')");
  br_status status = one_cell(s, br_buf_cstr(&sql), 0, &text, err);
  if (status == BR_OK) status = refuse(out, text && *text ? text : "DuckDB cannot serialise this plan");
  free(text);
  br_buf_free(&sql);
  return status;
}

static br_status serialise(br_session *s, const char *sql, br_planned *out, br_error *err) {
  br_buf ask = {0};
  br_buf_str(&ask, "SELECT CAST(json_serialize_plan(");
  br_buf_sql_literal(&ask, sql, strlen(sql));
  br_buf_str(&ask, ", optimize := true) AS VARCHAR)");
  br_status status = one_cell(s, br_buf_cstr(&ask), 0, &out->json, err);
  br_buf_free(&ask);
  if (status !=
      BR_OK) { /* the statement itself is fine: it was prepared; unless we are told to stop, or out of memory */
    if (err->code == BR_CANCELLED || err->blame != BR_BLAME_USER) return status;
    return refuse(out, err->message);
  }
  if (!out->json || !*out->json) {
    free(out->json);
    out->json = NULL;
    return refuse(out, "the plan holds a constant that is not valid UTF-8 (BIT, BIGNUM)");
  }
  if (strncmp(out->json, ERROR_PREFIX, strlen(ERROR_PREFIX)) == 0) {
    status = refusal(s, out->json, out, err);
    free(out->json);
    out->json = NULL;
  }
  return status;
}

static br_status plan_inside(br_session *s, const char *sql, br_planned *out, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  br_status status;
  BR_TRY_GOTO(br_stmt_prepare(s, sql, &ps, err));
  columns(ps, out);
  if (duckdb_nparams(ps)) {
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "the statement has parameters without values: $1 … $%llu",
                     (unsigned long long)duckdb_nparams(ps));
    goto done;
  }
  const char *why = not_a_query(duckdb_prepared_statement_type(ps));
  if (why) {
    status = refuse(out, why);
    goto done;
  }
  BR_TRY_GOTO(serialise(s, sql, out, err));
  if (out->refused) goto done;
  char *explain = br_asprintf("EXPLAIN (FORMAT json) %s", sql);
  status = one_cell(s, explain, 1, &out->explain_json, err);
  free(explain);
done:
  if (ps) duckdb_destroy_prepare(&ps);
  return status;
}

br_status br_session_plan(br_session *s, const char *sql, br_planned *out, br_error *err) {
  size_t n;
  br_status status;
  memset(out, 0, sizeof *out);
  br_session_begin(s);
  BR_TRY_GOTO(br_stmt_count(s, sql, &n, err));
  if (n > 1) {
    status = refuse(out, "the text stands for several statements (PIVOT without IN needs its values first)");
    goto done;
  }
  BR_TRY_GOTO(br_gate_enter(s, BR_MODE_PLANNING, err));
  status = plan_inside(s, sql, out, err);
  br_gate_leave(s);
done:
  br_session_end(s);
  if (status != BR_OK) br_planned_free(out);
  return status;
}

void br_planned_free(br_planned *p) {
  free(p->json);
  free(p->explain_json);
  free(p->refused);
  for (size_t i = 0; p->names && i < p->columns; i++) free(p->names[i]);
  for (size_t i = 0; p->types && i < p->columns; i++) free(p->types[i]);
  free(p->names);
  free(p->types);
  memset(p, 0, sizeof *p);
}
