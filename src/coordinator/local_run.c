/* SPDX-License-Identifier: Apache-2.0
 *
 * A SELECT in this process: one thread runs it and puts its batches into a queue, the caller takes them. So submitting does not
 * wait for the first row, and who waits for rows can be cancelled whatever DuckDB is doing.
 *
 * Order: start; schema and next by one thread; stop by any; free. Bounds: QUEUE_BATCHES batches wait (each at most 16 MiB); the
 * thread ends when DuckDB has seen its interrupt, which is asked for again every AGAIN_MS, since one that comes between two
 * statements is lost.
 */
#include "coordinator/local_run.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/util.h"

#define QUEUE_BATCHES 4
#define AGAIN_MS 20

struct br_local_run {
  br_session *on;
  char *sql;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  br_local_stream *stream; /* of the thread until `opened` */
  bool opened;             /* the schema is known, or it failed */
  bool over;               /* no more batches */
  bool ended;              /* the thread has nothing to do with DuckDB any more */
  br_error error;          /* of the run; code 0: none */
  br_error why;            /* it was stopped; code 0: it was not */
  br_batch *queue[QUEUE_BATCHES];
  size_t first, count;
};

static bool stopped(const br_local_run *r) { return r->why.code != BR_OK; }

/* False: nobody wants more. */
static bool put(br_local_run *r, br_batch *b) {
  pthread_mutex_lock(&r->lock);
  while (r->count == QUEUE_BATCHES && !stopped(r)) pthread_cond_wait(&r->changed, &r->lock);
  bool wanted = !stopped(r);
  if (wanted) r->queue[(r->first + r->count++) % QUEUE_BATCHES] = b;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  if (!wanted) br_batch_unref(b);
  return wanted;
}

static br_status open_stream(br_local_run *r, br_error *err) {
  br_local_stream *st = NULL;
  br_status status = br_session_stream(r->on, r->sql, &st, err);
  pthread_mutex_lock(&r->lock);
  r->stream = st;
  r->opened = status == BR_OK; /* a failure is told with the error, in one step */
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  return status;
}

static void *run(void *arg) {
  br_local_run *r = arg;
  br_error err;
  br_error_clear(&err);
  br_batch *b = NULL;
  br_status status = open_stream(r, &err);
  while (status == BR_OK && (status = br_local_stream_next(r->stream, &b, &err)) == BR_OK && b != NULL)
    if (!put(r, b)) break;
  pthread_mutex_lock(&r->lock);
  r->opened = r->over = r->ended = true;
  if (status != BR_OK) r->error = err;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(br_local_run *r) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int rc = pthread_create(&r->thread, NULL, run, r);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return rc;
}

br_status br_local_run_start(br_session *on, const char *sql, br_local_run **out, br_error *err) {
  br_local_run *r = br_calloc(1, sizeof *r);
  r->on = on;
  r->sql = br_strdup(sql);
  pthread_mutex_init(&r->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&r->changed, &attr);
  pthread_condattr_destroy(&attr);
  int rc = start_thread(r);
  if (rc == 0) {
    *out = r;
    return BR_OK;
  }
  br_session_close(on);
  free(r->sql);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->lock);
  free(r);
  return br_fail_errno(err, rc, BR_BLAME_INTERNAL, "cannot start a thread for a query");
}

/* With the lock. Why there is nothing to take. */
static br_status failure(const br_local_run *r, br_error *err) {
  const br_error *e = stopped(r) ? &r->why : &r->error;
  if (e->code != BR_OK) *err = *e;
  return (br_status)e->code;
}

br_status br_local_run_schema(br_local_run *r, br_schema **out, br_error *err) {
  pthread_mutex_lock(&r->lock);
  while (!r->opened && !stopped(r)) pthread_cond_wait(&r->changed, &r->lock);
  br_status status = BR_OK;
  if (r->stream != NULL)
    *out = br_local_stream_schema(r->stream);
  else
    status = failure(r, err);
  pthread_mutex_unlock(&r->lock);
  return status;
}

br_status br_local_run_next(br_local_run *r, br_batch **out, br_error *err) {
  br_status status = BR_OK;
  *out = NULL;
  pthread_mutex_lock(&r->lock);
  while (r->count == 0 && !r->over && !stopped(r)) pthread_cond_wait(&r->changed, &r->lock);
  if (stopped(r) || r->count == 0) {
    status = failure(r, err);
  } else {
    *out = r->queue[r->first];
    r->first = (r->first + 1) % QUEUE_BATCHES;
    r->count--;
    pthread_cond_broadcast(&r->changed);
  }
  pthread_mutex_unlock(&r->lock);
  return status;
}

void br_local_run_stop(br_local_run *r, const br_error *why) {
  pthread_mutex_lock(&r->lock);
  if (!stopped(r)) r->why = *why;
  bool ended = r->ended;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  if (!ended) br_session_cancel(r->on);
}

static void wait_ended(br_local_run *r) {
  struct timespec t;
  pthread_mutex_lock(&r->lock);
  while (!r->ended) {
    br_session_cancel(r->on);
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += AGAIN_MS * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
      t.tv_sec++;
      t.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&r->changed, &r->lock, &t);
  }
  pthread_mutex_unlock(&r->lock);
}

void br_local_run_free(br_local_run *r) {
  if (r == NULL) return;
  br_error why;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  br_local_run_stop(r, &why);
  wait_ended(r);
  pthread_join(r->thread, NULL);
  for (; r->count > 0; r->count--, r->first = (r->first + 1) % QUEUE_BATCHES) br_batch_unref(r->queue[r->first]);
  br_local_stream_free(r->stream);
  br_session_close(r->on);
  free(r->sql);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->lock);
  free(r);
}
