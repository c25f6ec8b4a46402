/* SPDX-License-Identifier: Apache-2.0
 * COPY … TO: a query whose rows go to files that appear by one commit (src/sink/), and which answers with their list. */
#ifndef BRANT_COORDINATOR_SINKS_H
#define BRANT_COORDINATOR_SINKS_H

#include "coordinator/session.h"

typedef struct br_copying br_copying;
/* Plans it and, if it is distributed, lets it run. *out NULL: not ours (copy_text.h), DuckDB shall do it. plan is the caller's, with
 * the query in it; it must stay until br_copying_free. */
BR_MUST_USE br_status br_copying_start(brant_session *s, const char *sql, br_prepared *plan, br_copying **out,
                                       br_error *err);
br_schema *br_copying_schema(br_copying *c); /* of the list; borrowed */
BR_MUST_USE br_status br_copying_count(br_copying *c,
                                       br_error *err); /* it answers with the number of rows, as INSERT does */
/* The first call does the work up to the commit; then the list, batch by batch, *out NULL at its end. */
BR_MUST_USE br_status br_copying_next(br_copying *c, br_batch **out, br_error *err);
void br_copying_cancel(br_copying *c);         /* any thread; after the commit has begun it comes too late */
bool br_copying_over(const br_copying *c);     /* its commit is done: no cancel and no deadline changes that */
uint64_t br_copying_rows(const br_copying *c); /* written; 0 before the commit. Any thread */
void br_copying_free(br_copying *c);           /* not committed: nothing is left of it. NULL is fine */
/* The columns as the user named and typed them, over rows as the last stage stores them. */
void br_sink_columns(const br_query *q, const br_stage *last, br_buf *b);

#endif
