/* SPDX-License-Identifier: Apache-2.0
 * sim SEEDS [START] [trace]: run so many seeds from START (1) on. A seed that fails prints itself; `sim 1 <seed> trace` shows it again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "sim/sim.h"

int main(int argc, char **argv) {
  uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, start = argc > 2 ? strtoull(argv[2], NULL, 10) : 1,
           bad = 0;
  sim_options o = {.trace = argc > 3 && strcmp(argv[3], "trace") == 0};
  sim_stats st = {0};
  uint64_t t0 = br_now_us();
  for (uint64_t s = start; s < start + seeds; s++) {
    char why[1024];
    if (sim_run(s, &o, &st, why, sizeof why)) continue;
    printf("seed %" PRIu64 " failed: %s\n  again: sim 1 %" PRIu64 " trace\n", s, why, s);
    if (++bad >= 10) break;
  }
  double sec = (double)(br_now_us() - t0) / 1e6;
  printf("%" PRIu64 " seeds in %.1f s: %" PRIu64 " events, %" PRIu64 " runs, %" PRIu64 " commits (%" PRIu64
         " again), %" PRIu64 " workers lost, %" PRIu64 " fetch failures, %" PRIu64 " late answers, %" PRIu64
         " cancels, queries %" PRIu64 " done %" PRIu64 " failed; %" PRIu64 " seeds are bad\n",
         seeds, sec, st.events, st.runs, st.commits, st.reruns, st.worker_losses, st.fetch_failures, st.late_answers,
         st.cancels, st.queries_done, st.queries_failed, bad);
  return bad ? 1 : 0;
}
