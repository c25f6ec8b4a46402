/* SPDX-License-Identifier: Apache-2.0
 * Conversions between the structs of base/ and the generated messages, packing, and checked unpacking. Pure functions, any
 * thread. Bounds: a message is at most BR_MESSAGE_MAX_BYTES on the wire, and at most EXPANDED_MAX_BYTES once unpacked (a
 * stranger's two bytes can make a whole empty sub-message). */
#include "proto/proto.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPANDED_MAX_BYTES ((size_t)256 << 20)

void br_attempt_to_pb(const br_attempt_id *a, Brant__Pb__AttemptId *out) {
  brant__pb__attempt_id__init(out);
  out->query = a->query;
  out->stage = a->stage;
  out->task = a->task;
  out->attempt = a->attempt;
}

br_attempt_id br_attempt_from_pb(const Brant__Pb__AttemptId *a) {
  if (!a) return (br_attempt_id){0};
  uint32_t attempt = a->attempt > UINT16_MAX ? UINT16_MAX : a->attempt;
  return (br_attempt_id){.query = a->query, .stage = a->stage, .task = a->task, .attempt = (uint16_t)attempt};
}

bool br_attempt_equal(const br_attempt_id *a, const br_attempt_id *b) {
  return a->query == b->query && a->stage == b->stage && a->task == b->task && a->attempt == b->attempt;
}

void br_attempt_format(const br_attempt_id *a, char out[64]) {
  snprintf(out, 64, "q%" PRIx64 ".s%u.t%u.a%u", a->query, a->stage, a->task, a->attempt);
}

static Brant__Pb__AttemptId *attempt_copy(const br_attempt_id *a) {
  Brant__Pb__AttemptId *p = br_malloc(sizeof *p);
  br_attempt_to_pb(a, p);
  return p;
}

/* The bytes of s up to its NUL or n, cut before a broken UTF-8 sequence at the end: protobuf strings are UTF-8. */
static size_t utf8_cut(const char *s, size_t n) {
  size_t len = strnlen(s, n), lead = len;
  while (lead > 0 && len - lead < 4 && ((unsigned char)s[lead - 1] & 0xC0) == 0x80) lead--;
  if (lead == 0) return len;
  unsigned char c = (unsigned char)s[lead - 1];
  size_t want = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0;
  return len - lead < want ? lead - 1 : len;
}

Brant__Pb__Error *br_error_to_pb(const br_error *e) {
  Brant__Pb__Error *p = br_malloc(sizeof *p);
  brant__pb__error__init(p);
  p->code = (uint32_t)e->code;
  p->blame = (uint32_t)e->blame;
  p->retryable = e->retryable;
  if (e->has_attempt) p->attempt = attempt_copy(&e->attempt);
  if (e->has_lost) {
    p->lost = br_malloc(sizeof *p->lost);
    brant__pb__map_output_id__init(p->lost);
    p->lost->made_by = attempt_copy(&e->lost.made_by);
    p->lost->worker = e->lost.worker;
    p->lost->incarnation = e->lost.incarnation;
  }
  p->worker = e->worker;
  p->sys_errno = e->sys_errno;
  p->duckdb_type = e->duckdb_type;
  p->line = e->line;
  p->file = br_strndup(e->file, utf8_cut(e->file, sizeof e->file));
  p->message = br_strndup(e->message, utf8_cut(e->message, sizeof e->message));
  return p;
}

static void copy_text(char *out, size_t cap, const char *s) {
  if (!s) s = "";
  size_t n = utf8_cut(s, cap - 1);
  memcpy(out, s, n);
  out[n] = 0;
}

void br_error_from_pb(const Brant__Pb__Error *p, br_error *out) {
  memset(out, 0, sizeof *out);
  if (!p) return;
  /* An error is never a success, whatever the other side wrote; a code of a later version is a bug's as far as we know. */
  bool known = p->code > BR_OK && p->code <= BR_INTERNAL;
  out->code = known ? (br_code)p->code : BR_INTERNAL;
  out->blame = p->blame <= BR_BLAME_INTERNAL ? (br_blame)p->blame : BR_BLAME_INTERNAL;
  out->retryable = p->retryable;
  out->has_attempt = p->attempt != NULL;
  out->attempt = br_attempt_from_pb(p->attempt);
  if (p->lost) {
    out->has_lost = true;
    out->lost.made_by = br_attempt_from_pb(p->lost->made_by);
    out->lost.worker = p->lost->worker;
    out->lost.incarnation = p->lost->incarnation;
  }
  out->worker = p->worker;
  out->sys_errno = p->sys_errno;
  out->duckdb_type = p->duckdb_type;
  out->line = p->line;
  copy_text(out->file, sizeof out->file, p->file);
  copy_text(out->message, sizeof out->message, p->message);
  if (!known && !out->message[0])
    snprintf(out->message, sizeof out->message, "a peer sent an error of unknown code %u without a message", p->code);
}

void br_pb_pack(const ProtobufCMessage *m, br_buf *out) {
  size_t n = protobuf_c_message_get_packed_size(m);
  br_buf_reserve(out, n);
  out->len += protobuf_c_message_pack(m, (uint8_t *)out->data + out->len);
}

/* An allocator with a bound. What it hands out is plain malloc memory, so the default allocator frees it later. */
typedef struct bounded {
  size_t left;
} bounded;

static void *bounded_alloc(void *arg, size_t n) {
  bounded *b = arg;
  if (n > b->left) return NULL;
  b->left -= n;
  return malloc(n);
}

static void bounded_free(void *arg, void *p) {
  (void)arg;
  free(p);
}

ProtobufCMessage *br_pb_unpack(const ProtobufCMessageDescriptor *d, const void *p, size_t n, br_error *err) {
  if (n > BR_MESSAGE_MAX_BYTES) {
    br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "a %s message of %zu bytes is larger than the %u allowed",
            d->short_name, n, BR_MESSAGE_MAX_BYTES);
    return NULL;
  }
  bounded b = {.left = EXPANDED_MAX_BYTES};
  ProtobufCAllocator allocator = {.alloc = bounded_alloc, .free = bounded_free, .allocator_data = &b};
  ProtobufCMessage *m = protobuf_c_message_unpack(d, &allocator, n, n ? p : (const void *)"");
  if (!m) {
    br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL,
            "%zu bytes are not a valid %s message: is the peer another version of brant?", n, d->short_name);
  }
  return m;
}
