/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a text file may be cut: behind a line end that ends a record. Of JSON with a record a line that is any line end, so only the
 * bytes around the wanted places are read. Of CSV it is one outside quotes, so a file whose dialect has quotes is read once, from
 * quote to quote (memchr), by the rules of DuckDB's reader: a quote opens a value where a value begins and closes it where it is not
 * doubled or escaped. A quote behind a blank is taken in different ways: there is no cut behind such a place.
 *
 * Order: any. Threads: any. Bounds: one block in memory.
 */
#include "source/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, LOOK_BYTES = 64 << 10 };

typedef struct cutting {
  const br_text_dialect *d;
  uint64_t target, wanted; /* no cut before `wanted` */
  uint64_t *cuts;
  size_t n, capacity;
  bool quoted, closing, escaped, unsure;
  char before; /* the byte in front of the block */
} cutting;

static void add_cut(cutting *c, uint64_t at) {
  br_grow((void **)&c->cuts, &c->capacity, c->n, sizeof *c->cuts);
  c->cuts[c->n++] = at;
  c->wanted = at + c->target;
}

/* ---- a record a line */

static br_status cut_lines(cutting *c, int fd, uint64_t size, br_error *err) {
  char *block = br_malloc(LOOK_BYTES);
  br_status status = BR_OK;
  for (uint64_t at = c->wanted; at < size && status == BR_OK;) {
    size_t n = size - at < LOOK_BYTES ? (size_t)(size - at) : LOOK_BYTES;
    status = br_pread_all(fd, block, n, at, err);
    const char *end = status == BR_OK ? memchr(block, '\n', n) : NULL;
    uint64_t cut = end ? at + (uint64_t)(end - block) + 1 : 0;
    if (cut == size) break;
    if (cut) add_cut(c, cut);
    at = cut ? c->wanted : at + n;
  }
  free(block);
  return status;
}

/* ---- CSV */

/* No quotes in block[from, to): is there a place for a cut? base: where the block stands in the file. */
static void cut_plain(cutting *c, const char *block, size_t from, size_t to, uint64_t base) {
  while (base + to > c->wanted) {
    size_t at = c->wanted > base + from ? (size_t)(c->wanted - base) : from;
    const char *end = at < to ? memchr(block + at, '\n', to - at) : NULL;
    if (!end) return;
    add_cut(c, base + (uint64_t)(end - block) + 1);
  }
}

static bool opens(const cutting *c, char before) {
  return before == c->d->delimiter || before == '\n' || before == '\r' || before == 0;
}

/* From a byte inside quotes to the one behind the value, or to the end of the block. */
static size_t skip_quoted(cutting *c, const char *block, size_t at, size_t n) {
  bool doubled = c->d->escape == 0 || c->d->escape == c->d->quote;
  for (; at < n; at++) {
    if (c->closing) { /* the byte behind a quote */
      c->closing = false;
      if (doubled && block[at] == c->d->quote) continue;
      c->quoted = false;
      return at;
    }
    if (c->escaped) {
      c->escaped = false;
      continue;
    }
    if (doubled) {
      const char *next = memchr(block + at, c->d->quote, n - at);
      if (!next) return n;
      at = (size_t)(next - block);
    }
    if (!doubled && block[at] == c->d->escape)
      c->escaped = true;
    else if (block[at] == c->d->quote)
      c->closing = true;
  }
  return n;
}

static void cut_block(cutting *c, const char *block, size_t n, uint64_t base) {
  size_t at = 0;
  while (at < n && !c->unsure) {
    if (c->quoted) {
      at = skip_quoted(c, block, at, n);
      continue;
    }
    const char *quote = c->d->quote ? memchr(block + at, c->d->quote, n - at) : NULL;
    size_t to = quote ? (size_t)(quote - block) : n;
    cut_plain(c, block, at, to, base);
    if (!quote) break;
    char before = to > 0 ? block[to - 1] : c->before;
    c->quoted = opens(c, before);
    c->unsure = !c->quoted && (before == ' ' || before == '\t');
    at = to + 1;
  }
  c->before = block[n - 1];
}

static br_status cut_csv(cutting *c, int fd, uint64_t size, br_error *err) {
  char *block = br_malloc(BLOCK_BYTES);
  br_status status = BR_OK;
  uint64_t at = 0;
  if (c->d->quote == 0) { /* every line end will do */
    free(block);
    return cut_lines(c, fd, size, err);
  }
  while (at < size && status == BR_OK && !c->unsure) {
    size_t n = size - at < BLOCK_BYTES ? (size_t)(size - at) : BLOCK_BYTES, skip = 0;
    status = br_pread_all(fd, block, n, at, err);
    if (at == 0 && n >= 3 && !memcmp(block, "\xef\xbb\xbf", 3)) skip = 3; /* a byte order mark */
    if (status == BR_OK && n > skip) cut_block(c, block + skip, n - skip, at + skip);
    at += n;
  }
  while (c->n && c->cuts[c->n - 1] >= size) c->n--;
  free(block);
  return status;
}

br_status br_text_cuts(const char *path, uint64_t size, uint64_t target, const br_text_dialect *d, uint64_t **cuts,
                       size_t *n, br_error *err) {
  cutting c = {.d = d, .target = target, .wanted = target};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot read the file %s", path);
  br_status status = d->csv ? cut_csv(&c, fd, size, err) : cut_lines(&c, fd, size, err);
  close(fd);
  if (status != BR_OK) {
    free(c.cuts);
    return br_error_context(err, "cutting %s", path);
  }
  *cuts = c.cuts;
  *n = c.n;
  return BR_OK;
}
