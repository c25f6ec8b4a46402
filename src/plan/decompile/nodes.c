/* SPDX-License-Identifier: Apache-2.0
 *
 * One plan node over the texts of its children: SELECT … FROM (child) t.
 */
#include "plan/decompile/emit.h"

#include <string.h>

#define LIMIT_MAX (UINT64_C(1) << 62) /* larger ones mean "no limit" */

static const char *over(br_emit *e, const char *select, const br_rel *child, const char *tail) {
  return br_e_fmt(e, "SELECT %s\nFROM %s t%s", select, br_e_from(e, child->sql), tail);
}

static const char *projection(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  br_texts list = br_e_exprs(e, br_j_get(n->json, "expressions"), &env);
  if (!list.n) br_e_unsupported(e, "a projection to no column");
  return over(e, br_e_columns(e, &list), c, "");
}

/* The child's columns that a map names; no map: all. */
static br_texts mapped(br_emit *e, const json_t *map, const br_env *env) {
  br_texts list = {0};
  if (!json_array_size(map)) return env->refs;
  for (size_t i = 0; i < json_array_size(map); i++) {
    uint64_t at = br_json_u64(json_array_get(map, i));
    if (at >= env->refs.n) {
      br_e_corrupt(e, "a projection map points past the input's columns");
      break;
    }
    br_e_add(e, &list, env->refs.v[at]);
  }
  return list;
}

static const char *filter(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  br_texts columns = mapped(e, br_j_get(n->json, "projection_map"), &env);
  br_texts conditions = br_e_exprs(e, br_j_get(n->json, "expressions"), &env);
  const char *where = conditions.n ? br_e_fmt(e, "\nWHERE %s", br_e_join(e, &conditions, " AND ")) : "";
  return over(e, br_e_columns(e, &columns), c, where);
}

static const char *order(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  br_texts columns = mapped(e, br_j_get(n->json, "projections"), &env);
  const char *by = br_e_fmt(e, "\nORDER BY %s", br_e_orders(e, br_j_get(n->json, "orders"), &env));
  return over(e, br_e_columns(e, &columns), c, by);
}

static const char *top_n(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  uint64_t limit = br_json_u64(br_j_get(n->json, "limit")), offset = br_json_u64(br_j_get(n->json, "offset"));
  if (limit > LIMIT_MAX) limit = LIMIT_MAX;
  const char *by = br_e_orders(e, br_j_get(n->json, "orders"), &env);
  const char *skip = offset ? br_e_fmt(e, " OFFSET %llu", (unsigned long long)offset) : "";
  return over(e, "*", c, br_e_fmt(e, "\nORDER BY %s\nLIMIT %llu%s", by, (unsigned long long)limit, skip));
}

/* One of LIMIT and OFFSET. An expression is evaluated over the child's first row: `bound` names the child then. */
static const char *limit_part(br_emit *e, const json_t *v, const char *word, const br_env *env, const char *bound,
                              bool *needs_bound) {
  const char *kind = br_j_str(v, "type");
  if (!strcmp(kind, "UNSET")) return "";
  if (!strcmp(kind, "CONSTANT_VALUE"))
    return br_e_fmt(e, "\n%s %llu", word, (unsigned long long)br_json_u64(br_j_get(v, "constant_integer")));
  if (!strcmp(kind, "CONSTANT_PERCENTAGE"))
    return br_e_fmt(e, "\n%s %.17g%%", word, br_json_double(br_j_get(v, "constant_percentage")));
  bool percent = !strcmp(kind, "EXPRESSION_PERCENTAGE");
  if (!percent && strcmp(kind, "EXPRESSION_VALUE") != 0) {
    br_e_unsupported(e, "%s of kind %.60s", word, kind);
    return "";
  }
  *needs_bound = true;
  return br_e_fmt(e, "\n%s (SELECT %s FROM %s t LIMIT 1)%s", word, br_e_expr(e, br_j_get(v, "expression"), env), bound,
                  percent ? "%" : "");
}

static const char *limit(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  const char *bound = br_e_fmt(e, "lim%u", n->id);
  bool needs_bound = false;
  const char *most = limit_part(e, br_j_get(n->json, "limit_val"), "LIMIT", &env, bound, &needs_bound);
  const char *skip = limit_part(e, br_j_get(n->json, "offset_val"), "OFFSET", &env, bound, &needs_bound);
  const char *tail = br_e_fmt(e, "%s%s", most, skip);
  if (!needs_bound) return over(e, "*", c, tail);
  br_texts with = {0};
  br_e_add(e, &with, br_e_materialized(e, bound, c->sql));
  return br_e_with(e, &with, br_e_fmt(e, "SELECT * FROM %s t%s", bound, tail));
}

static const char *distinct(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  const json_t *targets = br_j_get(n->json, "distinct_targets");
  const json_t *orders = br_j_get(br_j_some(n->json, "order_by"), "orders");
  if (br_j_is(n->json, "distinct_type", "DISTINCT") && json_array_size(targets) == c->n_columns)
    return over(e, "DISTINCT *", c, "");
  br_texts keys = br_e_exprs(e, targets, &env);
  if (!keys.n) br_e_corrupt(e, "DISTINCT ON nothing");
  const char *by = json_array_size(orders) ? br_e_fmt(e, "\nORDER BY %s", br_e_orders(e, orders, &env)) : "";
  return over(e, br_e_fmt(e, "DISTINCT ON (%s) *", br_e_join(e, &keys, ", ")), c, by);
}

/* ---- aggregates */

/* Groups can be named where they stand when they are different plain columns; else they are computed below as g0, .... */
static bool plain_groups(const json_t *groups) {
  for (size_t i = 0; i < json_array_size(groups); i++) {
    const json_t *g = json_array_get(groups, i);
    if (!br_j_is(g, "expression_class", "BOUND_REF")) return false;
    for (size_t k = 0; k < i; k++)
      if (br_json_u64(br_j_get(json_array_get(groups, k), "index")) == br_json_u64(br_j_get(g, "index"))) return false;
  }
  return true;
}

/* "t.c0, t.c2" for a list of positions among the groups. */
static const char *group_list(br_emit *e, const json_t *positions, const br_texts *groups) {
  br_texts list = {0};
  for (size_t i = 0; i < json_array_size(positions); i++) {
    uint64_t at = br_json_u64(json_array_get(positions, i));
    if (at >= groups->n) {
      br_e_corrupt(e, "a grouping set points past the groups");
      break;
    }
    br_e_add(e, &list, groups->v[at]);
  }
  return br_e_join(e, &list, ", ");
}

static const char *group_by(br_emit *e, const json_t *sets, const br_texts *groups) {
  size_t n = json_array_size(sets);
  br_texts list = {0};
  bool all = n == 0 || (n == 1 && json_array_size(json_array_get(sets, 0)) == groups->n);
  if (all) return groups->n ? br_e_fmt(e, "\nGROUP BY %s", br_e_join(e, groups, ", ")) : "";
  if (!groups->n && n == 1) return "";
  for (size_t i = 0; i < n; i++)
    br_e_add(e, &list, br_e_fmt(e, "(%s)", group_list(e, json_array_get(sets, i), groups)));
  return br_e_fmt(e, "\nGROUP BY GROUPING SETS (%s)", br_e_join(e, &list, ", "));
}

static const char *with_groups(br_emit *e, const br_texts *groups, const br_rel *c) {
  br_texts list = {0};
  for (size_t i = 0; i < groups->n; i++) br_e_add(e, &list, br_e_fmt(e, "%s AS g%zu", groups->v[i], i));
  return br_e_fmt(e, "SELECT t.*, %s\nFROM %s t", br_e_join(e, &list, ", "), br_e_from(e, c->sql));
}

static const char *aggregate(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  const json_t *j = n->json, *groupings = br_j_get(j, "grouping_functions");
  br_texts groups = br_e_exprs(e, br_j_get(j, "groups"), &env), out = {0};
  const char *source = c->sql;
  if (!plain_groups(br_j_get(j, "groups"))) {
    source = with_groups(e, &groups, c);
    for (size_t i = 0; i < groups.n; i++) groups.v[i] = br_e_fmt(e, "t.g%zu", i);
  }
  for (size_t i = 0; i < groups.n; i++) br_e_add(e, &out, groups.v[i]);
  for (size_t i = 0; i < br_j_count(j, "expressions"); i++)
    br_e_add(e, &out, br_e_aggregate(e, br_j_at(j, "expressions", i), &env, false));
  for (size_t i = 0; i < json_array_size(groupings); i++)
    br_e_add(e, &out, br_e_fmt(e, "GROUPING(%s)", group_list(e, json_array_get(groupings, i), &groups)));
  if (!out.n) br_e_unsupported(e, "an aggregate without any output");
  br_rel child = {.sql = source};
  return over(e, br_e_columns(e, &out), &child, group_by(e, br_j_get(j, "grouping_sets"), &groups));
}

/* ---- columns appended to the child's */

static const char *appended(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  const json_t *list = br_j_get(n->json, "expressions");
  br_texts columns = {0};
  for (size_t i = 0; i < env.refs.n; i++) br_e_add(e, &columns, env.refs.v[i]);
  for (size_t i = 0; i < json_array_size(list); i++)
    br_e_add(e, &columns,
             n->kind == BR_NODE_WINDOW ? br_e_window(e, json_array_get(list, i), &env)
                                       : br_e_expr(e, json_array_get(list, i), &env));
  return over(e, br_e_columns(e, &columns), c, "");
}

/* What an aggregate gives without any row, if that isn't NULL. */
static const char *without_rows(br_emit *e, const json_t *aggregate) {
  static const char *const zero[] = {"count", "count_star", "approx_count_distinct", "regr_count", "entropy"};
  for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
    if (br_j_is(aggregate, "name", zero[i])) return br_e_cast(e, "0", br_expr_type(aggregate));
  return NULL;
}

/* PIVOT finds each value's place in the list that the aggregation below made. */
static const char *pivot(br_emit *e, const br_node *n, const br_rel *c) {
  const json_t *bp = br_j_get(n->json, "bound_pivot"), *values = br_j_get(bp, "pivot_values");
  size_t groups = (size_t)br_json_u64(br_j_get(bp, "group_count")), aggs = br_j_count(bp, "aggregates");
  br_texts out = {0};
  if (!aggs || !c->n_columns || groups + aggs >= c->n_columns + 1) {
    br_e_corrupt(e, "a PIVOT whose columns don't agree");
    return "";
  }
  for (size_t i = 0; i < groups; i++) br_e_add(e, &out, br_e_fmt(e, "t.c%zu", i));
  for (size_t i = 0; i < json_array_size(values); i++) {
    size_t k = i % aggs;
    const char *nothing = without_rows(e, br_j_at(bp, "aggregates", k));
    const char *value = br_e_literal_json(e, json_array_get(values, i - k));
    const char *place = br_e_fmt(e, "list_position(t.c%zu, %s::VARCHAR)", c->n_columns - 1, value);
    const char *cell = br_e_fmt(e, "t.c%zu[%s]", groups + k, place);
    if (nothing) cell = br_e_fmt(e, "CASE WHEN coalesce(%s, 0) = 0 THEN %s ELSE %s END", place, nothing, cell);
    br_e_add(e, &out, cell);
  }
  return over(e, br_e_columns(e, &out), c, "");
}

/* ---- set operations, CTEs */

static const char *set_operation(br_emit *e, const br_node *n, const br_rel *children, const char *word) {
  br_texts list = {0};
  for (size_t i = 0; i < n->n_children; i++)
    br_e_add(e, &list, br_e_fmt(e, "(SELECT * FROM %s t)", br_e_from(e, children[i].sql)));
  return br_e_join(e, &list, br_e_fmt(e, "\n%s%s\n", word, br_j_true(n->json, "setop_all") ? " ALL" : ""));
}

static unsigned long long table_index(const br_node *n) {
  return (unsigned long long)br_json_u64(br_j_get(n->json, "table_index"));
}

static const char *cte(br_emit *e, const br_node *n, const br_rel *children) {
  br_texts with = {0};
  br_e_add(e, &with, br_e_materialized(e, br_e_fmt(e, "cte%llu", table_index(n)), children[0].sql));
  return br_e_with(e, &with, br_e_fmt(e, "SELECT * FROM %s t", br_e_from(e, children[1].sql)));
}

static const char *recursive_cte(br_emit *e, const br_node *n, const br_rel *children) {
  const json_t *targets = br_j_get(n->json, "key_targets");
  br_texts names = {0};
  br_env env = {.binds = n->binds};
  const char *key = "";
  for (size_t i = 0; i < n->n_columns; i++) br_e_add(e, &names, br_e_fmt(e, "c%zu", i));
  env.refs = names;
  env.bind_refs = names;
  if (json_array_size(targets)) {
    br_texts keys = br_e_exprs(e, targets, &env);
    key = br_e_fmt(e, " USING KEY (%s)", br_e_join(e, &keys, ", "));
  }
  const char *body = br_e_fmt(e, "SELECT * FROM %s t\nUNION%s\nSELECT * FROM %s t", br_e_from(e, children[0].sql),
                              br_j_true(n->json, "union_all") ? " ALL" : "", br_e_from(e, children[1].sql));
  return br_e_fmt(e, "WITH RECURSIVE cte%llu(%s)%s AS %s\nSELECT * FROM cte%llu", table_index(n),
                  br_e_join(e, &names, ", "), key, br_e_from(e, body), table_index(n));
}

/* CTE_REF and DELIM_GET. */
static const char *reference(br_emit *e, const br_node *n) {
  const char *from = e->options.reference ? e->options.reference(e->options.arg, n) : NULL;
  br_texts columns = {0};
  if (from && (!strncmp(from, "SELECT", 6) || !strncmp(from, "WITH", 4)))
    from = br_e_from(e, from);
  else if (!from && n->kind == BR_NODE_DELIM_GET)
    from = br_e_fmt(e, "delim%u", n->source->id);
  else if (!from)
    from = br_e_fmt(e, "%scte%llu", br_j_true(n->json, "is_recurring") ? "recurring." : "", table_index(n->source));
  for (size_t i = 0; i < n->n_columns; i++) br_e_add(e, &columns, br_e_fmt(e, "t.c%zu", i));
  return br_e_fmt(e, "SELECT %s FROM %s t", br_e_columns(e, &columns), from);
}

/* ---- leaves */

static const char *no_rows(br_emit *e, const br_node *n) {
  br_texts list = {0};
  for (size_t i = 0; i < n->n_columns; i++) br_e_add(e, &list, br_e_cast(e, "NULL", n->types[i]));
  if (!list.n) br_e_unsupported(e, "a result without any column");
  return br_e_fmt(e, "SELECT %s WHERE false", br_e_columns(e, &list));
}

static const char *values(br_emit *e, const br_node *n, const br_texts *rows) {
  br_texts names = {0};
  for (size_t i = 0; i < n->n_columns; i++) br_e_add(e, &names, br_e_fmt(e, "c%zu", i));
  return br_e_fmt(e, "SELECT * FROM (VALUES %s) t(%s)", br_e_join(e, rows, ", "), br_e_join(e, &names, ", "));
}

static const char *chunk_get(br_emit *e, const br_node *n) {
  const json_t *columns = br_j_get(br_j_some(n->json, "collection"), "values");
  size_t count = json_array_size(json_array_get(columns, 0));
  br_texts rows = {0};
  if (!count) return no_rows(e, n);
  for (size_t r = 0; r < count && e->status == BR_OK; r++) {
    br_texts row = {0};
    for (size_t i = 0; i < n->n_columns; i++)
      br_e_add(e, &row, br_e_constant(e, json_array_get(json_array_get(columns, i), r), n->types[i]));
    br_e_add(e, &rows, br_e_fmt(e, "(%s)", br_e_join(e, &row, ", ")));
  }
  return values(e, n, &rows);
}

static const char *expression_get(br_emit *e, const br_node *n, const br_rel *c) {
  br_env env = br_e_env(e, c, "t");
  const json_t *list = br_j_get(n->json, "expressions");
  br_texts rows = {0};
  bool constant = n->children[0]->kind == BR_NODE_DUMMY;
  for (size_t i = 0; i < json_array_size(list) && e->status == BR_OK; i++) {
    br_texts row = br_e_exprs(e, json_array_get(list, i), &env);
    if (row.n != n->n_columns) br_e_corrupt(e, "a row of VALUES has %zu of %zu columns", row.n, n->n_columns);
    br_e_add(e, &rows,
             constant ? br_e_fmt(e, "(%s)", br_e_join(e, &row, ", ")) : over(e, br_e_columns(e, &row), c, ""));
  }
  if (!rows.n) return no_rows(e, n);
  return constant ? values(e, n, &rows) : br_e_join(e, &rows, "\nUNION ALL\n");
}

static const char *sample(br_emit *e, const br_node *n, const br_rel *c) {
  return over(e, "*", c, br_e_fmt(e, "\nUSING SAMPLE %s", br_e_sample(e, br_j_get(n->json, "sample_options"))));
}

static const char *join(br_emit *e, const br_node *n, const br_rel *children) {
  br_texts with = {0};
  const char *l = br_e_from(e, children[0].sql), *r = br_e_from(e, children[1].sql);
  const char *text = br_e_join_node(e, n, children, l, r, &with);
  return br_e_with(e, &with, text);
}

const char *br_e_node(br_emit *e, const br_node *n, const br_rel *children) {
  switch (n->kind) {
    case BR_NODE_GET: return br_e_get(e, n, children);
    case BR_NODE_PROJECTION: return projection(e, n, children);
    case BR_NODE_FILTER: return filter(e, n, children);
    case BR_NODE_AGGREGATE: return aggregate(e, n, children);
    case BR_NODE_JOIN:
    case BR_NODE_ANY_JOIN:
    case BR_NODE_ASOF_JOIN:
    case BR_NODE_DELIM_JOIN:
    case BR_NODE_CROSS:
    case BR_NODE_POSITIONAL_JOIN: return join(e, n, children);
    case BR_NODE_DELIM_GET:
    case BR_NODE_CTE_REF: return reference(e, n);
    case BR_NODE_ORDER: return order(e, n, children);
    case BR_NODE_TOP_N: return top_n(e, n, children);
    case BR_NODE_LIMIT: return limit(e, n, children);
    case BR_NODE_DISTINCT: return distinct(e, n, children);
    case BR_NODE_WINDOW:
    case BR_NODE_UNNEST: return appended(e, n, children);
    case BR_NODE_UNION: return set_operation(e, n, children, "UNION");
    case BR_NODE_EXCEPT: return set_operation(e, n, children, "EXCEPT");
    case BR_NODE_INTERSECT: return set_operation(e, n, children, "INTERSECT");
    case BR_NODE_CTE: return cte(e, n, children);
    case BR_NODE_RECURSIVE_CTE: return recursive_cte(e, n, children);
    case BR_NODE_CHUNK_GET: return chunk_get(e, n);
    case BR_NODE_EXPRESSION_GET: return expression_get(e, n, children);
    case BR_NODE_DUMMY: return "SELECT NULL::INTEGER AS c0";
    case BR_NODE_EMPTY: return no_rows(e, n);
    case BR_NODE_SAMPLE: return sample(e, n, children);
    case BR_NODE_PIVOT: return pivot(e, n, children);
    case BR_NODE_CALLS: br_e_unsupported(e, "a call of a user's function inside what runs as one statement"); return "";
    case BR_NODE_OTHER: break;
  }
  br_e_unsupported(e, "the plan node %.60s", n->type);
  return "";
}
