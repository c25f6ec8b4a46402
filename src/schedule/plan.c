/* SPDX-License-Identifier: Apache-2.0
 *
 * What a query still has to run, from its lineage, in one plan: at the start, when a stage has finished, and when outputs died.
 *
 *   1. want: from the last stage to the first, a task has to run when its output is needed (by the caller, or by a task that has to run)
 *      and is not alive. So recovery is the same computation as the first run, and reaches back exactly as far as it must.
 *   2. void: what read an indeterminate output that is made again, or what was made from that, mixes two versions of it: running attempts are
 *      cancelled, committed ones count as never made. Who read what is known by table versions, exactly: a reader is too old when its version
 *      is before the first one that names the attempt that counts now. 
 *   3. EAGER: readers that are bound to what is not there any more are cancelled. What they wrote may have been read, so as long as 2 or 3 change
 *      anything: back to 1. Each round unmakes an output or stops an attempt, so it ends.
 *   4. apply: new and vanished needs, done stages, tables, retired and dropped stages, opened and closed stages, questions.
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

/* The first table whose readers have read what counts of this task; older ones have read what it does not stand for any more. 0: any. */
static uint32_t floor_of(const sched_query *q, const sched_stage *st, const sched_task *t) {
  if (t->voided) return st->version + 1;
  if (!st->indeterminate) return 0; /* made again it is the same */
  if (!t->alive && !t->want) return 0;
  return br_sched_named(q, t) ? t->since : st->version + 1;
}

/* What the newest attempt of this task has read, or reads, does not go together with what is there now. */
static bool void_task(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, br_actions *out) {
  bool changed = t->now != 0 || t->made_by != 0;
  bool seen =
      t->made_by != 0 || (q->eager && st->version > 0); /* somebody may have read what one of its attempts wrote */
  if (t->now != 0) br_sched_cancel_attempt(s, q, st, t, out);
  if (t->made_by != 0) doom_if_read(s, q, st, t);
  if (t->alive) br_sched_drop_output(s, q, st, t, out);
  t->made_by = 0;
  t->voided |= seen; /* once for each input that is void */
  return changed;
}

static bool void_older(br_sched *s, sched_query *q, const sched_consumer *by, sched_task *r, uint32_t floor,
                       br_actions *out) {
  sched_stage *c = &q->stages[by->stage];
  size_t me = (size_t)(r - c->tasks);
  if (r->attempt == 0 || c->reads[me * c->n_inputs + by->input] >= floor) return false;
  return void_task(s, q, c, r, out);
}

static bool void_forward(br_sched *s, sched_query *q, const sched_stage *st, uint32_t task, uint32_t floor,
                         br_actions *out) {
  bool changed = false;
  for (size_t k = 0; k < st->n_consumers; k++) {
    sched_stage *c = &q->stages[st->consumers[k].stage];
    const br_sched_input *in = &c->inputs[st->consumers[k].input];
    sched_task *r = in->kind == BR_READ_FORWARD ? forward_reader(c, in, task) : NULL;
    if (r) changed |= void_older(s, q, &st->consumers[k], r, floor, out);
  }
  return changed;
}

static bool void_all(br_sched *s, sched_query *q, const sched_stage *st, uint32_t floor, br_actions *out) {
  bool changed = false;
  for (size_t k = 0; k < st->n_consumers; k++) {
    sched_stage *c = &q->stages[st->consumers[k].stage];
    if (c->inputs[st->consumers[k].input].kind == BR_READ_FORWARD) continue;
    for (uint32_t i = 0; i < c->n_tasks; i++) changed |= void_older(s, q, &st->consumers[k], &c->tasks[i], floor, out);
  }
  return changed;
}

static bool void_mixed(br_sched *s, sched_query *q, br_actions *out) {
  bool changed = false;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    sched_stage *st = &q->stages[i];
    uint32_t all = 0;
    for (uint32_t k = 0; k < st->n_tasks; k++) {
      sched_task *t = &st->tasks[k];
      if (st->indeterminate && t->want && t->made_by != 0)
        doom_if_read(s, q, st, t); /* each time: the caller's word may come after the loss */
      uint32_t floor = floor_of(q, st, t);
      t->voided = false;
      if (floor > all) all = floor;
      if (floor > 0) changed |= void_forward(s, q, st, k, floor, out);
    }
    if (all > 0) changed |= void_all(s, q, st, all, out);
  }
  return changed;
}

/* ---- 4. apply */
static void apply_wants(br_sched *s, sched_query *q, sched_stage *st, br_actions *out) {
  uint32_t before = st->todo;
  for (uint32_t i = 0; i < st->n_tasks; i++) {
    sched_task *t = &st->tasks[i];
    if (t->want == t->will) continue;
    bool stopped = false;
    if (t->will) { /* nobody needs it any more */
      br_sched_unready(s, q, st, t);
      stopped = q->eager && t->now != 0;
      if (t->now != 0) br_sched_cancel_attempt(s, q, st, t, out);
    }
    t->will = t->want;
    st->todo += t->will ? 1 : -1u;
    q->todo += t->will ? 1 : -1u;
    br_sched_set_state(st, t,
                       t->will           ? BR_TASK_PENDING
                       : t->made_by != 0 ? BR_TASK_COMMITTED
                       : stopped         ? BR_TASK_STOPPED
                                         : BR_TASK_PENDING);
  }
  if (st->todo < before) br_sched_look_soon(s, st);
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
    br_sched_publish(q, st, out);
  }
  if (st->todo > 0) {
    st->done = false;
    return;
  }
  if (!st->done) {
    st->done = true;
    say_stage(q, st, BR_ACT_STAGE_DONE, out);
  }
  if (demanded && !q->eager && (st->dirty || st->version == 0)) br_sched_publish(q, st, out);
  if (!demanded && st->unread == 0) rest_stage(s, q, st, out);
}

void br_sched_plan(br_sched *s, sched_query *q, br_actions *out) {
  q->quiet = true;
  for (bool changed = true; changed;) {
    want(q);
    changed = q->indeterminate && void_mixed(s, q, out);
    if (q->eager) changed |= br_sched_cancel_broken(s, q, out) && q->indeterminate;
  }
  for (uint32_t i = 0; i < q->n_stages; i++) apply_wants(s, q, &q->stages[i], out);
  for (uint32_t i = q->n_stages; i > 0; i--) q->stages[i - 1].closed = closed(q, &q->stages[i - 1]);
  for (uint32_t i = 0; i < q->n_stages; i++) finish_stage(s, q, &q->stages[i], out);
  q->quiet = false;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    q->stages[i].flows = q->stages[i].todo == q->stages[i].flying;
    br_sched_open_or_close(s, q, &q->stages[i]);
  }
  br_sched_ask(q, out);
}
