/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Which task goes where: even over workers, fair over queries, weights; tables for workers that join later; a million tasks. */
#include "schedule_help.h"

static uint32_t on_worker(const harness *h, uint32_t w) {
  uint32_t n = 0;
  for (size_t i = 0; i < h->n_runs; i++) n += h->runs[i].worker == w;
  return n;
}
static uint32_t of_query(const harness *h, uint64_t q) {
  uint32_t n = 0;
  for (size_t i = 0; i < h->n_runs; i++) n += h->runs[i].query == q;
  return n;
}

static void test_even_over_workers(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  for (uint32_t w = 1; w <= 3; w++) h_join(h, w, 4);
  h_query(h, 1, (br_sched_stage[]){{.tasks = 6, .result = true}}, 1);
  for (uint32_t w = 1; w <= 3; w++) assert_int_equal(on_worker(h, w), 2);
  h_free(h);
}

static void test_shares_follow_the_size_of_workers(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 2);
  h_join(h, 2, 8);
  h_query(h, 1, (br_sched_stage[]){{.tasks = 5, .result = true}}, 1);
  assert_int_equal(on_worker(h, 1), 1);
  assert_int_equal(on_worker(h, 2), 4);
  h_free(h);
}

static void test_single_tasks_go_round(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  uint32_t seen[5] = {0};
  for (uint32_t w = 1; w <= 4; w++) h_join(h, w, 2);
  for (uint64_t q = 1; q <= 8; q++) { /* one after the other: each worker gets two */
    h_query(h, q, (br_sched_stage[]){{.tasks = 1, .result = true}}, 1);
    seen[h->runs[0].worker]++;
    h_done(h, q, 0, 0);
    h_read(h, q, 0, 0);
  }
  for (uint32_t w = 1; w <= 4; w++) assert_int_equal(seen[w], 2);
  h_free(h);
}

static void test_slots_are_never_oversubscribed(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  h_join(h, 1, 3);
  h_query(h, 1, (br_sched_stage[]){{.tasks = 50, .result = true}}, 1);
  for (uint32_t i = 0; i < 50; i++) {
    assert_true(h->n_runs <= 3);
    h_answer(h, 0, BR_EV_TASK_DONE, NULL);
  }
  assert_int_equal(h->n_runs, 0);
  h_free(h);
}

static void test_queries_share_fairly(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  const br_sched_stage big[] = {{.tasks = 100, .result = true}}, small[] = {{.tasks = 4, .result = true}};
  h_join(h, 1, 4);
  h_query(h, 1, big, 1);
  assert_int_equal(of_query(h, 1), 4);
  h_query(h, 2, small, 1);
  h_done(h, 1, 0, 0);
  h_done(h, 1, 0, 1);
  assert_int_equal(of_query(h, 1), 2); /* the second one gets its half although the first one came earlier */
  assert_int_equal(of_query(h, 2), 2);
  h_query(h, 3, big, 1);
  h_done(h, 1, 0, 2);
  assert_int_equal(of_query(h, 3), 1);
  h_free(h);
}

static void test_weights(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  const br_sched_stage big[] = {{.tasks = 100, .result = true}};
  h_query(h, 1, big, 1);
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = 2, .stages = big, .n_stages = 1, .weight = 3});
  h_join(h, 1, 8);
  assert_int_equal(of_query(h, 1), 2);
  assert_int_equal(of_query(h, 2), 6);
  h_free(h);
}

static uint32_t where(const harness *h, uint32_t task) {
  for (size_t i = 0; i < h->n_runs; i++)
    if (h->runs[i].attempt.task == task) return h->runs[i].worker;
  return 0;
}

/* What tasks read beside their inputs: where it lies they run first, and elsewhere when there is room; a worker that is gone is
 * nobody's wish. */
static void test_tasks_go_near_what_they_read(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  const uint32_t near[] = {3, 3, 1, 0, 9, 1};
  for (uint32_t w = 1; w <= 3; w++) h_join(h, w, 1);
  h_query(h, 1, (br_sched_stage[]){{.tasks = 6, .near = near, .result = true}}, 1);
  assert_int_equal(where(h, 0), 3);
  assert_int_equal(where(h, 2), 1);
  assert_int_equal(where(h, 3), 2); /* list 0: nobody else wants worker 2 */
  h_done(h, 1, 0, 0);
  assert_int_equal(where(h, 1), 3);
  h_done(h, 1, 0, 3);
  assert_int_equal(where(h, 4), 2); /* there is no worker 9 */
  h_done(h, 1, 0, 4);
  assert_int_equal(where(h, 5), 2); /* its worker has no slot, but another one has */
  h_free(h);
}

static void test_independent_stages_run_together(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  const br_sched_stage j[] = {{.tasks = 2}, {.tasks = 2}, {.tasks = 1, INPUTS(ALL(0), ALL(1)), .result = true}};
  h_join(h, 1, 4);
  h_query(h, 1, j, 3);
  assert_string_equal(h_ran(h), "0.0 0.1 1.0 1.1");
  h_finish(h, 1);
  assert_int_equal(h_count(h, BR_ACT_RUN), 0);
  h_finish(h, 0);
  assert_true(h_runs(h, 1, 2, 0));
  h_free(h);
}

static void test_worker_that_joins_later_gets_the_tables(void **state) {
  (void)state;
  harness *h = h_new(NULL);
  const br_sched_stage c[] = {{.tasks = 1}, {.tasks = 4, INPUTS(ALL(0)), .result = true}};
  h_join(h, 1, 1);
  h_query(h, 1, c, 2);
  h_done(h, 1, 0, 0);
  h_join(h, 2, 1);
  const br_action *t = h_act(h, BR_ACT_TABLE);
  assert_non_null(t);
  assert_int_equal(t->worker, 2);
  assert_int_equal(t->stage, 0);
  assert_int_equal(t->version, 1);
  assert_true(h_at(h, BR_ACT_TABLE) < h_at(h, BR_ACT_RUN));
  h_free(h);
}

/* The indeterminate case: a mixed answer must not be. */
static void test_indeterminate_output_rolls_its_readers_back(void **state) {
  (void)state;
  const br_sched_stage c[] = {
      {.tasks = 1, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0))}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};
  for (int indeterminate = 0; indeterminate < 2; indeterminate++) {
    harness *h = h_new(NULL);
    br_sched_stage mine[3];
    memcpy(mine, c, sizeof c);
    mine[0].indeterminate = indeterminate;
    h_join(h, 1, 1);
    h_query(h, 1, mine, 3);
    h_done(h, 1, 0, 0); /* on worker 1 */
    h_join(h, 2, 1);
    uint32_t other = h->runs[h_find(h, 1, 1, 1)].worker == 2 ? 1 : 0;
    h_done(h, 1, 1, other); /* committed on worker 2, the last one runs or waits */
    assert_int_equal(h_where(h, 1, 1, other), 2);
    h_clear(h);
    h_lose(h, 1);
    h_finish(h, 0);
    h_finish(h, 1);
    if (indeterminate)
      assert_non_null(strstr(h_ran(h), other ? "1.1" : "1.0")); /* it had read the version that died */
    else
      assert_null(strstr(h_ran(h), other ? "1.1" : "1.0"));
    h_finish(h, UINT32_MAX);
    assert_int_not_equal(h_where(h, 1, 2, 0), 0);
    h_free(h);
  }
}

static void test_indeterminate_after_rows_were_handed_out_fails(void **state) {
  (void)state;
  const br_sched_stage c[] = {{.tasks = 1, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 1, c, 2);
  h_done(h, 1, 0, 0);
  h_done(h, 1, 1, 0);
  h_read(h, 1, 1, 0);
  h_lose(h, 1);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_LOST);
  assert_non_null(strstr(h_act(h, BR_ACT_QUERY_FAILED)->error.message, "handed out"));
  h_free(h);
}

/* The caller has read attempt 1, but its word comes after that attempt was voided. */
static void test_late_word_of_a_void_result_fails(void **state) {
  (void)state;
  const br_sched_stage c[] = {{.tasks = 1, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 1, c, 2);
  h_done(h, 1, 0, 0);
  h_join(h, 2, 1);
  uint32_t mine = h->runs[h_find(h, 1, 1, 1)].worker == 2 ? 1 : 0;
  h_done(h, 1, 1, mine);
  h_lose(h, 1);
  br_event read = {.kind = BR_EV_RESULT_READ, .query = 1, .stage = 1, .task = mine, .attempt = {.attempt = 1}};
  h_step(h, read);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_LOST);
  h_free(h);
}

/* The same for a result that is itself indeterminate, and that another stage reads. */
static void test_late_word_of_a_lost_result_that_is_read_twice_fails(void **state) {
  (void)state;
  const br_sched_stage c[] = {{.tasks = 1, .indeterminate = true, .result = true},
                              {.tasks = 1, INPUTS(ALL(0)), .result = true}};
  harness *h = h_new(NULL);
  h_join(h, 1, 1);
  h_query(h, 1, c, 2);
  h_done(h, 1, 0, 0);
  h_lose(h, 1);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 0); /* nobody has read it, as far as is known */
  h_step(h, (br_event){.kind = BR_EV_RESULT_READ, .query = 1, .attempt = {.attempt = 1}});
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_LOST);
  h_free(h);
}

static void test_a_million_tasks(void **state) {
  (void)state;
  const uint32_t half = 500000;
  const br_sched_stage c[] = {
      {.tasks = half}, {.tasks = half, INPUTS(FWD(0))}, {.tasks = 1, INPUTS(ALL(1)), .result = true}};
  br_sched *s = br_sched_new(NULL);
  br_actions a = {0};
  br_attempt_id *runs = calloc(2000, sizeof *runs);
  uint32_t *where = calloc(2000, sizeof *where);
  size_t n = 0, most = 0;
  uint64_t now = 1, commits = 0;
  bool done = false;
  br_event e = {.kind = BR_EV_QUERY, .query = 1, .stages = c, .n_stages = 3};
  for (uint32_t w = 1; w <= 100; w++)
    br_sched_step(s, &(br_event){.kind = BR_EV_WORKER_JOINED, .now_ms = 1, .worker = w, .incarnation = 1, .slots = 8},
                  &a);
  while (!done) {
    a.count = 0;
    e.now_ms = now;
    br_sched_step(s, &e, &a);
    for (size_t i = 0; i < a.count; i++) {
      if (a.items[i].kind == BR_ACT_RUN) {
        assert_true(n < 2000);
        runs[n] = a.items[i].attempt;
        where[n++] = a.items[i].worker;
      }
      if (a.items[i].kind == BR_ACT_RESULT) {
        br_sched_step(s, &(br_event){.kind = BR_EV_RESULT_READ, .now_ms = now, .query = 1, .stage = 2}, &a);
        done = true;
      }
    }
    most = n > most ? n : most;
    if (n == 0) break;
    n--;
    e = (br_event){.kind = BR_EV_TASK_DONE, .attempt = runs[n], .worker = where[n], .incarnation = 1};
    commits++;
  }
  assert_true(done);
  assert_int_equal(commits, 2 * half + 1);
  assert_int_equal(most, 800);
  assert_true(br_sched_memory_bytes(s) < 200 << 20);
  br_sched_free(s);
  free(a.items);
  free(runs);
  free(where);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_even_over_workers),
      cmocka_unit_test(test_shares_follow_the_size_of_workers),
      cmocka_unit_test(test_single_tasks_go_round),
      cmocka_unit_test(test_slots_are_never_oversubscribed),
      cmocka_unit_test(test_queries_share_fairly),
      cmocka_unit_test(test_weights),
      cmocka_unit_test(test_tasks_go_near_what_they_read),
      cmocka_unit_test(test_independent_stages_run_together),
      cmocka_unit_test(test_worker_that_joins_later_gets_the_tables),
      cmocka_unit_test(test_indeterminate_output_rolls_its_readers_back),
      cmocka_unit_test(test_indeterminate_after_rows_were_handed_out_fails),
      cmocka_unit_test(test_late_word_of_a_void_result_fails),
      cmocka_unit_test(test_late_word_of_a_lost_result_that_is_read_twice_fails),
      cmocka_unit_test(test_a_million_tasks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
