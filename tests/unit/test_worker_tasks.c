/* SPDX-License-Identifier: Apache-2.0
 * Real workers and executors run tasks for a coordinator of the test: exchanges over sockets, errors, cancel, drop. */
/* links: br_engine br_shuffle br_flight */
#include "unit/worker_coordinator.h"

#define ROWS 100000

static void make_rows(coord *c, char path[512]) {
  char sql[1024];
  snprintf(path, 512, "%s/rows.parquet", c->dir);
  snprintf(sql, sizeof sql, "COPY (SELECT i AS k, 'v' || i AS s FROM range(%d) t(i)) TO '%s' (FORMAT parquet)", ROWS,
           path);
  coord_run_sql(c, sql);
}

/* Two maps on two workers, hashed into three partitions, summed by three reducers, results read here. */
static void exchange(coord *c, uint64_t q) {
  char path[512], sql[2][1024];
  make_rows(c, path);
  for (uint32_t m = 0; m < 2; m++) {
    snprintf(
        sql[m], sizeof sql[m],
        "SELECT k AS c0, s AS c1, CAST(hash(k, 42) %% 3 AS INTEGER) AS c2 FROM read_parquet('%s') WHERE k %% 2 = %u",
        path, m);
    run_task(c, m + 1,
             (task){.id = {q, 1, m, 0},
                    .sql = sql[m],
                    .kind = BRANT__PB__PARTITION_KIND__PART_HASH,
                    .partitions = 3,
                    TYPES("BIGINT", "VARCHAR")});
  }
  uint64_t in_partition[3] = {0};
  for (uint32_t m = 0; m < 2; m++) {
    ev e = wait_event(c, EV_DONE, &(br_attempt_id){q, 1, m, 0});
    assert_int_equal(e.rows_out, ROWS / 2);
    assert_int_equal(e.partitions, 3);
    for (int p = 0; p < 3; p++) in_partition[p] += e.partition_rows[p];
  }
  send_table(c, q, 1, 1, 3, (uint32_t[]){1, 2}, 2);
  for (uint32_t p = 0; p < 3; p++) {
    in i = {
        .number = 0, .stage = 1, .version = 1, .first = p, .last = p + 1, .map_last = 2, TYPES("BIGINT", "VARCHAR")};
    run_task(c, p % 2 + 1,
             (task){.id = {q, 2, p, 0},
                    .sql = "SELECT count(*) AS c0, CAST(sum(c0) AS BIGINT) AS c1, "
                           "count(*) FILTER (c1 = 'v' || c0) AS c2 FROM input(0)",
                    .inputs = &i,
                    .n_inputs = 1,
                    TYPES("BIGINT", "BIGINT", "BIGINT")});
  }
  uint32_t where[3] = {1, 2, 1};
  int64_t rows = 0, sum = 0, same = 0;
  for (uint32_t p = 0; p < 3; p++) {
    ev e = wait_event(c, EV_DONE, &(br_attempt_id){q, 2, p, 0});
    assert_int_equal(e.rows_in, in_partition[p]);
    assert_true(e.remote_bytes_in > 0);
  }
  send_table(c, q, 2, 2, 1, where, 3);
  for (uint32_t p = 0; p < 3; p++) {
    int64_t cells[3];
    size_t n;
    br_error err = {0};
    const char *types[] = {"BIGINT", "BIGINT", "BIGINT"};
    if (read_output(c, where[p], (br_attempt_id){q, 2, p, 0}, 2, 0, 1, types, 3, NULL, cells, 3, &n, &err) != BR_OK)
      fail_msg("%s", err.message);
    assert_int_equal(n, 1);
    assert_int_equal(cells[0], in_partition[p]);
    rows += cells[0], sum += cells[1], same += cells[2];
  }
  assert_int_equal(rows, ROWS);
  assert_int_equal(sum, (int64_t)ROWS * (ROWS - 1) / 2);
  assert_int_equal(same, ROWS);
}

static void exchange_over_unix_sockets(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  start_worker(c, NULL);
  wait_members(c, 2);
  assert_true(c->members[0].unix_path[0] == '/');
  assert_string_equal(c->members[0].host_id, c->members[1].host_id);
  assert_true(strncmp(c->members[0].uri, "tcp://127.0.0.1:", 16) == 0);
  exchange(c, 0x11);
  WAIT_UNTIL(c->members[0].pss_bytes > (1 << 20) && c->members[0].executors == 1);
  drop_query(c, 0x11);
  coord_close(c);
}

static void exchange_over_tcp(void **state) {
  coord *c = *state;
  start_worker(c, "--host-id", "one", NULL);
  start_worker(c, "--host-id", "two", NULL);
  wait_members(c, 2);
  exchange(c, 0x12);
  coord_close(c);
}

static void exchange_with_a_secret(void **state) {
  coord *c = *state;
  setenv("BRANT_TEST_SECRET", "open-sesame", 1);
  start_worker(c, "--secret-env", "BRANT_TEST_SECRET", "--host-id", "one", NULL);
  wait_members(c, 1);
  run_task(c, 1, (task){.id = {5, 1, 0, 0}, .sql = "SELECT 7::BIGINT AS c0", TYPES("BIGINT")});
  wait_event(c, EV_DONE, &(br_attempt_id){5, 1, 0, 0});
  send_table(c, 5, 1, 1, 1, (uint32_t[]){1}, 1);
  const char *types[] = {"BIGINT"};
  int64_t cell = 0;
  size_t n;
  br_error err = {0};
  br_attempt_id id = {5, 1, 0, 0};
  assert_int_not_equal(read_output(c, 1, id, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  br_error_clear(&err);
  assert_int_not_equal(read_output(c, 1, id, 1, 0, 1, types, 1, "open-says-me", &cell, 1, &n, &err), BR_OK);
  br_error_clear(&err);
  assert_int_equal(read_output(c, 1, id, 1, 0, 1, types, 1, "open-sesame", &cell, 1, &n, &err), BR_OK);
  assert_int_equal(n, 1);
  assert_int_equal(cell, 7);
  coord_close(c);
}

/* Sort keys as BLOBs, bounds from another stage, rows come out in key ranges. */
static void range_exchange(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  uint64_t q = 0x13;
  run_task(c, 1,
           (task){.id = {q, 1, 0, 0},
                  .sql = "SELECT encode(printf('%05d', b)) AS c0 FROM (VALUES (700), (300)) t(b)",
                  TYPES("BLOB")});
  wait_event(c, EV_DONE, &(br_attempt_id){q, 1, 0, 0});
  send_table(c, q, 1, 1, 1, (uint32_t[]){1}, 1);
  in bounds = {.number = 1,
               .stage = 1,
               .version = 1,
               .last = 1,
               .map_last = 1,
               .kind = BRANT__PB__INPUT_KIND__INPUT_BOUNDS,
               TYPES("BLOB")};
  run_task(c, 1,
           (task){.id = {q, 2, 0, 0},
                  .sql = "SELECT i AS c0, encode(printf('%05d', i)) AS c1 FROM range(1000) t(i)",
                  .kind = BRANT__PB__PARTITION_KIND__PART_RANGE,
                  .partitions = 3,
                  .inputs = &bounds,
                  .n_inputs = 1,
                  TYPES("BIGINT")});
  ev e = wait_event(c, EV_DONE, &(br_attempt_id){q, 2, 0, 0});
  assert_int_equal(e.rows_out, 1000);
  send_table(c, q, 2, 2, 3, (uint32_t[]){1}, 1);
  int64_t low[3] = {0, 300, 700}, high[3] = {300, 700, 999};
  const char *types[] = {"BIGINT"};
  size_t total = 0;
  for (uint32_t p = 0; p < 3; p++) {
    int64_t cells[1000];
    size_t n;
    br_error err = {0};
    assert_int_equal(read_output(c, 1, (br_attempt_id){q, 2, 0, 0}, 2, p, p + 1, types, 1, NULL, cells, 1000, &n, &err),
                     BR_OK);
    for (size_t i = 0; i < n; i++) assert_in_range(cells[i], low[p], high[p]);
    total += n;
  }
  assert_int_equal(total, 1000);
  /* Without its bounds the task is refused, and no rows are put in a wrong place. */
  run_task(c, 1,
           (task){.id = {q, 3, 0, 0},
                  .sql = "SELECT 1 AS c0, 'x'::BLOB AS c1",
                  .kind = BRANT__PB__PARTITION_KIND__PART_RANGE,
                  .partitions = 3,
                  TYPES("INTEGER")});
  ev f = wait_event(c, EV_FAILED, &(br_attempt_id){q, 3, 0, 0});
  assert_int_equal(f.error.code, BR_INTERNAL);
  coord_close(c);
}

static void no_rows_and_empty_inputs(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  run_task(c, 1,
           (task){.id = {6, 1, 0, 0},
                  .sql = "SELECT i AS c0, 0 AS c1 FROM range(10) t(i) WHERE i > 100",
                  .kind = BRANT__PB__PARTITION_KIND__PART_HASH,
                  .partitions = 4,
                  TYPES("BIGINT")});
  ev e = wait_event(c, EV_DONE, &(br_attempt_id){6, 1, 0, 0});
  assert_int_equal(e.rows_out, 0);
  assert_int_equal(e.partitions, 4);
  send_table(c, 6, 1, 1, 4, (uint32_t[]){1}, 1);
  in inputs[2] = {{.number = 0, .stage = 1, .version = 1, .last = 4, .map_last = 1, TYPES("BIGINT")},
                  {.number = 7, .stage = 9, .version = 1, TYPES("BIGINT")}}; /* no maps at all: no table either */
  run_task(c, 1,
           (task){.id = {6, 2, 0, 0},
                  .sql = "SELECT (SELECT count(*) FROM input(0)) + (SELECT count(*) FROM input(7)) AS c0",
                  .inputs = inputs,
                  .n_inputs = 2,
                  TYPES("BIGINT")});
  wait_event(c, EV_DONE, &(br_attempt_id){6, 2, 0, 0});
  send_table(c, 6, 2, 2, 1, (uint32_t[]){1}, 1);
  int64_t cell = -1;
  size_t n;
  br_error err = {0};
  const char *types[] = {"BIGINT"};
  assert_int_equal(read_output(c, 1, (br_attempt_id){6, 2, 0, 0}, 2, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  assert_int_equal(cell, 0);
  coord_close(c);
}

static void user_error_arrives_whole(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {0xab, 3, 2, 1};
  run_task(c, 1,
           (task){.id = id, .sql = "SELECT CAST(s AS INTEGER) AS c0 FROM (VALUES ('abc')) t(s)", TYPES("INTEGER")});
  ev e = wait_event(c, EV_FAILED, &id);
  assert_int_equal(e.error.blame, BR_BLAME_USER);
  assert_false(e.error.retryable);
  assert_true(e.error.has_attempt);
  assert_true(br_attempt_equal(&e.error.attempt, &id));
  assert_non_null(strstr(e.error.message, "'abc'"));
  assert_non_null(strstr(e.error.message, "\n  in task qab.s3.t2.a1: SELECT CAST(s AS INTEGER)"));
  /* A long SQL is cut, a message of error() arrives, the executor works on. */
  char *sql = br_malloc(4000);
  snprintf(sql, 4000, "SELECT CAST(error('enough' || i) AS INTEGER) AS c0 FROM range(10) t(i) -- %03000d", 0);
  run_task(c, 1, (task){.id = {0xab, 4, 0, 0}, .sql = sql, TYPES("INTEGER")});
  e = wait_event(c, EV_FAILED, &(br_attempt_id){0xab, 4, 0, 0});
  assert_non_null(strstr(e.error.message, "enough"));
  assert_non_null(strstr(e.error.message, "000..."));
  assert_true(strlen(e.error.message) < 1200);
  free(sql);
  run_task(c, 1, (task){.id = {0xab, 5, 0, 0}, .sql = "SELECT 1 AS c0", TYPES("INTEGER")});
  wait_event(c, EV_DONE, &(br_attempt_id){0xab, 5, 0, 0});
  assert_null(find_event(c, EV_LOST, NULL));
  coord_close(c);
}

static void plan_and_sql_disagree(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  run_task(c, 1, (task){.id = {8, 1, 0, 0}, .sql = "SELECT 1::BIGINT AS c0", TYPES("VARCHAR")});
  ev e = wait_event(c, EV_FAILED, &(br_attempt_id){8, 1, 0, 0});
  assert_int_equal(e.error.code, BR_INTERNAL);
  assert_non_null(strstr(e.error.message, "than the plan says"));
  coord_close(c);
}

static const char long_sql[] = "SELECT count(*) AS c0 FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3";

static void cancel_is_quick(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {9, 1, 0, 0}, waiting = {9, 1, 1, 0}, next = {9, 2, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = long_sql, TYPES("BIGINT")});
  run_task(c, 1, (task){.id = waiting, .sql = long_sql, TYPES("BIGINT")}); /* one slot: it waits */
  wait_event(c, EV_STARTED, &id);
  uint64_t start = br_now_ms();
  cancel_task(c, 1, waiting);
  cancel_task(c, 1, id);
  ev e = wait_event(c, EV_FAILED, &id), w = wait_event(c, EV_FAILED, &waiting);
  assert_true(br_now_ms() - start < 1000);
  assert_int_equal(e.error.code, BR_CANCELLED);
  assert_int_equal(w.error.code, BR_CANCELLED);
  run_task(c, 1, (task){.id = next, .sql = "SELECT 1 AS c0", TYPES("INTEGER")});
  wait_event(c, EV_DONE, &next);
  assert_null(find_event(c, EV_LOST, NULL)); /* the executor lived */
  coord_close(c);
}

static void deadline_passes(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {10, 1, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = long_sql, .deadline_ms = 300, TYPES("BIGINT")});
  ev e = wait_event(c, EV_FAILED, &id);
  assert_int_equal(e.error.code, BR_TIMEOUT);
  assert_int_equal(e.error.blame, BR_BLAME_USER);
  coord_close(c);
}

static void prelude_and_settings(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  const char *prelude[] = {"CREATE OR REPLACE TEMP MACRO twice(x) AS x * 2"};
  for (uint32_t i = 0; i < 2; i++) {
    br_attempt_id id = {11, 1, i, 0};
    run_task(c, 1,
             (task){.id = id,
                    .sql = "SELECT twice(extract(hour FROM TIMESTAMPTZ '2026-01-01 00:00:00+00'))::BIGINT AS c0",
                    .prelude = prelude,
                    .n_prelude = 1,
                    .setting = "TimeZone",
                    .value = "Asia/Tokyo",
                    TYPES("BIGINT")});
    wait_event(c, EV_DONE, &id);
  }
  send_table(c, 11, 1, 1, 1, (uint32_t[]){1, 1}, 2);
  int64_t cell = 0;
  size_t n;
  br_error err = {0};
  const char *types[] = {"BIGINT"};
  assert_int_equal(read_output(c, 1, (br_attempt_id){11, 1, 1, 0}, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  assert_int_equal(cell, 18);
  run_task(
      c, 1,
      (task){
          .id = {12, 1, 0, 0}, .sql = "SELECT 1 AS c0", .setting = "no_such_setting", .value = "1", TYPES("INTEGER")});
  ev e = wait_event(c, EV_FAILED, &(br_attempt_id){12, 1, 0, 0});
  assert_non_null(strstr(e.error.message, "no_such_setting"));
  coord_close(c);
}

static void dropped_outputs_are_gone(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {13, 1, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = "SELECT 5::BIGINT AS c0", TYPES("BIGINT")});
  wait_event(c, EV_DONE, &id);
  send_table(c, 13, 1, 1, 1, (uint32_t[]){1}, 1);
  int64_t cell = 0;
  size_t n;
  br_error err = {0};
  const char *types[] = {"BIGINT"};
  assert_int_equal(read_output(c, 1, id, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  assert_int_not_equal(read_output(c, 1, id, 4, 0, 1, types, 1, NULL, &cell, 1, &n, &err),
                       BR_OK); /* a version that never came */
  assert_int_equal(err.code, BR_FETCH);
  drop_query(c, 13);
  br_error_clear(&err);
  WAIT_UNTIL(read_output(c, 1, id, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err) != BR_OK); /* the drop is on its way */
  assert_int_equal(err.code, BR_FETCH);
  coord_close(c);
}

/* A table that names an output which isn't there: the reader learns which one is lost. */
static void lost_output_is_named(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  send_table(c, 14, 1, 1, 1, (uint32_t[]){1, 1}, 2);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_first = 1, .map_last = 2, TYPES("BIGINT")};
  br_attempt_id id = {14, 2, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = "SELECT c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")});
  ev e = wait_event(c, EV_FAILED, &id);
  assert_int_equal(e.error.code, BR_FETCH);
  assert_true(e.error.has_lost);
  assert_int_equal(e.error.lost.made_by.task, 1);
  assert_int_equal(e.error.lost.worker, 1);
  assert_int_equal(e.error.lost.incarnation, 7);
  coord_close(c);
}

/* More outputs than one message has room for descriptors, all read by one task. */
static void many_local_outputs(void **state) {
  coord *c = *state;
  enum { MAPS = 2 * 200 + 50 };
  start_worker(c, NULL);
  wait_members(c, 1);
  uint32_t where[MAPS];
  for (uint32_t m = 0; m < MAPS; m++) {
    char sql[64];
    snprintf(sql, sizeof sql, "SELECT %u::BIGINT AS c0", m);
    run_task(c, 1, (task){.id = {15, 1, m, 0}, .sql = sql, TYPES("BIGINT")});
    where[m] = 1;
  }
  for (uint32_t m = 0; m < MAPS; m++) wait_event(c, EV_DONE, &(br_attempt_id){15, 1, m, 0});
  send_table(c, 15, 1, 1, 1, where, MAPS);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = MAPS, TYPES("BIGINT")};
  for (uint32_t k = 0; k < 2; k++) { /* the second one finds them there */
    run_task(c, 1,
             (task){.id = {15, 2, k, 0},
                    .sql = "SELECT CAST(sum(c0) AS BIGINT) AS c0, count(*) AS c1 FROM input(0)",
                    .inputs = &i,
                    .n_inputs = 1,
                    TYPES("BIGINT", "BIGINT")});
    wait_event(c, EV_DONE, &(br_attempt_id){15, 2, k, 0});
  }
  send_table(c, 15, 2, 2, 1, where, 2);
  const char *types[] = {"BIGINT", "BIGINT"};
  for (uint32_t k = 0; k < 2; k++) {
    int64_t cells[2];
    size_t n;
    br_error err = {0};
    assert_int_equal(read_output(c, 1, (br_attempt_id){15, 2, k, 0}, 2, 0, 1, types, 2, NULL, cells, 2, &n, &err),
                     BR_OK);
    assert_int_equal(cells[0], MAPS * (MAPS - 1) / 2);
    assert_int_equal(cells[1], MAPS);
  }
  coord_close(c);
}

/* An output larger than the store's memory goes to disk, is read locally and over the socket, and goes with its query. */
static void output_larger_than_memory(void **state) {
  coord *c = *state;
  start_worker(c, "--memory", "192MiB", "--host-id", "one", NULL);
  start_worker(c, "--memory", "192MiB", "--host-id", "two", NULL);
  wait_members(c, 2);
  run_task(c, 1,
           (task){.id = {16, 1, 0, 0},
                  .sql = "SELECT i AS c0, hash(i)::UBIGINT AS c1, hash(i, 5)::UBIGINT AS c2, (i % 5)::INTEGER AS c3 "
                         "FROM range(4000000) t(i)",
                  .kind = BRANT__PB__PARTITION_KIND__PART_HASH,
                  .partitions = 5,
                  TYPES("BIGINT", "UBIGINT", "UBIGINT")});
  ev e = wait_event(c, EV_DONE, &(br_attempt_id){16, 1, 0, 0});
  assert_true(e.spill_bytes > 0);
  send_table(c, 16, 1, 1, 5, (uint32_t[]){1}, 1);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 5, .map_last = 1, TYPES("BIGINT", "UBIGINT", "UBIGINT")};
  int64_t cells[2];
  const char *types[] = {"BIGINT", "BIGINT"};
  for (uint32_t w = 1; w <= 2; w++) { /* at home, and on the other worker */
    br_attempt_id id = {16, 1 + w, 0, 0};
    run_task(c, w,
             (task){.id = id,
                    .sql = "SELECT count(*) AS c0, CAST(sum(c0) AS BIGINT) AS c1 FROM input(0) WHERE c1 = hash(c0)",
                    .inputs = &i,
                    .n_inputs = 1,
                    TYPES("BIGINT", "BIGINT")});
    wait_event(c, EV_DONE, &id);
    send_table(c, 16, 1 + w, 1, 1, &w, 1);
    size_t n;
    br_error err = {0};
    assert_int_equal(read_output(c, w, id, 1, 0, 1, types, 2, NULL, cells, 2, &n, &err), BR_OK);
    assert_int_equal(cells[0], 4000000);
    assert_int_equal(cells[1], (int64_t)4000000 * 3999999 / 2);
  }
  drop_query(c, 16);
  coord_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(exchange_over_unix_sockets),
      TEST(exchange_over_tcp),
      TEST(exchange_with_a_secret),
      TEST(range_exchange),
      TEST(no_rows_and_empty_inputs),
      TEST(user_error_arrives_whole),
      TEST(plan_and_sql_disagree),
      TEST(cancel_is_quick),
      TEST(deadline_passes),
      TEST(prelude_and_settings),
      TEST(dropped_outputs_are_gone),
      TEST(lost_output_is_named),
      TEST(many_local_outputs),
      TEST(output_larger_than_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
