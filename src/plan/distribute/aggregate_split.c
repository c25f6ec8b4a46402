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

#include <stdio.h>
#include <string.h>

typedef enum split_how {
  HOW_COUNT,         /* partial f(x), merged by sum, 0 without rows */
  HOW_SAME,          /* partial f(x), merged by `merge` */
  HOW_AVG,           /* partial sum and count */
  HOW_FIRST,         /* partial f(x) and its rows */
  HOW_ARG,           /* arg_min(x, y): partial arg_min(x, y) and min(y) */
  HOW_N,             /* min(x, n): a sorted list; `merge` is the function that sorts */
  HOW_MEAN_OF_PAIRS, /* partial sum of one value and count of the pairs; `partial` is y or x */
  HOW_MOMENTS, /* partial {fields} of a struct; `merge` is an expression over them, merged (engine/functions_moments.c) */
  HOW_POWERS   /* partial count and sums of powers; `merge` is an expression over {n}, {s}, {q}, {c}, {f} */
} split_how;

typedef struct split_rule {
  const char *name;
  split_how how;
  const char *partial, *merge;
  size_t arguments;
} split_rule;

/* As DuckDB's own (src/core_functions/aggregate/{algebraic,regression,distributive}): NULL, NaN and "out of range" where it has them. One value
 * has variance 0, were it infinite. */
#define FINITE(v, name) "CASE WHEN isfinite(" v ") THEN " v " ELSE error('" name " is out of range!') END"
#define SUM_OF(s, name) "CASE WHEN {n} = 1 THEN 0.0::DOUBLE ELSE " FINITE("{" s "}", name) " END"
#define VAR(name) "CASE WHEN {n} > 0 THEN " SUM_OF("syy", name) " / {n} END"
#define VAR_SAMPLE(name) "CASE WHEN {n} > 1 THEN " FINITE("{syy}", name) " / ({n} - 1) END"
#define DEVIATIONS \
  "(sqrt(" SUM_OF("sxx", "STDDEV_POP for X") " / {n}) * sqrt(" SUM_OF("syy", "STDDEV_POP for Y") " / {n}))"
#define CORR "(CASE WHEN " DEVIATIONS " = 0 THEN 'nan'::DOUBLE ELSE {sxy} / {n} / " DEVIATIONS " END)"
#define VAR_X "(" SUM_OF("sxx", "VARPOP(X)") " / {n})"
#define SLOPE "(CASE WHEN " VAR_X " = 0 THEN 'nan'::DOUBLE ELSE {sxy} / {n} / " VAR_X " END)"
#define ANY_PAIR(text) "CASE WHEN {n} > 0 THEN " text " END"
#define SPREAD "({q} - {s} * {s} * (1 / {n}))"
#define CUBED "pow((1 / {n}) * " SPREAD ", 3)"
#define THIRD "(1 / {n} * ({c} - 3 * {q} * {s} / {n} + 2 * pow({s}, 3) / {n} / {n}))"
#define SKEWED "(sqrt({n} * ({n} - 1)) / ({n} - 2) * " THIRD " / sqrt(" CUBED "))"
#define SKEW "(CASE WHEN " CUBED " <= 0 THEN 'nan'::DOUBLE ELSE " FINITE(SKEWED, "SKEW") " END)"
#define FOURTH \
  "(1 / {n} * ({f} - 4 * {c} * {s} / {n} + 6 * {q} * {s} * {s} / {n} / {n} - 3 * pow({s}, 4) / pow({n}, 3)))"
#define SECOND "(1 / {n} * " SPREAD ")"
#define EXCESS "(" FOURTH " / (" SECOND " * " SECOND "))"
#define KURTOSIS(more_than, text) \
  "CASE WHEN {n} > " more_than " AND (" SPREAD " > 0 OR NOT isfinite(" SPREAD ")) THEN " FINITE(text, "Kurtosis") " E" \
                                                                                                                  "ND"

static const split_rule rules[] = {
    {"count", HOW_COUNT, "count", "sum", 1},
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
    {"max_by", HOW_ARG, "arg_max", "max", 2},
    {"arg_min_null", HOW_ARG, "arg_min_null", "min", 2},
    {"arg_max_null", HOW_ARG, "arg_max_null", "max", 2},
    {"min", HOW_N, "min", "list_sort", 2},
    {"max", HOW_N, "max", "list_reverse_sort", 2},
    {"fsum", HOW_SAME, "fsum", "fsum", 1},
    {"kahan_sum", HOW_SAME, "fsum", "fsum", 1},
    {"sumkahan", HOW_SAME, "fsum", "fsum", 1},
    {"favg", HOW_AVG, "fsum", "fsum", 1},
    {"regr_count", HOW_COUNT, "regr_count", "sum", 2},
    {"regr_avgy", HOW_MEAN_OF_PAIRS, "y", NULL, 2},
    {"regr_avgx", HOW_MEAN_OF_PAIRS, "x", NULL, 2},
    {"var_pop", HOW_MOMENTS, NULL, VAR("VARPOP"), 1},
    {"var_samp", HOW_MOMENTS, NULL, VAR_SAMPLE("VARSAMP"), 1},
    {"variance", HOW_MOMENTS, NULL, VAR_SAMPLE("VARSAMP"), 1},
    {"stddev_pop", HOW_MOMENTS, NULL, "sqrt(" VAR("STDDEV_POP") ")", 1},
    {"stddev_samp", HOW_MOMENTS, NULL, "sqrt(" VAR_SAMPLE("STDDEV_SAMP") ")", 1},
    {"stddev", HOW_MOMENTS, NULL, "sqrt(" VAR_SAMPLE("STDDEV_SAMP") ")", 1},
    {"sem", HOW_MOMENTS, NULL, "sqrt(" VAR("SEM") ") / sqrt({n})", 1},
    {"covar_pop", HOW_MOMENTS, NULL, ANY_PAIR("{sxy} / {n}"), 2},
    {"covar_samp", HOW_MOMENTS, NULL, "CASE WHEN {n} > 1 THEN {sxy} / ({n} - 1) END", 2},
    {"corr", HOW_MOMENTS, NULL, ANY_PAIR(CORR), 2},
    {"regr_slope", HOW_MOMENTS, NULL, ANY_PAIR(SLOPE), 2},
    {"regr_intercept", HOW_MOMENTS, NULL, "CASE WHEN {n} > 0 AND " VAR_X " <> 0 THEN {my} - " SLOPE " * {mx} END", 2},
    {"regr_r2", HOW_MOMENTS, NULL,
     "CASE WHEN {n} > 0 AND " VAR_X " <> 0 THEN CASE WHEN " SUM_OF("syy", "VARPOP(Y)") " = 0 "
                                                                                       "THEN 1.0::DOUBLE ELSE pow(" CORR
                                                                                       ", 2) END END",
     2},
    {"regr_sxx", HOW_MOMENTS, NULL, ANY_PAIR(SUM_OF("sxx", "VARPOP")), 2},
    {"regr_syy", HOW_MOMENTS, NULL, ANY_PAIR(SUM_OF("syy", "VARPOP")), 2},
    {"regr_sxy", HOW_MOMENTS, NULL, ANY_PAIR("{sxy}"), 2},
    {"skewness", HOW_POWERS, NULL, "CASE WHEN {n} > 2 THEN " SKEW " END", 1},
    {"kurtosis", HOW_POWERS, NULL,
     KURTOSIS("3", "(({n} - 1) * (({n} + 1) * " EXCESS " - 3 * ({n} - 1)) / (({n} - 2) * ({n} - 3)))"), 1},
    {"kurtosis_pop", HOW_POWERS, NULL, KURTOSIS("1", "(" EXCESS " - 3)"), 1}};

static const split_rule *rule_of(const json_t *a) {
  const char *name = br_j_str(a, "name");
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (!strcmp(rules[i].name, name) && rules[i].arguments == br_j_count(a, "children")) return &rules[i];
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
  if (!r) return false;
  if (br_j_is(a, "aggregate_type", "DISTINCT") || has_orders(a) || br_volatile(a)) return false;
  if (r->how == HOW_AVG && !averages(br_expr_type(br_j_at(a, "children", 0)))) return false;
  if (r->how == HOW_N && !br_j_is(br_j_at(a, "children", 1), "expression_class", "BOUND_CONSTANT")) return false;
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

/* What `value` is for a row that FILTER passes, or else: as `type`, which the partial result has. */
static const char *of_row(br_dist *d, const call_text *c, const char *value, const char *otherwise,
                          const json_t *type) {
  br_buf b = {0};
  br_error ignored;
  const char *text = NULL;
  if (br_emit_type(type, &b, &ignored) == BR_OK) {
    if (c->condition)
      text = br_arena_printf(d->arena, "CAST(CASE WHEN %s THEN %s ELSE %s END AS %s)", c->condition, value, otherwise,
                             br_buf_cstr(&b));
    else
      text = br_arena_printf(d->arena, "CAST(%s AS %s)", value, br_buf_cstr(&b));
  }
  br_buf_free(&b);
  return text;
}

/* `row`: the value for one row. */
static void add_partial(br_split_agg *out, const char *text, const char *row, json_t *type, const char *merge) {
  out->partial[out->n] = text;
  out->rows[out->n] = row;
  out->merge[out->n] = merge;
  out->types[out->n++] = type;
}

/* 1 for a row that count(x), or the count of pairs (x, y), counts. */
static const char *counted(br_dist *d, const call_text *c, const char *x, const char *y, const json_t *type) {
  const char *none = y ? br_arena_printf(d->arena, "%s IS NULL OR %s IS NULL", x, y) : NULL;
  if (x && !y) none = br_arena_printf(d->arena, "%s IS NULL", x);
  return of_row(d, c, none ? br_arena_printf(d->arena, "CASE WHEN %s THEN 0 ELSE 1 END", none) : "1", "0", type);
}

static const char *same_of_row(br_dist *d, const call_text *c, const split_rule *r, const char *x, const json_t *type) {
  bool counts = !strcmp(r->partial, "count_if");
  return of_row(d, c, counts ? br_arena_printf(d->arena, "CASE WHEN %s THEN 1 ELSE 0 END", x) : x, "NULL", type);
}

static br_status final_text(br_dist *d, const json_t *a, const char *text, br_split_agg *out, br_error *err) {
  br_buf b = {0};
  br_status status = br_emit_type(br_expr_type(a), &b, err);
  if (status == BR_OK) out->final = br_arena_printf(d->arena, "CAST(%s AS %s)", text, br_buf_cstr(&b));
  br_buf_free(&b);
  return status;
}

static const char *const moments[] = {"n", "my", "mx", "syy", "sxx", "sxy"};
static const char *const powers[] = {"n", "s", "q", "c", "f"};

/* The rule's expression: {name} is a field of the merged moments, or a sum of a partial column. */
static const char *expanded(br_dist *d, const split_rule *r, size_t first) {
  br_buf b = {0};
  bool of_moments = r->how == HOW_MOMENTS;
  const char *const *names = of_moments ? moments : powers;
  size_t n = of_moments ? sizeof moments / sizeof *moments : sizeof powers / sizeof *powers;
  for (const char *text = r->merge; *text;) {
    size_t i = 0;
    if (*text != '{') {
      br_buf_char(&b, *text++);
      continue;
    }
    while (i < n && strncmp(names[i], text + 1, strcspn(text + 1, "}")) != 0) i++;
    BR_ASSERT(i < n);
    if (of_moments)
      br_buf_printf(&b, "(__merge_moments(t.c%zu)).%s", first, names[i]);
    else
      br_buf_printf(&b, "sum(t.c%zu)", first + i);
    text += strlen(names[i]) + 2;
  }
  const char *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return out;
}

static json_t *moments_type(br_dist *d) {
  json_t *fields = json_array(), *info = json_pack("{s:s}", "type", "STRUCT_TYPE_INFO");
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
    json_array_append_new(fields, json_pack("{s:s, s:{s:s, s:n}}", "first", moments[i], "second", "id",
                                            i ? "DOUBLE" : "BIGINT", "type_info"));
  json_object_set_new(info, "child_types", fields);
  return br_own_type(d, json_pack("{s:s, s:o}", "id", "STRUCT", "type_info", info));
}

static bool uses(const split_rule *r, const char *field) {
  char name[8];
  snprintf(name, sizeof name, "{%s}", field);
  return strstr(r->merge, name) != NULL;
}

/* The mean of values that are all equal is the value itself, to the last bit: merged with equal ones it has no variance. */
static const char *mean_text(br_dist *d, const call_text *c, const char *squares, const char *value, const char *mean,
                             const char *other) {
  mean = filtered(d, c, mean, NULL);
  if (!squares) return mean;
  return br_arena_printf(d->arena, "CASE WHEN %s = 0 THEN %s ELSE %s END", squares,
                         filtered(d, c, br_arena_printf(d->arena, "min(%s)", value), other), mean);
}

/* What the rule needs of a task's moments; 0 where it needs nothing, or there is no row. The first argument is y. */
static const char *moments_text(br_dist *d, const split_rule *r, const call_text *c) {
  br_arena *m = d->arena;
  const char *y = c->arguments[0], *x = c->arguments[1], *f[6] = {0};
  br_buf b = {0};
  if (x) {
    const char *pair = br_arena_printf(m, "(%s, %s)", y, x);
    const char *of_x = br_arena_printf(m, "%s IS NOT NULL", x), *of_y = br_arena_printf(m, "%s IS NOT NULL", y);
    f[0] = filtered(d, c, br_arena_printf(m, "regr_count%s", pair), NULL);
    if (uses(r, "syy")) f[3] = filtered(d, c, br_arena_printf(m, "regr_syy%s", pair), NULL);
    if (uses(r, "sxx")) f[4] = filtered(d, c, br_arena_printf(m, "regr_sxx%s", pair), NULL);
    if (uses(r, "sxy")) f[5] = filtered(d, c, br_arena_printf(m, "regr_sxy%s", pair), NULL);
    f[1] = mean_text(d, c, f[3], y, br_arena_printf(m, "regr_avgy%s", pair), of_x);
    f[2] = mean_text(d, c, f[4], x, br_arena_printf(m, "regr_avgx%s", pair), of_y);
  } else {
    f[0] = filtered(d, c, br_arena_printf(m, "count(%s)", y), NULL);
    f[3] = filtered(d, c, br_arena_printf(m, "var_pop(%s)", y), NULL);
    f[1] = mean_text(d, c, f[3], y, br_arena_printf(m, "avg(%s)", y), NULL);
    f[3] = br_arena_printf(m, "%s * %s", f[3], f[0]);
  }
  br_buf_str(&b, "struct_pack(");
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
    br_buf_printf(&b, "%s\"%s\" := coalesce(CAST(%s AS %s), 0)", i ? ", " : "", moments[i], f[i] ? f[i] : "0",
                  i ? "DOUBLE" : "BIGINT");
  br_buf_char(&b, ')');
  const char *text = br_arena_strdup(m, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* count(x), sum(x), sum(x^2) …, as skewness (to the third) and kurtosis keep them. */
static void add_powers(br_dist *d, const split_rule *r, const call_text *c, br_split_agg *out) {
  size_t n = !strcmp(r->name, "skewness") ? 4 : 5;
  const char *x = c->arguments[0];
  json_t *bigint = br_type_plain("BIGINT"),
         *real = br_own_type(d, json_pack("{s:s, s:n}", "id", "DOUBLE", "type_info"));
  add_partial(out, filtered(d, c, br_arena_printf(d->arena, "count(%s)", x), NULL), counted(d, c, x, NULL, bigint),
              bigint, "sum");
  for (size_t i = 1; i < n; i++) {
    const char *power = i > 1 ? br_arena_printf(d->arena, "pow(%s, %zu)", x, i) : x;
    add_partial(out, filtered(d, c, br_arena_printf(d->arena, "sum(%s)", power), NULL),
                of_row(d, c, power, "NULL", real), real, "sum");
  }
}

/* Averages: of all values, or of one value in pairs. */
static const char *add_means(br_dist *d, const json_t *a, const split_rule *r, const call_text *c, size_t first,
                             br_split_agg *out) {
  br_arena *m = d->arena;
  const char *x = c->arguments[0], *y = c->arguments[1], *count = br_arena_printf(m, "count(%s)", x);
  const char *other = NULL, *sum = r->partial && r->how == HOW_AVG ? r->partial : "sum";
  json_t *type = sum_type(d, br_expr_type(br_j_at(a, "children", 0))), *bigint = br_type_plain("BIGINT");
  const char *one = counted(d, c, x, y, bigint);
  if (r->how == HOW_MEAN_OF_PAIRS) {
    bool second = !strcmp(r->partial, "x");
    count = br_arena_printf(m, "regr_count(%s, %s)", x, y);
    other = br_arena_printf(m, "%s IS NOT NULL", second ? x : y);
    x = second ? y : x;
  }
  const char *row = other ? br_arena_printf(m, "CASE WHEN %s THEN %s END", other, x) : x;
  add_partial(out, filtered(d, c, br_arena_printf(m, "%s(%s)", sum, x), other), of_row(d, c, row, "NULL", type), type,
              sum);
  add_partial(out, filtered(d, c, count, NULL), one, bigint, "sum");
  return br_arena_printf(m, "CAST(%s(t.c%zu) AS DOUBLE) / nullif(CAST(sum(t.c%zu) AS DOUBLE), 0)", sum, first,
                         first + 1);
}

/* arg_min(x, y): of rows whose x is NULL only arg_min_null knows. */
static const char *add_arg(br_dist *d, const json_t *a, const split_rule *r, const call_text *c, const char *call,
                           size_t first, br_split_agg *out) {
  br_arena *m = d->arena;
  const char *x = c->arguments[0], *y = c->arguments[1];
  json_t *type = br_expr_type(a), *by = br_expr_type(br_j_at(a, "children", 1));
  const char *there = strstr(r->partial, "_null") ? NULL : br_arena_printf(m, "%s IS NOT NULL", x);
  const char *row = there ? br_arena_printf(m, "CASE WHEN %s THEN %s END", there, y) : y;
  add_partial(out, filtered(d, c, call, NULL), of_row(d, c, x, "NULL", type), type, NULL);
  add_partial(out, filtered(d, c, br_arena_printf(m, "%s(%s)", r->merge, y), there), of_row(d, c, row, "NULL", by), by,
              NULL);
  return br_arena_printf(m, "%s(t.c%zu, t.c%zu)", r->partial, first, first + 1);
}

/* The partial columns, and the text that merges them. */
static const char *add_columns(br_dist *d, const json_t *a, const split_rule *r, const call_text *c, size_t first,
                               br_split_agg *out) {
  br_arena *m = d->arena;
  const char *x = c->arguments[0] ? c->arguments[0] : "*", *y = c->arguments[1];
  const char *call = r->partial ? br_arena_printf(m, y ? "%s(%s, %s)" : "%s(%s)", r->partial, x, y) : NULL;
  json_t *type = br_expr_type(a), *bigint = br_type_plain("BIGINT");
  switch (r->how) {
    case HOW_COUNT:
      add_partial(out, filtered(d, c, call, NULL), counted(d, c, c->arguments[0], y, type), type, "sum");
      return br_arena_printf(m, "coalesce(sum(t.c%zu), 0)", first);
    case HOW_SAME:
      add_partial(out, filtered(d, c, call, NULL), same_of_row(d, c, r, x, type), type, r->merge);
      return br_arena_printf(m, "%s(t.c%zu)", r->merge, first);
    case HOW_AVG:
    case HOW_MEAN_OF_PAIRS: return add_means(d, a, r, c, first, out);
    case HOW_FIRST:
      add_partial(out, filtered(d, c, call, NULL), of_row(d, c, x, "NULL", type), type, NULL);
      add_partial(out, filtered(d, c, "count(*)", NULL), counted(d, c, NULL, NULL, bigint), bigint, NULL);
      return br_arena_printf(m, "%s(t.c%zu) FILTER (WHERE t.c%zu > 0)", r->merge, first, first + 1);
    case HOW_N:
      add_partial(out, filtered(d, c, call, NULL), NULL, type, NULL);
      return br_arena_printf(m, "list_slice(%s(flatten(list(t.c%zu) FILTER (WHERE t.c%zu IS NOT NULL))), 1, %s)",
                             r->merge, first, first, y);
    case HOW_MOMENTS:
      add_partial(out, moments_text(d, r, c), NULL, moments_type(d), "__merge_moments");
      return expanded(d, r, first);
    case HOW_POWERS: add_powers(d, r, c, out); return expanded(d, r, first);
    case HOW_ARG:
    default: return add_arg(d, a, r, c, call, first, out);
  }
}

br_status br_split_aggregate(br_dist *d, const json_t *a, const br_rel *over, size_t first, br_split_agg *out,
                             br_error *err) {
  const split_rule *r = rule_of(a);
  call_text c;
  BR_ASSERT(r);
  memset(out, 0, sizeof *out);
  BR_TRY(call_texts(d, a, over, &c, err));
  return final_text(d, a, add_columns(d, a, r, &c, first, out), out, err);
}

bool br_aggregate_merges_by_column(const json_t *a) {
  const split_rule *r = rule_of(a);
  return r && r->how != HOW_FIRST && r->how != HOW_ARG && r->how != HOW_N;
}
