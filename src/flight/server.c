/* SPDX-License-Identifier: Apache-2.0
 *
 * The Flight server: listens, and turns HTTP/2 requests into calls of the handlers.
 *
 * Order of calls: new; handlers are called as requests come; free. A call lives from its request until its stream is gone;
 * `refs` keeps its memory while a handler runs that may end it, or free the server. Threads: the loop's. Bounds:
 * max_connections, BR_H2_MAX_STREAMS calls a connection, REQUEST_BUDGET_MESSAGES messages of requests a connection;
 * results that a handler queues are bounded by the handler (br_flight_call_queued_bytes).
 */
#include "flight/message.h"

#include "base/mem.h"
#include "base/util.h"
#include "net/socket.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SERVICE "/arrow.flight.protocol.FlightService/"
#define DEFAULT_REQUEST_BYTES (16u << 20)
#define DEFAULT_HANDSHAKE_MS 10000
#define DEFAULT_CONNECTIONS 1024
#define REQUEST_WINDOW_BYTES (1u << 20)
#define REQUEST_FRAME_BYTES (16u << 10)
#define REQUEST_BUDGET_MESSAGES 2 /* of the largest size, received and not handled yet, a connection */
#define PULL_BYTES (64u << 10)    /* small messages are pulled until a frame is worth it */
#define PATH_BYTES 128
#define AUTHORIZATION_BYTES (BR_FLIGHT_TOKEN_BYTES + 16)

typedef struct flight_conn flight_conn;

struct br_flight_call {
  flight_conn *conn;
  br_h2_stream *stream; /* NULL: gone */
  br_flight_call *prev, *next;
  uint32_t refs;
  char path[PATH_BYTES], authorization[AUTHORIZATION_BYTES];
  bool post, grpc, checked, refused, dispatched, responded, ended;
  bool accepted; /* by do_action: call_closed is owed */
  bool has_source;
  br_flight_source source;
  br_grpc_rx rx;
  uint64_t counted_bytes; /* of the connection's request budget */
};

struct flight_conn {
  br_flight_server *server;
  br_h2 *h2;
  flight_conn *prev, *next;
  br_flight_call *calls;
  uint64_t request_bytes;
  char peer[80];
};

struct br_flight_server {
  br_loop *loop;
  br_flight_handlers h;
  br_listener *tcp, *local;
  int port;
  char *unix_path, *bearer;
  uint64_t max_message_bytes;
  uint32_t handshake_ms, max_connections, connections;
  flight_conn *conns;
};

static const br_h2_header RESPONSE[] = {{":status", "200"}, {"content-type", "application/grpc"}};

/* ---- life of a call */

static void unref(br_flight_call *c) {
  if (--c->refs) return;
  br_grpc_rx_free(&c->rx);
  free(c);
}

static void end_source(br_flight_call *c) {
  if (!c->has_source) return;
  c->has_source = false;
  if (c->source.free) c->source.free(c->source.arg);
}

static void request_done(br_flight_call *c) {
  c->conn->request_bytes -= c->counted_bytes;
  c->counted_bytes = 0;
  br_grpc_rx_free(&c->rx);
}

/* The stream is gone: the handlers forget the call. */
static void end_call(br_flight_call *c) {
  const br_flight_handlers *h = &c->conn->server->h;
  c->stream = NULL;
  c->ended = true;
  request_done(c);
  if (c->next) c->next->prev = c->prev;
  if (c->prev)
    c->prev->next = c->next;
  else
    c->conn->calls = c->next;
  end_source(c);
  bool accepted = c->accepted;
  c->accepted = false;
  if (accepted && h->call_closed) h->call_closed(h->arg, c);
  unref(c);
}

static void respond(br_flight_call *c) {
  if (c->responded) return;
  c->responded = true;
  br_h2_respond(c->stream, RESPONSE, 2, false);
}

/* The last word: trailers, behind what is queued. status_or_0 overrides the status of err's code. */
static void finish(br_flight_call *c, const br_error *err, int status_or_0) {
  if (c->ended || !c->stream) return;
  c->ended = true;
  br_grpc_trailers t;
  br_grpc_trailers_init(&t, err, status_or_0);
  if (c->responded) {
    br_h2_finish(c->stream, t.headers, t.n);
  } else { /* nothing was sent: trailers only */
    br_h2_header all[5] = {RESPONSE[0], RESPONSE[1]};
    memcpy(all + 2, t.headers, t.n * sizeof *t.headers);
    c->responded = true;
    br_h2_respond(c->stream, all, 2 + t.n, true);
  }
  br_grpc_trailers_free(&t);
}

static void send_message(br_flight_call *c, const void *p, size_t n) {
  if (c->ended || !c->stream) return;
  respond(c);
  uint8_t prefix[BR_GRPC_PREFIX_BYTES];
  br_grpc_prefix(prefix, (uint32_t)n);
  br_h2_send(c->stream, prefix, sizeof prefix, p, n, NULL, NULL);
}

/* ---- methods */

static br_status unsupported(br_error *err, const char *method) {
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "this server does not offer the Flight method %s", method);
}

static br_status do_get(br_flight_call *c, br_error *err) {
  const br_flight_handlers *h = &c->conn->server->h;
  const void *ticket;
  size_t n;
  if (!h->do_get) return unsupported(err, "DoGet");
  BR_TRY(br_flight_parse_bytes1(c->rx.message.data, c->rx.message.len, &ticket, &n, err));
  br_flight_source source = {0};
  BR_TRY(h->do_get(h->arg, c, ticket, n, &source, err));
  if (!c->stream) { /* the handler freed the server */
    if (source.free) source.free(source.arg);
    return BR_OK;
  }
  c->source = source;
  c->has_source = true;
  respond(c);
  return BR_OK;
}

static br_status do_action(br_flight_call *c, br_error *err) {
  const br_flight_handlers *h = &c->conn->server->h;
  const void *body;
  char *type = NULL;
  size_t n;
  if (!h->do_action) return unsupported(err, "DoAction");
  BR_TRY(br_flight_parse_action(c->rx.message.data, c->rx.message.len, &type, &body, &n, err));
  c->accepted = true; /* so that call_closed comes even when the handler frees the server */
  br_status status = h->do_action(h->arg, c, type, body, n, err);
  free(type);
  if (status != BR_OK)
    c->accepted = false;
  else if (c->stream)
    respond(c);
  return status;
}

static void emit_info(void *ctx, const void *p, size_t n) { send_message(ctx, p, n); }

static br_status list_flights(br_flight_call *c, br_error *err) {
  const br_flight_handlers *h = &c->conn->server->h;
  if (!h->list_flights) return unsupported(err, "ListFlights");
  BR_TRY(h->list_flights(h->arg, emit_info, c, err));
  if (c->stream) respond(c);
  finish(c, NULL, 0);
  return BR_OK;
}

static br_status list_actions(br_flight_call *c, br_error *err) {
  (void)err;
  respond(c);
  for (const char *const *a = c->conn->server->h.actions; a && a[0] && a[1]; a += 2) {
    br_buf b = {0};
    br_pbw_bytes(&b, 1, a[0], strlen(a[0]));
    br_pbw_bytes(&b, 2, a[1], strlen(a[1]));
    send_message(c, b.data, b.len);
    br_buf_free(&b);
  }
  finish(c, NULL, 0);
  return BR_OK;
}

static br_status flight_info(br_flight_call *c, bool schema_only, br_error *err) {
  const br_flight_handlers *h = &c->conn->server->h;
  br_buf info = {0}, answer = {0};
  br_status status = BR_OK;
  if (!h->get_flight_info) return unsupported(err, schema_only ? "GetSchema" : "GetFlightInfo");
  BR_TRY_GOTO(h->get_flight_info(h->arg, c->rx.message.data, c->rx.message.len, &info, err));
  if (schema_only) { /* SchemaResult.schema is FlightInfo.schema */
    const void *schema;
    size_t n;
    BR_TRY_GOTO(br_flight_parse_bytes1(info.data, info.len, &schema, &n, err));
    br_pbw_bytes(&answer, 1, schema, n);
  }
  br_buf *b = schema_only ? &answer : &info;
  send_message(c, b->data, b->len);
  finish(c, NULL, 0);
done:
  br_buf_free(&info);
  br_buf_free(&answer);
  return status;
}

static br_status dispatch(br_flight_call *c, br_error *err) {
  const char *m = strncmp(c->path, SERVICE, strlen(SERVICE)) == 0 ? c->path + strlen(SERVICE) : c->path;
  if (c->rx.messages != 1)
    return br_fail(err, BR_INVALID, BR_BLAME_FETCH, "a request of %s has %u messages instead of 1", m, c->rx.messages);
  if (strcmp(m, "DoGet") == 0) return do_get(c, err);
  if (strcmp(m, "DoAction") == 0) return do_action(c, err);
  if (strcmp(m, "ListFlights") == 0) return list_flights(c, err);
  if (strcmp(m, "GetFlightInfo") == 0) return flight_info(c, false, err);
  if (strcmp(m, "GetSchema") == 0) return flight_info(c, true, err);
  if (strcmp(m, "ListActions") == 0) return list_actions(c, err);
  return unsupported(err, m);
}

static bool known_method(const char *path) {
  static const char *const known[] = {"DoGet", "DoAction", "ListFlights", "GetFlightInfo", "GetSchema", "ListActions"};
  if (strncmp(path, SERVICE, strlen(SERVICE)) != 0) return false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(path + strlen(SERVICE), known[i]) == 0) return true;
  return false;
}

/* ---- what HTTP/2 reports */

static void on_request(void *arg, br_h2_stream *s) {
  flight_conn *k = arg;
  br_flight_call *c = br_calloc(1, sizeof *c);
  c->conn = k;
  c->stream = s;
  c->refs = 1;
  c->rx.max_bytes = k->server->max_message_bytes;
  c->next = k->calls;
  if (c->next) c->next->prev = c;
  k->calls = c;
  br_h2_set_user(s, c);
}

static bool is(const char *p, size_t n, const char *want) { return n == strlen(want) && memcmp(p, want, n) == 0; }

/* A value that doesn't fit becomes empty, which matches nothing. */
static void keep(char *to, size_t cap, const char *v, size_t n) {
  if (n >= cap || memchr(v, 0, n)) n = 0;
  memcpy(to, v, n);
  to[n] = 0;
}

static void on_header(void *user, const char *name, size_t nn, const char *v, size_t vn) {
  br_flight_call *c = user;
  if (c->checked) return;
  if (is(name, nn, ":path"))
    keep(c->path, sizeof c->path, v, vn);
  else if (is(name, nn, "authorization"))
    keep(c->authorization, sizeof c->authorization, v, vn);
  else if (is(name, nn, ":method"))
    c->post = is(v, vn, "POST");
  else if (is(name, nn, "content-type"))
    c->grpc = vn >= 16 && memcmp(v, "application/grpc", 16) == 0;
}

/* Takes the same time whatever the token is. */
static bool same_token(const char *want, const char *header) {
  if (strncasecmp(header, "Bearer ", 7) != 0) return false;
  const char *got = header + 7;
  size_t n = strlen(want), m = strlen(got);
  unsigned diff = n != m;
  for (size_t i = 0; i < n; i++) diff |= (unsigned char)want[i] ^ (unsigned char)(m ? got[i % m] : 0);
  return diff == 0;
}

static void refuse(br_flight_call *c, const br_error *err, int status_or_0) {
  c->refused = true;
  request_done(c);
  finish(c, err, status_or_0);
}

static void on_headers_done(void *user) {
  br_flight_call *c = user;
  br_flight_server *s = c->conn->server;
  br_error err = {0};
  if (c->checked) return;
  c->checked = true;
  if (!c->post || !c->grpc) {
    static const br_h2_header no[] = {{":status", "415"}};
    c->refused = c->ended = c->responded = true;
    br_h2_respond(c->stream, no, 1, true);
  } else if (s->bearer && !same_token(s->bearer, c->authorization)) {
    br_fail(&err, BR_PERMISSION, BR_BLAME_USER, "no valid bearer token: give the one of this server");
    refuse(c, &err, BR_GRPC_UNAUTHENTICATED);
  } else if (!known_method(c->path)) {
    unsupported(&err, c->path);
    refuse(c, &err, 0);
  }
}

static br_status receive(br_flight_call *c, const uint8_t *p, size_t n, br_error *err) {
  flight_conn *k = c->conn;
  while (n) {
    size_t used;
    bool whole;
    if (c->rx.messages) return br_fail(err, BR_INVALID, BR_BLAME_FETCH, "a request has more than one message");
    BR_TRY(br_grpc_rx_feed(&c->rx, p, n, &used, &whole, err));
    c->counted_bytes += used;
    k->request_bytes += used;
    if (k->request_bytes > REQUEST_BUDGET_MESSAGES * k->server->max_message_bytes)
      return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_FETCH, "the requests of one connection take more than %llu bytes",
                     (unsigned long long)(REQUEST_BUDGET_MESSAGES * k->server->max_message_bytes));
    p += used, n -= used;
  }
  return BR_OK;
}

static void on_data(void *user, const void *p, size_t n) {
  br_flight_call *c = user;
  br_error err = {0};
  br_h2_consume(c->stream, n);
  if (!c->refused && receive(c, p, n, &err) != BR_OK) refuse(c, &err, 0);
}

static void *on_target(void *user, size_t *room) {
  (void)user, (void)room;
  return NULL;
}

static void on_peer_ended(void *user) {
  br_flight_call *c = user;
  br_error err = {0};
  if (c->refused || c->dispatched) return;
  c->dispatched = true;
  c->refs++; /* a handler may end the call or free the server */
  if (dispatch(c, &err) != BR_OK) finish(c, &err, 0);
  if (c->stream) request_done(c);
  unref(c);
}

static br_status send_data(br_flight_call *c, br_flight_data *d, br_error *err) {
  br_buf head = {0};
  br_status status = br_flight_data_head(d, &head, err);
  if (status == BR_OK)
    br_h2_send(c->stream, head.data, head.len, d->body.data, d->body.bytes, d->body.release, d->body.owner);
  else if (d->body.release)
    d->body.release(d->body.owner);
  br_buf_free(&head);
  return status;
}

/* One step of the source: true when there may be more to pull. */
static bool pull_once(br_flight_call *c) {
  br_flight_data d = {0};
  br_error err = {0};
  br_pull r = c->source.next(c->source.arg, &d, &err);
  if (!c->stream) { /* freed inside */
    if (r == BR_PULL_DATA && d.body.release) d.body.release(d.body.owner);
    return false;
  }
  if (r == BR_PULL_WAIT) return false;
  if (r == BR_PULL_DATA && send_data(c, &d, &err) == BR_OK) return br_h2_queued_bytes(c->stream) < PULL_BYTES;
  end_source(c);
  finish(c, r == BR_PULL_END ? NULL : &err, 0);
  return false;
}

static void on_pull(void *user) {
  br_flight_call *c = user;
  c->refs++;
  while (c->stream && c->has_source && pull_once(c)) continue;
  unref(c);
}

static void on_closed(void *user, const br_error *why) {
  (void)why;
  end_call(user);
}

static void on_ready(void *arg) { (void)arg; }

static void drop_conn(flight_conn *k) {
  br_flight_server *s = k->server;
  if (k->next) k->next->prev = k->prev;
  if (k->prev)
    k->prev->next = k->next;
  else
    s->conns = k->next;
  s->connections--;
  free(k);
}

static void on_gone(void *arg, const br_error *why) {
  flight_conn *k = arg;
  br_log(BR_LOG_DEBUG, "flight: %s", why->message);
  drop_conn(k);
}

/* ---- the server */

static void on_accepted(void *arg, int fd, const char *peer) {
  br_flight_server *s = arg;
  if (s->connections >= s->max_connections) {
    br_log(BR_LOG_WARN, "flight: %s turned away: %u connections are open", peer, s->connections);
    close(fd);
    return;
  }
  flight_conn *k = br_calloc(1, sizeof *k);
  k->server = s;
  keep(k->peer, sizeof k->peer, peer, strlen(peer));
  br_h2_options o = {.server = true,
                     .is_unix = strcmp(peer, "unix") == 0,
                     .peer = k->peer,
                     .window_bytes = REQUEST_WINDOW_BYTES,
                     .max_frame_bytes = REQUEST_FRAME_BYTES,
                     .ready_ms = s->handshake_ms};
  br_h2_handler h = {.arg = k,
                     .request = on_request,
                     .header = on_header,
                     .headers_done = on_headers_done,
                     .data = on_data,
                     .target = on_target,
                     .peer_ended = on_peer_ended,
                     .pull = on_pull,
                     .closed = on_closed,
                     .ready = on_ready,
                     .gone = on_gone};
  br_error err = {0};
  if (br_h2_new(s->loop, fd, &o, &h, &k->h2, &err) != BR_OK) {
    br_log(BR_LOG_WARN, "flight: %s", err.message);
    free(k);
    return;
  }
  k->next = s->conns;
  if (k->next) k->next->prev = k;
  s->conns = k;
  s->connections++;
}

static br_status listen_on(br_flight_server *s, const br_flight_server_options *o, br_error *err) {
  int fd;
  if (o->host) {
    BR_TRY(br_listen_tcp(o->host, o->port, &fd, &s->port, err));
    BR_TRY(br_listener_new(s->loop, fd, on_accepted, s, &s->tcp, err));
  }
  if (o->unix_path) {
    BR_TRY(br_listen_unix(o->unix_path, &fd, err));
    s->unix_path = br_strdup(o->unix_path);
    BR_TRY(br_listener_new(s->loop, fd, on_accepted, s, &s->local, err));
  }
  if (!s->tcp && !s->local)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "a Flight server needs a host or a Unix path");
  return BR_OK;
}

br_status br_flight_server_new(br_loop *l, const br_flight_server_options *o, const br_flight_handlers *h,
                               br_flight_server **out, br_error *err) {
  if (o->bearer) BR_TRY(br_flight_check_token(o->bearer, err));
  br_flight_server *s = br_calloc(1, sizeof *s);
  s->loop = l;
  s->h = *h;
  s->bearer = o->bearer ? br_strdup(o->bearer) : NULL;
  s->max_message_bytes = o->max_message_bytes ? o->max_message_bytes : DEFAULT_REQUEST_BYTES;
  s->handshake_ms = o->handshake_ms ? o->handshake_ms : DEFAULT_HANDSHAKE_MS;
  s->max_connections = o->max_connections ? o->max_connections : DEFAULT_CONNECTIONS;
  br_status status = listen_on(s, o, err);
  if (status != BR_OK) {
    br_flight_server_free(s);
    return status;
  }
  *out = s;
  return BR_OK;
}

int br_flight_server_port(const br_flight_server *s) { return s->port; }

void br_flight_server_free(br_flight_server *s) {
  if (!s) return;
  br_listener_free(s->tcp);
  br_listener_free(s->local);
  if (s->unix_path) unlink(s->unix_path);
  while (s->conns) {
    flight_conn *k = s->conns;
    br_h2_close(k->h2); /* silent: its calls are ended here */
    for (br_flight_call *c = k->calls; c; c = c->next) c->stream = NULL;
    while (k->calls) end_call(k->calls);
    drop_conn(k);
  }
  free(s->unix_path);
  free(s->bearer);
  free(s);
}

/* ---- what handlers call */

void br_flight_call_result(br_flight_call *c, const void *body, size_t n) {
  br_buf b = {0};
  br_pbw_bytes(&b, 1, body, n);
  send_message(c, b.data, b.len);
  br_buf_free(&b);
}

void br_flight_call_end(br_flight_call *c, const br_error *err_or_null) {
  if (c->ended || !c->stream) return;
  if (!err_or_null || err_or_null->code == BR_OK) respond(c);
  finish(c, err_or_null, 0);
}

void br_flight_call_resume(br_flight_call *c) {
  if (c->stream && c->has_source) br_h2_resume(c->stream);
}

uint64_t br_flight_call_queued_bytes(const br_flight_call *c) { return c->stream ? br_h2_queued_bytes(c->stream) : 0; }

const char *br_flight_call_peer(const br_flight_call *c) { return c->conn->peer; }
