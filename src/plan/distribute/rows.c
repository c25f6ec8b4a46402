/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators over whole rows: distinct, sample.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- distinct */

/* Hash keys from a list of expressions; *ok is false if one of them can't be a key. */
static br_status keys_of(br_dist *d, const br_drel *r, const json_t *exprs, br_hash_keys *k, bool *ok, br_error *err) {
  *k = br_hash_keys_new(d, json_array_size(exprs));
  *ok = true;
  for (size_t i = 0; i < json_array_size(exprs) && *ok; i++)
    BR_TRY(br_hash_key(d, r, json_array_get(exprs, i), k, ok, err));
  return BR_OK;
}

/* Whole rows: what makes one of equal ones is marked, for tasks that have next to no equal ones. */
static void mark_distinct(br_dist *d, const br_node *n, const br_drel *child, br_drel *out) {
  if (!br_j_is(n->json, "distinct_type", "DISTINCT") || br_j_count(n->json, "distinct_targets") != child->n_columns)
    return;
  for (size_t i = 0; i < out->n_branches; i++)
    out->branches[i].sql = br_arena_printf(d->arena, "SELECT " BR_GROUPS_BEGIN "DISTINCT " BR_GROUPS_END "* FROM %s t",
                                           br_block(d, child->branches[i].sql));
  br_may_leave_out(out, "");
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
  if (br_is_little(d, out)) br_one_reads(d, out);
  BR_TRY(keys_of(d, out, br_j_get(n->json, "distinct_targets"), &keys, &ok, err));
  if (!br_is_one(out) && br_clustered_within(out, &keys) && ok && keys.n) {
    br_open_why(d, out->branches[0].open, "kept clustering %s", br_clustering_text(d, out));
  } else if (!br_is_one(out)) {
    if (!ordered && d->o->two_step_aggregate) {
      br_drel child = *out;
      BR_TRY(br_emit_over(d, n, out, err));
      mark_distinct(d, n, &child, out);
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

/* ---- sample */

/* A number of rows, not chosen by a seed. */
static bool fixed_rows(const json_t *o, uint64_t *rows) {
  const json_t *size = br_j_get(br_j_get(o, "sample_size"), "value"), *seed = br_j_get(o, "seed");
  if (br_j_true(o, "is_percentage") || !json_is_integer(size) || json_integer_value(size) < 0) return false;
  *rows = (uint64_t)json_integer_value(size);
  return !json_is_integer(seed) || json_integer_value(seed) < 0;
}

/* Each row draws a number, and the smallest ones stay: each task's, then those of all. Every set of rows is as likely as any. */
static br_status draw_rows(br_dist *d, uint64_t rows, br_drel *r, br_error *err) {
  size_t m = r->n_columns;
  json_t **types = br_arena_alloc(d->arena, (m + 1) * sizeof *types);
  br_bind *binds = br_arena_alloc(d->arena, (m + 1) * sizeof *binds);
  bool *needed = br_arena_alloc(d->arena, m + 1);
  br_drel before = *r;
  for (size_t i = 0; i < m; i++) {
    types[i] = r->types[i];
    binds[i] = r->binds[i];
    needed[i] = !r->needed || r->needed[i];
  }
  types[m] = br_own_type(d, json_pack("{s:s, s:n}", "id", "DOUBLE", "type_info"));
  needed[m] = true;
  br_wrap_text(d, r, br_arena_printf(d->arena, "SELECT t.*, random() AS c%zu FROM ", m),
               br_arena_printf(d->arena, " ORDER BY c%zu LIMIT %llu", m, (unsigned long long)rows));
  r->n_columns = m + 1;
  r->types = types;
  r->binds = binds;
  r->needed = needed;
  br_set_rows(r, r->rows >= 0 && r->rows < (double)rows ? r->rows : (double)rows);
  br_label_all(d, r, "rows of each task");
  br_mark_chance(r, true);
  r->ordered = false;
  BR_TRY(br_exchange_single(d, r, BR_WHY_SAMPLE, false, err));
  br_wrap_text(d, r, br_arena_printf(d->arena, "SELECT * EXCLUDE (c%zu) FROM ", m),
               br_arena_printf(d->arena, " ORDER BY t.c%zu LIMIT %llu", m, (unsigned long long)rows));
  r->n_columns = m;
  r->types = before.types;
  r->binds = before.binds;
  r->needed = before.needed;
  br_set_rows(r, r->rows);
  br_label_all(d, r, "sample");
  br_mark_chance(r, true);
  return BR_OK;
}

br_status br_dist_sample(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const json_t *o = br_j_get(n->json, "sample_options");
  uint64_t rows;
  BR_TRY(br_walk(d, n->children[0], out, err));
  if (fixed_rows(o, &rows) && !br_is_one(out)) {
    BR_TRY(draw_rows(d, rows, out, err));
    out->binds = n->binds;
    out->needed = d->needs[n->id];
    return BR_OK;
  }
  if (!br_j_true(o, "is_percentage") || br_j_is(o, "method", "Reservoir"))
    BR_TRY(br_exchange_single(d, out, BR_WHY_SAMPLE, out->ordered, err));
  br_drel child = *out;
  BR_TRY(br_emit_over(d, n, out, err));
  keep_clustering(out, &child);
  br_label_all(d, out, "sample");
  br_mark_chance(out, true);
  return BR_OK;
}
