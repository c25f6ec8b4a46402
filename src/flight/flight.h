/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrow Flight over HTTP/2 (nghttp2) and our own gRPC framing: server and client, TCP and Unix sockets. Loop thread only,
 * unless said otherwise. Interoperates with pyarrow.flight.
 *
 * Limits, for every peer: a gRPC message <= max_message_bytes, header block <= 64 KiB, streams a connection <= 1,000; a
 * connection that sends nothing before its preface for handshake_ms is closed; garbage closes that connection only.
 */
#ifndef BRANT_FLIGHT_FLIGHT_H
#define BRANT_FLIGHT_FLIGHT_H

#include "base/buf.h"
#include "net/loop.h"

#define BR_FLIGHT_MAX_MESSAGE_BYTES (2047u << 20)

/* A piece of bytes to send without copying. release(owner) once the transport no longer needs it (may be after the stream
 * or even the call object is gone); NULL release: bytes are copied during the call. */
typedef struct br_span {
  const void *data;
  size_t bytes;
  void (*release)(void *owner);
  void *owner;
} br_span;

typedef struct br_flight_data { /* one FlightData message */
  const void *head;
  size_t head_bytes; /* IPC Message flatbuffer; copied while sending */
  const void *app;
  size_t app_bytes; /* app_metadata; copied while sending */
  const void *descriptor;
  size_t descriptor_bytes;
  br_span body;
} br_flight_data;

/* ---- server */
typedef struct br_flight_server br_flight_server;
typedef struct br_flight_call br_flight_call; /* one RPC on the server */

/* Produces a stream, pulled as the peer's window allows. */
typedef enum br_pull { BR_PULL_DATA, BR_PULL_WAIT, BR_PULL_END, BR_PULL_ERROR } br_pull;
typedef struct br_flight_source {
  /* DATA: *out filled. WAIT: nothing now, br_flight_call_resume will be called. ERROR: *err filled, ends the stream with a
   * gRPC status that carries it whole. */
  br_pull (*next)(void *arg, br_flight_data *out, br_error *err);
  void (*free)(void *arg); /* once, whatever way the stream ended */
  void *arg;
} br_flight_source;

typedef struct br_flight_handlers {
  void *arg;
  /* DoGet: fill *src or fail (sent as gRPC status). */
  br_status (*do_get)(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                      br_error *err);
  /* DoAction: answer with br_flight_call_result any number of times, now or later, then br_flight_call_end. A failing
   * return ends it. */
  br_status (*do_action)(void *arg, br_flight_call *call, const char *type, const void *body, size_t n, br_error *err);
  /* The peer went away or the call ended: forget `call`. Called once for each call that do_action accepted. */
  void (*call_closed)(void *arg, br_flight_call *call);
  /* ListFlights / GetFlightInfo / GetSchema: append encoded FlightInfo (list: a sequence, each with its own br_buf via emit). May be NULL. */
  br_status (*list_flights)(void *arg, void (*emit)(void *ctx, const void *flight_info, size_t n), void *ctx,
                            br_error *err);
  br_status (*get_flight_info)(void *arg, const void *descriptor, size_t n, br_buf *flight_info, br_error *err);
  const char *const *actions; /* NULL-terminated pairs: type, description; for ListActions */
} br_flight_handlers;

typedef struct br_flight_server_options {
  const char *host;         /* NULL: no TCP; "127.0.0.1" */
  int port;                 /* 0: any */
  const char *unix_path;    /* NULL: none; unlinked on close */
  const char *bearer;       /* NULL: none; else required as "authorization: Bearer ..."; printable ASCII */
  size_t max_message_bytes; /* of requests; 0: 16 MiB */
  uint32_t handshake_ms;    /* 0: 10,000 */
  uint32_t max_connections; /* 0: 1,024 */
} br_flight_server_options;
BR_MUST_USE br_status br_flight_server_new(br_loop *l, const br_flight_server_options *o, const br_flight_handlers *h,
                                           br_flight_server **out, br_error *err);
int br_flight_server_port(const br_flight_server *s);
void br_flight_server_free(br_flight_server *s); /* closes all connections; sources are freed, calls closed */
void br_flight_call_result(br_flight_call *c, const void *body, size_t n); /* one Result message */
void br_flight_call_end(br_flight_call *c, const br_error *err_or_null);
void br_flight_call_resume(br_flight_call *c); /* the source has data again */
/* Results not yet taken by the connection, whose own queue towards the socket is bounded (2 MiB). */
uint64_t br_flight_call_queued_bytes(const br_flight_call *c);
const char *br_flight_call_peer(const br_flight_call *c);

/* A FlightDescriptor of type PATH; path: its parts with '/' between them. */
void br_flight_path_encode(br_buf *out, const char *path);
/* The same backwards: parts joined by '/', NUL-terminated. BR_INVALID: of another type, or longer than cap - 1. */
BR_MUST_USE br_status br_flight_path_parse(const void *descriptor, size_t n, char *path, size_t cap, br_error *err);
/* FlightInfo bytes with one endpoint that has one ticket and no location (the same server). */
void br_flight_info_encode(br_buf *out, const void *schema_head, size_t schema_bytes, const void *descriptor,
                           size_t descriptor_bytes, const void *ticket, size_t ticket_bytes, int64_t rows,
                           int64_t bytes);

/* ---- client */
typedef struct br_flight_client br_flight_client; /* one connection, many calls; connects lazily */
typedef struct br_flight_client_options {
  const char *bearer;
  uint32_t connect_ms;   /* 0: 5,000 */
  uint32_t window_bytes; /* a stream's receive window; 0: 4 MiB */
} br_flight_client_options;
/* uri: "tcp://host:port" or "unix:/path". */
BR_MUST_USE br_status br_flight_client_new(br_loop *l, const char *uri, const br_flight_client_options *o,
                                           br_flight_client **out, br_error *err);
void br_flight_client_free(br_flight_client *c); /* open calls end with BR_CANCELLED */
/* The connection is gone (once). Calls under way got their `end` before this. A later call connects anew. */
void br_flight_client_on_close(br_flight_client *c, void (*fn)(void *arg, const br_error *why), void *arg);

/* One RPC on the client. Valid until its `end` returned or it was cancelled: what is consumed later must not reach it. */
typedef struct br_flight_stream br_flight_stream;
typedef struct br_flight_sink {
  void *arg;
  /* DoGet: one message. body was received into memory aligned to 64 that the callee now owns: release with
   * br_flight_body_free(body.data) (body.data NULL when empty). head and app are valid for the call only. */
  void (*data)(void *arg, const void *head, size_t head_bytes, const void *app, size_t app_bytes, void *body,
               size_t body_bytes);
  /* DoAction: one Result's body; valid for the call only. */
  void (*result)(void *arg, const void *body, size_t n);
  /* Once, last. err->code 0: the server ended it well. A br_error that the server sent arrives whole. */
  void (*end)(void *arg, const br_error *err);
} br_flight_sink;
void br_flight_body_free(void *body); /* any thread; NULL is fine */
br_flight_stream *br_flight_get(br_flight_client *c, const void *ticket, size_t n, br_flight_sink sink);
br_flight_stream *br_flight_action(br_flight_client *c, const char *type, const void *body, size_t n,
                                   br_flight_sink sink);
void br_flight_stream_cancel(br_flight_stream *s); /* no callback after this returns */
/* Back-pressure: flow control credit for received data is given back only by consume. Bytes are those of data() bodies
 * and heads; the stream stalls once window_bytes are unconsumed. A single message may be larger than the window. */
void br_flight_stream_consume(br_flight_stream *s, size_t bytes);

#endif
