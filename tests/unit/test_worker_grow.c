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
static void room_beside_a_retired_stage(coord *c, bool comes_back) {
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
  if (comes_back) send_table(c, 22, 1, 2, 1, (uint32_t[]){1, 1}, 2);
  for (uint32_t t = 0; t < 2; t++) {
    br_attempt_id id = {22, 3, t, 0};
    run_task(c, 1, (task){.id = id, .sql = sql, TYPES("BIGINT", "UBIGINT")});
    ev done = wait_event(c, EV_DONE, &id);
    if (!comes_back) assert_int_equal(done.spill_bytes, 0);
  }
  if (comes_back) { /* nothing went: others did not get its room */
    i.version = 2;
    count.id.attempt = 1;
    run_task(c, 1, count);
    assert_int_equal(wait_event(c, EV_DONE, &count.id).rows_in, 2000000);
    assert_null(find_event(c, EV_OUTPUT_LOST, NULL));
    coord_close(c);
    return;
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

static void retired_outputs_make_room(void **state) { room_beside_a_retired_stage(*state, false); }
static void a_table_takes_the_retirement_back(void **state) { room_beside_a_retired_stage(*state, true); }

/* ---- read while written */

#define SLOW "FROM range(30000000) t(i) WHERE hash(i) % 100 = 3" /* about 300,000 rows, in some tenths of a second */
#define ENDLESS "FROM range(1000000000000) t(i) WHERE hash(i) % 100 = 3"

/* Two maps on two workers, read on both while they are being made: each reader has an own one and another's. */
static void readers_of_running_attempts(coord *c, uint64_t q) {
  for (uint32_t m = 0; m < 2; m++)
    run_task(c, m + 1,
             (task){.id = {q, 1, m, 0},
                    .sql = "SELECT i AS c0, CAST(hash(i, 5) % 2 AS INTEGER) AS c1 " SLOW,
                    .kind = BRANT__PB__PARTITION_KIND__PART_HASH,
                    .partitions = 2,
                    .publish = true,
                    TYPES("BIGINT")});
  send_any_table(c, q, 1, 1, 2, (uint32_t[]){1, 2}, 2, true);
  for (uint32_t p = 0; p < 2; p++) {
    in i = {.number = 0, .stage = 1, .version = 1, .first = p, .last = p + 1, .map_last = 2, TYPES("BIGINT")};
    run_task(c, p + 1,
             (task){.id = {q, 2, p, 0},
                    .sql = "SELECT count(*) AS c0, CAST(sum(c0) AS BIGINT) AS c1, "
                           "count(*) FILTER (hash(c0) % 100 <> 3) AS c2 FROM input(0)",
                    .inputs = &i,
                    .n_inputs = 1,
                    TYPES("BIGINT", "BIGINT", "BIGINT")});
  }
  uint64_t in_partition[2] = {0};
  for (uint32_t m = 0; m < 2; m++) {
    ev e = wait_event(c, EV_DONE, &(br_attempt_id){q, 1, m, 0});
    for (int p = 0; p < 2; p++) in_partition[p] += e.partition_rows[p];
  }
  for (uint32_t p = 0; p < 2; p++) {
    ev e = wait_event(c, EV_DONE, &(br_attempt_id){q, 2, p, 0});
    assert_int_equal(e.rows_in, in_partition[p]);
    assert_true(e.remote_bytes_in > 0);
  }
  send_table(c, q, 2, 2, 1, (uint32_t[]){1, 2}, 2);
  for (uint32_t p = 0; p < 2; p++) {
    int64_t cells[3];
    size_t n;
    br_error err = {0};
    static const char *const types[] = {"BIGINT", "BIGINT", "BIGINT"};
    if (read_output(c, p + 1, (br_attempt_id){q, 2, p, 0}, 2, 0, 1, types, 3, NULL, cells, 3, &n, &err) != BR_OK)
      fail_msg("%s", err.message);
    assert_int_equal(cells[0], in_partition[p]);
    assert_int_equal(cells[2], 0);
  }
  /* Who is bound to the same version of the table later reads the same, from the store. */
  in i = {.number = 0, .stage = 1, .version = 1, .last = 2, .map_last = 2, TYPES("BIGINT")};
  br_attempt_id late = {q, 3, 0, 0};
  run_task(
      c, 1,
      (task){.id = late, .sql = "SELECT count(*) AS c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")});
  assert_int_equal(wait_event(c, EV_DONE, &late).rows_in, in_partition[0] + in_partition[1]);
}

static void read_while_written_over_unix(void **state) {
  coord *c = *state;
  for (int w = 0; w < 2; w++) start_worker(c, "--slots", "2", NULL);
  wait_members(c, 2);
  readers_of_running_attempts(c, 31);
  drop_query(c, 31);
  coord_close(c);
}

static void read_while_written_over_tcp(void **state) {
  coord *c = *state;
  start_worker(c, "--slots", "2", "--host-id", "one", NULL);
  start_worker(c, "--slots", "2", "--host-id", "two", NULL);
  wait_members(c, 2);
  readers_of_running_attempts(c, 32);
  coord_close(c);
}

/* Small memory: the output moves to disk while a reader on the same worker follows. */
static void read_while_it_moves_to_disk(void **state) {
  coord *c = *state;
  start_worker(c, "--slots", "2", "--memory", "192MiB", NULL);
  wait_members(c, 1);
  br_attempt_id id = {33, 1, 0, 0}, reader = {33, 2, 0, 0};
  run_task(c, 1,
           (task){.id = id,
                  .sql = "SELECT i AS c0, hash(i)::UBIGINT AS c1, hash(i, 5)::UBIGINT AS c2, (i % 5)::INTEGER AS c3 "
                         "FROM range(4000000) t(i)",
                  .kind = BRANT__PB__PARTITION_KIND__PART_HASH,
                  .partitions = 5,
                  .publish = true,
                  TYPES("BIGINT", "UBIGINT", "UBIGINT")});
  send_any_table(c, 33, 1, 1, 5, (uint32_t[]){1}, 1, true);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 5, .map_last = 1, TYPES("BIGINT", "UBIGINT", "UBIGINT")};
  run_task(c, 1,
           (task){.id = reader,
                  .sql = "SELECT count(*) AS c0, CAST(sum(c0) AS BIGINT) AS c1 FROM input(0) WHERE c1 = hash(c0)",
                  .inputs = &i,
                  .n_inputs = 1,
                  TYPES("BIGINT", "BIGINT")});
  assert_true(wait_event(c, EV_DONE, &id).spill_bytes > 0);
  assert_int_equal(wait_event(c, EV_DONE, &reader).rows_in, 4000000);
  send_table(c, 33, 2, 1, 1, (uint32_t[]){1}, 1);
  int64_t cells[2];
  size_t n;
  br_error err = {0};
  static const char *const types[] = {"BIGINT", "BIGINT"};
  assert_int_equal(read_output(c, 1, reader, 1, 0, 1, types, 2, NULL, cells, 2, &n, &err), BR_OK);
  assert_int_equal(cells[0], 4000000);
  assert_int_equal(cells[1], (int64_t)4000000 * 3999999 / 2);
  coord_close(c);
}

typedef struct follower {
  coord *c;
  br_schema *schema;
  br_reader *r;
} follower;

/* A reader in this process of worker 1's output. */
static follower follow(coord *c, uint64_t q) {
  follower f = {.c = c};
  br_error err = {0};
  assert_int_equal(br_session_schema(c->session, bigint, NULL, 1, &f.schema, &err), BR_OK);
  br_read_remote remote = {.uri = c->members[0].uri, .worker = 1, .incarnation = 7, .outputs = 1};
  br_reader_options o = {.loop = c->loop,
                         .schema = f.schema,
                         .query = q,
                         .stage = 1,
                         .table_version = 1,
                         .last = 1,
                         .map_last = 1,
                         .remote = &remote,
                         .n_remote = 1,
                         .buffer_bytes = 1 << 20,
                         .retry = 7,
                         .retry_ms = 20};
  assert_int_equal(br_reader_open(&o, &f.r, &err), BR_OK);
  return f;
}

static void assert_lost(const br_error *e, br_attempt_id id) {
  assert_int_equal(e->code, BR_FETCH);
  assert_int_equal(e->blame, BR_BLAME_FETCH);
  assert_true(e->has_lost);
  assert_true(br_attempt_equal(&e->lost.made_by, &id));
  assert_int_equal(e->lost.worker, 1);
  assert_int_equal(e->lost.incarnation, 7);
}

/* Rows come long before the end; when the attempt is cancelled, its readers learn which output is lost, as do those who come later. */
static void a_cancelled_attempt_is_lost(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {34, 1, 0, 0};
  br_error err = {0};
  br_batch *b = NULL;
  send_any_table(c, 34, 1, 1, 1, (uint32_t[]){1}, 1, true);
  follower f = follow(c, 34); /* before the attempt is known there */
  run_task(c, 1, (task){.id = id, .sql = "SELECT i AS c0 " ENDLESS, .publish = true, TYPES("BIGINT")});
  for (int i = 0; i < 5; i++) {
    if (br_reader_next(f.r, &b, &err) != BR_OK) fail_msg("%s", err.message);
    assert_non_null(b);
    br_batch_unref(b);
  }
  assert_null(find_event(c, EV_DONE, &id));
  cancel_task(c, 1, id);
  br_status status;
  while ((status = br_reader_next(f.r, &b, &err)) == BR_OK && b) br_batch_unref(b);
  assert_lost(&err, id);
  br_reader_free(f.r);
  br_schema_unref(f.schema);
  assert_int_equal(wait_event(c, EV_FAILED, &id).error.code, BR_CANCELLED);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 1, TYPES("BIGINT")};
  br_attempt_id late = {34, 2, 0, 0};
  run_task(c, 1, (task){.id = late, .sql = "SELECT c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")});
  ev e = wait_event(c, EV_FAILED, &late);
  assert_lost(&e.error, id);
  coord_close(c);
}

/* The producer's executor is killed: a reader on another worker fails, with the output that is lost. */
static void a_killed_executor_loses_what_it_wrote(void **state) {
  coord *c = *state;
  pid_t worker = start_worker(c, NULL), executors[4];
  wait_members(c, 1);
  start_worker(c, NULL);
  wait_members(c, 2);
  br_attempt_id id = {35, 1, 0, 0}, reader = {35, 2, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = "SELECT i AS c0 " ENDLESS, .publish = true, TYPES("BIGINT")});
  send_any_table(c, 35, 1, 1, 1, (uint32_t[]){1}, 1, true);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 1, TYPES("BIGINT")};
  run_task(
      c, 2,
      (task){.id = reader, .sql = "SELECT count(*) AS c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")});
  follower f = follow(c, 35); /* rows are on their way when it happens */
  br_error err = {0};
  br_batch *b = NULL;
  if (br_reader_next(f.r, &b, &err) != BR_OK) fail_msg("%s", err.message);
  br_batch_unref(b);
  wait_event(c, EV_STARTED, &reader);
  assert_int_equal(children_of(worker, executors, 4), 1);
  kill(executors[0], SIGKILL);
  ev e = wait_event(c, EV_FAILED, &reader);
  assert_lost(&e.error, id);
  ev lost = wait_event(c, EV_LOST, NULL);
  assert_true(br_attempt_equal(&lost.id, &id));
  br_reader_free(f.r);
  br_schema_unref(f.schema);
  coord_close(c);
}

/* Named as growing, but never heard of: the reader asks some times, then says which one it is. */
static void an_unknown_attempt_is_lost(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  send_any_table(c, 36, 1, 1, 1, (uint32_t[]){1}, 1, true);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 1, TYPES("BIGINT")};
  br_attempt_id reader = {36, 2, 0, 0};
  run_task(c, 1, (task){.id = reader, .sql = "SELECT c0 FROM input(0)", .inputs = &i, .n_inputs = 1, TYPES("BIGINT")});
  ev e = wait_event(c, EV_FAILED, &reader);
  assert_lost(&e.error, (br_attempt_id){36, 1, 0, 0});
  coord_close(c);
}

/* ---- out of memory: in passes, and alone */

static void passes_write_one_output(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  run_task(c, 1,
           (task){.id = {41, 1, 0, 0},
                  .sql = "SELECT i % 1000 AS c0, i AS c1 FROM range(100000) t(i)",
                  TYPES("BIGINT", "BIGINT")});
  run_task(c, 1, (task){.id = {41, 2, 0, 0}, .sql = "SELECT encode(printf('%05d', 500)) AS c0", TYPES("BLOB")});
  wait_event(c, EV_DONE, &(br_attempt_id){41, 1, 0, 0});
  wait_event(c, EV_DONE, &(br_attempt_id){41, 2, 0, 0});
  send_table(c, 41, 1, 1, 1, (uint32_t[]){1}, 1);
  send_table(c, 41, 2, 1, 1, (uint32_t[]){1}, 1);
  in inputs[2] = {{.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 1, TYPES("BIGINT", "BIGINT")},
                  {.number = 1,
                   .stage = 2,
                   .version = 1,
                   .last = 1,
                   .map_last = 1,
                   .kind = BRANT__PB__INPUT_KIND__INPUT_BOUNDS,
                   TYPES("BLOB")}};
#define PASS(k)                                                                                                    \
  "SELECT c0, CAST(sum(c1) AS BIGINT) AS c1, encode(printf('%05d', c0)) AS c2 FROM (SELECT * FROM input(0) WHERE " \
  "hash(c0, 77) % 3 = " k ") t GROUP BY c0"
  static const char *const passes[] = {PASS("0"), PASS("1"), PASS("2")};
  br_attempt_id id = {41, 3, 0, 0};
  run_task(c, 1,
           (task){.id = id,
                  .passes = passes,
                  .n_passes = 3,
                  .kind = BRANT__PB__PARTITION_KIND__PART_RANGE,
                  .partitions = 2,
                  .inputs = inputs,
                  .n_inputs = 2,
                  TYPES("BIGINT", "BIGINT")});
  ev e = wait_event(c, EV_DONE, &id);
  assert_int_equal(e.rows_out, 1000);
  assert_int_equal(e.rows_in, 3 * 100000 + 1);
  assert_int_equal(e.partition_rows[0], 501);
  send_table(c, 41, 3, 1, 2, (uint32_t[]){1}, 1);
  static int64_t cells[2000];
  static const char *const types[] = {"BIGINT", "BIGINT"};
  size_t n;
  br_error err = {0};
  assert_int_equal(read_output(c, 1, id, 1, 0, 2, types, 2, NULL, cells, 2000, &n, &err), BR_OK);
  assert_int_equal(n, 1000);
  for (size_t k = 0; k < n; k++) assert_int_equal(cells[2 * k + 1], 100 * cells[2 * k] + 1000 * 99 * 100 / 2);
  /* An error names the pass that it happened in. */
  static const char *const failing[] = {"SELECT 1 AS c0", "SELECT CAST(error('second') AS INTEGER) AS c0"};
  br_attempt_id bad = {41, 4, 0, 0};
  run_task(c, 1, (task){.id = bad, .passes = failing, .n_passes = 2, TYPES("INTEGER")});
  e = wait_event(c, EV_FAILED, &bad);
  assert_int_equal(e.error.blame, BR_BLAME_USER);
  assert_non_null(strstr(e.error.message, "SELECT CAST(error('second')"));
  coord_close(c);
}

static size_t place_of(coord *c, ev_kind kind, br_attempt_id id) {
  wait_event(c, kind, &id);
  pthread_mutex_lock(&c->lock);
  size_t at = (size_t)(find_event(c, kind, &id) - c->events);
  pthread_mutex_unlock(&c->lock);
  return at;
}

static bool has_event(coord *c, ev_kind kind, br_attempt_id id) {
  pthread_mutex_lock(&c->lock);
  bool has = find_event(c, kind, &id) != NULL;
  pthread_mutex_unlock(&c->lock);
  return has;
}

static void nothing_runs_beside_one_that_is_alone(void **state) {
  coord *c = *state;
  start_worker(c, "--slots", "3", NULL);
  wait_members(c, 1);
  br_attempt_id busy = {42, 1, 0, 0}, alone = {42, 2, 0, 0}, other = {42, 3, 0, 0}, published = {42, 4, 0, 0};
  run_task(c, 1,
           (task){.id = busy,
                  .sql = "SELECT count(*) AS c0 FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3",
                  TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &busy);
  run_task(c, 1, (task){.id = alone, .sql = "SELECT i AS c0 " SLOW, .alone = true, TYPES("BIGINT")});
  run_task(c, 1, (task){.id = other, .sql = "SELECT 1 AS c0", TYPES("INTEGER")});
  run_task(c, 1, (task){.id = published, .sql = "SELECT 1 AS c0", .publish = true, TYPES("INTEGER")});
  wait_event(c, EV_DONE, &published); /* what runs may wait for it: it goes first */
  assert_false(has_event(c, EV_STARTED, alone));
  assert_false(has_event(c, EV_STARTED, other));
  cancel_task(c, 1, busy);
  assert_true(place_of(c, EV_DONE, alone) < place_of(c, EV_STARTED, other));
  assert_true(place_of(c, EV_FAILED, busy) < place_of(c, EV_STARTED, alone));
  wait_event(c, EV_DONE, &other);
  coord_close(c);
}

/* With two executors the others go to the second one. */
static void others_have_other_executors(void **state) {
  coord *c = *state;
  start_worker(c, "--slots", "2", "--executors", "2", NULL);
  wait_members(c, 1);
  static const char endless[] = "SELECT count(*) AS c0 FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3";
  br_attempt_id busy[2] = {{43, 1, 0, 0}, {43, 1, 1, 0}}, alone = {43, 2, 0, 0}, other = {43, 3, 0, 0};
  WAIT_UNTIL(c->members[0].executors == 2);
  for (int i = 0; i < 2; i++) run_task(c, 1, (task){.id = busy[i], .sql = endless, TYPES("BIGINT")});
  for (int i = 0; i < 2; i++) wait_event(c, EV_STARTED, &busy[i]); /* one on each */
  run_task(c, 1, (task){.id = alone, .sql = "SELECT 1 AS c0", .alone = true, TYPES("INTEGER")});
  run_task(c, 1, (task){.id = other, .sql = "SELECT 1 AS c0", TYPES("INTEGER")});
  wait_event(c, EV_DONE, &other);
  assert_false(has_event(c, EV_STARTED, alone));
  for (int i = 0; i < 2; i++) cancel_task(c, 1, busy[i]);
  wait_event(c, EV_DONE, &alone);
  coord_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(one_output_is_dropped),
      TEST(retired_outputs_make_room),
      TEST(a_table_takes_the_retirement_back),
      TEST(read_while_written_over_unix),
      TEST(read_while_written_over_tcp),
      TEST(read_while_it_moves_to_disk),
      TEST(a_cancelled_attempt_is_lost),
      TEST(a_killed_executor_loses_what_it_wrote),
      TEST(an_unknown_attempt_is_lost),
      TEST(passes_write_one_output),
      TEST(nothing_runs_beside_one_that_is_alone),
      TEST(others_have_other_executors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
