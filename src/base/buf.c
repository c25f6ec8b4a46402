/* SPDX-License-Identifier: Apache-2.0
 * The growing byte buffer. Capacity doubles; one byte is kept for a NUL. Not thread-safe. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void br_buf_reserve(br_buf *b, size_t more) {
  size_t need = 0;
  BR_ASSERT(!__builtin_add_overflow(b->len, more, &need) && need + 1 > need);
  if (need + 1 <= b->cap) return;
  size_t cap = b->cap ? b->cap : 64;
  while (cap < need + 1) cap = cap > (SIZE_MAX >> 1) ? need + 1 : cap * 2;
  b->data = br_realloc(b->data, cap);
  b->cap = cap;
}

void br_buf_add(br_buf *b, const void *p, size_t n) {
  if (n == 0) return;
  br_buf_reserve(b, n);
  memcpy(b->data + b->len, p, n);
  b->len += n;
}

void br_buf_str(br_buf *b, const char *s) {
  size_t n = strlen(s);
  br_buf_reserve(b, n);
  memcpy(b->data + b->len, s, n + 1);
  b->len += n;
}

void br_buf_char(br_buf *b, char c) {
  br_buf_reserve(b, 1);
  b->data[b->len++] = c;
  b->data[b->len] = 0;
}

void br_buf_vprintf(br_buf *b, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  br_buf_reserve(b, 128);
  int n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, ap);
  BR_ASSERT(n >= 0);
  if ((size_t)n >= b->cap - b->len) {
    br_buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, b->cap - b->len, fmt, again);
  }
  va_end(again);
  b->len += (size_t)n;
}

void br_buf_printf(br_buf *b, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  br_buf_vprintf(b, fmt, ap);
  va_end(ap);
}

const char *br_buf_cstr(br_buf *b) {
  if (b->data == NULL) return "";
  b->data[b->len] = 0;
  return b->data;
}

char *br_buf_take(br_buf *b) {
  br_buf_reserve(b, 0);
  b->data[b->len] = 0;
  char *p = b->data;
  *b = (br_buf){0};
  return p;
}

void br_buf_clear(br_buf *b) { b->len = 0; }

void br_buf_free(br_buf *b) {
  free(b->data);
  *b = (br_buf){0};
}

void br_buf_sql_ident(br_buf *b, const char *name) {
  br_buf_char(b, '"');
  for (const char *p = name; *p; p++) {
    if (*p == '"') br_buf_char(b, '"');
    br_buf_char(b, *p);
  }
  br_buf_char(b, '"');
}

/* A NUL can't stand in SQL text: 'a' || chr(0) || 'b', in parentheses so that it stays one operand. */
void br_buf_sql_literal(br_buf *b, const char *s, size_t n) {
  bool has_nul = n > 0 && memchr(s, 0, n) != NULL;
  br_buf_str(b, has_nul ? "('" : "'");
  for (size_t i = 0; i < n; i++) {
    if (s[i] == 0) {
      br_buf_str(b, "' || chr(0) || '");
    } else {
      if (s[i] == '\'') br_buf_char(b, '\'');
      br_buf_char(b, s[i]);
    }
  }
  br_buf_str(b, has_nul ? "')" : "'");
}
