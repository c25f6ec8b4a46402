/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON of json_serialize_plan → a tree of br_node. One walk down gives numbers and children, and on the way up each
 * node's output columns (binding and type) follow from its kind, its fields and its children; a second walk ties each
 * DELIM_GET to its join and each CTE_REF to its definition; a third takes the estimated rows out of EXPLAIN's tree, which
 * has the same shape.
 *
 * Everything comes from outside and is checked: an index past its array or a count that doesn't agree is BR_CORRUPT.
 * Threads: none; the result is read-only. Bounds: recursion is as deep as the JSON, which the parser limits to 2,048.
 */
#include "plan/node.h"

#include "plan/access.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Virtual columns of a scan. */
#define COLUMN_ROWID UINT64_MAX
#define COLUMN_EMPTY (UINT64_MAX - 1)
#define COLUMN_FILENAME (UINT64_C(1) << 63)
#define COLUMN_FILE_ROW_NUMBER (COLUMN_FILENAME + 1)
#define COLUMN_FILE_INDEX (COLUMN_FILENAME + 2)

static const struct {
  const char *type;
  br_node_kind kind;
  size_t children; /* how many it must have; SIZE_MAX: any */
} kinds[] = {
    {"LOGICAL_GET", BR_NODE_GET, SIZE_MAX},
    {"LOGICAL_PROJECTION", BR_NODE_PROJECTION, 1},
    {"LOGICAL_FILTER", BR_NODE_FILTER, 1},
    {"LOGICAL_AGGREGATE_AND_GROUP_BY", BR_NODE_AGGREGATE, 1},
    {"LOGICAL_COMPARISON_JOIN", BR_NODE_JOIN, 2},
    {"LOGICAL_ANY_JOIN", BR_NODE_ANY_JOIN, 2},
    {"LOGICAL_ASOF_JOIN", BR_NODE_ASOF_JOIN, 2},
    {"LOGICAL_DELIM_JOIN", BR_NODE_DELIM_JOIN, 2},
    {"LOGICAL_DELIM_GET", BR_NODE_DELIM_GET, 0},
    {"LOGICAL_CROSS_PRODUCT", BR_NODE_CROSS, 2},
    {"LOGICAL_POSITIONAL_JOIN", BR_NODE_POSITIONAL_JOIN, 2},
    {"LOGICAL_ORDER_BY", BR_NODE_ORDER, 1},
    {"LOGICAL_TOP_N", BR_NODE_TOP_N, 1},
    {"LOGICAL_LIMIT", BR_NODE_LIMIT, 1},
    {"LOGICAL_DISTINCT", BR_NODE_DISTINCT, 1},
    {"LOGICAL_WINDOW", BR_NODE_WINDOW, 1},
    {"LOGICAL_UNNEST", BR_NODE_UNNEST, 1},
    {"LOGICAL_UNION", BR_NODE_UNION, SIZE_MAX},
    {"LOGICAL_EXCEPT", BR_NODE_EXCEPT, 2},
    {"LOGICAL_INTERSECT", BR_NODE_INTERSECT, 2},
    {"LOGICAL_MATERIALIZED_CTE", BR_NODE_CTE, 2},
    {"LOGICAL_CTE_REF", BR_NODE_CTE_REF, 0},
    {"LOGICAL_RECURSIVE_CTE", BR_NODE_RECURSIVE_CTE, 2},
    {"LOGICAL_CHUNK_GET", BR_NODE_CHUNK_GET, 0},
    {"LOGICAL_EXPRESSION_GET", BR_NODE_EXPRESSION_GET, 1},
    {"LOGICAL_DUMMY_SCAN", BR_NODE_DUMMY, 0},
    {"LOGICAL_EMPTY_RESULT", BR_NODE_EMPTY, 0},
    {"LOGICAL_SAMPLE", BR_NODE_SAMPLE, 1},
    {"LOGICAL_PIVOT", BR_NODE_PIVOT, 1},
};

static br_status corrupt(br_error *err, const br_node *n, const char *what) {
  return br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "the plan JSON is damaged: node %u (%s): %s", n->id,
                 n->type ? n->type : "no type", what);
}

/* ---- types */

static const char *const plain_names[] = {"BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "VARCHAR"};
#define N_PLAIN (sizeof plain_names / sizeof *plain_names)
static json_t *plain_types[N_PLAIN];
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void make_plain(void) {
  for (size_t i = 0; i < N_PLAIN; i++) plain_types[i] = json_pack("{s:s, s:n}", "id", plain_names[i], "type_info");
}

json_t *br_type_plain(const char *id) {
  pthread_once(&plain_once, make_plain);
  for (size_t i = 0; i < N_PLAIN; i++)
    if (!strcmp(plain_names[i], id)) return plain_types[i];
  return NULL;
}

json_t *br_expr_type(const json_t *expr) {
  json_t *t = br_j_some(expr, "return_type");
  if (t) return t;
  const char *k = br_j_str(expr, "expression_class");
  if (!strcmp(k, "BOUND_CONSTANT")) return br_j_some(br_j_get(expr, "value"), "type");
  if (!strcmp(k, "BOUND_COMPARISON") || !strcmp(k, "BOUND_CONJUNCTION") || !strcmp(k, "BOUND_BETWEEN"))
    return br_type_plain("BOOLEAN");
  return NULL;
}

/* ---- output columns */

static void set_columns(br_arena *a, br_node *n, size_t count) {
  n->n_columns = count;
  n->types = br_arena_alloc(a, (count + 1) * sizeof *n->types);
  n->binds = br_arena_alloc(a, (count + 1) * sizeof *n->binds);
}

static void set_column(br_node *n, size_t i, json_t *type, uint64_t table, uint64_t column) {
  n->types[i] = type;
  n->binds[i] = (br_bind){table, column};
}

static void copy_column(br_node *n, size_t i, const br_node *from, size_t at) {
  n->types[i] = from->types[at];
  n->binds[i] = from->binds[at];
}

static uint64_t table_index(const br_node *n, const char *key) { return br_json_u64(br_j_get(n->json, key)); }

static void same_columns(br_arena *a, br_node *n) {
  const br_node *c = n->children[0];
  set_columns(a, n, c->n_columns);
  for (size_t i = 0; i < c->n_columns; i++) copy_column(n, i, c, i);
}

/* The child's columns that `key` names by position; an empty list names all. */
static br_status mapped_columns(br_arena *a, br_node *n, const char *key, br_error *err) {
  const br_node *c = n->children[0];
  size_t count = br_j_count(n->json, key);
  if (!count) {
    same_columns(a, n);
    return BR_OK;
  }
  set_columns(a, n, count);
  for (size_t i = 0; i < count; i++) {
    uint64_t at = br_json_u64(br_j_at(n->json, key, i));
    if (at >= c->n_columns) return corrupt(err, n, "a projection map points past the child's columns");
    copy_column(n, i, c, at);
  }
  return BR_OK;
}

static void expression_columns(br_arena *a, br_node *n) {
  size_t count = br_j_count(n->json, "expressions");
  set_columns(a, n, count);
  for (size_t i = 0; i < count; i++)
    set_column(n, i, br_expr_type(br_j_at(n->json, "expressions", i)), table_index(n, "table_index"), i);
}

/* Columns of the child, then one an expression, bound to `index_key`. */
static void appended_columns(br_arena *a, br_node *n, const char *index_key) {
  const br_node *c = n->children[0];
  size_t more = br_j_count(n->json, "expressions");
  set_columns(a, n, c->n_columns + more);
  for (size_t i = 0; i < c->n_columns; i++) copy_column(n, i, c, i);
  for (size_t i = 0; i < more; i++)
    set_column(n, c->n_columns + i, br_expr_type(br_j_at(n->json, "expressions", i)), table_index(n, index_key), i);
}

static void listed_columns(br_arena *a, br_node *n, const char *types_key) {
  size_t count = br_j_count(n->json, types_key);
  set_columns(a, n, count);
  for (size_t i = 0; i < count; i++) set_column(n, i, br_j_at(n->json, types_key, i), table_index(n, "table_index"), i);
}

static br_status empty_columns(br_arena *a, br_node *n, br_error *err) {
  size_t count = br_j_count(n->json, "return_types");
  set_columns(a, n, count);
  if (br_j_count(n->json, "bindings") != count) return corrupt(err, n, "bindings and return_types differ in number");
  for (size_t i = 0; i < count; i++) {
    const json_t *b = br_j_at(n->json, "bindings", i);
    set_column(n, i, br_j_at(n->json, "return_types", i), br_json_u64(br_j_get(b, "table_index")),
               br_json_u64(br_j_get(b, "column_index")));
  }
  return BR_OK;
}

static br_status setop_columns(br_arena *a, br_node *n, br_error *err) {
  if (!n->n_children) return corrupt(err, n, "a set operation without children");
  size_t count = n->children[0]->n_columns;
  for (size_t i = 0; i < n->n_children; i++)
    if (n->children[i]->n_columns != count || br_json_u64(br_j_get(n->json, "column_count")) != count)
      return corrupt(err, n, "its inputs differ in their number of columns");
  set_columns(a, n, count);
  for (size_t i = 0; i < count; i++) set_column(n, i, n->children[0]->types[i], table_index(n, "table_index"), i);
  return BR_OK;
}

static void aggregate_columns(br_arena *a, br_node *n) {
  size_t groups = br_j_count(n->json, "groups"), aggs = br_j_count(n->json, "expressions");
  size_t groupings = br_j_count(n->json, "grouping_functions"), at = 0;
  set_columns(a, n, groups + aggs + groupings);
  for (size_t i = 0; i < groups; i++)
    set_column(n, at++, br_expr_type(br_j_at(n->json, "groups", i)), table_index(n, "group_index"), i);
  for (size_t i = 0; i < aggs; i++)
    set_column(n, at++, br_expr_type(br_j_at(n->json, "expressions", i)), table_index(n, "aggregate_index"), i);
  for (size_t i = 0; i < groupings; i++)
    set_column(n, at++, br_type_plain("BIGINT"), table_index(n, "groupings_index"), i);
}

/* One side's output of a join: all its columns, or those of its projection map. */
static br_status join_side(br_node *n, const char *map_key, const br_node *c, size_t *at, br_error *err) {
  size_t mapped = br_j_count(n->json, map_key);
  size_t count = mapped ? mapped : c->n_columns;
  for (size_t i = 0; i < count; i++) {
    uint64_t from = mapped ? br_json_u64(br_j_at(n->json, map_key, i)) : i;
    if (from >= c->n_columns) return corrupt(err, n, "a projection map points past the child's columns");
    copy_column(n, (*at)++, c, from);
  }
  return BR_OK;
}

static size_t side_width(const br_node *n, const char *map_key, const br_node *c) {
  size_t mapped = br_j_count(n->json, map_key);
  return mapped ? mapped : c->n_columns;
}

static br_status join_columns(br_arena *a, br_node *n, br_error *err) {
  const br_node *l = n->children[0], *r = n->children[1];
  const char *t = br_j_str(n->json, "join_type");
  bool mark = !strcmp(t, "MARK");
  bool left = strncmp(t, "RIGHT_", 6) != 0;
  bool right = strcmp(t, "SEMI") != 0 && strcmp(t, "ANTI") != 0 && !mark;
  size_t at = 0;
  set_columns(a, n, side_width(n, "left_projection_map", l) + side_width(n, "right_projection_map", r) + 1);
  if (left) BR_TRY(join_side(n, "left_projection_map", l, &at, err));
  if (right) BR_TRY(join_side(n, "right_projection_map", r, &at, err));
  if (mark) set_column(n, at++, br_type_plain("BOOLEAN"), table_index(n, "mark_index"), 0);
  n->n_columns = at;
  return BR_OK;
}

static json_t *deepest_type(const json_t *index) {
  json_t *t = br_j_some(index, "type");
  for (const json_t *c = br_j_at(index, "child_indexes", 0); c; c = br_j_at(c, "child_indexes", 0))
    t = br_j_some(c, "type");
  return t;
}

static json_t *scan_column_type(const br_node *n, const json_t *index) {
  uint64_t i = br_json_u64(br_j_get(index, "index"));
  if (i == COLUMN_ROWID) return br_type_plain("BIGINT");
  if (i == COLUMN_EMPTY) return br_type_plain("BOOLEAN");
  if (i == COLUMN_FILENAME) return br_type_plain("VARCHAR");
  if (i == COLUMN_FILE_ROW_NUMBER) return br_type_plain("BIGINT");
  if (i == COLUMN_FILE_INDEX) return br_type_plain("UBIGINT");
  if (br_j_is(index, "index_type", "PUSHDOWN_EXTRACT")) return deepest_type(index);
  return i <= SIZE_MAX ? br_j_at(n->json, "returned_types", i) : NULL;
}

static br_status get_columns(br_arena *a, br_node *n, br_error *err) {
  const json_t *j = n->json;
  size_t indexes = br_j_count(j, "column_indexes"), ids = br_j_count(j, "projection_ids");
  size_t passed = n->n_children ? br_j_count(j, "projected_input") : 0;
  size_t own = ids ? ids : indexes;
  if (n->n_children > 1) return corrupt(err, n, "a scan with more than one child");
  set_columns(a, n, own + passed + 1);
  for (size_t i = 0; i < own; i++) {
    uint64_t id = ids ? br_json_u64(br_j_at(j, "projection_ids", i)) : i;
    if (id >= indexes) return corrupt(err, n, "projection_ids point past column_indexes");
    set_column(n, i, scan_column_type(n, br_j_at(j, "column_indexes", id)), table_index(n, "table_index"), id);
  }
  if (!own) set_column(n, own++, br_type_plain("BOOLEAN"), table_index(n, "table_index"), 0); /* only its rows count */
  for (size_t i = 0; i < passed; i++) {
    uint64_t at = br_json_u64(br_j_at(j, "projected_input", i));
    if (at >= n->children[0]->n_columns) return corrupt(err, n, "projected_input points past the child's columns");
    copy_column(n, own + i, n->children[0], at);
  }
  n->n_columns = own + passed;
  return BR_OK;
}

static void pivot_columns(br_arena *a, br_node *n) {
  const json_t *bp = br_j_get(n->json, "bound_pivot");
  size_t groups = (size_t)br_json_u64(br_j_get(bp, "group_count")), values = br_j_count(bp, "pivot_values");
  if (groups > n->children[0]->n_columns) groups = n->children[0]->n_columns;
  set_columns(a, n, groups + values);
  for (size_t i = 0; i < groups + values; i++)
    set_column(n, i, br_j_at(bp, "types", i), table_index(n, "pivot_index"), i);
}

static br_status columns_of(br_arena *a, br_node *n, br_error *err) {
  switch (n->kind) {
    case BR_NODE_GET: return get_columns(a, n, err);
    case BR_NODE_PROJECTION: expression_columns(a, n); return BR_OK;
    case BR_NODE_FILTER: return mapped_columns(a, n, "projection_map", err);
    case BR_NODE_ORDER: return mapped_columns(a, n, "projections", err);
    case BR_NODE_AGGREGATE: aggregate_columns(a, n); return BR_OK;
    case BR_NODE_JOIN:
    case BR_NODE_ANY_JOIN:
    case BR_NODE_ASOF_JOIN:
    case BR_NODE_DELIM_JOIN: return join_columns(a, n, err);
    case BR_NODE_CROSS:
    case BR_NODE_POSITIONAL_JOIN: {
      size_t at = 0;
      set_columns(a, n, n->children[0]->n_columns + n->children[1]->n_columns);
      BR_TRY(join_side(n, "", n->children[0], &at, err));
      return join_side(n, "", n->children[1], &at, err);
    }
    case BR_NODE_TOP_N:
    case BR_NODE_LIMIT:
    case BR_NODE_DISTINCT:
    case BR_NODE_SAMPLE: same_columns(a, n); return BR_OK;
    case BR_NODE_WINDOW: appended_columns(a, n, "window_index"); return BR_OK;
    case BR_NODE_UNNEST: appended_columns(a, n, "unnest_index"); return BR_OK;
    case BR_NODE_UNION:
    case BR_NODE_EXCEPT:
    case BR_NODE_INTERSECT:
    case BR_NODE_RECURSIVE_CTE: return setop_columns(a, n, err);
    case BR_NODE_CTE:
      set_columns(a, n, n->children[1]->n_columns);
      for (size_t i = 0; i < n->n_columns; i++) copy_column(n, i, n->children[1], i);
      return BR_OK;
    case BR_NODE_CTE_REF:
    case BR_NODE_DELIM_GET:
    case BR_NODE_CHUNK_GET: listed_columns(a, n, "chunk_types"); return BR_OK;
    case BR_NODE_EXPRESSION_GET: listed_columns(a, n, "expr_types"); return BR_OK;
    case BR_NODE_DUMMY:
      set_columns(a, n, 1);
      set_column(n, 0, br_type_plain("INTEGER"), table_index(n, "table_index"), 0);
      return BR_OK;
    case BR_NODE_EMPTY: return empty_columns(a, n, err);
    case BR_NODE_PIVOT: pivot_columns(a, n); return BR_OK;
    case BR_NODE_CALLS: /* not from JSON */
    case BR_NODE_OTHER: set_columns(a, n, 0); return BR_OK;
  }
  return BR_OK;
}

/* ---- the tree */

static br_status build(br_plan *p, json_t *json, br_node **out, br_error *err) {
  br_node *n = br_arena_alloc(p->arena, sizeof *n);
  size_t want = SIZE_MAX;
  n->json = json;
  n->id = (uint32_t)p->n_nodes++;
  n->rows = n->source_rows = n->source_bytes = -1;
  n->type = json_string_value(br_j_get(json, "type"));
  if (!n->type) return corrupt(err, n, "no \"type\"");
  n->kind = BR_NODE_OTHER;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(n->type, kinds[i].type)) {
      n->kind = kinds[i].kind;
      want = kinds[i].children;
    }
  n->n_children = br_j_count(json, "children");
  if (want != SIZE_MAX && n->n_children != want) return corrupt(err, n, "wrong number of children");
  n->children = br_arena_alloc(p->arena, (n->n_children + 1) * sizeof *n->children);
  for (size_t i = 0; i < n->n_children; i++) BR_TRY(build(p, br_j_at(json, "children", i), &n->children[i], err));
  *out = n;
  return columns_of(p->arena, n, err);
}

size_t br_delim_side(const br_node *delim_join) { return br_j_true(delim_join->json, "delim_flipped") ? 1 : 0; }

/* Definitions that enclose a node, innermost first. */
typedef struct scope {
  const struct scope *up;
  const br_node *node;
} scope;

static br_status tie_delim_get(br_node *n, const scope *delims, br_error *err) {
  if (!delims) return corrupt(err, n, "no enclosing DELIM_JOIN feeds it");
  if (br_j_count(delims->node->json, "duplicate_eliminated_columns") != n->n_columns)
    return corrupt(err, n, "it differs from the keys of its DELIM_JOIN in the number of columns");
  n->source = delims->node;
  return BR_OK;
}

static br_status tie_cte_ref(br_node *n, const scope *ctes, br_error *err) {
  uint64_t index = table_index(n, "cte_index");
  for (const scope *s = ctes; s; s = s->up) {
    if (table_index(s->node, "table_index") != index) continue;
    if (s->node->children[0]->n_columns != n->n_columns)
      return corrupt(err, n, "it differs from its definition in the number of columns");
    n->source = s->node;
    return BR_OK;
  }
  return corrupt(err, n, "the CTE that it names is not defined around it");
}

static br_status tie(br_node *n, const scope *delims, const scope *ctes, br_error *err) {
  if (n->kind == BR_NODE_DELIM_GET) return tie_delim_get(n, delims, err);
  if (n->kind == BR_NODE_CTE_REF) return tie_cte_ref(n, ctes, err);
  scope own = {NULL, n};
  for (size_t i = 0; i < n->n_children; i++) {
    const scope *d = delims, *c = ctes;
    if (n->kind == BR_NODE_DELIM_JOIN && i != br_delim_side(n)) {
      own.up = delims;
      d = &own;
    }
    if ((n->kind == BR_NODE_CTE || n->kind == BR_NODE_RECURSIVE_CTE) && i == 1) {
      own.up = ctes;
      c = &own;
    }
    BR_TRY(tie(n->children[i], d, c, err));
  }
  return BR_OK;
}

/* ---- estimated rows */

static bool same_shape(const br_node *n, const json_t *e) {
  if (!json_is_object(e) || br_j_count(e, "children") != n->n_children) return false;
  for (size_t i = 0; i < n->n_children; i++)
    if (!same_shape(n->children[i], br_j_at(e, "children", i))) return false;
  return true;
}

/* DuckDB leaves some nodes (ORDER BY, DELIM_JOIN) without an estimate: take it from below. */
static void derive_rows(br_node *n) {
  if (n->rows < 0 && n->kind == BR_NODE_EMPTY) n->rows = 0;
  if (n->rows >= 0 || !n->n_children) return;
  n->rows = n->children[n->kind == BR_NODE_CTE ? 1 : 0]->rows;
  bool sums = n->kind == BR_NODE_UNION, larger = n->kind == BR_NODE_JOIN || n->kind == BR_NODE_ANY_JOIN;
  for (size_t i = 1; i < n->n_children; i++) {
    double r = n->children[i]->rows;
    if (sums && n->rows >= 0 && r >= 0) n->rows += r;
    if (larger && r > n->rows) n->rows = r;
  }
}

static void take_rows(br_node *n, const json_t *e) {
  const json_t *c = br_j_get(br_j_get(e, "extra_info"), "Estimated Cardinality");
  if (json_is_string(c)) {
    const char *s = json_string_value(c);
    s += strcspn(s, "0123456789");
    if (*s) n->rows = strtod(s, NULL);
  } else if (json_is_number(c)) {
    n->rows = json_number_value(c);
  }
  for (size_t i = 0; i < n->n_children; i++) take_rows(n->children[i], br_j_at(e, "children", i));
  derive_rows(n);
}

br_status br_plan_estimate(br_plan *p, const char *explain_json, br_error *err) {
  json_t *e = NULL;
  BR_TRY(br_json_parse(explain_json, &e, err));
  const json_t *root = json_is_array(e) ? json_array_get(e, 0) : e;
  if (same_shape(p->root, root)) take_rows(p->root, root);
  json_decref(e);
  return BR_OK;
}

/* ---- the plan */

static void release_json(void *j) { json_decref(j); }

static br_status open_plan(br_plan *p, const char *json, br_error *err) {
  if (!*json)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "this query holds a value that the plan can't carry as text (a BIT or BIGNUM constant)");
  BR_TRY(br_json_parse(json, &p->json, err));
  br_arena_cleanup(p->arena, release_json, p->json);
  if (br_j_true(p->json, "error"))
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "this statement has no plan that can be taken apart: %s",
                   br_j_str(p->json, "error_message"));
  size_t plans = br_j_count(p->json, "plans");
  if (!plans) return br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "the plan JSON is damaged: it has no \"plans\"");
  if (plans > 1)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "only one statement can be planned at a time, here are %zu",
                   plans);
  BR_TRY(build(p, br_j_at(p->json, "plans", 0), &p->root, err));
  return tie(p->root, NULL, NULL, err);
}

br_status br_plan_parse(const char *json, const char *explain_json, br_plan **out, br_error *err) {
  br_arena *a = br_arena_new();
  br_plan *p = br_arena_alloc(a, sizeof *p);
  br_status status;
  p->arena = a;
  BR_TRY_GOTO(open_plan(p, json, err));
  if (explain_json) BR_TRY_GOTO(br_plan_estimate(p, explain_json, err));
  *out = p;
done:
  if (status != BR_OK) br_arena_free(a);
  return status;
}

void br_plan_free(br_plan *p) {
  if (p) br_arena_free(p->arena);
}

static bool calls(const json_t *j, const char *function) {
  const char *key;
  json_t *value;
  size_t i;
  if (json_is_object(j)) {
    if (br_j_is(j, "expression_class", "BOUND_FUNCTION") && br_j_is(j, "name", function)) return true;
    json_object_foreach((json_t *)j, key, value) if (calls(value, function)) return true;
  } else if (json_is_array(j)) {
    json_array_foreach(j, i, value) if (calls(value, function)) return true;
  }
  return false;
}

bool br_plan_calls(const br_plan *p, const char *function) { return calls(p->json, function); }
