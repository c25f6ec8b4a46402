/* SPDX-License-Identifier: Apache-2.0
 * Heap helpers that never return NULL (out of memory for small objects ends the process with a message: the node's
 * memory has one owner, budget.h, and large buffers are asked for there first), and an arena. */
#ifndef BRANT_BASE_MEM_H
#define BRANT_BASE_MEM_H

#include "base/status.h"
#include <stddef.h>

void *br_malloc(size_t bytes);
void *br_calloc(size_t count, size_t bytes);
void *br_realloc(void *p, size_t bytes);
char *br_strdup(const char *s);
char *br_strndup(const char *s, size_t n);
char *br_asprintf(const char *fmt, ...) BR_PRINTF(1, 2); /* free() it */
/* Grow *items (of item_bytes each) so that one more than count fits; *capacity doubles. */
void br_grow(void **items, size_t *capacity, size_t count, size_t item_bytes);

/* Arena: one owner, freed at once. Not thread-safe. */
typedef struct br_arena br_arena;
br_arena *br_arena_new(void);
void br_arena_free(br_arena *a);                 /* runs cleanups, last registered first; NULL is fine */
void *br_arena_alloc(br_arena *a, size_t bytes); /* zeroed, aligned to 16 */
char *br_arena_strdup(br_arena *a, const char *s);
char *br_arena_strndup(br_arena *a, const char *s, size_t n);
char *br_arena_printf(br_arena *a, const char *fmt, ...) BR_PRINTF(2, 3);
void br_arena_cleanup(br_arena *a, void (*fn)(void *), void *arg);
size_t br_arena_bytes(const br_arena *a);

#endif
