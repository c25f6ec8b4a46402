/* SPDX-License-Identifier: Apache-2.0
 * Events and actions as text, for `sim 1 SEED trace`. */
#include "sim/sim_world.h"

void sim_trace_event(const sim_world *w, const br_event *ev) {
  static const char *const names[] = {
      "query",  "joined",       "lost",        "heard", "draining",     "executor_lost", "started", "done",
      "failed", "cancel_query", "result_read", "tick",  "fetch_failed", "probed",        "adapt",   "outputs_lost"};
  if (!w->trace || ev->kind == BR_EV_WORKER_HEARD || ev->kind == BR_EV_TICK) return;
  sim_trace(w, "event %s q%llu.s%u.t%u.a%u worker %u.%u %s", names[ev->kind],
            (unsigned long long)(ev->query | ev->attempt.query), ev->attempt.stage | ev->stage,
            ev->attempt.task | ev->task, ev->attempt.attempt, ev->worker, ev->incarnation,
            ev->error ? ev->error->message : "");
  for (size_t i = 0; i < ev->n_attempts; i++)
    sim_trace(w, "    q%llu.s%u.t%u.a%u", (unsigned long long)ev->attempts[i].query, ev->attempts[i].stage,
              ev->attempts[i].task, ev->attempts[i].attempt);
}

void sim_trace_action(const sim_world *w, const br_action *a) {
  static const char *const names[] = {
      "RUN",        "CANCEL",       "TABLE",      "STAGE_DONE", "RESULT", "RETIRE_STAGE", "DROP_STAGE", "DROP_OUTPUT",
      "QUERY_DONE", "QUERY_FAILED", "DROP_QUERY", "GONE",       "PROBE",  "RELEASE",      "ASK",        "WAKE"};
  if (!w->trace || a->kind == BR_ACT_WAKE) return;
  sim_trace(w, "  %s q%llu.s%u.t%u.a%u worker %u.%u v%u%s%s%s %s", names[a->kind], (unsigned long long)a->query,
            a->attempt.stage | a->stage, a->attempt.task, a->attempt.attempt, a->worker, a->incarnation, a->version,
            a->alone ? " alone" : "", a->second ? " second" : "", a->passes > 1 ? " in passes" : "", a->error.message);
}
