/* SPDX-License-Identifier: Apache-2.0
 *
 * br_distribute: the walk over the logical plan, and the operators that stay in their stage (filter, project, unnest,
 * pivot, table functions over rows). Every other operator has its own file. See README.md for how a plan is cut.
 *
 * Threads: none; the result is read-only. Bounds: recursion is as deep as the plan, which its parser limits.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- printing over branches */

static bool reads_twice(const br_open *o, const char *sql) {
  for (size_t i = 0; i < o->n_inputs; i++)
    if (br_count_input(sql, o->inputs[i].number) > 1) return true;
  for (size_t i = 0; i < o->n_steps; i++)
    if (br_count_input(sql, o->steps[i].number) > 1) return true;
  for (size_t i = 0; i < o->n_scans; i++)
    if (br_count_text(sql, o->scans[i].token) > 1) return true;
  return false;
}

/* A child that the emitter prints more than once is named in front, so that its inputs are read once. */
static br_status emit_named(br_dist *d, const br_node *n, br_rel *children, size_t n_children, const char **sql,
                            br_error *err) {
  br_buf b = {0};
  br_rel out;
  for (size_t i = 0; i < n_children; i++) {
    uint32_t name = d->next_number++;
    br_buf_printf(&b, "%sx%u AS MATERIALIZED (%s)", i ? ", " : "WITH ", name, children[i].sql);
    children[i].sql = br_arena_printf(d->arena, "SELECT * FROM x%u", name);
  }
  br_status status = br_emit_node(d->emit, n, children, &out, err);
  if (status == BR_OK) *sql = br_arena_printf(d->arena, "%s SELECT * FROM (%s) t", br_buf_cstr(&b), out.sql);
  br_buf_free(&b);
  return status;
}

static br_status emit_checked(br_dist *d, const br_node *n, br_rel *children, size_t n_children, const br_open *open,
                              const char **sql, br_error *err) {
  br_rel out;
  BR_TRY(br_emit_node(d->emit, n, children, &out, err));
  if (out.n_columns != n->n_columns)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "%s was printed with %zu columns instead of %zu", n->type,
                   out.n_columns, n->n_columns);
  *sql = out.sql;
  return reads_twice(open, out.sql) ? emit_named(d, n, children, n_children, sql, err) : BR_OK;
}

static void take_columns(br_dist *d, br_drel *r, const br_node *n) {
  r->needed = d->needs[n->id];
  r->n_columns = n->n_columns; /* ranges go by the columns of before: who knows the new ones maps them */
  r->binds = n->binds;
  r->types = n->types;
  br_set_rows(r, n->rows);
}

br_status br_emit_over(br_dist *d, const br_node *n, br_drel *r, br_error *err) {
  br_branch *branches = br_arena_alloc(d->arena, r->n_branches * sizeof *branches);
  for (size_t i = 0; i < r->n_branches; i++) {
    br_rel child = br_branch_rel(r, i);
    branches[i] = (br_branch){.open = r->branches[i].open, .plain_read = -1};
    BR_TRY(emit_checked(d, n, &child, 1, branches[i].open, &branches[i].sql, err));
  }
  r->branches = branches;
  take_columns(d, r, n);
  return BR_OK;
}

br_status br_emit_two(br_dist *d, const br_node *n, const br_drel *l, const br_drel *r, br_open *open, br_drel *out,
                      br_error *err) {
  br_rel children[2] = {br_branch_rel(l, 0), br_branch_rel(r, 0)};
  const char *sql;
  BR_TRY(emit_checked(d, n, children, 2, open, &sql, err));
  *out = br_drel_new(d, open, sql, n);
  return BR_OK;
}

void br_wrap_text(br_dist *d, br_drel *r, const char *before, const char *after) {
  br_branch *branches = br_arena_alloc(d->arena, r->n_branches * sizeof *branches);
  for (size_t i = 0; i < r->n_branches; i++) {
    branches[i] = r->branches[i];
    branches[i].sql = br_arena_printf(d->arena, "%s%s t%s", before, br_block(d, r->branches[i].sql), after);
    branches[i].plain_read = -1;
  }
  r->branches = branches;
}

static void drop_json(void *j) { json_decref(j); }

json_t *br_own_type(br_dist *d, json_t *type) {
  br_arena_cleanup(d->arena, drop_json, type);
  return type;
}

void br_label_all(br_dist *d, br_drel *r, const char *label) {
  for (size_t i = 0; i < r->n_branches; i++) br_open_label(d, r->branches[i].open, "%s", label);
}

void br_mark_chance(br_drel *r, bool chance) {
  if (!chance) return;
  for (size_t i = 0; i < r->n_branches; i++) r->branches[i].open->indeterminate = r->branches[i].open->chance = true;
  if (br_is_constant(r)) br_one_task(r, BR_WHY_CONSTANTS); /* each task would see other values */
}

void br_mark_heavy(br_drel *r) {
  for (size_t i = 0; i < r->n_branches; i++) r->branches[i].open->heavy = true;
}

/* ---- operators that stay in their stage */

/* map[i]: which column of the child output column i shows; -1: a new one. */
static int64_t *kept_columns(br_dist *d, const br_node *n, const br_drel *child) {
  int64_t *map = br_arena_alloc(d->arena, (n->n_columns + 1) * sizeof *map);
  size_t own, passed = br_j_count(n->json, "projected_input");
  for (size_t i = 0; i < n->n_columns; i++) map[i] = i < child->n_columns ? (int64_t)i : -1;
  switch (n->kind) {
    case BR_NODE_PROJECTION:
      for (size_t i = 0; i < n->n_columns; i++) {
        map[i] = br_expr_column(br_j_at(n->json, "expressions", i), child);
      }
      break;
    case BR_NODE_FILTER:
    case BR_NODE_ORDER: {
      const char *key = n->kind == BR_NODE_FILTER ? "projection_map" : "projections";
      for (size_t i = 0; i < br_j_count(n->json, key); i++) map[i] = (int64_t)br_json_u64(br_j_at(n->json, key, i));
      break;
    }
    case BR_NODE_PIVOT:
      own = (size_t)br_json_u64(br_j_get(br_j_get(n->json, "bound_pivot"), "group_count"));
      for (size_t i = own; i < n->n_columns; i++) map[i] = -1;
      break;
    case BR_NODE_GET:
      own = n->n_columns - passed;
      for (size_t i = 0; i < n->n_columns; i++)
        map[i] = i < own ? -1 : (int64_t)br_json_u64(br_j_at(n->json, "projected_input", i - own));
      break;
    default: break;
  }
  return map;
}

static bool node_volatile(const br_node *n) {
  return br_volatile(br_j_get(n->json, "expressions")) || br_volatile(br_j_get(n->json, "conditions"));
}

br_status br_stays_over(br_dist *d, const br_node *n, const char *label, br_drel *out, br_error *err) {
  int64_t *map = kept_columns(d, n, out);
  const br_branch *before = out->branches;
  BR_TRY(br_emit_over(d, n, out, err));
  bool by_row = n->kind == BR_NODE_PROJECTION || n->kind == BR_NODE_FILTER || n->kind == BR_NODE_UNNEST;
  for (size_t i = 0; i < out->n_branches && by_row; i++)
    br_keep_sides(out->branches[i].open, before[i].sql, out->branches[i].sql);
  br_map_clustering(d, out, map, n->n_columns);
  br_label_all(d, out, label);
  br_mark_chance(out, node_volatile(n));
  return BR_OK;
}

static br_status stays(br_dist *d, const br_node *n, const char *label, br_drel *out, br_error *err) {
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(br_spread_for_calls(d, n, out, err));
  return br_stays_over(d, n, label, out, err);
}

/* Rows come out of rows, any number of them. */
static br_status unnests(br_dist *d, const br_node *n, const char *label, br_drel *out, br_error *err) {
  BR_TRY(stays(d, n, label, out, err));
  br_mark_heavy(out);
  return BR_OK;
}

static bool row_by_row(const char *function) {
  static const char *const names[] = {"unnest", "range", "generate_series", "json_each", "json_tree"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(function, names[i])) return true;
  return false;
}

static br_status in_out_function(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const char *name = br_j_str(n->json, "name");
  if (row_by_row(name)) return unnests(d, n, name, out, err);
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(br_exchange_single(d, out, BR_WHY_IN_OUT_FUNCTION, out->ordered, err));
  BR_TRY(br_emit_over(d, n, out, err));
  br_label_all(d, out, name);
  return BR_OK;
}

/* Rows of constants: the child is a constant too, or a lateral VALUES over its rows. */
static br_status expression_rows(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(br_emit_over(d, n, out, err));
  br_no_clustering(out);
  br_label_all(d, out, "values");
  br_mark_chance(out, node_volatile(n));
  return BR_OK;
}

static br_status constant(br_dist *d, const br_node *n, const char *label, br_drel *out, br_error *err) {
  br_rel rel;
  br_open *o = br_open_new(d, BR_RULE_NONE);
  BR_TRY(br_emit_node(d->emit, n, NULL, &rel, err));
  *out = br_drel_new(d, o, rel.sql, n);
  br_open_label(d, o, "%s", label);
  return BR_OK;
}

static br_status positional_join(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  return br_region(d, n, BR_WHY_POSITIONAL, out, err);
}

br_status br_walk(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  switch (n->kind) {
    case BR_NODE_GET: return n->n_children ? in_out_function(d, n, out, err) : br_dist_scan(d, n, out, err);
    case BR_NODE_PROJECTION: return br_dist_projection(d, n, out, err);
    case BR_NODE_FILTER: return br_dist_filter(d, n, out, err);
    case BR_NODE_UNNEST: return unnests(d, n, "unnest", out, err);
    case BR_NODE_PIVOT: return stays(d, n, "pivot", out, err);
    case BR_NODE_CALLS: return br_dist_calls(d, n, out, err);
    case BR_NODE_AGGREGATE: return br_dist_aggregate(d, n, out, err);
    case BR_NODE_JOIN:
    case BR_NODE_ANY_JOIN:
    case BR_NODE_ASOF_JOIN:
    case BR_NODE_CROSS: return br_dist_join(d, n, out, err);
    case BR_NODE_DELIM_JOIN: return br_dist_delim_join(d, n, out, err);
    case BR_NODE_POSITIONAL_JOIN: return positional_join(d, n, out, err);
    case BR_NODE_ORDER: return br_dist_order(d, n, out, err);
    case BR_NODE_TOP_N: return br_dist_top_n(d, n, out, err);
    case BR_NODE_LIMIT: return br_dist_limit(d, n, out, err);
    case BR_NODE_SAMPLE: return br_dist_sample(d, n, out, err);
    case BR_NODE_DISTINCT: return br_dist_distinct(d, n, out, err);
    case BR_NODE_WINDOW: return br_dist_window(d, n, out, err);
    case BR_NODE_UNION:
    case BR_NODE_EXCEPT:
    case BR_NODE_INTERSECT: return br_dist_setop(d, n, out, err);
    case BR_NODE_CTE: return br_dist_cte(d, n, out, err);
    case BR_NODE_CTE_REF:
    case BR_NODE_DELIM_GET: return br_dist_reference(d, n, out, err);
    case BR_NODE_RECURSIVE_CTE: return br_dist_recursive(d, n, out, err);
    case BR_NODE_EXPRESSION_GET: return expression_rows(d, n, out, err);
    case BR_NODE_CHUNK_GET: return constant(d, n, "values", out, err);
    case BR_NODE_DUMMY: return constant(d, n, "one row", out, err);
    case BR_NODE_EMPTY: return constant(d, n, "no rows", out, err);
    case BR_NODE_OTHER: break;
  }
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "the operator %s can't be written back as SQL", n->type);
}

/* ---- the whole */

static br_status result_stage(br_dist *d, br_drel *r, br_error *err) {
  br_closing c = {.output = BR_EX_RESULT, .partitions = 1};
  uint32_t id;
  BR_TRY(br_one_branch(d, r, err));
  br_one_task(r, BR_WHY_CONSTANTS);
  return br_close(d, r, 0, &c, &id, err);
}

static br_status check_options(const br_distribute_options *o, br_error *err) {
  if (!o->partitions || o->partitions > (1u << 16))
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "partitions must be between 1 and 65536, not %u", o->partitions);
  return BR_OK;
}

/* One walk; a second one knows what the readers of shared stages wished for in the first. */
static br_status walk_all(br_dist *d, const br_dist *before, br_error *err) {
  br_emit_options emit = {
      .scan = br_scan_callback, .reference = br_reference_callback, .subtree = br_subtree_callback, .arg = d};
  br_drel root;
  d->shared = br_map_new();
  d->emit = br_emit_new(d->arena, &emit);
  d->out = br_arena_alloc(d->arena, sizeof *d->out);
  d->out->arena = d->arena;
  if (before) {
    d->known_wishes = before->wishes;
    d->n_known_wishes = before->n_wishes;
  }
  br_find_needs(d);
  br_status status = br_walk(d, d->plan->root, &root, err);
  if (status == BR_OK) status = result_stage(d, &root, err);
  if (status == BR_OK) br_fuse_stages(d);
  br_map_free(d->shared);
  return status;
}

static bool same_wishes(const br_dist *d) {
  for (size_t i = 0; i < d->n_wishes; i++)
    for (size_t k = i + 1; k < d->n_wishes; k++)
      if (d->wishes[i].source == d->wishes[k].source && d->wishes[i].partitions == d->wishes[k].partitions &&
          !strcmp(d->wishes[i].keys, d->wishes[k].keys))
        return true;
  return false;
}

br_status br_distribute(const br_plan *plan, const br_distribute_options *o, br_stages **out, br_error *err) {
  BR_TRY(check_options(o, err));
  br_arena *arena = br_arena_new();
  br_dist first = {.arena = arena, .plan = plan, .o = o}, second = first, *d = &first;
  br_status status = walk_all(d, NULL, err);
  if (status == BR_OK && same_wishes(d)) {
    d = &second;
    status = walk_all(d, &first, err);
  }
  if (status == BR_UNSUPPORTED) { /* the original text runs as one task */
    d->out->whole_query_reason = br_arena_strdup(arena, err->message);
    d->out->n_stages = 0;
    br_error_clear(err);
    status = BR_OK;
  }
  if (status == BR_OK)
    *out = d->out;
  else
    br_arena_free(arena);
  return status;
}

void br_stages_free(br_stages *s) {
  if (s) br_arena_free(s->arena);
}
