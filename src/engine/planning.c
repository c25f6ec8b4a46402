/* SPDX-License-Identifier: Apache-2.0
 *
 * A text's optimised plan, as DuckDB's JSON, for plan/decompile, with the names and types of its result.
 *
 * DuckDB optimises a text anew for each thing it is asked: so names and types come from DESCRIBE, which binds alone, where it says
 * them exactly, and the estimates are asked for only if somebody wants them. A text that is no plain SELECT, or that the plan can't be
 * had of, is prepared: that finds what the user got wrong, with its place.
 * What DuckDB then cannot serialise is no error but `refused`: such a text runs as one local task.
 * Order: br_session_plan, br_session_estimates. Threads: the session's user. Bounds: the JSON is in memory, twice for a moment.
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

/* ---- names and types */

static char *column_text(duckdb_data_chunk chunk, idx_t column, idx_t row) {
  duckdb_string_t *text = (duckdb_string_t *)duckdb_vector_get_data(duckdb_data_chunk_get_vector(chunk, column)) + row;
  return br_strndup(duckdb_string_t_data(text), duckdb_string_t_length(*text));
}

/* Types that DESCRIBE writes as br_type_sql does. */
static bool exact(const char *type) {
  static const char *const same[] = {"BOOLEAN",   "TINYINT",  "SMALLINT",  "INTEGER",  "BIGINT", "HUGEINT", "UTINYINT",
                                     "USMALLINT", "UINTEGER", "UBIGINT",   "UHUGEINT", "FLOAT",  "DOUBLE",  "VARCHAR",
                                     "DATE",      "TIME",     "TIMESTAMP", "INTERVAL", "BLOB",   "UUID"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++)
    if (strcmp(type, same[i]) == 0) return true;
  return strncmp(type, "DECIMAL(", 8) == 0;
}

static void forget_columns(br_planned *p) {
  for (size_t i = 0; p->names && i < p->columns; i++) free(p->names[i]);
  for (size_t i = 0; p->types && i < p->columns; i++) free(p->types[i]);
  free(p->names);
  free(p->types);
  p->names = p->types = NULL;
  p->columns = 0;
}

/* *known false: ask otherwise. */
static br_status describe(br_session *s, const char *sql, br_planned *out, bool *known, br_error *err) {
  duckdb_result r;
  char *ask = br_asprintf("DESCRIBE %s", sql);
  br_status status = br_stmt_query_once(s, ask, &r, err);
  free(ask);
  *known = false;
  if (status == BR_CANCELLED) return status;
  if (status != BR_OK) {
    br_error_clear(err); /* it is asked otherwise, and that answer counts */
    return BR_OK;
  }
  idx_t n = duckdb_row_count(&r);
  out->names = br_calloc(n + 1, sizeof *out->names);
  out->types = br_calloc(n + 1, sizeof *out->types);
  *known = n > 0;
  for (duckdb_data_chunk chunk; (chunk = duckdb_fetch_chunk(r)) != NULL; duckdb_destroy_data_chunk(&chunk))
    for (idx_t i = 0; i < duckdb_data_chunk_get_size(chunk) && out->columns < n; i++, out->columns++) {
      out->names[out->columns] = column_text(chunk, 0, i);
      out->types[out->columns] = column_text(chunk, 1, i);
      *known = *known && exact(out->types[out->columns]);
    }
  duckdb_destroy_result(&r);
  if (!*known) forget_columns(out);
  return BR_OK;
}

/* Parameters: their values are asked for. */
static bool has_parameters(const char *sql) {
  for (const char *p = sql; *p; p = br_sql_skip(p))
    if (*p == '$' || *p == '?') return true;
  return false;
}

/* What is wrong with it; if nothing is, its columns and whether it is a query. */
static br_status prepare(br_session *s, const char *sql, br_planned *out, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  br_status status;
  BR_TRY_GOTO(br_stmt_prepare(s, sql, &ps, err));
  columns(ps, out);
  const char *why = not_a_query(duckdb_prepared_statement_type(ps));
  if (duckdb_nparams(ps))
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "the statement has parameters without values: $1 … $%llu",
                     (unsigned long long)duckdb_nparams(ps));
  else if (why && !out->refused)
    status = refuse(out, why);
done:
  if (ps) duckdb_destroy_prepare(&ps);
  return status;
}

static br_status plan_inside(br_session *s, const char *sql, br_planned *out, br_error *err) {
  bool known = false;
  if (!br_sql_is_select(sql) || has_parameters(sql)) {
    BR_TRY(prepare(s, sql, out, err));
    return out->refused ? BR_OK : serialise(s, sql, out, err);
  }
  BR_TRY(serialise(s, sql, out, err));
  if (!out->refused) BR_TRY(describe(s, sql, out, &known, err));
  return known ? BR_OK : prepare(s, sql, out, err);
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
  if (status == BR_OK && out->json) out->text = br_strdup(sql);
done:
  br_session_end(s);
  if (status != BR_OK) br_planned_free(out);
  return status;
}

br_status br_session_estimates(br_session *s, const br_planned *p, char **explain_json, br_error *err) {
  char *ask = br_asprintf("EXPLAIN (FORMAT json) %s", p->text);
  br_status status;
  *explain_json = NULL;
  br_session_begin(s);
  BR_TRY_GOTO(br_gate_enter(s, BR_MODE_PLANNING, err));
  status = one_cell(s, ask, 1, explain_json, err);
  br_gate_leave(s);
done:
  br_session_end(s);
  free(ask);
  return status;
}

void br_planned_free(br_planned *p) {
  forget_columns(p);
  free(p->json);
  free(p->text);
  free(p->refused);
  memset(p, 0, sizeof *p);
}
