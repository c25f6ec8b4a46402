/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stages are open, which table names what, and what a reader is bound to.
 *
 * STAGED: a stage is open when its input stages have nothing left to run. EAGER: when each of their tasks is committed or has a slot (an
 * input that must be `complete`: as in STAGED). One that adapts and whose inputs are all committed is asked for first (adapt.c). So whoever runs reads from what is there or from what runs, down to the leaves: every
 * attempt under way can always go on, whoever holds the slots, and nothing waits in a circle. With one slot EAGER is STAGED.
 *
 * A table version names, for each task, its committed output or (EAGER) its attempt under way; `since` of a task is the first version
 * that names the present one. A reader notes the version that it was started with: what it read, exactly. A reader that was started with
 * something growing is bound: when anything that it reads is not there any more under that name, it is cancelled and runs again, uncharged.
 *
 * O(tasks) when a stage opens or closes, and in a plan. One thread.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "schedule/state.h"

/* ---- open and closed */
static bool input_ready(const sched_query *q, const br_sched_input *in) {
  const sched_stage *p = &q->stages[in->stage];
  return q->eager && !in->complete ? p->todo == p->flying : p->todo == 0;
}

bool br_sched_may_open(const sched_query *q, const sched_stage *st) {
  if (br_sched_must_ask(q, st)) return false;
  for (size_t k = 0; k < st->n_inputs; k++)
    if (!input_ready(q, &st->inputs[k])) return false;
  return true;
}

void br_sched_open_or_close(br_sched *s, sched_query *q, sched_stage *st) {
  bool open = br_sched_may_open(q, st);
  if (!open && st->counts[BR_TASK_READY] > 0)
    for (uint32_t i = 0; i < st->n_tasks; i++) br_sched_unready(s, q, st, &st->tasks[i]);
  st->open = open;
  if (open && st->todo > 0)
    for (uint32_t i = 0; i < st->n_tasks; i++) br_sched_make_ready(s, q, st, &st->tasks[i]);
}

void br_sched_flow(br_sched *s, sched_query *q, sched_stage *st) {
  bool flows = st->todo == st->flying;
  if (!q->eager || q->quiet || flows == st->flows) return;
  st->flows = flows;
  for (size_t k = 0; k < st->n_consumers; k++) br_sched_open_or_close(s, q, &q->stages[st->consumers[k].stage]);
}

/* ---- tables */
bool br_sched_named(const sched_query *q, const sched_task *t) {
  return t->alive || (q->eager && t->now != 0 && !t->twin);
}

void br_sched_publish(const sched_query *q, sched_stage *st, br_actions *out) {
  st->dirty = false;
  st->version++;
  br_action *a = br_sched_act(out, BR_ACT_TABLE, q->id);
  a->stage = (uint32_t)(st - q->stages);
  a->version = st->version;
}

static const sched_task *forward_source(const sched_query *q, const br_sched_input *in, uint32_t reader) {
  const sched_stage *p = &q->stages[in->stage];
  return reader < in->first || reader - in->first >= p->n_tasks ? NULL : &p->tasks[reader - in->first];
}

/* The task starts now: its tables are up to date, and it is bound when it reads something that grows. */
void br_sched_bind(sched_query *q, sched_stage *st, sched_task *t, br_actions *out) {
  uint32_t me = (uint32_t)(t - st->tasks), *reads = &st->reads[(size_t)me * st->n_inputs];
  t->bound = false;
  for (size_t k = 0; k < st->n_inputs; k++) {
    const br_sched_input *in = &st->inputs[k];
    sched_stage *p = &q->stages[in->stage];
    const sched_task *from = in->kind == BR_READ_FORWARD ? forward_source(q, in, me) : NULL;
    if (q->eager && (p->dirty || p->version == 0)) br_sched_publish(q, p, out);
    reads[k] = p->version;
    if (in->kind == BR_READ_FORWARD)
      t->bound |= from && !from->alive;
    else
      t->bound |= p->todo > 0;
  }
}

/* ---- bound readers */
sched_named br_sched_look(const sched_query *q, const sched_stage *st) {
  sched_named n = {.all = true};
  for (uint32_t i = 0; i < st->n_tasks; i++) {
    const sched_task *t = &st->tasks[i];
    n.all &= br_sched_named(q, t);
    if (t->since > n.since) n.since = t->since;
  }
  return n;
}

bool br_sched_broken(const sched_query *q, const sched_stage *st, const sched_task *t, const sched_named *stages) {
  uint32_t me = (uint32_t)(t - st->tasks);
  for (size_t k = 0; k < st->n_inputs; k++) {
    const br_sched_input *in = &st->inputs[k];
    uint32_t version = st->reads[(size_t)me * st->n_inputs + k];
    if (in->kind != BR_READ_FORWARD) {
      if (!stages[in->stage].all || stages[in->stage].since > version) return true;
      continue;
    }
    const sched_task *from = forward_source(q, in, me);
    if (from && (!br_sched_named(q, from) || from->since > version)) return true;
  }
  return false;
}

/* From the leaves on: a reader that is cancelled breaks its own readers. */
bool br_sched_cancel_broken(br_sched *s, sched_query *q, br_actions *out) {
  sched_named *stages = br_calloc(q->n_stages, sizeof *stages);
  bool changed = false;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    sched_stage *st = &q->stages[i];
    for (uint32_t k = 0; k < st->n_tasks; k++) {
      if (!st->tasks[k].bound || st->tasks[k].now == 0 || !br_sched_broken(q, st, &st->tasks[k], stages)) continue;
      br_sched_cancel_attempt(s, q, st, &st->tasks[k], out);
      changed = true;
    }
    stages[i] = br_sched_look(q, st);
  }
  free(stages);
  return changed;
}
