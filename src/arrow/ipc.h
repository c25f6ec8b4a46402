/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrow IPC messages, as Flight carries them: `head` is the bare flatbuffer Message (no 0xFFFFFFFF prefix), `body` the
 * buffers, each padded to 64 bytes. Everything read here may come from a stranger: sizes, offsets, nesting and buffer
 * lengths are checked before they are believed; a bad message is BR_CORRUPT, never a crash.
 */
#ifndef BRANT_ARROW_IPC_H
#define BRANT_ARROW_IPC_H

#include "arrow/batch.h"

typedef enum br_codec { BR_CODEC_NONE = 0, BR_CODEC_LZ4 = 1, BR_CODEC_ZSTD = 2 } br_codec;
const char *br_codec_name(br_codec c);
BR_MUST_USE br_status br_codec_parse(const char *name, br_codec *out, br_error *err);

/* Schema message. */
BR_MUST_USE br_status br_ipc_encode_schema(const br_schema *s, br_buf *head, br_error *err);
BR_MUST_USE br_status br_ipc_decode_schema(const void *head, size_t head_bytes, br_schema **out, br_error *err);

/* A batch of buffers to encode: what column builders (columns.h) or an ArrowArray hold, in Arrow order (depth first). */
typedef struct br_ipc_node {
  int64_t length, null_count;
} br_ipc_node;
typedef struct br_ipc_piece {
  const void *data;
  uint64_t bytes;
} br_ipc_piece; /* data NULL with bytes 0: absent buffer */
/* Append one record-batch message: the flatbuffer to head, the (compressed) padded buffers to body. Both are appended to,
 * so that a caller can keep several messages in one buffer; lengths are multiples of 8 (head) and 64 (body, whose start
 * must be a multiple of 64 in the buffer). A buffer that compression does not shrink is stored with length prefix -1, as the format says. */
BR_MUST_USE br_status br_ipc_encode_batch(int64_t rows, const br_ipc_node *nodes, size_t n_nodes,
                                          const br_ipc_piece *pieces, size_t n_pieces, br_codec codec, br_buf *head,
                                          br_buf *body, br_error *err);
/* The message alone, uncompressed, for a body that the caller writes: the pieces, each followed by zeros up to a multiple of
 * BR_IPC_ALIGN_BYTES. */
#define BR_IPC_ALIGN_BYTES 64u
BR_MUST_USE br_status br_ipc_encode_head(int64_t rows, const br_ipc_node *nodes, size_t n_nodes,
                                         const br_ipc_piece *pieces, size_t n_pieces, br_buf *head,
                                         uint64_t *body_bytes, br_error *err);
/* The same for an existing batch (any offset; dictionary arrays are refused with BR_UNSUPPORTED). */
BR_MUST_USE br_status br_ipc_encode_array(const br_batch *b, br_codec codec, br_buf *head, br_buf *body, br_error *err);

/* Who keeps the body alive while batches point into it. */
typedef struct br_ipc_body {
  const void *data;
  uint64_t bytes;
  void (*release)(
      void *owner); /* called once, when the last batch over it is gone, or before an error returns; may be NULL */
  void *owner;
} br_ipc_body;
/* Decode one record-batch message. Uncompressed, 8-byte aligned bodies are pointed into (no copy); compressed buffers are
 * decompressed into memory of the batch. Peeks: rows without decoding the body. */
BR_MUST_USE br_status br_ipc_decode_batch(br_schema *schema, const void *head, size_t head_bytes, br_ipc_body body,
                                          br_batch **out, br_error *err);
BR_MUST_USE br_status br_ipc_peek(const void *head, size_t head_bytes, bool *is_schema, int64_t *rows,
                                  uint64_t *body_bytes, br_error *err);

/* A whole IPC stream (with 0xFFFFFFFF prefixes) to a file descriptor: schema, batches, end mark. For --format arrow. */
BR_MUST_USE br_status br_ipc_frame(const br_buf *head, const br_buf *body, br_buf *out,
                                   br_error *err); /* appends; body may be NULL */
extern const unsigned char br_ipc_end_mark[8];

#endif
