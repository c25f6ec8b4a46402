/* SPDX-License-Identifier: Apache-2.0
 *
 * read_warc(files, first_byte, last_byte, on_error): a row a WARC record; warc_cuts(file, n): where a file may be cut.
 *
 * The files are a name, a glob or a list of them; globs are resolved when a statement is bound, and plans name the files then. A
 * range goes with one file and starts where a record starts (warc_cuts says where). Threads take files one after the other; the
 * planner makes tasks of ranges. Contents are only kept, payloads only decoded where a column needs them.
 * on_error: 'raise'; 'skip': on to the next record, with a line in the log for each file; 'report': a row with what is wrong in
 * "error", then on to the next record.
 * Order: bind, init, scan from any number of threads. Bounds: ROWS_A_CHUNK records or CHUNK_BYTES of contents a call.
 */
#include "engine/functions.h"

#include "functions/warc.h"
#include <string.h>
#include <strings.h>

enum {
  CHUNK_BYTES = 32 << 20,
  HTTP_HEAD_BYTES = 64 << 10,
  PAYLOAD_BYTES = 256 << 20,
  MAX_FILES = 10000000,
  CUTS_MOST = 65536
};

typedef enum column_id {
  RECORD_ID,
  TYPE,
  TARGET_URI,
  DATE,
  CONTENT_TYPE,
  HTTP_STATUS,
  HTTP_CONTENT_TYPE,
  CONTENT_LENGTH,
  HEADERS,
  CONTENT,
  PAYLOAD,
  FILE_NAME,
  OFFSET,
  ERROR_TEXT,
  N_COLUMNS
} column_id;

static const struct {
  const char *name;
  duckdb_type type;
} columns[N_COLUMNS] = {
    [RECORD_ID] = {"record_id", DUCKDB_TYPE_VARCHAR},
    [TYPE] = {"type", DUCKDB_TYPE_VARCHAR},
    [TARGET_URI] = {"target_uri", DUCKDB_TYPE_VARCHAR},
    [DATE] = {"date", DUCKDB_TYPE_TIMESTAMP},
    [CONTENT_TYPE] = {"content_type", DUCKDB_TYPE_VARCHAR},
    [HTTP_STATUS] = {"http_status", DUCKDB_TYPE_INTEGER},
    [HTTP_CONTENT_TYPE] = {"http_content_type", DUCKDB_TYPE_VARCHAR},
    [CONTENT_LENGTH] = {"content_length", DUCKDB_TYPE_BIGINT},
    [HEADERS] = {"warc_headers", DUCKDB_TYPE_MAP},
    [CONTENT] = {"content", DUCKDB_TYPE_BLOB},
    [PAYLOAD] = {"payload", DUCKDB_TYPE_BLOB},
    [FILE_NAME] = {"file", DUCKDB_TYPE_VARCHAR},
    [OFFSET] = {"offset", DUCKDB_TYPE_BIGINT},
    [ERROR_TEXT] = {"error", DUCKDB_TYPE_VARCHAR},
};

typedef enum on_error { RAISE, SKIP, REPORT } on_error;

/* What a statement's plan knows. */
typedef struct archive_list {
  char **files;
  size_t n_files, capacity;
  uint64_t first, end;
  on_error on_error;
} archive_list;

/* What the threads of one scan share. */
typedef struct shared {
  atomic_size_t next_file;
  size_t n;
  uint64_t ids[N_COLUMNS];
  idx_t place[N_COLUMNS]; /* in the chunk; INVALID: not wanted */
  size_t wanted;          /* bytes of contents */
} shared;
#define NOWHERE ((idx_t)-1)

typedef struct cursor {
  br_warc_source source;
  br_warc *reader;
  const char *file;
  uint64_t skipped;
  br_buf payload;
} cursor;

/* ---- bind */

static void list_free(void *p) {
  archive_list *l = p;
  for (size_t i = 0; i < l->n_files; i++) free(l->files[i]);
  free(l->files);
  free(l);
}

static br_status add_file(archive_list *l, const char *path, br_error *err) {
  if (l->n_files == MAX_FILES)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "read_warc of more than %d files", MAX_FILES);
  br_grow((void **)&l->files, &l->capacity, l->n_files, sizeof *l->files);
  l->files[l->n_files++] = br_strdup(path);
  return BR_OK;
}

/* A name, or what DuckDB's glob() finds, by name. On a connection of its own and past the gate: the statement that is being bound
 * holds that already. */
static br_status add_pattern(br_engine *e, archive_list *l, const char *pattern, br_error *err) {
  br_buf sql = {0};
  duckdb_connection con = NULL;
  duckdb_result found;
  if (strstr(pattern, "://"))
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "read_warc reads files, not %s: download it first", pattern);
  if (!strpbrk(pattern, "*?[")) return add_file(l, pattern, err);
  if (duckdb_connect(e->db, &con) != DuckDBSuccess)
    return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "cannot connect to DuckDB");
  br_buf_str(&sql, "SELECT file FROM glob(");
  br_buf_sql_literal(&sql, pattern, strlen(pattern));
  br_buf_str(&sql, ") ORDER BY file");
  br_status status = BR_OK;
  if (duckdb_query(con, br_buf_cstr(&sql), &found) != DuckDBSuccess)
    status = br_fail(err, BR_IO, BR_BLAME_USER, "listing %s: %s", pattern, duckdb_result_error(&found));
  idx_t n = status == BR_OK ? duckdb_row_count(&found) : 0;
  if (status == BR_OK && !n) status = br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "no file matches %s", pattern);
  for (idx_t i = 0; status == BR_OK && i < n; i++) {
    char *file = duckdb_value_varchar(&found, 0, i);
    status = add_file(l, file ? file : "", err);
    duckdb_free(file);
  }
  duckdb_destroy_result(&found);
  duckdb_disconnect(&con);
  br_buf_free(&sql);
  return status;
}

static br_status add_value(br_engine *e, archive_list *l, duckdb_value v, bool literal, br_error *err) {
  if (!v || duckdb_is_null_value(v)) return br_fail(err, BR_INVALID, BR_BLAME_USER, "read_warc: a file name is NULL");
  char *text = duckdb_get_varchar(v);
  br_status status = literal ? add_file(l, text, err) : add_pattern(e, l, text, err);
  duckdb_free(text);
  return status;
}

static br_status add_values(br_engine *e, archive_list *l, duckdb_value v, bool literal, br_error *err) {
  br_status status = BR_OK;
  if (duckdb_is_null_value(v) || duckdb_get_type_id(duckdb_get_value_type(v)) != DUCKDB_TYPE_LIST)
    return add_value(e, l, v, literal, err);
  idx_t n = duckdb_get_list_size(v);
  for (idx_t i = 0; i < n && status == BR_OK; i++) {
    duckdb_value one = duckdb_get_list_child(v, i);
    status = add_value(e, l, one, literal, err);
    duckdb_destroy_value(&one);
  }
  return status;
}

/* True if it was given. */
static bool number(duckdb_bind_info info, const char *name, uint64_t *out) {
  duckdb_value v = duckdb_bind_get_named_parameter(info, name);
  bool given = v && !duckdb_is_null_value(v);
  if (given) *out = duckdb_get_uint64(v);
  if (v) duckdb_destroy_value(&v);
  return given;
}

static br_status error_mode(duckdb_bind_info info, on_error *out, br_error *err) {
  duckdb_value v = duckdb_bind_get_named_parameter(info, "on_error");
  br_status status = BR_OK;
  *out = RAISE;
  if (v && !duckdb_is_null_value(v)) {
    char *text = duckdb_get_varchar(v);
    if (!strcmp(text, "skip"))
      *out = SKIP;
    else if (!strcmp(text, "report"))
      *out = REPORT;
    else if (strcmp(text, "raise") != 0)
      status = br_fail(err, BR_INVALID, BR_BLAME_USER,
                       "read_warc: on_error is 'raise', 'skip' or 'report', not '%.60s'", text);
    duckdb_free(text);
  }
  if (v) duckdb_destroy_value(&v);
  return status;
}

static br_status bind_list(duckdb_bind_info info, archive_list *l, br_error *err) {
  br_engine *e = duckdb_bind_get_extra_info(info);
  duckdb_value v = duckdb_bind_get_parameter(info, 0), exact = duckdb_bind_get_named_parameter(info, "exact_names");
  bool literal = exact && !duckdb_is_null_value(exact) && duckdb_get_bool(exact);
  br_status status = add_values(e, l, v, literal, err);
  duckdb_destroy_value(&v);
  if (exact) duckdb_destroy_value(&exact);
  BR_TRY(status);
  l->end = UINT64_MAX;
  bool range = number(info, "first_byte", &l->first);
  range |= number(info, "last_byte", &l->end);
  if (range && l->n_files != 1)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "read_warc: a range of bytes goes with one file, not %zu",
                   l->n_files);
  if (range && l->end != UINT64_MAX) l->end++;
  return error_mode(info, &l->on_error, err);
}

static duckdb_logical_type column_type(size_t i) {
  if (columns[i].type != DUCKDB_TYPE_MAP) return duckdb_create_logical_type(columns[i].type);
  duckdb_logical_type text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR), map = duckdb_create_map_type(text, text);
  duckdb_destroy_logical_type(&text);
  return map;
}

static void bind(duckdb_bind_info info) {
  archive_list *l = br_calloc(1, sizeof *l);
  br_error err;
  duckdb_bind_set_bind_data(info, l, list_free);
  if (bind_list(info, l, &err) != BR_OK) {
    duckdb_bind_set_error(info, err.message);
    return;
  }
  for (size_t i = 0; i < N_COLUMNS; i++) {
    duckdb_logical_type t = column_type(i);
    duckdb_bind_add_result_column(info, columns[i].name, t);
    duckdb_destroy_logical_type(&t);
  }
}

/* ---- init */

static void init(duckdb_init_info info) {
  const archive_list *l = duckdb_init_get_bind_data(info);
  shared *sh = br_calloc(1, sizeof *sh);
  duckdb_init_set_init_data(info, sh, free);
  for (size_t i = 0; i < N_COLUMNS; i++) sh->place[i] = NOWHERE;
  idx_t n = duckdb_init_get_column_count(info);
  for (idx_t i = 0; i < n; i++) {
    idx_t id = duckdb_init_get_column_index(info, i);
    if (id < N_COLUMNS) sh->place[id] = i; /* others are virtual: count(*) */
  }
  if (sh->place[HTTP_STATUS] != NOWHERE || sh->place[HTTP_CONTENT_TYPE] != NOWHERE) sh->wanted = HTTP_HEAD_BYTES;
  if (sh->place[CONTENT] != NOWHERE || sh->place[PAYLOAD] != NOWHERE) sh->wanted = SIZE_MAX;
  duckdb_init_set_max_threads(info, l->n_files ? l->n_files : 1);
}

static void close_file(cursor *c) {
  if (c->skipped) br_log(BR_LOG_WARN, "%s: %llu damaged places skipped", c->file, (unsigned long long)c->skipped);
  br_warc_close(c->reader);
  if (c->file) br_warc_file_close(&c->source);
  c->reader = NULL;
  c->file = NULL;
  c->skipped = 0;
}

static void cursor_free(void *p) {
  cursor *c = p;
  close_file(c);
  br_buf_free(&c->payload);
  free(c);
}

static void local_init(duckdb_init_info info) {
  duckdb_init_set_init_data(info, br_calloc(1, sizeof(cursor)), cursor_free);
}

/* ---- rows */

static bool is_utf8(const char *p, size_t n) {
  duckdb_error_data e = duckdb_valid_utf8_check(p, n);
  bool good = e == NULL || !duckdb_error_data_has_error(e);
  if (e) duckdb_destroy_error_data(&e);
  return good;
}

static void put_text(duckdb_data_chunk out, const shared *sh, column_id id, idx_t row, br_warc_text t, bool blob) {
  if (sh->place[id] == NOWHERE) return;
  duckdb_vector v = duckdb_data_chunk_get_vector(out, sh->place[id]);
  if (!t.p || (!blob && !is_utf8(t.p, t.n)))
    br_set_null(v, row);
  else
    duckdb_vector_assign_string_element_len(v, row, t.p, t.n);
}

static void put_number(duckdb_data_chunk out, const shared *sh, column_id id, idx_t row, bool there, int64_t value) {
  if (sh->place[id] == NOWHERE) return;
  duckdb_vector v = duckdb_data_chunk_get_vector(out, sh->place[id]);
  if (!there)
    br_set_null(v, row);
  else if (columns[id].type == DUCKDB_TYPE_INTEGER)
    ((int32_t *)duckdb_vector_get_data(v))[row] = (int32_t)value;
  else
    ((int64_t *)duckdb_vector_get_data(v))[row] = value;
}

static bool same_name(br_warc_text a, br_warc_text b) { return a.n == b.n && !strncasecmp(a.p, b.p, a.n); }

/* A map has each key once: the values of a header that is repeated are joined. */
static void put_headers(duckdb_data_chunk out, const shared *sh, idx_t row, const br_warc_record *rec) {
  if (sh->place[HEADERS] == NOWHERE) return;
  duckdb_vector v = duckdb_data_chunk_get_vector(out, sh->place[HEADERS]), entry = duckdb_list_vector_get_child(v);
  duckdb_list_entry *list = (duckdb_list_entry *)duckdb_vector_get_data(v) + row;
  idx_t at = duckdb_list_vector_get_size(v);
  br_buf value = {0};
  duckdb_list_vector_reserve(v, at + rec->n_headers);
  duckdb_vector keys = duckdb_struct_vector_get_child(entry, 0), values = duckdb_struct_vector_get_child(entry, 1);
  list->offset = at;
  for (size_t i = 0; i < rec->n_headers; i++) {
    bool seen = false;
    br_warc_text name = rec->headers[i].name;
    for (size_t k = 0; k < i && !seen; k++) seen = same_name(rec->headers[k].name, name);
    if (seen || !is_utf8(name.p, name.n)) continue;
    br_buf_clear(&value);
    for (size_t k = i; k < rec->n_headers; k++) {
      if (!same_name(rec->headers[k].name, name)) continue;
      if (k > i) br_buf_str(&value, ", ");
      br_buf_add(&value, rec->headers[k].value.p, rec->headers[k].value.n);
    }
    duckdb_vector_assign_string_element_len(keys, at, name.p, name.n);
    if (is_utf8(br_buf_cstr(&value), value.len))
      duckdb_vector_assign_string_element_len(values, at, br_buf_cstr(&value), value.len);
    else
      br_set_null(values, at);
    at++;
  }
  list->length = at - list->offset;
  duckdb_list_vector_set_size(v, at);
  br_buf_free(&value);
}

static bool starts_http(br_warc_text type) { return type.n >= 16 && !strncasecmp(type.p, "application/http", 16); }

/* Status, type and body of an HTTP response; of anything else the payload is the content. */
static void put_http(duckdb_data_chunk out, const shared *sh, cursor *c, idx_t row, const br_warc_record *rec) {
  br_http h = {0};
  bool http = starts_http(br_warc_get(rec, "Content-Type")) && rec->content_kept &&
              br_http_parse(rec->content, rec->content_kept, &h);
  put_number(out, sh, HTTP_STATUS, row, http, h.status);
  put_text(out, sh, HTTP_CONTENT_TYPE, row, h.content_type, false);
  if (sh->place[PAYLOAD] == NOWHERE) return;
  br_warc_text body = {rec->content ? rec->content : "", rec->content_kept};
  if (http && br_http_body(&h, rec->content, rec->content_kept, PAYLOAD_BYTES, &c->payload))
    body = (br_warc_text){br_buf_cstr(&c->payload), c->payload.len};
  else if (http)
    body = (br_warc_text){rec->content + h.body, rec->content_kept - h.body};
  put_text(out, sh, PAYLOAD, row, body, true);
}

static void put_record(duckdb_data_chunk out, const shared *sh, cursor *c, idx_t row, const br_warc_record *rec) {
  int64_t us = 0;
  bool dated = br_warc_date(br_warc_get(rec, "WARC-Date"), &us);
  put_text(out, sh, RECORD_ID, row, br_warc_get(rec, "WARC-Record-ID"), false);
  put_text(out, sh, TYPE, row, br_warc_get(rec, "WARC-Type"), false);
  put_text(out, sh, TARGET_URI, row, br_warc_get(rec, "WARC-Target-URI"), false);
  put_number(out, sh, DATE, row, dated, us);
  put_text(out, sh, CONTENT_TYPE, row, br_warc_get(rec, "Content-Type"), false);
  put_number(out, sh, CONTENT_LENGTH, row, true, (int64_t)rec->content_length);
  put_headers(out, sh, row, rec);
  if (sh->wanted) put_http(out, sh, c, row, rec);
  put_text(out, sh, CONTENT, row, (br_warc_text){rec->content ? rec->content : "", rec->content_kept}, true);
  put_text(out, sh, FILE_NAME, row, (br_warc_text){c->file, strlen(c->file)}, false);
  put_number(out, sh, OFFSET, row, true, (int64_t)rec->offset);
  put_text(out, sh, ERROR_TEXT, row, (br_warc_text){NULL, 0}, false);
}

/* All NULL but the place and what is wrong there. */
static void put_damage(duckdb_data_chunk out, const shared *sh, const cursor *c, idx_t row, const br_error *err) {
  for (size_t i = 0; i < N_COLUMNS; i++)
    if (sh->place[i] != NOWHERE) br_set_null(duckdb_data_chunk_get_vector(out, sh->place[i]), row);
  struct {
    column_id id;
    const char *text;
  } texts[] = {{FILE_NAME, c->file}, {ERROR_TEXT, err->message}};
  for (size_t i = 0; i < 2; i++) {
    if (sh->place[texts[i].id] == NOWHERE) continue;
    duckdb_vector v = duckdb_data_chunk_get_vector(out, sh->place[texts[i].id]);
    duckdb_validity_set_row_valid(duckdb_vector_get_validity(v), row);
    duckdb_vector_assign_string_element(v, row, texts[i].text);
  }
  if (sh->place[OFFSET] == NOWHERE) return;
  duckdb_vector v = duckdb_data_chunk_get_vector(out, sh->place[OFFSET]);
  duckdb_validity_set_row_valid(duckdb_vector_get_validity(v), row);
  ((int64_t *)duckdb_vector_get_data(v))[row] = (int64_t)br_warc_offset(c->reader);
}

/* The next file of the scan into c; *more false: all are taken. */
static br_status next_file(const archive_list *l, shared *sh, cursor *c, bool *more, br_error *err) {
  close_file(c);
  size_t i = atomic_fetch_add(&sh->next_file, 1);
  *more = i < l->n_files;
  if (!*more) return BR_OK;
  BR_TRY(br_warc_file_open(l->files[i], &c->source, err));
  c->file = l->files[i];
  c->reader = br_warc_open(&c->source, l->first, l->end);
  return BR_OK;
}

/* One record, or one damaged place, into the row; *put false: nothing came of it. */
static br_status one_row(const archive_list *l, const shared *sh, cursor *c, duckdb_data_chunk out, idx_t row,
                         bool *put, bool *more, size_t *bytes, br_error *err) {
  br_warc_record rec;
  *put = false;
  br_status status = br_warc_next(c->reader, sh->wanted, &rec, more, err);
  if (status == BR_OK) {
    *put = *more;
    if (*more) put_record(out, sh, c, row, &rec);
    if (*more) *bytes += rec.content_kept;
    return BR_OK;
  }
  if (status != BR_CORRUPT || l->on_error == RAISE) return status;
  *more = true;
  *put = l->on_error == REPORT;
  if (*put) put_damage(out, sh, c, row, err);
  c->skipped++;
  return br_warc_resume(c->reader, err);
}

static void scan_rows(duckdb_function_info info, duckdb_data_chunk out) {
  const archive_list *l = duckdb_function_get_bind_data(info);
  shared *sh = duckdb_function_get_init_data(info);
  cursor *c = duckdb_function_get_local_init_data(info);
  idx_t rows = 0, most = duckdb_vector_size();
  size_t bytes = 0;
  br_status status = BR_OK;
  br_error err;
  while (rows < most && bytes < CHUNK_BYTES && status == BR_OK) {
    bool more = false, put = false;
    if (c->reader) status = one_row(l, sh, c, out, rows, &put, &more, &bytes, &err);
    rows += put;
    if (status != BR_OK || more) continue;
    if (rows && c->reader) { /* a chunk for each file: none waits for the next file's first record */
      close_file(c);
      break;
    }
    status = next_file(l, sh, c, &more, &err);
    if (status == BR_OK && !more) break;
  }
  if (status != BR_OK) {
    duckdb_function_set_error(info, err.message);
    return;
  }
  duckdb_data_chunk_set_size(out, rows);
}

/* ---- warc_cuts(file, n) */

typedef struct cuts {
  uint64_t *at;
  uint32_t n, next;
} cuts;

static void cuts_free(void *p) {
  cuts *c = p;
  free(c->at);
  free(c);
}

static br_status find_cuts(const char *file, int64_t n, cuts *c, br_error *err) {
  br_warc_source s = {0};
  if (n < 1 || n > CUTS_MOST) return br_fail(err, BR_INVALID, BR_BLAME_USER, "warc_cuts: 1 to %d parts", CUTS_MOST);
  c->at = br_calloc((size_t)n, sizeof *c->at);
  BR_TRY(br_warc_file_open(file, &s, err));
  br_status status = br_warc_cuts(&s, (uint32_t)n, c->at, &c->n, err);
  br_warc_file_close(&s);
  return status;
}

static void cuts_bind(duckdb_bind_info info) {
  duckdb_logical_type bigint = duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
  duckdb_value file = duckdb_bind_get_parameter(info, 0), n = duckdb_bind_get_parameter(info, 1);
  cuts *c = br_calloc(1, sizeof *c);
  br_error err;
  duckdb_bind_add_result_column(info, "offset", bigint);
  duckdb_destroy_logical_type(&bigint);
  duckdb_bind_set_bind_data(info, c, cuts_free);
  char *text = duckdb_get_varchar(file);
  if (find_cuts(text, duckdb_get_int64(n), c, &err) != BR_OK) duckdb_bind_set_error(info, err.message);
  duckdb_free(text);
  duckdb_destroy_value(&file);
  duckdb_destroy_value(&n);
}

static void cuts_init(duckdb_init_info info) {
  duckdb_init_set_init_data(info, br_calloc(1, sizeof(uint32_t)), free);
  duckdb_init_set_max_threads(info, 1);
}

static void cuts_rows(duckdb_function_info info, duckdb_data_chunk out) {
  const cuts *c = duckdb_function_get_bind_data(info);
  uint32_t *next = duckdb_function_get_init_data(info);
  int64_t *data = duckdb_vector_get_data(duckdb_data_chunk_get_vector(out, 0));
  idx_t rows = 0, most = duckdb_vector_size();
  while (rows < most && *next < c->n) data[rows++] = (int64_t)c->at[(*next)++];
  duckdb_data_chunk_set_size(out, rows);
}

/* ---- registering */

static void add_named(duckdb_table_function f, const char *name, duckdb_type type) {
  duckdb_logical_type t = duckdb_create_logical_type(type);
  duckdb_table_function_add_named_parameter(f, name, t);
  duckdb_destroy_logical_type(&t);
}

static void add_positional(duckdb_table_function f, duckdb_type type) {
  duckdb_logical_type t = duckdb_create_logical_type(type);
  duckdb_table_function_add_parameter(f, t);
  duckdb_destroy_logical_type(&t);
}

static br_status take(br_engine *e, duckdb_table_function f, const char *name, br_error *err) {
  duckdb_table_function_set_name(f, name);
  duckdb_state state = duckdb_register_table_function(e->helper, f);
  duckdb_destroy_table_function(&f);
  if (state == DuckDBSuccess) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the table function %s", name);
}

br_status br_warc_register(br_engine *e, br_error *err) {
  duckdb_table_function f = duckdb_create_table_function();
  add_positional(f, DUCKDB_TYPE_ANY);
  add_named(f, "first_byte", DUCKDB_TYPE_UBIGINT);
  add_named(f, "last_byte", DUCKDB_TYPE_UBIGINT);
  add_named(f, "on_error", DUCKDB_TYPE_VARCHAR);
  add_named(f, "exact_names", DUCKDB_TYPE_BOOLEAN);
  duckdb_table_function_set_extra_info(f, e, NULL);
  duckdb_table_function_set_bind(f, bind);
  duckdb_table_function_set_init(f, init);
  duckdb_table_function_set_local_init(f, local_init);
  duckdb_table_function_set_function(f, scan_rows);
  duckdb_table_function_supports_projection_pushdown(f, true);
  BR_TRY(take(e, f, "read_warc", err));
  f = duckdb_create_table_function();
  add_positional(f, DUCKDB_TYPE_VARCHAR);
  add_positional(f, DUCKDB_TYPE_BIGINT);
  duckdb_table_function_set_bind(f, cuts_bind);
  duckdb_table_function_set_init(f, cuts_init);
  duckdb_table_function_set_function(f, cuts_rows);
  return take(e, f, "warc_cuts", err);
}
