/* SPDX-License-Identifier: Apache-2.0
 * Checksums of chunks on their way between workers (wire.h): the sender has the chunk's own from the index of its map output, the
 * reader computes it from what arrived. Any thread. */
#include "shuffle/wire.h"
#include "shuffle/checksum.h"

#include "shuffle/mapfile.h"

uint64_t br_wire_chunk_checksum(const void *head, size_t head_bytes, const void *body, size_t body_bytes) {
  static const char zeros[BR_MAPFILE_ALIGN_BYTES];
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, head, head_bytes);
  XXH3_64bits_update(&state, zeros, br_mapfile_align(head_bytes) - head_bytes);
  if (body_bytes > 0) XXH3_64bits_update(&state, body, body_bytes);
  return XXH3_64bits_digest(&state);
}

uint64_t br_wire_checksum(uint32_t map, uint32_t partition, uint64_t chunk_checksum) {
  const struct {
    uint32_t map, partition;
    uint64_t chunk;
  } all = {map, partition, chunk_checksum};
  return XXH3_64bits(&all, sizeof all);
}
