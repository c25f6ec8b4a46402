/* SPDX-License-Identifier: Apache-2.0
 * The shared directory of one query (shuffle_backend = files): made on the caller's thread before the query is submitted, touched
 * while it runs, emptied as its stages are dropped, removed at its end, whichever that is.
 * Order: br_shared_open, br_shared_start, drops, br_shared_close. Threads: open: the caller's; the rest: the loop's, which leaves all
 * that waits for the file system to pool threads; br_loop_free waits for them. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "coordinator/query.h"
#include "net/loop.h"
#include "shuffle/shuffle.h"

br_status br_shared_open(br_query *q, const char *dir, br_error *err) {
  if (dir == NULL || q->files != NULL) return BR_OK;
  if (dir[0] == 0)
    return br_fail(
        err, BR_INVALID, BR_BLAME_USER,
        "shuffle_backend = files needs shuffle_dir: a directory that this process and all workers can write");
  BR_TRY(br_files_dir_new(dir, q->id, &q->files, err));
  q->shared_dir = br_strdup(br_files_dir_path(q->files));
  return BR_OK;
}

static void nothing_more(void *arg) { (void)arg; }

/* ---- it lives: its owner file says so */
static void touch(void *arg) {
  int fd = (int)(intptr_t)arg;
  (void)futimens(fd, NULL);
  close(fd);
}

static void on_touch(void *arg) {
  br_query *q = arg;
  int fd = br_files_dir_owner_fd(q->files);
  if (fd >= 0) br_loop_work(q->shared_loop, touch, nothing_more, (void *)(intptr_t)fd);
}

void br_shared_start(br_loop *l, br_query *q) {
  if (q->files == NULL) return;
  q->shared_loop = l;
  q->shared_timer = br_timer_start(l, BR_FILES_TOUCH_MS, BR_FILES_TOUCH_MS, on_touch, q);
}

/* ---- parts of it are not wanted */
typedef struct drop {
  char *dir;
  uint32_t stage;
  br_attempt_id output;
  bool whole_stage;
} drop;

static void drop_work(void *arg) {
  drop *d = arg;
  if (d->whole_stage)
    br_files_dir_drop_stage(d->dir, d->stage);
  else
    br_files_abandon(d->dir, &d->output);
}

static void drop_done(void *arg) {
  drop *d = arg;
  free(d->dir);
  free(d);
}

static void post_drop(br_query *q, drop d) {
  if (q->files == NULL || q->shared_loop == NULL) return;
  drop *copy = br_malloc(sizeof *copy);
  *copy = d;
  copy->dir = br_strdup(q->shared_dir);
  br_loop_work(q->shared_loop, drop_work, drop_done, copy);
}

void br_shared_drop_stage(br_query *q, uint32_t stage) { post_drop(q, (drop){.stage = stage, .whole_stage = true}); }
void br_shared_drop_output(br_query *q, const br_attempt_id *id) { post_drop(q, (drop){.output = *id}); }

/* ---- the end */
static void remove_work(void *arg) { br_files_dir_remove(arg); }

void br_shared_close(br_query *q) {
  br_files_dir *files = q->files;
  q->files = NULL;
  br_timer_stop(q->shared_timer);
  q->shared_timer = NULL;
  if (files == NULL) return;
  if (q->shared_loop != NULL)
    br_loop_work(q->shared_loop, remove_work, nothing_more, files);
  else
    br_files_dir_remove(files); /* never submitted */
}
