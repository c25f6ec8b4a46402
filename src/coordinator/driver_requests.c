/* SPDX-License-Identifier: Apache-2.0
 * What other threads ask of the driver: each request is posted to the loop and becomes an event there. Any thread calls, the loop
 * thread handles. Bounds: a request is a few hundred bytes; the loop's queue takes them all. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/dataset.h"
#include "coordinator/driver_inside.h"

typedef struct request {
  br_driver *d;
  br_query *query;
  uint64_t id;
  br_attempt_id attempt;
  br_error error;
} request;

static request *new_request(br_driver *d, uint64_t id) {
  request *r = br_calloc(1, sizeof *r);
  r->d = d;
  r->id = id;
  return r;
}

/* A stage of one task reads all that was forwarded. */
static br_read_kind read_kind(const br_stage *s, br_exchange_kind k) {
  if (k == BR_EX_FORWARD && s->rule == BR_TASKS_FORWARD) return BR_READ_FORWARD;
  bool whole = k == BR_EX_BROADCAST || k == BR_EX_BOUNDS || k == BR_EX_KEYS || br_exchange_helps(k);
  return whole ? BR_READ_BROADCAST : BR_READ_ALL;
}

static bool adapts(const br_query *q, size_t stage) {
  return br_query_adapts(q, (uint32_t)stage) || q->runs[stage].split_facts != NULL;
}

/* Must all of it be there before a reader's task is made, also in eager mode? Bounds go to the sink before the first row; whether a
 * filter pays is decided by the true number of its keys. And the broadcast side of a scan that is cut by what it turns out to be: its
 * table is built before the scan's first row is looked at, so that a task that followed it would hold a slot for nothing. */
static bool read_before(const br_query *q, size_t stage, br_exchange_kind k) {
  if (k == BR_EX_BROADCAST) return adapts(q, stage);
  return k == BR_EX_BOUNDS || k == BR_EX_KEYS || br_exchange_helps(k);
}

static void on_deadline(void *arg) {
  br_query *q = arg;
  br_driver *d = q->deadline_driver;
  br_error why;
  br_fail(&why, BR_TIMEOUT, BR_BLAME_USER, "the query did not end within its timeout_ms of %llu",
          (unsigned long long)q->deadline_ms);
  br_event e = {.kind = BR_EV_CANCEL_QUERY, .query = q->id, .error = &why};
  br_driver_stop_deadline(q);
  br_driver_step(d, &e); /* q may be gone now */
}

/* The workers that have most of what the tasks read of a dataset; NULL: of none. */
static const uint32_t *near(const br_stage_run *r, br_arena *arena) {
  const br_dataset_scan *s = NULL;
  for (size_t i = 0; r->datasets != NULL && i < r->plan->n_scans && s == NULL; i++)
    if (r->datasets[i].cuts != NULL && r->datasets[i].dataset->store == NULL) s = &r->datasets[i];
  if (s == NULL) return NULL;
  uint32_t *at = br_arena_alloc(arena, (s->dataset->n_parts + 1u) * sizeof *at);
  uint32_t *out = br_arena_alloc(arena, (r->n_tasks + 1u) * sizeof *out);
  br_dataset_workers(s->dataset, at);
  for (uint32_t t = 0; t < r->n_tasks; t++) {
    uint64_t most = 0, bytes = 0;
    out[t] = 0;
    for (uint32_t p = s->cuts[t]; p < s->cuts[t + 1]; p++) { /* parts of one worker follow each other */
      bytes = (p > s->cuts[t] && at[p] == at[p - 1] ? bytes : 0) + s->dataset->part_bytes[p] + 1;
      if (bytes > most) most = bytes, out[t] = at[p];
    }
  }
  return out;
}

/* Does a function run in its tasks that wants GPUs? */
static bool calls_gpus(const br_query *q, const br_stage *st) {
  for (size_t k = 0; k < st->n_steps; k++)
    for (size_t c = 0; c < st->steps[k].n_calls; c++)
      for (size_t f = 0; f < q->n_functions; f++)
        if (q->functions[f].id == st->steps[k].calls[c].function && q->functions[f].gpus > 0) return true;
  return false;
}

br_sched_stage *br_driver_stages(const br_query *q, br_arena *arena) {
  br_sched_stage *stages = br_arena_alloc(arena, q->n_runs * sizeof *stages + 1);
  for (size_t i = 0; i < q->n_runs; i++) {
    const br_stage *s = q->runs[i].plan;
    br_sched_input *in = br_arena_alloc(arena, s->n_inputs * sizeof *in + 1);
    uint32_t before = 0; /* FORWARD producers' task lists follow each other */
    for (size_t k = 0; k < s->n_inputs; k++) {
      in[k] = (br_sched_input){.stage = s->inputs[k].producer,
                               .kind = read_kind(s, s->inputs[k].kind),
                               .first = before,
                               .complete = read_before(q, i, s->inputs[k].kind)};
      if (in[k].kind == BR_READ_FORWARD) before += q->runs[in[k].stage].n_tasks;
    }
    stages[i] = (br_sched_stage){.tasks = q->runs[i].n_tasks,
                                 .inputs = in,
                                 .n_inputs = s->n_inputs,
                                 .indeterminate = s->indeterminate,
                                 .result = i + 1 == q->n_runs,
                                 .near = near(&q->runs[i], arena),
                                 .splittable = br_stage_splittable(s),
                                 .gpu = calls_gpus(q, s),
                                 .outlives = q->shared_dir != NULL,
                                 .adapts = adapts(q, i)};
  }
  return stages;
}

static void handle_submit(void *arg) {
  request *r = arg;
  br_driver *d = r->d;
  br_query *q = r->query;
  br_arena *arena = br_arena_new();
  br_sched_stage *stages = br_driver_stages(q, arena);
  br_query_unref(br_map_put(d->queries, q->id, q)); /* the reference that br_driver_submit took */
  pthread_mutex_lock(&q->lock);
  q->state = BR_QUERY_RUNNING;
  br_cluster_gauges(d->cluster, &q->peak_pss_bytes, &q->spilled_before_bytes, NULL);
  q->start_us = br_now_us();
  pthread_mutex_unlock(&q->lock);
  br_events_emit(d->events, "query_started", "{s:I, s:I, s:s}", "query", (json_int_t)q->id, "stages",
                 (json_int_t)q->n_runs, "mode", q->eager ? "eager" : "staged");
  br_driver_functions_start(d, q);
  br_shared_start(d->loop, q);
  if (q->deadline_ms > 0) {
    q->deadline_driver = d;
    q->deadline = br_timer_start(d->loop, q->deadline_ms, 0, on_deadline, q);
  }
  br_event e = {.kind = BR_EV_QUERY,
                .query = q->id,
                .stages = stages,
                .n_stages = q->n_runs,
                .mode = q->eager ? BR_SCHED_EAGER : BR_SCHED_STAGED,
                .max_running = q->max_running};
  br_driver_step(d, &e);
  br_arena_free(arena);
  free(r);
}

void br_driver_submit(br_driver *d, br_query *q) {
  request *r = new_request(d, q->id);
  r->query = br_query_ref(q);
  br_loop_post(d->loop, handle_submit, r);
}

static void handle_cancel(void *arg) {
  request *r = arg;
  br_event e = {.kind = BR_EV_CANCEL_QUERY, .query = r->id, .error = &r->error};
  br_driver_step(r->d, &e);
  free(r);
}

void br_driver_cancel(br_driver *d, uint64_t query, const br_error *why) {
  request *r = new_request(d, query);
  r->error = *why;
  br_loop_post(d->loop, handle_cancel, r);
}

void br_driver_no_more_workers(br_driver *d, const br_error *why) {
  if (br_cluster_size(d->cluster) > 0) return;
  size_t n = 0;
  uint64_t id, *ids = br_calloc(br_map_count(d->queries) + 1, sizeof *ids); /* a step changes the map */
  for (size_t it = 0; br_map_next(d->queries, &it, &id, NULL);) ids[n++] = id;
  for (size_t i = 0; i < n; i++) {
    br_event e = {.kind = BR_EV_CANCEL_QUERY, .query = ids[i], .error = why};
    br_driver_step(d, &e);
  }
  free(ids);
}

static void handle_read(void *arg) {
  request *r = arg;
  br_event e = {.kind = BR_EV_RESULT_READ,
                .query = r->id,
                .stage = r->attempt.stage,
                .task = r->attempt.task,
                .attempt = r->attempt};
  br_driver_step(r->d, &e);
  free(r);
}

void br_driver_result_read(br_driver *d, const br_attempt_id *attempt) {
  request *r = new_request(d, attempt->query);
  r->attempt = *attempt;
  br_loop_post(d->loop, handle_read, r);
}

static void handle_fetch_failed(void *arg) {
  request *r = arg;
  br_event e = {.kind = BR_EV_FETCH_FAILED, .query = r->id, .error = &r->error};
  br_losses *before = br_losses_of_fetch(r->d, &r->error);
  br_driver_step(r->d, &e);
  br_losses_tell(r->d, before, "it could not be read");
  free(r);
}

void br_driver_fetch_failed(br_driver *d, uint64_t query, const br_error *err) {
  request *r = new_request(d, query);
  r->error = *err;
  br_loop_post(d->loop, handle_fetch_failed, r);
}

void br_driver_forget(br_driver *d, uint64_t query) {
  br_error why;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  br_driver_cancel(d, query, &why);
}
