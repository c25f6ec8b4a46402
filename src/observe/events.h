/* SPDX-License-Identifier: Apache-2.0
 * The one event stream: what happens is told once, as a JSON object, to every subscriber (docs/events.md has the schema).
 * Thread-safe. Building an event costs nothing when nobody listens. */
#ifndef BRANT_OBSERVE_EVENTS_H
#define BRANT_OBSERVE_EVENTS_H

#include "base/status.h"
#include <jansson.h>

typedef struct br_events br_events;
typedef void (*br_event_sink)(void *arg, const char *json);

br_events *br_events_new(void);
void br_events_free(br_events *e);
void br_events_subscribe(br_events *e, br_event_sink fn, void *arg);
void br_events_mute(br_events *e); /* no subscriber is called any more once this has returned; not from within one */
/* type: "task_done"; then pairs in the manner of jansson's json_pack: br_events_emit(e, "task_done", "{s:I, s:s}", "query",
 * (json_int_t)q, "state", "committed"). version, type, seq, wall_us and mono_us are added. fmt NULL: no fields. */
void br_events_emit(br_events *e, const char *type, const char *fmt, ...);

#endif
