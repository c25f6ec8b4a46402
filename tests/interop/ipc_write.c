/* SPDX-License-Identifier: Apache-2.0
 * ipc_write CODEC ROWS: random rows of every kind as an Arrow stream on standard output, in two batches. */
#include "unit/arrow_fixture.h"
#include "base/util.h"
#include <stdio.h>
#include <stdlib.h>

#define TRY(x)                                      \
  do {                                              \
    if ((x) != BR_OK) {                             \
      fprintf(stderr, "%s: %s\n", #x, err.message); \
      return 1;                                     \
    }                                               \
  } while (0)

/* A column whose values the test knows. */
static const spec known[] = {FIXED("row", "l", 8), TEXT("label")};

static void known_vecs(br_arena *a, uint32_t rows, br_vec *v) {
  int64_t *row = br_arena_alloc(a, (rows + 1) * sizeof *row);
  br_vec_string *label = br_arena_alloc(a, (rows + 1) * sizeof *label);
  uint64_t *validity = br_arena_alloc(a, (rows / 64 + 1) * 8);
  for (uint32_t i = 0; i < rows; i++) {
    row[i] = i;
    label[i].length = (uint32_t)snprintf(label[i].inlined, 12, "r%u", i);
    if (i % 5 != 0) validity[i / 64] |= (uint64_t)1 << (i % 64);
  }
  v[0] = (br_vec){.kind = BR_VEC_FIXED, .width = 8, .data = row};
  v[1] = (br_vec){.kind = BR_VEC_STRING, .data = label, .validity = validity};
}

int main(int argc, char **argv) {
  br_error err = {0};
  br_codec codec;
  if (argc != 3) {
    fprintf(stderr, "usage: ipc_write none|lz4|zstd ROWS\n");
    return 2;
  }
  TRY(br_codec_parse(argv[1], &codec, &err));
  uint32_t rows = (uint32_t)strtoul(argv[2], NULL, 10);
  size_t n = N_KINDS + 2;
  spec specs[N_KINDS + 2];
  memcpy(specs, known, sizeof known);
  memcpy(specs + 2, every_kind, sizeof every_kind);
  br_arena *arena = br_arena_new();
  br_schema *schema = make_schema(specs, n);
  br_vec vecs[N_KINDS + 2];
  uint32_t *order = br_arena_alloc(arena, (rows + 1) * sizeof *order);
  rng r = {rows};
  known_vecs(arena, rows, vecs);
  for (size_t i = 0; i < N_KINDS; i++) make_vec(arena, &every_kind[i], rows, 20, &r, &vecs[i + 2]);
  for (uint32_t i = 0; i < rows; i++) order[i] = i;
  br_colset *c;
  br_buf head = {0}, body = {0}, out = {0};
  TRY(br_ipc_encode_schema(schema, &head, &err));
  TRY(br_ipc_frame(&head, NULL, &out, &err));
  TRY(br_colset_new(schema, &c, &err));
  for (uint32_t half = 0; half < 2; half++) {
    uint32_t from = half * (rows / 2), to = half == 0 ? rows / 2 : rows;
    br_buf_clear(&head);
    br_buf_clear(&body);
    TRY(br_colset_append(c, vecs, order + from, to - from, &err));
    TRY(br_colset_encode(c, codec, &head, &body, false, &err));
    TRY(br_ipc_frame(&head, &body, &out, &err));
  }
  br_buf_add(&out, br_ipc_end_mark, 8);
  TRY(br_write_all(1, out.data, out.len, &err));
  br_buf_free(&head);
  br_buf_free(&body);
  br_buf_free(&out);
  br_colset_free(c);
  br_schema_unref(schema);
  br_arena_free(arena);
  return 0;
}
