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

char *br_token_statement(const char *sql) {
  const char *p = sql, *t, *end = NULL;
  size_t n;
  bool over = false;
  while (br_token_next(&p, &t, &n)) {
    if (*t == ';') {
      over = end != NULL;
      continue;
    }
    if (over) return NULL;
    end = t + n;
  }
  return end != NULL ? br_strndup(sql, (size_t)(end - sql)) : br_strdup(sql);
}

bool br_token_is(const char *start, size_t n, const char *word) {
  return n == strlen(word) && strncasecmp(start, word, n) == 0;
}

bool br_token_take(const char **p, const char *word) {
  const char *at = *p, *t;
  size_t n;
  if (!br_token_next(&at, &t, &n) || !br_token_is(t, n, word)) return false;
  *p = at;
  return true;
}

bool br_token_name(const char **p, char **out) {
  const char *t, *at = *p;
  size_t n;
  if (!br_token_next(&at, &t, &n) || *t == '(' || *t == '\'' || *t == '.') return false;
  *p = at;
  *out = br_token_unquote(t, n);
  return true;
}

int br_token_depth(const char *start, size_t n) {
  if (n != 1) return 0;
  if (*start == '(' || *start == '[' || *start == '{') return 1;
  return *start == ')' || *start == ']' || *start == '}' ? -1 : 0;
}

const char *br_token_close(const char *p, const char **inside_end) {
  const char *t;
  size_t n;
  for (int depth = 1; br_token_next(&p, &t, &n);) {
    depth += br_token_depth(t, n);
    if (depth > 0) continue;
    *inside_end = t;
    return p;
  }
  return NULL;
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

char *br_token_small(char *word) {
  for (char *c = word; *c; c++)
    if (*c >= 'A' && *c <= 'Z') *c += 'a' - 'A';
  return word;
}
