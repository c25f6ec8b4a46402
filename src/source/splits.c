/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting a snapshot into splits, and their SQL text.
 *
 * Row groups are not cut, unless there are too few of them and what is done with a row costs more than reading it. Each gets a weight, its bytes in the wanted columns plus a little a row (so that count(*) cuts evenly
 * too); the k-th split takes those whose middle lies in the k-th part of the whole weight.
 * Order: any. Threads: any (a snapshot is read-only). Bounds: at most as many splits as row groups, or min_splits more.
 */
#include "source/internal.h"
#include <math.h>
#include <strings.h>

enum {
  ROWS_PER_WEIGHT_BYTE = 8,
  MOST_PIECES = 8 /* of a split that come of gaps: each reads the file's footer again; DuckDB skips what lies between */
};

/* Which share of a file's bytes the wanted columns are. */
static double wanted_share(const br_file *f, const br_split_options *o) {
  uint64_t all = 0, wanted = 0;
  if (!o->columns) return 1;
  for (size_t c = 0; c < f->n_columns; c++) {
    bool is_wanted = false;
    for (size_t k = 0; k < o->n_columns && !is_wanted; k++)
      is_wanted = strcasecmp(o->columns[k], f->columns[c].name) == 0;
    all += f->columns[c].bytes;
    if (is_wanted) wanted += f->columns[c].bytes;
  }
  return all ? (double)wanted / (double)all : 0;
}

static double weight(const br_row_group *g, double share) {
  return (double)g->bytes * share + (double)g->rows / ROWS_PER_WEIGHT_BYTE;
}

static void add_group(br_split *s, size_t *capacity, uint32_t file, const br_file *f, const br_row_group *g,
                      double share) {
  uint64_t bytes = (uint64_t)((double)g->bytes * share);
  br_piece *last = s->n ? &s->pieces[s->n - 1] : NULL;
  if (!last || last->file != file || (last->last_row + 1 != g->first_row && s->n < MOST_PIECES)) {
    br_grow((void **)&s->pieces, capacity, s->n, sizeof *s->pieces);
    last = &s->pieces[s->n++];
    *last = (br_piece){.file = file, .first_row = g->first_row};
  }
  last->last_row = g->first_row + g->rows - 1;
  last->rows += g->rows;
  last->bytes += bytes;
  last->whole_file = last->rows == f->rows;
  s->rows += g->rows;
  s->bytes += bytes;
}

static uint64_t how_many(double total_weight, uint64_t bytes, uint64_t groups, const br_split_options *o) {
  uint64_t n = o->target_bytes ? (bytes + o->target_bytes - 1) / o->target_bytes : 1;
  if (n < o->min_splits) n = o->min_splits;
  if (o->max_splits && n > o->max_splits) n = o->max_splits;
  if (n > groups) n = groups;
  return total_weight > 0 && n ? n : 1;
}

static bool left_out(const br_split_options *o, size_t file, size_t group) {
  return o->left_out && o->left_out[file][group];
}

/* How many splits, if row groups are to be cut for it; 0: they are not. */
static uint64_t want_cut(const br_split_options *o, uint64_t groups, uint64_t rows) {
  uint64_t want = o->max_splits && o->min_splits > o->max_splits ? o->max_splits : o->min_splits;
  if (!o->cut_rows) return 0;
  if (want > rows / o->cut_rows) want = rows / o->cut_rows;
  return want > groups ? want : 0;
}

/* More splits than groups: each is one piece of a group, cut in as many as its share of the weight. */
static br_split *cut_groups(const br_snapshot *s, const br_split_options *o, double total, uint64_t groups,
                            uint64_t want, size_t *n) {
  br_split *splits = br_calloc(want + groups, sizeof *splits);
  for (size_t i = 0; i < s->n; i++) {
    const br_file *f = &s->files[i]->file;
    double share = wanted_share(f, o);
    for (size_t g = 0; g < f->n_groups; g++) {
      const br_row_group *from = &f->groups[g];
      if (left_out(o, i, g)) continue;
      uint64_t parts = (uint64_t)floor(weight(from, share) / total * (double)want);
      if (parts > from->rows) parts = from->rows;
      if (parts == 0 && from->rows > 0) parts = 1;
      for (uint64_t k = 0; k < parts; k++) {
        uint64_t first = from->rows * k / parts, end = from->rows * (k + 1) / parts;
        br_row_group part = {.first_row = from->first_row + first,
                             .rows = end - first,
                             .bytes = (uint64_t)((double)from->bytes * (double)(end - first) / (double)from->rows)};
        size_t capacity = 0;
        add_group(&splits[(*n)++], &capacity, (uint32_t)i, f, &part, share);
      }
    }
  }
  return splits;
}

br_status br_snapshot_splits(const br_snapshot *s, const br_split_options *o, br_split **out, size_t *n,
                             br_error *err) {
  double total = 0, before = 0;
  uint64_t bytes = 0, groups = 0, rows = 0;
  *out = NULL;
  *n = 0;
  if (s->n > UINT32_MAX)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "more than %u files in one scan", UINT32_MAX);
  for (size_t i = 0; i < s->n; i++) {
    const br_file *f = &s->files[i]->file;
    double share = wanted_share(f, o);
    for (size_t g = 0; g < f->n_groups; g++) {
      if (left_out(o, i, g)) continue;
      total += weight(&f->groups[g], share);
      bytes += (uint64_t)((double)f->groups[g].bytes * share);
      groups += f->groups[g].rows > 0;
      rows += f->groups[g].rows;
    }
  }
  if (!groups) return BR_OK;
  uint64_t want = total > 0 ? want_cut(o, groups, rows) : 0;
  if (want > 0) {
    *out = cut_groups(s, o, total, groups, want, n);
    return BR_OK;
  }
  want = how_many(total, bytes, groups, o);
  br_split *splits = br_calloc(want, sizeof *splits);
  size_t capacity = 0;
  uint64_t current = 0;
  for (size_t i = 0; i < s->n; i++) {
    const br_file *f = &s->files[i]->file;
    double share = wanted_share(f, o);
    for (size_t g = 0; g < f->n_groups; g++) {
      if (!f->groups[g].rows || left_out(o, i, g)) continue;
      double w = weight(&f->groups[g], share);
      uint64_t part = (uint64_t)floor((before + w / 2) / total * (double)want);
      if (part >= want) part = want - 1;
      if (*n == 0 || part > current) {
        capacity = 0;
        (*n)++;
        current = part;
      }
      add_group(&splits[*n - 1], &capacity, (uint32_t)i, f, &f->groups[g], share);
      before += w;
    }
  }
  *out = splits;
  return BR_OK;
}

void br_splits_free(br_split *splits, size_t n) {
  if (!splits) return;
  for (size_t i = 0; i < n; i++) free(splits[i].pieces);
  free(splits);
}

/* ---- SQL */

static bool has_word(const char *text, const char *word) {
  size_t n = strlen(word);
  for (; text && *text; text++)
    if (strncasecmp(text, word, n) == 0) return true;
  return false;
}

static void options_sql(const char *options, br_buf *out) {
  if (options && *options) br_buf_printf(out, ", %s", options);
  br_buf_char(out, ')');
}

/* All the whole files of a split as one scan; false if there are none. */
static bool whole_files(const br_snapshot *s, const br_split *split, const char *options, br_buf *out) {
  uint64_t rows = 0;
  size_t files = 0;
  for (size_t i = 0; i < split->n; i++) {
    if (!split->pieces[i].whole_file) continue;
    const char *path = s->files[split->pieces[i].file]->file.path;
    br_buf_str(out, files++ ? ", " : "read_parquet([");
    br_sql_path(path, out);
    rows += s->files[split->pieces[i].file]->file.rows;
  }
  if (!files) return false;
  br_buf_char(out, ']');
  if (!has_word(options, "explicit_cardinality"))
    br_buf_printf(out, ", explicit_cardinality := %llu", (unsigned long long)(rows ? rows : 1));
  options_sql(options, out);
  return true;
}

static void part_of_file(const br_snapshot *s, const br_piece *p, const char *options, br_buf *out) {
  bool visible = has_word(options, "file_row_number");
  const char *path = s->files[p->file]->file.path;
  br_buf_printf(out, "SELECT *%s FROM read_parquet(", visible ? "" : " EXCLUDE (file_row_number)");
  br_sql_path(path, out);
  if (!visible) br_buf_str(out, ", file_row_number := true");
  options_sql(options, out);
  br_buf_printf(out, " WHERE file_row_number BETWEEN %llu AND %llu", (unsigned long long)p->first_row,
                (unsigned long long)p->last_row);
}

void br_split_sql(const br_snapshot *s, const br_split *split, const char *options, br_buf *out) {
  size_t parts = 0;
  for (size_t i = 0; i < split->n; i++) parts += !split->pieces[i].whole_file;
  if (!parts) {
    whole_files(s, split, options, out);
    return;
  }
  br_buf whole = {0};
  const char *between = "";
  br_buf_char(out, '(');
  if (whole_files(s, split, options, &whole)) {
    br_buf_printf(out, "SELECT * FROM %s", br_buf_cstr(&whole));
    between = " UNION ALL BY NAME ";
  }
  for (size_t i = 0; i < split->n; i++) {
    if (split->pieces[i].whole_file) continue;
    br_buf_str(out, between);
    part_of_file(s, &split->pieces[i], options, out);
    between = " UNION ALL BY NAME ";
  }
  br_buf_char(out, ')');
  br_buf_free(&whole);
}
