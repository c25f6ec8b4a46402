/* SPDX-License-Identifier: Apache-2.0
 * The inside of the query driver, shared by its files. Loop thread only, but for what `lock` guards.
 *   driver.c           made, stepped, ended; numbers that other threads ask for
 *   driver_events.c    what workers say becomes events
 *   driver_requests.c  what other threads ask for becomes events
 *   driver_actions.c   the scheduler's actions become commands
 *   driver_adapt.c     answers the scheduler's questions: stages that are planned again with true sizes
 *   driver_losses.c    which outputs a step lost, and what runs again for it: for events and explain
 *   driver_functions.c users' functions on the workers
 *   driver_probe.c     does a worker answer on its data port?
 */
#ifndef BRANT_COORDINATOR_DRIVER_INSIDE_H
#define BRANT_COORDINATOR_DRIVER_INSIDE_H

#include "base/map.h"
#include "coordinator/driver.h"

struct br_driver {
  br_loop *loop;
  br_cluster *cluster;
  br_sched *sched;
  br_events *events;
  br_map *queries;   /* id -> br_query, one reference each */
  br_map *functions; /* driver_functions.c: id -> what the workers were told */
  br_map *datasets;  /* id -> br_dataset of the coordinator's store, one reference each */
  br_actions actions;
  struct br_ask *asks; /* questions of the step under way, answered after it */
  size_t n_asks, cap_asks;
  struct br_refusal *refusals; /* attempts of the step under way that can't be sent; failed after it */
  size_t n_refusals, cap_refusals;
  br_timer *tick;
  uint64_t tick_at_ms; /* by br_driver_now_ms */
  br_timer *beat;
  uint64_t looked_ms, paused_ms; /* the clock when it was looked at last; pauses of this process so far */
  bool stepping, failing;        /* in br_driver_step; in br_driver_fail_refused */
  char *secret;
  uint32_t probe_ms, silent_ms;
  struct br_probe *probes;     /* under way */
  struct br_loss_note *losses; /* workers whose loss the loop is to handle in its next turn */
  void (*worker_lost)(void *arg, int pid);
  void *lost_arg;

  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint32_t n_workers, n_slots, n_threads, most_gpus;
  uint64_t memory_bytes; /* of all workers */
  br_error refused;      /* the last join that was; code 0: none */
};

/* driver.c: one event in, all its actions out; not from inside an action. */
void br_driver_step(br_driver *d, br_event *e);
uint64_t br_driver_now_ms(br_driver *d);
void br_driver_publish_counts(br_driver *d);

/* driver_requests.c: the query's stages as the scheduler knows them. */
br_sched_stage *br_driver_stages(const br_query *q, br_arena *arena);

/* driver_adapt.c */
typedef struct br_ask {
  uint64_t query;
  uint32_t stage;
} br_ask;
void br_driver_asked(br_driver *d, const br_action *a); /* BR_ACT_ASK */
void br_driver_answer(br_driver *d);                    /* all questions; each answer is a step */

/* driver_actions.c */
void br_driver_carry_out(br_driver *d, const br_action *a);
void br_driver_finish(br_driver *d, br_query *q, const br_error *err); /* err NULL: well */
void br_driver_stop_deadline(br_query *q);
void br_driver_take_gauges(br_driver *d, br_query *q); /* with the query's lock */

/* The attempt's message is larger than a worker may be sent: it fails, with this error, after the step. */
typedef struct br_refusal {
  br_attempt_id attempt;
  uint32_t worker;
  br_error why;
} br_refusal;
void br_driver_refuse(br_driver *d, const br_action *a, size_t bytes, size_t passes);
/* driver_events.c: all of them; each is a step */
void br_driver_fail_refused(br_driver *d);

/* driver_probe.c: ask the worker's data port for its status; the answer, or none within probe_ms, becomes BR_EV_PROBED. */
void br_driver_probe(br_driver *d, uint32_t worker, uint32_t incarnation);
void br_driver_stop_probes(br_driver *d);

/* driver_losses.c: around a step that may lose outputs. `before` notes what is there, `after` tells what is not any more and how
 * many committed tasks of each stage have to run again. The outputs of a worker, or some by name. */
typedef struct br_losses br_losses;
br_losses *br_losses_of_worker(br_driver *d, uint32_t worker);
br_losses *br_losses_of_silent(br_driver *d); /* of workers that a tick may declare lost; NULL: there are none */
br_losses *br_losses_of_fetch(br_driver *d, const br_error *err); /* of what could not be read; NULL: it was no fetch */
br_losses *br_losses_of_outputs(br_driver *d, const br_map_output_id *ids, size_t n);
void br_losses_tell(br_driver *d, br_losses *before, const char *why); /* frees it */

/* driver_functions.c */
#define BR_DRIVER_TOLD_WORKERS 65536u
void br_driver_functions_joined(br_driver *d, uint32_t worker);
void br_driver_functions_start(br_driver *d, const br_query *q); /* the query begins: its pools should too */
void br_driver_functions_sweep(br_driver *d);                    /* a query is over */
void br_driver_functions_free(br_driver *d);
br_status br_driver_serve_function(br_driver *d, uint64_t id, br_flight_source *src, br_error *err);

/* driver_datasets.c */
void br_driver_datasets_free(br_driver *d);
void br_driver_greet(br_driver *d, uint32_t worker); /* one that joined */
br_status br_driver_serve(br_driver *d, br_flight_call *call, const Brant__Pb__Ticket *t, br_flight_source *src,
                          br_error *err);
/* driver_actions.c: where the parts of a kept result are; worker 0: to all. Takes the query's lock. */
void br_driver_tell_kept(br_driver *d, br_query *q, uint32_t worker);

/* driver_events.c */
br_cluster_handlers br_driver_handlers(br_driver *d);
typedef struct br_loss_note br_loss_note;
void br_driver_forget_losses(br_driver *d); /* the driver ends: what the loop still has of them does nothing */

#endif
