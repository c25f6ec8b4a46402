/* SPDX-License-Identifier: Apache-2.0
 * What serve.c needs of an output that is being written. Loop thread, but growth_file, which pool threads hold while they read. */
#ifndef BRANT_SHUFFLE_GROWING_H
#define BRANT_SHUFFLE_GROWING_H

#include "shuffle/mapfile.h"
#include <stdatomic.h>

/* Where the chunks of one generation are. */
typedef struct br_growth_file {
  _Atomic uint32_t refs;
  br_attempt_id id;
  int fd;                /* -1: committed */
  br_mapfile *committed; /* NULL: it's being written */
} br_growth_file;
br_growth_file *br_growth_file_ref(br_growth_file *f); /* any thread */
void br_growth_file_unref(br_growth_file *f);
/* True: *head and *body are set, of memory that stays. False: to be read by br_growth_read. */
bool br_growth_view(br_growth_file *f, const br_chunk *c, const void **head, br_ipc_body *body);
BR_MUST_USE br_status br_growth_read(br_growth_file *f, const br_chunk *c, const void **head, br_ipc_body *body,
                                     br_error *err); /* any thread */

typedef enum br_growing_state { BR_GROWING, BR_GROWN, BR_GROWING_FAILED } br_growing_state;

/* Called once after each change of what follows; may unwatch, and free what it likes. */
typedef struct br_growing_watch br_growing_watch;
struct br_growing_watch {
  void (*changed)(void *arg);
  void *arg;
  uint64_t round;
  br_growing_watch *before, *after;
};
void br_growing_add_watch(br_growing *g, br_growing_watch *w);
void br_growing_remove_watch(br_growing *g, br_growing_watch *w);

br_growing_state br_growing_state_of(const br_growing *g);
uint32_t br_growing_partitions(const br_growing *g);
/* Chunks in the order of writing: number i stays number i. Their places are in the file of now. */
size_t br_growing_chunks(const br_growing *g, const br_chunk **chunks);
br_growth_file *br_growing_file(const br_growing *g); /* NULL: nothing was published */
/* False: not known yet. */
bool br_growing_schema(const br_growing *g, const void **head, size_t *bytes);
const br_error *br_growing_error(const br_growing *g); /* FAILED */

#endif
