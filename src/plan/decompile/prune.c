/* SPDX-License-Identifier: Apache-2.0
 *
 * Which row groups of Parquet files hold no row that a scan's pushed filters let pass: a condition over a row m of
 * parquet_metadata() (one column of one row group, with the least and the greatest value as text). True: the group can be left out.
 *
 * Only what is certain counts. Kinds of values whose order in the text or in the file is another one than in the plan (floats with
 * NaN, times with zones, blobs) are never left out, nor are columns that a file stores as something else than the plan has.
 *
 * Threads: none. Bounds: max_values of an IN list.
 */
#include "plan/decompile/emit.h"

#include <string.h>
#include <strings.h>

enum { max_values = 200 };

typedef struct bounds {
  const char *low, *high; /* of the type of the filter's constant */
} bounds;

static const char *possible(br_emit *e, const json_t *f, const bounds *b);

static const char *comparison(br_emit *e, const char *type, const json_t *constant, const bounds *b) {
  static const char *const kinds[][2] = {{"COMPARE_LESSTHAN", "<"},
                                         {"COMPARE_LESSTHANOREQUALTO", "<="},
                                         {"COMPARE_GREATERTHAN", ">"},
                                         {"COMPARE_GREATERTHANOREQUALTO", ">="}};
  const char *c = br_e_constant(e, constant, NULL);
  if (!strcmp(type, "COMPARE_EQUAL")) return br_e_fmt(e, "(%s <= %s AND %s >= %s)", b->low, c, b->high, c);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(type, kinds[i][0])) return br_e_fmt(e, "%s %s %s", i < 2 ? b->low : b->high, kinds[i][1], c);
  return NULL;
}

static const char *group(br_emit *e, const json_t *f, const bounds *b, bool all) {
  br_texts list = {0};
  for (size_t i = 0; i < br_j_count(f, "child_filters"); i++) {
    const char *text = possible(e, br_j_at(f, "child_filters", i), b);
    if (text) br_e_add(e, &list, text);
    if (!text && !all) return NULL;
  }
  return list.n ? br_e_fmt(e, "(%s)", br_e_join(e, &list, all ? " AND " : " OR ")) : NULL;
}

static const char *one_of(br_emit *e, const json_t *values, const bounds *b) {
  br_texts list = {0};
  if (json_array_size(values) > max_values) return NULL;
  for (size_t i = 0; i < json_array_size(values); i++)
    br_e_add(e, &list, comparison(e, "COMPARE_EQUAL", json_array_get(values, i), b));
  return list.n ? br_e_fmt(e, "(%s)", br_e_join(e, &list, " OR ")) : NULL;
}

/* Can a value between the bounds pass? NULL: it can't be told. What an optional filter drops, another filter would. */
static const char *possible(br_emit *e, const json_t *f, const bounds *b) {
  const char *k = br_j_str(f, "filter_type");
  if (!strcmp(k, "CONSTANT_COMPARISON"))
    return comparison(e, br_j_str(f, "comparison_type"), br_j_get(f, "constant"), b);
  if (!strcmp(k, "CONJUNCTION_AND")) return group(e, f, b, true);
  if (!strcmp(k, "CONJUNCTION_OR")) return group(e, f, b, false);
  if (!strcmp(k, "IN_FILTER")) return one_of(e, br_j_get(f, "values"), b);
  if (!strcmp(k, "OPTIONAL_FILTER") && br_j_some(f, "child_filter")) return possible(e, br_j_get(f, "child_filter"), b);
  return NULL;
}

/* How a file must store a column of this type for its bounds to mean the same; NULL: they don't. */
static const char *stored_as(const json_t *type) {
  static const char *const numbers[] = {"TINYINT",   "SMALLINT", "INTEGER", "BIGINT", "UTINYINT",
                                        "USMALLINT", "UINTEGER", "UBIGINT", "DATE"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (br_e_is(type, numbers[i])) return "m.type IN ('INT32', 'INT64')";
  if (br_e_is(type, "DECIMAL")) return "m.type IN ('INT32', 'INT64', 'FIXED_LEN_BYTE_ARRAY')";
  if (br_e_is(type, "TIMESTAMP")) /* nanoseconds would be rounded; times with a zone are other times here */
    return "m.type = 'INT64' AND len(split_part(m.stats_min_value, '.', 2)) <= 6 AND "
           "len(split_part(m.stats_max_value, '.', 2)) <= 6 AND NOT contains(m.stats_min_value || m.stats_max_value, "
           "'+')";
  if (br_e_is(type, "VARCHAR") && !br_j_is(br_j_some(type, "type_info"), "alias", "JSON"))
    return "m.type = 'BYTE_ARRAY' AND NOT contains(m.stats_min_value || m.stats_max_value, '\\x') AND (m.file_name, "
           "m.path_in_schema) IN (SELECT (s.file_name, s.name) FROM "
           "parquet_schema(" BR_PRUNE_FILES ") s WHERE s.converted_type = 'UTF8')";
  return NULL;
}

/* Letters of ASCII are one in both cases, for DuckDB; others are not. */
static const char *named(br_emit *e, const char *name) {
  char *small = br_arena_strdup(e->arena, name);
  for (char *c = small; *c; c++)
    if (*c >= 'A' && *c <= 'Z') *c += 'a' - 'A';
  return br_e_fmt(e,
                  "lower(m.path_in_schema) = lower(%s) AND translate(m.path_in_schema, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', "
                  "'abcdefghijklmnopqrstuvwxyz') = %s",
                  br_e_literal(e, name), br_e_literal(e, small));
}

static const char *of_column(br_emit *e, const char *name, const json_t *type, const json_t *filter) {
  const char *as = stored_as(type);
  if (!as || strstr(name, ", ")) return NULL; /* the name of a field in a struct is written like that */
  bounds b = {.low = br_e_cast(e, "m.stats_min_value", type), .high = br_e_cast(e, "m.stats_max_value", type)};
  b.low = br_e_fmt(e, "TRY_%s", b.low);
  b.high = br_e_fmt(e, "TRY_%s", b.high);
  const char *text = possible(e, filter, &b);
  if (!text) return NULL;
  return br_e_fmt(e,
                  "(%s AND (m.stats_null_count = m.num_values OR CASE WHEN %s THEN "
                  "NOT coalesce(%s, TRUE) ELSE FALSE END))",
                  named(e, name), as, text); /* NULL passes none of them */
}

const char *br_e_prune(br_emit *e, const br_node *get) {
  const json_t *filters = br_j_get(br_j_get(get->json, "table_filters"), "filters");
  const json_t *options = br_j_get(br_j_get(get->json, "function_data"), "parquet_options");
  br_texts list = {0};
  if (br_j_true(options, "binary_as_string")) return NULL;
  for (size_t i = 0; i < json_array_size(filters); i++) {
    const json_t *f = json_array_get(filters, i);
    uint64_t key = br_json_u64(br_j_get(f, "key"));
    const char *name = json_string_value(br_j_at(get->json, "names", (size_t)key)), *text;
    if (!name || br_e_in_directories(get, name)) continue; /* the value is that of the directory's name */
    text = of_column(e, name, br_j_at(get->json, "returned_types", (size_t)key), br_j_get(f, "value"));
    if (text) br_e_add(e, &list, text);
  }
  return list.n && e->status == BR_OK ? br_e_join(e, &list, " OR ") : NULL;
}
