/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * Stages that are planned again before they start: asked for once, when all that they read is there; the first answer counts. */
#include "schedule_help.h"

static const br_sched_input reads_0[] = {{.stage = 0}}, reads_1[] = {{.stage = 1}};
static const br_sched_input forward_1[] = {{.stage = 1, .kind = BR_READ_FORWARD}};

/* A join of stage 0 by stage 1, read by a result. */
static void three(br_sched_stage *out, uint32_t middle, const br_sched_input *last_reads, uint32_t last) {
  out[0] = (br_sched_stage){.tasks = 2};
  out[1] = (br_sched_stage){.tasks = middle, .inputs = reads_0, .n_inputs = 1, .adapts = true};
  out[2] = (br_sched_stage){.tasks = last, .inputs = last_reads, .n_inputs = 1, .result = true};
}

static harness *started(br_sched_stage *stages, br_sched_mode mode, uint32_t slots) {
  harness *h = h_new(NULL);
  h_join(h, 1, slots);
  h_step(h, (br_event){.kind = BR_EV_QUERY, .query = 7, .stages = stages, .n_stages = 3, .mode = mode});
  return h;
}

static void answer(harness *h, uint32_t stage, br_sched_stage *stages) {
  h_step(h, (br_event){.kind = BR_EV_ADAPT, .query = 7, .stage = stage, .stages = stages, .n_stages = 3});
}

static void test_asked_once_and_waits(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 1);
  harness *h = started(s, BR_SCHED_STAGED, 4);
  h_done(h, 7, 0, 0);
  assert_int_equal(h_count(h, BR_ACT_ASK), 0);
  h_done(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_ASK), 1);
  assert_int_equal(h_act(h, BR_ACT_ASK)->stage, 1);
  assert_int_equal(h->n_runs, 0);
  s[1].tasks = 3;
  answer(h, 2, s); /* about one that was not asked for */
  assert_int_equal(h->n_runs, 0);
  answer(h, 1, s);
  assert_int_equal(h->n_runs, 3);
  s[1].tasks = 5; /* said again, otherwise */
  answer(h, 1, s);
  assert_int_equal(h->n_runs, 3);
  for (uint32_t t = 0; t < 3; t++) h_done(h, 7, 1, t);
  assert_int_equal(h->n_runs, 1);
  assert_int_equal(h->runs[0].attempt.stage, 2);
  h_free(h);
}

static void test_none_is_done_at_once(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 1);
  harness *h = started(s, BR_SCHED_STAGED, 2);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  s[1].tasks = 0;
  answer(h, 1, s);
  assert_int_equal(h->n_runs, 1); /* its reader, of nothing */
  assert_int_equal(h->runs[0].attempt.stage, 2);
  h_free(h);
}

static void test_forward_readers_follow(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, forward_1, 8);
  harness *h = started(s, BR_SCHED_STAGED, 4);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  s[1].tasks = s[2].tasks = 2;
  answer(h, 1, s);
  h_done(h, 7, 1, 0);
  h_done(h, 7, 1, 1);
  assert_int_equal(h->n_runs, 2);
  for (uint32_t t = 0; t < 2; t++) {
    br_attempt_id id = h->runs[0].attempt;
    h_done(h, 7, 2, id.task);
    h_step(h, (br_event){.kind = BR_EV_RESULT_READ, .query = 7, .stage = 2, .task = id.task, .attempt = id});
  }
  assert_int_equal(h_count(h, BR_ACT_QUERY_DONE), 1);
  h_free(h);
}

/* The stage goes into its reader, which then reads what it would have read. */
static void test_folded_into_its_reader(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 4);
  harness *h = started(s, BR_SCHED_STAGED, 4);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  s[1].tasks = 0;
  s[2].inputs = reads_0;
  s[2].tasks = 2;
  answer(h, 1, s);
  assert_int_equal(h->n_runs, 2);
  assert_int_equal(h->runs[0].attempt.stage, 2);
  h_lose(h, 1); /* with it what stage 0 wrote, which is needed still */
  h_clear(h);
  h_join(h, 2, 4);
  assert_string_equal(h->log, "0.0 0.1");
  h_free(h);
}

static void test_what_has_started_stays(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 1);
  harness *h = started(s, BR_SCHED_STAGED, 4);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  s[0].tasks = 3;
  answer(h, 1, s);
  assert_int_equal(h_count(h, BR_ACT_QUERY_FAILED), 1);
  assert_int_equal(h_act(h, BR_ACT_QUERY_FAILED)->error.code, BR_INTERNAL);
  h_free(h);
}

static void test_lost_while_asked(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 1);
  harness *h = started(s, BR_SCHED_STAGED, 4);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  h_lose(h, 1);
  h_join(h, 2, 4); /* what it reads is made again */
  s[1].tasks = 2;
  answer(h, 1, s);
  assert_int_equal(h->n_runs, 2);
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_ASK), 0);
  assert_int_equal(h->n_runs, 2);
  assert_int_equal(h->runs[0].attempt.stage, 1);
  h_free(h);
}

static void test_eager_starts_without(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 1);
  harness *h = started(s, BR_SCHED_EAGER, 4);
  assert_int_equal(h->n_runs, 4); /* the two of stage 0, and readers of what they write */
  h_done(h, 7, 0, 0);
  h_done(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_ASK), 0);
  h_free(h);
  h = started(s, BR_SCHED_EAGER, 2);
  h_done(h, 7, 0, 0);
  h_free(h);
}

/* One slot: all that it reads is there before it can start. */
static void test_eager_is_asked_for(void **state) {
  br_sched_stage s[3];
  (void)state;
  three(s, 8, reads_1, 1);
  harness *h = started(s, BR_SCHED_EAGER, 1);
  h_done(h, 7, 0, 0);
  assert_int_equal(h->n_runs, 1);
  h_done(h, 7, 0, 1);
  assert_int_equal(h_count(h, BR_ACT_ASK), 1);
  assert_int_equal(h->n_runs, 0);
  s[1].tasks = 2;
  answer(h, 1, s);
  assert_int_equal(h->n_runs, 1);
  h_free(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_asked_once_and_waits),   cmocka_unit_test(test_none_is_done_at_once),
      cmocka_unit_test(test_forward_readers_follow), cmocka_unit_test(test_folded_into_its_reader),
      cmocka_unit_test(test_what_has_started_stays), cmocka_unit_test(test_lost_while_asked),
      cmocka_unit_test(test_eager_starts_without),   cmocka_unit_test(test_eager_is_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
