/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: ArrowArray trees in one allocation, see tree.h.
 * Order of calls: br_tree_new, br_tree_add (root first, depth first), br_tree_finish (or br_tree_discard).
 * Threads: built by one; released on any, by an atomic count of the arrays that are not released yet.
 * Bounds: what the caller asks for.
 */
#include "arrow/tree.h"
#include "base/mem.h"
#include <stdatomic.h>
#include <stdlib.h>

struct br_tree {
  _Atomic size_t live;
  void (*done)(void *arg);
  void *arg;
  size_t n_nodes, nodes_used, bytes;
  struct ArrowArray **next_child;
  const void **next_buffer;
  struct ArrowArray nodes[];
};

static void tree_drop(br_tree *t) {
  if (atomic_fetch_sub_explicit(&t->live, 1, memory_order_acq_rel) != 1) return;
  if (t->done != NULL) t->done(t->arg);
  free(t);
}

static void node_release(struct ArrowArray *a) {
  for (int64_t i = 0; i < a->n_children; i++) {
    struct ArrowArray *c = a->children[i];
    if (c->release != NULL) c->release(c);
  }
  if (a->dictionary != NULL && a->dictionary->release != NULL) a->dictionary->release(a->dictionary);
  br_tree *t = a->private_data;
  a->release = NULL;
  tree_drop(t);
}

br_tree *br_tree_new(size_t n_nodes, size_t n_children, size_t n_buffers, void (*done)(void *arg), void *arg) {
  size_t bytes = sizeof(br_tree) + n_nodes * sizeof(struct ArrowArray) + (n_children + n_buffers) * sizeof(void *);
  br_tree *t = br_calloc(1, bytes);
  atomic_init(&t->live, n_nodes);
  t->done = done;
  t->arg = arg;
  t->n_nodes = n_nodes;
  t->bytes = bytes;
  t->next_child = (struct ArrowArray **)(t->nodes + n_nodes);
  t->next_buffer = (const void **)(t->next_child + n_children);
  return t;
}

struct ArrowArray *br_tree_add(br_tree *t, size_t n_children, size_t n_buffers) {
  BR_ASSERT(t->nodes_used < t->n_nodes);
  struct ArrowArray *a = &t->nodes[t->nodes_used++];
  a->n_children = (int64_t)n_children;
  a->n_buffers = (int64_t)n_buffers;
  a->children = t->next_child;
  a->buffers = t->next_buffer;
  t->next_child += n_children;
  t->next_buffer += n_buffers;
  a->release = node_release;
  a->private_data = t;
  return a;
}

void br_tree_finish(br_tree *t, struct ArrowArray *out) {
  BR_ASSERT(t->nodes_used == t->n_nodes);
  *out = t->nodes[0];
  t->nodes[0].release = NULL;
}

void br_tree_discard(br_tree *t) { free(t); }

size_t br_tree_bytes(const br_tree *t) { return t->bytes; }
