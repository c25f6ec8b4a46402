/* SPDX-License-Identifier: Apache-2.0
 * Which GPUs a process sees. The worker's are those of CUDA_VISIBLE_DEVICES if it is set, else the files /dev/nvidia<n>. A function that wants
 * one or more gets whole ones; one that wants a part (0.5) shares one. Loop thread. Bound: BR_UDF_MAX_GPUS. */
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

void br_udf_gpus_find(br_udf_pools *all) {
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

br_status br_udf_gpus_take(br_udf_process *p, br_error *err) {
  br_udf_pools *all = p->pool->all;
  double wanted = p->pool->f->gpus, part = wanted < 1 ? wanted : 1;
  uint32_t count = wanted < 1 ? 1 : (uint32_t)ceil(wanted);
  for (uint32_t i = 0; i < count; i++) {
    int gpu = pick(p, part);
    if (gpu < 0) {
      br_udf_gpus_give(p);
      return br_fail(err, BR_EXECUTION, BR_BLAME_USER,
                     "function %.100s wants %g GPUs a process; worker %u has %u GPUs%s", p->pool->f->name, wanted,
                     all->worker, all->n_gpus, count <= all->n_gpus ? ", and other processes use them now" : "");
    }
    all->gpu_used[gpu] += part;
    p->gpus[p->n_gpus++] = gpu;
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
