/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's spill thread: while more memory is wanted free than there is, it copies the oldest output in memory to a
 * file with the same bytes and lets the memory go. Readers that hold the old one go on reading it; its memory counts until
 * the last of them is done. Outputs whose memfd was handed to another process stay: moving them would free nothing.
 *
 * A full disk is no failure: the output stays in memory, it's logged once, and nothing is tried again for
 * DISK_FULL_PAUSE_MS or until a file is dropped. Reservations over the limit are refused meanwhile, as always.
 * Threads: one a store; the lock is not held while it copies. Bounds: one copy buffer of COPY_BYTES.
 */
#include "shuffle/store_internal.h"

#include "base/mem.h"
#include "base/util.h"
#include "shuffle/fileio.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COPY_BYTES (1u << 20)
#define DISK_FULL_PAUSE_MS 5000u
#define EVICTED_PAUSE_MS 50u /* for the reaper, which removes what was evicted */

/* Copy e's memory to a file and open it. `id` and `memory` can't change meanwhile. */
static br_status copy_out(const char *path, br_mapfile *memory, br_mapfile **out, br_error *err) {
  br_status status = BR_OK;
  int fd = -1;
  uint64_t bytes = br_mapfile_bytes(memory);
  char *buffer = br_malloc(COPY_BYTES);
  BR_TRY_GOTO(br_shuffle_create(path, &fd, err));
  for (uint64_t at = 0; at < bytes;) {
    size_t step = bytes - at < COPY_BYTES ? (size_t)(bytes - at) : COPY_BYTES;
    BR_TRY_GOTO(br_pread_all(br_mapfile_fd(memory), buffer, step, at, err));
    BR_TRY_GOTO(br_shuffle_pwrite(fd, buffer, step, at, path, err));
    at += step;
  }
  status = br_mapfile_open(fd, false, bytes, out, err);
  fd = -1;
done:
  if (fd >= 0) close(fd);
  if (status != BR_OK) unlink(path);
  free(buffer);
  return status;
}

/* Retired ones that are still here are being read: moving them would not free anything soon. */
static store_entry *fits_on_disk(br_store *s) {
  for (store_entry *e = s->oldest; e != NULL; e = e->newer)
    if (!e->lent && !e->retired && e->file_bytes <= br_store_disk_free(s)) return e;
  return NULL;
}

static store_entry *next_to_move(br_store *s) {
  store_entry *e = fits_on_disk(s);
  if (e != NULL) return e;
  for (e = s->oldest; e != NULL && (e->lent || e->retired); e = e->newer) continue;
  return e != NULL && br_store_evict_disk(s, e->file_bytes - br_store_disk_free(s)) ? fits_on_disk(s) : NULL;
}

static void spill_failed(br_store *s, uint64_t bytes, const br_error *err) {
  bool room = err->code == BR_NO_SPACE && br_store_evict_disk(s, bytes);
  s->disk_full_until_ms = br_now_ms() + (room ? EVICTED_PAUSE_MS : DISK_FULL_PAUSE_MS);
  if (room) return;
  if (s->disk_full_logged) return;
  s->disk_full_logged = true;
  br_log(BR_LOG_WARN, "shuffle data stays in memory: %s", err->message);
}

/* A drop came while its output was being copied: the copy made the directories anew. */
static void remove_empty_parents(const br_store *s, char *path) {
  for (int level = 0; level < 2 && strlen(path) > strlen(s->dir); level++) {
    *strrchr(path, '/') = 0;
    if (rmdir(path) != 0) return;
  }
}

/* Under lock, given up while copying. */
static void move_entry(br_store *s, store_entry *e) {
  br_error err = {0};
  br_mapfile *memory = br_mapfile_ref(e->file), *file = NULL;
  char *path = br_store_path(s, &e->id);
  uint64_t bytes = e->file_bytes;
  e->moving = true;
  s->disk_bytes += bytes; /* of the quota, before it is written */
  pthread_mutex_unlock(&s->lock);
  br_status status = copy_out(path, memory, &file, &err);
  pthread_mutex_lock(&s->lock);
  e->moving = false;
  bool lent = e->lent && !e->dropped; /* somebody asked for the memfd meanwhile: keep what they map */
  if (status == BR_OK && !lent) {
    br_store_unlist(s, e);
    e->counted = NULL;
    br_mapfile_unref(e->file);
    e->file = file;
    e->path = br_strdup(path);
    s->spilled_bytes += bytes;
  } else {
    s->disk_bytes -= bytes;
    if (status == BR_OK) {
      unlink(path);
      br_mapfile_unref(file);
    } else {
      spill_failed(s, bytes, &err);
    }
  }
  if (e->dropped) {
    if (e->path != NULL) unlink(e->path); /* now, so that the directories are empty */
    br_store_discard(s, e);
    remove_empty_parents(s, path);
  }
  free(path);
  pthread_mutex_unlock(&s->lock);
  br_mapfile_unref(memory); /* frees it, most likely, which takes a while */
  pthread_mutex_lock(&s->lock);
}

static bool enough_free(const br_store *s) {
  const br_budget *m = &s->account->memory;
  return m->used_bytes <= m->limit_bytes - s->want_free_bytes;
}

/* An output to move, if that much memory is wanted. What is kept for recovery alone goes first. */
static store_entry *work_to_do(br_store *s) {
  if (s->want_free_bytes == 0 || enough_free(s)) return NULL;
  br_store_evict_memory(s, s->want_free_bytes);
  return enough_free(s) ? NULL : next_to_move(s);
}

static void wait_for_disk(br_store *s) {
  struct timespec until = {.tv_sec = (time_t)(s->disk_full_until_ms / 1000),
                           .tv_nsec = (long)(s->disk_full_until_ms % 1000) * 1000000};
  pthread_cond_timedwait(&s->wake, &s->lock, &until);
}

void *br_store_spiller(void *store) {
  br_store *s = store;
  pthread_mutex_lock(&s->lock);
  while (!s->stopping) {
    store_entry *e = work_to_do(s);
    if (e == NULL) {
      s->want_free_bytes = 0;
      pthread_cond_wait(&s->wake, &s->lock);
    } else if (br_now_ms() < s->disk_full_until_ms) {
      wait_for_disk(s);
    } else {
      move_entry(s, e);
    }
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}
