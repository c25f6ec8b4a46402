/* SPDX-License-Identifier: Apache-2.0
 * links: br_arrow
 * Texts that are an enum's become indices: of a slice, with NULLs; a text that is no value; notes beside other metadata. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "arrow/enums.h"

static const char *const values[] = {"low", "", "high", "it's"};

/* Five rows: high, NULL, low, "", `last`. */
static void make(struct ArrowSchema *s, struct ArrowArray *a, const char *last) {
  ArrowSchemaInit(s);
  assert_int_equal(ArrowSchemaSetType(s, NANOARROW_TYPE_STRING), 0);
  assert_false(br_schema_is_enum(s));
  assert_null(br_enums_new(s));
  assert_int_equal(br_schema_note_enum(s, values, 4), 0);
  assert_true(br_schema_is_enum(s));
  assert_int_equal(ArrowArrayInitFromSchema(a, s, NULL), 0);
  assert_int_equal(ArrowArrayStartAppending(a), 0);
  assert_int_equal(ArrowArrayAppendString(a, ArrowCharView("high")), 0);
  assert_int_equal(ArrowArrayAppendNull(a, 1), 0);
  assert_int_equal(ArrowArrayAppendString(a, ArrowCharView("low")), 0);
  assert_int_equal(ArrowArrayAppendString(a, ArrowCharView("")), 0);
  assert_int_equal(ArrowArrayAppendString(a, ArrowCharView(last)), 0);
  assert_int_equal(ArrowArrayFinishBuildingDefault(a, NULL), 0);
}

static void test_indices(void **state) {
  (void)state;
  static const int want[] = {2, -1, 0, 1, 3};
  for (int64_t first = 0; first < 5; first++) {
    struct ArrowSchema s;
    struct ArrowArray a;
    struct ArrowArrayView v;
    struct ArrowError why;
    br_error err;
    make(&s, &a, "it's");
    br_enums *e = br_enums_new(&s);
    a.offset = first;
    a.length = 5 - first;
    a.null_count = -1;
    assert_int_equal(br_enums_schema(e, &s), 0);
    assert_string_equal(s.format, "C");
    assert_null(s.metadata);
    assert_int_equal(br_enums_encode(e, &a, &err), BR_OK);
    br_enums_unref(e); /* the array keeps its dictionary */
    assert_int_equal(ArrowArrayViewInitFromSchema(&v, &s, NULL), 0);
    if (ArrowArrayViewSetArray(&v, &a, &why) != 0) fail_msg("%s", why.message);
    if (ArrowArrayViewValidate(&v, NANOARROW_VALIDATION_LEVEL_FULL, &why) != 0) fail_msg("%s", why.message);
    for (int64_t i = first; i < 5; i++) {
      assert_int_equal(ArrowArrayViewIsNull(&v, i - first), want[i] < 0);
      if (want[i] >= 0) assert_int_equal(ArrowArrayViewGetIntUnsafe(&v, i - first), want[i]);
    }
    assert_int_equal(v.dictionary->length, 4);
    struct ArrowStringView last = ArrowArrayViewGetStringUnsafe(v.dictionary, 3);
    assert_memory_equal(last.data, "it's", 4);
    ArrowArrayViewReset(&v);
    a.release(&a);
    s.release(&s);
  }
}

static void test_no_value(void **state) {
  (void)state;
  struct ArrowSchema s;
  struct ArrowArray a;
  br_error err;
  make(&s, &a, "medium");
  br_enums *e = br_enums_new(&s);
  assert_int_equal(br_enums_encode(e, &a, &err), BR_CORRUPT);
  assert_non_null(strstr(err.message, "'medium'"));
  assert_int_equal(a.n_buffers, 3); /* as it was */
  br_enums_unref(e);
  a.release(&a);
  s.release(&s);
}

static void test_widths(void **state) {
  (void)state;
  static const struct {
    size_t n;
    const char *format;
  } cases[] = {{0, "C"}, {255, "C"}, {256, "S"}, {65535, "S"}, {65536, "I"}};
  static char texts[65536][8];
  static const char *all[65536];
  for (size_t i = 0; i < 65536; i++) {
    snprintf(texts[i], sizeof texts[i], "%zu", i);
    all[i] = texts[i];
  }
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    struct ArrowSchema s;
    struct ArrowBuffer metadata;
    struct ArrowStringView kept;
    ArrowSchemaInit(&s);
    assert_int_equal(ArrowSchemaSetType(&s, NANOARROW_TYPE_STRING), 0);
    assert_int_equal(ArrowMetadataBuilderInit(&metadata, NULL), 0);
    assert_int_equal(ArrowMetadataBuilderAppend(&metadata, ArrowCharView("k"), ArrowCharView("v")), 0);
    assert_int_equal(ArrowSchemaSetMetadata(&s, (const char *)metadata.data), 0);
    ArrowBufferReset(&metadata);
    assert_int_equal(br_schema_note_enum(&s, all, cases[c].n), 0);
    assert_int_equal(ArrowMetadataGetValue(s.metadata, ArrowCharView("k"), &kept), 0);
    assert_int_equal(kept.size_bytes, 1);
    br_enums *e = br_enums_new(&s);
    assert_non_null(e);
    assert_int_equal(br_enums_schema(e, &s), 0);
    assert_string_equal(s.format, cases[c].format);
    br_enums_unref(e);
    s.release(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_indices),
      cmocka_unit_test(test_no_value),
      cmocka_unit_test(test_widths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
