/* SPDX-License-Identifier: Apache-2.0
 *
 * Retired outputs: whoever needed them has committed, so they are worth keeping only in case that is lost. They are evicted,
 * first retired first, when an executor asks for memory that isn't free, when the spill thread is to make room, or when a file
 * does not fit into the disk's quota: never written to disk, never in the way of what is needed. What went is told to whoever asks
 * (br_store_take_evicted), since it has to be made again should it be needed after all.
 *
 * An output that somebody reads is left alone: letting it go would free nothing now. One whose memfd went to other processes
 * goes; the worker tells them when it hears of it.
 * Threads: all under the store's lock. Bounds: the list of evicted ids is at most as long as there were outputs.
 */
#include "shuffle/store_internal.h"

#include "base/mem.h"
#include <stdlib.h>

static void retire(br_store *s, store_entry *e) {
  if (e->retired) return;
  e->retired = true;
  e->retired_before = s->retired_last;
  e->retired_after = NULL;
  if (s->retired_last != NULL)
    s->retired_last->retired_after = e;
  else
    s->retired_first = e;
  s->retired_last = e;
}

void br_store_unretire(br_store *s, store_entry *e) {
  if (!e->retired) return;
  e->retired = false;
  if (e->retired_before != NULL)
    e->retired_before->retired_after = e->retired_after;
  else
    s->retired_first = e->retired_after;
  if (e->retired_after != NULL)
    e->retired_after->retired_before = e->retired_before;
  else
    s->retired_last = e->retired_before;
  e->retired_before = e->retired_after = NULL;
}

void br_store_unretire_stage(br_store *s, uint64_t query, uint32_t stage) {
  pthread_mutex_lock(&s->lock);
  for (store_entry *e = s->retired_first, *next; e != NULL; e = next) {
    next = e->retired_after;
    if (e->id.query == query && e->id.stage == stage) br_store_unretire(s, e);
  }
  pthread_mutex_unlock(&s->lock);
}

static void evict(br_store *s, store_entry *e) {
  store_query *q = br_map_get(s->queries, e->id.query);
  br_grow((void **)&s->evicted, &s->evicted_capacity, s->n_evicted, sizeof *s->evicted);
  s->evicted[s->n_evicted++] = e->id;
  br_map_remove(q->entries, br_store_task_key(e->id.stage, e->id.task));
  br_store_drop_entry(s, e);
}

static bool memory_is_free(const br_store *s, uint64_t bytes) {
  const br_budget *m = &s->account->memory;
  return m->used_bytes <= m->limit_bytes && bytes <= m->limit_bytes - m->used_bytes;
}

bool br_store_evict_memory(br_store *s, uint64_t bytes) {
  bool any = false;
  for (store_entry *e = s->retired_first, *next; e != NULL && !memory_is_free(s, bytes); e = next) {
    next = e->retired_after;
    if (e->counted == NULL || e->moving || br_mapfile_refs(e->file) > 1) continue;
    evict(s, e);
    any = true;
  }
  return any;
}

bool br_store_evict_disk(br_store *s, uint64_t bytes) {
  uint64_t freed = 0;
  for (store_entry *e = s->retired_first, *next; e != NULL && freed < bytes; e = next) {
    next = e->retired_after;
    if (e->path == NULL || br_mapfile_refs(e->file) > 1) continue;
    freed += e->file_bytes;
    evict(s, e);
  }
  return freed > 0;
}

void br_store_make_disk_room(br_store *s) {
  pthread_mutex_lock(&s->lock);
  br_store_evict_disk(s, UINT64_MAX);
  pthread_mutex_unlock(&s->lock);
}

static int by_task(const void *x, const void *y) {
  const store_entry *const *a = x, *const *b = y;
  return (*a)->id.task < (*b)->id.task ? -1 : (*a)->id.task > (*b)->id.task;
}

void br_store_retire_stage(br_store *s, uint64_t query, uint32_t stage) {
  uint64_t key;
  void *value;
  pthread_mutex_lock(&s->lock);
  store_query *q = br_map_get(s->queries, query);
  size_t n = 0;
  store_entry **found = br_calloc(q != NULL ? br_map_count(q->entries) + 1 : 1, sizeof *found);
  for (size_t it = 0; q != NULL && br_map_next(q->entries, &it, &key, &value);)
    if (key >> 32 == stage) found[n++] = value;
  qsort(found, n, sizeof *found, by_task); /* a map has no order of its own */
  for (size_t i = 0; i < n; i++) retire(s, found[i]);
  pthread_mutex_unlock(&s->lock);
  free(found);
}

size_t br_store_take_evicted(br_store *s, br_attempt_id **ids) {
  pthread_mutex_lock(&s->lock);
  size_t n = s->n_evicted;
  *ids = s->evicted;
  s->evicted = NULL;
  s->n_evicted = s->evicted_capacity = 0;
  pthread_mutex_unlock(&s->lock);
  return n;
}
