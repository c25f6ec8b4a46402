/* SPDX-License-Identifier: Apache-2.0
 *
 * A partial step, which groups a task's rows before they move, is left out where it drops next to none: nobody knows how many keys
 * there are before some rows were seen, so each task of such a stage counts what its grouping reads and makes, and when nearly each row
 * was a group of its own, tasks that start later pass their rows on as they are. The reader groups them in any case.
 *
 * Which form a task has is decided with its first attempt, and holds for all others: made again it gives the same rows. One task in
 * COUNTED_EVERY goes on grouping, so that keys which come to repeat later are seen.
 *
 * Order of calls: br_groups_count for each task that is done, br_groups_decide for each attempt before its message is made. With the
 * query's lock, on the loop thread. Bounds: none.
 */
#include "coordinator/query.h"

#define LEAST_ROWS 5000    /* grouped before anything is known */
#define OF_ROWS_PERCENT 66 /* groups for each 100 rows, from which on grouping costs more than the rows that it drops */
#define COUNTED_EVERY 16

void br_groups_count(br_stage_run *r, const Brant__Pb__TaskStats *s) {
  r->grouped_rows += s->grouped_rows;
  r->groups += s->groups;
}

static bool hardly_fewer(const br_stage_run *r) {
  return r->grouped_rows >= LEAST_ROWS && r->groups >= r->grouped_rows / 100 * OF_ROWS_PERCENT;
}

bool br_groups_wanted(const br_query *q, const br_attempt_id *id) {
  const br_stage_run *r = &q->runs[id->stage];
  uint32_t at_once = q->slots ? q->slots : 1; /* who starts with the first ones can't learn from them */
  return q->adaptive && r->plan->row_columns != NULL && r->n_tasks > 2 * at_once && !r->tasks[id->task].of_rows;
}

bool br_groups_decide(br_query *q, const br_attempt_id *id) {
  br_stage_run *r = &q->runs[id->stage];
  if (!q->adaptive || r->plan->row_columns == NULL || id->attempt != 1) return false;
  r->tasks[id->task].of_rows = hardly_fewer(r) && id->task % COUNTED_EVERY != 0;
  if (!r->tasks[id->task].of_rows || r->tasks_of_rows++ > 0) return false;
  br_query_say(r, "rows move as they are: %llu rows were %llu groups", (unsigned long long)r->grouped_rows,
               (unsigned long long)r->groups);
  return true;
}
