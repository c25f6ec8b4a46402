/* SPDX-License-Identifier: Apache-2.0
 * Does a worker answer where its peers read from it? A connection of its own (a shared one may hang on what is asked here), one
 * Flight action "status", one bound for all of it. Loop thread. Order: br_driver_probe; the answer, a refusal or the end of the time
 * becomes BR_EV_PROBED in a turn of the loop of its own. Bounds: one probe a worker at a time, probe_ms each. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver_inside.h"

typedef struct br_probe {
  br_driver *d;
  struct br_probe *prev, *next;
  uint32_t worker, incarnation;
  uint64_t start_ms;
  br_flight_client *client;
  br_flight_stream *stream;
  br_timer *timer; /* the deadline, then the turn in which it is answered */
  br_error why;    /* code 0: it answers */
} br_probe;

static void free_probe(br_probe *p) {
  br_timer_stop(p->timer);
  if (p->stream != NULL) br_flight_stream_cancel(p->stream);
  if (p->client != NULL) br_flight_client_free(p->client);
  if (p->prev != NULL)
    p->prev->next = p->next;
  else
    p->d->probes = p->next;
  if (p->next != NULL) p->next->prev = p->prev;
  free(p);
}

static void answer(void *arg) {
  br_probe *p = arg;
  br_driver *d = p->d;
  br_error why = p->why;
  br_event e = {.kind = BR_EV_PROBED, .worker = p->worker, .incarnation = p->incarnation, .error = &why};
  br_events_emit(d->events, "worker_probed", "{s:I, s:I, s:b, s:s, s:I}", "worker", (json_int_t)p->worker,
                 "incarnation", (json_int_t)p->incarnation, "answers", why.code == BR_OK, "message",
                 why.code == BR_OK ? "" : why.message, "ms", (json_int_t)(br_now_ms() - p->start_ms));
  free_probe(p);
  br_losses *before = why.code != BR_OK ? br_losses_of_worker(d, e.worker) : NULL;
  br_driver_step(d, &e);
  br_losses_tell(d, before, "its worker does not answer");
}

/* Not inside a callback of the client, which is freed with the probe. */
static void answer_soon(br_probe *p) {
  br_timer_stop(p->timer);
  p->timer = br_timer_start(p->d->loop, 0, 0, answer, p);
}

static void on_end(void *arg, const br_error *err) {
  br_probe *p = arg;
  p->stream = NULL;
  p->why = *err;
  answer_soon(p);
}

static void on_result(void *arg, const void *body, size_t n) { (void)arg, (void)body, (void)n; }

static void on_late(void *arg) {
  br_probe *p = arg;
  br_fail(&p->why, BR_TIMEOUT, BR_BLAME_WORKER, "worker %u did not answer on its data port within probe_ms (%u)",
          p->worker, p->d->probe_ms);
  answer(p);
}

void br_driver_probe(br_driver *d, uint32_t worker, uint32_t incarnation) {
  const br_worker *w = br_cluster_find(d->cluster, worker);
  if (w == NULL) return; /* its loss is on its way to the scheduler */
  for (const br_probe *other = d->probes; other != NULL; other = other->next)
    if (other->worker == worker && other->incarnation == incarnation) return;
  br_probe *p = br_calloc(1, sizeof *p);
  p->d = d;
  p->worker = worker;
  p->incarnation = incarnation;
  p->start_ms = br_now_ms();
  p->next = d->probes;
  if (p->next != NULL) p->next->prev = p;
  d->probes = p;
  uint32_t bound_ms = d->probe_ms - d->probe_ms / 8; /* before the scheduler gives up by itself */
  br_flight_client_options o = {.bearer = d->secret, .connect_ms = bound_ms};
  if (br_flight_client_new(d->loop, w->uri, &o, &p->client, &p->why) != BR_OK) {
    answer_soon(p);
    return;
  }
  p->timer = br_timer_start(d->loop, bound_ms, 0, on_late, p);
  p->stream =
      br_flight_action(p->client, "status", "", 0, (br_flight_sink){.arg = p, .result = on_result, .end = on_end});
}

void br_driver_stop_probes(br_driver *d) {
  while (d->probes != NULL) free_probe(d->probes);
}
