/* SPDX-License-Identifier: Apache-2.0
 *
 * Type objects → SQL type names. Collations are gone already (they became functions), JSON is VARCHAR with an alias, and
 * a struct without field names has no type text at all.
 */
#include "plan/decompile/emit.h"

#include <string.h>

bool br_e_is(const json_t *type, const char *id) { return br_j_is(type, "id", id); }

static const json_t *info(const json_t *type) { return br_j_get(type, "type_info"); }

const json_t *br_e_child_type(const json_t *type) { return br_j_get(info(type), "child_type"); }
const json_t *br_e_fields(const json_t *type) { return br_j_get(info(type), "child_types"); }
const json_t *br_e_field_type(const json_t *type, size_t i) {
  return br_j_get(json_array_get(br_e_fields(type), i), "second");
}
const json_t *br_e_field_name(const json_t *type, size_t i) {
  return br_j_get(json_array_get(br_e_fields(type), i), "first");
}

static bool no_names(const json_t *type) {
  for (size_t i = 0; i < json_array_size(br_e_fields(type)); i++)
    if (json_string_length(br_e_field_name(type, i))) return false;
  return true;
}

bool br_e_unnamed(const json_t *type) {
  if (br_e_is(type, "STRUCT")) {
    if (no_names(type)) return true;
    for (size_t i = 0; i < json_array_size(br_e_fields(type)); i++)
      if (br_e_unnamed(br_e_field_type(type, i))) return true;
    return false;
  }
  if (br_e_is(type, "LIST") || br_e_is(type, "ARRAY") || br_e_is(type, "MAP"))
    return br_e_unnamed(br_e_child_type(type));
  return false;
}

static const char *field_name(br_emit *e, const json_t *type, size_t i) {
  const char *name = json_string_value(br_e_field_name(type, i));
  if (!name) {
    br_e_corrupt(e, "a field of a %s has no name", br_j_str(type, "id"));
    return "\"\"";
  }
  return br_e_ident(e, name);
}

static const char *fields(br_emit *e, const json_t *type, size_t first) {
  br_texts list = {0};
  for (size_t i = first; i < json_array_size(br_e_fields(type)); i++)
    br_e_add(e, &list, br_e_fmt(e, "%s %s", field_name(e, type, i), br_e_type(e, br_e_field_type(type, i))));
  if (!list.n) br_e_corrupt(e, "a %s type without fields", br_j_str(type, "id"));
  return br_e_join(e, &list, ", ");
}

static const char *enum_type(br_emit *e, const json_t *type) {
  br_texts list = {0};
  const json_t *values = br_j_get(info(type), "values");
  for (size_t i = 0; i < json_array_size(values); i++)
    br_e_add(e, &list, br_e_literal_json(e, json_array_get(values, i)));
  if (!list.n) br_e_unsupported(e, "an ENUM type without values");
  return br_e_fmt(e, "ENUM(%s)", br_e_join(e, &list, ", "));
}

static bool is_plain(const char *id) {
  static const char *const plain[] = {
      "BOOLEAN",   "TINYINT",     "SMALLINT",     "INTEGER",      "BIGINT",
      "UTINYINT",  "USMALLINT",   "UINTEGER",     "UBIGINT",      "HUGEINT",
      "UHUGEINT",  "FLOAT",       "DOUBLE",       "VARCHAR",      "CHAR",
      "BLOB",      "DATE",        "TIME",         "TIME_NS",      "TIME WITH TIME ZONE",
      "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE",
      "INTERVAL",  "UUID",        "BIT",          "BIGNUM",       "VARIANT"};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (!strcmp(id, plain[i])) return true;
  return false;
}

const char *br_e_type(br_emit *e, const json_t *type) {
  const char *id = br_j_str(type, "id"), *alias = br_j_str(info(type), "alias");
  if (!strcmp(alias, "GEOMETRY") || !strcmp(id, "GEOMETRY")) {
    br_e_unsupported(e, "the type GEOMETRY");
    return "BLOB";
  }
  if (!strcmp(id, "VARCHAR") && !strcmp(alias, "JSON")) return "JSON";
  if (is_plain(id)) return id;
  if (!strcmp(id, "DECIMAL")) {
    uint64_t width = br_json_u64(br_j_get(info(type), "width")), scale = br_json_u64(br_j_get(info(type), "scale"));
    if (width < 1 || width > 38 || scale > width) br_e_corrupt(e, "DECIMAL of an impossible width or scale");
    return br_e_fmt(e, "DECIMAL(%u,%u)", (unsigned)width, (unsigned)scale);
  }
  if (!strcmp(id, "LIST")) return br_e_fmt(e, "%s[]", br_e_type(e, br_e_child_type(type)));
  if (!strcmp(id, "ARRAY"))
    return br_e_fmt(e, "%s[%u]", br_e_type(e, br_e_child_type(type)),
                    (unsigned)br_json_u64(br_j_get(info(type), "size")));
  if (!strcmp(id, "STRUCT")) {
    if (no_names(type)) br_e_unsupported(e, "the type of a struct whose fields have no names");
    return br_e_fmt(e, "STRUCT(%s)", fields(e, type, 0));
  }
  if (!strcmp(id, "MAP")) {
    const json_t *entry = br_e_child_type(type);
    return br_e_fmt(e, "MAP(%s, %s)", br_e_type(e, br_e_field_type(entry, 0)), br_e_type(e, br_e_field_type(entry, 1)));
  }
  if (!strcmp(id, "UNION")) return br_e_fmt(e, "UNION(%s)", fields(e, type, 1));
  if (!strcmp(id, "ENUM")) return enum_type(e, type);
  if (!strcmp(id, "NULL")) return "\"NULL\"";
  if (!*id)
    br_e_corrupt(e, "a type is missing");
  else
    br_e_unsupported(e, "the type %.60s", id);
  return "VARCHAR";
}

const char *br_e_cast(br_emit *e, const char *text, const json_t *type) {
  return br_e_fmt(e, "CAST(%s AS %s)", text, br_e_type(e, type));
}
