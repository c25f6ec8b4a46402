/* SPDX-License-Identifier: Apache-2.0
 *
 * FlightData: its head written, and the whole read as it arrives, in any cut and any order of fields. The body goes into
 * memory aligned to 64 as soon as its length is known.
 *
 * Order of calls: feed until *whole, take what is wanted, feed on; free. Threads: any, one at a time. Bounds: max_bytes a
 * message, BR_FLIGHT_HEAD_BYTES for the small fields. A body is allocated when announced (the kernel gives pages only as
 * bytes arrive), other fields grow with what arrived.
 */
#include "flight/message.h"

#include <string.h>

enum { FIELD_DESCRIPTOR = 1, FIELD_HEAD = 2, FIELD_APP = 3, FIELD_BODY = 1000 };
enum { AT_TAG, AT_VALUE, AT_LENGTH, AT_FIXED, AT_BYTES };

br_status br_flight_data_head(const br_flight_data *d, br_buf *out, br_error *err) {
  uint8_t prefix[BR_GRPC_PREFIX_BYTES] = {0};
  size_t start = out->len;
  br_buf_reserve(out, d->descriptor_bytes + d->head_bytes + d->app_bytes + 64);
  br_buf_add(out, prefix, sizeof prefix);
  br_pbw_bytes(out, FIELD_DESCRIPTOR, d->descriptor, d->descriptor_bytes);
  br_pbw_bytes(out, FIELD_HEAD, d->head, d->head_bytes);
  br_pbw_bytes(out, FIELD_APP, d->app, d->app_bytes);
  if (d->body.bytes) {
    br_pbw_varint(out, FIELD_BODY << 3 | 2);
    br_pbw_varint(out, d->body.bytes);
  }
  uint64_t total = out->len - start - sizeof prefix + (uint64_t)d->body.bytes;
  if (total > BR_FLIGHT_MAX_MESSAGE_BYTES)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_TASK,
                   "a batch of %llu bytes is above the %u bytes that a message can have", (unsigned long long)total,
                   BR_FLIGHT_MAX_MESSAGE_BYTES);
  br_grpc_prefix(prefix, (uint32_t)total);
  memcpy(out->data + start, prefix, sizeof prefix);
  return BR_OK;
}

static br_status malformed(br_error *err, const char *what) {
  return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "a FlightData message is malformed: %s", what);
}

static br_status begin_message(br_flight_rx *r, br_error *err) {
  br_buf_clear(&r->head);
  br_buf_clear(&r->app);
  br_buf_clear(&r->descriptor);
  br_flight_body_free(r->body);
  r->body = NULL;
  r->body_bytes = r->body_got = 0;
  r->state = AT_TAG;
  r->number = 0;
  r->shift = 0;
  uint64_t most = r->max_bytes ? r->max_bytes : BR_FLIGHT_MAX_MESSAGE_BYTES;
  BR_TRY(br_grpc_prefix_parse(r->prefix, most, &r->message_bytes, err));
  r->message_left = r->message_bytes;
  r->in_message = true;
  return BR_OK;
}

/* A varint came whole: 1; not yet: 0; too long: -1. */
static int varint_byte(br_flight_rx *r, uint8_t b) {
  r->number |= (uint64_t)(b & 127) << r->shift;
  r->shift = (uint8_t)(r->shift + 7);
  if (!(b & 128)) return 1;
  return r->shift >= 70 ? -1 : 0;
}

static br_status begin_body(br_flight_rx *r, br_error *err) {
  br_flight_body_free(r->body); /* a field that comes twice: the last one counts */
  r->body = NULL;
  r->body_bytes = (size_t)r->field_left;
  r->body_got = 0;
  if (r->body_bytes == 0) return BR_OK;
  r->body = br_flight_body_alloc(r->body_bytes);
  if (!r->body)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for a received batch of %zu bytes", r->body_bytes);
  return BR_OK;
}

static br_buf *small_field(br_flight_rx *r) {
  switch (r->field) {
    case FIELD_DESCRIPTOR: return &r->descriptor;
    case FIELD_HEAD: return &r->head;
    case FIELD_APP: return &r->app;
    default: return NULL;
  }
}

/* The length of a field of bytes is known: r->field_left. */
static br_status begin_bytes(br_flight_rx *r, br_error *err) {
  if (r->field_left > r->message_left) return malformed(err, "a field is longer than its message");
  r->state = r->field_left ? AT_BYTES : AT_TAG;
  if (r->field == FIELD_BODY) return begin_body(r, err);
  br_buf *b = small_field(r);
  if (!b) return BR_OK; /* unknown: skipped */
  br_buf_clear(b);
  if (r->field_left + r->head.len + r->app.len + r->descriptor.len > BR_FLIGHT_HEAD_BYTES)
    return br_fail(err, BR_INVALID, BR_BLAME_FETCH, "the header of a FlightData message is above the limit of %u bytes",
                   BR_FLIGHT_HEAD_BYTES);
  return BR_OK;
}

static br_status tag_done(br_flight_rx *r, br_error *err) {
  uint64_t field = r->number >> 3;
  if (field == 0 || field >= 1u << 29) return malformed(err, "bad field number");
  r->field = (uint32_t)field;
  r->wire = (uint8_t)(r->number & 7);
  switch (r->wire) {
    case 0: r->state = AT_VALUE; return BR_OK;
    case 1: r->state = AT_FIXED, r->field_left = 8; return BR_OK;
    case 2: r->state = AT_LENGTH; return BR_OK;
    case 5: r->state = AT_FIXED, r->field_left = 4; return BR_OK;
    default: return malformed(err, "unknown wire type");
  }
}

static br_status number_byte(br_flight_rx *r, uint8_t b, br_error *err) {
  int whole = varint_byte(r, b);
  if (whole < 0) return malformed(err, "a number of more than 10 bytes");
  if (!whole) return BR_OK;
  br_status status = BR_OK;
  if (r->state == AT_TAG) {
    status = tag_done(r, err);
  } else if (r->state == AT_VALUE) {
    r->state = AT_TAG;
  } else {
    r->field_left = r->number;
    status = begin_bytes(r, err);
  }
  r->number = 0;
  r->shift = 0;
  return status;
}

static void take_bytes(br_flight_rx *r, const uint8_t *p, size_t n) {
  if (r->state == AT_BYTES && r->field == FIELD_BODY) {
    uint8_t *to = r->body + r->body_got;
    if (p != to) memcpy(to, p, n); /* else received in place */
    r->body_got += n;
  } else if (r->state == AT_BYTES) {
    br_buf *b = small_field(r);
    if (b) br_buf_add(b, p, n);
  }
  r->field_left -= n;
  if (r->field_left == 0) r->state = AT_TAG;
}

br_status br_flight_rx_feed(br_flight_rx *r, const uint8_t *p, size_t n, size_t *used, bool *whole, br_error *err) {
  size_t i = 0;
  br_status status = BR_OK;
  *whole = false;
  while (!r->in_message && i < n && r->prefix_got < BR_GRPC_PREFIX_BYTES) r->prefix[r->prefix_got++] = p[i++];
  if (!r->in_message && r->prefix_got == BR_GRPC_PREFIX_BYTES) status = begin_message(r, err);
  while (status == BR_OK && r->in_message && r->message_left && i < n) {
    if (r->state == AT_BYTES || r->state == AT_FIXED) {
      size_t t = n - i < r->field_left ? n - i : (size_t)r->field_left;
      if (t > r->message_left) t = r->message_left; /* a fixed field that passes the end: found below */
      take_bytes(r, p + i, t);
      i += t;
      r->message_left -= (uint32_t)t;
    } else {
      r->message_left--;
      status = number_byte(r, p[i++], err);
    }
  }
  *used = i;
  if (status != BR_OK || !r->in_message || r->message_left) return status;
  if (r->state != AT_TAG || r->shift) return malformed(err, "it ends inside a field");
  r->in_message = false;
  r->prefix_got = 0;
  *whole = true;
  return BR_OK;
}

uint8_t *br_flight_rx_target(const br_flight_rx *r, size_t *room) {
  if (!r->in_message || r->state != AT_BYTES || r->field != FIELD_BODY) return NULL;
  *room = (size_t)r->field_left;
  return r->body + r->body_got;
}

void br_flight_rx_free(br_flight_rx *r) {
  br_buf_free(&r->head);
  br_buf_free(&r->app);
  br_buf_free(&r->descriptor);
  br_flight_body_free(r->body);
  r->body = NULL;
}
