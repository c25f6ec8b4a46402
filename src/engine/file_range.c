/* SPDX-License-Identifier: Apache-2.0
 *
 * file_range('/data/a.csv', first, end): the name of a file with these bytes of another one, for readers that take whole files
 * only: read_csv(file_range(…)). The bytes are copied into a sealed memfd when the call is bound, which is before the reader opens
 * it; the end of the connection's statement frees it.
 *
 * Order: while a statement is bound. Threads: any. Bounds: RANGE_MOST_BYTES a range, RANGES_MOST at once; the planner makes ranges
 * of a few dozen MB, and a task reads one.
 */
#include "engine/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANGE_MOST_BYTES = 1 << 30, RANGES_MOST = 4096, COPY_BYTES = 1 << 20 };

typedef struct range {
  uint64_t session; /* its connection's id */
  char *path;
  uint64_t first, end;
  int fd;
} range;

struct br_file_ranges {
  pthread_mutex_t mutex;
  range *items;
  size_t n, capacity;
};

br_file_ranges *br_file_ranges_new(void) {
  br_file_ranges *r = br_calloc(1, sizeof *r);
  pthread_mutex_init(&r->mutex, NULL);
  return r;
}

static void drop(br_file_ranges *r, size_t i) {
  close(r->items[i].fd);
  free(r->items[i].path);
  r->items[i] = r->items[--r->n];
}

void br_file_ranges_free(br_file_ranges *r) {
  if (!r) return;
  while (r->n) drop(r, 0);
  free(r->items);
  pthread_mutex_destroy(&r->mutex);
  free(r);
}

void br_file_ranges_end(br_file_ranges *r, uint64_t session) {
  pthread_mutex_lock(&r->mutex);
  for (size_t i = 0; i < r->n;)
    if (r->items[i].session == session)
      drop(r, i);
    else
      i++;
  pthread_mutex_unlock(&r->mutex);
}

/* ---- the copy */

static br_status copy(int from, int to, uint64_t first, uint64_t end, br_error *err) {
  br_status status = BR_OK;
  char *block = br_malloc(COPY_BYTES);
  for (uint64_t at = first; at < end && status == BR_OK;) {
    size_t n = end - at < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
    status = br_pread_all(from, block, n, at, err);
    if (status == BR_OK) status = br_write_all(to, block, n, err);
    at += n;
  }
  free(block);
  return status;
}

static br_status fill(const char *path, uint64_t first, uint64_t end, int *fd, br_error *err) {
  int from = open(path, O_RDONLY | O_CLOEXEC);
  *fd = -1;
  if (from < 0) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot read the file %s", path);
  br_status status = BR_OK;
  *fd = memfd_create("brant-range", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0)
    status = br_fail_errno(err, errno, BR_BLAME_EXECUTOR, "no memory file for a part of %s", path);
  else
    status = copy(from, *fd, first, end, err);
  close(from);
  if (status == BR_OK && fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK))
    status = br_fail_errno(err, errno, BR_BLAME_EXECUTOR, "sealing a part of %s", path);
  if (status == BR_OK) return BR_OK;
  if (*fd >= 0) close(*fd);
  return br_error_context(err, "%s, bytes %llu to %llu", path, (unsigned long long)first, (unsigned long long)end);
}

static int held(const br_file_ranges *r, uint64_t session, const char *path, uint64_t first, uint64_t end) {
  for (size_t i = 0; i < r->n; i++) {
    const range *x = &r->items[i];
    if (x->session == session && x->first == first && x->end == end && !strcmp(x->path, path)) return x->fd;
  }
  return -1;
}

/* A statement is bound more than once, one time after the other: the same bytes for the same connection are copied once. Other
 * connections go on while this one copies. */
static br_status find(br_file_ranges *r, uint64_t session, const char *path, uint64_t first, uint64_t end, int *fd,
                      br_error *err) {
  pthread_mutex_lock(&r->mutex);
  *fd = held(r, session, path, first, end);
  bool full = r->n >= RANGES_MOST;
  pthread_mutex_unlock(&r->mutex);
  if (*fd >= 0) return BR_OK;
  if (full) return br_fail(err, BR_INVALID, BR_BLAME_USER, "more than %d calls of file_range() at once", RANGES_MOST);
  BR_TRY(fill(path, first, end, fd, err));
  pthread_mutex_lock(&r->mutex);
  br_grow((void **)&r->items, &r->capacity, r->n, sizeof *r->items);
  r->items[r->n++] = (range){.session = session, .path = br_strdup(path), .first = first, .end = end, .fd = *fd};
  pthread_mutex_unlock(&r->mutex);
  return BR_OK;
}

/* ---- the function */

typedef struct where {
  br_engine *engine;
  uint64_t session;
} where;

static void *where_copy(void *p) {
  where *w = br_calloc(1, sizeof *w);
  *w = *(where *)p;
  return w;
}

static void bind(duckdb_bind_info info) {
  where *w = br_calloc(1, sizeof *w);
  duckdb_client_context context = NULL;
  w->engine = duckdb_scalar_function_bind_get_extra_info(info);
  duckdb_scalar_function_get_client_context(info, &context);
  w->session = duckdb_client_context_get_connection_id(context);
  duckdb_destroy_client_context(&context);
  duckdb_scalar_function_set_bind_data(info, w, free);
  duckdb_scalar_function_set_bind_data_copy(info, where_copy);
}

static void call(duckdb_function_info info, duckdb_data_chunk in, duckdb_vector out) {
  const where *w = duckdb_scalar_function_get_bind_data(info);
  duckdb_string_t *paths = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 0));
  const uint64_t *first = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 1));
  const uint64_t *end = duckdb_vector_get_data(duckdb_data_chunk_get_vector(in, 2));
  for (idx_t i = 0, n = duckdb_data_chunk_get_size(in); i < n; i++) {
    br_error err;
    char *path = br_strndup(duckdb_string_t_data(&paths[i]), duckdb_string_t_length(paths[i]));
    int fd = -1;
    br_status status = end[i] >= first[i] && end[i] - first[i] <= RANGE_MOST_BYTES
                           ? find(w->engine->ranges, w->session, path, first[i], end[i], &fd, &err)
                           : br_fail(&err, BR_INVALID, BR_BLAME_USER,
                                     "file_range(%s): from %llu to %llu is no range of at most %d bytes", path,
                                     (unsigned long long)first[i], (unsigned long long)end[i], RANGE_MOST_BYTES);
    free(path);
    if (status != BR_OK) {
      duckdb_scalar_function_set_error(info, err.message);
      return;
    }
    char name[48];
    int length = snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    duckdb_vector_assign_string_element_len(out, i, name, (idx_t)length);
  }
}

br_status br_file_range_register(br_engine *e, br_error *err) {
  duckdb_scalar_function f = duckdb_create_scalar_function();
  duckdb_logical_type text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR),
                      number = duckdb_create_logical_type(DUCKDB_TYPE_UBIGINT);
  br_status status = BR_OK;
  duckdb_scalar_function_set_name(f, "file_range");
  duckdb_scalar_function_add_parameter(f, text);
  duckdb_scalar_function_add_parameter(f, number);
  duckdb_scalar_function_add_parameter(f, number);
  duckdb_scalar_function_set_return_type(f, text);
  duckdb_scalar_function_set_extra_info(f, e, NULL);
  duckdb_scalar_function_set_bind(f, bind);
  duckdb_scalar_function_set_function(f, call);
  if (duckdb_register_scalar_function(e->helper, f) != DuckDBSuccess)
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the function file_range");
  duckdb_destroy_scalar_function(&f);
  duckdb_destroy_logical_type(&text);
  duckdb_destroy_logical_type(&number);
  return status;
}
