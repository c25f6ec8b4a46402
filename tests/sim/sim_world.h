/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the simulation.
 *   sim_queue.c   the clock: what happens when
 *   sim_dag.c     random queries, and what their answers must be
 *   sim_worker.c  workers: run attempts, hold outputs, obey commands; they die, hang and come back
 *   sim_coord.c   the coordinator: feeds the scheduler, carries its actions out
 *   sim_model.c   what must be true: an independent account of the same run
 *   sim_faults.c  what goes wrong in a seed
 *   sim_run.c     one seed from start to end
 */
#ifndef BRANT_TESTS_SIM_WORLD_H
#define BRANT_TESTS_SIM_WORLD_H

#include "schedule/schedule.h"
#include "sim/sim.h"

#define SIM_MAX_QUERIES 4
#define SIM_MAX_STAGES 7
#define SIM_MAX_TASKS 8 /* a stage */
#define SIM_MAX_ALL 56  /* tasks of a query */
#define SIM_MAX_INPUTS 3
#define SIM_MAX_WORKERS 96 /* processes ever started in a seed */
#define SIM_MAX_SLOTS 3
#define SIM_MAX_EVENTS 60000
#define SIM_END_MS 3600000

typedef struct sim_rng {
  uint64_t s;
} sim_rng;
uint64_t sim_next(sim_rng *r);
uint32_t sim_below(sim_rng *r, uint32_t n);                 /* 0 .. n - 1 */
uint32_t sim_between(sim_rng *r, uint32_t lo, uint32_t hi); /* both included */
bool sim_chance(sim_rng *r, uint32_t per_mille);
uint64_t sim_mix(uint64_t a, uint64_t b);

/* ---- what one attempt made, and out of what */
typedef struct sim_output {
  uint64_t value;
  uint16_t from[SIM_MAX_ALL]; /* by task: the attempt of an indeterminate task that this is made from, 0: none */
  bool mixed;                 /* made from two attempts of one indeterminate task */
} sim_output;

typedef enum sim_flight { SIM_SENT, SIM_RUNS, SIM_ENDED } sim_flight;
typedef struct sim_attempt {
  br_attempt_id id;
  uint32_t q, worker, incarnation; /* q: index */
  uint32_t versions[SIM_MAX_INPUTS];
  sim_flight flight; /* at the worker */
  bool told_to_stop; /* at the worker */
  bool failed_read;
  br_error error; /* when failed_read */
  uint64_t sent_ms;
  bool current; /* in the scheduler's eyes: sent, not answered, not cancelled, worker not lost */
  bool answered, committed;
  bool stored, corrupt; /* its output lies at its worker */
  sim_output out;
} sim_attempt;

/* ---- queries */
typedef enum sim_query_state { SIM_Q_NOT_YET, SIM_Q_RUNS, SIM_Q_DONE, SIM_Q_FAILED } sim_query_state;
typedef struct sim_task {
  uint32_t attempts; /* RUNs */
  int32_t alive;     /* attempt (index) whose output counts in the model, -1: none */
  int32_t made_by;   /* attempt that was committed last, -1: none; stays when it dies */
  bool read;
  int32_t now;                       /* the attempt that is current, -1: none */
  uint64_t not_before_ms;            /* backoff */
  uint32_t charged, deaths, fetches; /* since the last commit */
  int32_t table[64];                 /* by version: attempt index in it, -1: none */
  int32_t by_number[256];            /* attempt index by number */
} sim_task;

typedef struct sim_stage {
  uint32_t n_tasks, first; /* first: number of its first task in the query */
  br_sched_input inputs[SIM_MAX_INPUTS];
  size_t n_inputs;
  bool indeterminate, result, terminal;
  uint32_t published; /* version of the last TABLE */
} sim_stage;

typedef struct sim_query {
  uint64_t id;
  sim_query_state state;
  uint64_t since_ms; /* submitted */
  sim_stage stages[SIM_MAX_STAGES];
  uint32_t n_stages, n_all;
  sim_task *tasks; /* n_all */
  uint32_t poison; /* task whose SQL is wrong; n_all: none */
  uint32_t sick;   /* task that meets a disk error each time; n_all: none */
  uint32_t killer; /* task that kills its executor each time; n_all: none */
  bool indeterminate;
  bool cancelled, poisoned; /* happened and must, or may, fail it */
  br_error error;
  sim_output results[SIM_MAX_ALL];
  bool dropped[SIM_MAX_WORKERS]; /* that process was told to forget it */
} sim_query;

/* ---- workers: one entry a process; a restarted one is a new entry with the same id and a higher incarnation, or a new id */
typedef struct sim_worker {
  uint32_t id, incarnation, n_slots;
  bool up, draining, joined;
  bool deaf;                                       /* beats, but can't be read from */
  uint64_t hung_until_ms, last_in_ms;              /* last_in: commands arrive in order */
  uint32_t active;                                 /* attempts that it holds a slot for */
  uint32_t known[SIM_MAX_QUERIES][SIM_MAX_STAGES]; /* newest table it has */
  /* the coordinator's eyes */
  bool live, usable;
  uint32_t outstanding; /* RUNs without an answer */
  uint64_t heard_ms;
  uint32_t complaints; /* failed fetches that named it */
  uint32_t strikes;    /* those of them that count, in the last minute */
  uint64_t joined_ms, first_strike_ms;
  bool said_lost;
} sim_worker;

typedef enum sim_kind {
  SIM_SUBMIT,  /* a: query */
  SIM_EVENT,   /* ev: something for the scheduler */
  SIM_COMMAND, /* act: an action for a worker; w; versions */
  SIM_START,
  SIM_READ,
  SIM_FINISH,
  SIM_STOP,         /* a: attempt, at its worker */
  SIM_TAKE,         /* a: attempt: the caller reads this result */
  SIM_BEAT,         /* w */
  SIM_START_WORKER, /* a: worker whose place it takes, b: 1: with the same id */
  SIM_LEAVE,        /* w: a drained one goes */
  SIM_FENCE,        /* w: told that it was declared gone */
  SIM_FAULT,        /* a: kind */
  SIM_WAKE
} sim_kind;

typedef struct sim_event {
  uint64_t at_ms, seq;
  sim_kind kind;
  uint32_t w, a, b;
  br_event ev;
  br_attempt_id ids[SIM_MAX_SLOTS];
  br_action act; /* error not used */
  uint32_t versions[SIM_MAX_INPUTS];
} sim_event;

typedef struct sim_faults {
  uint32_t task_io, task_oom, task_user, fetch_glitch, corrupt, late, duplicate, slow_stop; /* per mille */
  uint64_t quiet_ms;                                                                        /* no new faults after */
  bool no_worker_end; /* the workers all go and none comes back */
} sim_faults;

typedef struct sim_world {
  sim_rng rng;
  uint64_t seed, now_ms, seq;
  sim_faults f;
  sim_event **heap;
  size_t n_heap, cap_heap;
  sim_event **spare;
  size_t n_spare, cap_spare;
  br_sched *s;
  br_sched_options o;
  br_actions acts;
  sim_query q[SIM_MAX_QUERIES];
  uint32_t n_q;
  sim_worker w[SIM_MAX_WORKERS];
  uint32_t n_w, next_id;
  sim_attempt *att;
  size_t n_att, cap_att;
  uint64_t no_usable_since_ms;
  bool any_usable;
  uint64_t wake_ms;  /* the last WAKE */
  bool dropped_late; /* the step dropped the output that its event was about */
  sim_stats st;
  bool trace, bad;
  char *why;
  size_t why_n;
} sim_world;

bool sim_bad(sim_world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const sim_world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* sim_queue.c */
sim_event *sim_push(sim_world *w, uint64_t at_ms, sim_kind kind); /* valid until the next push; fill it in at once */
sim_event *sim_pop(sim_world *w);                                 /* NULL: empty */
void sim_recycle(sim_world *w, sim_event *e);
void sim_again(sim_world *w, sim_event *e, uint64_t at_ms); /* the same one, later */

/* sim_dag.c */
void sim_make_query(sim_world *w, sim_query *q, uint64_t id);
void sim_describe(const sim_query *q, char *out, size_t n);
bool sim_reads(const sim_query *q, uint32_t stage, size_t input, uint32_t task, uint32_t theirs);
void sim_begin_value(const sim_query *q, uint32_t stage, uint32_t task, uint16_t attempt, sim_output *out);
void sim_add_value(const sim_query *q, uint32_t stage, size_t input, uint32_t task, uint32_t theirs,
                   const sim_output *in, sim_output *out);
/* The right value of a task, given which attempt of each indeterminate task counts. */
uint64_t sim_right_value(const sim_query *q, uint32_t stage, uint32_t task, const uint16_t *from);

/* sim_worker.c */
uint32_t sim_start_worker(sim_world *w, uint32_t id, uint32_t incarnation);
void sim_worker_event(sim_world *w, sim_event *e); /* COMMAND, START .. STOP, BEAT, LEAVE, FENCE */
void sim_kill_worker(sim_world *w, uint32_t i, bool noticed, bool comes_back);
void sim_kill_executor(sim_world *w, uint32_t i);
void sim_send(sim_world *w, uint32_t i, br_event ev, const br_attempt_id *ids); /* worker to coordinator */
bool sim_up(const sim_world *w, uint32_t i);

/* sim_coord.c */
void sim_submit(sim_world *w, uint32_t q);
void sim_feed(sim_world *w, br_event *ev);
void sim_take_result(sim_world *w, uint32_t attempt);
sim_query *sim_query_by_id(sim_world *w, uint64_t id);
sim_task *sim_task_of(sim_query *q, uint32_t stage, uint32_t task);
int32_t sim_attempt_by_id(sim_world *w, const br_attempt_id *id); /* -1: none */
int32_t sim_worker_by_id(const sim_world *w, uint32_t id, uint32_t incarnation);

/* sim_model.c */
void sim_before(sim_world *w, const br_event *ev); /* account for what the scheduler is about to hear */
void sim_action(sim_world *w, const br_action *a, const br_event *ev);
void sim_after(sim_world *w, const br_event *ev);
void sim_end(sim_world *w);

/* sim_faults.c */
void sim_plan_faults(sim_world *w);
void sim_fault(sim_world *w, uint32_t kind);

#endif
