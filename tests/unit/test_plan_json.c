/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan
 *
 * DuckDB's JSON dialect; the tree that br_plan_parse makes; and that damaged plans end as errors, never as crashes: the
 * seeds of the fuzzer are cut at every byte, and every value in them is replaced by values of other types.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/decompile/decompile.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text) {
  json_t *j = NULL;
  br_error err = {0};
  if (br_json_parse(text, &j, &err) != BR_OK) fail_msg("%s: %s", text, err.message);
  return j;
}

static br_code parse_fails(const char *text) {
  json_t *j = NULL;
  br_error err = {0};
  if (br_json_parse(text, &j, &err) == BR_OK) fail_msg("%s should not parse", text);
  assert_true(err.message[0] != 0);
  return err.code;
}

static void dialect(void **state) {
  (void)state;
  json_t *j = parse(
      "{\"a\": NaN, \"b\": Infinity, \"c\": -Infinity, \"d\": 18446744073709551615, \"e\": -9223372036854775808, "
      "\"f\": 9223372036854775808, \"g\": 1.5e3, \"h\": \"NaN, Infinity \\\" 99999999999999999999\", \"i\": "
      "\"x\\u0000y\", \"j\": [NaN,-1,9223372036854775807], \"k\": \"\\\\\", \"l\": NaN}");
  assert_true(isnan(br_json_double(json_object_get(j, "a"))));
  assert_true(br_json_double(json_object_get(j, "b")) == INFINITY);
  assert_true(br_json_double(json_object_get(j, "c")) == -INFINITY);
  assert_true(br_json_u64(json_object_get(j, "d")) == UINT64_MAX);
  assert_true((int64_t)br_json_u64(json_object_get(j, "e")) == INT64_MIN);
  assert_true(br_json_u64(json_object_get(j, "f")) == UINT64_C(1) << 63);
  assert_true(br_json_double(json_object_get(j, "g")) == 1500);
  assert_string_equal(json_string_value(json_object_get(j, "h")), "NaN, Infinity \" 99999999999999999999");
  assert_int_equal(json_string_length(json_object_get(j, "i")), 3);
  assert_memory_equal(json_string_value(json_object_get(j, "i")), "x\0y", 3);
  assert_true(isnan(br_json_double(json_array_get(json_object_get(j, "j"), 0))));
  assert_true((int64_t)br_json_u64(json_array_get(json_object_get(j, "j"), 1)) == -1);
  assert_true(br_json_u64(json_array_get(json_object_get(j, "j"), 2)) == INT64_MAX);
  assert_string_equal(json_string_value(json_object_get(j, "k")), "\\");
  json_decref(j);
}

static void numbers_of_wrong_types(void **state) {
  (void)state;
  json_t *j =
      parse("{\"t\": true, \"n\": null, \"s\": \"12x\", \"r\": 7.9, \"big\": 1e30, \"minus\": -3.5, \"m\": \"-4\"}");
  assert_int_equal(br_json_u64(json_object_get(j, "t")), 1);
  assert_int_equal(br_json_u64(json_object_get(j, "n")), 0);
  assert_int_equal(br_json_u64(json_object_get(j, "s")), 12);
  assert_int_equal(br_json_u64(json_object_get(j, "r")), 7);
  assert_int_equal(br_json_u64(json_object_get(j, "big")), 0);
  assert_true((int64_t)br_json_u64(json_object_get(j, "minus")) == -3);
  assert_true((int64_t)br_json_u64(json_object_get(j, "m")) == -4);
  assert_int_equal(br_json_u64(NULL), 0);
  assert_true(isnan(br_json_double(NULL)));
  json_decref(j);
}

static void garbage(void **state) {
  (void)state;
  const char *bad[] = {"", "{", "[1,", "\"open", "{\"a\": nil}", "NaNa", "1 2", "\xff", "{\"a\": 1e999}", "-", "\"\\"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(parse_fails(bad[i]), BR_CORRUPT);
  size_t n = 100000;
  char *deep = malloc(n + 1);
  memset(deep, '[', n);
  deep[n] = 0;
  assert_int_equal(parse_fails(deep), BR_UNSUPPORTED);
  free(deep);
}

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  br_buf b = {0};
  char chunk[65536];
  assert_non_null(f);
  for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) br_buf_add(&b, chunk, n);
  fclose(f);
  br_buf_reserve(&b, 1);
  return br_buf_take(&b);
}

static char *seed(const char *name) {
  char path[512];
  snprintf(path, sizeof path, BRANT_SOURCE_DIR "/tests/fuzz/corpus/plan/%s.json", name);
  return read_file(path);
}

static void the_tree(void **state) {
  (void)state;
  char *json = seed("join");
  const char *explain =
      "[{\"name\":\"PROJECTION\",\"children\":[{\"name\":\"COMPARISON_JOIN\",\"children\":[{\"name\":\"SEQ_SCAN "
      "\",\"children\":[],\"extra_info\":{\"Estimated Cardinality\":\"9\"}},{\"name\":\"SEQ_SCAN \",\"children\":[],"
      "\"extra_info\":{\"Estimated Cardinality\":\"~7\"}}],\"extra_info\":{\"Estimated "
      "Cardinality\":\"11\"}}],\"extra_info\":{}}]";
  br_error err = {0};
  br_plan *p = NULL;
  br_buf b = {0};
  assert_int_equal(br_plan_parse(json, explain, &p, &err), BR_OK);
  assert_int_equal(p->n_nodes, 4);
  const br_node *join = p->root->children[0];
  assert_int_equal(p->root->kind, BR_NODE_PROJECTION);
  assert_int_equal(join->kind, BR_NODE_JOIN);
  assert_int_equal(join->id, 1);
  assert_int_equal(join->children[1]->id, 3);
  assert_string_equal(join->children[1]->type, "LOGICAL_GET");
  assert_true(join->rows == 11 && join->children[0]->rows == 9 && join->children[1]->rows == 7);
  assert_true(p->root->rows == 11); /* DuckDB has none here: the child's */
  assert_int_equal(p->root->n_columns, 2);
  assert_int_equal(br_emit_type(p->root->types[0], &b, &err), BR_OK);
  assert_string_equal(br_buf_cstr(&b), "VARCHAR");
  assert_int_equal(join->n_columns, join->children[0]->n_columns + join->children[1]->n_columns);
  assert_true(join->binds[0].table == join->children[0]->binds[0].table);
  br_plan_free(p);
  /* A tree of another shape: no estimates at all. */
  assert_int_equal(
      br_plan_parse(json,
                    "[{\"name\":\"PROJECTION\",\"children\":[],\"extra_info\":{\"Estimated Cardinality\":\"3\"}}]", &p,
                    &err),
      BR_OK);
  assert_true(p->root->rows < 0 && p->root->children[0]->rows < 0);
  br_plan_free(p);
  br_buf_free(&b);
  free(json);
}

static void find_refs(const br_node *n, size_t *delims, size_t *ctes) {
  if (n->kind == BR_NODE_DELIM_GET) {
    assert_int_equal(n->source->kind, BR_NODE_DELIM_JOIN);
    assert_true(n->source->id < n->id);
    ++*delims;
  } else if (n->kind == BR_NODE_CTE_REF) {
    assert_true(n->source->kind == BR_NODE_CTE || n->source->kind == BR_NODE_RECURSIVE_CTE);
    ++*ctes;
  } else {
    assert_null(n->source);
  }
  for (size_t i = 0; i < n->n_columns; i++) assert_non_null(n->types[i]);
  for (size_t i = 0; i < n->n_children; i++) find_refs(n->children[i], delims, ctes);
}

static void references_are_tied(void **state) {
  (void)state;
  const char *names[] = {"mark", "single", "recursive"};
  size_t delims = 0, ctes = 0;
  for (size_t i = 0; i < 3; i++) {
    char *json = seed(names[i]);
    br_error err = {0};
    br_plan *p = NULL;
    assert_int_equal(br_plan_parse(json, NULL, &p, &err), BR_OK);
    find_refs(p->root, &delims, &ctes);
    br_plan_free(p);
    free(json);
  }
  assert_true(delims >= 2);
  assert_true(ctes >= 3);
}

static br_code outcome(const char *text, char *message) {
  br_error err = {0};
  br_plan *p = NULL;
  br_rel out;
  br_status s = br_plan_parse(text, NULL, &p, &err);
  if (s == BR_OK) {
    s = br_emit_tree(br_emit_new(p->arena, NULL), p->root, &out, &err);
    br_plan_free(p);
  }
  if (s != BR_OK) {
    assert_int_equal(s, err.code);
    assert_true(err.message[0] != 0);
    assert_true(s == BR_CORRUPT || s == BR_UNSUPPORTED);
  }
  if (message) snprintf(message, BR_ERROR_MESSAGE_BYTES, "%s", s == BR_OK ? "" : err.message);
  return (br_code)s;
}

static void refusals(void **state) {
  (void)state;
  const struct {
    const char *json;
    br_code code;
    const char *reason;
  } cases[] = {
      {"", BR_UNSUPPORTED, "BIT or BIGNUM"},
      {"{}", BR_CORRUPT, "plans"},
      {"[]", BR_CORRUPT, "plans"},
      {"{\"error\": true, \"error_type\": \"x\", \"error_message\": \"CSV is not there\"}", BR_UNSUPPORTED,
       "CSV is not"},
      {"{\"error\": false, \"plans\": [{}]}", BR_CORRUPT, "type"},
      {"{\"plans\": [{\"type\": \"LOGICAL_DUMMY_SCAN\", \"children\": [], \"table_index\": 0}, {}]}", BR_UNSUPPORTED,
       "one statement"},
      {"{\"plans\": [{\"type\": \"LOGICAL_INSERT\", \"children\": []}]}", BR_UNSUPPORTED, "LOGICAL_INSERT"},
      {"{\"plans\": [{\"type\": \"LOGICAL_FILTER\", \"children\": []}]}", BR_CORRUPT, "number of children"},
      {"{\"plans\": [{\"type\": \"LOGICAL_DELIM_GET\", \"children\": [], \"chunk_types\": []}]}", BR_CORRUPT,
       "DELIM_JOIN"},
      {"{\"plans\": [{\"type\": \"LOGICAL_CTE_REF\", \"children\": [], \"cte_index\": 1}]}", BR_CORRUPT, "not defined"},
      {"{\"plans\": [{\"type\": \"LOGICAL_PROJECTION\", \"table_index\": 1, \"expressions\": [{\"expression_class\": "
       "\"BOUND_PARAMETER\", \"type\": \"VALUE_PARAMETER\"}], \"children\": [{\"type\": \"LOGICAL_DUMMY_SCAN\"}]}]}",
       BR_UNSUPPORTED, "parameter"},
      {"{\"plans\": [{\"type\": \"LOGICAL_PROJECTION\", \"table_index\": 1, \"expressions\": [{\"expression_class\": "
       "\"BOUND_REF\", \"type\": \"BOUND_REF\", \"index\": 5}], \"children\": [{\"type\": \"LOGICAL_DUMMY_SCAN\"}]}]}",
       BR_CORRUPT, "column 5 of 1"},
      {"{\"plans\": [{\"type\": \"LOGICAL_PROJECTION\", \"table_index\": 1, \"expressions\": [{\"expression_class\": "
       "\"BOUND_FUNCTION\", \"name\": \"nextval\", \"children\": []}], \"children\": [{\"type\": "
       "\"LOGICAL_DUMMY_SCAN\"}]}]}",
       BR_UNSUPPORTED, "nextval"},
  };
  char message[BR_ERROR_MESSAGE_BYTES];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(outcome(cases[i].json, message), cases[i].code);
    if (!strstr(message, cases[i].reason)) fail_msg("%s\nsays: %s", cases[i].json, message);
  }
}

static void cut_at_every_byte(void **state) {
  (void)state;
  char *json = seed("scan_filter");
  for (size_t n = strlen(json); n-- > 1;) {
    json[n] = 0;
    br_code c = outcome(json, NULL);
    if (c != BR_CORRUPT) fail_msg("cut at %zu: %s", n, br_code_name(c));
  }
  free(json);
}

/* Replace the values of a tree one by one; `visit` counts down to the value that is replaced. */
static bool replace(json_t *j, long *visit, json_t *by) {
  const char *key;
  json_t *v;
  size_t i;
  void *next;
  if (json_is_object(j)) {
    json_object_foreach_safe(j, next, key, v) {
      if ((*visit)-- == 0) return json_object_set(j, key, by) == 0;
      if (replace(v, visit, by)) return true;
    }
  } else {
    json_array_foreach(j, i, v) {
      if ((*visit)-- == 0) return json_array_set(j, i, by) == 0;
      if (replace(v, visit, by)) return true;
    }
  }
  return false;
}

static void wrong_types_everywhere(void **state) {
  (void)state;
  const char *values[] = {"null", "\"x\"", "-1", "18446744073709551615", "[]", "{}", "true", "1.5", "[[{}]]"};
  glob_t g;
  size_t plans = 0;
  assert_int_equal(glob(BRANT_SOURCE_DIR "/tests/fuzz/corpus/plan/*.json", 0, NULL, &g), 0);
  for (size_t f = 0; f < g.gl_pathc; f++) {
    char *json = read_file(g.gl_pathv[f]);
    assert_int_equal(outcome(json, NULL), BR_OK);
    json_t *whole = parse(json);
    long n = 0;
    for (bool more = true; more; n++) {
      long visit = n;
      char *wrapped = br_asprintf("[%s]", values[n % (long)(sizeof values / sizeof *values)]);
      json_t *copy = json_deep_copy(whole), *holder = parse(wrapped);
      more = replace(copy, &visit, json_array_get(holder, 0));
      char *text = json_dumps(copy, JSON_COMPACT);
      outcome(text, NULL);
      free(text);
      free(wrapped);
      json_decref(holder);
      json_decref(copy);
    }
    plans += n > 10;
    json_decref(whole);
    free(json);
  }
  globfree(&g);
  assert_true(plans >= 15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dialect),           cmocka_unit_test(numbers_of_wrong_types), cmocka_unit_test(garbage),
      cmocka_unit_test(the_tree),          cmocka_unit_test(references_are_tied),    cmocka_unit_test(refusals),
      cmocka_unit_test(cut_at_every_byte), cmocka_unit_test(wrong_types_everywhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
