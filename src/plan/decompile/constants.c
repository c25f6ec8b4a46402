/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of the plan → typed literals. Every literal carries its type, or binding the text again could choose another one.
 * 128-bit numbers arrive as {upper, lower} (lower unsigned), decimals unscaled, UUIDs with the top bit flipped, TIMETZ as
 * micros << 24 | (57599 - offset in seconds), BLOBs as text with \xAB escapes.
 */
#include "plan/decompile/emit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 u128;

#define LIST_AS_TEXT 32 /* elements */
#define MICROS_PER_DAY INT64_C(86400000000)
#define OFFSET_BIAS 57599 /* TIMETZ keeps the offset as 15:59:59 minus it */

static bool one_of(const char *id, const char *const *ids, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(id, ids[i])) return true;
  return false;
}

static u128 wide(const json_t *j) { /* two's complement */
  if (json_is_object(j)) return ((u128)br_json_u64(br_j_get(j, "upper")) << 64) | br_json_u64(br_j_get(j, "lower"));
  if (json_is_integer(j)) return (u128)(__int128)json_integer_value(j);
  return br_json_u64(j);
}

static const char *digits(br_emit *e, u128 n) {
  char b[48], *p = b + sizeof b;
  *--p = 0;
  do {
    *--p = (char)('0' + (int)(n % 10));
    n /= 10;
  } while (n);
  return br_arena_strdup(e->arena, p);
}

const char *br_e_whole(br_emit *e, const json_t *x, bool is_unsigned) {
  u128 n = wide(x);
  bool negative = !is_unsigned && (n >> 127);
  return negative ? br_e_fmt(e, "-%s", digits(e, -n)) : digits(e, n);
}

static const char *integer(br_emit *e, const json_t *x, const char *id) {
  u128 n = wide(x);
  bool negative = id[0] != 'U' && (n >> 127);
  if (negative) return br_e_fmt(e, "'-%s'::%s", digits(e, -n), id);
  if (n <= INT64_MAX) return br_e_fmt(e, "%s::%s", digits(e, n), id);
  return br_e_fmt(e, "'%s'::%s", digits(e, n), id);
}

static const char *decimal(br_emit *e, const json_t *x, const json_t *type) {
  u128 n = wide(x);
  bool negative = (n >> 127) != 0;
  const char *type_text = br_e_type(e, type);
  size_t scale = (size_t)br_json_u64(br_j_get(br_j_get(type, "type_info"), "scale"));
  if (e->status != BR_OK) return "";
  const char *d = digits(e, negative ? -n : n);
  while (strlen(d) <= scale) d = br_e_fmt(e, "0%s", d);
  size_t whole = strlen(d) - scale;
  return br_e_fmt(e, "'%s%.*s%s%s'::%s", negative ? "-" : "", (int)whole, d, scale ? "." : "", d + whole, type_text);
}

/* The shortest of three spellings that reads back as the same double. */
static const char *real(br_emit *e, const json_t *x, const char *id) {
  double d = br_json_double(x);
  char text[40];
  if (isnan(d)) return br_e_fmt(e, "'nan'::%s", id);
  if (isinf(d)) return br_e_fmt(e, "'%sinf'::%s", d < 0 ? "-" : "", id);
  for (int precision = 15; precision <= 17; precision++) {
    snprintf(text, sizeof text, "%.*g", precision, d);
    if (strtod(text, NULL) == d) break;
  }
  return br_e_fmt(e, "'%s'::%s", text, id);
}

/* Days since 1970-01-01 → "2020-02-29"; false outside of the years 1 to 9999, where texts have other forms. */
static bool date_text(int64_t days, char out[16]) {
  int64_t z = days + 719468;
  if (days < -719162 || days > 2932896) return false;
  int64_t era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
  int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  int64_t mp = (5 * doy + 2) / 153, d = doy - (153 * mp + 2) / 5 + 1, m = mp < 10 ? mp + 3 : mp - 9;
  snprintf(out, 16, "%04d-%02d-%02d", (int)((yoe + era * 400 + (m <= 2)) % 10000), (int)m, (int)d);
  return true;
}

static void time_text(int64_t us, char out[24]) {
  snprintf(out, 24, "%02d:%02d:%02d.%06d", (int)(us / 3600000000 % 100), (int)(us / 60000000 % 60),
           (int)(us / 1000000 % 60), (int)(us % 1000000));
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static const char *date(br_emit *e, const json_t *x) {
  int64_t days = (int64_t)br_json_u64(x);
  char text[16];
  if (days == INT32_MAX || days == -INT32_MAX) return br_e_fmt(e, "DATE '%sinfinity'", days < 0 ? "-" : "");
  if (date_text(days, text)) return br_e_fmt(e, "DATE '%s'", text);
  return br_e_fmt(e, "make_date(%d::INTEGER)", (int)days);
}

static const char *timestamp(br_emit *e, const json_t *x, const char *id) {
  int64_t v = (int64_t)br_json_u64(x), us = v, nanos = 0;
  bool zoned = strstr(id, "ZONE") != NULL;
  char day[16], time[24], fraction[8] = "";
  if (v == INT64_MAX || v == -INT64_MAX) return br_e_fmt(e, "'%sinfinity'::%s", v < 0 ? "-" : "", id);
  if (!strcmp(id, "TIMESTAMP_NS")) {
    us = floor_div(v, 1000);
    nanos = v - us * 1000;
    snprintf(fraction, sizeof fraction, "%03d", (int)nanos);
  } else if (!strcmp(id, "TIMESTAMP_S") || !strcmp(id, "TIMESTAMP_MS")) {
    if (__builtin_mul_overflow(v, id[10] == 'S' ? 1000000 : 1000, &us)) {
      br_e_unsupported(e, "a %s outside of TIMESTAMP's range", id);
      return "";
    }
  }
  int64_t days = floor_div(us, MICROS_PER_DAY);
  if (!date_text(days, day))
    return zoned ? br_e_fmt(e, "make_timestamptz(%lld::BIGINT)", (long long)us)
                 : br_e_fmt(e, "make_timestamp(%lld::BIGINT)::%s", (long long)us, id);
  time_text(us - days * MICROS_PER_DAY, time);
  return br_e_fmt(e, "'%s %s%s%s'::%s", day, time, fraction, zoned ? "+00" : "", id);
}

static const char *time_tz(br_emit *e, const json_t *x) {
  uint64_t v = br_json_u64(x);
  int offset = OFFSET_BIAS - (int)(v & 0xffffff), seconds = abs(offset);
  char time[24];
  time_text((int64_t)(v >> 24), time);
  return br_e_fmt(e, "'%s%c%02d:%02d:%02d'::TIMETZ", time, offset < 0 ? '-' : '+', seconds / 3600, seconds / 60 % 60,
                  seconds % 60);
}

static const char *interval(br_emit *e, const json_t *x) {
  return br_e_fmt(e, "INTERVAL '%lld months %lld days %lld microseconds'",
                  (long long)br_json_u64(br_j_get(x, "months")), (long long)br_json_u64(br_j_get(x, "days")),
                  (long long)br_json_u64(br_j_get(x, "micros")));
}

static const char *uuid(br_emit *e, const json_t *x) {
  u128 n = wide(x) ^ ((u128)1 << 127);
  uint64_t hi = (uint64_t)(n >> 64), lo = (uint64_t)n;
  return br_e_fmt(e, "'%08llx-%04llx-%04llx-%04llx-%012llx'::UUID", (unsigned long long)(hi >> 32),
                  (unsigned long long)(hi >> 16 & 0xffff), (unsigned long long)(hi & 0xffff),
                  (unsigned long long)(lo >> 48), (unsigned long long)(lo & 0xffffffffffffULL));
}

/* The first byte counts the padding bits in front. */
static const char *bits(br_emit *e, const json_t *x) {
  const char *s = json_string_value(x);
  size_t n = json_string_length(x);
  br_buf b = {0};
  if (n < 2 || (unsigned char)s[0] > 7) {
    br_e_unsupported(e, "a BIT constant that the plan doesn't carry whole");
    return "";
  }
  for (size_t i = 8 + (size_t)s[0]; i < n * 8; i++)
    br_buf_char(&b, (unsigned char)s[i / 8] >> (7 - i % 8) & 1 ? '1' : '0');
  const char *text = br_e_fmt(e, "'%s'::BIT", br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

static const char *enumerated(br_emit *e, const json_t *x, const json_t *type) {
  const json_t *v = json_array_get(br_j_get(br_j_get(type, "type_info"), "values"), (size_t)br_json_u64(x));
  return br_e_fmt(e, "%s::%s", br_e_literal_json(e, v), br_e_type(e, type));
}

static const json_t *child(const json_t *x, size_t i) { return json_array_get(br_j_get(x, "children"), i); }

/* Many whole numbers (range(1000000) is a constant): one string to cast costs a thousandth of as many typed literals. False: it
 * holds something else. */
static bool number_list(br_emit *e, const json_t *x, const json_t *type, const char **out) {
  static const char *const ids[] = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT"};
  size_t n = br_j_count(x, "children");
  bool good = n >= LIST_AS_TEXT && one_of(br_j_str(br_e_child_type(type), "id"), ids, sizeof ids / sizeof *ids);
  br_buf b = {0};
  for (size_t i = 0; i < n && good; i++) {
    const json_t *number = br_j_get(child(x, i), "value");
    if (i > 0) br_buf_str(&b, ", ");
    if (br_j_true(child(x, i), "is_null"))
      br_buf_str(&b, "NULL");
    else if ((good = json_is_integer(number)))
      br_buf_printf(&b, "%lld", (long long)json_integer_value(number));
  }
  if (good) *out = br_e_cast(e, br_e_fmt(e, "'[%s]'", br_buf_cstr(&b)), type);
  br_buf_free(&b);
  return good;
}

static const char *list(br_emit *e, const json_t *x, const json_t *type) {
  const char *numbers;
  if (number_list(e, x, type, &numbers)) return numbers;
  br_texts items = {0};
  for (size_t i = 0; i < br_j_count(x, "children"); i++)
    br_e_add(e, &items, br_e_constant(e, child(x, i), br_e_child_type(type)));
  const char *text = br_e_fmt(e, "[%s]", br_e_join(e, &items, ", "));
  return br_e_unnamed(type) ? text : br_e_cast(e, text, type);
}

static const char *record(br_emit *e, const json_t *x, const json_t *type) {
  br_texts items = {0};
  bool unnamed = br_e_unnamed(type);
  size_t n = json_array_size(br_e_fields(type));
  if (br_j_count(x, "children") != n) br_e_corrupt(e, "a STRUCT constant has not the fields of its type");
  for (size_t i = 0; i < n; i++) {
    const char *v = br_e_constant(e, child(x, i), br_e_field_type(type, i));
    br_e_add(e, &items, unnamed ? v : br_e_fmt(e, "%s: %s", br_e_literal_json(e, br_e_field_name(type, i)), v));
  }
  const char *all = br_e_join(e, &items, ", ");
  return unnamed ? br_e_fmt(e, "row(%s)", all) : br_e_cast(e, br_e_fmt(e, "{%s}", all), type);
}

static const char *map(br_emit *e, const json_t *x, const json_t *type) {
  br_texts keys = {0}, values = {0};
  const json_t *entry = br_e_child_type(type);
  for (size_t i = 0; i < br_j_count(x, "children"); i++) {
    const json_t *kv = br_j_get(child(x, i), "value");
    br_e_add(e, &keys, br_e_constant(e, child(kv, 0), br_e_field_type(entry, 0)));
    br_e_add(e, &values, br_e_constant(e, child(kv, 1), br_e_field_type(entry, 1)));
  }
  return br_e_cast(e, br_e_fmt(e, "MAP([%s], [%s])", br_e_join(e, &keys, ", "), br_e_join(e, &values, ", ")), type);
}

static const char *tagged(br_emit *e, const json_t *x, const json_t *type) {
  size_t tag = (size_t)br_json_u64(br_j_get(child(x, 0), "value"));
  if (tag > 255) tag = 255;
  const char *name = json_string_value(br_e_field_name(type, tag + 1));
  if (!name) {
    br_e_corrupt(e, "a UNION constant's tag is not in its type");
    return "";
  }
  const char *v = br_e_constant(e, child(x, tag + 1), br_e_field_type(type, tag + 1));
  return br_e_cast(e, br_e_fmt(e, "union_value(%s := %s)", br_e_ident(e, name), v), type);
}

static const char *time_constant(br_emit *e, const json_t *x, const char *id) {
  int64_t v = (int64_t)br_json_u64(x);
  char text[24];
  if (v < 0) br_e_corrupt(e, "a TIME before midnight");
  if (!strcmp(id, "TIME")) {
    time_text(v, text);
    return br_e_fmt(e, "TIME '%s'", text);
  }
  time_text(v / 1000, text);
  return br_e_fmt(e, "'%s%03d'::TIME_NS", text, (int)(v % 1000));
}

static const char *null_constant(br_emit *e, const json_t *type) {
  if (br_e_unnamed(type)) br_e_unsupported(e, "NULL of a struct whose fields have no names");
  return br_e_cast(e, "NULL", type);
}

const char *br_e_constant(br_emit *e, const json_t *value, const json_t *type_if_absent) {
  static const char *const integers[] = {"TINYINT",   "SMALLINT", "INTEGER", "BIGINT",  "UTINYINT",
                                         "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT"};
  static const char *const stamps[] = {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS",
                                       "TIMESTAMP_NS"};
  const json_t *type = br_j_some(value, "type") ? br_j_some(value, "type") : type_if_absent;
  const char *id = br_j_str(type, "id");
  const json_t *x = br_j_get(value, "value");
  if (e->status != BR_OK) return "";
  if (br_j_true(value, "is_null")) return null_constant(e, type);
  if (!x) {
    br_e_corrupt(e, "a constant of type %.60s has no value", id);
    return "";
  }
  if (!strcmp(id, "BOOLEAN")) return json_is_true(x) ? "true" : "false";
  if (one_of(id, integers, sizeof integers / sizeof *integers)) return integer(e, x, id);
  if (one_of(id, stamps, sizeof stamps / sizeof *stamps)) return timestamp(e, x, id);
  if (!strcmp(id, "DECIMAL")) return decimal(e, x, type);
  if (!strcmp(id, "FLOAT") || !strcmp(id, "DOUBLE")) return real(e, x, id);
  if (!strcmp(id, "VARCHAR")) return br_e_fmt(e, "%s::%s", br_e_literal_json(e, x), br_e_type(e, type));
  if (!strcmp(id, "DATE")) return date(e, x);
  if (!strcmp(id, "TIME") || !strcmp(id, "TIME_NS")) return time_constant(e, x, id);
  if (!strcmp(id, "TIME WITH TIME ZONE")) return time_tz(e, x);
  if (!strcmp(id, "INTERVAL")) return interval(e, x);
  if (!strcmp(id, "BLOB")) return br_e_fmt(e, "%s::%s", br_e_literal_json(e, x), br_e_type(e, type));
  if (!strcmp(id, "UUID")) return uuid(e, x);
  if (!strcmp(id, "BIT")) return bits(e, x);
  if (!strcmp(id, "ENUM")) return enumerated(e, x, type);
  if (!strcmp(id, "LIST") || !strcmp(id, "ARRAY")) return list(e, x, type);
  if (!strcmp(id, "STRUCT")) return record(e, x, type);
  if (!strcmp(id, "MAP")) return map(e, x, type);
  if (!strcmp(id, "UNION")) return tagged(e, x, type);
  br_e_unsupported(e, "a constant of type %.60s", id);
  return "";
}
