/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * When a Bloom filter of a join's keys is made, without processes. The plan is made by hand: 0 scans, HASH, and its keys go to 1, which makes
 * the filter; 2 scans, filtered by the keys of 0, their range, or the filter; 3 joins 0 and 2.
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

static const char *types[] = {"BIGINT"};
static const uint32_t ranged[] = {0};
static const br_filter_key range_key[] = {{.column = 0, .text = "t.c0", .type = "BIGINT"}};

static br_query *query(void) {
  br_error err;
  br_arena *a = br_arena_new();
  br_stages *p = br_arena_alloc(a, sizeof *p);
  p->arena = a;
  p->n_stages = 4;
  p->stages = br_arena_alloc(a, p->n_stages * sizeof *p->stages);
  for (uint32_t i = 0; i < 4; i++) {
    p->stages[i] = (br_stage){.id = i,
                              .sql = "SELECT 1",
                              .types = types,
                              .n_columns = 1,
                              .split_scan = -1,
                              .rule = i == 3   ? BR_TASKS_PARTITIONS
                                      : i == 1 ? BR_TASKS_ONE
                                               : BR_TASKS_SPLITS,
                              .output = i == 3   ? BR_EX_RESULT
                                        : i == 1 ? BR_EX_BROADCAST
                                                 : BR_EX_HASH,
                              .partitions = i % 2 ? 1 : 2,
                              .rows = -1};
    p->stages[i].inputs = br_arena_alloc(a, 2 * sizeof(br_stage_input));
  }
  br_stage *s = p->stages;
  s[0].ranged = ranged;
  s[0].n_ranged = 1;
  s[1].makes_bloom = true;
  s[1].sql = "SELECT keys_bloom(hash(t.c0), " BR_BLOOM_BLOCKS ") AS c0 FROM input(0) t";
  s[1].inputs[s[1].n_inputs++] = (br_stage_input){.producer = 0, .kind = BR_EX_KEYS, .n_keys = 1};
  s[2].sql =
      "SELECT t.* FROM (SELECT t.* FROM x t /* filter 1: */ WHERE keys_maybe((SELECT c0 FROM input(1)), hash(t.c0)) /* "
      "end of filter */) t /* filter 0: */ SEMI JOIN input(0) f ON t.c0 = f.k0 /* end of filter */ /* range of filter "
      "0 */";
  s[2].inputs[0] = (br_stage_input){.kind = BR_EX_FILTER, .key_bytes = 8, .ranges = range_key, .n_ranges = 1};
  s[2].inputs[1] = (br_stage_input){.number = 1, .producer = 1, .kind = BR_EX_BLOOM};
  s[2].n_inputs = s[3].n_inputs = 2;
  for (uint32_t i = 0; i < 2; i++)
    s[3].inputs[i] = (br_stage_input){.number = i, .producer = 2 * i, .kind = BR_EX_HASH};
  br_query *q = br_query_new(1);
  q->stages = p;
  q->n_runs = p->n_stages;
  q->runs = br_calloc(q->n_runs, sizeof *q->runs);
  q->adaptive = true;
  q->slots = 2;
  q->filter_bytes = 32u << 20;
  q->bloom_bytes = 1u << 20;
  q->bloom_keys = 1000;
  for (size_t i = 0; i < q->n_runs; i++) q->runs[i].plan = &p->stages[i];
  for (size_t i = 0; i < 3; i += 2) {
    q->runs[i].n_tasks = 1;
    q->runs[i].split_sql = br_calloc(1, sizeof(char *));
    q->runs[i].split_sql[0] = br_strdup("split");
  }
  assert_int_equal(br_query_count_tasks(q, &err), BR_OK);
  return q;
}

typedef struct facts {
  uint64_t keys, of, rows; /* keys, of so many rows of their table; rows that look for one */
  int64_t least, greatest;
} facts;

static void ran(br_query *q, facts f) {
  br_stage_run *r = &q->runs[0];
  Brant__Pb__ColumnRange told = BRANT__PB__COLUMN_RANGE__INIT, *all[] = {&told};
  Brant__Pb__TaskStats s = BRANT__PB__TASK_STATS__INIT;
  told.any = f.keys > 0;
  told.least = f.least, told.greatest = f.greatest;
  s.ranges = all;
  s.n_ranges = 1;
  br_filter_count(r, &s);
  r->done = 1;
  r->tasks[0].done = true;
  r->rows_out = f.keys;
  r->bytes_out = f.keys * 8;
  r->split_rows = f.of;
  q->runs[2].split_rows = f.rows;
  assert_true(br_query_adapts(q, 1));
  br_query_adapt(q, 1);
}

static bool made(facts f, uint64_t bloom_keys, const char *why) {
  br_query *q = query();
  q->bloom_keys = bloom_keys;
  ran(q, f);
  bool out = q->runs[1].n_tasks > 0;
  assert_non_null(strstr(q->runs[1].adapted, why));
  assert_int_equal(br_bloom_made(q, &q->stages->stages[2].inputs[1]), out);
  if (out) assert_false(br_filter_pays(q, &q->runs[2], &q->stages->stages[2].inputs[0]));
  br_query_unref(q);
  return out;
}

static void test_when_it_pays(void **state) {
  (void)state;
  facts good = {.keys = 10000, .of = 100000, .rows = 1000000, .least = 1, .greatest = 1000000}, f = good;
  assert_true(made(good, 1000, "14.7 KiB for 10000 keys"));
  assert_false(made(good, 10001, "few"));
  f.of = 16000; /* more than six of ten are left: most rows will find one of them */
  assert_false(made(f, 1000, "too few rows"));
  assert_true(made(f, 0, "KiB")); /* tests ask for it */
  f = good, f.of = 0;             /* nothing is known of what they are left of */
  assert_false(made(f, 1000, "too few rows"));
  f = good, f.rows = 5000; /* fewer rows than it costs to make it */
  assert_false(made(f, 1000, "too few rows"));
  f = good, f.greatest = 5000; /* all whole numbers between the least and the greatest: the range drops as many */
  assert_false(made(f, 1000, "too few rows"));
  f = good, f.keys = f.of = 0;
  assert_false(made(f, 0, "no key"));
  f = (facts){.keys = 1u << 20, .of = 1u << 24, .rows = 1u << 28, .least = 1, .greatest = 1ll << 40};
  assert_false(made(f, 1000, "bloom_bytes")); /* 8 bits for each */
  f.keys--;
  assert_true(made(f, 1000, "1.0 MiB for"));
}

static void test_texts(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  for (int yes = 0; yes < 2; yes++) {
    br_query *q = query();
    ran(q, (facts){.keys = 10000, .of = yes ? 100000 : 10000, .rows = 500000, .least = 1, .greatest = 1000000});
    if (yes) assert_string_equal(br_task_sql(q, 1, 0, a), "SELECT keys_bloom(hash(t.c0), 469) AS c0 FROM input(0) t");
    q->runs[1].done = q->runs[1].n_tasks;
    assert_string_equal(br_task_sql(q, 2, 0, a),
                        yes ? "SELECT t.* FROM (SELECT t.* FROM x t /* filter 1: */ WHERE keys_maybe((SELECT c0 FROM "
                              "input(1)), hash(t.c0)) /* end of filter */) t  WHERE t.c0 BETWEEN 1 AND 1000000"
                            : "SELECT t.* FROM (SELECT t.* FROM x t ) t  WHERE t.c0 BETWEEN 1 AND 1000000");
    br_query_unref(q);
  }
  br_arena_free(a);
}

/* What was decided holds, whatever is counted later. */
static void test_decided_once(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  br_query *q = query();
  ran(q, (facts){.keys = 10000, .of = 100000, .rows = 500000, .least = 1, .greatest = 1000000});
  q->runs[0].rows_out += 7777; /* made again by chance */
  assert_non_null(strstr(br_task_sql(q, 1, 0, a), ", 469)"));
  assert_non_null(strstr(br_task_sql(q, 2, 0, a), "keys_maybe("));
  br_query_unref(q);
  br_arena_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_when_it_pays), cmocka_unit_test(test_texts),
                                     cmocka_unit_test(test_decided_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
