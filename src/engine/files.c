/* SPDX-License-Identifier: Apache-2.0
 *
 * All files of one writer: DuckDB's COPY into an open directory, then what it wrote: names, sizes, rows; each file fsynced.
 *
 * The directory is named to DuckDB as /proc/self/fd/N. So a writer that sleeps through the removal of its directory gets ENOENT for
 * whatever it wants to make next, and never makes a directory again under the old name.
 * Rows a file: Parquet by RETURN_STATS; a single file by COPY's count; else lines outside of quotes, believed only if they add up to
 * COPY's count. Threads: the session's user. Bounds: one buffer of SCAN_BYTES; memory O(files).
 */
#include "engine/files.h"
#include "engine/internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SCAN_BYTES (256u << 10)
#define FULL_BYTES (1u << 20) /* a file system with less room than this is full */

static bool is_format(const br_write *w, const char *name) { return strcmp(w->format, name) == 0; }

/* FILE_SIZE_BYTES takes rows from all threads as they come. A row number that is looked at makes one thread of it, in order. */
static void select_in_order(const br_write *w, br_buf *b) {
  if (w->shape == BR_WRITE_SPLIT && w->ordered)
    br_buf_printf(b,
                  "SELECT * EXCLUDE brant_row FROM (SELECT *, row_number() OVER () AS brant_row FROM (%s\n)) "
                  "WHERE brant_row > 0",
                  w->sql);
  else
    br_buf_str(b, w->sql);
}

static char *copy_sql(const br_write *w) {
  br_buf b = {0};
  br_buf_str(&b, "COPY (");
  select_in_order(w, &b);
  br_buf_printf(&b, "\n) TO '/proc/self/fd/%d%s' (FORMAT %s, ", w->dir,
                w->shape == BR_WRITE_ONE ? "/f-0." BR_WRITE_EXTENSION : "", w->format);
  if (w->shape == BR_WRITE_ONE)
    br_buf_str(&b, "USE_TMP_FILE false");
  else
    br_buf_str(&b, "FILENAME_PATTERN 'f-{i}', FILE_EXTENSION '" BR_WRITE_EXTENSION "', OVERWRITE_OR_IGNORE true");
  if (is_format(w, "parquet")) br_buf_str(&b, ", RETURN_STATS true");
  if (w->options[0] != 0) br_buf_printf(&b, ", %s", w->options);
  br_buf_char(&b, ')');
  return br_buf_take(&b);
}

/* ---- what was written */

static br_status add_file(br_write *w, size_t *capacity, int dir, const char *name, const char *path, br_error *err) {
  struct stat st;
  br_status status = BR_OK;
  int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot open %s, which was just written", path);
  if (fsync(fd) != 0 || fstat(fd, &st) != 0) {
    status = br_fail_errno(err, errno, BR_BLAME_TASK, "cannot write %s", path);
  } else {
    br_grow((void **)&w->files, capacity, w->n_files, sizeof *w->files);
    w->files[w->n_files++] = (br_written){.path = br_strdup(path), .rows = -1, .bytes = (uint64_t)st.st_size};
  }
  close(fd);
  return status;
}

/* Takes dir over. prefix: of its path, with a slash behind. */
static br_status list(br_write *w, size_t *capacity, int dir, const char *prefix, br_error *err) {
  br_status status = BR_OK;
  DIR *d = fdopendir(dir);
  if (d == NULL) {
    status = br_fail_errno(err, errno, BR_BLAME_TASK, "cannot read a directory of written files");
    close(dir);
    return status;
  }
  for (struct dirent *e; status == BR_OK && (e = readdir(d)) != NULL;) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    struct stat st;
    char *path = br_asprintf("%s%s", prefix, e->d_name);
    if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
      status = br_fail_errno(err, errno, BR_BLAME_TASK, "cannot look at %s, which was just written", path);
    } else if (S_ISDIR(st.st_mode)) {
      int below = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
      char *deeper = br_asprintf("%s/", path);
      status = below < 0 ? br_fail_errno(err, errno, BR_BLAME_TASK, "cannot read the directory %s", path)
                         : list(w, capacity, below, deeper, err);
      free(deeper);
    } else {
      status = add_file(w, capacity, dirfd(d), e->d_name, path, err);
    }
    free(path);
  }
  closedir(d);
  return status;
}

static br_status list_all(br_write *w, br_error *err) {
  size_t capacity = 0;
  int dir = openat(w->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* an offset of its own */
  if (dir < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot read the directory of written files");
  return list(w, &capacity, dir, "", err);
}

/* ---- rows of each */

static int by_path(const void *a, const void *b) {
  return strcmp(((const br_written *)a)->path, ((const br_written *)b)->path);
}

/* From DuckDB's own counts: paths that begin with the directory's. */
static void rows_of_stats(br_write *w, br_copy *c) {
  char *prefix = br_asprintf("/proc/self/fd/%d/", w->dir);
  size_t n = strlen(prefix);
  for (size_t i = 0; i < c->n_files; i++)
    if (strncmp(c->files[i].path, prefix, n) == 0)
      memmove(c->files[i].path, c->files[i].path + n, strlen(c->files[i].path + n) + 1);
  if (c->n_files > 0) qsort(c->files, c->n_files, sizeof *c->files, by_path);
  for (size_t i = 0; i < w->n_files && c->n_files > 0; i++) {
    const br_written *hit = bsearch(&w->files[i], c->files, c->n_files, sizeof *c->files, by_path);
    if (hit != NULL) w->files[i].rows = hit->rows;
  }
  free(prefix);
}

typedef struct lines {
  bool inside; /* of quotes */
  bool skip;   /* the next character is escaped */
  uint64_t n;
} lines;

static void count_lines(const br_write *w, lines *l, const char *p, size_t n) {
  bool csv = is_format(w, "csv");
  for (size_t i = 0; i < n; i++) {
    if (l->skip)
      l->skip = false;
    else if (csv && l->inside && p[i] == w->escape && w->escape != w->quote && w->escape != 0)
      l->skip = true;
    else if (csv && p[i] == w->quote && w->quote != 0)
      l->inside = !l->inside; /* a doubled quote goes out and in again */
    else if (p[i] == '\n' && !l->inside)
      l->n++;
  }
}

static bool scan(const br_write *w, const char *path, char *buffer, uint64_t *n) {
  lines l = {0};
  ssize_t got = -1;
  int fd = openat(w->dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  while ((got = read(fd, buffer, SCAN_BYTES)) > 0) count_lines(w, &l, buffer, (size_t)got);
  close(fd);
  *n = l.n;
  return got == 0 && !l.inside;
}

static void rows_by_scan(br_write *w) {
  char *buffer = br_malloc(SCAN_BYTES);
  uint64_t sum = 0, above = 0;
  bool ok = true;
  if (is_format(w, "csv")) above = w->header ? 1 : 0;
  for (size_t i = 0; i < w->n_files && ok; i++) {
    uint64_t n = 0;
    ok = scan(w, w->files[i].path, buffer, &n) && n >= above;
    if (!ok) break;
    w->files[i].rows = (int64_t)(n - above);
    sum += n - above;
  }
  /* JSON arrays have a line for each bracket. */
  if (ok && is_format(w, "json") && sum == w->rows + 2 * w->n_files) {
    for (size_t i = 0; i < w->n_files; i++) w->files[i].rows -= 2;
    sum = w->rows;
  }
  for (size_t i = 0; i < w->n_files && (!ok || sum != w->rows); i++) w->files[i].rows = -1;
  free(buffer);
}

/* DuckDB has no error type for a full disk, and its text is not looked at. */
static void say_if_full(const br_write *w, br_error *err) {
  struct statvfs v;
  if (err->code != BR_IO || fstatvfs(w->dir, &v) != 0) return;
  if (v.f_blocks == 0 || ((uint64_t)v.f_bavail * v.f_frsize >= FULL_BYTES && (v.f_files == 0 || v.f_favail > 0)))
    return;
  err->code = BR_NO_SPACE;
  err->blame = BR_BLAME_USER;
  err->retryable = false;
}

/* DuckDB knows the directory by its descriptor; a person knows it by its name. */
static void say_the_name(const br_write *w, br_error *err) {
  char *by_number = br_asprintf("/proc/self/fd/%d", w->dir), *text = br_strdup(err->message);
  char *hit = strstr(text, by_number);
  if (hit != NULL)
    snprintf(err->message, sizeof err->message, "%.*s%s%s", (int)(hit - text), text, w->name, hit + strlen(by_number));
  free(by_number);
  free(text);
}

br_status br_session_write(br_session *s, br_write *w, br_error *err) {
  char *sql = copy_sql(w);
  br_copy c = {.sql = sql, .inputs = w->inputs, .n_inputs = w->n_inputs, .ordered = w->ordered};
  br_status status;
  w->files = NULL, w->n_files = 0;
  BR_TRY_GOTO(br_session_copy(s, &c, err));
  w->rows = c.rows;
  BR_TRY_GOTO(list_all(w, err));
  if (w->n_files == 1)
    w->files[0].rows = (int64_t)c.rows;
  else if (is_format(w, "parquet"))
    rows_of_stats(w, &c);
  else
    rows_by_scan(w);
done:
  w->stats = c.stats;
  if (status != BR_OK) {
    say_if_full(w, err);
    say_the_name(w, err);
    status = (br_status)err->code;
    br_written_free(w->files, w->n_files);
    w->files = NULL, w->n_files = 0;
  }
  br_written_free(c.files, c.n_files);
  free(sql);
  return status;
}
