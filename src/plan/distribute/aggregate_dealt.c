/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregates without GROUP BY of which some can't be split: these need all values of their arguments in one task, but not the same task.
 * The calls are dealt: those that read other columns get a task of their own, to which only these columns go; DISTINCT ones that can be
 * reduced are reduced, those that split are computed in two steps (beside a whole one where that reads their columns anyway). Each
 * part reads the rows again, so only where reading is all that it costs, not few rows, and not where two calls show the order of the rows,
 * which is each task's own. The parts' one rows side by side are the result.
 *
 * Called by aggregate.c. Threads: none. Bounds: at most as many whole parts as partitions.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

typedef struct part {
  size_t *calls;
  size_t n;
  bool *columns; /* of the child */
} part;

typedef struct deal {
  br_dist *d;
  const br_node *n;
  const br_drel *child;
  size_t n_calls;
  part *parts;
  size_t n_parts, n_whole; /* whole ones first */
} deal;

static const json_t *call_at(const br_node *n, size_t i) { return br_j_at(n->json, "expressions", i); }

/* Does it show the order of rows? Two such calls must see one and the same: map(list(k), list(v)) pairs their items. */
static bool shows_order(const json_t *call) {
  static const char *const names[] = {"list",
                                      "array_agg",
                                      "string_agg",
                                      "group_concat",
                                      "listagg",
                                      "first",
                                      "last",
                                      "arbitrary",
                                      "any_value",
                                      "arg_min",
                                      "argmin",
                                      "min_by",
                                      "arg_max",
                                      "argmax",
                                      "max_by",
                                      "mode",
                                      "arg_min_null",
                                      "arg_max_null",
                                      "arg_min_nulls_last",
                                      "arg_max_nulls_last"};
  if (br_j_count(br_j_some(call, "order_bys"), "orders")) return true;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (br_j_is(call, "name", names[i])) return true;
  return false;
}

static bool several_show_order(const br_node *n) {
  size_t count = 0;
  for (size_t i = 0; i < br_j_count(n->json, "expressions"); i++) count += shows_order(call_at(n, i));
  return count > 1;
}

/* Read again for each part, rows must be the same. */
static bool only_read(const br_node *n) {
  if (br_node_is_volatile(n)) return false;
  if (n->kind == BR_NODE_GET) return n->n_children == 0;
  return (n->kind == BR_NODE_PROJECTION || n->kind == BR_NODE_FILTER) && only_read(n->children[0]);
}

static bool reads_scans(const br_drel *r) {
  for (size_t i = 0; i < r->n_branches; i++) {
    const br_open *o = r->branches[i].open;
    if (o->rule != BR_RULE_SPLITS || o->n_inputs || o->n_steps || o->heavy || o->indeterminate) return false;
  }
  return true;
}

static void mark(const br_drel *r, const json_t *j, bool *columns) {
  const char *key;
  json_t *value;
  size_t i;
  int64_t at = json_is_object(j) ? br_expr_column(j, r) : -1;
  if (at >= 0) columns[at] = true;
  if (json_is_array(j)) json_array_foreach(j, i, value) mark(r, value, columns);
  if (json_is_object(j)) json_object_foreach((json_t *)j, key, value) mark(r, value, columns);
}

static bool *columns_of(const deal *a, size_t call) {
  bool *columns = br_arena_alloc(a->d->arena, a->child->n_columns + 1);
  mark(a->child, call_at(a->n, call), columns);
  return columns;
}

static bool within(const deal *a, const bool *some, const bool *all) {
  for (size_t i = 0; i < a->child->n_columns; i++)
    if (some[i] && !all[i]) return false;
  return true;
}

static void put(part *p, size_t call) { p->calls[p->n++] = call; }

static part *new_part(deal *a, bool *columns) {
  part *p = &a->parts[a->n_parts++];
  p->calls = br_arena_alloc(a->d->arena, (a->n_calls + 1) * sizeof *p->calls);
  p->columns = columns;
  return p;
}

static void widen(const deal *a, part *p, const bool *columns) {
  for (size_t i = 0; i < a->child->n_columns; i++) p->columns[i] = p->columns[i] || columns[i];
}

static part *smallest(const deal *a) {
  part *to = &a->parts[0];
  for (size_t i = 1; i < a->n_whole; i++)
    if (a->parts[i].n < to->n) to = &a->parts[i];
  return to;
}

/* A call that must see all values: to one that reads the same columns, else to a new part, else to the smallest. */
static void put_whole(deal *a, size_t call) {
  bool *columns = columns_of(a, call);
  part *to = NULL;
  for (size_t i = 0; i < a->n_whole && !to; i++)
    if (within(a, columns, a->parts[i].columns)) to = &a->parts[i];
  if (!to && a->n_whole < a->d->o->partitions) {
    to = new_part(a, columns);
    a->n_whole++;
  }
  if (!to) to = smallest(a);
  widen(a, to, columns);
  put(to, call);
}

static bool is_distinct(const json_t *call) { return br_j_is(call, "aggregate_type", "DISTINCT"); }

static br_node *node_of(const deal *a, const part *p) {
  br_dist *d = a->d;
  br_node *n = br_arena_alloc(d->arena, sizeof *n);
  json_t *list = json_array();
  *n = *a->n;
  n->n_columns = p->n;
  n->types = br_arena_alloc(d->arena, (p->n + 1) * sizeof *n->types);
  n->binds = br_arena_alloc(d->arena, (p->n + 1) * sizeof *n->binds);
  for (size_t i = 0; i < p->n; i++) {
    n->types[i] = a->n->types[p->calls[i]];
    n->binds[i] = a->n->binds[p->calls[i]];
    json_array_append(list, (json_t *)call_at(a->n, p->calls[i]));
  }
  n->json = br_own_type(d, json_copy(a->n->json));
  json_object_set_new(n->json, "expressions", list);
  return n;
}

/* The reducible DISTINCT ones together, or as whole ones. */
static void deal_distinct(deal *a) {
  part p = {.calls = br_arena_alloc(a->d->arena, (a->n_calls + 1) * sizeof *p.calls)};
  for (size_t i = 0; i < a->n_calls; i++)
    if (is_distinct(call_at(a->n, i))) put(&p, i);
  if (!p.n) return;
  if (!br_distinct_reduces(node_of(a, &p))) {
    for (size_t i = 0; i < p.n; i++) put_whole(a, p.calls[i]);
    return;
  }
  bool *columns = columns_of(a, p.calls[0]);
  part *to = new_part(a, columns);
  for (size_t i = 0; i < p.n; i++) {
    widen(a, to, columns_of(a, p.calls[i]));
    put(to, p.calls[i]);
  }
}

static void deal_split(deal *a, bool ordered) {
  part *rest = NULL;
  for (size_t i = 0; i < a->n_calls; i++) {
    if (is_distinct(call_at(a->n, i)) || !br_aggregate_splits(call_at(a->n, i), ordered)) continue;
    bool *columns = columns_of(a, i);
    part *to = NULL;
    for (size_t k = 0; k < a->n_whole && !to; k++)
      if (within(a, columns, a->parts[k].columns)) to = &a->parts[k];
    if (!to && !rest) rest = new_part(a, columns);
    if (!to) to = rest;
    widen(a, to, columns);
    put(to, i);
  }
}

static bool find_parts(deal *a, bool ordered) {
  a->n_calls = br_j_count(a->n->json, "expressions");
  a->parts = br_arena_alloc(a->d->arena, (a->n_calls + 2) * sizeof *a->parts);
  for (size_t i = 0; i < a->n_calls; i++)
    if (!is_distinct(call_at(a->n, i)) && !br_aggregate_splits(call_at(a->n, i), ordered)) put_whole(a, i);
  deal_distinct(a);
  deal_split(a, ordered);
  return a->n_parts > 1;
}

static br_status compute(deal *a, const part *p, br_drel *r, br_error *err) {
  BR_TRY(br_aggregate_part(a->d, node_of(a, p), r, err));
  r->needed = NULL;
  return br_exchange_broadcast(a->d, r, "one row of the whole", err);
}

static void side_by_side(deal *a, const br_drel *rows, br_drel *out) {
  br_buf head = {0}, from = {0};
  size_t *of = br_arena_alloc(a->d->arena, (a->n_calls + 1) * sizeof *of),
         *at = br_arena_alloc(a->d->arena, (a->n_calls + 1) * sizeof *at);
  br_open *o = rows[0].branches[0].open;
  for (size_t i = 0; i < a->n_parts; i++) {
    if (i) o = br_open_merge(a->d, o, rows[i].branches[0].open);
    br_buf_printf(&from, "%s%s p%zu", i ? "\nCROSS JOIN " : "\nFROM ", br_block(a->d, rows[i].branches[0].sql), i);
    for (size_t k = 0; k < a->parts[i].n; k++) {
      of[a->parts[i].calls[k]] = i;
      at[a->parts[i].calls[k]] = k;
    }
  }
  for (size_t i = 0; i < a->n_calls; i++)
    br_buf_printf(&head, "%sp%zu.c%zu AS c%zu", i ? ", " : "SELECT ", of[i], at[i], i);
  *out = br_drel_new(a->d, o, br_arena_printf(a->d->arena, "%s%s", br_buf_cstr(&head), br_buf_cstr(&from)), a->n);
  br_one_task(out, BR_WHY_FINAL_AGGREGATE);
  br_label_all(a->d, out, "parts of an aggregate");
  br_buf_free(&head);
  br_buf_free(&from);
}

br_status br_aggregate_dealt(br_dist *d, const br_node *n, br_drel *out, bool *done, br_error *err) {
  deal a = {.d = d, .n = n, .child = out};
  bool ordered = out->ordered;
  *done = false;
  if (br_sorts_in_one_task(d, out) || br_j_count(n->json, "grouping_functions") || several_show_order(n) ||
      !only_read(n->children[0]) || !reads_scans(out) || !find_parts(&a, ordered))
    return BR_OK;
  br_drel *rows = br_arena_alloc(d->arena, a.n_parts * sizeof *rows);
  for (size_t i = 0; i < a.n_parts; i++) {
    if (i == 0)
      rows[i] = *out;
    else
      BR_TRY(br_walk(d, n->children[0], &rows[i], err));
    rows[i].needed = a.parts[i].columns;
    bool any = false;
    for (size_t c = 0; c < rows[i].n_columns; c++) any = any || a.parts[i].columns[c];
    if (!any) rows[i].needed = d->needs[n->children[0]->id];
    br_set_rows(&rows[i], rows[i].rows);
    BR_TRY(compute(&a, &a.parts[i], &rows[i], err));
  }
  side_by_side(&a, rows, out);
  *done = true;
  return BR_OK;
}
