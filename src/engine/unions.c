/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices of arrays that hold unions. DuckDB reads a union's type ids from the start of their buffer, whatever the array's
 * offset or a list around it says (seen with 1.5.5: wrong members from the second slice on). So a slice is rewritten until
 * every union in it starts at 0: offsets move into the children, list offsets and bitmaps are copied.
 * And Arrow's unions have no NULLs of their own: arrow/columns sends a NULL union as its first member, NULL, which becomes a
 * NULL union again here (so a first member that is NULL comes back as a NULL union: all that is lost).
 * Order: on a private copy of the ArrowArray structs. Threads: any. Bounds: a few bytes a row of the slice, in the arena.
 */
#include "engine/internal.h"
#include <string.h>

bool br_has_union(const struct ArrowSchema *s) {
  if (strncmp(s->format, "+u", 2) == 0) return true;
  for (int64_t i = 0; i < s->n_children; i++)
    if (br_has_union(s->children[i])) return true;
  return false;
}

static void move_validity(struct ArrowArray *a, const void **buffers, br_arena *mem) {
  const unsigned char *from = buffers[0];
  if (!from || a->offset == 0) return;
  unsigned char *to = br_arena_alloc(mem, (size_t)(a->length + 7) / 8 + 1);
  for (int64_t i = 0; i < a->length; i++) {
    int64_t at = a->offset + i;
    if (from[at / 8] >> (at % 8) & 1) to[i / 8] |= (unsigned char)(1 << (i % 8));
  }
  buffers[0] = to;
}

/* New offsets from 0 on; returns where the child starts, *length what it holds. */
static int64_t move_offsets(struct ArrowArray *a, const void **buffers, bool large, br_arena *mem, int64_t *length) {
  int64_t first = 0, last = 0;
  if (!buffers[1]) {
    *length = 0;
    return 0;
  }
  if (large) {
    const int64_t *from = (const int64_t *)buffers[1] + a->offset;
    int64_t *to = br_arena_alloc(mem, (size_t)(a->length + 1) * sizeof *to);
    for (int64_t i = 0; i <= a->length; i++) to[i] = from[i] - from[0];
    first = from[0], last = from[a->length], buffers[1] = to;
  } else {
    const int32_t *from = (const int32_t *)buffers[1] + a->offset;
    int32_t *to = br_arena_alloc(mem, (size_t)(a->length + 1) * sizeof *to);
    for (int64_t i = 0; i <= a->length; i++) to[i] = from[i] - from[0];
    first = from[0], last = from[a->length], buffers[1] = to;
  }
  *length = last - first;
  return first;
}

void br_rebase(const struct ArrowSchema *s, struct ArrowArray *a, br_arena *mem) {
  if (!br_has_union(s)) return;
  const void **buffers = br_arena_alloc(mem, (size_t)(a->n_buffers + 1) * sizeof *buffers);
  struct ArrowArray **children = br_arena_alloc(mem, (size_t)(a->n_children + 1) * sizeof *children);
  for (int64_t i = 0; i < a->n_buffers; i++) buffers[i] = a->buffers[i];
  int64_t first = a->offset, length = a->length;
  if (s->format[1] == 'u')
    buffers[a->n_buffers - 1] = (const char *)buffers[a->n_buffers - 1] + a->offset;
  else
    move_validity(a, buffers, mem);
  if (s->format[1] == 'l' || s->format[1] == 'm' || s->format[1] == 'L')
    first = move_offsets(a, buffers, s->format[1] == 'L', mem, &length);
  if (s->format[1] == 'w') {
    int64_t size = strtoll(s->format + 3, NULL, 10);
    first *= size, length *= size;
  }
  for (int64_t i = 0; i < a->n_children; i++) {
    children[i] = br_arena_alloc(mem, sizeof **children);
    *children[i] = *a->children[i];
    children[i]->offset += first;
    children[i]->length = length;
    if (children[i]->null_count) children[i]->null_count = -1;
    br_rebase(s->children[i], children[i], mem);
  }
  a->buffers = buffers;
  a->children = children;
  a->offset = 0;
}

static bool type_has_union(duckdb_logical_type t);

static bool child_has_union(duckdb_logical_type child) {
  bool found = type_has_union(child);
  duckdb_destroy_logical_type(&child);
  return found;
}

static bool type_has_union(duckdb_logical_type t) {
  bool found = false;
  switch (duckdb_get_type_id(t)) {
    case DUCKDB_TYPE_UNION: return true;
    case DUCKDB_TYPE_LIST: return child_has_union(duckdb_list_type_child_type(t));
    case DUCKDB_TYPE_ARRAY: return child_has_union(duckdb_array_type_child_type(t));
    case DUCKDB_TYPE_MAP:
      return child_has_union(duckdb_map_type_key_type(t)) || child_has_union(duckdb_map_type_value_type(t));
    case DUCKDB_TYPE_STRUCT:
      for (idx_t i = 0, n = duckdb_struct_type_child_count(t); i < n && !found; i++)
        found = child_has_union(duckdb_struct_type_child_type(t, i));
      return found;
    default: return false;
  }
}

static void null_unions(duckdb_vector v, idx_t rows) {
  duckdb_vector tags = duckdb_struct_vector_get_child(v, 0), first = duckdb_struct_vector_get_child(v, 1);
  const uint8_t *tag = duckdb_vector_get_data(tags);
  uint64_t *valid = duckdb_vector_get_validity(first);
  if (!valid) return;
  duckdb_vector_ensure_validity_writable(v);
  duckdb_vector_ensure_validity_writable(tags);
  for (idx_t i = 0; i < rows; i++) {
    if (tag[i] != 0 || duckdb_validity_row_is_valid(valid, i)) continue;
    duckdb_validity_set_row_invalid(duckdb_vector_get_validity(v), i);
    duckdb_validity_set_row_invalid(duckdb_vector_get_validity(tags), i);
  }
}

void br_restore_null_unions(duckdb_vector v, idx_t rows) {
  duckdb_logical_type t = duckdb_vector_get_column_type(v);
  if (type_has_union(t)) switch (duckdb_get_type_id(t)) {
      case DUCKDB_TYPE_LIST:
      case DUCKDB_TYPE_MAP:
        br_restore_null_unions(duckdb_list_vector_get_child(v), duckdb_list_vector_get_size(v));
        break;
      case DUCKDB_TYPE_ARRAY:
        br_restore_null_unions(duckdb_array_vector_get_child(v), rows * duckdb_array_type_array_size(t));
        break;
      case DUCKDB_TYPE_STRUCT:
        for (idx_t i = 0, n = duckdb_struct_type_child_count(t); i < n; i++)
          br_restore_null_unions(duckdb_struct_vector_get_child(v, i), rows);
        break;
      default:
        for (idx_t i = 0, n = duckdb_union_type_member_count(t); i < n; i++)
          br_restore_null_unions(duckdb_struct_vector_get_child(v, i + 1), rows);
        null_unions(v, rows);
    }
  duckdb_destroy_logical_type(&t);
}
