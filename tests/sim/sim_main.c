/* SPDX-License-Identifier: Apache-2.0
 * sim SEEDS [START] [trace] [jobs=N] [bad=N] [without=NAME,...] [model-alone]: run so many seeds from START (1) on, in N processes.
 * A seed that fails prints itself; `sim 1 SEED trace` shows it again. bad: stop after so many (10). NAME: eager, second, memory,
 * retire, probe, drain, outlive, bounded. model-alone: the scheduler's own checks are left out. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "sim/sim.h"

#define MAX_JOBS 64
#define SEED_S 120 /* no seed takes that long, on any machine */

static uint64_t max_bad = 10;

typedef struct result {
  sim_stats st;
  uint64_t bad;
} result;

/* ---- a seed that crashes or hangs prints itself, too */
static volatile uint64_t now_runs;

static void on_signal(int sig) {
  char text[32], *at = text + sizeof text;
  uint64_t s = now_runs;
  const char *what = sig == SIGALRM ? " hangs\n" : " crashed\n";
  do *--at = (char)('0' + s % 10);
  while ((s /= 10) > 0);
  if (write(1, "seed ", 5) < 0 || write(1, at, (size_t)(text + sizeof text - at)) < 0 ||
      write(1, what, strlen(what)) < 0)
    _exit(3);
  signal(sig, SIG_DFL);
  raise(sig);
}

/* Each jobs-th seed, from first on. */
static result run_some(uint64_t first, uint64_t end, uint64_t jobs, const sim_options *o) {
  result r = {0};
  for (uint64_t s = first; s < end && r.bad < max_bad; s += jobs) {
    char why[1024];
    now_runs = s;
    alarm(SEED_S);
    if (sim_run(s, o, &r.st, why, sizeof why)) continue;
    printf("seed %" PRIu64 " failed: %s\n  again: sim 1 %" PRIu64 " trace\n", s, why, s);
    fflush(stdout);
    r.bad++;
  }
  alarm(0);
  return r;
}

static int start_job(uint64_t first, uint64_t end, uint64_t jobs, const sim_options *o) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  pid_t child = fork();
  if (child < 0) return -1;
  if (child > 0) {
    close(ends[1]);
    return ends[0];
  }
  result r = run_some(first, end, jobs, o);
  _exit(write(ends[1], &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
}

static result run_all(uint64_t start, uint64_t seeds, uint64_t jobs, const sim_options *o) {
  int from[MAX_JOBS];
  result sum = {0}, r;
  if (jobs == 1) return run_some(start, start + seeds, 1, o);
  for (uint64_t j = 0; j < jobs; j++) from[j] = start_job(start + j, start + seeds, jobs, o);
  for (uint64_t j = 0; j < jobs; j++) {
    bool came = from[j] >= 0 && read(from[j], &r, sizeof r) == (ssize_t)sizeof r;
    if (came) {
      sim_add_stats(&sum.st, &r.st);
      sum.bad += r.bad;
    } else {
      printf("process %" PRIu64 " of %" PRIu64 " has crashed\n", j, jobs);
      sum.bad++;
    }
  }
  while (wait(NULL) > 0) {
  }
  return sum;
}

static uint32_t left_out(const char *names) {
  static const char *const known[] = {"eager", "second",  "memory",  "retire", "probe",
                                      "drain", "outlive", "bounded", "adapt"};
  uint32_t bits = 0;
  for (uint32_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strstr(names, known[i])) bits |= 1u << i;
  return bits;
}

static void print_stats(const sim_stats *st) {
  printf("%" PRIu64 " events, %" PRIu64 " runs, %" PRIu64 " commits (%" PRIu64 " again), %" PRIu64
         " workers lost, %" PRIu64 " fetch failures, %" PRIu64 " late answers, %" PRIu64 " cancels\n",
         st->events, st->runs, st->commits, st->reruns, st->worker_losses, st->fetch_failures, st->late_answers,
         st->cancels);
  printf("eager queries %" PRIu64 ": %" PRIu64 " inputs read while they grew, %" PRIu64 " readers restarted, %" PRIu64
         " committed before an input; second attempts %" PRIu64 " (%" PRIu64 " won); alone %" PRIu64
         ", in passes %" PRIu64 "\n",
         st->eager, st->growing_reads, st->rebinds, st->early_commits, st->seconds, st->second_wins, st->alone,
         st->passes);
  printf("stages retired %" PRIu64 ", dropped early %" PRIu64 "; outputs evicted or damaged %" PRIu64
         "; probes %" PRIu64 " (%" PRIu64 " workers gone for it); drains %" PRIu64 ", released %" PRIu64
         "; connections closed %" PRIu64 ", cuts %" PRIu64 ", full disks %" PRIu64 "\n",
         st->retired, st->drops, st->evicted, st->probes, st->probe_deaths, st->drains, st->releases, st->lost_messages,
         st->cuts, st->full_disks);
  printf("stages asked for before their start %" PRIu64 ": %" PRIu64 " got other tasks, %" PRIu64
         " went into their readers, %" PRIu64 " with their tasks\n",
         st->asked, st->resized, st->folded, st->joined);
}

int main(int argc, char **argv) {
  uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000, start = argc > 2 ? strtoull(argv[2], NULL, 10) : 1,
           jobs = 1;
  sim_options o = {0};
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "trace") == 0) o.trace = true;
    if (strcmp(argv[i], "model-alone") == 0) o.model_alone = true;
    if (strncmp(argv[i], "bad=", 4) == 0) max_bad = strtoull(argv[i] + 4, NULL, 10);
    if (strncmp(argv[i], "jobs=", 5) == 0) jobs = strtoull(argv[i] + 5, NULL, 10);
    if (strncmp(argv[i], "without=", 8) == 0) o.without = left_out(argv[i] + 8);
  }
  if (start == 0) start = 1;
  if (jobs < 1 || jobs > MAX_JOBS) jobs = 1;
  const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], on_signal);
  uint64_t t0 = br_now_us();
  result r = run_all(start, seeds, jobs, &o);
  print_stats(&r.st);
  printf("%" PRIu64 " seeds in %.1f s: queries %" PRIu64 " done %" PRIu64 " failed; %" PRIu64 " seeds are bad\n", seeds,
         (double)(br_now_us() - t0) / 1e6, r.st.queries_done, r.st.queries_failed, r.bad);
  return r.bad ? 1 : 0;
}
