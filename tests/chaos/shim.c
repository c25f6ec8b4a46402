/* SPDX-License-Identifier: Apache-2.0
 * LD_PRELOAD for tests: strikes at the nth call of one kind whose path contains a text.
 *
 *   CHAOS_CALL   rename | fsync | write (write, pwrite and their vectors; the path is that of the descriptor)
 *   CHAOS_MATCH  text that the path (rename: one of both) contains
 *   CHAOS_NTH    which of these calls of this process, from 1; 0: each one
 *   CHAOS_DO     kill (SIGKILL of itself, before the call) | after (the call is made, then SIGKILL) | stop (SIGSTOP) | eio | enospc |
 *                delay:MICROSECONDS
 *   CHAOS_NAME   the program this is for (its /proc/self/comm); others are left alone
 *   CHAOS_FIRED  a file to make when it strikes
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int for_this_program(void) {
  static int known = -1;
  if (known < 0) {
    const char *name = getenv("CHAOS_NAME");
    char comm[32] = "";
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      if (read(fd, comm, sizeof comm - 1) < 0) comm[0] = 0;
      close(fd);
    }
    comm[strcspn(comm, "\n")] = 0;
    known = name == NULL || strncmp(name, comm, 15) == 0;
  }
  return known;
}

static int due(const char *call, const char *path, const char *other) {
  const char *want = getenv("CHAOS_CALL"), *match = getenv("CHAOS_MATCH"), *nth = getenv("CHAOS_NTH");
  if (want == NULL || match == NULL || strcmp(want, call) != 0 || !for_this_program()) return 0;
  if (strstr(path, match) == NULL && (other == NULL || strstr(other, match) == NULL)) return 0;
  long n = atomic_fetch_add(&calls, 1) + 1, at = nth == NULL ? 1 : atol(nth);
  return at == 0 || n == at;
}

static void fired(void) {
  const char *file = getenv("CHAOS_FIRED");
  int fd = file == NULL ? -1 : open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
}

/* 0: make the call; 1: make it and die; -1: fail, errno is set. */
static int strike(void) {
  const char *what = getenv("CHAOS_DO");
  fired();
  if (what == NULL) return 0;
  if (strcmp(what, "after") == 0) return 1;
  if (strcmp(what, "kill") == 0) raise(SIGKILL);
  if (strcmp(what, "stop") == 0) raise(SIGSTOP);
  if (strncmp(what, "delay:", 6) == 0) usleep((useconds_t)atol(what + 6));
  errno = strcmp(what, "enospc") == 0 ? ENOSPC : EIO;
  return strcmp(what, "eio") == 0 || strcmp(what, "enospc") == 0 ? -1 : 0;
}

static int due_fd(const char *call, int fd) {
  char link[64], path[4096];
  if (getenv("CHAOS_CALL") == NULL || strcmp(getenv("CHAOS_CALL"), call) != 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  return due(call, path, NULL);
}

#define REAL(name)               \
  static __typeof__(&name) real; \
  if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define STRUCK(is_due, call)          \
  do {                                \
    int s_ = (is_due) ? strike() : 0; \
    if (s_ < 0) return -1;            \
    __typeof__(call) r_ = call;       \
    if (s_ > 0) raise(SIGKILL);       \
    return r_;                        \
  } while (0)

int rename(const char *from, const char *to) {
  REAL(rename);
  STRUCK(due("rename", from, to), real(from, to));
}

int fsync(int fd) {
  REAL(fsync);
  STRUCK(due_fd("fsync", fd), real(fd));
}

ssize_t write(int fd, const void *data, size_t n) {
  REAL(write);
  STRUCK(due_fd("write", fd), real(fd, data, n));
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
  REAL(pwrite);
  STRUCK(due_fd("write", fd), real(fd, data, n, at));
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
  REAL(pwrite64);
  STRUCK(due_fd("write", fd), real(fd, data, n, at));
}

ssize_t writev(int fd, const struct iovec *v, int n) {
  REAL(writev);
  STRUCK(due_fd("write", fd), real(fd, v, n));
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) {
  REAL(pwritev);
  STRUCK(due_fd("write", fd), real(fd, v, n, at));
}

ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) {
  REAL(pwritev64);
  STRUCK(due_fd("write", fd), real(fd, v, n, at));
}
