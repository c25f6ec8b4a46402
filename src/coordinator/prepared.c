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
#define ARGUMENT "brant_argument" /* variables of DuckDB's, as short-lived; a number follows */

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

/* ---- calls among the values */

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

/* What DuckDB says of an argument, without its place in a text that the caller didn't write. */
static br_status wrong_argument(const br_value *v, br_error *err) {
  char *place = strstr(err->message, "\n\nLINE ");
  if (place != NULL) *place = 0;
  return br_error_context(err, "the value of $%.100s", v->name);
}

/* Those of the statement before this one. */
static void forget_arguments(brant_session *s) {
  for (size_t i = s->variable_names.count; i-- > 0;) {
    if (strncmp(s->variable_names.items[i], ARGUMENT, strlen(ARGUMENT)) != 0) continue;
    char *reset = br_asprintf("RESET VARIABLE %s", s->variable_names.items[i]);
    br_error ignored;
    br_status unused = br_session_execute(s->db, reset, &ignored);
    (void)unused;
    free(reset);
    br_texts_remove(&s->variable_names, i);
    br_texts_remove(&s->variable_texts, i);
  }
}

/* A call is evaluated once, not for each row, nor each time that DuckDB looks at the statement: random(), nextval(). Where no text tells its
 * value, a variable has it until the next statement. */
static br_status evaluate(brant_session *s, size_t number, br_value *v, br_error *err) {
  char *value = NULL;
  if (!has_call(v->sql)) return BR_OK;
  char *name = br_asprintf(ARGUMENT "%zu", number);
  char *set = br_asprintf("SET VARIABLE %s = (SELECT (%s\n))", name, v->sql);
  br_status status = br_session_execute(s->db, set, err);
  free(set);
  if (status == BR_OK) {
    br_texts_add(&s->variable_names, name);
    br_texts_add(&s->variable_texts, "");
    status = br_variable_constant(s, name, &value, err);
  } else if (status != BR_CANCELLED) {
    status = wrong_argument(v, err);
  }
  if (status == BR_OK) {
    free(v->sql);
    v->sql = value != NULL ? value : br_asprintf("getvariable('%s')", name);
  }
  free(name);
  return status;
}

/* ---- values that come with a statement */

/* literal's quotes: so nothing in it is SQL. */
static char *typed_text(const char *type, const char *text) {
  br_buf b = {0};
  if (text != NULL) br_buf_sql_literal(&b, text, strlen(text));
  char *value = br_typed_text(type, text != NULL ? br_buf_cstr(&b) : NULL);
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

/* shown: as DuckDB's EXECUTE takes them. The text may be run later and again: a call whose value no text tells stays in it. */
static br_status evaluate_params(brant_session *s, br_value *values, size_t n, br_value **shown, br_error *err) {
  *shown = br_calloc(n + 1, sizeof **shown);
  for (size_t i = 0; i < n; i++) {
    br_value *one = &(*shown)[i];
    *one = (br_value){.name = br_strdup(values[i].name), .sql = br_strdup(values[i].sql)};
    BR_TRY(evaluate(s, i, one, err));
    if (strncmp(one->sql, "getvariable(", 12) == 0) continue;
    free(values[i].sql);
    values[i].sql = br_strdup(one->sql);
  }
  return BR_OK;
}

static br_status bind_params(brant_session *s, const char *sql, const brant_param *params, size_t n, char **out,
                             br_error *err) {
  br_value *values = br_calloc(n + 1, sizeof *values), *shown = NULL;
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
  BR_TRY_GOTO(evaluate_params(s, values, n, &shown, err));
  BR_TRY_GOTO(br_parameters_bind(sql, values, n, out, err));
  if (n > 0) BR_TRY_GOTO(names_of_text(s, sql, shown, n, out, err));
done:
  forget_arguments(s);
  if (shown != NULL) br_values_free(shown, n);
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
  forget_arguments(s);
  if (!br_token_take(&p, "execute") || !br_token_name(&p, &name)) return BR_OK;
  size_t at = find(s, name);
  if (at == s->prepared_names.count) goto done;
  BR_TRY_GOTO(br_session_parse(s->db, sql, err)); /* before a call in it takes effect */
  if (!arguments(&p, &values, &n)) goto done;     /* DuckDB's to run: it sees other words in it */
  for (size_t i = 0; i < n; i++) BR_TRY_GOTO(evaluate(s, i, &values[i], err));
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
