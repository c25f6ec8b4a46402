/* SPDX-License-Identifier: Apache-2.0
 *
 * Window calls with their partitions, orders and frames. RANGE bounds arrive as `order ± offset` already: the offset is
 * taken back out.
 */
#include "plan/decompile/emit.h"

#include <string.h>

static const char *function_name(br_emit *e, const char *type) {
  static const char *const names[][2] = {
      {"WINDOW_RANK", "rank"},
      {"WINDOW_RANK_DENSE", "dense_rank"},
      {"WINDOW_PERCENT_RANK", "percent_rank"},
      {"WINDOW_CUME_DIST", "cume_dist"},
      {"WINDOW_ROW_NUMBER", "row_number"},
      {"WINDOW_NTILE", "ntile"},
      {"WINDOW_LEAD", "lead"},
      {"WINDOW_LAG", "lag"},
      {"WINDOW_FIRST_VALUE", "first_value"},
      {"WINDOW_LAST_VALUE", "last_value"},
      {"WINDOW_NTH_VALUE", "nth_value"},
      {"WINDOW_FILL", "fill"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(type, names[i][0])) return names[i][1];
  br_e_unsupported(e, "the window function %.60s", type);
  return "";
}

static const char *call(br_emit *e, const json_t *expr, const br_env *env) {
  br_texts args = br_e_exprs(e, br_j_get(expr, "children"), env);
  const json_t *offset = br_j_some(expr, "offset_expr"), *fallback = br_j_some(expr, "default_expr");
  const json_t *orders = br_j_get(expr, "arg_orders"), *filter = br_j_some(expr, "filters");
  if (offset || fallback) br_e_add(e, &args, offset ? br_e_expr(e, offset, env) : "1");
  if (fallback) br_e_add(e, &args, br_e_expr(e, fallback, env));
  bool ordered = json_array_size(orders) > 0;
  return br_e_fmt(e, "%s(%s%s%s%s%s)%s%s%s", function_name(e, br_j_str(expr, "type")),
                  br_j_true(expr, "distinct") ? "DISTINCT " : "", br_e_join(e, &args, ", "),
                  ordered ? " ORDER BY " : "", ordered ? br_e_orders(e, orders, env) : "",
                  br_j_true(expr, "ignore_nulls") ? " IGNORE NULLS" : "", filter ? " FILTER (WHERE " : "",
                  filter ? br_e_expr(e, filter, env) : "", filter ? ")" : "");
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && !strcmp(s + n - m, end);
}

/* ROWS, RANGE or GROUPS: the suffix of a bound that has an offset, else of CURRENT ROW; unbounded on both sides: RANGE. */
static const char *frame_mode(const char *start, const char *end) {
  static const char *const modes[] = {"ROWS", "GROUPS", "RANGE"};
  const char *bounds[] = {start, end};
  for (int pass = 0; pass < 2; pass++)
    for (size_t b = 0; b < 2; b++)
      for (size_t m = 0; m < 3; m++)
        if ((pass == 1 || strncmp(bounds[b], "CURRENT", 7) != 0) && ends_with(bounds[b], modes[m])) return modes[m];
  return "RANGE";
}

static const json_t *range_offset(br_emit *e, const json_t *bound) {
  while (br_j_is(bound, "expression_class", "BOUND_CAST")) bound = br_j_get(bound, "child");
  if (br_j_is(bound, "expression_class", "BOUND_FUNCTION") &&
      (br_j_is(bound, "name", "+") || br_j_is(bound, "name", "-")) && br_j_count(bound, "children") == 2)
    return br_j_at(bound, "children", 1);
  br_e_unsupported(e, "a RANGE bound that is not `order ± offset`");
  return NULL;
}

static const char *bound(br_emit *e, const json_t *expr, const char *which, const char *expr_key, const char *mode,
                         const br_env *env) {
  const char *b = br_j_str(expr, which);
  if (!strcmp(b, "UNBOUNDED_PRECEDING")) return "UNBOUNDED PRECEDING";
  if (!strcmp(b, "UNBOUNDED_FOLLOWING")) return "UNBOUNDED FOLLOWING";
  if (!strncmp(b, "CURRENT_ROW", 11)) return "CURRENT ROW";
  const char *side = strstr(b, "PRECEDING") ? "PRECEDING" : strstr(b, "FOLLOWING") ? "FOLLOWING" : NULL;
  if (!side) br_e_unsupported(e, "the window bound %.60s", b);
  const json_t *offset = br_j_get(expr, expr_key);
  if (!strcmp(mode, "RANGE")) offset = range_offset(e, offset);
  return br_e_fmt(e, "%s %s", br_e_expr(e, offset, env), side ? side : "");
}

static const char *exclusion(br_emit *e, const char *clause) {
  if (!strcmp(clause, "NO_OTHER")) return "";
  if (!strcmp(clause, "CURRENT_ROW")) return " EXCLUDE CURRENT ROW";
  if (!strcmp(clause, "GROUP")) return " EXCLUDE GROUP";
  if (!strcmp(clause, "TIES")) return " EXCLUDE TIES";
  br_e_unsupported(e, "EXCLUDE %.60s", clause);
  return "";
}

static const char *frame(br_emit *e, const json_t *expr, const br_env *env) {
  const char *start = br_j_str(expr, "start"), *end = br_j_str(expr, "end"), *mode = frame_mode(start, end);
  const char *out = exclusion(e, br_j_str(expr, "exclude_clause"));
  if (!*out && !strcmp(start, "UNBOUNDED_PRECEDING") && !strcmp(end, "CURRENT_ROW_RANGE"))
    return NULL; /* the default */
  return br_e_fmt(e, "%s BETWEEN %s AND %s%s", mode, bound(e, expr, "start", "start_expr", mode, env),
                  bound(e, expr, "end", "end_expr", mode, env), out);
}

const char *br_e_window(br_emit *e, const json_t *expr, const br_env *env) {
  bool aggregate = br_j_is(expr, "type", "WINDOW_AGGREGATE");
  const char *function = aggregate ? br_e_aggregate(e, expr, env, true) : call(e, expr, env);
  const json_t *partitions = br_j_get(expr, "partitions"), *orders = br_j_get(expr, "orders");
  const char *frame_text = frame(e, expr, env);
  br_texts parts = {0};
  if (json_array_size(partitions)) {
    br_texts keys = br_e_exprs(e, partitions, env);
    br_e_add(e, &parts, br_e_fmt(e, "PARTITION BY %s", br_e_join(e, &keys, ", ")));
  }
  if (json_array_size(orders)) br_e_add(e, &parts, br_e_fmt(e, "ORDER BY %s", br_e_orders(e, orders, env)));
  if (frame_text) br_e_add(e, &parts, frame_text);
  return br_e_fmt(e, "%s OVER (%s)", function, br_e_join(e, &parts, " "));
}
