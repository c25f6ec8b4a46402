/* SPDX-License-Identifier: Apache-2.0
 *
 * DuckDB's plan JSON back to SQL, one node at a time: the caller gives the text of the children, and decides where a
 * stage's border lies by giving `SELECT * FROM input(0)` instead. Every rule and trap of docs/plan-json.md lives here.
 *
 * A relation's text is a full SELECT whose columns are named c0 .. c(n-1). What can't be written back fails with
 * BR_UNSUPPORTED and a reason for people in err->message.
 */
#ifndef BRANT_PLAN_DECOMPILE_H
#define BRANT_PLAN_DECOMPILE_H

#include "plan/node.h"

/* Text of one relation, with the bindings that expressions over it use. */
typedef struct br_rel {
  const char *sql; /* SELECT with columns c0..; in the arena */
  size_t n_columns;
  const br_bind *binds; /* [n_columns] */
  json_t *const *types; /* [n_columns], NULL entries where unknown */
} br_rel;

typedef struct br_emit br_emit;
typedef struct br_emit_options {
  /* GET of a file or table scan that may be split: called with a running number; returns the text to scan from instead of
   * the literal source (a token that a task replaces), or NULL to print the whole source in place. */
  const char *(*scan)(void *arg, const br_node *get, uint32_t number);
  /* CTE_REF and DELIM_GET: text for a reference whose definition is not inside the text being emitted (NULL: it is inside,
   * print the name): `input(3)`, or a whole SELECT with columns c0... */
  const char *(*reference)(void *arg, const br_node *ref);
  /* br_emit_tree: text for a whole subtree, which is then not printed; NULL: it is printed. */
  const char *(*subtree)(void *arg, const br_node *node);
  void *arg;
} br_emit_options;
br_emit *br_emit_new(br_arena *arena, const br_emit_options *o);

/* One node over the texts of its children (children[i] belongs to node->children[i]). A DELIM_JOIN is printed as the
 * plain join that it is: whoever calls this makes its DELIM_GETs read the distinct keys of the delim side. A CTE or
 * RECURSIVE_CTE is printed whole, by WITH. */
BR_MUST_USE br_status br_emit_node(br_emit *e, const br_node *node, const br_rel *children, br_rel *out, br_error *err);
/* The whole tree below node, nothing replaced but by the options' callbacks. DELIM joins, CTEs and recursive CTEs are
 * printed with WITH … AS MATERIALIZED. */
BR_MUST_USE br_status br_emit_tree(br_emit *e, const br_node *node, br_rel *out, br_error *err);

/* Pieces, for distribute/: an expression over a relation whose columns print as alias.cN. */
BR_MUST_USE br_status br_emit_expr(br_emit *e, const json_t *expr, const br_rel *over, const char *alias, br_buf *out,
                                   br_error *err);
/* A join condition's two sides are such expressions: `left` over the left child with alias l, `right` over the right
 * child with alias r.
 * "t.c0 ASC NULLS LAST, …" */
BR_MUST_USE br_status br_emit_order_by(br_emit *e, const json_t *orders, const br_rel *over, const char *alias,
                                       br_buf *out, br_error *err);
/* One aggregate call of an AGGREGATE node (FILTER, DISTINCT, ORDER BY inside included). */
BR_MUST_USE br_status br_emit_aggregate(br_emit *e, const json_t *aggregate, const br_rel *over, const char *alias,
                                        br_buf *out, br_error *err);
/* One call of a WINDOW node, with its OVER (…). */
BR_MUST_USE br_status br_emit_window(br_emit *e, const json_t *window, const br_rel *over, const char *alias,
                                     br_buf *out, br_error *err);
/* SQL type. */
BR_MUST_USE br_status br_emit_type(const json_t *type, br_buf *out, br_error *err);
BR_MUST_USE br_status br_emit_constant(const json_t *value, br_buf *out, br_error *err);

/* ---- brant's own functions */
/* Stands in the text of a stage for the number of the task that runs it (br_stage_task_sql). */
#define BR_TASK_NUMBER "brant_task_number()"
/* A marker of brant's own nodes, which is printed as TRUE: repartition, into_partitions, into_batches, broadcast. */
#define BR_MARKER_REPARTITION "__brant_repartition"
#define BR_MARKER_INTO_PARTITIONS "__brant_into_partitions"
#define BR_MARKER_INTO_BATCHES "__brant_into_batches"
#define BR_MARKER_BROADCAST "__brant_broadcast"
bool br_is_marker(const char *function);

/* The source of a scan, for splits: which files or table it reads. */
typedef enum br_scan_kind { BR_SCAN_PARQUET, BR_SCAN_TABLE, BR_SCAN_WARC, BR_SCAN_DATASET, BR_SCAN_TEXT } br_scan_kind;
typedef struct br_scan {
  br_scan_kind kind;
  char **files;
  size_t n_files; /* PARQUET; WARC: names and globs as they were written */
  const char *
      options; /* PARQUET, WARC: text after the file list, ", binary_as_string := true" or ""; TEXT: the reader's call */
  const char *catalog, *schema, *table; /* TABLE; table is a DATASET's name */
  /* PARQUET: what the scan's filters say of the bounds of columns, for br_snapshot_prune: a JSON array, an element a column,
   * {"column": "c", "kind": "integer" | "date" | "timestamp" | "decimal" | "text", "scale": n, "test": […]}. A test is ["<", "5"] (also <=, >,
   * >=, =), ["and", test, …] or ["or", test, …]; values are texts: whole numbers, days or microseconds since 1970, decimals without their
   * point. A row group passes if a value between its bounds may, for each column. NULL: nothing is said. */
  const char *prune;
  bool whole_files_only; /* uses filename or file_index: don't cut inside a file */
  bool unsplittable;
  const char *why;      /* e.g. file_index, reservoir sample */
  bool file_row_number; /* the scan itself asks for it */
} br_scan;
/* False: this GET is not such a scan (a table function). */
BR_MUST_USE br_status br_scan_of(br_arena *arena, const br_node *get, bool *is_scan, br_scan *out, br_error *err);
/* The name of a scan's output column; NULL: it is part of one, or has none. Borrowed from the plan. */
const char *br_scan_name(const br_node *get, size_t column);
/* The name in its Parquet files of a scan's output column; NULL: it is not one of theirs, or part of one. Borrowed from the plan. */
const char *br_scan_column(const br_node *get, size_t column);
/* One file as an element of read_parquet's list: a literal whose glob characters stand for themselves
 * (of a URL: as it is). */
void br_scan_file_literal(br_buf *out, const char *path);

/* Gives another value at each call (random, uuid, nextval, …), anywhere inside the expression. */
bool br_expr_is_indeterminate(const json_t *expr);
/* An expression of this very node (not of its children) is indeterminate. */
bool br_node_is_volatile(const br_node *node);

#endif
