/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregates: in place where the groups are together already; partial → hash(keys) → final where every aggregate splits;
 * else the rows go by hash(keys) whole. Grouping sets carry a set id (GROUPING over all group columns) as one more key, and
 * a set () gets one constant partial row, because it gives a row even without input.
 *
 * Threads: none. Bounds: max_set_columns.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static const size_t max_set_columns = 60; /* bits of a set id */

typedef struct agg {
  const br_node *n;
  size_t n_groups, n_calls;
  const json_t *sets;
  bool grouping_sets; /* more than the one set of all groups */
  bool empty_set;
  br_hash_keys keys; /* of the groups, over the child */
  bool keys_ok;
} agg;

/* ---- grouping sets */

static bool set_has(const json_t *set, size_t group) {
  for (size_t i = 0; i < json_array_size(set); i++)
    if (br_json_u64(json_array_get(set, i)) == group) return true;
  return false;
}

static bool same_set(const json_t *a, const json_t *b, size_t groups) {
  for (size_t g = 0; g < groups; g++)
    if (set_has(a, g) != set_has(b, g)) return false;
  return true;
}

static bool sets_differ(const agg *a) {
  for (size_t i = 0; i < json_array_size(a->sets); i++)
    for (size_t j = i + 1; j < json_array_size(a->sets); j++)
      if (same_set(json_array_get(a->sets, i), json_array_get(a->sets, j), a->n_groups)) return false;
  return true;
}

static bool in_every_set(const agg *a, size_t group) {
  for (size_t i = 0; i < json_array_size(a->sets); i++)
    if (!set_has(json_array_get(a->sets, i), group)) return false;
  return true;
}

static br_status read_node(br_dist *d, const br_node *n, const br_drel *child, agg *a, br_error *err) {
  memset(a, 0, sizeof *a);
  a->n = n;
  a->n_groups = br_j_count(n->json, "groups");
  a->n_calls = br_j_count(n->json, "expressions");
  a->sets = br_j_get(n->json, "grouping_sets");
  a->grouping_sets = json_array_size(a->sets) > 1 ||
                     (json_array_size(a->sets) == 1 && json_array_size(json_array_get(a->sets, 0)) != a->n_groups);
  for (size_t i = 0; i < json_array_size(a->sets); i++)
    a->empty_set = a->empty_set || !json_array_size(json_array_get(a->sets, i));
  a->keys = br_hash_keys_new(d, a->n_groups);
  a->keys_ok = true;
  for (size_t g = 0; g < a->n_groups && a->keys_ok; g++)
    BR_TRY(br_hash_key(d, child, br_j_at(n->json, "groups", g), &a->keys, &a->keys_ok, err));
  return BR_OK;
}

/* ---- in place */

static bool chance(const br_node *n) {
  for (size_t i = 0; i < br_j_count(n->json, "expressions"); i++)
    if (br_chance_aggregate(br_j_at(n->json, "expressions", i))) return true;
  return br_volatile(br_j_get(n->json, "groups"));
}

/* The plan's own node over the child as it lies. */
static br_status aggregate_here(br_dist *d, const agg *a, br_drel *r, br_error *err) {
  int64_t *map = br_arena_alloc(d->arena, (a->n->n_columns + 1) * sizeof *map);
  for (size_t i = 0; i < a->n->n_columns; i++)
    map[i] = i < a->keys.n && (!a->grouping_sets || in_every_set(a, i)) ? a->keys.columns[i] : -1;
  BR_TRY(br_emit_over(d, a->n, r, err));
  br_map_clustering(d, r, map, a->n->n_columns);
  r->ordered = false;
  br_label_all(d, r, "aggregate");
  br_mark_chance(r, chance(a->n));
  return BR_OK;
}

static br_status whole_by_keys(br_dist *d, const agg *a, br_drel *r, const char *why, br_error *err) {
  BR_TRY(br_exchange_hash(d, r, &a->keys, why, err));
  return aggregate_here(d, a, r, err);
}

/* In the order of the tasks: list() and the like then show the order of the source. */
static br_status whole_in_one_task(br_dist *d, const agg *a, br_drel *r, const char *reason, br_error *err) {
  BR_TRY(br_exchange_single(d, r, reason, true, err));
  return aggregate_here(d, a, r, err);
}

/* ---- two steps */

typedef struct two_step {
  size_t n_columns; /* of the partial result */
  json_t **types;
  const char **finals; /* [n_calls] */
  br_buf columns;      /* "sum(t.c1) AS c2, …" after the groups and the set id */
  br_buf row_columns;  /* the same of one row alone */
  bool of_rows;        /* that could be written */
} two_step;

static br_status partial_columns(br_dist *d, const agg *a, const br_drel *child, two_step *s, br_error *err) {
  br_rel over = br_branch_rel(child, 0);
  size_t at = a->n_groups + (a->grouping_sets ? 1 : 0);
  s->types = br_arena_alloc(d->arena, (at + BR_SPLIT_MOST * a->n_calls + 1) * sizeof *s->types);
  s->finals = br_arena_alloc(d->arena, (a->n_calls + 1) * sizeof *s->finals);
  s->of_rows = a->n_groups > 0 && !a->grouping_sets;
  for (size_t g = 0; g < a->n_groups; g++) s->types[g] = a->n->types[g];
  if (a->grouping_sets) s->types[a->n_groups] = br_type_plain("BIGINT");
  for (size_t i = 0; i < a->n_calls; i++) {
    const json_t *call = br_j_at(a->n->json, "expressions", i);
    br_split_agg split;
    BR_TRY(br_split_aggregate(d, call, &over, at, &split, err));
    s->finals[i] = split.final;
    for (size_t p = 0; p < split.n; p++, at++) {
      s->types[at] = split.types[p];
      br_buf_printf(&s->columns, "%s%s AS c%zu", at ? ", " : "", split.partial[p], at);
      if (split.rows[p]) br_buf_printf(&s->row_columns, ", %s AS c%zu", split.rows[p], at);
      s->of_rows = s->of_rows && split.rows[p];
    }
  }
  s->n_columns = at;
  if (!at) { /* neither groups nor calls: one row */
    s->types[0] = br_type_plain("BIGINT");
    br_buf_str(&s->columns, "count(*) AS c0");
    s->n_columns = 1;
  }
  return BR_OK;
}

static void group_list(const agg *a, const json_t *set, br_buf *b) {
  size_t printed = 0;
  for (size_t g = 0; g < a->n_groups; g++)
    if (!set || set_has(set, g)) br_buf_printf(b, "%sg%zu", printed++ ? ", " : "", g);
}

static void group_by(const agg *a, br_buf *b) {
  if (!a->n_groups) return;
  br_buf_str(b, " GROUP BY ");
  if (!a->grouping_sets) {
    group_list(a, NULL, b);
    return;
  }
  br_buf_str(b, "GROUPING SETS (");
  for (size_t i = 0; i < json_array_size(a->sets); i++) {
    br_buf_str(b, i ? ", (" : "(");
    group_list(a, json_array_get(a->sets, i), b);
    br_buf_char(b, ')');
  }
  br_buf_char(b, ')');
}

/* g0 AS c0, …, GROUPING(g0, …) AS cN, <partials> */
static const char *partial_list(br_dist *d, const agg *a, two_step *s, bool of_rows) {
  br_buf b = {0};
  for (size_t g = 0; g < a->n_groups; g++) br_buf_printf(&b, "%sg%zu AS c%zu", g ? ", " : "", g, g);
  if (a->grouping_sets) {
    br_buf_str(&b, ", GROUPING(");
    group_list(a, NULL, &b);
    br_buf_printf(&b, ") AS c%zu", a->n_groups);
  }
  br_buf_str(&b, br_buf_cstr(of_rows ? &s->row_columns : &s->columns));
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* SELECT <list> FROM (SELECT t.*, <groups> FROM (child) t) t GROUP BY …; what makes groups of rows is marked. */
static br_status partial_step(br_dist *d, const agg *a, br_drel *r, two_step *s, br_error *err) {
  br_status status = BR_OK;
  br_rel over = br_branch_rel(r, 0);
  br_buf before = {0}, after = {0};
  BR_TRY_GOTO(partial_columns(d, a, r, s, err));
  const char *begin = s->of_rows ? BR_GROUPS_BEGIN : "", *end = s->of_rows ? BR_GROUPS_END : "";
  br_buf_printf(&before, "SELECT %s%s%s FROM ", begin, partial_list(d, a, s, false), end);
  if (a->n_groups) {
    br_buf_str(&before, "(SELECT t.*");
    for (size_t g = 0; g < a->n_groups; g++) {
      br_buf_str(&before, ", ");
      BR_TRY_GOTO(br_emit_expr(d->emit, br_j_at(a->n->json, "groups", g), &over, "t", &before, err));
      br_buf_printf(&before, " AS g%zu", g);
    }
    br_buf_str(&before, " FROM ");
    br_buf_printf(&after, ") t%s", begin);
    group_by(a, &after);
    br_buf_str(&after, end);
  }
  double rows = r->rows >= 0 && a->n->rows >= 0 && a->n->rows < r->rows ? a->n->rows : r->rows;
  const br_branch *rows_of = r->branches;
  br_wrap_text(d, r, br_arena_strdup(d->arena, br_buf_cstr(&before)), br_arena_strdup(d->arena, br_buf_cstr(&after)));
  for (size_t i = 0; i < r->n_branches; i++) br_keep_sides(r->branches[i].open, rows_of[i].sql, r->branches[i].sql);
  if (s->of_rows) br_may_leave_out(r, partial_list(d, a, s, true));
  r->n_columns = s->n_columns;
  r->types = s->types;
  r->needed = NULL;
  r->binds = br_arena_alloc(d->arena, (s->n_columns + 1) * sizeof *r->binds); /* only own text reads it */
  r->ordered = false;
  br_set_rows(r, a->n_groups ? rows : 1);
  br_no_clustering(r);
  br_label_all(d, r, "partial aggregate");
  br_mark_chance(r, chance(a->n));
done:
  br_buf_free(&before);
  br_buf_free(&after);
  return status;
}

/* A set () gives its row even when no task ran: one more branch with a constant partial row (all counts 0). */
static br_status add_empty_set(br_dist *d, const agg *a, const two_step *s, br_drel *r, br_error *err) {
  br_status status = BR_OK;
  br_buf b = {0}, type = {0};
  br_branch *branches = br_arena_alloc(d->arena, (r->n_branches + 1) * sizeof *branches);
  memcpy(branches, r->branches, r->n_branches * sizeof *branches);
  br_open *o = br_open_new(d, BR_RULE_ONE);
  o->reason = BR_WHY_CONSTANTS;
  br_buf_str(&b, "SELECT ");
  for (size_t i = 0; i < s->n_columns; i++) {
    br_buf_clear(&type);
    BR_TRY_GOTO(br_emit_type(s->types[i], &type, err));
    if (i == a->n_groups)
      br_buf_printf(&b, "%sCAST(%llu AS BIGINT) AS c%zu", i ? ", " : "", (1ull << a->n_groups) - 1, i);
    else
      br_buf_printf(&b, "%sCAST(NULL AS %s) AS c%zu", i ? ", " : "", br_buf_cstr(&type), i);
  }
  branches[r->n_branches] = (br_branch){.open = o, .sql = br_arena_strdup(d->arena, br_buf_cstr(&b)), .plain_read = -1};
  br_open_label(d, o, "the row of the grouping set ()");
  r->branches = branches;
  r->n_branches++;
done:
  br_buf_free(&b);
  br_buf_free(&type);
  return status;
}

/* GROUPING(i, j) out of the set id: the first argument is the highest bit. */
static void grouping_value(const agg *a, const json_t *arguments, br_buf *b) {
  size_t count = json_array_size(arguments);
  br_buf_str(b, "CAST(0");
  for (size_t i = 0; i < count; i++) {
    size_t group = (size_t)br_json_u64(json_array_get(arguments, i));
    br_buf_printf(b, " + ((t.c%zu >> %zu) & 1) * %llu", a->n_groups, a->n_groups - 1 - group, 1ull << (count - 1 - i));
  }
  br_buf_str(b, " AS BIGINT)");
}

static br_status final_step(br_dist *d, const agg *a, const two_step *s, br_drel *r, br_error *err) {
  br_buf before = {0}, after = {0};
  size_t at = 0, keys = a->n_groups + (a->grouping_sets ? 1 : 0);
  br_drel read = *r;
  (void)err;
  br_buf_str(&before, "SELECT ");
  for (size_t g = 0; g < a->n_groups; g++, at++) br_buf_printf(&before, "%st.c%zu AS c%zu", at ? ", " : "", g, at);
  for (size_t i = 0; i < a->n_calls; i++, at++)
    br_buf_printf(&before, "%s%s AS c%zu", at ? ", " : "", s->finals[i], at);
  for (size_t i = 0; i < br_j_count(a->n->json, "grouping_functions"); i++, at++) {
    br_buf_str(&before, at ? ", " : "");
    grouping_value(a, br_j_at(a->n->json, "grouping_functions", i), &before);
    br_buf_printf(&before, " AS c%zu", at);
  }
  br_buf_str(&before, " FROM ");
  for (size_t g = 0; g < keys; g++) br_buf_printf(&after, "%st.c%zu", g ? ", " : " GROUP BY ", g);
  br_wrap_text(d, r, br_arena_strdup(d->arena, br_buf_cstr(&before)), br_arena_strdup(d->arena, br_buf_cstr(&after)));
  r->n_columns = a->n->n_columns;
  r->types = a->n->types;
  r->needed = d->needs[a->n->id];
  r->binds = a->n->binds;
  br_set_rows(r, a->n->rows);
  int64_t *map = br_arena_alloc(d->arena, (r->n_columns + 1) * sizeof *map);
  for (size_t i = 0; i < r->n_columns; i++) map[i] = i < a->n_groups ? (int64_t)i : -1;
  r->keys = read.keys;
  br_map_clustering(d, r, map, r->n_columns);
  br_label_all(d, r, "final aggregate");
  br_mark_chance(r, chance(a->n));
  br_buf_free(&before);
  br_buf_free(&after);
  return BR_OK;
}

static br_status in_two_steps(br_dist *d, const agg *a, br_drel *r, br_error *err) {
  br_status status = BR_OK;
  two_step s = {0};
  size_t n_keys = a->n_groups + (a->grouping_sets ? 1 : 0);
  br_hash_keys keys = br_hash_keys_new(d, n_keys);
  BR_TRY_GOTO(partial_step(d, a, r, &s, err));
  if (a->grouping_sets && a->empty_set) BR_TRY_GOTO(add_empty_set(d, a, &s, r, err));
  for (size_t i = 0; i < n_keys; i++) BR_TRY_GOTO(br_hash_key_column(d, r, i, &keys, err));
  if (n_keys)
    BR_TRY_GOTO(br_exchange_hash(d, r, &keys, "group keys", err));
  else
    BR_TRY_GOTO(br_exchange_single(d, r, BR_WHY_FINAL_AGGREGATE, false, err));
  BR_TRY_GOTO(final_step(d, a, &s, r, err));
done:
  br_buf_free(&s.columns);
  br_buf_free(&s.row_columns);
  return status;
}

/* ---- the choice */

static br_status kept(br_dist *d, const agg *a, br_drel *r, br_error *err) {
  br_open_why(d, r->branches[0].open, "kept clustering %s", br_clustering_text(d, r));
  return aggregate_here(d, a, r, err);
}

static br_status of_sets(br_dist *d, const agg *a, br_drel *r, bool splits, br_error *err) {
  br_hash_keys common = br_hash_keys_new(d, a->n_groups);
  bool ok;
  for (size_t g = 0; g < a->n_groups && a->keys_ok; g++)
    if (in_every_set(a, g)) BR_TRY(br_hash_key(d, r, br_j_at(a->n->json, "groups", g), &common, &ok, err));
  if (common.n && br_clustered_within(r, &common)) return kept(d, a, r, err);
  if (splits && sets_differ(a) && a->n_groups && a->n_groups <= max_set_columns) return in_two_steps(d, a, r, err);
  if (!common.n || !a->keys_ok) return whole_in_one_task(d, a, r, BR_WHY_GROUPING_SETS, err);
  BR_TRY(br_exchange_hash(d, r, &common, "group keys of every set", err));
  return aggregate_here(d, a, r, err);
}

/* Without groups. */
br_status br_aggregate_part(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  agg a;
  BR_TRY(read_node(d, n, out, &a, err));
  if (br_aggregates_split(n, out->ordered)) return in_two_steps(d, &a, out, err);
  if (br_distinct_reduces(n)) return br_aggregate_distinct(d, n, out, err);
  return whole_in_one_task(d, &a, out, BR_WHY_WHOLE_AGGREGATE, err);
}

static br_status without_groups(br_dist *d, const agg *a, br_drel *r, br_error *err) {
  bool done = false;
  if (d->o->two_step_aggregate) BR_TRY(br_aggregate_dealt(d, a->n, r, &done, err));
  return done ? BR_OK : whole_in_one_task(d, a, r, BR_WHY_WHOLE_AGGREGATE, err);
}

br_status br_dist_aggregate(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  agg a;
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(read_node(d, n, out, &a, err));
  if (br_is_little(d, out)) br_one_reads(d, out);
  if (br_is_one(out)) return aggregate_here(d, &a, out, err);
  if (a.n_groups && !a.keys_ok) return whole_in_one_task(d, &a, out, BR_WHY_VOLATILE_KEYS, err);
  if (a.n_groups && !a.grouping_sets && br_clustered_within(out, &a.keys)) return kept(d, &a, out, err);
  bool splits = d->o->two_step_aggregate && br_aggregates_split(n, out->ordered);
  if (a.grouping_sets) return of_sets(d, &a, out, splits, err);
  /* Also when every row looks like a group of its own: without statistics of distinct values (Parquet has none) DuckDB's guess is
   * near that whatever the key, and a needless partial step costs far less than shuffling the rows. */
  if (splits && a.n_groups && br_shares_exchange(d, out, &a.keys, d->o->partitions, true))
    return whole_by_keys(d, &a, out, "group keys", err);
  if (splits) return in_two_steps(d, &a, out, err);
  if (d->o->two_step_aggregate && br_distinct_reduces(n)) return br_aggregate_distinct(d, n, out, err);
  if (!a.n_groups) return without_groups(d, &a, out, err);
  return whole_by_keys(d, &a, out, "groups are computed whole", err);
}
