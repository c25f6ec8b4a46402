/* SPDX-License-Identifier: Apache-2.0
 * links: br_base
 * Both hash maps against a plain array: put, replace, remove, iterate, remove while iterating, tombstones that don't pile up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/map.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 2000u

static uint64_t next_random(uint64_t *s) { /* xorshift: the same every run */
  *s ^= *s << 13;
  *s ^= *s >> 7;
  *s ^= *s << 17;
  return *s;
}

static char values[KEYS];

static void empty_maps(void **state) {
  (void)state;
  br_map *m = br_map_new();
  br_smap *sm = br_smap_new();
  size_t it = 0, sit = 0;
  assert_null(br_map_get(m, 0));
  assert_null(br_map_remove(m, 0));
  assert_false(br_map_next(m, &it, NULL, NULL));
  assert_int_equal(br_map_count(m), 0);
  assert_null(br_smap_get(sm, ""));
  assert_null(br_smap_remove(sm, "x"));
  assert_false(br_smap_next(sm, &sit, NULL, NULL));
  br_map_free(m);
  br_smap_free(sm);
  br_map_free(NULL);
  br_smap_free(NULL);
}

static void put_replace_remove(void **state) {
  (void)state;
  br_map *m = br_map_new();
  const uint64_t keys[] = {0, 1, UINT64_MAX, 1ull << 63, 0xffffffffu};
  for (size_t i = 0; i < 5; i++) assert_null(br_map_put(m, keys[i], &values[i]));
  assert_int_equal(br_map_count(m), 5);
  assert_ptr_equal(br_map_put(m, UINT64_MAX, &values[9]), &values[2]);
  assert_int_equal(br_map_count(m), 5);
  assert_ptr_equal(br_map_get(m, UINT64_MAX), &values[9]);
  assert_ptr_equal(br_map_remove(m, 0), &values[0]);
  assert_null(br_map_remove(m, 0));
  assert_null(br_map_get(m, 0));
  assert_ptr_equal(br_map_get(m, 1), &values[1]);
  assert_null(br_map_put(m, 0, &values[7])); /* a removed key may come back */
  assert_ptr_equal(br_map_get(m, 0), &values[7]);
  br_map_free(m);
}

/* Random operations; after each thousand everything is compared. Keys repeat, so that tombstones are met and rehashed. */
static void same_as_an_array(void **state) {
  (void)state;
  br_map *m = br_map_new();
  br_smap *sm = br_smap_new();
  void *want[KEYS] = {0};
  uint64_t seed = 88172645463325252ull;
  size_t count = 0;
  char name[32];
  for (int op = 0; op < 60000; op++) {
    uint32_t k = (uint32_t)(next_random(&seed) % KEYS);
    uint64_t key = (uint64_t)k << 32; /* equal low bits: the hash has to mix */
    snprintf(name, sizeof name, "key %u", k);
    if (next_random(&seed) % 3 != 0) {
      void *v = &values[next_random(&seed) % KEYS];
      assert_ptr_equal(br_map_put(m, key, v), want[k]);
      assert_ptr_equal(br_smap_put(sm, name, v), want[k]);
      count += want[k] == NULL;
      want[k] = v;
    } else {
      assert_ptr_equal(br_map_remove(m, key), want[k]);
      assert_ptr_equal(br_smap_remove(sm, name), want[k]);
      count -= want[k] != NULL;
      want[k] = NULL;
    }
    assert_int_equal(br_map_count(m), count);
    assert_int_equal(br_smap_count(sm), count);
    if (op % 1000 != 0) continue;
    for (k = 0; k < KEYS; k++) {
      snprintf(name, sizeof name, "key %u", k);
      assert_ptr_equal(br_map_get(m, (uint64_t)k << 32), want[k]);
      assert_ptr_equal(br_smap_get(sm, name), want[k]);
    }
  }
  br_map_free(m);
  br_smap_free(sm);
}

/* Each entry comes once, whichever are removed on the way; what was kept is still found. */
static void removal_while_iterating(void **state) {
  (void)state;
  br_map *m = br_map_new();
  br_smap *sm = br_smap_new();
  char name[32];
  for (uint64_t k = 0; k < KEYS; k++) {
    snprintf(name, sizeof name, "%llu", (unsigned long long)k);
    br_map_put(m, k, &values[k]);
    br_smap_put(sm, name, &values[k]);
  }
  unsigned char seen[KEYS] = {0}, sseen[KEYS] = {0};
  uint64_t key = 0;
  const char *skey = NULL;
  void *v = NULL;
  for (size_t it = 0; br_map_next(m, &it, &key, &v);) {
    assert_ptr_equal(v, &values[key]);
    assert_int_equal(seen[key]++, 0);
    if (key % 3 != 0) assert_ptr_equal(br_map_remove(m, key), v);
  }
  for (size_t it = 0; br_smap_next(sm, &it, &skey, &v);) {
    uint64_t k = strtoull(skey, NULL, 10);
    assert_ptr_equal(v, &values[k]);
    assert_int_equal(sseen[k]++, 0);
    if (k % 3 != 0) {
      snprintf(name, sizeof name, "%s", skey); /* the map's own text goes with its entry */
      assert_ptr_equal(br_smap_remove(sm, name), v);
    }
  }
  for (uint64_t k = 0; k < KEYS; k++) {
    snprintf(name, sizeof name, "%llu", (unsigned long long)k);
    assert_int_equal(seen[k] + sseen[k], 2);
    assert_ptr_equal(br_map_get(m, k), k % 3 == 0 ? &values[k] : NULL);
    assert_ptr_equal(br_smap_get(sm, name), k % 3 == 0 ? &values[k] : NULL);
  }
  assert_int_equal(br_map_count(m), (KEYS + 2) / 3);
  br_map_free(m);
  br_smap_free(sm);
}

static void strings_are_copied(void **state) {
  (void)state;
  br_smap *m = br_smap_new();
  char key[8] = "one";
  assert_null(br_smap_put(m, key, &values[1]));
  strcpy(key, "two");
  assert_null(br_smap_get(m, "two"));
  assert_ptr_equal(br_smap_get(m, "one"), &values[1]);
  assert_null(br_smap_put(m, "", &values[0]));
  assert_ptr_equal(br_smap_get(m, ""), &values[0]);
  assert_null(br_smap_get(m, "ONE")); /* bytes, not letters */
  br_smap_free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(empty_maps),         cmocka_unit_test(put_replace_remove),
      cmocka_unit_test(same_as_an_array),   cmocka_unit_test(removal_while_iterating),
      cmocka_unit_test(strings_are_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
