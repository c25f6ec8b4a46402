/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 *
 * Any bytes as a map output. The first byte chooses: as they are, or with magic and checksums made right, so that what lies
 * behind them is reached too; in memory or on disk. What opens is read whole, decoded with its own schema.
 */
#include "shuffle/mapfile.h"

#include "base/util.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_right(uint8_t *p, size_t n) {
  br_mapfile_trailer t;
  if (n < sizeof t) return;
  memcpy(&t, p + n - sizeof t, sizeof t);
  memcpy(t.magic, "BRMAPT01", 8);
  t.version = BR_MAPFILE_VERSION;
  t.file_bytes = n;
  t.schema_offset = t.schema_offset % n & ~(uint64_t)63;
  t.schema_bytes = t.schema_bytes % 4096 + 1;
  t.index_offset = t.schema_offset + br_mapfile_align(t.schema_bytes);
  uint64_t end = n - sizeof t;
  t.chunks = t.index_offset < end ? (uint32_t)((end - t.index_offset) / sizeof(br_chunk)) : 0;
  t.rows = 0;
  for (uint32_t i = 0; i < t.chunks; i++) {
    br_chunk c;
    memcpy(&c, p + t.index_offset + i * sizeof c, sizeof c);
    c.offset &= ~(uint64_t)63;
    c.body_bytes &= ~(uint64_t)63;
    t.rows += c.rows;
    if (c.offset < n && br_chunk_stored_bytes(&c) <= n - c.offset)
      c.checksum = br_chunk_checksum(p + c.offset, br_chunk_stored_bytes(&c));
    memcpy(p + t.index_offset + i * sizeof c, &c, sizeof c);
  }
  if (t.schema_offset < end) t.tail_checksum = XXH3_64bits(p + t.schema_offset, end - t.schema_offset);
  t.checksum = XXH3_64bits(&t, offsetof(br_mapfile_trailer, checksum));
  memcpy(p + n - sizeof t, &t, sizeof t);
}

static void read_chunks(br_mapfile *f) {
  br_error err = {0};
  const void *head;
  size_t bytes;
  br_schema *schema = NULL;
  const br_chunk *c;
  br_mapfile_schema(f, &head, &bytes);
  if (br_ipc_decode_schema(head, bytes, &schema, &err) != BR_OK) schema = NULL;
  size_t n = br_mapfile_find(f, 0, br_mapfile_partitions(f), &c);
  for (size_t i = 0; i < n; i++) {
    br_ipc_body body;
    br_batch *batch = NULL;
    if (br_mapfile_chunk(f, &c[i], &head, &body, &err) != BR_OK) continue;
    if (schema == NULL)
      body.release(body.owner);
    else if (br_ipc_decode_batch(schema, head, c[i].head_bytes, body, &batch, &err) == BR_OK)
      br_batch_unref(batch);
  }
  br_schema_unref(schema);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 1) return 0;
  uint8_t mode = data[0];
  size_t n = size - 1;
  uint8_t *copy = malloc(n + 1);
  br_error err = {0};
  br_mapfile *f = NULL;
  memcpy(copy, data + 1, n);
  if (mode & 1) make_right(copy, n);
  int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  bool in_memory = (mode & 2) != 0;
  if (fd < 0 || br_write_all(fd, copy, n, &err) != BR_OK) abort();
  if (in_memory && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) abort();
  if (br_mapfile_open(fd, in_memory, n, &f, &err) == BR_OK) {
    read_chunks(f);
    br_mapfile_unref(f);
  }
  free(copy);
  return 0;
}
