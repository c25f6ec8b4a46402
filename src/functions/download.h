/* SPDX-License-Identifier: Apache-2.0
 *
 * Many URLs at once over HTTP and HTTPS. Only these two, redirects included: a text in a table must not read local files. */
#ifndef BRANT_FUNCTIONS_DOWNLOAD_H
#define BRANT_FUNCTIONS_DOWNLOAD_H

#include "base/buf.h"

#define BR_DOWNLOAD_PROCESS_CONNECTIONS 64u        /* of all calls of this process together */
#define BR_DOWNLOAD_CALL_BYTES (UINT64_C(2) << 30) /* of all bodies of one call */
#define BR_DOWNLOAD_MOST_RETRIES 20u
#define BR_DOWNLOAD_CANCEL_MS 100 /* how often a call looks whether it is to stop */

typedef struct br_download_options {
  uint32_t timeout_ms;      /* of one try, connecting included; > 0 */
  uint32_t max_connections; /* of this call; > 0 */
  uint32_t retries; /* after connection errors, broken transfers, 429 and 5xx; waits 100 ms, 200 ms, ... 10 s at most */
  uint64_t max_bytes; /* of one body */
  bool (*cancelled)(void *arg);
  void *arg;
} br_download_options;

/* url NULL: skipped. error: empty, or what went wrong last. */
typedef struct br_download {
  char *url;
  br_buf body;
  char error[256];
} br_download;
/* Fails as a whole only when cancelled, out of memory, or over BR_DOWNLOAD_CALL_BYTES. Any number of threads. */
BR_MUST_USE br_status br_download_all(const br_download_options *o, br_download *items, size_t n, br_error *err);

#endif
