/* SPDX-License-Identifier: Apache-2.0
 *
 * Scripts: where one statement ends, and what kind it is.
 * Order: br_sql_split, then each text by itself. Threads: split: any; classify and execute: the session's user.
 */
#include "engine/internal.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool ident_start(unsigned char c) { return isalpha(c) || c == '_' || c >= 0x80; }
static bool ident_part(unsigned char c) { return ident_start(c) || isdigit(c) || c == '$'; }

/* After the opening quote at p: behind the closing one, or the end. backslash: E'...'. */
static const char *skip_quoted(const char *p, bool backslash) {
  char quote = *p++;
  for (; *p; p++) {
    if (*p == quote && p[1] == quote) { /* doubled: part of the text */
      p++;
      continue;
    }
    if (backslash && *p == '\\' && p[1])
      p++;
    else if (*p == quote)
      return p + 1;
  }
  return p;
}

/* At a '$': behind the dollar-quoted text, or NULL if this is none ($1, a$b). */
static const char *skip_dollar(const char *p) {
  const char *tag = p + 1;
  if (ident_start((unsigned char)*tag))
    while (ident_start((unsigned char)*tag) || isdigit((unsigned char)*tag)) tag++;
  if (*tag != '$') return NULL;
  size_t n = (size_t)(tag - p) + 1;
  for (const char *q = tag + 1; *q; q++)
    if (*q == '$' && strncmp(q, p, n) == 0) return q + n;
  return p + strlen(p);
}

static const char *skip_comment(const char *p) {
  if (p[0] == '-' && p[1] == '-') {
    while (*p && *p != '\n') p++;
    return p;
  }
  if (p[0] != '/' || p[1] != '*') return NULL;
  int depth = 0; /* they nest */
  while (*p) {
    if (p[0] == '/' && p[1] == '*')
      depth++, p += 2;
    else if (p[0] == '*' && p[1] == '/') {
      p += 2;
      if (--depth == 0) return p;
    } else
      p++;
  }
  return p;
}

bool br_sql_is_blank(const char *p) {
  return isspace((unsigned char)*p) || (p[0] == '-' && p[1] == '-') || (p[0] == '/' && p[1] == '*');
}

const char *br_sql_skip(const char *p) {
  const char *after = skip_comment(p);
  if (after) return after;
  if (isspace((unsigned char)*p)) {
    while (isspace((unsigned char)*p)) p++;
    return p;
  }
  if (*p == '\'' || *p == '"') return skip_quoted(p, false);
  if ((*p == 'e' || *p == 'E') && p[1] == '\'') return skip_quoted(p + 1, true);
  if (ident_start((unsigned char)*p)) {
    while (ident_part((unsigned char)*p)) p++;
    return p;
  }
  if (*p == '$' && (after = skip_dollar(p)) != NULL) return after;
  return p + 1;
}

/* From p to the next ';' outside of quotes and comments, or the end. *content: there was something to execute. */
static const char *statement_end(const char *p, bool *content) {
  *content = false;
  while (*p && *p != ';') {
    if (!br_sql_is_blank(p)) *content = true;
    p = br_sql_skip(p);
  }
  return p;
}

br_status br_sql_split(const char *script, char ***texts, size_t **offsets, size_t *n, br_error *err) {
  (void)err;
  size_t cap_texts = 0, cap_offsets = 0;
  char **out = NULL;
  size_t *at = NULL;
  *n = 0;
  for (const char *p = script; *p;) {
    bool content;
    const char *end = statement_end(p, &content);
    if (content) {
      const char *first = p, *last = end;
      while (isspace((unsigned char)*first)) first++;
      while (last > first && isspace((unsigned char)last[-1])) last--;
      br_grow((void **)&out, &cap_texts, *n, sizeof *out);
      br_grow((void **)&at, &cap_offsets, *n, sizeof *at);
      out[*n] = br_strndup(first, (size_t)(last - first));
      at[(*n)++] = (size_t)(first - script);
    }
    p = *end ? end + 1 : end;
  }
  *texts = out;
  *offsets = at;
  return BR_OK;
}

static bool is_one_of(const char *p, size_t n, const char *const *words, size_t n_words) {
  for (size_t i = 0; i < n_words; i++)
    if (strlen(words[i]) == n && strncasecmp(p, words[i], n) == 0) return true;
  return false;
}

bool br_sql_is_select(const char *sql) {
  static const char *const first[] = {"SELECT", "FROM", "VALUES", "WITH"}, *const after_with[] = {"INSERT", "UPDATE",
                                                                                                  "DELETE", "MERGE",
                                                                                                  "COPY"};
  bool begun = false, with = false;
  int depth = 0;
  for (const char *p = sql, *next; *p; p = next) {
    next = br_sql_skip(p);
    if (br_sql_is_blank(p)) continue;
    size_t n = (size_t)(next - p);
    if (!begun && !is_one_of(p, n, first, 4)) return false;
    if (!begun) with = is_one_of(p, n, first + 3, 1);
    if (!with) return true;
    begun = true;
    depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
    if (depth == 0 && is_one_of(p, n, after_with, 5)) return false;
  }
  return begun;
}

static br_statement statement_of(duckdb_statement_type t) {
  switch (t) {
    case DUCKDB_STATEMENT_TYPE_SELECT: return BR_STMT_SELECT;
    case DUCKDB_STATEMENT_TYPE_SET:
    case DUCKDB_STATEMENT_TYPE_VARIABLE_SET:
    case DUCKDB_STATEMENT_TYPE_PRAGMA:
    case DUCKDB_STATEMENT_TYPE_LOAD:
    case DUCKDB_STATEMENT_TYPE_EXTENSION:
    case DUCKDB_STATEMENT_TYPE_UPDATE_EXTENSIONS: return BR_STMT_SETTING;
    case DUCKDB_STATEMENT_TYPE_CREATE:
    case DUCKDB_STATEMENT_TYPE_CREATE_FUNC:
    case DUCKDB_STATEMENT_TYPE_ALTER:
    case DUCKDB_STATEMENT_TYPE_DROP: return BR_STMT_DDL;
    case DUCKDB_STATEMENT_TYPE_ATTACH:
    case DUCKDB_STATEMENT_TYPE_DETACH: return BR_STMT_ATTACH;
    case DUCKDB_STATEMENT_TYPE_COPY:
    case DUCKDB_STATEMENT_TYPE_EXPORT:
    case DUCKDB_STATEMENT_TYPE_COPY_DATABASE: return BR_STMT_COPY;
    case DUCKDB_STATEMENT_TYPE_EXPLAIN: return BR_STMT_EXPLAIN;
    default: return BR_STMT_OTHER;
  }
}

/* A SELECT that binds. DuckDB optimises what it prepares, not what it describes. */
static bool describes(br_session *s, const char *sql) {
  duckdb_result r;
  br_error ignored;
  if (!br_sql_is_select(sql)) return false;
  char *ask = br_asprintf("DESCRIBE %s", sql);
  bool good = br_stmt_query_once(s, ask, &r, &ignored) == BR_OK;
  if (good) duckdb_destroy_result(&r);
  free(ask);
  return good;
}

br_status br_session_parse(br_session *s, const char *sql, br_error *err) {
  size_t n;
  br_session_begin(s);
  br_status status = br_stmt_count(s, sql, &n, err);
  br_session_end(s);
  return status;
}

br_status br_session_classify(br_session *s, const char *sql, br_statement *out, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  size_t n;
  br_status status;
  br_session_begin(s);
  BR_TRY_GOTO(br_stmt_count(s, sql, &n, err));
  if (n > 1) { /* one text that DuckDB takes apart, like PIVOT without IN: its parts bind only one after the other */
    *out = BR_STMT_SELECT;
    goto done;
  }
  BR_TRY_GOTO(br_gate_enter(s, BR_MODE_DEFAULT, err));
  if (describes(s, sql))
    *out = BR_STMT_SELECT;
  else if ((status = br_stmt_prepare(s, sql, &ps, err)) == BR_OK)
    *out = statement_of(duckdb_prepared_statement_type(ps));
  br_gate_leave(s);
done:
  if (ps) duckdb_destroy_prepare(&ps);
  br_session_end(s);
  return status;
}

br_status br_session_names(br_session *s, const char *sql, char ***names, size_t *n, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  br_status status;
  *names = NULL, *n = 0;
  br_session_begin(s);
  BR_TRY_GOTO(br_gate_enter(s, BR_MODE_DEFAULT, err));
  status = br_stmt_prepare(s, sql, &ps, err);
  br_gate_leave(s);
  if (status != BR_OK) goto done;
  *n = duckdb_prepared_statement_column_count(ps);
  *names = br_calloc(*n + 1, sizeof **names);
  for (size_t i = 0; i < *n; i++) {
    const char *name = duckdb_prepared_statement_column_name(ps, i);
    (*names)[i] = br_strdup(name ? name : "");
    duckdb_free((void *)name);
  }
done:
  if (ps) duckdb_destroy_prepare(&ps);
  br_session_end(s);
  return status;
}

void br_names_free(char **names, size_t n) {
  for (size_t i = 0; i < n; i++) free(names[i]);
  free(names);
}

br_status br_session_execute(br_session *s, const char *sql, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  duckdb_result r;
  br_status status;
  bool inside = false;
  br_session_begin(s);
  BR_TRY_GOTO(br_gate_enter(s, BR_MODE_DEFAULT, err));
  inside = true;
  BR_TRY_GOTO(br_stmt_prepare_last(s, sql, &ps, err));
  /* A setting takes effect when it is executed: the gate must not hold other values meanwhile. */
  if (statement_of(duckdb_prepared_statement_type(ps)) != BR_STMT_SETTING) {
    br_gate_leave(s);
    inside = false;
  }
  status = br_stmt_execute(s, ps, false, &r, err);
  if (status == BR_OK) duckdb_destroy_result(&r);
done:
  if (inside) br_gate_leave(s);
  if (ps) duckdb_destroy_prepare(&ps);
  br_session_end(s);
  return status;
}
