/* SPDX-License-Identifier: Apache-2.0
 * Tables that are neither files nor DuckDB's: rows that the caller gave (they lie in the session's own store, and workers read them
 * at the coordinator's port), or the result of a query that stays on the workers. Both are partitions that have ids, as outputs of
 * stages have: (id, stage, part). Reference-counted: the session by its name, and each query that reads it. */
#ifndef BRANT_COORDINATOR_DATASET_H
#define BRANT_COORDINATOR_DATASET_H

#include "brant.h"
#include "coordinator/query.h"
#include "shuffle/shuffle.h"

struct br_engine_dataset;

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
  void (*let_go)(brant_query *held);
  br_query *run; /* its inside; borrowed */
} br_dataset;

br_dataset *br_dataset_new(const char *name, uint64_t id);
br_dataset *br_dataset_ref(br_dataset *d);
void br_dataset_unref(br_dataset *d);
/* Of its output table, now. Takes the kept query's lock. */
uint32_t br_dataset_version(br_dataset *d);
/* The worker that has each part now, [n_parts]; 0: no worker, or none yet. Takes the kept query's lock. */
void br_dataset_workers(br_dataset *d, uint32_t *out);
/* A name that none of those before has, by which DuckDB can tell the columns apart. Free it. */
char *br_dataset_column(const char *name, size_t at, const char *const *before, size_t n);

/* dataset_names.c. The dataset of that name in the session, without a reference; NULL: none. */
br_dataset *br_dataset_find(const brant_session *s, const char *name);
BR_MUST_USE br_status br_dataset_check_name(const brant_session *s, const char *name, br_error *err);
/* DuckDB here reads it by `table`. The session takes the reference, also on failure. view: it is a table by its own name, too. */
BR_MUST_USE br_status br_dataset_put(brant_session *s, br_dataset *d, const struct br_engine_dataset *table, bool view,
                                     br_error *err);
BR_MUST_USE br_status br_dataset_show(brant_session *s, const char *name, const char *view,
                                      br_error *err); /* as a temporary view */
void br_datasets_drop_all(brant_session *s);
bool br_datasets_drop(brant_session *s, const char *name); /* false: there is none */

/* dataset_read.c: br_dataset_put, with its rows. */
BR_MUST_USE br_status br_dataset_publish(brant_session *s, br_dataset *d, bool view, br_error *err);

/* dataset_kept.c: wait for the query's result and keep it as a dataset without a view. */
BR_MUST_USE br_status br_dataset_keep_result(brant_session *s, brant_query *q, const char *name, br_error *err);

/* driver_datasets.c. Any thread: tell the workers where it is, before the query that reads it is submitted; forget it. */
struct br_driver;
void br_driver_offer(struct br_driver *d, br_dataset *dataset);
void br_driver_withdraw(struct br_driver *d, uint64_t id);
/* Any thread: the query's result outputs are told to all workers from now on. */
void br_driver_keep_result(struct br_driver *d, br_query *q);

#endif
