/* SPDX-License-Identifier: Apache-2.0
 *
 * Ready tasks and held tasks. A stage lists its ready tasks: list 0 for "anywhere", list 1 + w for those whose FORWARD input, or
 * what they read beside inputs (near), lies on worker w; those that need a worker for themselves wait elsewhere (alone.c). Tasks that failed wait in a heap by time. One thread; a task is in at most one list, and has at most one entry in
 * the heap, so both are O(tasks).
 */
#include "base/mem.h"
#include "schedule/state.h"

static bool takes_tasks(const sched_worker *w, const sched_task *t) {
  return w->state == SCHED_LIVE && !w->draining && w->id != t->avoid;
}

/* The worker that holds what the task reads by FORWARD, or is near to; NONE: there is none, or it takes nothing. */
static uint32_t preferred_worker(const br_sched *s, const sched_query *q, const sched_stage *st, uint32_t task) {
  for (size_t k = 0; k < st->n_inputs; k++) {
    const br_sched_input *in = &st->inputs[k];
    const sched_stage *p = &q->stages[in->stage];
    if (in->kind != BR_READ_FORWARD || task < in->first || task - in->first >= p->n_tasks) continue;
    const sched_task *from = &p->tasks[task - in->first];
    uint32_t at = from->alive ? from->output_at : from->running_on;
    if (at == BR_SCHED_NONE || p->outlives) continue;
    if (takes_tasks(&s->workers[at], &st->tasks[task])) return at;
  }
  uint32_t near =
      st->near == NULL || st->near[task] == 0 ? 0 : (uint32_t)(uintptr_t)br_map_get(s->worker_by_id, st->near[task]);
  return near > 0 && takes_tasks(&s->workers[near - 1], &st->tasks[task]) ? near - 1 : BR_SCHED_NONE;
}

static void need_list(sched_stage *st, uint32_t list) {
  if (list < st->n_lists) return;
  uint32_t n = st->n_lists ? st->n_lists : 1;
  while (n <= list) n *= 2;
  st->lists = br_realloc(st->lists, n * sizeof *st->lists);
  for (uint32_t i = st->n_lists; i < n; i++) st->lists[i] = (sched_list){BR_SCHED_NONE, BR_SCHED_NONE};
  st->n_lists = n;
}

static void append(sched_stage *st, sched_task *t, uint32_t list) {
  uint32_t me = (uint32_t)(t - st->tasks);
  need_list(st, list);
  sched_list *l = &st->lists[list];
  t->list = list;
  t->prev = l->tail;
  t->next = BR_SCHED_NONE;
  if (l->tail == BR_SCHED_NONE)
    l->head = me;
  else
    st->tasks[l->tail].next = me;
  l->tail = me;
}

static void cut(sched_stage *st, sched_task *t) {
  sched_list *l = &st->lists[t->list];
  if (t->prev == BR_SCHED_NONE)
    l->head = t->next;
  else
    st->tasks[t->prev].next = t->next;
  if (t->next == BR_SCHED_NONE)
    l->tail = t->prev;
  else
    st->tasks[t->next].prev = t->prev;
  t->list = t->prev = t->next = BR_SCHED_NONE;
}

void br_sched_make_ready(br_sched *s, sched_query *q, sched_stage *st, sched_task *t) {
  if (!t->will || !st->open || t->held || t->now != 0 || t->list != BR_SCHED_NONE) return;
  if (t->ladder != SCHED_SHARED) {
    br_sched_wait_alone(s, q, st, t);
    br_sched_set_state(st, t, BR_TASK_READY);
    return;
  }
  uint32_t w = st->forward ? preferred_worker(s, q, st, (uint32_t)(t - st->tasks)) : BR_SCHED_NONE;
  append(st, t, w == BR_SCHED_NONE ? 0 : 1 + w);
  br_sched_set_state(st, t, BR_TASK_READY);
  st->ready++;
  q->ready++;
}

void br_sched_unready(br_sched *s, sched_query *q, sched_stage *st, sched_task *t) {
  if (t->list == BR_SCHED_NONE) return;
  if (t->list == BR_SCHED_WAITS) {
    br_sched_wait_over(s, q, st, t);
    br_sched_set_state(st, t, BR_TASK_PENDING);
    return;
  }
  cut(st, t);
  br_sched_set_state(st, t, BR_TASK_PENDING);
  st->ready--;
  q->ready--;
}

void br_sched_unlist_worker(br_sched *s, uint32_t w) {
  for (uint32_t i = 0; i < s->n_queries; i++)
    for (uint32_t k = 0; k < s->queries[i]->n_stages; k++) {
      sched_stage *st = &s->queries[i]->stages[k];
      while (1 + w < st->n_lists && st->lists[1 + w].head != BR_SCHED_NONE) {
        sched_task *t = &st->tasks[st->lists[1 + w].head];
        cut(st, t);
        append(st, t, 0);
      }
    }
}

/* ---- held tasks: a binary heap, earliest first */
static bool earlier(const sched_hold *a, const sched_hold *b) {
  if (a->at_ms != b->at_ms) return a->at_ms < b->at_ms;
  if (a->query != b->query) return a->query < b->query;
  if (a->stage != b->stage) return a->stage < b->stage;
  return a->task < b->task;
}

static void swap_holds(sched_hold *a, sched_hold *b) {
  sched_hold h = *a;
  *a = *b;
  *b = h;
}

static void heap_push(br_sched *s, sched_hold h) {
  br_grow((void **)&s->holds, &s->cap_holds, s->n_holds, sizeof *s->holds);
  size_t i = s->n_holds++;
  s->holds[i] = h;
  for (; i > 0 && earlier(&s->holds[i], &s->holds[(i - 1) / 2]); i = (i - 1) / 2)
    swap_holds(&s->holds[i], &s->holds[(i - 1) / 2]);
}

static sched_hold heap_pop(br_sched *s) {
  sched_hold first = s->holds[0];
  s->holds[0] = s->holds[--s->n_holds];
  for (size_t i = 0;;) {
    size_t least = i, left = 2 * i + 1;
    for (size_t c = left; c < left + 2 && c < s->n_holds; c++)
      if (earlier(&s->holds[c], &s->holds[least])) least = c;
    if (least == i) break;
    swap_holds(&s->holds[i], &s->holds[least]);
    i = least;
  }
  return first;
}

void br_sched_hold(br_sched *s, sched_query *q, sched_stage *st, sched_task *t, uint32_t failures) {
  if (t->held) return;
  uint64_t ms = s->o.backoff_first_ms;
  for (uint32_t i = 1; i < failures && ms < s->o.backoff_max_ms; i++) ms *= 2;
  if (ms > s->o.backoff_max_ms) ms = s->o.backoff_max_ms;
  br_sched_unready(s, q, st, t);
  t->held = true;
  heap_push(s, (sched_hold){.at_ms = s->now_ms + ms,
                            .query = q->id,
                            .stage = (uint32_t)(st - q->stages),
                            .task = (uint32_t)(t - st->tasks)});
}

void br_sched_release_held(br_sched *s) {
  while (s->n_holds > 0 && s->holds[0].at_ms <= s->now_ms) {
    sched_hold h = heap_pop(s);
    sched_query *q;
    sched_stage *st;
    sched_task *t;
    if (!br_sched_task_find(s, h.query, h.stage, h.task, &q, &st, &t) || !t->held) continue;
    t->held = false;
    br_sched_make_ready(s, q, st, t);
  }
}
