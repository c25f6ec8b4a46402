/* SPDX-License-Identifier: Apache-2.0
 *
 * COPY … TO files, by DuckDB's own writers: one statement, or all files of one writer below a directory that it was given open. Both
 * may read input(k). Used by executors for a task of a sink, and by the coordinator for what runs in its process.
 */
#ifndef BRANT_ENGINE_FILES_H
#define BRANT_ENGINE_FILES_H

#include "engine/engine.h"

typedef struct br_written {
  char *path;   /* below the directory */
  int64_t rows; /* negative: not known */
  uint64_t bytes;
} br_written;
void br_written_free(br_written *files, size_t n);

/* One COPY statement as it stands. */
typedef struct br_copy {
  const char *sql;
  const br_run_input *inputs;
  size_t n_inputs;
  bool ordered;      /* rows in order; it may not use all threads */
  uint64_t rows;     /* out */
  br_written *files; /* out, of RETURN_STATS: paths as DuckDB says them; br_written_free it */
  size_t n_files;
  br_run_stats stats; /* out: wall and CPU time */
} br_copy;
BR_MUST_USE br_status br_session_copy(br_session *s, br_copy *c, br_error *err);

#define BR_WRITE_EXTENSION \
  "brant" /* of files as they are written: no reader's pattern finds them before their commit */
typedef enum br_write_shape {
  BR_WRITE_ONE,        /* one file: f-0.brant */
  BR_WRITE_SPLIT,      /* FILE_SIZE_BYTES: f-0.brant, f-1.brant, … in the order of rows */
  BR_WRITE_PARTITIONED /* PARTITION_BY: key=value/…/f-0.brant, … */
} br_write_shape;

typedef struct br_write {
  const char *sql; /* a SELECT */
  const br_run_input *inputs;
  size_t n_inputs;
  int dir;             /* an open directory: also when it was removed meanwhile nothing is written elsewhere */
  const char *name;    /* the directory's name, for messages */
  const char *format;  /* parquet, csv, json */
  const char *options; /* more options of COPY as SQL, "" for none: no names of files, nothing about existing ones */
  br_write_shape shape;
  bool ordered;
  char quote, escape; /* csv; 0: none */
  bool header;        /* csv */
  br_written *files;  /* out: every one is on disk (fsync); br_written_free it */
  size_t n_files;
  uint64_t rows;      /* out: of all files */
  br_run_stats stats; /* out */
} br_write;
BR_MUST_USE br_status br_session_write(br_session *s, br_write *w, br_error *err);

#endif
