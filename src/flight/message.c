/* SPDX-License-Identifier: Apache-2.0
 *
 * The small protobuf messages of Arrow Flight: reading fields with bounds, writing them into a buffer.
 *
 * Order of calls: none. Threads: any. Bounds: those of the message; nothing is believed that points outside of it.
 */
#include "flight/message.h"

#include "base/mem.h"

#include <string.h>

#define DESCRIPTOR_PATH 1 /* FlightDescriptor.type */
#define PB_MAX_FIELD ((1u << 29) - 1)

/* Bytes used, 0: cut short or too long. */
static size_t varint(const uint8_t *p, size_t n, uint64_t *v) {
  *v = 0;
  for (size_t i = 0; i < n && i < 10; i++) {
    *v |= (uint64_t)(p[i] & 127) << (7 * i);
    if (!(p[i] & 128)) return i + 1;
  }
  return 0;
}

static uint64_t little_endian(const uint8_t *p, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
  return v;
}

int br_pbw_next(const uint8_t *p, size_t n, size_t *at, pb_field *out) {
  if (*at >= n) return 0;
  uint64_t tag;
  size_t used = varint(p + *at, n - *at, &tag);
  size_t i = *at + used;
  if (!used || tag >> 3 == 0 || tag >> 3 > PB_MAX_FIELD) return -1;
  *out = (pb_field){.number = (uint32_t)(tag >> 3), .wire = (uint32_t)(tag & 7)};
  switch (out->wire) {
    case 0:
      used = varint(p + i, n - i, &out->value);
      if (!used) return -1;
      i += used;
      break;
    case 1:
    case 5: {
      size_t width = out->wire == 1 ? 8 : 4;
      if (n - i < width) return -1;
      out->value = little_endian(p + i, width);
      i += width;
      break;
    }
    case 2: {
      uint64_t bytes;
      used = varint(p + i, n - i, &bytes);
      if (!used || bytes > n - i - used) return -1;
      out->data = p + i + used;
      out->bytes = (size_t)bytes;
      i += used + out->bytes;
      break;
    }
    default: return -1;
  }
  *at = i;
  return 1;
}

void br_pbw_varint(br_buf *b, uint64_t v) {
  for (; v > 127; v >>= 7) br_buf_char(b, (char)(v | 128));
  br_buf_char(b, (char)v);
}

void br_pbw_bytes(br_buf *b, uint32_t field, const void *p, size_t n) {
  if (!n) return;
  br_pbw_varint(b, (uint64_t)field << 3 | 2);
  br_pbw_varint(b, n);
  br_buf_add(b, p, n);
}

void br_pbw_uint(br_buf *b, uint32_t field, uint64_t v) {
  if (!v) return;
  br_pbw_varint(b, (uint64_t)field << 3);
  br_pbw_varint(b, v);
}

br_status br_flight_parse_bytes1(const void *p, size_t n, const void **value, size_t *bytes, br_error *err) {
  size_t at = 0;
  pb_field f;
  int r;
  *value = "";
  *bytes = 0;
  while ((r = br_pbw_next(p, n, &at, &f)) > 0)
    if (f.number == 1 && f.wire == 2) *value = f.data, *bytes = f.bytes;
  if (r < 0) return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "a Flight message of %zu bytes is malformed", n);
  return BR_OK;
}

br_status br_flight_parse_action(const void *p, size_t n, char **type, const void **body, size_t *bytes,
                                 br_error *err) {
  size_t at = 0;
  pb_field f, name = {.data = (const uint8_t *)""};
  int r;
  *body = "";
  *bytes = 0;
  while ((r = br_pbw_next(p, n, &at, &f)) > 0) {
    if (f.wire != 2) continue;
    if (f.number == 1) name = f;
    if (f.number == 2) *body = f.data, *bytes = f.bytes;
  }
  if (r < 0) return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "a Flight action of %zu bytes is malformed", n);
  if (name.bytes > 255 || memchr(name.data, 0, name.bytes))
    return br_fail(err, BR_INVALID, BR_BLAME_FETCH, "the type of a Flight action is not a name of at most 255 bytes");
  *type = br_strndup((const char *)name.data, name.bytes);
  return BR_OK;
}

br_status br_flight_check_token(const char *token, br_error *err) {
  size_t n = 0;
  while (n <= BR_FLIGHT_TOKEN_BYTES && token[n] > 0x20 && token[n] < 0x7f) n++;
  if (n == 0 || n > BR_FLIGHT_TOKEN_BYTES || token[n])
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "a bearer token is 1 to %d printable ASCII characters without spaces", BR_FLIGHT_TOKEN_BYTES);
  return BR_OK;
}

void br_flight_path_encode(br_buf *out, const char *path) {
  br_pbw_uint(out, 1, DESCRIPTOR_PATH);
  while (*path) {
    size_t n = strcspn(path, "/");
    br_pbw_bytes(out, 3, path, n);
    path += n + (path[n] != 0);
  }
}

br_status br_flight_path_parse(const void *descriptor, size_t n, char *path, size_t cap, br_error *err) {
  size_t at = 0, used = 0;
  uint64_t type = 0;
  bool fits = true;
  pb_field f;
  int r;
  while ((r = br_pbw_next(descriptor, n, &at, &f)) > 0) {
    if (f.number == 1 && f.wire == 0) type = f.value;
    if (f.number != 3 || f.wire != 2) continue;
    size_t slash = used > 0;
    fits = fits && f.bytes + slash < cap - used && !memchr(f.data, 0, f.bytes);
    if (!fits) continue;
    if (slash) path[used++] = '/';
    memcpy(path + used, f.data, f.bytes);
    used += f.bytes;
  }
  path[used] = 0;
  if (r < 0) return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "a Flight descriptor of %zu bytes is malformed", n);
  if (type != DESCRIPTOR_PATH)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "a Flight descriptor must be a path here, this is a command");
  if (!fits) return br_fail(err, BR_INVALID, BR_BLAME_USER, "a Flight path has more than %zu bytes", cap - 1);
  return BR_OK;
}

void br_flight_info_encode(br_buf *out, const void *schema_head, size_t schema_bytes, const void *descriptor,
                           size_t descriptor_bytes, const void *ticket, size_t ticket_bytes, int64_t rows,
                           int64_t bytes) {
  br_buf schema = {0}, t = {0}, endpoint = {0};
  if (schema_bytes) { /* as an encapsulated IPC message: continuation, length, flatbuffer padded to 8 */
    uint32_t padded = (uint32_t)((schema_bytes + 7) / 8 * 8), mark = 0xffffffffu;
    br_buf_add(&schema, &mark, 4);
    br_buf_add(&schema, &padded, 4);
    br_buf_add(&schema, schema_head, schema_bytes);
    while (schema.len < padded + 8u) br_buf_char(&schema, 0);
  }
  br_pbw_bytes(&t, 1, ticket, ticket_bytes);
  br_pbw_bytes(&endpoint, 1, t.data, t.len);
  br_pbw_bytes(out, 1, schema.data, schema.len);
  br_pbw_bytes(out, 2, descriptor, descriptor_bytes);
  br_pbw_bytes(out, 3, endpoint.data, endpoint.len);
  br_pbw_uint(out, 4, (uint64_t)rows);
  br_pbw_uint(out, 5, (uint64_t)bytes);
  br_buf_free(&schema);
  br_buf_free(&t);
  br_buf_free(&endpoint);
}
