/* SPDX-License-Identifier: Apache-2.0
 *
 * The Flight client: one connection, made when the first call needs it, and the calls on it.
 *
 * Order of calls: new; get and action any time; each call ends by `end` or cancel; free. A call made while the connection
 * is being made, or while a lost one reports its end, waits in the list for the next connection. `refs` keep a stream or
 * the client alive while a callback runs that may cancel or free it. Threads: the loop's. Bounds: connect_ms until the
 * peer speaks HTTP/2; a stream holds at most about window_bytes of unconsumed messages, or one message if that is larger.
 */
#include "flight/message.h"

#include "base/mem.h"
#include "net/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CONNECT_MS 5000
#define DEFAULT_WINDOW_BYTES (4u << 20)
#define LEAST_WINDOW_BYTES (64u << 10)
#define MOST_WINDOW_BYTES (1u << 30)
#define IDLE_TRIM_MS 1000 /* without a stream: memory kept for bodies is given back */
#define RESULT_FRAME_BYTES (1u << 20)
#define RESULT_BYTES (64u << 20) /* of one Result of an action */
#define RESET_CANCEL 8           /* HTTP/2 error codes */
#define RESET_PROTOCOL 1

struct br_flight_stream {
  br_flight_client *client;
  br_h2_stream *h2; /* NULL: waits for a connection, or ended */
  br_flight_stream *prev, *next;
  uint32_t refs;
  uint64_t generation; /* of the connection attempt it waits for or uses */
  br_flight_sink sink;
  bool is_get, ended, doomed;
  const char *path;
  br_buf request;
  br_grpc_reply reply;
  br_flight_rx flight;
  br_grpc_rx result;
  uint64_t window_bytes;
  uint64_t held_bytes;    /* delivered to the sink, not consumed */
  uint64_t partial_bytes; /* of the message that is arriving */
  uint64_t owed_bytes;    /* received, credit not given back */
};

struct br_flight_client {
  br_loop *loop;
  br_address address;
  char *authorization;
  char authority[BR_ADDRESS_BYTES];
  uint32_t connect_ms, window_bytes, refs;
  bool freed;
  uint64_t generation, started_ms;
  br_connect *connecting;
  br_h2 *h2;
  br_timer *doom, *idle;
  br_flight_stream *first, *last;
  void (*on_close)(void *arg, const br_error *why);
  void *on_close_arg;
};

static void client_unref(br_flight_client *c) {
  if (--c->refs) return;
  free(c->authorization);
  free(c);
}

/* ---- streams */

static void stream_unref(br_flight_stream *s) {
  if (--s->refs) return;
  br_buf_free(&s->request);
  br_grpc_reply_free(&s->reply);
  br_flight_rx_free(&s->flight);
  br_grpc_rx_free(&s->result);
  free(s);
}

static void on_idle(void *arg) {
  br_flight_client *c = arg;
  br_timer_stop(c->idle);
  c->idle = NULL;
  if (!c->first) br_flight_body_trim();
}

static void unlink_stream(br_flight_stream *s) {
  br_flight_client *c = s->client;
  if (s->prev)
    s->prev->next = s->next;
  else
    c->first = s->next;
  if (s->next)
    s->next->prev = s->prev;
  else
    c->last = s->prev;
  s->prev = s->next = NULL;
  if (!c->first && !c->idle && !c->freed) c->idle = br_timer_start(c->loop, IDLE_TRIM_MS, 0, on_idle, c);
}

/* The last callback of a stream whose HTTP/2 stream is gone. */
static void end_stream(br_flight_stream *s, const br_error *err) {
  if (s->ended) return;
  s->ended = true;
  s->h2 = NULL;
  unlink_stream(s);
  if (s->sink.end) s->sink.end(s->sink.arg, err);
  stream_unref(s);
}

static void fail_stream(br_flight_stream *s, const br_error *err) {
  if (s->h2) br_h2_reset(s->h2, RESET_PROTOCOL);
  end_stream(s, err);
}

/* Credit: what the sink holds counts against the window, what is arriving does too unless the sink keeps up (it holds less
 * than half) or the message could not become whole otherwise. */
static void give_credit(br_flight_stream *s) {
  if (!s->h2) return;
  uint64_t w = s->window_bytes, held = s->held_bytes, keep = held + s->partial_bytes;
  if (held < w / 2)
    keep = held;
  else if (held < w && held + s->flight.message_bytes > w / 4 * 3)
    keep = keep < w / 4 * 3 ? keep : w / 4 * 3;
  if (s->owed_bytes <= keep) return;
  br_h2_consume(s->h2, s->owed_bytes - keep);
  s->owed_bytes = keep;
}

static br_status receive_data(br_flight_stream *s, const uint8_t *p, size_t n, br_error *err) {
  br_flight_rx *r = &s->flight;
  while (n && !s->ended) {
    size_t used;
    bool whole;
    BR_TRY(br_flight_rx_feed(r, p, n, &used, &whole, err));
    p += used, n -= used;
    s->partial_bytes += used;
    if (!whole) continue;
    void *body = r->body;
    r->body = NULL;
    s->partial_bytes = 0;
    s->held_bytes += r->head.len + r->body_bytes;
    s->sink.data(s->sink.arg, r->head.data, r->head.len, r->app.data, r->app.len, body, r->body_bytes);
  }
  return BR_OK;
}

static br_status receive_result(br_flight_stream *s, const uint8_t *p, size_t n, br_error *err) {
  while (n && !s->ended) {
    size_t used, bytes;
    bool whole;
    const void *body;
    BR_TRY(br_grpc_rx_feed(&s->result, p, n, &used, &whole, err));
    p += used, n -= used;
    if (!whole) continue;
    BR_TRY(br_flight_parse_bytes1(s->result.message.data, s->result.message.len, &body, &bytes, err));
    if (s->sink.result) s->sink.result(s->sink.arg, body, bytes);
  }
  return BR_OK;
}

static void on_data(void *user, const void *p, size_t n) {
  br_flight_stream *s = user;
  br_error err = {0};
  s->refs++; /* the sink may cancel it, or free the client */
  s->owed_bytes += n;
  br_status status = s->is_get ? receive_data(s, p, n, &err) : receive_result(s, p, n, &err);
  if (status != BR_OK && !s->ended) {
    br_error_context(&err, "%s", s->client->address.text);
    fail_stream(s, &err);
  }
  if (!s->ended) give_credit(s);
  stream_unref(s);
}

static void *on_target(void *user, size_t *room) {
  br_flight_stream *s = user;
  return s->is_get ? br_flight_rx_target(&s->flight, room) : NULL;
}

static void on_header(void *user, const char *name, size_t nn, const char *v, size_t vn) {
  br_flight_stream *s = user;
  br_grpc_reply_header(&s->reply, name, nn, v, vn);
}

static bool cut_short(const br_flight_stream *s) {
  return s->is_get ? s->flight.in_message || s->flight.prefix_got : s->result.prefix_got != 0;
}

static void on_stream_closed(void *user, const br_error *why) {
  br_flight_stream *s = user;
  br_error err = {0};
  if (s->reply.has_status || why->code == BR_OK)
    br_grpc_reply_error(&s->reply, s->client->address.text, &err);
  else
    err = *why;
  if (err.code == BR_OK && cut_short(s))
    br_fail(&err, BR_CORRUPT, BR_BLAME_FETCH, "%s ended a stream inside of a message", s->client->address.text);
  end_stream(s, &err);
}

static void on_nothing(void *user) { (void)user; }

/* ---- the connection */

static void connect_now(br_flight_client *c);

/* False: this connection takes no more streams. */
static bool open_stream(br_flight_stream *s) {
  br_flight_client *c = s->client;
  br_h2_header h[] = {{":method", "POST"},
                      {":scheme", "http"},
                      {":path", s->path},
                      {":authority", c->authority},
                      {"content-type", "application/grpc"},
                      {"te", "trailers"},
                      {"user-agent", "brant"},
                      {"authorization", c->authorization}};
  s->h2 = br_h2_request(c->h2, h, c->authorization ? 8 : 7, s);
  if (!s->h2) return false;
  br_h2_send(s->h2, s->request.data, s->request.len, NULL, 0, NULL, NULL);
  br_h2_finish(s->h2, NULL, 0);
  br_buf_free(&s->request);
  return true;
}

/* Ends the streams up to a generation: later ones were made by the `end` callbacks and wait for the next connection. */
static void end_generation(br_flight_client *c, uint64_t generation, const br_error *why) {
  while (c->first && c->first->generation <= generation) end_stream(c->first, why);
}

static void after_connection(br_flight_client *c, uint64_t generation, const br_error *why) {
  c->refs++;
  end_generation(c, generation, why);
  if (!c->freed && c->on_close) c->on_close(c->on_close_arg, why);
  if (!c->freed && c->first && !c->h2 && !c->connecting) connect_now(c);
  client_unref(c);
}

static void on_gone(void *arg, const br_error *why) {
  br_flight_client *c = arg;
  c->h2 = NULL;
  after_connection(c, c->generation++, why);
}

static void doom(void *arg) {
  br_flight_client *c = arg;
  br_error err = {0};
  br_timer_stop(c->doom);
  c->doom = NULL;
  br_fail(&err, BR_NETWORK, BR_BLAME_FETCH, "%s is closing its connection and takes no more calls", c->address.text);
  err.retryable = true;
  c->refs++;
  for (br_flight_stream *s = c->first; s;) {
    if (s->doomed) {
      end_stream(s, &err);
      s = c->first; /* the callback may have changed the list */
    } else {
      s = s->next;
    }
  }
  client_unref(c);
}

static void open_or_doom(br_flight_stream *s) {
  br_flight_client *c = s->client;
  if (open_stream(s)) return;
  if (br_h2_ending(c->h2)) { /* it waits for the next connection */
    s->generation = c->generation + 1;
    return;
  }
  s->doomed = true;
  if (!c->doom) c->doom = br_timer_start(c->loop, 0, 0, doom, c);
}

static void on_connected(void *arg, int fd, const br_error *why) {
  br_flight_client *c = arg;
  br_error err = *why;
  c->connecting = NULL;
  if (fd >= 0) {
    uint64_t took = uv_now(br_loop_uv(c->loop)) - c->started_ms;
    br_h2_options o = {.is_unix = c->address.is_unix,
                       .peer = c->address.text,
                       .window_bytes = c->window_bytes,
                       .max_frame_bytes = RESULT_FRAME_BYTES,
                       .ready_ms = took < c->connect_ms ? c->connect_ms - (uint32_t)took : 1};
    br_h2_handler h = {.arg = c,
                       .header = on_header,
                       .headers_done = on_nothing,
                       .data = on_data,
                       .target = on_target,
                       .peer_ended = on_nothing,
                       .pull = on_nothing,
                       .closed = on_stream_closed,
                       .ready = on_nothing,
                       .gone = on_gone};
    if (br_h2_new(c->loop, fd, &o, &h, &c->h2, &err) == BR_OK) {
      for (br_flight_stream *s = c->first; s; s = s->next) open_or_doom(s);
      return;
    }
  }
  after_connection(c, c->generation++, &err);
}

static void connect_now(br_flight_client *c) {
  uv_update_time(br_loop_uv(c->loop));
  c->started_ms = uv_now(br_loop_uv(c->loop));
  c->connecting = br_connect_start(c->loop, &c->address, c->connect_ms, on_connected, c);
}

/* ---- what callers use */

br_status br_flight_client_new(br_loop *l, const char *uri, const br_flight_client_options *o, br_flight_client **out,
                               br_error *err) {
  br_address a;
  BR_TRY(br_address_parse(uri, &a, err));
  if (o && o->bearer) BR_TRY(br_flight_check_token(o->bearer, err));
  br_flight_client *c = br_calloc(1, sizeof *c);
  c->loop = l, c->address = a, c->refs = 1;
  snprintf(c->authority, sizeof c->authority, "%s", a.is_unix ? "localhost" : a.text);
  c->connect_ms = o && o->connect_ms ? o->connect_ms : DEFAULT_CONNECT_MS;
  c->window_bytes = o && o->window_bytes ? o->window_bytes : DEFAULT_WINDOW_BYTES;
  if (c->window_bytes < LEAST_WINDOW_BYTES) c->window_bytes = LEAST_WINDOW_BYTES;
  if (c->window_bytes > MOST_WINDOW_BYTES) c->window_bytes = MOST_WINDOW_BYTES;
  if (o && o->bearer) c->authorization = br_asprintf("Bearer %s", o->bearer);
  *out = c;
  return BR_OK;
}

void br_flight_client_free(br_flight_client *c) {
  if (!c || c->freed) return;
  br_error err = {0};
  br_fail(&err, BR_CANCELLED, BR_BLAME_NONE, "the connection with %s was closed on this side", c->address.text);
  c->freed = true;
  br_connect_cancel(c->connecting);
  br_timer_stop(c->doom);
  br_timer_stop(c->idle);
  c->connecting = NULL;
  c->doom = c->idle = NULL;
  if (c->h2) br_h2_close(c->h2); /* silent: its streams are ended here */
  c->h2 = NULL;
  for (br_flight_stream *s = c->first; s; s = s->next) s->h2 = NULL;
  while (c->first) end_stream(c->first, &err);
  br_flight_body_trim();
  client_unref(c);
}

void br_flight_client_on_close(br_flight_client *c, void (*fn)(void *arg, const br_error *why), void *arg) {
  c->on_close = fn;
  c->on_close_arg = arg;
}

static br_flight_stream *start(br_flight_client *c, br_flight_stream *s, const br_buf *message) {
  uint8_t prefix[BR_GRPC_PREFIX_BYTES];
  br_grpc_prefix(prefix, (uint32_t)message->len);
  br_buf_add(&s->request, prefix, sizeof prefix);
  br_buf_add(&s->request, message->data, message->len);
  s->client = c;
  s->refs = 1;
  s->generation = c->generation;
  s->window_bytes = c->window_bytes;
  s->prev = c->last;
  if (s->prev)
    s->prev->next = s;
  else
    c->first = s;
  c->last = s;
  if (c->h2)
    open_or_doom(s);
  else if (!c->connecting && !c->freed)
    connect_now(c);
  return s;
}

br_flight_stream *br_flight_get(br_flight_client *c, const void *ticket, size_t n, br_flight_sink sink) {
  br_flight_stream *s = br_calloc(1, sizeof *s);
  br_buf m = {0};
  br_pbw_bytes(&m, 1, ticket, n);
  s->is_get = true;
  s->path = "/arrow.flight.protocol.FlightService/DoGet";
  s->sink = sink;
  start(c, s, &m);
  br_buf_free(&m);
  return s;
}

br_flight_stream *br_flight_action(br_flight_client *c, const char *type, const void *body, size_t n,
                                   br_flight_sink sink) {
  br_flight_stream *s = br_calloc(1, sizeof *s);
  br_buf m = {0};
  br_pbw_bytes(&m, 1, type, strlen(type));
  br_pbw_bytes(&m, 2, body, n);
  s->path = "/arrow.flight.protocol.FlightService/DoAction";
  s->sink = sink;
  s->result.max_bytes = RESULT_BYTES;
  start(c, s, &m);
  br_buf_free(&m);
  return s;
}

void br_flight_stream_cancel(br_flight_stream *s) {
  if (!s || s->ended) return;
  s->ended = true;
  if (s->h2) br_h2_reset(s->h2, RESET_CANCEL);
  s->h2 = NULL;
  unlink_stream(s);
  stream_unref(s);
}

void br_flight_stream_consume(br_flight_stream *s, size_t bytes) {
  if (s->ended) return;
  s->held_bytes -= bytes < s->held_bytes ? bytes : s->held_bytes;
  give_credit(s);
}
