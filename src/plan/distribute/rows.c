/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators over whole rows: set operations, distinct, window, sample. UNION ALL moves nothing: its parts become branches.
 * (A UNION without ALL has its DISTINCT above it in the plan.) EXCEPT and INTERSECT spread both sides by all columns.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- set operations */

static br_status all_columns(br_dist *d, const br_drel *r, br_hash_keys *k, br_error *err) {
  *k = br_hash_keys_new(d, r->n_columns);
  for (size_t i = 0; i < r->n_columns; i++) BR_TRY(br_hash_key_column(d, r, i, k, err));
  return BR_OK;
}

static br_status walk_children(br_dist *d, const br_node *n, br_drel *children, br_error *err) {
  for (size_t i = 0; i < n->n_children; i++) BR_TRY(br_walk(d, n->children[i], &children[i], err));
  return BR_OK;
}

static bool all_one(const br_drel *r, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!br_is_one(&r[i])) return false;
  return true;
}

/* All parts in one task, or all constants: one stage, printed in place. */
static br_status union_in_place(br_dist *d, const br_node *n, const br_drel *children, br_drel *out, br_error *err) {
  br_open *o = children[0].branches[0].open;
  br_buf b = {0};
  (void)err;
  for (size_t i = 0; i < n->n_children; i++) {
    if (i) o = br_open_merge(d, o, children[i].branches[0].open);
    br_buf_printf(&b, "%sSELECT * FROM (%s) t", i ? " UNION ALL " : "", children[i].branches[0].sql);
  }
  *out = br_drel_new(d, o, br_arena_strdup(d->arena, br_buf_cstr(&b)), n);
  br_open_label(d, o, "union all");
  br_buf_free(&b);
  return BR_OK;
}

static br_status union_all(br_dist *d, const br_node *n, br_drel *children, br_drel *out, br_error *err) {
  size_t count = 0;
  double rows = 0;
  if (all_one(children, n->n_children)) return union_in_place(d, n, children, out, err);
  for (size_t i = 0; i < n->n_children; i++) {
    br_one_task(&children[i], BR_WHY_CONSTANTS);
    count += children[i].n_branches;
    rows = rows < 0 || children[i].rows < 0 ? -1 : rows + children[i].rows;
  }
  memset(out, 0, sizeof *out);
  out->branches = br_arena_alloc(d->arena, count * sizeof *out->branches);
  for (size_t i = 0; i < n->n_children; i++)
    for (size_t b = 0; b < children[i].n_branches; b++) out->branches[out->n_branches++] = children[i].branches[b];
  out->n_columns = n->n_columns;
  out->binds = n->binds;
  out->types = n->types;
  out->needed = d->needs[n->id];
  br_set_rows(out, n->rows >= 0 ? n->rows : rows);
  return BR_OK;
}

static br_status by_all_columns(br_dist *d, const br_node *n, br_drel *children, br_drel *out, br_error *err) {
  br_hash_keys keys[2];
  if (!all_one(children, 2))
    for (size_t i = 0; i < 2; i++) {
      BR_TRY(all_columns(d, &children[i], &keys[i], err));
      BR_TRY(br_exchange_hash(d, &children[i], &keys[i], "equal rows of both sides meet", err));
    }
  br_open *o = br_open_merge(d, children[0].branches[0].open, children[1].branches[0].open);
  BR_TRY(br_emit_two(d, n, &children[0], &children[1], o, out, err));
  out->keys = children[0].keys;
  out->n_keys = children[0].n_keys;
  out->aligned = children[0].aligned;
  br_open_label(d, o, n->kind == BR_NODE_EXCEPT ? "except" : "intersect");
  return BR_OK;
}

br_status br_dist_setop(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_drel *children = br_arena_alloc(d->arena, n->n_children * sizeof *children);
  BR_TRY(walk_children(d, n, children, err));
  if (n->kind == BR_NODE_UNION) return union_all(d, n, children, out, err);
  if (n->n_children != 2)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "%s of %zu inputs", n->type, n->n_children);
  return by_all_columns(d, n, children, out, err);
}

/* ---- distinct */

/* Hash keys from a list of expressions; *ok is false if one of them can't be a key. */
static br_status keys_of(br_dist *d, const br_drel *r, const json_t *exprs, br_hash_keys *k, bool *ok, br_error *err) {
  *k = br_hash_keys_new(d, json_array_size(exprs));
  *ok = true;
  for (size_t i = 0; i < json_array_size(exprs) && *ok; i++)
    BR_TRY(br_hash_key(d, r, json_array_get(exprs, i), k, ok, err));
  return BR_OK;
}

static void keep_clustering(br_drel *out, const br_drel *from) {
  out->keys = from->keys;
  out->n_keys = from->n_keys;
  out->aligned = from->aligned;
}

br_status br_dist_distinct(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_hash_keys keys;
  bool ok, plain = br_j_is(n->json, "distinct_type", "DISTINCT"), ordered = br_j_some(n->json, "order_by") != NULL;
  const char *label = plain ? "distinct" : "distinct on";
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(keys_of(d, out, br_j_get(n->json, "distinct_targets"), &keys, &ok, err));
  if (!br_is_one(out) && br_clustered_within(out, &keys) && ok && keys.n) {
    br_open_why(d, out->branches[0].open, "kept clustering %s", br_clustering_text(d, out));
  } else if (!br_is_one(out)) {
    if (!ordered && d->o->two_step_aggregate) {
      br_drel child = *out;
      BR_TRY(br_emit_over(d, n, out, err));
      keep_clustering(out, &child);
      out->needed = child.needed; /* the second step needs what the first did */
      br_label_all(d, out, "local distinct");
    }
    if (ok && keys.n)
      BR_TRY(br_exchange_hash(d, out, &keys, "equal rows meet", err));
    else
      BR_TRY(br_exchange_single(d, out, BR_WHY_VOLATILE_KEYS, out->ordered, err));
  }
  br_drel child = *out;
  BR_TRY(br_emit_over(d, n, out, err));
  keep_clustering(out, &child);
  br_label_all(d, out, label);
  br_mark_chance(out, !plain);
  return BR_OK;
}

/* ---- window */

/* PARTITION BY keys that all windows of the node share. */
static br_status common_partition(br_dist *d, const br_node *n, const br_drel *r, br_hash_keys *k, br_error *err) {
  const json_t *windows = br_j_get(n->json, "expressions");
  const json_t *first = br_j_get(json_array_get(windows, 0), "partitions");
  *k = br_hash_keys_new(d, json_array_size(first));
  for (size_t i = 0; i < json_array_size(first); i++) {
    const json_t *key = json_array_get(first, i);
    bool in_all = true, ok;
    for (size_t w = 1; w < json_array_size(windows); w++) {
      bool found = false;
      for (size_t j = 0; j < br_j_count(json_array_get(windows, w), "partitions"); j++)
        found = found || json_equal(key, br_j_at(json_array_get(windows, w), "partitions", j));
      in_all = in_all && found;
    }
    if (in_all) BR_TRY(br_hash_key(d, r, key, k, &ok, err));
  }
  return BR_OK;
}

br_status br_dist_window(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_hash_keys keys;
  bool chance = false;
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(common_partition(d, n, out, &keys, err));
  if (!br_is_one(out)) {
    if (!keys.n)
      BR_TRY(br_exchange_single(d, out, BR_WHY_WINDOW, true, err)); /* row numbers in the order of the source */
    else if (br_clustered_within(out, &keys))
      br_open_why(d, out->branches[0].open, "kept clustering %s", br_clustering_text(d, out));
    else
      BR_TRY(br_exchange_hash(d, out, &keys, "window PARTITION BY", err));
  }
  br_drel child = *out;
  BR_TRY(br_emit_over(d, n, out, err));
  keep_clustering(out, &child);
  for (size_t w = 0; w < br_j_count(n->json, "expressions"); w++)
    chance = chance || br_chance_window(br_j_at(n->json, "expressions", w));
  out->ordered = false;
  br_label_all(d, out, "window");
  br_mark_chance(out, chance);
  return BR_OK;
}

/* ---- sample */

br_status br_dist_sample(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const json_t *o = br_j_get(n->json, "sample_options");
  BR_TRY(br_walk(d, n->children[0], out, err));
  if (!br_j_true(o, "is_percentage") || br_j_is(o, "method", "Reservoir"))
    BR_TRY(br_exchange_single(d, out, BR_WHY_SAMPLE, out->ordered, err));
  br_drel child = *out;
  BR_TRY(br_emit_over(d, n, out, err));
  keep_clustering(out, &child);
  br_label_all(d, out, "sample");
  br_mark_chance(out, true);
  return BR_OK;
}
