/* SPDX-License-Identifier: Apache-2.0
 *
 * The shuffle: what one attempt writes (a map output), where a node keeps it (the store), and how tasks read it (readers).
 *
 * A map output is one self-describing file: chunks (one Arrow IPC record batch of one partition each), an index, a
 * trailer (mapfile.h, README). In memory it is a sealed memfd, under pressure a disk file with the same bytes.
 * The backend interface at the end is what a node plugs in: flight (this store + DoGet), shared files.
 */
#ifndef BRANT_SHUFFLE_SHUFFLE_H
#define BRANT_SHUFFLE_SHUFFLE_H

#include "arrow/columns.h"
#include "base/budget.h"

/* ---- writing (executor) ---------------------------------------------------------------------------------------- */
/* Asks the node for memory for the map output; false: go to disk. Any thread; may block for a round trip. reserve NULL:
 * always granted. release (may be NULL: then the node settles it when the attempt ends) gives back what was granted, once the
 * output has moved to disk or is given up. */
typedef struct br_reserver {
  bool (*reserve)(void *arg, uint64_t bytes);
  void *arg;
  void (*release)(void *arg, uint64_t bytes);
} br_reserver;

/* Readers may follow an output while it is written (eager): told as chunks become readable, one call at a time, in order, on a
 * writing thread or the one that calls br_writer_publish. It must not call the writer. */
typedef struct br_publication {
  uint32_t
      generation; /* grows when the output moves to disk: all chunks are told again from 0, with their places in the file */
  bool in_memory;
  int fd; /* borrowed; -1: this generation's was told before */
  uint64_t first_chunk;
  const struct br_chunk *chunks;
  size_t n;
  const void *schema; /* with the fd, else NULL */
  size_t schema_bytes;
} br_publication;
typedef struct br_publisher {
  void (*publish)(void *arg, const br_publication *p); /* NULL: nobody follows */
  void *arg;
} br_publisher;

typedef enum br_part_kind { BR_PART_SINGLE, BR_PART_HASH, BR_PART_RANGE } br_part_kind;

typedef struct br_writer_options {
  br_attempt_id id;
  const br_schema *schema; /* stored columns: the SQL's columns without the trailing partition number or sort key */
  br_part_kind kind;
  uint32_t partitions;           /* >= 1 */
  bool ordered;                  /* one thread writes; chunks of a partition keep the order of rows */
  br_codec codec_memory;         /* for chunks that stay in memory: usually BR_CODEC_NONE */
  br_codec codec_disk;           /* once the output is on disk: usually BR_CODEC_LZ4 */
  uint64_t scatter_buffer_bytes; /* bound of all per-partition buffers of the attempt; the largest is flushed first */
  uint64_t chunk_bytes;          /* flush a partition's buffer at this size; 0: 128 KiB to 1 MiB, by partitions */
  /* Not 0: flush it at this many rows instead: exactly with one partition, at least with more; fewer at the end of a thread, or
   * where the buffers reach their bound. */
  uint32_t batch_rows;
  const char *spill_dir; /* the attempt's directory for a disk file; made when needed */
  br_reserver reserver;  /* called in steps of >= 4 MiB */
  const void *const *bounds;
  const uint32_t *bound_bytes;
  uint32_t n_bounds;    /* RANGE: n_bounds + 1 = partitions; sorted byte strings, borrowed */
  br_publisher publish; /* also makes first chunks small, and flushes rows that would wait long */
  const char *
      shared_dir; /* files backend: the query's directory; the output is a file below it, never in memory. NULL: none */
} br_writer_options;

typedef struct br_map_output { /* what a commit hands over */
  int fd;                      /* owned by the receiver: sealed memfd or an open file */
  bool in_memory;
  char *path; /* disk file, else NULL; free it */
  uint64_t file_bytes, index_offset;
  uint64_t rows, bytes, spilled_bytes, reserved_bytes;
  uint64_t *partition_rows, *partition_bytes; /* [partitions]; free them */
} br_map_output;

typedef struct br_writer br_writer;
BR_MUST_USE br_status br_writer_open(const br_writer_options *o, br_writer **out, br_error *err);
/* One state a writing thread. The last vector is the partition number (HASH: int32/uint32/uint16/int64, FIXED of width 2, 4
 * or 8), or the sort key (RANGE: STRING), absent for SINGLE. A key equal to several bounds is spread over their partitions. */
BR_MUST_USE br_status br_writer_thread(br_writer *w, void **state, br_error *err);
BR_MUST_USE br_status br_writer_write(br_writer *w, void *state, const br_vec *columns, uint32_t n_columns,
                                      uint32_t rows, br_error *err);
BR_MUST_USE br_status br_writer_thread_end(br_writer *w, void *state, br_error *err);
void br_writer_thread_abandon(br_writer *w, void *state);
void br_writer_publish(br_writer *w); /* any thread, now and then: what is readable and was not told yet */
BR_MUST_USE br_status br_writer_commit(br_writer *w, br_map_output *out, br_error *err); /* all threads ended */
void br_writer_free(br_writer *w);         /* without a commit: everything it wrote is removed */
void br_map_output_free(br_map_output *o); /* closes fd, frees; does not unlink */

/* ---- one map output, opened (both sides) ------------------------------------------------------------------------ */
typedef struct br_mapfile br_mapfile; /* reference-counted; thread-safe */
/* Takes fd. Maps it if it is a memfd (in_memory), else reads by pread. Checks trailer, index and their checksums. */
BR_MUST_USE br_status br_mapfile_open(int fd, bool in_memory, uint64_t file_bytes, br_mapfile **out, br_error *err);
br_mapfile *br_mapfile_ref(br_mapfile *f);
void br_mapfile_unref(br_mapfile *f);
uint32_t br_mapfile_partitions(const br_mapfile *f);
/* Chunks of partitions [first, last) in order (partition, then as written). */
typedef struct br_chunk {
  uint32_t partition;
  uint32_t head_bytes;
  uint64_t body_bytes, offset;
  uint64_t rows;
  uint64_t checksum;
} br_chunk;
size_t br_mapfile_find(const br_mapfile *f, uint32_t first, uint32_t last,
                       const br_chunk **chunks); /* contiguous in the index */
/* The schema message of the output. */
void br_mapfile_schema(const br_mapfile *f, const void **head, size_t *bytes);
/* A chunk's bytes, checksum verified: mapped memory (release drops a reference on f), or a read into fresh aligned memory. */
BR_MUST_USE br_status br_mapfile_chunk(br_mapfile *f, const br_chunk *c, const void **head, br_ipc_body *body,
                                       br_error *err);

/* ---- the node's store (worker, loop thread) ---------------------------------------------------------------------- */
typedef struct br_store br_store;
typedef struct br_store_options {
  const char *dir;       /* this worker's shuffle directory */
  uint64_t memory_bytes; /* bound of what is kept in memory: "store_memory_bytes" */
  uint64_t disk_bytes;   /* quota; 0: the disk */
} br_store_options;
BR_MUST_USE br_status br_store_new(const br_store_options *o, br_store **out, br_error *err);
void br_store_free(br_store *s); /* removes everything it holds */
/* Reservations of executors for outputs being written. A refusal makes the store spill committed outputs in the background
 * so that later requests pass; the asker goes to disk meanwhile. */
bool br_store_reserve(br_store *s, uint64_t bytes);
void br_store_unreserve(br_store *s, uint64_t bytes); /* an attempt ended without commit */
/* A committed output comes in (takes over o's fd and path; reserved_bytes are settled against its true size). A second
 * output of the same (query, stage, task) replaces the first only if its attempt is newer; else it is dropped. */
BR_MUST_USE br_status br_store_add(br_store *s, const br_attempt_id *id, br_map_output *o, br_error *err);
/* Borrow a reference; NULL: not here. */
br_mapfile *br_store_get(br_store *s, uint64_t query, uint32_t stage, uint32_t task, uint16_t attempt);
/* For fd passing to executors: a dup of the output's fd. -1: not here. */
int br_store_fd(br_store *s, const br_attempt_id *id, bool *in_memory, uint64_t *file_bytes);
/* `f` is about to be mapped by another process, as if its descriptor had been passed. False: the store has it in memory no more. */
bool br_store_lend(br_store *s, const br_mapfile *f);
/* Exactly this attempt's output; a newer one of the same task stays. */
void br_store_drop_output(br_store *s, const br_attempt_id *id);
void br_store_drop_stage(br_store *s, uint64_t query, uint32_t stage);
void br_store_drop_query(br_store *s, uint64_t query);
/* The stage's outputs that are here now are needed for recovery alone: they stay readable, but go first, without being written to
 * disk, when memory or disk room is needed. */
void br_store_retire_stage(br_store *s, uint64_t query, uint32_t stage);
/* It is needed again after all (a new table of it came): what is left of it stays, as if never retired. */
void br_store_unretire_stage(br_store *s, uint64_t query, uint32_t stage);
/* Somebody found the disk full: all retired outputs on it that nobody reads go. */
void br_store_make_disk_room(br_store *s);
/* The outputs that were evicted since the last call: their number, ids in *ids (free it; NULL for none). Any thread. */
size_t br_store_take_evicted(br_store *s, br_attempt_id **ids);
/* Ask the store's own spill thread to move committed in-memory outputs to disk until `bytes` are free (oldest first). */
void br_store_spill(br_store *s, uint64_t bytes);
typedef struct br_store_gauge {
  uint64_t memory_bytes, peak_memory_bytes, disk_bytes, outputs, spilled_bytes;
} br_store_gauge;
br_store_gauge br_store_gauge_now(br_store *s);

/* ---- reading (executor) ------------------------------------------------------------------------------------------ */
typedef struct br_loop br_loop;
typedef struct br_read_local {
  br_mapfile *file;
  uint32_t map;
} br_read_local; /* references are taken */
typedef struct br_read_remote {
  const char *uri;
  uint32_t worker, incarnation, outputs;
} br_read_remote; /* strings are copied */
typedef struct
    br_read_file { /* files backend: an output below shared_dir; worker, incarnation: who made it, for errors */
  uint32_t map, worker, incarnation;
  uint16_t attempt;
} br_read_file;
#define BR_READER_SILENT_MS 30000u
typedef struct br_reader_options {
  br_loop *loop;           /* its network; the reader is created and freed on any thread, next() blocks on others */
  const br_schema *schema; /* expected; a source with other types is BR_CORRUPT */
  uint64_t query;
  uint32_t stage, table_version, first, last, map_first, map_last;
  const br_read_local *local;
  size_t n_local;
  const br_read_remote *remote;
  size_t n_remote;
  bool ordered; /* map by map, chunk by chunk */
  bool
      map_peers; /* outputs in the memory of remote sources on this host may be mapped: batches then keep that memory */
  uint64_t buffer_bytes; /* bound of fetched, undelivered bytes */
  const char *secret;
  uint32_t retry, retry_ms; /* of a failed fetch: 3, 200 doubling; never after a batch of that source was delivered */
  uint32_t silent_ms;       /* a source that sends nothing this long fails; 0: BR_READER_SILENT_MS */
  const char *shared_dir;   /* files backend: all sources are `file`s below this directory. NULL: none */
  const br_read_file *file;
  size_t n_file;
} br_reader_options;
typedef struct br_reader br_reader;
BR_MUST_USE br_status br_reader_open(const br_reader_options *o, br_reader **out, br_error *err);
/* Any thread, several at once. Blocks until a batch is there; *out NULL: end; a failure is repeated to every later caller.
 * Fetch failures are BR_FETCH with blame FETCH and the worker's number (or the output's id for a bad checksum). */
BR_MUST_USE br_status br_reader_next(br_reader *r, br_batch **out, br_error *err);
void br_reader_cancel(br_reader *r); /* any thread: next() returns BR_CANCELLED */
/* Any thread: this worker was declared lost. What has not come from it by now is a failed fetch, at once and without a retry. */
void br_reader_peer_gone(br_reader *r, uint32_t worker);
void br_reader_free(br_reader *r); /* no next() under way */
typedef struct br_reader_stats {
  uint64_t rows, bytes, remote_bytes, wait_us;
} br_reader_stats;
br_reader_stats br_reader_stats_now(br_reader *r);

/* ---- an output that is being written, as its node knows it (worker, loop thread) ------------------------------------ */
typedef struct br_growing br_growing; /* reference-counted; readers hold it */
br_growing *br_growing_new(const br_attempt_id *id, uint32_t partitions);
br_growing *br_growing_ref(br_growing *g);
void br_growing_unref(br_growing *g);
/* Takes p->fd; the rest is copied. What does not fit is an error: the attempt must be given up. */
BR_MUST_USE br_status br_growing_add(br_growing *g, const br_publication *p, br_error *err);
/* The attempt committed `file` (a reference is taken). Fails if that is not what was published. */
BR_MUST_USE br_status br_growing_commit(br_growing *g, br_mapfile *file, br_error *err);
/* It never will: readers, now and later, get this error. */
void br_growing_fail(br_growing *g, const br_error *why);
bool br_growing_ended(const br_growing *g); /* committed or failed */

/* ---- serving (worker): the flight backend's DoGet ----------------------------------------------------------------- */
struct br_flight_source;
typedef struct br_serve_set {
  br_mapfile **files;
  const uint32_t *maps;
  size_t n;
  br_growing **growing; /* beside them, those that are being written */
  const uint32_t *growing_maps;
  size_t n_growing;
  br_store *
      lend_from; /* not NULL: the reader can map files that this store has in memory, if that is cheaper than sending */
} br_serve_set;  /* in the order to send */
/* A source that sends the schema, then every chunk of partitions [first, last) of the set: merged over outputs, partition by
 * partition unless ordered (then map by map). app_metadata of each message: wire.h. Reads of
 * disk files happen on pool threads. At most window bytes are read ahead of the peer. Chunks of growing outputs come as they are
 * written; the end comes when all of them have committed, and a failure when one has failed. While nothing can be sent an empty
 * message goes each BR_SERVE_ALIVE_MS. */
#define BR_SERVE_ALIVE_MS 2000u
/* A reader's silent_ms in a cluster where a worker that is silent for worker_silent_ms is lost: the same, but three of those messages
 * at least, and the reader's own default at most. */
static inline uint32_t br_reader_silent_ms(uint64_t worker_silent_ms) {
  if (worker_silent_ms > BR_READER_SILENT_MS) return BR_READER_SILENT_MS;
  return worker_silent_ms < 3u * BR_SERVE_ALIVE_MS ? 3u * BR_SERVE_ALIVE_MS : (uint32_t)worker_silent_ms;
}
BR_MUST_USE br_status br_serve_source(br_loop *loop, void *flight_call, const br_serve_set *set, uint32_t first,
                                      uint32_t last, bool ordered, struct br_flight_source *out, br_error *err);

/* ---- the backend interface ------------------------------------------------------------------------------------- */
typedef struct br_shuffle_backend {
  const char *name; /* "flight" */
  bool outlives_worker, read_while_written, ranges;
  BR_MUST_USE br_status (*writer_open)(const br_writer_options *o, br_writer **out, br_error *err);
  BR_MUST_USE br_status (*reader_open)(const br_reader_options *o, br_reader **out, br_error *err);
  void (*drop)(br_store *s, uint64_t query, const uint32_t *stage_or_all);
} br_shuffle_backend;
extern const br_shuffle_backend br_flight_backend;
extern const br_shuffle_backend br_files_backend; /* options with shared_dir */

/* What an attempt wrote below shared_dir, whole or not, is not wanted. Missing is fine. */
void br_files_abandon(const char *shared_dir, const br_attempt_id *id);

/* ---- directories of the files backend (coordinator). Any thread, but they wait for the file system: not on a loop's. ---------- */
#define BR_FILES_TOUCH_MS 60000u
/* Can `parent` (shuffle_dir) be written? Removes what dead sessions left in it. */
BR_MUST_USE br_status br_files_dirs_check(const char *parent, size_t *removed, br_error *err);
typedef struct br_files_dir br_files_dir;
BR_MUST_USE br_status br_files_dir_new(const char *parent, uint64_t query, br_files_dir **out, br_error *err);
const char *br_files_dir_path(const br_files_dir *d);
/* A descriptor of its own for the owner file (close it; -1: none is free): its times are set to now each BR_FILES_TOUCH_MS, or
 * sessions on other machines take the directory for a dead one's. */
int br_files_dir_owner_fd(const br_files_dir *d);
void br_files_dir_drop_stage(const char *dir, uint32_t stage);
void br_files_dir_remove(br_files_dir *d); /* and frees it */

#endif
