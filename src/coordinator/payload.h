/* SPDX-License-Identifier: Apache-2.0
 * The content of a user's function (payload.c): counted references, any thread. */
#ifndef BRANT_COORDINATOR_PAYLOAD_H
#define BRANT_COORDINATOR_PAYLOAD_H

#include "flight/flight.h"

#define BR_FUNCTION_PAYLOAD_MOST_BYTES (1u << 30)
#define BR_FUNCTION_INLINE_MOST_BYTES (256u << 10) /* of what goes with the function's message to every worker */

typedef struct br_payload br_payload;
br_payload *br_payload_new(const void *data, size_t bytes); /* a copy */
br_payload *br_payload_ref(br_payload *p);
void br_payload_unref(br_payload *p); /* NULL is fine */
const void *br_payload_data(const br_payload *p);
size_t br_payload_bytes(const br_payload *p);
/* All of it in pieces; holds a reference. Loop thread. */
br_flight_source br_payload_source(br_payload *p);

#endif
