/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * Readers against real servers over real sockets: nothing is lost, nothing comes twice, nothing waits for ever, and an answer
 * that is not whole is a failure. */
#include "shuffle_node.h"

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
