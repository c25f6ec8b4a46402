/* SPDX-License-Identifier: Apache-2.0
 * Shared by http2.c (session, streams) and http2_out.c (queue towards the socket). Nobody else includes it. */
#ifndef BRANT_NET_HTTP2_INTERNAL_H
#define BRANT_NET_HTTP2_INTERNAL_H

#include "net/http2.h"
#include <nghttp2/nghttp2.h>
#include <sys/uio.h>

#define H2_QUEUE_ENTRIES 256
#define H2_QUEUE_BYTES (2u << 20)      /* flush above this */
#define H2_ARENA_BYTES (64u << 10)     /* frame headers, control frames, small pieces of bodies */
#define H2_COPY_BYTES 2048             /* pieces up to this are copied into the arena: fewer iovecs */
#define H2_DATA_FRAME_BYTES (1u << 20) /* DATA frames sent are no longer */
#define H2_CREDIT_SHARE 8              /* a stream's credit is told to the peer in eighths of its window */
#define H2_TURN_BYTES (8u << 20)       /* sent or received in one turn of the loop; then others get theirs */

/* Bytes to send: a head that is copied, a body that is pinned. */
typedef struct h2_msg {
  struct h2_msg *next; /* in its stream's queue */
  uint32_t refs;
  void (*release)(void *owner);
  void *owner;
  const uint8_t *body;
  size_t head_bytes, body_bytes;
  uint8_t head[];
} h2_msg;
h2_msg *h2_msg_new(const void *head, size_t head_bytes, const void *body, size_t body_bytes, void (*release)(void *),
                   void *owner);
void h2_msg_unref(h2_msg *m);

/* The queue between nghttp2 and the socket. */
typedef struct h2_entry {
  struct iovec iov;
  h2_msg *msg; /* pinned by this entry; NULL: bytes of the arena */
} h2_entry;
typedef struct h2_out {
  h2_entry entries[H2_QUEUE_ENTRIES];
  uint32_t first, count;
  size_t bytes, arena_used, turn_bytes;
  bool blocked; /* wait for the socket to be writable */
  uint8_t arena[H2_ARENA_BYTES];
} h2_out;

struct br_h2_stream {
  br_h2 *conn;
  br_h2_stream *prev, *next;
  void *user;
  int32_t id;
  h2_msg *first, *last; /* to send; offset bytes of first have gone */
  size_t offset;
  uint64_t queued_bytes;
  uint64_t unconsumed_bytes; /* received, credit not given back */
  uint32_t credit_bytes;     /* given back by the reader, not told to the peer yet */
  bool detached;             /* no callbacks any more */
  bool finished;             /* ends after the queue */
  bool has_trailers, deferred, responded;
  bool pulling, again;
  br_h2_header *trailers;
  size_t n_trailers;
};

struct br_h2 {
  uv_poll_t poll;
  uv_prepare_t prepare; /* pumps what was queued outside of I/O callbacks, before the loop sleeps */
  br_loop *loop;
  int fd, open_handles;
  nghttp2_session *ng;
  br_h2_options options;
  br_h2_handler h;
  char peer[280];
  char note[200]; /* nghttp2's own words on what was wrong */
  br_timer *bound;
  br_h2_stream *streams;
  br_h2_stream *rx; /* its DATA frame is being received */
  size_t rx_left;   /* of that frame */
  size_t header_bytes;
  int depth; /* inside callbacks: destruction waits */
  bool dirty, dying, silent, is_ready, lingering;
  int events;
  br_error why;
  h2_out out;
};

/* http2_out.c. Returns: 0, or errno of a dead socket. */
int h2_out_flush(br_h2 *c);
/* Room for `arena_bytes` and `entries`: 1, 0 (the socket is blocked, or others' turn), -1 dead. Flushes when needed. */
int h2_out_room(br_h2 *c, size_t arena_bytes, uint32_t entries);
void h2_out_copy(br_h2 *c, const void *p, size_t n);
void h2_out_clear(br_h2 *c);

/* A DATA frame is made of at most H2_FRAME_PIECES heads and bodies of the stream's queue. */
#define H2_FRAME_PIECES 16
#define H2_FRAME_HEADER_BYTES 9
#define H2_FRAME_ARENA_BYTES (H2_FRAME_HEADER_BYTES + H2_FRAME_PIECES * H2_COPY_BYTES)
size_t h2_out_frame_bytes(const br_h2_stream *s, size_t most); /* what the next frame can carry */
void h2_out_frame(br_h2 *c, br_h2_stream *s, size_t n); /* moves n bytes of the stream's queue; room was asked for */

#endif
