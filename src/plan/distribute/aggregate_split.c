/* SPDX-License-Identifier: Apache-2.0
 *
 * One aggregate in two steps: columns of a partial result, and the expression that merges them. The result type is cast to
 * the plan's own. An aggregate that is not in the table is not split.
 *
 * Without GROUP BY a task without rows still gives one partial row: counts are 0 and all else is NULL, which every merge
 * below passes over (first and last count their rows for that).
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

typedef enum split_how {
  HOW_COUNT, /* partial f(x), merged by sum, 0 without rows */
  HOW_SAME,  /* partial f(x), merged by `merge` */
  HOW_AVG,   /* partial sum and count */
  HOW_FIRST, /* partial f(x) and its rows */
  HOW_ARG    /* arg_min(x, y): partial arg_min(x, y) and min(y) */
} split_how;

typedef struct split_rule {
  const char *name;
  split_how how;
  const char *partial, *merge;
  size_t arguments;
} split_rule;

static const split_rule rules[] = {{"count", HOW_COUNT, "count", "sum", 1},
                                   {"count_star", HOW_COUNT, "count", "sum", 0},
                                   {"count_if", HOW_SAME, "count_if", "sum", 1}, /* NULL without rows */
                                   {"countif", HOW_SAME, "count_if", "sum", 1},
                                   {"sum", HOW_SAME, "sum", "sum", 1},
                                   {"sum_no_overflow", HOW_SAME, "sum", "sum", 1},
                                   {"min", HOW_SAME, "min", "min", 1},
                                   {"max", HOW_SAME, "max", "max", 1},
                                   {"bool_and", HOW_SAME, "bool_and", "bool_and", 1},
                                   {"bool_or", HOW_SAME, "bool_or", "bool_or", 1},
                                   {"bit_and", HOW_SAME, "bit_and", "bit_and", 1},
                                   {"bit_or", HOW_SAME, "bit_or", "bit_or", 1},
                                   {"bit_xor", HOW_SAME, "bit_xor", "bit_xor", 1},
                                   {"product", HOW_SAME, "product", "product", 1},
                                   {"any_value", HOW_SAME, "any_value", "any_value", 1},
                                   {"first", HOW_FIRST, "first", "first", 1},
                                   {"arbitrary", HOW_FIRST, "first", "first", 1},
                                   {"last", HOW_FIRST, "last", "last", 1},
                                   {"avg", HOW_AVG, NULL, NULL, 1},
                                   {"mean", HOW_AVG, NULL, NULL, 1},
                                   {"arg_min", HOW_ARG, "arg_min", "min", 2},
                                   {"argmin", HOW_ARG, "arg_min", "min", 2},
                                   {"min_by", HOW_ARG, "arg_min", "min", 2},
                                   {"arg_max", HOW_ARG, "arg_max", "max", 2},
                                   {"argmax", HOW_ARG, "arg_max", "max", 2},
                                   {"max_by", HOW_ARG, "arg_max", "max", 2}};

static const split_rule *rule_of(const json_t *a) {
  const char *name = br_j_str(a, "name");
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (!strcmp(rules[i].name, name)) return &rules[i];
  return NULL;
}

/* The type that sum() of this argument has; NULL: an average over it is not split. */
static json_t *sum_type(br_dist *d, const json_t *argument) {
  static const char *const integers[] = {"TINYINT",   "SMALLINT", "INTEGER", "BIGINT", "UTINYINT",
                                         "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT"};
  const char *id = br_j_str(argument, "id");
  if (!strcmp(id, "DOUBLE") || !strcmp(id, "FLOAT"))
    return br_own_type(d, json_pack("{s:s, s:n}", "id", "DOUBLE", "type_info"));
  if (!strcmp(id, "DECIMAL"))
    return br_own_type(
        d, json_pack("{s:s, s:{s:s, s:i, s:I}}", "id", "DECIMAL", "type_info", "type", "DECIMAL_TYPE_INFO", "width", 38,
                     "scale", (json_int_t)br_json_u64(br_j_get(br_j_get(argument, "type_info"), "scale"))));
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
    if (!strcmp(id, integers[i])) return br_own_type(d, json_pack("{s:s, s:n}", "id", "HUGEINT", "type_info"));
  return NULL;
}

static bool averages(const json_t *argument) {
  static const char *const ids[] = {"TINYINT",  "SMALLINT", "INTEGER", "BIGINT",  "UTINYINT", "USMALLINT",
                                    "UINTEGER", "UBIGINT",  "HUGEINT", "DECIMAL", "FLOAT",    "DOUBLE"};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if (br_j_is(argument, "id", ids[i])) return true;
  return false;
}

static bool has_orders(const json_t *a) {
  return br_j_count(br_j_some(a, "order_bys"), "orders") > 0 || br_j_count(a, "arg_orders") > 0;
}

bool br_aggregate_splits(const json_t *a, bool ordered) {
  const split_rule *r = rule_of(a);
  if (!r || br_j_count(a, "children") != r->arguments) return false;
  if (br_j_is(a, "aggregate_type", "DISTINCT") || has_orders(a) || br_volatile(a)) return false;
  if (r->how == HOW_AVG && !averages(br_expr_type(br_j_at(a, "children", 0)))) return false;
  return !(ordered && (r->how == HOW_FIRST || !strcmp(r->name, "any_value")));
}

bool br_aggregates_split(const br_node *n, bool ordered) {
  for (size_t i = 0; i < br_j_count(n->json, "expressions"); i++)
    if (!br_aggregate_splits(br_j_at(n->json, "expressions", i), ordered)) return false;
  return true;
}

/* ---- texts */

typedef struct call_text {
  const char *arguments[2];
  const char *condition; /* of FILTER, or NULL */
} call_text;

static br_status expr_text(br_dist *d, const json_t *e, const br_rel *over, const char **out, br_error *err) {
  br_buf b = {0};
  br_status status = br_emit_expr(d->emit, e, over, "t", &b, err);
  if (status == BR_OK) *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return status;
}

static br_status call_texts(br_dist *d, const json_t *a, const br_rel *over, call_text *out, br_error *err) {
  const json_t *f = br_j_some(a, "filter");
  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < br_j_count(a, "children") && i < 2; i++)
    BR_TRY(expr_text(d, br_j_at(a, "children", i), over, &out->arguments[i], err));
  if (f) BR_TRY(expr_text(d, f, over, &out->condition, err));
  return BR_OK;
}

static const char *filtered(br_dist *d, const call_text *c, const char *call, const char *also) {
  if (c->condition && also) return br_arena_printf(d->arena, "%s FILTER (WHERE %s AND %s)", call, c->condition, also);
  if (c->condition || also) return br_arena_printf(d->arena, "%s FILTER (WHERE %s)", call, also ? also : c->condition);
  return call;
}

static void add_partial(br_split_agg *out, const char *text, json_t *type, const char *merge) {
  out->partial[out->n] = text;
  out->merge[out->n] = merge;
  out->types[out->n++] = type;
}

static br_status final_text(br_dist *d, const json_t *a, const char *text, br_split_agg *out, br_error *err) {
  br_buf b = {0};
  br_status status = br_emit_type(br_expr_type(a), &b, err);
  if (status == BR_OK) out->final = br_arena_printf(d->arena, "CAST(%s AS %s)", text, br_buf_cstr(&b));
  br_buf_free(&b);
  return status;
}

br_status br_split_aggregate(br_dist *d, const json_t *a, const br_rel *over, size_t first, br_split_agg *out,
                             br_error *err) {
  const split_rule *r = rule_of(a);
  br_arena *m = d->arena;
  call_text c;
  const char *merge;
  BR_ASSERT(r);
  memset(out, 0, sizeof *out);
  BR_TRY(call_texts(d, a, over, &c, err));
  const char *x = c.arguments[0] ? c.arguments[0] : "*", *y = c.arguments[1];
  const char *call = r->partial ? br_arena_printf(m, y ? "%s(%s, %s)" : "%s(%s)", r->partial, x, y) : NULL;
  json_t *type = br_expr_type(a), *bigint = br_type_plain("BIGINT");
  switch (r->how) {
    case HOW_COUNT:
      add_partial(out, filtered(d, &c, call, NULL), type, "sum");
      merge = br_arena_printf(m, "coalesce(sum(t.c%zu), 0)", first);
      break;
    case HOW_SAME:
      add_partial(out, filtered(d, &c, call, NULL), type, r->merge);
      merge = br_arena_printf(m, "%s(t.c%zu)", r->merge, first);
      break;
    case HOW_AVG:
      add_partial(out, filtered(d, &c, br_arena_printf(m, "sum(%s)", x), NULL),
                  sum_type(d, br_expr_type(br_j_at(a, "children", 0))), "sum");
      add_partial(out, filtered(d, &c, br_arena_printf(m, "count(%s)", x), NULL), bigint, "sum");
      merge =
          br_arena_printf(m, "CAST(sum(t.c%zu) AS DOUBLE) / nullif(CAST(sum(t.c%zu) AS DOUBLE), 0)", first, first + 1);
      break;
    case HOW_FIRST:
      add_partial(out, filtered(d, &c, call, NULL), type, NULL);
      add_partial(out, filtered(d, &c, "count(*)", NULL), bigint, NULL);
      merge = br_arena_printf(m, "%s(t.c%zu) FILTER (WHERE t.c%zu > 0)", r->merge, first, first + 1);
      break;
    case HOW_ARG:
    default:
      add_partial(out, filtered(d, &c, call, NULL), type, NULL);
      add_partial(out,
                  filtered(d, &c, br_arena_printf(m, "%s(%s)", r->merge, y), br_arena_printf(m, "%s IS NOT NULL", x)),
                  br_expr_type(br_j_at(a, "children", 1)), NULL);
      merge = br_arena_printf(m, "%s(t.c%zu, t.c%zu)", r->partial, first, first + 1);
      break;
  }
  return final_text(d, a, merge, out, err);
}
