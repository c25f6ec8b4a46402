/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * The memory budget, alone and from several threads; what the machine says about memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/budget.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void limit_is_exact(void **state) {
  (void)state;
  br_budget b;
  br_budget_init(&b, "store", 100);
  assert_string_equal(b.name, "store");
  assert_true(br_budget_try(&b, 60));
  assert_true(br_budget_try(&b, 40));
  assert_false(br_budget_try(&b, 1));
  assert_true(br_budget_try(&b, 0));
  assert_int_equal(b.used_bytes, 100);
  br_budget_release(&b, 50);
  assert_false(br_budget_try(&b, 51));
  assert_int_equal(b.used_bytes, 50);          /* a refusal counts nothing */
  assert_false(br_budget_try(&b, UINT64_MAX)); /* no wrap */
  assert_int_equal(b.used_bytes, 50);
  assert_int_equal(b.peak_bytes, 100);
  br_budget_release(&b, 50);
  assert_int_equal(b.used_bytes, 0);
}

static void force_passes_the_limit(void **state) {
  (void)state;
  br_budget b;
  br_budget_init(&b, "x", 10);
  br_budget_force(&b, 25);
  assert_int_equal(b.used_bytes, 25);
  assert_int_equal(b.peak_bytes, 25);
  assert_false(br_budget_try(&b, 0)); /* over it already */
  br_budget_release(&b, 20);
  assert_true(br_budget_try(&b, 5));
  br_budget_init(&b, "none", 0);
  assert_true(br_budget_try(&b, 0));
  assert_false(br_budget_try(&b, 1));
}

#define THREADS 4
#define ROUNDS 20000
static br_budget shared;

static void *take_and_give(void *arg) {
  uint64_t got = 0, bytes = 1 + (uint64_t)(uintptr_t)arg;
  for (int i = 0; i < ROUNDS; i++)
    if (br_budget_try(&shared, bytes)) {
      got++;
      br_budget_release(&shared, bytes);
    }
  return (void *)(uintptr_t)got;
}

static void threads_never_pass_it(void **state) {
  (void)state;
  pthread_t t[THREADS];
  br_budget_init(&shared, "shared", 5);
  for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, take_and_give, (void *)i), 0);
  uintptr_t got = 0;
  for (int i = 0; i < THREADS; i++) {
    void *n = NULL;
    pthread_join(t[i], &n);
    got += (uintptr_t)n;
  }
  assert_true(got > 0);
  assert_int_equal(shared.used_bytes, 0);
  assert_in_range(shared.peak_bytes, 1, 5);
}

static void the_machine(void **state) {
  (void)state;
  uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t all = br_memory_available_bytes();
  assert_in_range(all, 1u << 20, ram);
}

static void own_memory_is_seen(void **state) {
  (void)state;
  uint64_t before = br_process_pss_bytes(getpid()), own_before = br_process_anon_bytes(getpid());
  assert_true(before > 100000);
  size_t n = 32u << 20;
  char *p = malloc(n);
  assert_non_null(p);
  memset(p, 1, n);
  uint64_t with = br_process_pss_bytes(getpid()), own = br_process_anon_bytes(getpid());
  volatile char keep = p[n / 2];
  (void)keep;
  free(p);
  assert_true(with >= before + n - (1u << 20));
  assert_true(own >= own_before + n - (1u << 20));
  assert_int_equal(br_process_pss_bytes(0), 0); /* no such process */
  assert_int_equal(br_process_anon_bytes(0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(limit_is_exact),        cmocka_unit_test(force_passes_the_limit),
      cmocka_unit_test(threads_never_pass_it), cmocka_unit_test(the_machine),
      cmocka_unit_test(own_memory_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
