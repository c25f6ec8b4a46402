/* SPDX-License-Identifier: Apache-2.0
 * XXH3 as the processor does it best: the library's plain functions are those of the least of its kind (SSE2: 10 GB/s, AVX2: 35). The values
 * are the same. */
#ifndef BRANT_SHUFFLE_CHECKSUM_H
#define BRANT_SHUFFLE_CHECKSUM_H

#define XXH_STATIC_LINKING_ONLY /* a state on the stack */
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#endif
