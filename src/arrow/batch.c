/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: shared schemas and record batches.
 * Order of calls: br_schema_new, br_batch_new over it; ref and unref in any order; br_batch_export hands out views.
 * Threads: everything is immutable but the atomic reference counts.
 * Bounds: see layout.h for schemas; a batch holds what its maker says in `bytes`.
 */
#include "arrow/batch.h"
#include "arrow/layout.h"
#include "arrow/tree.h"
#include "base/mem.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct br_schema {
  _Atomic uint32_t refs;
  struct ArrowSchema arrow;
  br_layout layout;
};

struct br_batch {
  _Atomic uint32_t refs;
  br_schema *schema;
  struct ArrowArray array;
  uint64_t bytes;
};

br_status br_schema_new(struct ArrowSchema *schema, br_schema **out, br_error *err) {
  if (schema->release == NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "the Arrow schema was already released");
  br_schema *s = br_calloc(1, sizeof *s);
  atomic_init(&s->refs, 1);
  s->arrow = *schema;
  schema->release = NULL;
  br_status status = br_layout_parse(&s->arrow, &s->layout, err);
  if (status != BR_OK) {
    br_schema_unref(s);
    return status;
  }
  *out = s;
  return BR_OK;
}

br_schema *br_schema_ref(br_schema *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void br_schema_unref(br_schema *s) {
  if (s == NULL || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  br_layout_free(&s->layout);
  if (s->arrow.release != NULL) s->arrow.release(&s->arrow);
  free(s);
}

const struct ArrowSchema *br_schema_arrow(const br_schema *s) { return &s->arrow; }
int br_schema_columns(const br_schema *s) { return (int)s->arrow.n_children; }
const br_layout *br_schema_layout(const br_schema *s) { return &s->layout; }

static struct ArrowStringView metadata_value(const struct ArrowSchema *s, const char *key) {
  struct ArrowStringView v = {"", 0};
  if (s->metadata == NULL) return v;
  if (ArrowMetadataGetValue(s->metadata, ArrowCharView(key), &v) != NANOARROW_OK || v.data == NULL)
    return (struct ArrowStringView){"", 0};
  return v;
}

static bool same_text(struct ArrowStringView a, struct ArrowStringView b) {
  return a.size_bytes == b.size_bytes && memcmp(a.data, b.data, (size_t)a.size_bytes) == 0;
}

/* "d:10,2,128" and "d:10,2" are the same type. */
static size_t format_length(const char *f) {
  size_t n = strlen(f);
  return n > 4 && f[0] == 'd' && f[1] == ':' && strcmp(f + n - 4, ",128") == 0 && strchr(f, ',') != f + n - 4 ? n - 4
                                                                                                              : n;
}

static bool same_type(const struct ArrowSchema *a, const struct ArrowSchema *b, const char *column, br_buf *why) {
  size_t n = format_length(a->format);
  if (n != format_length(b->format) || memcmp(a->format, b->format, n) != 0) {
    br_buf_printf(why, "column '%s' is '%s' on one side and '%s' on the other", column, a->format, b->format);
    return false;
  }
  static const char *const keys[] = {"ARROW:extension:name", "ARROW:extension:metadata"};
  for (int i = 0; i < 2; i++) {
    struct ArrowStringView x = metadata_value(a, keys[i]), y = metadata_value(b, keys[i]);
    if (same_text(x, y)) continue;
    br_buf_printf(why, "column '%s' has %s '%.*s' on one side and '%.*s' on the other", column, keys[i] + 6,
                  (int)x.size_bytes, x.data, (int)y.size_bytes, y.data);
    return false;
  }
  if (a->n_children != b->n_children || (a->dictionary == NULL) != (b->dictionary == NULL)) {
    br_buf_printf(why, "column '%s' has %lld parts on one side and %lld on the other", column, (long long)a->n_children,
                  (long long)b->n_children);
    return false;
  }
  for (int64_t i = 0; i < a->n_children; i++)
    if (!same_type(a->children[i], b->children[i], column, why)) return false;
  return a->dictionary == NULL || same_type(a->dictionary, b->dictionary, column, why);
}

bool br_schema_same_types(const br_schema *a, const br_schema *b, br_buf *why) {
  if (a == b) return true;
  if (a->arrow.n_children != b->arrow.n_children) {
    br_buf_printf(why, "%lld columns on one side and %lld on the other", (long long)a->arrow.n_children,
                  (long long)b->arrow.n_children);
    return false;
  }
  for (int64_t i = 0; i < a->arrow.n_children; i++) {
    const struct ArrowSchema *x = a->arrow.children[i], *y = b->arrow.children[i];
    if (!same_type(x, y, x->name != NULL ? x->name : "", why)) return false;
  }
  return true;
}

br_status br_batch_new(br_schema *schema, struct ArrowArray *array, uint64_t bytes, br_batch **out, br_error *err) {
  if (array->release == NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_INTERNAL, "the Arrow array was already released");
  if (array->n_children != schema->arrow.n_children || array->length < 0 || array->offset < 0) {
    long long columns = (long long)array->n_children, length = (long long)array->length;
    array->release(array);
    return br_fail(err, BR_INVALID, BR_BLAME_INTERNAL,
                   "the Arrow array has %lld columns and length %lld, its schema has %lld columns", columns, length,
                   (long long)schema->arrow.n_children);
  }
  br_batch *b = br_calloc(1, sizeof *b);
  atomic_init(&b->refs, 1);
  b->schema = br_schema_ref(schema);
  b->array = *array;
  array->release = NULL;
  b->bytes = bytes;
  *out = b;
  return BR_OK;
}

br_batch *br_batch_ref(br_batch *b) {
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  return b;
}

void br_batch_unref(br_batch *b) {
  if (b == NULL || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
  if (b->array.release != NULL) b->array.release(&b->array);
  br_schema_unref(b->schema);
  free(b);
}

int64_t br_batch_rows(const br_batch *b) { return b->array.length; }
uint64_t br_batch_bytes(const br_batch *b) { return b->bytes; }
br_schema *br_batch_schema(const br_batch *b) { return b->schema; }
const struct ArrowArray *br_batch_arrow(const br_batch *b) { return &b->array; }

static void count_arrays(const struct ArrowArray *a, size_t *nodes, size_t *children) {
  ++*nodes;
  *children += (size_t)a->n_children;
  for (int64_t i = 0; i < a->n_children; i++) count_arrays(a->children[i], nodes, children);
  if (a->dictionary != NULL) count_arrays(a->dictionary, nodes, children);
}

/* The copies borrow the buffer pointers: the batch's own arrays keep them. */
static struct ArrowArray *view_of(br_tree *t, const struct ArrowArray *a) {
  struct ArrowArray *v = br_tree_add(t, (size_t)a->n_children, 0);
  v->length = a->length;
  v->null_count = a->null_count;
  v->offset = a->offset;
  v->n_buffers = a->n_buffers;
  v->buffers = a->buffers;
  for (int64_t i = 0; i < a->n_children; i++) v->children[i] = view_of(t, a->children[i]);
  if (a->dictionary != NULL) v->dictionary = view_of(t, a->dictionary);
  return v;
}

static void unref_batch(void *arg) { br_batch_unref(arg); }

void br_batch_export(br_batch *b, struct ArrowArray *out) {
  size_t nodes = 0, children = 0;
  count_arrays(&b->array, &nodes, &children);
  br_tree *t = br_tree_new(nodes, children, 0, unref_batch, br_batch_ref(b));
  view_of(t, &b->array);
  br_tree_finish(t, out);
}
