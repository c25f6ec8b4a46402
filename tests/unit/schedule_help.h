/* SPDX-License-Identifier: Apache-2.0
 * A hand-driven cluster for the scheduler's unit tests: events are fed one by one, the invariants are checked after each, actions are
 * kept in lists, and what ran is logged as "stage.task" words. */
#ifndef BRANT_TESTS_SCHEDULE_HELP_H
#define BRANT_TESTS_SCHEDULE_HELP_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/schedule.h"

#define H_MAX 4096
typedef struct harness {
  br_sched *s;
  br_actions a; /* of the last step */
  uint64_t now;
  br_action runs[H_MAX]; /* sent and not answered */
  bool cancelled[H_MAX];
  size_t n_runs;
  char log[H_MAX * 8]; /* what was sent since the last h_clear */
  uint32_t inc[64];    /* incarnation by worker id */
} harness;

static inline harness *h_new(const br_sched_options *o) {
  harness *h = calloc(1, sizeof *h);
  assert_non_null(h);
  h->s = br_sched_new(o);
  h->now = 1000;
  return h;
}

static inline void h_free(harness *h) {
  br_sched_free(h->s);
  free(h->a.items);
  free(h);
}

static inline bool h_same(const br_attempt_id *a, const br_attempt_id *b) {
  return a->query == b->query && a->stage == b->stage && a->task == b->task && a->attempt == b->attempt;
}

static inline void h_take(harness *h, const br_action *a) {
  if (a->kind == BR_ACT_RUN) {
    assert_true(h->n_runs < H_MAX);
    h->cancelled[h->n_runs] = false;
    h->runs[h->n_runs++] = *a;
    size_t n = strlen(h->log);
    if (n + 32 < sizeof h->log)
      snprintf(h->log + n, sizeof h->log - n, "%s%u.%u", n ? " " : "", a->attempt.stage, a->attempt.task);
  }
  for (size_t i = 0; i < h->n_runs && a->kind == BR_ACT_CANCEL; i++)
    if (h_same(&h->runs[i].attempt, &a->attempt)) h->cancelled[i] = true;
}

static inline void h_remove(harness *h, size_t i) {
  h->runs[i] = h->runs[--h->n_runs];
  h->cancelled[i] = h->cancelled[h->n_runs];
}

static inline void h_step(harness *h, br_event e) {
  char why[512];
  e.now_ms = h->now;
  h->a.count = 0;
  br_sched_step(h->s, &e, &h->a);
  assert_string_equal(br_sched_check(h->s, why, sizeof why), "");
  for (size_t i = 0; i < h->a.count; i++) h_take(h, &h->a.items[i]);
}

/* ---- the last step's actions */
static inline size_t h_count(const harness *h, br_action_kind kind) {
  size_t n = 0;
  for (size_t i = 0; i < h->a.count; i++) n += h->a.items[i].kind == kind;
  return n;
}
static inline const br_action *h_act(const harness *h, br_action_kind kind) {
  for (size_t i = 0; i < h->a.count; i++)
    if (h->a.items[i].kind == kind) return &h->a.items[i];
  return NULL;
}
static inline size_t h_at(const harness *h, br_action_kind kind) { /* position; a.count: not there */
  size_t i = 0;
  while (i < h->a.count && h->a.items[i].kind != kind) i++;
  return i;
}

/* ---- events */
static inline void h_join(harness *h, uint32_t worker, uint32_t slots) {
  h_step(h, (br_event){.kind = BR_EV_WORKER_JOINED, .worker = worker, .incarnation = ++h->inc[worker], .slots = slots});
}
static inline void h_lose(harness *h, uint32_t worker) {
  for (size_t i = h->n_runs; i > 0; i--)
    if (h->runs[i - 1].worker == worker) h_remove(h, i - 1);
  h_step(h, (br_event){.kind = BR_EV_WORKER_LOST, .worker = worker, .incarnation = h->inc[worker]});
}
static inline void h_query(harness *h, uint64_t id, const br_sched_stage *stages, size_t n) {
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = id, .stages = stages, .n_stages = n});
}
static inline size_t h_find(const harness *h, uint64_t query, uint32_t stage,
                            uint32_t task) { /* n_runs: does not run */
  size_t i = 0;
  while (i < h->n_runs && (h->runs[i].query != query || h->runs[i].attempt.stage != stage ||
                           h->runs[i].attempt.task != task || h->cancelled[i]))
    i++;
  return i;
}
static inline bool h_runs(const harness *h, uint64_t query, uint32_t stage, uint32_t task) {
  return h_find(h, query, stage, task) < h->n_runs;
}
static inline void h_answer(harness *h, size_t i, br_event_kind kind, const br_error *err) {
  assert_true(i < h->n_runs);
  br_action r = h->runs[i];
  h_remove(h, i);
  h_step(h, (br_event){.kind = kind,
                       .attempt = r.attempt,
                       .worker = r.worker,
                       .incarnation = r.incarnation,
                       .error = err,
                       .attempts = &r.attempt,
                       .n_attempts = 1});
}
static inline void h_done(harness *h, uint64_t query, uint32_t stage, uint32_t task) {
  h_answer(h, h_find(h, query, stage, task), BR_EV_TASK_DONE, NULL);
}
static inline void h_fail(harness *h, uint64_t query, uint32_t stage, uint32_t task, br_code code, br_blame blame) {
  br_error err;
  br_fail(&err, code, blame, "made up");
  h_answer(h, h_find(h, query, stage, task), BR_EV_TASK_FAILED, &err);
}
static inline void h_tick(harness *h, uint64_t ms) {
  h->now += ms;
  h_step(h, (br_event){.kind = BR_EV_TICK});
}
static inline void h_hear(harness *h, uint32_t worker) {
  h_step(h, (br_event){.kind = BR_EV_WORKER_HEARD, .worker = worker, .incarnation = h->inc[worker]});
}
static inline void h_read(harness *h, uint64_t query, uint32_t stage, uint32_t task) {
  h_step(h, (br_event){.kind = BR_EV_RESULT_READ, .query = query, .stage = stage, .task = task});
}

/* Answer everything that runs in this stage (any: UINT32_MAX), also what starts meanwhile. */
static inline void h_finish(harness *h, uint32_t stage) {
  for (size_t i = 0; i < h->n_runs;) {
    if (stage != UINT32_MAX && h->runs[i].attempt.stage != stage && !h->cancelled[i]) {
      i++;
      continue;
    }
    h_answer(h, i, h->cancelled[i] ? BR_EV_TASK_FAILED : BR_EV_TASK_DONE, NULL);
    i = 0;
  }
}
static inline void h_clear(harness *h) { h->log[0] = 0; }

static inline int h_word_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
/* What was sent since h_clear, sorted: "0.1 1.0". */
static inline const char *h_ran(harness *h) {
  static char sorted[sizeof h->log];
  char *words[H_MAX], copy[sizeof h->log];
  size_t n = 0;
  snprintf(copy, sizeof copy, "%s", h->log);
  for (char *save, *w = strtok_r(copy, " ", &save); w && n < H_MAX; w = strtok_r(NULL, " ", &save)) words[n++] = w;
  qsort(words, n, sizeof *words, h_word_order);
  sorted[0] = 0;
  for (size_t i = 0, at = 0; i < n; i++)
    at += (size_t)snprintf(sorted + at, sizeof sorted - at, "%s%s", i ? " " : "", words[i]);
  return sorted;
}

static inline uint32_t h_where(const harness *h, uint64_t query, uint32_t stage,
                               uint32_t task) { /* worker; 0: no output */
  br_map_output_id o;
  bool growing;
  return br_sched_output(h->s, query, stage, task, &o, &growing) ? o.worker : 0;
}

#define ALL(st) \
  { .stage = (st), .kind = BR_READ_ALL }
#define CAST(st) \
  { .stage = (st), .kind = BR_READ_BROADCAST }
#define FWD(st) \
  { .stage = (st), .kind = BR_READ_FORWARD }
#define FWD_AT(st, at) \
  { .stage = (st), .kind = BR_READ_FORWARD, .first = (at) }
#define INPUTS(...)                          \
  .inputs = (br_sched_input[]){__VA_ARGS__}, \
  .n_inputs = sizeof((br_sched_input[]){__VA_ARGS__}) / sizeof(br_sched_input)

#endif
