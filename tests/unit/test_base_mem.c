/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * Heap helpers at their edges, and the arena: alignment, zeroes, large blocks, order of cleanups. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

static void heap_helpers_never_give_null(void **state) {
  (void)state;
  void *p = br_malloc(0);
  assert_non_null(p);
  p = br_realloc(p, 0);
  assert_non_null(p);
  free(p);
  unsigned char *z = br_calloc(3, 5);
  for (int i = 0; i < 15; i++) assert_int_equal(z[i], 0);
  free(z);
  p = br_calloc(0, 8);
  assert_non_null(p);
  free(p);
}

static void strings(void **state) {
  (void)state;
  char *s = br_strdup("");
  assert_string_equal(s, "");
  free(s);
  s = br_strndup("abcdef", 3);
  assert_string_equal(s, "abc");
  free(s);
  s = br_strndup("ab", 100); /* stops at the end of the text */
  assert_string_equal(s, "ab");
  free(s);
  s = br_asprintf("%s-%05d", "x", 42);
  assert_string_equal(s, "x-00042");
  free(s);
}

static void grow_keeps_what_was_there(void **state) {
  (void)state;
  uint64_t *items = NULL;
  size_t capacity = 0, grown = 0;
  for (size_t n = 0; n < 1000; n++) {
    size_t before = capacity;
    br_grow((void **)&items, &capacity, n, sizeof *items);
    assert_true(capacity > n);
    if (capacity != before) grown++;
    items[n] = n * n;
  }
  for (size_t n = 0; n < 1000; n++) assert_int_equal(items[n], n * n);
  assert_in_range(grown, 1, 10); /* doubling: 8, 16, ..., 1024 */
  free(items);
}

static void arena_gives_aligned_zeroes(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  unsigned char *parts[300];
  for (size_t i = 0; i < 300; i++) {
    parts[i] = br_arena_alloc(a, i); /* also of no bytes */
    assert_non_null(parts[i]);
    assert_int_equal((uintptr_t)parts[i] % 16, 0);
    for (size_t j = 0; j < i; j++) assert_int_equal(parts[i][j], 0);
    memset(parts[i], (int)(i & 0xff), i);
  }
  for (size_t i = 0; i < 300; i++) /* nobody wrote into another's bytes */
    for (size_t j = 0; j < i; j++) assert_int_equal(parts[i][j], i & 0xff);
  br_arena_free(a);
}

static void arena_takes_large_pieces(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  assert_int_equal(br_arena_bytes(a), 0);
  char *small = br_arena_strdup(a, "before");
  char *large = br_arena_alloc(a, 5u << 20);
  memset(large, 1, 5u << 20);
  char *after = br_arena_strdup(a, "after");
  assert_string_equal(small, "before");
  assert_string_equal(after, "after");
  size_t bytes = br_arena_bytes(a);
  assert_in_range(bytes, 5u << 20, 6u << 20);
  for (int i = 0; i < 100; i++) br_arena_alloc(a, 16);
  assert_in_range(br_arena_bytes(a), bytes, bytes + (2u << 20));
  br_arena_free(a);
}

static void arena_strings(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  assert_string_equal(br_arena_strdup(a, ""), "");
  assert_string_equal(br_arena_strndup(a, "abcdef", 2), "ab");
  assert_string_equal(br_arena_strndup(a, "ab", 9), "ab");
  assert_string_equal(br_arena_printf(a, "%d of %s", 3, "x"), "3 of x");
  char *long_one = br_arena_printf(a, "%09999d", 7);
  assert_int_equal(strlen(long_one), 9999);
  assert_string_equal(long_one + 9990, "000000007");
  br_arena_free(a);
}

static char order[8];
static void note(void *arg) { strcat(order, arg); }
static char first[] = "1", second[] = "2", third[] = "3";

static void cleanups_run_last_first(void **state) {
  (void)state;
  order[0] = 0;
  br_arena *a = br_arena_new();
  br_arena_cleanup(a, note, first);
  br_arena_cleanup(a, note, second);
  br_arena_alloc(a, 100000);
  br_arena_cleanup(a, note, third);
  assert_string_equal(order, "");
  br_arena_free(a);
  assert_string_equal(order, "321");
  br_arena_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(heap_helpers_never_give_null), cmocka_unit_test(strings),
      cmocka_unit_test(grow_keeps_what_was_there),    cmocka_unit_test(arena_gives_aligned_zeroes),
      cmocka_unit_test(arena_takes_large_pieces),     cmocka_unit_test(arena_strings),
      cmocka_unit_test(cleanups_run_last_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
