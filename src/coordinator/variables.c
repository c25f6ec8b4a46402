/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables of the session (SET VARIABLE): what executors, and connections beside the session's own, get to know of them. Not the text that
 * the caller wrote, which may read what this process alone has, or give another value each time (random()), but the value as a constant.
 *
 * Order: any. The caller's thread. Bounds: as many variables as the caller sets, each with its value as a text.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

char *br_typed_text(const char *type, const char *literal) {
  bool is_text =
      literal != NULL && strcasecmp(type, "varchar") == 0; /* takes the type its place wants, as constants do */
  return is_text ? br_strdup(literal) : br_asprintf("CAST(%s AS %s)", literal != NULL ? literal : "NULL", type);
}

/* FROM of a question about the variable: its value is v. */
static void from_variable(br_buf *b, const char *name) {
  br_buf_str(b, " FROM (SELECT getvariable(");
  br_buf_sql_literal(b, name, strlen(name));
  br_buf_str(b, ") AS v)");
}

/* Is the text of a value of this type, read again, the value? Of some nested ones it isn't; of a VARIANT it is a text. */
static br_status told_by_text(brant_session *s, const char *name, const char *type, bool *yes, br_error *err) {
  br_table answer;
  br_buf ask = {0};
  *yes = strcmp(type, "VARIANT") != 0;
  if (strpbrk(type, "[(\"") == NULL || strncmp(type, "DECIMAL(", 8) == 0) return BR_OK;
  br_buf_printf(&ask, "SELECT TRY_CAST(v::VARCHAR AS %s) IS NOT DISTINCT FROM v", type);
  from_variable(&ask, name);
  br_status status = br_session_table(s->db, br_buf_cstr(&ask), &answer, err);
  br_buf_free(&ask);
  BR_TRY(status);
  *yes = strcmp(br_table_cell(&answer, 0, 0), "true") == 0;
  br_table_free(&answer);
  return BR_OK;
}

br_status br_variable_constant(brant_session *s, const char *name, char **out, br_error *err) {
  br_table answer;
  br_buf ask = {0};
  bool told = false;
  *out = NULL;
  /* a NUL can't stand in SQL text, nor in a cell of the answer */
  br_buf_str(
      &ask,
      "SELECT typeof(v), '''' || replace(replace(v::VARCHAR, '''', ''''''), chr(0), ''' || chr(0) || ''') || ''''");
  from_variable(&ask, name);
  br_status status = br_session_table(s->db, br_buf_cstr(&ask), &answer, err);
  br_buf_free(&ask);
  BR_TRY(status);
  status = told_by_text(s, name, br_table_cell(&answer, 0, 0), &told, err);
  if (status != BR_OK && status != BR_CANCELLED && err->blame == BR_BLAME_USER) {
    br_error_clear(err); /* a type that no text has: unions, tuples */
    status = BR_OK;
    told = false;
  }
  if (status == BR_OK && told) *out = br_typed_text(br_table_cell(&answer, 0, 0), br_table_cell(&answer, 0, 1));
  br_table_free(&answer);
  return status;
}

static void forget(brant_session *s, const char *name) {
  for (size_t i = s->variable_names.count; i-- > 0;) {
    if (strcmp(s->variable_names.items[i], name) != 0) continue;
    br_texts_remove(&s->variable_names, i);
    br_texts_remove(&s->variable_texts, i);
  }
}

static br_status remember(brant_session *s, const char *name, br_error *err) {
  char *value = NULL;
  br_buf text = {0};
  forget(s, name);
  BR_TRY(br_variable_constant(s, name, &value, err));
  if (value != NULL) {
    br_buf_str(&text, "SET VARIABLE ");
    br_buf_sql_ident(&text, name);
    br_buf_printf(&text, " = %s", value);
  }
  br_texts_add(&s->variable_names, name);
  br_texts_add(&s->variable_texts, value != NULL ? br_buf_cstr(&text) : "");
  br_buf_free(&text);
  free(value);
  return BR_OK;
}

br_status br_variable_note(brant_session *s, const char *sql, br_error *err) {
  const char *p = sql;
  char *name = NULL;
  br_status status = BR_OK;
  bool set = br_token_take(&p, "set");
  if (!set && !br_token_take(&p, "reset")) return BR_OK;
  if (!br_token_take(&p, "variable") || !br_token_name(&p, &name)) return BR_OK;
  br_token_small(name);
  if (set)
    status = remember(s, name, err);
  else
    forget(s, name);
  free(name);
  return status;
}
