/* SPDX-License-Identifier: Apache-2.0
 * What serve.c and the reader agree on beside the Flight protocol. The stream of one DoGet: the schema message; a record batch
 * a chunk with app_metadata {u32 map, u32 partition, u64 checksum}; last a message of metadata alone, br_wire_end, by which the
 * reader knows that it got everything. All numbers little endian. */
#ifndef BRANT_SHUFFLE_WIRE_H
#define BRANT_SHUFFLE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define BR_WIRE_END_MARK UINT32_MAX

typedef struct br_wire_chunk {
  uint32_t map, partition;
  uint64_t checksum; /* br_wire_checksum */
} br_wire_chunk;

/* Of a chunk on its way: XXH3 of {map, partition, the chunk's own checksum}: that is XXH3 of its message, zeros to a multiple
 * of 64, body, as a map output's index has it. TCP's checksum is 16 bits, and a machine in between makes its own. */
uint64_t br_wire_checksum(uint32_t map, uint32_t partition, uint64_t chunk_checksum);
/* The chunk's own checksum, from its parts. */
uint64_t br_wire_chunk_checksum(const void *head, size_t head_bytes, const void *body, size_t body_bytes);

typedef struct br_wire_end {
  uint32_t mark_map, mark_partition; /* BR_WIRE_END_MARK both */
  uint32_t outputs;                  /* map outputs that the range was taken from */
  uint32_t in_memory;                /* of them, told by br_wire_memory */
  uint64_t chunks, rows;             /* that were sent */
} br_wire_end;

/* A message of metadata alone that means nothing: the sender is there and has nothing to send yet. */
#define BR_WIRE_ALIVE_MARK (UINT32_MAX - 1)
typedef struct br_wire_alive {
  uint32_t mark_map, mark_partition; /* BR_WIRE_END_MARK, BR_WIRE_ALIVE_MARK */
} br_wire_alive;

/* Instead of an output's chunks, to a reader on the same host that asked for it (Ticket.by_memory): where the output lies in memory,
 * for the reader to map. Metadata alone, behind the schema and before every batch; unordered streams only. The reader believes
 * it when the file that it opens is that inode and says inside whose output it is; else it asks again, without by_memory. */
#define BR_WIRE_MEMORY_MARK (UINT32_MAX - 2)
typedef struct br_wire_memory {
  uint32_t mark_map, mark_partition; /* BR_WIRE_END_MARK, BR_WIRE_MEMORY_MARK */
  uint32_t map, pid, fd, reserved;   /* fd: of process pid, as long as the stream is open at least */
  uint64_t device, inode, file_bytes;
} br_wire_memory;

_Static_assert(sizeof(br_wire_memory) == 48, "sent as it lies in memory");
_Static_assert(sizeof(br_wire_alive) == 8, "sent as it lies in memory");
_Static_assert(sizeof(br_wire_chunk) == 16 && sizeof(br_wire_end) == 32, "sent as they lie in memory");

#endif
