/* SPDX-License-Identifier: Apache-2.0
 *
 * What a query reads: files and their footers, cut into splits, printed as SQL. Footers come from DuckDB's own
 * parquet_metadata, one query for many files, and are cached by path + size + mtime.
 *
 *   snapshot (the files of a query, pinned) → splits (what one task reads) → SQL text of a split
 *
 * One user at a time for a br_source and its sessions; a snapshot is read-only and may be used on any thread.
 */
#ifndef BRANT_SOURCE_SOURCE_H
#define BRANT_SOURCE_SOURCE_H

#include "base/buf.h"
#include "engine/engine.h"

typedef struct br_source br_source; /* the cache of footers; at most BR_SOURCE_CACHE_FILES */
#define BR_SOURCE_CACHE_FILES 65536
br_source *br_source_new(void);
void br_source_free(br_source *s); /* snapshots stay valid */

/* ---- files */
/* Paths and globs to paths, in order. A path that does not exist is BR_NOT_FOUND, so is a glob without a match. Free each and the
 * array. */
BR_MUST_USE br_status br_source_expand(br_session *session, const char *const *patterns, size_t n, char ***paths,
                                       size_t *n_paths, br_error *err);

typedef struct br_row_group {
  uint64_t first_row, rows, bytes;
} br_row_group; /* bytes: compressed, of all columns */
typedef struct br_file_column {
  const char *name;
  uint64_t bytes;
} br_file_column;
typedef struct br_file {
  const char *path;
  bool local; /* size and mtime are from stat; else from the remote listing */
  uint64_t size_bytes, mtime_ns;
  uint64_t rows;
  size_t n_groups, n_columns;
  const br_row_group *groups;
  const br_file_column *columns; /* top-level columns, nested ones summed up */
} br_file;

/* The files of a query as they are now. Missing: BR_NOT_FOUND; not a whole Parquet file: BR_CORRUPT; both name the file. */
typedef struct br_snapshot br_snapshot;
BR_MUST_USE br_status br_source_snapshot(br_session *session, br_source *s, const char *const *paths, size_t n,
                                         br_snapshot **out, br_error *err);
void br_snapshot_free(br_snapshot *s);
/* Of files that have no footers: paths, sizes, times. */
BR_MUST_USE br_status br_snapshot_of_files(const char *const *paths, size_t n, br_snapshot **out, br_error *err);
size_t br_snapshot_files(const br_snapshot *s);
const br_file *br_snapshot_file(const br_snapshot *s, size_t i);
uint64_t br_snapshot_rows(const br_snapshot *s);
/* Compressed bytes of these top-level columns (names are compared without case); columns NULL: of all. */
uint64_t br_snapshot_bytes(const br_snapshot *s, const char *const *columns, size_t n_columns);
/* Fails when a local file's size or mtime is another one now (BR_INVALID, blame user), or it is gone (BR_NOT_FOUND). */
BR_MUST_USE br_status br_snapshot_check(const br_snapshot *s, br_error *err);

/* ---- ranges of a column, from footers */
/* As whole numbers: BIGINT for integers, DATE in days since 1970. */
typedef enum br_range_kind { BR_RANGE_INTEGER, BR_RANGE_DATE } br_range_kind;
typedef struct br_range {
  bool known, no_nulls; /* no_nulls: of a row group alone */
  int64_t least, greatest;
} br_range;
/* ---- splits of files */
typedef struct br_piece {
  uint32_t file;                /* in the snapshot */
  uint64_t first_row, last_row; /* file_row_number, both included */
  uint64_t rows, bytes;         /* bytes: compressed, of the columns asked for */
  bool whole_file;
} br_piece;
typedef struct br_split {
  br_piece *pieces;
  size_t n;
  uint64_t rows, bytes;
} br_split;
typedef struct br_split_options {
  const char *const *columns;
  size_t n_columns;                /* what will be read; NULL: all */
  uint64_t target_bytes;           /* of a split; 0: no wish */
  uint32_t min_splits, max_splits; /* 0: no wish; max wins over target, row groups win over min */
  const bool *const *left_out;     /* [file][row group] by br_snapshot_prune, or NULL */
  uint64_t
      cut_rows; /* not 0: where row groups are fewer than min_splits they are cut too, into parts of about so many rows at least (each part
                 * reads its group whole): for what costs more than reading */
} br_split_options;
/* In the order of files and rows. Files without rows are in no split: *n is 0 if there are none with rows. */
BR_MUST_USE br_status br_snapshot_splits(const br_snapshot *s, const br_split_options *o, br_split **out, size_t *n,
                                         br_error *err);
void br_splits_free(br_split *splits, size_t n);
/* Between which values all rows of the split lie, NULLs left aside, as far as footers say. */
br_range br_split_range(const br_snapshot *s, const br_split *split, const char *column, br_range_kind kind);
/* ---- sorted.c: in how many row groups the rows lie in the order of the column, without NULLs; 0: they don't, or it is not known. Of
 * columns of whole numbers and dates, which the caller knows. at [points + 1]: about which value lies behind k / points of the rows, the
 * last one is the greatest. */
size_t br_snapshot_sorted(const br_snapshot *s, const char *column, br_range_kind kind, int64_t *at, size_t points);
typedef struct br_value_range {
  bool from_known, to_known; /* false: no bound */
  int64_t from, to;          /* from <= value < to */
} br_value_range;
typedef struct br_sorted_scan {
  const char *column;
  br_range_kind kind;
  const char *options; /* text of further named arguments, or NULL */
  bool filtered;       /* there will be other conditions on it: one more changes DuckDB's estimate no further */
} br_sorted_scan;
/* What stands in FROM for the rows of such files with these values. About how many: those of the row groups that hold some. */
uint64_t br_snapshot_range_sql(const br_snapshot *s, const br_sorted_scan *scan, const br_value_range *want,
                               br_buf *out);

/* ---- what filters rule out */
/* Row groups none of whose rows can meet the condition: a test of the bounds of columns (br_scan.prune in plan/decompile/decompile.h). *out:
 * [file][row group], true: left out; *bytes: compressed bytes of those that are left. What can't be found out is left in. Bounds are kept
 * with the cached footers. */
void br_snapshot_prune(br_session *session, br_source *source, const br_snapshot *s, const char *condition, bool ***out,
                       uint64_t *bytes);
void br_prune_free(const br_snapshot *s, bool **left_out);
/* Append what stands in FROM: read_parquet([...], options) for whole files, or a parenthesised SELECT with file_row_number
 * ranges, or their UNION ALL BY NAME. options: text of further named arguments, or NULL; if it asks for file_row_number that
 * column stays visible, otherwise it does not show. */
void br_split_sql(const br_snapshot *s, const br_split *split, const char *options, br_buf *out);

/* ---- splits of tables (of an attached DuckDB file, read-only for the query) */
typedef struct br_table_split {
  uint64_t first_row, last_row, rows;
  bool whole_table;
} br_table_split; /* rowid, both included */
/* rows is the share of the true count: deleted rows leave gaps. A table with a column of its own called rowid is one split. */
BR_MUST_USE br_status br_table_splits(br_session *session, const char *catalog, const char *schema, const char *table,
                                      uint64_t target_rows, uint32_t min_splits, uint32_t max_splits,
                                      br_table_split **out, size_t *n, br_error *err);
void br_table_split_sql(const char *catalog, const char *schema, const char *table, const br_table_split *split,
                        br_buf *out);

/* ---- WARC files */
/* Bytes of the files behind names and globs. */
BR_MUST_USE br_status br_warc_bytes(br_session *session, const char *const *patterns, size_t n, uint64_t *bytes,
                                    br_error *err);
/* What stands in FROM for each task: read_warc([...], options) of whole files, or of a range of one, together about target_bytes
 * (0: everything in one). Cut where records start. options: ", on_error := 'skip'" or "". Free each and the array. */
BR_MUST_USE br_status br_warc_splits(br_session *session, const char *const *patterns, size_t n, const char *options,
                                     uint64_t target_bytes, char ***out, size_t *n_out, br_snapshot **pinned,
                                     br_error *err);

/* ---- CSV and JSON files */
/* The text with each CSV and JSON scan that is a call of constants as text_scan('read_csv(…)', rows := estimate), which DuckDB can
 * write a plan of; NULL: there is none. As br_source_rewrite, also for CREATE … AS. Free *out. */
BR_MUST_USE br_status br_source_text_scans(br_session *session, const char *sql, char **out, br_error *err);
/* Bytes and about how many rows such a call reads. */
typedef struct br_text_size {
  bool found; /* false: its files are not there, or it is no such call */
  uint64_t bytes, rows;
  bool one_part; /* one file that can't be cut: a compressed one, an array */
} br_text_size;
BR_MUST_USE br_status br_text_estimate(br_session *session, const char *call, br_text_size *out, br_error *err);
typedef struct br_text_splits {
  char **sql; /* what stands in FROM for each task */
  size_t n;
  const char *whole_why; /* not NULL: there is one, of the call itself, and why (static) */
  br_snapshot *files;    /* pinned: sizes and times, no rows; the caller takes it */
} br_text_splits;
typedef struct br_text_test {
  const char *condition;    /* of t.c0, t.c1, … */
  const char *const *names; /* [n_names] the call's column that c<i> is; NULL: none that the condition reads */
  size_t n_names;
} br_text_test;
/* Parts of a call, each of about target_bytes (0: everything in one) but whole where a file can't be cut. Dialects and types are
 * those that DuckDB finds for the whole call, and are written into each part. tests: what only the rows that count pass; files that fail one
 * by the names of their folders are in no part, and n may be 0. */
BR_MUST_USE br_status br_text_split(br_session *session, const char *call, uint64_t target_bytes,
                                    const br_text_test *tests, size_t n_tests, br_text_splits *out, br_error *err);
void br_text_splits_free(br_text_splits *s); /* not files */

/* ---- true cardinalities in a text */
/* The text with `explicit_cardinality := <rows by the footers>` in every Parquet scan that has none; so DuckDB orders joins by
 * true sizes. For SELECT and for CREATE [OR REPLACE] [TEMP] VIEW or TABLE … AS SELECT; anything else, and scans whose files cannot
 * be told from the text, come back unchanged. *bytes: size of the files of all scans in the text. Free *out. */
BR_MUST_USE br_status br_source_rewrite(br_session *session, br_source *s, const char *sql, char **out, uint64_t *bytes,
                                        br_error *err);

#endif
