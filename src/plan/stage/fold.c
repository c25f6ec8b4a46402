/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage that is done within its only reader, by the reader's tasks: the producer's text takes the place of the input. At plan time
 * for rows that only pass through; while the query runs for a hash join one of whose sides turned out small: that side is read whole
 * by every task, and the other one is joined where it is made, instead of being shuffled.
 *
 * Why that is right: `side` says of an input that what several tasks make of parts of its rows, each with all rows of the other inputs,
 * is together what one task makes of all of them. One task with all partitions of all inputs is right (as with one partition), so
 * tasks with parts of this side and all partitions of the others are, however the parts are cut.
 *
 * Order of calls: br_stage_may_join_in_place, then br_stage_join_in_place; br_stage_fold alone. Threads: none. Bounds: none.
 */
#include "plan/stage/stage.h"

#include <stdlib.h>
#include <string.h>

/* ---- texts */

/* A mark of a FILTER or BLOOM input at `at`, with its new number. The length of the old one; 0: there is none. */
static size_t filter_mark(const br_stage *s, const char *at, const uint32_t *map, br_buf *b) {
  for (uint32_t i = 0; i < s->n_inputs && *at == '/'; i++) {
    char begin[64], range[64];
    if (s->inputs[i].kind != BR_EX_FILTER && s->inputs[i].kind != BR_EX_BLOOM) continue;
    size_t n = (size_t)snprintf(begin, sizeof begin, BR_FILTER_BEGIN, i);
    size_t m = (size_t)snprintf(range, sizeof range, BR_FILTER_RANGE, i);
    if (!strncmp(at, begin, n)) {
      br_buf_printf(b, BR_FILTER_BEGIN, map[i]);
      return n;
    }
    if (!strncmp(at, range, m)) {
      br_buf_printf(b, BR_FILTER_RANGE, map[i]);
      return m;
    }
  }
  return 0;
}

/* The stage's text with its inputs numbered anew by `map`, or another item of FROM in the place of one. */
static const char *renumbered(br_arena *arena, const br_stage *s, const uint32_t *map, const char *const *items) {
  br_buf b = {0};
  size_t length = 0;
  for (const char *at = s->sql; *at; at += length) {
    int64_t number;
    if ((length = filter_mark(s, at, map, &b)) > 0) continue;
    length = br_stage_piece(s->sql, at, &number);
    if (number < 0 || (size_t)number >= s->n_inputs)
      br_buf_add(&b, at, length);
    else if (items[number])
      br_buf_str(&b, items[number]);
    else
      br_buf_printf(&b, "input(%u)", map[number]);
  }
  const char *text = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* ---- a stage within its reader */

br_stage br_stage_fold(br_arena *arena, const br_stage *reader, uint32_t input, const br_stage *p, const char *item) {
  br_stage out = *reader;
  uint32_t *map = br_arena_alloc(arena, (reader->n_inputs + 1) * sizeof *map);
  const char **items = br_arena_alloc(arena, (reader->n_inputs + 1) * sizeof *items);
  out.inputs = br_arena_alloc(arena, (p->n_inputs + reader->n_inputs + 1) * sizeof *out.inputs);
  out.scans = br_arena_alloc(arena, (p->n_scans + reader->n_scans + 1) * sizeof *out.scans);
  out.n_inputs = out.n_scans = 0;
  for (size_t i = 0; i < p->n_inputs; i++) out.inputs[out.n_inputs++] = p->inputs[i];
  items[input] = item;
  for (size_t i = 0; i < reader->n_inputs; i++) {
    if (i == input) continue;
    map[i] = (uint32_t)out.n_inputs;
    out.inputs[out.n_inputs] = reader->inputs[i];
    out.inputs[out.n_inputs++].number = map[i];
  }
  for (size_t i = 0; i < p->n_scans; i++) out.scans[out.n_scans++] = p->scans[i];
  for (size_t i = 0; i < reader->n_scans; i++) out.scans[out.n_scans++] = reader->scans[i];
  out.sql = renumbered(arena, reader, map, items);
  out.split_scan = p->split_scan;
  out.rule = p->rule;
  out.chance = reader->chance || p->chance;
  out.indeterminate = reader->indeterminate || p->indeterminate;
  out.label = br_arena_printf(arena, "%s, %s", p->label, reader->label);
  return out;
}

/* ---- a hash join becomes a broadcast join */

static bool plain(const br_stage *s) { return !s->n_steps && !s->batch_rows && !br_stage_numbers_rows(s); }

/* The only input that reads the stage. */
static bool only_reader(const br_stages *s, uint32_t producer, uint32_t *reader, uint32_t *input) {
  size_t found = 0;
  for (size_t i = producer + 1; i < s->n_stages; i++)
    for (size_t k = 0; k < s->stages[i].n_inputs; k++) {
      if (s->stages[i].inputs[k].producer != producer) continue;
      *reader = (uint32_t)i;
      *input = (uint32_t)k;
      found++;
    }
  return found == 1;
}

bool br_stage_may_join_in_place(const br_stages *s, uint32_t producer, uint32_t *reader, uint32_t *input) {
  const br_stage *p = &s->stages[producer];
  bool joins = false;
  if (p->output != BR_EX_HASH || p->rule == BR_TASKS_ONE || p->row_columns || !plain(p)) return false;
  if (!only_reader(s, producer, reader, input)) return false;
  const br_stage *r = &s->stages[*reader];
  const br_stage_input *own = &r->inputs[*input];
  if (r->rule != BR_TASKS_PARTITIONS || r->ordered_output || !plain(r)) return false;
  if (own->kind != BR_EX_HASH || own->ordered || own->side == 0) return false;
  for (size_t i = 0; i < r->n_inputs; i++) {
    const br_stage_input *in = &r->inputs[i];
    if (in->kind == BR_EX_BROADCAST || in->kind == BR_EX_BOUNDS || br_exchange_helps(in->kind)) continue;
    if (in->kind != BR_EX_HASH || in->ordered || s->stages[in->producer].fixed_partitions) return false;
    if (in == own) continue;
    if (in->side == own->side) return false; /* the parts of a UNION ALL */
    joins = true;
  }
  return joins;
}

static bool reads_by_hash(const br_stage *s, uint32_t producer) {
  for (size_t i = 0; i < s->n_inputs; i++)
    if (s->inputs[i].kind == BR_EX_HASH && s->inputs[i].producer == producer) return true;
  return false;
}

/* The stage whose keys a FILTER or BLOOM input is made of. */
static uint32_t keys_of(const br_stages *s, const br_stage_input *in) {
  return in->kind == BR_EX_BLOOM ? s->stages[in->producer].inputs[0].producer : in->producer;
}

/* Passes of the whole go by the keys of the outermost join. */
static const char *without_passes(br_arena *arena, const char *sql) {
  br_buf b = {0};
  for (const char *at = sql; *at;) {
    int64_t ignored;
    bool here = !strncmp(at, BR_PASS_HERE, strlen(BR_PASS_HERE));
    size_t n = here ? strlen(BR_PASS_HERE) : br_stage_piece(sql, at, &ignored);
    if (!here) br_buf_add(&b, at, n);
    at += n;
  }
  const char *text = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* Without the filters whose keys the join itself reads now. */
static br_stage without_filters_of(br_arena *arena, const br_stages *s, const br_stage *p, const br_stage *join) {
  br_stage out = *p;
  out.sql = without_passes(arena, p->sql);
  uint32_t *map = br_arena_alloc(arena, (p->n_inputs + 1) * sizeof *map);
  const char **none = br_arena_alloc(arena, (p->n_inputs + 1) * sizeof *none);
  out.inputs = br_arena_alloc(arena, (p->n_inputs + 1) * sizeof *out.inputs);
  out.n_inputs = 0;
  for (size_t i = 0; i < p->n_inputs; i++) {
    bool filter = p->inputs[i].kind == BR_EX_FILTER || p->inputs[i].kind == BR_EX_BLOOM;
    if (filter && reads_by_hash(join, keys_of(s, &p->inputs[i]))) {
      out.sql = br_stage_with_range(arena, br_stage_without_filter(arena, out.sql, (uint32_t)i), (uint32_t)i, NULL);
      continue;
    }
    map[i] = (uint32_t)out.n_inputs;
    out.inputs[out.n_inputs] = p->inputs[i];
    if (p->inputs[i].kind == BR_EX_BROADCAST) out.inputs[out.n_inputs].n_keys = 0;
    out.inputs[out.n_inputs++].number = map[i];
  }
  br_stage text = *p; /* its marks have the old numbers */
  text.sql = out.sql;
  out.sql = renumbered(arena, &text, map, none);
  return out;
}

/* The rows of an input whose key is not NULL: for DuckDB's Bloom filter, as plan/distribute asks of a broadcast side. A key that could
 * not be computed is a failure of the join, not a NULL. */
static const char *not_null(br_arena *arena, const br_stage_input *in) {
  for (size_t k = 0; k < in->n_keys && in->null_keys_go; k++)
    if (in->keys[k].text && strncmp(in->keys[k].text, "TRY(", 4) != 0)
      return br_arena_printf(arena, "(SELECT t.* FROM input(%u) t WHERE (%s) IS NOT NULL)", in->number,
                             in->keys[k].text);
  return NULL;
}

/* The join reads its other sides whole. */
static br_stage with_whole_sides(br_arena *arena, const br_stage *r, uint32_t input, bool passes) {
  br_stage out = *r;
  uint32_t *map = br_arena_alloc(arena, (r->n_inputs + 1) * sizeof *map);
  const char **items = br_arena_alloc(arena, (r->n_inputs + 1) * sizeof *items);
  out.inputs = br_arena_alloc(arena, (r->n_inputs + 1) * sizeof *out.inputs);
  for (uint32_t i = 0; i < r->n_inputs; i++) {
    map[i] = i;
    out.inputs[i] = r->inputs[i];
    if (r->inputs[i].kind == BR_EX_BROADCAST) out.inputs[i].n_keys = 0; /* of another side that was taken in */
    if (i == input || r->inputs[i].kind != BR_EX_HASH) continue;
    items[i] = not_null(arena, &r->inputs[i]);
    out.inputs[i].kind = BR_EX_BROADCAST;
    out.inputs[i].side = 0;
    if (!passes) out.inputs[i].n_keys = 0;
  }
  out.sql = renumbered(arena, r, map, items);
  out.pass_keys = passes ? r->inputs[input].keys : NULL;
  out.n_pass_keys = passes ? r->inputs[input].n_keys : 0;
  return out;
}

br_stage br_stage_join_in_place(br_arena *arena, const br_stages *s, uint32_t producer, uint32_t reader,
                                uint32_t input) {
  br_stage hashed = s->stages[reader];
  const br_stage *r = &hashed;
  hashed.pass_keys = NULL;
  hashed.sql = without_passes(arena, hashed.sql);
  /* What comes out otherwise at each run can't be run once a pass. */
  bool passes = br_stage_splittable(r) && !s->stages[producer].chance;
  br_stage p = without_filters_of(arena, s, &s->stages[producer], r), join = with_whole_sides(arena, r, input, passes);
  br_buf b = {0};
  br_buf_str(&b, "(SELECT ");
  for (size_t i = 0; i < p.n_columns; i++) br_buf_printf(&b, "%st.c%zu", i ? ", " : "", i); /* not the partition */
  br_buf_printf(&b, " FROM (\n%s\n) t%s)", p.sql, passes ? " " BR_PASS_HERE : "");
  br_stage out = br_stage_fold(arena, &join, input, &p, br_buf_cstr(&b));
  br_buf_free(&b);
  return out;
}
