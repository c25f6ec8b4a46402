/* SPDX-License-Identifier: Apache-2.0
 * Which partition a row goes to: by a computed number, or by its sort key among bounds. */
#ifndef BRANT_SHUFFLE_PLACE_H
#define BRANT_SHUFFLE_PLACE_H

#include "arrow/columns.h"

/* place[i] = the number in row i of v (FIXED of 2, 4 or 8 bytes, not NULL, < partitions). */
BR_MUST_USE br_status br_place_numbers(const br_vec *v, uint32_t rows, uint32_t partitions, uint32_t *place,
                                       br_error *err);

/* Bounds of a range exchange: partition i holds the keys in (bound[i-1], bound[i]]; keys compare as memcmp does, on a tie the
 * shorter is smaller. The keys themselves are borrowed. Read-only after creation: any thread. */
typedef struct br_bounds br_bounds;
BR_MUST_USE br_status br_bounds_new(const void *const *keys, const uint32_t *bytes, uint32_t n, br_bounds **out,
                                    br_error *err);
void br_bounds_free(br_bounds *b);
/* A key that equals k >= 2 bounds is a heavy one: its rows are dealt out over the k + 1 partitions that may hold it, the two
 * outer ones, which have neighbours too, getting half of what the others get. *turn: the dealer's place, one a thread. */
BR_MUST_USE br_status br_place_range(const br_bounds *b, const br_vec *v, uint32_t rows, uint64_t *turn,
                                     uint32_t *place, br_error *err);

#endif
