/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows per second through a task: input(k) → DuckDB → sink, with the data in memory and a sink that only looks at the vectors.
 *
 *   engine_bench [threads] [million rows]
 *
 * links: br_engine
 * Columns: four BIGINT and one VARCHAR of 20 bytes. Each line: wall time, process CPU, million rows a second.
 */
#include "base/mem.h"
#include "base/util.h"
#include "engine/engine.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH_ROWS = 65536, DISTINCT_BATCHES = 16 };

static br_batch *batches[DISTINCT_BATCHES];
static br_schema *schema;
static _Atomic long next_batch;
static long n_batches;

static void check(br_status status, const br_error *err) {
  if (status == BR_OK) return;
  fprintf(stderr, "%s: %s\n", br_code_name(err->code), err->message);
  exit(1);
}

static br_status next(void *arg, br_batch **out, br_error *err) {
  (void)arg, (void)err;
  long i = atomic_fetch_add(&next_batch, 1);
  *out = i < n_batches ? br_batch_ref(batches[i % DISTINCT_BATCHES]) : NULL;
  return BR_OK;
}

/* ---- a sink that adds up the first column, or one that builds column buffers */
typedef struct thread_state {
  br_colset *columns;
  int64_t sum;
} thread_state;
static bool build;
static br_schema *sink_schema;
static _Atomic long total;

static br_status open_sink(void *arg, const br_schema *columns, br_error *err) {
  (void)arg, (void)err;
  br_schema_unref(sink_schema);
  sink_schema = br_schema_ref((br_schema *)columns);
  return BR_OK;
}
static br_status begin(void *arg, void **state, br_error *err) {
  (void)arg;
  thread_state *t = br_calloc(1, sizeof *t);
  *state = t;
  return build ? br_colset_new(sink_schema, &t->columns, err) : BR_OK;
}
static br_status write_rows(void *arg, void *state, const br_vec *columns, uint32_t n, uint32_t rows, br_error *err) {
  (void)arg, (void)n;
  thread_state *t = state;
  const int64_t *v = columns[0].data;
  for (uint32_t i = 0; i < rows; i++) t->sum += v[i];
  if (!build) return BR_OK;
  static uint32_t all[2048];
  for (uint32_t i = 0; i < rows; i++) all[i] = i;
  BR_TRY(br_colset_append(t->columns, columns, all, rows, err));
  if (br_colset_rows(t->columns) < BATCH_ROWS) return BR_OK;
  br_buf head = {0}, body = {0};
  br_status status = br_colset_encode(t->columns, BR_CODEC_NONE, &head, &body, false, err);
  br_buf_free(&head);
  br_buf_free(&body);
  return status;
}
static void abandon(void *arg, void *state) {
  (void)arg;
  thread_state *t = state;
  total += t->sum;
  br_colset_free(t->columns);
  free(t);
}
static br_status end(void *arg, void *state, br_error *err) {
  (void)err;
  abandon(arg, state);
  return BR_OK;
}

/* A stream's batches grow to BATCH_ROWS: keep the last ones. */
static void make_batches(br_session *s) {
  br_error err;
  br_local_stream *st;
  br_batch *b;
  check(br_session_stream(
            s,
            "SELECT r, r * 7 % 1000, (hash(r) >> 1)::BIGINT, r // 3, 'str_' || lpad(r::VARCHAR, 16, '0') FROM "
            "range(65536 * 20) t(r)",
            &st, &err),
        &err);
  schema = br_schema_ref(br_local_stream_schema(st));
  for (int n = 0; n < DISTINCT_BATCHES;) {
    check(br_local_stream_next(st, &b, &err), &err);
    if (br_batch_rows(b) == BATCH_ROWS)
      batches[n++] = b;
    else
      br_batch_unref(b);
  }
  br_local_stream_free(st);
}

static void bench(br_session *s, const char *scratch, const char *sql, bool ordered, bool building, bool profile) {
  br_run_input in = {.schema = schema, .next = next, .rows_known = true, .ordered = ordered};
  br_run_sink sink = {
      .open = open_sink, .thread_begin = begin, .write = write_rows, .thread_end = end, .abandon = abandon};
  br_run run = {.sql = sql,
                .inputs = &in,
                .n_inputs = 1,
                .sink = &sink,
                .ordered = ordered,
                .profile = profile,
                .scratch_dir = scratch};
  double best = 1e9, cpu = 0;
  long rows = 0;
  for (long i = 0; i < n_batches; i++) rows += (long)br_batch_rows(batches[i % DISTINCT_BATCHES]);
  in.rows = (uint64_t)rows;
  build = building;
  for (int turn = 0; turn < 3; turn++) {
    br_error err;
    next_batch = 0;
    check(br_session_run(s, &run, &err), &err);
    free(run.stats.profile_json);
    if ((double)run.stats.wall_us < best) best = (double)run.stats.wall_us, cpu = (double)run.stats.cpu_us;
  }
  printf("%6.3f s wall %6.3f s cpu %7.1f Mrows/s %s%s%s %s\n", best / 1e6, cpu / 1e6, (double)rows / best,
         ordered ? "ordered " : "parallel", building ? " columns" : " look   ", profile ? " profiled" : "", sql);
}

/* What a task costs before its first row. */
static void bench_small(br_session *s, const char *scratch) {
  enum { RUNS = 200 };
  br_run_input in = {.schema = schema, .next = next, .rows = 1, .rows_known = true};
  br_run_sink sink = {
      .open = open_sink, .thread_begin = begin, .write = write_rows, .thread_end = end, .abandon = abandon};
  br_run run = {.sql = "SELECT * FROM input(0)", .inputs = &in, .n_inputs = 1, .sink = &sink, .scratch_dir = scratch};
  br_error err;
  build = false;
  next_batch = n_batches;
  uint64_t start_us = br_now_us();
  for (int i = 0; i < RUNS; i++) check(br_session_run(s, &run, &err), &err);
  printf("%.0f us a task without rows\n", (double)(br_now_us() - start_us) / RUNS);
}

int main(int argc, char **argv) {
  br_engine_options o = {.threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 2};
  long million = argc > 2 ? atol(argv[2]) : 20;
  char scratch[] = "/tmp/brant-engine-bench-XXXXXX";
  br_engine *e;
  br_session *s;
  br_error err;
  if (!mkdtemp(scratch)) return 1;
  check(br_engine_open(&o, &e, &err), &err);
  check(br_session_open(e, &s, &err), &err);
  make_batches(s);
  n_batches = million * 1000000 / br_batch_rows(batches[0]);
  bench(s, scratch, "SELECT c0 FROM input(0) t(c0, c1, c2, c3, c4)", false, false, false);
  bench(s, scratch, "SELECT * FROM input(0)", false, false, false);
  bench(s, scratch, "SELECT * FROM input(0)", true, false, false);
  bench(s, scratch, "SELECT * FROM input(0)", false, true, false);
  bench(s, scratch, "SELECT * FROM input(0) t(c0, c1, c2, c3, c4) WHERE c1 < 100", false, false, false);
  bench(s, scratch, "SELECT c1, sum(c0), min(c4) FROM input(0) t(c0, c1, c2, c3, c4) GROUP BY c1", false, false, false);
  bench(s, scratch, "SELECT * FROM input(0)", false, false, true);
  bench_small(s, scratch);
  for (int i = 0; i < DISTINCT_BATCHES; i++) br_batch_unref(batches[i]);
  br_schema_unref(schema);
  br_schema_unref(sink_schema);
  br_session_close(s);
  br_engine_close(e);
  br_remove_tree(scratch);
  return 0;
}
