/* SPDX-License-Identifier: Apache-2.0
 *
 * MinHash. The inner loop runs over the values of one signature and is plain arithmetic on arrays: the compiler makes it SIMD
 * (this file is compiled with -O3), once for any x86-64 and once for AVX2.
 * Order: family, any number of texts, free. Threads: a family may be shared, a scratch not. Bounds: scratch is the text's size.
 */
#include "functions/minhash.h"

#define XXH_INLINE_ALL
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
  BLOCK_SHINGLES = 256, /* hashed at once, then taken into the signature */
  PIECE_VALUES = 64     /* of a band, hashed at once */
};

static uint64_t splitmix64(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

void br_minhash_family_init(br_minhash_family *f, uint32_t hashes, uint64_t seed) {
  uint64_t state = seed;
  *f = (br_minhash_family){.hashes = hashes, .seed = seed};
  f->a_low = br_malloc(hashes * sizeof *f->a_low);
  f->a_high = br_malloc(hashes * sizeof *f->a_high);
  f->b = br_malloc(hashes * sizeof *f->b);
  for (uint32_t i = 0; i < hashes; i++) {
    uint64_t a = splitmix64(&state);
    f->a_low[i] = (uint32_t)a;
    f->a_high[i] = (uint32_t)(a >> 32);
    f->b[i] = splitmix64(&state);
  }
}

void br_minhash_family_free(br_minhash_family *f) {
  free(f->a_low);
  free(f->a_high);
  free(f->b);
  *f = (br_minhash_family){0};
}

void br_minhash_scratch_free(br_minhash_scratch *s) {
  br_buf_free(&s->text);
  br_buf_free(&s->starts);
}

/* ---- the signature */

/* (a * x + b) mod 2^64 >> 32 in products of 32 bits, which every SIMD has. */
static inline __attribute__((always_inline)) void take_inline(const br_minhash_family *f, const uint32_t *x, size_t n,
                                                              uint32_t *restrict out) {
  const uint32_t *low = f->a_low, *high = f->a_high;
  const uint64_t *b = f->b;
  uint32_t hashes = f->hashes;
  for (size_t k = 0; k < n; k++) {
    uint32_t v = x[k];
    for (uint32_t i = 0; i < hashes; i++) {
      uint32_t h = (uint32_t)(((uint64_t)low[i] * v + b[i]) >> 32) + high[i] * v;
      out[i] = h < out[i] ? h : out[i];
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void take_avx2(const br_minhash_family *f, const uint32_t *x, size_t n,
                                                      uint32_t *out) {
  take_inline(f, x, n, out);
}
#endif

static void take(const br_minhash_family *f, const uint32_t *x, size_t n, uint32_t *out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    take_avx2(f, x, n, out);
    return;
  }
#endif
  take_inline(f, x, n, out);
}

/* ---- shingles */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The words joined by one space into s->text, where each begins into s->starts; one more start past the end, as if a word
 * followed. Returns how many. */
static size_t words(const char *text, size_t n, br_minhash_scratch *s) {
  size_t count = 0, at = 0;
  br_buf_clear(&s->text);
  br_buf_clear(&s->starts);
  br_buf_reserve(&s->text, n + 2);
  br_buf_reserve(&s->starts, (n / 2 + 2) * sizeof(size_t));
  char *out = s->text.data;
  size_t *starts = (size_t *)(void *)s->starts.data;
  for (size_t i = 0; i < n;) {
    while (i < n && is_space(text[i])) i++;
    if (i == n) break;
    starts[count++] = at;
    while (i < n && !is_space(text[i])) out[at++] = text[i++];
    out[at++] = ' ';
  }
  starts[count] = at;
  return count;
}

void br_minhash(const br_minhash_family *f, uint32_t ngram, const char *text, size_t n, br_minhash_scratch *scratch,
                uint32_t *out) {
  uint32_t block[BLOCK_SHINGLES];
  size_t filled = 0, count = words(text, n, scratch);
  const size_t *starts = (const size_t *)(const void *)scratch->starts.data;
  size_t length = ngram < count ? ngram : count, shingles = count ? count - length + 1 : 1;
  memset(out, 0xff, f->hashes * sizeof *out);
  for (size_t i = 0; i < shingles; i++) {
    size_t bytes = count ? starts[i + length] - 1 - starts[i] : 0;
    block[filled++] = (uint32_t)(XXH3_64bits(scratch->text.data + (count ? starts[i] : 0), bytes) >> 32);
    if (filled < BLOCK_SHINGLES) continue;
    take(f, block, filled, out);
    filled = 0;
  }
  take(f, block, filled, out);
}

/* ---- keys */

void br_minhash_bands(const uint32_t *signature, uint32_t bands, uint32_t rows, uint64_t *out) {
  uint8_t bytes[4 * PIECE_VALUES];
  for (uint32_t i = 0; i < bands; i++) {
    const uint32_t *v = signature + (size_t)i * rows;
    uint64_t key = i;
    for (uint32_t k = 0; k < rows; k += PIECE_VALUES) {
      uint32_t n = rows - k < PIECE_VALUES ? rows - k : PIECE_VALUES;
      for (uint32_t j = 0; j < 4 * n; j++) bytes[j] = (uint8_t)(v[k + j / 4] >> (8 * (j % 4))); /* little-endian */
      key = XXH3_64bits_withSeed(bytes, 4 * n, key);
    }
    out[i] = key;
  }
}

double br_minhash_similarity(const uint32_t *a, const uint32_t *b, size_t n) {
  size_t equal = 0;
  for (size_t i = 0; i < n; i++) equal += a[i] == b[i];
  return (double)equal / (double)n;
}
