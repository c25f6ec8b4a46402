/* SPDX-License-Identifier: Apache-2.0
 *
 * Few rows that one task would have, before a function that takes long for each of them (a user's, url_download, minhash): they are spread
 * over all slots first, in their order.
 *
 * Threads: none. Bounds: recursion as deep as the JSON.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

#define SPREAD_MOST_ROWS 100000
#define SPREAD_TASK_ROWS 2 /* times what a task of its own is worth */

/* VALUES, a limit, a small range; a source that can't be cut. */
static bool in_one_task(const br_drel *r) {
  const br_open *o = r->branches[0].open;
  if (br_is_one(r)) return true;
  return r->n_branches == 1 && o->rule == BR_RULE_SPLITS && o->split_scan >= 0 && o->scans[o->split_scan].one_part;
}

/* Many are not: they would have to be there before the first is called. */
br_status br_spread_few(br_dist *d, br_drel *r, double least, br_error *err) {
  uint32_t n = d->o->spread;
  if (n < 2 || !in_one_task(r) || r->rows < least || r->rows > SPREAD_MOST_ROWS) return BR_OK;
  return br_into_partitions(d, n, r, "few rows for a function that takes long are spread", err);
}

/* How many rows of the costliest function are worth a task; 0: there is none. */
static uint64_t costly_rows(const json_t *j) {
  const char *key;
  json_t *value;
  size_t i;
  uint64_t rows = 0;
  if (json_is_object(j)) {
    if (br_j_is(j, "expression_class", "BOUND_FUNCTION")) rows = br_costly_function(br_j_str(j, "name"));
    json_object_foreach((json_t *)j, key, value) {
      uint64_t inside = costly_rows(value);
      if (inside > 0 && (rows == 0 || inside < rows)) rows = inside;
    }
  } else if (json_is_array(j)) {
    json_array_foreach(j, i, value) {
      uint64_t inside = costly_rows(value);
      if (inside > 0 && (rows == 0 || inside < rows)) rows = inside;
    }
  }
  return rows;
}

br_status br_spread_for_calls(br_dist *d, const br_node *n, br_drel *child, br_error *err) {
  uint64_t rows = costly_rows(br_j_get(n->json, "expressions"));
  if (rows == 0) return BR_OK;
  return br_spread_few(d, child, (double)(rows * SPREAD_TASK_ROWS), err);
}
