/* SPDX-License-Identifier: Apache-2.0
 * worker/: output tables through their versions, and the directories of the dead. No processes but this one. */
/* links: br_worker */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "worker/node.h"

typedef struct place {
  uint32_t map, attempt, worker, incarnation;
} place;

static void put(br_tables *t, uint32_t stage, uint32_t version, uint32_t maps, const place *p, size_t n) {
  Brant__Pb__OutputTable m = BRANT__PB__OUTPUT_TABLE__INIT;
  Brant__Pb__OutputEntry e[8], *refs[8];
  for (size_t i = 0; i < n; i++) {
    brant__pb__output_entry__init(&e[i]);
    e[i].map = p[i].map, e[i].attempt = p[i].attempt, e[i].worker = p[i].worker, e[i].incarnation = p[i].incarnation;
    e[i].bytes = 100;
    refs[i] = &e[i];
  }
  m.query = 1, m.stage = stage, m.version = version, m.partitions = 4, m.maps = maps;
  m.n_entries = n, m.entries = refs;
  br_tables_put(t, &m);
}

static void versions_stay_as_they_were(void **state) {
  (void)state;
  br_tables *t = br_tables_new();
  put(t, 1, 2, 3, (place[]){{0, 0, 1, 1}, {1, 0, 2, 1}}, 2);
  put(t, 1, 5, 3, (place[]){{0, 0, 1, 1}, {1, 1, 3, 1}, {2, 0, 1, 1}}, 3);
  put(t, 1, 6, 3, (place[]){{0, 0, 1, 1}, {2, 0, 1, 1}}, 2);
  put(t, 1, 5, 3, (place[]){{0, 9, 9, 9}}, 1); /* late and again: ignored */
  uint32_t newest;
  br_table_entry e;
  const br_stage_table *s = br_tables_get(t, 1, 1, 2, &newest);
  assert_non_null(s);
  assert_int_equal(newest, 6);
  assert_true(br_stage_table_entry(s, 2, 1, &e));
  assert_int_equal(e.worker, 2);
  assert_false(br_stage_table_entry(s, 2, 2, &e));
  assert_true(br_stage_table_entry(s, 5, 1, &e));
  assert_int_equal(e.worker, 3);
  assert_int_equal(e.attempt, 1);
  assert_true(br_stage_table_entry(s, 5, 0, &e));
  assert_int_equal(e.worker, 1);
  assert_false(br_stage_table_entry(s, 6, 1, &e));
  assert_false(br_stage_table_entry(s, 6, 3, &e));
  assert_null(br_tables_get(t, 1, 1, 3, &newest)); /* never came */
  assert_null(br_tables_get(t, 1, 1, 7, &newest));
  assert_null(br_tables_get(t, 1, 2, 1, &newest));
  assert_int_equal(newest, 0);
  br_tables_drop(t, 1, NULL);
  assert_null(br_tables_get(t, 1, 1, 5, &newest));
  br_tables_free(t);
}

static void hundreds_of_versions(void **state) {
  (void)state;
  br_tables *t = br_tables_new();
  for (uint32_t v = 1; v <= 500; v++) put(t, 1, v, 2, (place[]){{v % 2, v, v, 1}}, 1);
  uint32_t newest;
  br_table_entry e;
  for (uint32_t v = 1; v <= 500; v++) {
    const br_stage_table *s = br_tables_get(t, 1, 1, v, &newest);
    assert_true(br_stage_table_entry(s, v, v % 2, &e));
    assert_int_equal(e.worker, v);
    assert_false(br_stage_table_entry(s, v, 1 - v % 2, &e));
  }
  br_tables_free(t);
}

static void add_peer(br_tables *t, uint32_t worker, uint32_t incarnation, const char *host) {
  char uri[64], path[64];
  snprintf(uri, sizeof uri, "tcp://10.0.0.%u:1", worker);
  snprintf(path, sizeof path, "/run/%u", worker);
  Brant__Pb__Peer p = BRANT__PB__PEER__INIT;
  p.worker = worker, p.incarnation = incarnation, p.uri = uri, p.unix_path = path, p.host_id = (char *)host;
  br_tables_peer(t, &p, "here");
}

/* Map 0 is committed here, 1 is being written here, 2 is being written on worker 2. In version 2 they all have committed. */
static void growing_outputs_resolve(void **state) {
  (void)state;
  char dir[] = "/tmp/brant-test-XXXXXX";
  assert_non_null(mkdtemp(dir));
  br_node n = {.worker = 1, .incarnation = 4, .tables = br_tables_new(), .uri = "tcp://me:1", .unix_path = "/run/1"};
  br_store_options so = {.dir = dir, .memory_bytes = 1 << 20};
  br_error err = {0};
  assert_int_equal(br_store_new(&so, &n.store, &err), BR_OK);
  add_peer(n.tables, 2, 1, "here");
  for (uint32_t version = 1; version <= 2; version++) {
    Brant__Pb__OutputTable m = BRANT__PB__OUTPUT_TABLE__INIT;
    Brant__Pb__OutputEntry e[3], *refs[3];
    for (uint32_t i = 0; i < 3; i++) {
      brant__pb__output_entry__init(&e[i]);
      e[i].map = i, e[i].worker = i == 2 ? 2 : 1, e[i].incarnation = i == 2 ? 1 : 4;
      e[i].growing = version == 1 && i > 0;
      refs[i] = &e[i];
    }
    m.query = m.stage = 1, m.version = version, m.partitions = 4, m.maps = 3;
    m.n_entries = 3, m.entries = refs;
    br_tables_put(n.tables, &m);
  }
  for (uint32_t version = 1; version <= 2; version++) {
    Brant__Pb__PartitionRef ref = BRANT__PB__PARTITION_REF__INIT;
    ref.query = ref.stage = 1, ref.table_version = version, ref.last = 4, ref.map_last = 3;
    Brant__Pb__TaskInput in = BRANT__PB__TASK_INPUT__INIT;
    in.ref = &ref;
    Brant__Pb__ResolvedInput r;
    assert_int_equal(br_tables_resolve(&n, &in, &r, &err), BR_OK);
    assert_int_equal(r.n_local, version == 1 ? 0 : 2);
    assert_int_equal(r.n_remote, version == 1 ? 2 : 1);
    if (version == 1) { /* both own ones by one source */
      assert_int_equal(r.remote[0]->worker, 1);
      assert_int_equal(r.remote[0]->incarnation, 4);
      assert_int_equal(r.remote[0]->outputs, 2);
      assert_string_equal(r.remote[0]->unix_path, "/run/1");
      assert_string_equal(r.remote[0]->uri, "tcp://me:1");
      assert_int_equal(r.remote[1]->outputs, 1);
    }
    br_resolved_free(&r);
    ref.map_last = 1; /* those that read no growing one of this worker map the file */
    assert_int_equal(br_tables_resolve(&n, &in, &r, &err), BR_OK);
    assert_int_equal(r.n_local, 1);
    br_resolved_free(&r);
  }
  br_store_free(n.store);
  br_tables_free(n.tables);
}

static void inputs_resolve(void **state) {
  (void)state;
  br_node n = {.worker = 1, .incarnation = 4, .tables = br_tables_new()};
  add_peer(n.tables, 2, 1, "here");
  add_peer(n.tables, 3, 1, "there");
  put(n.tables, 1, 1, 5, (place[]){{0, 0, 1, 4}, {1, 0, 2, 1}, {2, 2, 3, 1}, {3, 0, 2, 1}, {4, 1, 1, 4}}, 5);
  Brant__Pb__PartitionRef ref = BRANT__PB__PARTITION_REF__INIT;
  ref.query = 1, ref.stage = 1, ref.table_version = 1, ref.last = 4, ref.map_last = 5;
  Brant__Pb__TaskInput in = BRANT__PB__TASK_INPUT__INIT;
  in.number = 9, in.ref = &ref;
  Brant__Pb__ResolvedInput r;
  br_error err = {0};
  assert_int_equal(br_tables_resolve(&n, &in, &r, &err), BR_OK);
  assert_int_equal(r.number, 9);
  assert_int_equal(r.n_local, 2);
  assert_int_equal(r.local[1]->id->task, 4);
  assert_int_equal(r.local[1]->id->attempt, 1);
  assert_int_equal(r.n_remote, 2);
  assert_int_equal(r.remote[0]->worker, 2);
  assert_int_equal(r.remote[0]->outputs, 2);
  assert_int_equal(r.remote[0]->bytes, 200);
  assert_string_equal(r.remote[0]->unix_path, "/run/2");
  assert_string_equal(r.remote[1]->uri, "tcp://10.0.0.3:1");
  assert_string_equal(r.remote[1]->unix_path, "");
  br_resolved_free(&r);
  /* a narrower range of maps asks fewer workers */
  ref.map_first = 1, ref.map_last = 2;
  assert_int_equal(br_tables_resolve(&n, &in, &r, &err), BR_OK);
  assert_int_equal(r.n_local, 0);
  assert_int_equal(r.n_remote, 1);
  br_resolved_free(&r);
  ref.map_first = ref.map_last = 0;
  assert_int_equal(br_tables_resolve(&n, &in, &r, &err), BR_OK);
  assert_int_equal(r.n_remote + r.n_local, 0);
  br_resolved_free(&r);
  br_tables_free(n.tables);
}

/* Files of a shared directory are all read by path, whoever made them and whether it is still there. */
static void shared_files_resolve(void **state) {
  (void)state;
  br_node n = {.worker = 1, .incarnation = 4, .tables = br_tables_new()};
  Brant__Pb__OutputTable m = BRANT__PB__OUTPUT_TABLE__INIT;
  Brant__Pb__OutputEntry e[2] = {BRANT__PB__OUTPUT_ENTRY__INIT, BRANT__PB__OUTPUT_ENTRY__INIT},
                         *refs[2] = {&e[0], &e[1]};
  e[0].map = 0, e[0].attempt = 1, e[0].worker = 1, e[0].incarnation = 4;
  e[1].map = 1, e[1].attempt = 3, e[1].worker = 7, e[1].incarnation = 2; /* no peer of that number */
  m.query = 1, m.stage = 1, m.version = 1, m.partitions = 4, m.maps = 2, m.n_entries = 2, m.entries = refs;
  m.shared_dir = (char *)"/shared/brant-1-q1";
  br_tables_put(n.tables, &m);
  Brant__Pb__PartitionRef ref = BRANT__PB__PARTITION_REF__INIT;
  ref.query = 1, ref.stage = 1, ref.table_version = 1, ref.last = 4, ref.map_last = 2;
  Brant__Pb__TaskInput in = BRANT__PB__TASK_INPUT__INIT;
  in.ref = &ref;
  Brant__Pb__ResolvedInput r;
  br_error err = {0};
  assert_int_equal(br_tables_resolve(&n, &in, &r, &err), BR_OK);
  assert_int_equal(r.n_local + r.n_remote, 0);
  assert_string_equal(r.shared_dir, "/shared/brant-1-q1");
  assert_int_equal(r.n_file, 2);
  assert_int_equal(r.file[1]->map, 1);
  assert_int_equal(r.file[1]->attempt, 3);
  assert_int_equal(r.file[1]->worker, 7);
  assert_int_equal(r.file[1]->incarnation, 2);
  br_resolved_free(&r);
  br_tables_free(n.tables);
}

static void expect_failure(br_node *n, const Brant__Pb__TaskInput *in, br_code code, bool retryable, uint32_t worker) {
  Brant__Pb__ResolvedInput r;
  br_error err = {0};
  assert_int_equal(br_tables_resolve(n, in, &r, &err), code);
  assert_int_equal(err.retryable, retryable);
  assert_int_equal(err.worker, worker);
  br_resolved_free(&r);
}

static void what_cannot_be_resolved(void **state) {
  (void)state;
  br_node n = {.worker = 1, .incarnation = 1, .tables = br_tables_new()};
  put(n.tables, 1, 3, 2, (place[]){{0, 0, 1, 1}, {1, 0, 2, 5}}, 2);
  Brant__Pb__PartitionRef ref = BRANT__PB__PARTITION_REF__INIT;
  Brant__Pb__TaskInput in = BRANT__PB__TASK_INPUT__INIT;
  expect_failure(&n, &in, BR_INTERNAL, false, 0); /* no ref */
  in.ref = &ref;
  ref.query = 1, ref.stage = 1, ref.table_version = 4, ref.last = 1, ref.map_last = 2;
  expect_failure(&n, &in, BR_FETCH, true, 0); /* a later version: on its way */
  ref.table_version = 2;
  expect_failure(&n, &in, BR_FETCH, false, 0); /* an earlier one that was never here */
  ref.table_version = 3;
  expect_failure(&n, &in, BR_FETCH, false, 2); /* no peer 2 */
  add_peer(n.tables, 2, 4, "here");
  expect_failure(&n, &in, BR_FETCH, false, 2); /* of an earlier incarnation */
  add_peer(n.tables, 2, 5, "here");
  ref.last = 5;
  expect_failure(&n, &in, BR_INTERNAL, false, 0); /* 4 partitions */
  ref.last = 1, ref.map_last = 3;
  expect_failure(&n, &in, BR_INTERNAL, false, 0); /* 2 maps */
  br_tables_peer_gone(n.tables, 2);
  ref.map_last = 2;
  expect_failure(&n, &in, BR_FETCH, false, 2);
  put(n.tables, 1, 4, 2, (place[]){{0, 0, 1, 1}}, 1);
  ref.table_version = 4;
  expect_failure(&n, &in, BR_FETCH, false, 0); /* map 1 died */
  br_tables_free(n.tables);
}

/* ---- directories */

static char *make_dir(const char *in, const char *name) {
  char *dir = br_asprintf("%s/%s", in, name);
  assert_int_equal(mkdir(dir, 0700), 0);
  return dir;
}

static void make_owner(const char *dir, const char *text) {
  char *path = br_asprintf("%s/owner", dir);
  FILE *f = fopen(path, "w");
  fputs(text, f);
  fclose(f);
  free(path);
}

static bool there(const char *path) { return access(path, F_OK) == 0; }

static void only_the_dead_are_removed(void **state) {
  (void)state;
  char tmp[] = "/tmp/brant-test-XXXXXX";
  assert_non_null(mkdtemp(tmp));
  br_error err = {0};
  br_home mine, other;
  assert_int_equal(br_home_create(tmp, &mine, &err), BR_OK);
  /* One whose process has ended; the kernel gave its lock back. */
  pid_t pid = fork();
  if (pid == 0) _exit(br_home_create(tmp, &other, &err) == BR_OK ? 0 : 1);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  char *reboot = make_dir(tmp, "brant-0123456789abcdef-w1"), *fresh = make_dir(tmp, "brant-0123456789abcdef-w2"),
       *old = make_dir(tmp, "brant-0123456789abcdef-w3"), *foreign = make_dir(tmp, "brant-stuff-w3"),
       *alive = make_dir(tmp, "brant-0123456789abcdef-w4");
  make_owner(reboot, "pid 1 start 1 boot 00000000-0000-0000-0000-000000000000\n");
  make_owner(foreign, "pid 1 start 1 boot x\n");
  struct timeval past[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
  assert_int_equal(utimes(old, past), 0);
  /* Without the lock, but its process lives: this one. */
  char *own_text = br_asprintf("%s/owner", mine.dir), text[256] = "";
  FILE *f = fopen(own_text, "r");
  assert_non_null(fgets(text, sizeof text, f));
  fclose(f);
  make_owner(alive, text);
  free(own_text);
  assert_int_equal(br_home_remove_dead(tmp), 3);
  assert_true(there(mine.dir) && there(fresh) && there(foreign) && there(alive));
  assert_false(there(reboot) || there(old));
  assert_int_equal(br_home_remove_dead(tmp), 0);
  br_home_remove(&mine);
  free(reboot), free(fresh), free(old), free(foreign), free(alive);
  br_remove_tree(tmp);
}

static void directory_that_cannot_be_made(void **state) {
  (void)state;
  br_home h;
  br_error err = {0};
  assert_int_not_equal(br_home_create("/proc/no/such", &h, &err), BR_OK);
  assert_null(h.dir);
  br_home_remove(&h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(versions_stay_as_they_were),
      cmocka_unit_test(hundreds_of_versions),
      cmocka_unit_test(inputs_resolve),
      cmocka_unit_test(growing_outputs_resolve),
      cmocka_unit_test(shared_files_resolve),
      cmocka_unit_test(what_cannot_be_resolved),
      cmocka_unit_test(only_the_dead_are_removed),
      cmocka_unit_test(directory_that_cannot_be_made),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
