/* SPDX-License-Identifier: Apache-2.0
 * For those who read results (plain.c): HUGEINT becomes DECIMAL(38, 0), arrow.bool8 a bool of bits, a narrow DECIMAL one of 16 bytes, texts
 * that are noted as an enum's (enums.h) indices, in place, whatever they lie in: types that everybody knows, and DuckDB's own default. */
#ifndef BRANT_ARROW_PLAIN_H
#define BRANT_ARROW_PLAIN_H

#include "arrow/batch.h"

typedef struct br_plain br_plain;
br_plain *br_plain_new(br_schema *schema, bool enums); /* of the result, as it travels; enums: or they stay texts */
void br_plain_free(br_plain *p);                       /* NULL is fine */
/* A copy of the schema. Returns a NANOARROW code. */
int br_plain_schema(const br_plain *p, struct ArrowSchema *s);
/* An array that br_batch_export gave. On failure some of its columns have changed: release it. */
BR_MUST_USE br_status br_plain_array(const br_plain *p, struct ArrowArray *array, br_error *err);

#endif
