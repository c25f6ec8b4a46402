/* SPDX-License-Identifier: Apache-2.0
 * The datasets of a session by their names: a table function of DuckDB's here, and a view, for each. Order: check the name, put, drop; what
 * is left goes with the session. The caller's thread. Bounds: as many as the caller makes. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/dataset.h"
#include "coordinator/session.h"

br_dataset *br_dataset_find(const brant_session *s, const char *name) {
  for (size_t i = 0; i < s->n_datasets; i++)
    if (strcasecmp(s->datasets[i]->name, name) == 0) return s->datasets[i];
  return NULL;
}

br_status br_dataset_check_name(const brant_session *s, const char *name, br_error *err) {
  if (name == NULL || *name == 0) return br_fail(err, BR_INVALID, BR_BLAME_USER, "a table needs a name");
  if (br_dataset_find(s, name) != NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "there is a table %.200s already: drop it first", name);
  return BR_OK;
}

static br_status make_view(brant_session *s, const br_dataset *d, br_error *err) {
  br_buf sql = {0};
  br_buf_str(&sql, d->view != NULL ? "CREATE TEMP VIEW " : "CREATE VIEW ");
  br_buf_sql_ident(&sql, d->view != NULL ? d->view : d->name);
  br_buf_str(&sql, " AS SELECT * FROM dataset(");
  br_buf_sql_literal(&sql, d->name, strlen(d->name));
  br_buf_char(&sql, ')');
  br_status status = br_session_execute(s->db, br_buf_cstr(&sql), err);
  br_buf_free(&sql);
  return status;
}

static void drop_view(brant_session *s, const br_dataset *d) {
  br_error ignored;
  br_buf sql = {0};
  br_buf_str(&sql, d->view != NULL ? "DROP VIEW IF EXISTS temp." : "DROP VIEW IF EXISTS ");
  br_buf_sql_ident(&sql, d->view != NULL ? d->view : d->name);
  br_status status = br_session_execute(s->db, br_buf_cstr(&sql), &ignored);
  (void)status; /* a query of its own that runs still holds it: it has no rows any more, then */
  br_buf_free(&sql);
}

br_status br_dataset_put(brant_session *s, br_dataset *d, const br_engine_dataset *table, bool view, br_error *err) {
  br_status status = br_engine_dataset_put(s->engine, d->name, table, err);
  if (status == BR_OK && view) {
    status = make_view(s, d, err);
    if (status != BR_OK) br_engine_dataset_drop(s->engine, d->name);
  }
  if (status != BR_OK) {
    br_dataset_unref(d);
    return status;
  }
  br_grow((void **)&s->datasets, &s->cap_datasets, s->n_datasets, sizeof *s->datasets);
  s->datasets[s->n_datasets++] = d;
  s->has_local_tables = true; /* what can't be taken apart can read it only here */
  return BR_OK;
}

static void forget(brant_session *s, size_t i) {
  br_dataset *d = s->datasets[i];
  memmove(&s->datasets[i], &s->datasets[i + 1], (--s->n_datasets - i) * sizeof *s->datasets);
  drop_view(s, d);
  br_engine_dataset_drop(s->engine, d->name);
  if (s->driver != NULL) br_driver_withdraw(s->driver, d->id);
  br_dataset_unref(d);
}

void br_datasets_drop_all(brant_session *s) {
  while (s->n_datasets > 0) forget(s, s->n_datasets - 1);
}

bool br_datasets_drop(brant_session *s, const char *name) {
  for (size_t i = 0; i < s->n_datasets; i++) {
    if (strcasecmp(s->datasets[i]->name, name) != 0) continue;
    forget(s, i);
    return true;
  }
  return false;
}

int brant_drop_table(brant_session *s, const char *name, brant_error *err) {
  br_error e;
  if (br_datasets_drop(s, name)) return 0;
  br_fail(&e, BR_NOT_FOUND, BR_BLAME_USER, "there is no table %.200s that was registered or persisted", name);
  br_error_export(&e, err);
  return BR_NOT_FOUND;
}

br_status br_dataset_show(brant_session *s, const char *name, const char *view, br_error *err) {
  br_dataset *d = br_dataset_find(s, name);
  if (d == NULL) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "there is no dataset %s", name);
  d->view = br_strdup(view);
  return make_view(s, d, err);
}
