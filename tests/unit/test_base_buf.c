/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * The growing buffer: bytes, text, formats across its bounds; and SQL names and literals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include <stdlib.h>
#include <string.h>

static void empty_is_text_too(void **state) {
  (void)state;
  br_buf b = {0};
  assert_string_equal(br_buf_cstr(&b), "");
  assert_null(b.data);
  br_buf_add(&b, NULL, 0);
  assert_null(b.data);
  char *s = br_buf_take(&b);
  assert_string_equal(s, "");
  free(s);
  br_buf_free(&b);
}

static void bytes_and_text(void **state) {
  (void)state;
  br_buf b = {0};
  br_buf_str(&b, "ab");
  br_buf_char(&b, 'c');
  br_buf_add(&b, "\0d", 2);
  assert_int_equal(b.len, 5);
  assert_memory_equal(b.data, "abc\0d", 5);
  assert_int_equal(br_buf_cstr(&b)[5], 0);
  br_buf_clear(&b);
  size_t cap = b.cap;
  assert_string_equal(br_buf_cstr(&b), "");
  br_buf_str(&b, "again");
  assert_int_equal(b.cap, cap);
  char *s = br_buf_take(&b);
  assert_string_equal(s, "again");
  free(s);
  assert_int_equal(b.len, 0);
  assert_null(b.data);
}

static void grows_over_many_sizes(void **state) {
  (void)state;
  br_buf b = {0};
  for (int i = 0; i < 100000; i++) br_buf_char(&b, (char)('a' + i % 26));
  assert_int_equal(b.len, 100000);
  for (int i = 0; i < 100000; i++) assert_int_equal(b.data[i], 'a' + i % 26);
  br_buf_reserve(&b, 1u << 20);
  assert_true(b.cap > b.len + (1u << 20)); /* one more, for the NUL */
  br_buf_free(&b);
  br_buf_free(&b); /* again is fine */
}

/* Lengths around the 128 bytes that printf asks for first, and around what is left. */
static void formats_of_every_length(void **state) {
  (void)state;
  for (int lead = 0; lead < 130; lead += 43)
    for (int n = 0; n < 600; n++) {
      br_buf b = {0};
      for (int i = 0; i < lead; i++) br_buf_char(&b, '.');
      br_buf_printf(&b, "<%0*d>", n, 0);
      size_t digits = n == 0 ? 1 : (size_t)n;
      assert_int_equal(b.len, (size_t)lead + digits + 2);
      assert_int_equal(b.data[b.len - 1], '>');
      assert_int_equal(b.data[b.len], 0);
      br_buf_free(&b);
    }
}

static const char *ident(br_buf *b, const char *name) {
  br_buf_clear(b);
  br_buf_sql_ident(b, name);
  return br_buf_cstr(b);
}

static const char *literal(br_buf *b, const char *s, size_t n) {
  br_buf_clear(b);
  br_buf_sql_literal(b, s, n);
  return br_buf_cstr(b);
}

static void sql_names(void **state) {
  (void)state;
  br_buf b = {0};
  assert_string_equal(ident(&b, "a"), "\"a\"");
  assert_string_equal(ident(&b, ""), "\"\"");
  assert_string_equal(ident(&b, "we\"ird\""), "\"we\"\"ird\"\"\"");
  assert_string_equal(ident(&b, "it's; DROP"), "\"it's; DROP\"");
  assert_string_equal(ident(&b, "n\xc3\xa4me\n"), "\"n\xc3\xa4me\n\"");
  br_buf_free(&b);
}

static void sql_literals(void **state) {
  (void)state;
  br_buf b = {0};
  assert_string_equal(literal(&b, "a", 1), "'a'");
  assert_string_equal(literal(&b, NULL, 0), "''");
  assert_string_equal(literal(&b, "it's", 4), "'it''s'");
  assert_string_equal(literal(&b, "''", 2), "''''''");
  assert_string_equal(literal(&b, "a\\n\"b\"", 6), "'a\\n\"b\"'"); /* only the quote is special */
  assert_string_equal(literal(&b, "abc", 2), "'ab'");
  assert_string_equal(literal(&b, "a\0b", 3), "('a' || chr(0) || 'b')");
  assert_string_equal(literal(&b, "\0", 1), "('' || chr(0) || '')");
  assert_string_equal(literal(&b, "\0'", 2), "('' || chr(0) || '''')");
  br_buf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(empty_is_text_too),
      cmocka_unit_test(bytes_and_text),
      cmocka_unit_test(grows_over_many_sizes),
      cmocka_unit_test(formats_of_every_length),
      cmocka_unit_test(sql_names),
      cmocka_unit_test(sql_literals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
