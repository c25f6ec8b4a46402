/* SPDX-License-Identifier: Apache-2.0
 * Statements without rows: DDL, settings, LOAD, ATTACH and DETACH. Each is run on the caller's connection; what tasks need to know
 * of it is remembered as the text that executors run before a query (their prelude). Each executor runs it in every new session, so
 * each text must stand to be repeated. The caller's thread.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

/* ---- ATTACH */

typedef struct attach {
  bool replace;
  char *path, *name; /* name: what comes after AS, or what DuckDB makes of the path */
  char *options;     /* between the parentheses; NULL: none */
  bool named, read_write;
} attach;

static void attach_free(attach *a) {
  free(a->path);
  free(a->name);
  free(a->options);
}

static char *name_of_path(const char *path) {
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
  return dot != NULL && dot != base ? br_strndup(base, (size_t)(dot - base)) : br_strdup(base);
}

/* ATTACH [OR REPLACE] [DATABASE] [IF NOT EXISTS] 'path' [AS name] [(options)]. False: it is something else. */
static bool parse_attach(const char *sql, attach *a) {
  const char *p = sql, *t;
  size_t n;
  *a = (attach){0};
  if (!br_token_next(&p, &t, &n) || !br_token_is(t, n, "attach")) return false;
  while (br_token_next(&p, &t, &n) && *t != '\'') {
    if (br_token_is(t, n, "replace")) a->replace = true;
    if (!br_token_is(t, n, "or") && !br_token_is(t, n, "replace") && !br_token_is(t, n, "database") &&
        !br_token_is(t, n, "if") && !br_token_is(t, n, "not") && !br_token_is(t, n, "exists"))
      return false;
  }
  if (*t != '\'') return false;
  a->path = br_token_unquote(t, n);
  while (br_token_next(&p, &t, &n)) {
    if (br_token_is(t, n, "as") && br_token_next(&p, &t, &n)) {
      free(a->name);
      a->name = br_token_unquote(t, n);
      a->named = true;
    } else if (*t == '(') {
      const char *end = strrchr(p, ')');
      if (end == NULL) return false;
      free(a->options);
      a->options = br_strndup(p, (size_t)(end - p));
      p = end + 1;
    }
  }
  if (a->name == NULL) a->name = name_of_path(a->path);
  return true;
}

static bool has_option(const char *options, const char *word) {
  const char *p = options, *t;
  size_t n;
  while (p != NULL && br_token_next(&p, &t, &n))
    if (br_token_is(t, n, word)) return true;
  return false;
}

/* read-only, so that executors can open the file too. */
static char *attach_text(const attach *a, bool executor) {
  br_buf b = {0};
  char *path = executor ? br_absolute_path(a->path) : br_strdup(a->path);
  br_buf_str(&b, executor ? "ATTACH IF NOT EXISTS " : a->replace ? "ATTACH OR REPLACE " : "ATTACH ");
  br_buf_sql_literal(&b, path, strlen(path));
  if (a->named || executor) {
    br_buf_str(&b, " AS ");
    br_buf_sql_ident(&b, a->name);
  }
  br_buf_str(&b, " (");
  if (a->options != NULL) br_buf_str(&b, a->options);
  if (!has_option(a->options, "read_only")) br_buf_str(&b, a->options ? ", READ_ONLY" : "READ_ONLY");
  br_buf_char(&b, ')');
  free(path);
  return br_buf_take(&b);
}

static bool remove_text(br_texts *t, const char *text) {
  for (size_t i = 0; i < t->count; i++) {
    if (strcasecmp(t->items[i], text) != 0) continue;
    br_texts_remove(t, i);
    return true;
  }
  return false;
}

/* What executors know under this name is another file from now on, or nothing. Those that have it attached keep it until the
 * prelude of a later query says otherwise. */
static void forget_name(brant_session *s, const char *name) {
  for (size_t i = s->attach.count; i-- > 0;) {
    attach old;
    if (parse_attach(s->attach.items[i], &old) && strcasecmp(old.name, name) == 0) br_texts_remove(&s->attach, i);
    attach_free(&old);
  }
  remove_text(&s->detached, name);
  br_texts_add(&s->detached, name);
}

static void remember_attach(brant_session *s, const attach *a) {
  if (a->replace) forget_name(s, a->name);
  for (size_t i = 0; i < s->detached.count; i++) {
    if (strcasecmp(s->detached.items[i], a->name) != 0) continue;
    br_buf b = {0};
    br_buf_str(&b, "DETACH DATABASE IF EXISTS ");
    br_buf_sql_ident(&b, a->name);
    remove_text(&s->attach, br_buf_cstr(&b));
    br_texts_add(&s->attach, br_buf_cstr(&b));
    br_buf_free(&b);
  }
  char *text = attach_text(a, true);
  br_texts_add(&s->attach, text);
  free(text);
}

static br_status run_attach(brant_session *s, const char *sql, br_error *err) {
  attach a;
  br_status status;
  if (!parse_attach(sql, &a)) { /* DETACH [DATABASE] [IF EXISTS] name */
    const char *p = sql, *t = NULL, *last = NULL;
    size_t n, last_n = 0;
    attach_free(&a);
    BR_TRY(br_session_execute(s->db, sql, err));
    while (br_token_next(&p, &t, &n)) last = t, last_n = n;
    char *name = last ? br_token_unquote(last, last_n) : NULL;
    if (name != NULL) forget_name(s, name);
    free(name);
    return BR_OK;
  }
  if (has_option(a.options, "read_write")) {
    status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "an attached file is opened read-only, so that every executor can read it: leave READ_WRITE out");
    goto done;
  }
  char *text = attach_text(&a, false);
  status = br_session_execute(s->db, text, err);
  free(text);
  if (status == BR_OK) remember_attach(s, &a);
done:
  attach_free(&a);
  return status;
}

/* ---- DDL */

static bool has_word(const char *sql, const char *word) {
  const char *p = sql, *t;
  size_t n;
  while (br_token_next(&p, &t, &n))
    if (br_token_is(t, n, word)) return true;
  return false;
}

/* CREATE VIEW and CREATE MACRO with OR REPLACE, so that an executor may run it again. */
static char *repeatable(const char *sql) {
  const char *p = sql, *t;
  size_t n;
  if (!br_token_next(&p, &t, &n) || !br_token_is(t, n, "create")) return br_strdup(sql);
  const char *rest = p;
  if (!br_token_next(&p, &t, &n) || br_token_is(t, n, "or")) return br_strdup(sql);
  if ((br_token_is(t, n, "temp") || br_token_is(t, n, "temporary")) && !br_token_next(&p, &t, &n))
    return br_strdup(sql);
  if (br_token_next(&p, &t, &n) && br_token_is(t, n, "if")) return br_strdup(sql);
  return br_asprintf("CREATE OR REPLACE %s", rest);
}

/* A view's CSV and JSON scans as ones that DuckDB can write a plan of. */
static br_status scan_texts(brant_session *s, char **text, br_error *err) {
  char *again = NULL;
  br_status status = br_source_text_scans(s->db, *text, &again, err);
  if (again != NULL || status != BR_OK) {
    free(*text);
    *text = again;
  }
  return status;
}

static br_status run_ddl(brant_session *s, const char *sql, br_error *err) {
  char *text = NULL;
  uint64_t bytes = 0;
  BR_TRY(br_source_rewrite(s->db, s->source, sql, &text, &bytes, err));
  if (has_word(sql, "view")) BR_TRY(scan_texts(s, &text, err));
  br_status status = br_session_execute(s->db, text, err);
  if (status == BR_OK) {
    /* Executors get views and macros with whole-query tasks; tables live here alone. */
    if (has_word(sql, "view") || has_word(sql, "macro") || has_word(sql, "function")) {
      char *again = repeatable(text);
      br_texts_add(&s->views, again);
      free(again);
    } else {
      s->has_local_tables = true;
    }
  }
  free(text);
  return status;
}

/* ---- settings */

/* SET [GLOBAL | SESSION | LOCAL] name = | TO value. False: something else (SET VARIABLE, RESET, PRAGMA). */
static bool parse_set(const char *sql, char **name, char **value) {
  const char *p = sql, *t;
  size_t n;
  if (!br_token_next(&p, &t, &n) || !br_token_is(t, n, "set") || !br_token_next(&p, &t, &n)) return false;
  if (br_token_is(t, n, "variable")) return false;
  if ((br_token_is(t, n, "global") || br_token_is(t, n, "session") || br_token_is(t, n, "local")) &&
      !br_token_next(&p, &t, &n))
    return false;
  const char *own = t;
  size_t own_n = n;
  if (!br_token_next(&p, &t, &n) || (!br_token_is(t, n, "=") && !br_token_is(t, n, "to"))) return false;
  if (!br_token_next(&p, &t, &n)) return false;
  const char *first = t, *end = t + n;
  size_t tokens = 1;
  while (br_token_next(&p, &t, &n)) end = t + n, tokens++;
  *name = br_token_unquote(own, own_n);
  *value = tokens == 1 ? br_token_unquote(first, (size_t)(end - first)) : br_strndup(first, (size_t)(end - first));
  return true;
}

/* RESET [GLOBAL | SESSION | LOCAL] name. False: something else. */
static bool parse_reset(const char *sql, char **name) {
  const char *p = sql, *t;
  size_t n;
  if (!br_token_next(&p, &t, &n) || !br_token_is(t, n, "reset") || !br_token_next(&p, &t, &n)) return false;
  if (br_token_is(t, n, "variable")) return false;
  if ((br_token_is(t, n, "global") || br_token_is(t, n, "session") || br_token_is(t, n, "local")) &&
      !br_token_next(&p, &t, &n))
    return false;
  *name = br_token_unquote(t, n);
  return true;
}

/* LOAD, USE, SET VARIABLE, PRAGMA: what a task could need of them. */
static void remember_setting(brant_session *s, const char *sql) {
  const char *p = sql, *t;
  size_t n;
  if (!br_token_next(&p, &t, &n)) return;
  if (br_token_is(t, n, "load"))
    br_texts_add(&s->attach, sql);
  else if (br_token_is(t, n, "use") || br_token_is(t, n, "set") || br_token_is(t, n, "reset"))
    br_texts_add(&s->views, sql); /* a plan has names and variables resolved; a text of its own has not */
}

static br_status run_setting(brant_session *s, const char *sql, br_error *err) {
  char *name = NULL, *value = NULL;
  br_status status;
  if (parse_set(sql, &name, &value)) {
    brant_error be;
    status = brant_set(s, name, value, &be);
    if (status != BR_OK) br_fail(err, (br_code)be.code, (br_blame)be.blame, "%s", be.message);
  } else if (parse_reset(sql, &name)) {
    status = br_settings_reset(s, name, err);
  } else {
    status = br_session_execute(s->db, sql, err);
    if (status == BR_OK) remember_setting(s, sql);
  }
  free(name);
  free(value);
  return status;
}

br_status br_statement_run(brant_session *s, br_statement kind, const char *sql, br_error *err) {
  if (kind == BR_STMT_ATTACH) return run_attach(s, sql, err);
  return kind == BR_STMT_DDL ? run_ddl(s, sql, err) : run_setting(s, sql, err);
}
