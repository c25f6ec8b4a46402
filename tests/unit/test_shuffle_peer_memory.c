/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * Outputs in the memory of a process of this host are mapped, not sent; they stay readable whatever becomes of their owner; and
 * whatever is not what it should be is fetched instead. */
#include "shuffle_node.h"

#include "shuffle/peer_memory.h"
#include <dirent.h>

enum { MAPS = 3, ROWS = 100000, PARTITIONS = 3 };

typedef struct setup {
  br_schema *schema;
  looper l;
  node *n;
  br_read_remote remote;
  br_reader_options o;
} setup;

static void set_up(setup *s, bool over_tcp) {
  *s = (setup){.schema = rows_schema(), .l = looper_start(), .n = node_new(0, MAPS)};
  node_fill(s->n, PARTITIONS, ROWS, false);
  node_serve(s->n, over_tcp);
  s->remote = remote_of(s->n, 1);
  s->o = reader_options(&s->l, s->schema, 0, PARTITIONS);
  s->o.remote = &s->remote;
  s->o.n_remote = 1;
  s->o.map_peers = true;
}

static void take_down(setup *s) {
  node_free(s->n); /* its store has no memory in use: no reference was left */
  looper_stop(&s->l);
  br_schema_unref(s->schema);
}

static br_reader_stats read_whole(setup *s) {
  br_reader *r = NULL;
  br_error err = {0};
  seen_rows seen = seen_new(0, (uint64_t)MAPS * ROWS);
  assert_ok(br_reader_open(&s->o, &r, &err), err);
  read_all(r, &seen, 2);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_stats stats = br_reader_stats_now(r);
  br_reader_free(r);
  return stats;
}

static uint32_t open_descriptors(void) {
  uint32_t n = 0;
  DIR *d = opendir("/proc/self/fd");
  assert_non_null(d);
  while (readdir(d) != NULL) n++;
  closedir(d);
  return n;
}

static void mapped_not_sent(void **unused) {
  (void)unused;
  setup s;
  set_up(&s, false);
  br_reader_stats stats = read_whole(&s);
  assert_int_equal(s.n->gets, 1);
  assert_int_equal(s.n->by_memory, 1);
  assert_true(s.n->pulled_bytes < 4096);
  assert_true(stats.remote_bytes == stats.bytes && stats.bytes > (uint64_t)MAPS * ROWS * 16);
  take_down(&s);
}

/* Over TCP, in order, by readers that don't want it, and where there is little to read. */
static void sent_not_mapped(void **unused) {
  (void)unused;
  for (int i = 0; i < 4; i++) {
    setup s;
    set_up(&s, i == 0);
    s.o.ordered = i == 1;
    s.o.map_peers = i != 2;
    if (i == 3) {
      br_store_drop_query(s.n->store, QUERY);
      node_fill(s.n, PARTITIONS, 1000, false);
      br_reader *r = NULL;
      br_error err = {0};
      seen_rows seen = seen_new(0, (uint64_t)MAPS * 1000);
      assert_ok(br_reader_open(&s.o, &r, &err), err);
      read_all(r, &seen, 1);
      assert_all_once(&seen);
      seen_free(&seen);
      br_reader_free(r);
    } else {
      read_whole(&s);
    }
    assert_int_equal(s.n->gets, 1);
    assert_int_equal(s.n->by_memory, i == 3);
    assert_true(s.n->pulled_bytes > 40000);
    take_down(&s);
  }
}

static void what_is_wrong_is_fetched(void **unused) {
  (void)unused;
  static const fault faults[] = {WRONG_DESCRIPTOR, WRONG_INODE, WRONG_OUTPUT};
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    setup s;
    set_up(&s, false);
    s.n->fault = faults[i];
    s.o.retry = 0; /* it is no failure */
    read_whole(&s);
    assert_int_equal(s.n->gets, 2);
    assert_int_equal(s.n->by_memory, 1);
    take_down(&s);
  }
}

/* Rows would be missing, or there twice. */
static void fails(fault f, uint32_t retries, const char *message) {
  setup s;
  set_up(&s, false);
  s.n->fault = f;
  br_reader *r = NULL;
  br_error err = {0};
  assert_ok(br_reader_open(&s.o, &r, &err), err);
  err = read_to_failure(r);
  assert_int_equal(err.code, BR_FETCH);
  assert_non_null(strstr(err.message, message));
  assert_int_equal(s.n->gets, 1 + retries);
  br_reader_free(r);
  take_down(&s);
}

static void a_place_less_is_a_failure(void **unused) {
  (void)unused;
  fails(LOSES_A_PLACE, 3, "places of 2 of 3");
}

static void a_place_twice_is_a_failure(void **unused) {
  (void)unused;
  fails(REPEATS_A_PLACE, 0, "a place in its memory that was not asked for");
}

/* Some in memory, some on disk; and one is small. */
static void beside_what_is_sent(void **unused) {
  (void)unused;
  setup s;
  set_up(&s, false);
  node more = *s.n;
  more.first_map = MAPS;
  more.last_map = MAPS + 2;
  node_fill(&more, PARTITIONS, ROWS, true);
  s.n->last_map = MAPS + 2;
  s.remote.outputs = MAPS + 2;
  br_reader *r = NULL;
  br_error err = {0};
  seen_rows seen = seen_new(0, (uint64_t)(MAPS + 2) * ROWS);
  assert_ok(br_reader_open(&s.o, &r, &err), err);
  read_all(r, &seen, 2);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_stats stats = br_reader_stats_now(r);
  assert_true(s.n->pulled_bytes > 100000 && s.n->pulled_bytes < stats.bytes / 2);
  br_reader_free(r);
  take_down(&s);
}

/* The owner goes, with all that it has, while rows are being read. */
static void memory_outlives_its_owner(void **unused) {
  (void)unused;
  setup s;
  set_up(&s, false);
  br_reader *r = NULL;
  br_batch *b = NULL;
  br_error err = {0};
  seen_rows seen = seen_new(0, (uint64_t)MAPS * ROWS);
  assert_ok(br_reader_open(&s.o, &r, &err), err);
  assert_ok(br_reader_next(r, &b, &err), err);
  node_stop_serving(s.n);
  br_store_drop_query(s.n->store, QUERY);
  assert_int_equal(br_store_gauge_now(s.n->store).memory_bytes, 0);
  br_reader_peer_gone(r, 1);
  assert_null(see_batch(&seen, b, 0, 0));
  br_batch_unref(b);
  read_all(r, &seen, 2);
  assert_all_once(&seen);
  seen_free(&seen);
  br_reader_free(r);
  take_down(&s);
}

static void put_one_more(node *n, uint32_t map) {
  br_error err = {0};
  br_attempt_id id = {.query = QUERY, .stage = STAGE, .task = map};
  br_map_output o = write_output(&id, PARTITIONS, 0, 1000, n->dir, false);
  assert_ok(br_store_add(n->store, &id, &o, &err), err);
}

/* What others map stays in memory, a younger output that nobody maps moves; and a batch stays valid behind its reader. */
static void a_lent_output_stays(void **unused) {
  (void)unused;
  setup s;
  set_up(&s, false);
  br_reader *r = NULL;
  br_batch *b = NULL;
  br_error err = {0};
  uint32_t before = open_descriptors();
  assert_ok(br_reader_open(&s.o, &r, &err), err);
  assert_ok(br_reader_next(r, &b, &err), err);
  assert_true(open_descriptors() <= before + 2); /* both ends of the connection: none for an output */
  uint64_t lent_bytes = br_store_gauge_now(s.n->store).memory_bytes;
  put_one_more(s.n, MAPS);
  br_store_spill(s.n->store, 1u << 30);
  while (br_store_gauge_now(s.n->store).memory_bytes > lent_bytes) sched_yield();
  assert_int_equal(br_store_gauge_now(s.n->store).memory_bytes, lent_bytes);
  br_reader_free(r);
  seen_rows seen = seen_new(0, (uint64_t)MAPS * ROWS);
  assert_null(see_batch(&seen, b, 0, 0));
  seen_free(&seen);
  br_batch_unref(b);
  take_down(&s);
}

static void no_place_without_an_output(void **unused) {
  (void)unused;
  br_error err = {0};
  br_mapfile *f = NULL;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  br_wire_memory m = {.pid = (uint32_t)getpid(), .fd = (uint32_t)pipes[0], .file_bytes = 4096};
  assert_int_not_equal(br_peer_memory_open(&m, &f, &err), BR_OK); /* and does not wait for a writer */
  assert_non_null(strstr(err.message, "no map output"));
  m.fd = 1u << 30;
  assert_int_not_equal(br_peer_memory_open(&m, &f, &err), BR_OK);
  m.pid = 0;
  assert_int_not_equal(br_peer_memory_open(&m, &f, &err), BR_OK);
  assert_null(f);
  close(pipes[0]);
  close(pipes[1]);
}

/* Where it never works, nobody asks for it again. The last test: nothing is mapped afterwards. */
static void what_never_works_is_not_tried(void **unused) {
  (void)unused;
  br_error err = {0};
  br_mapfile *f = NULL;
  br_wire_memory m = {.fd = 1u << 30, .file_bytes = 4096};
  for (int i = 0; i < 100 && br_peer_memory_works(); i++)
    assert_int_not_equal(br_peer_memory_open(&m, &f, &err), BR_OK);
  assert_false(br_peer_memory_works());
  setup s;
  set_up(&s, false);
  read_whole(&s);
  assert_int_equal(s.n->gets, 1);
  assert_int_equal(s.n->by_memory, 0);
  take_down(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mapped_not_sent),
      cmocka_unit_test(sent_not_mapped),
      cmocka_unit_test(what_is_wrong_is_fetched),
      cmocka_unit_test(a_place_less_is_a_failure),
      cmocka_unit_test(beside_what_is_sent),
      cmocka_unit_test(memory_outlives_its_owner),
      cmocka_unit_test(a_lent_output_stays),
      cmocka_unit_test(no_place_without_an_output),
      cmocka_unit_test(a_place_twice_is_a_failure),
      cmocka_unit_test(what_never_works_is_not_tried),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
