/* SPDX-License-Identifier: Apache-2.0
 *
 * Types: DuckDB's logical types as SQL text and as Arrow schemas, and back.
 *
 * The Arrow schema is DuckDB's own lossless one with three changes, so that a type looks the same in every process and can
 * be filled by arrow/columns: binary and string views become plain binary and string, a time zone becomes UTC (DuckDB's
 * TIMESTAMPTZ is UTC inside; the zone is the session's matter), and enums are refused (plans cast them to VARCHAR; a result's field notes
 * their values).
 * Threads: any. Bounds: nesting of 64 levels.
 */
#include "arrow/enums.h"
#include "engine/internal.h"
#include <string.h>
#include <strings.h>

enum { MAX_NESTING = 64 };

static const char *const plain_name[] = {[DUCKDB_TYPE_BOOLEAN] = "BOOLEAN",
                                         [DUCKDB_TYPE_TINYINT] = "TINYINT",
                                         [DUCKDB_TYPE_SMALLINT] = "SMALLINT",
                                         [DUCKDB_TYPE_INTEGER] = "INTEGER",
                                         [DUCKDB_TYPE_BIGINT] = "BIGINT",
                                         [DUCKDB_TYPE_UTINYINT] = "UTINYINT",
                                         [DUCKDB_TYPE_USMALLINT] = "USMALLINT",
                                         [DUCKDB_TYPE_UINTEGER] = "UINTEGER",
                                         [DUCKDB_TYPE_UBIGINT] = "UBIGINT",
                                         [DUCKDB_TYPE_FLOAT] = "FLOAT",
                                         [DUCKDB_TYPE_DOUBLE] = "DOUBLE",
                                         [DUCKDB_TYPE_TIMESTAMP] = "TIMESTAMP",
                                         [DUCKDB_TYPE_DATE] = "DATE",
                                         [DUCKDB_TYPE_TIME] = "TIME",
                                         [DUCKDB_TYPE_INTERVAL] = "INTERVAL",
                                         [DUCKDB_TYPE_HUGEINT] = "HUGEINT",
                                         [DUCKDB_TYPE_UHUGEINT] = "UHUGEINT",
                                         [DUCKDB_TYPE_VARCHAR] = "VARCHAR",
                                         [DUCKDB_TYPE_BLOB] = "BLOB",
                                         [DUCKDB_TYPE_TIMESTAMP_S] = "TIMESTAMP_S",
                                         [DUCKDB_TYPE_TIMESTAMP_MS] = "TIMESTAMP_MS",
                                         [DUCKDB_TYPE_TIMESTAMP_NS] = "TIMESTAMP_NS",
                                         [DUCKDB_TYPE_UUID] = "UUID",
                                         [DUCKDB_TYPE_BIT] = "BIT",
                                         [DUCKDB_TYPE_TIME_TZ] = "TIME WITH TIME ZONE",
                                         [DUCKDB_TYPE_TIMESTAMP_TZ] = "TIMESTAMP WITH TIME ZONE",
                                         [DUCKDB_TYPE_BIGNUM] = "BIGNUM",
                                         [DUCKDB_TYPE_SQLNULL] = "\"NULL\"",
                                         [DUCKDB_TYPE_TIME_NS] = "TIME_NS",
                                         [DUCKDB_TYPE_GEOMETRY] = "GEOMETRY",
                                         [DUCKDB_TYPE_VARIANT] = "VARIANT"};

static void child_sql(duckdb_logical_type child, bool enum_as_varchar, br_buf *out) {
  br_type_sql(child, enum_as_varchar, out);
  duckdb_destroy_logical_type(&child);
}

static void enum_sql(duckdb_logical_type t, br_buf *out) {
  br_buf_str(out, "ENUM(");
  uint32_t n = duckdb_enum_dictionary_size(t);
  for (uint32_t i = 0; i < n; i++) {
    char *value = duckdb_enum_dictionary_value(t, i);
    if (i) br_buf_str(out, ", ");
    br_buf_sql_literal(out, value, strlen(value));
    duckdb_free(value);
  }
  br_buf_char(out, ')');
}

static void fields_sql(duckdb_logical_type t, bool is_union, bool enum_as_varchar, br_buf *out) {
  idx_t n = is_union ? duckdb_union_type_member_count(t) : duckdb_struct_type_child_count(t);
  br_buf_str(out, is_union ? "UNION(" : "STRUCT(");
  for (idx_t i = 0; i < n; i++) {
    char *name = is_union ? duckdb_union_type_member_name(t, i) : duckdb_struct_type_child_name(t, i);
    if (i) br_buf_str(out, ", ");
    if (*name) br_buf_sql_ident(out, name), br_buf_char(out, ' ');
    duckdb_free(name);
    child_sql(is_union ? duckdb_union_type_member_type(t, i) : duckdb_struct_type_child_type(t, i), enum_as_varchar,
              out);
  }
  br_buf_char(out, ')');
}

static bool is_json(duckdb_logical_type t) {
  char *alias = duckdb_logical_type_get_alias(t);
  bool json = alias && strcmp(alias, "JSON") == 0;
  if (alias) duckdb_free(alias);
  return json;
}

void br_type_sql(duckdb_logical_type t, bool enum_as_varchar, br_buf *out) {
  duckdb_type id = duckdb_get_type_id(t);
  switch (id) {
    case DUCKDB_TYPE_DECIMAL:
      br_buf_printf(out, "DECIMAL(%u,%u)", duckdb_decimal_width(t), duckdb_decimal_scale(t));
      return;
    case DUCKDB_TYPE_ENUM:
      if (enum_as_varchar)
        br_buf_str(out, "VARCHAR");
      else
        enum_sql(t, out);
      return;
    case DUCKDB_TYPE_LIST:
      child_sql(duckdb_list_type_child_type(t), enum_as_varchar, out);
      br_buf_str(out, "[]");
      return;
    case DUCKDB_TYPE_ARRAY:
      child_sql(duckdb_array_type_child_type(t), enum_as_varchar, out);
      br_buf_printf(out, "[%llu]", (unsigned long long)duckdb_array_type_array_size(t));
      return;
    case DUCKDB_TYPE_MAP:
      br_buf_str(out, "MAP(");
      child_sql(duckdb_map_type_key_type(t), enum_as_varchar, out);
      br_buf_str(out, ", ");
      child_sql(duckdb_map_type_value_type(t), enum_as_varchar, out);
      br_buf_char(out, ')');
      return;
    case DUCKDB_TYPE_STRUCT: fields_sql(t, false, enum_as_varchar, out); return;
    case DUCKDB_TYPE_UNION: fields_sql(t, true, enum_as_varchar, out); return;
    case DUCKDB_TYPE_VARCHAR: br_buf_str(out, is_json(t) ? "JSON" : "VARCHAR"); return;
    default: {
      bool known = (size_t)id < sizeof plain_name / sizeof *plain_name && plain_name[id];
      br_buf_str(out, known ? plain_name[id] : "UNKNOWN");
    }
  }
}

static idx_t type_children(duckdb_logical_type t) {
  switch (duckdb_get_type_id(t)) {
    case DUCKDB_TYPE_LIST:
    case DUCKDB_TYPE_ARRAY: return 1;
    case DUCKDB_TYPE_MAP: return 2;
    case DUCKDB_TYPE_STRUCT: return duckdb_struct_type_child_count(t);
    case DUCKDB_TYPE_UNION: return duckdb_union_type_member_count(t);
    default: return 0;
  }
}

static duckdb_logical_type type_child(duckdb_logical_type t, idx_t i) {
  switch (duckdb_get_type_id(t)) {
    case DUCKDB_TYPE_LIST: return duckdb_list_type_child_type(t);
    case DUCKDB_TYPE_ARRAY: return duckdb_array_type_child_type(t);
    case DUCKDB_TYPE_MAP: return i ? duckdb_map_type_value_type(t) : duckdb_map_type_key_type(t);
    case DUCKDB_TYPE_STRUCT: return duckdb_struct_type_child_type(t, i);
    default: return duckdb_union_type_member_type(t, i);
  }
}

bool br_type_has_enum(duckdb_logical_type t) {
  if (duckdb_get_type_id(t) == DUCKDB_TYPE_ENUM) return true;
  bool found = false;
  for (idx_t i = 0, n = type_children(t); i < n && !found; i++) {
    duckdb_logical_type child = type_child(t, i);
    found = br_type_has_enum(child);
    duckdb_destroy_logical_type(&child);
  }
  return found;
}

void br_types_free(duckdb_logical_type *types, size_t n) {
  if (!types) return;
  for (size_t i = 0; i < n; i++)
    if (types[i]) duckdb_destroy_logical_type(&types[i]);
  free(types);
}

/* ---- to Arrow */

static br_status normalise(struct ArrowSchema *s, int depth, br_error *err) {
  const char *format = NULL;
  if (depth > MAX_NESTING)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "a type is nested more than %d levels deep", MAX_NESTING);
  if (s->dictionary)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "column \"%s\" is an enum: cast it to VARCHAR",
                   s->name ? s->name : "");
  if (strcmp(s->format, "vz") == 0)
    format = "z";
  else if (strcmp(s->format, "vu") == 0)
    format = "u";
  else if (strncmp(s->format, "tsu:", 4) == 0 && s->format[4])
    format = "tsu:UTC";
  if (format && ArrowSchemaSetFormat(s, format) != NANOARROW_OK)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for an Arrow schema");
  for (int64_t i = 0; i < s->n_children; i++) BR_TRY(normalise(s->children[i], depth + 1, err));
  return BR_OK;
}

static br_status note_values(struct ArrowSchema *s, duckdb_logical_type t, br_error *err) {
  uint32_t n = duckdb_enum_dictionary_size(t);
  const char **values = br_calloc(n + 1u, sizeof *values);
  for (uint32_t i = 0; i < n; i++) values[i] = duckdb_enum_dictionary_value(t, i);
  int status = br_schema_note_enum(s, values, n);
  for (uint32_t i = 0; i < n; i++) duckdb_free((void *)(uintptr_t)values[i]);
  free(values);
  if (status == NANOARROW_OK) return BR_OK;
  return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for the %u values of an enum", n);
}

/* Where `given` has an enum, the field, which is a text, says which values there are (arrow/enums.h). */
static br_status note_enums(struct ArrowSchema *s, duckdb_logical_type given, br_error *err) {
  duckdb_type id = duckdb_get_type_id(given);
  if (id == DUCKDB_TYPE_ENUM) return note_values(s, given, err);
  if (id == DUCKDB_TYPE_MAP) s = s->children[0]; /* a list of structs */
  for (idx_t i = 0, n = type_children(given); i < n && (int64_t)i < s->n_children; i++) {
    duckdb_logical_type child = type_child(given, i);
    br_status status = note_enums(s->children[i], child, err);
    duckdb_destroy_logical_type(&child);
    BR_TRY(status);
  }
  return BR_OK;
}

br_status br_types_schema(br_engine *e, duckdb_logical_type *types, const duckdb_logical_type *given,
                          const char *const *names, size_t n, br_schema **out, br_error *err) {
  struct ArrowSchema theirs = {0}, ours = {0};
  char **made = NULL;
  br_status status = BR_OK;
  if (!names) {
    made = br_calloc(n, sizeof *made);
    for (size_t i = 0; i < n; i++) made[i] = br_asprintf("c%zu", i);
    names = (const char *const *)made;
  }
  BR_TRY_GOTO(br_duckdb_check(duckdb_to_arrow_schema(e->arrow, types, (const char **)names, n, &theirs),
                              "cannot make an Arrow schema", err));
  if (ArrowSchemaDeepCopy(&theirs, &ours) != NANOARROW_OK) {
    status = br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for an Arrow schema of %zu columns", n);
    goto done;
  }
  BR_TRY_GOTO(normalise(&ours, 0, err));
  for (size_t i = 0; given != NULL && i < n; i++)
    if (br_type_has_enum(given[i])) BR_TRY_GOTO(note_enums(ours.children[i], given[i], err));
  status = br_schema_new(&ours, out, err);
done:
  if (theirs.release) theirs.release(&theirs);
  if (ours.release) ours.release(&ours);
  for (size_t i = 0; made && i < n; i++) free(made[i]);
  free(made);
  return status;
}

/* DECIMAL(width,scale) */
static duckdb_logical_type decimal_of(const char *text) {
  unsigned width = 0, scale = 0;
  int end = 0;
  if (sscanf(text, "DECIMAL(%2u,%2u)%n", &width, &scale, &end) != 2 || end == 0 || text[end]) return NULL;
  return width >= 1 && width <= 38 && scale <= width ? duckdb_create_decimal_type((uint8_t)width, (uint8_t)scale)
                                                     : NULL;
}

/* Most types are plain ones: a task asks for those of all its inputs, and a statement that is prepared costs it a tenth of a
 * millisecond. NULL: not so plain. */
static duckdb_logical_type plain_type(const char *text) {
  static const duckdb_type plain[] = {
      DUCKDB_TYPE_BOOLEAN,  DUCKDB_TYPE_TINYINT,   DUCKDB_TYPE_SMALLINT, DUCKDB_TYPE_INTEGER, DUCKDB_TYPE_BIGINT,
      DUCKDB_TYPE_UTINYINT, DUCKDB_TYPE_USMALLINT, DUCKDB_TYPE_UINTEGER, DUCKDB_TYPE_UBIGINT, DUCKDB_TYPE_FLOAT,
      DUCKDB_TYPE_DOUBLE,   DUCKDB_TYPE_TIMESTAMP, DUCKDB_TYPE_DATE,     DUCKDB_TYPE_TIME,    DUCKDB_TYPE_INTERVAL,
      DUCKDB_TYPE_HUGEINT,  DUCKDB_TYPE_UHUGEINT,  DUCKDB_TYPE_VARCHAR,  DUCKDB_TYPE_BLOB,    DUCKDB_TYPE_UUID,
      DUCKDB_TYPE_SQLNULL};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strcmp(text, plain_name[plain[i]]) == 0) return duckdb_create_logical_type(plain[i]);
  return decimal_of(text);
}

static bool plain_types(const char *const *types, size_t n, duckdb_logical_type *out) {
  for (size_t i = 0; i < n; i++) {
    out[i] = plain_type(types[i]);
    if (out[i]) continue;
    while (i-- > 0) duckdb_destroy_logical_type(&out[i]);
    return false;
  }
  return true;
}

/* Of others, NULLs are prepared. */
static br_status logical_types(br_session *s, const char *const *types, size_t n, duckdb_logical_type *out,
                               br_error *err) {
  duckdb_prepared_statement ps = NULL;
  br_buf sql = {0};
  br_status status;
  if (plain_types(types, n, out)) return BR_OK;
  br_buf_str(&sql, "SELECT ");
  for (size_t i = 0; i < n; i++) {
    if (i) br_buf_str(&sql, ", ");
    br_type_null(&sql, types[i]);
    br_buf_printf(&sql, " c%zu", i);
  }
  BR_TRY_GOTO(br_stmt_prepare(s, br_buf_cstr(&sql), &ps, err));
  if (duckdb_prepared_statement_column_count(ps) != n) {
    status = br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "these are not %zu SQL types: %s", n, br_buf_cstr(&sql));
    goto done;
  }
  for (size_t i = 0; i < n; i++) {
    out[i] = duckdb_prepared_statement_column_logical_type(ps, i);
    /* An untyped NULL is what the cast to "NULL" binds to, and DuckDB reports it as INTEGER. */
    if (strcasecmp(types[i], "\"NULL\"") != 0) continue;
    duckdb_destroy_logical_type(&out[i]);
    out[i] = duckdb_create_logical_type(DUCKDB_TYPE_SQLNULL);
  }
done:
  if (ps) duckdb_destroy_prepare(&ps);
  br_buf_free(&sql);
  return status;
}

static bool any_enum(const char *const *types, size_t n) {
  for (size_t i = 0; types != NULL && i < n; i++)
    if (strstr(types[i], "ENUM(") != NULL) return true;
  return false;
}

br_status br_session_result_schema(br_session *s, const char *const *types, const char *const *given,
                                   const char *const *names, size_t n, br_schema **out, br_error *err) {
  duckdb_logical_type *logical = br_calloc(n + 1, sizeof *logical), *as_given = NULL;
  br_status status;
  br_session_begin(s);
  if (!n) {
    status = br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "a schema needs one column at least");
    goto done;
  }
  BR_TRY_GOTO(logical_types(s, types, n, logical, err));
  if (any_enum(given, n)) {
    as_given = br_calloc(n + 1, sizeof *as_given);
    BR_TRY_GOTO(logical_types(s, given, n, as_given, err));
  }
  status = br_types_schema(s->engine, logical, as_given, names, n, out, err);
done:
  br_types_free(logical, n);
  br_types_free(as_given, n);
  br_session_end(s);
  return status;
}

br_status br_session_schema(br_session *s, const char *const *types, const char *const *names, size_t n,
                            br_schema **out, br_error *err) {
  return br_session_result_schema(s, types, NULL, names, n, out, err);
}

/* ---- from Arrow */

static void release_borrowed(struct ArrowSchema *s) {
  free(s->children);
  s->release = NULL;
}

void br_schema_project(const struct ArrowSchema *from, const uint64_t *ids, size_t n, struct ArrowSchema *out) {
  memset(out, 0, sizeof *out);
  out->format = "+s";
  out->name = "";
  out->n_children = (int64_t)n;
  out->children = br_calloc(n ? n : 1, sizeof *out->children);
  for (size_t i = 0; i < n; i++) out->children[i] = from->children[ids ? ids[i] : i];
  out->release = release_borrowed;
}

static void release_nothing(struct ArrowArray *a) { a->release = NULL; }

/* An array of no rows: enough for DuckDB to make a chunk whose vectors tell the types. */
static void empty_array(const struct ArrowSchema *s, br_arena *mem, struct ArrowArray *a) {
  memset(a, 0, sizeof *a);
  a->n_children = s->n_children;
  a->buffers = br_arena_alloc(mem, 4 * sizeof *a->buffers);
  a->children = br_arena_alloc(mem, ((size_t)s->n_children + 1) * sizeof *a->children);
  for (int64_t i = 0; i < s->n_children; i++) {
    a->children[i] = br_arena_alloc(mem, sizeof **a->children);
    empty_array(s->children[i], mem, a->children[i]);
  }
  a->release = release_nothing;
}

static br_status no_dictionaries(const struct ArrowSchema *s, br_error *err) {
  if (s->dictionary)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "column \"%s\" is dictionary-encoded", s->name ? s->name : "");
  for (int64_t i = 0; i < s->n_children; i++) BR_TRY(no_dictionaries(s->children[i], err));
  return BR_OK;
}

br_status br_schema_types(br_engine *e, const br_schema *schema, duckdb_logical_type **out, br_error *err) {
  const struct ArrowSchema *arrow = br_schema_arrow(schema);
  size_t n = (size_t)arrow->n_children;
  struct ArrowSchema view = {0};
  struct ArrowArray empty;
  duckdb_arrow_converted_schema converted = NULL;
  duckdb_data_chunk chunk = NULL;
  br_arena *mem = br_arena_new();
  br_status status;
  BR_TRY_GOTO(no_dictionaries(arrow, err));
  br_schema_project(arrow, NULL, n, &view);
  BR_TRY_GOTO(br_duckdb_check(duckdb_schema_from_arrow(e->helper, &view, &converted),
                              "DuckDB cannot read the Arrow schema", err));
  empty_array(arrow, mem, &empty);
  BR_TRY_GOTO(br_duckdb_check(duckdb_data_chunk_from_arrow(e->helper, &empty, converted, &chunk),
                              "DuckDB cannot read batches of the Arrow schema", err));
  *out = br_calloc(n ? n : 1, sizeof **out);
  for (size_t i = 0; i < n; i++) (*out)[i] = duckdb_vector_get_column_type(duckdb_data_chunk_get_vector(chunk, i));
done:
  if (chunk) duckdb_destroy_data_chunk(&chunk);
  if (converted) duckdb_destroy_arrow_converted_schema(&converted);
  if (view.release) view.release(&view);
  br_arena_free(mem);
  return status;
}
