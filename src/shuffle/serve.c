/* SPDX-License-Identifier: Apache-2.0
 *
 * The source behind a DoGet for partitions: schema, then every chunk of [first, last) of a set of map outputs, then the end
 * mark (wire.h). Chunks are merged over the outputs, partition by partition, or map by map when the reader wants order.
 *
 * Chunks in memory are sent from where they are: the transport holds a reference on the output until the bytes are gone.
 * Chunks on disk are read and verified on pool threads, ahead of the peer: `ahead` is the queue of the next ones in order.
 * A bad chunk ends the stream with BR_CORRUPT and the output's id.
 *
 * Threads: the loop thread, but read_chunk. A source that is freed while reads are under way lives until they are done.
 * Bounds: READ_AHEAD_BYTES of chunks read or being read (one chunk at least), AHEAD_SLOTS of them.
 */
#include "shuffle/mapfile.h"
#include "shuffle/wire.h"

#include "base/mem.h"
#include "flight/flight.h"
#include <stdlib.h>
#include <string.h>

#define READ_AHEAD_BYTES (4u << 20)
#define AHEAD_SLOTS 64u

typedef struct serve serve;

typedef struct cursor {
  br_mapfile *file;
  uint32_t map;
  const br_chunk *chunks; /* those in range */
  size_t n, at;
} cursor;

typedef struct slot {
  serve *s;
  cursor *from;
  const br_chunk *chunk;
  bool reading;
  const void *head;
  br_ipc_body body;
  br_status status;
  br_error *err; /* when status is one */
} slot;

struct serve {
  br_loop *loop;
  br_flight_call *call;
  uint32_t last, partition; /* the one that is being sent */
  bool ordered;
  cursor *files;
  size_t n_files, file_at;
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
    free(a->err);
  }
  release_body(&s->spare);
  for (size_t i = 0; i < s->n_files; i++) br_mapfile_unref(s->files[i].file);
  free(s->files);
  free(s);
}

/* ---- which chunk is next */
static cursor *next_by_map(serve *s) {
  while (s->file_at < s->n_files && s->files[s->file_at].at == s->files[s->file_at].n) s->file_at++;
  return s->file_at < s->n_files ? &s->files[s->file_at] : NULL;
}

static cursor *next_by_partition(serve *s) {
  while (s->partition < s->last) {
    for (; s->file_at < s->n_files; s->file_at++) {
      cursor *c = &s->files[s->file_at];
      if (c->at < c->n && c->chunks[c->at].partition == s->partition) return c;
    }
    uint32_t next = s->last; /* the smallest partition that any output still has */
    for (size_t i = 0; i < s->n_files; i++) {
      const cursor *c = &s->files[i];
      if (c->at < c->n && c->chunks[c->at].partition < next) next = c->chunks[c->at].partition;
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
  a->status = br_mapfile_chunk(a->from->file, a->chunk, &a->head, &a->body, &err);
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
  if (s->waiting && a == &s->ahead[s->ahead_first]) {
    s->waiting = false;
    br_flight_call_resume(s->call);
  }
}

static void look_ahead(serve *s) {
  while (s->ahead_n < AHEAD_SLOTS && (s->ahead_n == 0 || s->ahead_bytes < READ_AHEAD_BYTES)) {
    cursor *c = s->ordered ? next_by_map(s) : next_by_partition(s);
    if (c == NULL) return;
    slot *a = &s->ahead[(s->ahead_first + s->ahead_n++) % AHEAD_SLOTS];
    *a = (slot){.s = s, .from = c, .chunk = &c->chunks[c->at++]};
    s->ahead_bytes += br_chunk_stored_bytes(a->chunk);
    if (br_mapfile_in_memory(c->file)) {
      br_mapfile_view(c->file, a->chunk, &a->head, &a->body);
    } else {
      a->reading = true;
      s->reads++;
      br_loop_work(s->loop, read_chunk, chunk_was_read, a);
    }
  }
}

/* ---- the stream */
static br_pull send_schema(serve *s, br_flight_data *out) {
  s->schema_sent = true;
  br_mapfile_schema(s->files[0].file, &out->head, &out->head_bytes);
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
                           .partition = a->chunk->partition,
                           .checksum = br_wire_checksum(a->from->map, a->chunk->partition, a->chunk->checksum)};
  out->head = a->head;
  out->head_bytes = a->chunk->head_bytes;
  out->app = &s->tag;
  out->app_bytes = sizeof s->tag;
  if (a->body.bytes > 0)
    out->body =
        (br_span){.data = a->body.data, .bytes = a->body.bytes, .release = a->body.release, .owner = a->body.owner};
  else
    s->spare = a->body;
  s->end.chunks++;
  s->end.rows += a->chunk->rows;
  s->ahead_bytes -= br_chunk_stored_bytes(a->chunk);
  s->ahead_first = (s->ahead_first + 1) % AHEAD_SLOTS;
  s->ahead_n--;
  return BR_PULL_DATA;
}

static br_pull serve_next(void *arg, br_flight_data *out, br_error *err) {
  serve *s = arg;
  *out = (br_flight_data){0};
  release_body(&s->spare);
  if (s->end_sent) return BR_PULL_END;
  look_ahead(s);
  if (!s->schema_sent) return send_schema(s, out);
  return s->ahead_n > 0 ? send_chunk(s, out, err) : send_end(s, out);
}

static void serve_close(void *arg) {
  serve *s = arg;
  s->closed = true;
  if (s->reads == 0) serve_free(s);
}

static int by_map(const void *x, const void *y) {
  const cursor *a = x, *b = y;
  return a->map < b->map ? -1 : a->map > b->map;
}

br_status br_serve_source(br_loop *loop, void *flight_call, const br_serve_set *set, uint32_t first, uint32_t last,
                          bool ordered, br_flight_source *out, br_error *err) {
  if (set->n == 0) return br_fail(err, BR_NOT_FOUND, BR_BLAME_WORKER, "none of the map outputs asked for is here");
  for (size_t i = 0; i < set->n; i++)
    if (first > last || last > br_mapfile_partitions(set->files[i]))
      return br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "partitions %u to %u asked for, the output of task %u has %u",
                     first, last, set->maps[i], br_mapfile_partitions(set->files[i]));
  serve *s = br_calloc(1, sizeof *s);
  s->loop = loop;
  s->call = flight_call;
  s->last = last;
  s->partition = first;
  s->ordered = ordered;
  s->n_files = set->n;
  s->files = br_calloc(set->n, sizeof *s->files);
  s->end = (br_wire_end){.mark_map = BR_WIRE_END_MARK, .mark_partition = BR_WIRE_END_MARK, .outputs = (uint32_t)set->n};
  for (size_t i = 0; i < set->n; i++) {
    cursor *c = &s->files[i];
    *c = (cursor){.file = br_mapfile_ref(set->files[i]), .map = set->maps[i]};
    c->n = br_mapfile_find(c->file, first, last, &c->chunks);
  }
  if (ordered) qsort(s->files, s->n_files, sizeof *s->files, by_map);
  *out = (br_flight_source){.next = serve_next, .free = serve_close, .arg = s};
  return BR_OK;
}
