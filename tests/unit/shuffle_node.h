/* SPDX-License-Identifier: Apache-2.0
 * A node that serves its store over real sockets, honestly or not, and readers of it, for the tests of shuffle/ that include this. */
#ifndef BRANT_TESTS_SHUFFLE_NODE_H
#define BRANT_TESTS_SHUFFLE_NODE_H

#include "shuffle_util.h"

#include "flight/flight.h"
#include "proto/proto.h"
#include "shuffle/clients.h"
#include "shuffle/wire.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#define QUERY 77u
#define STAGE 4u

/* ---- loops */
typedef struct looper {
  br_loop *loop;
  pthread_t thread;
} looper;

static UNUSED void *run_loop(void *arg) {
  br_loop_run(arg);
  return NULL;
}

static UNUSED looper looper_start(void) {
  looper l = {0};
  br_error err = {0};
  assert_ok(br_loop_new(&l.loop, &err), err);
  pthread_create(&l.thread, NULL, run_loop, l.loop);
  return l;
}

static UNUSED void close_and_stop(void *loop) {
  br_clients_close(loop);
  br_loop_stop(loop);
}

static UNUSED void looper_stop(looper *l) {
  br_loop_post(l->loop, close_and_stop, l->loop);
  pthread_join(l->thread, NULL);
  br_loop_free(l->loop);
}

/* ---- a node that serves its store, honestly or not */
typedef enum fault {
  HONEST,
  NO_END_MARK,      /* ends well, but early */
  LOSES_A_CHUNK,    /* the end mark says one more than came */
  FEWER_OUTPUTS,    /* one output is not there */
  HANGS,            /* nothing after the schema */
  WRONG_PARTITION,  /* says another partition than asked for */
  HANGS_LATER,      /* after HANG_CHUNKS chunks */
  WRONG_DESCRIPTOR, /* of an output in memory: the number of another file */
  WRONG_INODE,      /* another output's descriptor */
  WRONG_OUTPUT,     /* the place of one output under the map number of another */
  LOSES_A_PLACE,    /* of two it tells one */
  REPEATS_A_PLACE   /* tells the first one twice, and not the second */
} fault;
#define HANG_CHUNKS 3u

typedef struct node {
  looper l;
  br_store *store;
  br_flight_server *server;
  char *dir, *unix_path, *uri;
  uint32_t first_map, last_map; /* the maps that it has */
  fault fault;
  _Atomic uint32_t gets, by_memory, refuse; /* by_memory: of the gets; refuse: so many first calls */
  _Atomic uint64_t pulled_bytes;
  bool up;
} node;

typedef struct wrapped {
  node *n;
  br_flight_source inner;
  uint32_t messages;
  br_wire_chunk tag;
  br_wire_memory place, first_place;
  uint32_t places;
} wrapped;

/* False: it does not go out. */
static UNUSED bool spoil_place(wrapped *w, br_flight_data *out) {
  fault f = w->n->fault;
  memcpy(&w->place, out->app, sizeof w->place);
  out->app = &w->place;
  if (++w->places == 1) w->first_place = w->place;
  if (f == REPEATS_A_PLACE && w->places == 2) w->place = w->first_place;
  if (f == WRONG_DESCRIPTOR && w->places == 2) w->place.fd = 0;
  if (f == WRONG_INODE && w->places == 2) w->place.inode++;
  if (f == WRONG_OUTPUT && w->places == 2) w->place.map++;
  return !(f == LOSES_A_PLACE && w->places == 2);
}

static UNUSED br_pull wrapped_next(void *arg, br_flight_data *out, br_error *err) {
  wrapped *w = arg;
  fault f = w->n->fault;
  if ((f == HANGS && w->messages > 0) || (f == HANGS_LATER && w->messages > HANG_CHUNKS)) return BR_PULL_WAIT;
  br_pull r = w->inner.next(w->inner.arg, out, err);
  if (r != BR_PULL_DATA) return r;
  w->messages++;
  w->n->pulled_bytes += out->head_bytes + out->body.bytes;
  if (out->app_bytes == sizeof w->place) return spoil_place(w, out) ? r : wrapped_next(arg, out, err);
  bool end = out->head_bytes == 0;
  if (f == NO_END_MARK && end) return BR_PULL_END;
  if (f == LOSES_A_CHUNK && w->messages == 3 && !end) {
    if (out->body.release != NULL) out->body.release(out->body.owner);
    return wrapped_next(arg, out, err);
  }
  if (f == WRONG_PARTITION && !end && w->messages == 2) {
    memcpy(&w->tag, out->app, sizeof w->tag);
    w->tag.partition = 511;
    out->app = &w->tag;
  }
  return r;
}

static UNUSED void wrapped_free(void *arg) {
  wrapped *w = arg;
  w->inner.free(w->inner.arg);
  free(w);
}

static UNUSED br_status serve(node *n, br_flight_call *call, const Brant__Pb__Ticket *t, br_flight_source *src,
                              br_error *err) {
  br_mapfile *files[64];
  uint32_t maps[64];
  size_t count = 0;
  uint32_t last = t->ref->map_last < n->last_map ? t->ref->map_last : n->last_map;
  for (uint32_t m = t->ref->map_first > n->first_map ? t->ref->map_first : n->first_map; m < last && count < 64; m++) {
    files[count] = br_store_get(n->store, t->ref->query, t->ref->stage, m, 0);
    if (files[count] == NULL || (n->fault == FEWER_OUTPUTS && m == n->first_map)) {
      br_mapfile_unref(files[count]);
      continue;
    }
    maps[count++] = m;
  }
  br_serve_set set = {.files = files, .maps = maps, .n = count, .lend_from = t->by_memory ? n->store : NULL};
  if (t->by_memory) n->by_memory++;
  wrapped *w = br_calloc(1, sizeof *w);
  w->n = n;
  br_status status = br_serve_source(n->l.loop, call, &set, t->ref->first, t->ref->last, t->ordered, &w->inner, err);
  for (size_t i = 0; i < count; i++) br_mapfile_unref(files[i]);
  if (status == BR_OK)
    *src = (br_flight_source){.next = wrapped_next, .free = wrapped_free, .arg = w};
  else
    free(w);
  return status;
}

static UNUSED br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t bytes, br_flight_source *src,
                               br_error *err) {
  node *n = arg;
  n->gets++;
  if (n->refuse > 0) {
    n->refuse--;
    return br_fail(err, BR_NOT_FOUND, BR_BLAME_WORKER, "not there yet");
  }
  Brant__Pb__Ticket *t = (Brant__Pb__Ticket *)br_pb_unpack(&brant__pb__ticket__descriptor, ticket, bytes, err);
  if (t == NULL) return err->code;
  br_status status =
      t->ref == NULL ? br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "ticket") : serve(n, call, t, src, err);
  brant__pb__ticket__free_unpacked(t, NULL);
  return status;
}

typedef struct node_post {
  node *n;
  br_error err;
  br_status status;
  _Atomic bool done;
} node_post;

static UNUSED void server_up(void *arg) {
  node_post *p = arg;
  node *n = p->n;
  br_flight_server_options o = {.host = "127.0.0.1", .unix_path = n->unix_path};
  br_flight_handlers h = {.arg = n, .do_get = do_get};
  p->status = br_flight_server_new(n->l.loop, &o, &h, &n->server, &p->err);
  p->done = true;
}

static UNUSED void server_down(void *arg) {
  node_post *p = arg;
  br_flight_server_free(p->n->server);
  p->n->server = NULL;
  p->done = true;
}

static UNUSED void on_node(node *n, void (*fn)(void *)) {
  node_post p = {.n = n};
  br_loop_post(n->l.loop, fn, &p);
  while (!p.done) sched_yield();
  assert_ok(p.status, p.err);
}

static UNUSED void node_serve(node *n, bool over_tcp) {
  on_node(n, server_up);
  n->up = true;
  free(n->uri);
  n->uri = over_tcp ? br_asprintf("tcp://127.0.0.1:%d", br_flight_server_port(n->server))
                    : br_asprintf("unix:%s", n->unix_path);
}

static UNUSED void node_stop_serving(node *n) {
  if (n->up) on_node(n, server_down);
  n->up = false;
}

static UNUSED node *node_new(uint32_t first_map, uint32_t last_map) {
  node *n = br_calloc(1, sizeof *n);
  br_error err = {0};
  *n = (node){.l = looper_start(), .dir = temp_dir(), .first_map = first_map, .last_map = last_map};
  char *store_dir = br_asprintf("%s/store", n->dir);
  n->unix_path = br_asprintf("%s/socket", n->dir);
  n->uri = br_asprintf("unix:%s", n->unix_path);
  br_store_options o = {.dir = store_dir, .memory_bytes = 1u << 30};
  assert_ok(br_store_new(&o, &n->store, &err), err);
  free(store_dir);
  return n;
}

static UNUSED void node_free(node *n) {
  node_stop_serving(n);
  looper_stop(&n->l);
  br_store_drop_query(n->store, QUERY);
  assert_int_equal(br_store_gauge_now(n->store).memory_bytes, 0); /* no reference was left behind */
  br_store_free(n->store);
  temp_dir_free(n->dir);
  free(n->unix_path);
  free(n->uri);
  free(n);
}

/* Rows [map * rows, (map + 1) * rows) are the output of task `map`. */
static UNUSED void node_fill(node *n, uint32_t partitions, uint64_t rows, bool disk) {
  br_error err = {0};
  for (uint32_t m = n->first_map; m < n->last_map; m++) {
    br_attempt_id id = {.query = QUERY, .stage = STAGE, .task = m};
    br_map_output o = write_output(&id, partitions, m * rows, (m + 1) * rows, n->dir, disk);
    assert_ok(br_store_add(n->store, &id, &o, &err), err);
  }
}

static UNUSED br_read_remote remote_of(const node *n, uint32_t worker) {
  return (br_read_remote){.uri = n->uri, .worker = worker, .incarnation = 1, .outputs = n->last_map - n->first_map};
}

static UNUSED br_reader_options reader_options(looper *l, br_schema *schema, uint32_t first, uint32_t last) {
  return (br_reader_options){.loop = l->loop,
                             .schema = schema,
                             .query = QUERY,
                             .stage = STAGE,
                             .table_version = 1,
                             .first = first,
                             .last = last,
                             .map_last = UINT32_MAX,
                             .buffer_bytes = 8u << 20,
                             .retry = 3,
                             .retry_ms = 10};
}

/* ---- consumers */
typedef struct consumer {
  br_reader *r;
  seen_rows *seen;
  br_status status;
  br_error err;
  const char *wrong;
  uint64_t batches;
} consumer;

static UNUSED void *consume(void *arg) {
  consumer *c = arg;
  for (;;) {
    br_batch *b = NULL;
    c->status = br_reader_next(c->r, &b, &c->err);
    if (c->status != BR_OK || b == NULL) return NULL;
    const char *wrong = see_batch(c->seen, b, 0, 0);
    if (c->wrong == NULL) c->wrong = wrong;
    c->batches++;
    br_batch_unref(b);
  }
}

static UNUSED void read_all(br_reader *r, seen_rows *seen, uint32_t threads) {
  consumer c[4];
  pthread_t ids[4];
  for (uint32_t i = 0; i < threads; i++) {
    c[i] = (consumer){.r = r, .seen = seen};
    pthread_create(&ids[i], NULL, consume, &c[i]);
  }
  for (uint32_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  for (uint32_t i = 0; i < threads; i++) {
    assert_ok(c[i].status, c[i].err);
    assert_null(c[i].wrong);
  }
}

/* Reads to the failure that must come. */
static UNUSED br_error read_to_failure(br_reader *r) {
  br_error err = {0};
  br_batch *b = NULL;
  br_status status;
  while ((status = br_reader_next(r, &b, &err)) == BR_OK && b != NULL) br_batch_unref(b);
  assert_int_not_equal(status, BR_OK); /* the end: a short answer */
  br_error again = {0};
  assert_int_equal(br_reader_next(r, &b, &again), status);
  assert_string_equal(again.message, err.message);
  return err;
}

#endif
