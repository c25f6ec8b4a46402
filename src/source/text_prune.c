/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV and JSON files that a filter on the names of their folders (/year=2024/) rules out: they are in no part, and nobody looks into them.
 *
 * DuckDB decides, by the filter's own text, over one row a file with the folders' values in the types that the scan has. Which columns
 * are folders is told here, by their names, which stand in no text: there one may mean something else (user, current_date). What reads other
 * columns, or fails, rules nothing out, nor does a folder whose value is written in a way of its own: escapes, NULL,
 * __HIVE_DEFAULT_PARTITION__.
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

/* Which folder gives the column c of the test; keys of any file. False: none. */
static bool folder_of(const br_text_folders *f, const br_text_test *test, size_t c, const folder_key *keys, size_t n,
                      size_t *out) {
  for (*out = 0; *out < n; ++*out) {
    const folder_key *k = &keys[*out];
    if (strlen(test->names[c]) == k->name_length && !strncmp(test->names[c], k->name, k->name_length))
      return type_of(f, k) != NULL;
  }
  return false;
}

/* (file, value of each column that the test reads); false: one is written in a way of its own. */
static bool row_of(const br_text_folders *f, size_t file, const br_text_test *test, br_buf *row) {
  folder_key keys[KEYS_MOST];
  size_t n, k;
  br_buf_clear(row);
  if (!keys_of(f->paths[file], keys, &n)) return false;
  br_buf_printf(row, "(%zu", file);
  for (size_t c = 0; c < test->n_names; c++) {
    if (!test->names[c]) continue;
    if (!folder_of(f, test, c, keys, n, &k) || !plain(&keys[k])) return false;
    br_buf_str(row, ", CAST(");
    br_buf_sql_literal(row, keys[k].value, keys[k].value_length);
    br_buf_printf(row, " AS %s)", type_of(f, &keys[k]));
  }
  br_buf_char(row, ')');
  return true;
}

static bool all_folders(const br_text_folders *f, const br_text_test *test) {
  folder_key keys[KEYS_MOST];
  size_t n, k;
  if (!keys_of(f->paths[0], keys, &n)) return false;
  for (size_t c = 0; c < test->n_names; c++)
    if (test->names[c] && !folder_of(f, test, c, keys, n, &k)) return false;
  return true;
}

/* SELECT t.f FROM (VALUES …) t(f, c0, …) WHERE …, of the files that fail; false: it reads other columns, too, or no file can be asked for. */
static bool ask(const br_text_folders *f, const br_text_test *test, br_buf *sql) {
  br_buf row = {0};
  size_t rows = 0;
  if (!all_folders(f, test)) return false;
  br_buf_str(sql, "SELECT t.f FROM (VALUES ");
  for (size_t i = 0; i < f->n_files; i++)
    if (row_of(f, i, test, &row)) br_buf_printf(sql, "%s%s", rows++ ? ", " : "", br_buf_cstr(&row));
  br_buf_free(&row);
  br_buf_str(sql, ") t(f");
  for (size_t c = 0; c < test->n_names; c++)
    if (test->names[c]) br_buf_printf(sql, ", c%zu", c);
  br_buf_printf(sql, ") WHERE (%s) IS NOT TRUE", test->condition);
  return rows > 0;
}

br_status br_text_prune(br_session *session, const br_text_folders *f, const br_text_test *tests, size_t n_tests,
                        bool *dropped, br_error *err) {
  br_status status = BR_OK;
  for (size_t i = 0; i < n_tests && status == BR_OK; i++) {
    br_buf sql = {0};
    br_table t;
    br_error ignored;
    bool about = ask(f, &tests[i], &sql);
    if (about) status = br_session_table(session, br_buf_cstr(&sql), &t, &ignored);
    br_buf_free(&sql);
    if (about && status == BR_OK) {
      for (size_t r = 0; r < t.rows; r++) dropped[strtoull(br_table_cell(&t, r, 0), NULL, 10)] = true;
      br_table_free(&t);
    } else if (status == BR_CANCELLED) {
      *err = ignored;
    } else {
      status = BR_OK; /* it is about columns of the files, too, or fails for some value */
    }
  }
  return status;
}
