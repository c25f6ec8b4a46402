/* SPDX-License-Identifier: Apache-2.0
 * The course of a COPY … TO.
 *
 * A directory: the tasks of the query's last stage write their own files below the staging directory (executor/files.c) and their
 * outputs are lists of files; what the lists of the committed attempts name is moved in by the commit. One file: rows come here and
 * this process's DuckDB writes them. A query that runs in this process writes the same files under the same names.
 *
 * Order: start, next until NULL, free. Threads: the session's; cancel from any. Bounds: memory is O(files). */
#include "coordinator/sinks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/copy_text.h"
#include "coordinator/sink_list.h"
#include "engine/files.h"

#define ROW_GROUP_ROWS 122880u /* DuckDB's */
#define ROW_GROUP_STEP 2048u   /* it counts in these */
#define LOCAL_ATTEMPT "local"  /* directory of what this process writes */

struct br_copying {
  brant_session *session;
  br_prepared *plan; /* borrowed */
  br_session *aside; /* writes, while others use the session's own connection; NULL: that one has to */
  br_copy_text text;
  br_sink *sink; /* NULL: a target that is no file (a pipe, a device), or the end */
  char id[20];
  br_rows *rows; /* distributed */
  br_sink_list list;
  uint32_t part;     /* whose list is being read, */
  size_t part_start; /* and where it begins in ours */
  br_schema *schema;
  _Atomic bool cancelled, writing; /* writing: this process's DuckDB is at it */
  _Atomic uint64_t rows_written;
  bool done, over;          /* tried; committed */
  bool counts, counts_left; /* it answers with the number of rows; once */
};

static br_session *writer(const br_copying *c) { return c->aside != NULL ? c->aside : c->session->db; }

/* ---- start */

static br_status check_place(const br_copying *c, br_error *err) {
  const char *target = c->text.target;
  struct stat st;
  if (target[0] == 0) return br_fail(err, BR_INVALID, BR_BLAME_USER, "COPY has no target: its name is empty");
  if (!c->text.directory && stat(target, &st) == 0 && S_ISDIR(st.st_mode))
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "%s is a directory: end its name with a slash to write files into it, one a task", target);
  return BR_OK;
}

/* With httpfs DuckDB in this process does it, as one file or several, without our commit. */
static br_status check_object_store(brant_session *s, const char *target, bool *theirs, br_error *err) {
  br_table t;
  *theirs = false;
  if (strstr(target, "://") == NULL) return BR_OK;
  BR_TRY(
      br_session_table(s->db, "SELECT 1 FROM duckdb_extensions() WHERE extension_name = 'httpfs' AND loaded", &t, err));
  *theirs = t.rows > 0;
  br_table_free(&t);
  if (*theirs) return BR_OK;
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                 "COPY to %s: object stores are not a target yet; COPY to a directory that all workers share, or LOAD "
                 "httpfs to let this process write it alone",
                 target);
}

static bool is_special(const char *target) {
  struct stat st;
  return stat(target, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static br_status open_sink(br_copying *c, br_error *err) {
  const br_copy_text *t = &c->text;
  if (t->directory) return br_sink_open(t->target, t->mode, c->id, &c->sink, err);
  if (is_special(t->target)) return BR_OK;
  const char *slash = strrchr(t->target, '/');
  char *dir =
      slash == NULL ? br_strdup(".") : br_strndup(t->target, slash == t->target ? 1 : (size_t)(slash - t->target));
  br_status status = br_sink_open(dir, BR_SINK_REPLACE, c->id, &c->sink, err);
  free(dir);
  return status;
}

void br_sink_columns(const br_query *q, const br_stage *last, br_buf *b) {
  for (size_t i = 0; i < last->n_columns; i++) {
    const char *type = q->types[i];
    bool cast = strcmp(type, last->types[i]) != 0; /* enums are stored as VARCHAR */
    br_buf_printf(b, cast ? "%sCAST(c%zu AS %s) AS " : "%sc%zu AS ", i ? ", " : "", i, type);
    br_buf_sql_ident(b, q->names[i]);
  }
}

/* Bytes that a value takes in a Parquet file, more or less: half of what it takes in memory. */
static uint64_t column_bytes(const char *type) {
  static const struct {
    const char *type;
    uint64_t bytes;
  } some[] = {{"BOOLEAN", 1},  {"TINYINT", 1}, {"UTINYINT", 1}, {"SMALLINT", 1}, {"USMALLINT", 1}, {"INTEGER", 2},
              {"UINTEGER", 2}, {"FLOAT", 2},   {"DATE", 2},     {"BIGINT", 4},   {"UBIGINT", 4},   {"DOUBLE", 4}};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++)
    if (strcmp(type, some[i].type) == 0) return some[i].bytes;
  if (strncmp(type, "DECIMAL", 7) == 0 || strncmp(type, "TIME", 4) == 0) return 4;
  return strpbrk(type, "[(") != NULL ? 32 : 8; /* nested; text */
}

/* A file can't be smaller than a row group: where small files are asked for, a quarter of one. */
static br_status choose_row_groups(br_copying *c, br_error *err) {
  const br_query *q = c->plan->query;
  uint64_t row_bytes = 0;
  if (c->text.file_bytes == 0) return BR_OK;
  if (q != NULL) {
    for (size_t i = 0; i < q->n_columns; i++) row_bytes += column_bytes(q->types[i]);
  } else {
    br_table t;
    char *sql = br_asprintf("SELECT column_type FROM (DESCRIBE %s\n)", c->plan->sql);
    br_status status = br_session_table(c->session->db, sql, &t, err);
    free(sql);
    BR_TRY(status);
    for (size_t i = 0; i < t.rows; i++) row_bytes += column_bytes(br_table_cell(&t, i, 0));
    br_table_free(&t);
  }
  uint64_t rows = c->text.file_bytes / 4 / (row_bytes > 0 ? row_bytes : 1) / ROW_GROUP_STEP * ROW_GROUP_STEP;
  if (rows >= ROW_GROUP_ROWS) return BR_OK;
  if (rows < ROW_GROUP_STEP) rows = ROW_GROUP_STEP;
  char *options = br_asprintf("%s%sROW_GROUP_SIZE %" PRIu64, c->text.options, c->text.options[0] ? ", " : "", rows);
  free(c->text.options);
  c->text.options = options;
  return BR_OK;
}

/* The last stage writes files; its output is their list. */
static void make_sink_stage(br_copying *c) {
  br_query *q = c->plan->query;
  br_arena *a = q->stages->arena;
  br_stage *last = &q->stages->stages[q->n_runs - 1];
  br_buf b = {0};
  br_buf_str(&b, "SELECT ");
  br_sink_columns(q, last, &b);
  br_buf_printf(&b, " FROM (%s\n) AS brant_sink(", last->sql);
  for (size_t i = 0; i < last->n_columns; i++) br_buf_printf(&b, "%sc%zu", i ? ", " : "", i);
  br_buf_char(&b, ')');
  last->sql = br_arena_strdup(a, br_buf_cstr(&b));
  br_buf_free(&b);
  last->types = br_arena_alloc(a, BR_SINK_LIST_COLUMNS * sizeof *last->types);
  memcpy(last->types, br_sink_list_types, BR_SINK_LIST_COLUMNS * sizeof *last->types);
  last->n_columns = BR_SINK_LIST_COLUMNS;
  Brant__Pb__Sink *k = q->sink = br_arena_alloc(a, sizeof *k);
  brant__pb__sink__init(k);
  k->format = br_arena_strdup(a, c->text.format);
  k->options = br_arena_strdup(a, c->text.options);
  k->staging_dir = br_arena_strdup(a, br_sink_staging(c->sink));
  k->extension = br_arena_strdup(a, c->text.extension);
  k->partitioned = c->text.partitioned;
  k->split = c->text.split;
  k->quote = (unsigned char)c->text.quote;
  k->escape = (unsigned char)c->text.escape;
  k->header = c->text.header;
}

static br_status start_query(br_copying *c, br_error *err) {
  br_query *q = c->plan->query;
  if (c->text.directory) make_sink_stage(c);
  BR_TRY(br_session_check_interrupt(c->session, err));
  BR_TRY(br_shared_open(q, br_session_shared_dir(c->session), err));
  br_driver_submit(c->session->driver, q);
  return br_rows_open(c->session, q, &c->rows, err);
}

br_status br_copying_start(brant_session *s, const char *sql, br_prepared *plan, br_copying **out, br_error *err) {
  br_copying *c = br_calloc(1, sizeof *c);
  br_status status;
  bool ours = false, theirs = false;
  c->session = s;
  c->plan = plan;
  *out = NULL;
  BR_TRY_GOTO(br_copy_parse(sql, &ours, &c->text, err));
  if (!ours) goto done;
  BR_TRY_GOTO(check_object_store(s, c->text.target, &theirs, err));
  if (theirs) goto done;
  BR_TRY_GOTO(br_session_at_home(s, &c->text.target, err));
  snprintf(c->id, sizeof c->id, "%" PRIx64, s->query_base | ++s->next_query);
  BR_TRY_GOTO(check_place(c, err));
  BR_TRY_GOTO(open_sink(c, err));
  BR_TRY_GOTO(br_prepare(s, c->text.select, false, plan, err));
  BR_TRY_GOTO(br_sink_list_schema(s->db, c->text.partitioned, &c->schema, err));
  BR_TRY_GOTO(choose_row_groups(c, err));
  BR_TRY_GOTO(br_session_aside(s, plan, &c->aside, err));
  if (!plan->local) BR_TRY_GOTO(start_query(c, err));
  *out = c;
  c = NULL;
done:
  br_copying_free(c);
  return status;
}

br_schema *br_copying_schema(br_copying *c) { return c->schema; }

br_status br_copying_count(br_copying *c, br_error *err) {
  static const char *const types[] = {"BIGINT"}, *const names[] = {"Count"};
  c->counts = c->counts_left = true;
  br_schema_unref(c->schema);
  c->schema = NULL;
  return br_session_schema(c->session->db, types, names, 1, &c->schema, err);
}

/* ---- one file */

typedef struct source {
  br_copying *copying;
} source;

static br_status next_rows(void *arg, br_batch **out, br_error *err) {
  return br_rows_next(((source *)arg)->copying->rows, out, err);
}

static void stop_rows(void *arg) { br_rows_cancel(((source *)arg)->copying->rows); }

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void add_single_source(const br_copying *c, br_buf *b) {
  if (c->rows == NULL) {
    br_buf_str(b, c->plan->sql);
    return;
  }
  const br_query *q = c->plan->query;
  br_buf_str(b, "SELECT ");
  br_sink_columns(q, q->runs[q->n_runs - 1].plan, b);
  br_buf_str(b, " FROM input(0)");
}

static br_status copy_single(br_copying *c, const char *path, uint64_t *rows, br_error *err) {
  source from = {c};
  br_run_input in = {.number = 0, .ordered = true, .next = next_rows, .cancel = stop_rows, .arg = &from};
  if (c->rows != NULL) in.schema = br_rows_schema(c->rows);
  br_buf b = {0};
  br_buf_str(&b, "COPY (");
  add_single_source(c, &b);
  br_buf_str(&b, "\n) TO ");
  br_buf_sql_literal(&b, path, strlen(path));
  br_buf_printf(&b, " (USE_TMP_FILE false%s%s)", c->text.options[0] ? ", " : "", c->text.options);
  br_copy copy = {.sql = br_buf_cstr(&b), .inputs = &in, .n_inputs = c->rows ? 1 : 0, .ordered = true};
  br_status status = br_session_copy(writer(c), &copy, err);
  *rows = copy.rows;
  br_written_free(copy.files, copy.n_files);
  br_buf_free(&b);
  return status;
}

static br_status sync_file(const char *path, uint64_t *bytes, br_error *err) {
  struct stat st;
  br_status status = BR_OK;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0 || fstat(fd, &st) != 0)
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot write %s", path);
  else
    *bytes = (uint64_t)st.st_size;
  if (fd >= 0) close(fd);
  return status;
}

/* In the staging directory under its own name: DuckDB takes format and compression from names. */
static br_status write_single(br_copying *c, br_error *err) {
  const char *name = base_name(c->text.target);
  uint64_t rows = 0, bytes = 0;
  if (c->sink == NULL) {
    BR_TRY(copy_single(c, c->text.target, &rows, err));
    br_sink_list_add(&c->list, c->text.target, (int64_t)rows, 0);
    return BR_OK;
  }
  char *path = br_asprintf("%s/%s", br_sink_staging(c->sink), name);
  br_status status;
  BR_TRY_GOTO(copy_single(c, path, &rows, err));
  BR_TRY_GOTO(sync_file(path, &bytes, err));
  br_sink_add(c->sink, name, name, bytes);
  br_sink_list_add(&c->list, c->text.target, (int64_t)rows, bytes);
done:
  free(path);
  return status;
}

/* ---- a directory */

static br_status write_here(br_copying *c, const char *sql, br_error *err) {
  char *dir = br_asprintf("%s/" LOCAL_ATTEMPT, br_sink_staging(c->sink));
  br_write w = {.dir = -1};
  br_status status = BR_OK;
  if (mkdir(dir, 0777) != 0 || (w.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot make %s", dir);
    goto done;
  }
  w.sql = sql;
  w.name = dir;
  w.format = c->text.format;
  w.options = c->text.options;
  w.shape = c->text.partitioned ? BR_WRITE_PARTITIONED : c->text.split ? BR_WRITE_SPLIT : BR_WRITE_ONE;
  w.ordered = true;
  w.quote = c->text.quote;
  w.escape = c->text.escape;
  w.header = c->text.header;
  status = br_session_write(writer(c), &w, err);
  for (size_t i = 0; status == BR_OK && i < w.n_files; i++) {
    char *path = br_asprintf(LOCAL_ATTEMPT "/%s", w.files[i].path);
    br_sink_list_add(&c->list, path, w.files[i].rows, w.files[i].bytes);
    free(path);
  }
done:
  br_written_free(w.files, w.n_files);
  if (w.dir >= 0) close(w.dir);
  free(dir);
  return status;
}

/* The output of a task was lost while its list was read: another attempt's comes. */
static void forget_part(void *arg, uint32_t part) {
  br_copying *c = arg;
  if (part == c->part) br_sink_list_cut(&c->list, c->part_start);
}

/* The lists of the attempts that committed, task by task. */
static br_status collect(br_copying *c, br_error *err) {
  br_batch *b = NULL;
  c->part = UINT32_MAX;
  br_rows_set_restart(c->rows, forget_part, c);
  for (;;) {
    BR_TRY(br_rows_next(c->rows, &b, err));
    if (b == NULL) return BR_OK;
    if (br_rows_part(c->rows) != c->part) {
      c->part = br_rows_part(c->rows);
      c->part_start = c->list.n;
    }
    br_status status = br_sink_list_read(&c->list, b, err);
    br_batch_unref(b);
    BR_TRY(status);
  }
}

/* A query whose sources are empty has no task that could have written a file. */
static br_status write_columns(br_copying *c, br_error *err) {
  char *sql = br_asprintf("SELECT * FROM (%s\n) LIMIT 0", c->plan->sql);
  br_status status = write_here(c, sql, err);
  free(sql);
  return status;
}

static br_status write_directory(br_copying *c, br_error *err) {
  const br_query *q = c->plan->query;
  br_sink_names names = {.id = c->id,
                         .extension = c->text.extension,
                         .tasks = q != NULL ? q->runs[q->n_runs - 1].n_tasks : 1,
                         .counted = c->text.partitioned || c->text.split,
                         .keep_empty = c->text.write_empty};
  BR_TRY(c->rows != NULL ? collect(c, err) : write_here(c, c->plan->sql, err));
  if (c->rows != NULL && c->list.n == 0 && !c->text.partitioned && c->text.write_empty) BR_TRY(write_columns(c, err));
  BR_TRY(br_sink_list_place(&c->list, &names, err));
  for (size_t i = 0; i < c->list.n; i++)
    br_sink_add(c->sink, c->list.files[i].staged, c->list.files[i].path, c->list.files[i].bytes);
  return BR_OK;
}

/* ---- the work */

static br_status not_cancelled(br_copying *c, br_error *err) {
  if (!atomic_load(&c->cancelled)) return BR_OK;
  return br_fail(err, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
}

/* DuckDB's messages name files of the staging directory. */
static void name_the_target(const br_copying *c, br_error *err) {
  bool written_here = c->rows == NULL || !c->text.directory;
  if (written_here && err->duckdb_type != 0 && (err->code == BR_IO || err->code == BR_NO_SPACE))
    br_error_context(err, "COPY to %s", c->text.target);
}

static br_status write_all(br_copying *c, br_error *err) {
  BR_TRY(not_cancelled(c, err));
  atomic_store(&c->writing, c->rows == NULL || !c->text.directory);
  br_status status = c->text.directory ? write_directory(c, err) : write_single(c, err);
  atomic_store(&c->writing, false);
  if (status != BR_OK) {
    br_error stopped;
    if (not_cancelled(c, &stopped) != BR_OK) *err = stopped;
    name_the_target(c, err);
    return (br_status)err->code;
  }
  BR_TRY(not_cancelled(c, err));
  return c->sink != NULL ? br_sink_commit(c->sink, err) : BR_OK;
}

/* Tasks first, so that few of them still write into what is removed then. */
static void finish(br_copying *c) {
  br_rows_free(c->rows);
  c->rows = NULL;
  br_sink_free(c->sink);
  c->sink = NULL;
}

/* Once. */
static br_status give_count(br_copying *c, br_batch **out, br_error *err) {
  br_local_stream *st = NULL;
  if (!c->counts_left) return BR_OK;
  c->counts_left = false;
  char *sql = br_asprintf("SELECT %" PRIu64 "::BIGINT AS \"Count\"", br_sink_list_rows(&c->list));
  br_status status = br_session_stream(writer(c), sql, &st, err);
  if (status == BR_OK) status = br_local_stream_next(st, out, err);
  br_local_stream_free(st);
  free(sql);
  return status;
}

br_status br_copying_next(br_copying *c, br_batch **out, br_error *err) {
  *out = NULL;
  if (!c->done) {
    c->done = true;
    br_status status = write_all(c, err);
    finish(c);
    if (status != BR_OK) return status;
    c->over = true;
    atomic_store(&c->rows_written, br_sink_list_rows(&c->list));
  }
  if (c->counts) return give_count(c, out, err);
  return br_sink_list_next(&c->list, writer(c), c->text.partitioned, out, err);
}

void br_copying_cancel(br_copying *c) {
  atomic_store(&c->cancelled, true);
  if (atomic_load(&c->writing)) br_session_cancel(writer(c));
}

bool br_copying_over(const br_copying *c) { return c->over; }

uint64_t br_copying_rows(const br_copying *c) { return atomic_load(&c->rows_written); }

void br_copying_free(br_copying *c) {
  if (c == NULL) return;
  finish(c);
  br_sink_list_free(&c->list);
  br_session_close(c->aside);
  br_schema_unref(c->schema);
  br_copy_text_free(&c->text);
  free(c);
}
