/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP response inside of a WARC record, and the texts of WARC's headers.
 * Order: any. No state, any thread. Bounds: the caller's limit.
 */
#include "functions/warc_inside.h"

#include <string.h>
#include <strings.h>

enum { PIECE_BYTES = 64 << 10, HEADER_MOST = 1 << 20 };

/* ---- dates */

static bool digits(const char *p, int n, int64_t *out) {
  *out = 0;
  for (int i = 0; i < n; i++) {
    if (p[i] < '0' || p[i] > '9') return false;
    *out = *out * 10 + (p[i] - '0');
  }
  return true;
}

/* Days from 1970-01-01 in the Gregorian calendar. */
static int64_t days(int64_t y, int64_t m, int64_t d) {
  y -= m <= 2;
  int64_t era = y / 400, yoe = y - era * 400, doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
  return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

bool br_warc_date(br_warc_text t, int64_t *us) {
  int64_t y, mo, d, h, mi, s, fraction = 0, unit = 1000000;
  if (t.n < 20 || t.p[t.n - 1] != 'Z' || t.p[4] != '-' || t.p[7] != '-' || t.p[10] != 'T' || t.p[13] != ':' ||
      t.p[16] != ':')
    return false;
  if (!digits(t.p, 4, &y) || !digits(t.p + 5, 2, &mo) || !digits(t.p + 8, 2, &d) || !digits(t.p + 11, 2, &h) ||
      !digits(t.p + 14, 2, &mi) || !digits(t.p + 17, 2, &s))
    return false;
  if (y < 1 || mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 || s > 60) return false;
  if (t.n > 20 && (t.p[19] != '.' || t.n == 21)) return false;
  for (size_t i = 20; i + 1 < t.n; i++) {
    if (t.p[i] < '0' || t.p[i] > '9') return false;
    if (unit == 1) continue; /* finer than a microsecond */
    unit /= 10;
    fraction += (t.p[i] - '0') * unit;
  }
  *us = ((days(y, mo, d) * 24 + h) * 60 + mi) * 60000000 + s * 1000000 + fraction;
  return true;
}

/* ---- the head of a response */

static br_warc_text trimmed(const char *p, const char *end) {
  while (p < end && (*p == ' ' || *p == '\t')) p++;
  while (end > p && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
  return (br_warc_text){p, (size_t)(end - p)};
}

static bool same(br_warc_text t, const char *word) { return t.n == strlen(word) && !strncasecmp(t.p, word, t.n); }

static void header_line(br_http *h, const char *line, const char *end) {
  const char *colon = memchr(line, ':', (size_t)(end - line));
  if (!colon) return;
  br_warc_text name = trimmed(line, colon), value = trimmed(colon + 1, end);
  if (same(name, "content-type"))
    h->content_type = value;
  else if (same(name, "content-encoding"))
    h->content_encoding = value;
  else if (same(name, "transfer-encoding"))
    h->chunked = value.n >= 7 && !strncasecmp(value.p + value.n - 7, "chunked", 7);
}

bool br_http_parse(const char *p, size_t n, br_http *out) {
  int64_t status;
  *out = (br_http){0};
  const char *end = p + (n < HEADER_MOST ? n : HEADER_MOST), *line = p;
  if (n < 12 || memcmp(p, "HTTP/", 5) != 0) return false;
  const char *space = memchr(p, ' ', 16 < n ? 16 : n);
  if (!space || end - space < 4 || !digits(space + 1, 3, &status)) return false;
  out->status = (int)status;
  out->body = n; /* a head without end: no body */
  for (;;) {
    const char *nl = memchr(line, '\n', (size_t)(end - line));
    if (!nl) return true;
    if (nl == line || (nl == line + 1 && *line == '\r')) {
      out->body = (size_t)(nl + 1 - p);
      return true;
    }
    if (line != p) header_line(out, line, nl);
    line = nl + 1;
    if (line == end) return true;
  }
}

/* ---- the body */

static bool hex(char c, size_t *size) {
  int v = c >= '0' && c <= '9'   ? c - '0'
          : c >= 'a' && c <= 'f' ? c - 'a' + 10
          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                 : -1;
  if (v >= 0) *size = *size * 16 + (size_t)v;
  return v >= 0;
}

/* Some archives store the body already joined under the header that says "chunked": then it is no list of chunks. */
static bool join_chunks(const char *p, size_t n, size_t limit, br_buf *out) {
  size_t at = 0;
  for (;;) {
    size_t size = 0, first = at;
    while (at < n && at - first < 8 && hex(p[at], &size)) at++;
    if (at == first) return false;
    const char *nl = memchr(p + at, '\n', n - at);
    if (!nl) return false;
    at = (size_t)(nl + 1 - p);
    if (!size) return true;
    if (size > n - at || size > limit - out->len) return false;
    br_buf_add(out, p + at, size);
    at += size;
    if (at < n && p[at] == '\r') at++;
    if (at >= n || p[at++] != '\n') return false;
  }
}

static bool inflate_all(const char *p, size_t n, int window, size_t limit, br_buf *out) {
  z_stream z = {.next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n};
  int rc = Z_OK;
  if (n > UINT32_MAX || inflateInit2(&z, window) != Z_OK) return false;
  while (rc == Z_OK && out->len < limit) {
    br_buf_reserve(out, PIECE_BYTES);
    size_t room = limit - out->len < PIECE_BYTES ? limit - out->len : PIECE_BYTES;
    z.next_out = (Bytef *)out->data + out->len;
    z.avail_out = (uInt)room;
    rc = inflate(&z, Z_NO_FLUSH);
    out->len += room - z.avail_out;
  }
  inflateEnd(&z);
  return rc == Z_STREAM_END;
}

static bool decode(br_warc_text encoding, const char *p, size_t n, size_t limit, br_buf *out) {
  if (same(encoding, "gzip") || same(encoding, "x-gzip")) return inflate_all(p, n, 15 + 16, limit, out);
  if (!same(encoding, "deflate")) return false;
  if (inflate_all(p, n, 15, limit, out)) return true;
  br_buf_clear(out); /* many servers send it without zlib's header */
  return inflate_all(p, n, -15, limit, out);
}

bool br_http_body(const br_http *h, const char *p, size_t n, size_t limit, br_buf *out) {
  br_buf joined = {0};
  bool good = true;
  p += h->body;
  n -= h->body;
  br_buf_clear(out);
  if (h->chunked && join_chunks(p, n, limit, &joined)) {
    p = br_buf_cstr(&joined);
    n = joined.len;
  }
  if (h->content_encoding.n && !same(h->content_encoding, "identity"))
    good = decode(h->content_encoding, p, n, limit, out);
  else if (n <= limit)
    br_buf_add(out, p, n);
  else
    good = false;
  br_buf_free(&joined);
  return good;
}
