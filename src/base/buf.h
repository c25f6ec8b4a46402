/* SPDX-License-Identifier: Apache-2.0
 * A growing byte buffer, also used as string builder. Zero-initialised is empty; data is NULL until something was added.
 * br_buf_printf and br_buf_str keep a NUL after the end (not counted in len). */
#ifndef BRANT_BASE_BUF_H
#define BRANT_BASE_BUF_H

#include "base/status.h"
#include <stddef.h>

typedef struct br_buf {
  char *data;
  size_t len, cap;
} br_buf;

void br_buf_reserve(br_buf *b, size_t more_bytes);
void br_buf_add(br_buf *b, const void *p, size_t n);
void br_buf_str(br_buf *b, const char *s);
void br_buf_char(br_buf *b, char c);
void br_buf_printf(br_buf *b, const char *fmt, ...) BR_PRINTF(2, 3);
void br_buf_vprintf(br_buf *b, const char *fmt, va_list ap);
const char *br_buf_cstr(br_buf *b); /* "" when empty */
char *br_buf_take(br_buf *b);       /* NUL-terminated, caller frees; b is empty afterwards */
void br_buf_clear(br_buf *b);       /* keeps the memory */
void br_buf_free(br_buf *b);

/* SQL text: "identifier" and 'literal' with quotes doubled (a NUL inside a literal becomes || chr(0) ||). */
void br_buf_sql_ident(br_buf *b, const char *name);
void br_buf_sql_literal(br_buf *b, const char *s, size_t n);

#endif
