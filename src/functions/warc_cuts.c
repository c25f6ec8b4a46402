/* SPDX-License-Identifier: Apache-2.0
 *
 * Where WARC files may be cut, and where to go on behind damage.
 *
 * Any bytes may stand inside of a record, those of another archive too. A plain file is therefore read from header to header.
 * In a gzip file a member may look like a start that it is not only where an archive was stored without being compressed again;
 * such a copy is broken up by deflate's block headers every 64 KiB. So a start is believed if the members from it on are whole,
 * checksums included, for SURE_BYTES or to the end of the file.
 * Order: any. Threads: any. Bounds: one window.
 */
#include "functions/warc_inside.h"

#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

enum { SURE_BYTES = 192 << 10, SCRATCH_BYTES = 64 << 10, MAGIC_BYTES = 4 };

/* ---- gzip members */

typedef struct probe {
  const br_warc_source *s;
  uint8_t in[SCRATCH_BYTES], out[SCRATCH_BYTES];
  uint8_t search[SCRATCH_BYTES];
} probe;

/* The member at `at`: *whole if it inflates to its end, *warc if its content begins with WARC/, *next where it ends. Without
 * `all` only the beginning is looked at. */
static br_status probe_member(probe *p, uint64_t at, bool all, bool *whole, bool *warc, uint64_t *next, br_error *err) {
  br_status status = BR_OK;
  z_stream z = {0};
  char head[5];
  size_t n_head = 0;
  int rc = Z_OK;
  *whole = *warc = false;
  if (inflateInit2(&z, 15 + 16) != Z_OK)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_EXECUTOR, "no memory to inflate %s", p->s->name);
  while (rc != Z_STREAM_END) {
    if (!z.avail_in) {
      size_t got;
      BR_TRY_GOTO(p->s->read(p->s->arg, at, p->in, sizeof p->in, &got, err));
      if (!got) goto done;
      at += got;
      z.next_in = p->in;
      z.avail_in = (uInt)got;
    }
    z.next_out = p->out;
    z.avail_out = sizeof p->out;
    rc = inflate(&z, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) goto done;
    size_t made = sizeof p->out - z.avail_out;
    for (size_t i = 0; i < made && n_head < sizeof head; i++) head[n_head++] = (char)p->out[i];
    *warc = n_head == sizeof head && !memcmp(head, "WARC/", sizeof head);
    if (n_head == sizeof head && (!all || !*warc)) break;
  }
  *whole = rc == Z_STREAM_END;
  *next = at - z.avail_in;
done:
  inflateEnd(&z);
  return status == BR_OK ? BR_OK : br_error_context(err, "%s", p->s->name);
}

static br_status believe(probe *p, uint64_t start, bool sure, bool *yes, br_error *err) {
  bool whole, warc;
  uint64_t at = start;
  BR_TRY(probe_member(p, at, sure, &whole, &warc, &at, err));
  *yes = warc && (whole || !sure);
  while (sure && *yes && at < p->s->size && at - start < SURE_BYTES) {
    BR_TRY(probe_member(p, at, true, &whole, &warc, &at, err));
    *yes = warc && whole;
  }
  return BR_OK;
}

static bool is_magic(const uint8_t *p) { return p[0] == 0x1f && p[1] == 0x8b && p[2] == 8 && !(p[3] & 0xe0); }
static bool is_line_start(const uint8_t *p) { return !memcmp(p, "WARC", MAGIC_BYTES); }

/* "\n\r\nWARC/1" or "\n\nWARC/1" around the WARC at `at`. */
static br_status plain_start(const br_warc_source *s, uint64_t at, bool *yes, br_error *err) {
  char around[9] = {0};
  size_t got;
  *yes = false;
  if (at < 3) {
    *yes = at == 0;
    return BR_OK;
  }
  BR_TRY(s->read(s->arg, at - 3, around, sizeof around, &got, err));
  *yes = got == sizeof around && !memcmp(around + 3, "WARC/", 5) &&
         (!memcmp(around, "\n\r\n", 3) || !memcmp(around + 1, "\n\n", 2));
  return BR_OK;
}

br_status br_warc_find(const br_warc_source *s, bool gzip, uint64_t from, bool sure, uint64_t *out, br_error *err) {
  br_status status = BR_OK;
  probe *p = br_malloc(sizeof *p);
  bool found = false;
  p->s = s;
  *out = s->size;
  while (!found && from + MAGIC_BYTES <= s->size) {
    size_t got;
    BR_TRY_GOTO(s->read(s->arg, from, p->search, sizeof p->search, &got, err));
    if (got < MAGIC_BYTES) break;
    for (size_t i = 0; !found && i + MAGIC_BYTES <= got; i++) {
      if (gzip && is_magic(p->search + i)) BR_TRY_GOTO(believe(p, from + i, sure, &found, err));
      if (!gzip && is_line_start(p->search + i)) BR_TRY_GOTO(plain_start(s, from + i, &found, err));
      if (found) *out = from + i;
    }
    from += got - (MAGIC_BYTES - 1);
  }
done:
  free(p);
  return status;
}

/* ---- cuts */

static br_status cut_gzip(const br_warc_source *s, uint32_t n, uint64_t *cuts, uint32_t *n_cuts, br_error *err) {
  uint64_t last = 0;
  for (uint32_t i = 1; i < n && last < s->size; i++) {
    uint64_t border = s->size / n * i, start;
    if (border <= last) continue;
    BR_TRY(br_warc_find(s, true, border, true, &start, err));
    if (start < s->size) cuts[(*n_cuts)++] = start;
    last = start;
  }
  return BR_OK;
}

static br_status cut_plain(const br_warc_source *s, uint32_t n, uint64_t *cuts, uint32_t *n_cuts, br_error *err) {
  br_warc *r = br_warc_open(s, 0, s->size);
  br_warc_record rec;
  bool more = true;
  uint32_t border = 1;
  br_status status = BR_OK;
  while (more && border < n) {
    status = br_warc_next(r, 0, &rec, &more, err);
    if (status == BR_CORRUPT) { /* whoever reads the rest will say it */
      status = BR_OK;
      break;
    }
    if (status != BR_OK) break;
    if (!more || rec.offset < s->size / n * border) continue;
    while (border < n && rec.offset >= s->size / n * border) border++;
    if (rec.offset) cuts[(*n_cuts)++] = rec.offset;
  }
  br_warc_close(r);
  return status;
}

br_status br_warc_cuts(const br_warc_source *s, uint32_t n, uint64_t *cuts, uint32_t *n_cuts, br_error *err) {
  uint8_t magic[2] = {0};
  size_t got;
  *n_cuts = 0;
  BR_TRY(s->read(s->arg, 0, magic, sizeof magic, &got, err));
  if (got == 2 && magic[0] == 0x1f && magic[1] == 0x8b) return cut_gzip(s, n, cuts, n_cuts, err);
  return cut_plain(s, n, cuts, n_cuts, err);
}
