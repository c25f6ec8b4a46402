/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * Stages planned again with true sizes, without processes: how many tasks they get, and what each reads. The plan is made by hand:
 *
 *   0 splits, HASH into 8     1 splits, HASH into 8     2 partitions: hash(0), hash(1); SINGLE
 *   3 forward: 2              4 one: 3
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

#define PARTS 8
#define MIB (1ull << 20)

static const char *types[] = {"BIGINT"};

static br_stage *stage(br_stages *p, br_task_rule rule, br_exchange_kind output, uint32_t partitions) {
  br_stage *s = &p->stages[p->n_stages];
  *s = (br_stage){.id = (uint32_t)p->n_stages++,
                  .sql = "SELECT 1",
                  .types = types,
                  .n_columns = 1,
                  .split_scan = -1,
                  .rule = rule,
                  .output = output,
                  .partitions = partitions};
  s->inputs = br_arena_alloc(p->arena, 3 * sizeof *s->inputs);
  return s;
}

static void reads(br_stage *s, uint32_t producer, br_exchange_kind kind) {
  s->inputs[s->n_inputs] = (br_stage_input){.number = (uint32_t)s->n_inputs, .producer = producer, .kind = kind};
  s->n_inputs++;
}

static br_query *query(uint32_t slots, uint64_t target) {
  br_error err;
  br_arena *a = br_arena_new();
  br_stages *p = br_arena_alloc(a, sizeof *p);
  p->arena = a;
  p->stages = br_arena_alloc(a, 5 * sizeof *p->stages);
  stage(p, BR_TASKS_SPLITS, BR_EX_HASH, PARTS);
  stage(p, BR_TASKS_SPLITS, BR_EX_HASH, PARTS);
  br_stage *join = stage(p, BR_TASKS_PARTITIONS, BR_EX_FORWARD, 1);
  reads(join, 0, BR_EX_HASH);
  reads(join, 1, BR_EX_HASH);
  reads(stage(p, BR_TASKS_FORWARD, BR_EX_SINGLE, 1), 2, BR_EX_FORWARD);
  reads(stage(p, BR_TASKS_ONE, BR_EX_RESULT, 1), 3, BR_EX_SINGLE);
  br_query *q = br_query_new(1);
  q->stages = p;
  q->n_runs = p->n_stages;
  q->runs = br_calloc(q->n_runs, sizeof *q->runs);
  q->adaptive = true;
  q->slots = slots;
  q->task_target_bytes = target;
  for (size_t i = 0; i < q->n_runs; i++) q->runs[i].plan = &p->stages[i];
  for (size_t i = 0; i < 2; i++) {
    q->runs[i].n_tasks = 4;
    q->runs[i].split_sql = br_calloc(4, sizeof(char *));
    for (size_t k = 0; k < 4; k++) q->runs[i].split_sql[k] = br_strdup("(SELECT 1)");
  }
  assert_int_equal(br_query_count_tasks(q, &err), BR_OK);
  return q;
}

static void sizes(br_query *q, uint32_t stage, const uint64_t *bytes) {
  br_stage_run *r = &q->runs[stage];
  for (uint32_t p = 0; p < PARTS; p++) {
    r->partition_bytes[p] = bytes[p];
    r->partition_rows[p] = bytes[p] / 8;
    r->bytes_out += bytes[p];
    r->rows_out += bytes[p] / 8;
  }
  for (uint32_t t = 0; t < r->n_tasks; t++) {
    r->tasks[t].done = true;
    r->tasks[t].rows_out = r->rows_out / r->n_tasks;
  }
  r->done = r->n_tasks;
}

/* Each partition of all inputs once, in order. */
static void covers(const br_query *q, uint32_t stage) {
  uint32_t next = 0;
  for (uint32_t t = 0; t < q->runs[stage].n_tasks; t++) {
    assert_int_equal(q->runs[stage].slices[t].first, next);
    next = q->runs[stage].slices[t].last;
  }
  assert_int_equal(next, PARTS);
}

static void test_small_partitions_become_one(void **state) {
  (void)state;
  br_query *q = query(4, 64 * MIB);
  uint64_t small[PARTS] = {100, 0, 50, 10, 0, 0, 7, 1000};
  sizes(q, 0, small);
  sizes(q, 1, small);
  assert_true(br_query_adapts(q, 2));
  assert_true(br_query_adapts(q, 3)); /* few rows that follow these would be gathered in one task */
  br_query_adapt(q, 2);
  assert_int_equal(q->runs[2].n_tasks, 1);
  assert_int_equal(q->runs[3].n_tasks, 1); /* follows it task by task */
  covers(q, 2);
  assert_string_equal(q->runs[2].adapted, "coalesced 8 → 1");
  br_query_unref(q);
}

/* Here, or in a stage that follows task by task; not behind that one's exchange. */
static void test_few_rows_of_much_work_are_shared_out(void **state) {
  static const struct {
    const char *sql;
    uint32_t stage, tasks;
  } cases[] = {{"SELECT * FROM input(0) a JOIN input(1) b ON a.c0 < b.c0", 2, 4},
               {"SELECT \"minhash\"(c0) FROM input(0)", 3, 4},
               {"SELECT * FROM input(0) a JOIN input(1) b ON a.c0 < b.c0", 3, 4},
               {"SELECT * FROM input(0) a JOIN input(1) b ON a.c0 = b.c0", 3, 1},
               {"SELECT * FROM input(0) a JOIN input(1) b ON a.c0 < b.c0", 4, 1}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t few[PARTS] = {8, 8, 8, 8, 8, 8, 8, 8};
    br_query *q = query(4, 64 * MIB);
    q->stages->stages[cases[i].stage].sql = cases[i].sql;
    sizes(q, 0, few);
    sizes(q, 1, few);
    br_query_adapt(q, 2);
    assert_int_equal(q->runs[3].n_tasks, cases[i].tasks); /* one task may do what stage 2 does, too */
    if (cases[i].tasks > 1) {
      assert_int_equal(q->runs[2].n_tasks, cases[i].tasks);
      covers(q, 2);
    }
    br_query_unref(q);
  }
}

static void test_as_many_as_slots_when_it_is_much(void **state) {
  (void)state;
  br_query *q = query(4, 64 * MIB);
  uint64_t even[PARTS];
  for (int p = 0; p < PARTS; p++) even[p] = 4 * MIB;
  sizes(q, 0, even);
  sizes(q, 1, even);
  br_query_adapt(q, 2);
  assert_int_equal(q->runs[2].n_tasks, 4);
  covers(q, 2);
  br_query_unref(q);
}

static void test_large_ones_stay(void **state) {
  (void)state;
  br_query *q = query(2, 64 * MIB);
  uint64_t large[PARTS];
  for (int p = 0; p < PARTS; p++) large[p] = 200 * MIB;
  sizes(q, 0, large);
  br_query_adapt(q, 2);
  assert_int_equal(q->runs[2].n_tasks, PARTS);
  covers(q, 2);
  assert_null(q->runs[2].adapted);
  br_query_unref(q);
}

static void test_the_number_stays_where_it_was_asked_for(void **state) {
  (void)state;
  uint64_t small[PARTS] = {8, 8, 8, 8, 8, 8, 8, 8};
  br_query *q = query(2, 64 * MIB);
  q->stages->stages[1].fixed_partitions = true;
  sizes(q, 0, small);
  br_query_adapt(q, 2);
  assert_int_equal(q->runs[2].n_tasks, PARTS);
  assert_null(q->runs[2].slices);
  br_query_unref(q);
  q = query(2, 0); /* partitions were given */
  sizes(q, 0, small);
  br_query_adapt(q, 2);
  assert_int_equal(q->runs[2].n_tasks, PARTS);
  br_query_unref(q);
  q = query(2, 1);
  q->adaptive = false;
  assert_false(br_query_adapts(q, 2));
  br_query_unref(q);
}

static void test_no_keys_no_tasks(void **state) {
  (void)state;
  uint64_t none[PARTS] = {0};
  for (int chance = 0; chance < 2; chance++) {
    br_query *q = query(2, 1);
    q->stages->stages[0].indeterminate = chance;
    reads(&q->stages->stages[1], 0, BR_EX_FILTER);
    q->filter_bytes = 1000;
    sizes(q, 0, none);
    assert_true(br_query_adapts(q, 1));
    br_query_adapt(q, 1);
    assert_int_equal(q->runs[1].n_tasks, chance ? 4 : 0); /* made again it might have some */
    br_query_unref(q);
  }
}

static uint32_t version(void *arg, uint32_t s) {
  (void)arg;
  return s;
}

static void test_no_rows_no_tasks(void **state) {
  static const struct {
    bool chance, other_has_rows, own_beside, other_beside, none; /* `other` is not empty, if it has rows */
  } cases[] = {{.none = true},
               {.chance = true},
               {.other_has_rows = true},
               {.other_has_rows = true, .own_beside = true},
               {.other_has_rows = true, .other_beside = true, .none = true},
               {.other_has_rows = true, .own_beside = true, .other_beside = true, .none = true},
               {.other_has_rows = true, .own_beside = true, .other_beside = true, .chance = true}};
  (void)state;
  uint64_t none[PARTS] = {0}, some[PARTS] = {8};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_query *q = query(2, 1);
    br_stage *st = q->stages->stages;
    st[0].indeterminate = st[1].indeterminate = cases[i].chance;
    st[2].inputs[0].beside_others = cases[i].own_beside;
    st[2].inputs[1].beside_others = cases[i].other_beside;
    sizes(q, 0, none);
    sizes(q, 1, cases[i].other_has_rows ? some : none);
    br_query_adapt(q, 2);
    assert_int_equal(q->runs[2].n_tasks == 0, cases[i].none);
    assert_int_equal(q->runs[3].n_tasks, q->runs[2].n_tasks); /* follows it */
    br_query_unref(q);
  }
}

/* Tasks of stage 0 that start after n of its 4 were done, of so many rows and groups each. */
static uint32_t of_rows_after(br_query *q, uint32_t n, uint64_t rows, uint64_t groups) {
  Brant__Pb__TaskStats s = BRANT__PB__TASK_STATS__INIT;
  br_arena *a = br_arena_new();
  uint32_t count = 0;
  s.grouped_rows = rows;
  s.groups = groups;
  q->slots = 2; /* nobody starts late enough to learn */
  assert_false(br_task_message(q, &(br_attempt_id){.query = 1, .attempt = 1}, version, NULL, a)->count_groups);
  q->slots = 1;
  for (uint32_t t = 0; t < 4; t++) {
    br_attempt_id id = {.query = 1, .stage = 0, .task = t, .attempt = 1};
    bool told = br_groups_decide(q, &id);
    Brant__Pb__Task *m = br_task_message(q, &id, version, NULL, a);
    bool of_rows = strstr(m->sql, "SELECT c0, 1 FROM") != NULL;
    assert_int_equal(strstr(m->sql, "GROUP BY") == NULL, of_rows);
    assert_int_equal(m->count_groups, !of_rows);
    assert_int_equal(told, of_rows && count == 0);
    count += of_rows;
    if (t < n) br_groups_count(&q->runs[0], &s);
  }
  assert_int_equal(q->runs[0].tasks_of_rows, count);
  br_arena_free(a);
  return count;
}

static br_query *query_of_groups(void) {
  br_query *q = query(2, 1);
  br_stage *st = q->stages->stages;
  st[0].sql =
      "SELECT " BR_GROUPS_BEGIN "c0, count(*)" BR_GROUPS_END " FROM zero" BR_GROUPS_BEGIN " GROUP BY c0" BR_GROUPS_END;
  st[0].row_columns = "c0, 1";
  return q;
}

static void test_rows_that_are_groups_of_their_own(void **state) {
  static const struct {
    uint64_t rows, groups;
    uint32_t after, want;
  } cases[] = {{5000, 3300, 1, 3}, {5000, 3299, 1, 0}, {2500, 2500, 2, 2},
               {5000, 5000, 2, 3}, {5000, 1, 4, 0},    {0, 0, 4, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_query *q = query_of_groups();
    assert_int_equal(of_rows_after(q, cases[i].after, cases[i].rows, cases[i].groups), cases[i].want);
    br_query_unref(q);
  }
  br_query *q = query_of_groups();
  q->adaptive = false;
  Brant__Pb__TaskStats s = BRANT__PB__TASK_STATS__INIT;
  s.grouped_rows = s.groups = 100000;
  br_groups_count(&q->runs[0], &s);
  assert_false(br_groups_decide(q, &(br_attempt_id){.query = 1, .task = 1, .attempt = 1}));
  assert_false(q->runs[0].tasks[1].of_rows);
  br_query_unref(q);
}

/* Whatever is seen meanwhile: a task that runs again gives the same rows. */
static void test_a_task_keeps_its_form(void **state) {
  (void)state;
  br_query *q = query_of_groups();
  br_arena *a = br_arena_new();
  br_attempt_id early = {.query = 1, .task = 1, .attempt = 1}, late = {.query = 1, .task = 2, .attempt = 1};
  Brant__Pb__TaskStats s = BRANT__PB__TASK_STATS__INIT;
  assert_false(br_groups_decide(q, &early));
  s.grouped_rows = s.groups = 10000;
  br_groups_count(&q->runs[0], &s);
  assert_true(br_groups_decide(q, &late));
  early.attempt = late.attempt = 2;
  assert_false(br_groups_decide(q, &early));
  s.grouped_rows = 1000000;
  s.groups = 1;
  br_groups_count(&q->runs[0], &s);
  assert_false(br_groups_decide(q, &late));
  assert_non_null(strstr(br_task_message(q, &early, version, NULL, a)->sql, "GROUP BY"));
  assert_null(strstr(br_task_message(q, &late, version, NULL, a)->sql, "GROUP BY"));
  assert_string_equal(q->runs[0].adapted, "rows move as they are: 10000 rows were 10000 groups");
  br_arena_free(a);
  br_query_unref(q);
}

static bool pays(uint64_t keys, uint64_t of, uint64_t bytes, uint32_t key_bytes, uint64_t rows) {
  br_query *q = query(2, 1);
  reads(&q->stages->stages[1], 0, BR_EX_FILTER);
  br_stage_input *in = &q->stages->stages[1].inputs[0];
  in->key_bytes = key_bytes;
  q->filter_bytes = 8000;
  q->runs[0].rows_out = keys;
  q->runs[0].split_rows = of;
  q->runs[0].bytes_out = bytes;
  q->runs[1].split_rows = rows;
  bool out = br_filter_pays(q, &q->runs[1], in);
  br_query_unref(q);
  return out;
}

static void test_filters_that_pay(void **state) {
  (void)state;
  assert_true(pays(1000, 5000, 8000, 8, 4000)); /* a quarter of the rows to be looked at, as many bytes as may be */
  assert_false(pays(1000, 5000, 8000, 8, 3999));
  assert_true(pays(1000, 5000, 32000, 8, 4000)); /* the keys alone count, their batches within bounds */
  assert_false(pays(1000, 5000, 32000, 0, 4000));
  assert_false(pays(1000, 5000, 32001, 8, 4000));
  assert_false(pays(1001, 5000, 32000, 8, 40000));
  assert_false(pays(1000, 1000, 8000, 8, 63999)); /* all rows of a table: most of the others find a partner */
  assert_true(pays(1000, 1000, 8000, 8, 64000));
}

static void test_what_a_task_reads(void **state) {
  (void)state;
  br_query *q = query(2, 1000);
  uint64_t sized[PARTS] = {100, 100, 100, 900, 100, 100, 100, 100};
  br_arena *a = br_arena_new();
  sizes(q, 0, sized);
  br_query_adapt(q, 2);
  uint32_t next = 0;
  for (uint32_t t = 0; t < q->runs[2].n_tasks; t++) {
    br_attempt_id id = {.query = 1, .stage = 2, .task = t, .attempt = 1};
    Brant__Pb__Task *m = br_task_message(q, &id, version, NULL, a);
    assert_int_equal(m->n_inputs, 2);
    for (size_t i = 0; i < 2; i++) {
      assert_int_equal(m->inputs[i]->ref->first, next);
      assert_int_equal(m->inputs[i]->ref->last, q->runs[2].slices[t].last);
      assert_int_equal(m->inputs[i]->ref->map_last, 4);
    }
    uint64_t rows = 0;
    for (uint32_t p = next; p < q->runs[2].slices[t].last; p++) rows += sized[p] / 8;
    assert_true(m->inputs[0]->rows_known);
    assert_int_equal(m->inputs[0]->rows, rows);
    next = q->runs[2].slices[t].last;
  }
  assert_int_equal(next, PARTS);
  br_arena_free(a);
  br_query_unref(q);
}

/* A partition with most of the rows: the map outputs of one side are shared out, the other side is read whole by all. */
static void test_a_large_partition_is_split(void **state) {
  (void)state;
  br_query *q = query(2, 64 * MIB);
  uint64_t skewed[PARTS], few[PARTS];
  for (int p = 0; p < PARTS; p++) skewed[p] = p == 3 ? 90 * MIB : MIB, few[p] = MIB / 8;
  q->stages->stages[2].inputs[0].side = 1;
  q->stages->stages[2].inputs[1].side = 2;
  sizes(q, 0, skewed);
  sizes(q, 1, few);
  br_query_adapt(q, 2);
  br_stage_run *r = &q->runs[2];
  assert_non_null(strstr(r->adapted, "partition 3 split in 4"));
  br_arena *a = br_arena_new();
  uint32_t next = 0, map = 0, split = 0;
  for (uint32_t t = 0; t < r->n_tasks; t++) {
    br_attempt_id id = {.query = 1, .stage = 2, .task = t, .attempt = 1};
    Brant__Pb__Task *m = br_task_message(q, &id, version, NULL, a);
    const Brant__Pb__PartitionRef *large = m->inputs[0]->ref, *other = m->inputs[1]->ref;
    assert_int_equal(other->map_first, 0);
    assert_int_equal(other->map_last, 4);
    assert_int_equal(large->first, other->first);
    assert_int_equal(large->last, other->last);
    if (large->map_first == 0 && large->map_last == 4) {
      assert_int_equal(large->first, next);
      next = large->last;
      continue;
    }
    assert_int_equal(large->first, 3);
    assert_int_equal(large->map_first, map);
    assert_true(large->map_last > map && !m->inputs[0]->rows_known && m->inputs[1]->rows_known);
    map = large->map_last;
    if (++split == 4) next = 4;
  }
  assert_int_equal(map, 4);
  assert_int_equal(next, PARTS);
  br_arena_free(a);
  br_query_unref(q);
}

static void test_what_must_be_together_is_not_split(void **state) {
  (void)state;
  uint64_t skewed[PARTS] = {90 * MIB, 1, 1, 1, 1, 1, 1, 1};
  br_query *q = query(2, 64 * MIB); /* neither side may be */
  sizes(q, 0, skewed);
  sizes(q, 1, skewed);
  br_query_adapt(q, 2);
  covers(q, 2);
  br_query_unref(q);
  q = query(2, 64 * MIB); /* the side that may is much the smaller one */
  uint64_t few[PARTS] = {MIB, 1, 1, 1, 1, 1, 1, 1};
  q->stages->stages[2].inputs[1].side = 1;
  sizes(q, 0, skewed);
  sizes(q, 1, few);
  br_query_adapt(q, 2);
  covers(q, 2);
  br_query_unref(q);
}

/* A side of two inputs (UNION ALL): their map outputs follow each other, and each is in one task. */
static void test_a_side_of_two_inputs(void **state) {
  (void)state;
  uint64_t skewed[PARTS] = {90 * MIB, 1, 1, 1, 1, 1, 1, 1};
  br_query *q = query(2, 64 * MIB);
  q->stages->stages[2].inputs[0].side = q->stages->stages[2].inputs[1].side = 7;
  sizes(q, 0, skewed);
  sizes(q, 1, skewed);
  br_query_adapt(q, 2);
  br_arena *a = br_arena_new();
  uint32_t read[2] = {0, 0};
  for (uint32_t t = 0; t < q->runs[2].n_tasks && q->runs[2].slices[t].side; t++) {
    br_attempt_id id = {.query = 1, .stage = 2, .task = t, .attempt = 1};
    Brant__Pb__Task *m = br_task_message(q, &id, version, NULL, a);
    for (int i = 0; i < 2; i++) {
      if (m->inputs[i]->ref->map_last == m->inputs[i]->ref->map_first) continue;
      assert_int_equal(m->inputs[i]->ref->map_first, read[i]);
      read[i] = m->inputs[i]->ref->map_last;
    }
  }
  assert_int_equal(read[0], 4);
  assert_int_equal(read[1], 4);
  br_arena_free(a);
  br_query_unref(q);
}

/* Stage 1 waits for stage 0, whose keys filter it, and goes into the join: with 4 tasks, of 4,000 rows to read. */
static br_query *query_in_place(uint64_t rows_of_0) {
  uint64_t bytes[PARTS];
  for (int i = 0; i < PARTS; i++) bytes[i] = rows_of_0;
  br_query *q = query(2, 64 * MIB);
  br_stage *st = q->stages->stages;
  st[0].sql = "SELECT c0, 0 AS c1 FROM zero";
  st[1].sql = "SELECT c0, 0 AS c1 FROM one /* filter 0: */ SEMI JOIN input(0) f /* end of filter */";
  st[2].sql = "SELECT a.c0 FROM input(0) a JOIN input(1) b USING (c0)";
  reads(&st[1], 0, BR_EX_FILTER);
  st[2].inputs[0].side = 1;
  st[2].inputs[1].side = 2;
  q->runs[1].split_rows = 4000;
  q->broadcast_bytes = 8 * rows_of_0;
  sizes(q, 0, bytes);
  return q;
}

static void test_rows_are_joined_where_they_are_made(void **state) {
  (void)state;
  br_query *q = query_in_place(250); /* rows: an eighth of 8 * 250 bytes */
  br_arena *a = br_arena_new();
  char *split = q->runs[1].split_sql[3];
  assert_true(br_query_adapts(q, 1));
  br_query_adapt(q, 1);
  assert_int_equal(q->runs[1].n_tasks, 0);
  assert_int_equal(q->runs[2].n_tasks, 4);
  assert_int_equal(q->runs[3].n_tasks, 4); /* reads task by task */
  assert_ptr_equal(q->runs[2].split_sql[3], split);
  assert_int_equal(q->runs[2].split_rows, 4000);
  assert_int_equal(q->runs[1].split_rows, 0);
  assert_string_equal(q->runs[1].adapted, "runs in stage 2");
  assert_string_equal(q->runs[2].adapted,
                      "broadcast join: the other side of stage 1 has 2.0 KiB, each task reads all of it");
  br_attempt_id id = {.query = 1, .stage = 2, .task = 3, .attempt = 1};
  Brant__Pb__Task *m = br_task_message(q, &id, version, NULL, a);
  assert_int_equal(m->n_inputs, 1);
  assert_int_equal(m->inputs[0]->ref->stage, 0);
  assert_int_equal(m->inputs[0]->ref->first, 0);
  assert_int_equal(m->inputs[0]->ref->last, PARTS);
  assert_int_equal(m->inputs[0]->ref->map_last, 4);
  assert_true(m->inputs[0]->rows_known);
  assert_int_equal(m->inputs[0]->rows, 250 / 8 * PARTS);
  assert_null(strstr(m->sql, "SEMI"));
  br_query_adapt(q, 2); /* the join is asked for, too: nothing is left to do */
  assert_int_equal(q->runs[2].n_tasks, 4);
  br_arena_free(a);
  br_query_unref(q);
}

static void test_what_is_large_or_late_is_shuffled(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++) {
    br_query *q =
        query_in_place(i == 0 ? 300 : 250); /* 0: building that four times costs more than reading 4,000 rows */
    if (i == 1) q->broadcast_bytes--;
    if (i == 2) q->runs[0].done--;
    if (i == 3) q->runs[1].started = 1;
    if (i == 4) q->stages->stages[2].inputs[1].side = 0;
    br_query_adapt(q, 1);
    assert_int_equal(q->runs[1].n_tasks, 4);
    assert_int_equal(q->runs[2].n_tasks, PARTS);
    assert_null(q->runs[2].adapted);
    br_query_unref(q);
  }
}

/* What the join gives is filtered for the next one, not all that its tasks read now. */
static void test_filters_of_a_join_in_place(void **state) {
  (void)state;
  br_query *q = query_in_place(250);
  br_stage *join = &q->stages->stages[2];
  reads(join, 0, BR_EX_FILTER);
  join->rows = 300;
  q->filter_bytes = MIB;
  br_query_adapt(q, 1);
  join = &q->stages->stages[2];
  assert_int_equal(join->inputs[join->n_inputs - 1].kind, BR_EX_FILTER);
  assert_false(br_filter_pays(q, &q->runs[2], &join->inputs[join->n_inputs - 1])); /* 248 keys */
  join->rows = 1000;
  assert_true(br_filter_pays(q, &q->runs[2], &join->inputs[join->n_inputs - 1]));
  br_query_unref(q);
}

/* The stage that goes into the join reads partitions itself: those that go together are read together by the join's tasks. */
static void test_partitions_are_joined_where_they_are(void **state) {
  (void)state;
  uint64_t bytes[PARTS] = {8, 8, 8, 8, 8, 8, 8, 8}, more[PARTS] = {80000};
  br_query *q = query(2, 64 * MIB);
  br_stage *st = q->stages->stages;
  st[2].output = BR_EX_HASH; /* stage 2 goes into stage 3, which joins it with stage 0's rows */
  st[2].partitions = PARTS;
  st[3].rule = BR_TASKS_PARTITIONS;
  st[3].inputs[0].kind = BR_EX_HASH;
  st[3].inputs[0].side = 5;
  reads(&st[3], 0, BR_EX_HASH);
  st[3].sql = "SELECT * FROM input(0), input(1)";
  q->broadcast_bytes = MIB;
  sizes(q, 0, bytes);
  sizes(q, 1, more);
  br_query_adapt(q, 2);
  assert_int_equal(q->runs[2].n_tasks, 0);
  assert_int_equal(st[3].rule, BR_TASKS_PARTITIONS);
  assert_int_equal(st[3].n_inputs, 3);
  br_query_adapt(q, 3);
  assert_int_equal(q->runs[3].n_tasks, 1);
  covers(q, 3);
  br_query_unref(q);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small_partitions_become_one),
      cmocka_unit_test(test_few_rows_of_much_work_are_shared_out),
      cmocka_unit_test(test_as_many_as_slots_when_it_is_much),
      cmocka_unit_test(test_large_ones_stay),
      cmocka_unit_test(test_the_number_stays_where_it_was_asked_for),
      cmocka_unit_test(test_no_keys_no_tasks),
      cmocka_unit_test(test_no_rows_no_tasks),
      cmocka_unit_test(test_rows_that_are_groups_of_their_own),
      cmocka_unit_test(test_a_task_keeps_its_form),
      cmocka_unit_test(test_filters_that_pay),
      cmocka_unit_test(test_what_a_task_reads),
      cmocka_unit_test(test_a_large_partition_is_split),
      cmocka_unit_test(test_what_must_be_together_is_not_split),
      cmocka_unit_test(test_a_side_of_two_inputs),
      cmocka_unit_test(test_rows_are_joined_where_they_are_made),
      cmocka_unit_test(test_what_is_large_or_late_is_shuffled),
      cmocka_unit_test(test_filters_of_a_join_in_place),
      cmocka_unit_test(test_partitions_are_joined_where_they_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
