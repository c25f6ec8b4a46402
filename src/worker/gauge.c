/* SPDX-License-Identifier: Apache-2.0
 * What this node uses. Memory is the PSS of the worker, its executors and processes of functions, summed (shared pages count once). The kernel walks all
 * page tables for it, tens of ms a GB in which the process can't map a page (it was 5 % of the time of TPC-H at scale 10). So it is walked
 * each GAUGE_WALK_MS, and when the cheap counters (private memory, and what the store holds) rise past all that was walked before;
 * between walks the sum moves by what the counters moved. Read in a pool thread, one job at a time. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define GAUGE_MAX_FUNCTIONS 256u /* processes of users' functions that are looked at */
#define GAUGE_WALK_MS 5000u
#define GAUGE_TELL_BYTES (1u << 20)  /* a new peak is told at once when it is so much higher */
#define GAUGE_RISE_PERCENT 5u        /* above the highest walk: walked again */
#define GAUGE_RISE_BYTES (16u << 20) /* and at least so much */

typedef struct sample {
  br_node *node;
  bool report, walk;
  uint64_t counted_bytes, pss_bytes; /* pss_bytes: if walk */
  size_t n_pids;
  int pids[BR_NODE_MAX_EXECUTORS + 1 + GAUGE_MAX_FUNCTIONS];
} sample;

static void measure(void *arg) {
  sample *s = arg;
  const br_gauge_state *g = &s->node->gauge; /* changes while no job runs */
  for (size_t i = 0; i < s->n_pids; i++) s->counted_bytes += br_process_anon_bytes(s->pids[i]);
  uint64_t most = g->counted_peak_bytes;
  s->walk |= s->counted_bytes > most + most * GAUGE_RISE_PERCENT / 100 + GAUGE_RISE_BYTES;
  for (size_t i = 0; i < s->n_pids && s->walk; i++) s->pss_bytes += br_process_pss_bytes(s->pids[i]);
}

static void measured(void *arg) {
  sample *s = arg;
  br_node *n = s->node;
  br_gauge_state *g = &n->gauge;
  n->sampling = false;
  if (s->walk) {
    g->walked_ms = br_now_ms();
    g->walked_bytes = s->pss_bytes;
    g->counted_bytes = s->counted_bytes;
    if (s->counted_bytes > g->counted_peak_bytes) g->counted_peak_bytes = s->counted_bytes;
  }
  uint64_t up = g->walked_bytes + s->counted_bytes;
  n->pss_bytes = up > g->counted_bytes ? up - g->counted_bytes : 0;
  if (n->pss_bytes > n->pss_peak_bytes) n->pss_peak_bytes = n->pss_bytes;
  bool peak =
      n->pss_peak_bytes > g->told_peak_bytes + GAUGE_TELL_BYTES; /* a short query is over before the next heartbeat */
  if (peak) g->told_peak_bytes = n->pss_peak_bytes;
  if (s->report || n->sample_again_report || peak) br_link_gauge(n);
  n->sample_again_report = false;
  free(s);
  if (n->stopping) br_node_check_stopped(n);
}

void br_gauge_sample(br_node *n, bool report) {
  if (n->stopping) return;
  if (n->sampling) {
    n->sample_again_report |= report; /* the one under way will do */
    return;
  }
  sample *s = br_calloc(1, sizeof *s);
  s->node = n;
  s->report = report;
  s->counted_bytes = br_store_gauge_now(n->store).memory_bytes;
  s->walk = n->gauge.walked_ms == 0 || br_now_ms() - n->gauge.walked_ms >= GAUGE_WALK_MS;
  s->pids[s->n_pids++] = (int)getpid();
  for (uint32_t i = 0; i < n->o->executors; i++)
    if (n->children[i].pid > 0) s->pids[s->n_pids++] = n->children[i].pid;
  s->n_pids += br_udf_pids(n->udf, s->pids + s->n_pids, GAUGE_MAX_FUNCTIONS);
  n->sampling = true;
  br_loop_work(n->loop, measure, measured, s);
}

static uint32_t ready_executors(const br_node *n) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->o->executors; i++) count += n->children[i].ready;
  return count;
}

void br_gauge_fill(br_node *n, Brant__Pb__WorkerGauge *g) {
  br_store_gauge s = br_store_gauge_now(n->store);
  g->store_memory_bytes = s.memory_bytes;
  g->store_disk_bytes = s.disk_bytes;
  g->spilled_bytes = s.spilled_bytes;
  g->pss_bytes = n->pss_bytes;
  g->pss_peak_bytes = n->pss_peak_bytes;
  g->served_bytes = n->served_bytes;
  g->executors = ready_executors(n);
}

char *br_gauge_json(br_node *n) {
  br_store_gauge s = br_store_gauge_now(n->store);
  size_t running = 0;
  for (size_t i = 0; i < n->n_tasks; i++) running += n->tasks[i]->child != NULL;
  return br_asprintf(
      "{\"version\":\"%s\",\"worker\":%u,\"incarnation\":%u,\"pid\":%d,\"executors\":%u,\"slots\":%u,"
      "\"tasks_running\":%zu,\"tasks_waiting\":%zu,\"outputs\":%" PRIu64 ",\"store_memory_bytes\":%" PRIu64
      ",\"store_peak_memory_bytes\":%" PRIu64 ",\"store_disk_bytes\":%" PRIu64 ",\"spilled_bytes\":%" PRIu64
      ",\"served_bytes\":%" PRIu64 ",\"memory_bytes\":%" PRIu64 ",\"pss_bytes\":%" PRIu64 ",\"pss_peak_bytes\":%" PRIu64
      "}",
      BRANT_VERSION, n->worker, n->incarnation, (int)getpid(), ready_executors(n), n->o->slots * n->o->executors,
      running, n->n_tasks - running, s.outputs, s.memory_bytes, s.peak_memory_bytes, s.disk_bytes, s.spilled_bytes,
      n->served_bytes, n->o->memory_bytes, n->pss_bytes, n->pss_peak_bytes);
}
