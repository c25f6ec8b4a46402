/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: results as callers get them. Between our processes a BOOLEAN is a byte a row (arrow.bool8), a narrow DECIMAL has 4 or 8
 * bytes, and a HUGEINT is an opaque extension type: DuckDB's lossless forms. Pandas and polars read the first as small integers, and
 * not every reader knows the others; so who calls us gets what DuckDB gives by default: bits, and DECIMALs of 16 bytes.
 * Order of calls: br_schema_plain over a copy of the schema, br_array_plain over each exported array, with the schema as it was.
 * Threads: none; an array may be released on another thread than its parent, as always.
 * Bounds: a column that changes is copied, at most 16 bytes a row of the batch; the copy goes with its array.
 */
#include "arrow/batch.h"
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ArrowStringView metadata_value(const struct ArrowSchema *s, const char *key) {
  struct ArrowStringView v = {"", 0};
  if (s->metadata == NULL) return v;
  if (ArrowMetadataGetValue(s->metadata, ArrowCharView(key), &v) != NANOARROW_OK || v.data == NULL)
    return (struct ArrowStringView){"", 0};
  return v;
}

static bool is_hugeint(const struct ArrowSchema *s) {
  struct ArrowStringView type = metadata_value(s, "ARROW:extension:metadata");
  char text[160];
  snprintf(text, sizeof text, "%.*s", (int)type.size_bytes, type.data);
  return strcmp(s->format, "w:16") == 0 && strstr(text, "\"hugeint\"") != NULL;
}

static bool is_bool8(const struct ArrowSchema *s) {
  static const char name[] = "arrow.bool8";
  struct ArrowStringView v = metadata_value(s, "ARROW:extension:name");
  return strcmp(s->format, "c") == 0 && v.size_bytes == sizeof name - 1 && memcmp(v.data, name, sizeof name - 1) == 0;
}

/* The bytes of a DECIMAL that has less than 16, else 0. */
static size_t narrow_decimal(const struct ArrowSchema *s, unsigned *precision, unsigned *scale) {
  unsigned bits;
  char more;
  if (sscanf(s->format, "d:%u,%u,%u%c", precision, scale, &bits, &more) != 3) return 0;
  return bits == 32 || bits == 64 ? bits / 8 : 0;
}

static int plain_type(struct ArrowSchema *s) {
  unsigned precision, scale;
  char format[32];
  if (is_hugeint(s)) {
    NANOARROW_RETURN_NOT_OK(ArrowSchemaSetFormat(s, "d:38,0"));
    return ArrowSchemaSetMetadata(s, NULL);
  }
  if (is_bool8(s)) {
    NANOARROW_RETURN_NOT_OK(ArrowSchemaSetFormat(s, "b"));
    return ArrowSchemaSetMetadata(s, NULL);
  }
  if (narrow_decimal(s, &precision, &scale) == 0) return NANOARROW_OK;
  snprintf(format, sizeof format, "d:%u,%u", precision, scale);
  return ArrowSchemaSetFormat(s, format);
}

int br_schema_plain(struct ArrowSchema *s) {
  int status = plain_type(s);
  for (int64_t i = 0; i < s->n_children && status == NANOARROW_OK; i++) status = br_schema_plain(s->children[i]);
  return status;
}

/* ---- arrays: one that changes keeps its own release behind ours */

typedef struct replaced {
  void (*release)(struct ArrowArray *);
  void *private_data;
  const void **buffers; /* as they were */
  const void *now[2];
  void *data;
} replaced;

static void release_replaced(struct ArrowArray *a) {
  replaced *r = a->private_data;
  a->buffers = r->buffers;
  a->private_data = r->private_data;
  a->release = r->release;
  free(r->data);
  free(r);
  a->release(a);
}

static void replace_data(struct ArrowArray *a, void *data) {
  replaced *r = br_calloc(1, sizeof *r);
  *r = (replaced){a->release, a->private_data, a->buffers, {a->buffers[0], data}, data};
  a->buffers = r->now;
  a->private_data = r;
  a->release = release_replaced;
}

static void pack_bits(struct ArrowArray *a) {
  const uint8_t *from = a->buffers[1];
  int64_t end = a->offset + a->length;
  uint8_t *bits = br_calloc((size_t)end / 8 + 1, 1);
  for (int64_t i = a->offset; i < end; i++) bits[i / 8] |= (uint8_t)((from[i] != 0) << (i % 8));
  replace_data(a, bits);
}

static void widen(struct ArrowArray *a, size_t bytes) {
  const uint8_t *from = a->buffers[1];
  int64_t end = a->offset + a->length;
  int64_t *wide = br_calloc((size_t)end + 1, 2 * sizeof *wide);
  for (int64_t i = a->offset; i < end; i++) {
    int32_t narrow;
    int64_t value;
    if (bytes == sizeof narrow) {
      memcpy(&narrow, from + i * (int64_t)bytes, sizeof narrow);
      value = narrow;
    } else {
      memcpy(&value, from + i * (int64_t)bytes, sizeof value);
    }
    wide[2 * i] = value;
    wide[2 * i + 1] = value < 0 ? -1 : 0;
  }
  replace_data(a, wide);
}

void br_array_plain(const struct ArrowSchema *s, struct ArrowArray *a) {
  unsigned precision, scale;
  if (a->n_buffers == 2 && a->buffers[1] != NULL) { /* no data: no rows */
    size_t bytes = narrow_decimal(s, &precision, &scale);
    if (bytes > 0)
      widen(a, bytes);
    else if (is_bool8(s))
      pack_bits(a);
  }
  for (int64_t i = 0; i < a->n_children && i < s->n_children; i++) br_array_plain(s->children[i], a->children[i]);
}
