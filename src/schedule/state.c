/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries, stages and tasks: made from BR_EV_QUERY, freed when the query ends, counted, looked at. One thread. Memory is
 * O(tasks + consumer edges), bounded by BR_SCHED_MAX_TASKS a query.
 */
#include "schedule/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static uint32_t or_default(uint32_t v, uint32_t d) { return v ? v : d; }

br_sched *br_sched_new(const br_sched_options *o) {
  br_sched *s = br_calloc(1, sizeof *s);
  if (o) s->o = *o;
  s->o.max_attempts = or_default(s->o.max_attempts, 4);
  s->o.backoff_first_ms = or_default(s->o.backoff_first_ms, 200);
  s->o.backoff_max_ms = or_default(s->o.backoff_max_ms, 10000);
  s->o.no_worker_ms = or_default(s->o.no_worker_ms, 60000);
  s->o.silent_ms = or_default(s->o.silent_ms, 10000);
  s->o.killer_executors = or_default(s->o.killer_executors, 3);
  s->o.cancel_ms = or_default(s->o.cancel_ms, 30000);
  s->o.probe_ms = or_default(s->o.probe_ms, 5000);
  s->o.straggler_percent = or_default(s->o.straggler_percent, 150);
  s->o.straggler_done_percent = or_default(s->o.straggler_done_percent, 75);
  s->o.straggler_min_ms = or_default(s->o.straggler_min_ms, 2000);
  s->o.split_passes = or_default(s->o.split_passes, 4);
  if (s->o.split_passes > BR_SCHED_MAX_PASSES) s->o.split_passes = BR_SCHED_MAX_PASSES;
  if (s->o.max_attempts > 200) s->o.max_attempts = 200;       /* counted in a byte */
  if (s->o.killer_executors > 60) s->o.killer_executors = 60; /* in quarters */
  s->query_by_id = br_map_new();
  s->worker_by_id = br_map_new();
  s->gone_first = s->gone_last = BR_SCHED_NONE;
  s->silent_at_ms = s->cancel_at_ms = s->probe_at_ms = s->straggler_at_ms = UINT64_MAX;
  return s;
}

void br_sched_clear_stage(sched_stage *st) {
  free(st->inputs);
  free(st->tasks);
  free(st->reads);
  free(st->near);
  free(st->lists);
  free(st->times);
}

static void free_query_memory(sched_query *q) {
  for (uint32_t i = 0; i < q->n_stages; i++) {
    br_sched_clear_stage(&q->stages[i]);
    free(q->stages[i].consumers);
  }
  free(q->stages);
  free(q->doom);
  free(q);
}

void br_sched_free(br_sched *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < s->n_queries; i++) free_query_memory(s->queries[i]);
  for (uint32_t i = 0; i < s->n_workers; i++) free(s->workers[i].slots);
  br_map_free(s->query_by_id);
  br_map_free(s->worker_by_id);
  free(s->queries);
  free(s->workers);
  free(s->free);
  free(s->holds);
  free(s->touched);
  free(s->joined);
  free(s->waits);
  free(s->twins);
  free(s);
}

/* ---- making a query */
br_status br_sched_check_stages(const br_sched_stage *stages, size_t n, br_error *err) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < n; i++) {
    const br_sched_stage *st = &stages[i];
    total += st->tasks;
    for (size_t k = 0; k < st->n_inputs; k++) {
      const br_sched_input *in = &st->inputs[k];
      if (in->stage >= i)
        return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "stage %u reads stage %u: producers have smaller numbers",
                       i, in->stage);
      if (in->kind == BR_READ_FORWARD && (uint64_t)in->first + stages[in->stage].tasks > st->tasks)
        return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL,
                       "stage %u of %u tasks can't read the %u tasks of stage %u one by one from its task %u on", i,
                       st->tasks, stages[in->stage].tasks, in->stage, in->first);
    }
  }
  if (total > BR_SCHED_MAX_TASKS)
    return br_fail(
        err, BR_INVALID, BR_BLAME_USER,
        "the query has %llu tasks, more than the %u that one query may have: use fewer partitions or larger files",
        (unsigned long long)total, BR_SCHED_MAX_TASKS);
  return BR_OK;
}

void br_sched_init_stage(sched_stage *st, const br_sched_stage *from) {
  st->n_tasks = from->tasks;
  st->indeterminate = from->indeterminate;
  st->result = from->result;
  st->splittable = from->splittable;
  st->asks = from->adapts;
  st->outlives = from->outlives; /* also a result, which the caller then reads from there */
  st->n_inputs = from->n_inputs;
  st->inputs = br_calloc(from->n_inputs, sizeof *st->inputs);
  if (from->n_inputs) memcpy(st->inputs, from->inputs, from->n_inputs * sizeof *st->inputs);
  for (size_t k = 0; k < from->n_inputs; k++) st->forward |= from->inputs[k].kind == BR_READ_FORWARD;
  if (from->near != NULL) {
    st->near = br_calloc(from->tasks, sizeof *st->near);
    if (from->tasks) memcpy(st->near, from->near, from->tasks * sizeof *st->near);
    st->forward = true;
  }
  st->tasks = br_calloc(from->tasks, sizeof *st->tasks);
  st->reads = br_calloc(from->tasks * from->n_inputs, sizeof *st->reads);
  for (uint32_t t = 0; t < from->tasks; t++) {
    sched_task *task = &st->tasks[t];
    task->gpu = from->gpu;
    task->running_on = task->output_at = task->list = task->prev = task->next = BR_SCHED_NONE;
  }
  st->counts[BR_TASK_PENDING] = from->tasks;
  st->unread = from->result ? from->tasks : 0;
}

void br_sched_link_consumers(sched_query *q) {
  for (uint32_t i = 0; i < q->n_stages; i++) {
    free(q->stages[i].consumers);
    q->stages[i].n_consumers = 0;
  }
  for (uint32_t i = 0; i < q->n_stages; i++)
    for (uint32_t k = 0; k < q->stages[i].n_inputs; k++) q->stages[q->stages[i].inputs[k].stage].n_consumers++;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    q->stages[i].consumers = br_calloc(q->stages[i].n_consumers, sizeof(sched_consumer));
    if (!q->stages[i].begun) q->stages[i].last = !q->stages[i].result && q->stages[i].n_consumers == 0;
    q->stages[i].n_consumers = 0;
  }
  for (uint32_t i = 0; i < q->n_stages; i++)
    for (uint32_t k = 0; k < q->stages[i].n_inputs; k++) {
      sched_stage *p = &q->stages[q->stages[i].inputs[k].stage];
      p->consumers[p->n_consumers++] = (sched_consumer){.stage = i, .input = k};
    }
}

sched_query *br_sched_query_new(br_sched *s, const br_event *e) {
  sched_query *q = br_calloc(1, sizeof *q);
  br_error err;
  q->id = e->query;
  q->weight = e->weight ? e->weight : 1;
  q->max_running = e->max_running;
  q->eager = e->mode == BR_SCHED_EAGER;
  q->started_ms = s->now_ms;
  q->served = ++s->turn; /* a new query waits for its turn like the others */
  q->index = s->n_queries;
  br_grow((void **)&s->queries, &s->cap_queries, s->n_queries, sizeof *s->queries);
  s->queries[s->n_queries++] = q;
  br_map_put(s->query_by_id, q->id, q);
  if (br_sched_check_stages(e->stages, e->n_stages, &err) != BR_OK) {
    br_sched_doom(s, q, &err);
    return q;
  }
  q->n_stages = (uint32_t)e->n_stages;
  q->stages = br_calloc(e->n_stages, sizeof *q->stages);
  for (uint32_t i = 0; i < q->n_stages; i++) {
    br_sched_init_stage(&q->stages[i], &e->stages[i]);
    q->unread += q->stages[i].unread;
    q->indeterminate |= q->stages[i].indeterminate;
  }
  br_sched_link_consumers(q);
  br_sched_touch(s, q, true);
  return q;
}

void br_sched_query_free(br_sched *s, sched_query *q) {
  for (uint32_t i = 0; i < q->n_stages; i++)
    for (uint32_t t = 0; q->stages[i].alive > 0 && t < q->stages[i].n_tasks; t++)
      if (q->stages[i].tasks[t].alive) br_sched_kill_output(s, &q->stages[i], &q->stages[i].tasks[t]);
  br_map_remove(s->query_by_id, q->id);
  s->queries[q->index] = s->queries[--s->n_queries];
  s->queries[q->index]->index = q->index;
  s->past[s->n_past++ % BR_SCHED_MAX_PAST_QUERIES] = q->id;
  free_query_memory(q);
}

/* ---- finding and changing */
sched_query *br_sched_query_find(const br_sched *s, uint64_t id) { return br_map_get(s->query_by_id, id); }

bool br_sched_task_find(const br_sched *s, uint64_t query, uint32_t stage, uint32_t task, sched_query **q,
                        sched_stage **st, sched_task **t) {
  *q = br_sched_query_find(s, query);
  if (*q == NULL || stage >= (*q)->n_stages || task >= (*q)->stages[stage].n_tasks) return false;
  *st = &(*q)->stages[stage];
  *t = &(*st)->tasks[task];
  return true;
}

void br_sched_set_state(sched_stage *st, sched_task *t, br_task_state state) {
  st->counts[t->state]--;
  t->state = (uint8_t)state;
  st->counts[state]++;
}

void br_sched_touch(br_sched *s, sched_query *q, bool replan) {
  q->replan |= replan;
  if (q->touched) return;
  q->touched = true;
  br_grow((void **)&s->touched, &s->cap_touched, s->n_touched, sizeof *s->touched);
  s->touched[s->n_touched++] = q;
}

void br_sched_doom(br_sched *s, sched_query *q, const br_error *e) {
  if (q->doom == NULL) {
    q->doom = br_malloc(sizeof *q->doom);
    *q->doom = *e;
  }
  br_sched_touch(s, q, false);
}

br_action *br_sched_act(br_actions *out, br_action_kind kind, uint64_t query) {
  br_grow((void **)&out->items, &out->capacity, out->count, sizeof *out->items);
  br_action *a = &out->items[out->count++];
  memset(a, 0,
         offsetof(br_action, error)); /* the text of an error that is not there need not be cleared: 2 KiB an action */
  memset(&a->error, 0, offsetof(br_error, message) + 1);
  a->kind = kind;
  a->query = query;
  return a;
}

br_attempt_id br_sched_attempt(const sched_query *q, const sched_stage *st, const sched_task *t, uint16_t attempt) {
  return (br_attempt_id){
      .query = q->id, .stage = (uint32_t)(st - q->stages), .task = (uint32_t)(t - st->tasks), .attempt = attempt};
}

/* ---- looking in */
bool br_sched_stage_counts(const br_sched *s, uint64_t query, uint32_t stage, br_sched_counts *out) {
  const sched_query *q = br_sched_query_find(s, query);
  if (q == NULL || stage >= q->n_stages) return false;
  memcpy(out->tasks, q->stages[stage].counts, sizeof out->tasks);
  return true;
}

bool br_sched_output(const br_sched *s, uint64_t query, uint32_t stage, uint32_t task, br_map_output_id *out,
                     bool *growing) {
  sched_query *q;
  sched_stage *st;
  sched_task *t;
  if (!br_sched_task_find(s, query, stage, task, &q, &st, &t) || !br_sched_named(q, t)) return false;
  *growing = !t->alive;
  const sched_worker *w = &s->workers[t->alive ? t->output_at : t->running_on];
  out->made_by = br_sched_attempt(q, st, t, t->alive ? t->made_by : t->now);
  out->worker = w->id;
  out->incarnation = w->incarnation;
  return true;
}

uint32_t br_sched_table_version(const br_sched *s, uint64_t query, uint32_t stage) {
  const sched_query *q = br_sched_query_find(s, query);
  return q == NULL || stage >= q->n_stages ? 0 : q->stages[stage].version;
}

uint64_t br_sched_memory_bytes(const br_sched *s) {
  uint64_t n = sizeof *s + s->cap_queries * sizeof *s->queries + s->cap_workers * sizeof *s->workers +
               s->cap_free * sizeof *s->free + s->cap_holds * sizeof *s->holds + s->cap_touched * sizeof *s->touched +
               s->cap_joined * sizeof *s->joined + s->cap_waits * sizeof *s->waits + s->cap_twins * sizeof *s->twins;
  for (uint32_t i = 0; i < s->n_workers; i++) n += s->workers[i].n_slots * sizeof(sched_slot);
  for (uint32_t i = 0; i < s->n_queries; i++) {
    const sched_query *q = s->queries[i];
    n += sizeof *q + q->n_stages * sizeof(sched_stage) + (q->doom ? sizeof *q->doom : 0);
    for (uint32_t k = 0; k < q->n_stages; k++) {
      const sched_stage *st = &q->stages[k];
      n += (uint64_t)st->n_tasks *
               (sizeof(sched_task) + st->n_inputs * sizeof *st->reads + (st->near ? sizeof *st->near : 0)) +
           st->n_inputs * sizeof *st->inputs + st->n_consumers * sizeof *st->consumers +
           st->n_lists * sizeof *st->lists + (st->times ? BR_SCHED_TIME_BUCKETS * sizeof *st->times : 0);
    }
  }
  return n;
}
