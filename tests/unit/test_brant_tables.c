/* SPDX-License-Identifier: Apache-2.0
 * links: libbrant
 * Tables of a session through the C API: rows that the program gives, results that stay on the workers, and what is dropped of them. */
#include <errno.h>

#include "api_fixture.h"

/* ---- tests */

#define SUM 4999950000 /* of the numbers below 100,000 */

static void give(const char *name, const char *sql) {
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  OK(brant_submit(shared, sql, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  OK(brant_register_arrow(shared, name, &st, &err));
  assert_null(st.release); /* it was taken */
  brant_query_free(q);
}

static void rows_that_are_given(void **state) {
  (void)state;
  give("given", "SELECT i FROM numbers");
  expect_sum(shared, "SELECT i FROM given", SUM, 100000);
  expect_sum(shared, "SELECT a.i FROM GIVEN a JOIN numbers b ON a.i = b.i WHERE a.i % 2 = 0", 2499950000, 50000);
  expect_sum(shared, "SELECT count(*) FROM dataset('given')", 100000, 1);
  give("none", "SELECT i FROM numbers WHERE i < 0");
  expect_sum(shared, "SELECT count(*) FROM none", 0, 1);
  OK(brant_drop_table(shared, "given", &err));
  OK(brant_drop_table(shared, "none", &err));
  assert_int_equal(brant_drop_table(shared, "given", &err), BRANT_NOT_FOUND);
  assert_non_null(strstr(err.message, "given"));
}

/* A stream that has one batch of one column less than its schema says, or fails at once. */
static int wrong_schema(struct ArrowArrayStream *st, struct ArrowSchema *out) {
  struct ArrowArrayStream *inner = st->private_data;
  return inner->get_schema(inner, out);
}
static int wrong_next(struct ArrowArrayStream *st, struct ArrowArray *out) {
  (void)st, (void)out;
  return ENOSPC;
}
static const char *wrong_error(struct ArrowArrayStream *st) {
  (void)st;
  return "the cupboard is bare";
}
static void wrong_release(struct ArrowArrayStream *st) {
  struct ArrowArrayStream *inner = st->private_data;
  inner->release(inner);
  st->release = NULL;
}

static void streams_and_names_that_are_wrong(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream inner;
  OK(brant_submit(shared, "SELECT i FROM numbers", &q, &err));
  OK(brant_query_stream(q, &inner, &err));
  struct ArrowArrayStream st = {wrong_schema, wrong_next, wrong_error, wrong_release, &inner};
  assert_int_not_equal(brant_register_arrow(shared, "bare", &st, &err), 0);
  assert_non_null(strstr(err.message, "the cupboard is bare"));
  assert_non_null(strstr(err.message, "bare"));
  assert_null(st.release);
  brant_query_free(q);
  give("twice", "SELECT i FROM numbers WHERE i < 10");
  for (int i = 0; i < 2; i++) {
    OK(brant_submit(shared, "SELECT i FROM numbers", &q, &err));
    OK(brant_query_stream(q, &st, &err));
    assert_int_equal(brant_register_arrow(shared, i == 0 ? "TWICE" : "", &st, &err), BRANT_INVALID);
    assert_non_null(strstr(err.message, i == 0 ? "already" : "name"));
    assert_null(st.release);
    brant_query_free(q);
  }
  expect_sum(shared, "SELECT i FROM twice", 45, 10);
  OK(brant_drop_table(shared, "twice", &err));
}

static void results_that_stay(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  OK(brant_submit(shared, "SELECT i FROM numbers WHERE i % 3 = 0", &q, &err));
  OK(brant_query_persist(q, "thirds", &err));
  assert_int_equal(brant_query_stream(q, &st, &err), BRANT_INVALID); /* its rows are the table's */
  assert_int_equal(brant_query_persist(q, "again", &err), BRANT_INVALID);
  brant_query_free(q); /* the table holds what it needs */
  for (int i = 0; i < 3; i++) expect_sum(shared, "SELECT i FROM thirds", 1666683333, 33334);
  OK(brant_submit(shared, "SELECT max(i) AS i FROM thirds", &q, &err));
  OK(brant_query_persist(q, "most", &err)); /* of a table that goes before it */
  brant_query_free(q);
  OK(brant_drop_table(shared, "thirds", &err));
  expect_sum(shared, "SELECT i FROM most", 99999, 1);
  run(shared, "CREATE TABLE here AS SELECT i FROM most"); /* read in this process */
  expect_sum(shared, "SELECT i FROM here", 99999, 1);
  run(shared, "DROP TABLE here");
  OK(brant_drop_table(shared, "most", &err));
  assert_int_not_equal(brant_submit(shared, "SELECT i FROM most", &q, &err), 0);
}

static void a_result_that_fails_does_not_stay(void **state) {
  (void)state;
  brant_query *q = NULL;
  OK(brant_submit(shared, "SELECT CAST('x' || i AS INTEGER) AS i FROM numbers", &q, &err));
  assert_int_not_equal(brant_query_persist(q, "bad", &err), 0);
  assert_non_null(strstr(err.message, "onver"));
  brant_query_free(q);
  assert_int_equal(brant_drop_table(shared, "bad", &err), BRANT_NOT_FOUND);
}

static void tables_left_at_the_end(void **state) {
  (void)state;
  brant_query *q = NULL;
  give("left1", "SELECT i FROM numbers");
  OK(brant_submit(shared, "SELECT i FROM left1", &q, &err));
  OK(brant_query_persist(q, "left2", &err));
  brant_query_free(q);
  run(shared, "CREATE TEMP TABLE left3 AS SELECT i FROM numbers WHERE i < 1000");
  expect_sum(shared, "SELECT i FROM left3", 499500, 1000); /* close_shared looks at what files are there afterwards */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_that_are_given),    cmocka_unit_test(streams_and_names_that_are_wrong),
      cmocka_unit_test(results_that_stay),      cmocka_unit_test(a_result_that_fails_does_not_stay),
      cmocka_unit_test(tables_left_at_the_end),
  };
  return cmocka_run_group_tests(tests, open_shared, close_shared);
}
