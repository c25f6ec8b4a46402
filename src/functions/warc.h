/* SPDX-License-Identifier: Apache-2.0
 *
 * WARC files (ISO 28500), plain or in gzip members, read one record after the other; where files may be cut; the HTTP message
 * inside a record.
 *
 *   br_warc_open(first, end) → br_warc_next … → (BR_CORRUPT: br_warc_resume, if damage is to be skipped) → br_warc_close
 *
 * A record belongs to the range in which its gzip member starts (plain files: in which it starts itself). `first` is such a
 * start: 0, or what br_warc_cuts found. A member may hold many records: they all have its offset. Nothing that the file says is
 * believed: lengths are bounded, text is checked. Threads: a reader has one user.
 */
#ifndef BRANT_FUNCTIONS_WARC_H
#define BRANT_FUNCTIONS_WARC_H

#include "base/buf.h"

#define BR_WARC_HEADER_BYTES (1u << 20)  /* of one record's header */
#define BR_WARC_CONTENT_BYTES (1u << 30) /* of one record's content, if it is wanted */
#define BR_WARC_HEADERS 1024u            /* lines of one record's header */
#define BR_WARC_WINDOW_BYTES (256u << 10)

/* Where bytes come from. read: up to n bytes at offset; fewer only at the end. */
typedef struct br_warc_source {
  const char *name; /* for messages */
  uint64_t size;
  br_status (*read)(void *arg, uint64_t offset, void *p, size_t n, size_t *got, br_error *err);
  void *arg;
} br_warc_source;
/* A local file; BR_NOT_FOUND and the like name it. The source's name is the path (borrowed). */
BR_MUST_USE br_status br_warc_file_open(const char *path, br_warc_source *out, br_error *err);
void br_warc_file_close(br_warc_source *s);

typedef struct br_warc_text {
  const char *p;
  size_t n;
} br_warc_text;
typedef struct br_warc_header {
  br_warc_text name, value;
} br_warc_header;
/* Valid until the next call with the reader. */
typedef struct br_warc_record {
  uint64_t offset, content_length;
  const br_warc_header *headers;
  size_t n_headers;
  const char *content;
  size_t content_kept; /* the first so many bytes: at most what was wanted */
} br_warc_record;

typedef struct br_warc br_warc;
/* The records that start in [first, end). The source must outlive the reader. */
br_warc *br_warc_open(const br_warc_source *s, uint64_t first, uint64_t end);
void br_warc_close(br_warc *r);
/* *more false: no further record. wanted: how much of the content to keep. BR_CORRUPT: damaged or truncated; the message has
 * the file and the offset. */
BR_MUST_USE br_status br_warc_next(br_warc *r, size_t wanted, br_warc_record *out, bool *more, br_error *err);
/* Where the record is that br_warc_next spoke of last, also when that failed. */
uint64_t br_warc_offset(const br_warc *r);
/* After BR_CORRUPT: on to the next start behind the damage, if there is one in the range. */
BR_MUST_USE br_status br_warc_resume(br_warc *r, br_error *err);

/* Starts near the n - 1 borders of n equal parts, ascending, without repetitions; fewer if there are not so many (a file in
 * one gzip member: none). cuts has room for n - 1. Plain files: one read a record. */
BR_MUST_USE br_status br_warc_cuts(const br_warc_source *s, uint32_t n, uint64_t *cuts, uint32_t *n_cuts,
                                   br_error *err);

/* The value of a header (names are compared without case); {NULL, 0}: there is none. */
br_warc_text br_warc_get(const br_warc_record *r, const char *name);
/* "2014-01-03T03:03:21[.123456]Z" as microseconds since 1970. */
bool br_warc_date(br_warc_text t, int64_t *us);

/* An HTTP response at the start of a content. */
typedef struct br_http {
  int status;
  br_warc_text content_type, content_encoding; /* {NULL, 0}: there is none */
  bool chunked;
  size_t body; /* where it starts */
} br_http;
bool br_http_parse(const char *p, size_t n, br_http *out);
/* The body, chunks joined, gzip and deflate undone, at most limit bytes. False: it is damaged, of another encoding or too
 * long, and the bytes as they came are to be used. */
bool br_http_body(const br_http *h, const char *p, size_t n, size_t limit, br_buf *out);

#endif
