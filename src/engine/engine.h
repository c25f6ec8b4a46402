/* SPDX-License-Identifier: Apache-2.0
 *
 * The DuckDB bridge: the only folder that includes duckdb.h. Three users: the coordinator plans texts and runs small ones;
 * the executor runs a task's SQL over inputs into a sink; source/ asks for footers.
 *
 * Errors: a callback's own error (an input, a sink) is stored in the run first and wins; otherwise DuckDB's error type is
 * mapped, never its text. FATAL and INTERNAL are BR_BLAME_EXECUTOR: the process should be replaced.
 */
#ifndef BRANT_ENGINE_ENGINE_H
#define BRANT_ENGINE_ENGINE_H

#include "arrow/columns.h"
#include <stdatomic.h>

typedef struct br_engine br_engine;   /* one DuckDB instance; thread-safe */
typedef struct br_session br_session; /* one connection: settings, temporary objects; one statement at a time */

typedef struct br_engine_options {
  uint32_t threads;          /* 0: DuckDB's default */
  uint64_t memory_bytes;     /* 0: DuckDB's default */
  uint64_t temp_quota_bytes; /* 0: no limit but the disk */
  const char *temp_dir;      /* NULL: no spilling */
  const char *extension_dir; /* NULL: DuckDB's default */
} br_engine_options;
BR_MUST_USE br_status br_engine_open(const br_engine_options *o, br_engine **out, br_error *err);
void br_engine_close(br_engine *e);
const char *br_engine_version(void); /* "v1.5.5" */
BR_MUST_USE br_status br_session_open(br_engine *e, br_session **out, br_error *err);
void br_session_close(br_session *s);
/* Any thread: the running statement ends with BR_CANCELLED. */
void br_session_cancel(br_session *s);
/* Any thread: true from br_session_cancel until the statement has ended; for callbacks that wait. */
bool br_session_cancelled(const br_session *s);

/* ---- scripts */
/* Split a script at its top-level semicolons (quotes, dollar quotes, comments are skipped over); texts are trimmed, empty
 * ones dropped. Free each and the array. offsets[i]: byte offset of statement i in the script; free it. */
BR_MUST_USE br_status br_sql_split(const char *script, char ***texts, size_t **offsets, size_t *n, br_error *err);
/* Past the run of spaces, the comment or the one token at p (*p is not 0): quoted texts and names are one token. For those who
 * look for a place in a text, not for its meaning. */
const char *br_sql_skip(const char *p);
bool br_sql_is_blank(const char *p);    /* a space or a comment starts at p */
bool br_sql_is_select(const char *sql); /* by its words, if it is a statement at all; false: perhaps */
typedef enum br_statement {
  BR_STMT_SELECT,
  BR_STMT_SETTING,
  BR_STMT_DDL,
  BR_STMT_ATTACH,
  BR_STMT_COPY,
  BR_STMT_EXPLAIN,
  BR_STMT_OTHER
} br_statement;
BR_MUST_USE br_status br_session_parse(br_session *s, const char *sql, br_error *err); /* is its syntax right? */
/* Parses and binds: a syntax error or an unknown column is BR_INVALID with DuckDB's message (it has the place). */
BR_MUST_USE br_status br_session_classify(br_session *s, const char *sql, br_statement *out, br_error *err);
BR_MUST_USE br_status br_session_execute(br_session *s, const char *sql, br_error *err); /* no rows wanted */
/* How the columns of its result are called; it is bound, not run. br_names_free. */
BR_MUST_USE br_status br_session_names(br_session *s, const char *sql, char ***names, size_t *n, br_error *err);
void br_names_free(char **names, size_t n);

/* A small materialised result as text: cell(r, c) NULL for NULL. For footers, settings, tests: not for data. */
typedef struct br_table {
  size_t rows, columns;
  char **cells;
  char **names;
} br_table;
BR_MUST_USE br_status br_session_table(br_session *s, const char *sql, br_table *out, br_error *err);
const char *br_table_cell(const br_table *t, size_t row, size_t column);
void br_table_free(br_table *t);

/* ---- planning */
typedef struct br_planned {
  char *json;     /* json_serialize_plan(sql, optimize := true), settings of plan-json */
  char *text;     /* that it is the plan of; NULL without one */
  char **names;   /* of the result's columns, as DuckDB calls them */
  char **types;   /* SQL types of the result's columns */
  size_t columns; /* 0 if the text stands for several statements (PIVOT without IN): those are always refused */
  char *refused;  /* not NULL: DuckDB can't serialise this plan, and why (json is NULL then); not an error */
} br_planned;
/* Plans on this session, with its views and settings; the optimizer switches are set for the call and put back after it. */
BR_MUST_USE br_status br_session_plan(br_session *s, const char *sql, br_planned *out, br_error *err);
void br_planned_free(br_planned *p);
/* EXPLAIN (FORMAT json) of a plan's text, for estimated cardinalities: DuckDB optimises it once more. */
BR_MUST_USE br_status br_session_estimates(br_session *s, const br_planned *p, char **explain_json, br_error *err);

/* A scalar function of any arguments that exists for planning alone: running it fails with `message`. It counts as volatile, so that
 * a plan keeps each call where it was written. *bound grows by each call in a text that is bound; it must outlive the engine. */
BR_MUST_USE br_status br_session_plan_function(br_session *s, const char *name, const char *type, const char *message,
                                               _Atomic uint64_t *bound, br_error *err);

/* ---- tables that are not DuckDB's: the table function dataset('name'). Any thread. */
typedef struct br_engine_dataset {
  br_schema *schema; /* with the names of its columns, unique; a reference is taken */
  uint64_t rows;
  void *arg;
  /* A reader of all rows in order: next is called by one thread at a time; *out NULL: end. */
  br_status (*open)(void *arg, void **reader, br_error *err);
  br_status (*next)(void *reader, br_batch **out, br_error *err);
  void (*close)(void *reader);
  void (*free)(void *arg); /* once it was dropped and nobody reads it; also when put fails */
} br_engine_dataset;
BR_MUST_USE br_status br_engine_dataset_put(br_engine *e, const char *name, const br_engine_dataset *d,
                                            br_error *err); /* BR_INVALID: the name is taken */
void br_engine_dataset_drop(br_engine *e, const char *name);

/* ---- a local stream of batches (small queries, the caller's own thread) */
typedef struct br_local_stream br_local_stream;
BR_MUST_USE br_status br_session_stream(br_session *s, const char *sql, br_local_stream **out, br_error *err);
/* Whether streams opened from here on may filter a join's probe side by the keys of its build side (at first: yes). Off where
 * a top-n lies below a join: DuckDB 1.5.5 puts the filter below the top-n, which then keeps other rows (docs/plan-json.md). */
void br_session_join_filters(br_session *s, bool on);
br_schema *br_local_stream_schema(br_local_stream *st);                                         /* borrowed */
BR_MUST_USE br_status br_local_stream_next(br_local_stream *st, br_batch **out, br_error *err); /* *out NULL: end */
/* From here on every batch but the last has exactly so many rows, or so many bytes (about) if that is less. */
void br_local_stream_exact(br_local_stream *st, uint32_t rows, uint64_t bytes);
void br_local_stream_free(br_local_stream *st);
/* (br_session_stream_over, which reads input(k) too, is below at the inputs.) */

/* ---- types */
/* The Arrow schema (lossless: decimals by width, hugeint and others as extension types) of columns c0.. with these SQL
 * types; names NULL: c0, c1, .... */
BR_MUST_USE br_status br_session_schema(br_session *s, const char *const *types, const char *const *names, size_t n,
                                        br_schema **out, br_error *err);

/* The same of a result: where a column was given as an enum, or has some inside, its texts are noted as those (arrow/enums.h). given: NULL,
 * or the SQL types as the query has them. */
BR_MUST_USE br_status br_session_result_schema(br_session *s, const char *const *types, const char *const *given,
                                               const char *const *names, size_t n, br_schema **out, br_error *err);

/* ---- a task */
typedef struct br_run_input {
  uint32_t number;   /* input(number) in the SQL */
  br_schema *schema; /* borrowed; the columns of input(number) */
  uint64_t rows;     /* cardinality for the optimizer; not rows_known: an estimate, 0 is none */
  bool rows_known;
  bool ordered; /* one reader, batches in the order of next() */
  /* The next batch, from any DuckDB thread, several at once. May block (bounded by cancel). *out NULL: end. */
  br_status (*next)(void *arg, br_batch **out, br_error *err);
  void *arg;
  /* May be NULL. Any thread, several times: the run was cancelled or has failed elsewhere; a blocked next() must return soon
   * (with any error). It must not call into the session. */
  void (*cancel)(void *arg);
} br_run_input;

/* A local stream whose SQL may read input(k): how results are projected and printed. The inputs (copied; what they point to is
 * borrowed) must outlive the stream. */
BR_MUST_USE br_status br_session_stream_over(br_session *s, const char *sql, const br_run_input *inputs,
                                             size_t n_inputs, br_local_stream **out, br_error *err);

typedef struct br_run_sink {
  void *arg;
  /* Once, before rows, also when there will be none: the columns of the SQL, trailing partition number or sort key
   * included. The names are c0, c1, ... (COPY's binding gives types only). While the statement is bound: not for the session. */
  br_status (*open)(void *arg, const br_schema *columns, br_error *err);
  /* A DuckDB thread starts / writes rows / ends. write may be called with different states on several threads at once. */
  br_status (*thread_begin)(void *arg, void **state, br_error *err);
  br_status (*write)(void *arg, void *state, const br_vec *columns, uint32_t n_columns, uint32_t rows, br_error *err);
  br_status (*thread_end)(void *arg, void *state, br_error *err); /* the state is gone afterwards, also on failure */
  void (*abandon)(void *arg, void *state);                        /* instead of thread_end when the statement failed */
} br_run_sink;

/* cpu_us is the process's CPU time while the run lasted; peak memory and spill are of the instance, and known with profile. */
typedef struct br_run_stats {
  uint64_t wall_us, cpu_us, rows_out;
  uint64_t peak_memory_bytes, spill_bytes;
  uint64_t grouped_rows,
      groups; /* with count_groups: what the topmost grouping read and made; 0: the statement has none */
  char *profile_json;
} br_run_stats;
typedef struct br_run {
  const char *sql;
  const br_run_input *inputs;
  size_t n_inputs;
  const br_run_sink *sink;
  bool ordered;            /* sink gets rows in order, one thread */
  bool profile;            /* fill stats.profile_json (free it) */
  bool count_groups;       /* fill stats.grouped_rows and groups */
  const char *scratch_dir; /* a directory for COPY's target names: nothing is ever written below it */
  bool keep_scratch;  /* what COPY makes in it (an empty directory) stays, for other runs with the same, also at once */
  br_run_stats stats; /* out */
} br_run;
/* Blocks until the statement ended. The attempt may commit only if this returns BR_OK. */
BR_MUST_USE br_status br_session_run(br_session *s, br_run *run, br_error *err);
/* 0..1, or negative when unknown. Any thread. */
double br_session_progress(br_session *s);

#endif
