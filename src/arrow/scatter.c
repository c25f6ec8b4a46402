/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: br_colset_scatter, the hot path of the shuffle: rows of engine vectors to P partitions.
 *   A block of rows is handled column by column. First each row gets a slot (the block's partitions numbered as they come,
 *   so that a block of 80 rows costs 80 and not P) and its row number in that partition; then a column is one loop:
 *   pointer[slot[i]][row[i]] = value[i]. Nested columns are appended partition by partition (append.c).
 *   NULLs cost only where they are: bitmaps are all ones until then.
 * Order of calls: any number of times on the same colsets, with br_colset_encode between.
 * Threads: one owner of all the colsets.
 * Bounds: about 500 KiB of stack, of which 2,048 rows over 64 partitions touch 50; scratch of 2 bytes a partition, kept in parts[0].
 */
#include "arrow/builder.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK BR_COL_MAX_BLOCK
#define NO_SLOT UINT16_MAX
#define likely(x) __builtin_expect(!!(x), 1)

typedef struct block {
  uint32_t first, n; /* rows of the vectors; first is a multiple of 64 */
  uint32_t n_slots;
  bool ordered;          /* order and starts are made */
  br_colset *set[BLOCK]; /* [slot] */
  uint32_t count[BLOCK]; /* [slot] rows */
  uint16_t slot[BLOCK];  /* [row] */
  uint32_t at[BLOCK];    /* [row] its row number in the partition */
  uint32_t start[BLOCK]; /* [slot] where its rows are in order[] */
  uint32_t order[BLOCK]; /* rows of the vectors, by slot */
} block;

typedef union scratch {
  void *pointer[BLOCK];
  struct cursor {
    uint8_t *data;
    char *offsets;
    uint64_t len, cap;
  } cursor[BLOCK];
} scratch;

/* ---- the block */

static void need_slots(br_colset *c, uint32_t n_parts) {
  if (c->slot_parts >= n_parts) return;
  c->slot_of_part = br_realloc(c->slot_of_part, n_parts * sizeof *c->slot_of_part);
  memset(c->slot_of_part + c->slot_parts, 0xff, (n_parts - c->slot_parts) * sizeof *c->slot_of_part);
  c->slot_parts = n_parts;
}

static br_status number_rows(block *b, br_colset *const *parts, uint32_t n_parts, const uint32_t *part_of_row,
                             br_error *err) {
  uint16_t *slot_of_part = parts[0]->slot_of_part;
  br_status status = BR_OK;
  b->n_slots = 0;
  b->ordered = false;
  for (uint32_t i = 0; i < b->n; i++) {
    uint32_t p = part_of_row[i];
    if (p >= n_parts) {
      status =
          br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "row %u goes to partition %u of %u", b->first + i, p, n_parts);
      break;
    }
    uint16_t s = slot_of_part[p];
    if (s == NO_SLOT) {
      s = slot_of_part[p] = (uint16_t)b->n_slots++;
      b->set[s] = parts[p];
      b->count[s] = 0;
    }
    b->slot[i] = s;
    b->at[i] = b->count[s]++;
  }
  for (uint32_t i = 0; i < b->n; i++)
    if (part_of_row[i] < n_parts) slot_of_part[part_of_row[i]] = NO_SLOT;
  return status;
}

/* Room for the block's rows in every partition, and row numbers from the partition's start. */
static br_status make_room(block *b, br_error *err) {
  for (uint32_t s = 0; s < b->n_slots; s++) {
    br_colset *c = b->set[s];
    int64_t need = c->rows + b->count[s];
    b->start[s] = (uint32_t)c->rows;
    if (likely(need <= c->cap_rows)) continue;
    if (need > INT32_MAX) return br_fail(err, BR_UNSUPPORTED, BR_BLAME_INTERNAL, "more than 2^31 rows in one batch");
    for (uint32_t k = 0; k < c->n_columns; k++) br_col_reserve(c, &c->columns[k], need);
    c->cap_rows = need;
    for (uint32_t k = 0; k < c->n_columns; k++)
      if (k == 0 || c->columns[k].cap_rows < c->cap_rows) c->cap_rows = c->columns[k].cap_rows;
  }
  for (uint32_t i = 0; i < b->n; i++) b->at[i] += b->start[b->slot[i]];
  return BR_OK;
}

static void sort_rows(block *b) {
  if (b->ordered) return;
  b->ordered = true;
  uint32_t next[BLOCK], sum = 0;
  for (uint32_t s = 0; s < b->n_slots; s++) {
    b->start[s] = next[s] = sum;
    sum += b->count[s];
  }
  for (uint32_t i = 0; i < b->n; i++) b->order[next[b->slot[i]]++] = b->first + i;
}

/* ---- one column */

static bool has_nulls(const br_vec *v, uint32_t first, uint32_t n) {
  if (v->validity == NULL) return false;
  const uint64_t *w = v->validity + first / 64;
  uint64_t all = UINT64_MAX;
  for (uint32_t i = 0; i < n / 64; i++) all &= w[i];
  if (n % 64 != 0) all &= w[n / 64] | UINT64_MAX << (n % 64);
  return all != UINT64_MAX;
}

static void scatter_nulls(const block *b, uint32_t k, const br_vec *v) {
  const uint64_t *w = v->validity + b->first / 64;
  for (uint32_t base = 0; base < b->n; base += 64) {
    uint64_t nulls = ~w[base / 64];
    if (b->n - base < 64) nulls &= ((uint64_t)1 << (b->n - base)) - 1;
    for (; nulls != 0; nulls &= nulls - 1) {
      uint32_t i = base + (uint32_t)__builtin_ctzll(nulls);
      br_colset *c = b->set[b->slot[i]];
      br_col_set_null(c, &c->columns[k], b->at[i]);
    }
  }
}

/* Ask for the cache lines that a partition's next rows go to, all partitions at once, so that the stores don't wait for one
 * after the other (+15 % at 64 partitions). */
static inline void want_lines(uintptr_t first, size_t bytes) {
  __builtin_prefetch((const void *)first, 1);
  __builtin_prefetch((const void *)(first + bytes - 1), 1);
}

typedef struct bytes16 {
  uint64_t half[2];
} bytes16;

#define SCATTER(type)                                                                              \
  do {                                                                                             \
    const type *in_ = in;                                                                          \
    for (uint32_t i_ = 0; i_ < b->n; i_++) ((type *)x->pointer[b->slot[i_]])[b->at[i_]] = in_[i_]; \
  } while (0)

/* n values of `width` bytes at `in`. */
static void scatter_fixed(const block *b, uint32_t k, const void *in, size_t width, scratch *x) {
  if (width == 0) return;
  if (b->n_slots == 1) {
    memcpy(b->set[0]->columns[k].data + b->at[0] * width, in, b->n * width);
    return;
  }
  for (uint32_t s = 0; s < b->n_slots; s++) {
    x->pointer[s] = b->set[s]->columns[k].data;
    want_lines((uintptr_t)x->pointer[s] + (size_t)b->set[s]->rows * width, b->count[s] * width);
  }
  switch (width) {
    case 1: SCATTER(uint8_t); break;
    case 2: SCATTER(uint16_t); break;
    case 4: SCATTER(uint32_t); break;
    case 8: SCATTER(uint64_t); break;
    case 16: SCATTER(bytes16); break;
    default:
      for (uint32_t i = 0; i < b->n; i++)
        memcpy((uint8_t *)x->pointer[b->slot[i]] + b->at[i] * width, (const uint8_t *)in + i * width, width);
  }
}

static void scatter_bits(const block *b, uint32_t k, const uint8_t *in, scratch *x) {
  for (uint32_t s = 0; s < b->n_slots; s++) x->pointer[s] = b->set[s]->columns[k].data;
  for (uint32_t i = 0; i < b->n; i++) {
    uint32_t at = b->at[i];
    ((uint8_t *)x->pointer[b->slot[i]])[at >> 3] |= (uint8_t)((in[i] & 1) << (at & 7));
  }
}

static br_status scatter_converted(const block *b, uint32_t k, const br_vec *v, scratch *x, br_error *err) {
  const br_lay_node *n = b->set[0]->columns[k].node;
  uint8_t *values = br_malloc((size_t)b->n * n->width);
  br_status status = br_vec_convert(n, v, NULL, b->first, b->n, values, err);
  if (status == BR_OK) scatter_fixed(b, k, values, n->width, x);
  free(values);
  return status;
}

/* `to` has BR_COL_SLACK bytes of room beyond length. */
static inline void copy_string(uint8_t *to, const br_vec_string *s, uint32_t length) {
  if (length <= 12) {
    memcpy(to, s->inlined, 12);
    return;
  }
  const char *from = br_vec_string_pointer(s);
  if (length <= 16) {
    memcpy(to, from, 8);
    memcpy(to + length - 8, from + length - 8, 8);
  } else if (length <= 32) {
    memcpy(to, from, 16);
    memcpy(to + length - 16, from + length - 16, 16);
  } else {
    memcpy(to, from, length);
  }
}

static void keep_length(br_colset *c, br_col *col, uint64_t len) {
  c->var_bytes += len - col->data_len;
  col->data_len = len;
}

static br_status more_bytes(const block *b, uint32_t k, uint32_t slot, struct cursor *cur, uint32_t length,
                            br_error *err) {
  br_col *col = &b->set[slot]->columns[k];
  keep_length(b->set[slot], col, cur->len);
  BR_TRY(br_col_reserve_bytes(b->set[slot], col, length, err));
  cur->data = col->data;
  cur->cap = col->data_cap;
  return BR_OK;
}

static inline br_status string_loop(const block *b, uint32_t k, const br_vec *v, bool nulls, bool wide, scratch *x,
                                    br_error *err) {
  const br_vec_string *in = (const br_vec_string *)v->data + b->first;
  for (uint32_t i = 0; i < b->n; i++) {
    struct cursor *cur = &x->cursor[b->slot[i]];
    uint32_t length = in[i].length;
    if (nulls && br_vec_is_null(v, (uint64_t)b->first + i)) length = 0;
    if (!likely((uint64_t)length + BR_COL_SLACK <= cur->cap - cur->len))
      BR_TRY(more_bytes(b, k, b->slot[i], cur, length, err));
    copy_string(cur->data + cur->len, &in[i], length);
    cur->len += length;
    if (wide)
      ((int64_t *)cur->offsets)[b->at[i] + 1] = (int64_t)cur->len;
    else
      ((int32_t *)cur->offsets)[b->at[i] + 1] = (int32_t)cur->len;
  }
  return BR_OK;
}

static br_status scatter_strings(const block *b, uint32_t k, const br_vec *v, bool nulls, scratch *x, br_error *err) {
  for (uint32_t s = 0; s < b->n_slots; s++) {
    const br_col *col = &b->set[s]->columns[k];
    x->cursor[s] = (struct cursor){col->data, col->offsets, col->data_len, col->data_cap};
    want_lines((uintptr_t)col->data + col->data_len, 1);
    want_lines((uintptr_t)col->offsets + ((size_t)b->set[s]->rows + 1) * (col->node->wide ? 8 : 4), 1);
  }
  bool wide = b->set[0]->columns[k].node->wide;
  if (wide)
    BR_TRY(string_loop(b, k, v, nulls, true, x, err));
  else if (nulls)
    BR_TRY(string_loop(b, k, v, true, false, x, err));
  else
    BR_TRY(string_loop(b, k, v, false, false, x, err));
  for (uint32_t s = 0; s < b->n_slots; s++) keep_length(b->set[s], &b->set[s]->columns[k], x->cursor[s].len);
  return BR_OK;
}

static br_status scatter_nested(block *b, uint32_t k, const br_vec *v, br_error *err) {
  sort_rows(b);
  for (uint32_t s = 0; s < b->n_slots; s++) {
    br_colset *c = b->set[s];
    BR_TRY(br_col_append(c, &c->columns[k], c->rows, v, b->order + b->start[s], b->count[s], err));
  }
  return BR_OK;
}

static br_status scatter_column(block *b, uint32_t k, const br_vec *v, scratch *x, br_error *err) {
  const br_lay_node *n = b->set[0]->columns[k].node;
  bool nulls = has_nulls(v, b->first, b->n);
  switch (v->kind) {
    case BR_VEC_NULL: return BR_OK;
    case BR_VEC_BOOL:
      if (n->kind == BR_LAY_BOOL)
        scatter_bits(b, k, (const uint8_t *)v->data + b->first, x);
      else
        scatter_fixed(b, k, (const uint8_t *)v->data + b->first, 1, x);
      break;
    case BR_VEC_FIXED:
    case BR_VEC_INTERVAL:
      if (br_vec_converts(n, v))
        BR_TRY(scatter_converted(b, k, v, x, err));
      else
        scatter_fixed(b, k, (const uint8_t *)v->data + (size_t)b->first * n->width, n->width, x);
      break;
    case BR_VEC_STRING: BR_TRY(scatter_strings(b, k, v, nulls, x, err)); break;
    default: return scatter_nested(b, k, v, err);
  }
  if (nulls) scatter_nulls(b, k, v);
  return BR_OK;
}

static br_status scatter_block(block *b, br_colset *const *parts, uint32_t n_parts, const br_vec *columns,
                               const uint32_t *part_of_row, br_error *err) {
  scratch x;
  BR_TRY(number_rows(b, parts, n_parts, part_of_row, err));
  BR_TRY(make_room(b, err));
  for (uint32_t k = 0; k < parts[0]->n_columns; k++) BR_TRY(scatter_column(b, k, &columns[k], &x, err));
  for (uint32_t s = 0; s < b->n_slots; s++) b->set[s]->rows += b->count[s];
  return BR_OK;
}

br_status br_colset_scatter(br_colset *const *parts, uint32_t n_parts, const br_vec *columns,
                            const uint32_t *part_of_row, uint32_t n, br_error *err) {
  if (n == 0) return BR_OK;
  BR_ASSERT(n_parts > 0);
  const br_layout *l = br_schema_layout(parts[0]->schema);
  uint32_t index = 1;
  for (uint32_t k = 0; k < parts[0]->n_columns; k++) {
    BR_TRY(br_col_check(l, index, &columns[k], err));
    index = l->nodes[index].next;
  }
  need_slots(parts[0], n_parts);
  block b;
  for (b.first = 0; b.first < n; b.first += BLOCK) {
    b.n = n - b.first < BLOCK ? n - b.first : BLOCK;
    BR_TRY(scatter_block(&b, parts, n_parts, columns, part_of_row + b.first, err));
  }
  return BR_OK;
}
