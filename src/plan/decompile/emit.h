/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside decompile/: the state of an emission and the helpers that its files share.
 *
 * Texts are NUL-terminated strings in the arena. Failure is sticky: the first one fills *err and sets e->status, every
 * function then goes on with "" and the public call returns the status. So the emitting code reads as the grammar that it
 * prints. Nothing here may crash on damaged JSON: fields are read by access.h, indexes are checked.
 */
#ifndef BRANT_PLAN_DECOMPILE_EMIT_H
#define BRANT_PLAN_DECOMPILE_EMIT_H

#include "plan/access.h"
#include "plan/decompile/decompile.h"

struct br_emit {
  br_arena *arena;
  br_emit_options options;
  uint32_t scans;   /* numbers given to the scan callback */
  uint32_t lambdas; /* for parameter names */
  br_status status; /* of the public call under way */
  br_error *err;
};

/* A growing list of texts. */
typedef struct br_texts {
  const char **v;
  size_t n, cap;
} br_texts;

/* What BOUND_REF (by position) and BOUND_COLUMN_REF (by binding) print as. */
typedef struct br_env {
  br_texts refs;
  const br_bind *binds;
  br_texts bind_refs;
} br_env;

/* ---- text.c */
void br_e_unsupported(br_emit *e, const char *fmt, ...) BR_PRINTF(2, 3);
void br_e_corrupt(br_emit *e, const char *fmt, ...) BR_PRINTF(2, 3);
const char *br_e_fmt(br_emit *e, const char *fmt, ...) BR_PRINTF(2, 3);
const char *br_e_ident(br_emit *e, const char *name);
const char *br_e_literal(br_emit *e, const char *s);
const char *br_e_literal_json(br_emit *e, const json_t *string);
void br_e_add(br_emit *e, br_texts *list, const char *text);
const char *br_e_join(br_emit *e, const br_texts *list, const char *separator);
/* A relation's text as an item of FROM: in parentheses, indented when it has several lines. */
const char *br_e_from(br_emit *e, const char *sql);
/* "x AS c0, y AS c1", broken into lines when it is long. */
const char *br_e_columns(br_emit *e, const br_texts *list);
/* "WITH a AS MATERIALIZED (…)\n" in front of a SELECT; definitions are "name AS MATERIALIZED (…)"; none: the SELECT. */
const char *br_e_with(br_emit *e, const br_texts *definitions, const char *select);
const char *br_e_materialized(br_emit *e, const char *name, const char *sql);
br_env br_e_env(br_emit *e, const br_rel *over, const char *alias);
/* SQL's spelling of "COMPARE_EQUAL"; fails for others. */
const char *br_e_comparison(br_emit *e, const char *type);

/* ---- types.c */
const char *br_e_type(br_emit *e, const json_t *type);
const char *br_e_cast(br_emit *e, const char *text, const json_t *type);
bool br_e_is(const json_t *type, const char *id);
bool br_e_unnamed(const json_t *type); /* holds a struct whose fields have no names: no type text stands for it */
const json_t *br_e_child_type(const json_t *type); /* of LIST, ARRAY, MAP */
const json_t *br_e_fields(const json_t *type);     /* child_types of STRUCT and UNION */
const json_t *br_e_field_type(const json_t *type, size_t i);
const json_t *br_e_field_name(const json_t *type, size_t i); /* a JSON string */

/* ---- constants.c */
const char *br_e_constant(br_emit *e, const json_t *value, const json_t *type_if_absent);

/* The number in a value of whole numbers, of days or microseconds, or of a decimal without its point. */
const char *br_e_whole(br_emit *e, const json_t *x, bool is_unsigned);

/* ---- exprs.c */
const char *br_e_expr(br_emit *e, const json_t *expr, const br_env *env);
br_texts br_e_exprs(br_emit *e, const json_t *array, const br_env *env);
const char *br_e_orders(br_emit *e, const json_t *orders, const br_env *env);
/* Text that stands several times in the SQL: refuses what gives another value each time. */
void br_e_repeatable(br_emit *e, const json_t *expr);

/* ---- functions.c */
const char *br_e_function(br_emit *e, const json_t *expr, const br_env *env);
const char *br_e_quantile(br_emit *e, const json_t *value, const char *type);

/* ---- aggregates.c, windows.c */
const char *br_e_aggregate(br_emit *e, const json_t *expr, const br_env *env, bool in_window);
const char *br_e_window(br_emit *e, const json_t *expr, const br_env *env);

/* ---- scans.c, joins.c, nodes.c: the text of one node over its children */
const char *br_e_get(br_emit *e, const br_node *n, const br_rel *children);
const char *br_e_sample(br_emit *e, const json_t *sample_options);
bool br_e_in_directories(const br_node *get, const char *column);
/* prune.c; NULL: all row groups may hold rows */
const char *br_e_prune(br_emit *e, const br_node *get);
/* from_left, from_right: items of FROM; with: definitions that they use. */
const char *br_e_join_node(br_emit *e, const br_node *n, const br_rel *children, const char *from_left,
                           const char *from_right, br_texts *with);
const char *br_e_node(br_emit *e, const br_node *n, const br_rel *children);

#endif
