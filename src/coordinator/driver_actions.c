/* SPDX-License-Identifier: Apache-2.0
 * What the scheduler wants done: each action becomes a command to a worker, a change of the query that others may see, or a timer.
 * Loop thread. Order: the actions of one step, one after the other; none of them steps the scheduler. Bounds: a command is as
 * large as its task or output table. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver_inside.h"

#define SQL_IN_ERROR_BYTES 600u

static void send_attempt(br_driver *d, const br_action *a, Brant__Pb__Command__WhatCase what) {
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&a->attempt, &id);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = what;
  if (what == BRANT__PB__COMMAND__WHAT_CANCEL)
    cmd.cancel = &id;
  else
    cmd.drop_output = &id;
  br_cluster_send(d->cluster, a->worker, &cmd);
}

/* An attempt as the fields that every event about one has. */
#define ATTEMPT_FMT "s:I, s:I, s:I, s:I, s:I"
#define ATTEMPT_OF(id, on)                                                                                    \
  "query", (json_int_t)(id).query, "stage", (json_int_t)(id).stage, "task", (json_int_t)(id).task, "attempt", \
      (json_int_t)(id).attempt, "worker", (json_int_t)(on)

static void cancel_attempt(br_driver *d, br_query *q, const br_action *a) {
  send_attempt(d, a, BRANT__PB__COMMAND__WHAT_CANCEL);
  br_events_emit(d->events, "task_cancelled", "{" ATTEMPT_FMT "}", ATTEMPT_OF(a->attempt, a->worker));
  if (q == NULL || a->attempt.stage >= q->n_runs || a->attempt.task >= q->runs[a->attempt.stage].n_tasks) return;
  pthread_mutex_lock(&q->lock);
  q->runs[a->attempt.stage].cancelled++;
  br_task_run *t = &q->runs[a->attempt.stage].tasks[a->attempt.task];
  if (!t->done) t->why = BR_AGAIN_CANCELLED;
  pthread_mutex_unlock(&q->lock);
}

static void drop_output(br_driver *d, const br_action *a) {
  send_attempt(d, a, BRANT__PB__COMMAND__WHAT_DROP_OUTPUT);
  br_events_emit(d->events, "output_dropped", "{" ATTEMPT_FMT "}", ATTEMPT_OF(a->attempt, a->worker));
}

typedef struct version_ctx {
  br_driver *d;
  uint64_t query;
} version_ctx;
static uint32_t table_version(void *arg, uint32_t stage) {
  version_ctx *v = arg;
  return br_sched_table_version(v->d->sched, v->query, stage);
}

/* What is known of the task's earlier attempts becomes the reason of this one. With the query's lock. */
static const char *count_start(br_query *q, const br_action *a) {
  static const char *const names[] = {"first", "failed", "cancelled", "executor_lost", "worker_lost", "output_lost"};
  br_stage_run *r = &q->runs[a->attempt.stage];
  br_task_run *t = &r->tasks[a->attempt.task];
  r->started++;
  if (r->first_start_us == 0) r->first_start_us = br_now_us();
  if (a->second) {
    r->seconds++;
    return "second";
  }
  uint8_t why = t->why;
  t->why = BR_AGAIN_NOT;
  if (a->attempt.attempt > 1) {                                                           /* the first is number 1 */
    if (why == BR_AGAIN_NOT) why = t->done ? BR_AGAIN_OUTPUT_LOST : BR_AGAIN_WORKER_LOST; /* nothing was told of it */
    q->retries++;
    r->retries++;
    if (why == BR_AGAIN_OUTPUT_LOST) r->made_again++;
  }
  return names[why];
}

/* The planner lets no stage's own text become so long. A split is a list of files, and passes are the text several times. */
void br_driver_refuse(br_driver *d, const br_action *a, size_t bytes, size_t passes) {
  br_grow((void **)&d->refusals, &d->cap_refusals, d->n_refusals, sizeof *d->refusals);
  br_refusal *r = &d->refusals[d->n_refusals++];
  *r = (br_refusal){.attempt = a->attempt, .worker = a->worker};
  if (passes > 1)
    br_fail(&r->why, BR_UNSUPPORTED, BR_BLAME_USER,
            "the text of a task in %zu passes, for what does not fit into memory at once, takes %zu bytes, more than "
            "the %u of "
            "a message: give the workers more memory (--memory), or put long constants into a table",
            passes, bytes, BR_MESSAGE_MAX_BYTES);
  else
    br_fail(&r->why, BR_UNSUPPORTED, BR_BLAME_USER,
            "a task's text takes %zu bytes, more than the %u of a message: let a task read fewer files (--set "
            "split_bytes=…), or put "
            "long constants into a table",
            bytes, BR_MESSAGE_MAX_BYTES);
}

static void run_task(br_driver *d, br_query *q, const br_action *a) {
  br_arena *arena = br_arena_new();
  version_ctx v = {d, q->id};
  uint32_t passes = a->passes > q->least_passes ? a->passes : q->least_passes;
  pthread_mutex_lock(&q->lock);
  bool enough = br_task_not_needed(q, &a->attempt);
  const br_stage_run *r = &q->runs[a->attempt.stage];
  if (br_groups_decide(q, &a->attempt))
    br_events_emit(d->events, "stage_adapted", "{s:I, s:I, s:I, s:s}", "query", (json_int_t)q->id, "stage",
                   (json_int_t)a->attempt.stage, "tasks", (json_int_t)r->n_tasks, "what", r->adapted);
  Brant__Pb__Task *t = br_task_message(q, &a->attempt, table_version, &v, arena);
  if (!enough) br_task_in_passes(q, t, passes, arena);
  q->runs[a->attempt.stage].not_needed += enough;
  t->alone = a->alone;
  const char *why = count_start(q, a);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_RUN;
  cmd.run = t;
  br_events_emit(d->events, "task_assigned", "{" ATTEMPT_FMT ", s:s, s:b, s:b, s:I, s:b}",
                 ATTEMPT_OF(a->attempt, a->worker), "why", why, "second", (int)a->second, "alone", (int)a->alone,
                 "passes", (json_int_t)(t->n_passes > 0 ? t->n_passes : 1), "enough", (int)enough);
  size_t bytes = brant__pb__command__get_packed_size(&cmd);
  if (bytes > BR_MESSAGE_MAX_BYTES)
    br_driver_refuse(d, a, bytes, t->n_passes);
  else
    br_cluster_send(d->cluster, a->worker, &cmd);
  br_arena_free(arena);
}

/* The outputs that are there, growing ones included; a result's: those of that worker, which serves them to the caller. */
static Brant__Pb__OutputEntry *table_entries(br_driver *d, const br_query *q, uint32_t stage, uint32_t only_worker,
                                             size_t *n) {
  const br_stage_run *r = &q->runs[stage];
  bool result = r->plan->output == BR_EX_RESULT;
  Brant__Pb__OutputEntry *entries = NULL;
  size_t capacity = 0;
  *n = 0;
  for (uint32_t m = 0; m < r->n_tasks; m++) {
    br_map_output_id id;
    bool growing;
    if (result && (!q->results[m].ready || q->results[m].read || (!q->kept && q->results[m].id.worker != only_worker)))
      continue;
    if (!br_sched_output(d->sched, q->id, stage, m, &id, &growing)) continue;
    br_grow((void **)&entries, &capacity, *n, sizeof *entries);
    Brant__Pb__OutputEntry *e = &entries[(*n)++];
    brant__pb__output_entry__init(e);
    e->map = m;
    e->attempt = id.made_by.attempt;
    e->worker = id.worker;
    e->incarnation = id.incarnation;
    e->bytes = growing ? 0 : r->tasks[m].bytes_out;
    e->growing = growing;
  }
  return entries;
}

static void send_table(br_driver *d, br_query *q, uint32_t stage, uint32_t version, uint32_t only_worker) {
  br_stage_run *r = &q->runs[stage];
  Brant__Pb__OutputTable t = BRANT__PB__OUTPUT_TABLE__INIT;
  t.query = q->id;
  t.stage = stage;
  t.version = version;
  t.partitions = r->plan->partitions ? r->plan->partitions : 1;
  t.maps = r->n_tasks;
  if (q->shared_dir != NULL) t.shared_dir = q->shared_dir;
  Brant__Pb__OutputEntry *entries = table_entries(d, q, stage, only_worker, &t.n_entries);
  Brant__Pb__OutputEntry **refs = br_calloc(t.n_entries + 1, sizeof *refs);
  for (size_t i = 0; i < t.n_entries; i++) refs[i] = &entries[i];
  t.entries = refs;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_TABLE;
  cmd.table = &t;
  if (only_worker != 0 && !(q->kept && q->runs[stage].plan->output == BR_EX_RESULT))
    br_cluster_send(d->cluster, only_worker, &cmd);
  else
    br_cluster_broadcast(d->cluster, &cmd);
  free(refs);
  free(entries);
}

void br_driver_tell_kept(br_driver *d, br_query *q, uint32_t worker) {
  (void)worker; /* a version that is known already changes nothing: so all may hear it, as one of them must */
  pthread_mutex_lock(&q->lock);
  if (q->state == BR_QUERY_RUNNING && q->kept) send_table(d, q, (uint32_t)q->n_runs - 1, ++q->table_versions, 0);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
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
  br_result_part *p = &q->results[a->attempt.task];
  if (!p->read) {
    p->ready = true;
    p->version = version;
    p->id = (br_map_output_id){.made_by = a->attempt, .worker = a->worker, .incarnation = a->incarnation};
  }
  send_table(d, q, a->attempt.stage, version, a->worker);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}

/* Workers count since they started. With the query's lock. */
void br_driver_take_gauges(br_driver *d, br_query *q) {
  uint64_t spilled = 0;
  br_cluster_gauges(d->cluster, &q->peak_pss_bytes, &spilled, NULL);
  if (spilled < q->spilled_before_bytes) q->spilled_before_bytes = spilled; /* a worker is gone */
  if (spilled - q->spilled_before_bytes > q->spilled_bytes) q->spilled_bytes = spilled - q->spilled_before_bytes;
}

/* A task that kills executors can't say what it was doing: its SQL is added here. */
static const br_error *name_the_task(const br_query *q, const br_error *err, br_error *out) {
  if (err->blame != BR_BLAME_EXECUTOR || !err->has_attempt || err->attempt.query != q->id) return err;
  if (err->attempt.stage >= q->n_runs || err->attempt.task >= q->runs[err->attempt.stage].n_tasks) return err;
  br_arena *arena = br_arena_new();
  const char *sql = br_task_sql(q, err->attempt.stage, err->attempt.task, arena);
  size_t n = strlen(sql), used = strlen(err->message);
  bool cut = n > SQL_IN_ERROR_BYTES;
  for (n = cut ? SQL_IN_ERROR_BYTES : n; cut && n > 0 && ((unsigned char)sql[n] & 0xC0) == 0x80;) n--;
  *out = *err;
  if (used + n + 64 < sizeof out->message)
    snprintf(out->message + used, sizeof out->message - used, "\n  in task %u of stage %u: %.*s%s", err->attempt.task,
             err->attempt.stage, (int)n, sql, cut ? "..." : "");
  br_arena_free(arena);
  return out;
}

/* Its event comes before the caller sees the end: who closes the session then has missed none. */
void br_driver_finish(br_driver *d, br_query *q, const br_error *err) {
  pthread_mutex_lock(&q->lock);
  br_driver_take_gauges(d, q);
  q->end_us = br_now_us();
  pthread_mutex_unlock(&q->lock);
  br_error named;
  if (err != NULL) err = name_the_task(q, err, &named);
  br_events_emit(d->events, err == NULL ? "query_done" : "query_failed", "{s:I, s:s, s:s, s:s, s:I}", "query",
                 (json_int_t)q->id, "code", err ? br_code_name(err->code) : "OK", "blame",
                 br_blame_name(err ? err->blame : BR_BLAME_NONE), "message", err ? err->message : "", "wall_us_taken",
                 (json_int_t)(q->end_us - q->start_us));
  pthread_mutex_lock(&q->lock);
  q->state = err == NULL ? BR_QUERY_DONE : BR_QUERY_FAILED;
  if (err != NULL) q->error = *err;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
}

/* To all workers: a stage's outputs may go (drop), or are kept for recovery alone (retire). */
static void about_stage(br_driver *d, uint64_t query, uint32_t stage, bool retire) {
  Brant__Pb__DropStage what = BRANT__PB__DROP_STAGE__INIT;
  what.query = query;
  what.stage = stage;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = retire ? BRANT__PB__COMMAND__WHAT_RETIRE : BRANT__PB__COMMAND__WHAT_DROP;
  if (retire)
    cmd.retire = &what;
  else
    cmd.drop = &what;
  br_cluster_broadcast(d->cluster, &cmd);
  br_events_emit(d->events, retire ? "stage_retired" : "stage_dropped", "{s:I, s:I}", "query", (json_int_t)query,
                 "stage", (json_int_t)stage);
}

static void release_worker(br_driver *d, const br_action *a) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_RELEASE;
  cmd.release = 1;
  br_cluster_send(d->cluster, a->worker, &cmd);
  br_events_emit(d->events, "worker_released", "{s:I, s:I}", "worker", (json_int_t)a->worker, "incarnation",
                 (json_int_t)a->incarnation);
}

void br_driver_stop_deadline(br_query *q) {
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
  br_driver_stop_deadline(q);
  br_shared_close(q);
  br_query_unref(q);
  br_driver_functions_sweep(d);
}

static void wake_at(br_driver *d, uint64_t at_ms);

static void on_tick(void *arg) {
  br_driver *d = arg;
  br_timer_stop(d->tick);
  d->tick = NULL;
  if (br_driver_now_ms(d) < d->tick_at_ms) { /* too early: the scheduler will not ask for this time again */
    wake_at(d, d->tick_at_ms);
    return;
  }
  br_event e = {.kind = BR_EV_TICK};
  br_losses *before = br_losses_of_silent(d);
  br_driver_step(d, &e);
  br_losses_tell(d, before, "its worker is lost");
}

static void wake_at(br_driver *d, uint64_t at_ms) {
  if (d->tick != NULL && d->tick_at_ms <= at_ms) return;
  br_timer_stop(d->tick);
  uint64_t now = br_driver_now_ms(d);
  d->tick_at_ms = at_ms;
  d->tick = br_timer_start(d->loop, at_ms > now ? at_ms - now : 1, 0, on_tick, d);
}

void br_driver_carry_out(br_driver *d, const br_action *a) {
  uint64_t query = a->query ? a->query : a->attempt.query;
  br_query *q = query ? br_map_get(d->queries, query) : NULL;
  switch (a->kind) {
    case BR_ACT_RUN:
      if (q != NULL) run_task(d, q, a);
      break;
    case BR_ACT_CANCEL: cancel_attempt(d, q, a); break;
    case BR_ACT_TABLE:
      if (q != NULL) send_table(d, q, a->stage, a->version, a->worker);
      break;
    case BR_ACT_STAGE_DONE:
      if (q != NULL) stage_done(d, q, a->stage);
      break;
    case BR_ACT_RESULT:
      if (q != NULL) result_ready(d, q, a);
      break;
    case BR_ACT_RETIRE_STAGE: about_stage(d, query, a->stage, true); break;
    case BR_ACT_DROP_STAGE:
      about_stage(d, query, a->stage, false);
      if (q != NULL) br_shared_drop_stage(q, a->stage);
      break;
    case BR_ACT_DROP_OUTPUT:
      drop_output(d, a);
      if (q != NULL) br_shared_drop_output(q, &a->attempt);
      break;
    case BR_ACT_QUERY_DONE:
      if (q != NULL) br_driver_finish(d, q, NULL);
      break;
    case BR_ACT_QUERY_FAILED:
      if (q != NULL) br_driver_finish(d, q, &a->error);
      break;
    case BR_ACT_DROP_QUERY: drop_query(d, query); break;
    case BR_ACT_WORKER_GONE: br_cluster_expel(d->cluster, a->worker); break;
    case BR_ACT_PROBE: br_driver_probe(d, a->worker, a->incarnation); break;
    case BR_ACT_RELEASE_WORKER: release_worker(d, a); break;
    case BR_ACT_ASK: br_driver_asked(d, a); break;
    case BR_ACT_WAKE: wake_at(d, a->at_ms); break;
  }
}
