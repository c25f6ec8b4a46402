/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 * The format of map outputs: found by partition, and nothing damaged is believed. */
#include "shuffle_util.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

static const br_attempt_id test_id = {.query = 0xABCDEF, .stage = 3, .task = 9, .attempt = 2};

/* ---- files made by hand, so that they can be damaged */
typedef struct image {
  br_buf bytes;
  br_chunk chunks[6];
  br_buf schema_head;
} image;

/* Partitions 0, 2, 2, 5, 5, 5 of 8. */
static image make_image(void) {
  static const uint32_t partitions[6] = {0, 2, 2, 5, 5, 5};
  image m = {0};
  unsigned char header[BR_MAPFILE_HEADER_BYTES];
  br_schema *schema = rows_schema();
  br_error err = {0};
  assert_ok(br_ipc_encode_schema(schema, &m.schema_head, &err), err);
  br_schema_unref(schema);
  br_mapfile_header(header);
  br_buf_add(&m.bytes, header, sizeof header);
  for (uint32_t i = 0; i < 6; i++) {
    unsigned char chunk[256] = {0};
    memset(chunk, 'A' + (int)i, 104); /* "message" of 104 bytes, padded to 128, body of 128 */
    memset(chunk + 128, 'a' + (int)i, 128);
    m.chunks[i] = (br_chunk){.partition = partitions[i],
                             .head_bytes = 104,
                             .body_bytes = 128,
                             .offset = m.bytes.len,
                             .rows = i + 1,
                             .checksum = br_chunk_checksum(chunk, sizeof chunk)};
    br_buf_add(&m.bytes, chunk, sizeof chunk);
  }
  return m;
}

static void finish_image(image *m) {
  br_mapfile_tail(&test_id, 8, &m->schema_head, m->chunks, 6, m->bytes.len, &m->bytes);
}

static void image_free(image *m) {
  br_buf_free(&m->bytes);
  br_buf_free(&m->schema_head);
}

static int memory_file(const void *p, size_t n, bool seal) {
  int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_true(fd >= 0);
  br_error err = {0};
  assert_ok(br_write_all(fd, p, n, &err), err);
  if (seal) assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return fd;
}

static br_status open_bytes(const br_buf *b, bool in_memory, br_mapfile **f, br_error *err) {
  return br_mapfile_open(memory_file(b->data, b->len, in_memory), in_memory, b->len, f, err);
}

static void find_gives_slices(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  for (int in_memory = 0; in_memory < 2; in_memory++) {
    br_mapfile *f = NULL;
    br_error err = {0};
    const br_chunk *c = NULL;
    assert_ok(open_bytes(&m.bytes, in_memory, &f, &err), err);
    assert_int_equal(br_mapfile_partitions(f), 8);
    assert_int_equal(br_mapfile_rows(f), 21);
    br_attempt_id id = br_mapfile_id(f);
    assert_true(id.query == 0xABCDEF && id.stage == 3 && id.task == 9 && id.attempt == 2);
    assert_int_equal(br_mapfile_find(f, 0, 8, &c), 6);
    assert_int_equal(br_mapfile_find(f, 0, 1, &c), 1);
    assert_int_equal(br_mapfile_find(f, 1, 2, &c), 0);
    assert_null(c);
    assert_int_equal(br_mapfile_find(f, 2, 3, &c), 2);
    assert_true(c[0].rows == 2 && c[1].rows == 3);
    assert_int_equal(br_mapfile_find(f, 1, 5, &c), 2);
    assert_int_equal(br_mapfile_find(f, 5, 6, &c), 3);
    assert_int_equal(br_mapfile_find(f, 6, 8, &c), 0);
    assert_int_equal(br_mapfile_find(f, 5, 5, &c), 0);
    assert_int_equal(br_mapfile_find(f, 6, 2, &c), 0);
    assert_int_equal(br_mapfile_find(f, 0, UINT32_MAX, &c), 6);
    const void *head;
    size_t n;
    br_mapfile_schema(f, &head, &n);
    assert_int_equal(n, m.schema_head.len);
    assert_memory_equal(head, m.schema_head.data, n);
    br_mapfile_unref(f);
  }
  image_free(&m);
}

static void chunk_outlives_the_handle(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  for (int in_memory = 0; in_memory < 2; in_memory++) {
    br_mapfile *f = NULL;
    br_error err = {0};
    const br_chunk *c;
    const void *head;
    br_ipc_body body;
    assert_ok(open_bytes(&m.bytes, in_memory, &f, &err), err);
    assert_int_equal(br_mapfile_find(f, 2, 3, &c), 2);
    assert_ok(br_mapfile_chunk(f, &c[1], &head, &body, &err), err);
    br_mapfile_unref(f);
    assert_int_equal(body.bytes, 128);
    assert_int_equal((uintptr_t)body.data % 64, 0);
    assert_int_equal(((const char *)body.data)[127], 'c');
    assert_int_equal(((const char *)head)[103], 'C');
    body.release(body.owner);
  }
  image_free(&m);
}

static void damaged_chunk_is_found_and_named(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  const size_t places[3] = {m.chunks[3].offset, m.chunks[3].offset + 110 /* padding */, m.chunks[3].offset + 255};
  for (int i = 0; i < 6; i++) {
    br_mapfile *f = NULL;
    br_error err = {0};
    const br_chunk *c;
    const void *head;
    br_ipc_body body;
    m.bytes.data[places[i % 3]] ^= 0x10;
    assert_ok(open_bytes(&m.bytes, i < 3, &f, &err), err);
    assert_int_equal(br_mapfile_find(f, 5, 6, &c), 3);
    assert_int_equal(br_mapfile_chunk(f, &c[0], &head, &body, &err), BR_CORRUPT);
    assert_true(err.has_lost);
    assert_true(err.lost.made_by.query == 0xABCDEF && err.lost.made_by.task == 9 && err.lost.made_by.attempt == 2);
    br_error_clear(&err);
    assert_ok(br_mapfile_chunk(f, &c[1], &head, &body, &err), err); /* its neighbour is fine */
    body.release(body.owner);
    br_mapfile_unref(f);
    m.bytes.data[places[i % 3]] ^= 0x10;
  }
  image_free(&m);
}

static void assert_corrupt(const br_buf *b, const char *what) {
  for (int in_memory = 0; in_memory < 2; in_memory++) {
    br_mapfile *f = NULL;
    br_error err = {0};
    br_status status = open_bytes(b, in_memory, &f, &err);
    if (status != BR_CORRUPT) fail_msg("%s: status %d (%s)", what, status, err.message);
    assert_null(f);
  }
}

static void every_byte_of_the_tail_counts(void **unused) {
  (void)unused;
  image m = make_image();
  size_t tail = m.bytes.len;
  finish_image(&m);
  for (size_t at = tail; at < m.bytes.len; at++) {
    m.bytes.data[at] ^= 0x01;
    assert_corrupt(&m.bytes, "a flipped bit in the tail");
    m.bytes.data[at] ^= 0x01;
  }
  image_free(&m);
}

static void truncated_files(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  br_buf cut = m.bytes;
  for (cut.len = 0; cut.len < m.bytes.len; cut.len += 13) assert_corrupt(&cut, "a shortened file");
  br_mapfile *f = NULL;
  br_error err = {0};
  int fd = memory_file(m.bytes.data, m.bytes.len, true);
  assert_int_equal(br_mapfile_open(fd, true, m.bytes.len - 1, &f, &err),
                   BR_CORRUPT); /* its length is not what was said */
  assert_int_equal(br_mapfile_open(-1, true, m.bytes.len, &f, &err), BR_IO);
  image_free(&m);
}

static void unsealed_memory_is_refused(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  br_mapfile *f = NULL;
  br_error err = {0};
  assert_int_equal(br_mapfile_open(memory_file(m.bytes.data, m.bytes.len, false), true, m.bytes.len, &f, &err),
                   BR_CORRUPT);
  assert_non_null(strstr(err.message, "sealed"));
  image_free(&m);
}

/* An index that lies, with right checksums: what a stranger could write. */
static void lying_index(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 12; kind++) {
    image m = make_image();
    br_chunk *c = &m.chunks[2];
    switch (kind) {
      case 0: c->partition = 8; break;
      case 1: c->partition = 1; break;               /* not sorted */
      case 2: c->offset = m.chunks[1].offset; break; /* twice the same place */
      case 3: c->offset += 8; break;                 /* not aligned */
      case 4: c->offset = UINT64_MAX - 63; break;
      case 5: c->offset = 0; break;                   /* the header */
      case 6: c->body_bytes = UINT64_MAX - 63; break; /* overflow */
      case 7: c->body_bytes = 1u << 20; break;
      case 8: c->body_bytes = 127; break;
      case 9: c->head_bytes = 0; break;
      case 10: c->head_bytes = UINT32_MAX; break;
      default: c->rows = UINT64_MAX; break;
    }
    finish_image(&m);
    assert_corrupt(&m.bytes, "an index that lies");
    image_free(&m);
  }
}

/* A trailer that lies, with a right checksum. */
static void lying_trailer(void **unused) {
  (void)unused;
  for (int kind = 0; kind < 9; kind++) {
    image m = make_image();
    finish_image(&m);
    br_mapfile_trailer t;
    char *at = m.bytes.data + m.bytes.len - sizeof t;
    memcpy(&t, at, sizeof t);
    switch (kind) {
      case 0: t.partitions = 0; break;
      case 1: t.partitions = UINT32_MAX; break;
      case 2: t.schema_offset = UINT64_MAX - 63; break;
      case 3: t.schema_offset = 0; break;
      case 4: t.schema_bytes = UINT32_MAX; break;
      case 5: t.chunks = UINT32_MAX; break;
      case 6: t.index_offset += 64; break;
      case 7: t.rows++; break;
      default: t.file_bytes++; break;
    }
    t.checksum = XXH3_64bits(&t, offsetof(br_mapfile_trailer, checksum));
    memcpy(at, &t, sizeof t);
    assert_corrupt(&m.bytes, "a trailer that lies");
    image_free(&m);
  }
}

static void newer_version_says_so(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  br_mapfile_trailer t;
  char *at = m.bytes.data + m.bytes.len - sizeof t;
  memcpy(&t, at, sizeof t);
  t.version = 2;
  t.checksum = XXH3_64bits(&t, offsetof(br_mapfile_trailer, checksum));
  memcpy(at, &t, sizeof t);
  br_mapfile *f = NULL;
  br_error err = {0};
  assert_int_equal(open_bytes(&m.bytes, true, &f, &err), BR_VERSION);
  image_free(&m);
}

static void output_without_chunks(void **unused) {
  (void)unused;
  image m = make_image();
  m.bytes.len = BR_MAPFILE_HEADER_BYTES;
  br_mapfile_tail(&test_id, 4, &m.schema_head, NULL, 0, m.bytes.len, &m.bytes);
  for (int in_memory = 0; in_memory < 2; in_memory++) {
    br_mapfile *f = NULL;
    br_error err = {0};
    const br_chunk *c;
    assert_ok(open_bytes(&m.bytes, in_memory, &f, &err), err);
    assert_int_equal(br_mapfile_find(f, 0, 4, &c), 0);
    br_mapfile_unref(f);
  }
  image_free(&m);
}

static void descriptors_are_closed(void **unused) {
  (void)unused;
  image m = make_image();
  finish_image(&m);
  int before = memory_file("", 0, false);
  close(before);
  br_mapfile *f = NULL;
  br_error err = {0};
  assert_ok(open_bytes(&m.bytes, true, &f, &err), err);
  br_mapfile *again = br_mapfile_ref(f);
  br_mapfile_unref(f);
  assert_int_equal(br_mapfile_partitions(again), 8);
  br_mapfile_unref(again);
  m.bytes.data[m.bytes.len - 1] ^= 1;
  assert_int_equal(open_bytes(&m.bytes, true, &f, &err), BR_CORRUPT);
  int after = memory_file("", 0, false);
  close(after);
  assert_int_equal(before, after); /* the lowest free number: nothing was left open */
  image_free(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(find_gives_slices),
      cmocka_unit_test(chunk_outlives_the_handle),
      cmocka_unit_test(damaged_chunk_is_found_and_named),
      cmocka_unit_test(every_byte_of_the_tail_counts),
      cmocka_unit_test(truncated_files),
      cmocka_unit_test(unsealed_memory_is_refused),
      cmocka_unit_test(lying_index),
      cmocka_unit_test(lying_trailer),
      cmocka_unit_test(newer_version_says_so),
      cmocka_unit_test(output_without_chunks),
      cmocka_unit_test(descriptors_are_closed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
