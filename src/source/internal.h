/* SPDX-License-Identifier: Apache-2.0
 * What the files of source/ share. */
#ifndef BRANT_SOURCE_INTERNAL_H
#define BRANT_SOURCE_INTERNAL_H

#include "base/map.h"
#include "base/mem.h"
#include "base/util.h"
#include "source/source.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file with its footer; shared by the cache and snapshots. */
typedef struct footer {
  br_file file;
  _Atomic int refs;
  br_arena *mem;
} footer;
footer *br_footer_ref(footer *f);
void br_footer_unref(footer *f);

struct br_source {
  br_smap *footers; /* path -> footer */
};

struct br_snapshot {
  footer **files;
  size_t n;
};

bool br_path_is_local(const char *path);
/* ['a', 'b'] */
void br_sql_path(const char *path, br_buf *out);                    /* 'path' as this one file */
void br_sql_paths(const char *const *items, size_t n, br_buf *out); /* a list of them */
/* Size and mtime of a local file, and that it ends like a Parquet file. */
BR_MUST_USE br_status br_local_stat(const char *path, uint64_t *size_bytes, uint64_t *mtime_ns, br_error *err);
BR_MUST_USE br_status br_local_check_magic(const char *path, uint64_t size_bytes, br_error *err);

#endif
