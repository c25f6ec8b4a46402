/* SPDX-License-Identifier: Apache-2.0
 * The query side of include/brant.h: one statement becomes a brant_query, its
 * rows an Arrow C stream.
 *
 * Where rows come from: kept batches (statements that are not SELECT), a run in
 * this process (small inputs), or the result outputs of a distributed query.
 * Enums come as VARCHAR, wherever a result was computed. Threads: the caller's;
 * cancel and stats from any. Reference counts: the handle and the stream hold a
 * query.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/plain.h"
#include "base/mem.h"
#include "base/util.h"
#include "coordinator/dataset.h"
#include "coordinator/local_run.h"
#include "coordinator/session.h"
#include "coordinator/sinks.h"
#include "coordinator/stored.h"
#include "coordinator/watchdog.h"
#include "coordinator/tokens.h"

#define INTERRUPT_LOOK_NS 50000000L

struct brant_query {
  brant_session *session;
  brant_query *prev, *next; /* of the session, under its lock */
  _Atomic int refs;
  br_prepared plan; /* of a SELECT */
  br_batch **kept;
  size_t n_kept, at_kept, cap_kept;
  br_schema *schema;   /* of what the stream gives */
  br_local_run *run;   /* of a SELECT in this process */
  br_rows *rows;       /* of a distributed one */
  br_copying *copying; /* COPY … TO */
  br_watchdog *watchdog;
  pthread_mutex_t lock;
  br_error error;
  br_error late; /* its deadline came; code 0: not yet */
  bool running;  /* run, rows and plan are what they will be */
  bool cancelled, taken, ended;
  uint64_t start_us, end_us, rows_out;
  double cpu_start, cpu_end;
};

static void mark_end(brant_query *q) {
  pthread_mutex_lock(&q->lock);
  if (!q->ended) {
    q->ended = true;
    q->end_us = br_now_us();
    q->cpu_end = br_cpu_seconds();
  }
  pthread_mutex_unlock(&q->lock);
  br_watchdog_off(q->watchdog);
}

static br_status remember(brant_query *q, br_status status, const br_error *err) {
  if (status == BR_OK) return BR_OK;
  pthread_mutex_lock(&q->lock);
  if (q->error.code == BR_OK) q->error = *err;
  pthread_mutex_unlock(&q->lock);
  mark_end(q);
  return status;
}

static void join_session(brant_query *q, brant_session *s) {
  q->session = s;
  br_session_ref(s);
  pthread_mutex_lock(&s->lock);
  q->next = s->queries;
  if (q->next != NULL) q->next->prev = q;
  s->queries = q;
  pthread_mutex_unlock(&s->lock);
}

/* Out of the list first: closing the session cancels the queries that are in
 * it. */
static void hide(brant_query *q) {
  brant_session *s = q->session;
  pthread_mutex_lock(&s->lock);
  if (q->prev != NULL)
    q->prev->next = q->next;
  else
    s->queries = q->next;
  if (q->next != NULL) q->next->prev = q->prev;
  pthread_mutex_unlock(&s->lock);
}

void br_session_cancel_queries(brant_session *s) {
  for (brant_query *q = s->queries; q != NULL; q = q->next) brant_query_cancel(q);
}

static void unref(brant_query *q) {
  if (atomic_fetch_sub(&q->refs, 1) != 1) return;
  hide(q);
  br_watchdog_free(q->watchdog);
  br_local_run_free(q->run);
  br_rows_free(q->rows);
  br_copying_free(q->copying);
  if (q->plan.query != NULL && q->session->driver != NULL) {
    br_query_state state;
    pthread_mutex_lock(&q->plan.query->lock);
    state = q->plan.query->state;
    pthread_mutex_unlock(&q->plan.query->lock);
    if (state == BR_QUERY_RUNNING || state == BR_QUERY_NEW) br_driver_forget(q->session->driver, q->plan.query->id);
  }
  br_prepared_free(&q->plan);
  for (size_t i = q->at_kept; i < q->n_kept; i++) br_batch_unref(q->kept[i]);
  free(q->kept);
  br_schema_unref(q->schema);
  br_session_unref(q->session);
  pthread_mutex_destroy(&q->lock);
  free(q);
}

/* ---- for dataset.c */

br_query *br_query_inside(brant_query *q) { return q->copying == NULL ? q->plan.query : NULL; }
brant_session *br_query_session(brant_query *q) { return q->session; }
void br_query_hold(brant_query *q) { atomic_fetch_add(&q->refs, 1); }

br_status br_query_take(brant_query *q, br_error *err) {
  if (q->taken)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "the result of this query was taken already: run it again to persist it");
  q->taken = true;
  return BR_OK;
}

/* Until something changed, or for as long as an interrupt may go unheard. With the lock of d. */
static void wait_a_moment(brant_query *q, br_query *d) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += INTERRUPT_LOOK_NS;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_cond_timedwait(&d->changed, &d->lock, &until);
  if (!atomic_load(&q->session->interrupted)) return;
  pthread_mutex_unlock(&d->lock);
  brant_query_cancel(q);
  pthread_mutex_lock(&d->lock);
}

br_status br_query_wait_result(brant_query *q, br_error *err) {
  br_query *d = q->plan.query;
  br_status status = BR_OK;
  pthread_mutex_lock(&d->lock);
  for (size_t i = 0; i < d->n_results && d->state != BR_QUERY_FAILED;) {
    if (d->results[i].ready)
      i++;
    else
      wait_a_moment(q, d);
  }
  if (d->state == BR_QUERY_FAILED) {
    *err = d->error;
    status = (br_status)err->code;
  }
  pthread_mutex_unlock(&d->lock);
  if (status == BR_OK) mark_end(q);
  return remember(q, status, err);
}

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
  mark_end(q);
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
  mark_end(q);
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

static br_status start_distributed(brant_query *q, br_error *err) {
  br_query *d = q->plan.query;
  BR_TRY(br_session_check_interrupt(q->session, err));
  BR_TRY(br_shared_open(q->session, d, err));
  br_driver_submit(q->session->driver, d);
  const br_stage *last = d->runs[d->n_runs - 1].plan;
  BR_TRY(br_rows_open(q->session, d, &q->rows, err));
  return br_session_result_schema(q->session->db, last->types, (const char *const *)d->types,
                                  (const char *const *)d->names, last->n_columns, &q->schema, err);
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
  mark_end(q);
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
    mark_end(q);
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

static br_status submit_plain(brant_query *q, const char *sql, br_error *err) {
  br_statement kind;
  br_explain_request x;
  bool done = false;
  if (br_explain_parse(sql, &x)) BR_TRY(explain(q, &x, &done, err));
  if (!done) BR_TRY(submit_own(q, sql, &done, err));
  if (done) return BR_OK;
  BR_TRY(br_session_check_writable(q->session, sql, err));
  BR_TRY(br_session_classify(q->session->db, sql, &kind, err));
  if (kind == BR_STMT_COPY) BR_TRY(start_copying(q, sql, false, err));
  if (q->copying != NULL) return BR_OK;
  if (kind == BR_STMT_DDL || kind == BR_STMT_OTHER) BR_TRY(run_stored(q, kind, sql, &done, err));
  if (done) return BR_OK;
  if (kind != BR_STMT_SELECT) return run_other(q, kind, sql, err);
  BR_TRY(br_prepare(q->session, sql, false, &q->plan, err));
  return q->plan.local ? start_local(q, err) : start_distributed(q, err);
}

static br_status submit(brant_query *q, const char *sql, br_error *err) {
  char *prepared = NULL, *text = NULL, *one = br_token_statement(sql);
  if (one == NULL) one = br_strdup(sql); /* several: DuckDB's to take or leave */
  br_status status = br_prepared_text(q->session, one, &prepared, err);
  const char *plain = prepared != NULL ? prepared : one;
  if (status == BR_OK) status = br_node_text(plain, &text, err);
  if (status == BR_OK) status = submit_plain(q, text ? text : plain, err);
  free(text);
  free(prepared);
  free(one);
  return status;
}

/* Any thread. */
static void stop(brant_query *q, const br_error *why) {
  if (q->plan.query != NULL && q->session->driver != NULL) br_driver_cancel(q->session->driver, q->plan.query->id, why);
  if (q->rows != NULL) br_rows_cancel(q->rows);
  if (q->run != NULL) br_local_run_stop(q->run, why);
  if (q->copying != NULL) br_copying_cancel(q->copying);
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
    stop(q, &why);
  else
    brant_interrupt(q->session);
}

static brant_query *new_query(brant_session *s) {
  brant_query *q = br_calloc(1, sizeof *q);
  atomic_init(&q->refs, 1);
  pthread_mutex_init(&q->lock, NULL);
  join_session(q, s);
  q->start_us = br_now_us();
  q->cpu_start = br_cpu_seconds();
  return q;
}

br_status br_query_submit_distributed(brant_session *s, const char *sql, brant_query **out, br_error *err) {
  brant_query *q = new_query(s);
  br_status status = br_prepare(s, sql, false, &q->plan, err);
  if (status == BR_OK && !q->plan.local) {
    status = start_distributed(q, err);
    q->running = true;
  }
  *out = status == BR_OK && !q->plan.local ? q : NULL;
  if (*out == NULL) unref(q);
  return status;
}

int brant_submit(brant_session *s, const char *sql, brant_query **out, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  brant_query *q = new_query(s);
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
    unref(q);
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

/* ---- the Arrow C stream */

typedef struct stream_state {
  brant_query *query;
  bool stored;     /* types as they travel between our processes, not plain ones (arrow/plain.h): none is changed */
  bool texts;      /* enums stay texts */
  br_plain *plain; /* NULL: not known yet, or stored */
  char text[BR_ERROR_MESSAGE_BYTES];
} stream_state;

static int to_errno(const br_error *err) {
  switch (err->code) {
    case BR_CANCELLED: return ECANCELED;
    case BR_OUT_OF_MEMORY: return ENOMEM;
    case BR_INVALID:
    case BR_EXECUTION: return EINVAL;
    default: return EIO;
  }
}

static br_status next_batch(brant_query *q, br_batch **out, br_error *err) {
  *out = NULL;
  if (q->copying != NULL && br_copying_over(q->copying)) return br_copying_next(q->copying, out, err);
  pthread_mutex_lock(&q->lock);
  bool cancelled = q->cancelled;
  if (q->late.code != BR_OK) *err = q->late;
  pthread_mutex_unlock(&q->lock);
  if (cancelled) return br_fail(err, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  if (err->code != BR_OK) return (br_status)err->code;
  if (q->run != NULL) return br_local_run_next(q->run, out, err);
  if (q->rows != NULL) return br_rows_next(q->rows, out, err);
  if (q->copying != NULL) return br_copying_next(q->copying, out, err);
  if (q->at_kept < q->n_kept) *out = q->kept[q->at_kept++];
  return BR_OK;
}

static int stream_failed(stream_state *x, br_error *err) {
  brant_query *q = x->query;
  pthread_mutex_lock(&q->lock);
  if (q->late.code != BR_OK && err->code != BR_EXECUTION) *err = q->late; /* why it was stopped */
  pthread_mutex_unlock(&q->lock);
  remember(q, (br_status)err->code, err);
  memcpy(x->text, err->message, sizeof x->text);
  return to_errno(err);
}

static br_status result_schema(stream_state *x, br_schema **out, br_error *err) {
  *out = x->query->schema;
  if (*out == NULL && x->query->run != NULL) BR_TRY(br_local_run_schema(x->query->run, out, err));
  if (x->plain == NULL && !x->stored) x->plain = br_plain_new(*out, !x->texts);
  return BR_OK;
}

static int stream_schema(struct ArrowArrayStream *st, struct ArrowSchema *out) {
  stream_state *x = st->private_data;
  br_schema *schema;
  br_error err;
  br_error_clear(&err);
  if (result_schema(x, &schema, &err) != BR_OK) return stream_failed(x, &err);
  int status = ArrowSchemaDeepCopy(br_schema_arrow(schema), out);
  return status == 0 && !x->stored ? br_plain_schema(x->plain, out) : status;
}

static int stream_next(struct ArrowArrayStream *st, struct ArrowArray *out) {
  stream_state *x = st->private_data;
  br_batch *b = NULL;
  br_error err;
  br_error_clear(&err);
  memset(out, 0, sizeof *out);
  if (next_batch(x->query, &b, &err) != BR_OK) return stream_failed(x, &err);
  if (b == NULL) {
    mark_end(x->query);
    return 0;
  }
  x->query->rows_out += (uint64_t)br_batch_rows(b);
  br_schema *schema;
  br_batch_export(b, out);
  br_batch_unref(b);
  br_status status = result_schema(x, &schema, &err);
  if (status == BR_OK && !x->stored) status = br_plain_array(x->plain, out, &err);
  if (status == BR_OK) return 0;
  out->release(out);
  return stream_failed(x, &err);
}

static const char *stream_error(struct ArrowArrayStream *st) { return ((stream_state *)st->private_data)->text; }

static void stream_release(struct ArrowArrayStream *st) {
  stream_state *x = st->private_data;
  unref(x->query);
  br_plain_free(x->plain);
  free(x);
  st->release = NULL;
}

static void open_stream(brant_query *q, bool stored, bool texts, struct ArrowArrayStream *out) {
  stream_state *x = br_calloc(1, sizeof *x);
  x->query = q;
  x->stored = stored;
  x->texts = texts;
  q->taken = true;
  atomic_fetch_add(&q->refs, 1);
  *out = (struct ArrowArrayStream){stream_schema, stream_next, stream_error, stream_release, x};
}

static br_status open_once(brant_query *q, bool texts, struct ArrowArrayStream *out, br_error *err) {
  if (q->taken)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "the result of this query was taken already: a stream can be read once");
  open_stream(q, false, texts, out);
  return BR_OK;
}

br_status br_query_text_stream(brant_query *q, struct ArrowArrayStream *out, br_error *err) {
  return open_once(q, true, out, err);
}

int brant_query_stream(brant_query *q, struct ArrowArrayStream *out, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_status status = open_once(q, false, out, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

br_status br_query_stored_stream(brant_query *q, struct ArrowArrayStream *out, br_error *err) {
  BR_TRY(br_query_take(q, err));
  open_stream(q, true, false, out);
  return BR_OK;
}

/* ---- any thread */

void brant_query_cancel(brant_query *q) {
  br_error why;
  if (q == NULL) return;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  pthread_mutex_lock(&q->lock);
  q->cancelled = true;
  bool running = q->running;
  pthread_mutex_unlock(&q->lock);
  if (running) stop(q, &why);
}

int brant_query_error(brant_query *q, brant_error *err) {
  pthread_mutex_lock(&q->lock);
  br_error e = q->error;
  pthread_mutex_unlock(&q->lock);
  if (e.code == BR_OK && q->plan.query != NULL) {
    pthread_mutex_lock(&q->plan.query->lock);
    if (q->plan.query->state == BR_QUERY_FAILED) e = q->plan.query->error;
    pthread_mutex_unlock(&q->plan.query->lock);
  }
  br_error_export(&e, err);
  return (int)e.code;
}

static uint64_t resident_bytes(void) {
  char text[128];
  unsigned long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "re");
  if (f == NULL) return 0;
  if (fgets(text, sizeof text, f) != NULL && sscanf(text, "%lu %lu", &pages, &resident) != 2) resident = 0;
  fclose(f);
  return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void distributed_stats(br_query *d, brant_stats *st) {
  pthread_mutex_lock(&d->lock);
  st->distributed = 1;
  st->eager = d->eager;
  st->stages = (uint32_t)d->n_runs;
  st->stages_done = d->stages_done;
  uint32_t started = 0;
  size_t at = d->n_runs;
  for (size_t i = 0; i < d->n_runs; i++) {
    const br_stage_run *r = &d->runs[i];
    st->tasks += r->n_tasks;
    st->tasks_done += r->done;
    started += r->started;
    if (at == d->n_runs && r->started > 0 && r->done < r->n_tasks) at = i;
    st->bytes_shuffled += r->bytes_out;
    st->rows_shuffled += r->rows_out;
    st->bytes_fetched += r->remote_bytes;
    st->spilled_bytes += r->spill_bytes;
    st->second_attempts += r->seconds;
    st->outputs_lost += r->outputs_lost;
    st->tasks_again += r->made_again;
    st->cpu_seconds += (double)r->cpu_us * 1e-6;
    if (r->plan->split_scan >= 0) st->rows_read += r->split_rows;
  }
  st->tasks_running = started > st->tasks_done ? started - st->tasks_done : 0;
  if (d->n_runs > 0) st->rows_out = d->runs[d->n_runs - 1].rows_out;
  st->spilled_bytes += d->spilled_bytes;
  st->peak_memory_bytes = d->peak_pss_bytes;
  st->retries = d->retries;
  st->executors_lost = d->executors_lost;
  st->workers_lost = d->workers_lost;
  if (at < d->n_runs)
    snprintf(st->text, sizeof st->text, "stage %zu of %zu: %s", at + 1, d->n_runs,
             d->runs[at].plan->label ? d->runs[at].plan->label : "");
  pthread_mutex_unlock(&d->lock);
}

void brant_query_stats(brant_query *q, brant_stats *out) {
  brant_stats st = {0};
  st.size = out->size < sizeof st ? out->size : sizeof st;
  if (q->plan.query != NULL) distributed_stats(q->plan.query, &st);
  pthread_mutex_lock(&q->lock);
  uint64_t end = q->ended ? q->end_us : br_now_us();
  st.seconds = (double)(end - q->start_us) * 1e-6;
  if (!st.distributed) {
    st.cpu_seconds = (q->ended ? q->cpu_end : br_cpu_seconds()) - q->cpu_start;
    st.rows_out = q->rows_out;
  }
  if (q->copying != NULL) st.rows_out = br_copying_rows(q->copying);
  pthread_mutex_unlock(&q->lock);
  st.coordinator_memory_bytes = resident_bytes();
  memcpy(out, &st, st.size);
}

void brant_query_free(brant_query *q) {
  if (q == NULL) return;
  unref(q);
}
