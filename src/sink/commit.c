/* SPDX-License-Identifier: Apache-2.0
 * One writer of a directory, from its staging directory to the commit. Order: sink.h. Threads: one at a time for a sink. Bounds:
 * BR_SINK_TURN_MS for others' commits to end. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sink/internal.h"

#define TRIES 100 /* of a staging directory: each is lost only to somebody who cleans up at that moment */

struct br_sink {
  char *target, *staging, *made; /* made: the topmost directory that did not exist before; NULL: all did */
  br_sink_mode mode;
  int lock;
  br_journal journal;
  br_sink_step_fn step;
  void *step_arg;
  bool begun; /* nothing of the staging directory may be removed here any more */
};

const char *br_sink_staging(const br_sink *s) { return s->staging; }
const char *br_sink_target(const br_sink *s) { return s->target; }

void br_sink_set_step(br_sink *s, br_sink_step_fn fn, void *arg) {
  s->step = fn;
  s->step_arg = arg;
}

static char *absolute(const char *path) {
  char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);
  char *out = cwd ? br_asprintf("%s/%s", cwd, path) : br_strdup(path);
  for (size_t n = strlen(out); n > 1 && out[n - 1] == '/';) out[--n] = 0;
  free(cwd);
  return out;
}

/* The first component of path that does not exist; NULL: all do. */
static char *first_missing(const char *path) {
  struct stat st;
  char *p = br_strdup(path), *missing = NULL;
  for (char *slash; stat(p, &st) != 0 && errno == ENOENT && (slash = strrchr(p, '/')) != NULL && slash != p;) {
    free(missing);
    missing = br_strdup(p);
    *slash = 0;
  }
  free(p);
  return missing;
}

static br_status make_target(br_sink *s, br_error *err) {
  struct stat st;
  if (stat(s->target, &st) == 0) {
    if (S_ISDIR(st.st_mode)) return BR_OK;
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is a file: a COPY that writes several files needs a directory",
                   s->target);
  }
  if (s->mode == BR_SINK_REPLACE)
    return br_fail_errno(err, errno, BR_BLAME_USER, "cannot write into the directory %s", s->target);
  s->made = first_missing(s->target);
  return br_staging_mkdir_p(s->target, err);
}

static void unmake_target(const br_sink *s) {
  if (s->made == NULL) return;
  char *p = br_strdup(s->target);
  while (rmdir(p) == 0 && strcmp(p, s->made) != 0) *strrchr(p, '/') = 0; /* those that are empty */
  free(p);
}

static br_status check_empty(const br_sink *s, br_error *err) {
  char **names = NULL;
  size_t n = 0;
  if (s->mode != BR_SINK_NEW) return BR_OK;
  BR_TRY(br_staging_list(s->target, &names, &n, err));
  for (size_t i = 0; i < n; i++) free(names[i]);
  free(names);
  if (n == 0) return BR_OK;
  return br_fail(
      err, BR_INVALID, BR_BLAME_USER,
      "the directory %s is not empty: OVERWRITE (in Python mode='overwrite') replaces what is in it, APPEND adds "
      "to it",
      s->target);
}

static br_status make_staging(br_sink *s, const char *id, br_error *err) {
  for (int i = 0; i < TRIES; i++) {
    free(s->staging);
    s->staging = i == 0 ? br_asprintf("%s/" BR_SINK_PREFIX "%s", s->target, id)
                        : br_asprintf("%s/" BR_SINK_PREFIX "%s-%d", s->target, id, i);
    if (mkdir(s->staging, 0777) != 0) {
      if (errno == EEXIST) continue;
      return br_fail_errno(err, errno, BR_BLAME_USER, "cannot write into the directory %s", s->target);
    }
    br_status status = br_staging_lock(s->staging, &s->lock, err);
    if (status != BR_OK) rmdir(s->staging);
    if (status != BR_OK || s->lock >= 0) return status;
  }
  return br_fail(err, BR_IO, BR_BLAME_USER, "cannot make a directory of one's own in %s", s->target);
}

br_status br_sink_open(const char *target, br_sink_mode mode, const char *id, br_sink **out, br_error *err) {
  br_sink *s = br_calloc(1, sizeof *s);
  br_sink_recovery r;
  br_status status;
  s->target = absolute(target);
  s->mode = mode;
  s->lock = -1;
  BR_TRY_GOTO(make_target(s, err));
  BR_TRY_GOTO(br_sink_recover(s->target, &r, err));
  BR_TRY_GOTO(check_empty(s, err));
  BR_TRY_GOTO(make_staging(s, id, err));
  *out = s;
  s = NULL;
done:
  br_sink_free(s);
  return status;
}

void br_sink_add(br_sink *s, const char *from, const char *to, uint64_t bytes) {
  br_journal_add_move(&s->journal, from, to, bytes);
}

/* ---- commit */

/* The files are there and as large as their writers said: on a shared file system this is a look at what the others did. */
static br_status check_files(const br_sink *s, br_error *err) {
  for (size_t i = 0; i < s->journal.n_moves; i++) {
    const br_move *m = &s->journal.moves[i];
    char *path = br_asprintf("%s/%s", s->staging, m->from);
    struct stat st;
    br_status status = BR_OK;
    if (lstat(path, &st) != 0)
      status = br_fail_errno(err, errno, BR_BLAME_USER,
                             "cannot find %s, which a worker wrote: is %s on a file system that all share?", path,
                             s->target);
    else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != m->bytes)
      status = br_fail(err, BR_CORRUPT, BR_BLAME_USER, "%s has %llu bytes, and its writer wrote %llu", path,
                       (unsigned long long)st.st_size, (unsigned long long)m->bytes);
    free(path);
    BR_TRY(status);
  }
  return BR_OK;
}

static br_status list_old(br_sink *s, br_error *err) {
  char **names = NULL;
  size_t n = 0;
  if (s->mode != BR_SINK_OVERWRITE) return BR_OK;
  BR_TRY(br_staging_list(s->target, &names, &n, err));
  for (size_t i = 0; i < n; i++) {
    br_journal_add_old(&s->journal, names[i]);
    free(names[i]);
  }
  free(names);
  return BR_OK;
}

static bool go_on(br_sink *s, const char *step, br_error *err) {
  if (s->step == NULL || s->step(s->step_arg, step)) return true;
  s->begun = true;
  (void)!br_fail(err, BR_CANCELLED, BR_BLAME_INTERNAL, "stopped before: %s", step);
  return false;
}

/* A rename failed half-way: back, so that the caller's "it failed" is true. Dying on this way back means that it is rolled forward. */
static br_status back_out(br_sink *s, br_apply *a, br_error *err) {
  br_error why;
  if (br_apply_undo(a, &why) != BR_OK)
    return br_error_context(
        err,
        "the commit to %s is half done, and can't be taken back (%s); the next COPY to it, or brant "
        "recover, will finish it. What stopped it",
        s->target, why.message);
  s->begun = false; /* the journal goes with the rest */
  char *path = br_asprintf("%s/" BR_SINK_JOURNAL, s->staging);
  (void)!unlink(path); /* first: what is left must not be taken for a commit */
  free(path);
  return (br_status)err->code;
}

static br_status sync_made(const br_sink *s, br_error *err) {
  if (s->made == NULL) return BR_OK;
  char *p = br_strdup(s->made), *slash = strrchr(p, '/');
  if (slash == p) slash++;
  *slash = 0;
  br_status status = br_sync_dir(p, err);
  free(p);
  return status;
}

/* One at a time, of those that look at what is in the target: else two would find it empty, and both write. The lock is the target
 * directory's own, and ends with its process; a file system that has none for directories (NFS) leaves the look alone. */
static br_status take_turn(const br_sink *s, int *turn, br_error *err) {
  const struct timespec pause = {.tv_nsec = BR_SINK_TURN_STEP_MS * 1000000L};
  uint64_t until = br_now_ms() + BR_SINK_TURN_MS;
  if (s->mode != BR_SINK_NEW && s->mode != BR_SINK_OVERWRITE) return BR_OK;
  *turn = open(s->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*turn < 0) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot open the directory %s", s->target);
  for (bool waits = false; flock(*turn, LOCK_EX | LOCK_NB) != 0; waits = true) {
    if (errno != EWOULDBLOCK && errno != EINTR) return BR_OK;
    if (!waits && s->step != NULL) (void)s->step(s->step_arg, BR_SINK_WAITS);
    if (br_now_ms() > until)
      return br_fail(err, BR_IO, BR_BLAME_USER,
                     "the directory %s is locked for more than %u s, by another COPY that commits to it or by flock: "
                     "run this one again when that has ended",
                     s->target, BR_SINK_TURN_MS / 1000);
    nanosleep(&pause, NULL);
  }
  return BR_OK;
}

static br_status commit(br_sink *s, br_error *err) {
  br_apply a = {
      .target = s->target, .staging = s->staging, .journal = &s->journal, .step = s->step, .step_arg = s->step_arg};
  br_error why;
  BR_TRY(check_files(s, err));
  BR_TRY(check_empty(s, err));
  BR_TRY(list_old(s, err));
  BR_TRY(sync_made(s, err));
  if (!go_on(s, "write the journal", err)) return (br_status)err->code;
  BR_TRY(br_journal_write(&s->journal, s->staging, err));
  s->begun = true;
  br_status status = br_apply_run(&a, err);
  if (a.died) return status;
  if (status != BR_OK) return back_out(s, &a, err);
  if (br_apply_mark_done(&a, &why) != BR_OK) {
    if (a.died) return (br_status)(*err = why).code;
    /* All is in its place. But a removal that dies half-way would leave a journal whose old files are gone: who redoes it would take
     * new ones of the same names for them. So whoever comes next does it all. */
    br_log(BR_LOG_WARN, "the commit to %s is done, its staging directory stays until the next one: %s", s->target,
           why.message);
    return BR_OK;
  }
  if (!go_on(s, "remove the staging directory", err)) return (br_status)err->code;
  br_staging_remove(s->staging);
  return BR_OK;
}

br_status br_sink_commit(br_sink *s, br_error *err) {
  br_sink_recovery r;
  int turn = -1;
  br_status status = take_turn(s, &turn, err);
  /* With the turn: what somebody had begun who died since the start is in the target, too. */
  if (status == BR_OK && turn >= 0) status = br_sink_recover(s->target, &r, err);
  if (status == BR_OK) status = commit(s, err);
  if (turn >= 0) close(turn);
  return status;
}

void br_sink_free(br_sink *s) {
  if (s == NULL) return;
  if (!s->begun && s->lock >= 0) br_staging_remove(s->staging);
  if (s->lock >= 0) close(s->lock);
  if (!s->begun) unmake_target(s);
  br_journal_free(&s->journal);
  free(s->target);
  free(s->staging);
  free(s->made);
  free(s);
}

char *br_sink_file_name(unsigned width, uint32_t task, const char *id, const uint32_t *counter, const char *extension) {
  if (counter == NULL) return br_asprintf("part-%0*u-%s%s", (int)width, task, id, extension);
  return br_asprintf("part-%0*u-%s-%05u%s", (int)width, task, id, *counter, extension);
}
