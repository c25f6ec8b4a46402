/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of users' functions become nodes of their own. A call is taken out of its operator's expressions when its arguments hold no
 * other call; nodes are stacked until none is left, so nested calls are computed one after the other. What the operator passes through
 * of its input stays what it was: by its projection map where it has one, else by a projection above it.
 *
 * Order of calls: br_plan_parse, br_plan_steps, then the plan is read-only. Threads: none. Bounds: recursion is as deep as the plan.
 */
#include "plan/steps.h"

#include "plan/access.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
  br_plan *plan;
  const br_udf *functions;
  size_t n_functions;
} walk;

/* Calls of one operator's side whose arguments are plain. */
typedef struct calls {
  json_t **found; /* every place */
  size_t n, cap;
} calls;

const br_udf *br_plan_udf(const json_t *expr, const br_udf *functions, size_t n) {
  const char *name = br_j_str(expr, "name");
  if (!br_j_is(expr, "expression_class", "BOUND_FUNCTION")) return NULL;
  if (strncmp(name, BR_UDF_PREFIX, strlen(BR_UDF_PREFIX)) != 0) return NULL;
  uint64_t id = strtoull(name + strlen(BR_UDF_PREFIX), NULL, 10);
  for (size_t i = 0; i < n; i++)
    if (functions[i].id == id) return &functions[i];
  return NULL;
}

/* ---- finding */

static bool holds_call(const walk *w, const json_t *j) {
  const char *key;
  json_t *v;
  size_t i;
  if (json_is_array(j)) {
    json_array_foreach(j, i, v) if (holds_call(w, v)) return true;
  } else if (json_is_object(j)) {
    if (br_plan_udf(j, w->functions, w->n_functions)) return true;
    json_object_foreach((json_t *)j, key, v) if (holds_call(w, v)) return true;
  }
  return false;
}

/* The first one in it, for messages. */
static const char *call_name(const walk *w, const json_t *j) {
  const char *key, *name;
  json_t *v;
  size_t i;
  if (json_is_array(j)) {
    json_array_foreach(j, i, v) if ((name = call_name(w, v)) != NULL) return name;
  } else if (json_is_object(j)) {
    const br_udf *f = br_plan_udf(j, w->functions, w->n_functions);
    if (f) return f->name;
    json_object_foreach((json_t *)j, key, v) if ((name = call_name(w, v)) != NULL) return name;
  }
  return NULL;
}

static br_status refused(const walk *w, const json_t *at, const char *where, br_error *err) {
  const char *name = call_name(w, at);
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "%s() runs in processes beside the engine and can't be called %s",
                 name ? name : "a user's function", where);
}

static void add_call(calls *c, json_t *call) {
  if (c->n == c->cap) {
    c->cap = c->cap ? 2 * c->cap : 8;
    c->found = br_realloc(c->found, c->cap * sizeof *c->found);
  }
  c->found[c->n++] = call;
}

static br_status collect(const walk *w, json_t *j, calls *out, br_error *err) {
  const char *key;
  json_t *v;
  size_t i;
  if (json_is_array(j)) {
    json_array_foreach(j, i, v) BR_TRY(collect(w, v, out, err));
    return BR_OK;
  }
  if (!json_is_object(j)) return BR_OK;
  if (br_plan_udf(j, w->functions, w->n_functions) && !holds_call(w, br_j_get(j, "children"))) {
    add_call(out, j);
    return BR_OK;
  }
  json_object_foreach(j, key, v) {
    if (!strcmp(key, "lambda_expr") && holds_call(w, v)) return refused(w, v, "inside a lambda", err);
    BR_TRY(collect(w, v, out, err));
  }
  return BR_OK;
}

/* Equal but for what names and places call them. */
static bool same(const json_t *a, const json_t *b) {
  const char *key;
  json_t *v;
  size_t i;
  if (json_is_array(a)) {
    if (!json_is_array(b) || json_array_size(a) != json_array_size(b)) return false;
    json_array_foreach(a, i, v) if (!same(v, json_array_get(b, i))) return false;
    return true;
  }
  if (!json_is_object(a)) return json_equal(a, b);
  if (!json_is_object(b) || json_object_size(a) != json_object_size(b)) return false;
  json_object_foreach((json_t *)a, key, v) {
    if (!strcmp(key, "alias") || !strcmp(key, "query_location")) continue;
    if (!same(v, json_object_get(b, key))) return false;
  }
  return true;
}

/* ---- references */

static json_t *reference(json_t *type, uint64_t index, const char *alias) {
  return json_pack("{s:s, s:s, s:s, s:O, s:I}", "expression_class", "BOUND_REF", "type", "BOUND_REF", "alias", alias,
                   "return_type", type ? type : json_null(), "index", (json_int_t)index);
}

/* The object becomes a reference in its place. */
static void become_reference(json_t *call, uint64_t index) {
  json_t *type = json_incref(br_expr_type(call));
  char *alias = br_strdup(br_j_str(call, "alias"));
  json_t *ref = reference(type, index, alias);
  json_object_clear(call);
  json_object_update(call, ref);
  json_decref(ref);
  json_decref(type);
  free(alias);
}

/* References from `from` on move by `by`. Bodies of lambdas have numbers of their own. */
static void shift(json_t *j, uint64_t from, int64_t by) {
  const char *key;
  json_t *v;
  size_t i;
  if (json_is_array(j)) {
    json_array_foreach(j, i, v) shift(v, from, by);
    return;
  }
  if (!json_is_object(j)) return;
  if (br_j_is(j, "expression_class", "BOUND_REF")) {
    uint64_t at = br_json_u64(br_j_get(j, "index"));
    if (at >= from) json_object_set_new(j, "index", json_integer((json_int_t)((int64_t)at + by)));
    return;
  }
  json_object_foreach(j, key, v) if (strcmp(key, "lambda_expr") != 0) shift(v, from, by);
}

/* Does it refer to columns [from, to)? */
static bool refers(const json_t *j, uint64_t from, uint64_t to) {
  const char *key;
  json_t *v;
  size_t i;
  if (json_is_array(j)) {
    json_array_foreach(j, i, v) if (refers(v, from, to)) return true;
    return false;
  }
  if (!json_is_object(j)) return false;
  if (br_j_is(j, "expression_class", "BOUND_REF")) {
    uint64_t at = br_json_u64(br_j_get(j, "index"));
    return at >= from && at < to;
  }
  json_object_foreach((json_t *)j, key, v) if (strcmp(key, "lambda_expr") != 0 && refers(v, from, to)) return true;
  return false;
}

/* ---- nodes */

static void drop_json(void *j) { json_decref(j); }

static br_node *new_node(walk *w, br_node_kind kind, const char *type, json_t *json, size_t n_children,
                         size_t n_columns) {
  br_node *n = br_arena_alloc(w->plan->arena, sizeof *n);
  br_arena_cleanup(w->plan->arena, drop_json, json);
  *n =
      (br_node){.kind = kind, .type = type, .json = json, .n_children = n_children, .n_columns = n_columns, .rows = -1};
  n->children = br_arena_alloc(w->plan->arena, (n_children + 1) * sizeof *n->children);
  n->types = br_arena_alloc(w->plan->arena, (n_columns + 1) * sizeof *n->types);
  n->binds = br_arena_alloc(w->plan->arena, (n_columns + 1) * sizeof *n->binds);
  return n;
}

static void copy_columns(br_node *to, size_t at, const br_node *from, size_t first, size_t n) {
  memcpy(to->types + at, from->types + first, n * sizeof *to->types);
  memcpy(to->binds + at, from->binds + first, n * sizeof *to->binds);
}

/* No table of the plan has this index. */
#define CALLS_TABLE (UINT64_MAX - 4096)

/* A node over `child` that computes the calls (each different one once); they become references to its columns, which the
 * operator sees from `first_ref` on. */
static br_node *calls_node(walk *w, br_node *child, const calls *c, uint64_t first_ref) {
  json_t *list = json_array();
  for (size_t i = 0; i < c->n; i++) {
    size_t k = 0;
    while (k < json_array_size(list) && !same(json_array_get(list, k), c->found[i])) k++;
    if (k == json_array_size(list)) json_array_append_new(list, json_deep_copy(c->found[i]));
    become_reference(c->found[i], first_ref + child->n_columns + k);
  }
  size_t n = json_array_size(list);
  br_node *node = new_node(w, BR_NODE_CALLS, "BRANT_CALLS",
                           json_pack("{s:s, s:o}", "type", "BRANT_CALLS", "calls", list), 1, child->n_columns + n);
  node->children[0] = child;
  node->rows = child->rows;
  copy_columns(node, 0, child, 0, child->n_columns);
  for (size_t i = 0; i < n; i++) {
    node->types[child->n_columns + i] = br_expr_type(json_array_get(list, i));
    node->binds[child->n_columns + i] = (br_bind){CALLS_TABLE, child->n_columns + i};
  }
  return node;
}

static void set_identity(json_t *json, const char *key, size_t n) {
  if (br_j_count(json, key)) return;
  json_t *map = json_array();
  for (size_t i = 0; i < n; i++) json_array_append_new(map, json_integer((json_int_t)i));
  json_object_set_new(json, key, map);
}

/* ---- operators with one input */

/* All calls of the node, over its input: stacked nodes between the two. */
static br_status over_child(walk *w, br_node *n, br_error *err) {
  br_node *child = n->children[0];
  json_t *children = json_incref(json_object_get(n->json, "children"));
  json_object_del(n->json, "children"); /* they have had their turn */
  br_status status = BR_OK;
  for (;;) {
    calls c = {0};
    status = collect(w, n->json, &c, err);
    if (status == BR_OK && c.n) child = calls_node(w, child, &c, 0);
    bool more = c.n > 0;
    free(c.found);
    if (status != BR_OK || !more) break;
  }
  if (children) json_object_set_new(n->json, "children", children);
  n->children[0] = child;
  return status;
}

/* A projection over `over` to some of its columns: with the names that `like` has for them. */
static br_node *pick(walk *w, br_node *over, const size_t *at, const br_node *like) {
  json_t *list = json_array();
  br_node *p =
      new_node(w, BR_NODE_PROJECTION, "LOGICAL_PROJECTION",
               json_pack("{s:s, s:o, s:i}", "type", "LOGICAL_PROJECTION", "expressions", list, "table_index", 0), 1,
               like->n_columns);
  for (size_t i = 0; i < like->n_columns; i++) json_array_append_new(list, reference(like->types[i], at[i], ""));
  copy_columns(p, 0, like, 0, like->n_columns);
  p->children[0] = over;
  p->rows = over->rows;
  return p;
}

static void widen(walk *w, br_node *n, size_t n_columns) {
  n->n_columns = n_columns;
  n->types = br_arena_alloc(w->plan->arena, (n_columns + 1) * sizeof *n->types);
  n->binds = br_arena_alloc(w->plan->arena, (n_columns + 1) * sizeof *n->binds);
}

/* The operator passes all columns of its input on: it has more of them now, and a projection above takes them away again. */
static br_node *trimmed(walk *w, br_node *n, size_t before, size_t more) {
  size_t own = n->n_columns - before;
  br_node old = *n;
  size_t *at = br_arena_alloc(w->plan->arena, (old.n_columns + 1) * sizeof *at);
  for (size_t i = 0; i < old.n_columns; i++) at[i] = i < before ? i : i + more;
  widen(w, n, old.n_columns + more);
  copy_columns(n, 0, n->children[0], 0, before + more);
  copy_columns(n, before + more, &old, before, own);
  return pick(w, n, at, &old);
}

static br_status one_input(walk *w, br_node **at, br_error *err) {
  br_node *n = *at, *child = n->children[0];
  size_t before = child->n_columns;
  switch (n->kind) {
    case BR_NODE_PROJECTION:
    case BR_NODE_AGGREGATE:
    case BR_NODE_EXPRESSION_GET: return over_child(w, n, err);
    case BR_NODE_FILTER: set_identity(n->json, "projection_map", before); return over_child(w, n, err);
    case BR_NODE_ORDER: set_identity(n->json, "projections", before); return over_child(w, n, err);
    case BR_NODE_TOP_N:
    case BR_NODE_DISTINCT:
    case BR_NODE_WINDOW:
    case BR_NODE_UNNEST:
      BR_TRY(over_child(w, n, err));
      *at = trimmed(w, n, before, n->children[0]->n_columns - before);
      return BR_OK;
    default: return refused(w, n->json, "there", err);
  }
}

/* ---- joins */

/* The calls over one side's columns in `where`, whose references to that side start at first. */
static br_status over_side(walk *w, br_node *n, size_t side, json_t *const *where, size_t n_where, uint64_t first,
                           br_error *err) {
  br_node *child = n->children[side];
  br_status status = BR_OK;
  for (;;) {
    calls all = {0}, c = {0};
    for (size_t i = 0; i < n_where && status == BR_OK; i++) status = collect(w, where[i], &all, err);
    for (size_t i = 0; i < all.n; i++) {
      json_t *args = br_j_get(all.found[i], "children");
      bool inside = !refers(args, 0, first) && !refers(args, first + child->n_columns, UINT64_MAX);
      if (inside) add_call(&c, all.found[i]);
    }
    if (status == BR_OK && c.n) {
      size_t before = child->n_columns, k = 0;
      /* what refers to the columns behind this side moves first; then the calls become references to the new columns */
      for (size_t i = 0; i < c.n; i++) {
        bool seen = false;
        for (size_t j = 0; j < i; j++) seen = seen || same(c.found[j], c.found[i]);
        k += !seen;
      }
      for (size_t i = 0; i < n_where; i++) shift(where[i], first + before, (int64_t)k);
      for (size_t i = 0; i < c.n && first; i++) shift(br_j_get(c.found[i], "children"), first, -(int64_t)first);
      child = calls_node(w, child, &c, first);
      BR_ASSERT(child->n_columns == before + k);
    }
    bool more = c.n > 0;
    free(all.found);
    free(c.found);
    if (status != BR_OK || !more) break;
  }
  n->children[side] = child;
  return status;
}

/* What the join gives out: left columns, then right ones, then perhaps a mark. */
typedef struct outputs {
  size_t n_left, n_right;
  bool left, right, all_right; /* all_right: conditions see all of the right columns */
} outputs;

static outputs outputs_of(const br_node *n) {
  const char *type = br_j_str(n->json, "join_type");
  size_t lm = br_j_count(n->json, "left_projection_map"), rm = br_j_count(n->json, "right_projection_map");
  bool half = !strcmp(type, "SEMI") || !strcmp(type, "ANTI");
  outputs o = {.left = strncmp(type, "RIGHT_", 6) != 0, .right = !half && strcmp(type, "MARK") != 0, .all_right = half};
  o.n_left = lm ? lm : n->children[0]->n_columns;
  o.n_right = rm ? rm : n->children[1]->n_columns;
  return o;
}

static size_t mapped_at(const br_node *n, const char *key, size_t i) {
  return br_j_count(n->json, key) ? (size_t)br_json_u64(br_j_at(n->json, key, i)) : i;
}

/* References of a condition over both sides are to what the join gives out: now to all left and all right columns. */
static void unmap(const br_node *n, const outputs *o, json_t *j) {
  const char *key;
  json_t *v;
  size_t i, l = n->children[0]->n_columns;
  if (json_is_array(j)) {
    json_array_foreach(j, i, v) unmap(n, o, v);
    return;
  }
  if (!json_is_object(j)) return;
  if (br_j_is(j, "expression_class", "BOUND_REF")) {
    size_t at = (size_t)br_json_u64(br_j_get(j, "index"));
    if (at < o->n_left)
      at = mapped_at(n, "left_projection_map", at);
    else
      at = l + (o->all_right ? at - o->n_left : mapped_at(n, "right_projection_map", at - o->n_left));
    json_object_set_new(j, "index", json_integer((json_int_t)at));
    return;
  }
  json_object_foreach(j, key, v) if (strcmp(key, "lambda_expr") != 0) unmap(n, o, v);
}

/* A condition over both sides, of an inner join, becomes a filter above it. */
static br_node *filter_above(walk *w, br_node *n, const char *key) {
  json_t *json = json_pack("{s:s, s:[O], s:[]}", "type", "LOGICAL_FILTER", "expressions", br_j_get(n->json, key),
                           "projection_map");
  br_node *f = new_node(w, BR_NODE_FILTER, "LOGICAL_FILTER", json, 1, n->n_columns);
  copy_columns(f, 0, n, 0, n->n_columns);
  f->rows = n->rows;
  f->children[0] = n;
  json_object_set_new(n->json, key, json_null());
  if (n->kind == BR_NODE_ANY_JOIN) {
    n->kind = BR_NODE_CROSS;
    n->type = "LOGICAL_CROSS_PRODUCT";
  }
  return f;
}

/* All columns of both sides, as far as this kind of join shows them, and a mark; gives where the old outputs are now. */
static size_t *show_all(walk *w, br_node *n, const outputs *o, const br_node *old) {
  size_t l = n->children[0]->n_columns, r = n->children[1]->n_columns, i = 0, now = 0;
  size_t *at = br_arena_alloc(w->plan->arena, (old->n_columns + 1) * sizeof *at);
  for (size_t k = 0; o->left && k < o->n_left; k++) at[i++] = mapped_at(n, "left_projection_map", k);
  for (size_t k = 0; o->right && k < o->n_right; k++)
    at[i++] = (o->left ? l : 0) + mapped_at(n, "right_projection_map", k);
  now = (o->left ? l : 0) + (o->right ? r : 0);
  size_t marks = old->n_columns - i;
  widen(w, n, now + marks);
  if (o->left) copy_columns(n, 0, n->children[0], 0, l);
  if (o->right) copy_columns(n, o->left ? l : 0, n->children[1], 0, r);
  copy_columns(n, now, old, i, marks);
  while (i < old->n_columns) at[i++] = now++;
  json_object_set_new(n->json, "left_projection_map", json_array());
  json_object_set_new(n->json, "right_projection_map", json_array());
  return at;
}

static br_status calls_over_both(walk *w, br_node **top, const char *key, br_error *err) {
  br_node *n = *top;
  json_t *where = br_j_some(n->json, key);
  if (!where || !holds_call(w, where)) return BR_OK;
  if (!br_j_is(n->json, "join_type", "INNER"))
    return refused(w, where, "over both sides of a join that is not an inner one: join first, then filter", err);
  *top = filter_above(w, n, key);
  return over_child(w, *top, err);
}

/* Calls in a condition that sees both sides. */
static br_status wide_conditions(walk *w, br_node **at, json_t **sides, br_error *err) {
  br_node *n = *at, old = *n;
  const outputs o = outputs_of(n);
  json_t *where[2];
  size_t n_where = 0, l = n->children[0]->n_columns;
  static const char *const keys[] = {"condition", "predicate"};
  for (size_t i = 0; i < 2; i++)
    if (br_j_some(n->json, keys[i])) where[n_where++] = br_j_get(n->json, keys[i]);
  for (size_t i = 0; i < n_where; i++) unmap(n, &o, where[i]);
  for (size_t s = 0; s < 2; s++) BR_TRY(over_side(w, n, s, &sides[s], 1, 0, err));
  for (size_t i = 0; i < n_where; i++) shift(where[i], l, (int64_t)(n->children[0]->n_columns - l));
  BR_TRY(over_side(w, n, 0, where, n_where, 0, err));
  BR_TRY(over_side(w, n, 1, where, n_where, n->children[0]->n_columns, err));
  size_t *kept = show_all(w, n, &o, &old);
  br_node *top = n;
  BR_TRY(calls_over_both(w, &top, keys[0], err));
  if (top == n) BR_TRY(calls_over_both(w, &top, keys[1], err));
  *at = pick(w, top, kept, &old);
  return BR_OK;
}

static br_status two_inputs(walk *w, br_node **at, br_error *err) {
  br_node *n = *at;
  json_t *conditions = br_j_get(n->json, "conditions"), *sides[2] = {json_array(), json_array()};
  br_status status = BR_OK;
  for (size_t i = 0; i < json_array_size(conditions); i++) {
    json_array_append(sides[0], br_j_get(json_array_get(conditions, i), "left"));
    json_array_append(sides[1], br_j_get(json_array_get(conditions, i), "right"));
  }
  if (n->kind == BR_NODE_DELIM_JOIN)
    json_array_append(sides[br_delim_side(n)], br_j_get(n->json, "duplicate_eliminated_columns"));
  if (holds_call(w, br_j_get(n->json, "condition")) || holds_call(w, br_j_get(n->json, "predicate"))) {
    status = wide_conditions(w, at, sides, err);
  } else {
    set_identity(n->json, "left_projection_map", n->children[0]->n_columns);
    set_identity(n->json, "right_projection_map", n->children[1]->n_columns);
    for (size_t s = 0; s < 2 && status == BR_OK; s++) status = over_side(w, n, s, &sides[s], 1, 0, err);
  }
  json_decref(sides[0]);
  json_decref(sides[1]);
  return status;
}

/* ---- the walk */

static bool own_calls(const walk *w, const br_node *n) {
  const char *key;
  json_t *v;
  json_object_foreach(n->json, key, v) if (strcmp(key, "children") != 0 && holds_call(w, v)) return true;
  return false;
}

static br_status visit(walk *w, br_node **at, br_error *err) {
  br_node *n = *at;
  for (size_t i = 0; i < n->n_children; i++) BR_TRY(visit(w, &n->children[i], err));
  if (!own_calls(w, n)) return BR_OK;
  switch (n->kind) {
    case BR_NODE_JOIN:
    case BR_NODE_ANY_JOIN:
    case BR_NODE_ASOF_JOIN:
    case BR_NODE_DELIM_JOIN: return two_inputs(w, at, err);
    case BR_NODE_LIMIT: return refused(w, n->json, "in LIMIT or OFFSET", err);
    case BR_NODE_GET: return refused(w, n->json, "as an argument of a table function", err);
    default: break;
  }
  if (n->n_children != 1) return refused(w, n->json, "there", err);
  return one_input(w, at, err);
}

static void number(br_plan *p, br_node *n) {
  n->id = (uint32_t)p->n_nodes++;
  for (size_t i = 0; i < n->n_children; i++) number(p, n->children[i]);
}

br_status br_plan_steps(br_plan *p, const br_udf *functions, size_t n, br_error *err) {
  walk w = {.plan = p, .functions = functions, .n_functions = n};
  if (!n || !holds_call(&w, p->json)) return BR_OK;
  BR_TRY(visit(&w, &p->root, err));
  p->n_nodes = 0;
  number(p, p->root);
  return BR_OK;
}
