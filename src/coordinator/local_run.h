/* SPDX-License-Identifier: Apache-2.0
 * A SELECT that runs in this process, on a thread and a connection of its own. */
#ifndef BRANT_COORDINATOR_LOCAL_RUN_H
#define BRANT_COORDINATOR_LOCAL_RUN_H

#include "engine/engine.h"

typedef struct br_local_run br_local_run;
/* Takes `on`, the connection, also when it fails. It runs at once. */
BR_MUST_USE br_status br_local_run_start(br_session *on, const char *sql, br_local_run **out, br_error *err);
/* Waits until the first rows are there, or it failed. Borrowed. */
BR_MUST_USE br_status br_local_run_schema(br_local_run *r, br_schema **out, br_error *err);
BR_MUST_USE br_status br_local_run_next(br_local_run *r, br_batch **out, br_error *err); /* *out NULL: end */
/* Any thread, any number of times: whoever waits gets *why at once, DuckDB is interrupted. */
void br_local_run_stop(br_local_run *r, const br_error *why);
void br_local_run_free(br_local_run *r); /* stops it, and waits until DuckDB has seen that */

#endif
