/* SPDX-License-Identifier: Apache-2.0
 * Bloom filters of keys; the words' layout is the machine's own, since filters are never stored. Order, threads, bounds: bloom.h. */
#include "functions/bloom.h"

#include <string.h>

/* Odd numbers, one a word, which spread the lower half of a hash over its 32 bits (as in Parquet's filters). */
static const uint32_t salts[BR_BLOOM_WORDS] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du,
                                               0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};

/* Whatever the hash is like, both halves of this depend on all of it. */
static inline uint64_t mixed(uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53ull;
  return h ^ h >> 33;
}

static inline size_t block_of(uint64_t h, uint32_t blocks) {
  return (size_t)((h >> 32) * blocks >> 32) * BR_BLOOM_WORDS;
}

static inline uint32_t bit_of(uint64_t h, uint32_t word) { return 1u << ((uint32_t)h * salts[word] >> 27); }

void br_bloom_add(uint32_t *words, uint32_t blocks, uint64_t hash) {
  uint64_t h = mixed(hash);
  uint32_t *block = words + block_of(h, blocks);
  for (uint32_t i = 0; i < BR_BLOOM_WORDS; i++) block[i] |= bit_of(h, i);
}

void br_bloom_or(uint32_t *words, const uint32_t *other, uint32_t blocks) {
  for (size_t i = 0; i < (size_t)blocks * BR_BLOOM_WORDS; i++) words[i] |= other[i];
}

bool br_bloom_has(const void *filter, uint32_t blocks, uint64_t hash) {
  if (blocks == 0) return false;
  uint64_t h = mixed(hash);
  uint32_t block[BR_BLOOM_WORDS];
  memcpy(block, (const char *)filter + block_of(h, blocks) * sizeof *block, sizeof block);
  for (uint32_t i = 0; i < BR_BLOOM_WORDS; i++)
    if (!(block[i] & bit_of(h, i))) return false;
  return true;
}
