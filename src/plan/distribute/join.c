/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins: in place (constants, both in one task, both in the order of a key), broadcast of a side, both hashed by the equality
 * keys, or one task.
 *
 * A side may be broadcast only if the other side's rows alone decide which rows come out: the preserved side of an outer,
 * semi, anti, mark or single join never is, and a full join has no side that is. A mark join without correlation must know
 * whether the whole right side is empty or holds a NULL, so its right side is always broadcast; correlated ones may be
 * spread by the correlation keys, since the null rule is asked a group at a time.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

#define FEW_LEFT 0.25 /* of the rows that came to a stage, by the estimates */

typedef struct join_kind {
  const char *name;
  bool left_may_broadcast, right_may_broadcast;
  bool left_survives, right_survives; /* equal keys of the output come from this side */
} join_kind;

static const join_kind kinds[] = {{"INNER", true, true, true, true},       {"LEFT", false, true, true, false},
                                  {"RIGHT", true, false, false, true},     {"FULL", false, false, false, false},
                                  {"OUTER", false, false, false, false},   {"SEMI", false, true, true, false},
                                  {"ANTI", false, true, true, false},      {"MARK", false, true, true, false},
                                  {"SINGLE", false, true, true, false},    {"RIGHT_SEMI", true, false, false, true},
                                  {"RIGHT_ANTI", true, false, false, true}};

/* ASOF: the best match of a left row must be looked for on the whole right side, so the left side is never broadcast. */
static const join_kind asof_kinds[] = {{"INNER", false, true, true, true},
                                       {"LEFT", false, true, true, false},
                                       {"RIGHT", false, false, false, true},
                                       {"FULL", false, false, false, false},
                                       {"OUTER", false, false, false, false}};

static const join_kind *find_kind(const join_kind *all, size_t n, const char *type) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(type, all[i].name)) return &all[i];
  return NULL;
}

static const join_kind *kind_of(const br_node *n) {
  const char *type = n->kind == BR_NODE_CROSS ? "INNER" : br_j_str(n->json, "join_type");
  if (n->kind == BR_NODE_ASOF_JOIN) return find_kind(asof_kinds, sizeof asof_kinds / sizeof *asof_kinds, type);
  return find_kind(kinds, sizeof kinds / sizeof *kinds, type);
}

/* The equality keys of both sides, pair by pair. */
typedef struct key_pairs {
  br_hash_keys l, r;
  bool null_matches; /* some pair is IS NOT DISTINCT FROM */
} key_pairs;

static bool usable_comparison(const br_node *n, const json_t *condition, const join_kind *kind) {
  bool not_distinct = br_j_is(condition, "comparison", "COMPARE_NOT_DISTINCT_FROM");
  (void)n;
  if (!strcmp(kind->name, "MARK")) return not_distinct;
  return not_distinct || br_j_is(condition, "comparison", "COMPARE_EQUAL");
}

static br_status find_pairs(br_dist *d, const br_node *n, const join_kind *kind, const br_drel *l, const br_drel *r,
                            key_pairs *out, br_error *err) {
  size_t count = n->kind == BR_NODE_CROSS ? 0 : br_j_count(n->json, "conditions");
  *out = (key_pairs){0};
  out->l = br_hash_keys_new(d, count);
  out->r = br_hash_keys_new(d, count);
  for (size_t i = 0; i < count; i++) {
    const json_t *c = br_j_at(n->json, "conditions", i);
    bool ok = false, also = false;
    size_t at = out->l.n;
    if (!usable_comparison(n, c, kind)) continue;
    if (!br_j_is(c, "comparison", "COMPARE_EQUAL")) out->null_matches = true;
    BR_TRY(br_hash_key(d, l, br_j_get(c, "left"), &out->l, &ok, err));
    if (ok) BR_TRY(br_hash_key(d, r, br_j_get(c, "right"), &out->r, &also, err));
    if (ok && also && !strcmp(out->l.hashed_as[at], out->r.hashed_as[at])) continue;
    out->l.n = out->r.n = at;
  }
  return BR_OK;
}

/* ---- clustering of the output */

static void add_output_columns(br_dkey *key, int64_t column, const br_node *n, const char *map_key, size_t width,
                               size_t first) {
  size_t mapped = n->kind == BR_NODE_CROSS ? 0 : br_j_count(n->json, map_key), count = mapped ? mapped : width;
  for (size_t i = 0; i < count; i++) {
    int64_t from = mapped ? (int64_t)br_json_u64(br_j_at(n->json, map_key, i)) : (int64_t)i;
    if (from == column && key->n < BR_KEY_COLUMNS) key->columns[key->n++] = (uint32_t)(first + i);
  }
}

static size_t left_width(const br_node *n, const join_kind *kind, const br_drel *l) {
  size_t mapped = n->kind == BR_NODE_CROSS ? 0 : br_j_count(n->json, "left_projection_map");
  if (!strncmp(kind->name, "RIGHT_", 6)) return 0;
  return mapped ? mapped : l->n_columns;
}

static bool shows_right(const join_kind *k) {
  return strcmp(k->name, "SEMI") != 0 && strcmp(k->name, "ANTI") != 0 && strcmp(k->name, "MARK") != 0;
}

/* Output clustering from one side's keys (broadcast joins) or from the pairs' keys in hash order (both sides). */
static void output_clustering(br_dist *d, const br_node *n, const join_kind *kind, const br_drel *l, const br_drel *r,
                              const br_dkey *lkeys, const br_dkey *rkeys, size_t n_keys, bool aligned, br_drel *out) {
  br_dkey *keys = br_arena_alloc(d->arena, (n_keys + 1) * sizeof *keys);
  size_t first_right = left_width(n, kind, l);
  br_no_clustering(out);
  for (size_t k = 0; k < n_keys; k++) {
    keys[k].hashed_as = lkeys ? lkeys[k].hashed_as : rkeys[k].hashed_as;
    if (lkeys && first_right)
      for (uint32_t c = 0; c < lkeys[k].n; c++)
        add_output_columns(&keys[k], lkeys[k].columns[c], n, "left_projection_map", l->n_columns, 0);
    if (rkeys && shows_right(kind))
      for (uint32_t c = 0; c < rkeys[k].n; c++)
        add_output_columns(&keys[k], rkeys[k].columns[c], n, "right_projection_map", r->n_columns, first_right);
    if (!keys[k].n) return;
  }
  out->keys = keys;
  out->n_keys = n_keys;
  out->aligned = aligned;
}

/* ---- ways to join */

static const char *label_of(const br_node *n, const join_kind *kind) {
  static const struct {
    const char *name, *label;
  } labels[] = {{"INNER", "join"},
                {"LEFT", "left join"},
                {"RIGHT", "right join"},
                {"FULL", "full join"},
                {"OUTER", "full join"},
                {"SEMI", "semi join"},
                {"ANTI", "anti join"},
                {"MARK", "mark join"},
                {"SINGLE", "single join"},
                {"RIGHT_SEMI", "right semi join"},
                {"RIGHT_ANTI", "right anti join"}};
  if (n->kind == BR_NODE_CROSS) return "cross product";
  if (n->kind == BR_NODE_ASOF_JOIN) return "asof join";
  for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
    if (!strcmp(kind->name, labels[i].name)) return labels[i].label;
  return "join";
}

/* Parts of a side's rows may be joined with all of the other one where that may be broadcast, and where each task that computes
 * it anew here gets the same rows. */
static void keep_sides(br_open *o, const join_kind *kind, const br_drel *l, const br_drel *r, const br_drel *out) {
  const br_open *lo = l->branches[0].open, *ro = r->branches[0].open;
  bool left = lo->sides_of == l->branches[0].sql && kind->right_may_broadcast && !ro->chance;
  bool right = ro->sides_of == r->branches[0].sql && kind->left_may_broadcast && !lo->chance;
  for (size_t i = 0; i < o->n_inputs; i++)
    if (i < lo->n_inputs ? !left : !right) o->inputs[i].side = 0;
  if (left || right) o->sides_of = out->branches[0].sql;
}

static bool has_equality(const br_node *n) {
  for (size_t i = 0; n->kind != BR_NODE_CROSS && i < br_j_count(n->json, "conditions"); i++)
    if (br_j_is(br_j_at(n->json, "conditions", i), "comparison", "COMPARE_EQUAL")) return true;
  return false;
}

static br_status emit_join(br_dist *d, const br_node *n, const join_kind *kind, const br_drel *l, const br_drel *r,
                           const char *how, br_drel *out, br_error *err) {
  br_open *o = br_open_merge(d, l->branches[0].open, r->branches[0].open);
  BR_TRY(br_emit_two(d, n, l, r, o, out, err));
  o->heavy = o->heavy || !has_equality(n);
  keep_sides(o, kind, l, r, out);
  br_open_label(d, o, "%s%s", label_of(n, kind), how);
  br_mark_chance(out, n->kind == BR_NODE_ASOF_JOIN || br_volatile(br_j_get(n->json, "conditions")) ||
                          br_volatile(br_j_get(n->json, "condition")) || br_volatile(br_j_get(n->json, "predicate")));
  return BR_OK;
}

/* One side is in every task (constant or broadcast), or both are in one task. */
static br_status join_here(br_dist *d, const br_node *n, const join_kind *kind, const br_drel *l, const br_drel *r,
                           const char *how, br_drel *out, br_error *err) {
  bool keep_left = br_is_constant(r);
  const br_drel *kept = keep_left ? l : r;
  BR_TRY(emit_join(d, n, kind, l, r, how, out, err));
  if (br_is_constant(l) || br_is_constant(r))
    output_clustering(d, n, kind, l, r, keep_left ? kept->keys : NULL, keep_left ? NULL : kept->keys, kept->n_keys,
                      kept->aligned, out);
  if (out->n_keys) out->sorted = kept->sorted;
  return BR_OK;
}

static br_status join_in_one_task(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r,
                                  const char *reason, br_drel *out, br_error *err) {
  BR_TRY(br_exchange_single(d, l, reason, false, err));
  BR_TRY(br_exchange_single(d, r, reason, false, err));
  return join_here(d, n, kind, l, r, "", out, err);
}

/* DuckDB gives a scan the Bloom filter of a join's build side only if that side has a filter of its own, which an input has not
 * (measured: TPC-H q04 at scale 10 probes 2.7 M rows of lineitem with it and 38 M without). NULL keys find no partner in these
 * joins, so asking for keys that are not NULL changes no answer. */
static void ask_not_null(br_dist *d, const br_node *n, bool right, br_drel *moved) {
  for (size_t i = 0; i < br_j_count(n->json, "conditions") && moved->n_branches == 1; i++) {
    const json_t *c = br_j_at(n->json, "conditions", i);
    int64_t column = br_expr_column(br_j_get(c, right ? "right" : "left"), moved);
    if (!br_j_is(c, "comparison", "COMPARE_EQUAL") || column < 0) continue;
    moved->branches[0].sql = br_arena_printf(d->arena, "SELECT t.*\nFROM %s t\nWHERE (t.c%lld IS NOT NULL)",
                                             br_block(d, moved->branches[0].sql), (long long)column);
    moved->branches[0].plain_read = -1;
    return;
  }
}

/* How the side that each task has comes there. */
typedef enum moved_by { MOVED_CONSTANT, MOVED_READ, MOVED_BROADCAST } moved_by;

static br_status join_part(br_dist *d, const br_node *n, const join_kind *kind, br_drel *part, br_drel *moved,
                           bool right, moved_by by, br_drel *out, br_error *err) {
  static const char *const how[] = {"", " (%s side read)", " (%s side broadcast)"};
  bool unmatched_unseen = !strcmp(kind->name, "INNER") || !strcmp(kind->name, right ? "SEMI" : "RIGHT_SEMI");
  if (by != MOVED_CONSTANT && unmatched_unseen && n->kind != BR_NODE_CROSS && n->kind != BR_NODE_ASOF_JOIN) {
    if (n->kind == BR_NODE_JOIN && by == MOVED_BROADCAST) BR_TRY(br_range_broadcast(d, n, moved, part, right, err));
    ask_not_null(d, n, right, moved);
  }
  return join_here(d, n, kind, right ? part : moved, right ? moved : part,
                   br_arena_printf(d->arena, how[by], right ? "right" : "left"), out, err);
}

/* Each part of a UNION ALL is joined where it is: its rows need not come together for it. */
static br_status join_parts(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r, bool right,
                            moved_by by, br_drel *out, br_error *err) {
  br_drel *moved = right ? r : l, *stays = right ? l : r;
  if (stays->n_branches == 1) return join_part(d, n, kind, stays, moved, right, by, out, err);
  br_branch *joined = br_arena_alloc(d->arena, stays->n_branches * sizeof *joined);
  for (size_t i = 0; i < stays->n_branches; i++) {
    br_drel part = *stays, other = *moved;
    br_branch again = moved->branches[0];
    again.open = br_open_merge(d, again.open, br_open_new(d, BR_RULE_NONE));
    other.branches = &again;
    part.branches = &stays->branches[i];
    part.n_branches = 1;
    BR_TRY(join_part(d, n, kind, &part, &other, right, by, out, err));
    joined[i] = out->branches[0];
  }
  out->branches = joined;
  out->n_branches = stays->n_branches;
  br_no_clustering(out);
  return BR_OK;
}

static br_status broadcast_join(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r, bool right,
                                const char *why, br_drel *out, br_error *err) {
  br_drel *moved = right ? r : l, *stays = right ? l : r;
  moved_by by = MOVED_CONSTANT;
  if (br_is_one(stays)) {
    br_one_task(stays, BR_WHY_CONSTANTS);
    BR_TRY(br_exchange_single(d, moved, stays->branches[0].open->reason, false, err));
    return join_here(d, n, kind, l, r, "", out, err);
  }
  if (!br_is_constant(moved)) by = br_is_little(d, moved) ? MOVED_READ : MOVED_BROADCAST;
  if (by == MOVED_READ) br_each_reads(d, moved);
  if (by == MOVED_BROADCAST) BR_TRY(br_exchange_broadcast(d, moved, why, err));
  return join_parts(d, n, kind, l, r, right, by, out, err);
}

/* The order of pairs in which r is hashed already; false: it isn't. */
static bool hashed_by(const br_drel *r, const br_hash_keys *side, size_t *pairs) {
  if (!br_is_placed(r)) return false;
  for (size_t k = 0; k < r->n_keys; k++) {
    size_t p = 0;
    while (p < side->n && !br_key_has(&r->keys[k], side->columns[p], side->hashed_as[p])) p++;
    if (p == side->n) return false;
    pairs[k] = p;
  }
  return true;
}

static br_hash_keys picked(br_dist *d, const br_hash_keys *k, const size_t *pairs, size_t n) {
  br_hash_keys out = br_hash_keys_new(d, n);
  for (size_t i = 0; i < n; i++) {
    out.texts[i] = k->texts[pairs[i]];
    out.hashed_as[i] = k->hashed_as[pairs[i]];
    out.columns[i] = k->columns[pairs[i]];
  }
  out.n = n;
  return out;
}

static void key_columns(br_dist *d, const br_hash_keys *k, br_dkey **out) {
  *out = br_arena_alloc(d->arena, (k->n + 1) * sizeof **out);
  for (size_t i = 0; i < k->n; i++) {
    (*out)[i].hashed_as = k->hashed_as[i];
    if (k->columns[i] >= 0)
      (*out)[i] = (br_dkey){.columns = {(uint32_t)k->columns[i]}, .n = 1, .hashed_as = k->hashed_as[i]};
  }
}

/* Equal columns of a side that was clustered already join the key's own. */
static void more_columns(br_dkey *keys, size_t n, const br_drel *r) {
  for (size_t i = 0; i < n && n == r->n_keys; i++)
    for (uint32_t c = 0; c < r->keys[i].n; c++) {
      bool there = false;
      for (uint32_t x = 0; x < keys[i].n; x++) there = there || keys[i].columns[x] == r->keys[i].columns[c];
      if (!there && keys[i].n < BR_KEY_COLUMNS) keys[i].columns[keys[i].n++] = r->keys[i].columns[c];
    }
}

/* partitions: as many as the other side has, which stays where it is; 0: it does not. */
static br_status exchange_unless(br_dist *d, br_drel *r, const br_hash_keys *k, bool elided, uint32_t partitions,
                                 br_error *err) {
  if (!elided) return br_exchange_hash_into(d, r, k, partitions ? partitions : d->o->partitions, "join keys", err);
  br_open_why(d, r->branches[0].open, "kept clustering %s", br_clustering_text(d, r));
  return BR_OK;
}

/* ---- both sides change place */

/* Do rows of that side without a partner go unseen? Then it may be filtered, if by the estimates the other side is not the
 * larger one. What is done is decided with the true sizes. */
static bool may_filter(const br_dist *d, const join_kind *kind, bool left, const br_drel *r, const br_drel *other) {
  bool unseen = left ? kind->left_may_broadcast || !strcmp(kind->name, "SEMI")
                     : kind->right_may_broadcast || !strcmp(kind->name, "RIGHT_SEMI");
  return d->o->run_time_filters && unseen && (r->rows < 0 || other->rows < 0 || other->rows <= r->rows);
}

/* Rows of r may be joined where they are made, once the other side has turned out small (stage/fold.c): so r's stage waits for it, if by
 * the estimates it is not the larger one. */
static bool may_wait(const br_dist *d, bool other_may_broadcast, const br_drel *r, const br_drel *other) {
  return d->o->joins_in_place && other_may_broadcast && r->n_branches == 1 && !br_is_one(r) &&
         (r->rows < 0 || other->rows < 0 || other->rows <= r->rows);
}

/* `other` reads hash exchanges. */
static void add_waits(br_dist *d, br_drel *r, const br_drel *other) {
  const br_open *from = other->branches[0].open;
  br_open *o = r->branches[0].open;
  bool indeterminate = o->indeterminate; /* none of its rows come from there */
  for (size_t i = 0; i < o->n_inputs; i++)
    if (o->inputs[i].kind == BR_EX_FILTER) return; /* it waits for that */
  for (size_t i = 0; i < from->n_inputs; i++)
    if (from->inputs[i].kind == BR_EX_HASH) br_open_input(d, o, from->inputs[i].producer, BR_EX_WAIT, false);
  o->indeterminate = indeterminate;
}

/* Both sides are the same rows and go by the same keys: one stage for both, of what either needs. */
static bool same_exchange(br_dist *d, br_drel *l, br_drel *r, const br_hash_keys *lk, const br_hash_keys *rk) {
  if (!br_same_work(d, l, r) || lk->n != rk->n) return false;
  for (size_t i = 0; i < lk->n; i++)
    if (strcmp(lk->texts[i], rk->texts[i]) != 0) return false;
  bool *both = br_arena_alloc(d->arena, l->n_columns + 1);
  for (size_t i = 0; i < l->n_columns; i++) both[i] = !l->needed || !r->needed || l->needed[i] || r->needed[i];
  l->needed = r->needed = both;
  return true;
}

/* The sides that are not hashed already change place. The side whose keys may drop rows of the other goes first. */
static br_status exchange_sides(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r,
                                const br_hash_keys *lk, const br_hash_keys *rk, bool left, bool right,
                                bool null_matches, br_error *err) {
  uint32_t as = left ? br_partitions_of(d, l) : right ? br_partitions_of(d, r) : 0, into = as ? as : d->o->partitions;
  bool twins = !left && !right && same_exchange(d, l, r, lk, rk);
  bool share_left = twins || (!left && br_shares_exchange(d, l, lk, into, false));
  bool share_right = twins || (!right && br_shares_exchange(d, r, rk, into, false));
  bool filter_left = !left && !share_left && !null_matches && may_filter(d, kind, true, l, r);
  bool filter_right = !right && !share_right && !filter_left && !null_matches && may_filter(d, kind, false, r, l);
  bool wait_left = !left && !share_left && !filter_right && may_wait(d, kind->right_may_broadcast, l, r);
  bool wait_right = !right && !share_right && !filter_left && !wait_left && may_wait(d, kind->left_may_broadcast, r, l);
  if (filter_left || wait_left) {
    BR_TRY(exchange_unless(d, r, rk, right, as, err));
    if (filter_left) br_add_filter(d, l, n->children[0], lk, r);
    if (wait_left) add_waits(d, l, r);
    return exchange_unless(d, l, lk, left, as, err);
  }
  BR_TRY(exchange_unless(d, l, lk, left, as, err));
  if (filter_right) br_add_filter(d, r, n->children[1], rk, l);
  if (wait_right) add_waits(d, r, l);
  return exchange_unless(d, r, rk, right, as, err);
}

/* Rows without a partner that don't show may be left out where they are read. */
static void mark_null_keys(const br_drel *r, bool unseen) {
  br_open *o = r->branches[0].open;
  for (size_t i = 0; i < o->n_inputs && unseen; i++)
    if (o->inputs[i].kind == BR_EX_HASH) o->inputs[i].null_keys_go = true;
}

/* If this side's rows show beside the other's alone, a stage of these two has none once the other one is empty. */
static void mark_beside(const br_drel *r, bool beside) {
  br_open *o = r->branches[0].open;
  for (size_t i = 0; i < o->n_inputs && beside; i++)
    if (o->inputs[i].kind == BR_EX_HASH) o->inputs[i].beside_others = true;
}

/* A side that is hashed already may stay where it is. But if its stage leaves few of the rows that came there (HAVING), moving those once
 * more costs little, and their keys can drop rows of the other side before these move (measured: TPC-H q18, 624 of 15 M groups). */
static bool better_moved(const br_dist *d, const join_kind *kind, bool left, const br_drel *placed,
                         const br_drel *other, const key_pairs *pairs) {
  const br_open *o = placed->branches[0].open;
  if (pairs->null_matches || o->n_key_at == 0 || placed->rows < 0 || other->rows < 0) return false;
  return placed->rows <= d->out->stages[o->key_producer].rows * FEW_LEFT && may_filter(d, kind, !left, other, placed);
}

static br_status hash_join(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r,
                           const key_pairs *pairs, br_drel *out, br_error *err) {
  size_t *lp = br_arena_alloc(d->arena, (pairs->l.n + l->n_keys + 1) * sizeof *lp);
  size_t *rp = br_arena_alloc(d->arena, (pairs->l.n + r->n_keys + 1) * sizeof *rp);
  bool left = hashed_by(l, &pairs->l, lp), right = hashed_by(r, &pairs->r, rp);
  size_t count = left ? l->n_keys : right ? r->n_keys : pairs->l.n, *order = left ? lp : rp;
  if (left && right &&
      (l->n_keys != r->n_keys || memcmp(lp, rp, l->n_keys * sizeof *lp) != 0 ||
       br_partitions_of(d, l) != br_partitions_of(d, r))) {
    right = l->rows >= 0 && r->rows > l->rows; /* keep the larger side where it is */
    left = !right;
    order = left ? lp : rp;
    count = left ? l->n_keys : r->n_keys;
  }
  if (!left && !right)
    for (size_t i = 0; i < count; i++) order[i] = i;
  if (left && !right && better_moved(d, kind, true, l, r, pairs)) left = false;
  if (right && !left && better_moved(d, kind, false, r, l, pairs)) right = false;
  br_hash_keys lk = picked(d, &pairs->l, order, count), rk = picked(d, &pairs->r, order, count);
  BR_TRY(exchange_sides(d, n, kind, l, r, &lk, &rk, left, right, pairs->null_matches, err));
  bool inner = !strcmp(kind->name, "INNER") && !pairs->null_matches;
  mark_null_keys(l, !left && (inner || (!strcmp(kind->name, "RIGHT_SEMI") && !pairs->null_matches)));
  mark_null_keys(r, !right && (inner || (!strcmp(kind->name, "SEMI") && !pairs->null_matches)));
  mark_beside(l, !left && !right && (kind->right_survives || !strcmp(kind->name, "SEMI")));
  mark_beside(r, !left && !right && (kind->left_survives || !strcmp(kind->name, "RIGHT_SEMI")));
  br_dkey *lkeys, *rkeys;
  key_columns(d, &lk, &lkeys);
  key_columns(d, &rk, &rkeys);
  if (left) more_columns(lkeys, count, l);
  if (right) more_columns(rkeys, count, r);
  BR_TRY(emit_join(d, n, kind, l, r, "", out, err));
  if (kind->left_survives || kind->right_survives)
    output_clustering(d, n, kind, l, r, kind->left_survives ? lkeys : NULL, kind->right_survives ? rkeys : NULL, count,
                      true, out);
  return BR_OK;
}

/* Are the partners in one task already, of as many? Then nothing moves, however small a side is. */
static bool meet_already(br_dist *d, const br_drel *l, const br_drel *r, const key_pairs *pairs) {
  size_t *lp = br_arena_alloc(d->arena, (l->n_keys + 1) * sizeof *lp);
  size_t *rp = br_arena_alloc(d->arena, (r->n_keys + 1) * sizeof *rp);
  return hashed_by(l, &pairs->l, lp) && hashed_by(r, &pairs->r, rp) && l->n_keys == r->n_keys &&
         memcmp(lp, rp, l->n_keys * sizeof *lp) == 0 && br_partitions_of(d, l) == br_partitions_of(d, r);
}

/* ---- both sides lie in the order of a key: nothing changes place, the scans are cut at the same values */

/* About how many of a scan's rows have smaller values. */
static double share_below(const br_sorted_column *c, int64_t value) {
  size_t k = 0;
  while (k < BR_SORTED_POINTS && c->at[k + 1] <= value) k++;
  if (k == BR_SORTED_POINTS || value <= c->at[0]) return k == BR_SORTED_POINTS;
  double width = (double)c->at[k + 1] - (double)c->at[k], part = (double)value - (double)c->at[k];
  return ((double)k + (width > 0 ? part / width : 0)) / BR_SORTED_POINTS;
}

/* If `lead` is cut in even parts, is no task left with much more than the others? */
static bool lie_alike(const br_sorted_column *lead, const br_sorted_column *other) {
  enum { parts = 8 };
  double even = (lead->rows + other->rows) / parts, before = 0;
  for (size_t k = 1; k <= parts; k++) {
    double below = k == parts ? 1 : share_below(other, lead->at[k * BR_SORTED_POINTS / parts]);
    if (lead->rows / parts + other->rows * (below - before) > 2 * even) return false;
    before = below;
  }
  return true;
}

static bool leads(const br_drel *l, const br_drel *r) { return l->sorted->rows >= r->sorted->rows; }

static bool meet_in_order(const br_drel *l, const br_drel *r, const key_pairs *pairs) {
  if (l->sorted->date != r->sorted->date || l->n_branches != 1 || r->n_branches != 1) return false;
  const br_drel *first = leads(l, r) ? l : r, *second = leads(l, r) ? r : l;
  bool found = false;
  for (size_t i = 0; i < pairs->l.n; i++)
    found = found || (br_key_has(&l->keys[0], pairs->l.columns[i], pairs->l.hashed_as[i]) &&
                      br_key_has(&r->keys[0], pairs->r.columns[i], pairs->r.hashed_as[i]));
  return found && lie_alike(first->sorted, second->sorted);
}

static br_status join_in_order(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r,
                               br_drel *out, br_error *err) {
  br_open *lo = l->branches[0].open, *ro = r->branches[0].open;
  int lead = leads(l, r) ? lo->split_scan : (int)lo->n_scans + ro->split_scan;
  br_rely_on_order(lo);
  br_rely_on_order(ro);
  BR_TRY(emit_join(d, n, kind, l, r, " (in order)", out, err));
  out->branches[0].open->split_scan = lead;
  br_open_why(d, out->branches[0].open, "kept clustering %s", br_clustering_text(d, leads(l, r) ? l : r));
  if (!kind->left_survives && !kind->right_survives) return BR_OK;
  output_clustering(d, n, kind, l, r, kind->left_survives ? l->keys : NULL, kind->right_survives ? r->keys : NULL, 1,
                    false, out);
  if (out->n_keys) out->sorted = leads(l, r) ? l->sorted : r->sorted;
  return BR_OK;
}

/* ---- the choice */

static bool small(const br_dist *d, const br_drel *r) { return r->bytes >= 0 && r->bytes < d->o->broadcast_bytes; }

/* Which side to broadcast because the query asks for it: 1 right, 0 left, -1 none. */
static int asked_side(const br_node *n, const join_kind *kind) {
  if (n->n_children < 2) return -1;
  if (kind->right_may_broadcast && br_asks_broadcast(n->children[1])) return 1;
  return kind->left_may_broadcast && br_asks_broadcast(n->children[0]) ? 0 : -1;
}

/* Which side to broadcast because it is small: 1 right, 0 left, -1 none. */
static int small_side(const br_dist *d, const join_kind *kind, const br_drel *l, const br_drel *r) {
  bool left = kind->left_may_broadcast && small(d, l), right = kind->right_may_broadcast && small(d, r);
  if (left && right) {
    if (br_is_one(l) != br_is_one(r)) return br_is_one(r); /* what is spread stays spread */
    return r->bytes <= l->bytes;
  }
  return right ? 1 : left ? 0 : -1;
}

/* Sent to all tasks, r is less than one of these has of the other side: then nothing else need move. */
#define LITTLE_BESIDE "much smaller than the other side"
static bool little_beside(const br_dist *d, const br_drel *r, const br_drel *other) {
  return r->bytes >= 0 && other->bytes >= 0 && r->bytes * d->o->partitions < other->bytes;
}

static br_status join_without_keys(br_dist *d, const br_node *n, const join_kind *kind, br_drel *l, br_drel *r,
                                   br_drel *out, br_error *err) {
  bool right = kind->right_may_broadcast, spans;
  br_span span;
  if (br_asof_ranges(n)) {
    if (little_beside(d, r, l)) return broadcast_join(d, n, kind, l, r, true, LITTLE_BESIDE, out, err);
    return br_asof_by_ranges(d, n, l, r, out, err);
  }
  if (n->kind != BR_NODE_ASOF_JOIN && (!strcmp(kind->name, "FULL") || !strcmp(kind->name, "OUTER")))
    return br_full_join(d, n, l, r, out, err);
  BR_TRY(br_find_span(d, n, l, r, &span, &spans, err));
  if (spans && little_beside(d, span.points_left ? r : l, span.points_left ? l : r))
    return broadcast_join(d, n, kind, l, r, span.points_left, LITTLE_BESIDE, out, err);
  if (spans) return br_join_spans(d, n, &span, l, r, out, err);
  if (n->kind == BR_NODE_ASOF_JOIN || (!kind->left_may_broadcast && !kind->right_may_broadcast))
    return join_in_one_task(d, n, kind, l, r, BR_WHY_NO_EQUALITY, out, err);
  if (kind->left_may_broadcast && right) {
    if (br_is_one(l) != br_is_one(r))
      right = br_is_one(r);
    else
      right = l->bytes < 0 || (r->bytes >= 0 && r->bytes <= l->bytes);
  }
  return broadcast_join(d, n, kind, l, r, right, "no equality to spread by", out, err);
}

br_status br_join(br_dist *d, const br_node *n, br_drel *l, br_drel *r, br_drel *out, br_error *err) {
  const join_kind *kind = kind_of(n);
  key_pairs pairs;
  if (!kind) return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "join type %s", br_j_str(n->json, "join_type"));
  if (br_is_one(l) && br_is_one(r)) return join_here(d, n, kind, l, r, "", out, err);
  if ((br_is_constant(r) && kind->right_may_broadcast) || (br_is_constant(l) && kind->left_may_broadcast)) {
    return join_parts(d, n, kind, l, r, br_is_constant(r), MOVED_CONSTANT, out, err);
  }
  br_one_task(l, BR_WHY_CONSTANTS);
  br_one_task(r, BR_WHY_CONSTANTS);
  int asked = asked_side(n, kind), side = asked >= 0 ? asked : small_side(d, kind, l, r);
  if (l->aligned && r->aligned) {
    BR_TRY(find_pairs(d, n, kind, l, r, &pairs, err));
    if (pairs.l.n && meet_already(d, l, r, &pairs)) return hash_join(d, n, kind, l, r, &pairs, out, err);
  }
  if (l->sorted && r->sorted && asked < 0) {
    BR_TRY(find_pairs(d, n, kind, l, r, &pairs, err));
    if (meet_in_order(l, r, &pairs)) return join_in_order(d, n, kind, l, r, out, err);
  }
  if (side >= 0) return broadcast_join(d, n, kind, l, r, side, asked >= 0 ? "asked for" : "small side", out, err);
  BR_TRY(find_pairs(d, n, kind, l, r, &pairs, err));
  if (pairs.l.n) return hash_join(d, n, kind, l, r, &pairs, out, err);
  return join_without_keys(d, n, kind, l, r, out, err);
}

br_status br_dist_join(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_drel l, r;
  BR_TRY(br_walk(d, n->children[0], &l, err));
  BR_TRY(br_walk(d, n->children[1], &r, err));
  return br_join(d, n, &l, &r, out, err);
}
