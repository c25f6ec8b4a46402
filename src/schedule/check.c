/* SPDX-License-Identifier: Apache-2.0
 *
 * The invariants of the scheduler, for the simulation and the tests: recomputes every count, list and need from scratch. O(everything).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/state.h"

typedef struct report {
  char *out;
  size_t n;
  bool bad;
} report;

static bool bad(report *r, const char *fmt, ...) BR_PRINTF(2, 3);
static bool bad(report *r, const char *fmt, ...) {
  va_list ap;
  if (r->bad) return false;
  va_start(ap, fmt);
  vsnprintf(r->out, r->n, fmt, ap);
  va_end(ap);
  r->bad = true;
  return false;
}

#define MUST(r, cond, ...) ((cond) ? (void)0 : (void)bad((r), __VA_ARGS__))

/* ---- one task */
/* Its name is only made when something is wrong: the simulation looks at millions of tasks. */
typedef struct who {
  const sched_query *q;
  const sched_stage *st;
  const sched_task *t;
  char text[80];
} who;

static const char *text(who *w) {
  snprintf(w->text, sizeof w->text, "query %llu stage %u task %u", (unsigned long long)w->q->id,
           (uint32_t)(w->st - w->q->stages), (uint32_t)(w->t - w->st->tasks));
  return w->text;
}

static void check_twin(report *r, const br_sched *s, const sched_query *q, const sched_stage *st, const sched_task *t,
                       who *name) {
  const sched_twin *twin = br_sched_twin_find(s, q, st, t);
  MUST(r, t->twin == (twin != NULL) && (t->now != 0 || !t->twin), "%s has a second attempt, or not", text(name));
  if (r->bad || twin == NULL) return;
  br_attempt_id id = br_sched_attempt(q, st, t, twin->attempt);
  sched_slot *slot = br_sched_slot_find(&s->workers[twin->worker], &id);
  MUST(r, slot && !slot->cancelling, "%s: its second attempt has no slot", text(name));
  MUST(r, twin->worker != t->running_on && twin->attempt != t->now, "%s: its second attempt is its first", text(name));
  MUST(r, !q->eager || !t->bound, "%s is bound and has a second attempt", text(name));
}

static void check_flight(report *r, const br_sched *s, const sched_query *q, const sched_stage *st, const sched_task *t,
                         who *name) {
  bool flies = t->now != 0;
  bool flying_state = t->state == BR_TASK_ASSIGNED || t->state == BR_TASK_RUNNING;
  MUST(r, flies == flying_state && flies == (t->running_on != BR_SCHED_NONE), "%s is in state %u, running_on %u",
       text(name), t->state, t->running_on);
  if (!flies) return;
  br_attempt_id id = br_sched_attempt(q, st, t, t->now);
  MUST(r, t->will, "%s runs, but nobody needs it", text(name));
  MUST(r, !t->held, "%s runs and waits", text(name));
  MUST(r, t->running_on < s->n_workers && s->workers[t->running_on].state == SCHED_LIVE, "%s runs on a lost worker",
       text(name));
  if (r->bad) return;
  sched_slot *slot = br_sched_slot_find(&s->workers[t->running_on], &id);
  MUST(r, slot && !slot->cancelling, "%s runs without a slot", text(name));
}

static void check_output(report *r, const br_sched *s, const sched_stage *st, const sched_task *t, who *name) {
  if (!t->alive) return;
  MUST(r, t->made_by != 0 && t->made_by <= t->attempt, "%s is alive, made by attempt %u", text(name), t->made_by);
  MUST(r, t->output_at < s->n_workers && (st->outlives || s->workers[t->output_at].state == SCHED_LIVE),
       "%s is alive on a lost worker", text(name));
  MUST(r, t->since <= st->version + 1, "%s is in table %u, the stage has %u", text(name), t->since, st->version);
  MUST(r, !t->will, "%s is alive and to be made", text(name));
}

static void check_list(report *r, const sched_stage *st, const sched_task *t, who *name) {
  bool listed = t->list != BR_SCHED_NONE;
  MUST(r, listed == (t->state == BR_TASK_READY), "%s is in state %u and %s", text(name), t->state,
       listed ? "listed" : "not listed");
  MUST(r, listed == (t->will && st->open && !t->held && t->now == 0),
       "%s is %s (needed %d, open %d, held %d, running on %u)", text(name), listed ? "listed" : "not listed", t->will,
       st->open, t->held, t->running_on);
}

/* An indeterminate input: whoever read it must have read what is there now, or what comes. */
static void check_reads(report *r, const sched_query *q, const sched_stage *st, const sched_task *t, who *name) {
  uint32_t me = (uint32_t)(t - st->tasks);
  if (!t->alive && t->now == 0) return;
  for (size_t k = 0; k < st->n_inputs; k++) {
    const br_sched_input *in = &st->inputs[k];
    const sched_stage *p = &q->stages[in->stage];
    uint32_t version = st->reads[(size_t)me * st->n_inputs + k];
    MUST(r, version >= 1 && version <= p->version, "%s read table %u of stage %u, which has %u", text(name), version,
         in->stage, p->version);
    for (uint32_t i = 0; i < p->n_tasks && p->indeterminate; i++) {
      if (in->kind == BR_READ_FORWARD && (uint64_t)in->first + i != me) continue;
      MUST(r, !br_sched_named(q, &p->tasks[i]) || p->tasks[i].since <= version,
           "%s read table %u of stage %u, but its indeterminate task %u is made again for table %u", text(name),
           version, in->stage, i, p->tasks[i].since);
    }
  }
}

/* EAGER: what runs bound reads what is there or what runs. So there is always somebody who can go on. */
static void check_bound(report *r, const sched_query *q) {
  sched_named *stages = br_calloc(q->n_stages, sizeof *stages);
  for (uint32_t i = 0; i < q->n_stages; i++) stages[i] = br_sched_look(q, &q->stages[i]);
  for (uint32_t i = 0; i < q->n_stages && !r->bad; i++)
    for (uint32_t t = 0; t < q->stages[i].n_tasks; t++) {
      const sched_task *task = &q->stages[i].tasks[t];
      MUST(r, task->now == 0 || !task->bound || !br_sched_broken(q, &q->stages[i], task, stages),
           "query %llu stage %u task %u is bound to what is not there", (unsigned long long)q->id, i, t);
      MUST(r, q->eager || task->now == 0 || !task->bound, "query %llu is staged, but stage %u task %u is bound",
           (unsigned long long)q->id, i, t);
    }
  free(stages);
}

static void check_task(report *r, const br_sched *s, const sched_query *q, const sched_stage *st, const sched_task *t) {
  who me = {.q = q, .st = st, .t = t}, *name = &me;
  check_flight(r, s, q, st, t, name);
  check_twin(r, s, q, st, t, name);
  check_output(r, s, st, t, name);
  check_list(r, st, t, name);
  check_reads(r, q, st, t, name);
  MUST(r, t->state != BR_TASK_COMMITTED || t->made_by, "%s is committed, but never was", text(name));
  MUST(r, (t->state == BR_TASK_COMMITTED) == (!t->will && t->made_by), "%s is in state %u, needed %d, made by %u",
       text(name), t->state, t->will, t->made_by);
  MUST(r, !t->voided, "%s was left voided", text(name));
  MUST(r,
       t->charged < s->o.max_attempts && t->deaths < s->o.killer_executors * BR_SCHED_DEATH &&
           t->fetches < BR_SCHED_TASK_FETCHES,
       "%s failed too often: %u charged, %u executors, %u fetches", text(name), t->charged, t->deaths, t->fetches);
  MUST(r, !t->read || st->result, "%s is read, but no result", text(name));
}

/* ---- needs, from the definition: by recursion over tasks, not by the plan's passes */
static bool reader_wills(const sched_query *q, const sched_stage *st, uint32_t task) {
  for (size_t k = 0; k < st->n_consumers; k++) {
    const sched_stage *c = &q->stages[st->consumers[k].stage];
    const br_sched_input *in = &c->inputs[st->consumers[k].input];
    if (in->kind != BR_READ_FORWARD) {
      if (c->todo > 0) return true;
    } else if ((uint64_t)in->first + task < c->n_tasks && c->tasks[in->first + task].will) {
      return true;
    }
  }
  return false;
}

/* In a stage with work left, needs may have vanished task by task; they are planned away when the stage that read is done. */
static void check_need(report *r, const sched_query *q, const sched_stage *st, uint32_t i) {
  const sched_task *t = &st->tasks[i];
  bool need = st->last ? t->made_by == 0 : !t->alive && ((st->result && !t->read) || reader_wills(q, st, i));
  MUST(r, !need || t->will, "query %llu stage %u task %u is needed, but is not to be run", (unsigned long long)q->id,
       (uint32_t)(st - q->stages), i);
  bool some = st->last || st->result || br_sched_stage_demanded(q, st);
  MUST(r, !t->will || some, "query %llu stage %u task %u is to be run for nobody", (unsigned long long)q->id,
       (uint32_t)(st - q->stages), i);
}

static void check_stage(report *r, const br_sched *s, const sched_query *q, const sched_stage *st) {
  uint32_t todo = 0, alive = 0, ready = 0, unread = 0, flying = 0, counts[8] = {0}, me = (uint32_t)(st - q->stages),
           listed = 0;
  bool open = br_sched_may_open(q, st);
  for (uint32_t i = 0; i < st->n_tasks; i++) {
    const sched_task *t = &st->tasks[i];
    flying += t->now != 0 && !t->twin;

    check_task(r, s, q, st, t);
    check_need(r, q, st, i);
    todo += t->will;
    alive += t->alive;
    ready += t->list != BR_SCHED_NONE && t->list != BR_SCHED_WAITS;
    unread += st->result && !t->read;
    counts[t->state]++;
  }
  for (uint32_t l = 0; l < st->n_lists; l++)
    for (uint32_t at = st->lists[l].head; at != BR_SCHED_NONE && listed <= st->n_tasks;
         at = st->tasks[at].next, listed++)
      MUST(r, st->tasks[at].list == l, "stage %u: task %u is in list %u, but says %u", me, at, l, st->tasks[at].list);
  MUST(r, flying == st->flying, "stage %u: %u attempts are under way, counted %u", me, flying, st->flying);
  MUST(r, todo == st->todo && alive == st->alive && ready == st->ready && unread == st->unread && listed == ready,
       "stage %u: counts are todo %u/%u alive %u/%u ready %u/%u unread %u/%u listed %u", me, st->todo, todo, st->alive,
       alive, st->ready, ready, st->unread, unread, listed);
  MUST(r, memcmp(counts, st->counts, sizeof counts) == 0, "stage %u: the counts by state are wrong", me);
  MUST(r, !st->retired || (st->todo == 0 && !br_sched_stage_demanded(q, st) && st->unread == 0),
       "stage %u is retired, but it is needed", me);
  MUST(r, !st->asks || !st->begun, "stage %u has started, but may still be planned again", me);
  MUST(r, !st->asks || st->asked || st->todo == 0 || !br_sched_must_ask(q, st), "stage %u is ready and not asked for",
       me);
  MUST(r, open == st->open, "stage %u is %s, its inputs say otherwise", me, st->open ? "open" : "closed");
  MUST(r, st->done == (st->todo == 0), "stage %u has %u tasks to do and is %s", me, st->todo,
       st->done ? "done" : "not done");
  MUST(r, q->eager || st->todo > 0 || !br_sched_stage_demanded(q, st) || (!st->dirty && st->version > 0),
       "stage %u: its readers may run, but its table %u is not up to date", me, st->version);
}

static void check_query(report *r, const br_sched *s, const sched_query *q) {
  uint32_t todo = 0, ready = 0, unread = 0, running = 0;
  for (uint32_t i = 0; i < q->n_stages; i++) {
    const sched_stage *st = &q->stages[i];
    check_stage(r, s, q, st);
    todo += st->todo;
    ready += st->ready;
    unread += st->unread;
    MUST(r, !q->eager || st->flows == (st->todo == st->flying), "stage %u of an eager query flows or not", i);
    running += st->counts[BR_TASK_ASSIGNED] + st->counts[BR_TASK_RUNNING];
    for (uint32_t t = 0; t < st->n_tasks; t++) running += st->tasks[t].twin;
  }
  MUST(r, todo == q->todo && ready == q->ready && unread == q->unread && running == q->running,
       "query %llu: counts are todo %u/%u ready %u/%u unread %u/%u running %u/%u", (unsigned long long)q->id, q->todo,
       todo, q->ready, ready, q->unread, unread, q->running, running);
  check_bound(r, q);
  MUST(r, q->max_running == 0 || q->running <= q->max_running, "query %llu runs %u attempts, %u are allowed",
       (unsigned long long)q->id, q->running, q->max_running);
  MUST(r, todo + unread > 0, "query %llu is complete, but still there", (unsigned long long)q->id);
  MUST(r, !q->doom && !q->touched && !q->replan && !q->quiet, "query %llu was not settled", (unsigned long long)q->id);
}

/* ---- workers */
/* Alive outputs that die with the worker; those of them that nobody needs. */
static uint32_t outputs_on(const br_sched *s, uint32_t w, uint32_t *spare) {
  uint32_t n = 0;
  *spare = 0;
  for (uint32_t i = 0; i < s->n_queries; i++)
    for (uint32_t k = 0; k < s->queries[i]->n_stages; k++) {
      const sched_stage *st = &s->queries[i]->stages[k];
      for (uint32_t t = 0; t < st->n_tasks && !st->outlives; t++) {
        if (!st->tasks[t].alive || st->tasks[t].output_at != w) continue;
        n++;
        *spare += st->last || st->retired;
      }
    }
  return n;
}

static void check_slots(report *r, const br_sched *s, uint32_t at) {
  const sched_worker *w = &s->workers[at];
  uint32_t used = 0, alone = 0;
  for (uint32_t i = 0; i < w->n_slots; i++) {
    sched_query *q;
    sched_stage *st;
    sched_task *t;
    const sched_slot *slot = &w->slots[i];
    used += slot->used;
    alone += slot->used && slot->alone;
    if (!slot->used || slot->cancelling) continue;
    bool found = br_sched_task_find(s, slot->attempt.query, slot->attempt.stage, slot->attempt.task, &q, &st, &t);
    const sched_twin *twin = found ? br_sched_twin_find(s, q, st, t) : NULL;
    MUST(r,
         found && ((t->running_on == at && t->now == slot->attempt.attempt) ||
                   (twin && twin->worker == at && twin->attempt == slot->attempt.attempt)),
         "worker %u: a slot is taken for nothing", w->id);
  }
  MUST(r, alone == w->alone && (!w->alone || used == 1), "worker %u: %u attempts, %u of them alone", w->id, used,
       alone);
  MUST(r, used == w->used && used <= w->n_slots, "worker %u: %u of %u slots are used, counted %u", w->id, used,
       w->n_slots, w->used);
}

static void check_worker(report *r, const br_sched *s, uint32_t at) {
  const sched_worker *w = &s->workers[at];
  bool free_slot = w->state == SCHED_LIVE && !w->draining && !w->alone && w->kept_for == 0 && w->used < w->n_slots;
  bool listed = w->free_index != BR_SCHED_NONE && w->free_index < s->n_free && s->free[w->free_index] == at;
  check_slots(r, s, at);
  MUST(r, free_slot == listed && (listed || w->free_index == BR_SCHED_NONE), "worker %u: free list is wrong", w->id);
  uint32_t spare, outputs = outputs_on(s, at, &spare);
  MUST(r, w->outputs == outputs && w->spare == spare,
       "worker %u: holds %u outputs, %u of them spare, counted %u and %u", w->id, outputs, spare, w->outputs, w->spare);
  MUST(r, w->state != SCHED_LIVE || !w->draining || w->released || w->used > 0 || outputs > spare,
       "worker %u drains, has nothing that is needed, and is not released", w->id);
  MUST(r, !w->released || outputs == 0, "worker %u is released, but an output of it counts", w->id);
  MUST(r, w->state != SCHED_LIVE || w->probe_until_ms == 0 || w->probe_until_ms > s->now_ms,
       "worker %u does not answer a probe and is still there", w->id);
  MUST(r, w->state != SCHED_LIVE || w->heard_ms + s->o.silent_ms > s->now_ms, "worker %u is silent and still there",
       w->id);
  MUST(r,
       w->state != SCHED_LIVE || (w->served_bad.n < BR_SCHED_FETCH_FAILURES && w->read_bad.n < BR_SCHED_FETCH_FAILURES),
       "worker %u can't be read, or can't read, and is still there", w->id);
}

/* A free slot and a ready task at once only when the task waits for another worker than the one where it failed. */
static void check_progress(report *r, const br_sched *s) {
  for (uint32_t i = 0; i < s->n_queries && s->n_free > 0; i++)
    for (uint32_t k = 0; k < s->queries[i]->n_stages; k++) {
      if (br_sched_is_full(s->queries[i])) break;
      const sched_stage *st = &s->queries[i]->stages[k];
      for (uint32_t l = 0; l < st->n_lists; l++) {
        uint32_t at = st->lists[l].head;
        MUST(r,
             at == BR_SCHED_NONE ||
                 (s->n_free == 1 && s->n_usable > 1 && st->tasks[at].avoid == s->workers[s->free[0]].id),
             "query %llu stage %u task %u is ready and %u workers have a free slot",
             (unsigned long long)s->queries[i]->id, k, at, s->n_free);
      }
    }
}

/* Who waits for a whole worker has one that is kept for it, or there is none to keep. */
static void check_waits(report *r, const br_sched *s) {
  uint32_t kept = 0, keepers = 0;
  for (uint32_t i = 0; i < s->n_waits; i++) {
    sched_query *q;
    sched_stage *st;
    sched_task *t;
    const sched_wait *w = &s->waits[i];
    bool found = br_sched_task_find(s, w->query, w->stage, w->task, &q, &st, &t);
    MUST(r, found && t->list == BR_SCHED_WAITS && t->state == BR_TASK_READY, "somebody waits for a worker for nothing");
    if (r->bad) return;
    bool has = w->worker != BR_SCHED_NONE && s->workers[w->worker].kept_for == w->ticket;
    keepers += has;
    MUST(r, !has || s->workers[w->worker].used > 0, "worker %u is empty, and its task waits", s->workers[w->worker].id);
    for (uint32_t k = 0; k < s->n_workers && !has && !br_sched_is_full(q); k++)
      MUST(r, !br_sched_may_keep(s, &s->workers[k], t), "a task waits for a worker, and %u is not kept for it",
           s->workers[k].id);
  }
  for (uint32_t k = 0; k < s->n_workers; k++) kept += s->workers[k].kept_for != 0;
  MUST(r, kept == keepers, "%u workers are kept for %u tasks", kept, keepers);
}

static void check_holds(report *r, const br_sched *s) {
  uint64_t held = 0, valid = 0;
  for (uint32_t i = 0; i < s->n_queries; i++)
    for (uint32_t k = 0; k < s->queries[i]->n_stages; k++)
      for (uint32_t t = 0; t < s->queries[i]->stages[k].n_tasks; t++) held += s->queries[i]->stages[k].tasks[t].held;
  for (size_t i = 0; i < s->n_holds; i++) {
    sched_query *q;
    sched_stage *st;
    sched_task *t;
    valid += br_sched_task_find(s, s->holds[i].query, s->holds[i].stage, s->holds[i].task, &q, &st, &t) && t->held;
    MUST(r, s->holds[i].at_ms > s->now_ms, "a held task is overdue");
  }
  MUST(r, held == valid, "%llu tasks are held, %llu will be released", (unsigned long long)held,
       (unsigned long long)valid);
}

static void check_wake(report *r, const br_sched *s) {
  uint64_t next = s->silent_at_ms < s->cancel_at_ms ? s->silent_at_ms : s->cancel_at_ms;
  if (s->probe_at_ms < next) next = s->probe_at_ms;
  if (s->straggler_at_ms < next) next = s->straggler_at_ms;
  if (s->n_holds > 0 && s->holds[0].at_ms < next) next = s->holds[0].at_ms;
  MUST(r, next == UINT64_MAX || (s->wake_ms > s->now_ms && s->wake_ms <= next), "nobody wakes the scheduler at %llu ms",
       (unsigned long long)next);
}

const char *br_sched_check(const br_sched *s, char *out, size_t n) {
  report r = {.out = out, .n = n};
  uint32_t live = 0, usable = 0, gone = 0, draining = 0;
  out[0] = 0;
  for (uint32_t i = 0; i < s->n_workers; i++) {
    check_worker(&r, s, i);
    live += s->workers[i].state == SCHED_LIVE;
    usable += s->workers[i].state == SCHED_LIVE && !s->workers[i].draining;
    gone += s->workers[i].state == SCHED_GONE;
    draining += s->workers[i].state == SCHED_LIVE && s->workers[i].draining && !s->workers[i].released;
  }
  MUST(&r, live == s->n_live && usable == s->n_usable && gone == s->n_gone && live + gone == s->n_workers,
       "workers: live %u/%u usable %u/%u gone %u/%u", s->n_live, live, s->n_usable, usable, s->n_gone, gone);
  MUST(&r, draining == s->n_draining, "%u workers drain, counted %u", draining, s->n_draining);
  for (uint32_t i = 0; i < s->n_queries; i++) {
    MUST(&r, s->queries[i]->index == i && br_sched_query_find(s, s->queries[i]->id) == s->queries[i],
         "query list is wrong");
    check_query(&r, s, s->queries[i]);
  }
  check_progress(&r, s);
  check_waits(&r, s);
  check_holds(&r, s);
  check_wake(&r, s);
  return out;
}
