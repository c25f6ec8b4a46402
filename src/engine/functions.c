/* SPDX-License-Identifier: Apache-2.0
 *
 * Scalar functions for documents: minhash, minhash_bands, minhash_similarity, normalize_text.
 *
 * Every instance has them, so a query means the same in the caller's process and in executors. normalize_text is a macro, for
 * its named options, over DuckDB's own lower() and nfc_normalize() and one function of ours.
 * Order: br_functions_register once an instance. Threads: DuckDB's; what is kept between chunks is a thread's own state.
 * Bounds: of a chunk (2,048 rows): at most CHUNK_VALUES values of lists.
 */
#include "engine/functions.h"

#include "functions/minhash.h"
#include "functions/text.h"
#include <string.h>

enum { CHUNK_VALUES = 1 << 27 };

/* ---- registering */

static duckdb_logical_type type_of(duckdb_type id, bool list) {
  duckdb_logical_type one = duckdb_create_logical_type(id), all;
  if (!list) return one;
  all = duckdb_create_list_type(one);
  duckdb_destroy_logical_type(&one);
  return all;
}

br_status br_scalar_register(br_engine *e, const br_scalar *s, br_error *err) {
  duckdb_scalar_function f = duckdb_create_scalar_function();
  br_status status = BR_OK;
  duckdb_scalar_function_set_name(f, s->name);
  for (size_t i = 0; i < s->n_parameters; i++) {
    duckdb_logical_type t = type_of(s->parameters[i], (i == 0 && s->parameter0_list) || (i == 1 && s->parameter1_list));
    duckdb_scalar_function_add_parameter(f, t);
    duckdb_destroy_logical_type(&t);
  }
  duckdb_logical_type result = type_of(s->result, s->result_list);
  duckdb_scalar_function_set_return_type(f, result);
  duckdb_destroy_logical_type(&result);
  duckdb_scalar_function_set_special_handling(f);
  if (s->is_volatile) duckdb_scalar_function_set_volatile(f);
  if (s->init) duckdb_scalar_function_set_init(f, s->init);
  duckdb_scalar_function_set_extra_info(f, e, NULL);
  duckdb_scalar_function_set_function(f, s->function);
  if (duckdb_register_scalar_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the function %s", s->name);
  duckdb_destroy_scalar_function(&f);
  return status;
}

bool br_arguments_valid(duckdb_data_chunk in, idx_t row) {
  idx_t n = duckdb_data_chunk_get_column_count(in);
  for (idx_t c = 0; c < n; c++) {
    uint64_t *validity = duckdb_vector_get_validity(duckdb_data_chunk_get_vector(in, c));
    if (validity && !duckdb_validity_row_is_valid(validity, row)) return false;
  }
  return true;
}

void br_set_null(duckdb_vector out, idx_t row) {
  duckdb_vector_ensure_validity_writable(out);
  duckdb_validity_set_row_invalid(duckdb_vector_get_validity(out), row);
}

static void *column(duckdb_data_chunk in, idx_t c) {
  return duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, c));
}

static void fail(duckdb_function_info info, const char *format, ...) BR_PRINTF(2, 3);
static void fail(duckdb_function_info info, const char *format, ...) {
  char text[256];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  duckdb_scalar_function_set_error(info, text);
}

/* ---- lists */

/* Room for `more` values behind the `used` ones of a list vector; NULL after an error. */
static void *list_room(duckdb_function_info info, duckdb_vector out, idx_t used, idx_t more, const char *name) {
  if (used + more > CHUNK_VALUES) {
    fail(info, "%s: more than %d values in one chunk of rows: ask for fewer a row", name, CHUNK_VALUES);
    return NULL;
  }
  idx_t size = used + more;
  if (duckdb_list_vector_reserve(out, size) != DuckDBSuccess ||
      duckdb_list_vector_set_size(out, size) != DuckDBSuccess) {
    fail(info, "%s: no memory for a list", name);
    return NULL;
  }
  return duckdb_vector_get_data(duckdb_list_vector_get_child(out));
}

/* The values of row's list; false: one of them is NULL. */
static bool signature_at(duckdb_vector v, idx_t row, const uint32_t **values, idx_t *n) {
  duckdb_list_entry entry = ((duckdb_list_entry *)duckdb_vector_get_data(v))[row];
  duckdb_vector child = duckdb_list_vector_get_child(v);
  uint64_t *validity = duckdb_vector_get_validity(child);
  *values = (const uint32_t *)duckdb_vector_get_data(child) + entry.offset;
  *n = entry.length;
  for (idx_t i = 0; validity && i < entry.length; i++)
    if (!duckdb_validity_row_is_valid(validity, entry.offset + i)) return false;
  return true;
}

/* ---- minhash(text, hashes, ngram, seed) */

typedef struct hasher {
  br_minhash_family family;
  br_minhash_scratch scratch;
} hasher;

static void hasher_free(void *p) {
  hasher *h = p;
  br_minhash_family_free(&h->family);
  br_minhash_scratch_free(&h->scratch);
  free(h);
}

static void hasher_init(duckdb_init_info info) {
  duckdb_scalar_function_init_set_state(info, br_calloc(1, sizeof(hasher)), hasher_free);
}

/* The coefficients are made anew only where the arguments change: they are constants in nearly all queries. */
static void use_family(hasher *h, uint32_t hashes, uint64_t seed) {
  if (h->family.hashes == hashes && h->family.seed == seed) return;
  br_minhash_family_free(&h->family);
  br_minhash_family_init(&h->family, hashes, seed);
}

static void minhash(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  hasher *h = duckdb_scalar_function_get_state(info);
  const int32_t *hashes = column(in, 1), *ngram = column(in, 2);
  const int64_t *seed = column(in, 3);
  duckdb_string_t *text = column(in, 0);
  duckdb_list_entry *entries = duckdb_vector_get_data(out);
  idx_t rows = duckdb_data_chunk_get_size(in), used = 0;
  for (idx_t i = 0; i < rows; i++) {
    entries[i] = (duckdb_list_entry){.offset = used};
    if (!br_arguments_valid(in, i)) {
      br_set_null(out, i);
      continue;
    }
    if (hashes[i] < 1 || hashes[i] > (int32_t)BR_MINHASH_MAX_HASHES || ngram[i] < 1) {
      fail(info, "minhash: hashes must be 1 to %u and ngram at least 1, not %d and %d", BR_MINHASH_MAX_HASHES,
           hashes[i], ngram[i]);
      return;
    }
    idx_t n = (idx_t)hashes[i];
    uint32_t *values = list_room(info, out, used, n, "minhash");
    if (!values) return;
    use_family(h, (uint32_t)n, (uint64_t)seed[i]);
    br_minhash(&h->family, (uint32_t)ngram[i], duckdb_string_t_data(&text[i]), duckdb_string_t_length(text[i]),
               &h->scratch, values + used);
    entries[i].length = n;
    used += n;
  }
}

/* ---- minhash_bands(signature, bands, rows) */

static void bands(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  const int32_t *n_bands = column(in, 1), *n_rows = column(in, 2);
  duckdb_list_entry *entries = duckdb_vector_get_data(out);
  idx_t rows = duckdb_data_chunk_get_size(in), used = 0;
  for (idx_t i = 0; i < rows; i++) {
    const uint32_t *signature;
    idx_t n;
    entries[i] = (duckdb_list_entry){.offset = used};
    if (!br_arguments_valid(in, i)) {
      br_set_null(out, i);
      continue;
    }
    if (!signature_at(duckdb_data_chunk_get_vector(in, 0), i, &signature, &n)) {
      fail(info, "minhash_bands: a value of the signature is NULL");
      return;
    }
    if (n_bands[i] < 1 || n_rows[i] < 1 || (uint64_t)n_bands[i] * (uint64_t)n_rows[i] > n) {
      fail(info, "minhash_bands: %d bands of %d rows do not fit a signature of %llu values", n_bands[i], n_rows[i],
           (unsigned long long)n);
      return;
    }
    uint64_t *keys = list_room(info, out, used, (idx_t)n_bands[i], "minhash_bands");
    if (!keys) return;
    br_minhash_bands(signature, (uint32_t)n_bands[i], (uint32_t)n_rows[i], keys + used);
    entries[i].length = (idx_t)n_bands[i];
    used += entries[i].length;
  }
}

/* ---- minhash_similarity(a, b) */

static void similarity(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  double *result = duckdb_vector_get_data(out);
  idx_t rows = duckdb_data_chunk_get_size(in);
  for (idx_t i = 0; i < rows; i++) {
    const uint32_t *a, *b;
    idx_t n, m;
    if (!br_arguments_valid(in, i)) {
      br_set_null(out, i);
      continue;
    }
    bool whole = signature_at(duckdb_data_chunk_get_vector(in, 0), i, &a, &n) &&
                 signature_at(duckdb_data_chunk_get_vector(in, 1), i, &b, &m);
    if (!whole || n != m || n == 0) {
      fail(info, "minhash_similarity: two signatures of the same length without NULLs are needed");
      return;
    }
    result[i] = br_minhash_similarity(a, b, n);
  }
}

/* ---- __strip_text(text, remove_punctuation, collapse_spaces) */

static void buffer_free(void *p) {
  br_buf_free(p);
  free(p);
}

static void buffer_init(duckdb_init_info info) {
  duckdb_scalar_function_init_set_state(info, br_calloc(1, sizeof(br_buf)), buffer_free);
}

static void strip(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  br_buf *b = duckdb_scalar_function_get_state(info);
  duckdb_string_t *text = column(in, 0);
  const bool *punctuation = column(in, 1), *spaces = column(in, 2);
  idx_t rows = duckdb_data_chunk_get_size(in);
  for (idx_t i = 0; i < rows; i++) {
    if (!br_arguments_valid(in, i)) {
      br_set_null(out, i);
      continue;
    }
    size_t n = duckdb_string_t_length(text[i]);
    br_buf_clear(b);
    br_buf_reserve(b, n + 1);
    n = br_text_strip(duckdb_string_t_data(&text[i]), n, punctuation[i], spaces[i], b->data);
    duckdb_vector_assign_string_element_len(out, i, b->data, n);
  }
}

/* ---- all of them */

static const br_scalar scalars[] = {
    {.name = "minhash",
     .parameters = {DUCKDB_TYPE_VARCHAR, DUCKDB_TYPE_INTEGER, DUCKDB_TYPE_INTEGER, DUCKDB_TYPE_BIGINT},
     .n_parameters = 4,
     .result = DUCKDB_TYPE_UINTEGER,
     .result_list = true,
     .function = minhash,
     .init = hasher_init},
    {.name = "minhash_bands",
     .parameters = {DUCKDB_TYPE_UINTEGER, DUCKDB_TYPE_INTEGER, DUCKDB_TYPE_INTEGER},
     .n_parameters = 3,
     .parameter0_list = true,
     .result = DUCKDB_TYPE_UBIGINT,
     .result_list = true,
     .function = bands},
    {.name = "minhash_similarity",
     .parameters = {DUCKDB_TYPE_UINTEGER, DUCKDB_TYPE_UINTEGER},
     .n_parameters = 2,
     .parameter0_list = true,
     .parameter1_list = true,
     .result = DUCKDB_TYPE_DOUBLE,
     .function = similarity},
    {.name = "__strip_text",
     .parameters = {DUCKDB_TYPE_VARCHAR, DUCKDB_TYPE_BOOLEAN, DUCKDB_TYPE_BOOLEAN},
     .n_parameters = 3,
     .result = DUCKDB_TYPE_VARCHAR,
     .function = strip,
     .init = buffer_init},
};

static const char *const macros[] = {
    "CREATE MACRO memory.main.normalize_text(text, lowercase := true, remove_punctuation := true, "
    "collapse_spaces := true, nfc := true) AS __strip_text(CASE WHEN lowercase THEN lower(CASE WHEN nfc THEN "
    "nfc_normalize(text) ELSE text END) WHEN nfc THEN nfc_normalize(text) ELSE text END, remove_punctuation, "
    "collapse_spaces)",
    "CREATE MACRO memory.main.url_download(url, on_error := 'raise', timeout_ms := 30000, max_connections := 16, "
    "retries := 3, max_bytes := 67108864) AS __url_download(url, on_error, timeout_ms, max_connections, retries, "
    "max_bytes)"};

br_status br_functions_register(br_engine *e, br_error *err) {
  for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) BR_TRY(br_scalar_register(e, &scalars[i], err));
  BR_TRY(br_download_register(e, err));
  BR_TRY(br_moments_register(e, err));
  BR_TRY(br_bloom_register(e, err));
  for (size_t i = 0; i < sizeof macros / sizeof *macros; i++) {
    duckdb_result r;
    if (duckdb_query(e->helper, macros[i], &r) == DuckDBSuccess) {
      duckdb_destroy_result(&r);
      continue;
    }
    br_status status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take a macro: %s",
                               duckdb_result_error(&r) ? duckdb_result_error(&r) : "no reason given");
    duckdb_destroy_result(&r);
    return status;
  }
  return br_warc_register(e, err);
}
