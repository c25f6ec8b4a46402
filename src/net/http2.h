/* SPDX-License-Identifier: Apache-2.0
 *
 * One HTTP/2 connection (nghttp2) over a connected, non-blocking socket: either side. Loop thread only.
 *
 * Bodies are sent without copying: a message is reference-counted and stays pinned until the connection's queue has
 * drained, which may be after its stream is gone. Bodies are received straight into the memory that `target` names. The
 * connection's window is given back as data arrives, a stream's window only by br_h2_consume: a stream that nobody
 * consumes stalls alone.
 */
#ifndef BRANT_NET_HTTP2_H
#define BRANT_NET_HTTP2_H

#include "net/loop.h"
#include <stddef.h>

#define BR_H2_HEADER_BLOCK_BYTES (64u << 10)      /* of one header block received: more closes the connection */
#define BR_H2_MAX_STREAMS 1000                    /* that a peer may have open */
#define BR_H2_CONNECTION_WINDOW_BYTES (16u << 20) /* in flight towards us, over all streams */

typedef struct br_h2 br_h2;
typedef struct br_h2_stream br_h2_stream;
typedef struct br_h2_header {
  const char *name, *value;
} br_h2_header;

/* What to do about what the peer did. `user` is what br_h2_set_user or br_h2_request gave. Callbacks may call everything
 * below, br_h2_close included. */
typedef struct br_h2_handler {
  void *arg;
  void (*request)(void *arg, br_h2_stream *s); /* server: a request begins; set its user here */
  void (*header)(void *user, const char *name, size_t name_bytes, const char *value, size_t value_bytes);
  void (*headers_done)(void *user);                  /* a block is whole: headers or trailers */
  void (*data)(void *user, const void *p, size_t n); /* n bytes count against the stream's window until consumed */
  void *(*target)(void *user,
                  size_t *room);  /* where the next data is wanted; NULL: anywhere. data then gets this pointer */
  void (*peer_ended)(void *user); /* nothing more comes from the peer on this stream */
  void (*pull)(void *user);       /* the queue is empty: br_h2_send, br_h2_finish, or neither (then br_h2_resume) */
  /* The stream is gone, once. why->code 0: both sides ended it well; else it was reset or the connection was lost. */
  void (*closed)(void *user, const br_error *why);
  void (*ready)(void *arg); /* the peer speaks HTTP/2 (its settings came) */
  void (*gone)(void *arg,
               const br_error *why); /* once, last, after `closed` of each stream; the br_h2 is freed by itself */
} br_h2_handler;

typedef struct br_h2_options {
  bool server, is_unix;
  const char *peer;         /* for messages; copied */
  uint32_t window_bytes;    /* a stream's receive window */
  uint32_t max_frame_bytes; /* that we take: 16 KiB .. 16 MiB - 1 */
  uint32_t ready_ms;        /* bound until the peer's settings */
} br_h2_options;

/* Owns fd, also on failure. */
BR_MUST_USE br_status br_h2_new(br_loop *l, int fd, const br_h2_options *o, const br_h2_handler *h, br_h2 **out,
                                br_error *err);
void br_h2_close(br_h2 *c); /* at once; no callback afterwards */
const char *br_h2_peer(const br_h2 *c);
bool br_h2_ending(const br_h2 *c); /* lost: `gone` is about to be called, after the streams' `closed` */

/* Client. NULL: the connection is ending, or the peer takes no more streams on it (GOAWAY). The body comes by pull or send. */
br_h2_stream *br_h2_request(br_h2 *c, const br_h2_header *headers, size_t n, void *user);
void br_h2_set_user(br_h2_stream *s, void *user);
void br_h2_respond(br_h2_stream *s, const br_h2_header *headers, size_t n, bool end); /* server */

/* head is copied; body too when release is NULL, else release(owner) is called once nobody needs it, also on failure. */
void br_h2_send(br_h2_stream *s, const void *head, size_t head_bytes, const void *body, size_t body_bytes,
                void (*release)(void *owner), void *owner);
void br_h2_finish(br_h2_stream *s, const br_h2_header *trailers,
                  size_t n);                        /* after what is queued; n 0: just the end */
void br_h2_resume(br_h2_stream *s);                 /* pull again; allowed inside pull */
void br_h2_reset(br_h2_stream *s, uint32_t error);  /* RST_STREAM; s and its callbacks are gone for the caller */
void br_h2_consume(br_h2_stream *s, size_t n);      /* give the peer credit for n received bytes */
uint64_t br_h2_queued_bytes(const br_h2_stream *s); /* sent, but not taken by the connection yet */

#endif
