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
  CUT,      /* two workers can't talk to each other */
  CUT_FROM, /* nobody but the coordinator can read from one */
  UNSEEN,   /* the coordinator alone can't */
  FULL_DISK,
  SLOW_DISK,
  DAMAGE, /* an output of somebody's disk is gone */
  EVICT,
  CLOSE, /* a message is lost, so the connection is closed */
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
  if (sim_chance(r, 100)) w->f.stuck_stop = sim_below(r, 300);
  for (uint32_t i = sim_chance(r, 300) ? 10 : 0; i > 0; i--) sim_push(w, sim_below(r, 20000), SIM_GARBAGE);
  if (w->fragile || sim_chance(r, 250)) w->f.slow_commit = sim_below(r, 600);
  for (uint32_t i = 0; i < 4 && w->fragile; i++)
    sim_push(w, sim_below(r, 10000), SIM_FAULT)->a = sim_chance(r, 700) ? KILL : DAMAGE;
  if (sim_chance(r, 300)) w->f.lost_message = sim_below(r, 300);
  if (sim_chance(r, 300)) w->f.straggle = sim_below(r, 60);
  if (sim_chance(r, 400)) w->f.probe = sim_below(r, 500);
  if (sim_chance(r, 300)) w->f.unknown = sim_below(r, 300);
  w->f.no_worker_end = sim_chance(r, 25);
  uint32_t n = calm ? 0 : sim_below(r, 16);
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
  w->f.task_user = w->f.fetch_glitch = w->f.corrupt = w->f.unknown = 0;
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

static void cut(sim_world *w, uint32_t a, uint32_t b) {
  if (a == b || w->n_cuts == SIM_MAX_CUTS) return;
  w->cuts[w->n_cuts++] = (sim_cut){.a = a, .b = b, .until_ms = w->now_ms + sim_between(&w->rng, 1000, 40000)};
  w->st.cuts++;
}

static void path_fault(sim_world *w, uint32_t i, uint32_t kind) {
  uint64_t until = w->now_ms + sim_between(&w->rng, 1000, 20000);
  if (!(w->with & SIM_PROBE)) return;
  if (kind == CUT) cut(w, i, some_worker(w));
  if (kind == CUT_FROM) w->w[i].cut_until_ms = until;
  if (kind == UNSEEN) w->w[i].unseen_until_ms = until;
}

static void disk_fault(sim_world *w, uint32_t i, uint32_t kind) {
  uint64_t until = w->now_ms + sim_between(&w->rng, 500, 20000);
  if (kind == FULL_DISK) w->w[i].full_until_ms = until;
  w->st.full_disks += kind == FULL_DISK;
  if (kind == SLOW_DISK) w->w[i].slow_until_ms = until;
  if ((kind == DAMAGE || kind == EVICT) && w->with & SIM_RETIRE) sim_lose_output(w, i, kind == EVICT);
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
  if (kind == EXECUTOR) sim_kill_executor(w, i, false);
  if (kind == DRAIN) sim_drain_worker(w, i);
  if (kind == CUT || kind == CUT_FROM || kind == UNSEEN) path_fault(w, i, kind);
  if (kind == FULL_DISK || kind == SLOW_DISK || kind == DAMAGE || kind == EVICT) disk_fault(w, i, kind);
  if (kind == CLOSE) sim_close_connection(w, i);
}
