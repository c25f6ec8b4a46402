/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalar functions. `"name"(arguments)` is right for nearly all of them, operators too; the others lost arguments to
 * function_data when they were bound: lambdas, field names, parts of a date, an inner aggregate's arguments.
 */
#include "plan/decompile/emit.h"

#include <string.h>

static bool among(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}
#define AMONG(name, ...) \
  among((name), (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static const json_t *data_of(const json_t *expr) { return br_j_some(expr, "function_data"); }
static const json_t *argument(const json_t *expr, size_t i) { return br_j_at(expr, "children", i); }
static const char *nth(br_emit *e, const br_texts *list, size_t i) {
  if (i < list->n) return list->v[i];
  br_e_corrupt(e, "a function has too few arguments");
  return "";
}

static const char *call(br_emit *e, const char *name, const br_texts *args) {
  return br_e_fmt(e, "%s(%s)", br_e_ident(e, name), br_e_join(e, args, ", "));
}

static const char *lambda(br_emit *e, const json_t *expr, const br_texts *args, const br_env *env) {
  const char *name = br_j_str(expr, "name");
  const json_t *data = data_of(expr), *body = br_j_some(data, "lambda_expr");
  bool reduces = AMONG(name, "list_reduce", "reduce", "array_reduce"), starts = br_j_true(data, "has_initial");
  size_t n = (reduces ? 2 : 1) + (br_j_true(data, "has_index") ? 1 : 0);
  br_texts names = {0}, out = {0};
  br_env inner = {.binds = env->binds, .bind_refs = env->bind_refs};
  if (!body) {
    br_e_unsupported(e, "%.60s without its lambda", name);
    return "";
  }
  e->lambdas++;
  for (size_t i = 0; i < n; i++) br_e_add(e, &names, br_e_fmt(e, "x%u_%zu", e->lambdas, i));
  /* References in the body: own parameters reversed, then what was captured. */
  for (size_t i = n; i-- > 0;) br_e_add(e, &inner.refs, names.v[i]);
  for (size_t i = starts ? 2 : 1; i < args->n; i++) {
    br_e_repeatable(e, argument(expr, i));
    br_e_add(e, &inner.refs, args->v[i]);
  }
  br_e_add(e, &out, nth(e, args, 0));
  br_e_add(e, &out, br_e_fmt(e, "lambda %s: %s", br_e_join(e, &names, ", "), br_e_expr(e, body, &inner)));
  if (starts) br_e_add(e, &out, nth(e, args, 1));
  return call(e, name, &out);
}

static const char *struct_pack(br_emit *e, const json_t *expr, const br_texts *args) {
  const json_t *type = br_j_some(data_of(expr), "variable_return_type");
  br_texts list = {0};
  bool unnamed = br_j_is(expr, "name", "row");
  if (!type) type = br_j_get(expr, "return_type");
  if (!unnamed) {
    unnamed = true;
    for (size_t i = 0; i < args->n; i++)
      if (json_string_length(br_e_field_name(type, i))) unnamed = false;
  }
  if (unnamed) return br_e_fmt(e, "row(%s)", br_e_join(e, args, ", "));
  for (size_t i = 0; i < args->n; i++)
    br_e_add(e, &list, br_e_fmt(e, "%s: %s", br_e_literal_json(e, br_e_field_name(type, i)), args->v[i]));
  return br_e_fmt(e, "{%s}", br_e_join(e, &list, ", "));
}

/* struct_insert(s, z := 1): the name is the argument's alias. */
static const char *struct_change(br_emit *e, const json_t *expr, const br_texts *args) {
  br_texts list = {0};
  br_e_add(e, &list, nth(e, args, 0));
  for (size_t i = 1; i < args->n; i++)
    br_e_add(e, &list, br_e_fmt(e, "%s := %s", br_e_ident(e, br_j_str(argument(expr, i), "alias")), args->v[i]));
  return call(e, br_j_str(expr, "name"), &list);
}

static const char *union_value(br_emit *e, const json_t *expr, const br_texts *args) {
  const char *tag = json_string_value(br_e_field_name(br_j_get(expr, "return_type"), 1));
  if (!tag) br_e_corrupt(e, "union_value without a tag");
  return br_e_fmt(e, "union_value(%s := %s)", br_e_ident(e, tag ? tag : ""), nth(e, args, 0));
}

/* date_part(['year', 'month'], ts): the list became the fields of the result. */
static const char *date_parts(br_emit *e, const json_t *expr, const br_texts *args) {
  const json_t *type = br_j_get(expr, "return_type");
  br_texts parts = {0};
  for (size_t i = 0; i < json_array_size(br_e_fields(type)); i++)
    br_e_add(e, &parts, br_e_literal_json(e, br_e_field_name(type, i)));
  return br_e_fmt(e, "date_part([%s], %s)", br_e_join(e, &parts, ", "), nth(e, args, 0));
}

static bool is_open_bound(const json_t *expr) { /* an empty list stands for "no bound" */
  return br_j_is(expr, "expression_class", "BOUND_CONSTANT") && br_e_is(br_expr_type(expr), "LIST");
}

static const char *slice(br_emit *e, const json_t *expr, const br_texts *args) {
  bool steps = args->n > 3;
  const char *lo = is_open_bound(argument(expr, 1)) ? "" : nth(e, args, 1);
  const char *hi = is_open_bound(argument(expr, 2)) ? (steps ? "-" : "") : nth(e, args, 2);
  return br_e_fmt(e, "(%s)[%s:%s%s%s]", nth(e, args, 0), lo, hi, steps ? ":" : "", steps ? args->v[3] : "");
}

/* A quantile is a value of the plan, or a bare number. */
const char *br_e_quantile(br_emit *e, const json_t *value, const char *type) {
  if (json_is_object(value)) return br_e_constant(e, value, NULL);
  return br_e_fmt(e, "'%.17g'::%s", br_json_double(value), type);
}

static const char *list_aggregate(br_emit *e, const json_t *expr, br_texts args) {
  const json_t *aggregate = br_j_some(br_j_some(data_of(expr), "bind_data"), "aggr_expr");
  const json_t *data = data_of(aggregate), *quantiles = br_j_some(data, "quantiles");
  if (br_j_some(data, "separator")) br_e_add(e, &args, br_e_literal_json(e, br_j_get(data, "separator")));
  if (json_array_size(quantiles)) {
    br_texts q = {0};
    for (size_t i = 0; i < json_array_size(quantiles); i++)
      br_e_add(e, &q, br_e_quantile(e, json_array_get(quantiles, i), "FLOAT"));
    bool many = br_e_is(br_j_get(aggregate, "return_type"), "LIST");
    br_e_add(e, &args, many ? br_e_fmt(e, "[%s]", br_e_join(e, &q, ", ")) : q.v[0]);
  }
  return call(e, br_j_str(expr, "name"), &args);
}

static const char *operator_call(br_emit *e, const char *name, const br_texts *args) {
  if (args->n == 2 && AMONG(name, "+", "-", "*", "/", "//", "%", "||", "&", "|", "<<", ">>", "~~", "!~~", "~~~", "^@",
                            "->>", "->", "@>", "<@", "&&", "**", "^", "~~*", "!~~*", "<=>", "<->"))
    return br_e_fmt(e, "(%s %s %s)", args->v[0], name, args->v[1]);
  if (args->n == 1 && !strcmp(name, "-")) return br_e_fmt(e, "(- %s)", args->v[0]);
  return call(e, name, args);
}

static bool stays_local(const char *name) {
  return AMONG(name, "nextval", "currval", "current_query", "getvariable", "setseed", "current_query_id",
               "current_transaction_id", "txid_current", "current_connection_id") ||
         !strncmp(name, "__internal", 10);
}

bool br_is_marker(const char *name) {
  return AMONG(name, BR_MARKER_REPARTITION, BR_MARKER_INTO_PARTITIONS, BR_MARKER_INTO_BATCHES, BR_MARKER_BROADCAST);
}

const char *br_e_function(br_emit *e, const json_t *expr, const br_env *env) {
  const char *name = br_j_str(expr, "name");
  const json_t *data = data_of(expr), *type = br_j_get(expr, "return_type");
  br_texts args = br_e_exprs(e, br_j_get(expr, "children"), env);
  if (!*name) br_e_corrupt(e, "a function has no name");
  if (stays_local(name)) br_e_unsupported(e, "%.60s(): it means something in this session only", name);
  if (e->status != BR_OK) return "";
  if (br_is_marker(name)) return "true"; /* what it stands for is done by distribute/ */
  if (!strcmp(name, "monotonically_increasing_id")) return "monotonically_increasing_id(" BR_TASK_NUMBER ")";
  if (br_j_get(data, "lambda_expr") ||
      AMONG(name, "list_transform", "list_filter", "list_reduce", "list_apply", "array_transform", "apply",
            "array_apply", "filter", "array_filter", "reduce", "array_reduce"))
    return lambda(e, expr, &args, env);
  if (AMONG(name, "struct_pack", "row")) return struct_pack(e, expr, &args);
  if (AMONG(name, "struct_insert", "struct_update")) return struct_change(e, expr, &args);
  if (!strcmp(name, "union_value")) return union_value(e, expr, &args);
  if (AMONG(name, "date_part", "datepart") && br_j_get(data, "part_codes") && args.n == 1)
    return date_parts(e, expr, &args);
  if (AMONG(name, "list_value", "list_pack"))
    return args.n ? br_e_fmt(e, "[%s]", br_e_join(e, &args, ", ")) : br_e_cast(e, "[]", type);
  if (AMONG(name, "array_slice", "list_slice")) return slice(e, expr, &args);
  if (!strcmp(name, "alias")) return br_e_fmt(e, "%s::VARCHAR", br_e_literal(e, br_j_str(argument(expr, 0), "alias")));
  if (data && AMONG(name, "list_aggregate", "list_aggr", "array_aggregate", "array_aggr", "aggregate"))
    return list_aggregate(e, expr, args);
  const char *text = operator_call(e, name, &args);
  /* The operands are widened already; binding the text widens once more. */
  if (br_e_is(type, "DECIMAL") && AMONG(name, "+", "-", "*", "%", "/", "//")) return br_e_cast(e, text, type);
  return text;
}
