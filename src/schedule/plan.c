/* SPDX-License-Identifier: Apache-2.0
 *
 * What a query still has to run, from its lineage, in one plan: at the start, when a stage has finished, and when outputs died.
 *
 *   1. want: from the last stage to the first, a task has to run when its output is needed (by the caller, or by a task that has to run)
 *      and is not alive. So recovery is the same computation as the first run, and reaches back exactly as far as it must.
 *   2. void: when an indeterminate output is made again, whatever read the dead one mixes two versions of it: running readers are cancelled,
 *      committed ones count as never made, and so do their readers. That may want more: back to 1, until nothing changes (each
 *      round unmakes at least one output, so it ends).
 *   3. apply: new and vanished needs, done stages, tables, dropped stages, opened and closed stages.
 *
 * O(tasks + inputs) a round. One thread.
 */
#include "base/mem.h"
#include "schedule/state.h"

bool br_sched_stage_demanded(const sched_query *q, const sched_stage *st) {
  for (size_t k = 0; k < st->n_consumers; k++)
    if (q->stages[st->consumers[k].stage].todo > 0) return true;
  return false;
}

/* The task of consumer stage c that reads their task by FORWARD over this input; NULL: none. */
static sched_task *forward_reader(sched_stage *c, const br_sched_input *in, uint32_t task) {
  uint64_t at = (uint64_t)in->first + task;
  return at < c->n_tasks ? &c->tasks[at] : NULL;
}

/* ---- 1. want */
static bool wanted_by_one(const sched_query *q, const sched_stage *st, uint32_t task) {
  for (size_t k = 0; k < st->n_consumers; k++) {
    sched_stage *c = &q->stages[st->consumers[k].stage];
    const br_sched_input *in = &c->inputs[st->consumers[k].input];
    if (in->kind != BR_READ_FORWARD || c->wanted == 0) continue;
    const sched_task *r = forward_reader(c, in, task);
    if (r && r->want) return true;
  }
  return false;
}

static void want_stage(const sched_query *q, sched_stage *st) {
  bool all = st->last;
  for (size_t k = 0; k < st->n_consumers && !all; k++) {
    const sched_stage *c = &q->stages[st->consumers[k].stage];
    all = c->inputs[st->consumers[k].input].kind != BR_READ_FORWARD && c->wanted > 0;
  }
  st->wanted = 0;
  for (uint32_t i = 0; i < st->n_tasks; i++) {
    sched_task *t = &st->tasks[i];
    bool there = st->last ? t->made_by != 0 : t->alive;
    t->want = !there && (all || (st->result && !t->read) || wanted_by_one(q, st, i));
    st->wanted += t->want;
  }
}

static void want(sched_query *q) {
  for (uint32_t i = q->n_stages; i > 0; i--) want_stage(q, &q->stages[i - 1]);
}

/* ---- 2. void */
static void doom_if_read(br_sched *s, sched_query *q, const sched_stage *st, const sched_task *t) {
  br_error err;
  if (!t->read) return;
  br_fail(&err, BR_LOST, BR_BLAME_WORKER,
          "an output that can't be made the same way twice was lost after rows made from it were handed out (task %u "
          "of stage "
          "%u): run the query again",
          (uint32_t)(t - st->tasks), (uint32_t)(st - q->stages));
  br_sched_doom(s, q, &err);
}

static bool void_task(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, br_actions *out) {
  bool changed = false;
  if (t->running_on != BR_SCHED_NONE) {
    br_sched_cancel_attempt(s, q, st, t, out);
    changed = true;
  }
  if (t->made_by == 0) return changed;
  doom_if_read(s, q, st, t);
  if (t->alive) br_sched_drop_output(s, q, st, t, out);
  t->made_by = 0;
  t->voided = true;
  return true;
}

static bool void_readers(br_sched *s, sched_query *q, sched_stage *st, uint32_t task, bool *all, br_actions *out) {
  bool changed = false;
  for (size_t k = 0; k < st->n_consumers; k++) {
    sched_stage *c = &q->stages[st->consumers[k].stage];
    const br_sched_input *in = &c->inputs[st->consumers[k].input];
    if (in->kind == BR_READ_FORWARD) {
      sched_task *r = forward_reader(c, in, task);
      if (r) changed |= void_task(s, q, c, r, out);
    } else if (!*all) {
      for (uint32_t i = 0; i < c->n_tasks; i++) changed |= void_task(s, q, c, &c->tasks[i], out);
    }
  }
  *all = true;
  return changed;
}

static bool void_mixed(br_sched *s, sched_query *q, br_actions *out) {
  bool changed = false;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    sched_stage *st = &q->stages[i];
    bool all = false; /* the readers of the whole stage were seen */
    for (uint32_t k = 0; k < st->n_tasks; k++) {
      sched_task *t = &st->tasks[k];
      bool lost = st->indeterminate && t->want && t->made_by != 0;
      bool again = lost && !t->remake;
      if (lost) doom_if_read(s, q, st, t); /* each time: the caller's word may come after the loss */
      if (!again && !t->voided) continue;
      t->remake |= again;
      t->voided = false;
      changed |= void_readers(s, q, st, k, &all, out);
    }
  }
  return changed;
}

/* ---- 3. apply */
static void apply_wants(br_sched *s, sched_query *q, sched_stage *st, br_actions *out) {
  for (uint32_t i = 0; i < st->n_tasks; i++) {
    sched_task *t = &st->tasks[i];
    if (t->want == t->will) continue;
    if (t->will) { /* nobody needs it any more */
      br_sched_unready(q, st, t);
      if (t->running_on != BR_SCHED_NONE) br_sched_cancel_attempt(s, q, st, t, out);
    }
    t->will = t->want;
    st->todo += t->will ? 1 : -1u;
    q->todo += t->will ? 1 : -1u;
    br_sched_set_state(st, t, t->will || t->made_by == 0 ? BR_TASK_PENDING : BR_TASK_COMMITTED);
  }
}

static bool readers_closed(const sched_query *q, const sched_stage *st) {
  for (size_t k = 0; k < st->n_consumers; k++)
    if (!q->stages[st->consumers[k].stage].closed) return false;
  return true;
}

/* No loss can make a task of this stage run again: nobody needs its outputs, or they outlive the workers. (A file that goes all the same
 * is made again like everything else, from further back.) */
static bool closed(const sched_query *q, const sched_stage *st) {
  if (st->todo > 0 || st->unread > 0) return false;
  return (st->outlives && st->alive == st->n_tasks) || readers_closed(q, st);
}

void br_sched_set_retired(br_sched *s, sched_stage *st, bool retired) {
  if (st->retired == retired) return;
  st->retired = retired;
  for (uint32_t i = 0; i < st->n_tasks && st->alive > 0 && !st->outlives; i++)
    if (st->tasks[i].alive) s->workers[st->tasks[i].output_at].spare += retired ? 1 : -1u;
}

static void say_stage(const sched_query *q, const sched_stage *st, br_action_kind kind, br_actions *out) {
  br_action *a = br_sched_act(out, kind, q->id);
  a->stage = (uint32_t)(st - q->stages);
  a->version = st->version;
}

static void publish(const sched_query *q, sched_stage *st, br_actions *out) {
  st->dirty = false;
  st->version++;
  say_stage(q, st, BR_ACT_TABLE, out);
}

static void drop_stage(br_sched *s, sched_query *q, sched_stage *st, br_actions *out) {
  say_stage(q, st, BR_ACT_DROP_STAGE, out);
  for (uint32_t i = 0; i < st->n_tasks && st->alive > 0; i++)
    if (st->tasks[i].alive) br_sched_kill_output(s, st, &st->tasks[i]);
  br_sched_set_retired(s, st, false);
}

/* Nobody reads the stage at the moment. */
static void rest_stage(br_sched *s, sched_query *q, sched_stage *st, br_actions *out) {
  if (st->last || st->alive == 0 || (q->todo == 0 && q->unread == 0))
    return; /* the query ends now: DROP_QUERY says it */
  if (readers_closed(q, st)) {
    drop_stage(s, q, st, out);
  } else if (!st->retired) {
    br_sched_set_retired(s, st, true);
    say_stage(q, st, BR_ACT_RETIRE_STAGE, out);
  }
}

static void finish_stage(br_sched *s, sched_query *q, sched_stage *st, br_actions *out) {
  bool demanded = br_sched_stage_demanded(q, st);
  if (demanded && st->retired) { /* a loss brought it back: its table takes the RETIRE_STAGE back */
    br_sched_set_retired(s, st, false);
    publish(q, st, out);
  }
  if (st->todo > 0) {
    st->done = false;
    return;
  }
  if (!st->done) {
    st->done = true;
    say_stage(q, st, BR_ACT_STAGE_DONE, out);
  }
  if (demanded && (st->dirty || st->version == 0)) publish(q, st, out);
  if (!demanded && st->unread == 0) rest_stage(s, q, st, out);
}

static void open_or_close(br_sched *s, sched_query *q, sched_stage *st) {
  bool open = true;
  for (size_t k = 0; k < st->n_inputs; k++) open &= q->stages[st->inputs[k].stage].todo == 0;
  if (!open && st->ready > 0)
    for (uint32_t i = 0; i < st->n_tasks; i++) br_sched_unready(q, st, &st->tasks[i]);
  st->open = open;
  if (open && st->todo > 0)
    for (uint32_t i = 0; i < st->n_tasks; i++) br_sched_make_ready(s, q, st, &st->tasks[i]);
}

void br_sched_plan(br_sched *s, sched_query *q, br_actions *out) {
  want(q);
  while (q->indeterminate && void_mixed(s, q, out)) want(q);
  for (uint32_t i = 0; i < q->n_stages; i++) apply_wants(s, q, &q->stages[i], out);
  for (uint32_t i = q->n_stages; i > 0; i--) q->stages[i - 1].closed = closed(q, &q->stages[i - 1]);
  for (uint32_t i = 0; i < q->n_stages; i++) finish_stage(s, q, &q->stages[i], out);
  for (uint32_t i = 0; i < q->n_stages; i++) open_or_close(s, q, &q->stages[i]);
}
