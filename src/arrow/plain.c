/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: results as callers get them. Between our processes a BOOLEAN is a byte a row (arrow.bool8), a narrow DECIMAL has 4 or 8
 * bytes, and a HUGEINT is an opaque extension type: DuckDB's lossless forms. Pandas and polars read the first as small integers, and
 * not every reader knows the others; so who calls us gets what DuckDB gives by default: bits, DECIMALs of 16 bytes, and enums as indices.
 * Order of calls: br_plain_new; br_plain_schema over a copy of the schema, br_plain_array over each exported array; free.
 * Threads: none; an array may be released on another thread than its parent, as always.
 * Bounds: a column that changes is copied, at most 16 bytes a row of the batch; the copy goes with its array.
 */
#include "arrow/plain.h"
#include "arrow/enums.h"
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

struct br_plain {
  const struct ArrowSchema *schema; /* of the field, as it was */
  br_enums *values;                 /* NULL: it is no enum */
  br_plain **children;              /* [schema->n_children] */
  br_schema *whole;                 /* of the outermost one: a reference */
};

static br_plain *new_field(const struct ArrowSchema *s, bool enums) {
  br_plain *p = br_calloc(1, sizeof *p);
  p->schema = s;
  p->values = enums ? br_enums_new(s) : NULL;
  p->children = br_calloc((size_t)s->n_children + 1, sizeof(br_plain *));
  for (int64_t i = 0; i < s->n_children; i++) p->children[i] = new_field(s->children[i], enums);
  return p;
}

br_plain *br_plain_new(br_schema *schema, bool enums) {
  br_plain *p = new_field(br_schema_arrow(schema), enums);
  p->whole = br_schema_ref(schema);
  return p;
}

void br_plain_free(br_plain *p) {
  if (p == NULL) return;
  for (int64_t i = 0; i < p->schema->n_children; i++) br_plain_free(p->children[i]);
  free(p->children);
  br_enums_unref(p->values);
  br_schema_unref(p->whole);
  free(p);
}

int br_plain_schema(const br_plain *p, struct ArrowSchema *s) {
  int status = p->values != NULL ? br_enums_schema(p->values, s) : plain_type(s);
  for (int64_t i = 0; i < s->n_children && status == NANOARROW_OK; i++)
    status = br_plain_schema(p->children[i], s->children[i]);
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

br_status br_plain_array(const br_plain *p, struct ArrowArray *a, br_error *err) {
  unsigned precision, scale;
  if (p->values != NULL) return br_enums_encode(p->values, a, err);
  if (a->n_buffers == 2 && a->buffers[1] != NULL) { /* no data: no rows */
    size_t bytes = narrow_decimal(p->schema, &precision, &scale);
    if (bytes > 0)
      widen(a, bytes);
    else if (is_bool8(p->schema))
      pack_bits(a);
  }
  for (int64_t i = 0; i < a->n_children && i < p->schema->n_children; i++)
    BR_TRY(br_plain_array(p->children[i], a->children[i], err));
  return BR_OK;
}
