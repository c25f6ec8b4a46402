/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * What the simulation found, as small as it gets. */
#include "schedule_help.h"

static const br_sched_options quick = {.straggler_min_ms = 1000, .straggler_done_percent = 75};

static void hear_all(harness *h) {
  for (uint32_t w = 1; w < 64; w++)
    if (h->inc[w]) h_hear(h, w);
}

static size_t find_attempt(const harness *h, uint32_t task, bool second) {
  size_t i = 0;
  while (i < h->n_runs && (h->runs[i].attempt.task != task || h->runs[i].second != second)) i++;
  assert_true(i < h->n_runs);
  return i;
}

static void lose_output_of(harness *h, const br_action *run) {
  h_step(h, (br_event){.kind = BR_EV_OUTPUTS_LOST,
                       .worker = run->worker,
                       .incarnation = run->incarnation,
                       .attempts = &run->attempt,
                       .n_attempts = 1});
}

/* Four tasks on two workers of four slots; the last one is slow and has two attempts. */
static harness *with_a_second_attempt(void) {
  static const br_sched_stage four[] = {{.tasks = 4, .result = true}};
  harness *h = h_new(&quick);
  h_join(h, 1, 4);
  h_join(h, 2, 4);
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = 7, .stages = four, .n_stages = 1, .mode = BR_SCHED_EAGER});
  h_tick(h, 100);
  for (uint32_t t = 0; t < 3; t++) h_done(h, 7, 0, t);
  for (int i = 0; i < 20 && h->n_runs < 2; i++) {
    hear_all(h);
    h_tick(h, 100);
  }
  assert_int_equal(h->n_runs, 2);
  return h;
}

static void one_of_two_loses_what_it_wrote(bool second) {
  harness *h = with_a_second_attempt();
  br_action bad = h->runs[find_attempt(h, 3, second)], good = h->runs[find_attempt(h, 3, !second)];
  lose_output_of(h, &bad);
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 1);
  assert_true(h_same(&h_act(h, BR_ACT_CANCEL)->attempt, &bad.attempt));
  h_answer(h, find_attempt(h, 3, !second), BR_EV_TASK_DONE, NULL);
  assert_int_equal(h_count(h, BR_ACT_RESULT), 1);
  assert_true(h_same(&h_act(h, BR_ACT_RESULT)->attempt, &good.attempt));
  h_free(h);
}

static void test_first_of_two_loses_what_it_wrote(void **state) {
  (void)state;
  one_of_two_loses_what_it_wrote(false);
}

static void test_second_of_two_loses_what_it_wrote(void **state) {
  (void)state;
  one_of_two_loses_what_it_wrote(true);
}

/* A task that is not needed any more makes a stage nearly done, like one that has ended. */
static void test_straggler_is_seen_when_needs_vanish(void **state) {
  (void)state;
  static const br_sched_stage four[] = {{.tasks = 4, .result = true}};
  harness *h = h_new(&quick);
  h_join(h, 1, 4);
  h_join(h, 2, 4);
  h_query(h, 7, four, 1);
  h_tick(h, 100);
  br_action lost = h->runs[h_find(h, 7, 0, 2)];
  for (uint32_t t = 0; t < 3; t++) h_done(h, 7, 0, t);
  lose_output_of(h, &lost); /* task 2 is made again ... */
  assert_true(h_runs(h, 7, 0, 2));
  for (int i = 0; i < 20; i++) {
    hear_all(h);
    h_tick(h, 100);
  }
  assert_int_equal(h->n_runs, 2); /* half of the stage is done: no stragglers */
  h_read(h, 7, 0, 2);             /* ... but the caller had it already */
  assert_false(h_runs(h, 7, 0, 2));
  hear_all(h);
  h_tick(h, 500);
  assert_true(h->runs[find_attempt(h, 3, true)].second);
  h_free(h);
}

static size_t find_on(const harness *h, uint64_t query, uint32_t worker) {
  size_t i = 0;
  while (i < h->n_runs && (h->runs[i].query != query || h->runs[i].worker != worker || h->cancelled[i])) i++;
  assert_true(i < h->n_runs);
  return i;
}

static void wait_ms(harness *h, uint64_t ms) {
  for (; ms > 0; ms -= 50) {
    hear_all(h);
    h_tick(h, 50);
  }
}

/* A second attempt closes the readers of its stage; one of them waits for a whole worker, that is kept for it, and given back in that moment:
 * somebody else's task, which must not go where there is a slot, gets it at once. */
static void test_a_kept_worker_is_given_back(void **state) {
  (void)state;
  const br_sched_stage a[] = {{.tasks = 4}, {.tasks = 1, INPUTS(ALL(0)), .result = true}};
  static const br_sched_stage b[] = {{.tasks = 6, .result = true}};
  br_error disk;
  br_fail(&disk, BR_IO, BR_BLAME_TASK, "made up");
  harness *h = h_new(&quick);
  for (uint32_t w = 1; w <= 3; w++) h_join(h, w, 2);
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = 1, .stages = a, .n_stages = 2, .mode = BR_SCHED_EAGER});
  uint32_t no_memory = h->runs[h_find(h, 1, 1, 0)].worker, kept = no_memory == 1 ? 2 : 1, slow = no_memory == 3 ? 2 : 3,
           other = 6 - kept - slow;
  h_fail(h, 1, 1, 0, BR_OUT_OF_MEMORY, BR_BLAME_TASK);
  uint32_t last = h->runs[find_on(h, 1, kept)].attempt.task;
  for (uint32_t t = 0; t < 4; t++)
    if (t != last) h_done(h, 1, 0, t);
  h_fail(h, 1, 0, last, BR_IO, BR_BLAME_TASK);
  h_query(h, 2, b, 1); /* has all slots */
  assert_int_equal(h->n_runs, 6);
  wait_ms(h, 500);
  h_answer(h, find_on(h, 2, slow), BR_EV_TASK_DONE, NULL); /* there the last task runs again */
  assert_int_equal(h->runs[h_find(h, 1, 0, last)].worker, slow);
  h_answer(h, find_on(h, 2, kept), BR_EV_TASK_DONE, NULL);
  assert_false(h_runs(h, 1, 1, 0)); /* the reader waits for this one to be empty */
  uint32_t task = h->runs[find_on(h, 2, other)].attempt.task;
  h_answer(h, find_on(h, 2, other), BR_EV_TASK_FAILED, &disk);
  for (int i = 0; i < 60 && !(h_act(h, BR_ACT_RUN) && h->runs[h->n_runs - 1].query == 2); i++) {
    assert_false(h_runs(h, 2, 0, task));
    hear_all(h);
    h_tick(h, 50);
  }
  assert_int_equal(h_count(h, BR_ACT_RUN), 2); /* the second attempt, and in the same step */
  assert_true(h_act(h, BR_ACT_RUN)->second);
  assert_int_equal(h->runs[h_find(h, 2, 0, task)].worker, kept);
  h_free(h);
}

/* A worker that leaves stops its tasks; that it drains arrives later. */
static void test_a_worker_stops_a_task_before_it_says_that_it_drains(void **state) {
  (void)state;
  static const br_sched_stage one[] = {{.tasks = 1, .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, one, 1);
  h_fail(h, 7, 0, 0, BR_CANCELLED, BR_BLAME_WORKER);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  h_tick(h, 200);
  h_done(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_RESULT), 1);
  h_free(h);
}

/* A task between an indeterminate one and a result never commits: the result read its first attempt as that wrote, and was handed out. Then both
 * are lost, when its second attempt was not read by anybody: the result is void all the same. */
static void test_readers_of_an_earlier_attempt_are_void(void **state) {
  (void)state;
  const br_sched_stage chain[] = {
      {.tasks = 1, .indeterminate = true}, {.tasks = 1, INPUTS(ALL(0))}, {.tasks = 2, INPUTS(ALL(1)), .result = true}};
  harness *h = h_new(NULL);
  for (uint32_t w = 1; w <= 3; w++) h_join(h, w, 1);
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = 7, .stages = chain, .n_stages = 3, .mode = BR_SCHED_EAGER});
  uint32_t first = h->runs[h_find(h, 7, 0, 0)].worker, middle = h->runs[h_find(h, 7, 1, 0)].worker;
  h_done(h, 7, 0, 0);
  h_done(h, 7, 2, 0);
  h_read(h, 7, 2, 0);
  assert_true(h_runs(h, 7, 2, 1));
  h_lose(h, middle);
  assert_true(h_runs(h, 7, 1, 0)); /* again, where the first result was made; the other result's slot is not free yet */
  assert_false(h_runs(h, 7, 2, 1));
  assert_int_equal(h_count(h, BR_ACT_TABLE), 0);
  h_lose(h, first);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  h_free(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_of_two_loses_what_it_wrote),
                                     cmocka_unit_test(test_second_of_two_loses_what_it_wrote),
                                     cmocka_unit_test(test_straggler_is_seen_when_needs_vanish),
                                     cmocka_unit_test(test_a_kept_worker_is_given_back),
                                     cmocka_unit_test(test_readers_of_an_earlier_attempt_are_void),
                                     cmocka_unit_test(test_a_worker_stops_a_task_before_it_says_that_it_drains)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
