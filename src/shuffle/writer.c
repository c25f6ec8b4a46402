/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner of one attempt: open → thread (once a writing thread) → write … → thread_end or thread_abandon → commit →
 * free. Each thread scatters its rows over its own buffers, one a partition; a buffer that reached chunk_bytes, or the
 * largest ones when memory is short, are encoded and go to the output (output.h).
 *
 * Threads: a state belongs to one thread; what they share are three atomics and the output, which locks for itself.
 * Bounds: scatter_buffer_bytes of an attempt holds the buffers of all its threads, by two rules that each thread keeps for
 * its own: used bytes stay below half of it (buffers grow by doubling, so twice the used is allocated at worst), allocated
 * bytes below all of it. It can't go under BUFFER_BYTES_FLOOR a partition and thread: chunks would be smaller than their
 * headers. How far a thread gets between two looks at its buffers is bounded by check_bytes, or what is gathered. On top come, a thread, one encoded
 * chunk and what is gathered (GATHER_BYTES_MOST), and the run buffers of the output.
 */
#include "shuffle/output.h"
#include "shuffle/place.h"

#include "arrow/gather.h"
#include "base/mem.h"
#include "base/util.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A thread's buffers are to stay in the processor's caches between scatter, checksum and copy, and few pages: chunks of many
 * partitions are smaller. Not below what keeps DuckDB's vectors of wide rows full and a chunk's own cost small. */
#define CHUNK_BYTES_MOST (1u << 20)
#define CHUNK_BYTES_LEAST (128u << 10)
#define CHUNKS_OF_A_THREAD_BYTES (16u << 20)
#define SCATTER_BUFFER_BYTES_DEFAULT (64u << 20)
#define BUFFER_BYTES_FLOOR 4096u
#define CHECK_BYTES_MIN (64u << 10)
#define ENCODE_KEEP_BYTES (4u << 20) /* a larger encoding buffer is freed after use */
#define UNKNOWN_BYTES UINT64_MAX
/* From so many partitions on rows are gathered (arrow/gather.c), if the bound of the buffers is GATHER_SHARE times that at least. */
#define GATHER_FROM_PARTITIONS 256u
#define GATHER_BYTES_MOST (2u << 20)
#define GATHER_SHARE 16u
/* While others follow: a thread's first chunks are small, each round over the partitions twice as large; rows of a single
 * partition wait at most so long for the next write, those of others too once there are so many bytes of them. */
#define FOLLOWED_CHUNK_BYTES (64u << 10)
#define FOLLOWED_FLUSH_MS 100u
#define FOLLOWED_FLUSH_BYTES (32u << 10)

struct br_writer {
  br_schema *schema;
  br_part_kind kind;
  uint32_t partitions, columns;
  bool ordered, followed, gathered;
  uint64_t scatter_buffer_bytes, chunk_bytes, check_bytes;
  uint32_t batch_rows;
  br_bounds *bounds;
  br_output *output;
  _Atomic uint32_t threads; /* states alive */
  _Atomic uint64_t used_bytes, allocated_bytes;
};

typedef struct part_size {
  uint64_t used, allocated;
} part_size;

typedef struct thread_state {
  br_writer *w;
  br_colset **parts; /* [partitions] */
  part_size *sizes;  /* [partitions], as last looked at */
  part_size own;     /* their sum */
  part_size counted; /* what of it is in w's sums */
  uint32_t *place;   /* [place_rows] */
  uint32_t place_rows;
  br_gather *gather; /* rows that wait for more of them; NULL: none are gathered, or not yet */
  bool ungatherable;
  uint64_t gathered_bytes;
  uint64_t unchecked_bytes; /* written since the last look at all buffers */
  uint64_t turn;
  uint64_t flushes, flushed_ms; /* flushed_ms: of all buffers, while others follow */
  br_buf head, body, pieces;    /* body: of a chunk that is compressed; pieces: br_ipc_piece, of one that isn't */
} thread_state;

/* ---- open and free */
static br_status check_options(const br_writer_options *o, br_error *err) {
  if (o->partitions == 0 || o->partitions > BR_MAPFILE_MAX_PARTITIONS ||
      (o->kind == BR_PART_SINGLE && o->partitions != 1))
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "map output with %u partitions", o->partitions);
  if (o->kind == BR_PART_RANGE && o->n_bounds + 1 != o->partitions)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "%u bounds for %u partitions", o->n_bounds, o->partitions);
  return BR_OK;
}

static uint64_t default_chunk_bytes(uint32_t partitions) {
  uint64_t bytes = CHUNKS_OF_A_THREAD_BYTES / partitions;
  return bytes > CHUNK_BYTES_MOST ? CHUNK_BYTES_MOST : bytes < CHUNK_BYTES_LEAST ? CHUNK_BYTES_LEAST : bytes;
}

br_status br_writer_open(const br_writer_options *o, br_writer **out, br_error *err) {
  BR_TRY(check_options(o, err));
  br_writer *w = br_calloc(1, sizeof *w);
  br_status status = BR_OK;
  w->schema = br_schema_ref((br_schema *)o->schema);
  w->kind = o->kind;
  w->partitions = o->partitions;
  w->columns = (uint32_t)br_schema_columns(o->schema);
  w->ordered = o->ordered;
  w->scatter_buffer_bytes = o->scatter_buffer_bytes > 0 ? o->scatter_buffer_bytes : SCATTER_BUFFER_BYTES_DEFAULT;
  w->batch_rows = o->batch_rows;
  w->chunk_bytes = o->chunk_bytes > 0 ? o->chunk_bytes : default_chunk_bytes(o->partitions);
  w->check_bytes = w->scatter_buffer_bytes / 64;
  if (w->check_bytes > w->chunk_bytes / 4) w->check_bytes = w->chunk_bytes / 4;
  w->followed = o->publish.publish != NULL;
  w->gathered = o->partitions >= GATHER_FROM_PARTITIONS && !w->followed && o->batch_rows == 0;
  if (w->check_bytes < CHECK_BYTES_MIN || w->followed) w->check_bytes = CHECK_BYTES_MIN;
  if (o->kind == BR_PART_RANGE) BR_TRY_GOTO(br_bounds_new(o->bounds, o->bound_bytes, o->n_bounds, &w->bounds, err));
  br_writer_options with_defaults = *o;
  with_defaults.scatter_buffer_bytes = w->scatter_buffer_bytes;
  BR_TRY_GOTO(br_output_new(&with_defaults, &w->output, err));
  *out = w;
done:
  if (status != BR_OK) br_writer_free(w);
  return status;
}

void br_writer_publish(br_writer *w) { br_output_publish(w->output); }

void br_writer_free(br_writer *w) {
  if (w == NULL) return;
  BR_ASSERT(w->threads == 0);
  br_output_free(w->output);
  br_bounds_free(w->bounds);
  br_schema_unref(w->schema);
  free(w);
}

br_status br_writer_commit(br_writer *w, br_map_output *out, br_error *err) {
  if (w->threads != 0)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "commit of a map output while %u threads write",
                   (unsigned)w->threads);
  return br_output_commit(w->output, out, err);
}

void br_map_output_free(br_map_output *o) {
  if (o == NULL) return;
  if (o->fd >= 0) close(o->fd);
  free(o->path);
  free(o->partition_rows);
  free(o->partition_bytes);
  *o = (br_map_output){.fd = -1};
}

/* ---- sizes */
static void publish(thread_state *t) {
  atomic_fetch_add_explicit(&t->w->used_bytes, t->own.used - t->counted.used, memory_order_relaxed);
  atomic_fetch_add_explicit(&t->w->allocated_bytes, t->own.allocated - t->counted.allocated, memory_order_relaxed);
  t->counted = t->own;
}

static void look_at(thread_state *t, uint32_t p) {
  part_size now = {.used = br_colset_bytes(t->parts[p]), .allocated = br_colset_reserved(t->parts[p])};
  if (br_colset_rows(t->parts[p]) == 0) now.used = 0;
  t->own.used += now.used - t->sizes[p].used;
  t->own.allocated += now.allocated - t->sizes[p].allocated;
  t->sizes[p] = now;
}

static uint64_t limit_bytes(const br_writer *w) {
  uint64_t floor = (uint64_t)BUFFER_BYTES_FLOOR * w->partitions * w->threads;
  return w->scatter_buffer_bytes > floor ? w->scatter_buffer_bytes : floor;
}

/* ---- flushing */
/* Values that stay as they are go from the columns straight to the output; what is compressed is encoded first. */
static br_status send(thread_state *t, uint32_t p, bool shrink, br_error *err) {
  br_colset *c = t->parts[p];
  br_codec codec = br_output_codec(t->w->output);
  br_output_chunk chunk = {.partition = p, .rows = (uint64_t)br_colset_rows(c), .head = &t->head};
  br_ipc_piece whole;
  br_buf_clear(&t->head);
  if (codec == BR_CODEC_NONE) {
    br_status status = br_colset_lay_out(c, &t->head, &t->pieces, &chunk.body_bytes, err);
    chunk.pieces = (const br_ipc_piece *)(const void *)t->pieces.data;
    chunk.n_pieces = t->pieces.len / sizeof *chunk.pieces;
    if (status == BR_OK) status = br_output_add(t->w->output, &chunk, err);
    br_colset_start_again(c, shrink);
    return status;
  }
  br_buf_clear(&t->body);
  BR_TRY(br_colset_encode(c, codec, &t->head, &t->body, shrink, err));
  whole = (br_ipc_piece){.data = t->body.data, .bytes = t->body.len};
  chunk.pieces = &whole;
  chunk.n_pieces = 1;
  chunk.body_bytes = t->body.len;
  br_status status = br_output_add(t->w->output, &chunk, err);
  if (t->body.cap > ENCODE_KEEP_BYTES) br_buf_free(&t->body);
  return status;
}

static br_status flush(thread_state *t, uint32_t p, bool shrink, br_error *err) {
  br_writer *w = t->w;
  br_colset *c = t->parts[p];
  if (br_colset_rows(c) == 0) return BR_OK;
  if (!shrink && w->partitions > 1)
    shrink = br_colset_reserved(c) > limit_bytes(w) / ((uint64_t)w->partitions * w->threads);
  br_status status = send(t, p, shrink, err);
  look_at(t, p);
  t->flushes++;
  return status;
}

static br_status give_up_buffer(thread_state *t, uint32_t p, br_error *err) {
  if (br_colset_rows(t->parts[p]) > 0) return flush(t, p, true, err);
  br_colset *fresh = NULL;
  BR_TRY(br_colset_new(t->w->schema, &fresh, err));
  br_colset_free(t->parts[p]);
  t->parts[p] = fresh;
  look_at(t, p);
  return BR_OK;
}

typedef struct ranked {
  uint64_t bytes;
  uint32_t partition;
} ranked;

static int larger_first(const void *x, const void *y) {
  const ranked *a = x, *b = y;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  return a->partition < b->partition ? -1 : a->partition > b->partition;
}

/* Flush the largest buffers until half of what the thread holds is gone. by_allocation: it's the allocated bytes that are
 * too many, so memory has to be given back too. */
static br_status flush_largest(thread_state *t, bool by_allocation, br_error *err) {
  br_status status = BR_OK;
  uint32_t n = t->w->partitions;
  ranked *order = br_malloc(n * sizeof *order);
  for (uint32_t p = 0; p < n; p++)
    order[p] = (ranked){.bytes = by_allocation ? t->sizes[p].allocated : t->sizes[p].used, .partition = p};
  qsort(order, n, sizeof *order, larger_first);
  uint64_t target = (by_allocation ? t->own.allocated : t->own.used) / 2;
  for (uint32_t i = 0; i < n && (by_allocation ? t->own.allocated : t->own.used) > target; i++) {
    if (order[i].bytes == 0) break;
    if (by_allocation)
      BR_TRY_GOTO(give_up_buffer(t, order[i].partition, err));
    else
      BR_TRY_GOTO(flush(t, order[i].partition, false, err));
  }
done:
  free(order);
  return status;
}

/* The attempt holds too much: this thread gives back of its own, if it holds a quarter of a fair share at least. Others that
 * hold more do the same when they write next. */
static br_status relieve(thread_state *t, br_error *err) {
  br_writer *w = t->w;
  uint64_t limit = limit_bytes(w), share = limit / w->threads / 4;
  br_status status = BR_OK;
  if (atomic_load_explicit(&w->used_bytes, memory_order_relaxed) > limit / 2 && t->own.used > share / 2) {
    status = flush_largest(t, false, err);
    publish(t);
  }
  if (status == BR_OK && atomic_load_explicit(&w->allocated_bytes, memory_order_relaxed) > limit &&
      t->own.allocated > share) {
    status = flush_largest(t, true, err);
    publish(t);
  }
  return status;
}

static uint64_t chunk_bytes(const thread_state *t) {
  const br_writer *w = t->w;
  uint64_t rounds = w->followed ? t->flushes / w->partitions : 32, bytes = FOLLOWED_CHUNK_BYTES;
  return rounds < 16 && bytes << rounds < w->chunk_bytes ? bytes << rounds : w->chunk_bytes;
}

static br_status check_buffer(thread_state *t, uint32_t p, br_error *err) {
  look_at(t, p);
  return t->sizes[p].used >= chunk_bytes(t) ? flush(t, p, false, err) : BR_OK;
}

/* Somebody may wait for what lies here. */
static br_status flush_for_followers(thread_state *t, br_error *err) {
  uint64_t least = t->w->partitions == 1 ? 1 : FOLLOWED_FLUSH_BYTES;
  for (uint32_t p = 0; p < t->w->partitions; p++) {
    look_at(t, p);
    if (t->sizes[p].used >= least) BR_TRY(flush(t, p, false, err));
  }
  t->flushed_ms = br_now_ms();
  return BR_OK;
}

static br_status check_all_buffers(thread_state *t, br_error *err) {
  for (uint32_t p = 0; p < t->w->partitions; p++) BR_TRY(check_buffer(t, p, err));
  t->unchecked_bytes = 0;
  publish(t);
  return relieve(t, err);
}

/* Of the partitions that n rows just went to. */
static br_status check_touched_buffers(thread_state *t, uint32_t n, br_error *err) {
  for (uint32_t i = 0; i < n; i++) BR_TRY(check_buffer(t, t->place[i], err));
  publish(t);
  return relieve(t, err);
}

/* Bytes that n rows will take, or UNKNOWN_BYTES for nested types, which are looked at after every call. */
static uint64_t measure(const br_vec *v, uint32_t n) {
  switch (v->kind) {
    case BR_VEC_BOOL: return n / 8 + 1;
    case BR_VEC_FIXED: return (uint64_t)n * (v->out_width > v->width ? v->out_width : v->width);
    case BR_VEC_INTERVAL: return (uint64_t)n * 16;
    case BR_VEC_NULL: return 0;
    case BR_VEC_STRING: {
      uint64_t bytes = (uint64_t)n * 4;
      for (uint32_t i = 0; i < n; i++) {
        uint32_t length;
        memcpy(&length, (const char *)v->data + 16 * (size_t)i, 4);
        if (v->validity == NULL || (v->validity[i / 64] >> (i % 64) & 1) != 0) bytes += length;
      }
      return bytes;
    }
    default: return UNKNOWN_BYTES;
  }
}

static uint64_t measure_all(const br_vec *columns, uint32_t n_columns, uint32_t rows) {
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < n_columns; c++) {
    uint64_t more = measure(&columns[c], rows);
    if (more == UNKNOWN_BYTES) return UNKNOWN_BYTES;
    bytes += more;
  }
  return bytes;
}

/* ---- threads */
static void state_free(thread_state *t) {
  if (t == NULL) return;
  t->own = (part_size){0};
  publish(t);
  if (t->parts != NULL)
    for (uint32_t p = 0; p < t->w->partitions; p++) br_colset_free(t->parts[p]);
  free(t->parts);
  free(t->sizes);
  free(t->place);
  br_gather_free(t->gather);
  br_buf_free(&t->head);
  br_buf_free(&t->body);
  br_buf_free(&t->pieces);
  atomic_fetch_sub(&t->w->threads, 1);
  free(t);
}

br_status br_writer_thread(br_writer *w, void **state, br_error *err) {
  uint32_t before = atomic_fetch_add(&w->threads, 1);
  thread_state *t = br_calloc(1, sizeof *t);
  br_status status = BR_OK;
  t->w = w;
  t->turn = before; /* threads start dealing at different places */
  t->flushed_ms = br_now_ms();
  if (w->ordered && before > 0) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a second thread writes an ordered map output");
    goto done;
  }
  t->parts = br_calloc(w->partitions, sizeof *t->parts);
  t->sizes = br_calloc(w->partitions, sizeof *t->sizes);
  for (uint32_t p = 0; p < w->partitions; p++) BR_TRY_GOTO(br_colset_new(w->schema, &t->parts[p], err));
  *state = t;
done:
  if (status != BR_OK) state_free(t);
  return status;
}

static void want_place(thread_state *t, uint32_t rows) {
  if (rows <= t->place_rows) return;
  t->place = br_realloc(t->place, rows * sizeof *t->place);
  if (t->w->partitions == 1)
    for (uint32_t i = t->place_rows; i < rows; i++) t->place[i] = i; /* the rows to append, in order */
  t->place_rows = rows;
}

static br_status store_rows(thread_state *t, const br_vec *columns, uint32_t rows, br_error *err) {
  br_writer *w = t->w;
  want_place(t, rows);
  if (w->partitions == 1) return br_colset_append(t->parts[0], columns, t->place, rows, err);
  if (w->kind == BR_PART_HASH)
    BR_TRY(br_place_numbers(&columns[w->columns], rows, w->partitions, t->place, err));
  else
    BR_TRY(br_place_range(w->bounds, &columns[w->columns], rows, &t->turn, t->place, err));
  return br_colset_scatter(t->parts, w->partitions, columns, t->place, rows, err);
}

/* One partition, in batches of exactly as many rows. */
static br_status write_batches(thread_state *t, const br_vec *columns, uint32_t rows, br_error *err) {
  br_colset *c = t->parts[0];
  want_place(t, rows);
  for (uint32_t at = 0; at < rows;) {
    uint32_t room = t->w->batch_rows - (uint32_t)br_colset_rows(c), n = rows - at < room ? rows - at : room;
    BR_TRY(br_colset_append(c, columns, t->place + at, n, err));
    look_at(t, 0);
    if (n == room) BR_TRY(flush(t, 0, false, err));
    at += n;
  }
  publish(t);
  return relieve(t, err);
}

static br_status flush_full_batches(thread_state *t, br_error *err) {
  for (uint32_t p = 0; p < t->w->partitions; p++) {
    look_at(t, p);
    if (br_colset_rows(t->parts[p]) >= (int64_t)t->w->batch_rows) BR_TRY(flush(t, p, false, err));
  }
  publish(t);
  return relieve(t, err);
}

static br_status write_now(thread_state *t, const br_vec *columns, uint32_t rows, uint64_t bytes, br_error *err) {
  br_writer *w = t->w;
  BR_TRY(store_rows(t, columns, rows, err));
  if (w->batch_rows > 0) return flush_full_batches(t, err);
  if (w->followed && br_now_ms() - t->flushed_ms >= FOLLOWED_FLUSH_MS) BR_TRY(flush_for_followers(t, err));
  if (bytes == UNKNOWN_BYTES)
    return w->partitions == 1 ? check_all_buffers(t, err) : check_touched_buffers(t, rows, err);
  t->unchecked_bytes += bytes;
  return t->unchecked_bytes >= w->check_bytes ? check_all_buffers(t, err) : BR_OK;
}

static br_status scatter_gathered(thread_state *t, br_error *err) {
  if (t->gather == NULL || br_gather_rows(t->gather) == 0) return BR_OK;
  br_status status = write_now(t, br_gather_columns(t->gather), br_gather_rows(t->gather), t->gathered_bytes, err);
  br_gather_clear(t->gather);
  t->gathered_bytes = 0;
  return status;
}

static br_status write_gathered(thread_state *t, const br_vec *columns, uint32_t n_columns, uint32_t rows,
                                uint64_t bytes, br_error *err) {
  uint64_t most = t->w->scatter_buffer_bytes / GATHER_SHARE;
  if (t->gather == NULL && !t->ungatherable) {
    t->gather = br_gather_new(columns, n_columns, most < GATHER_BYTES_MOST ? most : GATHER_BYTES_MOST);
    t->ungatherable = t->gather == NULL;
  }
  if (t->gather == NULL) return write_now(t, columns, rows, bytes, err);
  bool added = br_gather_add(t->gather, columns, rows);
  if (!added) {
    BR_TRY(scatter_gathered(t, err));
    added = br_gather_add(t->gather, columns, rows);
  }
  if (!added) return write_now(t, columns, rows, bytes, err);
  t->gathered_bytes += bytes;
  return br_gather_rows(t->gather) == BR_GATHER_ROWS ? scatter_gathered(t, err) : BR_OK;
}

br_status br_writer_write(br_writer *w, void *state, const br_vec *columns, uint32_t n_columns, uint32_t rows,
                          br_error *err) {
  thread_state *t = state;
  uint32_t expected = w->columns + (w->kind != BR_PART_SINGLE);
  if (n_columns != expected)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "%u columns arrive at the shuffle, %u expected", n_columns,
                   expected);
  if (rows == 0) return BR_OK;
  if (w->batch_rows > 0 && w->partitions == 1) return write_batches(t, columns, rows, err);
  uint64_t bytes = measure_all(columns, w->columns, rows);
  return w->gathered ? write_gathered(t, columns, n_columns, rows, bytes, err)
                     : write_now(t, columns, rows, bytes, err);
}

br_status br_writer_thread_end(br_writer *w, void *state, br_error *err) {
  thread_state *t = state;
  br_status status = scatter_gathered(t, err);
  for (uint32_t p = 0; p < w->partitions && status == BR_OK; p++) status = flush(t, p, false, err);
  state_free(t);
  return status;
}

void br_writer_thread_abandon(br_writer *w, void *state) {
  (void)w;
  state_free(state);
}
