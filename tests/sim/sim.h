/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated cluster around the real scheduler (src/schedule): workers, network, disks, clock, faults, random queries, from one seed. The
 * same seed gives the same run. After every event the scheduler's own invariants and those of this model are checked.
 */
#ifndef BRANT_TESTS_SIM_H
#define BRANT_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_stats { /* sums over runs */
  uint64_t events, runs, commits, reruns, worker_losses, queries_done, queries_failed, fetch_failures, late_answers,
      cancels;
  uint64_t eager, growing_reads,
      early_commits;                /* eager queries; inputs bound while they grew; commits before their input's */
  uint64_t rebinds;                 /* readers that were stopped as one that they named was lost */
  uint64_t seconds, second_wins;    /* second attempts; those that were first */
  uint64_t alone, passes;           /* attempts alone on their worker; in passes */
  uint64_t probes, probe_deaths;    /* asked; workers that are gone for the answer, or for none */
  uint64_t drains, releases;        /* workers that began to leave; told that they may */
  uint64_t retired, evicted, drops; /* stages; outputs that went after that; stages dropped before the end */
  uint64_t lost_messages, cuts, full_disks; /* faults that can't be told from their consequences */
  uint64_t asked, resized, folded; /* stages before their start; other numbers of tasks; done within their readers */
  uint64_t joined;                 /* of those: by tasks of their own, the reader's other inputs read whole */
  uint64_t end_ms;                 /* simulated time */
} sim_stats;

/* What may be in a seed; for finding out what a failure needs. */
enum {
  SIM_EAGER = 1,
  SIM_SECOND = 2, /* second attempts */
  SIM_MEMORY = 4, /* out of memory: alone, in passes */
  SIM_RETIRE = 8, /* outputs are evicted and damaged */
  SIM_PROBE = 16, /* paths are cut, probes get wrong answers or none */
  SIM_DRAIN = 32, /* draining workers wait for their release */
  SIM_OUTLIVE = 64,
  SIM_BOUNDED = 128, /* queries with a fixed number of executors */
  SIM_ADAPT = 256,   /* stages are planned again before they start */
  SIM_ALL =
      SIM_EAGER | SIM_SECOND | SIM_MEMORY | SIM_RETIRE | SIM_PROBE | SIM_DRAIN | SIM_OUTLIVE | SIM_BOUNDED | SIM_ADAPT
};

typedef struct sim_options {
  bool trace;       /* every event and action to standard error */
  uint32_t without; /* SIM_*: left out. The rest of the seed may differ */
  bool model_alone; /* br_sched_check is not asked */
} sim_options;

/* True: the run was right. False: why says what was violated (at most n bytes). stats may be NULL. */
bool sim_run(uint64_t seed, const sim_options *o, sim_stats *stats, char *why, size_t n);
void sim_add_stats(sim_stats *to, const sim_stats *from);

#endif
