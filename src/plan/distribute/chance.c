/* SPDX-License-Identifier: Apache-2.0
 *
 * What differs from one run of the same task to the next: volatile functions, sums of floats, aggregates and windows that
 * depend on the order of rows. Such a stage is marked indeterminate. Threads: none. Bounds: recursion as deep as the JSON.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static bool one_of(const char *s, const char *const *list) {
  for (; *list; list++)
    if (!strcmp(s, *list)) return true;
  return false;
}

static bool volatile_function(const char *name) {
  static const char *const names[] = {"random",
                                      "uuid",
                                      "uuidv4",
                                      "uuidv7",
                                      "gen_random_uuid",
                                      "setseed",
                                      "nextval",
                                      "currval",
                                      "stats",
                                      "current_transaction_id",
                                      "current_query_id",
                                      "monotonically_increasing_id",
                                      "__url_download",
                                      NULL};
  return one_of(name, names);
}

bool br_volatile(const json_t *j) {
  const char *key;
  json_t *value;
  size_t i;
  if (json_is_object(j)) {
    if (br_j_is(j, "expression_class", "BOUND_FUNCTION") && volatile_function(br_j_str(j, "name"))) return true;
    json_object_foreach((json_t *)j, key, value) if (br_volatile(value)) return true;
  } else if (json_is_array(j)) {
    json_array_foreach(j, i, value) if (br_volatile(value)) return true;
  }
  return false;
}

bool br_is_float(const json_t *type) { return br_j_is(type, "id", "DOUBLE") || br_j_is(type, "id", "FLOAT"); }

static bool float_sum(const json_t *call, const char *name) {
  static const char *const sums[] = {"sum", "avg", "mean", "product", NULL};
  return one_of(name, sums) && br_is_float(br_expr_type(br_j_at(call, "children", 0)));
}

/* The same rows in any order give the same value. */
static bool order_free(const char *name) {
  static const char *const names[] = {"sum",
                                      "sum_no_overflow",
                                      "avg",
                                      "mean",
                                      "count",
                                      "count_star",
                                      "min",
                                      "max",
                                      "bool_and",
                                      "bool_or",
                                      "bit_and",
                                      "bit_or",
                                      "bit_xor",
                                      "count_if",
                                      "countif",
                                      "quantile_disc",
                                      "quantile_cont",
                                      "median",
                                      "mad",
                                      "histogram",
                                      "histogram_exact",
                                      "bitstring_agg",
                                      "quantile",
                                      NULL};
  return one_of(name, names);
}

bool br_chance_aggregate(const json_t *a) {
  const char *name = br_j_str(a, "name");
  return br_volatile(a) || float_sum(a, name) || !order_free(name);
}

bool br_chance_window(const json_t *w) {
  static const char *const ranks[] = {"WINDOW_RANK", "WINDOW_RANK_DENSE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST",
                                      NULL};
  const char *type = br_j_str(w, "type"), *end = br_j_str(w, "end"), *start = br_j_str(w, "start");
  if (br_volatile(w)) return true;
  if (one_of(type, ranks)) return false;
  if (strcmp(type, "WINDOW_AGGREGATE") != 0) return true;
  return strstr(end, "ROWS") || strstr(start, "ROWS") || float_sum(w, br_j_str(w, "name")) ||
         !order_free(br_j_str(w, "name"));
}
