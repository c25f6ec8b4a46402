/* SPDX-License-Identifier: Apache-2.0
 * The protobuf messages of Arrow Flight by hand: small ones read and written whole, FlightData read incrementally.
 * Internal to flight/ (and its tests). */
#ifndef BRANT_FLIGHT_MESSAGE_H
#define BRANT_FLIGHT_MESSAGE_H

#include "flight/flight.h"
#include "net/grpc.h"

/* ---- small messages */
typedef struct pb_field {
  uint32_t number, wire; /* wire: 0 varint, 1 64 bits, 2 bytes, 5 32 bits */
  uint64_t value;        /* wire 0, 1, 5 */
  const uint8_t *data;   /* wire 2 */
  size_t bytes;
} pb_field;
/* 1: *at moved behind the field; 0: the end; -1: malformed. */
int br_pbw_next(const uint8_t *p, size_t n, size_t *at, pb_field *out);
void br_pbw_varint(br_buf *b, uint64_t v);
void br_pbw_bytes(br_buf *b, uint32_t field, const void *p, size_t n); /* nothing when n is 0, as proto3 does */
void br_pbw_uint(br_buf *b, uint32_t field, uint64_t v);               /* nothing when v is 0 */

/* Ticket{1}, Result{1}, SchemaResult{1}, Action{1 type, 2 body}: pieces of p. */
BR_MUST_USE br_status br_flight_parse_bytes1(const void *p, size_t n, const void **value, size_t *bytes, br_error *err);
BR_MUST_USE br_status br_flight_parse_action(const void *p, size_t n, char **type, const void **body, size_t *bytes,
                                             br_error *err); /* free(*type) */

/* A bearer token that a header can carry: printable ASCII without spaces, 1 to BR_FLIGHT_TOKEN_BYTES. */
#define BR_FLIGHT_TOKEN_BYTES 1000
BR_MUST_USE br_status br_flight_check_token(const char *token, br_error *err);

/* ---- FlightData */
#define BR_FLIGHT_HEAD_BYTES (64u << 20) /* of data_header, app_metadata and descriptor together */

/* The bytes in front of a body: gRPC prefix, the small fields, the body's tag and length. BR_INVALID when it is too long. */
BR_MUST_USE br_status br_flight_data_head(const br_flight_data *d, br_buf *out, br_error *err);

typedef struct br_flight_rx {
  /* what a whole message brought; the callee takes the body by setting it to NULL */
  br_buf head, app, descriptor;
  uint8_t *body;
  size_t body_bytes, body_got;
  uint32_t message_bytes; /* of the current message, without prefix */
  uint32_t message_left;
  /* where it is */
  uint8_t prefix[BR_GRPC_PREFIX_BYTES];
  uint8_t prefix_got, state, wire;
  uint32_t field;
  uint64_t number, field_left;
  uint8_t shift;
  bool in_message;
  uint64_t max_bytes;
} br_flight_rx;
/* Takes bytes until a message is whole (*whole) or n are used. After an error the stream is useless. */
BR_MUST_USE br_status br_flight_rx_feed(br_flight_rx *r, const uint8_t *p, size_t n, size_t *used, bool *whole,
                                        br_error *err);
/* Where the next bytes of the body go, when that is what comes next; feed finds them in place and doesn't copy. */
uint8_t *br_flight_rx_target(const br_flight_rx *r, size_t *room);
void br_flight_rx_free(br_flight_rx *r);

/* Memory of bodies (body.c); freed by br_flight_body_free, any thread. NULL: none left. */
void *br_flight_body_alloc(size_t n);
void br_flight_body_trim(void); /* give back what is kept for later bodies */

#endif
