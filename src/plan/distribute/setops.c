/* SPDX-License-Identifier: Apache-2.0
 *
 * Set operations. UNION ALL moves nothing: its parts become branches, or one relation when all of them are hashed alike. (A UNION
 * without ALL has its DISTINCT above it in the plan.) EXCEPT and INTERSECT bring equal rows of both sides together: by what
 * one of them is hashed by already, else by all columns.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- what is hashed alike */

/* Are all of them hashed by the same columns, into as many tasks? Then partition i of each makes task i of the whole. *keys: in
 * what they agree. */
static bool alike(br_dist *d, const br_drel *r, size_t n, br_dkey **keys) {
  const br_drel *first = &r[0];
  *keys = br_arena_alloc(d->arena, (first->n_keys + 1) * sizeof **keys);
  for (size_t i = 0; i < n; i++)
    if (!br_is_placed(&r[i]) || r[i].n_keys != first->n_keys ||
        br_partitions_of(d, &r[i]) != br_partitions_of(d, first))
      return false;
  for (size_t k = 0; k < first->n_keys; k++) {
    br_dkey *key = &(*keys)[k];
    *key = (br_dkey){.hashed_as = first->keys[k].hashed_as};
    for (uint32_t c = 0; c < first->keys[k].n; c++) {
      bool in_all = true;
      for (size_t i = 1; i < n; i++)
        in_all = in_all && br_key_has(&r[i].keys[k], first->keys[k].columns[c], key->hashed_as);
      if (in_all) key->columns[key->n++] = first->keys[k].columns[c];
    }
    if (!key->n) return false;
  }
  return true;
}

static void placed_by(br_drel *out, br_dkey *keys, size_t n) {
  out->keys = keys;
  out->n_keys = n;
  out->aligned = true;
}

/* ---- UNION ALL */

static br_status walk_children(br_dist *d, const br_node *n, br_drel *children, br_error *err) {
  for (size_t i = 0; i < n->n_children; i++) BR_TRY(br_walk(d, n->children[i], &children[i], err));
  return BR_OK;
}

static bool all_one(const br_drel *r, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!br_is_one(&r[i])) return false;
  return true;
}

/* Several that each gather rows to aggregate them whole: tasks of their own, at the same time. */
static bool worth_apart(const br_drel *r, size_t n) {
  size_t heavy = 0;
  for (size_t i = 0; i < n; i++) {
    const char *reason = r[i].branches[0].open->reason;
    heavy += reason != NULL && strcmp(reason, BR_WHY_WHOLE_AGGREGATE) == 0;
  }
  return heavy > 1;
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
  br_dkey *keys;
  if (all_one(children, n->n_children) && !worth_apart(children, n->n_children))
    return union_in_place(d, n, children, out, err);
  if (alike(d, children, n->n_children, &keys)) {
    BR_TRY(union_in_place(d, n, children, out, err));
    placed_by(out, keys, children[0].n_keys);
    return BR_OK;
  }
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

/* ---- EXCEPT, INTERSECT */

static br_status all_columns(br_dist *d, const br_drel *r, br_hash_keys *k, br_error *err) {
  *k = br_hash_keys_new(d, r->n_columns);
  for (size_t i = 0; i < r->n_columns; i++) BR_TRY(br_hash_key_column(d, r, i, k, err));
  return BR_OK;
}

/* The other side goes to where the rows of the side that stays are. *met: it could. */
static br_status go_to(br_dist *d, const br_drel *stays, br_drel *moves, bool *met, br_error *err) {
  br_hash_keys keys = br_hash_keys_new(d, stays->n_keys);
  *met = false;
  for (size_t k = 0; k < stays->n_keys; k++) {
    BR_TRY(br_hash_key_column(d, moves, stays->keys[k].columns[0], &keys, err));
    if (strcmp(keys.hashed_as[k], stays->keys[k].hashed_as) != 0) return BR_OK;
  }
  *met = true;
  br_open_why(d, stays->branches[0].open, "kept clustering %s", br_clustering_text(d, stays));
  return br_exchange_hash_into(d, moves, &keys, br_partitions_of(d, stays), "equal rows of both sides meet", err);
}

static br_status bring_together(br_dist *d, br_drel *r, br_error *err) {
  br_dkey *keys;
  br_hash_keys all;
  bool left = br_is_placed(&r[0]), right = br_is_placed(&r[1]), met = false;
  if (left && right && alike(d, r, 2, &keys)) {
    br_open_why(d, r[0].branches[0].open, "kept clustering %s", br_clustering_text(d, &r[0]));
    return BR_OK;
  }
  if (left && right) left = r[0].rows < 0 || r[0].rows >= r[1].rows; /* the larger one stays */
  if (left || right) BR_TRY(go_to(d, &r[left ? 0 : 1], &r[left ? 1 : 0], &met, err));
  for (size_t i = 0; i < 2 && !met; i++) {
    BR_TRY(all_columns(d, &r[i], &all, err));
    BR_TRY(br_exchange_hash(d, &r[i], &all, "equal rows of both sides meet", err));
  }
  return BR_OK;
}

static br_status of_equal_rows(br_dist *d, const br_node *n, br_drel *children, br_drel *out, br_error *err) {
  br_dkey *keys = NULL;
  if (!all_one(children, 2)) {
    br_one_task(&children[0], BR_WHY_CONSTANTS);
    br_one_task(&children[1], BR_WHY_CONSTANTS);
    BR_TRY(bring_together(d, children, err));
  }
  br_open *o = br_open_merge(d, children[0].branches[0].open, children[1].branches[0].open);
  BR_TRY(br_emit_two(d, n, &children[0], &children[1], o, out, err));
  if (alike(d, children, 2, &keys)) placed_by(out, keys, children[0].n_keys);
  br_open_label(d, o, n->kind == BR_NODE_EXCEPT ? "except" : "intersect");
  return BR_OK;
}

br_status br_dist_setop(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_drel *children = br_arena_alloc(d->arena, n->n_children * sizeof *children);
  BR_TRY(walk_children(d, n, children, err));
  if (n->kind == BR_NODE_UNION) return union_all(d, n, children, out, err);
  if (n->n_children != 2)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "%s of %zu inputs", n->type, n->n_children);
  return of_equal_rows(d, n, children, out, err);
}
