/* SPDX-License-Identifier: Apache-2.0
 *
 * Stragglers: an attempt that runs for longer than straggler_percent of the median time of its stage's committed tasks (and for more than
 * straggler_min_ms), when straggler_done_percent of the stage are done, gets a second attempt on another worker that has nothing better to do. The
 * first commit wins. Not for attempts that somebody reads while they write, nor for those that read so (EAGER: they wait for others), nor
 * for those that need a worker for themselves.
 *
 * The task itself knows its first attempt; second ones are in a table of their own, at most one a slot of the cluster. Times are counted in
 * buckets of an eighth of an octave, so the median is rounded up by an eighth at most. Looked at every straggler_min_ms / 8 at most,
 * O(slots) each time. One thread.
 */
#include "base/mem.h"
#include "schedule/state.h"

/* ---- times */
static uint32_t bucket_of(uint64_t ms) {
  uint32_t e = 0;
  if (ms < 8) return (uint32_t)ms;
  if (ms >= 1u << 24) ms = (1u << 24) - 1;
  while (ms >> (e + 4)) e++; /* 8 <= ms >> e < 16 */
  return 8 + e * 8 + ((uint32_t)(ms >> e) & 7);
}

static uint64_t bucket_end(uint32_t b) {
  if (b < 8) return b;
  uint32_t e = (b - 8) / 8, top = 8 + (b - 8) % 8;
  return ((uint64_t)(top + 1) << e) - 1;
}

static uint64_t median(const sched_stage *st) {
  uint32_t n = 0, b = 0;
  while (b + 1 < BR_SCHED_TIME_BUCKETS && (n += st->times[b]) * 2 < st->n_times) b++;
  return bucket_end(b);
}

/* ---- which and when */
static bool nearly_done(const br_sched *s, const sched_stage *st) {
  uint64_t done = st->n_tasks - st->todo;
  return s->o.straggler_percent != UINT32_MAX && st->todo > 0 && st->n_times > 0 &&
         done * 100 >= (uint64_t)st->n_tasks * s->o.straggler_done_percent;
}

static void look_by(br_sched *s, uint64_t at_ms) {
  if (at_ms < s->straggler_at_ms) s->straggler_at_ms = at_ms;
}

static uint64_t pause_ms(const br_sched *s) { return s->o.straggler_min_ms / 8 + 1; }

void br_sched_look_soon(br_sched *s, const sched_stage *st) {
  if (nearly_done(s, st)) look_by(s, s->now_ms + pause_ms(s));
}

void br_sched_took(br_sched *s, sched_stage *st, uint64_t ms) {
  if (s->o.straggler_percent == UINT32_MAX || st->n_tasks < 2) return;
  if (st->times == NULL) st->times = br_calloc(BR_SCHED_TIME_BUCKETS, sizeof *st->times);
  st->times[bucket_of(ms)]++;
  st->n_times++;
  br_sched_look_soon(s, st);
}

void br_sched_watch(br_sched *s, const sched_stage *st) {
  if (nearly_done(s, st)) look_by(s, s->now_ms + s->o.straggler_min_ms + 1);
}

static uint64_t due_at(const br_sched *s, const sched_stage *st, const sched_slot *slot) {
  uint64_t ms = median(st) * s->o.straggler_percent / 100;
  return slot->since_ms + (ms > s->o.straggler_min_ms ? ms : s->o.straggler_min_ms) + 1;
}

/* Never, for this attempt. */
static bool is_excluded(const sched_query *q, const sched_stage *st, const sched_task *t) {
  return t->twin || t->ladder != SCHED_SHARED || (q->eager && (t->bound || t->since <= st->version));
}

static bool may_have_second(const sched_query *q, const sched_stage *st, const sched_task *t) {
  for (size_t k = 0; k < st->n_inputs; k++)
    if (q->stages[st->inputs[k].stage].todo > 0) return false;
  return !q->doom && !br_sched_is_full(q) && t->attempt < BR_SCHED_MAX_ATTEMPT;
}

/* ---- the table of second attempts */
sched_twin *br_sched_twin_find(const br_sched *s, const sched_query *q, const sched_stage *st, const sched_task *t) {
  uint32_t stage = (uint32_t)(st - q->stages), task = (uint32_t)(t - st->tasks);
  for (uint32_t i = 0; i < s->n_twins && t->twin; i++)
    if (s->twins[i].query == q->id && s->twins[i].stage == stage && s->twins[i].task == task) return &s->twins[i];
  return NULL;
}

void br_sched_twin_remove(br_sched *s, sched_stage *st, sched_task *t, sched_twin *twin) {
  *twin = s->twins[--s->n_twins];
  t->twin = false;
  st->flying++;              /* one attempt again: tables may name it */
  br_sched_look_soon(s, st); /* it may be slow, too */
}

static void start_second(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t w, br_actions *out) {
  br_sched_bind(q, st, t, out); /* all inputs are committed: not bound */
  br_grow((void **)&s->twins, &s->cap_twins, s->n_twins, sizeof *s->twins);
  s->twins[s->n_twins++] = (sched_twin){.query = q->id,
                                        .stage = (uint32_t)(st - q->stages),
                                        .task = (uint32_t)(t - st->tasks),
                                        .attempt = ++t->attempt,
                                        .worker = w};
  t->twin = true;
  st->flying--; /* which of the two is not known: no table names either */
  st->dirty = true;
  q->running++;
  s->workers[w].served = ++s->turn;
  br_action *a = br_sched_act(out, BR_ACT_RUN, q->id);
  a->attempt = br_sched_attempt(q, st, t, t->attempt);
  a->stage = a->attempt.stage;
  a->worker = s->workers[w].id;
  a->incarnation = s->workers[w].incarnation;
  a->passes = 1;
  a->second = true;
  br_sched_slot_take(s, w, &a->attempt, false);
  br_sched_flow(s, q, st);
  br_sched_watch(s, st);
}

static void look_at(br_sched *s, uint32_t at, const sched_slot *slot, br_actions *out) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  if (!slot->used || slot->cancelling) return;
  if (!br_sched_task_find(s, slot->attempt.query, slot->attempt.stage, slot->attempt.task, &q, &st, &t)) return;
  if (!nearly_done(s, st) || is_excluded(q, st, t)) return;
  uint64_t due = due_at(s, st, slot);
  uint32_t w = due <= s->now_ms && may_have_second(q, st, t) ? br_sched_choose_other(s, t, at) : BR_SCHED_NONE;
  if (w != BR_SCHED_NONE)
    start_second(s, q, st, t, w, out);
  else
    look_by(s, due > s->now_ms ? due : s->now_ms + pause_ms(s));
}

bool br_sched_stragglers(br_sched *s, br_actions *out) {
  uint32_t before = s->n_twins;
  if (s->now_ms < s->straggler_at_ms) return false;
  s->straggler_at_ms = UINT64_MAX;
  for (uint32_t w = 0; w < s->n_workers; w++)
    for (uint32_t i = 0; i < s->workers[w].n_slots; i++) look_at(s, w, &s->workers[w].slots[i], out);
  return s->n_twins > before;
}
