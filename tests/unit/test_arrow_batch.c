/* SPDX-License-Identifier: Apache-2.0
 * links: br_arrow
 * Shared schemas and batches: ownership, comparison, export. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <pthread.h>
#include "arrow/plain.h"
#include "unit/arrow_fixture.h"

static br_error err;

/* ---- an array whose release is seen */

static _Atomic int released;

static void release_seen(struct ArrowArray *a) {
  for (int64_t i = 0; i < a->n_children; i++)
    if (a->children[i]->release != NULL) a->children[i]->release(a->children[i]);
  a->release = NULL;
  released++;
}

static const int32_t numbers[4] = {1, 2, 3, 4};

typedef struct foreign {
  struct ArrowArray root, child;
  struct ArrowArray *children[1];
  const void *root_buffers[1], *child_buffers[2];
} foreign;

static void foreign_array(foreign *f) {
  memset(f, 0, sizeof *f);
  f->children[0] = &f->child;
  f->child_buffers[1] = numbers;
  f->child = (struct ArrowArray){.length = 4, .n_buffers = 2, .buffers = f->child_buffers, .release = release_seen};
  f->root = (struct ArrowArray){.length = 4,
                                .n_buffers = 1,
                                .buffers = f->root_buffers,
                                .n_children = 1,
                                .children = f->children,
                                .release = release_seen};
}

static br_schema *ints(void) {
  static const spec one[] = {FIXED("x", "i", 4)};
  return make_schema(one, 1);
}

static void test_ownership(void **state) {
  (void)state;
  foreign f;
  foreign_array(&f);
  br_schema *s = ints();
  br_batch *b;
  released = 0;
  assert_int_equal(br_batch_new(s, &f.root, 123, &b, &err), BR_OK);
  assert_null(f.root.release);
  br_schema_unref(s); /* the batch keeps it */
  assert_int_equal(br_batch_rows(b), 4);
  assert_int_equal(br_batch_bytes(b), 123);
  assert_int_equal(br_schema_columns(br_batch_schema(b)), 1);
  assert_ptr_equal(br_batch_ref(b), b);
  br_batch_unref(b);
  assert_int_equal(released, 0);
  br_batch_unref(b);
  assert_int_equal(released, 2);
  br_batch_unref(NULL);
  br_schema_unref(NULL);
}

static void test_wrong_arrays_are_taken_too(void **state) {
  (void)state;
  foreign f;
  br_batch *b = NULL;
  foreign_array(&f);
  br_schema *none = make_schema(NULL, 0);
  released = 0;
  assert_int_equal(br_batch_new(none, &f.root, 0, &b, &err), BR_INVALID);
  assert_int_equal(released, 2);
  assert_int_equal(br_batch_new(none, &f.root, 0, &b, &err), BR_INVALID); /* released already */
  br_schema_unref(none);
}

static void test_export(void **state) {
  (void)state;
  foreign f;
  foreign_array(&f);
  br_schema *s = ints();
  br_batch *b;
  struct ArrowArray one, two;
  released = 0;
  assert_int_equal(br_batch_new(s, &f.root, 0, &b, &err), BR_OK);
  br_schema_unref(s);
  br_batch_export(b, &one);
  br_batch_export(b, &two);
  br_batch_unref(b);
  assert_int_equal(one.length, 4);
  assert_ptr_equal(one.children[0]->buffers[1], numbers);
  one.release(&one);
  assert_null(one.release);
  /* a child moved out outlives its parent */
  struct ArrowArray child = *two.children[0];
  two.children[0]->release = NULL;
  two.release(&two);
  assert_int_equal(released, 0);
  assert_int_equal(((const int32_t *)child.buffers[1])[3], 4);
  child.release(&child);
  assert_int_equal(released, 2);
}

static void *take_and_drop(void *arg) {
  for (int i = 0; i < 20000; i++) {
    struct ArrowArray a;
    br_batch_export(arg, &a);
    a.release(&a);
  }
  br_batch_unref(arg);
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  foreign f;
  foreign_array(&f);
  br_schema *s = ints();
  br_batch *b;
  pthread_t t[4];
  released = 0;
  assert_int_equal(br_batch_new(s, &f.root, 0, &b, &err), BR_OK);
  br_schema_unref(s);
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, take_and_drop, br_batch_ref(b)), 0);
  br_batch_unref(b);
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  assert_int_equal(released, 2);
}

/* ---- schemas */

static bool same(const spec *a, size_t na, const spec *b, size_t nb, br_buf *why) {
  br_schema *x = make_schema(a, na), *y = make_schema(b, nb);
  br_buf_clear(why);
  bool r = br_schema_same_types(x, y, why);
  br_schema_unref(x);
  br_schema_unref(y);
  return r;
}
#define SAME1(a, b) same(&(const spec)a, 1, &(const spec)b, 1, &why)

static void test_same_types(void **state) {
  (void)state;
  br_buf why = {0};
  assert_true(same(every_kind, N_KINDS, every_kind, N_KINDS, &why));
  assert_int_equal(why.len, 0);
  assert_true(SAME1(FIXED("a", "i", 4), FIXED("b", "i", 4)));
  assert_true(SAME1(FIXED("a", "d:10,2", 16), FIXED("b", "d:10,2,128", 16)));
  assert_false(SAME1(FIXED("a", "d:10,128", 16), FIXED("b", "d:10", 16)));
  assert_false(SAME1(FIXED("a", "d:10,2,64", 8), FIXED("b", "d:10,2", 16)));
  assert_false(SAME1(FIXED("a", "i", 4), FIXED("a", "I", 4)));
  assert_string_equal(br_buf_cstr(&why), "column 'a' is 'i' on one side and 'I' on the other");
  assert_false(same(every_kind, 3, every_kind, 2, &why));
  assert_string_equal(br_buf_cstr(&why), "3 columns on one side and 2 on the other");
  spec plain = FIXED("h", "w:16", 16), huge = plain, uuid = plain;
  huge.extension = "arrow.opaque";
  uuid.extension = "arrow.uuid";
  assert_false(same(&plain, 1, &huge, 1, &why));
  assert_false(same(&uuid, 1, &huge, 1, &why));
  assert_non_null(strstr(br_buf_cstr(&why), "extension:name"));
  spec l1 = {"l", "+l", BR_VEC_LIST, KIDS(FIXED("item", "i", 4))},
       l2 = {"l", "+l", BR_VEC_LIST, KIDS(FIXED("item", "l", 8))};
  assert_false(same(&l1, 1, &l2, 1, &why));
  br_buf_free(&why);
}

static void released_schema(struct ArrowSchema *s) {
  s->release = NULL;
  released++;
}

static void test_bad_schemas(void **state) {
  (void)state;
  br_schema *s = NULL;
  struct ArrowSchema x = {.format = "i", .release = released_schema};
  released = 0;
  assert_int_equal(br_schema_new(&x, &s, &err), BR_INVALID); /* not a struct */
  assert_int_equal(released, 1);
  assert_int_equal(br_schema_new(&x, &s, &err), BR_INVALID); /* released */
  struct ArrowSchema *kids[1] = {NULL};
  x = (struct ArrowSchema){.format = "+s", .n_children = 1, .children = kids, .release = released_schema};
  assert_int_equal(br_schema_new(&x, &s, &err), BR_INVALID);
  struct ArrowSchema self = {.format = "+s", .n_children = 1, .children = kids};
  kids[0] = &self; /* nested without end */
  x = (struct ArrowSchema){.format = "+s", .n_children = 1, .children = kids, .release = released_schema};
  assert_int_equal(br_schema_new(&x, &s, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "nested"));
  assert_int_equal(released, 3);
}

static const char *layout_refusal(const char *format, uint32_t children) {
  static char text[512];
  static const spec kids[] = {FIXED("a", "i", 4), FIXED("b", "i", 4)};
  spec one = {"x", format, BR_VEC_FIXED, 0, 0, NULL, kids, children};
  br_schema *s = make_schema(&one, 1);
  const char *why = br_schema_layout(s)->unsupported;
  snprintf(text, sizeof text, "%s", why != NULL ? why : "");
  br_schema_unref(s);
  return text;
}

static void test_formats(void **state) {
  (void)state;
  static const char *const good[] = {"n", "b", "tss:", "tsn:UTC", "tDu", "d:38,-3", "w:0", "w:2147483647"};
  static const char *const bad[] = {"",         "x",    "vu", "w:", "w:-1", "w:2147483648", "w:3x",  "d:",  "d:5",
                                    "d:5,2,77", "tsq:", "ts", "+z", "+w:2", "+l",           "+us:0", "+vl", "i2"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_string_equal(layout_refusal(good[i], 0), "");
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    if (layout_refusal(bad[i], 0)[0] == 0) fail_msg("format '%s' was taken", bad[i]);
  assert_string_equal(layout_refusal("+us:3,127", 2), "");
  assert_true(layout_refusal("+us:3,3", 2)[0] != 0);
  assert_true(layout_refusal("+us:3,128", 2)[0] != 0);
  assert_true(layout_refusal("+us:3", 2)[0] != 0);
  assert_true(layout_refusal("+us:3,4,5", 2)[0] != 0);
  assert_true(layout_refusal("+m", 1)[0] != 0); /* its child is no struct */
  assert_true(layout_refusal("i", 1)[0] != 0);
}

/* ---- what callers get: bits, and DECIMALs of 16 bytes, also of a slice; releases go on to the array below */

static void plain_column(const char *format, const char *extension, const void *data, foreign *f,
                         struct ArrowSchema *schema, struct ArrowArray *out) {
  static const uint8_t validity[2] = {0xf7, 0xff};
  struct ArrowSchema changed;
  br_schema *s;
  br_batch *b;
  foreign_array(f);
  f->child_buffers[0] = validity;
  f->child_buffers[1] = data;
  f->child.length = f->root.length = 5;
  f->child.offset = 2;
  const spec one[] = {{"x", format, BR_VEC_FIXED, 1, 0, extension, NULL, 0}};
  s = make_schema(one, 1);
  released = 0;
  assert_int_equal(br_batch_new(s, &f->root, 1, &b, &err), BR_OK);
  br_batch_export(b, out);
  assert_int_equal(ArrowSchemaDeepCopy(br_schema_arrow(s), &changed), 0);
  br_plain *p = br_plain_new(s, true);
  assert_int_equal(br_plain_schema(p, &changed), 0);
  *schema = changed;
  assert_int_equal(br_plain_array(p, out, &err), BR_OK);
  br_plain_free(p);
  br_batch_unref(b);
  br_schema_unref(s);
}

static void test_plain_types(void **state) {
  (void)state;
  static const uint8_t bytes[7] = {1, 1, 0, 1, 2, 0, 1};
  static const int32_t narrow[7] = {9, 9, -1, INT32_MIN, INT32_MAX, 0, 5};
  static const int64_t half[7] = {9, 9, -1, INT64_MIN, INT64_MAX, 0, 5};
  struct ArrowSchema schema;
  struct ArrowArray a;
  foreign f;
  plain_column("c", "arrow.bool8", bytes, &f, &schema, &a);
  assert_string_equal(schema.children[0]->format, "b");
  assert_null(schema.children[0]->metadata);
  const uint8_t *bits = a.children[0]->buffers[1];
  assert_int_equal(bits[0] & 0x7c, 0x58); /* rows 2 to 6: 0 1 1 0 1 */
  assert_int_equal(a.children[0]->offset, 2);
  assert_ptr_equal(a.children[0]->buffers[0], f.child_buffers[0]);
  struct ArrowArray child = *a.children[0]; /* moved out: released after its parent */
  a.children[0]->release = NULL;
  a.release(&a);
  assert_int_equal(released, 0);
  child.release(&child);
  assert_null(child.release);
  assert_int_equal(released, 2);
  schema.release(&schema);
  for (int wide = 0; wide < 2; wide++) {
    plain_column(wide ? "d:18,3,64" : "d:4,1,32", NULL, wide ? (const void *)half : narrow, &f, &schema, &a);
    assert_string_equal(schema.children[0]->format, wide ? "d:18,3" : "d:4,1");
    const int64_t *v = a.children[0]->buffers[1];
    for (int i = 2; i < 7; i++) {
      int64_t want = wide ? half[i] : narrow[i];
      assert_int_equal(v[2 * i], want);
      assert_int_equal(v[2 * i + 1], want < 0 ? -1 : 0);
    }
    a.release(&a);
    assert_int_equal(released, 2);
    schema.release(&schema);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ownership),
      cmocka_unit_test(test_plain_types),
      cmocka_unit_test(test_wrong_arrays_are_taken_too),
      cmocka_unit_test(test_export),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_same_types),
      cmocka_unit_test(test_bad_schemas),
      cmocka_unit_test(test_formats),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
