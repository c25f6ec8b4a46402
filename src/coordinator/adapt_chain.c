/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages with few rows become fewer. A stage costs its way from the coordinator to an executor and back, and a statement: some
 * milliseconds, more than its work where it has a few thousand rows.
 *   sort at once   rows that were to be sorted by ranges are few: one task sorts them all, without a sample, its bounds and the ranges
 *   gather         tasks that follow others one by one, whose outputs are little together: one task does what they do
 *   chain          stages of one task that follow each other, from the asked one on: the last one does the work of all
 * By the true sizes of what is there already: at most LITTLE_BYTES go in.
 *
 * The texts and where they are right: plan/stage/fold.c. With the query's lock, on the loop thread. Bounds: O(stages²) a question.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/query.h"

#define LITTLE_BYTES (2u << 20)

/* task_target_bytes 0: as many tasks as partitions, whatever their sizes. */
static uint64_t little_bytes(const br_query *q) {
  return q->task_target_bytes < LITTLE_BYTES ? q->task_target_bytes : LITTLE_BYTES;
}

static bool is_done(const br_stage_run *r) { return r->done == r->n_tasks; }

static bool has_one_task(const br_stage_run *r) { return r->n_tasks == 1 && r->started == 0; }

/* It has no tasks: what it had to do is done elsewhere, or not at all. */
static void leave_out(br_query *q, uint32_t stage) {
  q->stages->stages[stage].n_inputs = 0;
  br_query_set_tasks(q, &q->runs[stage], 0);
}

/* ---- sort at once */

bool br_query_may_sort_at_once(const br_query *q, uint32_t stage) {
  br_sort_stages of;
  return q->stages != NULL && little_bytes(q) > 0 && br_stage_may_sort_at_once(q->stages, stage, &of);
}

bool br_query_sort_at_once(br_query *q, uint32_t stage) {
  br_stages *s = q->stages;
  br_sort_stages of;
  if (s == NULL || little_bytes(q) == 0 || !br_stage_may_sort_at_once(s, stage, &of)) return false;
  if (q->runs[of.rows].bytes_out > little_bytes(q)) return false;
  br_stage_run *sort = &q->runs[of.sort];
  if (q->runs[stage].started + q->runs[of.bounds].started + q->runs[of.place].started + sort->started > 0) return false;
  s->stages[of.sort] = br_stage_sort_at_once(s->arena, s, &of);
  leave_out(q, stage);
  leave_out(q, of.bounds);
  leave_out(q, of.place);
  br_query_set_tasks(q, sort, 1);
  br_query_say(&q->runs[stage], "no ranges: few rows to sort");
  br_query_say(sort, "all %llu rows in one task", (unsigned long long)q->runs[of.rows].rows_out);
  return true;
}

/* ---- gather */

bool br_query_may_gather(const br_query *q, uint32_t stage) {
  if (q->eager || q->stages == NULL || little_bytes(q) == 0 || !br_stage_may_gather(q->stages, stage)) return false;
  for (size_t i = 0; i < q->n_runs; i++)
    if (q->runs[i].plan->fixed_partitions) return false; /* a number that was asked for */
  return true;
}

void br_query_gather(br_query *q, uint32_t stage) {
  br_stage_run *r = &q->runs[stage];
  uint64_t bytes = 0;
  if (r->n_tasks < 2 || !br_query_may_gather(q, stage)) return;
  for (size_t i = 0; i < r->plan->n_inputs; i++)
    if (r->plan->inputs[i].kind == BR_EX_FORWARD) bytes += q->runs[r->plan->inputs[i].producer].bytes_out;
  if (bytes > little_bytes(q)) return;
  br_query_say(r, "few rows: %u tasks → 1", r->n_tasks);
  br_stage_gather(&q->stages->stages[stage]);
  br_query_set_tasks(q, r, 1);
}

/* ---- chain */

/* What goes in, in the end, is measured and little. */
static bool takes_little(const br_query *q, uint32_t stage, uint64_t *left) {
  const br_stage *s = q->runs[stage].plan;
  for (size_t i = 0; i < s->n_scans; i++) {
    if (!(s->scans[i].bytes >= 0 && s->scans[i].bytes <= (double)*left)) return false;
    *left -= (uint64_t)s->scans[i].bytes;
  }
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_run *from = &q->runs[s->inputs[i].producer];
    if (!is_done(from)) {
      if (!has_one_task(from) || !takes_little(q, s->inputs[i].producer, left)) return false;
      continue;
    }
    if (from->bytes_out > *left) return false;
    *left -= from->bytes_out;
  }
  return true;
}

/* [stages]: the stage, and all that depend on it (down: that it depends on). */
static bool *related(const br_query *q, uint32_t stage, bool down) {
  bool *is = br_calloc(q->n_runs, sizeof *is);
  is[stage] = true;
  for (uint32_t i = down ? stage : 0; down && i != UINT32_MAX; i--)
    for (size_t k = 0; is[i] && k < q->runs[i].plan->n_inputs; k++) is[q->runs[i].plan->inputs[k].producer] = true;
  for (uint32_t i = stage + 1; !down && i < q->n_runs; i++)
    for (size_t k = 0; k < q->runs[i].plan->n_inputs; k++) is[i] |= is[q->runs[i].plan->inputs[k].producer];
  return is;
}

/* The producer would wait for what else the reader reads: so that is there, or the producer waits for it anyway. */
static bool others_are_there(const br_query *q, uint32_t producer, uint32_t reader) {
  const br_stage *r = q->runs[reader].plan;
  bool *before = related(q, producer, true), there = true;
  for (size_t i = 0; i < r->n_inputs; i++)
    there &= before[r->inputs[i].producer] || is_done(&q->runs[r->inputs[i].producer]);
  free(before);
  return there;
}

static bool chain(br_query *q, uint32_t producer) {
  br_stages *s = q->stages;
  uint32_t reader, input;
  uint64_t left = little_bytes(q);
  if (!has_one_task(&q->runs[producer]) || br_query_may_sort_at_once(q, producer)) return false; /* that comes first */
  if (!br_stage_may_chain(s, producer, &reader, &input)) return false;
  bool hashed =
      s->stages[reader].inputs[input].kind == BR_EX_HASH; /* of one task's few rows: one is enough to read them */
  if (q->runs[reader].started > 0 || (q->runs[reader].n_tasks != 1 && !hashed) || !takes_little(q, producer, &left))
    return false;
  if (!others_are_there(q, producer, reader)) return false;
  br_stage was = s->stages[reader];
  s->stages[reader] = br_stage_chain(s->arena, s, producer, reader, input);
  br_query_take_scans(&q->runs[reader], &was, &q->runs[producer]);
  br_query_set_tasks(q, &q->runs[reader], 1);
  leave_out(q, producer);
  br_query_say(&q->runs[producer], "runs in stage %u", reader);
  br_query_say(&q->runs[reader], "with stage %u", producer);
  return true;
}

void br_query_chain(br_query *q, uint32_t stage) {
  if (q->eager || little_bytes(q) == 0) return; /* eager: stages run beside each other */
  bool *after = related(q, stage, false);
  for (bool again = true; again;) {
    again = false;
    for (uint32_t i = stage; i + 1 < q->n_runs; i++) again |= after[i] && chain(q, i);
  }
  free(after);
}
