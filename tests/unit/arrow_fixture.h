/* SPDX-License-Identifier: Apache-2.0
 * Vectors of every kind with random values and NULLs, the Arrow schema that they fill, and a comparison of one row of a
 * vector with one row of an Arrow array. */
#ifndef BRANT_TESTS_ARROW_FIXTURE_H
#define BRANT_TESTS_ARROW_FIXTURE_H

#include "arrow/builder.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

typedef struct spec {
  const char *name, *format;
  br_vec_kind kind;
  uint32_t width, out_width;
  const char *extension;
  const struct spec *children;
  uint32_t n_children;
} spec;

#define KIDS(...) \
  .children = (const spec[]){__VA_ARGS__}, .n_children = sizeof((const spec[]){__VA_ARGS__}) / sizeof(spec)
#define FIXED(name, format, width) \
  { name, format, BR_VEC_FIXED, width, 0, NULL, NULL, 0 }
#define TEXT(name) \
  { name, "u", BR_VEC_STRING, 0, 0, NULL, NULL, 0 }

static const spec every_kind[] = {
    FIXED("i8", "c", 1),
    FIXED("i16", "s", 2),
    FIXED("i32", "i", 4),
    FIXED("i64", "l", 8),
    FIXED("u64", "L", 8),
    FIXED("f32", "f", 4),
    FIXED("f64", "g", 8),
    FIXED("date", "tdD", 4),
    FIXED("ts", "tsu:Europe/Berlin", 8),
    FIXED("time_ns", "ttn", 8),
    FIXED("dec64", "d:18,3,64", 8),
    FIXED("dec128", "d:38,10", 16),
    {"dec16in32", "d:4,1,32", BR_VEC_FIXED, 2, 4, NULL, NULL, 0},
    {"dec16in128", "d:4,1", BR_VEC_FIXED, 2, 16, NULL, NULL, 0},
    {"dec32in128", "d:9,1", BR_VEC_FIXED, 4, 16, NULL, NULL, 0},
    {"dec64in128", "d:18,1", BR_VEC_FIXED, 8, 16, NULL, NULL, 0},
    {"dec32in64", "d:9,1,64", BR_VEC_FIXED, 4, 8, NULL, NULL, 0},
    {"dec128in256", "d:38,1,256", BR_VEC_FIXED, 16, 32, NULL, NULL, 0},
    {"huge", "w:16", BR_VEC_FIXED, 16, 0, "arrow.opaque", NULL, 0},
    {"uuid", "w:16", BR_VEC_FIXED, 16, 0, "arrow.uuid", NULL, 0},
    FIXED("five", "w:5", 5),
    {"bool", "b", BR_VEC_BOOL, 0, 0, NULL, NULL, 0},
    {"bool8", "c", BR_VEC_BOOL, 0, 0, "arrow.bool8", NULL, 0},
    TEXT("text"),
    {"blob", "z", BR_VEC_STRING, 0, 0, NULL, NULL, 0},
    {"large_text", "U", BR_VEC_STRING, 0, 0, NULL, NULL, 0},
    {"large_blob", "Z", BR_VEC_STRING, 0, 0, NULL, NULL, 0},
    {"interval", "tin", BR_VEC_INTERVAL, 16, 0, NULL, NULL, 0},
    {"null", "n", BR_VEC_NULL, 0, 0, NULL, NULL, 0},
    {"list", "+l", BR_VEC_LIST, KIDS(TEXT("item"))},
    {"large_list", "+L", BR_VEC_LIST, KIDS(FIXED("item", "l", 8))},
    {"list_list", "+l", BR_VEC_LIST,
     KIDS({"item", "+l", BR_VEC_LIST, KIDS({"item", "b", BR_VEC_BOOL, 0, 0, NULL, NULL, 0})})},
    {"map", "+m", BR_VEC_MAP, KIDS({"entries", "+s", BR_VEC_STRUCT, KIDS(TEXT("key"), FIXED("value", "i", 4))})},
    {"struct", "+s", BR_VEC_STRUCT,
     KIDS(FIXED("a", "i", 4), TEXT("b"), {"c", "+l", BR_VEC_LIST, KIDS(FIXED("item", "s", 2))},
          {"d", "d:4,1", BR_VEC_FIXED, 2, 16, NULL, NULL, 0})},
    {"array", "+w:3", BR_VEC_ARRAY, 3, 0, NULL, KIDS(TEXT("item"))},
    {"array_array", "+w:2", BR_VEC_ARRAY, 2, 0, NULL,
     KIDS({"item", "+w:2", BR_VEC_ARRAY, 2, 0, NULL, KIDS({"item", "b", BR_VEC_BOOL, 0, 0, NULL, NULL, 0})})},
    {"array_list", "+w:2", BR_VEC_ARRAY, 2, 0, NULL, KIDS({"item", "+l", BR_VEC_LIST, KIDS(FIXED("item", "l", 8))})},
    {"union", "+us:0,1", BR_VEC_UNION, KIDS(FIXED("n", "i", 4), TEXT("s"))},
    {"union_ids", "+us:5,7", BR_VEC_UNION,
     KIDS({"u", "+us:0,1", BR_VEC_UNION, KIDS(FIXED("x", "c", 1), {"y", "n", BR_VEC_NULL, 0, 0, NULL, NULL, 0})},
          TEXT("s"))},
    {"list_union", "+l", BR_VEC_LIST, KIDS({"item", "+us:0,1", BR_VEC_UNION, KIDS(FIXED("n", "l", 8), TEXT("s"))})},
    {"list_null", "+l", BR_VEC_LIST, KIDS({"item", "n", BR_VEC_NULL, 0, 0, NULL, NULL, 0})},
    {"struct_deep", "+s", BR_VEC_STRUCT,
     KIDS({"a", "+s", BR_VEC_STRUCT,
           KIDS({"m", "+m", BR_VEC_MAP, KIDS({"entries", "+s", BR_VEC_STRUCT, KIDS(TEXT("key"), TEXT("value"))})})})},
};
#define N_KINDS (sizeof every_kind / sizeof every_kind[0])

/* ---- schema */

static inline void spec_schema(const spec *s, struct ArrowSchema *out) {
  ArrowSchemaInit(out);
  BR_ASSERT(ArrowSchemaSetFormat(out, s->format) == 0 && ArrowSchemaSetName(out, s->name) == 0);
  out->flags = ARROW_FLAG_NULLABLE;
  if (s->extension != NULL) {
    struct ArrowBuffer b;
    BR_ASSERT(ArrowMetadataBuilderInit(&b, NULL) == 0);
    BR_ASSERT(ArrowMetadataBuilderAppend(&b, ArrowCharView("ARROW:extension:name"), ArrowCharView(s->extension)) == 0);
    if (strcmp(s->extension, "arrow.opaque") == 0) {
      const char *what = "{\"type_name\":\"hugeint\",\"vendor_name\":\"DuckDB\"}";
      BR_ASSERT(ArrowMetadataBuilderAppend(&b, ArrowCharView("ARROW:extension:metadata"), ArrowCharView(what)) == 0);
    }
    BR_ASSERT(ArrowSchemaSetMetadata(out, (const char *)b.data) == 0);
    ArrowBufferReset(&b);
  }
  BR_ASSERT(ArrowSchemaAllocateChildren(out, s->n_children) == 0);
  for (uint32_t i = 0; i < s->n_children; i++) spec_schema(&s->children[i], out->children[i]);
  if (s->kind == BR_VEC_MAP) {
    out->children[0]->flags = 0;
    out->children[0]->children[0]->flags = 0;
  }
}

static inline br_schema *make_schema(const spec *specs, size_t n) {
  struct ArrowSchema root;
  br_schema *out;
  br_error err;
  ArrowSchemaInit(&root);
  BR_ASSERT(ArrowSchemaSetFormat(&root, "+s") == 0 && ArrowSchemaAllocateChildren(&root, (int64_t)n) == 0);
  for (size_t i = 0; i < n; i++) spec_schema(&specs[i], root.children[i]);
  BR_ASSERT(br_schema_new(&root, &out, &err) == BR_OK);
  return out;
}

/* ---- vectors */

typedef struct rng {
  uint64_t s;
} rng;

static inline uint64_t next(rng *r) {
  r->s += 0x9e3779b97f4a7c15u;
  uint64_t z = r->s;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline void *some(br_arena *a, size_t bytes) { return br_arena_alloc(a, bytes + 1); }

static inline br_vec_string make_string(br_arena *a, rng *r) {
  static const char *const words[] = {"", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "word", "0123456789"};
  static const uint32_t lengths[] = {0, 1, 5, 11, 12, 13, 15, 16, 17, 31, 32, 33, 100, 700};
  uint32_t want = lengths[next(r) % (sizeof lengths / sizeof lengths[0])];
  char *p = some(a, want + 16);
  uint32_t n = 0;
  while (n < want) {
    const char *w = words[next(r) % 7];
    if (n + strlen(w) > want) w = "z";
    memcpy(p + n, w, strlen(w));
    n += (uint32_t)strlen(w);
  }
  char *exact = memcpy(some(a, n), p, n); /* so that an over-read is seen */
  br_vec_string s = {.length = n};
  memcpy(s.inlined, exact, n < 12 ? n : n == 12 ? 12 : 4);
  if (n > 12) memcpy(s.inlined + 4, &exact, sizeof exact);
  return s;
}

static inline void make_vec(br_arena *a, const spec *s, uint32_t rows, unsigned null_percent, rng *r, br_vec *v);

static inline const br_vec *make_children(br_arena *a, const spec *s, uint32_t rows, unsigned null_percent, rng *r,
                                          br_vec *v, bool tag) {
  br_vec *kids = some(a, (s->n_children + 1) * sizeof *kids);
  v->n_children = s->n_children + tag;
  for (uint32_t i = 0; i < s->n_children; i++) make_vec(a, &s->children[i], rows, null_percent, r, &kids[i + tag]);
  return kids;
}

static inline void make_tags(br_arena *a, const spec *s, uint32_t rows, rng *r, br_vec *tag) {
  uint8_t *tags = some(a, rows);
  for (uint32_t i = 0; i < rows; i++) tags[i] = (uint8_t)(next(r) % s->n_children);
  *tag = (br_vec){.kind = BR_VEC_FIXED, .width = 1, .data = tags};
}

static inline void make_lists(br_arena *a, const spec *s, uint32_t rows, unsigned null_percent, rng *r, br_vec *v) {
  struct {
    uint64_t offset, length;
  } *e = some(a, rows * 16 + 16);
  uint64_t total = 3; /* a gap that no list uses */
  for (uint32_t i = 0; i < rows; i++) {
    e[i].offset = total;
    e[i].length = next(r) % 5 == 0 ? 700 * (rows < 100) : next(r) % 4;
    total += e[i].length;
    if (br_vec_is_null(v, i)) e[i].offset = UINT64_MAX / 2, e[i].length = 99; /* what lies under a NULL isn't read */
  }
  v->data = e;
  v->children = make_children(a, s, (uint32_t)total, s->kind == BR_VEC_MAP ? 0 : null_percent, r, v, false);
}

static inline void make_vec(br_arena *a, const spec *s, uint32_t rows, unsigned null_percent, rng *r, br_vec *v) {
  *v = (br_vec){.kind = s->kind, .width = s->width, .out_width = s->out_width};
  uint64_t *validity = some(a, (rows / 64 + 1) * 8);
  for (uint32_t i = 0; i < rows; i++)
    if (next(r) % 100 >= null_percent) validity[i / 64] |= (uint64_t)1 << (i % 64);
  if (null_percent > 0) v->validity = validity;
  size_t width = s->kind == BR_VEC_BOOL ? 1 : s->width;
  switch (s->kind) {
    case BR_VEC_BOOL:
    case BR_VEC_FIXED:
    case BR_VEC_INTERVAL: {
      uint8_t *p = some(a, rows * width);
      for (size_t i = 0; i < rows * width; i++) p[i] = s->kind == BR_VEC_BOOL ? next(r) & 1 : (uint8_t)next(r);
      for (uint32_t i = 0; s->kind == BR_VEC_INTERVAL && i < rows; i++)
        p[16 * i + 15] = p[16 * i + 14] = 0; /* x 1000 must fit */
      bool decimal = s->format[0] == 'd', time = s->format[0] == 't' && s->kind == BR_VEC_FIXED;
      for (uint32_t i = 0; (decimal || time) && i < rows; i++) { /* in the range of the type: others check it */
        int16_t small = (int16_t)((int)(next(r) % (decimal ? 19999 : 9999)) - (decimal ? 9999 : 0));
        memset(p + i * width, small < 0 ? 0xff : 0, width);
        memcpy(p + i * width, &small, 2);
      }
      v->data = p;
      break;
    }
    case BR_VEC_STRING: {
      br_vec_string *p = some(a, rows * sizeof *p);
      for (uint32_t i = 0; i < rows; i++) {
        p[i] = make_string(a, r);
        if (br_vec_is_null(v, i)) memset(&p[i], 0xee, sizeof p[i]); /* not to be followed */
      }
      v->data = p;
      break;
    }
    case BR_VEC_LIST:
    case BR_VEC_MAP: make_lists(a, s, rows, null_percent, r, v); break;
    case BR_VEC_STRUCT: v->children = make_children(a, s, rows, null_percent, r, v, false); break;
    case BR_VEC_ARRAY: v->children = make_children(a, s, rows * s->width, null_percent, r, v, false); break;
    case BR_VEC_NULL: break;
    case BR_VEC_UNION:
      v->children = make_children(a, s, rows, null_percent, r, v, true);
      make_tags(a, s, rows, r, (br_vec *)v->children);
      break;
  }
}

/* ---- comparison */

static inline bool same_value(const spec *s, const br_vec *v, uint64_t row, const struct ArrowArray *a, int64_t at);

static inline bool arrow_null(const struct ArrowArray *a, int64_t at) {
  return a->n_buffers > 0 && a->buffers[0] != NULL && !ArrowBitGet(a->buffers[0], at + a->offset);
}

static inline bool same_fixed(const spec *s, const br_vec *v, uint64_t row, const struct ArrowArray *a, int64_t at) {
  uint8_t want[32];
  uint32_t out = s->out_width != 0 ? s->out_width : s->width;
  memcpy(want, (const uint8_t *)v->data + row * s->width, s->width);
  memset(want + s->width, (want[s->width - 1] & 0x80) != 0 ? 0xff : 0, 32 - s->width);
  if (s->extension != NULL && strcmp(s->extension, "arrow.uuid") == 0) {
    uint8_t turned[16];
    for (int i = 0; i < 16; i++) turned[i] = want[15 - i];
    turned[0] ^= 0x80;
    memcpy(want, turned, 16);
  }
  if (s->kind == BR_VEC_INTERVAL) {
    int64_t micros;
    memcpy(&micros, want + 8, 8);
    micros *= 1000;
    memcpy(want + 8, &micros, 8);
  }
  return memcmp(want, (const uint8_t *)a->buffers[1] + (at + a->offset) * out, out) == 0;
}

static inline bool same_string(const spec *s, const br_vec *v, uint64_t row, const struct ArrowArray *a, int64_t at) {
  const br_vec_string *x = (const br_vec_string *)v->data + row;
  bool wide = s->format[0] == 'U' || s->format[0] == 'Z';
  at += a->offset;
  int64_t from = wide ? ((const int64_t *)a->buffers[1])[at] : ((const int32_t *)a->buffers[1])[at];
  int64_t to = wide ? ((const int64_t *)a->buffers[1])[at + 1] : ((const int32_t *)a->buffers[1])[at + 1];
  const char *p = x->length <= 12 ? x->inlined : br_vec_string_pointer(x);
  return to - from == x->length && (x->length == 0 || memcmp((const char *)a->buffers[2] + from, p, x->length) == 0);
}

static inline bool same_list(const spec *s, const br_vec *v, uint64_t row, const struct ArrowArray *a, int64_t at) {
  const uint64_t *e = (const uint64_t *)v->data + 2 * row;
  bool wide = s->format[1] == 'L';
  at += a->offset;
  int64_t from = wide ? ((const int64_t *)a->buffers[1])[at] : ((const int32_t *)a->buffers[1])[at];
  int64_t to = wide ? ((const int64_t *)a->buffers[1])[at + 1] : ((const int32_t *)a->buffers[1])[at + 1];
  if ((uint64_t)(to - from) != e[1]) return false;
  for (uint64_t i = 0; i < e[1]; i++)
    if (!same_value(&s->children[0], &v->children[0], e[0] + i, a->children[0], from + (int64_t)i)) return false;
  return true;
}

static inline bool same_union(const spec *s, const br_vec *v, uint64_t row, const struct ArrowArray *a, int64_t at) {
  int ids[2];
  BR_ASSERT(sscanf(s->format, "+us:%d,%d", &ids[0], &ids[1]) == 2);
  int id = ((const int8_t *)a->buffers[0])[at + a->offset];
  if (br_vec_is_null(v, row)) { /* the first member, NULL */
    while (s->kind == BR_VEC_UNION) {
      BR_ASSERT(sscanf(s->format, "+us:%d,", &ids[0]) == 1);
      if (((const int8_t *)a->buffers[0])[at + a->offset] != ids[0]) return false;
      at += a->offset;
      s = &s->children[0];
      a = a->children[0];
    }
    return arrow_null(a, at);
  }
  int tag = ((const uint8_t *)v->children[0].data)[row];
  return id == ids[tag] && same_value(&s->children[tag], &v->children[tag + 1], row, a->children[tag], at + a->offset);
}

static inline bool same_value(const spec *s, const br_vec *v, uint64_t row, const struct ArrowArray *a, int64_t at) {
  if (s->kind == BR_VEC_UNION) return same_union(s, v, row, a, at);
  if (s->kind == BR_VEC_NULL) return true;
  bool null = br_vec_is_null(v, row);
  if (null != arrow_null(a, at)) return false;
  if (null) return true;
  switch (s->kind) {
    case BR_VEC_BOOL: {
      bool want = ((const uint8_t *)v->data)[row] != 0;
      if (s->format[0] == 'c') return want == (((const uint8_t *)a->buffers[1])[at + a->offset] != 0);
      return want == (ArrowBitGet(a->buffers[1], at + a->offset) != 0);
    }
    case BR_VEC_FIXED:
    case BR_VEC_INTERVAL: return same_fixed(s, v, row, a, at);
    case BR_VEC_STRING: return same_string(s, v, row, a, at);
    case BR_VEC_LIST:
    case BR_VEC_MAP: return same_list(s, v, row, a, at);
    case BR_VEC_STRUCT:
      for (uint32_t i = 0; i < s->n_children; i++)
        if (!same_value(&s->children[i], &v->children[i], row, a->children[i], at + a->offset)) return false;
      return true;
    case BR_VEC_ARRAY:
      for (uint32_t i = 0; i < s->width; i++)
        if (!same_value(&s->children[0], &v->children[0], row * s->width + i, a->children[0],
                        (at + a->offset) * s->width + i))
          return false;
      return true;
    default: return false;
  }
}

#endif
