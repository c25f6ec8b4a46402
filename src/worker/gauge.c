/* SPDX-License-Identifier: Apache-2.0
 * What this node uses. Memory is the PSS of the worker and its executors, summed (shared pages count once), read from /proc in a
 * pool thread since the kernel walks page tables for it; at most one such job at a time. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct sample {
  br_node *node;
  bool report;
  uint64_t pss_bytes;
  size_t n_pids;
  int pids[BR_NODE_MAX_EXECUTORS + 1];
} sample;

static void measure(void *arg) {
  sample *s = arg;
  for (size_t i = 0; i < s->n_pids; i++) s->pss_bytes += br_process_pss_bytes(s->pids[i]);
}

static void measured(void *arg) {
  sample *s = arg;
  br_node *n = s->node;
  n->sampling = false;
  n->pss_bytes = s->pss_bytes;
  if (s->pss_bytes > n->pss_peak_bytes) n->pss_peak_bytes = s->pss_bytes;
  if (s->report || n->sample_again_report) br_link_gauge(n);
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
  s->pids[s->n_pids++] = (int)getpid();
  for (uint32_t i = 0; i < n->o->executors; i++)
    if (n->children[i].pid > 0) s->pids[s->n_pids++] = n->children[i].pid;
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
