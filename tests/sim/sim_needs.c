/* SPDX-License-Identifier: Apache-2.0
 *
 * The model's answer to: what has to run, what is good, what may go? From definitions, by fixed points over tasks; it shares nothing with
 * the scheduler's plan. */
#include "sim/sim_world.h"

/* The newest attempt of task k that something which counts was made from: what was read while it wrote counts, however it ended. */
static uint16_t newest_read(const sim_world *w, const sim_query *q, uint32_t k) {
  uint16_t newest = q->tasks[k].made_by < 0 ? 0 : w->att[q->tasks[k].made_by].id.attempt;
  for (uint32_t j = k + 1; q->mode == BR_SCHED_EAGER && j < q->n_all; j++) {
    uint16_t from = q->tasks[j].made_by < 0 ? 0 : w->att[q->tasks[j].made_by].out.from[k];
    if (from > newest) newest = from;
  }
  return newest;
}

/* A last stage's work that was made from an indeterminate output which is being, or was, made again, has to be done again. */
static bool outdated(const sim_world *w, const sim_query *q, const sim_task *t, const sim_needs *n) {
  const sim_output *o = &w->att[t->made_by].out;
  for (uint32_t k = 0; k < q->n_all; k++) {
    uint16_t from = o->from[k];
    if (from == 0) continue;
    if (n->task[k] && !sim_is_current(&q->tasks[k], q->tasks[k].by_number[from])) return true;
    if (newest_read(w, q, k) > from) return true;
  }
  return false;
}

bool sim_reader_needed(const sim_query *q, uint32_t stage, uint32_t task, const sim_needs *n) {
  for (uint32_t c = stage + 1; c < q->n_stages; c++)
    for (size_t k = 0; n->any[c] && k < q->stages[c].n_inputs; k++) {
      const br_sched_input *in = &q->stages[c].inputs[k];
      if (in->stage == stage && (in->kind != BR_READ_FORWARD || n->task[q->stages[c].first + in->first + task]))
        return true;
    }
  return false;
}

/* A whole stage, its outputs rest together. */
bool sim_stage_needed(const sim_query *q, uint32_t stage, const sim_needs *n) {
  for (uint32_t c = stage + 1; c < q->n_stages; c++)
    for (size_t k = 0; n->any[c] && k < q->stages[c].n_inputs; k++)
      if (q->stages[c].inputs[k].stage == stage) return true;
  for (uint32_t t = 0; q->stages[stage].result && t < q->stages[stage].n_tasks; t++)
    if (!q->tasks[q->stages[stage].first + t].read) return true;
  return false;
}

static bool must_run(const sim_world *w, const sim_query *q, uint32_t stage, uint32_t task, const sim_needs *n) {
  const sim_task *t = &q->tasks[q->stages[stage].first + task];
  if (q->stages[stage].terminal) return t->made_by < 0 || (q->indeterminate && outdated(w, q, t, n));
  return t->alive < 0 && ((q->stages[stage].result && !t->read) || sim_reader_needed(q, stage, task, n));
}

/* The least set that satisfies must_run. */
sim_needs sim_find_needs(const sim_world *w, const sim_query *q) {
  sim_needs n = {0};
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = q->n_stages; i > 0; i--)
      for (uint32_t t = 0; t < q->stages[i - 1].n_tasks; t++) {
        bool *need = &n.task[q->stages[i - 1].first + t];
        if (*need || !must_run(w, q, i - 1, t, &n)) continue;
        *need = n.any[i - 1] = changed = true;
      }
    if (!q->indeterminate) break; /* from the last to the first is enough */
  }
  return n;
}

bool sim_work_left(const sim_world *w, const sim_query *q) {
  sim_needs n = sim_find_needs(w, q);
  for (uint32_t i = 0; i < q->n_stages; i++)
    if (n.any[i]) return true;
  return false;
}

bool sim_is_current(const sim_task *t, int32_t attempt) {
  return attempt >= 0 && (t->now[0] == attempt || t->now[1] == attempt);
}

uint32_t sim_n_current(const sim_task *t) { return (t->now[0] >= 0) + (t->now[1] >= 0); }

bool sim_good_input(const sim_world *w, const sim_query *q, uint32_t stage, uint32_t task, int32_t attempt) {
  const sim_task *t = &q->tasks[q->stages[stage].first + task];
  (void)w;
  return attempt >= 0 && (t->alive == attempt || sim_is_current(t, attempt));
}

bool sim_is_bound(const sim_world *w, const sim_query *q, int32_t attempt) {
  const sim_attempt *p = &w->att[attempt];
  for (uint32_t c = p->id.stage + 1; c < q->n_stages; c++)
    for (uint32_t r = 0; r < q->stages[c].n_tasks; r++)
      for (int i = 0; i < 2; i++) {
        int32_t now = q->tasks[q->stages[c].first + r].now[i];
        for (size_t k = 0; now >= 0 && k < q->stages[c].n_inputs; k++)
          if (q->stages[c].inputs[k].stage == p->id.stage && w->att[now].bound[k][p->id.task] == attempt) return true;
      }
  return false;
}

static bool read_all(const sim_query *q, uint32_t stage) {
  for (uint32_t t = 0; t < q->stages[stage].n_tasks && q->stages[stage].result; t++)
    if (!q->tasks[q->stages[stage].first + t].read) return false;
  return true;
}

bool sim_safe_to_drop(const sim_query *q, uint32_t stage, const sim_needs *n) {
  if (!read_all(q, stage)) return false;
  for (uint32_t c = stage + 1; c < q->n_stages; c++) {
    const sim_stage *st = &q->stages[c];
    bool reads = false, kept = st->outlives || st->terminal;
    for (size_t k = 0; k < st->n_inputs; k++) reads |= st->inputs[k].stage == stage;
    for (uint32_t t = 0; reads && t < st->n_tasks; t++) {
      const sim_task *task = &q->tasks[st->first + t];
      if (n->task[st->first + t]) return false;
      kept &= st->terminal || task->alive >= 0 || (task->read && st->result);
    }
    if (reads && !kept && !sim_safe_to_drop(q, c, n)) return false;
  }
  return true;
}
