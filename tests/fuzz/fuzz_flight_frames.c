/* SPDX-License-Identifier: Apache-2.0
 * Fuzzes what reads a stranger's gRPC bytes: FlightData and small messages in any cut, the small protobufs, trailers.
 * The cut must not matter: the same bytes at once and in pieces give the same messages and the same verdict. */
/* links: br_flight */
#include "flight/message.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1u << 20) /* announced bodies stay small, so that memory is not what is tested */

typedef struct verdict {
  br_code code;
  size_t messages, head_bytes, body_bytes;
  uint64_t sum;
} verdict;

static uint64_t sum_of(uint64_t sum, const void *p, size_t n) {
  for (size_t i = 0; i < n; i++) sum = sum * 31 + ((const uint8_t *)p)[i];
  return sum;
}

/* Bytes that are the body's are put in place first when in_place, as the connection does. */
static verdict read_flight(const uint8_t *p, size_t n, size_t step, bool in_place) {
  br_flight_rx r = {.max_bytes = MOST_BYTES};
  br_error err = {0};
  verdict v = {0};
  for (size_t at = 0; at < n && v.code == BR_OK;) {
    size_t piece = n - at < step ? n - at : step, room = 0, used;
    uint8_t *target = in_place ? br_flight_rx_target(&r, &room) : NULL;
    const uint8_t *from = p + at;
    bool whole;
    if (target) {
      if (piece > room) piece = room;
      memcpy(target, from, piece);
      from = target;
    }
    v.code = (br_code)br_flight_rx_feed(&r, from, piece, &used, &whole, &err);
    if (v.code == BR_OK && used == 0) abort();
    at += used;
    if (v.code != BR_OK || !whole) continue;
    v.messages++;
    v.head_bytes += r.head.len;
    v.body_bytes += r.body_bytes;
    v.sum = sum_of(sum_of(sum_of(v.sum, r.head.data, r.head.len), r.app.data, r.app.len), r.body, r.body_bytes);
  }
  br_flight_rx_free(&r);
  return v;
}

static verdict read_small(const uint8_t *p, size_t n, size_t step) {
  br_grpc_rx r = {.max_bytes = MOST_BYTES};
  br_error err = {0};
  verdict v = {0};
  for (size_t at = 0; at < n && v.code == BR_OK;) {
    size_t piece = n - at < step ? n - at : step, used;
    bool whole;
    v.code = (br_code)br_grpc_rx_feed(&r, p + at, piece, &used, &whole, &err);
    if (v.code == BR_OK && used == 0) abort();
    at += used;
    if (v.code != BR_OK || !whole) continue;
    v.messages++;
    v.head_bytes += r.message.len;
    v.sum = sum_of(v.sum, r.message.data, r.message.len);
  }
  br_grpc_rx_free(&r);
  return v;
}

static void same(verdict a, verdict b) {
  if (a.code != b.code || a.messages != b.messages || a.head_bytes != b.head_bytes || a.body_bytes != b.body_bytes ||
      a.sum != b.sum)
    abort();
}

static void small_parsers(const uint8_t *p, size_t n) {
  const void *value;
  size_t bytes;
  char *type = NULL;
  br_error err = {0};
  if (br_flight_parse_bytes1(p, n, &value, &bytes, &err) == BR_OK) (void)sum_of(0, value, bytes);
  if (br_flight_parse_action(p, n, &type, &value, &bytes, &err) == BR_OK) {
    (void)sum_of(strlen(type), value, bytes);
    free(type);
  }
  br_grpc_reply r = {0};
  static const char *const names[] = {":status", "grpc-status", "grpc-message", "brant-error-bin"};
  for (int i = 0; i < 4; i++) {
    size_t from = n * (size_t)i / 4, to = n * (size_t)(i + 1) / 4;
    br_grpc_reply_header(&r, names[i], strlen(names[i]), (const char *)p + from, to - from);
  }
  br_error got = {0};
  br_grpc_reply_error(&r, "peer", &got);
  br_grpc_reply_free(&r);
}

/* What is written is read back the same. */
static void round_trip(const uint8_t *p, size_t n) {
  size_t h = n / 3, a = n / 4;
  br_flight_data d = {
      .head = p, .head_bytes = h, .app = p + h, .app_bytes = a, .body = {p + h + a, n - h - a, NULL, NULL}};
  br_buf wire = {0}, text = {0}, back = {0};
  br_error err = {0};
  if (br_flight_data_head(&d, &wire, &err)) abort();
  br_buf_add(&wire, d.body.data, d.body.bytes);
  verdict v = read_flight((const uint8_t *)wire.data, wire.len, 7, false);
  if (v.code || v.messages != 1 || v.head_bytes != h || v.body_bytes != d.body.bytes || v.sum != sum_of(0, p, n))
    abort();
  br_base64_encode(p, n, &text);
  if (!br_base64_decode(text.data, text.len, &back) || back.len != n || (n && memcmp(back.data, p, n))) abort();
  br_buf_clear(&text);
  br_buf_clear(&back);
  br_percent_encode((const char *)p, n, 3 * n, &text);
  br_percent_decode(text.data, text.len, &back);
  if (back.len != n || (n && memcmp(back.data, p, n))) abort();
  br_buf_free(&wire);
  br_buf_free(&text);
  br_buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  if (n == 0) return 0;
  size_t step = 1 + p[0] % 13;
  p++, n--;
  verdict whole = read_flight(p, n, SIZE_MAX, false);
  same(whole, read_flight(p, n, step, false));
  same(whole, read_flight(p, n, step, true));
  same(read_small(p, n, SIZE_MAX), read_small(p, n, step));
  small_parsers(p, n);
  if (n < MOST_BYTES / 2) round_trip(p, n);
  return 0;
}
