/* SPDX-License-Identifier: Apache-2.0
 * Tables that are neither files nor DuckDB's: rows that the caller gave (they lie in the session's own store, and workers read them
 * at the coordinator's port), or the result of a query that stays on the workers. Both are partitions that have ids, as outputs of
 * stages have: (id, stage, part). Reference-counted: the session by its name, and each query that reads it. */
#ifndef BRANT_COORDINATOR_DATASET_H
#define BRANT_COORDINATOR_DATASET_H

#include "brant.h"
#include "coordinator/query.h"
#include "shuffle/shuffle.h"

#define BR_COORDINATOR_WORKER UINT32_MAX /* the coordinator's number in output tables; 0 stands for none */

typedef struct br_dataset {
  _Atomic int refs;
  char *name;
  char *view;  /* a temporary one of another name, of CREATE TEMP TABLE; NULL: there is a view `name` */
  uint64_t id; /* of a query: the one that made it, or one of its own */
  uint32_t stage;
  br_schema *schema; /* the caller's names */
  char **types;      /* SQL types, as stored */
  size_t n_columns;
  uint32_t n_parts;
  uint64_t *part_rows, *part_bytes;
  uint64_t rows, bytes;
  br_store *store;   /* of the session; NULL: the parts are on workers, */
  brant_query *held; /* of this query, which is kept and makes them again when a worker is lost */
  br_query *run;     /* its inside; borrowed */
} br_dataset;

br_dataset *br_dataset_ref(br_dataset *d);
void br_dataset_unref(br_dataset *d);
/* Of its output table, now. Takes the kept query's lock. */
uint32_t br_dataset_version(br_dataset *d);
/* The worker that has each part now, [n_parts]; 0: no worker, or none yet. Takes the kept query's lock. */
void br_dataset_workers(br_dataset *d, uint32_t *out);
/* The dataset of that name in the session, without a reference; NULL: none. */
br_dataset *br_dataset_find(const brant_session *s, const char *name);
void br_datasets_drop_all(brant_session *s);
bool br_datasets_drop(brant_session *s, const char *name); /* false: there is none */
/* Wait for the query's result and keep it as a dataset without a view; then show it as a temporary view. */
BR_MUST_USE br_status br_dataset_keep_result(brant_session *s, brant_query *q, const char *name, br_error *err);
BR_MUST_USE br_status br_dataset_show(brant_session *s, const char *name, const char *view, br_error *err);

/* driver_datasets.c. Any thread: tell the workers where it is, before the query that reads it is submitted; forget it. */
struct br_driver;
void br_driver_offer(struct br_driver *d, br_dataset *dataset);
void br_driver_withdraw(struct br_driver *d, uint64_t id);
/* Any thread: the query's result outputs are told to all workers from now on. */
void br_driver_keep_result(struct br_driver *d, br_query *q);

/* api.c: the inside of a query that runs distributed, NULL if it does not; and a reference on it. */
br_query *br_query_inside(brant_query *q);
brant_session *br_query_session(brant_query *q);
BR_MUST_USE br_status br_query_take(brant_query *q, br_error *err); /* the result goes nowhere else */
/* Its rows in the types that DuckDB has, where plain Arrow has none (HUGEINT). */
BR_MUST_USE br_status br_query_stored_stream(brant_query *q, struct ArrowArrayStream *out, br_error *err);
/* brant_query_stream with enums as texts: for readers that know no dictionaries. */
BR_MUST_USE br_status br_query_text_stream(brant_query *q, struct ArrowArrayStream *out, br_error *err);
BR_MUST_USE br_status br_query_wait_result(brant_query *q, br_error *err);
void br_query_hold(brant_query *q);
/* A SELECT, started if it runs on workers; *out NULL: it does not. */
BR_MUST_USE br_status br_query_submit_distributed(brant_session *s, const char *sql, brant_query **out, br_error *err);

#endif
