/* SPDX-License-Identifier: Apache-2.0
 * Under the address sanitizer memory is not kept for later use: it would hide who uses it too late. */
#ifndef BRANT_BASE_SANITIZE_H
#define BRANT_BASE_SANITIZE_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BR_KEEP_NOTHING 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BR_KEEP_NOTHING 1
#endif
#ifndef BR_KEEP_NOTHING
#define BR_KEEP_NOTHING 0
#endif

#endif
