/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges of one key's values, for operators whose rows need others that are near them by that key: frames of a RANGE, ASOF joins, joins of
 * points with spans. A range's task gets its own rows, and copies of those that they may need.
 *
 *   rows are kept (FORWARD); samples of their keys give the bounds, one task, sent to all who place rows; rows are read again and placed
 *
 * A bound is a row: c0 the range's number, c1 and c2 the keys from which and below which rows are its own, c3 and c4 the first and the last
 * key that it needs. They are sort keys (create_sort_key), so that they compare as bytes whatever the type; NULL comes first, in range 0.
 * Where the copies would be many (a frame as wide as the whole), there are fewer ranges: down to one.
 *
 * Called by window_band.c and join_band.c: br_share, br_band_bounds, then br_band_place for each side. Threads: none. Bounds: partitions
 * ranges; sample_rows a range and task, of which thinned_rows are looked at.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static const uint32_t sample_rows_per_partition = 100, max_sample_rows_per_task = 20000, thinned_rows = 4096;
#define MOST_COPIES "1.5" /* rows with their copies, for each of the rows */
#define FIRST "''::BLOB"
#define BEHIND_ALL "'\\xFF'::BLOB"

const char *br_band_key(br_dist *d, const char *value) {
  return br_arena_printf(d->arena, "create_sort_key(%s, 'ASC NULLS FIRST', ''::BLOB, 'ASC NULLS LAST')", value);
}

/* One column of the key's values, from a part of the rows of each task. */
static br_drel sampled(br_dist *d, const br_band *b, size_t side, uint32_t rows) {
  br_drel r = br_read_again(d, &b->kept[side]);
  br_wrap_text(d, &r, br_arena_printf(d->arena, "SELECT %s AS c0 FROM ", b->keys[side]),
               br_arena_printf(d->arena, " USING SAMPLE reservoir(%u ROWS)", rows));
  br_label_all(d, &r, "sample of keys");
  return r;
}

static void one_column(br_dist *d, br_drel *r, json_t *type, double rows) {
  json_t **types = br_arena_alloc(d->arena, sizeof *types);
  types[0] = type;
  r->n_columns = 1;
  r->types = types;
  r->needed = NULL;
  r->binds = br_arena_alloc(d->arena, sizeof *r->binds);
  r->ordered = false;
  br_no_clustering(r);
  br_no_ranges(r);
  br_set_rows(r, rows);
}

/* What a range needs on one side, as a key; the text over b is NULL where that can't be told. */
static const char *reach(br_dist *d, const char *text, const char *own, const char *open) {
  if (!text) return own;
  return br_arena_printf(d->arena, "CASE WHEN %s = %s OR (%s) IS NULL THEN %s ELSE %s END", own, open, text, open,
                         br_band_key(d, text));
}

/* n ranges, half as many, … one: the most of which the samples say that they don't need too many copies. */
static const char *bounds_text(br_dist *d, const br_band *band) {
  br_buf b = {0};
  uint32_t n = d->o->partitions;
  br_buf_str(&b, "), c(m) AS (VALUES ");
  for (uint32_t m = n; m >= 1; m /= 2) br_buf_printf(&b, "%s(%u)", m == n ? "" : ", ", m);
  br_buf_printf(&b,
                "), s AS MATERIALIZED (SELECT a.v, a.k, row_number() OVER (ORDER BY a.k) AS r, count(*) OVER () AS n "
                "FROM a WHERE a.r %% greatest(a.n // %u, 1) = 0)\n",
                thinned_rows);
  br_buf_printf(&b,
                ", cuts AS (SELECT DISTINCT c.m, s.v, s.k FROM c CROSS JOIN range(1, %u) q(i) JOIN s "
                "ON s.r = greatest(1, (q.i * s.n + c.m - 1) // c.m) WHERE q.i < c.m AND s.v IS NOT NULL)\n",
                n > 1 ? n : 2);
  br_buf_str(&b, ", b AS (SELECT x.m, row_number() OVER w - 1 AS p, x.k AS lo, lead(x.k, 1, " BEHIND_ALL
                 ") OVER w AS hi, x.v AS lv, lead(x.v) OVER w AS hv FROM (SELECT c.m, NULL AS v, " FIRST
                 " AS k FROM c UNION ALL SELECT cuts.m, cuts.v, cuts.k FROM cuts) x WINDOW w AS (PARTITION BY x.m "
                 "ORDER BY x.k))\n");
  br_buf_printf(&b, ", w AS MATERIALIZED (SELECT b.m, b.p, b.lo, b.hi, %s AS need, %s AS till FROM b)\n",
                reach(d, band->low, "b.lo", FIRST), reach(d, band->high, "b.hi", BEHIND_ALL));
  br_buf_str(&b,
             ", best AS (SELECT coalesce(max(y.m), 1) AS m FROM (SELECT w.m FROM w JOIN s ON s.k >= w.need AND "
             "s.k <= w.till GROUP BY w.m HAVING count(*) <= " MOST_COPIES
             " * max(s.n)) y)\n"
             "SELECT CAST(w.p AS INTEGER) AS c0, w.lo AS c1, w.hi AS c2, w.need AS c3, w.till AS c4 "
             "FROM w JOIN best ON best.m = w.m");
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

static json_t *const *bound_types(br_dist *d) {
  json_t **types = br_arena_alloc(d->arena, 5 * sizeof *types);
  types[0] = br_type_plain("INTEGER");
  types[1] = br_own_type(d, json_pack("{s:s, s:n}", "id", "BLOB", "type_info"));
  for (size_t i = 2; i < 5; i++) types[i] = types[1];
  return types;
}

br_status br_band_bounds(br_dist *d, const br_band *b, uint32_t *bounds, br_error *err) {
  uint32_t n = d->o->partitions;
  uint32_t rows = n * sample_rows_per_partition < max_sample_rows_per_task ? n * sample_rows_per_partition
                                                                           : max_sample_rows_per_task;
  br_drel keys = sampled(d, b, 0, rows);
  for (size_t i = 1; i < b->n_sides; i++) {
    br_drel more = sampled(d, b, i, rows);
    br_branch *all = br_arena_alloc(d->arena, (keys.n_branches + more.n_branches) * sizeof *all);
    memcpy(all, keys.branches, keys.n_branches * sizeof *all);
    memcpy(all + keys.n_branches, more.branches, more.n_branches * sizeof *all);
    keys.branches = all;
    keys.n_branches += more.n_branches;
  }
  one_column(d, &keys, b->type, rows);
  br_mark_chance(&keys, true);
  BR_TRY(br_exchange_single(d, &keys, BR_WHY_BAND, false, err));
  br_wrap_text(d, &keys,
               br_arena_printf(d->arena,
                               "WITH a AS MATERIALIZED (SELECT t.c0 AS v, %s AS k, row_number() OVER (ORDER BY t.c0 "
                               "NULLS FIRST) AS r, count(*) OVER () AS n FROM ",
                               br_band_key(d, "t.c0")),
               bounds_text(d, b));
  keys.n_columns = 5;
  keys.types = bound_types(d);
  keys.binds = br_arena_alloc(d->arena, 5 * sizeof *keys.binds);
  br_set_rows(&keys, n);
  br_label_all(d, &keys, "bounds of the ranges");
  br_closing c = {.output = BR_EX_BROADCAST, .partitions = 1, .why = "where each row belongs"};
  return br_close(d, &keys, 0, &c, bounds, err);
}

/* ---- placing */

/* Two columns more: the range's number, and whether the row is its own. */
static void wider(br_dist *d, br_drel *r) {
  size_t m = r->n_columns;
  json_t **types;
  br_bind *binds;
  bool *needed;
  br_more_columns(d, r, 2, &types, &binds, &needed);
  types[m] = br_type_plain("INTEGER");
  types[m + 1] = br_type_plain("BOOLEAN");
  r->n_columns = m + 2;
  r->types = types;
  r->binds = binds;
  r->needed = needed;
  r->ordered = false;
  br_no_clustering(r);
  br_no_ranges(r);
}

void br_band_number(br_dist *d, br_drel *r, const char *first, const char *last, br_band_rows which, uint32_t bounds) {
  /* a range has its own rows, whatever frames reach: they may all lie behind or before it */
  static const char *const on[] = {[BR_BAND_OWN] = "t.k0 >= b.c1 AND t.k0 < b.c2",
                                   [BR_BAND_NEEDED] = "t.k0 >= least(b.c1, b.c3) AND t.k0 <= greatest(b.c2, b.c4)",
                                   [BR_BAND_SPAN] = "t.k0 < b.c2 AND t.k1 >= b.c1"};
  size_t m = r->n_columns;
  br_branch *branches = br_arena_alloc(d->arena, r->n_branches * sizeof *branches);
  const char *k1 = last ? br_arena_printf(d->arena, ", %s AS k1", br_band_key(d, last)) : "";
  for (size_t i = 0; i < r->n_branches; i++) {
    branches[i] = r->branches[i];
    uint32_t number = br_open_input(d, branches[i].open, bounds, BR_EX_BROADCAST, false);
    branches[i].plain_read = -1;
    branches[i].sql = br_arena_printf(
        d->arena,
        "SELECT t.* EXCLUDE (k0%s), b.c0 AS c%zu, (t.k0 >= b.c1 AND t.k0 < b.c2) AS c%zu\nFROM (SELECT t.*, %s AS "
        "k0%s FROM %s t) t\nJOIN input(%u) b ON %s",
        last ? ", k1" : "", m, m + 1, br_band_key(d, first), k1, br_block(d, branches[i].sql), number, on[which]);
    branches[i].open->heavy = branches[i].open->heavy || which != BR_BAND_OWN;
  }
  r->branches = branches;
  wider(d, r);
}

br_status br_band_place(br_dist *d, br_drel *r, const char *first, const char *last, br_band_rows which,
                        uint32_t bounds, bool fixed, const char *why, br_error *err) {
  size_t m = r->n_columns;
  double rows = r->rows;
  br_band_number(d, r, first, last, which, bounds);
  br_label_all(d, r, which == BR_BAND_OWN ? "place rows by range" : "place rows by range, with copies");
  BR_TRY(br_exchange_numbered(d, r, br_arena_printf(d->arena, "t.c%zu", m), d->o->partitions, false, why, err));
  if (fixed) br_keep_number(d, r);
  br_set_rows(r, rows);
  return BR_OK;
}
