/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that are planned again before they start. When all that such a stage reads is committed its true sizes are known: BR_ACT_ASK asks
 * the caller, the stage stays closed, and BR_EV_ADAPT answers with the plan as it is now. The asked stage may have other tasks and inputs
 * then, and so may every stage that has not started and depends on it (FORWARD readers, a stage that is done within another one). What
 * has started stays as it is: attempts, outputs and tables keep their meaning, and recovery knows one plan only.
 *
 * A stage is asked for once. What is lost afterwards is made again by the plan as it was answered. EAGER: a stage that starts while its
 * inputs are being written is not asked for. One thread. O(tasks that change) an answer.
 */
#include <string.h>

#include "base/mem.h"
#include "schedule/state.h"

static bool inputs_committed(const sched_query *q, const sched_stage *st) {
  for (size_t k = 0; k < st->n_inputs; k++)
    if (q->stages[st->inputs[k].stage].todo > 0) return false;
  return true;
}

bool br_sched_must_ask(const sched_query *q, const sched_stage *st) {
  return st->asks && (st->asked || inputs_committed(q, st));
}

void br_sched_ask(sched_query *q, br_actions *out) {
  for (uint32_t i = 0; i < q->n_stages; i++) {
    sched_stage *st = &q->stages[i];
    if (!st->asks || st->asked || st->todo == 0 || !inputs_committed(q, st)) continue;
    st->asked = true;
    br_sched_act(out, BR_ACT_ASK, q->id)->stage = i;
  }
}

static bool same(const sched_stage *st, const br_sched_stage *now) {
  if (st->n_tasks != now->tasks || st->n_inputs != now->n_inputs || st->result != now->result) return false;
  for (size_t k = 0; k < st->n_inputs; k++) {
    const br_sched_input *a = &st->inputs[k], *b = &now->inputs[k];
    if (a->stage != b->stage || a->kind != b->kind || a->first != b->first || a->complete != b->complete) return false;
  }
  return true;
}

/* None of its tasks was ever started, so none is listed, held, or waited for. */
static void replace_stage(sched_query *q, sched_stage *st, const br_sched_stage *now) {
  bool asks = st->asks;
  q->todo -= st->todo;
  q->unread -= st->unread;
  br_sched_clear_stage(st);
  *st = (sched_stage){.consumers = st->consumers,
                      .n_consumers = st->n_consumers,
                      .asked = st->asked,
                      .done = st->done && now->tasks == 0,
                      .version = st->version,
                      .dirty = st->version > 0,
                      .last = st->last};
  br_sched_init_stage(st, now);
  st->asks = asks;
  q->unread += st->unread;
  q->indeterminate |= st->indeterminate;
}

static br_status check_answer(const sched_query *q, const br_event *e, br_error *err) {
  BR_TRY(br_sched_check_stages(e->stages, e->n_stages, err));
  for (uint32_t i = 0; i < q->n_stages; i++) {
    const sched_stage *st = &q->stages[i];
    if (e->n_stages != q->n_stages || ((st->begun || st->ready > 0) && !same(st, &e->stages[i])))
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "stage %u was planned again after it had started", i);
  }
  return BR_OK;
}

void br_sched_adapt(br_sched *s, const br_event *e) {
  sched_query *q = br_sched_query_find(s, e->query);
  br_error err;
  if (q == NULL || e->stage >= q->n_stages || q->doom) return;
  if (!q->stages[e->stage].asks || !q->stages[e->stage].asked) return; /* never asked, or answered before */
  if (check_answer(q, e, &err) != BR_OK) {
    br_sched_doom(s, q, &err);
    return;
  }
  for (uint32_t i = 0; i < q->n_stages; i++)
    if (!same(&q->stages[i], &e->stages[i])) replace_stage(q, &q->stages[i], &e->stages[i]);
  q->stages[e->stage].asks = false;
  br_sched_link_consumers(q);
  br_sched_touch(s, q, true);
}
