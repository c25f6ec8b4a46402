/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows are together in one task: the hash clustering of a relation, followed through renamed, dropped and equal
 * columns, so that an exchange that would change nothing is left out. Threads: none. Bounds: BR_KEY_COLUMNS equal columns
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

void br_no_clustering(br_drel *r) {
  r->n_keys = 0;
  r->aligned = false;
}

void br_map_clustering(br_dist *d, br_drel *r, const int64_t *map, size_t n) {
  br_dkey *keys = br_arena_alloc(d->arena, (r->n_keys + 1) * sizeof *keys);
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

bool br_clustered_within(const br_drel *r, const br_hash_keys *k) {
  if (!r->n_keys || r->n_branches != 1) return false;
  for (size_t i = 0; i < r->n_keys; i++) {
    bool found = false;
    for (size_t j = 0; j < k->n; j++) found = found || br_key_has(&r->keys[i], k->columns[j], k->hashed_as[j]);
    if (!found) return false;
  }
  return true;
}

const char *br_clustering_text(br_dist *d, const br_drel *r) {
  br_buf b = {0};
  br_buf_str(&b, "hash(");
  for (size_t i = 0; i < r->n_keys; i++) br_buf_printf(&b, "%sc%u", i ? ", " : "", r->keys[i].columns[0]);
  br_buf_char(&b, ')');
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}
