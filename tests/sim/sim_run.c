/* SPDX-License-Identifier: Apache-2.0
 * One seed from start to end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_world.h"

bool sim_bad(sim_world *w, const char *fmt, ...) {
  va_list ap;
  if (w->bad) return false;
  w->bad = true;
  int n = snprintf(w->why, w->why_n, "at %llu ms: ", (unsigned long long)w->now_ms);
  va_start(ap, fmt);
  if (n > 0 && (size_t)n < w->why_n) vsnprintf(w->why + n, w->why_n - (size_t)n, fmt, ap);
  va_end(ap);
  return false;
}

void sim_trace(const sim_world *w, const char *fmt, ...) {
  va_list ap;
  if (!w->trace) return;
  fprintf(stderr, "%8llu ", (unsigned long long)w->now_ms);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
}

static void random_options(sim_world *w) {
  w->o = (br_sched_options){.max_attempts = 4,
                            .backoff_first_ms = 200,
                            .backoff_max_ms = 10000,
                            .no_worker_ms = 60000,
                            .silent_ms = 10000,
                            .killer_executors = 3,
                            .cancel_ms = 30000,
                            .probe_ms = 5000,
                            .straggler_percent = 150,
                            .straggler_done_percent = 75,
                            .straggler_min_ms = 2000,
                            .split_passes = 4};
  if (sim_chance(&w->rng, 300) || !(w->with & SIM_SECOND)) w->o.straggler_percent = UINT32_MAX;
  if (sim_chance(&w->rng, 500)) w->o.straggler_done_percent = 40;
  if (sim_chance(&w->rng, 300)) w->o.straggler_min_ms = 500;
  if (sim_chance(&w->rng, 200)) w->o.split_passes = 2;
}

static void set_up(sim_world *w) {
  w->now_ms = 1;
  w->overdue_ms = UINT64_MAX;
  random_options(w);
  w->fragile = sim_chance(&w->rng, 150);
  w->s = br_sched_new(&w->o);
  uint32_t workers = sim_between(&w->rng, 1, 5);
  for (uint32_t i = 0; i < workers; i++) sim_start_worker(w, ++w->next_id, 1);
  w->n_q = sim_chance(&w->rng, 500) ? 1 : sim_between(&w->rng, 2, SIM_MAX_QUERIES);
  for (uint32_t i = 0; i < w->n_q; i++) {
    sim_make_query(w, &w->q[i], w->seed * 8 + i + 1);
    sim_push(w, 1 + (sim_chance(&w->rng, 500) ? 0 : sim_below(&w->rng, 8000)), SIM_SUBMIT)->a = i;
  }
  sim_plan_faults(w);
}

static void start_again(sim_world *w, const sim_event *e) {
  const sim_worker *old = &w->w[e->a];
  if (w->f.no_worker_end && w->now_ms >= w->f.quiet_ms) return;
  uint32_t incarnation = old->incarnation;
  for (uint32_t i = 0; i < w->n_w; i++)
    if (w->w[i].id == old->id && w->w[i].incarnation > incarnation) incarnation = w->w[i].incarnation;
  if (e->b)
    sim_start_worker(w, old->id, incarnation + 1);
  else
    sim_start_worker(w, ++w->next_id, 1);
}

static void handle(sim_world *w, sim_event *e) {
  switch (e->kind) {
    case SIM_SUBMIT: sim_submit(w, e->a); break;
    case SIM_EVENT: {
      br_event ev = e->ev;
      int32_t a = ev.kind == BR_EV_TASK_FAILED ? sim_attempt_by_id(w, &ev.attempt) : -1;
      br_error err;
      if (a >= 0) { /* the list of attempts moves when one is added */
        err = w->att[a].error;
        ev.error = &err;
      }
      if (ev.kind == BR_EV_PROBED) {
        ev.error = &err;
        if (e->b)
          br_fail(&err, BR_NETWORK, BR_BLAME_WORKER, "no answer from its data port");
        else
          br_error_clear(&err);
      }
      if (ev.kind == BR_EV_EXECUTOR_LOST && ev.slots) {
        ev.error = &err;
        br_fail(&err, BR_OUT_OF_MEMORY, BR_BLAME_EXECUTOR, "the kernel killed an executor for its memory");
      }
      ev.attempts = e->ids;
      sim_feed(w, &ev);
      break;
    }
    case SIM_TAKE: sim_take_result(w, e->a); break;
    case SIM_START_WORKER: start_again(w, e); break;
    case SIM_ANSWER: sim_answer(w, e->a, e->b); break;
    case SIM_GARBAGE: sim_garbage(w); break;
    case SIM_PROBED: sim_probe(w, e->w); break;
    case SIM_FAULT: sim_fault(w, e->a); break;
    case SIM_WAKE: sim_feed(w, &(br_event){.kind = BR_EV_TICK}); break;
    default: sim_worker_event(w, e); return; /* keeps or recycles it */
  }
  sim_recycle(w, e);
}

static bool all_over(const sim_world *w) {
  for (uint32_t i = 0; i < w->n_q; i++)
    if (w->q[i].state == SIM_Q_RUNS || w->q[i].state == SIM_Q_NOT_YET) return false;
  return true;
}

static void run(sim_world *w) {
  uint64_t until = SIM_END_MS;
  while (!w->bad) {
    sim_event *e = sim_pop(w);
    if (e == NULL || e->at_ms > until) {
      free(e);
      break;
    }
    w->now_ms = e->at_ms;
    handle(w, e);
    if (until == SIM_END_MS && all_over(w) && w->now_ms >= w->f.quiet_ms) until = w->now_ms + 60000;
    if (w->st.events > SIM_MAX_EVENTS) sim_bad(w, "no end after %llu events", (unsigned long long)w->st.events);
  }
  if (!w->bad) sim_end(w);
}

void sim_add_stats(sim_stats *to, const sim_stats *from) {
  uint64_t *t = (uint64_t *)to;
  const uint64_t *f = (const uint64_t *)from;
  for (size_t i = 0; i < sizeof *to / sizeof *t; i++) t[i] += f[i];
}

bool sim_run(uint64_t seed, const sim_options *o, sim_stats *stats, char *why, size_t n) {
  sim_world *w = br_calloc(1, sizeof *w);
  w->seed = seed;
  w->rng.s = sim_mix(seed, 42);
  w->rng_adapt.s = sim_mix(seed, 43);
  w->trace = o && o->trace;
  w->model_alone = o && o->model_alone;
  w->with = SIM_ALL & ~(o ? o->without : 0);
  w->why = why;
  w->why_n = n;
  why[0] = 0;
  set_up(w);
  run(w);
  w->st.end_ms = w->now_ms;
  if (stats) sim_add_stats(stats, &w->st);
  bool good = !w->bad;
  br_sched_free(w->s);
  for (size_t i = 0; i < w->n_heap; i++) free(w->heap[i]);
  for (size_t i = 0; i < w->n_spare; i++) free(w->spare[i]);
  for (uint32_t i = 0; i < w->n_q; i++) free(w->q[i].tasks);
  free(w->heap);
  free(w->spare);
  free(w->att);
  free(w->acts.items);
  free(w);
  return good;
}
