/* SPDX-License-Identifier: Apache-2.0
 *
 * links: br_plan
 *
 * Plan JSON from outside into br_plan_parse, br_emit_tree and br_scan_of. Seeds: tests/fuzz/corpus/plan.
 */
#include "plan/decompile/decompile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_scans(br_arena *a, const br_node *n) {
  br_scan s;
  br_error err = {0};
  bool is_scan;
  if (br_scan_of(a, n, &is_scan, &s, &err) != BR_OK && err.code == BR_OK) abort();
  if (br_node_is_volatile(n) && !n->json) abort();
  for (size_t i = 0; i < n->n_children; i++) look_at_scans(a, n->children[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  br_plan *p = NULL;
  br_error err = {0};
  br_rel out;
  memcpy(text, data, size);
  text[size] = 0;
  if (br_plan_parse(text, text, &p, &err) == BR_OK) {
    if (br_emit_tree(br_emit_new(p->arena, NULL), p->root, &out, &err) == BR_OK && !out.sql) abort();
    look_at_scans(p->arena, p->root);
    br_plan_free(p);
  } else if (err.code == BR_OK || !err.message[0]) {
    abort(); /* a failure without its reason */
  }
  free(text);
  return 0;
}
