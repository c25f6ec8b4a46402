/* SPDX-License-Identifier: Apache-2.0
 * The text of a COPY … TO statement, taken apart: what it writes, where, with which options. docs/sinks.md has the rules. */
#ifndef BRANT_COORDINATOR_COPY_TEXT_H
#define BRANT_COORDINATOR_COPY_TEXT_H

#include "base/status.h"
#include "sink/sink.h"

typedef struct br_copy_text {
  char *select; /* what gives the rows */
  char *target;
  bool directory;      /* several files below target */
  bool partitioned;    /* PARTITION_BY */
  bool split;          /* several files a task: FILE_SIZE_BYTES, ROW_GROUPS_PER_FILE */
  uint64_t file_bytes; /* FILE_SIZE_BYTES of Parquet whose row groups nobody chose; 0: not that */
  bool write_empty;    /* a result without rows makes a file */
  br_sink_mode mode;
  char *format;    /* parquet, csv, json, or whatever else was asked for; by the target's name if it was not */
  char *options;   /* what DuckDB's writer shall know: SQL without FORMAT, "" for none */
  char *extension; /* of the files in a directory, with its dot */
  char quote, escape;
  bool header;
} br_copy_text;

/* *is false: not such a statement, or in a syntax that only DuckDB's parser takes apart (its options without parentheses, a
 * target that is not a plain text). DuckDB has accepted sql before. */
BR_MUST_USE br_status br_copy_parse(const char *sql, bool *is, br_copy_text *out, br_error *err);
void br_copy_text_free(br_copy_text *c);

#endif
