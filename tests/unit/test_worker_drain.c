/* SPDX-License-Identifier: Apache-2.0
 * How a worker goes and comes again: drained, released, told twice, without a coordinator, declared lost. Real processes; nothing may be
 * left behind. */
/* links: br_engine br_shuffle br_flight */
#include "unit/worker_coordinator.h"

static const char long_sql[] = "SELECT count(*) AS c0 FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3";
/* Long enough to be under way when the signal comes, if not, the test still holds. */
static const char short_sql[] =
    "SELECT CAST(count(*) AS BIGINT) AS c0 FROM range(100000000) t(i) WHERE hash(i) % 7 < 7";

static void simple_task(coord *c, uint32_t worker, br_attempt_id id) {
  run_task(c, worker, (task){.id = id, .sql = "SELECT 1 AS c0", TYPES("INTEGER")});
  wait_event(c, EV_DONE, &id);
}

static void start_long(coord *c, uint32_t worker, br_attempt_id id) {
  run_task(c, worker, (task){.id = id, .sql = long_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &id);
}

static void release(coord *c, uint32_t worker) {
  Brant__Pb__Command m = BRANT__PB__COMMAND__INIT;
  m.what_case = BRANT__PB__COMMAND__WHAT_RELEASE;
  m.release = 1;
  send_command(c, worker, &m);
}

static void ends_with(coord *c, pid_t w, int code) {
  int status = wait_exit(c, w);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

static bool seen(coord *c, ev_kind kind, const br_attempt_id *id) {
  pthread_mutex_lock(&c->lock);
  bool yes = find_event(c, kind, id) != NULL;
  pthread_mutex_unlock(&c->lock);
  return yes;
}

/* Its running task ends, one that crossed the news is run, its outputs can be read; then it's told to go. */
static void drained(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id a = {1, 1, 0, 0}, late = {1, 1, 1, 0};
  run_task(c, 1, (task){.id = a, .sql = short_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &a);
  kill(w, SIGTERM);
  wait_event(c, EV_DRAINING, NULL);
  wait_event(c, EV_DONE, &a);
  simple_task(c, 1, late);
  send_table(c, 1, 1, 1, 1, (uint32_t[]){1, 1}, 2);
  const char *types[] = {"BIGINT"};
  int64_t cell = 0;
  size_t n;
  br_error err = {0};
  assert_int_equal(read_output(c, 1, a, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  assert_int_equal(cell, 100000000);
  assert_false(seen(c, EV_LEAVING, NULL));
  release(c, 1);
  wait_event(c, EV_LEAVING, NULL);
  ends_with(c, w, 0);
  wait_gone(c, 1);
  coord_close(c);
}

/* Nobody releases it, its task does not end: it goes by its own clock. */
static void not_released(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, "--drain", "1", NULL);
  wait_members(c, 1);
  start_long(c, 1, (br_attempt_id){2, 1, 0, 0});
  uint64_t start = br_now_ms();
  kill(w, SIGTERM);
  wait_event(c, EV_DRAINING, NULL);
  wait_event(c, EV_LEAVING, NULL);
  assert_true(br_now_ms() - start >= 900);
  ends_with(c, w, 0);
  coord_close(c);
}

/* A release for one that does not drain means nothing. */
static void release_of_a_stranger(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  release(c, 1);
  simple_task(c, 1, (br_attempt_id){3, 1, 0, 0});
  assert_false(seen(c, EV_LEAVING, NULL));
  coord_close(c);
}

static void leaves_at_once(coord *c, pid_t w, int first, int second) {
  start_long(c, 1, (br_attempt_id){4, 1, 0, 0});
  kill(w, first);
  if (second) {
    wait_event(c, EV_DRAINING, NULL);
    kill(w, second);
  }
  uint64_t start = br_now_ms();
  wait_event(c, EV_LEAVING, NULL);
  ends_with(c, w, 0);
  assert_true(br_now_ms() - start < 10000); /* --drain is 60 s */
  assert_int_equal(seen(c, EV_DRAINING, NULL), second != 0);
  coord_close(c);
}

static void told_twice(void **state) {
  pid_t w = start_worker(*state, NULL);
  wait_members(*state, 1);
  leaves_at_once(*state, w, SIGTERM, SIGTERM);
}

static void interrupted_while_it_drains(void **state) {
  pid_t w = start_worker(*state, NULL);
  wait_members(*state, 1);
  leaves_at_once(*state, w, SIGTERM, SIGINT);
}

static void interrupted(void **state) {
  pid_t w = start_worker(*state, NULL);
  wait_members(*state, 1);
  leaves_at_once(*state, w, SIGINT, 0);
}

static void does_not_drain(void **state) {
  pid_t w = start_worker(*state, "--drain", "0", NULL);
  wait_members(*state, 1);
  leaves_at_once(*state, w, SIGTERM, 0);
}

/* There is nobody whom it could finish its tasks for. */
static void coordinator_goes_while_it_drains(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  start_long(c, 1, (br_attempt_id){5, 1, 0, 0});
  kill(w, SIGTERM);
  wait_event(c, EV_DRAINING, NULL);
  uint64_t start = br_now_ms();
  coord_close_server(c);
  ends_with(c, w, 0);
  assert_true(br_now_ms() - start < 10000);
  coord_close(c);
}

/* ---- another life */

/* Nothing is there of the first one: no executor, no file. Then it serves the next coordinator. */
static void coordinator_comes_back(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL), left[8];
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){6, 1, 0, 0});
  start_long(c, 1, (br_attempt_id){6, 2, 0, 0});
  coord_close_server(c);
  WAIT_UNTIL(homes(c) == 0 && children_of(w, left, 8) == 0);
  coord_reopen_server(c);
  wait_members(c, 2);
  assert_int_equal(c->members[1].pid, w);
  simple_task(c, 2, (br_attempt_id){7, 1, 0, 0});
  br_error err = {0};
  int64_t cell = 0;
  size_t n;
  const char *types[] = {"INTEGER"};
  send_table(c, 6, 1, 1, 1, (uint32_t[]){1}, 1); /* of the first life: not there, and not empty either */
  assert_int_not_equal(read_output(c, 2, (br_attempt_id){6, 1, 0, 0}, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err),
                       BR_OK);
  coord_close(c);
}

static void end_join(void *arg) {
  coord *c = arg;
  br_error err = {0};
  br_fail(&err, BR_LOST, BR_BLAME_WORKER, "worker 1 was declared lost: join again");
  br_flight_call_end(c->members[0].call, &err);
}

/* It slept, the coordinator gave it up: what it says later is of a member that isn't, and it begins anew. */
static void declared_lost(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  start_long(c, 1, (br_attempt_id){8, 1, 0, 0});
  kill(w, SIGSTOP);
  br_loop_post(c->loop, end_join, c);
  wait_gone(c, 1);
  size_t before = c->n_events;
  kill(w, SIGCONT);
  wait_members(c, 2);
  assert_int_equal(c->members[1].pid, w);
  simple_task(c, 2, (br_attempt_id){8, 1, 0, 1});
  pthread_mutex_lock(&c->lock);
  for (size_t i = before; i < c->n_events; i++)
    assert_true(c->events[i].worker == 2 || c->events[i].kind == EV_STARTED);
  pthread_mutex_unlock(&c->lock);
  assert_int_equal(homes(c), 1);
  coord_close(c);
}

static void coordinator_stays_away(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, "--rejoin-wait", "1", NULL);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){9, 1, 0, 0});
  coord_close_server(c);
  ends_with(c, w, 3);
  coord_close(c);
}

static void asked_to_end_between_lives(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){10, 1, 0, 0});
  coord_close_server(c);
  WAIT_UNTIL(homes(c) == 0);
  kill(w, SIGTERM);
  ends_with(c, w, 0);
  coord_close(c);
}

/* Started from a thread that blocks all signals, as threads of libraries do: it hears SIGTERM all the same. */
static void signals_blocked_by_its_parent(void **state) {
  coord *c = *state;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  pid_t w = start_worker(c, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){11, 1, 0, 0});
  kill(w, SIGTERM);
  wait_event(c, EV_DRAINING, NULL);
  release(c, 1);
  ends_with(c, w, 0);
  coord_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(drained),
      TEST(not_released),
      TEST(release_of_a_stranger),
      TEST(told_twice),
      TEST(interrupted_while_it_drains),
      TEST(interrupted),
      TEST(does_not_drain),
      TEST(coordinator_goes_while_it_drains),
      TEST(coordinator_comes_back),
      TEST(declared_lost),
      TEST(coordinator_stays_away),
      TEST(asked_to_end_between_lives),
      TEST(signals_blocked_by_its_parent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
