/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection beside the session's own, for what runs in this process while other statements come: rows that are still read,
 * files that are still written. The session's own connection is used under the session's lock alone.
 *
 * Threads: the caller's, under the session's lock; the connection is then its user's. Bounds: one a statement.
 */
#include <string.h>

#include "coordinator/session.h"

/* More would cost each statement more than rows that are read while others run are worth. */
#define VARIABLES_MOST_BYTES (64u << 10)

/* *done false: DuckDB refuses it there. */
static br_status run_there(brant_session *s, br_session *on, const char *sql, bool *done, br_error *err) {
  BR_TRY(br_session_check_interrupt(s, err));
  br_status status = br_session_execute(on, sql, err);
  *done = status == BR_OK;
  if (status == BR_CANCELLED) return status;
  if (status != BR_OK) br_error_clear(err);
  return BR_OK;
}

static br_status same_settings(brant_session *s, br_session *on, br_error *err) {
  br_status status = BR_OK;
  bool unused; /* a setting of the instance that can't be set twice is set already */
  br_buf b = {0};
  for (size_t i = 0; i < s->setting_names.count && status == BR_OK; i++) {
    br_buf_clear(&b);
    br_buf_str(&b, "SET ");
    br_buf_sql_ident(&b, s->setting_names.items[i]);
    br_buf_str(&b, " = ");
    br_buf_sql_literal(&b, s->setting_values.items[i], strlen(s->setting_values.items[i]));
    status = run_there(s, on, br_buf_cstr(&b), &unused, err);
  }
  br_buf_free(&b);
  if (s->use != NULL && status == BR_OK) status = run_there(s, on, s->use, &unused, err);
  return status;
}

static br_status same_variables(brant_session *s, br_session *on, const char *sql, bool *same, br_error *err) {
  br_texts texts;
  br_status status = BR_OK;
  *same = br_variables_needed(s, sql, VARIABLES_MOST_BYTES, &texts);
  for (size_t i = 0; i < texts.count && *same && status == BR_OK; i++)
    status = run_there(s, on, texts.items[i], same, err);
  br_texts_free(&texts);
  return status;
}

/* Has a temporary table or view the name of another one? Then only the caller's connection knows which is meant. */
static br_status temp_shadows(brant_session *s, bool *out, br_error *err) {
  br_table t = {0};
  BR_TRY(br_session_table(s->db,
                          "WITH n AS (SELECT lower(table_name) AS name, temporary FROM duckdb_tables() UNION ALL "
                          "SELECT lower(view_name), temporary FROM duckdb_views() WHERE NOT internal) "
                          "SELECT 1 FROM n GROUP BY name HAVING bool_or(temporary) AND NOT bool_and(temporary) LIMIT 1",
                          &t, err));
  *out = t.rows > 0;
  br_table_free(&t);
  return BR_OK;
}

br_status br_session_aside(brant_session *s, const br_prepared *plan, br_session **out, br_error *err) {
  br_session *on = NULL;
  br_statement kind;
  bool same = true;
  *out = NULL;
  if (s->in_transaction) return BR_OK;
  bool shadows = s->has_temp && plan->about_session;
  if (s->has_temp && !shadows) BR_TRY(temp_shadows(s, &shadows, err));
  if (shadows) return BR_OK;
  BR_TRY(br_session_open(s->engine, &on, err));
  br_status status = same_settings(s, on, err);
  if (status == BR_OK) status = same_variables(s, on, plan->sql, &same, err);
  if (status == BR_OK && same) {
    status = br_session_classify(on, plan->sql, &kind, err);
    if (status == BR_OK) {
      *out = on;
      return BR_OK;
    }
  }
  br_session_close(on);
  if (status != BR_INVALID) return status;
  br_error_clear(err);
  return BR_OK;
}
