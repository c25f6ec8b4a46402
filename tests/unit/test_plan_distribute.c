/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan duckdb
 *
 * Each query of tests/sql/distribute.sql: cut into stages under several settings, run stage by stage (stage_runner.h), and
 * compared with the plain query; its stages and exchanges are counted where the file says how many. Then what the printed
 * and the JSON form show, and what is refused. BRANT_DISTRIBUTE_ONLY=text runs the queries that hold the text,
 * BRANT_DISTRIBUTE_SQL=path another file.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "stage_runner.h"

#include <unistd.h>

typedef struct fixture {
  duckdb_database db;
  duckdb_connection c;
  char dir[64];
} fixture;

static void must(duckdb_connection c, const char *sql) {
  char *why = NULL;
  if (!rt_exec(c, sql, &why)) fail_msg("%s: %s", sql, why);
}

static char *file_text(const char *path) {
  br_buf b = {0};
  char piece[4096];
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) br_buf_add(&b, piece, n);
  fclose(f);
  return br_buf_take(&b);
}

/* One statement of the file with the marks before it; both are cut out of the text. */
typedef struct statement {
  sr_case t;
  char *sql;
  bool queries; /* the mark "@queries" stands before it */
} statement;

static void free_statement(statement *s) {
  for (size_t i = 0; i < SR_N_CONFIGS; i++) free((char *)s->t.expect[i]);
  free(s->sql);
  *s = (statement){0};
}

static void read_mark(statement *s, const char *line, size_t n) {
  char *text = br_strndup(line + 3, n - 3);
  if (!strcmp(text, "@ordered")) s->t.ordered = true;
  if (!strcmp(text, "@shape")) s->t.shape = true;
  if (!strcmp(text, "@fails")) s->t.fails = true;
  if (!strcmp(text, "@whole")) s->t.whole = true;
  if (!strcmp(text, "@queries")) s->queries = true;
  for (size_t i = 0; i < SR_N_CONFIGS; i++) {
    size_t name = strlen(sr_configs[i].name);
    if (!strncmp(text, sr_configs[i].name, name) && text[name] == ':') s->t.expect[i] = br_strdup(text + name + 2);
  }
  free(text);
}

/* The next statement; false at the end. @/ becomes the directory. */
static bool next_statement(const char **at, const char *dir, statement *s) {
  br_buf b = {0};
  *s = (statement){0};
  while (**at) {
    size_t n = strcspn(*at, "\n");
    const char *line = *at;
    *at += n + (line[n] ? 1 : 0);
    if (!b.len && n > 3 && !strncmp(line, "-- ", 3)) {
      read_mark(s, line, n);
      continue;
    }
    if (!b.len && !n) continue;
    for (size_t i = 0; i < n; i++) {
      if (line[i] == '@' && line[i + 1] == '/')
        br_buf_str(&b, dir);
      else
        br_buf_char(&b, line[i]);
    }
    if (line[n - 1] == ';') {
      b.data[--b.len] = 0;
      break;
    }
    br_buf_char(&b, '\n');
  }
  if (!b.len) {
    br_buf_free(&b);
    return false;
  }
  br_buf_str(&b, "");
  s->sql = br_buf_take(&b);
  s->t.sql = s->sql;
  return true;
}

static int open_fixture(void **state) {
  fixture *f = br_calloc(1, sizeof *f);
  snprintf(f->dir, sizeof f->dir, "/tmp/brant-distribute-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  assert_int_equal(duckdb_open(NULL, &f->db), DuckDBSuccess);
  assert_int_equal(duckdb_connect(f->db, &f->c), DuckDBSuccess);
  must(f->c, "SET threads = 1");
  must(f->c, SR_KEYS_BLOOM);
  must(f->c, SR_KEYS_MAYBE);
  must(f->c, SR_KEYS_HOLD);
  must(f->c, SR_MERGE_MOMENTS);
  *state = f;
  return 0;
}

static int close_fixture(void **state) {
  fixture *f = *state;
  duckdb_disconnect(&f->c);
  duckdb_close(&f->db);
  br_remove_tree(f->dir);
  free(f);
  return 0;
}

static void queries(void **state) {
  fixture *f = *state;
  const char *other = getenv("BRANT_DISTRIBUTE_SQL");
  char *text = file_text(other ? other : BRANT_SOURCE_DIR "/tests/sql/distribute.sql");
  const char *at = text, *only = getenv("BRANT_DISTRIBUTE_ONLY");
  statement s;
  bool in_queries = false;
  size_t count = 0, shapes = 0, failed = 0;
  char *reasons = file_text(BRANT_SOURCE_DIR "/docs/one-task.md");
  sr_reasons = reasons;
  while (next_statement(&at, f->dir, &s)) {
    in_queries = in_queries || s.queries;
    if (!in_queries) {
      must(f->c, s.sql);
    } else if (!only || strstr(s.sql, only)) {
      if (getenv("BRANT_SHAPES")) fprintf(stderr, "%s\n", s.sql);
      count++;
      for (size_t i = 0; i < SR_N_CONFIGS; i++) shapes += s.t.expect[i] != NULL;
      if (!sr_check(f->c, &s.t, 31)) failed++;
    }
    free_statement(&s);
  }
  free(text);
  free(reasons);
  sr_reasons = NULL;
  fprintf(stderr, "%zu queries, %zu shapes, %zu failed\n", count, shapes, failed);
  assert_int_equal(failed, 0);
  if (only || other) return;
  assert_true(count >= 150 && shapes >= 30);
  assert_true(sr_split_tasks >= 100 && sr_ranges >= 100 && sr_in_place >= 100 && sr_blooms >= 100 && sr_of_rows >= 300);
}

/* ---- single plans */

static br_stages *cut(fixture *f, const char *sql, const br_distribute_options *o) {
  br_error err = {0};
  br_plan *p = NULL;
  br_stages *s = NULL;
  char *why = NULL, *explain = NULL, *json = rt_plan(f->c, sql, &explain, &why);
  if (!json) fail_msg("%s", why);
  if (br_plan_parse(json, explain, &p, &err) != BR_OK) fail_msg("%s", err.message);
  if (br_distribute(p, o, &s, &err) != BR_OK) fail_msg("%s", err.message);
  br_plan_free(p); /* the stages own their texts */
  free(json);
  free(explain);
  return s;
}

static void make_orders(fixture *f) {
  must(f->c,
       "CREATE OR REPLACE TABLE ord AS SELECT i AS id, i % 10 AS k, i / 2.0::DOUBLE AS price FROM range(1000) r(i)");
}

static void printed_for_people(void **state) {
  fixture *f = *state;
  br_buf b = {0};
  make_orders(f);
  br_stages *s = cut(f, "SELECT k, count(*) FROM ord WHERE price > 3 GROUP BY k ORDER BY k", &sr_configs[1].o);
  br_stages_print(s, &b);
  const char *text = br_buf_cstr(&b);
  const char *const parts[] = {"stage 2: sort",
                               "tasks: one (few rows to sort); output: RESULT",
                               "input(0) <- SINGLE from stage 1 (few rows to sort)",
                               "stage 1: final aggregate",
                               "tasks: one a partition; output: SINGLE",
                               "input(0) <- HASH(c0) into 3 from stage 0 (group keys)",
                               "stage 0: scan ord",
                               "tasks: one a split; output: HASH",
                               ": ord, split",
                               "| SELECT "};
  const char *at = text;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    at = strstr(at, parts[i]);
    if (!at) fail_msg("\"%s\" is missing or out of place in:\n%s", parts[i], text);
  }
  br_buf_free(&b);
  br_stages_free(s);
}

static void printed_for_programs(void **state) {
  fixture *f = *state;
  make_orders(f);
  br_stages *s = cut(f, "SELECT k, sum(price) FROM ord GROUP BY k", &sr_configs[0].o);
  json_t *j = br_stages_json(s), *stages = json_object_get(j, "stages");
  assert_true(json_is_null(json_object_get(j, "whole_query_reason")));
  assert_int_equal(json_array_size(stages), 2);
  json_t *scan = json_array_get(stages, 0), *result = json_array_get(stages, 1);
  assert_string_equal(json_string_value(json_object_get(scan, "output")), "HASH");
  assert_string_equal(json_string_value(json_object_get(scan, "keys")), "c0");
  assert_int_equal(json_integer_value(json_object_get(scan, "partitions")), 3);
  assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(scan, "scans"), 0), "table")),
                      "ord");
  assert_true(json_is_true(json_object_get(scan, "indeterminate"))); /* a sum of doubles */
  assert_string_equal(json_string_value(json_array_get(json_object_get(result, "types"), 1)), "DOUBLE");
  json_t *in = json_array_get(json_object_get(result, "inputs"), 0);
  assert_string_equal(json_string_value(json_object_get(in, "kind")), "HASH");
  assert_int_equal(json_integer_value(json_object_get(in, "producer")), 0);
  json_decref(j);
  br_stages_free(s);
}

static void chance_travels_downstream(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql;
    bool chance;
  } cases[] = {{"SELECT id, k FROM ord", false},
               {"SELECT k, count(*), sum(id), max(price) FROM ord GROUP BY k", false},
               {"SELECT random() FROM ord", true},
               {"SELECT k, sum(price) FROM ord GROUP BY k", true},
               {"SELECT k, list(id) FROM ord GROUP BY k", true},
               {"SELECT a.id FROM (SELECT id FROM ord LIMIT 5) a JOIN ord b ON a.id = b.k", true},
               {"SELECT id FROM ord USING SAMPLE 10 ROWS", true},
               {"SELECT k, rank() OVER (PARTITION BY k ORDER BY price) FROM ord", false},
               {"SELECT k, row_number() OVER (PARTITION BY k ORDER BY price) FROM ord", true}};
  make_orders(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stages *s = cut(f, cases[i].sql, &sr_configs[0].o);
    if (s->stages[s->n_stages - 1].indeterminate != cases[i].chance) fail_msg("%s", cases[i].sql);
    br_stages_free(s);
  }
}

/* What nobody reads later is not stored. */
static void unread_columns_stay(void **state) {
  fixture *f = *state;
  br_distribute_options o = sr_configs[0].o;
  o.bloom_filters = false;
  make_orders(f);
  br_stages *s = cut(f, "SELECT a.k, count(*) FROM ord a JOIN ord b ON a.id = b.id WHERE b.price > 2 GROUP BY a.k", &o);
  for (size_t i = 0; i + 1 < s->n_stages; i++) assert_true(s->stages[i].n_columns <= 2);
  assert_int_equal(s->stages[0].n_columns + s->stages[1].n_columns,
                   3); /* b: its key alone, price is only filtered on */
  br_stages_free(s);
}

static size_t filters(const br_stages *s) {
  size_t n = 0;
  for (size_t i = 0; i < s->n_stages; i++)
    for (size_t k = 0; k < s->stages[i].n_inputs; k++) n += s->stages[i].inputs[k].kind == BR_EX_FILTER;
  return n;
}

/* Keys of a join's other side drop rows early: only where rows without a partner don't show, and a NULL finds none. */
static void filters_where_rows_may_go(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql;
    size_t filters;
  } cases[] = {{"SELECT * FROM ord a JOIN ord b ON a.id = b.k", 1},
               {"SELECT * FROM ord a LEFT JOIN ord b ON a.id = b.k", 1},
               {"SELECT * FROM ord a FULL JOIN ord b ON a.id = b.k", 0},
               {"SELECT * FROM ord a JOIN ord b ON a.id IS NOT DISTINCT FROM b.k", 0},
               {"SELECT * FROM ord a SEMI JOIN ord b ON a.id = b.k", 1},
               {"SELECT * FROM ord a ANTI JOIN ord b ON a.id = b.k", 1},
               {"SELECT id IN (SELECT k FROM ord) FROM ord", 0}};
  make_orders(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stages *s = cut(f, cases[i].sql, &sr_configs[0].o);
    if (filters(s) != cases[i].filters) fail_msg("%zu filters: %s", filters(s), cases[i].sql);
    br_stages_free(s);
    s = cut(f, cases[i].sql, &sr_configs[3].o); /* filters are off */
    assert_int_equal(filters(s), 0);
    br_stages_free(s);
  }
}

/* Filter keys whose range is told: of what type, and which scanned column they are. */
static void ranges_of_filter_keys(void **state) {
  fixture *f = *state;
  static const struct {
    const char *from, *type, *source; /* of the first key; type NULL: none has a range. source NULL: none */
  } cases[] = {
      {"P a JOIN F b ON a.id = b.id", "BIGINT", "id"},
      {"P a JOIN F b ON a.small = b.id", "BIGINT", "small"},
      {"P a JOIN F b ON a.id = b.big", "BIGINT", "id"},
      {"P a JOIN F b ON a.day = b.day", "DATE", "day"},
      {"P a JOIN F b ON a.at = b.at", "TIMESTAMP", "at"},
      {"P a JOIN F b ON a.zoned = b.zoned", "TIMESTAMP WITH TIME ZONE", "zoned"},
      {"P a JOIN F b ON a.name = b.name", NULL, NULL},
      {"P a JOIN F b ON a.x = b.x", NULL, NULL},
      {"P a JOIN F b ON a.e = b.e", NULL, NULL},
      {"P a JOIN F b ON a.huge = b.huge", NULL, NULL},
      {"P a JOIN F b ON a.e = b.id", NULL, NULL},
      {"P a JOIN F b ON a.id + 1 = b.id", NULL, NULL},
      {"(SELECT x, id AS i FROM P WHERE small > 3) a JOIN F b ON a.i = b.id", "BIGINT", "id"},
      {"(SELECT id + 1 AS id FROM P) a JOIN F b ON a.id = b.id", "BIGINT", NULL},
      {"(SELECT id FROM P UNION ALL SELECT big FROM P) a JOIN F b ON a.id = b.id", "BIGINT", NULL},
      {"(SELECT DISTINCT id FROM P) a JOIN F b ON a.id = b.id", NULL, NULL},
      {"(SELECT id, count(*) OVER (PARTITION BY small) AS n FROM P) a JOIN F b ON a.id = b.id", "BIGINT", NULL},
      {"(FROM P LIMIT 900) a JOIN F b ON a.id = b.id", "BIGINT", NULL}};
  must(f->c,
       "CREATE OR REPLACE TABLE wide AS SELECT i::INTEGER AS id, (i % 100)::TINYINT AS small, i AS big, DATE "
       "'2000-01-01' + "
       "i::INTEGER AS day, TIMESTAMP '2000-01-01' + INTERVAL (i) HOUR AS at, TIMESTAMPTZ '2000-01-01 00:00:00+00' AS "
       "zoned, "
       "'n' || i AS name, i / 3.0::DOUBLE AS x, i::DECIMAL(9,2) AS e, i::HUGEINT AS huge FROM range(1000) t(i)");
  char *copy = br_asprintf("COPY wide TO '%s/wide.parquet'", f->dir);
  must(f->c, copy);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_buf sql = {0};
    br_buf_str(&sql, "SELECT * FROM ");
    for (const char *p = cases[i].from; *p; p++) {
      bool file = (*p == 'P' || *p == 'F') && p[1] && strchr(" )", p[1]) && (p == cases[i].from || strchr(" (", p[-1]));
      if (file && *p == 'F' && !strncmp(p, "F b", 3))
        br_buf_printf(&sql, "(FROM '%s/wide.parquet' WHERE x < 9)", f->dir);
      else if (file)
        br_buf_printf(&sql, "'%s/wide.parquet'", f->dir);
      else
        br_buf_char(&sql, *p);
    }
    br_stages *s = cut(f, br_buf_cstr(&sql), &sr_configs[0].o);
    const br_filter_key *key = NULL;
    for (size_t k = 0; k < s->n_stages; k++)
      for (size_t in = 0; in < s->stages[k].n_inputs; in++)
        if (s->stages[k].inputs[in].n_ranges) key = s->stages[k].inputs[in].ranges;
    bool right = (key != NULL) == (cases[i].type != NULL);
    if (key && right) right = !strcmp(key->type, cases[i].type) && (key->source != NULL) == (cases[i].source != NULL);
    if (key && right && key->source) right = !strcmp(key->source, cases[i].source);
    if (!right) {
      sr_print(s);
      fail_msg("%s: %s, %s", cases[i].from, key ? key->type : "no range",
               key && key->source ? key->source : "no source");
    }
    br_stages_free(s);
    br_buf_free(&sql);
  }
  free(copy);
}

/* Bloom filters beside the keys: of those that are columns on both sides, hashed as the exchange hashes them. */
static void bloom_filters_of_keys(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql, *ours; /* NULL: none */
  } cases[] = {{"SELECT * FROM ord a JOIN ord b ON a.id = b.k", "hash(t.c"},
               {"SELECT * FROM ord a LEFT JOIN ord b ON a.id = b.k", "hash(t.c"},
               {"SELECT * FROM ord a FULL JOIN ord b ON a.id = b.k", NULL},
               {"SELECT * FROM ord a JOIN ord b ON a.id IS NOT DISTINCT FROM b.k", NULL},
               {"SELECT * FROM ord a JOIN ord b ON a.id + 1 = b.k", NULL},
               {"SELECT * FROM ord a JOIN ord b ON a.id = b.k AND a.k + 1 = b.id", "hash(t.c"},
               {"SELECT * FROM ord a JOIN ord b ON a.id::VARCHAR = b.k::VARCHAR", NULL}};
  br_distribute_options o = sr_configs[0].o;
  make_orders(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stages *s = cut(f, cases[i].sql, &o);
    size_t made = 0, read = 0;
    for (size_t k = 0; k < s->n_stages; k++) {
      made += s->stages[k].makes_bloom;
      for (size_t in = 0; in < s->stages[k].n_inputs; in++) {
        if (s->stages[k].inputs[in].kind != BR_EX_BLOOM) continue;
        read++;
        if (!strstr(s->stages[k].sql, "keys_maybe((SELECT keys_hold(c0) FROM input(") ||
            !strstr(s->stages[k].sql, cases[i].ours))
          fail_msg("%s: %s", cases[i].sql, s->stages[k].sql);
      }
    }
    if (made != (cases[i].ours != NULL) || read != made) fail_msg("%zu made, %zu read: %s", made, read, cases[i].sql);
    br_stages_free(s);
  }
  o.bloom_rows = 1e6; /* more than are expected */
  br_stages *s = cut(f, cases[0].sql, &o);
  assert_int_equal(filters(s), 1);
  for (size_t k = 0; k < s->n_stages; k++) assert_false(s->stages[k].makes_bloom);
  br_stages_free(s);
}

/* A user's text may hold what looks like a mark, before and behind the real ones. */
static void quoted_marks_are_texts(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  const char *sql =
      "SELECT '/* filter 1: */' AS a, \"/* range of filter 1 */\" FROM x t /* filter 1: */ SEMI JOIN input(1) f ON f.k "
      "= "
      "'it''s /* end of filter */' /* end of filter */ /* range of filter 1 */ || '/* end of filter */'";
  const char *cut_out =
      "SELECT '/* filter 1: */' AS a, \"/* range of filter 1 */\" FROM x t  WHERE false || '/* end of filter */'";
  assert_string_equal(br_stage_without_filter(a, br_stage_with_range(a, sql, 1, "false"), 1), cut_out);
  char *other = br_stage_renumber_filter(a, sql, 1, 2);
  assert_string_equal(br_stage_without_filter(a, other, 1), other); /* there is none of this number */
  assert_string_equal(br_stage_renumber_filter(a, other, 2, 1), sql);
  assert_string_equal(br_stage_with_blocks(a, "SELECT '1 /* blocks */', f(1 /* blocks */)", 77),
                      "SELECT '1 /* blocks */', f(77)");
  br_arena_free(a);
}

static void a_range_takes_its_place(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  const char *sql =
      "SELECT t.* FROM x t /* filter 1: */ SEMI JOIN input(1) f ON true /* end of filter */ /* range of filter 1 */";
  char *other = br_stage_renumber_filter(a, sql, 1, 12);
  assert_string_equal(br_stage_with_range(a, sql, 1, NULL),
                      "SELECT t.* FROM x t /* filter 1: */ SEMI JOIN input(1) f ON true /* end of filter */ ");
  assert_string_equal(br_stage_with_range(a, sql, 12, "false"), sql);
  assert_string_equal(br_stage_without_filter(a, br_stage_with_range(a, other, 12, "t.c0 BETWEEN 1 AND 2"), 12),
                      "SELECT t.* FROM x t  WHERE t.c0 BETWEEN 1 AND 2");
  br_arena_free(a);
}

/* A broadcast build side asks for keys that are not NULL, for DuckDB's Bloom filter: only where a NULL key would find no partner
 * and its row would not show. */
static void build_sides_ask_for_keys(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql;
    size_t asked;
  } cases[] = {{"SELECT a.price FROM ord a JOIN ord b ON a.id = b.k", 1},
               {"SELECT a.price FROM ord a SEMI JOIN ord b ON a.id = b.k", 1},
               {"SELECT a.price, b.id FROM ord a LEFT JOIN ord b ON a.id = b.k", 0},
               {"SELECT a.price FROM ord a ANTI JOIN ord b ON a.id = b.k", 0},
               {"SELECT a.price FROM ord a JOIN ord b ON a.id IS NOT DISTINCT FROM b.k", 0},
               {"SELECT a.price FROM ord a JOIN ord b ON a.id < b.k", 0},
               {"SELECT id IN (SELECT k FROM ord) FROM ord", 0}};
  make_orders(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stages *s = cut(f, cases[i].sql, &sr_configs[1].o);
    size_t asked = 0;
    for (size_t k = 0; k < s->n_stages; k++)
      for (const char *at = s->stages[k].sql; (at = strstr(at, "IS NOT NULL")) != NULL; at++) asked++;
    if (asked != cases[i].asked) fail_msg("asked %zu times: %s", asked, cases[i].sql);
    br_stages_free(s);
  }
}

static void a_filter_is_cut_out_whole(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  const char *sql =
      "SELECT t.* FROM x t /* filter 1: */ SEMI JOIN input(1) f ON t.c0 = f.k0 /* end of filter */ WHERE true";
  assert_string_equal(br_stage_without_filter(a, sql, 1), "SELECT t.* FROM x t  WHERE true");
  assert_string_equal(br_stage_without_filter(a, sql, 11), sql);
  br_arena_free(a);
}

static const br_stage *last_with_hash(const br_stages *s) {
  for (size_t i = s->n_stages; i-- > 0;)
    for (size_t k = 0; k < s->stages[i].n_inputs; k++)
      if (s->stages[i].inputs[k].kind == BR_EX_HASH) return &s->stages[i];
  return &s->stages[s->n_stages - 1];
}

/* Which stages may run in passes over parts of their keys. */
static void splittable_stages(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql;
    bool splits;
  } cases[] = {{"SELECT k, list(id) FROM ord GROUP BY k", true},
               {"SELECT count(*) FROM ord a JOIN ord b ON a.id = b.k", true},
               {"SELECT DISTINCT k, price FROM ord", true},
               {"SELECT id FROM ord EXCEPT SELECT k FROM ord", true},
               {"SELECT id, rank() OVER (PARTITION BY k ORDER BY price) FROM ord", true},
               {"SELECT id % 3, count(*) FROM ord GROUP BY 1", true},
               {"SELECT count(*) FROM ord a JOIN ord b ON a.id + 1 = b.k * 2", true},
               {"SELECT count(*) FROM ord a JOIN ord b ON a.id + 1 = b.k * 2 AND a.k = b.k", true}};
  make_orders(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stages *s = cut(f, cases[i].sql, &sr_configs[4].o);
    const br_stage *st = last_with_hash(s);
    if (br_stage_splittable(st) != cases[i].splits) {
      sr_print(s);
      fail_msg("%s", cases[i].sql);
    }
    br_stages_free(s);
  }
}

/* Quoted texts and other inputs stay; every hash input gets the filter with its own column. */
static void text_of_a_pass(void **state) {
  (void)state;
  br_arena *a = br_arena_new();
  const br_split_key left[] = {{.text = "t.c2 + 1", .hashed_as = "BIGINT"}, {.text = NULL, .hashed_as = "DATE"}},
                     right[] = {{.text = "t.c0", .hashed_as = "BIGINT"}, {.text = "t.c1", .hashed_as = "DATE"}};
  br_stage_input in[] = {{.number = 0, .kind = BR_EX_HASH, .keys = left, .n_keys = 2},
                         {.number = 1, .kind = BR_EX_BROADCAST},
                         {.number = 2, .kind = BR_EX_HASH, .keys = right, .n_keys = 2}};
  br_stage s = {.inputs = in, .n_inputs = 3, .rule = BR_TASKS_PARTITIONS};
  assert_true(br_stage_splittable(&s));
  assert_string_equal(
      br_stage_pass_sql(a, &s, "SELECT 'input(0)' FROM input(0) i, input(1), input(2) WHERE my_input(2)", 4, 3),
      "SELECT 'input(0)' FROM (SELECT t.* FROM input(0) t WHERE hash(t.c2 + 1, " BR_HASH_SEED_SPLIT
      ") % 4 = 3) i, input(1), (SELECT t.* FROM input(2) t WHERE hash(t.c0, " BR_HASH_SEED_SPLIT
      ") % 4 = 3) WHERE my_input(2)");
  in[2].n_keys = 1; /* not of one exchange's keys */
  assert_false(br_stage_splittable(&s));
  in[2].n_keys = 2;
  in[1].kind = BR_EX_FORWARD;
  assert_false(br_stage_splittable(&s));
  br_arena_free(a);
}

/* Which sides of hash joins may be joined where they are made, the other one being read whole: not where rows without a partner show,
 * where groups are made of the partitions, or where both parts of a UNION ALL are one side. */
static void joins_in_place(void **state) {
  fixture *f = *state;
  static const struct {
    const char *sql;
    size_t sides;
  } cases[] = {{"SELECT * FROM ord a JOIN oth b ON a.id = b.k", 2},
               {"SELECT * FROM ord a LEFT JOIN oth b ON a.id = b.k", 1},
               {"SELECT * FROM ord a RIGHT JOIN oth b ON a.id = b.k", 1},
               {"SELECT * FROM ord a FULL JOIN oth b ON a.id = b.k", 0},
               {"SELECT * FROM ord a SEMI JOIN oth b ON a.id = b.k", 1},
               {"SELECT * FROM ord a ANTI JOIN oth b ON a.id = b.k", 1},
               {"SELECT * FROM ord a JOIN ord b ON a.id = b.id", 0}, /* one stage, read twice */
               {"SELECT a.k % 3, count(*) FROM ord a JOIN oth b ON a.id = b.k GROUP BY 1", 2},
               {"SELECT a.id, median(b.price) FROM ord a JOIN oth b ON a.id = b.k GROUP BY a.id", 0},
               {"SELECT a.id, sum(b.id) OVER (PARTITION BY a.id) FROM ord a JOIN oth b ON a.id = b.k", 0},
               {"SELECT u.id FROM (SELECT id FROM ord UNION ALL SELECT k FROM ord) u JOIN oth b ON u.id = b.k", 1}};
  br_distribute_options o = sr_configs[0].o;
  o.run_time_filters = o.joins_in_place = false; /* a side that the other one waits for has two readers */
  make_orders(f);
  must(f->c, "CREATE OR REPLACE TABLE oth AS SELECT * FROM ord WHERE id % 3 = 0");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_stages *s = cut(f, cases[i].sql, &o);
    uint32_t reader, input;
    size_t sides = 0;
    for (uint32_t k = 0; k < s->n_stages; k++) sides += br_stage_may_join_in_place(s, k, &reader, &input);
    if (sides != cases[i].sides) {
      sr_print(s);
      fail_msg("%zu sides: %s", sides, cases[i].sql);
    }
    br_stages_free(s);
  }
}

static void refuses_bad_options(void **state) {
  fixture *f = *state;
  br_error err = {0};
  br_plan *p = NULL;
  br_stages *s = NULL;
  char *why = NULL, *json = rt_plan(f->c, "SELECT 1", NULL, &why);
  br_distribute_options o = {.partitions = 0};
  assert_non_null(json);
  assert_int_equal(br_plan_parse(json, NULL, &p, &err), BR_OK);
  assert_int_equal(br_distribute(p, &o, &s, &err), BR_INVALID);
  assert_non_null(strstr(err.message, "partitions"));
  assert_null(s);
  br_plan_free(p);
  free(json);
}

/* Without estimates nothing is taken for small, and all still works. */
static void plans_without_estimates(void **state) {
  fixture *f = *state;
  br_error err = {0};
  br_plan *p = NULL;
  br_stages *s = NULL;
  char *why = NULL, *shape;
  make_orders(f);
  char *json = rt_plan(f->c, "SELECT a.id FROM ord a JOIN ord b ON a.id = b.id", NULL, &why);
  assert_int_equal(br_plan_parse(json, NULL, &p, &err), BR_OK);
  assert_int_equal(br_distribute(p, &sr_configs[1].o, &s, &err), BR_OK);
  shape = sr_shape(s);
  assert_string_equal(shape, "2 stages, HASH 1"); /* the two scans are one */
  free(shape);
  br_stages_free(s);
  br_plan_free(p);
  free(json);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(queries),
                                     cmocka_unit_test(printed_for_people),
                                     cmocka_unit_test(printed_for_programs),
                                     cmocka_unit_test(chance_travels_downstream),
                                     cmocka_unit_test(unread_columns_stay),
                                     cmocka_unit_test(filters_where_rows_may_go),
                                     cmocka_unit_test(ranges_of_filter_keys),
                                     cmocka_unit_test(bloom_filters_of_keys),
                                     cmocka_unit_test(a_range_takes_its_place),
                                     cmocka_unit_test(quoted_marks_are_texts),
                                     cmocka_unit_test(build_sides_ask_for_keys),
                                     cmocka_unit_test(a_filter_is_cut_out_whole),
                                     cmocka_unit_test(splittable_stages),
                                     cmocka_unit_test(text_of_a_pass),
                                     cmocka_unit_test(joins_in_place),
                                     cmocka_unit_test(refuses_bad_options),
                                     cmocka_unit_test(plans_without_estimates)};
  return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
