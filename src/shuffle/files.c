/* SPDX-License-Identifier: Apache-2.0
 *
 * Map outputs as files below a directory that all nodes see: names, creation, commit, and the backend's table. The writer is
 * the same as always (writer.c, output.c): it is on disk from its first byte, and its file gets its name at the commit.
 *
 * Durability: no fsync. The file is closed before it's renamed, and close's error counts: a network file system has sent the data
 * to its server by then, so another node that is told of the output finds it whole. What a crash of the server or of the
 * machine takes along is found missing or damaged when it's read, and made again. Any thread.
 */
#include "shuffle/files.h"

#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *br_files_path(const char *dir, const br_attempt_id *id) {
  return br_asprintf("%s/s%" PRIu32 "/t%" PRIu32 ".a%u.map", dir, id->stage, id->task, (unsigned)id->attempt);
}

static br_status full(const char *dir, int error, br_error *err) {
  br_fail(err, BR_NO_SPACE, BR_BLAME_TASK, "no space left for shuffle data in %s: %s", dir, strerror(error));
  err->sys_errno = error;
  return BR_NO_SPACE;
}

static br_status cannot_create(const char *dir, const char *part, int error, br_error *err) {
  if (error == ENOSPC || error == EDQUOT) return full(dir, error, err);
  if (error == ENOENT) {
    br_fail(err, BR_IO, BR_BLAME_TASK,
            "the shuffle directory %s is not there: has this node mounted it (shuffle_dir), or has its query ended?",
            dir);
    err->sys_errno = error;
    return BR_IO;
  }
  return br_fail_errno(err, error, BR_BLAME_TASK, "cannot create the shuffle file %s", part);
}

br_status br_files_create(const char *dir, const char *part, uint32_t stage, int *fd, br_error *err) {
  char *stage_dir = br_asprintf("%s/s%" PRIu32, dir, stage);
  int rc = mkdir(stage_dir, 0700);
  int error = rc != 0 && errno != EEXIST ? errno : 0;
  free(stage_dir);
  *fd = -1;
  if (error != 0) return cannot_create(dir, part, error, err);
  *fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* an attempt runs once: there can't be one */
  return *fd >= 0 ? BR_OK : cannot_create(dir, part, errno, err);
}

br_status br_files_publish(int fd, const char *part, const char *path, br_error *err) {
  if (close(fd) != 0 && errno != EINTR) {
    int error = errno;
    if (error == ENOSPC || error == EDQUOT) return full(path, error, err);
    return br_fail_errno(err, error, BR_BLAME_TASK, "cannot write %s", path);
  }
  if (rename(part, path) != 0)
    return br_fail_errno(err, errno, BR_BLAME_TASK, "cannot commit the shuffle file %s", path);
  return BR_OK;
}

void br_files_abandon(const char *shared_dir, const br_attempt_id *id) {
  char *path = br_files_path(shared_dir, id), *part = br_asprintf("%s" BR_FILES_PART_SUFFIX, path);
  unlink(part);
  unlink(path);
  free(part);
  free(path);
}

static br_status files_writer_open(const br_writer_options *o, br_writer **out, br_error *err) {
  if (o->shared_dir == NULL)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a map output in a shared directory without the directory");
  return br_writer_open(o, out, err);
}

static br_status files_reader_open(const br_reader_options *o, br_reader **out, br_error *err) {
  if (o->shared_dir == NULL || o->n_local > 0 || o->n_remote > 0)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a reader of shared files with other sources");
  /* One file a map: with fewer the answer would be silently short. */
  if (o->map_first > o->map_last || o->n_file != o->map_last - o->map_first)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a reader of maps %u to %u with %zu shared files", o->map_first,
                   o->map_last, o->n_file);
  for (size_t i = 0; i < o->n_file; i++)
    if (o->file[i].map < o->map_first || o->file[i].map >= o->map_last)
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a reader of maps %u to %u with a file of map %u",
                     o->map_first, o->map_last, o->file[i].map);
  return br_reader_open(o, out, err);
}

/* Nothing in the store is of this backend: the coordinator removes the files (br_files_dir_*). */
static void files_drop(br_store *s, uint64_t query, const uint32_t *stage_or_all) {
  (void)s;
  (void)query;
  (void)stage_or_all;
}

const br_shuffle_backend br_files_backend = {.name = "files",
                                             .outlives_worker = true,
                                             .ranges = true,
                                             .writer_open = files_writer_open,
                                             .reader_open = files_reader_open,
                                             .drop = files_drop};
