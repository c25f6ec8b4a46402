/* SPDX-License-Identifier: Apache-2.0
 * One pass over UTF-8: punctuation goes, runs of spaces become one. No state; any thread. */
#include "functions/text.h"

#include <stdint.h>

/* The code point at p and its length; a byte that begins none stands for itself. */
static uint32_t decode(const unsigned char *p, size_t left, size_t *length) {
  size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 1;
  *length = 1;
  if (p[0] < 0xc2 || p[0] > 0xf4 || n > left) return p[0] < 0x80 ? p[0] : UINT32_MAX;
  uint32_t c = p[0] & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return UINT32_MAX;
    c = c << 6 | (p[i] & 0x3fu);
  }
  *length = n;
  return c;
}

static bool is_space(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

static bool is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return c == 0xa1 || c == 0xa7 || c == 0xab || c == 0xb6 || c == 0xb7 || c == 0xbb || c == 0xbf ||
         (c >= 0x2010 && c <= 0x2027) || (c >= 0x2030 && c <= 0x205e) || (c >= 0x3001 && c <= 0x3003) ||
         (c >= 0x3008 && c <= 0x3011);
}

size_t br_text_strip(const char *text, size_t n, bool remove_punctuation, bool collapse_spaces, char *out) {
  const unsigned char *p = (const unsigned char *)text;
  size_t written = 0, length;
  bool space = false;
  for (size_t i = 0; i < n; i += length) {
    uint32_t c = decode(p + i, n - i, &length);
    if (collapse_spaces && is_space(c)) {
      space = true;
      continue;
    }
    if (remove_punctuation && is_punctuation(c)) continue;
    if (space && written) out[written++] = ' ';
    space = false;
    for (size_t k = 0; k < length; k++) out[written++] = text[i + k];
  }
  return written;
}
