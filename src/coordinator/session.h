/* SPDX-License-Identifier: Apache-2.0
 * The inside of brant_session, and what is made of a statement with it (the inside of brant_query: handle.h). A session belongs to one thread at a
 * time; the loop thread touches only driver, events and what they guard. */
#ifndef BRANT_COORDINATOR_SESSION_H
#define BRANT_COORDINATOR_SESSION_H

#include <stdatomic.h>

#include "brant.h"
#include "coordinator/driver.h"
#include "coordinator/functions.h"
#include "coordinator/local_workers.h"
#include "engine/engine.h"
#include "source/source.h"

typedef struct br_texts {
  char **items;
  size_t count, capacity;
} br_texts;
void br_texts_add(br_texts *t, const char *text);
void br_texts_remove(br_texts *t, size_t i);
void br_texts_free(br_texts *t);

#define BR_SECRET_ENV "BRANT_SECRET" /* the cluster's secret, unless the options give one */

/* docs/settings.md; brant_set writes them. All numbers are 64 bits wide: settings.c has them in one table. */
#define BR_SHUFFLE_DIR_BYTES 2048
typedef struct br_settings {
  uint64_t partitions; /* of exchanges; 0: by size */
  uint64_t broadcast_bytes;
  uint64_t small_bytes; /* auto: inputs below run in this process */
  uint64_t eager_bytes; /* mode auto: inputs up to this run eager; 0: half of the workers' memory */
  uint64_t sort_one_task_rows;
  uint64_t split_bytes;        /* target size of a split; 0: by size */
  uint64_t timeout_ms;         /* 0: none */
  uint64_t dataset_bytes;      /* of tables that the caller gave, kept in memory; 0: an eighth of what there is */
  uint64_t bloom_bytes;        /* most bytes of a Bloom filter of a join's keys; 0: none */
  uint64_t bloom_keys;         /* fewer keys get none; tests, 0: whether it pays or not */
  uint64_t filter_bytes;       /* most bytes of keys that a run-time filter reads a task; 0: no filters */
  uint64_t inline_bytes;       /* most (compressed) bytes of files that every task reads for itself; 0: none */
  uint64_t two_step_aggregate; /* 0, 1 */
  uint64_t adaptive;           /* 0, 1: stages are planned again with true sizes */
  uint64_t sorted_scans; /* 0, 1: files that lie in the order of a column are cut by its values where that helps */
  uint64_t
      task_target_bytes; /* of a task that reads an exchange; 0: by size, or one a partition when partitions is given */
  uint64_t task_passes;  /* tests: tasks that can run in at least this many passes; 0: one */
  /* of the scheduler: taken when the first query needs workers */
  uint64_t task_attempts, task_backoff_first_ms, task_backoff_max_ms, no_worker_ms, worker_silent_ms, killer_executors,
      cancel_ms, probe_ms, straggler_percent, straggler_done_percent, straggler_min_ms, split_passes;
  char codec[8];
  uint64_t files_backend; /* 0, 1 */
  char shuffle_dir[BR_SHUFFLE_DIR_BYTES];
} br_settings;
br_sched_options br_settings_sched(const br_settings *s);

/* What the session knows of a brant_query. */
typedef struct br_open_query {
  struct br_open_query *prev, *next; /* of the session, under its lock */
  void (*cancel)(struct br_open_query *open);
} br_open_query;

struct brant_session {
  _Atomic int refs;         /* the handle, and each query */
  _Atomic bool interrupted; /* brant_interrupt: the statement being submitted should stop */
  pthread_mutex_t lock;     /* guards closed, queries, workers, restarts_* */
  bool closed;
  struct br_open_query *queries; /* all that live, linked */
  brant_options options;         /* strings are copies */
  br_settings settings;
  br_engine *engine;
  br_session *db;          /* the caller's connection: views, settings, planning */
  br_source *source;       /* footers */
  br_functions *functions; /* of users */
  br_events *events;
  br_loop *loop;
  pthread_t net;
  br_driver *driver; /* NULL until a query needs workers */
  br_local_workers *workers;
  br_timer *restart_timer; /* loop thread: looks for workers that died */
  uint32_t restart_looks;
  uint32_t restarts; /* since restarts_since_ms */
  uint64_t restarts_since_ms;
  bool workers_met; /* all that the first query waited for have joined */
  char *secret;
  char *temp_dir;
  uint64_t query_base, next_query;
  br_texts attach,
      views; /* statements that tasks need: extensions, attached files; views and macros of whole-query tasks */
  br_texts variable_names, variable_texts; /* SET VARIABLE, of constants; "": no text tells the value */
  br_texts schemas;                        /* that were made here */
  char *use;                               /* the last USE; NULL: none */
  bool used_here;                          /* what it names is this process's alone */
  br_texts detached;                       /* names that were attached once */
  br_texts writable;                       /* attached for writing: this process alone has them */
  br_texts prepared_names, prepared_texts; /* PREPARE */
  br_texts setting_names, setting_values;  /* DuckDB settings that the caller changed and that may change results */
  _Atomic uint64_t awaited;     /* the query that a call waits for: EXPLAIN ANALYZE, a table that is filled; 0: none */
  struct br_dataset **datasets; /* by name */
  size_t n_datasets, cap_datasets;
  struct br_store *store; /* of rows that the caller gave; NULL until there are some */
  char *store_dir;
  bool has_temp;         /* there were temporary tables or views once */
  bool has_local_tables; /* tables live in this process: refused plans must run here */
  bool in_transaction;   /* BEGIN: what it sees is seen by the caller's connection alone */
  size_t views_at_begin; /* of `views`, to be forgotten with it */
};

/* Where shuffle_backend = files puts a query's directory; NULL: another backend. */
static inline const char *br_session_shared_dir(const brant_session *s) {
  return s->settings.files_backend ? s->settings.shuffle_dir : NULL;
}

/* settings.c */
void br_settings_default(br_settings *s);
/* Executors compute in the caller's time zone, wherever they are. */
BR_MUST_USE br_status br_settings_share_zone(brant_session *s, br_error *err);
BR_MUST_USE br_status br_settings_reset(brant_session *s, const char *name, br_error *err);

/* statements.c: DDL, settings, ATTACH and DETACH: done here, and remembered for executors. *count: rows of a CREATE TABLE AS, else -1. */
BR_MUST_USE br_status br_statement_run(brant_session *s, br_statement kind, const char *sql, int64_t *count,
                                       br_error *err);

/* USE, SET schema or SET search_path was run. */
BR_MUST_USE br_status br_place_note(brant_session *s, const char *sql, br_error *err);
bool br_session_writes(const brant_session *s, const char *catalog); /* attached for writing: executors don't have it */
/* Does the statement change an attached file that is there for reading? */
BR_MUST_USE br_status br_session_check_writable(brant_session *s, const char *sql, br_error *err);
/* After a statement: does a transaction begin or end with it? done: it was run without an error. */
void br_transaction_note(brant_session *s, const char *sql, bool done);

/* prepared.c: parameters become constants. *out: free it. */
BR_MUST_USE br_status br_bind_params(brant_session *s, const char *sql, const brant_param *params, size_t n, char **out,
                                     br_error *err);
/* What an EXECUTE stands for; *out NULL: it is none, or DuckDB shall say what is wrong with it. */
BR_MUST_USE br_status br_prepared_text(brant_session *s, const char *sql, char **out, br_error *err);
/* variables.c: SET and RESET VARIABLE were run: the value is remembered, not how it was computed. */
BR_MUST_USE br_status br_variable_note(brant_session *s, const char *sql, br_error *err);
/* The value as a constant, free it; *out stays NULL where no text tells it. name is that of the variable, without quotes. */
BR_MUST_USE br_status br_variable_constant(brant_session *s, const char *name, char **out, br_error *err);
/* A value of a type that is spelled out. literal: a text in quotes, so that nothing in it is SQL; NULL: NULL. Free it. */
char *br_typed_text(const char *type, const char *literal);
void br_prepared_note(brant_session *s, const char *sql); /* PREPARE or DEALLOCATE was run */

/* temp_tables.c: CREATE TEMP TABLE … AS on the workers, and what is said of such tables later. done: nothing is left to be run. */
BR_MUST_USE br_status br_temp_statement(brant_session *s, const char *sql, bool *done, br_error *err);

/* node_text.c: repartition((SELECT …), n, key, …), into_partitions((SELECT …), n), into_batches((SELECT …), rows), broadcast((SELECT …)) in a statement
 * become what DuckDB can plan. *out is NULL when there are none; else free it. */
BR_MUST_USE br_status br_node_text(const char *sql, char **out, br_error *err);

/* summarize.c: SUMMARIZE as several over a part of the columns each; *out NULL: it is better left as it is, else free it. */
bool br_is_summarize(const char *sql);
BR_MUST_USE br_status br_summarize_spread(brant_session *s, const char *sql, size_t groups, char **out, br_error *err);

/* views.c: the session's variables, views and macros that a text needs which runs by itself; free *out. Why it can't run in an executor, and
 * *out is empty; NULL: it can. */
const char *br_views_needed(const brant_session *s, const char *sql, br_texts *out);
/* Statements that set the variables that the text may read; free *out. False, and *out is empty: there are more than `most` bytes of
 * them, or one's value has no text. */
bool br_variables_needed(const brant_session *s, const char *sql, size_t most, br_texts *out);

/* whole_query.c. In an arena of its own: br_stages_free. */
br_stages *br_whole_query(const char *sql, const br_planned *planned, const char *why);

/* How one statement will run. */
typedef struct br_prepared {
  bool local;            /* in this process */
  bool about_session;    /* it asks what the caller's connection has */
  bool top_n_in_join;    /* br_session_join_filters: off */
  const char *local_why; /* static or in `why_text` */
  char *why_text;
  char *sql;       /* rewritten text, for local runs */
  br_query *query; /* distributed: stages, tasks */
  char **names, **types;
  size_t n_columns;
} br_prepared;
/* Plan a SELECT. Starts workers when it will need them. force: explain wants stages even for what would run here. */
BR_MUST_USE br_status br_prepare(brant_session *s, const char *sql, bool force, br_prepared *out, br_error *err);
void br_prepared_free(br_prepared *p);
/* "~/x" as DuckDB has it: below its home_directory, else below HOME. *path is replaced. */
BR_MUST_USE br_status br_session_at_home(brant_session *s, char **path, br_error *err);
/* A connection with the session's settings, and the variables that the plan may read, to be closed by the caller. NULL: it reads what
 * only the session's own connection has (temporary, changed in a transaction, a long variable). aside.c */
BR_MUST_USE br_status br_session_aside(brant_session *s, const br_prepared *plan, br_session **out, br_error *err);
BR_MUST_USE br_status br_session_workers(brant_session *s, br_error *err); /* started and joined */
BR_MUST_USE br_status br_session_check_interrupt(brant_session *s, br_error *err);
void br_session_ref(brant_session *s);
void br_session_unref(brant_session *s); /* the last one ends thread and port */
void br_session_free(brant_session *s);  /* what is not network; for session_workers.c */

/* ---- rows of a result, wire types as stages store them */
typedef struct br_rows br_rows;
BR_MUST_USE br_status br_rows_open(brant_session *s, br_query *q, br_rows **out, br_error *err);
/* Of a result that stays on the workers, any number of times; any thread. schema: of its outputs. */
br_rows *br_rows_open_kept(brant_session *s, br_query *q, br_schema *schema);
br_schema *br_rows_schema(br_rows *r);
BR_MUST_USE br_status br_rows_next(br_rows *r, br_batch **out, br_error *err); /* *out NULL: end */
uint32_t br_rows_part(const br_rows *r); /* number of the result task that gave the last batch */
/* For readers that hand nothing on before the end: the batches of this part come again, from its first one. */
void br_rows_set_restart(br_rows *r, void (*restart)(void *arg, uint32_t part), void *arg);
void br_rows_cancel(br_rows *r); /* any thread */
void br_rows_free(br_rows *r);

/* ---- explain.c */
typedef struct br_explain_request {
  const char *select; /* in the statement's text */
  bool analyze, json;
  bool duckdb; /* EXPLAIN (DUCKDB): DuckDB's own plan */
} br_explain_request;
/* EXPLAIN [ANALYZE] [(option, …)] statement; options: ANALYZE, DUCKDB, FORMAT JSON, FORMAT TEXT. False: it is something else. */
bool br_explain_parse(const char *sql, br_explain_request *out);
/* The stages of a SELECT. Free *text. */
BR_MUST_USE br_status br_explain_text(brant_session *s, const char *sql, bool analyze, bool json, char **text,
                                      br_error *err);

void br_error_export(const br_error *from, brant_error *to);

#endif
