/* SPDX-License-Identifier: Apache-2.0
 * links: br_observe
 * The event stream: fields, numbering, several subscribers and threads, the bound, silence after mute. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "observe/events.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4096
typedef struct seen {
  json_t *items[MOST];
  size_t n;
} seen;

static void take(void *arg, const char *text) {
  seen *s = arg;
  json_error_t why;
  assert_null(strchr(text, '\n')); /* one object a line */
  json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  assert_non_null(j);
  assert_true(s->n < MOST);
  s->items[s->n++] = j;
}

static void forget(seen *s) {
  for (size_t i = 0; i < s->n; i++) json_decref(s->items[i]);
  s->n = 0;
}

static long long number(const json_t *j, const char *key) {
  json_t *v = json_object_get(j, key);
  assert_true(json_is_integer(v));
  return json_integer_value(v);
}

static void fields(void **state) {
  (void)state;
  seen s = {0};
  br_events *e = br_events_new();
  br_events_emit(e, "before", NULL); /* nobody listens: it doesn't count */
  br_events_subscribe(e, take, &s);
  uint64_t wall = br_wall_us(), mono = br_now_us();
  br_events_emit(e, "task_done", "{s:I, s:s, s:b}", "query", (json_int_t)INT64_MAX, "state", "it's \"\n", "last", 1);
  br_events_emit(e, "bare", NULL);
  assert_int_equal(s.n, 2);
  const json_t *j = s.items[0];
  assert_int_equal(json_object_size(j), 8);
  assert_int_equal(number(j, "version"), 1);
  assert_string_equal(json_string_value(json_object_get(j, "type")), "task_done");
  assert_int_equal(number(j, "query"), INT64_MAX);
  assert_string_equal(json_string_value(json_object_get(j, "state")), "it's \"\n");
  assert_true(json_is_true(json_object_get(j, "last")));
  assert_in_range(number(j, "wall_us"), wall, wall + 60000000);
  assert_in_range(number(j, "mono_us"), mono, mono + 60000000);
  assert_int_equal(number(j, "seq"), 1);
  assert_int_equal(json_object_size(s.items[1]), 5);
  assert_int_equal(number(s.items[1], "seq"), 2);
  forget(&s);
  br_events_free(e);
}

/* A field that can't be built (text that isn't UTF-8) must not swallow the event. */
static void broken_fields_leave_the_event(void **state) {
  (void)state;
  seen s = {0};
  br_events *e = br_events_new();
  br_events_subscribe(e, take, &s);
  br_events_emit(e, "task_failed", "{s:s}", "message", "\xff\xfe");
  assert_int_equal(s.n, 1);
  assert_string_equal(json_string_value(json_object_get(s.items[0], "type")), "task_failed");
  forget(&s);
  br_events_free(e);
}

static void mute_is_silence(void **state) {
  (void)state;
  seen a = {0}, b = {0};
  br_events *e = br_events_new();
  br_events_subscribe(e, take, &a);
  br_events_emit(e, "one", NULL);
  br_events_subscribe(e, take, &b);
  br_events_emit(e, "two", NULL);
  br_events_mute(e);
  br_events_emit(e, "three", NULL);
  assert_int_equal(a.n, 2);
  assert_int_equal(b.n, 1);
  forget(&a);
  forget(&b);
  br_events_free(e);
  br_events_free(NULL);
}

static void sixteen_listen(void **state) {
  (void)state;
  seen *s = calloc(20, sizeof *s);
  br_events *e = br_events_new();
  for (int i = 0; i < 20; i++) br_events_subscribe(e, take, &s[i]);
  br_events_emit(e, "x", NULL);
  for (int i = 0; i < 20; i++) {
    assert_int_equal(s[i].n, i < 16 ? 1 : 0);
    forget(&s[i]);
  }
  br_events_free(e);
  free(s);
}

#define THREADS 4
#define EACH 500
static br_events *shared;
static void *emit_many(void *arg) {
  for (int i = 0; i < EACH; i++) br_events_emit(shared, "n", "{s:i, s:i}", "thread", (int)(uintptr_t)arg, "i", i);
  return NULL;
}

/* seq grows by one in the order of calls, and each thread's own events stay in their order. */
static void order_over_threads(void **state) {
  (void)state;
  seen *s = calloc(1, sizeof *s);
  pthread_t t[THREADS];
  int next[THREADS] = {0};
  shared = br_events_new();
  br_events_subscribe(shared, take, s);
  for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, emit_many, (void *)i), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  assert_int_equal(s->n, THREADS * EACH);
  for (size_t i = 0; i < s->n; i++) {
    assert_int_equal(number(s->items[i], "seq"), i + 1);
    int who = (int)number(s->items[i], "thread");
    assert_int_equal(number(s->items[i], "i"), next[who]++);
  }
  forget(s);
  br_events_free(shared);
  free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields),
      cmocka_unit_test(broken_fields_leave_the_event),
      cmocka_unit_test(mute_is_silence),
      cmocka_unit_test(sixteen_listen),
      cmocka_unit_test(order_over_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
