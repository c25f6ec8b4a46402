/* SPDX-License-Identifier: Apache-2.0
 *
 * What a task reads of a stage's outputs: open → next, until it gives NULL → free. Local outputs are mapped or read by the
 * caller; remote ones come through reader_remote.c, one stream a worker, and wait here undecoded, or are mapped like local ones where
 * they lie in a peer's memory on this host (map_peers). Decoding happens on the thread that calls next, so that it scales with the callers.
 *
 * Unordered: what has arrived first, else the next local chunk, else wait. Ordered: a merge by map number of the local
 * outputs and the streams, each of which is sorted by map; a chunk goes out once no stream can bring a smaller map.
 *
 * Threads: next and cancel on any, the loop side on the loop's. One lock, not held over I/O or decoding.
 * Bounds: what arrived and was not taken is at most one window a stream (or one message, if that is larger); windows and the
 * number of streams open at once are chosen so that they fit buffer_bytes. Ordered reading needs all streams open: there the
 * window goes down to WINDOW_BYTES_MIN_ORDERED a stream.
 */
#include "shuffle/reader_internal.h"

#include "base/mem.h"
#include "shuffle/files.h"
#include "base/util.h"
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES_MAX (4u << 20)
#define WINDOW_BYTES_MIN (256u << 10)
#define WINDOW_BYTES_MIN_ORDERED (64u << 10)
#define BUFFER_BYTES_DEFAULT (32u << 20)
#define RETRY_MS_DEFAULT 200u

/* ---- open */
static void choose_windows(br_reader *r, uint64_t buffer_bytes) {
  uint32_t least = r->ordered ? WINDOW_BYTES_MIN_ORDERED : WINDOW_BYTES_MIN;
  r->window_bytes = WINDOW_BYTES_MAX;
  while (r->window_bytes > least && (uint64_t)r->window_bytes * r->n_remote > buffer_bytes) r->window_bytes /= 2;
  uint64_t streams = buffer_bytes / r->window_bytes;
  if (r->ordered || streams > r->n_remote) streams = r->n_remote;
  r->max_streams = streams > 0 ? (uint32_t)streams : 1;
}

static int by_map(const void *x, const void *y) {
  const local_source *a = x, *b = y;
  return a->map < b->map ? -1 : a->map > b->map;
}

static br_status local_error(const local_source *l, br_error *err) {
  br_attempt_id id = br_mapfile_id(l->file);
  br_error cause = *err;
  if (l->from != NULL) {
    cause.has_lost = true;
    cause.lost = (br_map_output_id){.made_by = id};
    br_reader_fetch_error(l->from, &cause, err);
    return BR_FETCH;
  }
  br_fail(err, BR_FETCH, BR_BLAME_FETCH, "cannot read the output of task %u of stage %u on this node: %s", id.task,
          id.stage, cause.message);
  err->has_lost = true;
  err->lost = (br_map_output_id){.made_by = id};
  err->sys_errno = cause.sys_errno;
  return BR_FETCH;
}

/* `before`: an output whose schema was found right, or NULL. */
static br_status check_file(const br_reader *r, const br_mapfile *f, const br_mapfile *before, br_error *err) {
  const void *head, *known;
  size_t bytes, known_bytes;
  if (r->last > br_mapfile_partitions(f))
    return br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "it has %u partitions, up to %u are asked for",
                   br_mapfile_partitions(f), r->last);
  br_mapfile_schema(f, &head, &bytes);
  if (before != NULL) {
    br_mapfile_schema(before, &known, &known_bytes);
    if (bytes == known_bytes && memcmp(head, known, bytes) == 0) return BR_OK;
  }
  br_schema *schema = NULL;
  br_buf why = {0};
  BR_TRY(br_ipc_decode_schema(head, bytes, &schema, err));
  bool same = br_schema_same_types(r->schema, schema, &why);
  br_schema_unref(schema);
  if (!same)
    br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "its columns have other types than expected: %s", br_buf_cstr(&why));
  br_buf_free(&why);
  return same ? BR_OK : BR_CORRUPT;
}

br_status br_reader_check_file(const br_reader *r, br_mapfile *f, br_error *err) { return check_file(r, f, NULL, err); }

static br_status open_local(br_reader *r, const br_reader_options *o, br_error *err) {
  r->local_capacity = o->n_local + 1;
  r->local = br_calloc(r->local_capacity, sizeof *r->local);
  for (size_t i = 0; i < o->n_local; i++) {
    if (o->local[i].map < r->map_first || o->local[i].map >= r->map_last) continue;
    r->local[r->n_local++] = (local_source){.file = br_mapfile_ref(o->local[i].file), .map = o->local[i].map};
  }
  qsort(r->local, r->n_local, sizeof *r->local, by_map);
  for (size_t i = 0; i < r->n_local; i++) {
    local_source *l = &r->local[i];
    if (check_file(r, l->file, i > 0 ? l[-1].file : NULL, err) != BR_OK) return local_error(l, err);
    l->n = br_mapfile_find(l->file, r->first, r->last, &l->chunks);
  }
  return BR_OK;
}

static void open_remote(br_reader *r, const br_reader_options *o) {
  r->remote = br_calloc(o->n_remote + 1, sizeof *r->remote);
  for (size_t i = 0; i < o->n_remote; i++) {
    const br_read_remote *from = &o->remote[i];
    if (from->outputs == 0) continue;
    r->remote[r->n_remote++] = (remote_source){.r = r,
                                               .uri = br_strdup(from->uri),
                                               .worker = from->worker,
                                               .incarnation = from->incarnation,
                                               .outputs = from->outputs};
  }
  if (r->n_remote == 0) return;
  choose_windows(r, o->buffer_bytes > 0 ? o->buffer_bytes : BUFFER_BYTES_DEFAULT);
  r->remote_at = r->first % r->n_remote;
}

br_status br_reader_open(const br_reader_options *o, br_reader **out, br_error *err) {
  if (o->first > o->last || (o->n_remote > 0 && o->loop == NULL))
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a reader of partitions %u to %u, %zu remote sources", o->first,
                   o->last, o->n_remote);
  br_reader *r = br_calloc(1, sizeof *r);
  r->refs = 1;
  r->loop = o->loop;
  r->schema = br_schema_ref((br_schema *)o->schema);
  r->query = o->query;
  r->stage = o->stage;
  r->table_version = o->table_version;
  r->first = o->first;
  r->last = o->last;
  r->map_first = o->map_first;
  r->map_last = o->map_last > 0 ? o->map_last : UINT32_MAX;
  r->ordered = o->ordered;
  r->map_peers = o->map_peers && !o->ordered;
  r->secret = o->secret != NULL ? br_strdup(o->secret) : NULL;
  r->retry = o->retry;
  r->retry_ms = o->retry_ms > 0 ? o->retry_ms : RETRY_MS_DEFAULT;
  r->silent_ms = o->silent_ms > 0 ? o->silent_ms : BR_READER_SILENT_MS;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->wake, NULL);
  br_status status = open_local(r, o, err);
  if (status != BR_OK) {
    br_reader_unref(r);
    return status;
  }
  if (o->shared_dir != NULL) r->files = br_files_new(o);
  open_remote(r, o);
  if (r->n_remote > 0) {
    atomic_fetch_add(&r->refs, 1);
    br_loop_post(r->loop, br_remote_start, r);
  }
  *out = r;
  return BR_OK;
}

/* ---- the end */
void br_message_free(message *m) {
  if (m->body != NULL) br_flight_body_free(m->body);
  free(m);
}

void br_reader_unref(br_reader *r) {
  if (atomic_fetch_sub(&r->refs, 1) != 1) return;
  for (size_t i = 0; i < r->n_remote; i++) {
    remote_source *s = &r->remote[i];
    while (s->first != NULL) {
      message *m = s->first;
      s->first = m->next;
      br_message_free(m);
    }
    br_remote_forget_opened(s);
    free(s->opened);
    free(s->opened_maps);
    free(s->uri);
  }
  for (size_t i = 0; i < r->n_local; i++) br_mapfile_unref(r->local[i].file);
  br_files_free(r->files);
  free(r->remote);
  free(r->local);
  free(r->secret);
  br_schema_unref(r->schema);
  pthread_cond_destroy(&r->wake);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static void halt_remote(br_reader *r) {
  if (r->n_remote == 0) return;
  atomic_fetch_add(&r->refs, 1);
  br_loop_post(r->loop, br_remote_halt, r);
}

void br_reader_fail(br_reader *r, const br_error *err) {
  pthread_mutex_lock(&r->lock);
  bool first = r->failure.code == BR_OK;
  if (first) r->failure = *err;
  pthread_cond_broadcast(&r->wake);
  pthread_mutex_unlock(&r->lock);
  if (first) halt_remote(r);
}

void br_reader_cancel(br_reader *r) {
  pthread_mutex_lock(&r->lock);
  bool first = !r->cancelled;
  r->cancelled = true;
  pthread_cond_broadcast(&r->wake);
  pthread_mutex_unlock(&r->lock);
  if (first) halt_remote(r);
}

void br_reader_peer_gone(br_reader *r, uint32_t worker) {
  bool any = false;
  for (size_t i = 0; i < r->n_remote; i++) any |= r->remote[i].worker == worker;
  if (!any) return;
  gone_peer *g = br_malloc(sizeof *g);
  *g = (gone_peer){r, worker};
  atomic_fetch_add(&r->refs, 1);
  br_loop_post(r->loop, br_remote_peer_gone, g);
}

void br_reader_free(br_reader *r) {
  if (r == NULL) return;
  br_reader_cancel(r);
  br_reader_unref(r);
}

br_reader_stats br_reader_stats_now(br_reader *r) {
  return (br_reader_stats){
      .rows = r->stat_rows, .bytes = r->stat_bytes, .remote_bytes = r->stat_remote_bytes, .wait_us = r->stat_wait_us};
}

/* ---- choosing what comes next (under lock) */
typedef struct taken {
  remote_source *from; /* with message */
  message *message;
  local_source local; /* with chunk */
  const br_chunk *chunk;
  bool end;
} taken;

static local_source *local_head(br_reader *r) {
  while (r->local_at < r->n_local && r->local[r->local_at].at == r->local[r->local_at].n) r->local_at++;
  return r->local_at < r->n_local ? &r->local[r->local_at] : NULL;
}

static taken take_local(local_source *l) { return (taken){.local = *l, .chunk = &l->chunks[l->at++]}; }

static taken take_message(remote_source *s) {
  br_reader *r = s->r;
  message *m = s->first;
  uint64_t bytes = m->head_bytes + m->body_bytes;
  s->first = m->next;
  if (s->first == NULL) s->last = NULL;
  s->delivered = true;
  s->queued_bytes -= bytes;
  s->credit_bytes += bytes;
  if (!s->credit_posted && (s->first == NULL || s->credit_bytes >= r->window_bytes / 4)) {
    s->credit_posted = true;
    atomic_fetch_add(&r->refs, 1);
    br_loop_post(r->loop, br_remote_credit, s);
  }
  return (taken){.from = s, .message = m};
}

static bool all_done(const br_reader *r) { return r->remote_done == r->n_remote; }

static bool choose_any(br_reader *r, taken *out) {
  for (size_t i = 0; i < r->n_remote; i++) {
    remote_source *s = &r->remote[(r->remote_at + i) % r->n_remote];
    if (s->first == NULL) continue;
    r->remote_at = (r->remote_at + i + 1) % r->n_remote;
    *out = take_message(s);
    return true;
  }
  local_source *l = local_head(r);
  if (l != NULL)
    *out = take_local(l);
  else
    *out = (taken){.end = all_done(r)};
  return l != NULL || out->end;
}

static bool choose_in_order(br_reader *r, taken *out) {
  local_source *l = local_head(r);
  remote_source *best = NULL;
  uint64_t map = l != NULL ? l->map : UINT64_MAX, awaited = UINT64_MAX; /* awaited: smallest map that may still come */
  for (size_t i = 0; i < r->n_remote; i++) {
    remote_source *s = &r->remote[i];
    if (s->first != NULL && s->first->map < map) {
      map = s->first->map;
      best = s;
    } else if (s->first == NULL && !s->done && s->last_map < awaited) {
      awaited = s->last_map;
    }
  }
  if (map == UINT64_MAX) {
    *out = (taken){.end = awaited == UINT64_MAX};
    return out->end;
  }
  if (map > awaited) return false;
  *out = best != NULL ? take_message(best) : take_local(l);
  pthread_cond_broadcast(&r->wake); /* the next one may be there as well */
  return true;
}

static br_status wait_for_next(br_reader *r, taken *out, br_error *err) {
  br_status status = BR_OK;
  pthread_mutex_lock(&r->lock);
  for (;;) {
    if (r->failure.code != BR_OK) {
      *err = r->failure;
      status = err->code;
      break;
    }
    if (r->cancelled) {
      status = br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "reading was cancelled");
      break;
    }
    if (r->ordered ? choose_in_order(r, out) : choose_any(r, out)) break;
    uint64_t before = br_now_us();
    pthread_cond_wait(&r->wake,
                      &r->lock); /* ends by a message, the end, cancel, or a failure: silent_ms at the latest */
    r->stat_wait_us += br_now_us() - before;
  }
  pthread_mutex_unlock(&r->lock);
  return status;
}

/* ---- decoding, on the caller's thread */
static void free_flight_body(void *owner) { br_flight_body_free(owner); }

static br_status decode_message(br_reader *r, const taken *t, br_batch **out, br_error *err) {
  message *m = t->message;
  br_ipc_body body = {
      .data = m->body, .bytes = m->body_bytes, .release = m->body != NULL ? free_flight_body : NULL, .owner = m->body};
  m->body = NULL;
  br_error cause = {0};
  br_status status = br_ipc_decode_batch(r->schema, m->head, m->head_bytes, body, out, &cause);
  if (status != BR_OK) {
    br_error_context(&cause, "partition %u of map output %u", m->partition, m->map);
    br_reader_fetch_error(t->from, &cause, err);
    status = err->code;
  } else {
    r->stat_bytes += m->head_bytes + m->body_bytes;
    r->stat_remote_bytes += m->head_bytes + m->body_bytes;
  }
  br_message_free(m);
  return status;
}

static br_status decode_local(br_reader *r, const taken *t, br_batch **out, br_error *err) {
  const void *head;
  br_ipc_body body;
  if (br_mapfile_chunk(t->local.file, t->chunk, &head, &body, err) != BR_OK ||
      br_ipc_decode_batch(r->schema, head, t->chunk->head_bytes, body, out, err) != BR_OK)
    return err->code == BR_OUT_OF_MEMORY ? BR_OUT_OF_MEMORY : local_error(&t->local, err);
  if ((uint64_t)br_batch_rows(*out) != t->chunk->rows) {
    br_batch_unref(*out);
    br_fail(err, BR_CORRUPT, BR_BLAME_WORKER, "a chunk has not the number of rows that the index names");
    return local_error(&t->local, err);
  }
  r->stat_bytes += br_chunk_stored_bytes(t->chunk);
  if (t->local.from != NULL) r->stat_remote_bytes += br_chunk_stored_bytes(t->chunk);
  return BR_OK;
}

br_status br_reader_next(br_reader *r, br_batch **out, br_error *err) {
  taken t;
  *out = NULL;
  if (r->files != NULL) return br_files_next(r, r->files, out, err);
  BR_TRY(wait_for_next(r, &t, err));
  if (t.end) return BR_OK;
  br_batch *batch = NULL;
  br_status status = t.message != NULL ? decode_message(r, &t, &batch, err) : decode_local(r, &t, &batch, err);
  if (status != BR_OK) {
    br_reader_fail(r, err);
    return status;
  }
  r->stat_rows += (uint64_t)br_batch_rows(batch);
  *out = batch;
  return BR_OK;
}
