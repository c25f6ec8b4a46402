/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows without PARTITION BY whose frame moves with the value of their one ORDER BY key: each range of the key (band.c) gets its own rows and
 * copies of those that its frames reach, and computes its windows as a partition of its own. Any function, any EXCLUDE: all peers of a
 * row are in its range. GROUPS frames are ranges of dense_rank(), ROWS frames of many rows ranges of row_number(), which are computed first, in
 * steps (window_steps.c).
 *
 * Called by window.c: br_window_band says how. Threads: none. Bounds: those of band.c.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- what is known */

static const json_t *window_at(const br_node *n, size_t i) { return br_j_at(n->json, "expressions", i); }

/* The order of values is the order of the numbers that the offset is added to. */
static bool adds_in_order(const json_t *type) {
  static const char *const ids[] = {
      "TINYINT",   "SMALLINT",  "INTEGER",     "BIGINT",       "HUGEINT",      "UTINYINT",
      "USMALLINT", "UINTEGER",  "UBIGINT",     "UHUGEINT",     "DECIMAL",      "FLOAT",
      "DOUBLE",    "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    if (br_j_is(type, "id", ids[i])) return true;
  return false;
}

static const json_t *constant_of(const json_t *e) {
  while (br_j_is(e, "expression_class", "BOUND_CAST")) e = br_j_get(e, "child");
  return br_j_is(e, "expression_class", "BOUND_CONSTANT") && !br_j_true(br_j_get(e, "value"), "is_null") ? e : NULL;
}

/* A RANGE bound is `key ± constant`, perhaps cast; NULL: it is something else. */
static const json_t *sum_of(const json_t *bound) {
  while (br_j_is(bound, "expression_class", "BOUND_CAST")) bound = br_j_get(bound, "child");
  bool sum = br_j_is(bound, "expression_class", "BOUND_FUNCTION") && br_j_count(bound, "children") == 2 &&
             (br_j_is(bound, "name", "+") || br_j_is(bound, "name", "-"));
  return sum && constant_of(br_j_at(bound, "children", 1)) ? bound : NULL;
}

static bool ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && !strcmp(s + n - m, end);
}

/* Of rows or groups: not so many that adding them to a number of rows overflows; a negative number moves a bound to the other side. */
static bool some_rows(const json_t *offset) {
  const json_t *value = br_j_get(br_j_get(constant_of(offset), "value"), "value");
  return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= INT64_MAX / 4;
}

bool br_frame_may_end_first(const json_t *w) {
  static const char *const names[] = {"median", "quantile", "quantile_cont", "quantile_disc", "mad", "mode"};
  const char *start = br_j_str(w, "start"), *end = br_j_str(w, "end");
  bool one_side = (strstr(start, "EXPR_PRECEDING") && strstr(end, "EXPR_PRECEDING")) ||
                  (strstr(start, "EXPR_FOLLOWING") && strstr(end, "EXPR_FOLLOWING"));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (one_side && br_j_is(w, "name", names[i])) return true;
  return false;
}

/* Is it a bound of the mode that stays near the row? *moves: it has an offset. */
static bool near_bound(const json_t *w, const char *which, const char *expr, const char *mode, bool *moves) {
  const char *b = br_j_str(w, which);
  if (!ends(b, mode)) return false;
  if (!strncmp(b, "CURRENT_ROW", 11)) return true;
  *moves = true;
  const json_t *offset = br_j_get(w, expr);
  return strcmp(mode, "_RANGE") != 0 ? some_rows(offset) : sum_of(offset) != NULL;
}

static bool near_frame(const json_t *w, const char *mode) {
  bool moves = false;
  return near_bound(w, "start", "start_expr", mode, &moves) && near_bound(w, "end", "end_expr", mode, &moves) &&
         (moves || !strcmp(mode, "_RANGE"));
}

br_band_kind br_window_band(const json_t *w) {
  static const char *const types[] = {"WINDOW_AGGREGATE", "WINDOW_FIRST_VALUE", "WINDOW_LAST_VALUE",
                                      "WINDOW_NTH_VALUE"};
  const json_t *key = br_j_get(br_j_at(w, "orders", 0), "expression");
  bool known = false;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) known = known || br_j_is(w, "type", types[i]);
  if (!known || br_volatile(w) || br_j_count(w, "partitions") || !br_j_count(w, "orders")) return BR_BAND_NOT;
  if (br_frame_may_end_first(w)) return BR_BAND_NOT;
  if (near_frame(w, "_GROUPS")) return BR_BAND_BY_GROUP;
  bool by_place = br_j_is(w, "exclude_clause", "NO_OTHER") || br_j_is(w, "exclude_clause", "CURRENT_ROW");
  if (near_frame(w, "_ROWS") && by_place) return BR_BAND_BY_ROW;
  if (br_j_count(w, "orders") != 1 || !near_frame(w, "_RANGE")) return BR_BAND_NOT;
  bool moves = br_j_some(w, "start_expr") || br_j_some(w, "end_expr");
  return !moves || adds_in_order(br_expr_type(key)) ? BR_BAND_BY_KEY : BR_BAND_NOT;
}

/* ---- how far the frames reach */

typedef struct bands {
  br_dist *d;
  const br_rel *over;
  const json_t *type; /* of the key */
  br_buf low, high;   /* what is added to the ends of a range, a list of texts */
  size_t n_low, n_high;
} bands;

/* Months are not equally long: of two rows the later one may reach further back, by less than a day a month end, or an hour or two where
 * clocks change. */
static const char *slack(const json_t *sum, const json_t *constant) {
  const json_t *v = br_j_get(br_j_get(constant, "value"), "value");
  if (!json_is_object(v) || !br_j_get(v, "months")) return "";
  bool zoned = br_j_is(br_expr_type(sum), "id", "TIMESTAMP WITH TIME ZONE");
  bool even = json_integer_value(br_j_get(v, "months")) == 0 && !(zoned && json_integer_value(br_j_get(v, "days")));
  return even ? "" : "INTERVAL 4 DAY";
}

static br_status add_reach(bands *b, const json_t *bound, br_error *err) {
  const json_t *sum = sum_of(bound);
  if (!sum) return BR_OK; /* the current row */
  const json_t *constant = br_j_at(sum, "children", 1);
  const char *op = br_j_str(sum, "name"), *more = slack(sum, constant_of(constant));
  bool down = *op == '-';
  br_buf text = {0}, type = {0}, as = {0}, *to = down ? &b->low : &b->high;
  br_status status = BR_OK;
  BR_TRY_GOTO(br_emit_expr(b->d->emit, constant, b->over, "t", &text, err));
  BR_TRY_GOTO(br_emit_type(br_expr_type(br_j_at(sum, "children", 0)), &type, err));
  BR_TRY_GOTO(br_emit_type(b->type, &as, err));
  *(down ? &b->n_low : &b->n_high) += 1;
  br_buf_printf(to, "%sTRY(CAST(CAST(b.%s AS %s) %s %s%s%s AS %s))", to->len ? ", " : "", down ? "lv" : "hv",
                br_buf_cstr(&type), op, br_buf_cstr(&text), *more ? down ? " - " : " + " : "", more, br_buf_cstr(&as));
done:
  br_buf_free(&as);
  br_buf_free(&text);
  br_buf_free(&type);
  return status;
}

/* NULL when one of them can't be told. */
static const char *furthest(br_dist *d, br_buf *list, size_t n, bool low) {
  const char *text = n ? br_arena_strdup(d->arena, br_buf_cstr(list)) : NULL;
  if (n > 1)
    text = br_arena_printf(d->arena, "CASE WHEN len(list_filter([%s], lambda x: x IS NULL)) = 0 THEN %s(%s) END",
                           br_buf_cstr(list), low ? "least" : "greatest", br_buf_cstr(list));
  br_buf_free(list);
  return text;
}

static br_status find_reach(br_dist *d, json_t *const *windows, size_t count, const br_rel *over, br_band *band,
                            br_error *err) {
  bands b = {.d = d, .over = over, .type = band->type};
  br_status status = BR_OK;
  for (size_t i = 0; i < count && status == BR_OK; i++) {
    status = add_reach(&b, br_j_some(windows[i], "start_expr"), err);
    if (status == BR_OK) status = add_reach(&b, br_j_some(windows[i], "end_expr"), err);
  }
  band->low = furthest(d, &b.low, b.n_low, true);
  band->high = furthest(d, &b.high, b.n_high, false);
  return status;
}

/* ---- the windows over ranges */

static br_status emit_all(br_dist *d, json_t *const *windows, size_t count, const br_drel *r, size_t m, br_buf *b,
                          br_error *err) {
  br_rel over = br_branch_rel(r, 0);
  for (size_t i = 0; i < count; i++) {
    json_t *copy = br_own_type(d, json_deep_copy(windows[i]));
    json_object_set_new(copy, "partitions",
                        json_pack("[{s:s, s:s, s:O, s:I}]", "expression_class", "BOUND_REF", "type", "BOUND_REF",
                                  "return_type", br_type_plain("INTEGER"), "index", (json_int_t)m));
    br_buf_str(b, ", ");
    BR_TRY(br_emit_window(d->emit, copy, &over, "t", b, err));
    br_buf_printf(b, " AS w%zu", i);
  }
  return BR_OK;
}

/* Columns [0, shown) of r, then the windows, of the rows that are a range's own. */
static br_status compute(br_dist *d, json_t *const *windows, size_t count, size_t m, size_t shown, br_drel *r,
                         br_error *err) {
  br_buf inner = {0}, outer = {0};
  br_status status = emit_all(d, windows, count, r, m, &inner, err);
  for (size_t i = 0; i < shown + count; i++)
    br_buf_printf(&outer, "%st.%c%zu AS c%zu", i ? ", " : "SELECT ", i < shown ? 'c' : 'w', i < shown ? i : i - shown,
                  i);
  br_buf_printf(&outer, "\nFROM (SELECT t.*%s FROM ", br_buf_cstr(&inner));
  if (status == BR_OK)
    br_wrap_text(d, r, br_arena_strdup(d->arena, br_buf_cstr(&outer)),
                 br_arena_printf(d->arena, ") t WHERE t.c%zu", m + 1));
  br_buf_free(&inner);
  br_buf_free(&outer);
  return status;
}

/* r is by ranges of the windows' key; needs of its first `shown` columns, which stay, are in `needed`. */
static br_status by_key(br_dist *d, json_t *const *windows, size_t count, size_t shown, br_drel *r, br_error *err) {
  const json_t *key = br_j_get(br_j_at(windows[0], "orders", 0), "expression");
  br_shared kept;
  br_buf b = {0};
  br_rel over = br_branch_rel(r, 0);
  const char *text;
  size_t m = r->n_columns;
  uint32_t bounds;
  br_band band = {.kept = &kept, .keys = &text, .n_sides = 1, .type = br_expr_type(key)};
  br_status status = br_emit_expr(d->emit, key, &over, "t", &b, err);
  text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  BR_TRY(status);
  BR_TRY(find_reach(d, windows, count, &over, &band, err));
  BR_TRY(br_share(d, r, "read by the sample and by those who place rows", &kept, err));
  BR_TRY(br_band_bounds(d, &band, &bounds, err));
  *r = br_read_again(d, &kept);
  BR_TRY(br_band_place(d, r, text, NULL, BR_BAND_NEEDED, bounds, false, "ranges of the window's key", err));
  return compute(d, windows, count, m, shown, r, err);
}

/* ---- GROUPS and long ROWS frames: by numbers */

static json_t *reference(size_t column) {
  return json_pack("{s:s, s:s, s:O, s:I}", "expression_class", "BOUND_REF", "type", "BOUND_REF", "return_type",
                   br_type_plain("BIGINT"), "index", (json_int_t)column);
}

/* A bound of some groups or rows, as that of a RANGE over their numbers. */
static void move_bound(json_t *w, const char *which, const char *expr_key, size_t column) {
  const char *b = br_j_str(w, which);
  if (!strncmp(b, "CURRENT_ROW", 11)) {
    json_object_set_new(w, which, json_string("CURRENT_ROW_RANGE"));
    return;
  }
  bool before = strstr(b, "PRECEDING") != NULL;
  json_object_set_new(w, which, json_string(before ? "EXPR_PRECEDING_RANGE" : "EXPR_FOLLOWING_RANGE"));
  json_t *sum = json_pack("{s:s, s:s, s:O, s:s, s:[o, O]}", "expression_class", "BOUND_FUNCTION", "type",
                          "BOUND_FUNCTION", "return_type", br_type_plain("BIGINT"), "name", before ? "-" : "+",
                          "children", reference(column), br_j_get(w, expr_key));
  json_object_set_new(w, expr_key, sum);
}

static json_t *over_numbers(br_dist *d, const json_t *w, size_t column) {
  json_t *copy = br_own_type(d, json_deep_copy(w));
  json_object_set_new(
      copy, "orders",
      json_pack("[{s:s, s:s, s:o}]", "type", "ASCENDING", "null_order", "NULLS LAST", "expression", reference(column)));
  move_bound(copy, "start", "start_expr", column);
  move_bound(copy, "end", "end_expr", column);
  return copy;
}

/* The number of each row (of its group of equal ones) behind the columns of r. */
static br_status number(br_dist *d, const json_t *w, bool groups, br_drel *r, br_error *err) {
  size_t m = r->n_columns, first = 0;
  br_node *n = br_arena_alloc(d->arena, sizeof *n);
  json_t **types;
  br_bind *binds;
  bool *needed;
  br_more_columns(d, r, 1, &types, &binds, &needed);
  types[m] = br_type_plain("BIGINT");
  json_t *window = json_pack("{s:s, s:s, s:O, s:s, s:s, s:s, s:O, s:[], s:[], s:[]}", "expression_class",
                             "BOUND_WINDOW", "type", groups ? "WINDOW_RANK_DENSE" : "WINDOW_ROW_NUMBER", "return_type",
                             types[m], "start", "UNBOUNDED_PRECEDING", "end", "CURRENT_ROW_RANGE", "exclude_clause",
                             "NO_OTHER", "orders", br_j_get(w, "orders"), "partitions", "children", "arg_orders");
  *n = (br_node){.n_columns = m + 1, .types = types, .binds = binds, .rows = r->rows};
  n->json = br_own_type(d, json_pack("{s:[o]}", "expressions", window));
  return br_window_in_steps(d, n, &first, 1, needed, r, err);
}

static void name_columns(br_dist *d, const br_node *n, const size_t *which, size_t count, const br_drel *before,
                         const bool *needed, br_drel *r) {
  size_t m = before->n_columns, first = n->n_columns - br_j_count(n->json, "expressions");
  json_t **types = br_arena_alloc(d->arena, (m + count + 1) * sizeof *types);
  br_bind *binds = br_arena_alloc(d->arena, (m + count + 1) * sizeof *binds);
  for (size_t i = 0; i < m + count; i++) {
    types[i] = i < m ? before->types[i] : n->types[first + which[i - m]];
    binds[i] = i < m ? before->binds[i] : n->binds[first + which[i - m]];
  }
  r->types = types;
  r->binds = binds;
  r->n_columns = m + count;
  r->needed = needed;
  r->ordered = false;
  br_no_clustering(r);
  br_no_ranges(r);
  br_set_rows(r, before->rows);
}

br_status br_window_in_bands(br_dist *d, const br_node *n, const size_t *which, size_t count, const bool *needed,
                             br_drel *r, br_error *err) {
  br_band_kind kind = br_window_band(window_at(n, which[0]));
  json_t **windows = br_arena_alloc(d->arena, (count + 1) * sizeof *windows);
  bool chance = false;
  BR_TRY(br_one_branch(d, r, err));
  br_drel before = *r;
  if (kind != BR_BAND_BY_KEY) BR_TRY(number(d, window_at(n, which[0]), kind == BR_BAND_BY_GROUP, r, err));
  for (size_t i = 0; i < count; i++) {
    const json_t *w = window_at(n, which[i]);
    windows[i] = kind == BR_BAND_BY_KEY ? (json_t *)w : over_numbers(d, w, before.n_columns);
    chance = chance || br_chance_window(w) || kind == BR_BAND_BY_ROW;
  }
  BR_TRY(by_key(d, windows, count, before.n_columns, r, err));
  name_columns(d, n, which, count, &before, needed, r);
  br_label_all(d, r, "window over ranges with copies");
  br_mark_chance(r, chance);
  return BR_OK;
}
