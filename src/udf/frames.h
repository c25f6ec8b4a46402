/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire between an executor and a process that runs a user's function: frames over one connected Unix stream socket, made by the
 * worker's pool and handed to both. README.md has the order of frames and the duties of both sides. All integers are little endian.
 *
 *   frame = u32 length (of what follows: 1 + payload; <= BR_UDF_FRAME_MAX_BYTES), u8 kind, payload
 *
 * A batch's Arrow IPC stream (schema, one record batch, end mark) follows its head inline, or lies in a memfd that is attached
 * (SCM_RIGHTS) to the first byte of the frame: head.fd_bytes of it, from offset 0, sealed or not; the receiver closes it.
 */
#ifndef BRANT_UDF_FRAMES_H
#define BRANT_UDF_FRAMES_H

#include <stdint.h>

#define BR_UDF_VERSION 1u
#define BR_UDF_INLINE_BYTES (64u << 10)     /* larger streams go by memfd */
#define BR_UDF_FRAME_MAX_BYTES (1u << 20)   /* of a frame without what lies in a memfd */
#define BR_UDF_BATCH_MAX_BYTES (1ull << 31) /* of a stream in a memfd */
#define BR_UDF_IN_FLIGHT 2u                 /* batches that an executor sends ahead of results, a connection */
#define BR_UDF_TEXT_MAX_BYTES (64u << 10)   /* each text of an error: longer ones are cut by the process */

typedef enum br_udf_kind {
  /* executor -> process, first: JSON object {"version":1,"function":id,"name":"f","attempt":"q1.s2.t3.a0",
   * "arguments":["BIGINT", ...],"result":"VARCHAR","result_schema":"ffffffff…"}: SQL types, and, in hexadecimal digits, the Arrow IPC
   * stream (schema and end mark) of the one column that results must have */
  BR_UDF_OPEN = 1,
  BR_UDF_OPENED, /* answer: empty; the function is loaded, its state made. Or ERROR */
  BR_UDF_BATCH,  /* executor -> process: br_udf_head + stream, a column an argument (c0, c1, ...) */
  BR_UDF_RESULT, /* answer, in the order of the batches: br_udf_head (batch, first_row, rows repeated) + stream of one column */
  BR_UDF_ERROR, /* answer to OPEN or BATCH: br_udf_error_head + its texts. The connection lives on; the executor closes it */
  BR_UDF_CLOSE /* executor -> process: no more batches. The process closes its end. An end without it: the same, at once */
} br_udf_kind;

typedef struct br_udf_head { /* 32 bytes; Python: struct "<QQQQ" */
  uint64_t batch;            /* 0, 1, ... on this connection */
  uint64_t first_row;        /* number of the batch's first row among the rows of the step in this task; for messages */
  uint64_t rows;
  uint64_t fd_bytes; /* 0: the stream follows inline */
} br_udf_head;

typedef struct
    br_udf_error_head { /* 40 bytes; Python: struct "<QQQIIII"; then the texts, UTF-8, without ends: type, message, traceback */
  uint64_t batch;           /* that failed; of OPEN: 0 */
  uint64_t first_row, rows; /* where in the task, as narrow as the process knows; rows 0: unknown */
  uint32_t kind;            /* br_udf_error_kind */
  uint32_t type_bytes, message_bytes, traceback_bytes;
} br_udf_error_head;

typedef enum br_udf_error_kind {
  BR_UDF_ERROR_USER = 1, /* the function raised: the query fails with its text */
  BR_UDF_ERROR_LOAD, /* it can't be loaded here (a package is missing, the payload doesn't unpickle, its class's __init__ raised) */
  BR_UDF_ERROR_RESULT,  /* it returned the wrong number of rows, or what can't be made the declared type */
  BR_UDF_ERROR_PROTOCOL /* a frame that the process doesn't understand */
} br_udf_error_kind;

#endif
