/* SPDX-License-Identifier: Apache-2.0
 *
 * One step: the event, then what is due by time, then settle (plans, ended queries), then placement, then the next wake-up. The
 * event comes before the timers, so that a sign of life that arrives in the last moment counts. One thread.
 */
#include <stdio.h>

#include "schedule/state.h"

static void new_query(br_sched *s, const br_event *e) {
  if (br_sched_query_find(s, e->query)) return;
  for (uint32_t i = 0; i < BR_SCHED_MAX_PAST_QUERIES && i < s->n_past; i++)
    if (s->past[i] == e->query) return;
  br_sched_touch(s, br_sched_query_new(s, e), false);
}

static void cancel_query(br_sched *s, const br_event *e) {
  sched_query *q = br_sched_query_find(s, e->query);
  br_error err;
  if (q == NULL) return;
  if (e->error && e->error->code != BR_OK)
    err = *e->error;
  else
    br_fail(&err, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  br_sched_doom(s, q, &err);
}

/* Any word from the worker. */
static void heard(br_sched *s, const br_event *e) {
  sched_worker *w = br_sched_worker_live(s, e->worker, e->incarnation);
  if (w) w->heard_ms = s->now_ms;
}

static void worker_lost(br_sched *s, const br_event *e, br_actions *out) {
  sched_worker *w = br_sched_worker_live(s, e->worker, e->incarnation);
  const char *why = e->error && e->error->code != BR_OK ? e->error->message : "its connection was closed";
  if (w) br_sched_worker_lose(s, (uint32_t)(w - s->workers), why, out);
}

static void handle(br_sched *s, const br_event *e, br_actions *out) {
  switch (e->kind) {
    case BR_EV_QUERY: new_query(s, e); break;
    case BR_EV_WORKER_JOINED: br_sched_worker_join(s, e, out); break;
    case BR_EV_WORKER_LOST: worker_lost(s, e, out); break;
    case BR_EV_WORKER_HEARD: heard(s, e); break;
    case BR_EV_WORKER_DRAINING: br_sched_worker_drain(s, e); break;
    case BR_EV_EXECUTOR_LOST:
      heard(s, e);
      br_sched_executor_lost(s, e);
      break;
    case BR_EV_TASK_STARTED:
      heard(s, e);
      br_sched_task_started(s, e);
      break;
    case BR_EV_TASK_DONE:
      heard(s, e);
      br_sched_task_done(s, e, out);
      break;
    case BR_EV_TASK_FAILED:
      heard(s, e);
      br_sched_task_failed(s, e, out);
      break;
    case BR_EV_CANCEL_QUERY: cancel_query(s, e); break;
    case BR_EV_RESULT_READ: br_sched_result_read(s, e, out); break;
    case BR_EV_FETCH_FAILED: br_sched_fetch_failed(s, e, out); break;
    case BR_EV_PROBED: br_sched_worker_probed(s, e, out); break;
    case BR_EV_OUTPUTS_LOST:
      heard(s, e);
      br_sched_outputs_lost(s, e, out);
      break;
    case BR_EV_ADAPT: br_sched_adapt(s, e); break;
    case BR_EV_TICK: break;
  }
}

/* ---- queries without any worker */
static bool starves(const br_sched *s, const sched_query *q, uint64_t *at_ms) {
  if (s->n_usable > 0 || q->todo == 0 || q->running > 0) return false;
  uint64_t since = s->no_worker_since_ms > q->started_ms ? s->no_worker_since_ms : q->started_ms;
  *at_ms = since + s->o.no_worker_ms;
  return true;
}

static void no_worker_timers(br_sched *s) {
  uint64_t at;
  br_error err;
  for (uint32_t i = 0; i < s->n_queries && s->n_usable == 0; i++) {
    if (!starves(s, s->queries[i], &at) || at > s->now_ms) continue;
    br_fail(&err, BR_LOST, BR_BLAME_WORKER, "there was no worker for %u ms%s: start workers and run the query again",
            s->o.no_worker_ms, s->n_live ? " that is not draining" : "");
    br_sched_doom(s, s->queries[i], &err);
  }
}

/* ---- settle */
static void fail_query(br_sched *s, sched_query *q, br_actions *out) {
  q->quiet = true;
  for (uint32_t i = 0; i < q->n_stages && (q->running > 0 || s->n_waits > 0); i++) {
    sched_stage *st = &q->stages[i];
    for (uint32_t t = 0; t < st->n_tasks; t++) {
      if (st->tasks[t].list == BR_SCHED_WAITS) br_sched_unready(s, q, st, &st->tasks[t]);
      if (st->tasks[t].now != 0) br_sched_cancel_attempt(s, q, st, &st->tasks[t], out);
    }
  }
  br_sched_act(out, BR_ACT_QUERY_FAILED, q->id)->error = *q->doom;
  br_sched_act(out, BR_ACT_DROP_QUERY, q->id);
  br_sched_query_free(s, q);
}

/* It stays touched meanwhile, so that it is not listed again: what a plan or its end cancels needs no other plan. */
static void settle_query(br_sched *s, sched_query *q, br_actions *out) {
  if (q->replan && !q->doom) br_sched_plan(s, q, out); /* may doom it */
  if (q->doom) {
    fail_query(s, q, out);
  } else if (q->todo == 0 && q->unread == 0) {
    br_sched_act(out, BR_ACT_QUERY_DONE, q->id);
    br_sched_act(out, BR_ACT_DROP_QUERY, q->id);
    br_sched_query_free(s, q);
  } else {
    q->replan = q->touched = false;
  }
}

/* Workers that have just joined need the tables that were published before, also those that nobody reads at the moment. */
static void tables_for_joined(br_sched *s, br_actions *out) {
  for (uint32_t j = 0; j < s->n_joined; j++) {
    const sched_worker *w = &s->workers[s->joined[j]];
    for (uint32_t i = 0; i < s->n_queries && w->state == SCHED_LIVE; i++)
      for (uint32_t k = 0; k < s->queries[i]->n_stages; k++) {
        const sched_stage *st = &s->queries[i]->stages[k];
        if (st->version == 0) continue;
        br_action *a = br_sched_act(out, BR_ACT_TABLE, s->queries[i]->id);
        a->stage = k;
        a->version = st->version;
        a->worker = w->id;
        a->incarnation = w->incarnation;
      }
  }
  s->n_joined = 0;
}

static void settle(br_sched *s, br_actions *out) {
  while (s->n_touched > 0) {
    sched_query *q = s->touched[--s->n_touched];
    settle_query(s, q, out);
  }
}

/* ---- wake */
static void wake(br_sched *s, br_actions *out) {
  uint64_t next = s->silent_at_ms, at;
  if (s->cancel_at_ms < next) next = s->cancel_at_ms;
  if (s->probe_at_ms < next) next = s->probe_at_ms;
  if (s->straggler_at_ms < next) next = s->straggler_at_ms;
  if (s->n_holds > 0 && s->holds[0].at_ms < next) next = s->holds[0].at_ms;
  for (uint32_t i = 0; i < s->n_queries && s->n_usable == 0; i++)
    if (starves(s, s->queries[i], &at) && at < next) next = at;
  if (next == UINT64_MAX || (s->wake_ms > s->now_ms && s->wake_ms <= next)) return;
  s->wake_ms = next;
  br_sched_act(out, BR_ACT_WAKE, 0)->at_ms = next;
}

void br_sched_step(br_sched *s, const br_event *e, br_actions *out) {
  if (e->now_ms > s->now_ms) s->now_ms = e->now_ms;
  handle(s, e, out);
  br_sched_worker_timers(s, out);
  br_sched_release_held(s);
  no_worker_timers(s);
  settle(s, out);
  tables_for_joined(s, out);
  br_sched_place(s, out);
  if (br_sched_stragglers(s, out)) br_sched_place(s, out); /* a stage that closed for it may have kept a worker */
  settle(s, out);                                          /* placing gives up on a task that was started too often */
  br_sched_release_workers(s, out);
  wake(s, out);
}
