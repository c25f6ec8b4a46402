/* SPDX-License-Identifier: Apache-2.0
 * Positioned writes for shuffle files, with errors that name the directory when the disk is full. */
#ifndef BRANT_SHUFFLE_FILEIO_H
#define BRANT_SHUFFLE_FILEIO_H

#include "base/status.h"
#include <stddef.h>
#include <sys/uio.h>

/* Write all pieces at `offset`; iov is used up (changed). Any count. path: for messages, NULL for memory. */
BR_MUST_USE br_status br_shuffle_pwritev(int fd, struct iovec *iov, size_t n, uint64_t offset, const char *path,
                                         br_error *err);
BR_MUST_USE br_status br_shuffle_pwrite(int fd, const void *p, size_t n, uint64_t offset, const char *path,
                                        br_error *err);
/* Make the directory of `path` if needed, then create the file, empty, for reading and writing. */
BR_MUST_USE br_status br_shuffle_create(const char *path, int *fd, br_error *err);

#endif
