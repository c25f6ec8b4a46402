/* SPDX-License-Identifier: Apache-2.0
 * Rows of several engine vectors, copied behind each other so that they can be scattered at once. Flat kinds only. One owner. */
#ifndef BRANT_ARROW_GATHER_H
#define BRANT_ARROW_GATHER_H

#include "arrow/columns.h"

#define BR_GATHER_ROWS 8192u

typedef struct br_gather br_gather;
/* Of rows with these columns. NULL: they can't be gathered: nested, or BR_GATHER_ROWS of them take more than most_bytes. */
br_gather *br_gather_new(const br_vec *columns, uint32_t n_columns, uint64_t most_bytes);
void br_gather_free(br_gather *s); /* NULL is fine */
/* False: there is no room, clear it first; if it is empty, these rows are too large for it. */
BR_MUST_USE bool br_gather_add(br_gather *s, const br_vec *columns, uint32_t rows);
uint32_t br_gather_rows(const br_gather *s);
const br_vec *br_gather_columns(const br_gather *s); /* of its rows, until the next add */
void br_gather_clear(br_gather *s);

#endif
