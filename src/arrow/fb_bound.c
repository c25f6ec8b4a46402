/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: bound the work that a Message flatbuffer can cause, before the generated verifier and nanoarrow see it.
 *   A flatbuffer is a graph: two list entries may point at the same child, so 64 levels of two entries each are 2^64 visits
 *   for the verifier and as many fields for the decoder. This walk visits in the same way, with a budget.
 * Order of calls: br_fb_bound, then Message_verify_as_root, then the accessors.
 * Threads: no state.
 * Bounds: BR_IPC_MAX_SCHEMA_BYTES unfolded, BR_SCHEMA_MAX_NODES fields, BR_SCHEMA_MAX_DEPTH levels.
 */
#include "arrow/ipc_message.h"
#include "arrow/layout.h"
#include <string.h>

typedef struct walk {
  const uint8_t *buf;
  size_t size;
  uint64_t bytes_left;
  uint32_t fields_left;
  br_error *err;
} walk;

/* Field ids, from Arrow's format/Message.fbs and Schema.fbs. */
enum { MESSAGE_TYPE = 1, MESSAGE_HEADER = 2, MESSAGE_METADATA = 4 };
enum { SCHEMA_FIELDS = 1, SCHEMA_METADATA = 2 };
enum { FIELD_NAME = 0, FIELD_TYPE = 3, FIELD_DICTIONARY = 4, FIELD_CHILDREN = 5, FIELD_METADATA = 6 };
enum { KV_KEY = 0, KV_VALUE = 1 };
enum { HEADER_SCHEMA = 1 };

static br_status bad(walk *w, const char *why) { return br_message_corrupt(w->err, why); }

static bool inside(const walk *w, uint64_t pos, uint64_t bytes) { return pos <= w->size && bytes <= w->size - pos; }

static uint32_t u32(const walk *w, uint64_t pos) {
  uint32_t v;
  memcpy(&v, w->buf + pos, 4);
  return v;
}

static uint32_t u16(const walk *w, uint64_t pos) {
  uint16_t v;
  memcpy(&v, w->buf + pos, 2);
  return v;
}

static br_status spend(walk *w, uint64_t bytes) {
  if (bytes > w->bytes_left) return bad(w, "its schema unfolds to more than this version reads");
  w->bytes_left -= bytes;
  return BR_OK;
}

/* Where field `id` of the table at `table` is; *pos 0: absent. */
static br_status field_at(walk *w, uint64_t table, unsigned id, unsigned bytes, uint64_t *pos) {
  *pos = 0;
  if (!inside(w, table, 4)) return bad(w, "a table is outside of it");
  int64_t vtable = (int64_t)table - (int32_t)u32(w, table);
  if (vtable < 0 || !inside(w, (uint64_t)vtable, 4)) return bad(w, "a vtable is outside of it");
  uint32_t vtable_bytes = u16(w, (uint64_t)vtable);
  if (vtable_bytes < 4 || !inside(w, (uint64_t)vtable, vtable_bytes)) return bad(w, "a vtable is outside of it");
  if (4 + 2 * (id + 1) > vtable_bytes) return BR_OK;
  uint32_t offset = u16(w, (uint64_t)vtable + 4 + 2 * id);
  if (offset == 0) return BR_OK;
  if (!inside(w, table + offset, bytes)) return bad(w, "a field is outside of it");
  *pos = table + offset;
  return BR_OK;
}

/* What the offset in field `id` points at; 0: absent. */
static br_status target(walk *w, uint64_t table, unsigned id, uint64_t *pos) {
  BR_TRY(field_at(w, table, id, 4, pos));
  if (*pos == 0) return BR_OK;
  *pos += u32(w, *pos);
  if (!inside(w, *pos, 4)) return bad(w, "an offset points outside of it");
  return BR_OK;
}

/* A vector of offsets or a string: first element and count. */
static br_status vector(walk *w, uint64_t table, unsigned id, unsigned element_bytes, uint64_t *first,
                        uint32_t *count) {
  *count = 0;
  BR_TRY(target(w, table, id, first));
  if (*first == 0) return BR_OK;
  *count = u32(w, *first);
  *first += 4;
  if (!inside(w, *first, (uint64_t)*count * element_bytes)) return bad(w, "a vector is longer than it");
  return spend(w, (uint64_t)*count * element_bytes);
}

static br_status string(walk *w, uint64_t table, unsigned id, bool required) {
  uint64_t first;
  uint32_t count;
  BR_TRY(vector(w, table, id, 1, &first, &count));
  return first == 0 && required ? bad(w, "a metadata entry has no key or no value") : BR_OK;
}

static br_status metadata(walk *w, uint64_t table, unsigned id) {
  uint64_t first;
  uint32_t count;
  BR_TRY(vector(w, table, id, 4, &first, &count));
  for (uint32_t i = 0; i < count; i++) {
    uint64_t at = first + 4 * (uint64_t)i;
    uint64_t entry = at + u32(w, at);
    BR_TRY(spend(w, 16));
    BR_TRY(string(w, entry, KV_KEY, true));
    BR_TRY(string(w, entry, KV_VALUE, true));
  }
  return BR_OK;
}

static br_status fields(walk *w, uint64_t table, unsigned id, int depth);

static br_status field(walk *w, uint64_t table, int depth) {
  if (w->fields_left-- == 0 || depth > BR_SCHEMA_MAX_DEPTH) return bad(w, "its schema has too many fields or levels");
  BR_TRY(spend(w, 64));
  uint64_t type, dictionary;
  BR_TRY(string(w, table, FIELD_NAME, false));
  BR_TRY(target(w, table, FIELD_TYPE, &type));
  if (type == 0) return bad(w, "a field has no type");
  BR_TRY(target(w, table, FIELD_DICTIONARY, &dictionary));
  if (dictionary != 0)
    return br_fail(
        w->err, BR_UNSUPPORTED, BR_BLAME_USER,
        "Arrow schema with a dictionary-encoded column: send it decoded (pyarrow: column.dictionary_decode())");
  BR_TRY(metadata(w, table, FIELD_METADATA));
  return fields(w, table, FIELD_CHILDREN, depth + 1);
}

static br_status fields(walk *w, uint64_t table, unsigned id, int depth) {
  uint64_t first;
  uint32_t count;
  BR_TRY(vector(w, table, id, 4, &first, &count));
  for (uint32_t i = 0; i < count; i++) {
    uint64_t at = first + 4 * (uint64_t)i;
    BR_TRY(field(w, at + u32(w, at), depth));
  }
  return BR_OK;
}

br_status br_fb_bound(const uint8_t *buf, size_t size, br_error *err) {
  walk w = {buf, size, BR_IPC_MAX_SCHEMA_BYTES, BR_SCHEMA_MAX_NODES - 1, err};
  if (size < 8) return bad(&w, "it's too short");
  uint64_t message = u32(&w, 0), type, header;
  BR_TRY(field_at(&w, message, MESSAGE_TYPE, 1, &type));
  BR_TRY(target(&w, message, MESSAGE_HEADER, &header));
  if (type == 0 || header == 0) return bad(&w, "it has no header");
  BR_TRY(metadata(&w, message, MESSAGE_METADATA));
  if (buf[type] != HEADER_SCHEMA) return BR_OK;
  BR_TRY(metadata(&w, header, SCHEMA_METADATA));
  return fields(&w, header, SCHEMA_FIELDS, 1);
}
