/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixed parts of a map output: header, index order, tail. Pure functions over memory; who writes them where is the
 * business of output.c. The format is described in mapfile.h.
 */
#include "shuffle/mapfile.h"
#include "shuffle/checksum.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the index is stored as it lies in memory");
_Static_assert(sizeof(br_chunk) == 40, "br_chunk is the index entry of the file");
_Static_assert(sizeof(br_mapfile_trailer) == 96, "the trailer has no hidden padding");

void br_mapfile_header(unsigned char out[BR_MAPFILE_HEADER_BYTES]) {
  memset(out, 0, BR_MAPFILE_HEADER_BYTES);
  memcpy(out, "BRMAPF01", 8);
}

static int compare_chunks(const void *x, const void *y) {
  const br_chunk *a = x, *b = y;
  if (a->partition != b->partition) return a->partition < b->partition ? -1 : 1;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

void br_chunks_sort(br_chunk *chunks, size_t n) {
  if (n > 1) qsort(chunks, n, sizeof *chunks, compare_chunks);
}

uint64_t br_chunk_checksum(const void *stored, uint64_t bytes) { return XXH3_64bits(stored, bytes); }

static void add_zeros(br_buf *out, size_t n) {
  static const char zeros[BR_MAPFILE_ALIGN_BYTES];
  if (n > 0) br_buf_add(out, zeros, n);
}

void br_mapfile_tail(const br_attempt_id *id, uint32_t partitions, const br_buf *schema_head, const br_chunk *chunks,
                     size_t n, uint64_t offset, br_buf *out) {
  BR_ASSERT(offset % BR_MAPFILE_ALIGN_BYTES == 0 && n <= UINT32_MAX && schema_head->len <= BR_MAPFILE_MAX_HEAD_BYTES);
  size_t start = out->len, schema_bytes = br_mapfile_align(schema_head->len);
  br_buf_reserve(out, schema_bytes + n * sizeof *chunks + sizeof(br_mapfile_trailer));
  br_buf_add(out, schema_head->data, schema_head->len);
  add_zeros(out, schema_bytes - schema_head->len);
  if (n > 0) br_buf_add(out, chunks, n * sizeof *chunks);
  br_mapfile_trailer t = {.version = BR_MAPFILE_VERSION,
                          .partitions = partitions,
                          .schema_offset = offset,
                          .index_offset = offset + schema_bytes,
                          .schema_bytes = (uint32_t)schema_head->len,
                          .chunks = (uint32_t)n,
                          .query = id->query,
                          .stage = id->stage,
                          .task = id->task,
                          .attempt = id->attempt,
                          .file_bytes = offset + (out->len - start) + sizeof(br_mapfile_trailer)};
  memcpy(t.magic, "BRMAPT01", 8);
  for (size_t i = 0; i < n; i++) t.rows += chunks[i].rows;
  t.tail_checksum = XXH3_64bits(out->data + start, out->len - start);
  t.checksum = XXH3_64bits(&t, offsetof(br_mapfile_trailer, checksum));
  br_buf_add(out, &t, sizeof t);
}
