/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the simulation.
 *   sim_queue.c   the clock: what happens when
 *   sim_dag.c     random queries, and what their answers must be
 *   sim_worker.c  workers: obey commands, hold outputs; they die, hang, drain, and come back
 *   sim_task.c    attempts at their workers: read, wait for what grows, fail, end
 *   sim_coord.c   the coordinator: feeds the scheduler, carries its actions out; the caller
 *   sim_trace.c   events and actions as text
 *   sim_model.c   what must be true: an independent account of the same run (events; after a step; at the end)
 *   sim_allow.c   the same: may this action be?
 *   sim_needs.c   the same: what has to run, by definition
 *   sim_adapt.c   stages that are planned again before they start: the coordinator's answers, and when it may be asked
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
#define SIM_MAX_WORKERS 128 /* processes ever started in a seed */
#define SIM_MAX_SLOTS 3
#define SIM_MAX_CUTS 4
#define SIM_MAX_TABLES 512   /* versions of one table */
#define SIM_MAX_NUMBERS 256  /* attempts of one task */
#define SIM_MAX_EVENTS 90000 /* a seed */
#define SIM_MAX_TIMES 128    /* of a stage's committed attempts */
#define SIM_MAX_STOPS 64     /* cancels in one step */
#define SIM_END_MS 7200000
#define SIM_FETCHES 32 /* failed fetches of one task that are not charged */

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
  int16_t bound[SIM_MAX_INPUTS][SIM_MAX_TASKS]; /* the attempts that it reads, -1: not that one's */
  bool grew[SIM_MAX_INPUTS][SIM_MAX_TASKS];     /* not committed when it was bound */
  bool second, alone;
  bool named; /* EAGER: a table names it, or did while it grew */
  uint32_t passes;
  sim_flight flight; /* at the worker */
  bool told_to_stop; /* at the worker */
  bool waits;        /* for inputs that grow */
  bool failed_read;
  br_error error; /* when failed_read */
  uint64_t sent_ms;
  bool current; /* in the scheduler's eyes: sent, not answered, not cancelled, worker not lost */
  bool answered, committed;
  bool overdue; /* cancelled for cancel_ms without an answer: its slot counts as free */
  uint64_t cancelled_ms;
  bool stored, corrupt; /* its output lies at its worker */
  bool evictable;       /* its stage was retired */
  sim_output out;
} sim_attempt;

/* ---- queries */
typedef enum sim_query_state { SIM_Q_NOT_YET, SIM_Q_RUNS, SIM_Q_DONE, SIM_Q_FAILED } sim_query_state;
typedef struct sim_task {
  uint32_t attempts; /* RUNs */
  int32_t alive;     /* attempt (index) whose output counts in the model, -1: none */
  int32_t made_by;   /* attempt that was committed last, -1: none; stays when it dies */
  uint16_t newest;   /* attempt that was committed, or that a committed one has read */
  bool read;
  int32_t now[2];                     /* the attempts that are current, -1: none */
  uint64_t not_before_ms;             /* backoff */
  uint64_t idle_since_ms;             /* it could run, and there is a slot, and it does not; 0: no */
  uint64_t slow_since_ms;             /* it is a straggler, and there is a slot, and no second attempt; 0: no */
  uint32_t avoids;                    /* id of the worker where it failed last */
  uint32_t charged, deaths, fetches;  /* since the last commit; deaths: executors 4, workers 1 */
  uint32_t ooms;                      /* ever */
  uint32_t hunger;                    /* 1: needs to be alone; 2: and split_passes; 3: its square; 4: never fits */
  bool was_dropped;                   /* with its stage, which said that no loss brings it back into need */
  int16_t table[SIM_MAX_TABLES];      /* by version: attempt index in it, -1: none */
  int16_t by_number[SIM_MAX_NUMBERS]; /* attempt index by number */
} sim_task;

typedef struct sim_stage {
  uint32_t n_tasks, first; /* first: number of its first task in the query */
  br_sched_input inputs[SIM_MAX_INPUTS];
  size_t n_inputs;
  bool indeterminate, result, terminal, splittable, outlives, adapts;
  bool asked, answered; /* by the scheduler; by the coordinator */
  bool begun;           /* EAGER: it may have started while its inputs were being written: not to be asked for then */
  uint32_t published;   /* version of the last TABLE */
  bool retired;         /* said, and no reader wants it since */
  uint64_t times[SIM_MAX_TIMES]; /* that committed attempts took, sorted */
  uint32_t n_times;
} sim_stage;

typedef struct sim_query {
  uint64_t id;
  sim_query_state state;
  uint64_t since_ms; /* submitted */
  sim_stage stages[SIM_MAX_STAGES];
  uint32_t n_stages, n_all;
  br_sched_mode mode;
  uint32_t max_running;
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
typedef struct sim_strikes {
  uint32_t n; /* within a minute of the first */
  uint64_t first_ms;
} sim_strikes;
typedef struct sim_worker {
  uint32_t id, incarnation, n_slots;
  bool up, draining, joined;
  bool closed;                                     /* its connection */
  bool deaf;                                       /* beats, but can't be read from */
  uint64_t cut_until_ms;                           /* nobody but the coordinator can read from it */
  uint64_t unseen_until_ms;                        /* the coordinator alone can't read from it */
  uint64_t full_until_ms, slow_until_ms;           /* its disk */
  uint64_t hung_until_ms, last_in_ms;              /* last_in: commands arrive in order */
  uint32_t active;                                 /* attempts that it holds a slot for */
  uint32_t known[SIM_MAX_QUERIES][SIM_MAX_STAGES]; /* newest table it has */
  /* the coordinator's eyes */
  bool live, usable, released;
  uint32_t outstanding; /* RUNs without an answer */
  uint32_t alone;       /* of them: alone */
  uint64_t heard_ms;
  uint64_t joined_ms;
  uint64_t probed_ms;        /* asked, and not answered; 0: no */
  uint32_t probed_for;       /* the worker whose reader could not read; 0: the caller's */
  bool probe_due;            /* somebody could not read from it just now */
  sim_strikes served, read;  /* failed reads, although it answers: from it, by it */
  uint64_t unneeded_ms;      /* drains, and nothing that it has is needed, since; 0: no */
  bool said_lost, said_dead; /* dead: says the answer to a probe, or that there is none */
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
  SIM_EVICT,        /* w: its store needs room */
  SIM_PROBED,       /* w: the coordinator asks its data port */
  SIM_FAULT,        /* a: kind */
  SIM_ANSWER,       /* a: query, b: stage: the coordinator says how it is planned */
  SIM_GARBAGE,      /* an event about nothing that there is */
  SIM_WAKE
} sim_kind;

typedef struct sim_event {
  uint64_t at_ms, seq;
  sim_kind kind;
  uint32_t w, a, b;
  br_event ev;
  br_attempt_id ids[SIM_MAX_TASKS];
  br_action act; /* error not used */
} sim_event;

typedef struct sim_faults {
  uint32_t task_io, task_oom, task_user, fetch_glitch, corrupt, late, duplicate, slow_stop; /* per mille */
  uint32_t slow_commit;     /* per mille: the word of a commit takes long */
  uint32_t stuck_stop;      /* per mille: an attempt that stops after half a minute or more */
  uint32_t lost_message;    /* in 100,000 */
  uint32_t straggle, probe; /* per mille: tasks that take long; probes with a wrong answer, or none */
  uint32_t unknown;         /* per mille: a reader is there before the producer, and is sent away */
  uint64_t quiet_ms;        /* no new faults after */
  bool no_worker_end;       /* the workers all go and none comes back */
} sim_faults;

typedef struct sim_cut {
  uint32_t a, b;
  uint64_t until_ms;
} sim_cut; /* processes a and b can't talk to each other */

typedef struct sim_world {
  sim_rng rng, rng_adapt; /* its own, so that seeds without such stages stay what they were */
  uint64_t seed, now_ms, seq;
  uint32_t with; /* SIM_* */
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
  sim_cut cuts[SIM_MAX_CUTS];
  uint32_t n_cuts;
  sim_attempt *att;
  size_t n_att, cap_att;
  uint64_t no_usable_since_ms;
  bool any_usable;
  uint64_t wake_ms;              /* the last WAKE */
  uint64_t overdue_ms;           /* no cancel is overdue before */
  bool dropped_late;             /* the step dropped the output that its event was about */
  uint32_t stops[SIM_MAX_STOPS]; /* attempts that this step cancelled */
  uint32_t n_stops;
  sim_stats st;
  bool fragile; /* little can be made the same way twice, words of commits take long, and workers die */
  bool trace, bad, model_alone;
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
void sim_worker_event(sim_world *w, sim_event *e); /* COMMAND, START .. STOP, BEAT, LEAVE, FENCE, EVICT */
void sim_kill_worker(sim_world *w, uint32_t i, bool noticed, bool comes_back);
void sim_close_connection(sim_world *w, uint32_t i); /* both sides see it, sooner or later */
void sim_drain_worker(sim_world *w, uint32_t i);
void sim_lose_output(sim_world *w, uint32_t i, bool retired); /* its store evicts one, or finds one damaged */
void sim_send(sim_world *w, uint32_t i, br_event ev, const br_attempt_id *ids); /* worker to coordinator */
bool sim_up(const sim_world *w, uint32_t i);
bool sim_reachable(const sim_world *w, uint32_t from, uint32_t to); /* from: SIM_MAX_WORKERS is the coordinator */
void sim_forget(sim_world *w, uint32_t i, const br_action *a, uint32_t attempt); /* DROP_* at process i */

/* sim_task.c */
void sim_run_attempt(sim_world *w, uint32_t attempt);
void sim_stop_soon(sim_world *w, uint32_t attempt);
void sim_stop_all(sim_world *w, uint32_t i); /* its worker leaves */
void sim_kill_executor(sim_world *w, uint32_t i, bool for_memory);
void sim_end_attempt(sim_world *w, sim_attempt *a);
bool sim_attempt_event(sim_world *w, sim_event *e); /* true: it was put back, for later */

/* sim_coord.c */
void sim_submit(sim_world *w, uint32_t q);
void sim_feed(sim_world *w, br_event *ev);
void sim_garbage(sim_world *w);
void sim_take_result(sim_world *w, uint32_t attempt);
void sim_probe(sim_world *w, uint32_t worker);
sim_query *sim_query_by_id(sim_world *w, uint64_t id);
sim_task *sim_task_of(sim_query *q, uint32_t stage, uint32_t task);
int32_t sim_attempt_by_id(sim_world *w, const br_attempt_id *id); /* -1: none */
int32_t sim_worker_by_id(const sim_world *w, uint32_t id, uint32_t incarnation);
sim_worker *sim_live_worker(sim_world *w, uint32_t id, uint32_t incarnation); /* the coordinator's eyes; NULL: none */

/* sim_trace.c */
void sim_trace_event(const sim_world *w, const br_event *ev);
void sim_trace_action(const sim_world *w, const br_action *a);

/* sim_needs.c */
typedef struct sim_needs {
  bool task[SIM_MAX_ALL];
  bool any[SIM_MAX_STAGES]; /* a task of the stage */
} sim_needs;
sim_needs sim_find_needs(const sim_world *w, const sim_query *q); /* the tasks that have to run */
bool sim_reader_needed(const sim_query *q, uint32_t stage, uint32_t task, const sim_needs *n);
bool sim_stage_needed(const sim_query *q, uint32_t stage, const sim_needs *n); /* by somebody, or by the caller */
bool sim_work_left(const sim_world *w, const sim_query *q);
bool sim_is_current(const sim_task *t, int32_t attempt);
uint32_t sim_n_current(const sim_task *t);
/* One that counts, or that is under way; dead otherwise. */
bool sim_good_input(const sim_world *w, const sim_query *q, uint32_t stage, uint32_t task, int32_t attempt);
bool sim_is_bound(const sim_world *w, const sim_query *q, int32_t attempt); /* a current attempt reads it as it grows */
/* The stage's outputs are not needed, and no loss of a worker can make it so. */
bool sim_safe_to_drop(const sim_query *q, uint32_t stage, const sim_needs *n);

/* sim_adapt.c */
void sim_adapt_some(sim_world *w, sim_query *q); /* of a new query */
void sim_stages_of(const sim_query *q, br_sched_stage *out);
void sim_asked(sim_world *w, const br_action *a); /* carry out */
void sim_answer(sim_world *w, uint32_t query, uint32_t stage);
void sim_action_ask(sim_world *w, sim_query *q, uint32_t stage);
void sim_check_asked(sim_world *w, sim_query *q, uint32_t stage); /* a task of it is started */
bool sim_waits_for_answer(const sim_query *q, uint32_t stage, const sim_needs *n);
void sim_check_not_asked(sim_world *w, const sim_query *q, const sim_needs *n);

/* sim_model.c */
void sim_before(sim_world *w, const br_event *ev); /* account for what the scheduler is about to hear */
void sim_accept_void_files(sim_world *w);
void sim_after(sim_world *w, const br_event *ev);
void sim_end(sim_world *w);
bool sim_open_stage(const sim_query *q, uint32_t i, const sim_needs *n); /* its tasks may run */
bool sim_tried_enough(const sim_world *w, const sim_task *t);
bool sim_starved(const sim_world *w, const sim_query *q, uint32_t more_ms);

/* sim_allow.c */
void sim_action(sim_world *w, const br_action *a, const br_event *ev);
void sim_check_stops(sim_world *w, const br_event *ev); /* each cancel of this step has a reason */
void sim_check_answer(sim_world *w, sim_query *q);

/* sim_faults.c */
void sim_plan_faults(sim_world *w);
void sim_fault(sim_world *w, uint32_t kind);

#endif
