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
#include "base/util.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NO_OWNER_SECONDS 600
#define OWNER_BYTES 256

static ssize_t read_small(const char *path, char *out, size_t n) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  ssize_t got = read(fd, out, n - 1);
  close(fd);
  out[got > 0 ? got : 0] = 0;
  return got;
}

/* Field 22 of /proc/<pid>/stat, counted after the name, which may hold anything. 0: no such process, or one that has ended and
 * is waited for by nobody. */
static uint64_t start_time(long pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  if (read_small(path, text, sizeof text) <= 0) return 0;
  char *p = strrchr(text, ')');
  if (p && p[1] && (p[2] == 'Z' || p[2] == 'X')) return 0;
  for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
  return p ? strtoull(p + 1, NULL, 10) : 0;
}

static void boot_id(char out[64]) {
  if (read_small("/proc/sys/kernel/random/boot_id", out, 64) <= 0) strcpy(out, "unknown");
  out[strcspn(out, "\n")] = 0;
}

/* True: the process that the text names runs in this boot, as far as we can see. */
static bool owner_lives(const char *text) {
  char boot[64], now[64];
  long pid = 0;
  unsigned long long start = 0;
  if (sscanf(text, "pid %ld start %llu boot %63s", &pid, &start, boot) != 3 || pid <= 0) return false;
  boot_id(now);
  return strcmp(boot, now) == 0 && start_time(pid) == start;
}

static bool dead(const char *dir, int *lock) {
  char *owner = br_asprintf("%s/owner", dir), text[OWNER_BYTES];
  struct stat st;
  bool yes = false;
  *lock = open(owner, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (*lock < 0) {
    yes = errno == ENOENT && lstat(dir, &st) == 0 && time(NULL) - st.st_mtime > NO_OWNER_SECONDS;
  } else if (flock(*lock, LOCK_EX | LOCK_NB) == 0) {
    yes = read_small(owner, text, sizeof text) >= 0 && !owner_lives(text);
  }
  free(owner);
  return yes;
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

/* Written and locked under another name first, so that nobody sees an owner file that isn't locked. */
static br_status write_owner(br_home *h, br_error *err) {
  char *temporary = br_asprintf("%s/owner.new", h->dir), *owner = br_asprintf("%s/owner", h->dir);
  char text[OWNER_BYTES], boot[64];
  br_status status = BR_OK;
  boot_id(boot);
  int n =
      snprintf(text, sizeof text, "pid %ld start %" PRIu64 " boot %s\n", (long)getpid(), start_time(getpid()), boot);
  h->lock_fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (h->lock_fd < 0 || flock(h->lock_fd, LOCK_EX | LOCK_NB) != 0) {
    status = br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make the owner file of %s", h->dir);
    goto done;
  }
  BR_TRY_GOTO(br_write_all(h->lock_fd, text, (size_t)n, err));
  if (rename(temporary, owner) != 0)
    status = br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make the owner file of %s", h->dir);
done:
  free(temporary);
  free(owner);
  return status;
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
  br_status status;
  BR_TRY_GOTO(write_owner(h, err));
  BR_TRY_GOTO(br_mkdir_p(h->shuffle_dir, err));
done:
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
