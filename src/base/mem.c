/* SPDX-License-Identifier: Apache-2.0
 * Heap helpers that end the process when a small allocation fails, and the arena: blocks in a list, doubling from 4 KiB to
 * 1 MiB, freed at once after its cleanups ran (last registered first). An arena belongs to one thread at a time. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, size_t bytes) {
  if (p == NULL && bytes > 0) {
    fprintf(stderr, "brant: out of memory (asked for %zu bytes)\n", bytes);
    abort();
  }
  return p;
}

void *br_malloc(size_t bytes) { return checked(malloc(bytes ? bytes : 1), bytes); }

void *br_calloc(size_t count, size_t bytes) {
  size_t total = 0;
  BR_ASSERT(!__builtin_mul_overflow(count, bytes, &total));
  return checked(calloc(count ? count : 1, bytes ? bytes : 1), total);
}

void *br_realloc(void *p, size_t bytes) { return checked(realloc(p, bytes ? bytes : 1), bytes); }

char *br_strdup(const char *s) { return br_strndup(s, strlen(s)); }

char *br_strndup(const char *s, size_t n) {
  size_t len = strnlen(s, n);
  char *p = br_malloc(len + 1);
  memcpy(p, s, len);
  p[len] = 0;
  return p;
}

char *br_asprintf(const char *fmt, ...) {
  va_list ap;
  char *out = NULL;
  va_start(ap, fmt);
  int n = vasprintf(&out, fmt, ap);
  va_end(ap);
  return checked(n < 0 ? NULL : out, 1);
}

void br_grow(void **items, size_t *capacity, size_t count, size_t item_bytes) {
  if (count < *capacity) return;
  size_t want = *capacity ? *capacity * 2 : 8, bytes = 0;
  BR_ASSERT(!__builtin_mul_overflow(want, item_bytes, &bytes));
  *items = br_realloc(*items, bytes);
  *capacity = want;
}

/* ---- arena */
#define ARENA_FIRST_BYTES 4096u
#define ARENA_LARGEST_BYTES (1u << 20)

typedef struct block {
  struct block *next;
  size_t used, size;
  _Alignas(16) char data[];
} block;

typedef struct cleanup {
  struct cleanup *next;
  void (*fn)(void *);
  void *arg;
} cleanup;

struct br_arena {
  block *blocks;
  cleanup *cleanups;
  size_t next_bytes, total_bytes;
};

br_arena *br_arena_new(void) {
  br_arena *a = br_calloc(1, sizeof *a);
  a->next_bytes = ARENA_FIRST_BYTES;
  return a;
}

void br_arena_free(br_arena *a) {
  if (a == NULL) return;
  for (cleanup *c = a->cleanups; c != NULL; c = c->next) c->fn(c->arg); /* they live in the blocks */
  for (block *b = a->blocks; b != NULL;) {
    block *next = b->next;
    free(b);
    b = next;
  }
  free(a);
}

static block *add_block(br_arena *a, size_t bytes) {
  size_t size = bytes > a->next_bytes ? bytes : a->next_bytes;
  block *b = br_malloc(sizeof *b + size);
  b->used = 0;
  b->size = size;
  b->next = a->blocks;
  a->blocks = b;
  a->total_bytes += sizeof *b + size;
  if (a->next_bytes < ARENA_LARGEST_BYTES) a->next_bytes *= 2;
  return b;
}

void *br_arena_alloc(br_arena *a, size_t bytes) {
  size_t want = (bytes + 15) & ~(size_t)15;
  BR_ASSERT(want >= bytes);
  block *b = a->blocks;
  if (b == NULL || b->size - b->used < want) b = add_block(a, want);
  void *p = b->data + b->used;
  b->used += want;
  memset(p, 0, want);
  return p;
}

char *br_arena_strndup(br_arena *a, const char *s, size_t n) {
  size_t len = strnlen(s, n);
  char *p = br_arena_alloc(a, len + 1);
  memcpy(p, s, len);
  return p;
}

char *br_arena_strdup(br_arena *a, const char *s) { return br_arena_strndup(a, s, strlen(s)); }

char *br_arena_printf(br_arena *a, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  BR_ASSERT(n >= 0);
  char *p = br_arena_alloc(a, (size_t)n + 1);
  vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

void br_arena_cleanup(br_arena *a, void (*fn)(void *), void *arg) {
  cleanup *c = br_arena_alloc(a, sizeof *c);
  c->fn = fn;
  c->arg = arg;
  c->next = a->cleanups;
  a->cleanups = c;
}

size_t br_arena_bytes(const br_arena *a) { return a->total_bytes; }
