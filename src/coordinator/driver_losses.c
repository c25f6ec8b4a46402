/* SPDX-License-Identifier: Apache-2.0
 * Which outputs one step of the scheduler gave up, and how many committed tasks have to run again for that. The scheduler alone
 * decides; here its state before and after the step is compared, so that events and explain say what was lost. Loop thread.
 * Order: br_losses_of_…, the step, br_losses_tell. Bounds: memory and time O(outputs of the worker), for losses only. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver_inside.h"

typedef struct stage_count {
  uint64_t query;
  uint32_t stage, committed;
} stage_count;

struct br_losses {
  br_map_output_id *outputs; /* alive before the step */
  size_t n, cap;
  stage_count *stages; /* of all queries that have one of the outputs */
  size_t n_stages, cap_stages;
};

static uint32_t committed(const br_driver *d, uint64_t query, uint32_t stage) {
  br_sched_counts c;
  return br_sched_stage_counts(d->sched, query, stage, &c) ? c.tasks[BR_TASK_COMMITTED] : 0;
}

static void add_output(br_losses *l, const br_map_output_id *id) {
  br_grow((void **)&l->outputs, &l->cap, l->n, sizeof *l->outputs);
  l->outputs[l->n++] = *id;
}

static void add_stages(br_driver *d, br_losses *l, const br_query *q) {
  for (size_t i = 0; i < l->n_stages; i++)
    if (l->stages[i].query == q->id) return;
  for (size_t i = 0; i < q->n_runs; i++) {
    br_grow((void **)&l->stages, &l->cap_stages, l->n_stages, sizeof *l->stages);
    l->stages[l->n_stages++] =
        (stage_count){.query = q->id, .stage = (uint32_t)i, .committed = committed(d, q->id, (uint32_t)i)};
  }
}

/* Committed ones: the output of an attempt under way goes with it, which its own end tells. */
static bool alive(const br_driver *d, uint64_t query, uint32_t stage, uint32_t task, br_map_output_id *id) {
  bool growing = false;
  return br_sched_output(d->sched, query, stage, task, id, &growing) && !growing;
}

#define SILENT_MOST 64 /* of one tick; more are lost all the same, and not told of */

/* All that these workers have. */
static br_losses *of_workers(br_driver *d, const uint32_t *workers, size_t n) {
  br_losses *l = br_calloc(1, sizeof *l);
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);) {
    br_query *q = v;
    size_t before = l->n;
    for (size_t s = 0; s < q->n_runs; s++)
      for (uint32_t t = 0; t < q->runs[s].n_tasks; t++) {
        br_map_output_id id;
        if (!alive(d, q->id, (uint32_t)s, t, &id)) continue;
        for (size_t w = 0; w < n; w++)
          if (id.worker == workers[w]) add_output(l, &id);
      }
    if (l->n > before) add_stages(d, l, q);
  }
  return l;
}

br_losses *br_losses_of_worker(br_driver *d, uint32_t worker) { return of_workers(d, &worker, 1); }

br_losses *br_losses_of_silent(br_driver *d) {
  uint32_t ids[SILENT_MOST];
  size_t n = br_cluster_silent(d->cluster, d->silent_ms, ids, SILENT_MOST);
  return n > 0 ? of_workers(d, ids, n) : NULL;
}

br_losses *br_losses_of_fetch(br_driver *d, const br_error *err) {
  if (err->code != BR_FETCH) return NULL;
  if (err->has_lost) return br_losses_of_outputs(d, &err->lost, 1);
  return br_losses_of_worker(d, err->worker);
}

br_losses *br_losses_of_outputs(br_driver *d, const br_map_output_id *ids, size_t n) {
  br_losses *l = br_calloc(1, sizeof *l);
  for (size_t i = 0; i < n; i++) {
    const br_attempt_id *by = &ids[i].made_by;
    br_query *q = br_map_get(d->queries, by->query);
    br_map_output_id id;
    if (q == NULL || !alive(d, by->query, by->stage, by->task, &id) || id.made_by.attempt != by->attempt) continue;
    add_output(l, &id);
    add_stages(d, l, q);
  }
  return l;
}

static void tell_output(br_driver *d, const br_map_output_id *id, const char *why) {
  br_query *q = br_map_get(d->queries, id->made_by.query);
  if (q == NULL || id->made_by.stage >= q->n_runs) return; /* the query ended by it */
  br_stage_run *r = &q->runs[id->made_by.stage];
  pthread_mutex_lock(&q->lock);
  r->outputs_lost++;
  pthread_mutex_unlock(&q->lock);
  br_events_emit(d->events, "output_lost", "{s:I, s:I, s:I, s:I, s:I, s:s}", "query", (json_int_t)id->made_by.query,
                 "stage", (json_int_t)id->made_by.stage, "task", (json_int_t)id->made_by.task, "attempt",
                 (json_int_t)id->made_by.attempt, "worker", (json_int_t)id->worker, "why", why);
}

void br_losses_tell(br_driver *d, br_losses *l, const char *why) {
  if (l == NULL) return;
  for (size_t i = 0; i < l->n; i++) {
    const br_attempt_id *by = &l->outputs[i].made_by;
    br_map_output_id now;
    if (!alive(d, by->query, by->stage, by->task, &now) || now.made_by.attempt != by->attempt ||
        now.worker != l->outputs[i].worker)
      tell_output(d, &l->outputs[i], why);
  }
  for (size_t i = 0; i < l->n_stages; i++) {
    const stage_count *s = &l->stages[i];
    uint32_t now = committed(d, s->query, s->stage);
    if (br_map_get(d->queries, s->query) != NULL && now < s->committed)
      br_events_emit(d->events, "outputs_rerun", "{s:I, s:I, s:I, s:s}", "query", (json_int_t)s->query, "stage",
                     (json_int_t)s->stage, "tasks", (json_int_t)(s->committed - now), "why", why);
  }
  free(l->outputs);
  free(l->stages);
  free(l);
}
