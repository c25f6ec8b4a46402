/* SPDX-License-Identifier: Apache-2.0
 * brant_query: one statement's handle. Where its rows come from: kept batches (statements that are not SELECT), a run in this process
 * (small inputs), or the result outputs of a distributed query.
 * Order: new, filled by submit.c, read by handle_stream.c; the handle and the stream hold a reference each. Threads: the caller's; cancel,
 * error and stats from any. Bounds: as many as the caller holds. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/handle.h"

#define INTERRUPT_LOOK_NS 50000000L

void br_handle_end(brant_query *q) {
  pthread_mutex_lock(&q->lock);
  if (!q->ended) {
    q->ended = true;
    q->end_us = br_now_us();
    q->cpu_end = br_cpu_seconds();
  }
  pthread_mutex_unlock(&q->lock);
  br_watchdog_off(q->watchdog);
}

br_status br_handle_remember(brant_query *q, br_status status, const br_error *err) {
  if (status == BR_OK) return BR_OK;
  pthread_mutex_lock(&q->lock);
  if (q->error.code == BR_OK) q->error = *err;
  pthread_mutex_unlock(&q->lock);
  br_handle_end(q);
  return status;
}

static void cancel_open(br_open_query *open) { brant_query_cancel((brant_query *)open); }

static void join_session(brant_query *q, brant_session *s) {
  q->session = s;
  br_session_ref(s);
  pthread_mutex_lock(&s->lock);
  q->open.cancel = cancel_open;
  q->open.next = s->queries;
  if (q->open.next != NULL) q->open.next->prev = &q->open;
  s->queries = &q->open;
  pthread_mutex_unlock(&s->lock);
}

/* Out of the list first: closing the session cancels the queries that are in
 * it. */
static void hide(brant_query *q) {
  brant_session *s = q->session;
  pthread_mutex_lock(&s->lock);
  if (q->open.prev != NULL)
    q->open.prev->next = q->open.next;
  else
    s->queries = q->open.next;
  if (q->open.next != NULL) q->open.next->prev = q->open.prev;
  pthread_mutex_unlock(&s->lock);
}

void br_handle_unref(brant_query *q) {
  if (atomic_fetch_sub(&q->refs, 1) != 1) return;
  hide(q);
  br_watchdog_free(q->watchdog);
  br_local_run_free(q->run);
  br_rows_free(q->rows);
  br_copying_free(q->copying);
  if (q->plan.query != NULL && q->session->driver != NULL) {
    br_query_state state;
    pthread_mutex_lock(&q->plan.query->lock);
    state = q->plan.query->state;
    pthread_mutex_unlock(&q->plan.query->lock);
    if (state == BR_QUERY_RUNNING || state == BR_QUERY_NEW) br_driver_forget(q->session->driver, q->plan.query->id);
  }
  br_prepared_free(&q->plan);
  for (size_t i = q->at_kept; i < q->n_kept; i++) br_batch_unref(q->kept[i]);
  free(q->kept);
  br_schema_unref(q->schema);
  br_session_unref(q->session);
  pthread_mutex_destroy(&q->lock);
  free(q);
}

/* ---- for those that keep its result */

br_query *br_query_inside(brant_query *q) { return q->copying == NULL ? q->plan.query : NULL; }
brant_session *br_query_session(brant_query *q) { return q->session; }
void br_query_hold(brant_query *q) { atomic_fetch_add(&q->refs, 1); }

br_status br_query_take(brant_query *q, br_error *err) {
  if (q->taken)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "the result of this query was taken already: run it again to persist it");
  q->taken = true;
  return BR_OK;
}

/* Until something changed, or for as long as an interrupt may go unheard. With the lock of d. */
static void wait_a_moment(brant_query *q, br_query *d) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += INTERRUPT_LOOK_NS;
  until.tv_sec += until.tv_nsec / 1000000000L;
  until.tv_nsec %= 1000000000L;
  pthread_cond_timedwait(&d->changed, &d->lock, &until);
  if (!atomic_load(&q->session->interrupted)) return;
  pthread_mutex_unlock(&d->lock);
  brant_query_cancel(q);
  pthread_mutex_lock(&d->lock);
}

br_status br_query_wait_result(brant_query *q, br_error *err) {
  br_query *d = q->plan.query;
  br_status status = BR_OK;
  pthread_mutex_lock(&d->lock);
  for (size_t i = 0; i < d->n_results && d->state != BR_QUERY_FAILED;) {
    if (d->results[i].ready)
      i++;
    else
      wait_a_moment(q, d);
  }
  if (d->state == BR_QUERY_FAILED) {
    *err = d->error;
    status = (br_status)err->code;
  }
  pthread_mutex_unlock(&d->lock);
  if (status == BR_OK) br_handle_end(q);
  return br_handle_remember(q, status, err);
}

brant_query *br_handle_new(brant_session *s) {
  brant_query *q = br_calloc(1, sizeof *q);
  atomic_init(&q->refs, 1);
  pthread_mutex_init(&q->lock, NULL);
  join_session(q, s);
  q->start_us = br_now_us();
  q->cpu_start = br_cpu_seconds();
  return q;
}

br_status br_handle_start(brant_query *q, br_error *err) {
  br_query *d = q->plan.query;
  BR_TRY(br_session_check_interrupt(q->session, err));
  BR_TRY(br_shared_open(d, br_session_shared_dir(q->session), err));
  br_driver_submit(q->session->driver, d);
  const br_stage *last = d->runs[d->n_runs - 1].plan;
  BR_TRY(br_rows_open(q->session, d, &q->rows, err));
  return br_session_result_schema(q->session->db, last->types, (const char *const *)d->types,
                                  (const char *const *)d->names, last->n_columns, &q->schema, err);
}

br_status br_query_submit_distributed(brant_session *s, const char *sql, brant_query **out, br_error *err) {
  brant_query *q = br_handle_new(s);
  br_status status = br_prepare(s, sql, false, &q->plan, err);
  if (status == BR_OK && !q->plan.local) {
    status = br_handle_start(q, err);
    q->running = true;
  }
  *out = status == BR_OK && !q->plan.local ? q : NULL;
  if (*out == NULL) br_handle_unref(q);
  return status;
}

/* ---- any thread */

void br_handle_stop(brant_query *q, const br_error *why) {
  if (q->plan.query != NULL && q->session->driver != NULL) br_driver_cancel(q->session->driver, q->plan.query->id, why);
  if (q->rows != NULL) br_rows_cancel(q->rows);
  if (q->run != NULL) br_local_run_stop(q->run, why);
  if (q->copying != NULL) br_copying_cancel(q->copying);
}

void brant_query_cancel(brant_query *q) {
  br_error why;
  if (q == NULL) return;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the query was cancelled");
  pthread_mutex_lock(&q->lock);
  q->cancelled = true;
  bool running = q->running;
  pthread_mutex_unlock(&q->lock);
  if (running) br_handle_stop(q, &why);
}

int brant_query_error(brant_query *q, brant_error *err) {
  pthread_mutex_lock(&q->lock);
  br_error e = q->error;
  pthread_mutex_unlock(&q->lock);
  if (e.code == BR_OK && q->plan.query != NULL) {
    pthread_mutex_lock(&q->plan.query->lock);
    if (q->plan.query->state == BR_QUERY_FAILED) e = q->plan.query->error;
    pthread_mutex_unlock(&q->plan.query->lock);
  }
  br_error_export(&e, err);
  return (int)e.code;
}

static uint64_t resident_bytes(void) {
  char text[128];
  unsigned long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "re");
  if (f == NULL) return 0;
  if (fgets(text, sizeof text, f) != NULL && sscanf(text, "%lu %lu", &pages, &resident) != 2) resident = 0;
  fclose(f);
  return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void distributed_stats(br_query *d, brant_stats *st) {
  pthread_mutex_lock(&d->lock);
  st->distributed = 1;
  st->eager = d->eager;
  st->stages = (uint32_t)d->n_runs;
  st->stages_done = d->stages_done;
  uint32_t started = 0;
  size_t at = d->n_runs;
  for (size_t i = 0; i < d->n_runs; i++) {
    const br_stage_run *r = &d->runs[i];
    st->tasks += r->n_tasks;
    st->tasks_done += r->done;
    started += r->started;
    if (at == d->n_runs && r->started > 0 && r->done < r->n_tasks) at = i;
    st->bytes_shuffled += r->bytes_out;
    st->rows_shuffled += r->rows_out;
    st->bytes_fetched += r->remote_bytes;
    st->spilled_bytes += r->spill_bytes;
    st->second_attempts += r->seconds;
    st->outputs_lost += r->outputs_lost;
    st->tasks_again += r->made_again;
    st->cpu_seconds += (double)r->cpu_us * 1e-6;
    if (r->plan->split_scan >= 0) st->rows_read += r->split_rows;
  }
  st->tasks_running = started > st->tasks_done ? started - st->tasks_done : 0;
  if (d->n_runs > 0) st->rows_out = d->runs[d->n_runs - 1].rows_out;
  st->spilled_bytes += d->spilled_bytes;
  st->peak_memory_bytes = d->peak_pss_bytes;
  st->retries = d->retries;
  st->executors_lost = d->executors_lost;
  st->workers_lost = d->workers_lost;
  if (at < d->n_runs)
    snprintf(st->text, sizeof st->text, "stage %zu of %zu: %s", at + 1, d->n_runs,
             d->runs[at].plan->label ? d->runs[at].plan->label : "");
  pthread_mutex_unlock(&d->lock);
}

void brant_query_stats(brant_query *q, brant_stats *out) {
  brant_stats st = {0};
  st.size = out->size < sizeof st ? out->size : sizeof st;
  if (q->plan.query != NULL) distributed_stats(q->plan.query, &st);
  pthread_mutex_lock(&q->lock);
  uint64_t end = q->ended ? q->end_us : br_now_us();
  st.seconds = (double)(end - q->start_us) * 1e-6;
  if (!st.distributed) {
    st.cpu_seconds = (q->ended ? q->cpu_end : br_cpu_seconds()) - q->cpu_start;
    st.rows_out = q->rows_out;
  }
  if (q->copying != NULL) st.rows_out = br_copying_rows(q->copying);
  pthread_mutex_unlock(&q->lock);
  st.coordinator_memory_bytes = resident_bytes();
  memcpy(out, &st, st.size);
}

void brant_query_free(brant_query *q) {
  if (q == NULL) return;
  br_handle_unref(q);
}
