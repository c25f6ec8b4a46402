/* SPDX-License-Identifier: Apache-2.0
 *
 * One map output, opened for reading: br_mapfile_open → find → chunk, any number of times, on any thread → unref.
 *
 * Nothing in the file is believed before it was checked: the trailer by its checksum, schema and index by theirs, every
 * index entry against the bounds of the file, every chunk by its checksum when it is read. Whatever doesn't fit is
 * BR_CORRUPT. A memfd is mapped, which is safe only because it's sealed against shrinking and writing (checked here);
 * disk files are read by pread, since a mapping of a failing disk raises SIGBUS instead of an error.
 *
 * Threads: everything after open is read-only, but the reference count, which is atomic.
 * Bounds: memory for the index of a disk file (40 bytes a chunk); for chunks the caller's.
 */
#include "shuffle/mapfile.h"
#include "shuffle/checksum.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct br_mapfile {
  _Atomic uint32_t refs;
  int fd;
  bool in_memory;
  const unsigned char *map; /* of the whole file, or NULL */
  uint64_t map_bytes;       /* not t.file_bytes, which may be a lie until it's checked */
  unsigned char *tail;      /* schema and index of a disk file, or NULL */
  const unsigned char *schema;
  const br_chunk *chunks;
  br_mapfile_trailer t;
  void (*on_free)(void *arg);
  void *on_free_arg;
};

static br_status corrupt(br_error *err, const char *what) {
  return br_fail(err, BR_CORRUPT, BR_BLAME_WORKER, "map output is damaged: %s; it has to be made again", what);
}

static br_status check_trailer(const br_mapfile_trailer *t, uint64_t file_bytes, br_error *err) {
  if (memcmp(t->magic, "BRMAPT01", 8) != 0) return corrupt(err, "no trailer at its end");
  if (XXH3_64bits(t, offsetof(br_mapfile_trailer, checksum)) != t->checksum)
    return corrupt(err, "checksum of the trailer");
  if (t->version != BR_MAPFILE_VERSION)
    return br_fail(err, BR_VERSION, BR_BLAME_WORKER, "map output has format version %u, this build reads %u",
                   t->version, BR_MAPFILE_VERSION);
  if (t->file_bytes != file_bytes) return corrupt(err, "its length");
  if (t->partitions == 0 || t->partitions > BR_MAPFILE_MAX_PARTITIONS) return corrupt(err, "number of partitions");
  if (t->schema_bytes == 0 || t->schema_bytes > BR_MAPFILE_MAX_HEAD_BYTES) return corrupt(err, "size of the schema");
  uint64_t end = file_bytes - sizeof *t;
  if (t->schema_offset < BR_MAPFILE_HEADER_BYTES || t->schema_offset > end ||
      t->schema_offset % BR_MAPFILE_ALIGN_BYTES != 0)
    return corrupt(err, "place of the schema");
  /* No overflow: schema_offset <= file size, and the other two terms are below 2^38. */
  if (t->index_offset != t->schema_offset + br_mapfile_align(t->schema_bytes) ||
      t->index_offset + (uint64_t)t->chunks * sizeof(br_chunk) != end)
    return corrupt(err, "place of the index");
  if (t->attempt > UINT16_MAX) return corrupt(err, "attempt number");
  return BR_OK;
}

static br_status check_index(const br_mapfile_trailer *t, const br_chunk *chunks, br_error *err) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < t->chunks; i++) {
    const br_chunk *c = &chunks[i];
    if (c->partition >= t->partitions) return corrupt(err, "index names a partition that doesn't exist");
    if (i > 0 && (c->partition < c[-1].partition || (c->partition == c[-1].partition && c->offset <= c[-1].offset)))
      return corrupt(err, "index is not sorted");
    if (c->head_bytes == 0 || c->head_bytes > BR_MAPFILE_MAX_HEAD_BYTES)
      return corrupt(err, "index: size of a message");
    if (c->offset < BR_MAPFILE_HEADER_BYTES || c->offset > t->schema_offset || c->offset % BR_MAPFILE_ALIGN_BYTES != 0)
      return corrupt(err, "index: place of a chunk");
    uint64_t room = t->schema_offset - c->offset;
    if (c->body_bytes % BR_MAPFILE_ALIGN_BYTES != 0 || c->body_bytes > room || br_chunk_stored_bytes(c) > room)
      return corrupt(err, "index: size of a chunk");
    if (c->rows > INT64_MAX - rows) return corrupt(err, "index: number of rows");
    rows += c->rows;
  }
  if (rows != t->rows) return corrupt(err, "number of rows");
  return BR_OK;
}

static br_status map_memory(br_mapfile *f, uint64_t file_bytes, br_error *err) {
  const int need = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
  int seals = fcntl(f->fd, F_GET_SEALS);
  if (seals < 0 || (seals & need) != need) return corrupt(err, "its memory isn't sealed");
  /* Private, not shared: kernels before 6.7 refuse a shared mapping, even a read-only one, of a memfd that is sealed. */
  void *p = mmap(NULL, file_bytes, PROT_READ, MAP_PRIVATE, f->fd, 0);
  if (p == MAP_FAILED)
    return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot map a map output of %" PRIu64 " bytes", file_bytes);
  f->map = p;
  f->map_bytes = file_bytes;
  return BR_OK;
}

static br_status read_tail(br_mapfile *f, uint64_t file_bytes, br_error *err) {
  uint64_t end = file_bytes - sizeof f->t;
  if (f->in_memory) {
    BR_TRY(map_memory(f, file_bytes, err));
    memcpy(&f->t, f->map + end, sizeof f->t);
  } else {
    BR_TRY(br_pread_all(f->fd, &f->t, sizeof f->t, end, err));
  }
  BR_TRY(check_trailer(&f->t, file_bytes, err));
  uint64_t bytes = end - f->t.schema_offset;
  if (f->in_memory) {
    f->schema = f->map + f->t.schema_offset;
  } else {
    f->tail = aligned_alloc(BR_MAPFILE_ALIGN_BYTES, br_mapfile_align(bytes));
    if (f->tail == NULL)
      return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_WORKER,
                     "no memory for the index of a map output (%" PRIu64 " bytes)", bytes);
    BR_TRY(br_pread_all(f->fd, f->tail, bytes, f->t.schema_offset, err));
    f->schema = f->tail;
  }
  if (XXH3_64bits(f->schema, bytes) != f->t.tail_checksum) return corrupt(err, "checksum of the index");
  f->chunks = (const br_chunk *)(f->schema + (f->t.index_offset - f->t.schema_offset));
  return check_index(&f->t, f->chunks, err);
}

br_status br_mapfile_open(int fd, bool in_memory, uint64_t file_bytes, br_mapfile **out, br_error *err) {
  br_mapfile *f = br_calloc(1, sizeof *f);
  br_status status = BR_OK;
  struct stat st;
  f->refs = 1;
  f->fd = fd;
  f->in_memory = in_memory;
  if (fd < 0 || fstat(fd, &st) != 0) {
    status = br_fail_errno(err, fd < 0 ? EBADF : errno, BR_BLAME_WORKER, "cannot open a map output");
    goto done;
  }
  if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file_bytes ||
      file_bytes < BR_MAPFILE_HEADER_BYTES + sizeof(br_mapfile_trailer)) {
    status = corrupt(err, "its length");
    goto done;
  }
  BR_TRY_GOTO(read_tail(f, file_bytes, err));
  *out = f;
done:
  if (status != BR_OK) br_mapfile_unref(f);
  return status;
}

br_mapfile *br_mapfile_ref(br_mapfile *f) {
  atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
  return f;
}

void br_mapfile_unref(br_mapfile *f) {
  if (f == NULL || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) return;
  if (f->map != NULL) munmap((void *)f->map, f->map_bytes);
  if (f->fd >= 0) close(f->fd);
  free(f->tail);
  if (f->on_free != NULL) f->on_free(f->on_free_arg);
  free(f);
}

uint32_t br_mapfile_partitions(const br_mapfile *f) { return f->t.partitions; }
uint64_t br_mapfile_rows(const br_mapfile *f) { return f->t.rows; }
uint64_t br_mapfile_bytes(const br_mapfile *f) { return f->t.file_bytes; }
uint32_t br_mapfile_refs(const br_mapfile *f) { return atomic_load(&f->refs); }
bool br_mapfile_in_memory(const br_mapfile *f) { return f->in_memory; }
int br_mapfile_fd(const br_mapfile *f) { return f->fd; }

void br_mapfile_close_fd(br_mapfile *f) {
  BR_ASSERT(f->in_memory);
  close(f->fd);
  f->fd = -1;
}

br_attempt_id br_mapfile_id(const br_mapfile *f) {
  return (br_attempt_id){
      .query = f->t.query, .stage = f->t.stage, .task = f->t.task, .attempt = (uint16_t)f->t.attempt};
}

void br_mapfile_on_free(br_mapfile *f, void (*fn)(void *arg), void *arg) {
  BR_ASSERT(f->on_free == NULL);
  f->on_free = fn;
  f->on_free_arg = arg;
}

/* Number of chunks of partitions below `partition`. */
static size_t lower_bound(const br_mapfile *f, uint32_t partition) {
  size_t low = 0, high = f->t.chunks;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (f->chunks[middle].partition < partition)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

size_t br_mapfile_find(const br_mapfile *f, uint32_t first, uint32_t last, const br_chunk **chunks) {
  if (first >= last) {
    *chunks = NULL;
    return 0;
  }
  size_t from = lower_bound(f, first), to = lower_bound(f, last);
  *chunks = from < to ? f->chunks + from : NULL;
  return to - from;
}

size_t br_mapfile_index(const br_mapfile *f, const br_chunk **chunks) {
  *chunks = f->chunks;
  return f->t.chunks;
}

void br_mapfile_schema(const br_mapfile *f, const void **head, size_t *bytes) {
  *head = f->schema;
  *bytes = f->t.schema_bytes;
}

static void unref_owner(void *owner) { br_mapfile_unref(owner); }

void br_mapfile_view(br_mapfile *f, const br_chunk *c, const void **head, br_ipc_body *body) {
  BR_ASSERT(f->in_memory);
  const unsigned char *p = f->map + c->offset;
  *head = p;
  *body = (br_ipc_body){.data = p + br_mapfile_align(c->head_bytes),
                        .bytes = c->body_bytes,
                        .release = unref_owner,
                        .owner = br_mapfile_ref(f)};
}

static void set_lost(const br_attempt_id *id, br_error *err) {
  err->has_lost = true;
  err->lost = (br_map_output_id){.made_by = *id};
}

static br_status bad_chunk(const br_attempt_id *id, const br_chunk *c, br_error *err) {
  br_fail(err, BR_CORRUPT, BR_BLAME_WORKER,
          "map output of task %u of stage %u (query %" PRIx64 ", attempt %u) is damaged: checksum of %" PRIu64
          " bytes of partition %u at offset %" PRIu64 "; it has to be made again",
          id->task, id->stage, id->query, (unsigned)id->attempt, br_chunk_stored_bytes(c), c->partition, c->offset);
  set_lost(id, err);
  return BR_CORRUPT;
}

br_status br_chunk_read(int fd, const br_attempt_id *id, const br_chunk *c, const void **head, br_ipc_body *body,
                        br_error *err) {
  uint64_t bytes = br_chunk_stored_bytes(c);
  unsigned char *p = aligned_alloc(BR_MAPFILE_ALIGN_BYTES, bytes);
  if (p == NULL)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for a chunk of %" PRIu64 " bytes", bytes);
  br_status status = br_pread_all(fd, p, bytes, c->offset, err);
  if (status == BR_OK && br_chunk_checksum(p, bytes) != c->checksum) status = bad_chunk(id, c, err);
  if (status != BR_OK) {
    set_lost(id, err); /* a disk that can't be read loses the output just as well */
    free(p);
    return status;
  }
  *head = p;
  *body =
      (br_ipc_body){.data = p + br_mapfile_align(c->head_bytes), .bytes = c->body_bytes, .release = free, .owner = p};
  return BR_OK;
}

br_status br_mapfile_chunk(br_mapfile *f, const br_chunk *c, const void **head, br_ipc_body *body, br_error *err) {
  br_attempt_id id = br_mapfile_id(f);
  if (!f->in_memory) return br_chunk_read(f->fd, &id, c, head, body, err);
  if (br_chunk_checksum(f->map + c->offset, br_chunk_stored_bytes(c)) != c->checksum) return bad_chunk(&id, c, err);
  br_mapfile_view(f, c, head, body);
  return BR_OK;
}
