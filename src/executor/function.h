/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection to a process that runs a user's function: batches of arguments go in, columns of results come out, in order. One thread
 * at a time, but br_function_stop, which any thread may call. Made by the worker's pool (udf/README.md has the wire).
 */
#ifndef BRANT_EXECUTOR_FUNCTION_H
#define BRANT_EXECUTOR_FUNCTION_H

#include "executor/executor.h"

/* Waits of a connection that are not the function's own work. */
#define BR_FUNCTION_OPEN_MS 300000u /* for the process to start and to load the function: a model may take minutes */
#define BR_FUNCTION_ENDED_MS 10000u /* for the worker to say how a process ended */

typedef struct br_function br_function;

typedef struct br_function_options {
  br_etask *task;                    /* borrowed */
  const Brant__Pb__StepCall *call;   /* borrowed */
  const char *const *argument_types; /* SQL types, call->n_arguments of them; borrowed */
  br_schema *result;                 /* the one column that must come; borrowed */
} br_function_options;

/* Not connected yet; from here on it can be stopped. Free it with br_function_close. */
BR_MUST_USE br_status br_function_new(const br_function_options *o, br_function **out, br_error *err);
/* Asks the worker for a connection and opens the function: the process is ready when it returns. */
BR_MUST_USE br_status br_function_open(br_function *f, br_error *err);
/* Send the arguments of rows that start at first_row of the step. At most BR_UDF_IN_FLIGHT batches may be without a result. */
BR_MUST_USE br_status br_function_send(br_function *f, br_batch *arguments, uint64_t first_row, br_error *err);
/* The result of the oldest batch, as many rows as that had, one column. Waits within the call's timeout. A process that died, hung or
 * answered with what is no frame is replaced here, and the batches without results are sent again, max_retries times each. */
BR_MUST_USE br_status br_function_receive(br_function *f, br_batch **out, br_error *err);
uint32_t br_function_in_flight(const br_function *f);
uint64_t br_function_retries(const br_function *f);
/* Any thread, several times: what waits in it ends soon, with BR_CANCELLED. */
void br_function_stop(br_function *f);
/* NULL is fine. With batches under way it is broken off. */
void br_function_close(br_function *f);

#endif
