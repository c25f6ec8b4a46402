/* SPDX-License-Identifier: Apache-2.0
 *
 * True cardinalities in a user's text.
 *
 * DuckDB guesses the rows of a Parquet scan from its first file. Its parser (json_serialize_sql) tells where each scan stands in
 * the text and which files it names; the text is then edited at these places, not printed anew: comments, spelling and the
 * places in error messages stay. The new text must parse, or the old one is used.
 * Order: one call. Threads: the session's user. Bounds: a few queries of the size of the text.
 */
#include "source/internal.h"
#include <strings.h>

typedef struct edit {
  size_t from, to; /* bytes of the text to replace */
  char *text;
} edit;

typedef struct rewriting {
  br_session *session;
  br_source *source;
  const char *sql; /* the SELECT */
  edit *edits;
  size_t n, capacity;
  uint64_t bytes;
} rewriting;

static br_status parses(br_session *session, const char *sql, bool *yes, br_error *err) {
  br_buf ask = {0};
  br_table t;
  br_buf_str(&ask, "SELECT CAST(starts_with(CAST(json_serialize_sql(");
  br_buf_sql_literal(&ask, sql, strlen(sql));
  br_buf_str(&ask, ") AS VARCHAR), '{\"error\":false') AS VARCHAR)");
  br_status status = br_session_table(session, br_buf_cstr(&ask), &t, err);
  if (status == BR_OK) {
    *yes = strcmp(br_table_cell(&t, 0, 0), "true") == 0;
    br_table_free(&t);
  }
  br_buf_free(&ask);
  return status;
}

static bool word_is(const char *p, const char *end, const char *word) {
  return (size_t)(end - p) == strlen(word) && strncasecmp(p, word, strlen(word)) == 0;
}

/* The token before the place is one after which a table stands (not DESCRIBE, SUMMARIZE, TABLE). */
static bool after_from(const char *sql, size_t place) {
  const char *last = NULL, *last_end = NULL;
  for (const char *p = sql; *p && (size_t)(p - sql) < place;) {
    const char *next = br_sql_skip(p);
    if (!br_sql_is_blank(p)) last = p, last_end = next;
    p = next;
  }
  return last && (word_is(last, last_end, "FROM") || word_is(last, last_end, "JOIN") || word_is(last, last_end, ",") ||
                  word_is(last, last_end, "("));
}

/* ---- the rows of a scan */

/* *found false: the text does not tell, or the files are not there (DuckDB will say so, with the place). */
static br_status scan_rows(rewriting *r, const char *files, bool *found, uint64_t *rows, br_error *err) {
  char *copy = br_strdup(files);
  size_t n = 1;
  for (char *p = copy; (p = strchr(p, BR_FILE_SEPARATOR)) != NULL; n++) *p++ = 0;
  const char **patterns = br_calloc(n, sizeof *patterns);
  char **paths = NULL;
  size_t n_paths = 0;
  br_snapshot *snap = NULL;
  const char *at = copy;
  for (size_t i = 0; i < n; i++, at += strlen(at) + 1) patterns[i] = at;
  *found = false;
  br_status status = br_source_expand(r->session, patterns, n, &paths, &n_paths, err);
  if (status != BR_OK) {
    if (err->code != BR_CANCELLED) status = BR_OK;
    goto done;
  }
  status = br_source_snapshot(r->session, r->source, (const char *const *)paths, n_paths, &snap, err);
  if (status == BR_CORRUPT) { /* it may be one that the query's filters leave out: whoever reads it will say so */
    br_error_clear(err);
    status = BR_OK;
    goto done;
  }
  if (status != BR_OK) goto done;
  *rows = br_snapshot_rows(snap);
  *found = true;
  for (size_t i = 0; i < br_snapshot_files(snap); i++) r->bytes += br_snapshot_file(snap, i)->size_bytes;
done:
  br_snapshot_free(snap);
  for (size_t i = 0; i < n_paths; i++) free(paths[i]);
  free(paths);
  free(patterns);
  free(copy);
  return status;
}

/* ---- edits */

static void add_edit(rewriting *r, size_t from, size_t to, char *text) {
  br_grow((void **)&r->edits, &r->capacity, r->n, sizeof *r->edits);
  r->edits[r->n++] = (edit){from, to, text};
}

static bool is_parquet_name(const char *name) {
  size_t n = strlen(name);
  return n > 8 && strcasecmp(name + n - 8, ".parquet") == 0;
}

/* DuckDB calls `FROM 'dir/a.b.parquet'` a, unless it is a glob. */
static void add_alias(const char *name, br_buf *out) {
  if (strpbrk(name, "*?[")) return;
  const char *base = strrchr(name, '/');
  base = base ? base + 1 : name;
  char *alias = br_strndup(base, strcspn(base, "."));
  br_buf_str(out, " AS ");
  br_buf_sql_ident(out, alias);
  free(alias);
}

static br_status edit_name(rewriting *r, size_t place, const char *name, bool has_alias, br_error *err) {
  const char *at = r->sql + place;
  bool found;
  uint64_t rows;
  if (!is_parquet_name(name) || (*at != '\'' && *at != '"') || !after_from(r->sql, place)) return BR_OK;
  BR_TRY(scan_rows(r, name, &found, &rows, err));
  if (!found) return BR_OK;
  br_buf text = {0};
  br_buf_str(&text, "read_parquet(");
  br_buf_sql_literal(&text, name, strlen(name));
  br_buf_printf(&text, ", explicit_cardinality := %llu)", (unsigned long long)(rows ? rows : 1));
  if (!has_alias) add_alias(name, &text);
  add_edit(r, place, (size_t)(br_sql_skip(at) - r->sql), br_buf_take(&text));
  return BR_OK;
}

/* Where the arguments of the call at p end (the closing parenthesis); NULL if this is no call. */
static const char *call_end(const char *p, const char **arguments) {
  int depth = 0;
  *arguments = NULL;
  while (*p) {
    if (*p == '(' && depth++ == 0)
      *arguments = p + 1;
    else if (*p == ')' && --depth == 0)
      return p;
    else if (depth == 0 && (*p == ';' || *p == ')' || *p == ','))
      return NULL;
    p = br_sql_skip(p);
  }
  return NULL;
}

static bool has_cardinality(const char *p, const char *end) {
  for (; p < end; p = br_sql_skip(p))
    if (word_is(p, br_sql_skip(p), "explicit_cardinality")) return true;
  return false;
}

static br_status edit_call(rewriting *r, size_t place, const char *files, br_error *err) {
  const char *arguments, *end = call_end(r->sql + place, &arguments);
  bool found;
  uint64_t rows;
  if (!end || !arguments) return BR_OK;
  BR_TRY(scan_rows(r, files, &found, &rows, err));
  if (!found || has_cardinality(arguments, end)) return BR_OK;
  size_t at = (size_t)(end - r->sql);
  add_edit(r, at, at, br_asprintf(", explicit_cardinality := %llu", (unsigned long long)(rows ? rows : 1)));
  return BR_OK;
}

static br_status edit_scan(rewriting *r, const br_table *t, size_t row, br_error *err) {
  const char *type = br_table_cell(t, row, 0), *place = br_table_cell(t, row, 1), *alias = br_table_cell(t, row, 2);
  const char *name = br_table_cell(t, row, 3), *schema = br_table_cell(t, row, 4), *function = br_table_cell(t, row, 5);
  const char *files = br_table_cell(t, row, 6);
  uint64_t at = place ? strtoull(place, NULL, 10) : UINT64_MAX;
  if (!type || at >= strlen(r->sql)) return BR_OK;
  if (strcmp(type, "BASE_TABLE") == 0) {
    if (!name || (schema && *schema)) return BR_OK;
    return edit_name(r, at, name, alias && *alias, err);
  }
  if (!function || !files || !*files || (strcmp(function, "read_parquet") && strcmp(function, "parquet_scan")))
    return BR_OK;
  return edit_call(r, at, files, err);
}

static int by_place(const void *a, const void *b) {
  const edit *x = a, *y = b;
  return x->from < y->from ? -1 : x->from > y->from;
}

static char *apply(rewriting *r) {
  br_buf out = {0};
  size_t at = 0;
  if (r->n) qsort(r->edits, r->n, sizeof *r->edits, by_place);
  for (size_t i = 0; i < r->n; i++) {
    if (r->edits[i].from < at) continue; /* cannot be: scans do not overlap */
    br_buf_add(&out, r->sql + at, r->edits[i].from - at);
    br_buf_str(&out, r->edits[i].text);
    at = r->edits[i].to;
  }
  br_buf_str(&out, r->sql + at);
  return br_buf_take(&out);
}

/* ---- CREATE … AS */

static const char *next_token(const char *p) {
  while (*p && br_sql_is_blank(p)) p = br_sql_skip(p);
  return p;
}

static bool accept(const char **p, const char *word) {
  const char *at = next_token(*p);
  if (!*at || !word_is(at, br_sql_skip(at), word)) return false;
  *p = br_sql_skip(at);
  return true;
}

/* Where the SELECT of the statement begins: 0 unless it is CREATE [OR REPLACE] [TEMP] VIEW or TABLE … AS. */
static size_t select_start(const char *sql) {
  const char *p = sql;
  if (!accept(&p, "CREATE")) return 0;
  if (accept(&p, "OR") && !accept(&p, "REPLACE")) return 0;
  if (!accept(&p, "TEMP")) accept(&p, "TEMPORARY");
  if (!accept(&p, "VIEW") && !accept(&p, "TABLE")) return 0;
  int depth = 0;
  for (p = next_token(p); *p; p = next_token(p)) {
    const char *end = br_sql_skip(p);
    if (*p == '(')
      depth++;
    else if (*p == ')')
      depth--;
    else if (depth == 0 && word_is(p, end, "AS"))
      return (size_t)(next_token(end) - sql);
    p = end;
  }
  return 0;
}

/* ---- CSV and JSON */

/* The call that DuckDB makes of FROM 'a.csv', NULL: it is no such name. */
static const char *reader_of(const char *name) {
  static const struct {
    const char *end, *function;
  } readers[] = {{".csv", "read_csv_auto"},
                 {".tsv", "read_csv_auto"},
                 {".json", "read_json_auto"},
                 {".jsonl", "read_json_auto"},
                 {".ndjson", "read_json_auto"}};
  size_t n = strlen(name);
  if (n > 3 && strcasecmp(name + n - 3, ".gz") == 0)
    n -= 3;
  else if (n > 4 && strcasecmp(name + n - 4, ".zst") == 0)
    n -= 4;
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
    size_t m = strlen(readers[i].end);
    if (n > m && strncasecmp(name + n - m, readers[i].end, m) == 0) return readers[i].function;
  }
  return NULL;
}

static br_status add_text_scan(rewriting *r, size_t from, size_t to, const char *call, const char *alias,
                               br_error *err) {
  br_text_size size;
  BR_TRY(br_text_estimate(r->session, call, &size, err));
  if (!size.found) return BR_OK;
  br_buf text = {0};
  br_buf_str(&text, "text_scan(");
  br_buf_sql_literal(&text, call, strlen(call));
  br_buf_printf(&text, ", rows := %llu)%s", (unsigned long long)(size.rows ? size.rows : 1), alias);
  add_edit(r, from, to, br_buf_take(&text));
  return BR_OK;
}

static br_status text_name(rewriting *r, size_t place, const char *name, bool has_alias, br_error *err) {
  const char *at = r->sql + place, *function = reader_of(name);
  if (!function || (*at != '\'' && *at != '"') || !after_from(r->sql, place)) return BR_OK;
  br_buf call = {0}, alias = {0};
  br_buf_printf(&call, "%s(", function);
  br_buf_sql_literal(&call, name, strlen(name));
  br_buf_char(&call, ')');
  if (!has_alias) add_alias(name, &alias);
  br_status status =
      add_text_scan(r, place, (size_t)(br_sql_skip(at) - r->sql), br_buf_cstr(&call), br_buf_cstr(&alias), err);
  br_buf_free(&call);
  br_buf_free(&alias);
  return status;
}

static br_status text_function(rewriting *r, size_t place, const char *function, bool has_alias, br_error *err) {
  const char *arguments, *end = call_end(r->sql + place, &arguments);
  if (!end || !arguments) return BR_OK;
  char *call = br_asprintf("%.*s", (int)(end + 1 - r->sql - (ptrdiff_t)place), r->sql + place);
  char *alias = has_alias ? br_strdup("") : br_asprintf(" AS %s", function);
  br_status status = add_text_scan(r, place, (size_t)(end + 1 - r->sql), call, alias, err);
  free(alias);
  free(call);
  return status;
}

static br_status edit_text_scan(rewriting *r, const br_table *t, size_t row, br_error *err) {
  const char *type = br_table_cell(t, row, 0), *place = br_table_cell(t, row, 1), *alias = br_table_cell(t, row, 2);
  const char *name = br_table_cell(t, row, 3), *schema = br_table_cell(t, row, 4), *function = br_table_cell(t, row, 5);
  uint64_t at = place ? strtoull(place, NULL, 10) : UINT64_MAX;
  bool has_alias = alias && *alias;
  if (!type || at >= strlen(r->sql)) return BR_OK;
  if (strcmp(type, "BASE_TABLE") == 0)
    return name && !(schema && *schema) ? text_name(r, at, name, has_alias, err) : BR_OK;
  return function && br_text_is_reader(function) ? text_function(r, at, function, has_alias, err) : BR_OK;
}

br_status br_source_text_scans(br_session *session, const char *sql, char **out, br_error *err) {
  size_t start = select_start(sql);
  rewriting r = {.session = session, .sql = sql + start};
  br_table scans = {0};
  br_status status = BR_OK;
  *out = NULL;
  if (!strcasestr(r.sql, "csv") && !strcasestr(r.sql, "json") && !strcasestr(r.sql, "tsv")) return BR_OK;
  BR_TRY_GOTO(br_text_tree_scans(session, r.sql, &scans, err));
  for (size_t i = 0; i < scans.rows; i++) BR_TRY_GOTO(edit_text_scan(&r, &scans, i, err));
  if (r.n) {
    bool good = false;
    char *edited = apply(&r);
    status = parses(session, edited, &good, err);
    if (status == BR_OK && good) *out = br_asprintf("%.*s%s", (int)start, sql, edited);
    free(edited);
  }
done:
  for (size_t i = 0; i < r.n; i++) free(r.edits[i].text);
  free(r.edits);
  br_table_free(&scans);
  return status;
}

br_status br_source_rewrite(br_session *session, br_source *s, const char *sql, char **out, uint64_t *bytes,
                            br_error *err) {
  size_t start = select_start(sql);
  rewriting r = {.session = session, .source = s, .sql = sql + start};
  br_table scans = {0};
  char *edited = NULL;
  bool good = false;
  br_status status;
  *out = NULL;
  *bytes = 0;
  if (!strcasestr(r.sql, "parquet")) { /* views and tables: no scan stands in the text */
    *out = br_strdup(sql);
    return BR_OK;
  }
  BR_TRY_GOTO(br_text_tree_scans(session, r.sql, &scans, err));
  for (size_t i = 0; i < scans.rows; i++) BR_TRY_GOTO(edit_scan(&r, &scans, i, err));
  *bytes = r.bytes;
  if (r.n) {
    edited = apply(&r);
    BR_TRY_GOTO(parses(session, edited, &good, err));
  }
  *out = good ? br_asprintf("%.*s%s", (int)start, sql, edited) : br_strdup(sql);
done:
  for (size_t i = 0; i < r.n; i++) free(r.edits[i].text);
  free(r.edits);
  free(edited);
  br_table_free(&scans);
  return status;
}
