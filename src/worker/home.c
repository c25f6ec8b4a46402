/* SPDX-License-Identifier: Apache-2.0
 * A worker's directory: <temp-dir>/brant-<16 hex digits>-w<pid>/ with
 *   owner     pid, start time and boot of the worker, locked (flock) as long as it lives
 *   s         its Unix socket
 *   shuffle/  files of the store and of attempts that write     e<k>-<pid>/  an executor's temporary files
 * Order: br_home_remove_dead at start, br_home_create, br_home_remove at the end. A directory belongs to a dead worker when its
 * lock can be had and no process of this boot has its pid and start time; one without an owner file is left alone for
 * NO_OWNER_SECONDS (its worker may be about to write it). Threads: one. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/owner.h"
#include "base/util.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NO_OWNER_SECONDS 600

/* A worker's directory is on its own machine: an owner of another boot is dead if nobody has the lock. */
static bool dead(const char *dir, int *lock) {
  char *owner = br_asprintf("%s/owner", dir);
  int64_t touched_s;
  struct stat st;
  br_owner_state state = br_owner_look(owner, lock, &touched_s);
  free(owner);
  if (state != BR_OWNER_UNSURE) return state == BR_OWNER_DEAD;
  if (touched_s != 0) return *lock >= 0;
  return lstat(dir, &st) == 0 && time(NULL) - st.st_mtime > NO_OWNER_SECONDS;
}

/* brant-<16 hex>-w<digits> and nothing else: what is removed must be surely ours. */
static bool our_name(const char *s) {
  if (strncmp(s, "brant-", 6) != 0) return false;
  s += 6;
  for (int i = 0; i < 16; i++, s++)
    if (!isxdigit((unsigned char)*s)) return false;
  if (strncmp(s, "-w", 2) != 0 || !s[2]) return false;
  return s[2 + strspn(s + 2, "0123456789")] == 0;
}

size_t br_home_remove_dead(const char *temp_dir) {
  size_t removed = 0;
  DIR *d = opendir(temp_dir);
  if (!d) return 0;
  for (struct dirent *e; (e = readdir(d));) {
    if (!our_name(e->d_name)) continue;
    char *dir = br_asprintf("%s/%s", temp_dir, e->d_name);
    struct stat st;
    int lock = -1;
    if (lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && dead(dir, &lock)) {
      br_log(BR_LOG_INFO, "removing %s: its worker is dead", dir);
      br_remove_tree(dir);
      removed++;
    }
    if (lock >= 0) close(lock);
    free(dir);
  }
  closedir(d);
  return removed;
}

br_status br_home_create(const char *temp_dir, br_home *h, br_error *err) {
  *h = (br_home){.lock_fd = -1};
  BR_TRY(br_mkdir_p(temp_dir, err));
  char *real = realpath(temp_dir, NULL); /* executors and peers get it as an absolute path */
  if (!real) return br_fail_errno(err, errno, BR_BLAME_USER, "--temp-dir %s", temp_dir);
  h->dir = br_asprintf("%s/brant-%016" PRIx64 "-w%ld", real, br_random_u64(), (long)getpid());
  free(real);
  if (mkdir(h->dir, 0700) != 0) {
    br_fail_errno(err, errno, BR_BLAME_USER, "cannot make the worker's directory %s", h->dir);
    free(h->dir);
    h->dir = NULL;
    return err->code;
  }
  h->shuffle_dir = br_asprintf("%s/shuffle", h->dir);
  char *owner = br_asprintf("%s/owner", h->dir);
  br_status status;
  BR_TRY_GOTO(br_owner_write(owner, &h->lock_fd, err));
  BR_TRY_GOTO(br_mkdir_p(h->shuffle_dir, err));
done:
  free(owner);
  if (status) br_home_remove(h);
  return status;
}

void br_home_remove(br_home *h) {
  if (h->dir) br_remove_tree(h->dir);
  if (h->lock_fd >= 0) close(h->lock_fd);
  free(h->dir);
  free(h->shuffle_dir);
  *h = (br_home){.lock_fd = -1};
}
