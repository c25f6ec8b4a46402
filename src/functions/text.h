/* SPDX-License-Identifier: Apache-2.0
 * Texts made comparable: what can be done on bytes of UTF-8. (Case and composition are the engine's own functions.) */
#ifndef BRANT_FUNCTIONS_TEXT_H
#define BRANT_FUNCTIONS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* out has room for n bytes; returns how many were written (never more than n). Spaces: ASCII's, U+00A0, U+1680, U+2000..200A,
 * U+2028, U+2029, U+202F, U+205F, U+3000. collapse: each run of them is one ' ', none at the ends. Punctuation that is removed:
 * ASCII's, U+00A1 U+00A7 U+00AB U+00B6 U+00B7 U+00BB U+00BF, U+2010..2027, U+2030..205E, U+3001..3003, U+3008..3011. Bytes that
 * are no UTF-8 stay. */
size_t br_text_strip(const char *text, size_t n, bool remove_punctuation, bool collapse_spaces, char *out);

#endif
