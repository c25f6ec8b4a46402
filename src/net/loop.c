/* SPDX-License-Identifier: Apache-2.0
 *
 * The event loop of a process: libuv and a thread-safe way in.
 *
 * Order of calls: new, any setup on the thread that will run it, run (until stop), then free what lives on the loop, then
 * loop_free. Threads: post and stop from anywhere; the rest on the loop's thread, or before run and after it returned.
 * Bounds: posts are small control calls whose number the callers bound; work runs on libuv's pool (UV_THREADPOOL_SIZE).
 */
#include "net/loop.h"

#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct post {
  struct post *next;
  void (*fn)(void *arg);
  void *arg;
} post;

struct br_timer {
  uv_timer_t uv; /* first: a uv_handle_t * is a br_timer * */
  br_loop *loop;
  br_timer *prev, *next;
  void (*fn)(void *arg);
  void *arg;
};

struct br_loop {
  uv_loop_t uv;
  uv_async_t wake;
  pthread_mutex_t lock; /* guards first, last, wake_closed */
  post *first, *last;
  bool wake_closed;
  atomic_bool stop;
  br_timer *timers;
  void *scratch;
};

static _Thread_local br_loop *running;

static bool run_posts(br_loop *l) {
  pthread_mutex_lock(&l->lock);
  post *p = l->first;
  l->first = l->last = NULL;
  pthread_mutex_unlock(&l->lock);
  bool any = p != NULL;
  while (p) {
    post *next = p->next;
    p->fn(p->arg);
    free(p);
    p = next;
  }
  return any;
}

static void on_wake(uv_async_t *h) {
  br_loop *l = h->data;
  run_posts(l);
  if (atomic_load(&l->stop)) uv_stop(&l->uv);
}

br_status br_loop_new(br_loop **out, br_error *err) {
  br_loop *l = br_calloc(1, sizeof *l);
  int r = uv_loop_init(&l->uv);
  if (r) {
    free(l);
    return br_fail_errno(err, -r, BR_BLAME_WORKER, "cannot make an event loop");
  }
  r = uv_async_init(&l->uv, &l->wake, on_wake);
  if (r) {
    (void)uv_loop_close(&l->uv);
    free(l);
    return br_fail_errno(err, -r, BR_BLAME_WORKER, "cannot make the wake-up of an event loop");
  }
  l->wake.data = l;
  pthread_mutex_init(&l->lock, NULL);
  *out = l;
  return BR_OK;
}

void br_loop_run(br_loop *l) {
  br_loop *outer = running;
  running = l;
  while (!atomic_load(&l->stop)) uv_run(&l->uv, UV_RUN_DEFAULT);
  atomic_store(&l->stop, false);
  running = outer;
}

static void wake_locked(br_loop *l) {
  if (!l->wake_closed) uv_async_send(&l->wake);
}

void br_loop_stop(br_loop *l) {
  /* Under the lock as a whole: once the loop's thread sees the flag it may free the loop, which takes the lock first. */
  pthread_mutex_lock(&l->lock);
  atomic_store(&l->stop, true);
  wake_locked(l);
  pthread_mutex_unlock(&l->lock);
}

uv_loop_t *br_loop_uv(br_loop *l) { return &l->uv; }

void *br_loop_scratch(br_loop *l) {
  if (!l->scratch) l->scratch = br_malloc(BR_LOOP_SCRATCH_BYTES);
  return l->scratch;
}

bool br_loop_on_thread(const br_loop *l) { return running == l; }

void br_loop_post(br_loop *l, void (*fn)(void *arg), void *arg) {
  post *p = br_malloc(sizeof *p);
  *p = (post){.fn = fn, .arg = arg};
  pthread_mutex_lock(&l->lock);
  if (l->last)
    l->last->next = p;
  else
    l->first = p;
  l->last = p;
  wake_locked(l);
  pthread_mutex_unlock(&l->lock);
}

typedef struct work {
  uv_work_t uv;
  void (*run)(void *arg), (*done)(void *arg);
  void *arg;
} work;

static void work_run(uv_work_t *req) {
  work *w = (work *)req;
  w->run(w->arg);
}

static void work_done(uv_work_t *req, int status) {
  (void)status; /* never cancelled: uv_cancel is not called */
  work *w = (work *)req;
  if (w->done) w->done(w->arg);
  free(w);
}

void br_loop_work(br_loop *l, void (*run)(void *arg), void (*done)(void *arg), void *arg) {
  work *w = br_calloc(1, sizeof *w);
  w->run = run, w->done = done, w->arg = arg;
  BR_ASSERT(uv_queue_work(&l->uv, &w->uv, work_run, work_done) == 0);
}

static void timer_fire(uv_timer_t *h) {
  br_timer *t = (br_timer *)h;
  t->fn(t->arg);
}

static void timer_closed(uv_handle_t *h) { free(h); }

br_timer *br_timer_start(br_loop *l, uint64_t first_ms, uint64_t repeat_ms, void (*fn)(void *arg), void *arg) {
  br_timer *t = br_calloc(1, sizeof *t);
  t->loop = l, t->fn = fn, t->arg = arg;
  t->next = l->timers;
  if (t->next) t->next->prev = t;
  l->timers = t;
  uv_timer_init(&l->uv, &t->uv);
  uv_update_time(&l->uv); /* else a long callback before this makes the timer fire early */
  BR_ASSERT(uv_timer_start(&t->uv, timer_fire, first_ms, repeat_ms) == 0);
  return t;
}

void br_timer_stop(br_timer *t) {
  if (!t) return;
  if (t->next) t->next->prev = t->prev;
  if (t->prev)
    t->prev->next = t->next;
  else
    t->loop->timers = t->next;
  uv_close((uv_handle_t *)&t->uv, timer_closed);
}

static void close_left(uv_handle_t *h, void *arg) {
  (void)arg;
  if (!uv_is_closing(h)) uv_close(h, NULL);
}

void br_loop_free(br_loop *l) {
  if (!l) return;
  br_loop *outer = running;
  running = l;
  pthread_mutex_lock(&l->lock);
  l->wake_closed = true;
  pthread_mutex_unlock(&l->lock);
  /* Posts and finishing work may start new posts, work and timers: go round until nothing is left. */
  do {
    while (run_posts(l)) continue;
    while (l->timers) br_timer_stop(l->timers);
    uv_walk(&l->uv, close_left, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
  } while (run_posts(l) || uv_loop_close(&l->uv) == UV_EBUSY);
  pthread_mutex_destroy(&l->lock);
  free(l->scratch);
  free(l);
  running = outer;
}
