/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker process, "the node": serves the shuffle store, starts and watches executors, speaks with the coordinator.
 * Internal to this folder, but br_node_main. Everything runs on the loop's thread, but the gauges' job (gauge.c).
 */
#ifndef BRANT_WORKER_NODE_H
#define BRANT_WORKER_NODE_H

#include "base/map.h"
#include "flight/flight.h"
#include "net/channel.h"
#include "proto/proto.h"
#include "shuffle/shuffle.h"
#include "udf/pool.h"

/* How --memory is divided; what is left is slack for code, stacks and the allocator. */
#define BR_NODE_DUCKDB_PERCENT 55u
#define BR_NODE_STORE_PERCENT 25u
#define BR_NODE_SCATTER_PERCENT 8u
#define BR_NODE_READ_PERCENT 7u
/* How --disk is divided between shuffle files and DuckDB's temporary files. */
#define BR_NODE_DISK_STORE_PERCENT 50u

#define BR_NODE_MAX_EXECUTORS 64u
#define BR_NODE_MAX_SLOTS 64u          /* of one executor */
#define BR_NODE_MAX_QUEUED_TASKS 4096u /* waiting for an executor; the coordinator keeps to the slots */
#define BR_NODE_QUEUE_WAIT_MS 30000u   /* for an executor that starts; then the task fails */
/* A task that ignores its cancel takes its executor along, since a cancel is to be over within a second; later when other tasks, that nobody
 * cancelled, lose their work with it. */
#define BR_NODE_CANCEL_KILL_MS 400u
#define BR_NODE_CANCEL_KILL_OTHERS_MS 700u
#define BR_NODE_TICK_MS 200u
#define BR_NODE_EXECUTOR_START_MS 30000u  /* from the start to "ready" */
#define BR_NODE_EXECUTOR_SILENT_MS 10000u /* a ready one says something every second */
#define BR_NODE_CRASH_WINDOW_MS 10000u    /* 3 deaths of one executor in this time: */
#define BR_NODE_CRASH_COUNT 3u
#define BR_NODE_CRASH_BACKOFF_MS 1000u /*  the next start waits */
#define BR_NODE_REAP_WAIT_MS 500u      /* between the end of an executor's channel and of its process; then SIGKILL */
#define BR_NODE_STOP_GRACE_MS 1000u    /* idle executors may end by themselves */
#define BR_NODE_STOP_MS 4000u          /* all of stopping */
#define BR_NODE_LEAVE_MS 2000u         /* for the answer to "leaving" */
#define BR_NODE_MAX_TABLE_MAPS (1u << 22) /* of one stage */
#define BR_NODE_MAX_LISTED 10000u         /* outputs in one answer to ListFlights */
#define BR_NODE_REPORT_BYTES (4u << 20)   /* of events in one report; one larger event goes alone */
#define BR_NODE_REPORT_TRIES 3u
#define BR_NODE_JOIN_S 60u /* default of --join-wait and --rejoin-wait: a coordinator that isn't there is asked again */
#define BR_NODE_JOIN_RETRY_MS 500u
#define BR_NODE_WELCOME_MS 60000u   /* from a join that was sent to its answer */
#define BR_NODE_DRAIN_S 60u         /* default of --drain */
#define BR_NODE_UDF_IDLE_S 60u      /* default of --udf-idle */
#define BR_NODE_MAX_WAIT_S 1000000u /* of the four */

/* Exit codes of brant-worker. */
#define BR_NODE_EXIT_OK 0
#define BR_NODE_EXIT_FAILED 1
#define BR_NODE_EXIT_USAGE 2
#define BR_NODE_EXIT_COORDINATOR_LOST 3

typedef struct br_node br_node;
typedef struct br_child br_child;
typedef struct br_wtask br_wtask;

/* ---- options.c */
typedef struct br_node_options {
  char *join, *uri_host, *listen, *temp_dir, *secret, *host_id, *extension_dir;
  int port, parent_fd; /* parent_fd -1: none */
  uint32_t threads, slots, executors;
  uint64_t memory_bytes, disk_bytes;
  uint64_t drain_ms;       /* most between the first SIGTERM and the end; 0: it leaves at once */
  uint64_t join_wait_ms;   /* how long to look for a coordinator at the start */
  uint64_t rejoin_wait_ms; /* after one is lost; 0: not at all */
  bool gpus_given;         /* udf/pool.h */
  uint32_t gpus, gpu_share, gpu_shares;
  uint64_t udf_idle_ms; /* processes of functions end after so long without use */
  bool help;
} br_node_options;
BR_MUST_USE br_status br_node_options_parse(int argc, char **argv, br_node_options *o, br_error *err);
void br_node_options_free(br_node_options *o);
/* "host:port", the last colon counts (IPv6 in brackets). Free both. */
BR_MUST_USE br_status br_node_split_join(const char *join, char **host, char **port, br_error *err);
extern const char br_node_usage[];

/* ---- home.c: the worker's directory and those of the dead. */
typedef struct br_home {
  char *dir, *shuffle_dir;
  int lock_fd; /* held as long as this process lives */
} br_home;
BR_MUST_USE br_status br_home_create(const char *temp_dir, br_home *out, br_error *err);
void br_home_remove(br_home *h);
size_t br_home_remove_dead(const char *temp_dir); /* how many directories of dead workers went */

/* ---- tables.c: who has which output, and where peers are. */
typedef struct br_peer {
  uint32_t worker, incarnation;
  char *uri, *unix_path; /* unix_path "": another host */
} br_peer;
typedef struct br_tables br_tables;
br_tables *br_tables_new(void);
void br_tables_free(br_tables *t);
void br_tables_put(br_tables *t, const Brant__Pb__OutputTable *table);
/* The stage as it was in this version. NULL: this version isn't here (*newest: the newest that is, 0 for none). */
typedef struct br_stage_table br_stage_table;
typedef struct br_table_entry {
  uint32_t attempt, worker, incarnation;
  uint64_t bytes;
  bool growing; /* it was being written when the table was made */
} br_table_entry;
const br_stage_table *br_tables_get(const br_tables *t, uint64_t query, uint32_t stage, uint32_t version,
                                    uint32_t *newest);
uint32_t br_stage_table_partitions(const br_stage_table *s);
uint32_t br_stage_table_maps(const br_stage_table *s);
bool br_stage_table_entry(const br_stage_table *s, uint32_t version, uint32_t map, br_table_entry *out);
/* Finds the table of ref and checks that ref is within it. */
BR_MUST_USE br_status br_tables_find(const br_tables *t, const Brant__Pb__PartitionRef *ref, const br_stage_table **out,
                                     br_error *err);
void br_tables_drop(br_tables *t, uint64_t query, const uint32_t *stage_or_all);
void br_tables_peer(br_tables *t, const Brant__Pb__Peer *p, const char *own_host_id);
void br_tables_peer_gone(br_tables *t, uint32_t worker);
/* Fills r (from the heap) for one input; free with br_resolved_free. */
BR_MUST_USE br_status br_tables_resolve(br_node *n, const Brant__Pb__TaskInput *in, Brant__Pb__ResolvedInput *r,
                                        br_error *err);
void br_resolved_free(Brant__Pb__ResolvedInput *r);

/* ---- tasks.c */
struct br_wtask {
  br_attempt_id id;
  ProtobufCMessage *command; /* owns task */
  Brant__Pb__Task *task;
  br_child *child;              /* NULL: waits for one */
  uint64_t since_ms, cancel_ms; /* cancel_ms 0: not cancelled */
  uint64_t granted_bytes;       /* reserved in the store */
  bool dropped;                 /* its stage or query is gone: the output isn't wanted */
  bool progress_due;
  uint64_t rows, bytes;
  double fraction;
};
void br_tasks_run(br_node *n, ProtobufCMessage *command);                 /* takes over a Command with run */
const br_wtask *br_tasks_find(const br_node *n, const br_attempt_id *id); /* NULL: it isn't here, or has ended */
void br_tasks_cancel(br_node *n, const br_attempt_id *id);
void br_tasks_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all);
void br_tasks_drop_attempt(br_node *n, const br_attempt_id *id);
void br_tasks_dispatch(br_node *n); /* a slot is free, an executor ready */
void br_tasks_tick(br_node *n);
void br_tasks_event(br_child *c, const Brant__Pb__ExecutorEvent *e, int *fds, int n_fds); /* takes fds */
/* Its executor died: attempts to report in *ids (free it); their reservations and files are gone. */
size_t br_tasks_lost(br_node *n, br_child *c, br_attempt_id **ids);
void br_tasks_free(br_node *n);

/* ---- children.c */
struct br_child {
  br_node *node;
  uint32_t number, starts;
  int pid; /* 0: none now */
  br_channel *channel;
  bool ready, closed, reaped, killed;
  bool given_up;     /* killed for a cancelled task that did not stop: no fault of the others in it */
  int status;        /* of waitpid */
  uint64_t heard_ms; /* any message */
  uint64_t since_ms; /* started, or: start again at (pid 0) */
  uint64_t closed_ms;
  uint64_t deaths_ms[BR_NODE_CRASH_COUNT];
  uint32_t running;
  bool alone;    /* what runs there wants nothing beside it */
  char *dir;     /* of this process: DuckDB's temporary files */
  br_smap *sent; /* outputs whose descriptor it has: attempt text -> sent_output */
  br_error why;  /* of the last death */
};
BR_MUST_USE br_status br_children_start(br_node *n, br_error *err);
void br_children_setup(br_node *n); /* worker number known: those that wait get their setup */
void br_children_tick(br_node *n);
void br_children_reap(br_node *n); /* SIGCHLD */
void br_children_stop(br_node *n);
bool br_children_gone(const br_node *n);
void br_children_free(br_node *n); /* SIGKILL and wait for what is left */
void br_child_kill(br_child *c);
void br_child_send(br_child *c, const Brant__Pb__ExecutorCommand *m, const int *fds, int n_fds);
void br_children_broadcast(br_node *n, const Brant__Pb__ExecutorCommand *m);
/* Sends descriptors of outputs that it doesn't have yet. */
BR_MUST_USE br_status br_child_lend(br_child *c, const Brant__Pb__ResolvedInput *r, br_error *err);
void br_children_forget(br_node *n, uint64_t query, const uint32_t *stage_or_all);
void br_children_forget_output(br_node *n, const br_attempt_id *id); /* and tells those who have it */

/* ---- link.c: the coordinator. */
BR_MUST_USE br_status br_link_open(br_node *n, br_error *err);
void br_link_close(br_node *n);
void br_link_tick(br_node *n);
void br_link_done(br_node *n, const br_attempt_id *id, Brant__Pb__TaskStats *stats);
void br_link_failed(br_node *n, const br_attempt_id *id, const br_error *why);
void br_link_started(br_node *n, const br_attempt_id *id);
void br_link_outputs_lost(br_node *n, const br_attempt_id *ids, size_t n_ids);
void br_link_executor_lost(br_node *n, int pid, int status, const br_attempt_id *ids, size_t n_ids,
                           const br_error *why);
void br_link_progress(br_node *n); /* some task's progress_due is set */
void br_link_gauge(br_node *n);    /* a heartbeat with fresh gauges */
void br_link_leave(br_node *n);
void br_link_drain(br_node *n);

typedef struct br_link_event {
  struct br_link_event *next;
  br_buf bytes; /* a packed Report with one event: packed messages may be concatenated */
} br_link_event;

typedef struct br_link {
  br_flight_client *client;
  br_flight_stream *join, *report;
  br_timer *heartbeat;
  uint32_t silent_ms;
  uint64_t since_ms;     /* of the join under way, or the report */
  uint64_t rejoin_at_ms; /* 0: the join is under way, or done */
  bool told_waiting;
  uint64_t retry_at_ms; /* of the report; 0: none */
  uint32_t tries;
  uint64_t seq;
  br_buf sending; /* the report under way; empty: none */
  br_link_event *first, **last;
  bool flush_posted, gauge_due, leaving, leave_sent, draining, drain_sent;
  br_error join_error;
} br_link;

/* ---- functions.c: processes of users' functions. */
void br_functions_open(br_node *n);
void br_functions_event(br_child *c, const Brant__Pb__ExecutorEvent *e);
void br_functions_free(br_node *n);

/* ---- outputs.c: single outputs that go. */
void br_node_drop_output(br_node *n, const br_attempt_id *id); /* exactly this attempt's */
void br_node_report_evicted(br_node *n);                       /* what the store let go since the last call */

/* ---- growing.c: outputs that are being written, for those who read them meanwhile. */
void br_grow_expect(br_node *n, const br_wtask *t); /* it came to this worker */
/* A reference. An attempt that nobody heard of is a failure that may pass. */
BR_MUST_USE br_status br_grow_get(br_node *n, const br_attempt_id *id, br_growing **out, br_error *err);
BR_MUST_USE br_status br_grow_published(br_node *n, const br_wtask *t, const Brant__Pb__Published *p, int *fds,
                                        int n_fds, br_error *err);                           /* takes fds[0] */
BR_MUST_USE br_status br_grow_committed(br_node *n, const br_attempt_id *id, br_error *err); /* it's in the store */
void br_grow_failed(br_node *n, const br_attempt_id *id, const br_error *why);               /* NULL: nobody wants it */
void br_grow_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all);
void br_grow_free(br_node *n);

/* ---- serve.c */
BR_MUST_USE br_status br_serve_open(br_node *n, br_error *err);
/* The outputs of ref that are on this worker, referenced: br_serve_set_free. A missing one is lost, not skipped; so is one
 * that is being written, if only finished ones are wanted. */
BR_MUST_USE br_status br_serve_collect(br_node *n, const Brant__Pb__PartitionRef *ref, bool finished, br_serve_set *out,
                                       br_error *err);
void br_serve_set_free(br_serve_set *set);

/* ---- flights.c: handlers of ListFlights and GetFlightInfo (flight/flight.h); arg is the node. */
br_status br_flights_list(void *arg, void (*emit)(void *ctx, const void *info, size_t n), void *ctx, br_error *err);
br_status br_flights_info(void *arg, const void *descriptor, size_t n, br_buf *info, br_error *err);

/* ---- gauge.c */
void br_gauge_sample(br_node *n, bool report); /* in a pool thread; one at a time */
void br_gauge_fill(br_node *n, Brant__Pb__WorkerGauge *g);
char *br_gauge_json(br_node *n);

/* ---- node.c */
typedef struct br_gauge_state {               /* of gauge.c */
  uint64_t walked_ms, walked_bytes;           /* the last walk; 0: none yet */
  uint64_t counted_bytes, counted_peak_bytes; /* the cheap counters then; the highest at any walk */
  uint64_t told_peak_bytes;
} br_gauge_state;
struct br_node {
  const br_node_options *o;
  br_loop *loop;
  br_home home;
  br_store *store;
  br_flight_server *server;
  char *uri, *unix_path, *executor_path, *host_id;
  uint32_t worker, incarnation; /* 0: not welcome yet */
  br_link link;
  br_tables *tables;
  br_udf_pools *udf;
  char *udf_script; /* NULL: not beside this program */
  br_smap *outputs; /* what the store holds: "q.s.t" -> br_attempt_id */
  br_smap *growing; /* being written: attempt text -> br_grow; NULL: none so far */
  br_child children[BR_NODE_MAX_EXECUTORS];
  br_wtask **tasks;
  size_t n_tasks, tasks_capacity;
  br_timer *tick, *stop_timer;
  uv_signal_t signals[4];
  uv_poll_t parent_poll;
  int n_signals, parent_pid;
  bool parent_polled;
  bool stopping, leaving, draining, sampling, sample_again_report;
  bool rejoins; /* not the first life of this process: it had a coordinator and lost it */
  uint64_t join_until_ms;
  uint64_t stop_ms, ticked_ms, drain_until_ms;
  uint64_t pss_bytes, pss_peak_bytes, served_bytes;
  br_gauge_state gauge;
  int exit_code;
};
/* Any number of times; the first one decides the exit code. Soon br_node_main returns. */
void br_node_stop(br_node *n, int exit_code, const char *why);
void br_node_check_stopped(br_node *n);
void br_node_output_key(uint64_t query, uint32_t stage, uint32_t task, char out[64]);
void br_node_output_put(br_node *n, const br_attempt_id *id);
void br_node_outputs_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all);
void br_node_leave(br_node *n); /* tells the coordinator, then ends */
/* One life: from the start to the end of a membership; the exit code. rejoin_until_ms: 0 for the first life, else how long the coordinator
 * may keep this one waiting. */
int br_node_main(const br_node_options *o, uint64_t rejoin_until_ms);

/* ---- signals.c: SIGTERM, SIGINT, SIGUSR2, SIGCHLD. */
BR_MUST_USE br_status br_signals_keep(br_error *err); /* once a process: from here on they don't end it by themselves */
BR_MUST_USE br_status br_signals_watch(br_node *n, br_error *err);
void br_signals_unwatch(br_node *n); /* n's handles are closed; libuv forgets them with the loop's next turn */
bool br_signals_wait(uint64_t ms);   /* between lives: sleeps; true: SIGTERM or SIGINT has come since br_signals_keep */

/* ---- rejoin.c: lives, one after the other. */
int br_rejoin_run(const br_node_options *o);

#endif
