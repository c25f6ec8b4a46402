/* SPDX-License-Identifier: Apache-2.0
 * The content of a user's function (its payload), kept once for the session, the driver and those who read it. A small one goes to
 * workers with the function's message; they read a larger one at the coordinator's port, piece by piece as they take it.
 * Any thread makes and keeps it; the loop thread serves it. Bounds: BR_FUNCTION_PAYLOAD_MOST_BYTES; what is on its way to a worker
 * is not copied. */
#include "coordinator/payload.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define PIECE_BYTES (1u << 20)

struct br_payload {
  _Atomic uint32_t refs;
  size_t bytes;
  char *data;
};

br_payload *br_payload_new(const void *data, size_t bytes) {
  br_payload *p = br_calloc(1, sizeof *p);
  p->refs = 1;
  p->bytes = bytes;
  p->data = br_malloc(bytes + 1);
  if (bytes > 0) memcpy(p->data, data, bytes);
  return p;
}

br_payload *br_payload_ref(br_payload *p) {
  atomic_fetch_add(&p->refs, 1);
  return p;
}

void br_payload_unref(br_payload *p) {
  if (p == NULL || atomic_fetch_sub(&p->refs, 1) != 1) return;
  free(p->data);
  free(p);
}

const void *br_payload_data(const br_payload *p) { return p->data; }
size_t br_payload_bytes(const br_payload *p) { return p->bytes; }

/* ---- serving */

typedef struct serving {
  br_payload *payload;
  size_t at;
} serving;

static void release(void *owner) { br_payload_unref(owner); }

static br_pull next_piece(void *arg, br_flight_data *out, br_error *err) {
  serving *s = arg;
  size_t left = s->payload->bytes - s->at;
  (void)err;
  if (left == 0) return BR_PULL_END;
  out->body.data = s->payload->data + s->at;
  out->body.bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
  out->body.release = release;
  out->body.owner = br_payload_ref(s->payload);
  s->at += out->body.bytes;
  return BR_PULL_DATA;
}

static void free_serving(void *arg) {
  serving *s = arg;
  br_payload_unref(s->payload);
  free(s);
}

br_flight_source br_payload_source(br_payload *p) {
  serving *s = br_calloc(1, sizeof *s);
  s->payload = br_payload_ref(p);
  return (br_flight_source){.next = next_piece, .free = free_serving, .arg = s};
}
