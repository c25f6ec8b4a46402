/* SPDX-License-Identifier: Apache-2.0
 * See stored.h. A table: the statement runs on the caller's connection with its SELECT replaced by the rows as they come, so everything
 * around the SELECT (casts, defaults, constraints, ON CONFLICT, RETURNING, a transaction) is DuckDB's, and so is its atomicity.
 *
 * Order: start, run, read the stream to its end, free. The caller's thread; a cancel comes by the connection's. Bounds: those of
 * result.c and of DuckDB's memory limit here: what goes to a file does not stay in memory. */
#include "coordinator/stored.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/copy_text.h"
#include "coordinator/sinks.h"
#include "coordinator/stored_text.h"

struct br_storing {
  brant_session *session;
  br_prepared *plan; /* borrowed */
  uint64_t id;       /* of the query; 0: not submitted */
  br_rows *rows;
  br_run_input input;
  char *sql;
  br_local_stream *stream;
};

static br_status next_rows(void *arg, br_batch **out, br_error *err) { return br_rows_next(arg, out, err); }
static void stop_rows(void *arg) { br_rows_cancel(arg); }

static br_status start_query(br_storing *x, br_error *err) {
  brant_session *s = x->session;
  br_query *q = x->plan->query;
  BR_TRY(br_session_check_interrupt(s, err));
  BR_TRY(br_shared_open(q, br_session_shared_dir(s), err));
  br_driver_submit(s->driver, q);
  atomic_store(&s->awaited,
               x->id = q->id); /* brant_interrupt stops it: DuckDB, which it stops too, waits for these rows */
  BR_TRY(br_rows_open(s, q, &x->rows, err));
  return br_session_check_interrupt(s, err);
}

static char *over_rows(const br_query *q, const char *sql, const br_stored_text *t) {
  br_buf b = {0};
  br_buf_add(&b, sql, t->from);
  br_buf_str(&b, " SELECT ");
  br_sink_columns(q, q->runs[q->n_runs - 1].plan, &b);
  br_buf_str(&b, " FROM input(0) ");
  br_buf_str(&b, sql + t->to);
  return br_buf_take(&b);
}

br_status br_storing_start(brant_session *s, const char *sql, br_prepared *plan, br_storing **out, br_error *err) {
  br_stored_text t;
  br_storing *x = NULL;
  br_status status = BR_OK;
  *out = NULL;
  if (s->options.distribute == BRANT_DISTRIBUTE_NEVER || !br_stored_parse(sql, &t)) return BR_OK;
  if (t.directory != NULL || t.values || t.select == NULL) goto done;
  BR_TRY_GOTO(br_prepare(s, t.select, false, plan, err));
  if (plan->local) {
    br_prepared_free(plan);
    goto done;
  }
  x = br_calloc(1, sizeof *x);
  x->session = s;
  x->plan = plan;
  BR_TRY_GOTO(start_query(x, err));
  x->sql = over_rows(plan->query, sql, &t);
  *out = x;
  x = NULL;
done:
  br_storing_free(x);
  br_stored_text_free(&t);
  return status;
}

br_status br_storing_run(br_storing *x, br_local_stream **out, br_error *err) {
  x->input = (br_run_input){
      .schema = br_rows_schema(x->rows), .ordered = true, .next = next_rows, .cancel = stop_rows, .arg = x->rows};
  BR_TRY(br_session_stream_over(x->session->db, x->sql, &x->input, 1, &x->stream, err));
  *out = x->stream;
  return BR_OK;
}

void br_storing_free(br_storing *x) {
  if (x == NULL) return;
  uint64_t mine = x->id;
  if (mine != 0) atomic_compare_exchange_strong(&x->session->awaited, &mine, 0);
  br_local_stream_free(x->stream);
  br_rows_free(x->rows);
  free(x->sql);
  free(x);
}

char *br_stored_select(const char *sql) {
  br_stored_text t;
  br_copy_text c;
  br_error ignored;
  bool is = false;
  char *select = NULL;
  if (br_stored_parse(sql, &t)) {
    select = t.values || t.select == NULL ? NULL : br_strdup(t.select);
    br_stored_text_free(&t);
  } else if (br_copy_parse(sql, &is, &c, &ignored) == BR_OK && is) {
    select = br_strdup(c.select);
    br_copy_text_free(&c);
  }
  return select;
}

/* ---- a directory */

typedef struct layout {
  bool there;       /* files are in it */
  br_table columns; /* name, type */
  br_buf keys;      /* of its directories, as PARTITION_BY takes them */
} layout;

/* A directory's name as the beginning of a pattern. */
static void add_pattern(br_buf *b, const char *directory) {
  br_buf pattern = {0};
  for (const char *p = directory; *p != 0; p++) {
    bool special = *p == '*' || *p == '?' || *p == '[';
    if (special) br_buf_char(&pattern, '[');
    br_buf_char(&pattern, *p);
    if (special) br_buf_char(&pattern, ']');
  }
  br_buf_str(&pattern, "**/*.parquet");
  br_buf_sql_literal(b, br_buf_cstr(&pattern), pattern.len);
  br_buf_free(&pattern);
}

/* key=value/ … of a file below the directory. */
static void add_keys(br_buf *keys, const char *path) {
  for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
    const char *equals = memchr(path, '=', (size_t)(slash - path));
    if (equals == NULL || equals == path) continue;
    char *name = br_strndup(path, (size_t)(equals - path));
    if (keys->len > 0) br_buf_str(keys, ", ");
    br_buf_sql_ident(keys, name);
    free(name);
  }
}

static br_status look(brant_session *s, const char *directory, layout *out, br_error *err) {
  br_buf b = {0};
  br_table first = {0};
  br_status status;
  br_buf_str(&b, "SELECT min(file) FROM glob(");
  add_pattern(&b, directory);
  br_buf_char(&b, ')');
  BR_TRY_GOTO(br_session_table(s->db, br_buf_cstr(&b), &first, err));
  const char *file = first.rows > 0 ? br_table_cell(&first, 0, 0) : NULL;
  if (file == NULL) goto done;
  out->there = true;
  size_t n = strlen(directory);
  add_keys(&out->keys, strncmp(file, directory, n) == 0 ? file + n : file);
  br_buf_clear(&b);
  br_buf_str(&b, "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet(");
  add_pattern(&b, directory);
  br_buf_printf(&b, ", hive_partitioning := %s, hive_types_autocast := false))", out->keys.len > 0 ? "true" : "false");
  BR_TRY_GOTO(br_session_table(s->db, br_buf_cstr(&b), &out->columns, err));
done:
  br_table_free(&first);
  br_buf_free(&b);
  return status;
}

static void layout_free(layout *l) {
  br_table_free(&l->columns);
  br_buf_free(&l->keys);
}

/* Which column of the SELECT goes there; n: none. */
static size_t source_of(const layout *l, size_t column, const br_stored_text *t, char *const *names, size_t n) {
  const char *name = br_table_cell(&l->columns, column, 0);
  if (!t->by_name && t->columns == NULL) return column;
  for (size_t i = 0; i < n; i++)
    if (strcasecmp(t->by_name ? names[i] : t->columns[i], name) == 0) return i;
  return n;
}

static br_status check_columns(const layout *l, const br_stored_text *t, char *const *names, size_t n, br_error *err) {
  size_t want = t->columns != NULL ? t->n_columns : t->by_name ? n : l->columns.rows;
  if (n != want)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s has %zu columns%s, and the rows have %zu", t->directory, want,
                   t->columns != NULL ? " here" : "", n);
  for (size_t i = 0; i < n && (t->by_name || t->columns != NULL); i++) {
    const char *name = t->by_name ? names[i] : t->columns[i];
    size_t hits = 0;
    for (size_t k = 0; k < l->columns.rows; k++) hits += strcasecmp(br_table_cell(&l->columns, k, 0), name) == 0;
    for (size_t k = 0; k < i; k++) hits += strcasecmp(t->by_name ? names[k] : t->columns[k], name) == 0;
    if (hits != 1)
      return br_fail(
          err, BR_INVALID, BR_BLAME_USER,
          hits == 0 ? "the files in %s have no column \"%.100s\"" : "in %s: the column \"%.100s\" is named twice",
          t->directory, name);
  }
  return BR_OK;
}

/* The rows with the columns, names and types of the files that are there; what isn't given is NULL. */
static br_status add_like(brant_session *s, const layout *l, const br_stored_text *t, br_buf *b, br_error *err) {
  char **names = NULL;
  size_t n = 0;
  br_status status;
  BR_TRY(br_session_names(s->db, t->select, &names, &n, err));
  BR_TRY_GOTO(check_columns(l, t, names, n, err));
  br_buf_str(b, "SELECT ");
  for (size_t i = 0; i < l->columns.rows; i++) {
    size_t from = source_of(l, i, t, names, n);
    br_buf_printf(b, i ? ", CAST(" : "CAST(");
    if (from < n)
      br_buf_printf(b, "c%zu", from);
    else
      br_buf_str(b, "NULL");
    br_buf_printf(b, " AS %s) AS ", br_table_cell(&l->columns, i, 1));
    br_buf_sql_ident(b, br_table_cell(&l->columns, i, 0));
  }
  br_buf_printf(b, " FROM (%s\n) AS brant_rows(", t->select);
  for (size_t i = 0; i < n; i++) br_buf_printf(b, "%sc%zu", i ? ", " : "", i);
  br_buf_char(b, ')');
done:
  br_names_free(names, n);
  return status;
}

/* Rows of a new directory: their own columns, or as the statement calls them. */
static br_status add_new(brant_session *s, const br_stored_text *t, br_buf *b, br_error *err) {
  char **names = NULL;
  size_t n = 0;
  if (t->columns == NULL) {
    br_buf_str(b, t->select);
    return BR_OK;
  }
  BR_TRY(br_session_names(s->db, t->select, &names, &n, err));
  br_names_free(names, n);
  if (n != t->n_columns)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "%zu columns are named, and the rows have %zu", t->n_columns, n);
  br_buf_printf(b, "SELECT * FROM (%s\n) AS brant_rows(", t->select);
  for (size_t i = 0; i < n; i++) {
    if (i > 0) br_buf_str(b, ", ");
    br_buf_sql_ident(b, t->columns[i]);
  }
  br_buf_char(b, ')');
  return BR_OK;
}

static br_status refuse(const br_stored_text *t, br_error *err) {
  const char *why = t->conflict         ? "they have no keys that could conflict"
                    : t->returning      ? "RETURNING needs a table"
                    : t->default_values ? "they have no defaults"
                                        : NULL;
  if (why == NULL) return BR_OK;
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "%s is a directory of files: %s", t->directory, why);
}

br_status br_stored_copy(brant_session *s, const char *sql, char **out, bool *done, br_error *err) {
  br_stored_text t;
  layout l = {0};
  br_buf b = {0};
  br_status status;
  *out = NULL, *done = false;
  if (!br_stored_parse(sql, &t)) return BR_OK;
  if (t.directory == NULL) {
    br_stored_text_free(&t);
    return BR_OK;
  }
  BR_TRY_GOTO(refuse(&t, err));
  BR_TRY_GOTO(look(s, t.directory, &l, err));
  *done = t.create && t.if_not_exists && l.there;
  if (*done) goto done;
  br_buf_str(&b, "COPY (");
  if (!t.create && l.there)
    BR_TRY_GOTO(add_like(s, &l, &t, &b, err));
  else
    BR_TRY_GOTO(add_new(s, &t, &b, err));
  br_buf_str(&b, "\n) TO ");
  br_buf_sql_literal(&b, t.directory, strlen(t.directory));
  br_buf_str(&b, " (FORMAT parquet");
  if (!t.create) br_buf_str(&b, ", APPEND");
  if (t.replace) br_buf_str(&b, ", OVERWRITE");
  if (!t.create && l.keys.len > 0) br_buf_printf(&b, ", PARTITION_BY (%s)", br_buf_cstr(&l.keys));
  br_buf_char(&b, ')');
  *out = br_strdup(br_buf_cstr(&b));
done:
  br_stored_text_free(&t);
  layout_free(&l);
  br_buf_free(&b);
  return status;
}
