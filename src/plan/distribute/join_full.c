/* SPDX-License-Identifier: Apache-2.0
 *
 * FULL joins without an equality. The smaller side is numbered and sent to all; each task joins its rows of the other side, which are kept,
 * and its result (J) stays where it is, with the number of each partner. The numbers that some task has seen are sent to where the smaller
 * side lies: its other rows have no partner anywhere. The result is J's rows, then those.
 *
 * Called by join.c. Threads: none. Bounds: none of its own.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* The smaller side with a number for each row behind its columns. */
static void number_rows(br_dist *d, br_drel *r) {
  size_t m = r->n_columns;
  json_t **types;
  br_bind *binds;
  bool *needed;
  br_more_columns(d, r, 1, &types, &binds, &needed);
  types[m] = br_type_plain("BIGINT");
  br_wrap_text(d, r,
               br_arena_printf(d->arena,
                               "SELECT t.*, CAST(" BR_TASK_NUMBER
                               " AS BIGINT) * 68719476736 + row_number() OVER () AS c%zu FROM ",
                               m),
               "");
  r->n_columns = m + 1;
  r->types = types;
  r->binds = binds;
  r->needed = needed;
  r->ordered = false;
  br_no_clustering(r);
  br_no_ranges(r);
  br_mark_chance(r, true); /* which row has which number */
}

static json_t *shown(const br_node *n, const char *map_key, size_t width) {
  if (br_j_count(n->json, map_key)) return json_deep_copy(br_j_get(n->json, map_key));
  json_t *list = json_array();
  for (size_t i = 0; i < width; i++) json_array_append_new(list, json_integer((json_int_t)i));
  return list;
}

/* Of the result: columns [0, left) are the left side's. */
typedef struct full {
  const br_node *n;
  bool right;      /* that side is the smaller one */
  size_t left, at; /* at: of the partner's number in J */
  json_t *maps[2]; /* which columns of each side come out */
} full;

/* References of a condition to output columns from `first` on are one further. */
static void shift_references(json_t *j, size_t first) {
  const char *key;
  json_t *value;
  size_t i;
  if (br_j_is(j, "expression_class", "BOUND_REF") && br_json_u64(br_j_get(j, "index")) >= first)
    json_object_set_new(j, "index", json_integer((json_int_t)br_json_u64(br_j_get(j, "index")) + 1));
  if (json_is_array(j)) json_array_foreach(j, i, value) shift_references(value, first);
  if (json_is_object(j)) json_object_foreach(j, key, value) shift_references(value, first);
}

/* The join that keeps the larger side, with one column more at `at`. */
static br_node *keeping_one(br_dist *d, full *f, const br_drel *l, const br_drel *r) {
  const br_node *n = f->n;
  br_node *copy = br_arena_alloc(d->arena, sizeof *copy);
  json_t *j = br_own_type(d, json_deep_copy(n->json));
  f->maps[0] = br_own_type(d, shown(n, "left_projection_map", l->n_columns - (f->right ? 0 : 1)));
  f->maps[1] = br_own_type(d, shown(n, "right_projection_map", r->n_columns - (f->right ? 1 : 0)));
  f->left = json_array_size(f->maps[0]);
  f->at = f->right ? n->n_columns : f->left;
  *copy = *n;
  copy->json = j;
  copy->n_columns = n->n_columns + 1;
  copy->types = br_arena_alloc(d->arena, (copy->n_columns + 1) * sizeof *copy->types);
  copy->binds = br_arena_alloc(d->arena, (copy->n_columns + 1) * sizeof *copy->binds);
  for (size_t i = 0, from = 0; i < copy->n_columns; i++) {
    bool number = i == f->at;
    copy->types[i] = number ? br_type_plain("BIGINT") : n->types[from];
    copy->binds[i] = number ? (br_bind){.table = UINT64_MAX, .column = UINT64_MAX} : n->binds[from];
    from += !number;
  }
  json_t *maps[2] = {json_deep_copy(f->maps[0]), json_deep_copy(f->maps[1])};
  size_t last = (f->right ? r : l)->n_columns - 1;
  json_array_append_new(maps[f->right], json_integer((json_int_t)last));
  json_object_set_new(j, "left_projection_map", maps[0]);
  json_object_set_new(j, "right_projection_map", maps[1]);
  if (!f->right) {
    shift_references(br_j_some(j, "condition"), f->left);
    shift_references(br_j_some(j, "predicate"), f->left);
  }
  json_object_set_new(j, "join_type", json_string(f->right ? "LEFT" : "RIGHT"));
  return copy;
}

static br_status join_one(br_dist *d, full *f, const br_drel *l, const br_drel *r, br_drel *out, br_error *err) {
  const br_node *n = f->n, *copy = keeping_one(d, f, l, r);
  br_open *o = br_open_merge(d, l->branches[0].open, r->branches[0].open);
  BR_TRY(br_emit_two(d, copy, l, r, o, out, err));
  bool *needed = br_arena_alloc(d->arena, copy->n_columns + 1);
  for (size_t i = 0, from = 0; i < copy->n_columns; i++) needed[i] = i == f->at || d->needs[n->id][from++];
  out->needed = needed;
  o->heavy = true;
  br_open_label(d, o, "full join, %s side broadcast", f->right ? "right" : "left");
  br_mark_chance(out, br_volatile(br_j_get(n->json, "conditions")) || br_volatile(br_j_get(n->json, "condition")) ||
                          br_volatile(br_j_get(n->json, "predicate")));
  return BR_OK;
}

/* The numbers that have a partner, in every task. */
static br_status numbers_seen(br_dist *d, const full *f, const br_shared *joined, br_drel *out, br_error *err) {
  json_t **types = br_arena_alloc(d->arena, sizeof *types);
  *out = br_read_again(d, joined);
  br_wrap_text(d, out, br_arena_printf(d->arena, "SELECT DISTINCT t.c%zu AS c0 FROM ", f->at),
               br_arena_printf(d->arena, " WHERE t.c%zu IS NOT NULL", f->at));
  types[0] = br_type_plain("BIGINT");
  out->n_columns = 1;
  out->types = types;
  out->binds = br_arena_alloc(d->arena, sizeof *out->binds);
  out->needed = NULL;
  br_no_clustering(out);
  br_no_ranges(out);
  br_set_rows(out, -1);
  br_label_all(d, out, "rows with a partner");
  return br_exchange_broadcast(d, out, "which rows have a partner", err);
}

/* Columns of a side, or NULLs in their place. */
static br_status side_text(const full *f, bool right, bool nulls, br_buf *b, br_error *err) {
  size_t count = right ? f->n->n_columns - f->left : f->left, first = right ? f->left : 0;
  for (size_t i = 0; i < count; i++) {
    br_buf_str(b, first + i ? ", " : "");
    if (!nulls) {
      br_buf_printf(b, "t.c%llu AS c%zu", (unsigned long long)br_json_u64(json_array_get(f->maps[right], i)),
                    first + i);
      continue;
    }
    br_buf_str(b, "CAST(NULL AS ");
    if (f->n->types[first + i])
      BR_TRY(br_emit_type(f->n->types[first + i], b, err));
    else
      br_buf_str(b, "INTEGER");
    br_buf_printf(b, ") AS c%zu", first + i);
  }
  return BR_OK;
}

/* The smaller side's rows that no task has seen. */
static br_status without_partner(br_dist *d, const full *f, const br_shared *small, const br_drel *seen, br_drel *out,
                                 br_error *err) {
  br_buf b = {0};
  *out = br_read_again(d, small);
  size_t number = out->n_columns - 1;
  br_buf_str(&b, "SELECT ");
  br_status status = side_text(f, false, f->right, &b, err);
  if (status == BR_OK) status = side_text(f, true, !f->right, &b, err);
  const char *before = br_arena_printf(d->arena, "%s\nFROM ", br_buf_cstr(&b));
  br_buf_free(&b);
  BR_TRY(status);
  br_wrap_text(
      d, out, before,
      br_arena_printf(d->arena, "\nANTI JOIN %s m ON t.c%zu = m.c0", br_block(d, seen->branches[0].sql), number));
  for (size_t i = 0; i < out->n_branches; i++)
    out->branches[i].open = br_open_merge(d, out->branches[i].open, seen->branches[0].open);
  br_label_all(d, out, "rows without a partner");
  return BR_OK;
}

/* What was joined, without the numbers, then what was not. */
static void all_rows(br_dist *d, const full *f, const br_shared *joined, const br_drel *rest, br_drel *out) {
  const br_node *n = f->n;
  br_buf b = {0};
  *out = br_read_again(d, joined);
  for (size_t i = 0, from = 0; i < n->n_columns; i++, from++) {
    if (from == f->at) from++;
    br_buf_printf(&b, "%st.c%zu AS c%zu", i ? ", " : "SELECT ", from, i);
  }
  br_buf_str(&b, " FROM ");
  br_wrap_text(d, out, br_arena_strdup(d->arena, br_buf_cstr(&b)), "");
  br_buf_free(&b);
  br_branch *all = br_arena_alloc(d->arena, (out->n_branches + rest->n_branches) * sizeof *all);
  memcpy(all, out->branches, out->n_branches * sizeof *all);
  memcpy(all + out->n_branches, rest->branches, rest->n_branches * sizeof *all);
  out->branches = all;
  out->n_branches += rest->n_branches;
  out->n_columns = n->n_columns;
  out->types = n->types;
  out->binds = n->binds;
  out->needed = d->needs[n->id];
  out->ordered = false;
  br_no_clustering(out);
  br_no_ranges(out);
  br_set_rows(out, n->rows);
}

br_status br_full_join(br_dist *d, const br_node *n, br_drel *l, br_drel *r, br_drel *out, br_error *err) {
  full f = {.n = n, .right = l->bytes < 0 || (r->bytes >= 0 && r->bytes <= l->bytes)};
  if (br_is_one(l) != br_is_one(r)) f.right = br_is_one(r); /* what is spread stays spread */
  br_drel *small = f.right ? r : l, *large = f.right ? l : r, seen, rest;
  br_shared kept, joined;
  BR_TRY(br_one_branch(d, small, err));
  BR_TRY(br_one_branch(d, large, err));
  number_rows(d, small);
  BR_TRY(br_share(d, small, "sent to all, and read for rows without a partner", &kept, err));
  *small = br_read_again(d, &kept);
  BR_TRY(br_exchange_broadcast(d, small, "no equality to spread by", err));
  BR_TRY(join_one(d, &f, l, r, out, err));
  BR_TRY(br_share(d, out, "read for its rows and for the numbers of their partners", &joined, err));
  BR_TRY(numbers_seen(d, &f, &joined, &seen, err));
  BR_TRY(without_partner(d, &f, &kept, &seen, &rest, err));
  all_rows(d, &f, &joined, &rest, out);
  return BR_OK;
}
