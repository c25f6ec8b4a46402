/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts in the arena: formatting, quoting, lists, and the layout of nested SELECTs. The layout must not touch what stands
 * inside quotes: a literal may hold line ends.
 */
#include "plan/decompile/emit.h"

#include <stdio.h>
#include <string.h>

/* Bounds of the layout, in bytes: longer lists of columns are broken, longer relations are indented on lines of their own. */
#define LINE_BYTES 100
#define INLINE_BYTES 60

void br_e_unsupported(br_emit *e, const char *fmt, ...) {
  char text[512];
  va_list ap;
  if (e->status != BR_OK) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  e->status = br_fail(e->err, BR_UNSUPPORTED, BR_BLAME_USER, "this part of the plan can't be written as SQL: %s", text);
}

void br_e_corrupt(br_emit *e, const char *fmt, ...) {
  char text[512];
  va_list ap;
  if (e->status != BR_OK) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  e->status = br_fail(e->err, BR_CORRUPT, BR_BLAME_INTERNAL, "the plan JSON is damaged: %s", text);
}

static const char *keep(br_emit *e, br_buf *b) {
  const char *s = br_arena_strndup(e->arena, b->data ? b->data : "", b->len);
  br_buf_free(b);
  return s;
}

const char *br_e_fmt(br_emit *e, const char *fmt, ...) {
  br_buf b = {0};
  va_list ap;
  va_start(ap, fmt);
  br_buf_vprintf(&b, fmt, ap);
  va_end(ap);
  return keep(e, &b);
}

const char *br_e_ident(br_emit *e, const char *name) {
  br_buf b = {0};
  br_buf_sql_ident(&b, name);
  return keep(e, &b);
}

const char *br_e_literal(br_emit *e, const char *s) {
  br_buf b = {0};
  br_buf_sql_literal(&b, s, strlen(s));
  return keep(e, &b);
}

const char *br_e_literal_json(br_emit *e, const json_t *string) {
  br_buf b = {0};
  if (!json_is_string(string)) {
    br_e_corrupt(e, "a text is missing");
    return "''";
  }
  br_buf_sql_literal(&b, json_string_value(string), json_string_length(string));
  return keep(e, &b);
}

void br_e_add(br_emit *e, br_texts *list, const char *text) {
  if (list->n == list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 8;
    const char **v = br_arena_alloc(e->arena, cap * sizeof *v);
    if (list->n) memcpy(v, list->v, list->n * sizeof *v);
    list->v = v;
    list->cap = cap;
  }
  list->v[list->n++] = text;
}

const char *br_e_join(br_emit *e, const br_texts *list, const char *separator) {
  br_buf b = {0};
  for (size_t i = 0; i < list->n; i++) {
    if (i) br_buf_str(&b, separator);
    br_buf_str(&b, list->v[i]);
  }
  return keep(e, &b);
}

/* Two spaces after each line end that stands outside of quotes. */
static void add_indented(br_buf *b, const char *sql) {
  char quote = 0;
  for (const char *p = sql; *p; p++) {
    if (quote ? *p == quote : (*p == '\'' || *p == '"')) quote = quote ? 0 : *p;
    br_buf_char(b, *p);
    if (*p == '\n' && !quote) br_buf_str(b, "  ");
  }
}

static void add_block(br_buf *b, const char *sql) {
  if (strlen(sql) <= INLINE_BYTES && !strchr(sql, '\n')) {
    br_buf_printf(b, "(%s)", sql);
    return;
  }
  br_buf_str(b, "(\n  ");
  add_indented(b, sql);
  br_buf_str(b, "\n)");
}

const char *br_e_from(br_emit *e, const char *sql) {
  br_buf b = {0};
  add_block(&b, sql);
  return keep(e, &b);
}

const char *br_e_columns(br_emit *e, const br_texts *list) {
  br_buf b = {0};
  size_t line = 0;
  for (size_t i = 0; i < list->n; i++) {
    size_t bytes = strlen(list->v[i]);
    if (i) br_buf_str(&b, line + bytes > LINE_BYTES ? ",\n  " : ", ");
    line = i && line + bytes > LINE_BYTES ? bytes : line + bytes + 8;
    br_buf_printf(&b, "%s AS c%zu", list->v[i], i);
  }
  return keep(e, &b);
}

const char *br_e_materialized(br_emit *e, const char *name, const char *sql) {
  return br_e_fmt(e, "%s AS MATERIALIZED %s", name, br_e_from(e, sql));
}

const char *br_e_with(br_emit *e, const br_texts *definitions, const char *select) {
  if (!definitions->n) return select;
  return br_e_fmt(e, "WITH %s\n%s", br_e_join(e, definitions, ",\n"), select);
}

br_env br_e_env(br_emit *e, const br_rel *over, const char *alias) {
  br_env env = {0};
  for (size_t i = 0; i < over->n_columns; i++) br_e_add(e, &env.refs, br_e_fmt(e, "%s.c%zu", alias, i));
  env.binds = over->binds;
  if (env.binds) env.bind_refs = env.refs;
  return env;
}

const char *br_e_comparison(br_emit *e, const char *type) {
  static const char *const names[][2] = {
      {"COMPARE_EQUAL", "="},
      {"COMPARE_NOTEQUAL", "<>"},
      {"COMPARE_LESSTHAN", "<"},
      {"COMPARE_GREATERTHAN", ">"},
      {"COMPARE_LESSTHANOREQUALTO", "<="},
      {"COMPARE_GREATERTHANOREQUALTO", ">="},
      {"COMPARE_NOT_DISTINCT_FROM", "IS NOT DISTINCT FROM"},
      {"COMPARE_DISTINCT_FROM", "IS DISTINCT FROM"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(type, names[i][0])) return names[i][1];
  br_e_unsupported(e, "the comparison %.60s", type);
  return "=";
}
