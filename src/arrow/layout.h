/* SPDX-License-Identifier: Apache-2.0
 * Internal to arrow/: a schema's format strings parsed once into a flat, depth-first list of nodes, which the encoder, the
 * decoder and the column builders walk. Immutable after br_layout_parse. */
#ifndef BRANT_ARROW_LAYOUT_H
#define BRANT_ARROW_LAYOUT_H

#include "arrow/batch.h"

#define BR_SCHEMA_MAX_DEPTH 48    /* two levels of flatbuffers each: their verifier, at the reader's, follows 100 */
#define BR_SCHEMA_MAX_NODES 65536 /* fields, nested ones included */

typedef enum br_lay_kind {
  BR_LAY_NULL,   /* no buffers                                     */
  BR_LAY_BOOL,   /* validity, bits                                 */
  BR_LAY_FIXED,  /* validity, width bytes a row                    */
  BR_LAY_BYTES,  /* validity, offsets (wide: 64 bit), bytes        */
  BR_LAY_LIST,   /* validity, offsets (wide: 64 bit); map as well  */
  BR_LAY_STRUCT, /* validity                                       */
  BR_LAY_ARRAY,  /* validity; width values of the child a row      */
  BR_LAY_SPARSE, /* type ids                                       */
  BR_LAY_DENSE   /* type ids, int32 offsets                        */
} br_lay_kind;

typedef struct br_lay_node {
  uint8_t kind;
  bool wide;      /* 64-bit offsets */
  bool utf8;      /* BYTES that promise UTF-8 */
  bool map;       /* LIST that is "+m" */
  bool uuid;      /* FIXED 16 that is arrow.uuid: big-endian bytes */
  uint32_t width; /* FIXED: bytes a row; ARRAY: values a row */
  uint32_t n_children, n_buffers;
  uint32_t next;                    /* index after this node's subtree; its first child is its own index + 1 */
  uint32_t first_buffer;            /* index of its first buffer in a message (the root's one is not counted) */
  const int8_t *type_ids;           /* unions: n_children of them */
  const struct ArrowSchema *schema; /* for messages */
} br_lay_node;

typedef struct br_layout {
  br_lay_node *nodes;        /* [0] is the root struct */
  size_t n_nodes, n_buffers; /* buffers of a message: without the root's validity */
  char *unsupported;         /* not NULL: this version can't hold such columns, and why */
} br_layout;

/* Fails (BR_INVALID) only for what is no schema at all; formats that we don't know set `unsupported`. */
BR_MUST_USE br_status br_layout_parse(const struct ArrowSchema *schema, br_layout *out, br_error *err);
void br_layout_free(br_layout *l);
const br_layout *br_schema_layout(const br_schema *s);
/* BR_UNSUPPORTED with the reason, or BR_OK. */
BR_MUST_USE br_status br_layout_check(const br_layout *l, br_error *err);
/* The name of a node for messages, never NULL. */
const char *br_lay_name(const br_lay_node *n);

#endif
