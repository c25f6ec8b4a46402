/* SPDX-License-Identifier: Apache-2.0
 * A named memory budget. Thread-safe (one atomic). Reservations are counted, not allocated. */
#ifndef BRANT_BASE_BUDGET_H
#define BRANT_BASE_BUDGET_H

#include "base/status.h"
#include <stdatomic.h>
#include <stddef.h>

typedef struct br_budget {
  const char *name; /* for messages; not owned */
  uint64_t limit_bytes;
  _Atomic uint64_t used_bytes, peak_bytes;
} br_budget;

void br_budget_init(br_budget *b, const char *name, uint64_t limit_bytes);
bool br_budget_try(br_budget *b, uint64_t bytes);   /* false: it would pass the limit; nothing is counted */
void br_budget_force(br_budget *b, uint64_t bytes); /* counted even past the limit (for what is already there) */
void br_budget_release(br_budget *b, uint64_t bytes);

/* The memory that this process may count on: the smaller of RAM and the cgroup limits (v1 and v2). */
uint64_t br_memory_available_bytes(void);
/* Proportional set size of one process (/proc/<pid>/smaps_rollup), 0 when it can't be read. */
uint64_t br_process_pss_bytes(int pid);
/* What it has for itself (resident, without files and shared memory), from a counter: microseconds, where PSS walks page tables
 * for tens of milliseconds a GB, during which the process can't map a page. 0 when it can't be read. */
uint64_t br_process_anon_bytes(int pid);

#endif
