/* SPDX-License-Identifier: Apache-2.0
 * See dataset.h: what a dataset is, for whoever reads it. Order: new, references, the last unref frees it. Threads: any.
 * Bounds: its parts are of those who made them. */
#include "coordinator/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

br_dataset *br_dataset_new(const char *name, uint64_t id) {
  br_dataset *d = br_calloc(1, sizeof *d);
  atomic_init(&d->refs, 1);
  d->name = br_strdup(name);
  d->id = id;
  return d;
}

br_dataset *br_dataset_ref(br_dataset *d) {
  atomic_fetch_add(&d->refs, 1);
  return d;
}

void br_dataset_unref(br_dataset *d) {
  if (d == NULL || atomic_fetch_sub(&d->refs, 1) != 1) return;
  if (d->store != NULL) br_store_drop_query(d->store, d->id);
  for (size_t i = 0; i < d->n_columns; i++) free(d->types[i]);
  free(d->types);
  free(d->part_rows);
  free(d->part_bytes);
  br_schema_unref(d->schema);
  free(d->name);
  free(d->view);
  if (d->held != NULL) d->let_go(d->held);
  free(d);
}

uint32_t br_dataset_version(br_dataset *d) {
  if (d->run == NULL) return 1;
  pthread_mutex_lock(&d->run->lock);
  uint32_t version = d->run->table_versions;
  pthread_mutex_unlock(&d->run->lock);
  return version;
}

void br_dataset_workers(br_dataset *d, uint32_t *out) {
  memset(out, 0, d->n_parts * sizeof *out);
  if (d->run == NULL || d->run->shared_dir != NULL) return;
  pthread_mutex_lock(&d->run->lock);
  for (uint32_t i = 0; i < d->n_parts; i++)
    if (d->run->results[i].ready) out[i] = d->run->results[i].id.worker;
  pthread_mutex_unlock(&d->run->lock);
}

char *br_dataset_column(const char *name, size_t at, const char *const *before, size_t n) {
  bool taken = !*name;
  for (size_t j = 0; j < n && !taken; j++) taken = strcasecmp(before[j], name) == 0;
  if (!taken) return br_strdup(name);
  char *first = br_asprintf("%s_%zu", *name ? name : "column", at), *out = br_dataset_column(first, at, before, n);
  free(first);
  return out;
}
