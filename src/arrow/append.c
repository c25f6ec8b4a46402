/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: append chosen rows of engine vectors to column builders, any kind, recursively.
 * Order of calls: room first (br_col_reserve), then br_col_append.
 * Threads: the colset's owner.
 * Bounds: lists are taken in runs of RUN values; recursion is as deep as the schema (BR_SCHEMA_MAX_DEPTH).
 */
#include "arrow/builder.h"
#include "base/mem.h"
#include <string.h>

#define RUN 512

/* ---- values that change on the way */

bool br_vec_converts(const br_lay_node *n, const br_vec *v) {
  return v->kind == BR_VEC_INTERVAL || (v->kind == BR_VEC_FIXED && (n->uuid || v->width != n->width));
}

static uint64_t row_of(const uint32_t *rows, uint32_t first_row, uint32_t i) {
  return rows != NULL ? rows[i] : (uint64_t)first_row + i;
}

typedef struct interval {
  int32_t months, days;
  int64_t micros;
} interval;

static br_status convert_intervals(const br_lay_node *node, const br_vec *v, const uint32_t *rows, uint32_t first_row,
                                   uint32_t n, char *out, br_error *err) {
  const interval *in = v->data;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t row = row_of(rows, first_row, i);
    interval x = {0};
    if (!br_vec_is_null(v, row)) x = in[row];
    if (__builtin_mul_overflow(x.micros, 1000, &x.micros))
      return br_fail(
          err, BR_UNSUPPORTED, BR_BLAME_USER,
          "column '%s': an interval's time part of %lld microseconds is beyond Arrow's 64-bit nanoseconds (292 years)",
          br_lay_name(node), (long long)in[row].micros);
    memcpy(out + 16 * (size_t)i, &x, 16);
  }
  return BR_OK;
}

/* DuckDB keeps a UUID as a 128-bit number with the top bit flipped; Arrow wants the 16 bytes as they are read. */
static void convert_uuids(const br_vec *v, const uint32_t *rows, uint32_t first_row, uint32_t n, char *out) {
  const char *in = v->data;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t half[2], swapped[2];
    memcpy(half, in + 16 * row_of(rows, first_row, i), 16);
    swapped[0] = __builtin_bswap64(half[1] ^ (uint64_t)1 << 63);
    swapped[1] = __builtin_bswap64(half[0]);
    memcpy(out + 16 * (size_t)i, swapped, 16);
  }
}

/* Little-endian sign extension. */
static void widen(const br_vec *v, uint32_t out_width, const uint32_t *rows, uint32_t first_row, uint32_t n,
                  char *out) {
  const char *in = v->data;
  uint32_t w = v->width;
  for (uint32_t i = 0; i < n; i++) {
    const char *p = in + (size_t)w * row_of(rows, first_row, i);
    char *q = out + (size_t)out_width * i;
    memset(q + w, p[w - 1] < 0 ? 0xff : 0, out_width - w);
    memcpy(q, p, w);
  }
}

#define WIDEN(from, to)                                                              \
  do {                                                                               \
    const from *in_ = v->data;                                                       \
    to *out_ = (to *)out;                                                            \
    for (uint32_t i_ = 0; i_ < n; i_++) out_[i_] = in_[row_of(rows, first_row, i_)]; \
    return BR_OK;                                                                    \
  } while (0)

br_status br_vec_convert(const br_lay_node *node, const br_vec *v, const uint32_t *rows, uint32_t first_row, uint32_t n,
                         void *out, br_error *err) {
  if (v->kind == BR_VEC_INTERVAL) return convert_intervals(node, v, rows, first_row, n, out, err);
  if (v->width == node->width) {
    convert_uuids(v, rows, first_row, n, out);
    return BR_OK;
  }
  if (v->width == 2 && node->width == 4) WIDEN(int16_t, int32_t);
  if (v->width == 2 && node->width == 16) WIDEN(int16_t, __int128);
  if (v->width == 4 && node->width == 16) WIDEN(int32_t, __int128);
  if (v->width == 8 && node->width == 16) WIDEN(int64_t, __int128);
  widen(v, node->width, rows, first_row, n, out);
  return BR_OK;
}

/* ---- flat kinds */

#define GATHER(type)                                              \
  do {                                                            \
    const type *in_ = v->data;                                    \
    type *out_ = (type *)out;                                     \
    for (uint32_t i_ = 0; i_ < n; i_++) out_[i_] = in_[rows[i_]]; \
  } while (0)

static br_status append_fixed(br_col *col, int64_t at, const br_vec *v, const uint32_t *rows, uint32_t n,
                              br_error *err) {
  size_t width = col->node->width;
  uint8_t *out = col->data + (size_t)at * width;
  if (br_vec_converts(col->node, v)) return br_vec_convert(col->node, v, rows, 0, n, out, err);
  switch (width) {
    case 1: GATHER(uint8_t); break;
    case 2: GATHER(uint16_t); break;
    case 4: GATHER(uint32_t); break;
    case 8: GATHER(uint64_t); break;
    default:
      for (uint32_t i = 0; i < n; i++) memcpy(out + i * width, (const uint8_t *)v->data + rows[i] * width, width);
  }
  return BR_OK;
}

static void append_bool(br_col *col, int64_t at, const br_vec *v, const uint32_t *rows, uint32_t n) {
  const uint8_t *in = v->data;
  if (col->node->kind == BR_LAY_FIXED) { /* arrow.bool8 */
    for (uint32_t i = 0; i < n; i++) col->data[at + i] = in[rows[i]] & 1;
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    int64_t row = at + i;
    col->data[row >> 3] |= (uint8_t)((in[rows[i]] & 1) << (row & 7));
  }
}

static void put_offset(const br_col *col, int64_t row, uint64_t end) {
  if (col->node->wide)
    ((int64_t *)col->offsets)[row + 1] = (int64_t)end;
  else
    ((int32_t *)col->offsets)[row + 1] = (int32_t)end;
}

static br_status append_strings(br_colset *c, br_col *col, int64_t at, const br_vec *v, const uint32_t *rows,
                                uint32_t n, br_error *err) {
  const br_vec_string *in = v->data;
  for (uint32_t i = 0; i < n; i++) {
    const br_vec_string *s = &in[rows[i]];
    uint32_t length = br_vec_is_null(v, rows[i]) ? 0 : s->length;
    if (length + BR_COL_SLACK > col->data_cap - col->data_len) BR_TRY(br_col_reserve_bytes(c, col, length, err));
    if (length > 0) memcpy(col->data + col->data_len, length <= 12 ? s->inlined : br_vec_string_pointer(s), length);
    col->data_len += length;
    c->var_bytes += length;
    put_offset(col, at + i, col->data_len);
  }
  return BR_OK;
}

/* ---- nested kinds */

typedef struct run {
  br_colset *c;
  br_col *child;
  const br_vec *v;
  bool counted; /* the child's rows aren't part of the colset's fixed cost of a row */
  uint32_t n;
  uint32_t rows[RUN];
} run;

static br_status run_flush(run *r, br_error *err) {
  if (r->n == 0) return BR_OK;
  br_col_reserve(r->c, r->child, r->child->rows + r->n);
  BR_TRY(br_col_append(r->c, r->child, r->child->rows, r->v, r->rows, r->n, err));
  r->child->rows += r->n;
  if (r->counted) r->c->var_bytes += ((uint64_t)r->n * r->child->row_bits + 7) / 8;
  r->n = 0;
  return BR_OK;
}

static br_status run_add(run *r, uint64_t first, uint64_t count, br_error *err) {
  if (first + count > UINT32_MAX)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "column '%s': a vector holds more than 2^32 list values",
                   br_lay_name(r->child->node));
  for (uint64_t i = 0; i < count; i++) {
    r->rows[r->n++] = (uint32_t)(first + i);
    if (r->n == RUN) BR_TRY(run_flush(r, err));
  }
  return BR_OK;
}

typedef struct list_entry {
  uint64_t offset, length;
} list_entry;

static br_status append_lists(br_colset *c, br_col *col, int64_t at, const br_vec *v, const uint32_t *rows, uint32_t n,
                              br_error *err) {
  const list_entry *in = v->data;
  run r = {.c = c, .child = &col->children[0], .v = &v->children[0], .counted = true};
  uint64_t end = (uint64_t)r.child->rows;
  for (uint32_t i = 0; i < n; i++) {
    if (!br_vec_is_null(v, rows[i])) {
      const list_entry *e = &in[rows[i]];
      if (!col->node->wide && e->length > INT32_MAX - end)
        return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "column '%s': more than 2^31 list values in one batch",
                       br_lay_name(col->node));
      BR_TRY(run_add(&r, e->offset, e->length, err));
      end += e->length;
    }
    put_offset(col, at + i, end);
  }
  return run_flush(&r, err);
}

static br_status append_arrays(br_colset *c, br_col *col, int64_t at, const br_vec *v, const uint32_t *rows, uint32_t n,
                               br_error *err) {
  run r = {.c = c, .child = &col->children[0], .v = &v->children[0]};
  uint32_t size = col->node->width;
  r.child->rows = at * size;
  for (uint32_t i = 0; i < n; i++) BR_TRY(run_add(&r, (uint64_t)rows[i] * size, size, err));
  return run_flush(&r, err);
}

static br_status append_struct(br_colset *c, br_col *col, int64_t at, const br_vec *children, const uint32_t *rows,
                               uint32_t n, br_error *err) {
  for (uint32_t i = 0; i < col->node->n_children; i++)
    BR_TRY(br_col_append(c, &col->children[i], at, &children[i], rows, n, err));
  return BR_OK;
}

/* Whatever lies there becomes NULL. Unions below have no NULLs of their own: their first member's. */
static void force_null(br_colset *c, br_col *col, int64_t row) {
  if (col->node->kind == BR_LAY_NULL) return;
  if (col->node->kind != BR_LAY_SPARSE) {
    br_col_set_null(c, col, row);
    return;
  }
  if (col->node->n_children == 0) return;
  col->data[row] = (uint8_t)col->node->type_ids[0];
  for (uint32_t i = 0; i < col->node->n_children; i++) force_null(c, &col->children[i], row);
}

static br_status append_unions(br_colset *c, br_col *col, int64_t at, const br_vec *v, const uint32_t *rows, uint32_t n,
                               br_error *err) {
  const br_vec *tags = &v->children[0];
  uint32_t members = col->node->n_children;
  BR_TRY(append_struct(c, col, at, v->children + 1, rows, n, err));
  for (uint32_t i = 0; i < n; i++) {
    if (br_vec_is_null(v, rows[i]) || br_vec_is_null(tags, rows[i])) {
      force_null(c, col, at + i);
      continue;
    }
    uint8_t tag = ((const uint8_t *)tags->data)[rows[i]];
    if (tag >= members)
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "column '%s': union tag %u of %u members",
                     br_lay_name(col->node), tag, members);
    col->data[at + i] = (uint8_t)col->node->type_ids[tag];
  }
  return BR_OK;
}

br_status br_col_append(br_colset *c, br_col *col, int64_t at, const br_vec *v, const uint32_t *rows, uint32_t n,
                        br_error *err) {
  if (n == 0) return BR_OK;
  switch (v->kind) {
    case BR_VEC_NULL: return BR_OK;
    case BR_VEC_UNION: return append_unions(c, col, at, v, rows, n, err);
    case BR_VEC_BOOL: append_bool(col, at, v, rows, n); break;
    case BR_VEC_FIXED:
    case BR_VEC_INTERVAL: BR_TRY(append_fixed(col, at, v, rows, n, err)); break;
    case BR_VEC_STRING: BR_TRY(append_strings(c, col, at, v, rows, n, err)); break;
    case BR_VEC_LIST:
    case BR_VEC_MAP: BR_TRY(append_lists(c, col, at, v, rows, n, err)); break;
    case BR_VEC_STRUCT: BR_TRY(append_struct(c, col, at, v->children, rows, n, err)); break;
    case BR_VEC_ARRAY: BR_TRY(append_arrays(c, col, at, v, rows, n, err)); break;
  }
  if (v->validity == NULL) return BR_OK;
  for (uint32_t i = 0; i < n; i++)
    if (br_vec_is_null(v, rows[i])) br_col_set_null(c, col, at + i);
  return BR_OK;
}

br_status br_colset_append(br_colset *c, const br_vec *columns, const uint32_t *rows, uint32_t n, br_error *err) {
  if (n > INT32_MAX - c->rows)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_INTERNAL, "more than 2^31 rows in one batch");
  const br_layout *l = br_schema_layout(c->schema);
  uint32_t index = 1;
  for (uint32_t k = 0; k < c->n_columns; k++) {
    BR_TRY(br_col_check(l, index, &columns[k], err));
    br_col_reserve(c, &c->columns[k], c->rows + n);
    BR_TRY(br_col_append(c, &c->columns[k], c->rows, &columns[k], rows, n, err));
    index = l->nodes[index].next;
  }
  c->rows += n;
  return BR_OK;
}
