/* SPDX-License-Identifier: Apache-2.0
 * Workers: they obey commands in the order these come, keep outputs, evict retired ones, beat, hang, drain, die, come back. What they say
 * travels with delay, late, out of order, repeated; when a message is lost, the connection is closed, and both sides take it from there. */
#include "sim/sim_world.h"

bool sim_up(const sim_world *w, uint32_t i) { return w->w[i].up && w->w[i].hung_until_ms <= w->now_ms; }

bool sim_reachable(const sim_world *w, uint32_t from, uint32_t to) {
  const sim_worker *p = &w->w[to];
  if (from == to) return sim_up(w, to); /* its own Unix socket */
  if (!sim_up(w, to) || p->deaf) return false;
  if (from == SIM_MAX_WORKERS) return p->unseen_until_ms <= w->now_ms;
  if (p->cut_until_ms > w->now_ms) return false;
  for (uint32_t c = 0; c < w->n_cuts; c++)
    if (w->cuts[c].until_ms > w->now_ms &&
        ((w->cuts[c].a == from && w->cuts[c].b == to) || (w->cuts[c].a == to && w->cuts[c].b == from)))
      return false;
  return true;
}

void sim_close_connection(sim_world *w, uint32_t i) {
  if (w->w[i].closed || !w->w[i].up) return;
  w->w[i].closed = true;
  br_event ev = {.kind = BR_EV_WORKER_LOST, .worker = w->w[i].id, .incarnation = w->w[i].incarnation};
  w->st.lost_messages++;
  sim_trace(w, "the connection of process %u is closed", i);
  sim_push(w, w->now_ms + sim_between(&w->rng, 1, 100), SIM_EVENT)->ev = ev;
  sim_push(w, w->now_ms + sim_between(&w->rng, 1, 3000), SIM_FENCE)->w = i;
}

void sim_send(sim_world *w, uint32_t i, br_event ev, const br_attempt_id *ids) {
  uint32_t copies = 1;
  if (w->w[i].closed) return;
  if (sim_below(&w->rng, 100000) < w->f.lost_message && w->now_ms < w->f.quiet_ms && w->w[i].live) {
    sim_close_connection(w, i);
    return;
  }
  while (copies < 4 && sim_chance(&w->rng, w->f.duplicate)) copies++;
  ev.worker = w->w[i].id;
  ev.incarnation = w->w[i].incarnation;
  for (uint32_t c = 0; c < copies; c++) {
    uint32_t ms = sim_chance(&w->rng, w->f.late) ? sim_between(&w->rng, 500, 8000) : sim_between(&w->rng, 1, 40);
    if (ev.kind == BR_EV_TASK_DONE && sim_chance(&w->rng, w->f.slow_commit)) ms += sim_between(&w->rng, 300, 6000);
    if (c > 1) ms += sim_below(&w->rng, 20000); /* said again, much later */
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

void sim_kill_worker(sim_world *w, uint32_t i, bool noticed, bool comes_back) {
  if (!w->w[i].up) return;
  sim_trace(w, "process %u dies%s", i, noticed ? "" : " silently");
  w->w[i].up = false;
  for (size_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    if (a->worker != i) continue;
    if (a->flight == SIM_RUNS) sim_end_attempt(w, a);
    if (a->flight == SIM_SENT) a->flight = SIM_ENDED;
    if (!w->q[a->q].stages[a->id.stage].outlives) a->stored = false;
  }
  if (noticed) {
    br_event ev = {.kind = BR_EV_WORKER_LOST, .worker = w->w[i].id, .incarnation = w->w[i].incarnation};
    sim_push(w, w->now_ms + sim_between(&w->rng, 1, sim_chance(&w->rng, w->f.late) ? 5000 : 40), SIM_EVENT)->ev = ev;
  }
  if (!comes_back) return;
  sim_event *e = sim_push(w, w->now_ms + sim_between(&w->rng, 200, 15000), SIM_START_WORKER);
  e->a = i;
  e->b = sim_chance(&w->rng, 500);
}

/* Until it is told that it may go, or loses its patience. */
void sim_drain_worker(sim_world *w, uint32_t i) {
  if (w->w[i].draining) return;
  sim_trace(w, "process %u drains", i);
  w->w[i].draining = true;
  w->st.drains++;
  sim_send(w, i, (br_event){.kind = BR_EV_WORKER_DRAINING}, NULL);
  uint32_t patience = w->with & SIM_DRAIN && sim_chance(&w->rng, 700) ? 120000 : sim_between(&w->rng, 500, 10000);
  sim_push(w, w->now_ms + patience, SIM_LEAVE)->w = i;
}

/* ---- outputs */
void sim_lose_output(sim_world *w, uint32_t i, bool retired) {
  uint32_t n = 0, start = w->n_att ? sim_below(&w->rng, (uint32_t)w->n_att) : 0;
  br_attempt_id ids[SIM_MAX_TASKS];
  for (size_t k = 0; k < w->n_att && n < SIM_MAX_TASKS; k++) {
    sim_attempt *a = &w->att[(start + k) % w->n_att];
    if (a->worker != i || !a->stored || w->q[a->q].stages[a->id.stage].outlives || (retired && !a->evictable)) continue;
    if (n > 0 && sim_chance(&w->rng, 400)) continue;
    a->stored = false;
    ids[n++] = a->id;
    if (!retired) break;
  }
  if (n == 0) return;
  w->st.evicted += n;
  sim_trace(w, "process %u %s %u outputs, the first: q%llu.s%u.t%u.a%u", i, retired ? "evicts" : "finds damaged", n,
            (unsigned long long)ids[0].query, ids[0].stage, ids[0].task, ids[0].attempt);
  sim_send(w, i, (br_event){.kind = BR_EV_OUTPUTS_LOST, .n_attempts = n}, ids);
}

static bool is_meant(const sim_attempt *a, uint32_t k, const br_action *act, uint32_t attempt) {
  if (a->id.query != act->query) return false;
  if ((act->kind == BR_ACT_DROP_STAGE || act->kind == BR_ACT_RETIRE_STAGE) && a->id.stage != act->stage) return false;
  return act->kind != BR_ACT_DROP_OUTPUT || k == attempt;
}

void sim_forget(sim_world *w, uint32_t i, const br_action *act, uint32_t attempt) {
  for (uint32_t k = 0; k < w->n_att; k++) {
    sim_attempt *a = &w->att[k];
    if (a->worker != i || !is_meant(a, k, act, attempt)) continue;
    a->stored = false;
    if (act->kind == BR_ACT_DROP_QUERY) sim_stop_soon(w, k);
  }
}

static void retire(sim_world *w, const sim_event *e) {
  for (uint32_t k = 0; k < w->n_att; k++)
    if (w->att[k].worker == e->w && is_meant(&w->att[k], k, &e->act, 0)) w->att[k].evictable = true;
  if (sim_chance(&w->rng, 300) && w->with & SIM_RETIRE && w->now_ms < w->f.quiet_ms)
    sim_push(w, w->now_ms + sim_below(&w->rng, 3000), SIM_EVICT)->w = e->w;
}

/* ---- commands */
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
  uint32_t overdue = 0;
  me->active++;
  for (size_t k = 0; k < w->n_att && me->active > 1; k++) {
    const sim_attempt *other = &w->att[k];
    if (other->worker != e->w || other->flight != SIM_RUNS) continue;
    overdue += other->overdue;
    if (!other->overdue && (other->alone || a->alone) && other != a)
      sim_bad(w, "process %u runs an attempt that must be alone, and others", e->w);
  }
  if (me->active > me->n_slots + overdue)
    sim_bad(w, "process %u runs %u attempts in %u slots", e->w, me->active, me->n_slots);
  sim_run_attempt(w, e->a);
}

static void command(sim_world *w, const sim_event *e) {
  uint32_t q = 0;
  switch (e->act.kind) {
    case BR_ACT_RUN: command_run(w, e); break;
    case BR_ACT_CANCEL: sim_stop_soon(w, e->a); break;
    case BR_ACT_TABLE:
      while (w->q[q].id != e->act.query) q++;
      if (w->w[e->w].known[q][e->act.stage] < e->act.version) w->w[e->w].known[q][e->act.stage] = e->act.version;
      for (uint32_t k = 0; k < w->n_att; k++) /* takes a RETIRE_STAGE back */
        if (w->att[k].worker == e->w && w->att[k].q == q && w->att[k].id.stage == e->act.stage)
          w->att[k].evictable = false;
      break;
    case BR_ACT_RETIRE_STAGE: retire(w, e); break;
    case BR_ACT_RELEASE_WORKER:
      if (!w->w[e->w].draining) sim_bad(w, "process %u does not drain, but is told that it may go", e->w);
      sim_push(w, w->now_ms + sim_between(&w->rng, 1, 500), SIM_LEAVE)->w = e->w;
      break;
    default:
      sim_forget(w, e->w, &e->act, e->a);
      for (; q < w->n_q && e->act.kind == BR_ACT_DROP_QUERY; q++)
        if (w->q[q].id == e->act.query) w->q[q].dropped[e->w] = true;
      break;
  }
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
  if (w->w[i].active > 0 && sim_chance(&w->rng, 900)) {
    sim_push(w, w->now_ms + 500, SIM_LEAVE)->w = i;
    return;
  }
  if (sim_chance(&w->rng, 500)) sim_stop_all(w, i);
  sim_kill_worker(w, i, true, !w->f.no_worker_end);
}

void sim_worker_event(sim_world *w, sim_event *e) {
  if (e->kind == SIM_START || e->kind == SIM_READ || e->kind == SIM_FINISH || e->kind == SIM_STOP) {
    if (!sim_attempt_event(w, e)) sim_recycle(w, e);
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
  if (me->up && e->kind == SIM_EVICT) sim_lose_output(w, e->w, true);
  if (me->up && e->kind == SIM_LEAVE) leave(w, e->w);
  if (me->up && e->kind == SIM_FENCE) fence(w, e->w);
  sim_recycle(w, e);
}
