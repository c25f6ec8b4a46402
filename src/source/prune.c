/* SPDX-License-Identifier: Apache-2.0
 *
 * Row groups that a scan's filters rule out by their statistics, so that no task is made for them and those that are made have equal
 * shares of what is left. DuckDB leaves them out too, but only inside a task.
 *
 * The bounds of a column are asked for when a filter is about it for the first time, and then stay with the file's cached footer.
 * Order: after br_source_snapshot, before br_snapshot_splits. Threads: the session's user. Bounds: PRUNE_FILES files, fewer remote ones,
 * whose footers are read anew for it; KEPT_BYTES in the cache.
 */
#include "source/internal.h"
#include <strings.h>

enum {
  PRUNE_FILES = 4096,
  PRUNE_REMOTE_FILES = 64,
  TEXT_MOST_BYTES = 1024, /* of a bound: others are unknown */
  KEPT_BYTES = 64 << 20   /* of bounds; when there are more, all are asked for anew */
};

static bool worth_it(const br_snapshot *s) {
  size_t groups = 0, remote = 0;
  for (size_t i = 0; i < s->n; i++) {
    groups += s->files[i]->file.n_groups;
    remote += !s->files[i]->file.local;
  }
  return groups > 1 && s->n <= PRUNE_FILES && remote <= PRUNE_REMOTE_FILES;
}

/* ---- what is known of a file */

static column_bounds *find(const footer *f, const char *column) {
  for (column_bounds *b = f->bounds; b; b = b->next)
    if (strcasecmp(b->column, column) == 0) return b;
  return NULL;
}

static void add_unknown(footer *f, const char *column) {
  column_bounds *b = br_calloc(1, sizeof *b + f->file.n_groups * sizeof *b->groups);
  b->column = br_strdup(column);
  b->next = f->bounds;
  f->bounds = b;
  f->bounds_bytes += sizeof *b + strlen(column) + f->file.n_groups * sizeof *b->groups;
}

void br_footer_bounds_free(footer *f) {
  for (column_bounds *b = f->bounds, *next; b; b = next) {
    next = b->next;
    for (size_t g = 0; g < f->file.n_groups; g++) {
      free(b->groups[g].least);
      free(b->groups[g].greatest);
    }
    free(b->column);
    free(b->stored);
    free(b);
  }
  f->bounds = NULL;
  f->bounds_bytes = 0;
}

static void keep_few(br_source *source) {
  const char *path;
  void *f;
  if (source->bounds_bytes <= KEPT_BYTES) return;
  for (size_t it = 0; br_smap_next(source->footers, &it, &path, &f);) br_footer_bounds_free(f);
  source->bounds_bytes = 0;
}

/* ---- asking for it */

static bool knows_all(const footer *f, const br_pruned_column *columns, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!find(f, columns[i].name)) return false;
  return true;
}

/* Files without all of them, one of each reported name. */
static size_t lacking(const br_snapshot *s, const br_pruned_column *columns, size_t n, footer **out, br_smap *by_name) {
  size_t count = 0;
  for (size_t i = 0; i < s->n; i++) {
    footer *f = s->files[i];
    const char *name = br_reported_name(f->file.path);
    if (f->names_meet || knows_all(f, columns, n) || br_smap_get(by_name, name)) continue;
    br_smap_put(by_name, name, f);
    out[count++] = f;
  }
  return count;
}

/* A row a column of a row group. Of text only what the file says is UTF-8; a 0 byte would end a bound too early. */
static void query_text(footer *const *files, size_t n_files, const br_pruned_column *columns, size_t n, br_buf *sql) {
  br_buf list = {0}, names = {0};
  const char **paths = br_calloc(n_files, sizeof *paths);
  bool text = false;
  for (size_t i = 0; i < n_files; i++) paths[i] = files[i]->file.path;
  br_sql_paths(paths, n_files, &list);
  for (size_t i = 0; i < n; i++) {
    br_buf_str(&names, i ? ", lower(" : "lower(");
    br_buf_sql_literal(&names, columns[i].name, strlen(columns[i].name));
    br_buf_char(&names, ')');
    text = text || columns[i].kind == 's';
  }
  br_buf_str(sql, "SELECT m.file_name, CAST(m.row_group_id AS VARCHAR), m.path_in_schema, ");
  if (text)
    br_buf_printf(sql,
                  "CASE WHEN m.type <> 'BYTE_ARRAY' THEN m.type WHEN (m.file_name, m.path_in_schema) IN (SELECT "
                  "(s.file_name, s.name) FROM parquet_schema(%s) s WHERE s.converted_type = '" BR_STORED_TEXT
                  "') THEN '" BR_STORED_TEXT "' END",
                  br_buf_cstr(&list));
  else
    br_buf_str(sql, "m.type");
  br_buf_printf(sql,
                ", m.stats_min_value, CASE WHEN NOT contains(m.stats_max_value, chr(0)) THEN m.stats_max_value END, "
                "CASE WHEN m.stats_null_count = m.num_values THEN '1' END FROM parquet_metadata(%s) m "
                "WHERE lower(m.path_in_schema) IN (%s)",
                br_buf_cstr(&list), br_buf_cstr(&names));
  free(paths);
  br_buf_free(&list);
  br_buf_free(&names);
}

static char *bound(const char *text) { return text && strlen(text) <= TEXT_MOST_BYTES ? br_strdup(text) : NULL; }

static void take_row(const br_table *t, size_t r, const br_smap *by_name) {
  footer *f = br_smap_get(by_name, br_table_cell(t, r, 0));
  column_bounds *b = f ? find(f, br_table_cell(t, r, 2)) : NULL;
  size_t group = strtoull(br_table_cell(t, r, 1), NULL, 10);
  if (!b || group >= f->file.n_groups) return;
  group_bounds *g = &b->groups[group];
  const char *stored = br_table_cell(t, r, 3);
  if (!b->stored && stored) b->stored = br_strdup(stored);
  if (g->least || g->greatest) return; /* it was known, or there are two of that name */
  g->least = bound(br_table_cell(t, r, 4));
  g->greatest = bound(br_table_cell(t, r, 5));
  g->all_null = br_table_cell(t, r, 6) != NULL;
  f->bounds_bytes += (g->least ? strlen(g->least) : 0) + (g->greatest ? strlen(g->greatest) : 0);
}

/* Of those in the cache: others go with their snapshot. */
static size_t cached_bytes(const br_source *source, footer *const *files, size_t n) {
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++)
    if (br_smap_get(source->footers, files[i]->file.path) == files[i]) bytes += files[i]->bounds_bytes;
  return bytes;
}

static void learn(br_session *session, br_source *source, const br_snapshot *s, const br_pruned_column *columns,
                  size_t n) {
  footer **files = br_calloc(s->n + 1, sizeof *files);
  br_smap *by_name = br_smap_new();
  br_buf sql = {0};
  br_table t = {0};
  br_error ignored; /* whoever reads the files will say what is wrong with them */
  size_t n_files = lacking(s, columns, n, files, by_name);
  if (n_files) query_text(files, n_files, columns, n, &sql);
  if (n_files && br_session_table(session, br_buf_cstr(&sql), &t, &ignored) == BR_OK) {
    size_t before = cached_bytes(source, files, n_files);
    for (size_t i = 0; i < n_files * n; i++)
      if (!find(files[i / n], columns[i % n].name)) add_unknown(files[i / n], columns[i % n].name);
    for (size_t r = 0; r < t.rows; r++) take_row(&t, r, by_name);
    source->bounds_bytes += cached_bytes(source, files, n_files) - before;
  }
  br_table_free(&t);
  br_buf_free(&sql);
  br_smap_free(by_name);
  free(files);
}

/* ---- leaving out */

static bool ruled_out(const footer *f, size_t group, const br_pruned_column *columns, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const column_bounds *b = f->names_meet ? NULL : find(f, columns[i].name);
    if (b && !br_bounds_possible(&columns[i], b->stored, &b->groups[group])) return true;
  }
  return false;
}

void br_snapshot_prune(br_session *session, br_source *source, const br_snapshot *s, const char *condition, bool ***out,
                       uint64_t *bytes) {
  br_arena *mem = br_arena_new();
  size_t n = 0;
  br_pruned_column *columns = br_prune_parse(mem, condition, &n);
  if (!worth_it(s)) n = 0;
  if (n) learn(session, source, s, columns, n);
  *out = br_calloc(s->n + 1, sizeof **out);
  *bytes = 0;
  for (size_t i = 0; i < s->n; i++) {
    const br_file *f = &s->files[i]->file;
    (*out)[i] = br_calloc(f->n_groups + 1, sizeof ***out);
    for (size_t g = 0; g < f->n_groups; g++) {
      (*out)[i][g] = ruled_out(s->files[i], g, columns, n);
      if (!(*out)[i][g]) *bytes += f->groups[g].bytes;
    }
  }
  if (n) keep_few(source);
  br_arena_free(mem);
}

void br_prune_free(const br_snapshot *s, bool **left_out) {
  for (size_t i = 0; left_out && i < s->n; i++) free(left_out[i]);
  free(left_out);
}
