/* SPDX-License-Identifier: Apache-2.0
 * Internal to arrow/: the two compressions of Arrow IPC, LZ4 frames and zstd. Contexts are kept per thread. */
#ifndef BRANT_ARROW_CODEC_H
#define BRANT_ARROW_CODEC_H

#include "arrow/ipc.h"

/* The most that `bytes` may need when compressed. */
size_t br_codec_bound(br_codec codec, size_t bytes);
/* Compress into dst (of br_codec_bound bytes). */
BR_MUST_USE br_status br_codec_compress(br_codec codec, const void *src, size_t bytes, void *dst, size_t room,
                                        size_t *written, br_error *err);
/* Decompress src, which must give exactly dst_bytes. Anything else is BR_CORRUPT. */
BR_MUST_USE br_status br_codec_decompress(br_codec codec, const void *src, size_t bytes, void *dst, size_t dst_bytes,
                                          br_error *err);
/* Could `bytes` of compressed data ever grow to `claimed`? Guards allocations against small messages that claim gigabytes. */
bool br_codec_plausible(br_codec codec, const void *src, size_t bytes, uint64_t claimed);

#endif
