/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregate calls, in AGGREGATE nodes and in windows. Constant arguments were erased when they were bound and stand in
 * function_data: separators, quantiles, sample sizes, ranges of bits.
 */
#include "plan/decompile/emit.h"

#include <string.h>

static bool is_name(const char *s) {
  for (const char *p = s; *p; p++)
    if (!(*p == '_' || (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9'))) return false;
  return *s != 0;
}

static const char *filter_of(br_emit *e, const json_t *expr, const br_env *env) {
  const json_t *f = br_j_some(expr, "filter") ? br_j_some(expr, "filter") : br_j_some(expr, "filters");
  return f ? br_e_fmt(e, " FILTER (WHERE %s)", br_e_expr(e, f, env)) : "";
}

static const json_t *orders_of(const json_t *expr) {
  const json_t *by = br_j_some(expr, "order_bys");
  const json_t *orders = by ? br_j_get(by, "orders") : br_j_some(expr, "arg_orders");
  return json_array_size(orders) ? orders : NULL;
}

/* Adds the erased quantile arguments; false: no such call (median, mad). */
static bool add_quantiles(br_emit *e, const json_t *expr, const char *name, br_texts *args) {
  const json_t *data = br_j_get(expr, "function_data"), *q = br_j_get(data, "quantiles");
  const char *type = !strcmp(name, "approx_quantile") ? "FLOAT" : "DOUBLE";
  br_texts list = {0};
  if (!q || !strcmp(name, "median") || !strcmp(name, "mad")) return false;
  for (size_t i = 0; i < json_array_size(q); i++) br_e_add(e, &list, br_e_quantile(e, json_array_get(q, i), type));
  if (!list.n) {
    br_e_corrupt(e, "%s without a quantile", name);
    return false;
  }
  /* One quantile over lists gives a list too. */
  bool over_lists = br_e_is(br_expr_type(br_j_at(expr, "children", 0)), "LIST");
  bool many = br_e_is(br_j_get(expr, "return_type"), "LIST") && !(list.n == 1 && over_lists);
  br_e_add(e, args, many ? br_e_fmt(e, "[%s]", br_e_join(e, &list, ", ")) : list.v[0]);
  if (br_j_get(data, "sample_size"))
    br_e_add(e, args, br_e_fmt(e, "%u::INTEGER", (unsigned)br_json_u64(br_j_get(data, "sample_size"))));
  return true;
}

static const char *within_group(br_emit *e, const char *name, const br_texts *args, const char *filter) {
  const char *sql_name = !strcmp(name, "quantile_cont")   ? "percentile_cont"
                         : !strcmp(name, "quantile_disc") ? "percentile_disc"
                                                          : NULL;
  if (!sql_name || args->n < 2) {
    br_e_unsupported(e, "%.60s in descending order", name);
    return "";
  }
  return br_e_fmt(e, "%s(%s) WITHIN GROUP (ORDER BY %s DESC)%s", sql_name, args->v[1], args->v[0], filter);
}

const char *br_e_aggregate(br_emit *e, const json_t *expr, const br_env *env, bool in_window) {
  const char *name = br_j_str(expr, "name");
  const json_t *data = br_j_some(expr, "function_data"), *orders = orders_of(expr);
  br_texts args = br_e_exprs(e, br_j_get(expr, "children"), env);
  const char *filter = filter_of(e, expr, env);
  if (!*name) br_e_corrupt(e, "an aggregate has no name");
  if (e->status != BR_OK) return "";
  bool star = !strcmp(name, "count_star");
  if (star) name = "count";
  if (!strcmp(name, "sum_no_overflow")) name = "sum";
  if ((!strcmp(name, "string_agg") || !strcmp(name, "listagg") || !strcmp(name, "group_concat")) &&
      br_j_some(data, "separator"))
    br_e_add(e, &args, br_e_literal_json(e, br_j_get(data, "separator")));
  if (add_quantiles(e, expr, name, &args) && br_j_true(data, "desc") && !orders)
    return within_group(e, name, &args, filter);
  if (!strcmp(name, "bitstring_agg") && br_j_some(data, "min")) {
    br_e_add(e, &args, br_e_constant(e, br_j_get(data, "min"), NULL));
    br_e_add(e, &args, br_e_constant(e, br_j_get(data, "max"), NULL));
  }
  bool distinct = br_j_is(expr, "aggregate_type", "DISTINCT") || br_j_true(expr, "distinct");
  return br_e_fmt(e, "%s(%s%s%s%s%s)%s", is_name(name) ? name : br_e_ident(e, name), distinct ? "DISTINCT " : "",
                  star ? "*" : br_e_join(e, &args, ", "), orders ? " ORDER BY " : "",
                  orders ? br_e_orders(e, orders, env) : "",
                  in_window && br_j_true(expr, "ignore_nulls") ? " IGNORE NULLS" : "", filter);
}
