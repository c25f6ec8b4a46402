/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan duckdb
 *
 * What distribute/ uses of decompile/: one node over texts that stand for its children, callbacks for scans and references,
 * single expressions, the description of scans; and joins of kinds that the planner seldom makes, by changing a plan.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_roundtrip.h"

static duckdb_database db;
static duckdb_connection c;

static void must(const char *sql) {
  char *why = NULL;
  if (!rt_exec(c, sql, &why)) fail_msg("%s: %s", sql, why);
}

static int set_up(void **state) {
  (void)state;
  if (duckdb_open(NULL, &db) != DuckDBSuccess || duckdb_connect(db, &c) != DuckDBSuccess) return -1;
  must("CREATE TABLE a AS SELECT * FROM (VALUES (1, 10), (2, NULL), (3, 30), (NULL, 40), (4, 10)) v(k, x)");
  must("CREATE TABLE b AS SELECT * FROM (VALUES (1, 10), (2, 30), (3, NULL), (NULL, 15), (4, 40)) v(k, x)");
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  duckdb_disconnect(&c);
  duckdb_close(&db);
  return 0;
}

/* Plan a text; in its JSON, `from` becomes `to` (NULL: nothing). */
static br_plan *changed_plan(const char *sql, const char *from, const char *to) {
  char *why = NULL, *json = rt_plan(c, sql, NULL, &why);
  br_plan *p = NULL;
  br_error err = {0};
  if (!json) fail_msg("%s: %s", sql, why);
  if (from) {
    char *at = strstr(json, from);
    if (!at) fail_msg("no %s in %s", from, json);
    char *text = br_asprintf("%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    free(json);
    json = text;
  }
  if (br_plan_parse(json, NULL, &p, &err) != BR_OK) fail_msg("%s", err.message);
  free(json);
  return p;
}

static br_plan *plan(const char *sql) { return changed_plan(sql, NULL, NULL); }

static const br_node *find(const br_node *n, br_node_kind kind) {
  if (n->kind == kind) return n;
  for (size_t i = 0; i < n->n_children; i++) {
    const br_node *found = find(n->children[i], kind);
    if (found) return found;
  }
  return NULL;
}

static br_rel tree(br_plan *p, const br_node *n, const br_emit_options *o) {
  br_rel r = {0};
  br_error err = {0};
  if (br_emit_tree(br_emit_new(p->arena, o), n, &r, &err) != BR_OK) fail_msg("%s", err.message);
  return r;
}

static void same_rows(const char *emitted, const char *wanted) {
  rt_case t = {.sql = wanted};
  rt_rows types[2] = {{0}}, rows[2] = {{0}};
  char *why = NULL;
  if (!rt_run(c, wanted, false, &types[0], &rows[0], &why)) fail_msg("%s", why);
  if (!rt_run(c, emitted, false, &types[1], &rows[1], &why)) fail_msg("%s\n%s", why, emitted);
  assert_true(rt_same(&t, emitted, &rows[0], &rows[1], "rows"));
  for (int i = 0; i < 2; i++) {
    rt_rows_free(&types[i]);
    rt_rows_free(&rows[i]);
  }
}

static void one_node_over_texts(void **state) {
  (void)state;
  br_plan *p = plan("SELECT x + 1, k FROM a WHERE x * k > 20");
  br_error err = {0};
  const br_node *f = find(p->root, BR_NODE_FILTER);
  assert_non_null(f);
  br_rel child = {.sql = "SELECT * FROM input(0)",
                  .n_columns = f->children[0]->n_columns,
                  .binds = f->children[0]->binds,
                  .types = f->children[0]->types};
  br_rel out;
  br_emit *e = br_emit_new(p->arena, NULL);
  assert_int_equal(br_emit_node(e, f, &child, &out, &err), BR_OK);
  assert_non_null(strstr(out.sql, "FROM (SELECT * FROM input(0)) t\nWHERE "));
  assert_int_equal(out.n_columns, f->n_columns);
  assert_ptr_equal(out.binds, f->binds);
  br_plan_free(p);
}

static const char *token(void *arg, const br_node *get, uint32_t number) {
  (void)get;
  uint32_t *seen = arg;
  *seen |= 1u << number;
  return number == 0 ? "@@SCAN0@@" : NULL;
}

static void scan_callback(void **state) {
  (void)state;
  br_plan *p = plan("SELECT a.k, b.x FROM a JOIN b ON a.k = b.k AND a.x < b.x");
  uint32_t seen = 0;
  br_emit_options o = {.scan = token, .arg = &seen};
  br_rel r = tree(p, p->root, &o);
  assert_int_equal(seen, 3);
  assert_non_null(strstr(r.sql, "FROM @@SCAN0@@ t"));
  assert_non_null(strstr(r.sql, "FROM \"memory\".\"main\"."));
  br_plan_free(p);
}

static const char *given(void *arg, const br_node *ref) {
  (void)ref;
  return arg;
}

static void reference_callback(void **state) {
  (void)state;
  br_plan *p =
      plan("WITH w AS MATERIALIZED (SELECT k, sum(x) s FROM a GROUP BY k) SELECT v.k FROM w v JOIN w u ON v.k = u.s");
  const br_node *body = find(p->root, BR_NODE_CTE)->children[1];
  br_emit_options o = {.reference = given, .arg = "input(7)"};
  assert_non_null(strstr(tree(p, body, &o).sql, "FROM input(7) t"));
  o.arg = "SELECT * FROM x";
  assert_non_null(strstr(tree(p, body, &o).sql, "FROM (SELECT * FROM x) t"));
  assert_non_null(strstr(tree(p, body, NULL).sql, "FROM cte"));
  br_plan_free(p);
}

/* As distribute/ does it: side and keys are made elsewhere, the join reads them. */
static void delim_join_in_parts(void **state) {
  (void)state;
  br_plan *p = plan("SELECT k, x IN (SELECT b.x FROM b WHERE b.k < a.k) m FROM a");
  const br_node *j = find(p->root, BR_NODE_DELIM_JOIN);
  br_error err = {0};
  br_buf b = {0};
  assert_non_null(j);
  size_t at = br_delim_side(j);
  char *whole = br_strdup(tree(p, j, NULL).sql);
  br_rel rels[2], out;
  rels[at] = tree(p, j->children[at], NULL);
  br_buf_printf(&b, "CREATE OR REPLACE TEMP TABLE side AS %s", rels[at].sql);
  must(br_buf_cstr(&b));
  br_buf_clear(&b);
  br_buf_str(&b, "CREATE OR REPLACE TEMP TABLE keys AS SELECT DISTINCT ");
  const json_t *keys = json_object_get(j->json, "duplicate_eliminated_columns");
  for (size_t i = 0; i < json_array_size(keys); i++) {
    if (i) br_buf_str(&b, ", ");
    assert_int_equal(br_emit_expr(br_emit_new(p->arena, NULL), json_array_get(keys, i), &rels[at], "t", &b, &err),
                     BR_OK);
    br_buf_printf(&b, " AS c%zu", i);
  }
  br_buf_str(&b, " FROM side t");
  must(br_buf_cstr(&b));
  br_emit_options o = {.reference = given, .arg = "keys"};
  rels[1 - at] = tree(p, j->children[1 - at], &o);
  rels[at].sql = "SELECT * FROM side";
  assert_int_equal(br_emit_node(br_emit_new(p->arena, NULL), j, rels, &out, &err), BR_OK);
  assert_null(strstr(out.sql, "delim"));
  same_rows(out.sql, whole);
  free(whole);
  br_buf_free(&b);
  br_plan_free(p);
}

/* The join node of `sql`, changed, as a whole against a text of our own. */
static void changed_join(const char *sql, const char *from, const char *to, const char *wanted) {
  br_plan *p = changed_plan(sql, from, to);
  const br_node *j = find(p->root, BR_NODE_JOIN);
  if (!j) j = find(p->root, BR_NODE_ANY_JOIN);
  assert_non_null(j);
  same_rows(tree(p, j, NULL).sql, wanted);
  br_plan_free(p);
}

#define INNER "\"join_type\":\"INNER\""
#define AS(kind) "\"join_type\":\"" kind "\""

static void rare_joins(void **state) {
  (void)state;
  const char *less = "SELECT a.k, a.x, b.k, b.x FROM a JOIN b ON a.k < b.k AND a.x < b.x";
  const char *equal = "SELECT a.k, b.k, b.x, a.x FROM a JOIN b ON a.k = b.k AND a.x = b.x";
  const char *any = "SELECT a.k, a.x, b.k, b.x FROM a JOIN b ON a.k + b.k = 5 OR a.x < b.x";
  changed_join(less, INNER, AS("MARK"),
               "SELECT a.k, a.x, CASE WHEN (SELECT count(*) FROM b WHERE a.k < b.k AND a.x < b.x) > 0 THEN "
               "true WHEN "
               "(SELECT count(*) FROM b WHERE (a.k < b.k AND a.x < b.x) IS NULL) > 0 THEN NULL ELSE false "
               "END FROM a");
  changed_join(
      any, INNER, AS("MARK"),
      "SELECT a.k, a.x, CASE WHEN (SELECT count(*) FROM b WHERE a.k + b.k = 5 OR a.x < b.x) > 0 THEN true WHEN "
      "(SELECT count(*) FROM b WHERE (a.k + b.k = 5 OR a.x < b.x) IS NULL) > 0 THEN NULL ELSE false END FROM a");
  changed_join("SELECT a.k, a.x, b.k, b.x FROM a JOIN b ON a.k > b.k AND a.x >= b.x + 20", INNER, AS("SINGLE"),
               "SELECT a.k, a.x, b.k, b.x FROM a LEFT JOIN b ON a.k > b.k AND a.x >= b.x + 20");
  changed_join(equal, INNER, AS("RIGHT_SEMI"),
               "SELECT * FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.k = b.k AND a.x = b.x)");
  changed_join(equal, INNER, AS("RIGHT_ANTI"),
               "SELECT * FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = b.k AND a.x = b.x)");
  changed_join(equal, "\"right_projection_map\":[]", "\"right_projection_map\":[1]",
               "SELECT a.k, a.x, b.x FROM a JOIN b ON a.k = b.k AND a.x = b.x");
  br_plan *p = changed_plan(equal, INNER, AS("SIDEWAYS"));
  br_error err = {0};
  br_rel r;
  assert_int_equal(br_emit_tree(br_emit_new(p->arena, NULL), p->root, &r, &err), BR_UNSUPPORTED);
  assert_non_null(strstr(err.message, "SIDEWAYS"));
  br_plan_free(p);
}

static void text_of(const char *json, const char *wanted) {
  json_t *j = NULL;
  br_error err = {0};
  br_buf b = {0};
  br_arena *a = br_arena_new();
  br_bind binds[2] = {{4, 0}, {4, 1}};
  json_t *types[2] = {NULL, NULL};
  br_rel over = {.sql = "", .n_columns = 2, .binds = binds, .types = types};
  if (br_json_parse(json, &j, &err) != BR_OK) fail_msg("%s", err.message);
  br_status s = br_emit_expr(br_emit_new(a, NULL), j, &over, "t", &b, &err);
  if (wanted) {
    if (s != BR_OK) fail_msg("%s", err.message);
    assert_string_equal(br_buf_cstr(&b), wanted);
  } else {
    assert_int_equal(s, BR_UNSUPPORTED);
    assert_int_equal(b.len, 0);
  }
  br_buf_free(&b);
  json_decref(j);
  br_arena_free(a);
}

#define REF(i) "{\"expression_class\": \"BOUND_REF\", \"index\": " #i "}"
#define RANDOM                                                                                                    \
  "{\"expression_class\": \"BOUND_FUNCTION\", \"name\": \"random\", \"children\": [], \"return_type\": {\"id\": " \
  "\"DOUBLE\"}}"
#define BETWEEN(type, x, lower)                                                                   \
  "{\"expression_class\": \"BOUND_BETWEEN\", \"type\": \"" type "\", \"lower_inclusive\": " lower \
  ", \"upper_inclusive\": true, \"input\": " x ", \"lower\": " REF(1) ", \"upper\": " REF(0) "}"

static void expressions(void **state) {
  (void)state;
  text_of(BETWEEN("COMPARE_BETWEEN", REF(0), "true"), "(t.c0 BETWEEN t.c1 AND t.c0)");
  text_of(BETWEEN("COMPARE_BETWEEN", REF(0), "false"), "(t.c0 > t.c1 AND t.c0 <= t.c0)");
  text_of(BETWEEN("COMPARE_NOT_BETWEEN", REF(0), "true"), "(NOT (t.c0 BETWEEN t.c1 AND t.c0))");
  text_of(BETWEEN("COMPARE_BETWEEN", RANDOM, "true"), "(\"random\"() BETWEEN t.c1 AND t.c0)");
  text_of(BETWEEN("COMPARE_BETWEEN", RANDOM, "false"), NULL); /* it would be drawn twice */
  text_of("{\"expression_class\": \"BOUND_COLUMN_REF\", \"binding\": {\"table_index\": 4, \"column_index\": 1}}",
          "t.c1");
}

static void constants(void **state) {
  (void)state;
#define VALUE(id, v) "{\"type\": {\"id\": \"" id "\", \"type_info\": null}, \"is_null\": false, \"value\": " v "}"
  const char *const cases[][2] = {
      {VALUE("UBIGINT", "18446744073709551615"), "'18446744073709551615'::UBIGINT"},
      {VALUE("HUGEINT", "{\"upper\": -1, \"lower\": 18446744073709551615}"), "'-1'::HUGEINT"},
      {VALUE("DOUBLE", "-Infinity"), "'-inf'::DOUBLE"},
      {VALUE("DOUBLE", "0.1"), "'0.1'::DOUBLE"},
      {"{\"type\": {\"id\": \"DECIMAL\", \"type_info\": {\"width\": 4, \"scale\": 2}}, \"is_null\": false, \"value\": "
       "-5}",
       "'-0.05'::DECIMAL(4,2)"},
      {VALUE("VARCHAR", "\"a\\u0000'b\""), "('a' || chr(0) || '''b')::VARCHAR"},
      {"{\"type\": {\"id\": \"DATE\"}, \"is_null\": true}", "CAST(NULL AS DATE)"},
      {VALUE("DATE", "-1"), "DATE '1969-12-31'"},
      {VALUE("TIMESTAMP", "-1"), "'1969-12-31 23:59:59.999999'::TIMESTAMP"},
      {VALUE("TIMESTAMP_S", "9223372036854775800"), NULL},
      {VALUE("BIT", "\"\""), NULL},
      {VALUE("POINTER", "1"), NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *j = NULL;
    br_error err = {0};
    br_buf b = {0};
    assert_int_equal(br_json_parse(cases[i][0], &j, &err), BR_OK);
    assert_int_equal(br_emit_constant(j, &b, &err), cases[i][1] ? BR_OK : BR_UNSUPPORTED);
    if (cases[i][1]) assert_string_equal(br_buf_cstr(&b), cases[i][1]);
    br_buf_free(&b);
    json_decref(j);
  }
}

static void pushed_in_filter(void **state) {
  (void)state;
#define ONE(v) "{\"type\":{\"id\":\"INTEGER\",\"type_info\":null},\"is_null\":false,\"value\":" #v "}"
  br_plan *p =
      changed_plan("SELECT k FROM a WHERE k > 2",
                   "\"filter_type\":\"CONSTANT_COMPARISON\",\"comparison_type\":\"COMPARE_GREATERTHAN\",\"constant\":",
                   "\"filter_type\":\"IN_FILTER\",\"values\":[" ONE(1) "," ONE(4) "],\"unused\":");
  same_rows(tree(p, p->root, NULL).sql, "SELECT k FROM a WHERE k IN (1, 4)");
  br_plan_free(p);
}

static void indeterminate(void **state) {
  (void)state;
  br_plan *p = plan("SELECT k, list_transform([x], lambda y: y + random()) FROM a WHERE x + k > 3");
  const br_node *f = find(p->root, BR_NODE_FILTER), *proj = p->root;
  const json_t *e = json_object_get(proj->json, "expressions");
  while (!br_node_is_volatile(proj) && proj->n_children) proj = proj->children[0];
  e = json_object_get(proj->json, "expressions");
  assert_int_equal(proj->kind, BR_NODE_PROJECTION);
  assert_true(br_expr_is_indeterminate(json_array_get(e, 1)));
  assert_false(br_expr_is_indeterminate(json_array_get(e, 0)));
  assert_false(br_node_is_volatile(f));
  assert_false(br_node_is_volatile(find(p->root, BR_NODE_GET)));
  br_plan_free(p);
  p = plan("SELECT count(uuid()) FROM a");
  assert_false(br_node_is_volatile(find(p->root, BR_NODE_GET)));
  br_plan_free(p);
}

static void orders_and_aggregates(void **state) {
  (void)state;
  br_plan *p = plan(
      "SELECT string_agg(DISTINCT x::VARCHAR, '; ' ORDER BY x::VARCHAR DESC) FILTER (WHERE x > 3) s FROM a GROUP BY k");
  const br_node *agg = find(p->root, BR_NODE_AGGREGATE);
  br_error err = {0};
  br_buf b = {0};
  br_rel over = tree(p, agg->children[0], NULL);
  br_emit *e = br_emit_new(p->arena, NULL);
  const json_t *call = json_array_get(json_object_get(agg->json, "expressions"), 0);
  assert_int_equal(br_emit_aggregate(e, call, &over, "q", &b, &err), BR_OK);
  assert_non_null(strstr(br_buf_cstr(&b), "string_agg(DISTINCT "));
  assert_non_null(strstr(br_buf_cstr(&b), ", '; ' ORDER BY "));
  assert_non_null(strstr(br_buf_cstr(&b), " DESC NULLS LAST) FILTER (WHERE "));
  assert_non_null(strstr(br_buf_cstr(&b), "q.c"));
  br_plan_free(p);
  br_buf_clear(&b);
  p = plan("SELECT * FROM a ORDER BY x DESC NULLS FIRST, k");
  const br_node *o = find(p->root, BR_NODE_ORDER);
  over = tree(p, o->children[0], NULL);
  assert_int_equal(
      br_emit_order_by(br_emit_new(p->arena, NULL), json_object_get(o->json, "orders"), &over, "t", &b, &err), BR_OK);
  assert_string_equal(br_buf_cstr(&b), "t.c1 DESC NULLS FIRST, t.c0 ASC NULLS LAST");
  br_plan_free(p);
  br_buf_free(&b);
}

static br_scan scan_of(br_plan *p, bool wanted) {
  br_scan s;
  bool is_scan;
  br_error err = {0};
  const br_node *get = find(p->root, BR_NODE_GET);
  assert_non_null(get);
  if (br_scan_of(p->arena, get, &is_scan, &s, &err) != BR_OK) fail_msg("%s", err.message);
  assert_int_equal(is_scan, wanted);
  return s;
}

static void scans(void **state) {
  (void)state;
  br_plan *p = plan("SELECT k FROM a");
  br_scan s = scan_of(p, true);
  assert_int_equal(s.kind, BR_SCAN_TABLE);
  assert_string_equal(s.catalog, "memory");
  assert_string_equal(s.schema, "main");
  assert_string_equal(s.table, "a");
  assert_false(s.unsplittable || s.whole_files_only);
  br_plan_free(p);
  p = plan("SELECT rowid, k FROM a");
  assert_true(scan_of(p, true).unsplittable);
  br_plan_free(p);
  p = plan("SELECT k FROM a USING SAMPLE 3 ROWS");
  if (find(p->root, BR_NODE_SAMPLE) == NULL) assert_true(scan_of(p, true).unsplittable);
  br_plan_free(p);
  p = plan("SELECT * FROM range(7)");
  scan_of(p, false);
  br_plan_free(p);
}

static void parquet_scans(void **state) {
  (void)state;
  char dir[] = "/tmp/brant-scan-XXXXXX";
  char *sql[6];
  assert_non_null(mkdtemp(dir));
  sql[0] =
      br_asprintf("COPY (SELECT k, x FROM a) TO '%s' (FORMAT parquet, PARTITION_BY (k), OVERWRITE_OR_IGNORE)", dir);
  sql[1] = br_asprintf(
      "SELECT x, k FROM read_parquet('%s/*/*.parquet', hive_partitioning = true, binary_as_string = true) WHERE x > 1",
      dir);
  sql[2] = br_asprintf("SELECT x, filename FROM read_parquet('%s/*/*.parquet') WHERE x > 1", dir);
  sql[3] = br_asprintf("SELECT x, file_index FROM read_parquet('%s/*/*.parquet') WHERE x > 1", dir);
  sql[4] = br_asprintf(
      "SELECT x, file_row_number FROM read_parquet('%s/*/*.parquet', file_row_number = true, hive_partitioning = "
      "false) WHERE x > 1",
      dir);
  must(sql[0]);
  br_plan *p = plan(sql[1]);
  br_scan s = scan_of(p, true);
  assert_int_equal(s.kind, BR_SCAN_PARQUET);
  assert_int_equal(s.n_files, 5);
  assert_string_equal(s.options,
                      ", binary_as_string := true, hive_partitioning := true, hive_types := {'k': 'BIGINT'}");
  assert_false(s.unsplittable || s.whole_files_only || s.file_row_number);
  br_plan_free(p);
  p = plan(sql[2]);
  s = scan_of(p, true);
  assert_true(s.whole_files_only && !s.unsplittable);
  br_plan_free(p);
  p = plan(sql[3]);
  s = scan_of(p, true);
  assert_true(s.unsplittable);
  assert_non_null(strstr(s.why, "file_index"));
  br_plan_free(p);
  p = plan(sql[4]);
  s = scan_of(p, true);
  assert_true(s.file_row_number);
  assert_string_equal(s.options, ", file_row_number := true, hive_partitioning := false");
  br_plan_free(p);
  for (int i = 0; i < 5; i++) free(sql[i]);
  br_remove_tree(dir);
}

static const char *given_source(void *arg, const br_node *get, uint32_t number) {
  (void)get;
  (void)number;
  return arg;
}

/* The scan's text over each file alone, put together, is the scan over all. */
static void same_by_file(const char *sql, size_t files) {
  br_plan *p = plan(sql);
  br_scan s = scan_of(p, true);
  br_buf all = {0}, source = {0};
  assert_int_equal(s.n_files, files);
  for (size_t i = 0; i < s.n_files; i++) {
    br_buf_clear(&source);
    br_buf_str(&source, "read_parquet([");
    br_scan_file_literal(&source, s.files[i]);
    br_buf_printf(&source, "]%s)", s.options);
    br_emit_options o = {.scan = given_source, .arg = (void *)br_buf_cstr(&source)};
    br_buf_printf(&all, "%s(%s)", i ? " UNION ALL " : "", tree(p, p->root, &o).sql);
  }
  rt_case t = {.sql = sql};
  assert_true(rt_compare_texts(c, &t, br_buf_cstr(&all)));
  br_buf_free(&all);
  br_buf_free(&source);
  br_plan_free(p);
}

/* Each alone, these files would have other types or fewer columns. */
static void subsets_of_files(void **state) {
  (void)state;
  char dir[] = "/tmp/brant-scan-XXXXXX";
  assert_non_null(mkdtemp(dir));
  char *sql[] = {
      br_asprintf(
          "COPY (SELECT k, CASE WHEN k > 2 THEN 'x' ELSE k::VARCHAR END AS p FROM a WHERE k IS NOT NULL) TO '%s/hive' "
          "(FORMAT parquet, PARTITION_BY (p))",
          dir),
      br_asprintf("COPY (SELECT 1::TINYINT AS n, 'one' AS only_here) TO '%s/1.parquet'", dir),
      br_asprintf("COPY (SELECT 2::BIGINT AS n, 2.5 AS other, {'s': 1} AS st) TO '%s/2.parquet'", dir),
      br_asprintf("COPY (SELECT 3::SMALLINT AS n, {'s': 2::BIGINT, 'u': 'v'} AS st) TO '%s/3.parquet'", dir),
  };
  char *read[] = {
      br_asprintf("SELECT k, p FROM read_parquet('%s/hive/*/*.parquet', hive_partitioning = true)", dir),
      br_asprintf("SELECT * FROM read_parquet('%s/?.parquet', union_by_name = true)", dir),
      br_asprintf("SELECT n, other, parse_filename(filename) f FROM read_parquet('%s/?.parquet', union_by_name = true) "
                  "WHERE n < 3",
                  dir),
      br_asprintf("SELECT n FROM read_parquet('%s/?.parquet')", dir),
  };
  for (size_t i = 0; i < 4; i++) must(sql[i]);
  for (size_t i = 0; i < 4; i++) same_by_file(read[i], 3);
  for (size_t i = 0; i < 4; i++) {
    free(sql[i]);
    free(read[i]);
  }
  br_remove_tree(dir);
}

static void file_literals(void **state) {
  (void)state;
  br_buf b = {0};
  br_scan_file_literal(&b, "/d/it's [a]*?.parquet");
  assert_string_equal(br_buf_cstr(&b), "'/d/it''s [[]a][*][?].parquet'");
  br_buf_clear(&b);
  br_scan_file_literal(&b, "https://host/f.parquet?token=1");
  assert_string_equal(br_buf_cstr(&b), "'https://host/f.parquet?token=1'");
  br_buf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_node_over_texts),
      cmocka_unit_test(scan_callback),
      cmocka_unit_test(reference_callback),
      cmocka_unit_test(delim_join_in_parts),
      cmocka_unit_test(rare_joins),
      cmocka_unit_test(expressions),
      cmocka_unit_test(indeterminate),
      cmocka_unit_test(constants),
      cmocka_unit_test(pushed_in_filter),
      cmocka_unit_test(orders_and_aggregates),
      cmocka_unit_test(scans),
      cmocka_unit_test(parquet_scans),
      cmocka_unit_test(file_literals),
      cmocka_unit_test(subsets_of_files),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
