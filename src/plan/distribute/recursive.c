/* SPDX-License-Identifier: Apache-2.0
 *
 * Recursive CTEs. The rounds run in one task, since each needs all rows of the one before. What doesn't depend on them (the first
 * term, the tables that a round joins with) is computed as any other relation, and comes to that task as inputs, which it keeps
 * for all rounds.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

static bool within(const br_node *n, const br_node *inside) {
  return n->id >= inside->id && n->id < br_subtree_end(inside);
}

/* Everything that the subtree refers to is in it, or outside of the CTE. */
static bool independent(const br_node *cte, const br_node *root, const br_node *n) {
  if (n->source && within(n->source, cte) && (n->source == root || !within(n->source, root))) return false;
  for (size_t i = 0; i < n->n_children; i++)
    if (!independent(cte, root, n->children[i])) return false;
  return true;
}

/* Constants are printed where they stand. */
static bool reads(const br_node *n) {
  if ((n->kind == BR_NODE_GET && !n->n_children) || n->kind == BR_NODE_CTE_REF || n->kind == BR_NODE_DELIM_GET)
    return true;
  for (size_t i = 0; i < n->n_children; i++)
    if (reads(n->children[i])) return true;
  return false;
}

static bool again_each_round(const br_node *n) {
  if (br_node_is_volatile(n)) return true;
  for (size_t i = 0; i < n->n_children; i++)
    if (again_each_round(n->children[i])) return true;
  return false;
}

bool br_recursive_part(const br_node *cte, const br_node *n) {
  return independent(cte, n, n) && reads(n) && !again_each_round(n);
}

typedef struct parts {
  const br_node *cte;
  br_map *texts; /* node id -> "SELECT * FROM x7" */
  br_open *open; /* what they read */
  br_buf with;   /* "x7 AS MATERIALIZED (…), …" */
} parts;

static br_status add_part(br_dist *d, const br_node *n, parts *p, br_error *err) {
  br_drel r;
  BR_TRY(br_walk(d, n, &r, err));
  BR_TRY(br_exchange_single(d, &r, BR_WHY_RECURSIVE, r.ordered, err));
  p->open = p->open ? br_open_merge(d, p->open, r.branches[0].open) : r.branches[0].open;
  uint32_t name = d->next_number++;
  br_buf_printf(&p->with, "%sx%u AS MATERIALIZED (%s)", p->with.len ? ", " : "", name, r.branches[0].sql);
  br_map_put(p->texts, n->id, br_arena_printf(d->arena, "SELECT * FROM x%u", name));
  return BR_OK;
}

static br_status find_parts(br_dist *d, const br_node *n, parts *p, br_error *err) {
  for (size_t i = 0; i < n->n_children; i++) {
    const br_node *c = n->children[i];
    BR_TRY(br_recursive_part(p->cte, c) ? add_part(d, c, p, err) : find_parts(d, c, p, err));
  }
  return BR_OK;
}

br_status br_dist_recursive(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_status status = BR_OK;
  parts p = {.cte = n, .texts = br_map_new()};
  BR_TRY_GOTO(find_parts(d, n, &p, err));
  d->given = p.texts;
  status = br_region(d, n, BR_WHY_RECURSIVE, out, err);
  d->given = NULL;
  if (status != BR_OK || !p.open) goto done;
  br_branch *b = &out->branches[0];
  b->open = br_open_merge(d, b->open, p.open);
  b->sql = br_arena_printf(d->arena, "WITH %s SELECT * FROM %s t", br_buf_cstr(&p.with), br_block(d, b->sql));
done:
  br_map_free(p.texts);
  br_buf_free(&p.with);
  return status;
}

const char *br_subtree_callback(void *arg, const br_node *n) {
  br_dist *d = arg;
  return d->given ? br_map_get(d->given, n->id) : NULL;
}
