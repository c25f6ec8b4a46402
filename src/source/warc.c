/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits of WARC files. They have no footers: sizes come from the file system, and where a large file may be cut is asked of
 * warc_cuts(), which finds starts of records near the wanted borders.
 * Order: any. Threads: the session's user. Bounds: at most CUTS_MOST parts of a file.
 */
#include "source/internal.h"
#include <unistd.h>

enum { CUTS_MOST = 4096 };

static void free_texts(char **texts, size_t n) {
  for (size_t i = 0; i < n; i++) free(texts[i]);
  free(texts);
}

/* Executors may run elsewhere in the tree of folders: names that the caller's folder completes are made absolute. */
static br_status expand(br_session *session, const char *const *patterns, size_t n, char ***paths, size_t *n_paths,
                        br_error *err) {
  BR_TRY(br_source_expand(session, patterns, n, paths, n_paths, err));
  char *cwd = getcwd(NULL, 0);
  for (size_t i = 0; cwd && i < *n_paths; i++) {
    char *name = (*paths)[i];
    if (name[0] == '/' || !br_path_is_local(name)) continue;
    (*paths)[i] = br_asprintf("%s/%s", cwd, name);
    free(name);
  }
  free(cwd);
  return BR_OK;
}

br_status br_warc_bytes(br_session *session, const char *const *patterns, size_t n, uint64_t *bytes, br_error *err) {
  char **paths = NULL;
  size_t n_paths = 0;
  br_status status = br_source_expand(session, patterns, n, &paths, &n_paths, err);
  *bytes = 0;
  for (size_t i = 0; status == BR_OK && i < n_paths; i++) {
    uint64_t size, mtime;
    status = br_local_stat(paths[i], &size, &mtime, err);
    if (status == BR_OK) *bytes += size;
  }
  free_texts(paths, n_paths);
  return status;
}

/* ---- splits */

typedef struct splitting {
  br_session *session;
  const char *options;
  uint64_t target;
  char **out;
  size_t n, capacity;
  br_buf names; /* whole files of the split that is being made */
  uint64_t bytes;
} splitting;

static void add_split(splitting *s, char *sql) {
  br_grow((void **)&s->out, &s->capacity, s->n, sizeof *s->out);
  s->out[s->n++] = sql;
}

/* exact_names: a name with a '*' in it is a name here. */
static void flush(splitting *s) {
  if (!s->names.len) return;
  add_split(s, br_asprintf("read_warc([%s]%s, exact_names := true)", br_buf_cstr(&s->names), s->options));
  br_buf_clear(&s->names);
  s->bytes = 0;
}

static void add_range(splitting *s, const char *path, uint64_t first, uint64_t end) {
  br_buf b = {0};
  br_buf_str(&b, "read_warc([");
  br_buf_sql_literal(&b, path, strlen(path));
  br_buf_printf(&b, "]%s, exact_names := true, first_byte := %llu, last_byte := %llu)", s->options,
                (unsigned long long)first, (unsigned long long)end - 1);
  add_split(s, br_buf_take(&b));
}

static br_status cut_file(splitting *s, const char *path, uint64_t size, br_error *err) {
  uint64_t parts = (size + s->target - 1) / s->target, first = 0;
  br_buf sql = {0};
  br_table t;
  if (parts > CUTS_MOST) parts = CUTS_MOST;
  br_buf_str(&sql, "SELECT \"offset\" FROM warc_cuts(");
  br_buf_sql_literal(&sql, path, strlen(path));
  br_buf_printf(&sql, ", %llu) ORDER BY ALL", (unsigned long long)parts);
  br_status status = br_session_table(s->session, br_buf_cstr(&sql), &t, err);
  br_buf_free(&sql);
  if (status != BR_OK) return br_error_context(err, "cutting %s", path);
  for (size_t i = 0; i < t.rows; i++) {
    uint64_t cut = strtoull(br_table_cell(&t, i, 0), NULL, 10);
    add_range(s, path, first, cut);
    first = cut;
  }
  add_range(s, path, first, size);
  br_table_free(&t);
  return BR_OK;
}

static br_status add_file(splitting *s, const char *path, br_error *err) {
  uint64_t size, mtime;
  BR_TRY(br_local_stat(path, &size, &mtime, err));
  if (s->target && size > s->target + s->target / 2) {
    flush(s);
    return cut_file(s, path, size, err);
  }
  if (s->target && s->bytes + size / 2 > s->target) flush(s);
  if (s->names.len) br_buf_str(&s->names, ", ");
  br_buf_sql_literal(&s->names, path, strlen(path));
  s->bytes += size;
  return BR_OK;
}

br_status br_warc_splits(br_session *session, const char *const *patterns, size_t n, const char *options,
                         uint64_t target_bytes, char ***out, size_t *n_out, br_snapshot **pinned, br_error *err) {
  splitting s = {.session = session, .options = options, .target = target_bytes};
  char **paths = NULL;
  size_t n_paths = 0;
  br_status status = BR_OK;
  BR_TRY_GOTO(expand(session, patterns, n, &paths, &n_paths, err));
  BR_TRY_GOTO(
      br_snapshot_of_files((const char *const *)paths, n_paths, pinned, err)); /* before anything is read of them */
  for (size_t i = 0; i < n_paths; i++) BR_TRY_GOTO(add_file(&s, paths[i], err));
  flush(&s);
  *out = s.out;
  *n_out = s.n;
  s.out = NULL;
done:
  if (s.out) free_texts(s.out, s.n);
  br_buf_free(&s.names);
  free_texts(paths, n_paths);
  return status;
}
