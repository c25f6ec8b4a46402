/* SPDX-License-Identifier: Apache-2.0
 * links: br_arrow
 * threads: none (not under TSan: minutes, for one thread)
 * IPC messages: round trips, slices, ownership of bodies, and messages that lie. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "arrow/ipc_check.h"
#include "arrow/ipc_message.h"
#include "arrow_walk.h"
#include "unit/arrow_fixture.h"

static br_error err;

#define OK(x)                                              \
  do {                                                     \
    if ((x) != BR_OK) fail_msg("%s: %s", #x, err.message); \
  } while (0)

typedef struct message {
  br_buf head, body;
} message;

static void message_free(message *m) {
  br_buf_free(&m->head);
  br_buf_free(&m->body);
}

/* `rows` random rows of these columns as a message. */
static message random_message(br_schema *s, const spec *specs, size_t n, uint32_t rows, unsigned null_percent,
                              br_codec codec, uint64_t seed) {
  br_arena *arena = br_arena_new();
  br_vec *vecs = br_arena_alloc(arena, (n + 1) * sizeof *vecs);
  uint32_t *order = br_arena_alloc(arena, (rows + 1) * sizeof *order);
  rng r = {seed};
  message m = {0};
  br_colset *c;
  for (size_t i = 0; i < n; i++) make_vec(arena, &specs[i], rows, null_percent, &r, &vecs[i]);
  for (uint32_t i = 0; i < rows; i++) order[i] = i;
  OK(br_colset_new(s, &c, &err));
  OK(br_colset_append(c, vecs, order, rows, &err));
  OK(br_colset_encode(c, codec, &m.head, &m.body, true, &err));
  br_colset_free(c);
  br_arena_free(arena);
  return m;
}

static br_batch *decode(br_schema *s, const message *m) {
  br_batch *b = NULL;
  OK(br_ipc_decode_batch(s, m->head.data, m->head.len, (br_ipc_body){m->body.data, m->body.len, NULL, NULL}, &b, &err));
  return b;
}

/* A view of rows [from, from + n) of b. */
static br_batch *slice(br_batch *b, int64_t from, int64_t n) {
  struct ArrowArray a;
  br_batch *out;
  br_batch_export(b, &a);
  a.offset = from;
  a.length = n;
  OK(br_batch_new(br_batch_schema(b), &a, 0, &out, &err));
  return out;
}

/* The same rows, but the offset is each column's own. */
static br_batch *slice_columns(br_batch *b, int64_t from, int64_t n) {
  struct ArrowArray a;
  br_batch *out;
  br_batch_export(b, &a);
  a.length = n;
  for (int64_t i = 0; i < a.n_children; i++) {
    a.children[i]->offset = from;
    a.children[i]->length = n;
    a.children[i]->null_count = -1;
  }
  OK(br_batch_new(br_batch_schema(b), &a, 0, &out, &err));
  return out;
}

static void check_again(br_batch *part, const br_batch *whole, int64_t from, int64_t n) {
  for (int codec = 0; codec < 3; codec++) {
    message m = {0};
    OK(br_ipc_encode_array(part, (br_codec)codec, &m.head, &m.body, &err));
    br_batch *b = decode(br_batch_schema(part), &m);
    assert_int_equal(br_batch_rows(b), n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(walk_row(b, i), walk_row(whole, from + i));
    br_batch_unref(b);
    message_free(&m);
  }
}

static void test_every_kind_and_slices(void **state) {
  (void)state;
  br_schema *s = make_schema(every_kind, N_KINDS);
  for (unsigned nulls = 0; nulls <= 100; nulls += 25) {
    message m = random_message(s, every_kind, N_KINDS, 130, nulls, BR_CODEC_NONE, nulls + 1);
    br_batch *b = decode(s, &m);
    static const int64_t cuts[][2] = {{0, 130}, {0, 0}, {130, 0}, {1, 129}, {8, 64}, {63, 1}, {7, 9}, {100, 30}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
      br_batch *p = slice(b, cuts[i][0], cuts[i][1]), *q = slice_columns(b, cuts[i][0], cuts[i][1]);
      check_again(p, b, cuts[i][0], cuts[i][1]);
      check_again(q, b, cuts[i][0], cuts[i][1]);
      br_batch_unref(p);
      br_batch_unref(q);
    }
    br_batch_unref(b);
    message_free(&m);
  }
  br_schema_unref(s);
}

static void test_schema_round_trip(void **state) {
  (void)state;
  br_schema *s = make_schema(every_kind, N_KINDS), *back = NULL;
  br_buf head = {0}, why = {0};
  OK(br_ipc_encode_schema(s, &head, &err));
  assert_int_equal(head.len % 8, 0);
  OK(br_ipc_decode_schema(head.data, head.len, &back, &err));
  if (!br_schema_same_types(s, back, &why)) fail_msg("%s", br_buf_cstr(&why));
  for (size_t i = 0; i < N_KINDS; i++)
    assert_string_equal(br_schema_arrow(back)->children[i]->name, every_kind[i].name);
  bool is_schema = false;
  int64_t rows = 9;
  uint64_t body = 9;
  OK(br_ipc_peek(head.data, head.len, &is_schema, &rows, &body, &err));
  assert_true(is_schema);
  assert_int_equal(rows, 0);
  assert_int_equal(body, 0);
  br_batch *b = NULL;
  assert_int_equal(br_ipc_decode_batch(s, head.data, head.len, (br_ipc_body){0}, &b, &err), BR_CORRUPT);
  br_schema_unref(back);
  br_schema_unref(s);
  br_buf_free(&head);
  br_buf_free(&why);
}

static void test_unnamed_and_refused_schemas(void **state) {
  (void)state;
  struct ArrowSchema root;
  br_schema *s, *back;
  br_buf head = {0};
  ArrowSchemaInit(&root);
  assert_int_equal(ArrowSchemaSetTypeStruct(&root, 1), 0);
  assert_int_equal(ArrowSchemaSetFormat(root.children[0], "i"), 0);
  assert_null(root.children[0]->name);
  OK(br_schema_new(&root, &s, &err));
  OK(br_ipc_encode_schema(s, &head, &err));
  OK(br_ipc_decode_schema(head.data, head.len, &back, &err));
  assert_string_equal(br_schema_arrow(back)->children[0]->name, "");
  br_schema_unref(s);
  br_schema_unref(back);
  ArrowSchemaInit(&root);
  assert_int_equal(ArrowSchemaSetTypeStruct(&root, 1), 0);
  assert_int_equal(ArrowSchemaSetFormat(root.children[0], "c"), 0);
  assert_int_equal(ArrowSchemaSetName(root.children[0], "mood"), 0);
  assert_int_equal(ArrowSchemaAllocateDictionary(root.children[0]), 0);
  ArrowSchemaInit(root.children[0]->dictionary);
  assert_int_equal(ArrowSchemaSetFormat(root.children[0]->dictionary, "u"), 0);
  OK(br_schema_new(&root, &s, &err)); /* a schema may be known that can't be sent */
  assert_int_equal(br_ipc_encode_schema(s, &head, &err), BR_UNSUPPORTED);
  assert_non_null(strstr(err.message, "mood"));
  br_schema_unref(s);
  br_buf_free(&head);
}

static void test_empty_and_zero_columns(void **state) {
  (void)state;
  br_schema *s = make_schema(every_kind, N_KINDS), *none = make_schema(NULL, 0);
  for (int codec = 0; codec < 3; codec++) {
    message m = random_message(s, every_kind, N_KINDS, 0, 0, (br_codec)codec, 1);
    br_batch *b = decode(s, &m);
    assert_int_equal(br_batch_rows(b), 0);
    message again = {0};
    OK(br_ipc_encode_array(b, (br_codec)codec, &again.head, &again.body, &err));
    br_batch_unref(b);
    b = decode(s, &again);
    br_batch_unref(b);
    message_free(&m);
    message_free(&again);
    OK(br_ipc_encode_batch(12345, NULL, 0, NULL, 0, (br_codec)codec, &m.head, &m.body, &err));
    b = decode(none, &m);
    assert_int_equal(br_batch_rows(b), 12345);
    br_batch_unref(b);
    message_free(&m);
  }
  br_schema_unref(s);
  br_schema_unref(none);
}

static void test_600_columns_and_several_in_a_buffer(void **state) {
  (void)state;
  spec *specs = calloc(600, sizeof *specs);
  for (int i = 0; i < 600; i++) specs[i] = every_kind[i % (int)N_KINDS];
  br_schema *s = make_schema(specs, 600);
  message all = {0};
  size_t heads[4] = {0}, bodies[4] = {0};
  for (int i = 0; i < 3; i++) {
    message m = random_message(s, specs, 600, 40, 10, (br_codec)i, 5);
    br_batch *b = decode(s, &m);
    OK(br_ipc_encode_array(b, (br_codec)(2 - i), &all.head, &all.body, &err));
    heads[i + 1] = all.head.len;
    bodies[i + 1] = all.body.len;
    br_batch_unref(b);
    message_free(&m);
  }
  uint64_t first = 0;
  for (int i = 0; i < 3; i++) {
    br_batch *b;
    bool is_schema = true;
    int64_t rows = 0;
    uint64_t bytes = 0;
    OK(br_ipc_peek(all.head.data + heads[i], heads[i + 1] - heads[i], &is_schema, &rows, &bytes, &err));
    assert_false(is_schema);
    assert_int_equal(rows, 40);
    assert_int_equal(bytes, bodies[i + 1] - bodies[i]);
    OK(br_ipc_decode_batch(s, all.head.data + heads[i], heads[i + 1] - heads[i],
                           (br_ipc_body){all.body.data + bodies[i], bodies[i + 1] - bodies[i], NULL, NULL}, &b, &err));
    uint64_t sum = walk_batch(b, 40);
    if (i == 0) first = sum;
    assert_int_equal(sum, first);
    br_batch_unref(b);
  }
  message_free(&all);
  br_schema_unref(s);
  free(specs);
}

/* ---- who keeps the body */

static void count_release(void *owner) { ++*(int *)owner; }

static void test_body_ownership(void **state) {
  (void)state;
  static const spec two[] = {{"x", "d:4,1", BR_VEC_FIXED, 2, 16, NULL, NULL, 0},
                             TEXT("s")}; /* both shrink when compressed */
  br_schema *s = make_schema(two, 2);
  for (int codec = 0; codec < 3; codec++) {
    message m = random_message(s, two, 2, 500, 10, (br_codec)codec, 3);
    int released = 0;
    br_batch *b;
    void *copy = aligned_alloc(64, m.body.len);
    memcpy(copy, m.body.data, m.body.len);
    OK(br_ipc_decode_batch(s, m.head.data, m.head.len, (br_ipc_body){copy, m.body.len, count_release, &released}, &b,
                           &err));
    const uint8_t *values = br_batch_arrow(b)->children[0]->buffers[1];
    bool inside = values >= (uint8_t *)copy && values < (uint8_t *)copy + m.body.len;
    assert_int_equal(inside, codec == BR_CODEC_NONE);
    if (codec == BR_CODEC_NONE) {
      assert_int_equal(released, 0);
      struct ArrowArray a;
      br_batch_export(b, &a);
      struct ArrowArray child = *a.children[1];
      a.children[1]->release = NULL;
      a.release(&a);
      br_batch_unref(b);
      assert_int_equal(released, 0);
      child.release(&child);
    } else {
      br_batch_unref(b);
    }
    assert_int_equal(released, 1);
    /* and on failure */
    m.head.data[m.head.len / 2] ^= 0x55;
    m.head.len -= 8;
    b = NULL;
    assert_int_equal(br_ipc_decode_batch(s, m.head.data, m.head.len,
                                         (br_ipc_body){copy, m.body.len, count_release, &released}, &b, &err),
                     BR_CORRUPT);
    assert_int_equal(released, 2);
    free(copy);
    message_free(&m);
  }
  br_schema_unref(s);
}

/* Head and body at any address. */
static void test_unaligned(void **state) {
  (void)state;
  br_schema *s = make_schema(every_kind, N_KINDS);
  for (int codec = 0; codec < 3; codec++) {
    message m = random_message(s, every_kind, N_KINDS, 70, 10, (br_codec)codec, 3);
    br_batch *b = decode(s, &m);
    uint64_t want = walk_batch(b, 70);
    br_batch_unref(b);
    for (size_t shift = 1; shift < 8; shift += 3) {
      char *head = malloc(m.head.len + shift), *body = malloc(m.body.len + shift);
      memcpy(head + shift, m.head.data, m.head.len);
      memcpy(body + shift, m.body.data, m.body.len);
      OK(br_ipc_decode_batch(s, head + shift, m.head.len, (br_ipc_body){body + shift, m.body.len, NULL, NULL}, &b,
                             &err));
      assert_int_equal(walk_batch(b, 70), want);
      br_batch_unref(b);
      free(head);
      free(body);
    }
    message_free(&m);
  }
  br_schema_unref(s);
}

/* ---- messages that lie: an error or something that can be walked, never a crash */

static void try_batch(br_schema *s, const char *head, size_t head_bytes, const char *body, size_t body_bytes,
                      int *good) {
  br_batch *b = NULL;
  br_error e = {0};
  void *h = malloc(head_bytes), *d = NULL; /* exactly as large, so that over-reads are seen */
  assert_int_equal(posix_memalign(&d, 64, body_bytes), 0);
  if (head_bytes > 0) memcpy(h, head, head_bytes);
  if (body_bytes > 0) memcpy(d, body, body_bytes);
  int released = 0;
  br_status status =
      br_ipc_decode_batch(s, h, head_bytes, (br_ipc_body){d, body_bytes, count_release, &released}, &b, &e);
  if (status == BR_OK) {
    ++*good;
    walk_batch(b, 1000);
    br_batch_unref(b);
  } else {
    assert_true((int)e.code == status && e.message[0] != 0);
  }
  assert_int_equal(released, 1);
  bool is_schema;
  int64_t rows;
  uint64_t bytes;
  (void)!br_ipc_peek(h, head_bytes, &is_schema, &rows, &bytes, &e);
  free(h);
  free(d);
}

static void test_truncated_and_flipped_batches(void **state) {
  (void)state;
  br_schema *s = make_schema(every_kind, N_KINDS);
  for (int codec = 0; codec < 3; codec++) {
    message m = random_message(s, every_kind, N_KINDS, 5, 20, (br_codec)codec, 11);
    int good = 0;
    for (size_t n = 0; n < m.head.len; n++) try_batch(s, m.head.data, n, m.body.data, m.body.len, &good);
    assert_true(good <= 16); /* its end is padding, and fields at their default */
    good = 0;
    for (size_t n = 0; n < m.body.len; n += 1 + n / 32) try_batch(s, m.head.data, m.head.len, m.body.data, n, &good);
    assert_int_equal(good, 0);
    size_t bits = codec == BR_CODEC_NONE ? 1 : 7; /* the same head, but for its codec */
    for (size_t i = 0; i < m.head.len * 8; i += bits) {
      m.head.data[i / 8] ^= (char)(1 << (i % 8));
      try_batch(s, m.head.data, m.head.len, m.body.data, m.body.len, &good);
      m.head.data[i / 8] ^= (char)(1 << (i % 8));
    }
    size_t step = m.body.len / 1000 + 1; /* coprime to what the buffers are aligned to */
    for (size_t i = 0; i < m.body.len; i += step | 1) {
      char was = m.body.data[i];
      m.body.data[i] = (char)(was ^ (1 << (i % 8)));
      try_batch(s, m.head.data, m.head.len, m.body.data, m.body.len, &good);
      m.body.data[i] = (char)~was;
      try_batch(s, m.head.data, m.head.len, m.body.data, m.body.len, &good);
      m.body.data[i] = was;
    }
    message_free(&m);
  }
  br_schema_unref(s);
}

static void try_schema(const char *head, size_t bytes) {
  br_schema *s = NULL;
  br_error e = {0};
  char *h = malloc(bytes + 1);
  if (bytes > 0) memcpy(h, head, bytes);
  br_status status = br_ipc_decode_schema(h, bytes, &s, &e);
  if (status == BR_OK) {
    br_buf again = {0};
    if (br_ipc_encode_schema(s, &again, &e) != BR_OK) fail_msg("what was read can't be written: %s", e.message);
    br_buf_free(&again);
    br_schema_unref(s);
  }
  free(h);
}

static void test_truncated_and_flipped_schemas(void **state) {
  (void)state;
  br_schema *s = make_schema(every_kind, N_KINDS);
  br_buf head = {0};
  OK(br_ipc_encode_schema(s, &head, &err));
  for (size_t n = 0; n < head.len; n++) try_schema(head.data, n);
  for (size_t i = 0; i < head.len * 8; i++) {
    head.data[i / 8] ^= (char)(1 << (i % 8));
    try_schema(head.data, head.len);
    head.data[i / 8] ^= (char)(1 << (i % 8));
  }
  br_buf_free(&head);
  br_schema_unref(s);
}

/* Hand-made lies, each of which must be seen for what it is. */
typedef struct lie {
  br_ipc_node node;
  int64_t rows;
  const char *format;
  const void *second;
  uint64_t second_bytes;
  const void *third;
  uint64_t third_bytes;
  const char *word;
} lie;

static void test_lies(void **state) {
  (void)state;
  static const int32_t falling[] = {0, 3, 1}, negative[] = {-1, 0, 1}, far[] = {0, 1, 9},
                       wrapping[] = {0, INT32_MAX, INT32_MIN}, good[] = {0, 1, 3};
  static const int64_t far64[] = {0, 1, 9};
  const lie lies[] = {
      {{2, 0}, 2, "u", falling, 12, "abcdefgh", 8, "offsets"},
      {{2, 0}, 2, "u", negative, 12, "abcdefgh", 8, "offsets"},
      {{2, 0}, 2, "z", far, 12, "abcdefgh", 8, "offsets"},
      {{2, 0}, 2, "z", wrapping, 12, "abcdefgh", 8, "offsets"},
      {{2, 0}, 2, "U", far64, 24, "abcdefgh", 8, "offsets"},
      {{2, 0}, 2, "u", good, 12, "a\xc3", 2, "offsets"},
      {{2, 0}, 2, "u", good, 12, "a\xc3(", 3, "UTF-8"},
      {{2, 0}, 2, "u", good, 12, "\xc3\xa4z", 3, "UTF-8"}, /* a character cut in two */
      {{2, 0}, 2, "u", good, 8, "abcdefgh", 8, "too short"},
      {{2, 0}, 2, "i", good, 4, NULL, 0, "too short"},
      {{2, 1}, 2, "i", good, 8, NULL, 0, "too short"}, /* NULLs but no bitmap */
      {{2, 3}, 2, "i", good, 8, NULL, 0, "NULL count"},
      {{2, -1}, 2, "i", good, 8, NULL, 0, "NULL count"},
      {{3, 0}, 2, "i", good, 12, NULL, 0, "length"},
      {{1, 0}, 2, "i", good, 12, NULL, 0, "length"},
      {{-1, 0}, -1, "i", good, 12, NULL, 0, "row count"},
      {{(int64_t)1 << 40, 0}, (int64_t)1 << 40, "n", NULL, 0, NULL, 0, "row count"},
      {{9, 0}, 9, "b", good, 1, NULL, 0, "too short"},
      {{2, 0}, 2, "w:2147483647", good, 12, NULL, 0, "too short"},
  };
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
    const lie *l = &lies[i];
    spec one = {"x", l->format, BR_VEC_FIXED, 0, 0, NULL, NULL, 0};
    br_schema *s = make_schema(&one, 1);
    br_ipc_piece pieces[3] = {{NULL, 0}, {l->second, l->second_bytes}, {l->third, l->third_bytes}};
    message m = {0};
    br_batch *b = NULL;
    OK(br_ipc_encode_batch(l->rows, &l->node, 1, pieces, br_schema_layout(s)->n_buffers, BR_CODEC_NONE, &m.head,
                           &m.body, &err));
    err = (br_error){0};
    br_status status =
        br_ipc_decode_batch(s, m.head.data, m.head.len, (br_ipc_body){m.body.data, m.body.len, NULL, NULL}, &b, &err);
    if (status != BR_CORRUPT || strstr(err.message, l->word) == NULL)
      fail_msg("lie %zu: %d %s", i, status, err.message);
    message_free(&m);
    br_schema_unref(s);
  }
}

/* A few bytes that claim gigabytes don't get them. */
static void test_decompression_bombs(void **state) {
  (void)state;
  static const spec one[] = {FIXED("x", "l", 8)};
  br_schema *s = make_schema(one, 1);
  for (int codec = BR_CODEC_LZ4; codec <= BR_CODEC_ZSTD; codec++) {
    message m = {0};
    br_batch *b = NULL;
    static int64_t zeros[1000];
    br_ipc_node node = {1000, 0};
    br_ipc_piece pieces[2] = {{NULL, 0}, {zeros, sizeof zeros}};
    OK(br_ipc_encode_batch(1000, &node, 1, pieces, 2, (br_codec)codec, &m.head, &m.body, &err));
    assert_true(m.body.len < 200);
    static const int64_t claims[] = {7999, 8001, 1 << 20, (int64_t)1 << 32, (int64_t)1 << 62, -2, INT64_MIN, -1, 0};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
      memcpy(m.body.data, &claims[i], 8);
      assert_int_equal(
          br_ipc_decode_batch(s, m.head.data, m.head.len, (br_ipc_body){m.body.data, m.body.len, NULL, NULL}, &b, &err),
          BR_CORRUPT);
    }
    message_free(&m);
  }
  br_schema_unref(s);
}

/* A schema whose lists of children point at the same child, twice a level: 2^40 fields in 2 KiB. */
static void test_schema_bomb(void **state) {
  (void)state;
  enum { LEVELS = 40 };
  uint32_t buf[LEVELS * 12 + 40];
  memset(buf, 0, sizeof buf);
  uint8_t *p = (uint8_t *)buf;
  size_t at = 64;
  /* 16..: one vtable for Field: type_type at 4, type at 8, children at 12 */
  const uint16_t field_vt[] = {18, 16, 0, 0, 4, 8, 0, 12, 0}, schema_vt[] = {8, 8, 0, 4},
                 message_vt[] = {10, 16, 4, 8, 12};
  memcpy(p + 8, message_vt, 10);
  memcpy(p + 20, schema_vt, 8);
  memcpy(p + 28, field_vt, 18);
#define PUT32(where, v) (buf[(where) / 4] = (uint32_t)(v))
  PUT32(0, 48); /* the message: version u16, header type u8, header */
  PUT32(48, 48 - 8);
  p[52] = 4;
  p[56] = 1;
  PUT32(60, at - 60);
  PUT32(at, at - 20); /* the schema: its fields vector */
  PUT32(at + 4, 4);
  size_t vec = at + 8;
  for (int i = 0; i < LEVELS; i++) {
    size_t field = vec + 12;
    PUT32(vec, 2);
    PUT32(vec + 4, field - (vec + 4));
    PUT32(vec + 8, field - (vec + 8));
    PUT32(field, field - 28);
    p[field + 4] = 13;        /* Struct_ */
    size_t type = field + 16; /* an empty table, with the field's own vtable cut short */
    PUT32(field + 8, type - (field + 8));
    PUT32(type, type - (type + 4));
    p[type + 4] = 4;
    p[type + 6] = 4;
    vec = type + 8;
    if (i + 1 < LEVELS) PUT32(field + 12, vec - (field + 12));
  }
  br_schema *s = NULL;
  assert_int_equal(br_ipc_decode_schema(buf, vec, &s, &err), BR_CORRUPT);
  assert_non_null(strstr(err.message, "too many fields"));
}

static void test_frame(void **state) {
  (void)state;
  br_buf head = {0}, body = {0}, out = {0};
  br_buf_add(&head, "0123456789", 10);
  br_buf_add(&body, "body", 4);
  OK(br_ipc_frame(&head, &body, &out, &err));
  assert_int_equal(out.len, 8 + 16 + 4);
  assert_memory_equal(out.data,
                      "\xff\xff\xff\xff\x10\0\0\0"
                      "0123456789\0\0\0\0\0\0body",
                      28);
  OK(br_ipc_frame(&head, NULL, &out, &err));
  assert_int_equal(out.len, 28 + 24);
  br_buf_clear(&head);
  assert_int_equal(br_ipc_frame(&head, NULL, &out, &err), BR_INTERNAL);
  assert_memory_equal(br_ipc_end_mark, "\xff\xff\xff\xff\0\0\0\0", 8);
  br_buf_free(&head);
  br_buf_free(&body);
  br_buf_free(&out);
}

static void test_codec_names(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    br_codec c = BR_CODEC_NONE;
    OK(br_codec_parse(br_codec_name((br_codec)i), &c, &err));
    assert_int_equal(c, i);
  }
  br_codec c;
  assert_int_equal(br_codec_parse("gzip", &c, &err), BR_INVALID);
}

static bool utf8(const char *p) {
  int32_t offsets[2] = {0, (int32_t)strlen(p)};
  return br_check_utf8_32((const uint8_t *)p, offsets, 1, NULL);
}

static void test_utf8(void **state) {
  (void)state;
  static const char *const good[] = {"",
                                     "abc",
                                     "\xc2\x80",
                                     "\xdf\xbf",
                                     "\xe0\xa0\x80",
                                     "\xed\x9f\xbf",
                                     "\xee\x80\x80",
                                     "\xf0\x90\x80\x80",
                                     "\xf4\x8f\xbf\xbf",
                                     "0123456789012345678901234567890123456789\xe2\x82\xac 0123456789"};
  static const char *const bad[] = {"\x80",
                                    "\xc0\x80",
                                    "\xc1\xbf",
                                    "\xc2",
                                    "\xe0\x9f\xbf",
                                    "\xed\xa0\x80",
                                    "\xe2\x82",
                                    "\xf0\x8f\xbf\xbf",
                                    "\xf4\x90\x80\x80",
                                    "\xf5\x80\x80\x80",
                                    "\xff",
                                    "01234567\xe2(\xa1",
                                    "\xf0\x9f\x98"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
    if (!utf8(good[i])) fail_msg("good %zu", i);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    if (utf8(bad[i])) fail_msg("bad %zu", i);
  /* under a NULL anything may lie */
  static const int64_t offsets[] = {0, 1, 2, 3};
  assert_true(br_check_utf8_64((const uint8_t *)"a\xff"
                                                "b",
                               offsets, 3, (const uint8_t *)"\x05"));
  assert_false(br_check_utf8_64((const uint8_t *)"a\xff"
                                                 "b",
                                offsets, 3, (const uint8_t *)"\x07"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_kind_and_slices),
      cmocka_unit_test(test_schema_round_trip),
      cmocka_unit_test(test_unnamed_and_refused_schemas),
      cmocka_unit_test(test_empty_and_zero_columns),
      cmocka_unit_test(test_600_columns_and_several_in_a_buffer),
      cmocka_unit_test(test_body_ownership),
      cmocka_unit_test(test_unaligned),
      cmocka_unit_test(test_truncated_and_flipped_batches),
      cmocka_unit_test(test_truncated_and_flipped_schemas),
      cmocka_unit_test(test_lies),
      cmocka_unit_test(test_decompression_bombs),
      cmocka_unit_test(test_schema_bomb),
      cmocka_unit_test(test_frame),
      cmocka_unit_test(test_codec_names),
      cmocka_unit_test(test_utf8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
