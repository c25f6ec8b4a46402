/* SPDX-License-Identifier: Apache-2.0
 * ipc_read CODEC < stream > stream: decode an Arrow stream from somebody else, walk every value, encode it again. */
#include "arrow/ipc.h"
#include "arrow_walk.h"
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

static br_error err;

static int one_message(const char *head, size_t head_bytes, const char *body, br_codec codec, br_schema **schema,
                       uint64_t *body_bytes, br_buf *out) {
  bool is_schema;
  int64_t rows;
  br_buf h = {0}, b = {0};
  TRY(br_ipc_peek(head, head_bytes, &is_schema, &rows, body_bytes, &err));
  if (is_schema) {
    TRY(br_ipc_decode_schema(head, head_bytes, schema, &err));
    TRY(br_ipc_encode_schema(*schema, &h, &err));
    TRY(br_ipc_frame(&h, NULL, out, &err));
  } else {
    br_batch *batch;
    TRY(br_ipc_decode_batch(*schema, head, head_bytes, (br_ipc_body){body, *body_bytes, NULL, NULL}, &batch, &err));
    if (br_batch_rows(batch) != rows) return 1;
    walk_batch(batch, INT64_MAX);
    TRY(br_ipc_encode_array(batch, codec, &h, &b, &err));
    TRY(br_ipc_frame(&h, &b, out, &err));
    br_batch_unref(batch);
  }
  br_buf_free(&h);
  br_buf_free(&b);
  return 0;
}

int main(int argc, char **argv) {
  br_buf in = {0}, out = {0};
  br_codec codec;
  br_schema *schema = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: ipc_read none|lz4|zstd\n");
    return 2;
  }
  TRY(br_codec_parse(argv[1], &codec, &err));
  for (size_t n = 1; n > 0; in.len += n) {
    br_buf_reserve(&in, 1 << 16);
    n = fread(in.data + in.len, 1, 1 << 16, stdin);
  }
  size_t at = 0;
  while (at + 8 <= in.len && memcmp(in.data + at, br_ipc_end_mark, 8) != 0) {
    uint32_t head_bytes;
    uint64_t body_bytes = 0;
    memcpy(&head_bytes, in.data + at + 4, 4);
    if (memcmp(in.data + at, "\xff\xff\xff\xff", 4) != 0 || head_bytes > in.len - at - 8) return 3;
    const char *head = in.data + at + 8;
    if (one_message(head, head_bytes, head + head_bytes, codec, &schema, &body_bytes, &out) != 0) return 1;
    at += 8 + head_bytes + body_bytes;
  }
  br_buf_add(&out, br_ipc_end_mark, 8);
  TRY(br_write_all(1, out.data, out.len, &err));
  br_schema_unref(schema);
  br_buf_free(&in);
  br_buf_free(&out);
  return 0;
}
