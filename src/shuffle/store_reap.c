/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's reaper: removes what was dropped, in the order of the drops. Unmapping and freeing a memfd takes 0.1 s a GiB,
 * unlinking a large file as long: not on the loop thread. A directory is renamed within the store when it's dropped, so that
 * an output that comes later for the same stage can't be removed with it.
 *
 * Memory that nobody else holds counts as free when it comes here, a little early.
 * Threads: one a store, without the lock while it removes. Bounds: as many items as outputs were dropped.
 */
#include "shuffle/store_internal.h"

#include "base/mem.h"
#include "base/util.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void put_trash(br_store *s, store_trash item) {
  store_trash *t = br_malloc(sizeof *t);
  *t = item;
  if (s->trash_last != NULL)
    s->trash_last->next = t;
  else
    s->trash_first = t;
  s->trash_last = t;
  pthread_cond_signal(&s->reap);
}

void br_store_discard(br_store *s, store_entry *e) {
  br_store_unlist(s, e);
  if (e->counted != NULL && br_mapfile_refs(e->file) == 1) br_store_uncount(e->counted); /* nobody reads it */
  if (e->path != NULL) {
    s->disk_bytes -= e->file_bytes;
    s->disk_full_until_ms = 0;
  }
  put_trash(s, (store_trash){.entry = e});
}

void br_store_discard_directory(br_store *s, const char *path) {
  char *away = br_asprintf("%s/trash.%" PRIu64, s->dir, s->trash_number++);
  if (rename(path, away) == 0)
    put_trash(s, (store_trash){.dir = away});
  else
    free(away); /* nothing of it was on disk */
}

static void remove_trash(store_trash *t) {
  if (t->entry != NULL) {
    if (t->entry->path != NULL) unlink(t->entry->path);
    br_mapfile_unref(t->entry->file);
    free(t->entry->path);
    free(t->entry);
  }
  if (t->dir != NULL) br_remove_tree(t->dir);
  free(t->dir);
  free(t);
}

void *br_store_reaper(void *store) {
  br_store *s = store;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    store_trash *t = s->trash_first;
    if (t == NULL && s->reaper_stopping) break;
    if (t == NULL) {
      pthread_cond_wait(&s->reap, &s->lock);
      continue;
    }
    s->trash_first = t->next;
    if (t->next == NULL) s->trash_last = NULL;
    pthread_mutex_unlock(&s->lock);
    remove_trash(t);
    pthread_mutex_lock(&s->lock);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}
