/* SPDX-License-Identifier: Apache-2.0
 * links: br_arrow
 * br_colset: append and scatter of every kind, compared value by value after encode and decode. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "arrow/builder.h"
#include "arrow/gather.h"
#include "unit/arrow_fixture.h"

static br_error err;

#define OK(x)                                              \
  do {                                                     \
    if ((x) != BR_OK) fail_msg("%s: %s", #x, err.message); \
  } while (0)

typedef struct fixture {
  br_arena *arena;
  const spec *specs;
  size_t n;
  br_schema *schema;
  br_vec *vecs;
  uint32_t rows;
} fixture;

static fixture make(const spec *specs, size_t n, uint32_t rows, unsigned null_percent, uint64_t seed) {
  fixture f = {.arena = br_arena_new(), .specs = specs, .n = n, .schema = make_schema(specs, n), .rows = rows};
  rng r = {seed};
  f.vecs = br_arena_alloc(f.arena, (n + 1) * sizeof *f.vecs);
  for (size_t i = 0; i < n; i++) make_vec(f.arena, &specs[i], rows, null_percent, &r, &f.vecs[i]);
  return f;
}

static void drop(fixture *f) {
  br_schema_unref(f->schema);
  br_arena_free(f->arena);
}

/* Laid out in pieces, a colset is the same message and body as when it is encoded. */
static void check_pieces(br_colset *c, br_buf *head, br_buf *body) {
  static const char zeros[BR_IPC_ALIGN_BYTES];
  br_buf pieces = {0};
  uint64_t bytes;
  OK(br_colset_lay_out(c, head, &pieces, &bytes, &err));
  const br_ipc_piece *p = (const br_ipc_piece *)(const void *)pieces.data;
  for (size_t i = 0; i < pieces.len / sizeof *p; i++) {
    br_buf_add(body, p[i].data, p[i].bytes);
    br_buf_add(body, zeros, (BR_IPC_ALIGN_BYTES - p[i].bytes % BR_IPC_ALIGN_BYTES) % BR_IPC_ALIGN_BYTES);
  }
  assert_int_equal(body->len, bytes);
  br_buf_free(&pieces);
}

/* Encode c, decode it, compare with rows[0..n) of the vectors. */
static void check_rows(const fixture *f, br_colset *c, br_codec codec, bool shrink, const uint32_t *rows, int64_t n) {
  br_buf head = {0}, body = {0}, head_again = {0}, body_again = {0};
  br_batch *b;
  assert_int_equal(br_colset_rows(c), n);
  check_pieces(c, &head_again, &body_again);
  OK(br_colset_encode(c, codec, &head, &body, shrink, &err));
  if (codec == BR_CODEC_NONE) {
    assert_int_equal(head_again.len, head.len);
    assert_int_equal(body_again.len, body.len);
    assert_memory_equal(head_again.data, head.data, head.len);
    if (body.len > 0) assert_memory_equal(body_again.data, body.data, body.len);
  }
  br_buf_free(&head_again);
  br_buf_free(&body_again);
  assert_int_equal(br_colset_rows(c), 0);
  assert_int_equal(br_colset_bytes(c), 0);
  assert_int_equal(head.len % 8, 0);
  assert_int_equal(body.len % 64, 0);
  OK(br_ipc_decode_batch(f->schema, head.data, head.len, (br_ipc_body){body.data, body.len, NULL, NULL}, &b, &err));
  assert_int_equal(br_batch_rows(b), n);
  for (size_t k = 0; k < f->n; k++)
    for (int64_t i = 0; i < n; i++)
      if (!same_value(&f->specs[k], &f->vecs[k], rows[i], br_batch_arrow(b)->children[k], i))
        fail_msg("column %s, row %lld (row %u of the vector) differs", f->specs[k].name, (long long)i, rows[i]);
  br_batch_unref(b);
  br_buf_free(&head);
  br_buf_free(&body);
}

static void test_append(void **state) {
  (void)state;
  static const unsigned nulls[] = {0, 20, 100};
  for (int t = 0; t < 3; t++) {
    fixture f = make(every_kind, N_KINDS, 300, nulls[t], 42 + (uint64_t)t);
    br_colset *c;
    uint32_t rows[500];
    rng r = {7};
    OK(br_colset_new(f.schema, &c, &err));
    for (int round = 0; round < 6; round++) { /* the same colset again and again, with and without its buffers */
      uint32_t n = 0;
      while (n < 400) {
        uint32_t step = 1 + (uint32_t)next(&r) % 90;
        for (uint32_t i = 0; i < step; i++) rows[n + i] = (uint32_t)next(&r) % f.rows;
        OK(br_colset_append(c, f.vecs, rows + n, step, &err));
        n += step;
      }
      assert_true(br_colset_reserved(c) > 0 && br_colset_bytes(c) > 0);
      check_rows(&f, c, (br_codec)(round % 3), round % 2 == 1, rows, n);
      if (round % 2 == 1) assert_int_equal(br_colset_reserved(c), 0);
    }
    br_colset_free(c);
    drop(&f);
  }
}

/* Scatter blocks of odd sizes over P partitions; each partition holds its rows in order. */
static void scatter_case(uint32_t n_parts, uint32_t rows, unsigned null_percent, uint64_t seed) {
  fixture f = make(every_kind, N_KINDS, rows, null_percent, seed);
  br_colset **parts = calloc(n_parts, sizeof *parts);
  uint32_t *part_of = calloc(rows, sizeof *part_of), *mine = calloc(2 * (size_t)rows, sizeof *mine);
  rng r = {seed};
  for (uint32_t p = 0; p < n_parts; p++) OK(br_colset_new(f.schema, &parts[p], &err));
  for (uint32_t i = 0; i < rows; i++) part_of[i] = (uint32_t)next(&r) % n_parts;
  for (int round = 0; round < 2; round++) {
    OK(br_colset_scatter(parts, n_parts, f.vecs, part_of, rows, &err));
    OK(br_colset_scatter(parts, n_parts, f.vecs, part_of, rows / 3, &err));
    for (uint32_t p = 0; p < n_parts; p++) {
      int64_t n = 0;
      for (uint32_t i = 0; i < rows; i++)
        if (part_of[i] == p) mine[n++] = i;
      for (uint32_t i = 0; i < rows / 3; i++)
        if (part_of[i] == p) mine[n++] = i;
      check_rows(&f, parts[p], BR_CODEC_NONE, p % 2 == 0, mine, n);
    }
  }
  for (uint32_t p = 0; p < n_parts; p++) br_colset_free(parts[p]);
  free(parts);
  free(part_of);
  free(mine);
  drop(&f);
}

#define N_FLAT 29 /* of every_kind, the first */

/* Vectors of odd sizes behind each other, scattered at once: the same rows, and nothing points into the vectors. */
static void gathered_case(uint32_t n_parts, unsigned null_percent, uint64_t seed) {
  static const uint32_t sizes[] = {2048, 1, 63, 64, 1000, 37, 2048, 2048, 700};
  fixture f = make(every_kind, N_FLAT, 2048, null_percent, seed);
  br_colset **parts = calloc(n_parts, sizeof *parts);
  uint32_t part_of[BR_GATHER_ROWS], row_of[BR_GATHER_ROWS], mine[BR_GATHER_ROWS], rows = 0;
  br_gather *s = br_gather_new(f.vecs, N_FLAT, 64u << 20);
  assert_non_null(s);
  for (uint32_t p = 0; p < n_parts; p++) OK(br_colset_new(f.schema, &parts[p], &err));
  for (int round = 0; round < 2; round++, rows = 0, br_gather_clear(s)) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      if (!br_gather_add(s, f.vecs, sizes[i])) break; /* its texts are long */
      for (uint32_t k = 0; k < sizes[i]; k++) row_of[rows++] = k;
    }
    if (BR_GATHER_ROWS - rows < 2048) assert_false(br_gather_add(s, f.vecs, BR_GATHER_ROWS - rows + 1));
    assert_int_equal(br_gather_rows(s), rows);
    assert_true(rows > 3000);
    for (size_t k = 0; k < N_FLAT; k++) {
      const br_vec *v = &br_gather_columns(s)[k];
      if (v->kind != BR_VEC_STRING) continue;
      for (uint32_t i = 0; i < 2048; i++) {
        const br_vec_string *a = (const br_vec_string *)v->data + i, *b = (const br_vec_string *)f.vecs[k].data + i;
        if (a->length > 12) assert_ptr_not_equal(br_vec_string_pointer(a), br_vec_string_pointer(b));
      }
    }
    for (uint32_t i = 0; i < rows; i++) part_of[i] = i * 2654435761u % n_parts;
    OK(br_colset_scatter(parts, n_parts, br_gather_columns(s), part_of, rows, &err));
    for (uint32_t p = 0; p < n_parts; p++) {
      int64_t n = 0;
      for (uint32_t i = 0; i < rows; i++)
        if (part_of[i] == p) mine[n++] = row_of[i];
      check_rows(&f, parts[p], BR_CODEC_NONE, p % 2 == 0, mine, n);
    }
  }
  for (uint32_t p = 0; p < n_parts; p++) br_colset_free(parts[p]);
  free(parts);
  br_gather_free(s);
  drop(&f);
}

static void test_gathered(void **state) {
  (void)state;
  gathered_case(1, 10, 21);
  gathered_case(300, 0, 22);
  gathered_case(700, 40, 23);
  gathered_case(3, 100, 24);
  fixture f = make(every_kind, N_KINDS, 10, 0, 25);
  assert_null(br_gather_new(f.vecs, N_KINDS, UINT64_MAX));         /* nested columns */
  assert_null(br_gather_new(f.vecs, N_FLAT, BR_GATHER_ROWS * 8u)); /* too many bytes */
  drop(&f);
}

/* What has no long strings has room for all rows, however wide its columns are stored; what has is bounded by its strings. */
static void test_gathered_room(void **state) {
  (void)state;
  static const spec cases[][2] = {{{"narrow", "d:4,1", BR_VEC_FIXED, 2, 16, NULL, NULL, 0}, FIXED("hash", "l", 8)},
                                  {FIXED("i8", "c", 1), {"flag", "b", BR_VEC_BOOL, 0, 0, NULL, NULL, 0}},
                                  {TEXT("s"), FIXED("i8", "c", 1)}};
  char long_text[4000] = "";
  for (size_t c = 0; c < 3; c++) {
    fixture f = make(cases[c], 2, BR_GATHER_ROWS / 4, 0, 30 + c);
    br_gather *s = br_gather_new(f.vecs, 2, 64u << 20);
    br_vec_string *texts = c == 2 ? (br_vec_string *)(uintptr_t)f.vecs[0].data : NULL;
    assert_non_null(s);
    for (uint32_t i = 0; texts != NULL && i < f.rows; i++) texts[i] = (br_vec_string){.length = 12};
    for (int k = 0; k < 4; k++) assert_true(br_gather_add(s, f.vecs, BR_GATHER_ROWS / 4));
    assert_int_equal(br_gather_rows(s), BR_GATHER_ROWS);
    assert_false(br_gather_add(s, f.vecs, 1));
    br_gather_clear(s);
    const char *p = long_text;
    for (uint32_t i = 0; texts != NULL && i < f.rows; i++) {
      texts[i].length = sizeof long_text;
      memcpy(texts[i].inlined + 4, &p, sizeof p);
    }
    assert_int_equal(br_gather_add(s, f.vecs, f.rows), texts == NULL);
    br_gather_free(s);
    drop(&f);
  }
}

static void test_scatter(void **state) {
  (void)state;
  scatter_case(1, 100, 30, 1);
  scatter_case(1, 2500, 0, 2);
  scatter_case(2, 64, 100, 3);
  scatter_case(7, 5000, 3, 4);
  scatter_case(97, 2048, 0, 5);
  scatter_case(700, 2049, 50, 6);
  scatter_case(3, 1, 50, 7);
}

/* Partitions that saw no NULL have no bitmap; a late NULL keeps the earlier rows valid. */
static void test_late_null(void **state) {
  (void)state;
  static const spec one[] = {FIXED("x", "i", 4), TEXT("s")};
  fixture f = make(one, 2, 1000, 0, 9);
  br_colset *c;
  uint32_t rows[1001], zero[1000] = {0};
  uint64_t validity[16];
  OK(br_colset_new(f.schema, &c, &err));
  OK(br_colset_scatter(&c, 1, f.vecs, zero, 1000, &err));
  memset(validity, 0xff, sizeof validity);
  validity[15] &= ~((uint64_t)1 << 39);
  f.vecs[0].validity = f.vecs[1].validity = validity;
  for (uint32_t i = 0; i < 1000; i++) rows[i] = i == 999 ? 998 : i;
  br_buf head = {0}, body = {0};
  rows[1000] = 999;
  OK(br_colset_append(c, f.vecs, &rows[1000], 1, &err));
  br_batch *b;
  OK(br_colset_encode(c, BR_CODEC_NONE, &head, &body, false, &err));
  OK(br_ipc_decode_batch(f.schema, head.data, head.len, (br_ipc_body){body.data, body.len, NULL, NULL}, &b, &err));
  for (int k = 0; k < 2; k++) {
    const struct ArrowArray *a = br_batch_arrow(b)->children[k];
    assert_int_equal(a->length, 1001);
    assert_int_equal(a->null_count, 1);
    assert_int_equal(ArrowBitCountSet(a->buffers[0], 0, 1001), 1000);
    assert_false(ArrowBitGet(a->buffers[0], 1000));
  }
  br_batch_unref(b);
  head.len = body.len = 0;
  f.vecs[0].validity = f.vecs[1].validity = NULL;
  OK(br_colset_scatter(&c, 1, f.vecs, zero, 1000, &err));
  OK(br_colset_encode(c, BR_CODEC_NONE, &head, &body, false, &err));
  OK(br_ipc_decode_batch(f.schema, head.data, head.len, (br_ipc_body){body.data, body.len, NULL, NULL}, &b, &err));
  assert_int_equal(br_batch_arrow(b)->children[0]->null_count, 0);
  assert_null(br_batch_arrow(b)->children[0]->buffers[0]);
  br_batch_unref(b);
  br_colset_free(c);
  br_buf_free(&head);
  br_buf_free(&body);
  drop(&f);
}

static void test_zero_columns_and_rows(void **state) {
  (void)state;
  fixture f = make(every_kind, 0, 10, 0, 1);
  br_colset *c[2];
  uint32_t part_of[10] = {0, 1, 1, 1, 0, 1, 1, 1, 1, 1}, mine[10] = {0};
  OK(br_colset_new(f.schema, &c[0], &err));
  OK(br_colset_new(f.schema, &c[1], &err));
  OK(br_colset_scatter(c, 2, f.vecs, part_of, 10, &err));
  check_rows(&f, c[0], BR_CODEC_LZ4, false, mine, 2);
  check_rows(&f, c[1], BR_CODEC_NONE, false, mine, 8);
  br_colset_free(c[0]);
  br_colset_free(c[1]);
  drop(&f);
  f = make(every_kind, N_KINDS, 10, 10, 1);
  for (int codec = 0; codec < 3; codec++) { /* never filled */
    OK(br_colset_new(f.schema, &c[0], &err));
    OK(br_colset_scatter(c, 1, f.vecs, part_of, 0, &err));
    check_rows(&f, c[0], (br_codec)codec, false, mine, 0);
    br_colset_free(c[0]);
  }
  drop(&f);
}

static void test_long_strings(void **state) {
  (void)state;
  static const spec one[] = {TEXT("s"), {"b", "Z", BR_VEC_STRING, 0, 0, NULL, NULL, 0}};
  fixture f = make(one, 2, 4, 0, 9);
  size_t bytes = 5u << 20;
  char *big = malloc(bytes);
  for (size_t i = 0; i < bytes; i++) big[i] = (char)('a' + (i * i) % 23);
  for (int k = 0; k < 2; k++) {
    br_vec_string *s = (br_vec_string *)f.vecs[k].data;
    for (int i = 0; i < 4; i += 3) {
      s[i].length = (uint32_t)bytes - (uint32_t)i;
      memcpy(s[i].inlined + 4, &big, sizeof big);
    }
  }
  for (int codec = 0; codec < 3; codec++) {
    br_colset *c[2];
    uint32_t part_of[4] = {0, 0, 1, 0}, mine[3] = {0, 1, 3}, other[1] = {2};
    OK(br_colset_new(f.schema, &c[0], &err));
    OK(br_colset_new(f.schema, &c[1], &err));
    OK(br_colset_scatter(c, 2, f.vecs, part_of, 4, &err));
    assert_in_range(br_colset_bytes(c[0]), 4 * bytes - 6, 4 * bytes + 4096);
    check_rows(&f, c[0], (br_codec)codec, true, mine, 3);
    check_rows(&f, c[1], (br_codec)codec, true, other, 1);
    br_colset_free(c[0]);
    br_colset_free(c[1]);
  }
  free(big);
  drop(&f);
}

static void refused(const spec *s, const char *word) {
  br_schema *schema = make_schema(s, 1);
  br_colset *c = NULL;
  assert_int_equal(br_colset_new(schema, &c, &err), BR_UNSUPPORTED);
  assert_non_null(strstr(err.message, word));
  br_schema_unref(schema);
}

static void test_refused(void **state) {
  (void)state;
  refused(&(spec){"view", "vu", BR_VEC_STRING, 0, 0, NULL, NULL, 0}, "'view'");
  refused(&(spec){"ree", "+r", BR_VEC_STRING, 0, 0, NULL, NULL, 0}, "'+r'");
  refused(&(spec){"dense", "+ud:0", BR_VEC_UNION, KIDS(TEXT("s"))}, "'dense'");
  /* a vector that doesn't fit its column */
  static const spec one[] = {FIXED("x", "i", 4)};
  fixture f = make(one, 1, 4, 0, 9);
  br_colset *c;
  uint32_t rows[2] = {0, 9};
  OK(br_colset_new(f.schema, &c, &err));
  f.vecs[0].width = 8;
  assert_int_equal(br_colset_append(c, f.vecs, rows, 1, &err), BR_UNSUPPORTED);
  assert_int_equal(br_colset_scatter(&c, 1, f.vecs, rows, 1, &err), BR_UNSUPPORTED);
  f.vecs[0].width = 4;
  assert_int_equal(br_colset_scatter(&c, 1, f.vecs, rows, 2, &err), BR_INTERNAL); /* partition 9 of 1 */
  br_colset_free(c);
  drop(&f);
}

static void test_interval_overflow(void **state) {
  (void)state;
  static const spec one[] = {{"i", "tin", BR_VEC_INTERVAL, 16, 0, NULL, NULL, 0}};
  fixture f = make(one, 1, 4, 0, 9);
  br_colset *c;
  uint32_t zero[4] = {0};
  int64_t far = INT64_MAX / 1000 + 1;
  memcpy((char *)f.vecs[0].data + 16 * 2 + 8, &far, 8);
  OK(br_colset_new(f.schema, &c, &err));
  assert_int_equal(br_colset_scatter(&c, 1, f.vecs, zero, 4, &err), BR_UNSUPPORTED);
  assert_int_equal(err.blame, BR_BLAME_USER);
  br_colset_free(c);
  drop(&f);
}

static void test_uuid_bytes(void **state) {
  (void)state;
  static const spec one[] = {{"u", "w:16", BR_VEC_FIXED, 16, 0, "arrow.uuid", NULL, 0}};
  fixture f = make(one, 1, 1, 0, 9);
  /* 12345678-1234-5678-1234-567812345678 as DuckDB keeps it: low half first, top bit flipped */
  static const uint64_t kept[2] = {0x1234567812345678u, 0x1234567812345678u ^ (uint64_t)1 << 63};
  static const uint8_t want[16] = {0x12, 0x34, 0x56, 0x78, 0x12, 0x34, 0x56, 0x78,
                                   0x12, 0x34, 0x56, 0x78, 0x12, 0x34, 0x56, 0x78};
  memcpy((void *)f.vecs[0].data, kept, 16);
  br_colset *c;
  br_buf head = {0}, body = {0};
  uint32_t zero = 0;
  OK(br_colset_new(f.schema, &c, &err));
  OK(br_colset_append(c, f.vecs, &zero, 1, &err));
  OK(br_colset_encode(c, BR_CODEC_NONE, &head, &body, false, &err));
  assert_memory_equal(body.data, want, 16);
  br_buf_free(&head);
  br_buf_free(&body);
  br_colset_free(c);
  drop(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_append),
      cmocka_unit_test(test_scatter),
      cmocka_unit_test(test_gathered),
      cmocka_unit_test(test_gathered_room),
      cmocka_unit_test(test_late_null),
      cmocka_unit_test(test_long_strings),
      cmocka_unit_test(test_zero_columns_and_rows),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_uuid_bytes),
      cmocka_unit_test(test_interval_overflow),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
