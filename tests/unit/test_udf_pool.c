/* SPDX-License-Identifier: Apache-2.0
 * udf/pool: processes of functions, here /bin/sh scripts and cat: how many there are, who gets which, and what is said when one ends. */
/* links: br_udf */
/* threads: none */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "udf/pool.h"

#define WAIT_MS 20000u
#define MAX_ANSWERS 64

typedef struct answer {
  uint64_t request;
  void *owner;
  int fd, pid;
  br_error err;
} answer;

typedef struct test {
  br_loop *l;
  br_udf_pools *p;
  answer ready[MAX_ANSWERS], closed[MAX_ANSWERS];
  size_t n_ready, n_closed;
  bool stopped;
  size_t n_fetched;
  char dir[64], script[96];
} test;

static void on_ready(void *arg, void *owner, uint64_t request, int fd, int pid, const br_error *err) {
  test *t = arg;
  t->ready[t->n_ready++] = (answer){request, owner, fd, pid, *err};
}

static void on_closed(void *arg, void *owner, uint64_t request, const br_error *why) {
  test *t = arg;
  t->closed[t->n_closed++] = (answer){request, owner, -1, 0, *why};
}

static void on_fetch(void *arg, uint64_t function) {
  (void)function;
  ((test *)arg)->n_fetched++;
}

static void on_stopped(void *arg) { ((test *)arg)->stopped = true; }

static void setup(test *t, const char *script, uint64_t idle_ms) {
  br_error err = {0};
  *t = (test){0};
  strcpy(t->dir, "/tmp/brant-test-XXXXXX");
  assert_non_null(mkdtemp(t->dir));
  snprintf(t->script, sizeof t->script, "%s/p", t->dir);
  FILE *f = fopen(t->script, "w");
  assert_non_null(f);
  fprintf(f, "#!/bin/sh\n%s\n", script);
  fclose(f);
  assert_int_equal(chmod(t->script, 0700), 0);
  assert_int_equal(br_loop_new(&t->l, &err), BR_OK);
  br_udf_options o = {.loop = t->l,
                      .cores = 2,
                      .command = t->script,
                      .idle_ms = idle_ms,
                      .ready = on_ready,
                      .closed = on_closed,
                      .fetch = on_fetch,
                      .stopped = on_stopped,
                      .arg = t};
  t->p = br_udf_pools_new(&o);
  br_udf_pools_set_worker(t->p, 5);
}

static void teardown(test *t) {
  int pids[64];
  size_t n = br_udf_pids(t->p, pids, 64);
  br_udf_pools_free(t->p);
  uint64_t end = br_now_ms() + WAIT_MS;
  for (size_t i = 0; i < n;
       i++) { /* nothing is left of any group, once init has reaped the children of what was killed */
    while (kill(-pids[i], 0) == 0 && br_now_ms() < end) poll(NULL, 0, 2);
    assert_int_equal(kill(-pids[i], 0), -1);
  }
  for (size_t i = 0; i < t->n_ready; i++)
    if (t->ready[i].fd >= 0) close(t->ready[i].fd);
  br_loop_free(t->l);
  br_remove_tree(t->dir);
}

static void turn(test *t) {
  uv_run(br_loop_uv(t->l), UV_RUN_NOWAIT);
  poll(NULL, 0, 2);
}

#define until(t, condition)                                        \
  do {                                                             \
    uint64_t end_ = br_now_ms() + WAIT_MS;                         \
    while (!(condition) && br_now_ms() < end_) turn(t);            \
    if (!(condition)) fail_msg("not within time: %s", #condition); \
  } while (0)

static Brant__Pb__Function function(uint64_t id, const char *name) {
  Brant__Pb__Function f = BRANT__PB__FUNCTION__INIT;
  f.id = id, f.name = (char *)name, f.return_type = (char *)"BIGINT";
  return f;
}

static size_t count(test *t) {
  int pids[300];
  return br_udf_pids(t->p, pids, 300);
}

static const br_attempt_id attempt = {.query = 1, .stage = 2, .task = 3};
static int owner_a, owner_b;

static void a_pool_starts_as_many_as_it_may(void **state) {
  test t;
  (void)state;
  setup(&t, "exec cat <&3 >/dev/null", 60000);
  Brant__Pb__Function one = function(1, "auto"), three = function(2, "three"), wide = function(3, "wide");
  three.worker_processes = 3, wide.cpus = 2;
  br_udf_function(t.p, &one), br_udf_function(t.p, &three), br_udf_function(t.p, &wide);
  br_udf_function(t.p, &one); /* again: nothing */
  assert_int_equal(count(&t), 0);
  br_udf_start(t.p, 1);
  assert_int_equal(count(&t), 2); /* cores */
  br_udf_start(t.p, 2);
  assert_int_equal(count(&t), 5); /* also more than cores */
  br_udf_start(t.p, 3);
  assert_int_equal(count(&t), 6);
  br_udf_start(t.p, 1);
  assert_int_equal(count(&t), 6);
  br_udf_start(t.p, 99);
  /* connections are spread: the second of each process comes when all have one */
  for (uint64_t r = 1; r <= 6; r++) br_udf_open(t.p, &owner_a, r, 2, &attempt);
  assert_int_equal(t.n_ready, 6);
  int seen[6] = {0};
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(t.ready[i].err.code, 0);
    for (size_t k = 0; k < 6; k++) seen[i] += t.ready[k].pid == t.ready[i].pid;
    assert_int_equal(seen[i], 2);
  }
  assert_int_equal(count(&t), 6);
  teardown(&t);
}

static void functions_of_one_pool_share_processes(void **state) {
  test t;
  (void)state;
  setup(&t, "exec cat <&3 >/dev/null", 60000);
  Brant__Pb__Function one = function(1, "m.one"), two = function(2, "m.two"), alone = function(3, "alone");
  one.pool = two.pool = (char *)"m";
  one.worker_processes = two.worker_processes = alone.worker_processes = 2;
  br_udf_function(t.p, &one), br_udf_function(t.p, &two), br_udf_function(t.p, &alone);
  br_udf_start(t.p, 1);
  br_udf_start(t.p, 2);
  assert_int_equal(count(&t), 2);
  for (uint64_t r = 1; r <= 4; r++) br_udf_open(t.p, &owner_a, r, 1 + r % 2, &attempt);
  br_udf_open(t.p, &owner_a, 5, 3, &attempt);
  assert_int_equal(count(&t), 3);
  for (int i = 0; i < 5; i++) assert_int_equal(t.ready[i].err.code, 0);
  assert_int_not_equal(t.ready[0].pid, t.ready[1].pid); /* each has as many as the other */
  br_udf_drop(t.p, 1);                                  /* its processes are the other's too */
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_DONE);
  br_udf_close(t.p, &owner_a, 3, BRANT__PB__UDF_END__UDF_END_DONE);
  for (int i = 0; i < 20; i++) turn(&t);
  assert_int_equal(count(&t), 3);
  br_udf_close(t.p, &owner_a, 2, BRANT__PB__UDF_END__UDF_END_DONE);
  br_udf_drop(t.p, 2);
  until(&t, count(&t) == 2); /* one has a connection still */
  br_udf_close(t.p, &owner_a, 4, BRANT__PB__UDF_END__UDF_END_DONE);
  until(&t, count(&t) == 1);
  br_udf_open(t.p, &owner_a, 6, 1, &attempt);
  assert_int_equal(t.ready[5].err.code, BR_INTERNAL); /* forgotten, both */
  br_udf_open(t.p, &owner_a, 7, 2, &attempt);
  assert_int_equal(t.ready[6].err.code, BR_INTERNAL);
  teardown(&t);
}

static void a_death_is_told_to_who_asks(void **state) {
  test t;
  (void)state;
  setup(&t, "echo first line; echo the last words >&2; kill -SEGV $$", 60000);
  Brant__Pb__Function f = function(1, "boom");
  f.worker_processes = 1;
  br_udf_function(t.p, &f);
  br_udf_open(t.p, &owner_a, 7, 1, &attempt);
  assert_int_equal(t.ready[0].err.code, 0);
  char byte;
  struct pollfd end = {.fd = t.ready[0].fd, .events = POLLIN};
  until(&t, poll(&end, 1, 0) == 1);
  assert_true(read(t.ready[0].fd, &byte, 1) <= 0);
  br_udf_close(t.p, &owner_a, 7, BRANT__PB__UDF_END__UDF_END_DIED);
  until(&t, t.n_closed == 1);
  const br_error *e = &t.closed[0].err;
  assert_int_equal(t.closed[0].request, 7);
  assert_ptr_equal(t.closed[0].owner, &owner_a);
  assert_int_equal(e->code, BR_EXECUTION);
  assert_int_equal(e->blame, BR_BLAME_USER);
  assert_non_null(strstr(e->message, "function boom on worker 5"));
  assert_non_null(strstr(e->message, "signal 11 (SIGSEGV)"));
  assert_non_null(strstr(e->message, "first line\nthe last words"));
  assert_false(e->retryable);
  assert_int_equal(count(&t), 0);
  /* a stranger's question has an answer too */
  br_udf_close(t.p, &owner_a, 8, BRANT__PB__UDF_END__UDF_END_DIED);
  assert_int_equal(t.n_closed, 2);
  assert_int_equal(t.closed[1].err.code, BR_INTERNAL);
  teardown(&t);
}

static void a_flood_of_output_holds_nobody_up(void **state) {
  test t;
  (void)state;
  setup(&t, "yes 0123456789 | head -n 300000 >&2; echo end >&2; exit 9", 60000);
  Brant__Pb__Function f = function(1, "chatty");
  f.worker_processes = 1;
  br_udf_function(t.p, &f);
  br_udf_open(t.p, &owner_a, 1, 1, &attempt);
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_DIED);
  until(&t, t.n_closed == 1);
  const char *m = t.closed[0].err.message;
  /* either it wrote it all, or the question was older than BR_UDF_REAP_WAIT_MS */
  if (!strstr(m, "closed a connection")) {
    assert_non_null(strstr(m, "exit code 9"));
    assert_non_null(strstr(m, "0123456789\nend"));
  }
  assert_true(strlen(m) < BR_ERROR_MESSAGE_BYTES - 1);
  teardown(&t);
}

static void too_much_memory_ends_it(void **state) {
  test t;
  (void)state;
  setup(&t, "x=0123456789abcdef; while :; do x=$x$x; [ ${#x} -gt 60000000 ] && sleep 100; done", 60000);
  Brant__Pb__Function f = function(1, "leaky");
  f.worker_processes = 1, f.memory_bytes = 30u << 20;
  br_udf_function(t.p, &f);
  br_udf_open(t.p, &owner_a, 1, 1, &attempt);
  until(&t, count(&t) == 0);
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_DIED);
  until(&t, t.n_closed == 1);
  assert_non_null(strstr(t.closed[0].err.message, "more than its limit of 30.0 MiB"));
  teardown(&t);
}

static void a_hung_one_is_ended_with_its_children(void **state) {
  test t;
  (void)state;
  setup(&t, "sleep 1000 & sleep 1000", 60000);
  Brant__Pb__Function f = function(1, "stuck");
  f.worker_processes = 1;
  br_udf_function(t.p, &f);
  br_udf_open(t.p, &owner_a, 1, 1, &attempt);
  br_udf_open(t.p, &owner_b, 1, 1, &attempt);
  assert_int_equal(count(&t), 1);
  int pid = t.ready[0].pid;
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_HUNG);
  until(&t, t.n_closed == 1);
  assert_non_null(strstr(t.closed[0].err.message, "did not answer in time"));
  until(&t, kill(-pid, 0) != 0); /* the whole group */
  /* the other's connection is a record until it asks, or goes */
  br_udf_open(t.p, &owner_b, 2, 1, &attempt);
  assert_int_not_equal(t.ready[2].pid, pid);
  br_udf_close(t.p, &owner_b, 1, BRANT__PB__UDF_END__UDF_END_DIED);
  assert_int_equal(t.n_closed, 2);
  assert_ptr_equal(t.closed[1].owner, &owner_b);
  br_udf_owner_gone(t.p, &owner_b);
  assert_int_equal(count(&t), 1); /* warm */
  teardown(&t);
}

static void idle_ones_go_and_dropped_ones_too(void **state) {
  test t;
  (void)state;
  setup(&t, "exec cat <&3 >/dev/null", 100); /* ends when its channel does */
  Brant__Pb__Function f = function(1, "f"), g = function(2, "g");
  f.worker_processes = g.worker_processes = 2;
  br_udf_function(t.p, &f), br_udf_function(t.p, &g);
  br_udf_start(t.p, 1);
  br_udf_open(t.p, &owner_a, 1, 2, &attempt);
  assert_int_equal(count(&t), 3);
  until(&t, count(&t) == 1); /* the one with a connection stays */
  br_udf_drop(t.p, 2);
  for (int i = 0; i < 50; i++) turn(&t);
  assert_int_equal(count(&t), 1);
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_DONE);
  until(&t, count(&t) == 0);
  br_udf_open(t.p, &owner_a, 2, 2, &attempt);
  assert_int_equal(t.ready[1].err.code, BR_INTERNAL); /* it is forgotten */
  assert_int_equal(t.n_closed, 0);
  teardown(&t);
}

static void what_cannot_start_says_why(void **state) {
  test t;
  (void)state;
  setup(&t, "echo no such module >&2; exit 1", 60000);
  Brant__Pb__Function f = function(1, "bad");
  f.worker_processes = 1;
  br_udf_function(t.p, &f);
  for (uint64_t r = 1; r <= BR_UDF_BAD_STARTS; r++) {
    br_udf_open(t.p, &owner_a, r, 1, &attempt);
    assert_int_equal(t.ready[r - 1].err.code, 0);
    until(&t, count(&t) == 0);
    br_udf_close(t.p, &owner_a, r, BRANT__PB__UDF_END__UDF_END_DIED);
    until(&t, t.n_closed == r);
    assert_non_null(strstr(t.closed[r - 1].err.message, "exit code 1\nthe last that it printed:\nno such module"));
  }
  br_udf_open(t.p, &owner_a, 10, 1, &attempt); /* not again and again */
  assert_int_equal(t.ready[BR_UDF_BAD_STARTS].fd, -1);
  assert_non_null(strstr(t.ready[BR_UDF_BAD_STARTS].err.message, "no such module"));
  assert_int_equal(unlink(t.script), 0);
  Brant__Pb__Function g = function(2, "none");
  br_udf_function(t.p, &g);
  br_udf_open(t.p, &owner_a, 11, 2, &attempt);
  assert_non_null(strstr(t.ready[BR_UDF_BAD_STARTS + 1].err.message, "cannot start"));
  teardown(&t);
}

static void gpus_are_given_out(void **state) {
  test t;
  (void)state;
  setenv("CUDA_VISIBLE_DEVICES", "4,7", 1);
  setup(&t, "echo \"sees $CUDA_VISIBLE_DEVICES and ${BRANT_SECRET:-nothing}\"; exit 1", 60000);
  setenv("BRANT_SECRET", "s3", 1);
  Brant__Pb__Function one = function(1, "one"), part = function(2, "part"), three = function(3, "three");
  one.gpus = 1, part.gpus = 0.5, three.gpus = 3;
  one.concurrency = 8, part.concurrency = 8;
  br_udf_function(t.p, &one), br_udf_function(t.p, &part), br_udf_function(t.p, &three);
  br_udf_open(t.p, &owner_a, 1, 1, &attempt);
  br_udf_open(t.p, &owner_a, 2, 1, &attempt);
  assert_int_not_equal(t.ready[0].pid, t.ready[1].pid);
  br_udf_open(t.p, &owner_a, 3, 3, &attempt);
  assert_non_null(strstr(t.ready[2].err.message, "function three wants 3 GPUs a process; worker 5 has 2 GPUs"));
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_DIED);
  br_udf_close(t.p, &owner_a, 2, BRANT__PB__UDF_END__UDF_END_DIED);
  until(&t, t.n_closed == 2);
  bool four =
      strstr(t.closed[0].err.message, "sees 4 and nothing") || strstr(t.closed[1].err.message, "sees 4 and nothing");
  bool seven =
      strstr(t.closed[0].err.message, "sees 7 and nothing") || strstr(t.closed[1].err.message, "sees 7 and nothing");
  assert_true(four && seven);
  br_udf_start(t.p, 2);
  assert_int_equal(count(&t), 4);
  teardown(&t);
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("BRANT_SECRET");
}

static void idle_processes_give_their_gpus_back(void **state) {
  test t;
  (void)state;
  setenv("CUDA_VISIBLE_DEVICES", "4,7", 1);
  setup(&t, "exec cat <&3 >/dev/null", 60000);
  unsetenv("CUDA_VISIBLE_DEVICES");
  assert_int_equal(br_udf_gpus(t.p), 2);
  Brant__Pb__Function one = function(1, "one"), two = function(2, "two");
  one.gpus = 1, two.gpus = 2;
  br_udf_function(t.p, &one), br_udf_function(t.p, &two);
  br_udf_start(t.p, 1);
  assert_int_equal(count(&t), 2);
  br_udf_open(t.p, &owner_a, 1, 2, &attempt); /* nobody is connected to the others */
  assert_int_equal(t.ready[0].err.code, 0);
  until(&t, count(&t) == 1);
  br_udf_open(t.p, &owner_a, 2, 1, &attempt);
  assert_non_null(strstr(t.ready[1].err.message, "worker 5 has 2 GPUs, and other processes use them now"));
  br_udf_close(t.p, &owner_a, 1, BRANT__PB__UDF_END__UDF_END_DONE);
  br_udf_open(t.p, &owner_a, 3, 1, &attempt);
  assert_int_equal(t.ready[2].err.code, 0);
  teardown(&t);
}

/* A large payload comes after the function: whoever wants a connection waits, in order, and a failure is theirs alone. */
static void payloads_are_fetched(void **state) {
  test t;
  br_error none = {0}, lost = {0};
  (void)state;
  setup(&t, "exec cat <&3 >/dev/null", 60000);
  br_fail(&lost, BR_NETWORK, BR_BLAME_WORKER, "the line is cut");
  Brant__Pb__Function f = function(1, "large");
  f.payload_bytes = 10, f.worker_processes = 2;
  br_udf_function(t.p, &f);
  assert_int_equal(t.n_fetched, 1); /* at once */
  br_udf_open(t.p, &owner_a, 1, 1, &attempt);
  br_udf_open(t.p, &owner_b, 2, 1, &attempt);
  br_udf_payload(t.p, 1, "12345", 5);
  assert_int_equal(t.n_ready + count(&t), 0);
  br_udf_payload_end(t.p, 1, &lost);
  assert_int_equal(t.n_ready, 2);
  assert_int_equal(t.ready[0].request, 1);
  assert_ptr_equal(t.ready[1].owner, &owner_b);
  assert_int_equal(t.ready[1].err.code, BR_NETWORK);
  assert_non_null(strstr(t.ready[1].err.message, "large"));
  br_udf_start(t.p, 1); /* anew, from the beginning */
  assert_int_equal(t.n_fetched, 2);
  for (uint64_t i = 3; i <= 6; i++) br_udf_open(t.p, &owner_a, i, 1, &attempt);
  br_udf_open(t.p, &owner_b, 7, 1, &attempt);
  br_udf_close(t.p, &owner_a, 4, BRANT__PB__UDF_END__UDF_END_CANCELLED);
  br_udf_owner_gone(t.p, &owner_b);
  br_udf_payload(t.p, 1, "12345", 5);
  br_udf_payload_end(t.p, 1, &none); /* too few */
  assert_int_equal(t.n_ready, 5);
  assert_int_equal(t.ready[4].request, 6);
  assert_int_equal(t.ready[4].err.code, BR_LOST);
  br_udf_open(t.p, &owner_a, 8, 1, &attempt);
  assert_int_equal(t.n_fetched, 3);
  br_udf_payload(t.p, 1, "12345", 5), br_udf_payload(t.p, 1, "67890", 5);
  br_udf_payload_end(t.p, 1, &none);
  assert_int_equal(t.ready[5].err.code, 0);
  assert_true(t.ready[5].fd >= 0);
  assert_int_equal(count(&t), 2);             /* br_udf_start was remembered */
  br_udf_open(t.p, &owner_a, 9, 1, &attempt); /* it is here: within the call */
  assert_int_equal(t.n_ready, 7);
  Brant__Pb__Function g = function(2, "more");
  g.payload_bytes = 3;
  br_udf_function(t.p, &g);
  br_udf_open(t.p, &owner_a, 10, 2, &attempt);
  br_udf_payload(t.p, 2, "1234", 4);
  br_udf_payload_end(t.p, 2, &none);
  assert_int_equal(t.ready[7].err.code, BR_CORRUPT);
  Brant__Pb__Function h = function(3, "dropped");
  h.payload_bytes = 3;
  br_udf_function(t.p, &h);
  br_udf_open(t.p, &owner_a, 11, 3, &attempt);
  br_udf_drop(t.p, 3);
  assert_int_equal(t.ready[8].err.code, BR_CANCELLED);
  br_udf_payload(t.p, 3, "123", 3); /* late: nothing */
  br_udf_payload_end(t.p, 3, &none);
  assert_int_equal(t.n_ready, 9);
  teardown(&t);
}

static void stopping_kills_all(void **state) {
  test t;
  (void)state;
  setup(&t, "trap '' TERM; sleep 1000 & sleep 1000", 60000);
  Brant__Pb__Function f = function(1, "f");
  br_udf_function(t.p, &f);
  br_udf_start(t.p, 1);
  br_udf_open(t.p, &owner_a, 1, 1, &attempt);
  br_udf_pools_stop(t.p);
  until(&t, t.stopped && br_udf_pools_gone(t.p));
  br_udf_open(t.p, &owner_a, 2, 1, &attempt);
  assert_int_equal(t.ready[1].err.code, BR_LOST);
  teardown(&t);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_pool_starts_as_many_as_it_may),
      cmocka_unit_test(functions_of_one_pool_share_processes),
      cmocka_unit_test(a_death_is_told_to_who_asks),
      cmocka_unit_test(a_flood_of_output_holds_nobody_up),
      cmocka_unit_test(too_much_memory_ends_it),
      cmocka_unit_test(a_hung_one_is_ended_with_its_children),
      cmocka_unit_test(idle_ones_go_and_dropped_ones_too),
      cmocka_unit_test(what_cannot_start_says_why),
      cmocka_unit_test(gpus_are_given_out),
      cmocka_unit_test(idle_processes_give_their_gpus_back),
      cmocka_unit_test(payloads_are_fetched),
      cmocka_unit_test(stopping_kills_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
