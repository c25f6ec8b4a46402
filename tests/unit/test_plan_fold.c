/* SPDX-License-Identifier: Apache-2.0
 * links: br_plan
 * The text of a stage that another one takes in: inputs and filters numbered anew, quotes left alone, and a hash join that became a
 * broadcast join. Whether what it gives is right is asked of DuckDB in test_plan_distribute.c. And where stages of few rows may become
 * one task. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "plan/stage/stage.h"

static const char *types[] = {"BIGINT", "VARCHAR"};
static const br_split_key key[] = {{.text = "t.c1", .hashed_as = "BIGINT"}};
static const br_split_key tried[] = {{.text = "TRY(t.c0 + 1)", .hashed_as = "BIGINT"}};

/* 0: the small side; 1: the other one, filtered by its keys; 2: another small side, later; 3: joins 0 and 1; 4: joins 2 and 3 */
static br_stages *plan(br_arena *a) {
  br_stages *s = br_arena_alloc(a, sizeof *s);
  s->arena = a;
  s->stages = br_arena_alloc(a, 5 * sizeof *s->stages);
  s->n_stages = 5;
  br_stage *st = s->stages;
  for (uint32_t i = 0; i < 5; i++) {
    st[i] = (br_stage){.id = i, .types = types, .n_columns = 2, .split_scan = -1, .partitions = 4, .label = "x"};
    st[i].output = i < 4 ? BR_EX_HASH : BR_EX_RESULT;
    st[i].inputs = br_arena_alloc(a, 3 * sizeof *st[i].inputs);
    st[i].scans = br_arena_alloc(a, sizeof *st[i].scans);
    st[i].rule = i < 3 ? BR_TASKS_SPLITS : BR_TASKS_PARTITIONS;
    if (i >= 3) continue;
    st[i].n_scans = 1;
    st[i].split_scan = 0;
    st[i].scans[0] = (br_stage_scan){.number = i, .token = br_arena_printf(a, "__scan%u__", i)};
    st[i].sql = br_arena_printf(a, "SELECT c0, c1, 0 AS c2 FROM __scan%u__", i);
  }
  st[1].n_inputs = 1;
  st[1].inputs[0] = (br_stage_input){.producer = 0, .kind = BR_EX_FILTER};
  st[1].sql =
      "SELECT t.c0, t.c1, 0 AS c2 FROM __scan1__ t /* filter 0: */ SEMI JOIN input(0) f ON k /* end of filter */"
      " /* range of filter 0 */";
  st[3].n_inputs = 3;
  st[3].inputs[0] = (br_stage_input){
      .number = 0, .producer = 0, .kind = BR_EX_HASH, .side = 1, .keys = key, .n_keys = 1, .null_keys_go = true};
  st[3].inputs[1] = (br_stage_input){.number = 1, .producer = 1, .kind = BR_EX_HASH, .side = 2};
  st[3].inputs[2] = (br_stage_input){.number = 2, .producer = 2, .kind = BR_EX_FILTER};
  st[3].sql =
      "SELECT 'input(1)' FROM input(0) a JOIN input(1) b /* filter 2: */ SEMI JOIN input(2) f /* end of filter */"
      "/* range of filter 2 */";
  st[4].n_inputs = 2;
  st[4].inputs[0] = (br_stage_input){
      .number = 0, .producer = 2, .kind = BR_EX_HASH, .keys = tried, .n_keys = 1, .null_keys_go = true};
  st[4].inputs[1] = (br_stage_input){.number = 1, .producer = 3, .kind = BR_EX_HASH, .side = 9};
  st[4].sql = "SELECT \"input(0)\" FROM input(0) i, my_input(1), input(1)";
  return s;
}

static br_stage join(br_stages *s, uint32_t producer, uint32_t want) {
  uint32_t reader = 99, input = 99;
  assert_true(br_stage_may_join_in_place(s, producer, &reader, &input));
  assert_int_equal(reader, want);
  return br_stage_join_in_place(s->arena, s, producer, reader, input);
}

static void a_side_is_read_whole(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  br_stages *s = plan(a);
  br_stage j = join(s, 1, 3);
  assert_string_equal(j.sql,
                      "SELECT 'input(1)' FROM (SELECT t.* FROM input(0) t WHERE (t.c1) IS NOT NULL) a JOIN "
                      "(SELECT t.c0, t.c1 FROM (\nSELECT t.c0, t.c1, 0 AS c2 FROM __scan1__ t  \n) t) b "
                      "/* filter 1: */ SEMI JOIN input(1) f /* end of filter *//* range of filter 1 */");
  assert_int_equal(j.rule, BR_TASKS_SPLITS);
  assert_int_equal(j.split_scan, 0);
  assert_int_equal(j.n_scans, 1);
  assert_string_equal(j.scans[0].token, "__scan1__");
  assert_int_equal(j.n_inputs, 2);
  assert_int_equal(j.inputs[0].kind, BR_EX_BROADCAST);
  assert_int_equal(j.inputs[0].producer, 0);
  assert_int_equal(j.inputs[0].side, 0);
  assert_int_equal(j.inputs[1].kind, BR_EX_FILTER);
  assert_int_equal(j.inputs[1].producer, 2);
  assert_int_equal(j.inputs[1].number, 1);
  assert_int_equal(j.output, BR_EX_HASH);
  assert_int_equal(s->stages[3].inputs[0].kind, BR_EX_HASH); /* the plan was not touched */
  br_arena_free(a);
}

/* Cut by the keys that the join was hashed by: its rows where they are made, and the sides that are read whole. */
static void passes_of_a_join_in_place(void **state) {
  (void)state;
  static const br_split_key other[] = {{.text = "t.c0", .hashed_as = "BIGINT"}};
  for (int chance = 0; chance < 2; chance++) {
    br_arena *a = br_arena_new();
    br_stages *s = plan(a);
    s->stages[1].chance = chance;
    s->stages[3].inputs[1].keys = other;
    s->stages[3].inputs[1].n_keys = 1;
    br_stage j = join(s, 1, 3);
    assert_int_equal(br_stage_splittable(&j), !chance);
    if (!chance)
      assert_string_equal(
          br_stage_pass_sql(a, &j, j.sql, 4, 2),
          "SELECT 'input(1)' FROM (SELECT t.* FROM (SELECT t.* FROM input(0) t WHERE hash(t.c1, " BR_HASH_SEED_SPLIT
          ") % 4 = 2) t WHERE (t.c1) IS NOT NULL) a JOIN (SELECT t.c0, t.c1 FROM (\nSELECT t.c0, t.c1, 0 AS c2 FROM "
          "__scan1__ t  \n) t WHERE hash(t.c0, " BR_HASH_SEED_SPLIT
          ") % 4 = 2) b /* filter 1: */ SEMI JOIN input(1) f /* end of filter *//* range of filter 1 */");
    s->stages[3] = j; /* within the next join its own passes are gone */
    s->stages[1].n_inputs = 0;
    br_stage k = join(s, 3, 4);
    assert_false(br_stage_splittable(&k));
    assert_null(strstr(k.sql, BR_PASS_HERE));
    assert_int_equal(k.inputs[0].n_keys, 0);
    br_arena_free(a);
  }
}

/* The join goes into the next one, with all that it took in. */
static void joins_follow_each_other(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  br_stages *s = plan(a);
  s->stages[3] = join(s, 1, 3);
  s->stages[1].n_inputs = 0;
  br_stage j = join(s, 3, 4);
  assert_string_equal(j.sql,
                      "SELECT \"input(0)\" FROM input(1) i, my_input(1), (SELECT t.c0, t.c1 FROM (\n"
                      "SELECT 'input(1)' FROM (SELECT t.* FROM input(0) t WHERE (t.c1) IS NOT NULL) a JOIN "
                      "(SELECT t.c0, t.c1 FROM (\nSELECT t.c0, t.c1, 0 AS c2 FROM __scan1__ t  \n) t) b \n) t)");
  assert_int_equal(j.n_inputs, 2);
  assert_int_equal(j.inputs[0].producer, 0);
  assert_int_equal(j.inputs[1].producer, 2);
  assert_int_equal(j.inputs[1].number, 1);
  assert_int_equal(j.inputs[1].kind, BR_EX_BROADCAST);
  assert_int_equal(j.rule, BR_TASKS_SPLITS);
  br_arena_free(a);
}

static void what_is_read_whole_may_be_beside(void **state) {
  (void)state;
  static const br_exchange_kind kinds[] = {BR_EX_BROADCAST, BR_EX_BOUNDS, BR_EX_FILTER, BR_EX_WAIT};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    br_arena *a = br_arena_new();
    br_stages *s = plan(a);
    uint32_t reader, input;
    s->stages[3].inputs[2].kind = kinds[i];
    assert_true(br_stage_may_join_in_place(s, 1, &reader, &input));
    br_arena_free(a);
  }
}

static void refuse(void (*change)(br_stage *st)) {
  br_arena *a = br_arena_new();
  br_stages *s = plan(a);
  uint32_t reader, input;
  change(s->stages);
  assert_false(br_stage_may_join_in_place(s, 1, &reader, &input));
  br_arena_free(a);
}

static void shared_side(br_stage *st) { st[3].inputs[0].side = 2; }
static void no_side(br_stage *st) { st[3].inputs[1].side = 0; }
static void read_twice(br_stage *st) { st[4].inputs[0].producer = 1; }
static void in_order(br_stage *st) { st[3].inputs[0].ordered = true; }
static void asked_for(br_stage *st) { st[0].fixed_partitions = true; }
static void one_task(br_stage *st) { st[1].rule = BR_TASKS_ONE; }
static void numbered(br_stage *st) { st[1].sql = "SELECT " BR_TASK_NUMBER; }
static void in_batches(br_stage *st) { st[1].batch_rows = 7; }
static void alone(br_stage *st) { st[3].inputs[0].kind = BR_EX_BROADCAST; }
static void by_range(br_stage *st) { st[3].inputs[0].kind = BR_EX_RANGE; }
static void with_steps(br_stage *st) { st[3].n_steps = 1; }
static void sorted(br_stage *st) { st[3].ordered_output = true; }

static void where_it_would_be_wrong(void **state) {
  (void)state;
  void (*const changes[])(br_stage *) = {shared_side, no_side,    read_twice, in_order, asked_for,  one_task,
                                         numbered,    in_batches, alone,      by_range, with_steps, sorted};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) refuse(changes[i]);
}

/* ---- few rows */

static void reads(br_stage *s, uint32_t producer, br_exchange_kind kind) {
  s->inputs[s->n_inputs] = (br_stage_input){.number = (uint32_t)s->n_inputs, .producer = producer, .kind = kind};
  s->n_inputs++;
}

/* 0: rows; 1: their sample; 2: its bounds; 3: places the rows; 4: sorts them; 5, 6: follow task by task; 7: reads 6 by hash; 8: follows.
 * Stage `much` goes on with this text, which should matter nowhere else. */
static br_stages *sorted_rows(br_arena *a, uint32_t much, const char *text) {
  static const br_exchange_kind outputs[] = {BR_EX_FORWARD, BR_EX_SINGLE, BR_EX_BOUNDS,  BR_EX_RANGE, BR_EX_FORWARD,
                                             BR_EX_FORWARD, BR_EX_HASH,   BR_EX_FORWARD, BR_EX_RESULT};
  static const uint32_t producers[] = {0, 0, 1, 0, 3, 4, 5, 6, 7};
  br_stages *s = br_arena_alloc(a, sizeof *s);
  s->arena = a;
  s->n_stages = sizeof producers / sizeof *producers;
  s->stages = br_arena_alloc(a, s->n_stages * sizeof *s->stages);
  for (uint32_t i = 0; i < s->n_stages; i++) {
    br_stage *st = &s->stages[i];
    *st = (br_stage){.id = i, .types = types, .n_columns = 2, .split_scan = -1, .partitions = 4, .label = "x"};
    st->sql = br_arena_printf(a, "SELECT l.* FROM input(0) l %s", i == much ? text : "WHERE c1 > 0");
    st->output = outputs[i];
    st->rule = BR_TASKS_FORWARD;
    st->inputs = br_arena_alloc(a, 2 * sizeof *st->inputs);
    if (i > 0) reads(st, producers[i], outputs[producers[i]]);
  }
  s->stages[0].rule = BR_TASKS_SPLITS;
  s->stages[2].rule = BR_TASKS_ONE;
  s->stages[4].rule = s->stages[7].rule = BR_TASKS_PARTITIONS;
  reads(&s->stages[3], 2, BR_EX_BOUNDS);
  return s;
}

/* One task of the sort is one of those that follow it, up to where rows go by hash; so for stages that are gathered or chained. */
static void much_work_keeps_its_tasks(void **state) {
  static const struct {
    const char *text;
    bool much;
  } texts[] = {{"JOIN t ON l.c0 < t.c0", true},
               {"\nCROSS JOIN t", true},
               {"JOIN (\nSELECT * FROM t JOIN u ON t.c0 = u.c0) t ON t.c0 > l.c0", true},
               {"WHERE \"minhash\"(l.c0)[1] > 0", true},
               {"JOIN t ON l.c0 = t.c0 AND l.c1 < t.c1", false},
               {"JOIN t ON l.c0 IS NOT DISTINCT FROM t.c0", false},
               {"CROSS " BR_JOIN_ONE_ROW "t", false},
               {"WHERE l.c0 = ' JOIN t ON \"minhash\"'", false}};
  (void)state;
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
    for (uint32_t i = 0; i < 9; i++) {
      br_arena *a = br_arena_new();
      br_stages *s = sorted_rows(a, i, texts[t].text);
      br_sort_stages of;
      uint32_t reader, input;
      bool much = texts[t].much;
      assert_int_equal(br_stage_may_sort_at_once(s, 1, &of), !(much && i >= 3 && i <= 6));
      assert_int_equal(br_stage_may_gather(s, 5), !(much && i >= 5 && i <= 6));
      assert_int_equal(br_stage_may_chain(s, 6, &reader, &input), !(much && i >= 6));
      s->stages[7].rule = BR_TASKS_ONE; /* it has one task anyway */
      s->stages[7].inputs[0].kind = s->stages[6].output = BR_EX_SINGLE;
      assert_int_equal(br_stage_may_chain(s, 6, &reader, &input), !(much && i >= 6 && i <= 7));
      br_arena_free(a);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_side_is_read_whole),    cmocka_unit_test(passes_of_a_join_in_place),
      cmocka_unit_test(joins_follow_each_other), cmocka_unit_test(what_is_read_whole_may_be_beside),
      cmocka_unit_test(where_it_would_be_wrong), cmocka_unit_test(much_work_keeps_its_tasks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
