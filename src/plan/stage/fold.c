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
 * And for stages of one task with few rows, which follow each other: one task does what all of them do. A sort by ranges whose rows turn
 * out few takes in the stage that places them; their sample and its bounds are not needed then.
 *
 * Order of calls: br_stage_may_…, then the function of that name without it; br_stage_fold alone. Threads: none. Bounds: none.
 */
#include "plan/stage/stage.h"

#include <stdlib.h>
#include <string.h>

#define FEW_ROWS "few rows"

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

/* ---- stages of one task */

static size_t times_read(const br_stage *s, uint32_t input) {
  size_t times = 0;
  for (const char *at = s->sql; *at;) {
    int64_t number;
    at += br_stage_piece(s->sql, at, &number);
    times += number == (int64_t)input;
  }
  return times;
}

/* Nothing about it is decided by what its inputs turn out to be, but how many tasks share them, and few rows are little work. */
static bool decided(const br_stage *s) {
  if (!plain(s) || s->split_scan >= 0 || s->makes_bloom || s->enough_rows || br_stage_much_work(s)) return false;
  for (size_t i = 0; i < s->n_inputs; i++)
    if (br_exchange_helps(s->inputs[i].kind) || s->inputs[i].kind == BR_EX_KEYS || s->inputs[i].kind == BR_EX_BOUNDS)
      return false;
  return true;
}

static size_t parted_inputs(const br_stage *s) {
  size_t n = 0;
  for (size_t i = 0; i < s->n_inputs; i++) n += s->inputs[i].kind == BR_EX_HASH || s->inputs[i].kind == BR_EX_RANGE;
  return n;
}

bool br_stage_may_gather(const br_stages *of, uint32_t stage) {
  const br_stage *s = &of->stages[stage];
  return s->rule == BR_TASKS_FORWARD && decided(s) && !s->ordered_output && s->output != BR_EX_RESULT &&
         !br_stage_leads_to_much_work(of, stage);
}

void br_stage_gather(br_stage *s) {
  s->rule = BR_TASKS_ONE;
  s->one_task_reason = FEW_ROWS;
  for (size_t i = 0; i < s->n_inputs; i++) s->inputs[i].ordered |= s->inputs[i].kind == BR_EX_FORWARD;
}

bool br_stage_may_chain(const br_stages *s, uint32_t producer, uint32_t *reader, uint32_t *input) {
  const br_stage *p = &s->stages[producer];
  if (!decided(p) || p->ordered_output || p->n_columns == 0 || !only_reader(s, producer, reader, input)) return false;
  const br_stage *r = &s->stages[*reader];
  const br_stage_input *in = &r->inputs[*input];
  if (!decided(r) || in->ordered || times_read(r, *input) != 1) return false; /* it would be computed as often */
  if (in->kind == BR_EX_HASH)
    return r->rule == BR_TASKS_PARTITIONS && !p->fixed_partitions && parted_inputs(r) == 1 &&
           !br_stage_leads_to_much_work(s, *reader);
  if (r->rule != BR_TASKS_ONE && r->rule != BR_TASKS_FORWARD) return false;
  return in->kind == BR_EX_FORWARD || in->kind == BR_EX_SINGLE || in->kind == BR_EX_BROADCAST;
}

/* The producer's rows as an item of FROM in the reader, which is one task then. No passes: one that sorts, say, can't be run in parts. */
static br_stage in_one_task(br_arena *arena, const br_stage *reader, uint32_t input, const br_stage *producer) {
  br_stage p = *producer, r = *reader;
  p.sql = br_stage_without_groups(arena, without_passes(arena, p.sql));
  r.sql = without_passes(arena, r.sql);
  r.pass_keys = NULL;
  r.n_pass_keys = 0;
  br_buf b = {0};
  br_buf_str(&b, "(SELECT ");
  for (size_t i = 0; i < p.n_columns; i++) br_buf_printf(&b, "%st.c%zu", i ? ", " : "", i); /* not a partition or key */
  br_buf_printf(&b, " FROM (\n%s\n) t)", p.sql);
  br_stage out = br_stage_fold(arena, &r, input, &p, br_buf_cstr(&b));
  br_buf_free(&b);
  out.rule = BR_TASKS_ONE;
  out.one_task_reason = FEW_ROWS;
  return out;
}

br_stage br_stage_chain(br_arena *arena, const br_stages *s, uint32_t producer, uint32_t reader, uint32_t input) {
  return in_one_task(arena, &s->stages[reader], input, &s->stages[producer]);
}

/* ---- sorts of few rows */

static bool reads(const br_stage *s, size_t n_inputs, size_t i, br_exchange_kind kind) {
  return s->n_inputs == n_inputs && s->inputs[i].kind == kind && !s->n_scans && plain(s);
}

bool br_stage_may_sort_at_once(const br_stages *s, uint32_t sample, br_sort_stages *out) {
  const br_stage *first = &s->stages[sample];
  uint32_t input;
  if (first->rule != BR_TASKS_FORWARD || !reads(first, 1, 0, BR_EX_FORWARD)) return false;
  out->rows = first->inputs[0].producer;
  if (!only_reader(s, sample, &out->bounds, &input)) return false;
  const br_stage *bounds = &s->stages[out->bounds];
  if (bounds->rule != BR_TASKS_ONE || bounds->output != BR_EX_BOUNDS || !reads(bounds, 1, 0, BR_EX_SINGLE))
    return false;
  if (!only_reader(s, out->bounds, &out->place, &input) || input != 1) return false;
  const br_stage *place = &s->stages[out->place];
  if (place->rule != BR_TASKS_FORWARD || place->output != BR_EX_RANGE || place->n_columns == 0) return false;
  if (place->fixed_partitions || !reads(place, 2, 0, BR_EX_FORWARD)) return false;
  if (place->inputs[0].producer != out->rows || !only_reader(s, out->place, &out->sort, &input)) return false;
  const br_stage *sort = &s->stages[out->sort];
  if (sort->rule != BR_TASKS_PARTITIONS || !reads(sort, 1, 0, BR_EX_RANGE) || sort->inputs[0].ordered) return false;
  return times_read(sort, 0) == 1 && !br_stage_much_work(place) && !br_stage_leads_to_much_work(s, out->sort);
}

br_stage br_stage_sort_at_once(br_arena *arena, const br_stages *s, const br_sort_stages *of) {
  br_stage place = s->stages[of->place];
  place.n_inputs = 1; /* bounds are the sink's, not its text's */
  return in_one_task(arena, &s->stages[of->sort], 0, &place);
}
