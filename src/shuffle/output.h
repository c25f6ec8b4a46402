/* SPDX-License-Identifier: Apache-2.0
 * Where the chunks of one attempt go: a memfd, and a disk file once the node refuses memory. Used by writer.c alone. */
#ifndef BRANT_SHUFFLE_OUTPUT_H
#define BRANT_SHUFFLE_OUTPUT_H

#include "shuffle/mapfile.h"

/* Of both run buffers together, the one being filled and the one being written. */
#define BR_OUTPUT_RUN_BUFFER_BYTES_MAX (64u << 20)
#define BR_OUTPUT_RUN_BUFFER_BYTES_MIN (2u << 20)

/* A chunk is told to followers at once if it's the first, else when so much has come or so long has passed. */
#define BR_OUTPUT_PUBLISH_BYTES (1u << 20)
#define BR_OUTPUT_PUBLISH_MS 20u
#define BR_OUTPUT_FOLLOWED_RUN_MS 200u /* on disk: a run that is so old is written with the next chunk, full or not */
#define BR_OUTPUT_PUBLISH_CHUNKS 8192u /* in one call at most */

/* A message and the pieces of its body, which become one chunk: each piece is followed by zeros up to a multiple of 64. */
typedef struct br_output_chunk {
  uint32_t partition;
  uint64_t rows;
  const br_buf *head;
  const br_ipc_piece *pieces;
  size_t n_pieces;
  uint64_t body_bytes; /* of the padded pieces */
} br_output_chunk;

typedef struct br_output br_output;
BR_MUST_USE br_status br_output_new(const br_writer_options *o, br_output **out, br_error *err);
/* For the next chunk: memory or disk. Any thread. */
br_codec br_output_codec(const br_output *o);
/* Store one chunk. Any thread; chunks of one partition from one thread keep their order. */
BR_MUST_USE br_status br_output_add(br_output *o, const br_output_chunk *c, br_error *err);
/* Tell readers what was not told yet; not if a writing thread is at it. */
void br_output_publish(br_output *o);
BR_MUST_USE br_status br_output_commit(br_output *o, br_map_output *out, br_error *err);
void br_output_free(br_output *o); /* without a commit: the file is removed, the reservation given back */

#endif
