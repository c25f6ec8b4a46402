/* SPDX-License-Identifier: Apache-2.0
 *
 * What the filters that a scan was given say of the least and the greatest value of a column: a condition, as JSON, by which source/ finds
 * row groups that hold no row that passes (br_scan.prune).
 *
 * Only what is certain counts. Kinds of values whose order in a file is another one than in the plan (floats with NaN, times with zones,
 * blobs) are not in it.
 *
 * Threads: none. Bounds: max_values of an IN list.
 */
#include "plan/decompile/emit.h"

#include <stdlib.h>
#include <string.h>

enum { max_values = 200 };

typedef struct column {
  const json_t *type;
  const char *kind; /* of its values: br_scan.prune */
} column;

static json_t *possible(br_emit *e, const json_t *f, const column *c);

static uint64_t scale_of(const json_t *type) { return br_json_u64(br_j_get(br_j_get(type, "type_info"), "scale")); }

/* NULL: not of the column's own type. */
static json_t *constant(br_emit *e, const json_t *value, const column *c) {
  const json_t *type = br_j_get(value, "type"), *x = br_j_get(value, "value");
  if (!br_e_is(type, br_j_str(c->type, "id")) || br_j_true(value, "is_null")) return NULL;
  if (strcmp(c->kind, "text") != 0)
    return scale_of(type) == scale_of(c->type) ? json_string(br_e_whole(e, x, br_e_is(type, "UBIGINT"))) : NULL;
  const char *text = json_string_value(x);
  return text && strlen(text) == json_string_length(x) ? json_string(text) : NULL;
}

static json_t *comparison(br_emit *e, const char *type, const json_t *value, const column *c) {
  static const char *const kinds[][2] = {{"COMPARE_EQUAL", "="},
                                         {"COMPARE_LESSTHAN", "<"},
                                         {"COMPARE_LESSTHANOREQUALTO", "<="},
                                         {"COMPARE_GREATERTHAN", ">"},
                                         {"COMPARE_GREATERTHANOREQUALTO", ">="}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(type, kinds[i][0]) != 0) continue;
    json_t *text = constant(e, value, c);
    return text ? json_pack("[so]", kinds[i][1], text) : NULL;
  }
  return NULL;
}

static json_t *group(br_emit *e, const json_t *f, const column *c, bool all) {
  json_t *list = json_pack("[s]", all ? "and" : "or");
  bool told = true;
  for (size_t i = 0; i < br_j_count(f, "child_filters") && (told || all); i++) {
    json_t *one = possible(e, br_j_at(f, "child_filters", i), c);
    told = one != NULL;
    if (told) json_array_append_new(list, one);
  }
  if (json_array_size(list) > 1 && (told || all)) return list;
  json_decref(list);
  return NULL;
}

static json_t *one_of(br_emit *e, const json_t *values, const column *c) {
  if (json_array_size(values) == 0 || json_array_size(values) > max_values) return NULL;
  json_t *list = json_pack("[s]", "or");
  for (size_t i = 0; i < json_array_size(values); i++) {
    json_t *one = comparison(e, "COMPARE_EQUAL", json_array_get(values, i), c);
    if (one) {
      json_array_append_new(list, one);
      continue;
    }
    json_decref(list);
    return NULL;
  }
  return list;
}

/* Can a value between the bounds pass? NULL: it can't be told. What an optional filter drops, another filter would. */
static json_t *possible(br_emit *e, const json_t *f, const column *c) {
  const char *k = br_j_str(f, "filter_type");
  if (!strcmp(k, "CONSTANT_COMPARISON"))
    return comparison(e, br_j_str(f, "comparison_type"), br_j_get(f, "constant"), c);
  if (!strcmp(k, "CONJUNCTION_AND")) return group(e, f, c, true);
  if (!strcmp(k, "CONJUNCTION_OR")) return group(e, f, c, false);
  if (!strcmp(k, "IN_FILTER")) return one_of(e, br_j_get(f, "values"), c);
  if (!strcmp(k, "OPTIONAL_FILTER") && br_j_some(f, "child_filter")) return possible(e, br_j_get(f, "child_filter"), c);
  return NULL;
}

static const char *kind_of(const json_t *type) {
  static const char *const whole[] = {"TINYINT",  "SMALLINT",  "INTEGER",  "BIGINT",
                                      "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"};
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
    if (br_e_is(type, whole[i])) return "integer";
  if (br_e_is(type, "DATE")) return "date";
  if (br_e_is(type, "DECIMAL")) return "decimal";
  if (br_e_is(type, "TIMESTAMP")) return "timestamp";
  if (br_e_is(type, "VARCHAR") && !br_j_is(br_j_some(type, "type_info"), "alias", "JSON")) return "text";
  return NULL;
}

static void add_column(br_emit *e, const char *name, const json_t *type, const json_t *filter, json_t *out) {
  column c = {.type = type, .kind = kind_of(type)};
  if (!c.kind || strstr(name, ", ")) return; /* the name of a field in a struct is written like that */
  json_t *test = possible(e, filter, &c);
  if (!test) return;
  json_array_append_new(out, json_pack("{s:s, s:s, s:I, s:o}", "column", name, "kind", c.kind, "scale",
                                       (json_int_t)scale_of(type), "test", test));
}

const char *br_e_prune(br_emit *e, const br_node *get) {
  const json_t *filters = br_j_get(br_j_get(get->json, "table_filters"), "filters");
  const json_t *options = br_j_get(br_j_get(get->json, "function_data"), "parquet_options");
  if (br_j_true(options, "binary_as_string")) return NULL;
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(filters); i++) {
    const json_t *f = json_array_get(filters, i);
    uint64_t key = br_json_u64(br_j_get(f, "key"));
    const char *name = json_string_value(br_j_at(get->json, "names", (size_t)key));
    if (!name || br_e_in_directories(get, name)) continue; /* the value is that of the directory's name */
    add_column(e, name, br_j_at(get->json, "returned_types", (size_t)key), br_j_get(f, "value"), list);
  }
  char *text = json_array_size(list) && e->status == BR_OK ? json_dumps(list, JSON_COMPACT) : NULL;
  const char *kept = text ? br_arena_strdup(e->arena, text) : NULL;
  free(text);
  json_decref(list);
  return kept;
}
