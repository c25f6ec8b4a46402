/* SPDX-License-Identifier: Apache-2.0
 *
 * DuckDB keeps preserve_insertion_order, disabled_optimizers and explain_output once an instance, and reads them while it
 * plans. The gate lets any number of sessions plan in one mode at a time; the first one of another mode waits until the
 * others have planned (not: executed), then sets the values. The user's own values come back when somebody asks for the default
 * mode, as every statement of the user's does: queries that are only distributed, one after the other, set nothing in between.
 * Order: enter, prepare, leave. Threads: any. Bounds: the wait ends when the others have planned, or by cancel, which is
 * looked at every WAIT_MS.
 */
#include "engine/internal.h"
#include <errno.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 20 };

static const char *const setting[3] = {"preserve_insertion_order", "disabled_optimizers", "explain_output"};

/* Why each of them is off: docs/plan-json.md. */
#define PLANNING_OFF                                                                                       \
  "column_lifetime,compressed_materialization,late_materialization,join_filter_pushdown,common_aggregate," \
  "top_n_window_elimination,window_self_join,in_clause"

void br_gate_init(br_gate *g) {
  pthread_mutex_init(&g->mutex, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&g->changed, &attr);
  pthread_condattr_destroy(&attr);
}

void br_gate_destroy(br_gate *g) {
  for (int i = 0; i < 3; i++) free(g->saved[i]);
  pthread_cond_destroy(&g->changed);
  pthread_mutex_destroy(&g->mutex);
}

static br_status run(br_engine *e, const char *sql, char **cell, br_error *err) {
  duckdb_result r;
  br_status status = BR_OK;
  if (duckdb_query(e->helper, sql, &r) != DuckDBSuccess)
    status = br_duckdb_fail(err, duckdb_result_error_type(&r), duckdb_result_error(&r));
  else if (cell) {
    char *text = duckdb_value_varchar(&r, 0, 0);
    *cell = br_strdup(text ? text : "");
    duckdb_free(text);
  }
  duckdb_destroy_result(&r);
  return status;
}

static br_status put(br_engine *e, int i, const char *value, br_error *err) {
  br_buf sql = {0};
  br_buf_printf(&sql, "SET GLOBAL %s = ", setting[i]);
  br_buf_sql_literal(&sql, value, strlen(value));
  br_status status = run(e, br_buf_cstr(&sql), NULL, err);
  br_buf_free(&sql);
  return status;
}

static br_status back_to_default(br_engine *e, br_error *err) {
  br_gate *g = &e->gate;
  br_status status = BR_OK;
  for (int i = 0; i < 3; i++) {
    if (!g->saved[i]) continue;
    br_status one = put(e, i, g->saved[i], err);
    if (one != BR_OK) status = one;
    free(g->saved[i]);
    g->saved[i] = NULL;
  }
  g->mode = BR_MODE_DEFAULT;
  return status;
}

static br_status change(br_engine *e, int i, const char *value, bool add, br_error *err) {
  char ask[96];
  snprintf(ask, sizeof ask, "SELECT CAST(current_setting('%s') AS VARCHAR)", setting[i]);
  BR_TRY(run(e, ask, &e->gate.saved[i], err));
  if (!add || !*e->gate.saved[i]) return put(e, i, value, err);
  char *both = br_asprintf("%s,%s", e->gate.saved[i], value);
  br_status status = put(e, i, both, err);
  free(both);
  return status;
}

static br_status switch_to(br_engine *e, br_mode mode, br_error *err) {
  br_gate *g = &e->gate;
  if (g->mode != BR_MODE_DEFAULT) BR_TRY(back_to_default(e, err));
  br_status status = BR_OK;
  if (mode == BR_MODE_UNORDERED) status = change(e, 0, "false", false, err);
  if (mode == BR_MODE_NO_JOIN_FILTERS) status = change(e, 1, "join_filter_pushdown", true, err);
  if (mode == BR_MODE_PLANNING) {
    status = change(e, 1, PLANNING_OFF, true, err);
    if (status == BR_OK) status = change(e, 2, "optimized_only", false, err);
  }
  g->mode = mode;
  if (status != BR_OK) {
    br_error ignored;
    (void)!back_to_default(e, &ignored);
  }
  return status;
}

br_status br_gate_enter(br_session *s, br_mode mode, br_error *err) {
  br_gate *g = &s->engine->gate;
  br_status status = BR_OK;
  pthread_mutex_lock(&g->mutex);
  while (g->users && g->mode != mode) {
    if (br_session_cancelled(s)) {
      status = br_fail(err, BR_CANCELLED, BR_BLAME_NONE, "cancelled before planning began");
      goto done;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    pthread_cond_timedwait(&g->changed, &g->mutex, &until);
  }
  if (g->mode != mode) BR_TRY_GOTO(switch_to(s->engine, mode, err));
  g->users++;
done:
  pthread_mutex_unlock(&g->mutex);
  return status;
}

void br_gate_leave(br_session *s) {
  br_gate *g = &s->engine->gate;
  pthread_mutex_lock(&g->mutex);
  BR_ASSERT(g->users > 0);
  if (--g->users == 0) pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->mutex);
}
