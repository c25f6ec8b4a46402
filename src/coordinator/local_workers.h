/* SPDX-License-Identifier: Apache-2.0
 * The cluster provider of a laptop: worker processes on this host, children of this process, gone with it. One thread at a time. */
#ifndef BRANT_COORDINATOR_LOCAL_WORKERS_H
#define BRANT_COORDINATOR_LOCAL_WORKERS_H

#include "base/status.h"

typedef struct br_local_workers br_local_workers;
typedef struct br_local_workers_options {
  const char *join_host;
  int join_port;
  const char *secret;
  uint32_t count, threads;
  uint32_t executors; /* of each */
  uint64_t memory_bytes;
  const char *temp_dir;
} br_local_workers_options;

br_local_workers *br_local_workers_new(const br_local_workers_options *o);
/* Start those that don't run (all, or the ones that died). */
BR_MUST_USE br_status br_local_workers_start(br_local_workers *w, br_error *err);
uint32_t br_local_workers_alive(br_local_workers *w); /* how many run */
/* How the last one ended that did so by itself, and forgets it; code 0: none did since the last call. */
void br_local_workers_why(br_local_workers *w, br_error *why);
/* This one is not a member any more: if it has not ended a second later, br_local_workers_alive kills it. Not ours: ignored. */
void br_local_workers_condemn(br_local_workers *w, int pid);
/* Ask them to end (their parent pipe closes), wait up to grace_ms, then SIGKILL what is left. */
void br_local_workers_free(br_local_workers *w, uint64_t grace_ms);

#endif
