/* SPDX-License-Identifier: Apache-2.0
 *
 * The query driver. Everything but the functions marked "any thread" in the header runs on the loop thread: a worker's report
 * or a posted request becomes a br_event, br_sched_step answers with actions, each is carried out in order.
 *
 * Threads: loop thread owns cluster, scheduler and the map of queries; br_query's measured part is guarded by its lock; `lock`
 * here guards the numbers that other threads wait for. Bounds: one step's actions are carried out before the next event.
 */
#include "coordinator/driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/util.h"

struct br_driver {
  br_loop *loop;
  br_cluster *cluster;
  br_sched *sched;
  br_events *events;
  br_map *queries; /* id -> br_query, one reference each */
  br_actions actions;
  br_timer *tick;
  uint64_t tick_at_ms;
  bool stepping;
  void (*worker_lost)(void *arg, int pid);
  void *lost_arg;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t n_workers, n_slots;
  br_error refused; /* the last join that was; code 0: none */
};

static void step(br_driver *d, br_event *e);

/* ---- carrying actions out */

static void send_attempt(br_driver *d, const br_action *a, Brant__Pb__Command__WhatCase what) {
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&a->attempt, &id);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = what;
  cmd.cancel = &id;
  br_cluster_send(d->cluster, a->worker, &cmd);
}

typedef struct version_ctx {
  br_driver *d;
  uint64_t query;
} version_ctx;
static uint32_t table_version(void *arg, uint32_t stage) {
  version_ctx *v = arg;
  return br_sched_table_version(v->d->sched, v->query, stage);
}

static void run_task(br_driver *d, br_query *q, const br_action *a) {
  br_arena *arena = br_arena_new();
  version_ctx v = {d, q->id};
  pthread_mutex_lock(&q->lock);
  Brant__Pb__Task *t = br_task_message(q, &a->attempt, table_version, &v, arena);
  br_stage_run *r = &q->runs[a->attempt.stage];
  r->started++;
  if (r->first_start_us == 0) r->first_start_us = br_now_us();
  if (a->attempt.attempt > 1) q->retries++; /* the first is number 1 */
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_RUN;
  cmd.run = t;
  br_cluster_send(d->cluster, a->worker, &cmd);
  br_events_emit(d->events, "task_assigned", "{s:I, s:I, s:I, s:I, s:I}", "query", (json_int_t)q->id, "stage",
                 (json_int_t)a->attempt.stage, "task", (json_int_t)a->attempt.task, "attempt",
                 (json_int_t)a->attempt.attempt, "worker", (json_int_t)a->worker);
  br_arena_free(arena);
}

static void send_table(br_driver *d, br_query *q, uint32_t stage, uint32_t version, uint32_t only_worker) {
  br_stage_run *r = &q->runs[stage];
  Brant__Pb__OutputTable t = BRANT__PB__OUTPUT_TABLE__INIT;
  t.query = q->id;
  t.stage = stage;
  t.version = version;
  t.partitions = r->plan->partitions ? r->plan->partitions : 1;
  t.maps = r->n_tasks;
  Brant__Pb__OutputEntry *entries = br_calloc(r->n_tasks, sizeof *entries);
  Brant__Pb__OutputEntry **refs = br_calloc(r->n_tasks, sizeof *refs);
  for (uint32_t m = 0; m < r->n_tasks; m++) {
    br_map_output_id id;
    bool growing;
    if (!br_sched_output(d->sched, q->id, stage, m, &id, &growing)) continue;
    Brant__Pb__OutputEntry *e = &entries[t.n_entries];
    brant__pb__output_entry__init(e);
    e->map = m;
    e->attempt = id.made_by.attempt;
    e->worker = id.worker;
    e->incarnation = id.incarnation;
    e->bytes = growing ? 0 : r->tasks[m].bytes_out;
    e->growing = growing;
    refs[t.n_entries++] = e;
  }
  t.entries = refs;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_TABLE;
  cmd.table = &t;
  if (only_worker != 0)
    br_cluster_send(d->cluster, only_worker, &cmd);
  else
    br_cluster_broadcast(d->cluster, &cmd);
  free(refs);
  free(entries);
}

static void stage_done(br_driver *d, br_query *q, uint32_t stage) {
  pthread_mutex_lock(&q->lock);
  br_stage_run *r = &q->runs[stage];
  q->stages_done++;
  r->last_done_us = br_now_us();
  if (r->first_start_us == 0) r->first_start_us = r->last_done_us;
  br_events_emit(d->events, "stage_done", "{s:I, s:I, s:I, s:I, s:I}", "query", (json_int_t)q->id, "stage",
                 (json_int_t)stage, "tasks", (json_int_t)r->n_tasks, "rows", (json_int_t)r->rows_out, "bytes",
                 (json_int_t)r->bytes_out);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}

static void result_ready(br_driver *d, br_query *q, const br_action *a) {
  /* Versions of this stage's table are counted here: it has no other readers. The worker opens the output to the caller. */
  pthread_mutex_lock(&q->lock);
  uint32_t version = ++q->table_versions;
  send_table(d, q, a->attempt.stage, version, a->worker);
  br_result_part *p = &q->results[a->attempt.task];
  if (!p->read) {
    p->ready = true;
    p->version = version;
    p->id = (br_map_output_id){.made_by = a->attempt, .worker = a->worker, .incarnation = a->incarnation};
  }
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}

/* Workers count since they started. With the query's lock. */
static void take_gauges(br_driver *d, br_query *q) {
  uint64_t spilled = 0;
  br_cluster_gauges(d->cluster, &q->peak_pss_bytes, &spilled, NULL);
  if (spilled < q->spilled_before_bytes) q->spilled_before_bytes = spilled; /* a worker is gone */
  if (spilled - q->spilled_before_bytes > q->spilled_bytes) q->spilled_bytes = spilled - q->spilled_before_bytes;
}

/* Its event comes before the caller sees the end: who closes the session then has missed none. */
static void finish(br_driver *d, br_query *q, const br_error *err) {
  pthread_mutex_lock(&q->lock);
  take_gauges(d, q);
  q->end_us = br_now_us();
  pthread_mutex_unlock(&q->lock);
  br_events_emit(d->events, err == NULL ? "query_done" : "query_failed", "{s:I, s:s, s:s, s:I}", "query",
                 (json_int_t)q->id, "code", err ? br_code_name(err->code) : "OK", "message", err ? err->message : "",
                 "wall_us_taken", (json_int_t)(q->end_us - q->start_us));
  pthread_mutex_lock(&q->lock);
  q->state = err == NULL ? BR_QUERY_DONE : BR_QUERY_FAILED;
  if (err != NULL) q->error = *err;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}

static void drop_stage(br_driver *d, uint64_t query, uint32_t stage) {
  Brant__Pb__DropStage drop = BRANT__PB__DROP_STAGE__INIT;
  drop.query = query;
  drop.stage = stage;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_DROP;
  cmd.drop = &drop;
  br_cluster_broadcast(d->cluster, &cmd);
}

static void stop_deadline(br_query *q) {
  br_timer_stop(q->deadline);
  q->deadline = NULL;
}

static void drop_query(br_driver *d, uint64_t query) {
  br_query *q = br_map_remove(d->queries, query);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_DROP_QUERY;
  cmd.drop_query = query;
  br_cluster_broadcast(d->cluster, &cmd);
  if (q == NULL) return;
  stop_deadline(q);
  br_query_unref(q);
}

static void wake_at(br_driver *d, uint64_t at_ms);

static void carry_out(br_driver *d, const br_action *a) {
  uint64_t query = a->query ? a->query : a->attempt.query;
  br_query *q = query ? br_map_get(d->queries, query) : NULL;
  switch (a->kind) {
    case BR_ACT_RUN:
      if (q != NULL) run_task(d, q, a);
      break;
    case BR_ACT_CANCEL: send_attempt(d, a, BRANT__PB__COMMAND__WHAT_CANCEL); break;
    case BR_ACT_TABLE:
      if (q != NULL) send_table(d, q, a->stage, a->version, a->worker);
      break;
    case BR_ACT_STAGE_DONE:
      if (q != NULL) stage_done(d, q, a->stage);
      break;
    case BR_ACT_RESULT:
      if (q != NULL) result_ready(d, q, a);
      break;
    case BR_ACT_DROP_STAGE: drop_stage(d, query, a->stage); break;
    case BR_ACT_DROP_OUTPUT: break; /* the worker's store keeps the newest attempt of a task only */
    case BR_ACT_QUERY_DONE:
      if (q != NULL) finish(d, q, NULL);
      break;
    case BR_ACT_QUERY_FAILED:
      if (q != NULL) finish(d, q, &a->error);
      break;
    case BR_ACT_DROP_QUERY: drop_query(d, query); break;
    case BR_ACT_WORKER_GONE: br_cluster_expel(d->cluster, a->worker); break;
    case BR_ACT_RETIRE_STAGE:
    case BR_ACT_PROBE:
    case BR_ACT_RELEASE_WORKER: break; /* not said yet */
    case BR_ACT_WAKE: wake_at(d, a->at_ms); break;
  }
}

static void on_tick(void *arg) {
  br_driver *d = arg;
  br_timer_stop(d->tick);
  d->tick = NULL;
  br_event e = {.kind = BR_EV_TICK};
  step(d, &e);
}

static void wake_at(br_driver *d, uint64_t at_ms) {
  if (d->tick != NULL && d->tick_at_ms <= at_ms) return;
  br_timer_stop(d->tick);
  uint64_t now = br_now_ms();
  d->tick_at_ms = at_ms;
  d->tick = br_timer_start(d->loop, at_ms > now ? at_ms - now : 1, 0, on_tick, d);
}

static void publish_counts(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  d->n_workers = (uint32_t)br_cluster_size(d->cluster);
  d->n_slots = br_cluster_slots(d->cluster);
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
}

/* One event in, all its actions out. Carrying an action out can lose a worker at once, which is an event of its own: it waits
 * in the loop's queue, so that actions stay in order. */
static void step(br_driver *d, br_event *e) {
  BR_ASSERT(!d->stepping);
  d->stepping = true;
  e->now_ms = br_now_ms();
  d->actions.count = 0;
  br_sched_step(d->sched, e, &d->actions);
  for (size_t i = 0; i < d->actions.count; i++) carry_out(d, &d->actions.items[i]);
  d->stepping = false;
}

/* ---- what workers say */

static void on_joined(void *arg, const br_worker *w) {
  br_driver *d = arg;
  br_event e = {.kind = BR_EV_WORKER_JOINED, .worker = w->id, .incarnation = w->incarnation, .slots = w->slots};
  step(d, &e);
  publish_counts(d);
}

typedef struct lost_msg {
  br_driver *d;
  uint32_t worker, incarnation;
  int pid;
  bool expelled;
} lost_msg;

/* In the loop's next turn: a worker may be lost while actions are carried out. */
static void handle_lost(void *arg) {
  lost_msg *m = arg;
  br_driver *d = m->d;
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);) {
    br_query *q = v;
    pthread_mutex_lock(&q->lock);
    q->workers_lost++;
    if (q->worker_gone != NULL) q->worker_gone(q->gone_arg, m->worker);
    pthread_mutex_unlock(&q->lock);
  }
  br_event e = {.kind = BR_EV_WORKER_LOST, .worker = m->worker, .incarnation = m->incarnation};
  if (!m->expelled) step(d, &e);
  publish_counts(d);
  if (d->worker_lost != NULL) d->worker_lost(d->lost_arg, m->pid);
  free(m);
}

static void on_lost(void *arg, const br_worker *w, bool expelled) {
  br_driver *d = arg;
  lost_msg *m = br_malloc(sizeof *m);
  *m = (lost_msg){d, w->id, w->incarnation, w->pid, expelled};
  br_loop_post(d->loop, handle_lost, m);
}

static void count_done(br_driver *d, br_query *q, const br_attempt_id *id, const Brant__Pb__TaskStats *s) {
  if (id->stage >= q->n_runs || id->task >= q->runs[id->stage].n_tasks || s == NULL) return;
  pthread_mutex_lock(&q->lock);
  br_stage_run *r = &q->runs[id->stage];
  br_task_run *t = &r->tasks[id->task];
  r->cpu_us += s->cpu_us;
  r->spill_bytes += s->spill_bytes;
  if (s->peak_memory_bytes > r->peak_memory_bytes) r->peak_memory_bytes = s->peak_memory_bytes;
  if (!t->done) { /* a task that runs again makes the same rows: counted once */
    t->done = true;
    t->rows_out = s->rows_out;
    t->bytes_out = s->bytes_out;
    t->wall_us = s->wall_us;
    r->done++;
    r->rows_in += s->rows_in;
    r->bytes_in += s->bytes_in;
    r->rows_out += s->rows_out;
    r->bytes_out += s->bytes_out;
    r->remote_bytes += s->remote_bytes_in;
    r->wall_us += s->wall_us;
    uint32_t parts = r->plan->partitions ? r->plan->partitions : 1;
    for (size_t i = 0; i < s->n_partition_rows && i < parts; i++) r->partition_rows[i] += s->partition_rows[i];
  }
  take_gauges(d, q);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}

static void task_done(br_driver *d, const br_worker *w, const Brant__Pb__TaskDone *t) {
  br_event e = {
      .kind = BR_EV_TASK_DONE, .worker = w->id, .incarnation = w->incarnation, .attempt = br_attempt_from_pb(t->id)};
  br_query *q = br_map_get(d->queries, e.attempt.query);
  if (q == NULL) return;
  count_done(d, q, &e.attempt, t->stats);
  e.bytes = t->stats ? t->stats->bytes_out : 0;
  br_events_emit(d->events, "task_done", "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "query",
                 (json_int_t)e.attempt.query, "stage", (json_int_t)e.attempt.stage, "task", (json_int_t)e.attempt.task,
                 "attempt", (json_int_t)e.attempt.attempt, "worker", (json_int_t)w->id, "rows",
                 (json_int_t)(t->stats ? t->stats->rows_out : 0), "bytes", (json_int_t)e.bytes, "wall_us_taken",
                 (json_int_t)(t->stats ? t->stats->wall_us : 0));
  step(d, &e);
}

static void task_failed(br_driver *d, const br_worker *w, const Brant__Pb__TaskFailed *t) {
  br_error why;
  br_error_from_pb(t->error, &why);
  if (why.worker == 0 && why.blame != BR_BLAME_FETCH) why.worker = w->id;
  br_event e = {.kind = BR_EV_TASK_FAILED,
                .worker = w->id,
                .incarnation = w->incarnation,
                .attempt = br_attempt_from_pb(t->id),
                .error = &why};
  br_events_emit(d->events, "task_failed", "{s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "query", (json_int_t)e.attempt.query,
                 "stage", (json_int_t)e.attempt.stage, "task", (json_int_t)e.attempt.task, "attempt",
                 (json_int_t)e.attempt.attempt, "worker", (json_int_t)w->id, "code", br_code_name(why.code), "message",
                 why.message);
  step(d, &e);
}

static void executor_lost(br_driver *d, const br_worker *w, const Brant__Pb__ExecutorLost *x) {
  br_error why;
  br_error_from_pb(x->error, &why);
  br_attempt_id *ids = br_calloc(x->n_running, sizeof *ids);
  for (size_t i = 0; i < x->n_running; i++) {
    ids[i] = br_attempt_from_pb(x->running[i]);
    br_query *q = br_map_get(d->queries, ids[i].query);
    if (q == NULL) continue;
    pthread_mutex_lock(&q->lock);
    q->executors_lost++;
    pthread_mutex_unlock(&q->lock);
  }
  br_log(BR_LOG_WARN, "worker %u lost an executor (pid %d, %zu tasks): %s", w->id, x->pid, x->n_running, why.message);
  br_events_emit(d->events, "executor_lost", "{s:I, s:I, s:I, s:s}", "worker", (json_int_t)w->id, "pid",
                 (json_int_t)x->pid, "tasks", (json_int_t)x->n_running, "message", why.message);
  br_event e = {.kind = BR_EV_EXECUTOR_LOST,
                .worker = w->id,
                .incarnation = w->incarnation,
                .attempts = ids,
                .n_attempts = x->n_running,
                .error = &why};
  step(d, &e);
  free(ids);
}

static void on_refused(void *arg, const br_error *why) {
  br_driver *d = arg;
  pthread_mutex_lock(&d->lock);
  d->refused = *why;
  pthread_mutex_unlock(&d->lock);
}

static void on_report(void *arg, const br_worker *w, const Brant__Pb__Report *r) {
  br_driver *d = arg;
  uint32_t id = w->id, incarnation = w->incarnation;
  br_event heard = {.kind = BR_EV_WORKER_HEARD, .worker = id, .incarnation = incarnation};
  step(d, &heard);
  for (size_t i = 0; i < r->n_started; i++) {
    br_event e = {.kind = BR_EV_TASK_STARTED,
                  .worker = id,
                  .incarnation = incarnation,
                  .attempt = br_attempt_from_pb(r->started[i])};
    br_events_emit(d->events, "task_started", "{s:I, s:I, s:I, s:I, s:I}", "query", (json_int_t)e.attempt.query,
                   "stage", (json_int_t)e.attempt.stage, "task", (json_int_t)e.attempt.task, "attempt",
                   (json_int_t)e.attempt.attempt, "worker", (json_int_t)id);
    step(d, &e);
  }
  /* Handling one event may expel the worker that told the rest: look it up again each time. */
  for (size_t i = 0; i < r->n_done && (w = br_cluster_find(d->cluster, id)) != NULL; i++) task_done(d, w, r->done[i]);
  for (size_t i = 0; i < r->n_failed && (w = br_cluster_find(d->cluster, id)) != NULL; i++)
    task_failed(d, w, r->failed[i]);
  for (size_t i = 0; i < r->n_executor_lost && (w = br_cluster_find(d->cluster, id)) != NULL; i++)
    executor_lost(d, w, r->executor_lost[i]);
  if (r->leaving) {
    br_event e = {.kind = BR_EV_WORKER_DRAINING, .worker = id, .incarnation = incarnation};
    step(d, &e);
  }
}

/* ---- requests of other threads */

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
  return k == BR_EX_BROADCAST || k == BR_EX_BOUNDS || k == BR_EX_FILTER ? BR_READ_BROADCAST : BR_READ_ALL;
}

static void on_deadline(void *arg) {
  br_query *q = arg;
  br_driver *d = q->deadline_driver;
  br_error why;
  br_fail(&why, BR_TIMEOUT, BR_BLAME_USER, "the query did not end within its timeout_ms of %llu",
          (unsigned long long)q->deadline_ms);
  br_event e = {.kind = BR_EV_CANCEL_QUERY, .query = q->id, .error = &why};
  stop_deadline(q);
  step(d, &e); /* q may be gone now */
}

static void handle_submit(void *arg) {
  request *r = arg;
  br_driver *d = r->d;
  br_query *q = r->query;
  br_arena *arena = br_arena_new();
  br_sched_stage *stages = br_arena_alloc(arena, q->n_runs * sizeof *stages);
  for (size_t i = 0; i < q->n_runs; i++) {
    const br_stage *s = q->runs[i].plan;
    br_sched_input *in = br_arena_alloc(arena, s->n_inputs * sizeof *in + 1);
    uint32_t before = 0; /* FORWARD producers' task lists follow each other */
    for (size_t k = 0; k < s->n_inputs; k++) {
      in[k] =
          (br_sched_input){.stage = s->inputs[k].producer, .kind = read_kind(s, s->inputs[k].kind), .first = before};
      if (in[k].kind == BR_READ_FORWARD) before += q->runs[in[k].stage].n_tasks;
    }
    stages[i] = (br_sched_stage){.tasks = q->runs[i].n_tasks,
                                 .inputs = in,
                                 .n_inputs = s->n_inputs,
                                 .indeterminate = s->indeterminate,
                                 .result = i + 1 == q->n_runs};
  }
  br_query_unref(br_map_put(d->queries, q->id, q)); /* the reference that br_driver_submit took */
  pthread_mutex_lock(&q->lock);
  q->state = BR_QUERY_RUNNING;
  br_cluster_gauges(d->cluster, &q->peak_pss_bytes, &q->spilled_before_bytes, NULL);
  q->start_us = br_now_us();
  pthread_mutex_unlock(&q->lock);
  br_events_emit(d->events, "query_started", "{s:I, s:I}", "query", (json_int_t)q->id, "stages", (json_int_t)q->n_runs);
  if (q->deadline_ms > 0) {
    q->deadline_driver = d;
    q->deadline = br_timer_start(d->loop, q->deadline_ms, 0, on_deadline, q);
  }
  br_event e = {.kind = BR_EV_QUERY, .query = q->id, .stages = stages, .n_stages = q->n_runs};
  step(d, &e);
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
  step(r->d, &e);
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
    step(d, &e);
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
  step(r->d, &e);
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
  step(r->d, &e);
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

static struct timespec deadline_in(uint64_t ms) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)(ms / 1000);
  t.tv_nsec += (long)(ms % 1000) * 1000000L;
  if (t.tv_nsec >= 1000000000L) {
    t.tv_sec++;
    t.tv_nsec -= 1000000000L;
  }
  return t;
}

br_status br_driver_wait_workers(br_driver *d, uint32_t workers, uint64_t timeout_ms, br_error *err) {
  struct timespec until = deadline_in(timeout_ms);
  br_status status = BR_OK;
  pthread_mutex_lock(&d->lock);
  while (d->n_workers < workers && status == BR_OK) {
    if (pthread_cond_timedwait(&d->changed, &d->lock, &until) != 0 && d->n_workers < workers)
      status = br_fail(err, BR_TIMEOUT, BR_BLAME_WORKER, "only %u of %u workers joined within %llu ms", d->n_workers,
                       workers, (unsigned long long)timeout_ms);
  }
  pthread_mutex_unlock(&d->lock);
  return status;
}

void br_driver_refusal(br_driver *d, br_error *out) {
  pthread_mutex_lock(&d->lock);
  *out = d->refused;
  br_error_clear(&d->refused);
  pthread_mutex_unlock(&d->lock);
}

uint32_t br_driver_slots(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint32_t n = d->n_slots;
  pthread_mutex_unlock(&d->lock);
  return n;
}

uint32_t br_driver_workers(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint32_t n = d->n_workers;
  pthread_mutex_unlock(&d->lock);
  return n;
}

typedef struct uri_request {
  br_driver *d;
  uint32_t worker;
  char *uri;
  bool done;
} uri_request;

static void handle_uri(void *arg) {
  uri_request *r = arg;
  const br_worker *w = br_cluster_find(r->d->cluster, r->worker);
  pthread_mutex_lock(&r->d->lock);
  r->uri = w ? br_strdup(br_cluster_local_uri(r->d->cluster, w)) : NULL;
  r->done = true;
  pthread_cond_broadcast(&r->d->changed);
  pthread_mutex_unlock(&r->d->lock);
}

char *br_driver_worker_uri(br_driver *d, uint32_t worker) {
  uri_request r = {.d = d, .worker = worker};
  br_loop_post(d->loop, handle_uri, &r);
  pthread_mutex_lock(&d->lock);
  while (!r.done) pthread_cond_wait(&d->changed, &d->lock); /* bounded: the loop always gets to its posts */
  pthread_mutex_unlock(&d->lock);
  return r.uri;
}

int br_driver_port(const br_driver *d) { return br_cluster_port(d->cluster); }

br_status br_driver_new(br_loop *loop, const br_driver_options *o, br_events *events, br_driver **out, br_error *err) {
  br_driver *d = br_calloc(1, sizeof *d);
  d->loop = loop;
  d->events = events;
  d->queries = br_map_new();
  d->sched = br_sched_new(&o->sched);
  d->worker_lost = o->worker_lost;
  d->lost_arg = o->arg;
  pthread_mutex_init(&d->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&d->changed, &attr);
  pthread_condattr_destroy(&attr);
  br_cluster_handlers h = {.arg = d, .joined = on_joined, .lost = on_lost, .refused = on_refused, .report = on_report};
  br_status status = br_cluster_new(loop, o->host, o->port, o->secret, events, h, &d->cluster, err);
  if (status != BR_OK) {
    br_driver_free(d);
    return status;
  }
  *out = d;
  return BR_OK;
}

void br_driver_dismiss(br_driver *d) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_SHUTDOWN;
  cmd.shutdown = 1;
  br_cluster_broadcast(d->cluster, &cmd);
}

void br_driver_free(br_driver *d) {
  if (d == NULL) return;
  br_error why;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the session was closed");
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);) {
    br_query *q = v;
    if (q->state == BR_QUERY_RUNNING) finish(d, q, &why);
    stop_deadline(q);
    br_query_unref(q);
  }
  br_cluster_free(d->cluster);
  br_timer_stop(d->tick);
  br_sched_free(d->sched);
  br_map_free(d->queries);
  free(d->actions.items);
  pthread_cond_destroy(&d->changed);
  pthread_mutex_destroy(&d->lock);
  free(d);
}
