/* SPDX-License-Identifier: Apache-2.0
 * The files backend's inside: what output.c asks when an output goes to a shared directory, and what reader.c asks when a
 * reader's sources are files of one. Below the directory of a query:
 *
 *   s<stage>/t<task>.a<attempt>.map        a committed output (mapfile.h), complete as soon as the name is there
 *   s<stage>/t<task>.a<attempt>.map.part   one that is being written
 *
 * An output is written once, front to back, and appears whole under its name (a put); what is read of it is its size, its tail and
 * ranges of it (ranged gets). Nothing else is asked of the place, so that an object store can take it. */
#ifndef BRANT_SHUFFLE_FILES_H
#define BRANT_SHUFFLE_FILES_H

#include "shuffle/mapfile.h"

#define BR_FILES_PART_SUFFIX ".part"

char *br_files_path(const char *dir, const br_attempt_id *id); /* of the committed output; free it */
/* Create the file that becomes `path`; its directory is made, the query's is not: that one is the coordinator's. */
BR_MUST_USE br_status br_files_create(const char *dir, const char *part, uint32_t stage, int *fd, br_error *err);
/* Everything is written: close fd (it's closed in any case), then `part` gets its name. */
BR_MUST_USE br_status br_files_publish(int fd, const char *part, const char *path, br_error *err);

/* ---- of a br_reader, whose lock, failure and cancel it uses */
typedef struct br_files br_files;
br_files *br_files_new(const br_reader_options *o);
void br_files_free(br_files *f); /* NULL is fine */
struct br_reader;
BR_MUST_USE br_status br_files_next(struct br_reader *r, br_files *f, br_batch **out, br_error *err);

#endif
