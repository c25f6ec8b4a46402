/* SPDX-License-Identifier: Apache-2.0
 *
 * How many events a second the scheduler takes: one query of many tasks on many workers, run to its end by answering every RUN; once with a
 * lost worker in between; staged and eager. Prints events/s, the longest step, and the memory a task. And what a shuffle of 10,000 maps
 * and 8,000 readers costs in memory (the bound is 50 MB).
 * sched_bench [TASKS] [WORKERS] [SLOTS]     default: 1,000,000 tasks, 200 workers, 8 slots
 * sched_bench shuffle                       the shuffle alone, staged and eager; exit status 1 when it takes 50 MB or more
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "schedule/schedule.h"

typedef struct bench {
  br_sched *s;
  br_actions a;
  br_action *runs; /* ring of sent attempts; no more than there are slots */
  size_t cap, first, count;
  uint64_t events, now_ms, longest_us, done, failed;
} bench;

static void step(bench *b, br_event e) {
  e.now_ms = b->now_ms;
  b->a.count = 0;
  uint64_t t0 = br_now_us();
  br_sched_step(b->s, &e, &b->a);
  uint64_t us = br_now_us() - t0;
  if (us > b->longest_us) b->longest_us = us;
  b->events++;
  for (size_t i = 0; i < b->a.count; i++) {
    const br_action *a = &b->a.items[i];
    if (a->kind == BR_ACT_RUN) memcpy(&b->runs[(b->first + b->count++) % b->cap], a, offsetof(br_action, error));
    if (a->kind == BR_ACT_RESULT) /* the caller reads at once, after this step */
      memcpy(&b->runs[(b->first + b->count++) % b->cap], a, offsetof(br_action, error));
    b->done += a->kind == BR_ACT_QUERY_DONE;
    b->failed += a->kind == BR_ACT_QUERY_FAILED;
  }
}

static void answer(bench *b) {
  br_action r;
  memcpy(&r, &b->runs[b->first], offsetof(br_action, error));
  b->first = (b->first + 1) % b->cap;
  b->count--;
  if (r.kind == BR_ACT_RESULT) {
    step(b, (br_event){.kind = BR_EV_RESULT_READ, .query = r.query, .stage = r.attempt.stage, .task = r.attempt.task});
    return;
  }
  br_event e = {.kind = BR_EV_TASK_STARTED, .attempt = r.attempt, .worker = r.worker, .incarnation = r.incarnation};
  step(b, e);
  e.kind = BR_EV_TASK_DONE;
  step(b, e);
}

typedef struct plan {
  const char *name;
  uint32_t maps, readers, workers, slots;
  br_read_kind kind;
  br_sched_mode mode;
  bool lose; /* a worker, in the middle of the second stage */
} plan;

/* The most memory that it took, in bytes. */
static uint64_t run(const plan *p) {
  bench b = {.s = br_sched_new(NULL), .cap = (size_t)p->workers * p->slots * 4 + 1024, .now_ms = 1};
  b.runs = br_calloc(b.cap, sizeof *b.runs);
  uint32_t tasks = p->maps + p->readers;
  bool lose = p->lose;
  br_sched_input in = {.stage = 0, .kind = p->kind}, last = {.stage = 1, .kind = BR_READ_ALL};
  br_sched_stage stages[] = {{.tasks = p->maps},
                             {.tasks = p->readers, .inputs = &in, .n_inputs = 1},
                             {.tasks = 1, .inputs = &last, .n_inputs = 1, .result = true}};
  for (uint32_t w = 1; w <= p->workers; w++)
    step(&b, (br_event){.kind = BR_EV_WORKER_JOINED, .worker = w, .incarnation = 1, .slots = p->slots});
  b.events = b.longest_us = 0;
  uint64_t t0 = br_now_us(), peak = 0;
  step(&b, (br_event){.kind = BR_EV_QUERY, .query = 1, .stages = stages, .n_stages = 3, .mode = p->mode});
  while (b.count > 0) {
    if (b.events % 4096 < 2 && br_sched_memory_bytes(b.s) > peak) peak = br_sched_memory_bytes(b.s);
    answer(&b);
    if (lose && b.events > (uint64_t)p->maps * 2 + p->readers) {
      lose = false;
      step(&b, (br_event){.kind = BR_EV_WORKER_LOST, .worker = 1, .incarnation = 1});
    }
  }
  double sec = (double)(br_now_us() - t0) / 1e6;
  printf(
      "%-28s %9u tasks %5u workers: %8.0f events/s, %5.2f s, longest step %6.1f ms, %4.0f bytes a task, %6.2f MB, %s\n",
      p->name, tasks, p->workers, (double)b.events / sec, sec, (double)b.longest_us / 1e3, (double)peak / tasks,
      (double)peak / 1e6, b.done == 1 ? "done" : "NOT DONE");
  br_sched_free(b.s);
  free(b.runs);
  free(b.a.items);
  return peak;
}

static int shuffle(uint32_t workers, uint32_t slots) {
  const plan p[] = {
      {"shuffle 10,000 x 8,000", 10000, 8000, workers, slots, BR_READ_ALL, BR_SCHED_STAGED, true},
      {"shuffle 10,000 x 8,000 eager", 10000, 8000, workers, slots, BR_READ_ALL, BR_SCHED_EAGER, true},
  };
  uint64_t most = 0;
  for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
    uint64_t bytes = run(&p[i]);
    if (bytes > most) most = bytes;
  }
  printf("the scheduler holds %.2f MB for 10,000 x 8,000 = 80,000,000 partitions: %s 50 MB\n", (double)most / 1e6,
         most < 50000000 ? "less than" : "NOT LESS THAN");
  return most < 50000000 ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "shuffle") == 0) return shuffle(200, 8);
  uint32_t tasks = argc > 1 ? (uint32_t)atoi(argv[1]) : 1000000, workers = argc > 2 ? (uint32_t)atoi(argv[2]) : 200,
           slots = argc > 3 ? (uint32_t)atoi(argv[3]) : 8, half = tasks / 2;
  const plan p[] = {
      {"hash", half, half, workers, slots, BR_READ_ALL, BR_SCHED_STAGED, false},
      {"hash, a worker lost", half, half, workers, slots, BR_READ_ALL, BR_SCHED_STAGED, true},
      {"forward", half, half, workers, slots, BR_READ_FORWARD, BR_SCHED_STAGED, false},
      {"forward, a worker lost", half, half, workers, slots, BR_READ_FORWARD, BR_SCHED_STAGED, true},
      {"hash, eager", half, half, workers, slots, BR_READ_ALL, BR_SCHED_EAGER, false},
      {"hash, eager, a worker lost", half, half, workers, slots, BR_READ_ALL, BR_SCHED_EAGER, true},
      {"forward, eager", half, half, workers, slots, BR_READ_FORWARD, BR_SCHED_EAGER, false},
      {"hash, few workers", half / 10, half / 10, 4, 2, BR_READ_ALL, BR_SCHED_STAGED, false},
  };
  for (size_t i = 0; i < sizeof p / sizeof *p; i++) run(&p[i]);
  return shuffle(workers, slots);
}
