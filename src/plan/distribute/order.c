/* SPDX-License-Identifier: Apache-2.0
 *
 * Order: sort in one task or by ranges, top-n, limit.
 *
 * A sort by ranges has five stages: A keeps the rows (FORWARD), B samples A's sort keys, C computes partitions - 1 bounds
 * from the samples in one task, D reads A again and places each row by the bounds (RANGE), E sorts each range. Read in
 * partition order, E's outputs are the sorted rows. Sort keys are create_sort_key() blobs, whose byte order is the order.
 *
 * Threads: none. Bounds: sample_rows_per_task.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static const uint32_t sample_rows_per_partition = 100, max_sample_rows_per_task = 20000;

/* ---- sort */

/* create_sort_key(k1, 'ASC NULLS LAST', …) over alias t. Short keys of fixed width would come as BIGINT: a constant BLOB at
 * the end makes all of them BLOBs. */
static br_status sort_key(br_dist *d, const json_t *orders, const br_drel *r, const char **out, br_error *err) {
  br_status status = BR_OK;
  br_buf b = {0};
  br_rel over = br_branch_rel(r, 0);
  br_buf_str(&b, "create_sort_key(");
  for (size_t i = 0; i < json_array_size(orders); i++) {
    const json_t *o = json_array_get(orders, i);
    bool first = strstr(br_j_str(o, "null_order"), "FIRST") != NULL, down = br_j_is(o, "type", "DESCENDING");
    if (i) br_buf_str(&b, ", ");
    BR_TRY_GOTO(br_emit_expr(d->emit, br_j_get(o, "expression"), &over, "t", &b, err));
    br_buf_printf(&b, ", '%s NULLS %s'", down ? "DESC" : "ASC", first ? "FIRST" : "LAST");
  }
  br_buf_str(&b, ", ''::BLOB, 'ASC NULLS LAST')");
  *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
done:
  br_buf_free(&b);
  return status;
}

br_status br_order_text(br_dist *d, const json_t *orders, const br_drel *r, const char *alias, const char **out,
                        br_error *err) {
  br_buf b = {0};
  br_rel over = br_branch_rel(r, 0);
  *out = "";
  if (!json_array_size(orders)) return BR_OK;
  br_status status = br_emit_order_by(d->emit, orders, &over, alias, &b, err);
  if (status == BR_OK) *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return status;
}

static json_t *blob_type(br_dist *d) { return br_own_type(d, json_pack("{s:s, s:n}", "id", "BLOB", "type_info")); }

/* One BLOB column from what is read of r. */
static br_drel keys_only(br_dist *d, const br_drel *r, const char *before, const char *after) {
  br_drel keys = *r;
  json_t **types = br_arena_alloc(d->arena, sizeof *types);
  types[0] = blob_type(d);
  br_wrap_text(d, &keys, before, after);
  keys.n_columns = 1;
  keys.types = types;
  keys.needed = NULL;
  keys.binds = br_arena_alloc(d->arena, sizeof *keys.binds);
  keys.ordered = false;
  br_no_clustering(&keys);
  return keys;
}

/* partitions - 1 bounds out of the sorted samples. Equal ones spread the rows of a heavy key; where equal keys must stay together
 * each bound is there once and just behind its key (no key begins with another), and what is left over is behind every key. */
static const char *bounds_text(br_dist *d, uint32_t n, bool peers_together) {
  const char *cut = br_arena_printf(d->arena, "greatest(1, (q.i * n.n + %u) // %u)", n - 1, n);
  if (!peers_together)
    return br_arena_printf(d->arena,
                           "), n AS (SELECT count(*) AS n FROM s) "
                           "SELECT coalesce(s.c0, ''::BLOB) AS c0 FROM range(1, %u) q(i) CROSS JOIN n "
                           "LEFT JOIN s ON s.r = %s ORDER BY q.i",
                           n, cut);
  return br_arena_printf(
      d->arena,
      "), n AS (SELECT count(*) AS n FROM s), b AS (SELECT x.c0, row_number() OVER (ORDER BY x.c0) AS r FROM "
      "(SELECT DISTINCT s.c0 FROM range(1, %u) q(i) CROSS JOIN n JOIN s ON s.r = %s) x) "
      "SELECT coalesce(b.c0 || '\\x00'::BLOB, '\\xFF\\xFF'::BLOB) AS c0 FROM range(1, %u) q(i) LEFT JOIN b ON b.r = "
      "q.i ORDER BY q.i",
      n, cut, n);
}

/* Stages B and C; *bounds is C. */
static br_status range_bounds(br_dist *d, const br_shared *rows, const char *key, const char *shown,
                              bool peers_together, uint32_t *bounds, br_error *err) {
  uint32_t n = d->o->partitions;
  uint32_t sample = n * sample_rows_per_partition < max_sample_rows_per_task ? n * sample_rows_per_partition
                                                                             : max_sample_rows_per_task;
  br_drel read = br_read_again(d, rows);
  br_drel keys = keys_only(d, &read, br_arena_printf(d->arena, "SELECT %s AS c0 FROM ", key),
                           br_arena_printf(d->arena, " USING SAMPLE reservoir(%u ROWS)", sample));
  br_set_rows(&keys, sample);
  br_label_all(d, &keys, "sample of sort keys");
  br_mark_chance(&keys, true);
  BR_TRY(br_exchange_single(d, &keys, BR_WHY_BOUNDS, false, err));
  br_one_task(&keys, BR_WHY_BOUNDS);
  keys = keys_only(d, &keys, "WITH s AS MATERIALIZED (SELECT t.c0, row_number() OVER (ORDER BY t.c0) AS r FROM ",
                   bounds_text(d, n, peers_together));
  br_label_all(d, &keys, "bounds of the ranges");
  br_set_rows(&keys, n - 1);
  keys.ordered = true;
  br_closing c = {.output = BR_EX_BOUNDS, .partitions = 1, .keys = shown};
  return br_close(d, &keys, 0, &c, bounds, err);
}

/* What is known of the tasks' ranges then: as far as the keys are columns. */
static void set_ranges(br_dist *d, const json_t *orders, bool peers_together, br_drel *r) {
  size_t count = json_array_size(orders);
  br_no_ranges(r);
  r->ranges = br_arena_alloc(d->arena, (count + 1) * sizeof *r->ranges);
  for (size_t i = 0; i < count; i++) {
    const json_t *o = json_array_get(orders, i);
    int64_t column = br_expr_column(br_j_get(o, "expression"), r);
    if (column < 0) return;
    r->ranges[r->n_ranges++] = (br_drange){.column = (uint32_t)column,
                                           .down = br_j_is(o, "type", "DESCENDING"),
                                           .nulls_first = strstr(br_j_str(o, "null_order"), "FIRST") != NULL};
  }
  r->peers_together = peers_together;
}

bool br_ranged_by(const br_drel *r, const json_t *orders, bool peers_together) {
  size_t count = json_array_size(orders), i = 0;
  if (!r->n_ranges || r->n_branches != 1 || !count) return false;
  for (; i < count && i < r->n_ranges; i++) {
    const json_t *o = json_array_get(orders, i);
    const br_drange *k = &r->ranges[i];
    if (br_expr_column(br_j_get(o, "expression"), r) != (int64_t)k->column ||
        br_j_is(o, "type", "DESCENDING") != k->down ||
        (strstr(br_j_str(o, "null_order"), "FIRST") != NULL) != k->nulls_first)
      return false;
  }
  if (i < r->n_ranges)
    return !peers_together; /* fewer keys: their order is there, but equal ones may be in two tasks */
  return r->peers_together || (i == count && !peers_together);
}

br_status br_range_sort(br_dist *d, const json_t *orders, br_drel *r, bool peers_together, br_error *err) {
  const char *key, *shown;
  br_shared rows;
  uint32_t bounds;
  BR_TRY(sort_key(d, orders, r, &key, err));
  BR_TRY(br_order_text(d, orders, r, "t", &shown, err));
  shown = br_without_alias(d, shown);
  BR_TRY(br_share(d, r, "read by the sample and by the range exchange", &rows, err));
  BR_TRY(range_bounds(d, &rows, key, shown, peers_together, &bounds, err));
  *r = br_read_again(d, &rows);
  for (size_t i = 0; i < r->n_branches; i++) {
    br_open_label(d, r->branches[i].open, "place rows by range");
    br_open_input(d, r->branches[i].open, bounds, BR_EX_BOUNDS, true);
  }
  BR_TRY(br_exchange_range(d, r, key, shown, err));
  set_ranges(d, orders, peers_together, r);
  return BR_OK;
}

bool br_sorts_in_one_task(const br_dist *d, const br_drel *r) {
  return br_is_one(r) || d->o->partitions == 1 || (r->rows >= 0 && r->rows < d->o->sort_one_task_rows);
}

br_status br_dist_order(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const json_t *orders = br_j_get(n->json, "orders");
  bool chance = br_volatile(orders);
  BR_TRY(br_walk(d, n->children[0], out, err));
  if (!br_is_one(out) && br_ranged_by(out, orders, false))
    br_open_why(d, out->branches[0].open, "kept ranges");
  else if (br_sorts_in_one_task(d, out))
    BR_TRY(br_exchange_single(d, out, BR_WHY_SMALL_SORT, out->ordered, err));
  else if (chance)
    BR_TRY(br_exchange_single(d, out, BR_WHY_VOLATILE_KEYS, out->ordered, err));
  else
    BR_TRY(br_range_sort(d, orders, out, false, err));
  BR_TRY(br_stays_over(d, n, "", out, err));
  out->ordered = true;
  br_label_all(d, out, "sort");
  br_mark_chance(out, chance);
  return BR_OK;
}

/* ---- top-n and limit */

static uint64_t saturated(uint64_t a, uint64_t b) {
  const uint64_t max = (uint64_t)INT64_MAX;
  return a > max || b > max - a ? max : a + b;
}

br_status br_dist_top_n(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  uint64_t rows = saturated(br_json_u64(br_j_get(n->json, "limit")), br_json_u64(br_j_get(n->json, "offset")));
  const char *order;
  BR_TRY(br_walk(d, n->children[0], out, err));
  if (!br_is_one(out)) {
    const br_branch *before = out->branches;
    BR_TRY(br_order_text(d, br_j_get(n->json, "orders"), out, "t", &order, err));
    br_wrap_text(d, out, "SELECT * FROM ",
                 br_arena_printf(d->arena, " ORDER BY %s LIMIT %llu", order, (unsigned long long)rows));
    for (size_t i = 0; i < out->n_branches; i++) /* the top rows are among those of the parts */
      br_keep_sides(out->branches[i].open, before[i].sql, out->branches[i].sql);
    br_label_all(d, out, "local top-n");
    if (out->rows < 0 || out->rows > (double)rows) br_set_rows(out, (double)rows);
    out->ordered = false;
    br_mark_chance(out, true);
    BR_TRY(br_exchange_single(d, out, BR_WHY_TOP_N, false, err));
  }
  BR_TRY(br_emit_over(d, n, out, err));
  br_no_clustering(out);
  out->ordered = true;
  br_one_task(out, BR_WHY_CONSTANTS);
  br_label_all(d, out, "top-n");
  br_mark_chance(out, true);
  return BR_OK;
}

/* Constant number of rows that are needed at most; false: not known before running. */
static bool constant_rows(const json_t *node, uint64_t *rows, bool *limited) {
  const json_t *l = br_j_get(node, "limit_val"), *o = br_j_get(node, "offset_val");
  *limited = !br_j_is(l, "type", "UNSET");
  if (*limited && !br_j_is(l, "type", "CONSTANT_VALUE")) return false;
  if (!br_j_is(o, "type", "UNSET") && !br_j_is(o, "type", "CONSTANT_VALUE")) return false;
  *rows = saturated(*limited ? br_json_u64(br_j_get(l, "constant_integer")) : 0,
                    br_j_is(o, "type", "UNSET") ? 0 : br_json_u64(br_j_get(o, "constant_integer")));
  return true;
}

/* When so many rows are there, whichever tasks they are from, tasks that have not started need not read anything. Not where a task may
 * give fewer rows when it is made again. Before the limit makes its stages a matter of chance. */
static void stop_at(const br_drel *r, const br_node *limit, uint64_t rows) {
  for (size_t i = 0; i < r->n_branches && !r->ordered; i++) {
    br_open *o = r->branches[i].open;
    if (o->indeterminate) continue;
    o->enough_rows = rows;
    o->enough_of = limit->id;
  }
}

br_status br_dist_limit(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  uint64_t rows = 0;
  bool limited;
  BR_TRY(br_walk(d, n->children[0], out, err));
  bool constant = constant_rows(n->json, &rows, &limited), chance = !out->ordered;
  if (!br_is_one(out)) {
    if (constant && limited) {
      br_wrap_text(d, out, "SELECT * FROM ", br_arena_printf(d->arena, " LIMIT %llu", (unsigned long long)rows));
      br_label_all(d, out, "local limit");
      stop_at(out, n, rows);
      if (out->rows < 0 || out->rows > (double)rows) br_set_rows(out, (double)rows);
      br_mark_chance(out, chance);
    }
    BR_TRY(br_exchange_single(d, out, constant ? BR_WHY_LIMIT : BR_WHY_LIMIT_EXPRESSION, true, err));
  }
  bool ordered = out->ordered;
  BR_TRY(br_emit_over(d, n, out, err));
  br_no_clustering(out);
  out->ordered = ordered;
  br_label_all(d, out, "limit");
  br_mark_chance(out, chance && !br_is_constant(out));
  return BR_OK;
}
