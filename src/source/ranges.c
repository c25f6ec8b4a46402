/* SPDX-License-Identifier: Apache-2.0
 *
 * What footers say of a column: its least and greatest value in each row group, as far as the text that DuckDB prints of statistics is a
 * whole number, or a date. Order: parsed with a footer, then read-only. Threads: any. Bounds: RANGES_MOST values a file; the columns
 * behind those are unknown.
 */
#include "source/internal.h"
#include <strings.h>

#define RANGES_MOST 65536u

static column_ranges *find(const footer *f, const char *column, size_t n, br_range_kind kind) {
  for (column_ranges *r = f->names_meet ? NULL : f->ranges; r; r = r->next)
    if (r->kind == kind && strncasecmp(r->column, column, n) == 0 && !r->column[n]) return r;
  return NULL;
}

static column_ranges *add(footer *f, const char *column, size_t n, br_range_kind kind) {
  column_ranges *r = br_arena_alloc(f->mem, sizeof *r);
  *r = (column_ranges){.next = f->ranges,
                       .column = br_arena_strndup(f->mem, column, n),
                       .kind = kind,
                       .groups = br_arena_alloc(f->mem, (f->file.n_groups + 1) * sizeof *r->groups)};
  return f->ranges = r;
}

/* "i:group:least:greatest:1" */
static void parse_one(footer *f, const char *name, size_t n, const char *value, size_t *left) {
  br_range_kind kind = *value == 'd' ? BR_RANGE_DATE : BR_RANGE_INTEGER;
  char *end;
  size_t group = strtoull(value + 2, &end, 10);
  int64_t least = strtoll(end + 1, &end, 10), greatest = strtoll(end + 1, &end, 10);
  bool no_nulls = *end == ':' && end[1] == '1';
  column_ranges *r = f->ranges;
  if (!r || r->kind != kind || strlen(r->column) != n || memcmp(r->column, name, n) != 0) {
    if (*left < f->file.n_groups) return;
    *left -= f->file.n_groups;
    r = add(f, name, n, kind);
  }
  if (group < f->file.n_groups)
    r->groups[group] = (br_range){.known = true, .no_nulls = no_nulls, .least = least, .greatest = greatest};
}

void br_ranges_parse(footer *f, const char *text) {
  size_t left = RANGES_MOST;
  while (text && *text) {
    const char *end = strchr(text, BR_RECORD_SEPARATOR);
    size_t length = end ? (size_t)(end - text) : strlen(text), name = length;
    while (name > 0 && text[name - 1] != BR_UNIT_SEPARATOR) name--; /* the last one: a name may hold anything */
    if (name > 0) parse_one(f, text, name - 1, text + name, &left);
    text += length + (end != NULL);
  }
}

const br_range *br_ranges_of(const footer *f, const char *column, br_range_kind kind) {
  const column_ranges *r = find(f, column, strlen(column), kind);
  return r ? r->groups : NULL;
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
    const column_ranges *r = find(f, column, strlen(column), kind);
    if (!r || !add_piece(f, &split->pieces[i], r->groups, &all)) return (br_range){0};
  }
  return all;
}
