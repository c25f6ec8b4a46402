/* SPDX-License-Identifier: Apache-2.0
 * links: libbrant
 * The C API when several things go on at once: sessions and queries side by side, streams that are dropped in the middle, cancels at
 * any moment from other threads. Run under AddressSanitizer too; file descriptors and threads are counted here. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <brant.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS 1000000
#define SUM ((int64_t)ROWS * (ROWS - 1) / 2)
#define IN_ORDER "SELECT i FROM range(1000000) t(i) ORDER BY i"
/* Two exchanges; its sum is SUM whatever way the rows went. */
#define SHUFFLED                                                                                                     \
  "SELECT sum(s)::BIGINT FROM (SELECT i % 5000 AS k, sum(i) AS s FROM range(1000000) t(i) GROUP BY 1) GROUP BY k % " \
  "100"
#define ENDLESS "SELECT count(*) FROM range(100000000) a(i), range(100000) b(j) WHERE (i * j) % 7 = 8"
#define CANCELS 50
#define CANCEL_MOST_S 20.0 /* between a cancel and its end, on a busy machine with sanitizers */

static char scratch[64];

/* An error that is seen in another thread can't fail the test there: it is printed, and counted. */
static atomic_int wrong;
#define WRONG(...) (atomic_fetch_add(&wrong, 1), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static brant_session *open_session(uint32_t workers) {
  brant_session *s = NULL;
  brant_error err;
  brant_options o = BRANT_OPTIONS_INIT;
  o.workers = workers;
  o.threads = 1;
  o.memory_bytes = 256u << 20;
  o.temp_dir = scratch;
  o.distribute = BRANT_DISTRIBUTE_ALWAYS;
  if (brant_open(&o, &s, &err) != 0) {
    WRONG("brant_open: %s", err.message);
    abort();
  }
  return s;
}

/* ---- one query with its stream */

typedef struct reading {
  brant_query *q;
  struct ArrowArrayStream st;
  int64_t rows, sum, batches;
  bool in_order; /* values were 0, 1, 2, ... so far */
  int rc;
} reading;

static void start(brant_session *s, const char *sql, reading *r) {
  brant_error err;
  *r = (reading){.in_order = true};
  if (brant_submit(s, sql, &r->q, &err) != 0 || brant_query_stream(r->q, &r->st, &err) != 0) {
    WRONG("%s: %s", sql, err.message);
    abort();
  }
}

/* One batch: false at the end, or at an error (r->rc). */
static bool step(reading *r) {
  struct ArrowArray batch;
  r->rc = r->st.get_next(&r->st, &batch);
  if (r->rc != 0 || batch.release == NULL) return false;
  const int64_t *v = (const int64_t *)batch.children[0]->buffers[1] + batch.children[0]->offset;
  for (int64_t i = 0; i < batch.length; i++) {
    r->in_order = r->in_order && v[i] == r->rows + i;
    r->sum += v[i];
  }
  r->rows += batch.length;
  r->batches++;
  batch.release(&batch);
  return true;
}

static void end(reading *r) {
  r->st.release(&r->st);
  brant_query_free(r->q);
}

static void expect_all(reading *r, bool in_order) {
  if (r->rc != 0) WRONG("read: %s", r->st.get_last_error(&r->st));
  if (r->sum != SUM || (in_order && (r->rows != ROWS || !r->in_order)))
    WRONG("%lld rows with sum %lld, %sin order", (long long)r->rows, (long long)r->sum, r->in_order ? "" : "not ");
}

static void run_whole(brant_session *s) {
  reading r;
  start(s, SHUFFLED, &r);
  while (step(&r)) continue;
  expect_all(&r, false);
  end(&r);
}

/* ---- what a process holds */

static int entries(const char *dir) {
  int n = 0;
  DIR *d = opendir(dir);
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
  if (d != NULL) closedir(d);
  return n;
}

static int fds_before, threads_before;

/* Before each test; a first session made what a process makes once. */
static int count_before(void **state) {
  (void)state;
  atomic_store(&wrong, 0);
  fds_before = entries("/proc/self/fd");
  threads_before = entries("/proc/self/task");
  return 0;
}

/* A thread that was joined is in /proc a moment longer. */
static int count_after(void **state) {
  (void)state;
  double until = now() + 10;
  while (entries("/proc/self/task") > threads_before && now() < until) usleep(1000);
  int fds = entries("/proc/self/fd"), threads = entries("/proc/self/task"), files = entries(scratch);
  if (fds > fds_before) WRONG("%d file descriptors were left open", fds - fds_before);
  if (threads > threads_before) WRONG("%d threads were left", threads - threads_before);
  if (files > 0) WRONG("%d files were left", files);
  return atomic_load(&wrong) != 0;
}

static void nothing_wrong(void) { assert_int_equal(atomic_load(&wrong), 0); }

/* ---- tests */

static void queries_read_alternately(void **state) {
  (void)state;
  brant_session *s = open_session(2);
  reading a, b, c;
  start(s, IN_ORDER, &a);
  start(s, IN_ORDER, &b);
  start(s, SHUFFLED, &c);
  bool more_a = true, more_b = true;
  while (more_a || more_b) {
    more_a = more_a && step(&a);
    more_b = more_b && step(&b);
  }
  while (step(&c)) continue;
  expect_all(&a, true);
  expect_all(&b, true);
  expect_all(&c, false);
  assert_true(a.batches > 3); /* they did take turns */
  end(&b);
  end(&a);
  end(&c);
  brant_close(s);
  nothing_wrong();
}

static void sessions_read_alternately(void **state) {
  (void)state;
  brant_session *s[2] = {open_session(1), open_session(1)};
  reading r[2];
  for (int i = 0; i < 2; i++) start(s[i], IN_ORDER, &r[i]);
  bool more[2] = {true, true};
  while (more[0] || more[1])
    for (int i = 0; i < 2; i++) more[i] = more[i] && step(&r[i]);
  for (int i = 0; i < 2; i++) {
    expect_all(&r[i], true);
    end(&r[i]);
  }
  start(s[1], IN_ORDER, &r[1]);
  assert_true(step(&r[1]));
  brant_close(s[0]); /* the other one goes on */
  while (step(&r[1])) continue;
  expect_all(&r[1], true);
  end(&r[1]);
  run_whole(s[1]);
  brant_close(s[1]);
  nothing_wrong();
}

static void *life_of_a_session(void *arg) {
  (void)arg;
  brant_session *s = open_session(1);
  for (int i = 0; i < 3; i++) run_whole(s);
  brant_close(s);
  return NULL;
}

static void sessions_in_threads(void **state) {
  (void)state;
  pthread_t t[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, life_of_a_session, NULL), 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  nothing_wrong();
}

static void *read_to_the_end(void *arg) {
  reading *r = arg;
  while (step(r)) continue;
  expect_all(r, r->rows > 1000);
  end(r);
  return NULL;
}

static void streams_in_threads(void **state) {
  (void)state;
  brant_session *s = open_session(2);
  reading r[6];
  pthread_t t[6];
  for (int i = 0; i < 6; i++) start(s, i % 2 ? SHUFFLED : IN_ORDER, &r[i]);
  for (int i = 0; i < 6; i++) assert_int_equal(pthread_create(&t[i], NULL, read_to_the_end, &r[i]), 0);
  for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
  brant_close(s);
  nothing_wrong();
}

/* Nobody waits for the rest, whatever is let go first. */
static void released_before_the_end(void **state) {
  (void)state;
  brant_session *s = open_session(2);
  for (int i = 0; i < 20; i++) {
    reading r;
    start(s, i % 5 == 4 ? ENDLESS : IN_ORDER, &r);
    for (int k = 0; i % 5 < 4 && k < i % 4; k++) assert_true(step(&r));
    if (i % 2 == 0) {
      end(&r);
      continue;
    }
    brant_query_free(r.q);
    if (i % 5 < 4) assert_true(step(&r)); /* the stream holds it */
    r.st.release(&r.st);
  }
  run_whole(s);
  brant_close(s);
  nothing_wrong();
}

typedef struct canceller {
  brant_query *q;
  useconds_t after_us;
  double at; /* it was called; or: until then it is called */
} canceller;

static void *cancel_later(void *arg) {
  canceller *c = arg;
  usleep(c->after_us); /* the moment is what is tested */
  c->at = now();
  brant_query_cancel(c->q);
  return NULL;
}

/* A cancelled query ends soon, with CANCELLED or, when it was done already, with all its rows. */
static bool cancelled_once(brant_session *s, const char *sql, useconds_t after_us) {
  reading r;
  brant_error err;
  pthread_t t;
  start(s, sql, &r);
  canceller c = {.q = r.q, .after_us = after_us};
  assert_int_equal(pthread_create(&t, NULL, cancel_later, &c), 0);
  while (step(&r)) continue;
  double ended = now();
  pthread_join(t, NULL);
  if (ended - c.at > CANCEL_MOST_S) WRONG("a cancelled query took %.1f s to end", ended - c.at);
  bool cancelled = r.rc != 0;
  if (!cancelled)
    expect_all(&r, false);
  else if (strstr(r.st.get_last_error(&r.st), "cancel") == NULL || brant_query_error(r.q, &err) != BRANT_CANCELLED)
    WRONG("cancelled, and it says: %s", r.st.get_last_error(&r.st));
  end(&r);
  return cancelled;
}

static void cancels_at_random_moments(void **state) {
  (void)state;
  brant_session *s = open_session(2);
  int cancelled = 0;
  run_whole(s); /* starts the workers */
  double began = now();
  run_whole(s);
  uint32_t most_us = (uint32_t)((now() - began) * 1.25e6), seed = 20240607;
  for (int i = 0; i < CANCELS; i++) {
    seed = seed * 1664525u + 1013904223u;
    useconds_t after = (useconds_t)((uint64_t)(seed >> 8) * most_us >> 24);
    cancelled += cancelled_once(s, i % 10 == 9 ? ENDLESS : i % 2 ? SHUFFLED : IN_ORDER, after);
  }
  assert_true(cancelled >= CANCELS / 10); /* the endless ones at the least */
  run_whole(s);
  brant_close(s);
  nothing_wrong();
}

/* One query is cancelled, the other ones don't notice. */
static void cancel_hits_one(void **state) {
  (void)state;
  brant_session *s = open_session(2);
  reading a, b, c;
  start(s, IN_ORDER, &a);
  start(s, ENDLESS, &b);
  start(s, SHUFFLED, &c);
  assert_true(step(&a));
  brant_query_cancel(b.q);
  while (step(&a)) continue;
  while (step(&c)) continue;
  assert_false(step(&b));
  assert_int_not_equal(b.rc, 0);
  expect_all(&a, true);
  expect_all(&c, false);
  end(&a);
  end(&b);
  end(&c);
  brant_close(s);
  nothing_wrong();
}

static void *cancel_all_the_time(void *arg) {
  canceller *c = arg;
  while (now() < c->at) {
    brant_stats stats = {.size = sizeof stats};
    brant_query_cancel(c->q);
    brant_query_stats(c->q, &stats);
  }
  return NULL;
}

/* The session goes while another thread still cancels and asks. */
static void cancel_during_close(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) {
    brant_session *s = open_session(1);
    reading r;
    pthread_t t;
    start(s, i % 2 ? IN_ORDER : ENDLESS, &r);
    canceller c = {.q = r.q, .at = now() + 0.5};
    assert_int_equal(pthread_create(&t, NULL, cancel_all_the_time, &c), 0);
    brant_close(s);
    while (step(&r)) continue;
    assert_int_not_equal(r.rc, 0);
    pthread_join(t, NULL);
    end(&r);
  }
  nothing_wrong();
}

/* ---- all of them */

static int make_scratch(void **state) {
  (void)state;
  strcpy(scratch, "/tmp/brant-concurrent-XXXXXX");
  if (mkdtemp(scratch) == NULL) return 1;
  life_of_a_session(NULL);
  return atomic_load(&wrong) != 0;
}

static int remove_scratch(void **state) {
  (void)state;
  return rmdir(scratch);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, count_after)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(queries_read_alternately), TEST(sessions_read_alternately), TEST(sessions_in_threads),
      TEST(streams_in_threads),       TEST(released_before_the_end),   TEST(cancels_at_random_moments),
      TEST(cancel_hits_one),          TEST(cancel_during_close),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
