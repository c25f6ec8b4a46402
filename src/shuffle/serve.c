/* SPDX-License-Identifier: Apache-2.0
 *
 * The source behind a DoGet for partitions: schema, then every chunk of [first, last) of a set of map outputs, then the end
 * mark (wire.h). Chunks are merged over the outputs, partition by partition, or map by map when the reader wants order.
 *
 * Chunks in memory are sent from where they are: the transport holds a reference on the output until the bytes are gone.
 * Chunks on disk are read and verified on pool threads, ahead of the peer: `ahead` is the queue of the next ones in order.
 * A bad chunk ends the stream with BR_CORRUPT and the output's id.
 *
 * Outputs that are being written (growing.h): unordered, their chunks come as they are written, taken in turn, before those of
 * finished outputs; in order, a map's chunks come when those of all smaller maps are through, and if several partitions are asked for,
 * once it's finished. When there is nothing to send, the stream waits for the next change, and says each BR_SERVE_ALIVE_MS that it is
 * there. One that fails ends the stream with the error that names it, also when more could be sent.
 *
 * A reader on the same host may be told where an output lies in memory instead, if it wants much of it (wire.h, br_wire_memory); not beside
 * growing ones, since it takes nothing over before the stream has ended.
 *
 * Threads: the loop thread, but read_chunk. A source that is freed while reads are under way lives until they are done.
 * Bounds: READ_AHEAD_BYTES of chunks read or being read (one chunk at least), AHEAD_SLOTS of them.
 */
#include "shuffle/growing.h"
#include "shuffle/mapfile.h"
#include "shuffle/peer_memory.h"
#include "shuffle/wire.h"

#include "base/mem.h"
#include "flight/flight.h"
#include <stdlib.h>
#include <string.h>

#define READ_AHEAD_BYTES (4u << 20)
#define AHEAD_SLOTS 64u
/* Sending costs 0.3 to 0.4 CPU s a GB on both sides; opening, checking and unmapping an output 30 us, and a walk over its index. */
#define MEMORY_LEAST_BYTES (128u << 10)

typedef struct serve serve;

typedef struct cursor cursor;
struct cursor {
  br_mapfile *file; /* NULL: it's being written */
  uint32_t map;
  const br_chunk *chunks; /* those in range */
  size_t n, at;           /* at: of a growing one, the number of the next chunk to look at, of all partitions */
  serve *s;
  br_growing *growing;
  br_growing_watch watch;
  bool queued;
  bool in_memory; /* the reader maps it: place */
  br_wire_memory place;
  cursor *after; /* in the queue of those that may have something to send */
};

typedef struct slot {
  serve *s;
  cursor *from;
  br_chunk chunk;
  br_growth_file *file; /* of a growing output; NULL: from->file */
  bool reading;
  const void *head;
  br_ipc_body body;
  br_status status;
  br_error *err; /* when status is one */
} slot;

struct serve {
  br_loop *loop;
  br_flight_call *call;
  uint32_t first, last, partition; /* partition: the one that is being sent */
  bool ordered;
  cursor *files;
  size_t n_files, file_at, memory_at;   /* memory_at: files before it whose place had to be told were told */
  size_t growing;                       /* outputs of which more may come */
  cursor *changed_first, *changed_last; /* growing ones that were not looked at since they changed */
  const br_error *failed;               /* of a growing one */
  br_timer *alive_timer;
  bool alive_due;
  br_wire_alive alive;
  slot ahead[AHEAD_SLOTS];              /* ring */
  uint32_t ahead_first, ahead_n, reads; /* reads: under way */
  uint64_t ahead_bytes;
  bool schema_sent, end_sent, waiting, closed;
  br_ipc_body spare; /* kept until the next pull: a chunk without body bytes */
  br_wire_chunk tag;
  br_wire_end end;
};

static void release_body(br_ipc_body *b) {
  if (b->release != NULL) b->release(b->owner);
  *b = (br_ipc_body){0};
}

static void serve_free(serve *s) {
  for (uint32_t i = 0; i < s->ahead_n; i++) {
    slot *a = &s->ahead[(s->ahead_first + i) % AHEAD_SLOTS];
    release_body(&a->body);
    br_growth_file_unref(a->file);
    free(a->err);
  }
  release_body(&s->spare);
  for (size_t i = 0; i < s->n_files; i++) {
    br_mapfile_unref(s->files[i].file);
    br_growing_unref(s->files[i].growing);
  }
  free(s->files);
  free(s);
}

static void wake(serve *s) {
  if (!s->waiting) return;
  s->waiting = false;
  br_flight_call_resume(s->call);
}

/* ---- outputs that are being written */
static void queue_cursor(cursor *c) {
  serve *s = c->s;
  if (c->queued) return;
  c->queued = true;
  c->after = NULL;
  if (s->changed_last != NULL)
    s->changed_last->after = c;
  else
    s->changed_first = c;
  s->changed_last = c;
}

static void on_growth(void *arg) {
  cursor *c = arg;
  serve *s = c->s;
  if (br_growing_state_of(c->growing) == BR_GROWING_FAILED) s->failed = br_growing_error(c->growing);
  if (!s->ordered) queue_cursor(c);
  wake(s); /* may free s */
}

static void on_alive(void *arg) {
  serve *s = arg;
  if (!s->waiting) return;
  s->alive_due = true;
  wake(s);
}

static void stop_watching(serve *s) {
  br_timer_stop(s->alive_timer);
  s->alive_timer = NULL;
  for (size_t i = 0; i < s->n_files; i++)
    if (s->files[i].growing != NULL) br_growing_remove_watch(s->files[i].growing, &s->files[i].watch);
}

/* The next chunk of a growing output that is in range. */
static bool has_chunk(serve *s, cursor *c) {
  size_t n = br_growing_chunks(c->growing, &c->chunks); /* they may have moved */
  while (c->at < n && (c->chunks[c->at].partition < s->first || c->chunks[c->at].partition >= s->last)) c->at++;
  return c->at < n;
}

static bool is_whole(const cursor *c) { return br_growing_state_of(c->growing) == BR_GROWN; }

static cursor *next_growing(serve *s) {
  for (cursor *c; (c = s->changed_first) != NULL;) {
    s->changed_first = c->after;
    if (c->after == NULL) s->changed_last = NULL;
    c->queued = false;
    if (has_chunk(s, c)) {
      queue_cursor(c); /* it's the others' turn now */
      return c;
    }
    if (is_whole(c)) s->growing--; /* nothing changes any more: it is not queued again */
  }
  return NULL;
}

/* In order: false if it's not this one's last word that it has nothing. */
static bool growing_in_order(serve *s, cursor *c, bool *has) {
  bool whole = is_whole(c);
  *has = false;
  if (s->last - s->first > 1 && whole && c->file == NULL) { /* from here on as any finished one */
    c->file = br_mapfile_ref(br_growing_file(c->growing)->committed);
    c->n = br_mapfile_find(c->file, s->first, s->last, &c->chunks);
    c->at = 0;
  }
  if (c->file != NULL)
    *has = c->at < c->n;
  else if (s->last - s->first == 1)
    *has = has_chunk(s, c);
  return *has || whole;
}

/* ---- which chunk is next */
/* NULL with file_at before the end: the map whose turn it is has nothing yet. */
static cursor *next_by_map(serve *s) {
  for (; s->file_at < s->n_files; s->file_at++) {
    cursor *c = &s->files[s->file_at];
    bool has = c->at < c->n, decided = true;
    if (c->growing != NULL) decided = growing_in_order(s, c, &has);
    if (has) return c;
    if (!decided) return NULL;
    if (c->growing != NULL) s->growing--;
  }
  return NULL;
}

static cursor *next_by_partition(serve *s) {
  cursor *growing = next_growing(s);
  if (growing != NULL) return growing;
  while (s->partition < s->last) {
    for (; s->file_at < s->n_files; s->file_at++) {
      cursor *c = &s->files[s->file_at];
      if (c->growing == NULL && c->at < c->n && c->chunks[c->at].partition == s->partition) return c;
    }
    uint32_t next = s->last; /* the smallest partition that any output still has */
    for (size_t i = 0; i < s->n_files; i++) {
      const cursor *c = &s->files[i];
      if (c->growing == NULL && c->at < c->n && c->chunks[c->at].partition < next) next = c->chunks[c->at].partition;
    }
    s->partition = next;
    s->file_at = 0;
  }
  return NULL;
}

/* ---- reading ahead */
static void read_chunk(void *arg) {
  slot *a = arg;
  br_error err = {0};
  a->status = a->file != NULL ? br_growth_read(a->file, &a->chunk, &a->head, &a->body, &err)
                              : br_mapfile_chunk(a->from->file, &a->chunk, &a->head, &a->body, &err);
  if (a->status != BR_OK) {
    a->err = br_malloc(sizeof err);
    *a->err = err;
  }
}

static void chunk_was_read(void *arg) {
  slot *a = arg;
  serve *s = a->s;
  a->reading = false;
  s->reads--;
  if (s->closed) {
    if (s->reads == 0) serve_free(s);
    return;
  }
  if (a == &s->ahead[s->ahead_first]) wake(s);
}

static bool is_there(slot *a) {
  if (a->file != NULL) return br_growth_view(a->file, &a->chunk, &a->head, &a->body);
  if (!br_mapfile_in_memory(a->from->file)) return false;
  br_mapfile_view(a->from->file, &a->chunk, &a->head, &a->body);
  return true;
}

static void look_ahead(serve *s) {
  while (s->ahead_n < AHEAD_SLOTS && (s->ahead_n == 0 || s->ahead_bytes < READ_AHEAD_BYTES)) {
    cursor *c = s->ordered ? next_by_map(s) : next_by_partition(s);
    if (c == NULL) return;
    slot *a = &s->ahead[(s->ahead_first + s->ahead_n++) % AHEAD_SLOTS];
    *a = (slot){.s = s, .from = c, .chunk = c->chunks[c->at++]};
    if (c->file == NULL) a->file = br_growth_file_ref(br_growing_file(c->growing));
    s->ahead_bytes += br_chunk_stored_bytes(&a->chunk);
    if (!is_there(a)) {
      a->reading = true;
      s->reads++;
      br_loop_work(s->loop, read_chunk, chunk_was_read, a);
    }
  }
}

/* ---- the stream */
static br_pull send_schema(serve *s, br_flight_data *out) {
  for (size_t i = 0; i < s->n_files && !s->schema_sent; i++) {
    const cursor *c = &s->files[i];
    if (c->growing == NULL)
      br_mapfile_schema(c->file, &out->head, &out->head_bytes);
    else if (!br_growing_schema(c->growing, &out->head, &out->head_bytes))
      continue;
    s->schema_sent = true;
  }
  s->waiting = !s->schema_sent;
  return s->schema_sent ? BR_PULL_DATA : BR_PULL_WAIT;
}

static const br_wire_memory *next_in_memory(serve *s) {
  for (; s->memory_at < s->n_files; s->memory_at++)
    if (s->files[s->memory_at].in_memory) return &s->files[s->memory_at++].place;
  return NULL;
}

static br_pull send_place(serve *s, const br_wire_memory *place, br_flight_data *out) {
  out->app = place;
  out->app_bytes = sizeof *place;
  s->end.in_memory++;
  return BR_PULL_DATA;
}

static br_pull send_alive(serve *s, br_flight_data *out) {
  s->alive_due = false;
  s->alive = (br_wire_alive){.mark_map = BR_WIRE_END_MARK, .mark_partition = BR_WIRE_ALIVE_MARK};
  out->app = &s->alive;
  out->app_bytes = sizeof s->alive;
  return BR_PULL_DATA;
}

static br_pull send_end(serve *s, br_flight_data *out) {
  s->end_sent = true;
  out->app = &s->end;
  out->app_bytes = sizeof s->end;
  return BR_PULL_DATA;
}

static br_pull send_chunk(serve *s, br_flight_data *out, br_error *err) {
  slot *a = &s->ahead[s->ahead_first];
  if (a->reading) {
    s->waiting = true;
    return BR_PULL_WAIT;
  }
  if (a->status != BR_OK) {
    *err = *a->err;
    return BR_PULL_ERROR;
  }
  s->tag = (br_wire_chunk){.map = a->from->map,
                           .partition = a->chunk.partition,
                           .checksum = br_wire_checksum(a->from->map, a->chunk.partition, a->chunk.checksum)};
  out->head = a->head;
  out->head_bytes = a->chunk.head_bytes;
  out->app = &s->tag;
  out->app_bytes = sizeof s->tag;
  if (a->body.bytes > 0)
    out->body =
        (br_span){.data = a->body.data, .bytes = a->body.bytes, .release = a->body.release, .owner = a->body.owner};
  else
    s->spare = a->body;
  br_growth_file_unref(a->file);
  a->file = NULL;
  s->end.chunks++;
  s->end.rows += a->chunk.rows;
  s->ahead_bytes -= br_chunk_stored_bytes(&a->chunk);
  s->ahead_first = (s->ahead_first + 1) % AHEAD_SLOTS;
  s->ahead_n--;
  return BR_PULL_DATA;
}

static br_pull serve_next(void *arg, br_flight_data *out, br_error *err) {
  serve *s = arg;
  *out = (br_flight_data){0};
  release_body(&s->spare);
  if (s->failed != NULL) {
    *err = *s->failed;
    return BR_PULL_ERROR;
  }
  if (s->end_sent) return BR_PULL_END;
  if (s->alive_due) return send_alive(s, out);
  look_ahead(s);
  if (!s->schema_sent) return send_schema(s, out);
  const br_wire_memory *place = next_in_memory(s);
  if (place != NULL) return send_place(s, place, out);
  if (s->ahead_n > 0) return send_chunk(s, out, err);
  if (s->growing == 0) return send_end(s, out);
  s->waiting = true;
  return BR_PULL_WAIT;
}

static void serve_close(void *arg) {
  serve *s = arg;
  s->closed = true;
  s->waiting = false;
  stop_watching(s);
  if (s->reads == 0) serve_free(s);
}

static int by_map(const void *x, const void *y) {
  const cursor *a = x, *b = y;
  return a->map < b->map ? -1 : a->map > b->map;
}

static br_status check_range(const br_serve_set *set, uint32_t first, uint32_t last, br_error *err) {
  for (size_t i = 0; i < set->n + set->n_growing; i++) {
    bool file = i < set->n;
    uint32_t has = file ? br_mapfile_partitions(set->files[i]) : br_growing_partitions(set->growing[i - set->n]);
    if (first > last || last > has)
      return br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "partitions %u to %u asked for, the output of task %u has %u",
                     first, last, file ? set->maps[i] : set->growing_maps[i - set->n], has);
    if (!file && br_growing_state_of(set->growing[i - set->n]) == BR_GROWING_FAILED) {
      *err = *br_growing_error(set->growing[i - set->n]);
      return err->code;
    }
  }
  return BR_OK;
}

static void lend(br_store *store, cursor *c) {
  const br_chunk *all;
  uint64_t bytes = 0, least = MEMORY_LEAST_BYTES + br_mapfile_index(c->file, &all) * sizeof *all;
  br_error why = {0};
  if (!br_mapfile_in_memory(c->file)) return;
  for (size_t i = 0; i < c->n && bytes < least; i++) bytes += br_chunk_stored_bytes(&c->chunks[i]);
  if (bytes < least || br_peer_memory_place(c->file, c->map, &c->place, &why) != BR_OK) return;
  c->in_memory = br_store_lend(store, c->file);
  if (c->in_memory) c->at = c->n;
}

static void open_files(serve *s, const br_serve_set *set) {
  s->files = br_calloc(set->n + set->n_growing, sizeof *s->files);
  for (size_t i = 0; i < set->n; i++) {
    cursor *c = &s->files[i];
    *c = (cursor){.file = br_mapfile_ref(set->files[i]), .map = set->maps[i]};
    c->n = br_mapfile_find(c->file, s->first, s->last, &c->chunks);
    if (set->lend_from != NULL && !s->ordered && set->n_growing == 0) lend(set->lend_from, c);
  }
  for (size_t i = 0; i < set->n_growing; i++)
    s->files[set->n + i] = (cursor){.growing = br_growing_ref(set->growing[i]), .map = set->growing_maps[i]};
  s->n_files = set->n + set->n_growing;
  s->growing = set->n_growing;
  if (s->ordered) qsort(s->files, s->n_files, sizeof *s->files, by_map);
  for (size_t i = 0; i < s->n_files; i++) { /* not before they are in their places */
    cursor *c = &s->files[i];
    c->s = s;
    if (c->growing == NULL) continue;
    c->watch = (br_growing_watch){.changed = on_growth, .arg = c};
    br_growing_add_watch(c->growing, &c->watch);
    if (!s->ordered) queue_cursor(c);
  }
}

br_status br_serve_source(br_loop *loop, void *flight_call, const br_serve_set *set, uint32_t first, uint32_t last,
                          bool ordered, br_flight_source *out, br_error *err) {
  if (set->n + set->n_growing == 0)
    return br_fail(err, BR_NOT_FOUND, BR_BLAME_WORKER, "none of the map outputs asked for is here");
  BR_TRY(check_range(set, first, last, err));
  serve *s = br_calloc(1, sizeof *s);
  s->loop = loop;
  s->call = flight_call;
  s->first = first;
  s->last = last;
  s->partition = first;
  s->ordered = ordered;
  s->end = (br_wire_end){
      .mark_map = BR_WIRE_END_MARK, .mark_partition = BR_WIRE_END_MARK, .outputs = (uint32_t)(set->n + set->n_growing)};
  open_files(s, set);
  if (s->growing > 0) s->alive_timer = br_timer_start(loop, BR_SERVE_ALIVE_MS, BR_SERVE_ALIVE_MS, on_alive, s);
  *out = (br_flight_source){.next = serve_next, .free = serve_close, .arg = s};
  return BR_OK;
}
