/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: who the workers are. Workers dial in with the Flight action "join"; its response stream carries commands to
 * them, the action "report" carries what they say. Everything here runs on the loop thread.
 */
#ifndef BRANT_COORDINATOR_CLUSTER_H
#define BRANT_COORDINATOR_CLUSTER_H

#include "flight/flight.h"
#include "observe/events.h"
#include "proto/proto.h"

typedef struct br_worker {
  uint32_t id, incarnation;
  uint32_t slots, threads;
  uint64_t memory_bytes;
  int pid;
  char *uri, *unix_path, *host_id;
  uint64_t last_seq; /* of reports */
  uint32_t gpus;
  uint64_t pss_peak_bytes, spilled_bytes, served_bytes;
  br_flight_call *join; /* its command stream */
  bool draining;
  uint64_t heard_ms; /* its last report, or when it joined */
} br_worker;

typedef struct br_cluster_handlers {
  void *arg;
  void (*joined)(void *arg, const br_worker *w);
  /* Also for those that the scheduler gave up (expelled true: it knows). */
  void (*lost)(void *arg, const br_worker *w, bool expelled);
  void (*refused)(void *arg, const br_error *why); /* somebody who knows the secret, or says so, may not join */
  /* DoGet at the coordinator's own port: partitions of datasets, payloads of functions. */
  br_status (*get)(void *arg, br_flight_call *call, const Brant__Pb__Ticket *ticket, br_flight_source *src,
                   br_error *err);
  void (*report)(void *arg, const br_worker *w, const Brant__Pb__Report *report); /* each once, in order */
} br_cluster_handlers;

typedef struct br_cluster br_cluster;
typedef struct br_cluster_options {
  const char *host;
  int port;
  const char *secret;
  uint32_t silent_ms; /* a worker that says nothing for so long will be declared lost; 0: 10,000 */
} br_cluster_options;
BR_MUST_USE br_status br_cluster_new(br_loop *loop, const br_cluster_options *o, br_events *events,
                                     br_cluster_handlers h, br_cluster **out, br_error *err);
void br_cluster_free(br_cluster *c);
int br_cluster_port(const br_cluster *c);
size_t br_cluster_size(const br_cluster *c);
uint32_t br_cluster_slots(const br_cluster *c);
uint32_t br_cluster_threads(const br_cluster *c);
uint32_t br_cluster_most_gpus(const br_cluster *c);                                  /* that one worker has */
uint32_t br_cluster_ids(const br_cluster *c, uint32_t *ids, uint32_t most);          /* of the workers; how many */
uint64_t br_cluster_memory_bytes(const br_cluster *c);                               /* of all workers */
const br_worker *br_cluster_find(const br_cluster *c, uint32_t worker);              /* NULL: gone */
bool br_cluster_send(br_cluster *c, uint32_t worker, const Brant__Pb__Command *cmd); /* false: no such worker */
void br_cluster_broadcast(br_cluster *c, const Brant__Pb__Command *cmd);
void br_cluster_expel(br_cluster *c,
                      uint32_t worker); /* declared lost: closes its stream, tells the others; no `lost` call */
/* It said that it takes no new tasks; false: it had said so before. */
bool br_cluster_note_draining(br_cluster *c, uint32_t worker);
/* Workers that have said nothing for so long: at most `most` of them into ids. */
size_t br_cluster_silent(const br_cluster *c, uint64_t silent_ms, uint32_t *ids, size_t most);
/* What peers are reached by, from this host: "unix:/path" when it is the same host, else "tcp://host:port". */
const char *br_cluster_local_uri(const br_cluster *c, const br_worker *w);
/* Largest PSS seen of one worker; sums over all workers. */
void br_cluster_gauges(const br_cluster *c, uint64_t *peak_pss, uint64_t *spilled, uint64_t *served);

#endif
