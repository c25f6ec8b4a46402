/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Stages that rest (retired, taken back, dropped), outputs that outlive workers, draining workers and their release; and what went wrong in
 * other engines, as far as it is the scheduler's. */
#include "schedule_help.h"

static const br_sched_stage chain[] = {
    {.tasks = 2}, {.tasks = 2, INPUTS(ALL(0))}, {.tasks = 2, INPUTS(ALL(1)), .result = true}};
static const br_sched_stage lasting[] = {
    {.tasks = 2}, {.tasks = 2, INPUTS(ALL(0)), .outlives = true}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};

static void lost_outputs(harness *h, uint32_t worker, uint32_t stage, uint32_t task, uint16_t attempt) {
  br_attempt_id id = {.query = 7, .stage = stage, .task = task, .attempt = attempt};
  h_step(h, (br_event){.kind = BR_EV_OUTPUTS_LOST,
                       .worker = worker,
                       .incarnation = h->inc[worker],
                       .attempts = &id,
                       .n_attempts = 1});
}

static void drain(harness *h, uint32_t worker) {
  h_step(h, (br_event){.kind = BR_EV_WORKER_DRAINING, .worker = worker, .incarnation = h->inc[worker]});
}

/* ---- retired and dropped */
static void test_retired_is_said_once_and_dropped_when_no_loss_can_matter(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  h_done(h, 7, 1, 0);
  assert_int_equal(h_count(h, BR_ACT_RETIRE_STAGE), 0); /* 1.1 reads */
  h_done(h, 7, 1, 1);
  assert_int_equal(h_count(h, BR_ACT_RETIRE_STAGE), 1);
  h_done(h, 7, 2, 0);
  h_done(h, 7, 2, 1);
  assert_int_equal(h_count(h, BR_ACT_RETIRE_STAGE), 1); /* stage 1; not stage 0 again */
  assert_int_equal(h_act(h, BR_ACT_RETIRE_STAGE)->stage, 1);
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_DROP_STAGE), 0); /* 2.1 may be lost, and needs them all */
  h_read(h, 7, 2, 1);
  assert_int_equal(h_count(h, BR_ACT_DROP_STAGE), 0); /* DROP_QUERY says it */
  assert_int_equal(h_count(h, BR_ACT_DROP_QUERY), 1);
  h_free(h);
}

static void test_dropped_behind_a_result_that_was_read(void **state) {
  (void)state;
  const br_sched_stage two[] = {{.tasks = 1},
                                {.tasks = 1, INPUTS(ALL(0)), .result = true},
                                {.tasks = 1},
                                {.tasks = 1, INPUTS(ALL(2)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, two, 4);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 1, 0);
  assert_int_equal(h_act(h, BR_ACT_RETIRE_STAGE)->stage, 0);
  h_read(h, 7, 1, 0);
  assert_int_equal(h_act(h, BR_ACT_DROP_STAGE)->stage, 0); /* while the other half runs */
  h_free(h);
}

static void test_evicted_outputs_are_no_event_until_they_are_needed(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  h_finish(h, 1);
  h_clear(h);
  lost_outputs(h, 1, 0, 0, 1);
  lost_outputs(h, 1, 0, 0, 1); /* twice */
  assert_int_equal(h->a.count, 0);
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  assert_int_not_equal(h_where(h, 7, 0, 1), 0);
  lost_outputs(h, 1, 1, 1, 1); /* damaged, and needed: 1.1 reads 0.0 and 0.1, of which one is left */
  assert_string_equal(h_ran(h), "0.0");
  assert_int_equal(h_act(h, BR_ACT_TABLE)->stage, 0); /* takes the RETIRE_STAGE back */
  h_done(h, 7, 0, 0);
  assert_string_equal(h_ran(h), "0.0 1.1");
  h_done(h, 7, 1, 1);
  assert_int_equal(h_act(h, BR_ACT_RETIRE_STAGE)->stage, 0); /* once more */
  h_free(h);
}

static void test_old_news_about_outputs(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_join(h, 2, 2);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  uint32_t w = h_where(h, 7, 0, 0);
  lost_outputs(h, 3 - w, 0, 0, 1); /* it never had it */
  lost_outputs(h, w, 0, 0, 9);
  lost_outputs(h, w, 0, 9, 1);
  lost_outputs(h, w, 9, 0, 1);
  assert_int_equal(h_where(h, 7, 0, 0), w);
  h_step(h, (br_event){.kind = BR_EV_OUTPUTS_LOST, .worker = w, .incarnation = 1});
  h_free(h);
}

/* ---- outputs that outlive workers */
static void test_outputs_that_outlive_their_worker(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, lasting, 3);
  h_finish(h, 0);
  h_done(h, 7, 1, 0);
  h_done(h, 7, 1, 1);
  assert_int_equal(h_act(h, BR_ACT_DROP_STAGE)->stage, 0); /* no loss of a worker can want them */
  h_clear(h);
  h_lose(h, 1);
  h_join(h, 2, 4);
  assert_string_equal(h_ran(h), "2.0");
  br_map_output_id o;
  bool growing;
  assert_true(br_sched_output(h->s, 7, 1, 0, &o, &growing));
  assert_int_equal(o.made_by.attempt, 1);
  h_free(h);
}

static void test_a_file_that_is_lost_all_the_same(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_error err;
  h_join(h, 1, 4);
  h_query(h, 7, lasting, 3);
  h_finish(h, 0);
  h_finish(h, 1);
  h_lose(h, 1);
  h_join(h, 2, 4);
  h_clear(h);
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "no such file");
  err.has_lost = true;
  err.lost = (br_map_output_id){.made_by = {.query = 7, .stage = 1, .task = 1, .attempt = 1}};
  h_answer(h, h_find(h, 7, 2, 0), BR_EV_TASK_FAILED, &err);
  h_finish(h, 0);
  h_finish(h, 1);
  assert_string_equal(h_ran(h), "0.0 0.1 1.1"); /* also what lies behind it */
  h_free(h);
}

/* ---- draining */
static void test_idle_worker_is_released_at_once(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  drain(h, 1);
  assert_int_equal(h_act(h, BR_ACT_RELEASE_WORKER)->worker, 1);
  drain(h, 1);
  assert_int_equal(h->a.count, 0);
  h_tick(h, 1);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 0); /* once */
  h_free(h);
}

static void test_released_when_its_outputs_were_read(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, chain, 3);
  h_done(h, 7, 0, 0);
  drain(h, 1);
  h_join(h, 2, 4);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 0); /* 0.1 runs there */
  h_done(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 0); /* stage 1 reads them */
  assert_int_equal(h->runs[0].worker, 2);
  h_finish(h, 1);
  assert_int_equal(h_act(h, BR_ACT_RELEASE_WORKER)->worker, 1); /* retired ones don't hold it */
  assert_int_equal(h_where(h, 7, 0, 0), 0);                     /* and count as gone */
  h_clear(h);
  h_lose(h, 1); /* it has left: costs nothing */
  assert_string_equal(h_ran(h), "");
  h_finish(h, 2);
  h_read(h, 7, 2, 0);
  h_read(h, 7, 2, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_results_that_were_not_read_hold_it(void **state) {
  (void)state;
  const br_sched_stage one[] = {{.tasks = 2, .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, one, 1);
  h_finish(h, 0);
  drain(h, 1);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 0);
  h_read(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 0);
  h_read(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 1);
  h_free(h);
}

static void test_what_is_being_stopped_holds_it(void **state) {
  (void)state;
  const br_sched_stage one[] = {{.tasks = 1, .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, one, 1);
  drain(h, 1);
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 7});
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 0);
  h_answer(h, 0, BR_EV_TASK_FAILED, NULL);
  assert_int_equal(h_count(h, BR_ACT_RELEASE_WORKER), 1);
  h_free(h);
}

static void test_work_of_a_last_stage_and_lasting_files_do_not_hold_it(void **state) {
  (void)state;
  const br_sched_stage last[] = {
      {.tasks = 1}, {.tasks = 2, INPUTS(ALL(0)), .outlives = true}, {.tasks = 1, INPUTS(ALL(1))}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, last, 3);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 1, 0);
  drain(h, 1);
  h_join(h, 2, 1);
  h_finish(h, UINT32_MAX);
  assert_false(h_count(h, BR_ACT_QUERY_FAILED) > 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_worker_that_leaves_before_its_release(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  drain(h, 1);
  h_join(h, 2, 4);
  h_clear(h);
  h_lose(h, 1); /* its own deadline: what it had is made again */
  assert_string_equal(h_ran(h), "0.0 0.1");
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  h_free(h);
}

/* ---- what went wrong elsewhere */
/* A fetch failure whose code got lost on the way was a plain task failure: readers ran again for nothing until the job failed, the maps never did. */
static void test_fetch_failure_runs_the_map_again(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_error err;
  bool growing;
  h_join(h, 1, 4);
  h_query(h, 7, chain, 3);
  h_finish(h, 0);
  for (int i = 0; i < 10; i++) { /* more often than a task may fail */
    h_clear(h);
    br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "gone");
    err.has_lost = true;
    assert_true(br_sched_output(h->s, 7, 0, 0, &err.lost, &growing));
    br_error_context(&err, "reading partition 3"); /* context does not change what it is */
    h_answer(h, h_find(h, 7, 1, 0), BR_EV_TASK_FAILED, &err);
    assert_string_equal(h_ran(h), "0.0");
    h_done(h, 7, 0, 0);
    h->now += 10000;
    h_hear(h, 1);
    if (h->inc[1] && !h_runs(h, 7, 1, 0)) h_tick(h, 0);
    assert_true(h_runs(h, 7, 1, 0));
  }
  h_free(h);
}

/* A worker was killed before its first task had ended: 0 rows and no error. */
static void test_worker_killed_at_once(void **state) {
  (void)state;
  const br_sched_stage one[] = {{.tasks = 1, .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, one, 1);
  h_lose(h, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE) + h_count(h, BR_ACT_RESULT), 0);
  h_read(h, 7, 0, 0); /* there is nothing to read */
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 0);
  h_tick(h, 60000);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_LOST);
  h_free(h);
}

/* A repeated report of a map that had died since raced with the one that was made again. */
static void test_repeated_report_of_a_dead_output(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, chain, 3);
  size_t i = h_find(h, 7, 0, 0);
  br_action first = h->runs[i];
  h_answer(h, i, BR_EV_TASK_DONE, NULL);
  h_lose(h, first.worker);
  br_event again = {
      .kind = BR_EV_TASK_DONE, .attempt = first.attempt, .worker = first.worker, .incarnation = first.incarnation};
  h_step(h, again);
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  h_finish(h, 0);
  br_map_output_id o;
  bool growing;
  assert_true(br_sched_output(h->s, 7, 0, 0, &o, &growing));
  assert_int_equal(o.made_by.attempt, 2);
  h_step(h, again);
  assert_true(br_sched_output(h->s, 7, 0, 0, &o, &growing));
  assert_int_equal(o.made_by.attempt, 2);
  h_free(h);
}

/* Two inputs of a join were read by different sets of workers; a partition that was missing was skipped. Here every RUN comes with tables that name
 * each task of each input, whatever joins, leaves and dies in between. */
static void every_input_is_named(const harness *h, const br_sched_stage *stages) {
  for (size_t i = 0; i < h->a.count; i++) {
    if (h->a.items[i].kind != BR_ACT_RUN) continue;
    const br_sched_stage *st = &stages[h->a.items[i].attempt.stage];
    for (size_t k = 0; k < st->n_inputs; k++) {
      assert_true(br_sched_table_version(h->s, 7, st->inputs[k].stage) > 0);
      for (uint32_t t = 0; t < stages[st->inputs[k].stage].tasks; t++)
        assert_int_not_equal(h_where(h, 7, st->inputs[k].stage, t), 0);
    }
  }
}

static void test_both_inputs_of_a_join_are_complete(void **state) {
  (void)state;
  const br_sched_stage join[] = {
      {.tasks = 5}, {.tasks = 4}, {.tasks = 6, INPUTS(ALL(0), ALL(1))}, {.tasks = 1, INPUTS(ALL(2)), .result = true}};
  for (int mode = 0; mode < 2; mode++)
    for (uint32_t at = 0; at < 15; at++) {
      harness *h = h_new(NULL);
      uint32_t n = 0;
      for (uint32_t w = 1; w <= 3; w++) h_join(h, w, 2);
      h_step(h,
             (br_event){.kind = BR_EV_QUERY, .query = 7, .stages = join, .n_stages = 4, .mode = (br_sched_mode)mode});
      for (; h->n_runs > 0 && n < 300; n++) {
        if (n == at) h_lose(h, 1 + at % 3);
        every_input_is_named(h, join);
        if (n == at) h_join(h, 4, 2);
        every_input_is_named(h, join);
        h_answer(h, 0, h->cancelled[0] ? BR_EV_TASK_FAILED : BR_EV_TASK_DONE, NULL);
        every_input_is_named(h, join);
      }
      h_read(h, 7, 3, 0);
      assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
      h_free(h);
    }
}

/* What was released came back as empty: an output that was dropped is not there, never one of no rows. */
static void test_dropped_output_is_not_an_empty_one(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 4);
  h_query(h, 7, lasting, 3);
  h_finish(h, 0);
  h_finish(h, 1);
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  h_free(h);
}

/* Ids of two jobs met in one directory: the same stage and task of two queries have nothing to do with each other. */
static void test_two_queries_with_the_same_numbers(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 8);
  h_query(h, 7, chain, 3);
  h_query(h, 8, chain, 3);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  assert_true(h_runs(h, 7, 1, 0));
  assert_false(h_runs(h, 8, 1, 0));
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 7});
  assert_int_equal(h_act(h, BR_ACT_DROP_QUERY)->query, 7);
  assert_true(h_runs(h, 8, 0, 0));
  h_free(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_retired_is_said_once_and_dropped_when_no_loss_can_matter),
      cmocka_unit_test(test_dropped_behind_a_result_that_was_read),
      cmocka_unit_test(test_evicted_outputs_are_no_event_until_they_are_needed),
      cmocka_unit_test(test_old_news_about_outputs),
      cmocka_unit_test(test_outputs_that_outlive_their_worker),
      cmocka_unit_test(test_a_file_that_is_lost_all_the_same),
      cmocka_unit_test(test_idle_worker_is_released_at_once),
      cmocka_unit_test(test_released_when_its_outputs_were_read),
      cmocka_unit_test(test_results_that_were_not_read_hold_it),
      cmocka_unit_test(test_what_is_being_stopped_holds_it),
      cmocka_unit_test(test_work_of_a_last_stage_and_lasting_files_do_not_hold_it),
      cmocka_unit_test(test_worker_that_leaves_before_its_release),
      cmocka_unit_test(test_fetch_failure_runs_the_map_again),
      cmocka_unit_test(test_worker_killed_at_once),
      cmocka_unit_test(test_repeated_report_of_a_dead_output),
      cmocka_unit_test(test_both_inputs_of_a_join_are_complete),
      cmocka_unit_test(test_dropped_output_is_not_an_empty_one),
      cmocka_unit_test(test_two_queries_with_the_same_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
