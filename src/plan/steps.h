/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of users' functions in a plan. They run outside DuckDB, so each operator that calls one gets a node below it that appends
 * the calls' results to its input's columns (BR_NODE_CALLS), and refers to those columns instead.
 */
#ifndef BRANT_PLAN_STEPS_H
#define BRANT_PLAN_STEPS_H

#include "plan/node.h"

/* In the planning connection a function has this name and its id; the name that people know is a macro over it. */
#define BR_UDF_PREFIX "__brant_udf_"

typedef struct br_udf {
  uint64_t id;
  const char *name;   /* for people */
  bool deterministic; /* the same arguments give the same result */
} br_udf;

/* Puts the nodes in, once, before the plan is cut: innermost calls first, equal calls of one operator once. A call where it can't
 * be computed for all rows before its operator (a lambda, a join condition over both sides of an outer join) is BR_UNSUPPORTED. */
BR_MUST_USE br_status br_plan_steps(br_plan *p, const br_udf *functions, size_t n, br_error *err);
/* The call's function; NULL: the expression is no call of a user's function. */
const br_udf *br_plan_udf(const json_t *expr, const br_udf *functions, size_t n);

#endif
