/* SPDX-License-Identifier: Apache-2.0
 * flight/body: alignment, reuse, the bound of what is kept, many threads. */
/* links: br_flight */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/budget.h"
#include "flight/message.h"

#include <unistd.h>

static void test_sizes(void **state) {
  (void)state;
  static const size_t sizes[] = {1,       63,      64,       65,       65471,
                                 65472,   65473,   100000,   1 << 20,  (4 << 20) - 64,
                                 4 << 20, 5000001, 16 << 20, 17 << 20, 70000000};
  for (int round = 0; round < 2; round++) /* the second one is served from what was kept */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      uint8_t *p = br_flight_body_alloc(sizes[i]), *q = br_flight_body_alloc(sizes[i]);
      assert_non_null(p);
      assert_non_null(q);
      assert_int_equal((uintptr_t)p % 64, 0);
      assert_int_equal((uintptr_t)q % 64, 0);
      memset(p, 1, sizes[i]);
      memset(q, 2, sizes[i]);
      assert_int_equal(p[0] + p[sizes[i] - 1], 2); /* they don't overlap */
      br_flight_body_free(p);
      br_flight_body_free(q);
    }
  br_flight_body_free(NULL);
  br_flight_body_trim();
  br_flight_body_trim();
}

/* What is kept is bounded, and goes with trim: seen in the memory of the process. */
static void test_kept_is_bounded(void **state) {
  (void)state;
  enum { N = 40 };
  const size_t each = 3 << 20;
  void *p[N];
  br_flight_body_trim();
  uint64_t before = br_process_pss_bytes((int)getpid());
  for (int i = 0; i < N; i++) {
    p[i] = br_flight_body_alloc(each);
    memset(p[i], 1, each);
  }
  uint64_t held = br_process_pss_bytes((int)getpid());
  assert_true(held - before > N * each / 10 * 9);
  for (int i = 0; i < N; i++) br_flight_body_free(p[i]);
  uint64_t kept = br_process_pss_bytes((int)getpid());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__) /* sanitizers keep memory themselves */
  assert_true(kept - before < (40u << 20));
  br_flight_body_trim();
  assert_true(br_process_pss_bytes((int)getpid()) - before < (8u << 20));
#else
  (void)kept;
  br_flight_body_trim();
#endif
}

static void *churn(void *arg) {
  uint64_t x = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ull + 1;
  uint8_t *held[8] = {0};
  size_t size[8] = {0};
  for (int i = 0; i < 3000; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    int k = (int)(x % 8);
    if (held[k] && (held[k][0] != (uint8_t)size[k] || held[k][size[k] - 1] != (uint8_t)size[k])) return (void *)1;
    br_flight_body_free(held[k]);
    size[k] = 60000 + x % 5 * 1000000;
    held[k] = br_flight_body_alloc(size[k]);
    held[k][0] = held[k][size[k] - 1] = (uint8_t)size[k];
    if (i % 500 == 0) br_flight_body_trim();
  }
  for (int k = 0; k < 8; k++) br_flight_body_free(held[k]);
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  pthread_t t[4];
  void *bad;
  for (uintptr_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
  for (int i = 0; i < 4; i++) {
    pthread_join(t[i], &bad);
    assert_null(bad);
  }
  br_flight_body_trim();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_kept_is_bounded),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
