/* SPDX-License-Identifier: Apache-2.0
 *
 * The aggregate __merge_moments, by which variances, covariances, correlations and regressions are computed in two steps: of several
 * STRUCT(n, my, mx, syy, sxx, sxy), the number of pairs, the two means, and the sums of products of distances from them, it makes one;
 * never NULL.
 *
 * Sums of squares could be merged by sum() alone, but lose all digits where the mean is large beside the spread: this is Chan's
 * formula, as in DuckDB. What differs: a mean moves by a part of the difference of two means, so that equal values have variance 0 in
 * however many tasks. (The tasks' own sums are by DuckDB's functions: aggregates of the C API see wrong rows when an argument is
 * constant and another aggregate has a FILTER, in DuckDB 1.5.)
 * Order: br_moments_register once an instance. Threads: DuckDB's. Bounds: 48 bytes a group.
 */
#include "engine/functions.h"

#include <string.h>

typedef struct moments {
  int64_t n;
  double my, mx, syy, sxx, sxy;
} moments;

static const char *const fields[] = {"n", "my", "mx", "syy", "sxx", "sxy"};
enum { FIELDS = sizeof fields / sizeof *fields };

static idx_t state_size(duckdb_function_info info) {
  (void)info;
  return sizeof(moments);
}

static void init(duckdb_function_info info, duckdb_aggregate_state state) {
  (void)info;
  memset(state, 0, sizeof(moments));
}

static void merge(moments *to, const moments *from) {
  if (!from->n) return;
  if (!to->n) {
    *to = *from;
    return;
  }
  double n = (double)(to->n + from->n), part = (double)from->n / n;
  double dy = from->my - to->my, dx = from->mx - to->mx, weight = (double)to->n * part;
  to->syy += from->syy + dy * dy * weight;
  to->sxx += from->sxx + dx * dx * weight;
  to->sxy += from->sxy + dx * dy * weight;
  to->my += dy * part;
  to->mx += dx * part;
  to->n += from->n;
}

static bool valid(const uint64_t *validity, idx_t row) { return !validity || validity[row / 64] >> (row % 64) & 1; }

static void combine(duckdb_function_info info, duckdb_aggregate_state *from, duckdb_aggregate_state *to, idx_t n) {
  (void)info;
  for (idx_t i = 0; i < n; i++) merge((moments *)to[i], (const moments *)from[i]);
}

/* Is one of its fields NULL? No task gives such a row. */
static bool has_null(uint64_t *const validity[FIELDS], idx_t row) {
  bool all = true;
  for (size_t f = 0; f < FIELDS; f++) all = all && valid(validity[f], row);
  return !all;
}

/* The struct's columns: data[0] is of int64_t, the others of double. */
static void columns(duckdb_vector v, void *data[FIELDS]) {
  for (idx_t f = 0; f < FIELDS; f++) data[f] = duckdb_vector_get_data(duckdb_struct_vector_get_child(v, f));
}

static void update(duckdb_function_info info, duckdb_data_chunk in, duckdb_aggregate_state *states) {
  duckdb_vector v = duckdb_data_chunk_get_vector(in, 0);
  const uint64_t *validity = duckdb_vector_get_validity(v);
  uint64_t *given[FIELDS];
  void *data[FIELDS];
  (void)info;
  columns(v, data);
  for (idx_t f = 0; f < FIELDS; f++) given[f] = duckdb_vector_get_validity(duckdb_struct_vector_get_child(v, f));
  const int64_t *n = data[0];
  const double *my = data[1], *mx = data[2], *syy = data[3], *sxx = data[4], *sxy = data[5];
  for (idx_t i = 0, rows = duckdb_data_chunk_get_size(in); i < rows; i++) {
    if (!valid(validity, i) || has_null(given, i)) continue; /* of a grouping set () without rows */
    moments one = {.n = n[i], .my = my[i], .mx = mx[i], .syy = syy[i], .sxx = sxx[i], .sxy = sxy[i]};
    merge((moments *)states[i], &one);
  }
}

static void finish(duckdb_function_info info, duckdb_aggregate_state *states, duckdb_vector out, idx_t count,
                   idx_t offset) {
  void *data[FIELDS];
  (void)info;
  columns(out, data);
  for (idx_t i = 0; i < count; i++) {
    const moments *m = (const moments *)states[i];
    const double values[] = {m->my, m->mx, m->syy, m->sxx, m->sxy};
    ((int64_t *)data[0])[offset + i] = m->n;
    for (size_t f = 1; f < FIELDS; f++) ((double *)data[f])[offset + i] = values[f - 1];
  }
}

/* ---- registering */

static duckdb_logical_type struct_type(void) {
  duckdb_logical_type types[FIELDS];
  const char *names[FIELDS];
  for (size_t f = 0; f < FIELDS; f++) {
    types[f] = duckdb_create_logical_type(f ? DUCKDB_TYPE_DOUBLE : DUCKDB_TYPE_BIGINT);
    names[f] = fields[f];
  }
  duckdb_logical_type all = duckdb_create_struct_type(types, names, FIELDS);
  for (size_t f = 0; f < FIELDS; f++) duckdb_destroy_logical_type(&types[f]);
  return all;
}

br_status br_moments_register(br_engine *e, br_error *err) {
  duckdb_aggregate_function f = duckdb_create_aggregate_function();
  duckdb_logical_type type = struct_type();
  duckdb_aggregate_function_set_name(f, "__merge_moments");
  duckdb_aggregate_function_add_parameter(f, type);
  duckdb_aggregate_function_set_return_type(f, type);
  duckdb_aggregate_function_set_functions(f, state_size, init, update, combine, finish);
  duckdb_aggregate_function_set_special_handling(f); /* NULL is a task that saw no row */
  duckdb_state state = duckdb_register_aggregate_function(e->helper, f);
  duckdb_destroy_logical_type(&type);
  duckdb_destroy_aggregate_function(&f);
  if (state == DuckDBSuccess) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB did not take the aggregate __merge_moments");
}
