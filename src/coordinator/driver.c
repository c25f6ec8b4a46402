/* SPDX-License-Identifier: Apache-2.0
 *
 * The query driver: made, stepped, ended. A worker's report (driver_events.c) or a posted request (driver_requests.c) becomes a
 * br_event, br_sched_step answers with actions, each is carried out in order (driver_actions.c).
 *
 * Threads: the loop thread owns cluster, scheduler and the map of queries; br_query's measured part is guarded by its lock; `lock`
 * here guards the numbers that other threads wait for. Bounds: one step's actions are carried out before the next event.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver_inside.h"

#define PROBE_MS 5000
#define SILENT_MS 10000
#define BEAT_MS 500   /* between looks at the clock */
#define PAUSE_MS 2000 /* without one: this process was stopped, or its loop thread did not run */

void br_driver_publish_counts(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  d->n_workers = (uint32_t)br_cluster_size(d->cluster);
  d->n_slots = br_cluster_slots(d->cluster);
  d->n_threads = br_cluster_threads(d->cluster);
  d->most_gpus = br_cluster_most_gpus(d->cluster);
  d->memory_bytes = br_cluster_memory_bytes(d->cluster);
  pthread_cond_broadcast(&d->changed);
  pthread_mutex_unlock(&d->lock);
}

/* Time as the scheduler sees it. It stands still while this process is stopped (Ctrl-Z, a debugger): nobody could be heard then,
 * so nobody was silent. */
uint64_t br_driver_now_ms(br_driver *d) {
  uint64_t now = br_now_ms(), gap = now - d->looked_ms;
  if (gap > PAUSE_MS) {
    br_log(BR_LOG_INFO, "this process did not run for %llu ms: workers are not blamed for it", (unsigned long long)gap);
    d->paused_ms += gap;
  }
  d->looked_ms = now;
  return now - d->paused_ms;
}

static void on_beat(void *arg) { br_driver_now_ms(arg); }

/* One event in, all its actions out. Carrying an action out can lose a worker at once, which is an event of its own: it waits
 * in the loop's queue, so that actions stay in order. */
void br_driver_step(br_driver *d, br_event *e) {
  BR_ASSERT(!d->stepping);
  d->stepping = true;
  e->now_ms = br_driver_now_ms(d);
  d->actions.count = 0;
  br_sched_step(d->sched, e, &d->actions);
  for (size_t i = 0; i < d->actions.count; i++) br_driver_carry_out(d, &d->actions.items[i]);
  d->stepping = false;
  br_driver_answer(d);
  br_driver_fail_refused(d);
}

static struct timespec deadline_in(uint64_t ms) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)(ms / 1000);
  t.tv_nsec += (long)(ms % 1000) * 1000000L;
  if (t.tv_nsec >= 1000000000L) {
    t.tv_sec++;
    t.tv_nsec -= 1000000000L;
  }
  return t;
}

br_status br_driver_wait_workers(br_driver *d, uint32_t workers, uint64_t timeout_ms, br_error *err) {
  struct timespec until = deadline_in(timeout_ms);
  br_status status = BR_OK;
  pthread_mutex_lock(&d->lock);
  while (d->n_workers < workers && status == BR_OK) {
    if (pthread_cond_timedwait(&d->changed, &d->lock, &until) != 0 && d->n_workers < workers)
      status = br_fail(err, BR_TIMEOUT, BR_BLAME_WORKER, "only %u of %u workers joined within %llu ms", d->n_workers,
                       workers, (unsigned long long)timeout_ms);
  }
  pthread_mutex_unlock(&d->lock);
  return status;
}

void br_driver_refusal(br_driver *d, br_error *out) {
  pthread_mutex_lock(&d->lock);
  *out = d->refused;
  br_error_clear(&d->refused);
  pthread_mutex_unlock(&d->lock);
}

uint32_t br_driver_slots(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint32_t n = d->n_slots;
  pthread_mutex_unlock(&d->lock);
  return n;
}

uint32_t br_driver_threads(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint32_t n = d->n_threads;
  pthread_mutex_unlock(&d->lock);
  return n;
}

uint32_t br_driver_most_gpus(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint32_t n = d->most_gpus;
  pthread_mutex_unlock(&d->lock);
  return n;
}

uint64_t br_driver_memory_bytes(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint64_t n = d->memory_bytes;
  pthread_mutex_unlock(&d->lock);
  return n;
}

uint32_t br_driver_workers(br_driver *d) {
  pthread_mutex_lock(&d->lock);
  uint32_t n = d->n_workers;
  pthread_mutex_unlock(&d->lock);
  return n;
}

typedef struct uri_request {
  br_driver *d;
  uint32_t worker;
  char *uri;
  bool done;
} uri_request;

static void handle_uri(void *arg) {
  uri_request *r = arg;
  const br_worker *w = br_cluster_find(r->d->cluster, r->worker);
  pthread_mutex_lock(&r->d->lock);
  r->uri = w ? br_strdup(br_cluster_local_uri(r->d->cluster, w)) : NULL;
  r->done = true;
  pthread_cond_broadcast(&r->d->changed);
  pthread_mutex_unlock(&r->d->lock);
}

char *br_driver_worker_uri(br_driver *d, uint32_t worker) {
  uri_request r = {.d = d, .worker = worker};
  br_loop_post(d->loop, handle_uri, &r);
  pthread_mutex_lock(&d->lock);
  while (!r.done) pthread_cond_wait(&d->changed, &d->lock); /* bounded: the loop always gets to its posts */
  pthread_mutex_unlock(&d->lock);
  return r.uri;
}

int br_driver_port(const br_driver *d) { return br_cluster_port(d->cluster); }

br_status br_driver_new(br_loop *loop, const br_driver_options *o, br_events *events, br_driver **out, br_error *err) {
  br_driver *d = br_calloc(1, sizeof *d);
  d->loop = loop;
  d->events = events;
  d->queries = br_map_new();
  d->functions = br_map_new();
  d->datasets = br_map_new();
  d->sched = br_sched_new(&o->sched);
  d->probe_ms = o->sched.probe_ms ? o->sched.probe_ms : PROBE_MS;
  d->silent_ms = o->sched.silent_ms ? o->sched.silent_ms : SILENT_MS;
  d->secret = br_strdup(o->secret);
  d->worker_lost = o->worker_lost;
  d->lost_arg = o->arg;
  d->looked_ms = br_now_ms();
  d->beat = br_timer_start(loop, BEAT_MS, BEAT_MS, on_beat, d);
  pthread_mutex_init(&d->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&d->changed, &attr);
  pthread_condattr_destroy(&attr);
  br_cluster_options co = {.host = o->host, .port = o->port, .secret = o->secret, .silent_ms = o->sched.silent_ms};
  br_status status = br_cluster_new(loop, &co, events, br_driver_handlers(d), &d->cluster, err);
  if (status != BR_OK) {
    br_driver_free(d);
    return status;
  }
  *out = d;
  return BR_OK;
}

void br_driver_dismiss(br_driver *d) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_SHUTDOWN;
  cmd.shutdown = 1;
  br_cluster_broadcast(d->cluster, &cmd);
}

void br_driver_free(br_driver *d) {
  if (d == NULL) return;
  br_error why;
  br_fail(&why, BR_CANCELLED, BR_BLAME_USER, "the session was closed");
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);) {
    br_query *q = v;
    if (q->state == BR_QUERY_RUNNING) br_driver_finish(d, q, &why);
    br_driver_stop_deadline(q);
    br_shared_close(q);
    br_query_unref(q);
  }
  br_driver_stop_probes(d);
  br_cluster_free(d->cluster);
  br_driver_forget_losses(d);
  br_driver_datasets_free(d);
  free(d->secret);
  br_timer_stop(d->tick);
  br_timer_stop(d->beat);
  br_sched_free(d->sched);
  br_map_free(d->queries);
  br_driver_functions_free(d);
  free(d->actions.items);
  free(d->asks);
  free(d->refusals);
  pthread_cond_destroy(&d->changed);
  pthread_mutex_destroy(&d->lock);
  free(d);
}
