/* SPDX-License-Identifier: Apache-2.0
 * See tokens.h. Order: any. Threads: any. Bounds: none of its own. */
#include "coordinator/tokens.h"

#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/engine.h"

bool br_token_next(const char **p, const char **start, size_t *n) {
  while (**p != 0 && br_sql_is_blank(*p)) *p = br_sql_skip(*p);
  if (**p == 0) return false;
  *start = *p;
  *p = br_sql_skip(*p);
  *n = (size_t)(*p - *start);
  return true;
}

bool br_token_is(const char *start, size_t n, const char *word) {
  return n == strlen(word) && strncasecmp(start, word, n) == 0;
}

char *br_token_unquote(const char *start, size_t n) {
  if (n < 2 || (*start != '\'' && *start != '"') || start[n - 1] != *start) return br_strndup(start, n);
  br_buf b = {0};
  for (size_t i = 1; i + 1 < n; i++) {
    br_buf_char(&b, start[i]);
    if (start[i] == *start && start[i + 1] == *start) i++;
  }
  return br_buf_take(&b);
}
