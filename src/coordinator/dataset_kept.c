/* SPDX-License-Identifier: Apache-2.0
 * Results that stay on the workers as tables: brant_query_persist, and for temp_tables.c. Order: submit, persist, queries, drop. The caller's
 * thread. Bounds: none here; the outputs are in the workers' stores. */
#include <stdlib.h>

#include "base/mem.h"
#include "coordinator/handle.h"
#include "coordinator/session.h"

static char **unique_names(const br_query *q) {
  char **out = br_calloc(q->n_columns + 1, sizeof *out);
  for (size_t i = 0; i < q->n_columns; i++) out[i] = br_dataset_column(q->names[i], i, (const char *const *)out, i);
  return out;
}

static br_status describe_result(brant_session *s, br_dataset *d, br_error *err) {
  br_query *q = d->run;
  const br_stage_run *last = &q->runs[q->n_runs - 1];
  d->stage = (uint32_t)q->n_runs - 1;
  d->types = br_calloc(last->plan->n_columns + 1, sizeof *d->types);
  for (; d->n_columns < last->plan->n_columns; d->n_columns++)
    d->types[d->n_columns] = br_strdup(last->plan->types[d->n_columns]);
  d->n_parts = last->n_tasks;
  d->part_rows = br_calloc(d->n_parts + 1u, sizeof *d->part_rows);
  d->part_bytes = br_calloc(d->n_parts + 1u, sizeof *d->part_bytes);
  pthread_mutex_lock(&q->lock);
  for (uint32_t i = 0; i < d->n_parts; i++) {
    d->rows += d->part_rows[i] = last->tasks[i].rows_out;
    d->bytes += d->part_bytes[i] = last->tasks[i].bytes_out;
  }
  pthread_mutex_unlock(&q->lock);
  char **names = unique_names(q);
  br_status status = br_session_schema(s->db, (const char *const *)d->types, (const char *const *)names, d->n_columns,
                                       &d->schema, err);
  for (size_t i = 0; i < q->n_columns; i++) free(names[i]);
  free(names);
  return status;
}

static br_status persist(brant_session *s, brant_query *query, const char *name, bool view, br_error *err) {
  br_query *q = br_query_inside(query);
  BR_TRY(br_dataset_check_name(s, name, err));
  br_driver_keep_result(s->driver, q);
  BR_TRY(br_query_wait_result(query, err));
  br_dataset *d = br_dataset_new(name, q->id);
  br_query_hold(query);
  d->held = query;
  d->let_go = brant_query_free;
  d->run = q;
  br_status status = describe_result(s, d, err);
  if (status == BR_OK) return br_dataset_publish(s, d, view, err);
  br_dataset_unref(d);
  return status;
}

int brant_query_persist(brant_query *query, const char *name, brant_error *err) {
  brant_session *s = br_query_session(query);
  struct ArrowArrayStream stream;
  br_error e;
  br_error_clear(&e);
  if (br_query_inside(query) == NULL) { /* it runs in this process: its rows are given like any others */
    br_status given = br_query_stored_stream(query, &stream, &e);
    if (given == BR_OK) return brant_register_arrow(s, name, &stream, err);
    br_error_export(&e, err);
    return given;
  }
  br_status status = br_query_take(query, &e);
  if (status == BR_OK) status = persist(s, query, name, true, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

br_status br_dataset_keep_result(brant_session *s, brant_query *q, const char *name, br_error *err) {
  BR_TRY(br_query_take(q, err));
  return persist(s, q, name, false, err);
}
