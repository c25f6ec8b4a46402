/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the scheduler: what it remembers, and which file changes what. Private to src/schedule/.
 *
 *   state.c    queries, stages and tasks: made, freed, counted, looked at
 *   ready.c    ready lists and the hold (backoff) heap
 *   workers.c  workers and their slots: join, drain, loss, probes
 *   tasks.c    answers about attempts: started, done, failed, executor lost
 *   flow.c     open stages, published tables, bound readers
 *   plan.c     which tasks have to run (lineage, recovery), done, retired and dropped stages
 *   adapt.c    stages that are planned again before they start
 *   place.c    ready tasks onto free slots
 *   alone.c    tasks that need a worker for themselves (out of memory)
 *   twins.c    second attempts of stragglers
 *   step.c     one event: handle, timers, settle, place, wake
 *   check.c    the invariants
 *
 * Handlers only change tasks and flag queries (br_sched_touch); plans are made and queries are freed in br_sched_settle alone, so that no
 * handler holds a pointer to something freed.
 */
#ifndef BRANT_SCHEDULE_STATE_H
#define BRANT_SCHEDULE_STATE_H

#include "base/map.h"
#include "schedule/schedule.h"

#define BR_SCHED_NONE UINT32_MAX
#define BR_SCHED_MAX_TASKS 16000000u    /* tasks of one query */
#define BR_SCHED_MAX_SLOTS 4096u        /* slots of one worker */
#define BR_SCHED_MAX_ATTEMPT 65535u     /* attempt numbers of one task (16 bits on the wire) */
#define BR_SCHED_MAX_GONE_WORKERS 4096u /* remembered incarnations of workers that are gone */
#define BR_SCHED_MAX_PAST_QUERIES 256u  /* remembered ids of queries that ended */
#define BR_SCHED_FETCH_FAILURES 3u      /* of one worker that answers probes, within the window: it is declared gone */
#define BR_SCHED_FETCH_WINDOW_MS 60000u
#define BR_SCHED_TASK_FETCHES 32u       /* uncharged fetch failures of one task */
#define BR_SCHED_DEATH 4u               /* a dead executor, in quarters: killer_executors of them make a killer */
#define BR_SCHED_LOSS 1u                /* a lost worker, in quarters: machines go for many reasons */
#define BR_SCHED_MAX_PASSES 64u         /* of the first split attempt; the next one has their square */
#define BR_SCHED_TIME_BUCKETS 176u      /* how long tasks of a stage took */
#define BR_SCHED_WAITS (UINT32_MAX - 1) /* instead of a ready list: it waits for a worker for itself */
#define BR_SCHED_LOOK_AHEAD 16u         /* ready tasks looked at when the first must not run where a slot is free */

/* What a task has got for memory: one step more each time that it did not suffice. */
enum { SCHED_SHARED, SCHED_ALONE, SCHED_SPLIT, SCHED_SPLIT_TWICE };

typedef struct sched_task {
  uint8_t state;       /* br_task_state */
  bool will : 1;       /* has to run: its output is needed and not there */
  bool want : 1;       /* the same, while a plan is being made */
  bool alive : 1;      /* its output can be read: made by made_by, on worker output_at */
  bool read : 1;       /* result: the caller has it */
  bool held : 1;       /* waits for its backoff; one entry in the hold heap */
  bool voided : 1;     /* what it wrote mixes lost inputs; inside one void pass only */
  bool twin : 1;       /* it has a second attempt under way, in sched.twins */
  uint8_t ladder : 2;  /* SCHED_SHARED .. */
  bool gpu : 1;        /* goes to a worker with GPUs */
  bool bound : 1;      /* its attempt under way was started with inputs that were being written */
  uint8_t charged;     /* failures that count against max_attempts */
  uint8_t deaths;      /* executors and workers that died under it, in quarters of an executor */
  uint8_t fetches;     /* uncharged fetch failures */
  uint16_t attempt;    /* the newest, 0: none */
  uint16_t made_by;    /* attempt whose output counts (alive or dead), 0: none */
  uint16_t now;        /* the (first) attempt under way, 0: none */
  uint32_t running_on; /* worker index, NONE: no attempt under way */
  uint32_t output_at;  /* worker index */
  uint32_t since;      /* first table version that names the newest attempt (EAGER) or output */
  uint32_t avoid;      /* id of the worker where it failed last, 0: none */
  uint32_t list;       /* ready list that it is in, NONE: none */
  uint32_t prev, next; /* in that list */
} sched_task;

typedef struct sched_consumer {
  uint32_t stage, input;
} sched_consumer;
typedef struct sched_list {
  uint32_t head, tail;
} sched_list;

typedef struct sched_stage {
  uint32_t n_tasks;
  br_sched_input *inputs;
  size_t n_inputs;
  sched_consumer *consumers;
  size_t n_consumers;
  sched_task *tasks;
  uint32_t *near;  /* [task]: id of the worker where it would rather run, 0: none; NULL: for no task */
  uint32_t *reads; /* [task * n_inputs + input]: table version that the newest attempt reads */
  bool indeterminate, result, outlives, splittable;
  bool asks;          /* it may still be planned again: not started, not answered */
  bool asked;         /* BR_ACT_ASK was said */
  bool begun;         /* one of its tasks was started, ever */
  bool last;          /* neither result nor consumers: its work counts, not its output */
  bool open;          /* all inputs are there, or come: its tasks may run */
  bool flows;         /* EAGER: each task is committed or has a slot */
  bool done;          /* STAGE_DONE was said for the present outputs */
  bool retired;       /* RETIRE_STAGE was said for the present outputs */
  bool closed;        /* none of its tasks can have to run again, whatever is lost (of the last plan) */
  bool dirty;         /* outputs changed since the table was published */
  bool forward;       /* has a FORWARD input, or near: ready tasks are listed by worker */
  uint32_t version;   /* of the published table, 0: none yet */
  uint32_t todo;      /* tasks with will */
  uint32_t flying;    /* tasks with an attempt under way that tables may name */
  uint32_t wanted;    /* tasks with want */
  uint32_t alive;     /* tasks with alive */
  uint32_t unread;    /* result tasks that the caller has not read */
  uint32_t ready;     /* tasks in lists */
  uint32_t counts[8]; /* tasks by state */
  uint32_t *times;    /* committed attempts by how long they took, NULL: none yet */
  uint32_t n_times;
  sched_list *lists;       /* 0: anywhere, 1 + w: best on worker index w */
  uint32_t n_lists, steal; /* steal: where the last foreign list was looked for */
} sched_stage;

typedef struct sched_query {
  uint64_t id;
  uint32_t weight, max_running; /* max_running 0: no bound */
  sched_stage *stages;
  uint32_t n_stages;
  uint32_t todo, ready, running, unread; /* sums over its stages; running: attempts that were not cancelled */
  uint64_t started_ms, served;           /* served: number of its last placement */
  uint64_t blocked;                      /* placement pass in which none of its tasks fits */
  bool indeterminate;                    /* one of its stages is */
  bool eager;
  bool touched, replan;
  bool quiet;     /* a plan is being made, or it ends: stages are opened later, or never */
  br_error *doom; /* set: it is about to fail with this */
  uint32_t index; /* in sched.queries */
} sched_query;

typedef struct sched_slot {
  bool used, alone; /* alone: nothing else may run on the worker */
  bool cancelling;  /*  told to stop, not answered yet; its query may be gone */
  br_attempt_id attempt;
  uint64_t since_ms;
} sched_slot;

/* Failed reads that a good probe could not explain, within BR_SCHED_FETCH_WINDOW_MS. */
typedef struct sched_strikes {
  uint32_t n;
  uint64_t first_ms;
} sched_strikes;

typedef enum sched_worker_state { SCHED_FREE, SCHED_LIVE, SCHED_GONE } sched_worker_state;
typedef struct sched_worker {
  sched_worker_state state;
  bool gpus;               /* it has some */
  bool alone;              /* an attempt runs here that must be alone */
  uint64_t kept_for;       /* ticket of the sched_wait that it is kept for, 0: none */
  bool draining, released; /* released: it may go; it has nothing any more */
  uint32_t id, incarnation;
  sched_slot *slots;
  uint32_t n_slots, used;
  uint32_t outputs; /* alive outputs that die with it */
  uint32_t spare;   /* those of them that nobody needs: of retired stages and of last ones */
  uint64_t heard_ms, joined_ms, served;
  uint64_t probe_until_ms;       /* a probe is under way until then, 0: none */
  uint32_t probe_by;             /* id of the worker whose reader asked for it, 0: the caller */
  sched_strikes served_bad;      /* reads from it */
  sched_strikes read_bad;        /* reads by it */
  uint32_t free_index;           /* in sched.free, NONE: no free slot or not usable */
  uint32_t prev_gone, next_gone; /* oldest first */
} sched_worker;

typedef struct sched_hold {
  uint64_t at_ms, query;
  uint32_t stage, task;
} sched_hold;

/* A ready task that needs a worker for itself. */
typedef struct sched_wait {
  uint64_t query, ticket;
  uint32_t stage, task, worker; /* worker: index of the one that is kept for it, when that has its ticket */
} sched_wait;

/* A second attempt under way. */
typedef struct sched_twin {
  uint64_t query;
  uint32_t stage, task, worker;
  uint16_t attempt;
  bool started;
} sched_twin;

struct br_sched {
  br_sched_options o;
  uint64_t now_ms, wake_ms; /* wake_ms: the last one asked for, 0: none */
  sched_query **queries;
  uint32_t n_queries;
  size_t cap_queries;
  br_map *query_by_id;
  uint64_t past[BR_SCHED_MAX_PAST_QUERIES];
  uint32_t n_past;
  sched_worker *workers;
  uint32_t n_workers;
  size_t cap_workers;
  br_map *worker_by_id; /* id -> index + 1 */
  uint32_t gone_first, gone_last, n_gone;
  uint32_t *free;
  uint32_t n_free;
  size_t cap_free;
  uint32_t n_live, n_usable;           /* usable: live and not draining */
  uint32_t n_draining;                 /* live and draining, not released yet */
  uint64_t no_worker_since_ms;         /* while n_usable is 0 */
  uint64_t silent_at_ms, cancel_at_ms; /* no worker is silent, no cancel overdue before; UINT64_MAX: none */
  uint64_t probe_at_ms;                /* no probe without an answer before */
  sched_hold *holds;
  size_t n_holds, cap_holds;
  sched_query **touched;
  uint32_t n_touched;
  size_t cap_touched;
  sched_wait *waits; /* oldest first */
  uint32_t n_waits;
  size_t cap_waits;
  uint64_t ticket;
  bool wait_news; /* one more waits, or a worker is not kept any more, since they were looked at */
  sched_twin *twins;
  uint32_t n_twins;
  size_t cap_twins;
  uint64_t straggler_at_ms; /* no straggler is looked for before */
  uint32_t *joined;
  uint32_t n_joined;
  size_t cap_joined;   /* workers that joined in this step */
  uint64_t turn, pass; /* counters of placements and of passes over them */
};

/* ---- state.c */
br_status br_sched_check_stages(const br_sched_stage *stages, size_t n, br_error *err); /* do they make sense? */
void br_sched_init_stage(sched_stage *st, const br_sched_stage *from); /* of one that is all zeros, or was cleared */
void br_sched_clear_stage(sched_stage *st);                            /* its memory goes */
void br_sched_link_consumers(sched_query *q);
sched_query *br_sched_query_new(br_sched *s, const br_event *e); /* its doom is set when the stages make no sense */
void br_sched_query_free(br_sched *s, sched_query *q);
sched_query *br_sched_query_find(const br_sched *s, uint64_t id);
bool br_sched_task_find(const br_sched *s, uint64_t query, uint32_t stage, uint32_t task, sched_query **q,
                        sched_stage **st, sched_task **t);
void br_sched_set_state(sched_stage *st, sched_task *t, br_task_state state);
void br_sched_touch(br_sched *s, sched_query *q, bool replan);
/* The query fails with *e when the step settles; the first one wins. */
void br_sched_doom(br_sched *s, sched_query *q, const br_error *e);
br_action *br_sched_act(br_actions *out, br_action_kind kind, uint64_t query);
br_attempt_id br_sched_attempt(const sched_query *q, const sched_stage *st, const sched_task *t, uint16_t attempt);

/* ---- ready.c */
void br_sched_make_ready(br_sched *s, sched_query *q, sched_stage *st, sched_task *t); /* if it may run now */
void br_sched_unready(br_sched *s, sched_query *q, sched_stage *st,
                      sched_task *t);                 /* out of its list, if it is in one */
void br_sched_unlist_worker(br_sched *s, uint32_t w); /* nothing prefers this worker any more */
void br_sched_hold(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t failures);
void br_sched_release_held(br_sched *s);

/* ---- workers.c */
sched_worker *br_sched_worker_live(const br_sched *s, uint32_t id, uint32_t incarnation); /* NULL: not that one */
void br_sched_worker_join(br_sched *s, const br_event *e, br_actions *out);
void br_sched_worker_drain(br_sched *s, const br_event *e);
void br_sched_worker_lose(br_sched *s, uint32_t w, const char *why, br_actions *out);
/* It could not be read, says a reader on worker `by` (id; 0: the caller): a probe is sent unless one is under way. */
void br_sched_worker_suspect(br_sched *s, uint32_t w, uint32_t by, br_actions *out);
void br_sched_worker_probed(br_sched *s, const br_event *e, br_actions *out);
void br_sched_release_workers(br_sched *s, br_actions *out); /* draining ones that have nothing that is needed */
void br_sched_worker_timers(br_sched *s, br_actions *out);
sched_slot *br_sched_slot_find(sched_worker *w, const br_attempt_id *a);
void br_sched_slot_take(br_sched *s, uint32_t w, const br_attempt_id *a, bool alone);
void br_sched_update_free(br_sched *s, uint32_t w);
void br_sched_slot_free(br_sched *s, uint32_t w, sched_slot *slot);

/* ---- tasks.c */
void br_sched_task_started(br_sched *s, const br_event *e);
void br_sched_task_done(br_sched *s, const br_event *e, br_actions *out);
void br_sched_task_failed(br_sched *s, const br_event *e, br_actions *out);
void br_sched_executor_lost(br_sched *s, const br_event *e);
void br_sched_fetch_failed(br_sched *s, const br_event *e, br_actions *out);
void br_sched_result_read(br_sched *s, const br_event *e, br_actions *out);
void br_sched_outputs_lost(br_sched *s, const br_event *e, br_actions *out);
/* This attempt is over without a commit; its slot is not touched. True: the task has no other one, it waits for its next turn. */
bool br_sched_attempt_over(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint16_t attempt);
/* An executor (quarters: BR_SCHED_DEATH) or a worker died under it: counted; the query fails when that were too many. */
void br_sched_task_death(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t quarters,
                         const br_error *why);
uint32_t br_sched_failures(const sched_task *t); /* for its backoff */
/* All attempts of the task. */
void br_sched_cancel_attempt(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, br_actions *out);
void br_sched_kill_output(br_sched *s, sched_stage *st, sched_task *t);
void br_sched_drop_output(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, br_actions *out);

/* ---- flow.c */
typedef struct sched_named {
  bool all;       /* every task of the stage is named by a table that would be published now */
  uint32_t since; /* the newest of them */
} sched_named;
bool br_sched_may_open(const sched_query *q, const sched_stage *st);
void br_sched_open_or_close(br_sched *s, sched_query *q, sched_stage *st);
void br_sched_flow(br_sched *s, sched_query *q, sched_stage *st); /* todo or flying changed */
bool br_sched_named(const sched_query *q, const sched_task *t);
void br_sched_publish(const sched_query *q, sched_stage *st, br_actions *out);
void br_sched_bind(sched_query *q, sched_stage *st, sched_task *t, br_actions *out); /* its next attempt starts */
sched_named br_sched_look(const sched_query *q, const sched_stage *st);
/* Something that the attempt under way reads is not there any more under the name it knows; stages: by stage. */
bool br_sched_broken(const sched_query *q, const sched_stage *st, const sched_task *t, const sched_named *stages);
bool br_sched_cancel_broken(br_sched *s, sched_query *q, br_actions *out);

/* ---- adapt.c */
bool br_sched_must_ask(const sched_query *q, const sched_stage *st); /* before it opens */
void br_sched_ask(sched_query *q, br_actions *out);
void br_sched_adapt(br_sched *s, const br_event *e);

/* ---- plan.c */
void br_sched_plan(br_sched *s, sched_query *q, br_actions *out);
/* Its alive outputs are, or are not any more, spare. */
void br_sched_set_retired(br_sched *s, sched_stage *st, bool retired);
bool br_sched_stage_demanded(const sched_query *q, const sched_stage *st); /* a consumer still has tasks to run */

/* ---- place.c */
void br_sched_place(br_sched *s, br_actions *out);
/* passes 0: as usual; else alone on this worker, in so many passes. */
void br_sched_run(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t w, uint32_t passes,
                  br_actions *out);
bool br_sched_may_go(const br_sched *s, const sched_task *t, const sched_worker *w);
bool br_sched_is_full(const sched_query *q); /* it has as many attempts under way as it may have */
uint32_t br_sched_choose_other(const br_sched *s, const sched_task *t, uint32_t w); /* a free worker other than w */

/* ---- alone.c */
uint32_t br_sched_passes(const br_sched *s, const sched_task *t);
void br_sched_more_memory(const sched_stage *st, sched_task *t); /* it had too little */
void br_sched_wait_alone(br_sched *s, sched_query *q, sched_stage *st, sched_task *t);
void br_sched_wait_over(br_sched *s, sched_query *q, sched_stage *st, sched_task *t);
bool br_sched_may_keep(const br_sched *s, const sched_worker *w, const sched_task *t);
void br_sched_place_alone(br_sched *s, br_actions *out);

/* ---- twins.c */
void br_sched_took(br_sched *s, sched_stage *st, uint64_t ms); /* a committed attempt */
void br_sched_watch(br_sched *s, const sched_stage *st);       /* an attempt starts */
void br_sched_look_soon(br_sched *s, const sched_stage *st);   /* less is left to do */
bool br_sched_stragglers(br_sched *s, br_actions *out);        /* true: second attempts were started */
sched_twin *br_sched_twin_find(const br_sched *s, const sched_query *q, const sched_stage *st, const sched_task *t);
void br_sched_twin_remove(br_sched *s, sched_stage *st, sched_task *t, sched_twin *twin);

#endif
