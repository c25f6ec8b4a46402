/* SPDX-License-Identifier: Apache-2.0
 * Internal to arrow/: checks over buffers from outside, in the order of GB/s. */
#ifndef BRANT_ARROW_IPC_CHECK_H
#define BRANT_ARROW_IPC_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* n + 1 offsets: none negative, none smaller than the one before, none past `limit`. */
bool br_check_offsets32(const int32_t *offsets, int64_t n, int64_t limit);
bool br_check_offsets64(const int64_t *offsets, int64_t n, int64_t limit);
/* The n strings between the (checked) offsets are UTF-8, those that `validity` (may be NULL) marks NULL excepted. */
bool br_check_utf8_32(const uint8_t *data, const int32_t *offsets, int64_t n, const uint8_t *validity);
bool br_check_utf8_64(const uint8_t *data, const int64_t *offsets, int64_t n, const uint8_t *validity);

#endif
