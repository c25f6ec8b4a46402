/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers about attempts. Only the answer of the attempt that is under way, from the worker and incarnation it was sent to, changes
 * a task; everything else is late or repeated: it frees the slot of a cancelled attempt at most, and an output that nobody asked for any
 * more is dropped. One thread.
 *
 * Whose failure: a user's error fails the query at once; what may pass (lost, I/O, memory, network) is tried max_attempts
 * times; a lost executor or worker is not charged until killer_executors died under the same task; a failed fetch is not charged to
 * its reader (bounded by BR_SCHED_TASK_FETCHES) but to the output or the worker that could not be read.
 */
#include <stdio.h>
#include <string.h>

#include "schedule/state.h"

/* ---- the life of an attempt */
/* One of two goes: the other one is the attempt under way. */
static void land_one(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint16_t attempt) {
  sched_twin *twin = br_sched_twin_find(s, q, st, t);
  BR_ASSERT(twin != NULL && (attempt == t->now || attempt == twin->attempt));
  q->running--;
  if (attempt == t->now) {
    t->now = twin->attempt;
    t->running_on = twin->worker;
    br_sched_set_state(st, t, twin->started ? BR_TASK_RUNNING : BR_TASK_ASSIGNED);
  }
  br_sched_twin_remove(s, st, t, twin);
  if (!q->eager) return;
  t->since = st->version + 1;
  st->dirty = true;
  br_sched_flow(s, q, st);
}

static void land(sched_query *q, sched_stage *st, sched_task *t) {
  t->now = 0;
  t->running_on = BR_SCHED_NONE;
  q->running--;
  st->flying--;
  br_sched_set_state(st, t, BR_TASK_PENDING);
}

bool br_sched_attempt_over(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint16_t attempt) {
  if (t->twin) {
    land_one(s, q, st, t, attempt);
    return false;
  }
  land(q, st, t);
  if (!q->eager) return true;
  st->dirty = true;
  if (t->since <= st->version) br_sched_touch(s, q, true); /* a table named it: somebody may be bound to it */
  br_sched_flow(s, q, st);
  return true;
}

static void cancel_one(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint16_t attempt, uint32_t at,
                       br_actions *out) {
  br_attempt_id id = br_sched_attempt(q, st, t, attempt);
  sched_worker *w = &s->workers[at];
  sched_slot *slot = br_sched_slot_find(w, &id);
  BR_ASSERT(slot != NULL);
  slot->cancelling = true;
  slot->since_ms = s->now_ms;
  if (s->now_ms + s->o.cancel_ms < s->cancel_at_ms) s->cancel_at_ms = s->now_ms + s->o.cancel_ms;
  br_action *a = br_sched_act(out, BR_ACT_CANCEL, q->id);
  a->attempt = id;
  a->worker = w->id;
  a->incarnation = w->incarnation;
  br_sched_attempt_over(s, q, st, t, attempt);
}

void br_sched_cancel_attempt(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, br_actions *out) {
  const sched_twin *twin = br_sched_twin_find(s, q, st, t);
  if (twin) cancel_one(s, q, st, t, twin->attempt, twin->worker, out);
  cancel_one(s, q, st, t, t->now, t->running_on, out);
}

/* The other one of two loses. */
static void cancel_other(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint16_t winner,
                         br_actions *out) {
  const sched_twin *twin = br_sched_twin_find(s, q, st, t);
  if (twin == NULL) return;
  if (winner == t->now)
    cancel_one(s, q, st, t, twin->attempt, twin->worker, out);
  else
    cancel_one(s, q, st, t, t->now, t->running_on, out);
}

void br_sched_kill_output(br_sched *s, sched_stage *st, sched_task *t) {
  t->alive = false;
  st->alive--;
  if (st->outlives) return; /* it belongs to no worker */
  s->workers[t->output_at].outputs--;
  if (st->last || st->retired) s->workers[t->output_at].spare--;
}

void br_sched_drop_output(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, br_actions *out) {
  br_action *a = br_sched_act(out, BR_ACT_DROP_OUTPUT, q->id);
  a->attempt = br_sched_attempt(q, st, t, t->made_by);
  a->worker = s->workers[t->output_at].id; /* it may be gone, when the output outlived it */
  a->incarnation = s->workers[t->output_at].incarnation;
  br_sched_kill_output(s, st, t);
}

/* The task that this answer is about, when it is from the attempt under way; its slot is freed. */
static bool take_answer(br_sched *s, const br_event *e, const br_attempt_id *id, sched_query **q, sched_stage **st,
                        sched_task **t, sched_slot *was) {
  sched_worker *w = br_sched_worker_live(s, e->worker, e->incarnation);
  sched_slot *slot = w ? br_sched_slot_find(w, id) : NULL;
  if (slot == NULL) return false;
  *was = *slot;
  br_sched_slot_free(s, (uint32_t)(w - s->workers), slot);
  if (was->cancelling || !br_sched_task_find(s, id->query, id->stage, id->task, q, st, t)) return false;
  br_sched_touch(s, *q, false);
  return true;
}

void br_sched_task_started(br_sched *s, const br_event *e) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  if (!br_sched_task_find(s, e->attempt.query, e->attempt.stage, e->attempt.task, &q, &st, &t)) return;
  sched_twin *twin = br_sched_twin_find(s, q, st, t);
  if (twin && twin->attempt == e->attempt.attempt) twin->started = true;
  if (t->now == 0 || t->now != e->attempt.attempt || t->state != BR_TASK_ASSIGNED) return;
  if (e->worker && br_sched_worker_live(s, e->worker, e->incarnation) != &s->workers[t->running_on]) return;
  br_sched_set_state(st, t, BR_TASK_RUNNING);
}

/* ---- done */
static void late_output(br_sched *s, const br_event *e, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  if (br_sched_worker_live(s, e->worker, e->incarnation) == NULL) return;
  if (!br_sched_task_find(s, e->attempt.query, e->attempt.stage, e->attempt.task, &q, &st, &t)) return;
  if (t->alive && t->made_by == e->attempt.attempt) return; /* said twice */
  br_action *a = br_sched_act(out, BR_ACT_DROP_OUTPUT, q->id);
  a->attempt = e->attempt;
  a->worker = e->worker;
  a->incarnation = e->incarnation;
}

/* Something is being made again that this task, which has just ended well, reads alone: it may not be needed any more. (What all
 * tasks of a stage read is needed until the last one has ended.) */
static bool remade_for(const sched_query *q, const sched_stage *st, const sched_task *t) {
  uint32_t me = (uint32_t)(t - st->tasks);
  for (size_t k = 0; k < st->n_inputs; k++) {
    const br_sched_input *in = &st->inputs[k];
    const sched_stage *p = &q->stages[in->stage];
    if (in->kind != BR_READ_FORWARD || me < in->first || me - in->first >= p->n_tasks) continue;
    if (p->tasks[me - in->first].will) return true;
  }
  return false;
}

static void commit(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, const sched_slot *was,
                   br_actions *out) {
  cancel_other(s, q, st, t, was->attempt.attempt, out);
  BR_ASSERT(t->now == was->attempt.attempt);
  uint32_t w = t->running_on;
  t->made_by = t->now;
  land(q, st, t);
  t->alive = true;
  t->will = false;
  t->output_at = w;
  if (!q->eager) { /* else it is named since it runs */
    t->since = st->version + 1;
    st->dirty = true;
  }
  t->charged = t->deaths = t->fetches = 0;
  t->avoid = 0;
  br_sched_set_state(st, t, BR_TASK_COMMITTED);
  if (!st->outlives) {
    s->workers[w].outputs++;
    s->workers[w].spare += st->last || st->retired;
  }
  st->alive++;
  st->todo--;
  q->todo--;
  br_sched_took(s, st, s->now_ms - was->since_ms);
  if (st->result && !t->read) {
    br_action *a = br_sched_act(out, BR_ACT_RESULT, q->id);
    a->stage = (uint32_t)(st - q->stages);
    a->attempt = br_sched_attempt(q, st, t, t->made_by);
    a->worker = s->workers[w].id;
    a->incarnation = s->workers[w].incarnation;
  }
  if (st->todo == 0 || remade_for(q, st, t)) br_sched_touch(s, q, true);
}

void br_sched_task_done(br_sched *s, const br_event *e, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  sched_slot was;
  if (take_answer(s, e, &e->attempt, &q, &st, &t, &was))
    commit(s, q, st, t, &was, out);
  else
    late_output(s, e, out);
}

/* ---- failed */
static void doom_task(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, const br_error *e,
                      const char *after) {
  br_error err = *e;
  if (err.code == BR_OK) br_fail(&err, BR_INTERNAL, BR_BLAME_INTERNAL, "a task failed without an error");
  err.retryable = false;
  if (!err.has_attempt) {
    err.has_attempt = true;
    err.attempt = br_sched_attempt(q, st, t, t->attempt);
  }
  br_error_context(&err, "task %u of stage %u failed%s", (uint32_t)(t - st->tasks), (uint32_t)(st - q->stages), after);
  br_sched_doom(s, q, &err);
}

void br_sched_task_death(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t quarters,
                         const br_error *why) {
  char after[120];
  t->deaths += (uint8_t)quarters; /* at most 60 * 4 + 4, see br_sched_new */
  if (t->deaths < s->o.killer_executors * BR_SCHED_DEATH) return;
  if (quarters == BR_SCHED_DEATH)
    snprintf(after, sizeof after, ": %u executors died while they ran it, so it is taken for the cause; the last one",
             t->deaths / BR_SCHED_DEATH);
  else
    snprintf(after, sizeof after, ": too many workers were lost while they ran it, so it is taken for the cause");
  doom_task(s, q, st, t, why, after);
}

uint32_t br_sched_failures(const sched_task *t) {
  return (uint32_t)t->charged + t->deaths / BR_SCHED_DEATH + t->fetches;
}

static bool may_pass(const br_error *e) {
  if (e->blame == BR_BLAME_WORKER) return true; /* one that leaves may be heard to stop its tasks before it says so */
  switch (e->code) {
    case BR_LOST:
    case BR_IO:
    case BR_NO_SPACE:
    case BR_OUT_OF_MEMORY:
    case BR_NETWORK:
    case BR_FETCH: return true;
    default: return e->retryable;
  }
}

/* One output is lost or damaged: it is made again if it is needed. Old news (it has moved since) is none. */
static void lose_one_output(br_sched *s, const br_map_output_id *lost, bool drop, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  const br_attempt_id *by = &lost->made_by;
  if (!br_sched_task_find(s, by->query, by->stage, by->task, &q, &st, &t)) return;
  if (!t->alive || t->made_by != by->attempt) return;
  if (!st->outlives && br_sched_worker_live(s, lost->worker, lost->incarnation) != &s->workers[t->output_at]) return;
  if (drop)
    br_sched_drop_output(s, q, st, t, out);
  else
    br_sched_kill_output(s, st, t);
  if (!st->retired) br_sched_touch(s, q, true); /* a retired one is not needed */
}

/* What an attempt under way has written so far is lost, says its own worker: it starts anew. Not charged, but bounded. (A reader's word
 * alone stops nobody: mostly the attempt has failed, and why is on its way.) */
static void lose_growing(br_sched *s, const br_attempt_id *id, const sched_worker *w, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  br_error err;
  if (w == NULL || !br_sched_task_find(s, id->query, id->stage, id->task, &q, &st, &t)) return;
  const sched_twin *twin = br_sched_twin_find(s, q, st, t);
  uint32_t at = (uint32_t)(w - s->workers);
  bool first = t->now != 0 && t->now == id->attempt && t->running_on == at;
  if (!q->eager || (!first && !(twin && twin->attempt == id->attempt && twin->worker == at))) return;
  cancel_one(s, q, st, t, id->attempt, at, out); /* of two, the other one goes on */
  t->fetches++;
  if (t->now == 0) br_sched_hold(s, q, st, t, br_sched_failures(t));
  if (t->fetches < BR_SCHED_TASK_FETCHES) return;
  br_fail(&err, BR_LOST, BR_BLAME_WORKER, "worker %u has lost what it wrote", w->id);
  doom_task(s, q, st, t, &err, " 32 times");
}

/* A lost output is one output. Otherwise the worker is asked for a sign of life; what is about an earlier incarnation is no news. */
static void fetch_failed(br_sched *s, const br_error *e, uint64_t since_ms, uint32_t by, br_actions *out) {
  if (e->has_lost) {
    lose_one_output(s, &e->lost, true, out);
    return;
  }
  uintptr_t at = (uintptr_t)br_map_get(s->worker_by_id, e->worker);
  if (at == 0 || s->workers[at - 1].state != SCHED_LIVE || s->workers[at - 1].joined_ms > since_ms) return;
  br_sched_worker_suspect(s, (uint32_t)(at - 1), by, out);
}

/* What was tried for memory, and what to do. */
static void say_memory(const br_sched *s, const sched_stage *st, const sched_task *t, char *out, size_t n) {
  char tried[120];
  uint32_t k = s->o.split_passes;
  if (t->ladder == SCHED_SHARED)
    snprintf(tried, sizeof tried, "it shared its worker");
  else if (t->ladder == SCHED_ALONE)
    snprintf(tried, sizeof tried, "also alone on its worker%s", st->splittable ? "" : "; it can't be done in parts");
  else if (t->ladder == SCHED_SPLIT)
    snprintf(tried, sizeof tried, "also alone on its worker, and there in %u parts", k);
  else
    snprintf(tried, sizeof tried, "also alone on its worker, and there in %u and in %u parts", k, k * k);
  snprintf(out, n, " (attempt %u of %u: %s; give the workers more memory, or use more partitions)", t->charged,
           s->o.max_attempts, tried);
}

static void charge(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, const br_error *e) {
  char after[300] = "";
  bool memory = e->code == BR_OUT_OF_MEMORY;
  t->charged++;
  if (may_pass(e) && t->charged < s->o.max_attempts) {
    if (memory) br_sched_more_memory(st, t);
    return;
  }
  if (memory)
    say_memory(s, st, t, after, sizeof after);
  else if (t->charged > 1)
    snprintf(after, sizeof after, " (attempt %u of %u)", t->charged, s->o.max_attempts);
  doom_task(s, q, st, t, e, after);
}

/* Its executor died under it. When the kernel killed that for memory, and the attempt was alone in it, it is the attempt's own failure. */
static void executor_died(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, const sched_slot *was,
                          const br_error *e) {
  if (e->code == BR_OUT_OF_MEMORY && was->alone) {
    charge(s, q, st, t, e);
    return;
  }
  if (e->code == BR_OUT_OF_MEMORY) br_sched_more_memory(st, t);
  br_sched_task_death(s, q, st, t, BR_SCHED_DEATH, e);
}

void br_sched_task_failed(br_sched *s, const br_event *e, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  sched_slot was;
  br_error none = {0};
  const br_error *err = e->error ? e->error : &none;
  if (!take_answer(s, e, &e->attempt, &q, &st, &t, &was)) return;
  bool draining = br_sched_worker_live(s, e->worker, e->incarnation)->draining;
  bool over = br_sched_attempt_over(s, q, st, t, e->attempt.attempt);
  if (err->code == BR_FETCH && err->blame == BR_BLAME_FETCH) {
    t->avoid = err->has_lost ? 0 : e->worker; /* it may be the reader's own network */
    if (++t->fetches >= BR_SCHED_TASK_FETCHES) doom_task(s, q, st, t, err, ": its inputs could not be read 32 times");
    fetch_failed(s, err, was.since_ms, e->worker, out);
  } else if (err->blame == BR_BLAME_EXECUTOR) {
    executor_died(s, q, st, t, &was, err);
  } else if (!(draining &&
               (err->code == BR_CANCELLED || err->blame == BR_BLAME_WORKER))) { /* a drained worker may stop it */
    t->avoid = e->worker;
    charge(s, q, st, t, err);
  }
  if (over) br_sched_hold(s, q, st, t, br_sched_failures(t));
}

void br_sched_executor_lost(br_sched *s, const br_event *e) {
  for (size_t i = 0; i < e->n_attempts; i++) {
    sched_query *q;
    sched_stage *st;
    sched_task *t;
    sched_slot was;
    br_error err;
    if (!take_answer(s, e, &e->attempts[i], &q, &st, &t, &was)) continue;
    bool over = br_sched_attempt_over(s, q, st, t, e->attempts[i].attempt);
    if (e->error && e->error->code != BR_OK)
      err = *e->error;
    else
      br_fail(&err, BR_LOST, BR_BLAME_EXECUTOR, "an executor of worker %u died", e->worker);
    executor_died(s, q, st, t, &was, &err);
    if (over) br_sched_hold(s, q, st, t, br_sched_failures(t));
  }
}

void br_sched_fetch_failed(br_sched *s, const br_event *e, br_actions *out) {
  if (e->error) fetch_failed(s, e->error, s->now_ms, 0, out);
}

void br_sched_outputs_lost(br_sched *s, const br_event *e, br_actions *out) {
  for (size_t i = 0; i < e->n_attempts; i++) {
    br_map_output_id lost = {.made_by = e->attempts[i], .worker = e->worker, .incarnation = e->incarnation};
    lose_one_output(s, &lost, false, out);
    lose_growing(s, &e->attempts[i], br_sched_worker_live(s, e->worker, e->incarnation), out);
  }
}

/* ---- results */
void br_sched_result_read(br_sched *s, const br_event *e, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  br_error err;
  if (!br_sched_task_find(s, e->query, e->stage, e->task, &q, &st, &t) || !st->result || t->read) return;
  if (e->attempt.attempt > t->attempt) return;                                   /* never was */
  if (t->made_by == 0 && (e->attempt.attempt == 0 || !q->indeterminate)) return; /* nothing to read was ever there */
  if (e->attempt.attempt && e->attempt.attempt != t->made_by && q->indeterminate) {
    br_fail(&err, BR_LOST, BR_BLAME_WORKER,
            "rows of task %u were handed out, and then the outputs they were made from were lost and came out "
            "differently when made again: run the query again",
            e->task);
    br_sched_doom(s, q, &err);
    return;
  }
  t->read = true;
  st->unread--;
  q->unread--;
  if (t->alive && st->n_consumers == 0) br_sched_drop_output(s, q, st, t, out);
  br_sched_touch(s, q, st->unread == 0 || t->will);
}
