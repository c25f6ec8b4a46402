/* SPDX-License-Identifier: Apache-2.0
 * Runs queries on the cluster: turns what workers say into scheduler events, and the scheduler's actions into commands.
 * Made and freed by the session; the functions that say so may be called on any thread, the rest runs on the loop thread. */
#ifndef BRANT_COORDINATOR_DRIVER_H
#define BRANT_COORDINATOR_DRIVER_H

#include "coordinator/cluster.h"
#include "coordinator/payload.h"
#include "coordinator/query.h"

typedef struct br_driver_options {
  const char *host; /* of the port that workers join */
  int port;
  const char *secret;
  br_sched_options sched;
  void (*worker_lost)(void *arg, int pid); /* loop thread, after queries have been told; pid as the worker gave it */
  void *arg;
} br_driver_options;

typedef struct br_driver br_driver;
BR_MUST_USE br_status br_driver_new(br_loop *loop, const br_driver_options *o, br_events *events, br_driver **out,
                                    br_error *err);
void br_driver_free(br_driver *d); /* loop thread; queries that still run fail with BR_CANCELLED */
int br_driver_port(const br_driver *d);

/* Loop thread: tell the workers to end. They are gone when br_driver_workers says 0. */
void br_driver_dismiss(br_driver *d);

/* Any thread. The driver takes a reference while the query runs. */
void br_driver_submit(br_driver *d, br_query *q);
/* Any thread. why: BR_CANCELLED or BR_TIMEOUT. */
void br_driver_cancel(br_driver *d, uint64_t query, const br_error *why);
/* Any thread: the caller has read this attempt's result output, or could not (BR_FETCH with its worker or output set). */
void br_driver_result_read(br_driver *d, const br_attempt_id *attempt);
void br_driver_fetch_failed(br_driver *d, uint64_t query, const br_error *err);
/* Loop thread: nobody will start more workers. If there are none, the queries fail with this. */
void br_driver_no_more_workers(br_driver *d, const br_error *why);
/* Any thread: nothing more of this query is wanted (its outputs may go). */
void br_driver_forget(br_driver *d, uint64_t query);
/* Any thread; blocks until `workers` have joined. BR_TIMEOUT after timeout_ms, naming how many came. */
BR_MUST_USE br_status br_driver_wait_workers(br_driver *d, uint32_t workers, uint64_t timeout_ms, br_error *err);
/* Any thread: why the last worker that was refused may not join, and forgets it; code 0: none was. */
void br_driver_refusal(br_driver *d, br_error *out);
/* Any thread: the workers get to know a function that queries call, each once; and forget it when none does any more. */
void br_driver_function(br_driver *d, const Brant__Pb__Function *f, br_payload *payload);
void br_driver_drop_function(br_driver *d, uint64_t id);
uint32_t br_driver_most_gpus(br_driver *d);    /* of one worker */
uint32_t br_driver_slots(br_driver *d);        /* any thread; of the workers now */
uint32_t br_driver_threads(br_driver *d);      /* any thread; of all workers */
uint32_t br_driver_workers(br_driver *d);      /* any thread */
uint64_t br_driver_memory_bytes(br_driver *d); /* any thread; of all workers */
/* Where the caller reads a result output: its worker's address from this host. Any thread. Free it. NULL: the worker is gone. */
char *br_driver_worker_uri(br_driver *d, uint32_t worker);

#endif
