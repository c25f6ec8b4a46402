/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: what a consumer relies on when it walks decoded columns without looking: offsets and UTF-8.
 *   Loops have no early exit, so that compilers vectorise them; only non-ASCII text takes the slow way.
 * Order of calls: offsets before the strings between them.
 * Threads: no state.
 * Bounds: reads exactly what the arguments say.
 */
#include "arrow/ipc_check.h"
#include <string.h>

/* The top bit of what is gathered: an offset is negative, or the next is smaller (both being positive, the difference
 * can't wrap). */
bool br_check_offsets32(const int32_t *offsets, int64_t n, int64_t limit) {
  uint32_t bad = (uint32_t)offsets[0];
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) { /* a fixed count, which compilers unroll and vectorise */
    const uint32_t *x = (const uint32_t *)offsets + i;
    for (int j = 0; j < 8; j++) bad |= x[j + 1] | (x[j + 1] - x[j]);
  }
  for (; i < n; i++) bad |= (uint32_t)offsets[i + 1] | ((uint32_t)offsets[i + 1] - (uint32_t)offsets[i]);
  return (bad >> 31) == 0 && offsets[n] <= limit;
}

bool br_check_offsets64(const int64_t *offsets, int64_t n, int64_t limit) {
  uint64_t bad = (uint64_t)offsets[0];
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) { /* a fixed count, which compilers unroll and vectorise */
    const uint64_t *x = (const uint64_t *)offsets + i;
    for (int j = 0; j < 8; j++) bad |= x[j + 1] | (x[j + 1] - x[j]);
  }
  for (; i < n; i++) bad |= (uint64_t)offsets[i + 1] | ((uint64_t)offsets[i + 1] - (uint64_t)offsets[i]);
  return (bad >> 63) == 0 && offsets[n] <= limit;
}

static bool is_ascii(const uint8_t *p, size_t n) {
  uint64_t bits = 0;
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t w[8];
    memcpy(w, p + i, 64);
    bits |= w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7];
  }
  uint8_t rest = 0;
  for (; i < n; i++) rest |= p[i];
  return (bits & 0x8080808080808080u) == 0 && rest < 0x80;
}

static bool tail(uint8_t b) { return (b & 0xc0) == 0x80; }

/* The bytes of the sequence that starts at p, 0 if it isn't one (RFC 3629: shortest form, no surrogates, <= U+10FFFF). */
static size_t sequence(const uint8_t *p, size_t left) {
  uint8_t a = p[0];
  if (a < 0x80) return 1;
  if (a >= 0xc2 && a <= 0xdf) return left >= 2 && tail(p[1]) ? 2 : 0;
  if (a >= 0xe0 && a <= 0xef) {
    if (left < 3 || !tail(p[1]) || !tail(p[2])) return 0;
    if ((a == 0xe0 && p[1] < 0xa0) || (a == 0xed && p[1] > 0x9f)) return 0;
    return 3;
  }
  if (a >= 0xf0 && a <= 0xf4) {
    if (left < 4 || !tail(p[1]) || !tail(p[2]) || !tail(p[3])) return 0;
    if ((a == 0xf0 && p[1] < 0x90) || (a == 0xf4 && p[1] > 0x8f)) return 0;
    return 4;
  }
  return 0;
}

static bool is_utf8(const uint8_t *p, size_t n) {
  size_t i = 0;
  while (i < n) {
    if (p[i] < 0x80) {
      uint64_t w;
      if (i + 8 <= n && (memcpy(&w, p + i, 8), (w & 0x8080808080808080u) == 0))
        i += 8;
      else
        i++;
      continue;
    }
    size_t step = sequence(p + i, n - i);
    if (step == 0) return false;
    i += step;
  }
  return true;
}

static bool is_set(const uint8_t *bits, int64_t i) { return bits == NULL || (bits[i >> 3] >> (i & 7) & 1) != 0; }

/* Whole range first (one pass, whatever the strings' lengths), then each string for itself: a writer may leave anything
 * under a NULL. */
bool br_check_utf8_32(const uint8_t *data, const int32_t *offsets, int64_t n, const uint8_t *validity) {
  if (n == 0 || is_ascii(data + offsets[0], (size_t)(offsets[n] - offsets[0]))) return true;
  for (int64_t i = 0; i < n; i++)
    if (is_set(validity, i) && !is_utf8(data + offsets[i], (size_t)(offsets[i + 1] - offsets[i]))) return false;
  return true;
}

bool br_check_utf8_64(const uint8_t *data, const int64_t *offsets, int64_t n, const uint8_t *validity) {
  if (n == 0 || is_ascii(data + offsets[0], (size_t)(offsets[n] - offsets[0]))) return true;
  for (int64_t i = 0; i < n; i++)
    if (is_set(validity, i) && !is_utf8(data + offsets[i], (size_t)(offsets[i + 1] - offsets[i]))) return false;
  return true;
}
