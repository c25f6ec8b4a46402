/* SPDX-License-Identifier: Apache-2.0
 * For the tests of flight/: loops on threads of their own, waiting on conditions with a bound, a server whose tickets say
 * what it should do, and a reader that checks what it got. Everything that two threads touch is under `lock`. */
#ifndef BRANT_TESTS_FLIGHT_SUPPORT_H
#define BRANT_TESTS_FLIGHT_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "flight/flight.h"

#define WAIT_S 60
#define UNUSED __attribute__((unused))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void lock_on(void) { pthread_mutex_lock(&lock); }
static void lock_off(void) {
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
/* Wait until expr (read under the lock) holds; fails the test after WAIT_S. */
#define WAIT_FOR(expr)                                                              \
  do {                                                                              \
    struct timespec end_;                                                           \
    clock_gettime(CLOCK_REALTIME, &end_);                                           \
    end_.tv_sec += WAIT_S;                                                          \
    pthread_mutex_lock(&lock);                                                      \
    int r_ = 0;                                                                     \
    while (!(expr) && r_ == 0) r_ = pthread_cond_timedwait(&changed, &lock, &end_); \
    bool ok_ = (expr);                                                              \
    pthread_mutex_unlock(&lock);                                                    \
    if (!ok_) fail_msg("waited %d s for: %s", WAIT_S, #expr);                       \
  } while (0)

/* ---- a loop on its thread */
typedef struct looper {
  br_loop *l;
  pthread_t thread;
} looper;

static void *looper_main(void *arg) {
  looper *p = arg;
  br_loop_run(p->l);
  return NULL;
}
static void looper_start(looper *p) {
  br_error err = {0};
  assert_int_equal(br_loop_new(&p->l, &err), BR_OK);
  assert_int_equal(pthread_create(&p->thread, NULL, looper_main, p), 0);
}
static void looper_stop(looper *p) {
  br_loop_stop(p->l);
  pthread_join(p->thread, NULL);
  br_loop_free(p->l);
}
typedef struct looper_job {
  void (*fn)(void *arg);
  void *arg;
  bool done;
} looper_job;
static void looper_run_job(void *arg) {
  looper_job *j = arg;
  j->fn(j->arg);
  lock_on();
  j->done = true;
  lock_off();
}
/* Run fn(arg) on the loop's thread and wait for it. */
static void looper_call(looper *p, void (*fn)(void *arg), void *arg) {
  looper_job j = {fn, arg, false};
  br_loop_post(p->l, looper_run_job, &j);
  WAIT_FOR(j.done);
}

/* ---- content: message i of a stream has size_of(i) bytes that depend on i and the position */
static size_t size_of(uint64_t i) {
  static const size_t sizes[] = {0, 1, 7, 64, 2047, 2049, 65536, 100003, 1 << 20, 8 << 20, 3, 0, 4096};
  return sizes[i % (sizeof sizes / sizeof *sizes)];
}
static uint64_t word_of(uint64_t i, size_t k) { return (i + 1) * 0x9e3779b97f4a7c15ull + k * 0x2545f4914f6cdd1dull; }
static void fill(uint64_t i, uint8_t *p, size_t n) {
  size_t k = 0;
  for (; k + 8 <= n; k += 8) {
    uint64_t w = word_of(i, k);
    memcpy(p + k, &w, 8);
  }
  for (; k < n; k++) p[k] = (uint8_t)(word_of(i, k) >> 56);
}
static bool matches(uint64_t i, const uint8_t *p, size_t n) {
  size_t k = 0;
  for (; k + 8 <= n; k += 8) {
    uint64_t w = word_of(i, k);
    if (memcmp(p + k, &w, 8) != 0) return false;
  }
  for (; k < n; k++)
    if (p[k] != (uint8_t)(word_of(i, k) >> 56)) return false;
  return true;
}

/* ---- the server */
typedef struct world world;
typedef struct source {
  world *w;
  br_flight_call *call;
  uint64_t at, count;
  size_t each; /* bytes a message; 0: size_of */
  bool waits, errs, copied;
  char head[64];
  uint64_t app; /* valid until the next call, as head is */
} source;
struct world {
  looper server_loop, client_loop;
  br_flight_server *server;
  br_flight_client *client;
  br_flight_server_options server_options;
  br_flight_client_options client_options;
  int port;
  char uri[200];
  /* under lock */
  uint64_t sources_made, sources_freed, bodies_made, bodies_released, produced_bytes, calls_opened, calls_closed;
  uint64_t allowed; /* messages that waiting sources may give */
  uint64_t connections_closed;
  br_error close_why;
  br_flight_call *held; /* of action "hold"; NULL when closed */
  source *waiting;
};

static void release_body(void *owner) {
  world *w = ((world **)owner)[0];
  lock_on();
  w->bodies_released++;
  lock_off();
  free(owner);
}

static void whole_error(br_error *err) {
  br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "checksum of partition 7 is wrong: 100%% w\xc3\xb6rse\nsecond line");
  err->retryable = true;
  err->has_attempt = err->has_lost = true;
  err->attempt = (br_attempt_id){0x1234567890abcdefull, 3, 4, 5};
  err->lost = (br_map_output_id){{77, 8, 9, 1}, 12, 13};
  err->worker = 12;
  err->sys_errno = 5;
  err->duckdb_type = 26;
}

static br_pull source_next(void *arg, br_flight_data *out, br_error *err) {
  source *s = arg;
  world *w = s->w;
  if (s->errs && s->at == s->count) {
    whole_error(err);
    return BR_PULL_ERROR;
  }
  if (s->at == s->count) return BR_PULL_END;
  lock_on();
  bool wait = s->waits && s->at >= w->allowed;
  if (wait) w->waiting = s;
  lock_off();
  if (wait) return BR_PULL_WAIT;
  size_t n = s->each ? s->each : size_of(s->at);
  snprintf(s->head, sizeof s->head, "head %llu", (unsigned long long)s->at);
  out->head = s->head;
  out->head_bytes = strlen(s->head);
  s->app = s->at;
  out->app = &s->app;
  out->app_bytes = s->at % 3 ? sizeof s->app : 0;
  uint8_t *p = br_malloc(64 + n);
  memcpy(p, &w, sizeof w);
  fill(s->at, p + 64, n);
  out->body = (br_span){p + 64, n, release_body, p};
  s->at++;
  lock_on();
  w->bodies_made++;
  w->produced_bytes += n;
  lock_off();
  return BR_PULL_DATA;
}

static void source_free(void *arg) {
  source *s = arg;
  lock_on();
  s->w->sources_freed++;
  if (s->w->waiting == s) s->w->waiting = NULL;
  lock_off();
  free(s);
}

/* Tickets: "<kind> <count> <bytes each>"; kinds: data, wait, error, refuse. */
static br_status on_get(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                        br_error *err) {
  world *w = arg;
  char text[100] = "", kind[20] = "";
  unsigned long long count = 0, each = 0;
  memcpy(text, ticket, n < 99 ? n : 99);
  sscanf(text, "%19s %llu %llu", kind, &count, &each);
  if (strcmp(kind, "refuse") == 0) {
    whole_error(err);
    return err->code;
  }
  source *s = br_calloc(1, sizeof *s);
  *s = (source){.w = w, .call = call, .count = count, .each = each};
  s->waits = strcmp(kind, "wait") == 0;
  s->errs = strcmp(kind, "error") == 0;
  *src = (br_flight_source){source_next, source_free, s};
  lock_on();
  w->sources_made++;
  lock_off();
  return BR_OK;
}

static br_status on_action(void *arg, br_flight_call *call, const char *type, const void *body, size_t n,
                           br_error *err) {
  world *w = arg;
  if (strcmp(type, "unknown") == 0) return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "no action '%s'", type);
  lock_on();
  w->calls_opened++;
  if (strcmp(type, "hold") == 0) w->held = call;
  lock_off();
  if (strcmp(type, "echo") == 0) {
    br_flight_call_result(call, body, n);
    br_flight_call_end(call, NULL);
  } else if (strcmp(type, "half") == 0) { /* a result, then an error */
    br_flight_call_result(call, body, n);
    br_error e = {0};
    whole_error(&e);
    br_flight_call_end(call, &e);
  }
  return BR_OK;
}

static void on_call_closed(void *arg, br_flight_call *call) {
  world *w = arg;
  lock_on();
  w->calls_closed++;
  if (w->held == call) w->held = NULL;
  lock_off();
}

/* ---- the client */
typedef struct reader {
  world *w;
  bool slow, cancel_in_data, check; /* slow: doesn't consume by itself */
  uint64_t cancel_at;
  br_flight_stream *stream;
  /* under lock */
  uint64_t messages, bytes, results, bad;
  char last_result[64];
  int ends;
  br_error err;
} reader;

static void reader_data(void *arg, const void *head, size_t head_bytes, const void *app, size_t app_bytes, void *body,
                        size_t body_bytes) {
  reader *r = arg;
  char want[64];
  uint64_t i = r->messages, got = 0; /* written by this thread only */
  int n = snprintf(want, sizeof want, "head %llu", (unsigned long long)i);
  bool ok = head_bytes == (size_t)n && memcmp(head, want, head_bytes) == 0;
  if (app_bytes == sizeof got) memcpy(&got, app, sizeof got);
  ok = ok && (i % 3 ? app_bytes == sizeof got && got == i : app_bytes == 0);
  ok = ok && (body_bytes == 0 ? body == NULL : (uintptr_t)body % 64 == 0);
  if (r->check) ok = ok && body_bytes == size_of(i) && matches(i, body, body_bytes);
  br_flight_body_free(body);
  lock_on();
  r->messages++;
  r->bytes += body_bytes;
  r->bad += !ok;
  bool cancel = r->cancel_at && r->messages == r->cancel_at;
  lock_off();
  if (cancel)
    br_flight_stream_cancel(r->stream);
  else if (!r->slow)
    br_flight_stream_consume(r->stream, head_bytes + body_bytes);
}

static void reader_result(void *arg, const void *body, size_t n) {
  reader *r = arg;
  lock_on();
  r->results++;
  r->bytes += n;
  snprintf(r->last_result, sizeof r->last_result, "%.*s", (int)(n < 60 ? n : 60), (const char *)body);
  lock_off();
}

static void reader_end(void *arg, const br_error *err) {
  reader *r = arg;
  lock_on();
  r->ends++;
  r->err = *err;
  lock_off();
}

static br_flight_sink sink_of(reader *r) { return (br_flight_sink){r, reader_data, reader_result, reader_end}; }

typedef struct start_args {
  world *w;
  reader *r;
  const char *ticket, *action;
  const void *body;
  size_t n;
} start_args;
static void start_on_loop(void *arg) {
  start_args *a = arg;
  a->r->w = a->w;
  if (a->ticket)
    a->r->stream = br_flight_get(a->w->client, a->ticket, strlen(a->ticket), sink_of(a->r));
  else
    a->r->stream = br_flight_action(a->w->client, a->action, a->body, a->n, sink_of(a->r));
}
UNUSED static void get(world *w, reader *r, const char *ticket) {
  start_args a = {.w = w, .r = r, .ticket = ticket};
  looper_call(&w->client_loop, start_on_loop, &a);
}
UNUSED static void action(world *w, reader *r, const char *type, const void *body, size_t n) {
  start_args a = {.w = w, .r = r, .action = type, .body = body, .n = n};
  looper_call(&w->client_loop, start_on_loop, &a);
}
static void cancel_on_loop(void *arg) { br_flight_stream_cancel(((reader *)arg)->stream); }
UNUSED static void cancel(reader *r) { looper_call(&r->w->client_loop, cancel_on_loop, r); }
static void consume_on_loop(void *arg) {
  reader *r = arg;
  lock_on();
  bool ended = r->ends > 0; /* then the stream is gone */
  lock_off();
  if (!ended) br_flight_stream_consume(r->stream, SIZE_MAX);
}
UNUSED static void consume_all(reader *r) { looper_call(&r->w->client_loop, consume_on_loop, r); }

/* ---- both */
static void on_client_closed(void *arg, const br_error *why) {
  world *w = arg;
  lock_on();
  w->connections_closed++;
  w->close_why = *why;
  lock_off();
}
static const char *const actions[] = {"echo", "the body back", "hold", "answered later", NULL};
static void start_server(void *arg) {
  world *w = arg;
  br_error err = {0};
  br_flight_handlers h = {
      .arg = w, .do_get = on_get, .do_action = on_action, .call_closed = on_call_closed, .actions = actions};
  if (br_flight_server_new(w->server_loop.l, &w->server_options, &h, &w->server, &err) != BR_OK) {
    fprintf(stderr, "%s\n", err.message);
    abort();
  }
  w->port = br_flight_server_port(w->server);
}
static void stop_server(void *arg) {
  world *w = arg;
  br_flight_server_free(w->server);
  w->server = NULL;
}
static void start_client(void *arg) {
  world *w = arg;
  br_error err = {0};
  if (br_flight_client_new(w->client_loop.l, w->uri, &w->client_options, &w->client, &err) != BR_OK) {
    fprintf(stderr, "%s\n", err.message);
    abort();
  }
  br_flight_client_on_close(w->client, on_client_closed, w);
}
static void stop_client(void *arg) {
  world *w = arg;
  br_flight_client_free(w->client);
  w->client = NULL;
}
/* Options may be set before. on_unix: a socket in the working directory. */
static void world_start(world *w, bool on_unix) {
  looper_start(&w->server_loop);
  looper_start(&w->client_loop);
  static char path[100];
  snprintf(path, sizeof path, "/tmp/brant-flight-test-%d.sock", (int)getpid());
  if (on_unix)
    w->server_options.unix_path = path;
  else
    w->server_options.host = "127.0.0.1";
  looper_call(&w->server_loop, start_server, w);
  if (on_unix)
    snprintf(w->uri, sizeof w->uri, "unix:%s", path);
  else
    snprintf(w->uri, sizeof w->uri, "tcp://127.0.0.1:%d", w->port);
  looper_call(&w->client_loop, start_client, w);
}
/* Every source was freed, every body released, every call closed. */
static void world_stop(world *w) {
  if (w->client) looper_call(&w->client_loop, stop_client, w);
  if (w->server) looper_call(&w->server_loop, stop_server, w);
  looper_stop(&w->client_loop);
  looper_stop(&w->server_loop);
  assert_int_equal(w->sources_made, w->sources_freed);
  assert_int_equal(w->bodies_made, w->bodies_released);
  assert_int_equal(w->calls_opened, w->calls_closed);
}

#endif
