/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows are together in one task: the clustering of a relation (and its ranges), by hash or by the order that its files lie in, followed through renamed,
 * dropped and equal columns, so that an exchange that would change nothing is left out. Threads: none. Bounds: BR_KEY_COLUMNS equal columns
 * are remembered a key; more are forgotten, which costs an exchange and never a row.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static bool integer_cast(const json_t *expr) {
  static const char *const order[] = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"};
  int from = -1, to = -1;
  if (!br_j_is(expr, "expression_class", "BOUND_CAST") || br_j_true(expr, "try_cast")) return false;
  const char *f = br_j_str(br_expr_type(br_j_get(expr, "child")), "id"), *t = br_j_str(br_expr_type(expr), "id");
  for (int i = 0; i < 4; i++) {
    if (!strcmp(f, order[i])) from = i;
    if (!strcmp(t, order[i])) to = i;
  }
  return from >= 0 && from <= to;
}

int64_t br_expr_column(const json_t *expr, const br_drel *r) {
  while (integer_cast(expr)) expr = br_j_get(expr, "child");
  if (br_j_is(expr, "expression_class", "BOUND_REF")) {
    uint64_t at = br_json_u64(br_j_get(expr, "index"));
    return at < r->n_columns ? (int64_t)at : -1;
  }
  if (!br_j_is(expr, "expression_class", "BOUND_COLUMN_REF")) return -1;
  const json_t *b = br_j_get(expr, "binding");
  uint64_t table = br_json_u64(br_j_get(b, "table_index")), column = br_json_u64(br_j_get(b, "column_index"));
  for (size_t i = 0; i < r->n_columns; i++)
    if (r->binds[i].table == table && r->binds[i].column == column) return (int64_t)i;
  return -1;
}

void br_no_ranges(br_drel *r) {
  r->n_ranges = 0;
  r->peers_together = false;
}

void br_no_clustering(br_drel *r) {
  r->n_keys = 0;
  r->aligned = false;
  r->sorted = NULL;
}

/* Ranges by k1, k2, … are ranges by k1 too, but rows that agree in k1 may be in several tasks. */
static void map_ranges(br_dist *d, br_drel *r, const int64_t *map, size_t n) {
  br_drange *ranges = br_arena_alloc(d->arena, (r->n_ranges + 1) * sizeof *ranges);
  for (size_t k = 0; k < r->n_ranges; k++) {
    size_t to = 0;
    while (to < n && map[to] != (int64_t)r->ranges[k].column) to++;
    if (to == n) {
      r->n_ranges = k;
      r->peers_together = false;
      break;
    }
    ranges[k] = r->ranges[k];
    ranges[k].column = (uint32_t)to;
  }
  r->ranges = ranges;
}

void br_map_clustering(br_dist *d, br_drel *r, const int64_t *map, size_t n) {
  br_dkey *keys = br_arena_alloc(d->arena, (r->n_keys + 1) * sizeof *keys);
  map_ranges(d, r, map, n);
  for (size_t k = 0; k < r->n_keys; k++) {
    keys[k].hashed_as = r->keys[k].hashed_as;
    for (size_t i = 0; i < n; i++)
      for (uint32_t c = 0; c < r->keys[k].n; c++)
        if (map[i] == (int64_t)r->keys[k].columns[c] && keys[k].n < BR_KEY_COLUMNS)
          keys[k].columns[keys[k].n++] = (uint32_t)i;
    if (!keys[k].n) {
      br_no_clustering(r);
      return;
    }
  }
  r->keys = keys;
}

void br_set_clustering(br_dist *d, br_drel *r, const br_hash_keys *k, bool aligned) {
  br_no_clustering(r);
  for (size_t i = 0; i < k->n; i++)
    if (k->columns[i] < 0) return;
  r->keys = br_arena_alloc(d->arena, (k->n + 1) * sizeof *r->keys);
  for (size_t i = 0; i < k->n; i++)
    r->keys[i] = (br_dkey){.columns = {(uint32_t)k->columns[i]}, .n = 1, .hashed_as = k->hashed_as[i]};
  r->n_keys = k->n;
  r->aligned = aligned;
}

bool br_key_has(const br_dkey *key, int64_t column, const char *hashed_as) {
  if (column < 0 || strcmp(key->hashed_as, hashed_as) != 0) return false;
  for (uint32_t c = 0; c < key->n; c++)
    if ((int64_t)key->columns[c] == column) return true;
  return false;
}

bool br_is_placed(const br_drel *r) {
  return r->n_keys && r->aligned && r->n_branches == 1 && r->branches[0].open->rule == BR_RULE_PARTITIONS;
}

static br_status add_equal(br_dist *d, br_drel *r, br_dkey *key, int64_t have, int64_t more, br_error *err) {
  const char *hashed_as;
  bool small_int;
  if (!br_key_has(key, have, key->hashed_as) || br_key_has(key, more, key->hashed_as)) return BR_OK;
  BR_TRY(br_hash_type(d, r->types[more], &hashed_as, &small_int, err));
  if (hashed_as && !strcmp(hashed_as, key->hashed_as) && key->n < BR_KEY_COLUMNS)
    key->columns[key->n++] = (uint32_t)more;
  return BR_OK;
}

br_status br_equal_columns(br_dist *d, br_drel *r, int64_t a, int64_t b, br_error *err) {
  if (a < 0 || b < 0 || a == b || !r->n_keys) return BR_OK;
  br_dkey *keys = br_arena_alloc(d->arena, r->n_keys * sizeof *keys);
  memcpy(keys, r->keys, r->n_keys * sizeof *keys);
  r->keys = keys;
  for (size_t k = 0; k < r->n_keys; k++) {
    BR_TRY(add_equal(d, r, &keys[k], a, b, err));
    BR_TRY(add_equal(d, r, &keys[k], b, a, err));
  }
  return BR_OK;
}

void br_rely_on_order(br_open *o) {
  for (size_t i = 0; i < o->n_scans && o->rule == BR_RULE_SPLITS; i++) o->scans[i].cut = o->scans[i].sorted != NULL;
}

bool br_clustered_within(const br_drel *r, const br_hash_keys *k) {
  if (!r->n_keys || r->n_branches != 1) return false;
  for (size_t i = 0; i < r->n_keys; i++) {
    bool found = false;
    for (size_t j = 0; j < k->n; j++) found = found || br_key_has(&r->keys[i], k->columns[j], k->hashed_as[j]);
    if (!found) return false;
  }
  br_rely_on_order(r->branches[0].open);
  return true;
}

const char *br_clustering_text(br_dist *d, const br_drel *r) {
  br_buf b = {0};
  br_buf_str(&b, r->sorted ? "ranges(" : "hash(");
  for (size_t i = 0; i < r->n_keys; i++) br_buf_printf(&b, "%sc%u", i ? ", " : "", r->keys[i].columns[0]);
  br_buf_char(&b, ')');
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}
