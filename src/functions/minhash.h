/* SPDX-License-Identifier: Apache-2.0
 *
 * MinHash signatures of texts, and keys for locality-sensitive hashing. The same on every platform and in every version:
 * signatures are stored.
 *
 *   shingles  words (runs of bytes that are no ASCII white space) joined by one space, `ngram` at a time, every start;
 *             a text of fewer words is one shingle, an empty one too
 *   x         upper 32 bits of XXH3_64bits(shingle)
 *   value i   the least over all shingles of (a_i * x + b_i) mod 2^64 >> 32, which is strongly universal (Dietzfelbinger);
 *             a_0, b_0, a_1, b_1, ... are the outputs of splitmix64 that begins at `seed`
 */
#ifndef BRANT_FUNCTIONS_MINHASH_H
#define BRANT_FUNCTIONS_MINHASH_H

#include "base/buf.h"

#define BR_MINHASH_MAX_HASHES 65536u

/* The coefficients of one (hashes, seed): made once for many texts, then read-only. */
typedef struct br_minhash_family {
  uint32_t hashes;
  uint64_t seed;
  uint32_t *a_low, *a_high; /* [hashes] */
  uint64_t *b;
} br_minhash_family;
void br_minhash_family_init(br_minhash_family *f, uint32_t hashes,
                            uint64_t seed); /* hashes: 1 .. BR_MINHASH_MAX_HASHES */
void br_minhash_family_free(br_minhash_family *f);

/* out[f->hashes]. ngram >= 1. scratch: memory kept between calls of one thread. */
typedef struct br_minhash_scratch {
  br_buf text, starts;
} br_minhash_scratch;
void br_minhash_scratch_free(br_minhash_scratch *s);
void br_minhash(const br_minhash_family *f, uint32_t ngram, const char *text, size_t n, br_minhash_scratch *scratch,
                uint32_t *out);

/* One key for each of `bands` bands of `rows` values; bands * rows values are read. Key i is the hash
 * XXH3_64bits_withSeed of the values as little-endian bytes, with i as seed (beyond 64 rows: in pieces, each seeding the next). */
void br_minhash_bands(const uint32_t *signature, uint32_t bands, uint32_t rows, uint64_t *out);
/* The share of equal values: the estimate of the Jaccard similarity of the two sets of shingles. n > 0. */
double br_minhash_similarity(const uint32_t *a, const uint32_t *b, size_t n);

#endif
