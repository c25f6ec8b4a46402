/* SPDX-License-Identifier: Apache-2.0
 * What workers say: joins, losses and reports become events of the scheduler, and what tasks measured goes into their query.
 * Loop thread. A loss waits for the loop's next turn, since it may come while actions are carried out. Bounds: one report at a time. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver_inside.h"

static void on_joined(void *arg, const br_worker *w) {
  br_driver *d = arg;
  br_driver_functions_joined(d, w->id);
  br_event e = {.kind = BR_EV_WORKER_JOINED,
                .worker = w->id,
                .incarnation = w->incarnation,
                .slots = w->slots,
                .gpus = w->gpus > 0};
  br_driver_greet(d, w->id); /* before it gets tasks */
  br_driver_step(d, &e);
  br_driver_publish_counts(d);
}

/* A loss that is yet to be handled. */
struct br_loss_note {
  struct br_loss_note *next;
  br_driver *d; /* NULL: it is gone */
  uint32_t worker, incarnation;
  int pid;
  bool expelled;
};

static void forget(br_driver *d, const br_loss_note *m) {
  br_loss_note **at = &d->losses;
  while (*at != m) at = &(*at)->next;
  *at = m->next;
}

void br_driver_forget_losses(br_driver *d) {
  for (br_loss_note *m = d->losses; m; m = m->next) m->d = NULL; /* the loop still has them */
  d->losses = NULL;
}

static void tell_queries(br_driver *d, uint32_t worker) {
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);) {
    br_query *q = v;
    pthread_mutex_lock(&q->lock);
    q->workers_lost++;
    if (q->worker_gone != NULL) q->worker_gone(q->gone_arg, worker);
    pthread_mutex_unlock(&q->lock);
  }
}

/* In the loop's next turn: a worker may be lost while actions are carried out. The driver may be freed before. */
static void handle_lost(void *arg) {
  br_loss_note *m = arg;
  br_driver *d = m->d;
  if (d != NULL) {
    forget(d, m);
    tell_queries(d, m->worker);
    br_event e = {.kind = BR_EV_WORKER_LOST, .worker = m->worker, .incarnation = m->incarnation};
    if (!m->expelled) {
      br_losses *before = br_losses_of_worker(d, m->worker);
      br_driver_step(d, &e);
      br_losses_tell(d, before, "its worker is lost");
    }
    br_driver_publish_counts(d);
    if (d->worker_lost != NULL) d->worker_lost(d->lost_arg, m->pid);
  }
  free(m);
}

static void on_lost(void *arg, const br_worker *w, bool expelled) {
  br_driver *d = arg;
  br_loss_note *m = br_malloc(sizeof *m);
  *m = (br_loss_note){d->losses, d, w->id, w->incarnation, w->pid, expelled};
  d->losses = m;
  br_loop_post(d->loop, handle_lost, m);
}

static void count_steps(br_stage_run *r, const Brant__Pb__TaskStats *s) {
  if (r->plan->n_steps == 0 || s->n_steps == 0) return;
  if (r->steps == NULL) r->steps = br_calloc(r->plan->n_steps, sizeof *r->steps);
  for (size_t i = 0; i < s->n_steps; i++) {
    size_t at = 0;
    while (at < r->plan->n_steps && r->plan->steps[at].number != s->steps[i]->number) at++;
    if (at == r->plan->n_steps) continue;
    br_step_run *to = &r->steps[at];
    to->rows += s->steps[i]->rows, to->bytes += s->steps[i]->bytes, to->batches += s->steps[i]->batches;
    to->wait_us += s->steps[i]->wait_us, to->retries += s->steps[i]->retries;
    if (s->steps[i]->peak_bytes > to->peak_bytes) to->peak_bytes = s->steps[i]->peak_bytes;
  }
}

/* 1 + 8 * log2(bytes), rounded down: the middle of what it may be. 0: none. */
static uint64_t bytes_of_log(uint32_t log) {
  return log == 0 ? 0 : log > 400 ? UINT64_MAX >> 16 : (uint64_t)exp2(((double)log - 0.5) / 8);
}

static void count_done(br_driver *d, br_query *q, const br_attempt_id *id, const Brant__Pb__TaskStats *s) {
  if (id->stage >= q->n_runs || id->task >= q->runs[id->stage].n_tasks || s == NULL) return;
  pthread_mutex_lock(&q->lock);
  br_stage_run *r = &q->runs[id->stage];
  br_task_run *t = &r->tasks[id->task];
  r->cpu_us += s->cpu_us;
  r->spill_bytes += s->spill_bytes;
  count_steps(r, s);
  br_filter_count(r, s); /* also of a task that runs again: what is made again by chance may lie elsewhere */
  if (s->peak_memory_bytes > r->peak_memory_bytes) r->peak_memory_bytes = s->peak_memory_bytes;
  t->why = BR_AGAIN_NOT;
  if (!t->done) { /* a task that runs again makes the same rows: counted once */
    t->done = true;
    t->rows_out = s->rows_out;
    t->bytes_out = s->bytes_out;
    t->wall_us = s->wall_us;
    r->done++;
    br_groups_count(r, s);
    r->rows_in += s->rows_in;
    r->bytes_in += s->bytes_in;
    r->rows_out += s->rows_out;
    r->bytes_out += s->bytes_out;
    r->remote_bytes += s->remote_bytes_in;
    r->wall_us += s->wall_us;
    uint32_t parts = r->plan->partitions ? r->plan->partitions : 1;
    for (size_t i = 0; i < s->n_partition_rows && i < parts; i++) r->partition_rows[i] += s->partition_rows[i];
    for (size_t i = 0; i < s->n_partition_log_bytes && i < parts; i++)
      r->partition_bytes[i] += bytes_of_log(s->partition_log_bytes[i]);
  }
  br_driver_take_gauges(d, q);
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
  br_driver_step(d, &e);
}

/* Why the task will run again, if it will. */
static void note_again(br_driver *d, const br_attempt_id *id, br_again why) {
  br_query *q = br_map_get(d->queries, id->query);
  if (q == NULL || id->stage >= q->n_runs || id->task >= q->runs[id->stage].n_tasks) return;
  pthread_mutex_lock(&q->lock);
  q->runs[id->stage].tasks[id->task].why = (uint8_t)why;
  pthread_mutex_unlock(&q->lock);
}

/* An attempt failed on this worker, or could not be sent to it. */
static void attempt_failed(br_driver *d, br_event *e) {
  const br_error *why = e->error;
  const br_attempt_id *lost = &why->lost.made_by; /* zeros: none */
  br_events_emit(d->events, "task_failed", "{s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I}", "query",
                 (json_int_t)e->attempt.query, "stage", (json_int_t)e->attempt.stage, "task",
                 (json_int_t)e->attempt.task, "attempt", (json_int_t)e->attempt.attempt, "worker",
                 (json_int_t)e->worker, "code", br_code_name(why->code), "blame", br_blame_name(why->blame), "message",
                 why->message, "has_lost", (int)why->has_lost, "lost_stage", (json_int_t)lost->stage, "lost_task",
                 (json_int_t)lost->task, "lost_attempt", (json_int_t)lost->attempt, "lost_worker",
                 (json_int_t)(why->has_lost ? why->lost.worker : 0));
  note_again(d, &e->attempt, why->code == BR_CANCELLED ? BR_AGAIN_CANCELLED : BR_AGAIN_FAILED);
  br_losses *before = br_losses_of_fetch(d, why);
  br_driver_step(d, e);
  br_losses_tell(d, before, "it could not be read");
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
  attempt_failed(d, &e);
}

void br_driver_fail_refused(br_driver *d) {
  if (d->failing) return; /* it is a step of one of them: the loop below goes on */
  d->failing = true;
  while (d->n_refusals > 0) {
    br_refusal r = d->refusals[--d->n_refusals];
    const br_worker *w = br_cluster_find(d->cluster, r.worker);
    if (w == NULL) continue; /* lost in the meantime, and the attempt with it */
    br_event e = {.kind = BR_EV_TASK_FAILED,
                  .worker = w->id,
                  .incarnation = w->incarnation,
                  .attempt = r.attempt,
                  .error = &r.why};
    attempt_failed(d, &e);
  }
  d->failing = false;
}

static void executor_lost(br_driver *d, const br_worker *w, const Brant__Pb__ExecutorLost *x) {
  br_error why;
  br_error_from_pb(x->error, &why);
  br_attempt_id *ids = br_calloc(x->n_running, sizeof *ids);
  for (size_t i = 0; i < x->n_running; i++) {
    ids[i] = br_attempt_from_pb(x->running[i]);
    note_again(d, &ids[i], BR_AGAIN_EXECUTOR_LOST);
    br_query *q = br_map_get(d->queries, ids[i].query);
    if (q == NULL) continue;
    pthread_mutex_lock(&q->lock);
    q->executors_lost++;
    pthread_mutex_unlock(&q->lock);
  }
  /* Without tasks: mostly one that did not stop a cancelled task in time. */
  br_log(x->n_running > 0 ? BR_LOG_WARN : BR_LOG_INFO, "worker %u lost an executor (pid %d, %zu tasks): %s", w->id,
         x->pid, x->n_running, why.message);
  br_events_emit(d->events, "executor_lost", "{s:I, s:I, s:I, s:s, s:s}", "worker", (json_int_t)w->id, "pid",
                 (json_int_t)x->pid, "tasks", (json_int_t)x->n_running, "code", br_code_name(why.code), "message",
                 why.message);
  br_event e = {.kind = BR_EV_EXECUTOR_LOST,
                .worker = w->id,
                .incarnation = w->incarnation,
                .attempts = ids,
                .n_attempts = x->n_running,
                .error = &why};
  br_driver_step(d, &e);
  free(ids);
}

/* Evicted after their stage retired, or found damaged. */
static void outputs_lost(br_driver *d, const br_worker *w, const Brant__Pb__Report *r) {
  br_attempt_id *ids = br_calloc(r->n_outputs_lost, sizeof *ids);
  br_map_output_id *outputs = br_calloc(r->n_outputs_lost, sizeof *outputs);
  for (size_t i = 0; i < r->n_outputs_lost; i++) {
    ids[i] = br_attempt_from_pb(r->outputs_lost[i]);
    outputs[i] = (br_map_output_id){.made_by = ids[i], .worker = w->id, .incarnation = w->incarnation};
  }
  br_event e = {.kind = BR_EV_OUTPUTS_LOST,
                .worker = w->id,
                .incarnation = w->incarnation,
                .attempts = ids,
                .n_attempts = r->n_outputs_lost};
  br_losses *before = br_losses_of_outputs(d, outputs, r->n_outputs_lost);
  br_driver_step(d, &e);
  br_losses_tell(d, before, "its worker made room, or found it damaged");
  free(outputs);
  free(ids);
}

static void draining(br_driver *d, const br_worker *w, bool leaving) {
  br_event e = {.kind = BR_EV_WORKER_DRAINING, .worker = w->id, .incarnation = w->incarnation};
  if (!br_cluster_note_draining(d->cluster, w->id)) return;
  br_events_emit(d->events, "worker_draining", "{s:I, s:I, s:b}", "worker", (json_int_t)w->id, "incarnation",
                 (json_int_t)w->incarnation, "leaving", (int)leaving);
  br_driver_step(d, &e);
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
  br_driver_step(d, &heard);
  for (size_t i = 0; i < r->n_started; i++) {
    br_event e = {.kind = BR_EV_TASK_STARTED,
                  .worker = id,
                  .incarnation = incarnation,
                  .attempt = br_attempt_from_pb(r->started[i])};
    br_events_emit(d->events, "task_started", "{s:I, s:I, s:I, s:I, s:I}", "query", (json_int_t)e.attempt.query,
                   "stage", (json_int_t)e.attempt.stage, "task", (json_int_t)e.attempt.task, "attempt",
                   (json_int_t)e.attempt.attempt, "worker", (json_int_t)id);
    br_driver_step(d, &e);
  }
  /* Handling one event may expel the worker that told the rest: look it up again each time. */
  for (size_t i = 0; i < r->n_done && (w = br_cluster_find(d->cluster, id)) != NULL; i++) task_done(d, w, r->done[i]);
  for (size_t i = 0; i < r->n_failed && (w = br_cluster_find(d->cluster, id)) != NULL; i++)
    task_failed(d, w, r->failed[i]);
  for (size_t i = 0; i < r->n_executor_lost && (w = br_cluster_find(d->cluster, id)) != NULL; i++)
    executor_lost(d, w, r->executor_lost[i]);
  if (r->n_outputs_lost > 0 && (w = br_cluster_find(d->cluster, id)) != NULL) outputs_lost(d, w, r);
  if ((r->draining || r->leaving) && (w = br_cluster_find(d->cluster, id)) != NULL) draining(d, w, r->leaving);
}

static br_status on_get(void *arg, br_flight_call *call, const Brant__Pb__Ticket *t, br_flight_source *src,
                        br_error *err) {
  if (t->function != 0) return br_driver_serve_function(arg, t->function, src, err);
  return br_driver_serve(arg, call, t, src, err);
}

br_cluster_handlers br_driver_handlers(br_driver *d) {
  return (br_cluster_handlers){
      .arg = d, .joined = on_joined, .lost = on_lost, .refused = on_refused, .get = on_get, .report = on_report};
}
