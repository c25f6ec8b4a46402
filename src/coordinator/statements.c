/* SPDX-License-Identifier: Apache-2.0
 * Statements without rows: DDL, settings, LOAD, ATTACH and DETACH. Each is run on the caller's connection; what tasks need to know
 * of it is remembered as the text that executors run before a query (their prelude). Each executor runs it in every new session, so
 * each text must stand to be repeated. The caller's thread.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"
#include "coordinator/stored_text.h"
#include "coordinator/tokens.h"

#define ATTACH_WAIT_MS 5000u /* for executors to close a file that shall be written */
#define ATTACH_AGAIN_MS 20

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

/* As asked for; a file that isn't there yet can only be written. */
static bool for_writing(const attach *a) {
  if (has_option(a->options, "read_write")) return true;
  if (has_option(a->options, "read_only") || has_option(a->options, "type") || strchr(a->path, ':') != NULL)
    return strcasecmp(a->path, ":memory:") == 0;
  return a->path[0] == 0 || access(a->path, F_OK) != 0;
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
  remove_text(&s->writable, name);
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

/* The file is this process's own: DuckDB lets one process write, and then no other read. Executors close a file when the last query that
 * they had has ended, which may be a moment after its rows were read. */
static br_status attach_for_writing(brant_session *s, const char *sql, const attach *a, br_error *err) {
  struct timespec step = {.tv_nsec = ATTACH_AGAIN_MS * 1000000L};
  br_status status;
  for (uint64_t start = br_now_ms();;) {
    BR_TRY(br_session_check_interrupt(s, err));
    status = br_session_execute(s->db, sql, err);
    bool again = status == BR_IO && s->driver != NULL && br_now_ms() - start < ATTACH_WAIT_MS;
    if (!again) break;
    nanosleep(&step, NULL);
  }
  BR_TRY(status);
  forget_name(s, a->name);
  br_texts_add(&s->writable, a->name);
  s->has_local_tables = true;
  return BR_OK;
}

bool br_session_writes(const brant_session *s, const char *catalog) {
  for (size_t i = 0; i < s->writable.count; i++)
    if (strcasecmp(s->writable.items[i], catalog) == 0) return true;
  return false;
}

/* The catalog before the name of what the statement changes; NULL: none is named. Free it. */
static char *changed_catalog(const char *sql) {
  static const char *const kinds[] = {"insert", "create", "update", "delete", "drop", "alter", "merge", "truncate"};
  static const char *const places[] = {"into", "from", "table", "view", "schema", "update", "sequence", "type"};
  const char *p = sql, *t;
  size_t n;
  bool writes = false, placed = false;
  char *name = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !writes; i++) writes = br_token_take(&p, kinds[i]);
  if (!writes) return NULL;
  for (p = sql; !placed && br_token_next(&p, &t, &n) && *t != '(' && !br_token_is(t, n, "as");)
    for (size_t i = 0; i < sizeof places / sizeof *places && !placed; i++) placed = br_token_is(t, n, places[i]);
  if (br_token_take(&p, "if")) {
    br_token_take(&p, "not");
    br_token_take(&p, "exists");
  }
  if (!placed || !br_token_name(&p, &name)) return NULL;
  if (br_token_take(&p, ".")) return name;
  free(name);
  return NULL;
}

br_status br_session_check_writable(brant_session *s, const char *sql, br_error *err) {
  char *catalog = s->attach.count > 0 ? changed_catalog(sql) : NULL;
  bool only_read = false;
  for (size_t i = 0; catalog != NULL && i < s->attach.count && !only_read; i++) {
    attach a;
    only_read = parse_attach(s->attach.items[i], &a) && strcasecmp(a.name, catalog) == 0;
    attach_free(&a);
  }
  br_status status = BR_OK;
  if (only_read)
    status = br_fail(err, BR_INVALID, BR_BLAME_USER,
                     "%s is attached for reading, so that workers can read it too: DETACH it, and ATTACH … AS %s "
                     "(READ_WRITE) to write it from this process",
                     catalog, catalog);
  free(catalog);
  return status;
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
  BR_TRY_GOTO(br_session_at_home(s, &a.path, err));
  if (for_writing(&a)) {
    status = attach_for_writing(s, sql, &a, err);
  } else {
    char *text = attach_text(&a, false);
    status = br_session_execute(s->db, text, err);
    free(text);
    if (status == BR_OK) remember_attach(s, &a);
  }
done:
  attach_free(&a);
  return status;
}

/* ---- DDL */

static bool one_of(const char *t, size_t n, const char *const *words) {
  while (*words != NULL && !br_token_is(t, n, *words)) words++;
  return *words != NULL;
}

/* What it is about: the word behind CREATE OR REPLACE TEMP …, ALTER, DROP. p moves behind it. */
static bool is_about(const char **p, const char *const *kinds) {
  static const char *const verbs[] = {"create", "alter", "drop", NULL};
  static const char *const between[] = {"or", "replace", "temp", "temporary", "persistent", "recursive", NULL};
  const char *t;
  size_t n;
  if (!br_token_next(p, &t, &n) || !one_of(t, n, verbs)) return false;
  while (br_token_next(p, &t, &n))
    if (!one_of(t, n, between)) return one_of(t, n, kinds);
  return false;
}

/* Executors get views and macros with whole-query tasks; tables live here alone. */
static bool is_about_views(const char *sql, const char **rest) {
  static const char *const kinds[] = {"view", "macro", "function", NULL};
  *rest = sql;
  return is_about(rest, kinds);
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

/* ALTER VIEW … RENAME TO: an executor that has done it once has a view of the new name. Free it; NULL: the statement is another. */
static char *drop_renamed(const char *sql) {
  const char *p = sql, *t, *place;
  size_t n;
  char *name;
  if (!br_token_take(&p, "alter") || !br_token_take(&p, "view")) return NULL;
  const char *first = place = p;
  while (br_token_name(&p, &name)) {
    free(name);
    if (!br_token_take(&p, ".")) break;
    place = p;
  }
  if (!br_token_take(&p, "rename") || !br_token_take(&p, "to") || !br_token_next(&p, &t, &n)) return NULL;
  return br_asprintf("DROP VIEW IF EXISTS %.*s %.*s", (int)(place - first), first, (int)n, t);
}

/* Behind its kind: [IF [NOT] EXISTS] name. */
static bool is_qualified(const char *p) {
  char *name = NULL;
  if (br_token_take(&p, "if")) {
    br_token_take(&p, "not");
    br_token_take(&p, "exists");
  }
  bool named = br_token_name(&p, &name);
  free(name);
  return named && br_token_take(&p, ".");
}

static void remember_view(brant_session *s, const char *sql, const char *rest) {
  if (s->used_here && !is_qualified(rest)) return; /* it is in a schema that executors have not */
  char *before = drop_renamed(sql), *again = repeatable(sql);
  if (before != NULL) br_texts_add(&s->views, before);
  br_texts_add(&s->views, again);
  free(before);
  free(again);
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

/* CREATE TABLE … AS answers with its number of rows. */
static br_status run_counting(brant_session *s, const char *sql, int64_t *count, br_error *err) {
  br_stored_text t;
  br_table answer;
  if (!br_stored_parse(sql, &t)) return br_session_execute(s->db, sql, err);
  br_stored_text_free(&t);
  BR_TRY(br_session_table(s->db, sql, &answer, err));
  if (answer.rows > 0) *count = strtoll(br_table_cell(&answer, 0, 0), NULL, 10);
  br_table_free(&answer);
  return BR_OK;
}

static bool takes_away(const char *sql) {
  const char *p = sql;
  return br_token_take(&p, "drop") || br_token_take(&p, "deallocate") || br_token_take(&p, "comment");
}

/* CREATE SCHEMA: this process alone has it. */
static void note_schema(brant_session *s, const char *sql) {
  static const char *const kinds[] = {"schema", NULL};
  const char *p = sql;
  char *name = NULL;
  if (!is_about(&p, kinds) || takes_away(sql)) return;
  if (br_token_take(&p, "if")) {
    br_token_take(&p, "not");
    br_token_take(&p, "exists");
  }
  for (bool more = br_token_name(&p, &name); more; more = br_token_take(&p, ".") && br_token_name(&p, &name)) {
    char *part = name;
    name = NULL;
    const char *behind = p;
    if (!br_token_take(&behind, ".")) br_texts_add(&s->schemas, br_token_small(part));
    free(part);
  }
}

static br_status run_ddl(brant_session *s, const char *sql, int64_t *count, br_error *err) {
  char *text = NULL;
  uint64_t bytes = 0;
  BR_TRY(br_source_rewrite(s->db, s->source, sql, &text, &bytes, err));
  const char *rest;
  if (is_about_views(sql, &rest)) BR_TRY(scan_texts(s, &text, err));
  br_status status = run_counting(s, text, count, err);
  if (status == BR_OK) {
    note_schema(s, sql);
    if (is_about_views(text, &rest))
      remember_view(s, text, rest);
    else if (!takes_away(sql))
      s->has_local_tables = true;
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

br_status br_place_note(brant_session *s, const char *sql, br_error *err) {
  br_table t;
  BR_TRY(br_session_table(s->db, "SELECT current_database(), current_schema()", &t, err));
  const char *catalog = br_table_cell(&t, 0, 0), *schema = br_table_cell(&t, 0, 1);
  bool own = strcasecmp(catalog, "memory") == 0 && strcasecmp(schema, "main") != 0;
  s->used_here = own || br_session_writes(s, catalog);
  br_table_free(&t);
  free(s->use);
  s->use = br_strdup(sql);
  if (!s->used_here) br_texts_add(&s->views, sql); /* a plan has names resolved; a text of its own has not */
  return BR_OK;
}

/* LOAD, USE, SET VARIABLE, PRAGMA: what a task could need of them. */
static br_status remember_setting(brant_session *s, const char *sql, br_error *err) {
  const char *p = sql, *t;
  size_t n;
  if (!br_token_next(&p, &t, &n)) return BR_OK;
  if (br_token_is(t, n, "use")) return br_place_note(s, sql, err);
  if (br_token_is(t, n, "load")) br_texts_add(&s->attach, sql);
  return br_variable_note(s, sql, err);
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
    if (status == BR_OK) status = remember_setting(s, sql, err);
  }
  free(name);
  free(value);
  return status;
}

br_status br_statement_run(brant_session *s, br_statement kind, const char *sql, int64_t *count, br_error *err) {
  *count = -1;
  if (kind == BR_STMT_ATTACH) return run_attach(s, sql, err);
  return kind == BR_STMT_DDL ? run_ddl(s, sql, count, err) : run_setting(s, sql, err);
}

/* ---- transactions: DuckDB's own; here only what the session has beside it */

void br_transaction_note(brant_session *s, const char *sql, bool done) {
  const char *p = sql;
  if (br_token_take(&p, "begin") || br_token_take(&p, "start")) {
    if (!done) return;
    s->in_transaction = true;
    s->views_at_begin = s->views.count;
    return;
  }
  bool back = br_token_take(&p, "rollback") || br_token_take(&p, "abort");
  if (!back && !br_token_take(&p, "commit") && !br_token_take(&p, "end")) return;
  if (!s->in_transaction) return;
  s->in_transaction = false; /* a COMMIT that fails has rolled back */
  while ((back || !done) && s->views.count > s->views_at_begin) br_texts_remove(&s->views, s->views.count - 1);
}
