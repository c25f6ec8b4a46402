/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories of the files backend, one a query: <parent>/brant-<16 hex digits>-q<query, 16 hex digits>/ with an `owner` file (base/owner.h)
 * and what files.h says. The coordinator makes and removes them. The first number is random and the directory must be new, so that two
 * sessions never share one.
 *
 * Order: new → the owner file touched each BR_FILES_TOUCH_MS → remove. Removing renames first (.gone): what still writes or opens by path fails at
 * once, and nobody finds half a directory. A dead owner's directory is removed by the next session: dead on this machine is seen by
 * pid and lock; on another by its owner file, which nobody has touched for STALE_S by the file system's own clock.
 *
 * Dropping a stage in the moment when its tasks run again may take new files along: they count as lost, and are made once more.
 *
 * Threads: any; they block for the file system: not on a loop. Bounds: removing tries REMOVE_TRIES times.
 */
#include "shuffle/files.h"

#include "base/mem.h"
#include "base/owner.h"
#include "base/util.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_TRIES 8
#define REMOVE_TRIES 10 /* somebody may have been creating a file when the directory got its new name */
#define STALE_S (10 * BR_FILES_TOUCH_MS / 1000)
#define GONE ".gone"

struct br_files_dir {
  char *path;
  int lock_fd;
};

static br_status refuse(const char *parent, int error, br_error *err) {
  br_fail(err, error == EACCES || error == EPERM ? BR_PERMISSION : BR_INVALID, BR_BLAME_USER,
          "shuffle_dir %s can't be written: %s: it has to be a directory that this process and all workers can write",
          parent, strerror(error));
  err->sys_errno = error;
  return err->code;
}

br_status br_files_dir_new(const char *parent, uint64_t query, br_files_dir **out, br_error *err) {
  br_files_dir *d = br_calloc(1, sizeof *d);
  br_status status = BR_OK;
  char *owner = NULL;
  int rc = -1;
  d->lock_fd = -1;
  for (int i = 0; i < NAME_TRIES && rc != 0; i++) {
    free(d->path);
    d->path = br_asprintf("%s/brant-%016" PRIx64 "-q%016" PRIx64, parent, br_random_u64(), query);
    rc = mkdir(d->path, 0700);
    if (rc != 0 && errno != EEXIST) break;
  }
  if (rc != 0) {
    status = refuse(parent, errno, err);
    goto done;
  }
  owner = br_asprintf("%s/owner", d->path);
  BR_TRY_GOTO(br_owner_write(owner, &d->lock_fd, err));
  *out = d;
done:
  free(owner);
  if (status != BR_OK) {
    if (rc == 0) br_remove_tree(d->path);
    free(d->path);
    free(d);
  }
  return status;
}

const char *br_files_dir_path(const br_files_dir *d) { return d->path; }

int br_files_dir_owner_fd(const br_files_dir *d) { return fcntl(d->lock_fd, F_DUPFD_CLOEXEC, 0); }

/* A tree, out of everybody's way first. */
static void remove_tree(const char *path) {
  size_t n = strlen(path), suffix = strlen(GONE);
  bool is_gone = n > suffix && strcmp(path + n - suffix, GONE) == 0;
  char *gone = br_asprintf("%s" GONE, path);
  const char *now = !is_gone && rename(path, gone) == 0 ? gone : path;
  struct stat st;
  for (int i = 0; i < REMOVE_TRIES; i++) {
    br_remove_tree(now);
    if (lstat(now, &st) != 0) break;
  }
  free(gone);
}

void br_files_dir_drop_stage(const char *dir, uint32_t stage) {
  char *path = br_asprintf("%s/s%" PRIu32, dir, stage);
  remove_tree(path);
  free(path);
}

void br_files_dir_remove(br_files_dir *d) {
  if (d == NULL) return;
  remove_tree(d->path);
  if (d->lock_fd >= 0) close(d->lock_fd);
  free(d->path);
  free(d);
}

/* ---- of dead owners */
static bool hex(const char **s) {
  for (int i = 0; i < 16; i++, ++*s)
    if (!isxdigit((unsigned char)**s)) return false;
  return true;
}

/* brant-<16 hex>-q<16 hex>, perhaps with .gone: what is removed must be surely ours. */
static bool our_name(const char *s) {
  if (strncmp(s, "brant-", 6) != 0) return false;
  s += 6;
  if (!hex(&s) || strncmp(s, "-q", 2) != 0) return false;
  s += 2;
  return hex(&s) && (*s == 0 || strcmp(s, GONE) == 0);
}

/* now_s: by the clock of the file system. *lock: to be closed after the removal. */
static bool dead(const char *dir, int64_t now_s, int *lock) {
  char *owner = br_asprintf("%s/owner", dir);
  int64_t touched_s;
  struct stat st;
  br_owner_state state = br_owner_look(owner, lock, &touched_s);
  free(owner);
  if (state != BR_OWNER_UNSURE) return state == BR_OWNER_DEAD;
  if (touched_s == 0 && lstat(dir, &st) == 0) touched_s = (int64_t)st.st_mtime; /* being made, or being removed */
  return touched_s != 0 && now_s - touched_s > STALE_S;
}

static size_t remove_dead(DIR *d, const char *parent, int64_t now_s) {
  size_t removed = 0;
  for (struct dirent *e; (e = readdir(d));) {
    if (!our_name(e->d_name)) continue;
    char *dir = br_asprintf("%s/%s", parent, e->d_name);
    struct stat st;
    int lock = -1;
    if (lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && dead(dir, now_s, &lock)) {
      br_log(BR_LOG_INFO, "removing %s: its session is dead", dir);
      remove_tree(dir);
      removed++;
    }
    if (lock >= 0) close(lock);
    free(dir);
  }
  return removed;
}

br_status br_files_dirs_check(const char *parent, size_t *removed, br_error *err) {
  struct stat st;
  char *probe = br_asprintf("%s/.brant-%016" PRIx64, parent, br_random_u64());
  int fd = open(probe, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), error = errno;
  *removed = 0;
  if (fd < 0 || fstat(fd, &st) != 0) {
    if (fd >= 0) error = errno;
  } else {
    error = 0;
  }
  if (fd >= 0) {
    close(fd);
    unlink(probe);
  }
  free(probe);
  if (error != 0) return refuse(parent, error, err);
  DIR *d = opendir(parent);
  if (d == NULL) return refuse(parent, errno, err);
  *removed = remove_dead(d, parent, (int64_t)st.st_mtime);
  closedir(d);
  return BR_OK;
}
