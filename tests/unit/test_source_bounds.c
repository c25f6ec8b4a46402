/* SPDX-License-Identifier: Apache-2.0
 * links: br_source
 * Conditions over bounds as DuckDB prints them: what is certainly not between them, and what can't be told. */
#include "engine_fixture.h"
#include "source/internal.h"

/* May a value between the bounds pass? low, high NULL: no statistics. */
static bool may(const char *kind, int scale, const char *test, const char *stored, const char *low, const char *high) {
  br_arena *mem = br_arena_new();
  size_t n = 0;
  char *text = br_asprintf("[{\"column\":\"c\",\"kind\":\"%s\",\"scale\":%d,\"test\":%s}]", kind, scale, test);
  br_pruned_column *c = br_prune_parse(mem, text, &n);
  group_bounds g = {.least = (char *)(uintptr_t)low, .greatest = (char *)(uintptr_t)high};
  assert_int_equal(n, 1);
  assert_string_equal(c->name, "c");
  bool possible = br_bounds_possible(c, stored, &g);
  br_arena_free(mem);
  free(text);
  return possible;
}

static void operators(void **state) {
  (void)state;
  static const struct {
    const char *test;
    bool at_4, at_5, at_9, at_10; /* the bounds are 5 and 9 */
  } cases[] = {{"[\"<\",\"%d\"]", false, false, true, true},
               {"[\"<=\",\"%d\"]", false, true, true, true},
               {"[\">\",\"%d\"]", true, true, false, false},
               {"[\">=\",\"%d\"]", true, true, true, false},
               {"[\"=\",\"%d\"]", false, true, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int at[] = {4, 5, 9, 10};
    const bool want[] = {cases[i].at_4, cases[i].at_5, cases[i].at_9, cases[i].at_10};
    for (size_t k = 0; k < 4; k++) {
      char test[32];
      snprintf(test, sizeof test, cases[i].test, at[k]);
      assert_int_equal(may("integer", 0, test, "INT32", "5", "9"), want[k]);
    }
  }
  assert_false(may("integer", 0, "[\"and\",[\">\",\"3\"],[\"<\",\"5\"]]", "INT64", "5", "9"));
  assert_true(may("integer", 0, "[\"and\",[\">\",\"3\"],[\"<\",\"6\"]]", "INT64", "5", "9"));
  assert_false(may("integer", 0, "[\"or\",[\"=\",\"1\"],[\"=\",\"12\"]]", "INT64", "5", "9"));
  assert_true(may("integer", 0, "[\"or\",[\"=\",\"1\"],[\"and\",[\"=\",\"6\"],[\"<\",\"8\"]]]", "INT64", "5", "9"));
}

static void values(void **state) {
  (void)state;
  assert_false(may("integer", 0, "[\">\",\"18446744073709551614\"]", "INT64", "0", "18446744073709551614"));
  assert_true(may("integer", 0, "[\">\",\"18446744073709551614\"]", "INT64", "0", "18446744073709551615"));
  assert_false(may("integer", 0, "[\"<\",\"-9223372036854775808\"]", "INT64", "-9223372036854775808", "0"));
  assert_false(may("date", 0, "[\">\",\"0\"]", "INT32", "1969-12-31", "1970-01-01"));
  assert_false(may("date", 0, "[\"<\",\"11016\"]", "INT32", "2000-02-29", "2000-03-01")); /* of that day */
  assert_true(may("date", 0, "[\"<\",\"11017\"]", "INT32", "2000-02-29", "2000-03-01"));
  assert_false(may("date", 0, "[\">\",\"-25567\"]", "INT32", "0001-01-01", "1900-01-01"));
  assert_false(may("timestamp", 0, "[\">\",\"1500000\"]", "INT64", "1970-01-01 00:00:00", "1970-01-01 00:00:01.5"));
  assert_true(may("timestamp", 0, "[\">\",\"1499999\"]", "INT64", "1970-01-01 00:00:00", "1970-01-01 00:00:01.5"));
  assert_false(may("timestamp", 0, "[\"<\",\"-1\"]", "INT64", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00"));
  assert_false(may("decimal", 2, "[\">\",\"-150\"]", "INT32", "-9.99", "-1.50"));
  assert_true(may("decimal", 2, "[\">\",\"-151\"]", "INT32", "-9.99", "-1.5"));
  assert_false(may("decimal", 3, "[\"<\",\"7000\"]", "FIXED_LEN_BYTE_ARRAY", "7", "8.25"));
  assert_false(may("text", 0, "[\"<\",\"abc\"]", BR_STORED_TEXT, "abc", "abd"));
  assert_false(may("text", 0, "[\">\",\"z\"]", BR_STORED_TEXT, "", "z"));
  assert_true(may("text", 0, "[\">\",\"\\u00fc\"]", BR_STORED_TEXT, "a", "\xc3\xbd")); /* bytes, unsigned */
  assert_false(may("text", 0, "[\">\",\"\\u00fc\"]", BR_STORED_TEXT, "a", "z"));
}

/* Each of them would be ruled out if the text or the column were taken for what it isn't. */
static void what_is_not_told(void **state) {
  (void)state;
  const char *none = "[\"<\",\"-1000000000000000\"]";
  assert_true(may("integer", 0, none, "INT64", NULL, NULL));
  assert_true(may("integer", 0, none, "INT64", "1", NULL));
  assert_true(may("integer", 0, none, NULL, "1", "2"));
  assert_true(may("integer", 0, none, "DOUBLE", "1", "2"));
  assert_true(may("integer", 0, none, "INT32", "1.5", "2"));
  assert_true(may("integer", 0, none, "INT32", "", "2"));
  assert_true(may("integer", 0, none, "INT32", "-", "2"));
  assert_true(may("integer", 0, none, "INT64", "1e3", "2e3"));
  assert_true(may("decimal", 2, none, "INT64", "1.005", "2.00")); /* the file has more digits than the plan */
  assert_true(may("decimal", 2, none, "INT64", ".", "2.00"));
  assert_true(may("decimal", 9, none, "FIXED_LEN_BYTE_ARRAY", "1", "10000000000000000000000000000000")); /* 41 digits */
  assert_true(may("date", 0, none, "INT32", "44-03-15 (BC)", "2000-01-01"));
  assert_true(may("date", 0, none, "INT32", "2000-01-01", "infinity"));
  assert_true(may("date", 0, none, "INT64", "2000-01-01 00:00:00", "2000-01-02 00:00:00"));
  assert_true(may("date", 0, none, "INT32", "12000-01-01", "12000-01-02"));
  assert_true(may("timestamp", 0, none, "INT64", "2000-01-01 00:00:00+00", "2000-01-02 00:00:00+00"));
  assert_true(may("timestamp", 0, none, "INT64", "2000-01-01 00:00:00.0000001", "2000-01-02 00:00:00"));
  assert_true(may("timestamp", 0, none, "INT64", "2000-01-01", "2000-01-02"));
  assert_true(may("timestamp", 0, none, "INT32", "2000-01-01 00:00:00", "2000-01-02 00:00:00"));
  assert_true(may("text", 0, "[\"<\",\"a\"]", "BYTE_ARRAY", "b", "c"));
  assert_true(may("text", 0, "[\"<\",\"a\"]", BR_STORED_TEXT, "b\\xFF", "c"));
}

static void nulls_and_nonsense(void **state) {
  (void)state;
  br_arena *mem = br_arena_new();
  size_t n = 0;
  br_pruned_column *c =
      br_prune_parse(mem, "[{\"column\":\"c\",\"kind\":\"text\",\"scale\":0,\"test\":[\">\",\"\"]}]", &n);
  group_bounds g = {.all_null = true};
  assert_int_equal(n, 1);
  assert_false(br_bounds_possible(c, NULL, &g));
  static const char *const bad[] = {"",
                                    "{}",
                                    "[7]",
                                    "[{\"column\":\"c\",\"kind\":\"blob\",\"test\":[\"=\",\"1\"]}]",
                                    "[{\"column\":\"c\",\"kind\":\"integer\",\"test\":[\"~\",\"1\"]}]",
                                    "[{\"column\":\"c\",\"kind\":\"integer\",\"test\":[\"=\",\"one\"]}]",
                                    "[{\"column\":\"c\",\"kind\":\"integer\",\"test\":[\"and\",[\"=\"]]}]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    br_prune_parse(mem, bad[i], &n);
    assert_int_equal(n, 0);
  }
  br_arena_free(mem);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operators), cmocka_unit_test(values),
                                     cmocka_unit_test(what_is_not_told), cmocka_unit_test(nulls_and_nonsense)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
