/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * The driver between a real scheduler and workers that this test plays: what the scheduler wants reaches the right worker as the
 * right command, what workers say reaches the scheduler, and the events tell what was lost and what ran again for it. Two stages:
 * two maps in two partitions, two result tasks.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver.h"
#include "coordinator/driver_inside.h"

#define SECRET "the-secret-of-this-test"
#define WAIT_S 30
#define MAX_SEEN 512
#define MAX_FAKES 3

typedef struct seen { /* a command, in the order of arrival */
  Brant__Pb__Command__WhatCase what;
  br_attempt_id id; /* of RUN, CANCEL, DROP_OUTPUT; the stage of RETIRE and DROP */
  bool alone;
  size_t passes;
} seen;

typedef struct fixture fixture;
typedef struct fake {
  fixture *f;
  br_flight_client *client;
  br_flight_server *server; /* its data port; NULL: nobody listens */
  bool silent;              /* listens and does not answer */
  uint32_t worker, incarnation;
  uint64_t seq;
  seen seen[MAX_SEEN];
  size_t n_seen;
  bool parted;
} fake;

struct fixture {
  br_loop *coord_loop, *fake_loop;
  pthread_t coord_thread, fake_thread;
  br_events *events;
  br_driver *driver;
  uint32_t silent_ms, slots;
  br_query *query;
  fake fakes[MAX_FAKES];
  size_t n_fakes;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  json_t *told; /* events, in their order */
  bool ready;
};

/* ---- waiting */

static void wake(fixture *f) {
  pthread_mutex_lock(&f->lock);
  f->ready = true;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

/* With the lock; it changes whenever something was told or came. */
static void wait_change(fixture *f, const char *what) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_sec += WAIT_S;
  if (pthread_cond_timedwait(&f->changed, &f->lock, &t) == 0) return;
  char *all = json_dumps(f->told, JSON_INDENT(0));
  fprintf(stderr, "%s\n", all);
  pthread_mutex_unlock(&f->lock);
  fail_msg("waited %d s for %s", WAIT_S, what);
}

typedef struct call {
  fixture *f;
  void (*fn)(void *arg);
  void *arg;
} call;
static void run_call(void *arg) {
  call *c = arg;
  c->fn(c->arg);
  wake(c->f);
}
/* fn on that loop's thread, done on return. */
static void on_loop(fixture *f, br_loop *l, void (*fn)(void *), void *arg) {
  call c = {f, fn, arg};
  pthread_mutex_lock(&f->lock);
  f->ready = false;
  pthread_mutex_unlock(&f->lock);
  br_loop_post(l, run_call, &c);
  pthread_mutex_lock(&f->lock);
  while (!f->ready) wait_change(f, "a loop");
  pthread_mutex_unlock(&f->lock);
}

/* ---- events */

static void on_event(void *arg, const char *text) {
  fixture *f = arg;
  pthread_mutex_lock(&f->lock);
  json_array_append_new(f->told, json_loads(text, 0, NULL));
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

/* The n-th event (from 0) of this type (why NULL: whatever its reason); borrowed. */
static json_t *event_for(fixture *f, const char *type, const char *why, size_t n) {
  json_t *found = NULL;
  pthread_mutex_lock(&f->lock);
  for (;;) {
    size_t i, at = 0;
    json_t *e;
    json_array_foreach(f->told, i, e) {
      const char *is = json_string_value(json_object_get(e, "type")),
                 *of = json_string_value(json_object_get(e, "why"));
      if (strcmp(is, type) == 0 && (why == NULL || (of != NULL && strcmp(of, why) == 0)) && at++ == n) found = e;
    }
    if (found != NULL) break;
    wait_change(f, type);
  }
  pthread_mutex_unlock(&f->lock);
  return found;
}

static json_t *event(fixture *f, const char *type, size_t n) { return event_for(f, type, NULL, n); }
static json_int_t num(json_t *e, const char *field) { return json_integer_value(json_object_get(e, field)); }
static const char *str(json_t *e, const char *field) { return json_string_value(json_object_get(e, field)); }

/* ---- workers */

static br_status do_get(void *arg, br_flight_call *c, const void *t, size_t n, br_flight_source *src, br_error *err) {
  (void)arg, (void)c, (void)t, (void)n, (void)src;
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "not played");
}

static br_status do_action(void *arg, br_flight_call *c, const char *type, const void *body, size_t n, br_error *err) {
  fake *w = arg;
  (void)body, (void)n, (void)err;
  assert_string_equal(type, "status");
  if (!w->silent) br_flight_call_end(c, NULL);
  return BR_OK;
}

static void call_closed(void *arg, br_flight_call *c) { (void)arg, (void)c; }

static void on_command(void *arg, const void *body, size_t n) {
  fake *w = arg;
  br_error err;
  Brant__Pb__Command *c = (Brant__Pb__Command *)br_pb_unpack(&brant__pb__command__descriptor, body, n, &err);
  assert_non_null(c);
  pthread_mutex_lock(&w->f->lock);
  assert_true(w->n_seen < MAX_SEEN);
  seen *s = &w->seen[w->n_seen++];
  *s = (seen){.what = c->what_case};
  switch (c->what_case) {
    case BRANT__PB__COMMAND__WHAT_WELCOME:
      w->worker = c->welcome->worker, w->incarnation = c->welcome->incarnation;
      break;
    case BRANT__PB__COMMAND__WHAT_RUN:
      s->id = br_attempt_from_pb(c->run->id);
      s->alone = c->run->alone;
      s->passes = c->run->n_passes;
      break;
    case BRANT__PB__COMMAND__WHAT_CANCEL: s->id = br_attempt_from_pb(c->cancel); break;
    case BRANT__PB__COMMAND__WHAT_DROP_OUTPUT: s->id = br_attempt_from_pb(c->drop_output); break;
    case BRANT__PB__COMMAND__WHAT_RETIRE: s->id.stage = c->retire->stage; break;
    case BRANT__PB__COMMAND__WHAT_DROP: s->id.stage = c->drop->stage; break;
    default: break;
  }
  pthread_cond_broadcast(&w->f->changed);
  pthread_mutex_unlock(&w->f->lock);
  protobuf_c_message_free_unpacked(&c->base, NULL);
}

static void on_parted(void *arg, const br_error *err) {
  fake *w = arg;
  (void)err;
  pthread_mutex_lock(&w->f->lock);
  w->parted = true;
  pthread_cond_broadcast(&w->f->changed);
  pthread_mutex_unlock(&w->f->lock);
}

static void join(void *arg) {
  fake *w = arg;
  br_error err;
  char coordinator[64], uri[64] = "tcp://127.0.0.1:1";
  if (w->server == NULL && w->seq == 0) {
    br_flight_handlers h = {.arg = w, .do_get = do_get, .do_action = do_action, .call_closed = call_closed};
    br_flight_server_options o = {.host = "127.0.0.1", .bearer = SECRET};
    assert_int_equal(br_flight_server_new(w->f->fake_loop, &o, &h, &w->server, &err), BR_OK);
  }
  if (w->server != NULL) snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", br_flight_server_port(w->server));
  snprintf(coordinator, sizeof coordinator, "tcp://127.0.0.1:%d", br_driver_port(w->f->driver));
  br_flight_client_options o = {.bearer = SECRET};
  assert_int_equal(br_flight_client_new(w->f->fake_loop, coordinator, &o, &w->client, &err), BR_OK);
  Brant__Pb__JoinRequest j = BRANT__PB__JOIN_REQUEST__INIT;
  j.version = (char *)(uintptr_t)BRANT_VERSION;
  j.secret = (char *)(uintptr_t)SECRET;
  j.uri = uri;
  j.host_id = (char *)(uintptr_t) "a test";
  j.slots = w->f->slots;
  br_buf b = {0};
  br_pb_pack(&j.base, &b);
  br_flight_action(w->client, "join", b.data, b.len,
                   (br_flight_sink){.arg = w, .result = on_command, .end = on_parted});
  br_buf_free(&b);
}

static fake *new_fake(fixture *f) {
  fake *w = &f->fakes[f->n_fakes++];
  w->f = f;
  on_loop(f, f->fake_loop, join, w);
  pthread_mutex_lock(&f->lock);
  while (w->worker == 0) wait_change(f, "the welcome");
  pthread_mutex_unlock(&f->lock);
  return w;
}

/* The n-th command (from 0) of this kind. */
static seen command(fake *w, Brant__Pb__Command__WhatCase what, size_t n) {
  seen out = {0};
  pthread_mutex_lock(&w->f->lock);
  for (;;) {
    size_t at = 0;
    for (size_t i = 0; i < w->n_seen && out.what == 0; i++)
      if (w->seen[i].what == what && at++ == n) out = w->seen[i];
    if (out.what != 0) break;
    wait_change(w->f, "a command");
  }
  pthread_mutex_unlock(&w->f->lock);
  return out;
}

static size_t count_commands(fake *w, Brant__Pb__Command__WhatCase what) {
  size_t n = 0;
  pthread_mutex_lock(&w->f->lock);
  for (size_t i = 0; i < w->n_seen; i++) n += w->seen[i].what == what;
  pthread_mutex_unlock(&w->f->lock);
  return n;
}

typedef struct saying {
  fake *w;
  const br_attempt_id *done, *failed, *lost;
  const br_error *why;
  bool draining;
} saying;

static void on_answered(void *arg, const br_error *err) { (void)arg, (void)err; }

static void send_report(void *arg) {
  const saying *s = arg;
  Brant__Pb__AttemptId id;
  Brant__Pb__AttemptId *ids[] = {&id};
  Brant__Pb__TaskStats stats = BRANT__PB__TASK_STATS__INIT;
  uint64_t rows[] = {3, 4};
  stats.rows_out = 7, stats.bytes_out = 100, stats.partition_rows = rows, stats.n_partition_rows = 2;
  Brant__Pb__TaskDone done = BRANT__PB__TASK_DONE__INIT, *dones[] = {&done};
  Brant__Pb__TaskFailed failed = BRANT__PB__TASK_FAILED__INIT, *faileds[] = {&failed};
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  br_attempt_to_pb(s->done ? s->done : s->failed ? s->failed : s->lost ? s->lost : &(br_attempt_id){0}, &id);
  done.id = failed.id = &id;
  done.stats = &stats;
  if (s->done) r.done = dones, r.n_done = 1;
  if (s->failed) {
    failed.error = br_error_to_pb(s->why);
    r.failed = faileds, r.n_failed = 1;
  }
  if (s->lost) r.outputs_lost = ids, r.n_outputs_lost = 1;
  r.draining = s->draining;
  r.worker = s->w->worker, r.incarnation = s->w->incarnation, r.seq = ++s->w->seq;
  br_buf b = {0};
  br_pb_pack(&r.base, &b);
  br_flight_action(s->w->client, "report", b.data, b.len, (br_flight_sink){.arg = s->w, .end = on_answered});
  br_buf_free(&b);
  if (failed.error != NULL) protobuf_c_message_free_unpacked(&failed.error->base, NULL);
}

static void say(fake *w, saying s) {
  s.w = w;
  on_loop(w->f, w->f->fake_loop, send_report, &s);
}

static void say_done(fake *w, br_attempt_id id) { say(w, (saying){.done = &id}); }

static void say_failed(fake *w, br_attempt_id id, const br_error *why) { say(w, (saying){.failed = &id, .why = why}); }

static void stop_listening(void *arg) {
  fake *w = arg;
  br_flight_server_free(w->server);
  w->server = NULL;
}

/* ---- the query */

static br_query *make_query(uint32_t tasks) {
  static const char *types[] = {"BIGINT"};
  static const br_split_key key[] = {{.text = "t.c0", .hashed_as = "BIGINT"}};
  br_error err;
  br_arena *a = br_arena_new();
  br_stages *p = br_arena_alloc(a, sizeof *p);
  p->arena = a;
  p->n_stages = 2;
  p->stages = br_arena_alloc(a, 2 * sizeof *p->stages);
  p->stages[0] = (br_stage){.sql = "SELECT c0, hash(c0) FROM t",
                            .types = types,
                            .n_columns = 1,
                            .split_scan = -1,
                            .rule = BR_TASKS_SPLITS,
                            .output = BR_EX_HASH,
                            .partitions = 2};
  br_stage_input *in = br_arena_alloc(a, sizeof *in);
  *in = (br_stage_input){.kind = BR_EX_HASH, .keys = key, .n_keys = 1};
  p->stages[1] = (br_stage){.id = 1,
                            .sql = "SELECT c0 FROM input(0)",
                            .types = types,
                            .n_columns = 1,
                            .split_scan = -1,
                            .rule = BR_TASKS_PARTITIONS,
                            .output = BR_EX_RESULT,
                            .partitions = 1,
                            .inputs = in,
                            .n_inputs = 1};
  br_query *q = br_query_new(42);
  q->stages = p;
  q->n_runs = 2;
  q->runs = br_calloc(2, sizeof *q->runs);
  for (size_t i = 0; i < 2; i++) q->runs[i].plan = &p->stages[i];
  q->runs[0].n_tasks = tasks;
  assert_int_equal(br_query_count_tasks(q, &err), BR_OK);
  return q;
}

static void *loop_main(void *arg) {
  br_loop_run(arg);
  return NULL;
}

static void start_driver(void *arg) {
  fixture *f = arg;
  br_error err;
  br_driver_options o = {
      .host = "127.0.0.1",
      .secret = SECRET,
      .sched = {.backoff_first_ms = 1, .probe_ms = 300, .silent_ms = f->silent_ms, .straggler_percent = UINT32_MAX}};
  assert_int_equal(br_driver_new(f->coord_loop, &o, f->events, &f->driver, &err), BR_OK);
}

static int open_with(void **state, uint32_t silent_ms) {
  fixture *f = br_calloc(1, sizeof *f);
  f->silent_ms = silent_ms;
  f->slots = 2;
  br_error err;
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  f->told = json_array();
  f->events = br_events_new();
  br_events_subscribe(f->events, on_event, f);
  if (br_loop_new(&f->coord_loop, &err) != BR_OK || br_loop_new(&f->fake_loop, &err) != BR_OK) return 1;
  pthread_attr_t small; /* nothing that the driver does grows with the number of tasks on the stack */
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256u << 10);
  if (pthread_create(&f->coord_thread, &small, loop_main, f->coord_loop) != 0) return 1;
  pthread_attr_destroy(&small);
  if (pthread_create(&f->fake_thread, NULL, loop_main, f->fake_loop) != 0) return 1;
  on_loop(f, f->coord_loop, start_driver, f);
  f->query = make_query(2);
  *state = f;
  return 0;
}

static int open_fixture(void **state) { return open_with(state, 0); }
static int open_impatient(void **state) { return open_with(state, 1000); }

static void end_driver(void *arg) {
  fixture *f = arg;
  br_driver_free(f->driver);
  br_loop_stop(f->coord_loop);
}

static void end_fakes(void *arg) {
  fixture *f = arg;
  for (size_t i = 0; i < f->n_fakes; i++) {
    br_flight_client_free(f->fakes[i].client);
    if (f->fakes[i].server != NULL) br_flight_server_free(f->fakes[i].server);
  }
  br_loop_stop(f->fake_loop);
}

static int close_fixture(void **state) {
  fixture *f = *state;
  br_query_unref(f->query);
  on_loop(f, f->coord_loop, end_driver, f);
  pthread_join(f->coord_thread, NULL);
  on_loop(f, f->fake_loop, end_fakes, f);
  pthread_join(f->fake_thread, NULL);
  br_loop_free(f->coord_loop);
  br_loop_free(f->fake_loop);
  br_events_free(f->events);
  json_decref(f->told);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
  free(f);
  return 0;
}

#define RUN BRANT__PB__COMMAND__WHAT_RUN

/* Both maps are done by this worker, which then has the two result tasks. */
static void run_maps(fake *w) {
  say_done(w, command(w, RUN, 0).id);
  say_done(w, command(w, RUN, 1).id);
  assert_int_equal(command(w, RUN, 2).id.stage, 1);
  assert_int_equal(command(w, RUN, 3).id.stage, 1);
}

/* ---- the tests */

static void a_life_without_losses(void **state) {
  fixture *f = *state;
  fake *w = new_fake(f);
  br_driver_submit(f->driver, f->query);
  run_maps(w);
  say_done(w, command(w, RUN, 2).id);
  say_done(w, command(w, RUN, 3).id);
  assert_int_equal(command(w, BRANT__PB__COMMAND__WHAT_RETIRE, 0).id.stage, 0);
  for (uint32_t t = 0; t < 2; t++) {
    br_attempt_id id = {.query = 42, .stage = 1, .task = t, .attempt = 1};
    br_driver_result_read(f->driver, &id);
    seen drop = command(w, BRANT__PB__COMMAND__WHAT_DROP_OUTPUT, t);
    assert_int_equal(drop.id.stage, 1);
    assert_int_equal(drop.id.task, t);
    assert_int_equal(drop.id.attempt, 1);
  }
  command(w, BRANT__PB__COMMAND__WHAT_DROP_QUERY, 0);
  assert_string_equal(str(event(f, "query_done", 0), "code"), "OK");
  json_t *e = event(f, "task_assigned", 3);
  assert_string_equal(str(e, "why"), "first");
  assert_int_equal(num(e, "passes"), 1);
  assert_int_equal(num(event(f, "stage_retired", 0), "stage"), 0);
  assert_int_equal(num(event(f, "output_dropped", 1), "task"), 1);
}

static void an_evicted_output_is_made_again(void **state) {
  fixture *f = *state;
  fake *w = new_fake(f);
  br_driver_submit(f->driver, f->query);
  run_maps(w);
  say(w, (saying){.lost = &(br_attempt_id){.query = 42, .stage = 0, .task = 1, .attempt = 1}});
  json_t *e = event(f, "output_lost", 0);
  assert_int_equal(num(e, "stage"), 0);
  assert_int_equal(num(e, "task"), 1);
  assert_int_equal(num(e, "attempt"), 1);
  e = event(f, "outputs_rerun", 0);
  assert_int_equal(num(e, "stage"), 0);
  assert_int_equal(num(e, "tasks"), 1);
  br_error why;
  br_fail(&why, BR_FETCH, BR_BLAME_FETCH, "it is not there");
  why.has_lost = true;
  why.lost = (br_map_output_id){{42, 0, 1, 1}, w->worker, w->incarnation};
  say_failed(w, command(w, RUN, 2).id, &why); /* what was lost is no news */
  seen again = command(w, RUN, 4);
  assert_int_equal(again.id.stage, 0);
  assert_int_equal(again.id.task, 1);
  assert_int_equal(again.id.attempt, 2);
  assert_string_equal(str(event(f, "task_assigned", 4), "why"), "output_lost");
  e = event(f, "task_failed", 0);
  assert_string_equal(str(e, "code"), "FETCH");
  assert_string_equal(str(e, "blame"), "FETCH");
  assert_int_equal(num(e, "lost_task"), 1);
  assert_int_equal(num(e, "lost_worker"), w->worker);
  pthread_mutex_lock(&f->query->lock);
  assert_int_equal(f->query->runs[0].outputs_lost, 1);
  assert_int_equal(f->query->runs[0].made_again, 1);
  pthread_mutex_unlock(&f->query->lock);
}

/* A reader can't reach the maker of its input: the maker is asked. */
static fake *cannot_reach(fixture *f, bool silent, bool listens) {
  fake *maker = new_fake(f);
  maker->silent = silent;
  br_driver_submit(f->driver, f->query);
  run_maps(maker);
  fake *other = new_fake(f);
  if (!listens) on_loop(f, f->fake_loop, stop_listening, maker);
  br_error why;
  br_fail(&why, BR_FETCH, BR_BLAME_FETCH, "worker %u does not answer", maker->worker);
  why.worker = maker->worker;
  say_failed(maker, command(maker, RUN, 2).id, &why);
  (void)other;
  return maker;
}

static void a_worker_that_answers_is_kept(void **state) {
  fixture *f = *state;
  fake *w = cannot_reach(f, false, true);
  json_t *e = event(f, "worker_probed", 0);
  assert_int_equal(num(e, "worker"), w->worker);
  assert_true(json_is_true(json_object_get(e, "answers")));
  assert_false(w->parted);
}

static void expect_lost(fixture *f, fake *w) {
  json_t *e = event(f, "worker_probed", 0);
  assert_int_equal(num(e, "worker"), w->worker);
  assert_false(json_is_true(json_object_get(e, "answers")));
  assert_int_equal(num(event(f, "worker_lost", 0), "worker"), w->worker);
  assert_int_equal(num(event(f, "output_lost", 1), "worker"), w->worker); /* both maps */
  assert_int_equal(num(event(f, "outputs_rerun", 0), "tasks"), 2);
  for (size_t i = 0; i < 2; i++) { /* and made again by the other */
    e = event_for(f, "task_assigned", "output_lost", i);
    assert_int_equal(num(e, "stage"), 0);
    assert_int_equal(num(e, "attempt"), 2);
    assert_int_equal(num(e, "worker"), f->fakes[1].worker);
    say_done(&f->fakes[1], (br_attempt_id){.query = 42, .stage = 0, .task = (uint32_t)num(e, "task"), .attempt = 2});
  }
}

static void a_worker_that_is_silent_is_lost(void **state) {
  fixture *f = *state;
  expect_lost(f, cannot_reach(f, true, true));
}

static void a_worker_that_refuses_is_lost(void **state) {
  fixture *f = *state;
  expect_lost(f, cannot_reach(f, false, false));
}

static void a_worker_that_says_nothing_is_lost(void **state) {
  fixture *f = *state;
  fake *w = new_fake(f);
  br_driver_submit(f->driver, f->query);
  run_maps(w);
  assert_int_equal(num(event(f, "worker_lost", 0), "worker"), w->worker);
  assert_string_equal(str(event(f, "output_lost", 1), "why"), "its worker is lost");
  assert_int_equal(num(event(f, "outputs_rerun", 0), "tasks"), 2);
}

static void a_draining_worker_is_released(void **state) {
  fixture *f = *state;
  fake *w = new_fake(f), *other = new_fake(f);
  say(w, (saying){.draining = true});
  assert_int_equal(num(event(f, "worker_draining", 0), "worker"), w->worker);
  command(w, BRANT__PB__COMMAND__WHAT_RELEASE, 0);
  assert_int_equal(num(event(f, "worker_released", 0), "worker"), w->worker);
  say(w, (saying){.draining = true}); /* each report says it again */
  br_driver_submit(f->driver, f->query);
  command(other, RUN, 1);
  assert_int_equal(count_commands(w, RUN), 0);
  assert_int_equal(count_commands(w, BRANT__PB__COMMAND__WHAT_RELEASE), 1);
}

static void out_of_memory_runs_alone_then_in_passes(void **state) {
  fixture *f = *state;
  fake *w = new_fake(f);
  br_error why;
  br_driver_submit(f->driver, f->query);
  run_maps(w);
  br_fail(&why, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory");
  say_done(w, command(w, RUN, 3).id);
  say_failed(w, command(w, RUN, 2).id, &why);
  seen alone = command(w, RUN, 4);
  assert_int_equal(alone.id.attempt, 2);
  assert_true(alone.alone);
  assert_int_equal(alone.passes, 0);
  say_failed(w, alone.id, &why);
  seen passes = command(w, RUN, 5);
  assert_int_equal(passes.passes, 4);
  json_t *e = event(f, "task_assigned", 5);
  assert_int_equal(num(e, "passes"), 4);
  assert_string_equal(str(e, "why"), "failed");
}

/* All that could not be sent fail after one step, one after the other. */
static void many_messages_are_too_large(void **state) {
  enum { TASKS = 250 };
  fixture *f = *state;
  char *sql = br_malloc(BR_MESSAGE_MAX_BYTES + 1u);
  memset(sql, ' ', BR_MESSAGE_MAX_BYTES);
  sql[BR_MESSAGE_MAX_BYTES] = 0;
  br_query_unref(f->query);
  f->query = make_query(TASKS);
  f->query->prelude = br_calloc(1, sizeof *f->query->prelude);
  f->query->prelude[f->query->n_prelude++] = sql; /* the query's */
  f->slots = TASKS;
  new_fake(f);
  br_driver_submit(f->driver, f->query);
  assert_string_equal(str(event(f, "query_failed", 0), "code"), "UNSUPPORTED");
  event(f, "task_failed", TASKS - 1);
}

/* A connection closes, and in the same turn of the loop the session does. */
static void lose_and_end(void *arg) {
  fixture *f = arg;
  br_cluster_handlers h = br_driver_handlers(f->driver);
  for (uint32_t w = 1; w <= 2; w++) h.lost(h.arg, br_cluster_find(f->driver->cluster, w), false);
  br_driver_free(f->driver);
  f->driver = NULL;
}

static void a_loss_outlives_the_driver(void **state) {
  fixture *f = *state;
  new_fake(f);
  new_fake(f);
  on_loop(f, f->coord_loop, lose_and_end, f);
  br_loop_stop(f->coord_loop);
  pthread_join(f->coord_thread, NULL); /* it has run what was posted, or br_loop_free does */
  assert_int_equal(pthread_create(&f->coord_thread, NULL, loop_main, f->coord_loop), 0);
}

int main(void) {
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_fixture, close_fixture)
  const struct CMUnitTest tests[] = {
      TEST(a_life_without_losses),
      TEST(an_evicted_output_is_made_again),
      TEST(a_worker_that_answers_is_kept),
      TEST(a_worker_that_is_silent_is_lost),
      TEST(a_worker_that_refuses_is_lost),
      TEST(a_draining_worker_is_released),
      cmocka_unit_test_setup_teardown(a_worker_that_says_nothing_is_lost, open_impatient, close_fixture),
      TEST(out_of_memory_runs_alone_then_in_passes),
      TEST(many_messages_are_too_large),
      TEST(a_loss_outlives_the_driver)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
