/* SPDX-License-Identifier: Apache-2.0
 * Layout of a map output and what the folder needs of it beyond shuffle.h. All numbers little endian.
 *
 *   0            header: BR_MAPFILE_HEADER_BYTES, magic first
 *   64 ...       chunks, each at a multiple of 64: IPC message, zeros up to a multiple of 64, body (a multiple of 64)
 *   schema       the IPC schema message, zeros up to a multiple of 64
 *   index        br_chunk[chunks], sorted by (partition, offset): within a partition as written
 *   trailer      br_mapfile_trailer, the last bytes of the file
 */
#ifndef BRANT_SHUFFLE_MAPFILE_H
#define BRANT_SHUFFLE_MAPFILE_H

#include "shuffle/shuffle.h"

#define BR_MAPFILE_ALIGN_BYTES 64u
#define BR_MAPFILE_MEMFD_NAME "brant-map-output" /* of an output in memory, as /proc shows it */
#define BR_MAPFILE_HEADER_BYTES 64u
#define BR_MAPFILE_VERSION 1u
#define BR_MAPFILE_MAX_PARTITIONS (1u << 20)
#define BR_MAPFILE_MAX_HEAD_BYTES (16u << 20) /* of one IPC message without its body, and of the schema */

typedef struct br_mapfile_trailer {
  char magic[8];
  uint32_t version, partitions;
  uint64_t schema_offset, index_offset;
  uint32_t schema_bytes, chunks;
  uint64_t rows;
  uint64_t query;
  uint32_t stage, task;
  uint32_t attempt, reserved;
  uint64_t file_bytes;
  uint64_t tail_checksum; /* XXH3 of everything between schema_offset and the trailer */
  uint64_t checksum;      /* XXH3 of the fields above */
} br_mapfile_trailer;

static inline uint64_t br_mapfile_align(uint64_t n) {
  return (n + BR_MAPFILE_ALIGN_BYTES - 1) & ~(uint64_t)(BR_MAPFILE_ALIGN_BYTES - 1);
}
/* What a chunk takes in the file. */
static inline uint64_t br_chunk_stored_bytes(const br_chunk *c) {
  return br_mapfile_align(c->head_bytes) + c->body_bytes;
}

/* ---- writing: the first and the last bytes of a file */
void br_mapfile_header(unsigned char out[BR_MAPFILE_HEADER_BYTES]);
void br_chunks_sort(br_chunk *chunks, size_t n);
/* Append schema, index and trailer to *out, to be written at `offset` (a multiple of 64, behind the last chunk). chunks are
 * sorted. */
void br_mapfile_tail(const br_attempt_id *id, uint32_t partitions, const br_buf *schema_head, const br_chunk *chunks,
                     size_t n, uint64_t offset, br_buf *out);
/* Checksum of one chunk: head, padding and body lie behind each other as in the file. */
uint64_t br_chunk_checksum(const void *stored, uint64_t bytes);

/* ---- reading */
br_attempt_id br_mapfile_id(const br_mapfile *f);
uint64_t br_mapfile_rows(const br_mapfile *f);
uint64_t br_mapfile_bytes(const br_mapfile *f);
uint32_t br_mapfile_refs(const br_mapfile *f); /* 1: the caller's own is the only one, and can't be copied meanwhile */
bool br_mapfile_in_memory(const br_mapfile *f);
int br_mapfile_fd(const br_mapfile *f); /* borrowed */
/* Only the mapping stays: for who reads many outputs. In memory, and not shared yet. */
void br_mapfile_close_fd(br_mapfile *f);
/* Called once, when the last reference is gone and the memory given back. At most one, set before the file is shared. */
void br_mapfile_on_free(br_mapfile *f, void (*fn)(void *arg), void *arg);
/* A chunk of the output that `id` wrote (or writes) into fd, into fresh aligned memory; verified. Any thread. */
BR_MUST_USE br_status br_chunk_read(int fd, const br_attempt_id *id, const br_chunk *c, const void **head,
                                    br_ipc_body *body, br_error *err);
/* The whole index, sorted. */
size_t br_mapfile_index(const br_mapfile *f, const br_chunk **chunks);
/* A chunk of a file in memory without verifying its checksum: a sealed memfd that never was on a disk. */
void br_mapfile_view(br_mapfile *f, const br_chunk *c, const void **head, br_ipc_body *body);

#endif
