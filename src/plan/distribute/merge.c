/* SPDX-License-Identifier: Apache-2.0
 *
 * Fewer stages for the same work. A stage that would do what one before it does already is not made a second time: both readers
 * read the one (two reads of a CTE hashed by the same keys, a table scanned twice alike). And when what a stage keeps is read
 * by one other alone, task by task, it becomes part of that one.
 *
 * Order of calls: br_find_twin at each closing, br_fuse_stages once at the end. Threads: none. Bounds: stages are compared pair by
 * pair, cheap things first.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- twins */

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static bool same_source(const br_scan *a, const br_scan *b) {
  if (a->kind != b->kind || a->n_files != b->n_files || a->unsplittable != b->unsplittable) return false;
  for (size_t i = 0; i < a->n_files; i++)
    if (strcmp(a->files[i], b->files[i]) != 0) return false;
  return same_text(a->options, b->options) && same_text(a->catalog, b->catalog) && same_text(a->schema, b->schema) &&
         same_text(a->table, b->table) && a->whole_files_only == b->whole_files_only &&
         a->file_row_number == b->file_row_number;
}

/* The number of the scan whose token begins at `at`, -1: none does. */
static int token_at(const br_stage *s, const char *at) {
  for (size_t i = 0; i < s->n_scans; i++)
    if (!strncmp(at, s->scans[i].token, strlen(s->scans[i].token))) return (int)i;
  return -1;
}

/* The same but for the tokens, which are each scan's own. */
static bool same_sql(const br_stage *a, const br_stage *b) {
  const char *x = a->sql, *y = b->sql;
  while (*x && *y) {
    int i = *x == '_' ? token_at(a, x) : -1, k = *y == '_' ? token_at(b, y) : -1;
    if (i != k || (i < 0 && *x != *y)) return false;
    x += i < 0 ? 1 : strlen(a->scans[i].token);
    y += k < 0 ? 1 : strlen(b->scans[k].token);
  }
  return *x == *y;
}

/* Whether it is cut may differ: one that is serves both. */
static bool same_order(const br_stage_scan *a, const br_stage_scan *b) {
  if (!a->sorted || !b->sorted) return a->sorted == b->sorted;
  return !strcmp(a->sorted->name, b->sorted->name);
}

static bool same_sources(const br_stage *a, const br_stage *b) {
  if (a->n_inputs != b->n_inputs || a->n_scans != b->n_scans || a->split_scan != b->split_scan) return false;
  for (size_t i = 0; i < a->n_inputs; i++)
    if (a->inputs[i].producer != b->inputs[i].producer || a->inputs[i].kind != b->inputs[i].kind ||
        a->inputs[i].ordered != b->inputs[i].ordered)
      return false;
  for (size_t i = 0; i < a->n_scans; i++)
    if (!same_source(&a->scans[i].scan, &b->scans[i].scan) || !same_order(&a->scans[i], &b->scans[i])) return false;
  return true;
}

static bool same_output(const br_stage *a, const br_stage *b) {
  if (a->rule != b->rule || a->output != b->output || a->partitions != b->partitions || a->n_columns != b->n_columns)
    return false;
  for (size_t i = 0; i < a->n_columns; i++)
    if (strcmp(a->types[i], b->types[i]) != 0) return false;
  return a->ordered_output == b->ordered_output && a->batch_rows == b->batch_rows && a->enough_rows == b->enough_rows &&
         a->enough_of == b->enough_of;
}

/* Bounds are counted for one range exchange, a result is the caller's, and what falls out otherwise at each run is two things. */
static bool may_have_twin(const br_stage *s) {
  bool kind = s->output == BR_EX_FORWARD || s->output == BR_EX_HASH || s->output == BR_EX_SINGLE ||
              s->output == BR_EX_BROADCAST;
  return kind && !s->chance && !s->n_steps && (s->n_inputs || s->n_scans);
}

bool br_find_twin(br_dist *d, const br_stage *s, uint32_t *id) {
  if (!may_have_twin(s)) return false;
  for (size_t i = 0; i < d->out->n_stages; i++) {
    const br_stage *other = &d->out->stages[i];
    if (!may_have_twin(other) || !same_output(s, other) || !same_sources(s, other) || !same_sql(s, other)) continue;
    for (size_t k = 0; k < s->n_scans; k++) other->scans[k].cut = other->scans[k].cut || s->scans[k].cut;
    *id = other->id;
    return true;
  }
  return false;
}

static br_stage as_stage(br_dist *d, const br_drel *r) {
  const br_open *o = r->branches[0].open;
  return (br_stage){.sql = br_final_text(d, o, r->branches[0].sql),
                    .inputs = o->inputs,
                    .n_inputs = o->n_inputs,
                    .scans = o->scans,
                    .n_scans = o->n_scans,
                    .split_scan = o->split_scan,
                    .n_steps = o->n_steps,
                    .chance = o->chance};
}

bool br_same_work(br_dist *d, const br_drel *l, const br_drel *r) {
  if (l->n_branches != 1 || r->n_branches != 1 || l->n_columns != r->n_columns) return false;
  if (l->branches[0].open->rule != r->branches[0].open->rule) return false;
  br_stage a = as_stage(d, l), b = as_stage(d, r);
  return may_have_twin(&a) && may_have_twin(&b) && same_sources(&a, &b) && same_sql(&a, &b);
}

/* ---- what only passes through */

static size_t count_consumers(const br_stages *s, uint32_t producer) {
  size_t count = 0;
  for (size_t i = 0; i < s->n_stages; i++)
    for (size_t k = 0; k < s->stages[i].n_inputs; k++) count += s->stages[i].inputs[k].producer == producer;
  return count;
}

/* The one FORWARD input of a stage that follows its producer task by task; -1: it isn't such a stage. */
static int64_t followed(const br_stage *s) {
  int64_t found = -1;
  if (s->rule != BR_TASKS_FORWARD || s->n_steps) return -1;
  for (size_t i = 0; i < s->n_inputs; i++) {
    if (s->inputs[i].kind != BR_EX_FORWARD) continue;
    if (found >= 0) return -1;
    found = (int64_t)i;
  }
  return found;
}

static bool has_filter_or_bounds(const br_stage *s) {
  for (size_t i = 0; i < s->n_inputs; i++)
    if (s->inputs[i].kind == BR_EX_BOUNDS || br_exchange_helps(s->inputs[i].kind)) return true;
  return false;
}

static void remove_stage(br_stages *s, uint32_t id) {
  memmove(&s->stages[id], &s->stages[id + 1], (s->n_stages - id - 1) * sizeof *s->stages);
  s->n_stages--;
  for (size_t i = id; i < s->n_stages; i++) s->stages[i].id = (uint32_t)i;
  for (size_t i = 0; i < s->n_stages; i++)
    for (size_t k = 0; k < s->stages[i].n_inputs; k++)
      if (s->stages[i].inputs[k].producer > id) s->stages[i].inputs[k].producer--;
}

void br_fuse_stages(br_dist *d) {
  for (size_t i = 0; i < d->out->n_stages; i++) {
    br_stage *c = &d->out->stages[i];
    int64_t k = followed(c);
    if (k < 0 || has_filter_or_bounds(c)) continue;
    const br_stage *p = &d->out->stages[c->inputs[k].producer];
    if (p->output != BR_EX_FORWARD || p->rule == BR_TASKS_ONE || p->n_steps || p->batch_rows || p->ordered_output ||
        has_filter_or_bounds(p) || br_stage_numbers_rows(p) || br_stage_numbers_rows(c) ||
        count_consumers(d->out, p->id) != 1)
      continue;
    uint32_t id = p->id;
    *c = br_stage_fold(d->arena, c, (uint32_t)k, p, br_block(d, p->sql));
    remove_stage(d->out, id);
    i--;
  }
}
