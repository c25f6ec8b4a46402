/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: write one record-batch message from buffers that somebody else laid out (columns.c, ipc_array.c).
 * Order of calls: any.
 * Threads: no state but the codec contexts of the thread.
 * Bounds: a buffer list of UINT32_MAX / 16 entries (the flatbuffer's size); the body is as large as its pieces.
 */
#include "arrow/codec.h"
#include "arrow/ipc_message.h"
#include "base/mem.h"
#include <flatcc/flatcc_builder.h>
#include <stdlib.h>
#include <string.h>

#define BODY_ALIGN BR_IPC_ALIGN_BYTES
#define PREFIX_BYTES 8   /* uncompressed length before each compressed buffer */
#define COMPRESS_FROM 64 /* smaller buffers take a cache line anyway: stored */

_Static_assert(sizeof(br_ipc_node) == sizeof(struct ns(FieldNode)), "nodes are handed to flatcc as they are");

static size_t round_up(size_t n) { return (n + BODY_ALIGN - 1) & ~(size_t)(BODY_ALIGN - 1); }

static void pad(br_buf *body, size_t from) {
  size_t end = from + round_up(body->len - from);
  br_buf_reserve(body, end - body->len);
  memset(body->data + body->len, 0, end - body->len);
  body->len = end;
}

static void put_prefix(char *p, int64_t v) {
  for (int i = 0; i < PREFIX_BYTES; i++) p[i] = (char)((uint64_t)v >> (8 * i));
}

/* Append one buffer, compressed if that makes it smaller. *length: its bytes without padding. */
static br_status add_compressed(const br_ipc_piece *p, br_codec codec, br_buf *body, int64_t *length, br_error *err) {
  size_t written = p->bytes;
  if (p->bytes >= COMPRESS_FROM) {
    size_t room = br_codec_bound(codec, p->bytes);
    br_buf_reserve(body, PREFIX_BYTES + room);
    BR_TRY(br_codec_compress(codec, p->data, p->bytes, body->data + body->len + PREFIX_BYTES, room, &written, err));
  }
  bool stored = written >= p->bytes;
  br_buf_reserve(body, PREFIX_BYTES + p->bytes);
  put_prefix(body->data + body->len, stored ? -1 : (int64_t)p->bytes);
  body->len += PREFIX_BYTES;
  if (stored)
    br_buf_add(body, p->data, p->bytes);
  else
    body->len += written;
  *length = (int64_t)(PREFIX_BYTES + (stored ? p->bytes : written));
  return BR_OK;
}

static br_status add_body(const br_ipc_piece *pieces, size_t n, br_codec codec, br_buf *body, struct ns(Buffer) * out,
                          br_error *err) {
  size_t start = body->len, total = 0;
  for (size_t i = 0; i < n; i++) total += round_up(pieces[i].bytes + (codec != BR_CODEC_NONE ? PREFIX_BYTES : 0));
  if (codec == BR_CODEC_NONE) br_buf_reserve(body, total);
  for (size_t i = 0; i < n; i++) {
    out[i].offset = (int64_t)(body->len - start);
    out[i].length = (int64_t)pieces[i].bytes;
    if (pieces[i].bytes == 0) continue;
    if (codec == BR_CODEC_NONE)
      br_buf_add(body, pieces[i].data, pieces[i].bytes);
    else
      BR_TRY(add_compressed(&pieces[i], codec, body, &out[i].length, err));
    pad(body, start);
  }
  return BR_OK;
}

static bool build_batch(flatcc_builder_t *b, int64_t rows, const br_ipc_node *nodes, size_t n_nodes,
                        const struct ns(Buffer) * buffers, size_t n_buffers, br_codec codec) {
  if (ns(Message_header_RecordBatch_start(b)) != 0 || ns(RecordBatch_length_add(b, rows)) != 0) return false;
  if (ns(RecordBatch_nodes_create(b, (const struct ns(FieldNode) *)nodes, n_nodes)) != 0) return false;
  if (ns(RecordBatch_buffers_create(b, buffers, n_buffers)) != 0) return false;
  if (codec != BR_CODEC_NONE) {
    int type = codec == BR_CODEC_LZ4 ? ns(CompressionType_LZ4_FRAME) : ns(CompressionType_ZSTD);
    if (ns(RecordBatch_compression_create(b, (ns(CompressionType_enum_t))type, ns(BodyCompressionMethod_BUFFER))) != 0)
      return false;
  }
  return ns(Message_header_RecordBatch_end(b)) == 0;
}

static br_status add_head(int64_t rows, const br_ipc_node *nodes, size_t n_nodes, const struct ns(Buffer) * buffers,
                          size_t n_buffers, br_codec codec, uint64_t body_bytes, br_buf *head, br_error *err) {
  flatcc_builder_t b;
  br_status status = BR_OK;
  if (flatcc_builder_init(&b) != 0)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_WORKER, "no memory to encode an Arrow message");
  bool ok = ns(Message_start_as_root(&b)) == 0 && ns(Message_version_add(&b, ns(MetadataVersion_V5))) == 0 &&
            build_batch(&b, rows, nodes, n_nodes, buffers, n_buffers, codec) &&
            ns(Message_bodyLength_add(&b, (int64_t)body_bytes)) == 0 && ns(Message_end_as_root(&b)) != 0;
  size_t bytes = flatcc_builder_get_buffer_size(&b), padded = (bytes + 7) & ~(size_t)7;
  if (!ok || bytes > BR_IPC_MAX_HEAD_BYTES) {
    status =
        br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_WORKER, "cannot encode an Arrow message of %zu buffers", n_buffers);
    goto done;
  }
  br_buf_reserve(head, padded);
  memset(head->data + head->len + padded - 8, 0, 8);
  BR_ASSERT(flatcc_builder_copy_buffer(&b, head->data + head->len, padded) != NULL);
  head->len += padded;
done:
  flatcc_builder_clear(&b);
  return status;
}

br_status br_ipc_encode_batch(int64_t rows, const br_ipc_node *nodes, size_t n_nodes, const br_ipc_piece *pieces,
                              size_t n_pieces, br_codec codec, br_buf *head, br_buf *body, br_error *err) {
  BR_ASSERT(body->len % BODY_ALIGN == 0 && head->len % 8 == 0);
  size_t body_start = body->len;
  struct ns(Buffer) *buffers = br_malloc((n_pieces + 1) * sizeof *buffers);
  br_status status = add_body(pieces, n_pieces, codec, body, buffers, err);
  if (status == BR_OK)
    status = add_head(rows, nodes, n_nodes, buffers, n_pieces, codec, body->len - body_start, head, err);
  if (status != BR_OK) body->len = body_start;
  free(buffers);
  return status;
}

br_status br_ipc_encode_head(int64_t rows, const br_ipc_node *nodes, size_t n_nodes, const br_ipc_piece *pieces,
                             size_t n_pieces, br_buf *head, uint64_t *body_bytes, br_error *err) {
  BR_ASSERT(head->len % 8 == 0);
  struct ns(Buffer) *buffers = br_malloc((n_pieces + 1) * sizeof *buffers);
  uint64_t at = 0;
  for (size_t i = 0; i < n_pieces; i++) {
    buffers[i].offset = (int64_t)at;
    buffers[i].length = (int64_t)pieces[i].bytes;
    at += round_up(pieces[i].bytes);
  }
  br_status status = add_head(rows, nodes, n_nodes, buffers, n_pieces, BR_CODEC_NONE, at, head, err);
  *body_bytes = at;
  free(buffers);
  return status;
}
