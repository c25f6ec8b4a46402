/* SPDX-License-Identifier: Apache-2.0
 *
 * count(DISTINCT x) and the like, alone or beside aggregates that split. Each task first makes one row of every group and
 * value of x (with the partial results of the others); those rows are spread, once more made one a value, and from then on
 * DISTINCT has nothing left to do. With GROUP BY the rows go by its keys and the result is complete there; without, they go
 * by x, and the tasks' results are merged in one task.
 *
 * Several arguments without GROUP BY: a grouping set for each, and the set () for the other aggregates; a row's set is one more
 * key. The argument of a call with FILTER is NULL where its condition is not met: all calls that are known here pass over NULLs.
 *
 * Threads: none. Bounds: max_arguments.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

enum { max_arguments = 16 };

typedef struct argument {
  const json_t *value, *condition; /* condition of FILTER, or NULL */
} argument;

typedef struct reduction {
  const br_node *n;
  size_t n_groups, n_calls;
  argument arguments[max_arguments]; /* different ones; column n_groups + i */
  size_t n_arguments;
  size_t n_keys;    /* of the reduced rows: groups, arguments, the set's number if there are several arguments */
  size_t n_columns; /* n_keys, then partial results of the plain aggregates */
  bool plain_calls; /* there are some */
  json_t **types;
  const char **merges; /* [n_columns] "sum(t.c3)", NULL for keys */
  size_t *first;       /* [n_calls] a plain aggregate's first column */
  const char **finals; /* [n_calls] over the rows that the last step reads; NULL: `plain` as it is */
  br_buf row_columns;  /* of the partial results, for one row alone */
  bool of_rows;        /* that could be written, and the rows move */
  br_rel child;        /* what the calls' own arguments refer to */
  json_t **plain;      /* [n_calls] the call over the reduced rows, without DISTINCT; NULL: not a DISTINCT one */
} reduction;

static const json_t *call_at(const br_node *n, size_t i) { return br_j_at(n->json, "expressions", i); }

static bool is_distinct(const json_t *call) { return br_j_is(call, "aggregate_type", "DISTINCT"); }

static bool of_sets(const reduction *r) { return r->n_arguments > 1; }

/* GROUPING() of the set (). */
static unsigned long long empty_set(const reduction *r) { return (1ull << r->n_arguments) - 1; }

static bool writable(const json_t *type) {
  br_buf b = {0};
  br_error ignored;
  bool ok = type && br_emit_type(type, &b, &ignored) == BR_OK;
  br_buf_free(&b);
  return ok;
}

static bool reducible(const json_t *call) {
  static const char *const names[] = {"count", "sum", "sum_no_overflow", "avg", "min", "max"};
  if (br_j_count(call, "children") != 1 || br_volatile(call)) return false;
  if (br_j_count(br_j_some(call, "order_bys"), "orders") || !writable(br_expr_type(br_j_at(call, "children", 0))))
    return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (br_j_is(call, "name", names[i])) return true;
  return false;
}

/* Merged column by column, whatever the number of steps. */
static bool plain_splits(const json_t *call) {
  return br_aggregate_splits(call, false) && br_aggregate_merges_by_column(call);
}

static json_t *as_plain(br_dist *d, const json_t *call, json_t *argument) {
  json_t *copy = br_own_type(d, json_deep_copy(call));
  json_object_set_new(copy, "aggregate_type", json_string("NON_DISTINCT"));
  json_object_set_new(copy, "filter", json_null()); /* it is in the argument */
  json_object_set_new(copy, "children", json_pack("[O]", argument));
  return copy;
}

static bool same_json(const json_t *a, const json_t *b) {
  return a == b || (a && b && json_equal((json_t *)a, (json_t *)b));
}

/* Of the call's argument in the list, which grows by it; max_arguments: there are too many. */
static size_t argument_of(argument *list, size_t *n, const json_t *call) {
  argument a = {br_j_at(call, "children", 0), br_j_some(call, "filter")};
  size_t i = 0;
  while (i < *n && !(same_json(list[i].value, a.value) && same_json(list[i].condition, a.condition))) i++;
  if (i == *n && *n < max_arguments) list[(*n)++] = a;
  return i;
}

bool br_distinct_reduces(const br_node *n) {
  argument list[max_arguments];
  size_t count = 0;
  for (size_t i = 0; i < br_j_count(n->json, "expressions"); i++) {
    const json_t *call = call_at(n, i);
    if (!(is_distinct(call) ? reducible(call) : plain_splits(call))) return false;
    if (is_distinct(call) && argument_of(list, &count, call) == max_arguments) return false;
  }
  /* groups come together by their keys anyway: several distinct rows of each would only be more of them */
  return count == 1 || (count > 1 && !br_j_count(n->json, "groups"));
}

static void lists_of(br_dist *d, const br_node *n, const br_drel *child, reduction *r) {
  memset(r, 0, sizeof *r);
  r->child = br_branch_rel(child, 0);
  r->n = n;
  r->n_groups = br_j_count(n->json, "groups");
  r->n_calls = br_j_count(n->json, "expressions");
  size_t most = r->n_groups + max_arguments + 1 + BR_SPLIT_MOST * r->n_calls;
  r->types = br_arena_alloc(d->arena, most * sizeof *r->types);
  r->merges = br_arena_alloc(d->arena, most * sizeof *r->merges);
  r->first = br_arena_alloc(d->arena, (r->n_calls + 1) * sizeof *r->first);
  r->finals = br_arena_alloc(d->arena, (r->n_calls + 1) * sizeof *r->finals);
  r->plain = br_arena_alloc(d->arena, (r->n_calls + 1) * sizeof *r->plain);
}

static json_t *reference_to(br_dist *d, json_t *type, size_t column) {
  return br_own_type(d, json_pack("{s:s, s:s, s:O, s:i}", "expression_class", "BOUND_REF", "type", "BOUND_REF",
                                  "return_type", type, "index", (int)column));
}

static void describe_keys(br_dist *d, reduction *r) {
  for (size_t g = 0; g < r->n_groups; g++) r->types[g] = r->n->types[g];
  for (size_t i = 0; i < r->n_calls; i++) {
    const json_t *call = call_at(r->n, i);
    r->plain_calls = r->plain_calls || !is_distinct(call);
    if (!is_distinct(call)) continue;
    size_t at = r->n_groups + argument_of(r->arguments, &r->n_arguments, call);
    r->types[at] = br_expr_type(br_j_at(call, "children", 0));
    r->plain[i] = as_plain(d, call, reference_to(d, r->types[at], at));
  }
  r->n_keys = r->n_groups + r->n_arguments;
  if (of_sets(r)) r->types[r->n_keys++] = br_type_plain("BIGINT");
}

static br_status describe(br_dist *d, const br_node *n, const br_drel *child, reduction *r, br_buf *partials,
                          br_error *err) {
  lists_of(d, n, child, r);
  describe_keys(d, r);
  r->of_rows = !of_sets(r);
  size_t at = r->n_keys;
  for (size_t i = 0; i < r->n_calls; i++) {
    br_split_agg split;
    if (is_distinct(call_at(n, i))) continue;
    BR_TRY(br_split_aggregate(d, call_at(n, i), &r->child, at, &split, err));
    r->first[i] = at;
    r->finals[i] = split.final;
    for (size_t p = 0; p < split.n; p++, at++) {
      r->types[at] = split.types[p];
      r->merges[at] = br_arena_printf(d->arena, "%s(t.c%zu)", split.merge[p], at);
      br_buf_printf(partials, ", %s AS c%zu", split.partial[p], at);
      if (split.rows[p]) br_buf_printf(&r->row_columns, ", %s AS c%zu", split.rows[p], at);
      r->of_rows = r->of_rows && split.rows[p];
    }
  }
  r->n_columns = at;
  return BR_OK;
}

static void columns_are(br_dist *d, br_drel *out, json_t *const *types, size_t n, double rows) {
  out->n_columns = n;
  out->types = types;
  out->needed = NULL;
  out->binds = br_arena_alloc(d->arena, (n + 1) * sizeof *out->binds); /* only own text reads it */
  out->ordered = false;
  br_no_clustering(out);
  br_set_rows(out, rows);
}

/* " AS g0, …": the groups and arguments over t. */
static br_status key_texts(br_dist *d, const reduction *r, const br_rel *over, br_buf *b, br_error *err) {
  for (size_t g = 0; g < r->n_groups + r->n_arguments; g++) {
    const argument *a = g < r->n_groups ? NULL : &r->arguments[g - r->n_groups];
    const json_t *e = a ? a->value : br_j_at(r->n->json, "groups", g);
    br_buf_str(b, ", ");
    if (a && a->condition) {
      br_buf_str(b, "CASE WHEN ");
      BR_TRY(br_emit_expr(d->emit, a->condition, over, "t", b, err));
      br_buf_str(b, " THEN ");
    }
    BR_TRY(br_emit_expr(d->emit, e, over, "t", b, err));
    br_buf_printf(b, "%s AS g%zu", a && a->condition ? " END" : "", g);
  }
  return BR_OK;
}

static void group_by(const reduction *r, br_buf *b) {
  size_t n = r->n_groups + r->n_arguments;
  br_buf_str(b, of_sets(r) ? " GROUP BY GROUPING SETS (" : " GROUP BY ");
  for (size_t g = 0; g < n; g++) br_buf_printf(b, of_sets(r) ? "%s(g%zu)" : "%sg%zu", g ? ", " : "", g);
  if (of_sets(r)) br_buf_str(b, r->plain_calls ? ", ())" : ")");
}

/* SELECT g0 AS c0, …, gN AS cN, <partials> FROM (SELECT t.*, <groups and x> FROM (child) t) t GROUP BY g0, … */
static br_status one_row_a_value(br_dist *d, reduction *r, br_drel *out, const char *partials, br_error *err) {
  br_status status = BR_OK;
  br_rel over = br_branch_rel(out, 0);
  br_buf before = {0}, after = {0}, names = {0}, keys = {0};
  size_t n = r->n_groups + r->n_arguments;
  const char *begin = r->of_rows ? BR_GROUPS_BEGIN : "", *end = r->of_rows ? BR_GROUPS_END : "";
  for (size_t g = 0; g < n; g++) {
    br_buf_printf(&keys, "%sg%zu AS c%zu", g ? ", " : "", g, g);
    br_buf_printf(&names, "%sg%zu", g ? ", " : "", g);
  }
  if (of_sets(r)) br_buf_printf(&keys, ", GROUPING(%s) AS c%zu", br_buf_cstr(&names), n);
  br_buf_printf(&before, "SELECT %s%s%s%s FROM (SELECT t.*", begin, br_buf_cstr(&keys), partials, end);
  BR_TRY_GOTO(key_texts(d, r, &over, &before, err));
  br_buf_str(&before, " FROM ");
  br_buf_printf(&after, ") t%s", begin);
  group_by(r, &after);
  br_buf_str(&after, end);
  br_wrap_text(d, out, br_arena_strdup(d->arena, br_buf_cstr(&before)), br_arena_strdup(d->arena, br_buf_cstr(&after)));
  if (r->of_rows)
    br_may_leave_out(out, br_arena_printf(d->arena, "%s%s", br_buf_cstr(&keys), br_buf_cstr(&r->row_columns)));
  columns_are(d, out, r->types, r->n_columns, out->rows);
  br_label_all(d, out, "distinct values with partial aggregate");
done:
  br_buf_free(&keys);
  br_buf_free(&before);
  br_buf_free(&after);
  br_buf_free(&names);
  return status;
}

static void once_more(br_dist *d, const reduction *r, br_drel *out) {
  br_buf before = {0}, after = {0};
  br_buf_str(&before, "SELECT ");
  for (size_t i = 0; i < r->n_columns; i++) {
    br_buf_str(&before, i ? ", " : "");
    if (r->merges[i])
      br_buf_printf(&before, "%s AS c%zu", r->merges[i], i);
    else
      br_buf_printf(&before, "t.c%zu AS c%zu", i, i);
  }
  br_buf_str(&before, " FROM ");
  for (size_t g = 0; g < r->n_keys; g++) br_buf_printf(&after, "%st.c%zu", g ? ", " : " GROUP BY ", g);
  br_wrap_text(d, out, br_arena_strdup(d->arena, br_buf_cstr(&before)), br_arena_strdup(d->arena, br_buf_cstr(&after)));
  br_buf_free(&before);
  br_buf_free(&after);
}

/* The node's own columns. */
static br_status finals(br_dist *d, const reduction *r, br_drel *out, br_error *err) {
  br_status status = BR_OK;
  br_rel over = br_branch_rel(out, 0);
  br_buf before = {0}, after = {0};
  br_buf_str(&before, "SELECT ");
  for (size_t g = 0; g < r->n_groups; g++) br_buf_printf(&before, "%st.c%zu AS c%zu", g ? ", " : "", g, g);
  for (size_t i = 0; i < r->n_calls; i++) {
    br_buf_str(&before, r->n_groups + i ? ", " : "");
    if (r->finals[i])
      br_buf_str(&before, r->finals[i]);
    else
      BR_TRY_GOTO(br_emit_aggregate(d->emit, r->plain[i], &over, "t", &before, err));
    br_buf_printf(&before, " AS c%zu", r->n_groups + i);
  }
  br_buf_str(&before, " FROM ");
  for (size_t g = 0; g < r->n_groups; g++) br_buf_printf(&after, "%st.c%zu", g ? ", " : " GROUP BY ", g);
  br_wrap_text(d, out, br_arena_strdup(d->arena, br_buf_cstr(&before)), br_arena_strdup(d->arena, br_buf_cstr(&after)));
  out->n_columns = r->n->n_columns;
  out->types = r->n->types;
  out->binds = r->n->binds;
  out->needed = d->needs[r->n->id];
  br_set_rows(out, r->n->rows);
  br_label_all(d, out, "final aggregate");
done:
  br_buf_free(&before);
  br_buf_free(&after);
  return status;
}

/* Without GROUP BY: one row a task, gathered. */
static br_status one_row_a_task(br_dist *d, reduction *r, br_drel *out, br_error *err) {
  br_status status = BR_OK;
  br_rel over = br_branch_rel(out, 0);
  br_buf before = {0};
  size_t at = 0;
  json_t **types = br_arena_alloc(d->arena, (BR_SPLIT_MOST * r->n_calls + 1) * sizeof *types);
  br_buf_str(&before, "SELECT ");
  for (size_t i = 0; i < r->n_calls; i++) {
    br_split_agg split;
    const json_t *a = r->plain[i] ? r->plain[i] : call_at(r->n, i);
    BR_TRY_GOTO(br_split_aggregate(d, a, r->plain[i] ? &over : &r->child, at, &split, err));
    r->finals[i] = split.final;
    for (size_t p = 0; p < split.n; p++, at++) {
      const char *text = r->plain[i] ? split.partial[p] : r->merges[r->first[i] + p];
      if (!r->plain[i] && of_sets(r)) /* the other sets saw the same rows */
        text = br_arena_printf(d->arena, "%s FILTER (WHERE t.c%zu = %llu)", text, r->n_keys - 1, empty_set(r));
      types[at] = split.types[p];
      br_buf_printf(&before, "%s%s AS c%zu", at ? ", " : "", text, at);
    }
  }
  br_buf_str(&before, " FROM ");
  br_wrap_text(d, out, br_arena_strdup(d->arena, br_buf_cstr(&before)), "");
  columns_are(d, out, types, at, 1);
  br_label_all(d, out, "partial aggregate");
  BR_TRY_GOTO(br_exchange_single(d, out, BR_WHY_FINAL_AGGREGATE, false, err));
done:
  br_buf_free(&before);
  return status;
}

/* Without GROUP BY: are rows of one value together already? */
static br_status together(br_dist *d, const reduction *r, const br_drel *child, bool *out, br_error *err) {
  br_hash_keys key = br_hash_keys_new(d, 1);
  bool ok = false;
  if (!r->n_groups && !of_sets(r) && !r->arguments[0].condition)
    BR_TRY(br_hash_key(d, child, r->arguments[0].value, &key, &ok, err));
  *out = ok && br_clustered_within(child, &key);
  return BR_OK;
}

br_status br_aggregate_distinct(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_status status = BR_OK;
  br_buf partials = {0};
  reduction r;
  bool here = false;
  BR_TRY_GOTO(describe(d, n, out, &r, &partials, err));
  BR_TRY_GOTO(together(d, &r, out, &here, err));
  r.of_rows = r.of_rows && !here;
  if (here) br_open_why(d, out->branches[0].open, "kept clustering %s", br_clustering_text(d, out));
  BR_TRY_GOTO(one_row_a_value(d, &r, out, br_buf_cstr(&partials), err));
  size_t n_keys = r.n_groups ? r.n_groups : r.n_keys;
  br_hash_keys keys = br_hash_keys_new(d, n_keys);
  for (size_t i = 0; i < n_keys && !here; i++) BR_TRY_GOTO(br_hash_key_column(d, out, i, &keys, err));
  const char *why = r.n_groups    ? "group keys"
                    : of_sets(&r) ? "values of each DISTINCT argument"
                                  : "values of the DISTINCT argument";
  if (!here) {
    BR_TRY_GOTO(br_exchange_hash(d, out, &keys, why, err));
    once_more(d, &r, out);
  }
  if (r.n_groups) {
    br_drel before = *out;
    BR_TRY_GOTO(finals(d, &r, out, err));
    out->keys = before.keys;
    out->n_keys = before.n_keys;
    out->aligned = before.aligned;
  } else {
    BR_TRY_GOTO(one_row_a_task(d, &r, out, err));
    BR_TRY_GOTO(finals(d, &r, out, err));
  }
done:
  br_buf_free(&partials);
  br_buf_free(&r.row_columns);
  return status;
}
