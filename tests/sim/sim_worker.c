/* SPDX-License-Identifier: Apache-2.0
 * Workers: they obey commands in the order these come, run attempts in steps (start, read the inputs, finish), keep outputs, beat,
 * hang, die, come back. What they say travels with delay, late, out of order, twice. */
#include "sim/sim_world.h"

bool sim_up(const sim_world *w, uint32_t i) { return w->w[i].up && w->w[i].hung_until_ms <= w->now_ms; }

void sim_send(sim_world *w, uint32_t i, br_event ev, const br_attempt_id *ids) {
  uint32_t copies = sim_chance(&w->rng, w->f.duplicate) ? 2 : 1;
  ev.worker = w->w[i].id;
  ev.incarnation = w->w[i].incarnation;
  for (uint32_t c = 0; c < copies; c++) {
    uint32_t ms = sim_chance(&w->rng, w->f.late) ? sim_between(&w->rng, 500, 8000) : sim_between(&w->rng, 1, 40);
    sim_event *e = sim_push(w, w->now_ms + ms, SIM_EVENT);
    e->ev = ev;
    for (size_t k = 0; k < ev.n_attempts; k++) e->ids[k] = ids[k];
  }
}

uint32_t sim_start_worker(sim_world *w, uint32_t id, uint32_t incarnation) {
  if (w->n_w == SIM_MAX_WORKERS) {
    sim_bad(w, "the simulation has no room for another worker");
    return 0;
  }
  uint32_t i = w->n_w++;
  w->w[i] =
      (sim_worker){.id = id, .incarnation = incarnation, .up = true, .n_slots = sim_between(&w->rng, 1, SIM_MAX_SLOTS)};
  sim_send(w, i, (br_event){.kind = BR_EV_WORKER_JOINED, .slots = w->w[i].n_slots}, NULL);
  sim_push(w, w->now_ms + 2000, SIM_BEAT)->w = i;
  sim_trace(w, "process %u starts: worker %u incarnation %u, %u slots", i, id, incarnation, w->w[i].n_slots);
  return i;
}

/* ---- the end of an attempt, of an executor, of a worker */
static void end_attempt(sim_world *w, sim_attempt *a) {
  a->flight = SIM_ENDED;
  w->w[a->worker].active--;
}

static void say_failed(sim_world *w, sim_attempt *a) {
  end_attempt(w, a);
  sim_send(w, a->worker, (br_event){.kind = BR_EV_TASK_FAILED, .attempt = a->id}, NULL);
}

void sim_kill_executor(sim_world *w, uint32_t i) {
  br_attempt_id ids[SIM_MAX_SLOTS];
  size_t n = 0;
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    if (a->worker != i || a->flight != SIM_RUNS) continue;
    end_attempt(w, a);
    ids[n++] = a->id;
  }
  sim_trace(w, "the executor of process %u dies under %zu attempts", i, n);
  if (n > 0) sim_send(w, i, (br_event){.kind = BR_EV_EXECUTOR_LOST, .n_attempts = n}, ids);
}

void sim_kill_worker(sim_world *w, uint32_t i, bool noticed, bool comes_back) {
  if (!w->w[i].up) return;
  sim_trace(w, "process %u dies%s", i, noticed ? "" : " silently");
  w->w[i].up = false;
  for (size_t k = 0; k < w->n_att; k++) {
    if (w->att[k].worker != i) continue;
    if (w->att[k].flight == SIM_RUNS) end_attempt(w, &w->att[k]);
    w->att[k].stored = false;
  }
  if (noticed) sim_send(w, i, (br_event){.kind = BR_EV_WORKER_LOST}, NULL);
  if (!comes_back) return;
  sim_event *e = sim_push(w, w->now_ms + sim_between(&w->rng, 200, 15000), SIM_START_WORKER);
  e->a = i;
  e->b = sim_chance(&w->rng, 500);
}

/* ---- commands */
static void stop_soon(sim_world *w, uint32_t attempt) {
  sim_attempt *a = &w->att[attempt];
  if (a->flight != SIM_RUNS || a->told_to_stop) return;
  a->told_to_stop = true;
  uint32_t ms = sim_chance(&w->rng, w->f.slow_stop) ? sim_between(&w->rng, 1000, 6000) : sim_between(&w->rng, 0, 300);
  sim_push(w, w->now_ms + ms, SIM_STOP)->a = attempt;
}

static void command_run(sim_world *w, const sim_event *e) {
  sim_attempt *a = &w->att[e->a];
  sim_worker *me = &w->w[e->w];
  if (a->flight != SIM_SENT) return; /* said twice */
  const sim_stage *st = &w->q[a->q].stages[a->id.stage];
  for (size_t k = 0; k < st->n_inputs; k++)
    if (me->known[a->q][st->inputs[k].stage] < a->versions[k])
      sim_bad(w, "process %u is to run stage %u with table %u of stage %u, but has table %u", e->w, a->id.stage,
              a->versions[k], st->inputs[k].stage, me->known[a->q][st->inputs[k].stage]);
  if (w->q[a->q].dropped[e->w]) sim_bad(w, "process %u is to run a task of a query that was dropped", e->w);
  a->flight = SIM_RUNS;
  if (++me->active > me->n_slots) sim_bad(w, "process %u runs %u attempts in %u slots", e->w, me->active, me->n_slots);
  sim_push(w, w->now_ms + sim_between(&w->rng, 1, 20), SIM_START)->a = e->a;
}

static void command_drop(sim_world *w, const sim_event *e) {
  for (uint32_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    if (a->worker != e->w || a->id.query != e->act.query) continue;
    if (e->act.kind == BR_ACT_DROP_STAGE && a->id.stage != e->act.stage) continue;
    if (e->act.kind == BR_ACT_DROP_OUTPUT && k != e->a) continue;
    a->stored = false;
    if (e->act.kind == BR_ACT_DROP_QUERY) stop_soon(w, k);
  }
  for (uint32_t k = 0; k < w->n_q && e->act.kind == BR_ACT_DROP_QUERY; k++)
    if (w->q[k].id == e->act.query) w->q[k].dropped[e->w] = true;
}

static void command(sim_world *w, const sim_event *e) {
  uint32_t q = 0;
  switch (e->act.kind) {
    case BR_ACT_RUN: command_run(w, e); break;
    case BR_ACT_CANCEL: stop_soon(w, e->a); break;
    case BR_ACT_TABLE:
      while (w->q[q].id != e->act.query) q++;
      if (w->w[e->w].known[q][e->act.stage] < e->act.version) w->w[e->w].known[q][e->act.stage] = e->act.version;
      break;
    default: command_drop(w, e); break;
  }
}

/* ---- an attempt */
static bool can_read(sim_world *w, sim_attempt *a, int32_t from) {
  sim_attempt *p = &w->att[from];
  bool there = sim_up(w, p->worker) && !w->w[p->worker].deaf;
  if (there && p->stored && !p->corrupt && !sim_chance(&w->rng, w->f.fetch_glitch)) return true;
  a->failed_read = true;
  br_fail(&a->error, BR_FETCH, BR_BLAME_FETCH, "can't read from worker %u", w->w[p->worker].id);
  a->error.worker = w->w[p->worker].id;
  if (!there || (p->stored && !p->corrupt)) return false; /* refused, or no answer: its worker is suspect */
  a->error.has_lost = true;
  a->error.lost =
      (br_map_output_id){.made_by = p->id, .worker = w->w[p->worker].id, .incarnation = w->w[p->worker].incarnation};
  return false;
}

static void read_inputs(sim_world *w, sim_attempt *a) {
  const sim_query *q = &w->q[a->q];
  const sim_stage *st = &q->stages[a->id.stage];
  sim_begin_value(q, a->id.stage, a->id.task, a->id.attempt, &a->out);
  for (size_t k = 0; k < st->n_inputs && !a->failed_read; k++) {
    const sim_stage *p = &q->stages[st->inputs[k].stage];
    for (uint32_t m = 0; m < p->n_tasks && !a->failed_read; m++) {
      if (!sim_reads(q, a->id.stage, k, a->id.task, m)) continue;
      int32_t from = q->tasks[p->first + m].table[a->versions[k]];
      if (from < 0) {
        sim_bad(w, "table %u of stage %u has no output of task %u", a->versions[k], st->inputs[k].stage, m);
        return;
      }
      if (can_read(w, a, from)) sim_add_value(q, a->id.stage, k, a->id.task, m, &w->att[from].out, &a->out);
    }
  }
}

static void finish(sim_world *w, uint32_t attempt) {
  sim_attempt *a = &w->att[attempt];
  const sim_query *q = &w->q[a->q];
  uint32_t task = q->stages[a->id.stage].first + a->id.task;
  if (a->failed_read) {
    say_failed(w, a);
  } else if (q->dropped[a->worker]) {
    br_fail(&a->error, BR_CANCELLED, BR_BLAME_NONE, "dropped");
    say_failed(w, a);
  } else if (task == q->killer) {
    sim_kill_executor(w, a->worker);
  } else if (task == q->poison || sim_chance(&w->rng, w->f.task_user)) {
    br_fail(&a->error, BR_EXECUTION, BR_BLAME_USER, "division by zero");
    say_failed(w, a);
  } else if (task == q->sick || sim_chance(&w->rng, w->f.task_io)) {
    br_fail(&a->error, BR_IO, BR_BLAME_TASK, "disk error");
    say_failed(w, a);
  } else if (sim_chance(&w->rng, w->f.task_oom)) {
    br_fail(&a->error, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "too little memory");
    say_failed(w, a);
  } else {
    end_attempt(w, a);
    a->stored = true;
    a->corrupt = sim_chance(&w->rng, w->f.corrupt);
    sim_send(w, a->worker, (br_event){.kind = BR_EV_TASK_DONE, .attempt = a->id, .bytes = 1000}, NULL);
  }
}

/* True: the event is to be handled later, and was put back. */
static bool attempt_event(sim_world *w, sim_event *e) {
  sim_attempt *a = &w->att[e->a];
  if (a->flight != SIM_RUNS || !w->w[a->worker].up) return false;
  if (w->w[a->worker].hung_until_ms > w->now_ms) {
    sim_again(w, e, w->w[a->worker].hung_until_ms);
    return true;
  }
  switch (e->kind) {
    case SIM_START:
      sim_send(w, a->worker, (br_event){.kind = BR_EV_TASK_STARTED, .attempt = a->id}, NULL);
      sim_push(w, w->now_ms + sim_between(&w->rng, 5, 400), SIM_READ)->a = e->a;
      break;
    case SIM_READ:
      read_inputs(w, a);
      sim_push(w,
               w->now_ms + (a->failed_read || sim_chance(&w->rng, 50) ? sim_between(&w->rng, 300, 3000)
                                                                      : sim_between(&w->rng, 5, 600)),
               SIM_FINISH)
          ->a = e->a;
      break;
    case SIM_FINISH: finish(w, e->a); break;
    default:
      br_fail(&a->error, BR_CANCELLED, BR_BLAME_NONE, "cancelled");
      say_failed(w, a);
      break;
  }
  return false;
}

static void fence(sim_world *w, uint32_t i) {
  if (!w->w[i].up) return;
  sim_kill_worker(w, i, false, false);
  if (w->f.no_worker_end) return;
  sim_event *e = sim_push(w, w->now_ms + sim_between(&w->rng, 10, 2000), SIM_START_WORKER);
  e->a = i;
  e->b = 1;
}

static void leave(sim_world *w, uint32_t i) {
  if (w->w[i].active > 0 && sim_chance(&w->rng, 900))
    sim_push(w, w->now_ms + 500, SIM_LEAVE)->w = i;
  else
    sim_kill_worker(w, i, true, !w->f.no_worker_end);
}

void sim_worker_event(sim_world *w, sim_event *e) {
  if (e->kind == SIM_START || e->kind == SIM_READ || e->kind == SIM_FINISH || e->kind == SIM_STOP) {
    if (!attempt_event(w, e)) sim_recycle(w, e);
    return;
  }
  sim_worker *me = &w->w[e->w];
  if (me->up && me->hung_until_ms > w->now_ms) {
    sim_again(w, e, me->hung_until_ms);
    return;
  }
  if (me->up && e->kind == SIM_COMMAND) command(w, e);
  if (me->up && e->kind == SIM_BEAT) {
    sim_send(w, e->w, (br_event){.kind = BR_EV_WORKER_HEARD}, NULL);
    sim_push(w, w->now_ms + 2000, SIM_BEAT)->w = e->w;
  }
  if (me->up && e->kind == SIM_LEAVE) leave(w, e->w);
  if (me->up && e->kind == SIM_FENCE) fence(w, e->w);
  sim_recycle(w, e);
}
