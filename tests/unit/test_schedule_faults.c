/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Attempts, backoff, users' errors, killers, failed fetches, silence, zombies, late answers, cancel, no workers, wake-ups. */
#include "schedule_help.h"

static const br_sched_stage one[] = {{.tasks = 1, .result = true}};
static const br_sched_stage two[] = {{.tasks = 2, .result = true}};
static const br_sched_stage chain[] = {{.tasks = 2}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};

static void pass(harness *h, uint64_t ms) { /* time goes by, everybody beats */
  while (ms > 0) {
    uint64_t part = ms < 5000 ? ms : 5000;
    h->now += part;
    ms -= part;
    for (uint32_t w = 1; w < 64; w++)
      if (h->inc[w]) h_hear(h, w);
    h_tick(h, 0);
  }
}

static void test_four_attempts_with_backoff(void **state) {
  (void)state;
  const uint64_t wait_ms[] = {200, 400, 800};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, one, 1);
  for (size_t i = 0; i < 3; i++) {
    h_fail(h, 7, 0, 0, i == 1 ? BR_OUT_OF_MEMORY : BR_IO, BR_BLAME_TASK);
    assert_int_equal(h->n_runs, 0);
    assert_int_equal(h_act(h, BR_ACT_WAKE)->at_ms, h->now + wait_ms[i]);
    h_tick(h, wait_ms[i] - 1);
    assert_int_equal(h->n_runs, 0);
    h_tick(h, 1);
    assert_int_equal(h->n_runs, 1);
    assert_int_equal(h->runs[0].attempt.attempt, i + 2);
  }
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  const br_action *f = h_act(h, BR_ACT_QUERY_FAILED);
  assert_non_null(f);
  assert_int_equal(f->error.code, BR_IO);
  assert_true(f->error.has_attempt);
  assert_int_equal(f->error.attempt.attempt, 4);
  assert_non_null(strstr(f->error.message, "attempt 4 of 4"));
  assert_non_null(strstr(f->error.message, "made up"));
  assert_true(h_at(h, BR_ACT_QUERY_FAILED) < h_at(h, BR_ACT_DROP_QUERY));
  h_free(h);
}

static void test_backoff_has_a_limit_and_options_count(void **state) {
  (void)state;
  const br_sched_options o = {.max_attempts = 6, .backoff_first_ms = 100, .backoff_max_ms = 300};
  const uint64_t wait_ms[] = {100, 200, 300, 300, 300};
  harness *h = h_new(&o);
  h_join(h, 1, 1);
  h_query(h, 7, one, 1);
  for (size_t i = 0; i < 5; i++) {
    h_fail(h, 7, 0, 0, BR_NETWORK, BR_BLAME_TASK);
    h_tick(h, wait_ms[i] - 1);
    assert_int_equal(h->n_runs, 0);
    h_tick(h, 1);
    assert_int_equal(h->n_runs, 1);
  }
  h_fail(h, 7, 0, 0, BR_NETWORK, BR_BLAME_TASK);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  h_free(h);
}

static void test_failed_task_goes_to_another_worker(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, two, 1);
  uint32_t bad = h->runs[h_find(h, 7, 0, 0)].worker;
  h_fail(h, 7, 0, 0, BR_NO_SPACE, BR_BLAME_TASK);
  h_tick(h, 200);
  assert_false(h_runs(h, 7, 0, 0)); /* only the bad one has a slot: it waits for the other */
  h_done(h, 7, 0, 1);
  assert_true(h_runs(h, 7, 0, 0));
  assert_int_not_equal(h->runs[h_find(h, 7, 0, 0)].worker, bad);
  h_fail(h, 7, 0, 0, BR_NO_SPACE, BR_BLAME_TASK);
  h_tick(h, 400);
  assert_int_equal(h->runs[h_find(h, 7, 0, 0)].worker, bad);
  h_free(h);
}

static void test_failed_task_takes_the_same_worker_when_it_is_the_last(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, two, 1);
  uint32_t bad = h->runs[h_find(h, 7, 0, 0)].worker;
  h_fail(h, 7, 0, 0, BR_NO_SPACE, BR_BLAME_TASK);
  h_tick(h, 200);
  assert_false(h_runs(h, 7, 0, 0));
  h_lose(h, 3 - bad);
  assert_true(h_runs(h, 7, 0, 0) || h_runs(h, 7, 0, 1));
  h_finish(h, UINT32_MAX);
  assert_int_not_equal(h_where(h, 7, 0, 0), 0);
  h_free(h);
}

static void test_user_error_fails_at_once(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, two, 1);
  h_fail(h, 7, 0, 1, BR_EXECUTION, BR_BLAME_USER);
  const br_action *f = h_act(h, BR_ACT_QUERY_FAILED);
  assert_non_null(f);
  assert_int_equal(f->error.code, BR_EXECUTION);
  assert_int_equal(f->error.attempt.task, 1);
  assert_int_equal(h_act(h, BR_ACT_CANCEL)->attempt.task, 0);
  assert_true(h_at(h, BR_ACT_CANCEL) < h_at(h, BR_ACT_QUERY_FAILED));
  h_free(h);
}

static void test_what_cannot_pass_is_not_tried_again(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_error err;
  h_join(h, 1, 2);
  h_query(h, 7, one, 1);
  h_fail(h, 7, 0, 0, BR_UNSUPPORTED, BR_BLAME_TASK);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  h_query(h, 8, one, 1);
  br_fail(&err, BR_INTERNAL, BR_BLAME_INTERNAL, "made up");
  err.retryable = true; /* whoever saw it says that it may pass */
  h_answer(h, h_find(h, 8, 0, 0), BR_EV_TASK_FAILED, &err);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  h_tick(h, 200);
  assert_true(h_runs(h, 8, 0, 0));
  h_answer(h, h_find(h, 8, 0, 0), BR_EV_TASK_FAILED, NULL); /* no error at all: a bug, but no crash */
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_INTERNAL);
  h_free(h);
}

static void test_executor_loss_is_not_charged_until_the_killer_shows(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, chain, 2);
  h_done(h, 7, 0, 1);
  for (int i = 0; i < 2; i++) {
    h_answer(h, h_find(h, 7, 0, 0), BR_EV_EXECUTOR_LOST, NULL);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    assert_int_not_equal(h_where(h, 7, 0, 1), 0); /* the outputs of the node outlive the executor */
    pass(h, 1000);
    assert_true(h_runs(h, 7, 0, 0));
  }
  for (int i = 0; i < 3; i++) { /* all four attempts are still there: deaths were not charged */
    h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    pass(h, 10000);
    assert_true(h_runs(h, 7, 0, 0));
  }
  h_fail(h, 7, 0, 0, BR_LOST, BR_BLAME_EXECUTOR); /* said the other way, it counts the same */
  const br_action *f = h_act(h, BR_ACT_QUERY_FAILED);
  assert_non_null(f);
  assert_non_null(strstr(f->error.message, "3 executors died"));
  h_free(h);
}

static void test_task_that_kills_workers_is_stopped(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  for (uint32_t w = 1; w <= 14; w++) h_join(h, w, 1);
  h_query(h, 7, one, 1);
  for (int i = 0; i < 11; i++) { /* machines go for many reasons: a lost one counts a quarter of an executor */
    h_lose(h, h->runs[0].worker);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    assert_int_equal(h->n_runs, 1); /* at once, elsewhere */
  }
  h_lose(h, h->runs[0].worker);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  h_free(h);
}

static void test_drained_worker_takes_nothing_and_costs_nothing(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, two, 1);
  for (uint32_t round = 0; round < 4; round++) { /* more than killers get */
    uint32_t w = h->runs[h_find(h, 7, 0, 0)].worker;
    h_step(h, (br_event){.kind = BR_EV_WORKER_DRAINING, .worker = w});
    h_join(h, w + 1, 2);
    h_lose(h, w);
    assert_true(h_runs(h, 7, 0, 0) && h_runs(h, 7, 0, 1));
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  }
  uint32_t w = h->runs[h_find(h, 7, 0, 0)].worker;
  h_step(h, (br_event){.kind = BR_EV_WORKER_DRAINING, .worker = w});
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  pass(h, 1000);
  assert_false(h_runs(h, 7, 0, 0)); /* a free slot, but draining */
  h_done(h, 7, 0, 1);
  h_join(h, 40, 1);
  assert_true(h_runs(h, 7, 0, 0));
  h_free(h);
}

/* ---- fetch failures */
static void fail_fetch(harness *h, uint32_t stage, uint32_t task, const br_map_output_id *lost, uint32_t worker) {
  br_error err;
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "can't read");
  err.worker = worker;
  if (lost) {
    err.has_lost = true;
    err.lost = *lost;
  }
  h_answer(h, h_find(h, 7, stage, task), BR_EV_TASK_FAILED, &err);
}

static void test_lost_output_is_made_again_and_the_reader_is_not_charged(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_map_output_id o;
  bool growing;
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, chain, 2);
  h_finish(h, 0);
  assert_true(br_sched_output(h->s, 7, 0, 1, &o, &growing));
  h_clear(h);
  fail_fetch(h, 1, 0, &o, 0);
  assert_int_equal(h_act(h, BR_ACT_DROP_OUTPUT)->attempt.task, 1);
  assert_string_equal(h_ran(h), "0.1");
  fail_fetch(h, 1, 1, &o, 0); /* the other reader says the same: no news */
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  h_done(h, 7, 0, 1);
  assert_int_equal(h_act(h, BR_ACT_TABLE)->version, 2);
  pass(h, 400);
  assert_string_equal(h_ran(h), "0.1 1.0 1.1");
  fail_fetch(h, 1, 0, &o, 0); /* the old output again: nothing is lost */
  assert_int_equal(h_count(h, BR_ACT_DROP_OUTPUT), 0);
  pass(h, 400);
  for (int i = 0; i < 3; i++) { /* four tries are still there */
    h_fail(h, 7, 1, 0, BR_IO, BR_BLAME_TASK);
    assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
    pass(h, 10000);
    if (h_runs(h, 7, 1, 1)) h_done(h, 7, 1, 1);
    assert_true(h_runs(h, 7, 1, 0));
  }
  h_free(h);
}

static void probed(harness *h, uint32_t worker, br_code code) {
  br_error err = {0};
  if (code != BR_OK) br_fail(&err, code, BR_BLAME_WORKER, "connection refused");
  h_step(h, (br_event){.kind = BR_EV_PROBED, .worker = worker, .incarnation = h->inc[worker], .error = &err});
}

/* Worker 1 holds the maps; readers run on 1, 2 and 3. */
static harness *h_readers(void) {
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, chain, 2);
  h_finish(h, 0);
  h_join(h, 2, 1);
  h_join(h, 3, 1);
  return h;
}

static void test_worker_that_cannot_be_read_is_probed_and_lost_at_once(void **state) {
  (void)state;
  harness *h = h_readers();
  fail_fetch(h, 1, 0, NULL, 1);
  assert_int_equal(h_act(h, BR_ACT_PROBE)->worker, 1);
  assert_int_equal(h_act(h, BR_ACT_PROBE)->incarnation, 1);
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  fail_fetch(h, 1, 1, NULL, 1);
  assert_int_equal(h_count(h, BR_ACT_PROBE), 0);                              /* one is under way */
  h_step(h, (br_event){.kind = BR_EV_PROBED, .worker = 1, .incarnation = 9}); /* somebody else */
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  probed(h, 1, BR_NETWORK);
  assert_int_equal(h_act(h, BR_ACT_WORKER_GONE)->worker, 1);
  assert_non_null(strstr(h_act(h, BR_ACT_WORKER_GONE)->error.message, "connection refused"));
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  assert_true(h_runs(h, 7, 0, 0) && h_runs(h, 7, 0, 1));
  probed(h, 1, BR_OK); /* late */
  assert_int_equal(h->a.count, 0);
  h_free(h);
}

static void test_probe_without_an_answer(void **state) {
  (void)state;
  harness *h = h_readers();
  fail_fetch(h, 1, 0, NULL, 1);
  for (uint32_t w = 1; w <= 3; w++) h_hear(h, w); /* it beats, all the same */
  h_tick(h, 4999);
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  h_tick(h, 1);
  assert_int_equal(h_act(h, BR_ACT_WORKER_GONE)->worker, 1);
  h_free(h);
}

static void test_good_probe_sends_the_reader_elsewhere(void **state) {
  (void)state;
  harness *h = h_readers();
  uint32_t at = h->runs[h_find(h, 7, 1, 0)].worker;
  fail_fetch(h, 1, 0, NULL, 1);
  probed(h, 1, BR_OK);
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  pass(h, 300);
  assert_true(h_runs(h, 7, 1, 0));
  assert_int_not_equal(h->runs[h_find(h, 7, 1, 0)].worker, at);
  assert_int_not_equal(h_where(h, 7, 0, 0), 0);
  h_free(h);
}

/* The coordinator reaches it, the readers don't: three good probes in a minute can't all be wrong. */
static void test_worker_that_answers_but_cannot_be_read_is_gone_after_three(void **state) {
  (void)state;
  harness *h = h_readers();
  for (int i = 0; i < 3; i++) {
    assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
    fail_fetch(h, 1, 0, NULL, 1);
    assert_int_equal(h_count(h, BR_ACT_PROBE), 1);
    probed(h, 1, BR_OK);
    if (i < 2) pass(h, 1000);
  }
  assert_int_equal(h_act(h, BR_ACT_WORKER_GONE)->worker, 1);
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  h_free(h);
}

/* A worker whose own network is bad complains about all the others: it goes, they stay. */
static void test_reader_that_cannot_read_from_anybody_is_gone(void **state) {
  (void)state;
  const br_sched_stage wide[] = {{.tasks = 3}, {.tasks = 40, INPUTS(ALL(0)), .result = true}};
  harness *h = h_new(NULL);
  for (uint32_t w = 1; w <= 3; w++) h_join(h, w, 1);
  h_query(h, 7, wide, 2);
  h_finish(h, 0);
  h_join(h, 4, 1); /* the bad one */
  for (uint32_t about = 1; about <= 3; about++) {
    size_t i = 0;
    assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
    while (i < h->n_runs && h->runs[i].worker != 4) i++;
    assert_true(i < h->n_runs);
    fail_fetch(h, 1, h->runs[i].attempt.task, NULL, about);
    probed(h, about, BR_OK);
  }
  assert_int_equal(h_act(h, BR_ACT_WORKER_GONE)->worker, 4);
  for (uint32_t t = 0; t < 3; t++) assert_int_not_equal(h_where(h, 7, 0, t), 0);
  h_free(h);
}

static bool failed_fetch_on(harness *h, uint32_t reader, uint32_t about) {
  for (size_t i = 0; i < h->n_runs; i++) {
    if (h->runs[i].worker != reader || h->runs[i].attempt.stage != 1) continue;
    fail_fetch(h, 1, h->runs[i].attempt.task, NULL, about);
    return true;
  }
  return false;
}

/* Two workers that reach the coordinator but not each other, and say so at the same moments: one goes, the other goes on. */
static void test_of_two_that_cannot_reach_each_other_one_stays(void **state) {
  (void)state;
  const br_sched_stage wide[] = {{.tasks = 4}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
  harness *h = h_new(NULL);
  size_t gone = 0;
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, wide, 2);
  h_finish(h, 0);
  for (int round = 0; round < 3; round++) {
    bool two = failed_fetch_on(h, 1, 2), one = failed_fetch_on(h, 2, 1);
    assert_true(one && two);
    probed(h, 1, BR_OK);
    gone += h_count(h, BR_ACT_WORKER_GONE);
    probed(h, 2, BR_OK);
    gone += h_count(h, BR_ACT_WORKER_GONE);
    if (round < 2) pass(h, 1000);
  }
  assert_int_equal(gone, 1);
  h_finish(h, UINT32_MAX);
  h_free(h);
}

static void test_fetch_failures_far_apart_are_forgiven(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, chain, 2);
  h_finish(h, 0);
  h_join(h, 2, 1);
  for (int i = 0; i < 6; i++) {
    fail_fetch(h, 1, 0, NULL, 1);
    probed(h, 1, BR_OK);
    assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
    pass(h, 61000);
    if (!h_runs(h, 7, 1, 0)) h_finish(h, UINT32_MAX);
    if (!h_runs(h, 7, 1, 0)) break;
  }
  h_free(h);
}

static void test_bad_checksum_costs_one_output_and_no_worker(void **state) {
  (void)state;
  harness *h = h_readers();
  br_map_output_id o;
  bool growing;
  assert_true(br_sched_output(h->s, 7, 0, 1, &o, &growing));
  h_clear(h);
  for (int i = 0; i < 5; i++) {
    assert_true(br_sched_output(h->s, 7, 0, 1, &o, &growing));
    fail_fetch(h, 1, 0, &o, o.worker);
    assert_int_equal(h_count(h, BR_ACT_PROBE), 0);
    assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
    assert_true(h_runs(h, 7, 0, 1));
    h_done(h, 7, 0, 1);
    pass(h, 10000);
    assert_true(h_runs(h, 7, 1, 0));
  }
  assert_null(strstr(h->log, "0.0"));
  h_free(h);
}

static void test_endless_fetch_failures_end(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  int n = 0;
  h_join(h, 1, 2);
  h_query(h, 7, chain, 2);
  h_finish(h, 0);
  while (h_count(h, BR_ACT_QUERY_FAILED) == 0 && n < 100) {
    br_map_output_id old = {.made_by = {.query = 7, .task = 1, .attempt = 77}, .worker = 1, .incarnation = 1};
    fail_fetch(h, 1, 0, &old, 0);
    n++;
    if (h_count(h, BR_ACT_QUERY_FAILED) == 0) pass(h, 10000);
  }
  assert_int_equal(n, 32);
  h_free(h);
}

static void test_caller_that_cannot_read_a_result(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_error err;
  bool growing;
  h_join(h, 1, 1);
  h_query(h, 7, one, 1);
  h_done(h, 7, 0, 0);
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "can't read");
  err.has_lost = true;
  assert_true(br_sched_output(h->s, 7, 0, 0, &err.lost, &growing));
  h_step(h, (br_event){.kind = BR_EV_FETCH_FAILED, .error = &err});
  assert_true(h_runs(h, 7, 0, 0));
  h_done(h, 7, 0, 0);
  assert_int_equal(h_act(h, BR_ACT_RESULT)->attempt.attempt, 2);
  h_free(h);
}

/* ---- silence, zombies, late and repeated answers */
static void test_silent_worker_is_lost(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_join(h, 2, 1);
  h_query(h, 7, one, 1);
  uint32_t w = h->runs[0].worker;
  h_tick(h, 9999);
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  h_hear(h, 3 - w);
  h_tick(h, 1);
  assert_int_equal(h_act(h, BR_ACT_WORKER_GONE)->worker, w);
  assert_int_equal(h->runs[1].worker, 3 - w);
  h_free(h);
}

static void test_zombie_is_fenced(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, one, 1);
  br_action old = h->runs[0];
  h_tick(h, 10000);
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 1);
  h_hear(h, 1); /* it wakes up */
  h_step(h, (br_event){.kind = BR_EV_TASK_DONE, .attempt = old.attempt, .worker = 1, .incarnation = 1});
  assert_int_equal(h_count(h, BR_ACT_RESULT), 0);
  h_step(h,
         (br_event){.kind = BR_EV_WORKER_JOINED, .worker = 1, .incarnation = 1, .slots = 1}); /* not with this number */
  assert_int_equal(h_count(h, BR_ACT_RUN), 0);
  h->n_runs = 0;
  h_join(h, 1, 1); /* incarnation 2 */
  assert_int_equal(h->n_runs, 1);
  assert_int_equal(h->runs[0].incarnation, 2);
  h_step(h, (br_event){.kind = BR_EV_TASK_DONE, .attempt = h->runs[0].attempt, .worker = 1, .incarnation = 1});
  assert_int_equal(h_count(h, BR_ACT_RESULT), 0);
  h_step(h, (br_event){.kind = BR_EV_WORKER_LOST, .worker = 1, .incarnation = 1}); /* late word of the first loss */
  assert_int_equal(h_count(h, BR_ACT_WORKER_GONE), 0);
  h_done(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_RESULT), 1);
  h_free(h);
}

static void test_restart_that_comes_before_the_loss(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, chain, 2);
  h_done(h, 7, 0, 0);
  h->n_runs = 0;
  h_join(h, 1, 1);
  assert_int_equal(h_act(h, BR_ACT_WORKER_GONE)->incarnation, 1);
  assert_int_equal(h_where(h, 7, 0, 0), 0);
  assert_int_equal(h->n_runs, 1);
  h_free(h);
}

static void test_late_and_repeated_answers(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_query(h, 7, two, 1);
  br_action first = h->runs[h_find(h, 7, 0, 0)];
  h_fail(h, 7, 0, 0, BR_IO, BR_BLAME_TASK);
  h_tick(h, 200);
  br_event done = {.kind = BR_EV_TASK_DONE, .attempt = first.attempt, .worker = 1, .incarnation = 1};
  h_step(h, done); /* the old attempt says that it is done after all */
  assert_int_equal(h_count(h, BR_ACT_RESULT), 0);
  assert_int_equal(h_act(h, BR_ACT_DROP_OUTPUT)->attempt.attempt, 1);
  assert_true(h_runs(h, 7, 0, 0));
  br_action second = h->runs[h_find(h, 7, 0, 0)];
  h_done(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_RESULT), 1);
  done.attempt = second.attempt;
  h_step(h, done); /* twice */
  assert_int_equal(h->a.count, 0);
  done.kind = BR_EV_TASK_FAILED;
  h_step(h, done); /* and then the opposite */
  assert_int_equal(h->a.count, 0);
  assert_int_equal(h_where(h, 7, 0, 0), 1);
  done.kind = BR_EV_TASK_STARTED;
  h_step(h, done);
  done.attempt.query = 99;
  h_step(h, done);
  done.attempt = (br_attempt_id){.query = 7, .stage = 5, .task = 1, .attempt = 1};
  h_step(h, done);
  assert_int_equal(h->a.count, 0);
  h_query(h, 7, two, 1); /* the query again */
  assert_int_equal(h->a.count, 0);
  h_finish(h, UINT32_MAX);
  h_read(h, 7, 0, 0);
  h_read(h, 7, 0, 0);
  h_read(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_query(h, 7, two, 1);
  assert_int_equal(h->a.count, 0);
  h_free(h);
}

static void test_states_are_counted(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_sched_counts c;
  h_join(h, 1, 2);
  h_query(h, 7, (br_sched_stage[]){{.tasks = 5, .result = true}}, 1);
  h_step(h, (br_event){.kind = BR_EV_TASK_STARTED, .attempt = h->runs[0].attempt, .worker = 1, .incarnation = 1});
  assert_true(br_sched_stage_counts(h->s, 7, 0, &c));
  assert_int_equal(c.tasks[BR_TASK_READY], 3);
  assert_int_equal(c.tasks[BR_TASK_ASSIGNED], 1);
  assert_int_equal(c.tasks[BR_TASK_RUNNING], 1);
  h_answer(h, 0, BR_EV_TASK_DONE, NULL);
  assert_true(br_sched_stage_counts(h->s, 7, 0, &c));
  assert_int_equal(c.tasks[BR_TASK_COMMITTED], 1);
  assert_int_equal(c.tasks[BR_TASK_READY], 2);
  assert_false(br_sched_stage_counts(h->s, 7, 1, &c));
  assert_true(br_sched_memory_bytes(h->s) > 0);
  h_free(h);
}

/* ---- cancel */
static void test_cancelled_query(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  br_error err;
  h_join(h, 1, 2);
  h_query(h, 7, two, 1);
  br_fail(&err, BR_TIMEOUT, BR_BLAME_USER, "it took too long");
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 7, .error = &err});
  assert_int_equal(h_count(h, BR_ACT_CANCEL), 2);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_TIMEOUT);
  h_query(h, 8, two, 1);
  assert_int_equal(h_count(h, BR_ACT_RUN), 0); /* the slots are taken until the attempts have answered */
  h_answer(h, 0, BR_EV_TASK_FAILED, &err);
  assert_int_equal(h_count(h, BR_ACT_RUN), 1);
  h_tick(h, 9000);
  h_hear(h, 1);
  h_tick(h, 9000);
  h_hear(h, 1);
  h_tick(h, 9000);
  h_hear(h, 1);
  h_tick(h, 2999);
  assert_int_equal(h_count(h, BR_ACT_RUN), 0);
  h_tick(h, 1); /* one that never answers loses its slot after 30 s */
  assert_int_equal(h_count(h, BR_ACT_RUN), 1);
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 8});
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_CANCELLED);
  h_step(h, (br_event){.kind = BR_EV_CANCEL_QUERY, .query = 8});
  assert_int_equal(h->a.count, 0);
  h_free(h);
}

/* ---- no workers */
static void test_no_worker_is_an_error_after_a_minute(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_query(h, 7, one, 1);
  assert_int_equal(h_act(h, BR_ACT_WAKE)->at_ms, h->now + 60000);
  h_tick(h, 59999);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  h_tick(h, 1);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_LOST);
  assert_non_null(strstr(h_act(h, BR_ACT_QUERY_FAILED)->error.message, "no worker for 60000 ms"));
  h_free(h);
}

static void test_no_worker_counts_from_the_last_loss(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 7, one, 1);
  pass(h, 100000);
  h_lose(h, 1);
  h->inc[1] = 0;
  pass(h, 59000);
  h_join(h, 2, 1); /* in time */
  assert_true(h_runs(h, 7, 0, 0));
  h_step(h, (br_event){.kind = BR_EV_WORKER_DRAINING, .worker = 2});
  pass(h, 70000); /* it drains, but our attempt still runs */
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  h_done(h, 7, 0, 0);
  pass(h, 70000); /* nothing is to be run any more: the caller may take its time */
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0);
  h_read(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

static void test_senseless_events_do_nothing(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  for (int k = BR_EV_WORKER_LOST; k <= BR_EV_FETCH_FAILED; k++) {
    br_attempt_id id = {.query = 3, .stage = 9, .task = 9, .attempt = 9};
    br_error err = {.code = BR_FETCH, .blame = BR_BLAME_FETCH, .has_lost = true, .worker = 5};
    h_step(h, (br_event){.kind = (br_event_kind)k,
                         .worker = 9,
                         .incarnation = 3,
                         .query = 3,
                         .attempt = id,
                         .attempts = &id,
                         .n_attempts = 1,
                         .error = &err});
    h_step(h, (br_event){.kind = (br_event_kind)k});
    assert_int_equal(h->a.count, 0);
  }
  h_step(h, (br_event){.kind = BR_EV_WORKER_JOINED, .worker = 0, .incarnation = 1, .slots = 1});
  assert_int_equal(h->a.count, 0);
  h_join(h, 1, 0); /* no slots: one */
  h_query(h, 7, two, 1);
  assert_int_equal(h->n_runs, 1);
  h_free(h);
}

static void test_many_workers_come_and_go(void **state) {
  (void)state;
  br_sched *s = br_sched_new(NULL);
  br_actions a = {0};
  char why[256];
  for (uint32_t w = 1; w <= 10000; w++) {
    br_sched_step(s, &(br_event){.kind = BR_EV_WORKER_JOINED, .now_ms = w, .worker = w, .incarnation = 1, .slots = 4},
                  &a);
    br_sched_step(s, &(br_event){.kind = BR_EV_WORKER_LOST, .now_ms = w, .worker = w, .incarnation = 1}, &a);
    a.count = 0;
  }
  assert_string_equal(br_sched_check(s, why, sizeof why), "");
  assert_true(br_sched_memory_bytes(s) < 1 << 20); /* what is remembered of them is bounded */
  br_sched_free(s);
  free(a.items);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_four_attempts_with_backoff),
      cmocka_unit_test(test_backoff_has_a_limit_and_options_count),
      cmocka_unit_test(test_failed_task_goes_to_another_worker),
      cmocka_unit_test(test_failed_task_takes_the_same_worker_when_it_is_the_last),
      cmocka_unit_test(test_user_error_fails_at_once),
      cmocka_unit_test(test_what_cannot_pass_is_not_tried_again),
      cmocka_unit_test(test_executor_loss_is_not_charged_until_the_killer_shows),
      cmocka_unit_test(test_task_that_kills_workers_is_stopped),
      cmocka_unit_test(test_drained_worker_takes_nothing_and_costs_nothing),
      cmocka_unit_test(test_lost_output_is_made_again_and_the_reader_is_not_charged),
      cmocka_unit_test(test_worker_that_cannot_be_read_is_probed_and_lost_at_once),
      cmocka_unit_test(test_probe_without_an_answer),
      cmocka_unit_test(test_good_probe_sends_the_reader_elsewhere),
      cmocka_unit_test(test_worker_that_answers_but_cannot_be_read_is_gone_after_three),
      cmocka_unit_test(test_reader_that_cannot_read_from_anybody_is_gone),
      cmocka_unit_test(test_of_two_that_cannot_reach_each_other_one_stays),
      cmocka_unit_test(test_bad_checksum_costs_one_output_and_no_worker),
      cmocka_unit_test(test_fetch_failures_far_apart_are_forgiven),
      cmocka_unit_test(test_endless_fetch_failures_end),
      cmocka_unit_test(test_caller_that_cannot_read_a_result),
      cmocka_unit_test(test_silent_worker_is_lost),
      cmocka_unit_test(test_zombie_is_fenced),
      cmocka_unit_test(test_restart_that_comes_before_the_loss),
      cmocka_unit_test(test_late_and_repeated_answers),
      cmocka_unit_test(test_states_are_counted),
      cmocka_unit_test(test_cancelled_query),
      cmocka_unit_test(test_no_worker_is_an_error_after_a_minute),
      cmocka_unit_test(test_no_worker_counts_from_the_last_loss),
      cmocka_unit_test(test_senseless_events_do_nothing),
      cmocka_unit_test(test_many_workers_come_and_go),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
