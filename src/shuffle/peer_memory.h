/* SPDX-License-Identifier: Apache-2.0
 * A map output in the memory of another process of this host, mapped instead of fetched. Any thread. */
#ifndef BRANT_SHUFFLE_PEER_MEMORY_H
#define BRANT_SHUFFLE_PEER_MEMORY_H

#include "shuffle/mapfile.h"
#include "shuffle/wire.h"

#define BR_PEER_MEMORY_MOST 16384u /* outputs that a process has mapped */

/* False: it failed again and again in this process. */
bool br_peer_memory_works(void);
/* Where this process has the output, for others. */
BR_MUST_USE br_status br_peer_memory_place(const br_mapfile *f, uint32_t map, br_wire_memory *out, br_error *err);
/* Open it: no descriptor stays. Fails when it can't be had from here, or isn't what `m` says: then it has to be fetched. */
BR_MUST_USE br_status br_peer_memory_open(const br_wire_memory *m, br_mapfile **out, br_error *err);

#endif
