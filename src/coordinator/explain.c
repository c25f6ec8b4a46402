/* SPDX-License-Identifier: Apache-2.0
 * brant_explain: the stages as people or programs read them; with analyze the query runs first (its rows are read and dropped)
 * and each stage gets what was measured. The caller's thread. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Largest and median bytes that one task wrote, and wall time that one task took. */
typedef struct skew {
  uint64_t largest_us, median_us;
  double ratio;
} skew;
static skew measure_skew(const br_stage_run *r) {
  skew k = {0, 0, 1};
  if (r->n_tasks == 0) return k;
  uint64_t *us = br_calloc(r->n_tasks, sizeof *us);
  for (uint32_t i = 0; i < r->n_tasks; i++) us[i] = r->tasks[i].wall_us;
  qsort(us, r->n_tasks, sizeof *us, by_value);
  k.largest_us = us[r->n_tasks - 1];
  k.median_us = us[r->n_tasks / 2];
  if (k.median_us > 0) k.ratio = (double)k.largest_us / (double)k.median_us;
  free(us);
  return k;
}

static double wall_seconds(const br_stage_run *r) {
  return r->last_done_us > r->first_start_us ? (double)(r->last_done_us - r->first_start_us) * 1e-6 : 0;
}

static void print_measured(br_query *q, br_buf *out) {
  br_buf_printf(out, "\nMeasured (wall %.3f s, %s)\n", (double)(q->end_us - q->start_us) * 1e-6,
                q->eager ? "eager" : "staged");
  br_buf_str(
      out,
      " stage  tasks      rows in     rows out    bytes in   bytes out     spilled     CPU s    wall s  skew  what\n");
  for (size_t i = q->n_runs; i-- > 0;) {
    const br_stage_run *r = &q->runs[i];
    char in[16], o[16], sp[16];
    br_format_bytes(r->bytes_in, in);
    br_format_bytes(r->bytes_out, o);
    br_format_bytes(r->spill_bytes, sp);
    skew k = measure_skew(r);
    uint64_t rows_in = r->rows_in + (r->plan->split_scan >= 0 ? r->split_rows : 0);
    br_buf_printf(out, "%6zu %6u %12llu %12llu %11s %11s %11s %9.3f %9.3f %5.1f  %s\n", i, r->n_tasks,
                  (unsigned long long)rows_in, (unsigned long long)r->rows_out, in, o, sp, (double)r->cpu_us * 1e-6,
                  wall_seconds(r), k.ratio, r->plan->label ? r->plan->label : "");
  }
}

/* Calls of users' functions. The time is that of all tasks together, waiting for results. */
static void print_steps(const br_query *q, br_buf *out) {
  for (size_t i = q->n_runs; i-- > 0;) {
    const br_stage_run *r = &q->runs[i];
    for (size_t k = 0; r->steps != NULL && k < r->plan->n_steps; k++) {
      const br_step_run *s = &r->steps[k];
      char bytes[16], peak[16];
      br_format_bytes(s->bytes, bytes);
      br_format_bytes(s->peak_bytes, peak);
      br_buf_printf(
          out, "stage %zu, input(%u): %s() over %llu rows (%s) in %llu batches, waited %.3f s, at most %s in queues", i,
          r->plan->steps[k].number, r->plan->steps[k].calls[0].name, (unsigned long long)s->rows, bytes,
          (unsigned long long)s->batches, (double)s->wait_us * 1e-6, peak);
      if (s->retries > 0) br_buf_printf(out, ", %llu processes replaced", (unsigned long long)s->retries);
      br_buf_char(out, '\n');
    }
  }
}

/* What was planned again with true sizes. */
static void print_adapted(const br_query *q, br_buf *out) {
  for (size_t i = q->n_runs; i-- > 0;)
    if (q->runs[i].adapted) br_buf_printf(out, "stage %zu: %s\n", i, q->runs[i].adapted);
}

/* What did not have to be read. */
static void print_not_needed(const br_query *q, br_buf *out) {
  for (size_t i = q->n_runs; i-- > 0;)
    if (q->runs[i].not_needed > 0)
      br_buf_printf(out, "stage %zu: %u of %u tasks read nothing, since the limit was full\n", i, q->runs[i].not_needed,
                    q->runs[i].n_tasks);
}

/* What ran more than once, and why: nothing where nothing did. */
static void print_again(br_query *q, br_buf *out) {
  for (size_t i = q->n_runs; i-- > 0;) {
    const br_stage_run *r = &q->runs[i];
    if (r->retries + r->seconds + r->outputs_lost + r->cancelled == 0) continue;
    br_buf_printf(
        out,
        "stage %zu: %u attempts for %u tasks: %u ran again (%u for outputs that were lost), %u beside stragglers; ", i,
        r->started, r->n_tasks, r->retries, r->made_again, r->seconds);
    br_buf_printf(out, "%u outputs lost, %u attempts cancelled\n", r->outputs_lost, r->cancelled);
  }
  if (q->executors_lost + q->workers_lost > 0)
    br_buf_printf(out, "lost while it ran: %llu workers, executors under %llu tasks\n",
                  (unsigned long long)q->workers_lost, (unsigned long long)q->executors_lost);
}

static json_t *measured_json(const br_stage_run *r) {
  skew k = measure_skew(r);
  json_t *j = json_pack(
      "{s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tasks",
      (int)r->n_tasks, "rows_in", (json_int_t)(r->rows_in + (r->plan->split_scan >= 0 ? r->split_rows : 0)), "rows_out",
      (json_int_t)r->rows_out, "bytes_in", (json_int_t)r->bytes_in, "bytes_out", (json_int_t)r->bytes_out,
      "spilled_bytes", (json_int_t)r->spill_bytes, "cpu_seconds", (double)r->cpu_us * 1e-6, "wall_seconds",
      wall_seconds(r), "skew", k.ratio, "largest_task_us", (json_int_t)k.largest_us, "median_task_us",
      (json_int_t)k.median_us, "attempts", (json_int_t)r->started, "retries", (json_int_t)r->retries, "second_attempts",
      (json_int_t)r->seconds, "cancelled", (json_int_t)r->cancelled, "outputs_lost", (json_int_t)r->outputs_lost,
      "made_again", (json_int_t)r->made_again, "not_needed", (json_int_t)r->not_needed, "of_rows",
      (json_int_t)r->tasks_of_rows);
  if (r->adapted) json_object_set_new(j, "adapted", json_string(r->adapted));
  return j;
}

static br_status run_and_drop(brant_session *s, br_query *q, br_error *err) {
  br_rows *rows = NULL;
  br_batch *b = NULL;
  BR_TRY(br_shared_open(q, br_session_shared_dir(s), err));
  br_driver_submit(s->driver, q);
  atomic_store(&s->awaited, q->id); /* brant_interrupt stops it */
  br_status status = br_rows_open(s, q, &rows, err);
  if (status == BR_OK) status = br_session_check_interrupt(s, err);
  if (status != BR_OK) goto done;
  while ((status = br_rows_next(rows, &b, err)) == BR_OK && b != NULL) br_batch_unref(b);
done:
  atomic_store(&s->awaited, 0);
  br_rows_free(rows);
  return status;
}

static char *as_json(br_query *q, bool analyzed) {
  br_arena *arena = br_arena_new();
  json_t *j = br_stages_json(q->stages);
  json_t *stages = json_object_get(j, "stages");
  for (size_t i = 0; i < json_array_size(stages); i++) {
    json_t *stage = json_array_get(stages, i);
    size_t id = (size_t)json_integer_value(json_object_get(stage, "id"));
    if (id >= q->n_runs) continue;
    json_object_set_new(stage, "tasks", json_integer(q->runs[id].n_tasks));
    if (q->runs[id].n_tasks > 0)
      json_object_set_new(stage, "task_sql", json_string(br_task_sql(q, (uint32_t)id, 0, arena)));
    if (analyzed) json_object_set_new(stage, "measured", measured_json(&q->runs[id]));
  }
  char *text = json_dumps(j, JSON_INDENT(2));
  json_decref(j);
  br_arena_free(arena);
  char *with_end = br_asprintf("%s\n", text ? text : "{}");
  free(text);
  return with_end;
}

/* The stages with the SQL that their first task runs: splits in the place of tokens, so that a person can run it. */
static br_stages with_task_sql(const br_query *q, br_arena *arena) {
  br_stages copy = *q->stages;
  copy.stages = br_arena_alloc(arena, copy.n_stages * sizeof *copy.stages);
  for (size_t i = 0; i < copy.n_stages; i++) {
    copy.stages[i] = q->stages->stages[i];
    if (q->runs[i].n_tasks > 0) copy.stages[i].sql = br_task_sql(q, (uint32_t)i, 0, arena);
  }
  return copy;
}

static char *as_text(br_query *q, bool analyzed) {
  br_buf b = {0};
  br_arena *arena = br_arena_new();
  br_stages stages = with_task_sql(q, arena);
  br_stages_print(&stages, &b);
  if (analyzed) {
    print_measured(q, &b);
    print_adapted(q, &b);
    print_not_needed(q, &b);
    print_steps(q, &b);
    print_again(q, &b);
  }
  br_arena_free(arena);
  return br_buf_take(&b);
}

br_status br_explain_text(brant_session *s, const char *sql, bool analyze, bool json, char **text, br_error *err) {
  br_prepared p = {0};
  br_status status = br_prepare(s, sql, true, &p, err);
  if (status != BR_OK) return status;
  if (p.query == NULL) {
    *text = json ? br_asprintf("{\"local\": true, \"reason\": \"%s\", \"stages\": []}\n", p.local_why)
                 : br_asprintf("runs in this process: %s\n", p.local_why);
  } else {
    if (analyze) status = run_and_drop(s, p.query, err);
    if (status == BR_OK) *text = json ? as_json(p.query, analyze) : as_text(p.query, analyze);
  }
  br_prepared_free(&p);
  return status;
}

/* ---- the statement */

/* The options between the parentheses, and what follows them. False: one that DuckDB has and this has not. */
static bool parse_options(const char *p, br_explain_request *out) {
  const char *t;
  size_t n;
  while (br_token_next(&p, &t, &n)) {
    if (*t == ')') {
      out->select = p;
      return true;
    }
    if (br_token_is(t, n, "analyze"))
      out->analyze = true;
    else if (br_token_is(t, n, "duckdb"))
      out->duckdb = true;
    else if (br_token_is(t, n, "json"))
      out->json = true;
    else if (!br_token_is(t, n, "format") && !br_token_is(t, n, "text") && *t != ',')
      return false;
  }
  return false;
}

bool br_explain_parse(const char *sql, br_explain_request *out) {
  const char *p = sql, *t, *after;
  size_t n;
  *out = (br_explain_request){0};
  if (!br_token_next(&p, &t, &n) || !br_token_is(t, n, "explain")) return false;
  after = p;
  if (br_token_next(&p, &t, &n) && br_token_is(t, n, "analyze")) {
    out->analyze = true;
    after = p;
    if (!br_token_next(&p, &t, &n)) return false;
  }
  out->select = after;
  const char *q = p, *next;
  size_t m;
  /* a parenthesis may open the SELECT itself */
  if (*t != '(' || !br_token_next(&q, &next, &m) || *next == '(' || br_token_is(next, m, "select") ||
      br_token_is(next, m, "from") || br_token_is(next, m, "with") || br_token_is(next, m, "values"))
    return true;
  return parse_options(p, out);
}

int brant_explain(brant_session *s, const char *sql, int analyze, int json, char **text, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_statement kind = BR_STMT_OTHER;
  char *own = NULL;
  char *bound = NULL;
  br_status status = br_prepared_text(s, sql, &bound, &e);
  if (bound != NULL) sql = bound;
  if (status == BR_OK) status = br_node_text(sql, &own, &e);
  if (own != NULL) sql = own;
  if (status == BR_OK) status = br_session_classify(s->db, sql, &kind, &e);
  if (status == BR_OK && kind != BR_STMT_SELECT)
    status = br_fail(&e, BR_INVALID, BR_BLAME_USER, "only a SELECT has stages to explain");
  if (status == BR_OK) status = br_explain_text(s, sql, analyze != 0, json != 0, text, &e);
  free(own);
  free(bound);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}
