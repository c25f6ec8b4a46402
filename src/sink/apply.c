/* SPDX-License-Identifier: Apache-2.0
 * The renames of a commit. Old entries first, as a whole into <staging>/old/, then the new files in, then fsync. Each rename knows
 * from what it finds whether it was done before, so that any number of dead processes may have begun. Threads: whoever holds
 * the staging directory's lock. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sink/internal.h"

static bool there(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

static br_status step(br_apply *a, const char *what, br_error *err) {
  if (a->step == NULL || a->step(a->step_arg, what)) return BR_OK;
  a->died = true;
  return br_fail(err, BR_CANCELLED, BR_BLAME_INTERNAL, "stopped before: %s", what);
}

/* 1: renamed, 0: it was done already, negative: failed. */
static int move_once(const char *from, const char *to) {
  if (rename(from, to) == 0) return 1;
  int e = errno;
  if (e == ENOENT && there(to) && !there(from)) return 0;
  errno = e;
  return -1;
}

static br_status move_old(br_apply *a, br_error *err) {
  br_status status = BR_OK;
  char *dir = br_asprintf("%s/old", a->staging);
  if (a->journal->n_old > 0 && mkdir(dir, 0777) != 0 && errno != EEXIST)
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot make %s", dir);
  for (; status == BR_OK && a->old_done < a->journal->n_old; a->old_done++) {
    const char *name = a->journal->old[a->old_done];
    char *from = br_asprintf("%s/%s", a->target, name), *to = br_asprintf("%s/%s", dir, name);
    status = step(a, "move an old file away", err);
    /* If it is in old/, what has its name now is new. One that is in neither place was removed by somebody else. */
    if (status == BR_OK && !there(to) && rename(from, to) != 0 && errno != ENOENT)
      status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot move the old %s away", from);
    free(from);
    free(to);
    if (status != BR_OK) break;
  }
  free(dir);
  return status;
}

static br_status make_parent(const char *path, br_error *err) {
  char *dir = br_strdup(path), *slash = strrchr(dir, '/');
  br_status status = BR_OK;
  if (slash != NULL && slash != dir) {
    *slash = 0;
    if (!there(dir)) status = br_staging_mkdir_p(dir, err);
  }
  free(dir);
  return status;
}

static br_status move_new(br_apply *a, const br_move *m, br_error *err) {
  char *from = br_asprintf("%s/%s", a->staging, m->from), *to = br_asprintf("%s/%s", a->target, m->to);
  br_status status;
  BR_TRY_GOTO(step(a, "move a new file in", err));
  BR_TRY_GOTO(make_parent(to, err));
  if (move_once(from, to) < 0) {
    if (errno == ENOENT && a->recovering)
      br_log(BR_LOG_WARN, "%s is gone: it was removed after its commit had begun", to);
    else
      status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot move a file to %s", to);
  }
done:
  free(from);
  free(to);
  return status;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The target and each directory below it that got a file or a directory. */
static br_status sync_all(br_apply *a, br_error *err) {
  size_t n = 0, cap = 0;
  char **dirs = NULL;
  br_status status = BR_OK;
  for (size_t i = 0; i < a->journal->n_moves; i++) {
    char *path = br_asprintf("%s/%s", a->target, a->journal->moves[i].to);
    for (char *slash; (slash = strrchr(path, '/')) != NULL && (size_t)(slash - path) > strlen(a->target);) {
      *slash = 0;
      if (n > 0 && strcmp(dirs[n - 1], path) == 0) break; /* neighbours share their directories */
      br_grow((void **)&dirs, &cap, n, sizeof *dirs);
      dirs[n++] = br_strdup(path);
    }
    free(path);
  }
  if (n > 0) qsort(dirs, n, sizeof *dirs, by_text);
  for (size_t i = 0; i < n && status == BR_OK; i++)
    if ((i == 0 || strcmp(dirs[i - 1], dirs[i]) != 0) && there(dirs[i])) status = br_sync_dir(dirs[i], err);
  if (status == BR_OK) status = br_sync_dir(a->target, err);
  for (size_t i = 0; i < n; i++) free(dirs[i]);
  free(dirs);
  return status;
}

br_status br_apply_run(br_apply *a, br_error *err) {
  BR_TRY(move_old(a, err));
  for (; a->moves_done < a->journal->n_moves; a->moves_done++)
    BR_TRY(move_new(a, &a->journal->moves[a->moves_done], err));
  BR_TRY(step(a, "fsync of the directories", err));
  return sync_all(a, err);
}

/* Directories that the renames made empty again. */
static void remove_empty_parents(const br_apply *a, const char *to) {
  char *path = br_asprintf("%s/%s", a->target, to);
  for (char *slash; (slash = strrchr(path, '/')) != NULL && (size_t)(slash - path) > strlen(a->target);) {
    *slash = 0;
    if (rmdir(path) != 0) break;
  }
  free(path);
}

static br_status move_back(const char *from, const char *to, br_error *err) {
  if (there(to) || rename(from, to) == 0 || errno == ENOENT) return BR_OK;
  return br_fail_errno(err, errno, BR_BLAME_USER, "cannot move %s back", from);
}

br_status br_apply_undo(br_apply *a, br_error *err) {
  br_status status = BR_OK;
  while (status == BR_OK && a->moves_done > 0) {
    const br_move *m = &a->journal->moves[--a->moves_done];
    char *staged = br_asprintf("%s/%s", a->staging, m->from), *to = br_asprintf("%s/%s", a->target, m->to);
    status = move_back(to, staged, err);
    if (status == BR_OK) remove_empty_parents(a, m->to);
    free(staged);
    free(to);
  }
  while (status == BR_OK && a->old_done > 0) {
    const char *name = a->journal->old[--a->old_done];
    char *kept = br_asprintf("%s/old/%s", a->staging, name), *to = br_asprintf("%s/%s", a->target, name);
    status = move_back(kept, to, err);
    free(kept);
    free(to);
  }
  if (status == BR_OK) status = br_sync_dir(a->target, err);
  return status;
}

br_status br_apply_mark_done(br_apply *a, br_error *err) {
  char *from = br_asprintf("%s/" BR_SINK_JOURNAL, a->staging), *to = br_asprintf("%s/" BR_SINK_DONE, a->staging);
  br_status status;
  BR_TRY_GOTO(step(a, "mark the journal as done", err));
  if (rename(from, to) != 0)
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot rename %s", from);
  else
    status = br_sync_dir(a->staging, err);
done:
  free(from);
  free(to);
  return status;
}
