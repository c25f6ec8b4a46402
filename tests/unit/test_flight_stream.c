/* SPDX-License-Identifier: Apache-2.0
 * flight: streams of batches between a server and a client on loops of their own, over real sockets. */
/* links: br_flight */
#include "unit/flight_support.h"
#include "proto/proto.h"

#define MESSAGES 60

static void read_all(bool on_unix, uint32_t window_bytes) {
  world w = {.client_options = {.window_bytes = window_bytes}};
  world_start(&w, on_unix);
  reader r = {.check = true};
  get(&w, &r, "data 60 0");
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.messages, MESSAGES);
  assert_int_equal(r.bad, 0);
  uint64_t want = 0;
  for (uint64_t i = 0; i < MESSAGES; i++) want += size_of(i);
  assert_int_equal(r.bytes, want);
  world_stop(&w);
  assert_int_equal(r.ends, 1);
}
static void test_all_sizes_tcp(void **state) { (void)state, read_all(false, 0); }
static void test_all_sizes_unix(void **state) { (void)state, read_all(true, 0); }
/* Messages of 8 MiB through a window of 64 KiB: a message above the window still arrives. */
static void test_small_window(void **state) { (void)state, read_all(false, 65536); }

static void test_empty_stream(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r = {0};
  get(&w, &r, "data 0 0");
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.messages, 0);
  world_stop(&w);
}

static void test_many_small_messages(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, true);
  reader r = {0};
  get(&w, &r, "data 20000 10");
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.messages, 20000);
  assert_int_equal(r.bad, 0);
  world_stop(&w);
}

static void test_many_streams_at_once(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r[50] = {0};
  for (int i = 0; i < 50; i++) get(&w, &r[i], "data 20 30000");
  for (int i = 0; i < 50; i++) WAIT_FOR(r[i].ends);
  for (int i = 0; i < 50; i++) {
    assert_int_equal(r[i].err.code, BR_OK);
    assert_int_equal(r[i].messages, 20);
    assert_int_equal(r[i].bad, 0);
  }
  world_stop(&w);
}

/* More calls than a peer may have open: the rest wait and come through. */
static void test_more_calls_than_streams(void **state) {
  (void)state;
  enum { N = 1200 };
  world w = {0};
  world_start(&w, false);
  reader *r = calloc(N, sizeof *r);
  for (int i = 0; i < N; i++) get(&w, &r[i], "data 2 1000");
  for (int i = 0; i < N; i++) {
    WAIT_FOR(r[i].ends);
    assert_int_equal(r[i].err.code, BR_OK);
    assert_int_equal(r[i].messages, 2);
  }
  free(r);
  world_stop(&w);
}

/* A reader that doesn't consume stalls alone: the server stops within about a window, others go on, consuming resumes. */
static void test_back_pressure(void **state) {
  (void)state;
  const uint64_t window = 4 << 20, each = 1 << 20;
  world w = {.client_options = {.window_bytes = (uint32_t)window}};
  world_start(&w, false);
  reader slow[3] = {{.slow = true}, {.slow = true}, {.slow = true}};
  for (int i = 0; i < 3; i++) get(&w, &slow[i], "data 40 1048576");
  for (int i = 0; i < 3; i++) WAIT_FOR(slow[i].bytes >= window);
  /* Another stream of the same connection moves 64 MiB past the stalled ones: what they could still get, they got. */
  reader fast = {0};
  get(&w, &fast, "data 64 1048576");
  WAIT_FOR(fast.ends);
  assert_int_equal(fast.err.code, BR_OK);
  lock_on();
  uint64_t produced = w.produced_bytes - 64 * each, got = slow[0].bytes + slow[1].bytes + slow[2].bytes;
  lock_off();
  assert_in_range(got, 3 * window, 3 * (window + 2 * each));
  assert_in_range(produced, 3 * window, 3 * (window + 4 * each)); /* and what a server pulls ahead */
  for (int i = 0; i < 3; i++) assert_int_equal(slow[i].ends, 0);
  for (int i = 0; i < 3; i++) {
    uint64_t seen = 0;
    while (slow[i].ends == 0) {
      consume_all(&slow[i]);
      WAIT_FOR(slow[i].ends || slow[i].messages > seen);
      lock_on();
      seen = slow[i].messages;
      lock_off();
    }
    assert_int_equal(slow[i].err.code, BR_OK);
    assert_int_equal(slow[i].messages, 40);
  }
  world_stop(&w);
}

/* One message of 8 MiB that nobody consumes, above the window of 1 MiB: it arrives whole, and not a second one. */
static void test_message_above_window(void **state) {
  (void)state;
  world w = {.client_options = {.window_bytes = 1 << 20}};
  world_start(&w, false);
  reader r = {.slow = true}, other = {0};
  get(&w, &r, "data 5 8388608");
  WAIT_FOR(r.messages == 1);
  get(&w, &other, "data 30 1048576");
  WAIT_FOR(other.ends);
  assert_int_equal(r.messages, 1);
  for (uint64_t m = 2; m <= 5; m++) {
    consume_all(&r);
    WAIT_FOR(r.messages == m);
  }
  WAIT_FOR(r.ends);
  assert_int_equal(r.bad, 0);
  world_stop(&w);
}

typedef struct resume_args {
  world *w;
  uint64_t allowed;
} resume_args;
static void allow_and_resume(void *arg) {
  resume_args *a = arg;
  lock_on();
  source *s = a->w->waiting;
  a->w->waiting = NULL;
  a->w->allowed = a->allowed;
  lock_off();
  br_flight_call_resume(s->call);
}

static void test_wait_and_resume(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r = {.check = true};
  get(&w, &r, "wait 12 0");
  for (uint64_t m = 1; m <= 12; m++) {
    WAIT_FOR(w.waiting);
    assert_int_equal(r.messages, m - 1);
    looper_call(&w.server_loop, allow_and_resume, &(resume_args){&w, m});
    WAIT_FOR(r.messages == m);
  }
  WAIT_FOR(r.ends);
  assert_int_equal(r.err.code, BR_OK);
  assert_int_equal(r.bad, 0);
  world_stop(&w);
}

static void check_whole_error(const br_error *got) {
  br_error want = {0};
  whole_error(&want);
  assert_int_equal(got->code, want.code);
  assert_int_equal(got->blame, want.blame);
  assert_int_equal(got->retryable, want.retryable);
  assert_true(got->has_attempt && got->has_lost);
  assert_true(br_attempt_equal(&got->attempt, &want.attempt));
  assert_true(br_attempt_equal(&got->lost.made_by, &want.lost.made_by));
  assert_int_equal(got->lost.worker, want.lost.worker);
  assert_int_equal(got->lost.incarnation, want.lost.incarnation);
  assert_int_equal(got->worker, want.worker);
  assert_int_equal(got->sys_errno, want.sys_errno);
  assert_int_equal(got->duckdb_type, want.duckdb_type);
  assert_string_equal(got->message, want.message);
  assert_string_equal(got->file, want.file);
  assert_true(got->line > 0);
}

static void test_error_arrives_whole(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader at_once = {0}, later = {.check = true}, action_failed = {0};
  get(&w, &at_once, "refuse");
  get(&w, &later, "error 10 0");
  action(&w, &action_failed, "half", "some", 4);
  WAIT_FOR(at_once.ends && later.ends && action_failed.ends);
  check_whole_error(&at_once.err);
  check_whole_error(&later.err);
  check_whole_error(&action_failed.err);
  assert_int_equal(later.messages, 10);
  assert_int_equal(later.bad, 0);
  assert_int_equal(action_failed.results, 1);
  world_stop(&w);
}

static void test_cancel(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader inside = {.cancel_at = 3}, outside = {.slow = true}, waiting = {0}, after = {.check = true};
  get(&w, &inside, "data 1000 1048576");
  get(&w, &outside, "data 1000 1048576");
  get(&w, &waiting, "wait 5 10");
  WAIT_FOR(inside.messages == 3 && outside.messages >= 1 && w.waiting);
  cancel(&outside);
  cancel(&waiting);
  WAIT_FOR(w.sources_freed == 3); /* the server heard of all three */
  uint64_t seen = outside.messages;
  get(&w, &after, "data 30 0");
  WAIT_FOR(after.ends);
  assert_int_equal(after.bad, 0);
  assert_int_equal(inside.messages, 3);
  assert_int_equal(outside.messages, seen);
  assert_int_equal(inside.ends + outside.ends + waiting.ends, 0);
  world_stop(&w);
}

/* Cancelled before its request left, together with one that is kept. */
static void cancel_early(void *arg) {
  reader *r = arg;
  r[0].stream = br_flight_get(r[0].w->client, "data 9 0", 8, sink_of(&r[0]));
  br_flight_stream_cancel(r[0].stream);
  r[1].stream = br_flight_get(r[1].w->client, "data 9 0", 8, sink_of(&r[1]));
}
static void test_cancel_before_it_left(void **state) {
  (void)state;
  world w = {0};
  world_start(&w, false);
  reader r[2] = {{.w = &w, .check = true}, {.w = &w, .check = true}}, again[2];
  memcpy(again, r, sizeof r);
  looper_call(&w.client_loop, cancel_early, r); /* while connecting */
  WAIT_FOR(r[1].ends);
  looper_call(&w.client_loop, cancel_early, again); /* while connected */
  WAIT_FOR(again[1].ends);
  assert_int_equal(r[0].ends + r[0].messages + again[0].ends + again[0].messages, 0);
  assert_int_equal(r[1].messages, 9);
  assert_int_equal(again[1].messages, 9);
  world_stop(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_sizes_tcp),
      cmocka_unit_test(test_all_sizes_unix),
      cmocka_unit_test(test_small_window),
      cmocka_unit_test(test_empty_stream),
      cmocka_unit_test(test_many_small_messages),
      cmocka_unit_test(test_many_streams_at_once),
      cmocka_unit_test(test_more_calls_than_streams),
      cmocka_unit_test(test_back_pressure),
      cmocka_unit_test(test_message_above_window),
      cmocka_unit_test(test_wait_and_resume),
      cmocka_unit_test(test_error_arrives_whole),
      cmocka_unit_test(test_cancel),
      cmocka_unit_test(test_cancel_before_it_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
