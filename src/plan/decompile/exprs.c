/* SPDX-License-Identifier: Apache-2.0
 *
 * Bound expressions → SQL. BOUND_REF is a position in the input, BOUND_COLUMN_REF (below in-out functions only) a binding.
 * Everything is put in parentheses: precedence never matters.
 */
#include "plan/decompile/emit.h"

#include <string.h>

br_texts br_e_exprs(br_emit *e, const json_t *array, const br_env *env) {
  br_texts list = {0};
  for (size_t i = 0; i < json_array_size(array); i++) br_e_add(e, &list, br_e_expr(e, json_array_get(array, i), env));
  return list;
}

static const char *field(br_emit *e, const json_t *expr, const char *key, const br_env *env) {
  return br_e_expr(e, br_j_get(expr, key), env);
}

void br_e_repeatable(br_emit *e, const json_t *expr) {
  if (br_expr_is_indeterminate(expr))
    br_e_unsupported(e, "a random value that would be drawn more than once for the same row");
}

static const char *reference(br_emit *e, const json_t *expr, const br_env *env) {
  uint64_t i = br_json_u64(br_j_get(expr, "index"));
  if (!json_is_integer(br_j_get(expr, "index")) || i >= env->refs.n) {
    br_e_corrupt(e, "an expression refers to column %llu of %zu", (unsigned long long)i, env->refs.n);
    return "";
  }
  return env->refs.v[i];
}

static const char *bound_column(br_emit *e, const json_t *expr, const br_env *env) {
  const json_t *b = br_j_get(expr, "binding");
  uint64_t table = br_json_u64(br_j_get(b, "table_index")), column = br_json_u64(br_j_get(b, "column_index"));
  for (size_t i = 0; i < env->bind_refs.n; i++)
    if (env->binds[i].table == table && env->binds[i].column == column) return env->bind_refs.v[i];
  br_e_corrupt(e, "an expression refers to column %llu.%llu, which its input has not", (unsigned long long)table,
               (unsigned long long)column);
  return "";
}

static const char *cast_field(br_emit *e, const char *text, const json_t *type);

/* No type text stands for a struct without names: it is built again, field by field. */
static const char *rebuild_row(br_emit *e, const br_texts *values, const json_t *type) {
  br_texts list = {0};
  size_t n = json_array_size(br_e_fields(type));
  if (values->n != n) br_e_unsupported(e, "a cast between structs of different width");
  for (size_t i = 0; i < n && i < values->n; i++)
    br_e_add(e, &list, cast_field(e, values->v[i], br_e_field_type(type, i)));
  return br_e_fmt(e, "row(%s)", br_e_join(e, &list, ", "));
}

static const char *cast_row(br_emit *e, const char *text, const json_t *type) {
  br_texts values = {0};
  if (!br_e_is(type, "STRUCT")) {
    br_e_unsupported(e, "a cast to a nested struct whose fields have no names");
    return "";
  }
  for (size_t i = 0; i < json_array_size(br_e_fields(type)); i++)
    br_e_add(e, &values, br_e_fmt(e, "struct_extract_at(%s, %zu)", text, i + 1));
  return br_e_fmt(e, "CASE WHEN %s IS NULL THEN NULL ELSE %s END", text, rebuild_row(e, &values, type));
}

static const char *cast_field(br_emit *e, const char *text, const json_t *type) {
  return br_e_unnamed(type) ? cast_row(e, text, type) : br_e_cast(e, text, type);
}

static const char *cast(br_emit *e, const json_t *expr, const br_env *env) {
  const json_t *child = br_j_get(expr, "child"), *type = br_j_get(expr, "return_type");
  bool try = br_j_true(expr, "try_cast");
  if (!br_e_unnamed(type))
    return br_e_fmt(e, "%s(%s AS %s)", try ? "TRY_CAST" : "CAST", br_e_expr(e, child, env), br_e_type(e, type));
  if (try) br_e_unsupported(e, "TRY_CAST to a struct whose fields have no names");
  bool made_here = br_j_is(child, "expression_class", "BOUND_FUNCTION") &&
                   (br_j_is(child, "name", "row") || br_j_is(child, "name", "struct_pack"));
  if (made_here && br_e_is(type, "STRUCT")) {
    br_texts values = br_e_exprs(e, br_j_get(child, "children"), env);
    return rebuild_row(e, &values, type);
  }
  br_e_repeatable(e, child);
  return cast_row(e, br_e_expr(e, child, env), type);
}

static const char *between(br_emit *e, const json_t *expr, const br_env *env) {
  const char *x = field(e, expr, "input", env), *lo = field(e, expr, "lower", env), *hi = field(e, expr, "upper", env);
  bool lower = br_j_true(expr, "lower_inclusive"), upper = br_j_true(expr, "upper_inclusive");
  const char *text = br_e_fmt(e, "(%s BETWEEN %s AND %s)", x, lo, hi);
  if (!lower || !upper) {
    br_e_repeatable(e, br_j_get(expr, "input"));
    text = br_e_fmt(e, "(%s %s %s AND %s %s %s)", x, lower ? ">=" : ">", lo, x, upper ? "<=" : "<", hi);
  }
  return br_j_is(expr, "type", "COMPARE_NOT_BETWEEN") ? br_e_fmt(e, "(NOT %s)", text) : text;
}

static const char *case_of(br_emit *e, const json_t *expr, const br_env *env) {
  br_texts list = {0};
  for (size_t i = 0; i < br_j_count(expr, "case_checks"); i++) {
    const json_t *c = br_j_at(expr, "case_checks", i);
    const char *when = field(e, c, "when_expr", env);
    br_e_add(e, &list, br_e_fmt(e, "WHEN %s THEN %s", when, field(e, c, "then_expr", env)));
  }
  return br_e_fmt(e, "(CASE %s ELSE %s END)", br_e_join(e, &list, " "), field(e, expr, "else_expr", env));
}

static const char *operator_of(br_emit *e, const json_t *expr, const br_env *env) {
  const char *t = br_j_str(expr, "type");
  br_texts c = br_e_exprs(e, br_j_get(expr, "children"), env);
  if (!c.n) {
    br_e_corrupt(e, "the operator %.60s has no operand", t);
    return "";
  }
  br_texts rest = {.v = c.v + 1, .n = c.n - 1};
  if (!strcmp(t, "COMPARE_IN") || !strcmp(t, "COMPARE_NOT_IN")) {
    if (!rest.n) br_e_corrupt(e, "IN without a list");
    return br_e_fmt(e, "(%s %sIN (%s))", c.v[0], t[8] == 'N' ? "NOT " : "", br_e_join(e, &rest, ", "));
  }
  if (!strcmp(t, "OPERATOR_IS_NULL")) return br_e_fmt(e, "(%s IS NULL)", c.v[0]);
  if (!strcmp(t, "OPERATOR_IS_NOT_NULL")) return br_e_fmt(e, "(%s IS NOT NULL)", c.v[0]);
  if (!strcmp(t, "OPERATOR_NOT")) return br_e_fmt(e, "(NOT %s)", c.v[0]);
  if (!strcmp(t, "OPERATOR_COALESCE")) return br_e_fmt(e, "coalesce(%s)", br_e_join(e, &c, ", "));
  if (!strcmp(t, "OPERATOR_TRY")) return br_e_fmt(e, "TRY(%s)", c.v[0]);
  br_e_unsupported(e, "the operator %.60s", t);
  return "";
}

static const char *comparison(br_emit *e, const json_t *expr, const br_env *env) {
  const char *l = field(e, expr, "left", env);
  return br_e_fmt(e, "(%s %s %s)", l, br_e_comparison(e, br_j_str(expr, "type")), field(e, expr, "right", env));
}

static const char *conjunction(br_emit *e, const json_t *expr, const br_env *env) {
  br_texts list = br_e_exprs(e, br_j_get(expr, "children"), env);
  if (!list.n) br_e_corrupt(e, "a conjunction of nothing");
  return br_e_fmt(e, "(%s)", br_e_join(e, &list, br_j_is(expr, "type", "CONJUNCTION_AND") ? " AND " : " OR "));
}

const char *br_e_expr(br_emit *e, const json_t *expr, const br_env *env) {
  const char *k = br_j_str(expr, "expression_class");
  if (e->status != BR_OK) return "";
  if (!strcmp(k, "BOUND_REF")) return reference(e, expr, env);
  if (!strcmp(k, "BOUND_COLUMN_REF")) return bound_column(e, expr, env);
  if (!strcmp(k, "BOUND_CONSTANT")) return br_e_constant(e, br_j_get(expr, "value"), NULL);
  if (!strcmp(k, "BOUND_CAST")) return cast(e, expr, env);
  if (!strcmp(k, "BOUND_COMPARISON")) return comparison(e, expr, env);
  if (!strcmp(k, "BOUND_CONJUNCTION")) return conjunction(e, expr, env);
  if (!strcmp(k, "BOUND_BETWEEN")) return between(e, expr, env);
  if (!strcmp(k, "BOUND_CASE")) return case_of(e, expr, env);
  if (!strcmp(k, "BOUND_OPERATOR")) return operator_of(e, expr, env);
  if (!strcmp(k, "BOUND_FUNCTION")) return br_e_function(e, expr, env);
  if (!strcmp(k, "BOUND_UNNEST")) return br_e_fmt(e, "unnest(%s)", field(e, expr, "child", env));
  if (!strcmp(k, "BOUND_PARAMETER"))
    br_e_unsupported(e, "a parameter ($1, ?) whose value is not known: bind it before planning");
  else if (!*k)
    br_e_corrupt(e, "an expression is missing");
  else
    br_e_unsupported(e, "an expression of class %.60s", k);
  return "";
}

const char *br_e_orders(br_emit *e, const json_t *orders, const br_env *env) {
  br_texts list = {0};
  for (size_t i = 0; i < json_array_size(orders); i++) {
    const json_t *o = json_array_get(orders, i);
    const char *nulls = br_j_str(o, "null_order"), *type = br_j_str(o, "type");
    bool descending = !strcmp(type, "DESCENDING"),
         first = !strcmp(nulls, "NULLS FIRST") || !strcmp(nulls, "NULLS_FIRST");
    if (!descending && strcmp(type, "ASCENDING") != 0) br_e_corrupt(e, "ORDER BY without a direction");
    if (!first && strcmp(nulls, "NULLS LAST") != 0 && strcmp(nulls, "NULLS_LAST") != 0)
      br_e_corrupt(e, "ORDER BY without a place for NULL");
    br_e_add(e, &list,
             br_e_fmt(e, "%s %s NULLS %s", field(e, o, "expression", env), descending ? "DESC" : "ASC",
                      first ? "FIRST" : "LAST"));
  }
  if (!list.n) br_e_corrupt(e, "ORDER BY nothing");
  return br_e_join(e, &list, ", ");
}

/* ---- indeterminate */

static bool draws(const char *name) {
  static const char *const names[] = {"random",          "setseed",  "uuid",     "gen_random_uuid",
                                      "uuidv4",          "uuidv7",   "nextval",  "currval",
                                      "clock_timestamp", "pg_sleep", "sleep_ms", "__url_download"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

bool br_expr_is_indeterminate(const json_t *expr) {
  const char *key;
  size_t i;
  json_t *v;
  if (json_is_object(expr)) {
    if (br_j_is(expr, "expression_class", "BOUND_FUNCTION") && draws(br_j_str(expr, "name"))) return true;
    json_object_foreach((json_t *)expr, key, v) {
      if (br_expr_is_indeterminate(v)) return true;
    }
  } else if (json_is_array(expr)) {
    json_array_foreach(expr, i, v) {
      if (br_expr_is_indeterminate(v)) return true;
    }
  }
  return false;
}

bool br_node_is_volatile(const br_node *node) {
  const char *key;
  json_t *v;
  json_object_foreach(node->json, key, v) {
    if (strcmp(key, "children") != 0 && br_expr_is_indeterminate(v)) return true;
  }
  return false;
}
