/* SPDX-License-Identifier: Apache-2.0
 * What store.c and store_spill.c share. All fields under `lock` unless a comment says otherwise. */
#ifndef BRANT_SHUFFLE_STORE_INTERNAL_H
#define BRANT_SHUFFLE_STORE_INTERNAL_H

#include "shuffle/mapfile.h"

#include "base/map.h"
#include <pthread.h>
#include <stdatomic.h>

/* Memory in use, counted until the last reader of an output lets go, which may be after the store is gone. */
typedef struct store_account {
  _Atomic uint32_t refs; /* the store, and each output in memory */
  br_budget memory;
} store_account;

typedef struct counted_output {
  store_account *account;
  _Atomic uint64_t bytes; /* counted now */
} counted_output;

typedef struct store_entry store_entry;
struct store_entry {
  br_attempt_id id;
  br_mapfile *file;
  char *path; /* on disk, else NULL */
  uint64_t file_bytes;
  counted_output *counted;    /* in memory; file frees it */
  bool lent;                  /* its memfd went to another process: moving it to disk would free nothing */
  bool moving;                /* the spill thread copies it */
  bool dropped;               /* while it was being copied: the spill thread frees it */
  bool retired;               /* kept for recovery alone: evicted before anything is spilled */
  store_entry *newer, *older; /* in the list of outputs in memory */
  store_entry *retired_before, *retired_after; /* in the list of retired ones */
};

/* Something to remove: an output, or a directory that was renamed out of the way. */
typedef struct store_trash store_trash;
struct store_trash {
  store_trash *next;
  store_entry *entry;
  char *dir;
};

typedef struct store_query {
  uint64_t id;
  br_map *entries; /* stage << 32 | task -> store_entry */
} store_query;

struct br_store {
  char *dir;
  uint64_t disk_quota_bytes; /* UINT64_MAX: none */
  store_account *account;

  pthread_mutex_t lock;
  pthread_cond_t wake;          /* the spill thread has something to do */
  br_map *queries;              /* id -> store_query */
  store_entry *oldest, *newest; /* in memory */
  store_entry *retired_first, *retired_last;
  br_attempt_id *evicted; /* not taken by br_store_take_evicted yet */
  size_t n_evicted, evicted_capacity;
  uint64_t disk_bytes, spilled_bytes, outputs;
  uint64_t want_free_bytes;    /* of memory; 0: nothing to do */
  uint64_t disk_full_until_ms; /* no spilling before */
  bool disk_full_logged, stopping, reaper_stopping;
  pthread_t spiller, reaper;
  bool spiller_runs, reaper_runs;

  pthread_cond_t reap; /* the reaper has something to do */
  store_trash *trash_first, *trash_last;
  uint64_t trash_number;
};

void *br_store_spiller(void *store); /* the spill thread */
void *br_store_reaper(void *store);  /* the thread that removes */
/* All under lock. */
void br_store_want_free(br_store *s, uint64_t bytes); /* ask for so much free memory */
void br_store_uncount(counted_output *c);             /* its memory is about to be free */
void br_store_unlist(br_store *s, store_entry *e);
void br_store_discard(br_store *s, store_entry *e);             /* to the reaper; the store forgets it */
void br_store_discard_directory(br_store *s, const char *path); /* out of the way at once, removed by the reaper */
uint64_t br_store_task_key(uint32_t stage, uint32_t task);
store_entry *br_store_find(br_store *s, uint64_t query, uint32_t stage, uint32_t task);
void br_store_drop_entry(br_store *s, store_entry *e); /* it's out of its query's map already */
void br_store_unretire(br_store *s, store_entry *e);
/* Let retired outputs that nobody reads go: until so much memory is free; so many bytes of files. False: there were none. */
bool br_store_evict_memory(br_store *s, uint64_t bytes);
bool br_store_evict_disk(br_store *s, uint64_t bytes);
static inline uint64_t br_store_disk_free(const br_store *s) { return s->disk_quota_bytes - s->disk_bytes; }
char *br_store_path(const br_store *s, const br_attempt_id *id);

#endif
