/* SPDX-License-Identifier: Apache-2.0
 * Attempts at their workers: start, read the inputs, finish. An input that grows is followed: the reader waits until the attempt that it
 * named has written all, and fails when that one ends otherwise. What was written whole can be read before the coordinator has heard of it. */
#include "sim/sim_world.h"

/* ---- the end of an attempt, of an executor */
void sim_end_attempt(sim_world *w, sim_attempt *a) {
  a->flight = SIM_ENDED;
  w->w[a->worker].active--;
}

static void say_failed(sim_world *w, sim_attempt *a) {
  sim_end_attempt(w, a);
  sim_send(w, a->worker, (br_event){.kind = BR_EV_TASK_FAILED, .attempt = a->id}, NULL);
}

void sim_kill_executor(sim_world *w, uint32_t i, bool for_memory) {
  br_attempt_id ids[SIM_MAX_SLOTS];
  size_t n = 0;
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    if (a->worker != i || a->flight != SIM_RUNS) continue;
    if (sim_chance(&w->rng, 200)) { /* its worker says it one by one */
      br_fail(&a->error, for_memory ? BR_OUT_OF_MEMORY : BR_LOST, BR_BLAME_EXECUTOR, "its executor died");
      say_failed(w, a);
      continue;
    }
    sim_end_attempt(w, a);
    ids[n++] = a->id;
  }
  sim_trace(w, "the executor of process %u dies under %zu attempts", i, n);
  br_event ev = {
      .kind = BR_EV_EXECUTOR_LOST, .n_attempts = n, .slots = for_memory}; /* slots: no error travels with it */
  if (n > 0) sim_send(w, i, ev, ids);
}

void sim_stop_all(sim_world *w, uint32_t i) {
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    if (a->worker != i || a->flight != SIM_RUNS) continue;
    br_fail(&a->error, BR_CANCELLED, BR_BLAME_WORKER, "the worker leaves");
    say_failed(w, a);
  }
}

void sim_stop_soon(sim_world *w, uint32_t attempt) {
  sim_attempt *a = &w->att[attempt];
  if (a->flight != SIM_RUNS || a->told_to_stop) return;
  a->told_to_stop = true;
  uint32_t ms = sim_chance(&w->rng, w->f.slow_stop) ? sim_between(&w->rng, 1000, 6000) : sim_between(&w->rng, 0, 300);
  if (sim_chance(&w->rng, w->f.stuck_stop)) ms = sim_between(&w->rng, 25000, 60000);
  sim_push(w, w->now_ms + ms, SIM_STOP)->a = attempt;
}

void sim_run_attempt(sim_world *w, uint32_t attempt) {
  sim_push(w, w->now_ms + sim_between(&w->rng, 1, 20), SIM_START)->a = attempt;
}

/* ---- reading */
typedef enum reading { READ_ALL, READ_WAITS, READ_FAILED } reading;

static reading cannot(sim_world *w, sim_attempt *a, const sim_attempt *p, bool lost) {
  a->failed_read = true;
  br_fail(&a->error, BR_FETCH, BR_BLAME_FETCH, "can't read attempt %u of s%u.t%u from worker %u", p->id.attempt,
          p->id.stage, p->id.task, w->w[p->worker].id);
  a->error.worker = w->w[p->worker].id;
  a->error.has_lost = lost;
  if (lost)
    a->error.lost =
        (br_map_output_id){.made_by = p->id, .worker = w->w[p->worker].id, .incarnation = w->w[p->worker].incarnation};
  return READ_FAILED;
}

static reading read_one(sim_world *w, sim_attempt *a, int32_t from) {
  const sim_attempt *p = &w->att[from];
  bool shared = w->q[a->q].stages[p->id.stage].outlives;
  if (!shared && !sim_reachable(w, a->worker, p->worker)) return cannot(w, a, p, false);
  if (!a->waits && sim_chance(&w->rng, w->f.fetch_glitch)) return cannot(w, a, p, false);
  if (p->stored && !p->corrupt) return READ_ALL;
  if (p->flight == SIM_ENDED) return cannot(w, a, p, true);
  return p->flight == SIM_SENT && sim_chance(&w->rng, w->f.unknown) ? cannot(w, a, p, true) : READ_WAITS;
}

static reading read_inputs(sim_world *w, sim_attempt *a) {
  const sim_query *q = &w->q[a->q];
  const sim_stage *st = &q->stages[a->id.stage];
  reading got = READ_ALL;
  sim_begin_value(q, a->id.stage, a->id.task, a->id.attempt, &a->out);
  for (size_t k = 0; k < st->n_inputs; k++) {
    const sim_stage *p = &q->stages[st->inputs[k].stage];
    for (uint32_t m = 0; m < p->n_tasks; m++) {
      int32_t from = a->bound[k][m];
      if (from < 0) continue;
      reading one = read_one(w, a, from);
      if (one == READ_FAILED) return one;
      if (one == READ_WAITS)
        got = one;
      else
        sim_add_value(q, a->id.stage, k, a->id.task, m, &w->att[from].out, &a->out);
    }
  }
  return got;
}

/* Some take long: the tail is heavy. A worker with a slow disk takes long for everything. */
static uint32_t work_ms(sim_world *w, const sim_attempt *a) {
  uint32_t ms = sim_between(&w->rng, 5, 600);
  if (sim_chance(&w->rng, 50)) ms = sim_between(&w->rng, 300, 3000);
  if (sim_chance(&w->rng, w->f.straggle)) ms = sim_between(&w->rng, 3000, 60000);
  if (w->w[a->worker].slow_until_ms > w->now_ms) ms *= 8;
  return ms * (a->passes > 1 ? 2 : 1);
}

static void read_event(sim_world *w, uint32_t attempt) {
  sim_attempt *a = &w->att[attempt];
  reading got = read_inputs(w, a);
  if (got == READ_WAITS) {
    a->waits = true;
    sim_push(w, w->now_ms + sim_between(&w->rng, 20, 200), SIM_READ)->a = attempt;
    return;
  }
  uint32_t ms = got == READ_FAILED ? sim_between(&w->rng, 300, 3000) : work_ms(w, a);
  sim_push(w, w->now_ms + ms, SIM_FINISH)->a = attempt;
}

/* ---- finishing */
static bool too_little_memory(const sim_world *w, const sim_attempt *a, const sim_task *t) {
  uint32_t split = w->o.split_passes;
  switch (t->hunger) {
    case 0: return false;
    case 1: return !a->alone && a->passes <= 1;
    case 2: return a->passes < split;
    case 3: return a->passes < split * split;
    default: return true;
  }
}

static void commit(sim_world *w, sim_attempt *a) {
  sim_end_attempt(w, a);
  a->stored = true;
  a->corrupt = sim_chance(&w->rng, w->f.corrupt);
  sim_send(w, a->worker, (br_event){.kind = BR_EV_TASK_DONE, .attempt = a->id, .bytes = 1000}, NULL);
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
    sim_kill_executor(w, a->worker, false);
  } else if (task == q->poison || sim_chance(&w->rng, w->f.task_user)) {
    br_fail(&a->error, BR_EXECUTION, BR_BLAME_USER, "division by zero");
    say_failed(w, a);
  } else if (task == q->sick || sim_chance(&w->rng, w->f.task_io)) {
    br_fail(&a->error, BR_IO, BR_BLAME_TASK, "disk error");
    say_failed(w, a);
  } else if (w->w[a->worker].full_until_ms > w->now_ms) {
    br_fail(&a->error, BR_NO_SPACE, BR_BLAME_TASK, "the disk is full");
    say_failed(w, a);
  } else if (too_little_memory(w, a, &q->tasks[task]) && sim_chance(&w->rng, 300)) {
    sim_kill_executor(w, a->worker, true); /* the kernel was quicker */
  } else if (too_little_memory(w, a, &q->tasks[task]) || sim_chance(&w->rng, w->f.task_oom)) {
    br_fail(&a->error, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "too little memory");
    say_failed(w, a);
  } else {
    commit(w, a);
  }
}

bool sim_attempt_event(sim_world *w, sim_event *e) {
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
    case SIM_READ: read_event(w, e->a); break;
    case SIM_FINISH: finish(w, e->a); break;
    default:
      br_fail(&a->error, BR_CANCELLED, BR_BLAME_NONE, "cancelled");
      say_failed(w, a);
      break;
  }
  return false;
}
