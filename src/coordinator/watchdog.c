/* SPDX-License-Identifier: Apache-2.0
 * One thread a query that has a deadline; it sleeps until then, or until it is called off. Order: start, off, free. Bounds: none
 * but the deadline. */
#include "coordinator/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"

struct br_watchdog {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct timespec at;
  bool off;
  void (*fire)(void *arg);
  void *arg;
};

static void add_ms(struct timespec *t, uint64_t ms) {
  t->tv_sec += (time_t)(ms / 1000);
  t->tv_nsec += (long)(ms % 1000) * 1000000L;
  if (t->tv_nsec < 1000000000L) return;
  t->tv_sec++;
  t->tv_nsec -= 1000000000L;
}

static void *wait_and_fire(void *arg) {
  br_watchdog *w = arg;
  pthread_mutex_lock(&w->lock);
  while (!w->off) {
    if (pthread_cond_timedwait(&w->changed, &w->lock, &w->at) == 0 || w->off) continue;
    pthread_mutex_unlock(&w->lock);
    w->fire(w->arg);
    pthread_mutex_lock(&w->lock);
    clock_gettime(CLOCK_MONOTONIC, &w->at);
    add_ms(&w->at, BR_WATCHDOG_AGAIN_MS);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

br_status br_watchdog_start(uint64_t ms, void (*fire)(void *arg), void *arg, br_watchdog **out, br_error *err) {
  br_watchdog *w = br_calloc(1, sizeof *w);
  w->fire = fire;
  w->arg = arg;
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&w->changed, &attr);
  pthread_condattr_destroy(&attr);
  clock_gettime(CLOCK_MONOTONIC, &w->at);
  add_ms(&w->at, ms);
  sigset_t all, old; /* signals are for the program's own threads */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  int rc = pthread_create(&w->thread, NULL, wait_and_fire, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  *out = w;
  if (rc == 0) return BR_OK;
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w);
  *out = NULL;
  return br_fail_errno(err, rc, BR_BLAME_INTERNAL, "cannot start a thread for a deadline");
}

void br_watchdog_off(br_watchdog *w) {
  if (w == NULL) return;
  pthread_mutex_lock(&w->lock);
  w->off = true;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
}

void br_watchdog_free(br_watchdog *w) {
  if (w == NULL) return;
  br_watchdog_off(w);
  pthread_join(w->thread, NULL);
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w);
}
