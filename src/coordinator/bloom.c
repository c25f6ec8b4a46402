/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a Bloom filter of a join's keys made? The keys' stage has run, so their number is known. Not when they are few (the stages that they
 * filter may read themselves), when most of the rows that look for them will find one, or when the filter would be too large. Then the
 * stage that makes it has no task, and nobody waits for it.
 *
 * Order of calls: br_bloom_decide once, when the scheduler asks how the stage is to be run (adapt.c); the stages that read the filter are asked
 * for after that, and follow what was decided, also in later attempts. With the query's lock, on the loop thread. Bounds: O(stages).
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/query.h"

#define BLOCK_BYTES 32u  /* functions/bloom.h */
#define KEY_BITS 12      /* one in 200 other keys is found, */
#define LEAST_KEY_BITS 8 /* or one in 40 */
#define MOST_KEPT 0.6    /* of the rows: then it is not worth it */
/* What was measured (decisions/014): nanoseconds of a row that is shuffled, a look into the filter, a key that is put into it, the filter's
 * way included. */
#define ROW_NS 80.0
#define LOOK_NS 15.0
#define KEY_NS 40.0

static uint32_t keys_of(const br_query *q, const br_stage_input *in) {
  return q->runs[in->producer].plan->inputs[0].producer;
}

bool br_bloom_made(const br_query *q, const br_stage_input *in) { return q->runs[in->producer].n_tasks > 0; }

bool br_bloom_instead(const br_query *q, const br_stage_run *r, const br_stage_input *in) {
  for (size_t i = 0; i < r->plan->n_inputs; i++) {
    const br_stage_input *b = &r->plan->inputs[i];
    if (b->kind == BR_EX_BLOOM && keys_of(q, b) == in->producer && br_bloom_made(q, b)) return true;
  }
  return false;
}

/* Rows of the largest scan below the stage: it and the ones before it left some of them. */
static uint64_t rows_below(const br_query *q, uint32_t stage) {
  uint64_t *most = br_calloc(stage + 1, sizeof *most);
  for (uint32_t i = 0; i <= stage; i++) {
    const br_stage_run *r = &q->runs[i];
    most[i] = r->split_rows > r->rows_out ? r->split_rows : r->rows_out;
    for (size_t k = 0; k < r->plan->n_inputs; k++) {
      const br_stage_input *in = &r->plan->inputs[k];
      if (!br_exchange_helps(in->kind) && most[in->producer] > most[i]) most[i] = most[in->producer];
    }
  }
  uint64_t rows = most[stage];
  free(most);
  return rows;
}

/* How much of the values between the least and the greatest key so many keys cover, if they lie there at random; 0: it isn't known. */
static double covered(const br_query *q, const br_stage_input *filter, size_t n_keys, uint64_t keys) {
  const br_key_range *range = filter->n_ranges == 1 && n_keys == 1 ? br_filter_range(q, filter, filter->ranges) : NULL;
  if (range == NULL || !range->any) return 0;
  return 1 - exp(-(double)keys / ((double)range->greatest - (double)range->least + 1));
}

/* What the filter saves one stage that would read it, in nanoseconds. */
static double saves(const br_query *q, const br_stage_run *reader, uint32_t keyed, size_t n_keys) {
  const br_stage_run *p = &q->runs[keyed];
  uint64_t below = rows_below(q, keyed);
  double rows = (double)br_filter_rows(q, reader), kept = below ? (double)p->rows_out / (double)below : 1;
  if (reader->plan->rows >= 0 && reader->plan->rows < rows) rows = reader->plan->rows;
  for (size_t i = 0; i < reader->plan->n_inputs; i++) {
    const br_stage_input *in = &reader->plan->inputs[i];
    if (in->kind != BR_EX_FILTER || in->producer != keyed) continue;
    double there = covered(q, in, n_keys, p->rows_out);
    if (there > kept) kept = there;
  }
  return kept > MOST_KEPT ? 0 : rows * ((1 - kept) * ROW_NS - LOOK_NS);
}

/* Of all stages that would read the filter; not of those that will run within the join anyway. */
static double saves_all(const br_query *q, uint32_t maker, uint32_t keyed, size_t n_keys) {
  double ns = 0;
  for (uint32_t i = maker + 1; i < q->n_runs; i++)
    for (size_t k = 0; k < q->runs[i].plan->n_inputs; k++) {
      const br_stage_input *in = &q->runs[i].plan->inputs[k];
      if (in->kind == BR_EX_BLOOM && in->producer == maker && !br_query_may_join_in_place(q, i))
        ns += saves(q, &q->runs[i], keyed, n_keys);
    }
  return ns;
}

/* So that the filter fits into bloom_bytes; 0: it can't. */
static uint32_t blocks_for(const br_query *q, uint64_t keys) {
  uint64_t most = q->bloom_bytes / BLOCK_BYTES, a_block = BLOCK_BYTES * 8;
  if (keys > UINT32_MAX || keys * LEAST_KEY_BITS / a_block >= most) return 0;
  uint64_t blocks = keys * KEY_BITS / a_block + 1;
  return (uint32_t)(blocks < most ? blocks : most);
}

void br_bloom_decide(br_query *q, br_stage_run *r) {
  const br_stage_input *in = &r->plan->inputs[0];
  uint64_t keys = q->runs[in->producer].rows_out;
  const char *not = NULL;
  char size[16];
  r->bloom_blocks = blocks_for(q, keys);
  if (keys == 0)
    not = "there is no key";
  else if (keys < q->bloom_keys)
    not = "the keys are few";
  else if (r->bloom_blocks == 0)
    not = "it would be larger than bloom_bytes";
  else if (q->bloom_keys > 0 && saves_all(q, r->plan->id, in->producer, in->n_keys) < (double)keys * KEY_NS)
    not = "it would drop too few rows";
  br_format_bytes((uint64_t)r->bloom_blocks * BLOCK_BYTES, size);
  if (not == NULL) {
    br_query_say(r, "%s for %llu keys", size, (unsigned long long)keys);
    return;
  }
  br_query_say(r, "no filter of %llu keys: %s", (unsigned long long)keys, not );
  br_query_set_tasks(q, r, 0);
}
