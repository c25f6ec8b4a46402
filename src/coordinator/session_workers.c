/* SPDX-License-Identifier: Apache-2.0
 * A session's network thread, port and workers, and how a session ends.
 *
 * Order: on the first query that needs workers br_session_workers starts thread, port and processes, and waits until they joined;
 * a local worker that dies is replaced, also in the middle of a query or before it has joined; brant_close cancels what runs and ends the workers at once;
 * thread and port go with the last query that somebody still holds.
 * Threads: br_session_workers: the caller's; restarts: the loop's; brant_interrupt: any. Bounds: below.
 */
#include <signal.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/dataset.h"
#include "coordinator/session.h"
#include "shuffle/clients.h"

#define CLOSE_GRACE_MS 3000 /* for workers to end by themselves */
#define GOODBYE_MS 500      /* for external workers to take their last command */
#define GOODBYE_LOOK_MS 5
#define WAIT_LOCAL_MS 30000    /* for local workers to join */
#define WAIT_EXTERNAL_MS 60000 /* for those that others start */
#define WAIT_SLICE_MS 100      /* between looks at whether one has died */
#define RESTART_LOOK_MS 100    /* a process may be there a little longer than its connection */
#define RESTART_LOOKS 50
#define RESTARTED_LOOKS \
  (WAIT_LOCAL_MS / RESTART_LOOK_MS) /* a new one that dies before it joins is told of by nobody else */
#define RESTARTS_MOST 6             /* in RESTART_WINDOW_MS: something is wrong that a new process doesn't mend */
#define RESTART_WINDOW_MS 60000

/* ---- on the loop */

typedef struct start_msg {
  brant_session *s;
  br_error err;
  br_status status;
  uint64_t goodbye_ms; /* 0: not said */
  br_timer *timer;
  bool done;
  pthread_mutex_t lock;
  pthread_cond_t changed;
} start_msg;

static void signal_done(start_msg *m) {
  pthread_mutex_lock(&m->lock);
  m->done = true;
  pthread_cond_signal(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

static void look_for_dead(void *arg);

static void on_worker_lost(void *arg, int pid) {
  brant_session *s = arg;
  pthread_mutex_lock(&s->lock);
  if (s->workers != NULL) br_local_workers_condemn(s->workers, pid);
  pthread_mutex_unlock(&s->lock);
  if (s->restart_looks < RESTART_LOOKS) s->restart_looks = RESTART_LOOKS;
  if (s->restart_timer == NULL)
    s->restart_timer = br_timer_start(s->loop, RESTART_LOOK_MS, RESTART_LOOK_MS, look_for_dead, s);
}

static void stop_looking(brant_session *s) {
  br_timer_stop(s->restart_timer);
  s->restart_timer = NULL;
  s->restart_looks = 0;
}

/* With s->lock. *fatal is set when no new one can be started. */
static void replace_dead(brant_session *s, const br_error *why, br_error *fatal) {
  uint64_t now = br_now_ms();
  if (now - s->restarts_since_ms > RESTART_WINDOW_MS) {
    s->restarts_since_ms = now;
    s->restarts = 0;
  }
  if (++s->restarts > RESTARTS_MOST) {
    br_fail(fatal, BR_LOST, BR_BLAME_WORKER, "%s; no new one is started, since %u died within %u s", why->message,
            RESTARTS_MOST, RESTART_WINDOW_MS / 1000);
    return;
  }
  br_log(BR_LOG_WARN, "%s; a new one is started", why->message);
  br_status status = br_local_workers_start(s->workers, fatal);
  (void)status; /* *fatal says it */
}

/* With s->lock. True: there is nothing more to look for. */
static bool restart_dead(brant_session *s, br_error *fatal) {
  br_error why;
  if (s->closed || s->workers == NULL) return true;
  if (br_local_workers_alive(s->workers) == s->options.workers) return false; /* not reaped yet, or not ours */
  br_local_workers_why(s->workers, &why);
  replace_dead(s, &why, fatal);
  s->restart_looks = RESTARTED_LOOKS;
  return fatal->code != BR_OK;
}

static void look_for_dead(void *arg) {
  brant_session *s = arg;
  br_error fatal;
  br_error_clear(&fatal);
  pthread_mutex_lock(&s->lock);
  bool over = restart_dead(s, &fatal);
  pthread_mutex_unlock(&s->lock);
  if (fatal.code != BR_OK) {
    br_log(BR_LOG_ERROR, "%s", fatal.message);
    br_driver_no_more_workers(s->driver, &fatal);
  }
  if (over || --s->restart_looks == 0) stop_looking(s);
}

static void start_on_loop(void *arg) {
  start_msg *m = arg;
  brant_session *s = m->s;
  br_driver_options o = {.host = s->options.listen_host,
                         .port = s->options.listen_port,
                         .secret = s->secret,
                         .sched = br_settings_sched(&s->settings),
                         .worker_lost = on_worker_lost,
                         .arg = s};
  m->status = br_driver_new(s->loop, &o, s->events, &s->driver, &m->err);
  signal_done(m);
}

static void stop_on_loop(void *arg);

/* Workers that others started get their goodbye first, and close their connections. */
static void dismiss(void *arg) {
  start_msg *m = arg;
  brant_session *s = m->s;
  if (s->driver != NULL && br_driver_workers(s->driver) > 0 && m->goodbye_ms == 0) {
    m->goodbye_ms = br_now_ms();
    br_driver_dismiss(s->driver);
    m->timer = br_timer_start(s->loop, GOODBYE_LOOK_MS, GOODBYE_LOOK_MS, dismiss, m);
  } else if (m->goodbye_ms == 0 || br_driver_workers(s->driver) == 0 || br_now_ms() - m->goodbye_ms > GOODBYE_MS) {
    br_timer_stop(m->timer);
    stop_on_loop(m);
  }
}

static void stop_on_loop(void *arg) {
  start_msg *m = arg;
  brant_session *s = m->s;
  stop_looking(s);
  br_driver_free(s->driver);
  s->driver = NULL;
  br_clients_close(s->loop);
  br_loop_stop(s->loop);
  signal_done(m);
}

/* Run fn on the loop thread and wait for it. */
static void call_on_loop(brant_session *s, void (*fn)(void *), start_msg *m) {
  m->s = s;
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->changed, NULL);
  br_loop_post(s->loop, fn, m);
  pthread_mutex_lock(&m->lock);
  while (!m->done) pthread_cond_wait(&m->changed, &m->lock);
  pthread_mutex_unlock(&m->lock);
  pthread_cond_destroy(&m->changed);
  pthread_mutex_destroy(&m->lock);
}

static void *net_main(void *arg) {
  brant_session *s = arg;
  br_loop_run(s->loop);
  return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(brant_session *s) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int rc = pthread_create(&s->net, NULL, net_main, s);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return rc;
}

static br_status start_network(brant_session *s, br_error *err) {
  if (s->loop == NULL) {
    BR_TRY(br_loop_new(&s->loop, err));
    int rc = start_thread(s);
    if (rc != 0) {
      br_loop_free(s->loop);
      s->loop = NULL;
      return br_fail_errno(err, rc, BR_BLAME_INTERNAL, "cannot start the network thread");
    }
  }
  if (s->driver == NULL) {
    start_msg m = {.status = BR_OK};
    call_on_loop(s, start_on_loop, &m);
    if (m.status != BR_OK) *err = m.err;
    return m.status;
  }
  return BR_OK;
}

int brant_listen(brant_session *s, int *port, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  if (start_network(s, &e) != BR_OK) {
    br_error_export(&e, err);
    return err->code;
  }
  *port = br_driver_port(s->driver);
  return 0;
}

/* ---- workers */

static br_status start_workers(brant_session *s, br_error *err) {
  br_status status = BR_OK;
  if (s->options.workers == 0) return BR_OK;
  pthread_mutex_lock(&s->lock);
  if (s->workers == NULL) {
    br_local_workers_options o = {.join_host = s->options.listen_host,
                                  .join_port = br_driver_port(s->driver),
                                  .secret = s->secret,
                                  .count = s->options.workers,
                                  .threads = s->options.threads,
                                  .executors = (s->options.executors + s->options.workers - 1) / s->options.workers,
                                  .memory_bytes = s->options.memory_bytes,
                                  .temp_dir = s->temp_dir};
    s->workers = br_local_workers_new(&o);
  }
  if (br_local_workers_alive(s->workers) < s->options.workers) status = br_local_workers_start(s->workers, err);
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* A local worker that ended while it should join says why. One that somebody else ended is replaced, as in a query. */
static br_status check_started(brant_session *s, br_error *err) {
  br_error why, fatal;
  br_error_clear(&why);
  br_error_clear(&fatal);
  pthread_mutex_lock(&s->lock);
  if (s->workers != NULL && br_local_workers_alive(s->workers) < s->options.workers)
    br_local_workers_why(s->workers, &why);
  if (why.code != BR_OK && why.retryable) {
    replace_dead(s, &why, &fatal);
    why = fatal;
  }
  pthread_mutex_unlock(&s->lock);
  if (why.code == BR_OK) return BR_OK;
  br_driver_refusal(s->driver, err); /* says more than its exit code */
  if (err->code == BR_OK) *err = why;
  return (br_status)err->code;
}

static br_status too_few(brant_session *s, uint32_t wanted, uint64_t ms, br_error *err) {
  unsigned seconds = (unsigned)(ms / 1000), here = br_driver_workers(s->driver);
  if (s->options.external_workers == 0)
    return br_fail(err, BR_TIMEOUT, BR_BLAME_WORKER,
                   "only %u of %u workers joined within %u s: see their messages on standard error", here, wanted,
                   seconds);
  return br_fail(err, BR_TIMEOUT, BR_BLAME_USER,
                 "only %u of %u workers joined within %u s: start the others with brant worker --join %s:%d", here,
                 wanted, seconds, s->options.listen_host, br_driver_port(s->driver));
}

br_status br_session_workers(brant_session *s, br_error *err) {
  BR_TRY(start_network(s, err));
  BR_TRY(start_workers(s, err));
  /* External workers come and go; those of the first query are not waited for again. */
  uint32_t wanted = !s->workers_met ? s->options.wait_workers : s->options.workers > 0 ? s->options.workers : 1;
  uint64_t most = s->options.external_workers > 0 ? WAIT_EXTERNAL_MS : WAIT_LOCAL_MS, start = br_now_ms();
  while (br_driver_wait_workers(s->driver, wanted, WAIT_SLICE_MS, err) != BR_OK) {
    BR_TRY(br_session_check_interrupt(s, err));
    BR_TRY(check_started(s, err));
    if (br_now_ms() - start >= most) return too_few(s, wanted, most, err);
  }
  s->workers_met = true;
  return BR_OK;
}

/* ---- interrupt, close */

br_status br_session_check_interrupt(brant_session *s, br_error *err) {
  if (!atomic_load(&s->interrupted)) return BR_OK;
  return br_fail(err, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
}

void brant_interrupt(brant_session *s) {
  atomic_store(&s->interrupted, true);
  br_session_cancel(s->db);
  uint64_t awaited = atomic_load(&s->awaited);
  if (awaited == 0) return;
  br_error why;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  br_driver_cancel(s->driver, awaited, &why);
}

void br_session_ref(brant_session *s) { atomic_fetch_add(&s->refs, 1); }

void br_session_unref(brant_session *s) {
  if (atomic_fetch_sub(&s->refs, 1) != 1) return;
  if (s->loop != NULL) {
    start_msg m = {.status = BR_OK};
    call_on_loop(s, dismiss, &m);
    pthread_join(s->net, NULL);
    br_loop_free(s->loop);
  }
  br_session_free(s);
}

void brant_close(brant_session *s) {
  if (s == NULL) return;
  pthread_mutex_lock(&s->lock);
  s->closed = true;
  br_local_workers *workers = s->workers;
  s->workers = NULL;
  for (br_open_query *q = s->queries; q != NULL; q = q->next) q->cancel(q);
  pthread_mutex_unlock(&s->lock);
  br_datasets_drop_all(s);
  br_events_mute(s->events);
  br_local_workers_free(workers, CLOSE_GRACE_MS);
  br_session_unref(s);
}
