/* SPDX-License-Identifier: Apache-2.0
 * What serve.c and the reader agree on beside the Flight protocol. The stream of one DoGet: the schema message; a record batch
 * a chunk with app_metadata {u32 map, u32 partition}; last a message of metadata alone, br_wire_end, by which the reader
 * knows that it got everything. All numbers little endian. */
#ifndef BRANT_SHUFFLE_WIRE_H
#define BRANT_SHUFFLE_WIRE_H

#include <stdint.h>

#define BR_WIRE_END_MARK UINT32_MAX

typedef struct br_wire_chunk {
  uint32_t map, partition;
} br_wire_chunk;

typedef struct br_wire_end {
  uint32_t mark_map, mark_partition; /* BR_WIRE_END_MARK both */
  uint32_t outputs;                  /* map outputs that the range was taken from */
  uint32_t reserved;
  uint64_t chunks, rows; /* that were sent */
} br_wire_end;

_Static_assert(sizeof(br_wire_chunk) == 8 && sizeof(br_wire_end) == 32, "sent as they lie in memory");

#endif
