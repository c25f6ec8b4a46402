/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: encode an existing Arrow array: cut its buffers to its offset and length, then br_ipc_encode_batch.
 *   A slice keeps the buffers of the whole and says where it starts, at every level; a message has no offsets, so bitmaps
 *   are shifted and list and string offsets start at 0 again (both copied only if they must).
 * Order of calls: any.
 * Threads: the batch is only read.
 * Bounds: temporary copies of bitmaps, offsets of what is encoded.
 */
#include "arrow/ipc.h"
#include "arrow/layout.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

typedef struct cut {
  const br_layout *layout;
  br_ipc_node *nodes;
  br_ipc_piece *pieces;
  size_t n_nodes, n_pieces;
  void **temps;
  size_t n_temps, cap_temps;
  br_error *err;
} cut;

static void *temp(cut *c, size_t bytes) {
  br_grow((void **)&c->temps, &c->cap_temps, c->n_temps, sizeof *c->temps);
  return c->temps[c->n_temps++] = br_malloc(bytes + 1);
}

static void add_piece(cut *c, const void *data, uint64_t bytes) {
  c->pieces[c->n_pieces++] = (br_ipc_piece){data, bytes};
}

static const void *at(const void *p, uint64_t bytes) { return (const char *)p + bytes; }

/* Bits [start, start + n) of a bitmap, as a piece. */
static void add_bits(cut *c, const uint8_t *bits, int64_t start, int64_t n) {
  uint64_t bytes = ((uint64_t)n + 7) / 8;
  if (start % 8 == 0 || n == 0) {
    add_piece(c, bits + start / 8, bytes);
    return;
  }
  uint8_t *out = temp(c, bytes);
  unsigned shift = (unsigned)(start % 8);
  const uint8_t *in = bits + start / 8;
  uint64_t last = (uint64_t)(start % 8 + n - 1) / 8; /* the last byte of `in` that holds one of the bits */
  for (uint64_t i = 0; i < bytes; i++) {
    unsigned high = i + 1 <= last ? in[i + 1] : 0;
    out[i] = (uint8_t)((in[i] | high << 8) >> shift);
  }
  add_piece(c, out, bytes);
}

/* The validity piece and the node. */
static void add_validity(cut *c, const br_lay_node *n, const struct ArrowArray *a, int64_t start, int64_t length) {
  br_ipc_node *node = &c->nodes[c->n_nodes++];
  node->length = length;
  if (n->kind == BR_LAY_NULL) node->null_count = length;
  if (n->kind == BR_LAY_NULL || n->kind == BR_LAY_SPARSE || n->kind == BR_LAY_DENSE) return;
  const uint8_t *bits = a->null_count == 0 ? NULL : a->buffers[0];
  if (bits != NULL) node->null_count = length - ArrowBitCountSet(bits, start, length);
  if (node->null_count == 0)
    add_piece(c, NULL, 0);
  else
    add_bits(c, bits, start, length);
}

/* Offsets [start, start + length], from 0 again. *first and *last: what they span in the data or child. */
static void add_offsets(cut *c, const void *offsets, bool wide, int64_t start, int64_t length, int64_t *first,
                        int64_t *last) {
  static const int64_t zero = 0;
  *first = *last = 0;
  if (length == 0) {
    add_piece(c, &zero, wide ? 8 : 4);
    return;
  }
  if (wide) {
    const int64_t *in = (const int64_t *)offsets + start;
    *first = in[0];
    *last = in[length];
    int64_t *out = in[0] == 0 ? NULL : temp(c, ((uint64_t)length + 1) * 8);
    for (int64_t i = 0; out != NULL && i <= length; i++) out[i] = in[i] - in[0];
    add_piece(c, out != NULL ? out : in, ((uint64_t)length + 1) * 8);
    return;
  }
  const int32_t *in = (const int32_t *)offsets + start;
  *first = in[0];
  *last = in[length];
  int32_t *out = in[0] == 0 ? NULL : temp(c, ((uint64_t)length + 1) * 4);
  for (int64_t i = 0; out != NULL && i <= length; i++) out[i] = in[i] - in[0];
  add_piece(c, out != NULL ? out : in, ((uint64_t)length + 1) * 4);
}

static br_status mismatch(cut *c, const br_lay_node *n) {
  return br_fail(c->err, BR_INVALID, BR_BLAME_USER, "Arrow array of column '%s' doesn't match its schema ('%s')",
                 br_lay_name(n), n->schema->format);
}

static br_status add_column(cut *c, uint32_t index, const struct ArrowArray *a, int64_t start, int64_t length);

/* Every child from its own offset + start. */
static br_status add_children(cut *c, uint32_t index, const struct ArrowArray *a, int64_t start, int64_t length) {
  uint32_t child = index + 1;
  for (uint32_t i = 0; i < c->layout->nodes[index].n_children; i++) {
    BR_TRY(add_column(c, child, a->children[i], a->children[i]->offset + start, length));
    child = c->layout->nodes[child].next;
  }
  return BR_OK;
}

static br_status add_dense(cut *c, uint32_t index, const struct ArrowArray *a, int64_t start, int64_t length) {
  add_piece(c, at(a->buffers[0], (uint64_t)start), (uint64_t)length);
  add_piece(c, at(a->buffers[1], (uint64_t)start * 4), (uint64_t)length * 4);
  uint32_t child = index + 1;
  for (uint32_t i = 0; i < c->layout->nodes[index].n_children; i++) {
    BR_TRY(add_column(c, child, a->children[i], a->children[i]->offset, a->children[i]->length));
    child = c->layout->nodes[child].next;
  }
  return BR_OK;
}

/* The buffers that `length` rows need are there (string data may be NULL when all strings are empty). */
static bool has_buffers(const br_lay_node *n, const struct ArrowArray *a, int64_t length) {
  if (length == 0) return true;
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_BOOL:
    case BR_LAY_BYTES:
    case BR_LAY_LIST: return a->buffers[1] != NULL;
    case BR_LAY_FIXED: return a->buffers[1] != NULL || n->width == 0;
    case BR_LAY_SPARSE: return a->buffers[0] != NULL;
    case BR_LAY_DENSE: return a->buffers[0] != NULL && a->buffers[1] != NULL;
    default: return true;
  }
}

/* Rows [start, start + length) of the buffers of a (start includes a's own offset). */
static br_status add_column(cut *c, uint32_t index, const struct ArrowArray *a, int64_t start, int64_t length) {
  const br_lay_node *n = &c->layout->nodes[index];
  if (a->n_children != n->n_children || a->n_buffers != n->n_buffers || a->dictionary != NULL || start < 0 ||
      length < 0 || start + length > a->offset + a->length || !has_buffers(n, a, length))
    return mismatch(c, n);
  add_validity(c, n, a, start, length);
  int64_t first, last;
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_NULL: return BR_OK;
    case BR_LAY_BOOL: add_bits(c, a->buffers[1], start, length); return BR_OK;
    case BR_LAY_FIXED:
      add_piece(c, at(a->buffers[1], (uint64_t)start * n->width), (uint64_t)length * n->width);
      return BR_OK;
    case BR_LAY_BYTES:
      add_offsets(c, a->buffers[1], n->wide, start, length, &first, &last);
      add_piece(c, last > first ? at(a->buffers[2], (uint64_t)first) : NULL, (uint64_t)(last - first));
      return BR_OK;
    case BR_LAY_LIST:
      add_offsets(c, a->buffers[1], n->wide, start, length, &first, &last);
      return add_column(c, index + 1, a->children[0], a->children[0]->offset + first, last - first);
    case BR_LAY_STRUCT: return add_children(c, index, a, start, length);
    case BR_LAY_ARRAY: return add_children(c, index, a, start * n->width, length * n->width);
    case BR_LAY_SPARSE:
      add_piece(c, at(a->buffers[0], (uint64_t)start), (uint64_t)length);
      return add_children(c, index, a, start, length);
    case BR_LAY_DENSE: return add_dense(c, index, a, start, length);
  }
  return mismatch(c, n);
}

br_status br_ipc_encode_array(const br_batch *b, br_codec codec, br_buf *head, br_buf *body, br_error *err) {
  const br_layout *l = br_schema_layout(br_batch_schema(b));
  const struct ArrowArray *a = br_batch_arrow(b);
  BR_TRY(br_layout_check(l, err));
  if (a->n_buffers > 0 && a->buffers[0] != NULL && a->null_count != 0 &&
      ArrowBitCountSet(a->buffers[0], a->offset, a->length) != a->length)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "an Arrow record batch with NULL rows can't be sent: only its columns may be NULL");
  cut c = {.layout = l, .err = err};
  c.nodes = br_calloc(l->n_nodes, sizeof *c.nodes);
  c.pieces = br_calloc(l->n_buffers + 1, sizeof *c.pieces);
  br_status status = add_children(&c, 0, a, a->offset, a->length);
  if (status == BR_OK)
    status = br_ipc_encode_batch(a->length, c.nodes, c.n_nodes, c.pieces, c.n_pieces, codec, head, body, err);
  for (size_t i = 0; i < c.n_temps; i++) free(c.temps[i]);
  free(c.temps);
  free(c.pieces);
  free(c.nodes);
  return status;
}
