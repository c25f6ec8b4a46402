/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be true: an account of the run that knows the scheduler by its events and actions alone. It says which outputs are alive,
 * which attempts count, who may fail and why, and compares after every step.
 *
 * sim_before: what the event means. sim_action: may this action be? sim_after: is what had to follow there?
 */
#include <stdio.h>
#include <string.h>

#include "sim/sim_world.h"

/* ---- what is needed, from the definition */
typedef struct needs {
  bool task[SIM_MAX_ALL];
} needs;

/* A last stage's work that was made from an indeterminate output which is being, or was, made again, has to be done again. */
static bool outdated(const sim_world *w, const sim_query *q, const sim_task *t, const needs *n) {
  const sim_output *o = &w->att[t->made_by].out;
  for (uint32_t k = 0; k < q->n_all; k++)
    if (o->from[k] != 0 && (n->task[k] || w->att[q->tasks[k].made_by].id.attempt != o->from[k])) return true;
  return false;
}

static bool reader_needed(const sim_query *q, uint32_t stage, uint32_t task, const needs *n) {
  for (uint32_t c = stage + 1; c < q->n_stages; c++)
    for (size_t k = 0; k < q->stages[c].n_inputs; k++)
      for (uint32_t r = 0; q->stages[c].inputs[k].stage == stage && r < q->stages[c].n_tasks; r++)
        if (n->task[q->stages[c].first + r] && sim_reads(q, c, k, r, task)) return true;
  return false;
}

static bool must_run(const sim_world *w, const sim_query *q, uint32_t stage, uint32_t task, const needs *n) {
  const sim_task *t = &q->tasks[q->stages[stage].first + task];
  if (q->stages[stage].terminal) return t->made_by < 0 || (q->indeterminate && outdated(w, q, t, n));
  return t->alive < 0 && ((q->stages[stage].result && !t->read) || reader_needed(q, stage, task, n));
}

/* The tasks that have to run: the least set that satisfies must_run. */
static needs find_needs(const sim_world *w, const sim_query *q) {
  needs n = {{false}};
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = q->n_stages; i > 0; i--)
      for (uint32_t t = 0; t < q->stages[i - 1].n_tasks; t++) {
        bool *need = &n.task[q->stages[i - 1].first + t];
        if (*need || !must_run(w, q, i - 1, t, &n)) continue;
        *need = changed = true;
      }
  }
  return n;
}

/* ---- before: answers */
static sim_worker *live_worker(sim_world *w, uint32_t id, uint32_t incarnation) {
  int32_t i = sim_worker_by_id(w, id, incarnation);
  return i >= 0 && w->w[i].live ? &w->w[i] : NULL;
}

/* The attempt that this answer ends; NULL: late, repeated, or of a worker that is gone. */
static sim_attempt *take_answer(sim_world *w, const br_attempt_id *id, sim_worker *from) {
  int32_t i = sim_attempt_by_id(w, id);
  if (i < 0 || from == NULL) return NULL;
  sim_attempt *a = &w->att[i];
  if (!a->answered) from->outstanding--;
  a->answered = true;
  bool counts = a->current;
  a->current = false;
  if (!counts) {
    w->st.late_answers++;
    return NULL;
  }
  sim_task_of(&w->q[a->q], id->stage, id->task)->now = -1;
  return a;
}

static void wait_for_backoff(sim_world *w, sim_task *t) {
  uint32_t n = t->charged + t->deaths + t->fetches;
  if (n == 0) return; /* the user's fault: it does not start again */
  uint64_t ms = n > 7 ? 10000 : 200u << (n - 1);
  t->not_before_ms = w->now_ms + (ms > 10000 ? 10000 : ms);
}

/* A failed fetch. It counts as a strike when it is news: an output that was good until now, or a worker that was there when the reader was
 * sent (a caller reads now). */
static void complain(sim_world *w, const br_error *e, uint64_t sent_ms) {
  sim_worker *about = NULL;
  for (uint32_t i = 0; i < w->n_w; i++)
    if (w->w[i].live && w->w[i].id == (e->has_lost ? e->lost.worker : e->worker)) about = &w->w[i];
  if (about == NULL) return;
  about->complaints++;
  if (e->has_lost) {
    int32_t i = sim_attempt_by_id(w, &e->lost.made_by);
    sim_query *q = sim_query_by_id(w, e->lost.made_by.query);
    if (about->incarnation != e->lost.incarnation || q->state != SIM_Q_RUNS) return;
    if (sim_task_of(q, e->lost.made_by.stage, e->lost.made_by.task)->alive != i) return;
  } else if (about->joined_ms > sent_ms) {
    return;
  }
  if (about->strikes == 0 || w->now_ms - about->first_strike_ms > 60000) {
    about->strikes = 0;
    about->first_strike_ms = w->now_ms;
  }
  about->strikes++;
}

static void before_failed(sim_world *w, const br_event *ev, sim_worker *from) {
  sim_attempt *a = take_answer(w, &ev->attempt, from);
  if (a == NULL) return;
  sim_query *q = &w->q[a->q];
  sim_task *t = sim_task_of(q, a->id.stage, a->id.task);
  if (ev->error->blame == BR_BLAME_USER) {
    q->poisoned = true;
  } else if (ev->error->code == BR_FETCH) {
    t->fetches++;
    w->st.fetch_failures++;
    complain(w, ev->error, a->sent_ms);
  } else {
    t->charged++;
  }
  wait_for_backoff(w, t);
}

static void before_done(sim_world *w, const br_event *ev, sim_worker *from) {
  sim_attempt *a = take_answer(w, &ev->attempt, from);
  if (a == NULL) return;
  sim_task *t = sim_task_of(&w->q[a->q], a->id.stage, a->id.task);
  if (t->alive >= 0)
    sim_bad(w, "q%llu.s%u.t%u is committed twice", (unsigned long long)a->id.query, a->id.stage, a->id.task);
  if (t->made_by >= 0) w->st.reruns++;
  t->alive = t->made_by = (int32_t)(a - w->att);
  t->charged = t->deaths = t->fetches = 0;
  t->not_before_ms = 0;
  a->committed = true;
  w->st.commits++;
}

static void before_executor(sim_world *w, const br_event *ev, sim_worker *from) {
  for (size_t i = 0; i < ev->n_attempts; i++) {
    sim_attempt *a = take_answer(w, &ev->attempts[i], from);
    if (a == NULL) continue;
    sim_task *t = sim_task_of(&w->q[a->q], a->id.stage, a->id.task);
    t->deaths++;
    wait_for_backoff(w, t);
  }
}

/* The scheduler may answer that what was read is void: then the query fails. */
static void before_read(sim_world *w, sim_query *q, const br_event *ev) {
  int32_t i = sim_attempt_by_id(w, &ev->attempt);
  sim_task *t = sim_task_of(q, ev->stage, ev->task);
  if (i < 0 || t->read || q->state != SIM_Q_RUNS) return;
  t->read = true;
  q->results[q->stages[ev->stage].first + ev->task] = w->att[i].out;
}

static void before_joined(sim_world *w, const br_event *ev) {
  int32_t me = sim_worker_by_id(w, ev->worker, ev->incarnation);
  if (w->w[me].joined) return;
  for (uint32_t i = 0; i < w->n_w; i++) {
    if (w->w[i].id != ev->worker || !w->w[i].joined) continue;
    if (w->w[i].incarnation > ev->incarnation) return; /* a zombie's */
    if (w->w[i].live) w->w[i].said_lost = true;
  }
  w->w[me].joined = w->w[me].live = w->w[me].usable = true;
  w->w[me].heard_ms = w->w[me].joined_ms = w->now_ms;
}

void sim_before(sim_world *w, const br_event *ev) {
  sim_worker *from = live_worker(w, ev->worker, ev->incarnation);
  sim_query *q = sim_query_by_id(w, ev->query);
  w->dropped_late = false;
  if (from && ev->kind != BR_EV_WORKER_LOST && ev->kind != BR_EV_WORKER_DRAINING) from->heard_ms = w->now_ms;
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
    case BR_EV_FETCH_FAILED: complain(w, ev->error, w->now_ms); break;
    default: break;
  }
}

/* ---- actions */
static void action_run(sim_world *w, sim_query *q, const br_action *a) {
  sim_worker *to = live_worker(w, a->worker, a->incarnation);
  const sim_stage *st = &q->stages[a->attempt.stage];
  sim_task *t = sim_task_of(q, a->attempt.stage, a->attempt.task);
  if (to == NULL || !to->usable) {
    sim_bad(w, "a task is sent to worker %u, which is gone or draining", a->worker);
    return;
  }
  if (++to->outstanding > to->n_slots) sim_bad(w, "worker %u of %u slots gets a task too many", a->worker, to->n_slots);
  if (a->attempt.attempt != ++t->attempts) sim_bad(w, "attempt %u follows %u", a->attempt.attempt, t->attempts - 1);
  if (t->now >= 0) sim_bad(w, "a task is started while its attempt is under way");
  needs n = find_needs(w, q);
  if (!n.task[st->first + a->attempt.task]) sim_bad(w, "a task is started that nobody needs");
  if (w->now_ms < t->not_before_ms) sim_bad(w, "a failed task is started again too early");
  for (size_t k = 0; k < st->n_inputs; k++) {
    const sim_stage *p = &q->stages[st->inputs[k].stage];
    if (p->published == 0 || p->published != br_sched_table_version(w->s, q->id, st->inputs[k].stage))
      sim_bad(w, "a task is started, but the table of stage %u was not published", st->inputs[k].stage);
    for (uint32_t m = 0; m < p->n_tasks && !w->bad; m++) {
      const sim_task *in = &q->tasks[p->first + m];
      if (!sim_reads(q, a->attempt.stage, k, a->attempt.task, m)) continue;
      if (in->alive < 0 || in->alive != in->table[p->published])
        sim_bad(w, "a task is started that reads stage %u task %u, which is %s", st->inputs[k].stage, m,
                in->alive < 0 ? "not there" : "not in its table");
    }
  }
  w->st.runs++;
}

static void action_gone(sim_world *w, const br_action *a) {
  sim_worker *g = live_worker(w, a->worker, a->incarnation);
  if (g == NULL) {
    sim_bad(w, "worker %u is declared gone twice", a->worker);
    return;
  }
  if (!g->said_lost && w->now_ms - g->heard_ms < w->o.silent_ms && g->complaints < 3)
    sim_bad(w, "worker %u is declared gone without a reason", a->worker);
  uint32_t i = (uint32_t)(g - w->w);
  bool drains = !g->usable;
  g->live = g->usable = false;
  w->st.worker_losses++;
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *at = &w->att[k];
    sim_query *q = &w->q[at->q];
    sim_task *t = sim_task_of(q, at->id.stage, at->id.task);
    if (at->worker != i) continue;
    if (t->alive == (int32_t)k) t->alive = -1;
    if (!at->current) continue;
    at->current = false;
    t->now = -1;
    if (!drains) t->deaths++;
  }
}

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

static void action_stage_done(sim_world *w, sim_query *q, uint32_t stage) {
  needs n = find_needs(w, q);
  for (uint32_t t = 0; t < q->stages[stage].n_tasks; t++)
    if (n.task[q->stages[stage].first + t]) sim_bad(w, "stage %u is done without its task %u", stage, t);
}

static void action_drop_stage(sim_world *w, sim_query *q, uint32_t stage) {
  needs n = find_needs(w, q);
  for (uint32_t t = 0; t < q->stages[stage].n_tasks; t++) {
    bool unread = q->stages[stage].result && !sim_task_of(q, stage, t)->read;
    if (unread || reader_needed(q, stage, t, &n))
      sim_bad(w, "stage %u is dropped, but its task %u is still needed", stage, t);
    sim_task_of(q, stage, t)->alive = -1;
  }
}

/* All that the caller got must be made from the same attempt of each indeterminate task, and be right for it. */
static void check_answer(sim_world *w, sim_query *q) {
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

static bool starved(const sim_world *w, const sim_query *q, uint32_t more_ms) {
  uint64_t since = w->no_usable_since_ms > q->since_ms ? w->no_usable_since_ms : q->since_ms;
  return !w->any_usable && w->now_ms - since >= w->o.no_worker_ms + more_ms;
}

static bool work_left(const sim_world *w, const sim_query *q) {
  needs n = find_needs(w, q);
  for (uint32_t t = 0; t < q->n_all; t++)
    if (n.task[t]) return true;
  return false;
}

static bool tried_enough(const sim_world *w, const sim_task *t) {
  return t->charged >= w->o.max_attempts || t->deaths >= w->o.killer_executors || t->fetches >= 32;
}

static void check_failure(sim_world *w, sim_query *q, const br_error *e) {
  bool read = false, tried = false;
  for (uint32_t t = 0; t < q->n_all; t++) {
    read |= q->tasks[t].read;
    tried |= tried_enough(w, &q->tasks[t]);
    if (q->tasks[t].now >= 0) sim_bad(w, "the query fails, but an attempt was not cancelled");
  }
  if (e->code == BR_OK || e->message[0] == 0) sim_bad(w, "the query fails without an error");
  bool by_caller = q->cancelled && e->code == BR_CANCELLED;
  bool by_user = q->poisoned && e->code == BR_EXECUTION && e->blame == BR_BLAME_USER && e->has_attempt;
  bool by_tries = tried && e->has_attempt;
  bool by_void = q->indeterminate && read && e->code == BR_LOST;
  if (!by_caller && !by_user && !by_tries && !by_void && !(starved(w, q, 0) && e->code == BR_LOST))
    sim_bad(w, "the query fails without a reason: %s", e->message);
}

static void action_of_query(sim_world *w, sim_query *q, const br_action *a, const br_event *ev) {
  int32_t i = a->attempt.query ? sim_attempt_by_id(w, &a->attempt) : -1;
  switch (a->kind) {
    case BR_ACT_RUN: action_run(w, q, a); break;
    case BR_ACT_CANCEL:
      if (i < 0 || !w->att[i].current) {
        sim_bad(w, "an attempt is cancelled that does not run");
        return;
      }
      w->att[i].current = false;
      sim_task_of(q, a->attempt.stage, a->attempt.task)->now = -1;
      w->st.cancels++;
      break;
    case BR_ACT_TABLE:
      if (a->version != q->stages[a->stage].published + (a->worker ? 0 : 1))
        sim_bad(w, "table %u of stage %u follows %u", a->version, a->stage, q->stages[a->stage].published);
      q->stages[a->stage].published = a->version;
      break;
    case BR_ACT_STAGE_DONE: action_stage_done(w, q, a->stage); break;
    case BR_ACT_RESULT:
      if (sim_task_of(q, a->attempt.stage, a->attempt.task)->alive != i || i < 0)
        sim_bad(w, "a result that is not there");
      break;
    case BR_ACT_DROP_STAGE: action_drop_stage(w, q, a->stage); break;
    case BR_ACT_DROP_OUTPUT: action_drop_output(w, q, a, ev); break;
    case BR_ACT_QUERY_DONE:
      q->state = SIM_Q_DONE;
      w->st.queries_done++;
      break;
    case BR_ACT_QUERY_FAILED:
      check_failure(w, q, &a->error);
      q->state = SIM_Q_FAILED;
      w->st.queries_failed++;
      break;
    default: break;
  }
}

void sim_action(sim_world *w, const br_action *a, const br_event *ev) {
  sim_query *q = sim_query_by_id(w, a->query);
  if (a->kind == BR_ACT_WORKER_GONE) {
    action_gone(w, a);
    return;
  }
  if (a->kind == BR_ACT_WAKE) w->wake_ms = a->at_ms;
  if (a->kind == BR_ACT_WAKE) return;
  bool over = q && (q->state == SIM_Q_DONE || q->state == SIM_Q_FAILED);
  if (q == NULL || over != (a->kind == BR_ACT_DROP_QUERY))
    sim_bad(w, "action %d for a query that is %s", (int)a->kind, over ? "over" : "not over");
  else
    action_of_query(w, q, a, ev);
}

/* ---- after */
static void after_query(sim_world *w, sim_query *q) {
  bool tried = false, runs = false;
  for (uint32_t i = 0; i < q->n_stages; i++)
    for (uint32_t t = 0; t < q->stages[i].n_tasks; t++) {
      br_map_output_id o;
      bool growing;
      const sim_task *task = sim_task_of(q, i, t);
      bool there = br_sched_output(w->s, q->id, i, t, &o, &growing);
      if (there != (task->alive >= 0) || (there && sim_attempt_by_id(w, &o.made_by) != task->alive))
        sim_bad(w, "q%llu.s%u.t%u: the scheduler has %s output, the model has attempt %d", (unsigned long long)q->id, i,
                t, there ? "an" : "no", task->alive < 0 ? 0 : w->att[task->alive].id.attempt);
      tried |= tried_enough(w, task);
      if (task->not_before_ms > w->now_ms && (w->wake_ms <= w->now_ms || w->wake_ms > task->not_before_ms))
        sim_bad(w, "a failed task waits until %llu ms, but nobody wakes the scheduler",
                (unsigned long long)task->not_before_ms);
      runs |= task->now >= 0;
    }
  if (q->cancelled || q->poisoned || tried)
    sim_bad(w, "query %llu must have failed, but it goes on", (unsigned long long)q->id);
  if (!runs && starved(w, q, 100) && work_left(w, q))
    sim_bad(w, "there has been no worker for long, but query %llu goes on", (unsigned long long)q->id);
}

/* The output of an attempt that does not count any more must be dropped, or its worker keeps it. */
static void after_done(sim_world *w, const br_event *ev) {
  int32_t i = sim_attempt_by_id(w, &ev->attempt);
  sim_query *q = sim_query_by_id(w, ev->attempt.query);
  if (q->state != SIM_Q_RUNS || w->dropped_late || !live_worker(w, ev->worker, ev->incarnation)) return;
  if (w->att[i].committed) return;
  sim_bad(w, "the output of attempt %u of q%llu.s%u.t%u is late, but is not dropped", ev->attempt.attempt,
          (unsigned long long)q->id, ev->attempt.stage, ev->attempt.task);
}

void sim_after(sim_world *w, const br_event *ev) {
  char why[512];
  bool usable = false;
  uint64_t tasks = 0;
  for (uint32_t i = 0; i < w->n_q && !w->bad; i++) {
    tasks += w->q[i].state == SIM_Q_RUNS ? w->q[i].n_all : 0;
    if (w->q[i].state == SIM_Q_RUNS) after_query(w, &w->q[i]);
    if (w->q[i].state == SIM_Q_DONE && ev->kind != BR_EV_TICK && ev->kind != BR_EV_WORKER_HEARD)
      check_answer(w, &w->q[i]);
  }
  if (ev->kind == BR_EV_TASK_DONE) after_done(w, ev);
  for (uint32_t i = 0; i < w->n_w; i++) {
    usable |= w->w[i].usable;
    if (w->w[i].live && w->w[i].said_lost) sim_bad(w, "worker %u was lost, but is not declared gone", w->w[i].id);
    if (w->w[i].live && w->w[i].strikes >= 3)
      sim_bad(w, "worker %u can't be read from, but is not declared gone", w->w[i].id);
    if (w->w[i].live && w->now_ms - w->w[i].heard_ms >= w->o.silent_ms + 100)
      sim_bad(w, "worker %u is silent, but is not declared gone", w->w[i].id);
  }
  if (!usable && w->any_usable) w->no_usable_since_ms = w->now_ms;
  w->any_usable = usable;
  if (br_sched_memory_bytes(w->s) > 40000 + 200 * tasks + 4000 * SIM_MAX_QUERIES)
    sim_bad(w, "the scheduler holds %llu bytes for %llu tasks", (unsigned long long)br_sched_memory_bytes(w->s),
            (unsigned long long)tasks);
  if (*br_sched_check(w->s, why, sizeof why)) sim_bad(w, "%s", why);
}

/* Everything is over and every message has arrived. */
void sim_end(sim_world *w) {
  for (uint32_t i = 0; i < w->n_q; i++)
    if (w->q[i].state == SIM_Q_RUNS || w->q[i].state == SIM_Q_NOT_YET)
      sim_bad(w, "query %llu never came to an end", (unsigned long long)w->q[i].id);
  for (size_t k = 0; k < w->n_att; k++) {
    const sim_attempt *a = &w->att[k];
    if (a->stored && w->w[a->worker].up && w->w[a->worker].live)
      sim_bad(w, "process %u still holds q%llu.s%u.t%u.a%u", a->worker, (unsigned long long)a->id.query, a->id.stage,
              a->id.task, a->id.attempt);
  }
}
