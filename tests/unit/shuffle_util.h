/* SPDX-License-Identifier: Apache-2.0
 * Rows for the tests of shuffle/: row i is (id BIGINT = i, label VARCHAR made of i, weight DOUBLE, NULL for every seventh), so
 * that each row that arrives can be checked on its own, and a bitmap tells which arrived how often. */
#ifndef BRANT_TESTS_SHUFFLE_UTIL_H
#define BRANT_TESTS_SHUFFLE_UTIL_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "shuffle/mapfile.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))
#define BLOCK_ROWS 2048u

#define assert_ok(expr, err)                                                       \
  do {                                                                             \
    if ((expr) != BR_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, (err).message); \
  } while (0)

static UNUSED br_schema *rows_schema(void) {
  static const char *const names[3] = {"id", "label", "weight"};
  static const enum ArrowType types[3] = {NANOARROW_TYPE_INT64, NANOARROW_TYPE_STRING, NANOARROW_TYPE_DOUBLE};
  struct ArrowSchema s;
  br_schema *out = NULL;
  br_error err = {0};
  ArrowSchemaInit(&s);
  assert_int_equal(ArrowSchemaSetTypeStruct(&s, 3), 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ArrowSchemaSetType(s.children[i], types[i]), 0);
    assert_int_equal(ArrowSchemaSetName(s.children[i], names[i]), 0);
  }
  assert_ok(br_schema_new(&s, &out, &err), err);
  return out;
}

/* Lengths 0 to 40, so that both string layouts occur. */
static UNUSED uint32_t row_label(uint64_t id, char out[48]) {
  uint32_t length = (uint32_t)(id * 7919 % 41);
  for (uint32_t i = 0; i < length; i++) out[i] = (char)('a' + (id + i) % 26);
  return length;
}
static UNUSED double row_weight(uint64_t id) { return (double)id * 0.5; }
static UNUSED bool row_weight_null(uint64_t id) { return id % 7 == 0; }
static UNUSED uint32_t row_partition(uint64_t id, uint32_t partitions) {
  return (uint32_t)((id * 0x9E3779B97F4A7C15ull >> 33) % partitions);
}

/* One block of vectors as the engine hands them over. */
typedef struct row_block {
  int64_t id[BLOCK_ROWS];
  unsigned char label[BLOCK_ROWS * 16];
  char text[BLOCK_ROWS * 48];
  double weight[BLOCK_ROWS];
  uint64_t weight_valid[BLOCK_ROWS / 64];
  uint32_t partition[BLOCK_ROWS];
  br_vec columns[4];
} row_block;

static UNUSED void set_string(unsigned char *slot, const char *text, uint32_t length) {
  memset(slot, 0, 16);
  memcpy(slot, &length, 4);
  if (length <= 12) {
    memcpy(slot + 4, text, length);
  } else {
    memcpy(slot + 4, text, 4);
    memcpy(slot + 8, &text, sizeof text);
  }
}

static UNUSED void fill_block(row_block *b, uint64_t first, uint32_t n, uint32_t partitions) {
  memset(b->weight_valid, 0, sizeof b->weight_valid);
  for (uint32_t i = 0; i < n; i++) {
    uint64_t id = first + i;
    char *text = b->text + 48 * (size_t)i;
    b->id[i] = (int64_t)id;
    set_string(b->label + 16 * (size_t)i, text, row_label(id, text));
    b->weight[i] = row_weight(id);
    if (!row_weight_null(id)) b->weight_valid[i / 64] |= 1ull << (i % 64);
    b->partition[i] = row_partition(id, partitions);
  }
  b->columns[0] = (br_vec){.kind = BR_VEC_FIXED, .width = 8, .data = b->id};
  b->columns[1] = (br_vec){.kind = BR_VEC_STRING, .data = b->label};
  b->columns[2] = (br_vec){.kind = BR_VEC_FIXED, .width = 8, .data = b->weight, .validity = b->weight_valid};
  b->columns[3] = (br_vec){.kind = BR_VEC_FIXED, .width = 4, .data = b->partition};
}

static UNUSED br_status write_rows(br_writer *w, void *state, uint64_t first, uint64_t last, uint32_t partitions,
                                   bool single, br_error *err) {
  row_block *b = br_malloc(sizeof *b);
  br_status status = BR_OK;
  while (first < last && status == BR_OK) {
    uint32_t n = last - first < BLOCK_ROWS ? (uint32_t)(last - first) : BLOCK_ROWS;
    fill_block(b, first, n, partitions);
    status = br_writer_write(w, state, b->columns, single ? 3 : 4, n, err);
    first += n;
  }
  free(b);
  return status;
}

/* Which rows arrived. */
typedef struct seen_rows {
  pthread_mutex_t lock;
  uint64_t first, last, total;
  unsigned char *count; /* of id - first */
} seen_rows;

static UNUSED seen_rows seen_new(uint64_t first, uint64_t last) {
  seen_rows s = {.first = first, .last = last, .count = br_calloc(last - first + 1, 1)};
  pthread_mutex_init(&s.lock, NULL);
  return s;
}

/* Counts and checks every row; NULL or what is wrong. partitions 0: don't check where it is. */
static UNUSED const char *see_batch(seen_rows *s, const br_batch *batch, uint32_t partition, uint32_t partitions) {
  const struct ArrowArray *a = br_batch_arrow(batch);
  const int64_t *id = a->children[0]->buffers[1];
  const int32_t *offsets = a->children[1]->buffers[1];
  const char *text = a->children[1]->buffers[2];
  const uint8_t *valid = a->children[2]->buffers[0];
  const double *weight = a->children[2]->buffers[1];
  char label[48];
  pthread_mutex_lock(&s->lock);
  const char *wrong = a->offset != 0 || a->n_children != 3 ? "shape" : NULL;
  for (int64_t i = 0; i < a->length && wrong == NULL; i++) {
    uint64_t row = (uint64_t)id[i];
    if (row < s->first || row >= s->last) {
      wrong = "id out of range";
      break;
    }
    uint32_t length = row_label(row, label);
    bool null = valid != NULL && (valid[i / 8] >> (i % 8) & 1) == 0;
    if ((uint32_t)(offsets[i + 1] - offsets[i]) != length || memcmp(text + offsets[i], label, length) != 0)
      wrong = "label";
    if (null != row_weight_null(row) || (!null && weight[i] != row_weight(row))) wrong = "weight";
    if (partitions > 0 && row_partition(row, partitions) != partition) wrong = "partition";
    s->count[row - s->first]++;
    s->total++;
  }
  pthread_mutex_unlock(&s->lock);
  return wrong;
}

static UNUSED void assert_all_once(seen_rows *s) {
  assert_int_equal(s->total, s->last - s->first);
  for (uint64_t i = 0; i < s->last - s->first; i++)
    if (s->count[i] != 1) fail_msg("row %llu arrived %u times", (unsigned long long)(s->first + i), s->count[i]);
}

static UNUSED void seen_free(seen_rows *s) {
  free(s->count);
  pthread_mutex_destroy(&s->lock);
}

/* All chunks of one partition (or all, partition UINT32_MAX) of an open output. */
static UNUSED void see_mapfile(seen_rows *s, br_mapfile *f, br_schema *schema, uint32_t first, uint32_t last,
                               bool check_partition) {
  const br_chunk *chunks;
  br_error err = {0};
  size_t n = br_mapfile_find(f, first, last, &chunks);
  for (size_t i = 0; i < n; i++) {
    const void *head;
    br_ipc_body body;
    br_batch *batch = NULL;
    assert_ok(br_mapfile_chunk(f, &chunks[i], &head, &body, &err), err);
    assert_ok(br_ipc_decode_batch(schema, head, chunks[i].head_bytes, body, &batch, &err), err);
    assert_int_equal(br_batch_rows(batch), chunks[i].rows);
    const char *wrong = see_batch(s, batch, chunks[i].partition, check_partition ? br_mapfile_partitions(f) : 0);
    if (wrong != NULL) fail_msg("partition %u: %s", chunks[i].partition, wrong);
    br_batch_unref(batch);
  }
}

static UNUSED char *temp_dir(void) {
  char *dir = br_strdup("/tmp/brant-test-XXXXXX");
  assert_non_null(mkdtemp(dir));
  return dir;
}

static UNUSED void temp_dir_free(char *dir) {
  br_remove_tree(dir);
  free(dir);
}

/* A hash map output of rows [first, last), written by one thread. reserve_limit: bytes of memory granted. */
typedef struct limited_reserver {
  _Atomic uint64_t left, granted;
} limited_reserver;

static UNUSED bool limited_reserve(void *arg, uint64_t bytes) {
  limited_reserver *l = arg;
  uint64_t left = l->left;
  do {
    if (left < bytes) return false;
  } while (!atomic_compare_exchange_weak(&l->left, &left, left - bytes));
  l->granted += bytes;
  return true;
}

static UNUSED void limited_release(void *arg, uint64_t bytes) {
  limited_reserver *l = arg;
  l->granted -= bytes;
  l->left += bytes;
}

static UNUSED br_map_output write_output(const br_attempt_id *id, uint32_t partitions, uint64_t first, uint64_t last,
                                         const char *dir, bool disk) {
  br_schema *schema = rows_schema();
  limited_reserver none = {0};
  br_writer_options o = {.id = *id,
                         .schema = schema,
                         .kind = partitions == 1 ? BR_PART_SINGLE : BR_PART_HASH,
                         .partitions = partitions,
                         .codec_disk = BR_CODEC_LZ4,
                         .scatter_buffer_bytes = 4u << 20,
                         .chunk_bytes = 64u << 10,
                         .spill_dir = dir};
  if (disk) o.reserver = (br_reserver){.reserve = limited_reserve, .arg = &none, .release = limited_release};
  br_writer *w = NULL;
  void *state = NULL;
  br_error err = {0};
  br_map_output out = {.fd = -1};
  assert_ok(br_writer_open(&o, &w, &err), err);
  assert_ok(br_writer_thread(w, &state, &err), err);
  assert_ok(write_rows(w, state, first, last, partitions, partitions == 1, &err), err);
  assert_ok(br_writer_thread_end(w, state, &err), err);
  assert_ok(br_writer_commit(w, &out, &err), err);
  br_writer_free(w);
  br_schema_unref(schema);
  return out;
}

#endif
