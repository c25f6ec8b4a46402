/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_engine
 *
 * What steps need of the engine and of arrow: streams with batches of an exact size, functions that exist for planning alone, and
 * batches over columns of others.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "arrow/view.h"
#include "engine/engine.h"

#include <string.h>

static br_engine *engine;
static br_session *session;

static int open_engine(void **state) {
  br_error err;
  br_engine_options o = {.threads = 2};
  (void)state;
  assert_int_equal(br_engine_open(&o, &engine, &err), BR_OK);
  assert_int_equal(br_session_open(engine, &session, &err), BR_OK);
  return 0;
}

static int close_engine(void **state) {
  (void)state;
  br_session_close(session);
  br_engine_close(engine);
  return 0;
}

static br_local_stream *stream(const char *sql) {
  br_error err;
  br_local_stream *st = NULL;
  if (br_session_stream(session, sql, &st, &err) != BR_OK) fail_msg("%s", err.message);
  return st;
}

static br_batch *next(br_local_stream *st) {
  br_error err;
  br_batch *b = NULL;
  if (br_local_stream_next(st, &b, &err) != BR_OK) fail_msg("%s", err.message);
  return b;
}

static int64_t value(const br_batch *b, int column, int64_t row) {
  const struct ArrowArray *c = br_batch_arrow(b)->children[column];
  return ((const int64_t *)c->buffers[1])[c->offset + row];
}

static void exact_sizes(void **state) {
  static const uint32_t sizes[] = {1, 7, 2048, 3000, 100000};
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    br_local_stream *st = stream("SELECT i FROM range(5001) r(i)");
    int64_t row = 0, left = 5001;
    for (br_batch *b; br_local_stream_exact(st, sizes[i], 1u << 30), (b = next(st)) != NULL;) {
      int64_t want = left < sizes[i] ? left : sizes[i];
      assert_int_equal(br_batch_rows(b), want);
      for (int64_t k = 0; k < want; k++) assert_int_equal(value(b, 0, k), row++);
      left -= want;
      br_batch_unref(b);
    }
    assert_int_equal(left, 0);
    br_local_stream_free(st);
  }
}

/* The size may change on the way, and wide rows end a batch early. */
static void sizes_that_change(void **state) {
  (void)state;
  br_local_stream *st = stream("SELECT i, repeat('x', 1000) AS s FROM range(5000) r(i)");
  br_local_stream_exact(st, 10, 1u << 30);
  br_batch *b = next(st);
  assert_int_equal(br_batch_rows(b), 10);
  br_batch_unref(b);
  br_local_stream_exact(st, 4000, 100000);
  b = next(st);
  assert_in_range(br_batch_rows(b), 90, 2048 + 100);
  assert_int_equal(value(b, 0, 0), 10);
  br_batch_unref(b);
  br_local_stream_free(st); /* with rows held back */
}

static void functions_for_planning(void **state) {
  _Atomic uint64_t bound = 0;
  br_error err;
  br_planned p;
  br_table t;
  (void)state;
  assert_int_equal(
      br_session_plan_function(session, "far", "STRUCT(a BIGINT, b VARCHAR)[]", "far() is elsewhere", &bound, &err),
      BR_OK);
  assert_int_equal(bound, 0);
  assert_int_equal(
      br_session_plan(session, "SELECT far(i, 'x', NULL) AS f FROM range(3) r(i) WHERE far() IS NULL", &p, &err),
      BR_OK);
  assert_true(bound >= 2);
  assert_string_equal(p.types[0], "STRUCT(\"a\" BIGINT, \"b\" VARCHAR)[]");
  assert_null(p.refused);
  assert_non_null(strstr(p.json, "\"far\"")); /* constants were not folded */
  br_planned_free(&p);
  assert_int_equal(br_session_table(session, "SELECT far(1)", &t, &err), BR_EXECUTION);
  assert_non_null(strstr(err.message, "far() is elsewhere"));
  assert_int_equal(br_session_plan_function(session, "bad", "NO_TYPE", "", &bound, &err), BR_INVALID);
  assert_int_equal(br_session_plan_function(session, "bad", "INT) , CAST(1 AS INT", "", &bound, &err), BR_INVALID);
}

static void views(void **state) {
  br_error err;
  br_schema *schema = NULL;
  br_batch *v = NULL;
  const char *const types[] = {"VARCHAR", "BIGINT", "BIGINT"};
  (void)state;
  assert_int_equal(br_session_schema(session, types, NULL, 3, &schema, &err), BR_OK);
  br_local_stream *a = stream("SELECT i, CASE WHEN i % 2 = 0 THEN 's' || i END AS s FROM range(100) r(i)"), *b = NULL;
  br_local_stream_exact(a, 100, 1u << 30);
  br_batch *left = next(a);
  br_local_stream_free(a);
  b = stream("SELECT 1000 + i FROM range(50) r(i)");
  br_local_stream_exact(b, 50, 1u << 30);
  br_batch *right = next(b);
  br_local_stream_free(b);
  br_view_column columns[] = {{left, 1, 41}, {left, 0, 41}, {right, 0, 3}};
  assert_int_equal(br_batch_view(schema, columns, 3, 20, &v, &err), BR_OK);
  br_batch_unref(left);
  br_batch_unref(right); /* the view keeps them */
  assert_int_equal(br_batch_rows(v), 20);
  assert_int_equal(value(v, 1, 0), 41);
  assert_int_equal(value(v, 2, 19), 1022);
  struct ArrowArrayView text;
  assert_int_equal(ArrowArrayViewInitFromSchema(&text, br_schema_arrow(schema), NULL), NANOARROW_OK);
  assert_int_equal(ArrowArrayViewSetArray(&text, br_batch_arrow(v), NULL), NANOARROW_OK);
  assert_true(ArrowArrayViewIsNull(text.children[0], 0));
  struct ArrowStringView s = ArrowArrayViewGetStringUnsafe(text.children[0], 1);
  assert_int_equal(s.size_bytes, 3);
  assert_memory_equal(s.data, "s42", 3);
  ArrowArrayViewReset(&text);
  br_batch *again = NULL; /* a view of a view */
  br_view_column one = {v, 1, 5};
  br_schema *numbers = NULL;
  assert_int_equal(br_session_schema(session, &types[1], NULL, 1, &numbers, &err), BR_OK);
  assert_int_equal(br_batch_view(numbers, &one, 1, 2, &again, &err), BR_OK);
  br_batch_unref(v);
  assert_int_equal(value(again, 0, 1), 47);
  br_batch_unref(again);
  br_schema_unref(numbers);
  br_schema_unref(schema);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exact_sizes), cmocka_unit_test(sizes_that_change),
                                     cmocka_unit_test(functions_for_planning), cmocka_unit_test(views)};
  return cmocka_run_group_tests(tests, open_engine, close_engine);
}
