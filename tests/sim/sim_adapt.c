/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that are planned again before they start. The coordinator answers a question late, now and then twice, and sometimes where
 * nobody has asked: with another number of tasks, or with the stage folded into its only reader, which then reads what it would have
 * read. Only the first answer to a question counts. And the model's side: who may be asked for, who must be, who may start.
 */
#include "sim/sim_world.h"

void sim_adapt_some(sim_world *w, sim_query *q) {
  sim_rng *r = &w->rng_adapt;
  if (!(w->with & SIM_ADAPT) || !sim_chance(r, w->fragile ? 600 : 300)) return;
  q->n_all = 0;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    q->stages[i].adapts = q->stages[i].n_inputs > 0 && sim_chance(r, 700);
    q->stages[i].first = q->n_all;
    q->n_all += SIM_MAX_TASKS;
  }
}

void sim_stages_of(const sim_query *q, br_sched_stage *out) {
  for (uint32_t k = 0; k < q->n_stages; k++)
    out[k] = (br_sched_stage){.tasks = q->stages[k].n_tasks,
                              .inputs = q->stages[k].inputs,
                              .n_inputs = q->stages[k].n_inputs,
                              .indeterminate = q->stages[k].indeterminate,
                              .result = q->stages[k].result,
                              .splittable = q->stages[k].splittable,
                              .outlives = q->stages[k].outlives,
                              .adapts = q->stages[k].adapts};
}

/* ---- the coordinator */
void sim_asked(sim_world *w, const br_action *a) {
  sim_rng *r = &w->rng_adapt;
  uint32_t query = (uint32_t)(sim_query_by_id(w, a->query) - w->q);
  uint32_t copies = sim_chance(r, 150) ? 2 : 1;
  for (uint32_t c = 0; c < copies; c++) {
    sim_event *e = sim_push(w, w->now_ms + sim_between(r, c ? 1 : 0, c ? 5000 : 400), SIM_ANSWER);
    e->a = query;
    e->b = a->stage;
  }
  if (!sim_chance(r, 100)) return;
  sim_event *e = sim_push(w, w->now_ms + sim_below(r, 2000), SIM_ANSWER); /* about another one */
  e->a = query;
  e->b = sim_below(r, w->q[query].n_stages);
}

/* Who reads a stage task by task has at least as many tasks. */
static void fit_readers(sim_query *q) {
  for (uint32_t c = 0; c < q->n_stages; c++)
    for (size_t k = 0; k < q->stages[c].n_inputs; k++) {
      br_sched_input *in = &q->stages[c].inputs[k];
      uint32_t n = q->stages[in->stage].n_tasks;
      if (in->kind != BR_READ_FORWARD || in->first + n <= q->stages[c].n_tasks) continue;
      in->first = 0;
      if (q->stages[c].n_tasks < n) q->stages[c].n_tasks = n;
    }
}

/* Its only reader, if that does not follow it task by task; NULL: it has another number of them. */
static sim_stage *only_reader(sim_query *q, uint32_t i, size_t *at) {
  sim_stage *reader = NULL;
  size_t edges = 0;
  for (uint32_t c = i + 1; c < q->n_stages; c++)
    for (size_t k = 0; k < q->stages[c].n_inputs; k++) {
      if (q->stages[c].inputs[k].stage != i) continue;
      reader = &q->stages[c];
      *at = k;
      edges++;
    }
  return edges == 1 && reader->inputs[*at].kind != BR_READ_FORWARD ? reader : NULL;
}

static bool follows(const sim_stage *st) {
  for (size_t k = 0; k < st->n_inputs; k++)
    if (st->inputs[k].kind == BR_READ_FORWARD) return true;
  return false;
}

/* The reader does the stage's tasks, task by task behind the same producers, and reads its other inputs whole: a hash join that
 * becomes a broadcast join. Or it stays as it was, but for what it reads. */
static bool fold(sim_world *w, sim_query *q, uint32_t i) {
  const sim_stage *st = &q->stages[i];
  size_t at = 0;
  sim_stage *reader = only_reader(q, i, &at);
  bool tasks = follows(st) || sim_chance(&w->rng_adapt, 600);
  if (reader == NULL || st->result || reader->n_inputs + st->n_inputs - 1 > SIM_MAX_INPUTS) return false;
  if (tasks && follows(reader)) return false;
  reader->splittable &= !follows(st);
  for (size_t k = 0; k < reader->n_inputs && tasks; k++)
    if (reader->inputs[k].kind == BR_READ_ALL) reader->inputs[k].kind = BR_READ_BROADCAST;
  if (tasks) reader->n_tasks = st->n_tasks;
  reader->inputs[at] = st->inputs[0];
  for (size_t k = 1; k < st->n_inputs; k++) reader->inputs[reader->n_inputs++] = st->inputs[k];
  reader->indeterminate |= st->indeterminate;
  q->stages[i].n_tasks = q->stages[i].n_inputs = 0;
  w->st.joined += tasks;
  return true;
}

static void change(sim_world *w, sim_query *q, uint32_t i) {
  sim_rng *r = &w->rng_adapt;
  uint32_t before = q->stages[i].n_tasks;
  if (sim_chance(r, w->fragile ? 700 : 300)) {
    w->st.folded += fold(w, q, i);
  } else if (sim_chance(r, 700)) {
    q->stages[i].n_tasks = sim_chance(r, 100) ? 0 : sim_between(r, 1, SIM_MAX_TASKS);
    w->st.resized += q->stages[i].n_tasks != before;
  }
  fit_readers(q);
}

void sim_answer(sim_world *w, uint32_t query, uint32_t stage) {
  sim_query *q = &w->q[query];
  br_sched_stage stages[SIM_MAX_STAGES];
  bool counts = q->state == SIM_Q_RUNS && q->stages[stage].asked && !q->stages[stage].answered;
  if (counts) change(w, q, stage);
  if (counts) q->stages[stage].answered = true;
  sim_stages_of(q, stages);
  if (!counts) stages[stage].tasks += 3; /* nobody may believe it */
  sim_feed(w,
           &(br_event){.kind = BR_EV_ADAPT, .query = q->id, .stage = stage, .stages = stages, .n_stages = q->n_stages});
}

/* ---- the model */
static bool complete(const sim_query *q, uint32_t stage, const sim_needs *n) {
  for (size_t k = 0; k < q->stages[stage].n_inputs; k++)
    if (n->any[q->stages[stage].inputs[k].stage]) return false;
  return true;
}

bool sim_waits_for_answer(const sim_query *q, uint32_t stage, const sim_needs *n) {
  const sim_stage *st = &q->stages[stage];
  return st->adapts && !st->answered && !st->begun && (st->asked || complete(q, stage, n));
}

void sim_action_ask(sim_world *w, sim_query *q, uint32_t stage) {
  sim_stage *st = &q->stages[stage];
  sim_needs n = sim_find_needs(w, q);
  if (!st->adapts || st->asked || st->begun) sim_bad(w, "stage %u is asked for, but not to be planned again", stage);
  if (!n.any[stage]) sim_bad(w, "stage %u is asked for, and nobody needs it", stage);
  if (!complete(q, stage, &n)) sim_bad(w, "stage %u is asked for before all that it reads is there", stage);
  st->asked = true;
  w->st.asked++;
}

void sim_check_asked(sim_world *w, sim_query *q, uint32_t stage) {
  sim_needs n = sim_find_needs(w, q);
  if (sim_waits_for_answer(q, stage, &n))
    sim_bad(w, "a task of stage %u is started before it is known how it is planned", stage);
  q->stages[stage].begun = true;
}

void sim_check_not_asked(sim_world *w, const sim_query *q, const sim_needs *n) {
  for (uint32_t i = 0; i < q->n_stages; i++) {
    const sim_stage *st = &q->stages[i];
    if (st->adapts && !st->asked && !st->begun && n->any[i] && complete(q, i, n))
      sim_bad(w, "query %llu: all that stage %u reads is there, and it is not asked for", (unsigned long long)q->id, i);
  }
}
