/* SPDX-License-Identifier: Apache-2.0
 * Staging directories: their lock, their removal, and what dead writers left of them.
 *
 * A writer holds flock(2) on <staging>/lock as long as it lives; whoever gets that lock knows that the writer is dead. A directory
 * that is being removed keeps its lock to the end, so two that clean up never meet. Threads: any. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sink/internal.h"

br_status br_sync_dir(const char *path, br_error *err) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_USER, "cannot open the directory %s", path);
  br_status status = BR_OK;
  /* EINVAL: a file system that has nothing to do for it */
  if (fsync(fd) != 0 && errno != EINVAL)
    status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot write the directory %s", path);
  close(fd);
  return status;
}

br_status br_staging_mkdir_p(const char *path, br_error *err) {
  char *p = br_strdup(path);
  br_status status = BR_OK;
  for (char *at = p + 1; status == BR_OK; at++) {
    if (*at != '/' && *at != 0) continue;
    bool last = *at == 0;
    *at = 0;
    if (mkdir(p, 0777) != 0 && errno != EEXIST && (last || access(p, F_OK) != 0))
      status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot make the directory %s", p);
    if (last) break;
    *at = '/';
  }
  free(p);
  return status;
}

void br_staging_remove(const char *staging) {
  uint64_t until = br_now_ms() + BR_SINK_REMOVE_MS;
  struct stat st;
  for (;;) {
    br_remove_tree(staging);
    if (lstat(staging, &st) != 0) return;
    if (br_now_ms() > until) break;
    struct timespec t = {.tv_nsec = BR_SINK_REMOVE_STEP_MS * 1000000L};
    nanosleep(&t, NULL);
  }
  br_log(BR_LOG_WARN, "%s can't be removed; the next COPY to that directory tries again", staging);
}

static bool is_staging(const char *name) { return strncmp(name, BR_SINK_PREFIX, strlen(BR_SINK_PREFIX)) == 0; }

static br_status list(const char *dir, bool staging, char ***names, size_t *n, br_error *err) {
  size_t cap = 0;
  *names = NULL;
  *n = 0;
  DIR *d = opendir(dir);
  if (d == NULL) {
    if (errno == ENOENT) return BR_OK;
    return br_fail_errno(err, errno, BR_BLAME_USER, "cannot read the directory %s", dir);
  }
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || is_staging(e->d_name) != staging) continue;
    br_grow((void **)names, &cap, *n, sizeof **names);
    (*names)[(*n)++] = br_strdup(e->d_name);
  }
  closedir(d);
  return BR_OK;
}

br_status br_staging_list(const char *target, char ***names, size_t *n, br_error *err) {
  return list(target, false, names, n, err);
}

br_status br_staging_lock(const char *staging, int *fd, br_error *err) {
  char *path = br_asprintf("%s/lock", staging);
  struct stat mine, now;
  br_status status = BR_OK;
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (*fd < 0) {
    if (errno != ENOENT) status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot open %s", path);
    goto done;
  }
  bool have = flock(*fd, LOCK_EX | LOCK_NB) == 0;
  if (!have && errno != EWOULDBLOCK) status = br_fail_errno(err, errno, BR_BLAME_USER, "cannot lock %s", path);
  /* Whoever had it before may have removed it. */
  if (!have || fstat(*fd, &mine) != 0 || lstat(path, &now) != 0 || mine.st_ino != now.st_ino ||
      mine.st_dev != now.st_dev) {
    close(*fd);
    *fd = -1;
  }
done:
  free(path);
  return status;
}

/* One of them, its lock held. */
static br_status recover_one(const char *target, const char *staging, br_sink_recovery *out, br_error *err) {
  br_journal j = {0};
  bool found = false;
  BR_TRY(br_journal_read(staging, &found, &j, err));
  if (found) {
    br_apply a = {.target = target, .staging = staging, .journal = &j, .recovering = true};
    br_status status = br_apply_run(&a, err);
    if (status == BR_OK) status = br_apply_mark_done(&a, err);
    br_journal_free(&j);
    if (status != BR_OK)
      return br_error_context(err, "a commit to %s that another process began can't be finished", target);
    br_log(BR_LOG_INFO, "finished the commit of %s", staging);
    out->finished++;
  } else {
    out->removed++;
  }
  br_staging_remove(staging);
  return BR_OK;
}

br_status br_sink_recover(const char *target, br_sink_recovery *out, br_error *err) {
  char **names = NULL;
  size_t n = 0;
  *out = (br_sink_recovery){0};
  br_status status = list(target, true, &names, &n, err);
  for (size_t i = 0; i < n && status == BR_OK; i++) {
    char *staging = br_asprintf("%s/%s", target, names[i]);
    struct stat st;
    int fd = -1;
    if (lstat(staging, &st) == 0 && S_ISDIR(st.st_mode)) {
      /* A journal makes renames with the rights of who reads it: nobody else's is believed (a target may be /tmp). */
      if (st.st_uid == geteuid()) status = br_staging_lock(staging, &fd, err);
      if (status == BR_OK && fd < 0) out->busy++;
    }
    if (fd >= 0) {
      status = recover_one(target, staging, out, err);
      close(fd);
    }
    free(staging);
  }
  for (size_t i = 0; i < n; i++) free(names[i]);
  free(names);
  return status;
}
