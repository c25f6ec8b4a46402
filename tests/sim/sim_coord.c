/* SPDX-License-Identifier: Apache-2.0
 * The coordinator: feeds the scheduler one event at a time and carries its actions out, in order: commands to one worker arrive in the order they were
 * sent, and now and then twice; one that is lost closes the connection. And the caller, who reads results. */
#include <string.h>

#include "base/mem.h"
#include "sim/sim_world.h"

sim_query *sim_query_by_id(sim_world *w, uint64_t id) {
  for (uint32_t i = 0; i < w->n_q; i++)
    if (w->q[i].id == id) return &w->q[i];
  return NULL;
}

sim_task *sim_task_of(sim_query *q, uint32_t stage, uint32_t task) { return &q->tasks[q->stages[stage].first + task]; }

int32_t sim_attempt_by_id(sim_world *w, const br_attempt_id *id) {
  sim_query *q = sim_query_by_id(w, id->query);
  if (q == NULL || id->stage >= q->n_stages || id->task >= q->stages[id->stage].n_tasks ||
      id->attempt >= SIM_MAX_NUMBERS)
    return -1;
  return sim_task_of(q, id->stage, id->task)->by_number[id->attempt];
}

int32_t sim_worker_by_id(const sim_world *w, uint32_t id, uint32_t incarnation) {
  for (uint32_t i = 0; i < w->n_w; i++)
    if (w->w[i].id == id && w->w[i].incarnation == incarnation) return (int32_t)i;
  return -1;
}

/* ---- carrying out */
static void send_command(sim_world *w, uint32_t to, const br_action *a, uint32_t attempt) {
  uint32_t copies = sim_chance(&w->rng, w->f.duplicate) ? 2 : 1;
  if (w->w[to].closed) return;
  if (sim_below(&w->rng, 100000) < w->f.lost_message && w->now_ms < w->f.quiet_ms) {
    sim_close_connection(w, to);
    return;
  }
  for (uint32_t c = 0; c < copies; c++) {
    uint64_t at = w->now_ms + sim_between(&w->rng, 1, 30);
    if (at <= w->w[to].last_in_ms) at = w->w[to].last_in_ms + 1;
    w->w[to].last_in_ms = at;
    sim_event *e = sim_push(w, at, SIM_COMMAND);
    e->w = to;
    e->a = attempt;
    memcpy(&e->act, a, offsetof(br_action, error));
  }
}

static void broadcast(sim_world *w, const br_action *a) {
  for (uint32_t i = 0; i < w->n_w; i++)
    if (w->w[i].live) send_command(w, i, a, 0);
}

/* What it reads are the attempts that the table names at this moment. */
static void bind(sim_attempt *at, const sim_query *q, sim_stats *stats) {
  const sim_stage *st = &q->stages[at->id.stage];
  memset(at->bound, 0xff, sizeof at->bound);
  for (size_t k = 0; k < st->n_inputs; k++) {
    const sim_stage *p = &q->stages[st->inputs[k].stage];
    at->versions[k] = p->published;
    for (uint32_t m = 0; m < p->n_tasks; m++) {
      const sim_task *in = &q->tasks[p->first + m];
      if (!sim_reads(q, at->id.stage, k, at->id.task, m)) continue;
      at->bound[k][m] = in->table[p->published];
      at->grew[k][m] = in->alive < 0;
      stats->growing_reads += in->alive < 0;
    }
  }
}

static void carry_out_run(sim_world *w, const br_action *a) {
  sim_query *q = sim_query_by_id(w, a->query);
  sim_task *t = sim_task_of(q, a->attempt.stage, a->attempt.task);
  br_grow((void **)&w->att, &w->cap_att, w->n_att, sizeof *w->att);
  sim_attempt *at = &w->att[w->n_att];
  memset(at, 0, offsetof(sim_attempt, error));
  memset(&at->sent_ms, 0, sizeof *at - offsetof(sim_attempt, sent_ms));
  at->id = a->attempt;
  at->q = (uint32_t)(q - w->q);
  at->worker = (uint32_t)sim_worker_by_id(w, a->worker, a->incarnation);
  at->incarnation = a->incarnation;
  at->current = true;
  at->second = a->second;
  at->alone = a->alone;
  at->passes = a->passes ? a->passes : 1;
  at->sent_ms = w->now_ms;
  bind(at, q, &w->st);
  t->by_number[a->attempt.attempt] = (int16_t)w->n_att;
  t->now[t->now[0] >= 0] = (int32_t)w->n_att;
  send_command(w, at->worker, a, (uint32_t)w->n_att++);
}

static void carry_out_table(sim_world *w, const br_action *a) {
  sim_query *q = sim_query_by_id(w, a->query);
  const sim_stage *st = &q->stages[a->stage];
  int32_t to = a->worker ? sim_worker_by_id(w, a->worker, a->incarnation) : -1;
  for (uint32_t t = 0; t < st->n_tasks && a->worker == 0; t++) {
    br_map_output_id o;
    bool growing;
    bool there = br_sched_output(w->s, a->query, a->stage, t, &o, &growing);
    int32_t named = there ? sim_attempt_by_id(w, &o.made_by) : -1;
    q->tasks[st->first + t].table[a->version] = (int16_t)named;
    if (named >= 0) w->att[named].named = true;
  }
  if (to >= 0)
    send_command(w, (uint32_t)to, a, 0);
  else
    broadcast(w, a);
}

/* Files on a shared file system are removed by the coordinator itself. */
static void forget_shared(sim_world *w, const br_action *a, int32_t attempt) {
  for (uint32_t k = 0; k < w->n_att; k++) {
    sim_attempt *at = &w->att[k];
    if (at->id.query != a->query || !w->q[at->q].stages[at->id.stage].outlives) continue;
    if (a->kind == BR_ACT_DROP_STAGE && at->id.stage != a->stage) continue;
    if (a->kind == BR_ACT_DROP_OUTPUT && (int32_t)k != attempt) continue;
    at->stored = false;
  }
}

static void carry_out(sim_world *w, const br_action *a) {
  int32_t to = a->worker ? sim_worker_by_id(w, a->worker, a->incarnation) : -1;
  int32_t attempt = a->attempt.query ? sim_attempt_by_id(w, &a->attempt) : -1;
  if (a->kind == BR_ACT_DROP_OUTPUT || a->kind == BR_ACT_DROP_STAGE || a->kind == BR_ACT_DROP_QUERY)
    forget_shared(w, a, attempt);
  switch (a->kind) {
    case BR_ACT_RUN: carry_out_run(w, a); break;
    case BR_ACT_TABLE: carry_out_table(w, a); break;
    case BR_ACT_CANCEL:
    case BR_ACT_DROP_OUTPUT:
      if (to >= 0 && attempt >= 0 && w->w[to].live) send_command(w, (uint32_t)to, a, (uint32_t)attempt);
      break;
    case BR_ACT_RETIRE_STAGE:
    case BR_ACT_DROP_STAGE:
    case BR_ACT_DROP_QUERY: broadcast(w, a); break;
    case BR_ACT_RESULT: sim_push(w, w->now_ms + sim_between(&w->rng, 5, 1500), SIM_TAKE)->a = (uint32_t)attempt; break;
    case BR_ACT_WORKER_GONE:
      if (to >= 0) sim_push(w, w->now_ms + sim_between(&w->rng, 1, 100), SIM_FENCE)->w = (uint32_t)to;
      break;
    case BR_ACT_PROBE: sim_push(w, w->now_ms + sim_between(&w->rng, 1, 300), SIM_PROBED)->w = (uint32_t)to; break;
    case BR_ACT_RELEASE_WORKER: send_command(w, (uint32_t)to, a, 0); break;
    case BR_ACT_WAKE: sim_push(w, a->at_ms + (sim_chance(&w->rng, 100) ? sim_below(&w->rng, 50) : 0), SIM_WAKE); break;
    case BR_ACT_ASK: sim_asked(w, a); break;
    case BR_ACT_STAGE_DONE:
    case BR_ACT_QUERY_DONE:
    case BR_ACT_QUERY_FAILED: break;
  }
}

void sim_feed(sim_world *w, br_event *ev) {
  ev->now_ms = w->now_ms;
  sim_trace_event(w, ev);
  w->n_stops = 0;
  sim_before(w, ev);
  w->acts.count = 0;
  br_sched_step(w->s, ev, &w->acts);
  sim_accept_void_files(w);
  for (size_t i = 0; i < w->acts.count && !w->bad; i++) {
    sim_trace_action(w, &w->acts.items[i]);
    sim_action(w, &w->acts.items[i], ev);
    if (!w->bad) carry_out(w, &w->acts.items[i]);
  }
  w->st.events++;
  if (!w->bad) sim_check_stops(w, ev);
  if (!w->bad) sim_after(w, ev);
}

void sim_submit(sim_world *w, uint32_t i) {
  sim_query *q = &w->q[i];
  br_sched_stage stages[SIM_MAX_STAGES];
  char text[800];
  sim_stages_of(q, stages);
  br_event ev = {.kind = BR_EV_QUERY,
                 .query = q->id,
                 .stages = stages,
                 .n_stages = q->n_stages,
                 .weight = 1 + i,
                 .mode = q->mode,
                 .max_running = q->max_running};
  if (sim_chance(&w->rng, 50)) sim_push(w, w->now_ms + sim_below(&w->rng, 20000), SIM_SUBMIT)->a = i;
  if (q->state != SIM_Q_NOT_YET) { /* said again */
    sim_feed(w, &ev);
    return;
  }
  sim_describe(q, text, sizeof text);
  sim_trace(w, "%s poison %u killer %u sick %u", text, q->poison, q->killer, q->sick);
  for (uint32_t t = 0; t < q->n_all; t++)
    if (q->tasks[t].hunger) sim_trace(w, "  task %u is hungry: %u", t, q->tasks[t].hunger);
  q->state = SIM_Q_RUNS;
  q->since_ms = w->now_ms;
  w->st.eager += q->mode == BR_SCHED_EAGER;
  sim_feed(w, &ev);
}

/* Nothing that arrives may break it, or be believed: numbers of what never was. */
void sim_garbage(sim_world *w) {
  static const br_event_kind kinds[] = {BR_EV_TASK_DONE,     BR_EV_TASK_FAILED, BR_EV_TASK_STARTED,
                                        BR_EV_EXECUTOR_LOST, BR_EV_WORKER_LOST, BR_EV_WORKER_HEARD,
                                        BR_EV_FETCH_FAILED,  BR_EV_PROBED,      BR_EV_OUTPUTS_LOST};
  const sim_query *q = &w->q[sim_below(&w->rng, w->n_q)];
  br_attempt_id id = {.query = q->id + 1000 * sim_below(&w->rng, 2),
                      .stage = sim_below(&w->rng, q->n_stages + 2),
                      .task = sim_below(&w->rng, SIM_MAX_TASKS + 2),
                      .attempt = (uint16_t)(1000 + sim_below(&w->rng, 64000))};
  br_error err;
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "garbage");
  err.worker = 100000;
  err.has_lost = sim_chance(&w->rng, 500);
  err.lost = (br_map_output_id){.made_by = id, .worker = sim_below(&w->rng, 8), .incarnation = 1};
  br_event ev = {.kind = kinds[sim_below(&w->rng, sizeof kinds / sizeof *kinds)],
                 .attempt = id,
                 .attempts = &id,
                 .n_attempts = 1,
                 .worker = sim_below(&w->rng, 8),
                 .incarnation = 1 + sim_below(&w->rng, 3),
                 .error = &err};
  if (ev.kind == BR_EV_WORKER_LOST || ev.kind == BR_EV_WORKER_HEARD || ev.kind == BR_EV_PROBED) ev.incarnation = 1000;
  if (ev.kind == BR_EV_FETCH_FAILED) ev.worker = 0; /* the caller's */
  sim_feed(w, &ev);
}

/* ---- is that worker there? */
static void say_probed(sim_world *w, uint32_t i, bool good, uint64_t in_ms) {
  sim_event *e = sim_push(w, w->now_ms + in_ms, SIM_EVENT);
  e->ev = (br_event){.kind = BR_EV_PROBED, .worker = w->w[i].id, .incarnation = w->w[i].incarnation};
  e->b = good ? 0 : 1;
}

/* Its port answers, or not; the answer may be wrong (one path of two is cut), late, repeated, or none. */
void sim_probe(sim_world *w, uint32_t i) {
  bool good = sim_reachable(w, SIM_MAX_WORKERS, i), hangs = w->w[i].up && !sim_up(w, i);
  if (hangs) return; /* no answer in time */
  if (w->now_ms < w->f.quiet_ms && sim_chance(&w->rng, w->f.probe)) {
    uint32_t kind = sim_below(&w->rng, 4);
    if (kind == 0) return;
    if (kind == 1) say_probed(w, i, !good, 20);
    if (kind == 2) say_probed(w, i, good, sim_between(&w->rng, 4000, 7000));
    if (kind == 3) say_probed(w, i, good, sim_between(&w->rng, 1, 9000));
    if (kind < 3) return;
  }
  say_probed(w, i, good, sim_between(&w->rng, 1, 300));
}

/* ---- the caller */
void sim_take_result(sim_world *w, uint32_t attempt) {
  sim_attempt *a = &w->att[attempt];
  sim_query *q = &w->q[a->q];
  br_error err;
  if (q->state != SIM_Q_RUNS || sim_task_of(q, a->id.stage, a->id.task)->alive != (int32_t)attempt) return;
  bool shared = q->stages[a->id.stage].outlives;
  if (!shared && !sim_reachable(w, SIM_MAX_WORKERS, a->worker)) {
    if (sim_chance(&w->rng, 300)) {
      br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "can't read the result");
      err.worker = w->w[a->worker].id;
      sim_feed(w, &(br_event){.kind = BR_EV_FETCH_FAILED, .error = &err});
    }
    sim_push(w, w->now_ms + 1000, SIM_TAKE)->a = attempt;
    return;
  }
  if (!a->stored || a->corrupt) {
    br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "the result is broken");
    err.has_lost = true;
    err.lost = (br_map_output_id){.made_by = a->id, .worker = w->w[a->worker].id, .incarnation = a->incarnation};
    sim_feed(w, &(br_event){.kind = BR_EV_FETCH_FAILED, .error = &err});
    return;
  }
  uint32_t copies = sim_chance(&w->rng, 50) ? 2 : 1;
  for (uint32_t c = 0; c < copies; c++) {
    sim_event *e = sim_push(w, w->now_ms + sim_between(&w->rng, 0, sim_chance(&w->rng, 100) ? 4000 : 60), SIM_EVENT);
    e->ev = (br_event){
        .kind = BR_EV_RESULT_READ, .query = q->id, .stage = w->att[attempt].id.stage, .task = w->att[attempt].id.task};
    e->ev.attempt = w->att[attempt].id;
  }
}
