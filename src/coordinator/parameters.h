/* SPDX-License-Identifier: Apache-2.0
 * Parameters of a statement ($1, ?, $name) and their values. DuckDB's plans are made of texts, and a text has no place for values that
 * come beside it: a value becomes a constant of the text, of the same type. */
#ifndef BRANT_COORDINATOR_PARAMETERS_H
#define BRANT_COORDINATOR_PARAMETERS_H

#include <stddef.h>

#include "base/status.h"

typedef struct br_value {
  char *name; /* what stands behind the $; "1", "2", … of ? */
  char *sql;  /* an expression without columns */
} br_value;
void br_values_free(br_value *values, size_t n);

typedef struct br_parameter {
  size_t at, end; /* bytes of the text */
  char *name;
} br_parameter;
/* In the order of the text; quotes and comments have none. Names and numbers in one statement are an error, as in DuckDB. */
BR_MUST_USE br_status br_parameters(const char *sql, br_parameter **out, size_t *n, br_error *err);
void br_parameters_free(br_parameter *p, size_t n);

/* Each parameter must have a value, and each value a parameter. *out: free it. */
BR_MUST_USE br_status br_parameters_bind(const char *sql, const br_value *values, size_t n, char **out, br_error *err);

#endif
