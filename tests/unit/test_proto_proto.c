/* SPDX-License-Identifier: Apache-2.0
 * proto/: errors cross whole, attempts round trip, what comes from outside is bounded. */
/* links: br_proto */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "proto/proto.h"

static br_error over_the_wire(const br_error *in) {
  br_buf bytes = {0};
  Brant__Pb__Error *p = br_error_to_pb(in);
  br_pb_pack(&p->base, &bytes);
  brant__pb__error__free_unpacked(p, NULL);
  br_error err = {0}, out;
  ProtobufCMessage *m = br_pb_unpack(&brant__pb__error__descriptor, bytes.data, bytes.len, &err);
  assert_non_null(m);
  memset(&out, 0xAA, sizeof out);
  br_error_from_pb((Brant__Pb__Error *)m, &out);
  protobuf_c_message_free_unpacked(m, NULL);
  br_buf_free(&bytes);
  return out;
}

static void error_keeps_every_field(void **state) {
  (void)state;
  br_error e = {.code = BR_FETCH,
                .blame = BR_BLAME_FETCH,
                .retryable = true,
                .has_attempt = true,
                .has_lost = true,
                .attempt = {0xFEDCBA9876543210u, 7, 8, 65535},
                .lost = {{UINT64_MAX, UINT32_MAX, 12, 13}, 14, 15},
                .worker = UINT32_MAX,
                .sys_errno = 104,
                .duckdb_type = -1,
                .line = INT_MAX,
                .file = "src/shuffle/reader.c",
                .message = "cannot read partition 3: \xC3\xA4 \"quoted\"\nsecond line"};
  br_error o = over_the_wire(&e);
  assert_int_equal(o.code, BR_FETCH);
  assert_int_equal(o.blame, BR_BLAME_FETCH);
  assert_true(o.retryable && o.has_attempt && o.has_lost);
  assert_true(br_attempt_equal(&o.attempt, &e.attempt));
  assert_true(br_attempt_equal(&o.lost.made_by, &e.lost.made_by));
  assert_int_equal(o.lost.worker, 14);
  assert_int_equal(o.lost.incarnation, 15);
  assert_int_equal(o.worker, UINT32_MAX);
  assert_int_equal(o.sys_errno, 104);
  assert_int_equal(o.duckdb_type, -1);
  assert_int_equal(o.line, INT_MAX);
  assert_string_equal(o.file, e.file);
  assert_string_equal(o.message, e.message);
}

static void error_without_optional_parts(void **state) {
  (void)state;
  br_error e = {.code = BR_INVALID, .blame = BR_BLAME_USER, .message = "no"};
  br_error o = over_the_wire(&e);
  assert_false(o.retryable || o.has_attempt || o.has_lost);
  assert_int_equal(o.worker, 0);
  assert_string_equal(o.message, "no");
}

static void full_message_is_cut_between_characters(void **state) {
  (void)state;
  br_error e = {.code = BR_INVALID, .blame = BR_BLAME_USER};
  memset(e.message, 'x', sizeof e.message - 1);
  memcpy(e.message + sizeof e.message - 3, "\xE2\x82", 2); /* the start of a euro sign */
  br_error o = over_the_wire(&e);
  assert_int_equal(strlen(o.message), sizeof e.message - 3);
  /* A longer text of another version is cut, not written past the end. */
  Brant__Pb__Error p = BRANT__PB__ERROR__INIT;
  char *longer = br_malloc(5001);
  memset(longer, 'y', 5000);
  longer[5000] = 0;
  p.code = BR_IO, p.message = longer, p.file = longer;
  br_error_from_pb(&p, &o);
  assert_int_equal(strlen(o.message), BR_ERROR_MESSAGE_BYTES - 1);
  assert_int_equal(strlen(o.file), sizeof o.file - 1);
  free(longer);
}

static void strange_codes_stay_errors(void **state) {
  (void)state;
  Brant__Pb__Error p = BRANT__PB__ERROR__INIT;
  br_error o;
  br_error_from_pb(&p, &o);
  assert_int_equal(o.code, BR_INTERNAL); /* code 0 is no success */
  assert_true(o.message[0] != 0);
  p.code = 4000000000u, p.blame = 99;
  br_error_from_pb(&p, &o);
  assert_int_equal(o.code, BR_INTERNAL);
  assert_int_equal(o.blame, BR_BLAME_INTERNAL);
  br_error_from_pb(NULL, &o);
  assert_int_equal(o.code, BR_OK);
}

static void attempts_format_and_compare(void **state) {
  (void)state;
  br_attempt_id a = {0x1f, 2, 3, 0}, b = a;
  char text[64];
  br_attempt_format(&a, text);
  assert_string_equal(text, "q1f.s2.t3.a0");
  assert_true(br_attempt_equal(&a, &b));
  b.attempt = 1;
  assert_false(br_attempt_equal(&a, &b));
  br_attempt_id widest = {UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT16_MAX};
  br_attempt_format(&widest, text);
  assert_string_equal(text, "qffffffffffffffff.s4294967295.t4294967295.a65535");
  Brant__Pb__AttemptId p;
  br_attempt_to_pb(&widest, &p);
  br_attempt_id back = br_attempt_from_pb(&p);
  assert_true(br_attempt_equal(&widest, &back));
  p.attempt = 65536 + 3; /* must not look like attempt 3 */
  assert_int_equal(br_attempt_from_pb(&p).attempt, UINT16_MAX);
  assert_int_equal(br_attempt_from_pb(NULL).query, 0);
}

static void unpack_refuses_the_large_and_the_broken(void **state) {
  (void)state;
  br_error err = {0};
  assert_null(br_pb_unpack(&brant__pb__task__descriptor, "", BR_MESSAGE_MAX_BYTES + 1u, &err));
  assert_int_equal(err.code, BR_CORRUPT);
  br_error_clear(&err);
  assert_null(br_pb_unpack(&brant__pb__task__descriptor, "\xFF\xFF\xFF", 3, &err));
  assert_int_equal(err.code, BR_CORRUPT);
  br_error_clear(&err);
  ProtobufCMessage *m = br_pb_unpack(&brant__pb__task__descriptor, NULL, 0, &err);
  assert_non_null(m);
  assert_string_equal(((Brant__Pb__Task *)m)->sql, "");
  protobuf_c_message_free_unpacked(m, NULL);
}

static void unpack_bounds_what_a_message_grows_to(void **state) {
  (void)state;
  /* 8 M empty sub-messages of two bytes each would take more than a gigabyte. */
  size_t n = BR_MESSAGE_MAX_BYTES;
  unsigned char *bytes = br_malloc(n);
  for (size_t i = 0; i < n; i += 2) bytes[i] = 0x32, bytes[i + 1] = 0; /* OutputTable.entries = 6 */
  br_error err = {0};
  assert_null(br_pb_unpack(&brant__pb__output_table__descriptor, bytes, n, &err));
  assert_int_equal(err.code, BR_CORRUPT);
  free(bytes);
}

static void unknown_fields_are_skipped(void **state) {
  (void)state;
  Brant__Pb__DropStage d = BRANT__PB__DROP_STAGE__INIT;
  d.query = 5, d.stage = 6;
  br_buf b = {0};
  br_pb_pack(&d.base, &b);
  br_buf_add(&b, "\xA2\x06\x03xyz", 6); /* field 100, three bytes */
  br_error err = {0};
  Brant__Pb__DropStage *m = (void *)br_pb_unpack(&brant__pb__drop_stage__descriptor, b.data, b.len, &err);
  assert_non_null(m);
  assert_int_equal(m->query, 5);
  assert_int_equal(m->stage, 6);
  protobuf_c_message_free_unpacked(&m->base, NULL);
  br_buf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(error_keeps_every_field),
      cmocka_unit_test(error_without_optional_parts),
      cmocka_unit_test(full_message_is_cut_between_characters),
      cmocka_unit_test(strange_codes_stay_errors),
      cmocka_unit_test(attempts_format_and_compare),
      cmocka_unit_test(unpack_refuses_the_large_and_the_broken),
      cmocka_unit_test(unpack_bounds_what_a_message_grows_to),
      cmocka_unit_test(unknown_fields_are_skipped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
