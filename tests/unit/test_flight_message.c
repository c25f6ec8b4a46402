/* SPDX-License-Identifier: Apache-2.0
 * flight: FlightData read in every cut and any order of fields, small messages, error trailers and text encodings. */
/* links: br_flight */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "flight/message.h"

#define BYTES(s) (s), sizeof(s) - 1

/* Feeds p in pieces of `step`, expecting `messages` whole ones; checks the last. */
static br_status feed(br_flight_rx *r, const void *p, size_t n, size_t step, int *messages, br_error *err) {
  *messages = 0;
  for (size_t at = 0; at < n;) {
    size_t piece = n - at < step ? n - at : step;
    const uint8_t *from = (const uint8_t *)p + at;
    at += piece;
    while (piece) {
      size_t used;
      bool whole;
      BR_TRY(br_flight_rx_feed(r, from, piece, &used, &whole, err));
      from += used, piece -= used;
      *messages += whole;
      assert_true(used > 0);
    }
  }
  return BR_OK;
}

static void test_every_cut(void **state) {
  (void)state;
  char body[300];
  for (int i = 0; i < 300; i++) body[i] = (char)i;
  br_flight_data d = {.head = "the head",
                      .head_bytes = 8,
                      .app = "app",
                      .app_bytes = 3,
                      .descriptor = "desc",
                      .descriptor_bytes = 4,
                      .body = {body, sizeof body, NULL, NULL}};
  br_buf wire = {0};
  br_error err = {0};
  for (int twice = 0; twice < 2; twice++) {
    assert_int_equal(br_flight_data_head(&d, &wire, &err), BR_OK);
    br_buf_add(&wire, body, sizeof body);
  }
  for (size_t step = 1; step <= wire.len; step++) {
    br_flight_rx r = {0};
    int messages;
    assert_int_equal(feed(&r, wire.data, wire.len, step, &messages, &err), BR_OK);
    assert_int_equal(messages, 2);
    assert_int_equal(r.head.len, 8);
    assert_memory_equal(r.head.data, "the head", 8);
    assert_int_equal(r.app.len, 3);
    assert_memory_equal(r.app.data, "app", 3);
    assert_int_equal(r.descriptor.len, 4);
    assert_int_equal(r.body_bytes, sizeof body);
    assert_int_equal((uintptr_t)r.body % 64, 0);
    assert_memory_equal(r.body, body, sizeof body);
    br_flight_rx_free(&r);
  }
  br_buf_free(&wire);
}

/* Field order, repeats, unknown fields of each wire type. */
static void test_any_order(void **state) {
  (void)state;
  static const struct {
    const char *p;
    size_t n;
    const char *head, *body;
  } list[] = {
      {BYTES("\0\0\0\0\x9\xc2\x3e\3abc\x12\1h"), "h", "abc"},      /* body before head */
      {BYTES("\0\0\0\0\x0b\xc2\x3e\2ab\xc2\x3e\3xyz"), "", "xyz"}, /* the last body counts */
      {BYTES("\0\0\0\0\x5\xc2\x3e\2ab"), "", "ab"},
      {BYTES("\0\0\0\0\x3\xc2\x3e\0"), "", ""}, /* an empty body */
      {BYTES("\0\0\0\0\0"), "", ""},
      {BYTES("\0\0\0\0\x1b\x20\xff\x01\x29"
             "12345678"
             "\x35"
             "1234"
             "\x3a\2zz\x12\2hh"),
       "hh", ""},
      {BYTES("\0\0\0\0\6\x12\1a\x12\1b"), "b", ""},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    for (size_t step = 1; step <= list[i].n; step++) {
      br_flight_rx r = {0};
      br_error err = {0};
      int messages;
      /* the announced length is made right here, so that the list stays readable */
      char *p = malloc(list[i].n);
      memcpy(p, list[i].p, list[i].n);
      p[4] = (char)(list[i].n - 5);
      assert_int_equal(feed(&r, p, list[i].n, step, &messages, &err), BR_OK);
      assert_int_equal(messages, 1);
      assert_int_equal(r.head.len, strlen(list[i].head));
      if (r.head.len) assert_memory_equal(r.head.data, list[i].head, r.head.len);
      assert_int_equal(r.body_bytes, strlen(list[i].body));
      if (r.body_bytes) assert_memory_equal(r.body, list[i].body, r.body_bytes);
      br_flight_rx_free(&r);
      free(p);
    }
}

static void test_malformed(void **state) {
  (void)state;
  static const struct {
    const char *p;
    size_t n;
    br_code code;
  } list[] = {
      {BYTES("\1\0\0\0\0"), BR_CORRUPT},       /* compressed */
      {BYTES("\0\x80\0\0\0"), BR_INVALID},     /* 2 GiB */
      {BYTES("\0\0\0\0\1\x12"), BR_CORRUPT},   /* ends after a tag */
      {BYTES("\0\0\0\0\2\x12\5"), BR_CORRUPT}, /* longer than the message */
      {BYTES("\0\0\0\0\3\xc2\x3e\x1"), BR_CORRUPT},
      {BYTES("\0\0\0\0\2\0\0"), BR_CORRUPT}, /* field 0 */
      {BYTES("\0\0\0\0\1\x13"), BR_CORRUPT}, /* group */
      {BYTES("\0\0\0\0\1\x14"), BR_CORRUPT},
      {BYTES("\0\0\0\0\1\x17"), BR_CORRUPT},
      {BYTES("\0\0\0\0\4\x29"
             "abc"),
       BR_CORRUPT},                          /* cut 64 bits */
      {BYTES("\0\0\0\0\1\x80"), BR_CORRUPT}, /* cut varint */
      {BYTES("\0\0\0\0\x0c\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\1"), BR_CORRUPT},
      {BYTES("\0\0\0\0\x0c\xc2\x3e\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"), BR_CORRUPT}, /* 2^64 - 1 */
      {BYTES("\0\x7f\0\0\0\x12\x80\x80\x80\x80\4"), BR_INVALID},                         /* a head of 1 GiB */
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    for (size_t step = 1; step <= list[i].n; step++) {
      br_flight_rx r = {0};
      br_error err = {0};
      int messages;
      assert_int_equal(feed(&r, list[i].p, list[i].n, step, &messages, &err), list[i].code);
      assert_int_equal(messages, 0);
      assert_true(err.message[0] != 0);
      br_flight_rx_free(&r);
    }
}

static void test_target_is_filled_in_place(void **state) {
  (void)state;
  br_flight_rx r = {0};
  br_error err = {0};
  size_t room = 0, used;
  bool whole;
  assert_null(br_flight_rx_target(&r, &room));
  assert_int_equal(br_flight_rx_feed(&r, (const uint8_t *)"\0\0\0\0\xb\x12\1h\xc2\x3e\5ab", 13, &used, &whole, &err),
                   BR_OK);
  assert_int_equal(used, 13);
  uint8_t *at = br_flight_rx_target(&r, &room);
  assert_ptr_equal(at, r.body + 2);
  assert_int_equal(room, 3);
  memcpy(at, "cde", 3);
  assert_int_equal(br_flight_rx_feed(&r, at, 3, &used, &whole, &err), BR_OK);
  assert_true(whole);
  assert_memory_equal(r.body, "abcde", 5);
  assert_null(br_flight_rx_target(&r, &room));
  br_flight_rx_free(&r);
}

static void test_too_large_to_send(void **state) {
  (void)state;
  br_flight_data d = {.body = {.data = "", .bytes = (size_t)BR_FLIGHT_MAX_MESSAGE_BYTES + 1}};
  br_buf out = {0};
  br_error err = {0};
  assert_int_equal(br_flight_data_head(&d, &out, &err), BR_UNSUPPORTED);
  br_buf_free(&out);
}

static void test_small_messages(void **state) {
  (void)state;
  const void *value;
  size_t n;
  char *type = NULL;
  br_error err = {0};
  assert_int_equal(br_flight_parse_bytes1("", 0, &value, &n, &err), BR_OK);
  assert_int_equal(n, 0);
  assert_int_equal(br_flight_parse_bytes1("\x0a\3abc", 5, &value, &n, &err), BR_OK);
  assert_int_equal(n, 3);
  assert_memory_equal(value, "abc", 3);
  assert_int_equal(br_flight_parse_bytes1("\x0a\4abc", 5, &value, &n, &err), BR_CORRUPT);
  assert_int_equal(br_flight_parse_action("\x0a\4join\x12\2xy", 10, &type, &value, &n, &err), BR_OK);
  assert_string_equal(type, "join");
  assert_memory_equal(value, "xy", 2);
  free(type);
  assert_int_equal(br_flight_parse_action("\x0a\3a\0b", 5, &type, &value, &n, &err), BR_INVALID);
  br_buf info = {0};
  br_flight_info_encode(&info, "schema", 6, "\x08\1", 2, "ticket", 6, 7, -1);
  static const char want[] =
      "\x0a\x10\xff\xff\xff\xff\x08\0\0\0schema\0\0\x12\2\x08\1\x1a\x0a\x0a\x08\x0a\6ticket\x20\7"
      "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\1";
  assert_int_equal(info.len, sizeof want - 1);
  assert_memory_equal(info.data, want, info.len);
  br_buf_free(&info);
}

static void test_path(void **state) {
  (void)state;
  br_error err = {0};
  br_buf d = {0};
  char path[16];
  static const char want[] = "\x08\1\x1a\3q1f\x1a\2s2";
  br_flight_path_encode(&d, "q1f/s2");
  assert_int_equal(d.len, sizeof want - 1);
  assert_memory_equal(d.data, want, d.len);
  assert_int_equal(br_flight_path_parse(d.data, d.len, path, sizeof path, &err), BR_OK);
  assert_string_equal(path, "q1f/s2");
  assert_int_equal(br_flight_path_parse(d.data, d.len, path, 7, &err), BR_OK); /* just fits */
  assert_int_equal(br_flight_path_parse(d.data, d.len, path, 6, &err), BR_INVALID);
  assert_int_equal(br_flight_path_parse(d.data, d.len - 1, path, sizeof path, &err), BR_CORRUPT);
  assert_int_equal(br_flight_path_parse("\x08\1", 2, path, sizeof path, &err), BR_OK);
  assert_string_equal(path, "");
  assert_int_equal(br_flight_path_parse("\x08\2\x12\1a", 5, path, sizeof path, &err), BR_INVALID); /* a command */
  assert_int_equal(br_flight_path_parse("\x08\1\x1a\3a\0b", 7, path, sizeof path, &err), BR_INVALID);
  br_buf_free(&d);
}

static void test_base64(void **state) {
  (void)state;
  static const char *const pairs[][2] = {
      {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
      {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xff\xfe\xfb", "//77"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    br_buf e = {0}, d = {0};
    br_base64_encode(pairs[i][0], strlen(pairs[i][0]), &e);
    assert_string_equal(br_buf_cstr(&e), pairs[i][1]);
    while (e.len % 4) br_buf_char(&e, '='); /* padded is read too */
    assert_true(br_base64_decode(e.data, e.len, &d));
    assert_string_equal(br_buf_cstr(&d), pairs[i][0]);
    br_buf_free(&e);
    br_buf_free(&d);
  }
  br_buf d = {0};
  assert_false(br_base64_decode("Zg!", 3, &d));
  assert_false(br_base64_decode("Z", 1, &d));
  br_buf_free(&d);
}

static void test_percent(void **state) {
  (void)state;
  br_buf e = {0}, d = {0};
  const char *text = "100% w\xc3\xb6rse\n\x7f~";
  br_percent_encode(text, strlen(text), 1000, &e);
  assert_string_equal(br_buf_cstr(&e), "100%25 w%C3%B6rse%0A%7F~");
  br_percent_decode(e.data, e.len, &d);
  assert_string_equal(br_buf_cstr(&d), text);
  br_buf_clear(&e);
  br_percent_encode(text, strlen(text), 12, &e); /* a cut never splits a character */
  br_buf_clear(&d);
  br_percent_decode(e.data, e.len, &d);
  assert_true(e.len <= 12);
  assert_string_equal(br_buf_cstr(&d), "100% w");
  br_buf_clear(&d);
  br_percent_decode("%", 1, &d);
  br_percent_decode("%4", 2, &d);
  br_percent_decode("%zz%41", 6, &d);
  assert_string_equal(br_buf_cstr(&d), "%%4%zzA");
  br_buf_free(&e);
  br_buf_free(&d);
}

static void reply_with(br_grpc_reply *r, const br_grpc_trailers *t) {
  for (size_t i = 0; i < t->n; i++)
    br_grpc_reply_header(r, t->headers[i].name, strlen(t->headers[i].name), t->headers[i].value,
                         strlen(t->headers[i].value));
}

static void test_errors_for_all_codes(void **state) {
  (void)state;
  for (int code = BR_OK; code <= BR_INTERNAL; code++) {
    br_error sent = {.code = (br_code)code, .blame = BR_BLAME_TASK, .line = 9, .sys_errno = 3}, got = {0},
             foreign = {0};
    memset(sent.message, 'm', sizeof sent.message - 1);
    br_grpc_trailers t;
    br_grpc_reply r = {0}, f = {0};
    br_grpc_trailers_init(&t, &sent, 0);
    reply_with(&r, &t);
    br_grpc_reply_error(&r, "peer", &got);
    assert_int_equal(got.code, code);
    if (code) {
      assert_int_equal(got.sys_errno, 3);
      assert_string_equal(got.message, sent.message);
      t.n = 2; /* somebody else's server: status and text only */
      reply_with(&f, &t);
      br_grpc_reply_error(&f, "peer", &foreign);
      assert_int_not_equal(foreign.code, BR_OK);
      assert_non_null(strstr(foreign.message, "peer answered: mmm"));
    }
    br_grpc_trailers_free(&t);
    br_grpc_reply_free(&r);
    br_grpc_reply_free(&f);
  }
}

static void test_strange_replies(void **state) {
  (void)state;
  static const char *const status[] = {"-1", "999", "abc", "", "12345678901234567890", "2"};
  for (size_t i = 0; i < sizeof status / sizeof *status; i++) {
    br_grpc_reply r = {0};
    br_error err = {0};
    br_grpc_reply_header(&r, BYTES("grpc-status"), status[i], strlen(status[i]));
    br_grpc_reply_header(&r, BYTES("grpc-message"), BYTES("why"));
    br_grpc_reply_header(&r, BYTES("brant-error-bin"), BYTES("!!!"));
    br_grpc_reply_error(&r, "peer", &err);
    assert_int_not_equal(err.code, BR_OK);
    assert_non_null(strstr(err.message, "why"));
    br_grpc_reply_free(&r);
  }
  /* an error that says it is none, or is no message */
  static const char *const bins[] = {"CAA", "AAAA", "////"};
  for (size_t i = 0; i < sizeof bins / sizeof *bins; i++) {
    br_grpc_reply r = {0};
    br_error err = {0};
    br_grpc_reply_header(&r, BYTES("grpc-status"), BYTES("5"));
    br_grpc_reply_header(&r, BYTES("brant-error-bin"), bins[i], strlen(bins[i]));
    br_grpc_reply_error(&r, "peer", &err);
    assert_int_equal(err.code, BR_NOT_FOUND);
    br_grpc_reply_free(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_cut),
      cmocka_unit_test(test_any_order),
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_target_is_filled_in_place),
      cmocka_unit_test(test_too_large_to_send),
      cmocka_unit_test(test_small_messages),
      cmocka_unit_test(test_path),
      cmocka_unit_test(test_base64),
      cmocka_unit_test(test_percent),
      cmocka_unit_test(test_errors_for_all_codes),
      cmocka_unit_test(test_strange_replies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
