/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: open Message flatbuffers from outside: bounds, verification, version; br_ipc_peek; the stream's framing.
 * Order of calls: br_message_open, accessors, br_message_close.
 * Threads: no state.
 * Bounds: BR_IPC_MAX_HEAD_BYTES a message head.
 */
#include "arrow/ipc_message.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

br_status br_message_corrupt(br_error *err, const char *why) {
  return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "Arrow message: %s", why);
}

static br_status verify(br_message *m, size_t bytes, br_error *err) {
  BR_TRY(br_fb_bound(m->bytes, bytes, err));
  int code = ns(Message_verify_as_root(m->bytes, bytes));
  if (code != flatcc_verify_ok) return br_message_corrupt(err, flatcc_verify_error_string(code));
  m->table = ns(Message_as_root(m->bytes));
  m->type = ns(Message_header_type(m->table));
  int version = ns(Message_version(m->table));
  if (version != ns(MetadataVersion_V4) && version != ns(MetadataVersion_V5))
    return br_message_corrupt(err, "its metadata version is neither V4 nor V5");
  if (ns(Message_header(m->table)) == NULL) return br_message_corrupt(err, "it has no header");
  int64_t body = ns(Message_bodyLength(m->table));
  if (body < 0) return br_message_corrupt(err, "its body length is negative");
  m->body_bytes = (uint64_t)body;
  return BR_OK;
}

br_status br_message_open(const void *head, size_t head_bytes, br_message *out, br_error *err) {
  *out = (br_message){.bytes = head};
  if (head == NULL || head_bytes < 8) return br_message_corrupt(err, "its head is too short");
  if (head_bytes > BR_IPC_MAX_HEAD_BYTES) return br_message_corrupt(err, "its head is larger than this version reads");
  if ((uintptr_t)head % 8 != 0) {
    out->copy = br_malloc(head_bytes);
    out->bytes = memcpy(out->copy, head, head_bytes);
  }
  br_status status = verify(out, head_bytes, err);
  if (status != BR_OK) br_message_close(out);
  return status;
}

void br_message_close(br_message *m) {
  free(m->copy);
  *m = (br_message){0};
}

br_status br_ipc_peek(const void *head, size_t head_bytes, bool *is_schema, int64_t *rows, uint64_t *body_bytes,
                      br_error *err) {
  br_message m;
  BR_TRY(br_message_open(head, head_bytes, &m, err));
  br_status status = BR_OK;
  *is_schema = m.type == ns(MessageHeader_Schema);
  *rows = 0;
  *body_bytes = m.body_bytes;
  if (m.type == ns(MessageHeader_RecordBatch))
    *rows = ns(RecordBatch_length((ns(RecordBatch_table_t))ns(Message_header(m.table))));
  else if (!*is_schema)
    status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "Arrow message of type '%s': only schemas and record batches are read",
                     ns(MessageHeader_type_name(m.type)));
  if (*rows < 0) status = br_message_corrupt(err, "its row count is negative");
  br_message_close(&m);
  return status;
}

const unsigned char br_ipc_end_mark[8] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};

br_status br_ipc_frame(const br_buf *head, const br_buf *body, br_buf *out, br_error *err) {
  uint32_t padded = (uint32_t)((head->len + 7) & ~(size_t)7);
  if (head->len == 0 || head->len > BR_IPC_MAX_HEAD_BYTES)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot frame an Arrow message with a head of %zu bytes",
                   head->len);
  static const char zeros[8] = {0};
  unsigned char prefix[8] = {0xff, 0xff, 0xff, 0xff};
  for (int i = 0; i < 4; i++) prefix[4 + i] = (unsigned char)(padded >> (8 * i));
  br_buf_reserve(out, 8 + padded + (body != NULL ? body->len : 0));
  br_buf_add(out, prefix, 8);
  br_buf_add(out, head->data, head->len);
  br_buf_add(out, zeros, padded - head->len);
  if (body != NULL) br_buf_add(out, body->data, body->len);
  return BR_OK;
}
