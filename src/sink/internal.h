/* SPDX-License-Identifier: Apache-2.0
 * What the files of sink/ share. */
#ifndef BRANT_SINK_INTERNAL_H
#define BRANT_SINK_INTERNAL_H

#include "base/buf.h"
#include "base/mem.h"
#include "base/util.h"
#include "sink/sink.h"

typedef struct br_move {
  char *from, *to; /* below the staging directory, below the target */
  uint64_t bytes;
} br_move;

/* What a commit does; the content of a journal. */
typedef struct br_journal {
  char **old; /* entries of the target that go into <staging>/old/ */
  size_t n_old, cap_old;
  br_move *moves;
  size_t n_moves, cap_moves;
} br_journal;

/* ---- journal.c */
void br_journal_add_old(br_journal *j, const char *name);
void br_journal_add_move(br_journal *j, const char *from, const char *to, uint64_t bytes);
void br_journal_free(br_journal *j);
/* The journal as text; parsing believes nothing: BR_CORRUPT for what is not whole, or names places outside. */
void br_journal_print(const br_journal *j, br_buf *out);
BR_MUST_USE br_status br_journal_parse(const char *text, size_t n, br_journal *out, br_error *err);
/* Written beside and renamed, with every fsync: there whole, or not there. */
BR_MUST_USE br_status br_journal_write(const br_journal *j, const char *staging, br_error *err);
/* *found false: there is none, or no whole one. */
BR_MUST_USE br_status br_journal_read(const char *staging, bool *found, br_journal *out, br_error *err);

/* ---- apply.c */
typedef struct br_apply {
  const char *target, *staging;
  const br_journal *journal;
  br_sink_step_fn step; /* may be NULL */
  void *step_arg;
  bool died;         /* a step said so: the process is to be taken for dead */
  bool recovering;   /* a file that is in neither place is logged: somebody removed it after the commit */
  size_t old_done;   /* so many were moved by this run, for the way back */
  size_t moves_done; /* so many moves are done */
} br_apply;
/* All renames, then fsync of each directory. May be repeated: what is done already is passed over. */
BR_MUST_USE br_status br_apply_run(br_apply *a, br_error *err);
/* The way back, last rename first. */
BR_MUST_USE br_status br_apply_undo(br_apply *a, br_error *err);
/* The staging directory is only garbage from here on. */
BR_MUST_USE br_status br_apply_mark_done(br_apply *a, br_error *err);

/* ---- staging.c */
BR_MUST_USE br_status br_sync_dir(const char *path, br_error *err);
/* With the rights that the user's umask leaves: what is made here is the user's, not ours. */
BR_MUST_USE br_status br_staging_mkdir_p(const char *path, br_error *err);
/* Until it is gone, or BR_SINK_REMOVE_MS have passed: then it is logged. */
void br_staging_remove(const char *staging);
/* Entries of a directory that are content. */
BR_MUST_USE br_status br_staging_list(const char *target, char ***names, size_t *n, br_error *err);
/* Lock <staging>/lock. *fd -1: somebody else has it, or the directory has gone meanwhile. */
BR_MUST_USE br_status br_staging_lock(const char *staging, int *fd, br_error *err);

#endif
