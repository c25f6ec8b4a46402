/* SPDX-License-Identifier: Apache-2.0
 * Reads every value of a decoded batch the way a trusting consumer does: no checks, so that a sanitizer sees what the
 * decoder let through. */
#ifndef BRANT_TESTS_ARROW_WALK_H
#define BRANT_TESTS_ARROW_WALK_H

#include "arrow/layout.h"
#include <string.h>

static inline uint64_t walk_bytes(const void *p, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; i++) sum = sum * 31 + ((const uint8_t *)p)[i];
  return sum;
}

static inline int64_t walk_offset(const br_lay_node *n, const struct ArrowArray *a, int64_t i) {
  return n->wide ? ((const int64_t *)a->buffers[1])[i] : ((const int32_t *)a->buffers[1])[i];
}

static inline uint64_t walk_value(const br_layout *l, uint32_t index, const struct ArrowArray *a, int64_t row);

static inline uint64_t walk_child(const br_layout *l, uint32_t index, const struct ArrowArray *a, uint32_t child,
                                  int64_t row) {
  uint32_t at = index + 1;
  for (uint32_t i = 0; i < child; i++) at = l->nodes[at].next;
  return walk_value(l, at, a->children[child], row);
}

static inline uint64_t walk_union(const br_layout *l, uint32_t index, const struct ArrowArray *a, int64_t at) {
  const br_lay_node *n = &l->nodes[index];
  int8_t id = ((const int8_t *)a->buffers[0])[at];
  int64_t row = n->kind == BR_LAY_DENSE ? ((const int32_t *)a->buffers[1])[at] : at;
  for (uint32_t i = 0; i < n->n_children; i++)
    if (n->type_ids[i] == id) return walk_child(l, index, a, i, row);
  BR_ASSERT(!"a known type id");
  return 0;
}

/* A hash of one value; NULL is 1. */
static inline uint64_t walk_value(const br_layout *l, uint32_t index, const struct ArrowArray *a, int64_t row) {
  const br_lay_node *n = &l->nodes[index];
  int64_t at = a->offset + row;
  bool has_bitmap =
      n->kind != BR_LAY_NULL && n->kind != BR_LAY_SPARSE && n->kind != BR_LAY_DENSE && a->buffers[0] != NULL;
  if (n->kind == BR_LAY_NULL || (has_bitmap && !ArrowBitGet(a->buffers[0], at))) return 1;
  uint64_t sum = 7;
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_NULL: return 1;
    case BR_LAY_BOOL: return ArrowBitGet(a->buffers[1], at) ? 3 : 2;
    case BR_LAY_FIXED: return walk_bytes((const uint8_t *)a->buffers[1] + at * n->width, n->width);
    case BR_LAY_BYTES: {
      int64_t from = walk_offset(n, a, at), to = walk_offset(n, a, at + 1);
      return to > from ? walk_bytes((const uint8_t *)a->buffers[2] + from, (uint64_t)(to - from)) : 5;
    }
    case BR_LAY_LIST:
      for (int64_t i = walk_offset(n, a, at); i < walk_offset(n, a, at + 1); i++)
        sum = sum * 33 + walk_child(l, index, a, 0, i);
      return sum;
    case BR_LAY_STRUCT:
      for (uint32_t i = 0; i < n->n_children; i++) sum = sum * 33 + walk_child(l, index, a, i, at);
      return sum;
    case BR_LAY_ARRAY:
      for (uint32_t i = 0; i < n->width; i++) sum = sum * 33 + walk_child(l, index, a, 0, at * n->width + i);
      return sum;
    case BR_LAY_SPARSE:
    case BR_LAY_DENSE: return walk_union(l, index, a, at);
  }
  return 0;
}

/* A hash of a row, the same whatever the offset, the NULL bitmaps' presence or what lies under NULLs. */
static inline uint64_t walk_row(const br_batch *b, int64_t row) {
  const br_layout *l = br_schema_layout(br_batch_schema(b));
  return walk_value(l, 0, br_batch_arrow(b), row);
}

static inline uint64_t walk_batch(const br_batch *b, int64_t max_rows) {
  uint64_t sum = 0;
  int64_t rows = br_batch_rows(b) < max_rows ? br_batch_rows(b) : max_rows;
  for (int64_t i = 0; i < rows; i++) sum = sum * 37 + walk_row(b, i);
  return sum;
}

#endif
