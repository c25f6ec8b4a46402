/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an expression that has a given type, for statements that are only prepared: CAST(NULL AS type), except around structs
 * without field names, which have no type text that the parser takes: row(…) makes them. Pure; recursion is bounded by DEPTH_MAX.
 */
#include "engine/internal.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

/* The end of what begins at s: the first top-level `stop` or the end. */
static const char *until(const char *s, const char *end, const char *stops) {
  int depth = 0;
  for (; s < end; s++) {
    if (*s == '"' || *s == '\'') {
      const char *close = memchr(s + 1, *s, (size_t)(end - s - 1));
      if (!close) return end;
      s = close;
    } else if (!depth && strchr(stops, *s)) {
      return s;
    } else if (*s == '(' || *s == '[') {
      depth++;
    } else if (*s == ')' || *s == ']') {
      depth--;
    }
  }
  return end;
}

static bool begins(const char *s, const char *end, const char *word) {
  return (size_t)(end - s) >= strlen(word) && !strncmp(s, word, strlen(word));
}

/* Where a field's type begins; s itself: the field has no name. */
static const char *field_type(const char *s, const char *end) {
  if (begins(s, end, "TIMESTAMP WITH TIME ZONE") || begins(s, end, "TIME WITH TIME ZONE")) return s;
  const char *space = until(s, end, " ");
  return space < end ? space + 1 : s;
}

static const char *next_field(const char *s, const char *end, const char **field_end) {
  *field_end = until(s, end, ",");
  s = *field_end < end ? *field_end + 1 : end;
  while (s < end && *s == ' ') s++;
  return s;
}

/* Whether a struct without names is in it. */
static bool unnamed(const char *s, const char *end, int depth) {
  for (const char *at = s; depth < DEPTH_MAX && at < end; at++) {
    at = until(at, end, "S");
    if (at == end || !begins(at, end, "STRUCT(")) continue;
    const char *inside = at + 7, *close = until(inside, end, ")"), *field_end;
    for (const char *f = inside; f < close;) {
      const char *next = next_field(f, close, &field_end), *type = field_type(f, field_end);
      if (type == f || unnamed(type, field_end, depth + 1)) return true;
      f = next;
    }
    return false;
  }
  return depth < DEPTH_MAX && begins(s, end, "MAP(") && unnamed(s + 4, end - 1, depth + 1);
}

static void print(br_buf *b, const char *s, const char *end, int depth) {
  const char *field_end;
  if (depth >= DEPTH_MAX || !unnamed(s, end, depth)) {
    br_buf_printf(b, "CAST(NULL AS %.*s)", (int)(end - s), s);
  } else if (end - s > 2 && end[-1] == ']' && end[-2] == '[') {
    br_buf_str(b, "[");
    print(b, s, end - 2, depth + 1);
    br_buf_str(b, "]");
  } else if (begins(s, end, "MAP(")) {
    const char *value = next_field(s + 4, end - 1, &field_end);
    br_buf_str(b, "map([");
    print(b, s + 4, field_end, depth + 1);
    br_buf_str(b, "], [");
    print(b, value, end - 1, depth + 1);
    br_buf_str(b, "])");
  } else if (begins(s, end, "STRUCT(")) {
    const char *first = s + 7, *close = end - 1;
    bool names = field_type(first, until(first, close, ",")) != first;
    br_buf_str(b, names ? "{" : "row(");
    for (const char *f = first; f < close;) {
      const char *next = next_field(f, close, &field_end), *type = field_type(f, field_end);
      if (f != first) br_buf_str(b, ", ");
      if (names) br_buf_printf(b, "%.*s: ", (int)(type - 1 - f), f);
      print(b, type, field_end, depth + 1);
      f = next;
    }
    br_buf_str(b, names ? "}" : ")");
  } else { /* an array of such structs: DuckDB says what is wrong with it */
    br_buf_printf(b, "CAST(NULL AS %.*s)", (int)(end - s), s);
  }
}

void br_type_null(br_buf *out, const char *type) { print(out, type, type + strlen(type), 0); }
