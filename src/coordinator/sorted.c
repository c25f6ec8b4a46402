/* SPDX-License-Identifier: Apache-2.0
 *
 * Scans of files that lie in the order of a column: which columns a plan may count on, and the tasks of a stage whose scans are all cut
 * at the same values of theirs, so that rows that agree in it meet without having changed place (docs/decisions/017).
 *
 * Order: br_sorted_columns while a plan's sources are measured; br_cut_splits when the split scan of such a stage has its splits. The
 * caller's thread. Bounds: O(row groups) a column, O(tasks × files) a scan.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/query.h"

static bool kind_of(const json_t *type, br_range_kind *kind) {
  static const char *const integers[] = {"TINYINT",  "SMALLINT",  "INTEGER", "BIGINT",
                                         "UTINYINT", "USMALLINT", "UINTEGER"};
  const char *id = json_string_value(json_object_get(type, "id"));
  *kind = BR_RANGE_DATE;
  if (id == NULL || strcmp(id, "DATE") == 0) return id != NULL;
  *kind = BR_RANGE_INTEGER;
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
    if (strcmp(id, integers[i]) == 0) return true;
  return false;
}

void br_sorted_columns(br_node *get, const br_snapshot *files, br_arena *arena) {
  br_sorted_column *all = br_arena_alloc(arena, (get->n_columns + 1) * sizeof *all);
  get->sorted = all;
  for (size_t c = 0; c < get->n_columns; c++) {
    br_sorted_column *s = &all[get->n_sorted];
    br_range_kind kind;
    const char *name = br_scan_column(get, c);
    if (name == NULL || !kind_of(get->types[c], &kind)) continue;
    *s = (br_sorted_column){.column = c, .name = name, .date = kind == BR_RANGE_DATE};
    s->groups = br_snapshot_sorted(files, name, kind, s->at, BR_SORTED_POINTS);
    s->rows = (double)br_snapshot_rows(files);
    get->n_sorted += s->groups > 0;
  }
}

/* The values, ascending, at which the splits of a scan begin, but for the first one. *clean: no split before it has such a value, too, so
 * that a task's rows are those of a split. */
static size_t cut_values(const br_stage_scan *scan, const br_snapshot *files, const br_split *splits, size_t n,
                         int64_t *cuts, bool *clean) {
  br_range_kind kind = scan->sorted->date ? BR_RANGE_DATE : BR_RANGE_INTEGER;
  size_t count = 0;
  br_range first = n > 0 ? br_split_range(files, &splits[0], scan->sorted->name, kind) : (br_range){0}, before = first;
  *clean = true;
  for (size_t k = 1; k < n; k++) {
    br_range r = br_split_range(files, &splits[k], scan->sorted->name, kind);
    *clean = *clean && r.known && before.known && r.least > before.greatest;
    if (r.known && r.least > (count > 0 ? cuts[count - 1] : first.least)) cuts[count++] = r.least;
    before = r;
  }
  return count;
}

/* The source text of each of n + 1 tasks for a scan that is cut at n values; rows grows by what they read. */
static char **cut_scan(const br_stage_scan *scan, const br_snapshot *files, const int64_t *cuts, size_t n,
                       uint64_t *rows, br_arena *arena) {
  const char *options = scan->scan.options;
  br_sorted_scan sorted = {.column = scan->sorted->name,
                           .kind = scan->sorted->date ? BR_RANGE_DATE : BR_RANGE_INTEGER,
                           .options = options != NULL && strncmp(options, ", ", 2) == 0 ? options + 2 : options,
                           .filtered = scan->rows >= 0 && scan->rows < scan->source_rows};
  char **texts = br_arena_alloc(arena, (n + 1) * sizeof *texts);
  for (size_t k = 0; k <= n; k++) {
    br_value_range want = {.from_known = k > 0, .to_known = k < n};
    br_buf b = {0};
    if (k > 0) want.from = cuts[k - 1];
    if (k < n) want.to = cuts[k];
    *rows += br_snapshot_range_sql(files, &sorted, &want, &b);
    texts[k] = br_arena_strdup(arena, br_buf_cstr(&b));
    br_buf_free(&b);
  }
  return texts;
}

void br_cut_splits(br_query *q, br_stage_run *r, const br_snapshot *const *files, const br_split *splits, size_t n) {
  const br_stage *st = r->plan;
  size_t lead = (size_t)st->split_scan, others = 0;
  int64_t *cuts = br_calloc(n + 1, sizeof *cuts);
  bool clean;
  size_t n_cuts = cut_values(&st->scans[lead], files[lead], splits, n, cuts, &clean);
  r->cut_sql = br_arena_alloc(q->stages->arena, st->n_scans * sizeof *r->cut_sql);
  r->n_cut = st->n_scans;
  for (size_t k = 0; k < st->n_scans; k++) {
    if (k == lead || !st->scans[k].cut) continue;
    others++;
    r->cut_sql[k] = cut_scan(&st->scans[k], files[k], cuts, n_cuts, &r->split_rows, q->stages->arena);
  }
  if (n > 0 || others > 0) { /* else filters leave nothing, and nobody else has rows */
    uint64_t ignored = 0;
    char **texts = cut_scan(&st->scans[lead], files[lead], cuts, n_cuts, &ignored, q->stages->arena);
    r->n_tasks = (uint32_t)n_cuts + 1;
    r->split_sql = br_calloc(r->n_tasks, sizeof *r->split_sql);
    for (size_t k = 0; k <= n_cuts; k++) r->split_sql[k] = br_strdup(texts[k]);
    for (size_t k = 0; k < n; k++) r->split_rows += splits[k].rows;
    if (q->adaptive && others == 0 && clean && n == r->n_tasks) br_filter_facts(r, files[lead], splits, n);
  }
  free(cuts);
}
