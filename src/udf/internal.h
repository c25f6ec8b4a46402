/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of udf/: pools, their processes, connections. Loop thread.
 *
 * A process's life: spawned (setup sent) → ready (it has loaded the function) → ends: asked to (its channel closes), killed, or by
 * itself. It is gone when it was reaped and its output was read to the end. Connections may come before it's ready: they wait in its socket.
 */
#ifndef BRANT_UDF_INTERNAL_H
#define BRANT_UDF_INTERNAL_H

#include "base/map.h"
#include "net/channel.h"
#include "udf/pool.h"
#include <sys/types.h>

#define BR_UDF_MAX_GPUS 64u

/* Shared with the process (a page), written by it alone: what it does now. Plain words: a torn look is repaired by the next. */
typedef struct br_udf_status {
  uint64_t token;    /* of the connection whose batch is worked on; 0: none */
  uint64_t since_us; /* CLOCK_MONOTONIC; 0: idle */
  uint64_t first_row, rows, batches;
  uint64_t loading; /* 1: the payload is being loaded */
} br_udf_status;

typedef struct br_udf_process br_udf_process;
typedef struct br_udf_pool br_udf_pool;

/* A function; those of one pool have the same options of processes. Lives as long as its pool. */
typedef struct br_udf_fn {
  struct br_udf_fn *next; /* of its pool */
  br_udf_pool *pool;
  Brant__Pb__Function *f; /* a copy without its payload */
  int payload;            /* memfd */
  uint64_t payload_bytes, have_bytes;
  bool fetching;
  bool start;     /* its pool is to be started when all of the payload is here */
  br_error error; /* its payload could not be kept */
  bool dropped;
} br_udf_fn;

typedef struct br_udf_connection {
  struct br_udf_connection *next; /* of its process */
  void *owner;                    /* NULL: gone */
  br_udf_fn *fn;
  uint64_t request, token;
  br_attempt_id attempt;
  uint64_t asked_ms;     /* somebody wants to know how the process ended, since; 0: nobody */
  uint64_t cancelled_ms; /* nobody wants what it does, since */
} br_udf_connection;

/* Somebody wants a connection to a function whose payload is on its way. */
typedef struct br_udf_waiting {
  struct br_udf_waiting *next;
  void *owner;
  uint64_t request, function;
  br_attempt_id attempt;
} br_udf_waiting;

struct br_udf_process {
  br_udf_process *next; /* of its pool */
  br_udf_pool *pool;
  int pid;
  uint32_t number; /* within the pool, for messages */
  br_channel *channel;
  volatile br_udf_status *status; /* mapped */
  br_udf_connection *connections;
  uint32_t n_connections;
  uint64_t *told; /* functions that it knows */
  size_t n_told, cap_told;
  bool ready, reaped, piped_out, killed, handle_open;
  bool leaving, closed; /* asked to end; its channel ended */
  int wait_status;
  uint64_t ended_ms, exit_ms; /* reaped; leaving or closed */
  br_error why;               /* killed: for what */
  uint64_t guilty;            /* token of the connection whose batch it was in when it ended; 0: none */
  uint64_t peak_bytes;
  int pipe;
  uv_poll_t poll;
  char *output; /* ring of BR_UDF_OUTPUT_KEPT_BYTES */
  uint64_t output_bytes;
  int gpus[BR_UDF_MAX_GPUS];
  uint32_t n_gpus;
};

struct br_udf_pool {
  br_udf_pools *all;
  uint64_t key;                 /* the id of its first function */
  br_udf_fn *functions;         /* the first one first */
  const Brant__Pb__Function *f; /* of the first one: options of processes */
  br_udf_process *processes;
  uint32_t n_processes, started; /* processes: those that do not end */
  uint64_t used_ms;              /* last time that a connection was here */
  uint32_t bad_starts;
  uint64_t rest_until_ms;
  br_error bad_start;
  bool dropped; /* all of its functions were */
};

struct br_udf_pools {
  br_udf_options o;
  uint32_t worker;
  br_map *functions; /* id -> br_udf_fn */
  br_map *pools;     /* key -> br_udf_pool */
  br_timer *watch;
  uint64_t last_token;
  uint32_t n_connections, n_processes; /* processes: not gone */
  br_udf_waiting *waiting;
  uint32_t n_waiting;
  bool stopping;
  uint32_t n_gpus;
  char *gpu_names[BR_UDF_MAX_GPUS];
  double gpu_used[BR_UDF_MAX_GPUS];
};

/* ---- process.c */
BR_MUST_USE br_status br_udf_process_start(br_udf_fn *fn, br_udf_process **out, br_error *err);
BR_MUST_USE br_status br_udf_process_connect(br_udf_process *p, br_udf_connection *c, int *fd, br_error *err);
void br_udf_process_kill(br_udf_process *p, const br_error *why); /* why NULL: no fault */
void br_udf_process_leave(br_udf_process *p);                     /* end by itself */
bool br_udf_process_alive(const br_udf_process *p);               /* it may get connections */
void br_udf_process_reap(br_udf_process *p);
void br_udf_process_watch(br_udf_process *p, uint64_t now_ms);
/* For the connection c, or whoever it was busy with (NULL). */
void br_udf_process_describe(const br_udf_process *p, const br_udf_connection *c, br_error *why);
void br_udf_process_end(br_udf_process *p);  /* one without connections, now */
void br_udf_process_free(br_udf_process *p); /* gone, or the loop ends: then it is killed and waited for */

/* ---- payload.c */
BR_MUST_USE br_status br_udf_payload_open(br_udf_fn *fn, const Brant__Pb__Function *f, br_error *err);
bool br_udf_payload_here(const br_udf_fn *fn);
void br_udf_payload_fetch(br_udf_fn *fn); /* unless it is under way */
/* The connection is opened when the payload is here. */
void br_udf_wait(br_udf_pools *all, void *owner, uint64_t request, uint64_t function, const br_attempt_id *attempt);
bool br_udf_wait_forget(br_udf_pools *all, const void *owner, uint64_t request); /* request 0: all of the owner's */
/* All that wait for this function get this answer. */
void br_udf_wait_fail(br_udf_pools *all, uint64_t function, const br_error *err);
void br_udf_wait_free(br_udf_pools *all);

/* ---- pool.c */
void br_udf_process_ready(br_udf_process *p);
void br_udf_process_gone(br_udf_process *p); /* reaped, and its output read: frees it */

/* ---- gpus.c */
void br_udf_gpus_find(br_udf_pools *all);
void br_udf_gpus_free(br_udf_pools *all);
/* How many processes that want so much each can run at once. */
uint32_t br_udf_gpus_processes(const br_udf_pools *all, double each);
BR_MUST_USE br_status br_udf_gpus_take(br_udf_process *p, br_error *err);
void br_udf_gpus_give(br_udf_process *p);
char *br_udf_gpus_text(const br_udf_process *p); /* "0,1" */

#endif
