/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools of processes that run users' functions, one pool a function, owned by the worker. README.md has the duties of worker, process and
 * executor. Everything on the loop's thread.
 *
 *   br_udf_pools_new → br_udf_function (each that is registered) → br_udf_start (a query that calls it begins) →
 *   br_udf_open / br_udf_close (connections of executors) … → br_udf_pools_stop → br_udf_pools_gone → br_udf_pools_free
 */
#ifndef BRANT_UDF_POOL_H
#define BRANT_UDF_POOL_H

#include "net/loop.h"
#include "proto/proto.h"

#define BR_UDF_MAX_PROCESSES 256u       /* of one function, on one worker */
#define BR_UDF_MAX_CONNECTIONS 4096u    /* of one worker, with those that are waited for */
#define BR_UDF_OUTPUT_KEPT_BYTES 65536u /* the last of what a process printed */
#define BR_UDF_WATCH_MS 50u             /* how often memory, time and idleness are looked at */
#define BR_UDF_REAP_WAIT_MS 500u /* a process whose connection ended: from the question to its end; then SIGKILL */
#define BR_UDF_PIPE_WAIT_MS 300u /* after a process's end, for what it printed: its children may hold the pipe */
#define BR_UDF_CANCEL_MS 300u    /* a process inside a batch that nobody wants any more, then SIGKILL */
#define BR_UDF_EXIT_MS 1000u     /* asked to end */
#define BR_UDF_BAD_STARTS 3u     /* processes in a row that ended before they were ready: */
#define BR_UDF_BAD_START_REST_MS 5000u /*  until the next one is tried, opening fails at once */

typedef struct br_udf_pools br_udf_pools;

typedef struct br_udf_options {
  br_loop *loop;
  uint32_t cores;      /* of this worker */
  const char *script;  /* udf_process.py; NULL: the interpreter is asked for `-m brant.udf_process` */
  const char *python;  /* of functions that name no interpreter; NULL: python3 */
  const char *command; /* a program instead of an interpreter (tests); NULL: none */
  bool gpus_given;     /* gpus of them, instead of all that are visible */
  uint32_t gpus;
  uint32_t gpu_share,
      gpu_shares;   /* workers of one machine: this one has those with index % gpu_shares == gpu_share; 0: all */
  uint64_t idle_ms; /* a pool without connections for so long ends its processes */
  /* A connection, or why there is none (err->code, fd -1). The receiver owns fd. owner: what br_udf_open was given. */
  void (*ready)(void *arg, void *owner, uint64_t request, int fd, int pid, const br_error *err);
  /* How the process of a connection ended, whose owner asked. `why` is never empty. Retryable: that process was busy with the batch of
   * another connection, or of none. */
  void (*closed)(void *arg, void *owner, uint64_t request, const br_error *why);
  /* The payload of a function that came without it is wanted: br_udf_payload for each piece, then br_udf_payload_end. */
  void (*fetch)(void *arg, uint64_t function);
  void (*stopped)(void *arg); /* the last process is gone, after br_udf_pools_stop */
  void *arg;
} br_udf_options;

br_udf_pools *br_udf_pools_new(const br_udf_options *o); /* copies *o; strings are borrowed */
void br_udf_pools_set_worker(br_udf_pools *p, uint32_t worker);
/* A function that is here already is left alone. */
void br_udf_function(br_udf_pools *p, const Brant__Pb__Function *f);
/* Of a function that isn't here any more: nothing. err: why not all of it came; whoever asks next makes it be fetched anew. */
void br_udf_payload(br_udf_pools *p, uint64_t function, const void *data, size_t n);
void br_udf_payload_end(br_udf_pools *p, uint64_t function, const br_error *err);
void br_udf_start(br_udf_pools *p, uint64_t function);
void br_udf_drop(br_udf_pools *p, uint64_t function); /* its connections live on */
/* Answered by `ready`, within the call, or once the function's payload is here. attempt is copied, for messages. */
void br_udf_open(br_udf_pools *p, void *owner, uint64_t request, uint64_t function, const br_attempt_id *attempt);
void br_udf_close(br_udf_pools *p, void *owner, uint64_t request, Brant__Pb__UdfEnd end);
void br_udf_owner_gone(br_udf_pools *p, void *owner); /* an executor died: nothing is answered to it any more */
void br_udf_reap(br_udf_pools *p);                    /* SIGCHLD */
void br_udf_pools_stop(br_udf_pools *p);              /* kills all processes */
bool br_udf_pools_gone(const br_udf_pools *p);
void br_udf_pools_free(br_udf_pools *p);     /* kills and waits for what is left; NULL is fine */
uint32_t br_udf_gpus(const br_udf_pools *p); /* of this worker */
/* Pids of the processes that run now, for gauges. */
size_t br_udf_pids(const br_udf_pools *p, int *pids, size_t most);

#endif
