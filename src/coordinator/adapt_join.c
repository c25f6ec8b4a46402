/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash join becomes a broadcast join. A stage whose rows go by hash to one join waits until the join's other side has run (its run-time
 * filter makes it wait). If that side turned out small, every task may read all of it: then the rows are joined where they are made, by
 * the tasks that make them, and are not shuffled at all. The stage becomes a part of the join's, which takes its splits over.
 *
 * The text and where it is right: plan/stage/fold.c. Here: does it pay, and what moves from one run to the other. With the query's
 * lock, on the loop thread. Bounds: once a stage.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/query.h"

#define BUILD_ROWS 4 /* rows that can be read for the price of one that is put into a join's table */

/* Rows that the stage's tasks have to look at, each once. */
static uint64_t rows_read(const br_query *q, const br_stage_run *r) {
  uint64_t rows = r->split_rows;
  for (size_t i = 0; i < r->plan->n_inputs; i++)
    if (!br_exchange_helps(r->plan->inputs[i].kind) && r->plan->inputs[i].kind != BR_EX_BROADCAST)
      rows += q->runs[r->plan->inputs[i].producer].rows_out;
  return rows;
}

/* Small partitions will be read together. */
static uint64_t tasks_about(const br_query *q, const br_stage_run *r) {
  uint64_t few = 2ull * (q->slots ? q->slots : 1), n = r->n_tasks ? r->n_tasks : 1;
  return r->plan->rule == BR_TASKS_PARTITIONS && n > few ? few : n;
}

/* All other sides are there and small, and building their tables once a task costs less than what the tasks do anyway. */
static bool pays(const br_query *q, const br_stage_run *p, const br_stage *join, uint32_t input, uint64_t *bytes) {
  uint64_t rows = 0;
  *bytes = 0;
  for (uint32_t i = 0; i < join->n_inputs; i++) {
    const br_stage_run *side = &q->runs[join->inputs[i].producer];
    if (i == input || join->inputs[i].kind != BR_EX_HASH) continue;
    if (side->done < side->n_tasks) return false;
    rows += side->rows_out;
    *bytes += side->bytes_out;
  }
  return *bytes <= q->broadcast_bytes && rows * tasks_about(q, p) * BUILD_ROWS <= rows_read(q, p);
}

/* Scans follow those of the other one: a dataset's input is named by the place of its scan. */
void br_query_take_scans(br_stage_run *r, const br_stage *was, br_stage_run *p) {
  size_t first = p->plan->n_scans, n = first + was->n_scans;
  char **whole = br_calloc(n + 1, sizeof *whole);
  br_dataset_scan *datasets = br_calloc(n + 1, sizeof *datasets);
  for (size_t i = 0; i < n; i++) {
    br_stage_run *from = i < first ? p : r;
    size_t at = i < first ? i : i - first;
    whole[i] = from->whole_sql ? from->whole_sql[at] : NULL;
    if (from->datasets) datasets[i] = from->datasets[at];
    if (i < first || datasets[i].dataset == NULL) continue;
    free(whole[i]);
    whole[i] = br_asprintf("input(%zu)", BR_DATASET_INPUT + i);
  }
  free(r->whole_sql);
  free(r->datasets);
  free(p->whole_sql);
  free(p->datasets);
  r->whole_sql = whole;
  r->datasets = datasets;
  p->whole_sql = NULL;
  p->datasets = NULL;
}

/* The join's run does the stage's tasks; that one has none. */
static void take_tasks(br_query *q, br_stage_run *r, const br_stage *was, br_stage_run *p) {
  br_query_take_scans(r, was, p);
  br_query_set_tasks(q, r, p->n_tasks);
  r->split_sql = p->split_sql;
  r->split_rows = p->split_rows;
  r->cut_sql = p->cut_sql; /* the stage's scans come first in the join's, too */
  r->n_cut = p->n_cut;
  p->split_sql = NULL;
  p->split_rows = 0;
  br_filter_facts_free(p); /* of the keys that the join itself reads now */
  p->split_facts = NULL;
  p->split_ranges = NULL;
  br_query_set_tasks(q, p, 0);
}

static bool may_join(const br_query *q, uint32_t stage, uint32_t *reader, uint32_t *input, uint64_t *bytes) {
  const br_stages *s = q->stages;
  if (!br_stage_may_join_in_place(s, stage, reader, input)) return false;
  if (q->runs[stage].started > 0 || q->runs[*reader].started > 0) return false;
  return pays(q, &q->runs[stage], &s->stages[*reader], *input, bytes);
}

bool br_query_may_join_in_place(const br_query *q, uint32_t stage) {
  uint32_t reader, input;
  uint64_t bytes;
  return may_join(q, stage, &reader, &input, &bytes);
}

bool br_query_join_in_place(br_query *q, uint32_t stage) {
  br_stages *s = q->stages;
  uint32_t reader, input;
  uint64_t bytes;
  char size[16];
  if (!may_join(q, stage, &reader, &input, &bytes)) return false;
  br_stage_run *p = &q->runs[stage], *r = &q->runs[reader];
  br_stage was = s->stages[reader];
  br_format_bytes(bytes, size);
  br_query_say(p, "runs in stage %u", reader);
  br_query_say(r, "broadcast join: the other side of stage %u has %s, each task reads all of it", stage, size);
  s->stages[reader] = br_stage_join_in_place(s->arena, s, stage, reader, input);
  s->stages[stage].n_inputs = 0;
  r->joins_in_place = true;
  take_tasks(q, r, &was, p);
  return true;
}
