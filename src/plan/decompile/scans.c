/* SPDX-License-Identifier: Apache-2.0
 *
 * GET: scans of Parquet files and of tables, and calls of table functions. Filters that were pushed into the scan stand
 * only there, keyed by the column's number in the table; statistics have pruned the list of files already.
 *
 * A subset of a query's files may infer other types than all of them: every column is cast to the type that was planned,
 * and partition columns from directory names (hive) have their types pinned.
 */
#include "plan/decompile/emit.h"

#include <string.h>

/* Virtual columns. */
#define ROWID UINT64_MAX
#define EMPTY (UINT64_MAX - 1)
#define FILENAME (UINT64_C(1) << 63)
#define FILE_ROW_NUMBER (FILENAME + 1)
#define FILE_INDEX (FILENAME + 2)
#define NO_ORDINALITY UINT64_MAX

static const json_t *data_of(const br_node *get) { return br_j_some(get->json, "function_data"); }

static const json_t *files_of(const br_node *get) {
  const json_t *files = br_j_get(data_of(get), "files");
  return json_is_array(files) ? files : NULL;
}

/* read_warc of files that may be cut: not of a range that the text itself gives. */
static bool is_warc(const br_node *get) {
  const json_t *named = br_j_get(get->json, "named_parameters");
  if (!br_j_is(get->json, "name", "read_warc") || get->n_children || !br_j_count(get->json, "parameters")) return false;
  for (size_t i = 0; i < json_array_size(named); i++)
    if (!br_j_is(json_array_get(named, i), "key", "on_error")) return false;
  return !json_is_object(named) ||
         (!json_object_size(named) || (json_object_size(named) == 1 && br_j_get(named, "on_error")));
}

static bool is_table(const br_node *get) { return br_j_is(get->json, "name", "seq_scan") && data_of(get); }

static const json_t *type_at(const br_node *get, uint64_t i) { return br_j_at(get->json, "returned_types", (size_t)i); }

static bool uses_column(const br_node *get, uint64_t column) {
  const json_t *filters = br_j_get(br_j_get(get->json, "table_filters"), "filters");
  for (size_t i = 0; i < br_j_count(get->json, "column_indexes"); i++)
    if (br_json_u64(br_j_get(br_j_at(get->json, "column_indexes", i), "index")) == column) return true;
  for (size_t i = 0; i < json_array_size(filters); i++)
    if (br_json_u64(br_j_get(json_array_get(filters, i), "key")) == column) return true;
  return false;
}

/* ---- Parquet */

void br_scan_file_literal(br_buf *out, const char *path) {
  br_buf b = {0};
  bool url = strstr(path, "://") != NULL; /* '?' begins its query there */
  for (const char *p = path; *p; p++) {
    if (!url && strchr("*?[", *p)) {
      br_buf_char(&b, '[');
      br_buf_char(&b, *p);
      br_buf_char(&b, ']');
    } else {
      br_buf_char(&b, *p);
    }
  }
  br_buf_sql_literal(out, b.data ? b.data : "", b.len);
  br_buf_free(&b);
}

/* "/k=" somewhere in a path: k is a partition column. */
bool br_e_in_directories(const br_node *get, const char *column) {
  const json_t *files = files_of(get);
  size_t n = strlen(column);
  for (size_t i = 0; i < json_array_size(files); i++) {
    const char *path = json_string_value(json_array_get(files, i));
    for (const char *p = path ? strchr(path, '/') : NULL; p; p = strchr(p + 1, '/'))
      if (!strncmp(p + 1, column, n) && p[1 + n] == '=') return true;
  }
  return false;
}

static const char *hive_options(br_emit *e, const br_node *get) {
  br_texts types = {0};
  const json_t *names = br_j_get(get->json, "names");
  for (size_t i = 0; i < json_array_size(names); i++) {
    const char *name = json_string_value(json_array_get(names, i));
    if (!name || !br_e_in_directories(get, name)) continue;
    br_e_add(e, &types, br_e_fmt(e, "%s: %s", br_e_literal(e, name), br_e_literal(e, br_e_type(e, type_at(get, i)))));
  }
  if (!types.n) return ", hive_partitioning := true";
  return br_e_fmt(e, ", hive_partitioning := true, hive_types := {%s}", br_e_join(e, &types, ", "));
}

static const char *parquet_options(br_emit *e, const br_node *get) {
  const json_t *po = br_j_get(data_of(get), "parquet_options"), *fo = br_j_get(po, "file_options");
  br_texts list = {0};
  if (br_j_some(po, "encryption_config")) br_e_unsupported(e, "an encrypted Parquet file");
  if (br_j_count(po, "schema")) br_e_unsupported(e, "read_parquet with an explicit schema");
  if (br_j_true(po, "binary_as_string")) br_e_add(e, &list, ", binary_as_string := true");
  if (br_j_true(po, "file_row_number")) br_e_add(e, &list, ", file_row_number := true");
  if (br_j_true(po, "can_have_nan")) br_e_add(e, &list, ", can_have_nan := true");
  if (br_j_true(fo, "filename")) {
    const char *column = br_j_str(fo, "filename_column");
    br_e_add(e, &list,
             !*column || !strcmp(column, "filename") ? ", filename := true"
                                                     : br_e_fmt(e, ", filename := %s", br_e_literal(e, column)));
  }
  if (br_j_true(fo, "union_by_name")) br_e_add(e, &list, ", union_by_name := true");
  br_e_add(e, &list, br_j_true(fo, "hive_partitioning") ? hive_options(e, get) : ", hive_partitioning := false");
  return br_e_join(e, &list, "");
}

static const char *all_files(br_emit *e, const br_node *get, const char *options) {
  const json_t *files = files_of(get);
  br_buf b = {0};
  br_buf_str(&b, "read_parquet([");
  for (size_t i = 0; i < json_array_size(files); i++) {
    const char *path = json_string_value(json_array_get(files, i));
    if (!path) br_e_corrupt(e, "a file without a name");
    if (i) br_buf_str(&b, ", ");
    br_scan_file_literal(&b, path ? path : "");
  }
  br_buf_printf(&b, "]%s)", options);
  const char *text = br_e_fmt(e, "%s", br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* Some files may lack columns that others have: a typed row of all of them, never returned, keeps the names there. */
static const char *with_all_columns(br_emit *e, const br_node *get, const char *source) {
  const json_t *names = br_j_get(get->json, "names");
  br_texts list = {0};
  for (size_t i = 0; i < json_array_size(names); i++) {
    const char *name = json_string_value(json_array_get(names, i));
    br_e_add(e, &list, br_e_fmt(e, "%s AS %s", br_e_cast(e, "NULL", type_at(get, i)), br_e_ident(e, name ? name : "")));
  }
  return br_e_fmt(e, "(SELECT %s WHERE false UNION ALL BY NAME SELECT *%s%s%s FROM %s)", br_e_join(e, &list, ", "),
                  uses_column(get, FILENAME) ? ", filename" : "",
                  uses_column(get, FILE_ROW_NUMBER) ? ", file_row_number" : "",
                  uses_column(get, FILE_INDEX) ? ", file_index" : "", source);
}

static const char *table_name(br_emit *e, const br_node *get) {
  const json_t *d = data_of(get);
  if (!*br_j_str(d, "table")) br_e_corrupt(e, "a table scan without its table");
  return br_e_fmt(e, "%s.%s.%s", br_e_ident(e, br_j_str(d, "catalog")), br_e_ident(e, br_j_str(d, "schema")),
                  br_e_ident(e, br_j_str(d, "table")));
}

static br_texts constant_arguments(br_emit *e, const br_node *get) {
  const json_t *named = br_j_get(get->json, "named_parameters"), *v;
  const char *key;
  br_texts args = {0};
  for (size_t i = 0; i < br_j_count(get->json, "parameters"); i++)
    br_e_add(e, &args, br_e_constant(e, br_j_at(get->json, "parameters", i), NULL));
  for (size_t i = 0; i < json_array_size(named); i++) {
    const json_t *kv = json_array_get(named, i);
    br_e_add(
        e, &args,
        br_e_fmt(e, "%s := %s", br_e_ident(e, br_j_str(kv, "key")), br_e_constant(e, br_j_get(kv, "value"), NULL)));
  }
  if (json_is_object(named)) {
    json_object_foreach((json_t *)named, key, v) {
      br_e_add(e, &args, br_e_fmt(e, "%s := %s", br_e_ident(e, key), br_e_constant(e, v, NULL)));
    }
  }
  return args;
}

static const char *scan_source(br_emit *e, const br_node *get) {
  const char *token = e->options.scan ? e->options.scan(e->options.arg, get, e->scans) : NULL;
  if (e->options.scan) e->scans++;
  if (is_table(get)) return token ? token : table_name(e, get);
  if (is_warc(get)) {
    br_texts args = constant_arguments(e, get);
    return token ? token : br_e_fmt(e, "read_warc(%s)", br_e_join(e, &args, ", "));
  }
  const char *options = parquet_options(e, get);
  const char *source = token ? token : all_files(e, get, options);
  bool by_name = br_j_true(br_j_get(br_j_get(data_of(get), "parquet_options"), "file_options"), "union_by_name");
  return by_name ? with_all_columns(e, get, source) : source;
}

/* ---- columns */

typedef struct scan_names {
  bool positional; /* t.a0, t.a1, ...: a table function's columns, renamed */
  bool cast;
} scan_names;

static const char *column_name(br_emit *e, const br_node *get, scan_names how, uint64_t i) {
  const char *name = json_string_value(br_j_at(get->json, "names", (size_t)i));
  if (!name) {
    br_e_unsupported(e, "column %llu of a scan with %zu columns", (unsigned long long)i,
                     br_j_count(get->json, "names"));
    return "";
  }
  if (how.positional && !how.cast) return br_e_fmt(e, "t.a%llu", (unsigned long long)i);
  const char *column =
      how.positional ? br_e_fmt(e, "t.a%llu", (unsigned long long)i) : br_e_fmt(e, "t.%s", br_e_ident(e, name));
  return how.cast && !br_e_unnamed(type_at(get, i)) ? br_e_cast(e, column, type_at(get, i)) : column;
}

static const char *virtual_name(uint64_t i) {
  return i == ROWID             ? "t.rowid"
         : i == EMPTY           ? "NULL::BOOLEAN"
         : i == FILENAME        ? "t.filename"
         : i == FILE_ROW_NUMBER ? "t.file_row_number"
         : i == FILE_INDEX      ? "t.file_index"
                                : NULL;
}

/* A field of a struct, read alone. */
static const char *extracted(br_emit *e, const br_node *get, scan_names how, const json_t *index, uint64_t i) {
  const char *text = column_name(e, get, how, i);
  const json_t *type = type_at(get, i), *wanted = NULL;
  for (const json_t *c = br_j_at(index, "child_indexes", 0); c; c = br_j_at(c, "child_indexes", 0)) {
    size_t at = (size_t)br_json_u64(br_j_get(c, "index"));
    const json_t *name = br_e_field_name(type, at);
    if (!br_e_is(type, "STRUCT") || !json_string_length(name)) {
      br_e_unsupported(e, "a field read out of a scan's column that is no struct with names");
      return "";
    }
    text = br_e_fmt(e, "struct_extract(%s, %s)", text, br_e_literal_json(e, name));
    type = br_e_field_type(type, at);
    wanted = br_j_get(c, "type");
  }
  if (wanted && !br_e_is(wanted, "INVALID") && !json_equal((json_t *)wanted, (json_t *)type))
    text = br_e_cast(e, text, wanted);
  return text;
}

static const char *column(br_emit *e, const br_node *get, scan_names how, const json_t *index) {
  uint64_t i = br_json_u64(br_j_get(index, "index"));
  const json_t *has_index = br_j_get(index, "has_index");
  if (json_is_false(has_index)) br_e_unsupported(e, "a scan's column that is named by a field");
  if (virtual_name(i)) return virtual_name(i);
  if (br_j_is(index, "index_type", "PUSHDOWN_EXTRACT")) return extracted(e, get, how, index, i);
  return column_name(e, get, how, i);
}

static br_texts output_columns(br_emit *e, const br_node *get, scan_names how) {
  const json_t *ids = br_j_get(get->json, "projection_ids"), *indexes = br_j_get(get->json, "column_indexes");
  size_t n = json_array_size(ids) ? json_array_size(ids) : json_array_size(indexes);
  br_texts list = {0};
  for (size_t i = 0; i < n; i++) {
    size_t at = json_array_size(ids) ? (size_t)br_json_u64(json_array_get(ids, i)) : i;
    br_e_add(e, &list, column(e, get, how, json_array_get(indexes, at)));
  }
  if (!list.n) br_e_add(e, &list, "NULL::BOOLEAN");
  return list;
}

/* ---- filters; NULL: nothing to check (optional and dynamic ones only save work) */

static const char *table_filter(br_emit *e, const json_t *f, const char *x);

static const char *filter_group(br_emit *e, const json_t *f, const char *x, bool all) {
  br_texts list = {0};
  for (size_t i = 0; i < br_j_count(f, "child_filters"); i++) {
    const char *text = table_filter(e, br_j_at(f, "child_filters", i), x);
    if (text) br_e_add(e, &list, text);
    if (!text && !all) return NULL;
  }
  return list.n ? br_e_fmt(e, "(%s)", br_e_join(e, &list, all ? " AND " : " OR ")) : NULL;
}

static const char *in_filter(br_emit *e, const json_t *f, const char *x) {
  br_texts list = {0};
  for (size_t i = 0; i < br_j_count(f, "values"); i++)
    br_e_add(e, &list, br_e_constant(e, br_j_at(f, "values", i), NULL));
  if (!list.n) br_e_corrupt(e, "an IN filter without values");
  return br_e_fmt(e, "%s IN (%s)", x, br_e_join(e, &list, ", "));
}

static const char *table_filter(br_emit *e, const json_t *f, const char *x) {
  const char *k = br_j_str(f, "filter_type");
  if (!strcmp(k, "CONSTANT_COMPARISON"))
    return br_e_fmt(e, "%s %s %s", x, br_e_comparison(e, br_j_str(f, "comparison_type")),
                    br_e_constant(e, br_j_get(f, "constant"), NULL));
  if (!strcmp(k, "IS_NULL")) return br_e_fmt(e, "%s IS NULL", x);
  if (!strcmp(k, "IS_NOT_NULL")) return br_e_fmt(e, "%s IS NOT NULL", x);
  if (!strcmp(k, "CONJUNCTION_AND")) return filter_group(e, f, x, true);
  if (!strcmp(k, "CONJUNCTION_OR")) return filter_group(e, f, x, false);
  if (!strcmp(k, "IN_FILTER")) return in_filter(e, f, x);
  if (!strcmp(k, "OPTIONAL_FILTER") || !strcmp(k, "DYNAMIC_FILTER") || !strcmp(k, "BLOOM_FILTER")) return NULL;
  if (!strcmp(k, "STRUCT_EXTRACT"))
    return table_filter(e, br_j_get(f, "child_filter"),
                        br_e_fmt(e, "struct_extract(%s, %s)", x, br_e_literal_json(e, br_j_get(f, "child_name"))));
  if (!strcmp(k, "EXPRESSION_FILTER")) {
    br_env env = {0};
    br_e_add(e, &env.refs, x);
    return br_e_expr(e, br_j_get(f, "expr"), &env);
  }
  br_e_unsupported(e, "a pushed filter of kind %.60s", k);
  return NULL;
}

static const char *where(br_emit *e, const br_node *get, scan_names how) {
  const json_t *filters = br_j_get(br_j_get(get->json, "table_filters"), "filters");
  br_texts list = {0};
  for (size_t i = 0; i < json_array_size(filters); i++) {
    const json_t *f = json_array_get(filters, i);
    uint64_t key = br_json_u64(br_j_get(f, "key"));
    const char *x = virtual_name(key) ? virtual_name(key) : column_name(e, get, how, key);
    const char *text = table_filter(e, br_j_get(f, "value"), x);
    if (text) br_e_add(e, &list, text);
  }
  return list.n ? br_e_fmt(e, "\nWHERE %s", br_e_join(e, &list, " AND ")) : "";
}

const char *br_e_sample(br_emit *e, const json_t *o) {
  const json_t *size = br_j_get(br_j_get(o, "sample_size"), "value"), *seed = br_j_some(o, "seed");
  const char *method = br_j_str(o, "method"), *amount;
  if (strcmp(method, "System") && strcmp(method, "Bernoulli") && strcmp(method, "Reservoir"))
    br_e_unsupported(e, "a sample by the method %.60s", method);
  if (br_j_true(o, "is_percentage"))
    amount = br_e_fmt(e, "%.17g PERCENT", br_json_double(size));
  else
    amount = br_e_fmt(e, "%llu ROWS", (unsigned long long)br_json_u64(size));
  bool seeded = seed && json_is_integer(seed) && json_integer_value(seed) >= 0;
  return br_e_fmt(e, "%s(%s)%s", method, amount,
                  seeded ? br_e_fmt(e, " REPEATABLE (%lld)", (long long)json_integer_value(seed)) : "");
}

/* ---- table functions */

static const char *function_alias(br_emit *e, const br_node *get) {
  br_texts names = {0};
  for (size_t i = 0; i < br_j_count(get->json, "names"); i++) br_e_add(e, &names, br_e_fmt(e, "a%zu", i));
  return br_e_fmt(e, "t(%s)", br_e_join(e, &names, ", "));
}

static const char *table_function(br_emit *e, const br_node *get, const br_rel *children) {
  const json_t *j = get->json;
  const char *name = br_j_str(j, "name"), *alias = function_alias(e, get);
  const json_t *ordinality_at = br_j_get(j, "ordinality_idx");
  const char *ordinality = ordinality_at && br_json_u64(ordinality_at) != NO_ORDINALITY ? " WITH ORDINALITY" : "";
  scan_names how = {.positional = true};
  if (data_of(get) || !*name || !strcmp(name, "summary")) {
    br_e_unsupported(e, "the table function %.60s, whose state isn't in the plan", name);
    return "";
  }
  br_texts columns = output_columns(e, get, how), args = {0};
  const char *filters = where(e, get, how);
  if (!get->n_children) {
    args = constant_arguments(e, get);
    return br_e_fmt(e, "SELECT %s\nFROM %s(%s)%s %s%s", br_e_columns(e, &columns), br_e_ident(e, name),
                    br_e_join(e, &args, ", "), ordinality, alias, filters);
  }
  for (size_t i = 0; i < br_j_count(j, "projected_input"); i++)
    br_e_add(e, &columns, br_e_fmt(e, "i.c%llu", (unsigned long long)br_json_u64(br_j_at(j, "projected_input", i))));
  for (size_t i = 0; i < br_j_count(j, "input_table_types"); i++) br_e_add(e, &args, br_e_fmt(e, "i.c%zu", i));
  return br_e_fmt(e, "SELECT %s\nFROM %s i, LATERAL %s(%s)%s %s%s", br_e_columns(e, &columns),
                  br_e_from(e, children[0].sql), br_e_ident(e, name), br_e_join(e, &args, ", "), ordinality, alias,
                  filters);
}

static const char *dataset_name(const br_node *get) {
  return json_string_value(br_j_get(br_j_at(get->json, "parameters", 0), "value"));
}

/* dataset('name'), held by the coordinator or by workers: a task reads its part by position. */
static bool is_dataset(const br_node *get) {
  return !get->n_children && br_j_is(get->json, "name", "dataset") && dataset_name(get) != NULL;
}

static const char *dataset(br_emit *e, const br_node *get) {
  scan_names how = {.positional = true};
  br_texts columns = output_columns(e, get, how);
  const char *token = e->options.scan ? e->options.scan(e->options.arg, get, e->scans++) : NULL;
  br_texts args = token ? (br_texts){0} : constant_arguments(e, get);
  if (!token) token = br_e_fmt(e, "dataset(%s)", br_e_join(e, &args, ", "));
  return br_e_fmt(e, "SELECT %s\nFROM %s %s%s", br_e_columns(e, &columns), token, function_alias(e, get),
                  where(e, get, how));
}

/* text_scan('read_csv(…)'): whoever runs it runs the text. */
static bool is_text(const br_node *get) {
  return !get->n_children && br_j_is(get->json, "name", "text_scan") && dataset_name(get) != NULL;
}

static const char *text_scan(br_emit *e, const br_node *get) {
  scan_names how = {.positional = true, .cast = true};
  br_texts columns = output_columns(e, get, how);
  const char *token = e->options.scan ? e->options.scan(e->options.arg, get, e->scans++) : NULL;
  return br_e_fmt(e, "SELECT %s\nFROM %s %s%s", br_e_columns(e, &columns),
                  token ? token : br_e_fmt(e, "%s", dataset_name(get)), function_alias(e, get), where(e, get, how));
}

static const char *no_rows(br_emit *e, const br_node *get) {
  br_texts list = {0};
  for (size_t i = 0; i < get->n_columns; i++) br_e_add(e, &list, br_e_cast(e, "NULL", get->types[i]));
  return br_e_fmt(e, "SELECT %s WHERE false", br_e_columns(e, &list));
}

const char *br_e_get(br_emit *e, const br_node *get, const br_rel *children) {
  const json_t *files = files_of(get), *sample = br_j_some(br_j_get(get->json, "extra_info"), "sample_options");
  const char *name = br_j_str(get->json, "name");
  scan_names how = {.cast = files != NULL};
  if (files && strcmp(name, "read_parquet") != 0 && strcmp(name, "parquet_scan") != 0)
    br_e_unsupported(e, "the file scan %.60s", name);
  if (!files && is_dataset(get)) return dataset(e, get);
  if (!files && is_text(get)) return text_scan(e, get);
  if (!files && !is_table(get) && !is_warc(get)) return table_function(e, get, children);
  if (get->n_children) br_e_corrupt(e, "a scan of files or of a table has an input");
  if (files && !json_array_size(files)) return no_rows(e, get);
  br_texts columns = output_columns(e, get, how);
  const char *source = scan_source(e, get);
  return br_e_fmt(e, "SELECT %s\nFROM %s t%s%s%s", br_e_columns(e, &columns), source, sample ? " TABLESAMPLE " : "",
                  sample ? br_e_sample(e, sample) : "", where(e, get, how));
}

/* ---- for splits */

static void describe_limits(const br_node *get, br_scan *s) {
  const json_t *sample = br_j_some(br_j_get(get->json, "extra_info"), "sample_options");
  const char *why = NULL;
  if (uses_column(get, FILE_INDEX))
    why = "it reads file_index, which counts over all files";
  else if (s->kind == BR_SCAN_TABLE && uses_column(get, ROWID))
    why = "it reads rowid";
  else if (sample && !br_j_true(sample, "is_percentage"))
    why = "it takes a sample of a fixed number of rows";
  else if (sample && json_is_integer(br_j_get(sample, "seed")) && json_integer_value(br_j_get(sample, "seed")) >= 0)
    why = "it takes a repeatable sample";
  s->why = why;
  s->unsplittable = why != NULL;
  s->whole_files_only = uses_column(get, FILENAME) || uses_column(get, FILE_ROW_NUMBER) || uses_column(get, FILE_INDEX);
}

static void describe_files(br_emit *e, const br_node *get, br_scan *s) {
  const json_t *files = files_of(get);
  s->kind = BR_SCAN_PARQUET;
  s->n_files = json_array_size(files);
  s->files = br_arena_alloc(e->arena, (s->n_files + 1) * sizeof *s->files);
  for (size_t i = 0; i < s->n_files; i++) {
    const char *path = json_string_value(json_array_get(files, i));
    if (!path) br_e_corrupt(e, "a file without a name");
    s->files[i] = br_arena_strdup(e->arena, path ? path : "");
  }
  s->options = parquet_options(e, get);
  s->prune = br_e_prune(e, get);
  s->file_row_number = br_j_true(br_j_get(data_of(get), "parquet_options"), "file_row_number");
}

static void describe_archives(br_emit *e, const br_node *get, br_scan *s) {
  const json_t *value = br_j_at(get->json, "parameters", 0), *list = br_j_get(br_j_get(value, "value"), "children");
  size_t n = json_is_array(list) ? json_array_size(list) : 1;
  br_texts args = constant_arguments(e, get);
  s->kind = BR_SCAN_WARC;
  s->files = br_arena_alloc(e->arena, (n + 1) * sizeof *s->files);
  for (size_t i = 0; i < n; i++) {
    const char *path = json_string_value(br_j_get(json_is_array(list) ? json_array_get(list, i) : value, "value"));
    if (!path) br_e_unsupported(e, "read_warc of something else than names");
    s->files[s->n_files++] = br_arena_strdup(e->arena, path ? path : "");
  }
  s->options = args.n > 1 ? br_e_fmt(e, ", %s", args.v[1]) : "";
}

br_status br_scan_of(br_arena *arena, const br_node *get, bool *is_scan, br_scan *out, br_error *err) {
  br_emit e = {.arena = arena, .err = err};
  const char *name = br_j_str(get->json, "name");
  *out = (br_scan){0};
  *is_scan = get->kind == BR_NODE_GET && !get->n_children;
  if (*is_scan && files_of(get) && (!strcmp(name, "read_parquet") || !strcmp(name, "parquet_scan"))) {
    describe_files(&e, get, out);
  } else if (*is_scan && is_table(get)) {
    const json_t *d = data_of(get);
    out->kind = BR_SCAN_TABLE;
    out->catalog = br_arena_strdup(arena, br_j_str(d, "catalog"));
    out->schema = br_arena_strdup(arena, br_j_str(d, "schema"));
    out->table = br_arena_strdup(arena, br_j_str(d, "table"));
  } else if (*is_scan && is_warc(get)) {
    describe_archives(&e, get, out);
  } else if (*is_scan && is_dataset(get)) {
    out->kind = BR_SCAN_DATASET;
    out->table = br_arena_strdup(arena, dataset_name(get));
  } else if (*is_scan && is_text(get)) {
    out->kind = BR_SCAN_TEXT;
    out->options = br_arena_strdup(arena, dataset_name(get));
  } else {
    *is_scan = false;
  }
  if (*is_scan) describe_limits(get, out);
  return e.status;
}

const char *br_scan_name(const br_node *get, size_t column) {
  const json_t *ids = br_j_get(get->json, "projection_ids");
  size_t at = json_array_size(ids) ? (size_t)br_json_u64(json_array_get(ids, column)) : column;
  const json_t *index = br_j_at(get->json, "column_indexes", at);
  uint64_t i = br_json_u64(br_j_get(index, "index"));
  if (!index || virtual_name(i) || br_j_count(index, "child_indexes")) return NULL;
  return json_string_value(br_j_at(get->json, "names", (size_t)i));
}

const char *br_scan_column(const br_node *get, size_t column) {
  const char *name = files_of(get) ? br_scan_name(get, column) : NULL;
  return name && !br_e_in_directories(get, name) ? name : NULL;
}
