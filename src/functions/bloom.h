/* SPDX-License-Identifier: Apache-2.0
 *
 * Bloom filters of keys, split-block: a key sets one bit in each of the 8 words of one block of 32 bytes, so that a look costs one line
 * of the cache. Bytes are the filter: nothing else belongs to it, blocks may be put together by OR. A key that was added is always
 * found; with 12 bits a key about one other in 200 is found too, with 8 about one in 40.
 *
 * Threads: none; a filter that nobody adds to is read by many. Bounds: BR_BLOOM_MAX_BLOCKS. */
#ifndef BRANT_FUNCTIONS_BLOOM_H
#define BRANT_FUNCTIONS_BLOOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_BLOOM_WORDS 8u
#define BR_BLOOM_BLOCK_BYTES (BR_BLOOM_WORDS * 4u)
#define BR_BLOOM_MAX_BLOCKS (1u << 23) /* 256 MiB */

/* words: blocks * BR_BLOOM_WORDS of them, 0 at first. blocks > 0. hash: of the key, good in all 64 bits or not. */
void br_bloom_add(uint32_t *words, uint32_t blocks, uint64_t hash);
void br_bloom_or(uint32_t *words, const uint32_t *other, uint32_t blocks);
/* filter: `bytes` of it, at any address; false: a key with this hash was not added. Nothing was added to a filter of no block. */
bool br_bloom_has(const void *filter, uint32_t blocks, uint64_t hash);

#endif
