/* SPDX-License-Identifier: Apache-2.0
 * INSERT INTO x [(columns)] SELECT …, CREATE TABLE x AS SELECT …: found by tokens; DuckDB checks the syntax of what names a table.
 * Order: br_stored_parse, br_stored_text_free. Threads: any. Bounds: none of its own. */
#include "coordinator/stored_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/tokens.h"
#include "engine/engine.h"

void br_stored_text_free(br_stored_text *t) {
  free(t->directory);
  free(t->select);
  br_names_free(t->columns, t->n_columns);
  *t = (br_stored_text){0};
}

/* a.b.c, "a"."b", 'text'. */
static bool parse_target(const char **p, br_stored_text *out) {
  const char *at = *p, *t;
  char *name = NULL;
  size_t n;
  if (!br_token_next(&at, &t, &n)) return false;
  if (*t == '\'') {
    name = br_token_unquote(t, n);
    size_t length = strlen(name);
    if (length > 0 && name[length - 1] == '/')
      out->directory = name;
    else
      free(name);
    *p = at;
    return true;
  }
  do {
    if (!br_token_name(p, &name)) return false;
    free(name);
  } while (br_token_take(p, "."));
  return true;
}

static bool starts_select(const char *p) {
  static const char *const words[] = {"select", "from", "with", "values", "table", "pivot", "unpivot", "("};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (br_token_take(&p, words[i])) return true;
  return false;
}

/* Behind a bracket: (a, b), names alone, and what belongs to them follows? "values" may be one: (values, b), not (values (1)). */
static bool is_columns(const char *at) {
  const char *t;
  size_t n;
  do
    if (!br_token_next(&at, &t, &n) || strchr("(',.);", *t) != NULL) return false;
  while (br_token_take(&at, ","));
  if (!br_token_take(&at, ")")) return false;
  return starts_select(at) || br_token_take(&at, "as") || br_token_take(&at, "default");
}

/* (a, b), if it is that. False: what is there is not understood. */
static bool parse_columns(const char **p, br_stored_text *out) {
  const char *at = *p;
  size_t capacity = 0;
  if (!br_token_take(&at, "(")) return true;
  if (!is_columns(at)) return starts_select(at);
  do {
    br_grow((void **)&out->columns, &capacity, out->n_columns, sizeof *out->columns);
    if (!br_token_name(&at, &out->columns[out->n_columns])) return false;
    out->n_columns++;
  } while (br_token_take(&at, ","));
  *p = at;
  return br_token_take(p, ")");
}

/* From p to the end, to RETURNING or to ON CONFLICT. */
static bool parse_select(const char *sql, const char *p, br_stored_text *out) {
  const char *t = NULL, *last = NULL;
  size_t n, last_n = 0;
  int depth = 0;
  while (*p != 0 && br_sql_is_blank(p)) p = br_sql_skip(p);
  out->from = out->to = (size_t)(p - sql);
  out->values = br_token_take(&(const char *){p}, "values");
  while (br_token_next(&p, &t, &n)) {
    depth += br_token_depth(t, n);
    const char *next = p;
    bool conflict = br_token_is(t, n, "on") && br_token_take(&next, "conflict") &&
                    (br_token_take(&next, "(") || br_token_take(&next, "do") || br_token_take(&next, "where"));
    if (depth == 0 && !out->create && (conflict || br_token_is(t, n, "returning"))) {
      out->conflict = out->conflict || conflict;
      out->returning = !conflict || out->returning;
      break;
    }
    if (depth == 0 && *t == ';') break;
    out->to = (size_t)(t + n - sql);
    last = t, last_n = n;
  }
  while (!out->returning && br_token_next(&p, &t, &n))
    if (br_token_is(t, n, "returning")) out->returning = true;
  if (last == NULL || (out->create && br_token_is(last, last_n, "data"))) return false; /* WITH [NO] DATA */
  return true;
}

static bool parse_create(const char *sql, const char *p, br_stored_text *out) {
  out->create = true;
  if (br_token_take(&p, "or") && !(out->replace = br_token_take(&p, "replace"))) return false;
  if (!br_token_take(&p, "table")) return false;
  if (br_token_take(&p, "if") && !(out->if_not_exists = br_token_take(&p, "not") && br_token_take(&p, "exists")))
    return false;
  if (!parse_target(&p, out) || !parse_columns(&p, out) || !br_token_take(&p, "as")) return false;
  return starts_select(p) && parse_select(sql, p, out);
}

/* Behind INSERT. with: the text before it. */
static bool parse_insert(const char *sql, const char *p, size_t with, br_stored_text *out) {
  if (br_token_take(&p, "or")) {
    if (!br_token_take(&p, "replace") && !br_token_take(&p, "ignore")) return false;
    out->conflict = true;
  }
  if (!br_token_take(&p, "into") || !parse_target(&p, out)) return false;
  char *alias = NULL;
  if (br_token_take(&p, "as") && !br_token_name(&p, &alias)) return false;
  free(alias);
  if (br_token_take(&p, "by")) {
    out->by_name = br_token_take(&p, "name");
    if (!out->by_name && !br_token_take(&p, "position")) return false;
  }
  if (!parse_columns(&p, out)) return false;
  if (br_token_take(&p, "default") && br_token_take(&p, "values")) {
    out->default_values = true;
    return true;
  }
  if (!starts_select(p) || !parse_select(sql, p, out)) return false;
  out->select = br_asprintf("%.*s%.*s", (int)with, sql, (int)(out->to - out->from), sql + out->from);
  return true;
}

bool br_stored_parse(const char *sql, br_stored_text *out) {
  const char *p = sql, *t = sql;
  size_t n = 0, with = 0;
  bool ok = false;
  *out = (br_stored_text){0};
  if (br_token_take(&p, "create")) {
    ok = parse_create(sql, p, out);
    if (ok) out->select = br_strndup(sql + out->from, out->to - out->from);
  } else {
    if (br_token_take(&p, "with")) {
      int depth = 0;
      while (br_token_next(&p, &t, &n) && !(depth == 0 && br_token_is(t, n, "insert"))) depth += br_token_depth(t, n);
      with = (size_t)(t - sql);
      ok = br_token_is(t, n, "insert");
    } else {
      ok = br_token_take(&p, "insert");
    }
    ok = ok && parse_insert(sql, p, with, out);
  }
  if (!ok) br_stored_text_free(out);
  return ok;
}
