/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * The node's store: what is kept where, what it counts, and that nothing stays behind. */
#include "shuffle_util.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#define ROWS 20000u /* about 750 KiB an output */

typedef struct fixture {
  char *dir, *store_dir;
  br_store *store;
  br_schema *schema;
} fixture;

static fixture set_up(uint64_t memory_bytes, uint64_t disk_bytes) {
  fixture f = {.dir = temp_dir(), .schema = rows_schema()};
  br_error err = {0};
  f.store_dir = br_asprintf("%s/shuffle", f.dir);
  br_store_options o = {.dir = f.store_dir, .memory_bytes = memory_bytes, .disk_bytes = disk_bytes};
  assert_ok(br_store_new(&o, &f.store, &err), err);
  return f;
}

static void tear_down(fixture *f) {
  br_store_free(f->store);
  assert_int_equal(access(f->store_dir, F_OK), -1); /* nothing stays behind */
  br_schema_unref(f->schema);
  free(f->store_dir);
  temp_dir_free(f->dir);
}

static br_attempt_id make_id(uint64_t query, uint32_t stage, uint32_t task, uint16_t attempt) {
  return (br_attempt_id){.query = query, .stage = stage, .task = task, .attempt = attempt};
}

static uint64_t add(fixture *f, br_attempt_id id, bool disk) {
  br_map_output o = write_output(&id, 8, (uint64_t)id.task * ROWS, ((uint64_t)id.task + 1) * ROWS, f->dir, disk);
  uint64_t bytes = o.file_bytes;
  br_error err = {0};
  assert_ok(br_store_add(f->store, &id, &o, &err), err);
  assert_int_equal(o.fd, -1);
  return bytes;
}

static void check_rows(fixture *f, br_mapfile *file, uint32_t task) {
  seen_rows seen = seen_new((uint64_t)task * ROWS, ((uint64_t)task + 1) * ROWS);
  see_mapfile(&seen, file, f->schema, 0, 8, true);
  assert_all_once(&seen);
  seen_free(&seen);
}

/* Waits until a condition over the gauge holds; at most 20 s. */
#define wait_until(f, g, condition)                                  \
  do {                                                               \
    uint64_t deadline = br_now_ms() + 20000;                         \
    for (;;) {                                                       \
      g = br_store_gauge_now((f)->store);                            \
      if (condition) break;                                          \
      if (br_now_ms() > deadline) fail_msg("never: %s", #condition); \
      sched_yield();                                                 \
    }                                                                \
  } while (0)

static void keeps_and_finds(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 0);
  uint64_t in_memory = add(&f, make_id(1, 2, 0, 0), false), on_disk = add(&f, make_id(1, 2, 1, 0), true);
  br_store_gauge g = br_store_gauge_now(f.store);
  assert_int_equal(g.memory_bytes, in_memory);
  assert_int_equal(g.disk_bytes, on_disk);
  assert_int_equal(g.outputs, 2);
  char *path = br_asprintf("%s/q0000000000000001/s2/t1.a0.map", f.store_dir);
  assert_int_equal(access(path, F_OK), 0);
  for (uint32_t task = 0; task < 2; task++) {
    br_mapfile *file = br_store_get(f.store, 1, 2, task, 0);
    assert_non_null(file);
    check_rows(&f, file, task);
    br_mapfile_unref(file);
  }
  assert_null(br_store_get(f.store, 1, 2, 2, 0));
  assert_null(br_store_get(f.store, 1, 2, 0, 1));
  assert_null(br_store_get(f.store, 1, 3, 0, 0));
  assert_null(br_store_get(f.store, 2, 2, 0, 0));
  br_store_drop_stage(f.store, 1, 2);
  assert_null(br_store_get(f.store, 1, 2, 0, 0));
  assert_int_equal(access(path, F_OK), -1); /* out of its place at once */
  free(path);
  g = br_store_gauge_now(f.store);
  assert_true(g.memory_bytes == 0 && g.disk_bytes == 0 && g.outputs == 0);
  tear_down(&f);
}

static void drops_are_by_stage_and_query(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 0);
  add(&f, make_id(1, 1, 0, 0), false);
  add(&f, make_id(1, 2, 0, 0), true);
  add(&f, make_id(2, 1, 0, 0), false);
  br_store_drop_stage(f.store, 1, 1);
  assert_int_equal(br_store_gauge_now(f.store).outputs, 2);
  br_store_drop_stage(f.store, 7, 1); /* unknown: fine */
  br_store_drop_query(f.store, 1);
  assert_int_equal(br_store_gauge_now(f.store).outputs, 1);
  br_mapfile *file = br_store_get(f.store, 2, 1, 0, 0);
  check_rows(&f, file, 0);
  br_mapfile_unref(file);
  tear_down(&f); /* with one output left */
}

static void newer_attempts_replace_older(void **unused) {
  (void)unused;
  for (int disk = 0; disk < 2; disk++) {
    fixture f = set_up(64u << 20, 0);
    add(&f, make_id(1, 1, 0, 1), disk);
    uint64_t bytes = add(&f, make_id(1, 1, 0, 3), disk);
    add(&f, make_id(1, 1, 0, 2), disk);
    add(&f, make_id(1, 1, 0, 3), disk); /* the same again: the first stays */
    br_mapfile *file = br_store_get(f.store, 1, 1, 0, 3);
    assert_non_null(file);
    br_mapfile_unref(file);
    assert_null(br_store_get(f.store, 1, 1, 0, 1));
    assert_null(br_store_get(f.store, 1, 1, 0, 2));
    br_store_gauge g = br_store_gauge_now(f.store);
    assert_int_equal(g.outputs, 1);
    assert_int_equal(g.memory_bytes + g.disk_bytes, bytes);
    tear_down(&f);
  }
}

static void reservations_return_to_zero(void **unused) {
  (void)unused;
  fixture f = set_up(8u << 20, 0);
  assert_true(br_store_reserve(f.store, 4u << 20));
  assert_true(br_store_reserve(f.store, 4u << 20));
  assert_false(br_store_reserve(f.store, 1));
  br_store_unreserve(f.store, 4u << 20);
  assert_int_equal(br_store_gauge_now(f.store).memory_bytes, 4u << 20);
  br_attempt_id id = make_id(1, 1, 0, 0);
  br_map_output o = write_output(&id, 8, 0, ROWS, f.dir, false);
  uint64_t bytes = o.file_bytes;
  o.reserved_bytes = 4u << 20;
  br_error err = {0};
  assert_ok(br_store_add(f.store, &id, &o, &err), err);
  assert_int_equal(br_store_gauge_now(f.store).memory_bytes, bytes); /* settled against the true size */
  br_store_drop_query(f.store, 1);
  assert_int_equal(br_store_gauge_now(f.store).memory_bytes, 0);
  assert_int_equal(br_store_gauge_now(f.store).peak_memory_bytes, 8u << 20);
  tear_down(&f);
}

static void a_refusal_spills_the_oldest(void **unused) {
  (void)unused;
  fixture f = set_up(4u << 20, 0);
  uint64_t bytes = 0;
  for (uint32_t t = 0; t < 4; t++) bytes += add(&f, make_id(1, 1, t, 0), false);
  assert_int_equal(br_store_gauge_now(f.store).spilled_bytes, 0);
  assert_false(br_store_reserve(f.store, 2u << 20));
  br_store_gauge g;
  wait_until(&f, g,
             g.memory_bytes <= (2u << 20) && g.disk_bytes == g.spilled_bytes && g.memory_bytes + g.disk_bytes == bytes);
  assert_true(g.spilled_bytes > 0);
  assert_true(br_store_reserve(f.store, 2u << 20));
  br_store_unreserve(f.store, 2u << 20);
  char *oldest = br_asprintf("%s/q0000000000000001/s1/t0.a0.map", f.store_dir);
  assert_int_equal(access(oldest, F_OK), 0);
  free(oldest);
  for (uint32_t t = 0; t < 4; t++) {
    br_mapfile *file = br_store_get(f.store, 1, 1, t, 0);
    check_rows(&f, file, t);
    br_mapfile_unref(file);
  }
  tear_down(&f);
}

static void pressure_spills_before_the_limit(void **unused) {
  (void)unused;
  fixture f = set_up(4u << 20, 0);
  for (uint32_t t = 0; t < 6; t++) add(&f, make_id(1, 1, t, 0), false); /* 4.4 MiB */
  br_store_gauge g;
  wait_until(&f, g, g.spilled_bytes > 0 && g.memory_bytes < (4u << 20) / 10 * 9);
  tear_down(&f);
}

static void memory_counts_until_the_last_reader(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 0);
  uint64_t bytes = add(&f, make_id(1, 1, 0, 0), false);
  br_mapfile *held = br_store_get(f.store, 1, 1, 0, 0);
  br_store_spill(f.store, 64u << 20);
  br_store_gauge g;
  wait_until(&f, g, g.spilled_bytes == bytes);
  assert_int_equal(g.memory_bytes, bytes); /* on disk too, but its memory is in use */
  check_rows(&f, held, 0);
  br_mapfile *now = br_store_get(f.store, 1, 1, 0, 0);
  assert_false(br_mapfile_in_memory(now));
  check_rows(&f, now, 0);
  br_mapfile_unref(now);
  br_mapfile_unref(held);
  assert_int_equal(br_store_gauge_now(f.store).memory_bytes, 0);

  add(&f, make_id(1, 1, 1, 0), false); /* dropped while somebody reads */
  held = br_store_get(f.store, 1, 1, 1, 0);
  br_store_drop_query(f.store, 1);
  assert_true(br_store_gauge_now(f.store).memory_bytes > 0);
  check_rows(&f, held, 1);
  tear_down(&f); /* the store goes first */
  fixture other = {.schema = rows_schema()};
  check_rows(&other, held, 1);
  br_schema_unref(other.schema);
  br_mapfile_unref(held);
}

static void lent_outputs_stay_in_memory(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 0);
  br_attempt_id lent = make_id(1, 1, 0, 0), other = make_id(1, 1, 1, 0);
  uint64_t lent_bytes = add(&f, lent, false), other_bytes = add(&f, other, false), file_bytes = 0;
  bool in_memory = false;
  br_error err = {0};
  int fd = br_store_fd(f.store, &lent, &in_memory, &file_bytes);
  assert_true(fd >= 0 && in_memory && file_bytes == lent_bytes);
  assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  br_store_spill(f.store, 64u << 20);
  br_store_gauge g;
  wait_until(&f, g, g.spilled_bytes == other_bytes && g.memory_bytes == lent_bytes); /* counted one after the other */
  br_mapfile *file = NULL; /* what the executor does with it */
  assert_ok(br_mapfile_open(fd, in_memory, file_bytes, &file, &err), err);
  check_rows(&f, file, 0);
  br_mapfile_unref(file);
  fd = br_store_fd(f.store, &other, &in_memory, &file_bytes);
  assert_true(fd >= 0 && !in_memory);
  assert_ok(br_mapfile_open(fd, in_memory, file_bytes, &file, &err), err);
  check_rows(&f, file, 1);
  br_mapfile_unref(file);
  other.attempt = 5;
  assert_int_equal(br_store_fd(f.store, &other, &in_memory, &file_bytes), -1);
  tear_down(&f);
}

static void damaged_outputs_are_refused(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 0);
  br_attempt_id id = make_id(1, 1, 0, 0), wrong = make_id(1, 1, 4, 0);
  br_error err = {0};
  br_map_output o = write_output(&id, 8, 0, ROWS, f.dir, false);
  o.reserved_bytes = 1u << 20;
  assert_true(br_store_reserve(f.store, 1u << 20));
  assert_int_equal(br_store_add(f.store, &wrong, &o, &err), BR_CORRUPT);
  o = write_output(&id, 8, 0, ROWS, f.dir, true);
  char *path = br_strdup(o.path);
  assert_int_equal(ftruncate(o.fd, (off_t)o.file_bytes - 10), 0);
  assert_int_equal(br_store_add(f.store, &id, &o, &err), BR_CORRUPT);
  assert_int_equal(access(path, F_OK), -1);
  free(path);
  br_store_gauge g = br_store_gauge_now(f.store);
  assert_true(g.memory_bytes == 0 && g.disk_bytes == 0 && g.outputs == 0);
  tear_down(&f);
}

static void disk_quota(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 1u << 20);
  br_attempt_id id = make_id(1, 1, 0, 0);
  br_error err = {0};
  add(&f, id, true);
  for (uint32_t t = 1; t < 20; t++) {
    id.task = t;
    br_map_output o = write_output(&id, 8, (uint64_t)t * ROWS, ((uint64_t)t + 1) * ROWS, f.dir, true);
    br_status status = br_store_add(f.store, &id, &o, &err);
    if (status == BR_OK) continue;
    assert_int_equal(status, BR_NO_SPACE);
    assert_non_null(strstr(err.message, f.store_dir));
    break;
  }
  assert_int_equal(err.code, BR_NO_SPACE);
  assert_true(br_store_gauge_now(f.store).disk_bytes <= 1u << 20);
  tear_down(&f);
}

static void full_disk_keeps_it_in_memory(void **unused) {
  (void)unused;
  fixture f = {.dir = temp_dir(), .schema = rows_schema()};
  br_error err = {0};
  if (mount("tmpfs", f.dir, "tmpfs", 0, "size=1500k") != 0) {
    br_schema_unref(f.schema);
    temp_dir_free(f.dir);
    skip(); /* not root */
  }
  f.store_dir = br_asprintf("%s/shuffle", f.dir);
  br_store_options o = {.dir = f.store_dir, .memory_bytes = 8u << 20};
  assert_ok(br_store_new(&o, &f.store, &err), err);
  uint64_t bytes = 0;
  br_log_set_name("test", 0);
  for (uint32_t t = 0; t < 4; t++) bytes += add(&f, make_id(1, 1, t, 0), false);
  br_store_spill(f.store, 8u << 20);
  br_store_gauge g;
  /* what fits, and no half a file; the memory of what was moved is given back a little later */
  wait_until(&f, g, g.spilled_bytes > 0 && g.disk_bytes == g.spilled_bytes && g.memory_bytes + g.disk_bytes == bytes);
  assert_false(br_store_reserve(f.store, 8u << 20));
  for (uint32_t t = 0; t < 4; t++) {
    br_mapfile *file = br_store_get(f.store, 1, 1, t, 0);
    check_rows(&f, file, t);
    br_mapfile_unref(file);
  }
  br_store_free(f.store); /* does not wait for the disk */
  assert_int_equal(access(f.store_dir, F_OK), -1);
  assert_int_equal(umount(f.dir), 0);
  free(f.store_dir);
  br_schema_unref(f.schema);
  temp_dir_free(f.dir);
}

/* Drops and lookups while the spill thread copies: no leak, no leftover. */
static void drop_while_spilling(void **unused) {
  (void)unused;
  for (int round = 0; round < 20; round++) {
    fixture f = set_up(64u << 20, 0);
    for (uint32_t t = 0; t < 4; t++) add(&f, make_id(1, 1, t, 0), false);
    br_store_spill(f.store, 64u << 20);
    if (round % 2 == 0) {
      br_store_gauge g;
      wait_until(&f, g, g.disk_bytes > 0);
    }
    br_store_drop_query(f.store, 1);
    add(&f, make_id(1, 1, 0, 1), false);
    br_store_drop_stage(f.store, 1, 1);
    tear_down(&f);
  }
}

static void one_output_is_dropped(void **unused) {
  (void)unused;
  for (int disk = 0; disk < 2; disk++) {
    fixture f = set_up(64u << 20, 0);
    br_attempt_id old = make_id(1, 1, 0, 1), now = make_id(1, 1, 0, 2), other = make_id(1, 1, 1, 0);
    add(&f, now, disk);
    add(&f, other, disk);
    br_store_drop_output(f.store, &old); /* replaced long ago: the newer one stays */
    br_store_drop_output(f.store, &(br_attempt_id){.query = 9, .stage = 1});
    assert_int_equal(br_store_gauge_now(f.store).outputs, 2);
    br_mapfile *held = br_store_get(f.store, 1, 1, 0, 2);
    br_store_drop_output(f.store, &now);
    assert_null(br_store_get(f.store, 1, 1, 0, 2));
    check_rows(&f, held, 0); /* who reads it goes on */
    br_mapfile_unref(held);
    br_mapfile *file = br_store_get(f.store, 1, 1, 1, 0);
    check_rows(&f, file, 1);
    br_mapfile_unref(file);
    add(&f, old, disk); /* its place is free again */
    file = br_store_get(f.store, 1, 1, 0, 1);
    assert_non_null(file);
    br_mapfile_unref(file);
    br_attempt_id *ids = NULL;
    assert_int_equal(br_store_take_evicted(f.store, &ids), 0);
    assert_null(ids);
    tear_down(&f);
  }
}

static void assert_evicted(fixture *f, const uint32_t *tasks, size_t n) {
  br_attempt_id *ids = NULL;
  assert_int_equal(br_store_take_evicted(f->store, &ids), n);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(ids[i].task, tasks[i]);
    assert_null(br_store_get(f->store, 1, ids[i].stage, ids[i].task, ids[i].attempt));
  }
  free(ids);
}

/* Memory for an executor: retired outputs go at once, oldest first, and nothing is written to disk. */
static void retired_outputs_go_first(void **unused) {
  (void)unused;
  fixture f = set_up(4u << 20, 0); /* five outputs and a little: below the spill thread's mark after each eviction */
  uint64_t bytes = 0;
  for (uint32_t t = 0; t < 3; t++) bytes = add(&f, make_id(1, 1, t, 0), false); /* 750 KiB each */
  uint64_t needed = add(&f, make_id(1, 2, 9, 0), false);
  br_store_retire_stage(f.store, 1, 1);
  br_store_retire_stage(f.store, 1, 1); /* said twice */
  br_store_retire_stage(f.store, 5, 1); /* of nothing */
  br_mapfile *file = br_store_get(f.store, 1, 1, 1, 0);
  check_rows(&f, file, 1); /* readable all the time */
  br_mapfile_unref(file);
  br_store_gauge g = br_store_gauge_now(f.store);
  uint64_t want = (4u << 20) - g.memory_bytes + 4096; /* sizes differ a little */
  assert_true(br_store_reserve(f.store, want));
  assert_evicted(&f, (uint32_t[]){0}, 1);
  assert_true(br_store_reserve(f.store, bytes));
  assert_evicted(&f, (uint32_t[]){1}, 1);
  g = br_store_gauge_now(f.store);
  assert_int_equal(g.outputs, 2);
  assert_int_equal(g.spilled_bytes + g.disk_bytes, 0);
  /* One that is read stays. What is needed is spilled meanwhile. */
  br_mapfile *held = br_store_get(f.store, 1, 1, 2, 0);
  br_store_spill(f.store, 4u << 20);
  wait_until(&f, g, g.spilled_bytes == needed);
  assert_evicted(&f, NULL, 0);
  check_rows(&f, held, 2);
  br_mapfile_unref(held);
  br_store_unreserve(f.store, want + bytes);
  needed += add(&f, make_id(1, 1, 0, 1), false); /* made again: it isn't retired */
  br_store_spill(f.store, 4u << 20);
  wait_until(&f, g, g.spilled_bytes == needed);
  assert_evicted(&f, (uint32_t[]){2}, 1);
  file = br_store_get(f.store, 1, 1, 0, 1);
  check_rows(&f, file, 0);
  br_mapfile_unref(file);
  file = br_store_get(f.store, 1, 2, 9, 0);
  check_rows(&f, file, 9);
  br_mapfile_unref(file);
  tear_down(&f);
}

/* What was retired and is needed again is spilled, not evicted. */
static void a_retired_stage_comes_back(void **unused) {
  (void)unused;
  fixture f = set_up(4u << 20, 0);
  uint64_t needed = 0;
  for (uint32_t t = 0; t < 2; t++) needed += add(&f, make_id(1, 1, t, 0), false);
  add(&f, make_id(1, 2, 7, 0), false);
  add(&f, make_id(2, 1, 8, 0), false);
  br_store_retire_stage(f.store, 1, 1);
  br_store_retire_stage(f.store, 1, 2);
  br_store_retire_stage(f.store, 2, 1);
  br_store_unretire_stage(f.store, 1, 1);
  br_store_unretire_stage(f.store, 1, 1); /* said twice */
  br_store_unretire_stage(f.store, 3, 1); /* of nothing */
  br_store_gauge g;
  br_store_spill(f.store, 4u << 20);
  wait_until(&f, g, g.spilled_bytes == needed && g.memory_bytes == 0);
  br_attempt_id *ids = NULL;
  assert_int_equal(br_store_take_evicted(f.store, &ids), 2); /* the others stay retired */
  assert_int_equal(ids[0].task, 7);
  assert_int_equal(ids[1].task, 8);
  free(ids);
  for (uint32_t t = 0; t < 2; t++) {
    br_mapfile *file = br_store_get(f.store, 1, 1, t, 0);
    check_rows(&f, file, t);
    br_mapfile_unref(file);
  }
  br_store_retire_stage(f.store, 1, 1); /* and again */
  br_store_make_disk_room(f.store);
  assert_evicted(&f, (uint32_t[]){0, 1}, 2);
  tear_down(&f);
}

static void retired_files_make_room_on_disk(void **unused) {
  (void)unused;
  fixture f = set_up(64u << 20, 2u << 20);
  uint64_t bytes = add(&f, make_id(1, 1, 0, 0), true);
  uint32_t n = (uint32_t)((2u << 20) / bytes);
  for (uint32_t t = 1; t < n; t++) add(&f, make_id(1, 1, t, 0), true);
  br_store_retire_stage(f.store, 1, 1);
  add(&f, make_id(1, 2, 50, 0), true); /* over the quota, but for the first of those */
  assert_evicted(&f, (uint32_t[]){0}, 1);
  add(&f, make_id(1, 2, 51, 0), false); /* the spill thread needs room as well */
  br_store_spill(f.store, 64u << 20);
  br_store_gauge g;
  wait_until(&f, g, g.spilled_bytes > 0);
  assert_true(g.disk_bytes <= 2u << 20);
  br_attempt_id *ids = NULL;
  assert_true(br_store_take_evicted(f.store, &ids) > 0);
  assert_int_equal(ids[0].task, 1);
  free(ids);
  br_store_make_disk_room(f.store);
  br_mapfile *file = br_store_get(f.store, 1, 2, 50, 0);
  check_rows(&f, file, 50);
  br_mapfile_unref(file);
  file = br_store_get(f.store, 1, 2, 51, 0);
  check_rows(&f, file, 51);
  br_mapfile_unref(file);
  assert_int_equal(br_store_gauge_now(f.store).outputs, 2);
  tear_down(&f);
}

/* A full disk: what is retired there goes, then the spill thread tries again. */
static void retired_files_go_from_a_full_disk(void **unused) {
  (void)unused;
  fixture f = {.dir = temp_dir(), .schema = rows_schema()};
  br_error err = {0};
  if (mount("tmpfs", f.dir, "tmpfs", 0, "size=1500k") != 0) {
    br_schema_unref(f.schema);
    temp_dir_free(f.dir);
    skip(); /* not root */
  }
  f.store_dir = br_asprintf("%s/shuffle", f.dir);
  br_store_options o = {.dir = f.store_dir, .memory_bytes = 8u << 20};
  assert_ok(br_store_new(&o, &f.store, &err), err);
  br_store_gauge g;
  add(&f, make_id(1, 1, 0, 0), false);
  br_store_spill(f.store, 8u << 20);
  wait_until(&f, g, g.spilled_bytes > 0 && g.memory_bytes == 0);
  br_store_retire_stage(f.store, 1, 1);
  add(&f, make_id(1, 2, 7, 0), false);
  uint64_t before = br_store_gauge_now(f.store).spilled_bytes;
  br_store_spill(f.store, 8u << 20);
  wait_until(&f, g, g.spilled_bytes > before);
  br_attempt_id *ids = NULL;
  assert_int_equal(br_store_take_evicted(f.store, &ids), 1);
  free(ids);
  br_mapfile *file = br_store_get(f.store, 1, 2, 7, 0);
  check_rows(&f, file, 7);
  br_mapfile_unref(file);
  br_store_free(f.store);
  assert_int_equal(umount(f.dir), 0);
  free(f.store_dir);
  br_schema_unref(f.schema);
  temp_dir_free(f.dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keeps_and_finds),
      cmocka_unit_test(drops_are_by_stage_and_query),
      cmocka_unit_test(newer_attempts_replace_older),
      cmocka_unit_test(reservations_return_to_zero),
      cmocka_unit_test(a_refusal_spills_the_oldest),
      cmocka_unit_test(pressure_spills_before_the_limit),
      cmocka_unit_test(memory_counts_until_the_last_reader),
      cmocka_unit_test(lent_outputs_stay_in_memory),
      cmocka_unit_test(damaged_outputs_are_refused),
      cmocka_unit_test(disk_quota),
      cmocka_unit_test(full_disk_keeps_it_in_memory),
      cmocka_unit_test(drop_while_spilling),
      cmocka_unit_test(one_output_is_dropped),
      cmocka_unit_test(retired_outputs_go_first),
      cmocka_unit_test(a_retired_stage_comes_back),
      cmocka_unit_test(retired_files_make_room_on_disk),
      cmocka_unit_test(retired_files_go_from_a_full_disk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
