/* SPDX-License-Identifier: Apache-2.0
 * Membership over Flight actions. Loop thread only. Order of a worker's life: join (checked: version, secret) -> welcome and
 * its peers -> commands and reports -> its stream closes (lost) or it is expelled. Bounds: BR_CLUSTER_MAX_WORKERS workers; a
 * worker that does not take its commands (COMMAND_QUEUE_BYTES queued) is expelled. */
#include "coordinator/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/util.h"

#define BR_CLUSTER_MAX_WORKERS 4096
#define COMMAND_QUEUE_BYTES (256u << 20)
#define HEARTBEAT_MS 1000
#define SILENT_MS 10000

struct br_cluster {
  br_flight_server *server;
  br_events *events;
  br_cluster_handlers h;
  br_map *workers; /* id -> br_worker */
  br_map *by_call; /* join call -> br_worker */
  char *secret, *host_id;
  char local_uri[256];
  uint32_t next_id, slots, silent_ms;
  bool closing;
};

static void free_worker(br_worker *w) {
  free(w->uri);
  free(w->unix_path);
  free(w->host_id);
  free(w);
}

static void send_to(const br_worker *w, const Brant__Pb__Command *cmd) {
  if (w->join == NULL) return;
  br_buf b = {0};
  br_pb_pack(&cmd->base, &b);
  br_flight_call_result(w->join, b.data, b.len);
  br_buf_free(&b);
}

static void send_peer(br_worker *to, const br_worker *about) {
  Brant__Pb__Peer p = BRANT__PB__PEER__INIT;
  p.worker = about->id;
  p.incarnation = about->incarnation;
  p.uri = about->uri;
  p.unix_path = about->unix_path;
  p.host_id = about->host_id;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_PEER;
  cmd.peer = &p;
  send_to(to, &cmd);
}

static void broadcast_except(br_cluster *c, uint32_t except, const Brant__Pb__Command *cmd) {
  void *v = NULL;
  uint64_t id = 0;
  br_buf b = {0};
  br_pb_pack(&cmd->base, &b);
  for (size_t it = 0; br_map_next(c->workers, &it, &id, &v);) {
    const br_worker *w = v;
    if (id != except && w->join != NULL) br_flight_call_result(w->join, b.data, b.len);
  }
  br_buf_free(&b);
}

/* Forget a worker and tell the others. Its call is ended by the caller or already closed. */
static void remove_worker(br_cluster *c, br_worker *w) {
  br_map_remove(c->workers, w->id);
  if (w->join != NULL) br_map_remove(c->by_call, (uint64_t)(uintptr_t)w->join);
  c->slots -= w->slots;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_PEER_GONE;
  cmd.peer_gone = w->id;
  broadcast_except(c, w->id, &cmd);
}

static bool same_secret(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  unsigned char diff = n != m;
  for (size_t i = 0; i < m; i++) diff |= (unsigned char)(b[i] ^ (i < n ? a[i] : 0));
  return diff == 0;
}

static br_status check_join(br_cluster *c, const Brant__Pb__JoinRequest *j, br_error *err) {
  if (!same_secret(j->secret, c->secret))
    return br_fail(err, BR_PERMISSION, BR_BLAME_USER, "join refused: the worker's secret is not this cluster's");
  if (strcmp(j->version, BRANT_VERSION) != 0)
    return br_fail(
        err, BR_VERSION, BR_BLAME_USER,
        "join refused: the worker is brant %.32s and the coordinator brant %s; install the same version on all nodes",
        j->version, BRANT_VERSION);
  if (j->slots == 0 || j->slots > 1024 || strncmp(j->uri, "tcp://", 6) != 0)
    return br_fail(err, BR_INVALID, BR_BLAME_WORKER, "join refused: %u slots at '%.64s'", j->slots, j->uri);
  if (br_map_count(c->workers) >= BR_CLUSTER_MAX_WORKERS)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "join refused: there are %d workers already",
                   BR_CLUSTER_MAX_WORKERS);
  return BR_OK;
}

static void welcome(br_cluster *c, br_worker *w) {
  Brant__Pb__Welcome msg = BRANT__PB__WELCOME__INIT;
  msg.worker = w->id;
  msg.incarnation = w->incarnation;
  msg.heartbeat_ms = c->silent_ms / 4 < HEARTBEAT_MS ? c->silent_ms / 4 : HEARTBEAT_MS;
  msg.silent_ms = c->silent_ms;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_WELCOME;
  cmd.welcome = &msg;
  send_to(w, &cmd);
  void *v = NULL;
  for (size_t it = 0; br_map_next(c->workers, &it, NULL, &v);) {
    br_worker *other = v;
    if (other == w) continue;
    send_peer(w, other);
    send_peer(other, w);
  }
}

static br_status on_join(br_cluster *c, br_flight_call *call, const void *body, size_t n, br_error *err) {
  Brant__Pb__JoinRequest *j =
      (Brant__Pb__JoinRequest *)br_pb_unpack(&brant__pb__join_request__descriptor, body, n, err);
  if (j == NULL) return (br_status)err->code;
  br_status status = check_join(c, j, err);
  if (status != BR_OK) {
    br_log(BR_LOG_WARN, "%s (from %s)", err->message, br_flight_call_peer(call));
    c->h.refused(c->h.arg, err);
    goto done;
  }
  br_worker *w = br_calloc(1, sizeof *w);
  w->id = ++c->next_id;
  w->incarnation = 1;
  w->slots = j->slots;
  w->threads = j->threads;
  w->gpus = j->gpus;
  w->memory_bytes = j->memory_bytes;
  w->pid = j->pid;
  w->uri = br_strdup(j->uri);
  w->unix_path = br_strdup(j->unix_path);
  w->host_id = br_strdup(j->host_id);
  w->join = call;
  w->heard_ms = br_now_ms();
  c->slots += w->slots;
  br_map_put(c->workers, w->id, w);
  br_map_put(c->by_call, (uint64_t)(uintptr_t)call, w);
  welcome(c, w);
  br_log(BR_LOG_INFO, "worker %u joined from %s: %u slots, pid %d", w->id, w->uri, w->slots, w->pid);
  br_events_emit(c->events, "worker_joined", "{s:I, s:I, s:s, s:I, s:I}", "worker", (json_int_t)w->id, "incarnation",
                 (json_int_t)w->incarnation, "uri", w->uri, "slots", (json_int_t)w->slots, "pid", (json_int_t)w->pid);
  c->h.joined(c->h.arg, w);
done:
  protobuf_c_message_free_unpacked(&j->base, NULL);
  return status;
}

static void take_gauge(br_worker *w, const Brant__Pb__WorkerGauge *g) {
  if (g == NULL) return;
  if (g->pss_peak_bytes > w->pss_peak_bytes) w->pss_peak_bytes = g->pss_peak_bytes;
  w->spilled_bytes = g->spilled_bytes;
  w->served_bytes = g->served_bytes;
}

static br_status on_report(br_cluster *c, br_flight_call *call, const void *body, size_t n, br_error *err) {
  Brant__Pb__Report *r = (Brant__Pb__Report *)br_pb_unpack(&brant__pb__report__descriptor, body, n, err);
  if (r == NULL) return (br_status)err->code;
  br_status status = BR_OK;
  br_worker *w = br_map_get(c->workers, r->worker);
  if (w == NULL || w->incarnation != r->incarnation) {
    status = br_fail(err, BR_LOST, BR_BLAME_WORKER, "worker %u (incarnation %u) is not a member: join again", r->worker,
                     r->incarnation);
    goto done;
  }
  if (r->seq > w->last_seq) { /* a repeated one is answered, not handled */
    w->last_seq = r->seq;
    w->heard_ms = br_now_ms();
    take_gauge(w, r->gauge);
    c->h.report(c->h.arg, w, r);
  }
  br_flight_call_end(call, NULL);
done:
  protobuf_c_message_free_unpacked(&r->base, NULL);
  return status;
}

static br_status on_action(void *arg, br_flight_call *call, const char *type, const void *body, size_t n,
                           br_error *err) {
  br_cluster *c = arg;
  if (strcmp(type, "join") == 0) return on_join(c, call, body, n, err);
  if (strcmp(type, "report") == 0) return on_report(c, call, body, n, err);
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "no action '%.64s': this coordinator knows join and report", type);
}

static br_status on_get(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                        br_error *err) {
  br_cluster *c = arg;
  Brant__Pb__Ticket *t = (Brant__Pb__Ticket *)br_pb_unpack(&brant__pb__ticket__descriptor, ticket, n, err);
  if (t == NULL) return (br_status)err->code;
  br_status status = t->ref != NULL || t->function != 0
                         ? c->h.get(c->h.arg, call, t, src, err)
                         : br_fail(err, BR_INVALID, BR_BLAME_USER, "the ticket names no partitions and no function");
  protobuf_c_message_free_unpacked(&t->base, NULL);
  return status;
}

static void on_closed(void *arg, br_flight_call *call) {
  br_cluster *c = arg;
  br_worker *w = br_map_get(c->by_call, (uint64_t)(uintptr_t)call);
  if (w == NULL) return;
  br_map_remove(c->by_call, (uint64_t)(uintptr_t)call);
  w->join = NULL;
  remove_worker(c, w);
  if (!c->closing) {
    br_log(BR_LOG_INFO, "worker %u is gone: its connection closed", w->id);
    br_events_emit(c->events, "worker_lost", "{s:I, s:I, s:s}", "worker", (json_int_t)w->id, "incarnation",
                   (json_int_t)w->incarnation, "why", "connection closed");
    c->h.lost(c->h.arg, w, false);
  }
  free_worker(w);
}

br_status br_cluster_new(br_loop *loop, const br_cluster_options *o, br_events *events, br_cluster_handlers h,
                         br_cluster **out, br_error *err) {
  static const char *const actions[] = {"join", "a worker offers itself", "report", "a worker tells what happened",
                                        NULL};
  br_cluster *c = br_calloc(1, sizeof *c);
  c->events = events;
  c->h = h;
  c->workers = br_map_new();
  c->by_call = br_map_new();
  c->secret = br_strdup(o->secret);
  c->silent_ms = o->silent_ms ? o->silent_ms : SILENT_MS;
  c->host_id = br_host_id();
  br_flight_handlers fh = {
      .arg = c, .do_get = on_get, .do_action = on_action, .call_closed = on_closed, .actions = actions};
  br_flight_server_options fo = {.host = o->host, .port = o->port, .bearer = o->secret};
  br_status status = br_flight_server_new(loop, &fo, &fh, &c->server, err);
  if (status != BR_OK) {
    br_cluster_free(c);
    return status;
  }
  *out = c;
  return BR_OK;
}

void br_cluster_free(br_cluster *c) {
  if (c == NULL) return;
  c->closing = true;
  if (c->server != NULL) br_flight_server_free(c->server); /* calls on_closed for each member */
  br_map_free(c->workers);
  br_map_free(c->by_call);
  free(c->secret);
  free(c->host_id);
  free(c);
}

int br_cluster_port(const br_cluster *c) { return br_flight_server_port(c->server); }
size_t br_cluster_size(const br_cluster *c) { return br_map_count(c->workers); }
uint32_t br_cluster_slots(const br_cluster *c) { return c->slots; }

uint32_t br_cluster_threads(const br_cluster *c) {
  uint32_t threads = 0;
  void *v = NULL;
  for (size_t it = 0; br_map_next(c->workers, &it, NULL, &v);) threads += ((const br_worker *)v)->threads;
  return threads;
}

uint32_t br_cluster_most_gpus(const br_cluster *c) {
  uint32_t most = 0;
  void *v = NULL;
  for (size_t it = 0; br_map_next(c->workers, &it, NULL, &v);)
    if (((const br_worker *)v)->gpus > most) most = ((const br_worker *)v)->gpus;
  return most;
}

uint32_t br_cluster_ids(const br_cluster *c, uint32_t *ids, uint32_t most) {
  uint32_t n = 0;
  uint64_t id;
  for (size_t it = 0; n < most && br_map_next(c->workers, &it, &id, NULL);) ids[n++] = (uint32_t)id;
  return n;
}
uint64_t br_cluster_memory_bytes(const br_cluster *c) {
  uint64_t sum = 0;
  void *v = NULL;
  for (size_t it = 0; br_map_next(c->workers, &it, NULL, &v);) sum += ((const br_worker *)v)->memory_bytes;
  return sum;
}

const br_worker *br_cluster_find(const br_cluster *c, uint32_t worker) { return br_map_get(c->workers, worker); }

bool br_cluster_send(br_cluster *c, uint32_t worker, const Brant__Pb__Command *cmd) {
  br_worker *w = br_map_get(c->workers, worker);
  if (w == NULL || w->join == NULL) return false;
  if (br_flight_call_queued_bytes(w->join) > COMMAND_QUEUE_BYTES) {
    br_log(BR_LOG_WARN, "worker %u does not take its commands: ending its connection", worker);
    br_flight_call_end(w->join, NULL);
    return false;
  }
  send_to(w, cmd);
  return true;
}

void br_cluster_broadcast(br_cluster *c, const Brant__Pb__Command *cmd) { broadcast_except(c, 0, cmd); }

void br_cluster_expel(br_cluster *c, uint32_t worker) {
  br_worker *w = br_map_get(c->workers, worker);
  if (w == NULL) return;
  br_flight_call *call = w->join;
  remove_worker(c, w);
  br_events_emit(c->events, "worker_lost", "{s:I, s:I, s:s}", "worker", (json_int_t)w->id, "incarnation",
                 (json_int_t)w->incarnation, "why", "declared lost");
  w->join = NULL;
  c->h.lost(c->h.arg, w, true);
  free_worker(w);
  br_error err;
  br_fail(&err, BR_LOST, BR_BLAME_WORKER, "worker %u was declared lost: join again", worker);
  if (call != NULL) br_flight_call_end(call, &err);
}

bool br_cluster_note_draining(br_cluster *c, uint32_t worker) {
  br_worker *w = br_map_get(c->workers, worker);
  if (w == NULL || w->draining) return false;
  return w->draining = true;
}

size_t br_cluster_silent(const br_cluster *c, uint64_t silent_ms, uint32_t *ids, size_t most) {
  uint64_t now = br_now_ms();
  void *v = NULL;
  size_t n = 0;
  for (size_t it = 0; n < most && br_map_next(c->workers, &it, NULL, &v);)
    if (now - ((const br_worker *)v)->heard_ms >= silent_ms) ids[n++] = ((const br_worker *)v)->id;
  return n;
}

const char *br_cluster_local_uri(const br_cluster *c, const br_worker *w) {
  if (w->unix_path[0] == 0 || strcmp(w->host_id, c->host_id) != 0) return w->uri;
  snprintf(((br_cluster *)(uintptr_t)c)->local_uri, sizeof c->local_uri, "unix:%s", w->unix_path);
  return c->local_uri;
}

void br_cluster_gauges(const br_cluster *c, uint64_t *peak_pss, uint64_t *spilled, uint64_t *served) {
  *peak_pss = *spilled = 0;
  if (served != NULL) *served = 0;
  void *v = NULL;
  for (size_t it = 0; br_map_next(c->workers, &it, NULL, &v);) {
    const br_worker *w = v;
    if (w->pss_peak_bytes > *peak_pss) *peak_pss = w->pss_peak_bytes;
    *spilled += w->spilled_bytes;
    if (served != NULL) *served += w->served_bytes;
  }
}
