/* SPDX-License-Identifier: Apache-2.0
 * Internal to arrow/: the column builders behind br_colset.
 * Invariants: a bitmap exists only once a NULL was seen, and all its bits beyond the NULLs are 1, so rows that aren't NULL
 * cost nothing; bits of BOOL beyond the rows are 0; offsets[0] is 0; string data has room for BR_COL_SLACK more bytes than
 * what is asked for, so that short strings are copied with one wide store. */
#ifndef BRANT_ARROW_BUILDER_H
#define BRANT_ARROW_BUILDER_H

#include "arrow/columns.h"
#include "arrow/layout.h"
#include <string.h>

#define BR_COL_SLACK 32
#define BR_COL_FIRST_ROWS 64
#define BR_COL_MAX_BLOCK 8192 /* rows handled at once; a multiple of 64 */

typedef struct br_col br_col;
struct br_col {
  uint8_t *data;     /* FIXED: values, BOOL: bits, BYTES: bytes, SPARSE: type ids */
  void *offsets;     /* BYTES, LIST: rows + 1 of them */
  uint64_t data_len; /* BYTES: bytes used */
  uint64_t data_cap; /* BYTES: bytes allocated */
  uint8_t *validity;
  int64_t null_count;
  int64_t rows; /* not of top-level columns and what lies in their structs: these have colset->rows until encoded */
  int64_t cap_rows;
  const br_lay_node *node;
  br_col *children;
  uint64_t row_bits; /* fixed cost of a row, its own bitmap and everything of fixed size below included */
};

struct br_colset {
  br_schema *schema;
  int64_t rows, cap_rows;
  uint64_t var_bytes; /* of strings and of lists' values */
  uint64_t reserved;
  uint64_t row_bits;
  uint16_t *slot_of_part; /* scratch of br_colset_scatter when this is parts[0] */
  uint32_t slot_parts;
  uint32_t n_columns;
  br_col columns[];
};

/* Make room for `rows` rows altogether (and below, as far as the number of rows is known). */
void br_col_reserve(br_colset *c, br_col *col, int64_t rows);
/* Make room for `more` string bytes and BR_COL_SLACK. Fails when 32-bit offsets can't say it. */
BR_MUST_USE br_status br_col_reserve_bytes(br_colset *c, br_col *col, uint64_t more, br_error *err);
void br_col_set_null(br_colset *c, br_col *col, int64_t row);
/* Can vectors of this kind fill the column? BR_UNSUPPORTED if not. */
BR_MUST_USE br_status br_col_check(const br_layout *l, uint32_t index, const br_vec *v, br_error *err);

/* A string in a BR_VEC_STRING: up to 12 bytes inline, else 4 bytes of prefix and the pointer. */
typedef struct br_vec_string {
  uint32_t length;
  char inlined[12];
} br_vec_string;

static inline const char *br_vec_string_pointer(const br_vec_string *s) {
  const char *p;
  memcpy(&p, s->inlined + 4, sizeof p);
  return p;
}

static inline bool br_vec_is_null(const br_vec *v, uint64_t row) {
  return v->validity != NULL && (v->validity[row >> 6] >> (row & 63) & 1) == 0;
}

/* Bytes of a row that must be changed on the way (decimals to widen, UUID, interval)? */
bool br_vec_converts(const br_lay_node *n, const br_vec *v);
/* Converted values of rows[0..n) (rows NULL: first_row..first_row + n) to out, n->width bytes each. */
BR_MUST_USE br_status br_vec_convert(const br_lay_node *node, const br_vec *v, const uint32_t *rows, uint32_t first_row,
                                     uint32_t n, void *out, br_error *err);
/* Append rows[0..n) of v after the `at` rows that col has; room for them is there (br_col_reserve). */
BR_MUST_USE br_status br_col_append(br_colset *c, br_col *col, int64_t at, const br_vec *v, const uint32_t *rows,
                                    uint32_t n, br_error *err);

#endif
