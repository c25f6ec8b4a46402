/* SPDX-License-Identifier: Apache-2.0
 * The deadline of a query, wherever it runs: a thread that waits for it, as nothing else may be looking. */
#ifndef BRANT_COORDINATOR_WATCHDOG_H
#define BRANT_COORDINATOR_WATCHDOG_H

#include "base/status.h"

typedef struct br_watchdog br_watchdog;
/* fire(arg) after `ms`, on a thread of its own, and again each BR_WATCHDOG_AGAIN_MS until it is called off. */
#define BR_WATCHDOG_AGAIN_MS 50
BR_MUST_USE br_status br_watchdog_start(uint64_t ms, void (*fire)(void *arg), void *arg, br_watchdog **out,
                                        br_error *err);
void br_watchdog_off(br_watchdog *w);  /* any thread, also inside fire; it does not fire any more, soon. NULL is fine */
void br_watchdog_free(br_watchdog *w); /* not inside fire; none is under way afterwards. NULL is fine */

#endif
