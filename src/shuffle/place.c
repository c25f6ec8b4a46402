/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement of rows in partitions. Pure functions over vectors; any thread.
 *
 * The binary search compares the first 8 bytes of key and bound as one big-endian number, and only on a tie the rest: a key
 * that is padded with zeros sorts as memcmp does, since a shorter key is smaller than any that continues it.
 */
#include "shuffle/place.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_null(const br_vec *v, uint32_t row) {
  return v->validity != NULL && (v->validity[row / 64] >> (row % 64) & 1) == 0;
}

static br_status bad_number(uint64_t number, uint32_t partitions, br_error *err) {
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the plan put a row in partition %" PRIu64 " of %u", number,
                 partitions);
}

#define PLACE(type)                                                         \
  do {                                                                      \
    const type *numbers = v->data;                                          \
    for (uint32_t i = 0; i < rows; i++) {                                   \
      uint64_t number = numbers[i];                                         \
      if (number >= partitions) return bad_number(number, partitions, err); \
      place[i] = (uint32_t)number;                                          \
    }                                                                       \
  } while (0)

br_status br_place_numbers(const br_vec *v, uint32_t rows, uint32_t partitions, uint32_t *place, br_error *err) {
  if (rows == 0) return BR_OK;
  if (v->kind != BR_VEC_FIXED || v->data == NULL || (v->width != 2 && v->width != 4 && v->width != 8))
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the partition column is no integer of 2, 4 or 8 bytes");
  if (v->validity != NULL)
    for (uint32_t i = 0; i < rows; i++)
      if (is_null(v, i)) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the partition column has a NULL");
  if (v->width == 2)
    PLACE(uint16_t);
  else if (v->width == 4)
    PLACE(uint32_t);
  else
    PLACE(uint64_t);
  return BR_OK;
}

struct br_bounds {
  uint32_t n;
  const void *const *keys;
  const uint32_t *bytes;
  uint64_t *prefixes;
};

static uint64_t prefix(const void *key, uint32_t bytes) {
  unsigned char first[8] = {0};
  uint64_t number = 0;
  if (bytes > 0) memcpy(first, key, bytes < 8 ? bytes : 8);
  memcpy(&number, first, 8);
  return __builtin_bswap64(number);
}

static int compare_keys(const void *a, uint32_t a_bytes, const void *b, uint32_t b_bytes) {
  uint32_t common = a_bytes < b_bytes ? a_bytes : b_bytes;
  int c = common > 0 ? memcmp(a, b, common) : 0;
  if (c != 0) return c;
  return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

br_status br_bounds_new(const void *const *keys, const uint32_t *bytes, uint32_t n, br_bounds **out, br_error *err) {
  for (uint32_t i = 1; i < n; i++)
    if (compare_keys(keys[i - 1], bytes[i - 1], keys[i], bytes[i]) > 0)
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "bound %u of the range exchange is below the one before", i);
  br_bounds *b = br_calloc(1, sizeof *b);
  *b = (br_bounds){.n = n, .keys = keys, .bytes = bytes, .prefixes = br_calloc(n + 1, sizeof *b->prefixes)};
  for (uint32_t i = 0; i < n; i++) b->prefixes[i] = prefix(keys[i], bytes[i]);
  *out = b;
  return BR_OK;
}

void br_bounds_free(br_bounds *b) {
  if (b == NULL) return;
  free(b->prefixes);
  free(b);
}

/* Bounds that are smaller than the key, or with `equal_too` also those equal to it. */
static uint32_t count_below(const br_bounds *b, uint64_t first, const void *key, uint32_t bytes, bool equal_too) {
  uint32_t low = 0, high = b->n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    bool below = b->prefixes[middle] < first;
    if (b->prefixes[middle] == first) {
      int c = compare_keys(b->keys[middle], b->bytes[middle], key, bytes);
      below = c < 0 || (c == 0 && equal_too);
    }
    if (below)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static uint32_t place_key(const br_bounds *b, const void *key, uint32_t bytes, uint64_t *turn) {
  uint64_t first = prefix(key, bytes);
  uint32_t lower = count_below(b, first, key, bytes, false);
  if (lower + 1 >= b->n || b->prefixes[lower] != first || b->prefixes[lower + 1] != first) return lower;
  uint32_t equal = count_below(b, first, key, bytes, true) - lower;
  if (equal < 2) return lower;
  return lower + (uint32_t)(((*turn)++ % (2 * (uint64_t)equal) + 1) / 2);
}

br_status br_place_range(const br_bounds *b, const br_vec *v, uint32_t rows, uint64_t *turn, uint32_t *place,
                         br_error *err) {
  if (rows == 0) return BR_OK;
  if (v->kind != BR_VEC_STRING || v->data == NULL)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the sort key is no BLOB");
  for (uint32_t i = 0; i < rows; i++) {
    const unsigned char *string = (const unsigned char *)v->data + 16 * (size_t)i;
    const void *key = string + 4;
    uint32_t bytes;
    if (is_null(v, i)) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the sort key has a NULL");
    memcpy(&bytes, string, 4);
    if (bytes > 12) memcpy(&key, string + 8, sizeof key);
    place[i] = place_key(b, key, bytes, turn);
  }
  return BR_OK;
}
