/* SPDX-License-Identifier: Apache-2.0
 * Internal to arrow/: ArrowArray trees in one allocation. As the C data interface asks, any child may be moved out and be
 * released later and on another thread than its parent: `done(arg)` runs once, when the last array of the tree is released. */
#ifndef BRANT_ARROW_TREE_H
#define BRANT_ARROW_TREE_H

#include "arrow/batch.h"

typedef struct br_tree br_tree;
/* n_nodes >= 1 arrays with this many child and buffer pointers altogether. */
br_tree *br_tree_new(size_t n_nodes, size_t n_children, size_t n_buffers, void (*done)(void *arg), void *arg);
/* Hand out the next array (depth first), with room for so many children and buffers; children[] is filled by the caller. */
struct ArrowArray *br_tree_add(br_tree *t, size_t n_children, size_t n_buffers);
/* Move the root (the first array added) to *out. All n_nodes arrays must have been added. */
void br_tree_finish(br_tree *t, struct ArrowArray *out);
/* Instead of finish: frees the tree without calling done. */
void br_tree_discard(br_tree *t);
size_t br_tree_bytes(const br_tree *t);

#endif
