/* SPDX-License-Identifier: Apache-2.0
 * Random queries. A task's answer is a hash over what it read; an indeterminate task mixes its attempt number in, and everything made from it
 * remembers which attempt that was. So a result tells whether each input was read once, whole, and from one and the same attempt. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_world.h"

static void random_inputs(sim_world *w, sim_query *q, uint32_t i) {
  sim_stage *st = &q->stages[i];
  if (i == 0 || sim_chance(&w->rng, 250)) return; /* a leaf */
  uint32_t n = sim_between(&w->rng, 1, i < 3 ? i : 3);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t p = sim_chance(&w->rng, 600) ? i - 1 : sim_below(&w->rng, i);
    bool twice = false;
    for (size_t j = 0; j < st->n_inputs; j++) twice |= st->inputs[j].stage == p;
    if (twice && !sim_chance(&w->rng, 200)) continue; /* a self join */
    br_sched_input *in = &st->inputs[st->n_inputs++];
    *in = (br_sched_input){.stage = p, .kind = (br_read_kind)sim_below(&w->rng, 3)};
    if (in->kind != BR_READ_FORWARD) continue;
    if (q->stages[p].n_tasks > st->n_tasks) st->n_tasks = q->stages[p].n_tasks;
    in->first = sim_below(&w->rng, st->n_tasks - q->stages[p].n_tasks + 1);
  }
}

/* Stages that nobody reads are results; sometimes one of them is a last stage without a result. */
static void mark_results(sim_world *w, sim_query *q) {
  bool used[SIM_MAX_STAGES] = {false};
  for (uint32_t i = 0; i < q->n_stages; i++)
    for (size_t k = 0; k < q->stages[i].n_inputs; k++) used[q->stages[i].inputs[k].stage] = true;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    q->stages[i].result = !used[i] || sim_chance(&w->rng, 40);
    if (!used[i] && sim_chance(&w->rng, 100)) q->stages[i].result = false;
    q->stages[i].terminal = !used[i] && !q->stages[i].result;
  }
}

/* The newer kinds of queries are drawn after the shape. */
static void random_modes(sim_world *w, sim_query *q) {
  bool files = sim_chance(&w->rng, 120) && (w->with & SIM_OUTLIVE);
  bool hungry = sim_chance(&w->rng, 250) && (w->with & SIM_MEMORY);
  if (sim_chance(&w->rng, 500) && (w->with & SIM_EAGER)) q->mode = BR_SCHED_EAGER;
  if (sim_chance(&w->rng, 200) && (w->with & SIM_BOUNDED)) q->max_running = sim_between(&w->rng, 1, 4);
  for (uint32_t i = 0; i < q->n_stages; i++) {
    sim_stage *st = &q->stages[i];
    st->outlives = files && !st->result && sim_chance(&w->rng, 900);
    st->splittable = st->n_inputs > 0 && sim_chance(&w->rng, 600);
    for (size_t k = 0; k < st->n_inputs; k++) {
      st->splittable &= st->inputs[k].kind != BR_READ_FORWARD;
      st->inputs[k].complete = q->mode == BR_SCHED_EAGER && sim_chance(&w->rng, 150);
    }
    for (uint32_t t = 0; hungry && t < st->n_tasks; t++) {
      if (!sim_chance(&w->rng, 60)) continue;
      sim_task *task = &q->tasks[st->first + t];
      task->hunger = sim_chance(&w->rng, 400) ? 1 : sim_chance(&w->rng, 500) ? 2 : sim_chance(&w->rng, 700) ? 3 : 4;
      if (!st->splittable && task->hunger > 1 && sim_chance(&w->rng, 800)) task->hunger = 1;
    }
  }
}

/* There is room for more tasks between those of two stages. */
static uint32_t nth_task(const sim_query *q, uint32_t n) {
  uint32_t i = 0;
  for (; n >= q->stages[i].n_tasks; i++) n -= q->stages[i].n_tasks;
  return q->stages[i].first + n;
}

void sim_make_query(sim_world *w, sim_query *q, uint64_t id) {
  bool indeterminate = w->fragile || sim_chance(&w->rng, 350);
  uint32_t widest = sim_chance(&w->rng, 700) ? 4 : SIM_MAX_TASKS;
  q->id = id;
  q->n_stages = sim_between(&w->rng, 1, SIM_MAX_STAGES);
  for (uint32_t i = 0; i < q->n_stages; i++) {
    sim_stage *st = &q->stages[i];
    st->n_tasks = sim_chance(&w->rng, 20) ? 0 : sim_between(&w->rng, 1, widest);
    random_inputs(w, q, i);
    st->indeterminate = indeterminate && sim_chance(&w->rng, w->fragile ? 700 : 300);
    q->indeterminate |= st->indeterminate;
    st->first = q->n_all;
    q->n_all += st->n_tasks;
  }
  mark_results(w, q);
  uint32_t drawn = q->n_all;
  sim_adapt_some(w, q);
  q->tasks = br_calloc(q->n_all, sizeof *q->tasks);
  for (uint32_t t = 0; t < q->n_all; t++) {
    q->tasks[t].alive = q->tasks[t].made_by = q->tasks[t].now[0] = q->tasks[t].now[1] = -1;
    memset(q->tasks[t].table, 0xff, sizeof q->tasks[t].table);
    memset(q->tasks[t].by_number, 0xff, sizeof q->tasks[t].by_number);
  }
  q->poison = drawn && sim_chance(&w->rng, 40) ? nth_task(q, sim_below(&w->rng, drawn)) : q->n_all;
  q->sick = drawn && sim_chance(&w->rng, 30) ? nth_task(q, sim_below(&w->rng, drawn)) : q->n_all;
  q->killer = drawn && sim_chance(&w->rng, 40) ? nth_task(q, sim_below(&w->rng, drawn)) : q->n_all;
  random_modes(w, q);
}

void sim_describe(const sim_query *q, char *out, size_t n) {
  size_t at = (size_t)snprintf(out, n, "query %llu %s at most %u:", (unsigned long long)q->id,
                               q->mode == BR_SCHED_EAGER ? "eager" : "staged", q->max_running);
  for (uint32_t i = 0; i < q->n_stages && at < n; i++) {
    const sim_stage *st = &q->stages[i];
    at += (size_t)snprintf(out + at, n - at, " %u[%u%s%s%s%s%s", i, st->n_tasks,
                           st->indeterminate ? " indeterminate" : "", st->result ? " result" : "",
                           st->splittable ? " splittable" : "", st->outlives ? " outlives" : "",
                           st->adapts ? " adapts" : "");
    for (size_t k = 0; k < st->n_inputs && at < n; k++)
      at += (size_t)snprintf(out + at, n - at, " %s%s(%u+%u)", st->inputs[k].complete ? "complete " : "",
                             st->inputs[k].kind == BR_READ_ALL       ? "all"
                             : st->inputs[k].kind == BR_READ_FORWARD ? "forward"
                                                                     : "broadcast",
                             st->inputs[k].stage, st->inputs[k].first);
    if (at < n) at += (size_t)snprintf(out + at, n - at, "]");
  }
}

bool sim_reads(const sim_query *q, uint32_t stage, size_t input, uint32_t task, uint32_t theirs) {
  const br_sched_input *in = &q->stages[stage].inputs[input];
  return in->kind != BR_READ_FORWARD || in->first + theirs == task;
}

void sim_begin_value(const sim_query *q, uint32_t stage, uint32_t task, uint16_t attempt, sim_output *out) {
  memset(out, 0, sizeof *out);
  out->value = sim_mix(sim_mix(q->id, stage), task);
  if (!q->stages[stage].indeterminate) return;
  out->value = sim_mix(out->value, attempt);
  out->from[q->stages[stage].first + task] = attempt;
}

static uint64_t slice(const sim_query *q, uint32_t stage, size_t input, uint32_t task, uint64_t whole) {
  return q->stages[stage].inputs[input].kind == BR_READ_ALL ? sim_mix(whole, task) : whole;
}

void sim_add_value(const sim_query *q, uint32_t stage, size_t input, uint32_t task, uint32_t theirs,
                   const sim_output *in, sim_output *out) {
  out->value = sim_mix(out->value, sim_mix(slice(q, stage, input, task, in->value), theirs));
  out->mixed |= in->mixed;
  for (uint32_t i = 0; i < q->n_all; i++) {
    if (in->from[i] == 0) continue;
    out->mixed |= out->from[i] != 0 && out->from[i] != in->from[i];
    out->from[i] = in->from[i];
  }
}

uint64_t sim_right_value(const sim_query *q, uint32_t stage, uint32_t task, const uint16_t *from) {
  uint64_t known[SIM_MAX_ALL];
  for (uint32_t i = 0; i <= stage; i++) {
    const sim_stage *st = &q->stages[i];
    for (uint32_t t = 0; t < st->n_tasks; t++) {
      sim_output out;
      sim_begin_value(q, i, t, from[st->first + t], &out);
      for (size_t k = 0; k < st->n_inputs; k++) {
        const sim_stage *p = &q->stages[st->inputs[k].stage];
        for (uint32_t m = 0; m < p->n_tasks; m++)
          if (sim_reads(q, i, k, t, m))
            out.value = sim_mix(out.value, sim_mix(slice(q, i, k, t, known[p->first + m]), m));
      }
      known[st->first + t] = out.value;
    }
  }
  return known[q->stages[stage].first + task];
}
