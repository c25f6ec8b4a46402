/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of received bodies, aligned to 64. Fresh pages cost more CPU than receiving into them (measured with 8 streams of
 * 4 MiB batches: 0.96 CPU s/GiB with malloc alone, 0.33 without page faults), so freed blocks are kept for the next body,
 * and large ones are made of huge pages.
 *
 * Order of calls: alloc, free. Threads: any; one lock, held for list work only. Bounds: BODY_CACHE_BYTES a process are
 * kept, and given back by br_flight_body_trim. Under the address sanitizer nothing is kept, so that it sees every free.
 */
#include "flight/message.h"
#include "base/sanitize.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BODY_CACHE_BYTES (32u << 20)
#define CACHED_LEAST_BYTES (64u << 10) /* below: malloc does well */
#define CACHED_MOST_BYTES (BODY_CACHE_BYTES / 2)
#define MAPPED_LEAST_BYTES (4u << 20) /* from here on: mmap, in huge pages where whole ones fit */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HEADER_BYTES 64

typedef struct block { /* in front of a body */
  struct block *newer, *older;
  size_t bytes; /* with this header */
} block;
_Static_assert(sizeof(block) <= HEADER_BYTES, "the header keeps bodies aligned");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *newest, *oldest;
static size_t cached_bytes;

/* Eight sizes for each power of two, so that blocks fit later bodies of about the same size; at most an eighth is lost. */
static size_t size_class(size_t n) {
  size_t step = 64;
  while (step * 16 <= n) step *= 2;
  return (n + step - 1) / step * step;
}

static void unlink_block(block *b) {
  if (b->newer)
    b->newer->older = b->older;
  else
    newest = b->older;
  if (b->older)
    b->older->newer = b->newer;
  else
    oldest = b->newer;
  cached_bytes -= b->bytes;
}

static block *take_cached(size_t bytes) {
  pthread_mutex_lock(&lock);
  block *b = newest;
  while (b && b->bytes != bytes) b = b->older;
  if (b) unlink_block(b);
  pthread_mutex_unlock(&lock);
  return b;
}

static block *map_block(size_t bytes) {
  size_t room = bytes + HUGE_PAGE_BYTES;
  char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t before = (HUGE_PAGE_BYTES - (uintptr_t)p % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
  if (before) munmap(p, before);
  if (room - before > bytes) munmap(p + before + bytes, room - before - bytes);
  /* Only whole huge pages: the end of a body must not take 2 MiB for its last bytes. */
  (void)madvise(p + before, bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
  return (block *)(p + before);
}

static void give_back(block *b) {
  if (b->bytes >= MAPPED_LEAST_BYTES)
    munmap(b, b->bytes);
  else
    free(b);
}

void *br_flight_body_alloc(size_t n) {
  size_t bytes = (n + HEADER_BYTES + 63) & ~(size_t)63;
  block *b = NULL;
  if (bytes >= CACHED_LEAST_BYTES) bytes = size_class(bytes);
  if (bytes >= MAPPED_LEAST_BYTES) bytes = (bytes + 4095) & ~(size_t)4095;
  if (bytes >= CACHED_LEAST_BYTES && bytes <= CACHED_MOST_BYTES) b = take_cached(bytes);
  if (!b) b = bytes >= MAPPED_LEAST_BYTES ? map_block(bytes) : aligned_alloc(64, bytes);
  if (!b) return NULL;
  b->bytes = bytes;
  return (char *)b + HEADER_BYTES;
}

/* What is above `most` bytes of the cache, oldest first, linked by `older`. Under the lock. */
static block *evict(size_t most) {
  block *out = NULL;
  while (cached_bytes > most) {
    block *b = oldest;
    unlink_block(b);
    b->older = out;
    out = b;
  }
  return out;
}

static void give_back_all(block *list) {
  while (list) {
    block *next = list->older;
    give_back(list);
    list = next;
  }
}

void br_flight_body_free(void *body) {
  if (!body) return;
  block *b = (block *)((char *)body - HEADER_BYTES);
  if (BR_KEEP_NOTHING || b->bytes < CACHED_LEAST_BYTES || b->bytes > CACHED_MOST_BYTES) {
    give_back(b);
    return;
  }
  pthread_mutex_lock(&lock);
  b->newer = NULL;
  b->older = newest;
  if (newest) newest->newer = b;
  if (!oldest) oldest = b;
  newest = b;
  cached_bytes += b->bytes;
  block *over = evict(BODY_CACHE_BYTES);
  pthread_mutex_unlock(&lock);
  give_back_all(over);
}

void br_flight_body_trim(void) {
  pthread_mutex_lock(&lock);
  block *all = evict(0);
  pthread_mutex_unlock(&lock);
  give_back_all(all);
}
