/* SPDX-License-Identifier: Apache-2.0
 * links: br_arrow
 * Encoded columns become plain ones: dictionaries with NULLs on both sides, a slice of a batch, keys that name nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "arrow/decode.h"

/* struct<a: int32, w: dictionary<int8, string>> of five rows: keys 0, NULL, 1, 2, 0 over "x", NULL, "zz". */
static void make(struct ArrowSchema *s, struct ArrowArray *a, int8_t last_key) {
  static const int8_t keys[] = {0, 0, 1, 2};
  ArrowSchemaInit(s);
  assert_int_equal(ArrowSchemaSetTypeStruct(s, 2), 0);
  assert_int_equal(ArrowSchemaSetType(s->children[0], NANOARROW_TYPE_INT32), 0);
  assert_int_equal(ArrowSchemaSetName(s->children[0], "a"), 0);
  assert_int_equal(ArrowSchemaSetType(s->children[1], NANOARROW_TYPE_INT8), 0);
  assert_int_equal(ArrowSchemaSetName(s->children[1], "w"), 0);
  assert_int_equal(ArrowSchemaAllocateDictionary(s->children[1]), 0);
  ArrowSchemaInit(s->children[1]->dictionary);
  assert_int_equal(ArrowSchemaSetType(s->children[1]->dictionary, NANOARROW_TYPE_STRING), 0);
  assert_int_equal(ArrowArrayInitFromSchema(a, s, NULL), 0);
  assert_int_equal(ArrowArrayStartAppending(a), 0);
  struct ArrowArray *d = a->children[1]->dictionary;
  assert_int_equal(ArrowArrayAppendString(d, ArrowCharView("x")), 0);
  assert_int_equal(ArrowArrayAppendNull(d, 1), 0);
  assert_int_equal(ArrowArrayAppendString(d, ArrowCharView("zz")), 0);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(ArrowArrayAppendInt(a->children[0], 10 + i), 0);
    int code = i == 1 ? ArrowArrayAppendNull(a->children[1], 1)
                      : ArrowArrayAppendInt(a->children[1], i == 4 ? last_key : keys[i]);
    assert_int_equal(code, 0);
    assert_int_equal(ArrowArrayFinishElement(a), 0);
  }
  assert_int_equal(ArrowArrayFinishBuildingDefault(a, NULL), 0);
}

static void check(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t first, int64_t rows) {
  static const char *const want[] = {"x", NULL, NULL, "zz", "x"};
  struct ArrowArrayView v;
  assert_int_equal(ArrowArrayViewInitFromSchema(&v, s, NULL), 0);
  struct ArrowError why;
  if (ArrowArrayViewSetArray(&v, a, &why) != 0) fail_msg("%s", why.message);
  if (ArrowArrayViewValidate(&v, NANOARROW_VALIDATION_LEVEL_FULL, &why) != 0) fail_msg("%s", why.message);
  assert_int_equal(a->length, rows);
  for (int64_t i = 0; i < rows; i++) {
    assert_int_equal(ArrowArrayViewGetIntUnsafe(v.children[0], i), 10 + first + i);
    assert_int_equal(ArrowArrayViewIsNull(v.children[1], i), want[first + i] == NULL);
    if (want[first + i] == NULL) continue;
    struct ArrowStringView got = ArrowArrayViewGetStringUnsafe(v.children[1], i);
    assert_int_equal(got.size_bytes, strlen(want[first + i]));
    assert_memory_equal(got.data, want[first + i], (size_t)got.size_bytes);
  }
  ArrowArrayViewReset(&v);
}

static void test_dictionaries(void **state) {
  (void)state;
  for (int64_t first = 0; first < 3; first++) {
    struct ArrowSchema in, out;
    struct ArrowArray a;
    br_error err;
    bool encoded;
    make(&in, &a, 0);
    assert_int_equal(br_schema_decode(&in, &out, &encoded, &err), BR_OK);
    assert_true(encoded);
    assert_string_equal(out.children[1]->format, "u");
    assert_string_equal(out.children[1]->name, "w");
    assert_null(out.children[1]->dictionary);
    a.offset = first; /* a slice */
    a.length = 5 - first - 1;
    assert_int_equal(br_array_decode(&in, &out, &a, &err), BR_OK);
    check(&out, &a, first, 5 - first - 1);
    a.release(&a);
    in.release(&in);
    out.release(&out);
  }
}

static void test_keys_that_name_nothing(void **state) {
  (void)state;
  for (int8_t key = -1; key < 5; key += 4) {
    struct ArrowSchema in, out;
    struct ArrowArray a;
    br_error err;
    bool encoded;
    make(&in, &a, key);
    assert_int_equal(br_schema_decode(&in, &out, &encoded, &err), BR_OK);
    assert_int_equal(br_array_decode(&in, &out, &a, &err), BR_INVALID);
    assert_non_null(strstr(err.message, "\"w\""));
    assert_null(a.release);
    in.release(&in);
    out.release(&out);
  }
}

static void test_plain_ones_stay(void **state) {
  (void)state;
  struct ArrowSchema in, out;
  br_error err;
  bool encoded = true;
  assert_int_equal(ArrowSchemaInitFromType(&in, NANOARROW_TYPE_INT64), 0);
  assert_int_equal(br_schema_decode(&in, &out, &encoded, &err), BR_OK);
  assert_false(encoded);
  assert_string_equal(out.format, "l");
  in.release(&in);
  out.release(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dictionaries), cmocka_unit_test(test_keys_that_name_nothing),
                                     cmocka_unit_test(test_plain_ones_stay)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
