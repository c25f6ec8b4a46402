/* SPDX-License-Identifier: Apache-2.0
 *
 * Which output columns of each node something above it reads. One walk down before the plan is cut; exchanges then leave
 * the other columns out (the optimizer's own pass for this is off, see docs/plan-json.md). A CTE's definition is visited
 * after its body, when all its references are known.
 *
 * It may say that a column is needed which is not; never the other way. Threads: none. Bounds: as deep as the plan.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static void visit(br_dist *d, const br_node *n);

static void want(br_dist *d, const br_node *n, uint64_t column) {
  if (column < n->n_columns) d->needs[n->id][column] = true;
}

static void want_all(br_dist *d, const br_node *n) {
  for (size_t i = 0; i < n->n_columns; i++) d->needs[n->id][i] = true;
}

static bool wanted(const br_dist *d, const br_node *n, size_t column) { return d->needs[n->id][column]; }

/* Columns of `n` (which are numbered from `first` in the expression) that appear anywhere in it. */
static void want_refs(br_dist *d, const br_node *n, uint64_t first, const json_t *j) {
  const char *key;
  json_t *value;
  size_t i;
  if (json_is_array(j)) {
    json_array_foreach(j, i, value) want_refs(d, n, first, value);
    return;
  }
  if (!json_is_object(j)) return;
  if (br_j_is(j, "expression_class", "BOUND_REF")) {
    uint64_t at = br_json_u64(br_j_get(j, "index"));
    if (at >= first) want(d, n, at - first);
    return;
  }
  if (br_j_is(j, "expression_class", "BOUND_COLUMN_REF")) {
    const json_t *b = br_j_get(j, "binding");
    for (i = 0; i < n->n_columns; i++)
      if (n->binds[i].table == br_json_u64(br_j_get(b, "table_index")) &&
          n->binds[i].column == br_json_u64(br_j_get(b, "column_index")))
        want(d, n, i);
    return;
  }
  json_object_foreach((json_t *)j, key, value) want_refs(d, n, first, value);
}

/* Output columns [from, …) of n are the child's columns, all or those of the map. Gives how many there are. */
static size_t want_mapped(br_dist *d, const br_node *n, size_t from, const br_node *child, const char *map_key) {
  size_t mapped = br_j_count(n->json, map_key), count = mapped ? mapped : child->n_columns, at = 0;
  for (; at < count && from + at < n->n_columns; at++)
    if (wanted(d, n, from + at)) want(d, child, mapped ? br_json_u64(br_j_at(n->json, map_key, at)) : at);
  return at;
}

static void join_needs(br_dist *d, const br_node *n) {
  const br_node *l = n->children[0], *r = n->children[1];
  const char *type = br_j_str(n->json, "join_type");
  size_t at = 0;
  if (strncmp(type, "RIGHT_", 6) != 0) at = want_mapped(d, n, 0, l, "left_projection_map");
  if (strcmp(type, "SEMI") != 0 && strcmp(type, "ANTI") != 0 && strcmp(type, "MARK") != 0)
    want_mapped(d, n, at, r, "right_projection_map");
  for (size_t i = 0; i < br_j_count(n->json, "conditions"); i++) {
    const json_t *c = br_j_at(n->json, "conditions", i);
    want_refs(d, l, 0, br_j_get(c, "left"));
    want_refs(d, r, 0, br_j_get(c, "right"));
  }
  const json_t *both[] = {br_j_some(n->json, "condition"), br_j_some(n->json, "predicate")};
  bool maps = br_j_count(n->json, "left_projection_map") || br_j_count(n->json, "right_projection_map");
  for (size_t i = 0; i < 2; i++) {
    if (!both[i]) continue;
    if (maps) {
      want_all(d, l);
      want_all(d, r);
    }
    want_refs(d, l, 0, both[i]);
    want_refs(d, r, l->n_columns, both[i]);
  }
}

static void all_children(br_dist *d, const br_node *n) {
  for (size_t i = 0; i < n->n_children; i++) want_all(d, n->children[i]);
}

static void delim_join_needs(br_dist *d, const br_node *n) {
  size_t side = br_delim_side(n);
  join_needs(d, n);
  want_refs(d, n->children[side], 0, br_j_get(n->json, "duplicate_eliminated_columns"));
}

/* recursive: the CTE; what is computed before its rounds is visited as any other relation is. */
static void region_needs(br_dist *d, const br_node *n, const br_node *recursive) {
  all_children(d, n);
  if (n->source && n->kind == BR_NODE_CTE_REF) want_all(d, n->source->children[0]);
  for (size_t i = 0; i < n->n_children; i++)
    if (!recursive || !br_recursive_part(recursive, n->children[i])) region_needs(d, n->children[i], recursive);
}

/* What the node asks of its children. */
static void child_needs(br_dist *d, const br_node *n) {
  const br_node *c = n->n_children ? n->children[0] : NULL;
  const json_t *j = n->json;
  switch (n->kind) {
    case BR_NODE_PROJECTION:
      for (size_t i = 0; i < n->n_columns; i++)
        if (wanted(d, n, i)) want_refs(d, c, 0, br_j_at(j, "expressions", i));
      break;
    case BR_NODE_FILTER:
      want_mapped(d, n, 0, c, "projection_map");
      want_refs(d, c, 0, br_j_get(j, "expressions"));
      break;
    case BR_NODE_AGGREGATE:
      want_refs(d, c, 0, br_j_get(j, "groups"));
      want_refs(d, c, 0, br_j_get(j, "expressions"));
      break;
    case BR_NODE_ORDER:
    case BR_NODE_TOP_N:
      want_mapped(d, n, 0, c, n->kind == BR_NODE_ORDER ? "projections" : "");
      want_refs(d, c, 0, br_j_get(j, "orders"));
      break;
    case BR_NODE_LIMIT:
      want_mapped(d, n, 0, c, "");
      want_refs(d, c, 0, br_j_get(j, "limit_val"));
      want_refs(d, c, 0, br_j_get(j, "offset_val"));
      break;
    case BR_NODE_DISTINCT:
      want_mapped(d, n, 0, c, "");
      want_refs(d, c, 0, br_j_get(j, "distinct_targets"));
      want_refs(d, c, 0, br_j_get(j, "order_by"));
      break;
    case BR_NODE_WINDOW:
    case BR_NODE_UNNEST:
      want_mapped(d, n, 0, c, "");
      want_refs(d, c, 0, br_j_get(j, "expressions"));
      break;
    case BR_NODE_SAMPLE: want_mapped(d, n, 0, c, ""); break;
    case BR_NODE_CALLS:
      want_mapped(d, n, 0, c, "");
      for (size_t i = c->n_columns; i < n->n_columns; i++)
        if (wanted(d, n, i)) want_refs(d, c, 0, br_j_at(j, "calls", i - c->n_columns));
      break;
    case BR_NODE_JOIN:
    case BR_NODE_ANY_JOIN:
    case BR_NODE_ASOF_JOIN:
    case BR_NODE_CROSS: join_needs(d, n); break;
    case BR_NODE_DELIM_JOIN: delim_join_needs(d, n); break;
    case BR_NODE_UNION:
      for (size_t i = 0; i < n->n_children; i++) want_mapped(d, n, 0, n->children[i], "");
      break;
    case BR_NODE_CTE: want_mapped(d, n, 0, n->children[1], ""); break;
    case BR_NODE_CTE_REF:
      if (n->source) want_mapped(d, n, 0, n->source->children[0], "");
      break;
    case BR_NODE_RECURSIVE_CTE: region_needs(d, n, n); break;
    case BR_NODE_POSITIONAL_JOIN: region_needs(d, n, NULL); break;
    default: all_children(d, n); break;
  }
}

static void visit(br_dist *d, const br_node *n) {
  child_needs(d, n);
  for (size_t i = n->n_children; i-- > 0;) visit(d, n->children[i]); /* a CTE's body before its definition */
}

static void make_lists(br_dist *d, const br_node *n) {
  d->needs[n->id] = br_arena_alloc(d->arena, n->n_columns + 1);
  for (size_t i = 0; i < n->n_children; i++) make_lists(d, n->children[i]);
}

/* A relation without columns has no place for its rows: the narrowest one stays. */
static void at_least_one(br_dist *d, const br_node *n) {
  size_t narrowest = 0;
  bool any = false;
  for (size_t i = 0; i < n->n_columns; i++) {
    any = any || wanted(d, n, i);
    if (br_value_bytes(n->types[i]) < br_value_bytes(n->types[narrowest])) narrowest = i;
  }
  if (!any) want(d, n, narrowest);
  for (size_t i = 0; i < n->n_children; i++) at_least_one(d, n->children[i]);
}

void br_find_needs(br_dist *d) {
  d->needs = br_arena_alloc(d->arena, (d->plan->n_nodes + 1) * sizeof *d->needs);
  make_lists(d, d->plan->root);
  want_all(d, d->plan->root);
  visit(d, d->plan->root);
  at_least_one(d, d->plan->root);
}
