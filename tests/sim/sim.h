/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated cluster around the real scheduler (src/schedule): workers, network, clock, faults, random queries, from one seed. The same
 * seed gives the same run. After every event the scheduler's own invariants and those of this model are checked.
 */
#ifndef BRANT_TESTS_SIM_H
#define BRANT_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_stats { /* sums over runs */
  uint64_t events, runs, commits, reruns, worker_losses, queries_done, queries_failed, fetch_failures, late_answers,
      cancels;
  uint64_t end_ms; /* simulated time */
} sim_stats;

typedef struct sim_options {
  bool trace; /* every event and action to standard error */
} sim_options;

/* True: the run was right. False: why says what was violated (at most n bytes). stats may be NULL. */
bool sim_run(uint64_t seed, const sim_options *o, sim_stats *stats, char *why, size_t n);

#endif
