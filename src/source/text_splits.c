/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits of CSV and JSON scans. What DuckDB finds out about all files of a call (types, and for CSV the dialect of each file) is
 * written into every part, so that a part finds out nothing by itself: its rows are those that the whole call would give.
 *
 *   the call's types (DESCRIBE) → each CSV file's dialect (sniff_csv) → parts: whole files, or ranges of one (file_range)
 *
 * What can't be sure to be the same stays one part: files of different columns, options that are not known here, rejects tables.
 * Order: one call. Threads: the session's user. Bounds: FILES_MOST files; a sniffed file costs a few milliseconds.
 */
#include "source/internal.h"
#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

enum { FILES_MOST = 4096, LOOK_BYTES = 64 << 10, LOOK_LINES = 64, GZIP_RATIO = 4, TARGET_LEAST_BYTES = 8 << 20 };

typedef struct column_list {
  char **names, **types;
  size_t n;
} column_list;

typedef struct text_file {
  const char *path; /* absolute if local */
  const char *written;
  uint64_t size;
  bool local, packed;
  bool dropped;  /* a filter on its folders rules it out */
  char *options; /* of this file in a part, with a ", " in front */
  char *later;   /* the same for parts that are not the first of a file */
  br_text_dialect dialect;
  bool cuttable;
} text_file;

typedef struct splitting {
  br_session *session;
  br_text_call call;
  const char *text;
  column_list columns; /* of the whole call */
  size_t own;          /* of these, those that are in the files: others come from names */
  bool named;          /* folders are columns */
  text_file *files;
  size_t n_files;
  const char *why; /* it stays whole */
  br_text_splits *out;
  size_t capacity;
} splitting;

static bool named(const char *name, const char *const *list, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(name, list[i]) == 0) return true;
  return false;
}
#define NAMED(name, list) named(name, list, sizeof(list) / sizeof *(list))

/* Options that say what sniffing finds out: replaced by what it found. */
static const char *const csv_found[] = {"auto_detect",
                                        "delim",
                                        "sep",
                                        "delimiter",
                                        "quote",
                                        "escape",
                                        "new_line",
                                        "skip",
                                        "comment",
                                        "header",
                                        "columns",
                                        "dateformat",
                                        "date_format",
                                        "timestampformat",
                                        "types",
                                        "dtypes",
                                        "column_types",
                                        "names",
                                        "column_names",
                                        "sample_size",
                                        "auto_type_candidates",
                                        "all_varchar",
                                        "timestamp_format",
                                        "normalize_names",
                                        "files_to_sniff"};
static const char *const csv_kept[] = {"nullstr",           "null",          "null_padding",      "ignore_errors",
                                       "decimal_separator", "max_line_size", "maximum_line_size", "allow_quoted_nulls",
                                       "force_not_null",    "strict_mode",   "buffer_size",       "parallel",
                                       "compression",       "encoding",      "thousands",         "filename"};
static const char *const json_found[] = {"auto_detect",
                                         "columns",
                                         "sample_size",
                                         "maximum_depth",
                                         "maximum_sample_files",
                                         "convert_strings_to_integers",
                                         "field_appearance_threshold",
                                         "map_inference_threshold"};
static const char *const json_kept[] = {"format",     "compression", "ignore_errors",   "maximum_object_size",
                                        "dateformat", "date_format", "timestampformat", "timestamp_format",
                                        "records",    "filename"};
static const char *const names_only[] = {"hive_partitioning", "hive_types", "hive_types_autocast"};

static bool is_csv(const splitting *s) { return s->call.kind == BR_TEXT_CSV; }
static bool is_objects(const splitting *s) {
  return s->call.kind == BR_TEXT_OBJECTS || s->call.kind == BR_TEXT_NDJSON_OBJECTS;
}

/* As a plain word. The reader takes 0, 'no', (false), 0::BOOLEAN, … too: what is neither on nor off here may be both. */
static bool off(const char *value) { return value && strcasecmp(value, "false") == 0; }
static bool on(const char *value) { return value && strcasecmp(value, "true") == 0; }

/* ---- what the whole call gives */

static void columns_free(column_list *c) {
  for (size_t i = 0; i < c->n; i++) free(c->names[i]), free(c->types[i]);
  free(c->names);
  free(c->types);
}

static br_status describe(splitting *s, br_error *err) {
  br_table t;
  if (s->columns.n) return BR_OK;
  char *sql = br_asprintf("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM %s)", s->text);
  br_status status = br_session_table(s->session, sql, &t, err);
  free(sql);
  BR_TRY(status);
  s->columns.names = br_calloc(t.rows + 1, sizeof *s->columns.names);
  s->columns.types = br_calloc(t.rows + 1, sizeof *s->columns.types);
  for (; s->columns.n < t.rows; s->columns.n++) {
    s->columns.names[s->columns.n] = br_strdup(br_table_cell(&t, s->columns.n, 0));
    s->columns.types[s->columns.n] = br_strdup(br_table_cell(&t, s->columns.n, 1));
  }
  br_table_free(&t);
  return BR_OK;
}

static bool packed(const char *path) {
  size_t n = strlen(path);
  return (n > 3 && !strcasecmp(path + n - 3, ".gz")) || (n > 4 && !strcasecmp(path + n - 4, ".zst"));
}

static br_status list_files(splitting *s, br_error *err) {
  char **paths = NULL;
  size_t n = 0;
  br_status status = br_source_expand(s->session, s->call.patterns, s->call.n_patterns, &paths, &n, err);
  const char *compression = br_text_argument_of(&s->call, "compression");
  const char **absolute = br_calloc(n + 1, sizeof *absolute);
  for (size_t i = 0; i < n; i++) {
    char *path = br_absolute_path(paths[i]);
    absolute[i] = br_arena_strdup(s->call.mem, path);
    free(path);
  }
  if (status == BR_OK) status = br_snapshot_of_files(absolute, n, &s->out->files, err);
  free(absolute);
  s->files = br_calloc(n + 1, sizeof *s->files);
  for (size_t i = 0; status == BR_OK && i < n; i++) {
    const br_file *pinned = br_snapshot_file(s->out->files, i);
    text_file *f = &s->files[s->n_files++];
    /* A column that shows the name shows it as it was written. */
    f->path = br_text_argument_of(&s->call, "filename") ? br_arena_strdup(s->call.mem, paths[i]) : pinned->path;
    f->written = br_arena_strdup(s->call.mem, paths[i]);
    f->local = pinned->local;
    f->size = pinned->size_bytes;
    f->packed = compression ? strcasecmp(compression, "'none'") != 0 : packed(paths[i]);
  }
  for (size_t i = 0; i < n; i++) free(paths[i]);
  free(paths);
  return status;
}

/* ---- options */

static void pin_types(const splitting *s, br_buf *out) {
  br_buf_str(out, ", columns = {");
  for (size_t i = 0; i < s->own; i++) {
    if (i) br_buf_str(out, ", ");
    br_buf_sql_literal(out, s->columns.names[i], strlen(s->columns.names[i]));
    br_buf_str(out, ": ");
    br_buf_sql_literal(out, s->columns.types[i], strlen(s->columns.types[i]));
  }
  br_buf_char(out, '}');
}

static void keep_arguments(const splitting *s, const char *const *kept, size_t n, br_buf *out) {
  for (size_t i = 0; i < s->call.n_arguments; i++) {
    const br_text_argument *a = &s->call.arguments[i];
    if (named(a->name, kept, n)) br_buf_printf(out, ", %s = %s", a->name, a->value);
  }
}

/* filename = true, or filename = 'column': does this column show the file's name? */
static bool shows_name(const splitting *s, const char *column) {
  const char *shown = br_text_argument_of(&s->call, "filename");
  br_buf quoted = {0};
  if (!shown || *shown != '\'') return on(shown) && strcmp(column, "filename") == 0;
  br_buf_sql_literal(&quoted, column, strlen(column));
  bool same = strcmp(shown, br_buf_cstr(&quoted)) == 0;
  br_buf_free(&quoted);
  return same;
}

/* Columns behind those of the files come from names of directories, or show the file's name. */
static void pin_names(const splitting *s, br_buf *out) {
  bool any = false;
  for (size_t i = s->own; i < s->columns.n; i++) {
    if (shows_name(s, s->columns.names[i])) continue;
    br_buf_printf(out, "%s", any ? ", " : ", hive_partitioning = true, hive_types = {");
    br_buf_sql_literal(out, s->columns.names[i], strlen(s->columns.names[i]));
    br_buf_str(out, ": ");
    br_buf_sql_literal(out, s->columns.types[i], strlen(s->columns.types[i]));
    any = true;
  }
  br_buf_str(out, any ? "}" : ", hive_partitioning = false");
}

/* Is it the name of a folder, as hive_types takes it: written alike? Or else one that takes its place. */
static bool in_path(const char *path, const char *column, bool alike) {
  size_t n = strlen(column);
  for (const char *p = path; p; p = strchr(p, '/')) {
    if (*p == '/') p++;
    if (!strncasecmp(p, column, n) && p[n] == '=' && (!alike || !strncmp(p, column, n))) return true;
  }
  return false;
}

/* Are the columns behind `own` understood? */
static bool names_are_known(const splitting *s) {
  for (size_t i = s->own; i < s->columns.n; i++) {
    const char *name = s->columns.names[i];
    if (shows_name(s, name)) continue;
    if (!s->named || !in_path(s->files[0].written, name, true)) return false;
  }
  return true;
}

/* A folder's name that is the name of a column of the files, too, takes its place. */
static bool names_hide_columns(const splitting *s) {
  for (size_t i = 0; s->named && i < s->own; i++)
    if (in_path(s->files[0].written, s->columns.names[i], false)) return true;
  return false;
}

static br_text_folders folders_of(const splitting *s, const char **paths) {
  for (size_t i = 0; i < s->n_files; i++) paths[i] = s->files[i].written;
  return (br_text_folders){.paths = paths,
                           .n_files = s->n_files,
                           .asked_for = on(br_text_argument_of(&s->call, "hive_partitioning")),
                           .names = s->columns.names,
                           .types = s->columns.types,
                           .n_columns = s->columns.n};
}

static void check_folders(splitting *s) {
  bool any = false;
  const char *asked = br_text_argument_of(&s->call, "hive_partitioning");
  if (off(asked)) return;
  for (size_t i = 0; i < s->n_files && !any; i++) any = strchr(s->files[i].written, '=') != NULL;
  if (!any) return;
  if (asked && !on(asked)) {
    s->why = "hive_partitioning that is neither true nor false as a word";
    return;
  }
  const char **paths = br_calloc(s->n_files, sizeof *paths);
  br_text_folders f = folders_of(s, paths);
  s->named = br_text_named_folders(&f);
  if (!s->named) s->why = "folders with names that are not alike";
  free(paths);
}

static void check_options(splitting *s) {
  for (size_t i = 0; i < s->call.n_arguments && !s->why; i++) {
    const char *name = s->call.arguments[i].name;
    bool known =
        is_csv(s) ? NAMED(name, csv_found) || NAMED(name, csv_kept) : NAMED(name, json_found) || NAMED(name, json_kept);
    const char *value = s->call.arguments[i].value;
    if (strcmp(name, "union_by_name") == 0)
      s->why = off(value) ? NULL : "union_by_name";
    else if (strcmp(name, "filename") == 0 && !on(value) && !off(value) && *value != '\'')
      s->why = "filename that is neither true nor false nor a name as a word";
    else if (!known && !NAMED(name, names_only))
      s->why = "an option that concerns all files";
  }
}

/* ---- CSV */

enum { DELIMITER, QUOTE, ESCAPE, NEW_LINE, COMMENT, SKIP, HEADER, DATE_FORMAT, TIMESTAMP_FORMAT, NAMES };

static br_status sniff(splitting *s, const text_file *f, br_table *t, br_error *err) {
  br_buf sql = {0};
  br_buf_str(
      &sql,
      "SELECT \"Delimiter\", \"Quote\", \"Escape\", \"NewLineDelimiter\", \"Comment\", \"SkipRows\", \"HasHeader\", "
      "\"DateFormat\", \"TimestampFormat\", array_to_string(list_transform(\"Columns\", lambda c: c.name), chr(31)) "
      "FROM sniff_csv(");
  br_sql_path(f->path, &sql);
  for (size_t i = 0; i < s->call.n_arguments; i++) {
    const br_text_argument *a = &s->call.arguments[i];
    if (strcmp(a->name, "filename") && strcmp(a->name, "files_to_sniff") && !NAMED(a->name, names_only))
      br_buf_printf(&sql, ", %s = %s", a->name, a->value);
  }
  br_buf_char(&sql, ')');
  br_status status = br_session_table(s->session, br_buf_cstr(&sql), t, err);
  br_buf_free(&sql);
  return status;
}

/* What sniffing says where there is none. */
static const char *found(const br_table *t, int what) {
  const char *v = br_table_cell(t, 0, (size_t)what);
  return !v || strcmp(v, "(empty)") == 0 ? "" : v;
}

static void add_text(br_buf *b, const char *name, const char *v) {
  br_buf_printf(b, ", %s = ", name);
  br_buf_sql_literal(b, v, strlen(v));
}

static bool same_names(const splitting *s, const char *names) {
  for (size_t i = 0; i < s->own; i++) {
    size_t n = strlen(s->columns.names[i]);
    if (strncmp(names, s->columns.names[i], n) != 0 || (names[n] != '\x1f' && names[n] != 0)) return false;
    if (names[n] == 0) return i + 1 == s->own;
    names += n + 1;
  }
  return false;
}

static char *csv_options(const splitting *s, const br_table *t, bool first) {
  br_buf b = {0};
  br_buf_str(&b, ", auto_detect = false");
  add_text(&b, "delim", found(t, DELIMITER));
  add_text(&b, "quote", found(t, QUOTE));
  add_text(&b, "escape", found(t, ESCAPE));
  add_text(&b, "comment", found(t, COMMENT));
  if (*found(t, NEW_LINE)) add_text(&b, "new_line", found(t, NEW_LINE));
  br_buf_printf(&b, ", skip = %s, header = %s", first ? found(t, SKIP) : "0", first ? found(t, HEADER) : "false");
  if (*found(t, DATE_FORMAT)) add_text(&b, "dateformat", found(t, DATE_FORMAT));
  if (*found(t, TIMESTAMP_FORMAT)) add_text(&b, "timestampformat", found(t, TIMESTAMP_FORMAT));
  pin_types(s, &b);
  pin_names(s, &b);
  keep_arguments(s, csv_kept, sizeof csv_kept / sizeof *csv_kept, &b);
  return br_buf_take(&b);
}

/* Where one part may end and another begin is only known of plain dialects. */
static bool csv_cuttable(const splitting *s, const text_file *f, const br_table *t) {
  const char *encoding = br_text_argument_of(&s->call, "encoding"), *line = found(t, NEW_LINE);
  bool utf8 = !encoding || strcasecmp(encoding, "'utf-8'") == 0;
  const char *strictly = br_text_argument_of(&s->call, "strict_mode");
  bool strict = !strictly || on(strictly);
  return f->local && !f->packed && utf8 && strict && strlen(found(t, DELIMITER)) == 1 && !*found(t, COMMENT) &&
         !strcmp(found(t, SKIP), "0") && (!strcmp(line, "\\n") || !strcmp(line, "\\r\\n")) &&
         strlen(found(t, QUOTE)) <= 1 && strlen(found(t, ESCAPE)) <= 1 && !br_text_argument_of(&s->call, "filename");
}

static size_t count_names(const char *names) {
  size_t n = 1;
  for (; *names; names++) n += *names == '\x1f';
  return n;
}

static br_status sniff_all(splitting *s, br_error *err) {
  char header[8] = "";
  for (size_t i = 0; i < s->n_files && !s->why; i++) {
    text_file *f = &s->files[i];
    br_table t;
    br_error ignored;
    if (f->dropped || (f->local && f->size == 0)) continue;
    br_status status = sniff(s, f, &t, &ignored);
    if (status == BR_CANCELLED) {
      *err = ignored;
      return status;
    }
    if (status != BR_OK) {
      s->why = "a file whose dialect can't be told alone";
      return BR_OK;
    }
    if (!s->own) s->own = count_names(found(&t, NAMES));
    if (s->own > s->columns.n || !same_names(s, found(&t, NAMES)) ||
        (*header && strcmp(header, found(&t, HEADER)) != 0))
      s->why = "files of different columns";
    else if (!names_are_known(s))
      s->why = "columns that are not in the files";
    else if (names_hide_columns(s))
      s->why = "names of folders that are columns of the files";
    snprintf(header, sizeof header, "%s", found(&t, HEADER));
    if (!s->why) {
      f->options = csv_options(s, &t, true);
      f->later = csv_options(s, &t, false);
      f->dialect = (br_text_dialect){
          .csv = true, .delimiter = *found(&t, DELIMITER), .quote = *found(&t, QUOTE), .escape = *found(&t, ESCAPE)};
      f->cuttable = csv_cuttable(s, f, &t);
    }
    br_table_free(&t);
  }
  return BR_OK;
}

/* ---- JSON */

/* Does each of the first lines hold a whole object? Then so DuckDB takes the file for one with a record a line. */
static br_status looks_like_lines(splitting *s, const text_file *f, bool *yes, br_error *err) {
  char *block = br_malloc(LOOK_BYTES);
  br_buf sql = {0};
  br_table t;
  size_t lines = 0, n = f->size < LOOK_BYTES ? (size_t)f->size : LOOK_BYTES;
  *yes = false;
  int fd = open(f->path, O_RDONLY | O_CLOEXEC);
  br_status status = fd < 0 ? br_fail(err, BR_IO, BR_BLAME_USER, "cannot read the file %s", f->path)
                            : br_pread_all(fd, block, n, 0, err);
  if (fd >= 0) close(fd);
  br_buf_str(&sql, "SELECT coalesce(bool_and(json_valid(l) AND starts_with(trim(l), '{')), false) FROM (VALUES ");
  for (const char *at = block, *end; status == BR_OK && lines < LOOK_LINES; at = end + 1) {
    end = memchr(at, '\n', (size_t)(block + n - at));
    if (!end) break;
    br_buf_str(&sql, lines++ ? ", (" : "(");
    br_buf_sql_literal(&sql, at, (size_t)(end - at));
    br_buf_char(&sql, ')');
  }
  br_buf_str(&sql, ") t(l)");
  if (status == BR_OK && lines) {
    br_error ignored; /* bytes that are no text: it does not look so */
    if (br_session_table(s->session, br_buf_cstr(&sql), &t, &ignored) == BR_OK) {
      *yes = strcmp(br_table_cell(&t, 0, 0), "true") == 0;
      br_table_free(&t);
    }
  }
  br_buf_free(&sql);
  free(block);
  return status;
}

static bool given_lines(const splitting *s) {
  const char *format = br_text_argument_of(&s->call, "format");
  if (s->call.kind == BR_TEXT_NDJSON || s->call.kind == BR_TEXT_NDJSON_OBJECTS) return true;
  return format && (!strcasecmp(format, "'newline_delimited'") || !strcasecmp(format, "'nd'"));
}

static char *json_options(const splitting *s, bool lines) {
  br_buf b = {0};
  if (!is_objects(s)) {
    pin_types(s, &b);
    if (!br_text_argument_of(&s->call, "records")) br_buf_str(&b, ", records = true");
  }
  pin_names(s, &b);
  if (lines && !given_lines(s)) br_buf_str(&b, ", format = 'newline_delimited'");
  keep_arguments(s, json_kept, sizeof json_kept / sizeof *json_kept, &b);
  return br_buf_take(&b);
}

/* A date's format was found out by DuckDB and is not told: does the usual one do? */
static br_status dates_are_plain(splitting *s, br_error *err) {
  bool any = false;
  for (size_t i = 0; i < s->own; i++)
    any = any || strstr(s->columns.types[i], "DATE") || strstr(s->columns.types[i], "TIME");
  if (!any || is_objects(s) || s->why) return BR_OK;
  for (size_t i = 0; i < s->n_files && !s->why; i++) {
    br_table t;
    br_error ignored;
    br_buf sql = {0};
    if (s->files[i].dropped || (s->files[i].local && !s->files[i].size)) continue;
    br_buf_str(&sql, "SELECT count(COLUMNS(*)) FROM (SELECT * FROM read_json(");
    br_sql_path(s->files[i].path, &sql);
    br_buf_printf(&sql, "%s) LIMIT 20480)", s->files[i].options);
    br_status status = br_session_table(s->session, br_buf_cstr(&sql), &t, &ignored);
    br_buf_free(&sql);
    if (status == BR_CANCELLED) {
      *err = ignored;
      return status;
    }
    if (status == BR_OK)
      br_table_free(&t);
    else
      s->why = "dates or times in a form of their own";
  }
  return BR_OK;
}

static br_status look_at_json(splitting *s, br_error *err) {
  bool given = given_lines(s), has_format = br_text_argument_of(&s->call, "format") != NULL;
  const char *records = br_text_argument_of(&s->call, "records");
  for (s->own = s->columns.n; s->own > 0; s->own--) { /* columns that names give are behind those of the records */
    const char *name = s->columns.names[s->own - 1];
    if (!shows_name(s, name) && !(s->named && in_path(s->files[0].written, name, true))) break;
  }
  if (!names_are_known(s)) s->why = "columns that are not in the files";
  if (names_hide_columns(s)) s->why = "names of folders that are columns of the files";
  if (!is_objects(s) &&
      ((s->own == 1 && !strcmp(s->columns.names[0], "json")) || (records && strcasecmp(records, "true"))))
    s->why = "values that are no records";
  for (size_t i = 0; i < s->n_files && !s->why; i++) {
    text_file *f = &s->files[i];
    bool lines = given;
    if (f->dropped) continue;
    if (!given && !has_format && f->local && !f->packed && f->size) BR_TRY(looks_like_lines(s, f, &lines, err));
    f->options = json_options(s, lines);
    f->later = br_strdup(f->options);
    f->cuttable = lines && f->local && !f->packed && !br_text_argument_of(&s->call, "filename");
  }
  return dates_are_plain(s, err);
}

/* ---- parts */

static void add_part(splitting *s, char *sql) {
  br_grow((void **)&s->out->sql, &s->capacity, s->out->n, sizeof *s->out->sql);
  s->out->sql[s->out->n++] = sql;
}

static const char *reader_name(const splitting *s) {
  return is_csv(s) ? "read_csv" : !is_objects(s) ? "read_json" : s->call.function;
}

static br_status cut_file(splitting *s, const text_file *f, uint64_t target, br_error *err) {
  uint64_t *cuts = NULL, first = 0;
  size_t n = 0;
  BR_TRY(br_text_cuts(f->path, f->size, target, &f->dialect, &cuts, &n, err));
  for (size_t i = 0; i <= n; i++) {
    uint64_t end = i < n ? cuts[i] : f->size;
    br_buf b = {0};
    if (n == 0) { /* not cut after all: perhaps too large for a range */
      br_buf_printf(&b, "%s([", reader_name(s));
      br_sql_path(f->path, &b);
      br_buf_printf(&b, "]%s)", f->options);
    } else {
      br_buf_printf(&b, "%s(file_range(", reader_name(s));
      br_buf_sql_literal(&b, f->path, strlen(f->path));
      br_buf_printf(&b, ", %llu, %llu)%s)", (unsigned long long)first, (unsigned long long)end,
                    i ? f->later : f->options);
    }
    add_part(s, br_buf_take(&b));
    first = end;
  }
  free(cuts);
  return BR_OK;
}

/* Files that follow each other and are read alike are one call; others are put together in their order. */
static void whole_files(splitting *s, size_t from, size_t to) {
  br_buf b = {0};
  const char *options = NULL;
  size_t calls = 0;
  for (size_t i = from; i < to; i++) {
    const text_file *f = &s->files[i];
    if (!f->options) continue; /* empty, or ruled out */
    if (options && strcmp(options, f->options) == 0) {
      br_buf_str(&b, ", ");
    } else {
      if (options) br_buf_printf(&b, "]%s) UNION ALL SELECT * FROM ", options);
      br_buf_printf(&b, "%s([", reader_name(s));
      options = f->options;
      calls++;
    }
    br_sql_path(f->path, &b);
  }
  if (options) br_buf_printf(&b, "]%s)", options);
  if (calls == 1) add_part(s, br_buf_take(&b));
  if (calls > 1) add_part(s, br_asprintf("(SELECT * FROM %s)", br_buf_cstr(&b)));
  br_buf_free(&b);
}

/* A range has a name of its own, so columns that a name gives need whole files. */
static bool in_ranges(const splitting *s, const text_file *f) { return f->cuttable && s->own == s->columns.n; }

static uint64_t weight(const text_file *f) { return f->dropped ? 0 : f->packed ? f->size * GZIP_RATIO : f->size; }

static br_status make_parts(splitting *s, uint64_t target, br_error *err) {
  size_t from = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < s->n_files; i++) {
    const text_file *f = &s->files[i];
    bool large = in_ranges(s, f) && f->size > target + target / 2;
    if ((large || bytes + weight(f) / 2 > target || (!f->local && !f->dropped)) && i > from) {
      whole_files(s, from, i);
      from = i, bytes = 0;
    }
    if (large) {
      BR_TRY(cut_file(s, f, target, err));
      from = i + 1, bytes = 0;
    } else {
      bytes += weight(f);
    }
  }
  whole_files(s, from, s->n_files);
  return BR_OK;
}

/* All of it is no more than a part: then the call is one as it was written, and no file need be looked into. */
static bool is_one_part(const splitting *s, uint64_t target) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < s->n_files; i++) {
    if (!s->files[i].local || s->files[i].dropped) return false;
    bytes += weight(&s->files[i]);
  }
  return bytes <= target;
}

static br_status understand(splitting *s, br_error *err) {
  check_options(s);
  if (!s->why) check_folders(s);
  if (s->n_files > FILES_MOST) s->why = "more files than are looked at";
  if (s->why) return BR_OK;
  BR_TRY(describe(s, err));
  return is_csv(s) ? sniff_all(s, err) : look_at_json(s, err);
}

/* The call of all files, found. */
static char *whole_call(const splitting *s) {
  br_buf b = {0};
  br_buf_printf(&b, "%s([", s->call.function);
  for (size_t i = 0; i < s->n_files; i++) {
    if (i) br_buf_str(&b, ", ");
    br_sql_path(s->files[i].path, &b);
  }
  br_buf_char(&b, ']');
  for (size_t i = 0; i < s->call.n_arguments; i++)
    br_buf_printf(&b, ", %s = %s", s->call.arguments[i].name, s->call.arguments[i].value);
  br_buf_char(&b, ')');
  return br_buf_take(&b);
}

/* Files that the tests rule out; are all of them? What is left is cut as finely as all of it would be, down to TARGET_LEAST_BYTES. */
static br_status drop_files(splitting *s, const br_text_test *tests, size_t n_tests, uint64_t *target, bool *all,
                            br_error *err) {
  uint64_t before = 0, after = 0;
  *all = false;
  if (n_tests == 0 || s->n_files == 0 || s->n_files > FILES_MOST) return BR_OK;
  check_folders(s);
  if (!s->named) return BR_OK;
  BR_TRY(describe(s, err));
  const char **paths = br_calloc(s->n_files, sizeof *paths);
  bool *dropped = br_calloc(s->n_files, sizeof *dropped);
  br_text_folders f = folders_of(s, paths);
  br_status status = br_text_prune(s->session, &f, tests, n_tests, dropped, err);
  *all = status == BR_OK && s->n_files > 0;
  for (size_t i = 0; status == BR_OK && i < s->n_files; i++) {
    before += weight(&s->files[i]);
    s->files[i].dropped = dropped[i];
    after += weight(&s->files[i]);
    *all = *all && dropped[i];
  }
  free(dropped);
  free(paths);
  uint64_t share = before > 0 ? (uint64_t)((double)*target * ((double)after / (double)before)) : *target;
  if (share < TARGET_LEAST_BYTES) share = TARGET_LEAST_BYTES;
  if (share < *target) *target = share;
  return status;
}

br_status br_text_split(br_session *session, const char *call, uint64_t target_bytes, const br_text_test *tests,
                        size_t n_tests, br_text_splits *out, br_error *err) {
  splitting s = {.session = session, .text = call, .out = out};
  br_status status = BR_OK;
  *out = (br_text_splits){0};
  if (!br_text_call_parse(call, &s.call)) {
    status = br_fail(err, BR_INVALID, BR_BLAME_USER,
                     "text_scan(): this is no call of a CSV or JSON reader that it can take apart: %.200s", call);
    goto done;
  }
  BR_TRY_GOTO(list_files(&s, err));
  bool none = false;
  if (target_bytes) BR_TRY_GOTO(drop_files(&s, tests, n_tests, &target_bytes, &none, err));
  if (target_bytes && !none && !is_one_part(&s, target_bytes)) {
    BR_TRY_GOTO(understand(&s, err));
    if (!s.why) BR_TRY_GOTO(make_parts(&s, target_bytes, err));
  }
  if (!target_bytes || s.why || (out->n == 0 && !none)) {
    out->whole_why = s.why;
    add_part(&s, whole_call(&s));
  }
done:
  for (size_t i = 0; i < s.n_files; i++) free(s.files[i].options), free(s.files[i].later);
  free(s.files);
  columns_free(&s.columns);
  br_arena_free(s.call.mem);
  if (status != BR_OK) {
    br_text_splits_free(out);
    br_snapshot_free(out->files);
    *out = (br_text_splits){0};
  }
  return status;
}

void br_text_splits_free(br_text_splits *s) {
  for (size_t i = 0; i < s->n; i++) free(s->sql[i]);
  free(s->sql);
  s->sql = NULL;
  s->n = 0;
}

/* ---- how much it is */

/* The file's beginning: bytes of a line; whether it is a JSON array, which is never cut. */
static uint64_t line_bytes(const char *path, bool *array) {
  char *block = br_malloc(LOOK_BYTES);
  uint64_t lines = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, block, LOOK_BYTES);
  for (ssize_t i = 0; i < n; i++) lines += block[i] == '\n';
  ssize_t first = 0;
  while (first < n && strchr(" \t\r\n", block[first])) first++;
  *array = first < n && block[first] == '[';
  if (fd >= 0) close(fd);
  free(block);
  return lines ? (uint64_t)n / lines : 100;
}

br_status br_text_estimate(br_session *session, const char *call, br_text_size *out, br_error *err) {
  br_text_call c;
  br_text_splits pinned = {0};
  splitting s = {.session = session, .text = call, .out = &pinned};
  br_status status = BR_OK;
  *out = (br_text_size){0};
  if (br_text_call_parse(call, &c)) {
    s.call = c;
    status = list_files(&s, err);
    out->found = status == BR_OK;
    if (status != BR_OK && status != BR_CANCELLED) status = BR_OK; /* DuckDB will say it, with the place */
  }
  bool array = false;
  uint64_t each = 100;
  if (out->found && s.n_files && s.files[0].local && !s.files[0].packed) each = line_bytes(s.files[0].path, &array);
  out->one_part = out->found && s.n_files == 1 && (s.files[0].packed || (!is_csv(&s) && array));
  for (size_t i = 0; out->found && i < s.n_files; i++) out->bytes += weight(&s.files[i]);
  out->rows = out->bytes / (each ? each : 1);
  free(s.files);
  br_snapshot_free(pinned.files);
  br_arena_free(c.mem);
  return status;
}
