/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: schema messages, by nanoarrow's encoder and decoder, with what they take for granted checked first.
 * Order of calls: any.
 * Threads: no state.
 * Bounds: fb_bound.c and layout.h.
 */
#include "arrow/ipc_message.h"
#include "arrow/layout.h"
#include "base/mem.h"
#include <nanoarrow/nanoarrow_ipc.h>
#include <stdlib.h>
#include <string.h>

static bool is_map(const struct ArrowSchema *s) { return strcmp(s->format, "+m") == 0; }

/* The C data interface allows a NULL name, and some producers say that a map's entries or keys may be NULL; nanoarrow's
 * encoder allows neither. */
static bool needs_change(const struct ArrowSchema *s) {
  if (is_map(s) && ((s->children[0]->flags | s->children[0]->children[0]->flags) & ARROW_FLAG_NULLABLE) != 0)
    return true;
  for (int64_t i = 0; i < s->n_children; i++)
    if (s->children[i]->name == NULL || needs_change(s->children[i])) return true;
  return false;
}

static int change(struct ArrowSchema *s) {
  if (is_map(s)) {
    s->children[0]->flags &= ~ARROW_FLAG_NULLABLE;
    s->children[0]->children[0]->flags &= ~ARROW_FLAG_NULLABLE;
  }
  for (int64_t i = 0; i < s->n_children; i++) {
    struct ArrowSchema *c = s->children[i];
    if (c->name == NULL) NANOARROW_RETURN_NOT_OK(ArrowSchemaSetName(c, ""));
    NANOARROW_RETURN_NOT_OK(change(c));
  }
  return NANOARROW_OK;
}

static br_status encode_failed(br_error *err, const char *why) {
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot encode an Arrow schema: %s", why);
}

br_status br_ipc_encode_schema(const br_schema *s, br_buf *head, br_error *err) {
  BR_TRY(br_layout_check(br_schema_layout(s), err));
  const struct ArrowSchema *schema = br_schema_arrow(s);
  struct ArrowSchema copy = {0};
  struct ArrowIpcEncoder encoder = {0};
  struct ArrowBuffer out;
  struct ArrowError na = {""};
  br_status status = BR_OK;
  ArrowBufferInit(&out);
  if (needs_change(schema)) {
    if (ArrowSchemaDeepCopy(schema, &copy) != NANOARROW_OK || change(&copy) != NANOARROW_OK) {
      status = encode_failed(err, "out of memory");
      goto done;
    }
    schema = &copy;
  }
  if (ArrowIpcEncoderInit(&encoder) != NANOARROW_OK ||
      ArrowIpcEncoderEncodeSchema(&encoder, schema, &na) != NANOARROW_OK ||
      ArrowIpcEncoderFinalizeBuffer(&encoder, 0, &out) != NANOARROW_OK) {
    status = encode_failed(err, na.message);
    goto done;
  }
  static const char zeros[8] = {0};
  br_buf_add(head, out.data, (size_t)out.size_bytes);
  br_buf_add(head, zeros, (8 - (size_t)out.size_bytes % 8) % 8);
done:
  if (copy.release != NULL) copy.release(&copy);
  if (encoder.private_data != NULL) ArrowIpcEncoderReset(&encoder);
  ArrowBufferReset(&out);
  return status;
}

static br_status decode_failed(br_error *err, int code, const char *why) {
  if (code == ENOTSUP) return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "Arrow schema: %s", why);
  return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "Arrow schema: %s", why);
}

/* The message with nanoarrow's stream prefix before it, in aligned memory. */
static uint8_t *with_prefix(const br_message *m, size_t bytes) {
  uint8_t *p = br_malloc(bytes + 8);
  memset(p, 0xff, 4);
  for (int i = 0; i < 4; i++) p[4 + i] = (uint8_t)(bytes >> (8 * i));
  memcpy(p + 8, m->bytes, bytes);
  return p;
}

static br_status decode(struct ArrowIpcDecoder *decoder, const uint8_t *p, size_t bytes, br_schema **out,
                        br_error *err) {
  struct ArrowError na = {""};
  struct ArrowBufferView view = {{p}, (int64_t)bytes};
  struct ArrowSchema schema = {0};
  int code = ArrowIpcDecoderDecodeHeader(decoder, view, &na);
  if (code == NANOARROW_OK && decoder->endianness != NANOARROW_IPC_ENDIANNESS_LITTLE)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "Arrow schema: big-endian data isn't read");
  if (code == NANOARROW_OK) code = ArrowIpcDecoderDecodeSchema(decoder, &schema, &na);
  if (code != NANOARROW_OK) return decode_failed(err, code, na.message);
  br_schema *s;
  BR_TRY(br_schema_new(&schema, &s, err));
  br_status status = br_layout_check(br_schema_layout(s), err);
  if (status != BR_OK)
    br_schema_unref(s);
  else
    *out = s;
  return status;
}

br_status br_ipc_decode_schema(const void *head, size_t head_bytes, br_schema **out, br_error *err) {
  br_message m;
  BR_TRY(br_message_open(head, head_bytes, &m, err));
  struct ArrowIpcDecoder decoder = {0};
  uint8_t *p = NULL;
  br_status status = BR_OK;
  if (m.type != ns(MessageHeader_Schema)) {
    status = br_message_corrupt(err, "a schema was expected");
    goto done;
  }
  if (ArrowIpcDecoderInit(&decoder) != NANOARROW_OK) {
    status = br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_WORKER, "no memory to read an Arrow schema");
    goto done;
  }
  p = with_prefix(&m, head_bytes);
  status = decode(&decoder, p, head_bytes + 8, out, err);
done:
  if (decoder.private_data != NULL) ArrowIpcDecoderReset(&decoder);
  free(p);
  br_message_close(&m);
  return status;
}
