/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage is planned again before it starts, by what its inputs turned out to be: how many tasks, and which partitions and map outputs
 * each of them reads.
 *   filter     a Bloom filter is made only if it pays (bloom.c)
 *   nothing    a run-time filter without keys lets no row pass, or no partition has a row: no task
 *   fewer      splits that have no value in the range of a filter's keys are not read
 *   coalesced  small partitions that follow each other go to one task, the same ones of all inputs
 *   in place   rows that go to a join whose other side is small are joined where they are made (adapt_join.c)
 *   split      a partition much larger than a slot's share is read by several tasks, each some map outputs of one side and all of the others
 *   gathered   tasks that follow others one by one, with few rows, become one
 *   chained    stages of one task with few rows are done by the last of them; few rows are not sorted by ranges (all three: adapt_chain.c)
 *   joined     splits go together where each task builds large tables of what all of them read
 *
 * What was decided holds: when inputs are lost later and made again, the same tasks read the same slices of them. So nothing is decided
 * by sizes that may come out differently the next time, but how rows are shared out.
 *
 * Order of calls: br_query_adapts when the query starts, br_query_adapt once a stage. With the query's lock, on the loop thread. Bounds:
 * O(tasks + partitions) a question.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/query.h"

#define LEAST_BYTES (2u << 20)       /* of a task that reads an exchange: less is not worth starting one */
#define SPLIT_LEAST_BYTES (4u << 20) /* of a partition that is split */
#define ROWS_A_TABLE_ROW 32 /* a task of a scan looks at so many rows for each row of the tables that it builds */
#define SPLIT_SHARES 1.25   /* a partition is split when it has more than so many of a slot's even shares */

static bool reads_parts(const br_stage_input *in) { return in->kind == BR_EX_HASH || in->kind == BR_EX_RANGE; }

bool br_query_adapts_much(const br_query *q, uint32_t stage) {
  const br_stage *s = q->runs[stage].plan;
  for (size_t i = 0; i < s->n_inputs && q->adaptive; i++)
    if (s->inputs[i].kind == BR_EX_KEYS || br_exchange_helps(s->inputs[i].kind) ||
        (s->rule == BR_TASKS_PARTITIONS && reads_parts(&s->inputs[i])))
      return true;
  return false;
}

bool br_query_adapts(const br_query *q, uint32_t stage) {
  const br_stage_run *r = &q->runs[stage];
  for (size_t i = 0; i < r->plan->n_inputs && q->adaptive && r->split_files != NULL; i++)
    if (r->plan->inputs[i].kind == BR_EX_BROADCAST) return true;
  if (br_query_adapts_much(q, stage)) return true;
  return q->adaptive && (br_query_may_sort_at_once(q, stage) || br_query_may_gather(q, stage));
}

void br_query_say(br_stage_run *r, const char *fmt, ...) {
  br_buf b = {0};
  va_list ap;
  if (r->adapted) br_buf_printf(&b, "%s, ", r->adapted);
  va_start(ap, fmt);
  br_buf_vprintf(&b, fmt, ap);
  va_end(ap);
  free(r->adapted);
  r->adapted = br_buf_take(&b);
}

/* ---- the number of tasks */

void br_query_set_tasks(br_query *q, br_stage_run *r, uint32_t n) {
  for (uint32_t i = n; r->split_sql != NULL && i < r->n_tasks; i++) free(r->split_sql[i]);
  free(r->tasks);
  r->tasks = br_calloc(n, sizeof *r->tasks);
  r->n_tasks = n;
  if (r != &q->runs[q->n_runs - 1]) return;
  free(q->results);
  q->n_results = n;
  q->results = br_calloc(n ? n : 1, sizeof *q->results);
}

/* Who reads a stage task by task has as many tasks. None of these has started. */
static void follow(br_query *q) {
  for (size_t i = 0; i < q->n_runs; i++) {
    br_stage_run *r = &q->runs[i];
    uint32_t n = 0;
    if (r->plan->rule != BR_TASKS_FORWARD) continue;
    for (size_t k = 0; k < r->plan->n_inputs; k++)
      if (r->plan->inputs[k].kind == BR_EX_FORWARD) n += q->runs[r->plan->inputs[k].producer].n_tasks;
    if (n != r->n_tasks) br_query_set_tasks(q, r, n);
  }
}

/* ---- nothing to do */

/* Their number was asked for, or stands for something. */
static bool may_change(const br_query *q, const br_stage *s) {
  if (s->n_steps > 0 || s->batch_rows > 0) return false;
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_input *in = &s->inputs[i];
    if (reads_parts(in) && (in->ordered || q->runs[in->producer].plan->fixed_partitions)) return false;
  }
  return true;
}

bool br_query_by_chance(const br_query *q, uint32_t stage) {
  bool *chance = br_calloc(stage + 1, sizeof *chance);
  for (uint32_t i = 0; i <= stage; i++) { /* a producer comes before those who read it; many may read one */
    const br_stage *s = q->runs[i].plan;
    chance[i] = s->indeterminate;
    for (size_t k = 0; k < s->n_inputs && !chance[i]; k++) chance[i] = chance[s->inputs[k].producer];
  }
  bool found = chance[stage];
  free(chance);
  return found;
}

static bool let_none_pass(br_query *q, br_stage_run *r) {
  if (r->plan->rule == BR_TASKS_FORWARD) return false; /* as many tasks as what it reads */
  for (size_t i = 0; i < r->plan->n_inputs; i++) {
    const br_stage_input *in = &r->plan->inputs[i];
    if (in->kind != BR_EX_FILTER || q->runs[in->producer].rows_out > 0 || br_query_by_chance(q, in->producer)) continue;
    br_query_say(r, "no rows: stage %u has no keys that they could meet", in->producer);
    br_query_set_tasks(q, r, 0);
    return true;
  }
  return false;
}

/* What every task has of constants and broadcast sides shows only beside rows of its partition. The last stage
 * runs: a statement that writes files wants one also without rows. */
static bool has_nothing(br_query *q, br_stage_run *r) {
  size_t n = 0, empty = 0, beside_empty = 0;
  if (r->plan->rule != BR_TASKS_PARTITIONS || !may_change(q, r->plan) || r == &q->runs[q->n_runs - 1]) return false;
  for (size_t i = 0; i < r->plan->n_inputs; i++) {
    const br_stage_input *in = &r->plan->inputs[i];
    if (!reads_parts(in)) continue;
    bool is_empty = q->runs[in->producer].rows_out == 0 && !br_query_by_chance(q, in->producer);
    n++;
    empty += is_empty;
    beside_empty += !is_empty && in->beside_others;
  }
  /* Of two inputs one is empty, and the other one's rows show beside its rows alone. */
  if (empty == 0 || (empty < n && (n != 2 || beside_empty != 1))) return false;
  br_query_say(r, "no rows: nothing was shuffled%s", empty < n ? " of one side" : "");
  br_query_set_tasks(q, r, 0);
  return true;
}

static void leave_splits_out(br_query *q, br_stage_run *r) {
  uint32_t before = r->n_tasks, n = br_filter_splits(q, r);
  if (n == before) return;
  br_query_say(r, "%u of %u splits: no keys that the others could meet", n, before);
  br_query_set_tasks(q, r, n);
}

/* ---- slices */

typedef struct cut {
  const br_query *q;
  br_stage_run *r;
  uint32_t partitions;
  uint64_t *bytes; /* [partitions] of all inputs together */
  uint64_t total;
  br_slice *slices;
  size_t n, cap;
} cut;

static void sum_up(cut *c) {
  const br_stage *s = c->r->plan;
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_run *p = &c->q->runs[s->inputs[i].producer];
    if (!reads_parts(&s->inputs[i])) continue;
    if (c->bytes == NULL) {
      c->partitions = p->plan->partitions;
      c->bytes = br_calloc(c->partitions, sizeof *c->bytes);
    }
    for (uint32_t k = 0; k < c->partitions; k++) {
      c->bytes[k] += p->partition_bytes[k];
      c->total += p->partition_bytes[k];
    }
  }
}

/* Tasks for so many bytes: of the wanted size, in whole waves; no fewer than there are slots unless they would be tiny, and few rows are
 * little work, here and in the stages that follow task by task. */
static uint64_t good_number(const cut *c) {
  uint64_t slots = c->q->slots ? c->q->slots : 1, n = c->total / c->q->task_target_bytes + 1;
  bool much = c->total > 0 && br_stage_leads_to_much_work(c->q->stages, (uint32_t)(c->r - c->q->runs));
  if (n > slots || much) return (n + slots - 1) / slots * slots;
  n = c->total / (c->q->task_target_bytes < LEAST_BYTES ? c->q->task_target_bytes : LEAST_BYTES) + 1;
  return n < slots ? n : slots;
}

static void add(cut *c, br_slice s) {
  br_grow((void **)&c->slices, &c->cap, c->n, sizeof *c->slices);
  c->slices[c->n++] = s;
}

/* Map outputs of a side, and how many bytes of a partition they have. */
typedef struct side {
  uint32_t number;
  uint64_t bytes;
  uint32_t maps;
} side;

static side measure_side(const cut *c, uint32_t number, uint32_t partition) {
  side s = {.number = number};
  for (size_t i = 0; i < c->r->plan->n_inputs; i++) {
    const br_stage_input *in = &c->r->plan->inputs[i];
    if (!reads_parts(in) || in->side != number) continue;
    s.bytes += c->q->runs[in->producer].partition_bytes[partition];
    s.maps += c->q->runs[in->producer].n_tasks;
  }
  return s;
}

static side largest_side(const cut *c, uint32_t partition) {
  side best = {0};
  for (size_t i = 0; i < c->r->plan->n_inputs; i++) {
    const br_stage_input *in = &c->r->plan->inputs[i];
    side s = reads_parts(in) && in->side != 0 ? measure_side(c, in->side, partition) : (side){0};
    if (s.bytes > best.bytes) best = s;
  }
  return best;
}

/* In how many tasks: pieces of half a slot's share, as long as the others' rows, which all of them read, are not the larger part. */
static uint32_t pieces(const cut *c, uint32_t partition, side *s) {
  uint64_t share = c->total / (c->q->slots ? c->q->slots : 1), bytes = c->bytes[partition];
  uint64_t least = c->q->task_target_bytes && c->q->task_target_bytes < SPLIT_LEAST_BYTES ? c->q->task_target_bytes
                                                                                          : SPLIT_LEAST_BYTES;
  if (c->q->slots < 2 || bytes < least || (double)bytes < SPLIT_SHARES * (double)share) return 1;
  *s = largest_side(c, partition);
  uint64_t n = bytes * 2 / (share + 1) + 1, others = bytes - s->bytes;
  if (n > s->maps) n = s->maps;
  if (n > 2ull * c->q->slots) n = 2ull * c->q->slots;
  if (n > 1 && others > 0 && n - 1 > s->bytes / others) n = s->bytes / others + 1;
  return (uint32_t)n;
}

/* [maps + 1]: rows of a side's map outputs before each of them. */
static uint64_t *rows_before(const cut *c, const side *s) {
  uint64_t *rows = br_calloc(s->maps + 1u, sizeof *rows);
  uint32_t at = 0;
  for (size_t i = 0; i < c->r->plan->n_inputs; i++) {
    const br_stage_run *p = &c->q->runs[c->r->plan->inputs[i].producer];
    if (!reads_parts(&c->r->plan->inputs[i]) || c->r->plan->inputs[i].side != s->number) continue;
    for (uint32_t m = 0; m < p->n_tasks; m++, at++) rows[at + 1] = rows[at] + p->tasks[m].rows_out;
  }
  return rows;
}

/* As many rows of all partitions each: those of one are spread over the map outputs like those. */
static void split(cut *c, uint32_t partition, const side *s, uint32_t n) {
  uint64_t *rows = rows_before(c, s);
  uint32_t first = 0;
  for (uint32_t i = 1; i <= n; i++) {
    uint32_t to = first + 1;
    while (to < s->maps - (n - i) && rows[to] < rows[s->maps] / n * i) to++;
    if (i == n) to = s->maps;
    add(c,
        (br_slice){.first = partition, .last = partition + 1, .side = s->number, .map_first = first, .map_last = to});
    first = to;
  }
  br_query_say(c->r, "partition %u split in %u", partition, n);
  free(rows);
}

static void cut_slices(cut *c) {
  uint64_t limit = c->q->task_target_bytes ? c->total / good_number(c) : 0, have = 0;
  uint32_t first = 0;
  limit += limit / 8;
  for (uint32_t p = 0; p < c->partitions; p++) {
    side s = {0};
    uint32_t n = pieces(c, p, &s);
    if (p > first && (have + c->bytes[p] > limit || limit == 0 || n > 1)) {
      add(c, (br_slice){.first = first, .last = p});
      first = p;
      have = 0;
    }
    if (n > 1) {
      split(c, p, &s, n);
      first = p + 1;
      continue;
    }
    have += c->bytes[p];
  }
  if (first < c->partitions) add(c, (br_slice){.first = first, .last = c->partitions});
}

static void plan_slices(br_query *q, br_stage_run *r) {
  cut c = {.q = q, .r = r};
  if (r->plan->rule != BR_TASKS_PARTITIONS || !may_change(q, r->plan)) return;
  sum_up(&c);
  if (c.partitions == r->n_tasks && c.partitions > 0) {
    cut_slices(&c);
    if (c.n < c.partitions) br_query_say(r, "coalesced %u → %zu", c.partitions, c.n);
    br_query_set_tasks(q, r, (uint32_t)c.n);
    r->slices = c.slices;
  }
  free(c.bytes);
}

/* ---- splits that go together */

/* Rows of what every task of the stage reads whole, and builds a hash table of. */
static uint64_t table_rows(const br_query *q, const br_stage_run *r) {
  uint64_t rows = 0;
  for (size_t i = 0; i < r->plan->n_inputs; i++) {
    const br_stage_input *in = &r->plan->inputs[i];
    if (in->kind == BR_EX_BROADCAST || (in->kind == BR_EX_FILTER && br_filter_pays(q, r, in)))
      rows += q->runs[in->producer].rows_out;
  }
  return rows;
}

/* At most n, at least one a slot, and such that no file is cut if there is such a number. */
static uint64_t fewer_splits(const br_query *q, const br_stage_run *r, uint64_t n) {
  uint64_t slots = q->slots ? q->slots : 1, files = br_snapshot_files(r->split_files);
  if (n < slots) n = slots;
  if (n >= r->n_tasks) return r->n_tasks;
  for (uint64_t k = n; k >= slots; k--)
    if (files % k == 0 || k % files == 0) return k;
  return n;
}

static void join_splits(br_query *q, br_stage_run *r) {
  uint64_t rows = r->split_files != NULL ? table_rows(q, r) : 0;
  if (rows == 0) return;
  uint32_t before = r->n_tasks, wanted = (uint32_t)fewer_splits(q, r, r->split_rows / (rows * ROWS_A_TABLE_ROW));
  br_split_options o = {.min_splits = wanted, .max_splits = wanted};
  br_split *splits = NULL;
  br_error ignored; /* it was cut before */
  size_t n = 0;
  if (wanted >= before || br_snapshot_splits(r->split_files, &o, &splits, &n, &ignored) != BR_OK) return;
  br_query_set_tasks(q, r, (uint32_t)n);
  for (size_t k = 0; k < n; k++) {
    br_buf b = {0};
    br_split_sql(r->split_files, &splits[k], r->split_options, &b);
    free(r->split_sql[k]);
    r->split_sql[k] = br_buf_take(&b);
  }
  br_filter_facts_free(r);
  br_filter_facts(r, r->split_files, splits, n);
  br_splits_free(splits, n);
  br_query_say(r, "splits joined %u → %zu: each task builds tables of %llu rows", before, n, (unsigned long long)rows);
}

void br_query_adapt(br_query *q, uint32_t stage) {
  br_stage_run *r = &q->runs[stage];
  uint32_t before = r->n_tasks;
  br_stage *s = &q->stages->stages[stage];
  if (s->makes_bloom) {
    br_bloom_decide(q, r);
    return;
  }
  while (s->n_inputs > 0 && s->inputs[s->n_inputs - 1].kind == BR_EX_WAIT) s->n_inputs--; /* it is there now */
  if (!br_query_sort_at_once(q, stage) && !let_none_pass(q, r) && !has_nothing(q, r)) {
    leave_splits_out(q, r);
    bool all = r->n_tasks == before;
    if (!br_query_join_in_place(q, stage)) {
      plan_slices(q, r);
      if (all) join_splits(q, r);
    }
  }
  br_query_gather(q, stage);
  follow(q);
  br_query_chain(q, stage);
  follow(q);
}
