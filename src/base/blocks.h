/* SPDX-License-Identifier: Apache-2.0
 * Blocks of memory that are asked for again and again: freed ones are kept for the next that fits, because fresh pages cost more
 * CPU than what is done with them (blocks.c has numbers). Until br_blocks_keep nothing is kept. Any thread. */
#ifndef BRANT_BASE_BLOCKS_H
#define BRANT_BASE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define BR_BLOCK_LEAST_BYTES 4096u /* smaller ones are malloc's, none are kept */

/* From here on freed blocks are kept, as long as those in use and those kept are together no more than this. 0: none. */
void br_blocks_keep(uint64_t most_bytes);
void br_blocks_trim(void); /* what is kept goes back to malloc */
/* Room for at least `bytes` (the contents up to old_bytes stay; p may be NULL with 0), aligned to 16. Never NULL: like br_realloc. */
void *br_block_grow(void *p, size_t old_bytes, size_t bytes);
void br_block_free(void *p); /* NULL is fine */
uint64_t br_blocks_kept_bytes(void);

#endif
