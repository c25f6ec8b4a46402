/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading WARC records.
 *
 * The bytes of the file, or what its gzip members hold, pass through a window. A record's header is taken out of it as a whole,
 * its content in pieces. Between records nothing is inflated that is not needed, so where the window is empty and the member
 * over, the next record starts with the next member.
 * Order: see warc.h. Threads: one user. Bounds: two windows, one header, the content that is wanted.
 */
#include "functions/warc_inside.h"

#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files */

static br_status file_read(void *arg, uint64_t offset, void *p, size_t n, size_t *got, br_error *err) {
  int fd = (int)(intptr_t)arg;
  *got = 0;
  while (*got < n) {
    ssize_t k = pread(fd, (char *)p + *got, n - *got, (off_t)(offset + *got));
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "reading at byte %llu", (unsigned long long)offset);
    if (k == 0) break;
    *got += (size_t)k;
  }
  return BR_OK;
}

br_status br_warc_file_open(const char *path, br_warc_source *out, br_error *err) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot open %s", path);
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
    close(fd);
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is not a file", path);
  }
  *out = (br_warc_source){.name = path, .size = (uint64_t)st.st_size, .read = file_read, .arg = (void *)(intptr_t)fd};
  return BR_OK;
}

void br_warc_file_close(br_warc_source *s) {
  if (s->read) close((int)(intptr_t)s->arg);
  *s = (br_warc_source){0};
}

/* ---- opening */

struct br_warc {
  br_warc_source source;
  uint64_t end;
  bool started, gzip, member_open;
  uint64_t member; /* where the member (plain: the window's first byte) starts */
  uint64_t at;     /* of the file: what is read next */
  uint64_t offset; /* of the record */
  z_stream z;      /* next_in points into raw */
  uint8_t *raw;    /* [BR_WARC_WINDOW_BYTES] */
  br_buf window;   /* bytes that are not taken yet: from .. len */
  size_t from;
  bool over; /* the file has no more bytes, and no member is open */
  br_buf content;
  char *header; /* [BR_WARC_HEADER_BYTES + 1] of the record, once one was longer than usual: grown */
  size_t header_capacity;
  br_warc_header *headers; /* [BR_WARC_HEADERS] */
  size_t n_headers;
};

br_warc *br_warc_open(const br_warc_source *s, uint64_t first, uint64_t end) {
  br_warc *r = br_calloc(1, sizeof *r);
  r->source = *s;
  r->end = end < s->size ? end : s->size;
  r->at = r->member = r->offset = first;
  r->raw = br_malloc(BR_WARC_WINDOW_BYTES);
  r->headers = br_malloc(BR_WARC_HEADERS * sizeof *r->headers);
  return r;
}

static void member_close(br_warc *r) {
  if (r->member_open) inflateEnd(&r->z);
  r->member_open = false;
}

void br_warc_close(br_warc *r) {
  if (!r) return;
  member_close(r);
  br_buf_free(&r->window);
  br_buf_free(&r->content);
  free(r->header);
  free(r->headers);
  free(r->raw);
  free(r);
}

uint64_t br_warc_offset(const br_warc *r) { return r->offset; }

/* ---- bytes */

static br_status damaged(const br_warc *r, const char *what, br_error *err) {
  return br_fail(err, BR_CORRUPT, BR_BLAME_USER, "%s: the WARC record at byte %llu %s", r->source.name,
                 (unsigned long long)r->offset, what);
}

static size_t available(const br_warc *r) { return r->window.len - r->from; }

/* Room for another piece at the window's end. */
static void make_room(br_warc *r) {
  if (r->from) {
    memmove(r->window.data, r->window.data + r->from, available(r));
    r->window.len -= r->from;
    r->from = 0;
  }
  br_buf_reserve(&r->window, BR_WARC_WINDOW_BYTES);
}

static br_status read_raw(br_warc *r, void *p, size_t n, size_t *got, br_error *err) {
  *got = 0;
  if (r->at >= r->source.size) return BR_OK;
  br_status status = r->source.read(r->source.arg, r->at, p, n, got, err);
  if (status) return br_error_context(err, "%s", r->source.name);
  r->at += *got;
  return BR_OK;
}

/* Where the next byte of the file is that no member has taken. */
static uint64_t raw_place(const br_warc *r) { return r->at - r->z.avail_in; }

static br_status refill(br_warc *r, br_error *err) {
  size_t got = 0;
  if (r->z.avail_in) return BR_OK;
  BR_TRY(read_raw(r, r->raw, BR_WARC_WINDOW_BYTES, &got, err));
  r->z.next_in = r->raw;
  r->z.avail_in = (uInt)got;
  return BR_OK;
}

static br_status inflate_piece(br_warc *r, br_error *err) {
  BR_TRY(refill(r, err));
  if (!r->z.avail_in) return damaged(r, "is truncated: the file ends inside of its gzip member", err);
  make_room(r);
  r->z.next_out = (Bytef *)r->window.data + r->window.len;
  r->z.avail_out = BR_WARC_WINDOW_BYTES;
  int rc = inflate(&r->z, Z_NO_FLUSH);
  r->window.len += BR_WARC_WINDOW_BYTES - r->z.avail_out;
  if (rc == Z_STREAM_END) {
    member_close(r);
    return BR_OK;
  }
  if (rc == Z_OK || rc == Z_BUF_ERROR) return BR_OK;
  return damaged(r, "is in a damaged gzip member", err);
}

static br_status member_start(br_warc *r, br_error *err) {
  uint8_t *next = r->z.next_in;
  uInt left = r->z.avail_in;
  r->z = (z_stream){.next_in = next, .avail_in = left};
  if (inflateInit2(&r->z, 15 + 16) != Z_OK) /* 16: gzip only */
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_EXECUTOR, "no memory to inflate %s", r->source.name);
  r->member_open = true;
  return BR_OK;
}

static br_status plain_piece(br_warc *r, br_error *err) {
  size_t got;
  make_room(r);
  BR_TRY(read_raw(r, r->window.data + r->window.len, BR_WARC_WINDOW_BYTES, &got, err));
  r->window.len += got;
  r->over = got == 0;
  return BR_OK;
}

/* Some more bytes into the window, of the member that is open or of the next one; or over. */
static br_status more_bytes(br_warc *r, br_error *err) {
  if (!r->gzip) return plain_piece(r, err);
  if (!r->member_open) {
    BR_TRY(refill(r, err));
    r->over = r->z.avail_in == 0;
    if (r->over) return BR_OK;
    r->member = raw_place(r);
    BR_TRY(member_start(r, err));
  }
  return inflate_piece(r, err);
}

/* ---- the header */

/* Where the header that starts at p ends, past its empty line; 0: not within n. */
static size_t header_end(const char *p, size_t n, size_t searched) {
  for (size_t i = searched > 3 ? searched - 3 : 0; i < n; i++) {
    const char *nl = memchr(p + i, '\n', n - i);
    if (!nl) return 0;
    i = (size_t)(nl - p);
    if (i + 1 < n && p[i + 1] == '\n') return i + 2;
    if (i + 2 < n && p[i + 1] == '\r' && p[i + 2] == '\n') return i + 3;
  }
  return 0;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static br_warc_text trimmed(const char *p, const char *end) {
  while (p < end && is_blank(*p)) p++;
  while (end > p && (is_blank(end[-1]) || end[-1] == '\r')) end--;
  return (br_warc_text){p, (size_t)(end - p)};
}

/* Lines that go on start with a blank: its line break becomes blanks, in place. */
static void unfold(char *p, size_t n) {
  for (size_t i = 0; i + 1 < n; i++) {
    if (p[i] != '\n' || !is_blank(p[i + 1])) continue;
    p[i] = ' ';
    if (i && p[i - 1] == '\r') p[i - 1] = ' ';
  }
}

static br_status parse_header(br_warc *r, size_t n, br_error *err) {
  char *p = r->header, *end = p + n;
  unfold(p, n);
  char *line = memchr(p, '\n', n);
  r->n_headers = 0;
  while (line && ++line < end) {
    char *next = memchr(line, '\n', (size_t)(end - line));
    if (!next) next = end;
    char *colon = memchr(line, ':', (size_t)(next - line));
    if (colon) {
      if (r->n_headers == BR_WARC_HEADERS) return damaged(r, "has too many header lines", err);
      r->headers[r->n_headers++] = (br_warc_header){trimmed(line, colon), trimmed(colon + 1, next)};
    } else if (trimmed(line, next).n) {
      return damaged(r, "has a header line without a colon", err);
    }
    line = next == end ? NULL : next;
  }
  return BR_OK;
}

static br_status take_header(br_warc *r, br_error *err) {
  size_t end, searched = 0;
  for (;;) {
    size_t n = available(r);
    const char *p = r->window.data + r->from;
    if (n >= 5 && memcmp(p, "WARC/", 5) != 0) return damaged(r, "does not begin with WARC/", err);
    end = n >= 5 ? header_end(p, n, searched) : 0;
    if (end) break;
    searched = n;
    if (n > BR_WARC_HEADER_BYTES) return damaged(r, "has a header without end", err);
    BR_TRY(more_bytes(r, err));
    if (r->over) return damaged(r, "is truncated: the file ends inside of its header", err);
  }
  if (end > BR_WARC_HEADER_BYTES) return damaged(r, "has too long a header", err);
  if (end > r->header_capacity) {
    free(r->header);
    r->header_capacity = end * 2;
    r->header = br_malloc(r->header_capacity);
  }
  memcpy(r->header, r->window.data + r->from, end);
  r->from += end;
  return parse_header(r, end, err);
}

/* ---- the content */

static br_status content_length(br_warc *r, const br_warc_record *rec, uint64_t *out, br_error *err) {
  br_warc_text t = br_warc_get(rec, "Content-Length");
  uint64_t n = 0;
  if (!t.n || t.n > 18) return damaged(r, "has no Content-Length", err);
  for (size_t i = 0; i < t.n; i++) {
    if (t.p[i] < '0' || t.p[i] > '9') return damaged(r, "has a Content-Length that is no number", err);
    n = n * 10 + (uint64_t)(t.p[i] - '0');
  }
  *out = n;
  return BR_OK;
}

/* Of a plain file, what is not in the window needs no reading. */
static bool jump(br_warc *r, uint64_t *rest) {
  if (r->gzip || *rest <= available(r)) return false;
  uint64_t beyond = *rest - available(r);
  if (r->at > r->source.size || beyond > r->source.size - r->at) return false; /* truncated: read on to find out */
  r->at += beyond;
  r->from = r->window.len = 0;
  *rest = 0;
  return true;
}

static br_status take_content(br_warc *r, size_t wanted, br_warc_record *rec, br_error *err) {
  uint64_t rest = rec->content_length;
  if (wanted > rest) wanted = (size_t)rest;
  if (wanted > BR_WARC_CONTENT_BYTES)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "%s: the WARC record at byte %llu has %llu bytes, more than %u",
                   r->source.name, (unsigned long long)r->offset, (unsigned long long)rest, BR_WARC_CONTENT_BYTES);
  br_buf_clear(&r->content);
  while (rest) {
    size_t n = available(r), keep = wanted - r->content.len;
    if (n > rest) n = (size_t)rest;
    if (keep) br_buf_add(&r->content, r->window.data + r->from, keep < n ? keep : n);
    r->from += n;
    rest -= n;
    if (!rest || (r->content.len == wanted && jump(r, &rest))) break;
    BR_TRY(more_bytes(r, err));
    if (r->over) return damaged(r, "is truncated: the file ends inside of its content", err);
  }
  rec->content = r->content.data;
  rec->content_kept = r->content.len;
  return BR_OK;
}

/* The empty lines behind a record. */
static void skip_lines(br_warc *r) {
  while (available(r) && (r->window.data[r->from] == '\r' || r->window.data[r->from] == '\n')) r->from++;
}

/* A record is believed once its member has come to its end, checksum included, or goes on with another record. */
static br_status settle(br_warc *r, br_error *err) {
  for (skip_lines(r); r->member_open && !available(r); skip_lines(r)) BR_TRY(more_bytes(r, err));
  return BR_OK;
}

/* ---- records */

static br_status find_format(br_warc *r, br_error *err) {
  uint8_t magic[2] = {0};
  size_t got;
  br_status status = r->source.read(r->source.arg, r->at, magic, sizeof magic, &got, err);
  if (status) return br_error_context(err, "%s", r->source.name);
  r->gzip = got == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  return BR_OK;
}

/* To the first byte of the next record, over the empty lines between them; *found false: none starts before the end. */
static br_status to_record(br_warc *r, bool *found, br_error *err) {
  *found = false;
  for (;;) {
    skip_lines(r);
    bool inside = available(r) > 0;
    if (r->gzip)
      r->offset = inside || r->member_open ? r->member : raw_place(r);
    else
      r->offset = r->at - available(r);
    if (inside) break;
    if (r->gzip && !r->member_open && r->offset >= r->end) return BR_OK;
    if (!r->gzip && r->offset >= r->end) return BR_OK;
    BR_TRY(more_bytes(r, err));
    if (r->over) return BR_OK;
  }
  *found = r->offset < r->end;
  return BR_OK;
}

br_status br_warc_next(br_warc *r, size_t wanted, br_warc_record *out, bool *more, br_error *err) {
  if (!r->started) BR_TRY(find_format(r, err));
  r->started = true;
  BR_TRY(to_record(r, more, err));
  if (!*more) return BR_OK;
  BR_TRY(take_header(r, err));
  *out = (br_warc_record){.offset = r->offset, .headers = r->headers, .n_headers = r->n_headers};
  BR_TRY(content_length(r, out, &out->content_length, err));
  BR_TRY(take_content(r, wanted, out, err));
  return settle(r, err);
}

br_status br_warc_resume(br_warc *r, br_error *err) {
  uint64_t next = r->source.size;
  BR_TRY(br_warc_find(&r->source, r->gzip, r->offset + 1, false, &next, err));
  member_close(r);
  r->z.avail_in = 0;
  r->window.len = r->from = 0;
  r->over = false;
  r->at = r->member = r->offset = next;
  return BR_OK;
}

br_warc_text br_warc_get(const br_warc_record *r, const char *name) {
  size_t n = strlen(name);
  for (size_t i = 0; i < r->n_headers; i++)
    if (r->headers[i].name.n == n && !strncasecmp(r->headers[i].name.p, name, n)) return r->headers[i].value;
  return (br_warc_text){NULL, 0};
}
