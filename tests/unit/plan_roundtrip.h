/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of plan/: plan a text with DuckDB, write the plan back as SQL, run both, compare types and rows. Rows are
 * compared as text, as multisets, numbers with a fraction to nine digits (sums of doubles depend on their order).
 */
#ifndef BRANT_TESTS_PLAN_ROUNDTRIP_H
#define BRANT_TESTS_PLAN_ROUNDTRIP_H

#include "base/util.h"
#include "plan/decompile/decompile.h"
#include <duckdb.h>
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RT_OPTIMIZERS_OFF                                                                                          \
  "SET disabled_optimizers='column_lifetime,compressed_materialization,late_materialization,join_filter_pushdown," \
  "common_aggregate,top_n_window_elimination,window_self_join,in_clause'"

/* A generator out of the test environment; free it. NULL: it isn't there. */
static inline char *rt_extension(const char *name) {
  glob_t g;
  char *path = NULL;
  char *pattern = br_asprintf(BRANT_DEPS_DIR
                              "/venv/lib/python3*/site-packages/duckdb_extension_%s/extensions/*/"
                              "%s.duckdb_extension",
                              name, name);
  if (!glob(pattern, 0, NULL, &g)) path = br_strdup(g.gl_pathv[0]);
  globfree(&g);
  free(pattern);
  return path;
}

typedef struct rt_rows {
  char **v; /* one text a row */
  size_t n, cap;
} rt_rows;

static inline void rt_rows_free(rt_rows *r) {
  for (size_t i = 0; i < r->n; i++) free(r->v[i]);
  free(r->v);
  *r = (rt_rows){0};
}

static inline void rt_rows_add(rt_rows *r, char *text) {
  br_grow((void **)&r->v, &r->cap, r->n, sizeof *r->v);
  r->v[r->n++] = text;
}

static inline char *rt_first_line(duckdb_result *res) {
  const char *text = duckdb_result_error(res) ? duckdb_result_error(res) : "no error text";
  return br_strndup(text, strcspn(text, "\n"));
}

/* One column of a result as texts. False: the error's text is in *why (free it). */
static inline bool rt_column(duckdb_connection c, const char *sql, size_t column, rt_rows *out, char **why) {
  duckdb_result res;
  if (duckdb_query(c, sql, &res) != DuckDBSuccess) {
    *why = rt_first_line(&res);
    duckdb_destroy_result(&res);
    return false;
  }
  for (duckdb_data_chunk chunk; (chunk = duckdb_fetch_chunk(res)) != NULL; duckdb_destroy_data_chunk(&chunk)) {
    duckdb_vector v = duckdb_data_chunk_get_vector(chunk, column);
    duckdb_string_t *s = duckdb_vector_get_data(v);
    uint64_t *valid = duckdb_vector_get_validity(v);
    for (idx_t i = 0; i < duckdb_data_chunk_get_size(chunk); i++) {
      bool set = !valid || duckdb_validity_row_is_valid(valid, i);
      rt_rows_add(out, set ? br_strndup(duckdb_string_t_data(&s[i]), duckdb_string_t_length(s[i])) : br_strdup("NULL"));
    }
  }
  duckdb_destroy_result(&res);
  return true;
}

static inline bool rt_exec(duckdb_connection c, const char *sql, char **why) {
  duckdb_result res;
  bool ok = duckdb_query(c, sql, &res) == DuckDBSuccess;
  if (!ok) *why = rt_first_line(&res);
  duckdb_destroy_result(&res);
  return ok;
}

/* json_serialize_plan and, if wanted, EXPLAIN's tree. NULL: *why. */
static inline char *rt_plan(duckdb_connection c, const char *sql, char **explain, char **why) {
  rt_rows r = {0}, x = {0};
  br_buf q = {0};
  char *json = NULL;
  if (!rt_exec(c, RT_OPTIMIZERS_OFF, why)) return NULL;
  br_buf_str(&q, "SELECT json_serialize_plan(");
  br_buf_sql_literal(&q, sql, strlen(sql));
  br_buf_str(&q, ", optimize := true)::VARCHAR");
  if (rt_column(c, br_buf_cstr(&q), 0, &r, why) && r.n == 1) json = br_strdup(r.v[0]);
  if (json && explain) {
    char *ignored = NULL;
    br_buf_clear(&q);
    br_buf_printf(&q, "EXPLAIN (FORMAT json) %s", sql);
    if (!rt_exec(c, "SET explain_output='optimized_only'", &ignored)) free(ignored);
    ignored = NULL;
    *explain = rt_column(c, br_buf_cstr(&q), 1, &x, &ignored) && x.n ? br_strdup(x.v[0]) : NULL;
    free(ignored);
  }
  rt_rows_free(&r);
  rt_rows_free(&x);
  br_buf_free(&q);
  char *ignored = NULL;
  if (!rt_exec(c, "RESET disabled_optimizers", &ignored)) free(ignored);
  return json;
}

/* Numbers with a fraction or an exponent, to nine digits. */
static inline char *rt_normal(const char *s) {
  br_buf b = {0};
  while (*s) {
    size_t n = strspn(s, "0123456789.");
    if (!strncmp(s, "-nan", 4)) s++; /* the sign of NaN is not in the plan */
    if (!n || !isdigit((unsigned char)*s)) {
      br_buf_char(&b, *s++);
      continue;
    }
    if (s[n] == 'e' && (isdigit((unsigned char)s[n + 1]) ||
                        ((s[n + 1] == '-' || s[n + 1] == '+') && isdigit((unsigned char)s[n + 2]))))
      n += 2 + strspn(s + n + 2, "0123456789");
    char *end = NULL;
    char *text = br_strndup(s, n);
    double d = strtod(text, &end);
    if (*end || !strpbrk(text, ".e"))
      br_buf_str(&b, text);
    else
      br_buf_printf(&b, "%.9g", d);
    free(text);
    s += n;
  }
  br_buf_reserve(&b, 1);
  return br_buf_take(&b);
}

static inline int rt_compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Types and rows of one text. */
static inline bool rt_run(duckdb_connection c, const char *sql, bool ordered, rt_rows *types, rt_rows *rows,
                          char **why) {
  br_buf q = {0};
  bool ok;
  br_buf_printf(&q, "DESCRIBE FROM (%s\n)", sql);
  ok = rt_column(c, br_buf_cstr(&q), 1, types, why);
  if (ok) {
    br_buf_clear(&q);
    br_buf_printf(&q, "SELECT x::VARCHAR FROM (%s\n) x(", sql);
    for (size_t i = 0; i < types->n; i++) br_buf_printf(&q, "%sc%zu", i ? ", " : "", i);
    br_buf_str(&q, ")");
    ok = rt_column(c, br_buf_cstr(&q), 0, rows, why);
  }
  br_buf_free(&q);
  for (size_t i = 0; i < rows->n; i++) {
    char *text = rt_normal(rows->v[i]);
    free(rows->v[i]);
    rows->v[i] = text;
  }
  if (!ordered && rows->n) qsort(rows->v, rows->n, sizeof *rows->v, rt_compare);
  return ok;
}

typedef struct rt_case {
  const char *sql;
  bool ordered;        /* rows in the same order */
  bool shape;          /* types and number of rows only: the values are random */
  bool fails;          /* both fail when they run */
  const char *refused; /* not NULL: BR_UNSUPPORTED, and this stands in the message */
} rt_case;

static inline bool rt_say(const rt_case *t, const char *emitted, const char *fmt, const char *a, const char *b) {
  fprintf(stderr, "\n--- %s\n", t->sql);
  fprintf(stderr, fmt, a ? a : "", b ? b : "");
  if (emitted) fprintf(stderr, "\n=> %s\n", emitted);
  return false;
}

static inline bool rt_same(const rt_case *t, const char *emitted, const rt_rows *a, const rt_rows *b,
                           const char *what) {
  char left[64], right[64];
  snprintf(left, sizeof left, "%zu %s", a->n, what);
  snprintf(right, sizeof right, "%zu", b->n);
  if (a->n != b->n) return rt_say(t, emitted, "%s before, %s after", left, right);
  if (t->shape && !strcmp(what, "rows")) return true;
  for (size_t i = 0; i < a->n; i++)
    if (strcmp(a->v[i], b->v[i]) != 0) return rt_say(t, emitted, "differs:\n   %s\n   %s", a->v[i], b->v[i]);
  return true;
}

static inline bool rt_compare_texts(duckdb_connection c, const rt_case *t, const char *emitted) {
  rt_rows types[2] = {{0}}, rows[2] = {{0}};
  char *why[2] = {NULL, NULL};
  bool a = rt_run(c, t->sql, t->ordered, &types[0], &rows[0], &why[0]);
  bool b = rt_run(c, emitted, t->ordered, &types[1], &rows[1], &why[1]);
  bool ok;
  if (t->fails)
    ok = (!a && !b) || rt_say(t, emitted, "should fail both: %s | %s", why[0], why[1]);
  else if (!a || !b)
    ok = rt_say(t, emitted, "fails: %s | %s", why[0], why[1]);
  else
    ok = rt_same(t, emitted, &types[0], &types[1], "types") && rt_same(t, emitted, &rows[0], &rows[1], "rows");
  for (int i = 0; i < 2; i++) {
    rt_rows_free(&types[i]);
    rt_rows_free(&rows[i]);
    free(why[i]);
  }
  return ok;
}

/* Each column's type is known and is the right one. */
static inline bool rt_types_known(duckdb_connection c, const rt_case *t, const br_node *root) {
  rt_rows described = {0};
  br_buf q = {0}, b = {0};
  br_error err = {0};
  char *why = NULL;
  bool ok = true;
  br_buf_printf(&q, "DESCRIBE FROM (%s\n)", t->sql);
  if (rt_column(c, br_buf_cstr(&q), 1, &described, &why)) {
    if (described.n != root->n_columns) ok = rt_say(t, NULL, "%s%s", "number of columns", "");
    for (size_t i = 0; ok && i < described.n; i++) {
      br_buf_clear(&b);
      if (!root->types[i]) ok = rt_say(t, NULL, "a column's type is unknown: %s%s", described.v[i], "");
      if (ok && br_emit_type(root->types[i], &b, &err) == BR_OK && !strstr(described.v[i], "ENUM") &&
          strlen(br_buf_cstr(&b)) < 20 && strcmp(br_buf_cstr(&b), described.v[i]) != 0 && !strchr(br_buf_cstr(&b), '"'))
        ok = rt_say(t, NULL, "type %s, should be %s", br_buf_cstr(&b), described.v[i]);
    }
  }
  free(why);
  rt_rows_free(&described);
  br_buf_free(&q);
  br_buf_free(&b);
  return ok;
}

static inline bool rt_check(duckdb_connection c, const rt_case *t) {
  br_error err = {0};
  br_plan *p = NULL;
  br_rel rel = {0};
  char *why = NULL, *explain = NULL, *json = rt_plan(c, t->sql, &explain, &why);
  bool ok = false;
  br_status status;
  if (!json) {
    ok = rt_say(t, NULL, "can't be planned: %s%s", why, NULL);
    goto done;
  }
  status = br_plan_parse(json, explain, &p, &err);
  if (status == BR_OK) status = br_emit_tree(br_emit_new(p->arena, NULL), p->root, &rel, &err);
  if (t->refused) {
    ok = (status == BR_UNSUPPORTED && strstr(err.message, t->refused)) ||
         rt_say(t, rel.sql, "should be refused because of \"%s\", says: %s", t->refused, err.message);
  } else if (status != BR_OK) {
    ok = rt_say(t, NULL, "%s: %s", br_code_name((br_code)status), err.message);
  } else {
    if (getenv("BRANT_ROUNDTRIP_PRINT")) fprintf(stderr, "%s\n", rel.sql);
    if (explain && p->root->rows < 0) fprintf(stderr, "(no estimates: %.80s)\n", t->sql);
    ok = rt_types_known(c, t, p->root) && rt_compare_texts(c, t, rel.sql);
  }
done:
  br_plan_free(p);
  free(json);
  free(explain);
  free(why);
  return ok;
}

#endif
