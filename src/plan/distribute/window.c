/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows. Those that share PARTITION BY keys are computed together, after an exchange by these keys; a node whose windows share none
 * is taken apart, one group after the other. Windows without PARTITION BY are computed in two steps (window_steps.c) or by ranges with
 * copies (window_band.c) where they can be, else all rows go to one task.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* How windows without PARTITION BY are computed. */
typedef enum way {
  WAY_STEPS,  /* window_steps.c; also where all rows are in one task anyway */
  WAY_BY_KEY, /* window_band.c, of each kind by itself */
  WAY_BY_GROUP,
  WAY_BY_ROW
} way;

typedef struct group {
  size_t *which; /* windows of the node */
  size_t n;
  const json_t **
      keys; /* PARTITION BY that all of them have; n_keys 0: none has any, and `order` is the same in all that have one */
  size_t n_keys;
  const char *order;
  way way;
} group;

static const json_t *window_at(const br_node *n, size_t i) { return br_j_at(n->json, "expressions", i); }

static size_t count_windows(const br_node *n) { return br_j_count(n->json, "expressions"); }

static bool has_key(const json_t *window, const json_t *key) {
  for (size_t i = 0; i < br_j_count(window, "partitions"); i++)
    if (json_equal((json_t *)key, br_j_at(window, "partitions", i))) return true;
  return false;
}

/* The keys of g that the window has too; 0: it belongs elsewhere. */
static size_t common_keys(const group *g, const json_t *window, const json_t **keys) {
  size_t n = 0;
  for (size_t i = 0; i < g->n_keys; i++)
    if (has_key(window, g->keys[i])) keys[n++] = g->keys[i];
  return n;
}

static way way_of(br_dist *d, const json_t *window, const br_drel *r) {
  if (br_j_count(window, "partitions") || br_sorts_in_one_task(d, r) || br_window_step(window)) return WAY_STEPS;
  switch (br_window_band(window)) {
    case BR_BAND_BY_KEY: return WAY_BY_KEY;
    case BR_BAND_BY_GROUP: return WAY_BY_GROUP;
    case BR_BAND_BY_ROW: return WAY_BY_ROW;
    case BR_BAND_NOT: break;
  }
  return WAY_STEPS;
}

static bool joins(br_dist *d, group *g, const json_t *window, const char *order, way way) {
  if (!br_j_count(window, "partitions")) {
    if (g->n_keys || g->way != way || (*g->order && *order && strcmp(g->order, order) != 0)) return false;
    if (*order) g->order = order;
    return true;
  }
  const json_t **keys = br_arena_alloc(d->arena, (g->n_keys + 1) * sizeof *keys);
  size_t n = common_keys(g, window, keys);
  if (!n) return false;
  g->keys = keys;
  g->n_keys = n;
  return true;
}

/* In the order of the plan; a window goes to the first group that it fits into. */
static br_status find_groups(br_dist *d, const br_node *n, const br_drel *r, group **out, size_t *n_out,
                             br_error *err) {
  size_t count = count_windows(n);
  *out = br_arena_alloc(d->arena, (count + 1) * sizeof **out);
  *n_out = 0;
  for (size_t w = 0; w < count; w++) {
    const json_t *window = window_at(n, w);
    const char *order;
    size_t g = 0;
    way way = way_of(d, window, r);
    BR_TRY(br_order_text(d, br_j_get(window, "orders"), r, "t", &order, err));
    while (g < *n_out && !joins(d, &(*out)[g], window, order, way)) g++;
    if (g == *n_out) {
      group *made = &(*out)[(*n_out)++];
      made->which = br_arena_alloc(d->arena, count * sizeof *made->which);
      made->n_keys = br_j_count(window, "partitions");
      made->keys = br_arena_alloc(d->arena, (made->n_keys + 1) * sizeof *made->keys);
      for (size_t i = 0; i < made->n_keys; i++) made->keys[i] = br_j_at(window, "partitions", i);
      made->order = order;
      made->way = way;
    }
    (*out)[g].which[(*out)[g].n++] = w;
  }
  return BR_OK;
}

static br_status group_keys(br_dist *d, const group *g, const br_drel *r, br_hash_keys *k, br_error *err) {
  *k = br_hash_keys_new(d, g->n_keys);
  for (size_t i = 0; i < g->n_keys; i++) {
    bool ok;
    BR_TRY(br_hash_key(d, r, g->keys[i], k, &ok, err));
  }
  return BR_OK;
}

/* ---- some of the node's windows */

static br_node *part_of(br_dist *d, const br_node *n, const group *g, const br_drel *r) {
  br_node *part = br_arena_alloc(d->arena, sizeof *part);
  json_t *list = json_array();
  *part = *n;
  part->n_columns = r->n_columns + g->n;
  part->types = br_arena_alloc(d->arena, (part->n_columns + 1) * sizeof *part->types);
  part->binds = br_arena_alloc(d->arena, (part->n_columns + 1) * sizeof *part->binds);
  size_t first = n->n_columns - count_windows(n);
  for (size_t i = 0; i < r->n_columns; i++) {
    part->types[i] = r->types[i];
    part->binds[i] = r->binds[i];
  }
  for (size_t i = 0; i < g->n; i++) {
    part->types[r->n_columns + i] = n->types[first + g->which[i]];
    part->binds[r->n_columns + i] = n->binds[first + g->which[i]];
    json_array_append(list, (json_t *)window_at(n, g->which[i]));
  }
  part->json = br_own_type(d, json_pack("{s:o}", "expressions", list));
  return part;
}

/* Needs of r's columns, then of the group's windows. */
static const bool *part_needs(br_dist *d, const br_node *n, const group *g, const br_drel *r) {
  bool *needed = br_arena_alloc(d->arena, r->n_columns + g->n + 1);
  size_t first = n->n_columns - count_windows(n);
  for (size_t i = 0; i < r->n_columns; i++) needed[i] = !r->needed || r->needed[i];
  for (size_t i = 0; i < g->n; i++) needed[r->n_columns + i] = d->needs[n->id][first + g->which[i]];
  return needed;
}

static bool chance(const br_node *n, const group *g) {
  for (size_t i = 0; i < g->n; i++)
    if (br_chance_window(window_at(n, g->which[i]))) return true;
  return false;
}

/* The rows that belong together are. */
static br_status compute(br_dist *d, const br_node *n, const group *g, br_drel *r, br_error *err) {
  const br_node *part = part_of(d, n, g, r);
  const bool *needed = part_needs(d, n, g, r);
  int64_t *map = br_arena_alloc(d->arena, (part->n_columns + 1) * sizeof *map);
  for (size_t i = 0; i < part->n_columns; i++) map[i] = i < r->n_columns ? (int64_t)i : -1;
  double rows = r->rows;
  BR_TRY(br_emit_over(d, part, r, err));
  r->needed = needed;
  br_set_rows(r, n->rows >= 0 ? n->rows : rows);
  br_map_clustering(d, r, map, part->n_columns);
  r->ordered = false;
  br_label_all(d, r, "window");
  br_mark_chance(r, chance(n, g));
  return BR_OK;
}

static br_status gather(br_dist *d, br_drel *r, br_error *err) {
  return br_exchange_single(d, r, BR_WHY_WINDOW, true, err); /* row numbers in the order of the source */
}

static br_status one_group(br_dist *d, const br_node *n, const group *g, br_drel *r, br_error *err) {
  br_hash_keys keys;
  if (br_is_little(d, r)) br_one_reads(d, r);
  if (br_is_one(r)) return compute(d, n, g, r, err);
  BR_TRY(group_keys(d, g, r, &keys, err));
  if (g->way != WAY_STEPS) return br_window_in_bands(d, n, g->which, g->n, part_needs(d, n, g, r), r, err);
  if (!g->n_keys && br_window_steps(n, g->which, g->n) && !br_sorts_in_one_task(d, r))
    return br_window_in_steps(d, n, g->which, g->n, part_needs(d, n, g, r), r, err);
  if (!keys.n)
    BR_TRY(gather(d, r, err));
  else if (br_clustered_within(r, &keys))
    br_open_why(d, r->branches[0].open, "kept clustering %s", br_clustering_text(d, r));
  else
    BR_TRY(br_exchange_hash(d, r, &keys, "window PARTITION BY", err));
  return compute(d, n, g, r, err);
}

/* ---- the whole node */

/* Does some group need all rows in one task? Then the others need no exchange of their own. */
static br_status needs_one_task(br_dist *d, const br_node *n, const group *gs, size_t count, const br_drel *r,
                                bool *out, br_error *err) {
  br_hash_keys keys;
  *out = false;
  for (size_t i = 0; i < count; i++) {
    BR_TRY(group_keys(d, &gs[i], r, &keys, err));
    bool steps = !gs[i].n_keys && br_window_steps(n, gs[i].which, gs[i].n) && !br_sorts_in_one_task(d, r);
    *out = *out || (!keys.n && !steps && gs[i].way == WAY_STEPS);
  }
  return BR_OK;
}

static bool kept_by(br_dist *d, const group *g, const br_drel *r, br_error *err) {
  br_hash_keys keys;
  return g->n_keys && group_keys(d, g, r, &keys, err) == BR_OK && br_clustered_within(r, &keys);
}

/* Those that need no exchange first, those without PARTITION BY last. */
static int turn_of(br_dist *d, const group *g, const br_drel *r, br_error *err) {
  return kept_by(d, g, r, err) ? 0 : g->n_keys ? 1 : 2;
}

/* Columns as the node has them: the windows in their own order. */
static void in_order(br_dist *d, const br_node *n, const size_t *at, br_drel *r) {
  size_t first = n->n_columns - count_windows(n);
  bool moved = false;
  int64_t *map = br_arena_alloc(d->arena, (n->n_columns + 1) * sizeof *map);
  br_buf b = {0};
  for (size_t i = 0; i < n->n_columns; i++) {
    map[i] = i < first ? (int64_t)i : (int64_t)at[i - first];
    moved = moved || map[i] != (int64_t)i;
    br_buf_printf(&b, "%st.c%lld AS c%zu", i ? ", " : "SELECT ", (long long)map[i], i);
  }
  br_buf_str(&b, " FROM ");
  if (moved) br_wrap_text(d, r, br_arena_strdup(d->arena, br_buf_cstr(&b)), "");
  br_buf_free(&b);
  r->n_columns = n->n_columns;
  r->types = n->types;
  r->binds = n->binds;
  r->needed = d->needs[n->id];
  br_map_clustering(d, r, map, n->n_columns);
  br_set_rows(r, n->rows >= 0 ? n->rows : r->rows);
}

br_status br_dist_window(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  group *groups;
  size_t count, at = n->n_columns - count_windows(n);
  size_t *place = br_arena_alloc(d->arena, (count_windows(n) + 1) * sizeof *place);
  bool one;
  BR_TRY(br_walk(d, n->children[0], out, err));
  BR_TRY(find_groups(d, n, out, &groups, &count, err));
  BR_TRY(needs_one_task(d, n, groups, count, out, &one, err));
  if (one) BR_TRY(gather(d, out, err));
  for (int turn = 0; turn < 3; turn++)
    for (size_t i = 0; i < count; i++) {
      group *g = &groups[i];
      if (!g->n || (turn < 2 && turn_of(d, g, out, err) > turn)) continue;
      BR_TRY(one_group(d, n, g, out, err));
      for (size_t w = 0; w < g->n; w++) place[g->which[w]] = at++;
      g->n = 0;
    }
  in_order(d, n, place, out);
  return BR_OK;
}
