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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_of_two_loses_what_it_wrote),
                                     cmocka_unit_test(test_second_of_two_loses_what_it_wrote),
                                     cmocka_unit_test(test_straggler_is_seen_when_needs_vanish)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
