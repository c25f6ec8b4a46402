/* SPDX-License-Identifier: Apache-2.0
 * links: br_engine
 * Tasks: every projection, batches of odd sizes, parallel correctness, release of batches, order, empty results, statistics. */
#include "engine_fixture.h"

/* Batches of given sizes over (c0 BIGINT = row number, c1 VARCHAR, c2 DOUBLE with NULLs, c3 BIGINT[], c4 BOOLEAN). */
static br_schema *five_columns(fixture *f) {
  br_schema *s;
  OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "VARCHAR", "DOUBLE", "BIGINT[]", "BOOLEAN"}, NULL, 5,
                       &s, &err));
  return s;
}

static size_t make_batches(fixture *f, const uint32_t *sizes, size_t n, br_batch **out) {
  uint64_t first = 0;
  for (size_t i = 0; i < n; i++) {
    char *sql = br_asprintf(
        "SELECT r, CASE WHEN r %% 5 = 0 THEN NULL ELSE 'text of row number ' || r END, CASE WHEN r %% 3 = 0 THEN NULL "
        "ELSE r / 2.0 "
        "END::DOUBLE, range(r %% 4), r %% 2 = 0 FROM range(%llu, %llu) t(r)",
        (unsigned long long)first, (unsigned long long)(first + sizes[i]));
    collect *c = run_over(f, sql, NULL, NULL, 0, true);
    free(sql);
    assert_int_equal(c->rows, sizes[i]);
    assert_int_equal(c->n, sizes[i] ? 1 : 0);
    out[i] = c->n ? br_batch_ref(c->batches[0]) : NULL;
    collect_free(c);
    first += sizes[i];
  }
  return (size_t)first;
}

static void projections(void **state) {
  fixture *f = *state;
  static const uint32_t sizes[] = {1, 2047, 2048, 2049, 65536, 7};
  enum { N = sizeof sizes / sizeof *sizes };
  static const char *const expect[5] = {"sum(c0)", "sum(strlen(c1)) || max(c1)", "sum(c2)",
                                        "sum(len(c3)) || max(c3)::VARCHAR", "count(*) FILTER (c4)"};
  static const char *const truth[5] = {
      "sum(r)",
      ("sum(strlen('text of row number ' || r)) FILTER (r % 5 > 0) || max('text of row "
       "number ' || r) FILTER (r % 5 > 0)"),
      "sum(r / 2.0::DOUBLE) FILTER (r % 3 > 0)", "sum(r % 4) || '[0, 1, 2]'", "count(*) FILTER (r % 2 = 0)"};
  br_batch *batches[N];
  size_t rows = make_batches(f, sizes, N, batches);
  br_schema *schema = five_columns(f);
  for (unsigned mask = 0; mask < 32; mask++) {
    br_buf in = {0}, want = {0};
    br_buf_str(&in, "SELECT count(*)");
    br_buf_str(&want, "SELECT concat_ws('|', count(*)");
    for (int i = 0; i < 5; i++)
      if (mask >> i & 1) br_buf_printf(&in, ", %s", expect[i]), br_buf_printf(&want, ", %s", truth[i]);
    br_buf_printf(&want, ") FROM range(%zu) t(r)", rows);
    char *sql = br_asprintf("SELECT concat_ws('|', *COLUMNS(*)) FROM (%s FROM input(0))", br_buf_cstr(&in));
    collect *c = run_over(f, sql, schema, batches, N, false);
    const struct ArrowArray *a = br_batch_arrow(c->batches[0])->children[0];
    const int32_t *offsets = a->buffers[1];
    char *have = br_strndup((const char *)a->buffers[2] + offsets[a->offset],
                            (size_t)(offsets[a->offset + 1] - offsets[a->offset]));
    expect_cell(f->session, br_buf_cstr(&want), have);
    free(have);
    free(sql);
    collect_free(c);
    br_buf_free(&in);
    br_buf_free(&want);
  }
  /* A filter's column is read and thrown away: what stays must not lose its memory. */
  static const char *const keep[] = {
      "SELECT c1 FROM input(0) WHERE c0 % 7 = 3",
      "SELECT lag(c1) OVER () FROM input(0) WHERE c2 > 5",
      "SELECT a.c1 FROM input(0) a JOIN (SELECT 3 AS k UNION ALL SELECT 10) b ON a.c0 % 16 = b.k",
      "SELECT unnest([c1, c1]) FROM input(0) WHERE c0 % 3 = 1",
      "SELECT c1 FROM input(0) ORDER BY c0 DESC LIMIT 3000",
      "SELECT c3 FROM input(0) WHERE c4"};
  for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
    collect *c = run_over(f, keep[i], schema, batches, N, true);
    assert_true(c->rows > 2000);
    collect_free(c);
  }
  for (size_t i = 0; i < N; i++) br_batch_unref(batches[i]);
  br_schema_unref(schema);
}

/* ---- batches made on the fly, counted while they live */
typedef struct generator {
  br_schema *schema;
  int64_t batches, rows; /* of each batch */
  _Atomic int64_t next, alive, most_alive;
} generator;

typedef struct made {
  generator *g;
  size_t bytes;
  void *values;
} made;

static void release_made(struct ArrowArray *a) {
  made *m = a->private_data;
  for (int64_t i = 0; i < a->n_children; i++) {
    struct ArrowArray *k = a->children[i];
    memset((void *)k->buffers[1], 0xEE, m->bytes); /* who reads it now finds nonsense */
    free((void *)k->buffers[1]);
    free(k->buffers);
    free(k);
  }
  free(a->children);
  free(a->buffers);
  m->g->alive--;
  free(m);
  a->release = NULL;
}

static void release_child(struct ArrowArray *a) { a->release = NULL; }

/* Columns: number of the row over all batches, and its remainder by 1000. */
static br_status generate(void *arg, br_batch **out, br_error *err) {
  generator *g = arg;
  int64_t k = g->next++;
  if (k >= g->batches) {
    *out = NULL;
    return BR_OK;
  }
  made *m = br_calloc(1, sizeof *m);
  m->g = g;
  m->bytes = (size_t)g->rows * 8;
  struct ArrowArray a = {
      .length = g->rows, .n_buffers = 1, .n_children = 2, .release = release_made, .private_data = m};
  a.buffers = br_calloc(1, sizeof *a.buffers);
  a.children = br_calloc(2, sizeof *a.children);
  for (int i = 0; i < 2; i++) {
    int64_t *v = br_malloc(m->bytes);
    for (int64_t r = 0; r < g->rows; r++) v[r] = i ? (k * g->rows + r) % 1000 : k * g->rows + r;
    a.children[i] = br_calloc(1, sizeof **a.children);
    *a.children[i] = (struct ArrowArray){.length = g->rows, .n_buffers = 2, .release = release_child};
    a.children[i]->buffers = br_calloc(2, sizeof(void *));
    a.children[i]->buffers[1] = v;
  }
  int64_t alive = ++g->alive, most = g->most_alive;
  while (alive > most && !atomic_compare_exchange_weak(&g->most_alive, &most, alive)) {
  }
  return br_batch_new(g->schema, &a, m->bytes * 2, out, err);
}

static collect *run_generated(fixture *f, generator *g, const char *sql, bool ordered, bool known) {
  collect *c = collect_new();
  br_run_sink sink = collect_sink(c);
  br_run_input in = {.schema = g->schema,
                     .next = generate,
                     .arg = g,
                     .rows = (uint64_t)(g->batches * g->rows),
                     .rows_known = known,
                     .ordered = ordered};
  br_run run = {.sql = sql,
                .inputs = &in,
                .n_inputs = 1,
                .sink = &sink,
                .ordered = ordered,
                .scratch_dir = f->scratch,
                .profile = !known};
  g->next = 0;
  OK(br_session_run(f->session, &run, &err));
  assert_int_equal(run.stats.rows_out, c->rows);
  assert_true(run.stats.wall_us > 0);
  if (!known) {
    assert_non_null(run.stats.profile_json);
    assert_non_null(strstr(run.stats.profile_json, "OPERATOR_TIMING"));
    free(run.stats.profile_json);
  }
  return c;
}

/* What the topmost grouping reads and makes, whatever lies below it. */
static void groups_are_counted(void **state) {
  static const struct {
    const char *sql;
    uint64_t rows, groups;
  } cases[] = {
      {"SELECT g AS c0, count(*) AS c1 FROM (SELECT t.*, c1 AS g FROM input(0) t WHERE c0 < 5000) t GROUP BY g", 5000,
       1000},
      {"SELECT DISTINCT * FROM input(0)", 20000, 20000},
      {"SELECT x.c0 + 1 AS c0, x.c1 AS c1 FROM (SELECT c1 AS c0, sum(n) AS c1 FROM (SELECT c1, c0 % 7 AS m, count(*) "
       "AS n FROM input(0) "
       "GROUP BY ALL) GROUP BY 1) x",
       7000, 1000},
      {"SELECT c0, c1 FROM input(0)", 0, 0},
      {"SELECT c1 AS c0, count(*) AS c1 FROM input(0) WHERE c0 < 0 GROUP BY c1", 0, 0},
  };
  fixture *f = *state;
  generator g = {.batches = 2, .rows = 10000};
  OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, NULL, 2, &g.schema, &err));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    collect *c = collect_new();
    br_run_sink sink = collect_sink(c);
    br_run_input in = {.schema = g.schema, .next = generate, .arg = &g, .rows = 20000, .rows_known = true};
    br_run run = {.sql = cases[i].sql,
                  .inputs = &in,
                  .n_inputs = 1,
                  .sink = &sink,
                  .scratch_dir = f->scratch,
                  .count_groups = true};
    g.next = 0;
    OK(br_session_run(f->session, &run, &err));
    assert_null(run.stats.profile_json);
    assert_int_equal(run.stats.grouped_rows, cases[i].rows);
    assert_int_equal(run.stats.groups, cases[i].groups);
    collect_free(c);
  }
  br_schema_unref(g.schema);
}

static void parallel(void **state) {
  fixture *f = *state;
  generator g = {.batches = 77, .rows = 65536};
  OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, NULL, 2, &g.schema, &err));
  int64_t rows = g.batches * g.rows;
  /* every row once, through the parallel sink */
  collect *c = run_generated(f, &g, "SELECT c0, c1 FROM input(0)", false, true);
  assert_int_equal(c->rows, rows);
  assert_true(c->begins >= 1);
  unsigned char *seen = br_calloc((size_t)rows, 1);
  for (size_t i = 0; i < c->n; i++)
    for (int64_t r = 0; r < br_batch_rows(c->batches[i]); r++) {
      int64_t k = batch_int64(c->batches[i], 0, r);
      assert_true(k >= 0 && k < rows && !seen[k]);
      assert_int_equal(batch_int64(c->batches[i], 1, r), k % 1000);
      seen[k] = 1;
    }
  free(seen);
  collect_free(c);
  assert_int_equal(g.alive, 0);
  assert_true(g.most_alive <= 12); /* of 77: consumed batches go at once */
  c = run_generated(f, &g, "SELECT c1, sum(c0), count(*) FROM input(0) GROUP BY c1", false, false);
  assert_int_equal(c->rows, 1000);
  int64_t count = 0;
  for (size_t i = 0; i < c->n; i++)
    for (int64_t r = 0; r < br_batch_rows(c->batches[i]); r++) count += batch_int64(c->batches[i], 2, r);
  assert_int_equal(count, rows);
  collect_free(c);
  assert_int_equal(g.alive, 0);
  br_schema_unref(g.schema);
}

static void ordered(void **state) {
  fixture *f = *state;
  generator g = {.batches = 20, .rows = 10000};
  OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, NULL, 2, &g.schema, &err));
  static const char *const sqls[] = {"SELECT c0 FROM input(0)", "SELECT c0 FROM input(0) ORDER BY c0",
                                     "SELECT -c0 FROM input(0) ORDER BY c0 DESC"};
  for (size_t k = 0; k < 3; k++) {
    collect *c = run_generated(f, &g, sqls[k], true, true);
    assert_int_equal(c->begins, 1);
    int64_t at = k == 2 ? -199999 : 0;
    for (size_t i = 0; i < c->n; i++)
      for (int64_t r = 0; r < br_batch_rows(c->batches[i]); r++)
        assert_int_equal(batch_int64(c->batches[i], 0, r), at++);
    assert_int_equal(c->rows, 200000);
    collect_free(c);
  }
  /* parallel and ordered runs take turns on one instance */
  collect *c = run_generated(f, &g, "SELECT c0 FROM input(0)", false, true);
  collect_free(c);
  expect_cell(f->session, "SELECT current_setting('preserve_insertion_order')", "true");
  br_schema_unref(g.schema);
}

static void empties(void **state) {
  fixture *f = *state;
  br_schema *schema = five_columns(f);
  collect *c = run_over(f, "SELECT * FROM input(0)", schema, NULL, 0, false); /* no batch at all */
  assert_int_equal(c->rows, 0);
  assert_int_equal(c->begins, 0);
  assert_int_equal(br_schema_columns(c->schema), 5);
  assert_string_equal(br_schema_arrow(c->schema)->children[4]->name, "c4");
  collect_free(c);
  c = run_over(f, "SELECT 1 WHERE false", NULL, NULL, 0, true);
  assert_int_equal(c->rows, 0);
  collect_free(c);
  c = run_over(f, "SELECT count(*), sum(c0) FROM input(0)", schema, NULL, 0, false);
  assert_int_equal(c->rows, 1);
  assert_int_equal(batch_int64(c->batches[0], 0, 0), 0);
  collect_free(c);
  br_schema_unref(schema);
  c = run_over(f, "SELECT 42::BIGINT -- a comment at the end", NULL, NULL, 0, false);
  assert_int_equal(batch_int64(c->batches[0], 0, 0), 42);
  collect_free(c);
}

static void several_inputs(void **state) {
  fixture *f = *state;
  generator g[2] = {{.batches = 10, .rows = 1000}, {.batches = 3, .rows = 50}};
  br_run_input in[2];
  for (int i = 0; i < 2; i++) {
    OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, (const char *const[]){"k", "K"}, 2,
                         &g[i].schema, &err));
    in[i] = (br_run_input){.number = i ? 17 : 3,
                           .schema = g[i].schema,
                           .next = generate,
                           .arg = &g[i],
                           .rows = (uint64_t)(g[i].batches * g[i].rows),
                           .rows_known = true};
  }
  collect *c = collect_new();
  br_run_sink sink = collect_sink(c);
  br_run run = {.sql = "SELECT a.k, b.K_1 FROM input(3) a JOIN input(17) b ON a.k = b.k",
                .inputs = in,
                .n_inputs = 2,
                .sink = &sink,
                .scratch_dir = f->scratch};
  OK(br_session_run(f->session, &run, &err));
  assert_int_equal(c->rows, 150);
  br_error err = {0};
  run.sql = "SELECT * FROM input(4)";
  assert_int_equal(br_session_run(f->session, &run, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "no input(4)"));
  br_table t;
  assert_int_equal(br_session_table(f->session, "SELECT * FROM input(3)", &t, &err), BR_INVALID);
  collect_free(c);
  for (int i = 0; i < 2; i++) br_schema_unref(g[i].schema);
}

/* Rows of what the join builds its table of: the last leaf of its profile. */
static int64_t build_rows(const char *profile) {
  static const char name[] = "\"OPERATOR_CARDINALITY\":\"";
  const char *last = NULL;
  for (const char *at = strstr(profile, name); at; at = strstr(at + 1, name)) last = at;
  assert_non_null(strstr(profile, "HASH_JOIN"));
  assert_non_null(last);
  return atoll(last + strlen(name));
}

/* An executor's DuckDB plans a join again with the true sizes of its inputs: the table is built of the smaller side, wherever that
 * stands in the text, also for outer, semi and anti joins. So stages say nothing of build sides. */
static void build_side_is_the_smaller(void **state) {
  fixture *f = *state;
  generator g[2] = {{.batches = 50, .rows = 1000}, {.batches = 3, .rows = 50}};
  br_run_input in[2];
  static const char *const joins[] = {"INNER", "LEFT", "SEMI", "ANTI"};
  const char *sides[] = {"(SELECT * FROM input(0))", "(SELECT c1, c0 FROM (SELECT * FROM input(1)) t)"};
  for (uint32_t i = 0; i < 2; i++) {
    OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, NULL, 2, &g[i].schema, &err));
    in[i] = (br_run_input){.number = i,
                           .schema = g[i].schema,
                           .next = generate,
                           .arg = &g[i],
                           .rows = (uint64_t)(g[i].batches * g[i].rows),
                           .rows_known = true};
  }
  for (size_t k = 0; k < 8; k++) {
    char *sql =
        br_asprintf("SELECT a.c0 FROM %s a %s JOIN %s b ON a.c0 = b.c0", sides[k % 2], joins[k / 2], sides[1 - k % 2]);
    collect *c = collect_new();
    br_run_sink sink = collect_sink(c);
    br_run run = {.sql = sql, .inputs = in, .n_inputs = 2, .sink = &sink, .scratch_dir = f->scratch, .profile = true};
    g[0].next = g[1].next = 0;
    OK(br_session_run(f->session, &run, &err));
    if (build_rows(run.stats.profile_json) != 150) fail_msg("%s: %s", sql, run.stats.profile_json);
    free(run.stats.profile_json);
    free(sql);
    collect_free(c);
  }
  for (int i = 0; i < 2; i++) br_schema_unref(g[i].schema);
}

/* DuckDB binds again when it executes, and has an optimizer that reads the child of a window twice. */
static void read_once(void **state) {
  fixture *f = *state;
  static const uint32_t sizes[] = {3000, 10};
  br_batch *batches[2];
  size_t rows = make_batches(f, sizes, 2, batches);
  br_schema *schema = five_columns(f);
  for (int turn = 0; turn < 3; turn++) { /* nested columns after others: their types must be the first binding's */
    collect *c = run_over(f, "SELECT c0, c4, c3, c1 FROM input(0)", schema, batches, 2, turn == 1);
    assert_int_equal(c->rows, rows);
    assert_string_equal(br_schema_arrow(c->schema)->children[2]->format, "+l");
    collect_free(c);
  }
  collect *c = run_over(f, "SELECT max(n) FROM (SELECT count(*) OVER (PARTITION BY c0 % 2) AS n FROM input(0))", schema,
                        batches, 2, false);
  assert_int_equal(batch_int64(c->batches[0], 0, 0), (int64_t)rows / 2);
  collect_free(c);

  generator g = {.batches = 2, .rows = 10};
  br_run_input in = {.next = generate, .arg = &g, .rows = 20, .rows_known = true};
  OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, NULL, 2, &g.schema, &err));
  in.schema = g.schema;
  c = collect_new();
  br_run_sink sink = collect_sink(c);
  br_run run = {.sql = "SELECT * FROM input(0) UNION ALL SELECT * FROM input(0)",
                .inputs = &in,
                .n_inputs = 1,
                .sink = &sink,
                .scratch_dir = f->scratch};
  br_error err = {0};
  assert_int_equal(br_session_run(f->session, &run, &err), BR_INTERNAL);
  assert_non_null(strstr(err.message, "reads input(0) twice"));
  collect_free(c);
  br_schema_unref(g.schema);
  for (int i = 0; i < 2; i++) br_batch_unref(batches[i]);
  br_schema_unref(schema);
}

/* Also when it reads files, which DuckDB plans anew whenever a prepared statement starts. */
static void planned_once(void **state) {
  fixture *f = *state;
  static _Atomic uint64_t bound; /* the function outlives this */
  OK(br_session_plan_function(f->session, "counted", "BIGINT", "counted() is elsewhere", &bound, &err));
  char *sql = br_asprintf("COPY (SELECT 1::BIGINT AS a) TO '%s/once.parquet' (FORMAT parquet)", f->scratch);
  OK(br_session_execute(f->session, sql, &err));
  free(sql);
  sql = br_asprintf("SELECT counted(a) AS c0 FROM read_parquet('%s/once.parquet') WHERE a > 1", f->scratch);
  for (int ordered = 0; ordered < 2; ordered++) {
    uint64_t before = bound;
    collect *c = run_over(f, sql, NULL, NULL, 0, ordered == 1);
    assert_int_equal(c->opens, 1);
    assert_int_equal(c->rows, 0);
    assert_int_equal(bound - before, 1);
    collect_free(c);
  }
  free(sql);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(projections),
                                     cmocka_unit_test(groups_are_counted),
                                     cmocka_unit_test(parallel),
                                     cmocka_unit_test(ordered),
                                     cmocka_unit_test(empties),
                                     cmocka_unit_test(several_inputs),
                                     cmocka_unit_test(read_once),
                                     cmocka_unit_test(planned_once),
                                     cmocka_unit_test(build_side_is_the_smaller)};
  return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
