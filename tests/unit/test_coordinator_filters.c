/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * Run-time filters without processes: ranges of keys as attempts tell them, splits that are left out, and the text of a task. The plan is
 * made by hand: 0 splits, HASH into 2, tells the ranges of its columns; 1 splits, filtered by them; 2 joins the two.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "coordinator/query.h"
#include <stdlib.h>
#include <string.h>

#define SPLITS 4

static const char *types[] = {"BIGINT", "DATE"};
static const uint32_t ranged[] = {0, 1};
static const br_filter_key keys[] = {{.column = 0, .text = "t.c3", .type = "BIGINT", .source = "id"},
                                     {.column = 1, .text = "t.c4", .type = "DATE", .source = NULL}};

static br_query *query(void) {
  br_error err;
  br_arena *a = br_arena_new();
  br_stages *p = br_arena_alloc(a, sizeof *p);
  p->arena = a;
  p->n_stages = 3;
  p->stages = br_arena_alloc(a, p->n_stages * sizeof *p->stages);
  for (uint32_t i = 0; i < p->n_stages; i++) {
    p->stages[i] = (br_stage){.id = i,
                              .sql = "SELECT 1",
                              .types = types,
                              .n_columns = 2,
                              .split_scan = -1,
                              .rule = i < 2 ? BR_TASKS_SPLITS : BR_TASKS_PARTITIONS,
                              .output = i < 2 ? BR_EX_HASH : BR_EX_RESULT,
                              .partitions = i < 2 ? 2 : 1};
    p->stages[i].inputs = br_arena_alloc(a, 2 * sizeof(br_stage_input));
  }
  p->stages[0].ranged = ranged;
  p->stages[0].n_ranged = 2;
  p->stages[1].n_inputs = 1;
  p->stages[1].inputs[0] = (br_stage_input){.kind = BR_EX_FILTER, .ranges = keys, .n_ranges = 2};
  p->stages[1].sql =
      "SELECT t.* FROM x t /* filter 0: */ SEMI JOIN input(0) f ON t.c3 = f.k0 /* end of filter */ "
      "/* range of filter 0 */";
  p->stages[2].n_inputs = 2;
  for (uint32_t i = 0; i < 2; i++)
    p->stages[2].inputs[i] = (br_stage_input){.number = i, .producer = i, .kind = BR_EX_HASH};
  br_query *q = br_query_new(1);
  q->stages = p;
  q->n_runs = p->n_stages;
  q->runs = br_calloc(q->n_runs, sizeof *q->runs);
  q->adaptive = true;
  q->slots = 2;
  q->filter_bytes = 1;
  for (size_t i = 0; i < q->n_runs; i++) q->runs[i].plan = &p->stages[i];
  for (size_t i = 0; i < 2; i++) {
    q->runs[i].n_tasks = SPLITS;
    q->runs[i].split_sql = br_calloc(SPLITS, sizeof(char *));
    for (int k = 0; k < SPLITS; k++) q->runs[i].split_sql[k] = br_asprintf("split%d", k);
  }
  assert_int_equal(br_query_count_tasks(q, &err), BR_OK);
  return q;
}

/* What the footers say of id: split 0 has 0 to 99, 1 has 100 to 199, …; of the last one nothing. */
static void facts(br_query *q) {
  br_stage_run *r = &q->runs[1];
  r->split_facts = br_calloc(SPLITS, sizeof *r->split_facts);
  r->split_ranges = br_calloc(SPLITS, sizeof *r->split_ranges);
  for (int i = 0; i < SPLITS; i++) {
    r->split_ranges[i] = (br_range){.known = i < SPLITS - 1, .least = 100 * i, .greatest = 100 * i + 99};
    r->split_facts[i] = (br_split_facts){.rows = 100, .keys = &r->split_ranges[i]};
  }
  r->split_rows = 100 * SPLITS;
}

static void tell(br_query *q, uint32_t task, bool any, int64_t least, int64_t greatest, bool with_days) {
  Brant__Pb__ColumnRange id = BRANT__PB__COLUMN_RANGE__INIT, day = BRANT__PB__COLUMN_RANGE__INIT;
  Brant__Pb__ColumnRange *all[] = {&day, &id};
  Brant__Pb__TaskStats s = BRANT__PB__TASK_STATS__INIT;
  id.any = day.any = any;
  id.least = least, id.greatest = greatest;
  day.column = 1;
  day.least = -1, day.greatest = 20000;
  s.ranges = with_days ? all : all + 1;
  s.n_ranges = with_days ? 2 : 1;
  br_filter_count(&q->runs[0], &s);
  br_stage_run *r = &q->runs[0];
  if (!r->tasks[task].done) r->done++, r->rows_out += 10, r->bytes_out += 80;
  r->tasks[task].done = true;
}

static void all_tell(br_query *q, int64_t least, int64_t greatest) {
  for (uint32_t t = 0; t < SPLITS; t++) tell(q, t, t != 2, least + t, greatest - t, true);
}

static void expect_text(const br_query *q, uint32_t task, const char *end) {
  br_arena *a = br_arena_new();
  char *want = br_asprintf("SELECT t.* FROM x t  %s", end), *got = br_task_sql(q, 1, task, a);
  assert_string_equal(got, want);
  free(want);
  br_arena_free(a);
}

static void test_ranges_are_put_together(void **state) {
  (void)state;
  br_query *q = query();
  for (uint32_t t = 0; t < SPLITS; t++) {
    if (t > 0) expect_text(q, 0, ""); /* not all of it is known yet */
    tell(q, t, t != 2, 5 - (int64_t)t, 50 + t, true);
  }
  expect_text(q, 0,
              "WHERE t.c3 BETWEEN 2 AND 53 AND t.c4 BETWEEN CAST('1969-12-31' AS DATE) AND CAST('2024-10-04' AS DATE)");
  tell(q, 1, true, -7, 50, true); /* an attempt that runs again, by chance with other keys */
  expect_text(
      q, 0, "WHERE t.c3 BETWEEN -7 AND 53 AND t.c4 BETWEEN CAST('1969-12-31' AS DATE) AND CAST('2024-10-04' AS DATE)");
  br_query_unref(q);
}

static void test_a_range_that_nobody_told_is_unknown(void **state) {
  (void)state;
  br_query *q = query();
  for (uint32_t t = 0; t < SPLITS; t++) tell(q, t, true, 5, 50, t != 3);
  expect_text(q, 0, "WHERE t.c3 BETWEEN 5 AND 50");
  br_query_unref(q);
}

static void test_no_key_at_all(void **state) {
  (void)state;
  br_query *q = query();
  facts(q);
  for (uint32_t t = 0; t < SPLITS; t++) tell(q, t, false, 0, 0, true);
  expect_text(q, 0, "WHERE false AND false");
  br_query_adapt(q, 1);
  assert_int_equal(q->runs[1].n_tasks, 1); /* of the last split nothing is known */
  assert_string_equal(q->runs[1].split_sql[0], "split3");
  br_query_unref(q);
}

static void test_the_least_number_has_no_literal(void **state) {
  (void)state;
  br_query *q = query();
  all_tell(q, INT64_MIN, 50);
  expect_text(q, 0, "WHERE t.c4 BETWEEN CAST('1969-12-31' AS DATE) AND CAST('2024-10-04' AS DATE)");
  br_query_unref(q);
}

static void test_splits_are_left_out(void **state) {
  (void)state;
  br_query *q = query();
  facts(q);
  all_tell(q, 150, 260);
  assert_true(br_query_adapts(q, 1));
  br_query_adapt(q, 1);
  br_stage_run *r = &q->runs[1];
  assert_int_equal(r->n_tasks, 3); /* 1, 2, and the one that nothing is known of */
  assert_string_equal(r->split_sql[0], "split1");
  assert_string_equal(r->split_sql[1], "split2");
  assert_string_equal(r->split_sql[2], "split3");
  assert_int_equal(r->split_rows, 300);
  assert_string_equal(r->adapted, "3 of 4 splits: no keys that the others could meet");
  br_query_unref(q);
}

/* The other column, which no footer knows, is asked for by all; this one not by the split that lies within. */
static void test_what_lies_within_is_not_asked_for(void **state) {
  (void)state;
  br_query *q = query();
  facts(q);
  all_tell(q, 90, 240);
  br_query_adapt(q, 1);
  const char *days = "t.c4 BETWEEN CAST('1969-12-31' AS DATE) AND CAST('2024-10-04' AS DATE)";
  for (uint32_t t = 0; t < 4; t++) {
    char *want = br_asprintf("WHERE %s%s", t == 1 ? "" : "t.c3 BETWEEN 90 AND 240 AND ", days);
    expect_text(q, t, want);
    free(want);
  }
  br_query_unref(q);
}

static void test_nothing_is_left_out_by_chance(void **state) {
  (void)state;
  br_query *q = query();
  facts(q);
  q->stages->stages[0].indeterminate = true;
  all_tell(q, 150, 260);
  br_query_adapt(q, 1);
  assert_int_equal(q->runs[1].n_tasks, SPLITS);
  br_query_unref(q);
}

/* The keys are read when they are few for the rows that are left. */
static void test_keys_and_range(void **state) {
  (void)state;
  br_query *q = query();
  facts(q);
  q->filter_bytes = 1000;
  all_tell(q, 150, 260); /* 40 keys, 400 rows, then 300 */
  assert_true(br_filter_pays(q, &q->runs[1], &q->stages->stages[1].inputs[0]));
  br_query_adapt(q, 1);
  assert_true(br_filter_pays(q, &q->runs[1], &q->stages->stages[1].inputs[0]));
  br_arena *a = br_arena_new();
  const char *sql = br_task_sql(q, 1, 0, a);
  assert_non_null(strstr(sql, "SEMI JOIN input(0)"));
  assert_non_null(strstr(sql, "WHERE t.c3 BETWEEN 150 AND 260"));
  br_arena_free(a);
  br_query_unref(q);
}

static void test_moments(void **state) {
  (void)state;
  static const struct {
    const char *type;
    int64_t least, greatest;
    const char *text;
  } cases[] = {
      {"TIMESTAMP", -1, 1,
       "CAST('1969-12-31 23:59:59.999999' AS TIMESTAMP) AND CAST('1970-01-01 00:00:00.000001' AS TIMESTAMP)"},
      {"TIMESTAMP WITH TIME ZONE", 951782400000000, 951868800500000,
       "CAST('2000-02-29 00:00:00.000000+00' AS TIMESTAMP WITH TIME ZONE) AND CAST('2000-03-01 00:00:00.500000+00' AS "
       "TIMESTAMP WITH TIME ZONE)"},
      {"DATE", -719162, 2932896 - 100000, "CAST('0001-01-01' AS DATE) AND CAST('9726-03-17' AS DATE)"},
      {"DATE", -INT32_MAX, 5, NULL},
      {"TIMESTAMP", 5, INT64_MAX, NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_query *q = query();
    br_filter_key key = {.column = 0, .text = "t.c0", .type = cases[i].type};
    q->stages->stages[1].inputs[0].ranges = &key;
    q->stages->stages[1].inputs[0].n_ranges = 1;
    for (uint32_t t = 0; t < SPLITS; t++) tell(q, t, true, cases[i].least, cases[i].greatest, true);
    char *want = cases[i].text ? br_asprintf("WHERE t.c0 BETWEEN %s", cases[i].text) : br_strdup("");
    expect_text(q, 0, want);
    free(want);
    br_query_unref(q);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ranges_are_put_together),
      cmocka_unit_test(test_a_range_that_nobody_told_is_unknown),
      cmocka_unit_test(test_no_key_at_all),
      cmocka_unit_test(test_the_least_number_has_no_literal),
      cmocka_unit_test(test_splits_are_left_out),
      cmocka_unit_test(test_what_lies_within_is_not_asked_for),
      cmocka_unit_test(test_nothing_is_left_out_by_chance),
      cmocka_unit_test(test_keys_and_range),
      cmocka_unit_test(test_moments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
