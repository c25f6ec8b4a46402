/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins. The left input is l, the right r; conditions index each side's own columns, predicates the output columns.
 *
 * MARK appends a boolean that follows the rules of IN and EXISTS, NULLs included; conditions that compare by NOT DISTINCT
 * are its correlation, the others its operands. SINGLE is a left join that fails when a row finds two partners. Both may
 * read their right side more than once: it is bound by WITH … AS MATERIALIZED then, never evaluated twice.
 */
#include "plan/decompile/emit.h"

#include <string.h>

#define TOO_MANY                                                                                                 \
  "error('More than one row returned by a subquery used as an expression - scalar subqueries can only return a " \
  "single row.')"

typedef struct condition {
  const char *left, *operator, * right;
  bool correlation; /* compared by IS NOT DISTINCT FROM */
} condition;

typedef struct join {
  br_emit *e;
  const br_node *n;
  const char *type;
  const char *l, *r;    /* items of FROM */
  br_texts left, right; /* output columns of each side */
  condition *cs;        /* of a comparison join */
  size_t n_cs;
  const char *predicate; /* NULL: none */
  br_texts *with;
} join;

static br_texts side_columns(br_emit *e, const json_t *map, size_t width, char alias) {
  br_texts list = {0};
  size_t mapped = json_array_size(map);
  for (size_t i = 0; i < (mapped ? mapped : width); i++)
    br_e_add(e, &list,
             br_e_fmt(e, "%c.c%llu", alias, (unsigned long long)(mapped ? br_json_u64(json_array_get(map, i)) : i)));
  return list;
}

static void add_all(br_emit *e, br_texts *to, const br_texts *from) {
  for (size_t i = 0; i < from->n; i++) br_e_add(e, to, from->v[i]);
}

/* References of a predicate: the columns that the join gives out, left then right; a SEMI or ANTI join sees all of the
 * right ones. Bindings: every column of both sides. */
static br_env predicate_env(join *j, const br_rel *children) {
  br_emit *e = j->e;
  br_env env = {.refs = {0}};
  size_t nl = children[0].n_columns, nr = children[1].n_columns;
  br_texts all_left = side_columns(e, NULL, nl, 'l'), all_right = side_columns(e, NULL, nr, 'r');
  bool semi = !strcmp(j->type, "SEMI") || !strcmp(j->type, "ANTI");
  br_bind *binds = br_arena_alloc(e->arena, (nl + nr + 1) * sizeof *binds);
  for (size_t i = 0; i < nl + nr; i++) binds[i] = i < nl ? children[0].binds[i] : children[1].binds[i - nl];
  add_all(e, &env.refs, &j->left);
  add_all(e, &env.refs, semi ? &all_right : &j->right);
  add_all(e, &env.bind_refs, &all_left);
  add_all(e, &env.bind_refs, &all_right);
  env.binds = binds;
  return env;
}

/* A number that compares as the interval does: months, days, microseconds, after 30 days became a month and 24 hours a day. NULL for NULL. */
static const char *interval_key(br_emit *e, const char *text) {
  return br_e_fmt(
      e,
      "list_transform([%s], lambda v: list_transform([{'m': datepart('year', v) * 12 + datepart('month', v), "
      "'d': datepart('day', v), 'u': datepart('hour', v) * 3600000000 + datepart('minute', v) * 60000000 + "
      "datepart('microsecond', v)}], lambda p: ((p.m + p.d // 30 + p.u // 2592000000000)::HUGEINT * 128 + 64 "
      "+ p.d %% 30 + p.u %% 2592000000000 // 86400000000) * 274877906944 + 137438953472 + p.u %% "
      "86400000000)[1])[1]",
      text);
}

/* DuckDB's loop for mark, semi and anti joins without an equality knows no intervals. */
static bool loop_misses(const join *j, const json_t *left, const char *operator) {
  bool loops = !strcmp(j->type, "MARK") || !strcmp(j->type, "SEMI") || !strcmp(j->type, "ANTI");
  return loops && br_j_is(br_expr_type(left), "id", "INTERVAL") && strchr("<>", operator[0]) != NULL;
}

static void read_conditions(join *j, const br_rel *children) {
  br_emit *e = j->e;
  br_env left = br_e_env(e, &children[0], "l"), right = br_e_env(e, &children[1], "r");
  const json_t *list = br_j_get(j->n->json, "conditions");
  j->n_cs = json_array_size(list);
  j->cs = br_arena_alloc(e->arena, (j->n_cs + 1) * sizeof *j->cs);
  for (size_t i = 0; i < j->n_cs; i++) {
    const json_t *c = json_array_get(list, i);
    const char *kind = br_j_str(c, "comparison");
    j->cs[i] = (condition){.left = br_e_expr(e, br_j_get(c, "left"), &left),
                           .operator= br_e_comparison(e, kind),
                           .right = br_e_expr(e, br_j_get(c, "right"), &right),
                           .correlation = !strcmp(kind, "COMPARE_NOT_DISTINCT_FROM")};
    if (!loop_misses(j, br_j_get(c, "left"), j->cs[i].operator)) continue;
    j->cs[i].left = interval_key(e, j->cs[i].left);
    j->cs[i].right = interval_key(e, j->cs[i].right);
  }
}

static const char *condition_text(br_emit *e, const condition *c) {
  return br_e_fmt(e, "%s %s %s", c->left, c->operator, c->right);
}

/* Every side of an ASOF condition must name its table, also where statistics made a constant of it. */
static const char *of_side(br_emit *e, const char *text, const char *side) {
  return strstr(text, side) ? text : br_e_fmt(e, "CASE WHEN %sc0 IS NULL THEN %s ELSE %s END", side, text, text);
}

/* DuckDB's sorted ASOF join, unlike its loop for few rows, gives a left row whose value is NULL a match when there are keys: such a row
 * gets a key that matches nothing, so that the answer doesn't depend on how many rows a task has. */
static void asof_conditions(join *j) {
  const char *value = NULL;
  for (size_t i = 0; i < j->n_cs; i++) {
    j->cs[i].left = of_side(j->e, j->cs[i].left, "l.");
    j->cs[i].right = of_side(j->e, j->cs[i].right, "r.");
    if (j->cs[i].operator[0] == '<' || j->cs[i].operator[0] == '>') value = j->cs[i].left;
  }
  for (size_t i = 0; value && i < j->n_cs; i++)
    if (!strcmp(j->cs[i].operator, "="))
      j->cs[i].left = br_e_fmt(j->e, "CASE WHEN %s IS NOT NULL THEN %s END", value, j->cs[i].left);
}

static const char *on(join *j) {
  br_texts list = {0};
  if (j->n->kind == BR_NODE_ASOF_JOIN) asof_conditions(j);
  for (size_t i = 0; i < j->n_cs; i++) br_e_add(j->e, &list, condition_text(j->e, &j->cs[i]));
  if (j->predicate) br_e_add(j->e, &list, j->predicate);
  return list.n ? br_e_join(j->e, &list, " AND ") : "true";
}

/* Bind the right side once; what follows reads it by this name. */
static const char *bind_right(join *j) {
  const char *name = br_e_fmt(j->e, "right%u", j->n->id);
  if (j->r[0] != '(') return j->r; /* a name already */
  br_e_add(j->e, j->with, br_e_fmt(j->e, "%s AS MATERIALIZED %s", name, j->r));
  j->r = name;
  return name;
}

/* ---- MARK */

static const char *mark_output(join *j, const char *mark, const char *from) {
  br_texts columns = j->left;
  br_e_add(j->e, &columns, mark);
  return br_e_fmt(j->e, "SELECT %s\nFROM %s", br_e_columns(j->e, &columns), from);
}

/* "r.c0 AS k0, …" for the correlations; keys: "k0, …"; match: "l.c0 IS NOT DISTINCT FROM <alias>.k0 AND …". */
static const char *key_columns(join *j, br_texts *keys) {
  br_texts list = {0};
  size_t k = 0;
  for (size_t i = 0; i < j->n_cs; i++) {
    if (!j->cs[i].correlation) continue;
    br_e_add(j->e, keys, br_e_fmt(j->e, "k%zu", k));
    br_e_add(j->e, &list, br_e_fmt(j->e, "%s AS k%zu", j->cs[i].right, k++));
  }
  return br_e_join(j->e, &list, ", ");
}

static const char *key_match(join *j, char alias) {
  br_texts list = {0};
  size_t k = 0;
  for (size_t i = 0; i < j->n_cs; i++)
    if (j->cs[i].correlation)
      br_e_add(j->e, &list, br_e_fmt(j->e, "%s IS NOT DISTINCT FROM %c.k%zu", j->cs[i].left, alias, k++));
  return br_e_join(j->e, &list, " AND ");
}

static const char *mark_exists(join *j) {
  br_texts keys = {0};
  const char *columns = key_columns(j, &keys);
  return mark_output(j, "(g.m IS NOT NULL)",
                     br_e_fmt(j->e, "%s l\nLEFT JOIN (SELECT DISTINCT %s, true AS m FROM %s r) g ON %s", j->l, columns,
                              j->r, key_match(j, 'g')));
}

/* x IN (SELECT …) and x > ANY (SELECT …): DuckDB's own null rules; the correlation goes into the subquery. */
static const char *mark_in(join *j, const condition *const *ops, size_t n_ops) {
  br_emit *e = j->e;
  br_texts a = {0}, b = {0}, where = {0};
  for (size_t i = 0; i < n_ops; i++) {
    br_e_add(e, &a, ops[i]->left);
    br_e_add(e, &b, ops[i]->right);
  }
  for (size_t i = 0; i < j->n_cs; i++)
    if (j->cs[i].correlation) br_e_add(e, &where, condition_text(e, &j->cs[i]));
  const char *lhs = n_ops > 1 ? br_e_fmt(e, "(%s)", br_e_join(e, &a, ", ")) : a.v[0];
  const char *how = !strcmp(ops[0]->operator, "=") ? "IN" : br_e_fmt(e, "%s ANY", ops[0]->operator);
  const char *subquery = br_e_fmt(e, "SELECT %s FROM %s r%s%s", br_e_join(e, &b, ", "), j->r, where.n ? " WHERE " : "",
                                  br_e_join(e, &where, " AND "));
  return mark_output(j, br_e_fmt(e, "%s %s (%s)", lhs, how, subquery), br_e_fmt(e, "%s l", j->l));
}

/* One `=` among correlations: hit: true; no group: false; left NULL, or a NULL in the group: NULL; else false. */
static const char *mark_grouped(join *j, const condition *op) {
  br_emit *e = j->e;
  br_texts keys = {0};
  const char *columns = key_columns(j, &keys), *k = br_e_join(e, &keys, ", ");
  const char *name = br_e_fmt(e, "mark%u", j->n->id);
  br_e_add(e, j->with,
           br_e_materialized(e, name, br_e_fmt(e, "SELECT %s, %s AS x\nFROM %s r", columns, op->right, j->r)));
  const char *mark = br_e_fmt(e,
                              "CASE WHEN h.x IS NOT NULL THEN true WHEN g.n IS NULL THEN false "
                              "WHEN %s IS NULL OR g.nx < g.n THEN NULL ELSE false END",
                              op->left);
  return mark_output(
      j, mark,
      br_e_fmt(e,
               "%s l\nLEFT JOIN (SELECT DISTINCT %s, x FROM %s WHERE x IS NOT NULL) h ON %s AND %s = h.x\n"
               "LEFT JOIN (SELECT %s, count(*) AS n, count(x) AS nx FROM %s GROUP BY %s) g ON %s",
               j->l, k, name, key_match(j, 'h'), op->left, k, name, k, key_match(j, 'g')));
}

/* Any other condition: true for some row, else NULL for some row, else false. */
static const char *mark_general(join *j) {
  const char *r = bind_right(j), *cond = on(j);
  return mark_output(j,
                     br_e_fmt(j->e,
                              "CASE WHEN EXISTS (SELECT 1 FROM %s r WHERE %s) THEN true "
                              "WHEN EXISTS (SELECT 1 FROM %s r WHERE (%s) IS NULL) THEN NULL ELSE false END",
                              r, cond, r, cond),
                     br_e_fmt(j->e, "%s l", j->l));
}

static const char *mark(join *j) {
  const condition **ops = br_arena_alloc(j->e->arena, (j->n_cs + 1) * sizeof *ops);
  size_t n = 0, equal = 0;
  for (size_t i = 0; i < j->n_cs; i++)
    if (!j->cs[i].correlation) {
      ops[n++] = &j->cs[i];
      equal += !strcmp(j->cs[i].operator, "=");
    }
  if (j->predicate || !j->n_cs) return mark_general(j);
  if (!n) return mark_exists(j);
  if (n == 1 && equal && j->n_cs > 1) return mark_grouped(j, ops[0]);
  if (n == 1 || equal == n) return mark_in(j, ops, n);
  return mark_general(j);
}

/* ---- SINGLE */

static const char *packed(join *j) { /* the right columns as one struct */
  br_texts list = {0};
  for (size_t i = 0; i < j->right.n; i++) br_e_add(j->e, &list, br_e_fmt(j->e, "'c%zu': %s", i, j->right.v[i]));
  return list.n ? br_e_fmt(j->e, "{%s}", br_e_join(j->e, &list, ", ")) : "{'none': true}";
}

/* Only equalities: the right side is grouped by its keys, and a group of two fails when it is matched. */
static const char *single_grouped(join *j) {
  br_emit *e = j->e;
  br_texts keys = {0}, names = {0}, match = {0}, columns = j->left;
  for (size_t i = 0; i < j->n_cs; i++) {
    br_e_add(e, &keys, br_e_fmt(e, "%s AS k%zu", j->cs[i].right, i));
    br_e_add(e, &names, br_e_fmt(e, "k%zu", i));
    br_e_add(e, &match, br_e_fmt(e, "%s %s g.k%zu", j->cs[i].left, j->cs[i].operator, i));
  }
  for (size_t i = 0; i < j->right.n; i++)
    br_e_add(e, &columns, br_e_fmt(e, "CASE WHEN g.n > 1 THEN " TOO_MANY " ELSE g.v.c%zu END", i));
  const char *k = br_e_join(e, &names, ", ");
  return br_e_fmt(e,
                  "SELECT %s\nFROM %s l\nLEFT JOIN (SELECT %s, count(*) AS n, first(v) AS v FROM (SELECT %s, %s AS v "
                  "FROM %s r) r GROUP BY %s) g ON %s",
                  br_e_columns(e, &columns), j->l, k, br_e_join(e, &keys, ", "), packed(j), j->r, k,
                  br_e_join(e, &match, " AND "));
}

static const char *single_correlated(join *j) {
  br_emit *e = j->e;
  br_texts inner = j->left, columns = {0};
  br_e_add(e, &inner, br_e_fmt(e, "(SELECT %s FROM %s r WHERE %s)", packed(j), j->r, on(j)));
  for (size_t i = 0; i < j->left.n; i++) br_e_add(e, &columns, br_e_fmt(e, "t.c%zu", i));
  for (size_t i = 0; i < j->right.n; i++) br_e_add(e, &columns, br_e_fmt(e, "t.c%zu.c%zu", j->left.n, i));
  return br_e_fmt(e, "SELECT %s\nFROM %s t", br_e_columns(e, &columns),
                  br_e_from(e, br_e_fmt(e, "SELECT %s\nFROM %s l", br_e_columns(e, &inner), j->l)));
}

static const char *single(join *j) {
  bool equalities = j->n_cs > 0 && !j->predicate;
  for (size_t i = 0; i < j->n_cs; i++)
    if (!j->cs[i].correlation && strcmp(j->cs[i].operator, "=") != 0) equalities = false;
  return equalities ? single_grouped(j) : single_correlated(j);
}

/* ---- ASOF joins that keep the right side */

/* DuckDB 1.5.5 never ends one that runs on one thread and has right rows whose keys the left side has not. So: the pairs, and the right rows
 * that are in none of them. */
static const char *asof_kept_right(join *j, bool left_too) {
  br_emit *e = j->e;
  br_texts pairs = j->left, shown = {0}, kept = {0};
  const char *name = br_e_fmt(e, "right%u", j->n->id), *matched = br_e_fmt(e, "asof%u", j->n->id);
  br_e_add(e, j->with,
           br_e_materialized(e, name, br_e_fmt(e, "SELECT r.*, row_number() OVER () AS n\nFROM %s r", j->r)));
  add_all(e, &pairs, &j->right);
  br_e_add(e, j->with,
           br_e_materialized(e, matched,
                             br_e_fmt(e, "SELECT %s, r.n AS n\nFROM %s l\nASOF %sJOIN %s r ON %s",
                                      br_e_columns(e, &pairs), j->l, left_too ? "LEFT " : "", name, on(j))));
  for (size_t i = 0; i < pairs.n; i++) br_e_add(e, &shown, br_e_fmt(e, "a.c%zu", i));
  for (size_t i = 0; i < j->left.n; i++) br_e_add(e, &kept, "NULL");
  add_all(e, &kept, &j->right);
  return br_e_fmt(e, "SELECT %s\nFROM %s a\nUNION ALL SELECT %s\nFROM %s r\nANTI JOIN %s a ON a.n = r.n",
                  br_e_columns(e, &shown), matched, br_e_columns(e, &kept), name, matched);
}

/* ---- plain joins */

static const char *plain(join *j) {
  static const char *const words[][2] = {{"INNER", "JOIN"},     {"LEFT", "LEFT JOIN"},  {"RIGHT", "RIGHT JOIN"},
                                         {"FULL", "FULL JOIN"}, {"OUTER", "FULL JOIN"}, {"SEMI", "SEMI JOIN"},
                                         {"ANTI", "ANTI JOIN"}};
  br_emit *e = j->e;
  const char *asof = j->n->kind == BR_NODE_ASOF_JOIN ? "ASOF " : "";
  br_texts columns = j->left;
  if (!strcmp(j->type, "RIGHT_SEMI") || !strcmp(j->type, "RIGHT_ANTI"))
    return br_e_fmt(e, "SELECT %s\nFROM %s r\n%s JOIN %s l ON %s", br_e_columns(e, &j->right), j->r, j->type + 6, j->l,
                    on(j));
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(j->type, words[i][0]) != 0) continue;
    if (*asof && i >= 2 && i < 5) return asof_kept_right(j, i > 2);
    if (i < 5) add_all(e, &columns, &j->right);
    return br_e_fmt(e, "SELECT %s\nFROM %s l\n%s%s %s r ON %s", br_e_columns(e, &columns), j->l, asof, words[i][1],
                    j->r, on(j));
  }
  br_e_unsupported(e, "a join of kind %.60s", j->type);
  return "";
}

static const char *cross(join *j, const char *words) {
  br_texts columns = j->left;
  add_all(j->e, &columns, &j->right);
  return br_e_fmt(j->e, "SELECT %s\nFROM %s l\n%s %s r", br_e_columns(j->e, &columns), j->l, words, j->r);
}

const char *br_e_join_node(br_emit *e, const br_node *n, const br_rel *children, const char *from_left,
                           const char *from_right, br_texts *with) {
  join j = {.e = e, .n = n, .type = br_j_str(n->json, "join_type"), .l = from_left, .r = from_right, .with = with};
  const json_t *condition = br_j_some(n->json, "condition"), *predicate = br_j_some(n->json, "predicate");
  const char *text;
  j.left = side_columns(e, br_j_get(n->json, "left_projection_map"), children[0].n_columns, 'l');
  j.right = side_columns(e, br_j_get(n->json, "right_projection_map"), children[1].n_columns, 'r');
  if (n->kind == BR_NODE_CROSS) return cross(&j, "CROSS JOIN");
  if (n->kind == BR_NODE_POSITIONAL_JOIN) return cross(&j, "POSITIONAL JOIN");
  read_conditions(&j, children);
  if (condition || predicate) {
    br_env env = predicate_env(&j, children);
    j.predicate = br_e_expr(e, condition ? condition : predicate, &env);
  }
  if (e->status != BR_OK) return "";
  if (!strcmp(j.type, "MARK"))
    text = mark(&j);
  else if (!strcmp(j.type, "SINGLE"))
    text = single(&j);
  else
    text = plain(&j);
  return text;
}
