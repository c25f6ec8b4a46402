/* SPDX-License-Identifier: Apache-2.0
 * flight: actions, tokens, and the life of connections: refused, silent, lost on either side, made again. */
/* links: br_flight */
#include "unit/flight_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

static void test_echo(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader small = {0}, empty = {0}, large = {0}, unknown = {0};
  size_t n = 8 << 20;
  char *body = calloc(1, n);
  action(&w, &small, "echo", "hello", 5);
  action(&w, &empty, "echo", "", 0);
  action(&w, &large, "echo", body, n);
  action(&w, &unknown, "unknown", "", 0);
  WAIT_FOR(small.ends && empty.ends && large.ends && unknown.ends);
  assert_int_equal(small.err.code, BR_OK);
  assert_int_equal(small.results, 1);
  assert_string_equal(small.last_result, "hello");
  assert_int_equal(empty.results, 1);
  assert_int_equal(empty.bytes, 0);
  assert_int_equal(large.results, 1);
  assert_int_equal(large.bytes, n);
  assert_int_equal(unknown.err.code, BR_NOT_FOUND);
  assert_string_equal(unknown.err.message, "no action 'unknown'");
  free(body);
  world_stop(&w);
}

static void test_request_above_limit(void **state) {
  (void)state;
  world w = {.server_options = {.max_message_bytes = 100000}};
  world_start(&w, false);
  reader large = {0}, good = {0};
  char *body = calloc(1, 200000);
  action(&w, &large, "echo", body, 200000);
  WAIT_FOR(large.ends);
  assert_int_equal(large.err.code, BR_INVALID);
  assert_non_null(strstr(large.err.message, "100000"));
  action(&w, &good, "echo", body, 90000);
  WAIT_FOR(good.ends);
  assert_int_equal(good.bytes, 90000);
  free(body);
  world_stop(&w);
}

typedef struct answer {
  world *w;
  int results;
  bool end;
  size_t bytes;
  uint64_t queued;
} answer;
static void answer_on_loop(void *arg) {
  answer *a = arg;
  lock_on();
  br_flight_call *c = a->w->held;
  lock_off();
  char *body = br_calloc(1, a->bytes + 1);
  for (int i = 0; i < a->results; i++) br_flight_call_result(c, body, a->bytes);
  a->queued = br_flight_call_queued_bytes(c);
  if (a->end) br_flight_call_end(c, NULL);
  free(body);
}
static void queued_on_loop(void *arg) {
  answer *a = arg;
  lock_on();
  br_flight_call *c = a->w->held;
  lock_off();
  a->queued = br_flight_call_queued_bytes(c);
}

static void test_results_later(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r = {0};
  action(&w, &r, "hold", "", 0);
  WAIT_FOR(w.held);
  for (uint64_t i = 1; i <= 5; i++) {
    looper_call(&w.server_loop, answer_on_loop, &(answer){.w = &w, .results = 1, .bytes = 10});
    WAIT_FOR(r.results == i);
    assert_int_equal(r.ends, 0);
  }
  answer many = {.w = &w, .results = 1000, .bytes = 10000, .end = true};
  looper_call(&w.server_loop, answer_on_loop, &many);
  assert_true(many.queued >= 1000 * 10000);
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.results, 1005);
  assert_int_equal(r.bytes, 50 + 1000 * 10000);
  WAIT_FOR(w.calls_closed == 1);
  assert_null(w.held);
  world_stop(&w);
}

static void test_queue_drains(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, true);
  reader r = {0};
  action(&w, &r, "hold", "", 0);
  WAIT_FOR(w.held);
  answer a = {.w = &w, .results = 100, .bytes = 100000};
  looper_call(&w.server_loop, answer_on_loop, &a);
  WAIT_FOR(r.results == 100);
  looper_call(&w.server_loop, queued_on_loop, &a);
  assert_int_equal(a.queued, 0);
  world_stop(&w);
}

static void test_call_closed_when_client_leaves(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader cancelled = {0}, left = {0}, waiting = {0};
  action(&w, &cancelled, "hold", "", 0);
  WAIT_FOR(w.held);
  cancel(&cancelled);
  WAIT_FOR(!w.held && w.calls_closed == 1);
  action(&w, &left, "hold", "", 0);
  get(&w, &waiting, "wait 3 10");
  WAIT_FOR(w.held && w.waiting);
  looper_call(&w.client_loop, stop_client, &w);
  assert_int_equal(left.ends + waiting.ends, 2); /* within free */
  assert_int_equal(left.err.code, BR_CANCELLED);
  assert_int_equal(waiting.err.code, BR_CANCELLED);
  WAIT_FOR(!w.held && w.sources_freed == 1);
  assert_int_equal(cancelled.ends, 0);
  world_stop(&w);
}

/* The server goes with streams open: each ends with an error, then on_close, once. A new server on the same port is found. */
static void test_server_freed_and_back(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r[3] = {{.slow = true}, {0}, {0}};
  get(&w, &r[0], "data 1000 1048576");
  get(&w, &r[1], "wait 3 10");
  action(&w, &r[2], "hold", "", 0);
  WAIT_FOR(r[0].messages && w.waiting && w.held);
  looper_call(&w.server_loop, stop_server, &w);
  assert_int_equal(w.calls_closed, 1);
  assert_int_equal(w.sources_freed, 2);
  WAIT_FOR(w.connections_closed);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(r[i].ends, 1);
    assert_int_equal(r[i].err.code, BR_NETWORK);
    assert_true(r[i].err.retryable);
    assert_non_null(strstr(r[i].err.message, "127.0.0.1"));
  }
  assert_int_equal(w.close_why.code, BR_NETWORK);
  reader refused = {0}, again = {.check = true};
  get(&w, &refused, "data 5 0");
  WAIT_FOR(refused.ends && w.connections_closed == 2);
  assert_int_equal(refused.err.code, BR_NETWORK);
  assert_non_null(strstr(refused.err.message, "refused"));
  w.server_options.port = w.port;
  looper_call(&w.server_loop, start_server, &w);
  get(&w, &again, "data 12 0");
  WAIT_FOR(again.ends);
  assert_int_equal(again.err.code, BR_OK);
  assert_int_equal(again.bad, 0);
  assert_int_equal(w.connections_closed, 2);
  world_stop(&w);
}

/* A retry from inside `end`, while the lost connection is still being taken down, goes to the next connection. */
typedef struct retry {
  reader first, second;
} retry;
static void retry_end(void *arg, const br_error *err) {
  retry *t = arg;
  (void)err;
  t->second.stream = br_flight_get(t->first.w->client, "data 7 0", 8, sink_of(&t->second));
}
static void start_retry(void *arg) {
  retry *t = arg;
  br_flight_sink s = {t, reader_data, reader_result, retry_end};
  t->first.stream = br_flight_action(t->first.w->client, "hold", "", 0, s);
}
/* Cuts the client's connections; the server's listener stays. */
static void cut_connections(int port) {
  for (int fd = 3; fd < 256; fd++) {
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    if (getpeername(fd, (struct sockaddr *)&a, &n) == 0 && a.sin_family == AF_INET && ntohs(a.sin_port) == port)
      shutdown(fd, SHUT_RDWR);
  }
}
static void test_retry_inside_end(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  retry t = {.first = {.w = &w}, .second = {.w = &w, .check = true}};
  looper_call(&w.client_loop, start_retry, &t);
  WAIT_FOR(w.held);
  cut_connections(w.port);
  WAIT_FOR(t.second.ends);
  assert_int_equal(t.second.err.code, BR_OK);
  assert_int_equal(t.second.messages, 7);
  world_stop(&w);
}

static void free_client_in_end(void *arg, const br_error *err) {
  reader_end(arg, err);
  reader *r = arg;
  br_flight_client_free(r->w->client);
  lock_on();
  r->w->client = NULL;
  lock_off();
}
static void start_free_in_end(void *arg) {
  reader *r = arg;
  br_flight_sink s = {r, reader_data, reader_result, free_client_in_end};
  r->stream = br_flight_action(r->w->client, "echo", "x", 1, s);
  r[1].stream = br_flight_action(r->w->client, "hold", "x", 1, sink_of(&r[1]));
}
static void test_client_freed_inside_a_callback(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r[2] = {{.w = &w}, {.w = &w}};
  looper_call(&w.client_loop, start_free_in_end, r);
  WAIT_FOR(!w.client);
  assert_int_equal(r[0].err.code, BR_OK);
  assert_int_equal(r[1].err.code, BR_CANCELLED);
  assert_int_equal(w.connections_closed, 0);
  WAIT_FOR(w.calls_closed == w.calls_opened);
  world_stop(&w);
}

/* A socket that listens and never answers, by kernel alone. */
static int silent_socket(int *port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
  assert_int_equal(listen(fd, 8), 0);
  getsockname(fd, (struct sockaddr *)&a, &n);
  *port = ntohs(a.sin_port);
  return fd;
}

static void test_connect_is_bounded(void **state) {
  (void)state;
  world w = {.client_options = {.connect_ms = 200}};
  world_start(&w, false);
  looper_call(&w.client_loop, stop_client, &w);
  int port, fd = silent_socket(&port);
  snprintf(w.uri, sizeof w.uri, "tcp://127.0.0.1:%d", port);
  looper_call(&w.client_loop, start_client, &w);
  reader r = {0}, cancelled = {0};
  uint64_t t0 = br_now_ms();
  get(&w, &r, "data 1 0");
  get(&w, &cancelled, "data 1 0");
  cancel(&cancelled);
  WAIT_FOR(r.ends && w.connections_closed);
  uint64_t took = br_now_ms() - t0;
  assert_int_equal(r.err.code, BR_TIMEOUT);
  assert_in_range(took, 150, 10000);
  assert_int_equal(cancelled.ends, 0);
  close(fd);
  world_stop(&w);
}

static void test_connect_by_name(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  looper_call(&w.client_loop, stop_client, &w);
  snprintf(w.uri, sizeof w.uri, "tcp://localhost:%d", w.port);
  looper_call(&w.client_loop, start_client, &w);
  reader r = {0}, gone = {0};
  get(&w, &r, "data 3 0");
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  looper_call(&w.client_loop, stop_client, &w);
  snprintf(w.uri, sizeof w.uri, "unix:/nonexistent/socket");
  looper_call(&w.client_loop, start_client, &w);
  get(&w, &gone, "data 3 0");
  WAIT_FOR(gone.ends);
  assert_int_equal(gone.err.code, BR_NETWORK);
  assert_non_null(strstr(gone.err.message, "/nonexistent/socket"));
  world_stop(&w);
}

static void test_bad_uris(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "host:1",
                                    "tcp://",
                                    "tcp://h",
                                    "tcp://h:",
                                    "tcp://h:0",
                                    "tcp://h:65536",
                                    "tcp://h:1x",
                                    "tcp://:1",
                                    "unix:",
                                    "http://h:1",
                                    "tcp://h:-1",
                                    "tcp://h:999999999999999999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    br_flight_client *c = NULL;
    br_error err = {0};
    assert_int_equal(br_flight_client_new(NULL, bad[i], NULL, &c, &err), BR_INVALID);
    assert_null(c);
  }
}

static void test_bearer(void **state) {
  (void)state;
  static const char *const tokens[] = {"s3cret", NULL, "s3cre", "s3cretx", "S3cret", "x"};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    world w = {.server_options = {.bearer = "s3cret"}, .client_options = {.bearer = tokens[i]}};
    world_start(&w, false);
    reader r = {0}, a = {0};
    get(&w, &r, "data 2 0");
    action(&w, &a, "echo", "x", 1);
    WAIT_FOR(r.ends && a.ends);
    assert_int_equal(r.err.code, i == 0 ? BR_OK : BR_PERMISSION);
    assert_int_equal(a.err.code, i == 0 ? BR_OK : BR_PERMISSION);
    assert_int_equal(a.results, i == 0);
    world_stop(&w);
    assert_int_equal(w.sources_made, i == 0);
  }
}

typedef struct second_server {
  world *w;
  br_status status;
  br_error err;
} second_server;
static void second_on_loop(void *arg) {
  second_server *s = arg;
  br_flight_server_options o = {.host = "127.0.0.1", .port = s->w->port};
  br_flight_handlers h = {0};
  br_flight_server *out;
  s->status = br_flight_server_new(s->w->server_loop.l, &o, &h, &out, &s->err);
}
static void test_bad_tokens(void **state) {
  (void)state;
  char longest[1002];
  memset(longest, 'a', 1001);
  longest[1001] = 0;
  const char *const bad[] = {"", " ", "a b", "a\n", "\xc3\xa4", longest};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    br_flight_client *c = NULL;
    br_flight_server *s = NULL;
    br_error err = {0};
    br_flight_client_options o = {.bearer = bad[i]};
    br_flight_server_options so = {.host = "127.0.0.1", .bearer = bad[i]};
    br_flight_handlers h = {0};
    assert_int_equal(br_flight_client_new(NULL, "tcp://h:1", &o, &c, &err), BR_INVALID);
    assert_int_equal(br_flight_server_new(NULL, &so, &h, &s, &err), BR_INVALID);
  }
}

static void test_port_in_use(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  second_server s = {.w = &w};
  looper_call(&w.server_loop, second_on_loop, &s);
  assert_int_equal(s.status, BR_IO);
  char want[40];
  snprintf(want, sizeof want, "127.0.0.1:%d", w.port);
  assert_non_null(strstr(s.err.message, want));
  assert_non_null(strstr(s.err.message, "in use"));
  world_stop(&w);
}

static void nothing(void *arg) { (void)arg; }

/* No descriptor left: connections wait in the backlog and are served once there is one. */
static void test_no_descriptors_left(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  struct rlimit old, tight;
  getrlimit(RLIMIT_NOFILE, &old);
  tight = old;
  tight.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &tight);
  int fill[64], n = 0;
  while (n < 64 && (fill[n] = dup(1)) >= 0) n++;
  assert_true(n > 0);
  close(fill[--n]); /* one for the client's socket, none for the server's */
  reader r = {.check = true};
  get(&w, &r, "data 12 0");
  looper_call(&w.server_loop, nothing, NULL); /* the server's loop is alive meanwhile */
  assert_int_equal(r.ends, 0);
  while (n) close(fill[--n]);
  setrlimit(RLIMIT_NOFILE, &old);
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.bad, 0);
  world_stop(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_echo),
      cmocka_unit_test(test_request_above_limit),
      cmocka_unit_test(test_results_later),
      cmocka_unit_test(test_queue_drains),
      cmocka_unit_test(test_call_closed_when_client_leaves),
      cmocka_unit_test(test_server_freed_and_back),
      cmocka_unit_test(test_retry_inside_end),
      cmocka_unit_test(test_client_freed_inside_a_callback),
      cmocka_unit_test(test_connect_is_bounded),
      cmocka_unit_test(test_connect_by_name),
      cmocka_unit_test(test_bad_uris),
      cmocka_unit_test(test_bearer),
      cmocka_unit_test(test_bad_tokens),
      cmocka_unit_test(test_port_in_use),
      cmocka_unit_test(test_no_descriptors_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
