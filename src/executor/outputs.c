/* SPDX-License-Identifier: Apache-2.0
 * Map outputs of this node by descriptor, as the worker passes them: opened at first use, kept until the worker drops
 * them. Threads: any, one mutex. Bound: what the worker sends, one entry a map output that a task of this executor reads. */
#include "executor/executor.h"

#include "base/map.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct entry {
  br_attempt_id id;
  int fd; /* -1 once opened */
  bool in_memory;
  uint64_t file_bytes;
  br_mapfile *file;
} entry;

struct br_outputs {
  pthread_mutex_t lock;
  br_smap *by_attempt;
};

static void entry_free(entry *e) {
  if (!e) return;
  if (e->fd >= 0) close(e->fd);
  if (e->file) br_mapfile_unref(e->file);
  free(e);
}

br_outputs *br_outputs_new(void) {
  br_outputs *o = br_calloc(1, sizeof *o);
  pthread_mutex_init(&o->lock, NULL);
  o->by_attempt = br_smap_new();
  return o;
}

void br_outputs_free(br_outputs *o) {
  if (!o) return;
  const char *key;
  void *e;
  for (size_t it = 0; br_smap_next(o->by_attempt, &it, &key, &e);) entry_free(e);
  br_smap_free(o->by_attempt);
  pthread_mutex_destroy(&o->lock);
  free(o);
}

void br_outputs_put(br_outputs *o, const br_attempt_id *id, int fd, bool in_memory, uint64_t file_bytes) {
  entry *e = br_calloc(1, sizeof *e);
  *e = (entry){.id = *id, .fd = fd, .in_memory = in_memory, .file_bytes = file_bytes};
  char key[64];
  br_attempt_format(id, key);
  pthread_mutex_lock(&o->lock);
  entry *old = br_smap_put(o->by_attempt, key, e);
  pthread_mutex_unlock(&o->lock);
  entry_free(old);
}

/* With the lock held. */
static br_status open_entry(entry *e, br_error *err) {
  if (e->file) return BR_OK;
  int fd = fcntl(e->fd, F_DUPFD_CLOEXEC, 0); /* it may open the next time */
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot open a map output");
  BR_TRY(br_mapfile_open(fd, e->in_memory, e->file_bytes, &e->file, err));
  close(e->fd);
  e->fd = -1;
  return BR_OK;
}

br_status br_outputs_get(br_outputs *o, const br_attempt_id *id, br_mapfile **out, br_error *err) {
  char key[64];
  br_attempt_format(id, key);
  br_status status = BR_OK;
  pthread_mutex_lock(&o->lock);
  entry *e = br_smap_get(o->by_attempt, key);
  if (!e || (!e->file && e->fd < 0)) {
    /* It was there when the task was sent, and went meanwhile: dropped, or let go for others. */
    status = br_fail(err, BR_NOT_FOUND, BR_BLAME_FETCH, "this executor has map output %s not any more", key);
  } else {
    status = open_entry(e, err);
    if (status == BR_OK) *out = br_mapfile_ref(e->file);
  }
  pthread_mutex_unlock(&o->lock);
  return status;
}

void br_outputs_drop(br_outputs *o, uint64_t query, const uint32_t *stage_or_all) {
  const char *key;
  void *v;
  pthread_mutex_lock(&o->lock);
  for (size_t it = 0; br_smap_next(o->by_attempt, &it, &key, &v);) {
    entry *e = v;
    if (e->id.query != query || (stage_or_all && e->id.stage != *stage_or_all)) continue;
    char copy[64];
    br_attempt_format(&e->id, copy);
    br_smap_remove(o->by_attempt, copy);
    entry_free(e);
  }
  pthread_mutex_unlock(&o->lock);
}

void br_outputs_drop_attempt(br_outputs *o, const br_attempt_id *id) {
  char key[64];
  br_attempt_format(id, key);
  pthread_mutex_lock(&o->lock);
  entry *e = br_smap_remove(o->by_attempt, key);
  pthread_mutex_unlock(&o->lock);
  entry_free(e);
}
