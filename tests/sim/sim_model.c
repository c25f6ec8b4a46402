/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be true: an account of the run that knows the scheduler by its events and actions alone. It says which outputs are alive,
 * which attempts count, who may fail and why, and compares after every step.
 *
 * sim_before: what the event means. sim_action (sim_allow.c): may this action be? sim_after: is what had to follow there?
 */
#include <stdio.h>
#include <string.h>

#include "sim/sim_world.h"

#define SIM_DEATH 4u   /* an executor's; a worker's is 1: so many quarters of killer_executors */
#define SIM_IDLE 1000u /* ms: a task that could run is run */
#define SIM_SLACK 100u /* ms: WAKE may be that late */
#define SIM_LEAVE_MS 2000u

/* ---- before: answers */
sim_worker *sim_live_worker(sim_world *w, uint32_t id, uint32_t incarnation) {
  int32_t i = sim_worker_by_id(w, id, incarnation);
  return i >= 0 && w->w[i].live ? &w->w[i] : NULL;
}

static void give_slot_back(const sim_attempt *a, sim_worker *from) {
  if (a->answered || a->overdue) return;
  from->outstanding--;
  from->alone -= a->alone;
}

/* Cancelled for cancel_ms, and no answer: its slot counts as free. */
static void free_overdue(sim_world *w) {
  if (w->now_ms < w->overdue_ms) return;
  w->overdue_ms = UINT64_MAX;
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    uint64_t at = a->cancelled_ms + w->o.cancel_ms;
    if (a->cancelled_ms == 0 || a->answered || a->overdue) continue;
    if (at <= w->now_ms) {
      give_slot_back(a, &w->w[a->worker]);
      a->overdue = true;
    } else if (at < w->overdue_ms) {
      w->overdue_ms = at;
    }
  }
}

/* The attempt that this answer ends; NULL: late, repeated, or of a worker that is gone. */
static sim_attempt *take_answer(sim_world *w, const br_attempt_id *id, sim_worker *from) {
  int32_t i = sim_attempt_by_id(w, id);
  if (i < 0 || from == NULL) return NULL;
  sim_attempt *a = &w->att[i];
  give_slot_back(a, from);
  a->answered = true;
  bool counts = a->current;
  a->current = false;
  if (!counts) {
    w->st.late_answers++;
    return NULL;
  }
  sim_task *t = sim_task_of(&w->q[a->q], id->stage, id->task);
  t->now[t->now[1] == i] = -1;
  return a;
}

static uint32_t failures(const sim_task *t) { return t->charged + t->deaths / SIM_DEATH + t->fetches; }

static void wait_for_backoff(sim_world *w, sim_task *t) {
  uint32_t n = failures(t); /* 0: a draining worker stopped it */
  uint64_t ms = n > 7 ? 10000 : 200u << (n > 0 ? n - 1 : 0);
  t->not_before_ms = w->now_ms + (ms > 10000 ? 10000 : ms);
}

/* An output is dead; where it is the worker's own word, the attempt that writes it starts anew (a reader's: it waits for the reason). */
static void lose_one(sim_world *w, int32_t i, bool by_worker) {
  sim_query *q = &w->q[w->att[i].q];
  sim_task *t = sim_task_of(q, w->att[i].id.stage, w->att[i].id.task);
  if (q->state != SIM_Q_RUNS) return;
  if (t->alive == i) t->alive = -1;
  if (!by_worker || q->mode != BR_SCHED_EAGER || !w->att[i].current) return;
  t->fetches++;
  if (sim_n_current(t) > 1) return; /* the other one goes on */
  wait_for_backoff(w, t);
}

/* What can't be read is lost; a worker that can't be read from is asked (once at a time), when it was there when the reader was sent. */
static void complain(sim_world *w, const br_error *e, uint64_t sent_ms, uint32_t by) {
  if (e->has_lost) {
    int32_t i = sim_attempt_by_id(w, &e->lost.made_by);
    if (i >= 0) lose_one(w, i, false);
    return;
  }
  for (uint32_t i = 0; i < w->n_w; i++) {
    sim_worker *about = &w->w[i];
    if (!about->live || about->id != e->worker || about->joined_ms > sent_ms || about->probed_ms) continue;
    about->probe_due = true;
    about->probed_for = by;
  }
}

/* Not charged, but counted. One that was killed for its memory, and alone: nobody else can have been it. */
static void executor_died(sim_task *t, const sim_attempt *a, const br_error *e) {
  bool for_memory = e && e->code == BR_OUT_OF_MEMORY;
  t->ooms += for_memory;
  if (for_memory && a->alone)
    t->charged++;
  else
    t->deaths += SIM_DEATH;
}

static void before_failed(sim_world *w, const br_event *ev, sim_worker *from) {
  sim_attempt *a = take_answer(w, &ev->attempt, from);
  if (a == NULL) return;
  sim_query *q = &w->q[a->q];
  sim_task *t = sim_task_of(q, a->id.stage, a->id.task);
  if (ev->error->blame == BR_BLAME_USER) {
    q->poisoned = true;
    return; /* it does not start again */
  }
  if (ev->error->code == BR_FETCH) {
    t->fetches++;
    t->avoids = ev->error->has_lost ? 0 : from->id;
    w->st.fetch_failures++;
    complain(w, ev->error, a->sent_ms, from->id);
  } else if (ev->error->blame == BR_BLAME_EXECUTOR) {
    executor_died(t, a, ev->error);
  } else if (from->usable || ev->error->blame != BR_BLAME_WORKER) { /* one that drains may stop its tasks */
    t->charged++;
    t->avoids = from->id;
    t->ooms += ev->error->code == BR_OUT_OF_MEMORY;
  }
  if (sim_n_current(t) == 0) wait_for_backoff(w, t); /* else the other one goes on */
}

static void note_newest(const sim_world *w, sim_query *q, const sim_attempt *a) {
  sim_task_of(q, a->id.stage, a->id.task)->newest = a->id.attempt;
  for (size_t k = 0; k < q->stages[a->id.stage].n_inputs; k++)
    for (uint32_t m = 0; m < SIM_MAX_TASKS; m++) {
      if (a->bound[k][m] < 0) continue;
      const br_attempt_id *read = &w->att[a->bound[k][m]].id;
      sim_task *t = sim_task_of(q, read->stage, read->task);
      if (read->attempt > t->newest) t->newest = read->attempt;
    }
}

static bool read_early(const sim_world *w, const sim_query *q, const sim_attempt *a) {
  for (size_t k = 0; k < q->stages[a->id.stage].n_inputs; k++)
    for (uint32_t m = 0; m < SIM_MAX_TASKS; m++)
      if (a->bound[k][m] >= 0 && !w->att[a->bound[k][m]].committed) return true;
  return false;
}

static void note_time(sim_stage *st, uint64_t ms) {
  uint32_t i = st->n_times;
  if (st->n_times == SIM_MAX_TIMES) return;
  for (st->n_times++; i > 0 && st->times[i - 1] > ms; i--) st->times[i] = st->times[i - 1];
  st->times[i] = ms;
}

static void before_done(sim_world *w, const br_event *ev, sim_worker *from) {
  sim_attempt *a = take_answer(w, &ev->attempt, from);
  if (a == NULL) return;
  sim_query *q = &w->q[a->q];
  sim_task *t = sim_task_of(q, a->id.stage, a->id.task);
  if (t->alive >= 0)
    sim_bad(w, "q%llu.s%u.t%u is committed twice", (unsigned long long)a->id.query, a->id.stage, a->id.task);
  if (t->made_by >= 0) w->st.reruns++;
  w->st.early_commits += read_early(w, q, a);
  w->st.second_wins += a->second;
  note_newest(w, q, a);
  note_time(&q->stages[a->id.stage], w->now_ms - a->sent_ms);
  t->alive = t->made_by = (int32_t)(a - w->att);
  t->charged = t->deaths = t->fetches = 0;
  t->not_before_ms = 0;
  t->avoids = 0;
  a->committed = true;
  w->st.commits++;
}

static void before_executor(sim_world *w, const br_event *ev, sim_worker *from) {
  for (size_t i = 0; i < ev->n_attempts; i++) {
    sim_attempt *a = take_answer(w, &ev->attempts[i], from);
    if (a == NULL) continue;
    sim_task *t = sim_task_of(&w->q[a->q], a->id.stage, a->id.task);
    executor_died(t, a, ev->error);
    if (sim_n_current(t) == 0) wait_for_backoff(w, t);
  }
}

/* The scheduler may answer that what was read is void: then the query fails. */
static void before_read(sim_world *w, sim_query *q, const br_event *ev) {
  if (q == NULL) return;
  int32_t i = sim_attempt_by_id(w, &ev->attempt);
  sim_task *t = sim_task_of(q, ev->stage, ev->task);
  if (i < 0 || t->read || q->state != SIM_Q_RUNS) return;
  t->read = true;
  q->results[q->stages[ev->stage].first + ev->task] = w->att[i].out;
}

static void before_joined(sim_world *w, const br_event *ev) {
  int32_t me = sim_worker_by_id(w, ev->worker, ev->incarnation);
  if (me < 0 || w->w[me].joined) return;
  for (uint32_t i = 0; i < w->n_w; i++) {
    if (w->w[i].id != ev->worker || !w->w[i].joined) continue;
    if (w->w[i].incarnation > ev->incarnation) return; /* a zombie's */
    if (w->w[i].live) w->w[i].said_lost = true;
  }
  w->w[me].joined = w->w[me].live = w->w[me].usable = true;
  w->w[me].heard_ms = w->w[me].joined_ms = w->now_ms;
}

static void strike(const sim_world *w, sim_strikes *s) {
  if (s->n == 0 || w->now_ms - s->first_ms > 60000) *s = (sim_strikes){.first_ms = w->now_ms};
  s->n++;
}

/* It answers, yet somebody could not read from it: one of the two is at fault. If somebody is gone by now, it was him. */
static void before_probed(sim_world *w, const br_event *ev, sim_worker *from) {
  if (from == NULL || from->probed_ms == 0) return;
  from->probed_ms = 0;
  if (ev->error->code != BR_OK) {
    from->said_dead = true;
    return;
  }
  bool by_itself = from->probed_for == 0 || from->probed_for == from->id, is_there = by_itself;
  for (uint32_t i = 0; i < w->n_w && !by_itself; i++) {
    if (!w->w[i].live || w->w[i].id != from->probed_for) continue;
    strike(w, &w->w[i].read);
    is_there = true;
  }
  if (is_there) strike(w, &from->served);
}

static void before_outputs_lost(sim_world *w, const br_event *ev, const sim_worker *from) {
  for (size_t k = 0; k < ev->n_attempts && from; k++) {
    int32_t i = sim_attempt_by_id(w, &ev->attempts[k]);
    if (i >= 0 && &w->w[w->att[i].worker] == from) lose_one(w, i, true);
  }
}

void sim_before(sim_world *w, const br_event *ev) {
  sim_worker *from = sim_live_worker(w, ev->worker, ev->incarnation);
  sim_query *q = sim_query_by_id(w, ev->query);
  w->dropped_late = false;
  free_overdue(w);
  if (from && ev->kind != BR_EV_WORKER_LOST && ev->kind != BR_EV_WORKER_DRAINING &&
      (ev->kind != BR_EV_PROBED || (from->probed_ms && ev->error->code == BR_OK)))
    from->heard_ms = w->now_ms;
  switch (ev->kind) {
    case BR_EV_WORKER_JOINED: before_joined(w, ev); break;
    case BR_EV_WORKER_LOST:
      if (from) from->said_lost = true;
      break;
    case BR_EV_WORKER_DRAINING:
      if (from) from->usable = false;
      break;
    case BR_EV_EXECUTOR_LOST: before_executor(w, ev, from); break;
    case BR_EV_TASK_DONE: before_done(w, ev, from); break;
    case BR_EV_TASK_FAILED: before_failed(w, ev, from); break;
    case BR_EV_CANCEL_QUERY:
      if (q && q->state == SIM_Q_RUNS) q->cancelled = true;
      break;
    case BR_EV_RESULT_READ: before_read(w, q, ev); break;
    case BR_EV_FETCH_FAILED: complain(w, ev->error, w->now_ms, 0); break;
    case BR_EV_PROBED: before_probed(w, ev, from); break;
    case BR_EV_OUTPUTS_LOST: before_outputs_lost(w, ev, from); break;
    default: break;
  }
}

/* ---- after: queries */
bool sim_starved(const sim_world *w, const sim_query *q, uint32_t more_ms) {
  uint64_t since = w->no_usable_since_ms > q->since_ms ? w->no_usable_since_ms : q->since_ms;
  return !w->any_usable && w->now_ms - since >= w->o.no_worker_ms + more_ms;
}

bool sim_tried_enough(const sim_world *w, const sim_task *t) {
  return t->charged >= w->o.max_attempts || t->deaths >= w->o.killer_executors * SIM_DEATH || t->fetches >= SIM_FETCHES;
}

/* A reader of something that is lost while it grew can't go on. */
static void check_bound(sim_world *w, const sim_query *q, int32_t reader) {
  const sim_attempt *a = &w->att[reader];
  for (size_t k = 0; k < q->stages[a->id.stage].n_inputs; k++)
    for (uint32_t m = 0; m < SIM_MAX_TASKS; m++) {
      int32_t p = a->bound[k][m];
      if (p < 0 || !a->grew[k][m] || w->att[p].committed || w->att[p].current) continue;
      sim_bad(w, "q%llu.s%u.t%u.a%u reads s%u.t%u.a%u, which failed, and goes on", (unsigned long long)q->id,
              a->id.stage, a->id.task, a->id.attempt, w->att[p].id.stage, m, w->att[p].id.attempt);
    }
}

static void check_task(sim_world *w, sim_query *q, uint32_t stage, uint32_t task) {
  br_map_output_id o;
  bool growing = false;
  const sim_task *t = sim_task_of(q, stage, task);
  bool there = br_sched_output(w->s, q->id, stage, task, &o, &growing);
  int32_t says = there ? sim_attempt_by_id(w, &o.made_by) : -1;
  if (growing && q->mode != BR_SCHED_EAGER) sim_bad(w, "a growing output in staged mode");
  if (growing ? t->alive >= 0 || !sim_is_current(t, says) : says != t->alive)
    sim_bad(w, "q%llu.s%u.t%u: the scheduler has %s output, the model has attempt %d", (unsigned long long)q->id, stage,
            task,
            growing ? "a growing"
            : there ? "an"
                    : "no",
            t->alive < 0 ? 0 : w->att[t->alive].id.attempt);
  if (t->not_before_ms > w->now_ms && (w->wake_ms <= w->now_ms || w->wake_ms > t->not_before_ms) &&
      sim_n_current(t) == 0)
    sim_bad(w, "a failed task waits until %llu ms, but nobody wakes the scheduler",
            (unsigned long long)t->not_before_ms);
  if (t->alive >= 0 && sim_n_current(t) > 0)
    sim_bad(w, "q%llu.s%u.t%u is committed, but an attempt goes on", (unsigned long long)q->id, stage, task);
  for (int i = 0; i < 2 && q->mode == BR_SCHED_EAGER; i++)
    if (t->now[i] >= 0) check_bound(w, q, t->now[i]);
}

static bool goes_now(const sim_world *w, int32_t attempt) {
  const sim_worker *p = &w->w[w->att[attempt].worker];
  for (size_t i = 0; i < w->acts.count; i++)
    if (w->acts.items[i].kind == BR_ACT_WORKER_GONE && w->acts.items[i].worker == p->id) return true;
  return false;
}

/* A file that outlived its worker and mixes what was lost: nobody is told to drop it, it goes with the query. Seen before the actions. */
void sim_accept_void_files(sim_world *w) {
  for (uint32_t k = 0; k < w->n_q; k++) {
    br_sched_counts counts;
    sim_query *q = &w->q[k];
    if (!br_sched_stage_counts(w->s, q->id, 0, &counts)) continue; /* it has ended in this step */
    for (uint32_t i = 0; i < q->n_stages && q->indeterminate && q->state == SIM_Q_RUNS; i++)
      for (uint32_t t = 0; t < q->stages[i].n_tasks && q->stages[i].outlives; t++) {
        br_map_output_id o;
        bool growing;
        sim_task *task = sim_task_of(q, i, t);
        if (task->alive < 0 || (w->w[w->att[task->alive].worker].live && !goes_now(w, task->alive))) continue;
        if (br_sched_output(w->s, q->id, i, t, &o, &growing) && sim_attempt_by_id(w, &o.made_by) == task->alive)
          continue;
        task->alive = task->made_by = -1;
      }
  }
}

/* Nobody reads it any more, so the stores must know that it may go. */
static void check_retired(sim_world *w, sim_query *q, uint32_t i, const sim_needs *n) {
  sim_stage *st = &q->stages[i];
  bool kept = false, needed = st->terminal || sim_stage_needed(q, i, n);
  for (uint32_t t = 0; t < st->n_tasks; t++) kept |= q->tasks[st->first + t].alive >= 0;
  if (needed)
    st->retired = false;
  else if (kept && !st->retired)
    sim_bad(w, "query %llu: stage %u is not read any more, but neither retired nor dropped", (unsigned long long)q->id,
            i);
  if (kept && !needed && !q->indeterminate && sim_safe_to_drop(q, i, n))
    sim_bad(w, "query %llu: no loss can bring stage %u back into need, but it is not dropped",
            (unsigned long long)q->id, i);
}

static void check_query(sim_world *w, sim_query *q, const sim_needs *n) {
  bool tried = false, runs = false, left = false;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    for (uint32_t t = 0; t < q->stages[i].n_tasks; t++) {
      const sim_task *task = sim_task_of(q, i, t);
      check_task(w, q, i, t);
      tried |= sim_tried_enough(w, task);
      runs |= sim_n_current(task) > 0;
    }
    check_retired(w, q, i, n);
    left |= n->any[i];
  }
  if (q->cancelled || q->poisoned || tried)
    sim_bad(w, "query %llu must have failed, but it goes on", (unsigned long long)q->id);
  if (!runs && left && sim_starved(w, q, SIM_SLACK))
    sim_bad(w, "there has been no worker for long, but query %llu goes on", (unsigned long long)q->id);
}

/* ---- after: who could run runs */
/* EAGER: what grows can be read, unless one of two attempts wins. */
static bool all_run(const sim_query *q, uint32_t stage, const sim_needs *n) {
  for (uint32_t t = 0; t < q->stages[stage].n_tasks; t++)
    if (n->task[q->stages[stage].first + t] && sim_n_current(&q->tasks[q->stages[stage].first + t]) != 1) return false;
  return true;
}

bool sim_open_stage(const sim_query *q, uint32_t i, const sim_needs *n) {
  if (sim_waits_for_answer(q, i, n)) return false;
  for (size_t k = 0; k < q->stages[i].n_inputs; k++) {
    const br_sched_input *in = &q->stages[i].inputs[k];
    if (n->any[in->stage] && (q->mode != BR_SCHED_EAGER || in->complete || !all_run(q, in->stage, n))) return false;
  }
  return true;
}

static bool free_slot_for(const sim_world *w, const sim_task *t) {
  for (uint32_t i = 0; i < w->n_w; i++)
    if (w->w[i].usable && w->w[i].alone == 0 && w->w[i].outstanding < w->w[i].n_slots && w->w[i].id != t->avoids)
      return true;
  return false;
}

static void check_idle_task(sim_world *w, sim_query *q, sim_task *t, bool may) {
  if (!may || sim_n_current(t) > 0 || w->now_ms < t->not_before_ms || !free_slot_for(w, t)) {
    t->idle_since_ms = 0;
    return;
  }
  if (t->idle_since_ms == 0) t->idle_since_ms = w->now_ms;
  if (w->now_ms - t->idle_since_ms > SIM_IDLE)
    sim_bad(w, "query %llu: task %u could run since %llu ms and does not", (unsigned long long)q->id,
            (uint32_t)(t - q->tasks), (unsigned long long)t->idle_since_ms);
}

/* A straggler, by definition, with room for the scheduler's rounding. (EAGER: only one that nobody reads, and that reads nothing, as it
 * grows.) */
static bool straggles(const sim_world *w, const sim_query *q, const sim_stage *st, const sim_attempt *a,
                      const sim_needs *n) {
  uint32_t left = 0;
  for (uint32_t t = 0; t < st->n_tasks; t++) left += n->task[st->first + t];
  if (w->o.straggler_percent == UINT32_MAX || st->n_times == 0 || st->n_times == SIM_MAX_TIMES) return false;
  if ((st->n_tasks - left) * 100 < st->n_tasks * w->o.straggler_done_percent) return false;
  uint64_t due = st->times[st->n_times / 2] * w->o.straggler_percent / 100 * 5 / 4;
  if (due < w->o.straggler_min_ms) due = w->o.straggler_min_ms;
  if (w->now_ms - a->sent_ms < due + w->o.straggler_min_ms / 4) return false;
  for (size_t k = 0; k < st->n_inputs; k++)
    if (n->any[st->inputs[k].stage]) return false;
  for (size_t k = 0; k < st->n_inputs && q->mode == BR_SCHED_EAGER; k++)
    for (uint32_t m = 0; m < SIM_MAX_TASKS; m++)
      if (a->grew[k][m]) return false;
  return !a->named;
}

static void check_straggler(sim_world *w, sim_query *q, const sim_stage *st, sim_task *t, const sim_needs *n,
                            bool may) {
  int32_t now = t->now[0] >= 0 ? t->now[0] : t->now[1];
  bool is = may && sim_n_current(t) == 1 && straggles(w, q, st, &w->att[now], n), slot = false;
  for (uint32_t i = 0; i < w->n_w && is; i++)
    slot |= i != w->att[now].worker && w->w[i].usable && w->w[i].alone == 0 && w->w[i].id != t->avoids &&
            w->w[i].outstanding < w->w[i].n_slots;
  if (!slot) t->slow_since_ms = 0;
  if (!slot) return;
  if (t->slow_since_ms == 0) t->slow_since_ms = w->now_ms;
  if (w->now_ms - t->slow_since_ms > SIM_IDLE)
    sim_bad(w, "query %llu: task %u is slow since %llu ms, and gets no second attempt", (unsigned long long)q->id,
            (uint32_t)(t - q->tasks), (unsigned long long)t->slow_since_ms);
}

/* A task that needs a whole worker may keep slots free for itself. */
static void check_idle(sim_world *w, const sim_needs *needs) {
  bool waits_for_all = false;
  for (uint32_t i = 0; i < w->n_q; i++)
    for (uint32_t t = 0; w->q[i].state == SIM_Q_RUNS && t < w->q[i].n_all; t++)
      waits_for_all |= w->q[i].tasks[t].ooms > 0 && needs[i].task[t];
  for (uint32_t i = 0; i < w->n_q; i++) {
    sim_query *q = &w->q[i];
    uint32_t runs = 0;
    if (q->state != SIM_Q_RUNS) continue;
    for (uint32_t t = 0; t < q->n_all; t++) runs += sim_n_current(&q->tasks[t]);
    bool more = !waits_for_all && (q->max_running == 0 || runs < q->max_running);
    for (uint32_t s = 0; s < q->n_stages; s++) {
      bool may = more && needs[i].any[s] && sim_open_stage(q, s, &needs[i]);
      for (uint32_t t = 0; t < q->stages[s].n_tasks; t++)
        check_idle_task(w, q, sim_task_of(q, s, t), may && needs[i].task[q->stages[s].first + t]);
      for (uint32_t t = 0; t < q->stages[s].n_tasks; t++)
        check_straggler(w, q, &q->stages[s], sim_task_of(q, s, t), &needs[i], more);
    }
  }
}

/* The output of an attempt that does not count any more must be dropped, or its worker keeps it. */
static void after_done(sim_world *w, const br_event *ev) {
  int32_t i = sim_attempt_by_id(w, &ev->attempt);
  sim_query *q = sim_query_by_id(w, ev->attempt.query);
  if (i < 0 || q->state != SIM_Q_RUNS || w->dropped_late || !sim_live_worker(w, ev->worker, ev->incarnation)) return;
  if (w->att[i].committed) return;
  sim_bad(w, "the output of attempt %u of q%llu.s%u.t%u is late, but is not dropped", ev->attempt.attempt,
          (unsigned long long)q->id, ev->attempt.stage, ev->attempt.task);
}

/* ---- after: workers */
static bool has_something_needed(const sim_world *w, uint32_t i, const sim_needs *needs) {
  if (w->w[i].outstanding > 0) return true;
  for (uint32_t k = 0; k < w->n_q; k++) {
    const sim_query *q = &w->q[k];
    if (q->state != SIM_Q_RUNS) continue;
    for (uint32_t s = 0; s < q->n_stages; s++)
      for (uint32_t t = 0; t < q->stages[s].n_tasks && !q->stages[s].outlives; t++) {
        int32_t alive = q->tasks[q->stages[s].first + t].alive;
        if (alive >= 0 && w->att[alive].worker == i && sim_stage_needed(q, s, &needs[k])) return true;
      }
  }
  return false;
}

static void check_worker(sim_world *w, uint32_t i, const sim_needs *needs) {
  sim_worker *p = &w->w[i];
  if (!p->live) return;
  if (p->said_lost) sim_bad(w, "worker %u was lost, but is not declared gone", p->id);
  if (p->said_dead) sim_bad(w, "worker %u does not answer, but is not declared gone", p->id);
  if (p->probed_ms && w->now_ms - p->probed_ms >= w->o.probe_ms + SIM_SLACK)
    sim_bad(w, "worker %u was probed and said nothing, but is not declared gone", p->id);
  if (p->served.n >= 3) sim_bad(w, "worker %u could not be read from 3 times, but is not declared gone", p->id);
  if (p->probe_due) sim_bad(w, "worker %u could not be read from, but is not probed", p->id);
  if (w->now_ms - p->heard_ms >= w->o.silent_ms + SIM_SLACK)
    sim_bad(w, "worker %u is silent, but is not declared gone", p->id);
  if (p->usable || p->released || has_something_needed(w, i, needs)) {
    p->unneeded_ms = 0;
    return;
  }
  if (p->unneeded_ms == 0) p->unneeded_ms = w->now_ms;
  if (w->now_ms - p->unneeded_ms > SIM_LEAVE_MS) sim_bad(w, "worker %u drains, has nothing, and may not go", p->id);
}

void sim_after(sim_world *w, const br_event *ev) {
  char why[512];
  bool usable = false;
  uint64_t tasks = 0;
  sim_needs needs[SIM_MAX_QUERIES];
  for (uint32_t i = 0; i < w->n_q && !w->bad; i++) {
    if (w->q[i].state != SIM_Q_RUNS) continue;
    tasks += w->q[i].n_all;
    needs[i] = sim_find_needs(w, &w->q[i]);
    sim_check_not_asked(w, &w->q[i], &needs[i]);
    check_query(w, &w->q[i], &needs[i]);
  }
  if (w->bad) return;
  if (ev->kind == BR_EV_TASK_DONE) after_done(w, ev);
  check_idle(w, needs);
  for (uint32_t i = 0; i < w->n_w; i++) {
    usable |= w->w[i].usable;
    check_worker(w, i, needs);
  }
  if (!usable && w->any_usable) w->no_usable_since_ms = w->now_ms;
  w->any_usable = usable;
  if (br_sched_memory_bytes(w->s) > 40000 + 250 * tasks + 4000 * SIM_MAX_QUERIES)
    sim_bad(w, "the scheduler holds %llu bytes for %llu tasks", (unsigned long long)br_sched_memory_bytes(w->s),
            (unsigned long long)tasks);
  if (!w->model_alone && *br_sched_check(w->s, why, sizeof why)) sim_bad(w, "%s", why);
}

/* Everything is over and every message has arrived. */
void sim_end(sim_world *w) {
  for (uint32_t i = 0; i < w->n_q; i++)
    if (w->q[i].state == SIM_Q_RUNS || w->q[i].state == SIM_Q_NOT_YET)
      sim_bad(w, "query %llu never came to an end", (unsigned long long)w->q[i].id);
  for (size_t k = 0; k < w->n_att; k++) {
    const sim_attempt *a = &w->att[k];
    if (a->stored && w->w[a->worker].up && w->w[a->worker].live && !w->w[a->worker].closed)
      sim_bad(w, "process %u still holds q%llu.s%u.t%u.a%u", a->worker, (unsigned long long)a->id.query, a->id.stage,
              a->id.task, a->id.attempt);
  }
}
