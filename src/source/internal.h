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
typedef struct column_ranges {
  struct column_ranges *next;
  const char *column;
  br_range_kind kind;
  br_range *groups; /* [file.n_groups] */
} column_ranges;
/* What statistics say of a column in a row group, as DuckDB prints them; NULL: nothing. */
typedef struct group_bounds {
  char *least, *greatest;
  bool all_null;
} group_bounds;
typedef struct column_bounds {
  struct column_bounds *next;
  char *column;
  char *stored;          /* its physical type, BR_STORED_TEXT, or NULL: there is no such column */
  group_bounds groups[]; /* [file.n_groups] */
} column_bounds;
#define BR_STORED_TEXT "UTF8"
typedef struct footer {
  br_file file;
  column_ranges *ranges;
  column_bounds *bounds; /* of columns that filters were about (prune.c); the thread of the cache alone looks at them */
  size_t bounds_bytes;
  bool
      names_meet; /* two columns have one name (but for case): DuckDB calls one of them otherwise, so a name tells nothing */
  _Atomic int refs;
  br_arena *mem;
} footer;
footer *br_footer_ref(footer *f);
void br_footer_unref(footer *f);

#define BR_UNIT_SEPARATOR '\x1f'
#define BR_RECORD_SEPARATOR '\x1e'

/* ---- text_tree.c: the scans of a text, a row each: type (BASE_TABLE, TABLE_FUNCTION), place, alias, table, schema and catalog, function,
 * its files with BR_FILE_SEPARATOR between them. A text that DuckDB's parser refuses has none. */
#define BR_FILE_SEPARATOR '\x1e'
BR_MUST_USE br_status br_text_tree_scans(br_session *session, const char *sql, br_table *out, br_error *err);

/* ---- ranges.c: f and ranges of each file of m (p: a column, g: a group, t: its physical type, lo and hi: its statistics, z: how many NULLs).
 * Where the text is a whole number (no decimal, which a cast would round) or a date: "name US i|d:group:least:greatest:1|0 RS …",
 * 1: no NULLs, a column's groups one after the other. */
#define BR_RANGES_SQL                                                                                                 \
  "SELECT f, string_agg(p || chr(31) || k || ':' || g || ':' || lo || ':' || hi || ':' || z, chr(30) ORDER BY p, k, " \
  "g) AS "                                                                                                            \
  "ranges FROM (SELECT f, p, g, z, 'i' AS k, TRY_CAST(lo AS BIGINT) AS lo, TRY_CAST(hi AS BIGINT) AS hi FROM m "      \
  "WHERE t IN ('INT32', 'INT64') AND p = c AND NOT contains(lo || hi, '.') UNION ALL SELECT f, p, g, z, 'd', "        \
  "TRY(TRY_CAST(lo AS DATE) - DATE "                                                                                  \
  "'1970-01-01'), TRY(TRY_CAST(hi AS DATE) - DATE '1970-01-01') FROM m WHERE t = 'INT32' AND p = c) "                 \
  "WHERE lo IS NOT NULL AND hi IS NOT NULL GROUP BY f"
/* [row group] of a column; NULL: nothing is known. */
const br_range *br_ranges_of(const footer *f, const char *column, br_range_kind kind);
/* text NULL: there are none. */
void br_ranges_parse(footer *f, const char *text);

struct br_source {
  br_smap *footers;    /* path -> footer */
  size_t bounds_bytes; /* of all of them */
};

struct br_snapshot {
  footer **files;
  size_t n;
};

/* ---- bounds.c: what a condition (br_snapshot_prune) asks of a column */
typedef struct br_test br_test;
typedef struct br_pruned_column {
  const char *name;
  char kind; /* i, d, t, n, s: integer, date, timestamp, decimal, text */
  int scale;
  br_test *test;
} br_pruned_column;
/* Those that are understood; in mem. */
br_pruned_column *br_prune_parse(br_arena *mem, const char *condition, size_t *n);
/* False: no value of the row group passes. */
bool br_bounds_possible(const br_pruned_column *c, const char *stored, const group_bounds *g);

/* ---- prune.c */
void br_footer_bounds_free(footer *f);

/* ---- text_call.c: a call of a CSV or JSON reader, as it was written */
typedef enum br_text_kind {
  BR_TEXT_CSV,
  BR_TEXT_JSON,
  BR_TEXT_NDJSON,
  BR_TEXT_OBJECTS,
  BR_TEXT_NDJSON_OBJECTS
} br_text_kind;
typedef struct br_text_argument {
  const char *name, *value; /* name in lower case; value as SQL */
} br_text_argument;
typedef struct br_text_call {
  br_arena *mem;
  br_text_kind kind;
  const char *function;
  const char **patterns;
  size_t n_patterns;
  br_text_argument *arguments; /* the named ones */
  size_t n_arguments;
} br_text_call;
bool br_text_is_reader(const char *function);
/* False: not a call of constants that is understood here. The call is freed with its mem in any case. */
bool br_text_call_parse(const char *text, br_text_call *out);
const char *br_text_argument_of(const br_text_call *c, const char *name);

/* ---- text_prune.c: files that filters on their folders' names rule out */
typedef struct br_text_folders {
  const char *const *paths; /* as they were written */
  bool asked_for; /* hive_partitioning = true: else DuckDB takes folders for columns where all paths are alike */
  size_t n_files;
  char *const *names, *const *types; /* of the call's columns */
  size_t n_columns;
} br_text_folders;
/* Are the files' folders columns of the scan, and is it certain? */
bool br_text_named_folders(const br_text_folders *f);
/* dropped[file] becomes true. Only of such files. tests: as of br_text_split. */
BR_MUST_USE br_status br_text_prune(br_session *session, const br_text_folders *f, const br_text_test *tests,
                                    size_t n_tests, bool *dropped, br_error *err);

/* ---- text_cuts.c: where a file may be cut, about every `target` bytes */
typedef struct br_text_dialect {
  bool csv;                      /* else a record a line */
  char delimiter, quote, escape; /* 0: none */
} br_text_dialect;
/* *cuts: starts of records, ascending, without 0 and the end; free it. */
BR_MUST_USE br_status br_text_cuts(const char *path, uint64_t size, uint64_t target, const br_text_dialect *d,
                                   uint64_t **cuts, size_t *n, br_error *err);

bool br_path_is_local(const char *path);
const char *br_reported_name(const char *path); /* the name under which DuckDB reports a path */
/* ['a', 'b'] */
void br_sql_path(const char *path, br_buf *out);                    /* 'path' as this one file */
void br_sql_paths(const char *const *items, size_t n, br_buf *out); /* a list of them */
/* Size and mtime of a local file, and that it ends like a Parquet file. */
BR_MUST_USE br_status br_local_stat(const char *path, uint64_t *size_bytes, uint64_t *mtime_ns, br_error *err);
BR_MUST_USE br_status br_local_check_magic(const char *path, uint64_t size_bytes, br_error *err);

#endif
