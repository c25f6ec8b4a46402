/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Eager mode: who is admitted when, what tables name, who is bound to whom, and that nobody waits in a circle. */
#include "schedule_help.h"

static const br_sched_stage pair[] = {{.tasks = 2}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
static const br_sched_stage chain[] = {
    {.tasks = 2}, {.tasks = 2, INPUTS(ALL(0))}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};

static void eager(harness *h, uint64_t id, const br_sched_stage *stages, size_t n, uint32_t max_running) {
  h_step(h, (br_event){.kind = BR_EV_QUERY,
                       .query = id,
                       .stages = stages,
                       .n_stages = n,
                       .mode = BR_SCHED_EAGER,
                       .max_running = max_running});
}

static harness *h_eager(uint32_t workers, uint32_t slots, const br_sched_stage *stages, size_t n) {
  const br_sched_options o = {.straggler_percent = UINT32_MAX};
  harness *h = h_new(&o);
  for (uint32_t w = 1; w <= workers; w++) h_join(h, w, slots);
  eager(h, 7, stages, n, 0);
  return h;
}

static bool grows(const harness *h, uint32_t stage, uint32_t task, uint16_t attempt) {
  br_map_output_id o;
  bool growing = false;
  return br_sched_output(h->s, 7, stage, task, &o, &growing) && growing && o.made_by.attempt == attempt;
}

static uint32_t in_state(const harness *h, uint32_t stage, br_task_state state) {
  br_sched_counts c;
  assert_true(br_sched_stage_counts(h->s, 7, stage, &c));
  return c.tasks[state];
}

static void stopped(harness *h) { /* what was told to stop says so */
  for (size_t i = 0; i < h->n_runs;) {
    if (!h->cancelled[i]) {
      i++;
      continue;
    }
    h_answer(h, i, BR_EV_TASK_FAILED, NULL);
    i = 0;
  }
}

/* ---- admission */
static void test_readers_start_with_their_producers(void **state) {
  (void)state;
  harness *h = h_eager(2, 4, chain, 3);
  assert_string_equal(h->log, "0.0 0.1 1.0 1.1 2.0");
  assert_true(grows(h, 0, 0, 1) && grows(h, 0, 1, 1) && grows(h, 1, 0, 1));
  assert_int_equal(br_sched_table_version(h->s, 7, 0), 1);
  assert_int_equal(br_sched_table_version(h->s, 7, 1), 1);
  assert_int_equal(h_count(h, BR_ACT_TABLE), 2); /* one for all readers of a stage */
  size_t table = 0, reader = 0;
  for (size_t i = 0; i < h->a.count; i++) {
    if (h->a.items[i].kind == BR_ACT_TABLE && h->a.items[i].stage == 1) table = i;
    if (h->a.items[i].kind == BR_ACT_RUN && h->a.items[i].attempt.stage == 2) reader = i;
  }
  assert_true(table < reader);
  h_done(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_TABLE), 0); /* it has the same name as before */
  assert_false(grows(h, 0, 0, 1));
  assert_int_not_equal(h_where(h, 7, 0, 0), 0);
  h_finish(h, 0);
  h_finish(h, 1);
  h_finish(h, 2);
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  assert_string_equal(h->log, "0.0 0.1 1.0 1.1 2.0");
  h_free(h);
}

static void test_one_slot_is_staged(void **state) {
  (void)state;
  harness *h = h_eager(1, 1, chain, 3);
  const char *const order[] = {"0.0", "0.1", "1.0", "1.1", "2.0"};
  for (size_t i = 0; i < 5; i++) {
    assert_int_equal(h->n_runs, 1);
    char word[8];
    snprintf(word, sizeof word, "%u.%u", h->runs[0].attempt.stage, h->runs[0].attempt.task);
    assert_string_equal(word, order[i]);
    h_answer(h, 0, BR_EV_TASK_DONE, NULL);
  }
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_more_producers_than_slots(void **state) {
  (void)state;
  const br_sched_stage wide[] = {{.tasks = 5}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
  harness *h = h_eager(1, 2, wide, 2);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  assert_int_equal(in_state(h, 1, BR_TASK_PENDING), 2); /* 0.4 has no slot yet */
  h_done(h, 7, 0, 2);
  assert_string_equal(h->log, "0.0 0.1 0.2 0.3 0.4");
  h_done(h, 7, 0, 3);
  assert_true(h_runs(h, 7, 1, 0)); /* beside the last producer */
  assert_true(grows(h, 0, 4, 1));
  h_finish(h, UINT32_MAX);
  h_read(h, 7, 1, 0);
  h_read(h, 7, 1, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_complete_inputs_are_waited_for(void **state) {
  (void)state;
  const br_sched_input in[] = {{.stage = 0, .kind = BR_READ_ALL, .complete = true}, {.stage = 1, .kind = BR_READ_ALL}};
  const br_sched_stage q[] = {{.tasks = 2}, {.tasks = 1}, {.tasks = 1, .inputs = in, .n_inputs = 2, .result = true}};
  harness *h = h_eager(2, 4, q, 3);
  assert_false(h_runs(h, 7, 2, 0));
  h_done(h, 7, 0, 0);
  assert_false(h_runs(h, 7, 2, 0));
  h_done(h, 7, 0, 1);
  assert_true(h_runs(h, 7, 2, 0)); /* while 1.0 writes */
  assert_true(grows(h, 1, 0, 1));
  h_free(h);
}

static void test_a_bound_on_running_attempts_is_staged_too(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 8);
  eager(h, 7, chain, 3, 1);
  while (h->n_runs > 0) {
    assert_int_equal(h->n_runs, 1);
    h_answer(h, 0, BR_EV_TASK_DONE, NULL);
  }
  h_read(h, 7, 2, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_staged_queries_have_no_growing_outputs(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 8);
  h_query(h, 7, chain, 3);
  assert_string_equal(h->log, "0.0 0.1");
  assert_false(grows(h, 0, 0, 1));
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  h_free(h);
}

/* ---- bound readers */
static void test_failed_producer_restarts_its_readers_uncharged(void **state) {
  (void)state;
  harness *h = h_eager(1, 4, pair, 2);
  for (int i = 0; i < 3; i++) { /* readers are not charged: they would be out of attempts after four */
    h_clear(h);
    assert_true(h_runs(h, 7, 1, 0) && h_runs(h, 7, 1, 1));
    h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
    assert_int_equal(h_count(h, BR_ACT_CANCEL), 2);
    assert_int_equal(in_state(h, 1, BR_TASK_PENDING), 2); /* not before it has a slot again */
    stopped(h);
    h_tick(h, 2000);
    h_hear(h, 1);
    assert_string_equal(h_ran(h), "0.0 1.0 1.1");
    assert_true(grows(h, 0, 0, (uint16_t)(i + 2)));
    assert_int_equal(br_sched_table_version(h->s, 7, 0), i + 2);
  }
  for (int i = 0; i < 3; i++) { /* all four tries of the reader are still there */
    h_fail(h, 7, 1, 0, BR_IO, BR_BLAME_TASK);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    h_tick(h, 2000);
    h_hear(h, 1);
  }
  h_fail(h, 7, 1, 0, BR_IO, BR_BLAME_TASK);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  h_free(h);
}

static void test_committed_producer_that_is_lost_restarts_bound_readers(void **state) {
  (void)state;
  harness *h = h_eager(2, 4, pair, 2);
  uint32_t w = h->runs[h_find(h, 7, 0, 0)].worker;
  h_done(h, 7, 0, 0);
  size_t away = 0;
  for (uint32_t t = 0; t < 2; t++) away += h->runs[h_find(h, 7, 1, t)].worker != w;
  h_clear(h);
  h_lose(h, w);
  assert_int_equal(h_count(h, BR_ACT_CANCEL), away); /* those elsewhere, too: they were bound to 0.0 */
  stopped(h);
  assert_non_null(strstr(h->log, "0.0"));
  assert_non_null(strstr(h->log, "1.0"));
  assert_non_null(strstr(h->log, "1.1"));
  h_free(h);
}

static void test_restart_goes_down_the_line(void **state) {
  (void)state;
  harness *h = h_eager(1, 8, chain, 3);
  h_clear(h);
  h_fail(h, 7, 0, 1, BR_IO, BR_BLAME_TASK);
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 3); /* 1.0, 1.1, and 2.0 that reads them */
  stopped(h);
  h_tick(h, 200);
  assert_string_equal(h_ran(h), "0.1 1.0 1.1 2.0");
  h_free(h);
}

static void test_reader_of_committed_inputs_is_not_bound(void **state) {
  (void)state;
  harness *h = h_eager(1, 2, pair, 2);
  h_finish(h, 0);
  h_join(h, 2, 2);
  h_fail(h, 7, 1, 0, BR_IO, BR_BLAME_TASK); /* one of them goes to worker 2 */
  h_tick(h, 200);
  assert_int_equal(h->runs[h_find(h, 7, 1, 0)].worker, 2);
  h_clear(h);
  h_lose(h, 1);
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 0); /* it may have read all that it needs */
  assert_true(h_runs(h, 7, 1, 0));
  h_finish(h, UINT32_MAX);
  assert_null(strstr(h->log, "1.0"));
  h_free(h);
}

/* Readers hold all slots when a producer must be made again: those who read it are told to go, so it gets one. */
static void test_readers_in_all_slots_do_not_lock_out_a_producer(void **state) {
  (void)state;
  const br_sched_stage q[] = {{.tasks = 2}, {.tasks = 6, INPUTS(ALL(0)), .result = true}};
  harness *h = h_eager(2, 2, q, 2);
  size_t answers = 0;
  h_done(h, 7, 0, 0);
  assert_int_equal(h->n_runs, 4); /* 0.1 and three readers: all slots are taken */
  h_clear(h);
  h_lose(h, h->runs[h_find(h, 7, 0, 1)].worker);
  stopped(h);
  assert_true(h_runs(h, 7, 0, 1));
  while (h->n_runs > 0 && answers++ < 100) h_finish(h, UINT32_MAX);
  for (uint32_t t = 0; t < 6; t++) h_read(h, 7, 1, t);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

/* The same for any loss at any point, with one slot a worker, two queries, and readers answered first: it always ends. */
static void test_it_always_ends(void **state) {
  (void)state;
  const br_sched_stage deep[] = {{.tasks = 2},
                                 {.tasks = 3, INPUTS(ALL(0))},
                                 {.tasks = 2, INPUTS(ALL(1), CAST(0))},
                                 {.tasks = 2, INPUTS(ALL(2)), .result = true}};
  for (uint32_t slots = 1; slots <= 3; slots++)
    for (uint32_t at = 0; at < 20; at++) {
      harness *h = h_eager(3, slots, deep, 4);
      uint32_t n = 0, done = 0;
      eager(h, 8, deep, 4, 0);
      for (; h->n_runs > 0 && n < 500; n++) {
        size_t pick = 0;
        if (n == at) h_lose(h, 2);
        stopped(h);
        for (size_t i = 1; i < h->n_runs; i++)
          if (h->runs[i].attempt.stage > h->runs[pick].attempt.stage) pick = i;
        if (h->n_runs > 0) h_answer(h, pick, BR_EV_TASK_DONE, NULL);
      }
      assert_true(n < 500);
      for (uint64_t q = 7; q <= 8; q++)
        for (uint32_t t = 0; t < 2; t++) {
          h_read(h, q, 3, t);
          done += (uint32_t)h_count(h, BR_ACT_QUERY_DONE);
        }
      assert_int_equal(done, 2);
      h_free(h);
    }
}

/* ---- who commits before what it reads */
static void test_producers_that_nobody_needs_are_stopped(void **state) {
  (void)state;
  harness *h = h_eager(1, 8, pair, 2);
  h_done(h, 7, 1, 0);                             /* LIMIT: it had enough */
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 0); /* 1.1 still reads */
  h_done(h, 7, 1, 1);
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 2);
  assert_int_equal(in_state(h, 0, BR_TASK_STOPPED), 2);
  br_action late = h->runs[0];
  h_step(h, (br_event){.kind = BR_EV_TASK_DONE, .attempt = late.attempt, .worker = 1, .incarnation = 1});
  assert_int_equal(h_count(h, BR_ACT_DROP_OUTPUT), 1); /* it was quicker than the word */
  assert_int_equal(in_state(h, 0, BR_TASK_STOPPED), 2);
  h_read(h, 7, 1, 0);
  h_read(h, 7, 1, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_stopped_producers_run_again_when_the_result_is_lost(void **state) {
  (void)state;
  const br_sched_stage q[] = {{.tasks = 1}, {.tasks = 1, INPUTS(ALL(0)), .result = true}};
  harness *h = h_eager(1, 4, q, 2);
  h_done(h, 7, 1, 0);
  assert_int_equal(in_state(h, 0, BR_TASK_STOPPED), 1);
  h_clear(h);
  h_lose(h, 1);
  h_join(h, 2, 4);
  assert_string_equal(h->log, "0.0 1.0");
  h_free(h);
}

static void test_early_reader_stays_when_the_producer_is_deterministic(void **state) {
  (void)state;
  harness *h = h_eager(1, 8, pair, 2);
  h_done(h, 7, 1, 0);
  h_clear(h);
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  stopped(h);
  h_tick(h, 200);
  assert_string_equal(h_ran(h), "0.0 1.1");
  assert_int_not_equal(h_where(h, 7, 1, 0), 0);
  h_free(h);
}

static void test_early_reader_is_void_when_the_producer_is_not(void **state) {
  (void)state;
  const br_sched_stage q[] = {{.tasks = 2, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
  harness *h = h_eager(1, 8, q, 2);
  h_done(h, 7, 1, 0);
  h_clear(h);
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  assert_int_equal(h_act(h, BR_ACT_DROP_OUTPUT)->attempt.stage, 1); /* it mixes with what 1.1 will read */
  stopped(h);
  h_tick(h, 200);
  assert_string_equal(h_ran(h), "0.0 1.0 1.1");
  h_free(h);
}

static void test_void_through_an_attempt_that_never_committed(void **state) {
  (void)state;
  /* 2.0 has committed early what 1.0 wrote from 0.0. 0.0 and 1.0 are lost together. 2.1 wants them again: 2.0 does not fit any more. */
  const br_sched_stage q[] = {
      {.tasks = 1, .indeterminate = true}, {.tasks = 1, INPUTS(ALL(0))}, {.tasks = 2, INPUTS(ALL(1)), .result = true}};
  const br_sched_options o = {.straggler_percent = UINT32_MAX};
  harness *h = h_new(&o);
  h_join(h, 1, 2);
  eager(h, 7, q, 3, 0); /* 0.0 and 1.0 on worker 1 */
  h_join(h, 2, 2);      /* 2.0 and 2.1 on worker 2 */
  assert_int_equal(h->runs[h_find(h, 7, 2, 0)].worker, 2);
  h_done(h, 7, 2, 0);
  h_clear(h);
  h_lose(h, 1);
  stopped(h);
  h_join(h, 3, 4);
  assert_string_equal(h_ran(h), "0.0 1.0 2.0 2.1");
  h_free(h);
}

static void test_rows_of_an_early_reader_were_handed_out(void **state) {
  (void)state;
  const br_sched_stage q[] = {{.tasks = 2, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
  harness *h = h_eager(1, 8, q, 2);
  h_done(h, 7, 1, 0);
  h_read(h, 7, 1, 0);
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_LOST);
  assert_non_null(strstr(h_act(h, BR_ACT_QUERY_FAILED)->error.message, "handed out"));
  h_free(h);
}

/* ---- news about growing outputs */
static void test_reader_that_is_quicker_with_the_news(void **state) {
  (void)state;
  harness *h = h_eager(1, 8, pair, 2);
  br_error err;
  size_t p = h_find(h, 7, 0, 0);
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "the attempt that wrote it died");
  err.has_lost = true;
  err.lost = (br_map_output_id){.made_by = h->runs[p].attempt, .worker = 1, .incarnation = 1};
  h_answer(h, h_find(h, 7, 1, 0), BR_EV_TASK_FAILED, &err);
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 0); /* why it died is on its way */
  h_fail(h, 7, 0, 0, BR_EXECUTION, BR_BLAME_USER);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_EXECUTION);
  h_free(h);
}

static void test_worker_that_lost_what_was_written(void **state) {
  (void)state;
  harness *h = h_eager(1, 8, pair, 2);
  br_attempt_id lost = h->runs[h_find(h, 7, 0, 0)].attempt, old = lost;
  old.attempt = 9;
  h_step(h, (br_event){.kind = BR_EV_OUTPUTS_LOST, .worker = 1, .incarnation = 1, .attempts = &old, .n_attempts = 1});
  assert_int_equal(h->a.count, 0);
  h_step(h, (br_event){.kind = BR_EV_OUTPUTS_LOST, .worker = 1, .incarnation = 1, .attempts = &lost, .n_attempts = 1});
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 3);
  stopped(h);
  h_clear(h);
  h_tick(h, 200);
  assert_string_equal(h_ran(h), "0.0 1.0 1.1");
  h_free(h);
}

static void test_worker_that_joins_gets_growing_tables(void **state) {
  (void)state;
  harness *h = h_eager(1, 3, pair, 2);
  h_join(h, 2, 1); /* 1.1 goes there */
  assert_int_equal(h_act(h, BR_ACT_TABLE)->worker, 2);
  assert_int_equal(h_act(h, BR_ACT_TABLE)->version, 1);
  assert_true(h_at(h, BR_ACT_TABLE) < h_at(h, BR_ACT_RUN));
  assert_int_equal(h->runs[h_find(h, 7, 1, 1)].worker, 2);
  h_free(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_readers_start_with_their_producers),
      cmocka_unit_test(test_one_slot_is_staged),
      cmocka_unit_test(test_more_producers_than_slots),
      cmocka_unit_test(test_complete_inputs_are_waited_for),
      cmocka_unit_test(test_a_bound_on_running_attempts_is_staged_too),
      cmocka_unit_test(test_staged_queries_have_no_growing_outputs),
      cmocka_unit_test(test_failed_producer_restarts_its_readers_uncharged),
      cmocka_unit_test(test_committed_producer_that_is_lost_restarts_bound_readers),
      cmocka_unit_test(test_restart_goes_down_the_line),
      cmocka_unit_test(test_reader_of_committed_inputs_is_not_bound),
      cmocka_unit_test(test_readers_in_all_slots_do_not_lock_out_a_producer),
      cmocka_unit_test(test_it_always_ends),
      cmocka_unit_test(test_producers_that_nobody_needs_are_stopped),
      cmocka_unit_test(test_stopped_producers_run_again_when_the_result_is_lost),
      cmocka_unit_test(test_early_reader_stays_when_the_producer_is_deterministic),
      cmocka_unit_test(test_early_reader_is_void_when_the_producer_is_not),
      cmocka_unit_test(test_void_through_an_attempt_that_never_committed),
      cmocka_unit_test(test_rows_of_an_early_reader_were_handed_out),
      cmocka_unit_test(test_reader_that_is_quicker_with_the_news),
      cmocka_unit_test(test_worker_that_lost_what_was_written),
      cmocka_unit_test(test_worker_that_joins_gets_growing_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
