/* SPDX-License-Identifier: Apache-2.0
 * Which GPUs a process sees. The worker's are those of CUDA_VISIBLE_DEVICES if it is set, else the files /dev/nvidia<n>. A function that wants
 * one or more gets whole ones; one that wants a part (0.5) shares one. When all are taken, processes that nobody is connected to end. Loop thread. Bound: BR_UDF_MAX_GPUS. */
#include "udf/internal.h"

#include "base/buf.h"
#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLACK 1e-6 /* of sums of parts */

static void add(br_udf_pools *all, const char *name, size_t n) {
  if (all->n_gpus < BR_UDF_MAX_GPUS && n) all->gpu_names[all->n_gpus++] = br_strndup(name, n);
}

/* Those that are visible. */
static void find_visible(br_udf_pools *all) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible) {
    for (const char *p = visible; *p;) {
      size_t n = strcspn(p, ",");
      if (p[0] == '-') return; /* "-1": what follows doesn't count */
      add(all, p, n);
      p += n + (p[n] == ',');
    }
    return;
  }
  for (unsigned i = 0; i < BR_UDF_MAX_GPUS; i++) {
    char path[32], name[16];
    snprintf(path, sizeof path, "/dev/nvidia%u", i);
    snprintf(name, sizeof name, "%u", i);
    if (access(path, F_OK) == 0) add(all, name, strlen(name));
  }
}

void br_udf_gpus_find(br_udf_pools *all) {
  const br_udf_options *o = &all->o;
  uint32_t kept = 0;
  find_visible(all);
  for (uint32_t i = all->n_gpus; o->gpus_given && i < o->gpus && i < BR_UDF_MAX_GPUS; i++) {
    char name[16];
    snprintf(name, sizeof name, "%u", i);
    add(all, name, strlen(name));
  }
  for (uint32_t i = 0; i < all->n_gpus; i++) {
    bool ours = (!o->gpus_given || i < o->gpus) && (o->gpu_shares < 2 || i % o->gpu_shares == o->gpu_share);
    if (ours)
      all->gpu_names[kept++] = all->gpu_names[i];
    else
      free(all->gpu_names[i]);
  }
  all->n_gpus = kept;
}

uint32_t br_udf_gpus(const br_udf_pools *all) { return all->n_gpus; }

void br_udf_gpus_free(br_udf_pools *all) {
  for (uint32_t i = 0; i < all->n_gpus; i++) free(all->gpu_names[i]);
}

uint32_t br_udf_gpus_processes(const br_udf_pools *all, double each) {
  if (each >= 1) return (uint32_t)(all->n_gpus / ceil(each));
  return all->n_gpus * (uint32_t)(1 / each + SLACK);
}

/* The least used one that has room and isn't taken by p yet; -1: none. */
static int pick(const br_udf_process *p, double part) {
  const br_udf_pools *all = p->pool->all;
  int best = -1;
  for (uint32_t i = 0; i < all->n_gpus; i++) {
    bool taken = false;
    for (uint32_t k = 0; k < p->n_gpus; k++) taken |= p->gpus[k] == (int)i;
    if (!taken && all->gpu_used[i] + part <= 1 + SLACK && (best < 0 || all->gpu_used[i] < all->gpu_used[best]))
      best = (int)i;
  }
  return best;
}

/* Processes that wait warm for nobody give theirs back to others. */
static bool end_idle(br_udf_pools *all) {
  bool any = false;
  uint64_t key;
  void *v;
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);)
    for (br_udf_process *p = ((br_udf_pool *)v)->processes; p; p = p->next) {
      if (p->n_gpus == 0 || p->connections || p->reaped || p->killed) continue;
      br_udf_process_end(p);
      any = true;
    }
  return any;
}

br_status br_udf_gpus_take(br_udf_process *p, br_error *err) {
  br_udf_pools *all = p->pool->all;
  double wanted = p->pool->f->gpus, part = wanted < 1 ? wanted : 1;
  uint32_t count = wanted < 1 ? 1 : (uint32_t)ceil(wanted);
  for (uint32_t i = 0; i < count; i++) {
    int gpu = pick(p, part);
    if (gpu < 0 && count <= all->n_gpus && end_idle(all)) gpu = pick(p, part);
    if (gpu < 0) {
      br_udf_gpus_give(p);
      return br_fail(err, BR_EXECUTION, BR_BLAME_USER,
                     "function %.100s wants %g GPUs a process; worker %u has %u GPUs%s", p->pool->f->name, wanted,
                     all->worker, all->n_gpus, count <= all->n_gpus ? ", and other processes use them now" : "");
    }
    all->gpu_used[gpu] += part;
    uint32_t at = p->n_gpus++;
    for (; at > 0 && p->gpus[at - 1] > gpu; at--) p->gpus[at] = p->gpus[at - 1]; /* in the order of the worker's */
    p->gpus[at] = gpu;
  }
  return BR_OK;
}

void br_udf_gpus_give(br_udf_process *p) {
  double part = p->pool->f->gpus < 1 ? p->pool->f->gpus : 1;
  for (uint32_t i = 0; i < p->n_gpus; i++) p->pool->all->gpu_used[p->gpus[i]] -= part;
  p->n_gpus = 0;
}

char *br_udf_gpus_text(const br_udf_process *p) {
  br_buf b = {0};
  for (uint32_t i = 0; i < p->n_gpus; i++) br_buf_printf(&b, "%s%s", i ? "," : "", p->pool->all->gpu_names[p->gpus[i]]);
  return br_buf_take(&b);
}
