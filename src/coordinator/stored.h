/* SPDX-License-Identifier: Apache-2.0
 * INSERT … SELECT and CREATE TABLE … AS whose rows come from the workers: into a table of this process's DuckDB, by one statement of it,
 * or into a directory of Parquet files, by the commit of a COPY (sinks.h). */
#ifndef BRANT_COORDINATOR_STORED_H
#define BRANT_COORDINATOR_STORED_H

#include "coordinator/session.h"

/* A table: its SELECT is planned and, if it is to be distributed, started. *out NULL: DuckDB shall do all of it here. plan is the
 * caller's, with the query in it; it must stay until br_storing_free. */
typedef struct br_storing br_storing;
BR_MUST_USE br_status br_storing_start(brant_session *s, const char *sql, br_prepared *plan, br_storing **out,
                                       br_error *err);
/* Runs the statement over the rows: what it answers (a count, or RETURNING's rows). br_storing_free frees it. */
BR_MUST_USE br_status br_storing_run(br_storing *x, br_local_stream **out, br_error *err);
void br_storing_free(br_storing *x);

char *br_stored_select(
    const char *sql); /* the rows of such a statement, or of a COPY … TO; NULL: it is neither. Free it. */

/* A directory: the statement as a COPY; *out NULL: it is none of that. done: nothing is to be written (IF NOT EXISTS). */
BR_MUST_USE br_status br_stored_copy(brant_session *s, const char *sql, char **out, bool *done, br_error *err);

#endif
