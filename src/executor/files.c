/* SPDX-License-Identifier: Apache-2.0
 * A task of a sink: its rows go into files of the user below the query's staging directory, in a directory of the attempt's own name,
 * and its map output is the list of these files, a row each. The coordinator moves the files of the attempts whose lists it has read
 * (src/sink/); everything else goes with the staging directory.
 *
 * The staging directory is never made here: an attempt that wakes up after the end of its query finds none, and fails.
 * Order: write (once a pass), manifest, close. The task's thread. Bounds: memory is O(files of the task). */
#include "executor/executor.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const Brant__Pb__Sink *sink_of(const br_etask *t) { return t->pb->task->sink; }

static br_status failed(br_error *err, int e, const char *what, const char *path) {
  br_fail_errno(err, e, BR_BLAME_TASK, "%s %s, where a COPY writes its files: every worker must see that directory",
                what, path);
  err->retryable = e == ENOENT; /* another worker may see it */
  return (br_status)err->code;
}

/* mkdirat below a directory that is open: never a whole path. */
static br_status make_below(int parent, const char *path, const char *name, int *out, br_error *err) {
  if (mkdirat(parent, name, 0777) != 0) return failed(err, errno, "cannot make a directory in", path);
  *out = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  return *out < 0 ? failed(err, errno, "cannot open a directory in", path) : BR_OK;
}

static br_status open_attempt(br_etask *t, br_error *err) {
  const char *staging = sink_of(t)->staging_dir;
  char id[64];
  if (t->files.path != NULL) return BR_OK;
  int parent = open(staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0) return failed(err, errno, "cannot open", staging);
  br_attempt_format(&t->id, id);
  t->files.path = br_asprintf("%s/%s", staging, id);
  br_status status = make_below(parent, staging, id, &t->files.dir, err);
  close(parent);
  return status;
}

static void remember(br_etask *t, const char *prefix, const br_write *w) {
  char id[64];
  br_attempt_format(&t->id, id);
  for (size_t i = 0; i < w->n_files; i++) {
    char *path = br_asprintf("%s/%s%s", id, prefix, w->files[i].path);
    br_buf *b = &t->files.rows;
    br_buf_str(b, t->files.n++ > 0 ? ", (" : "(");
    br_buf_sql_literal(b, path, strlen(path));
    if (w->files[i].rows < 0)
      br_buf_str(b, ", NULL");
    else
      br_buf_printf(b, ", %lld", (long long)w->files[i].rows);
    br_buf_printf(b, ", %llu)", (unsigned long long)w->files[i].bytes);
    free(path);
  }
}

br_status br_efiles_write(br_etask *t, const char *sql, const br_run_input *inputs, size_t n_inputs,
                          br_run_stats *stats, br_error *err) {
  const Brant__Pb__Sink *k = sink_of(t);
  char prefix[32] = "";
  int dir = -1;
  if (t->files.path == NULL) t->files.dir = -1;
  BR_TRY(open_attempt(t, err));
  if (t->pb->task->n_passes > 0) { /* each pass counts its files from 0 */
    snprintf(prefix, sizeof prefix, "pass-%u", t->files.writes++);
    BR_TRY(make_below(t->files.dir, t->files.path, prefix, &dir, err));
    strcat(prefix, "/");
  }
  br_write w = {.sql = sql,
                .inputs = inputs,
                .n_inputs = n_inputs,
                .dir = dir >= 0 ? dir : t->files.dir,
                .name = t->files.path,
                .format = k->format,
                .options = k->options,
                .shape = k->partitioned ? BR_WRITE_PARTITIONED
                         : k->split     ? BR_WRITE_SPLIT
                                        : BR_WRITE_ONE,
                .ordered = t->pb->task->output->ordered,
                .quote = (char)k->quote,
                .escape = (char)k->escape,
                .header = k->header};
  br_status status = br_session_write(t->session, &w, err);
  *stats = w.stats;
  if (status == BR_OK)
    remember(t, prefix, &w);
  else if (err->code == BR_NO_SPACE)
    br_error_context(err, "no space is left in %s", t->files.path);
  br_written_free(w.files, w.n_files);
  if (dir >= 0) close(dir);
  return status;
}

char *br_efiles_manifest(br_etask *t) {
  br_buf b = {0};
  br_buf_str(&b, "SELECT c0::VARCHAR AS c0, c1::BIGINT AS c1, c2::BIGINT AS c2 FROM (VALUES ");
  br_buf_str(&b, t->files.n > 0 ? br_buf_cstr(&t->files.rows) : "('', 0, 0)");
  br_buf_printf(&b, ") AS files(c0, c1, c2)%s", t->files.n > 0 ? "" : " WHERE false");
  return br_buf_take(&b);
}

void br_efiles_close(br_etask *t, bool stays) {
  if (t->files.path == NULL) return;
  if (t->files.dir >= 0) close(t->files.dir);
  if (!stays) br_remove_tree(t->files.path);
  free(t->files.path);
  br_buf_free(&t->files.rows);
  t->files = (br_efiles){.dir = -1};
}
