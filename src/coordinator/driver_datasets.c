/* SPDX-License-Identifier: Apache-2.0
 * Datasets on the cluster: workers learn where the parts are from output tables, as of stages; what the coordinator holds they read at its
 * own port, where it is a peer like the others. Loop thread; requests from any. Bounds: BR_CLUSTER's. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/dataset.h"
#include "coordinator/driver_inside.h"

typedef struct request {
  br_driver *d;
  br_dataset *dataset;
  br_query *query;
  uint64_t id;
} request;

/* worker 0: to all. */
static void tell(br_driver *d, const Brant__Pb__Command *cmd, uint32_t worker) {
  if (worker != 0)
    br_cluster_send(d->cluster, worker, cmd);
  else
    br_cluster_broadcast(d->cluster, cmd);
}

/* No address: the worker knows the one that it joined at. */
static void tell_peer(br_driver *d, uint32_t worker) {
  Brant__Pb__Peer p = BRANT__PB__PEER__INIT;
  p.worker = BR_COORDINATOR_WORKER;
  p.incarnation = 1;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_PEER;
  cmd.peer = &p;
  tell(d, &cmd, worker);
}

static void tell_table(br_driver *d, const br_dataset *s, uint32_t worker) {
  Brant__Pb__OutputTable t = BRANT__PB__OUTPUT_TABLE__INIT;
  Brant__Pb__OutputEntry *entries = br_calloc(s->n_parts + 1u, sizeof *entries),
                         **refs = br_calloc(s->n_parts + 1u, sizeof *refs);
  for (uint32_t i = 0; i < s->n_parts; i++) {
    brant__pb__output_entry__init(&entries[i]);
    entries[i].map = i;
    entries[i].attempt = 1;
    entries[i].worker = BR_COORDINATOR_WORKER;
    entries[i].incarnation = 1;
    entries[i].bytes = s->part_bytes[i];
    refs[i] = &entries[i];
  }
  t.query = s->id;
  t.version = 1;
  t.partitions = 1;
  t.maps = s->n_parts;
  t.n_entries = s->n_parts;
  t.entries = refs;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_TABLE;
  cmd.table = &t;
  tell(d, &cmd, worker);
  free(refs);
  free(entries);
}

static void handle_offer(void *arg) {
  request *r = arg;
  br_driver *d = r->d;
  if (br_map_get(d->datasets, r->dataset->id) == NULL) {
    if (br_map_count(d->datasets) == 0) tell_peer(d, 0);
    br_map_put(d->datasets, r->dataset->id, br_dataset_ref(r->dataset));
    tell_table(d, r->dataset, 0);
  }
  br_dataset_unref(r->dataset);
  free(r);
}

void br_driver_offer(br_driver *d, br_dataset *dataset) {
  if (dataset->store == NULL) return; /* its query tells where it is */
  request *r = br_calloc(1, sizeof *r);
  *r = (request){.d = d, .dataset = br_dataset_ref(dataset)};
  br_loop_post(d->loop, handle_offer, r);
}

static void handle_withdraw(void *arg) {
  request *r = arg;
  br_dataset *s = br_map_remove(r->d->datasets, r->id);
  if (s != NULL) {
    Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
    cmd.what_case = BRANT__PB__COMMAND__WHAT_DROP_QUERY;
    cmd.drop_query = r->id;
    br_cluster_broadcast(r->d->cluster, &cmd);
    br_dataset_unref(s);
  }
  free(r);
}

void br_driver_withdraw(br_driver *d, uint64_t id) {
  request *r = br_calloc(1, sizeof *r);
  *r = (request){.d = d, .id = id};
  br_loop_post(d->loop, handle_withdraw, r);
}

void br_driver_datasets_free(br_driver *d) {
  void *v;
  for (size_t it = 0; br_map_next(d->datasets, &it, NULL, &v);) br_dataset_unref(v);
  br_map_free(d->datasets);
}

/* ---- results that stay */

static void handle_keep(void *arg) {
  request *r = arg;
  br_driver_tell_kept(r->d, r->query, 0);
  br_query_unref(r->query);
  free(r);
}

void br_driver_keep_result(br_driver *d, br_query *q) {
  request *r = br_calloc(1, sizeof *r);
  pthread_mutex_lock(&q->lock);
  q->kept = true;
  pthread_mutex_unlock(&q->lock);
  *r = (request){.d = d, .query = br_query_ref(q)};
  br_loop_post(d->loop, handle_keep, r);
}

void br_driver_greet(br_driver *d, uint32_t worker) {
  void *v;
  if (br_map_count(d->datasets) > 0) tell_peer(d, worker);
  for (size_t it = 0; br_map_next(d->datasets, &it, NULL, &v);) tell_table(d, v, worker);
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);)
    if (((br_query *)v)->kept) br_driver_tell_kept(d, v, worker);
}

/* ---- serving */

br_status br_driver_serve(br_driver *d, br_flight_call *call, const Brant__Pb__Ticket *t, br_flight_source *src,
                          br_error *err) {
  const br_dataset *s = br_map_get(d->datasets, t->ref->query);
  br_status status = BR_OK;
  if (s == NULL || t->ref->map_first > t->ref->map_last || t->ref->map_last > s->n_parts)
    return br_fail(err, BR_FETCH, BR_BLAME_FETCH,
                   "the coordinator does not hold what the ticket names: the table was dropped");
  uint32_t n = t->ref->map_last - t->ref->map_first;
  br_serve_set set = {.files = br_calloc(n + 1u, sizeof *set.files)};
  uint32_t *maps = br_calloc(n + 1u, sizeof *maps);
  set.maps = maps;
  for (uint32_t i = 0; i < n; i++) {
    maps[i] = t->ref->map_first + i;
    set.files[set.n] = br_store_get(s->store, s->id, 0, maps[i], 1);
    if (set.files[set.n++] != NULL) continue;
    set.n--;
    status =
        br_fail(err, BR_IO, BR_BLAME_INTERNAL, "part %u of the table %s is not readable any more", maps[i], s->name);
    break;
  }
  if (status == BR_OK) status = br_serve_source(d->loop, call, &set, t->ref->first, t->ref->last, t->ordered, src, err);
  for (size_t i = 0; i < set.n; i++) br_mapfile_unref(set.files[i]);
  free(set.files);
  free(maps);
  return status;
}
