/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into workers and executors by test_data_faults.py: shuffle files (*.map, *.map.part) on a disk that is slow or broken. What
 * happens is read from the file SLOW_DISK_CONTROL names, at each call: "<ms> <errno of reads> <errno of writes> [part of the path]"; nothing
 * without it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int path_of(int fd, char path[4096]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, 4095);
  if (n <= 0) return 0;
  path[n] = 0;
  return strstr(path, ".map") != NULL && strstr(path, "/t") != NULL;
}

/* errno to fail with, or 0. */
static int suffer(int fd, int writes) {
  const char *control = getenv("SLOW_DISK_CONTROL");
  long ms = 0;
  int reads_error = 0, writes_error = 0;
  char path[4096], where[4096] = "";
  if (control == NULL || !path_of(fd, path)) return 0;
  FILE *f = fopen(control, "re");
  if (f == NULL) return 0;
  int n = fscanf(f, "%ld %d %d %4095s", &ms, &reads_error, &writes_error, where);
  fclose(f);
  if (n < 3 || strstr(path, where) == NULL) return 0;
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&t, NULL);
  return writes ? writes_error : reads_error;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread(int fd, void *p, size_t n, off_t at) {
  int error = suffer(fd, 0);
  if (error) {
    errno = error;
    return -1;
  }
  return REAL(pread)(fd, p, n, at);
}

ssize_t pread64(int fd, void *p, size_t n, off64_t at) {
  int error = suffer(fd, 0);
  if (error) {
    errno = error;
    return -1;
  }
  return REAL(pread64)(fd, p, n, at);
}

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t at) {
  int error = suffer(fd, 1);
  if (error) {
    errno = error;
    return -1;
  }
  return REAL(pwritev)(fd, iov, n, at);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off64_t at) {
  int error = suffer(fd, 1);
  if (error) {
    errno = error;
    return -1;
  }
  return REAL(pwritev64)(fd, iov, n, at);
}
