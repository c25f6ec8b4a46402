/* SPDX-License-Identifier: Apache-2.0
 *
 * Footers, cached, and the files of a query as they were when it began.
 * Order: br_source_snapshot, then anything that reads it, br_snapshot_check before results are believed.
 * Threads: the cache has one user; snapshots are read-only. Bounds: the cache holds BR_SOURCE_CACHE_FILES footers and starts
 * anew when it is full; QUERY_FILES files a query.
 */
#include "source/internal.h"
#include <strings.h>

enum { QUERY_FILES = 4096 };

br_source *br_source_new(void) {
  br_source *s = br_calloc(1, sizeof *s);
  s->footers = br_smap_new();
  return s;
}

footer *br_footer_ref(footer *f) {
  atomic_fetch_add(&f->refs, 1);
  return f;
}

void br_footer_unref(footer *f) {
  if (!f || atomic_fetch_sub(&f->refs, 1) != 1) return;
  br_footer_bounds_free(f);
  br_arena_free(f->mem);
}

static void forget_all(br_source *s) {
  const char *path;
  void *value;
  for (size_t it = 0; br_smap_next(s->footers, &it, &path, &value);) br_footer_unref(value);
  br_smap_free(s->footers);
  s->footers = br_smap_new();
  s->bounds_bytes = 0;
}

void br_source_free(br_source *s) {
  if (!s) return;
  forget_all(s);
  br_smap_free(s->footers);
  free(s);
}

static footer *footer_new(const char *path, bool local, uint64_t size_bytes, uint64_t mtime_ns) {
  br_arena *mem = br_arena_new();
  footer *f = br_arena_alloc(mem, sizeof *f);
  f->mem = mem;
  f->refs = 1;
  f->file.path = br_arena_strdup(mem, path);
  f->file.local = local;
  f->file.size_bytes = size_bytes;
  f->file.mtime_ns = mtime_ns;
  return f;
}

/* ---- reading footers: a row a file; groups "rows:bytes,…", columns "name US bytes RS …" (bytes!: several of that name), ranges as ranges.c says */

static char *footer_sql(const char *const *paths, size_t n) {
  br_buf sql = {0};
  br_buf_str(&sql,
             "WITH m AS MATERIALIZED (SELECT file_name AS f, row_group_id AS g, row_group_num_rows AS r, "
             "split_part(path_in_schema, ', ', 1) AS c, total_compressed_size AS b, path_in_schema AS p, type AS t, "
             "stats_min_value AS lo, stats_max_value AS hi, CASE WHEN stats_null_count = 0 THEN 1 ELSE 0 END AS z "
             "FROM parquet_metadata(");
  br_sql_paths(paths, n, &sql);
  br_buf_str(
      &sql,
      ")), "
      "gs AS (SELECT f, string_agg(r || ':' || b, ',' ORDER BY g) AS groups FROM "
      "(SELECT f, g, any_value(r) AS r, sum(b) AS b FROM m GROUP BY f, g) GROUP BY f), "
      "cs AS (SELECT f, string_agg(c || chr(31) || b || CASE WHEN n > 1 THEN '!' ELSE '' END, chr(30)) AS cols FROM "
      "(SELECT f, c, sum(b) AS b, count(*) FILTER (WHERE g = 0 AND p = c) AS n FROM m GROUP BY f, c) GROUP BY f), "
      "rs AS (" BR_RANGES_SQL
      ") "
      "SELECT f, groups, cols, ranges FROM gs JOIN cs USING (f) LEFT JOIN rs USING (f)");
  return br_buf_take(&sql);
}

static size_t count_char(const char *s, char c) {
  size_t n = 0;
  for (; *s; s++) n += *s == c;
  return n;
}

static void parse_groups(footer *f, const char *text) {
  size_t n = count_char(text, ',') + 1;
  br_row_group *groups = br_arena_alloc(f->mem, n * sizeof *groups);
  char *end = (char *)text;
  for (size_t i = 0; i < n; i++) {
    groups[i].first_row = f->file.rows;
    groups[i].rows = strtoull(end, &end, 10);
    groups[i].bytes = strtoull(end + (*end == ':'), &end, 10);
    end += *end == ',';
    f->file.rows += groups[i].rows;
  }
  f->file.groups = groups;
  f->file.n_groups = n;
}

static int by_name(const void *a, const void *b) {
  const br_file_column *const *x = a, *const *y = b;
  return strcasecmp((*x)->name, (*y)->name);
}

/* But for the case of ASCII, as DuckDB compares names. */
static bool two_alike(const br_file_column *columns, size_t n) {
  const br_file_column **sorted = br_calloc(n, sizeof *sorted);
  bool found = false;
  for (size_t i = 0; i < n; i++) sorted[i] = &columns[i];
  qsort(sorted, n, sizeof *sorted, by_name);
  for (size_t i = 1; i < n && !found; i++) found = strcasecmp(sorted[i - 1]->name, sorted[i]->name) == 0;
  free(sorted);
  return found;
}

static void parse_columns(footer *f, const char *text) {
  size_t n = count_char(text, BR_RECORD_SEPARATOR) + 1;
  br_file_column *columns = br_arena_alloc(f->mem, n * sizeof *columns);
  for (size_t i = 0; i < n; i++) {
    const char *end = strchr(text, BR_RECORD_SEPARATOR);
    size_t length = end ? (size_t)(end - text) : strlen(text);
    size_t name = length; /* the last separator: a name may hold anything */
    while (name > 0 && text[name - 1] != BR_UNIT_SEPARATOR) name--;
    columns[i].name = br_arena_strndup(f->mem, text, name ? name - 1 : 0);
    char *behind;
    columns[i].bytes = strtoull(text + name, &behind, 10);
    f->names_meet = f->names_meet || *behind == '!';
    text = end ? end + 1 : text + length;
  }
  f->file.columns = columns;
  f->file.n_columns = n;
  f->names_meet = f->names_meet || two_alike(columns, n);
}

/* The name under which DuckDB reports a path: without file://. */
const char *br_reported_name(const char *path) { return strncmp(path, "file://", 7) == 0 ? path + 7 : path; }

/* Fill in the footers of files[0..n). Files without row groups have no row in the answer: no rows. */
static br_status read_footers(br_session *session, footer **files, size_t n, br_error *err) {
  const char **paths = br_calloc(n, sizeof *paths);
  br_smap *by_path = br_smap_new();
  br_table t = {0};
  char *sql = NULL;
  size_t distinct = 0;
  br_status status = BR_OK;
  for (size_t i = 0; i < n && status == BR_OK; i++) {
    const char *name = br_reported_name(files[i]->file.path);
    if (br_smap_get(by_path, name)) { /* one file by two names: on its own */
      status = read_footers(session, &files[i], 1, err);
      continue;
    }
    br_smap_put(by_path, name, files[i]);
    paths[distinct++] = files[i]->file.path;
  }
  if (status != BR_OK) goto done;
  sql = footer_sql(paths, distinct);
  status = br_session_table(session, sql, &t, err);
  if (status != BR_OK) {
    if (n == 1)
      status = br_error_context(err, "reading the footer of %s", paths[0]);
    else
      status = br_error_context(err, "reading %zu Parquet footers", n);
  }
  for (size_t i = 0; i < t.rows && status == BR_OK; i++) {
    footer *f = n == 1 ? files[0] : br_smap_get(by_path, br_reported_name(br_table_cell(&t, i, 0)));
    if (!f) {
      status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL,
                       "DuckDB reports the footer of a file that nobody asked for: %s", br_table_cell(&t, i, 0));
      break;
    }
    parse_groups(f, br_table_cell(&t, i, 1));
    parse_columns(f, br_table_cell(&t, i, 2));
    br_ranges_parse(f, br_table_cell(&t, i, 3));
  }
done:
  br_table_free(&t);
  br_smap_free(by_path);
  free(sql);
  free(paths);
  return status;
}

/* ---- remote files: sizes and times by the listing that DuckDB's file system gives */

static br_status remote_stat(br_session *session, const char *path, uint64_t *size_bytes, uint64_t *mtime_ns,
                             br_error *err) {
  br_buf sql = {0};
  br_table t = {0};
  br_buf_str(&sql, "SELECT size, epoch_ns(last_modified) FROM read_blob(");
  br_sql_path(path, &sql);
  br_buf_char(&sql, ')');
  br_status status = br_session_table(session, br_buf_cstr(&sql), &t, err);
  if (status != BR_OK)
    status = br_error_context(err, "looking at %s", path);
  else if (t.rows != 1)
    status = br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "there is no file %s", path);
  else {
    const char *size = br_table_cell(&t, 0, 0), *mtime = br_table_cell(&t, 0, 1);
    *size_bytes = size ? strtoull(size, NULL, 10) : 0;
    *mtime_ns = mtime ? strtoull(mtime, NULL, 10) : 0;
  }
  br_table_free(&t);
  br_buf_free(&sql);
  return status;
}

/* The footer from the cache, or a new one still to be read (*fresh). */
static br_status look_up(br_session *session, br_source *s, const char *path, footer **out, bool *fresh,
                         br_error *err) {
  bool local = br_path_is_local(path);
  uint64_t size_bytes = 0, mtime_ns = 0;
  if (local)
    BR_TRY(br_local_stat(path, &size_bytes, &mtime_ns, err));
  else
    BR_TRY(remote_stat(session, path, &size_bytes, &mtime_ns, err));
  footer *known = br_smap_get(s->footers, path);
  if (known && known->file.size_bytes == size_bytes && known->file.mtime_ns == mtime_ns) {
    *out = br_footer_ref(known);
    *fresh = false;
    return BR_OK;
  }
  if (local) BR_TRY(br_local_check_magic(path, size_bytes, err));
  *out = footer_new(path, local, size_bytes, mtime_ns);
  *fresh = true;
  return BR_OK;
}

static void remember(br_source *s, footer *f) {
  if (br_smap_count(s->footers) >= BR_SOURCE_CACHE_FILES) forget_all(s);
  footer *old = br_smap_put(s->footers, f->file.path, br_footer_ref(f));
  s->bounds_bytes += f->bounds_bytes - (old ? old->bounds_bytes : 0);
  br_footer_unref(old);
}

static br_status fill(br_session *session, br_source *s, footer **fresh, size_t n, br_error *err) {
  for (size_t at = 0; at < n; at += QUERY_FILES)
    BR_TRY(read_footers(session, fresh + at, n - at < QUERY_FILES ? n - at : QUERY_FILES, err));
  for (size_t i = 0; i < n; i++) remember(s, fresh[i]);
  return BR_OK;
}

br_status br_source_snapshot(br_session *session, br_source *s, const char *const *paths, size_t n, br_snapshot **out,
                             br_error *err) {
  br_snapshot *snap = br_calloc(1, sizeof *snap);
  footer **fresh = br_calloc(n + 1, sizeof *fresh);
  br_smap *seen = br_smap_new(); /* a file named twice is read once */
  size_t n_fresh = 0;
  br_status status = BR_OK;
  snap->files = br_calloc(n + 1, sizeof *snap->files);
  for (size_t i = 0; i < n; i++) {
    footer *f = br_smap_get(seen, paths[i]);
    bool is_fresh = false;
    if (f)
      br_footer_ref(f);
    else
      BR_TRY_GOTO(look_up(session, s, paths[i], &f, &is_fresh, err));
    snap->files[snap->n++] = f;
    br_smap_put(seen, paths[i], f);
    if (is_fresh) fresh[n_fresh++] = f;
  }
  BR_TRY_GOTO(fill(session, s, fresh, n_fresh, err));
  *out = snap;
  snap = NULL;
done:
  br_snapshot_free(snap);
  br_smap_free(seen);
  free(fresh);
  return status;
}

br_status br_snapshot_of_files(const char *const *paths, size_t n, br_snapshot **out, br_error *err) {
  br_snapshot *snap = br_calloc(1, sizeof *snap);
  br_status status = BR_OK;
  snap->files = br_calloc(n + 1, sizeof *snap->files);
  for (size_t i = 0; i < n && status == BR_OK; i++) {
    uint64_t size_bytes = 0, mtime_ns = 0;
    bool local = br_path_is_local(paths[i]);
    if (local) status = br_local_stat(paths[i], &size_bytes, &mtime_ns, err);
    if (status == BR_OK) snap->files[snap->n++] = footer_new(paths[i], local, size_bytes, mtime_ns);
  }
  if (status == BR_OK)
    *out = snap;
  else
    br_snapshot_free(snap);
  return status;
}

void br_snapshot_free(br_snapshot *s) {
  if (!s) return;
  for (size_t i = 0; i < s->n; i++) br_footer_unref(s->files[i]);
  free(s->files);
  free(s);
}

size_t br_snapshot_files(const br_snapshot *s) { return s->n; }

const br_file *br_snapshot_file(const br_snapshot *s, size_t i) {
  BR_ASSERT(i < s->n);
  return &s->files[i]->file;
}

uint64_t br_snapshot_rows(const br_snapshot *s) {
  uint64_t rows = 0;
  for (size_t i = 0; i < s->n; i++) rows += s->files[i]->file.rows;
  return rows;
}

uint64_t br_snapshot_bytes(const br_snapshot *s, const char *const *columns, size_t n_columns) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < s->n; i++) {
    const br_file *f = &s->files[i]->file;
    for (size_t c = 0; c < f->n_columns; c++) {
      bool wanted = !columns;
      for (size_t k = 0; k < n_columns && !wanted; k++) wanted = strcasecmp(columns[k], f->columns[c].name) == 0;
      if (wanted) bytes += f->columns[c].bytes;
    }
  }
  return bytes;
}

br_status br_snapshot_check(const br_snapshot *s, br_error *err) {
  for (size_t i = 0; i < s->n; i++) {
    const br_file *f = &s->files[i]->file;
    uint64_t size_bytes, mtime_ns;
    if (!f->local) continue;
    BR_TRY(br_local_stat(f->path, &size_bytes, &mtime_ns, err));
    if (size_bytes == f->size_bytes && mtime_ns == f->mtime_ns) continue;
    return br_fail(
        err, BR_INVALID, BR_BLAME_USER,
        "the file %s was changed while the query ran (%llu bytes at its start, %llu now): run the query again", f->path,
        (unsigned long long)f->size_bytes, (unsigned long long)size_bytes);
  }
  return BR_OK;
}
