/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of engine/ share. Nobody else includes this: duckdb.h stops here.
 */
#ifndef BRANT_ENGINE_INTERNAL_H
#define BRANT_ENGINE_INTERNAL_H

#include "base/map.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/engine.h"
#include <duckdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- gate.c: settings that DuckDB keeps once an instance, although each of our uses wants its own values */
typedef enum br_mode {
  BR_MODE_DEFAULT,        /* the user's own values */
  BR_MODE_UNORDERED,      /* preserve_insertion_order off: parallel runs into a sink */
  BR_MODE_PLANNING,       /* the optimizers of plan-json off, EXPLAIN shows the optimised plan */
  BR_MODE_NO_JOIN_FILTERS /* br_session_join_filters */
} br_mode;
typedef struct br_gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  br_mode mode;
  unsigned users;
  char *saved[3]; /* the user's values while mode is not DEFAULT; see gate.c */
} br_gate;
void br_gate_init(br_gate *g);
void br_gate_destroy(br_gate *g);
BR_MUST_USE br_status br_gate_enter(br_session *s, br_mode mode, br_error *err);
void br_gate_leave(br_session *s);

struct br_engine {
  duckdb_database db;
  duckdb_connection helper; /* conversions from Arrow, the gate's SETs; never runs a user's text */
  duckdb_arrow_options arrow;
  br_gate gate;
  pthread_mutex_t mutex; /* guards sessions */
  br_map *sessions;      /* connection id + 1 -> br_session */
  br_smap *datasets;     /* name -> br_named, input.c; under mutex */
  struct br_file_ranges *ranges;
};

typedef struct br_run_ctx br_run_ctx;
struct br_session {
  br_engine *engine;
  duckdb_connection con;
  uint64_t id;
  pthread_mutex_t mutex; /* guards busy and run against cancel and progress */
  pthread_cond_t idle;
  bool busy;
  pthread_t user; /* while busy */
  br_run_ctx *run;
  atomic_bool cancelled;
  bool no_join_filters; /* of streams; the session's user alone */
  struct br_held *held; /* functions_bloom.c: filters of the statement under way; under mutex */
};

/* ---- engine.c */
void br_session_begin(br_session *s);
void br_session_end(br_session *s);
void br_held_free(struct br_held *held); /* functions_bloom.c */
/* The session whose connection this is, or NULL. Takes over the context. */
br_session *br_session_of(br_engine *e, duckdb_client_context context);

/* ---- error.c */
br_status br_duckdb_fail(br_error *err, duckdb_error_type type, const char *message);
/* By what a message of DuckDB's begins with ("IO Error: "); DUCKDB_ERROR_EXECUTOR: it is none that matters here. */
duckdb_error_type br_duckdb_type_of(const char *message);
/* DuckDB reports an interrupt that nobody asked for: the failure behind it is lost. */
br_status br_interrupted_fail(br_error *err);
/* For duckdb_error_data: frees *e. Returns BR_OK when there is none. */
BR_MUST_USE br_status br_duckdb_check(duckdb_error_data e, const char *what, br_error *err);

/* ---- statement.c: all without begin/end */
BR_MUST_USE br_status br_stmt_prepare(br_session *s, const char *sql, duckdb_prepared_statement *out, br_error *err);
BR_MUST_USE br_status br_stmt_execute(br_session *s, duckdb_prepared_statement ps, bool streaming, duckdb_result *out,
                                      br_error *err);
/* The two halves of it: planned once more and ready to run; run to its result (streaming: to its first rows). */
BR_MUST_USE br_status br_stmt_start(br_session *s, duckdb_prepared_statement ps, bool streaming,
                                    duckdb_pending_result *out, br_error *err);
BR_MUST_USE br_status br_stmt_finish(br_session *s, duckdb_pending_result *pending, duckdb_result *out, br_error *err);
BR_MUST_USE br_status br_stmt_query(br_session *s, const char *sql, duckdb_result *out, br_error *err);
/* The same for a text that plans but reads no rows: DuckDB plans it once, not again when it is executed. */
BR_MUST_USE br_status br_stmt_query_once(br_session *s, const char *sql, duckdb_result *out, br_error *err);
/* How many statements DuckDB makes of the text (PIVOT without IN: several); runs all but the last if asked. */
BR_MUST_USE br_status br_stmt_count(br_session *s, const char *sql, size_t *n, br_error *err);
BR_MUST_USE br_status br_stmt_prepare_last(br_session *s, const char *sql, duckdb_prepared_statement *out,
                                           br_error *err);

/* ---- types.c */
/* SQL text of a type; enums as VARCHAR if asked. */
void br_type_sql(duckdb_logical_type t, bool enum_as_varchar, br_buf *out);
bool br_type_has_enum(duckdb_logical_type t);
/* given: as the query has them, before enums became VARCHAR; NULL: the same. */
BR_MUST_USE br_status br_types_schema(br_engine *e, duckdb_logical_type *types, const duckdb_logical_type *given,
                                      const char *const *names, size_t n, br_schema **out, br_error *err);
/* An expression of that type (type_null.c). */
void br_type_null(br_buf *out, const char *type);
/* The types that DuckDB makes of a schema; destroy each and free the array. */
BR_MUST_USE br_status br_schema_types(br_engine *e, const br_schema *schema, duckdb_logical_type **out, br_error *err);
void br_types_free(duckdb_logical_type *types, size_t n);
/* A struct schema over some children of another one, borrowed. The result's release frees only what this made. */
void br_schema_project(const struct ArrowSchema *from, const uint64_t *ids, size_t n, struct ArrowSchema *out);

/* ---- unions.c */
bool br_has_union(const struct ArrowSchema *s);
/* *a is a private copy; what it points to becomes the arena's where it has to change. */
void br_rebase(const struct ArrowSchema *s, struct ArrowArray *a, br_arena *mem);
void br_restore_null_unions(duckdb_vector v, idx_t rows);

/* ---- vectors.c: DuckDB's vectors as br_vec */
typedef struct br_vec_plan br_vec_plan; /* read-only; shared by all threads of a run */
BR_MUST_USE br_status br_vec_plan_new(const duckdb_logical_type *types, size_t n, const br_schema *schema,
                                      br_vec_plan **out, br_error *err);
void br_vec_plan_free(br_vec_plan *p);
typedef struct br_vec_reader br_vec_reader; /* one thread's; borrows the plan */
br_vec_reader *br_vec_reader_new(const br_vec_plan *p);
void br_vec_reader_free(br_vec_reader *r);
/* Valid until the next call or the end of the chunk, whichever comes first. */
const br_vec *br_vec_read(br_vec_reader *r, duckdb_data_chunk chunk, uint64_t rows);

/* ---- run.c */
typedef struct br_input_state {
  const br_run_input *in;
  duckdb_logical_type *types;
  size_t n_columns;
  char **names; /* unique */
  bool has_union;
  _Atomic uint64_t rows_fed;
  atomic_bool ended, opened;
} br_input_state;

typedef struct br_sink_state br_sink_state;
struct br_run_ctx {
  br_session *session;
  br_run *run;
  pthread_mutex_t mutex; /* guards error, states, types */
  br_error error;        /* the first failure of a callback */
  atomic_bool failed;
  br_input_state *inputs;
  duckdb_logical_type *types; /* of the sink's columns, from COPY's binding */
  size_t n_types;
  br_schema *schema;
  br_vec_plan *plan;
  br_sink_state *states, **states_end;
  pthread_mutex_t ordered_mutex; /* an ordered sink has one writer at a time, whatever DuckDB does */
  _Atomic uint64_t rows_out;
};
/* A callback failed: keep the first error whole, wake the inputs. */
void br_run_store(br_run_ctx *c, const br_error *err);
/* The sink, for the types that were bound. */
BR_MUST_USE br_status br_run_open(br_run_ctx *c, br_error *err);
/* True if callbacks must stop; text says why. */
bool br_run_stopped(br_run_ctx *c, const char **text);

/* ---- dataset.c */
BR_MUST_USE br_status br_dataset_function_register(br_engine *e, br_error *err);
void br_datasets_free(br_engine *e);

/* ---- text_scan.c, file_range.c */
typedef struct br_file_ranges br_file_ranges; /* parts of files, held for the statements that read them; thread-safe */
br_file_ranges *br_file_ranges_new(void);
void br_file_ranges_free(br_file_ranges *r);
void br_file_ranges_end(br_file_ranges *r, uint64_t session); /* its statement has ended */
BR_MUST_USE br_status br_file_range_register(br_engine *e, br_error *err);
BR_MUST_USE br_status br_text_scan_register(br_engine *e, br_error *err);

/* ---- input.c, sink.c, profile.c */
/* For dataset.c, whose scans are those of an input: the scan's init, its thread's, its rows. ctx and input are the caller's; the scan
 * frees them by `free_ctx`. */
void br_input_scan_init(duckdb_init_info info, br_run_ctx *ctx, br_input_state *input,
                        void (*free_ctx)(br_run_ctx *ctx));
void br_input_local_init(duckdb_init_info info);
void br_input_rows(duckdb_function_info info, duckdb_data_chunk out);
BR_MUST_USE br_status br_input_register(br_engine *e, br_error *err);
BR_MUST_USE br_status br_input_prepare(br_run_ctx *c, br_error *err);
void br_input_release(br_run_ctx *c);
BR_MUST_USE br_status br_sink_register(br_engine *e, br_error *err);
BR_MUST_USE br_status br_nodes_register(br_engine *e, br_error *err); /* nodes.c */
BR_MUST_USE br_status br_sink_finish(br_run_ctx *c, bool success, br_error *err);
/* Of the last statement, which was profiled. */
void br_profile_groups(br_session *s, br_run_stats *stats);
/* The last statement's profile as JSON, or NULL. */
char *br_profile_json(br_session *s, br_run_stats *stats);

#endif
