/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_bloom(hash, blocks), an aggregate: the Bloom filter of keys by their hashes, a BLOB of blocks * 32 bytes (of none when there was no
 * key). keys_maybe(filter, hash): false where no key with this hash was added; true where nothing is known, never NULL. Who reads
 * and writes these: plan/distribute/filter.c.
 *
 * Order: br_bloom_register once an instance. Threads: DuckDB's, each adds to a state of its own. Bounds: a state is one filter, of at most
 * BR_BLOOM_MAX_BLOCKS.
 */
#include "engine/functions.h"

#include "functions/bloom.h"
#include <stdlib.h>
#include <string.h>

typedef struct bloom_state {
  uint32_t *words; /* NULL: nothing was added */
  uint32_t blocks;
} bloom_state;

static bool is_valid(uint64_t *validity, idx_t row) { return !validity || duckdb_validity_row_is_valid(validity, row); }

static idx_t state_size(duckdb_function_info info) {
  (void)info;
  return sizeof(bloom_state);
}

static void state_init(duckdb_function_info info, duckdb_aggregate_state state) {
  (void)info;
  *(bloom_state *)state = (bloom_state){0};
}

static void state_free(duckdb_aggregate_state *states, idx_t count) {
  for (idx_t i = 0; i < count; i++) {
    bloom_state *s = (bloom_state *)states[i];
    free(s->words);
    s->words = NULL;
  }
}

/* False: an error was set. */
static bool state_for(duckdb_function_info info, bloom_state *s, int64_t blocks) {
  if (s->words && s->blocks == (uint64_t)blocks) return true;
  if (s->words || blocks < 1 || blocks > BR_BLOOM_MAX_BLOCKS) {
    duckdb_aggregate_function_set_error(info, "keys_bloom: blocks must be 1 to 8388608, the same in all rows");
    return false;
  }
  s->words = calloc((size_t)blocks, BR_BLOOM_BLOCK_BYTES);
  s->blocks = (uint32_t)blocks;
  if (!s->words) duckdb_aggregate_function_set_error(info, "keys_bloom: no memory for the filter");
  return s->words != NULL;
}

static void update(duckdb_function_info info, duckdb_data_chunk in, duckdb_aggregate_state *states) {
  duckdb_vector hashes = duckdb_data_chunk_get_vector(in, 0), blocks = duckdb_data_chunk_get_vector(in, 1);
  const uint64_t *hash = duckdb_vector_get_data(hashes);
  const int64_t *n = duckdb_vector_get_data(blocks);
  uint64_t *hashed = duckdb_vector_get_validity(hashes), *given = duckdb_vector_get_validity(blocks);
  idx_t rows = duckdb_data_chunk_get_size(in);
  for (idx_t i = 0; i < rows; i++) {
    bloom_state *s = (bloom_state *)states[i];
    if (!is_valid(hashed, i) || !is_valid(given, i)) continue;
    if (!state_for(info, s, n[i])) return;
    br_bloom_add(s->words, s->blocks, hash[i]);
  }
}

/* The source stays as it is: DuckDB may combine it again. */
static void combine(duckdb_function_info info, duckdb_aggregate_state *source, duckdb_aggregate_state *target,
                    idx_t count) {
  for (idx_t i = 0; i < count; i++) {
    const bloom_state *from = (const bloom_state *)source[i];
    if (!from->words) continue;
    if (!state_for(info, (bloom_state *)target[i], from->blocks)) return;
    br_bloom_or(((bloom_state *)target[i])->words, from->words, from->blocks);
  }
}

static void finalize(duckdb_function_info info, duckdb_aggregate_state *source, duckdb_vector result, idx_t count,
                     idx_t offset) {
  (void)info;
  for (idx_t i = 0; i < count; i++) {
    const bloom_state *s = (const bloom_state *)source[i];
    const char *bytes = s->words ? (const char *)s->words : "";
    duckdb_vector_assign_string_element_len(result, offset + i, bytes,
                                            s->words ? (idx_t)s->blocks * BR_BLOOM_BLOCK_BYTES : 0);
  }
}

static br_status register_aggregate(br_engine *e, br_error *err) {
  static const duckdb_type types[] = {DUCKDB_TYPE_UBIGINT, DUCKDB_TYPE_BIGINT};
  duckdb_aggregate_function f = duckdb_create_aggregate_function();
  br_status status = BR_OK;
  duckdb_logical_type result = duckdb_create_logical_type(DUCKDB_TYPE_BLOB);
  duckdb_aggregate_function_set_name(f, "keys_bloom");
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    duckdb_logical_type t = duckdb_create_logical_type(types[i]);
    duckdb_aggregate_function_add_parameter(f, t);
    duckdb_destroy_logical_type(&t);
  }
  duckdb_aggregate_function_set_return_type(f, result);
  duckdb_destroy_logical_type(&result);
  duckdb_aggregate_function_set_special_handling(f);
  duckdb_aggregate_function_set_functions(f, state_size, state_init, update, combine, finalize);
  duckdb_aggregate_function_set_destructor(f, state_free);
  if (duckdb_register_aggregate_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the function keys_bloom");
  duckdb_destroy_aggregate_function(&f);
  return status;
}

/* ---- keys_maybe(filter, hash) */

static bool is_filter(idx_t bytes) {
  return bytes % BR_BLOOM_BLOCK_BYTES == 0 && bytes / BR_BLOOM_BLOCK_BYTES <= BR_BLOOM_MAX_BLOCKS;
}

static void maybe(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  duckdb_string_t *filters = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 0));
  const uint64_t *hash = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 1));
  uint64_t *given = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(in, 0));
  uint64_t *hashed = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(in, 1));
  bool *found = duckdb_vector_get_data(out);
  idx_t rows = duckdb_data_chunk_get_size(in);
  for (idx_t i = 0; i < rows; i++) {
    found[i] = true;
    if (!is_valid(given, i) || !is_valid(hashed, i)) continue;
    idx_t bytes = duckdb_string_t_length(filters[i]);
    if (!is_filter(bytes)) {
      duckdb_scalar_function_set_error(info, "keys_maybe: the first argument is not what keys_bloom() gave");
      return;
    }
    found[i] = br_bloom_has(duckdb_string_t_data(&filters[i]), (uint32_t)(bytes / BR_BLOOM_BLOCK_BYTES), hash[i]);
  }
}

br_status br_bloom_register(br_engine *e, br_error *err) {
  static const br_scalar f = {.name = "keys_maybe",
                              .parameters = {DUCKDB_TYPE_BLOB, DUCKDB_TYPE_UBIGINT},
                              .n_parameters = 2,
                              .result = DUCKDB_TYPE_BOOLEAN,
                              .function = maybe};
  BR_TRY(register_aggregate(e, err));
  return br_scalar_register(e, &f, err);
}
