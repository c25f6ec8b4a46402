/* SPDX-License-Identifier: Apache-2.0
 * What goes wrong in a seed: some seeds are calm, some have everything. After quiet_ms nothing new goes wrong and workers come back, so
 * that every query must come to its end; in a few seeds all workers go for good instead. */
#include "sim/sim_world.h"

enum {
  KILL,
  KILL_SILENTLY,
  HANG_SHORT,
  HANG_LONG,
  EXECUTOR,
  DRAIN,
  JOIN,
  CANCEL,
  DEAF,
  KILL_ALL,
  FAULT_KINDS,
  RESTORE,
  END_ALL
};

void sim_plan_faults(sim_world *w) {
  sim_rng *r = &w->rng;
  bool calm = sim_chance(r, 100);
  w->f.quiet_ms = sim_between(r, 3000, 30000);
  w->f.late = calm ? 0 : sim_below(r, 80);
  w->f.duplicate = calm ? 0 : sim_below(r, 100);
  w->f.slow_stop = sim_below(r, 300);
  if (sim_chance(r, 500)) w->f.task_io = sim_below(r, 100);
  if (sim_chance(r, 300)) w->f.task_oom = sim_below(r, 60);
  if (sim_chance(r, 100)) w->f.task_user = sim_below(r, 10);
  if (sim_chance(r, 400)) w->f.fetch_glitch = sim_below(r, 40);
  if (sim_chance(r, 400)) w->f.corrupt = sim_below(r, 60);
  w->f.no_worker_end = sim_chance(r, 25);
  uint32_t n = calm ? 0 : sim_below(r, 13);
  for (uint32_t i = 0; i < n; i++)
    sim_push(w, sim_below(r, (uint32_t)w->f.quiet_ms), SIM_FAULT)->a = sim_below(r, FAULT_KINDS);
  sim_push(w, w->f.quiet_ms, SIM_FAULT)->a = w->f.no_worker_end ? END_ALL : RESTORE;
}

static uint32_t some_worker(sim_world *w) { /* n_w: none */
  uint32_t start = sim_below(&w->rng, w->n_w);
  for (uint32_t k = 0; k < w->n_w; k++)
    if (w->w[(start + k) % w->n_w].up) return (start + k) % w->n_w;
  return w->n_w;
}

static void restore(sim_world *w) {
  w->f.task_user = w->f.fetch_glitch = w->f.corrupt = 0;
  w->f.task_io /= 4;
  w->f.task_oom /= 4;
  uint32_t n = 0;
  for (uint32_t i = 0; i < w->n_w; i++) n += w->w[i].up && !w->w[i].draining && w->w[i].hung_until_ms <= w->now_ms;
  if (n == 0) sim_start_worker(w, ++w->next_id, 1);
}

static void cancel_some_query(sim_world *w) {
  sim_query *q = &w->q[sim_below(&w->rng, w->n_q)];
  br_error err;
  br_fail(&err, BR_CANCELLED, BR_BLAME_USER, "the caller changed their mind");
  sim_feed(w, &(br_event){.kind = BR_EV_CANCEL_QUERY, .query = q->id, .error = sim_chance(&w->rng, 800) ? &err : NULL});
}

static void kill_all(sim_world *w, bool come_back) {
  for (uint32_t i = 0, n = w->n_w; i < n; i++) sim_kill_worker(w, i, sim_chance(&w->rng, 700), come_back);
}

static void hang(sim_world *w, uint32_t i, uint32_t lo_ms, uint32_t hi_ms) {
  uint64_t until = w->now_ms + sim_between(&w->rng, lo_ms, hi_ms);
  if (until > w->w[i].hung_until_ms) w->w[i].hung_until_ms = until;
}

void sim_fault(sim_world *w, uint32_t kind) {
  uint32_t i = some_worker(w);
  bool back = sim_chance(&w->rng, 850);
  sim_trace(w, "fault %u", kind);
  if (kind == RESTORE) restore(w);
  if (kind == END_ALL) kill_all(w, false);
  if (kind == CANCEL && sim_chance(&w->rng, 400)) cancel_some_query(w);
  if (kind == JOIN) sim_start_worker(w, ++w->next_id, 1);
  if (kind == KILL_ALL && sim_chance(&w->rng, 300)) kill_all(w, true);
  if (i == w->n_w) return;
  if (kind == KILL || kind == KILL_SILENTLY) sim_kill_worker(w, i, kind == KILL, back);
  if (kind == HANG_SHORT) hang(w, i, 100, 8000);
  if (kind == HANG_LONG) hang(w, i, 8000, 40000);
  if (kind == DEAF) w->w[i].deaf = true;
  if (kind == EXECUTOR) sim_kill_executor(w, i);
  if (kind == DRAIN && !w->w[i].draining) {
    w->w[i].draining = true;
    sim_send(w, i, (br_event){.kind = BR_EV_WORKER_DRAINING}, NULL);
    sim_push(w, w->now_ms + sim_between(&w->rng, 500, 10000), SIM_LEAVE)->w = i;
  }
}
