/* SPDX-License-Identifier: Apache-2.0
 *
 * Where scans stand in a user's text, as DuckDB's parser says it (json_serialize_sql): the tree is read here, in one pass. DuckDB's own
 * json_tree goes through a list once for each of its elements: 20 s for the type of an enum of 70,000 values.
 * Order: one call. Threads: the session's user. Bounds: the tree of one text; 2048 levels of it (jansson).
 */
#include <ctype.h>
#include <jansson.h>

#include "source/internal.h"

#define COLUMNS 7

static char *text_of(const json_t *object, const char *key) {
  const json_t *v = json_object_get(object, key);
  return json_is_string(v) ? br_strdup(json_string_value(v)) : NULL;
}

static const char *constant(const json_t *expression) {
  return json_string_value(json_object_get(json_object_get(expression, "value"), "value"));
}

/* The first argument: one file, or a list of files with BR_FILE_SEPARATOR between them. NULL: it is neither. */
static char *files_of(const json_t *function) {
  const json_t *first = json_array_get(json_object_get(function, "children"), 0), *child;
  const char *class = json_string_value(json_object_get(first, "class"));
  const char *name = json_string_value(json_object_get(first, "function_name"));
  br_buf b = {0};
  size_t i;
  if (class != NULL && strcmp(class, "CONSTANT") == 0) return constant(first) ? br_strdup(constant(first)) : NULL;
  if (name == NULL || strcmp(name, "list_value") != 0) return NULL;
  json_array_foreach(json_object_get(first, "children"), i, child) {
    if (constant(child) == NULL) {
      br_buf_free(&b);
      return NULL;
    }
    if (i > 0) br_buf_char(&b, BR_FILE_SEPARATOR);
    br_buf_str(&b, constant(child));
  }
  return br_buf_take(&b);
}

static void add(br_table *t, size_t *capacity, const json_t *scan, const char *type) {
  const json_t *function = json_object_get(scan, "function");
  double place = json_number_value(json_object_get(scan, "query_location"));
  char *schema = text_of(scan, "schema_name"), *catalog = text_of(scan, "catalog_name");
  char **row;
  for (size_t i = 0; i < COLUMNS; i++) {
    br_grow((void **)&t->cells, capacity, t->rows * COLUMNS + i, sizeof *t->cells);
    t->cells[t->rows * COLUMNS + i] = NULL;
  }
  row = &t->cells[t->rows++ * COLUMNS];
  row[0] = br_strdup(type);
  if (place < 9e15) row[1] = br_asprintf("%.0f", place); /* else there is none */
  row[2] = text_of(scan, "alias");
  row[3] = text_of(scan, "table_name");
  row[4] = br_asprintf("%s%s", schema != NULL ? schema : "", catalog != NULL ? catalog : "");
  row[5] = text_of(function, "function_name");
  for (char *p = row[5]; p != NULL && *p != 0; p++) *p = (char)tolower((unsigned char)*p);
  row[6] = files_of(function);
  free(schema);
  free(catalog);
}

static void walk(br_table *t, size_t *capacity, const json_t *v) {
  const char *type = json_string_value(json_object_get(v, "type")), *key;
  const json_t *child;
  size_t i;
  if (type != NULL && (strcmp(type, "BASE_TABLE") == 0 || strcmp(type, "TABLE_FUNCTION") == 0))
    add(t, capacity, v, type);
  json_object_foreach((json_t *)(uintptr_t)v, key, child) walk(t, capacity, child);
  json_array_foreach(v, i, child) walk(t, capacity, child);
}

br_status br_text_tree_scans(br_session *session, const char *sql, br_table *out, br_error *err) {
  br_buf ask = {0};
  br_table answer;
  size_t capacity = 0;
  *out = (br_table){.columns = COLUMNS};
  br_buf_str(&ask, "SELECT CAST(json_serialize_sql(");
  br_buf_sql_literal(&ask, sql, strlen(sql));
  br_buf_str(&ask, ") AS VARCHAR)");
  br_status status = br_session_table(session, br_buf_cstr(&ask), &answer, err);
  br_buf_free(&ask);
  if (status != BR_OK) return err->blame == BR_BLAME_USER ? BR_OK : status;
  /* places that are none are 2^64 - 1; a tree that is no JSON (NaN) has no scans */
  json_t *tree = json_loads(br_table_cell(&answer, 0, 0), JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
  if (tree != NULL) walk(out, &capacity, tree);
  json_decref(tree);
  br_table_free(&answer);
  return BR_OK;
}
