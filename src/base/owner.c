/* SPDX-License-Identifier: Apache-2.0
 * Owner files: see owner.h. A process is named by pid, start time and boot, so that a number used again is another process. Since two
 * containers on one machine have one boot but their own pids, the lock counts too: it's one for the whole kernel. */
#include "base/owner.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

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

void br_owner_text(char out[BR_OWNER_BYTES]) {
  struct utsname u;
  char boot[64];
  boot_id(boot);
  if (uname(&u) != 0) strcpy(u.nodename, "unknown");
  snprintf(out, BR_OWNER_BYTES, "pid %ld start %" PRIu64 " boot %s host %.200s\n", (long)getpid(), start_time(getpid()),
           boot, u.nodename);
}

br_status br_owner_write(const char *path, int *fd, br_error *err) {
  char *temporary = br_asprintf("%s.new", path), text[BR_OWNER_BYTES];
  br_status status = BR_OK;
  br_owner_text(text);
  *fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (*fd < 0 || (flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) {
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot make %s", path);
    goto done;
  }
  BR_TRY_GOTO(br_write_all(*fd, text, strlen(text), err));
  if (rename(temporary, path) != 0) status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot make %s", path);
done:
  if (status != BR_OK && *fd >= 0) {
    close(*fd);
    unlink(temporary);
    *fd = -1;
  }
  free(temporary);
  return status;
}

br_owner_state br_owner_look(const char *path, int *fd, int64_t *mtime_s) {
  char text[BR_OWNER_BYTES], boot[64], now[64];
  unsigned long long start = 0;
  struct stat st;
  long pid = 0;
  *mtime_s = 0;
  *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (*fd < 0) return BR_OWNER_UNSURE;
  if (fstat(*fd, &st) == 0) *mtime_s = (int64_t)st.st_mtime;
  bool locked = flock(*fd, LOCK_EX | LOCK_NB) == 0;
  bool taken = !locked && errno == EWOULDBLOCK;
  ssize_t got = taken ? 0 : pread(*fd, text, sizeof text - 1, 0);
  text[got > 0 ? got : 0] = 0;
  bool known = got > 0 && sscanf(text, "pid %ld start %llu boot %63s", &pid, &start, boot) == 3 && pid > 0;
  if (!locked) {
    close(*fd);
    *fd = -1;
  }
  if (taken) return BR_OWNER_LIVES;
  boot_id(now);
  if (!known || strcmp(boot, now) != 0) return BR_OWNER_UNSURE;
  if (start_time(pid) == start) return BR_OWNER_LIVES;
  return locked ? BR_OWNER_DEAD : BR_OWNER_UNSURE;
}
