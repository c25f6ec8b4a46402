/* SPDX-License-Identifier: Apache-2.0
 *
 * Map outputs in the memory of other processes of this host. One process says which descriptor of its own the memfd is, the other
 * opens it as /proc/<pid>/fd/<fd>: no socket has to carry descriptors, and the kernel checks that both belong to the same user.
 *
 * Whoever reads may live in another container, where that path is something else or nothing, and a descriptor may be closed and
 * its number used again meanwhile. So the link has to be a map output's before it is opened (opening a pipe would wait, a device
 * do something), what is open the same inode, and br_mapfile_open checks the rest: the caller compares whose output it is.
 * Threads: any. Bounds: no descriptor stays open; a mapping as large as the output, of address space, and BR_PEER_MEMORY_MOST of them: the
 * kernel gives a process 65,530, which allocators need as well.
 */
#include "shuffle/peer_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAILURES_MOST \
  16u /* one after the other: it never works here (another namespace, /proc is closed), so nobody asks again */

static atomic_uint mapped, failures; /* of this process */

#define MEMFD_LINK "/memfd:" BR_MAPFILE_MEMFD_NAME

br_status br_peer_memory_place(const br_mapfile *f, uint32_t map, br_wire_memory *out, br_error *err) {
  struct stat st;
  if (fstat(br_mapfile_fd(f), &st) != 0)
    return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot look at a map output");
  *out = (br_wire_memory){.mark_map = BR_WIRE_END_MARK,
                          .mark_partition = BR_WIRE_MEMORY_MARK,
                          .map = map,
                          .pid = (uint32_t)getpid(),
                          .fd = (uint32_t)br_mapfile_fd(f),
                          .device = st.st_dev,
                          .inode = st.st_ino,
                          .file_bytes = br_mapfile_bytes(f)};
  return BR_OK;
}

static br_status open_link(const br_wire_memory *m, int *fd, br_error *err) {
  char path[64], link[sizeof MEMFD_LINK];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%" PRIu32 "/fd/%" PRIu32, m->pid, m->fd);
  ssize_t n = readlink(path, link, sizeof link - 1);
  if (n < 0) return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot look at %s", path);
  link[n] = 0; /* cut off behind the name: " (deleted)" follows */
  if (strcmp(link, MEMFD_LINK) != 0) return br_fail(err, BR_NOT_FOUND, BR_BLAME_WORKER, "%s is no map output", path);
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (*fd < 0) return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot open %s", path);
  if (fstat(*fd, &st) == 0 && st.st_dev == m->device && st.st_ino == m->inode) return BR_OK;
  close(*fd);
  return br_fail(err, BR_NOT_FOUND, BR_BLAME_WORKER, "%s is another map output", path);
}

bool br_peer_memory_works(void) { return atomic_load(&failures) < FAILURES_MOST; }

static void unmapped(void *unused) {
  (void)unused;
  atomic_fetch_sub(&mapped, 1);
}

static br_status map_it(const br_wire_memory *m, br_mapfile **out, br_error *err) {
  int fd = -1;
  BR_TRY(open_link(m, &fd, err));
  BR_TRY(br_mapfile_open(fd, true, m->file_bytes, out, err));
  br_mapfile_close_fd(*out);
  br_mapfile_on_free(*out, unmapped, NULL);
  return BR_OK;
}

br_status br_peer_memory_open(const br_wire_memory *m, br_mapfile **out, br_error *err) {
  if (atomic_fetch_add(&mapped, 1) >= BR_PEER_MEMORY_MOST) {
    unmapped(NULL);
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_WORKER, "this process has mapped %u outputs of others already",
                   BR_PEER_MEMORY_MOST);
  }
  br_status status = map_it(m, out, err);
  if (status != BR_OK) unmapped(NULL);
  if (status == BR_OK)
    atomic_store(&failures, 0);
  else
    atomic_fetch_add(&failures, 1);
  return status;
}
