/* SPDX-License-Identifier: Apache-2.0
 * The rows of a distributed query: the outputs of its last stage, task by task in order, each read as soon as it is committed: from
 * its worker, or from the query's shared directory (then its worker may be gone). One thread reads; cancel may come from any. Order:
 * open, next until *out is NULL, free. Bounds: one output's reader at a time, RESULT_BUFFER_BYTES fetched ahead. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"
#include "shuffle/shuffle.h"

#define RESULT_BUFFER_BYTES (16u << 20)
#define RESULT_TRIES 8

struct br_rows {
  brant_session *session;
  br_query *query;
  br_schema *schema;
  uint32_t at;                               /* result task being read */
  br_result_part part;                       /* its output */
  bool all, last;                            /* there is no result task `at`; no other one follows it */
  bool given;                                /* rows of it went to the caller: it can't be read again, */
  void (*restart)(void *arg, uint32_t part); /* unless it can give them back; NULL: it can't */
  void *restart_arg;
  uint32_t tries;       /* of this output */
  pthread_mutex_t lock; /* guards reader against cancel */
  br_reader *reader;
  bool cancelled;
  bool kept; /* the outputs stay for others: nothing is told of what was read */
};

/* The query's lock is held. */
static void on_worker_gone(void *arg, uint32_t worker) {
  br_rows *r = arg;
  pthread_mutex_lock(&r->lock);
  if (r->reader != NULL) br_reader_peer_gone(r->reader, worker);
  pthread_mutex_unlock(&r->lock);
}

static void listen_to_losses(br_rows *r, bool on) {
  if (r->kept) return; /* one listener a query; a reader of a kept result sees the connection close */
  pthread_mutex_lock(&r->query->lock);
  r->query->worker_gone = on ? on_worker_gone : NULL;
  r->query->gone_arg = on ? r : NULL;
  pthread_mutex_unlock(&r->query->lock);
}

br_status br_rows_open(brant_session *s, br_query *q, br_rows **out, br_error *err) {
  br_rows *r = br_calloc(1, sizeof *r);
  r->session = s;
  r->query = br_query_ref(q);
  pthread_mutex_init(&r->lock, NULL);
  const br_stage *last = q->runs[q->n_runs - 1].plan;
  br_status status = br_session_schema(s->db, last->types, NULL, last->n_columns, &r->schema, err);
  if (status != BR_OK) {
    br_rows_free(r);
    return status;
  }
  listen_to_losses(r, true);
  *out = r;
  return BR_OK;
}

br_rows *br_rows_open_kept(brant_session *s, br_query *q, br_schema *schema) {
  br_rows *r = br_calloc(1, sizeof *r);
  r->session = s;
  r->query = br_query_ref(q);
  r->schema = br_schema_ref(schema);
  r->kept = true;
  pthread_mutex_init(&r->lock, NULL);
  return r;
}

br_schema *br_rows_schema(br_rows *r) { return r->schema; }

/* Wait until result task `at` is committed, or there is none. */
static br_status wait_part(br_rows *r, br_result_part *part, br_error *err) {
  br_query *q = r->query;
  br_status status = BR_OK;
  pthread_mutex_lock(&q->lock);
  while (q->state != BR_QUERY_FAILED && r->at < q->n_results && !q->results[r->at].ready)
    pthread_cond_wait(&q->changed, &q->lock);
  if (q->state == BR_QUERY_FAILED) {
    *err = q->error;
    status = (br_status)err->code;
  } else {
    r->all = r->at >= q->n_results; /* their number may change until the first is there */
    r->last = r->at + 1 >= q->n_results;
    if (!r->all) *part = q->results[r->at];
  }
  pthread_mutex_unlock(&q->lock);
  return status;
}

/* The files are still those that the query was planned over. Once the last output is there, all of them have been read. */
static br_status check_files(br_rows *r, br_error *err) {
  br_query *q = r->query;
  for (size_t i = 0; i < q->n_snapshots; i++) {
    if (br_snapshot_check(q->snapshots[i], err) == BR_OK) continue;
    br_driver_cancel(r->session->driver, q->id, err); /* the query fails with this */
    return (br_status)err->code;
  }
  return BR_OK;
}

static br_status open_part(br_rows *r, br_error *err) {
  BR_TRY(wait_part(r, &r->part, err));
  if (r->all) return BR_OK;
  if (r->last && !r->kept) BR_TRY(check_files(r, err));
  const br_result_part *part = &r->part;
  bool shared = r->query->shared_dir != NULL;
  const br_shuffle_backend *backend = shared ? &br_files_backend : &br_flight_backend;
  char *uri = shared ? NULL : br_driver_worker_uri(r->session->driver, part->id.worker);
  if (uri == NULL && !shared) {
    br_fail(err, BR_FETCH, BR_BLAME_FETCH, "worker %u, which held rows of the result, is gone", part->id.worker);
    err->worker = part->id.worker;
    return (br_status)err->code;
  }
  br_read_remote remote = {.uri = uri, .worker = part->id.worker, .incarnation = part->id.incarnation, .outputs = 1};
  br_read_file file = {.map = r->at,
                       .attempt = part->id.made_by.attempt,
                       .worker = part->id.worker,
                       .incarnation = part->id.incarnation};
  br_reader_options o = {.loop = r->session->loop,
                         .schema = r->schema,
                         .query = r->query->id,
                         .stage = (uint32_t)r->query->n_runs - 1,
                         .table_version = part->version,
                         .first = 0,
                         .last = 1,
                         .map_first = r->at,
                         .map_last = r->at + 1,
                         .remote = &remote,
                         .n_remote = shared ? 0 : 1,
                         .shared_dir = r->query->shared_dir,
                         .file = &file,
                         .n_file = shared ? 1 : 0,
                         .ordered = true,
                         .buffer_bytes = RESULT_BUFFER_BYTES,
                         .secret = r->session->secret,
                         .retry = 5,
                         .retry_ms = 50,
                         .silent_ms = br_reader_silent_ms(r->session->settings.worker_silent_ms)};
  br_reader *reader = NULL;
  br_status status = backend->reader_open(&o, &reader, err);
  free(uri);
  if (status != BR_OK) return status;
  pthread_mutex_lock(&r->lock);
  r->reader = reader;
  if (r->cancelled) br_reader_cancel(reader);
  pthread_mutex_unlock(&r->lock);
  return BR_OK;
}

static void close_part(br_rows *r) {
  pthread_mutex_lock(&r->lock);
  br_reader *reader = r->reader;
  r->reader = NULL;
  pthread_mutex_unlock(&r->lock);
  if (reader != NULL) br_reader_free(reader);
}

static void part_read(br_rows *r) {
  br_query *q = r->query;
  close_part(r);
  if (!r->kept) {
    pthread_mutex_lock(&q->lock);
    q->results[r->at].read = true;
    pthread_mutex_unlock(&q->lock);
    br_driver_result_read(r->session->driver, &r->part.id.made_by);
  }
  r->at++;
  r->given = false;
}

/* The query's own failure says more than a reader that was cut off by it. */
static br_status prefer_query_error(br_rows *r, br_error *err) {
  br_query *q = r->query;
  br_error changed;
  pthread_mutex_lock(&q->lock);
  if (q->state == BR_QUERY_FAILED) *err = q->error;
  /* A file that was replaced under a task looks broken to it: say what happened instead. */
  bool may_be_files = q->state == BR_QUERY_FAILED && err->blame != BR_BLAME_FETCH &&
                      (err->code == BR_IO || err->code == BR_NOT_FOUND || err->code == BR_CORRUPT ||
                       err->code == BR_INVALID || err->code == BR_EXECUTION);
  for (size_t i = 0; may_be_files && i < q->n_snapshots; i++)
    if (br_snapshot_check(q->snapshots[i], &changed) != BR_OK) {
      *err = q->error = changed;
      break;
    }
  pthread_mutex_unlock(&q->lock);
  return (br_status)err->code;
}

/* An output that can't be read is made again by the scheduler, unless rows of it were handed out: then only the caller could
 * start over. True: wait for it and try again. */
static bool try_again(br_rows *r, br_error *err) {
  close_part(r);
  if (err->code != BR_FETCH || ++r->tries > RESULT_TRIES) return false;
  if (r->given && r->restart != NULL) {
    r->restart(r->restart_arg, r->at);
    r->given = false;
  }
  if (r->given) {
    br_error_context(err,
                     "the result can't be read on, and its first rows were handed out already: run the query again");
    return false;
  }
  pthread_mutex_lock(&r->query->lock);
  br_result_part *p = &r->query->results[r->at];
  if (p->version == r->part.version) p->ready = false; /* unless a newer one came meanwhile */
  pthread_mutex_unlock(&r->query->lock);
  br_driver_fetch_failed(r->session->driver, r->query->id, err);
  return true;
}

static br_status next_of_part(br_rows *r, br_batch **out, br_error *err) {
  if (r->reader == NULL) BR_TRY(open_part(r, err));
  if (r->all) return BR_OK;
  return br_reader_next(r->reader, out, err);
}

br_status br_rows_next(br_rows *r, br_batch **out, br_error *err) {
  *out = NULL;
  for (;;) {
    if (next_of_part(r, out, err) != BR_OK) {
      prefer_query_error(r, err);
      if (try_again(r, err)) continue;
      return (br_status)err->code;
    }
    if (*out != NULL) {
      r->given = true;
      return BR_OK;
    }
    if (r->all) break;
    part_read(r);
  }
  if (r->kept) return BR_OK; /* its query goes on as long as it is kept */
  br_query *q = r->query;    /* every row is here; the last state change tells about the end */
  pthread_mutex_lock(&q->lock);
  while (q->state == BR_QUERY_RUNNING || q->state == BR_QUERY_NEW) pthread_cond_wait(&q->changed, &q->lock);
  br_status status = BR_OK;
  if (q->state == BR_QUERY_FAILED) {
    *err = q->error;
    status = (br_status)err->code;
  }
  pthread_mutex_unlock(&q->lock);
  return status;
}

uint32_t br_rows_part(const br_rows *r) { return r->at; }

void br_rows_set_restart(br_rows *r, void (*restart)(void *arg, uint32_t part), void *arg) {
  r->restart = restart;
  r->restart_arg = arg;
}

void br_rows_cancel(br_rows *r) {
  pthread_mutex_lock(&r->lock);
  r->cancelled = true;
  if (r->reader != NULL) br_reader_cancel(r->reader);
  pthread_mutex_unlock(&r->lock);
}

void br_rows_free(br_rows *r) {
  if (r == NULL) return;
  listen_to_losses(r, false);
  close_part(r);
  pthread_mutex_lock(&r->query->lock);
  bool over = r->kept || r->query->state == BR_QUERY_DONE || r->query->state == BR_QUERY_FAILED;
  pthread_mutex_unlock(&r->query->lock);
  if (!over && r->session->driver != NULL) br_driver_forget(r->session->driver, r->query->id);
  br_schema_unref(r->schema);
  br_query_unref(r->query);
  pthread_mutex_destroy(&r->lock);
  free(r);
}
