/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading map outputs of a shared directory by path. A reader's threads (br_reader_next) do all the work: each takes, in this
 * order, a chunk that is there; the next extent of an open output to read; the next output to open. An extent is a stretch of
 * one file with chunks of the range that lie behind each other, up to extent_bytes: a partition of many small chunks is read by few
 * large reads. An output is closed when its last extent is read.
 *
 * Unordered: outputs in the order of their maps from a place that differs by partition (so that not all tasks begin at the same
 * file), extents by offset. Ordered: one output after the other, chunks in the order of the index.
 *
 * Every failure of an output is BR_FETCH with `lost` set: it's missing, cut off, damaged, another's, or its disk can't be read.
 * Only what this process lacks (descriptors, memory) or the whole directory missing isn't the output's fault.
 *
 * Threads: under the reader's lock, not held over I/O. Bounds: bytes read and not taken: buffer_bytes, or one extent, if a
 * single chunk is larger; open files: one a thread that calls next, and one more.
 */
#include "shuffle/files.h"

#include "base/mem.h"
#include "base/util.h"
#include "shuffle/reader_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXTENT_BYTES_MAX (4u << 20)
#define EXTENT_BYTES_MIN (1u << 20)
#define EXTENT_GAP_BYTES (64u << 10) /* of other partitions' chunks read along rather than skipped */
#define BUFFER_BYTES_DEFAULT (32u << 20)

/* Memory of one extent, held by each of its chunks. */
typedef struct extent {
  _Atomic uint32_t refs;
  unsigned char *data; /* aligned as the file is */
  uint64_t offset, bytes;
} extent;

typedef struct opened opened;
struct opened {
  opened *next;
  uint32_t refs; /* in the list, each read under way; under the reader's lock */
  const br_read_file *source;
  br_mapfile *file;
  br_chunk *chunks; /* of the range, in the order of reading */
  size_t n, at;
};

/* A chunk that was read and not taken. */
typedef struct ready ready;
struct ready {
  ready *next;
  const br_read_file *source;
  extent *from;
  br_chunk chunk;
};

struct br_files {
  char *dir;
  br_read_file *sources; /* sorted by map */
  size_t n, at;          /* at: the next one to open, counted from `start` */
  size_t start;
  uint64_t buffer_bytes, extent_bytes;
  opened *open;
  ready *first, *last;
  uint64_t held_bytes; /* of extents: read or being read, chunks not taken */
  uint32_t busy;       /* threads that open or read */
};

/* ---- open and free */
static int by_map(const void *x, const void *y) {
  const br_read_file *a = x, *b = y;
  return a->map < b->map ? -1 : a->map > b->map;
}

br_files *br_files_new(const br_reader_options *o) {
  br_files *f = br_calloc(1, sizeof *f);
  f->dir = br_strdup(o->shared_dir);
  f->sources = br_calloc(o->n_file + 1, sizeof *f->sources);
  for (size_t i = 0; i < o->n_file; i++) f->sources[f->n++] = o->file[i];
  qsort(f->sources, f->n, sizeof *f->sources, by_map);
  if (!o->ordered && f->n > 0) f->start = o->first % f->n;
  f->buffer_bytes = o->buffer_bytes > 0 ? o->buffer_bytes : BUFFER_BYTES_DEFAULT;
  f->extent_bytes = f->buffer_bytes / 2;
  if (f->extent_bytes > EXTENT_BYTES_MAX) f->extent_bytes = EXTENT_BYTES_MAX;
  if (f->extent_bytes < EXTENT_BYTES_MIN) f->extent_bytes = EXTENT_BYTES_MIN;
  return f;
}

static void extent_unref(void *p) {
  extent *x = p;
  if (atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1) return;
  free(x->data);
  free(x);
}

static void opened_unref(opened *o) {
  if (--o->refs > 0) return;
  br_mapfile_unref(o->file);
  free(o->chunks);
  free(o);
}

void br_files_free(br_files *f) {
  if (f == NULL) return;
  while (f->open != NULL) {
    opened *o = f->open;
    f->open = o->next;
    opened_unref(o);
  }
  while (f->first != NULL) {
    ready *c = f->first;
    f->first = c->next;
    extent_unref(c->from);
    free(c);
  }
  free(f->sources);
  free(f->dir);
  free(f);
}

/* ---- errors */
static br_attempt_id source_id(const br_reader *r, const br_read_file *s) {
  return (br_attempt_id){.query = r->query, .stage = r->stage, .task = s->map, .attempt = s->attempt};
}

/* *err: why its output can't be read. */
static br_status lost(const br_reader *r, const br_files *f, const br_read_file *s, br_error *err) {
  br_error cause = *err;
  br_fail(err, BR_FETCH, BR_BLAME_FETCH, "cannot read the output of task %u of stage %u (attempt %u) in %s: %s", s->map,
          r->stage, s->attempt, f->dir, cause.message);
  err->has_lost = true;
  err->lost = (br_map_output_id){.made_by = source_id(r, s), .worker = s->worker, .incarnation = s->incarnation};
  err->sys_errno = cause.sys_errno;
  return BR_FETCH;
}

/* An errno that says something about this process, not about the output. */
static bool own_trouble(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR; }

/* ---- opening */
static br_status open_file(const br_reader *r, const br_files *f, const br_read_file *s, br_mapfile **out,
                           br_error *err) {
  br_attempt_id id = source_id(r, s);
  char *path = br_files_path(f->dir, &id);
  struct stat st;
  br_status status = BR_OK;
  int fd = open(path, O_RDONLY | O_CLOEXEC), error = errno;
  free(path);
  if (fd >= 0 && fstat(fd, &st) == 0) {
    status = br_mapfile_open(fd, false, (uint64_t)st.st_size, out, err);
    if (status != BR_OK) return own_trouble(err->sys_errno) || status == BR_OUT_OF_MEMORY ? status : lost(r, f, s, err);
    br_attempt_id is = br_mapfile_id(*out);
    if (is.query == id.query && is.stage == id.stage && is.task == id.task && is.attempt == id.attempt) return BR_OK;
    br_mapfile_unref(*out);
    *out = NULL;
    br_fail(err, BR_CORRUPT, BR_BLAME_WORKER, "the file says that it is another one");
    return lost(r, f, s, err);
  }
  if (fd >= 0) {
    error = errno;
    close(fd);
  }
  if (own_trouble(error)) return br_fail_errno(err, error, BR_BLAME_TASK, "cannot open an output in %s", f->dir);
  if (error == ENOENT && access(f->dir, F_OK) != 0)
    return br_fail(
        err, BR_IO, BR_BLAME_TASK,
        "the shuffle directory %s is not there: has this node mounted it (shuffle_dir), or has its query ended?",
        f->dir);
  br_fail_errno(err, error, BR_BLAME_WORKER, "its file can't be opened");
  return lost(r, f, s, err);
}

static br_status check_schema(br_reader *r, const br_mapfile *file, br_error *err) {
  const void *head;
  size_t bytes;
  br_schema *schema = NULL;
  br_buf why = {0};
  if (r->last > br_mapfile_partitions(file))
    return br_fail(err, BR_CORRUPT, BR_BLAME_WORKER, "it has %u partitions, up to %u are asked for",
                   br_mapfile_partitions(file), r->last);
  br_mapfile_schema(file, &head, &bytes);
  BR_TRY(br_ipc_decode_schema(head, bytes, &schema, err));
  bool same = br_schema_same_types(r->schema, schema, &why);
  br_schema_unref(schema);
  if (!same)
    br_fail(err, BR_CORRUPT, BR_BLAME_WORKER, "its columns have other types than expected: %s", br_buf_cstr(&why));
  br_buf_free(&why);
  return same ? BR_OK : BR_CORRUPT;
}

static int by_offset(const void *x, const void *y) {
  const br_chunk *a = x, *b = y;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Without the lock. */
static br_status open_source(br_reader *r, br_files *f, const br_read_file *s, opened **out, br_error *err) {
  br_mapfile *file = NULL;
  const br_chunk *chunks;
  BR_TRY(open_file(r, f, s, &file, err));
  if (check_schema(r, file, err) != BR_OK) {
    br_mapfile_unref(file);
    return lost(r, f, s, err);
  }
  opened *o = br_calloc(1, sizeof *o);
  *o = (opened){.refs = 1, .source = s, .file = file, .n = br_mapfile_find(file, r->first, r->last, &chunks)};
  o->chunks = br_malloc((o->n + 1) * sizeof *o->chunks);
  if (o->n > 0) memcpy(o->chunks, chunks, o->n * sizeof *o->chunks);
  if (!r->ordered && o->n > 1) qsort(o->chunks, o->n, sizeof *o->chunks, by_offset);
  *out = o;
  return BR_OK;
}

/* ---- extents */
/* The next one of an output that has chunks left: how many chunks, from where to where. */
static size_t plan_extent(const br_files *f, const opened *o, uint64_t *offset, uint64_t *bytes) {
  size_t n = 1;
  uint64_t end = o->chunks[o->at].offset + br_chunk_stored_bytes(&o->chunks[o->at]);
  *offset = o->chunks[o->at].offset;
  for (; o->at + n < o->n; n++) {
    const br_chunk *c = &o->chunks[o->at + n];
    uint64_t to = c->offset + br_chunk_stored_bytes(c);
    if (c->offset < end || c->offset - end > EXTENT_GAP_BYTES || to - *offset > f->extent_bytes) break;
    end = to;
  }
  *bytes = end - *offset;
  return n;
}

static void read_ahead(const opened *o, const br_files *f) {
  opened later = *o;
  uint64_t offset, bytes;
  if (later.at == later.n) return;
  plan_extent(f, &later, &offset, &bytes);
  (void)posix_fadvise(br_mapfile_fd(o->file), (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}

/* Without the lock. */
static br_status read_extent(const br_reader *r, const br_files *f, const opened *o, uint64_t offset, uint64_t bytes,
                             extent **out, br_error *err) {
  extent *x = br_calloc(1, sizeof *x);
  *x = (extent){.refs = 1, .offset = offset, .bytes = bytes};
  x->data = aligned_alloc(BR_MAPFILE_ALIGN_BYTES, bytes); /* offsets and lengths are multiples of it */
  if (x->data == NULL) {
    free(x);
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory to read %" PRIu64 " bytes of a map output", bytes);
  }
  if (br_pread_all(br_mapfile_fd(o->file), x->data, bytes, offset, err) != BR_OK) {
    extent_unref(x);
    return lost(r, f, o->source, err);
  }
  *out = x;
  return BR_OK;
}

/* Under the lock. */
static void add_ready(br_files *f, const opened *o, size_t first, size_t n, extent *x) {
  for (size_t i = 0; i < n; i++) {
    ready *c = br_calloc(1, sizeof *c);
    *c = (ready){.source = o->source, .from = x, .chunk = o->chunks[first + i]};
    atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    if (f->last != NULL)
      f->last->next = c;
    else
      f->first = c;
    f->last = c;
  }
}

/* ---- one step of a thread; under the lock, which is given up over I/O */
/* All chunks of o are being read or were: nobody looks for it any more. */
static void unlist(br_files *f, opened *o) {
  opened **at = &f->open;
  while (*at != o) at = &(*at)->next;
  *at = o->next;
  opened_unref(o);
}

static br_status step_read(br_reader *r, br_files *f, opened *o, br_error *err) {
  uint64_t offset, bytes;
  extent *x = NULL;
  size_t first = o->at, n = plan_extent(f, o, &offset, &bytes);
  o->at += n;
  o->refs++;
  f->held_bytes += bytes;
  f->busy++;
  bool last = o->at == o->n;
  if (last) unlist(f, o);
  pthread_mutex_unlock(&r->lock);
  if (!last) read_ahead(o, f);
  br_status status = read_extent(r, f, o, offset, bytes, &x, err);
  pthread_mutex_lock(&r->lock);
  f->busy--;
  if (status == BR_OK) {
    add_ready(f, o, first, n, x);
    extent_unref(x);
  }
  opened_unref(o);
  pthread_cond_broadcast(&r->wake);
  return status;
}

static br_status step_open(br_reader *r, br_files *f, br_error *err) {
  const br_read_file *s = &f->sources[(f->start + f->at++) % f->n];
  opened *o = NULL;
  f->busy++;
  pthread_mutex_unlock(&r->lock);
  br_status status = open_source(r, f, s, &o, err);
  pthread_mutex_lock(&r->lock);
  f->busy--;
  if (status == BR_OK && o->n > 0) {
    o->next = f->open;
    f->open = o;
  } else if (status == BR_OK) {
    opened_unref(o);
  }
  pthread_cond_broadcast(&r->wake);
  return status;
}

typedef enum verdict { TAKE, READ, OPEN, WAIT, END } verdict;

static verdict choose(const br_reader *r, const br_files *f) {
  uint64_t offset, bytes;
  if (f->first != NULL) return TAKE;
  if (r->ordered && f->busy > 0) return WAIT;
  if (f->open != NULL) {
    plan_extent(f, f->open, &offset, &bytes);
    return f->held_bytes > 0 && f->held_bytes + bytes > f->buffer_bytes ? WAIT : READ;
  }
  if (f->at < f->n) return OPEN;
  return f->busy > 0 ? WAIT : END;
}

static ready *take(br_reader *r, br_files *f) {
  ready *c = f->first;
  f->first = c->next;
  if (f->first == NULL) f->last = NULL;
  /* Its extent counts until its last chunk is taken, since it's in memory as long. */
  if (f->first == NULL || f->first->from != c->from) {
    f->held_bytes -= c->from->bytes;
    pthread_cond_broadcast(&r->wake);
  }
  return c;
}

static br_status next_chunk(br_reader *r, br_files *f, ready **out, br_error *err) {
  br_status status = BR_OK;
  *out = NULL;
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
    verdict v = choose(r, f);
    if (v == END) break;
    if (v == TAKE) {
      *out = take(r, f);
      break;
    }
    if (v == READ) {
      status = step_read(r, f, f->open, err);
    } else if (v == OPEN) {
      status = step_open(r, f, err);
    } else {
      uint64_t before = br_now_us();
      pthread_cond_wait(&r->wake, &r->lock); /* ends when one that is busy is done, by cancel, or by a failure */
      r->stat_wait_us += br_now_us() - before;
    }
    if (status != BR_OK) break;
  }
  pthread_mutex_unlock(&r->lock);
  return status;
}

/* ---- decoding, without the lock */
static br_status decode(br_reader *r, br_files *f, ready *c, br_batch **out, br_error *err) {
  unsigned char *p = c->from->data + (c->chunk.offset - c->from->offset);
  uint64_t bytes = br_chunk_stored_bytes(&c->chunk);
  br_ipc_body body = {.data = p + br_mapfile_align(c->chunk.head_bytes),
                      .bytes = c->chunk.body_bytes,
                      .release = extent_unref,
                      .owner = c->from}; /* takes the chunk's reference */
  if (br_chunk_checksum(p, bytes) != c->chunk.checksum) {
    extent_unref(c->from);
    br_fail(err, BR_CORRUPT, BR_BLAME_WORKER,
            "it is damaged: checksum of %" PRIu64 " bytes of partition %u at offset %" PRIu64
            "; it has to be made again",
            bytes, c->chunk.partition, c->chunk.offset);
    return lost(r, f, c->source, err);
  }
  if (br_ipc_decode_batch(r->schema, p, c->chunk.head_bytes, body, out, err) != BR_OK)
    return err->code == BR_OUT_OF_MEMORY ? BR_OUT_OF_MEMORY : lost(r, f, c->source, err);
  if ((uint64_t)br_batch_rows(*out) != c->chunk.rows) {
    br_batch_unref(*out);
    *out = NULL;
    br_fail(err, BR_CORRUPT, BR_BLAME_WORKER, "a chunk has not the number of rows that the index names");
    return lost(r, f, c->source, err);
  }
  r->stat_bytes += bytes;
  r->stat_rows += c->chunk.rows;
  return BR_OK;
}

br_status br_files_next(br_reader *r, br_files *f, br_batch **out, br_error *err) {
  ready *c = NULL;
  br_status status = next_chunk(r, f, &c, err);
  if (status == BR_OK && c != NULL) status = decode(r, f, c, out, err);
  free(c);
  if (status != BR_OK) br_reader_fail(r, err);
  return status;
}
