/* SPDX-License-Identifier: Apache-2.0
 * links: br_functions
 * WARC files with arbitrary bytes, plain and gzipped: records end, damage is skipped, cuts are starts, bodies are decoded within
 * their limit. */
#include "base/mem.h"
#include "functions/warc.h"
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
  const uint8_t *p;
  size_t n;
} bytes;

static br_status memory_read(void *arg, uint64_t offset, void *p, size_t n, size_t *got, br_error *err) {
  const bytes *b = arg;
  (void)err;
  *got = offset >= b->n ? 0 : b->n - (size_t)offset < n ? b->n - (size_t)offset : n;
  if (*got) memcpy(p, b->p + offset, *got);
  return BR_OK;
}

static void look(const br_warc_record *rec) {
  br_http h;
  br_buf body = {0};
  int64_t us;
  (void)br_warc_date(br_warc_get(rec, "WARC-Date"), &us);
  if (br_http_parse(rec->content ? rec->content : "", rec->content_kept, &h)) {
    if (h.body > rec->content_kept) abort();
    (void)br_http_body(&h, rec->content, rec->content_kept, 1 << 20, &body);
    if (body.len > 1 << 20) abort();
  }
  br_buf_free(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bytes b = {data, size};
  br_warc_source s = {.name = "fuzz", .size = size, .read = memory_read, .arg = &b};
  br_warc_record rec;
  br_error err;
  bool more = true;
  uint64_t cuts[3], last = 0, steps = 0;
  uint32_t n_cuts = 0;
  br_warc *r = br_warc_open(&s, 0, size);
  while (more) {
    if (steps++ > size + 2) abort(); /* each step goes on */
    br_status status = br_warc_next(r, 1 << 20, &rec, &more, &err);
    if (br_warc_offset(r) < last || br_warc_offset(r) > size) abort();
    last = br_warc_offset(r);
    if (status == BR_OK) {
      if (more) look(&rec);
      continue;
    }
    if (status != BR_CORRUPT) abort();
    if (br_warc_resume(r, &err) != BR_OK) abort();
    more = true;
    if (br_warc_offset(r) <= last) abort();
  }
  br_warc_close(r);
  if (br_warc_cuts(&s, 4, cuts, &n_cuts, &err) != BR_OK || n_cuts > 3) abort();
  for (uint32_t i = 0; i < n_cuts; i++)
    if (cuts[i] == 0 || cuts[i] >= size || (i && cuts[i] <= cuts[i - 1])) abort();
  return 0;
}
