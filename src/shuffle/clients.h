/* SPDX-License-Identifier: Apache-2.0
 * Flight connections of this process to other workers, shared by all readers on a loop. Loop thread only. */
#ifndef BRANT_SHUFFLE_CLIENTS_H
#define BRANT_SHUFFLE_CLIENTS_H

#include "flight/flight.h"

#define BR_CLIENT_IDLE_MS 30000u /* an unused connection is closed after this, at the latest twice this */

/* The connection to uri with this window a stream; made at the first use, and again after it broke. Given back by
 * br_client_put; may be in use by any number of readers at once. */
BR_MUST_USE br_status br_client_get(br_loop *l, const char *uri, const char *secret, uint32_t window_bytes,
                                    br_flight_client **out, br_error *err);
void br_client_put(br_loop *l, br_flight_client *c);
/* Close all connections of a loop: on its thread, or after br_loop_run returned and before br_loop_free. Readers with remote
 * sources must be gone. */
void br_clients_close(br_loop *l);
size_t br_clients_count(br_loop *l);

#endif
