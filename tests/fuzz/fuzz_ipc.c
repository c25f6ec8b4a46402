/* SPDX-License-Identifier: Apache-2.0
 * links: br_arrow
 * Input: u16 length, a schema message of that length, u16 length, a record-batch message, its body. The schema is decoded and
 * encoded again; the batch is decoded against it and against schemas of ours, walked, and encoded again. */
#include "../arrow_walk.h"
#include "../unit/arrow_fixture.h"
#include "arrow/ipc.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

static size_t take(const uint8_t **data, size_t *size, const uint8_t **part) {
  *part = *data;
  if (*size < 2) return 0;
  size_t n = (size_t)(*data)[0] | (size_t)(*data)[1] << 8;
  if (n > *size - 2) n = *size - 2;
  *part = *data + 2;
  *data += 2 + n;
  *size -= 2 + n;
  return n;
}

static void free_owner(void *p) { free(p); }

static void try_batch(br_schema *s, const uint8_t *head, size_t head_bytes, const uint8_t *body, size_t body_bytes) {
  br_error err;
  br_batch *b = NULL;
  void *copy = NULL;
  BR_ASSERT(posix_memalign(&copy, 64, body_bytes) == 0);
  if (body_bytes > 0) memcpy(copy, body, body_bytes);
  if (br_ipc_decode_batch(s, head, head_bytes, (br_ipc_body){copy, body_bytes, free_owner, copy}, &b, &err) != BR_OK)
    return;
  uint64_t sum = walk_batch(b, 2000);
  if (br_batch_rows(b) <= 2000) {
    br_buf h = {0}, d = {0};
    br_batch *again = NULL;
    BR_ASSERT(br_ipc_encode_array(b, BR_CODEC_LZ4, &h, &d, &err) == BR_OK);
    BR_ASSERT(br_ipc_decode_batch(s, h.data, h.len, (br_ipc_body){d.data, d.len, NULL, NULL}, &again, &err) == BR_OK);
    BR_ASSERT(walk_batch(again, 2000) == sum);
    br_batch_unref(again);
    br_buf_free(&h);
    br_buf_free(&d);
  }
  br_batch_unref(b);
}

static br_schema *try_schema(const uint8_t *head, size_t bytes) {
  br_error err;
  br_schema *s = NULL, *again = NULL;
  br_buf out = {0}, why = {0};
  if (br_ipc_decode_schema(head, bytes, &s, &err) != BR_OK) return NULL;
  if (br_ipc_encode_schema(s, &out, &err) == BR_OK) {
    BR_ASSERT(br_ipc_decode_schema(out.data, out.len, &again, &err) == BR_OK);
    BR_ASSERT(br_schema_same_types(s, again, &why));
    br_schema_unref(again);
  }
  br_buf_free(&out);
  br_buf_free(&why);
  return s;
}

/* Seeds: the messages of one kind, or of all. */
static size_t seed_input(uint8_t *out, size_t max, unsigned seed) {
  rng r = {seed};
  br_error err;
  size_t first = next(&r) % N_KINDS, n = next(&r) % 8 == 0 ? N_KINDS - first : 1;
  uint32_t rows = (uint32_t)(next(&r) % 4), order[4] = {0, 1, 2, 3};
  br_arena *arena = br_arena_new();
  br_vec *vecs = br_arena_alloc(arena, n * sizeof *vecs);
  br_schema *s = make_schema(every_kind + first, n);
  br_colset *c = NULL;
  br_buf schema = {0}, head = {0}, body = {0};
  for (size_t i = 0; i < n; i++) make_vec(arena, &every_kind[first + i], rows, 20, &r, &vecs[i]);
  BR_ASSERT(br_colset_new(s, &c, &err) == BR_OK && br_colset_append(c, vecs, order, rows, &err) == BR_OK);
  BR_ASSERT(br_ipc_encode_schema(s, &schema, &err) == BR_OK);
  BR_ASSERT(br_colset_encode(c, (br_codec)(next(&r) % 3), &head, &body, true, &err) == BR_OK);
  size_t bytes = 4 + schema.len + head.len + body.len;
  if (bytes <= max && schema.len < 65536 && head.len < 65536) {
    *out++ = (uint8_t)schema.len, *out++ = (uint8_t)(schema.len >> 8);
    memcpy(out, schema.data, schema.len);
    out += schema.len;
    *out++ = (uint8_t)head.len, *out++ = (uint8_t)(head.len >> 8);
    memcpy(out, head.data, head.len);
    out += head.len;
    if (body.len > 0) memcpy(out, body.data, body.len);
  } else {
    bytes = 0;
  }
  br_colset_free(c);
  br_schema_unref(s);
  br_arena_free(arena);
  br_buf_free(&schema);
  br_buf_free(&head);
  br_buf_free(&body);
  return bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
  size_t n = seed % 16 == 0 || size < 16 ? seed_input(data, max, seed) : 0;
  return n > 0 && seed % 32 == 0 ? n : LLVMFuzzerMutate(data, n > 0 ? n : size, max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static br_schema *ours;
  if (ours == NULL) ours = make_schema(every_kind, N_KINDS);
  const uint8_t *schema, *head;
  size_t schema_bytes = take(&data, &size, &schema), head_bytes = take(&data, &size, &head);
  bool is_schema;
  int64_t rows;
  uint64_t bytes;
  br_error err;
  br_schema *s = try_schema(schema, schema_bytes);
  (void)!br_ipc_peek(head, head_bytes, &is_schema, &rows, &bytes, &err);
  try_batch(s != NULL ? s : ours, head, head_bytes, data, size);
  br_schema_unref(s);
  return 0;
}
