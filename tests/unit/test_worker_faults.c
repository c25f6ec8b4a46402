/* SPDX-License-Identifier: Apache-2.0
 * What happens to a worker when something around it dies: an executor, the worker itself, the coordinator, the parent; and when
 * strangers talk to its port. Real processes; nothing may be left behind. */
/* links: br_engine br_shuffle br_flight */
#include "unit/worker_coordinator.h"

#include <arpa/inet.h>
#include <sys/socket.h>

static const char long_sql[] = "SELECT count(*) AS c0 FROM range(100000000000) t(i) WHERE hash(i) % 7 = 3";

static void simple_task(coord *c, uint32_t worker, br_attempt_id id) {
  run_task(c, worker, (task){.id = id, .sql = "SELECT 1 AS c0", TYPES("INTEGER")});
  wait_event(c, EV_DONE, &id);
}

static pid_t only_child(pid_t pid) {
  pid_t children[4] = {0};
  WAIT_UNTIL(children_of(pid, children, 4) == 1);
  return children[0];
}

static void killed_executor_is_replaced(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, "--slots", "2", NULL);
  wait_members(c, 1);
  br_attempt_id a = {1, 1, 0, 0}, b = {1, 1, 1, 0};
  run_task(c, 1, (task){.id = a, .sql = long_sql, TYPES("BIGINT")});
  run_task(c, 1, (task){.id = b, .sql = long_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &a);
  wait_event(c, EV_STARTED, &b);
  pid_t x = only_child(w);
  kill(x, SIGKILL);
  ev e = wait_event(c, EV_LOST, NULL);
  assert_int_equal(e.pid, x);
  assert_true(WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGKILL);
  assert_int_equal(e.running, 2);
  assert_int_equal(e.error.code, BR_LOST);
  assert_int_equal(e.error.blame, BR_BLAME_EXECUTOR);
  assert_non_null(strstr(e.error.message, "SIGKILL"));
  simple_task(c, 1, (br_attempt_id){1, 1, 0, 1});
  assert_true(only_child(w) != x);
  coord_close(c);
}

/* The fourth start within the window waits a little, and comes. */
static void executor_that_dies_again_and_again(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  uint64_t start = br_now_ms();
  for (uint32_t i = 0; i < 3; i++) {
    simple_task(c, 1, (br_attempt_id){2, 1, i, 0});
    kill(only_child(w), SIGKILL);
    WAIT_UNTIL(c->n_events && c->events[c->n_events - 1].kind == EV_LOST);
  }
  simple_task(c, 1, (br_attempt_id){2, 1, 3, 0});
  assert_true(br_now_ms() - start > 900);
  coord_close(c);
}

/* What it had committed stays: the store is the worker's. */
static void outputs_outlive_their_executor(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {3, 1, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = "SELECT i AS c0 FROM range(10) t(i)", TYPES("BIGINT")});
  wait_event(c, EV_DONE, &id);
  kill(only_child(w), SIGKILL);
  wait_event(c, EV_LOST, NULL);
  send_table(c, 3, 1, 1, 1, (uint32_t[]){1}, 1);
  in i = {.number = 0, .stage = 1, .version = 1, .last = 1, .map_last = 1, TYPES("BIGINT")};
  run_task(c, 1,
           (task){.id = {3, 2, 0, 0},
                  .sql = "SELECT CAST(sum(c0) AS BIGINT) AS c0 FROM input(0)",
                  .inputs = &i,
                  .n_inputs = 1,
                  TYPES("BIGINT")});
  wait_event(c, EV_DONE, &(br_attempt_id){3, 2, 0, 0});
  send_table(c, 3, 2, 1, 1, (uint32_t[]){1}, 1);
  int64_t cell = 0;
  size_t n;
  br_error err = {0};
  const char *types[] = {"BIGINT"};
  assert_int_equal(read_output(c, 1, (br_attempt_id){3, 2, 0, 0}, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  assert_int_equal(cell, 45);
  coord_close(c);
}

/* An executor that is stopped answers no cancel: it is taken away. */
static void stuck_task_takes_its_executor_along(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {4, 1, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = long_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &id);
  kill(only_child(w), SIGSTOP);
  cancel_task(c, 1, id);
  ev e = wait_event(c, EV_FAILED, &id);
  assert_int_equal(e.error.code, BR_CANCELLED);
  ev l = wait_event(c, EV_LOST, NULL);
  assert_int_equal(l.running, 0);
  simple_task(c, 1, (br_attempt_id){4, 2, 0, 0});
  coord_close(c);
}

/* Another task in that executor loses its work, and it's said that this was no fault of its own. */
static void stuck_task_with_a_companion(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, "--slots", "2", NULL);
  wait_members(c, 1);
  br_attempt_id stuck = {4, 1, 0, 0}, other = {4, 1, 1, 0};
  run_task(c, 1, (task){.id = stuck, .sql = long_sql, TYPES("BIGINT")});
  run_task(c, 1, (task){.id = other, .sql = long_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &stuck);
  wait_event(c, EV_STARTED, &other);
  pid_t x = only_child(w);
  kill(x, SIGSTOP);
  cancel_task(c, 1, stuck);
  assert_int_equal(wait_event(c, EV_FAILED, &stuck).error.code, BR_CANCELLED);
  ev e = wait_event(c, EV_FAILED, &other);
  assert_int_equal(e.error.code, BR_LOST);
  assert_int_equal(e.error.blame, BR_BLAME_WORKER);
  assert_true(e.error.retryable);
  assert_int_equal(wait_event(c, EV_LOST, NULL).running, 0);
  for (uint32_t i = 0; i < 4; i++) { /* such deaths don't make the next start wait */
    br_attempt_id next = {4, 2, i, 0};
    run_task(c, 1, (task){.id = next, .sql = long_sql, TYPES("BIGINT")});
    wait_event(c, EV_STARTED, &next);
    kill(only_child(w), SIGSTOP);
    cancel_task(c, 1, next);
    assert_int_equal(wait_event(c, EV_FAILED, &next).error.code, BR_CANCELLED);
  }
  simple_task(c, 1, (br_attempt_id){4, 3, 0, 0});
  coord_close(c);
}

static void killed_worker_leaves_nothing_to_the_next(void **state) {
  coord *c = *state;
  pid_t w = start_worker(c, "--executors", "2", NULL);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){5, 1, 0, 0});
  br_attempt_id id = {5, 2, 0, 0};
  run_task(c, 1, (task){.id = id, .sql = long_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &id);
  pid_t x[4];
  WAIT_UNTIL(children_of(w, x, 4) == 2);
  kill(w, SIGKILL);
  wait_exit(c, w);
  wait_gone(c, 1);
  WAIT_UNTIL(!process_runs(x[0]) && !process_runs(x[1]));
  assert_int_equal(homes(c), 1);
  start_worker(c, NULL);
  wait_members(c, 2);
  assert_int_equal(homes(c), 1); /* its own; the dead one's is gone */
  simple_task(c, 2, (br_attempt_id){5, 3, 0, 0});
  coord_close(c);
}

/* A directory whose owner lives is left alone. */
static void two_workers_on_one_node(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  start_worker(c, NULL);
  wait_members(c, 2);
  assert_int_equal(homes(c), 2);
  simple_task(c, 1, (br_attempt_id){6, 1, 0, 0});
  simple_task(c, 2, (br_attempt_id){6, 1, 1, 0});
  coord_close(c);
}

static void coordinator_gone(void **state) {
  coord *c = *state;
  pid_t idle = start_worker(c, "--rejoin-wait", "0", NULL), busy = start_worker(c, "--rejoin-wait", "0", NULL);
  wait_members(c, 2);
  br_attempt_id id = {7, 1, 0, 0};
  uint32_t which = c->members[0].pid == busy ? 1 : 2;
  run_task(c, which, (task){.id = id, .sql = long_sql, TYPES("BIGINT")});
  wait_event(c, EV_STARTED, &id);
  uint64_t start = br_now_ms();
  coord_close_server(c);
  int a = wait_exit(c, idle), b = wait_exit(c, busy);
  assert_true(br_now_ms() - start < 5000);
  assert_true(WIFEXITED(a) && WEXITSTATUS(a) == 3);
  assert_true(WIFEXITED(b) && WEXITSTATUS(b) == 3);
  assert_int_equal(homes(c), 0);
  coord_close(c);
}

/* A pipe whose reading end a worker inherits (close it after the start); returns the end whose closing is the parent's. */
static int parent_pipe(char number[16], int *inherited) {
  int p[2];
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  *inherited = fcntl(p[0], F_DUPFD, 20); /* not close-on-exec */
  close(p[0]);
  snprintf(number, 16, "%d", *inherited);
  return p[1];
}

/* A worker that has a parent belongs to a coordinator that is there already: it doesn't wait for one. */
static void no_coordinator(void **state) {
  coord *c = *state;
  char number[16];
  int inherited, parent = parent_pipe(number, &inherited);
  coord_close_server(c); /* its port is free now */
  pid_t w = start_worker(c, "--parent-fd", number, NULL);
  close(inherited);
  int status = wait_exit(c, w);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  assert_int_equal(homes(c), 0);
  close(parent);
  coord_close(c);
}

static void parent_gone(void **state) {
  coord *c = *state;
  char number[16];
  int inherited, parent = parent_pipe(number, &inherited);
  pid_t w = start_worker(c, "--parent-fd", number, NULL);
  close(inherited);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){9, 1, 0, 0});
  close(parent);
  int status = wait_exit(c, w);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  coord_close(c);
}

/* Whatever signals come while it cleans up: a parent that ends sends its own after its pipe was closed. */
static void signals_while_it_ends(void **state) {
  coord *c = *state;
  static const int numbers[] = {SIGTERM, SIGUSR2, SIGINT};
  pid_t w = start_worker(c, NULL);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){9, 1, 0, 0});
  siginfo_t ended = {0};
  uint64_t until = br_now_ms() + WAIT_MS;
  for (unsigned i = 0; waitid(P_PID, (id_t)w, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0; i++) {
    assert_true(br_now_ms() < until);
    kill(w, numbers[i % 3]);
  }
  int status = wait_exit(c, w);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  coord_close(c);
}

static int connect_to(const coord *c, uint32_t worker) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)atoi(strrchr(c->members[worker - 1].uri, ':') + 1))};
  inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  return fd;
}

/* Until the other side closes. */
static void swallow(int fd) {
  char buffer[4096];
  struct timeval limit = {.tv_sec = 30};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ssize_t n;
  while ((n = read(fd, buffer, sizeof buffer)) > 0) continue;
  assert_true(n == 0 || errno == ECONNRESET);
  close(fd);
}

static void garbage_at_the_port(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  char junk[8192];
  for (size_t i = 0; i < sizeof junk; i++) junk[i] = (char)(i * 131 + 7);
  for (int round = 0; round < 3; round++) {
    int fd = connect_to(c, 1);
    const char *text = round == 0 ? junk : round == 1 ? "GET / HTTP/1.1\r\n\r\n" : "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    size_t n = round == 0 ? sizeof junk : strlen(text);
    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), n);
    if (round == 2 && send(fd, junk, sizeof junk, MSG_NOSIGNAL) < 0) assert_true(errno == EPIPE || errno == ECONNRESET);
    swallow(fd);
  }
  simple_task(c, 1, (br_attempt_id){10, 1, 0, 0});
  coord_close(c);
}

static void tickets_of_strangers(void **state) {
  coord *c = *state;
  start_worker(c, NULL);
  wait_members(c, 1);
  br_attempt_id id = {11, 1, 0, 0};
  simple_task(c, 1, id);
  send_table(c, 11, 1, 1, 1, (uint32_t[]){1}, 1);
  const char *types[] = {"INTEGER"};
  int64_t cell = 0;
  size_t n;
  br_error err = {0};
  /* partitions past the end, maps past the end, another query, another type */
  assert_int_not_equal(read_output(c, 1, id, 1, 0, 4000000000u, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  br_error_clear(&err);
  assert_int_not_equal(
      read_output(c, 1, (br_attempt_id){11, 1, 4000000000u, 0}, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  br_error_clear(&err);
  assert_int_not_equal(read_output(c, 1, (br_attempt_id){12, 1, 0, 0}, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err),
                       BR_OK);
  br_error_clear(&err);
  const char *others[] = {"VARCHAR"};
  assert_int_not_equal(read_output(c, 1, id, 1, 0, 1, others, 1, NULL, &cell, 1, &n, &err), BR_OK);
  br_error_clear(&err);
  assert_int_equal(read_output(c, 1, id, 1, 0, 1, types, 1, NULL, &cell, 1, &n, &err), BR_OK);
  assert_int_equal(cell, 1);
  coord_close(c);
}

typedef struct answer {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  coord *c;
  br_flight_client *client;
  char text[2048];
  bool ended;
} answer;

static void on_status(void *arg, const void *body, size_t n) {
  answer *a = arg;
  snprintf(a->text, sizeof a->text, "%.*s", (int)n, (const char *)body);
}

static void on_status_end(void *arg, const br_error *err) {
  answer *a = arg;
  if (err->code) snprintf(a->text, sizeof a->text, "%s", err->message);
  pthread_mutex_lock(&a->lock);
  a->ended = true;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

static void ask_status(void *arg) {
  answer *a = arg;
  br_error err = {0};
  assert_int_equal(br_flight_client_new(a->c->loop, a->c->members[0].uri, NULL, &a->client, &err), BR_OK);
  br_flight_action(a->client, "status", NULL, 0, (br_flight_sink){.arg = a, .result = on_status, .end = on_status_end});
}

static void free_client(void *arg) {
  answer *a = arg;
  br_flight_client_free(a->client);
  pthread_mutex_lock(&a->lock);
  a->client = NULL;
  pthread_cond_broadcast(&a->changed);
  pthread_mutex_unlock(&a->lock);
}

static void status_action(void **state) {
  coord *c = *state;
  answer a = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .c = c};
  start_worker(c, NULL);
  wait_members(c, 1);
  simple_task(c, 1, (br_attempt_id){12, 1, 0, 0});
  br_loop_post(c->loop, ask_status, &a);
  pthread_mutex_lock(&a.lock);
  while (!a.ended) pthread_cond_wait(&a.changed, &a.lock);
  pthread_mutex_unlock(&a.lock);
  assert_non_null(strstr(a.text, "\"worker\":1,"));
  assert_non_null(strstr(a.text, "\"outputs\":1,"));
  assert_non_null(strstr(a.text, "\"executors\":1,"));
  br_loop_post(c->loop, free_client, &a);
  pthread_mutex_lock(&a.lock);
  while (a.client) pthread_cond_wait(&a.changed, &a.lock);
  pthread_mutex_unlock(&a.lock);
  coord_close(c);
}

static void wrong_command_lines(void **state) {
  coord *c = *state;
  static const char *const bad[][2] = {
      {"--memory", "lots"},      {"--slots", "0"},        {"--threads", "-1"},
      {"--port", "70000"},       {"--parent-fd", "999"},  {"--secret-env", "NOT_SET_AT_ALL"},
      {"--listen", "0.0.0.0"},   {"--no-such", "option"}, {"--executors", "1000"},
      {"--uri-host", "0.0.0.0"}, {"--drain", "-1"},       {"--join-wait", "soon"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int status = wait_exit(c, start_worker(c, bad[i][0], bad[i][1], NULL));
    c->n_workers = 0;
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2));
  }
  coord_close(c);
}

/* Its worker was killed, and its directory removed by whoever saw that, before the executor read its first message: it must not
 * make the directory again, which would have no owner. */
static void setup_of_a_dead_worker(void **state) {
  coord *c = *state;
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  char *home = br_asprintf("%s/brant-0123456789abcdef-w1", c->dir), *dir = br_asprintf("%s/e0-1", home);
  Brant__Pb__ExecutorSetup s = BRANT__PB__EXECUTOR_SETUP__INIT;
  s.worker = 1, s.threads = 1, s.slots = 1;
  s.duckdb_memory_bytes = 64u << 20;
  s.temp_dir = dir;
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_SETUP;
  m.setup = &s;
  br_buf b = {0};
  br_pb_pack(&m.base, &b);
  uint32_t head[2] = {(uint32_t)b.len, 0}; /* net/channel.c: bytes, descriptors */
  assert_int_equal(write(pair[0], head, sizeof head), sizeof head);
  assert_int_equal(write(pair[0], b.data, b.len), b.len);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pair[1], 3);
  char *argv[] = {(char *)"brant-executor", NULL};
  pid_t pid;
  assert_int_equal(posix_spawn(&pid, BRANT_BUILD_DIR "/brant-executor", &actions, NULL, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  c->workers[c->n_workers++] = pid;
  int status = wait_exit(c, pid); /* our end is open: it goes by itself */
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
  assert_int_not_equal(access(home, F_OK), 0);
  close(pair[0]);
  close(pair[1]);
  br_buf_free(&b);
  free(dir);
  free(home);
  coord_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(killed_executor_is_replaced),
      TEST(executor_that_dies_again_and_again),
      TEST(outputs_outlive_their_executor),
      TEST(stuck_task_takes_its_executor_along),
      TEST(stuck_task_with_a_companion),
      TEST(killed_worker_leaves_nothing_to_the_next),
      TEST(two_workers_on_one_node),
      TEST(coordinator_gone),
      TEST(no_coordinator),
      TEST(parent_gone),
      TEST(signals_while_it_ends),
      TEST(garbage_at_the_port),
      TEST(tickets_of_strangers),
      TEST(status_action),
      TEST(setup_of_a_dead_worker),
      TEST(wrong_command_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
