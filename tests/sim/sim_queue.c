/* SPDX-License-Identifier: Apache-2.0
 * The simulated clock: a heap of events by time, then by the order in which they were made. And the random numbers. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_world.h"

uint64_t sim_mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t sim_next(sim_rng *r) { return sim_mix(r->s += 0x9E3779B97F4A7C15u, 1); }
uint32_t sim_below(sim_rng *r, uint32_t n) { return (uint32_t)(sim_next(r) % n); }
uint32_t sim_between(sim_rng *r, uint32_t lo, uint32_t hi) { return lo + sim_below(r, hi - lo + 1); }
bool sim_chance(sim_rng *r, uint32_t per_mille) { return sim_below(r, 1000) < per_mille; }

static bool earlier(const sim_event *a, const sim_event *b) {
  return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

static void put(sim_world *w, sim_event *e, uint64_t at_ms) {
  br_grow((void **)&w->heap, &w->cap_heap, w->n_heap, sizeof *w->heap);
  e->at_ms = at_ms;
  size_t i = w->n_heap++;
  for (; i > 0 && earlier(e, w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
  w->heap[i] = e;
}

sim_event *sim_push(sim_world *w, uint64_t at_ms, sim_kind kind) {
  sim_event *e = w->n_spare > 0 ? w->spare[--w->n_spare] : br_malloc(sizeof *e);
  e->kind = kind;
  e->w = e->a = e->b = 0;
  e->seq = ++w->seq;
  put(w, e, at_ms);
  return e;
}

/* It keeps its number, and with that its place among those that are put off to the same time. */
void sim_again(sim_world *w, sim_event *e, uint64_t at_ms) { put(w, e, at_ms); }

sim_event *sim_pop(sim_world *w) {
  if (w->n_heap == 0) return NULL;
  sim_event *first = w->heap[0], *last = w->heap[--w->n_heap];
  size_t i = 0;
  for (;;) {
    size_t c = 2 * i + 1;
    if (c >= w->n_heap) break;
    if (c + 1 < w->n_heap && earlier(w->heap[c + 1], w->heap[c])) c++;
    if (!earlier(w->heap[c], last)) break;
    w->heap[i] = w->heap[c];
    i = c;
  }
  if (w->n_heap > 0) w->heap[i] = last;
  return first;
}

void sim_recycle(sim_world *w, sim_event *e) {
  br_grow((void **)&w->spare, &w->cap_spare, w->n_spare, sizeof *w->spare);
  w->spare[w->n_spare++] = e;
}
