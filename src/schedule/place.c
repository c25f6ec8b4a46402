/* SPDX-License-Identifier: Apache-2.0
 *
 * Ready tasks onto free slots. The query with the fewest running attempts for its weight is next (ties: the one that waited
 * longest), in it the lowest stage with ready tasks (what is made again comes first), in it a task that lies on a worker with a free slot, else
 * one that may run anywhere, else one that would rather be elsewhere: a slot is never kept free for locality. The worker with the
 * lowest share of used slots gets it (ties: the one that waited longest). A task does not go back to the worker where it failed last as long as there is
 * another one, even if it must wait for that; one that calls a function with GPUs goes where some are. One thread. O(queries + free workers) a placement.
 */
#include "schedule/state.h"

static bool less_busy(const sched_worker *a, const sched_worker *b) {
  uint64_t l = (uint64_t)a->used * b->n_slots, r = (uint64_t)b->used * a->n_slots;
  return l != r ? l < r : a->served < b->served;
}

/* Without any worker that has GPUs it goes anywhere, and says there what is missing. */
static bool has_gpus(const br_sched *s, const sched_task *t, const sched_worker *w) {
  if (!t->gpu || w->gpus) return true;
  for (uint32_t i = 0; i < s->n_workers; i++)
    if (s->workers[i].gpus && s->workers[i].state == SCHED_LIVE && !s->workers[i].draining) return false;
  return true;
}

bool br_sched_may_go(const br_sched *s, const sched_task *t, const sched_worker *w) {
  if (!has_gpus(s, t, w)) return false;
  return t->avoid == 0 || t->avoid != w->id || s->n_usable < 2;
}

/* The least busy worker with a free slot that the task may go to; with st: and that ready tasks of it prefer. NONE: none. */
static uint32_t choose_worker(const br_sched *s, const sched_task *t, const sched_stage *st) {
  uint32_t best = BR_SCHED_NONE;
  for (uint32_t i = 0; i < s->n_free; i++) {
    uint32_t w = s->free[i];
    if (t && !br_sched_may_go(s, t, &s->workers[w])) continue;
    if (st && (1 + w >= st->n_lists || st->lists[1 + w].head == BR_SCHED_NONE)) continue;
    if (st && !has_gpus(s, &st->tasks[st->lists[1 + w].head], &s->workers[w])) continue;
    if (best == BR_SCHED_NONE || less_busy(&s->workers[w], &s->workers[best])) best = w;
  }
  return best;
}

bool br_sched_is_full(const sched_query *q) { return q->max_running != 0 && q->running >= q->max_running; }

uint32_t br_sched_choose_other(const br_sched *s, const sched_task *t, uint32_t w) {
  uint32_t best = BR_SCHED_NONE;
  for (uint32_t i = 0; i < s->n_free; i++) {
    uint32_t f = s->free[i];
    if (f == w || !br_sched_may_go(s, t, &s->workers[f])) continue;
    if (best == BR_SCHED_NONE || less_busy(&s->workers[f], &s->workers[best])) best = f;
  }
  return best;
}

void br_sched_run(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t w, uint32_t passes,
                  br_actions *out) {
  br_error err;
  br_sched_unready(s, q, st, t);
  if (t->attempt == BR_SCHED_MAX_ATTEMPT) {
    br_fail(&err, BR_INTERNAL, BR_BLAME_INTERNAL, "task %u of stage %u was started %u times without an end",
            (uint32_t)(t - st->tasks), (uint32_t)(st - q->stages), t->attempt);
    br_sched_doom(s, q, &err);
    return;
  }
  br_sched_bind(q, st, t, out);
  st->begun = true;
  st->asks = false; /* EAGER: it follows what is being written, as it was planned */
  t->now = ++t->attempt;
  t->running_on = w;
  if (q->eager) { /* the next table names it */
    t->since = st->version + 1;
    st->dirty = true;
  }
  br_sched_set_state(st, t, BR_TASK_ASSIGNED);
  q->running++;
  st->flying++;
  q->served = s->workers[w].served = ++s->turn;
  br_action *a = br_sched_act(out, BR_ACT_RUN, q->id);
  a->attempt = br_sched_attempt(q, st, t, t->attempt);
  a->stage = a->attempt.stage;
  a->worker = s->workers[w].id;
  a->incarnation = s->workers[w].incarnation;
  a->alone = passes > 0;
  a->passes = passes > 0 ? passes : 1;
  br_sched_slot_take(s, w, &a->attempt, passes > 0);
  br_sched_flow(s, q, st);
  br_sched_watch(s, st);
}

/* The first tasks of a list; true: one of them was placed. */
static bool place_from(br_sched *s, sched_query *q, sched_stage *st, uint32_t list, br_actions *out) {
  uint32_t at = st->lists[list].head;
  for (uint32_t i = 0; i < BR_SCHED_LOOK_AHEAD && at != BR_SCHED_NONE; i++, at = st->tasks[at].next) {
    uint32_t w = choose_worker(s, &st->tasks[at], NULL);
    if (w == BR_SCHED_NONE) continue;
    br_sched_run(s, q, st, &st->tasks[at], w, 0, out);
    return true;
  }
  return false;
}

static bool place_in_stage(br_sched *s, sched_query *q, sched_stage *st, br_actions *out) {
  uint32_t w = st->forward ? choose_worker(s, NULL, st) : BR_SCHED_NONE;
  if (w != BR_SCHED_NONE) {
    br_sched_run(s, q, st, &st->tasks[st->lists[1 + w].head], w, 0, out);
    return true;
  }
  if (place_from(s, q, st, 0, out)) return true;
  for (uint32_t i = 1; i < st->n_lists; i++) {
    if (++st->steal >= st->n_lists) st->steal = 1;
    if (st->lists[st->steal].head != BR_SCHED_NONE && place_from(s, q, st, st->steal, out)) return true;
  }
  return false;
}

static bool place_in_query(br_sched *s, sched_query *q, br_actions *out) {
  for (uint32_t i = 0; i < q->n_stages; i++)
    if (q->stages[i].ready > 0 && place_in_stage(s, q, &q->stages[i], out)) return true;
  return false;
}

static sched_query *next_query(const br_sched *s) {
  sched_query *best = NULL;
  for (uint32_t i = 0; i < s->n_queries; i++) {
    sched_query *q = s->queries[i];
    if (q->ready == 0 || q->doom || q->blocked == s->pass) continue;
    if (br_sched_is_full(q)) continue;
    if (best) {
      uint64_t l = (uint64_t)q->running * best->weight, r = (uint64_t)best->running * q->weight;
      if (l > r || (l == r && q->served > best->served)) continue;
    }
    best = q;
  }
  return best;
}

/* Who waits for a whole worker comes first. What is placed may open stages, and so make others wait for one, or give one back. */
void br_sched_place(br_sched *s, br_actions *out) {
  do {
    s->pass++;
    br_sched_place_alone(s, out);
    while (s->n_free > 0) {
      sched_query *q = next_query(s);
      if (q == NULL) break;
      if (!place_in_query(s, q, out)) q->blocked = s->pass;
    }
  } while (s->n_waits > 0 && s->wait_news);
}
