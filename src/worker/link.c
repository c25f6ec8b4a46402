/* SPDX-License-Identifier: Apache-2.0
 * The connection to the coordinator. Down: the stream of the action "join", one Command a Result, the welcome first. Up: the
 * action "report", one under way at a time, with a sequence number; a report that failed while the stream stands is sent again
 * as it was. The end of the stream, a report without answer for silent_ms, or BR_NODE_REPORT_TRIES failed ones: the coordinator is
 * lost and this life of the worker ends (what it holds is worth nothing without it); rejoin.c may begin another.
 * Events are kept packed: packed Reports may be concatenated. Loop thread. Bounds: the events of one report are
 * BR_NODE_REPORT_BYTES; the queue holds what ended tasks say, at most a few for each slot between two reports. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MS 200u

static void flush(br_node *n);

static void on_flush(void *arg) {
  br_node *n = arg;
  n->link.flush_posted = false;
  flush(n);
}

/* Soon, so that what one turn of the loop brings goes in one report. */
static void flush_soon(br_node *n) {
  if (n->link.flush_posted || !n->worker) return;
  n->link.flush_posted = true;
  br_loop_post(n->loop, on_flush, n);
}

/* One that is to end anyway has nobody left to wait for. */
static void lost(br_node *n, const char *why) {
  br_node_stop(n, n->draining || n->leaving ? BR_NODE_EXIT_OK : BR_NODE_EXIT_COORDINATOR_LOST, why);
}

/* ---- events */

static void add_event(br_node *n, const Brant__Pb__Report *r) {
  if (n->stopping) return;
  br_link_event *e = br_calloc(1, sizeof *e);
  br_pb_pack(&r->base, &e->bytes);
  *n->link.last = e;
  n->link.last = &e->next;
  flush_soon(n);
}

static void event_free(br_link_event *e) {
  br_buf_free(&e->bytes);
  free(e);
}

void br_link_done(br_node *n, const br_attempt_id *id, Brant__Pb__TaskStats *stats) {
  Brant__Pb__AttemptId pid;
  br_attempt_to_pb(id, &pid);
  Brant__Pb__TaskDone done = BRANT__PB__TASK_DONE__INIT, *list = &done;
  done.id = &pid, done.stats = stats;
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  r.n_done = 1, r.done = &list;
  add_event(n, &r);
}

void br_link_failed(br_node *n, const br_attempt_id *id, const br_error *why) {
  Brant__Pb__AttemptId pid;
  br_attempt_to_pb(id, &pid);
  Brant__Pb__TaskFailed failed = BRANT__PB__TASK_FAILED__INIT, *list = &failed;
  failed.id = &pid, failed.error = br_error_to_pb(why);
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  r.n_failed = 1, r.failed = &list;
  add_event(n, &r);
  brant__pb__error__free_unpacked(failed.error, NULL);
}

void br_link_started(br_node *n, const br_attempt_id *id) {
  Brant__Pb__AttemptId pid, *list = &pid;
  br_attempt_to_pb(id, &pid);
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  r.n_started = 1, r.started = &list;
  add_event(n, &r);
}

void br_link_outputs_lost(br_node *n, const br_attempt_id *ids, size_t n_ids) {
  Brant__Pb__AttemptId *lost_ids = br_calloc(n_ids + 1, sizeof *lost_ids), **refs = br_calloc(n_ids + 1, sizeof *refs);
  for (size_t i = 0; i < n_ids; i++) {
    br_attempt_to_pb(&ids[i], &lost_ids[i]);
    refs[i] = &lost_ids[i];
  }
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  r.n_outputs_lost = n_ids, r.outputs_lost = refs;
  add_event(n, &r);
  free(lost_ids);
  free(refs);
}

void br_link_executor_lost(br_node *n, int pid, int status, const br_attempt_id *ids, size_t n_ids,
                           const br_error *why) {
  Brant__Pb__AttemptId *running = br_calloc(n_ids + 1, sizeof *running), **refs = br_calloc(n_ids + 1, sizeof *refs);
  for (size_t i = 0; i < n_ids; i++) {
    br_attempt_to_pb(&ids[i], &running[i]);
    refs[i] = &running[i];
  }
  Brant__Pb__ExecutorLost l = BRANT__PB__EXECUTOR_LOST__INIT, *list = &l;
  l.pid = pid, l.status = status;
  l.n_running = n_ids, l.running = refs;
  l.error = br_error_to_pb(why);
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  r.n_executor_lost = 1, r.executor_lost = &list;
  add_event(n, &r);
  brant__pb__error__free_unpacked(l.error, NULL);
  free(running);
  free(refs);
}

void br_link_progress(br_node *n) { flush_soon(n); }

void br_link_gauge(br_node *n) {
  n->link.gauge_due = true;
  flush_soon(n);
}

void br_link_drain(br_node *n) {
  n->link.draining = true;
  flush_soon(n);
}

void br_link_leave(br_node *n) {
  n->link.leaving = true;
  if (n->worker)
    flush_soon(n);
  else
    br_node_stop(n, BR_NODE_EXIT_OK, "asked to end before the coordinator answered");
}

/* ---- reports */

/* True: there is something in it. Numbers and flags come first; a message's later fields win or are appended. */
static bool compose(br_node *n) {
  br_link *l = &n->link;
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  Brant__Pb__WorkerGauge g = BRANT__PB__WORKER_GAUGE__INIT;
  Brant__Pb__TaskProgress *items = br_calloc(n->n_tasks + 1, sizeof *items),
                          **refs = br_calloc(n->n_tasks + 1, sizeof *refs);
  Brant__Pb__AttemptId *ids = br_calloc(n->n_tasks + 1, sizeof *ids);
  for (size_t i = 0; i < n->n_tasks; i++) {
    br_wtask *t = n->tasks[i];
    if (!t->progress_due) continue;
    t->progress_due = false;
    Brant__Pb__TaskProgress *p = &items[r.n_progress];
    brant__pb__task_progress__init(p);
    br_attempt_to_pb(&t->id, &ids[r.n_progress]);
    p->id = &ids[r.n_progress];
    p->rows = t->rows, p->bytes = t->bytes, p->fraction = t->fraction;
    refs[r.n_progress++] = p;
  }
  r.progress = refs;
  r.leaving = l->leaving && !l->leave_sent;
  if (l->gauge_due) {
    br_gauge_fill(n, &g);
    r.gauge = &g;
  }
  r.draining = l->draining && !l->drain_sent;
  bool any = r.n_progress || r.gauge || r.leaving || r.draining || l->first;
  if (any) {
    r.worker = n->worker, r.incarnation = n->incarnation, r.seq = ++l->seq;
    br_pb_pack(&r.base, &l->sending);
    size_t events = 0;
    for (br_link_event *e; (e = l->first) && (!events || events + e->bytes.len <= BR_NODE_REPORT_BYTES);) {
      br_buf_add(&l->sending, e->bytes.data, e->bytes.len);
      events += e->bytes.len;
      l->first = e->next;
      if (!l->first) l->last = &l->first;
      event_free(e);
    }
    l->gauge_due = false;
    if (r.leaving) l->leave_sent = true;
    if (r.draining) l->drain_sent = true;
  }
  free(items);
  free(refs);
  free(ids);
  return any;
}

static void on_report_end(void *arg, const br_error *err) {
  br_node *n = arg;
  br_link *l = &n->link;
  l->report = NULL;
  if (n->stopping) return;
  if (!err->code) {
    br_buf_clear(&l->sending);
    l->tries = 0;
    if (l->leave_sent)
      br_node_stop(n, BR_NODE_EXIT_OK, "asked to end");
    else
      flush_soon(n);
    return;
  }
  if (++l->tries >= BR_NODE_REPORT_TRIES || err->code == BR_LOST || err->code == BR_PERMISSION) {
    lost(n, err->message); /* it has forgotten us, or does not answer */
    return;
  }
  l->retry_at_ms = br_now_ms() + RETRY_MS;
}

static void send_report(br_node *n) {
  br_link *l = &n->link;
  l->retry_at_ms = 0;
  l->since_ms = br_now_ms();
  br_flight_sink sink = {.arg = n, .end = on_report_end};
  l->report = br_flight_action(l->client, "report", l->sending.data, l->sending.len, sink);
}

static void flush(br_node *n) {
  br_link *l = &n->link;
  if (n->stopping || !n->worker || l->report || l->sending.len) return;
  if (compose(n)) send_report(n);
}

/* ---- commands */

static void on_heartbeat(void *arg) { br_gauge_sample(arg, true); }

static void on_welcome(br_node *n, const Brant__Pb__Welcome *w) {
  if (n->worker || !w->worker || !w->heartbeat_ms || !w->silent_ms) {
    lost(n, "the coordinator's welcome makes no sense");
    return;
  }
  n->worker = w->worker;
  n->incarnation = w->incarnation;
  n->link.silent_ms = w->silent_ms;
  br_log_set_name("worker", n->worker);
  br_log(BR_LOG_INFO, "joined %s as worker %u, reached at %s", n->o->join, n->worker, n->uri);
  n->link.heartbeat = br_timer_start(n->loop, w->heartbeat_ms, w->heartbeat_ms, on_heartbeat, n);
  br_udf_pools_set_worker(n->udf, n->worker);
  br_children_setup(n);
  if (n->leaving) br_link_leave(n);
}

static void drop(br_node *n, uint64_t query, const uint32_t *stage_or_all) {
  br_tasks_drop(n, query, stage_or_all);
  br_tables_drop(n->tables, query, stage_or_all);
  br_children_forget(n, query, stage_or_all);
  br_node_outputs_drop(n, query, stage_or_all);
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  Brant__Pb__DropStage d = BRANT__PB__DROP_STAGE__INIT;
  if (stage_or_all) {
    d.query = query, d.stage = *stage_or_all;
    m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_DROP;
    m.drop = &d;
    br_store_drop_stage(n->store, query, *stage_or_all);
  } else {
    m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_DROP_QUERY;
    m.drop_query = query;
    br_store_drop_query(n->store, query);
  }
  br_children_broadcast(n, &m);
}

/* The coordinator itself has no address: this worker knows where it joined. */
static void take_peer(br_node *n, Brant__Pb__Peer *p) {
  Brant__Pb__Peer known = *p;
  char *joined = p->uri[0] ? NULL : br_asprintf("tcp://%s", n->o->join);
  if (joined) known.uri = joined;
  br_tables_peer(n->tables, &known, n->host_id);
  free(joined);
}

/* Tasks that still wait for it fail now, not when the network notices. */
static void peer_gone(br_node *n, uint32_t worker) {
  br_tables_peer_gone(n->tables, worker);
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_PEER_GONE;
  m.peer_gone = worker;
  br_children_broadcast(n, &m);
}

/* Takes over the message. */
static void command(br_node *n, Brant__Pb__Command *c) {
  if (!n->worker && c->what_case != BRANT__PB__COMMAND__WHAT_WELCOME) {
    lost(n, "the coordinator sent a command before its welcome");
    goto done;
  }
  switch (c->what_case) {
    case BRANT__PB__COMMAND__WHAT_WELCOME: on_welcome(n, c->welcome); break;
    case BRANT__PB__COMMAND__WHAT_RUN: br_tasks_run(n, &c->base); return; /* keeps it */
    case BRANT__PB__COMMAND__WHAT_CANCEL: {
      br_attempt_id id = br_attempt_from_pb(c->cancel);
      br_tasks_cancel(n, &id);
      break;
    }
    case BRANT__PB__COMMAND__WHAT_TABLE:
      br_tables_put(n->tables, c->table);
      br_store_unretire_stage(n->store, c->table->query, c->table->stage); /* somebody reads it again */
      break;
    case BRANT__PB__COMMAND__WHAT_PEER: take_peer(n, c->peer); break;
    case BRANT__PB__COMMAND__WHAT_PEER_GONE: peer_gone(n, c->peer_gone); break;
    case BRANT__PB__COMMAND__WHAT_DROP: drop(n, c->drop->query, &c->drop->stage); break;
    case BRANT__PB__COMMAND__WHAT_DROP_OUTPUT: {
      br_attempt_id id = br_attempt_from_pb(c->drop_output);
      br_node_drop_output(n, &id);
      break;
    }
    case BRANT__PB__COMMAND__WHAT_RETIRE: br_store_retire_stage(n->store, c->retire->query, c->retire->stage); break;
    case BRANT__PB__COMMAND__WHAT_DROP_QUERY: drop(n, c->drop_query, NULL); break;
    case BRANT__PB__COMMAND__WHAT_FUNCTION: br_udf_function(n->udf, c->function); break;
    case BRANT__PB__COMMAND__WHAT_DROP_FUNCTION: br_udf_drop(n->udf, c->drop_function); break;
    case BRANT__PB__COMMAND__WHAT_START_FUNCTION: br_udf_start(n->udf, c->start_function); break;
    case BRANT__PB__COMMAND__WHAT_RELEASE:
      if (n->draining) br_node_leave(n);
      break;
    case BRANT__PB__COMMAND__WHAT_SHUTDOWN: br_node_stop(n, BR_NODE_EXIT_OK, "the coordinator ends"); break;
    default: break; /* of a later version */
  }
done:
  protobuf_c_message_free_unpacked(&c->base, NULL);
}

static void on_command(void *arg, const void *body, size_t bytes) {
  br_node *n = arg;
  br_error err = {0};
  if (n->stopping) return;
  ProtobufCMessage *m = br_pb_unpack(&brant__pb__command__descriptor, body, bytes, &err);
  if (m)
    command(n, (Brant__Pb__Command *)m);
  else
    lost(n, err.message);
}

/* A coordinator that isn't there yet, or is starting again, is asked again; one that refuses is not. */
static void join_failed(br_node *n, const br_error *err) {
  br_link *l = &n->link;
  bool may_pass = err->code == BR_NETWORK || err->code == BR_TIMEOUT;
  if (may_pass && n->o->parent_fd < 0 && br_now_ms() < n->join_until_ms) {
    if (!l->told_waiting && !n->rejoins)
      br_log(BR_LOG_WARN, "no coordinator at %s yet (%s): trying for %llu s", n->o->join, err->message,
             (unsigned long long)n->o->join_wait_ms / 1000);
    l->told_waiting = true;
    l->rejoin_at_ms = br_now_ms() + BR_NODE_JOIN_RETRY_MS;
    return;
  }
  const char *why = err->code ? err->message : "the coordinator ended the call";
  if (err->code == BR_PERMISSION) why = "the secret of this worker (BRANT_SECRET or --secret-env) is not the cluster's";
  br_log(BR_LOG_ERROR, "cannot join %s: %s", n->o->join, why);
  br_node_stop(n, may_pass && n->rejoins ? BR_NODE_EXIT_COORDINATOR_LOST : BR_NODE_EXIT_FAILED, "the join failed");
}

static void on_join_end(void *arg, const br_error *err) {
  br_node *n = arg;
  n->link.join = NULL;
  if (n->stopping) return;
  if (!n->worker) {
    join_failed(n, err);
    return;
  }
  lost(n, err->code ? err->message : "the coordinator ended the connection");
}

/* ---- life */

static void send_join(br_node *n) {
  br_link *l = &n->link;
  l->since_ms = br_now_ms();
  Brant__Pb__JoinRequest j = BRANT__PB__JOIN_REQUEST__INIT;
  j.version = (char *)BRANT_VERSION;
  j.uri = n->uri, j.unix_path = n->unix_path ? n->unix_path : (char *)"", j.host_id = n->host_id;
  j.slots = n->o->slots * n->o->executors, j.threads = n->o->threads, j.memory_bytes = n->o->memory_bytes;
  j.pid = (int32_t)getpid();
  j.gpus = br_udf_gpus(n->udf);
  j.secret = n->o->secret;
  br_buf b = {0};
  br_pb_pack(&j.base, &b);
  l->join = br_flight_action(l->client, "join", b.data, b.len,
                             (br_flight_sink){.arg = n, .result = on_command, .end = on_join_end});
  br_buf_free(&b);
}

br_status br_link_open(br_node *n, br_error *err) {
  br_link *l = &n->link;
  l->last = &l->first;
  char *uri = br_asprintf("tcp://%s", n->o->join);
  br_flight_client_options o = {.bearer = n->o->secret[0] ? n->o->secret : NULL};
  br_status status = br_flight_client_new(n->loop, uri, &o, &l->client, err);
  free(uri);
  if (status) return status;
  send_join(n);
  return BR_OK;
}

/* Ctrl-Z stops the program whose session we belong to, not us. */
static bool parent_is_stopped(const br_node *n) {
  char path[64], text[512];
  if (n->o->parent_fd < 0) return false;
  snprintf(path, sizeof path, "/proc/%d/stat", n->parent_pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = 0;
  const char *p = strrchr(text, ')'); /* after the name, which may hold anything */
  return p && p[1] && (p[2] == 'T' || p[2] == 't');
}

void br_link_tick(br_node *n) {
  br_link *l = &n->link;
  uint64_t now = br_now_ms();
  if (!n->worker) {
    if (!l->rejoin_at_ms && now - l->since_ms > BR_NODE_WELCOME_MS) {
      br_log(BR_LOG_ERROR, "cannot join %s: no welcome within %u ms", n->o->join, BR_NODE_WELCOME_MS);
      br_node_stop(n, n->rejoins ? BR_NODE_EXIT_COORDINATOR_LOST : BR_NODE_EXIT_FAILED, "the join failed");
    } else if (l->rejoin_at_ms && now >= l->rejoin_at_ms) {
      l->rejoin_at_ms = 0;
      send_join(n);
    }
    return;
  }
  if (l->report && parent_is_stopped(n)) l->since_ms = now; /* it answers when it goes on */
  if (l->report && now - l->since_ms > l->silent_ms) {
    lost(n, "the coordinator does not answer");
    return;
  }
  if (l->retry_at_ms && now >= l->retry_at_ms) send_report(n);
}

void br_link_close(br_node *n) {
  br_link *l = &n->link;
  if (l->heartbeat) br_timer_stop(l->heartbeat);
  if (l->client) br_flight_client_free(l->client);
  while (l->first) {
    br_link_event *e = l->first;
    l->first = e->next;
    event_free(e);
  }
  br_buf_free(&l->sending);
}
