/* SPDX-License-Identifier: Apache-2.0
 * The journal of a commit: text, one line a rename, a count and a hash at the end. Threads: any, each with its own. Bounds: memory is
 * O(files); a file of more than BR_SINK_JOURNAL_BYTES is not read. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "sink/internal.h"

#define HEAD "brant-sink 1\n"

void br_journal_add_old(br_journal *j, const char *name) {
  br_grow((void **)&j->old, &j->cap_old, j->n_old, sizeof *j->old);
  j->old[j->n_old++] = br_strdup(name);
}

void br_journal_add_move(br_journal *j, const char *from, const char *to, uint64_t bytes) {
  br_grow((void **)&j->moves, &j->cap_moves, j->n_moves, sizeof *j->moves);
  j->moves[j->n_moves++] = (br_move){br_strdup(from), br_strdup(to), bytes};
}

void br_journal_free(br_journal *j) {
  for (size_t i = 0; i < j->n_old; i++) free(j->old[i]);
  for (size_t i = 0; i < j->n_moves; i++) {
    free(j->moves[i].from);
    free(j->moves[i].to);
  }
  free(j->old);
  free(j->moves);
  *j = (br_journal){0};
}

/* ---- text */

/* File names may hold everything but NUL: what would end a word is written as %XX. */
static void put_word(br_buf *out, const char *s) {
  for (; *s != 0; s++) {
    if (*s == '%' || (unsigned char)*s <= ' ')
      br_buf_printf(out, "%%%02X", (unsigned char)*s);
    else
      br_buf_char(out, *s);
  }
}

void br_journal_print(const br_journal *j, br_buf *out) {
  br_buf_str(out, HEAD);
  for (size_t i = 0; i < j->n_old; i++) {
    br_buf_str(out, "old ");
    put_word(out, j->old[i]);
    br_buf_char(out, '\n');
  }
  for (size_t i = 0; i < j->n_moves; i++) {
    br_buf_printf(out, "move %" PRIu64 " ", j->moves[i].bytes);
    put_word(out, j->moves[i].from);
    br_buf_char(out, ' ');
    put_word(out, j->moves[i].to);
    br_buf_char(out, '\n');
  }
  uint64_t hash = XXH3_64bits(out->data, out->len);
  br_buf_printf(out, "end %zu %016" PRIx64 "\n", j->n_old + j->n_moves, hash);
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* The word at *p up to a space or the end; *p moves behind it and its space. NULL: none, or badly written. */
static char *take_word(const char **p, const char *end) {
  br_buf b = {0};
  const char *at = *p;
  for (; at < end && *at != ' '; at++) {
    if (*at != '%') {
      br_buf_char(&b, *at);
      continue;
    }
    int high = at + 2 < end ? hex(at[1]) : -1, low = high >= 0 ? hex(at[2]) : -1;
    if (low < 0 || (high == 0 && low == 0)) {
      br_buf_free(&b);
      return NULL;
    }
    br_buf_char(&b, (char)(high * 16 + low));
    at += 2;
  }
  *p = at < end ? at + 1 : at;
  if (b.len == 0) {
    br_buf_free(&b);
    return NULL;
  }
  return br_buf_take(&b);
}

/* Relative, and never upwards. */
static bool stays_inside(const char *path) {
  if (path == NULL || path[0] == '/') return false;
  for (const char *p = path; *p != 0;) {
    size_t n = strcspn(p, "/");
    if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
    p += n;
    if (*p == '/' && *++p == 0) return false;
  }
  return path[0] != 0;
}

static bool parse_old(const char *p, const char *end, br_journal *out) {
  char *name = take_word(&p, end);
  bool ok = stays_inside(name) && strchr(name, '/') == NULL && p == end;
  if (ok) br_journal_add_old(out, name);
  free(name);
  return ok;
}

static bool parse_move(const char *p, const char *end, br_journal *out) {
  char *number = take_word(&p, end), *from = take_word(&p, end), *to = take_word(&p, end);
  char *rest = NULL;
  errno = 0;
  uint64_t bytes = number ? strtoull(number, &rest, 10) : 0;
  bool ok = number && errno == 0 && *rest == 0 && stays_inside(from) && stays_inside(to) && p == end;
  if (ok) br_journal_add_move(out, from, to, bytes);
  free(number);
  free(from);
  free(to);
  return ok;
}

static bool parse_line(const char *p, const char *end, br_journal *out) {
  if (end - p > 4 && memcmp(p, "old ", 4) == 0) return parse_old(p + 4, end, out);
  if (end - p > 5 && memcmp(p, "move ", 5) == 0) return parse_move(p + 5, end, out);
  return false;
}

/* Start of the last line, or NULL. */
static const char *last_line(const char *text, size_t n) {
  if (n < 2 || text[n - 1] != '\n') return NULL;
  const char *p = memrchr(text, '\n', n - 1);
  return p ? p + 1 : NULL;
}

br_status br_journal_parse(const char *text, size_t n, br_journal *out, br_error *err) {
  *out = (br_journal){0};
  const char *last = last_line(text, n);
  char want[64];
  size_t head = strlen(HEAD), count = 0;
  if (last == NULL || n < head || memcmp(text, HEAD, head) != 0) goto damaged;
  for (const char *p = text + head; p < last; count++) {
    const char *end = memchr(p, '\n', (size_t)(last - p));
    if (end == NULL || !parse_line(p, end, out)) goto damaged;
    p = end + 1;
  }
  int m = snprintf(want, sizeof want, "end %zu %016" PRIx64 "\n", count,
                   (uint64_t)XXH3_64bits(text, (size_t)(last - text)));
  if ((size_t)(text + n - last) != (size_t)m || memcmp(last, want, (size_t)m) != 0) goto damaged;
  return BR_OK;
damaged:
  br_journal_free(out);
  return br_fail(err, BR_CORRUPT, BR_BLAME_TASK, "the journal of a commit is damaged");
}

/* ---- files */

br_status br_journal_write(const br_journal *j, const char *staging, br_error *err) {
  char *tmp = br_asprintf("%s/" BR_SINK_JOURNAL ".tmp", staging), *path = br_asprintf("%s/" BR_SINK_JOURNAL, staging);
  br_buf text = {0};
  br_status status = BR_OK;
  br_journal_print(j, &text);
  int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot write %s", tmp);
    goto done;
  }
  BR_TRY_GOTO(br_write_all(fd, text.data, text.len, err));
  if (fsync(fd) != 0) {
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot write %s", tmp);
    goto done;
  }
  if (rename(tmp, path) != 0) {
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot write %s", path);
    goto done;
  }
  status = br_sync_dir(staging, err);
  if (status != BR_OK) (void)!unlink(path); /* not known to be there after a power cut: it shall not be there at all */
done:
  if (fd >= 0) close(fd);
  br_buf_free(&text);
  free(tmp);
  free(path);
  return status;
}

br_status br_journal_read(const char *staging, bool *found, br_journal *out, br_error *err) {
  char *path = br_asprintf("%s/" BR_SINK_JOURNAL, staging), *text = NULL;
  struct stat st;
  br_status status = BR_OK;
  br_error damaged;
  *found = false;
  *out = (br_journal){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    if (errno != ENOENT && errno != ELOOP) status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot read %s", path);
    goto done;
  }
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > BR_SINK_JOURNAL_BYTES) goto done;
  text = br_malloc((size_t)st.st_size);
  BR_TRY_GOTO(br_pread_all(fd, text, (size_t)st.st_size, 0, err));
  if (br_journal_parse(text, (size_t)st.st_size, out, &damaged) == BR_OK)
    *found = true;
  else
    br_log(BR_LOG_WARN, "%s is damaged: what was staged beside it is removed", path);
done:
  if (fd >= 0) close(fd);
  free(text);
  free(path);
  return status;
}
