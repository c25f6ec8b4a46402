/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV and JSON files that a filter on the names of their folders (/year=2024/) rules out: they are in no part, and nobody looks into them.
 *
 * DuckDB decides, by the filter's own text, over one row a file with the folders' values in the types that the scan has. What it can't
 * answer (columns of the files, an error) rules nothing out, nor does a folder whose value is written in a way of its own: escapes,
 * NULL, __HIVE_DEFAULT_PARTITION__.
 *
 * Order: one call a scan, before its files are looked at. Threads: the session's user. Bounds: KEYS_MOST folders with a name a file.
 */
#include "source/internal.h"
#include <ctype.h>
#include <strings.h>

enum { KEYS_MOST = 32 };

typedef struct folder_key {
  const char *name, *value;
  size_t name_length, value_length;
} folder_key;

/* The folders with a '=' of a path, the last part of which is the file's name. False: more than are looked at, or one twice. */
static bool keys_of(const char *path, folder_key *keys, size_t *n) {
  *n = 0;
  for (const char *at = path, *end; (end = strchr(at, '/')); at = end + 1) {
    const char *equal = memchr(at, '=', (size_t)(end - at));
    if (!equal || equal == at || memchr(equal + 1, '=', (size_t)(end - equal - 1))) continue;
    folder_key k = {
        .name = at, .name_length = (size_t)(equal - at), .value = equal + 1, .value_length = (size_t)(end - equal - 1)};
    if (*n == KEYS_MOST) return false;
    for (size_t i = 0; i < *n; i++)
      if (keys[i].name_length == k.name_length && !strncasecmp(keys[i].name, k.name, k.name_length)) return false;
    keys[(*n)++] = k;
  }
  return *n > 0;
}

static bool same_names(const folder_key *a, const folder_key *b, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (a[i].name_length != b[i].name_length || strncmp(a[i].name, b[i].name, a[i].name_length) != 0) return false;
  return true;
}

static size_t depth_of(const char *path) {
  size_t n = 0;
  for (; *path; path++) n += *path == '/';
  return n;
}

/* Are the folders columns, without having been asked for? As deep everywhere, and no such thing in the files' own names. */
static bool found_by_itself(const br_text_folders *f) {
  for (size_t i = 0; i < f->n_files; i++) {
    const char *file = strrchr(f->paths[i], '/');
    if (!file || strchr(file, '=') || depth_of(f->paths[i]) != depth_of(f->paths[0])) return false;
  }
  return true;
}

static bool plain(const folder_key *k) {
  for (size_t i = 0; i < k->value_length; i++)
    if (!isalnum((unsigned char)k->value[i]) && !strchr("-_.: ", k->value[i])) return false;
  return k->value_length > 0 && !(k->value_length == 4 && !strncasecmp(k->value, "null", 4)) &&
         k->value[0] != '_'; /* __HIVE_DEFAULT_PARTITION__ */
}

static const char *type_of(const br_text_folders *f, const folder_key *k) {
  for (size_t i = 0; i < f->n_columns; i++)
    if (strlen(f->names[i]) == k->name_length && !strncmp(f->names[i], k->name, k->name_length)) return f->types[i];
  return NULL;
}

bool br_text_named_folders(const br_text_folders *f) {
  folder_key first[KEYS_MOST], keys[KEYS_MOST];
  size_t n_first = 0, n;
  if (f->n_files == 0 || !keys_of(f->paths[0], first, &n_first)) return false;
  for (size_t i = 1; i < f->n_files; i++)
    if (!keys_of(f->paths[i], keys, &n) || n != n_first || !same_names(first, keys, n)) return false;
  return f->asked_for || found_by_itself(f);
}

/* Does the test read the column? It stands there as it is quoted here. */
static bool reads(const char *test, const folder_key *k) {
  br_buf name = {0};
  char *text = br_strndup(k->name, k->name_length);
  br_buf_str(&name, ", ");
  br_buf_sql_ident(&name, text);
  br_buf_str(&name, " AS c");
  bool found = strstr(test, br_buf_cstr(&name)) != NULL;
  free(text);
  br_buf_free(&name);
  return found;
}

static void add_row(const br_text_folders *f, size_t file, const bool *wanted, bool first, br_buf *sql) {
  folder_key keys[KEYS_MOST];
  size_t n;
  if (!keys_of(f->paths[file], keys, &n)) return;
  br_buf_printf(sql, "%s(%zu", first ? "" : ", ", file);
  for (size_t k = 0; k < n; k++) {
    if (!wanted[k]) continue;
    br_buf_str(sql, ", CAST(");
    br_buf_sql_literal(sql, keys[k].value, keys[k].value_length);
    br_buf_printf(sql, " AS %s)", type_of(f, &keys[k]));
  }
  br_buf_char(sql, ')');
}

static bool all_plain(const br_text_folders *f, size_t file, const bool *wanted) {
  folder_key keys[KEYS_MOST];
  size_t n;
  bool plainly = keys_of(f->paths[file], keys, &n);
  for (size_t k = 0; plainly && k < n; k++) plainly = !wanted[k] || plain(&keys[k]);
  return plainly;
}

/* WITH folders(…) AS (VALUES (number of the file, values that the test reads), …) SELECT …; false: it reads none, or no file has any. */
static bool ask(const br_text_folders *f, const char *test, br_buf *sql) {
  folder_key keys[KEYS_MOST];
  bool wanted[KEYS_MOST], any = false;
  size_t n, rows = 0;
  if (!keys_of(f->paths[0], keys, &n)) return false;
  br_buf_str(sql, "WITH folders(\"" BR_TEXT_FILE "\"");
  for (size_t k = 0; k < n; k++) {
    wanted[k] = reads(test, &keys[k]) && type_of(f, &keys[k]);
    if (!wanted[k]) continue;
    any = true;
    char *name = br_strndup(keys[k].name, keys[k].name_length);
    br_buf_str(sql, ", ");
    br_buf_sql_ident(sql, name);
    free(name);
  }
  br_buf_str(sql, ") AS (VALUES ");
  for (size_t i = 0; any && i < f->n_files; i++)
    if (all_plain(f, i, wanted)) add_row(f, i, wanted, rows++ == 0, sql);
  br_buf_printf(sql, ") SELECT f FROM (%s) WHERE ok IS NOT TRUE", test);
  return rows > 0;
}

br_status br_text_prune(br_session *session, const br_text_folders *f, const char *const *tests, size_t n_tests,
                        bool *dropped, br_error *err) {
  br_status status = BR_OK;
  for (size_t i = 0; i < n_tests && status == BR_OK; i++) {
    br_buf sql = {0};
    br_table t;
    br_error ignored;
    bool about = ask(f, tests[i], &sql);
    if (about) status = br_session_table(session, br_buf_cstr(&sql), &t, &ignored);
    br_buf_free(&sql);
    if (about && status == BR_OK) {
      for (size_t r = 0; r < t.rows; r++) dropped[strtoull(br_table_cell(&t, r, 0), NULL, 10)] = true;
      br_table_free(&t);
    } else if (status == BR_CANCELLED) {
      *err = ignored;
    } else {
      status = BR_OK; /* it is about columns of the files, too */
    }
  }
  return status;
}
