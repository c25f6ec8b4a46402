/* SPDX-License-Identifier: Apache-2.0
 * From a stage to the message of one of its tasks: SQL with its split, inputs as partition references, output. Called on the
 * loop thread with the query's lock held (it reads measured rows). Everything is allocated in the caller's arena. */
#include <string.h>

#include "coordinator/dataset.h"
#include "coordinator/query.h"

static char *replace_token(br_arena *arena, const char *sql, const char *token, const char *with) {
  br_buf b = {0};
  size_t n = strlen(token);
  for (const char *at = sql; *at != 0;) {
    const char *hit = n > 0 ? strstr(at, token) : NULL;
    if (hit == NULL) {
      br_buf_str(&b, at);
      break;
    }
    br_buf_add(&b, at, (size_t)(hit - at));
    br_buf_str(&b, with);
    at = hit + n;
  }
  char *out = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return out;
}

/* All tasks of the stage have committed, and what was measured then still holds: chance makes other rows when it runs again. */
bool br_stage_is_measured(const br_stage_run *r) {
  return r->done == r->n_tasks && !(r->plan->indeterminate && r->made_again + r->seconds > 0);
}

/* Rows that a stage gives: as measured, or, while it runs (eager), as estimated, at least what is there. */
uint64_t br_stage_rows(const br_stage_run *r) {
  if (br_stage_is_measured(r) || !(r->plan->rows > (double)r->rows_out)) return r->rows_out;
  return r->plan->rows < 1e18 ? (uint64_t)r->plan->rows : r->rows_out;
}

static bool input_used(const br_query *q, const br_stage_run *r, const br_stage_input *in) {
  if (in->kind == BR_EX_BLOOM) return br_bloom_made(q, in);
  return in->kind != BR_EX_WAIT && (in->kind != BR_EX_FILTER || br_filter_pays(q, r, in));
}

/* A text of the stage, as this task runs it. */
static char *task_text(const br_query *q, const br_stage_run *r, uint32_t task, const char *text, br_arena *arena) {
  char *sql = br_filter_text(q, r, task, br_arena_strdup(arena, text), arena);
  for (size_t i = 0; i < r->plan->n_scans; i++) {
    bool cut = i < r->n_cut && r->cut_sql[i] != NULL;
    const char *with = (int)i == r->plan->split_scan ? r->split_sql[task] : cut ? r->cut_sql[i][task] : r->whole_sql[i];
    sql = replace_token(arena, sql, r->plan->scans[i].token, with);
  }
  return br_stage_task_sql(arena, sql, task, r->n_tasks);
}

char *br_task_sql(const br_query *q, uint32_t stage, uint32_t task, br_arena *arena) {
  const br_stage_run *r = &q->runs[stage];
  bool of_rows = task < r->n_tasks && r->tasks[task].of_rows;
  return task_text(q, r, task, of_rows ? br_stage_of_rows(arena, r->plan) : r->plan->sql, arena);
}

/* ---- steps */

static const br_query_function *function_of(const br_query *q, uint64_t id) {
  for (size_t i = 0; i < q->n_functions; i++)
    if (q->functions[i].id == id) return &q->functions[i];
  return NULL;
}

/* Processes divided among the tasks that run at once: as many connections as a task may have use of. */
static uint32_t connections(const br_query *q, const br_stage_run *r, const br_query_function *f) {
  uint32_t at_once = r->n_tasks < q->slots ? r->n_tasks : q->slots,
           all = f && f->concurrency ? f->concurrency : q->threads;
  if (at_once == 0) at_once = 1;
  uint32_t n = (all + at_once - 1) / at_once;
  return n > 0 ? n : 1;
}

static Brant__Pb__StepCall *make_call(const br_query *q, const br_stage_run *r, const br_stage_step *s, size_t i,
                                      br_arena *arena) {
  const br_step_call *c = &s->calls[i];
  const br_query_function *f = function_of(q, c->function);
  Brant__Pb__StepCall *out = br_arena_alloc(arena, sizeof *out);
  brant__pb__step_call__init(out);
  out->function = c->function;
  out->name = (char *)(uintptr_t)c->name;
  out->arguments = (uint32_t *)(uintptr_t)c->arguments;
  out->n_arguments = c->n_arguments;
  out->type = (char *)(uintptr_t)s->types[s->n_columns + i];
  out->connections = connections(q, r, f);
  if (f == NULL) return out;
  out->batch_rows = f->batch_rows;
  out->timeout_ms = f->timeout_ms;
  out->max_retries = f->max_retries;
  return out;
}

static void add_reads(const br_stage *st, const char *sql, Brant__Pb__Step *out, br_arena *arena) {
  out->reads = br_arena_alloc(arena, (st->n_inputs + st->n_steps + st->n_scans + 1) * sizeof *out->reads);
  for (const char *at = sql; *at != 0;) {
    int64_t number;
    at += br_stage_piece(sql, at, &number);
    if (number >= 0 && out->n_reads < st->n_inputs + st->n_steps + st->n_scans)
      out->reads[out->n_reads++] = (uint32_t)number;
  }
}

static void add_steps(const br_query *q, const br_stage_run *r, uint32_t task, Brant__Pb__Task *t, br_arena *arena) {
  const br_stage *st = r->plan;
  t->steps = br_arena_alloc(arena, (st->n_steps + 1) * sizeof *t->steps);
  for (size_t i = 0; i < st->n_steps; i++) {
    const br_stage_step *s = &st->steps[i];
    Brant__Pb__Step *out = br_arena_alloc(arena, sizeof *out);
    brant__pb__step__init(out);
    out->number = s->number;
    out->sql = task_text(q, r, task, s->sql, arena);
    out->types = (char **)(uintptr_t)s->types;
    out->n_types = s->n_columns + s->n_calls;
    out->ordered = s->ordered;
    out->calls = br_arena_alloc(arena, (s->n_calls + 1) * sizeof *out->calls);
    for (size_t c = 0; c < s->n_calls; c++) out->calls[out->n_calls++] = make_call(q, r, s, c, arena);
    add_reads(st, out->sql, out, arena);
    t->steps[t->n_steps++] = out;
  }
}

/* Task i of a FORWARD stage reads one task of one of its FORWARD producers: the producers' tasks follow each other. */
static void forward_range(const br_query *q, const br_stage *s, const br_stage_input *in, uint32_t task,
                          uint32_t *first, uint32_t *last) {
  uint64_t before = 0;
  *first = *last = 0;
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_input *other = &s->inputs[i];
    if (other->kind != BR_EX_FORWARD) continue;
    uint32_t n = q->runs[other->producer].n_tasks;
    if (other == in && task >= before && task < before + n) {
      *first = (uint32_t)(task - before);
      *last = *first + 1;
      return;
    }
    before += n;
  }
}

/* The part of a side's map outputs, its inputs one after the other, that lies in this one of them. */
static void map_range(const br_query *q, const br_stage *s, const br_stage_input *in, const br_slice *slice,
                      uint32_t *first, uint32_t *last) {
  uint64_t before = 0;
  uint32_t n = q->runs[in->producer].n_tasks;
  for (const br_stage_input *other = s->inputs; other < in; other++)
    if (other->side == in->side) before += q->runs[other->producer].n_tasks;
  uint64_t from = slice->map_first > before ? slice->map_first - before : 0;
  uint64_t to = slice->map_last > before ? slice->map_last - before : 0;
  *last = to < n ? (uint32_t)to : n;
  *first = from < *last ? (uint32_t)from : *last;
}

static void fill_ref(const br_query *q, const br_stage *s, const br_stage_input *in, uint32_t task,
                     Brant__Pb__PartitionRef *ref) {
  const br_stage_run *producer = &q->runs[in->producer];
  ref->query = q->id;
  ref->stage = in->producer;
  ref->first = 0;
  ref->last = 1;
  ref->map_first = 0;
  ref->map_last = producer->n_tasks;
  if (in->kind == BR_EX_BROADCAST) {
    ref->last = producer->plan->partitions; /* several where a hash join became a broadcast join */
  } else if (in->kind == BR_EX_HASH || in->kind == BR_EX_RANGE || in->kind == BR_EX_FILTER || in->kind == BR_EX_KEYS) {
    if (s->rule == BR_TASKS_ONE || in->kind == BR_EX_FILTER) { /* all partitions, in order */
      ref->last = producer->plan->partitions;
    } else {
      const br_slice *slice = q->runs[s->id].slices ? &q->runs[s->id].slices[task] : NULL;
      ref->first = slice ? slice->first : task;
      ref->last = slice ? slice->last : task + 1;
      if (slice && slice->side != 0 && in->side == slice->side)
        map_range(q, s, in, slice, &ref->map_first, &ref->map_last);
    }
  } else if (in->kind == BR_EX_FORWARD && s->rule == BR_TASKS_FORWARD) {
    forward_range(q, s, in, task, &ref->map_first, &ref->map_last);
  }
}

/* Rows are counted by map and by partition, not by both. */
static bool part_of_both(const br_stage_run *p, const Brant__Pb__PartitionRef *ref) {
  return (ref->map_first > 0 || ref->map_last < p->n_tasks) && ref->last - ref->first < p->plan->partitions;
}

/* False: its maps are still being written, or came out differently. */
static bool rows_known(const br_query *q, const Brant__Pb__PartitionRef *ref) {
  const br_stage_run *p = &q->runs[ref->stage];
  if (part_of_both(p, ref)) return false;
  if (p->done == p->n_tasks || p->plan->indeterminate) return br_stage_is_measured(p);
  for (uint32_t m = ref->map_first; m < ref->map_last; m++)
    if (!p->tasks[m].done) return false;
  return true; /* also of none */
}

static uint64_t input_rows(const br_query *q, const Brant__Pb__PartitionRef *ref) {
  const br_stage_run *p = &q->runs[ref->stage];
  uint64_t rows = 0;
  if (ref->map_first == 0 && ref->map_last == p->n_tasks) {
    for (uint32_t i = ref->first; i < ref->last; i++) rows += p->partition_rows[i];
  } else {
    for (uint32_t m = ref->map_first; m < ref->map_last; m++) rows += p->tasks[m].rows_out;
  }
  return rows;
}

/* The input's share of what its stage should give. */
static uint64_t guessed_rows(const br_query *q, const Brant__Pb__PartitionRef *ref) {
  const br_stage_run *p = &q->runs[ref->stage];
  double partitions = p->plan->partitions ? p->plan->partitions : 1, part = 0, maps = 0;
  if (br_stage_is_measured(p) && p->rows_out > 0) {
    for (uint32_t i = ref->first; i < ref->last; i++) part += (double)p->partition_rows[i];
    for (uint32_t m = ref->map_first; m < ref->map_last; m++) maps += (double)p->tasks[m].rows_out;
    return (uint64_t)(part * maps / (double)p->rows_out);
  }
  if (p->n_tasks == 0) return 0;
  return (uint64_t)((double)br_stage_rows(p) * (ref->last - ref->first) / partitions *
                    (ref->map_last - ref->map_first) / p->n_tasks);
}

static Brant__Pb__TaskInput *make_input(br_query *q, const br_stage *s, const br_stage_input *in, uint32_t task,
                                        br_version_fn version, void *arg, br_arena *arena) {
  Brant__Pb__TaskInput *out = br_arena_alloc(arena, sizeof *out);
  brant__pb__task_input__init(out);
  out->ref = br_arena_alloc(arena, sizeof *out->ref);
  brant__pb__partition_ref__init(out->ref);
  fill_ref(q, s, in, task, out->ref);
  out->ref->table_version = version(arg, in->producer);
  out->number = in->number;
  out->kind = in->kind == BR_EX_BOUNDS ? BRANT__PB__INPUT_KIND__INPUT_BOUNDS : BRANT__PB__INPUT_KIND__INPUT_PARTITIONS;
  const br_stage *producer = q->runs[in->producer].plan;
  out->types = (char **)(uintptr_t)producer->types;
  out->n_types = producer->n_columns;
  out->ordered = in->ordered;
  out->rows_known = rows_known(q, out->ref);
  out->rows = out->rows_known ? input_rows(q, out->ref) : guessed_rows(q, out->ref);
  return out;
}

static Brant__Pb__TaskOutput *make_output(const br_query *q, const br_stage *s, br_arena *arena) {
  Brant__Pb__TaskOutput *out = br_arena_alloc(arena, sizeof *out);
  brant__pb__task_output__init(out);
  out->kind = s->output == BR_EX_HASH    ? BRANT__PB__PARTITION_KIND__PART_HASH
              : s->output == BR_EX_RANGE ? BRANT__PB__PARTITION_KIND__PART_RANGE
                                         : BRANT__PB__PARTITION_KIND__PART_SINGLE;
  out->partitions = out->kind == BRANT__PB__PARTITION_KIND__PART_SINGLE ? 1 : s->partitions;
  out->ordered = s->ordered_output;
  out->types = (char **)(uintptr_t)s->types;
  out->n_types = s->n_columns;
  out->codec = (char *)(uintptr_t)q->codec;
  out->result = s->output == BR_EX_RESULT;
  out->batch_rows = s->batch_rows;
  out->ranged = (uint32_t *)(uintptr_t)s->ranged;
  out->n_ranged = s->n_ranged;
  out->publish = q->eager && !out->result;
  if (q->shared_dir != NULL) out->shared_dir = q->shared_dir;
  return out;
}

static Brant__Pb__TaskInput *dataset_input(const br_stage_run *r, size_t scan, uint32_t task, br_arena *arena) {
  const br_dataset_scan *s = &r->datasets[scan];
  br_dataset *d = s->dataset;
  Brant__Pb__TaskInput *out = br_arena_alloc(arena, sizeof *out);
  brant__pb__task_input__init(out);
  out->ref = br_arena_alloc(arena, sizeof *out->ref);
  brant__pb__partition_ref__init(out->ref);
  out->ref->query = d->id;
  out->ref->stage = d->stage;
  out->ref->last = 1;
  out->ref->map_first = s->cuts ? s->cuts[task] : 0;
  out->ref->map_last = s->cuts ? s->cuts[task + 1] : d->n_parts;
  out->ref->table_version = br_dataset_version(d);
  out->number = BR_DATASET_INPUT + (uint32_t)scan;
  out->types = d->types;
  out->n_types = d->n_columns;
  out->ordered = true;
  out->rows_known = true;
  for (uint32_t i = out->ref->map_first; i < out->ref->map_last; i++) out->rows += d->part_rows[i];
  return out;
}

static void add_prelude(br_query *q, Brant__Pb__Task *t, br_arena *arena) {
  size_t views = q->stages->whole_query_reason != NULL ? q->n_prelude_views : 0;
  t->n_prelude = q->n_prelude + views;
  t->prelude = br_arena_alloc(arena, t->n_prelude * sizeof *t->prelude + 1);
  for (size_t i = 0; i < q->n_prelude; i++) t->prelude[i] = q->prelude[i];
  for (size_t i = 0; i < views; i++) t->prelude[q->n_prelude + i] = q->prelude_views[i];
  t->n_settings = q->n_settings;
  t->settings = br_arena_alloc(arena, q->n_settings * sizeof *t->settings + 1);
  for (size_t i = 0; i < q->n_settings; i++) t->settings[i] = &q->settings[i];
}

/* ---- a limit that is full */

/* Only the first attempt of a task may be without rows: what was counted comes again whole when it is lost, with as many rows, so that
 * there are always enough. */
bool br_task_not_needed(const br_query *q, const br_attempt_id *id) {
  const br_stage *s = q->runs[id->stage].plan;
  uint64_t rows = 0;
  if (s->enough_rows == 0 || id->attempt != 1) return false;
  for (size_t i = 0; i < q->n_runs && rows < s->enough_rows; i++)
    if (q->runs[i].plan->enough_rows > 0 && q->runs[i].plan->enough_of == s->enough_of) rows += q->runs[i].rows_out;
  return rows >= s->enough_rows;
}

/* No rows of the stage's columns, without opening a file or an input. */
static char *no_rows_sql(const br_stage *s, br_arena *arena) {
  br_buf b = {0};
  BR_ASSERT(s->output == BR_EX_SINGLE); /* no more columns than those */
  br_buf_str(&b, "SELECT ");
  for (size_t i = 0; i < s->n_columns; i++)
    br_buf_printf(&b, "%sCAST(NULL AS %s) AS c%zu", i > 0 ? ", " : "", s->types[i], i);
  br_buf_str(&b, "\nLIMIT 0");
  char *out = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return out;
}

/* ---- the message */

static void add_inputs(br_query *q, const br_attempt_id *id, Brant__Pb__Task *t, br_version_fn version, void *arg,
                       br_arena *arena) {
  br_stage_run *r = &q->runs[id->stage];
  const br_stage *s = r->plan;
  t->inputs = br_arena_alloc(arena, (s->n_inputs + s->n_scans) * sizeof *t->inputs + 1);
  for (size_t i = 0; i < s->n_inputs; i++)
    if (input_used(q, r, &s->inputs[i]))
      t->inputs[t->n_inputs++] = make_input(q, s, &s->inputs[i], id->task, version, arg, arena);
  for (size_t i = 0; r->datasets != NULL && i < s->n_scans; i++)
    if (r->datasets[i].dataset != NULL) t->inputs[t->n_inputs++] = dataset_input(r, i, id->task, arena);
}

Brant__Pb__Task *br_task_message(br_query *q, const br_attempt_id *id, br_version_fn version, void *arg,
                                 br_arena *arena) {
  const br_stage *s = q->runs[id->stage].plan;
  Brant__Pb__Task *t = br_arena_alloc(arena, sizeof *t);
  brant__pb__task__init(t);
  t->id = br_arena_alloc(arena, sizeof *t->id);
  br_attempt_to_pb(id, t->id);
  if (br_task_not_needed(q, id)) {
    t->sql = no_rows_sql(s, arena);
  } else {
    t->sql = br_task_sql(q, id->stage, id->task, arena);
    add_inputs(q, id, t, version, arg, arena);
    add_steps(q, &q->runs[id->stage], id->task, t, arena);
    t->count_groups = br_groups_wanted(q, id);
  }
  t->output = make_output(q, s, arena);
  if (id->stage + 1 == q->n_runs) t->sink = q->sink;
  add_prelude(q, t, arena);
  t->indeterminate = s->indeterminate;
  t->profile = q->profile;
  t->deadline_ms = q->deadline_ms;
  return t;
}

void br_task_in_passes(const br_query *q, Brant__Pb__Task *t, uint32_t passes, br_arena *arena) {
  const br_stage *s = q->runs[t->id->stage].plan;
  if (passes <= 1 || !br_stage_splittable(s)) return;
  t->n_passes = passes;
  t->passes = br_arena_alloc(arena, passes * sizeof *t->passes);
  for (uint32_t i = 0; i < passes; i++) t->passes[i] = br_stage_pass_sql(arena, s, t->sql, passes, i);
}
