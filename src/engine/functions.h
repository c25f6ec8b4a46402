/* SPDX-License-Identifier: Apache-2.0
 * The functions for documents as DuckDB sees them; what they do is in functions/. Only for the files of engine/. */
#ifndef BRANT_ENGINE_FUNCTIONS_H
#define BRANT_ENGINE_FUNCTIONS_H

#include "engine/internal.h"

#define BR_FUNCTION_MAX_PARAMETERS 8

/* A scalar function: NULL for a NULL argument is the function's own business (every row is given to it). state: a thread's
 * own memory, made by init and freed by release; both may be NULL. */
typedef struct br_scalar {
  const char *name;
  duckdb_type parameters[BR_FUNCTION_MAX_PARAMETERS];
  size_t n_parameters;
  duckdb_type result;
  bool parameter0_list, parameter1_list, result_list; /* of these types */
  bool is_volatile;
  duckdb_scalar_function_t function;
  duckdb_scalar_function_init_t init;
} br_scalar;
BR_MUST_USE br_status br_scalar_register(br_engine *e, const br_scalar *s, br_error *err);
/* All arguments of a row are there. */
bool br_arguments_valid(duckdb_data_chunk in, idx_t row);
void br_set_null(duckdb_vector out, idx_t row);

/* minhash, minhash_bands, minhash_similarity, normalize_text: in a new instance. */
BR_MUST_USE br_status br_functions_register(br_engine *e, br_error *err);
/* Called by it: read_warc and warc_cuts; __url_download; __merge_moments; keys_bloom, keys_hold and keys_maybe. */
BR_MUST_USE br_status br_warc_register(br_engine *e, br_error *err);
BR_MUST_USE br_status br_download_register(br_engine *e, br_error *err);
BR_MUST_USE br_status br_moments_register(br_engine *e, br_error *err);
BR_MUST_USE br_status br_bloom_register(br_engine *e, br_error *err);

#endif
