/* SPDX-License-Identifier: Apache-2.0
 * Enums in results (enums.c): texts between our processes, indices into a dictionary for the caller. */
#ifndef BRANT_ARROW_ENUMS_H
#define BRANT_ARROW_ENUMS_H

#include "base/status.h"
#include <nanoarrow/nanoarrow.h>
#include <stddef.h>

/* The texts of this field are values of an enum, which are these, in their order. Returns a NANOARROW code. */
int br_schema_note_enum(struct ArrowSchema *s, const char *const *values, size_t n);
bool br_schema_is_enum(const struct ArrowSchema *s);

typedef struct br_enums br_enums;
br_enums *br_enums_new(const struct ArrowSchema *s); /* NULL: the field is no enum */
void br_enums_unref(br_enums *e);                    /* NULL is fine */
/* The field, a copy, becomes one of indices. Returns a NANOARROW code. */
int br_enums_schema(const br_enums *e, struct ArrowSchema *s);
/* An array of texts becomes one of indices, and keeps its own release behind it. */
BR_MUST_USE br_status br_enums_encode(br_enums *e, struct ArrowArray *a, br_error *err);

#endif
