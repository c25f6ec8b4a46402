/* SPDX-License-Identifier: Apache-2.0
 * links: br_engine
 * Failures of inputs, sinks and SQL: whose error wins; cancel while everything blocks; streams. */
#include "engine_fixture.h"
#include "engine/internal.h"

/* An input that serves rows, then fails, ends or blocks. */
typedef struct source {
  br_schema *schema;
  br_batch *batch;
  int64_t good; /* batches before the end */
  enum { ENDS, FAILS, BLOCKS } then;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int64_t served;
  int blocked;
  bool cancelled;
  uint64_t known_rows; /* 0: not known */
} source;

static br_status source_next(void *arg, br_batch **out, br_error *err) {
  source *s = arg;
  br_status status = BR_OK;
  *out = NULL;
  pthread_mutex_lock(&s->mutex);
  if (s->served < s->good) {
    s->served++;
    *out = br_batch_ref(s->batch);
  } else if (s->then == FAILS) {
    status = br_fail(err, BR_FETCH, BR_BLAME_FETCH, "partition 7 of stage 2 cannot be read");
    err->has_lost = true;
    err->lost.worker = 42;
  } else if (s->then == BLOCKS) {
    s->blocked++;
    pthread_cond_broadcast(&s->changed);
    while (!s->cancelled) pthread_cond_wait(&s->changed, &s->mutex);
    s->blocked--;
    status = br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "next() was told to stop");
  }
  pthread_mutex_unlock(&s->mutex);
  return status;
}

static void source_cancel(void *arg) {
  source *s = arg;
  pthread_mutex_lock(&s->mutex);
  s->cancelled = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->mutex);
}

static void source_init(fixture *f, source *s) {
  collect *c = run_over(f, "SELECT r AS c0, 'row ' || r AS c1 FROM range(20000) t(r)", NULL, NULL, 0, true);
  s->batch = br_batch_ref(c->batches[0]);
  s->schema = br_schema_ref(c->schema);
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->changed, NULL);
  collect_free(c);
}

static void source_free(source *s) {
  br_batch_unref(s->batch);
  br_schema_unref(s->schema);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->mutex);
}

static br_run_input source_input(source *s, uint32_t number) {
  return (br_run_input){.number = number,
                        .schema = s->schema,
                        .rows = s->known_rows,
                        .rows_known = s->known_rows > 0,
                        .next = source_next,
                        .cancel = source_cancel,
                        .arg = s};
}

static br_status run_failing(fixture *f, collect *c, source *s, size_t n, const char *sql, bool is_ordered,
                             br_error *err) {
  br_run_input in[2];
  for (size_t i = 0; i < n; i++) in[i] = source_input(&s[i], (uint32_t)i);
  br_run_sink sink = collect_sink(c);
  br_run run = {
      .sql = sql, .inputs = in, .n_inputs = n, .sink = &sink, .ordered = is_ordered, .scratch_dir = f->scratch};
  memset(err, 0, sizeof *err);
  return br_session_run(f->session, &run, err);
}

static void check_states(const collect *c) {
  assert_int_equal(c->ends, 0);
  assert_int_equal(c->begins, c->abandons);
}

static void input_fails(void **state) {
  fixture *f = *state;
  static const char *const sqls[] = {"SELECT * FROM input(0)", "SELECT c1, count(*) FROM input(0) GROUP BY c1",
                                     "SELECT * FROM input(0) ORDER BY c0"};
  for (int i = 0; i < 6; i++) {
    source s = {.good = 5, .then = FAILS};
    source_init(f, &s);
    collect *c = collect_new();
    br_error err;
    assert_int_equal(run_failing(f, c, &s, 1, sqls[i / 2], i % 2, &err), BR_FETCH);
    assert_int_equal(err.blame, BR_BLAME_FETCH); /* whole: not what DuckDB made of it */
    assert_true(err.has_lost);
    assert_int_equal(err.lost.worker, 42);
    assert_string_equal(err.message, "partition 7 of stage 2 cannot be read");
    check_states(c);
    collect_free(c);
    source_free(&s);
  }
}

static void sink_fails(void **state) {
  fixture *f = *state;
  br_error err;
  for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
    source s = {.good = 50, .then = BLOCKS}; /* also: an input that blocks is woken */
    source_init(f, &s);
    collect *c = collect_new();
    c->fail_after_rows = 30000;
    assert_int_equal(run_failing(f, c, &s, 1, "SELECT * FROM input(0)", is_ordered, &err), BR_NO_SPACE);
    assert_int_equal(err.blame, BR_BLAME_WORKER);
    assert_non_null(strstr(err.message, "disk is full"));
    check_states(c);
    collect_free(c);
    source_free(&s);
  }
  source s = {.good = 5};
  source_init(f, &s);
  collect *c = collect_new();
  c->fail_open = 1;
  assert_int_equal(run_failing(f, c, &s, 1, "SELECT * FROM input(0)", false, &err), BR_NO_SPACE);
  assert_int_equal(s.served, 0); /* nothing ran */
  collect_free(c);
  c = collect_new();
  c->fail_end = 1;
  assert_int_equal(run_failing(f, c, &s, 1, "SELECT * FROM input(0)", false, &err), BR_IO);
  assert_int_equal(c->ends, 1);
  assert_int_equal(c->begins, c->ends + c->abandons);
  collect_free(c);
  source_free(&s);
}

static void sql_fails(void **state) {
  fixture *f = *state;
  source s = {.good = 50};
  source_init(f, &s);
  br_error err;
  static const struct {
    const char *sql, *part;
    br_code code;
  } cases[] = {{"SELECT CASE WHEN c0 = 19999 THEN error('the user''s own words') ELSE c0 END FROM input(0)",
                "the user's own words", BR_EXECUTION},
               {"SELECT c1::INTEGER FROM input(0)", "Could not convert", BR_EXECUTION},
               {"SELECT nope FROM input(0)", "nope", BR_INVALID},
               {"SELECT c0 FROM input(0) GROUP c0", "syntax error", BR_INVALID}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    s.served = 0;
    collect *c = collect_new();
    assert_int_equal(run_failing(f, c, &s, 1, cases[i].sql, false, &err), cases[i].code);
    assert_int_equal(err.blame, BR_BLAME_USER);
    assert_true(err.duckdb_type > 0);
    if (!strstr(err.message, cases[i].part)) fail_msg("%s: %s", cases[i].sql, err.message);
    check_states(c);
    collect_free(c);
  }
  source_free(&s);
}

/* Where DuckDB gives a message alone, it says the same as a type would: nothing is run again to learn that. */
static void types_by_messages(void **state) {
  static const char *const failing[] = {"SELEC 1",
                                        "SELECT nope",
                                        "FROM no_such",
                                        "SELECT no_such(1)",
                                        "SELECT 'x'::INTEGER",
                                        "SELECT 200::TINYINT",
                                        "SELECT error('IO Error: of the user')",
                                        "FROM '/no/such.parquet'",
                                        "COPY (SELECT 1) TO '/no/such/x.parquet'",
                                        "SET no_such = 1",
                                        "SET threads = 'x'",
                                        "LOAD '/no/such.duckdb_extension'",
                                        "DROP TABLE no_such",
                                        "ATTACH '/no/such/x.duckdb' AS x",
                                        "ATTACH '/proc/version' AS x",
                                        "EXECUTE nobody(1)",
                                        "SELECT list_sort(range(10), 'x')",
                                        "FROM repeat('x', 'y')",
                                        "SELECT unnest(range(3)) OVER ()",
                                        "SELECT repeat('x', 100000000000)"};
  fixture *f = *state;
  size_t kinds[64] = {0}, n = 0;
  for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
    duckdb_result r;
    br_error by_type, by_message;
    assert_int_equal(duckdb_query(f->session->con, failing[i], &r), DuckDBError);
    const char *message = duckdb_result_error(&r);
    assert_int_equal(br_duckdb_fail(&by_message, br_duckdb_type_of(message), message),
                     br_duckdb_fail(&by_type, duckdb_result_error_type(&r), message));
    if (by_type.blame != by_message.blame || by_type.retryable != by_message.retryable)
      fail_msg("%s: %s", failing[i], message);
    n += kinds[by_type.code]++ == 0;
    duckdb_destroy_result(&r);
  }
  assert_true(n >= 4); /* of many kinds */
  assert_int_equal(br_duckdb_type_of(NULL), DUCKDB_ERROR_EXECUTOR);
  assert_int_equal(br_duckdb_type_of("IO"), DUCKDB_ERROR_EXECUTOR);
}

/* A batch of other types than announced is found before DuckDB reads it. */
static void wrong_batch(void **state) {
  fixture *f = *state;
  source s = {.good = 1};
  source_init(f, &s);
  br_schema *right = s.schema;
  OK(br_session_schema(f->session, (const char *const[]){"BIGINT", "BIGINT"}, NULL, 2, &s.schema, &err));
  collect *c = collect_new();
  br_error err;
  assert_int_equal(run_failing(f, c, &s, 1, "SELECT * FROM input(0)", false, &err), BR_CORRUPT);
  assert_non_null(strstr(err.message, "input(0)"));
  collect_free(c);
  br_schema_unref(right);
  source_free(&s);
}

/* ---- cancel */
typedef struct running {
  fixture *f;
  collect *c;
  source *s;
  size_t n;
  const char *sql;
  br_error err;
  br_status status;
  uint64_t ended_us;
  atomic_bool ended;
} running;

static void *run_thread(void *arg) {
  running *r = arg;
  r->status = run_failing(r->f, r->c, r->s, r->n, r->sql, false, &r->err);
  r->ended_us = br_now_us();
  r->ended = true;
  return NULL;
}

static void cancel_blocked(void **state) {
  fixture *f = *state;
  source s = {.good = 3, .then = BLOCKS};
  source_init(f, &s);
  running r = {.f = f, .c = collect_new(), .s = &s, .n = 1, .sql = "SELECT c0, c1 FROM input(0)"};
  pthread_t t;
  pthread_create(&t, NULL, run_thread, &r);
  pthread_mutex_lock(&s.mutex);
  while (!s.blocked) pthread_cond_wait(&s.changed, &s.mutex);
  pthread_mutex_unlock(&s.mutex);
  uint64_t start = br_now_us();
  br_session_cancel(f->session);
  pthread_join(t, NULL);
  assert_int_equal(r.status, BR_CANCELLED);
  assert_int_equal(r.err.code, BR_CANCELLED);
  assert_true(r.ended_us - start < 1000000);
  check_states(r.c);
  collect_free(r.c);
  source_free(&s);
  expect_cell(f->session, "SELECT 1", "1"); /* the session goes on, and a late cancel does not hit the next statement */
  br_session_cancel(f->session);
  expect_cell(f->session, "SELECT 2", "2");
}

/* Long work without any callback of ours: cancel from the very first moment on. */
static void cancel_working(void **state) {
  fixture *f = *state;
  static const char *const sqls[] = {
      "SELECT sum(hash(a.range + b.range)) FROM range(3000000) a, range(3000000) b",
      "SELECT max(range) FROM range(100000000000)",
      "SELECT count(*) FROM range(40000000) a JOIN range(40000000) b ON hash(a.range) = hash(b.range)"};
  for (int i = 0; i < 12; i++) {
    running r = {.f = f, .c = collect_new(), .sql = sqls[i % 3]};
    pthread_t t;
    pthread_create(&t, NULL, run_thread, &r);
    uint64_t start = br_now_us(), asked = 0;
    /* a cancel before the statement began is none: ask until it has an effect, each time at another moment */
    for (uint64_t at = (uint64_t)i * 3000; !r.ended;) {
      uint64_t now = br_now_us();
      if (now - start >= at) {
        br_session_cancel(f->session);
        if (!asked) asked = now;
        at += 20000;
      }
      assert_true(now - start < 20000000);
      sched_yield();
    }
    pthread_join(t, NULL);
    assert_int_equal(r.status, BR_CANCELLED);
    assert_true(r.ended_us - asked < 3000000);
    collect_free(r.c);
  }
}

/* One input fails while the other one blocks another thread: no hang. */
static void failure_wakes(void **state) {
  fixture *f = *state;
  source s[2] = {{.good = 2, .then = FAILS}, {.good = 2, .then = BLOCKS}};
  source_init(f, &s[0]);
  source_init(f, &s[1]);
  running r = {
      .f = f, .c = collect_new(), .s = s, .n = 2, .sql = "SELECT c0 FROM input(0) UNION ALL SELECT c0 FROM input(1)"};
  pthread_t t;
  pthread_create(&t, NULL, run_thread, &r);
  pthread_join(t, NULL);
  assert_true(r.status == BR_FETCH);
  collect_free(r.c);
  source_free(&s[0]);
  source_free(&s[1]);
}

/* ---- local streams */
static void streams(void **state) {
  fixture *f = *state;
  br_local_stream *st;
  br_batch *b;
  OK(br_session_stream(f->session, "SELECT r AS \"a b\", 'x' || r FROM range(300000) t(r)", &st, &err));
  assert_string_equal(br_schema_arrow(br_local_stream_schema(st))->children[0]->name, "a b");
  int64_t at = 0;
  size_t n = 0;
  for (;; n++) {
    OK(br_local_stream_next(st, &b, &err));
    if (!b) break;
    for (int64_t r = 0; r < br_batch_rows(b); r++) assert_int_equal(batch_int64(b, 0, r), at++);
    br_batch_unref(b);
  }
  assert_int_equal(at, 300000);
  assert_true(n > 3 && n < 20);
  OK(br_local_stream_next(st, &b, &err));
  assert_null(b);
  br_local_stream_free(st);

  OK(br_session_stream(f->session, "SELECT 1 WHERE false", &st, &err)); /* no rows: still a schema */
  assert_int_equal(br_schema_columns(br_local_stream_schema(st)), 1);
  OK(br_local_stream_next(st, &b, &err));
  assert_null(b);
  br_local_stream_free(st);

  OK(br_session_stream(f->session, "SELECT 'b'::ENUM('a', 'b') AS e, ['a'::ENUM('a', 'b')] AS l ORDER BY 1", &st,
                       &err)); /* enums as text */
  assert_string_equal(br_schema_arrow(br_local_stream_schema(st))->children[0]->format, "u");
  assert_string_equal(br_schema_arrow(br_local_stream_schema(st))->children[1]->name, "l");
  OK(br_local_stream_next(st, &b, &err));
  assert_memory_equal(br_batch_arrow(b)->children[0]->buffers[2], "b", 1);
  br_batch_unref(b);
  br_local_stream_free(st);

  OK(br_session_execute(f->session,
                        "CREATE OR REPLACE TEMP TABLE p AS SELECT range % 3 AS k, range AS v FROM range(10)", &err));
  OK(br_session_stream(f->session, "PIVOT p ON k USING sum(v)", &st, &err)); /* several statements inside */
  assert_int_equal(br_schema_columns(br_local_stream_schema(st)), 3);
  br_local_stream_free(st);
  OK(br_session_stream(f->session, "CREATE OR REPLACE TEMP TABLE q AS SELECT 1", &st, &err)); /* DDL goes through too */
  br_local_stream_free(st);
  expect_cell(f->session, "SELECT count(*) FROM q", "1");
}

static void stream_failures(void **state) {
  fixture *f = *state;
  br_local_stream *st;
  br_batch *b;
  br_error e = {0};
  assert_int_equal(br_session_stream(f->session, "SELECT nope", &st, &e), BR_INVALID);
  assert_non_null(strstr(e.message, "LINE 1:"));
  br_status status = br_session_stream(
      f->session, "SELECT CASE WHEN r = 290000 THEN error('late') ELSE r END FROM range(300000) t(r)", &st, &e);
  int64_t rows = 0;
  while (status == BR_OK) {
    status = br_local_stream_next(st, &b, &e);
    if (status != BR_OK) break;
    assert_non_null(b);
    rows += br_batch_rows(b);
    br_batch_unref(b);
  }
  assert_int_equal(status, BR_EXECUTION);
  assert_non_null(strstr(e.message, "late"));
  assert_true(rows < 300000);
  br_local_stream_free(st);
  /* cancelled, and given up half-way */
  OK(br_session_stream(f->session, "SELECT r FROM range(100000000000) t(r)", &st, &err));
  OK(br_local_stream_next(st, &b, &err));
  br_batch_unref(b);
  br_session_cancel(f->session);
  assert_true(br_session_cancelled(f->session));
  assert_int_equal(br_local_stream_next(st, &b, &e), BR_CANCELLED);
  br_local_stream_free(st);
  OK(br_session_stream(f->session, "SELECT r FROM range(100000000000) t(r)", &st, &err));
  br_local_stream_free(st);
  expect_cell(f->session, "SELECT 1", "1");
}

/* A local stream over an input: its rows, its error, and given up while the input blocks. */
static void streams_over(void **state) {
  fixture *f = *state;
  br_local_stream *st;
  br_batch *b;
  source s = {.good = 3};
  source_init(f, &s);
  br_run_input in = source_input(&s, 0);
  OK(br_session_stream_over(f->session, "SELECT count(*), sum(c0) AS s FROM input(0)", &in, 1, &st, &err));
  OK(br_local_stream_next(st, &b, &err));
  assert_int_equal(batch_int64(b, 0, 0), 60000);
  br_batch_unref(b);
  br_local_stream_free(st);
  for (int blocks = 0; blocks < 2; blocks++) {
    s.then = blocks ? BLOCKS : FAILS;
    s.served = 0;
    br_error e = {0};
    br_status status = br_session_stream_over(f->session, "SELECT * FROM input(0)", &in, 1, &st, &e);
    int64_t rows = 0;
    while (status == BR_OK && !(blocks && rows > 0)) {
      status = br_local_stream_next(st, &b, &e);
      if (status != BR_OK) break;
      assert_non_null(b);
      rows += br_batch_rows(b);
      br_batch_unref(b);
    }
    if (blocks)
      assert_int_equal(status, BR_OK);
    else {
      assert_int_equal(status, BR_FETCH);
      assert_int_equal(e.lost.worker, 42);
    }
    br_local_stream_free(st);
    assert_int_equal(s.blocked, 0);
  }
  source_free(&s);
  expect_cell(f->session, "SELECT 1", "1");
}

/* Progress of a run is what its inputs fed, of what they said they have. */
static void progress(void **state) {
  fixture *f = *state;
  for (int known = 0; known < 2; known++) {
    source s = {.good = 5, .then = BLOCKS, .known_rows = known ? 10 * 20000 : 0};
    source_init(f, &s);
    running r = {.f = f, .c = collect_new(), .s = &s, .n = 1, .sql = "SELECT c0 FROM input(0)"};
    pthread_t t;
    pthread_create(&t, NULL, run_thread, &r);
    pthread_mutex_lock(&s.mutex);
    while (!s.blocked) pthread_cond_wait(&s.changed, &s.mutex);
    pthread_mutex_unlock(&s.mutex);
    double p = br_session_progress(f->session);
    if (known)
      assert_true(p > 0 && p <= 0.5); /* another thread may still be busy with its batch */
    else
      assert_true(p < 0);
    br_session_cancel(f->session);
    pthread_join(t, NULL);
    assert_int_equal(r.status, BR_CANCELLED);
    collect_free(r.c);
    source_free(&s);
  }
  assert_true(br_session_progress(f->session) < 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(input_fails),       cmocka_unit_test(sink_fails),    cmocka_unit_test(sql_fails),
      cmocka_unit_test(types_by_messages), cmocka_unit_test(wrong_batch),   cmocka_unit_test(cancel_blocked),
      cmocka_unit_test(cancel_working),    cmocka_unit_test(failure_wakes), cmocka_unit_test(streams),
      cmocka_unit_test(stream_failures),   cmocka_unit_test(streams_over),  cmocka_unit_test(progress)};
  return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
