/* SPDX-License-Identifier: Apache-2.0
 * Users' functions of a session: what brant_register_function gave. In the planning connection each is a scalar function that only errors
 * (BR_UDF_PREFIX and its id), and a temporary macro of the name that people write, which can be replaced and dropped. The session's thread. */
#ifndef BRANT_COORDINATOR_FUNCTIONS_H
#define BRANT_COORDINATOR_FUNCTIONS_H

#include "brant.h"
#include "coordinator/payload.h"
#include "coordinator/query.h"
#include "engine/engine.h"

#define BR_FUNCTION_NAME_MOST_BYTES 128u
#define BR_FUNCTION_MOST_ARGUMENTS 32u
#define BR_FUNCTIONS_MOST 10000u /* registered in the life of a session: DuckDB keeps each name */
#define BR_FUNCTION_MOST_PROCESSES 4096u

struct brant_session;
typedef struct br_functions br_functions;
br_functions *br_functions_new(void);
void br_functions_free(br_functions *f); /* after the engine */
/* How many calls were bound in texts so far: a difference says that a text calls one. */
uint64_t br_functions_bound(const br_functions *f);
/* Those that the plan may call, for br_plan_steps and br_distribute; borrowed until the next registration. */
const br_udf *br_functions_all(br_functions *f, size_t *n);
/* The query calls these: it keeps their options, and the workers get to know them. */
BR_MUST_USE br_status br_functions_use(struct brant_session *s, br_query *q, const br_stages *stages, br_error *err);

#endif
