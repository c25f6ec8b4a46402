/* SPDX-License-Identifier: Apache-2.0
 *
 * What is computed once and read by several: CTEs, and the side of a DELIM_JOIN with the distinct keys that it feeds to
 * the other side. The definition is closed as stages with FORWARD output; each reader follows their tasks. With a single
 * reader nothing is closed: the definition goes on in its reader's stage.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static size_t count_readers(const br_node *n, const br_node *source) {
  size_t count = n->source == source ? 1 : 0;
  for (size_t i = 0; i < n->n_children; i++) count += count_readers(n->children[i], source);
  return count;
}

/* Make `rel` readable by the references to `source`. */
static br_status publish(br_dist *d, const br_node *source, br_drel *rel, size_t readers, const char *why,
                         br_error *err) {
  br_shared *s = br_arena_alloc(d->arena, sizeof *s);
  if (readers > 1) {
    BR_TRY(br_share(d, rel, why, s, err));
    s->source = source->id + 1;
  } else {
    s->is_inline = true;
    s->rel = *rel;
  }
  br_map_put(d->shared, source->id, s);
  return BR_OK;
}

br_status br_dist_reference(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const br_shared *s = n->source ? br_map_get(d->shared, n->source->id) : NULL;
  if (!s) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "%s is read before its definition", n->type);
  *out = br_read_shared(d, s, n);
  return BR_OK;
}

br_status br_dist_cte(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  size_t readers = count_readers(n->children[1], n);
  br_drel definition;
  if (readers) {
    BR_TRY(br_walk(d, n->children[0], &definition, err));
    BR_TRY(publish(d, n, &definition, readers, "read by several", err));
  }
  return br_walk(d, n->children[1], out, err);
}

/* ---- DELIM_JOIN */

/* The distinct keys of the side, as columns of the DELIM_GETs. */
static br_status delim_keys(br_dist *d, const br_node *n, br_drel *side, br_drel *out, br_error *err) {
  const json_t *columns = br_j_get(n->json, "duplicate_eliminated_columns");
  size_t count = json_array_size(columns);
  br_status status = BR_OK;
  br_buf b = {0};
  json_t **types = br_arena_alloc(d->arena, (count + 1) * sizeof *types);
  br_bind *binds = br_arena_alloc(d->arena, (count + 1) * sizeof *binds); /* a DELIM_GET brings its own */
  br_hash_keys keys = br_hash_keys_new(d, count);
  br_rel over = br_branch_rel(side, 0);
  br_buf_str(&b, "SELECT DISTINCT ");
  for (size_t i = 0; i < count; i++) {
    const json_t *e = json_array_get(columns, i);
    types[i] = br_expr_type(e);
    if (i) br_buf_str(&b, ", ");
    BR_TRY_GOTO(br_emit_expr(d->emit, e, &over, "t", &b, err));
    br_buf_printf(&b, " AS c%zu", i);
  }
  br_buf_str(&b, " FROM ");
  double rows = side->rows;
  *out = *side;
  br_wrap_text(d, out, br_arena_strdup(d->arena, br_buf_cstr(&b)), "");
  out->n_columns = count;
  out->types = types;
  out->needed = NULL;
  out->binds = binds;
  out->ordered = false;
  br_no_clustering(out);
  br_set_rows(out, rows);
  br_label_all(d, out, "distinct keys of the subquery");
  if (!br_is_one(out)) {
    for (size_t i = 0; i < count; i++) BR_TRY_GOTO(br_hash_key_column(d, out, i, &keys, err));
    BR_TRY_GOTO(br_exchange_hash(d, out, &keys, "keys of the subquery", err));
    br_wrap_text(d, out, "SELECT DISTINCT * FROM ", "");
    br_label_all(d, out, "distinct keys of the subquery");
  }
done:
  br_buf_free(&b);
  return status;
}

br_status br_dist_delim_join(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  size_t at = br_delim_side(n);
  const br_node *side_node = n->children[at], *other_node = n->children[1 - at];
  size_t readers = count_readers(other_node, n);
  br_drel sides[2], keys, for_keys;
  br_shared shared;
  BR_TRY(br_walk(d, side_node, &sides[at], err));
  if (readers) {
    BR_TRY(br_share(d, &sides[at], "read by a join and by its subquery", &shared, err));
    for_keys = br_read_shared(d, &shared, side_node);
    BR_TRY(delim_keys(d, n, &for_keys, &keys, err));
    BR_TRY(publish(d, n, &keys, readers, "keys of the subquery, read by several", err));
    sides[at] = br_read_shared(d, &shared, side_node);
  }
  BR_TRY(br_walk(d, other_node, &sides[1 - at], err));
  return br_join(d, n, &sides[0], &sides[1], out, err);
}
