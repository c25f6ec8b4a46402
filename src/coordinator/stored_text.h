/* SPDX-License-Identifier: Apache-2.0
 * The text of an INSERT … SELECT or CREATE TABLE … AS, taken apart: which rows go where. */
#ifndef BRANT_COORDINATOR_STORED_TEXT_H
#define BRANT_COORDINATOR_STORED_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct br_stored_text {
  bool create; /* else INSERT */
  bool replace, if_not_exists;
  bool conflict, returning; /* INSERT OR …, ON CONFLICT; RETURNING */
  bool by_name, default_values;
  bool values;     /* rows that are written out */
  char *directory; /* a name in quotes that ends with a slash; NULL: a table */
  char *select;    /* what gives the rows, with the WITH that stands before an INSERT */
  size_t from, to; /* where it stands in the text, without that */
  char **columns;  /* that are named; NULL: all */
  size_t n_columns;
} br_stored_text;

/* False: something else, or in a form that only DuckDB's parser takes apart. */
bool br_stored_parse(const char *sql, br_stored_text *out);
void br_stored_text_free(br_stored_text *t);

#endif
