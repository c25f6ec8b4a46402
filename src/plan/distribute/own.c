/* SPDX-License-Identifier: Apache-2.0
 *
 * brant's own nodes: repartition, into_partitions, into_batches, broadcast. In the plan each is a projection with a marker, and a filter on
 * it above (which is TRUE): the marker is volatile, so nothing that depends on rows being together moves across. The exchange
 * goes below the projection. broadcast changes nothing here: a join looks for it (br_asks_broadcast).
 *
 * Threads: none. Bounds: as many partitions as br_distribute takes.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static const json_t *marker_of(const br_node *n) {
  for (size_t i = 0; i < br_j_count(n->json, "expressions"); i++) {
    const json_t *e = br_j_at(n->json, "expressions", i);
    if (br_j_is(e, "expression_class", "BOUND_FUNCTION") && br_is_marker(br_j_str(e, "name"))) return e;
  }
  return NULL;
}

/* The whole number that is the marker's first argument. */
static br_status count_of(const json_t *marker, uint32_t most, uint32_t *out, br_error *err) {
  const json_t *a = br_j_at(marker, "children", 0), *value;
  while (br_j_is(a, "expression_class", "BOUND_CAST")) a = br_j_get(a, "child");
  value = br_j_get(br_j_get(a, "value"), "value");
  uint64_t n = json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
  if (n < 1 || n > most)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s() takes a whole number from 1 to %u",
                   br_j_str(marker, "name") + strlen("__brant_"), most);
  *out = (uint32_t)n;
  return BR_OK;
}

/* As many parts as were asked for, whatever comes out. */
void br_keep_number(br_dist *d, const br_drel *r) {
  const br_open *o = r->branches[0].open;
  for (size_t i = 0; i < o->n_inputs; i++) d->out->stages[o->inputs[i].producer].fixed_partitions = true;
}

/* Round robin; by row numbers where the rows come in an order that is the same each time, else as they come. */
static br_status deal(br_dist *d, uint32_t n, br_drel *r, br_error *err) {
  bool in_order = r->ordered && r->n_branches == 1;
  const char *row = in_order ? "row_number() OVER ()" : "monotonically_increasing_id(0)";
  const char *to = br_arena_printf(d->arena, "CAST((%s + " BR_TASK_NUMBER ") %% %u AS INTEGER)", row, n);
  if (!in_order) br_mark_chance(r, true);
  BR_TRY(br_exchange_numbered(d, r, to, n, in_order, "repartition, round robin", err));
  r->ordered = false;
  return BR_OK;
}

static br_status repartition(br_dist *d, const json_t *marker, uint32_t n, br_drel *r, br_error *err) {
  size_t n_keys = br_j_count(marker, "children") - 1;
  br_hash_keys keys = br_hash_keys_new(d, n_keys);
  for (size_t i = 0; i < n_keys; i++) {
    bool ok;
    BR_TRY(br_hash_key(d, r, br_j_at(marker, "children", i + 1), &keys, &ok, err));
    if (!ok)
      return br_fail(err, BR_INVALID, BR_BLAME_USER,
                     "key %zu of repartition() is different at each evaluation: give no key for random places", i + 1);
  }
  br_one_task(r, BR_WHY_CONSTANTS);
  if (n_keys)
    BR_TRY(br_exchange_hash_into(d, r, &keys, n, "repartition", err));
  else
    BR_TRY(deal(d, n, r, err));
  br_keep_number(d, r);
  return BR_OK;
}

/* Parts of the rows in their order, as the tasks have them: each task's rows to the partitions that its share covers. */
br_status br_into_partitions(br_dist *d, uint32_t n, br_drel *r, const char *why, br_error *err) {
  br_one_task(r, BR_WHY_CONSTANTS);
  BR_TRY(br_one_branch(d, r, err));
  bool ordered = r->ordered;
  r->ordered = true; /* as they come from the source */
  const char *to = br_arena_printf(d->arena, BR_INTO_PARTITION "%u)", n);
  BR_TRY(br_exchange_numbered(d, r, to, n, true, why, err));
  br_keep_number(d, r);
  r->ordered = ordered;
  return BR_OK;
}

static br_status apply(br_dist *d, const json_t *marker, br_drel *r, br_error *err) {
  const char *name = br_j_str(marker, "name");
  uint32_t n;
  if (!strcmp(name, BR_MARKER_BROADCAST)) return BR_OK;
  if (!strcmp(name, BR_MARKER_INTO_BATCHES)) {
    BR_TRY(count_of(marker, UINT32_MAX >> 1, &n, err));
    br_one_task(r, BR_WHY_CONSTANTS);
    for (size_t i = 0; i < r->n_branches; i++) {
      r->branches[i].open->batch_rows = n;
      r->branches[i].plain_read = -1; /* what it reads has other batches */
      br_open_label(d, r->branches[i].open, "batches of %u rows", n);
    }
    return BR_OK;
  }
  BR_TRY(count_of(marker, 1u << 16, &n, err));
  return !strcmp(name, BR_MARKER_REPARTITION) ? repartition(d, marker, n, r, err)
                                              : br_into_partitions(d, n, r, "into_partitions", err);
}

br_status br_dist_projection(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const json_t *marker = marker_of(n);
  BR_TRY(br_walk(d, n->children[0], out, err));
  if (marker != NULL) {
    double rows = out->rows;
    BR_TRY(apply(d, marker, out, err));
    BR_TRY(br_stays_over(d, n, br_j_str(marker, "name") + strlen("__brant_"), out, err));
    br_set_rows(out, rows);
    return BR_OK;
  }
  BR_TRY(br_spread_for_calls(d, n, out, err));
  return br_stays_over(d, n, "project", out, err);
}

bool br_asks_broadcast(const br_node *n) {
  for (; n->kind == BR_NODE_PROJECTION || n->kind == BR_NODE_FILTER; n = n->children[0]) {
    const json_t *marker = n->kind == BR_NODE_PROJECTION ? marker_of(n) : NULL;
    if (marker != NULL && br_j_is(marker, "name", BR_MARKER_BROADCAST)) return true;
  }
  return false;
}

/* Filters on markers let every row pass, whatever the optimizer thinks. */
br_status br_dist_filter(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const br_node *child = n->children[0];
  bool own = child->kind == BR_NODE_PROJECTION && marker_of(child) && br_j_count(n->json, "expressions") == 1;
  BR_TRY(br_walk(d, child, out, err));
  if (!own) BR_TRY(br_filter_texts(d, n, out, err));
  if (!own) BR_TRY(br_spread_for_calls(d, n, out, err));
  double rows = out->rows;
  for (size_t i = 0; i < br_j_count(n->json, "expressions"); i++) {
    const json_t *e = br_j_at(n->json, "expressions", i);
    if (br_j_is(e, "type", "COMPARE_EQUAL"))
      BR_TRY(br_equal_columns(d, out, br_expr_column(br_j_get(e, "left"), out),
                              br_expr_column(br_j_get(e, "right"), out), err));
  }
  BR_TRY(br_stays_over(d, n, own ? "" : "filter", out, err));
  if (own) br_set_rows(out, rows);
  return BR_OK;
}
