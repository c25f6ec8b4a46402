/* SPDX-License-Identifier: Apache-2.0
 *
 * The chunks of one attempt on their way into a map output: new → add (any thread, many times) → commit → free.
 *
 * It starts as a memfd. Memory is asked for in growing steps; at the first refusal (or when the memfd itself can't grow) all
 * that is there is copied to a disk file, sorted by partition, and the memory goes. From then on chunks gather in a run
 * buffer; a full one is sorted by partition and appended to the file, so that a partition is contiguous in each run. The
 * index is sorted by (partition, offset): since offsets grow, that is the order of writing within each partition.
 *
 * Who follows the output (br_publisher) is told of chunks in the order in which they became readable: in memory once their bytes are
 * there, on disk once their run is written.
 *
 * Threads: `mode` is held shared while a chunk goes into the memfd, exclusively while everything moves to disk; `lock` guards
 * the rest. The order is mode, then lock. A run is written without lock by the thread that filled it, while the others
 * fill the second buffer; if that one is full too, they wait for the disk.
 * Bounds: memory as granted by the reserver; run buffers: run_limit_bytes twice (see output.h), plus one chunk if a single
 * chunk is larger; the index takes 40 bytes a chunk.
 */
#include "shuffle/output.h"
#include "shuffle/checksum.h"

#include "base/mem.h"
#include "base/util.h"
#include "shuffle/fileio.h"
#include "shuffle/files.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RESERVE_STEP_BYTES_MIN (4u << 20)
#define RESERVE_STEP_BYTES_MAX (64u << 20)
#define SEAL_TRIES 20 /* 3 s, see seal() */

typedef struct chunk_list {
  br_chunk *items;
  size_t n, capacity;
} chunk_list;

typedef struct run {
  br_buf data;
  chunk_list chunks; /* offsets within data */
} run;

struct br_output {
  br_attempt_id id;
  uint32_t partitions;
  br_codec codec_memory, codec_disk;
  br_reserver reserver;
  char *path;      /* of the file that is written */
  char *published; /* in a shared directory: the name it gets at the commit, else NULL */
  br_buf schema_head;
  uint64_t run_limit_bytes;

  pthread_rwlock_t mode;
  _Atomic bool on_disk; /* changes under mode held exclusively */

  pthread_mutex_t lock;
  pthread_cond_t written; /* a run went to disk */
  int fd;                 /* memfd or file */
  uint64_t end;           /* next free offset */
  uint64_t granted_bytes;
  chunk_list chunks;  /* in the file */
  run filling, spare; /* on disk only */
  bool writing;       /* a thread writes a run */
  br_error failure;   /* of the disk; repeated to all */
  bool committed;

  br_publisher publisher; /* what follows is of it, and under lock */
  uint32_t generation;
  size_t told; /* of chunks */
  bool fd_told, told_all;
  uint64_t untold_bytes, told_ms, run_ms; /* run_ms: of the first chunk of the run that is filled */
};

static void list_add(chunk_list *l, const br_chunk *c) {
  br_grow((void **)&l->items, &l->capacity, l->n, sizeof *l->items);
  l->items[l->n++] = *c;
}

/* In a shared directory it's on disk from the first byte. */
static br_status open_shared(br_output *w, const char *dir, br_error *err) {
  free(w->path);
  w->published = br_files_path(dir, &w->id);
  w->path = br_asprintf("%s" BR_FILES_PART_SUFFIX, w->published);
  BR_TRY(br_files_create(dir, w->path, w->id.stage, &w->fd, err));
  w->on_disk = true;
  return BR_OK;
}

static br_status open_memory(br_output *w, br_error *err) {
  w->fd = memfd_create(BR_MAPFILE_MEMFD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return w->fd >= 0 ? BR_OK : br_fail_errno(err, errno, BR_BLAME_TASK, "cannot create memory for a map output");
}

static char *make_path(const br_writer_options *o) {
  return br_asprintf("%s/t%" PRIu32 ".a%u.map", o->spill_dir != NULL ? o->spill_dir : ".", o->id.task,
                     (unsigned)o->id.attempt);
}

static uint64_t run_limit(uint64_t scatter_buffer_bytes) {
  uint64_t both = scatter_buffer_bytes / 2;
  if (both > BR_OUTPUT_RUN_BUFFER_BYTES_MAX) both = BR_OUTPUT_RUN_BUFFER_BYTES_MAX;
  if (both < BR_OUTPUT_RUN_BUFFER_BYTES_MIN) both = BR_OUTPUT_RUN_BUFFER_BYTES_MIN;
  return both / 2;
}

br_status br_output_new(const br_writer_options *o, br_output **out, br_error *err) {
  br_output *w = br_calloc(1, sizeof *w);
  br_status status = BR_OK;
  unsigned char header[BR_MAPFILE_HEADER_BYTES];
  w->id = o->id;
  w->partitions = o->partitions;
  w->codec_memory = o->codec_memory;
  w->codec_disk = o->codec_disk;
  w->reserver = o->reserver;
  w->publisher = o->publish;
  w->path = make_path(o);
  w->run_limit_bytes = run_limit(o->scatter_buffer_bytes);
  pthread_rwlock_init(&w->mode, NULL);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->written, NULL);
  w->end = BR_MAPFILE_HEADER_BYTES;
  w->fd = -1;
  BR_TRY_GOTO(o->shared_dir != NULL ? open_shared(w, o->shared_dir, err) : open_memory(w, err));
  br_mapfile_header(header);
  BR_TRY_GOTO(br_shuffle_pwrite(w->fd, header, sizeof header, 0, w->on_disk ? w->path : NULL, err));
  BR_TRY_GOTO(br_ipc_encode_schema(o->schema, &w->schema_head, err));
  *out = w;
done:
  if (status != BR_OK) br_output_free(w);
  return status;
}

br_codec br_output_codec(const br_output *o) {
  return atomic_load_explicit(&o->on_disk, memory_order_relaxed) ? o->codec_disk : o->codec_memory;
}

/* ---- the pieces of a chunk, and the checksum over them */
static const unsigned char zeros[BR_MAPFILE_ALIGN_BYTES];

static void put_piece(struct iovec *iov, size_t *n, const void *data, uint64_t bytes) {
  if (bytes == 0) return;
  iov[(*n)++] = (struct iovec){.iov_base = (void *)data, .iov_len = bytes};
  uint64_t more = br_mapfile_align(bytes) - bytes;
  if (more > 0) iov[(*n)++] = (struct iovec){.iov_base = (void *)zeros, .iov_len = more};
}

/* iov has room for 2 + 2 * n_pieces. */
static size_t chunk_pieces(const br_output_chunk *c, struct iovec *iov) {
  size_t n = 0;
  put_piece(iov, &n, c->head->data, c->head->len);
  for (size_t i = 0; i < c->n_pieces; i++) put_piece(iov, &n, c->pieces[i].data, c->pieces[i].bytes);
  return n;
}

static uint64_t checksum_pieces(const struct iovec *iov, size_t n) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < n; i++) XXH3_64bits_update(&state, iov[i].iov_base, iov[i].iov_len);
  return XXH3_64bits_digest(&state);
}

/* ---- telling those who follow (under lock) */
static void tell_all(br_output *w) {
  while (w->told < w->chunks.n) {
    size_t n = w->chunks.n - w->told;
    br_publication p = {.generation = w->generation,
                        .in_memory = !w->on_disk,
                        .fd = w->fd_told ? -1 : w->fd,
                        .first_chunk = w->told,
                        .chunks = &w->chunks.items[w->told],
                        .n = n < BR_OUTPUT_PUBLISH_CHUNKS ? n : BR_OUTPUT_PUBLISH_CHUNKS};
    if (!w->fd_told) p.schema = w->schema_head.data, p.schema_bytes = w->schema_head.len;
    w->publisher.publish(w->publisher.arg, &p);
    w->told += p.n;
    w->fd_told = true;
  }
  w->untold_bytes = 0;
  w->told_ms = br_now_ms();
}

static void tell(br_output *w, bool all) {
  if (w->publisher.publish == NULL || w->told == w->chunks.n) return;
  if (all || w->told == 0 || w->untold_bytes >= BR_OUTPUT_PUBLISH_BYTES ||
      br_now_ms() - w->told_ms >= BR_OUTPUT_PUBLISH_MS)
    tell_all(w);
}

static void add_to_index(br_output *w, const br_chunk *c) {
  list_add(&w->chunks, c);
  w->untold_bytes += br_chunk_stored_bytes(c);
}

/* Not while a thread waits under lock for the node's answer to a reservation: that may need the caller's thread. */
void br_output_publish(br_output *w) {
  if (w->publisher.publish == NULL || pthread_mutex_trylock(&w->lock) != 0) return;
  if (!w->told_all) tell(w, true);
  pthread_mutex_unlock(&w->lock);
}

/* ---- runs */
/* Append the sorted chunks of src, whose bytes lie in data, to the file at w->end; their offsets are in the file then. The
 * caller alone writes to the file, and puts them into the index. */
static br_status append_sorted(br_output *w, const unsigned char *data, chunk_list *src, br_error *err) {
  br_status status = BR_OK;
  struct iovec *iov = br_malloc((src->n + 1) * sizeof *iov);
  uint64_t at = w->end;
  br_chunks_sort(src->items, src->n);
  for (size_t i = 0; i < src->n; i++) {
    br_chunk *c = &src->items[i];
    uint64_t bytes = br_chunk_stored_bytes(c);
    iov[i] = (struct iovec){.iov_base = (void *)(data + c->offset), .iov_len = bytes};
    c->offset = at;
    at += bytes;
  }
  BR_TRY_GOTO(br_shuffle_pwritev(w->fd, iov, src->n, w->end, w->path, err));
  w->end = at;
done:
  free(iov);
  return status;
}

/* Under lock, which is given up meanwhile: write the run that is being filled. */
static br_status write_run(br_output *w, br_error *err) {
  run full = w->filling;
  w->filling = w->spare;
  w->spare = (run){0};
  w->writing = true;
  pthread_mutex_unlock(&w->lock);
  br_status status = append_sorted(w, (const unsigned char *)full.data.data, &full.chunks, err);
  br_buf_clear(&full.data);
  pthread_mutex_lock(&w->lock);
  for (size_t i = 0; i < full.chunks.n && status == BR_OK; i++) add_to_index(w, &full.chunks.items[i]);
  full.chunks.n = 0;
  tell(w, false);
  w->spare = full;
  w->writing = false;
  if (status != BR_OK && w->failure.code == BR_OK) w->failure = *err;
  pthread_cond_broadcast(&w->written);
  return status;
}

static br_status add_to_run(br_output *w, br_chunk *c, const struct iovec *iov, size_t n_iov, br_error *err) {
  br_status status = BR_OK;
  uint64_t bytes = br_chunk_stored_bytes(c);
  pthread_mutex_lock(&w->lock);
  for (;;) {
    if (w->failure.code != BR_OK) {
      *err = w->failure;
      status = err->code;
      goto done;
    }
    bool old = w->publisher.publish != NULL && br_now_ms() - w->run_ms >= BR_OUTPUT_FOLLOWED_RUN_MS;
    if (w->filling.data.len == 0 || (w->filling.data.len + bytes <= w->run_limit_bytes && !(old && !w->writing))) break;
    if (w->writing)
      pthread_cond_wait(&w->written, &w->lock); /* bounded by the disk: its writer ends with success or an error */
    else
      BR_TRY_GOTO(write_run(w, err));
  }
  if (w->filling.data.len == 0) w->run_ms = br_now_ms();
  c->offset = w->filling.data.len;
  for (size_t i = 0; i < n_iov; i++) br_buf_add(&w->filling.data, iov[i].iov_base, iov[i].iov_len);
  list_add(&w->filling.chunks, c);
done:
  pthread_mutex_unlock(&w->lock);
  return status;
}

/* ---- memory, and the way to disk */
static void give_back(br_output *w) {
  if (w->granted_bytes > 0 && w->reserver.release != NULL) {
    w->reserver.release(w->reserver.arg, w->granted_bytes);
    w->granted_bytes = 0;
  }
}

/* mode is held exclusively. */
static br_status move_to_disk(br_output *w, br_error *err) {
  br_status status = BR_OK;
  unsigned char header[BR_MAPFILE_HEADER_BYTES];
  chunk_list old = w->chunks;
  int memory = w->fd, fd = -1;
  uint64_t old_end = w->end;
  void *map = MAP_FAILED;
  if (w->failure.code != BR_OK) {
    *err = w->failure;
    return err->code;
  }
  BR_TRY_GOTO(br_shuffle_create(w->path, &fd, err));
  br_mapfile_header(header);
  BR_TRY_GOTO(br_shuffle_pwrite(fd, header, sizeof header, 0, w->path, err));
  if (old.n > 0) {
    map = mmap(NULL, old_end, PROT_READ, MAP_SHARED, memory, 0);
    if (map == MAP_FAILED) {
      status = br_fail_errno(err, errno, BR_BLAME_TASK, "cannot map a map output to move it to disk");
      goto done;
    }
  }
  pthread_mutex_lock(&w->lock);
  tell(w, true); /* who follows matches the file's chunks with all those of the memory */
  w->fd = fd;
  w->chunks = (chunk_list){0};
  w->end = BR_MAPFILE_HEADER_BYTES;
  w->generation++;
  w->told = 0;
  w->fd_told = false;
  pthread_mutex_unlock(&w->lock);
  if (old.n > 0) status = append_sorted(w, map, &old, err);
  if (map != MAP_FAILED) munmap(map, old_end);
  pthread_mutex_lock(&w->lock);
  atomic_store_explicit(&w->on_disk, true, memory_order_relaxed);
  for (size_t i = 0; i < old.n && status == BR_OK; i++) add_to_index(w, &old.items[i]);
  tell(w, false);
  pthread_mutex_unlock(&w->lock);
  close(memory);
  free(old.items);
  fd = -1;
  give_back(w);
done:
  if (fd >= 0) {
    close(fd);
    unlink(w->path);
  }
  if (status != BR_OK) w->failure = *err;
  return status;
}

/* Under lock. */
static bool reserve_up_to(br_output *w, uint64_t end) {
  if (end <= w->granted_bytes || w->reserver.reserve == NULL) {
    if (w->reserver.reserve == NULL && w->granted_bytes < end) w->granted_bytes = end;
    return true;
  }
  uint64_t step = w->granted_bytes / 4;
  if (step < RESERVE_STEP_BYTES_MIN) step = RESERVE_STEP_BYTES_MIN;
  if (step > RESERVE_STEP_BYTES_MAX) step = RESERVE_STEP_BYTES_MAX;
  if (step < end - w->granted_bytes) step = end - w->granted_bytes;
  if (!w->reserver.reserve(w->reserver.arg, step)) return false;
  w->granted_bytes += step;
  return true;
}

/* mode is held shared. *refused: neither stored nor failed, go to disk. */
static br_status add_to_memory(br_output *w, br_chunk *c, struct iovec *iov, size_t n_iov, bool *refused,
                               br_error *err) {
  uint64_t bytes = br_chunk_stored_bytes(c);
  pthread_mutex_lock(&w->lock);
  *refused = !reserve_up_to(w, w->end + bytes);
  if (!*refused) {
    c->offset = w->end;
    w->end += bytes;
  }
  pthread_mutex_unlock(&w->lock);
  if (*refused) return BR_OK;
  br_status status = br_shuffle_pwritev(w->fd, iov, n_iov, c->offset, NULL, err);
  if (status == BR_NO_SPACE || status == BR_OUT_OF_MEMORY || (status != BR_OK && err->sys_errno == EFBIG)) {
    br_error_clear(err);
    *refused = true; /* the hole in the file is never named by the index */
    return BR_OK;
  }
  BR_TRY(status);
  pthread_mutex_lock(&w->lock);
  add_to_index(w, c);
  tell(w, false);
  pthread_mutex_unlock(&w->lock);
  return BR_OK;
}

static br_status check_chunk(const br_output_chunk *c, br_error *err) {
  uint64_t body = 0;
  for (size_t i = 0; i < c->n_pieces; i++) body += br_mapfile_align(c->pieces[i].bytes);
  if (c->head->len > 0 && c->head->len <= BR_MAPFILE_MAX_HEAD_BYTES && body == c->body_bytes) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL,
                 "chunk with a message of %zu bytes and a body of %" PRIu64 " bytes in pieces of %" PRIu64,
                 c->head->len, c->body_bytes, body);
}

static br_status store(br_output *w, const br_output_chunk *chunk, struct iovec *iov, br_error *err) {
  br_status status = BR_OK;
  size_t n_iov = chunk_pieces(chunk, iov);
  br_chunk c = {.partition = chunk->partition,
                .head_bytes = (uint32_t)chunk->head->len,
                .body_bytes = chunk->body_bytes,
                .rows = chunk->rows,
                .checksum = checksum_pieces(iov, n_iov)};
  pthread_rwlock_rdlock(&w->mode);
  bool disk = w->on_disk, refused = false;
  if (!disk) status = add_to_memory(w, &c, iov, n_iov, &refused, err);
  pthread_rwlock_unlock(&w->mode);
  if (status != BR_OK || (!disk && !refused)) return status;
  if (refused) {
    n_iov = chunk_pieces(chunk, iov); /* a failed write may have used them up */
    pthread_rwlock_wrlock(&w->mode);
    if (!w->on_disk) status = move_to_disk(w, err);
    pthread_rwlock_unlock(&w->mode);
    BR_TRY(status);
  }
  return add_to_run(w, &c, iov, n_iov, err);
}

br_status br_output_add(br_output *w, const br_output_chunk *c, br_error *err) {
  BR_TRY(check_chunk(c, err));
  struct iovec *iov = br_malloc((2 + 2 * c->n_pieces) * sizeof *iov);
  br_status status = store(w, c, iov, err);
  free(iov);
  return status;
}

/* ---- the end */
static br_status write_tail(br_output *w, br_error *err) {
  br_status status = BR_OK;
  br_buf tail = {0};
  pthread_mutex_lock(&w->lock);
  tell(w, true); /* in the order of writing: it is sorted now */
  w->told_all = true;
  pthread_mutex_unlock(&w->lock);
  br_chunks_sort(w->chunks.items, w->chunks.n);
  br_mapfile_tail(&w->id, w->partitions, &w->schema_head, w->chunks.items, w->chunks.n, w->end, &tail);
  BR_TRY_GOTO(br_shuffle_pwrite(w->fd, tail.data, tail.len, w->end, w->on_disk ? w->path : NULL, err));
done:
  if (status == BR_OK) w->end += tail.len;
  br_buf_free(&tail);
  return status;
}

/* The kernel refuses to seal while anything else holds one of the pages for a moment (it moves or ages memory): it waits up to
 * 0.15 s itself, then says EBUSY. Seen once in thousands of outputs on a busy machine; asked again it passes. */
static int seal(int fd) {
  int rc = 0;
  for (int i = 0; i < SEAL_TRIES; i++) {
    rc = fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (rc == 0 || errno != EBUSY) break;
  }
  return rc;
}

static br_status finish_memory(br_output *w, br_error *err) {
  /* The tail is small: the node counts the true size when the output comes in, so a refusal here doesn't matter. */
  if (w->chunks.n > 0) (void)reserve_up_to(w, w->end + w->schema_head.len + w->chunks.n * sizeof(br_chunk) + 4096);
  BR_TRY(write_tail(w, err));
  if (ftruncate(w->fd, (off_t)w->end) != 0 || seal(w->fd) != 0)
    return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot seal the memory of a map output");
  return BR_OK;
}

static br_status finish_disk(br_output *w, br_error *err) {
  br_status status = BR_OK;
  pthread_mutex_lock(&w->lock);
  while (w->writing) pthread_cond_wait(&w->written, &w->lock);
  if (w->failure.code != BR_OK) {
    *err = w->failure;
    status = err->code;
  } else if (w->filling.data.len > 0) {
    status = write_run(w, err);
  }
  pthread_mutex_unlock(&w->lock);
  return status == BR_OK ? write_tail(w, err) : status;
}

static br_status publish(br_output *w, br_error *err) {
  int fd = w->fd;
  w->fd = -1;
  return br_files_publish(fd, w->path, w->published, err);
}

br_status br_output_commit(br_output *w, br_map_output *out, br_error *err) {
  bool disk = w->on_disk;
  if (w->committed) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a map output is committed twice");
  br_status status = disk ? finish_disk(w, err) : finish_memory(w, err);
  if (status == BR_OK && w->published != NULL) status = publish(w, err);
  BR_TRY(status);
  *out = (br_map_output){.fd = w->fd,
                         .in_memory = !disk,
                         .path = disk ? br_strdup(w->published != NULL ? w->published : w->path) : NULL,
                         .file_bytes = w->end,
                         .spilled_bytes = disk && w->published == NULL ? w->end : 0,
                         .reserved_bytes = w->reserver.reserve != NULL ? w->granted_bytes : 0,
                         .partition_rows = br_calloc(w->partitions, sizeof(uint64_t)),
                         .partition_bytes = br_calloc(w->partitions, sizeof(uint64_t))};
  for (size_t i = 0; i < w->chunks.n; i++) {
    const br_chunk *c = &w->chunks.items[i];
    uint64_t bytes = br_chunk_stored_bytes(c);
    out->partition_rows[c->partition] += c->rows;
    out->partition_bytes[c->partition] += bytes;
    out->rows += c->rows;
    out->bytes += bytes;
  }
  out->index_offset = out->file_bytes - sizeof(br_mapfile_trailer) - w->chunks.n * sizeof(br_chunk);
  w->fd = -1;
  w->granted_bytes = 0; /* the receiver settles them */
  w->committed = true;
  return BR_OK;
}

void br_output_free(br_output *w) {
  if (w == NULL) return;
  if (w->fd >= 0) close(w->fd);
  if (w->on_disk && !w->committed) unlink(w->path);
  if (w->reserver.reserve != NULL) give_back(w);
  br_buf_free(&w->filling.data);
  br_buf_free(&w->spare.data);
  free(w->filling.chunks.items);
  free(w->spare.chunks.items);
  free(w->chunks.items);
  br_buf_free(&w->schema_head);
  free(w->path);
  free(w->published);
  pthread_cond_destroy(&w->written);
  pthread_mutex_destroy(&w->lock);
  pthread_rwlock_destroy(&w->mode);
  free(w);
}
