/* SPDX-License-Identifier: Apache-2.0
 *
 * Neutral vectors in, Arrow column buffers out: what the engine's sink hands to the shuffle's partitioner, without either
 * knowing the other. A br_vec borrows the memory of an engine vector for the length of one call.
 */
#ifndef BRANT_ARROW_COLUMNS_H
#define BRANT_ARROW_COLUMNS_H

#include "arrow/ipc.h"

typedef enum br_vec_kind {
  BR_VEC_BOOL,     /* one byte a row, 0 or 1; Arrow: bit-packed ("b"), or a byte ("c", arrow.bool8)        */
  BR_VEC_FIXED,    /* width bytes a row (1, 2, 4, 8, 16 or more), same layout in Arrow; but 16 bytes into an
                       arrow.uuid column are DuckDB's UUID and become its big-endian bytes here             */
  BR_VEC_STRING,   /* 16 bytes a row: u32 length; up to 12 bytes inline, or 4 bytes prefix and a pointer.
                       Arrow: int32 offsets + bytes ("u", "z") or int64 offsets ("U", "Z") by the schema    */
  BR_VEC_LIST,     /* {uint64_t offset, length} a row into child 0. Arrow: list ("+l") or large list ("+L") */
  BR_VEC_MAP,      /* the same; child 0 is STRUCT(key, value). Arrow: "+m"                                 */
  BR_VEC_STRUCT,   /* children of the same length                                                          */
  BR_VEC_ARRAY,    /* child 0 holds array_size values a row. Arrow: "+w:N"                                 */
  BR_VEC_INTERVAL, /* {int32 months, int32 days, int64 micros}. Arrow: month_day_nano ("tin"): micros x 1000;
                       a product that overflows int64 is an error (BR_UNSUPPORTED, blame user)              */
  BR_VEC_NULL,     /* every row NULL. Arrow: "n"                                                           */
  BR_VEC_UNION     /* children: tag (FIXED 1) then members, as DuckDB stores it. Arrow: sparse union "+us",
                       which has no NULLs of its own: a NULL union becomes its first member, NULL           */
} br_vec_kind;

typedef struct br_vec br_vec;
struct br_vec {
  br_vec_kind kind;
  uint32_t width;     /* FIXED: bytes; ARRAY: array_size */
  uint32_t out_width; /* FIXED: Arrow bytes a row if wider (sign-extended: DECIMAL of 2 bytes into decimal32), else 0 */
  const void *data;   /* rows in order; NULL for STRUCT, ARRAY, NULL */
  const uint64_t *validity; /* bit set: not NULL; NULL pointer: no NULLs */
  const br_vec *children;   /* n_children of them */
  uint32_t n_children;
};

/* One partition's columns under construction. Not thread-safe: one owner thread. */
typedef struct br_colset br_colset;
/* The Arrow schema decides the output layout; formats that br_vec can't fill are BR_UNSUPPORTED here, not later. */
BR_MUST_USE br_status br_colset_new(const br_schema *schema, br_colset **out, br_error *err);
void br_colset_free(br_colset *c);
/* Append the rows rows[0..n) (indexes into the vectors) of every column. */
BR_MUST_USE br_status br_colset_append(br_colset *c, const br_vec *columns, const uint32_t *rows, uint32_t n,
                                       br_error *err);
/* Scatter n rows over partitions: row i goes to parts[part_of_row[i]] (all of one schema). The fast path of the shuffle:
 * fixed-width and string columns are written column by column without sorting the rows first. On failure the colsets are
 * unusable but can be freed. */
BR_MUST_USE br_status br_colset_scatter(br_colset *const *parts, uint32_t n_parts, const br_vec *columns,
                                        const uint32_t *part_of_row, uint32_t n, br_error *err);
int64_t br_colset_rows(const br_colset *c);
uint64_t br_colset_bytes(const br_colset *c);    /* of the buffers in use, bitmaps counted for every column; O(1) */
uint64_t br_colset_reserved(const br_colset *c); /* of the buffers allocated; O(1) */
/* Encode what was appended as one record-batch message (see br_ipc_encode_batch), then start empty again, keeping the
 * buffers unless `shrink`. */
BR_MUST_USE br_status br_colset_encode(br_colset *c, br_codec codec, br_buf *head, br_buf *body, bool shrink,
                                       br_error *err);
/* The same without compression and without a copy of the values: the message goes to head, the body's pieces (as
 * br_ipc_encode_head wants them written) to *pieces, an array of br_ipc_piece. They lie in the colset until it starts again. */
BR_MUST_USE br_status br_colset_lay_out(br_colset *c, br_buf *head, br_buf *pieces, uint64_t *body_bytes,
                                        br_error *err);
void br_colset_start_again(br_colset *c, bool shrink);

#endif
