/* SPDX-License-Identifier: Apache-2.0
 * net/loop: posts from many threads, timers, pool work, and the end of a loop. */
/* links: br_net */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/util.h"
#include "net/loop.h"

#define THREADS 4
#define POSTS 5000

typedef struct test {
  br_loop *l;
  uint64_t count, order_bad, last[THREADS];
  bool on_thread;
} test;
typedef struct numbered {
  test *t;
  int thread;
  uint64_t n;
} numbered;

static br_loop *new_loop(void) {
  br_loop *l = NULL;
  br_error err = {0};
  assert_int_equal(br_loop_new(&l, &err), BR_OK);
  return l;
}

static void on_numbered(void *arg) {
  numbered *p = arg;
  test *t = p->t;
  if (p->n != t->last[p->thread] + 1) t->order_bad++;
  t->last[p->thread] = p->n;
  if (!br_loop_on_thread(t->l)) t->order_bad++;
  if (++t->count == THREADS * POSTS) br_loop_stop(t->l);
}

static numbered posts[THREADS][POSTS];
static void *poster(void *arg) {
  numbered *mine = arg;
  for (int i = 0; i < POSTS; i++) br_loop_post(mine->t->l, on_numbered, &mine[i]);
  return NULL;
}

static void test_posts_keep_order(void **state) {
  (void)state;
  test t = {.l = new_loop()};
  pthread_t threads[THREADS];
  for (int k = 0; k < THREADS; k++) {
    for (int i = 0; i < POSTS; i++) posts[k][i] = (numbered){&t, k, (uint64_t)i + 1};
    assert_int_equal(pthread_create(&threads[k], NULL, poster, posts[k]), 0);
  }
  br_loop_run(t.l);
  for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
  assert_int_equal(t.count, THREADS * POSTS);
  assert_int_equal(t.order_bad, 0);
  assert_false(br_loop_on_thread(t.l));
  br_loop_free(t.l);
}

typedef struct ticks {
  br_loop *l;
  br_timer *t;
  int n;
  uint64_t started, first;
} ticks;
static void on_tick(void *arg) {
  ticks *k = arg;
  if (k->n++ == 0) k->first = br_now_ms();
  if (k->n < 3) return;
  br_timer_stop(k->t); /* inside its own callback */
  k->t = NULL;
  br_loop_stop(k->l);
}

static void test_timer_repeats_and_stops_inside(void **state) {
  (void)state;
  ticks k = {.l = new_loop()};
  k.started = br_now_ms();
  k.t = br_timer_start(k.l, 20, 5, on_tick, &k);
  br_loop_run(k.l);
  assert_int_equal(k.n, 3);
  assert_true(k.first - k.started >= 19);
  br_timer_stop(NULL);
  br_loop_free(k.l);
}

typedef struct job {
  br_loop *l;
  pthread_t loop_thread, work_thread, done_thread;
  bool worked, done;
} job;
static void do_work(void *arg) {
  job *j = arg;
  j->work_thread = pthread_self();
  j->worked = true;
}
static void work_done(void *arg) {
  job *j = arg;
  j->done = j->worked;
  j->done_thread = pthread_self();
  br_loop_stop(j->l);
}

static void test_work_runs_elsewhere(void **state) {
  (void)state;
  job j = {.l = new_loop(), .loop_thread = pthread_self()};
  br_loop_work(j.l, do_work, work_done, &j);
  br_loop_run(j.l);
  assert_true(j.done);
  assert_true(pthread_equal(j.done_thread, j.loop_thread));
  assert_false(pthread_equal(j.work_thread, j.loop_thread));
  br_loop_free(j.l);
}

static void test_stop_before_run_and_run_again(void **state) {
  (void)state;
  br_loop *l = new_loop();
  br_loop_stop(l);
  br_loop_run(l); /* returns at once */
  ticks k = {.l = l, .n = 2};
  k.t = br_timer_start(l, 1, 0, on_tick, &k);
  br_loop_run(l);
  assert_int_equal(k.n, 3);
  br_loop_free(l);
}

static void count_post(void *arg) { ++*(int *)arg; }
typedef struct chain {
  br_loop *l;
  int left, ran;
} chain;
static void post_again(void *arg) {
  chain *c = arg;
  c->ran++;
  if (c->left-- > 0) br_loop_post(c->l, post_again, c);
}
static void never(void *arg) { *(bool *)arg = true; }
static void post_from_work(void *arg) {
  chain *c = arg;
  br_loop_post(c->l, post_again, c);
}

/* Free runs what was posted (and what that posts), waits for work, and drops timers. */
static void test_free_with_things_left(void **state) {
  (void)state;
  int n = 0;
  bool fired = false;
  chain c = {.l = new_loop(), .left = 5}, d = {.l = c.l, .left = 0};
  br_loop_post(c.l, count_post, &n);
  br_loop_post(c.l, post_again, &c);
  br_loop_work(c.l, post_from_work, NULL, &d);
  br_timer_start(c.l, 1000000, 0, never, &fired);
  br_loop_free(c.l);
  assert_int_equal(n, 1);
  assert_int_equal(c.ran, 6);
  assert_int_equal(d.ran, 1);
  assert_false(fired);
}

static void *stopper(void *arg) {
  br_loop_stop(arg);
  return NULL;
}
/* Stopping from another thread, and freeing as soon as run returned. */
static void test_stop_from_elsewhere(void **state) {
  (void)state;
  for (int i = 0; i < 200; i++) {
    br_loop *l = new_loop();
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, stopper, l), 0);
    br_loop_run(l);
    br_loop_free(l);
    pthread_join(t, NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_posts_keep_order),      cmocka_unit_test(test_timer_repeats_and_stops_inside),
      cmocka_unit_test(test_work_runs_elsewhere),   cmocka_unit_test(test_stop_before_run_and_run_again),
      cmocka_unit_test(test_free_with_things_left), cmocka_unit_test(test_stop_from_elsewhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
