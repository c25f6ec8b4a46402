/* SPDX-License-Identifier: Apache-2.0
 *
 * The committed map outputs of a node, found by (query, stage, task): new → reserve / add / get / fd / drop, any number →
 * free, which removes all of them.
 *
 * An output is in memory (a sealed memfd, as the executor wrote it) or a file
 * <dir>/q<query>/s<stage>/t<task>.a<attempt>.map with the same bytes. Memory in use = outputs in memory that anybody still
 * holds + what executors were granted for outputs they are writing. A refused reservation, or more than
 * PRESSURE_PERCENT in use, wakes the spill thread (store_spill.c), which moves the oldest outputs to disk. Before that,
 * outputs that are kept for recovery alone go (store_evict.c).
 *
 * What is dropped is out of sight at once and removed by a thread (store_reap.c): giving back gigabytes takes long.
 *
 * Threads: any; one lock, never held over I/O but rename, mkdir and the opening of an output (one small read).
 * Bounds: memory_bytes for memory (a commit is counted even past it: its bytes are there already); disk_bytes for files.
 */
#include "shuffle/store_internal.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRESSURE_PERCENT 90u
#define RELIEF_PERCENT 25u /* free after the spill thread is done */

/* ---- memory in use */
static void account_unref(store_account *a) {
  if (atomic_fetch_sub(&a->refs, 1) == 1) free(a);
}

void br_store_uncount(counted_output *c) { br_budget_release(&c->account->memory, atomic_exchange(&c->bytes, 0)); }

static void output_memory_gone(void *arg) {
  counted_output *c = arg;
  br_store_uncount(c);
  account_unref(c->account);
  free(c);
}

/* Count f until its last reference goes. */
static counted_output *count_output(br_store *s, br_mapfile *f) {
  counted_output *c = br_malloc(sizeof *c);
  *c = (counted_output){.account = s->account, .bytes = br_mapfile_bytes(f)};
  atomic_fetch_add(&s->account->refs, 1);
  br_budget_force(&s->account->memory, br_mapfile_bytes(f));
  br_mapfile_on_free(f, output_memory_gone, c);
  return c;
}

void br_store_want_free(br_store *s, uint64_t bytes) {
  if (bytes > s->account->memory.limit_bytes) bytes = s->account->memory.limit_bytes;
  if (bytes > s->want_free_bytes) s->want_free_bytes = bytes;
  pthread_cond_signal(&s->wake);
}

static void relieve_pressure(br_store *s) {
  uint64_t limit = s->account->memory.limit_bytes;
  if (s->account->memory.used_bytes > limit / 100 * PRESSURE_PERCENT)
    br_store_want_free(s, limit / 100 * RELIEF_PERCENT);
}

bool br_store_reserve(br_store *s, uint64_t bytes) {
  bool granted = br_budget_try(&s->account->memory, bytes);
  pthread_mutex_lock(&s->lock);
  if (!granted && br_store_evict_memory(s, bytes)) granted = br_budget_try(&s->account->memory, bytes);
  if (granted)
    relieve_pressure(s);
  else
    br_store_want_free(s, bytes + s->account->memory.limit_bytes / 100 * RELIEF_PERCENT);
  pthread_mutex_unlock(&s->lock);
  return granted;
}

void br_store_unreserve(br_store *s, uint64_t bytes) { br_budget_release(&s->account->memory, bytes); }

void br_store_spill(br_store *s, uint64_t bytes) {
  pthread_mutex_lock(&s->lock);
  br_store_want_free(s, bytes);
  pthread_mutex_unlock(&s->lock);
}

/* ---- entries */
uint64_t br_store_task_key(uint32_t stage, uint32_t task) { return (uint64_t)stage << 32 | task; }

char *br_store_path(const br_store *s, const br_attempt_id *id) {
  return br_asprintf("%s/q%016" PRIx64 "/s%" PRIu32 "/t%" PRIu32 ".a%u.map", s->dir, id->query, id->stage, id->task,
                     (unsigned)id->attempt);
}

static char *directory(const br_store *s, uint64_t query, const uint32_t *stage) {
  return stage == NULL ? br_asprintf("%s/q%016" PRIx64, s->dir, query)
                       : br_asprintf("%s/q%016" PRIx64 "/s%" PRIu32, s->dir, query, *stage);
}

void br_store_unlist(br_store *s, store_entry *e) {
  if (s->newest != e && e->newer == NULL && e->older == NULL) return;
  if (e->newer != NULL)
    e->newer->older = e->older;
  else
    s->newest = e->older;
  if (e->older != NULL)
    e->older->newer = e->newer;
  else
    s->oldest = e->newer;
  e->newer = e->older = NULL;
}

static void list_newest(br_store *s, store_entry *e) {
  e->older = s->newest;
  if (s->newest != NULL)
    s->newest->newer = e;
  else
    s->oldest = e;
  s->newest = e;
}

void br_store_drop_entry(br_store *s, store_entry *e) {
  s->outputs--;
  br_store_unretire(s, e);
  if (e->moving)
    e->dropped = true;
  else
    br_store_discard(s, e);
}

store_entry *br_store_find(br_store *s, uint64_t query, uint32_t stage, uint32_t task) {
  store_query *q = br_map_get(s->queries, query);
  return q == NULL ? NULL : br_map_get(q->entries, br_store_task_key(stage, task));
}

static store_query *want_query(br_store *s, uint64_t query) {
  store_query *q = br_map_get(s->queries, query);
  if (q != NULL) return q;
  q = br_malloc(sizeof *q);
  *q = (store_query){.id = query, .entries = br_map_new()};
  br_map_put(s->queries, query, q);
  return q;
}

/* ---- a commit comes in */
/* The file moves to its place in the store; where that is another file system, it stays where it is. */
static char *settle_path(br_store *s, const br_attempt_id *id, const char *from) {
  char *to = br_store_path(s, id), *slash = strrchr(to, '/');
  br_error ignored = {0};
  if (strcmp(to, from) == 0) return to;
  *slash = 0;
  br_status status = br_mkdir_p(to, &ignored);
  *slash = '/';
  if (status == BR_OK && rename(from, to) == 0) {
    char *old = br_strdup(from), *end = strrchr(old, '/');
    if (end != NULL) {
      *end = 0;
      (void)rmdir(old); /* the attempt's own directory, if that was its only file */
    }
    free(old);
    return to;
  }
  free(to);
  return br_strdup(from);
}

static br_status check_output(br_store *s, const br_attempt_id *id, const br_map_output *o, br_mapfile **file,
                              br_error *err) {
  int fd = fcntl(o->fd, F_DUPFD_CLOEXEC, 0); /* o is freed whole by the caller */
  if (fd < 0)
    return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot keep the map output of task %u of stage %u", id->task,
                         id->stage);
  BR_TRY(br_mapfile_open(fd, o->in_memory, o->file_bytes, file, err));
  br_attempt_id made_by = br_mapfile_id(*file);
  if (made_by.query != id->query || made_by.stage != id->stage || made_by.task != id->task ||
      made_by.attempt != id->attempt)
    return br_fail(err, BR_CORRUPT, BR_BLAME_EXECUTOR,
                   "map output of task %u of stage %u comes as that of task %u of stage %u", made_by.task,
                   made_by.stage, id->task, id->stage);
  if (!o->in_memory && o->path == NULL)
    return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR,
                   "map output of task %u of stage %u is on disk but names no file", id->task, id->stage);
  if (!o->in_memory && o->file_bytes > br_store_disk_free(s))
    br_store_evict_disk(s, o->file_bytes - br_store_disk_free(s));
  if (!o->in_memory && o->file_bytes > br_store_disk_free(s))
    return br_fail(err, BR_NO_SPACE, BR_BLAME_WORKER,
                   "the shuffle directory %s holds %" PRIu64 " bytes: its quota of %" PRIu64 " is used up", s->dir,
                   s->disk_bytes, s->disk_quota_bytes);
  return BR_OK;
}

static void put_entry(br_store *s, const br_attempt_id *id, br_mapfile *file, char *path) {
  store_entry *e = br_calloc(1, sizeof *e);
  *e = (store_entry){.id = *id, .file = file, .path = path, .file_bytes = br_mapfile_bytes(file)};
  if (br_mapfile_in_memory(file)) {
    e->counted = count_output(s, file);
    list_newest(s, e);
  } else {
    s->disk_bytes += e->file_bytes;
  }
  s->outputs++;
  store_entry *old = br_map_put(want_query(s, id->query)->entries, br_store_task_key(id->stage, id->task), e);
  if (old != NULL) br_store_drop_entry(s, old);
}

br_status br_store_add(br_store *s, const br_attempt_id *id, br_map_output *o, br_error *err) {
  br_status status = BR_OK;
  br_mapfile *file = NULL;
  bool kept = false;
  uint64_t reserved = o->reserved_bytes;
  pthread_mutex_lock(&s->lock);
  BR_TRY_GOTO(check_output(s, id, o, &file, err));
  store_entry *there = br_store_find(s, id->query, id->stage, id->task);
  if (there == NULL || there->id.attempt < id->attempt) {
    br_budget_release(&s->account->memory, reserved); /* what it reserved is what is counted now: not both */
    reserved = 0;
    put_entry(s, id, file, o->in_memory ? NULL : settle_path(s, id, o->path));
    kept = true;
  }
done:
  if (!kept) {
    br_mapfile_unref(file);
    if (o->path != NULL) unlink(o->path);
  }
  br_budget_release(&s->account->memory, reserved);
  relieve_pressure(s);
  pthread_mutex_unlock(&s->lock);
  br_map_output_free(o);
  return status;
}

/* ---- lookups */
br_mapfile *br_store_get(br_store *s, uint64_t query, uint32_t stage, uint32_t task, uint16_t attempt) {
  pthread_mutex_lock(&s->lock);
  store_entry *e = br_store_find(s, query, stage, task);
  br_mapfile *f = e != NULL && e->id.attempt == attempt ? br_mapfile_ref(e->file) : NULL;
  pthread_mutex_unlock(&s->lock);
  return f;
}

int br_store_fd(br_store *s, const br_attempt_id *id, bool *in_memory, uint64_t *file_bytes) {
  int fd = -1;
  pthread_mutex_lock(&s->lock);
  store_entry *e = br_store_find(s, id->query, id->stage, id->task);
  if (e != NULL && e->id.attempt == id->attempt) {
    fd = fcntl(br_mapfile_fd(e->file), F_DUPFD_CLOEXEC, 0);
    *in_memory = br_mapfile_in_memory(e->file);
    *file_bytes = e->file_bytes;
    if (fd >= 0 && *in_memory) e->lent = true;
  }
  pthread_mutex_unlock(&s->lock);
  return fd;
}

bool br_store_lend(br_store *s, const br_mapfile *f) {
  br_attempt_id id = br_mapfile_id(f);
  pthread_mutex_lock(&s->lock);
  store_entry *e = br_store_find(s, id.query, id.stage, id.task);
  bool there = e != NULL && e->file == f && br_mapfile_in_memory(f);
  if (there) e->lent = true;
  pthread_mutex_unlock(&s->lock);
  return there;
}

br_store_gauge br_store_gauge_now(br_store *s) {
  pthread_mutex_lock(&s->lock);
  br_store_gauge g = {.memory_bytes = s->account->memory.used_bytes,
                      .peak_memory_bytes = s->account->memory.peak_bytes,
                      .disk_bytes = s->disk_bytes,
                      .outputs = s->outputs,
                      .spilled_bytes = s->spilled_bytes};
  pthread_mutex_unlock(&s->lock);
  return g;
}

/* ---- drop */
static void remove_directory(br_store *s, uint64_t query, const uint32_t *stage) {
  char *dir = directory(s, query, stage);
  br_store_discard_directory(s, dir);
  free(dir);
}

static void drop_outputs(br_store *s, store_query *q, const uint32_t *stage) {
  uint64_t key;
  void *value;
  for (size_t it = 0; br_map_next(q->entries, &it, &key, &value);) {
    if (stage != NULL && key >> 32 != *stage) continue;
    br_map_remove(q->entries, key);
    br_store_drop_entry(s, value);
  }
}

void br_store_drop_output(br_store *s, const br_attempt_id *id) {
  pthread_mutex_lock(&s->lock);
  store_query *q = br_map_get(s->queries, id->query);
  store_entry *e = br_store_find(s, id->query, id->stage, id->task);
  if (e != NULL && e->id.attempt == id->attempt) {
    br_map_remove(q->entries, br_store_task_key(id->stage, id->task));
    br_store_drop_entry(s, e);
  }
  pthread_mutex_unlock(&s->lock);
}

void br_store_drop_stage(br_store *s, uint64_t query, uint32_t stage) {
  pthread_mutex_lock(&s->lock);
  store_query *q = br_map_get(s->queries, query);
  if (q != NULL) drop_outputs(s, q, &stage);
  remove_directory(s, query, &stage);
  pthread_mutex_unlock(&s->lock);
}

static void query_free(br_store *s, store_query *q) {
  drop_outputs(s, q, NULL);
  br_map_free(q->entries);
  free(q);
}

void br_store_drop_query(br_store *s, uint64_t query) {
  pthread_mutex_lock(&s->lock);
  store_query *q = br_map_remove(s->queries, query);
  if (q != NULL) query_free(s, q);
  remove_directory(s, query, NULL);
  pthread_mutex_unlock(&s->lock);
}

/* ---- open and close */
br_status br_store_new(const br_store_options *o, br_store **out, br_error *err) {
  BR_TRY(br_mkdir_p(o->dir, err));
  br_store *s = br_calloc(1, sizeof *s);
  s->dir = br_strdup(o->dir);
  s->disk_quota_bytes = o->disk_bytes > 0 ? o->disk_bytes : UINT64_MAX;
  s->account = br_calloc(1, sizeof *s->account);
  s->account->refs = 1;
  br_budget_init(&s->account->memory, "store_memory_bytes", o->memory_bytes);
  pthread_mutex_init(&s->lock, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&s->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  s->queries = br_map_new();
  pthread_cond_init(&s->reap, NULL);
  int failed = pthread_create(&s->spiller, NULL, br_store_spiller, s);
  s->spiller_runs = failed == 0;
  if (failed == 0) failed = pthread_create(&s->reaper, NULL, br_store_reaper, s);
  s->reaper_runs = failed == 0;
  if (failed != 0) {
    br_fail_errno(err, failed, BR_BLAME_WORKER, "cannot start the threads of the shuffle store");
    br_store_free(s);
    return err->code;
  }
  *out = s;
  return BR_OK;
}

static void stop_thread(br_store *s, bool *stop, pthread_cond_t *wake, bool runs, pthread_t thread) {
  pthread_mutex_lock(&s->lock);
  *stop = true;
  pthread_cond_signal(wake);
  pthread_mutex_unlock(&s->lock);
  if (runs) pthread_join(thread, NULL);
}

void br_store_free(br_store *s) {
  if (s == NULL) return;
  uint64_t key;
  void *value;
  stop_thread(s, &s->stopping, &s->wake, s->spiller_runs, s->spiller);
  pthread_mutex_lock(&s->lock);
  for (size_t it = 0; br_map_next(s->queries, &it, &key, &value);) {
    br_map_remove(s->queries, key);
    query_free(s, value);
    remove_directory(s, key, NULL);
  }
  pthread_mutex_unlock(&s->lock);
  stop_thread(s, &s->reaper_stopping, &s->reap, s->reaper_runs, s->reaper); /* it empties the trash first */
  br_map_free(s->queries);
  (void)rmdir(s->dir);
  account_unref(s->account);
  pthread_cond_destroy(&s->wake);
  pthread_cond_destroy(&s->reap);
  pthread_mutex_destroy(&s->lock);
  free(s->evicted);
  free(s->dir);
  free(s);
}
