/* SPDX-License-Identifier: Apache-2.0
 * The inside of brant_query, for those that fill it (submit.c), read it (handle_stream.c) or keep its result (dataset_kept.c). */
#ifndef BRANT_COORDINATOR_HANDLE_H
#define BRANT_COORDINATOR_HANDLE_H

#include "coordinator/dataset.h"
#include "coordinator/local_run.h"
#include "coordinator/session.h"
#include "coordinator/sinks.h"
#include "coordinator/watchdog.h"

struct brant_query {
  br_open_query open; /* first */
  brant_session *session;
  _Atomic int refs;
  br_prepared plan; /* of a SELECT */
  br_batch **kept;
  size_t n_kept, at_kept, cap_kept;
  br_schema *schema;   /* of what the stream gives */
  br_local_run *run;   /* of a SELECT in this process */
  br_rows *rows;       /* of a distributed one */
  br_copying *copying; /* COPY … TO */
  br_watchdog *watchdog;
  pthread_mutex_t lock;
  br_error error;
  br_error late; /* its deadline came; code 0: not yet */
  bool running;  /* run, rows and plan are what they will be */
  bool cancelled, taken, ended;
  uint64_t start_us, end_us, rows_out;
  double cpu_start, cpu_end;
};

brant_query *br_handle_new(brant_session *s);
void br_handle_unref(brant_query *q);
void br_handle_end(brant_query *q); /* its time ends now, if it had not */
br_status br_handle_remember(brant_query *q, br_status status,
                             const br_error *err);                    /* the first error; gives back the status */
void br_handle_stop(brant_query *q, const br_error *why);             /* any thread; what runs of it */
BR_MUST_USE br_status br_handle_start(brant_query *q, br_error *err); /* its plan, in stages */

/* The inside of a query that runs distributed, NULL if it does not; and a reference on it. */
br_query *br_query_inside(brant_query *q);
brant_session *br_query_session(brant_query *q);
BR_MUST_USE br_status br_query_take(brant_query *q, br_error *err); /* the result goes nowhere else */
/* Its rows in the types that DuckDB has, where plain Arrow has none (HUGEINT). */
BR_MUST_USE br_status br_query_stored_stream(brant_query *q, struct ArrowArrayStream *out, br_error *err);
/* brant_query_stream with enums as texts: for readers that know no dictionaries. */
BR_MUST_USE br_status br_query_text_stream(brant_query *q, struct ArrowArrayStream *out, br_error *err);
BR_MUST_USE br_status br_query_wait_result(brant_query *q, br_error *err);
void br_query_hold(brant_query *q);
/* A SELECT, started if it runs on workers; *out NULL: it does not. */
BR_MUST_USE br_status br_query_submit_distributed(brant_session *s, const char *sql, brant_query **out, br_error *err);

#endif
