/* SPDX-License-Identifier: Apache-2.0
 *
 * url_download(url, on_error :=, timeout_ms :=, max_connections :=, retries :=, max_bytes :=): a macro, for its named options,
 * over __url_download, which is volatile: never computed while planning, and a plan knows that it may answer differently.
 *
 * A chunk's URLs are downloaded together. The session that runs is asked whether it was cancelled.
 * Order: br_download_register once an instance. Threads: DuckDB's. Bounds: see functions/download.h.
 */
#include "engine/functions.h"

#include "functions/download.h"
#include <string.h>

/* A thread's state: the session whose statement this is, alive as long as the statement. */
static void init(duckdb_init_info info) {
  duckdb_client_context context = NULL;
  duckdb_scalar_function_init_get_client_context(info, &context);
  br_engine *e = duckdb_scalar_function_init_get_extra_info(info);
  duckdb_scalar_function_init_set_state(info, br_session_of(e, context), NULL);
}

static bool session_cancelled(void *session) { return session && br_session_cancelled(session); }

typedef struct arguments {
  br_download_options options;
  bool raise;
} arguments;

static const char *bounds =
    "url_download: on_error is 'raise' or 'null', timeout_ms 1 to 3600000, max_connections 1 to 64, retries 0 to 20, "
    "max_bytes 1 to 1073741824";

/* Of the first row where none is NULL: they are constants. */
static bool read_arguments(duckdb_data_chunk in, idx_t row, arguments *a) {
  void *data[6];
  for (idx_t c = 0; c < 6; c++) data[c] = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, c));
  duckdb_string_t *mode = (duckdb_string_t *)data[1] + row;
  size_t n = duckdb_string_t_length(*mode);
  const char *p = duckdb_string_t_data(mode);
  int64_t timeout = ((int64_t *)data[2])[row], connections = ((int64_t *)data[3])[row];
  int64_t retries = ((int64_t *)data[4])[row], bytes = ((int64_t *)data[5])[row];
  a->raise = n == 5 && !memcmp(p, "raise", 5);
  if (!a->raise && !(n == 4 && !memcmp(p, "null", 4))) return false;
  if (timeout < 1 || timeout > 3600000 || connections < 1 || connections > BR_DOWNLOAD_PROCESS_CONNECTIONS)
    return false;
  if (retries < 0 || retries > BR_DOWNLOAD_MOST_RETRIES || bytes < 1 || bytes > (1 << 30)) return false;
  a->options.timeout_ms = (uint32_t)timeout;
  a->options.max_connections = (uint32_t)connections;
  a->options.retries = (uint32_t)retries;
  a->options.max_bytes = (uint64_t)bytes;
  return true;
}

static void results(duckdb_function_info info, const arguments *a, br_download *items, idx_t rows, duckdb_vector out) {
  for (idx_t i = 0; i < rows; i++) {
    if (items[i].url && items[i].error[0] && a->raise) {
      char text[1024];
      snprintf(text, sizeof text, "url_download: %.600s: %s", items[i].url, items[i].error);
      duckdb_scalar_function_set_error(info, text);
      return;
    }
    if (!items[i].url || items[i].error[0])
      br_set_null(out, i);
    else
      duckdb_vector_assign_string_element_len(out, i, br_buf_cstr(&items[i].body), items[i].body.len);
  }
}

static void download(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  idx_t rows = duckdb_data_chunk_get_size(in);
  duckdb_string_t *url = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 0));
  br_download *items = br_calloc(rows + 1, sizeof *items);
  arguments a = {.options = {.cancelled = session_cancelled, .arg = duckdb_scalar_function_get_state(info)}};
  bool known = false, good = true;
  br_error err;
  for (idx_t i = 0; i < rows && good; i++) {
    if (!br_arguments_valid(in, i)) continue;
    if (!known) good = read_arguments(in, i, &a);
    known = true;
    items[i].url = br_strndup(duckdb_string_t_data(&url[i]), duckdb_string_t_length(url[i]));
  }
  if (!good)
    duckdb_scalar_function_set_error(info, bounds);
  else if (known && br_download_all(&a.options, items, rows, &err) != BR_OK)
    duckdb_scalar_function_set_error(info, err.message);
  else
    results(info, &a, items, rows, out);
  for (idx_t i = 0; i < rows; i++) {
    free(items[i].url);
    br_buf_free(&items[i].body);
  }
  free(items);
}

br_status br_download_register(br_engine *e, br_error *err) {
  static const br_scalar f = {.name = "__url_download",
                              .parameters = {DUCKDB_TYPE_VARCHAR, DUCKDB_TYPE_VARCHAR, DUCKDB_TYPE_BIGINT,
                                             DUCKDB_TYPE_BIGINT, DUCKDB_TYPE_BIGINT, DUCKDB_TYPE_BIGINT},
                              .n_parameters = 6,
                              .result = DUCKDB_TYPE_BLOB,
                              .is_volatile = true,
                              .function = download,
                              .init = init};
  return br_scalar_register(e, &f, err);
}
