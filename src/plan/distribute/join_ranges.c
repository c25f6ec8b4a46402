/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins without an equality, by ranges of a key (band.c).
 *   ASOF: both sides by ranges of what they compare. A range's rows may have their partner in another one, but then it is the last row there
 *   (the first, for <, <=): each task of the right side tells its last row of each range, and each range gets the last one before it.
 *   A point within a span (`p.x BETWEEN s.a AND s.b`, also `BETWEEN s.a - 5 AND s.a + 5`): each point in its range, each span in all ranges
 *   that it touches, so the partners of a point are together; spans without partners are not, so the points' side alone may be kept.
 *
 * Called by join.c. Threads: none. Bounds: those of band.c.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

/* ---- expressions */

static br_status text_over(br_dist *d, const json_t *expr, const br_drel *r, const char **out, br_error *err) {
  br_buf b = {0};
  br_rel over = br_branch_rel(r, 0);
  br_status status = br_emit_expr(d->emit, expr, &over, "t", &b, err);
  *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return status;
}

static bool compares(const json_t *condition, const char *with) {
  const char *kind = br_j_str(condition, "comparison");
  return !strcmp(kind, with) || (!strncmp(kind, with, strlen(with)) && !strcmp(kind + strlen(with), "OREQUALTO"));
}

static bool is_greater(const json_t *c) { return compares(c, "COMPARE_GREATERTHAN"); }
static bool is_less(const json_t *c) { return compares(c, "COMPARE_LESSTHAN"); }

/* Which columns of a side come out, of those that it had before two were put behind them. */
static json_t *shown(const br_node *n, const char *map_key, size_t width) {
  if (br_j_count(n->json, map_key)) return json_deep_copy(br_j_get(n->json, map_key));
  json_t *list = json_array();
  for (size_t i = 0; i < width; i++) json_array_append_new(list, json_integer((json_int_t)i));
  return list;
}

/* The join over sides of two columns more. by_range: of the same range only. */
static const br_node *over_ranges(br_dist *d, const br_node *n, size_t left, size_t right, bool by_range) {
  br_node *copy = br_arena_alloc(d->arena, sizeof *copy);
  json_t *j = br_own_type(d, json_deep_copy(n->json)), *type = br_type_plain("INTEGER");
  *copy = *n;
  copy->json = j;
  json_object_set_new(j, "left_projection_map", shown(n, "left_projection_map", left));
  if (strcmp(br_j_str(j, "join_type"), "SEMI") != 0 && strcmp(br_j_str(j, "join_type"), "ANTI") != 0)
    json_object_set_new(j, "right_projection_map", shown(n, "right_projection_map", right));
  if (by_range)
    json_array_append_new(br_j_get(j, "conditions"),
                          json_pack("{s:s, s:{s:s, s:s, s:O, s:I}, s:{s:s, s:s, s:O, s:I}}", "comparison",
                                    "COMPARE_EQUAL", "left", "expression_class", "BOUND_REF", "type", "BOUND_REF",
                                    "return_type", type, "index", (json_int_t)left, "right", "expression_class",
                                    "BOUND_REF", "type", "BOUND_REF", "return_type", type, "index", (json_int_t)right));
  return copy;
}

static br_status join_placed(br_dist *d, const br_node *n, const br_node *over, const br_drel *l, const br_drel *r,
                             const char *label, bool chance, br_drel *out, br_error *err) {
  br_open *o = br_open_merge(d, l->branches[0].open, r->branches[0].open);
  BR_TRY(br_emit_two(d, over, l, r, o, out, err));
  o->heavy = true;
  br_open_label(d, o, "%s", label);
  br_mark_chance(out, chance || br_volatile(br_j_get(n->json, "conditions")));
  return BR_OK;
}

/* ---- ASOF */

/* Of each group of rows the one with the greatest (least) value: "SELECT <m columns>, <the group>, FALSE FROM (… ", " GROUP BY …) x". */
static void outermost(br_dist *d, br_drel *r, size_t m, const char *value, const char *group, const char *from,
                      const char *where, bool greatest) {
  br_buf outer = {0}, row = {0};
  for (size_t i = 0; i < m; i++) {
    br_buf_printf(&outer, "%sx.v.c%zu AS c%zu", i ? ", " : "SELECT ", i, i);
    br_buf_printf(&row, "%s'c%zu': t.c%zu", i ? ", " : "", i, i);
  }
  br_wrap_text(
      d, r,
      br_arena_printf(d->arena, "%s, x.p AS c%zu, FALSE AS c%zu\nFROM (SELECT %s AS p, arg_%s({%s}, %s) AS v FROM ",
                      br_buf_cstr(&outer), m, m + 1, group, greatest ? "max" : "min", br_buf_cstr(&row), value),
      br_arena_printf(d->arena, "%s%s GROUP BY %s) x", from, where, group));
  br_buf_free(&outer);
  br_buf_free(&row);
}

/* To each range the last right row of those before it (the first of those behind it). */
static br_status carried(br_dist *d, const br_shared *right, const char *value, uint32_t bounds, bool back,
                         br_drel *out, br_error *err) {
  *out = br_read_again(d, right);
  size_t m = out->n_columns;
  br_band_number(d, out, value, NULL, BR_BAND_OWN, bounds);
  outermost(d, out, m, value, br_arena_printf(d->arena, "t.c%zu", m), "",
            br_arena_printf(d->arena, " WHERE (%s) IS NOT NULL", value), back);
  br_set_rows(out, d->o->partitions);
  br_label_all(d, out, back ? "last row of each range" : "first row of each range");
  br_mark_chance(out, true); /* of equal ones any */
  BR_TRY(br_exchange_single(d, out, BR_WHY_CARRIED, false, err));
  br_one_task(out, BR_WHY_CARRIED);
  uint32_t number = br_open_input(d, out->branches[0].open, bounds, BR_EX_BROADCAST, false);
  outermost(d, out, m, value, "b.c0",
            br_arena_printf(d->arena, " JOIN input(%u) b ON t.c%zu %c b.c0", number, m, back ? '<' : '>'), "", back);
  br_label_all(d, out, back ? "last row before each range" : "first row behind each range");
  br_mark_chance(out, true);
  return br_exchange_numbered(d, out, br_arena_printf(d->arena, "t.c%zu", m), d->o->partitions, false,
                              "ranges of an ASOF join", err);
}

static void both_of(br_dist *d, br_drel *r, const br_drel *more) {
  br_branch *b = br_arena_alloc(d->arena, sizeof *b);
  *b = (br_branch){.open = br_open_merge(d, r->branches[0].open, more->branches[0].open), .plain_read = -1};
  b->sql = br_arena_printf(d->arena, "SELECT t.* FROM %s t\nUNION ALL SELECT t.* FROM %s t",
                           br_block(d, r->branches[0].sql), br_block(d, more->branches[0].sql));
  r->branches = b;
}

bool br_asof_ranges(const br_node *n) {
  const json_t *c = br_j_at(n->json, "conditions", 0);
  const char *type = br_j_str(n->json, "join_type");
  return n->kind == BR_NODE_ASOF_JOIN && br_j_count(n->json, "conditions") == 1 && (is_greater(c) || is_less(c)) &&
         (!strcmp(type, "INNER") || !strcmp(type, "LEFT")) && !br_j_some(n->json, "predicate") && !br_volatile(c) &&
         br_expr_type(br_j_get(c, "right"));
}

br_status br_asof_by_ranges(br_dist *d, const br_node *n, br_drel *l, br_drel *r, br_drel *out, br_error *err) {
  const json_t *c = br_j_at(n->json, "conditions", 0);
  br_shared kept[2];
  const char *values[2];
  br_drel more;
  uint32_t bounds;
  size_t left = l->n_columns, right = r->n_columns;
  br_band band = {.kept = kept, .keys = values, .n_sides = 2, .type = br_expr_type(br_j_get(c, "right"))};
  BR_TRY(br_one_branch(d, l, err));
  BR_TRY(br_one_branch(d, r, err));
  BR_TRY(text_over(d, br_j_get(c, "left"), l, &values[0], err));
  BR_TRY(text_over(d, br_j_get(c, "right"), r, &values[1], err));
  BR_TRY(br_share(d, l, "read by the sample and by those who place rows", &kept[0], err));
  BR_TRY(br_share(d, r, "read by the sample and by those who place rows", &kept[1], err));
  BR_TRY(br_band_bounds(d, &band, &bounds, err));
  *l = br_read_again(d, &kept[0]);
  BR_TRY(br_band_place(d, l, values[0], NULL, BR_BAND_OWN, bounds, false, "ranges of an ASOF join", err));
  *r = br_read_again(d, &kept[1]);
  BR_TRY(br_band_place(d, r, values[1], NULL, BR_BAND_OWN, bounds, false, "ranges of an ASOF join", err));
  BR_TRY(carried(d, &kept[1], values[1], bounds, is_greater(c), &more, err));
  both_of(d, r, &more);
  const br_node *over = over_ranges(d, n, left, right, true);
  return join_placed(d, n, over, l, r, "asof join by ranges", true, out, err);
}

/* ---- points and spans */

/* Conditions from < x and x < to, x of the left side (points_left) or of the right one. */
static br_status find_span(br_dist *d, const br_node *n, const br_drel *l, const br_drel *r, bool points_left,
                           br_span *s, bool *found, br_error *err) {
  size_t count = n->kind == BR_NODE_JOIN ? br_j_count(n->json, "conditions") : 0;
  const char *point = points_left ? "left" : "right", *other = points_left ? "right" : "left";
  for (size_t i = 0; i < count && !*found; i++)
    for (size_t k = 0; k < count && !*found; k++) {
      const json_t *a = br_j_at(n->json, "conditions", i), *b = br_j_at(n->json, "conditions", k);
      const char *from = NULL, *to = NULL;
      if (!(points_left ? is_greater(a) && is_less(b) : is_less(a) && is_greater(b))) continue;
      BR_TRY(text_over(d, br_j_get(a, point), points_left ? l : r, &from, err));
      BR_TRY(text_over(d, br_j_get(b, point), points_left ? l : r, &to, err));
      if (strcmp(from, to) != 0 || br_volatile(br_j_get(n->json, "conditions"))) continue;
      s->point = from;
      s->type = br_expr_type(br_j_get(a, point));
      BR_TRY(text_over(d, br_j_get(a, other), points_left ? r : l, &s->from, err));
      BR_TRY(text_over(d, br_j_get(b, other), points_left ? r : l, &s->to, err));
      s->points_left = points_left;
      *found = s->type != NULL;
    }
  return BR_OK;
}

br_status br_find_span(br_dist *d, const br_node *n, const br_drel *l, const br_drel *r, br_span *s, bool *found,
                       br_error *err) {
  const char *type = br_j_str(n->json, "join_type");
  bool inner = !strcmp(type, "INNER");
  *found = false;
  if (n->kind != BR_NODE_JOIN || br_j_some(n->json, "predicate")) return BR_OK;
  if (inner || !strcmp(type, "LEFT") || !strcmp(type, "SEMI") || !strcmp(type, "ANTI"))
    BR_TRY(find_span(d, n, l, r, true, s, found, err));
  if (!*found && (inner || !strcmp(type, "RIGHT"))) BR_TRY(find_span(d, n, l, r, false, s, found, err));
  return BR_OK;
}

br_status br_join_spans(br_dist *d, const br_node *n, const br_span *s, br_drel *l, br_drel *r, br_drel *out,
                        br_error *err) {
  br_drel *points = s->points_left ? l : r, *spans = s->points_left ? r : l;
  br_shared kept;
  const char *value = s->point;
  uint32_t bounds;
  size_t left = l->n_columns, right = r->n_columns;
  br_band band = {.kept = &kept, .keys = &value, .n_sides = 1, .type = s->type};
  BR_TRY(br_one_branch(d, points, err));
  BR_TRY(br_one_branch(d, spans, err));
  BR_TRY(br_share(d, points, "read by the sample and by those who place rows", &kept, err));
  BR_TRY(br_band_bounds(d, &band, &bounds, err));
  *points = br_read_again(d, &kept);
  BR_TRY(br_band_place(d, points, value, NULL, BR_BAND_OWN, bounds, true, "ranges of the points", err));
  BR_TRY(br_band_place(d, spans, s->from, s->to, BR_BAND_SPAN, bounds, true, "all ranges that a span touches", err));
  const br_node *over = over_ranges(d, n, left, right, false);
  return join_placed(d, n, over, l, r, "join of points and spans", false, out, err);
}
