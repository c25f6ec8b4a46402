/* SPDX-License-Identifier: Apache-2.0
 *
 * Columns by whose values the rows of a scan lie in order, as far as footers say: no row group begins below the end of the one before
 * it. Such files may be cut by values instead of by row groups, and two tables at the same values. A row group that holds a cut is read
 * by both tasks, each of which keeps its own rows.
 * Order: any. Threads: any (a snapshot is read-only). Bounds: O(row groups) a call.
 */
#include "source/internal.h"

enum { GUESSED_SHARE = 5 };

typedef struct walk { /* over the row groups with rows, in the order of files and rows */
  const br_snapshot *s;
  const char *column;
  br_range_kind kind;
  size_t file, group;
  const br_range *ranges; /* of the file */
} walk;

/* The next one; false: there is none. range NULL: its column is not known. */
static bool next_group(walk *w, const br_row_group **group, const br_range **range) {
  for (; w->file < w->s->n; w->file++, w->group = 0) {
    const footer *f = w->s->files[w->file];
    if (w->group == 0) w->ranges = br_ranges_of(f, w->column, w->kind);
    while (w->group < f->file.n_groups) {
      size_t g = w->group++;
      if (f->file.groups[g].rows == 0) continue;
      *group = &f->file.groups[g];
      *range = w->ranges ? &w->ranges[g] : NULL;
      return true;
    }
  }
  return false;
}

/* As if the values were spread evenly. */
static int64_t between(const br_range *r, double part) {
  double value = (double)r->least + ((double)r->greatest - (double)r->least) * part;
  if (part <= 0 || value <= (double)r->least) return r->least;
  return value >= (double)r->greatest ? r->greatest : (int64_t)value;
}

size_t br_snapshot_sorted(const br_snapshot *s, const char *column, br_range_kind kind, int64_t *at, size_t points) {
  const br_row_group *g;
  const br_range *r, *before = NULL;
  uint64_t rows = 0, all = br_snapshot_rows(s);
  size_t groups = 0, next = 0;
  for (walk w = {.s = s, .column = column, .kind = kind}; next_group(&w, &g, &r); groups++) {
    if (!r || !r->known || !r->no_nulls || (before && r->least < before->greatest)) return 0;
    for (; next < points && (double)all * (double)next / (double)points < (double)(rows + g->rows); next++)
      at[next] = between(r, ((double)all * (double)next / (double)points - (double)rows) / (double)g->rows);
    rows += g->rows;
    before = r;
  }
  for (; groups > 0 && next <= points; next++) at[next] = before->greatest;
  return groups;
}

/* ---- the rows of a range of values as SQL */

static bool above(const br_range *r, const br_value_range *want) { return want->to_known && r->least >= want->to; }
static bool below(const br_range *r, const br_value_range *want) {
  return want->from_known && r->greatest < want->from;
}
static bool inside(const br_range *r, const br_value_range *want) {
  return !(want->from_known && r->least < want->from) && !(want->to_known && r->greatest >= want->to);
}

/* Of a file: how many rows its row groups with such values have, and are they all of it, with no other values? */
static uint64_t rows_within(const footer *f, const char *column, br_range_kind kind, const br_value_range *want,
                            bool *whole) {
  const br_range *ranges = br_ranges_of(f, column, kind);
  uint64_t rows = 0;
  *whole = true;
  for (size_t g = 0; g < f->file.n_groups; g++) {
    if (f->file.groups[g].rows == 0) continue;
    bool known = ranges && ranges[g].known; /* it was, when the scan was found to be sorted */
    *whole = *whole && known && inside(&ranges[g], want);
    if (!known || (!above(&ranges[g], want) && !below(&ranges[g], want))) rows += f->file.groups[g].rows;
  }
  return rows;
}

static void add_value(br_buf *out, br_range_kind kind, int64_t value) {
  br_buf_printf(out, kind == BR_RANGE_DATE ? "DATE '1970-01-01' + %lld" : "%lld", (long long)value);
}

static void add_condition(br_buf *out, const char *column, br_range_kind kind, const br_value_range *want) {
  br_buf name = {0};
  br_buf_sql_ident(&name, column);
  if (want->from_known) {
    br_buf_printf(out, "%s >= ", br_buf_cstr(&name));
    add_value(out, kind, want->from);
  }
  if (want->to_known) {
    br_buf_printf(out, "%s%s < ", want->from_known ? " AND " : "", br_buf_cstr(&name));
    add_value(out, kind, want->to);
  }
  br_buf_free(&name);
}

/* DuckDB guesses that conditions on a scan leave a fifth of its rows: this one leaves about `rows`. */
static void part_of_files(const br_snapshot *s, const br_split *files, const br_sorted_scan *scan,
                          const br_value_range *want, uint64_t rows, br_buf *out) {
  bool other = scan->options && *scan->options;
  char *options = br_asprintf("explicit_cardinality := %llu%s%s",
                              (unsigned long long)(rows ? rows : 1) * (scan->filtered ? 1 : GUESSED_SHARE),
                              other ? ", " : "", other ? scan->options : "");
  br_buf_str(out, "(SELECT * FROM ");
  br_split_sql(s, files, options, out);
  br_buf_str(out, " WHERE ");
  add_condition(out, scan->column, scan->kind, want);
  br_buf_char(out, ')');
  free(options);
}

uint64_t br_snapshot_range_sql(const br_snapshot *s, const br_sorted_scan *scan, const br_value_range *want,
                               br_buf *out) {
  br_piece *pieces = br_calloc(s->n + 1, sizeof *pieces);
  br_split files = {.pieces = pieces};
  uint64_t rows = 0;
  bool all_whole = true;
  for (size_t i = 0; i < s->n; i++) {
    bool whole;
    uint64_t some = rows_within(s->files[i], scan->column, scan->kind, want, &whole);
    rows += some;
    if (some == 0) continue;
    all_whole = all_whole && whole;
    pieces[files.n++] = (br_piece){.file = (uint32_t)i, .whole_file = true};
  }
  if (files.n == 0) { /* the columns, of no rows */
    all_whole = false;
    pieces[files.n++] = (br_piece){.file = 0, .whole_file = true};
  }
  if (all_whole)
    br_split_sql(s, &files, scan->options, out);
  else
    part_of_files(s, &files, scan, want, rows, out);
  free(pieces);
  return rows;
}
