/* SPDX-License-Identifier: Apache-2.0
 *
 * gRPC: message framing and error trailers.
 *
 * Order of calls: none, but init/free pairs. Threads: any, each object on one. Bounds: max_bytes a message, the limits of
 * grpc.h for texts; everything longer is refused or cut.
 */
#include "net/grpc.h"

#include "proto/proto.h"

#include <stdlib.h>
#include <string.h>

/* ---- status */

int br_grpc_status(br_code code) {
  switch (code) {
    case BR_OK: return 0;
    case BR_CANCELLED: return 1;
    case BR_INVALID:
    case BR_EXECUTION: return 3;
    case BR_TIMEOUT: return 4;
    case BR_NOT_FOUND: return 5;
    case BR_PERMISSION: return 7;
    case BR_OUT_OF_MEMORY:
    case BR_NO_SPACE: return 8;
    case BR_VERSION: return 9;
    case BR_UNSUPPORTED: return BR_GRPC_UNIMPLEMENTED;
    case BR_NETWORK:
    case BR_FETCH:
    case BR_LOST: return 14;
    case BR_CORRUPT: return 15;
    case BR_IO:
    case BR_INTERNAL: return 13;
  }
  return 2;
}

br_code br_grpc_code(int status) {
  switch (status) {
    case 0: return BR_OK;
    case 1: return BR_CANCELLED;
    case 3:
    case 6:
    case 9:
    case 11: return BR_INVALID;
    case 4: return BR_TIMEOUT;
    case 5: return BR_NOT_FOUND;
    case 7:
    case BR_GRPC_UNAUTHENTICATED: return BR_PERMISSION;
    case 8: return BR_OUT_OF_MEMORY;
    case BR_GRPC_UNIMPLEMENTED: return BR_UNSUPPORTED;
    case 10:
    case 14: return BR_NETWORK;
    case 15: return BR_CORRUPT;
    default: return BR_EXECUTION; /* UNKNOWN, INTERNAL and what is not defined: the other side's own trouble */
  }
}

/* ---- text encodings */

void br_base64_encode(const void *data, size_t n, br_buf *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t *p = data;
  for (size_t i = 0; i < n; i += 3) {
    uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
    char q[4] = {digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63], digits[v & 63]};
    br_buf_add(out, q, n - i >= 3 ? 4 : n - i + 1);
  }
}

static int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool br_base64_decode(const char *p, size_t n, br_buf *out) {
  for (int pad = 0; pad < 2 && n && p[n - 1] == '='; pad++) n--;
  if (n % 4 == 1) return false;
  uint32_t v = 0;
  int bits = 0;
  for (size_t i = 0; i < n; i++) {
    int d = base64_value(p[i]);
    if (d < 0) return false;
    v = v << 6 | (uint32_t)d;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      br_buf_char(out, (char)(v >> bits & 255));
    }
  }
  return true;
}

void br_percent_encode(const char *p, size_t n, size_t most_bytes, br_buf *out) {
  size_t start = out->len;
  for (size_t i = 0; i < n;) {
    size_t unit = 1; /* a whole UTF-8 character, so that a cut text stays valid */
    while (i + unit < n && unit < 4 && ((uint8_t)p[i + unit] & 0xc0) == 0x80 && (uint8_t)p[i] >= 0xc0) unit++;
    if (out->len - start + 3 * unit > most_bytes) return;
    for (size_t end = i + unit; i < end; i++) {
      uint8_t c = (uint8_t)p[i];
      if (c >= 0x20 && c <= 0x7e && c != '%')
        br_buf_char(out, (char)c);
      else
        br_buf_printf(out, "%%%02X", c);
    }
  }
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void br_percent_decode(const char *p, size_t n, br_buf *out) {
  for (size_t i = 0; i < n; i++) {
    int hi = p[i] == '%' && i + 2 < n ? hex_value(p[i + 1]) : -1;
    int lo = hi >= 0 ? hex_value(p[i + 2]) : -1;
    br_buf_char(out, lo >= 0 ? (char)(hi << 4 | lo) : p[i]);
    if (lo >= 0) i += 2;
  }
}

/* ---- errors in trailers */

static void add_trailer(br_grpc_trailers *t, const char *name) {
  t->headers[t->n] = (br_h2_header){name, br_buf_cstr(&t->text[t->n])};
  t->n++;
}

void br_grpc_trailers_init(br_grpc_trailers *t, const br_error *err, int status_or_0) {
  memset(t, 0, sizeof *t);
  bool failed = err && err->code != BR_OK;
  int status = !failed ? 0 : status_or_0 ? status_or_0 : br_grpc_status(err->code);
  br_buf_printf(&t->text[0], "%d", status);
  add_trailer(t, "grpc-status");
  if (!failed) return;
  br_percent_encode(err->message, strnlen(err->message, sizeof err->message), BR_GRPC_MESSAGE_TEXT_BYTES, &t->text[1]);
  add_trailer(t, "grpc-message");
  br_buf packed = {0};
  Brant__Pb__Error *pb = br_error_to_pb(err);
  br_pb_pack(&pb->base, &packed);
  brant__pb__error__free_unpacked(pb, NULL);
  br_base64_encode(packed.data, packed.len, &t->text[2]);
  br_buf_free(&packed);
  add_trailer(t, "brant-error-bin");
}

void br_grpc_trailers_free(br_grpc_trailers *t) {
  for (int i = 0; i < 3; i++) br_buf_free(&t->text[i]);
}

static bool is(const char *name, size_t n, const char *want) { return n == strlen(want) && memcmp(name, want, n) == 0; }

/* A number of at most 3 digits, else -1. */
static int small_number(const char *p, size_t n) {
  int v = 0;
  if (n == 0 || n > 3) return -1;
  for (size_t i = 0; i < n; i++) {
    if (p[i] < '0' || p[i] > '9') return -1;
    v = v * 10 + (p[i] - '0');
  }
  return v;
}

void br_grpc_reply_header(br_grpc_reply *r, const char *name, size_t name_bytes, const char *value,
                          size_t value_bytes) {
  if (is(name, name_bytes, ":status")) {
    r->http_status = small_number(value, value_bytes);
    r->http_bad = r->http_status >= 300 || r->http_status < 0;
  } else if (is(name, name_bytes, "grpc-status")) {
    r->has_status = true;
    r->status = small_number(value, value_bytes);
  } else if (is(name, name_bytes, "grpc-message")) {
    br_buf_clear(&r->message);
    br_percent_decode(value, value_bytes, &r->message);
  } else if (is(name, name_bytes, "brant-error-bin") && value_bytes <= BR_GRPC_ERROR_BYTES) {
    br_buf_clear(&r->error);
    if (!br_base64_decode(value, value_bytes, &r->error)) br_buf_clear(&r->error);
  }
}

/* True when the server sent one of our errors, whole. */
static bool whole_error(const br_grpc_reply *r, br_error *err) {
  if (!r->error.len) return false;
  br_error bad = {0};
  Brant__Pb__Error *pb =
      (Brant__Pb__Error *)br_pb_unpack(&brant__pb__error__descriptor, r->error.data, r->error.len, &bad);
  if (!pb) return false;
  bool is_error = pb->code != BR_OK;
  if (is_error) br_error_from_pb(pb, err);
  brant__pb__error__free_unpacked(pb, NULL);
  return is_error;
}

void br_grpc_reply_error(const br_grpc_reply *r, const char *peer, br_error *err) {
  if (r->has_status && r->status == 0) return;
  if (r->has_status && whole_error(r, err)) return;
  if (!r->has_status && r->http_bad) {
    br_fail(err, BR_NETWORK, BR_BLAME_FETCH, "%s answered with HTTP status %d: not a Flight server?", peer,
            r->http_status);
    return;
  }
  if (!r->has_status) {
    br_fail(err, BR_NETWORK, BR_BLAME_FETCH, "%s ended a stream without a gRPC status", peer);
    return;
  }
  int n = r->message.len > 1500 ? 1500 : (int)r->message.len;
  br_fail(err, br_grpc_code(r->status), BR_BLAME_FETCH, "%s answered: %.*s (gRPC status %d)", peer, n,
          r->message.len ? r->message.data : "", r->status);
  err->retryable = r->status == 14;
}

void br_grpc_reply_free(br_grpc_reply *r) {
  br_buf_free(&r->message);
  br_buf_free(&r->error);
}

/* ---- framing */

void br_grpc_prefix(uint8_t out[BR_GRPC_PREFIX_BYTES], uint32_t n) {
  out[0] = 0;
  for (int i = 0; i < 4; i++) out[1 + i] = (uint8_t)(n >> (24 - 8 * i));
}

br_status br_grpc_prefix_parse(const uint8_t in[BR_GRPC_PREFIX_BYTES], uint64_t max_bytes, uint32_t *message_bytes,
                               br_error *err) {
  if (in[0]) return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "a gRPC message is compressed, which was not offered");
  *message_bytes = (uint32_t)in[1] << 24 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 8 | in[4];
  if (*message_bytes > max_bytes)
    return br_fail(err, BR_INVALID, BR_BLAME_FETCH, "a gRPC message of %u bytes is above the limit of %llu bytes",
                   *message_bytes, (unsigned long long)max_bytes);
  return BR_OK;
}

br_status br_grpc_rx_feed(br_grpc_rx *r, const uint8_t *p, size_t n, size_t *used, bool *whole, br_error *err) {
  *used = 0;
  *whole = false;
  if (r->prefix_got == 0) br_buf_clear(&r->message);
  while (*used < n && r->prefix_got < BR_GRPC_PREFIX_BYTES) r->prefix[r->prefix_got++] = p[(*used)++];
  if (r->prefix_got < BR_GRPC_PREFIX_BYTES) return BR_OK;
  BR_TRY(br_grpc_prefix_parse(r->prefix, r->max_bytes, &r->message_bytes, err));
  size_t left = r->message_bytes - r->message.len, take = n - *used < left ? n - *used : left;
  br_buf_add(&r->message, p + *used, take);
  *used += take;
  if (take == left) {
    *whole = true;
    r->prefix_got = 0;
    r->messages++;
  }
  return BR_OK;
}

void br_grpc_rx_free(br_grpc_rx *r) { br_buf_free(&r->message); }
