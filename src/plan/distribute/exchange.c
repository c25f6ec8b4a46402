/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges: every branch of a relation is closed with the wanted output, and a new stage reads them all. Also the reading
 * of what several consumers share.
 *
 * Hash keys: integers up to 64 bits are hashed as BIGINT (the hashes of a negative number differ between widths), all
 * others as their own type, and the two sides of a join must agree in it. Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys */

br_hash_keys br_hash_keys_new(br_dist *d, size_t n) {
  br_hash_keys k = {0};
  k.texts = br_arena_alloc(d->arena, (n + 1) * sizeof *k.texts);
  k.hashed_as = br_arena_alloc(d->arena, (n + 1) * sizeof *k.hashed_as);
  k.columns = br_arena_alloc(d->arena, (n + 1) * sizeof *k.columns);
  return k;
}

static bool is_small_int(const char *id) {
  static const char *const ids[] = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if (!strcmp(id, ids[i])) return true;
  return false;
}

br_status br_hash_type(br_dist *d, const json_t *type, const char **out, bool *small_int, br_error *err) {
  br_buf b = {0};
  *out = NULL;
  *small_int = type && is_small_int(br_j_str(type, "id"));
  if (!type) return BR_OK;
  if (*small_int) {
    *out = "BIGINT";
    return BR_OK;
  }
  if (br_j_is(type, "id", "VARCHAR")) {
    *out = "VARCHAR";
    return BR_OK;
  }
  br_status status = br_emit_type(type, &b, err);
  if (status == BR_OK) *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  if (status != BR_UNSUPPORTED) return status;
  br_error_clear(err);
  return BR_OK;
}

static void add_key(br_dist *d, br_hash_keys *k, const char *text, const char *hashed_as, bool small_int,
                    bool is_bigint, int64_t column) {
  k->texts[k->n] = small_int && !is_bigint ? br_arena_printf(d->arena, "CAST(%s AS BIGINT)", text) : text;
  k->hashed_as[k->n] = hashed_as;
  k->columns[k->n++] = column;
}

br_status br_hash_key(br_dist *d, const br_drel *r, const json_t *expr, br_hash_keys *k, bool *ok, br_error *err) {
  br_buf b = {0};
  bool small_int;
  const char *hashed_as;
  br_rel over = br_branch_rel(r, 0);
  json_t *type = br_expr_type(expr);
  *ok = false;
  if (br_volatile(expr)) return BR_OK;
  BR_TRY(br_hash_type(d, type, &hashed_as, &small_int, err));
  if (!hashed_as) return BR_OK;
  br_status status = br_emit_expr(d->emit, expr, &over, "t", &b, err);
  if (status == BR_OK) {
    add_key(d, k, br_arena_strdup(d->arena, br_buf_cstr(&b)), hashed_as, small_int, br_j_is(type, "id", "BIGINT"),
            br_expr_column(expr, r));
    *ok = true;
  }
  br_buf_free(&b);
  return status;
}

br_status br_hash_key_column(br_dist *d, const br_drel *r, size_t column, br_hash_keys *k, br_error *err) {
  bool small_int;
  const char *hashed_as;
  BR_TRY(br_hash_type(d, r->types[column], &hashed_as, &small_int, err));
  if (!hashed_as)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "rows must be spread by a column whose type can't be written");
  add_key(d, k, br_arena_printf(d->arena, "t.c%zu", column), hashed_as, small_int,
          br_j_is(r->types[column], "id", "BIGINT"), (int64_t)column);
  return BR_OK;
}

/* A computed key that has no value (a cast that fails) fails in the reader, if that evaluates it at all: where DuckDB would not, since
 * the other side is empty, neither may the exchange fail. */
static const char *tried(br_dist *d, const br_hash_keys *k, size_t i) {
  return k->columns[i] >= 0 ? k->texts[i] : br_arena_printf(d->arena, "TRY(%s)", k->texts[i]);
}

static const char *keys_text(br_dist *d, const br_hash_keys *k, bool for_people) {
  br_buf b = {0};
  for (size_t i = 0; i < k->n; i++) {
    if (i) br_buf_str(&b, ", ");
    if (for_people && k->columns[i] >= 0)
      br_buf_printf(&b, "c%lld", (long long)k->columns[i]);
    else
      br_buf_str(&b, for_people ? br_without_alias(d, k->texts[i]) : tried(d, k, i));
  }
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* ---- reading */

const char *br_read_text(br_dist *d, const br_drel *r, const bool *layout, uint32_t number) {
  bool plain = true;
  br_buf b = {0};
  br_error ignored;
  for (size_t i = 0; i < r->n_columns; i++) plain = plain && (!layout || layout[i]) && !br_cast_back(r->types[i]);
  if (plain) return br_arena_printf(d->arena, "SELECT * FROM input(%u)", number);
  br_buf_str(&b, "SELECT ");
  for (size_t i = 0, at = 0; i < r->n_columns; i++) {
    br_buf type = {0};
    bool stored = !layout || layout[i];
    br_buf_str(&b, i ? ", " : "");
    bool cast =
        (!stored || br_cast_back(r->types[i])) && r->types[i] && br_emit_type(r->types[i], &type, &ignored) == BR_OK;
    const char *value = stored ? br_arena_printf(d->arena, "i.c%zu", at++) : "NULL";
    if (cast)
      br_buf_printf(&b, "CAST(%s AS %s) AS c%zu", value, br_buf_cstr(&type), i);
    else
      br_buf_printf(&b, "%s AS c%zu", value, i);
    br_buf_free(&type);
  }
  br_buf_printf(&b, " FROM input(%u) i", number);
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* One stage that reads all of them: `SELECT * FROM input(a) UNION ALL …`. layouts NULL: all store r's needed columns. */
static void read_all(br_dist *d, br_drel *r, const uint32_t *producers, const bool *const *layouts, size_t n,
                     br_rule rule, br_exchange_kind kind, bool ordered) {
  br_open *o = br_open_new(d, rule);
  br_buf b = {0};
  for (size_t i = 0; i < n; i++) {
    uint32_t number = br_open_input(d, o, producers[i], kind, ordered);
    if (i) br_buf_str(&b, "\nUNION ALL ");
    br_buf_str(&b, br_read_text(d, r, layouts ? layouts[i] : r->needed, number));
  }
  r->branches = br_arena_alloc(d->arena, sizeof *r->branches);
  r->branches[0] = (br_branch){.open = o, .sql = br_arena_strdup(d->arena, br_buf_cstr(&b)), .plain_read = -1};
  r->n_branches = 1;
  br_no_ranges(r);
  br_buf_free(&b);
}

static br_status close_all(br_dist *d, const br_drel *r, const br_closing *c, uint32_t **producers, br_error *err) {
  *producers = br_arena_alloc(d->arena, r->n_branches * sizeof **producers);
  for (size_t i = 0; i < r->n_branches; i++) BR_TRY(br_close(d, r, i, c, &(*producers)[i], err));
  return BR_OK;
}

/* ---- the kinds */

int64_t br_stored_at(const br_drel *r, int64_t column) {
  int64_t at = 0;
  if (column < 0 || (r->needed && !r->needed[column])) return -1;
  for (int64_t i = 0; i < column; i++) at += !r->needed || r->needed[i];
  return at;
}

static uint32_t key_bytes(const br_drel *r, const br_hash_keys *k) {
  static const char *const sizeless[] = {"VARCHAR", "BLOB",   "ENUM", "BIT",   "BIGNUM",
                                         "LIST",    "STRUCT", "MAP",  "ARRAY", "UNION"};
  uint32_t bytes = 0;
  for (size_t i = 0; i < k->n; i++) {
    if (br_stored_at(r, k->columns[i]) < 0) continue;
    const json_t *type = r->types[k->columns[i]];
    for (size_t t = 0; t < sizeof sizeless / sizeof *sizeless; t++)
      if (br_j_is(type, "id", sizeless[t])) return 0;
    bytes += (uint32_t)br_value_bytes(type);
  }
  return bytes;
}

static void remember_keys(br_dist *d, const br_drel *r, uint32_t producer, const br_hash_keys *k) {
  br_open *o = r->branches[0].open;
  o->key_producer = producer;
  o->n_key_at = k->n;
  o->key_bytes = key_bytes(r, k);
  o->key_at = br_arena_alloc(d->arena, (k->n + 1) * sizeof *o->key_at);
  for (size_t i = 0; i < k->n; i++) o->key_at[i] = br_stored_at(r, k->columns[i]);
}

/* The key's text over the stored columns; NULL: it needs one that is not stored, or that its reader casts back to what was hashed. */
static const char *stored_text(br_dist *d, const br_drel *r, const char *text) {
  br_buf b = {0};
  const char *out = NULL;
  int64_t ignored;
  for (const char *s = text; *s;) {
    size_t n = br_stage_piece(text, s, &ignored);
    bool column = !strncmp(s, "t.c", 3) && s[3] >= '0' && s[3] <= '9' && (s == text || strchr(" (,-+", s[-1]));
    if (!column) {
      br_buf_add(&b, s, n);
      s += n;
      continue;
    }
    char *end;
    size_t at = strtoul(s + 3, &end, 10);
    int64_t stored = at < r->n_columns && !br_cast_back(r->types[at]) ? br_stored_at(r, (int64_t)at) : -1;
    if (stored < 0) goto done;
    br_buf_printf(&b, "t.c%lld", (long long)stored);
    s = end;
  }
  out = br_arena_strdup(d->arena, br_buf_cstr(&b));
done:
  br_buf_free(&b);
  return out;
}

/* For passes: the new stage's inputs are all of the same layout. */
static void give_keys(br_dist *d, const br_drel *r, const br_hash_keys *k) {
  br_open *o = r->branches[0].open;
  br_split_key *keys = br_arena_alloc(d->arena, (k->n + 1) * sizeof *keys);
  for (size_t i = 0; i < k->n; i++)
    keys[i] = (br_split_key){.text = stored_text(d, r, tried(d, k, i)), .hashed_as = k->hashed_as[i]};
  for (size_t i = 0; i < o->n_inputs; i++) {
    o->inputs[i].keys = keys;
    o->inputs[i].n_keys = k->n;
  }
}

/* ---- one exchange of something shared for several readers: which of them want the same is known from a first walk */

static void wish(br_dist *d, br_wish w) {
  for (size_t i = 0; i < d->n_wishes; i++)
    if (d->wishes[i].reader == w.reader && d->wishes[i].partitions == w.partitions &&
        !strcmp(d->wishes[i].keys, w.keys))
      return;
  d->wishes = br_grown(d, d->wishes, &d->cap_wishes, d->n_wishes, sizeof *d->wishes);
  d->wishes[d->n_wishes++] = w;
}

bool br_shares_exchange(br_dist *d, const br_drel *r, const br_hash_keys *k, uint32_t n, bool weak) {
  const br_branch *b = &r->branches[0];
  if (r->n_branches != 1 || b->plain_read < 0 || !b->source) return false;
  br_wish w = {.source = b->source, .reader = b->reader, .partitions = n, .keys = keys_text(d, k, false), .weak = weak};
  wish(d, w);
  for (size_t i = 0; i < d->n_known_wishes; i++) {
    const br_wish *other = &d->known_wishes[i];
    bool same = other->source == w.source && other->partitions == n && !strcmp(other->keys, w.keys);
    if (same && other->reader != w.reader && !(weak && other->weak)) return true;
  }
  return false;
}

/* All that is read here is one side, as long as nothing needs what is together. */
static void give_sides(br_drel *r) {
  br_open *o = r->branches[0].open;
  for (size_t i = 0; i < o->n_inputs; i++) o->inputs[i].side = o->inputs[0].number + 1;
  o->sides_of = r->branches[0].sql;
}

br_status br_exchange_hash_into(br_dist *d, br_drel *r, const br_hash_keys *k, uint32_t n, const char *why,
                                br_error *err) {
  uint32_t *producers;
  const bool *needed = r->needed;
  if (br_shares_exchange(d, r, k, n, false)) {
    r->needed = r->branches[0].layout; /* whatever any reader needs */
    why = "one exchange for several readers";
  }
  br_closing c = {.output = BR_EX_HASH, .partitions = n, .keys = keys_text(d, k, true), .why = why};
  c.tail = br_arena_printf(d->arena, "CAST(hash(%s, %s) %% %u AS INTEGER)", keys_text(d, k, false), BR_HASH_SEED, n);
  BR_TRY(close_all(d, r, &c, &producers, err));
  r->ordered = r->ordered && r->n_branches == 1;
  size_t n_producers = r->n_branches;
  read_all(d, r, producers, NULL, n_producers, BR_RULE_PARTITIONS, BR_EX_HASH, r->ordered);
  give_keys(d, r, k);
  if (!r->ordered) give_sides(r);
  if (n_producers == 1) remember_keys(d, r, producers[0], k);
  br_set_clustering(d, r, k, true);
  r->needed = needed;
  return BR_OK;
}

br_status br_exchange_hash(br_dist *d, br_drel *r, const br_hash_keys *k, const char *why, br_error *err) {
  return br_exchange_hash_into(d, r, k, d->o->partitions, why, err);
}

br_status br_exchange_numbered(br_dist *d, br_drel *r, const char *number, uint32_t n, bool ordered, const char *why,
                               br_error *err) {
  uint32_t *producers;
  br_closing c = {.output = BR_EX_HASH, .partitions = n, .tail = number, .why = why};
  BR_TRY(close_all(d, r, &c, &producers, err));
  read_all(d, r, producers, NULL, r->n_branches, BR_RULE_PARTITIONS, BR_EX_HASH, ordered);
  br_no_clustering(r);
  return BR_OK;
}

uint32_t br_partitions_of(const br_dist *d, const br_drel *r) {
  const br_open *o = r->branches[0].open;
  for (size_t i = 0; i < o->n_inputs; i++)
    if (o->inputs[i].kind == BR_EX_HASH || o->inputs[i].kind == BR_EX_RANGE)
      return d->out->stages[o->inputs[i].producer].partitions;
  return 0;
}

br_status br_exchange_single(br_dist *d, br_drel *r, const char *reason, bool ordered, br_error *err) {
  uint32_t *producers;
  br_closing c = {.output = BR_EX_SINGLE, .partitions = 1, .why = reason};
  if (br_is_little(d, r)) br_one_reads(d, r);
  if (br_is_one(r)) {
    br_one_task(r, reason);
    return BR_OK;
  }
  BR_TRY(close_all(d, r, &c, &producers, err));
  r->ordered = r->ordered && r->n_branches == 1;
  read_all(d, r, producers, NULL, r->n_branches, BR_RULE_ONE, BR_EX_SINGLE, ordered || r->ordered);
  r->branches[0].open->reason = reason;
  br_no_clustering(r);
  return BR_OK;
}

br_status br_exchange_broadcast(br_dist *d, br_drel *r, const char *why, br_error *err) {
  uint32_t *producers;
  br_closing c = {.output = BR_EX_BROADCAST, .partitions = 1, .why = why};
  if (br_is_constant(r)) return BR_OK;
  r->ordered = false;
  BR_TRY(close_all(d, r, &c, &producers, err));
  read_all(d, r, producers, NULL, r->n_branches, BR_RULE_NONE, BR_EX_BROADCAST, false);
  br_no_clustering(r);
  return BR_OK;
}

br_status br_exchange_range(br_dist *d, br_drel *r, const char *sort_key, const char *shown, br_error *err) {
  uint32_t *producers;
  br_closing c = {
      .output = BR_EX_RANGE, .partitions = d->o->partitions, .tail = sort_key, .keys = shown, .why = "sort by ranges"};
  BR_TRY(close_all(d, r, &c, &producers, err));
  r->ordered = false;
  read_all(d, r, producers, NULL, r->n_branches, BR_RULE_PARTITIONS, BR_EX_RANGE, false);
  br_no_clustering(r);
  return BR_OK;
}

/* Branches that only read a FORWARD stage are not copied to another. */
static br_status forward_all(br_dist *d, const br_drel *r, const char *why, uint32_t **producers, const bool ***layouts,
                             br_error *err) {
  br_closing c = {.output = BR_EX_FORWARD, .partitions = 1, .why = why};
  *producers = br_arena_alloc(d->arena, r->n_branches * sizeof **producers);
  *layouts = br_arena_alloc(d->arena, r->n_branches * sizeof **layouts);
  for (size_t i = 0; i < r->n_branches; i++) {
    bool again = r->branches[i].plain_read >= 0;
    (*layouts)[i] = again ? r->branches[i].layout : r->needed;
    if (again)
      (*producers)[i] = (uint32_t)r->branches[i].plain_read;
    else
      BR_TRY(br_close(d, r, i, &c, &(*producers)[i], err));
  }
  return BR_OK;
}

br_status br_one_branch(br_dist *d, br_drel *r, br_error *err) {
  uint32_t *producers;
  const bool **layouts;
  if (r->n_branches == 1) return BR_OK;
  BR_TRY(forward_all(d, r, "the parts of a UNION ALL come together", &producers, &layouts, err));
  read_all(d, r, producers, layouts, r->n_branches, BR_RULE_FORWARD, BR_EX_FORWARD, false);
  br_open_label(d, r->branches[0].open, "union all");
  br_no_clustering(r);
  return BR_OK;
}

br_status br_share(br_dist *d, br_drel *r, const char *why, br_shared *out, br_error *err) {
  memset(out, 0, sizeof *out);
  out->rel = *r;
  out->is_inline = br_is_constant(r);
  if (out->is_inline) return BR_OK;
  if (r->sorted) br_rely_on_order(r->branches[0].open); /* readers may */
  BR_TRY(forward_all(d, r, why, &out->producers, &out->layouts, err));
  out->n_producers = r->n_branches;
  out->one = br_arena_alloc(d->arena, r->n_branches * sizeof *out->one);
  for (size_t i = 0; i < r->n_branches; i++) out->one[i] = d->out->stages[out->producers[i]].rule == BR_TASKS_ONE;
  return BR_OK;
}

static br_drel read_inline(br_dist *d, const br_shared *s) {
  br_drel r = s->rel;
  if (!br_is_constant(&r)) return r; /* its only reader */
  r.branches = br_arena_alloc(d->arena, sizeof *r.branches);
  r.branches[0] = s->rel.branches[0];
  r.branches[0].open = br_open_new(d, BR_RULE_NONE);
  r.branches[0].open->label = s->rel.branches[0].open->label;
  return r;
}

static br_drel read_closed(br_dist *d, const br_shared *s, const bool *needed, uint32_t reader) {
  br_drel r = s->rel;
  r.needed = needed;
  r.sorted = NULL; /* its readers don't scan */
  r.branches = br_arena_alloc(d->arena, s->n_producers * sizeof *r.branches);
  r.n_branches = s->n_producers;
  for (size_t i = 0; i < s->n_producers; i++) {
    br_open *o = br_open_new(d, s->one[i] ? BR_RULE_ONE : BR_RULE_FORWARD);
    if (s->one[i]) o->reason = d->out->stages[s->producers[i]].one_task_reason;
    uint32_t number = br_open_input(d, o, s->producers[i], BR_EX_FORWARD, r.ordered);
    r.branches[i] = (br_branch){.open = o,
                                .sql = br_read_text(d, &r, s->layouts[i], number),
                                .plain_read = s->producers[i],
                                .layout = s->layouts[i],
                                .source = s->source,
                                .reader = reader};
  }
  r.aligned = false; /* a FORWARD reader follows its producer's tasks, whatever their number becomes */
  return r;
}

br_drel br_read_shared(br_dist *d, const br_shared *s, const br_node *n) {
  br_drel r = s->is_inline ? read_inline(d, s) : read_closed(d, s, d->needs[n->id], n->id + 1);
  r.binds = n->binds;
  r.needed = d->needs[n->id];
  return r;
}

br_drel br_read_again(br_dist *d, const br_shared *s) {
  return s->is_inline ? read_inline(d, s) : read_closed(d, s, s->rel.needed, 0);
}
