/* SPDX-License-Identifier: Apache-2.0
 *
 * What footers say of a column: its least and greatest value in each row group. Read when somebody asks for that column, and kept with the
 * footer. DuckDB prints statistics as text; what is no whole number of the wanted kind there counts as unknown.
 * Order: br_source_ranges, then br_split_range. Threads: the user of the cache. Bounds: BR_SOURCE_RANGE_FILES files a scan.
 */
#include "source/internal.h"
#include <strings.h>

static const column_ranges *find(const footer *f, const char *column, br_range_kind kind) {
  for (const column_ranges *r = f->ranges; r; r = r->next)
    if (r->kind == kind && strcasecmp(r->column, column) == 0) return r;
  return NULL;
}

static void value_sql(br_buf *sql, br_range_kind kind, const char *column) {
  if (kind == BR_RANGE_DATE)
    br_buf_printf(sql, "TRY(TRY_CAST(%s AS DATE) - DATE '1970-01-01')", column);
  else
    br_buf_printf(sql, "TRY_CAST(%s AS BIGINT)", column);
}

/* A row a file and group: name, number, least, greatest. Only of columns that are stored as integers. */
static char *ranges_sql(const char *const *paths, size_t n, const char *column, br_range_kind kind) {
  br_buf sql = {0};
  br_buf_str(&sql, "SELECT file_name, row_group_id, ");
  value_sql(&sql, kind, "stats_min_value");
  br_buf_str(&sql, ", ");
  value_sql(&sql, kind, "stats_max_value");
  br_buf_str(&sql, " FROM parquet_metadata(");
  br_sql_paths(paths, n, &sql);
  br_buf_str(&sql, ") WHERE type IN ('INT32', 'INT64') AND lower(path_in_schema) = lower(");
  br_buf_sql_literal(&sql, column, strlen(column));
  br_buf_char(&sql, ')');
  return br_buf_take(&sql);
}

static br_range *remember(footer *f, const char *column, br_range_kind kind) {
  column_ranges *r = br_arena_alloc(f->mem, sizeof *r);
  br_range *groups = br_arena_alloc(f->mem, (f->file.n_groups + 1) * sizeof *groups);
  *r = (column_ranges){.next = f->ranges, .column = br_arena_strdup(f->mem, column), .kind = kind, .groups = groups};
  f->ranges = r;
  return groups;
}

static br_range range_of(const char *least, const char *greatest) {
  if (!least || !greatest) return (br_range){0};
  return (br_range){.known = true, .least = strtoll(least, NULL, 10), .greatest = strtoll(greatest, NULL, 10)};
}

br_status br_source_ranges(br_session *session, br_snapshot *s, const char *column, br_range_kind kind, br_error *err) {
  const char **paths = br_calloc(s->n + 1, sizeof *paths);
  br_smap *groups = br_smap_new(); /* reported name -> ranges to fill in */
  br_smap *sizes = br_smap_new();
  br_table t = {0};
  size_t n = 0;
  br_status status = BR_OK;
  for (size_t i = 0; i < s->n && s->n <= BR_SOURCE_RANGE_FILES; i++) {
    footer *f = s->files[i];
    const char *name = br_reported_name(f->file.path);
    if (find(f, column, kind) || br_smap_get(groups, name)) continue;
    br_smap_put(groups, name, remember(f, column, kind));
    br_smap_put(sizes, name, &f->file);
    paths[n++] = f->file.path;
  }
  if (n > 0) {
    char *sql = ranges_sql(paths, n, column, kind);
    status = br_session_table(session, sql, &t, err);
    free(sql);
  }
  for (size_t i = 0; i < t.rows; i++) {
    const char *name = br_table_cell(&t, i, 0);
    br_range *all = br_smap_get(groups, name);
    const br_file *file = br_smap_get(sizes, name);
    size_t group = strtoull(br_table_cell(&t, i, 1), NULL, 10);
    if (all && group < file->n_groups) all[group] = range_of(br_table_cell(&t, i, 2), br_table_cell(&t, i, 3));
  }
  br_table_free(&t);
  br_smap_free(groups);
  br_smap_free(sizes);
  free(paths);
  return status;
}

/* False: of some rows nothing is known. */
static bool add_piece(const footer *f, const br_piece *p, const br_range *groups, br_range *all) {
  for (size_t g = 0; g < f->file.n_groups; g++) {
    const br_row_group *group = &f->file.groups[g];
    uint64_t end = group->first_row + group->rows;
    if (group->rows == 0 || (!p->whole_file && (end <= p->first_row || group->first_row > p->last_row))) continue;
    if (!groups[g].known) return false;
    if (!all->known || groups[g].least < all->least) all->least = groups[g].least;
    if (!all->known || groups[g].greatest > all->greatest) all->greatest = groups[g].greatest;
    all->known = true;
  }
  return true;
}

br_range br_split_range(const br_snapshot *s, const br_split *split, const char *column, br_range_kind kind) {
  br_range all = {0};
  for (size_t i = 0; i < split->n; i++) {
    const footer *f = s->files[split->pieces[i].file];
    const column_ranges *r = find(f, column, kind);
    if (!r || !add_piece(f, &split->pieces[i], r->groups, &all)) return (br_range){0};
  }
  return all;
}
