/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop side of a reader: one DoGet a worker for the reader's whole range. start → streams, at most max_streams at once →
 * each is done, or fails and is tried again while nothing of it was delivered, or fails the reader → halt.
 *
 * Everything that comes is checked before it's queued: the schema against the expected one, map and partition numbers
 * against the range, the order of maps, and at the end the numbers of outputs, chunks and rows against the end mark
 * (wire.h). A stream that ends well without an end mark is a failure: an answer is never silently short.
 * What the worker of this host tells the place of in its memory (wire.h, br_wire_memory) is mapped as that arrives, and becomes a local
 * source once the stream is complete; what can't be mapped is fetched: the worker is asked again, at once.
 * Threads: loop thread; what next() sees is under the reader's lock.
 * Bounds: see reader.c; a silent source fails after silent_ms; tries: retry, pauses doubling from retry_ms.
 */
#include "shuffle/reader_internal.h"

#include "base/mem.h"
#include "base/util.h"
#include "proto/proto.h"
#include "shuffle/clients.h"
#include "shuffle/peer_memory.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS_MAX 10000u
#define WATCH_MS_MAX 1000u

void br_reader_fetch_error(const remote_source *s, const br_error *cause, br_error *err) {
  br_error made = {0};
  br_fail(&made, BR_FETCH, BR_BLAME_FETCH,
          "cannot read partitions %" PRIu32 " to %" PRIu32 " of stage %" PRIu32 " from worker %" PRIu32 " (%s): %s",
          s->r->first, s->r->last, s->r->stage, s->worker, s->uri, cause->message);
  made.worker = s->worker;
  made.sys_errno = cause->sys_errno;
  made.retryable = true;
  made.has_lost = cause->has_lost;
  made.lost = cause->lost;
  if (made.has_lost) {
    made.lost.worker = s->worker;
    made.lost.incarnation = s->incarnation;
  }
  *err = made;
}

/* ---- one source */
static void start_streams(br_reader *r);
static void source_failed(remote_source *s, const br_error *cause, bool again);

/* Forget the stream, if it's still there. */
static void close_stream(remote_source *s) {
  if (s->stream != NULL) br_flight_stream_cancel(s->stream);
  s->stream = NULL;
  if (s->client != NULL) {
    br_client_put(s->r->loop, s->client);
    s->client = NULL;
    s->r->streams--;
  }
}

static void source_closed(remote_source *s) {
  close_stream(s);
  br_timer_stop(s->retry_timer);
  s->retry_timer = NULL;
  s->closed = true;
}

void br_remote_forget_opened(remote_source *s) {
  while (s->n_opened > 0) br_mapfile_unref(s->opened[--s->n_opened]);
}

/* Under lock. */
static void adopt_opened(remote_source *s) {
  br_reader *r = s->r;
  for (size_t i = 0; i < s->n_opened; i++) {
    local_source l = {.file = s->opened[i], .map = s->opened_maps[i], .from = s};
    l.n = br_mapfile_find(l.file, r->first, r->last, &l.chunks);
    br_grow((void **)&r->local, &r->local_capacity, r->n_local, sizeof *r->local);
    r->local[r->n_local++] = l;
  }
  s->n_opened = 0;
}

static void source_done(remote_source *s) {
  br_reader *r = s->r;
  source_closed(s);
  pthread_mutex_lock(&r->lock);
  adopt_opened(s);
  s->done = true;
  r->remote_done++;
  pthread_cond_broadcast(&r->wake);
  pthread_mutex_unlock(&r->lock);
  start_streams(r);
}

static bool bad(remote_source *s, const char *what) {
  br_error cause = {0};
  br_fail(&cause, BR_CORRUPT, BR_BLAME_WORKER, "it sent something wrong: %s", what);
  source_failed(s, &cause, false);
  return false;
}

static bool take_schema(remote_source *s, const void *head, size_t head_bytes) {
  br_error cause = {0};
  br_schema *schema = NULL;
  br_buf why = {0};
  if (br_ipc_decode_schema(head, head_bytes, &schema, &cause) != BR_OK) {
    source_failed(s, &cause, false);
    return false;
  }
  bool same = br_schema_same_types(s->r->schema, schema, &why);
  br_schema_unref(schema);
  if (!same) {
    br_fail(&cause, BR_CORRUPT, BR_BLAME_INTERNAL, "its columns have other types than expected: %s", br_buf_cstr(&why));
    source_failed(s, &cause, false);
  }
  br_buf_free(&why);
  s->schema_seen = same;
  return same;
}

static void queue_message(remote_source *s, message *m) {
  br_reader *r = s->r;
  pthread_mutex_lock(&r->lock);
  if (s->last != NULL)
    s->last->next = m;
  else
    s->first = m;
  s->last = m;
  s->queued_bytes += m->head_bytes + m->body_bytes;
  s->last_map = m->map;
  pthread_cond_signal(&r->wake);
  pthread_mutex_unlock(&r->lock);
}

/* *body is taken over when it's queued. */
static bool take_chunk(remote_source *s, const void *head, size_t head_bytes, const br_wire_chunk *tag, void **body,
                       size_t body_bytes) {
  br_reader *r = s->r;
  br_error cause = {0};
  bool is_schema;
  int64_t rows;
  uint64_t expected_bytes;
  if (tag->map < r->map_first || tag->map >= r->map_last || tag->partition < r->first || tag->partition >= r->last)
    return bad(s, "a partition that was not asked for");
  if (r->ordered && s->chunks > 0 && tag->map < s->last_map) return bad(s, "map outputs out of order");
  if (br_ipc_peek(head, head_bytes, &is_schema, &rows, &expected_bytes, &cause) != BR_OK) {
    source_failed(s, &cause, false);
    return false;
  }
  if (is_schema || rows < 0 || expected_bytes != body_bytes) return bad(s, "a batch whose parts don't fit");
  uint64_t checksum = br_wire_chunk_checksum(head, head_bytes, *body, body_bytes);
  if (br_wire_checksum(tag->map, tag->partition, checksum) != tag->checksum) {
    br_fail(&cause, BR_CORRUPT, BR_BLAME_FETCH,
            "a batch of map output %" PRIu32 ", partition %" PRIu32 " was damaged on its way (checksum)", tag->map,
            tag->partition);
    source_failed(s, &cause, true);
    return false;
  }
  message *m = br_malloc(sizeof *m + head_bytes);
  *m = (message){
      .map = tag->map, .partition = tag->partition, .body = *body, .body_bytes = body_bytes, .head_bytes = head_bytes};
  memcpy(m->head, head, head_bytes);
  *body = NULL;
  s->chunks++;
  s->rows += (uint64_t)rows;
  queue_message(s, m);
  return true;
}

static bool is_alive_message(const void *app, size_t app_bytes, size_t body_bytes) {
  br_wire_alive a;
  if (app_bytes != sizeof a || body_bytes != 0) return false;
  memcpy(&a, app, sizeof a);
  return a.mark_map == BR_WIRE_END_MARK && a.mark_partition == BR_WIRE_ALIVE_MARK;
}

/* ---- what lies in the worker's memory */
static void fetch_instead(remote_source *s, const br_error *why);

static bool is_that_output(const remote_source *s, const br_wire_memory *m, const br_mapfile *f) {
  br_attempt_id id = br_mapfile_id(f);
  return id.query == s->r->query && id.stage == s->r->stage && id.task == m->map;
}

static void take_place(remote_source *s, const br_wire_memory *m) {
  br_reader *r = s->r;
  br_mapfile *f = NULL;
  br_error why = {0};
  if (!r->map_peers || s->no_memory || !s->schema_seen || s->chunks > 0 || s->n_opened >= s->outputs ||
      m->map < r->map_first || m->map >= r->map_last ||
      (s->n_opened > 0 && m->map <= s->opened_maps[s->n_opened - 1])) { /* each once: they come in order */
    bad(s, "a place in its memory that was not asked for");
    return;
  }
  br_status status = br_peer_memory_open(m, &f, &why);
  if (status == BR_OK && !is_that_output(s, m, f))
    status = br_fail(&why, BR_CORRUPT, BR_BLAME_WORKER, "the output in its memory is another one");
  if (status == BR_OK) status = br_reader_check_file(r, f, &why);
  if (status != BR_OK) {
    br_mapfile_unref(f);
    fetch_instead(s, &why);
    return;
  }
  br_grow((void **)&s->opened, &s->opened_capacity, s->n_opened, sizeof *s->opened);
  br_grow((void **)&s->opened_maps, &s->opened_maps_capacity, s->n_opened, sizeof *s->opened_maps);
  s->opened[s->n_opened] = f;
  s->opened_maps[s->n_opened++] = m->map;
}

static bool is_place(const void *app, size_t app_bytes, size_t body_bytes, br_wire_memory *m) {
  if (app_bytes != sizeof *m || body_bytes != 0) return false;
  memcpy(m, app, sizeof *m);
  return m->mark_map == BR_WIRE_END_MARK && m->mark_partition == BR_WIRE_MEMORY_MARK;
}

static void on_data(void *arg, const void *head, size_t head_bytes, const void *app, size_t app_bytes, void *body,
                    size_t body_bytes) {
  remote_source *s = arg;
  br_wire_chunk tag;
  br_wire_memory place;
  s->active_ms = br_now_ms();
  if (s->end_seen) {
    bad(s, "data behind its end mark");
  } else if (head_bytes == 0 && is_alive_message(app, app_bytes, body_bytes)) {
    /* that it came is all that it says */
  } else if (head_bytes == 0 && is_place(app, app_bytes, body_bytes, &place)) {
    take_place(s, &place);
  } else if (head_bytes == 0) {
    if (app_bytes == sizeof s->end && body_bytes == 0) {
      memcpy(&s->end, app, sizeof s->end);
      s->end_seen = s->end.mark_map == BR_WIRE_END_MARK && s->end.mark_partition == BR_WIRE_END_MARK;
    }
    if (!s->end_seen) bad(s, "a message without data");
  } else if (!s->schema_seen) {
    if (take_schema(s, head, head_bytes) && s->stream != NULL)
      br_flight_stream_consume(s->stream, head_bytes + body_bytes);
  } else if (app_bytes != sizeof tag) {
    bad(s, "a batch that doesn't say where it belongs");
  } else {
    memcpy(&tag, app, sizeof tag);
    take_chunk(s, head, head_bytes, &tag, &body, body_bytes);
  }
  if (body != NULL) br_flight_body_free(body);
}

/* The stream ended well: was it all? */
static bool complete(const remote_source *s, br_error *cause) {
  if (s->end_seen && s->end.outputs == s->outputs && s->end.in_memory == s->n_opened && s->end.chunks == s->chunks &&
      s->end.rows == s->rows)
    return true;
  if (!s->end_seen)
    br_fail(cause, BR_FETCH, BR_BLAME_FETCH, "its answer broke off after %" PRIu64 " chunks", s->chunks);
  else if (s->end.outputs != s->outputs)
    br_fail(cause, BR_FETCH, BR_BLAME_FETCH, "it has %" PRIu32 " of the %" PRIu32 " map outputs that it should have",
            s->end.outputs, s->outputs);
  else if (s->end.in_memory != s->n_opened)
    br_fail(cause, BR_FETCH, BR_BLAME_FETCH, "it told the places of %zu of %" PRIu32 " map outputs in its memory",
            s->n_opened, s->end.in_memory);
  else
    br_fail(cause, BR_FETCH, BR_BLAME_FETCH,
            "%" PRIu64 " of %" PRIu64 " chunks arrived (%" PRIu64 " of %" PRIu64 " rows)", s->chunks, s->end.chunks,
            s->rows, s->end.rows);
  return false;
}

static bool worth_a_retry(const br_error *e) {
  /* A time limit was long enough for one try: whoever is told now can ask whether that worker is still there. */
  return (!e->has_lost || e->retryable) && e->code != BR_TIMEOUT && e->code != BR_PERMISSION && e->code != BR_VERSION &&
         e->code != BR_INVALID && e->code != BR_UNSUPPORTED;
}

static void on_end(void *arg, const br_error *err) {
  remote_source *s = arg;
  br_error cause = *err;
  s->stream = NULL;
  s->connecting = false;
  if (s->closed) return;
  if (err->code == BR_OK && complete(s, &cause))
    source_done(s);
  else
    source_failed(s, &cause, worth_a_retry(&cause));
}

static void make_ticket(const remote_source *s, br_buf *out) {
  const br_reader *r = s->r;
  Brant__Pb__PartitionRef ref = BRANT__PB__PARTITION_REF__INIT;
  Brant__Pb__Ticket ticket = BRANT__PB__TICKET__INIT;
  ref.query = r->query;
  ref.stage = r->stage;
  ref.table_version = r->table_version;
  ref.first = r->first;
  ref.last = r->last;
  ref.map_first = r->map_first;
  ref.map_last = r->map_last;
  ticket.ref = &ref;
  ticket.worker = s->worker;
  ticket.incarnation = s->incarnation;
  ticket.secret = r->secret != NULL ? r->secret : (char *)"";
  ticket.ordered = r->ordered;
  ticket.by_memory = r->map_peers && !s->no_memory && br_peer_memory_works() &&
                     strncmp(s->uri, "unix:", 5) == 0; /* same host: coordinator/cluster.c */
  br_pb_pack(&ticket.base, out);
}

static void start_source(remote_source *s) {
  br_reader *r = s->r;
  br_error cause = {0};
  br_buf ticket = {0};
  s->started = true;
  s->schema_seen = s->end_seen = false;
  s->chunks = s->rows = 0;
  br_remote_forget_opened(s);
  s->active_ms = br_now_ms();
  r->streams++;
  if (br_client_get(r->loop, s->uri, r->secret, r->window_bytes, &s->client, &cause) != BR_OK) {
    r->streams--;
    source_failed(s, &cause, worth_a_retry(&cause));
    return;
  }
  make_ticket(s, &ticket);
  br_flight_sink sink = {.arg = s, .data = on_data, .end = on_end};
  s->connecting = true;
  br_flight_stream *stream = br_flight_get(s->client, ticket.data, ticket.len, sink);
  if (s->connecting) s->stream = stream; /* else it has ended already */
  s->connecting = false;
  br_buf_free(&ticket);
}

/* Open what may be open. The order differs between readers, so that they don't all ask the same worker first. */
static void start_streams(br_reader *r) {
  for (size_t i = 0; i < r->n_remote && r->streams < r->max_streams && !r->halted; i++) {
    remote_source *s = &r->remote[(r->first + i) % r->n_remote];
    if (!s->started) start_source(s);
  }
}

/* ---- failures */
static void try_again(void *arg) {
  remote_source *s = arg;
  br_timer_stop(s->retry_timer);
  s->retry_timer = NULL;
  start_source(s);
}

/* Nothing of the stream was queued yet. */
static void fetch_instead(remote_source *s, const br_error *why) {
  br_log(BR_LOG_DEBUG, "outputs of worker %" PRIu32 " are fetched, not mapped: %s", s->worker, why->message);
  close_stream(s);
  s->connecting = false;
  s->no_memory = true;
  s->retry_timer = br_timer_start(s->r->loop, 0, 0, try_again, s);
}

/* Drop what arrived; false: some of it was delivered already. */
static bool rewind_source(remote_source *s) {
  br_reader *r = s->r;
  pthread_mutex_lock(&r->lock);
  bool rewound = !s->delivered;
  message *m = s->first;
  if (rewound) {
    s->first = s->last = NULL;
    s->queued_bytes = 0;
    s->last_map = 0;
  }
  pthread_mutex_unlock(&r->lock);
  while (rewound && m != NULL) {
    message *next = m->next;
    br_message_free(m);
    m = next;
  }
  return rewound;
}

static void source_failed(remote_source *s, const br_error *cause, bool again) {
  br_reader *r = s->r;
  br_error err;
  if (s->closed) return;
  close_stream(s);
  s->connecting = false;
  if (again && s->tries < r->retry && !r->halted && rewind_source(s)) {
    uint64_t pause = (uint64_t)r->retry_ms << (s->tries < 16 ? s->tries : 16);
    s->tries++;
    s->retry_timer = br_timer_start(r->loop, pause < RETRY_MS_MAX ? pause : RETRY_MS_MAX, 0, try_again, s);
    return;
  }
  source_closed(s);
  br_reader_fetch_error(s, cause, &err);
  br_reader_fail(r, &err);
}

/* Fails sources that send nothing although we wait for them. */
static void watch_sources(void *arg) {
  br_reader *r = arg;
  uint64_t now = br_now_ms();
  for (size_t i = 0; i < r->n_remote && !r->halted; i++) {
    remote_source *s = &r->remote[i];
    if (s->stream == NULL || s->closed) continue;
    pthread_mutex_lock(&r->lock);
    bool ours = s->queued_bytes > 0 || s->credit_bytes > 0; /* the callers of next() are slow, not the peer */
    pthread_mutex_unlock(&r->lock);
    if (ours)
      s->active_ms = now;
    else if (now - s->active_ms >= r->silent_ms) {
      br_error cause = {0};
      br_fail(&cause, BR_TIMEOUT, BR_BLAME_FETCH, "it sent nothing for %" PRIu32 " ms", r->silent_ms);
      source_failed(s, &cause, false);
    }
  }
}

/* ---- posts */
void br_remote_start(void *reader) {
  br_reader *r = reader;
  if (!r->halted) {
    uint64_t every = r->silent_ms / 4 + 1;
    if (every > WATCH_MS_MAX) every = WATCH_MS_MAX;
    r->watch = br_timer_start(r->loop, every, every, watch_sources, r);
    start_streams(r);
  }
  br_reader_unref(r);
}

void br_remote_halt(void *reader) {
  br_reader *r = reader;
  r->halted = true;
  br_timer_stop(r->watch);
  r->watch = NULL;
  for (size_t i = 0; i < r->n_remote; i++)
    if (!r->remote[i].closed) source_closed(&r->remote[i]);
  br_reader_unref(r);
}

void br_remote_credit(void *source) {
  remote_source *s = source;
  br_reader *r = s->r;
  pthread_mutex_lock(&r->lock);
  uint64_t bytes = s->credit_bytes;
  s->credit_bytes = 0;
  s->credit_posted = false;
  pthread_mutex_unlock(&r->lock);
  s->active_ms = br_now_ms();
  if (s->stream != NULL && bytes > 0) br_flight_stream_consume(s->stream, bytes);
  br_reader_unref(r);
}

void br_remote_peer_gone(void *gone) {
  gone_peer *g = gone;
  br_reader *r = g->r;
  br_error cause;
  br_fail(&cause, BR_LOST, BR_BLAME_WORKER, "it was declared lost");
  for (size_t i = 0; i < r->n_remote && !r->halted; i++)
    if (r->remote[i].worker == g->worker) source_failed(&r->remote[i], &cause, false);
  free(g);
  br_reader_unref(r);
}
