/* SPDX-License-Identifier: Apache-2.0
 * flight: what strangers may send. Each closes its own connection only; the server goes on for others. */
/* links: br_flight */
#include "unit/flight_support.h"
#include "flight/message.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define BYTES(s) (s), sizeof(s) - 1

static int dial(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  return fd;
}

/* Sends what the peer takes; false: it hung up meanwhile, which is its right. */
static bool push(int fd, const void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t w = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
    if (w <= 0) return false;
    at += (size_t)w;
  }
  return true;
}

/* Reads until the server closes; fails the test when it doesn't within the bound. */
static void expect_closed(int fd) {
  char buf[4096];
  for (;;) {
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, WAIT_S * 1000) <= 0) fail_msg("the server keeps a bad connection");
    if (recv(fd, buf, sizeof buf, 0) <= 0) break;
  }
  close(fd);
}

static void expect_alive(world *w) {
  reader r = {.check = true};
  get(w, &r, "data 12 0");
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.messages, 12);
  assert_int_equal(r.bad, 0);
}

static void add_frame(br_buf *b, uint8_t type, uint8_t flags, uint32_t stream, const void *p, size_t n) {
  uint8_t h[9] = {(uint8_t)(n >> 16),      (uint8_t)(n >> 8),      (uint8_t)n,     type, flags, (uint8_t)(stream >> 24),
                  (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
  br_buf_add(b, h, sizeof h);
  br_buf_add(b, p, n);
}
static void add_start(br_buf *b) {
  br_buf_add(b, BYTES(PREFACE));
  br_buf_add(b, BYTES(SETTINGS));
}
static void add_literal(br_buf *b, const char *name, const char *value, size_t n) {
  br_buf_char(b, 0); /* literal, not indexed, new name */
  br_buf_char(b, (char)strlen(name));
  br_buf_str(b, name);
  if (n < 127) {
    br_buf_char(b, (char)n);
  } else { /* prefix integer */
    br_buf_char(b, 127);
    size_t v = n - 127;
    for (; v > 127; v >>= 7) br_buf_char(b, (char)(v | 128));
    br_buf_char(b, (char)v);
  }
  br_buf_add(b, value, n);
}
static void add_request_headers(br_buf *b, const char *method) {
  add_literal(b, ":method", "POST", 4);
  add_literal(b, ":scheme", "http", 4);
  add_literal(b, ":authority", "x", 1);
  add_literal(b, ":path", method, strlen(method));
  add_literal(b, "content-type", "application/grpc", 16);
}
#define GET "/arrow.flight.protocol.FlightService/DoGet"

static void test_bytes_of_other_protocols(void **state) {
  (void)state;
  world w = {.server_options = {.handshake_ms = 300}};
  world_start(&w, false);
  static const struct {
    const char *p;
    size_t n;
  } list[] = {
      {BYTES("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
      {BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello")},
      {BYTES("SSH-2.0-OpenSSH_9.2\r\n")},
      {BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r")},
      {BYTES("P")},                                                    /* and silence */
      {BYTES(PREFACE)},                                                /* no settings */
      {BYTES(PREFACE "\0\0\4\3\0\0\0\0\1\0\0\0\1")},                   /* RST_STREAM first, of an idle stream */
      {BYTES(PREFACE SETTINGS "\xff\xff\xff\0\0\0\0\0\1")},            /* a frame above the limit */
      {BYTES(PREFACE SETTINGS "\0\0\5\0\0\0\0\0\1hello")},             /* DATA of an idle stream */
      {BYTES(PREFACE SETTINGS "\0\0\1\1\4\0\0\0\1\x80")},              /* HPACK index 0 */
      {BYTES(PREFACE SETTINGS "\0\0\1\1\4\0\0\0\2\x82")},              /* an even stream */
      {BYTES(PREFACE SETTINGS "\0\0\4\x8\0\0\0\0\0\0\0\0\0")},         /* WINDOW_UPDATE of 0 */
      {BYTES(PREFACE SETTINGS "\0\0\4\x8\0\0\0\0\0\x7f\xff\xff\xff")}, /* a window above 2^31 */
      {BYTES(PREFACE SETTINGS "\0\0\5\4\0\0\0\0\0xxxxx")},             /* SETTINGS of a bad length */
      {BYTES(PREFACE SETTINGS "\0\0\x8\7\0\0\0\0\0\0\0\0\0\0\0\0\0")}, /* GOAWAY */
      {BYTES(PREFACE SETTINGS "\0\0\0\x9\4\0\0\0\1")},                 /* CONTINUATION out of nowhere */
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    int fd = dial(w.port);
    push(fd, list[i].p, list[i].n);
    expect_closed(fd);
  }
  expect_closed(dial(w.port)); /* nothing at all */
  expect_alive(&w);
  world_stop(&w);
}

static void test_random_bytes(void **state) {
  (void)state;
  world w = {.server_options = {.handshake_ms = 2000}};
  world_start(&w, false);
  uint64_t x = 88172645463325252ull; /* xorshift: the same bytes in every run */
  for (int i = 0; i < 60; i++) {
    br_buf b = {0};
    if (i % 3 == 1) br_buf_add(&b, BYTES(PREFACE));
    if (i % 3 == 2) add_start(&b);
    for (int k = 0; k < 20000; k++) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      br_buf_char(&b, (char)(x >> 32));
    }
    int fd = dial(w.port);
    push(fd, b.data, b.len);
    shutdown(fd, SHUT_WR);
    expect_closed(fd);
    br_buf_free(&b);
  }
  expect_alive(&w);
  world_stop(&w);
}

static void test_header_bombs(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  char big[9000];
  memset(big, 'a', sizeof big);
  for (int kind = 0; kind < 3; kind++) {
    br_buf b = {0}, h = {0};
    add_start(&b);
    add_request_headers(&h, GET);
    if (kind == 0) { /* long values over continuations */
      add_frame(&b, 1, 0, 1, h.data, h.len);
      for (int i = 0; i < 20; i++) {
        br_buf_clear(&h);
        add_literal(&h, "x-bomb", big, sizeof big);
        add_frame(&b, 9, i == 19 ? 4 : 0, 1, h.data, h.len);
      }
    } else if (kind == 1) { /* one indexed value of 4 KB, named 10,000 times by one byte each */
      br_buf_char(&h, 0x40);
      br_buf_char(&h, 6);
      br_buf_str(&h, "x-bomb");
      br_buf_add(&h, "\x7f\xa1\x1e", 3); /* 4,000 */
      br_buf_add(&h, big, 4000);
      for (int i = 0; i < 10000; i++) br_buf_char(&h, (char)0xbe);
      add_frame(&b, 1, 4, 1, h.data, h.len);
    } else { /* continuations without end */
      add_frame(&b, 1, 0, 1, h.data, h.len);
      for (int i = 0; i < 100000; i++) add_frame(&b, 9, 0, 1, NULL, 0);
    }
    int fd = dial(w.port);
    push(fd, b.data, b.len);
    if (kind == 2) shutdown(fd, SHUT_WR);
    expect_closed(fd);
    br_buf_free(&b);
    br_buf_free(&h);
  }
  expect_alive(&w);
  assert_int_equal(w.sources_made, 1);
  world_stop(&w);
}

/* Requests that are bad as gRPC: they are answered, or ended, and the connection stays of use: a last good one says so. */
static void test_bad_requests(void **state) {
  (void)state;
  world w = {.server_options = {.max_message_bytes = 1000}};
  world_start(&w, false);
  static const struct {
    const char *method, *body;
    size_t n;
  } list[] = {
      {GET, BYTES("")},                                                              /* no message */
      {GET, BYTES("\0\0\0")},                                                        /* cut prefix */
      {GET, BYTES("\0\0\0\0\x9zz")},                                                 /* cut message */
      {GET, BYTES("\1\0\0\0\0")},                                                    /* compressed */
      {GET, BYTES("\0\xff\xff\xff\xff")},                                            /* 4 GiB announced */
      {GET, BYTES("\0\0\0\0\0\0\0\0\0\0")},                                          /* two messages */
      {GET, BYTES("\0\0\0\0\3\xa\xff\xff")},                                         /* malformed ticket */
      {"/arrow.flight.protocol.FlightService/DoAction", BYTES("\0\0\0\0\2\xa\x7f")}, /* malformed action */
      {"/arrow.flight.protocol.FlightService/DoPut", BYTES("\0\0\0\0\0")},           /* not offered */
      {"/arrow.flight.protocol.FlightService/Handshake", BYTES("\0\0\0\0\0")},
      {"/", BYTES("\0\0\0\0\0")},
  };
  br_buf b = {0}, h = {0};
  add_start(&b);
  uint32_t id = 1;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++, id += 2) {
    br_buf_clear(&h);
    add_request_headers(&h, list[i].method);
    add_frame(&b, 1, 4, id, h.data, h.len);
    add_frame(&b, 0, 1, id, list[i].body, list[i].n);
  }
  br_buf_clear(&h);
  add_request_headers(&h, GET);
  add_frame(&b, 1, 4, id, h.data, h.len);
  add_frame(&b, 0, 1, id,
            BYTES("\0\0\0\0\xc\xa\xa"
                  "data 3 100"));
  int fd = dial(w.port);
  assert_true(push(fd, b.data, b.len));
  WAIT_FOR(w.sources_freed == 1);
  assert_int_equal(w.sources_made, 1);
  assert_int_equal(w.bodies_made, 3);
  close(fd);
  br_buf_free(&b);
  br_buf_free(&h);
  expect_alive(&w);
  world_stop(&w);
}

/* One connection that opens many requests without ending them holds a bounded amount of memory: the budget says no. */
static void test_unfinished_requests_are_bounded(void **state) {
  (void)state;
  world w = {.server_options = {.max_message_bytes = 100000}};
  world_start(&w, false);
  br_buf b = {0}, h = {0};
  char zeros[10000] = {0};
  add_start(&b);
  add_frame(&b, 4, 1, 0, NULL, 0); /* agrees with the server's settings: its windows count from here */
  add_request_headers(&h, GET);
  for (uint32_t id = 1; id < 60; id += 2) {
    add_frame(&b, 1, 4, id, h.data, h.len);
    add_frame(&b, 0, 0, id, BYTES("\0\0\1\x86\xa0")); /* 100,000 bytes announced */
    for (int k = 0; k < 9; k++) add_frame(&b, 0, 0, id, zeros, sizeof zeros);
  }
  int fd = dial(w.port);
  assert_true(push(fd, b.data, b.len));
  /* 2 requests fit; the other 28 are answered with trailers that name the limit, so that many HEADERS frames come. */
  uint8_t in[65536];
  size_t got = 0, headers = 0, at = 0;
  while (headers < 28) {
    struct pollfd p = {fd, POLLIN, 0};
    assert_true(poll(&p, 1, WAIT_S * 1000) > 0);
    ssize_t n = recv(fd, in + got, sizeof in - got, 0);
    assert_true(n > 0);
    got += (size_t)n;
    while (at + 9 <= got) {
      size_t len = (size_t)in[at] << 16 | (size_t)in[at + 1] << 8 | in[at + 2];
      if (at + 9 + len > got) break;
      headers += in[at + 3] == 1;
      at += 9 + len;
    }
  }
  close(fd);
  br_buf_free(&b);
  br_buf_free(&h);
  expect_alive(&w);
  world_stop(&w);
}

/* Asks for much and never reads, or leaves with the request half sent: the source is freed when the peer goes. */
static void test_peers_that_vanish(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  br_buf b = {0}, h = {0};
  add_start(&b);
  add_frame(&b, 8, 0, 0, BYTES("\x3f\xff\0\0")); /* a window of a GiB */
  add_request_headers(&h, GET);
  add_frame(&b, 1, 4, 1, h.data, h.len);
  add_frame(&b, 0, 1, 1,
            BYTES("\0\0\0\0\x14\xa\x12"
                  "data 1000000 65536"));
  int fd = dial(w.port);
  assert_true(push(fd, b.data, b.len));
  WAIT_FOR(w.sources_made == 1);
  expect_alive(&w); /* meanwhile */
  close(fd);
  WAIT_FOR(w.sources_freed == 2);
  assert_in_range(w.produced_bytes, 65535, 64 << 20); /* a window of the stream; no more than is asked for */
  for (size_t cut = 1; cut < b.len; cut += 7) {
    fd = dial(w.port);
    push(fd, b.data, cut);
    close(fd);
  }
  br_buf_free(&b);
  br_buf_free(&h);
  expect_alive(&w);
  world_stop(&w);
}

/* Pings without end from somebody who doesn't read the answers. */
static void test_ping_flood(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  br_buf b = {0};
  add_start(&b);
  for (int i = 0; i < 1000; i++) add_frame(&b, 6, 0, 0, BYTES("12345678"));
  int fd = dial(w.port);
  struct timeval bound = {.tv_sec = WAIT_S};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
  size_t rounds = 0;
  while (push(fd, b.data + (rounds ? sizeof PREFACE - 1 + 9 : 0), b.len - (rounds ? sizeof PREFACE - 1 + 9 : 0)) &&
         rounds < 5000)
    rounds++;
  assert_true(rounds < 5000); /* the server hung up */
  close(fd);
  br_buf_free(&b);
  expect_alive(&w);
  world_stop(&w);
}

static void test_connections_are_bounded(void **state) {
  (void)state;
  world w = {.server_options = {.max_connections = 5}};
  world_start(&w, false);
  expect_alive(&w); /* the first */
  int fd[4];
  for (int i = 0; i < 4; i++) {
    fd[i] = dial(w.port);
    push(fd[i], BYTES(PREFACE SETTINGS));
    char c;
    assert_int_equal(recv(fd[i], &c, 1, 0), 1); /* it was accepted */
  }
  expect_closed(dial(w.port));
  expect_alive(&w);
  close(fd[0]);
  for (bool in = false; !in;) { /* its place becomes free once the server has seen the end */
    int again = dial(w.port);
    char c;
    push(again, BYTES(PREFACE SETTINGS));
    in = recv(again, &c, 1, 0) == 1;
    close(again);
  }
  for (int i = 1; i < 4; i++) close(fd[i]);
  world_stop(&w);
}

/* ---- a client and servers that are none */

typedef struct liar {
  int fd, port;
  const void *bytes;
  size_t n;
  bool hold; /* keep the connection open after the bytes */
  pthread_t thread;
} liar;
static void *lie(void *arg) {
  liar *s = arg;
  int c = accept(s->fd, NULL, NULL);
  char buf[4096];
  if (c < 0) return NULL;
  push(c, s->bytes, s->n);
  if (!s->hold) shutdown(c, SHUT_WR);
  while (recv(c, buf, sizeof buf, 0) > 0) continue; /* until the client leaves */
  close(c);
  return NULL;
}
static br_code ask_liar(world *w, const void *bytes, size_t n, bool hold) {
  liar s = {.fd = socket(AF_INET, SOCK_STREAM, 0), .bytes = bytes, .n = n, .hold = hold};
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof a;
  assert_int_equal(bind(s.fd, (struct sockaddr *)&a, len), 0);
  assert_int_equal(listen(s.fd, 1), 0);
  getsockname(s.fd, (struct sockaddr *)&a, &len);
  assert_int_equal(pthread_create(&s.thread, NULL, lie, &s), 0);
  looper_call(&w->client_loop, stop_client, w);
  snprintf(w->uri, sizeof w->uri, "tcp://127.0.0.1:%d", ntohs(a.sin_port));
  looper_call(&w->client_loop, start_client, w);
  reader r = {0};
  get(w, &r, "data 1 0");
  WAIT_FOR(r.ends);
  looper_call(&w->client_loop, stop_client, w);
  pthread_join(s.thread, NULL);
  close(s.fd);
  looper_call(&w->client_loop, start_client, w);
  assert_true(r.err.message[0] != 0);
  assert_int_equal(r.messages, 0);
  return r.err.code;
}

static void add_answer(br_buf *b, const char *status, const void *body, size_t n, bool end) {
  br_buf h = {0};
  br_buf_clear(b);
  br_buf_add(b, BYTES(SETTINGS));
  add_literal(&h, ":status", status, strlen(status));
  add_literal(&h, "content-type", "application/grpc", 16);
  add_frame(b, 1, 4, 1, h.data, h.len);
  add_frame(b, 0, end ? 1 : 0, 1, body, n);
  br_buf_free(&h);
}

static void test_servers_that_are_none(void **state) {
  (void)state;
  world w = {.client_options = {.connect_ms = 300}};
  world_start(&w, false);
  br_buf b = {0};
  assert_int_equal(ask_liar(&w, BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"), true), BR_NETWORK);
  assert_int_equal(ask_liar(&w, BYTES("220 mail ready\r\n"), true), BR_NETWORK);
  assert_int_equal(ask_liar(&w, BYTES(""), false), BR_NETWORK);
  assert_int_equal(ask_liar(&w, BYTES(""), true), BR_TIMEOUT);
  assert_int_equal(ask_liar(&w, BYTES("\0\0\0\4"), true), BR_TIMEOUT);
  assert_int_equal(ask_liar(&w, BYTES(SETTINGS), false), BR_NETWORK);
  add_answer(&b, "404", "", 0, true);
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_NETWORK);
  add_answer(&b, "200", "", 0, true); /* no gRPC status */
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_NETWORK);
  add_answer(&b, "200", BYTES("\1\0\0\0\0"), false); /* compressed */
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_CORRUPT);
  add_answer(&b, "200", BYTES("\0\xff\xff\xff\xff"), false); /* 4 GiB */
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_INVALID);
  add_answer(&b, "200", BYTES("\0\0\0\0\5\xc2\x3e\x7fzz"), false); /* a body longer than its message */
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_CORRUPT);
  add_answer(&b, "200", BYTES("\0\0\0\0\x8\xc2"), true); /* cut */
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_NETWORK);
  add_answer(&b, "200", "", 0, false);
  add_frame(&b, 3, 0, 1, BYTES("\0\0\0\7")); /* reset: refused */
  assert_int_equal(ask_liar(&w, b.data, b.len, true), BR_NETWORK);
  br_buf_free(&b);
  world_stop(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes_of_other_protocols),
      cmocka_unit_test(test_random_bytes),
      cmocka_unit_test(test_header_bombs),
      cmocka_unit_test(test_bad_requests),
      cmocka_unit_test(test_unfinished_requests_are_bounded),
      cmocka_unit_test(test_peers_that_vanish),
      cmocka_unit_test(test_ping_flood),
      cmocka_unit_test(test_connections_are_bounded),
      cmocka_unit_test(test_servers_that_are_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
