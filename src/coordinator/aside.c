/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection beside the session's own, for what runs in this process while other statements come: rows that are still read,
 * files that are still written. The session's own connection is used under the session's lock alone.
 *
 * Threads: the caller's, under the session's lock; the connection is then its user's. Bounds: one a statement.
 */
#include <string.h>

#include "coordinator/session.h"

static void run_there(br_session *on, const char *sql) {
  br_error ignored; /* a setting of the instance that can't be set twice is set already */
  br_status unused = br_session_execute(on, sql, &ignored);
  (void)unused;
}

static void same_settings(brant_session *s, br_session *on) {
  br_buf b = {0};
  for (size_t i = 0; i < s->setting_names.count; i++) {
    br_buf_clear(&b);
    br_buf_str(&b, "SET ");
    br_buf_sql_ident(&b, s->setting_names.items[i]);
    br_buf_str(&b, " = ");
    br_buf_sql_literal(&b, s->setting_values.items[i], strlen(s->setting_values.items[i]));
    run_there(on, br_buf_cstr(&b));
  }
  br_buf_free(&b);
  if (s->use != NULL) run_there(on, s->use);
  for (size_t i = 0; i < s->variable_texts.count; i++) run_there(on, s->variable_texts.items[i]);
}

/* A variable whose value no text tells. */
static bool has_untold(const brant_session *s) {
  for (size_t i = 0; i < s->variable_texts.count; i++)
    if (s->variable_texts.items[i][0] == 0) return true;
  return false;
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
  *out = NULL;
  if (s->in_transaction) return BR_OK;
  bool shadows = s->has_temp && plan->about_session;
  if (s->has_temp && !shadows) BR_TRY(temp_shadows(s, &shadows, err));
  if (shadows || has_untold(s)) return BR_OK;
  BR_TRY(br_session_open(s->engine, &on, err));
  same_settings(s, on);
  br_status status = br_session_classify(on, plan->sql, &kind, err);
  if (status == BR_OK) {
    *out = on;
    return BR_OK;
  }
  br_session_close(on);
  if (status != BR_INVALID) return status;
  br_error_clear(err);
  return BR_OK;
}
