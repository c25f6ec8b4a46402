/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls: one node, a whole tree, and the pieces that distribute/ asks for. br_emit keeps the numbering of
 * scans and lambda parameters over all calls, so that texts of one query can be put together.
 *
 * Threads: a br_emit belongs to one thread.
 */
#include "plan/decompile/emit.h"

br_emit *br_emit_new(br_arena *arena, const br_emit_options *o) {
  br_emit *e = br_arena_alloc(arena, sizeof *e);
  e->arena = arena;
  if (o) e->options = *o;
  return e;
}

static void begin(br_emit *e, br_error *err) {
  e->status = BR_OK;
  e->err = err;
}

static br_rel relation(const br_node *n, const char *sql) {
  return (br_rel){.sql = sql, .n_columns = n->n_columns, .binds = n->binds, .types = n->types};
}

br_status br_emit_node(br_emit *e, const br_node *node, const br_rel *children, br_rel *out, br_error *err) {
  begin(e, err);
  *out = relation(node, br_e_node(e, node, children));
  return e->status;
}

static br_rel tree(br_emit *e, const br_node *n);

/* The delim side is evaluated once; its distinct keys feed the DELIM_GETs below the other side. */
static const char *delim_join(br_emit *e, const br_node *n) {
  size_t at = br_delim_side(n);
  br_rel children[2];
  br_texts with = {0};
  const char *side = br_e_fmt(e, "side%u", n->id), *delim = br_e_fmt(e, "delim%u", n->id);
  children[at] = tree(e, n->children[at]);
  children[1 - at] = tree(e, n->children[1 - at]);
  br_env env = br_e_env(e, &children[at], "t");
  br_texts keys = br_e_exprs(e, br_j_get(n->json, "duplicate_eliminated_columns"), &env);
  if (!keys.n) br_e_corrupt(e, "a DELIM_JOIN without keys");
  br_e_add(e, &with, br_e_materialized(e, side, children[at].sql));
  br_e_add(e, &with,
           br_e_materialized(e, delim, br_e_fmt(e, "SELECT DISTINCT %s FROM %s t", br_e_columns(e, &keys), side)));
  const char *other = br_e_from(e, children[1 - at].sql);
  const char *text = br_e_join_node(e, n, children, at ? other : side, at ? side : other, &with);
  return br_e_with(e, &with, text);
}

static br_rel tree(br_emit *e, const br_node *n) {
  const char *given = e->options.subtree ? e->options.subtree(e->options.arg, n) : NULL;
  if (given) return relation(n, given);
  if (n->kind == BR_NODE_DELIM_JOIN) return relation(n, delim_join(e, n));
  br_rel *children = br_arena_alloc(e->arena, (n->n_children + 1) * sizeof *children);
  for (size_t i = 0; i < n->n_children; i++) children[i] = tree(e, n->children[i]);
  return relation(n, e->status == BR_OK ? br_e_node(e, n, children) : "");
}

br_status br_emit_tree(br_emit *e, const br_node *node, br_rel *out, br_error *err) {
  begin(e, err);
  *out = tree(e, node);
  return e->status;
}

static br_status add(br_emit *e, const char *text, br_buf *out) {
  if (e->status == BR_OK) br_buf_str(out, text);
  return e->status;
}

br_status br_emit_expr(br_emit *e, const json_t *expr, const br_rel *over, const char *alias, br_buf *out,
                       br_error *err) {
  begin(e, err);
  br_env env = br_e_env(e, over, alias);
  return add(e, br_e_expr(e, expr, &env), out);
}

br_status br_emit_order_by(br_emit *e, const json_t *orders, const br_rel *over, const char *alias, br_buf *out,
                           br_error *err) {
  begin(e, err);
  br_env env = br_e_env(e, over, alias);
  return add(e, br_e_orders(e, orders, &env), out);
}

br_status br_emit_aggregate(br_emit *e, const json_t *aggregate, const br_rel *over, const char *alias, br_buf *out,
                            br_error *err) {
  begin(e, err);
  br_env env = br_e_env(e, over, alias);
  return add(e, br_e_aggregate(e, aggregate, &env, false), out);
}

br_status br_emit_window(br_emit *e, const json_t *window, const br_rel *over, const char *alias, br_buf *out,
                         br_error *err) {
  begin(e, err);
  br_env env = br_e_env(e, over, alias);
  return add(e, br_e_window(e, window, &env), out);
}

br_status br_emit_type(const json_t *type, br_buf *out, br_error *err) {
  br_arena *a = br_arena_new();
  br_emit e = {.arena = a, .err = err};
  br_status status = add(&e, br_e_type(&e, type), out);
  br_arena_free(a);
  return status;
}

br_status br_emit_constant(const json_t *value, br_buf *out, br_error *err) {
  br_arena *a = br_arena_new();
  br_emit e = {.arena = a, .err = err};
  br_status status = add(&e, br_e_constant(&e, value, NULL), out);
  br_arena_free(a);
  return status;
}
