/* SPDX-License-Identifier: Apache-2.0
 * links: br_sim br_schedule
 * A few hundred seeds of the simulated cluster; `sim SEEDS START` runs more. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "sim/sim.h"

static void test_seeds(void **state) {
  (void)state;
  sim_stats st = {0};
  for (uint64_t seed = 1; seed <= 500; seed++) {
    char why[1024];
    if (!sim_run(seed, NULL, &st, why, sizeof why)) fail_msg("seed %llu: %s", (unsigned long long)seed, why);
  }
  assert_true(st.queries_done > 500); /* the faults must leave most queries alive, and there must be some */
  assert_true(st.queries_failed > 20);
  assert_true(st.reruns > 500);
  assert_true(st.worker_losses > 500);
  assert_true(st.fetch_failures > 100);
  assert_true(st.eager > 200 && st.growing_reads > 1000 && st.rebinds > 100 && st.early_commits > 50);
  assert_true(st.seconds > 200 && st.second_wins > 100);
  assert_true(st.alone > 200 && st.passes > 10);
  assert_true(st.retired > 500 && st.evicted > 200);
  assert_true(st.probes > 100 && st.probe_deaths > 50);
  assert_true(st.releases > 50 && st.lost_messages > 50 && st.cuts > 20 && st.full_disks > 50);
  assert_true(st.late_answers > 500);
}

static void test_a_seed_replays(void **state) {
  (void)state;
  for (uint64_t seed = 1000; seed < 1020; seed++) {
    sim_stats a = {0}, b = {0};
    char why[1024];
    assert_true(sim_run(seed, NULL, &a, why, sizeof why));
    assert_true(sim_run(seed, NULL, &b, why, sizeof why));
    assert_memory_equal(&a, &b, sizeof a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds), cmocka_unit_test(test_a_seed_replays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
