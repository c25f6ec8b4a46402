/* SPDX-License-Identifier: Apache-2.0
 * Statements with parameters: values given with a statement (brant_bind), PREPARE, EXECUTE, DEALLOCATE.
 *
 * DuckDB prepares too, so it says what is wrong with a statement when it is prepared, and how its result's columns are called: a
 * parameter in a column's name stays one ("(1 + $1)"). What runs is the text with the values in it.
 * Order: any. The caller's thread. Bounds: as many prepared statements as the caller makes. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/parameters.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

#define PROBE "brant_columns_of"  /* a prepared statement that lives for a moment */
#define ARGUMENT "brant_argument" /* a variable of DuckDB's, as short-lived */

/* ---- names of the result's columns */

/* What is no expression has no parameter in its name. */
static bool plain_name(const char *name) {
  if (strcasecmp(name, "null") == 0 || isdigit((unsigned char)*name)) return false;
  for (; *name != 0; name++)
    if (!isalnum((unsigned char)*name) && *name != '_' && (unsigned char)*name < 0x80) return false;
  return true;
}

static char *with_names(const char *sql, char *const *names, size_t n) {
  br_buf b = {0};
  br_buf_str(&b, "SELECT ");
  for (size_t i = 0; i < n; i++) {
    br_buf_printf(&b, "%sc%zu AS ", i ? ", " : "", i);
    br_buf_sql_ident(&b, names[i]);
  }
  br_buf_printf(&b, " FROM (%s\n) AS brant_bound(", sql);
  for (size_t i = 0; i < n; i++) br_buf_printf(&b, "%sc%zu", i ? ", " : "", i);
  br_buf_char(&b, ')');
  return br_buf_take(&b);
}

/* The columns of the bound text are called as those of the statement with its parameters. execute: runs that, prepared. */
static br_status keep_names(brant_session *s, const char *execute, char **bound, br_error *err) {
  char **now = NULL, **names = NULL;
  size_t n_now = 0, n = 0;
  bool plain = true, same = true;
  br_statement kind;
  br_status status;
  BR_TRY(br_session_classify(s->db, *bound, &kind, err));
  if (kind != BR_STMT_SELECT) return BR_OK;
  BR_TRY(br_session_names(s->db, *bound, &now, &n_now, err));
  for (size_t i = 0; i < n_now && plain; i++) plain = plain_name(now[i]);
  if (plain) {
    br_names_free(now, n_now);
    return BR_OK;
  }
  BR_TRY_GOTO(br_session_names(s->db, execute, &names, &n, err));
  for (size_t i = 0; i < n && i < n_now && same; i++) same = strcmp(now[i], names[i]) == 0;
  if (n == n_now && !same) {
    char *text = with_names(*bound, names, n);
    free(*bound);
    *bound = text;
  }
done:
  br_names_free(now, n_now);
  br_names_free(names, n);
  return status;
}

/* rest: what follows the arguments. */
static char *execute_text(const char *name, const br_value *values, size_t n, const char *rest) {
  br_buf b = {0};
  br_buf_str(&b, "EXECUTE ");
  br_buf_sql_ident(&b, name);
  for (size_t i = 0; i < n; i++) { /* numbers in their order */
    const br_value *v = &values[i];
    bool named = !isdigit((unsigned char)v->name[0]);
    for (size_t k = 0; k < n && !named; k++)
      if (strtoul(values[k].name, NULL, 10) == i + 1) v = &values[k];
    br_buf_str(&b, i ? ", " : "(");
    if (named) {
      br_buf_sql_ident(&b, v->name);
      br_buf_str(&b, " := ");
    }
    br_buf_printf(&b, "%s\n", v->sql); /* it may end with a comment */
  }
  if (n > 0) br_buf_char(&b, ')');
  br_buf_str(&b, rest);
  return br_buf_take(&b);
}

static br_status names_of_text(brant_session *s, const char *sql, const br_value *values, size_t n, char **bound,
                               br_error *err) {
  br_error ignored;
  char *prepare = br_asprintf("PREPARE " PROBE " AS %s", sql);
  br_status status = br_session_execute(s->db, prepare, &ignored);
  free(prepare);
  if (status != BR_OK) return BR_OK; /* CREATE …: what DuckDB can't prepare gives no rows */
  char *execute = execute_text(PROBE, values, n, "");
  status = keep_names(s, execute, bound, &ignored);
  free(execute);
  if (status == BR_CANCELLED)
    *err = ignored;
  else
    status = BR_OK; /* EXECUTE takes less than the statement does (no subqueries): its own names then */
  br_status unused = br_session_execute(s->db, "DEALLOCATE " PROBE, &ignored);
  (void)unused;
  return status;
}

/* ---- values that come with a statement */

/* A value of a type that is spelled out. literal: a text in quotes, so nothing in it is SQL; NULL: NULL. */
static char *typed(const char *type, const char *literal) {
  bool is_text =
      literal != NULL && strcasecmp(type, "varchar") == 0; /* takes the type its place wants, as constants do */
  return is_text ? br_strdup(literal) : br_asprintf("CAST(%s AS %s)", literal != NULL ? literal : "NULL", type);
}

static char *typed_text(const char *type, const char *text) {
  br_buf b = {0};
  if (text != NULL) br_buf_sql_literal(&b, text, strlen(text));
  char *value = typed(type, text != NULL ? br_buf_cstr(&b) : NULL);
  br_buf_free(&b);
  return value;
}

/* One expression, and not a piece of the statement around it. */
static br_status check_value(brant_session *s, const br_value *v, br_error *err) {
  char **names = NULL, *probe = NULL;
  const char *t, *p = v->sql;
  size_t n = 0;
  br_status status = BR_OK;
  for (int depth = 0; br_token_next(&p, &t, &n);) {
    depth += br_token_depth(t, n);
    if (depth < 0 || (depth == 0 && n == 1 && (*t == ',' || *t == ';')))
      return br_fail(err, BR_INVALID, BR_BLAME_USER, "the value of $%.100s is not one expression: %.200s", v->name,
                     v->sql);
  }
  probe = br_asprintf("SELECT (%s\n)", v->sql);
  status = br_session_names(s->db, probe, &names, &n, err);
  br_names_free(names, n);
  free(probe);
  return status == BR_OK ? BR_OK : br_error_context(err, "the value of $%.100s", v->name);
}

static br_status bind_params(brant_session *s, const char *sql, const brant_param *params, size_t n, char **out,
                             br_error *err) {
  br_value *values = br_calloc(n + 1, sizeof *values);
  unsigned place = 0;
  br_status status = BR_OK;
  *out = NULL;
  for (size_t i = 0; i < n; i++) {
    const brant_param *p = &params[i];
    values[i].name = p->name != NULL ? br_strdup(p->name) : br_asprintf("%u", ++place);
    values[i].sql = p->type != NULL    ? typed_text(p->type, p->value)
                    : p->value == NULL ? br_strdup("NULL")
                                       : br_strdup(p->value);
  }
  for (size_t i = 0; i < n; i++)
    if (params[i].type == NULL || strcasecmp(params[i].type, "varchar") != 0)
      BR_TRY_GOTO(check_value(s, &values[i], err));
  BR_TRY_GOTO(br_parameters_bind(sql, values, n, out, err));
  if (n > 0) BR_TRY_GOTO(names_of_text(s, sql, values, n, out, err));
done:
  br_values_free(values, n);
  if (status != BR_OK) {
    free(*out);
    *out = NULL;
  }
  return status;
}

br_status br_bind_params(brant_session *s, const char *sql, const brant_param *params, size_t n, char **out,
                         br_error *err) {
  char *one = br_token_statement(sql);
  if (one == NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "parameters belong to one statement: another one follows a ';'");
  br_status status = bind_params(s, one, params, n, out, err);
  free(one);
  return status;
}

int brant_bind(brant_session *s, const char *sql, const brant_param *params, size_t n, char **out, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_status status = br_bind_params(s, sql, params, n, out, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

/* ---- PREPARE, EXECUTE, DEALLOCATE */

static size_t find(const brant_session *s, const char *name) {
  size_t i = 0;
  while (i < s->prepared_names.count && strcasecmp(s->prepared_names.items[i], name) != 0) i++;
  return i;
}

static void forget(brant_session *s, const char *name) {
  size_t i = find(s, name);
  if (i == s->prepared_names.count) return;
  br_texts_remove(&s->prepared_names, i);
  br_texts_remove(&s->prepared_texts, i);
}

void br_prepared_note(brant_session *s, const char *sql) {
  const char *p = sql, *t;
  size_t n;
  char *name = NULL;
  bool prepare = br_token_take(&p, "prepare");
  if (!prepare && !br_token_take(&p, "deallocate")) return;
  if (!prepare) br_token_take(&p, "prepare");
  if (!br_token_name(&p, &name)) return;
  forget(s, name);
  while (prepare && br_token_next(&p, &t, &n) && !br_token_is(t, n, "as")) continue; /* types, which say nothing */
  if (prepare) {
    br_texts_add(&s->prepared_names, name);
    br_texts_add(&s->prepared_texts, p);
  }
  free(name);
}

static bool has_call(const char *sql) {
  const char *t;
  size_t n;
  bool word = false;
  while (br_token_next(&sql, &t, &n)) {
    if (word && *t == '(') return true;
    word = (isalpha((unsigned char)*t) || *t == '_' || *t == '"') && !br_token_is(t, n, "decimal");
  }
  return false;
}

/* Is the text of a value of this type, read again, the value? Of some nested ones it isn't; of a VARIANT it is a text. */
static br_status told_by_text(brant_session *s, const char *type, bool *yes, br_error *err) {
  br_table answer;
  *yes = strcmp(type, "VARIANT") != 0;
  if (strpbrk(type, "[(\"") == NULL || strncmp(type, "DECIMAL(", 8) == 0) return BR_OK;
  char *ask = br_asprintf(
      "SELECT TRY_CAST(v::VARCHAR AS %s) IS NOT DISTINCT FROM v "
      "FROM (SELECT getvariable('" ARGUMENT "') AS v)",
      type);
  br_status status = br_session_table(s->db, ask, &answer, err);
  free(ask);
  BR_TRY(status);
  *yes = strcmp(br_table_cell(&answer, 0, 0), "true") == 0;
  br_table_free(&answer);
  return BR_OK;
}

/* The value of ARGUMENT as a constant; *out stays NULL where a text doesn't tell it. */
static br_status constant_of_argument(brant_session *s, char **out, br_error *err) {
  static const char *const ask = /* a NUL can't stand in SQL text, nor in a cell of the answer */
      "SELECT typeof(v), '''' || replace(replace(v::VARCHAR, '''', ''''''), chr(0), ''' || chr(0) || ''') || '''' "
      "FROM (SELECT getvariable('" ARGUMENT "') AS v)";
  br_table answer;
  bool told;
  BR_TRY(br_session_table(s->db, ask, &answer, err));
  br_status status = told_by_text(s, br_table_cell(&answer, 0, 0), &told, err);
  if (status == BR_OK && told) *out = typed(br_table_cell(&answer, 0, 0), br_table_cell(&answer, 0, 1));
  br_table_free(&answer);
  return status;
}

/* What DuckDB says of an argument, without its place in a text that the caller didn't write. */
static br_status wrong_argument(const br_value *v, br_error *err) {
  char *place = strstr(err->message, "\n\nLINE ");
  if (place != NULL) *place = 0;
  return br_error_context(err, "the value of $%.100s", v->name);
}

/* A call is evaluated once, not for each row, nor each time that DuckDB looks at the statement: random(), nextval(). */
static br_status evaluate(brant_session *s, br_value *v, br_error *err) {
  char *value = NULL;
  br_error ignored;
  if (!has_call(v->sql)) return BR_OK;
  char *set = br_asprintf("SET VARIABLE " ARGUMENT " = (SELECT (%s\n))", v->sql);
  br_status status = br_session_execute(s->db, set, err);
  free(set);
  if (status != BR_OK) return status == BR_CANCELLED ? status : wrong_argument(v, err);
  status = constant_of_argument(s, &value, err);
  if (status != BR_OK && status != BR_CANCELLED && err->blame == BR_BLAME_USER) {
    br_error_clear(err); /* a type that no text has (unions, tuples): the call stays */
    status = BR_OK;
  }
  br_status unused = br_session_execute(s->db, "RESET VARIABLE " ARGUMENT, &ignored);
  (void)unused;
  if (value != NULL) {
    free(v->sql);
    v->sql = value;
  }
  return status;
}

/* value, or name := value, up to the comma or the closing bracket. *p moves behind that. Which it was; 0: neither. */
static char next_argument(const char **p, unsigned place, br_value *v) {
  const char *start = *p, *t, *end = *p;
  size_t n;
  char last = 0;
  *v = (br_value){0};
  for (int depth = 0; br_token_next(p, &t, &n); end = t + n) {
    if (depth == 0 && n == 1 && (*t == ',' || *t == ')')) {
      last = *t;
      break;
    }
    depth += br_token_depth(t, n);
    if (depth == 0 && *t == ':' && t[1] == '=' && v->name == NULL) {
      while (start < end && br_sql_is_blank(start)) start = br_sql_skip(start);
      v->name = br_strndup(start, (size_t)(end - start));
      br_token_next(p, &t, &n);
      start = t + n;
    }
  }
  v->sql = br_strndup(start, end > start ? (size_t)(end - start) : 0);
  if (v->name == NULL) v->name = br_asprintf("%u", place);
  return last;
}

/* *p moves behind them. False: no bracket closes them. */
static bool arguments(const char **p, br_value **out, size_t *n) {
  size_t capacity = 0;
  char last = ',';
  if (!br_token_take(p, "(")) return true;
  while (last == ',') {
    br_grow((void **)out, &capacity, *n, sizeof **out);
    last = next_argument(p, (unsigned)*n + 1, &(*out)[*n]);
    (*n)++;
  }
  return last == ')';
}

br_status br_prepared_text(brant_session *s, const char *sql, char **out, br_error *err) {
  const char *p = sql;
  char *name = NULL, *execute = NULL;
  br_value *values = NULL;
  size_t n = 0;
  br_statement kind;
  br_status status = BR_OK;
  *out = NULL;
  if (!br_token_take(&p, "execute") || !br_token_name(&p, &name)) return BR_OK;
  size_t at = find(s, name);
  if (at == s->prepared_names.count) goto done;
  BR_TRY_GOTO(br_session_parse(s->db, sql, err)); /* before a call in it takes effect */
  if (!arguments(&p, &values, &n)) goto done;     /* DuckDB's to run: it sees other words in it */
  for (size_t i = 0; i < n; i++) BR_TRY_GOTO(evaluate(s, &values[i], err));
  execute = execute_text(name, values, n, p);
  BR_TRY_GOTO(br_session_classify(s->db, execute, &kind, err)); /* DuckDB sees what is wrong with it */
  BR_TRY_GOTO(br_parameters_bind(s->prepared_texts.items[at], values, n, out, err));
  BR_TRY_GOTO(keep_names(s, execute, out, err));
done:
  free(name);
  free(execute);
  br_values_free(values, n);
  if (status != BR_OK) {
    free(*out);
    *out = NULL;
  }
  return status;
}
