/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Out of memory (alone on a worker, then in passes) and second attempts for stragglers. */
#include "schedule_help.h"

static const br_sched_stage one[] = {{.tasks = 1, .splittable = true, .result = true}};
static const br_sched_stage stiff[] = {{.tasks = 1, .result = true}};
static const br_sched_stage four[] = {{.tasks = 4, .splittable = true, .result = true}};
static const br_sched_stage wide[] = {{.tasks = 40, .splittable = true, .result = true}};

static void beat(harness *h, uint64_t ms) { /* time goes by, everybody beats */
  for (; ms > 0; ms -= ms < 5000 ? ms : 5000) {
    h->now += ms < 5000 ? ms : 5000;
    for (uint32_t w = 1; w < 64; w++)
      if (h->inc[w]) h_hear(h, w);
    h_tick(h, 0);
  }
}

static const br_action *under_way(const harness *h, uint32_t task) {
  size_t i = h_find(h, 7, 0, task);
  assert_true(i < h->n_runs);
  return &h->runs[i];
}

static void no_memory(harness *h, uint32_t task) { h_fail(h, 7, 0, task, BR_OUT_OF_MEMORY, BR_BLAME_TASK); }

static size_t on_worker(const harness *h, uint32_t worker) {
  size_t n = 0;
  for (size_t i = 0; i < h->n_runs; i++) n += h->runs[i].worker == worker;
  return n;
}

/* ---- out of memory */
static void test_alone_then_in_passes_then_in_their_square(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, one, 1);
  assert_false(under_way(h, 0)->alone);
  assert_int_equal(under_way(h, 0)->passes, 1);
  const uint32_t passes[] = {1, 4, 16};
  for (size_t i = 0; i < 3; i++) {
    no_memory(h, 0);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    beat(h, 1000);
    assert_true(under_way(h, 0)->alone);
    assert_int_equal(under_way(h, 0)->passes, passes[i]);
  }
  no_memory(h, 0);
  const br_action *f = h_act(h, BR_ACT_QUERY_FAILED);
  assert_non_null(f);
  assert_int_equal(f->error.code, BR_OUT_OF_MEMORY);
  assert_non_null(strstr(f->error.message, "attempt 4 of 4"));
  assert_non_null(strstr(f->error.message, "alone on its worker, and there in 4 and in 16 parts"));
  assert_non_null(strstr(f->error.message, "more memory"));
  assert_non_null(strstr(f->error.message, "partitions"));
  h_free(h);
}

static void test_passes_are_an_option(void **state) {
  (void)state;
  const br_sched_options o = {.split_passes = 3};
  harness *h = h_new(&o);
  h_join(h, 1, 4);
  h_query(h, 7, one, 1);
  for (int i = 0; i < 3; i++) {
    no_memory(h, 0);
    beat(h, 1000);
  }
  assert_int_equal(under_way(h, 0)->passes, 9);
  h_free(h);
}

static void test_what_cannot_be_split_stays_alone(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, stiff, 1);
  for (int i = 0; i < 3; i++) {
    no_memory(h, 0);
    beat(h, 1000);
    assert_true(under_way(h, 0)->alone);
    assert_int_equal(under_way(h, 0)->passes, 1);
  }
  no_memory(h, 0);
  assert_non_null(strstr(h_act(h, BR_ACT_QUERY_FAILED)->error.message, "can't be done in parts"));
  h_free(h);
}

static void test_the_charge_is_shared_with_other_failures(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, one, 1);
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  beat(h, 1000);
  assert_false(under_way(h, 0)->alone);
  for (int i = 0; i < 2; i++) {
    no_memory(h, 0);
    beat(h, 1000);
  }
  assert_int_equal(under_way(h, 0)->passes, 4);
  no_memory(h, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  h_free(h);
}

static void test_alone_means_the_whole_worker(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, wide, 1);
  assert_int_equal(h->n_runs, 4);
  no_memory(h, 0);
  beat(h, 1000);                  /* its backoff is over: worker 1 takes nothing else until it is empty */
  assert_int_equal(h->n_runs, 4); /* 1, 2, 3 and 4 that started meanwhile */
  for (int left = 3; left >= 0; left--) {
    assert_false(h_runs(h, 7, 0, 0));
    h_answer(h, 0, BR_EV_TASK_DONE, NULL);
    if (left > 0) assert_int_equal(h->n_runs, left);
  }
  assert_int_equal(h->n_runs, 1);
  assert_true(under_way(h, 0)->alone);
  h_done(h, 7, 0, 0);
  assert_int_equal(h->n_runs, 4);
  h_free(h);
}

static void test_alone_goes_to_an_empty_worker_at_once(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, four, 1);
  no_memory(h, 0);
  beat(h, 1000);
  h_join(h, 2, 2); /* as if made for it */
  assert_int_equal(under_way(h, 0)->worker, 2);
  assert_int_equal(on_worker(h, 2), 1);
  assert_int_equal(on_worker(h, 1), 2); /* given back */
  h_free(h);
}

static void test_two_of_them_do_not_wait_for_each_other(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_join(h, 2, 2);
  h_query(h, 7, wide, 1);
  no_memory(h, 0);
  no_memory(h, 1);
  no_memory(h, 2);
  beat(h, 1000);
  bool alone[3] = {false};
  for (int i = 0; i < 20 && !(alone[0] && alone[1] && alone[2]); i++) {
    for (uint32_t t = 0; t < 3; t++) alone[t] |= h_runs(h, 7, 0, t) && under_way(h, t)->alone;
    for (uint32_t w = 1; w <= 2; w++)
      for (size_t k = 0; k < h->n_runs; k++)
        if (h->runs[k].alone && h->runs[k].worker == w) assert_int_equal(on_worker(h, w), 1);
    h_answer(h, 0, BR_EV_TASK_DONE, NULL);
  }
  assert_true(alone[0] && alone[1] && alone[2]);
  h_free(h);
}

static void test_kept_worker_that_goes_is_replaced(void **state) {
  (void)state;
  for (int drains = 0; drains < 2; drains++) {
    harness *h = h_new(NULL);
    h_join(h, 1, 2);
    h_query(h, 7, wide, 1);
    no_memory(h, 0);
    beat(h, 1000);
    h_join(h, 2, 1);
    assert_true(under_way(h, 0)->alone && under_way(h, 0)->worker == 2);
    h_answer(h, h_find(h, 7, 0, 0), BR_EV_TASK_FAILED, NULL); /* a failure that can't pass ends the query: */
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);     /* nothing is kept for it any more */
    h_free(h);
    h = h_new(NULL);
    h_join(h, 1, 2);
    h_join(h, 2, 2);
    h_query(h, 7, wide, 1);
    uint32_t first = under_way(h, 0)->worker;
    no_memory(h, 0);
    beat(h, 1000); /* the other one is kept, and full */
    if (drains)
      h_step(h, (br_event){.kind = BR_EV_WORKER_DRAINING, .worker = 3 - first});
    else
      h_lose(h, 3 - first);
    for (int i = 0; i < 10 && !h_runs(h, 7, 0, 0); i++) h_answer(h, 0, BR_EV_TASK_DONE, NULL);
    assert_true(under_way(h, 0)->alone);
    assert_int_equal(under_way(h, 0)->worker, first);
    h_free(h);
  }
}

static void test_cancelled_query_gives_its_worker_back(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, four, 1);
  no_memory(h, 0);
  beat(h, 1000);
  h_query(h, 8, wide, 1);
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 7});
  for (size_t i = h->n_runs; i > 0; i--)
    if (h->cancelled[i - 1]) h_answer(h, i - 1, BR_EV_TASK_FAILED, NULL);
  assert_int_equal(on_worker(h, 1), 2);
  assert_int_equal(h->runs[0].query, 8);
  h_free(h);
}

static void test_executor_killed_for_memory(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_error err;
  br_fail(&err, BR_OUT_OF_MEMORY, BR_BLAME_EXECUTOR, "the kernel killed it");
  h_join(h, 1, 4);
  h_query(h, 7, one, 1);
  h_answer(h, 0, BR_EV_EXECUTOR_LOST, &err); /* it shared: not charged */
  beat(h, 1000);
  const uint32_t passes[] = {1, 4, 16};
  for (size_t i = 0; i < 3; i++) { /* alone: its own failure, three more times */
    assert_true(under_way(h, 0)->alone);
    assert_int_equal(under_way(h, 0)->passes, passes[i]);
    h_answer(h, 0, BR_EV_EXECUTOR_LOST, &err);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    beat(h, 2000);
  }
  h_answer(h, 0, BR_EV_EXECUTOR_LOST, &err);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_OUT_OF_MEMORY);
  h_free(h);
}

static void test_what_it_needed_is_remembered(void **state) {
  (void)state;
  const br_sched_stage q[] = {{.tasks = 1, .splittable = true}, {.tasks = 1, INPUTS(ALL(0)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, q, 2);
  no_memory(h, 0);
  beat(h, 1000);
  h_done(h, 7, 0, 0);
  h_lose(h, 1);
  h_join(h, 2, 2);
  assert_true(under_way(h, 0)->alone);
  h_free(h);
}

/* ---- stragglers: four tasks on four workers, three are done after a second */
static harness *h_slow(const br_sched_options *o, br_sched_mode mode, const br_sched_stage *stages, size_t n) {
  harness *h = h_new(o);
  for (uint32_t w = 1; w <= 4; w++) h_join(h, w, 1);
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = 7, .stages = stages, .n_stages = n, .mode = mode});
  h->now += 1000;
  for (uint32_t t = 0; t < 3; t++) h_done(h, 7, 0, t);
  return h;
}

static size_t attempts_of(const harness *h, uint32_t task) {
  size_t n = 0;
  for (size_t i = 0; i < h->n_runs; i++) n += h->runs[i].attempt.task == task && !h->cancelled[i];
  return n;
}

static size_t find_attempt(const harness *h, uint16_t attempt) {
  size_t i = 0;
  while (i < h->n_runs && (h->runs[i].attempt.task != 3 || h->runs[i].attempt.attempt != attempt)) i++;
  return i;
}

/* To the moment when the second attempt starts, as the scheduler asked to be woken. */
static void wait_second(harness *h) {
  for (int i = 0; i < 40 && attempts_of(h, 3) < 2; i++) beat(h, 100);
  assert_int_equal(attempts_of(h, 3), 2);
}

static void test_straggler_gets_a_second_attempt(void **state) {
  (void)state;
  harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
  uint32_t first = under_way(h, 3)->worker;
  beat(h, 1000); /* 2 s: not more than straggler_min_ms */
  assert_int_equal(attempts_of(h, 3), 1);
  beat(h, 400);
  assert_int_equal(attempts_of(h, 3), 2);
  const br_action *second = &h->runs[find_attempt(h, 2)];
  assert_true(second->second);
  assert_int_not_equal(second->worker, first);
  beat(h, 9000);
  assert_int_equal(attempts_of(h, 3), 2); /* and no third one */
  h_free(h);
}

static void test_second_one_wins(void **state) {
  (void)state;
  harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
  wait_second(h);
  br_action loser = h->runs[find_attempt(h, 1)];
  h_answer(h, find_attempt(h, 2), BR_EV_TASK_DONE, NULL);
  assert_int_equal(h_act(h, BR_ACT_RESULT)->attempt.attempt, 2);
  assert_int_equal(h_act(h, BR_ACT_CANCEL)->attempt.attempt, 1);
  assert_int_equal(h_act(h, BR_ACT_CANCEL)->worker, loser.worker);
  h_answer(h, find_attempt(h, 1), BR_EV_TASK_DONE, NULL); /* it had committed, too */
  assert_int_equal(h_act(h, BR_ACT_DROP_OUTPUT)->attempt.attempt, 1);
  assert_int_equal(h_act(h, BR_ACT_DROP_OUTPUT)->worker, loser.worker);
  assert_int_equal(h_count(h, BR_ACT_RESULT), 0);
  for (uint32_t t = 0; t < 4; t++) h_read(h, 7, 0, t);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_first_one_wins(void **state) {
  (void)state;
  harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
  wait_second(h);
  h_answer(h, find_attempt(h, 1), BR_EV_TASK_DONE, NULL);
  assert_int_equal(h_act(h, BR_ACT_RESULT)->attempt.attempt, 1);
  assert_int_equal(h_act(h, BR_ACT_CANCEL)->attempt.attempt, 2);
  h_answer(h, find_attempt(h, 2), BR_EV_TASK_FAILED, NULL);
  assert_int_equal(h->a.count, 0);
  h_free(h);
}

static void test_one_of_two_fails(void **state) {
  (void)state;
  for (uint16_t which = 1; which <= 2; which++) {
    harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
    br_error err;
    br_fail(&err, BR_IO, BR_BLAME_TASK, "made up");
    wait_second(h);
    h_answer(h, find_attempt(h, which), BR_EV_TASK_FAILED, &err);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    assert_int_equal(h_count(h, BR_ACT_RUN), 0); /* the other one goes on */
    h_answer(h, find_attempt(h, (uint16_t)(3 - which)), BR_EV_TASK_DONE, NULL);
    assert_int_equal(h_act(h, BR_ACT_RESULT)->attempt.attempt, 3 - which);
    h_free(h);
  }
}

static void test_worker_of_one_of_two_is_lost(void **state) {
  (void)state;
  for (uint16_t which = 1; which <= 2; which++) {
    harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
    wait_second(h);
    uint32_t w = h->runs[find_attempt(h, which)].worker;
    h_lose(h, w);
    size_t i = find_attempt(h, (uint16_t)(3 - which));
    assert_true(i < h->n_runs);
    h_answer(h, i, BR_EV_TASK_DONE, NULL);
    assert_int_equal(h_act(h, BR_ACT_RESULT)->attempt.attempt, 3 - which);
    h_free(h);
  }
}

static void test_cancelled_query_stops_both(void **state) {
  (void)state;
  harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
  wait_second(h);
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 7});
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 2);
  h_free(h);
}

static void test_no_second_attempt(void **state) {
  (void)state;
  const br_sched_options off = {.straggler_percent = UINT32_MAX}, late = {.straggler_done_percent = 80},
                         slow = {.straggler_percent = 1000};
  const br_sched_options *const none[] = {&off, &late, &slow};
  for (size_t i = 0; i < 3; i++) {
    harness *h = h_slow(none[i], BR_SCHED_STAGED, four, 1);
    beat(h, 8000);
    assert_int_equal(attempts_of(h, 3), 1);
    h_free(h);
  }
  harness *h = h_new(NULL); /* one worker: nowhere else to go */
  h_join(h, 1, 4);
  h_query(h, 7, four, 1);
  for (uint32_t t = 0; t < 3; t++) h_done(h, 7, 0, t);
  beat(h, 30000);
  assert_int_equal(attempts_of(h, 3), 1);
  h_join(h, 2, 1);
  wait_second(h);
  h_free(h);
}

static void test_slots_that_others_want_are_not_taken(void **state) {
  (void)state;
  harness *h = h_slow(NULL, BR_SCHED_STAGED, four, 1);
  h_query(h, 8, wide, 1);
  beat(h, 5000);
  assert_int_equal(attempts_of(h, 3), 1);
  h_free(h);
}

static void test_bound_attempts_have_no_second_one(void **state) {
  (void)state;
  const br_sched_stage q[] = {{.tasks = 4}, {.tasks = 1, INPUTS(ALL(0)), .result = true}};
  harness *h = h_slow(NULL, BR_SCHED_EAGER, q, 2); /* 1.0 reads 0.3 while it writes */
  assert_true(h_runs(h, 7, 1, 0));
  beat(h, 9000);
  assert_int_equal(attempts_of(h, 3), 1);
  h_free(h);
}

static void test_two_attempts_are_no_growing_output(void **state) {
  (void)state;
  const br_sched_input in = {.stage = 0, .kind = BR_READ_ALL, .complete = true};
  const br_sched_stage q[] = {
      {.tasks = 4}, {.tasks = 1, .inputs = &in, .n_inputs = 1}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};
  harness *h = h_slow(NULL, BR_SCHED_EAGER, q, 3); /* nobody reads 0.3 while it writes */
  br_map_output_id o;
  bool growing;
  assert_true(br_sched_output(h->s, 7, 0, 3, &o, &growing) && growing);
  wait_second(h);
  assert_false(br_sched_output(h->s, 7, 0, 3, &o, &growing));
  h_answer(h, find_attempt(h, 2), BR_EV_TASK_DONE, NULL);
  assert_true(br_sched_output(h->s, 7, 0, 3, &o, &growing) && !growing);
  assert_int_equal(o.made_by.attempt, 2);
  assert_true(h_runs(h, 7, 1, 0));
  h_free(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_alone_then_in_passes_then_in_their_square),
      cmocka_unit_test(test_passes_are_an_option),
      cmocka_unit_test(test_what_cannot_be_split_stays_alone),
      cmocka_unit_test(test_the_charge_is_shared_with_other_failures),
      cmocka_unit_test(test_alone_means_the_whole_worker),
      cmocka_unit_test(test_alone_goes_to_an_empty_worker_at_once),
      cmocka_unit_test(test_two_of_them_do_not_wait_for_each_other),
      cmocka_unit_test(test_kept_worker_that_goes_is_replaced),
      cmocka_unit_test(test_cancelled_query_gives_its_worker_back),
      cmocka_unit_test(test_executor_killed_for_memory),
      cmocka_unit_test(test_what_it_needed_is_remembered),
      cmocka_unit_test(test_straggler_gets_a_second_attempt),
      cmocka_unit_test(test_second_one_wins),
      cmocka_unit_test(test_first_one_wins),
      cmocka_unit_test(test_one_of_two_fails),
      cmocka_unit_test(test_worker_of_one_of_two_is_lost),
      cmocka_unit_test(test_cancelled_query_stops_both),
      cmocka_unit_test(test_no_second_attempt),
      cmocka_unit_test(test_slots_that_others_want_are_not_taken),
      cmocka_unit_test(test_bound_attempts_have_no_second_one),
      cmocka_unit_test(test_two_attempts_are_no_growing_output),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
