/* SPDX-License-Identifier: Apache-2.0
 * Event stream. One mutex orders events and guards the list of subscribers; they are called under it, so that each sees
 * seq grow by one. Bound: 16 subscribers. */
#include "observe/events.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"

#define EVENT_VERSION 1
#define MAX_SUBSCRIBERS 16

struct br_events {
  pthread_mutex_t lock;
  uint64_t seq;
  _Atomic int n;
  struct {
    br_event_sink fn;
    void *arg;
  } subs[MAX_SUBSCRIBERS];
};

br_events *br_events_new(void) {
  br_events *e = br_calloc(1, sizeof *e);
  pthread_mutex_init(&e->lock, NULL);
  return e;
}

void br_events_free(br_events *e) {
  if (e == NULL) return;
  pthread_mutex_destroy(&e->lock);
  free(e);
}

void br_events_subscribe(br_events *e, br_event_sink fn, void *arg) {
  pthread_mutex_lock(&e->lock);
  if (e->n < MAX_SUBSCRIBERS) {
    e->subs[e->n].fn = fn;
    e->subs[e->n].arg = arg;
    e->n++;
  }
  pthread_mutex_unlock(&e->lock);
}

void br_events_mute(br_events *e) {
  pthread_mutex_lock(&e->lock);
  e->n = 0;
  pthread_mutex_unlock(&e->lock);
}

void br_events_emit(br_events *e, const char *type, const char *fmt, ...) {
  if (e->n == 0) return;
  json_t *fields = NULL;
  if (fmt != NULL) {
    json_error_t why;
    va_list ap;
    va_start(ap, fmt);
    fields = json_vpack_ex(&why, 0, fmt, ap);
    va_end(ap);
    if (fields == NULL) br_log(BR_LOG_WARN, "event %s could not be built: %s", type, why.text);
  }
  pthread_mutex_lock(&e->lock);
  json_t *all =
      json_pack("{s:i, s:s, s:I, s:I, s:I}", "version", EVENT_VERSION, "type", type, "seq", (json_int_t)++e->seq,
                "wall_us", (json_int_t)br_wall_us(), "mono_us", (json_int_t)br_now_us());
  if (fields != NULL) json_object_update(all, fields);
  char *text = json_dumps(all, JSON_COMPACT);
  for (int i = 0; i < e->n && text != NULL; i++) e->subs[i].fn(e->subs[i].arg, text);
  pthread_mutex_unlock(&e->lock);
  free(text);
  json_decref(all);
  json_decref(fields);
}
