/* SPDX-License-Identifier: Apache-2.0
 * The threads that tasks run on, kept from one task to the next.
 * Why: DuckDB's allocator gives all that an arena has freed back to the system when the arena's last thread ends. With a new
 * thread for each task, the next task asks for the same pages again, a page fault each.
 * Order: new → run, any number → free, which waits for all work. br_threads_trim ends the threads that wait; br_threads_leave,
 * called by work, lets its own thread end after it. All but that one on the main thread.
 * Bound: as many threads as there was work at once. */
#include "executor/executor.h"

#include "base/mem.h"
#include <stdlib.h>

typedef struct br_thread {
  struct br_thread *next;
  struct br_threads *all;
  pthread_t id;
  pthread_cond_t wake;
  void (*work)(void *); /* NULL: nothing to do */
  void *arg;
  bool end;
} br_thread;

struct br_threads {
  pthread_mutex_t lock; /* all */
  br_thread *waiting;   /* the last that ended its work first: its memory is the warmest */
  size_t busy;
  pthread_cond_t idle;
};

static _Thread_local bool leaving;

void br_threads_leave(void) { leaving = true; }

br_threads *br_threads_new(void) {
  br_threads *s = br_calloc(1, sizeof *s);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->idle, NULL);
  return s;
}

static void forget(br_thread *t) {
  pthread_detach(t->id);
  pthread_cond_destroy(&t->wake);
  free(t);
}

static void *run(void *arg) {
  br_thread *t = arg;
  br_threads *all = t->all;
  pthread_mutex_lock(&all->lock);
  while (t->work) {
    pthread_mutex_unlock(&all->lock);
    t->work(t->arg);
    pthread_mutex_lock(&all->lock);
    t->work = NULL;
    all->busy--;
    pthread_cond_signal(&all->idle);
    if (leaving) break;
    t->next = all->waiting;
    all->waiting = t;
    while (!t->work && !t->end) pthread_cond_wait(&t->wake, &all->lock);
  }
  if (leaving)
    forget(t); /* nobody knows it any more: to give much memory back takes a while that nobody should wait for */
  pthread_mutex_unlock(&all->lock);
  return NULL;
}

static void join(br_thread *list) {
  for (br_thread *t = list, *next; t; t = next) {
    next = t->next;
    pthread_join(t->id, NULL);
    pthread_cond_destroy(&t->wake);
    free(t);
  }
}

static br_status start(br_threads *s, void (*work)(void *), void *arg, br_error *err) {
  br_thread *t = br_calloc(1, sizeof *t);
  t->all = s, t->work = work, t->arg = arg;
  pthread_cond_init(&t->wake, NULL);
  int r = pthread_create(&t->id, NULL, run, t);
  if (r == 0) return BR_OK;
  pthread_cond_destroy(&t->wake);
  free(t);
  return br_fail_errno(err, r, BR_BLAME_EXECUTOR, "cannot start a thread for a task");
}

br_status br_threads_run(br_threads *s, void (*work)(void *), void *arg, br_error *err) {
  br_status status = BR_OK;
  pthread_mutex_lock(&s->lock);
  br_thread *t = s->waiting;
  if (t) {
    s->waiting = t->next;
    t->work = work, t->arg = arg;
    pthread_cond_signal(&t->wake);
  } else {
    status = start(s, work, arg, err); /* it waits for the lock */
  }
  s->busy += status == BR_OK;
  pthread_mutex_unlock(&s->lock);
  return status;
}

void br_threads_trim(br_threads *s) {
  pthread_mutex_lock(&s->lock);
  br_thread *waiting = s->waiting;
  s->waiting = NULL;
  for (br_thread *t = waiting; t; t = t->next) {
    t->end = true;
    pthread_cond_signal(&t->wake);
  }
  pthread_mutex_unlock(&s->lock);
  join(waiting);
}

void br_threads_free(br_threads *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  while (s->busy) pthread_cond_wait(&s->idle, &s->lock);
  pthread_mutex_unlock(&s->lock);
  br_threads_trim(s);
  pthread_cond_destroy(&s->idle);
  pthread_mutex_destroy(&s->lock);
  free(s);
}
