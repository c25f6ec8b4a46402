/* SPDX-License-Identifier: Apache-2.0
 * links: libbrant
 * The public C API as a program sees it: brant.h and the shared library alone, real workers. One session serves most tests, since
 * starting workers takes a while; what ends or fills a session has its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "api_fixture.h"

/* ---- tests */

static void version(void **state) {
  (void)state;
  assert_string_equal(brant_version(), "0.1.0");
}

static void bad_options(void **state) {
  (void)state;
  brant_session *s = NULL;
  brant_options o = options(1);
  o.memory_bytes = 1000;
  assert_int_equal(brant_open(&o, &s, &err), BRANT_INVALID);
  assert_int_equal(err.code, BRANT_INVALID);
  assert_int_equal(err.blame, BRANT_BLAME_USER);
  assert_true(strlen(err.message) > 10);
  o = options(1);
  o.temp_dir = "/dev/null/below";
  assert_int_not_equal(brant_open(&o, &s, &err), 0);
  assert_non_null(strstr(err.message, "/dev/null"));
}

static void defaults(void **state) {
  (void)state;
  brant_session *s = NULL;
  OK(brant_open(NULL, &s, &err));
  expect_sum(s, "SELECT 40::BIGINT + 2 AS answer", 42, 1); /* small: in this process, no worker is started */
  brant_close(s);
  brant_close(NULL);
}

static void result_and_schema(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  struct ArrowSchema schema;
  struct ArrowArray batch;
  OK(brant_submit(shared, "SELECT i AS num, 'row ' || i AS \"a name\" FROM range(5) t(i) ORDER BY i DESC", &q, &err));
  OK(brant_query_stream(q, &st, &err));
  brant_query_free(q); /* the stream holds it */
  assert_int_equal(st.get_schema(&st, &schema), 0);
  assert_string_equal(schema.format, "+s");
  assert_int_equal(schema.n_children, 2);
  assert_string_equal(schema.children[0]->name, "num");
  assert_string_equal(schema.children[0]->format, "l");
  assert_string_equal(schema.children[1]->name, "a name");
  assert_string_equal(schema.children[1]->format, "u");
  schema.release(&schema);
  int64_t rows = 0;
  int rc;
  while ((rc = st.get_next(&st, &batch)) == 0 && batch.release != NULL) {
    const struct ArrowArray *names = batch.children[1];
    const int32_t *at = (const int32_t *)names->buffers[1] + names->offset;
    for (int64_t i = 0; i < batch.length; i++, rows++) {
      char want[32];
      snprintf(want, sizeof want, "row %d", (int)(4 - rows));
      assert_int_equal(int_at(batch.children[0], i), 4 - rows);
      assert_int_equal(at[i + 1] - at[i], strlen(want));
      assert_memory_equal((const char *)names->buffers[2] + at[i], want, strlen(want));
    }
    batch.release(&batch);
  }
  assert_int_equal(rc, 0);
  assert_int_equal(rows, 5);
  st.release(&st);
}

static void distributed_over_stages(void **state) {
  (void)state;
  expect_sum(shared, "SELECT i FROM numbers", 4999950000, 100000);
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  char text[2048];
  int64_t sum, rows;
  OK(brant_submit(shared, "SELECT count(*) FROM numbers GROUP BY i % 10", &q, &err));
  OK(brant_query_stream(q, &st, &err));
  assert_int_equal(drain(&st, &sum, &rows, text), 0);
  brant_stats stats = {.size = sizeof stats};
  brant_query_stats(q, &stats);
  assert_int_equal(stats.distributed, 1);
  assert_true(stats.stages >= 2 && stats.tasks > stats.stages);
  assert_int_equal(stats.stages_done, stats.stages);
  assert_int_equal(stats.tasks_done, stats.tasks);
  assert_int_equal(stats.tasks_running, 0);
  assert_int_equal(stats.rows_read, 100000);
  assert_int_equal(stats.rows_out, 10);
  assert_int_equal(rows, 10);
  assert_int_equal(sum, 100000);
  assert_true(stats.bytes_shuffled > 0);
  assert_true(stats.seconds > 0);
  assert_true(stats.coordinator_memory_bytes > 1u << 20);
  st.release(&st);
  brant_query_free(q);
}

/* A struct of an earlier version is filled as far as it goes. */
static void short_stats(void **state) {
  (void)state;
  brant_query *q = NULL;
  brant_stats stats;
  memset(&stats, 0x5a, sizeof stats);
  stats.size = offsetof(brant_stats, rows_read);
  OK(brant_submit(shared, "SELECT 1::BIGINT", &q, &err));
  brant_query_stats(q, &stats);
  assert_int_equal(stats.size, offsetof(brant_stats, rows_read));
  assert_int_equal(stats.rows_read, 0x5a5a5a5a5a5a5a5a);
  brant_query_free(q);
}

static void user_errors(void **state) {
  (void)state;
  static const char *const wrong[] = {"SELEC 1", "SELECT nothing FROM numbers", "SELECT * FROM no_such_table"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    brant_query *q = NULL;
    assert_int_not_equal(brant_submit(shared, wrong[i], &q, &err), 0);
    assert_null(q);
    assert_int_equal(err.code, BRANT_INVALID);
    assert_int_equal(err.blame, BRANT_BLAME_USER);
    assert_true(strlen(err.message) > 10);
  }
  brant_query *q = NULL;
  assert_int_not_equal(brant_submit(shared, "SELECT * FROM 'no such file.parquet'", &q, &err), 0);
  assert_non_null(strstr(err.message, "no such file.parquet"));
}

/* An error of the data comes while the rows are read: through the stream, and again from the query. */
static void errors_of_data(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  char text[2048];
  int64_t sum, rows;
  OK(brant_submit(shared, "SELECT CAST(CASE WHEN i = 77777 THEN 'x' ELSE '1' END || i AS BIGINT) FROM numbers", &q,
                  &err));
  OK(brant_query_stream(q, &st, &err));
  assert_int_not_equal(drain(&st, &sum, &rows, text), 0);
  assert_non_null(strstr(text, "Could not convert"));
  assert_int_equal(brant_query_error(q, &err), BRANT_EXECUTION);
  assert_int_equal(err.blame, BRANT_BLAME_USER);
  assert_non_null(strstr(err.message, "Could not convert"));
  st.release(&st);
  brant_query_free(q);
  expect_sum(shared, "SELECT 1::BIGINT", 1, 1); /* the session goes on */
}

static void no_error_yet(void **state) {
  (void)state;
  brant_query *q = NULL;
  OK(brant_submit(shared, "SELECT 1::BIGINT", &q, &err));
  assert_int_equal(brant_query_error(q, &err), 0);
  assert_int_equal(err.code, 0);
  brant_query_free(q); /* nobody took the result */
}

static void stream_is_taken_once(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream st, again;
  OK(brant_submit(shared, "SELECT 1::BIGINT", &q, &err));
  OK(brant_query_stream(q, &st, &err));
  assert_int_equal(brant_query_stream(q, &again, &err), BRANT_INVALID);
  assert_non_null(strstr(err.message, "once"));
  st.release(&st);
  brant_query_free(q);
}

/* ---- cancel */

#define ENDLESS "SELECT count(*) FROM range(100000000) a(i), range(100000) b(j) WHERE (i * j) % 7 = 8"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Cancels once a task runs, which it sees in the numbers of the query. */
static void *cancel_when_running(void *arg) {
  brant_stats stats = {.size = sizeof stats};
  for (double end = now() + 60; stats.tasks_running == 0 && now() < end; usleep(1000)) brant_query_stats(arg, &stats);
  brant_query_cancel(arg);
  brant_query_cancel(arg); /* twice is fine */
  brant_query_cancel(NULL);
  return stats.tasks_running > 0 ? arg : NULL;
}

static void cancel_from_another_thread(void **state) {
  (void)state;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  pthread_t thread;
  void *ran = NULL;
  char text[2048];
  int64_t sum, rows;
  OK(brant_submit(shared, ENDLESS, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  assert_int_equal(pthread_create(&thread, NULL, cancel_when_running, q), 0);
  assert_int_not_equal(drain(&st, &sum, &rows, text), 0);
  pthread_join(thread, &ran);
  assert_non_null(ran);
  assert_non_null(strstr(text, "cancel"));
  assert_int_equal(brant_query_error(q, &err), BRANT_CANCELLED);
  st.release(&st);
  brant_query_free(q);
  expect_sum(shared, "SELECT 7::BIGINT", 7, 1);
}

/* Freeing a query that runs cancels it: the next one isn't held up. */
static void free_is_cancel(void **state) {
  (void)state;
  brant_query *q = NULL;
  OK(brant_submit(shared, ENDLESS, &q, &err));
  brant_query_free(q);
  expect_sum(shared, "SELECT 8::BIGINT", 8, 1);
}

/* The queries that somebody still holds outlive their session, cancelled. */
static void close_before_the_stream(void **state) {
  (void)state;
  brant_session *s = NULL;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  char text[2048];
  int64_t sum, rows;
  brant_options o = options(1);
  OK(brant_open(&o, &s, &err));
  OK(brant_submit(s, ENDLESS, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  brant_close(s);
  assert_int_not_equal(drain(&st, &sum, &rows, text), 0);
  assert_int_equal(brant_query_error(q, &err), BRANT_CANCELLED);
  brant_query_free(q);
  st.release(&st);
}

/* ---- statements, settings, split, explain */

static void split(void **state) {
  (void)state;
  char **texts = NULL;
  size_t n = 0;
  OK(brant_split("SELECT ';' AS a; -- no; comment\n SELECT $$;$$ ;; /* ; */ SELECT \";\" FROM t", &texts, &n, &err));
  assert_int_equal(n, 3);
  assert_string_equal(texts[0], "SELECT ';' AS a");
  assert_non_null(strstr(texts[1], "SELECT $$;$$"));
  assert_non_null(strstr(texts[2], "SELECT \";\" FROM t"));
  brant_free(texts);
  OK(brant_split("", &texts, &n, &err));
  assert_int_equal(n, 0);
  brant_free(texts);
  brant_free(NULL);
}

static void statements(void **state) {
  (void)state;
  run(shared, "CREATE VIEW api_numbers AS SELECT i FROM range(10) t(i)");
  expect_sum(shared, "SELECT i FROM api_numbers WHERE i > 5", 6 + 7 + 8 + 9, 4);
  run(shared, "CREATE TABLE api_here AS SELECT 5::BIGINT AS x"); /* lives in this process: read here */
  expect_sum(shared, "SELECT x FROM api_here", 5, 1);
  run(shared, "DROP VIEW api_numbers");
  brant_query *q = NULL;
  assert_int_not_equal(brant_submit(shared, "SELECT * FROM api_numbers", &q, &err), 0);
}

static int64_t count_with(const char *sql, const brant_param *params, size_t n) {
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  char text[2048];
  int64_t sum, rows;
  OK(brant_submit_params(shared, sql, params, n, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  if (drain(&st, &sum, &rows, text) != 0) fail_msg("%s: %s", sql, text);
  assert_int_equal(rows, 1);
  st.release(&st);
  brant_query_free(q);
  return sum;
}

static void parameters(void **state) {
  (void)state;
  brant_param by_place[] = {{NULL, "BIGINT", "90000"}, {NULL, NULL, "3 * 5"}};
  assert_int_equal(count_with("SELECT count(*) FROM numbers WHERE i >= ? AND i % 100 < ?", by_place, 2), 1500);
  brant_param by_name[] = {{"text", "VARCHAR", "it's $n; --"}, {"n", NULL, "7"}, {"none", "DATE", NULL}};
  assert_int_equal(
      count_with("SELECT count(*) + length($text) FROM numbers WHERE i < $n AND $none IS NULL", by_name, 3), 7 + 11);
  brant_param numbered[] = {{"2", "VARCHAR", "5"}, {"1", "INTEGER[]", "[1, 2, NULL]"}};
  assert_int_equal(count_with("SELECT count(*) + len($1) FROM numbers WHERE i < $2", numbered, 2), 8);
  char *bound = NULL;
  OK(brant_bind(shared, "SELECT $1 + 1, count(*) FROM numbers", by_place, 1, &bound, &err));
  assert_non_null(strstr(bound, "\"($1 + 1)\"")); /* the name that DuckDB gives it */
  brant_free(bound);
  run(shared, "CREATE TABLE api_stays AS SELECT 1 AS x");
  brant_param one[] = {{NULL, "BIGINT", "5"}};
  assert_int_equal(count_with("SELECT 1 + count(*) FROM numbers WHERE i < ? ; -- its end", one, 1), 6);
  brant_param wide[] = {{"k", NULL, "(SELECT 5)"}, {"j", NULL, "7 -- seven"}};
  assert_int_equal(count_with("SELECT count(*) + $k + $j FROM numbers WHERE i < 5", wide, 2), 17);
  assert_int_not_equal(brant_bind(shared, "SELECT 1 + ?; DROP TABLE api_stays", one, 1, &bound, &err), 0);
  assert_non_null(strstr(err.message, "one statement"));
  expect_sum(shared, "SELECT x::BIGINT FROM api_stays", 1, 1);
  static const struct {
    brant_param p;
    const char *message;
  } bad[] = {{{"b", NULL, "1"}, "there is a value for $b"}, {{"a", NULL, "1), (2"}, "not one expression"},
             {{"a", NULL, "1, 2"}, "not one expression"},   {{"a", NULL, "nope"}, "nope"},
             {{"a", "NO_SUCH_TYPE", "1"}, "no_such_type"},  {{"a", "INTEGER), (1", "1"}, "not one expression"},
             {{"a", "INTEGER", "x"}, "Could not convert"},  {{"a", NULL, "'"}, "the value of $a"},
             {{"a", NULL, "1 /*"}, "the value of $a"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    brant_query *q = NULL;
    char *text = NULL;
    int code = brant_bind(shared, "SELECT $a FROM numbers", &bad[i].p, 1, &text, &err);
    if (code == 0) code = brant_submit(shared, text, &q, &err);
    brant_free(text);
    if (code == 0) { /* a value that can't be cast: found when it is computed */
      struct ArrowArrayStream st;
      struct ArrowArray batch;
      OK(brant_query_stream(q, &st, &err));
      assert_int_not_equal(st.get_next(&st, &batch), 0);
      code = brant_query_error(q, &err);
      st.release(&st);
      brant_query_free(q);
    }
    assert_int_not_equal(code, 0);
    if (strcasestr(err.message, bad[i].message) == NULL) fail_msg("%s", err.message);
  }
}

static void settings(void **state) {
  (void)state;
  OK(brant_set(shared, "partitions", "3", &err));
  OK(brant_set(shared, "broadcast_bytes", "1MiB", &err));
  OK(brant_set(shared, "TimeZone", "Asia/Tokyo", &err)); /* DuckDB's own; executors must know it too */
  expect_sum(shared, "SELECT extract(hour FROM to_timestamp(i * 0))::BIGINT FROM numbers WHERE i < 4", 36, 4);
  assert_int_equal(brant_set(shared, "partitions", "many", &err), BRANT_INVALID);
  assert_int_equal(brant_set(shared, "partitions", "1000000", &err), BRANT_INVALID);
  assert_int_equal(brant_set(shared, "shuffle_compression", "rar", &err), BRANT_INVALID);
  assert_int_not_equal(brant_set(shared, "no_such_setting", "1", &err), 0);
  assert_non_null(strstr(err.message, "no_such_setting"));
  assert_int_equal(brant_set(shared, "integer_division", "true", &err), BRANT_UNSUPPORTED);
  run(shared, "SET TimeZone = 'UTC'");
  run(shared, "RESET partitions");
  run(shared, "RESET broadcast_bytes");
}

/* Each number has its bounds, said in the message; the scheduler's can't change under its feet. */
static void ranges_of_settings(void **state) {
  (void)state;
  static const struct {
    const char *name, *good, *bad, *says;
  } cases[] = {{"task_attempts", "7", "0", "between 1 and 100"},
               {"task_backoff_first_ms", "50", "0", "milliseconds"},
               {"task_backoff_max_ms", "5000", "-1", "between"},
               {"no_worker_ms", "5000", "1", "between 100"},
               {"worker_silent_ms", "3000", "10", "between 1000"},
               {"killer_executors", "2", "1000", "between 1 and 100"},
               {"cancel_ms", "2000", "1", "between 100"},
               {"probe_ms", "500", "70000", "between 50 and 60000"},
               {"straggler_percent", "0", "100", "0 or between 101"},
               {"straggler_done_percent", "50", "101", "between 1 and 100"},
               {"straggler_min_ms", "100", "soon", "between 1"},
               {"split_passes", "8", "1", "between 2 and 64"}};
  brant_session *s = NULL;
  brant_options o = options(1);
  OK(brant_open(&o, &s, &err));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    OK(brant_set(s, cases[i].name, cases[i].good, &err));
    assert_int_equal(brant_set(s, cases[i].name, cases[i].bad, &err), BRANT_INVALID);
    if (strstr(err.message, cases[i].says) == NULL || strstr(err.message, cases[i].name) == NULL)
      fail_msg("%s", err.message);
  }
  assert_int_equal(brant_set(s, "shuffle_backend", "pigeon", &err), BRANT_INVALID);
  assert_int_equal(brant_set(s, "shuffle_dir", "here", &err), BRANT_INVALID);
  assert_int_equal(brant_set(s, "eager_bytes", "-3", &err), BRANT_INVALID);
  assert_int_equal(brant_set(s, "timeout_ms", "never", &err), BRANT_INVALID);
  char sql[512];
  snprintf(sql, sizeof sql, "SELECT i FROM '%s/*.parquet' WHERE i < 3", data);
  expect_sum(s, sql, 3, 3);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(brant_set(s, cases[i].name, cases[i].good, &err), BRANT_INVALID);
    assert_non_null(strstr(err.message, "before the first query"));
  }
  OK(brant_set(s, "timeout_ms", "100000", &err));
  brant_close(s);
}

/* Submitting does not wait for the rows, wherever they are computed; a deadline and a cancel are seen at once. */
static void local_queries_run_behind(void **state) {
  (void)state;
  static const char slow[] = "SELECT count(*) FROM range(100000000) a(i), range(100000) b(i) WHERE (a.i * b.i) % 7 = 1";
  brant_session *s = NULL;
  brant_query *q = NULL;
  struct ArrowArrayStream st;
  struct ArrowArray batch;
  brant_options o = options(1);
  o.distribute = BRANT_DISTRIBUTE_NEVER;
  OK(brant_open(&o, &s, &err));
  double start = now();
  OK(brant_submit(s, slow, &q, &err));
  assert_true(now() - start < 5);
  expect_sum(s, "SELECT 42::BIGINT AS x", 42, 1); /* meanwhile */
  OK(brant_query_stream(q, &st, &err));
  brant_query_cancel(q);
  assert_int_not_equal(st.get_next(&st, &batch), 0);
  assert_int_equal(brant_query_error(q, &err), BRANT_CANCELLED);
  st.release(&st);
  brant_query_free(q);
  OK(brant_set(s, "timeout_ms", "300", &err));
  OK(brant_submit(s, slow, &q, &err));
  OK(brant_query_stream(q, &st, &err));
  start = now();
  assert_int_not_equal(st.get_next(&st, &batch), 0);
  assert_true(now() - start < 5);
  assert_int_equal(brant_query_error(q, &err), BRANT_TIMEOUT);
  assert_non_null(strstr(err.message, "timeout_ms of 300"));
  st.release(&st);
  brant_query_free(q);
  OK(brant_submit(s, "SELECT error('no') FROM range(10)", &q, &err)); /* it fails behind, too */
  OK(brant_query_stream(q, &st, &err));
  assert_int_not_equal(st.get_next(&st, &batch), 0);
  assert_int_equal(brant_query_error(q, &err), BRANT_EXECUTION);
  st.release(&st);
  brant_query_free(q);
  brant_close(s);
}

static void explain(void **state) {
  (void)state;
  static const char sql[] = "SELECT i % 3, count(*) FROM numbers GROUP BY ALL ORDER BY 1";
  char *text = NULL;
  OK(brant_explain(shared, sql, 0, 0, &text, &err));
  assert_non_null(strstr(text, "HASH"));
  brant_free(text);
  OK(brant_explain(shared, sql, 0, 1, &text, &err));
  assert_int_equal(text[0], '{');
  assert_non_null(strstr(text, "\"stages\""));
  brant_free(text);
  OK(brant_explain(shared, sql, 1, 0, &text, &err));
  assert_non_null(strstr(text, "Measured"));
  brant_free(text);
  text = NULL;
  assert_int_not_equal(brant_explain(shared, "SELECT * FROM no_such_table", 0, 0, &text, &err), 0);
  assert_null(text);
}

/* ---- events */

typedef struct counted {
  _Atomic int all, started, done, tasks, workers;
} counted;

static void count_event(void *arg, const char *json) {
  counted *c = arg;
  c->all++;
  assert_int_equal(json[0], '{');
  if (strstr(json, "\"type\":\"query_started\"")) c->started++;
  if (strstr(json, "\"type\":\"query_done\"")) c->done++;
  if (strstr(json, "\"type\":\"task_done\"")) c->tasks++;
  if (strstr(json, "\"type\":\"worker_joined\"")) c->workers++;
}

static void events(void **state) {
  (void)state;
  static counted c; /* until the session is closed */
  brant_session *s = NULL;
  brant_options o = options(1);
  OK(brant_open(&o, &s, &err));
  OK(brant_subscribe(s, count_event, &c, &err));
  expect_sum(s, "SELECT count(*) FROM range(1000) t(i) GROUP BY i % 4", 1000, 4);
  for (double end = now() + 30; c.done == 0 && now() < end;) usleep(1000);
  assert_int_equal(c.workers, 1);
  assert_int_equal(c.started, 1);
  assert_int_equal(c.done, 1);
  assert_true(c.tasks >= 1);
  brant_close(s);
  int all = c.all;
  assert_true(all > 3); /* and none comes after the close */
  assert_int_equal(c.all, all);
}

/* ---- the example of the documentation */

static void example_runs(void **state) {
  (void)state;
  char out[256] = "";
  FILE *p =
      popen(BRANT_BUILD_DIR "/example-query \"select x from (values ('b'), (null), ('a')) t(x) order by x\"", "r");
  assert_non_null(p);
  size_t n = fread(out, 1, sizeof out - 1, p);
  out[n] = 0;
  assert_int_equal(pclose(p), 0);
  assert_string_equal(out, "a\nb\nNULL\n");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(version),
      cmocka_unit_test(bad_options),
      cmocka_unit_test(defaults),
      cmocka_unit_test(result_and_schema),
      cmocka_unit_test(distributed_over_stages),
      cmocka_unit_test(short_stats),
      cmocka_unit_test(user_errors),
      cmocka_unit_test(errors_of_data),
      cmocka_unit_test(no_error_yet),
      cmocka_unit_test(stream_is_taken_once),
      cmocka_unit_test(cancel_from_another_thread),
      cmocka_unit_test(free_is_cancel),
      cmocka_unit_test(close_before_the_stream),
      cmocka_unit_test(split),
      cmocka_unit_test(statements),
      cmocka_unit_test(settings),
      cmocka_unit_test(ranges_of_settings),
      cmocka_unit_test(local_queries_run_behind),
      cmocka_unit_test(parameters),
      cmocka_unit_test(explain),
      cmocka_unit_test(events),
      cmocka_unit_test(example_runs),
  };
  return cmocka_run_group_tests(tests, open_shared, close_shared);
}
