/* SPDX-License-Identifier: Apache-2.0
 * links: br_executor
 * executor/threads: which thread runs what, and which of them are gone when. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "executor/executor.h"
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct job {
  pid_t thread;
  bool leave;
  sem_t started, go, *told;
} job;

static void work(void *arg) {
  job *j = arg;
  bool told = j->told != NULL, leave = j->leave; /* one that is not told may be gone once it has started */
  j->thread = gettid();
  sem_post(&j->started);
  if (told) sem_wait(&j->go);
  if (leave) br_threads_leave();
}

static void start(br_threads *s, job *j) {
  br_error err = {0};
  sem_init(&j->started, 0, 0);
  sem_init(&j->go, 0, 0);
  assert_int_equal(br_threads_run(s, work, j, &err), BR_OK);
  sem_wait(&j->started);
}

static int threads_of_process(void) {
  char line[128];
  int n = -1;
  FILE *f = fopen("/proc/self/status", "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f))
    if (strncmp(line, "Threads:", 8) == 0) n = atoi(line + 8);
  fclose(f);
  return n;
}

static void wait_threads(int n) {
  for (int i = 0; threads_of_process() != n; i++) {
    assert_true(i < 5000);
    usleep(1000);
  }
}

/* One job after another: sooner or later the thread of the one before waits again, and is the next one's. */
static void a_thread_is_kept(void **state) {
  (void)state;
  br_threads *s = br_threads_new();
  pid_t before = 0;
  bool again = false;
  for (int i = 0; i < 5000 && !again; i++) { /* it may not have come back yet: then there is one more */
    job j = {0};
    start(s, &j);
    again = j.thread == before;
    before = j.thread;
    usleep(1000);
  }
  assert_true(again);
  br_threads_free(s);
  wait_threads(1);
}

static void as_many_as_there_is_work(void **state) {
  (void)state;
  br_threads *s = br_threads_new();
  enum { N = 8 };
  job jobs[N] = {0};
  sem_t told;
  for (int i = 0; i < N; i++) {
    jobs[i].told = &told;
    start(s, &jobs[i]); /* all at once: none ends before it is told */
    for (int k = 0; k < i; k++) assert_int_not_equal(jobs[i].thread, jobs[k].thread);
  }
  wait_threads(1 + N);
  br_threads_trim(s); /* none of them waits for work */
  assert_int_equal(threads_of_process(), 1 + N);
  for (int i = 0; i < N; i++) sem_post(&jobs[i].go);
  br_threads_free(s); /* waits for all */
  wait_threads(1);
}

static void those_without_work_end(void **state) {
  (void)state;
  br_threads *s = br_threads_new();
  job stays = {.told = &stays.go}, ends = {0};
  start(s, &stays);
  start(s, &ends);
  for (int i = 0; threads_of_process() != 2; i++) { /* trimmed as soon as it waits */
    assert_true(i < 5000);
    br_threads_trim(s);
    usleep(1000);
  }
  sem_post(&stays.go);
  br_threads_free(s);
  wait_threads(1);
}

static void one_that_took_much_leaves(void **state) {
  (void)state;
  br_threads *s = br_threads_new();
  job much = {.leave = true}, next = {.told = &next.go};
  start(s, &much);
  wait_threads(1); /* nobody asked for it */
  start(s, &next);
  wait_threads(2);
  sem_post(&next.go);
  br_threads_free(s);
  wait_threads(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_thread_is_kept),
      cmocka_unit_test(as_many_as_there_is_work),
      cmocka_unit_test(those_without_work_end),
      cmocka_unit_test(one_that_took_much_leaves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
