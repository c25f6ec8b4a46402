/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: decode one record-batch message from outside into a batch.
 *   Ours rather than nanoarrow's: that decoder keeps a tree per schema that threads can't share, allocates what a message
 *   claims, and asks for its body in its own buffer type. Checked here: every count, length and buffer size against the
 *   schema; offsets monotonic and inside their data; union type ids known; strings UTF-8. Not checked: values (a decimal
 *   beyond its precision), and the innards of extension types.
 * Order of calls: any.
 * Threads: no state but the codec contexts of the thread; the schema is shared.
 * Bounds: BR_IPC_MAX_ROWS rows, BR_IPC_MAX_DECODED_BYTES of memory for one batch (decompressed, or copied for alignment).
 */
#include "arrow/codec.h"
#include "arrow/ipc_check.h"
#include "arrow/ipc_message.h"
#include "arrow/layout.h"
#include "arrow/tree.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

#define BR_IPC_MAX_ROWS INT32_MAX
#define BR_IPC_MAX_LENGTH ((int64_t)1 << 40) /* of a nested column: a list's values */
#define BR_IPC_MAX_DECODED_BYTES ((uint64_t)8 << 30)

typedef struct piece {
  const uint8_t *data; /* in the body */
  uint64_t bytes;
  uint64_t decoded_bytes; /* after decompression */
  bool compressed;
} piece;

/* What a decoded batch holds. */
typedef struct held {
  br_ipc_body body; /* release NULL once it isn't needed */
  void *memory;
} held;

typedef struct decoder {
  const br_layout *layout;
  const br_ipc_body *body;
  uint64_t body_bytes;
  br_codec codec;
  int64_t rows;
  ns(FieldNode_vec_t) nodes;
  ns(Buffer_vec_t) buffers;
  piece *pieces;
  uint64_t memory_bytes;
  bool uses_body;
  br_tree *tree;
  br_error *err;
} decoder;

static const _Alignas(64) uint8_t nothing[64]; /* stands for empty buffers, and for the one offset of an empty column */

static br_status corrupt(decoder *d, const char *why) { return br_message_corrupt(d->err, why); }

static br_status corrupt_column(decoder *d, const br_lay_node *n, const char *why) {
  return br_fail(d->err, BR_CORRUPT, BR_BLAME_FETCH, "Arrow message: column '%.200s' ('%.100s'): %s", br_lay_name(n),
                 n->schema->format, why);
}

static void body_release(br_ipc_body *b) {
  if (b->release != NULL) b->release(b->owner);
  b->release = NULL;
}

static void held_free(void *arg) {
  held *h = arg;
  body_release(&h->body);
  free(h->memory);
  free(h);
}

static uint64_t round64(uint64_t n) { return (n + 63) & ~(uint64_t)63; }

/* ---- the head */

static br_status read_codec(decoder *d, ns(RecordBatch_table_t) batch) {
  ns(BodyCompression_table_t) c = ns(RecordBatch_compression(batch));
  d->codec = BR_CODEC_NONE;
  if (c == NULL) return BR_OK;
  if (ns(BodyCompression_method(c)) != ns(BodyCompressionMethod_BUFFER))
    return corrupt(d, "unknown way of compression");
  switch (ns(BodyCompression_codec(c))) {
    case ns(CompressionType_LZ4_FRAME): d->codec = BR_CODEC_LZ4; return BR_OK;
    case ns(CompressionType_ZSTD): d->codec = BR_CODEC_ZSTD; return BR_OK;
    default: return corrupt(d, "unknown codec");
  }
}

static br_status read_head(decoder *d, const br_message *m) {
  if (m->type != ns(MessageHeader_RecordBatch)) return corrupt(d, "a record batch was expected");
  ns(RecordBatch_table_t) batch = (ns(RecordBatch_table_t))ns(Message_header(m->table));
  d->rows = ns(RecordBatch_length(batch));
  d->nodes = ns(RecordBatch_nodes(batch));
  d->buffers = ns(RecordBatch_buffers(batch));
  d->body_bytes = m->body_bytes;
  if (d->rows < 0 || d->rows > BR_IPC_MAX_ROWS) return corrupt(d, "its row count is out of range");
  if (ns(FieldNode_vec_len(d->nodes)) != d->layout->n_nodes - 1)
    return corrupt(d, "its columns don't match the schema");
  if (ns(Buffer_vec_len(d->buffers)) != d->layout->n_buffers) return corrupt(d, "its buffers don't match the schema");
  if (d->body_bytes > d->body->bytes) return corrupt(d, "its body is shorter than it says");
  return read_codec(d, batch);
}

/* ---- the buffers */

static int64_t read_prefix(const uint8_t *p) {
  uint64_t v = 0;
  for (int i = 0; i < 8; i++) v |= (uint64_t)p[i] << (8 * i);
  return (int64_t)v;
}

static br_status find_piece(decoder *d, const struct ns(Buffer) * b, piece *p) {
  if (b->offset < 0 || b->length < 0 || (uint64_t)b->offset > d->body_bytes ||
      (uint64_t)b->length > d->body_bytes - (uint64_t)b->offset)
    return corrupt(d, "a buffer lies outside of its body");
  *p = (piece){.bytes = (uint64_t)b->length};
  if (p->bytes == 0) return BR_OK;
  p->data = (const uint8_t *)d->body->data + b->offset;
  p->decoded_bytes = p->bytes;
  if (d->codec == BR_CODEC_NONE) return BR_OK;
  if (p->bytes < 8) return corrupt(d, "a compressed buffer has no length");
  int64_t size = read_prefix(p->data);
  p->data += 8;
  p->bytes -= 8;
  p->decoded_bytes = size == -1 ? p->bytes : (uint64_t)size;
  p->compressed = size > 0;
  if (size < -1 || p->decoded_bytes > BR_IPC_MAX_DECODED_BYTES ||
      (p->compressed && !br_codec_plausible(d->codec, p->data, p->bytes, p->decoded_bytes)))
    return corrupt(d, "a compressed buffer claims an impossible length");
  return BR_OK;
}

static bool needs_memory(const piece *p) {
  return p->decoded_bytes != 0 && (p->compressed || (uintptr_t)p->data % 8 != 0);
}

static br_status find_pieces(decoder *d) {
  size_t n = d->layout->n_buffers;
  d->pieces = br_calloc(n + 1, sizeof *d->pieces);
  for (size_t i = 0; i < n; i++) {
    piece *p = &d->pieces[i];
    BR_TRY(find_piece(d, ns(Buffer_vec_at(d->buffers, i)), p));
    if (needs_memory(p))
      d->memory_bytes += round64(p->decoded_bytes);
    else if (p->decoded_bytes != 0)
      d->uses_body = true;
    if (d->memory_bytes > BR_IPC_MAX_DECODED_BYTES)
      return corrupt(d, "it decompresses to more than this version reads");
  }
  return BR_OK;
}

/* Decompress, or copy to an aligned place, what needs it. */
static br_status load_pieces(decoder *d, held *h) {
  if (d->memory_bytes == 0) return BR_OK;
  h->memory = aligned_alloc(64, d->memory_bytes);
  if (h->memory == NULL)
    return br_fail(d->err, BR_OUT_OF_MEMORY, BR_BLAME_WORKER, "no memory for an Arrow batch of %llu bytes",
                   (unsigned long long)d->memory_bytes);
  uint8_t *to = h->memory;
  for (size_t i = 0; i < d->layout->n_buffers; i++) {
    piece *p = &d->pieces[i];
    if (!needs_memory(p)) continue;
    if (p->compressed)
      BR_TRY(br_codec_decompress(d->codec, p->data, p->bytes, to, p->decoded_bytes, d->err));
    else
      memcpy(to, p->data, p->bytes);
    p->data = to;
    to += round64(p->decoded_bytes);
  }
  return BR_OK;
}

/* ---- the columns */

static const void *buffer(const decoder *d, const br_lay_node *n, unsigned i, uint64_t *bytes) {
  const piece *p = &d->pieces[n->first_buffer + i];
  *bytes = p->decoded_bytes;
  return p->decoded_bytes != 0 ? p->data : nothing;
}

/* Buffer i, which must hold at least `need` bytes. */
static br_status want(decoder *d, const br_lay_node *n, struct ArrowArray *a, unsigned i, uint64_t need) {
  uint64_t bytes;
  a->buffers[i] = buffer(d, n, i, &bytes);
  return bytes < need ? corrupt_column(d, n, "a buffer is too short for its length") : BR_OK;
}

static br_status want_validity(decoder *d, const br_lay_node *n, struct ArrowArray *a) {
  if (a->null_count == 0) return BR_OK; /* the pointer stays NULL: no bitmap */
  return want(d, n, a, 0, ((uint64_t)a->length + 7) / 8);
}

static br_status want_fixed(decoder *d, const br_lay_node *n, struct ArrowArray *a) {
  uint64_t bytes;
  if (__builtin_mul_overflow((uint64_t)a->length, (uint64_t)n->width, &bytes))
    return corrupt_column(d, n, "its length is out of range");
  return want(d, n, a, 1, bytes);
}

/* Offsets in buffer 1, into something of `limit` entries. */
static br_status want_offsets(decoder *d, const br_lay_node *n, struct ArrowArray *a, int64_t limit) {
  uint64_t width = n->wide ? 8 : 4;
  if (a->length == 0) { /* writers may leave out the one offset of an empty column */
    a->buffers[1] = nothing;
    return BR_OK;
  }
  BR_TRY(want(d, n, a, 1, ((uint64_t)a->length + 1) * width));
  bool good = n->wide ? br_check_offsets64(a->buffers[1], a->length, limit)
                      : br_check_offsets32(a->buffers[1], a->length, limit);
  return good ? BR_OK : corrupt_column(d, n, "its offsets fall or point outside of its data");
}

static br_status want_bytes(decoder *d, const br_lay_node *n, struct ArrowArray *a) {
  uint64_t bytes;
  a->buffers[2] = buffer(d, n, 2, &bytes);
  BR_TRY(want_offsets(d, n, a, (int64_t)bytes));
  if (!n->utf8) return BR_OK;
  bool good = n->wide ? br_check_utf8_64(a->buffers[2], a->buffers[1], a->length, a->buffers[0])
                      : br_check_utf8_32(a->buffers[2], a->buffers[1], a->length, a->buffers[0]);
  return good ? BR_OK : corrupt_column(d, n, "a string isn't valid UTF-8");
}

/* Type ids (and a dense union's offsets) after the children are there. */
static br_status want_union(decoder *d, const br_lay_node *n, struct ArrowArray *a) {
  int64_t limits[128];
  for (int i = 0; i < 128; i++) limits[i] = -1;
  for (uint32_t i = 0; i < n->n_children; i++) limits[n->type_ids[i]] = a->children[i]->length;
  BR_TRY(want(d, n, a, 0, (uint64_t)a->length));
  if (n->kind == BR_LAY_DENSE) BR_TRY(want(d, n, a, 1, (uint64_t)a->length * 4));
  const int8_t *ids = a->buffers[0];
  const int32_t *offsets = n->kind == BR_LAY_DENSE ? a->buffers[1] : NULL;
  for (int64_t i = 0; i < a->length; i++) {
    if (ids[i] < 0 || limits[ids[i]] < 0) return corrupt_column(d, n, "it has a type id that its type doesn't know");
    if (offsets != NULL && (offsets[i] < 0 || offsets[i] >= limits[ids[i]]))
      return corrupt_column(d, n, "an offset points outside of its child");
  }
  return BR_OK;
}

static br_status build(decoder *d, uint32_t index, int64_t min_length, struct ArrowArray **out);

static br_status build_children(decoder *d, uint32_t index, struct ArrowArray *a, int64_t min_length) {
  uint32_t child = index + 1;
  for (int64_t i = 0; i < a->n_children; i++) {
    BR_TRY(build(d, child, min_length, &a->children[i]));
    child = d->layout->nodes[child].next;
  }
  return BR_OK;
}

static br_status build_buffers(decoder *d, uint32_t index, const br_lay_node *n, struct ArrowArray *a) {
  int64_t values;
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_NULL: return BR_OK;
    case BR_LAY_BOOL: BR_TRY(want_validity(d, n, a)); return want(d, n, a, 1, ((uint64_t)a->length + 7) / 8);
    case BR_LAY_FIXED: BR_TRY(want_validity(d, n, a)); return want_fixed(d, n, a);
    case BR_LAY_BYTES: BR_TRY(want_validity(d, n, a)); return want_bytes(d, n, a);
    case BR_LAY_LIST:
      BR_TRY(want_validity(d, n, a));
      BR_TRY(build_children(d, index, a, 0));
      return want_offsets(d, n, a, a->children[0]->length);
    case BR_LAY_STRUCT: BR_TRY(want_validity(d, n, a)); return build_children(d, index, a, a->length);
    case BR_LAY_ARRAY:
      BR_TRY(want_validity(d, n, a));
      if (__builtin_mul_overflow(a->length, (int64_t)n->width, &values))
        return corrupt_column(d, n, "its length is out of range");
      return build_children(d, index, a, values);
    case BR_LAY_SPARSE: BR_TRY(build_children(d, index, a, a->length)); return want_union(d, n, a);
    case BR_LAY_DENSE: BR_TRY(build_children(d, index, a, 0)); return want_union(d, n, a);
  }
  return corrupt_column(d, n, "unknown layout");
}

static br_status build(decoder *d, uint32_t index, int64_t min_length, struct ArrowArray **out) {
  const br_lay_node *n = &d->layout->nodes[index];
  const struct ns(FieldNode) *node = ns(FieldNode_vec_at(d->nodes, index - 1));
  struct ArrowArray *a = *out = br_tree_add(d->tree, n->n_children, n->n_buffers);
  a->length = node->length;
  a->null_count = n->kind == BR_LAY_NULL ? node->length : node->null_count;
  if (n->kind == BR_LAY_SPARSE || n->kind == BR_LAY_DENSE) a->null_count = 0;
  if (a->length < min_length || a->length > BR_IPC_MAX_LENGTH)
    return corrupt_column(d, n, "its length is out of range");
  if (a->null_count < 0 || a->null_count > a->length) return corrupt_column(d, n, "its NULL count is out of range");
  return build_buffers(d, index, n, a);
}

static br_status build_root(decoder *d) {
  const br_layout *l = d->layout;
  struct ArrowArray *root = br_tree_add(d->tree, l->nodes[0].n_children, 1);
  root->length = d->rows;
  BR_TRY(build_children(d, 0, root, d->rows));
  for (int64_t i = 0; i < root->n_children; i++)
    if (root->children[i]->length != d->rows) return corrupt(d, "a column has another length than the batch");
  return BR_OK;
}

/* ---- all */

static br_status decode(decoder *d, held *h, struct ArrowArray *out) {
  const br_layout *l = d->layout;
  BR_TRY(find_pieces(d));
  BR_TRY(load_pieces(d, h));
  d->tree = br_tree_new(l->n_nodes, l->n_nodes - 1, l->n_buffers + 1, held_free, h);
  br_status status = build_root(d);
  if (status == BR_OK)
    br_tree_finish(d->tree, out);
  else
    br_tree_discard(d->tree);
  return status;
}

br_status br_ipc_decode_batch(br_schema *schema, const void *head, size_t head_bytes, br_ipc_body body, br_batch **out,
                              br_error *err) {
  decoder d = {.layout = br_schema_layout(schema), .body = &body, .err = err};
  held *h = br_calloc(1, sizeof *h);
  h->body = body;
  br_message m = {0};
  struct ArrowArray array = {0};
  br_status status;
  BR_TRY_GOTO(br_layout_check(d.layout, err));
  BR_TRY_GOTO(br_message_open(head, head_bytes, &m, err));
  BR_TRY_GOTO(read_head(&d, &m));
  BR_TRY_GOTO(decode(&d, h, &array));
  if (!d.uses_body) body_release(&h->body);
  status =
      br_batch_new(schema, &array, d.memory_bytes + (d.uses_body ? body.bytes : 0) + br_tree_bytes(d.tree), out, err);
  h = NULL; /* the batch's, or gone with it */
done:
  if (h != NULL) held_free(h);
  free(d.pieces);
  br_message_close(&m);
  return status;
}
