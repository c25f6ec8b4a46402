/* SPDX-License-Identifier: Apache-2.0
 * Batches made of columns of other batches, cut at rows, without a copy. Any thread. */
#ifndef BRANT_ARROW_VIEW_H
#define BRANT_ARROW_VIEW_H

#include "arrow/batch.h"

typedef struct br_view_column {
  br_batch *from; /* borrowed; the new batch takes a reference */
  int column;
  int64_t first; /* row of `from` that becomes row 0 */
} br_view_column;

/* n columns of `rows` rows each, in the types of `schema`; what they are made of must reach that far. bytes: an estimate by the parts of the
 * rows that it shows. */
BR_MUST_USE br_status br_batch_view(br_schema *schema, const br_view_column *columns, size_t n, int64_t rows,
                                    br_batch **out, br_error *err);

#endif
