/* SPDX-License-Identifier: Apache-2.0
 *
 * Positioned writes that continue after short ones, and creation of shuffle files. No state; any thread.
 */
#include "shuffle/fileio.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static br_status write_failed(int error, const char *path, uint64_t offset, br_error *err) {
  if (path == NULL) return br_fail_errno(err, error, BR_BLAME_TASK, "cannot write shuffle data to memory");
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    const char *slash = strrchr(path, '/');
    br_fail(err, BR_NO_SPACE, BR_BLAME_TASK, "no space left for shuffle data in %.*s (this file got to %llu bytes): %s",
            slash != NULL ? (int)(slash - path) : 1, slash != NULL ? path : ".", (unsigned long long)offset,
            strerror(error));
    err->sys_errno = error;
    return BR_NO_SPACE;
  }
  return br_fail_errno(err, error, BR_BLAME_TASK, "cannot write %s", path);
}

br_status br_shuffle_pwritev(int fd, struct iovec *iov, size_t n, uint64_t offset, const char *path, br_error *err) {
  while (n > 0) {
    if (iov->iov_len == 0) {
      iov++, n--;
      continue;
    }
    ssize_t got = pwritev(fd, iov, n < IOV_MAX ? (int)n : IOV_MAX, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return write_failed(got < 0 ? errno : ENOSPC, path, offset, err);
    offset += (uint64_t)got;
    for (size_t left = (size_t)got; left > 0;) {
      size_t step = left < iov->iov_len ? left : iov->iov_len;
      iov->iov_base = (char *)iov->iov_base + step;
      iov->iov_len -= step;
      left -= step;
      if (iov->iov_len == 0) iov++, n--;
    }
  }
  return BR_OK;
}

br_status br_shuffle_pwrite(int fd, const void *p, size_t n, uint64_t offset, const char *path, br_error *err) {
  struct iovec iov = {.iov_base = (void *)p, .iov_len = n};
  return br_shuffle_pwritev(fd, &iov, 1, offset, path, err);
}

br_status br_shuffle_create(const char *path, int *fd, br_error *err) {
  const char *slash = strrchr(path, '/');
  if (slash != NULL && slash != path) {
    char *dir = br_strndup(path, (size_t)(slash - path));
    br_status status = br_mkdir_p(dir, err);
    free(dir);
    BR_TRY(status);
  }
  *fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (*fd < 0) return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot create the shuffle file %s", path);
  return BR_OK;
}
