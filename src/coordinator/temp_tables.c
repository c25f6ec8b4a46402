/* SPDX-License-Identifier: Apache-2.0
 * CREATE TEMP TABLE x AS SELECT …: where the SELECT runs in stages its rows stay on the workers, as a dataset behind a temporary view; where it
 * runs in this process DuckDB makes its own temporary table, as ever. What DuckDB can do with tables alone (INSERT, UPDATE, ALTER, …) makes one
 * of such a dataset first. Statements are looked at token by token before DuckDB sees them: for it, the table is a view.
 * Order: one call a statement. The caller's thread. Bounds: as of datasets. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/handle.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

typedef struct create {
  bool replace, if_not_exists;
  char *name;
  const char *select; /* in the statement */
} create;

/* WITH [NO] DATA at the end is DuckDB's own business. */
static bool ends_with_data(const char *p) {
  const char *t = NULL, *last = NULL;
  size_t n, last_n = 0;
  while (br_token_next(&p, &t, &n))
    if (*t != ';') last = t, last_n = n;
  return last != NULL && br_token_is(last, last_n, "data");
}

/* CREATE [OR REPLACE] TEMP|TEMPORARY TABLE [IF NOT EXISTS] name AS …: true. Only the name is free. */
static bool parse_create(const char *sql, create *c) {
  const char *p = sql;
  *c = (create){0};
  if (!br_token_take(&p, "create")) return false;
  if (br_token_take(&p, "or") && !(c->replace = br_token_take(&p, "replace"))) return false;
  if (!br_token_take(&p, "temp") && !br_token_take(&p, "temporary")) return false;
  if (!br_token_take(&p, "table")) return false;
  if (br_token_take(&p, "if") && !(c->if_not_exists = br_token_take(&p, "not") && br_token_take(&p, "exists")))
    return false;
  if (!br_token_name(&p, &c->name)) return false;
  c->select = p;
  if (br_token_take(&p, "as") && !ends_with_data(p)) {
    c->select = p;
    return true;
  }
  free(c->name);
  c->name = NULL;
  return false;
}

static br_dataset *find_temp(const brant_session *s, const char *name) {
  for (size_t i = 0; i < s->n_datasets; i++)
    if (s->datasets[i]->view != NULL && strcasecmp(s->datasets[i]->view, name) == 0) return s->datasets[i];
  return NULL;
}

/* The kept temporary table that a token of the statement names; NULL: none. */
static br_dataset *named_in(const brant_session *s, const char *sql) {
  const char *p = sql, *t;
  size_t n;
  br_dataset *found = NULL;
  while (found == NULL && br_token_next(&p, &t, &n)) {
    if (*t == '\'') continue;
    char *name = br_token_unquote(t, n);
    found = find_temp(s, name);
    free(name);
  }
  return found;
}

/* A table of DuckDB's instead of the dataset, under the same name. */
static br_status make_local(brant_session *s, br_dataset *d, br_error *err) {
  br_buf b = {0};
  char *name = br_strdup(d->view), *id = br_strdup(d->name);
  br_dataset *held = br_dataset_ref(d);
  br_buf_str(&b, "CREATE TEMP TABLE __brant_local AS SELECT * FROM dataset(");
  br_buf_sql_literal(&b, id, strlen(id));
  br_buf_char(&b, ')');
  br_status status = br_session_execute(s->db, br_buf_cstr(&b), err);
  if (status == BR_OK) {
    br_datasets_drop(s, id);
    br_buf_clear(&b);
    br_buf_str(&b, "ALTER TABLE temp.__brant_local RENAME TO ");
    br_buf_sql_ident(&b, name);
    status = br_session_execute(s->db, br_buf_cstr(&b), err);
    s->has_local_tables = true;
  }
  br_buf_free(&b);
  br_dataset_unref(held);
  free(name);
  free(id);
  return status;
}

/* Is there a temporary table or view of that name? kind: "tables" or "views", or "" for none. */
static br_status exists(brant_session *s, const char *name, const char **kind, br_error *err) {
  br_buf b = {0};
  br_table t = {0};
  *kind = "";
  br_buf_str(&b, "SELECT 't' FROM duckdb_tables() WHERE temporary AND lower(table_name) = lower(");
  br_buf_sql_literal(&b, name, strlen(name));
  br_buf_str(
      &b, ") UNION ALL SELECT 'v' FROM duckdb_views() WHERE temporary AND NOT internal AND lower(view_name) = lower(");
  br_buf_sql_literal(&b, name, strlen(name));
  br_buf_char(&b, ')');
  br_status status = br_session_table(s->db, br_buf_cstr(&b), &t, err);
  if (status == BR_OK && t.rows > 0) *kind = *br_table_cell(&t, 0, 0) == 't' ? "table" : "view";
  br_table_free(&t);
  br_buf_free(&b);
  return status;
}

static br_status drop_table(brant_session *s, const char *name, br_error *err) {
  br_buf b = {0};
  br_buf_str(&b, "DROP TABLE temp.");
  br_buf_sql_ident(&b, name);
  br_status status = br_session_execute(s->db, br_buf_cstr(&b), err);
  br_buf_free(&b);
  return status;
}

/* done: the table is on the workers, or was there and may stay; else DuckDB has to make it. */
static br_status create_table(brant_session *s, const create *c, bool *done, br_error *err) {
  br_statement kind;
  const char *there;
  brant_query *q = NULL;
  if (s->options.distribute == BRANT_DISTRIBUTE_NEVER) return BR_OK;
  if (br_session_classify(s->db, c->select, &kind, err) != BR_OK || kind != BR_STMT_SELECT) {
    br_error_clear(err); /* DuckDB says what is wrong with it */
    return BR_OK;
  }
  BR_TRY(exists(s, c->name, &there, err));
  if (*there != 0 && c->if_not_exists) {
    *done = true;
    return BR_OK;
  }
  if (*there != 0 && !c->replace)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "there is a temporary %s \"%.200s\" already", there, c->name);
  if (strcmp(there, "view") == 0 && find_temp(s, c->name) == NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "\"%.200s\" is a view: a table can't replace it", c->name);
  BR_TRY(br_query_submit_distributed(s, c->select, &q, err));
  if (q == NULL) return BR_OK;
  char *id = br_asprintf("temp.%s.%llu", c->name, (unsigned long long)br_query_inside(q)->id);
  br_status status = br_dataset_keep_result(s, q, id, err);
  if (status == BR_OK) { /* the old one goes when the new one is whole */
    br_dataset *old = find_temp(s, c->name);
    if (old != NULL)
      br_datasets_drop(s, old->name);
    else if (*there != 0)
      status = drop_table(s, c->name, err);
    if (status == BR_OK) status = br_dataset_show(s, id, c->name, err);
    if (status != BR_OK) br_datasets_drop(s, id);
  }
  *done = true;
  free(id);
  brant_query_free(q);
  return status;
}

/* DROP TABLE [IF EXISTS] x of a kept one. */
static br_status drop_kept(brant_session *s, const char *sql, bool *done, br_error *err) {
  const char *p = sql;
  char *name = NULL;
  if (!br_token_take(&p, "drop")) return BR_OK;
  bool view = br_token_take(&p, "view");
  if (!view && !br_token_take(&p, "table")) return BR_OK;
  if (br_token_take(&p, "if") && !br_token_take(&p, "exists")) return BR_OK;
  if (!br_token_name(&p, &name)) return BR_OK;
  if (strcasecmp(name, "temp") == 0 && br_token_take(&p, ".")) {
    free(name);
    if (!br_token_name(&p, &name)) return BR_OK;
  }
  br_dataset *d = find_temp(s, name);
  br_status status = BR_OK;
  if (d != NULL && view)
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "\"%.200s\" is a temporary table, not a view: DROP TABLE", name);
  else if (d != NULL) {
    br_datasets_drop(s, d->name);
    *done = true;
  }
  free(name);
  return status;
}

/* Does the statement need a table where a kept one is a view? */
static bool needs_table(const char *sql) {
  static const char *const words[] = {"insert", "update", "delete", "truncate", "alter", "merge", "create"};
  const char *p = sql, *t;
  size_t n;
  if (br_token_take(&p, "copy")) return br_token_next(&p, &t, &n) && (br_token_take(&p, "from") || *p == '(');
  if (br_token_take(&p, "with")) { /* WITH … INSERT */
    for (; br_token_next(&p, &t, &n);)
      if (br_token_is(t, n, "insert") || br_token_is(t, n, "update") || br_token_is(t, n, "delete")) return true;
    return false;
  }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (br_token_take(&p, words[i])) return true;
  return false;
}

/* CREATE VIEW, MACRO and main tables may well read a kept one, or have its name: only these are about the table itself. */
static bool about_itself(const char *sql) {
  const char *p = sql;
  if (!br_token_take(&p, "create")) return true;
  if (br_token_take(&p, "unique") || br_token_take(&p, "index")) return true;
  if (br_token_take(&p, "or") && !br_token_take(&p, "replace")) return false;
  return (br_token_take(&p, "temp") || br_token_take(&p, "temporary")) &&
         (br_token_take(&p, "table") || br_token_take(&p, "view"));
}

/* A rollback brings back DuckDB's tables alone. */
static br_status refuse_in_transaction(const brant_session *s, const char *sql, br_error *err) {
  const char *p = sql;
  const br_dataset *d = named_in(s, sql);
  if (d == NULL || !(br_token_take(&p, "drop") || (needs_table(sql) && about_itself(sql)))) return BR_OK;
  return br_fail(
      err, BR_UNSUPPORTED, BR_BLAME_USER,
      "the temporary table \"%.200s\" lies on the workers, where a change could not be rolled back: change it "
      "outside of a transaction",
      d->view);
}

br_status br_temp_statement(brant_session *s, const char *sql, bool *done, br_error *err) {
  create c;
  const char *p = sql;
  *done = false;
  if (br_token_take(&p, "create") &&
      (br_token_take(&p, "temp") || br_token_take(&p, "temporary") || br_token_take(&p, "or")))
    s->has_temp = true;
  if (s->in_transaction) return refuse_in_transaction(s, sql, err); /* else they are DuckDB's own */
  if (parse_create(sql, &c)) {
    br_status status = create_table(s, &c, done, err);
    free(c.name);
    if (status != BR_OK || *done) return status;
  }
  if (named_in(s, sql) == NULL) return BR_OK;
  BR_TRY(drop_kept(s, sql, done, err));
  if (*done || !needs_table(sql) || !about_itself(sql)) return BR_OK;
  for (br_dataset *d; (d = named_in(s, sql)) != NULL;) BR_TRY(make_local(s, d, err));
  return BR_OK;
}
