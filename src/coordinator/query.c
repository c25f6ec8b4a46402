/* SPDX-License-Identifier: Apache-2.0
 * A distributed query's memory: creation, reference counts, the number of its tasks. Threads: see query.h. */
#include "coordinator/query.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "coordinator/dataset.h"

#define MAX_TASKS_A_STAGE 1000000u

br_query *br_query_new(uint64_t id) {
  br_query *q = br_calloc(1, sizeof *q);
  q->id = id;
  atomic_init(&q->refs, 1);
  q->codec = "none";
  pthread_mutex_init(&q->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&q->changed, &attr);
  pthread_condattr_destroy(&attr);
  return q;
}

br_query *br_query_ref(br_query *q) {
  atomic_fetch_add(&q->refs, 1);
  return q;
}

static void free_strings(char **s, size_t n) {
  for (size_t i = 0; s != NULL && i < n; i++) free(s[i]);
  free(s);
}

static void free_run(br_stage_run *r) {
  for (size_t i = 0; r->datasets != NULL && i < r->plan->n_scans; i++) {
    br_dataset_unref(r->datasets[i].dataset);
    free(r->datasets[i].cuts);
  }
  free(r->datasets);
  br_filter_facts_free(r);
  free_strings(r->split_sql, r->n_tasks);
  free_strings(r->whole_sql, r->plan ? r->plan->n_scans : 0);
  free(r->tasks);
  free(r->partition_rows);
  free(r->partition_bytes);
  free(r->ranges);
  free(r->slices);
  free(r->adapted);
  free(r->steps);
}

void br_query_unref(br_query *q) {
  if (q == NULL || atomic_fetch_sub(&q->refs, 1) != 1) return;
  for (size_t i = 0; i < q->n_runs; i++) free_run(&q->runs[i]);
  free(q->runs);
  br_stages_free(q->stages);
  free_strings(q->names, q->n_columns);
  free_strings(q->types, q->n_columns);
  free_strings(q->prelude, q->n_prelude);
  free_strings(q->prelude_views, q->n_prelude_views);
  for (size_t i = 0; i < q->n_settings; i++) {
    free(q->settings[i].name);
    free(q->settings[i].value);
  }
  free(q->settings);
  for (size_t i = 0; i < q->n_snapshots; i++) br_snapshot_free(q->snapshots[i]);
  free(q->snapshots);
  br_shared_close(q);
  free(q->shared_dir);
  free(q->functions);
  free(q->results);
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->lock);
  free(q);
}

static uint64_t count_stage(const br_query *q, const br_stage *s, uint32_t splits) {
  uint64_t n = 0;
  switch (s->rule) {
    case BR_TASKS_ONE: return 1;
    case BR_TASKS_SPLITS: return splits;
    case BR_TASKS_PARTITIONS:
      for (size_t i = 0; i < s->n_inputs; i++) {
        const br_stage_input *in = &s->inputs[i];
        if (in->kind == BR_EX_HASH || in->kind == BR_EX_RANGE) return q->runs[in->producer].plan->partitions;
      }
      return 1;
    case BR_TASKS_FORWARD:
      for (size_t i = 0; i < s->n_inputs; i++)
        if (s->inputs[i].kind == BR_EX_FORWARD) n += q->runs[s->inputs[i].producer].n_tasks;
      return n;
  }
  return 1;
}

br_status br_query_count_tasks(br_query *q, br_error *err) {
  for (size_t i = 0; i < q->n_runs; i++) {
    br_stage_run *r = &q->runs[i];
    uint64_t n = count_stage(q, r->plan, r->n_tasks);
    if (n > MAX_TASKS_A_STAGE)
      return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "stage %zu would have %llu tasks, more than %u: use fewer partitions or larger files", i,
                     (unsigned long long)n, MAX_TASKS_A_STAGE);
    r->n_tasks = (uint32_t)n;
    r->tasks = br_calloc(n, sizeof *r->tasks);
    r->partition_rows = br_calloc(r->plan->partitions ? r->plan->partitions : 1, sizeof *r->partition_rows);
    r->partition_bytes = br_calloc(r->plan->partitions ? r->plan->partitions : 1, sizeof *r->partition_bytes);
    r->ranges = br_calloc(r->plan->n_ranged + 1, sizeof *r->ranges);
  }
  br_stage_run *last = &q->runs[q->n_runs - 1];
  q->n_results = last->n_tasks;
  q->results = br_calloc(q->n_results ? q->n_results : 1, sizeof *q->results);
  return BR_OK;
}
