/* SPDX-License-Identifier: Apache-2.0
 * Real workers and executors: outputs that go one by one, outputs kept for recovery alone, outputs that are read while written. */
/* links: br_engine br_shuffle br_flight */
#include "unit/worker_coordinator.h"

static const char *const bigint[] = {"BIGINT"};

/* The number of rows of a SINGLE output of BIGINTs; -1 with *err. */
static int64_t rows_of(coord *c, uint32_t worker, br_attempt_id id, uint32_t version, br_error *err) {
  static int64_t cells[1 << 16];
  size_t n;
  br_error_clear(err);
  return read_output(c, worker, id, version, 0, 1, bigint, 1, NULL, cells, 1 << 16, &n, err) == BR_OK ? (int64_t)n : -1;
}

static void one_output_is_dropped(void **state) {
  coord *c = *state;
  br_error err = {0};
  start_worker(c, NULL);
  wait_members(c, 1);
  for (uint32_t t = 0; t < 2; t++) {
    run_task(c, 1, (task){.id = {21, 1, t, 0}, .sql = "SELECT i AS c0 FROM range(100) t(i)", TYPES("BIGINT")});
    wait_event(c, EV_DONE, &(br_attempt_id){21, 1, t, 0});
  }
  send_table(c, 21, 1, 1, 1, (uint32_t[]){1, 1}, 2);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 2, TYPES("BIGINT")};
  for (uint16_t a = 0; a < 2; a++) { /* first it is there, and the executor has its descriptor */
    br_attempt_id id = {21, 2, 0, a};
    run_task(c, 1, (task){.id = id, .sql = "SELECT c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")});
    if (a == 0) {
      wait_event(c, EV_DONE, &id);
      drop_output(c, 1, (br_attempt_id){21, 1, 1, 3}); /* of another attempt: nothing happens */
      drop_output(c, 1, (br_attempt_id){21, 1, 0, 0});
      continue;
    }
    ev e = wait_event(c, EV_FAILED, &id);
    assert_int_equal(e.error.code, BR_FETCH);
    assert_true(e.error.has_lost);
    assert_int_equal(e.error.lost.made_by.task, 0);
  }
  assert_int_equal(rows_of(c, 1, (br_attempt_id){21, 1, 1, 0}, 1, &err), 100); /* the other one is there */
  assert_int_equal(rows_of(c, 1, (br_attempt_id){21, 1, 0, 0}, 1, &err), -1);
  assert_true(err.has_lost);
  /* One that is being made: it ends, and leaves nothing. */
  br_attempt_id running = {21, 3, 0, 0};
  run_task(c, 1,
           (task){.id = running,
                  .sql = "SELECT count(*) AS c0 FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3",
                  TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &running);
  drop_output(c, 1, running);
  assert_int_equal(wait_event(c, EV_FAILED, &running).error.code, BR_CANCELLED);
  coord_close(c);
}

/* Outputs of a retired stage make room for others: nothing is written to disk, and the coordinator hears which ones went. */
static void retired_outputs_make_room(void **state) {
  coord *c = *state;
  br_error err = {0};
  start_worker(c, "--memory", "192MiB", NULL); /* 48 MiB of them for the store */
  wait_members(c, 1);
  static const char sql[] = "SELECT i AS c0, hash(i)::UBIGINT AS c1 FROM range(1000000) t(i)"; /* 16 MB */
  for (uint32_t t = 0; t < 2; t++) {
    br_attempt_id id = {22, 1, t, 0};
    run_task(c, 1, (task){.id = id, .sql = sql, TYPES("BIGINT", "UBIGINT")});
    wait_event(c, EV_DONE, &id);
  }
  run_task(c, 1, (task){.id = {22, 4, 0, 0}, .sql = "SELECT 7::BIGINT AS c0", TYPES("BIGINT")});
  wait_event(c, EV_DONE, &(br_attempt_id){22, 4, 0, 0});
  send_table(c, 22, 1, 1, 1, (uint32_t[]){1, 1}, 2);
  send_table(c, 22, 4, 1, 1, (uint32_t[]){1}, 1);
  /* Read once: executors have their descriptors. */
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 2, TYPES("BIGINT", "UBIGINT")};
  task count = {
      .id = {22, 2, 0, 0}, .sql = "SELECT count(*) AS c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")};
  run_task(c, 1, count);
  wait_event(c, EV_DONE, &count.id);
  retire_stage(c, 22, 1);
  for (uint32_t t = 0; t < 2; t++) {
    br_attempt_id id = {22, 3, t, 0};
    run_task(c, 1, (task){.id = id, .sql = sql, TYPES("BIGINT", "UBIGINT")});
    assert_int_equal(wait_event(c, EV_DONE, &id).spill_bytes, 0);
  }
  ev lost = wait_event(c, EV_OUTPUT_LOST, NULL);
  assert_int_equal(lost.id.stage, 1);
  assert_int_equal(lost.worker, 1);
  count.id.attempt = 1; /* needed after all: the error names one */
  run_task(c, 1, count);
  ev e = wait_event(c, EV_FAILED, &count.id);
  assert_int_equal(e.error.code, BR_FETCH);
  assert_true(e.error.has_lost);
  assert_int_equal(e.error.lost.made_by.stage, 1);
  assert_int_equal(rows_of(c, 1, (br_attempt_id){22, 4, 0, 0}, 1, &err), 1);
  coord_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(one_output_is_dropped),
      TEST(retired_outputs_make_room),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
