/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be true, second part: may the scheduler do this, given what happened so far? */
#include <stdio.h>
#include <string.h>

#include "sim/sim_world.h"

/* ---- RUN */
static void check_slots(sim_world *w, sim_worker *to, const br_action *a) {
  if (++to->outstanding > to->n_slots) sim_bad(w, "worker %u of %u slots gets a task too many", a->worker, to->n_slots);
  if (to->outstanding > 1 && (a->alone || to->alone > 0))
    sim_bad(w, "an attempt that must be alone shares worker %u with %u others", a->worker, to->outstanding - 1);
  to->alone += a->alone;
}

static void check_bounded(sim_world *w, const sim_query *q) {
  uint32_t n = 0;
  for (uint32_t t = 0; t < q->n_all; t++) n += sim_n_current(&q->tasks[t]);
  if (q->max_running != 0 && n >= q->max_running)
    sim_bad(w, "query %llu may have %u attempts under way, and gets one more", (unsigned long long)q->id,
            q->max_running);
}

/* The memory ladder: alone, then in passes, then in their square. */
static void check_memory(sim_world *w, const sim_query *q, const sim_task *t, const br_action *a) {
  uint32_t passes = a->passes ? a->passes : 1, split = w->o.split_passes;
  bool splittable = q->stages[a->attempt.stage].splittable;
  if (passes > 1 && !splittable) sim_bad(w, "a task is run in passes, but can't be split");
  if (!(w->with & SIM_MEMORY)) return;
  if (t->ooms == 0 && (a->alone || passes > 1)) sim_bad(w, "a task is run alone, or in passes, without a reason");
  if (t->ooms == 1 && (!a->alone || passes > 1)) sim_bad(w, "memory did not suffice, and the task is not run alone");
  if (t->ooms == 2 && splittable && passes != split) sim_bad(w, "memory did not suffice alone: %u passes", passes);
  if (t->ooms > 2 && splittable && passes != split * split) sim_bad(w, "memory did not suffice: %u passes", passes);
  if (t->ooms > 1 && !splittable && !a->alone) sim_bad(w, "memory did not suffice: not alone");
  w->st.alone += a->alone;
  w->st.passes += passes > 1;
}

static void check_second(sim_world *w, const sim_query *q, const sim_task *t, const br_action *a) {
  const sim_stage *st = &q->stages[a->attempt.stage];
  sim_needs n = sim_find_needs(w, q);
  uint32_t done = 0;
  if (sim_n_current(t) != 1) {
    sim_bad(w, "a second attempt, but %u are under way", sim_n_current(t));
    return;
  }
  const sim_attempt *first = &w->att[t->now[0] >= 0 ? t->now[0] : t->now[1]];
  for (uint32_t i = 0; i < st->n_tasks; i++) done += !n.task[st->first + i];
  if (w->w[first->worker].id == a->worker) sim_bad(w, "the second attempt is where the first one is");
  if (w->o.straggler_percent == UINT32_MAX) sim_bad(w, "a second attempt, but there must be none");
  if (w->now_ms - first->sent_ms < w->o.straggler_min_ms) sim_bad(w, "a second attempt after a short time");
  if (done * 100 < st->n_tasks * w->o.straggler_done_percent)
    sim_bad(w, "a second attempt when %u of %u tasks are done", done, st->n_tasks);
  if (sim_is_bound(w, q, (int32_t)(first - w->att))) sim_bad(w, "a second attempt, but somebody reads the first one");
  w->st.seconds++;
}

static void check_input(sim_world *w, const sim_query *q, const br_action *a, size_t k, uint32_t m) {
  const br_sched_input *input = &q->stages[a->attempt.stage].inputs[k];
  const sim_stage *p = &q->stages[input->stage];
  const sim_task *in = &q->tasks[p->first + m];
  int32_t named = in->table[p->published];
  if (named < 0 || !sim_good_input(w, q, input->stage, m, named))
    sim_bad(w, "a task is started that reads stage %u task %u, which is %s", input->stage, m,
            named < 0 ? "not in its table" : "dead");
  if (w->bad || in->alive == named) return;
  if (q->mode != BR_SCHED_EAGER) sim_bad(w, "a task is started before stage %u task %u is there", input->stage, m);
  if (input->complete) sim_bad(w, "a task is made from all of stage %u, and started before it is there", input->stage);
  if (sim_n_current(in) > 1) sim_bad(w, "a task is started that reads one of two attempts");
}

static void check_inputs(sim_world *w, const sim_query *q, const br_action *a) {
  const sim_stage *st = &q->stages[a->attempt.stage];
  for (size_t k = 0; k < st->n_inputs; k++) {
    const sim_stage *p = &q->stages[st->inputs[k].stage];
    if (p->published == 0 || p->published != br_sched_table_version(w->s, q->id, st->inputs[k].stage))
      sim_bad(w, "a task is started, but the table of stage %u was not published", st->inputs[k].stage);
    for (uint32_t m = 0; m < p->n_tasks && !w->bad; m++)
      if (sim_reads(q, a->attempt.stage, k, a->attempt.task, m)) check_input(w, q, a, k, m);
  }
}

/* Fair: nobody who could use this slot has fewer attempts under way for its weight. */
static void check_fair(sim_world *w, const sim_query *q, const sim_worker *to) {
  uint32_t runs[SIM_MAX_QUERIES] = {0}, usable = 0, me = (uint32_t)(q - w->q);
  for (uint32_t i = 0; i < w->n_w; i++) usable += w->w[i].usable;
  for (uint32_t i = 0; i < w->n_q; i++)
    for (uint32_t t = 0; w->q[i].state == SIM_Q_RUNS && t < w->q[i].n_all; t++) {
      runs[i] += sim_n_current(&w->q[i].tasks[t]);
      if (w->q[i].tasks[t].ooms > 0) return; /* may have a worker kept for itself */
    }
  for (uint32_t i = 0; i < w->n_q; i++) {
    sim_query *other = &w->q[i];
    if (other->state != SIM_Q_RUNS || runs[i] * (me + 1) >= runs[me] * (i + 1)) continue;
    if (other->max_running != 0 && runs[i] >= other->max_running) continue;
    sim_needs n = sim_find_needs(w, other);
    for (uint32_t s = 0; s < other->n_stages; s++)
      for (uint32_t t = 0; n.any[s] && t < other->stages[s].n_tasks && sim_open_stage(other, s, &n); t++) {
        const sim_task *task = sim_task_of(other, s, t);
        if (!n.task[other->stages[s].first + t] || sim_n_current(task) > 0 || w->now_ms < task->not_before_ms) continue;
        if (task->avoids == to->id && usable > 1) continue;
        sim_bad(w, "query %llu has %u attempts under way, and gets a slot before query %llu, which has %u",
                (unsigned long long)q->id, runs[me], (unsigned long long)other->id, runs[i]);
      }
  }
}

static void action_run(sim_world *w, sim_query *q, const br_action *a) {
  sim_worker *to = sim_live_worker(w, a->worker, a->incarnation);
  sim_task *t = sim_task_of(q, a->attempt.stage, a->attempt.task);
  uint32_t n = q->stages[a->attempt.stage].first + a->attempt.task;
  if (to == NULL || !to->usable) {
    sim_bad(w, "a task is sent to worker %u, which is gone or draining", a->worker);
    return;
  }
  check_slots(w, to, a);
  check_bounded(w, q);
  check_memory(w, q, t, a);
  if (a->attempt.attempt != ++t->attempts) sim_bad(w, "attempt %u follows %u", a->attempt.attempt, t->attempts - 1);
  if (t->attempts >= SIM_MAX_NUMBERS) sim_bad(w, "a task was started %u times", t->attempts);
  if (!a->second && sim_n_current(t) > 0) sim_bad(w, "a task is started while its attempt is under way");
  if (a->second) check_second(w, q, t, a);
  if (!sim_find_needs(w, q).task[n]) sim_bad(w, "a task is started that nobody needs");
  if (!a->second && w->now_ms < t->not_before_ms) sim_bad(w, "a failed task is started again too early");
  if (t->was_dropped) sim_bad(w, "a task runs again whose stage was dropped: no loss was to make that happen");
  check_inputs(w, q, a);
  sim_check_asked(w, q, a->attempt.stage);
  if (!a->second && !a->alone) check_fair(w, q, to);
  w->st.runs++;
}

/* ---- CANCEL: checked when the step is over */
static void action_cancel(sim_world *w, sim_query *q, int32_t i) {
  if (i < 0 || !w->att[i].current) {
    sim_bad(w, "an attempt is cancelled that does not run");
    return;
  }
  sim_task *t = sim_task_of(q, w->att[i].id.stage, w->att[i].id.task);
  w->att[i].current = false;
  w->att[i].cancelled_ms = w->now_ms;
  if (w->overdue_ms > w->now_ms + w->o.cancel_ms) w->overdue_ms = w->now_ms + w->o.cancel_ms;
  t->now[t->now[1] == i] = -1;
  w->st.cancels++;
  if (w->n_stops < SIM_MAX_STOPS) w->stops[w->n_stops++] = (uint32_t)i;
}

static bool lost_an_input(const sim_world *w, const sim_query *q, const sim_attempt *a) {
  for (size_t k = 0; k < q->stages[a->id.stage].n_inputs; k++)
    for (uint32_t m = 0; m < SIM_MAX_TASKS; m++)
      if (a->bound[k][m] >= 0 && !sim_good_input(w, q, q->stages[a->id.stage].inputs[k].stage, m, a->bound[k][m]))
        return true;
  return false;
}

static bool same(const br_attempt_id *a, const br_attempt_id *b) {
  return a->query == b->query && a->stage == b->stage && a->task == b->task && a->attempt == b->attempt;
}

void sim_check_stops(sim_world *w, const br_event *ev) {
  for (uint32_t s = 0; s < w->n_stops; s++) {
    const sim_attempt *a = &w->att[w->stops[s]];
    const sim_query *q = &w->q[a->q];
    const sim_task *t = &q->tasks[q->stages[a->id.stage].first + a->id.task];
    bool lost = false;
    for (size_t k = 0; k < ev->n_attempts && ev->kind == BR_EV_OUTPUTS_LOST; k++)
      lost |= same(&ev->attempts[k], &a->id);
    if (q->state != SIM_Q_RUNS || q->indeterminate || lost || t->alive >= 0 || sim_n_current(t) > 0) continue;
    if (q->mode == BR_SCHED_EAGER && lost_an_input(w, q, a)) {
      w->st.rebinds++;
      continue;
    }
    if (sim_find_needs(w, q).task[q->stages[a->id.stage].first + a->id.task])
      sim_bad(w, "q%llu.s%u.t%u.a%u is cancelled without a reason", (unsigned long long)q->id, a->id.stage, a->id.task,
              a->id.attempt);
  }
}

/* ---- outputs and stages */
static void action_drop_output(sim_world *w, sim_query *q, const br_action *a, const br_event *ev) {
  int32_t i = sim_attempt_by_id(w, &a->attempt);
  sim_task *t = sim_task_of(q, a->attempt.stage, a->attempt.task);
  w->dropped_late |= ev->kind == BR_EV_TASK_DONE && sim_attempt_by_id(w, &ev->attempt) == i;
  if (i < 0 || t->alive != i) return; /* a late one */
  bool suspect = ev->error && ev->error->has_lost && sim_attempt_by_id(w, &ev->error->lost.made_by) == i;
  bool read = ev->kind == BR_EV_RESULT_READ && ev->query == q->id && ev->stage == a->attempt.stage &&
              ev->task == a->attempt.task;
  if (!suspect && !read && !q->indeterminate) sim_bad(w, "a good output is dropped");
  t->alive = -1;
  if (!suspect && !read) t->made_by = -1; /* it mixes what was lost */
}

static void check_unneeded(sim_world *w, sim_query *q, uint32_t stage, const char *what) {
  sim_needs n = sim_find_needs(w, q);
  for (uint32_t t = 0; t < q->stages[stage].n_tasks; t++) {
    bool unread = q->stages[stage].result && !sim_task_of(q, stage, t)->read;
    if (unread || sim_reader_needed(q, stage, t, &n))
      sim_bad(w, "stage %u is %s, but its task %u is still needed", stage, what, t);
  }
}

static void action_stage_done(sim_world *w, sim_query *q, uint32_t stage) {
  if (sim_find_needs(w, q).any[stage]) sim_bad(w, "stage %u is done, but not all of its tasks", stage);
}

static void action_retire(sim_world *w, sim_query *q, uint32_t stage) {
  check_unneeded(w, q, stage, "retired");
  if (q->stages[stage].retired) sim_bad(w, "stage %u is retired twice", stage);
  q->stages[stage].retired = true;
  w->st.retired++;
}

/* What follows from a file that was lost although it outlives workers, or from an output that can't be made twice, can't be foreseen. */
static void action_drop_stage(sim_world *w, sim_query *q, uint32_t stage) {
  bool foreseen = !q->indeterminate;
  for (uint32_t i = 0; i < q->n_stages; i++) foreseen &= !q->stages[i].outlives;
  sim_needs n = sim_find_needs(w, q);
  check_unneeded(w, q, stage, "dropped");
  if (!q->indeterminate && !sim_safe_to_drop(q, stage, &n))
    sim_bad(w, "stage %u is dropped, but a loss can bring it back into need", stage);
  for (uint32_t t = 0; t < q->stages[stage].n_tasks; t++) {
    sim_task_of(q, stage, t)->alive = -1;
    sim_task_of(q, stage, t)->was_dropped = foreseen;
  }
  w->st.drops++;
}

static void action_table(sim_world *w, sim_query *q, const br_action *a) {
  sim_stage *st = &q->stages[a->stage];
  if (a->version != st->published + (a->worker ? 0 : 1))
    sim_bad(w, "table %u of stage %u follows %u", a->version, a->stage, st->published);
  if (a->version >= SIM_MAX_TABLES) sim_bad(w, "stage %u has %u tables", a->stage, a->version);
  st->published = a->version;
}

/* ---- the end of a query */
/* All that the caller got must be made from the same attempt of each indeterminate task, and be right for it. */
void sim_check_answer(sim_world *w, sim_query *q) {
  uint16_t from[SIM_MAX_ALL] = {0};
  for (uint32_t i = 0; i < q->n_stages; i++) {
    const sim_stage *st = &q->stages[i];
    for (uint32_t t = 0; t < st->n_tasks && (st->result || st->terminal); t++) {
      const sim_task *task = &q->tasks[st->first + t];
      if (st->result ? !task->read : task->made_by < 0) sim_bad(w, "the query is done without stage %u task %u", i, t);
      if (w->bad) return;
      if (st->terminal) q->results[st->first + t] = w->att[task->made_by].out;
      const sim_output *o = &q->results[st->first + t];
      if (o->mixed) sim_bad(w, "stage %u task %u is made from two attempts of one task", i, t);
      for (uint32_t k = 0; k < q->n_all; k++) {
        if (o->from[k] == 0) continue;
        if (from[k] != 0 && from[k] != o->from[k]) sim_bad(w, "the results are made from two attempts of one task");
        from[k] = o->from[k];
      }
    }
  }
  for (uint32_t i = 0; i < q->n_stages && !w->bad; i++)
    for (uint32_t t = 0; t < q->stages[i].n_tasks && (q->stages[i].result || q->stages[i].terminal); t++)
      if (q->results[q->stages[i].first + t].value != sim_right_value(q, i, t, from))
        sim_bad(w, "stage %u task %u has a wrong answer", i, t);
}

static void check_failure(sim_world *w, sim_query *q, const br_error *e) {
  bool read = false, tried = false;
  for (uint32_t t = 0; t < q->n_all; t++) {
    read |= q->tasks[t].read;
    tried |= sim_tried_enough(w, &q->tasks[t]);
    if (sim_n_current(&q->tasks[t]) > 0) sim_bad(w, "the query fails, but an attempt was not cancelled");
  }
  if (e->code == BR_OK || e->message[0] == 0) sim_bad(w, "the query fails without an error");
  bool by_caller = q->cancelled && e->code == BR_CANCELLED;
  bool by_user = q->poisoned && e->code == BR_EXECUTION && e->blame == BR_BLAME_USER && e->has_attempt;
  bool by_tries = tried && e->has_attempt;
  bool by_void = q->indeterminate && read && e->code == BR_LOST;
  if (!by_caller && !by_user && !by_tries && !by_void && !(sim_starved(w, q, 0) && e->code == BR_LOST))
    sim_bad(w, "the query fails without a reason: %s", e->message);
}

static void action_of_query(sim_world *w, sim_query *q, const br_action *a, const br_event *ev) {
  int32_t i = a->attempt.query ? sim_attempt_by_id(w, &a->attempt) : -1;
  switch (a->kind) {
    case BR_ACT_RUN: action_run(w, q, a); break;
    case BR_ACT_CANCEL: action_cancel(w, q, i); break;
    case BR_ACT_TABLE: action_table(w, q, a); break;
    case BR_ACT_STAGE_DONE: action_stage_done(w, q, a->stage); break;
    case BR_ACT_ASK: sim_action_ask(w, q, a->stage); break;
    case BR_ACT_RESULT:
      if (i < 0 || sim_task_of(q, a->attempt.stage, a->attempt.task)->alive != i)
        sim_bad(w, "a result that is not there");
      break;
    case BR_ACT_RETIRE_STAGE: action_retire(w, q, a->stage); break;
    case BR_ACT_DROP_STAGE: action_drop_stage(w, q, a->stage); break;
    case BR_ACT_DROP_OUTPUT: action_drop_output(w, q, a, ev); break;
    case BR_ACT_QUERY_DONE:
      q->state = SIM_Q_DONE;
      w->st.queries_done++;
      sim_check_answer(w, q);
      break;
    case BR_ACT_QUERY_FAILED:
      check_failure(w, q, &a->error);
      q->state = SIM_Q_FAILED;
      w->st.queries_failed++;
      break;
    default: break;
  }
}

/* ---- workers */
static void lose_attempts(sim_world *w, uint32_t i, bool drains) {
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *at = &w->att[k];
    sim_query *q = &w->q[at->q];
    sim_task *t = sim_task_of(q, at->id.stage, at->id.task);
    if (at->worker != i) continue;
    if (t->alive == (int32_t)k && !q->stages[at->id.stage].outlives) t->alive = -1;
    if (!at->current) continue;
    at->current = false;
    t->now[t->now[1] == (int32_t)k] = -1;
    if (!drains) t->deaths++;
  }
}

static void action_gone(sim_world *w, const br_action *a) {
  sim_worker *g = sim_live_worker(w, a->worker, a->incarnation);
  if (g == NULL) {
    sim_bad(w, "worker %u is declared gone twice", a->worker);
    return;
  }
  bool silent = w->now_ms - g->heard_ms >= w->o.silent_ms;
  bool unreadable = g->served.n >= 3 || g->read.n >= 3;
  bool unanswered = g->probed_ms && w->now_ms - g->probed_ms >= w->o.probe_ms;
  if (!g->said_lost && !silent && !g->said_dead && !unanswered && !unreadable)
    sim_bad(w, "worker %u is declared gone without a reason", a->worker);
  bool drains = !g->usable;
  w->st.probe_deaths += g->said_dead || unanswered;
  g->live = g->usable = g->probe_due = false;
  w->st.worker_losses++;
  lose_attempts(w, (uint32_t)(g - w->w), drains);
}

static void action_probe(sim_world *w, const br_action *a) {
  sim_worker *p = sim_live_worker(w, a->worker, a->incarnation);
  if (p == NULL || p->probed_ms || !p->probe_due) {
    sim_bad(w, "worker %u is probed %s", a->worker, p == NULL ? "and gone" : p->probed_ms ? "twice" : "for nothing");
    return;
  }
  p->probe_due = false;
  p->probed_ms = w->now_ms;
  w->st.probes++;
}

/* Nothing that it has is needed; and nothing of it counts from here on. */
static void action_release(sim_world *w, const br_action *a) {
  sim_worker *p = sim_live_worker(w, a->worker, a->incarnation);
  if (p == NULL || p->usable || p->released || p->outstanding > 0) {
    sim_bad(w, "worker %u may go, but does not drain, or has work", a->worker);
    return;
  }
  p->released = true;
  w->st.releases++;
  for (uint32_t i = 0; i < w->n_q; i++) {
    sim_query *q = &w->q[i];
    if (q->state != SIM_Q_RUNS) continue;
    sim_needs n = sim_find_needs(w, q);
    for (uint32_t s = 0; s < q->n_stages; s++)
      for (uint32_t t = 0; t < q->stages[s].n_tasks; t++) {
        sim_task *task = sim_task_of(q, s, t);
        if (task->alive < 0 || &w->w[w->att[task->alive].worker] != p || q->stages[s].outlives) continue;
        if (sim_reader_needed(q, s, t, &n) || (q->stages[s].result && !task->read))
          sim_bad(w, "worker %u may go, but the output of stage %u task %u is needed", a->worker, s, t);
        task->alive = -1;
      }
  }
}

void sim_action(sim_world *w, const br_action *a, const br_event *ev) {
  sim_query *q = sim_query_by_id(w, a->query);
  bool over = q && (q->state == SIM_Q_DONE || q->state == SIM_Q_FAILED);
  switch (a->kind) {
    case BR_ACT_WORKER_GONE: action_gone(w, a); break;
    case BR_ACT_PROBE: action_probe(w, a); break;
    case BR_ACT_RELEASE_WORKER: action_release(w, a); break;
    case BR_ACT_WAKE: w->wake_ms = a->at_ms; break;
    default:
      if (q == NULL || over != (a->kind == BR_ACT_DROP_QUERY))
        sim_bad(w, "action %d for a query that is %s", (int)a->kind, over ? "over" : "not over");
      else
        action_of_query(w, q, a, ev);
      break;
  }
}
