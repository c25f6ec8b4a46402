/* SPDX-License-Identifier: Apache-2.0
 * The list of files that a COPY wrote: as its tasks tell it, with the names that it gives them, as the caller gets it. */
#ifndef BRANT_COORDINATOR_SINK_LIST_H
#define BRANT_COORDINATOR_SINK_LIST_H

#include "engine/engine.h"

#define BR_SINK_LIST_COLUMNS 3 /* of a task's list: path, rows, bytes */
extern const char *const br_sink_list_types[BR_SINK_LIST_COLUMNS];
#define BR_SINK_LIST_BATCH_ROWS 1000u /* of what the caller gets */

typedef struct br_sink_file {
  char *staged; /* below the staging directory */
  char *path;   /* below the target */
  int64_t rows; /* negative: not known */
  uint64_t bytes;
} br_sink_file;
typedef struct br_sink_list {
  br_sink_file *files;
  size_t n, cap, given;
} br_sink_list;

typedef struct br_sink_names {
  const char *id, *extension;
  uint32_t tasks;
  bool counted;    /* a task may have several files */
  bool keep_empty; /* one file without rows if there is no other */
} br_sink_names;

void br_sink_list_add(br_sink_list *l, const char *staged, int64_t rows, uint64_t bytes);
void br_sink_list_cut(br_sink_list *l, size_t n);                                           /* only the first n stay */
BR_MUST_USE br_status br_sink_list_read(br_sink_list *l, const br_batch *b, br_error *err); /* a task's output */
/* Final names; files without rows are left out. Sorted by name. */
BR_MUST_USE br_status br_sink_list_place(br_sink_list *l, const br_sink_names *names, br_error *err);
uint64_t br_sink_list_rows(const br_sink_list *l);
/* For the caller: file, rows, bytes, and a MAP of partition values if there are any. */
BR_MUST_USE br_status br_sink_list_schema(br_session *s, bool partitioned, br_schema **out, br_error *err);
BR_MUST_USE br_status br_sink_list_next(br_sink_list *l, br_session *s, bool partitioned, br_batch **out,
                                        br_error *err);
void br_sink_list_free(br_sink_list *l);

#endif
