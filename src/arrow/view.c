/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: a batch over columns of other batches.
 * Order of calls: br_batch_view; the batch is like any other. Threads: any. Bounds: it keeps the whole of what it shows a part of.
 */
#include "arrow/view.h"

#include "base/mem.h"
#include <stdlib.h>

typedef struct holder {
  size_t n;
  br_batch **from;
  struct ArrowArray **pointers;
  const void *no_validity[1];
  struct ArrowArray columns[];
} holder;

static void release_column(struct ArrowArray *a) { a->release = NULL; }

static void release_view(struct ArrowArray *a) {
  holder *h = a->private_data;
  for (size_t i = 0; i < h->n; i++) br_batch_unref(h->from[i]);
  free(h->from);
  free(h->pointers);
  free(h);
  a->release = NULL;
}

static uint64_t share(const br_view_column *c, int64_t rows) {
  int64_t all = br_batch_rows(c->from), columns = br_schema_columns(br_batch_schema(c->from));
  if (all <= 0 || columns <= 0) return 0;
  return (uint64_t)((double)br_batch_bytes(c->from) / (double)columns * (double)rows / (double)all);
}

br_status br_batch_view(br_schema *schema, const br_view_column *columns, size_t n, int64_t rows, br_batch **out,
                        br_error *err) {
  holder *h = br_malloc(sizeof *h + n * sizeof *h->columns);
  uint64_t bytes = 0;
  h->n = n;
  h->from = br_calloc(n + 1, sizeof(br_batch *));
  h->pointers = br_calloc(n + 1, sizeof *h->pointers);
  h->no_validity[0] = NULL;
  for (size_t i = 0; i < n; i++) {
    const struct ArrowArray *whole = br_batch_arrow(columns[i].from);
    struct ArrowArray *c = &h->columns[i];
    BR_ASSERT(columns[i].column < whole->n_children && columns[i].first + rows <= br_batch_rows(columns[i].from));
    *c = *whole->children[columns[i].column];
    c->offset += whole->offset + columns[i].first;
    if (c->null_count && (columns[i].first || rows != c->length)) c->null_count = -1;
    c->length = rows;
    c->release = release_column;
    h->from[i] = br_batch_ref(columns[i].from);
    h->pointers[i] = c;
    bytes += share(&columns[i], rows);
  }
  struct ArrowArray array = {.length = rows,
                             .n_buffers = 1,
                             .buffers = h->no_validity,
                             .n_children = (int64_t)n,
                             .children = h->pointers,
                             .release = release_view,
                             .private_data = h};
  return br_batch_new(schema, &array, bytes, out, err);
}
