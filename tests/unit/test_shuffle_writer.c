/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * The partitioner: every row once, in its partition, from memory and from disk, within its bounds. */
#include "shuffle_util.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

typedef struct job {
  br_writer *w;
  uint64_t first, last;
  uint32_t partitions;
  bool single;
  br_status status;
  br_error err;
} job;

static void *write_job(void *arg) {
  job *j = arg;
  void *state = NULL;
  j->status = br_writer_thread(j->w, &state, &j->err);
  if (j->status == BR_OK) {
    j->status = write_rows(j->w, state, j->first, j->last, j->partitions, j->single, &j->err);
    if (j->status == BR_OK)
      j->status = br_writer_thread_end(j->w, state, &j->err);
    else
      br_writer_thread_abandon(j->w, state);
  }
  return NULL;
}

static br_writer_options options(br_schema *schema, uint32_t partitions, const char *dir) {
  return (br_writer_options){.id = {.query = 1, .stage = 2, .task = 3, .attempt = 0},
                             .schema = schema,
                             .kind = partitions == 1 ? BR_PART_SINGLE : BR_PART_HASH,
                             .partitions = partitions,
                             .codec_disk = BR_CODEC_LZ4,
                             .scatter_buffer_bytes = 8u << 20,
                             .spill_dir = dir};
}

/* Write `rows` rows by `threads` threads and commit. */
static br_map_output run_writer(const br_writer_options *o, uint64_t rows, uint32_t threads) {
  br_writer *w = NULL;
  br_error err = {0};
  job jobs[4];
  pthread_t ids[4];
  br_map_output out = {.fd = -1};
  assert_ok(br_writer_open(o, &w, &err), err);
  for (uint32_t i = 0; i < threads; i++) {
    jobs[i] = (job){.w = w,
                    .first = rows * i / threads,
                    .last = rows * (i + 1) / threads,
                    .partitions = o->partitions,
                    .single = o->kind == BR_PART_SINGLE};
    pthread_create(&ids[i], NULL, write_job, &jobs[i]);
  }
  for (uint32_t i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  for (uint32_t i = 0; i < threads; i++) assert_ok(jobs[i].status, jobs[i].err);
  assert_ok(br_writer_commit(w, &out, &err), err);
  br_writer_free(w);
  return out;
}

/* Takes over out->fd. */
static void check_output(br_map_output *out, br_schema *schema, uint64_t rows, uint32_t partitions) {
  br_mapfile *f = NULL;
  br_error err = {0};
  uint64_t sum_rows = 0, sum_bytes = 0;
  assert_ok(br_mapfile_open(out->fd, out->in_memory, out->file_bytes, &f, &err), err);
  out->fd = -1;
  assert_int_equal(br_mapfile_partitions(f), partitions);
  seen_rows seen = seen_new(0, rows);
  see_mapfile(&seen, f, schema, 0, partitions, true);
  assert_all_once(&seen);
  for (uint32_t p = 0; p < partitions; p++) {
    const br_chunk *c;
    size_t n = br_mapfile_find(f, p, p + 1, &c);
    uint64_t p_rows = 0, p_bytes = 0;
    for (size_t i = 0; i < n; i++) {
      p_rows += c[i].rows;
      p_bytes += br_chunk_stored_bytes(&c[i]);
    }
    assert_int_equal(p_rows, out->partition_rows[p]);
    assert_int_equal(p_bytes, out->partition_bytes[p]);
    sum_rows += p_rows;
    sum_bytes += p_bytes;
  }
  assert_int_equal(out->rows, rows);
  assert_int_equal(out->rows, sum_rows);
  assert_int_equal(out->bytes, sum_bytes);
  assert_true(out->file_bytes > out->bytes && out->index_offset < out->file_bytes);
  seen_free(&seen);
  br_mapfile_unref(f);
}

static void every_row_once(void **unused) {
  (void)unused;
  static const uint32_t counts[4] = {1, 7, 64, 512};
  br_schema *schema = rows_schema();
  char *dir = temp_dir();
  for (int i = 0; i < 4; i++)
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
      br_writer_options o = options(schema, counts[i], dir);
      br_map_output out = run_writer(&o, 100000, threads);
      assert_true(out.in_memory);
      assert_null(out.path);
      assert_int_equal(out.spilled_bytes, 0);
      check_output(&out, schema, 100000, counts[i]);
      br_map_output_free(&out);
    }
  br_schema_unref(schema);
  temp_dir_free(dir);
}

static void moves_to_disk_in_the_middle(void **unused) {
  (void)unused;
  static const uint32_t counts[3] = {1, 64, 512};
  br_schema *schema = rows_schema();
  char *dir = temp_dir();
  for (int i = 0; i < 3; i++)
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
      limited_reserver limit = {.left = 5u << 20}; /* of about 11 MiB */
      br_writer_options o = options(schema, counts[i], dir);
      o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &limit, .release = limited_release};
      br_map_output out = run_writer(&o, 300000, threads);
      assert_false(out.in_memory);
      assert_int_equal(out.spilled_bytes, out.file_bytes);
      assert_int_equal(out.reserved_bytes, 0);
      assert_int_equal(limit.granted, 0);
      struct stat st;
      assert_int_equal(stat(out.path, &st), 0);
      assert_int_equal(st.st_size, out.file_bytes);
      check_output(&out, schema, 300000, counts[i]);
      br_map_output_free(&out);
    }
  br_schema_unref(schema);
  temp_dir_free(dir);
}

static void partitions_are_contiguous_in_a_run(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  char *dir = temp_dir();
  limited_reserver none = {0};
  br_writer_options o = options(schema, 64, dir);
  o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &none};
  o.codec_disk = BR_CODEC_NONE;
  o.chunk_bytes = 16u << 10;
  br_map_output out = run_writer(&o, 300000, 1);
  br_mapfile *f = NULL;
  br_error err = {0};
  const br_chunk *c;
  assert_ok(br_mapfile_open(out.fd, false, out.file_bytes, &f, &err), err);
  out.fd = -1;
  size_t n = br_mapfile_find(f, 0, 64, &c), jumps = 0;
  for (size_t i = 1; i < n; i++) jumps += c[i].offset != c[i - 1].offset + br_chunk_stored_bytes(&c[i - 1]);
  /* run buffer: half of 8 MiB, in two buffers of 2 MiB; 300,000 rows of about 37 bytes: 6 runs, each with 64 partitions */
  assert_in_range(jumps, 1, 64 * 7);
  assert_true(n > 64 * 7);
  br_mapfile_unref(f);
  br_map_output_free(&out);
  br_schema_unref(schema);
  temp_dir_free(dir);
}

static void reservations_are_settled(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  limited_reserver limit = {.left = 1u << 30};
  br_writer_options o = options(schema, 64, NULL);
  o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &limit, .release = limited_release};
  br_map_output out = run_writer(&o, 300000, 2);
  assert_true(out.in_memory);
  assert_int_equal(out.reserved_bytes, limit.granted);
  assert_true(out.reserved_bytes >= out.bytes && out.reserved_bytes < out.bytes + out.bytes / 4 + (8u << 20));
  br_map_output_free(&out);

  br_writer *w = NULL; /* given up: nothing stays reserved */
  void *state = NULL;
  br_error err = {0};
  limit = (limited_reserver){.left = 1u << 30};
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  assert_ok(write_rows(w, state, 0, 300000, 64, false, &err), err);
  assert_true(limit.granted > 0);
  br_writer_thread_abandon(w, state);
  br_writer_free(w);
  assert_int_equal(limit.granted, 0);
  br_schema_unref(schema);
}

static void giving_up_removes_the_file(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  char *dir = temp_dir(), *path = br_asprintf("%s/deeper/t3.a0.map", dir), *deeper = br_asprintf("%s/deeper", dir);
  limited_reserver none = {0};
  br_writer_options o = options(schema, 7, deeper);
  o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &none};
  br_writer *w = NULL;
  void *state = NULL;
  br_error err = {0};
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  assert_ok(write_rows(w, state, 0, 300000, 7, false, &err), err);
  assert_int_equal(access(path, F_OK), 0);
  br_writer_thread_abandon(w, state);
  br_writer_free(w);
  assert_int_equal(access(path, F_OK), -1);
  free(path);
  free(deeper);
  br_schema_unref(schema);
  temp_dir_free(dir);
}

static void ordered_keeps_the_order(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  char *dir = temp_dir();
  for (int disk = 0; disk < 2; disk++) {
    limited_reserver limit = {.left = 5u << 20};
    br_writer_options o = options(schema, 7, dir);
    o.ordered = true;
    o.chunk_bytes = 64u << 10;
    if (disk) o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &limit};
    br_map_output out = run_writer(&o, 300000, 1);
    assert_int_equal(out.in_memory, !disk);
    br_mapfile *f = NULL;
    br_error err = {0};
    assert_ok(br_mapfile_open(out.fd, out.in_memory, out.file_bytes, &f, &err), err);
    out.fd = -1;
    for (uint32_t p = 0; p < 7; p++) {
      const br_chunk *c;
      size_t n = br_mapfile_find(f, p, p + 1, &c);
      int64_t before = -1;
      assert_true(n > 3);
      for (size_t i = 0; i < n; i++) {
        const void *head;
        br_ipc_body body;
        br_batch *b = NULL;
        assert_ok(br_mapfile_chunk(f, &c[i], &head, &body, &err), err);
        assert_ok(br_ipc_decode_batch(schema, head, c[i].head_bytes, body, &b, &err), err);
        const int64_t *id = br_batch_arrow(b)->children[0]->buffers[1];
        for (int64_t r = 0; r < br_batch_rows(b); r++) {
          assert_true(id[r] > before);
          before = id[r];
        }
        br_batch_unref(b);
      }
    }
    br_mapfile_unref(f);
    br_map_output_free(&out);
  }
  br_schema_unref(schema);
  temp_dir_free(dir);
}

static void second_thread_of_an_ordered_output(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  br_writer_options o = options(schema, 7, NULL);
  o.ordered = true;
  br_writer *w = NULL;
  void *one = NULL, *two = NULL;
  br_error err = {0};
  br_map_output out;
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &one, &err), err);
  assert_int_equal(br_writer_thread(w, &two, &err), BR_INTERNAL);
  assert_int_equal(br_writer_commit(w, &out, &err), BR_INTERNAL); /* a thread still writes */
  br_writer_thread_abandon(w, one);
  br_writer_free(w);
  br_schema_unref(schema);
}

/* Buffers of an attempt: measured by what 512 chunks of the largest partitions take; here by chunk sizes, which can't be
 * larger than what may be buffered. */
static void scatter_memory_is_bounded(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  br_writer_options o = options(schema, 512, NULL);
  o.scatter_buffer_bytes = 4u << 20;
  br_map_output out = run_writer(&o, 400000, 1); /* about 15 MiB */
  br_mapfile *f = NULL;
  br_error err = {0};
  const br_chunk *c;
  assert_ok(br_mapfile_open(out.fd, true, out.file_bytes, &f, &err), err);
  out.fd = -1;
  size_t n = br_mapfile_find(f, 0, 512, &c);
  assert_true(n >= 5 * 512);  /* each partition was flushed several times before the end */
  assert_true(n <= 40 * 512); /* but not all the time */
  br_mapfile_unref(f);
  br_map_output_free(&out);
  br_schema_unref(schema);
}

static void empty_output(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  limited_reserver none = {0};
  br_writer_options o = options(schema, 7, NULL);
  o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &none};
  br_map_output out = run_writer(&o, 0, 1);
  assert_true(out.in_memory); /* a few hundred bytes are never worth a file */
  check_output(&out, schema, 0, 7);
  br_map_output_free(&out);
  br_schema_unref(schema);
}

static void partition_numbers_of_all_widths(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  for (uint32_t width = 2; width <= 8; width *= 2) {
    br_writer_options o = options(schema, 64, NULL);
    br_writer *w = NULL;
    void *state = NULL;
    br_error err = {0};
    br_map_output out;
    row_block *b = br_malloc(sizeof *b);
    uint64_t wide[BLOCK_ROWS] = {0};
    fill_block(b, 0, 1000, 64);
    for (uint32_t i = 0; i < 1000; i++)
      memcpy((char *)wide + (size_t)i * width, &b->partition[i], width < 4 ? width : 4);
    b->columns[3] = (br_vec){.kind = BR_VEC_FIXED, .width = width, .data = wide};
    assert_ok(br_writer_open(&o, &w, &err), err);
    assert_ok(br_writer_thread(w, &state, &err), err);
    assert_ok(br_writer_write(w, state, b->columns, 4, 1000, &err), err);
    assert_ok(br_writer_thread_end(w, state, &err), err);
    assert_ok(br_writer_commit(w, &out, &err), err);
    check_output(&out, schema, 1000, 64);
    br_map_output_free(&out);
    br_writer_free(w);
    free(b);
  }
  br_schema_unref(schema);
}

static void wrong_partition_columns(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  br_writer_options o = options(schema, 64, NULL);
  br_writer *w = NULL;
  void *state = NULL;
  br_error err = {0};
  row_block *b = br_malloc(sizeof *b);
  fill_block(b, 0, 1000, 64);
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  assert_int_equal(br_writer_write(w, state, b->columns, 3, 1000, &err), BR_INTERNAL);
  b->partition[999] = 64;
  assert_int_equal(br_writer_write(w, state, b->columns, 4, 1000, &err), BR_INTERNAL);
  assert_non_null(strstr(err.message, "64"));
  b->partition[999] = UINT32_MAX; /* -1 */
  assert_int_equal(br_writer_write(w, state, b->columns, 4, 1000, &err), BR_INTERNAL);
  b->partition[999] = 63;
  b->columns[3].validity = b->weight_valid;
  assert_int_equal(br_writer_write(w, state, b->columns, 4, 1000, &err), BR_INTERNAL);
  b->columns[3] = b->columns[1];
  assert_int_equal(br_writer_write(w, state, b->columns, 4, 1000, &err), BR_INTERNAL);
  br_writer_thread_abandon(w, state);
  br_writer_free(w);
  free(b);
  o.partitions = 0;
  assert_int_equal(br_writer_open(&o, &w, &err), BR_INTERNAL);
  br_schema_unref(schema);
}

/* ---- range */
typedef struct keyed {
  const char *key;
  uint32_t bytes;
} keyed;

/* Partition of each key under these bounds. */
static void place_keys(const keyed *bounds, uint32_t n_bounds, const keyed *keys, uint32_t n, uint32_t *where) {
  br_schema *schema = rows_schema();
  const void *bound_keys[16];
  uint32_t bound_bytes[16];
  for (uint32_t i = 0; i < n_bounds; i++) {
    bound_keys[i] = bounds[i].key;
    bound_bytes[i] = bounds[i].bytes;
  }
  br_writer_options o = options(schema, n_bounds + 1, NULL);
  o.kind = BR_PART_RANGE;
  o.bounds = bound_keys;
  o.bound_bytes = bound_bytes;
  o.n_bounds = n_bounds;
  br_writer *w = NULL;
  void *state = NULL;
  br_error err = {0};
  br_map_output out;
  row_block *b = br_malloc(sizeof *b);
  unsigned char slots[64 * 16];
  fill_block(b, 0, n, 1);
  for (uint32_t i = 0; i < n; i++) set_string(slots + 16 * (size_t)i, keys[i].key, keys[i].bytes);
  b->columns[3] = (br_vec){.kind = BR_VEC_STRING, .data = slots};
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  assert_ok(br_writer_write(w, state, b->columns, 4, n, &err), err);
  assert_ok(br_writer_thread_end(w, state, &err), err);
  assert_ok(br_writer_commit(w, &out, &err), err);
  br_writer_free(w);
  br_mapfile *f = NULL;
  assert_ok(br_mapfile_open(out.fd, true, out.file_bytes, &f, &err), err);
  out.fd = -1;
  for (uint32_t i = 0; i < n; i++) where[i] = UINT32_MAX;
  const br_chunk *c;
  size_t chunks = br_mapfile_find(f, 0, n_bounds + 1, &c);
  for (size_t i = 0; i < chunks; i++) {
    const void *head;
    br_ipc_body body;
    br_batch *batch = NULL;
    assert_ok(br_mapfile_chunk(f, &c[i], &head, &body, &err), err);
    assert_ok(br_ipc_decode_batch(schema, head, c[i].head_bytes, body, &batch, &err), err);
    const int64_t *id = br_batch_arrow(batch)->children[0]->buffers[1];
    for (int64_t r = 0; r < br_batch_rows(batch); r++) where[id[r]] = c[i].partition;
    br_batch_unref(batch);
  }
  br_mapfile_unref(f);
  br_map_output_free(&out);
  br_schema_unref(schema);
  free(b);
}

static void range_placement(void **unused) {
  (void)unused;
  const keyed bounds[4] = {{"b", 1}, {"d\0", 2}, {"longer than eight", 17}, {"longer than eighty", 18}};
  const keyed keys[12] = {{"", 0},
                          {"a", 1},
                          {"b", 1},
                          {"b\0", 2},
                          {"c", 1},
                          {"d", 1},
                          {"d\0", 2},
                          {"d\0\0", 3},
                          {"longer than eight", 17},
                          {"longer than eightx", 18},
                          {"longer than eighty!", 19},
                          {"\xff", 1}};
  const uint32_t expected[12] = {0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 4};
  uint32_t where[12];
  place_keys(bounds, 4, keys, 12, where);
  for (int i = 0; i < 12; i++)
    if (where[i] != expected[i]) fail_msg("key %d went to partition %u, expected %u", i, where[i], expected[i]);
}

static void heavy_keys_are_spread(void **unused) {
  (void)unused;
  const keyed bounds[6] = {{"a", 1}, {"m", 1}, {"m", 1}, {"m", 1}, {"x", 1}, {"x", 1}};
  keyed keys[62];
  uint32_t where[62], count[7] = {0};
  for (int i = 0; i < 60; i++) keys[i] = (keyed){"m", 1};
  keys[60] = (keyed){"l", 1};
  keys[61] = (keyed){"n", 1};
  place_keys(bounds, 6, keys, 62, where);
  for (int i = 0; i < 60; i++) count[where[i]]++;
  assert_int_equal(count[0], 0);
  assert_int_equal(count[1], 10); /* it has the keys between a and m too */
  assert_int_equal(count[2], 20);
  assert_int_equal(count[3], 20);
  assert_int_equal(count[4], 10);
  assert_int_equal(count[5] + count[6], 0);
  assert_int_equal(where[60], 1);
  assert_int_equal(where[61], 4);
}

static void unsorted_bounds_are_refused(void **unused) {
  (void)unused;
  br_schema *schema = rows_schema();
  const void *keys[2] = {"b", "a"};
  const uint32_t bytes[2] = {1, 1};
  br_writer_options o = options(schema, 3, NULL);
  o.kind = BR_PART_RANGE;
  o.bounds = keys;
  o.bound_bytes = bytes;
  o.n_bounds = 2;
  br_writer *w = NULL;
  br_error err = {0};
  assert_int_equal(br_writer_open(&o, &w, &err), BR_INTERNAL);
  o.n_bounds = 1;
  assert_int_equal(br_writer_open(&o, &w, &err), BR_INTERNAL);
  br_schema_unref(schema);
}

/* ---- full disk */
static void full_disk(const char *dir) {
  br_schema *schema = rows_schema();
  limited_reserver none = {0};
  br_writer_options o = options(schema, 7, dir);
  o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &none};
  o.codec_disk = BR_CODEC_NONE;
  br_writer *w = NULL;
  void *state = NULL;
  br_error err = {0};
  br_map_output out = {.fd = -1};
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  br_status status = write_rows(w, state, 0, 400000, 7, false, &err);
  if (status == BR_OK)
    status = br_writer_thread_end(w, state, &err);
  else
    br_writer_thread_abandon(w, state);
  assert_int_equal(status, BR_NO_SPACE);
  assert_non_null(strstr(err.message, dir));
  assert_int_equal(br_writer_commit(w, &out, &err), BR_NO_SPACE); /* and it can't be committed by mistake */
  br_writer_free(w);
  br_schema_unref(schema);
}

static void no_space(void **unused) {
  (void)unused;
  char *dir = temp_dir();
  if (mount("tmpfs", dir, "tmpfs", 0, "size=3m") == 0) {
    full_disk(dir);
    assert_int_equal(umount(dir), 0);
  }
  struct rlimit old, small = {.rlim_cur = 3u << 20};
  getrlimit(RLIMIT_FSIZE, &old);
  small.rlim_max = old.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  full_disk(dir);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, SIG_DFL);
  temp_dir_free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_once),
      cmocka_unit_test(moves_to_disk_in_the_middle),
      cmocka_unit_test(partitions_are_contiguous_in_a_run),
      cmocka_unit_test(reservations_are_settled),
      cmocka_unit_test(giving_up_removes_the_file),
      cmocka_unit_test(ordered_keeps_the_order),
      cmocka_unit_test(second_thread_of_an_ordered_output),
      cmocka_unit_test(scatter_memory_is_bounded),
      cmocka_unit_test(empty_output),
      cmocka_unit_test(partition_numbers_of_all_widths),
      cmocka_unit_test(wrong_partition_columns),
      cmocka_unit_test(range_placement),
      cmocka_unit_test(heavy_keys_are_spread),
      cmocka_unit_test(unsorted_bounds_are_refused),
      cmocka_unit_test(no_space),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
