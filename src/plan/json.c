/* SPDX-License-Identifier: Apache-2.0
 *
 * DuckDB's JSON dialect. Its writer prints doubles as bare NaN, Infinity and -Infinity, 64-bit counters beyond int64 and
 * \u0000 inside strings; jansson takes only the last of them. So the text is copied once, with those tokens put in quotes
 * where they stand outside of strings, and then parsed. br_json_u64 and br_json_double read both spellings.
 *
 * Threads: no shared state. Bounds: nesting is bounded by jansson (JSON_PARSER_MAX_DEPTH, 2,048 levels); memory is linear
 * in the text.
 */
#include "plan/node.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Length of a bare word that stands for a double which JSON can't spell, 0 if there is none at p. */
static size_t bare_double(const char *p) {
  static const char *const words[] = {"-Infinity", "Infinity", "NaN", "-NaN", "-inf", "inf", "nan", "-nan"};
  if (*p != '-' && *p != 'I' && *p != 'N' && *p != 'i' && *p != 'n') return 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t n = strlen(words[i]);
    if (!strncmp(p, words[i], n)) return n;
  }
  return 0;
}

/* A whole number that does not fit int64. */
static bool too_wide(const char *p, size_t n) {
  static const char max[] = "9223372036854775807", min[] = "9223372036854775808";
  bool negative = *p == '-';
  const char *digits = p + negative;
  size_t nd = n - negative;
  for (size_t i = 0; i < nd; i++)
    if (digits[i] < '0' || digits[i] > '9') return false;
  return nd > 19 || (nd == 19 && strncmp(digits, negative ? min : max, 19) > 0);
}

static size_t string_length(const char *p) { /* with both quotes; up to the end if it isn't closed */
  size_t n = 1;
  while (p[n] && p[n] != '"') n += p[n] == '\\' && p[n + 1] ? 2 : 1;
  return p[n] ? n + 1 : n;
}

static void add_quoted(br_buf *b, const char *p, size_t n) {
  br_buf_char(b, '"');
  br_buf_add(b, p, n);
  br_buf_char(b, '"');
}

static void normalise(const char *text, br_buf *out) {
  br_buf_reserve(out, strlen(text) + 64);
  for (const char *p = text; *p;) {
    size_t n = 1;
    if (*p == '"') {
      n = string_length(p);
      br_buf_add(out, p, n);
    } else if (*p == ' ' || *p == '\n') { /* EXPLAIN's text is half of it indentation */
      n = strspn(p, " \n");
    } else if ((n = bare_double(p)) > 0) {
      add_quoted(out, p, n);
    } else if (*p == '-' || (*p >= '0' && *p <= '9')) {
      n = 1 + strspn(p + 1, "0123456789.eE+-");
      if (too_wide(p, n))
        add_quoted(out, p, n);
      else
        br_buf_add(out, p, n);
    } else {
      n = 1;
      br_buf_char(out, *p);
    }
    p += n;
  }
}

br_status br_json_parse(const char *text, json_t **out, br_error *err) {
  br_buf b = {0};
  json_error_t je;
  normalise(text, &b);
  *out = json_loadb(b.data ? b.data : "", b.len, JSON_ALLOW_NUL, &je);
  br_buf_free(&b);
  if (*out) return BR_OK;
  if (json_error_code(&je) == json_error_stack_overflow)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "the plan is nested too deeply to be taken apart (more than 2,048 levels)");
  return br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "the JSON text can't be read at line %d, column %d: %s", je.line,
                 je.column, je.text);
}

uint64_t br_json_u64(const json_t *j) {
  if (json_is_integer(j)) return (uint64_t)json_integer_value(j);
  if (json_is_string(j)) {
    const char *s = json_string_value(j);
    return *s == '-' ? (uint64_t)strtoll(s, NULL, 10) : strtoull(s, NULL, 10);
  }
  if (json_is_true(j)) return 1;
  if (json_is_real(j)) {
    double d = json_real_value(j);
    if (d >= 0 && d < 18446744073709551616.0) return (uint64_t)d;
    if (d < 0 && d >= -9223372036854775808.0) return (uint64_t)(int64_t)d;
  }
  return 0;
}

double br_json_double(const json_t *j) {
  if (json_is_number(j)) return json_number_value(j);
  if (json_is_string(j)) return strtod(json_string_value(j), NULL);
  return NAN;
}
