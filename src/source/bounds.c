/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions over the least and the greatest value of a column (br_scan.prune in plan/), and the texts that DuckDB prints of statistics
 * as values. A text that is not plainly such a value may be anything: then the condition is met.
 * Order: br_prune_parse, br_bounds_possible. Threads: any. Bounds: linear in the condition.
 */
#include "source/internal.h"
#include <jansson.h>

enum { DIGITS_MOST = 38, DATE_LENGTH = 10, TIME_LENGTH = 8 };
#define MICROS_PER_DAY INT64_C(86400000000)

typedef struct br_value {
  __int128 number;
  const char *text;
} br_value;

struct br_test {
  char op; /* < > =, l and g for <= and >=, & and | */
  br_value value;
  br_test *of; /* of & and | */
  size_t n;
};

/* ---- values */

/* Digits, with at most `scale` behind a point, as that many. */
static bool parse_number(const char *s, int scale, __int128 *out) {
  bool negative = *s == '-', point = false;
  int digits = 0, behind = 0; /* the point */
  __int128 n = 0;
  for (s += negative; *s; s++) {
    if (*s == '.' && !point && digits > 0) {
      point = true;
      continue;
    }
    if (*s < '0' || *s > '9' || ++digits > DIGITS_MOST || (point && ++behind > scale)) return false;
    n = n * 10 + (*s - '0');
  }
  if (digits == 0) return false;
  for (; behind < scale; behind++) {
    if (++digits > DIGITS_MOST) return false;
    n *= 10;
  }
  *out = negative ? -n : n;
  return true;
}

/* n digits; -1: there are none. */
static int number(const char *s, size_t n) {
  int value = 0;
  for (size_t i = 0; i < n; i++) {
    if (s[i] < '0' || s[i] > '9') return -1;
    value = value * 10 + (s[i] - '0');
  }
  return value;
}

/* "2020-02-29" at the beginning of s. */
static bool parse_date(const char *s, int64_t *days) {
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  if (strnlen(s, DATE_LENGTH) < DATE_LENGTH || s[4] != '-' || s[7] != '-') return false;
  int y = number(s, 4), m = number(s + 5, 2), d = number(s + 8, 2);
  if (y < 1 || m < 1 || m > 12 || d < 1 || d > 31) return false;
  bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
  int64_t years = y - 1, all = years * 365 + years / 4 - years / 100 + years / 400;
  *days = all + before[m - 1] + (leap && m > 2) + d - 1 - 719162; /* of 1970 */
  return true;
}

/* "2020-02-29 01:02:03.456": no more than microseconds, no zone. */
static bool parse_timestamp(const char *s, int64_t *micros) {
  int64_t days, fraction = 0;
  if (!parse_date(s, &days) || s[DATE_LENGTH] != ' ') return false;
  s += DATE_LENGTH + 1;
  if (strnlen(s, TIME_LENGTH) < TIME_LENGTH || s[2] != ':' || s[5] != ':') return false;
  int h = number(s, 2), m = number(s + 3, 2), sec = number(s + 6, 2);
  if (h < 0 || m < 0 || sec < 0) return false;
  s += TIME_LENGTH;
  if (*s == '.') {
    size_t n = strlen(++s);
    if (n == 0 || n > 6) return false;
    fraction = number(s, n);
    if (fraction < 0) return false;
    for (; n < 6; n++) fraction *= 10;
  } else if (*s)
    return false;
  *micros = days * MICROS_PER_DAY + ((h * 60 + m) * 60 + sec) * INT64_C(1000000) + fraction;
  return true;
}

/* As a file stores a column of the kind: in another way its bounds would mean something else. */
static bool stored_so(const br_pruned_column *c, const char *type) {
  bool small = strcmp(type, "INT32") == 0, large = strcmp(type, "INT64") == 0;
  switch (c->kind) {
    case 'd':
    case 'i': return small || large;
    case 'n': return small || large || strcmp(type, "FIXED_LEN_BYTE_ARRAY") == 0;
    case 't': return large;
    default: return strcmp(type, BR_STORED_TEXT) == 0;
  }
}

static bool parse_bound(const br_pruned_column *c, const char *text, br_value *out) {
  int64_t n = 0;
  bool good = true;
  out->text = text;
  switch (c->kind) {
    case 'd':
      good = parse_date(text, &n) && text[DATE_LENGTH] == 0;
      out->number = n;
      return good;
    case 't':
      good = parse_timestamp(text, &n);
      out->number = n;
      return good;
    case 's': return strstr(text, "\\x") == NULL;
    default: return parse_number(text, c->kind == 'n' ? c->scale : 0, &out->number);
  }
}

/* ---- conditions */

static int compare(const br_pruned_column *c, const br_value *a, const br_value *b) {
  if (c->kind == 's') return strcmp(a->text, b->text);
  return a->number < b->number ? -1 : a->number > b->number;
}

static bool may_pass(const br_pruned_column *c, const br_test *t, const br_value *least, const br_value *greatest) {
  switch (t->op) {
    case '<': return compare(c, least, &t->value) < 0;
    case 'l': return compare(c, least, &t->value) <= 0;
    case '>': return compare(c, greatest, &t->value) > 0;
    case 'g': return compare(c, greatest, &t->value) >= 0;
    case '=': return compare(c, least, &t->value) <= 0 && compare(c, greatest, &t->value) >= 0;
    default: break;
  }
  for (size_t i = 0; i < t->n; i++)
    if (may_pass(c, &t->of[i], least, greatest) != (t->op == '&')) return t->op == '|';
  return t->op == '&';
}

bool br_bounds_possible(const br_pruned_column *c, const char *stored, const group_bounds *g) {
  br_value least, greatest;
  if (g->all_null) return false; /* NULL passes none of them */
  if (!g->least || !g->greatest || !stored || !stored_so(c, stored)) return true;
  if (!parse_bound(c, g->least, &least) || !parse_bound(c, g->greatest, &greatest)) return true;
  return may_pass(c, c->test, &least, &greatest);
}

/* ---- reading them */

static bool parse_test(br_arena *mem, const br_pruned_column *c, const json_t *j, br_test *out) {
  static const struct {
    const char *name;
    char op;
  } ops[] = {{"<", '<'}, {"<=", 'l'}, {">", '>'}, {">=", 'g'}, {"=", '='}, {"and", '&'}, {"or", '|'}};
  const char *name = json_string_value(json_array_get(j, 0));
  for (size_t i = 0; name && i < sizeof ops / sizeof *ops; i++)
    if (strcmp(name, ops[i].name) == 0) out->op = ops[i].op;
  if (out->op != '&' && out->op != '|') {
    const char *text = json_string_value(json_array_get(j, 1));
    if (!out->op || !text) return false;
    out->value.text = br_arena_strdup(mem, text);
    return c->kind == 's' || parse_number(text, 0, &out->value.number);
  }
  out->n = json_array_size(j) - 1;
  out->of = br_arena_alloc(mem, (out->n + 1) * sizeof *out->of);
  for (size_t i = 0; i < out->n; i++)
    if (!parse_test(mem, c, json_array_get(j, i + 1), &out->of[i])) return false;
  return true;
}

static bool parse_column(br_arena *mem, const json_t *j, br_pruned_column *c) {
  static const char *const kinds[] = {"integer", "date", "timestamp", "decimal", "text"};
  static const char letters[] = "idtns";
  const char *name = json_string_value(json_object_get(j, "column")),
             *kind = json_string_value(json_object_get(j, "kind"));
  if (!name || !kind) return false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kind, kinds[i]) == 0) c->kind = letters[i];
  c->name = br_arena_strdup(mem, name);
  c->scale = (int)json_integer_value(json_object_get(j, "scale"));
  c->test = br_arena_alloc(mem, sizeof *c->test);
  return c->kind != 0 && parse_test(mem, c, json_object_get(j, "test"), c->test);
}

br_pruned_column *br_prune_parse(br_arena *mem, const char *condition, size_t *n) {
  json_t *list = json_loads(condition, 0, NULL);
  br_pruned_column *all = br_arena_alloc(mem, (json_array_size(list) + 1) * sizeof *all);
  *n = 0;
  for (size_t i = 0; i < json_array_size(list); i++) {
    br_pruned_column c = {0};
    if (parse_column(mem, json_array_get(list, i), &c)) all[(*n)++] = c;
  }
  json_decref(list);
  return all;
}
