/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a distributed plan inside one DuckDB, stage by stage and task by task, for tests of plan/distribute: what each task
 * writes becomes a table x_<stage>_<task> (with the partition number as its last column), `input(k)` becomes a SELECT over
 * the tables that the exchange gives to the task, scan tokens become the rows of a split. Where no order is promised,
 * outputs are read in the reverse order of their tasks. Keys equal to several range bounds are spread.
 */
#ifndef BRANT_TESTS_STAGE_RUNNER_H
#define BRANT_TESTS_STAGE_RUNNER_H

#include "plan/stage/stage.h"
#include "plan_roundtrip.h"

#define SR_SPLITS 3
#define SR_MAX_STAGES 512

typedef struct sr_run {
  duckdb_connection c;
  const br_stages *s;
  uint32_t tasks[SR_MAX_STAGES];
  char *why;        /* the first failure */
  uint32_t passes;  /* stages that can run in this many; 0, 1: none does */
  bool ranges_only; /* of run-time filters: not the keys themselves */
  uint32_t of_rows; /* every how many-th task leaves its stage's partial step out; 0: none */
  size_t in_place;  /* hash joins that became broadcast joins */
} sr_run;

static size_t sr_split_tasks; /* how many ran in passes */
static size_t sr_ranges;      /* how many conditions on ranges of filter keys there were */
static size_t sr_of_rows;     /* how many tasks left their partial step out */
static size_t sr_in_place;    /* hash joins that ran as broadcast joins */
static size_t sr_blooms;      /* tasks that read a Bloom filter */

/* The engine's functions for Bloom filters, in SQL: of one bit a key, in a filter that finds few others. */
#define SR_KEYS_BLOOM \
  "CREATE OR REPLACE MACRO keys_bloom(h, blocks) AS bitstring_agg((h % 1048576)::INTEGER, 0, 1048575)"
#define SR_KEYS_HOLD "CREATE OR REPLACE MACRO keys_hold(f) AS f"
#define SR_KEYS_MAYBE \
  "CREATE OR REPLACE MACRO keys_maybe(f, h) AS coalesce(get_bit(f, (h % 1048576)::INTEGER) = 1, false)"
/* And for merged variances, for values whose mean is not large beside their spread (the real one: tests/sql/test_aggregate_steps.py). */
#define SR_MOMENT(name, parts) ", " name " := coalesce(CAST(" parts " AS DOUBLE), 0)"
#define SR_SUM(of) "sum(struct_extract(s, 'n') * " of ")"
#define SR_PRODUCTS(of, a, b)                                                              \
  "sum(struct_extract(s, '" of                                                             \
  "')) + " SR_SUM("struct_extract(s, '" a "') * struct_extract(s, '" b "')") " - " SR_SUM( \
      "struct_extract(s, '" a                                                              \
      "')") " * " SR_SUM("struct_extract(s, '" b "')") " / nullif(sum(struct_extract(s, 'n')), 0)"
#define SR_MEAN(of) SR_SUM("struct_extract(s, '" of "')") " / nullif(sum(struct_extract(s, 'n')), 0)"
#define SR_MERGE_MOMENTS                                                                                             \
  "CREATE OR REPLACE MACRO __merge_moments(s) AS struct_pack(n := CAST(coalesce(sum(struct_extract(s, 'n')), 0) AS " \
  "BIGINT)" SR_MOMENT("my", SR_MEAN("my")) SR_MOMENT("mx", SR_MEAN("mx"))                                            \
      SR_MOMENT("syy", SR_PRODUCTS("syy", "my", "my")) SR_MOMENT("sxx", SR_PRODUCTS("sxx", "mx", "mx"))              \
          SR_MOMENT("sxy", SR_PRODUCTS("sxy", "mx", "my")) ")"

/* docs/one-task.md, when a test loaded it: each reason must stand there. */
static const char *sr_reasons;

static inline bool sr_fail(sr_run *r, const char *fmt, ...) BR_PRINTF(2, 3);
static inline bool sr_fail(sr_run *r, const char *fmt, ...) {
  br_buf b = {0};
  va_list ap;
  va_start(ap, fmt);
  br_buf_vprintf(&b, fmt, ap);
  va_end(ap);
  if (r->why)
    br_buf_free(&b);
  else
    r->why = br_buf_take(&b);
  return false;
}

static inline bool sr_exec(sr_run *r, const char *sql) {
  char *why = NULL;
  if (rt_exec(r->c, sql, &why)) return true;
  sr_fail(r, "%s\n   in: %s", why, sql);
  free(why);
  return false;
}

/* One number, -1: failed. */
static inline int64_t sr_number(sr_run *r, const char *sql) {
  rt_rows rows = {0};
  char *why = NULL;
  br_buf q = {0};
  int64_t n = -1;
  br_buf_printf(&q, "SELECT (%s)::VARCHAR", sql);
  if (rt_column(r->c, br_buf_cstr(&q), 0, &rows, &why) && rows.n)
    n = atoll(rows.v[0]);
  else
    sr_fail(r, "%s\n   in: %s", why ? why : "no row", sql);
  free(why);
  rt_rows_free(&rows);
  br_buf_free(&q);
  return n;
}

/* ---- what a task reads */

static inline void sr_columns(br_buf *b, const br_stage *s) {
  for (size_t i = 0; i < s->n_columns; i++) br_buf_printf(b, "%sc%zu", i ? ", " : "", i);
}

/* `(SELECT c0, … FROM x_…)`: all tasks of the producer, or one task (only >= 0), or one partition (part >= 0). */
static inline void sr_read(sr_run *r, br_buf *b, const br_stage *p, int64_t only, int64_t part, bool ordered) {
  uint32_t n = r->tasks[p->id], printed = 0;
  br_buf_char(b, '(');
  for (uint32_t i = 0; i < n; i++) {
    uint32_t t = ordered ? i : n - 1 - i;
    if (only >= 0 && t != only) continue;
    br_buf_str(b, printed++ ? " UNION ALL SELECT " : "SELECT ");
    sr_columns(b, p);
    br_buf_printf(b, " FROM x_%u_%u", p->id, t);
    if (part >= 0) br_buf_printf(b, " WHERE p = %lld", (long long)part);
  }
  if (!printed) {
    br_buf_str(b, "SELECT ");
    for (size_t i = 0; i < p->n_columns; i++)
      br_buf_printf(b, "%sCAST(NULL AS %s) AS c%zu", i ? ", " : "", p->types[i], i);
    br_buf_str(b, " WHERE false");
  }
  br_buf_char(b, ')');
}

/* Which task of this FORWARD input the consumer's task reads; n (none of them) when it reads another input. */
static inline int64_t sr_forward_task(const sr_run *r, const br_stage *s, size_t input, uint32_t task) {
  if (s->rule == BR_TASKS_ONE) return -1; /* all */
  uint32_t before = 0;
  for (size_t i = 0; i < s->n_inputs; i++) {
    if (s->inputs[i].kind != BR_EX_FORWARD) continue;
    uint32_t n = r->tasks[s->inputs[i].producer];
    if (i == input) return task >= before && task < before + n ? task - before : n;
    before += n;
  }
  return 0;
}

static inline void sr_input(sr_run *r, br_buf *b, const br_stage *s, size_t k, uint32_t task) {
  const br_stage_input *in = &s->inputs[k];
  const br_stage *p = &r->s->stages[in->producer];
  bool whole = in->kind == BR_EX_FILTER || in->kind == BR_EX_KEYS || (in->kind == BR_EX_BROADCAST && r->in_place > 0);
  bool bloom = in->kind == BR_EX_BLOOM && p->makes_bloom && p->output == BR_EX_BROADCAST;
  sr_blooms += bloom;
  if (in->kind != p->output && !bloom && !(whole && p->output == BR_EX_HASH))
    sr_fail(r, "stage %u reads stage %u by another kind than it writes", s->id, p->id);
  int64_t only = in->kind == BR_EX_FORWARD ? sr_forward_task(r, s, k, task) : -1;
  int64_t part = in->kind == BR_EX_HASH || in->kind == BR_EX_RANGE ? (int64_t)task : -1;
  if (!in->ordered) {
    sr_read(r, b, p, only, part, false);
    return;
  }
  br_buf copy = {0}; /* one table: the parts of a UNION ALL may be run in any order */
  br_buf_printf(&copy, "CREATE OR REPLACE TEMP TABLE ordered_%zu AS FROM ", k);
  sr_read(r, &copy, p, only, part, true);
  sr_exec(r, br_buf_cstr(&copy));
  br_buf_printf(b, "(SELECT * FROM ordered_%zu)", k);
  br_buf_free(&copy);
}

static inline void sr_files(br_buf *b, const br_scan *s, int64_t split) {
  size_t printed = 0;
  br_buf_str(b, "[");
  for (size_t i = 0; i < s->n_files; i++) {
    if (split >= 0 && i % SR_SPLITS != (size_t)split) continue;
    br_buf_str(b, printed++ ? ", " : "");
    br_buf_sql_literal(b, s->files[i], strlen(s->files[i]));
  }
  br_buf_char(b, ']');
}

static inline void sr_table(br_buf *b, const br_scan *s) {
  br_buf_sql_ident(b, s->catalog);
  br_buf_char(b, '.');
  br_buf_sql_ident(b, s->schema);
  br_buf_char(b, '.');
  br_buf_sql_ident(b, s->table);
}

/* The source of a split, or the whole source. */
static inline void sr_source(br_buf *b, const br_scan *s, int64_t split) {
  if (s->kind == BR_SCAN_TABLE) {
    if (split >= 0) br_buf_str(b, "(SELECT *, rowid FROM ");
    sr_table(b, s);
    if (split >= 0) br_buf_printf(b, " WHERE rowid %% %d = %lld)", SR_SPLITS, (long long)split);
    return;
  }
  br_buf_str(b, "read_parquet(");
  sr_files(b, s, split);
  br_buf_printf(b, "%s)", s->options);
}

/* Tasks of a scan: none when it is empty. */
static inline uint32_t sr_splits(sr_run *r, const br_scan *s) {
  br_buf b = {0};
  uint32_t n;
  if (s->kind == BR_SCAN_PARQUET) return s->n_files < SR_SPLITS ? (uint32_t)s->n_files : SR_SPLITS;
  br_buf_str(&b, "SELECT count(*) FROM ");
  sr_table(&b, s);
  n = sr_number(r, br_buf_cstr(&b)) > 0 ? SR_SPLITS : 0;
  br_buf_free(&b);
  return n;
}

/* ---- a task's text */

static inline const br_stage_scan *sr_token_at(const br_stage *s, const char *at) {
  for (size_t i = 0; i < s->n_scans; i++)
    if (!strncmp(at, s->scans[i].token, strlen(s->scans[i].token))) return &s->scans[i];
  return NULL;
}

/* "t.c0 BETWEEN 1 AND 9": what the producer's tables hold; NULL: no key of the filter has a range. */
static inline const char *sr_range(sr_run *r, br_arena *arena, const br_stage_input *in) {
  const br_stage *p = &r->s->stages[in->producer];
  const char *all = NULL;
  for (size_t k = 0; k < in->n_ranges; k++) {
    const br_filter_key *key = &in->ranges[k];
    bool told = false;
    br_buf q = {0};
    rt_rows rows = {0};
    char *why = NULL;
    for (size_t i = 0; i < p->n_ranged; i++) told = told || p->ranged[i] == key->column;
    if (!told) sr_fail(r, "stage %u does not tell the range of c%u", p->id, key->column);
    br_buf_printf(
        &q,
        "SELECT coalesce('BETWEEN CAST(''' || min(c%u) || ''' AS %s) AND CAST(''' || max(c%u) || ''' AS %s)', "
        "'IS NULL AND false') FROM ",
        key->column, key->type, key->column, key->type);
    sr_read(r, &q, p, -1, -1, false);
    if (!rt_column(r->c, br_buf_cstr(&q), 0, &rows, &why) || !rows.n)
      sr_fail(r, "%s\n   in: %s", why ? why : "no row", br_buf_cstr(&q));
    else
      all = br_arena_printf(arena, "%s%s%s %s", all ? all : "", all ? " AND " : "", key->text, rows.v[0]);
    sr_ranges++;
    free(why);
    rt_rows_free(&rows);
    br_buf_free(&q);
  }
  return all;
}

static inline void sr_task_text(sr_run *r, const br_stage *s, uint32_t task, br_buf *b) {
  br_arena *arena = br_arena_new();
  bool of_rows = s->row_columns && r->of_rows && (task + s->id) % r->of_rows == 0;
  sr_of_rows += of_rows;
  const char *sql = of_rows ? br_stage_of_rows(arena, s) : s->sql;
  sql = br_stage_task_sql(arena, sql, task, r->tasks[s->id]);
  for (uint32_t i = 0; i < s->n_inputs; i++) {
    if (s->inputs[i].kind != BR_EX_FILTER) continue;
    sql = br_stage_with_range(arena, sql, i, sr_range(r, arena, &s->inputs[i]));
    if (r->ranges_only) sql = br_stage_without_filter(arena, sql, i);
  }
  for (const char *p = sql; *p;) {
    const br_stage_scan *scan = sr_token_at(s, p);
    if (*p == '\'' || *p == '"') {
      char q = *p;
      do br_buf_char(b, *p++);
      while (*p && *p != q);
      if (*p) br_buf_char(b, *p++);
    } else if (!strncmp(p, "input(", 6) && (p == sql || p[-1] == ' ' || p[-1] == '\n')) {
      size_t k = strtoul(p + 6, NULL, 10);
      if (k < s->n_inputs)
        sr_input(r, b, s, k, task);
      else
        sr_fail(r, "input(%zu) does not exist", k);
      p = strchr(p, ')') + 1;
    } else if (scan) {
      sr_source(b, &scan->scan, s->split_scan >= 0 && scan == &s->scans[s->split_scan] ? (int64_t)task : -1);
      p += strlen(scan->token);
    } else {
      br_buf_char(b, *p++);
    }
  }
  br_arena_free(arena);
}

/* One pass after the other, as an executor appends them to one output. */
static inline void sr_passes_text(sr_run *r, const br_stage *s, uint32_t task, br_buf *b) {
  br_arena *arena = br_arena_new();
  br_stage one = *s;
  for (uint32_t i = 0; i < r->passes; i++) {
    one.sql = br_stage_pass_sql(arena, s, s->sql, r->passes, i);
    br_buf_str(b, i ? "\nUNION ALL SELECT * FROM (" : "SELECT * FROM (");
    sr_task_text(r, &one, task, b);
    br_buf_char(b, ')');
  }
  br_arena_free(arena);
  sr_split_tasks++;
}

static inline const br_stage_input *sr_bounds(const br_stage *s) {
  for (size_t i = 0; i < s->n_inputs; i++)
    if (s->inputs[i].kind == BR_EX_BOUNDS) return &s->inputs[i];
  return NULL;
}

static inline void sr_create(sr_run *r, const br_stage *s, uint32_t task, const char *text, br_buf *b) {
  const br_stage_input *bounds = sr_bounds(s);
  br_buf_printf(b, "CREATE OR REPLACE TEMP TABLE x_%u_%u AS SELECT ", s->id, task);
  sr_columns(b, s);
  if (s->output == BR_EX_HASH) br_buf_printf(b, ", c%zu AS p", s->n_columns);
  if (s->output == BR_EX_RANGE && !bounds) sr_fail(r, "stage %u is cut by range without bounds", s->id);
  if (s->output == BR_EX_RANGE && bounds)
    br_buf_printf(b,
                  ", lo + row_number() OVER () %% (hi - lo + 1) AS p FROM (SELECT *, (SELECT count(*) FROM x_%u_0 b "
                  "WHERE b.c0 < t.c%zu) AS lo, (SELECT count(*) FROM x_%u_0 b WHERE b.c0 <= t.c%zu) AS hi FROM (%s) t)",
                  bounds->producer, s->n_columns, bounds->producer, s->n_columns, text);
  else
    br_buf_printf(b, " FROM (%s) t", text);
}

/* Of the range exchange that these bounds are for. */
static inline int64_t sr_partitions_of(const sr_run *r, const br_stage *bounds) {
  for (size_t i = 0; i < r->s->n_stages; i++)
    for (size_t k = 0; k < r->s->stages[i].n_inputs; k++)
      if (r->s->stages[i].inputs[k].producer == bounds->id) return r->s->stages[i].partitions;
  return 0;
}

/* Types as promised, partitions in range. */
static inline bool sr_check_output(sr_run *r, const br_stage *s, uint32_t task) {
  br_buf q = {0};
  bool ok = true;
  if (s->output == BR_EX_HASH || s->output == BR_EX_RANGE) {
    br_buf_printf(&q, "SELECT count(*) FROM x_%u_%u WHERE p IS NULL OR p < 0 OR p >= %u", s->id, task, s->partitions);
    if (sr_number(r, br_buf_cstr(&q)) != 0) ok = sr_fail(r, "stage %u gives partitions out of range", s->id);
  }
  if (s->output == BR_EX_BOUNDS) {
    br_buf_printf(&q, "SELECT count(c0) FROM x_%u_%u", s->id, task);
    if (sr_number(r, br_buf_cstr(&q)) != sr_partitions_of(r, s) - 1)
      ok = sr_fail(r, "stage %u gives too few bounds", s->id);
  }
  br_buf_free(&q);
  return ok;
}

static inline uint32_t sr_task_count(sr_run *r, const br_stage *s) {
  uint32_t n = 0;
  switch (s->rule) {
    case BR_TASKS_ONE: return 1;
    case BR_TASKS_SPLITS: return sr_splits(r, &s->scans[s->split_scan].scan);
    case BR_TASKS_PARTITIONS:
      for (size_t i = 0; i < s->n_inputs; i++) {
        const br_stage *p = &r->s->stages[s->inputs[i].producer];
        if (s->inputs[i].kind != BR_EX_HASH && s->inputs[i].kind != BR_EX_RANGE) continue;
        if (n && n != p->partitions) sr_fail(r, "stage %u joins %u and %u partitions", s->id, n, p->partitions);
        n = p->partitions;
      }
      return n;
    case BR_TASKS_FORWARD:
      for (size_t i = 0; i < s->n_inputs; i++)
        if (s->inputs[i].kind == BR_EX_FORWARD) n += r->tasks[s->inputs[i].producer];
      return n;
  }
  return n;
}

static inline bool sr_stage(sr_run *r, const br_stage *s) {
  for (size_t i = 0; i < s->n_inputs; i++)
    if (s->inputs[i].producer >= s->id) return sr_fail(r, "stage %u reads stage %u", s->id, s->inputs[i].producer);
  if ((s->rule == BR_TASKS_ONE) != (s->one_task_reason != NULL)) return sr_fail(r, "stage %u: reason and rule", s->id);
  if (sr_reasons && s->one_task_reason && !strstr(sr_reasons, s->one_task_reason))
    return sr_fail(r, "the reason \"%s\" is not in docs/one-task.md", s->one_task_reason);
  r->tasks[s->id] = sr_task_count(r, s);
  for (uint32_t t = 0; t < r->tasks[s->id] && !r->why; t++) {
    br_buf text = {0}, create = {0};
    if (r->passes > 1 && br_stage_splittable(s))
      sr_passes_text(r, s, t, &text);
    else
      sr_task_text(r, s, t, &text);
    sr_create(r, s, t, br_buf_cstr(&text), &create);
    if (!r->why && sr_exec(r, br_buf_cstr(&create))) sr_check_output(r, s, t);
    br_buf_free(&text);
    br_buf_free(&create);
  }
  return !r->why;
}

static inline void sr_drop(sr_run *r) {
  for (size_t s = 0; s < r->s->n_stages; s++)
    for (uint32_t t = 0; t < r->tasks[s]; t++) {
      char *sql = br_asprintf("DROP TABLE IF EXISTS x_%zu_%u", s, t), *why = NULL;
      if (!rt_exec(r->c, sql, &why)) free(why);
      free(sql);
    }
}

/* All stages; *out is the result's rows as text, in the order of the tasks. */
static inline bool sr_run_stages(sr_run *r, rt_rows *out) {
  rt_rows types = {0};
  br_buf q = {0};
  if (r->s->n_stages > SR_MAX_STAGES) return sr_fail(r, "too many stages");
  for (size_t i = 0; i < r->s->n_stages; i++)
    if (!sr_stage(r, &r->s->stages[i])) break;
  if (!r->why) {
    const br_stage *last = &r->s->stages[r->s->n_stages - 1];
    char *why = NULL;
    br_buf_str(&q, "SELECT * FROM ");
    sr_read(r, &q, last, -1, -1, true);
    if (!rt_run(r->c, br_buf_cstr(&q), true, &types, out, &why)) sr_fail(r, "%s", why);
    free(why);
  }
  sr_drop(r);
  rt_rows_free(&types);
  br_buf_free(&q);
  return !r->why;
}

/* ---- a query, both ways */

typedef struct sr_config {
  const char *name;
  br_distribute_options o;
  uint32_t passes;
  bool ranges_only;
  uint32_t of_rows;
} sr_config;

static const sr_config sr_configs[] = {
    {.name = "hash",
     .o = {.partitions = 3,
           .broadcast_bytes = 0,
           .sort_one_task_rows = 0,
           .two_step_aggregate = true,
           .run_time_filters = true,
           .joins_in_place = true,
           .bloom_filters = true},
     .of_rows = 2},
    {.name = "broadcast",
     .o = {.partitions = 3, .broadcast_bytes = 1e18, .sort_one_task_rows = 1e18, .two_step_aggregate = true}},
    {.name = "one",
     .o = {.partitions = 1,
           .broadcast_bytes = 1000,
           .sort_one_task_rows = 0,
           .two_step_aggregate = true,
           .run_time_filters = true},
     .of_rows = 1},
    {.name = "whole",
     .o = {.partitions = 3, .broadcast_bytes = 0, .sort_one_task_rows = 1e18, .two_step_aggregate = false}},
    {.name = "passes",
     .o = {.partitions = 2,
           .broadcast_bytes = 0,
           .sort_one_task_rows = 0,
           .two_step_aggregate = false,
           .run_time_filters = true,
           .bloom_filters = true},
     .passes = 3,
     .ranges_only = true},
};
#define SR_N_CONFIGS (sizeof sr_configs / sizeof *sr_configs)

/* "4 stages, HASH 2, SINGLE 1": how the result's stages are connected. */
static inline char *sr_shape(const br_stages *s) {
  br_buf b = {0};
  size_t count[BR_EX_RESULT + 1] = {0};
  if (s->whole_query_reason) return br_strdup("whole query");
  size_t n = 0; /* without those for Bloom filters */
  for (size_t i = 0; i < s->n_stages; i++) count[s->stages[i].output] += !s->stages[i].makes_bloom;
  for (size_t i = 0; i < s->n_stages; i++) n += !s->stages[i].makes_bloom;
  br_buf_printf(&b, "%zu stage%s", n, n == 1 ? "" : "s");
  for (int k = 0; k < BR_EX_RESULT; k++)
    if (count[k]) br_buf_printf(&b, ", %s %zu", br_exchange_name((br_exchange_kind)k), count[k]);
  return br_buf_take(&b);
}

typedef struct sr_case {
  const char *sql;
  bool ordered, shape; /* as rt_case */
  bool fails;
  const char *expect[SR_N_CONFIGS]; /* shapes, NULL: not asked */
  bool whole;                       /* the whole query runs as one task */
} sr_case;

static inline void sr_print(const br_stages *s) {
  br_buf b = {0};
  br_stages_print(s, &b);
  fprintf(stderr, "%s", br_buf_cstr(&b));
  br_buf_free(&b);
}

static inline bool sr_say(const sr_case *t, const sr_config *cfg, const br_stages *s, const char *why) {
  fprintf(stderr, "\n--- [%s] %s\n%s\n", cfg->name, t->sql, why);
  if (s && getenv("BRANT_STAGES_PRINT")) sr_print(s);
  return false;
}

static inline bool sr_compare(const sr_case *t, rt_rows *want, rt_rows *got, char **why) {
  if (want->n != got->n) {
    *why = br_asprintf("%zu rows, should be %zu", got->n, want->n);
    return false;
  }
  if (t->shape || !want->n) return true;
  if (!t->ordered) qsort(got->v, got->n, sizeof *got->v, rt_compare);
  for (size_t i = 0; i < want->n; i++)
    if (strcmp(want->v[i], got->v[i]) != 0) {
      *why = br_asprintf("row %zu differs:\n   is     %s\n   should %s", i, got->v[i], want->v[i]);
      return false;
    }
  return true;
}

/* Every hash join that may be one becomes a broadcast join: as while a query runs, but whatever the sizes. */
static inline size_t sr_join_in_place(br_stages *s, bool backwards) {
  size_t done = 0;
  for (size_t i = 0; i < s->n_stages; i++) {
    uint32_t id = (uint32_t)(backwards ? s->n_stages - 1 - i : i), reader, input;
    br_stage *st = &s->stages[id];
    while (st->n_inputs > 0 && st->inputs[st->n_inputs - 1].kind == BR_EX_WAIT) st->n_inputs--;
    if (!br_stage_may_join_in_place(s, id, &reader, &input)) continue;
    s->stages[reader] = br_stage_join_in_place(s->arena, s, id, reader, input);
    s->stages[id].n_inputs = 0;
    s->stages[id].rule = BR_TASKS_FORWARD; /* of nothing: no tasks */
    done++;
  }
  return done;
}

/* The same plan with these. */
static inline bool sr_check_in_place(duckdb_connection c, const sr_case *t, const sr_config *cfg, br_stages *s,
                                     bool backwards, rt_rows *want) {
  sr_run r = {.c = c,
              .s = s,
              .passes = cfg->passes,
              .ranges_only = cfg->ranges_only,
              .of_rows = cfg->of_rows,
              .in_place = sr_join_in_place(s, backwards)};
  rt_rows got = {0};
  char *why = NULL;
  if (r.in_place == 0) return true;
  sr_in_place += r.in_place;
  bool ok =
      sr_run_stages(&r, &got) ? sr_compare(t, want, &got, &why) || sr_say(t, cfg, s, why) : sr_say(t, cfg, s, r.why);
  if (!ok) fprintf(stderr, "with joins in place\n");
  rt_rows_free(&got);
  free(r.why);
  free(why);
  return ok;
}

static inline bool sr_check_config(duckdb_connection c, const sr_case *t, const br_plan *plan, size_t which,
                                   rt_rows *want) {
  const sr_config *cfg = &sr_configs[which];
  br_error err = {0};
  br_stages *s = NULL;
  rt_rows got = {0};
  char *why = NULL, *shape = NULL;
  bool ok;
  if (br_distribute(plan, &cfg->o, &s, &err) != BR_OK) return sr_say(t, cfg, NULL, err.message);
  sr_run r = {.c = c, .s = s, .passes = cfg->passes, .ranges_only = cfg->ranges_only, .of_rows = cfg->of_rows};
  shape = sr_shape(s);
  if (getenv("BRANT_SHAPES")) fprintf(stderr, "-- %s: %s\n", cfg->name, shape);
  if (getenv("BRANT_STAGES_ALL")) sr_print(s);
  if (s->whole_query_reason) {
    ok = t->whole || sr_say(t, cfg, s, s->whole_query_reason);
  } else if (t->whole) {
    ok = sr_say(t, cfg, s, "should run as one task of the whole query");
  } else {
    ok = sr_run_stages(&r, &got);
    if (t->fails)
      ok = !ok || sr_say(t, cfg, s, "should fail");
    else
      ok = ok ? (sr_compare(t, want, &got, &why) || sr_say(t, cfg, s, why)) : sr_say(t, cfg, s, r.why);
  }
  if (ok && !t->fails && !s->whole_query_reason) ok = sr_check_in_place(c, t, cfg, s, which % 2 == 0, want);
  if (ok && t->expect[which] && strcmp(t->expect[which], shape) != 0) {
    free(why);
    why = br_asprintf("%s, should be %s", shape, t->expect[which]);
    ok = sr_say(t, cfg, s, why);
  }
  rt_rows_free(&got);
  free(r.why);
  free(why);
  free(shape);
  br_stages_free(s);
  return ok;
}

static inline bool sr_check(duckdb_connection c, const sr_case *t, unsigned configs) {
  br_error err = {0};
  br_plan *p = NULL;
  rt_rows types = {0}, want = {0};
  char *why = NULL, *explain = NULL, *json = rt_plan(c, t->sql, &explain, &why);
  bool ok = true;
  if (!json || br_plan_parse(json, explain, &p, &err) != BR_OK) {
    ok = sr_say(t, &sr_configs[0], NULL, why ? why : err.message);
  } else if (!rt_run(c, t->sql, t->ordered, &types, &want, &why) && !t->fails) {
    ok = sr_say(t, &sr_configs[0], NULL, why);
  } else {
    for (size_t i = 0; i < SR_N_CONFIGS; i++)
      if (configs & (1u << i)) ok = sr_check_config(c, t, p, i, &want) && ok;
  }
  br_plan_free(p);
  rt_rows_free(&types);
  rt_rows_free(&want);
  free(json);
  free(explain);
  free(why);
  return ok;
}

#endif
