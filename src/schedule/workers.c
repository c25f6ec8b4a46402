/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers and their slots: join, drain, loss, silence, probes. A worker is (id, incarnation): of one id only the newest
 * incarnation counts, and one that was declared gone never comes back, so a zombie's answers meet nothing. The incarnations of the last
 * BR_SCHED_MAX_GONE_WORKERS lost workers are remembered for that. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/state.h"

static uint32_t index_of(const br_sched *s, const sched_worker *w) { return (uint32_t)(w - s->workers); }

static sched_worker *worker_by_id(const br_sched *s, uint32_t id) {
  uintptr_t at = (uintptr_t)br_map_get(s->worker_by_id, id);
  return at ? &s->workers[at - 1] : NULL;
}

sched_worker *br_sched_worker_live(const br_sched *s, uint32_t id, uint32_t incarnation) {
  sched_worker *w = worker_by_id(s, id);
  return w && w->state == SCHED_LIVE && w->incarnation == incarnation ? w : NULL;
}

/* ---- which workers have a free slot */
static void update_free(br_sched *s, sched_worker *w) {
  bool is = w->state == SCHED_LIVE && !w->draining && !w->alone && w->kept_for == 0 && w->used < w->n_slots;
  bool was = w->free_index != BR_SCHED_NONE;
  if (is && !was) {
    br_grow((void **)&s->free, &s->cap_free, s->n_free, sizeof *s->free);
    w->free_index = s->n_free;
    s->free[s->n_free++] = index_of(s, w);
  } else if (was && !is) {
    s->free[w->free_index] = s->free[--s->n_free];
    s->workers[s->free[w->free_index]].free_index = w->free_index;
    w->free_index = BR_SCHED_NONE;
  }
}

void br_sched_update_free(br_sched *s, uint32_t w) { update_free(s, &s->workers[w]); }

sched_slot *br_sched_slot_find(sched_worker *w, const br_attempt_id *a) {
  for (uint32_t i = 0; i < w->n_slots; i++) {
    const br_attempt_id *b = &w->slots[i].attempt;
    if (w->slots[i].used && a->query == b->query && a->stage == b->stage && a->task == b->task &&
        a->attempt == b->attempt)
      return &w->slots[i];
  }
  return NULL;
}

void br_sched_slot_take(br_sched *s, uint32_t w, const br_attempt_id *a, bool alone) {
  sched_worker *worker = &s->workers[w];
  uint32_t i = 0;
  while (i < worker->n_slots && worker->slots[i].used) i++;
  BR_ASSERT(i < worker->n_slots);
  worker->slots[i] = (sched_slot){.used = true, .alone = alone, .attempt = *a, .since_ms = s->now_ms};
  worker->alone |= alone;
  worker->used++;
  update_free(s, worker);
}

void br_sched_slot_free(br_sched *s, uint32_t w, sched_slot *slot) {
  if (slot->alone) s->workers[w].alone = false;
  slot->used = slot->cancelling = slot->alone = false;
  s->workers[w].used--;
  update_free(s, &s->workers[w]);
}

/* ---- those that are gone, oldest first */
static void gone_add(br_sched *s, uint32_t w) {
  s->workers[w].prev_gone = s->gone_last;
  s->workers[w].next_gone = BR_SCHED_NONE;
  if (s->gone_last == BR_SCHED_NONE)
    s->gone_first = w;
  else
    s->workers[s->gone_last].next_gone = w;
  s->gone_last = w;
  s->n_gone++;
}

static void gone_remove(br_sched *s, uint32_t w) {
  sched_worker *worker = &s->workers[w];
  if (worker->prev_gone == BR_SCHED_NONE)
    s->gone_first = worker->next_gone;
  else
    s->workers[worker->prev_gone].next_gone = worker->next_gone;
  if (worker->next_gone == BR_SCHED_NONE)
    s->gone_last = worker->prev_gone;
  else
    s->workers[worker->next_gone].prev_gone = worker->prev_gone;
  s->n_gone--;
}

/* ---- join */
static sched_worker *new_entry(br_sched *s, uint32_t id) {
  uint32_t w = s->n_workers;
  if (s->n_gone >= BR_SCHED_MAX_GONE_WORKERS) { /* the oldest one is forgotten */
    w = s->gone_first;
    gone_remove(s, w);
    br_map_remove(s->worker_by_id, s->workers[w].id);
    free(s->workers[w].slots);
  } else {
    br_grow((void **)&s->workers, &s->cap_workers, s->n_workers, sizeof *s->workers);
    s->n_workers++;
  }
  memset(&s->workers[w], 0, sizeof s->workers[w]);
  s->workers[w].id = id;
  s->workers[w].free_index = BR_SCHED_NONE;
  br_map_put(s->worker_by_id, id, (void *)((uintptr_t)w + 1));
  return &s->workers[w];
}

static void revive(br_sched *s, sched_worker *w, const br_event *e) {
  if (w->state == SCHED_GONE) gone_remove(s, index_of(s, w));
  w->state = SCHED_LIVE;
  w->draining = w->released = w->alone = false;
  w->kept_for = 0;
  w->incarnation = e->incarnation;
  w->gpus = e->gpus;
  w->n_slots = e->slots < 1 ? 1 : e->slots > BR_SCHED_MAX_SLOTS ? BR_SCHED_MAX_SLOTS : e->slots;
  w->slots = br_calloc(w->n_slots, sizeof *w->slots);
  w->heard_ms = w->joined_ms = s->now_ms;
  w->served = ++s->turn;
  w->probe_until_ms = 0;
  w->served_bad = w->read_bad = (sched_strikes){0};
  s->n_live++;
  s->n_usable++;
  if (s->now_ms + s->o.silent_ms < s->silent_at_ms) s->silent_at_ms = s->now_ms + s->o.silent_ms;
  update_free(s, w);
  br_grow((void **)&s->joined, &s->cap_joined, s->n_joined, sizeof *s->joined);
  s->joined[s->n_joined++] = index_of(s, w);
}

void br_sched_worker_join(br_sched *s, const br_event *e, br_actions *out) {
  sched_worker *w = worker_by_id(s, e->worker);
  if (e->worker == 0) return;
  if (w && e->incarnation <= w->incarnation) { /* a repeated message, or a zombie */
    if (w->state == SCHED_LIVE && e->incarnation == w->incarnation) w->heard_ms = s->now_ms;
    return;
  }
  if (w && w->state == SCHED_LIVE) br_sched_worker_lose(s, index_of(s, w), "it joined again after a restart", out);
  revive(s, w ? w : new_entry(s, e->worker), e);
}

/* ---- drain and loss */
static void not_usable(br_sched *s) {
  if (--s->n_usable == 0) s->no_worker_since_ms = s->now_ms;
}

void br_sched_worker_drain(br_sched *s, const br_event *e) {
  sched_worker *w = worker_by_id(s, e->worker);
  if (w == NULL || w->state != SCHED_LIVE || w->draining || (e->incarnation && e->incarnation != w->incarnation))
    return;
  w->draining = true;
  s->n_draining++;
  not_usable(s);
  update_free(s, w);
  br_sched_unlist_worker(s, index_of(s, w));
}

/* needed: somebody may have to make them again */
static void lose_outputs(br_sched *s, uint32_t w, bool needed) {
  for (uint32_t i = 0; i < s->n_queries && s->workers[w].outputs > 0; i++) {
    sched_query *q = s->queries[i];
    for (uint32_t k = 0; k < q->n_stages; k++) {
      sched_stage *st = &q->stages[k];
      for (uint32_t t = 0; st->alive > 0 && !st->outlives && t < st->n_tasks; t++) {
        if (!st->tasks[t].alive || st->tasks[t].output_at != w) continue;
        br_sched_kill_output(s, st, &st->tasks[t]);
        if (needed) br_sched_touch(s, q, true);
      }
    }
  }
}

static void lose_attempt(br_sched *s, sched_worker *w, const sched_slot *slot, const char *why) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  br_error err;
  if (!br_sched_task_find(s, slot->attempt.query, slot->attempt.stage, slot->attempt.task, &q, &st, &t)) return;
  bool over = br_sched_attempt_over(s, q, st, t, slot->attempt.attempt);
  if (!w->draining) {
    br_fail(&err, BR_LOST, BR_BLAME_WORKER, "worker %u was lost: %s", w->id, why);
    err.worker = w->id;
    br_sched_task_death(s, q, st, t, BR_SCHED_LOSS, &err);
  }
  if (over) br_sched_make_ready(s, q, st, t);
}

void br_sched_worker_lose(br_sched *s, uint32_t w, const char *why, br_actions *out) {
  sched_worker *worker = &s->workers[w];
  br_action *a = br_sched_act(out, BR_ACT_WORKER_GONE, 0);
  a->worker = worker->id;
  a->incarnation = worker->incarnation;
  br_fail(&a->error, BR_LOST, BR_BLAME_WORKER, "worker %u was lost: %s", worker->id, why);
  worker->state = SCHED_GONE;
  s->n_live--;
  if (!worker->draining)
    not_usable(s);
  else if (!worker->released)
    s->n_draining--;
  update_free(s, worker);
  br_sched_unlist_worker(s, w);
  lose_outputs(s, w, true);
  for (uint32_t i = 0; i < worker->n_slots; i++)
    if (worker->slots[i].used && !worker->slots[i].cancelling) lose_attempt(s, worker, &worker->slots[i], why);
  free(worker->slots);
  worker->slots = NULL;
  worker->n_slots = worker->used = 0;
  worker->alone = false;
  worker->kept_for = 0;
  gone_add(s, w);
}

/* ---- probes */
void br_sched_worker_suspect(br_sched *s, uint32_t w, uint32_t by, br_actions *out) {
  sched_worker *worker = &s->workers[w];
  if (worker->probe_until_ms != 0) return;
  worker->probe_until_ms = s->now_ms + s->o.probe_ms;
  worker->probe_by = by;
  if (worker->probe_until_ms < s->probe_at_ms) s->probe_at_ms = worker->probe_until_ms;
  br_action *a = br_sched_act(out, BR_ACT_PROBE, 0);
  a->worker = worker->id;
  a->incarnation = worker->incarnation;
}

static uint32_t strike(br_sched *s, sched_strikes *x) {
  if (x->n == 0 || s->now_ms - x->first_ms > BR_SCHED_FETCH_WINDOW_MS) *x = (sched_strikes){.first_ms = s->now_ms};
  return ++x->n;
}

/* It answers the coordinator, yet a reader could not read from it: one of the two has a bad network. Who gathers three
 * of them first is lost. What a reader said that was lost meanwhile explains itself: of two that can't reach each other
 * one must stay. */
static void strike_both(br_sched *s, sched_worker *w, br_actions *out) {
  bool other = w->probe_by && w->probe_by != w->id;
  sched_worker *by = other ? worker_by_id(s, w->probe_by) : NULL;
  if (other && (by == NULL || by->state != SCHED_LIVE)) return;
  if (strike(s, &w->served_bad) >= BR_SCHED_FETCH_FAILURES)
    br_sched_worker_lose(s, index_of(s, w), "it answers, but its outputs could not be read 3 times", out);
  else if (by && strike(s, &by->read_bad) >= BR_SCHED_FETCH_FAILURES)
    br_sched_worker_lose(s, index_of(s, by), "it could not read 3 times from workers that answer", out);
}

void br_sched_worker_probed(br_sched *s, const br_event *e, br_actions *out) {
  char why[400];
  sched_worker *w = br_sched_worker_live(s, e->worker, e->incarnation);
  if (w == NULL || w->probe_until_ms == 0) return;
  w->probe_until_ms = 0;
  if (e->error == NULL || e->error->code == BR_OK) {
    w->heard_ms = s->now_ms;
    strike_both(s, w, out);
    return;
  }
  snprintf(why, sizeof why, "its outputs could not be read, and it does not answer: %.300s", e->error->message);
  br_sched_worker_lose(s, index_of(s, w), why, out);
}

static void overdue_probes(br_sched *s, br_actions *out) {
  char why[120];
  s->probe_at_ms = UINT64_MAX;
  snprintf(why, sizeof why, "its outputs could not be read, and it did not answer a probe for %u ms", s->o.probe_ms);
  for (uint32_t w = 0; w < s->n_workers; w++) {
    uint64_t at = s->workers[w].state == SCHED_LIVE ? s->workers[w].probe_until_ms : 0;
    if (at == 0) continue;
    if (at <= s->now_ms)
      br_sched_worker_lose(s, w, why, out);
    else if (at < s->probe_at_ms)
      s->probe_at_ms = at;
  }
}

/* ---- drained workers that may go: no attempt (also none that is being stopped), and all that they hold is spare. */
void br_sched_release_workers(br_sched *s, br_actions *out) {
  for (uint32_t i = 0; i < s->n_workers && s->n_draining > 0; i++) {
    sched_worker *w = &s->workers[i];
    if (w->state != SCHED_LIVE || !w->draining || w->released || w->used > 0 || w->outputs > w->spare) continue;
    w->released = true;
    s->n_draining--;
    lose_outputs(s, i, false); /* nobody is sent there any more */
    br_action *a = br_sched_act(out, BR_ACT_RELEASE_WORKER, 0);
    a->worker = w->id;
    a->incarnation = w->incarnation;
  }
}

/* ---- timers */
static void silent_workers(br_sched *s, br_actions *out) {
  char why[80];
  s->silent_at_ms = UINT64_MAX;
  snprintf(why, sizeof why, "not heard of for %u ms", s->o.silent_ms);
  for (uint32_t w = 0; w < s->n_workers; w++) {
    if (s->workers[w].state != SCHED_LIVE) continue;
    uint64_t at = s->workers[w].heard_ms + s->o.silent_ms;
    if (at <= s->now_ms)
      br_sched_worker_lose(s, w, why, out);
    else if (at < s->silent_at_ms)
      s->silent_at_ms = at;
  }
}

static void overdue_cancels(br_sched *s) {
  s->cancel_at_ms = UINT64_MAX;
  for (uint32_t w = 0; w < s->n_workers; w++)
    for (uint32_t i = 0; i < s->workers[w].n_slots; i++) {
      sched_slot *slot = &s->workers[w].slots[i];
      if (!slot->used || !slot->cancelling) continue;
      uint64_t at = slot->since_ms + s->o.cancel_ms;
      if (at <= s->now_ms)
        br_sched_slot_free(s, w, slot);
      else if (at < s->cancel_at_ms)
        s->cancel_at_ms = at;
    }
}

void br_sched_worker_timers(br_sched *s, br_actions *out) {
  if (s->now_ms >= s->silent_at_ms) silent_workers(s, out);
  if (s->now_ms >= s->probe_at_ms) overdue_probes(s, out);
  if (s->now_ms >= s->cancel_at_ms) overdue_cancels(s);
}
