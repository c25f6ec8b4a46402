/* SPDX-License-Identifier: Apache-2.0
 *
 * Run-time filters: the keys of a join's one side, once its stage has run, drop rows of the other before they are shuffled. Three of them:
 * the keys themselves (a semi join with a FILTER input), a Bloom filter of them (one row that a stage of its own makes, a BLOOM input), and
 * their range, a condition on a column, which the coordinator writes into the text. All are marked: what doesn't pay by the true sizes goes
 * (plan/stage/filters.c).
 *
 * A Bloom filter is of the hash that the rows are shuffled by, over columns alone: whatever meets in the join is hashed alike, or the
 * exchange would be wrong already; a computed key that fails has to fail in the join. A range is of values that are whole numbers inside: integers, dates, timestamps. NULLs are in no range, as they have no partners.
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* The semi join with the stored keys of the other side's producer; NULL: no key is stored. own: in the order of its keys. */
static const char *filter_text(br_dist *d, const br_hash_keys *own, const br_open *other, uint32_t number) {
  br_buf names = {0}, on = {0}, not_null = {0};
  const char *text = NULL;
  for (size_t i = 0; i < own->n && i < other->n_key_at; i++) {
    if (other->key_at[i] < 0) continue;
    br_buf_printf(&names, "%sc%lld AS k%zu", names.len ? ", " : "", (long long)other->key_at[i], i);
    if (!not_null.len) br_buf_printf(&not_null, "c%lld", (long long)other->key_at[i]); /* as in join.c, ask_not_null */
    br_buf_printf(&on, "%s%s = f.k%zu", on.len ? " AND " : "", own->texts[i], i);
  }
  if (names.len)
    text = br_arena_printf(d->arena,
                           " " BR_FILTER_BEGIN
                           " SEMI JOIN (SELECT %s FROM input(%u) WHERE %s IS NOT NULL) f ON %s " BR_FILTER_END,
                           number, br_buf_cstr(&names), number, br_buf_cstr(&not_null), br_buf_cstr(&on));
  br_buf_free(&names);
  br_buf_free(&on);
  br_buf_free(&not_null);
  return text;
}

/* ---- ranges */

/* The type that values of both sides are told in; NULL: none. */
static const char *range_type(const char *hashed_as, const char *stored) {
  static const char *const integers[] = {"TINYINT",  "SMALLINT",  "INTEGER", "BIGINT",
                                         "UTINYINT", "USMALLINT", "UINTEGER"};
  static const char *const alike[] = {"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"};
  if (!strcmp(hashed_as, "BIGINT"))
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
      if (!strcmp(stored, integers[i])) return "BIGINT";
  for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
    if (!strcmp(stored, alike[i]) && !strcmp(hashed_as, stored)) return alike[i];
  return NULL;
}

static size_t mapped_width(const br_node *n, const char *map_key, const br_node *child) {
  size_t mapped = br_j_count(n->json, map_key);
  return mapped ? mapped : child->n_columns;
}

static size_t mapped_column(const br_node *n, const char *map_key, size_t column) {
  return br_j_count(n->json, map_key) ? (size_t)br_json_u64(br_j_at(n->json, map_key, column)) : column;
}

/* Which child's column a join shows, if without that child's row there would be no such row of the join either. */
static const br_node *through_join(const br_node *n, size_t *column) {
  static const char *const left_only[] = {"LEFT", "SEMI", "ANTI", "MARK", "SINGLE"};
  const char *type = n->kind == BR_NODE_CROSS ? "INNER" : br_j_str(n->json, "join_type");
  size_t width = mapped_width(n, "left_projection_map", n->children[0]);
  bool inner = !strcmp(type, "INNER"), left = inner;
  for (size_t i = 0; i < sizeof left_only / sizeof *left_only; i++) left = left || !strcmp(type, left_only[i]);
  if (left && *column < width) {
    *column = mapped_column(n, "left_projection_map", *column);
    return n->children[0];
  }
  if (!inner || *column < width) return NULL;
  *column = mapped_column(n, "right_projection_map", *column - width);
  return n->children[1];
}

/* The name of the scan's column that a column of `n` is, row by row: below are only operators for which a row that is not read is a row
 * that does not come out. NULL: something else. */
static const char *source_of(const br_node *n, size_t column, const br_node **get) {
  while (n && column < n->n_columns) {
    const br_node *child = n->n_children ? n->children[0] : NULL;
    switch (n->kind) {
      case BR_NODE_GET: *get = n; return child ? NULL : br_scan_column(n, column);
      case BR_NODE_FILTER: column = mapped_column(n, "projection_map", column); break;
      case BR_NODE_PROJECTION: {
        br_drel over = {.n_columns = child->n_columns, .binds = child->binds};
        int64_t at = br_expr_column(br_j_at(n->json, "expressions", column), &over);
        if (at < 0) return NULL;
        column = (size_t)at;
        break;
      }
      case BR_NODE_JOIN:
      case BR_NODE_CROSS: child = through_join(n, &column); break;
      default: return NULL;
    }
    n = child;
  }
  return NULL;
}

/* The column of the stage's split scan that it is. */
static const char *split_column(br_dist *d, const br_open *o, const br_node *side, size_t column) {
  const br_node *get = NULL;
  const char *name = source_of(side, column, &get);
  if (!name || o->rule != BR_RULE_SPLITS || o->split_scan < 0) return NULL;
  const br_stage_scan *s = &o->scans[o->split_scan];
  return s->node == get->id + 1 && s->scan.kind == BR_SCAN_PARQUET ? br_arena_strdup(d->arena, name) : NULL;
}

/* The producer tells the range of that column. */
static void want_range(br_dist *d, br_stage *producer, uint32_t column) {
  uint32_t *all = br_arena_alloc(d->arena, (producer->n_ranged + 1) * sizeof *all);
  for (size_t i = 0; i < producer->n_ranged; i++) {
    if (producer->ranged[i] == column) return;
    all[i] = producer->ranged[i];
  }
  all[producer->n_ranged++] = column;
  producer->ranged = all;
}

static void add_ranges(br_dist *d, br_open *o, uint32_t number, const br_node *side, const br_hash_keys *own,
                       const br_open *keyed) {
  br_stage *producer = &d->out->stages[keyed->key_producer];
  br_filter_key *keys = br_arena_alloc(d->arena, (own->n + 1) * sizeof *keys);
  br_stage_input *in = &o->inputs[o->n_inputs - 1];
  BR_ASSERT(in->number == number);
  in->ranges = keys;
  for (size_t i = 0; i < own->n && i < keyed->n_key_at; i++) {
    if (keyed->key_at[i] < 0 || own->columns[i] < 0) continue;
    uint32_t column = (uint32_t)keyed->key_at[i];
    const char *type = range_type(own->hashed_as[i], producer->types[column]);
    if (!type) continue;
    want_range(d, producer, column);
    keys[in->n_ranges++] = (br_filter_key){.column = column,
                                           .type = type,
                                           .text = br_arena_printf(d->arena, "t.c%lld", (long long)own->columns[i]),
                                           .source = side ? split_column(d, o, side, (size_t)own->columns[i]) : NULL};
  }
}

/* ---- Bloom filters */

/* "hash(t.c0, t.c1, seed)" over the pairs of keys that are columns on both sides, and, of the stored ones, that none is NULL. How many
 * pairs there are. */
static size_t bloom_texts(br_dist *d, const br_hash_keys *own, const br_open *keyed, const char **ours,
                          const char **theirs, const char **not_null) {
  const br_stage_input *in = NULL;
  br_buf a = {0}, b = {0}, c = {0};
  size_t n = 0;
  for (size_t i = 0; i < keyed->n_inputs && !in; i++)
    if (keyed->inputs[i].kind == BR_EX_HASH && keyed->inputs[i].producer == keyed->key_producer) in = &keyed->inputs[i];
  for (size_t i = 0; in && i < own->n && i < keyed->n_key_at && i < in->n_keys; i++) {
    const br_split_key *key = &in->keys[i];
    if (own->columns[i] < 0 || keyed->key_at[i] < 0 || !key->text || strcmp(key->hashed_as, own->hashed_as[i]) != 0)
      continue;
    n++;
    br_buf_printf(&a, "%s, ", own->texts[i]);
    br_buf_printf(&b, "%s, ", key->text);
    br_buf_printf(&c, "%s(%s) IS NOT NULL", c.len ? " AND " : "", key->text);
  }
  *ours = br_arena_printf(d->arena, "hash(%s%s)", br_buf_cstr(&a), BR_HASH_SEED);
  *theirs = br_arena_printf(d->arena, "hash(%s%s)", br_buf_cstr(&b), BR_HASH_SEED);
  *not_null = br_arena_strdup(d->arena, br_buf_cstr(&c));
  br_buf_free(&a);
  br_buf_free(&b);
  br_buf_free(&c);
  return n;
}

/* The stage that makes the filter of what `producer` stores. */
static uint32_t bloom_stage(br_dist *d, uint32_t producer, const char *hash, size_t n_keys, const char *not_null) {
  static const char *types[] = {"BLOB"};
  br_stage_input *in = br_arena_alloc(d->arena, sizeof *in);
  br_stage s = {.id = (uint32_t)d->out->n_stages,
                .types = types,
                .n_columns = 1,
                .inputs = in,
                .n_inputs = 1,
                .split_scan = -1,
                .rule = BR_TASKS_ONE,
                .output = BR_EX_BROADCAST,
                .partitions = 1,
                .makes_bloom = true,
                .indeterminate = d->out->stages[producer].indeterminate,
                .rows = 1,
                .bytes = -1,
                .one_task_reason = BR_WHY_BLOOM,
                .label = "Bloom filter of the keys"};
  uint32_t id;
  *in = (br_stage_input){.producer = producer, .kind = BR_EX_KEYS, .n_keys = n_keys};
  s.sql = br_arena_printf(d->arena, "SELECT keys_bloom(%s, " BR_BLOOM_BLOCKS ") AS c0\nFROM input(0) t\nWHERE %s", hash,
                          not_null);
  if (br_find_twin(d, &s, &id)) return id;
  d->out->stages = br_grown(d, d->out->stages, &d->cap_stages, d->out->n_stages, sizeof *d->out->stages);
  d->out->stages[d->out->n_stages++] = s;
  return s.id;
}

/* The branch's rows whose keys may be among those of the other side. */
static const char *with_bloom(br_dist *d, const br_branch *b, const br_hash_keys *own, const br_drel *other) {
  const br_open *keyed = other->branches[0].open;
  const char *ours, *theirs, *not_null;
  bool wanted = d->o->bloom_filters && (d->o->bloom_rows <= 0 || other->rows >= d->o->bloom_rows);
  size_t n = wanted ? bloom_texts(d, own, keyed, &ours, &theirs, &not_null) : 0;
  if (n == 0) return b->sql;
  uint32_t maker = bloom_stage(d, keyed->key_producer, theirs, n, not_null);
  uint32_t number = br_open_input(d, b->open, maker, BR_EX_BLOOM, false);
  return br_arena_printf(d->arena,
                         "SELECT t.*\nFROM %s t " BR_FILTER_BEGIN
                         " WHERE keys_maybe((SELECT keys_hold(c0) FROM input(%u)), %s) " BR_FILTER_END,
                         br_block(d, b->sql), number, number, ours);
}

/* Give the keys that went through the exchange to every branch of r. */
void br_add_filter(br_dist *d, br_drel *r, const br_node *side, const br_hash_keys *own, const br_drel *other) {
  const br_open *keyed = other->branches[0].open;
  if (!keyed->n_key_at || !filter_text(d, own, keyed, 0)) return;
  br_branch *branches = br_arena_alloc(d->arena, r->n_branches * sizeof *branches);
  for (size_t i = 0; i < r->n_branches; i++) {
    br_open *o = r->branches[i].open;
    uint32_t number = br_open_input(d, o, keyed->key_producer, BR_EX_FILTER, false);
    o->inputs[o->n_inputs - 1].key_bytes = keyed->key_bytes;
    add_ranges(d, o, number, r->n_branches == 1 ? side : NULL, own, keyed);
    branches[i] = r->branches[i];
    branches[i].sql = br_arena_printf(d->arena, "SELECT t.*\nFROM %s t%s " BR_FILTER_RANGE,
                                      br_block(d, with_bloom(d, &r->branches[i], own, other)),
                                      filter_text(d, own, keyed, number), number);
    branches[i].plain_read = -1;
    br_keep_sides(branches[i].open, r->branches[i].sql, branches[i].sql);
  }
  r->branches = branches;
}

/* ---- broadcast sides: DuckDB itself drops rows by their keys, inside each task; what can be done before is not to make the task */

static br_status broadcast_key(br_dist *d, const br_node *n, const json_t *condition, const br_drel *moved,
                               const br_drel *stays, bool right, br_filter_key *key, br_error *err) {
  const json_t *ours = br_j_get(condition, right ? "right" : "left"),
               *theirs = br_j_get(condition, right ? "left" : "right");
  int64_t column = br_expr_column(theirs, stays), stored = br_stored_at(moved, br_expr_column(ours, moved));
  const char *hashed_as, *other;
  bool small_int;
  *key = (br_filter_key){0};
  if (!br_j_is(condition, "comparison", "COMPARE_EQUAL") || column < 0 || stored < 0) return BR_OK;
  BR_TRY(br_hash_type(d, br_expr_type(ours), &hashed_as, &small_int, err));
  BR_TRY(br_hash_type(d, br_expr_type(theirs), &other, &small_int, err));
  if (!hashed_as || !other || strcmp(hashed_as, other) != 0) return BR_OK;
  const br_stage *producer = &d->out->stages[moved->branches[0].open->inputs[0].producer];
  key->column = (uint32_t)stored;
  key->type = range_type(hashed_as, producer->types[stored]);
  key->text = br_arena_printf(d->arena, "t.c%lld", (long long)column);
  if (key->type) key->source = split_column(d, stays->branches[0].open, n->children[right ? 0 : 1], (size_t)column);
  return BR_OK;
}

br_status br_range_broadcast(br_dist *d, const br_node *n, const br_drel *moved, const br_drel *stays, bool right,
                             br_error *err) {
  br_open *o = moved->branches[0].open;
  size_t count = br_j_count(n->json, "conditions");
  if (!d->o->run_time_filters || moved->n_branches != 1 || o->n_inputs != 1 || o->inputs[0].kind != BR_EX_BROADCAST)
    return BR_OK;
  br_filter_key *keys = br_arena_alloc(d->arena, (count + 1) * sizeof *keys);
  o->inputs[0].ranges = keys;
  for (size_t i = 0; i < count; i++) {
    br_filter_key *key = &keys[o->inputs[0].n_ranges];
    BR_TRY(broadcast_key(d, n, br_j_at(n->json, "conditions", i), moved, stays, right, key, err));
    if (!key->source) continue;
    want_range(d, &d->out->stages[o->inputs[0].producer], key->column);
    o->inputs[0].n_ranges++;
  }
  return BR_OK;
}
