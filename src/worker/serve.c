/* SPDX-License-Identifier: Apache-2.0
 * What peers may ask of this worker, over TCP or its Unix socket: DoGet of a ticket (partitions of a stage's outputs that are
 * mine by the version of the table that the ticket names), the action "status", and what flights.c offers.
 * A ticket that can't be served says whether trying again may help. Loop thread. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <stdlib.h>
#include <string.h>

static bool same_secret(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  unsigned char differ = n != m;
  for (size_t i = 0; i < m; i++) differ |= (unsigned char)((i < n ? a[i] : 0) ^ b[i]);
  return !differ;
}

static br_status check_ticket(const br_node *n, const Brant__Pb__Ticket *t, br_error *err) {
  /* The server has let nobody in without the secret: a ticket may leave it out, not have another. */
  if (t->secret[0] && !same_secret(t->secret, n->o->secret))
    return br_fail(err, BR_PERMISSION, BR_BLAME_USER, "the ticket does not have this cluster's secret");
  if (!t->ref) return br_fail(err, BR_INVALID, BR_BLAME_USER, "the ticket names no partitions");
  if (t->worker != n->worker || t->incarnation != n->incarnation) {
    br_fail(err, BR_FETCH, BR_BLAME_FETCH,
            "the ticket is for worker %u (incarnation %u), this is worker %u (incarnation %u)", t->worker,
            t->incarnation, n->worker, n->incarnation);
    err->worker = t->worker;
    return err->code;
  }
  return BR_OK;
}

/* A committed output, or one that is being written, into the set, whose arrays have room. */
static br_status add_output(br_node *n, const br_attempt_id *id, bool growing, bool finished, br_serve_set *set,
                            br_error *err) {
  br_mapfile *file = br_store_get(n->store, id->query, id->stage, id->task, id->attempt);
  if (file) {
    set->files[set->n] = file;
    ((uint32_t *)set->maps)[set->n++] = id->task;
    return BR_OK;
  }
  char text[64];
  br_attempt_format(id, text);
  if (growing && finished) {
    br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "output %s is being written: it can be had once it is finished", text);
    err->retryable = true;
    return err->code;
  }
  if (growing) {
    BR_TRY(br_grow_get(n, id, &set->growing[set->n_growing], err));
    ((uint32_t *)set->growing_maps)[set->n_growing++] = id->task;
    return BR_OK;
  }
  br_fail(err, BR_FETCH, BR_BLAME_FETCH, "map output %s is not on worker %u any more", text, n->worker);
  err->has_lost = true;
  err->lost = (br_map_output_id){.made_by = *id, .worker = n->worker, .incarnation = n->incarnation};
  err->worker = n->worker;
  return err->code;
}

static br_status collect(br_node *n, const Brant__Pb__PartitionRef *ref, bool finished, br_serve_set *set,
                         br_error *err) {
  const br_stage_table *table;
  BR_TRY(br_tables_find(n->tables, ref, &table, err));
  for (uint32_t m = ref->map_first; m < ref->map_last; m++) {
    br_table_entry e;
    if (!br_stage_table_entry(table, ref->table_version, m, &e)) continue;
    if (e.worker != n->worker || e.incarnation != n->incarnation) continue;
    br_attempt_id id = {.query = ref->query, .stage = ref->stage, .task = m, .attempt = (uint16_t)e.attempt};
    BR_TRY(add_output(n, &id, e.growing, finished, set, err));
  }
  return BR_OK;
}

br_status br_serve_collect(br_node *n, const Brant__Pb__PartitionRef *ref, bool finished, br_serve_set *out,
                           br_error *err) {
  uint32_t span = ref->map_last > ref->map_first ? ref->map_last - ref->map_first : 0;
  if (span > BR_NODE_MAX_TABLE_MAPS)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "the ticket names too many map outputs");
  *out = (br_serve_set){.files = br_calloc(span + 1u, sizeof *out->files),
                        .maps = br_calloc(span + 1u, sizeof *out->maps),
                        .growing = br_calloc(span + 1u, sizeof *out->growing),
                        .growing_maps = br_calloc(span + 1u, sizeof *out->growing_maps)};
  br_status status = collect(n, ref, finished, out, err);
  if (status != BR_OK) br_serve_set_free(out);
  return status;
}

void br_serve_set_free(br_serve_set *set) {
  for (size_t i = 0; i < set->n; i++) br_mapfile_unref(set->files[i]);
  for (size_t i = 0; i < set->n_growing; i++) br_growing_unref(set->growing[i]);
  free(set->files);
  free((uint32_t *)set->maps);
  free(set->growing);
  free((uint32_t *)set->growing_maps);
  *set = (br_serve_set){0};
}

/* ---- a source that counts what it serves */

typedef struct counted {
  br_flight_source inner;
  br_node *node;
} counted;

static br_pull counted_next(void *arg, br_flight_data *out, br_error *err) {
  counted *c = arg;
  br_pull p = c->inner.next(c->inner.arg, out, err);
  if (p == BR_PULL_DATA) c->node->served_bytes += out->head_bytes + out->body.bytes;
  return p;
}

static void counted_free(void *arg) {
  counted *c = arg;
  c->inner.free(c->inner.arg);
  free(c);
}

static br_status serve(br_node *n, br_flight_call *call, const Brant__Pb__Ticket *t, br_flight_source *src,
                       br_error *err) {
  br_serve_set set;
  BR_TRY(br_serve_collect(n, t->ref, false, &set, err));
  set.lend_from = t->by_memory ? n->store : NULL;
  counted *c = br_calloc(1, sizeof *c);
  c->node = n;
  br_status status = br_serve_source(n->loop, call, &set, t->ref->first, t->ref->last, t->ordered, &c->inner, err);
  if (status)
    free(c);
  else
    *src = (br_flight_source){.next = counted_next, .free = counted_free, .arg = c};
  br_serve_set_free(&set); /* the source took its own references */
  return status;
}

static br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t bytes, br_flight_source *src,
                        br_error *err) {
  br_node *n = arg;
  Brant__Pb__Ticket *t = (Brant__Pb__Ticket *)br_pb_unpack(&brant__pb__ticket__descriptor, ticket, bytes, err);
  if (!t) return err->code;
  br_status status;
  BR_TRY_GOTO(check_ticket(n, t, err));
  status = serve(n, call, t, src, err);
done:
  protobuf_c_message_free_unpacked(&t->base, NULL);
  return status;
}

/* ---- looking in */

static br_status do_action(void *arg, br_flight_call *call, const char *type, const void *body, size_t bytes,
                           br_error *err) {
  (void)body;
  (void)bytes;
  br_node *n = arg;
  if (strcmp(type, "status") != 0)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "a worker has no action \"%.60s\"; it has: status", type);
  char *json = br_gauge_json(n);
  br_flight_call_result(call, json, strlen(json));
  br_flight_call_end(call, NULL);
  free(json);
  return BR_OK;
}

static void call_closed(void *arg, br_flight_call *call) {
  (void)arg;
  (void)call;
}

br_status br_serve_open(br_node *n, br_error *err) {
  static const char *const actions[] = {"status", "memory, disk and tasks of this worker, as JSON", NULL};
  br_flight_handlers h = {.arg = n,
                          .do_get = do_get,
                          .do_action = do_action,
                          .call_closed = call_closed,
                          .list_flights = br_flights_list,
                          .get_flight_info = br_flights_info,
                          .actions = actions};
  br_flight_server_options o = {.host = n->o->listen,
                                .port = n->o->port,
                                .unix_path = n->unix_path,
                                .bearer = n->o->secret[0] ? n->o->secret : NULL};
  BR_TRY(br_flight_server_new(n->loop, &o, &h, &n->server, err));
  bool v6 = strchr(n->o->uri_host, ':') != NULL;
  n->uri = br_asprintf(v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", n->o->uri_host, br_flight_server_port(n->server));
  return BR_OK;
}
