/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Shapes of queries: what runs when, tables before readers, dropped stages, and the exact set of tasks that a lost worker costs. */
#include "schedule_help.h"

/* chain: 4 maps -> 3 reducers -> 1 result */
static const br_sched_stage chain[] = {
    {.tasks = 4}, {.tasks = 3, INPUTS(ALL(0))}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};

static void test_chain_runs_in_order(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_join(h, 2, 2);
  h_query(h, 7, chain, 3);
  assert_string_equal(h_ran(h), "0.0 0.1 0.2 0.3");
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  h_done(h, 7, 0, 2);
  assert_string_equal(h_ran(h), "0.0 0.1 0.2 0.3"); /* staged: not before all maps are there */
  h_done(h, 7, 0, 3);
  assert_int_equal(h_act(h, BR_ACT_STAGE_DONE)->stage, 0);
  assert_int_equal(h_act(h, BR_ACT_TABLE)->stage, 0);
  assert_int_equal(h_act(h, BR_ACT_TABLE)->version, 1);
  assert_true(h_at(h, BR_ACT_TABLE) < h_at(h, BR_ACT_RUN));
  assert_int_equal(br_sched_table_version(h->s, 7, 0), 1);
  h_finish(h, 1);
  assert_int_equal(h_act(h, BR_ACT_RETIRE_STAGE)->stage, 0); /* a lost reducer may want them again */
  assert_int_not_equal(h_where(h, 7, 0, 0), 0);
  assert_true(h_runs(h, 7, 2, 0));
  h_done(h, 7, 2, 0);
  assert_int_equal(h_act(h, BR_ACT_RETIRE_STAGE)->stage, 1);
  assert_int_equal(h_count(h, BR_ACT_DROP_STAGE), 0); /* the result is not in the caller's hands */
  const br_action *r = h_act(h, BR_ACT_RESULT);
  assert_non_null(r);
  assert_int_equal(r->attempt.attempt, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 0); /* the caller has not read it */
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  assert_true(h_at(h, BR_ACT_QUERY_DONE) < h_at(h, BR_ACT_DROP_QUERY));
  br_sched_counts c;
  assert_false(br_sched_stage_counts(h->s, 7, 0, &c));
  h_free(h);
}

static void test_chain_loss_while_maps_are_needed(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_join(h, 2, 2);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  uint32_t dead = h_where(h, 7, 0, 1);
  char expect[64] = "";
  for (uint32_t t = 0; t < 4; t++)
    if (h_where(h, 7, 0, t) == dead) snprintf(expect + strlen(expect), 16, "%s0.%u", *expect ? " " : "", t);
  for (size_t i = h->n_runs; i > 0; i--) /* the reducers on the other worker are through already */
    if (h->runs[i - 1].worker != dead) h_answer(h, i - 1, BR_EV_TASK_DONE, NULL);
  br_sched_counts c;
  assert_true(br_sched_stage_counts(h->s, 7, 1, &c));
  assert_true(c.tasks[BR_TASK_COMMITTED] > 0 && c.tasks[BR_TASK_COMMITTED] < 3);
  h_clear(h);
  h_lose(h, dead);
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 1);
  h_finish(h, 0);
  char *reducers = strstr(h->log, "1.");
  assert_non_null(reducers);
  reducers[-1] = 0;
  assert_string_equal(h_ran(h), expect);
  assert_int_equal(br_sched_table_version(h->s, 7, 0), 2);
  h_finish(h, UINT32_MAX);
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_loss_with_the_retired_maps_reaches_back(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 8);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  h_finish(h, 1); /* maps are retired, the reducers' outputs are on worker 1, the result task runs there */
  h_clear(h);
  h_lose(h, 1);
  h_join(h, 2, 8);
  assert_string_equal(h_ran(h), "0.0 0.1 0.2 0.3");
  h_finish(h, 0);
  h_finish(h, 1);
  h_finish(h, 2);
  assert_string_equal(h_ran(h), "0.0 0.1 0.2 0.3 1.0 1.1 1.2 2.0");
  assert_non_null(h_act(h, BR_ACT_RESULT));
  h_free(h);
}

static void test_loss_of_what_nobody_needs_costs_nothing(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 8);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  h_join(h, 2, 8);
  h_finish(h, 1);
  uint32_t at = h->runs[h_find(h, 7, 2, 0)].worker;
  if (at == 1) { /* the result task must live on 2 for this test: reducers' outputs are on 1 */
    h_fail(h, 7, 2, 0, BR_IO, BR_BLAME_TASK);
    h_tick(h, 200);
    at = h->runs[h_find(h, 7, 2, 0)].worker;
  }
  assert_int_equal(at, 2);
  h_done(h, 7, 2, 0);
  h_clear(h);
  h_lose(h, 1);
  assert_string_equal(h_ran(h), "");
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_lost_result_is_made_again_until_read(void **state) {
  (void)state;
  const br_sched_stage one[] = {{.tasks = 2, .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, one, 1);
  h_finish(h, 0);
  uint32_t first = h_where(h, 7, 0, 0);
  h_read(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_DROP_OUTPUT), 1);
  h_clear(h);
  h_lose(h, first); /* read: not again */
  assert_string_equal(h_ran(h), "");
  h_lose(h, first == 1 ? 2 : 1);
  h_join(h, 3, 1);
  assert_string_equal(h_ran(h), "0.1");
  h_done(h, 7, 0, 1);
  assert_int_equal(h_act(h, BR_ACT_RESULT)->attempt.attempt, 2);
  h_read(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

/* diamond: 0 -> {1, 2} -> 3 */
static const br_sched_stage diamond[] = {{.tasks = 2},
                                         {.tasks = 2, INPUTS(ALL(0))},
                                         {.tasks = 2, INPUTS(ALL(0))},
                                         {.tasks = 1, INPUTS(ALL(1), ALL(2)), .result = true}};

static void test_diamond_keeps_the_source_for_both(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 8);
  h_query(h, 7, diamond, 4);
  h_finish(h, 0);
  assert_string_equal(h_ran(h), "0.0 0.1 1.0 1.1 2.0 2.1"); /* both branches together */
  h_finish(h, 1);
  assert_int_equal(h_count(h, BR_ACT_RETIRE_STAGE), 0); /* stage 2 still reads stage 0 */
  h_done(h, 7, 2, 0);
  h_done(h, 7, 2, 1);
  assert_int_equal(h_act(h, BR_ACT_RETIRE_STAGE)->stage, 0);
  assert_true(h_runs(h, 7, 3, 0));
  h_free(h);
}

static void test_diamond_loss_remakes_one_branch_and_the_source(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, diamond, 4);
  h_finish(h, 0);  /* stage 0 on worker 1; 1.0 1.1 run there */
  h_join(h, 2, 2); /* 2.0 2.1 run there */
  assert_true(h_runs(h, 7, 2, 0) && h->runs[h_find(h, 7, 2, 0)].worker == 2);
  h_finish(h, 1);
  h_finish(h, 2);
  assert_int_equal(h_where(h, 7, 1, 0), 1);
  assert_int_equal(h_where(h, 7, 2, 1), 2);
  size_t i = h_find(h, 7, 3, 0);
  if (h->runs[i].worker == 1) { /* keep it away from the loss: it would be sent again, which is another test */
    h_fail(h, 7, 3, 0, BR_IO, BR_BLAME_TASK);
    h_tick(h, 200);
  }
  h_clear(h);
  h_lose(h, 1); /* branch 1 died, and the retired stage 0 with it */
  h_finish(h, 0);
  h_finish(h, 1);
  assert_string_equal(h_ran(h), "0.0 0.1 1.0 1.1");
  h_done(h, 7, 3, 0); /* it had read everything in time */
  assert_non_null(h_act(h, BR_ACT_RESULT));
  h_free(h);
}

static void test_reader_that_finishes_ends_the_remaking_for_it(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  h_join(h, 2, 2);
  h_finish(h, 1);
  uint32_t at = h->runs[h_find(h, 7, 2, 0)].worker, other = at == 1 ? 2 : 1;
  br_attempt_id maps[4]; /* the retired maps were evicted */
  for (uint32_t t = 0; t < 4; t++) maps[t] = (br_attempt_id){.query = 7, .stage = 0, .task = t, .attempt = 1};
  h_step(h, (br_event){
                .kind = BR_EV_OUTPUTS_LOST, .worker = 1, .incarnation = h->inc[1], .attempts = maps, .n_attempts = 4});
  assert_int_equal(h->a.count, 0);
  h_clear(h);
  h_lose(h, other);
  assert_true(h->n_runs > 1);
  h_done(h, 7, 2, 0);
  assert_true(h_count(h, BR_ACT_CANCEL) > 0); /* nobody needs the maps any more */
  h_finish(h, UINT32_MAX);
  assert_null(strstr(h->log, "1."));
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

/* forward chain: each task reads its own predecessor, on its node */
static const br_sched_stage forward[] = {
    {.tasks = 4}, {.tasks = 4, INPUTS(FWD(0))}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};

static void test_forward_prefers_the_node_of_its_input(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  uint32_t where[4];
  h_join(h, 1, 2);
  h_join(h, 2, 2);
  h_query(h, 7, forward, 3);
  for (uint32_t t = 4; t > 0; t--) { /* the last one first: the order of answers must not matter */
    size_t i = h_find(h, 7, 0, t - 1);
    where[t - 1] = h->runs[i].worker;
    h_answer(h, i, BR_EV_TASK_DONE, NULL);
  }
  for (uint32_t t = 0; t < 4; t++) assert_int_equal(h->runs[h_find(h, 7, 1, t)].worker, where[t]);
  h_free(h);
}

static void test_forward_goes_elsewhere_rather_than_wait(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, forward, 3);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  h_done(h, 7, 0, 2);
  h_step(h, (br_event){.kind = BR_EV_WORKER_DRAINING, .worker = 1});
  h_join(h, 2, 1);
  h_done(h, 7, 0, 3);
  assert_int_equal(h->n_runs, 1);
  assert_int_equal(h->runs[0].worker, 2);
  h_free(h);
}

static void test_forward_loss_remakes_only_its_own_line(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_join(h, 2, 2);
  h_query(h, 7, forward, 3);
  h_finish(h, 0);
  size_t i = h_find(h, 7, 1, 2);
  uint32_t dead = h->runs[i].worker;
  h_answer(h, i, BR_EV_TASK_DONE, NULL); /* 1.2 is committed on the worker that dies */
  char expect[128] = "";
  for (uint32_t st = 0; st < 2; st++)
    for (uint32_t t = 0; t < 4; t++)
      if (h_where(h, 7, 0, t) == dead) snprintf(expect + strlen(expect), 16, "%s%u.%u", *expect ? " " : "", st, t);
  h_clear(h);
  h_lose(h, dead);
  h_finish(h, UINT32_MAX);
  strcat(expect, " 2.0");
  assert_string_equal(h_ran(h), expect);
  h_free(h);
}

static void test_union_of_forward_inputs(void **state) {
  (void)state;
  const br_sched_stage u[] = {{.tasks = 2},
                              {.tasks = 3},
                              {.tasks = 5, INPUTS(FWD(0), FWD_AT(1, 2))},
                              {.tasks = 1, INPUTS(ALL(2)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 4);
  h_query(h, 7, u, 4);
  h_finish(h, 0);
  h_finish(h, 1);
  size_t i = h_find(h, 7, 2, 4);
  uint32_t dead = h_where(h, 7, 1, 2);
  if (i < h->n_runs && h->runs[i].worker == dead) h_answer(h, i, BR_EV_TASK_DONE, NULL);
  h_clear(h);
  h_lose(h, dead);
  h_finish(h, UINT32_MAX);
  assert_non_null(strstr(h->log, "1.2")); /* 2.4 reads 1.2: 4 - 2 */
  h_free(h);
}

static void test_broadcast_and_two_readers(void **state) {
  (void)state;
  const br_sched_stage b[] = {{.tasks = 1},
                              {.tasks = 2, INPUTS(CAST(0))},
                              {.tasks = 2, INPUTS(CAST(0), ALL(1))},
                              {.tasks = 1, INPUTS(ALL(2)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, b, 4);
  h_finish(h, 0); /* 0.0 on worker 1 */
  h_join(h, 2, 4);
  h_finish(h, 1);
  assert_int_equal(h_where(h, 7, 0, 0), 1); /* stage 2 still needs the broadcast side */
  size_t i;
  while ((i = h_find(h, 7, 2, 0)) < h->n_runs && h->runs[i].worker == 1) { /* one of them shall be done, on worker 2 */
    h_fail(h, 7, 2, 0, BR_IO, BR_BLAME_TASK);
    h_tick(h, 200);
    h_hear(h, 1);
    h_hear(h, 2);
  }
  h_done(h, 7, 2, 0);
  uint32_t r10 = h_where(h, 7, 1, 0), r11 = h_where(h, 7, 1, 1);
  char expect[64] = "0.0";
  if (r10 == 1) strcat(expect, " 1.0");
  if (r11 == 1) strcat(expect, " 1.1");
  bool also = h_runs(h, 7, 2, 1) && h->runs[h_find(h, 7, 2, 1)].worker == 1;
  if (also) strcat(expect, " 2.1");
  h_clear(h);
  h_lose(h, 1);
  h_finish(h, 0);
  h_finish(h, 1);
  assert_string_equal(h_ran(h), expect);
  h_free(h);
}

static void test_stages_of_no_tasks(void **state) {
  (void)state;
  const br_sched_stage e[] = {{.tasks = 0},
                              {.tasks = 2, INPUTS(ALL(0))},
                              {.tasks = 0, INPUTS(ALL(1))},
                              {.tasks = 1, INPUTS(ALL(2)), .result = true}};
  const br_sched_stage none[] = {{.tasks = 0, .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, e, 4);
  assert_string_equal(h_ran(h), "3.0"); /* nobody reads stage 1: its reader has no tasks */
  h_done(h, 7, 3, 0);
  h_read(h, 7, 3, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_query(h, 8, none, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_query(h, 9, NULL, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_last_stage_without_result_is_done_for_good(void **state) {
  (void)state;
  const br_sched_stage sink[] = {{.tasks = 1}, {.tasks = 2, INPUTS(ALL(0))}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, sink, 2);
  h_finish(h, 0);
  size_t i = h_find(h, 7, 1, 0);
  uint32_t w = h->runs[i].worker, map = h->runs[h_find(h, 7, 1, 1)].worker;
  h_answer(h, i, BR_EV_TASK_DONE, NULL);
  h_clear(h);
  assert_int_not_equal(w, map);
  h_lose(h, w);
  assert_null(strstr(h->log, "1.0")); /* its work is done, whatever becomes of the worker */
  h_finish(h, UINT32_MAX);
  assert_null(strstr(h->log, "1.0"));
  h_free(h);
}

static void test_senseless_stages_fail_with_a_reason(void **state) {
  (void)state;
  const br_sched_stage self[] = {{.tasks = 1, INPUTS(ALL(0))}};
  const br_sched_stage narrow[] = {{.tasks = 3}, {.tasks = 2, INPUTS(FWD(0)), .result = true}};
  const br_sched_stage huge[] = {{.tasks = 16000001, .result = true}};
  harness *h = h_new(NULL);
  h_query(h, 1, self, 1);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_INTERNAL);
  h_query(h, 2, narrow, 2);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_INTERNAL);
  h_query(h, 3, huge, 1);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_INVALID);
  assert_int_equal(h_count(h, BR_ACT_DROP_QUERY), 1);
  h_free(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chain_runs_in_order),
      cmocka_unit_test(test_chain_loss_while_maps_are_needed),
      cmocka_unit_test(test_loss_with_the_retired_maps_reaches_back),
      cmocka_unit_test(test_loss_of_what_nobody_needs_costs_nothing),
      cmocka_unit_test(test_lost_result_is_made_again_until_read),
      cmocka_unit_test(test_diamond_keeps_the_source_for_both),
      cmocka_unit_test(test_diamond_loss_remakes_one_branch_and_the_source),
      cmocka_unit_test(test_reader_that_finishes_ends_the_remaking_for_it),
      cmocka_unit_test(test_forward_prefers_the_node_of_its_input),
      cmocka_unit_test(test_forward_goes_elsewhere_rather_than_wait),
      cmocka_unit_test(test_forward_loss_remakes_only_its_own_line),
      cmocka_unit_test(test_union_of_forward_inputs),
      cmocka_unit_test(test_broadcast_and_two_readers),
      cmocka_unit_test(test_stages_of_no_tasks),
      cmocka_unit_test(test_last_stage_without_result_is_done_for_good),
      cmocka_unit_test(test_senseless_stages_fail_with_a_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
