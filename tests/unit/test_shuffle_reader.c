/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * Readers against real servers over real sockets: nothing is lost, nothing comes twice, nothing waits for ever, and an answer
 * that is not whole is a failure. */
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

static void *run_loop(void *arg) {
  br_loop_run(arg);
  return NULL;
}

static looper looper_start(void) {
  looper l = {0};
  br_error err = {0};
  assert_ok(br_loop_new(&l.loop, &err), err);
  pthread_create(&l.thread, NULL, run_loop, l.loop);
  return l;
}

static void close_and_stop(void *loop) {
  br_clients_close(loop);
  br_loop_stop(loop);
}

static void looper_stop(looper *l) {
  br_loop_post(l->loop, close_and_stop, l->loop);
  pthread_join(l->thread, NULL);
  br_loop_free(l->loop);
}

/* ---- a node that serves its store, honestly or not */
typedef enum fault {
  HONEST,
  NO_END_MARK,     /* ends well, but early */
  LOSES_A_CHUNK,   /* the end mark says one more than came */
  FEWER_OUTPUTS,   /* one output is not there */
  HANGS,           /* nothing after the schema */
  WRONG_PARTITION, /* says another partition than asked for */
  HANGS_LATER      /* after HANG_CHUNKS chunks */
} fault;
#define HANG_CHUNKS 3u

typedef struct node {
  looper l;
  br_store *store;
  br_flight_server *server;
  char *dir, *unix_path, *uri;
  uint32_t first_map, last_map; /* the maps that it has */
  fault fault;
  _Atomic uint32_t gets, refuse; /* refuse: so many first calls */
  _Atomic uint64_t pulled_bytes;
  bool up;
} node;

typedef struct wrapped {
  node *n;
  br_flight_source inner;
  uint32_t messages;
  br_wire_chunk tag;
} wrapped;

static br_pull wrapped_next(void *arg, br_flight_data *out, br_error *err) {
  wrapped *w = arg;
  fault f = w->n->fault;
  if ((f == HANGS && w->messages > 0) || (f == HANGS_LATER && w->messages > HANG_CHUNKS)) return BR_PULL_WAIT;
  br_pull r = w->inner.next(w->inner.arg, out, err);
  if (r != BR_PULL_DATA) return r;
  w->messages++;
  w->n->pulled_bytes += out->head_bytes + out->body.bytes;
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

static void wrapped_free(void *arg) {
  wrapped *w = arg;
  w->inner.free(w->inner.arg);
  free(w);
}

static br_status serve(node *n, br_flight_call *call, const Brant__Pb__Ticket *t, br_flight_source *src,
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
  br_serve_set set = {.files = files, .maps = maps, .n = count};
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

static br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t bytes, br_flight_source *src,
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

static void server_up(void *arg) {
  node_post *p = arg;
  node *n = p->n;
  br_flight_server_options o = {.host = "127.0.0.1", .unix_path = n->unix_path};
  br_flight_handlers h = {.arg = n, .do_get = do_get};
  p->status = br_flight_server_new(n->l.loop, &o, &h, &n->server, &p->err);
  p->done = true;
}

static void server_down(void *arg) {
  node_post *p = arg;
  br_flight_server_free(p->n->server);
  p->n->server = NULL;
  p->done = true;
}

static void on_node(node *n, void (*fn)(void *)) {
  node_post p = {.n = n};
  br_loop_post(n->l.loop, fn, &p);
  while (!p.done) sched_yield();
  assert_ok(p.status, p.err);
}

static void node_serve(node *n, bool over_tcp) {
  on_node(n, server_up);
  n->up = true;
  free(n->uri);
  n->uri = over_tcp ? br_asprintf("tcp://127.0.0.1:%d", br_flight_server_port(n->server))
                    : br_asprintf("unix:%s", n->unix_path);
}

static void node_stop_serving(node *n) {
  if (n->up) on_node(n, server_down);
  n->up = false;
}

static node *node_new(uint32_t first_map, uint32_t last_map) {
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

static void node_free(node *n) {
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
static void node_fill(node *n, uint32_t partitions, uint64_t rows, bool disk) {
  br_error err = {0};
  for (uint32_t m = n->first_map; m < n->last_map; m++) {
    br_attempt_id id = {.query = QUERY, .stage = STAGE, .task = m};
    br_map_output o = write_output(&id, partitions, m * rows, (m + 1) * rows, n->dir, disk);
    assert_ok(br_store_add(n->store, &id, &o, &err), err);
  }
}

static br_read_remote remote_of(const node *n, uint32_t worker) {
  return (br_read_remote){.uri = n->uri, .worker = worker, .incarnation = 1, .outputs = n->last_map - n->first_map};
}

static br_reader_options reader_options(looper *l, br_schema *schema, uint32_t first, uint32_t last) {
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

static void *consume(void *arg) {
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

static void read_all(br_reader *r, seen_rows *seen, uint32_t threads) {
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
static br_error read_to_failure(br_reader *r) {
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

/* ---- tests */
/* Two remote nodes (one over TCP from memory, one over a Unix socket from disk) and two local outputs. */
static void every_row_once(void **unused) {
  (void)unused;
  static const uint32_t counts[4] = {1, 7, 64, 512};
  br_schema *schema = rows_schema();
  looper l = looper_start();
  for (int i = 0; i < 4; i++) {
    uint32_t p = counts[i];
    node *a = node_new(0, 3), *b = node_new(3, 5), *here = node_new(5, 7);
    node_fill(a, p, 20000, false);
    node_fill(b, p, 20000, true);
    node_fill(here, p, 20000, false);
    node_serve(a, true);
    node_serve(b, false);
    br_read_remote remote[2] = {remote_of(a, 1), remote_of(b, 2)};
    br_read_local local[2] = {{br_store_get(here->store, QUERY, STAGE, 5, 0), 5},
                              {br_store_get(here->store, QUERY, STAGE, 6, 0), 6}};
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
      seen_rows seen = seen_new(0, 7 * 20000);
      uint32_t cuts[4] = {0, p / 3, p / 3 * 2, p}; /* three readers take a part each */
      for (int k = 0; k < 3; k++) {
        br_reader_options o = reader_options(&l, schema, cuts[k], cuts[k + 1]);
        o.remote = remote;
        o.n_remote = 2;
        o.local = local;
        o.n_local = 2;
        br_reader *r = NULL;
        br_error err = {0};
        assert_ok(br_reader_open(&o, &r, &err), err);
        uint64_t before = seen.total;
        read_all(r, &seen, threads);
        br_reader_stats s = br_reader_stats_now(r);
        assert_int_equal(s.rows, seen.total - before);
        if (s.rows > 0) assert_true(s.bytes > s.remote_bytes && s.remote_bytes > 0);
        br_reader_free(r);
      }
      assert_all_once(&seen);
      seen_free(&seen);
    }
    for (int k = 0; k < 2; k++) br_mapfile_unref(local[k].file);
    node_free(a);
    node_free(b);
    node_free(here);
  }
  looper_stop(&l);
  br_schema_unref(schema);
}

static void ranges_of_maps(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 4);
  node_fill(a, 7, 20000, false);
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 1);
  remote.outputs = 2;
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  o.map_first = 1;
  o.map_last = 3;
  br_reader *r = NULL;
  br_error err = {0};
  seen_rows seen = seen_new(20000, 60000);
  assert_ok(br_reader_open(&o, &r, &err), err);
  read_all(r, &seen, 1);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_free(r);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void ordered_is_map_by_map(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *nodes[3];
  br_read_remote remote[2];
  br_read_local local[3];
  /* maps 0-3 remote on disk, 4-6 local, 7-9 remote; and interleaved single ones by a narrow range would look the same */
  for (uint32_t i = 0; i < 3; i++) {
    static const uint32_t first[4] = {0, 4, 7, 10};
    nodes[i] = node_new(first[i], first[i + 1]);
    node_fill(nodes[i], 1, 20000, i == 0);
    if (i != 1) node_serve(nodes[i], i == 2);
  }
  remote[0] = remote_of(nodes[2], 3); /* the order of sources doesn't matter */
  remote[1] = remote_of(nodes[0], 1);
  for (uint32_t i = 0; i < 3; i++)
    local[2 - i] = (br_read_local){br_store_get(nodes[1]->store, QUERY, STAGE, 4 + i, 0), 4 + i};
  br_reader_options o = reader_options(&l, schema, 0, 1);
  o.remote = remote;
  o.n_remote = 2;
  o.local = local;
  o.n_local = 3;
  o.ordered = true;
  o.buffer_bytes = 256u << 10;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  int64_t expected = 0;
  for (;;) {
    br_batch *b = NULL;
    assert_ok(br_reader_next(r, &b, &err), err);
    if (b == NULL) break;
    const int64_t *id = br_batch_arrow(b)->children[0]->buffers[1];
    for (int64_t i = 0; i < br_batch_rows(b); i++) assert_int_equal(id[i], expected++);
    br_batch_unref(b);
  }
  assert_int_equal(expected, 10 * 20000);
  br_reader_free(r);
  for (int i = 0; i < 3; i++) br_mapfile_unref(local[i].file);
  for (int i = 0; i < 3; i++) node_free(nodes[i]);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void without_sources_it_ends(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  br_reader_options o = reader_options(&l, schema, 0, 7);
  br_read_remote none = {.uri = "unix:/nowhere", .worker = 1};
  o.remote = &none; /* no outputs there: not asked */
  o.n_remote = 1;
  br_reader *r = NULL;
  br_error err = {0};
  br_batch *b = NULL;
  assert_ok(br_reader_open(&o, &r, &err), err);
  assert_ok(br_reader_next(r, &b, &err), err);
  assert_null(b);
  br_reader_free(r);
  looper_stop(&l);
  br_schema_unref(schema);
}

/* A message larger than every window, and than buffer_bytes. */
static void large_chunks(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 1);
  br_error err = {0};
  br_attempt_id id = {.query = QUERY, .stage = STAGE, .task = 0};
  br_writer_options w = {.id = id,
                         .schema = schema,
                         .kind = BR_PART_SINGLE,
                         .partitions = 1,
                         .chunk_bytes = 12u << 20,
                         .scatter_buffer_bytes = 64u << 20};
  br_writer *writer = NULL;
  void *state = NULL;
  br_map_output out;
  assert_ok(br_writer_open(&w, &writer, &err), err);
  assert_ok(br_writer_thread(writer, &state, &err), err);
  assert_ok(write_rows(writer, state, 0, 1000000, 1, true, &err), err);
  assert_ok(br_writer_thread_end(writer, state, &err), err);
  assert_ok(br_writer_commit(writer, &out, &err), err);
  br_writer_free(writer);
  assert_ok(br_store_add(a->store, &id, &out, &err), err);
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 1);
  br_reader_options o = reader_options(&l, schema, 0, 1);
  o.remote = &remote;
  o.n_remote = 1;
  o.buffer_bytes = 256u << 10;
  br_reader *r = NULL;
  seen_rows seen = seen_new(0, 1000000);
  assert_ok(br_reader_open(&o, &r, &err), err);
  read_all(r, &seen, 1);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_free(r);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

/* One reader stops; another on the same connection goes on; what was sent to the first is bounded. */
static void a_reader_that_stops(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *slow = node_new(0, 8), *quick = node_new(8, 16);
  node_fill(slow, 7, 60000, false); /* 18 MiB */
  node_fill(quick, 7, 60000, false);
  node_serve(slow, true);
  node_serve(quick, true);
  br_read_remote from_slow = remote_of(slow, 1), from_quick = remote_of(quick, 2);
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.n_remote = 1;
  o.remote = &from_slow;
  o.buffer_bytes = 512u << 10;
  o.silent_ms = 200; /* to be slow ourselves is no failure of the source */
  br_reader *stopped = NULL, *going = NULL;
  br_error err = {0};
  br_batch *first = NULL;
  assert_ok(br_reader_open(&o, &stopped, &err), err);
  assert_ok(br_reader_next(stopped, &first, &err), err);
  for (int round = 0; round < 3; round++) {
    for (int k = 0; k < 2; k++) { /* from the other node, and from the same one over the same connection */
      if (k == 1 && round > 0) continue;
      o.remote = k == 0 ? &from_quick : &from_slow;
      seen_rows seen = seen_new(k == 0 ? 480000 : 0, k == 0 ? 960000 : 480000);
      assert_ok(br_reader_open(&o, &going, &err), err);
      read_all(going, &seen, 1);
      assert_all_once(&seen);
      seen_free(&seen);
      uint64_t bytes = br_reader_stats_now(going).remote_bytes;
      br_reader_free(going);
      if (k == 1) slow->pulled_bytes -= bytes;
    }
  }
  assert_true(slow->pulled_bytes < (512u << 10) + (3u << 20)); /* window, and what the transport queues */
  seen_rows rest = seen_new(0, 480000);
  assert_null(see_batch(&rest, first, 0, 0));
  br_batch_unref(first);
  read_all(stopped, &rest, 2); /* and it can go on */
  assert_all_once(&rest);
  seen_free(&rest);
  br_reader_free(stopped);
  node_free(slow);
  node_free(quick);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void cancel_wakes_at_once(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 1);
  node_fill(a, 7, 20000, false);
  a->fault = HANGS;
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 1);
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  seen_rows seen = seen_new(0, 20000);
  consumer c[2] = {{.r = r, .seen = &seen}, {.r = r, .seen = &seen}};
  pthread_t ids[2];
  for (int i = 0; i < 2; i++) pthread_create(&ids[i], NULL, consume, &c[i]);
  while (a->pulled_bytes == 0) sched_yield(); /* the schema went out: the call is under way */
  uint64_t before = br_now_ms();
  br_reader_cancel(r);
  for (int i = 0; i < 2; i++) pthread_join(ids[i], NULL);
  assert_true(br_now_ms() - before < 1000);
  for (int i = 0; i < 2; i++) assert_int_equal(c[i].status, BR_CANCELLED);
  br_batch *b = NULL;
  assert_int_equal(br_reader_next(r, &b, &err), BR_CANCELLED);
  br_reader_free(r);
  seen_free(&seen);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

static br_error fetch_failure(fault f, uint32_t retry, uint32_t silent_ms, uint32_t *gets) {
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 2);
  node_fill(a, 7, 20000, false);
  a->fault = f;
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 42);
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  o.retry = retry;
  o.silent_ms = silent_ms;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  br_error seen = read_to_failure(r);
  br_reader_free(r);
  *gets = a->gets;
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
  assert_int_equal(seen.code, BR_FETCH);
  assert_int_equal(seen.blame, BR_BLAME_FETCH);
  assert_int_equal(seen.worker, 42);
  return seen;
}

static void short_answers_are_failures(void **unused) {
  (void)unused;
  uint32_t gets;
  br_error e = fetch_failure(NO_END_MARK, 3, 0, &gets);
  assert_in_range(gets, 1, 4); /* no second try once some of it was delivered, which is a matter of luck here */
  assert_non_null(strstr(e.message, "broke off"));
  e = fetch_failure(LOSES_A_CHUNK, 3, 0, &gets);
  assert_non_null(strstr(e.message, "chunks arrived"));
  e = fetch_failure(FEWER_OUTPUTS, 3, 0, &gets);
  assert_non_null(strstr(e.message, "1 of the 2"));
  e = fetch_failure(WRONG_PARTITION, 3, 0, &gets);
  assert_non_null(strstr(e.message, "not asked for"));
}

static void a_silent_source_fails(void **unused) {
  (void)unused;
  uint32_t gets;
  br_error e = fetch_failure(HANGS, 2, 60, &gets);
  assert_int_equal(gets, 1); /* it had its time: the scheduler asks whether that worker is still there */
  assert_non_null(strstr(e.message, "sent nothing for 60 ms"));
  e = fetch_failure(HANGS_LATER, 2, 60, &gets);
  assert_int_equal(gets, 1);
}

static void silence_follows_the_cluster(void **unused) {
  (void)unused;
  assert_int_equal(br_reader_silent_ms(10000), 10000);
  assert_int_equal(br_reader_silent_ms(1000), 3 * BR_SERVE_ALIVE_MS); /* who waits for rows hears that often */
  assert_int_equal(br_reader_silent_ms(3600000), BR_READER_SILENT_MS);
}

static void refusals_are_retried(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 2);
  node_fill(a, 7, 20000, false);
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 42);
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  br_reader *r = NULL;
  br_error err = {0};
  a->refuse = 3;
  seen_rows seen = seen_new(0, 40000);
  assert_ok(br_reader_open(&o, &r, &err), err);
  read_all(r, &seen, 2);
  assert_all_once(&seen);
  assert_int_equal(a->gets, 4);
  seen_free(&seen);
  br_reader_free(r);
  a->refuse = 4;
  assert_ok(br_reader_open(&o, &r, &err), err);
  br_error e = read_to_failure(r);
  assert_int_equal(e.code, BR_FETCH);
  assert_non_null(strstr(e.message, "not there yet"));
  br_reader_free(r);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void a_server_that_comes_up_late(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 2);
  node_fill(a, 7, 20000, false);
  br_read_remote remote = remote_of(a, 42); /* nobody listens there yet */
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  o.retry = 10;
  br_reader *r = NULL;
  br_error err = {0};
  seen_rows seen = seen_new(0, 40000);
  consumer c = {.seen = &seen};
  pthread_t id;
  assert_ok(br_reader_open(&o, &r, &err), err);
  c.r = r;
  pthread_create(&id, NULL, consume, &c);
  node_serve(a, false);
  pthread_join(id, NULL);
  assert_ok(c.status, c.err);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_free(r);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void a_server_that_never_comes(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  br_read_remote remote = {.uri = "unix:/nowhere/at/all", .worker = 42, .outputs = 1};
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  br_error e = read_to_failure(r);
  assert_true(e.code == BR_FETCH && e.worker == 42);
  assert_non_null(strstr(e.message, "/nowhere/at/all"));
  br_reader_free(r);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void a_server_that_dies(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 8);
  node_fill(a, 7, 60000, false);
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 42);
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  o.buffer_bytes = 256u << 10;
  br_reader *r = NULL;
  br_error err = {0};
  br_batch *b = NULL;
  assert_ok(br_reader_open(&o, &r, &err), err);
  assert_ok(br_reader_next(r, &b, &err), err);
  assert_non_null(b);
  br_batch_unref(b);
  node_stop_serving(a);
  br_error e = read_to_failure(r);
  assert_true(e.code == BR_FETCH && e.blame == BR_BLAME_FETCH && e.worker == 42);
  assert_int_equal(a->gets, 1);
  br_reader_free(r);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void flip_a_byte(node *n, uint32_t task) {
  bool in_memory;
  uint64_t bytes;
  br_attempt_id id = {.query = QUERY, .stage = STAGE, .task = task};
  int fd = br_store_fd(n->store, &id, &in_memory, &bytes);
  unsigned char b;
  assert_true(fd >= 0 && !in_memory);
  assert_int_equal(pread(fd, &b, 1, (off_t)bytes / 2), 1);
  b ^= 0x40;
  assert_int_equal(pwrite(fd, &b, 1, (off_t)bytes / 2), 1);
  close(fd);
}

static void damage_names_the_output(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 3);
  node_fill(a, 7, 60000, true);
  flip_a_byte(a, 1);
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 42);
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  br_error e = read_to_failure(r);
  assert_true(e.code == BR_FETCH && e.worker == 42 && e.has_lost);
  assert_true(e.lost.made_by.query == QUERY && e.lost.made_by.stage == STAGE && e.lost.made_by.task == 1);
  assert_true(e.lost.worker == 42 && e.lost.incarnation == 1);
  assert_int_equal(a->gets, 1); /* another try would find the same */
  br_reader_free(r);

  br_read_local local = {br_store_get(a->store, QUERY, STAGE, 1, 0), 1}; /* the same on its own node */
  o.n_remote = 0;
  o.local = &local;
  o.n_local = 1;
  assert_ok(br_reader_open(&o, &r, &err), err);
  e = read_to_failure(r);
  assert_true(e.code == BR_FETCH && e.has_lost && e.lost.made_by.task == 1);
  br_reader_free(r);
  br_mapfile_unref(local.file);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(schema);
}

static br_schema *other_schema(void) {
  struct ArrowSchema s;
  br_schema *out = NULL;
  br_error err = {0};
  ArrowSchemaInit(&s);
  assert_int_equal(ArrowSchemaSetTypeStruct(&s, 1), 0);
  assert_int_equal(ArrowSchemaSetType(s.children[0], NANOARROW_TYPE_INT32), 0);
  assert_int_equal(ArrowSchemaSetName(s.children[0], "x"), 0);
  assert_ok(br_schema_new(&s, &out, &err), err);
  return out;
}

static void other_types_are_refused(void **unused) {
  (void)unused;
  br_schema *other = other_schema();
  looper l = looper_start();
  node *a = node_new(0, 1);
  node_fill(a, 7, 20000, false);
  node_serve(a, true);
  br_read_remote remote = remote_of(a, 42);
  br_reader_options o = reader_options(&l, other, 0, 7);
  o.remote = &remote;
  o.n_remote = 1;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  br_error e = read_to_failure(r);
  assert_int_equal(e.code, BR_FETCH);
  assert_non_null(strstr(e.message, "types"));
  br_reader_free(r);
  br_read_local local = {br_store_get(a->store, QUERY, STAGE, 0, 0), 0};
  o.n_remote = 0;
  o.local = &local;
  o.n_local = 1;
  assert_int_equal(br_reader_open(&o, &r, &err), BR_FETCH);
  br_mapfile_unref(local.file);
  node_free(a);
  looper_stop(&l);
  br_schema_unref(other);
}

/* Readers that are given up at every moment; connections stay. */
static void readers_given_up(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  looper l = looper_start();
  node *a = node_new(0, 3), *b = node_new(3, 5);
  node_fill(a, 7, 20000, false);
  node_fill(b, 7, 20000, true);
  node_serve(a, true);
  node_serve(b, false);
  br_read_remote remote[2] = {remote_of(a, 1), remote_of(b, 2)};
  br_reader_options o = reader_options(&l, schema, 0, 7);
  o.remote = remote;
  o.n_remote = 2;
  for (int i = 0; i < 60; i++) {
    br_reader *r = NULL;
    br_error err = {0};
    assert_ok(br_reader_open(&o, &r, &err), err);
    for (int k = 0; k < i % 9; k++) {
      br_batch *batch = NULL;
      assert_ok(br_reader_next(r, &batch, &err), err);
      br_batch_unref(batch);
    }
    br_reader_free(r);
  }
  assert_true(br_clients_count(l.loop) <= 2);
  seen_rows seen = seen_new(0, 100000);
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&o, &r, &err), err);
  read_all(r, &seen, 2);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_free(r);
  node_free(a);
  node_free(b);
  looper_stop(&l);
  br_schema_unref(schema);
}

static void the_backend_table(void **unused) {
  (void)unused;
  assert_string_equal(br_flight_backend.name, "flight");
  assert_false(br_flight_backend.outlives_worker);
  assert_ptr_equal(br_flight_backend.writer_open, br_writer_open);
  node *a = node_new(0, 2);
  node_fill(a, 7, 1000, false);
  uint32_t stage = STAGE;
  br_flight_backend.drop(a->store, QUERY, &stage);
  assert_int_equal(br_store_gauge_now(a->store).outputs, 0);
  node_free(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_once),
      cmocka_unit_test(ranges_of_maps),
      cmocka_unit_test(ordered_is_map_by_map),
      cmocka_unit_test(without_sources_it_ends),
      cmocka_unit_test(large_chunks),
      cmocka_unit_test(a_reader_that_stops),
      cmocka_unit_test(cancel_wakes_at_once),
      cmocka_unit_test(short_answers_are_failures),
      cmocka_unit_test(a_silent_source_fails),
      cmocka_unit_test(silence_follows_the_cluster),
      cmocka_unit_test(refusals_are_retried),
      cmocka_unit_test(a_server_that_comes_up_late),
      cmocka_unit_test(a_server_that_never_comes),
      cmocka_unit_test(a_server_that_dies),
      cmocka_unit_test(damage_names_the_output),
      cmocka_unit_test(other_types_are_refused),
      cmocka_unit_test(readers_given_up),
      cmocka_unit_test(the_backend_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
