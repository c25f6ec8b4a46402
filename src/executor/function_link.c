/* SPDX-License-Identifier: Apache-2.0
 * What the executor asks its worker about users' functions: connections to their processes, and how a process ended.
 * Order: open, then close once. Threads: a task's threads ask and wait; the main thread brings the answers. Bounds: each wait has
 * one, and ends when whoever waits is stopped (br_executor_wake_waiters). */
#include "executor/function_link.h"

#include "base/mem.h"
#include <errno.h>
#include <time.h>
#include <unistd.h>

typedef struct br_udf_wait {
  struct br_udf_wait *next;
  uint64_t request;
  bool answered;
  int fd;
  br_error error;
} br_udf_wait;

static struct timespec monotonic_in(uint64_t ms) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  ts.tv_sec += (time_t)(ms / 1000);
  ts.tv_nsec += (long)(ms % 1000) * 1000000;
  if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
  return ts;
}

/* With the lock held, after the question was sent: until it is answered, stopped, or late. */
static void wait_answer(br_executor *x, br_udf_wait *w, const atomic_bool *stop, uint64_t bound_ms) {
  struct timespec until = monotonic_in(bound_ms);
  while (!w->answered && !atomic_load(stop))
    if (pthread_cond_timedwait(&x->answered, &x->lock, &until) == ETIMEDOUT) break;
  for (br_udf_wait **p = &x->udf_waits; *p; p = &(*p)->next) {
    if (*p != w) continue;
    *p = w->next;
    break;
  }
}

void br_executor_udf_close(br_executor *x, uint64_t request, Brant__Pb__UdfEnd end) {
  Brant__Pb__UdfClose c = BRANT__PB__UDF_CLOSE__INIT;
  c.request = request, c.end = end;
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_UDF_CLOSE;
  e.udf_close = &c;
  br_executor_send(x, &e, NULL, 0);
}

br_status br_executor_udf_open(br_etask *t, uint64_t function, const atomic_bool *stop, uint64_t *request, int *fd,
                               br_error *err) {
  br_executor *x = t->x;
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t->id, &id);
  Brant__Pb__UdfOpen o = BRANT__PB__UDF_OPEN__INIT;
  o.id = &id, o.function = function;
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_UDF_OPEN;
  e.udf_open = &o;
  br_udf_wait w = {.fd = -1};
  pthread_mutex_lock(&x->lock);
  o.request = w.request = ++x->last_request;
  w.next = x->udf_waits;
  x->udf_waits = &w;
  br_executor_send(x, &e, NULL, 0);
  wait_answer(x, &w, stop, BR_FUNCTION_CONNECT_MS);
  pthread_mutex_unlock(&x->lock);
  *request = w.request;
  if (!w.answered && atomic_load(stop)) return br_fail(err, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
  if (!w.answered)
    return br_fail(err, BR_LOST, BR_BLAME_WORKER, "the worker gave no connection to a function's process within %u ms",
                   BR_FUNCTION_CONNECT_MS);
  if (w.error.code) {
    *err = w.error;
    return err->code;
  }
  if (w.fd < 0)
    return br_fail(err, BR_CORRUPT, BR_BLAME_EXECUTOR, "the worker gave a connection to a function without its socket");
  *fd = w.fd;
  return BR_OK;
}

void br_executor_udf_ended(br_executor *x, uint64_t request, Brant__Pb__UdfEnd end, const atomic_bool *stop,
                           br_error *why) {
  br_udf_wait w = {.fd = -1, .request = request};
  pthread_mutex_lock(&x->lock);
  w.next = x->udf_waits;
  x->udf_waits = &w;
  br_executor_udf_close(x, request, end);
  wait_answer(x, &w, stop, BR_FUNCTION_ENDED_MS);
  pthread_mutex_unlock(&x->lock);
  if (w.answered && w.error.code)
    *why = w.error;
  else if (atomic_load(stop))
    br_fail(why, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
  else
    br_fail(why, BR_EXECUTION, BR_BLAME_USER, "its process ended, and the worker knows no more of it");
}

void br_executor_udf_answer(br_executor *x, const Brant__Pb__UdfReady *r, bool ready, const int *fds, int n_fds,
                            int *used) {
  bool found = false;
  pthread_mutex_lock(&x->lock);
  for (br_udf_wait *w = x->udf_waits; w; w = w->next) {
    if (w->request != r->request || w->answered) continue;
    found = true;
    w->answered = true;
    if (r->error) br_error_from_pb(r->error, &w->error);
    if (ready && n_fds > *used) w->fd = fds[(*used)++];
  }
  pthread_cond_broadcast(&x->answered);
  pthread_mutex_unlock(&x->lock);
  if (!found && ready && !r->error) br_executor_udf_close(x, r->request, BRANT__PB__UDF_END__UDF_END_DONE);
}
