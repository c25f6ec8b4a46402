/* SPDX-License-Identifier: Apache-2.0
 * Users' functions on the workers: each is told to all of them before a query that calls it, to those that join later too, and dropped
 * everywhere when it was dropped here and no query calls it any more. The two that say so on any thread, the rest on the loop thread.
 * Bounds: a message a function and worker; what is larger than BR_FUNCTION_INLINE_MOST_BYTES is read by each worker when it is told. */
#include <stdlib.h>

#include "base/mem.h"
#include "coordinator/driver_inside.h"

typedef struct br_driver_fn {
  ProtobufCMessage *message; /* without the payload */
  br_payload *payload;
  bool dropped;
} br_driver_fn;

typedef struct request {
  br_driver *d;
  uint64_t id;
  br_buf packed;
  br_payload *payload;
} request;

static Brant__Pb__Function *content(const br_driver_fn *f) { return (Brant__Pb__Function *)f->message; }

/* Of so many processes on all workers, those on the one with this place in the row. Each has one at least: its tasks need it. */
static uint32_t share(uint32_t concurrency, uint32_t place, uint32_t workers) {
  if (concurrency == 0 || workers == 0) return concurrency;
  uint32_t n = concurrency / workers + (place < concurrency % workers ? 1 : 0);
  return n > 0 ? n : 1;
}

static void tell(br_driver *d, const br_driver_fn *f, uint32_t worker, uint32_t place, uint32_t workers) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_FUNCTION;
  cmd.function = content(f);
  cmd.function->worker_processes = share(cmd.function->concurrency, place, workers);
  size_t bytes = br_payload_bytes(f->payload);
  if (bytes <= BR_FUNCTION_INLINE_MOST_BYTES)
    cmd.function->payload =
        (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)br_payload_data(f->payload), .len = bytes};
  br_cluster_send(d->cluster, worker, &cmd);
  cmd.function->payload = (ProtobufCBinaryData){0};
}

static void about(br_driver *d, Brant__Pb__Command__WhatCase what, uint64_t id) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = what;
  if (what == BRANT__PB__COMMAND__WHAT_DROP_FUNCTION)
    cmd.drop_function = id;
  else
    cmd.start_function = id;
  br_cluster_broadcast(d->cluster, &cmd);
}

/* ---- known */

static void handle_function(void *arg) {
  request *r = arg;
  br_driver *d = r->d;
  br_error err;
  ProtobufCMessage *m = br_pb_unpack(&brant__pb__function__descriptor, r->packed.data, r->packed.len, &err);
  if (m != NULL && br_map_get(d->functions, r->id) == NULL) {
    br_driver_fn *f = br_calloc(1, sizeof *f);
    f->message = m;
    f->payload = br_payload_ref(r->payload);
    m = NULL;
    br_map_put(d->functions, r->id, f);
    uint32_t ids[BR_DRIVER_TOLD_WORKERS], n = br_cluster_ids(d->cluster, ids, BR_DRIVER_TOLD_WORKERS);
    for (uint32_t i = 0; i < n; i++) tell(d, f, ids[i], i, n);
  }
  if (m != NULL) protobuf_c_message_free_unpacked(m, NULL);
  br_payload_unref(r->payload);
  br_buf_free(&r->packed);
  free(r);
}

void br_driver_function(br_driver *d, const Brant__Pb__Function *f, br_payload *payload) {
  request *r = br_calloc(1, sizeof *r);
  r->d = d;
  r->id = f->id;
  r->payload = br_payload_ref(payload);
  br_pb_pack(&f->base, &r->packed);
  br_loop_post(d->loop, handle_function, r);
}

void br_driver_functions_joined(br_driver *d, uint32_t worker) {
  void *v = NULL;
  uint32_t workers = (uint32_t)br_cluster_size(d->cluster);
  for (size_t it = 0; br_map_next(d->functions, &it, NULL, &v);) tell(d, v, worker, workers - 1, workers);
}

void br_driver_functions_start(br_driver *d, const br_query *q) {
  for (size_t i = 0; i < q->n_functions; i++) about(d, BRANT__PB__COMMAND__WHAT_START_FUNCTION, q->functions[i].id);
}

br_status br_driver_serve_function(br_driver *d, uint64_t id, br_flight_source *src, br_error *err) {
  const br_driver_fn *f = br_map_get(d->functions, id);
  if (f == NULL)
    return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "the coordinator has no function %llu: it was dropped",
                   (unsigned long long)id);
  *src = br_payload_source(f->payload);
  return BR_OK;
}

/* ---- dropped */

static bool is_called(const br_driver *d, uint64_t id) {
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->queries, &it, NULL, &v);) {
    const br_query *q = v;
    for (size_t i = 0; i < q->n_functions; i++)
      if (q->functions[i].id == id) return true;
  }
  return false;
}

static void free_function(br_driver_fn *f) {
  if (f == NULL) return;
  protobuf_c_message_free_unpacked(f->message, NULL);
  br_payload_unref(f->payload);
  free(f);
}

void br_driver_functions_sweep(br_driver *d) {
  uint64_t id;
  void *v = NULL;
  for (size_t it = 0; br_map_next(d->functions, &it, &id, &v);) {
    const br_driver_fn *f = v;
    if (!f->dropped || is_called(d, id)) continue;
    about(d, BRANT__PB__COMMAND__WHAT_DROP_FUNCTION, id);
    free_function(br_map_remove(d->functions, id));
  }
}

static void handle_drop(void *arg) {
  request *r = arg;
  br_driver_fn *f = br_map_get(r->d->functions, r->id);
  if (f != NULL) f->dropped = true;
  br_driver_functions_sweep(r->d);
  free(r);
}

void br_driver_drop_function(br_driver *d, uint64_t id) {
  request *r = br_calloc(1, sizeof *r);
  r->d = d;
  r->id = id;
  br_loop_post(d->loop, handle_drop, r);
}

void br_driver_functions_free(br_driver *d) {
  void *v = NULL;
  if (d->functions == NULL) return;
  for (size_t it = 0; br_map_next(d->functions, &it, NULL, &v);) free_function(v);
  br_map_free(d->functions);
  d->functions = NULL;
}
