/* SPDX-License-Identifier: Apache-2.0
 * Questions of the executor to its worker about users' functions; internal to executor/. */
#ifndef BRANT_EXECUTOR_FUNCTION_LINK_H
#define BRANT_EXECUTOR_FUNCTION_LINK_H

#include "executor/function.h"

#define BR_FUNCTION_CONNECT_MS \
  60000u /* for the worker's answer: it makes a socket pair, and starts a process but does not wait for it */

/* A socket to a process of the function. request also when it failed. */
BR_MUST_USE br_status br_executor_udf_open(br_etask *t, uint64_t function, const atomic_bool *stop, uint64_t *request,
                                           int *fd, br_error *err);
/* The connection is over; no answer wanted. Any thread. */
void br_executor_udf_close(br_executor *x, uint64_t request, Brant__Pb__UdfEnd end);
/* It ended badly: how did the process end? *why is filled in any case. */
void br_executor_udf_ended(br_executor *x, uint64_t request, Brant__Pb__UdfEnd end, const atomic_bool *stop,
                           br_error *why);
/* Main thread: udf_ready and udf_closed. Takes fds[*used], and counts it. */
void br_executor_udf_answer(br_executor *x, const Brant__Pb__UdfReady *r, bool ready, const int *fds, int n_fds,
                            int *used);

#endif
