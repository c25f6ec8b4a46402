/* SPDX-License-Identifier: Apache-2.0
 * One statement, as the caller gives it: what it is, and who runs it. Order: parameters of EXECUTE, nodes of ours, then by kind, the last
 * being a SELECT. Threads: the caller's, one at a time a session; its deadline has one. Bounds: none of its own. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/handle.h"
#include "coordinator/stored.h"
#include "coordinator/tokens.h"

/* ---- statements that are not SELECT */

static br_status keep_stream(brant_query *q, br_local_stream *st, br_error *err) {
  br_batch *b = NULL;
  q->schema = br_schema_ref(br_local_stream_schema(st));
  br_status status = BR_OK;
  while ((status = br_local_stream_next(st, &b, err)) == BR_OK && b != NULL) {
    br_grow((void **)&q->kept, &q->cap_kept, q->n_kept, sizeof *q->kept);
    q->kept[q->n_kept++] = b;
  }
  return status;
}

static br_status keep_all(brant_query *q, br_session *on, const char *sql, br_error *err) {
  br_local_stream *st = NULL;
  br_session_join_filters(on, !q->plan.top_n_in_join);
  br_status status = br_session_stream(on, sql, &st, err);
  br_session_join_filters(on, true);
  BR_TRY(status);
  status = keep_stream(q, st, err);
  br_local_stream_free(st);
  return status;
}

static br_status no_columns(br_schema **out, br_error *err) {
  struct ArrowSchema empty;
  ArrowSchemaInit(&empty);
  if (ArrowSchemaSetTypeStruct(&empty, 0) != NANOARROW_OK)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_INTERNAL, "no memory for a schema");
  return br_schema_new(&empty, out, err);
}

static br_status keep_count(brant_query *q, int64_t count, br_error *err) {
  char *sql = br_asprintf("SELECT %lld::BIGINT AS \"Count\"", (long long)count);
  br_status status = keep_all(q, q->session->db, sql, err);
  free(sql);
  return status;
}

/* What DuckDB answers where there is nothing to say: BEGIN, PREPARE. */
static bool says_success(const brant_query *q) {
  const struct ArrowSchema *a = br_schema_arrow(q->schema);
  return q->n_kept == 0 && a->n_children == 1 && strcmp(a->children[0]->name, "Success") == 0;
}

static br_status run_other(brant_query *q, br_statement kind, const char *sql, br_error *err) {
  brant_session *s = q->session;
  br_status status;
  int64_t count = -1;
  if (kind == BR_STMT_DDL || kind == BR_STMT_SETTING || kind == BR_STMT_ATTACH)
    status = br_statement_run(s, kind, sql, &count, err);
  else
    status = keep_all(q, s->db, sql, err);
  if (status == BR_OK && kind == BR_STMT_OTHER && says_success(q)) {
    br_schema_unref(q->schema);
    q->schema = NULL;
  }
  br_transaction_note(s, sql, status == BR_OK);
  if (status == BR_OK) br_prepared_note(s, sql);
  if (status == BR_OK && q->schema == NULL)
    status = count >= 0 ? keep_count(q, count, err) : no_columns(&q->schema, err);
  br_handle_end(q);
  return status;
}

/* INSERT and CREATE TABLE AS whose rows come from workers. *done false: DuckDB shall do it here. */
static br_status run_stored(brant_query *q, br_statement kind, const char *sql, bool *done, br_error *err) {
  br_storing *x = NULL;
  br_local_stream *st = NULL;
  BR_TRY(br_storing_start(q->session, sql, &q->plan, &x, err));
  *done = x != NULL;
  if (x == NULL) return BR_OK;
  br_status status = br_storing_run(x, &st, err);
  if (status == BR_OK) status = keep_stream(q, st, err);
  br_storing_free(x);
  if (kind == BR_STMT_DDL) q->session->has_local_tables = true;
  br_handle_end(q);
  return status;
}

/* ---- SELECT */

static br_status start_local(brant_query *q, br_error *err) {
  br_session *on = NULL;
  BR_TRY(br_session_aside(q->session, &q->plan, &on, err));
  if (on == NULL) return keep_all(q, q->session->db, q->plan.sql, err);
  br_session_join_filters(on, !q->plan.top_n_in_join);
  return br_local_run_start(on, q->plan.sql, &q->run, err);
}

/* EXPLAIN as stages, a row a line. */
static br_status run_explain(brant_query *q, const br_explain_request *x, br_error *err) {
  char *text = NULL;
  BR_TRY(br_explain_text(q->session, x->select, x->analyze, x->json, &text, err));
  size_t n = strlen(text);
  br_buf b = {0};
  br_buf_str(&b, "SELECT unnest(string_split(");
  br_buf_sql_literal(&b, text, n > 0 && text[n - 1] == '\n' ? n - 1 : n);
  br_buf_str(&b, ", chr(10))) AS explain");
  br_status status = keep_all(q, q->session->db, br_buf_cstr(&b), err);
  br_buf_free(&b);
  free(text);
  br_handle_end(q);
  return status;
}

/* Of EXPLAIN's statement: what has stages. *select NULL: nothing. */
static br_status select_of(brant_query *q, const br_explain_request *x, char **select, br_error *err) {
  brant_session *s = q->session;
  br_statement kind;
  *select = NULL;
  BR_TRY(br_prepared_text(s, x->select, select, err));
  const char *sql = *select != NULL ? *select : x->select;
  BR_TRY(br_session_classify(s->db, sql, &kind, err));
  if (kind == BR_STMT_SELECT) {
    if (*select == NULL) *select = br_strdup(sql);
    return BR_OK;
  }
  char *rows = x->analyze ? NULL : br_stored_select(sql); /* with ANALYZE it must be run, too */
  free(*select);
  *select = rows;
  return BR_OK;
}

static br_status explain(brant_query *q, const br_explain_request *x, bool *done, br_error *err) {
  char *text = NULL;
  br_status status = BR_OK;
  *done = false;
  if (x->duckdb) {
    text = br_asprintf("EXPLAIN %s%s", x->analyze ? "ANALYZE " : "", x->select);
    status = run_other(q, BR_STMT_EXPLAIN, text, err);
    *done = true;
  } else if (q->session->options.distribute != BRANT_DISTRIBUTE_NEVER) {
    status = select_of(q, x, &text, err);
    *done = text != NULL;
    if (status == BR_OK && *done) {
      br_explain_request staged = *x;
      staged.select = text;
      status = run_explain(q, &staged, err);
    }
  }
  free(text);
  return status;
}

static br_status start_copying(brant_query *q, const char *sql, bool counts, br_error *err) {
  BR_TRY(br_copying_start(q->session, sql, &q->plan, &q->copying, err));
  if (q->copying == NULL) return BR_OK;
  if (counts) BR_TRY(br_copying_count(q->copying, err));
  q->schema = br_schema_ref(br_copying_schema(q->copying));
  return BR_OK;
}

/* What DuckDB would not understand: temporary tables on the workers, directories as tables. */
static br_status submit_own(brant_query *q, const char *sql, bool *done, br_error *err) {
  char *copy = NULL;
  BR_TRY(br_temp_statement(q->session, sql, done, err));
  if (!*done) BR_TRY(br_stored_copy(q->session, sql, &copy, done, err));
  if (*done) {
    br_handle_end(q);
    return no_columns(&q->schema, err);
  }
  if (copy == NULL) return BR_OK;
  br_status status = start_copying(q, copy, true, err);
  if (status == BR_OK && q->copying == NULL)
    status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "a directory in an object store can't be a table: COPY to it");
  *done = true;
  free(copy);
  return status;
}

/* Planned without another look at it; what is wrong with it is said of the caller's own text. */
static br_status submit_select(brant_query *q, const char *sql, bool seen, br_error *err) {
  br_statement kind;
  br_error own;
  br_error_clear(&own);
  br_status status = br_prepare(q->session, sql, false, &q->plan, err);
  if (status != BR_OK && !seen && err->blame == BR_BLAME_USER && status != BR_CANCELLED &&
      br_session_classify(q->session->db, sql, &kind, &own) != BR_OK) {
    *err = own;
    status = (br_status)own.code;
  }
  BR_TRY(status);
  return q->plan.local ? start_local(q, err) : br_handle_start(q, err);
}

static br_status submit_plain(brant_query *q, const char *sql, br_error *err) {
  br_statement kind;
  br_explain_request x;
  bool done = false;
  if (br_explain_parse(sql, &x)) BR_TRY(explain(q, &x, &done, err));
  if (!done) BR_TRY(submit_own(q, sql, &done, err));
  if (done) return BR_OK;
  BR_TRY(br_session_check_writable(q->session, sql, err));
  if (br_sql_is_select(sql)) return submit_select(q, sql, false, err);
  BR_TRY(br_session_classify(q->session->db, sql, &kind, err));
  if (kind == BR_STMT_COPY) BR_TRY(start_copying(q, sql, false, err));
  if (q->copying != NULL) return BR_OK;
  if (kind == BR_STMT_DDL || kind == BR_STMT_OTHER) BR_TRY(run_stored(q, kind, sql, &done, err));
  if (done) return BR_OK;
  if (kind != BR_STMT_SELECT) return run_other(q, kind, sql, err);
  return submit_select(q, sql, true, err);
}

static br_status submit(brant_query *q, const char *sql, br_error *err) {
  char *prepared = NULL, *text = NULL, *one = br_token_statement(sql);
  if (one == NULL) /* DuckDB would run them all on one connection, and nobody would see what they are */
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "several statements at once: submit one after the other (brant_split takes a script apart)");
  br_status status = br_prepared_text(q->session, one, &prepared, err);
  const char *plain = prepared != NULL ? prepared : one;
  if (status == BR_OK) status = br_node_text(plain, &text, err);
  if (status == BR_OK) status = submit_plain(q, text ? text : plain, err);
  free(text);
  free(prepared);
  free(one);
  return status;
}

/* On the watchdog's thread, until the query has ended. */
static void on_late(void *arg) {
  brant_query *q = arg;
  br_error why;
  br_fail(&why, BR_TIMEOUT, BR_BLAME_USER, "the query did not end within its timeout_ms of %llu",
          (unsigned long long)q->session->settings.timeout_ms);
  pthread_mutex_lock(&q->lock);
  bool ended = q->ended, running = q->running;
  if (!ended && q->late.code == BR_OK) q->late = why;
  pthread_mutex_unlock(&q->lock);
  if (ended) return;
  if (running)
    br_handle_stop(q, &why);
  else
    brant_interrupt(q->session);
}

int brant_submit(brant_session *s, const char *sql, brant_query **out, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  brant_query *q = br_handle_new(s);
  atomic_store(&s->interrupted, false);
  br_status status = BR_OK;
  if (s->settings.timeout_ms > 0) status = br_watchdog_start(s->settings.timeout_ms, on_late, q, &q->watchdog, &e);
  if (status == BR_OK) status = submit(q, sql, &e);
  pthread_mutex_lock(&q->lock);
  q->running = true;
  if (status != BR_OK && q->late.code != BR_OK) e = q->late;
  pthread_mutex_unlock(&q->lock);
  if (status != BR_OK) {
    status = (br_status)e.code;
    br_error_export(&e, err);
    br_handle_unref(q);
    return status;
  }
  *out = q;
  return 0;
}

int brant_submit_params(brant_session *s, const char *sql, const brant_param *params, size_t n, brant_query **out,
                        brant_error *err) {
  char *text = NULL;
  int code = brant_bind(s, sql, params, n, &text, err);
  if (code == 0) code = brant_submit(s, text, out, err);
  brant_free(text);
  return code;
}
