/* SPDX-License-Identifier: Apache-2.0
 *
 * Row groups that a scan's filters rule out by their statistics, so that no task is made for them and those that are made have equal
 * shares of what is left. DuckDB leaves them out too, but only inside a task.
 * Order: after br_source_snapshot, before br_snapshot_splits. Threads: the session's user. Bounds: PRUNE_FILES files, fewer remote ones,
 * whose footers are asked for anew.
 */
#include "source/internal.h"

enum { PRUNE_FILES = 4096, PRUNE_REMOTE_FILES = 64 };

static bool worth_it(const br_snapshot *s) {
  size_t groups = 0, remote = 0;
  for (size_t i = 0; i < s->n; i++) {
    groups += s->files[i]->file.n_groups;
    remote += !s->files[i]->file.local;
  }
  return groups > 1 && s->n <= PRUNE_FILES && remote <= PRUNE_REMOTE_FILES;
}

static void query_text(const br_snapshot *s, const char *condition, const char *files, br_buf *sql) {
  br_buf list = {0};
  const char **paths = br_calloc(s->n, sizeof *paths), *at;
  for (size_t i = 0; i < s->n; i++) paths[i] = s->files[i]->file.path;
  br_sql_paths(paths, s->n, &list);
  br_buf_printf(sql, "SELECT DISTINCT m.file_name, CAST(m.row_group_id AS VARCHAR) FROM parquet_metadata(%s) m WHERE ",
                br_buf_cstr(&list));
  for (; (at = strstr(condition, files)) != NULL; condition = at + strlen(files)) {
    br_buf_add(sql, condition, (size_t)(at - condition));
    br_buf_str(sql, br_buf_cstr(&list));
  }
  br_buf_str(sql, condition);
  free(paths);
  br_buf_free(&list);
}

/* Where each name comes first, plus one: a file named twice has one list. */
static size_t first_of(const br_smap *by_name, const char *name) {
  return (size_t)(uintptr_t)br_smap_get(by_name, name);
}

static void mark(const br_snapshot *s, const br_table *t, bool **out) {
  br_smap *by_name = br_smap_new();
  for (size_t i = s->n; i-- > 0;)
    br_smap_put(by_name, br_reported_name(s->files[i]->file.path), (void *)(uintptr_t)(i + 1));
  for (size_t r = 0; r < t->rows; r++) {
    size_t at = first_of(by_name, br_table_cell(t, r, 0)), group = strtoull(br_table_cell(t, r, 1), NULL, 10);
    if (at && !s->files[at - 1]->names_meet && group < s->files[at - 1]->file.n_groups) out[at - 1][group] = true;
  }
  for (size_t i = 0; i < s->n; i++) {
    size_t at = first_of(by_name, br_reported_name(s->files[i]->file.path)) - 1;
    if (at != i) memcpy(out[i], out[at], s->files[i]->file.n_groups * sizeof **out);
  }
  br_smap_free(by_name);
}

void br_snapshot_prune(br_session *session, const br_snapshot *s, const char *condition, const char *files, bool ***out,
                       uint64_t *bytes) {
  br_buf sql = {0};
  br_table t = {0};
  br_error ignored; /* whoever reads the files will say what is wrong with them */
  *out = br_calloc(s->n + 1, sizeof **out);
  for (size_t i = 0; i < s->n; i++) (*out)[i] = br_calloc(s->files[i]->file.n_groups + 1, sizeof ***out);
  if (worth_it(s)) {
    query_text(s, condition, files, &sql);
    if (br_session_table(session, br_buf_cstr(&sql), &t, &ignored) == BR_OK) mark(s, &t, *out);
  }
  *bytes = 0;
  for (size_t i = 0; i < s->n; i++)
    for (size_t g = 0; g < s->files[i]->file.n_groups; g++)
      if (!(*out)[i][g]) *bytes += s->files[i]->file.groups[g].bytes;
  br_table_free(&t);
  br_buf_free(&sql);
}

void br_prune_free(const br_snapshot *s, bool **left_out) {
  for (size_t i = 0; left_out && i < s->n; i++) free(left_out[i]);
  free(left_out);
}
