/* SPDX-License-Identifier: Apache-2.0
 * gRPC over HTTP/2: message framing, and errors in trailers. An error crosses whole: `grpc-status` and `grpc-message` for
 * everybody, and `brant-error-bin` (base64 of the packed brant.pb.Error) for ourselves. */
#ifndef BRANT_NET_GRPC_H
#define BRANT_NET_GRPC_H

#include "base/buf.h"
#include "net/http2.h"

#define BR_GRPC_PREFIX_BYTES 5
#define BR_GRPC_MESSAGE_TEXT_BYTES 3000 /* of grpc-message, encoded: with the rest below the 8 KiB that peers accept */
#define BR_GRPC_ERROR_BYTES (16u << 10) /* of brant-error-bin received */

enum { BR_GRPC_OK = 0, BR_GRPC_UNIMPLEMENTED = 12, BR_GRPC_UNAUTHENTICATED = 16 };

int br_grpc_status(br_code code);
br_code br_grpc_code(int status);

/* Trailers for an error (NULL or code 0: success). status_or_0 overrides the mapped status. */
typedef struct br_grpc_trailers {
  br_h2_header headers[3];
  size_t n;
  br_buf text[3];
} br_grpc_trailers;
void br_grpc_trailers_init(br_grpc_trailers *t, const br_error *err, int status_or_0);
void br_grpc_trailers_free(br_grpc_trailers *t);

/* What a client learns from headers and trailers. */
typedef struct br_grpc_reply {
  bool has_status, http_bad;
  int status, http_status;
  br_buf message, error;
} br_grpc_reply;
void br_grpc_reply_header(br_grpc_reply *r, const char *name, size_t name_bytes, const char *value, size_t value_bytes);
/* The error of a stream that ended (err->code 0: well). peer is for messages. */
void br_grpc_reply_error(const br_grpc_reply *r, const char *peer, br_error *err);
void br_grpc_reply_free(br_grpc_reply *r);

void br_grpc_prefix(uint8_t out[BR_GRPC_PREFIX_BYTES], uint32_t message_bytes);
/* BR_CORRUPT for a compressed message, BR_INVALID for one above max_bytes. */
BR_MUST_USE br_status br_grpc_prefix_parse(const uint8_t in[BR_GRPC_PREFIX_BYTES], uint64_t max_bytes,
                                           uint32_t *message_bytes, br_error *err);

/* Assembles small messages. Not for bodies: it copies. */
typedef struct br_grpc_rx {
  uint8_t prefix[BR_GRPC_PREFIX_BYTES];
  uint32_t prefix_got, message_bytes;
  uint64_t max_bytes;
  uint32_t messages; /* whole so far */
  br_buf message;
} br_grpc_rx;
/* Takes bytes until a message is whole (*whole; read r->message before the next call) or n are used. */
BR_MUST_USE br_status br_grpc_rx_feed(br_grpc_rx *r, const uint8_t *p, size_t n, size_t *used, bool *whole,
                                      br_error *err);
void br_grpc_rx_free(br_grpc_rx *r);

void br_base64_encode(const void *p, size_t n, br_buf *out); /* without padding, as gRPC wants */
bool br_base64_decode(const char *p, size_t n, br_buf *out); /* with or without padding; false: malformed */
void br_percent_encode(const char *p, size_t n, size_t most_bytes, br_buf *out);
void br_percent_decode(const char *p, size_t n, br_buf *out); /* what is malformed stays as it is */

#endif
