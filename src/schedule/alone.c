/* SPDX-License-Identifier: Apache-2.0
 *
 * Out of memory: a task whose attempt failed for memory runs alone, then (when its stage is splittable) alone in split_passes passes, then
 * in their square. Alone means: nothing else runs on its worker. Ready tasks of this kind wait here, in order, not in the lists of their
 * stages. Each may keep one worker for itself, which gets nothing else until it is empty: so nobody starves, and two of them never wait for
 * each other (they wait for what runs, and that ends). One thread. O(workers + waiting tasks) a placement while any waits.
 */
#include "base/mem.h"
#include "schedule/state.h"

uint32_t br_sched_passes(const br_sched *s, const sched_task *t) {
  uint32_t k = s->o.split_passes;
  return t->ladder == SCHED_SPLIT ? k : t->ladder == SCHED_SPLIT_TWICE ? k * k : 1;
}

void br_sched_more_memory(const sched_stage *st, sched_task *t) {
  if (t->ladder == SCHED_SHARED)
    t->ladder = SCHED_ALONE;
  else if (st->splittable && t->ladder < SCHED_SPLIT_TWICE)
    t->ladder++;
}

/* ---- keeping a worker */
static bool keeps(const br_sched *s, const sched_wait *w) {
  return w->worker != BR_SCHED_NONE && s->workers[w->worker].kept_for == w->ticket;
}

static void give_back(br_sched *s, const sched_wait *w) {
  if (!keeps(s, w)) return;
  s->workers[w->worker].kept_for = 0;
  s->wait_news = true;
  br_sched_update_free(s, w->worker);
}

static void keep(br_sched *s, sched_wait *w, uint32_t worker) {
  w->worker = worker;
  s->workers[worker].kept_for = w->ticket;
  br_sched_update_free(s, worker);
}

/* ---- waiting */
void br_sched_wait_alone(br_sched *s, sched_query *q, sched_stage *st, sched_task *t) {
  br_grow((void **)&s->waits, &s->cap_waits, s->n_waits, sizeof *s->waits);
  s->waits[s->n_waits++] = (sched_wait){.query = q->id,
                                        .stage = (uint32_t)(st - q->stages),
                                        .task = (uint32_t)(t - st->tasks),
                                        .worker = BR_SCHED_NONE,
                                        .ticket = ++s->ticket};
  t->list = BR_SCHED_WAITS;
  s->wait_news = true;
}

void br_sched_wait_over(br_sched *s, sched_query *q, sched_stage *st, sched_task *t) {
  uint32_t stage = (uint32_t)(st - q->stages), task = (uint32_t)(t - st->tasks);
  uint32_t to = 0;
  for (uint32_t i = 0; i < s->n_waits; i++) {
    sched_wait *w = &s->waits[i];
    if (w->query == q->id && w->stage == stage && w->task == task)
      give_back(s, w);
    else
      s->waits[to++] = *w;
  }
  s->n_waits = to;
  t->list = BR_SCHED_NONE;
}

bool br_sched_may_keep(const br_sched *s, const sched_worker *w, const sched_task *t) {
  return w->state == SCHED_LIVE && !w->draining && w->kept_for == 0 && !w->alone && br_sched_may_go(s, t, w);
}

/* The emptiest worker that nobody keeps; NONE: none. */
static uint32_t emptiest(const br_sched *s, const sched_task *t) {
  uint32_t best = BR_SCHED_NONE;
  for (uint32_t i = 0; i < s->n_workers; i++) {
    const sched_worker *w = &s->workers[i];
    if (br_sched_may_keep(s, w, t) && (best == BR_SCHED_NONE || w->used < s->workers[best].used)) best = i;
  }
  return best;
}

/* True: it runs now, and waits no more. */
static bool place_one(br_sched *s, sched_wait *w, sched_query *q, sched_stage *st, sched_task *t, br_actions *out) {
  if (keeps(s, w) && (s->workers[w->worker].draining || !br_sched_may_go(s, t, &s->workers[w->worker])))
    give_back(s, w);
  if (!keeps(s, w) || s->workers[w->worker].used > 0) {
    uint32_t best = emptiest(s, t);
    if (best != BR_SCHED_NONE && (!keeps(s, w) || s->workers[best].used == 0)) {
      give_back(s, w);
      keep(s, w, best);
    }
  }
  if (!keeps(s, w) || s->workers[w->worker].used > 0) return false;
  br_sched_run(s, q, st, t, w->worker, br_sched_passes(s, t), out);
  return true;
}

void br_sched_place_alone(br_sched *s, br_actions *out) {
  s->wait_news = false;
  for (uint32_t i = 0; i < s->n_waits;) {
    sched_wait *w = &s->waits[i];
    sched_query *q;
    sched_stage *st;
    sched_task *t;
    bool found = br_sched_task_find(s, w->query, w->stage, w->task, &q, &st, &t);
    BR_ASSERT(found);
    if (q->doom || br_sched_is_full(q)) {
      give_back(s, w);
      i++;
    } else if (!place_one(s, w, q, st, t, out)) {
      i++;
    }
  }
}
