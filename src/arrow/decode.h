/* SPDX-License-Identifier: Apache-2.0
 * Dictionary and run-end encoded columns, at any depth, as plain ones, and floats of 16 bits, which DuckDB does not have, as FLOAT: what comes from outside may be encoded, what travels between our
 * processes is not. */
#ifndef BRANT_ARROW_DECODE_H
#define BRANT_ARROW_DECODE_H

#include "base/status.h"
#include "nanoarrow/nanoarrow.h"

/* *out: the schema without encodings, to be released; *encoded: it had some. */
BR_MUST_USE br_status br_schema_decode(const struct ArrowSchema *in, struct ArrowSchema *out, bool *encoded,
                                       br_error *err);
/* A batch of `in` becomes one of `out` (of br_schema_decode). Columns without encodings move as they are, others are copied; the array
 * must have been validated against `in`. On failure it is released. */
BR_MUST_USE br_status br_array_decode(const struct ArrowSchema *in, const struct ArrowSchema *out,
                                      struct ArrowArray *array, br_error *err);

#endif
