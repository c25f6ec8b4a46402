/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * Outputs that are read while they are written: real writers, store, server and readers, over sockets. Every row comes once,
 * whatever the output does meanwhile; one that never commits fails its readers; nobody waits for ever. */
#include "shuffle_util.h"

#include "flight/flight.h"
#include "proto/proto.h"
#include "shuffle/clients.h"
#include "shuffle/growing.h"
#include "shuffle/wire.h"
#include <fcntl.h>
#include <sched.h>

#define QUERY 78u
#define STAGE 5u
#define MAX_MAPS 8u
#define WAIT_MS 60000u

/* Until the condition holds; at most WAIT_MS. */
#define wait_for(condition)                                           \
  do {                                                                \
    uint64_t deadline_ = br_now_ms() + WAIT_MS;                       \
    while (!(condition)) {                                            \
      if (br_now_ms() > deadline_) fail_msg("never: %s", #condition); \
      sched_yield();                                                  \
    }                                                                 \
  } while (0)

/* ---- a node: its loop, its store, and the outputs that are being written */
typedef struct node {
  br_loop *loop, *reader_loop;
  pthread_t thread, reader_thread;
  br_store *store;
  br_flight_server *server;
  br_schema *schema;
  char *dir, *uri;
  uint32_t maps, partitions;
  br_growing *growing[MAX_MAPS]; /* loop thread */
  _Atomic uint32_t adds, generations, bad, alive, gets, streams;
} node;

typedef struct wrapped {
  node *n;
  br_flight_source inner;
} wrapped;

static br_pull wrapped_next(void *arg, br_flight_data *out, br_error *err) {
  wrapped *w = arg;
  br_pull r = w->inner.next(w->inner.arg, out, err);
  if (r == BR_PULL_DATA && out->head_bytes == 0 && out->app_bytes == sizeof(br_wire_alive)) w->n->alive++;
  return r;
}

static void wrapped_free(void *arg) {
  wrapped *w = arg;
  w->inner.free(w->inner.arg);
  w->n->streams--;
  free(w);
}

static br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t bytes, br_flight_source *src,
                        br_error *err) {
  node *n = arg;
  Brant__Pb__Ticket *t = (Brant__Pb__Ticket *)br_pb_unpack(&brant__pb__ticket__descriptor, ticket, bytes, err);
  if (t == NULL) return err->code;
  br_mapfile *files[MAX_MAPS];
  br_growing *growing[MAX_MAPS];
  uint32_t maps[MAX_MAPS], growing_maps[MAX_MAPS];
  br_serve_set set = {.files = files, .maps = maps, .growing = growing, .growing_maps = growing_maps};
  n->gets++;
  for (uint32_t m = t->ref->map_first; m < t->ref->map_last && m < n->maps; m++) {
    br_mapfile *f = br_store_get(n->store, QUERY, STAGE, m, 0);
    if (f != NULL) {
      maps[set.n] = m;
      files[set.n++] = f;
    } else {
      growing_maps[set.n_growing] = m;
      growing[set.n_growing++] = n->growing[m];
    }
  }
  wrapped *w = br_calloc(1, sizeof *w);
  w->n = n;
  br_status status = br_serve_source(n->loop, call, &set, t->ref->first, t->ref->last, t->ordered, &w->inner, err);
  for (size_t i = 0; i < set.n; i++) br_mapfile_unref(files[i]);
  if (status == BR_OK) {
    *src = (br_flight_source){.next = wrapped_next, .free = wrapped_free, .arg = w};
    n->streams++;
  } else {
    free(w);
  }
  brant__pb__ticket__free_unpacked(t, NULL);
  return status;
}

/* Runs fn on the loop's thread and waits for it. */
typedef struct call {
  void (*fn)(node *n, void *arg);
  node *n;
  void *arg;
  _Atomic bool done;
} call;

static void run_call(void *arg) {
  call *c = arg;
  c->fn(c->n, c->arg);
  c->done = true;
}

static void on_loop(node *n, void (*fn)(node *, void *), void *arg) {
  call c = {.fn = fn, .n = n, .arg = arg};
  br_loop_post(n->loop, run_call, &c);
  wait_for(c.done);
}

static void serve(node *n, void *arg) {
  br_error err = {0};
  br_flight_server_options o = {.unix_path = arg};
  br_flight_handlers h = {.arg = n, .do_get = do_get};
  assert_ok(br_flight_server_new(n->loop, &o, &h, &n->server, &err), err);
}

static void stop_serving(node *n, void *arg) {
  (void)arg;
  if (n->server != NULL) br_flight_server_free(n->server);
  n->server = NULL;
  for (uint32_t m = 0; m < n->maps; m++) br_growing_unref(n->growing[m]);
}

static void *run_loop(void *loop) {
  br_loop_run(loop);
  return NULL;
}

static void close_and_stop(void *loop) {
  br_clients_close(loop);
  br_loop_stop(loop);
}

static br_attempt_id attempt(uint32_t map) { return (br_attempt_id){.query = QUERY, .stage = STAGE, .task = map}; }

static node *node_new(uint32_t maps, uint32_t partitions) {
  node *n = br_calloc(1, sizeof *n);
  br_error err = {0};
  n->dir = temp_dir();
  n->schema = rows_schema();
  n->maps = maps;
  n->partitions = partitions;
  for (uint32_t m = 0; m < maps; m++) {
    br_attempt_id id = attempt(m);
    n->growing[m] = br_growing_new(&id, partitions);
  }
  char *store = br_asprintf("%s/store", n->dir), *socket = br_asprintf("%s/socket", n->dir);
  n->uri = br_asprintf("unix:%s", socket);
  br_store_options o = {.dir = store, .memory_bytes = 1u << 30};
  assert_ok(br_store_new(&o, &n->store, &err), err);
  assert_ok(br_loop_new(&n->loop, &err), err);
  assert_ok(br_loop_new(&n->reader_loop, &err), err);
  pthread_create(&n->thread, NULL, run_loop, n->loop);
  pthread_create(&n->reader_thread, NULL, run_loop, n->reader_loop);
  on_loop(n, serve, socket);
  free(store);
  free(socket);
  return n;
}

static void node_free(node *n) {
  assert_int_equal(n->bad, 0);
  br_loop_post(n->reader_loop, close_and_stop, n->reader_loop);
  pthread_join(n->reader_thread, NULL);
  br_loop_free(n->reader_loop);
  on_loop(n, stop_serving, NULL);
  br_loop_post(n->loop, close_and_stop, n->loop);
  pthread_join(n->thread, NULL);
  br_loop_free(n->loop);
  assert_int_equal(n->streams, 0);
  br_store_drop_query(n->store, QUERY);
  assert_int_equal(br_store_gauge_now(n->store).memory_bytes, 0); /* no reference was left behind */
  br_store_free(n->store);
  br_schema_unref(n->schema);
  free(n->uri);
  temp_dir_free(n->dir);
  free(n);
}

/* ---- what the executor says, on its way to the node's loop */
typedef struct told {
  node *n;
  uint32_t map;
  br_publication p;
} told;

static void take_told(void *arg) {
  told *t = arg;
  br_error err = {0};
  if (t->p.fd >= 0) t->n->generations++;
  if (br_growing_add(t->n->growing[t->map], &t->p, &err) != BR_OK) {
    fprintf(stderr, "%s\n", err.message);
    t->n->bad++;
  }
  t->n->adds++;
  free((void *)t->p.chunks);
  free((void *)t->p.schema);
  free(t);
}

typedef struct producer {
  node *n;
  uint32_t map;
  bool ordered;
  br_writer *w;
  limited_reserver memory;
} producer;

static void *copy_of(const void *p, size_t n) {
  void *q = br_malloc(n + 1);
  if (n > 0) memcpy(q, p, n);
  return q;
}

static void publish(void *arg, const br_publication *p) {
  producer *x = arg;
  told *t = br_malloc(sizeof *t);
  *t = (told){.n = x->n, .map = x->map, .p = *p};
  t->p.chunks = copy_of(p->chunks, p->n * sizeof *p->chunks);
  t->p.schema = copy_of(p->schema, p->schema_bytes);
  if (p->fd >= 0) t->p.fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
  br_loop_post(x->n->loop, take_told, t);
}

static void producer_open(producer *x, node *n, uint32_t map, uint64_t memory_bytes, bool ordered) {
  br_error err = {0};
  *x = (producer){.n = n, .map = map, .ordered = ordered, .memory = {.left = memory_bytes}};
  br_writer_options o = {
      .id = attempt(map),
      .schema = n->schema,
      .kind = n->partitions == 1 ? BR_PART_SINGLE : BR_PART_HASH,
      .partitions = n->partitions,
      .ordered = ordered,
      .codec_disk = BR_CODEC_LZ4,
      .scatter_buffer_bytes = 4u << 20,
      .chunk_bytes = 64u << 10,
      .spill_dir = n->dir,
      .reserver = {.reserve = limited_reserve, .arg = &x->memory, .release = limited_release},
      .publish = {publish, x},
  };
  assert_ok(br_writer_open(&o, &x->w, &err), err);
}

typedef struct part {
  producer *x;
  uint64_t first, last;
} part;

static void *write_part(void *arg) {
  part *p = arg;
  void *state = NULL;
  br_error err = {0};
  assert_ok(br_writer_thread(p->x->w, &state, &err), err);
  assert_ok(write_rows(p->x->w, state, p->first, p->last, p->x->n->partitions, p->x->n->partitions == 1, &err), err);
  assert_ok(br_writer_thread_end(p->x->w, state, &err), err);
  return NULL;
}

/* Rows [first, last) by so many threads. */
static void produce(producer *x, uint64_t first, uint64_t last, uint32_t threads) {
  part parts[4];
  pthread_t ids[4];
  uint64_t each = (last - first) / threads;
  for (uint32_t i = 0; i < threads; i++) {
    parts[i] = (part){x, first + i * each, i + 1 == threads ? last : first + (i + 1) * each};
    pthread_create(&ids[i], NULL, write_part, &parts[i]);
  }
  for (uint32_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}

typedef struct done {
  uint32_t map;
  br_map_output o;
} done;

static void take_done(node *n, void *arg) {
  done *d = arg;
  br_error err = {0};
  br_attempt_id id = attempt(d->map);
  assert_ok(br_store_add(n->store, &id, &d->o, &err), err);
  br_mapfile *f = br_store_get(n->store, QUERY, STAGE, d->map, 0);
  assert_ok(br_growing_commit(n->growing[d->map], f, &err), err);
  br_mapfile_unref(f);
}

static void commit(producer *x) {
  br_error err = {0};
  done d = {.map = x->map};
  assert_ok(br_writer_commit(x->w, &d.o, &err), err);
  d.o.reserved_bytes = 0; /* the store counts what comes in */
  br_writer_free(x->w);
  on_loop(x->n, take_done, &d);
}

static void take_failure(node *n, void *arg) {
  uint32_t map = *(uint32_t *)arg;
  br_error err = {0};
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "the attempt was cancelled");
  err.has_lost = true;
  err.lost = (br_map_output_id){.made_by = attempt(map)};
  br_growing_fail(n->growing[map], &err);
}

static void die(producer *x) {
  br_writer_free(x->w);
  on_loop(x->n, take_failure, &x->map);
}

/* ---- readers */
typedef struct consumer {
  br_reader *r;
  seen_rows seen;
  pthread_t thread;
  br_status status;
  br_error err;
  const char *wrong;
  _Atomic uint64_t batches;
  int64_t last_id; /* ordered */
  bool check_order;
  _Atomic bool ended;
} consumer;

static void *consume(void *arg) {
  consumer *c = arg;
  for (;;) {
    br_batch *b = NULL;
    c->status = br_reader_next(c->r, &b, &c->err);
    if (c->status != BR_OK || b == NULL) break;
    const char *wrong = see_batch(&c->seen, b, 0, 0);
    const int64_t *id = br_batch_arrow(b)->children[0]->buffers[1];
    for (int64_t i = 0; i < br_batch_rows(b) && c->check_order; i++) {
      if (id[i] <= c->last_id && wrong == NULL) wrong = "order";
      c->last_id = id[i];
    }
    if (c->wrong == NULL) c->wrong = wrong;
    c->batches++;
    br_batch_unref(b);
  }
  c->ended = true;
  return NULL;
}

typedef struct range {
  uint32_t first, last, map_first, map_last;
  bool ordered;
  uint32_t silent_ms;
} range;
#define RANGE(f, l, mf, ml, ...) \
  ((range){.first = (f), .last = (l), .map_first = (mf), .map_last = (ml), ##__VA_ARGS__})

static void consumer_open(consumer *c, node *n, range g, uint64_t rows) {
  br_error err = {0};
  *c = (consumer){.seen = seen_new(0, rows), .last_id = -1, .check_order = g.ordered && g.last - g.first == 1};
  br_read_remote remote = {.uri = n->uri, .worker = 3, .incarnation = 9, .outputs = g.map_last - g.map_first};
  br_reader_options o = {.loop = n->reader_loop,
                         .schema = n->schema,
                         .query = QUERY,
                         .stage = STAGE,
                         .table_version = 1,
                         .first = g.first,
                         .last = g.last,
                         .map_first = g.map_first,
                         .map_last = g.map_last,
                         .remote = &remote,
                         .n_remote = 1,
                         .ordered = g.ordered,
                         .buffer_bytes = 4u << 20,
                         .silent_ms = g.silent_ms,
                         .retry = 3,
                         .retry_ms = 10};
  assert_ok(br_reader_open(&o, &c->r, &err), err);
}

static void consumer_start(consumer *c, node *n, range g, uint64_t rows) {
  consumer_open(c, n, g, rows);
  pthread_create(&c->thread, NULL, consume, c);
}

static void consumer_end(consumer *c) {
  pthread_join(c->thread, NULL);
  br_reader_free(c->r);
  if (c->wrong != NULL) fail_msg("%s", c->wrong);
}

static void consumer_end_well(consumer *c) {
  consumer_end(c);
  assert_ok(c->status, c->err);
}

static void consumer_end_lost(consumer *c, uint32_t map) {
  consumer_end(c);
  assert_int_equal(c->status, BR_FETCH);
  assert_int_equal(c->err.blame, BR_BLAME_FETCH);
  assert_int_equal(c->err.worker, 3);
  assert_true(c->err.has_lost);
  assert_int_equal(c->err.lost.made_by.task, map);
  assert_int_equal(c->err.lost.worker, 3);
  assert_int_equal(c->err.lost.incarnation, 9);
}

#define ROWS 200000u /* 7.5 MiB a map */

/* ---- tests */
static void rows_come_before_the_commit(void **unused) {
  (void)unused;
  for (int disk = 0; disk < 2; disk++) {
    node *n = node_new(1, 1);
    producer x;
    consumer c;
    producer_open(&x, n, 0, disk ? 0 : UINT64_MAX / 2, false);
    consumer_start(&c, n, RANGE(0, 1, 0, 1), ROWS);
    wait_for(n->gets > 0); /* it's there before anything is written */
    produce(&x, 0, ROWS / 2, 1);
    wait_for(c.batches > 0);
    assert_false(c.ended);
    produce(&x, ROWS / 2, ROWS, 2);
    br_writer_publish(x.w);
    assert_false(c.ended);
    commit(&x);
    consumer_end_well(&c);
    assert_all_once(&c.seen);
    seen_free(&c.seen);
    node_free(n);
  }
}

/* A few rows don't wait until a buffer is full: the next write after a while sends them, and who looks after it sends the rest. */
static void few_rows_do_not_wait(void **unused) {
  (void)unused;
  node *n = node_new(1, 1);
  producer x;
  consumer c;
  br_error err = {0};
  void *state = NULL;
  producer_open(&x, n, 0, UINT64_MAX / 2, false);
  consumer_start(&c, n, RANGE(0, 1, 0, 1), ROWS);
  assert_ok(br_writer_thread(x.w, &state, &err), err);
  uint64_t row = 0;
  wait_for((row < ROWS ? (assert_int_equal(write_rows(x.w, state, row, row + 1, 1, true, &err), BR_OK), row++) : 0,
            c.batches > 2));
  br_writer_publish(x.w);
  assert_ok(br_writer_thread_end(x.w, state, &err), err);
  commit(&x);
  consumer_end_well(&c);
  assert_int_equal(c.seen.total, row);
  assert_true(c.batches < 100); /* not a batch a row */
  seen_free(&c.seen);
  node_free(n);
}

/* On disk a run is written once it's full, or once it's old: nobody waits for megabytes of a slow writer. */
static void few_rows_on_disk_do_not_wait(void **unused) {
  (void)unused;
  node *n = node_new(1, 1);
  producer x;
  consumer c;
  br_error err = {0};
  void *state = NULL;
  producer_open(&x, n, 0, 0, false);
  consumer_start(&c, n, RANGE(0, 1, 0, 1), ROWS);
  assert_ok(br_writer_thread(x.w, &state, &err), err);
  uint64_t row = 0;
  wait_for((row < ROWS ? (assert_int_equal(write_rows(x.w, state, row, row + 1, 1, true, &err), BR_OK), row++) : 0,
            c.batches > 2));
  assert_ok(br_writer_thread_end(x.w, state, &err), err);
  commit(&x);
  consumer_end_well(&c);
  assert_int_equal(c.seen.total, row);
  seen_free(&c.seen);
  node_free(n);
}

/* Readers of parts, of all, of some maps; each map written by two threads; one map moves to disk in the middle, one is on disk from
 * the start, one commits long before the others, one has no rows. */
static void many_readers(void **unused) {
  (void)unused;
  enum { PARTS = 16, MAPS = 4, READERS = 8 };
  node *n = node_new(MAPS, PARTS);
  producer x[MAPS];
  consumer c[READERS];
  static const uint64_t memory[MAPS] = {UINT64_MAX / 2, 5u << 20, 0, UINT64_MAX / 2};
  uint64_t rows = 3 * ROWS;
  for (uint32_t m = 0; m < MAPS; m++) producer_open(&x[m], n, m, memory[m], false);
  produce(&x[0], 0, ROWS, 2);
  commit(&x[0]);
  for (uint32_t i = 0; i < READERS / 2; i++) /* together: every partition once */
    consumer_start(&c[i], n, RANGE(i * 4, i * 4 + 4, 0, MAPS), rows);
  produce(&x[1], ROWS, ROWS + ROWS / 8, 2);
  produce(&x[2], 2 * ROWS, 2 * ROWS + ROWS / 2, 2);
  for (uint32_t i = READERS / 2; i < READERS; i++) consumer_start(&c[i], n, RANGE(0, PARTS, 0, MAPS), rows);
  produce(&x[1], ROWS + ROWS / 8, 2 * ROWS, 2); /* past its memory */
  produce(&x[2], 2 * ROWS + ROWS / 2, 3 * ROWS, 2);
  commit(&x[3]);
  commit(&x[2]);
  commit(&x[1]);
  assert_int_equal(n->generations, 4); /* the second one has two; the empty one none */
  uint64_t total = 0;
  for (uint32_t i = 0; i < READERS; i++) {
    consumer_end_well(&c[i]);
    if (i < READERS / 2)
      total += c[i].seen.total;
    else
      assert_all_once(&c[i].seen);
    for (uint64_t k = 0; k < rows && i < READERS / 2; k++)
      assert_int_equal(c[i].seen.count[k], row_partition(k, PARTS) / 4 == i);
    seen_free(&c[i].seen);
  }
  assert_int_equal(total, rows);
  node_free(n);
}

/* It moves to disk while readers are somewhere in it: slow ones that took one batch, and those that wait at its end. */
static void readers_follow_to_disk(void **unused) {
  (void)unused;
  node *n = node_new(1, 4);
  producer x;
  consumer c[3];
  producer_open(&x, n, 0, 4u << 20, false);
  for (int i = 0; i < 2; i++) consumer_start(&c[i], n, RANGE(0, 4, 0, 1), 3 * ROWS);
  produce(&x, 0, ROWS / 4, 2); /* in memory */
  wait_for(c[0].batches > 0);
  consumer_open(&c[2], n, RANGE(0, 4, 0, 1), 3 * ROWS);
  br_batch *b = NULL;
  assert_ok(br_reader_next(c[2].r, &b, &c[2].err), c[2].err);
  assert_null(see_batch(&c[2].seen, b, 0, 0));
  br_batch_unref(b);
  produce(&x, ROWS / 4, 3 * ROWS, 3); /* it never waits for the slow one */
  wait_for(n->generations == 2);
  commit(&x);
  pthread_create(&c[2].thread, NULL, consume, &c[2]);
  for (int i = 0; i < 3; i++) {
    consumer_end_well(&c[i]);
    assert_all_once(&c[i].seen);
    seen_free(&c[i].seen);
  }
  node_free(n);
}

static void an_attempt_that_dies_fails_its_readers(void **unused) {
  (void)unused;
  for (int when = 0; when < 2; when++) {
    node *n = node_new(2, 4);
    producer x[2];
    consumer c[3];
    for (uint32_t m = 0; m < 2; m++) producer_open(&x[m], n, m, UINT64_MAX / 2, false);
    for (int i = 0; i < 2; i++) consumer_start(&c[i], n, RANGE(i * 2, i * 2 + 2, 0, 2), 2 * ROWS);
    produce(&x[0], 0, ROWS, 1);
    commit(&x[0]);
    if (when == 1) {
      produce(&x[1], ROWS, 2 * ROWS, 2);
      wait_for(c[0].batches > 0);
    }
    wait_for(n->gets >= 2);
    die(&x[1]);
    consumer_start(&c[2], n, RANGE(0, 4, 0, 2), 2 * ROWS); /* who comes later is told at once */
    for (int i = 0; i < 3; i++) {
      consumer_end_lost(&c[i], 1);
      seen_free(&c[i].seen);
    }
    assert_int_equal(n->gets, 3); /* asking again would not help */
    node_free(n);
  }
}

/* A bit that changes on the disk before it is read: the output is lost, and no wrong row comes. */
static void damage_while_written_is_found(void **unused) {
  (void)unused;
  node *n = node_new(1, 1);
  producer x;
  consumer c;
  producer_open(&x, n, 0, 0, false);
  produce(&x, 0, 2 * ROWS, 2);
  wait_for(n->adds > 0);
  char *path = br_asprintf("%s/t0.a0.map", n->dir);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  unsigned char byte;
  assert_true(fd >= 0 && pread(fd, &byte, 1, 5000) == 1);
  byte ^= 4;
  assert_int_equal(pwrite(fd, &byte, 1, 5000), 1);
  close(fd);
  free(path);
  consumer_start(&c, n, RANGE(0, 1, 0, 1), 2 * ROWS);
  consumer_end_lost(&c, 0);
  seen_free(&c.seen);
  die(&x);
  node_free(n);
}

static void in_order(void **unused) {
  (void)unused;
  for (uint32_t partitions = 1; partitions <= 2; partitions++) {
    node *n = node_new(3, partitions);
    producer x[3];
    consumer c;
    for (uint32_t m = 0; m < 3; m++) producer_open(&x[m], n, m, m == 1 ? 4u << 20 : UINT64_MAX / 2, true);
    produce(&x[2], 2 * ROWS, 3 * ROWS, 1);
    commit(&x[2]); /* the last one is first */
    consumer_start(&c, n, RANGE(0, partitions, 0, 3, .ordered = true), 3 * ROWS);
    produce(&x[1], ROWS, ROWS + ROWS / 2, 1);
    produce(&x[0], 0, ROWS / 2, 1);
    if (partitions == 1) wait_for(c.batches > 0);
    produce(&x[1], ROWS + ROWS / 2, 2 * ROWS, 1);
    commit(&x[1]);
    produce(&x[0], ROWS / 2, ROWS, 1);
    assert_false(c.ended);
    if (partitions == 2) assert_int_equal(c.batches, 0); /* the order of partitions is not known before */
    commit(&x[0]);
    consumer_end_well(&c);
    assert_all_once(&c.seen);
    seen_free(&c.seen);
    node_free(n);
  }
}

static void empty_outputs_end(void **unused) {
  (void)unused;
  for (int ordered = 0; ordered < 2; ordered++) {
    node *n = node_new(2, 2);
    producer x[2];
    consumer c, none;
    for (uint32_t m = 0; m < 2; m++) producer_open(&x[m], n, m, UINT64_MAX / 2, false);
    consumer_start(&c, n, RANGE(0, 2, 0, 2, .ordered = ordered), ROWS);
    consumer_start(&none, n, RANGE(1, 1, 0, 2, .ordered = ordered), ROWS); /* no partition at all */
    wait_for(n->gets == 2);
    commit(&x[1]);
    assert_false(c.ended);
    commit(&x[0]);
    consumer_end_well(&c);
    consumer_end_well(&none);
    assert_int_equal(c.seen.total + none.seen.total, 0);
    seen_free(&c.seen);
    seen_free(&none.seen);
    node_free(n);
  }
}

static void cancelled_readers_leave(void **unused) {
  (void)unused;
  node *n = node_new(1, 1);
  producer x;
  consumer c[2];
  producer_open(&x, n, 0, UINT64_MAX / 2, false);
  for (int i = 0; i < 2; i++) consumer_start(&c[i], n, RANGE(0, 1, 0, 1), ROWS);
  produce(&x, 0, ROWS / 2, 1);
  wait_for(c[0].batches > 0 && n->streams == 2);
  br_reader_cancel(c[0].r);
  consumer_end(&c[0]);
  assert_int_equal(c[0].status, BR_CANCELLED);
  seen_free(&c[0].seen);
  wait_for(n->streams == 1);
  produce(&x, ROWS / 2, ROWS, 1);
  commit(&x);
  consumer_end_well(&c[1]);
  assert_all_once(&c[1].seen);
  seen_free(&c[1].seen);
  node_free(n);
}

/* The store moves a committed output to disk while readers are in the middle of it. */
static void spilled_after_the_commit(void **unused) {
  (void)unused;
  node *n = node_new(1, 1);
  producer x;
  consumer c;
  producer_open(&x, n, 0, UINT64_MAX / 2, false);
  consumer_open(&c, n, RANGE(0, 1, 0, 1), 2 * ROWS);
  produce(&x, 0, 2 * ROWS, 2); /* more than a window */
  br_batch *b = NULL;
  assert_ok(br_reader_next(c.r, &b, &c.err), c.err);
  assert_null(see_batch(&c.seen, b, 0, 0));
  br_batch_unref(b);
  commit(&x);
  br_store_spill(n->store, 1u << 30);
  wait_for(br_store_gauge_now(n->store).spilled_bytes > 0);
  br_store_drop_query(n->store, QUERY); /* even then */
  pthread_create(&c.thread, NULL, consume, &c);
  consumer_end_well(&c);
  assert_all_once(&c.seen);
  seen_free(&c.seen);
  node_free(n);
}

/* Nothing to send for longer than the reader's patience: the node says that it is there. */
static void a_slow_producer_is_waited_for(void **unused) {
  (void)unused;
  node *n = node_new(1, 1);
  producer x;
  consumer c[2];
  producer_open(&x, n, 0, UINT64_MAX / 2, false);
  for (int i = 0; i < 2; i++)
    consumer_start(&c[i], n,
                   RANGE(0, 1, 0, 1, .silent_ms = BR_SERVE_ALIVE_MS + BR_SERVE_ALIVE_MS / 2, .ordered = i == 1), ROWS);
  wait_for(n->alive >= 2 * 2); /* each is past its patience */
  for (int i = 0; i < 2; i++) assert_false(c[i].ended);
  produce(&x, 0, ROWS, 1);
  commit(&x);
  for (int i = 0; i < 2; i++) {
    consumer_end_well(&c[i]);
    assert_all_once(&c[i].seen);
    seen_free(&c[i].seen);
  }
  assert_int_equal(n->gets, 2);
  node_free(n);
}

/* What an executor says is checked: nothing of it is taken over if it doesn't fit. */
static void wrong_publications_are_refused(void **unused) {
  (void)unused;
  br_attempt_id id = attempt(0);
  br_growing *g = br_growing_new(&id, 4);
  br_error err = {0};
  br_chunk good = {.partition = 3, .head_bytes = 100, .body_bytes = 128, .offset = 64, .rows = 5, .checksum = 7};
  br_chunk next = {.partition = 1, .head_bytes = 100, .body_bytes = 64, .offset = 320, .rows = 6, .checksum = 8};
  br_chunk bad[6] = {good, good, good, good, good, good};
  bad[0].partition = 4;
  bad[1].head_bytes = 0;
  bad[2].body_bytes = 65;
  bad[3].offset = 0;
  bad[4].offset = 65;
  bad[5].body_bytes = UINT64_MAX - 63;
  const br_chunk *chunks;
  int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
#define SAY(...) br_growing_add(g, &(br_publication){.schema = "x", .schema_bytes = 1, __VA_ARGS__}, &err)
#define FD fcntl(fd, F_DUPFD_CLOEXEC, 0)
  assert_int_equal(SAY(.fd = -1, .chunks = &good, .n = 1), BR_INTERNAL);                   /* without its file */
  assert_int_equal(SAY(.fd = FD, .chunks = &good, .n = 1, .first_chunk = 1), BR_INTERNAL); /* not from the start */
  for (int i = 0; i < 6; i++) assert_int_equal(SAY(.fd = FD, .chunks = &bad[i], .n = 1), BR_INTERNAL);
  assert_int_equal(br_growing_chunks(g, &chunks), 0);
  assert_null(br_growing_file(g));
  assert_int_equal(SAY(.fd = FD, .generation = 2, .chunks = &good, .n = 1), BR_OK);
  assert_int_equal(SAY(.fd = FD, .generation = 2, .chunks = &next, .n = 1, .first_chunk = 1), BR_INTERNAL); /* twice */
  assert_int_equal(SAY(.fd = -1, .generation = 2, .chunks = &next, .n = 1), BR_INTERNAL);                   /* again */
  assert_int_equal(SAY(.fd = -1, .generation = 2, .chunks = &next, .n = 1, .first_chunk = 2), BR_INTERNAL); /* a hole */
  assert_int_equal(SAY(.fd = FD, .generation = 1, .chunks = &good, .n = 1), BR_INTERNAL);                   /* back */
  assert_int_equal(SAY(.fd = -1, .generation = 3, .chunks = &good, .n = 1), BR_INTERNAL);
  assert_int_equal(SAY(.fd = -1, .generation = 2, .chunks = &next, .n = 1, .first_chunk = 1), BR_OK);
  /* On disk: partition 1 first. While one is missing, the old places count. */
  br_chunk moved[2] = {next, good};
  moved[0].offset = 64;
  moved[1].offset = 256;
  assert_int_equal(SAY(.fd = FD, .generation = 3, .chunks = &moved[0], .n = 1), BR_OK);
  assert_int_equal(br_growing_chunks(g, &chunks), 2);
  assert_int_equal(chunks[0].offset, 64);
  br_chunk other = moved[1];
  other.checksum = 9;
  br_growth_file *before = br_growing_file(g);
  assert_int_equal(SAY(.fd = -1, .generation = 3, .chunks = &moved[1], .n = 1, .first_chunk = 1), BR_OK);
  assert_ptr_not_equal(br_growing_file(g), before);
  assert_int_equal(br_growing_chunks(g, &chunks), 2);
  assert_int_equal(chunks[0].offset, 256); /* number 0 is number 0 still */
  assert_int_equal(chunks[0].partition, 3);
  assert_int_equal(chunks[1].offset, 64);
  br_chunk mixed[2] = {moved[0], other};
  assert_int_equal(SAY(.fd = FD, .generation = 4, .chunks = mixed, .n = 2), BR_INTERNAL);
  assert_int_equal(br_growing_state_of(g), BR_GROWING);
  br_fail(&err, BR_FETCH, BR_BLAME_FETCH, "gone");
  br_growing_fail(g, &err);
  assert_int_equal(SAY(.fd = FD, .generation = 5, .chunks = mixed, .n = 2), BR_OK); /* late: nobody cares */
  br_growing_unref(g);
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_come_before_the_commit),
      cmocka_unit_test(few_rows_do_not_wait),
      cmocka_unit_test(few_rows_on_disk_do_not_wait),
      cmocka_unit_test(many_readers),
      cmocka_unit_test(readers_follow_to_disk),
      cmocka_unit_test(an_attempt_that_dies_fails_its_readers),
      cmocka_unit_test(damage_while_written_is_found),
      cmocka_unit_test(in_order),
      cmocka_unit_test(empty_outputs_end),
      cmocka_unit_test(cancelled_readers_leave),
      cmocka_unit_test(spilled_after_the_commit),
      cmocka_unit_test(a_slow_producer_is_waited_for),
      cmocka_unit_test(wrong_publications_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
