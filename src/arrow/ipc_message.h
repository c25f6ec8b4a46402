/* SPDX-License-Identifier: Apache-2.0
 * Internal to arrow/: a flatbuffer Message from outside, verified, and the generated accessors. */
#ifndef BRANT_ARROW_IPC_MESSAGE_H
#define BRANT_ARROW_IPC_MESSAGE_H

#include "arrow/ipc.h"
#include <nanoarrow/ipc/flatcc_generated.h>

#define ns(x) FLATBUFFERS_WRAP_NAMESPACE(org_apache_arrow_flatbuf, x)

#define BR_IPC_MAX_HEAD_BYTES (64u << 20)
/* What a schema may unfold to: flatbuffers may share parts, so a small one can stand for a huge one. */
#define BR_IPC_MAX_SCHEMA_BYTES (64u << 20)

typedef struct br_message {
  void *copy;        /* free it: head, moved to an aligned place, or NULL */
  const void *bytes; /* the aligned flatbuffer */
  ns(Message_table_t) table;
  ns(MessageHeader_union_type_t) type; /* its header is there */
  uint64_t body_bytes;
} br_message;

/* Verify and open. On failure there's nothing to close. */
BR_MUST_USE br_status br_message_open(const void *head, size_t head_bytes, br_message *out, br_error *err);
void br_message_close(br_message *m);
br_status br_message_corrupt(br_error *err, const char *why);

/* In fb_bound.c: bounds-checked walk that keeps the generated verifier, which follows shared parts again and again, from
 * running for ever, and that refuses what nanoarrow's schema decoder takes for granted (types, keys and values present). */
BR_MUST_USE br_status br_fb_bound(const uint8_t *buf, size_t size, br_error *err);

#endif
