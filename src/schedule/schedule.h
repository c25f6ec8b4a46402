/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: a pure state machine. Events in, actions out; no I/O, no threads, no clock of its own (events carry now_ms),
 * no allocation failure paths. So a simulated cluster can run it against a million seeds (tests/sim).
 *
 * Task states: pending -> ready -> assigned -> running -> committed | failed | cancelled | stopped.
 * Attempts of a task are numbered from 1; 0 means "none". A task has at most two attempts under way: the second one is for a straggler.
 *
 * Modes. STAGED: a stage's tasks may run when all outputs that they read are committed. EAGER: also while they are being written, as
 * soon as each task of the stages they read is committed or has a slot (so producers never wait for slots that their readers hold; with one slot
 * that is STAGED). An attempt reads what its table version names: (map, attempt, worker), committed or growing. When a named
 * attempt that it still may be reading is lost or fails, the reading attempt is cancelled and its task runs again, uncharged.
 *
 * What the caller owes: the actions of one step are carried out in their order; what goes to one worker arrives there in that
 * order. What comes back may be late, reordered and repeated. Every attempt that was sent (RUN) gets an answer (TASK_DONE, TASK_FAILED or
 * EXECUTOR_LOST) also after a CANCEL or DROP_QUERY: its slot is taken until then (or until cancel_ms have passed).
 */
#ifndef BRANT_SCHEDULE_SCHEDULE_H
#define BRANT_SCHEDULE_SCHEDULE_H

#include "base/status.h"
#include <stddef.h>

typedef struct br_sched br_sched;

typedef struct br_sched_options { /* 0: the default in the comment */
  uint32_t max_attempts;          /* 4: tries of a task for what may pass */
  uint32_t backoff_first_ms;      /* 200, doubling */
  uint32_t backoff_max_ms;        /* 10,000 */
  uint32_t no_worker_ms;          /* 60,000 without any worker: the queries fail */
  uint32_t silent_ms;             /* 10,000 without a word: the worker is lost */
  uint32_t
      killer_executors; /* 3: a task running when that many executors died is the killer; 4 lost workers count like one */
  uint32_t cancel_ms;   /* 30,000 without an answer to a CANCEL: its slot counts as free again */
  uint32_t probe_ms;    /* 5,000 without BR_EV_PROBED after BR_ACT_PROBE: the worker counts as dead */
  uint32_t
      straggler_percent; /* 150: of the median time of its stage's committed tasks; UINT32_MAX: no second attempts */
  uint32_t straggler_done_percent; /* 75: of the stage's tasks are committed before one of them is called a straggler */
  uint32_t straggler_min_ms;       /* 2,000: nothing shorter is a straggler */
  uint32_t split_passes;           /* 4: passes of the first split attempt; squared for the next one */
} br_sched_options;

/* ---- a query */
typedef enum br_read_kind {
  BR_READ_ALL /* hash, range, single: [partition] of every map */,
  BR_READ_FORWARD,
  BR_READ_BROADCAST
} br_read_kind;
typedef struct br_sched_input {
  uint32_t stage;
  br_read_kind kind;
  uint32_t first; /* FORWARD: our task t reads their task t - first (UNION ALL: task lists one after the other) */
  bool
      complete; /* EAGER: the reader's task is made from all of it (bounds, filters, sizes): it starts after the last commit */
} br_sched_input;
typedef struct br_sched_stage {
  uint32_t tasks; /* >= 0: a stage of no tasks is finished at once */
  const br_sched_input *inputs;
  size_t n_inputs; /* producer stages have smaller numbers */
  bool indeterminate;
  bool result;     /* its outputs are read by the caller: kept until br_ev_result_read */
  bool splittable; /* an attempt may do its work in passes (RUN with passes > 1), each over a part of its keys */
  const uint32_t
      *near;     /* [tasks], or NULL: the worker (id) that has what the task reads beside its inputs, 0: none; a wish */
  bool gpu;      /* its tasks go to workers with GPUs, if there is one */
  bool outlives; /* its outputs do not die with the worker that made them (shared files) */
  bool
      adapts; /* when all that it reads is committed, and it has not started, BR_ACT_ASK asks for its tasks and inputs */
} br_sched_stage;
typedef enum br_sched_mode { BR_SCHED_STAGED, BR_SCHED_EAGER } br_sched_mode;

/* ---- events */
typedef enum br_event_kind {
  BR_EV_QUERY,           /* a query arrives: query, stages, n_stages (copied), weight, mode, max_running */
  BR_EV_WORKER_JOINED,   /* worker, incarnation, slots */
  BR_EV_WORKER_LOST,     /* worker, incarnation: connection closed, process gone */
  BR_EV_WORKER_HEARD,    /* worker, incarnation: any sign of life */
  BR_EV_WORKER_DRAINING, /* worker: no new tasks, please; it stays until BR_ACT_RELEASE_WORKER or its own deadline */
  BR_EV_EXECUTOR_LOST,   /* worker, incarnation, attempts[] that ran in it; error */
  BR_EV_TASK_STARTED,    /* attempt */
  BR_EV_TASK_DONE,       /* attempt, worker, incarnation, bytes */
  BR_EV_TASK_FAILED,     /* attempt, worker, incarnation, error */
  BR_EV_CANCEL_QUERY,    /* query; error says why (BR_CANCELLED, BR_TIMEOUT) */
  BR_EV_RESULT_READ, /* query, stage, task, attempt.attempt (of BR_ACT_RESULT; 0: whichever): the caller has this result output; it may go */
  BR_EV_TICK,         /* now_ms alone */
  BR_EV_FETCH_FAILED, /* error (BR_FETCH with lost or worker): the caller could not read a result output */
  BR_EV_PROBED,       /* worker, incarnation; error: BR_OK (it answers on its data port) or why not */
  BR_EV_ADAPT, /* query, stage (of BR_ACT_ASK), stages, n_stages: the answer: the plan as it is now. Only stages that have not started
                * may differ from before, in their tasks and inputs */
  BR_EV_OUTPUTS_LOST /* worker, incarnation, attempts[]: outputs that it had and has no more (evicted after RETIRE_STAGE, damaged) */
} br_event_kind;

typedef struct br_event {
  br_event_kind kind;
  uint64_t now_ms;
  uint64_t query;
  const br_sched_stage *stages;
  size_t n_stages;
  uint32_t worker, incarnation, slots;
  bool gpus; /* BR_EV_WORKER_JOINED: it has some */
  br_attempt_id attempt;
  const br_attempt_id *attempts;
  size_t n_attempts;
  uint64_t bytes;
  const br_error *error;
  uint32_t stage, task;
  uint32_t weight;      /* BR_EV_QUERY: its share of the slots; 0 is 1 */
  br_sched_mode mode;   /* BR_EV_QUERY */
  uint32_t max_running; /* BR_EV_QUERY: most attempts under way at once (a fixed number of executors); 0: no bound */
} br_event;

/* ---- actions */
typedef enum br_action_kind {
  BR_ACT_RUN, /* attempt on worker/incarnation; alone: nothing else may run in its executor (it has all slots of the worker); passes */
  BR_ACT_CANCEL, /* attempt on worker/incarnation */
  BR_ACT_TABLE, /* query, stage, version: the stage's output table changed: publish it (br_sched_output of each task, growing ones
                             included) to all workers before later RUNs;
                             worker set: the same table again, for this worker that has joined since */
  BR_ACT_STAGE_DONE, /* query, stage: nothing of it is left to run: all its tasks are committed (EAGER: or stopped) */
  BR_ACT_RESULT, /* query, stage, attempt: this result output is committed on worker/incarnation: the caller may read it */
  BR_ACT_RETIRE_STAGE, /* query, stage: its readers are committed; kept for recovery alone, the first to go when room is needed; a later
                             TABLE of the stage for all workers takes it back: it is needed again */
  BR_ACT_DROP_STAGE, /* query, stage: nobody needs its outputs any more, nor can a loss bring them back into need */
  BR_ACT_DROP_OUTPUT, /* attempt on worker/incarnation: a loser's or a dead attempt's output (the worker may be gone when it
                             outlives it) */
  BR_ACT_QUERY_DONE,   /* query: well */
  BR_ACT_QUERY_FAILED, /* query, error: cancels come before it, DROP_QUERY after */
  BR_ACT_DROP_QUERY,   /* query: forget everything, everywhere */
  BR_ACT_WORKER_GONE,  /* worker, incarnation: declared lost; tell the others */
  BR_ACT_PROBE,        /* worker, incarnation: does it answer on its data port? BR_EV_PROBED */
  BR_ACT_RELEASE_WORKER, /* worker, incarnation: it drains, and nothing that it has is needed: it may go. What it has counts as gone */
  BR_ACT_ASK, /* query, stage: all that it reads is committed; it starts when BR_EV_ADAPT has said how. Asked once a stage */
  BR_ACT_WAKE /* send BR_EV_TICK at at_ms or before */
} br_action_kind;

typedef struct br_action {
  br_action_kind kind;
  uint64_t query;
  br_attempt_id attempt;
  uint32_t worker, incarnation, stage, version;
  uint32_t passes; /* BR_ACT_RUN: 1, or in how many passes over parts of the keys */
  bool alone;      /* BR_ACT_RUN */
  bool second;     /* BR_ACT_RUN: the task's other attempt goes on: a straggler */
  uint64_t at_ms;
  br_error error;
} br_action;

typedef struct br_actions {
  br_action *items;
  size_t count, capacity;
} br_actions; /* caller frees items; reuse it */

br_sched *br_sched_new(const br_sched_options *o);
void br_sched_free(br_sched *s);
/* Handle one event; actions are appended in the order they must be carried out. Unknown ids, late answers of old attempts and
 * repeated events are ignored: nothing that arrives may break it. */
void br_sched_step(br_sched *s, const br_event *e, br_actions *out);

/* ---- looking in (explain, progress, tests) */
typedef enum br_task_state {
  BR_TASK_PENDING,
  BR_TASK_READY,
  BR_TASK_ASSIGNED,
  BR_TASK_RUNNING,
  BR_TASK_COMMITTED,
  BR_TASK_FAILED,
  BR_TASK_CANCELLED,
  BR_TASK_STOPPED
} br_task_state;
typedef struct br_sched_counts {
  uint32_t tasks[8];
} br_sched_counts; /* by state */
bool br_sched_stage_counts(const br_sched *s, uint64_t query, uint32_t stage, br_sched_counts *out);
/* The output of a task, for output tables: the committed one, or (EAGER, *growing) the one that its attempt under way writes. False:
 * none now (dead, dropped, or not made again as nobody needs it). */
bool br_sched_output(const br_sched *s, uint64_t query, uint32_t stage, uint32_t task, br_map_output_id *out,
                     bool *growing);
uint32_t br_sched_table_version(const br_sched *s, uint64_t query, uint32_t stage);
uint64_t br_sched_memory_bytes(const br_sched *s);
/* Empty: the state is consistent. Otherwise what is wrong. For the simulation, after every step. */
const char *br_sched_check(const br_sched *s, char *out, size_t n);

#endif
