/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows without PARTITION BY in two steps. The rows lie in ranges of the ORDER BY keys (without any: as they come, task after
 * task), and five things happen:
 *   E  each task computes the windows over its own rows ("local" columns) and keeps its rows
 *   S  each task's summary, one row: its number, its rows, partial results
 *   C  one task: for each task what lies before it (or behind it), and what all have together; sent to every task
 *   F  reads E again, and makes each window's value of the local one and of the task's row of C
 * Frames of some rows before and behind: C gives each task copies of the rows next to its own, and F computes the window over both.
 * Rows that are equal by the keys are in one task where a function must see its peers (rank, RANGE frames).
 *
 * Called by window.c: br_window_steps says whether all of some windows are of a kind that is known here.
 * Threads: none. Bounds: max_halo rows of lag, lead and frames.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static const uint64_t max_halo = 1000;

typedef enum how {
  HOW_NOT,
  HOW_ROW_NUMBER,
  HOW_RANK,
  HOW_DENSE_RANK,
  HOW_PERCENT_RANK,
  HOW_CUME_DIST,
  HOW_NTILE,
  HOW_RUNNING, /* an aggregate from the first row to the current one */
  HOW_TOTAL,   /* over all rows */
  HOW_FIRST,
  HOW_LAST,     /* of what runs to the current row: the local value */
  HOW_LAST_ALL, /* of all rows */
  HOW_LAG,
  HOW_LEAD,
  HOW_FRAME /* over a constant number of rows before and behind */
} how;

/* ---- what is known */

static bool is_from_first(const json_t *w) { return br_j_is(w, "start", "UNBOUNDED_PRECEDING"); }

static bool is_to_current(const json_t *w) { return !strncmp(br_j_str(w, "end"), "CURRENT_ROW", 11); }

/* Without ORDER BY all rows are peers. */
static bool is_over_all(const json_t *w) {
  if (!is_from_first(w)) return false;
  return br_j_is(w, "end", "UNBOUNDED_FOLLOWING") ||
         (!br_j_count(w, "orders") &&
          (br_j_is(w, "end", "CURRENT_ROW_RANGE") || br_j_is(w, "end", "CURRENT_ROW_GROUPS")));
}

/* A constant whole number from 0 (1 where there is none); false: it is something else. */
static bool constant_number(const json_t *e, uint64_t *out) {
  while (br_j_is(e, "expression_class", "BOUND_CAST")) e = br_j_get(e, "child");
  const json_t *value = br_j_get(br_j_get(e, "value"), "value");
  if (!br_j_is(e, "expression_class", "BOUND_CONSTANT") || !json_is_integer(value) || json_integer_value(value) < 0)
    return false;
  *out = (uint64_t)json_integer_value(value);
  return true;
}

static bool halo_of(const json_t *w, uint64_t *rows) {
  const json_t *offset = br_j_some(w, "offset_expr"), *fallback = br_j_some(w, "default_expr");
  *rows = 1;
  if (offset && !constant_number(offset, rows)) return false;
  if (fallback && !br_j_is(fallback, "expression_class", "BOUND_CONSTANT")) return false;
  return *rows >= 1 && *rows <= max_halo;
}

static bool runs(const char *name) {
  static const char *const names[] = {"count", "count_star", "sum",      "sum_no_overflow", "min",      "max",
                                      "avg",   "mean",       "count_if", "countif",         "bool_and", "bool_or"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

static bool counts_rows(const json_t *w) { return br_j_is(w, "name", "count") && !br_j_count(w, "children"); }

/* The call as an AGGREGATE node would have it. */
static json_t *as_aggregate(br_dist *d, const json_t *w) {
  json_t *copy = br_own_type(d, json_deep_copy(w));
  json_object_set(copy, "filter", br_j_some(w, "filters") ? br_j_get(w, "filters") : json_null());
  json_object_del(copy, "filters");
  json_object_del(copy, "orders");
  json_object_set_new(copy, "aggregate_type", json_string("NON_DISTINCT"));
  if (counts_rows(w)) json_object_set_new(copy, "name", json_string("count_star"));
  return copy;
}

static how how_of_aggregate(const json_t *w) {
  if (!counts_rows(w) && !br_aggregate_splits(w, true)) return HOW_NOT;
  if (is_over_all(w)) return HOW_TOTAL;
  return is_from_first(w) && is_to_current(w) && runs(br_j_str(w, "name")) ? HOW_RUNNING : HOW_NOT;
}

/* The rows before and behind that a bound of a frame reaches; false: it isn't a constant number of rows. */
static bool bound_of(const json_t *w, const char *key, const char *expr_key, uint64_t *before, uint64_t *behind) {
  const char *b = br_j_str(w, key);
  uint64_t rows;
  if (!strcmp(b, "CURRENT_ROW_ROWS")) return true;
  bool precedes = !strcmp(b, "EXPR_PRECEDING_ROWS");
  if (!precedes && strcmp(b, "EXPR_FOLLOWING_ROWS") != 0) return false;
  if (!constant_number(br_j_get(w, expr_key), &rows) || rows > max_halo) return false;
  uint64_t *most = precedes ? before : behind;
  *most = rows > *most ? rows : *most;
  return true;
}

/* Does it leave out what is equal to a row? */
static bool excludes_peers(const json_t *w) {
  return br_j_is(w, "exclude_clause", "GROUP") || br_j_is(w, "exclude_clause", "TIES");
}

static bool is_frame(const json_t *w, uint64_t *before, uint64_t *behind) {
  static const char *const types[] = {"WINDOW_AGGREGATE", "WINDOW_FIRST_VALUE", "WINDOW_LAST_VALUE",
                                      "WINDOW_NTH_VALUE"};
  bool known = false;
  *before = *behind = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) known = known || br_j_is(w, "type", types[i]);
  if (!known || br_frame_may_end_first(w) || (excludes_peers(w) && !br_j_count(w, "orders"))) return false;
  return bound_of(w, "start", "start_expr", before, behind) && bound_of(w, "end", "end_expr", before, behind);
}

static bool ignores_nulls(const json_t *w) { return br_j_true(w, "ignore_nulls"); }

static how how_of_value(const json_t *w) {
  if (!is_from_first(w)) return HOW_NOT;
  if (br_j_is(w, "type", "WINDOW_FIRST_VALUE")) return is_over_all(w) || is_to_current(w) ? HOW_FIRST : HOW_NOT;
  return is_over_all(w) ? HOW_LAST_ALL : is_to_current(w) ? HOW_LAST : HOW_NOT;
}

static how how_of(const json_t *w) {
  static const struct {
    const char *type;
    how how;
  } kinds[] = {{"WINDOW_ROW_NUMBER", HOW_ROW_NUMBER}, {"WINDOW_RANK", HOW_RANK},
               {"WINDOW_RANK_DENSE", HOW_DENSE_RANK}, {"WINDOW_PERCENT_RANK", HOW_PERCENT_RANK},
               {"WINDOW_CUME_DIST", HOW_CUME_DIST},   {"WINDOW_NTILE", HOW_NTILE}};
  const char *type = br_j_str(w, "type");
  uint64_t number;
  uint64_t before, behind;
  if (br_volatile(w)) return HOW_NOT;
  if (is_frame(w, &before, &behind)) return HOW_FRAME;
  if (br_j_true(w, "distinct") || br_j_count(w, "arg_orders") || !br_j_is(w, "exclude_clause", "NO_OTHER"))
    return HOW_NOT;
  if (!strcmp(type, "WINDOW_AGGREGATE")) return how_of_aggregate(w);
  if (br_j_some(w, "filters")) return HOW_NOT;
  if (!strcmp(type, "WINDOW_LAG") || !strcmp(type, "WINDOW_LEAD"))
    return !halo_of(w, &number) ? HOW_NOT : !strcmp(type, "WINDOW_LAG") ? HOW_LAG : HOW_LEAD;
  if (!strcmp(type, "WINDOW_FIRST_VALUE") || !strcmp(type, "WINDOW_LAST_VALUE")) return how_of_value(w);
  if (!strcmp(type, "WINDOW_NTILE") && (!constant_number(br_j_at(w, "children", 0), &number) || number < 1))
    return HOW_NOT;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(type, kinds[i].type)) /* without ORDER BY all rows are peers: ranks are one task's */
      return br_j_count(w, "orders") || kinds[i].how == HOW_ROW_NUMBER || kinds[i].how == HOW_NTILE ? kinds[i].how
                                                                                                    : HOW_NOT;
  return HOW_NOT;
}

static bool in_no_order(how h) { return h == HOW_TOTAL; }

static const json_t *window_at(const br_node *n, size_t i) { return br_j_at(n->json, "expressions", i); }

static const json_t *orders_of(const br_node *n, const size_t *which, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (br_j_count(window_at(n, which[i]), "orders")) return br_j_get(window_at(n, which[i]), "orders");
  return NULL;
}

bool br_window_step(const json_t *w) { return how_of(w) != HOW_NOT && !br_volatile(br_j_get(w, "orders")); }

bool br_window_steps(const br_node *n, const size_t *which, size_t count) {
  const json_t *orders = orders_of(n, which, count);
  for (size_t i = 0; i < count; i++) {
    const json_t *w = window_at(n, which[i]);
    how h = how_of(w);
    if (h == HOW_NOT || br_volatile(br_j_get(w, "orders"))) return false;
    /* in the order of the source, beside one that sorts: two orders at once */
    if (orders && !br_j_count(w, "orders") && !in_no_order(h)) return false;
  }
  return true;
}

static bool needs_peers(const json_t *w, how h) {
  if (h == HOW_RANK || h == HOW_DENSE_RANK || h == HOW_PERCENT_RANK || h == HOW_CUME_DIST) return true;
  if (h == HOW_FRAME && excludes_peers(w)) return true;
  bool sees_peers = h == HOW_RUNNING || h == HOW_LAST || (h == HOW_FIRST && ignores_nulls(w) && is_to_current(w));
  return sees_peers && !br_j_is(w, "end", "CURRENT_ROW_ROWS");
}

/* ---- the columns of E, S and C */

typedef struct columns {
  const char **texts;
  json_t **types;
  size_t n, first; /* column number of the first */
} columns;

typedef struct steps {
  br_dist *d;
  const br_node *n;
  br_drel *r;              /* what E is made of */
  br_rel over;             /* its columns */
  const char *order;       /* "ORDER BY …", "" */
  columns e, s, c;         /* e: behind the columns of r; s: behind the task's number and rows; c: behind the number */
  columns w;               /* frames, computed in F: w0, w1, … */
  bool *halo;              /* [columns of r] those that the frames read */
  bool ranked;             /* some of them leave out peers */
  uint64_t before, behind; /* rows that they reach */
  const char *near;        /* the neighbours' rows, as a SELECT from g; NULL: no frames */
} steps;

static columns columns_new(br_dist *d, size_t most, size_t first) {
  return (columns){.texts = br_arena_alloc(d->arena, most * sizeof(char *)),
                   .types = br_arena_alloc(d->arena, most * sizeof(json_t *)),
                   .first = first};
}

static size_t add(columns *c, const char *text, json_t *type) {
  for (size_t i = 0; i < c->n; i++)
    if (!strcmp(c->texts[i], text)) return c->first + i;
  c->texts[c->n] = text;
  c->types[c->n++] = type;
  return c->first + c->n - 1;
}

static json_t *bigint(void) { return br_type_plain("BIGINT"); }

static const char *fmt(steps *p, const char *f, ...) BR_PRINTF(2, 3);
static const char *fmt(steps *p, const char *f, ...) {
  va_list ap;
  br_buf b = {0};
  va_start(ap, f);
  br_buf_vprintf(&b, f, ap);
  va_end(ap);
  const char *text = br_arena_strdup(p->d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

#define BEFORE "OVER (ORDER BY s.c0 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
#define EVERYWHERE "OVER (ORDER BY s.c0 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"

static size_t rows_before(steps *p) {
  return add(&p->c, "coalesce(CAST(sum(s.c1) " BEFORE " AS BIGINT), 0)", bigint());
}
static size_t rows_of_all(steps *p) { return add(&p->c, "CAST(sum(s.c1) OVER () AS BIGINT)", bigint()); }
/* In the order of row numbers, and equal for rows that are: all of these are in one task. */
static size_t rank_in_task(steps *p) { return add(&p->e, fmt(p, "rank() OVER (%s)", p->order), bigint()); }
static size_t row_number(steps *p) { return add(&p->e, fmt(p, "row_number() OVER (%s)", p->order), bigint()); }

static br_status local(steps *p, const json_t *w, size_t *at, br_error *err) {
  br_buf b = {0};
  br_status status = br_emit_window(p->d->emit, w, &p->over, "t", &b, err);
  if (status == BR_OK) *at = add(&p->e, br_arena_strdup(p->d->arena, br_buf_cstr(&b)), br_expr_type(w));
  br_buf_free(&b);
  return status;
}

static br_status argument(steps *p, const json_t *w, size_t *at, br_error *err) {
  br_buf b = {0};
  const json_t *x = br_j_at(w, "children", 0);
  br_status status = br_emit_expr(p->d->emit, x, &p->over, "t", &b, err);
  if (status == BR_OK) *at = add(&p->e, br_arena_strdup(p->d->arena, br_buf_cstr(&b)), br_expr_type(x));
  br_buf_free(&b);
  return status;
}

static json_t *list_of(br_dist *d, json_t *type) {
  return br_own_type(d, json_pack("{s:s, s:{s:s, s:s, s:n, s:O}}", "id", "LIST", "type_info", "type", "LIST_TYPE_INFO",
                                  "alias", "", "extension_info", "child_type", type));
}

/* ---- each kind: its columns, and the value over t (a row of E) and g (the task's row of C) */

/* Of local value l and of p, that of all rows before: NULL is nothing. */
static const char *both(steps *p, const char *merge, size_t l, size_t before) {
  bool falls = !strcmp(merge, "min") || !strcmp(merge, "bool_and");
  br_buf b = {0};
  br_buf_printf(&b, "CASE WHEN t.c%zu IS NULL THEN g.c%zu WHEN g.c%zu IS NULL THEN t.c%zu ELSE ", l, before, before, l);
  if (!strcmp(merge, "sum"))
    br_buf_printf(&b, "t.c%zu + g.c%zu", l, before);
  else
    br_buf_printf(&b, "CASE WHEN t.c%zu %s g.c%zu THEN t.c%zu ELSE g.c%zu END", l, falls ? "<" : ">", before, l,
                  before);
  br_buf_str(&b, " END");
  const char *text = br_arena_strdup(p->d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* What the last row of a task shows is what the task adds. */
static const char *running_part(steps *p, const br_split_agg *a, size_t i, const char *frame) {
  const char *merge = a->merge[i];
  size_t l = add(&p->e, fmt(p, "%s OVER (%s%s)", a->partial[i], p->order, frame), a->types[i]);
  bool grows = !strcmp(merge, "max") || !strcmp(merge, "bool_or"),
       falls = !strcmp(merge, "min") || !strcmp(merge, "bool_and");
  const char *last = grows   ? fmt(p, "max(t.c%zu)", l)
                     : falls ? fmt(p, "min(t.c%zu)", l)
                             : fmt(p, "arg_max(t.c%zu, t.c%zu)", l, row_number(p));
  size_t s = add(&p->s, last, a->types[i]);
  size_t before = add(&p->c, fmt(p, "%s(s.c%zu) " BEFORE, merge, s), a->types[i]);
  return both(p, merge, l, before);
}

static br_status running(steps *p, const json_t *w, const char **value, br_error *err) {
  const char *name = br_j_str(w, "name");
  const char *frame = br_j_is(w, "end", "CURRENT_ROW_ROWS") ? " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW" : "";
  br_split_agg a;
  BR_TRY(br_split_aggregate(p->d, as_aggregate(p->d, w), &p->over, 0, &a, err));
  const char *part = running_part(p, &a, 0, frame);
  if (!strcmp(name, "avg") || !strcmp(name, "mean"))
    *value = fmt(p, "CAST(%s AS DOUBLE) / nullif(CAST(%s AS DOUBLE), 0)", part, running_part(p, &a, 1, frame));
  else
    *value = part;
  return BR_OK;
}

static br_status total(steps *p, const json_t *w, const char **value, br_error *err) {
  br_split_agg a;
  size_t first = p->s.first + p->s.n;
  BR_TRY(br_split_aggregate(p->d, as_aggregate(p->d, w), &p->over, first, &a, err));
  for (size_t i = 0; i < a.n; i++) {
    p->s.texts[p->s.n] = a.partial[i]; /* not shared with others: the final text counts from `first` */
    p->s.types[p->s.n++] = a.types[i];
  }
  *value = fmt(p, "g.c%zu", add(&p->c, fmt(p, "(SELECT %s FROM s t)", a.final), br_expr_type(w)));
  return BR_OK;
}

/* The first (last) that is not NULL: of the tasks before, then of this one (the other way round). */
static br_status first_or_last_set(steps *p, const json_t *w, bool first, const char **value, br_error *err) {
  size_t l = 0, x = 0;
  bool all = is_over_all(w);
  if (!all) BR_TRY(local(p, w, &l, err));
  BR_TRY(argument(p, w, &x, err));
  size_t s = add(&p->s, fmt(p, "arg_%s(t.c%zu, t.c%zu)", first ? "min" : "max", x, row_number(p)), br_expr_type(w));
  const char *text = fmt(p, "%s_value(s.c%zu IGNORE NULLS) %s", first ? "first" : "last", s, all ? EVERYWHERE : BEFORE);
  size_t c = add(&p->c, text, br_expr_type(w));
  *value = all     ? fmt(p, "g.c%zu", c)
           : first ? fmt(p, "coalesce(g.c%zu, t.c%zu)", c, l)
                   : fmt(p, "coalesce(t.c%zu, g.c%zu)", l, c);
  return BR_OK;
}

static br_status first_or_last(steps *p, const json_t *w, bool first, const char **value, br_error *err) {
  size_t l = 0;
  if (ignores_nulls(w)) return first_or_last_set(p, w, first, value, err);
  BR_TRY(local(p, w, &l, err));
  size_t s = add(&p->s, fmt(p, "first(t.c%zu)", l), br_expr_type(w)); /* the same in each row of the task */
  const char *text = fmt(p, "%s(s.c%zu) " EVERYWHERE, first ? "first_value" : "last_value", s);
  *value = fmt(p, "g.c%zu", add(&p->c, text, br_expr_type(w)));
  return BR_OK;
}

static br_status fallback_of(steps *p, const json_t *w, const char **out, br_error *err) {
  const json_t *e = br_j_some(w, "default_expr");
  br_buf b = {0};
  br_status status = BR_OK;
  if (e) status = br_emit_expr(p->d->emit, e, &p->over, "t", &b, err);
  *out = e && status == BR_OK ? br_arena_strdup(p->d->arena, br_buf_cstr(&b)) : "NULL";
  br_buf_free(&b);
  return status;
}

/* Column x of the `rows` rows next to the task's, nearest first, as a list: a column of C. keep: of a task's own rows, those that may
 * be among them. some: a task may have none of these; otherwise, as no task here is without rows, so many tasks have enough. */
static size_t neighbours(steps *p, size_t x, json_t *type_of_x, const char *keep, uint64_t rows, bool before,
                         bool some) {
  json_t *type = list_of(p->d, type_of_x);
  const char *reach = some ? "UNBOUNDED" : fmt(p, "%llu", (unsigned long long)(rows ? rows : 1));
  const char *down = before ? " DESC" : "";
  size_t s = add(&p->s, fmt(p, "list(t.c%zu ORDER BY t.c%zu%s) FILTER (WHERE %s)", x, row_number(p), down, keep), type);
  return add(&p->c,
             fmt(p, "flatten(list(s.c%zu) OVER (ORDER BY s.c0%s ROWS BETWEEN 1 FOLLOWING AND %s FOLLOWING))[1:%llu]", s,
                 down, reach, (unsigned long long)rows),
             type);
}

/* How many rows (that have a value, where NULLs are ignored) lie in the task on the side that lag or lead looks to. */
static const char *rows_aside(steps *p, size_t x, bool set, bool before) {
  size_t rn = row_number(p);
  const char *frame =
      before ? "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING" : "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING";
  if (set) {
    const char *text = p->e.texts[x - p->e.first]; /* x over t, before it has a name */
    return fmt(p, "t.c%zu", add(&p->e, fmt(p, "count(%s) OVER (%s %s)", text, p->order, frame), bigint()));
  }
  return before ? fmt(p, "(t.c%zu - 1)", rn)
                : fmt(p, "(t.c%zu - t.c%zu)", add(&p->e, "count(*) OVER ()", bigint()), rn);
}

static br_status shifted(steps *p, const json_t *w, bool lag, const char **value, br_error *err) {
  size_t l = 0, x = 0;
  bool set = ignores_nulls(w);
  uint64_t k;
  const char *fallback;
  (void)halo_of(w, &k);
  BR_TRY(local(p, w, &l, err));
  BR_TRY(argument(p, w, &x, err));
  BR_TRY(fallback_of(p, w, &fallback, err));
  unsigned long long rows = k;
  const char *aside = rows_aside(p, x, set, lag), *other = rows_aside(p, x, set, !lag);
  const char *keep = fmt(p, "%s < %llu%s", other, rows, set ? fmt(p, " AND t.c%zu IS NOT NULL", x) : "");
  size_t c = neighbours(p, x, br_expr_type(br_j_at(w, "children", 0)), keep, k, lag, set);
  *value = fmt(
      p,
      "CASE WHEN %s >= %llu THEN t.c%zu WHEN coalesce(len(g.c%zu), 0) >= %llu - %s THEN g.c%zu[%llu - %s] ELSE %s END",
      aside, rows, l, c, rows, aside, c, rows, aside, fallback);
  return BR_OK;
}

/* ---- frames */

static void mark_columns(const json_t *j, bool *columns, size_t n) {
  const char *key;
  json_t *value;
  size_t i;
  if (br_j_is(j, "expression_class", "BOUND_REF")) {
    uint64_t at = br_json_u64(br_j_get(j, "index"));
    if (at < n) columns[at] = true;
  }
  if (json_is_array(j)) json_array_foreach(j, i, value) mark_columns(value, columns, n);
  if (json_is_object(j)) json_object_foreach((json_t *)j, key, value) mark_columns(value, columns, n);
}

/* The window in the order of the rows' numbers. */
static json_t *by_number(steps *p, const json_t *w, size_t number) {
  json_t *copy = br_own_type(p->d, json_deep_copy(w));
  json_t *key = json_pack("{s:s, s:s, s:O, s:i}", "expression_class", "BOUND_REF", "type", "BOUND_REF", "return_type",
                          bigint(), "index", (int)number);
  json_object_set_new(
      copy, "orders",
      json_pack("[{s:s, s:s, s:o}]", "type", "ASCENDING", "null_order", "NULLS LAST", "expression", key));
  return copy;
}

static br_status framed(steps *p, const json_t *w, const char **value, br_error *err) {
  size_t rn = excludes_peers(w) ? rank_in_task(p) : row_number(p), m = p->r->n_columns;
  uint64_t before, behind;
  p->ranked = p->ranked || excludes_peers(w);
  br_buf b = {0};
  br_rel over = {.n_columns = rn + 1};
  br_bind *binds = br_arena_alloc(p->d->arena, (rn + 1) * sizeof *binds);
  json_t **types = br_arena_alloc(p->d->arena, (rn + 1) * sizeof *types);
  for (size_t i = 0; i < m; i++) {
    binds[i] = p->r->binds[i];
    types[i] = p->r->types[i];
  }
  types[rn] = bigint();
  over.binds = binds;
  over.types = types;
  (void)is_frame(w, &before, &behind);
  if (before > p->before) p->before = before;
  if (behind > p->behind) p->behind = behind;
  json_t *numbered = by_number(p, w, rn);
  json_t *reads = json_deep_copy(w);
  json_object_del(reads, "orders");
  mark_columns(reads, p->halo, m);
  json_decref(reads);
  br_status status = br_emit_window(p->d->emit, numbered, &over, "u", &b, err);
  if (status == BR_OK)
    *value = fmt(p, "t.w%zu", add(&p->w, br_arena_strdup(p->d->arena, br_buf_cstr(&b)), br_expr_type(w)));
  br_buf_free(&b);
  return status;
}

/* The neighbours' rows on one side, numbered on from the task's own. */
static const char *near_side(steps *p, uint64_t rows, bool before) {
  size_t rn = row_number(p), m = p->r->n_columns;
  const char *keep = fmt(p, "%s < %llu", rows_aside(p, rn, false, !before), (unsigned long long)rows);
  size_t numbers = neighbours(p, rn, bigint(), keep, rows, before, false), own = add(&p->c, "s.c1", bigint());
  br_buf b = {0};
  br_buf_str(&b, "SELECT ");
  const char *number = before ? fmt(p, "1 - generate_subscripts(g.c%zu, 1)", numbers)
                              : fmt(p, "g.c%zu + generate_subscripts(g.c%zu, 1)", own, numbers);
  br_buf_printf(&b, "%s AS c%zu", number, rn);
  if (p->ranked) br_buf_printf(&b, ", %s AS c%zu", number, rank_in_task(p)); /* none of them is a peer */
  for (size_t i = 0; i < m; i++)
    if (p->halo[i])
      br_buf_printf(&b, ", unnest(g.c%zu) AS c%zu", neighbours(p, i, p->r->types[i], keep, rows, before, false), i);
  br_buf_str(&b, ", FALSE AS own FROM g");
  const char *text = br_arena_strdup(p->d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* After all frames are known. */
static void find_near(steps *p) {
  if (!p->w.n) return;
  p->near = "";
  if (p->before) p->near = fmt(p, "\nUNION ALL BY NAME %s", near_side(p, p->before, true));
  if (p->behind) p->near = fmt(p, "%s\nUNION ALL BY NAME %s", p->near, near_side(p, p->behind, false));
}

/* Of row i of n, in k parts: the first n % k have one row more. */
static const char *tile(steps *p, const char *i, const char *n, uint64_t parts) {
  unsigned long long k = parts;
  return fmt(p,
             "CASE WHEN %s <= (%s %% %llu) * (%s // %llu + 1) THEN (%s - 1) // (%s // %llu + 1) + 1 "
             "ELSE (%s %% %llu) + (%s - 1 - (%s %% %llu) * (%s // %llu + 1)) // greatest(%s // %llu, 1) + 1 END",
             i, n, k, n, k, i, n, k, n, k, i, n, k, n, k, n, k);
}

static br_status value_of(steps *p, const json_t *w, how h, const char **value, br_error *err) {
  size_t l = 0;
  uint64_t k = 1;
  switch (h) {
    case HOW_ROW_NUMBER: *value = fmt(p, "t.c%zu + g.c%zu", row_number(p), rows_before(p)); return BR_OK;
    case HOW_NTILE:
      (void)constant_number(br_j_at(w, "children", 0), &k);
      *value = tile(p, fmt(p, "(t.c%zu + g.c%zu)", row_number(p), rows_before(p)), fmt(p, "g.c%zu", rows_of_all(p)), k);
      return BR_OK;
    case HOW_RANK:
      l = add(&p->e, fmt(p, "rank() OVER (%s)", p->order), bigint());
      *value = fmt(p, "t.c%zu + g.c%zu", l, rows_before(p));
      return BR_OK;
    case HOW_PERCENT_RANK:
      l = add(&p->e, fmt(p, "rank() OVER (%s)", p->order), bigint());
      *value = fmt(p, "CASE WHEN g.c%zu > 1 THEN CAST(t.c%zu + g.c%zu - 1 AS DOUBLE) / (g.c%zu - 1) ELSE 0 END",
                   rows_of_all(p), l, rows_before(p), rows_of_all(p));
      return BR_OK;
    case HOW_CUME_DIST:
      l = add(&p->e, fmt(p, "count(*) OVER (%s)", p->order), bigint());
      *value = fmt(p, "CAST(t.c%zu + g.c%zu AS DOUBLE) / g.c%zu", l, rows_before(p), rows_of_all(p));
      return BR_OK;
    case HOW_DENSE_RANK:
      l = add(&p->e, fmt(p, "dense_rank() OVER (%s)", p->order), bigint());
      *value = fmt(p, "t.c%zu + g.c%zu", l,
                   add(&p->c,
                       fmt(p, "coalesce(CAST(sum(s.c%zu) " BEFORE " AS BIGINT), 0)",
                           add(&p->s, fmt(p, "max(t.c%zu)", l), bigint())),
                       bigint()));
      return BR_OK;
    case HOW_RUNNING: return running(p, w, value, err);
    case HOW_TOTAL: return total(p, w, value, err);
    case HOW_FIRST: return first_or_last(p, w, true, value, err);
    case HOW_LAST_ALL: return first_or_last(p, w, false, value, err);
    case HOW_LAST:
      if (ignores_nulls(w)) return first_or_last_set(p, w, false, value, err);
      BR_TRY(local(p, w, &l, err));
      *value = fmt(p, "t.c%zu", l);
      return BR_OK;
    case HOW_LAG:
    case HOW_LEAD: return shifted(p, w, h == HOW_LAG, value, err);
    case HOW_FRAME: return framed(p, w, value, err);
    case HOW_NOT: break;
  }
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a window that is not computed in steps");
}

/* ---- the stages */

static void becomes(br_dist *d, br_drel *r, const char *before, const char *after, json_t *const *types, size_t n) {
  br_wrap_text(d, r, before, after);
  r->n_columns = n;
  r->types = types;
  r->binds = br_arena_alloc(d->arena, (n + 1) * sizeof *r->binds); /* own text alone reads it */
  r->needed = NULL;
  r->ordered = false;
  br_no_clustering(r);
  br_no_ranges(r);
}

static const char *taken(br_dist *d, br_buf *b) {
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(b));
  br_buf_free(b);
  return text;
}

/* SELECT <first columns>, texts … FROM */
static const char *select_text(br_dist *d, const char *first, const columns *c) {
  br_buf b = {0};
  br_buf_printf(&b, "SELECT %s", first);
  for (size_t i = 0; i < c->n; i++) br_buf_printf(&b, ", %s AS c%zu", c->texts[i], c->first + i);
  br_buf_str(&b, " FROM ");
  return taken(d, &b);
}

/* The type of column i: `own` ones of BIGINT, then those of c. */
static json_t *const *types_of(br_dist *d, size_t own, const columns *c) {
  json_t **types = br_arena_alloc(d->arena, (own + c->n + 1) * sizeof *types);
  for (size_t i = 0; i < own; i++) types[i] = bigint();
  for (size_t i = 0; i < c->n; i++) types[own + i] = c->types[i];
  return types;
}

/* E: r with the local columns. */
static void local_columns(steps *p) {
  br_drel *r = p->r;
  size_t m = r->n_columns, n = m + p->e.n;
  json_t **types = br_arena_alloc(p->d->arena, (n + 1) * sizeof *types);
  br_bind *binds = br_arena_alloc(p->d->arena, (n + 1) * sizeof *binds);
  bool *needed = br_arena_alloc(p->d->arena, n + 1);
  int64_t *map = br_arena_alloc(p->d->arena, (n + 1) * sizeof *map);
  for (size_t i = 0; i < n; i++) {
    types[i] = i < m ? r->types[i] : p->e.types[i - m];
    needed[i] = i >= m || !r->needed || r->needed[i] || p->halo[i];
    map[i] = i < m ? (int64_t)i : -1;
    if (i < m) binds[i] = r->binds[i];
  }
  br_wrap_text(p->d, r, select_text(p->d, "t.*", &p->e), "");
  r->n_columns = n;
  r->types = types;
  r->binds = binds;
  r->needed = needed;
  br_map_clustering(p->d, r, map, n);
}

/* S and C; what is left is a relation that every task has. */
static br_status summary(steps *p, const br_shared *kept, br_drel *out, br_error *err) {
  br_dist *d = p->d;
  *out = br_read_again(d, kept);
  becomes(d, out, select_text(d, "CAST(" BR_TASK_NUMBER " AS BIGINT) AS c0, count(*) AS c1", &p->s), "",
          types_of(d, 2, &p->s), 2 + p->s.n);
  br_set_rows(out, d->o->partitions);
  br_label_all(d, out, "each task's share of the window");
  BR_TRY(br_exchange_single(d, out, BR_WHY_WINDOW_STEPS, false, err));
  br_one_task(out, BR_WHY_WINDOW_STEPS);
  becomes(d, out, "WITH s AS MATERIALIZED (SELECT * FROM ",
          br_arena_printf(d->arena, " WHERE t.c1 > 0) %ss", select_text(d, "s.c0 AS c0", &p->c)), types_of(d, 1, &p->c),
          1 + p->c.n);
  br_label_all(d, out, "what lies before each task");
  return br_exchange_broadcast(d, out, "each task takes its row", err);
}

/* E with the columns of frames, over its own and the neighbours' rows. */
static const char *with_frames(steps *p, const char *e) {
  if (!p->near) return e;
  br_buf b = {0};
  br_buf_str(&b, "(SELECT u.*");
  for (size_t i = 0; i < p->w.n; i++) br_buf_printf(&b, ", %s AS w%zu", p->w.texts[i], i);
  br_buf_printf(&b, "\nFROM (SELECT t.*, TRUE AS own FROM %s t%s) u)", e, p->near);
  return taken(p->d, &b);
}

/* F: the columns of before, then the windows. */
static void together(steps *p, const br_shared *kept, const br_drel *c, size_t m, const char **values, size_t count,
                     br_drel *out) {
  br_dist *d = p->d;
  br_buf b = {0};
  br_drel f = br_read_again(d, kept);
  const char *own = br_arena_printf(d->arena, "(SELECT g.* FROM %s g WHERE g.c0 = " BR_TASK_NUMBER ")",
                                    br_block(d, c->branches[0].sql));
  if (p->near) br_buf_printf(&b, "WITH g AS MATERIALIZED %s\n", own); /* read for each side */
  for (size_t i = 0; i < m + count; i++) {
    br_buf_str(&b, i ? ", " : "SELECT ");
    if (i < m)
      br_buf_printf(&b, "t.c%zu AS c%zu", i, i);
    else
      br_buf_printf(&b, "%s AS c%zu", values[i - m], i);
  }
  br_buf_printf(&b, "\nFROM %s t\nCROSS " BR_JOIN_ONE_ROW "%s%s", with_frames(p, br_block(d, f.branches[0].sql)),
                p->near ? "g" : br_arena_printf(d->arena, "%s g", own), p->near ? " WHERE t.own" : "");
  br_branch *branch = br_arena_alloc(d->arena, sizeof *branch);
  *branch = (br_branch){
      .open = br_open_merge(d, f.branches[0].open, c->branches[0].open), .sql = taken(d, &b), .plain_read = -1};
  *out = f;
  out->branches = branch;
  out->ordered = false;
}

static br_status all_values(steps *p, const size_t *which, size_t count, const char **values, br_error *err) {
  for (size_t i = 0; i < count; i++) {
    const json_t *w = window_at(p->n, which[i]);
    br_buf type = {0};
    BR_TRY(value_of(p, w, how_of(w), &values[i], err));
    br_status status = br_emit_type(br_expr_type(w), &type, err);
    if (status == BR_OK) values[i] = fmt(p, "CAST(%s AS %s)", values[i], br_buf_cstr(&type));
    br_buf_free(&type);
    BR_TRY(status);
  }
  return BR_OK;
}

/* The columns of the result. */
static void name_columns(br_dist *d, const br_node *n, const size_t *which, size_t count, size_t m, const bool *needed,
                         br_drel *r) {
  size_t first = n->n_columns - br_j_count(n->json, "expressions");
  json_t **types = br_arena_alloc(d->arena, (m + count + 1) * sizeof *types);
  br_bind *binds = br_arena_alloc(d->arena, (m + count + 1) * sizeof *binds);
  int64_t *map = br_arena_alloc(d->arena, (m + count + 1) * sizeof *map);
  for (size_t i = 0; i < m + count; i++) {
    types[i] = i < m ? r->types[i] : n->types[first + which[i - m]];
    binds[i] = i < m ? r->binds[i] : n->binds[first + which[i - m]];
    map[i] = i < m ? (int64_t)i : -1;
  }
  r->types = types;
  r->binds = binds;
  r->n_columns = m + count;
  r->needed = needed;
  br_map_clustering(d, r, map, m + count);
}

br_status br_window_in_steps(br_dist *d, const br_node *n, const size_t *which, size_t count, const bool *needed,
                             br_drel *r, br_error *err) {
  const json_t *orders = orders_of(n, which, count);
  const char **values = br_arena_alloc(d->arena, (count + 1) * sizeof *values), *order;
  bool peers = false, chance = false, sourced = false;
  size_t m = r->n_columns, most = 5 * count + 2 * m + 8;
  br_shared kept;
  br_drel c;
  for (size_t i = 0; i < count; i++) {
    const json_t *w = window_at(n, which[i]);
    peers = peers || needs_peers(w, how_of(w));
    sourced = sourced || (!orders && !in_no_order(how_of(w)));
    chance = chance || br_chance_window(w);
  }
  if (orders && !br_ranged_by(r, orders, peers)) BR_TRY(br_range_sort(d, orders, r, peers, err));
  BR_TRY(br_one_branch(d, r, err));
  BR_TRY(br_order_text(d, orders, r, "t", &order, err));
  steps p = {.d = d, .n = n, .r = r, .over = br_branch_rel(r, 0)};
  p.order = orders ? br_arena_printf(d->arena, "ORDER BY %s", order) : "";
  p.e = columns_new(d, most, m);
  p.s = columns_new(d, most, 2);
  p.c = columns_new(d, most, 1);
  p.w = columns_new(d, count + 1, 0);
  p.halo = br_arena_alloc(d->arena, m + 1);
  BR_TRY(all_values(&p, which, count, values, err));
  find_near(&p);
  local_columns(&p);
  if (sourced) r->ordered = true; /* as they come from the source */
  br_label_all(d, r, p.e.n ? "window in each task" : "rows of a window");
  br_mark_chance(r, chance && p.e.n);
  BR_TRY(br_share(d, r, "read by the tasks' shares and by the window", &kept, err));
  BR_TRY(summary(&p, &kept, &c, err));
  together(&p, &kept, &c, m, values, count, r);
  name_columns(d, n, which, count, m, needed, r);
  br_label_all(d, r, "window");
  return BR_OK;
}
