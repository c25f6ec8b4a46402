/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor process: one DuckDB instance, tasks in threads, a channel to its worker. Internal to this folder, but
 * br_executor_main. The main thread runs the loop (channel and the network of readers); each task has a thread of its own.
 */
#ifndef BRANT_EXECUTOR_EXECUTOR_H
#define BRANT_EXECUTOR_EXECUTOR_H

#include "base/map.h"
#include "engine/engine.h"
#include "engine/files.h"
#include "net/channel.h"
#include "proto/proto.h"
#include "shuffle/shuffle.h"
#include <pthread.h>
#include <stdatomic.h>

#define BR_EXECUTOR_FD 3                  /* where the worker left the socket */
#define BR_EXECUTOR_MAX_TASKS 128u        /* at once; the worker keeps to its slots */
#define BR_EXECUTOR_MAX_IDLE_SESSIONS 32u /* kept for the next task of the same query */
#define BR_EXECUTOR_PROGRESS_MS 200u
#define BR_EXECUTOR_TRIM_MS 1000u          /* between two times that freed memory is given back to the system */
#define BR_EXECUTOR_COLD_MS 1000u          /* without a task: all that was kept for the next one is given back */
#define BR_EXECUTOR_WARM_BYTES (16u << 20) /* of a started executor that has run tasks, beside what allocators keep */
#define BR_EXECUTOR_KEPT_BYTES \
  (64u << 20) /* of blocks for map outputs, a slot, in use and kept; not above its scatter_buffer_bytes */
#define BR_EXECUTOR_ALIVE_MS 1000u
#define BR_EXECUTOR_RESERVE_WAIT_MS 10000u /* for the worker's answer; then the output goes to disk */
#define BR_EXECUTOR_SQL_IN_ERROR_BYTES 600u
#define BR_EXECUTOR_MAX_BOUNDS_BYTES (64u << 20) /* all sort keys of a bounds input */
#define BR_EXECUTOR_BROKEN_EXIT_MS \
  2000u /* the worker replaces a broken executor; without it, the executor goes itself */
/* What DuckDB's allocator may keep of freed memory: this part of its limit, at most so much. */
#define BR_EXECUTOR_ALLOCATOR_SHARE 16u
#define BR_EXECUTOR_ALLOCATOR_MOST_BYTES (128u << 20)
#define BR_EXECUTOR_MIN_READ_BYTES (1u << 20)

typedef struct br_executor br_executor;
typedef struct br_etask br_etask;

/* ---- outputs.c: map outputs of this node, by descriptor. Any thread. */
typedef struct br_outputs br_outputs;
br_outputs *br_outputs_new(void);
void br_outputs_free(br_outputs *o);
/* Takes fd. A second one of the same attempt replaces the first. */
void br_outputs_put(br_outputs *o, const br_attempt_id *id, int fd, bool in_memory, uint64_t file_bytes);
/* A reference on the opened file. */
BR_MUST_USE br_status br_outputs_get(br_outputs *o, const br_attempt_id *id, br_mapfile **out, br_error *err);
void br_outputs_drop(br_outputs *o, uint64_t query, const uint32_t *stage_or_all);
void br_outputs_drop_attempt(br_outputs *o, const br_attempt_id *id);

/* ---- sessions.c: connections with a query's prelude and settings done. Any thread. */
typedef struct br_sessions br_sessions;
br_sessions *br_sessions_new(br_engine *e);
void br_sessions_free(br_sessions *s); /* none is out any more */
BR_MUST_USE br_status br_sessions_take(br_sessions *s, const Brant__Pb__Task *t, br_session **out, br_error *err);
/* reuse false: it is closed. */
void br_sessions_give(br_sessions *s, const Brant__Pb__Task *t, br_session *session, bool reuse);
void br_sessions_drop(br_sessions *s, uint64_t query);

/* ---- inputs.c: the readers of one task. */
typedef struct br_einput {
  br_etask *task;
  const Brant__Pb__TaskInput *pb;
  br_schema *schema;
  br_reader *reader;
  pthread_mutex_t lock; /* first */
  br_batch *first;      /* what came before the SQL started */
  bool empty;           /* known before the start */
} br_einput;
BR_MUST_USE br_status br_einputs_open(br_etask *t, br_error *err); /* schemas and readers: prefetching starts */
BR_MUST_USE br_status br_einputs_first(br_etask *t,
                                       br_error *err); /* waits for the first batch of each; bounds whole */
br_status br_einput_next(void *arg, br_batch **out, br_error *err);
br_run_input br_einput_bind(br_einput *in);
void br_einput_stop(void *arg);
void br_einputs_close(br_etask *t);

/* ---- ranges.c: least and greatest values of output columns. */
typedef struct br_eranges_one {
  bool any;
  int64_t least, greatest;
} br_eranges_one;
typedef void (*br_eranges_see)(const br_vec *v, uint32_t rows, br_eranges_one *r);
typedef struct br_eranges_column {
  uint32_t column;
  br_eranges_see see;
} br_eranges_column;
typedef struct br_eranges {
  br_eranges_column *columns; /* NULL: not open */
  br_eranges_one *all;
  size_t n;
  pthread_mutex_t lock; /* all */
} br_eranges;
void br_eranges_open(br_eranges *r, const Brant__Pb__TaskOutput *o);
br_eranges_one *br_eranges_new(const br_eranges *r); /* of a thread; NULL: nothing is asked for */
void br_eranges_look(const br_eranges *r, br_eranges_one *own, const br_vec *columns, uint32_t n_columns,
                     uint32_t rows);
void br_eranges_end(br_eranges *r, br_eranges_one *own);
void br_eranges_tell(const br_eranges *r, Brant__Pb__TaskStats *s);
void br_eranges_told(Brant__Pb__TaskStats *s);
void br_eranges_close(br_eranges *r);

/* ---- sink.c: rows of the SQL into a map output. */
typedef struct br_esink {
  br_etask *task;
  br_schema *schema; /* stored columns, as the plan says */
  br_writer *writer;
  const void **bounds; /* RANGE: sorted keys, partitions - 1 of them */
  uint32_t *bound_bytes;
  uint32_t n_bounds;
  br_buf bound_data;
  br_eranges ranges;
  atomic_uint_fast64_t rows;
} br_esink;
void br_esink_bind(br_esink *s, br_run_sink *out);
BR_MUST_USE br_status br_esink_prepare(br_esink *s, br_error *err); /* the stored schema, before the run */
BR_MUST_USE br_status br_esink_commit(br_esink *s, br_map_output *out, br_error *err);
void br_esink_close(br_esink *s);   /* without a commit: what was written is removed */
void br_esink_publish(br_esink *s); /* main thread, now and then: what is readable and was not told yet */

/* ---- publish.c: to the worker, for those who read while it is written. A br_publisher; task: a br_etask. */
void br_epublish(void *task, const br_publication *p);

/* ---- files.c: a task of a sink (Task.sink) writes the user's files; its output is their list. */
typedef struct br_efiles {
  char *path;      /* the attempt's own directory below the staging directory */
  int dir;         /* it, open; -1: not yet */
  uint32_t writes; /* passes so far */
  br_buf rows;     /* the list as SQL: VALUES */
  size_t n;
} br_efiles;
/* Run sql into files. stats: of this run alone. */
BR_MUST_USE br_status br_efiles_write(br_etask *t, const char *sql, const br_run_input *inputs, size_t n_inputs,
                                      br_run_stats *stats, br_error *err);
char *br_efiles_manifest(br_etask *t);         /* a SELECT of (path, rows, bytes); free it */
void br_efiles_close(br_etask *t, bool stays); /* stays false: what was written is removed */

/* ---- steps.c: texts whose rows get columns by users' functions, each feeding an input(k). */
typedef struct br_esteps br_esteps;
/* The inputs are open; all steps start. Nothing to do without steps. */
BR_MUST_USE br_status br_esteps_start(br_etask *t, br_error *err);
/* What a text reads: those of t's inputs and steps that no step reads but `reader` itself (NULL: the task's own text). */
size_t br_esteps_inputs(br_etask *t, const Brant__Pb__Step *reader, br_run_input *out);
void br_esteps_cancel(br_etask *t); /* any thread, with t->lock held; again and again */
/* Ends what still runs: nobody reads it any more. With the statistics, appended to those of earlier passes. */
void br_esteps_stop(br_etask *t);
void br_esteps_stats(br_etask *t, Brant__Pb__TaskStats *s); /* borrows from t until br_esteps_free */
void br_esteps_free(br_etask *t);

/* ---- threads.c: the threads of tasks, kept. */
typedef struct br_threads br_threads;
br_threads *br_threads_new(void);
/* work(arg) on a thread of its own, a kept one if there is one. EXECUTOR: there can't be one more. */
BR_MUST_USE br_status br_threads_run(br_threads *s, void (*work)(void *), void *arg, br_error *err);
void br_threads_leave(void); /* by work: its thread ends after it, and what the allocator kept for it goes back */
void br_threads_trim(br_threads *s); /* those without work end */
void br_threads_free(br_threads *s); /* after the last work has ended, which it waits for */

/* ---- task.c: one attempt. */
struct br_etask {
  br_executor *x;
  br_attempt_id id;
  ProtobufCMessage *message; /* owns what follows */
  const Brant__Pb__ExecTask *pb;
  uint64_t start_us;
  atomic_bool cancelled, timed_out;
  pthread_mutex_t lock; /* session, n_inputs, readers, sink.writer, read: whoever cancels holds it */
  br_session *session;
  br_einput *inputs;
  size_t n_inputs;
  br_esink sink;
  br_efiles files;
  br_esteps *steps;     /* those that run, NULL: none */
  const char *sql;      /* that runs: the task's, or one of its passes */
  bool function_failed; /* a user's function did: its text says more than the SQL */
  br_reader_stats read; /* of inputs that were closed (passes) */
  uint64_t sent_rows;   /* of the last progress message; main thread */
  double sent_fraction;
};
/* Main thread. Takes over message (an ExecutorCommand with run). */
BR_MUST_USE br_status br_etask_start(br_executor *x, ProtobufCMessage *message, br_error *err);
void br_etask_cancel(br_etask *t); /* main thread; may be called again and again */
void br_etask_peer_gone(br_etask *t, uint32_t worker);
void br_etask_progress(br_etask *t); /* main thread, each BR_EXECUTOR_PROGRESS_MS */

/* ---- executor.c */
struct br_executor {
  br_loop *loop;
  br_channel *channel;
  br_timer *tick;
  br_engine *engine;
  br_sessions *sessions;
  br_threads *threads;
  uint64_t allocator_keeps_bytes; /* of freed memory, after a task */
  uint64_t warm_most_bytes;       /* of the process, with what is kept for the next task */
  uint64_t freed_bytes;           /* that malloc could not give back the last time; main thread */
  br_outputs *outputs;
  char *temp_dir, *shuffle_dir, *secret;
  uint32_t worker;
  uint64_t read_buffer_bytes, scatter_buffer_bytes; /* for one task */
  uint32_t peer_silent_ms;                          /* of readers */
  br_etask *tasks[BR_EXECUTOR_MAX_TASKS];           /* main thread */
  bool ready, leaving;
  atomic_bool broken; /* DuckDB's instance must not be used again */
  uint64_t broken_since_ms, alive_ms;
  uint64_t trimmed_ms, ended_ms; /* main thread, as trim_due: memory of a task that ended has not been given back yet */
  bool trim_due, warm;
  br_error failure;     /* why the process ends, code 0: as asked */
  pthread_mutex_t lock; /* reservations, gone_peers */
  pthread_cond_t answered;
  struct br_waiter *waiters;
  struct br_udf_wait *udf_waits; /* function_link.c */
  br_map *gone_peers;            /* numbers of workers that were declared lost */
  uint64_t last_request;
};
void br_executor_send(br_executor *x, const Brant__Pb__ExecutorEvent *e, const int *fds, int n_fds); /* any thread */
void br_executor_send_failed(br_executor *x, const br_attempt_id *id, const br_error *why);          /* any thread */
bool br_executor_reserve(void *task, uint64_t bytes);        /* br_reserver; a task's thread */
bool br_executor_peer_gone(br_executor *x, uint32_t worker); /* any thread */
void br_executor_wake_waiters(br_executor *x);               /* a task was cancelled */
void br_executor_task_ended(void *task);                     /* posted by the task's thread as its last act */
/* Exit status of the process. */
int br_executor_main(int fd);

#endif
