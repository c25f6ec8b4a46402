/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: br_colset: one partition's columns under construction; their memory, their encoding. Filling them: append.c
 *   (any kind, recursive) and scatter.c (the hot path).
 * Order of calls: br_colset_new; append or scatter, encode, in turns; br_colset_free.
 * Threads: one owner at a time.
 * Bounds: the caller's: it looks at br_colset_bytes and br_colset_reserved and encodes in time. A row count of INT32_MAX.
 */
#include "arrow/builder.h"
#include "base/blocks.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

static uint64_t bits_of_row(const br_lay_node *n, const br_col *children) {
  uint64_t bits = n->kind == BR_LAY_NULL || n->kind == BR_LAY_SPARSE ? 0 : 1;
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_BOOL: return bits + 1;
    case BR_LAY_FIXED: return bits + 8 * (uint64_t)n->width;
    case BR_LAY_BYTES:
    case BR_LAY_LIST: return bits + (n->wide ? 64 : 32);
    case BR_LAY_ARRAY: return bits + n->width * children[0].row_bits;
    case BR_LAY_SPARSE: bits = 8; break;
    default: break;
  }
  for (uint32_t i = 0; i < n->n_children; i++) bits += children[i].row_bits;
  return bits;
}

static void col_init(const br_layout *l, uint32_t index, br_col *col) {
  const br_lay_node *n = &l->nodes[index];
  *col = (br_col){.node = n};
  if (n->n_children > 0) col->children = br_calloc(n->n_children, sizeof *col->children);
  uint32_t child = index + 1;
  for (uint32_t i = 0; i < n->n_children; i++) {
    col_init(l, child, &col->children[i]);
    child = l->nodes[child].next;
  }
  col->row_bits = bits_of_row(n, col->children);
}

br_status br_colset_new(const br_schema *schema, br_colset **out, br_error *err) {
  const br_layout *l = br_schema_layout(schema);
  BR_TRY(br_layout_check(l, err));
  for (size_t i = 1; i < l->n_nodes; i++)
    if (l->nodes[i].kind == BR_LAY_DENSE || (l->nodes[i].kind == BR_LAY_LIST && l->nodes[i].map && l->nodes[i].wide))
      return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "column '%s' has Arrow format '%s', which can't be written: cast it", br_lay_name(&l->nodes[i]),
                     l->nodes[i].schema->format);
  uint32_t n = l->nodes[0].n_children;
  br_colset *c = br_calloc(1, sizeof *c + n * sizeof(br_col));
  c->schema = br_schema_ref((br_schema *)schema);
  c->n_columns = n;
  uint32_t index = 1;
  for (uint32_t i = 0; i < n; i++) {
    col_init(l, index, &c->columns[i]);
    c->row_bits += c->columns[i].row_bits;
    index = l->nodes[index].next;
  }
  *out = c;
  return BR_OK;
}

static void drop_buffers(br_col *col) {
  br_block_free(col->data);
  br_block_free(col->offsets);
  br_block_free(col->validity);
  col->data = NULL;
  col->offsets = NULL;
  col->validity = NULL;
  col->data_cap = 0;
  col->cap_rows = 0;
  for (uint32_t i = 0; i < col->node->n_children; i++) drop_buffers(&col->children[i]);
}

static void col_free(br_col *col) {
  for (uint32_t i = 0; i < col->node->n_children; i++) col_free(&col->children[i]);
  free(col->children);
}

void br_colset_free(br_colset *c) {
  if (c == NULL) return;
  for (uint32_t i = 0; i < c->n_columns; i++) {
    drop_buffers(&c->columns[i]);
    col_free(&c->columns[i]);
  }
  free(c->slot_of_part);
  br_schema_unref(c->schema);
  free(c);
}

int64_t br_colset_rows(const br_colset *c) { return c->rows; }
uint64_t br_colset_bytes(const br_colset *c) { return (uint64_t)c->rows * c->row_bits / 8 + c->var_bytes; }
uint64_t br_colset_reserved(const br_colset *c) { return c->reserved; }

/* ---- room */

static void *grow(br_colset *c, void *p, uint64_t old_bytes, uint64_t new_bytes) {
  c->reserved += new_bytes - old_bytes;
  return br_block_grow(p, old_bytes, new_bytes);
}

static uint64_t bitmap_bytes(int64_t rows) { return ((uint64_t)rows + 7) / 8; }

static void grow_bitmap(br_colset *c, uint8_t **bits, int64_t old_rows, int64_t rows, int fill) {
  uint64_t old = bitmap_bytes(old_rows), bytes = bitmap_bytes(rows);
  *bits = grow(c, *bits, old, bytes);
  memset(*bits + old, fill, bytes - old);
}

static void grow_offsets(br_colset *c, br_col *col, int64_t rows) {
  uint64_t width = col->node->wide ? 8 : 4;
  uint64_t old = col->offsets != NULL ? ((uint64_t)col->cap_rows + 1) * width : 0;
  col->offsets = grow(c, col->offsets, old, ((uint64_t)rows + 1) * width);
  memset(col->offsets, 0, width);
}

static void grow_fixed(br_colset *c, br_col *col, int64_t rows, uint64_t width) {
  if (width > 0) col->data = grow(c, col->data, (uint64_t)col->cap_rows * width, (uint64_t)rows * width);
}

void br_col_reserve(br_colset *c, br_col *col, int64_t rows) {
  if (rows <= col->cap_rows) return;
  int64_t cap = col->cap_rows > 0 ? col->cap_rows : BR_COL_FIRST_ROWS;
  while (cap < rows) cap *= 2;
  const br_lay_node *n = col->node;
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_BOOL: grow_bitmap(c, &col->data, col->cap_rows, cap, 0); break;
    case BR_LAY_FIXED: grow_fixed(c, col, cap, n->width); break;
    case BR_LAY_SPARSE: grow_fixed(c, col, cap, 1); break;
    case BR_LAY_BYTES:
    case BR_LAY_LIST: grow_offsets(c, col, cap); break;
    default: break;
  }
  if (col->validity != NULL) grow_bitmap(c, &col->validity, col->cap_rows, cap, 0xff);
  col->cap_rows = cap;
  if (n->kind == BR_LAY_LIST) return; /* its values come when they are known */
  for (uint32_t i = 0; i < n->n_children; i++)
    br_col_reserve(c, &col->children[i], n->kind == BR_LAY_ARRAY ? cap * n->width : cap);
}

br_status br_col_reserve_bytes(br_colset *c, br_col *col, uint64_t more, br_error *err) {
  uint64_t need = col->data_len + more + BR_COL_SLACK;
  if (!col->node->wide && col->data_len + more > INT32_MAX)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "column '%s': more than 2 GiB of text or bytes in one batch (a value of %llu bytes)",
                   br_lay_name(col->node), (unsigned long long)more);
  if (need <= col->data_cap) return BR_OK;
  uint64_t cap = col->data_cap > 0 ? col->data_cap * 2 : 1024;
  while (cap < need) cap *= 2;
  col->data = grow(c, col->data, col->data_cap, cap);
  col->data_cap = cap;
  return BR_OK;
}

void br_col_set_null(br_colset *c, br_col *col, int64_t row) {
  if (col->validity == NULL) grow_bitmap(c, &col->validity, 0, col->cap_rows, 0xff);
  uint8_t bit = (uint8_t)(1u << (row & 7)), *byte = &col->validity[row >> 3];
  if (*byte & bit) col->null_count++;
  *byte &= (uint8_t)~bit;
}

/* ---- which vectors fill which columns */

static bool fixed_fits(const br_lay_node *n, const br_vec *v) {
  if (n->kind != BR_LAY_FIXED) return false;
  if (v->out_width == 0 || v->out_width == v->width) return v->width == n->width;
  bool power = v->width == 1 || v->width == 2 || v->width == 4 || v->width == 8 || v->width == 16;
  return power && v->out_width == n->width && v->width < n->width;
}

static bool kind_fits(const br_lay_node *n, const br_vec *v) {
  switch (v->kind) {
    case BR_VEC_BOOL: return n->kind == BR_LAY_BOOL || (n->kind == BR_LAY_FIXED && n->width == 1);
    case BR_VEC_FIXED: return fixed_fits(n, v);
    case BR_VEC_STRING: return n->kind == BR_LAY_BYTES;
    case BR_VEC_LIST: return n->kind == BR_LAY_LIST && !n->map && v->n_children == 1;
    case BR_VEC_MAP: return n->kind == BR_LAY_LIST && n->map && v->n_children == 1;
    case BR_VEC_STRUCT: return n->kind == BR_LAY_STRUCT && v->n_children == n->n_children;
    case BR_VEC_ARRAY: return n->kind == BR_LAY_ARRAY && v->width == n->width && v->n_children == 1;
    case BR_VEC_INTERVAL: return n->kind == BR_LAY_FIXED && strcmp(n->schema->format, "tin") == 0;
    case BR_VEC_NULL: return n->kind == BR_LAY_NULL;
    case BR_VEC_UNION:
      return n->kind == BR_LAY_SPARSE && v->n_children == n->n_children + 1 && v->children[0].kind == BR_VEC_FIXED &&
             v->children[0].width == 1;
  }
  return false;
}

br_status br_col_check(const br_layout *l, uint32_t index, const br_vec *v, br_error *err) {
  const br_lay_node *n = &l->nodes[index];
  if (!kind_fits(n, v))
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_INTERNAL,
                   "column '%s': vectors of kind %d, width %u don't fit Arrow format '%s'", br_lay_name(n),
                   (int)v->kind, v->width, n->schema->format);
  const br_vec *children = v->kind == BR_VEC_UNION ? v->children + 1 : v->children;
  uint32_t child = index + 1;
  for (uint32_t i = 0; i < n->n_children; i++) {
    BR_TRY(br_col_check(l, child, &children[i], err));
    child = l->nodes[child].next;
  }
  return BR_OK;
}

/* ---- encode */

typedef struct lists {
  br_ipc_node *nodes;
  br_ipc_piece *pieces;
  size_t n_nodes, n_pieces;
} lists;

static void put(lists *o, const void *data, uint64_t bytes) {
  o->pieces[o->n_pieces++] = (br_ipc_piece){bytes > 0 ? data : NULL, bytes};
}

static void put_validity(lists *o, br_col *col, int64_t rows) {
  if (col->null_count == 0) {
    put(o, NULL, 0);
    return;
  }
  if (rows % 8 != 0)
    col->validity[rows / 8] &= (uint8_t)((1u << (rows % 8)) - 1); /* the same rows give the same bytes */
  put(o, col->validity, bitmap_bytes(rows));
}

static void put_offsets(lists *o, const br_col *col, int64_t rows) {
  static const int64_t zero = 0;
  put(o, col->offsets != NULL ? col->offsets : &zero, ((uint64_t)rows + 1) * (col->node->wide ? 8 : 4));
}

static void put_column(lists *o, br_col *col, int64_t rows) {
  const br_lay_node *n = col->node;
  o->nodes[o->n_nodes++] = (br_ipc_node){rows, n->kind == BR_LAY_NULL ? rows : col->null_count};
  if (n->kind != BR_LAY_NULL && n->kind != BR_LAY_SPARSE) put_validity(o, col, rows);
  switch ((br_lay_kind)n->kind) {
    case BR_LAY_BOOL: put(o, col->data, bitmap_bytes(rows)); break;
    case BR_LAY_FIXED: put(o, col->data, (uint64_t)rows * n->width); break;
    case BR_LAY_BYTES:
      put_offsets(o, col, rows);
      put(o, col->data, col->data_len);
      break;
    case BR_LAY_LIST: put_offsets(o, col, rows); break;
    case BR_LAY_SPARSE: put(o, col->data, (uint64_t)rows); break;
    default: break;
  }
  for (uint32_t i = 0; i < n->n_children; i++) {
    int64_t below = n->kind == BR_LAY_LIST ? col->children[i].rows : n->kind == BR_LAY_ARRAY ? rows * n->width : rows;
    put_column(o, &col->children[i], below);
  }
}

static void start_again(br_col *col, int64_t rows) {
  const br_lay_node *n = col->node;
  if (col->null_count > 0) memset(col->validity, 0xff, bitmap_bytes(rows));
  if (n->kind == BR_LAY_BOOL && rows > 0) memset(col->data, 0, bitmap_bytes(rows));
  for (uint32_t i = 0; i < n->n_children; i++) {
    int64_t below = n->kind == BR_LAY_LIST ? col->children[i].rows : n->kind == BR_LAY_ARRAY ? rows * n->width : rows;
    start_again(&col->children[i], below);
  }
  col->null_count = 0;
  col->data_len = 0;
  col->rows = 0;
}

static lists lists_of(br_colset *c, br_buf *pieces) {
  const br_layout *l = br_schema_layout(c->schema);
  br_buf_clear(pieces);
  br_buf_reserve(pieces, (l->n_buffers + 1) * sizeof(br_ipc_piece));
  lists o = {.nodes = br_malloc(l->n_nodes * sizeof(br_ipc_node)), .pieces = (br_ipc_piece *)(void *)pieces->data};
  for (uint32_t i = 0; i < c->n_columns; i++) put_column(&o, &c->columns[i], c->rows);
  pieces->len = o.n_pieces * sizeof(br_ipc_piece);
  return o;
}

void br_colset_start_again(br_colset *c, bool shrink) {
  for (uint32_t i = 0; i < c->n_columns; i++) {
    start_again(&c->columns[i], c->rows);
    if (shrink) drop_buffers(&c->columns[i]);
  }
  c->rows = 0;
  c->var_bytes = 0;
  if (shrink) c->reserved = 0, c->cap_rows = 0;
}

br_status br_colset_encode(br_colset *c, br_codec codec, br_buf *head, br_buf *body, bool shrink, br_error *err) {
  br_buf pieces = {0};
  lists o = lists_of(c, &pieces);
  br_status status = br_ipc_encode_batch(c->rows, o.nodes, o.n_nodes, o.pieces, o.n_pieces, codec, head, body, err);
  free(o.nodes);
  br_buf_free(&pieces);
  br_colset_start_again(c, shrink);
  return status;
}

br_status br_colset_lay_out(br_colset *c, br_buf *head, br_buf *pieces, uint64_t *body_bytes, br_error *err) {
  lists o = lists_of(c, pieces);
  br_status status = br_ipc_encode_head(c->rows, o.nodes, o.n_nodes, o.pieces, o.n_pieces, head, body_bytes, err);
  free(o.nodes);
  return status;
}
