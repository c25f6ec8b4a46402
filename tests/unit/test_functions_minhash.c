/* SPDX-License-Identifier: Apache-2.0
 * links: br_functions
 * MinHash: the documented definition, computed once more the slow way; the estimate; texts made comparable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "functions/minhash.h"
#include "functions/text.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t splitmix64(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static void sign(const char *text, size_t n, uint32_t hashes, uint32_t ngram, uint64_t seed, uint32_t *out) {
  br_minhash_family f;
  br_minhash_scratch s = {0};
  br_minhash_family_init(&f, hashes, seed);
  br_minhash(&f, ngram, text, n, &s, out);
  br_minhash_family_free(&f);
  br_minhash_scratch_free(&s);
}

/* The definition over shingles that the test names itself. */
static void expect(const char *text, uint32_t hashes, uint32_t ngram, uint64_t seed, const char *const *shingles,
                   size_t n) {
  uint32_t *got = br_malloc(hashes * sizeof *got);
  sign(text, strlen(text), hashes, ngram, seed, got);
  uint64_t state = seed;
  for (uint32_t i = 0; i < hashes; i++) {
    uint64_t a = splitmix64(&state), b = splitmix64(&state);
    uint32_t least = UINT32_MAX;
    for (size_t k = 0; k < n; k++) {
      uint64_t x = XXH3_64bits(shingles[k], strlen(shingles[k])) >> 32;
      uint32_t h = (uint32_t)((a * x + b) >> 32);
      if (h < least) least = h;
    }
    assert_int_equal(got[i], least);
  }
  free(got);
}
#define EXPECT(text, hashes, ngram, seed, ...)                          \
  expect(text, hashes, ngram, seed, (const char *const[]){__VA_ARGS__}, \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_definition(void **state) {
  (void)state;
  EXPECT("a b c d", 64, 2, 1, "a b", "b c", "c d");
  EXPECT("  a\tb \n c d  ", 7, 3, UINT64_MAX, "a b c", "b c d");
  EXPECT("one", 1, 1, 0, "one");
  EXPECT("two words", 128, 5, 42, "two words");
  EXPECT("two words", 128, 2, 42, "two words");
  EXPECT("", 16, 5, 42, "");
  EXPECT(" \n\t ", 16, 1, 42, "");
  EXPECT("gr\xc3\xbc\xc3\x9f gott", 33, 1, 9, "gr\xc3\xbc\xc3\x9f", "gott");
}

/* More shingles than are hashed at once, and repeated words: a set, whatever the order. */
static void test_many_shingles(void **state) {
  (void)state;
  enum { WORDS = 1000, HASHES = 65 };
  br_buf forward = {0}, backward = {0};
  uint32_t a[HASHES], b[HASHES];
  for (int i = 0; i < WORDS; i++) br_buf_printf(&forward, "w%d ", i);
  for (int i = WORDS; i-- > 0;) br_buf_printf(&backward, "w%d w%d ", i, i);
  sign(forward.data, forward.len, HASHES, 1, 3, a);
  sign(backward.data, backward.len, HASHES, 1, 3, b);
  assert_memory_equal(a, b, sizeof a);
  sign(backward.data, backward.len, HASHES, 1, 4, b);
  assert_memory_not_equal(a, b, sizeof a);
  br_buf_free(&forward);
  br_buf_free(&backward);
}

/* Sets with a known Jaccard similarity: the estimate lies within five standard deviations. */
static void test_estimate(void **state) {
  (void)state;
  enum { HASHES = 1024, WORDS = 400 };
  static uint32_t a[HASHES], b[HASHES];
  for (int shared = 0; shared <= WORDS; shared += 50) {
    br_buf left = {0}, right = {0};
    for (int i = 0; i < WORDS; i++) {
      br_buf_printf(&left, "w%d ", i);
      br_buf_printf(&right, "%s%d ", i < shared ? "w" : "v", i);
    }
    sign(left.data, left.len, HASHES, 1, 1, a);
    sign(right.data, right.len, HASHES, 1, 1, b);
    double truth = (double)shared / (2 * WORDS - shared), got = br_minhash_similarity(a, b, HASHES);
    double sigma = sqrt(truth * (1 - truth) / HASHES);
    assert_true(fabs(got - truth) <= 5 * sigma + 1e-9);
    br_buf_free(&left);
    br_buf_free(&right);
  }
}

static void test_bands(void **state) {
  (void)state;
  uint32_t s[200], t[200];
  uint64_t a[100], b[100];
  for (uint32_t i = 0; i < 200; i++) s[i] = t[i] = 7;
  br_minhash_bands(s, 100, 2, a);
  for (int i = 1; i < 100; i++) assert_true(a[i] != a[i - 1]); /* the same values, another band */
  t[5] = 8;
  br_minhash_bands(t, 100, 2, b);
  for (int i = 0; i < 100; i++) assert_int_equal(a[i] == b[i], i != 2);
  br_minhash_bands(s, 1, 200, a); /* longer than a piece: every value counts */
  for (uint32_t i = 0; i < 200; i++) {
    t[5] = 7;
    t[i] = 9;
    br_minhash_bands(t, 1, 200, b);
    assert_true(a[0] != b[0]);
    t[i] = 7;
  }
}

static void strip(const char *text, bool punctuation, bool spaces, const char *want) {
  size_t n = strlen(text);
  char *out = br_malloc(n + 1);
  size_t got = br_text_strip(text, n, punctuation, spaces, out);
  out[got] = 0;
  assert_string_equal(out, want);
  free(out);
}

static void test_strip(void **state) {
  (void)state;
  strip("", true, true, "");
  strip("  Hello,\t\n world!  ", true, true, "Hello world");
  strip("  Hello,\t world!  ", true, false, "  Hello\t world  ");
  strip("  a, b  ", false, true, "a, b");
  strip("a - b", true, true, "a b");
  strip("!?.", true, true, "");
  strip("\xc2\xa0\xe2\x80\x9cGr\xc3\xbc\xc3\x9f\xe2\x80\x9d\xe3\x80\x80Gott\xe2\x80\xa6", true, true,
        "Gr\xc3\xbc\xc3\x9f Gott");
  strip("\xff\xc3 \xe2\x80", true, true, "\xff\xc3 \xe2\x80"); /* no UTF-8: stays */
  strip("\xf0\x9f\x98\x80 \xf0\x9f", true, true, "\xf0\x9f\x98\x80 \xf0\x9f");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_definition), cmocka_unit_test(test_many_shingles), cmocka_unit_test(test_estimate),
      cmocka_unit_test(test_bands),      cmocka_unit_test(test_strip),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
