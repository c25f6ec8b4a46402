/* SPDX-License-Identifier: Apache-2.0
 * The rows of a brant_query as an Arrow C stream. Enums come as dictionaries unless texts are wanted, wherever a result was computed.
 * Order: opened once, read to its end or released. Threads: the caller's. Bounds: a batch. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/plain.h"
#include "base/mem.h"
#include "coordinator/handle.h"

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
  br_handle_remember(q, (br_status)err->code, err);
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
    br_handle_end(x->query);
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
  br_handle_unref(x->query);
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
