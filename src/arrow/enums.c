/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: enums for those who read results. Between our processes their values are texts; a note in the metadata of the field says
 * which texts there are, in their order, so that a column can be given out as DuckDB gives it: indices into a dictionary.
 * Order of calls: br_schema_note_enum where the types are known; br_enums_new over the values of a note, br_enums_encode on each array.
 * Threads: a br_enums may be shared; arrays are released on any thread. Bounds: a note has less than 2 GiB; one index a row.
 */
#include "arrow/enums.h"
#include "base/buf.h"
#include "base/mem.h"
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NOTE "brant.enum"
#define NO_SLOT UINT32_MAX

struct br_enums {
  _Atomic uint32_t refs;
  uint32_t n, mask;
  int32_t *ends; /* [n + 1] */
  char *texts;
  uint32_t *slots; /* [mask + 1]: a value's number, by its hash */
};

/* ---- notes: for each value its length in four bytes, and its text */

int br_schema_note_enum(struct ArrowSchema *s, const char *const *values, size_t n) {
  struct ArrowBuffer metadata;
  br_buf b = {0};
  for (size_t i = 0; i < n; i++) {
    uint32_t bytes = (uint32_t)strlen(values[i]);
    br_buf_add(&b, &bytes, sizeof bytes);
    br_buf_add(&b, values[i], bytes);
  }
  if (b.len > INT_MAX - 64) { /* it stays a text */
    br_buf_free(&b);
    return NANOARROW_OK;
  }
  int status = ArrowMetadataBuilderInit(&metadata, s->metadata);
  if (status == NANOARROW_OK)
    status = ArrowMetadataBuilderSet(&metadata, ArrowCharView(NOTE),
                                     (struct ArrowStringView){b.data ? b.data : "", (int64_t)b.len});
  if (status == NANOARROW_OK) status = ArrowSchemaSetMetadata(s, (const char *)metadata.data);
  ArrowBufferReset(&metadata);
  br_buf_free(&b);
  return status;
}

static bool note_of(const struct ArrowSchema *s, struct ArrowStringView *v) {
  *v = (struct ArrowStringView){NULL, 0};
  return s->metadata != NULL && strcmp(s->format, "u") == 0 &&
         ArrowMetadataGetValue(s->metadata, ArrowCharView(NOTE), v) == NANOARROW_OK && v->data != NULL;
}

bool br_schema_is_enum(const struct ArrowSchema *s) {
  struct ArrowStringView v;
  return note_of(s, &v);
}

/* ---- values */

static uint64_t hash_of(const char *text, size_t bytes) { return XXH3_64bits(text, bytes); }

static bool is_value(const br_enums *e, uint32_t i, const char *text, int32_t bytes) {
  return e->ends[i + 1] - e->ends[i] == bytes && memcmp(e->texts + e->ends[i], text, (size_t)bytes) == 0;
}

static uint32_t find(const br_enums *e, const char *text, int32_t bytes) {
  for (uint64_t at = hash_of(text, (size_t)bytes);; at++) {
    uint32_t i = e->slots[at & e->mask];
    if (i == NO_SLOT || is_value(e, i, text, bytes)) return i;
  }
}

br_enums *br_enums_new(const struct ArrowSchema *s) {
  struct ArrowStringView v;
  uint32_t bytes, n = 0;
  if (!note_of(s, &v)) return NULL;
  for (int64_t at = 0; at < v.size_bytes; at += (int64_t)sizeof bytes + bytes, n++)
    memcpy(&bytes, v.data + at, sizeof bytes);
  br_enums *e = br_calloc(1, sizeof *e);
  e->refs = 1;
  e->n = n;
  for (e->mask = 1; e->mask < 2 * (uint64_t)n + 1; e->mask = 2 * e->mask + 1) continue;
  e->ends = br_calloc(n + 1u, sizeof *e->ends);
  e->texts = br_malloc((size_t)v.size_bytes + 1);
  e->slots = br_malloc((e->mask + (size_t)1) * sizeof *e->slots);
  memset(e->slots, 0xff, (e->mask + (size_t)1) * sizeof *e->slots);
  const char *from = v.data;
  for (uint32_t i = 0; i < n; i++) {
    memcpy(&bytes, from, sizeof bytes);
    memcpy(e->texts + e->ends[i], from + sizeof bytes, bytes);
    e->ends[i + 1] = e->ends[i] + (int32_t)bytes;
    uint64_t at = hash_of(from + sizeof bytes, bytes);
    while (e->slots[at & e->mask] != NO_SLOT) at++;
    e->slots[at & e->mask] = i;
    from += sizeof bytes + bytes;
  }
  return e;
}

static br_enums *ref(br_enums *e) {
  atomic_fetch_add(&e->refs, 1);
  return e;
}

void br_enums_unref(br_enums *e) {
  if (e == NULL || atomic_fetch_sub(&e->refs, 1) != 1) return;
  free(e->ends);
  free(e->texts);
  free(e->slots);
  free(e);
}

/* As DuckDB chooses. */
static size_t index_bytes(const br_enums *e) { return e->n <= UINT8_MAX ? 1 : e->n <= UINT16_MAX ? 2 : 4; }

int br_enums_schema(const br_enums *e, struct ArrowSchema *s) {
  static const char *const formats[] = {[1] = "C", [2] = "S", [4] = "I"};
  NANOARROW_RETURN_NOT_OK(ArrowSchemaSetFormat(s, formats[index_bytes(e)]));
  NANOARROW_RETURN_NOT_OK(ArrowSchemaSetMetadata(s, NULL));
  NANOARROW_RETURN_NOT_OK(ArrowSchemaAllocateDictionary(s));
  ArrowSchemaInit(s->dictionary);
  return ArrowSchemaSetType(s->dictionary, NANOARROW_TYPE_STRING);
}

/* ---- arrays */

typedef struct dictionary {
  br_enums *values;
  const void *buffers[3];
} dictionary;

static void release_dictionary(struct ArrowArray *a) {
  dictionary *d = a->private_data;
  br_enums_unref(d->values);
  free(d);
  a->release = NULL;
}

static struct ArrowArray *new_dictionary(br_enums *e) {
  struct ArrowArray *a = br_calloc(1, sizeof *a);
  dictionary *d = br_calloc(1, sizeof *d);
  *d = (dictionary){ref(e), {NULL, e->ends, e->texts}};
  a->length = e->n;
  a->n_buffers = 3;
  a->buffers = d->buffers;
  a->private_data = d;
  a->release = release_dictionary;
  return a;
}

typedef struct encoded {
  void (*release)(struct ArrowArray *);
  void *private_data;
  const void **buffers; /* as they were */
  const void *now[2];
  void *indices;
} encoded;

static void release_encoded(struct ArrowArray *a) {
  encoded *x = a->private_data;
  if (a->dictionary->release != NULL) a->dictionary->release(a->dictionary);
  free(a->dictionary);
  a->dictionary = NULL;
  a->buffers = x->buffers;
  a->n_buffers = 3;
  a->private_data = x->private_data;
  a->release = x->release;
  free(x->indices);
  free(x);
  a->release(a);
}

static void put(void *indices, size_t bytes, int64_t at, uint32_t value) {
  uint8_t one = (uint8_t)value;
  uint16_t two = (uint16_t)value;
  memcpy((char *)indices + (size_t)at * bytes,
         bytes == 1   ? (void *)&one
         : bytes == 2 ? (void *)&two
                      : (void *)&value,
         bytes);
}

br_status br_enums_encode(br_enums *e, struct ArrowArray *a, br_error *err) {
  const uint8_t *valid = a->buffers[0];
  const int32_t *ends = a->buffers[1];
  const char *texts = a->buffers[2] != NULL ? a->buffers[2] : "";
  int64_t end = a->offset + a->length;
  size_t bytes = index_bytes(e);
  void *indices = br_calloc((size_t)end + 1, bytes);
  for (int64_t i = a->offset; i < end && ends != NULL; i++) {
    if (valid != NULL && !(valid[i / 8] >> (i % 8) & 1)) continue;
    int32_t length = ends[i + 1] - ends[i];
    uint32_t value = find(e, texts + ends[i], length);
    if (value == NO_SLOT && length > 0) { /* an empty one: of a row whose list or struct is NULL */
      br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "a result holds '%.*s', which is no value of its enum",
              length < 100 ? (int)length : 100, texts + ends[i]);
      free(indices);
      return (br_status)err->code;
    }
    put(indices, bytes, i, value == NO_SLOT ? 0 : value);
  }
  encoded *x = br_calloc(1, sizeof *x);
  *x = (encoded){a->release, a->private_data, a->buffers, {a->buffers[0], indices}, indices};
  a->buffers = x->now;
  a->n_buffers = 2;
  a->private_data = x;
  a->release = release_encoded;
  a->dictionary = new_dictionary(e);
  return BR_OK;
}
