/* SPDX-License-Identifier: Apache-2.0
 * Single outputs that go: one that the coordinator drops (a second attempt lost the race), and those that the store let go because
 * they were kept for recovery alone and their room was needed. Output tables still name them: whoever asks for one learns that
 * it is lost. Loop thread. */
#include "worker/node.h"

#include "base/mem.h"
#include <stdlib.h>

/* Executors that have its descriptor, and the list for other programs. */
static void forget(br_node *n, const br_attempt_id *id) {
  char key[64];
  br_children_forget_output(n, id);
  br_node_output_key(id->query, id->stage, id->task, key);
  const br_attempt_id *listed = br_smap_get(n->outputs, key);
  if (listed && listed->attempt == id->attempt) free(br_smap_remove(n->outputs, key));
}

void br_node_drop_output(br_node *n, const br_attempt_id *id) {
  br_tasks_drop_attempt(n, id); /* it may be running still: what it gives isn't wanted */
  br_store_drop_output(n->store, id);
  forget(n, id);
}

void br_node_report_evicted(br_node *n) {
  br_attempt_id *ids = NULL;
  size_t count = br_store_take_evicted(n->store, &ids);
  for (size_t i = 0; i < count; i++) forget(n, &ids[i]);
  if (count) br_link_outputs_lost(n, ids, count);
  free(ids);
}
