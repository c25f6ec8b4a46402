/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding files: globs, sizes, times, and whether what is there can be a Parquet file at all.
 * Order: any. Threads: the session's user. Bounds: one glob's list is in memory.
 */
#include "source/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALLEST_PARQUET_BYTES = 12 };

bool br_path_is_local(const char *path) { return strstr(path, "://") == NULL; }

/* DuckDB takes every path for a pattern: what is meant as a name goes into brackets. ('?' begins the query of a URL.) */
void br_sql_path(const char *path, br_buf *out) {
  br_buf b = {0};
  bool local = br_path_is_local(path);
  for (const char *p = path; *p; p++) {
    bool pattern = local && strchr("*?[", *p) != NULL;
    if (pattern) br_buf_char(&b, '[');
    br_buf_char(&b, *p);
    if (pattern) br_buf_char(&b, ']');
  }
  br_buf_sql_literal(out, br_buf_cstr(&b), b.len);
  br_buf_free(&b);
}

void br_sql_paths(const char *const *items, size_t n, br_buf *out) {
  br_buf_char(out, '[');
  for (size_t i = 0; i < n; i++) {
    if (i) br_buf_str(out, ", ");
    br_sql_path(items[i], out);
  }
  br_buf_char(out, ']');
}

br_status br_local_stat(const char *path, uint64_t *size_bytes, uint64_t *mtime_ns, br_error *err) {
  struct stat st;
  if (stat(path, &st)) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot read the file %s", path);
  if (!S_ISREG(st.st_mode)) return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is not a file", path);
  *size_bytes = (uint64_t)st.st_size;
  *mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
  return BR_OK;
}

br_status br_local_check_magic(const char *path, uint64_t size_bytes, br_error *err) {
  char end[4];
  if (size_bytes < SMALLEST_PARQUET_BYTES)
    return br_fail(err, BR_CORRUPT, BR_BLAME_USER, "%s is no Parquet file: it has %llu bytes only", path,
                   (unsigned long long)size_bytes);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot open %s", path);
  br_status status = br_pread_all(fd, end, sizeof end, size_bytes - sizeof end, err);
  close(fd);
  if (status != BR_OK) return br_error_context(err, "%s", path);
  if (memcmp(end, "PAR1", 4) && memcmp(end, "PARE", 4))
    return br_fail(err, BR_CORRUPT, BR_BLAME_USER,
                   "%s is no whole Parquet file: its end is missing, or it is of another format", path);
  return BR_OK;
}

static bool is_glob(const char *path) { return strpbrk(path, "*?[") != NULL; }

static br_status glob(br_session *session, const char *pattern, br_table *out, br_error *err) {
  br_buf sql = {0};
  br_buf_str(&sql, "SELECT file FROM glob(");
  br_buf_sql_literal(&sql, pattern, strlen(pattern));
  br_buf_char(&sql, ')');
  br_status status = br_session_table(session, br_buf_cstr(&sql), out, err);
  br_buf_free(&sql);
  if (status != BR_OK) return br_error_context(err, "listing %s", pattern);
  if (out->rows) return BR_OK;
  br_table_free(out);
  return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "no file matches %s", pattern);
}

static void add(char ***paths, size_t *n, size_t *capacity, const char *path) {
  br_grow((void **)paths, capacity, *n, sizeof **paths);
  (*paths)[(*n)++] = br_strdup(path);
}

br_status br_source_expand(br_session *session, const char *const *patterns, size_t n, char ***paths, size_t *n_paths,
                           br_error *err) {
  size_t capacity = 0;
  br_status status = BR_OK;
  *paths = NULL;
  *n_paths = 0;
  for (size_t i = 0; i < n; i++) {
    const char *pattern = patterns[i];
    if (!is_glob(pattern)) {
      uint64_t size_bytes, mtime_ns;
      if (br_path_is_local(pattern)) BR_TRY_GOTO(br_local_stat(pattern, &size_bytes, &mtime_ns, err));
      add(paths, n_paths, &capacity, pattern);
      continue;
    }
    br_table found;
    BR_TRY_GOTO(glob(session, pattern, &found, err));
    for (size_t k = 0; k < found.rows; k++) add(paths, n_paths, &capacity, br_table_cell(&found, k, 0));
    br_table_free(&found);
  }
done:
  if (status != BR_OK) {
    for (size_t i = 0; i < *n_paths; i++) free((*paths)[i]);
    free(*paths);
    *paths = NULL;
    *n_paths = 0;
  }
  return status;
}
