/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * base/blocks: contents and alignment, what is kept and for how much, many threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/blocks.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEPS false
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define KEEPS false
#endif
#ifndef KEEPS
#define KEEPS true /* not under the address sanitizer */
#endif

static int start_empty(void **state) {
  (void)state;
  br_blocks_keep(0);
  return br_blocks_kept_bytes() == 0 ? 0 : -1;
}

/* Grown step by step over all kinds of sizes, contents stay and blocks don't overlap. */
static void contents_stay(void **state) {
  (void)state;
  br_blocks_keep(64u << 20);
  for (int round = 0; round < 2; round++) {
    unsigned char *p = NULL, *q = NULL;
    size_t old = 0;
    for (size_t n = 1; n < (9u << 20); n = n * 3 / 2 + 1) {
      p = br_block_grow(p, old, n);
      q = br_block_grow(q, old, n);
      assert_int_equal((uintptr_t)p % 16, 0);
      assert_int_equal((uintptr_t)q % 16, 0);
      for (size_t i = 0; i < old; i += 997)
        assert_true(p[i] == (unsigned char)(i * 31) && q[i] == (unsigned char)(i * 17));
      for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(i * 31);
      for (size_t i = 0; i < n; i++) q[i] = (unsigned char)(i * 17);
      old = n;
    }
    assert_ptr_equal(br_block_grow(p, old, old - 1), p); /* it has room */
    br_block_free(p);
    br_block_free(q);
  }
  br_block_free(NULL);
}

static void freed_ones_come_again(void **state) {
  (void)state;
  br_blocks_keep(1u << 20);
  void *p = br_block_grow(NULL, 0, 10000);
  br_block_free(p);
  assert_int_equal(br_blocks_kept_bytes(), KEEPS ? 10240 : 0); /* the next of eight sizes between 8 and 16 KiB */
  void *q = br_block_grow(NULL, 0, 9500);
  assert_true(!KEEPS || q == p);
  assert_int_equal(br_blocks_kept_bytes(), 0);
  void *small = br_block_grow(NULL, 0, BR_BLOCK_LEAST_BYTES - 1);
  br_block_free(small);
  assert_int_equal(br_blocks_kept_bytes(), 0);
  br_block_free(q);
  br_blocks_trim();
  assert_int_equal(br_blocks_kept_bytes(), 0);
}

/* In use and kept are never above the bound, unless what is in use is by itself; then nothing is kept. */
static void kept_is_bounded(void **state) {
  (void)state;
  enum { N = 16, EACH = 64 << 10 };
  void *p[N];
  br_blocks_keep(N / 2 * EACH);
  for (int i = 0; i < N; i++) p[i] = br_block_grow(NULL, 0, EACH);
  for (int i = 0; i < N; i++) {
    br_block_free(p[i]);
    uint64_t used = (uint64_t)(N - 1 - i) * EACH, kept = br_blocks_kept_bytes();
    assert_true(kept == 0 || used + kept <= N / 2 * EACH);
  }
  assert_int_equal(br_blocks_kept_bytes(), KEEPS ? N / 2 * EACH : 0);
  void *other = br_block_grow(NULL, 0, 3 * EACH); /* none fits: it takes the place of what is kept */
  assert_true(br_blocks_kept_bytes() + 3 * EACH <= N / 2 * EACH);
  assert_int_equal(br_blocks_kept_bytes(), KEEPS ? (N / 2 - 3) * EACH : 0);
  br_blocks_keep(4 * EACH);
  assert_true(br_blocks_kept_bytes() <= EACH);
  br_block_free(other);
  br_blocks_keep(0);
  assert_int_equal(br_blocks_kept_bytes(), 0);
}

static void *work(void *seed) {
  uint64_t x = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
  unsigned char *p[32] = {0};
  size_t bytes[32] = {0};
  uintptr_t wrong = 0;
  for (int i = 0; i < 4000; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    size_t at = x % 32, n = bytes[at] + 1 + x / 32 % 30000;
    if (n > 400000) {
      br_block_free(p[at]);
      p[at] = NULL, bytes[at] = 0;
      continue;
    }
    for (size_t k = 0; k < bytes[at]; k += 512) wrong += p[at][k] != (unsigned char)at;
    p[at] = br_block_grow(p[at], bytes[at], n);
    memset(p[at] + bytes[at], (int)at, n - bytes[at]);
    bytes[at] = n;
  }
  for (int i = 0; i < 32; i++) br_block_free(p[i]);
  return (void *)wrong;
}

static void many_threads(void **state) {
  (void)state;
  pthread_t threads[4];
  br_blocks_keep(2u << 20);
  for (uintptr_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
  for (int i = 0; i < 4; i++) {
    void *wrong;
    assert_int_equal(pthread_join(threads[i], &wrong), 0);
    assert_null(wrong);
  }
  assert_true(br_blocks_kept_bytes() <= 2u << 20);
  assert_true(!KEEPS || br_blocks_kept_bytes() > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(contents_stay, start_empty, start_empty),
      cmocka_unit_test_setup_teardown(freed_ones_come_again, start_empty, start_empty),
      cmocka_unit_test_setup_teardown(kept_is_bounded, start_empty, start_empty),
      cmocka_unit_test_setup_teardown(many_threads, start_empty, start_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
