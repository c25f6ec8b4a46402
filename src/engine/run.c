/* SPDX-License-Identifier: Apache-2.0
 *
 * One task: its SQL over its inputs into its sink.
 * Order: prepare the inputs, prepare the COPY (parses), start it (binds, opens the sink, plans), execute, end the sink's states.
 * Threads: the session's user; callbacks run on DuckDB's threads too. Bounds: those of input.c and sink.c; waits inside callbacks
 * end by cancel.
 */
#include "engine/internal.h"
#include <string.h>

void br_run_store(br_run_ctx *c, const br_error *err) {
  bool first = false;
  pthread_mutex_lock(&c->mutex);
  if (!atomic_load(&c->failed)) {
    c->error = *err;
    atomic_store(&c->failed, true);
    first = true;
  }
  pthread_mutex_unlock(&c->mutex);
  /* DuckDB waits for every callback before the statement ends: wake those that wait for batches. */
  for (size_t i = 0; first && i < c->run->n_inputs; i++)
    if (c->run->inputs[i].cancel) c->run->inputs[i].cancel(c->run->inputs[i].arg);
}

bool br_run_stopped(br_run_ctx *c, const char **text) {
  bool cancelled = br_session_cancelled(c->session);
  *text = cancelled ? "cancelled" : "stopped: another part of the task has failed";
  return cancelled || atomic_load(&c->failed);
}

static br_status check(const br_run *run, br_error *err) {
  const br_run_sink *k = run->sink;
  if (!run->sql || !run->scratch_dir || !k || !k->open || !k->thread_begin || !k->write || !k->thread_end ||
      !k->abandon)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a run needs its SQL, a scratch directory and a whole sink");
  for (size_t i = 0; i < run->n_inputs; i++) {
    if (!run->inputs[i].schema || !run->inputs[i].next)
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "input(%u) has no schema or no next()",
                     run->inputs[i].number);
    for (size_t j = 0; j < i; j++)
      if (run->inputs[j].number == run->inputs[i].number)
        return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "input(%u) is there twice", run->inputs[i].number);
  }
  return BR_OK;
}

/* The target is a parameter: a statement that reads files is planned anew whenever it starts, and until its parameters have values
 * DuckDB does not bind it at all (a COPY's target comes first). So it is planned once. */
static char *copy_sql(const br_run *run) {
  return br_asprintf("COPY (%s\n) TO $1 %s", run->sql,
                     run->ordered ? "(FORMAT brant, USE_TMP_FILE false)"
                                  : "(FORMAT brant, PER_THREAD_OUTPUT true, OVERWRITE_OR_IGNORE true)");
}

br_status br_run_open(br_run_ctx *c, br_error *err) {
  BR_TRY(br_types_schema(c->session->engine, c->types, NULL, NULL, c->n_types, &c->schema, err));
  BR_TRY(br_vec_plan_new(c->types, c->n_types, c->schema, &c->plan, err));
  return c->run->sink->open(c->run->sink->arg, c->schema, err);
}

static br_status set_target(duckdb_prepared_statement ps, const char *target, br_error *err) {
  if (duckdb_bind_varchar(ps, 1, target) == DuckDBSuccess) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the text of a task has parameters");
}

/* The gate is left once it is planned: another task may wait for it that gives this one its rows. */
static br_status start_copy(br_run_ctx *c, const char *target, duckdb_prepared_statement *ps,
                            duckdb_pending_result *pending, br_error *err) {
  br_session *s = c->session;
  char *sql = copy_sql(c->run);
  br_status status = br_gate_enter(s, c->run->ordered ? BR_MODE_DEFAULT : BR_MODE_UNORDERED, err);
  if (status == BR_OK) {
    status = br_stmt_prepare(s, sql, ps, err);
    if (status == BR_OK) status = set_target(*ps, target, err);
    if (status == BR_OK) status = br_stmt_start(s, *ps, false, pending, err);
    br_gate_leave(s);
  }
  free(sql);
  return status;
}

static void set_current(br_session *s, br_run_ctx *c) {
  pthread_mutex_lock(&s->mutex);
  s->run = c;
  pthread_mutex_unlock(&s->mutex);
}

static br_status profiling(br_session *s, bool on, br_error *err) {
  duckdb_result r;
  BR_TRY(br_stmt_query(s, on ? "PRAGMA enable_profiling = 'no_output'" : "PRAGMA disable_profiling", &r, err));
  duckdb_destroy_result(&r);
  if (on) {
    BR_TRY(br_stmt_query(s, "SET profiling_coverage = 'ALL'", &r, err));
    duckdb_destroy_result(&r);
  }
  return BR_OK;
}

static br_status execute(br_run_ctx *c, const char *target, br_error *err) {
  br_session *s = c->session;
  duckdb_prepared_statement ps = NULL;
  duckdb_pending_result pending = NULL;
  duckdb_result r;
  br_status status;
  bool profiled = c->run->profile || c->run->count_groups;
  BR_TRY_GOTO(br_input_prepare(c, err));
  set_current(s, c);
  if (profiled) BR_TRY_GOTO(profiling(s, true, err));
  BR_TRY_GOTO(start_copy(c, target, &ps, &pending, err));
  status = br_stmt_finish(s, &pending, &r, err);
  if (status == BR_OK) duckdb_destroy_result(&r);
  if (profiled) {
    br_error ignored;
    if (c->run->count_groups) br_profile_groups(s, &c->run->stats);
    if (c->run->profile) c->run->stats.profile_json = br_profile_json(s, &c->run->stats);
    (void)!profiling(s, false, &ignored);
  }
done:
  if (ps) duckdb_destroy_prepare(&ps);
  set_current(s, NULL);
  return status;
}

br_status br_session_run(br_session *s, br_run *run, br_error *err) {
  BR_TRY(check(run, err));
  br_run_ctx c = {.session = s, .run = run};
  uint64_t start_us = br_now_us();
  double start_cpu_s = br_cpu_seconds();
  char *target = br_asprintf(run->ordered ? "%s/row" : "%s/out", run->scratch_dir);
  memset(&run->stats, 0, sizeof run->stats);
  pthread_mutex_init(&c.mutex, NULL);
  pthread_mutex_init(&c.ordered_mutex, NULL);
  c.states_end = &c.states;
  br_session_begin(s);
  br_status status = execute(&c, target, err);
  if (atomic_load(&c.failed)) { /* a callback's own error says more than what DuckDB made of it */
    *err = c.error;
    status = c.error.code;
  }
  if (status == BR_OK)
    status = br_sink_finish(&c, true, err);
  else
    (void)!br_sink_finish(&c, false, err);
  run->stats.rows_out = atomic_load(&c.rows_out);
  run->stats.wall_us = br_now_us() - start_us;
  run->stats.cpu_us = (uint64_t)((br_cpu_seconds() - start_cpu_s) * 1e6);
  br_session_end(s);
  br_input_release(&c);
  br_types_free(c.types, c.n_types);
  br_vec_plan_free(c.plan);
  br_schema_unref(c.schema);
  if (!run->keep_scratch) br_remove_tree(target);
  free(target);
  pthread_mutex_destroy(&c.ordered_mutex);
  pthread_mutex_destroy(&c.mutex);
  return status;
}
