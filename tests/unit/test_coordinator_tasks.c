/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * From stages to tasks, without processes: how many tasks each rule gives, what each task reads, its text, its output, and the
 * bounds. The plan is made by hand:
 *
 *   0 splits 3, HASH into 4       1 splits 2, BROADCAST        2 partitions: hash(0) + broadcast(1), FORWARD
 *   3 one: hash(0), BOUNDS into 5 4 forward: 2, then 1; broadcast(3), RANGE into 5
 *   5 partitions: range(4) ordered + bounds(3), SINGLE         6 one: single(5), RESULT
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

#define N_STAGES 7
#define MAX_INPUTS 3

static const char *types[] = {"BIGINT", "VARCHAR"};

static br_stage_input in(uint32_t number, uint32_t producer, br_exchange_kind kind, bool ordered) {
  return (br_stage_input){.number = number, .producer = producer, .kind = kind, .ordered = ordered};
}

static br_stage *add_stage(br_stages *p, br_task_rule rule, br_exchange_kind output, uint32_t partitions) {
  br_stage *s = &p->stages[p->n_stages];
  *s = (br_stage){.id = (uint32_t)p->n_stages++,
                  .sql = "SELECT 1",
                  .types = types,
                  .n_columns = 2,
                  .split_scan = -1,
                  .rule = rule,
                  .output = output,
                  .partitions = partitions};
  s->inputs = br_arena_alloc(p->arena, MAX_INPUTS * sizeof *s->inputs);
  return s;
}

static void add_input(br_stage *s, br_stage_input i) { s->inputs[s->n_inputs++] = i; }

/* Two scans in stage 0: one spread, one read whole by every task. */
static void add_scans(br_stages *p, br_stage *s) {
  s->sql = "SELECT * FROM <scan0> JOIN <scan1> USING (k) JOIN <scan0> AS again";
  s->scans = br_arena_alloc(p->arena, 2 * sizeof *s->scans);
  s->scans[0] = (br_stage_scan){.number = 0, .token = "<scan0>"};
  s->scans[1] = (br_stage_scan){.number = 1, .token = "<scan1>"};
  s->n_scans = 2;
  s->split_scan = 0;
}

static br_stages *make_plan(void) {
  br_arena *a = br_arena_new();
  br_stages *p = br_arena_alloc(a, sizeof *p);
  p->arena = a;
  p->stages = br_arena_alloc(a, N_STAGES * sizeof *p->stages);
  add_scans(p, add_stage(p, BR_TASKS_SPLITS, BR_EX_HASH, 4));
  add_stage(p, BR_TASKS_SPLITS, BR_EX_BROADCAST, 1);
  br_stage *s = add_stage(p, BR_TASKS_PARTITIONS, BR_EX_FORWARD, 1);
  add_input(s, in(0, 0, BR_EX_HASH, false));
  add_input(s, in(1, 1, BR_EX_BROADCAST, false));
  s = add_stage(p, BR_TASKS_ONE, BR_EX_BOUNDS, 1);
  add_input(s, in(0, 0, BR_EX_HASH, false));
  s->indeterminate = true;
  s = add_stage(p, BR_TASKS_FORWARD, BR_EX_RANGE, 5);
  add_input(s, in(0, 2, BR_EX_FORWARD, false));
  add_input(s, in(1, 3, BR_EX_BROADCAST, false));
  add_input(s, in(2, 1, BR_EX_FORWARD, true));
  s = add_stage(p, BR_TASKS_PARTITIONS, BR_EX_SINGLE, 1);
  add_input(s, in(0, 4, BR_EX_RANGE, true));
  add_input(s, in(1, 3, BR_EX_BOUNDS, false));
  s = add_stage(p, BR_TASKS_ONE, BR_EX_RESULT, 1);
  add_input(s, in(0, 5, BR_EX_SINGLE, true));
  s->ordered_output = true;
  return p;
}

static void set_splits(br_stage_run *r, uint32_t n) {
  r->n_tasks = n;
  r->split_sql = br_calloc(n ? n : 1, sizeof *r->split_sql);
  for (uint32_t i = 0; i < n; i++) r->split_sql[i] = br_asprintf("split%u", i);
}

static br_query *make_query(void) {
  br_query *q = br_query_new(42);
  q->stages = make_plan();
  q->n_runs = q->stages->n_stages;
  q->runs = br_calloc(q->n_runs, sizeof *q->runs);
  for (size_t i = 0; i < q->n_runs; i++) {
    q->runs[i].plan = &q->stages->stages[i];
    q->runs[i].whole_sql = br_calloc(q->runs[i].plan->n_scans + 1, sizeof(char *));
  }
  q->runs[0].whole_sql[1] = br_strdup("whole");
  set_splits(&q->runs[0], 3);
  set_splits(&q->runs[1], 2);
  return q;
}

static void finish(br_stage_run *r, uint32_t task) {
  r->done += !r->tasks[task].done;
  r->tasks[task].done = true;
}

static int setup(void **state) {
  br_error err;
  br_query *q = *state = make_query();
  int rc = br_query_count_tasks(q, &err);
  for (size_t i = 0; i < q->n_runs; i++)
    for (uint32_t t = 0; t < q->runs[i].n_tasks; t++) finish(&q->runs[i], t);
  return rc;
}

static int teardown(void **state) {
  br_query_unref(*state);
  return 0;
}

static uint32_t version_of(void *arg, uint32_t stage) {
  (*(int *)arg)++;
  return 100 + stage;
}

static Brant__Pb__Task *message(br_query *q, uint32_t stage, uint32_t task, br_arena *arena) {
  br_attempt_id id = {.query = 42, .stage = stage, .task = task, .attempt = 3};
  int calls = 0;
  Brant__Pb__Task *t = br_task_message(q, &id, version_of, &calls, arena);
  assert_int_equal(calls, t->n_inputs);
  assert_int_equal(t->id->query, 42);
  assert_int_equal(t->id->stage, stage);
  assert_int_equal(t->id->task, task);
  assert_int_equal(t->id->attempt, 3);
  return t;
}

static void expect_input(const Brant__Pb__TaskInput *i, uint32_t stage, uint32_t first, uint32_t last,
                         uint32_t map_first, uint32_t map_last) {
  assert_int_equal(i->ref->query, 42);
  assert_int_equal(i->ref->stage, stage);
  assert_int_equal(i->ref->table_version, 100 + stage);
  assert_int_equal(i->ref->first, first);
  assert_int_equal(i->ref->last, last);
  assert_int_equal(i->ref->map_first, map_first);
  assert_int_equal(i->ref->map_last, map_last);
  assert_true(i->rows_known);
  assert_int_equal(i->n_types, 2);
  assert_string_equal(i->types[1], "VARCHAR");
}

/* ---- tests */

static void counts(void **state) {
  br_query *q = *state;
  static const uint32_t want[N_STAGES] = {3, 2, 4, 1, 6, 5, 1};
  for (size_t i = 0; i < N_STAGES; i++) assert_int_equal(q->runs[i].n_tasks, want[i]);
  assert_int_equal(q->n_results, 1);
}

static void texts_of_splits(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  assert_string_equal(br_task_sql(q, 0, 0, a), "SELECT * FROM split0 JOIN whole USING (k) JOIN split0 AS again");
  assert_string_equal(message(q, 0, 2, a)->sql, "SELECT * FROM split2 JOIN whole USING (k) JOIN split2 AS again");
  assert_string_equal(br_task_sql(q, 6, 0, a), "SELECT 1");
  br_arena_free(a);
}

static void inputs_by_partition(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  for (uint32_t t = 0; t < 4; t++) {
    Brant__Pb__Task *m = message(q, 2, t, a);
    assert_int_equal(m->n_inputs, 2);
    expect_input(m->inputs[0], 0, t, t + 1, 0, 3);
    expect_input(m->inputs[1], 1, 0, 1, 0, 2); /* broadcast: all of it */
    assert_int_equal(m->inputs[1]->number, 1);
  }
  Brant__Pb__Task *m = message(q, 3, 0, a); /* one task reads every partition */
  expect_input(m->inputs[0], 0, 0, 4, 0, 3);
  assert_true(m->indeterminate);
  m = message(q, 5, 4, a);
  expect_input(m->inputs[0], 4, 4, 5, 0, 6);
  assert_true(m->inputs[0]->ordered);
  assert_int_equal(m->inputs[0]->kind, BRANT__PB__INPUT_KIND__INPUT_PARTITIONS);
  expect_input(m->inputs[1], 3, 0, 1, 0, 1);
  assert_int_equal(m->inputs[1]->kind, BRANT__PB__INPUT_KIND__INPUT_BOUNDS);
  br_arena_free(a);
}

/* Tasks 0..3 read stage 2, tasks 4 and 5 stage 1; the other branch is empty then; the broadcast goes to all. */
static void inputs_one_after_the_other(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  for (uint32_t t = 0; t < 6; t++) {
    Brant__Pb__Task *m = message(q, 4, t, a);
    expect_input(m->inputs[0], 2, 0, 1, t < 4 ? t : 0, t < 4 ? t + 1 : 0);
    expect_input(m->inputs[1], 3, 0, 1, 0, 1);
    expect_input(m->inputs[2], 1, 0, 1, t < 4 ? 0 : t - 4, t < 4 ? 0 : t - 3);
    assert_true(m->inputs[2]->ordered);
    assert_false(m->inputs[0]->ordered);
  }
  br_arena_free(a);
}

/* Measured rows: by partition where all maps are read, by map where some are. */
static void rows_of_inputs(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  for (uint32_t i = 0; i < 4; i++) q->runs[0].partition_rows[i] = 10 + i;
  for (uint32_t i = 0; i < 4; i++) q->runs[2].tasks[i].rows_out = 1000 + i;
  q->runs[1].partition_rows[0] = 77;
  q->runs[1].tasks[0].rows_out = 70;
  q->runs[1].tasks[1].rows_out = 7;
  assert_int_equal(message(q, 2, 2, a)->inputs[0]->rows, 12);
  assert_int_equal(message(q, 2, 2, a)->inputs[1]->rows, 77);
  assert_int_equal(message(q, 3, 0, a)->inputs[0]->rows, 10 + 11 + 12 + 13);
  assert_int_equal(message(q, 4, 3, a)->inputs[0]->rows, 1003);
  assert_int_equal(message(q, 4, 3, a)->inputs[2]->rows, 0); /* this task reads none of that branch */
  assert_int_equal(message(q, 4, 5, a)->inputs[2]->rows, 7);
  br_arena_free(a);
}

/* Eager: what is still being written has no number of rows; what is whole has, also one map of many. */
static void rows_of_growing_inputs(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  q->eager = true;
  q->runs[2].tasks[3].done = false;
  q->runs[2].done--;
  q->runs[2].tasks[1].rows_out = 5;
  for (uint32_t t = 0; t < 6; t++) assert_int_equal(message(q, 4, t, a)->inputs[0]->rows_known, t != 3);
  assert_int_equal(message(q, 4, 1, a)->inputs[0]->rows, 5);
  q->runs[0].tasks[0].done = false;
  q->runs[0].done--;
  Brant__Pb__TaskInput *in = message(q, 2, 1, a)->inputs[0];
  assert_false(in->rows_known);
  assert_int_equal(in->rows, 0); /* nothing was estimated, nothing is there yet */
  q->stages->stages[0].rows = 4000;
  assert_int_equal(message(q, 2, 1, a)->inputs[0]->rows, 1000);
  q->runs[0].rows_out = 8000; /* there are more already */
  assert_int_equal(message(q, 2, 1, a)->inputs[0]->rows, 2000);
  for (uint32_t i = 0; i < N_STAGES; i++) assert_int_equal(message(q, i, 0, a)->output->publish, i < N_STAGES - 1);
  q->eager = false;
  assert_false(message(q, 0, 0, a)->output->publish);
  br_arena_free(a);
}

/* What chance made is counted once; when it was made again, it may be another number. */
static void rows_of_chance(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  assert_true(message(q, 4, 0, a)->inputs[1]->rows_known);
  q->runs[3].made_again = 1; /* indeterminate */
  assert_false(message(q, 4, 0, a)->inputs[1]->rows_known);
  q->runs[0].made_again = 1; /* not so */
  assert_true(message(q, 2, 0, a)->inputs[0]->rows_known);
  br_arena_free(a);
}

static void in_passes(void **state) {
  br_query *q = *state;
  static const br_split_key key[] = {{.text = "t.c0", .hashed_as = "BIGINT"}};
  br_arena *a = br_arena_new();
  br_stage *s = &q->stages->stages[2];
  s->sql = "SELECT * FROM input(0) JOIN input(1) USING (k)";
  Brant__Pb__Task *m = message(q, 2, 0, a);
  br_task_in_passes(q, m, 3, a);
  assert_int_equal(m->n_passes, 0); /* its keys are not known */
  s->inputs[0].keys = key;
  s->inputs[0].n_keys = 1;
  br_task_in_passes(q, m, 1, a);
  assert_int_equal(m->n_passes, 0);
  br_task_in_passes(q, m, 3, a);
  assert_int_equal(m->n_passes, 3);
  assert_non_null(strstr(m->passes[2], "% 3 = 2) JOIN input(1) USING (k)"));
  m = message(q, 4, 0, a);
  br_task_in_passes(q, m, 3, a);
  assert_int_equal(m->n_passes, 0); /* FORWARD */
  br_arena_free(a);
}

/* What the other stages of the same limit gave counts too; what runs again is whole. */
static void a_full_limit(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  br_stage *s = &q->stages->stages[5], *other = &q->stages->stages[2];
  br_attempt_id first = {.query = 42, .stage = 5, .task = 3, .attempt = 1}, second = first;
  second.attempt = 2;
  q->runs[5].rows_out = 6;
  q->runs[2].rows_out = 3;
  assert_false(br_task_not_needed(q, &first)); /* no limit */
  s->enough_rows = other->enough_rows = 10;
  s->enough_of = other->enough_of = 77;
  assert_false(br_task_not_needed(q, &first));
  q->runs[2].rows_out = 4;
  assert_true(br_task_not_needed(q, &first));
  assert_false(br_task_not_needed(q, &second));
  int calls = 0;
  const Brant__Pb__Task *t = br_task_message(q, &first, version_of, &calls, a);
  assert_string_equal(t->sql, "SELECT CAST(NULL AS BIGINT) AS c0, CAST(NULL AS VARCHAR) AS c1\nLIMIT 0");
  assert_int_equal(t->n_inputs + t->n_steps, 0);
  assert_int_equal(t->output->n_types, 2);
  t = br_task_message(q, &second, version_of, &calls, a);
  assert_string_equal(t->sql, "SELECT 1");
  assert_int_equal(t->n_inputs, 2);
  other->enough_of = 78; /* another limit's */
  assert_false(br_task_not_needed(q, &first));
  br_arena_free(a);
}

static void outputs(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  static const struct {
    Brant__Pb__PartitionKind kind;
    uint32_t partitions;
  } want[N_STAGES] = {{BRANT__PB__PARTITION_KIND__PART_HASH, 4},   {BRANT__PB__PARTITION_KIND__PART_SINGLE, 1},
                      {BRANT__PB__PARTITION_KIND__PART_SINGLE, 1}, {BRANT__PB__PARTITION_KIND__PART_SINGLE, 1},
                      {BRANT__PB__PARTITION_KIND__PART_RANGE, 5},  {BRANT__PB__PARTITION_KIND__PART_SINGLE, 1},
                      {BRANT__PB__PARTITION_KIND__PART_SINGLE, 1}};
  q->codec = "lz4";
  for (uint32_t i = 0; i < N_STAGES; i++) {
    Brant__Pb__TaskOutput *o = message(q, i, 0, a)->output;
    assert_int_equal(o->kind, want[i].kind);
    assert_int_equal(o->partitions, want[i].partitions);
    assert_string_equal(o->codec, "lz4");
    assert_int_equal(o->result, i == N_STAGES - 1);
    assert_int_equal(o->ordered, i == N_STAGES - 1);
    assert_int_equal(o->n_types, 2);
  }
  br_arena_free(a);
}

static char *one_text(const char *s, char ***out, size_t *n) {
  *out = br_calloc(1, sizeof **out);
  *n = 1;
  return **out = br_strdup(s);
}

/* What a task needs of the session; views go along with whole-query tasks alone. The message must survive the wire. */
static void session_goes_along(void **state) {
  br_query *q = *state;
  br_arena *a = br_arena_new();
  one_text("LOAD x", &q->prelude, &q->n_prelude);
  one_text("CREATE VIEW v AS SELECT 1", &q->prelude_views, &q->n_prelude_views);
  q->settings = br_calloc(1, sizeof *q->settings);
  q->n_settings = 1;
  brant__pb__setting__init(&q->settings[0]);
  q->settings[0].name = br_strdup("TimeZone");
  q->settings[0].value = br_strdup("UTC");
  q->deadline_ms = 1234;
  q->profile = true;
  Brant__Pb__Task *m = message(q, 2, 0, a);
  assert_int_equal(m->n_prelude, 1);
  q->stages->whole_query_reason = "because";
  m = message(q, 2, 0, a);
  assert_int_equal(m->n_prelude, 2);
  assert_string_equal(m->prelude[1], "CREATE VIEW v AS SELECT 1");
  size_t n = brant__pb__task__get_packed_size(m);
  uint8_t *wire = br_arena_alloc(a, n);
  assert_int_equal(brant__pb__task__pack(m, wire), n);
  Brant__Pb__Task *back = brant__pb__task__unpack(NULL, n, wire);
  assert_non_null(back);
  assert_string_equal(back->prelude[0], "LOAD x");
  assert_string_equal(back->settings[0]->name, "TimeZone");
  assert_string_equal(back->settings[0]->value, "UTC");
  assert_int_equal(back->deadline_ms, 1234);
  assert_true(back->profile);
  assert_int_equal(back->inputs[0]->ref->map_last, 3);
  brant__pb__task__free_unpacked(back, NULL);
  br_arena_free(a);
}

static void nothing_to_read(void **state) {
  (void)state;
  br_error err;
  br_query *q = make_query();
  free(q->runs[0].split_sql[0]);
  free(q->runs[0].split_sql[1]);
  free(q->runs[0].split_sql[2]);
  q->runs[0].n_tasks = 0; /* every file is empty */
  assert_int_equal(br_query_count_tasks(q, &err), BR_OK);
  assert_int_equal(q->runs[0].n_tasks, 0);
  assert_int_equal(q->runs[2].n_tasks, 4); /* partitions are partitions: an outer join has rows of the other side */
  br_arena *a = br_arena_new();
  expect_input(message(q, 2, 1, a)->inputs[0], 0, 1, 2, 0, 0);
  br_arena_free(a);
  br_query_unref(q);
}

static void too_many_tasks(void **state) {
  (void)state;
  br_error err;
  br_query *q = make_query();
  q->stages->stages[0].partitions = 1000001;
  assert_int_equal(br_query_count_tasks(q, &err), BR_UNSUPPORTED);
  assert_int_equal(err.blame, BR_BLAME_USER);
  assert_non_null(strstr(err.message, "stage 2 would have 1000001 tasks"));
  br_query_unref(q);
}

static void references(void **state) {
  (void)state;
  br_query *q = make_query();
  assert_ptr_equal(br_query_ref(q), q);
  br_query_unref(q);
  assert_int_equal(q->id, 42); /* still there: the sanitizer would say */
  assert_int_equal(q->state, BR_QUERY_NEW);
  br_query_unref(q);
  br_query_unref(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(counts, setup, teardown),
      cmocka_unit_test_setup_teardown(texts_of_splits, setup, teardown),
      cmocka_unit_test_setup_teardown(inputs_by_partition, setup, teardown),
      cmocka_unit_test_setup_teardown(inputs_one_after_the_other, setup, teardown),
      cmocka_unit_test_setup_teardown(rows_of_inputs, setup, teardown),
      cmocka_unit_test_setup_teardown(rows_of_growing_inputs, setup, teardown),
      cmocka_unit_test_setup_teardown(rows_of_chance, setup, teardown),
      cmocka_unit_test_setup_teardown(in_passes, setup, teardown),
      cmocka_unit_test_setup_teardown(a_full_limit, setup, teardown),
      cmocka_unit_test_setup_teardown(outputs, setup, teardown),
      cmocka_unit_test_setup_teardown(session_goes_along, setup, teardown),
      cmocka_unit_test(nothing_to_read),
      cmocka_unit_test(too_many_tasks),
      cmocka_unit_test(references),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
