/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrow schemas and record batches as the engine passes them around: reference-counted, immutable after creation.
 * Uses the Arrow C data interface structs of nanoarrow. Thread-safe: references may be taken and dropped on any thread;
 * the batch is released on whichever thread drops the last one.
 */
#ifndef BRANT_ARROW_BATCH_H
#define BRANT_ARROW_BATCH_H

#include "base/buf.h"
#include "base/status.h"
#include <nanoarrow/nanoarrow.h>
#include <stddef.h>
#include <stdint.h>

typedef struct br_schema br_schema; /* shared struct schema ("+s") */
/* Takes over *schema (moved, its release is NULL afterwards), also on failure. */
BR_MUST_USE br_status br_schema_new(struct ArrowSchema *schema, br_schema **out, br_error *err);
br_schema *br_schema_ref(br_schema *s);
void br_schema_unref(br_schema *s); /* NULL is fine */
const struct ArrowSchema *br_schema_arrow(const br_schema *s);
int br_schema_columns(const br_schema *s);
/* Same formats, nesting and extension names (field names and nullability don't matter). The message of a difference goes to why. */
bool br_schema_same_types(const br_schema *a, const br_schema *b, br_buf *why);

typedef struct br_batch br_batch;
/* Takes over *array (a struct array over schema's columns), also on failure; refs schema. bytes: what it holds in memory. */
BR_MUST_USE br_status br_batch_new(br_schema *schema, struct ArrowArray *array, uint64_t bytes, br_batch **out,
                                   br_error *err);
br_batch *br_batch_ref(br_batch *b);
void br_batch_unref(br_batch *b);
int64_t br_batch_rows(const br_batch *b);
uint64_t br_batch_bytes(const br_batch *b);
br_schema *br_batch_schema(const br_batch *b);              /* borrowed */
const struct ArrowArray *br_batch_arrow(const br_batch *b); /* borrowed; valid while a reference is held */
/* Move a view of the whole batch into *out: its release callback drops the reference that it takes. */
void br_batch_export(br_batch *b, struct ArrowArray *out);

#endif
