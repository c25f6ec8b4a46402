/* SPDX-License-Identifier: Apache-2.0
 * Questions of the scheduler: a stage's inputs are all committed, how is it to be run? Asked while actions are carried out, answered
 * after the step that asked, by a step of its own. Loop thread. Bounds: one question a stage. */
#include "base/mem.h"
#include "coordinator/driver_inside.h"

void br_driver_asked(br_driver *d, const br_action *a) {
  br_grow((void **)&d->asks, &d->cap_asks, d->n_asks, sizeof *d->asks);
  d->asks[d->n_asks++] = (br_ask){.query = a->query, .stage = a->stage};
}

static void answer(br_driver *d, br_query *q, uint32_t stage) {
  br_arena *arena = br_arena_new();
  pthread_mutex_lock(&q->lock);
  br_query_adapt(q, stage);
  if (q->runs[stage].adapted)
    br_events_emit(d->events, "stage_adapted", "{s:I, s:I, s:I, s:s}", "query", (json_int_t)q->id, "stage",
                   (json_int_t)stage, "tasks", (json_int_t)q->runs[stage].n_tasks, "what", q->runs[stage].adapted);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->lock);
  br_event e = {
      .kind = BR_EV_ADAPT, .query = q->id, .stage = stage, .stages = br_driver_stages(q, arena), .n_stages = q->n_runs};
  br_driver_step(d, &e); /* q may be gone now */
  br_arena_free(arena);
}

void br_driver_answer(br_driver *d) {
  while (d->n_asks > 0) {
    br_ask ask = d->asks[--d->n_asks];
    br_query *q = br_map_get(d->queries, ask.query);
    if (q != NULL) answer(d, q, ask.stage);
  }
}
