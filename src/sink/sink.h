/* SPDX-License-Identifier: Apache-2.0
 *
 * How files appear in a directory by one commit. Pure file system: no DuckDB, no network.
 *
 *   open    what an earlier writer left behind is finished or removed; <target>/.brant-<id>/ is made and locked
 *   …       attempts write files below br_sink_staging(), each in a directory of its own name
 *   add     the files of winning attempts, with their final names
 *   commit  journal, fsync, renames, fsync, the staging directory goes; or nothing at all
 *   free    without a commit: everything that was staged goes
 *
 * A process that dies before the journal is complete has written nothing; afterwards whoever opens the target next (br_sink_open,
 * br_sink_recover) makes the remaining renames. The formats are in README.md. Threads: one at a time for a sink; several sinks, also of
 * several processes, may have the same target. Bounds: memory is O(files).
 */
#ifndef BRANT_SINK_SINK_H
#define BRANT_SINK_SINK_H

#include <stddef.h>

#include "base/status.h"

#define BR_SINK_PREFIX ".brant-"    /* of staging directories; what starts so is no content of a target */
#define BR_SINK_JOURNAL "journal"   /* complete: the commit will be finished */
#define BR_SINK_DONE "journal.done" /* finished, only the staging directory is left */
#define BR_SINK_REMOVE_MS 5000u     /* removing a directory that a dying attempt still writes into is tried so long */
#define BR_SINK_REMOVE_STEP_MS 10u  /* between two tries of it */
#define BR_SINK_TURN_MS 30000u  /* a commit that looks at what is in the target waits so long for another one's end */
#define BR_SINK_TURN_STEP_MS 5u /* between two looks */
#define BR_SINK_JOURNAL_BYTES (1u << 30) /* a larger one is taken for damaged */

typedef enum br_sink_mode {
  BR_SINK_NEW,       /* the directory must be empty or missing, at the start and at the commit */
  BR_SINK_APPEND,    /* old files stay */
  BR_SINK_OVERWRITE, /* old files go at the commit */
  BR_SINK_REPLACE    /* target is an existing directory; files in it are replaced by name: a COPY to one file */
} br_sink_mode;

/* Tests only: called before each step that changes something that others see. False: as if the process had died there. Also with
 * BR_SINK_WAITS, when another one commits to the same directory. */
#define BR_SINK_WAITS "wait for another commit"
typedef bool (*br_sink_step_fn)(void *arg, const char *step);

typedef struct br_sink br_sink;
/* id: unique among all writers of the target, and it ends up in a file name. */
BR_MUST_USE br_status br_sink_open(const char *target, br_sink_mode mode, const char *id, br_sink **out, br_error *err);
const char *br_sink_staging(const br_sink *s); /* absolute path */
const char *br_sink_target(const br_sink *s);  /* absolute path */
/* from: below the staging directory; to: below the target. Both relative. bytes: its size, checked at the commit. */
void br_sink_add(br_sink *s, const char *from, const char *to, uint64_t bytes);
/* BR_OK: all files are there, and will be after a power cut. Else: none, unless the message says that it will be finished later. */
BR_MUST_USE br_status br_sink_commit(br_sink *s, br_error *err);
void br_sink_set_step(br_sink *s, br_sink_step_fn fn, void *arg);
void br_sink_free(br_sink *s);

typedef struct br_sink_recovery {
  size_t finished; /* commits that were rolled forward */
  size_t removed;  /* staging directories without a complete journal */
  size_t busy;     /* their writers live, or are of another user */
} br_sink_recovery;
/* What dead writers left in a directory. A missing directory is fine. */
BR_MUST_USE br_status br_sink_recover(const char *target, br_sink_recovery *out, br_error *err);

/* The last component of a COPY's output file: part-00003-<id>[-00001]<extension>; width: digits of the task number. */
char *br_sink_file_name(unsigned width, uint32_t task, const char *id, const uint32_t *counter, const char *extension);

#endif
