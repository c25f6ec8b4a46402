/* SPDX-License-Identifier: Apache-2.0
 *
 * DuckDB's vectors as br_vec, for arrow/columns.
 *
 * COPY hands over flat top-level vectors, but below a list or a struct there may be dictionary or constant vectors (seen:
 * list_slice), which the C API cannot tell apart. So nested columns are first copied into a chunk of our own, which
 * flattens them; everything else is pointed into.
 * UUIDs go out as DuckDB keeps them: arrow/columns puts their bytes in order.
 * Order: one plan a run; one reader a thread. Threads: the plan is read-only. Bounds: a reader holds the largest chunk's
 * nested columns.
 */
#include "engine/internal.h"
#include <string.h>

typedef struct node {
  br_vec_kind kind;
  duckdb_type type;
  uint32_t width, out_width;
  uint32_t n_children;
  struct node *children;
} node;

struct br_vec_plan {
  br_arena *mem;
  size_t n;
  node *columns;
  bool *copied;                    /* nested: goes through the reader's own chunk */
  duckdb_logical_type *copy_types; /* of those columns, in order; borrowed */
  size_t n_copied;
};

struct br_vec_reader {
  const br_vec_plan *plan;
  br_arena *mem;
  br_vec *columns;
  duckdb_data_chunk copy;
  duckdb_selection_vector all;
};

/* ---- the plan */

static br_status unsupported(const struct ArrowSchema *s, duckdb_logical_type t, br_error *err) {
  br_buf text = {0};
  br_type_sql(t, false, &text);
  br_status status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                             "column \"%s\": the type %s (Arrow \"%s\") cannot be exchanged: cast it",
                             s->name ? s->name : "", br_buf_cstr(&text), s->format);
  br_buf_free(&text);
  return status;
}

static void fixed(node *out, uint32_t width) {
  out->kind = BR_VEC_FIXED;
  out->width = width;
}

/* "d:precision,scale[,bits]" */
static uint32_t decimal_bytes(const char *format) {
  const char *comma = strchr(format, ',');
  const char *bits = comma ? strchr(comma + 1, ',') : NULL;
  return bits ? (uint32_t)strtoul(bits + 1, NULL, 10) / 8 : 16;
}

static br_status plan_scalar(duckdb_logical_type t, const struct ArrowSchema *s, node *out, br_error *err) {
  switch (out->type) {
    case DUCKDB_TYPE_BOOLEAN: /* "c": the bool8 extension, a byte a row */
      fixed(out, 1);
      if (strcmp(s->format, "b") == 0) out->kind = BR_VEC_BOOL;
      return BR_OK;
    case DUCKDB_TYPE_TINYINT:
    case DUCKDB_TYPE_UTINYINT: fixed(out, 1); return BR_OK;
    case DUCKDB_TYPE_SMALLINT:
    case DUCKDB_TYPE_USMALLINT: fixed(out, 2); return BR_OK;
    case DUCKDB_TYPE_INTEGER:
    case DUCKDB_TYPE_UINTEGER:
    case DUCKDB_TYPE_FLOAT:
    case DUCKDB_TYPE_DATE: fixed(out, 4); return BR_OK;
    case DUCKDB_TYPE_BIGINT:
    case DUCKDB_TYPE_UBIGINT:
    case DUCKDB_TYPE_DOUBLE:
    case DUCKDB_TYPE_TIME:
    case DUCKDB_TYPE_TIME_NS:
    case DUCKDB_TYPE_TIME_TZ:
    case DUCKDB_TYPE_TIMESTAMP:
    case DUCKDB_TYPE_TIMESTAMP_S:
    case DUCKDB_TYPE_TIMESTAMP_MS:
    case DUCKDB_TYPE_TIMESTAMP_NS:
    case DUCKDB_TYPE_TIMESTAMP_TZ: fixed(out, 8); return BR_OK;
    case DUCKDB_TYPE_HUGEINT:
    case DUCKDB_TYPE_UHUGEINT:
    case DUCKDB_TYPE_UUID: fixed(out, 16); return BR_OK;
    case DUCKDB_TYPE_DECIMAL: {
      duckdb_type inside = duckdb_decimal_internal_type(t);
      fixed(out, inside == DUCKDB_TYPE_SMALLINT  ? 2
                 : inside == DUCKDB_TYPE_INTEGER ? 4
                 : inside == DUCKDB_TYPE_BIGINT  ? 8
                                                 : 16);
      uint32_t want = decimal_bytes(s->format);
      if (want < out->width) return unsupported(s, t, err);
      if (want > out->width) out->out_width = want;
      return BR_OK;
    }
    case DUCKDB_TYPE_VARCHAR:
    case DUCKDB_TYPE_BLOB:
    case DUCKDB_TYPE_BIT:
    case DUCKDB_TYPE_BIGNUM: out->kind = BR_VEC_STRING; return BR_OK;
    case DUCKDB_TYPE_INTERVAL: out->kind = BR_VEC_INTERVAL; return BR_OK;
    case DUCKDB_TYPE_SQLNULL: out->kind = BR_VEC_NULL; return BR_OK;
    default: return unsupported(s, t, err);
  }
}

static br_status plan_node(br_vec_plan *p, duckdb_logical_type t, const struct ArrowSchema *s, node *out,
                           br_error *err);

static br_status plan_child(br_vec_plan *p, duckdb_logical_type child, const struct ArrowSchema *s, node *out,
                            br_error *err) {
  br_status status = plan_node(p, child, s, out, err);
  duckdb_destroy_logical_type(&child);
  return status;
}

static br_status children(br_vec_plan *p, duckdb_logical_type t, const struct ArrowSchema *s, node *out, uint32_t n,
                          br_error *err) {
  out->n_children = n;
  out->children = br_arena_alloc(p->mem, n * sizeof *out->children);
  int64_t in_arrow = out->kind == BR_VEC_UNION ? (int64_t)n - 1 : (int64_t)n;
  if (s->n_children != in_arrow) return unsupported(s, t, err);
  return BR_OK;
}

static br_status plan_map(br_vec_plan *p, duckdb_logical_type t, const struct ArrowSchema *s, node *out,
                          br_error *err) {
  out->kind = BR_VEC_MAP;
  BR_TRY(children(p, t, s, out, 1, err));
  node *entries = &out->children[0];
  entries->kind = BR_VEC_STRUCT;
  entries->type = DUCKDB_TYPE_STRUCT;
  BR_TRY(children(p, t, s->children[0], entries, 2, err));
  BR_TRY(plan_child(p, duckdb_map_type_key_type(t), s->children[0]->children[0], &entries->children[0], err));
  return plan_child(p, duckdb_map_type_value_type(t), s->children[0]->children[1], &entries->children[1], err);
}

static br_status plan_node(br_vec_plan *p, duckdb_logical_type t, const struct ArrowSchema *s, node *out,
                           br_error *err) {
  out->type = duckdb_get_type_id(t);
  switch (out->type) {
    case DUCKDB_TYPE_LIST:
      out->kind = BR_VEC_LIST;
      BR_TRY(children(p, t, s, out, 1, err));
      return plan_child(p, duckdb_list_type_child_type(t), s->children[0], &out->children[0], err);
    case DUCKDB_TYPE_ARRAY:
      out->kind = BR_VEC_ARRAY;
      out->width = (uint32_t)duckdb_array_type_array_size(t);
      BR_TRY(children(p, t, s, out, 1, err));
      return plan_child(p, duckdb_array_type_child_type(t), s->children[0], &out->children[0], err);
    case DUCKDB_TYPE_MAP: return plan_map(p, t, s, out, err);
    case DUCKDB_TYPE_STRUCT:
      out->kind = BR_VEC_STRUCT;
      BR_TRY(children(p, t, s, out, (uint32_t)duckdb_struct_type_child_count(t), err));
      for (uint32_t i = 0; i < out->n_children; i++)
        BR_TRY(plan_child(p, duckdb_struct_type_child_type(t, i), s->children[i], &out->children[i], err));
      return BR_OK;
    case DUCKDB_TYPE_UNION:
      out->kind = BR_VEC_UNION;
      BR_TRY(children(p, t, s, out, (uint32_t)duckdb_union_type_member_count(t) + 1, err));
      out->children[0].type = DUCKDB_TYPE_UTINYINT;
      fixed(&out->children[0], 1);
      for (uint32_t i = 1; i < out->n_children; i++)
        BR_TRY(plan_child(p, duckdb_union_type_member_type(t, i - 1), s->children[i - 1], &out->children[i], err));
      return BR_OK;
    default: return plan_scalar(t, s, out, err);
  }
}

br_status br_vec_plan_new(const duckdb_logical_type *types, size_t n, const br_schema *schema, br_vec_plan **out,
                          br_error *err) {
  const struct ArrowSchema *arrow = br_schema_arrow(schema);
  br_vec_plan *p = br_calloc(1, sizeof *p);
  br_status status = BR_OK;
  p->mem = br_arena_new();
  p->n = n;
  p->columns = br_arena_alloc(p->mem, (n + 1) * sizeof *p->columns);
  p->copied = br_arena_alloc(p->mem, (n + 1) * sizeof *p->copied);
  p->copy_types = br_arena_alloc(p->mem, (n + 1) * sizeof *p->copy_types);
  BR_ASSERT((size_t)arrow->n_children == n);
  for (size_t i = 0; i < n; i++) {
    BR_TRY_GOTO(plan_node(p, types[i], arrow->children[i], &p->columns[i], err));
    p->copied[i] = p->columns[i].n_children > 0;
    if (p->copied[i]) p->copy_types[p->n_copied++] = types[i];
  }
  *out = p;
  p = NULL;
done:
  br_vec_plan_free(p);
  return status;
}

void br_vec_plan_free(br_vec_plan *p) {
  if (!p) return;
  br_arena_free(p->mem);
  free(p);
}

/* ---- the reader */

static void shape(br_vec_reader *r, const node *n, br_vec *v) {
  v->kind = n->kind;
  v->width = n->width;
  v->out_width = n->out_width;
  v->n_children = n->n_children;
  if (!n->n_children) return;
  br_vec *kids = br_arena_alloc(r->mem, n->n_children * sizeof *kids);
  for (uint32_t i = 0; i < n->n_children; i++) shape(r, &n->children[i], &kids[i]);
  v->children = kids;
}

br_vec_reader *br_vec_reader_new(const br_vec_plan *p) {
  br_vec_reader *r = br_calloc(1, sizeof *r);
  r->plan = p;
  r->mem = br_arena_new();
  r->columns = br_arena_alloc(r->mem, (p->n + 1) * sizeof *r->columns);
  for (size_t i = 0; i < p->n; i++) shape(r, &p->columns[i], &r->columns[i]);
  if (p->n_copied) {
    idx_t rows = duckdb_vector_size();
    r->copy = duckdb_create_data_chunk(p->copy_types, p->n_copied);
    r->all = duckdb_create_selection_vector(rows);
    sel_t *sel = duckdb_selection_vector_get_data_ptr(r->all);
    for (idx_t i = 0; i < rows; i++) sel[i] = (sel_t)i;
  }
  return r;
}

void br_vec_reader_free(br_vec_reader *r) {
  if (!r) return;
  if (r->copy) duckdb_destroy_data_chunk(&r->copy);
  if (r->all) duckdb_destroy_selection_vector(r->all);
  br_arena_free(r->mem);
  free(r);
}

static void read_vector(const node *n, duckdb_vector v, uint64_t rows, br_vec *out) {
  out->validity = duckdb_vector_get_validity(v);
  switch (n->kind) {
    case BR_VEC_LIST:
    case BR_VEC_MAP:
      out->data = duckdb_vector_get_data(v);
      read_vector(&n->children[0], duckdb_list_vector_get_child(v), duckdb_list_vector_get_size(v),
                  (br_vec *)&out->children[0]);
      return;
    case BR_VEC_ARRAY:
      read_vector(&n->children[0], duckdb_array_vector_get_child(v), rows * n->width, (br_vec *)&out->children[0]);
      return;
    case BR_VEC_STRUCT:
    case BR_VEC_UNION:
      for (uint32_t i = 0; i < n->n_children; i++)
        read_vector(&n->children[i], duckdb_struct_vector_get_child(v, i), rows, (br_vec *)&out->children[i]);
      return;
    case BR_VEC_NULL: return;
    default: out->data = duckdb_vector_get_data(v);
  }
}

const br_vec *br_vec_read(br_vec_reader *r, duckdb_data_chunk chunk, uint64_t rows) {
  const br_vec_plan *p = r->plan;
  size_t copied = 0;
  if (r->copy) duckdb_data_chunk_reset(r->copy);
  for (size_t i = 0; i < p->n; i++) {
    duckdb_vector v = duckdb_data_chunk_get_vector(chunk, i);
    if (p->copied[i]) {
      duckdb_vector to = duckdb_data_chunk_get_vector(r->copy, copied++);
      duckdb_vector_copy_sel(v, to, r->all, rows, 0, 0);
      v = to;
    }
    read_vector(&p->columns[i], v, rows, &r->columns[i]);
  }
  return r->columns;
}
