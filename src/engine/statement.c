/* SPDX-License-Identifier: Apache-2.0
 *
 * Preparing and executing one statement, with DuckDB's error types and without a gap that loses a cancel.
 * Order: prepare, execute. Threads: the session's user.
 */
#include "engine/internal.h"
#include <string.h>

static br_status cancelled(br_error *err) { return br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "cancelled"); }

/* The C API gives no error type for a failed prepare; EXPLAIN binds the same text, runs nothing, and does. */
static duckdb_error_type prepare_error_type(br_session *s, const char *sql) {
  char *explain = br_asprintf("EXPLAIN %s", sql);
  duckdb_result r;
  duckdb_error_type type = DUCKDB_ERROR_BINDER;
  if (duckdb_query(s->con, explain, &r) != DuckDBSuccess) type = duckdb_result_error_type(&r);
  duckdb_destroy_result(&r);
  free(explain);
  return type;
}

static br_status failed_prepare(br_session *s, const char *sql, duckdb_prepared_statement *ps, br_error *err) {
  br_status status;
  if (br_session_cancelled(s))
    status = cancelled(err); /* planning can be interrupted too */
  else
    status = br_duckdb_fail(err, prepare_error_type(s, sql), duckdb_prepare_error(*ps));
  duckdb_destroy_prepare(ps);
  return status;
}

br_status br_stmt_prepare(br_session *s, const char *sql, duckdb_prepared_statement *out, br_error *err) {
  if (br_session_cancelled(s)) return cancelled(err);
  if (duckdb_prepare(s->con, sql, out) == DuckDBSuccess) return BR_OK;
  return failed_prepare(s, sql, out, err);
}

static br_status failed_execute(br_session *s, duckdb_result *r, br_error *err) {
  br_status status;
  if (br_session_cancelled(s))
    status = cancelled(err);
  else if (duckdb_result_error_type(r) == DUCKDB_ERROR_INTERRUPT)
    status = br_interrupted_fail(err);
  else
    status = br_duckdb_fail(err, duckdb_result_error_type(r), duckdb_result_error(r));
  duckdb_destroy_result(r);
  return status;
}

br_status br_stmt_start(br_session *s, duckdb_prepared_statement ps, bool streaming, duckdb_pending_result *out,
                        br_error *err) {
  duckdb_state state = streaming ? duckdb_pending_prepared_streaming(ps, out) : duckdb_pending_prepared(ps, out);
  if (state == DuckDBSuccess) return BR_OK;
  /* The C API has no error type here but in the message. To execute it once more would tell, and might write files. */
  const char *message = duckdb_pending_error(*out);
  duckdb_error_type type = br_duckdb_type_of(message);
  br_status status = br_session_cancelled(s)          ? cancelled(err)
                     : type == DUCKDB_ERROR_INTERRUPT ? br_interrupted_fail(err)
                                                      : br_duckdb_fail(err, type, message);
  duckdb_destroy_pending(out);
  return status;
}

br_status br_stmt_finish(br_session *s, duckdb_pending_result *pending, duckdb_result *out, br_error *err) {
  memset(out, 0, sizeof *out);
  /* The start of a statement forgets an earlier interrupt; from here on DuckDB remembers it, so ask once more. */
  if (br_session_cancelled(s)) duckdb_interrupt(s->con);
  duckdb_state state = duckdb_execute_pending(*pending, out);
  duckdb_destroy_pending(pending);
  return state == DuckDBSuccess ? BR_OK : failed_execute(s, out, err);
}

br_status br_stmt_execute(br_session *s, duckdb_prepared_statement ps, bool streaming, duckdb_result *out,
                          br_error *err) {
  duckdb_pending_result pending = NULL;
  memset(out, 0, sizeof *out);
  BR_TRY(br_stmt_start(s, ps, streaming, &pending, err));
  return br_stmt_finish(s, &pending, out, err);
}

br_status br_stmt_query(br_session *s, const char *sql, duckdb_result *out, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  BR_TRY(br_stmt_prepare(s, sql, &ps, err));
  br_status status = br_stmt_execute(s, ps, false, out, err);
  duckdb_destroy_prepare(&ps);
  return status;
}

br_status br_stmt_query_once(br_session *s, const char *sql, duckdb_result *out, br_error *err) {
  memset(out, 0, sizeof *out);
  if (br_session_cancelled(s)) return cancelled(err);
  if (duckdb_query(s->con, sql, out) != DuckDBSuccess) return failed_execute(s, out, err);
  if (!br_session_cancelled(s)) return BR_OK;
  duckdb_destroy_result(out);
  return cancelled(err);
}

static br_status extract(br_session *s, const char *sql, duckdb_extracted_statements *out, size_t *n, br_error *err) {
  *n = duckdb_extract_statements(s->con, sql, out);
  if (*n) return BR_OK;
  const char *message = duckdb_extract_statements_error(*out);
  br_status status = message && *message ? br_duckdb_fail(err, DUCKDB_ERROR_PARSER, message)
                                         : br_fail(err, BR_INVALID, BR_BLAME_USER, "there is no statement in the text");
  duckdb_destroy_extracted(out);
  return status;
}

br_status br_stmt_count(br_session *s, const char *sql, size_t *n, br_error *err) {
  duckdb_extracted_statements all = NULL;
  BR_TRY(extract(s, sql, &all, n, err));
  duckdb_destroy_extracted(&all);
  return BR_OK;
}

br_status br_stmt_prepare_last(br_session *s, const char *sql, duckdb_prepared_statement *out, br_error *err) {
  duckdb_extracted_statements all = NULL;
  size_t n;
  if (br_session_cancelled(s)) return cancelled(err);
  BR_TRY(extract(s, sql, &all, &n, err));
  br_status status = BR_OK;
  for (size_t i = 0; i < n && status == BR_OK; i++) {
    *out = NULL;
    if (duckdb_prepare_extracted_statement(s->con, all, i, out) != DuckDBSuccess) {
      status = failed_prepare(s, sql, out, err);
      break;
    }
    if (i + 1 == n) break;
    duckdb_result r;
    status = br_stmt_execute(s, *out, false, &r, err);
    if (status == BR_OK) duckdb_destroy_result(&r);
    duckdb_destroy_prepare(out);
  }
  duckdb_destroy_extracted(&all);
  return status;
}
