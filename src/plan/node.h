/* SPDX-License-Identifier: Apache-2.0
 *
 * The logical plan: DuckDB's optimised plan as a tree, still in its JSON, plus what every later pass needs at hand: the
 * output columns (types, bindings), the estimated rows, the kind. Read-only after br_plan_parse. Owned by the arena.
 */
#ifndef BRANT_PLAN_NODE_H
#define BRANT_PLAN_NODE_H

#include "base/buf.h"
#include "base/mem.h"
#include <jansson.h>

typedef enum br_node_kind {
  BR_NODE_GET,
  BR_NODE_PROJECTION,
  BR_NODE_FILTER,
  BR_NODE_AGGREGATE,
  BR_NODE_JOIN /* COMPARISON_JOIN */,
  BR_NODE_ANY_JOIN,
  BR_NODE_ASOF_JOIN,
  BR_NODE_DELIM_JOIN,
  BR_NODE_DELIM_GET,
  BR_NODE_CROSS,
  BR_NODE_POSITIONAL_JOIN,
  BR_NODE_ORDER,
  BR_NODE_TOP_N,
  BR_NODE_LIMIT,
  BR_NODE_DISTINCT,
  BR_NODE_WINDOW,
  BR_NODE_UNNEST,
  BR_NODE_UNION,
  BR_NODE_EXCEPT,
  BR_NODE_INTERSECT,
  BR_NODE_CTE /* MATERIALIZED_CTE: children definition, body */,
  BR_NODE_CTE_REF,
  BR_NODE_RECURSIVE_CTE,
  BR_NODE_CHUNK_GET,
  BR_NODE_EXPRESSION_GET,
  BR_NODE_DUMMY,
  BR_NODE_EMPTY,
  BR_NODE_SAMPLE,
  BR_NODE_PIVOT,
  BR_NODE_CALLS, /* ours (steps.h): the child's columns, then one a call of a user's function, in "calls" */
  BR_NODE_OTHER
} br_node_kind;

typedef struct br_bind {
  uint64_t table;
  uint64_t column;
} br_bind;

/* A column of a GET by whose values its rows lie in order, row group after row group, none of them NULL. */
#define BR_SORTED_POINTS 32
typedef struct br_sorted_column {
  size_t column; /* of the output: an integer of at most 64 bits, or a date */
  const char *name;
  bool date;
  size_t groups; /* row groups */
  double rows;
  int64_t at[BR_SORTED_POINTS + 1]; /* about which value lies behind k / POINTS of the rows; the last is the greatest */
} br_sorted_column;

typedef struct br_node br_node;
struct br_node {
  br_node_kind kind;
  const char *type; /* "LOGICAL_GET" */
  json_t *json;
  br_node **children;
  size_t n_children;
  size_t n_columns; /* of the output: c0 .. c(n-1) */
  json_t **types;   /* [n_columns] DuckDB type objects; NULL where unknown (then derive in SQL) */
  br_bind *binds;   /* [n_columns] */
  double rows;      /* estimated cardinality; negative: unknown */
  double source_rows,
      source_bytes; /* GET: of its files, as stored (bytes: of the columns that are read); negative: not known here */
  bool one_part;    /* GET: all of it is one task's, as far as it is known here */
  const br_sorted_column *sorted; /* GET: as far as it is known here */
  size_t n_sorted;
  uint32_t id;           /* pre-order number */
  const br_node *source; /* DELIM_GET: the DELIM_JOIN that feeds it; CTE_REF: its CTE or RECURSIVE_CTE; else NULL */
};

typedef struct br_plan {
  br_arena *arena;
  json_t *json;
  br_node *root;
  size_t n_nodes;
} br_plan;

/* Parse json_serialize_plan's text (bare NaN, Infinity, uint64 and \u0000 appear in it) and match the cardinalities of
 * EXPLAIN (FORMAT json) node for node in pre-order (explain_json may be NULL). A plan that can't be taken apart is
 * BR_UNSUPPORTED with the reason in err->message; garbage is BR_CORRUPT. */
BR_MUST_USE br_status br_plan_parse(const char *json, const char *explain_json, br_plan **out, br_error *err);
/* The second half of it. */
BR_MUST_USE br_status br_plan_estimate(br_plan *p, const char *explain_json, br_error *err);
void br_plan_free(br_plan *p);
/* JSON access that knows the traps: a whole number of any width as uint64 / int64 / double, NaN and Infinity as double. */
uint64_t br_json_u64(const json_t *j);
double br_json_double(const json_t *j);
/* The type of a bound expression: borrowed from it (or a shared constant), NULL where unknown. */
json_t *br_expr_type(const json_t *expr);
/* A shared type object of a plain type: "BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "VARCHAR"; NULL for others. */
json_t *br_type_plain(const char *id);
/* Is the function called anywhere in it? */
bool br_plan_calls(const br_plan *p, const char *function);
/* Which child of a DELIM_JOIN is the side whose distinct keys feed the DELIM_GETs below the other child. */
size_t br_delim_side(const br_node *delim_join);
/* Parse DuckDB's JSON dialect. */
BR_MUST_USE br_status br_json_parse(const char *text, json_t **out, br_error *err);

#endif
