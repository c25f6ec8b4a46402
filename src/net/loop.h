/* SPDX-License-Identifier: Apache-2.0
 * The event loop of a process: libuv, plus a thread-safe way in. One thread runs it; everything in net/ and flight/ is
 * called on that thread unless its comment says otherwise. */
#ifndef BRANT_NET_LOOP_H
#define BRANT_NET_LOOP_H

#include "base/status.h"
#include <uv.h>

typedef struct br_loop br_loop;
BR_MUST_USE br_status br_loop_new(br_loop **out, br_error *err);
void br_loop_run(br_loop *l);  /* until br_loop_stop */
void br_loop_stop(br_loop *l); /* any thread */
void br_loop_free(br_loop *l); /* after run returned: closes what is left, runs pending posts */
uv_loop_t *br_loop_uv(br_loop *l);
bool br_loop_on_thread(const br_loop *l);
/* Memory to receive into, shared by all connections of the loop: valid until the callback that asked for it returns. */
#define BR_LOOP_SCRATCH_BYTES (256u << 10)
void *br_loop_scratch(br_loop *l);
/* Run fn(arg) on the loop thread, soon, in order. Any thread. */
void br_loop_post(br_loop *l, void (*fn)(void *arg), void *arg);
/* Run work(arg) on a pool thread, then done(arg) on the loop thread. Loop thread only. */
void br_loop_work(br_loop *l, void (*work)(void *arg), void (*done)(void *arg), void *arg);

typedef struct br_timer br_timer;
br_timer *br_timer_start(br_loop *l, uint64_t first_ms, uint64_t repeat_ms, void (*fn)(void *arg), void *arg);
void br_timer_stop(br_timer *t); /* frees it; NULL is fine; allowed inside fn */

#endif
