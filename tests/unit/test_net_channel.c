/* SPDX-License-Identifier: Apache-2.0
 * net/channel: frames and descriptors between two ends of a socket pair, and what a stranger may throw at it. */
/* links: br_net */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/channel.h"
#include "proto/proto.h"

#define WAIT_MS 20000

typedef struct end {
  br_channel *c;
  struct test *t;
  size_t messages, fds, bytes, stop_after;
  uint64_t sum; /* of first bytes, for order */
  int last_fd;  /* the last received one, kept open */
  bool free_on_message, closed;
  br_error why;
} end;

typedef struct test {
  br_loop *l;
  br_timer *guard;
  end a, b;
  int raw; /* the bare socket instead of b */
  int open_fds;
  bool timed_out;
} test;

static int count_fds(void) {
  DIR *d = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static void on_guard(void *arg) {
  test *t = arg;
  t->timed_out = true;
  br_loop_stop(t->l);
}

static void on_message(void *arg, const void *data, size_t n, int *fds, int n_fds) {
  end *e = arg;
  e->messages++;
  e->bytes += n;
  if (n) e->sum = e->sum * 31 + ((const unsigned char *)data)[0];
  for (int i = 0; i < n_fds; i++) {
    assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    if (e->last_fd >= 0) close(e->last_fd);
    e->last_fd = fds[i];
    e->fds++;
  }
  if (e->free_on_message) {
    br_channel_free(e->c);
    e->c = NULL;
  }
  if (e->messages == e->stop_after) br_loop_stop(e->t->l);
}

static void on_closed(void *arg, const br_error *why) {
  end *e = arg;
  assert_false(e->closed);
  e->closed = true;
  e->why = *why;
  br_loop_stop(e->t->l);
}

static void open_end(test *t, end *e, int fd) {
  br_error err = {0};
  *e = (end){.t = t, .last_fd = -1};
  assert_int_equal(br_channel_new(t->l, fd, (br_channel_handler){on_message, on_closed, e}, &e->c, &err), BR_OK);
}

static int setup(void **state) {
  test *t = br_calloc(1, sizeof *t);
  br_error err = {0};
  t->open_fds = count_fds();
  assert_int_equal(br_loop_new(&t->l, &err), BR_OK);
  t->guard = br_timer_start(t->l, WAIT_MS, 0, on_guard, t);
  int sp[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sp), 0);
  open_end(t, &t->a, sp[0]);
  t->raw = sp[1];
  t->b.last_fd = -1;
  *state = t;
  return 0;
}

static void with_b(test *t) {
  int fd = t->raw;
  t->raw = -1;
  open_end(t, &t->b, fd);
}

static int teardown(void **state) {
  test *t = *state;
  br_channel_free(t->a.c);
  br_channel_free(t->b.c);
  if (t->raw >= 0) close(t->raw);
  if (t->a.last_fd >= 0) close(t->a.last_fd);
  if (t->b.last_fd >= 0) close(t->b.last_fd);
  br_timer_stop(t->guard);
  br_loop_free(t->l);
  assert_false(t->timed_out);
  assert_int_equal(count_fds(), t->open_fds);
  free(t);
  return 0;
}

static void frames_arrive_in_order(void **state) {
  test *t = *state;
  with_b(t);
  uint64_t sum = 0;
  for (int i = 0; i < 1000; i++) {
    unsigned char c = (unsigned char)i;
    br_channel_send(t->a.c, &c, 1, NULL, 0);
    sum = sum * 31 + c;
  }
  t->b.stop_after = 1000;
  br_loop_run(t->l);
  assert_int_equal(t->b.messages, 1000);
  assert_true(t->b.sum == sum);
}

static void empty_and_largest_frame(void **state) {
  test *t = *state;
  with_b(t);
  char *big = br_calloc(1, BR_MESSAGE_MAX_BYTES);
  br_channel_send(t->a.c, NULL, 0, NULL, 0);
  br_channel_send(t->a.c, big, BR_MESSAGE_MAX_BYTES, NULL, 0);
  br_channel_send(t->a.c, "x", 1, NULL, 0);
  free(big);
  t->b.stop_after = 3;
  br_loop_run(t->l);
  assert_int_equal(t->b.messages, 3);
  assert_int_equal(t->b.bytes, (size_t)BR_MESSAGE_MAX_BYTES + 1);
}

static void descriptors_come_along(void **state) {
  test *t = *state;
  with_b(t);
  int p[2], fds[BR_CHANNEL_MAX_FDS];
  assert_int_equal(pipe2(p, O_CLOEXEC), 0);
  for (int i = 0; i < BR_CHANNEL_MAX_FDS; i++) fds[i] = p[1];
  char *big = br_calloc(1, 1 << 20);
  br_channel_send(t->a.c, "no fds", 6, NULL, 0);
  br_channel_send(t->a.c, big, 1 << 20, fds, BR_CHANNEL_MAX_FDS); /* larger than a socket's buffer */
  br_channel_send(t->a.c, NULL, 0, fds, 1);
  br_channel_send(t->a.c, "x", 1, fds, 3);
  close(p[1]); /* the sender keeps nothing of ours */
  free(big);
  t->b.stop_after = 4;
  br_loop_run(t->l);
  assert_int_equal(t->b.fds, BR_CHANNEL_MAX_FDS + 4);
  assert_int_equal(write(t->b.last_fd, "hi", 2), 2);
  char got[3] = {0};
  assert_int_equal(read(p[0], got, 2), 2);
  assert_string_equal(got, "hi");
  close(p[0]);
}

static void *send_from_thread(void *arg) {
  test *t = arg;
  for (int i = 0; i < 2000; i++) br_channel_send(t->a.c, "0123456789", 10, NULL, 0);
  return NULL;
}

static void any_thread_may_send(void **state) {
  test *t = *state;
  with_b(t);
  pthread_t threads[4];
  t->b.stop_after = 8000;
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, send_from_thread, t), 0);
  br_loop_run(t->l);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(t->b.messages, 8000);
  assert_int_equal(t->b.bytes, 80000);
}

static void clean_end(void **state) {
  test *t = *state;
  br_channel_send(t->a.c, "bye", 3, NULL, 0);
  with_b(t);
  t->b.stop_after = 1;
  br_loop_run(t->l);
  br_channel_free(t->a.c);
  t->a.c = NULL;
  br_loop_run(t->l);
  assert_true(t->b.closed);
  assert_int_equal(t->b.why.code, BR_OK);
  br_channel_send(t->b.c, "nobody", 6, NULL, 0); /* tolerated */
}

static void last_words_are_heard_although_sending_fails(void **state) {
  test *t = *state;
  unsigned char frame[8 + 4] = {4, 0, 0, 0, 0, 0, 0, 0, 'l', 'a', 's', 't'};
  assert_int_equal(write(t->raw, frame, sizeof frame), sizeof frame);
  close(t->raw);
  t->raw = -1;
  for (int i = 0; i < 100; i++) br_channel_send(t->a.c, "to the dead", 11, NULL, 0);
  br_loop_run(t->l);
  assert_int_equal(t->a.messages, 1);
  assert_true(t->a.closed);
}

static void end_inside_of_a_frame(void **state) {
  test *t = *state;
  unsigned char frame[8 + 2] = {4, 0, 0, 0, 0, 0, 0, 0, 'h', 'a'};
  assert_int_equal(write(t->raw, frame, sizeof frame), sizeof frame);
  close(t->raw);
  t->raw = -1;
  br_loop_run(t->l);
  assert_true(t->a.closed);
  assert_int_equal(t->a.messages, 0);
  assert_int_equal(t->a.why.code, BR_NETWORK);
}

static void garbage(test *t, const unsigned char *header) {
  assert_int_equal(write(t->raw, header, 8), 8);
  br_loop_run(t->l);
  assert_true(t->a.closed);
  assert_int_equal(t->a.messages, 0);
  assert_int_equal(t->a.why.code, BR_CORRUPT);
}

static void garbage_length(void **state) { garbage(*state, (const unsigned char *)"\xff\xff\xff\xff\0\0\0\0"); }
static void garbage_one_byte_too_long(void **state) { garbage(*state, (const unsigned char *)"\1\0\0\1\0\0\0\0"); }
static void garbage_count(void **state) { garbage(*state, (const unsigned char *)"\1\0\0\0\xc9\0\0\0"); }
static void descriptors_promised_but_missing(void **state) {
  garbage(*state, (const unsigned char *)"\1\0\0\0\1\0\0\0");
}

static void descriptors_that_nobody_announced(void **state) {
  test *t = *state;
  struct iovec iov = {.iov_base = (void *)"\1\0\0\0\0\0\0\0x", .iov_len = 9};
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control = {0};
  struct msghdr msg = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
  h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int));
  int fd = 0;
  memcpy(CMSG_DATA(h), &fd, sizeof fd);
  assert_int_equal(sendmsg(t->raw, &msg, 0), 9);
  br_loop_run(t->l);
  assert_true(t->a.closed);
  assert_int_equal(t->a.why.code, BR_CORRUPT);
  assert_int_equal(t->a.messages, 0);
}

static void freed_inside_of_its_own_callback(void **state) {
  test *t = *state;
  with_b(t);
  t->b.free_on_message = true;
  for (int i = 0; i < 10; i++) br_channel_send(t->a.c, "x", 1, NULL, 0);
  br_loop_run(t->l); /* until a sees the end */
  assert_int_equal(t->b.messages, 1);
  assert_true(t->a.closed);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
/* libuv opens a pipe of its own with the first loop and keeps it: have it before descriptors are counted. */
static int first_loop(void **state) {
  (void)state;
  br_loop *l;
  br_error err = {0};
  assert_int_equal(br_loop_new(&l, &err), BR_OK);
  br_loop_free(l);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(frames_arrive_in_order),
      TEST(empty_and_largest_frame),
      TEST(descriptors_come_along),
      TEST(any_thread_may_send),
      TEST(clean_end),
      TEST(last_words_are_heard_although_sending_fails),
      TEST(end_inside_of_a_frame),
      TEST(garbage_length),
      TEST(garbage_one_byte_too_long),
      TEST(garbage_count),
      TEST(descriptors_promised_but_missing),
      TEST(descriptors_that_nobody_announced),
      TEST(freed_inside_of_its_own_callback),
  };
  return cmocka_run_group_tests(tests, first_loop, NULL);
}
