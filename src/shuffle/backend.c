/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight backend: outputs in the node's store, read by mapping or by DoGet. Everything else that is a backend (shared
 * files, Ray) fills the same table.
 */
#include "shuffle/shuffle.h"

#include <stddef.h>

static void flight_drop(br_store *s, uint64_t query, const uint32_t *stage_or_all) {
  if (stage_or_all != NULL)
    br_store_drop_stage(s, query, *stage_or_all);
  else
    br_store_drop_query(s, query);
}

const br_shuffle_backend br_flight_backend = {.name = "flight",
                                              .ranges = true,
                                              .writer_open = br_writer_open,
                                              .reader_open = br_reader_open,
                                              .drop = flight_drop};
