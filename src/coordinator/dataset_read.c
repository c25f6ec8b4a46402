/* SPDX-License-Identifier: Apache-2.0
 * Datasets are read in this process, too: out of the session's store, or from the workers, part by part. Order: published once, opened by
 * each scan of DuckDB's here, closed by it. Threads: DuckDB's, one a scan. Bounds: READ_BYTES a scan. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/handle.h"
#include "coordinator/session.h"

#define READ_BYTES (32u << 20)

static void free_reference(void *arg) { br_dataset_unref(arg); }

static br_status open_store_reader(br_dataset *d, br_reader **reader, br_error *err) {
  br_status status = BR_OK;
  br_read_local *local = br_calloc(d->n_parts + 1u, sizeof *local);
  for (uint32_t i = 0; i < d->n_parts && status == BR_OK; i++) {
    local[i] = (br_read_local){.file = br_store_get(d->store, d->id, 0, i, 1), .map = i};
    if (local[i].file == NULL)
      status = br_fail(err, BR_IO, BR_BLAME_WORKER, "part %u of the table %s is not readable any more", i, d->name);
  }
  br_reader_options o = {.schema = d->schema,
                         .query = d->id,
                         .table_version = 1,
                         .last = 1,
                         .map_last = d->n_parts,
                         .local = local,
                         .n_local = d->n_parts,
                         .ordered = true,
                         .buffer_bytes = READ_BYTES};
  if (status == BR_OK) status = br_reader_open(&o, reader, err);
  for (uint32_t i = 0; i < d->n_parts; i++) br_mapfile_unref(local[i].file);
  free(local);
  return status;
}

/* What this process has, or what the workers have and is fetched part by part. */
typedef struct here {
  br_reader *reader;
  br_rows *rows;
} here;

static br_status open_here(void *arg, void **out, br_error *err) {
  br_dataset *d = arg;
  here *h = br_calloc(1, sizeof *h);
  br_status status = BR_OK;
  if (d->store != NULL)
    status = open_store_reader(d, &h->reader, err);
  else
    h->rows = br_rows_open_kept(br_query_session(d->held), d->run, d->schema);
  if (status != BR_OK) {
    free(h);
    return status;
  }
  *out = h;
  return BR_OK;
}

static br_status next_here(void *arg, br_batch **out, br_error *err) {
  here *h = arg;
  return h->rows != NULL ? br_rows_next(h->rows, out, err) : br_reader_next(h->reader, out, err);
}

static void close_here(void *arg) {
  here *h = arg;
  if (h->reader != NULL) br_reader_free(h->reader);
  br_rows_free(h->rows);
  free(h);
}

br_status br_dataset_publish(brant_session *s, br_dataset *d, bool view, br_error *err) {
  br_engine_dataset table = {.schema = d->schema,
                             .rows = d->rows,
                             .arg = br_dataset_ref(d),
                             .open = open_here,
                             .next = next_here,
                             .close = close_here,
                             .free = free_reference};
  return br_dataset_put(s, d, &table, view, err);
}
