/* SPDX-License-Identifier: Apache-2.0
 * See decode.h. A value is copied one by one from a view of the encoded array to a builder of the plain one: some 20 ns each, which is small
 * beside what its reader does with it. Order: the schema once, then each batch. Threads: none. Bounds: DEPTH_MOST levels; a column that is copied
 * takes what its decoded form needs. */
#include "arrow/decode.h"

#include <string.h>

#define DEPTH_MOST 64

static br_status no_memory(br_error *err) {
  return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_USER, "no memory to decode an Arrow column");
}

static bool is_runs(const struct ArrowSchema *s) { return strcmp(s->format, "+r") == 0 && s->n_children == 2; }

static bool is_half(const struct ArrowSchema *s) { return strcmp(s->format, "e") == 0; }

static bool is_encoded(const struct ArrowSchema *s) {
  if (s->dictionary != NULL || is_runs(s) || is_half(s)) return true;
  for (int64_t i = 0; i < s->n_children; i++)
    if (is_encoded(s->children[i])) return true;
  return false;
}

static br_status decode_type(const struct ArrowSchema *in, struct ArrowSchema *out, int depth, br_error *err) {
  if (depth > DEPTH_MOST)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "the column \"%s\" is nested in more than %d levels",
                   in->name ? in->name : "", DEPTH_MOST);
  const struct ArrowSchema *values = in->dictionary != NULL ? in->dictionary : is_runs(in) ? in->children[1] : NULL;
  if (values != NULL) {
    BR_TRY(decode_type(values, out, depth + 1, err));
    out->flags |= ARROW_FLAG_NULLABLE;
    return ArrowSchemaSetName(out, in->name) == NANOARROW_OK ? BR_OK : no_memory(err);
  }
  if (!is_encoded(in)) return ArrowSchemaDeepCopy(in, out) == NANOARROW_OK ? BR_OK : no_memory(err);
  ArrowSchemaInit(out);
  if (ArrowSchemaSetFormat(out, is_half(in) ? "f" : in->format) != NANOARROW_OK ||
      ArrowSchemaSetName(out, in->name) != NANOARROW_OK || ArrowSchemaSetMetadata(out, in->metadata) != NANOARROW_OK ||
      ArrowSchemaAllocateChildren(out, in->n_children) != NANOARROW_OK)
    return no_memory(err);
  out->flags = in->flags;
  for (int64_t i = 0; i < in->n_children; i++) BR_TRY(decode_type(in->children[i], out->children[i], depth + 1, err));
  return BR_OK;
}

br_status br_schema_decode(const struct ArrowSchema *in, struct ArrowSchema *out, bool *encoded, br_error *err) {
  out->release = NULL;
  *encoded = is_encoded(in);
  br_status status = decode_type(in, out, 0, err);
  if (status != BR_OK && out->release != NULL) out->release(out);
  return status;
}

/* ---- values */

/* The run that holds value i (with the view's offset): the first whose end is behind it. */
static int64_t run_of(const struct ArrowArrayView *v, int64_t i) {
  const struct ArrowArrayView *ends = v->children[0];
  int64_t low = 0, high = ends->length, at = i + v->offset;
  while (low < high) {
    int64_t mid = low + (high - low) / 2;
    if (ArrowArrayViewGetIntUnsafe(ends, mid) <= at)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static int append(const struct ArrowArrayView *v, int64_t i, struct ArrowArray *out);

static int append_range(const struct ArrowArrayView *v, int64_t first, int64_t last, struct ArrowArray *out) {
  if (first < 0 || last > v->length) return EINVAL;
  for (int64_t i = first; i < last; i++) NANOARROW_RETURN_NOT_OK(append(v, i, out));
  return NANOARROW_OK;
}

static int append_nested(const struct ArrowArrayView *v, int64_t i, struct ArrowArray *out) {
  if (v->storage_type == NANOARROW_TYPE_STRUCT) {
    for (int64_t c = 0; c < v->n_children; c++)
      NANOARROW_RETURN_NOT_OK(append_range(v->children[c], v->offset + i, v->offset + i + 1, out->children[c]));
  } else if (v->storage_type == NANOARROW_TYPE_FIXED_SIZE_LIST) {
    int64_t n = v->layout.child_size_elements, first = (v->offset + i) * n;
    NANOARROW_RETURN_NOT_OK(append_range(v->children[0], first, first + n, out->children[0]));
  } else {
    int64_t first = ArrowArrayViewListChildOffset(v, v->offset + i),
            last = ArrowArrayViewListChildOffset(v, v->offset + i + 1);
    NANOARROW_RETURN_NOT_OK(append_range(v->children[0], first, last, out->children[0]));
  }
  return ArrowArrayFinishElement(out);
}

static int append_wide(const struct ArrowArrayView *v, int64_t i, struct ArrowArray *out) {
  struct ArrowDecimal decimal;
  struct ArrowInterval interval;
  switch (v->storage_type) {
    case NANOARROW_TYPE_DECIMAL32: ArrowDecimalInit(&decimal, 32, 9, 0); break;
    case NANOARROW_TYPE_DECIMAL64: ArrowDecimalInit(&decimal, 64, 18, 0); break;
    case NANOARROW_TYPE_DECIMAL128: ArrowDecimalInit(&decimal, 128, 38, 0); break;
    case NANOARROW_TYPE_DECIMAL256: ArrowDecimalInit(&decimal, 256, 76, 0); break;
    default:
      ArrowIntervalInit(&interval, v->storage_type);
      ArrowArrayViewGetIntervalUnsafe(v, i, &interval);
      return ArrowArrayAppendInterval(out, &interval);
  }
  ArrowArrayViewGetDecimalUnsafe(v, i, &decimal);
  return ArrowArrayAppendDecimal(out, &decimal);
}

static int append(const struct ArrowArrayView *v, int64_t i, struct ArrowArray *out) {
  if (v->storage_type == NANOARROW_TYPE_RUN_END_ENCODED) {
    int64_t run = run_of(v, i);
    return append_range(v->children[1], run, run + 1, out);
  }
  if (v->storage_type == NANOARROW_TYPE_NA || ArrowArrayViewIsNull(v, i)) return ArrowArrayAppendNull(out, 1);
  if (v->dictionary != NULL) {
    int64_t at = ArrowArrayViewGetIntUnsafe(v, i);
    return append_range(v->dictionary, at, at + 1, out);
  }
  switch (v->storage_type) {
    case NANOARROW_TYPE_BOOL:
    case NANOARROW_TYPE_INT8:
    case NANOARROW_TYPE_INT16:
    case NANOARROW_TYPE_INT32:
    case NANOARROW_TYPE_INT64: return ArrowArrayAppendInt(out, ArrowArrayViewGetIntUnsafe(v, i));
    case NANOARROW_TYPE_UINT8:
    case NANOARROW_TYPE_UINT16:
    case NANOARROW_TYPE_UINT32:
    case NANOARROW_TYPE_UINT64: return ArrowArrayAppendUInt(out, ArrowArrayViewGetUIntUnsafe(v, i));
    case NANOARROW_TYPE_HALF_FLOAT:
    case NANOARROW_TYPE_FLOAT:
    case NANOARROW_TYPE_DOUBLE: return ArrowArrayAppendDouble(out, ArrowArrayViewGetDoubleUnsafe(v, i));
    case NANOARROW_TYPE_STRING:
    case NANOARROW_TYPE_LARGE_STRING:
    case NANOARROW_TYPE_STRING_VIEW:
    case NANOARROW_TYPE_BINARY:
    case NANOARROW_TYPE_LARGE_BINARY:
    case NANOARROW_TYPE_BINARY_VIEW:
    case NANOARROW_TYPE_FIXED_SIZE_BINARY: return ArrowArrayAppendBytes(out, ArrowArrayViewGetBytesUnsafe(v, i));
    case NANOARROW_TYPE_DECIMAL32:
    case NANOARROW_TYPE_DECIMAL64:
    case NANOARROW_TYPE_DECIMAL128:
    case NANOARROW_TYPE_DECIMAL256:
    case NANOARROW_TYPE_INTERVAL_MONTHS:
    case NANOARROW_TYPE_INTERVAL_DAY_TIME:
    case NANOARROW_TYPE_INTERVAL_MONTH_DAY_NANO: return append_wide(v, i, out);
    case NANOARROW_TYPE_STRUCT:
    case NANOARROW_TYPE_LIST:
    case NANOARROW_TYPE_LARGE_LIST:
    case NANOARROW_TYPE_MAP:
    case NANOARROW_TYPE_FIXED_SIZE_LIST: return append_nested(v, i, out);
    default: return ENOTSUP;
  }
}

/* ---- batches */

static br_status decode_column(const struct ArrowSchema *in, const struct ArrowSchema *out, struct ArrowArray *from,
                               int64_t first, int64_t rows, br_error *err) {
  struct ArrowArrayView view;
  struct ArrowArray made = {0};
  int code = ArrowArrayViewInitFromSchema(&view, in, NULL);
  if (code == 0) code = ArrowArrayViewSetArray(&view, from, NULL);
  if (code == 0) code = ArrowArrayInitFromSchema(&made, out, NULL);
  if (code == 0) code = ArrowArrayStartAppending(&made);
  if (code == 0) code = append_range(&view, first, first + rows, &made);
  if (code == 0) code = ArrowArrayFinishBuildingDefault(&made, NULL);
  ArrowArrayViewReset(&view);
  if (code == 0) {
    from->release(from);
    *from = made;
    return BR_OK;
  }
  if (made.release != NULL) made.release(&made);
  if (code == ENOMEM) return no_memory(err);
  return br_fail(err, code == ENOTSUP ? BR_UNSUPPORTED : BR_INVALID, BR_BLAME_USER,
                 code == ENOTSUP ? "the encoded column \"%s\" holds an Arrow type that can't be decoded: cast it first"
                                 : "the encoded column \"%s\" names values that it does not have",
                 in->name ? in->name : "");
}

br_status br_array_decode(const struct ArrowSchema *in, const struct ArrowSchema *out, struct ArrowArray *array,
                          br_error *err) {
  struct ArrowArray plain;
  br_status status = BR_OK;
  if (ArrowArrayInitFromType(&plain, NANOARROW_TYPE_STRUCT) != NANOARROW_OK) {
    array->release(array);
    return no_memory(err);
  }
  if (ArrowArrayAllocateChildren(&plain, array->n_children) != NANOARROW_OK) status = no_memory(err);
  plain.length = array->length;
  plain.offset = 0;
  for (int64_t i = 0; i < array->n_children && status == BR_OK; i++) {
    struct ArrowArray *c = array->children[i];
    if (is_encoded(in->children[i])) {
      status = decode_column(in->children[i], out->children[i], c, array->offset, array->length, err);
    } else { /* the batch's own offset becomes the column's */
      c->offset += array->offset;
      c->length = array->length;
      if (c->null_count > 0) c->null_count = -1; /* of fewer rows, perhaps */
    }
    if (status == BR_OK) ArrowArrayMove(c, plain.children[i]);
  }
  array->release(array);
  if (status == BR_OK)
    *array = plain;
  else
    plain.release(&plain);
  return status;
}
