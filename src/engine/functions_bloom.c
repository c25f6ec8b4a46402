/* SPDX-License-Identifier: Apache-2.0
 *
 * keys_bloom(hash, blocks), an aggregate: the Bloom filter of keys by their hashes, a BLOB of blocks * 32 bytes (of none when there was no
 * key). keys_hold(filter): a number for it, as long as the statement runs: DuckDB copies a scalar subquery's value for each chunk of rows,
 * so it must be a small one. keys_maybe(number, hash): false where no key with this hash was added; true where nothing is known, never
 * NULL. Who writes these: plan/distribute/filter.c.
 *
 * Order: br_bloom_register once an instance. Threads: DuckDB's, each adds to a state of its own; held filters are under the session's lock,
 * and only read. Bounds: a state is one filter, of at most BR_BLOOM_MAX_BLOCKS; a statement holds each once.
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

/* ---- keys_hold(filter), keys_maybe(number, hash) */

typedef struct br_held {
  struct br_held *next;
  uint64_t number;
  uint32_t blocks;
  char bytes[];
} br_held;

void br_held_free(br_held *held) {
  while (held) {
    br_held *next = held->next;
    free(held);
    held = next;
  }
}

/* A thread's own: the session whose statement this is, and the filter that was looked for last. */
typedef struct looker {
  br_session *session;
  const br_held *last;
} looker;

static void looker_init(duckdb_init_info info) {
  duckdb_client_context context = NULL;
  looker *l = br_calloc(1, sizeof *l);
  duckdb_scalar_function_init_get_client_context(info, &context);
  l->session = br_session_of(duckdb_scalar_function_init_get_extra_info(info), context);
  duckdb_scalar_function_init_set_state(info, l, free);
}

static const br_held *find_held(br_session *s, uint64_t number) {
  const br_held *h = NULL;
  if (!s) return NULL;
  pthread_mutex_lock(&s->mutex);
  for (h = s->held; h && h->number != number;) h = h->next;
  pthread_mutex_unlock(&s->mutex);
  return h;
}

/* NULL: there is no memory. */
static const br_held *hold_one(br_session *s, const char *bytes, size_t n) {
  br_held *h;
  pthread_mutex_lock(&s->mutex);
  for (h = s->held; h && (h->blocks != n / BR_BLOOM_BLOCK_BYTES || memcmp(h->bytes, bytes, n) != 0);) h = h->next;
  if (!h && (h = malloc(sizeof *h + n)) != NULL) {
    h->number = s->held ? s->held->number + 1 : 1;
    h->blocks = (uint32_t)(n / BR_BLOOM_BLOCK_BYTES);
    memcpy(h->bytes, bytes, n);
    h->next = s->held;
    s->held = h;
  }
  pthread_mutex_unlock(&s->mutex);
  return h;
}

static bool is_filter(idx_t bytes) {
  return bytes % BR_BLOOM_BLOCK_BYTES == 0 && bytes / BR_BLOOM_BLOCK_BYTES <= BR_BLOOM_MAX_BLOCKS;
}

static void hold(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  looker *l = duckdb_scalar_function_get_state(info);
  duckdb_string_t *filters = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 0));
  uint64_t *given = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(in, 0)),
           *numbers = duckdb_vector_get_data(out);
  idx_t rows = duckdb_data_chunk_get_size(in);
  for (idx_t i = 0; i < rows; i++) {
    if (!is_valid(given, i)) {
      br_set_null(out, i);
      continue;
    }
    size_t n = duckdb_string_t_length(filters[i]);
    const br_held *h = l->session && is_filter(n) ? hold_one(l->session, duckdb_string_t_data(&filters[i]), n) : NULL;
    if (!h) {
      duckdb_scalar_function_set_error(info,
                                       "keys_hold: the argument is not what keys_bloom() gave, or there is no memory");
      return;
    }
    numbers[i] = h->number;
  }
}

static void maybe(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  looker *l = duckdb_scalar_function_get_state(info);
  const uint64_t *number = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 0));
  const uint64_t *hash = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 1));
  uint64_t *given = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(in, 0));
  uint64_t *hashed = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(in, 1));
  bool *found = duckdb_vector_get_data(out);
  idx_t rows = duckdb_data_chunk_get_size(in);
  for (idx_t i = 0; i < rows; i++) {
    found[i] = true;
    if (!is_valid(given, i) || !is_valid(hashed, i)) continue;
    if (!l->last || l->last->number != number[i]) l->last = find_held(l->session, number[i]);
    if (!l->last) {
      duckdb_scalar_function_set_error(info,
                                       "keys_maybe: the first argument is not what keys_hold() gave in this statement");
      return;
    }
    found[i] = br_bloom_has(l->last->bytes, l->last->blocks, hash[i]);
  }
}

br_status br_bloom_register(br_engine *e, br_error *err) {
  static const br_scalar functions[] = {{.name = "keys_hold",
                                         .parameters = {DUCKDB_TYPE_BLOB},
                                         .n_parameters = 1,
                                         .result = DUCKDB_TYPE_UBIGINT,
                                         .is_volatile = true,
                                         .function = hold,
                                         .init = looker_init},
                                        {.name = "keys_maybe",
                                         .parameters = {DUCKDB_TYPE_UBIGINT, DUCKDB_TYPE_UBIGINT},
                                         .n_parameters = 2,
                                         .result = DUCKDB_TYPE_BOOLEAN,
                                         .function = maybe,
                                         .init = looker_init}};
  BR_TRY(register_aggregate(e, err));
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) BR_TRY(br_scalar_register(e, &functions[i], err));
  return BR_OK;
}
