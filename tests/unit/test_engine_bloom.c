/* SPDX-License-Identifier: Apache-2.0
 * links: br_engine
 * Bloom filters of keys: what was added is always found, others seldom, whatever the hashes are like; and the two SQL functions over them,
 * with NULLs, no rows, several threads, and what is no filter.
 */
#include "engine_fixture.h"

#include "functions/bloom.h"

/* splitmix64 */
static uint64_t spread(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

/* Of 100,000 keys that were not added: how many are found in a filter of so many bits a key. All that were are. */
static double found_in(uint32_t keys, uint32_t bits, uint64_t step, bool random) {
  uint32_t blocks = (uint32_t)((uint64_t)keys * bits / 256 + 1), found = 0;
  uint32_t *words = br_calloc((size_t)blocks * BR_BLOOM_WORDS, sizeof *words);
  for (uint64_t i = 0; i < keys; i++) br_bloom_add(words, blocks, random ? spread(i) : i * step);
  for (uint64_t i = 0; i < keys; i++) assert_true(br_bloom_has(words, blocks, random ? spread(i) : i * step));
  for (uint64_t i = keys; i < keys + 100000u; i++) found += br_bloom_has(words, blocks, random ? spread(i) : i * step);
  free(words);
  return found / 100000.0;
}

static void test_false_positives(void **state) {
  (void)state;
  static const uint32_t keys[] = {1, 2, 100, 5000, 300000};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    assert_true(found_in(keys[i], 12, 0, true) < 0.012);
    assert_true(found_in(keys[i], 8, 0, true) < 0.05);
    assert_true(found_in(keys[i], 12, 1, false) < 0.012); /* 0, 1, 2, … as they are */
    assert_true(found_in(keys[i], 12, 1ull << 32, false) < 0.012);
    assert_true(found_in(keys[i], 12, 1ull << 40, false) < 0.012);
  }
  assert_true(found_in(5000, 1, 0, true) > 0.5); /* much too small: it fills up, and loses nothing */
}

static void test_none_and_any_address(void **state) {
  (void)state;
  uint32_t words[2 * BR_BLOOM_WORDS] = {0}, other[2 * BR_BLOOM_WORDS] = {0};
  char odd[sizeof words + 1];
  assert_false(br_bloom_has(NULL, 0, 7));
  assert_false(br_bloom_has(words, 2, 7));
  br_bloom_add(words, 2, 7);
  br_bloom_add(other, 2, ~0ull);
  br_bloom_or(words, other, 2);
  memcpy(odd + 1, words, sizeof words);
  assert_true(br_bloom_has(odd + 1, 2, 7) && br_bloom_has(odd + 1, 2, ~0ull));
}

#define SEED "7640891576956012809::UBIGINT"

static void test_functions(void **state) {
  fixture *f = *state;
  br_session *s = f->session;
  static const char *const none_lost[] = {
      "k::INTEGER", "k::VARCHAR", "k::DECIMAL(18,3)",     "k::DOUBLE", "DATE '2000-01-01' + k::INTEGER",
      "k, k % 7",   "k::HUGEINT", "{'a': k, 'b': [k, 1]}"};
  for (size_t i = 0; i < sizeof none_lost / sizeof *none_lost; i++) {
    char *sql = br_asprintf(
        "WITH b AS (SELECT keys_bloom(hash(%s, " SEED
        "), 1000) AS f FROM range(20000) t(k) WHERE k %% 2 = 0) "
        "SELECT count(*) FILTER (k %% 2 = 0) || ' ' || (count(*) FILTER (k %% 2 = 1) < 200) FROM range(20000) t(k) "
        "WHERE keys_maybe((SELECT keys_hold(f) FROM b), hash(%s, " SEED "))",
        none_lost[i], none_lost[i]);
    expect_cell(s, sql, "10000 true");
    free(sql);
  }
  /* many threads, whose filters are put together */
  expect_cell(s,
              "WITH b AS MATERIALIZED (SELECT keys_bloom(hash(range), 60000) AS f FROM range(1000000)) "
              "SELECT count(*) FROM range(1000000) t(k) WHERE NOT keys_maybe((SELECT keys_hold(f) FROM b), hash(k))",
              "0");
  expect_cell(s, "SELECT octet_length(keys_bloom(hash(range), 60000)) FROM range(1000)", "1920000");
  /* groups */
  expect_cell(
      s,
      "SELECT count(DISTINCT f) || ' ' || count(*) FROM (SELECT keys_bloom(hash(range), 4) AS f FROM range(3000) "
      "GROUP BY range // 3)",
      "1000 1000");
}

static void test_edges(void **state) {
  fixture *f = *state;
  br_session *s = f->session;
  expect_cell(s, "SELECT octet_length(keys_bloom(hash(range), 5)) FROM range(0)", "0");
  expect_cell(s, "SELECT octet_length(keys_bloom(NULL, 5)) FROM range(10)", "0");
  expect_cell(s, "SELECT keys_maybe(keys_hold(''::BLOB), 1)", "false");
  expect_cell(s, "SELECT keys_maybe(NULL, 1)", "true"); /* nothing is known */
  expect_cell(s, "SELECT keys_maybe(keys_hold(''::BLOB), NULL)", "true");
  expect_cell(s, "SELECT keys_maybe(keys_hold(keys_bloom(hash(range), 1)), hash(3)) FROM range(3, 4)", "true");
  static const char *const wrong[] = {"SELECT keys_bloom(hash(range), 0) FROM range(5)",
                                      "SELECT keys_bloom(hash(range), 8388609) FROM range(5)",
                                      "SELECT keys_bloom(hash(range), range + 1) FROM range(5)",
                                      "SELECT keys_hold('abc'::BLOB)", "SELECT keys_maybe(1, 1)"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    br_table t = {0};
    br_error err = {0};
    assert_int_not_equal(br_session_table(s, wrong[i], &t, &err), BR_OK);
    assert_non_null(strstr(err.message, "keys_"));
    br_table_free(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_false_positives),
                                     cmocka_unit_test(test_none_and_any_address), cmocka_unit_test(test_functions),
                                     cmocka_unit_test(test_edges)};
  return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
