/* SPDX-License-Identifier: Apache-2.0
 * Between the structs of base/ and the generated messages (brant.pb-c.h). Unpacking checks sizes first: a message from
 * outside is at most BR_MESSAGE_MAX_BYTES. */
#ifndef BRANT_PROTO_PROTO_H
#define BRANT_PROTO_PROTO_H

#include "base/buf.h"
#include "base/status.h"
#include "brant.pb-c.h"

#define BR_MESSAGE_MAX_BYTES (16u << 20)

void br_attempt_to_pb(const br_attempt_id *a, Brant__Pb__AttemptId *out); /* init included */
br_attempt_id br_attempt_from_pb(const Brant__Pb__AttemptId *a);          /* NULL: zeros */
/* Heap copy of an error as message; free with brant__pb__error__free_unpacked(p, NULL). */
Brant__Pb__Error *br_error_to_pb(const br_error *e);
void br_error_from_pb(const Brant__Pb__Error *p, br_error *out);
/* Append the packed message. */
void br_pb_pack(const ProtobufCMessage *m, br_buf *out);
/* NULL and err set when it is too large or malformed. Free with protobuf_c_message_free_unpacked. */
ProtobufCMessage *br_pb_unpack(const ProtobufCMessageDescriptor *d, const void *p, size_t n, br_error *err);
bool br_attempt_equal(const br_attempt_id *a, const br_attempt_id *b);
void br_attempt_format(const br_attempt_id *a, char out[64]); /* "q1f.s2.t3.a0" */

#endif
