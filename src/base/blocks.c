/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of memory for buffers that live for a task and are wanted by the next one again (the columns of a map output). With
 * malloc alone their pages went back to the system between two tasks: seven tenths of all page faults of a shuffle, each 1 to
 * 2.5 us of CPU and, in a virtual machine, time of the host besides.
 *
 * Order of calls: keep once; grow and free in any order; trim when nothing runs. Threads: any; one lock, for list work only,
 * never held over malloc or free. Bounds: br_blocks_keep's, of blocks in use and kept together, so that keeping
 * never adds to the most that is in use; a block may be an eighth larger than was asked for. Under the address sanitizer nothing
 * is kept, so that it sees every free.
 */
#include "base/blocks.h"

#include "base/mem.h"
#include "base/sanitize.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_A_DOUBLING 8u
#define DOUBLINGS 20u /* from BR_BLOCK_LEAST_BYTES to 4 GiB; larger ones are malloc's */
#define CLASSES (CLASSES_A_DOUBLING * DOUBLINGS)
#define NO_CLASS UINT32_MAX

typedef struct block { /* in front of the memory */
  size_t bytes;        /* without this header */
  struct block *next;  /* while kept */
} block;
_Static_assert(sizeof(block) == 16, "the header keeps blocks aligned");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *kept[CLASSES];
static uint64_t most_bytes, used_bytes, kept_bytes;

/* Eight sizes for each power of two; *bytes becomes the size of the class. */
static uint32_t class_of(size_t *bytes) {
  size_t step = BR_BLOCK_LEAST_BYTES / CLASSES_A_DOUBLING;
  uint32_t doubling = 0;
  if (*bytes < BR_BLOCK_LEAST_BYTES) return NO_CLASS;
  while (step * 2 * CLASSES_A_DOUBLING <= *bytes) step *= 2, doubling++;
  size_t eighths = (*bytes + step - 1) / step; /* 8 to 16 */
  uint32_t c = doubling * CLASSES_A_DOUBLING + (uint32_t)(eighths - CLASSES_A_DOUBLING);
  if (c >= CLASSES) return NO_CLASS;
  *bytes = eighths * step;
  return c;
}

/* Take kept blocks out, the largest first, until used and kept fit together; they are linked by `next`. Under the lock. */
static block *evict(void) {
  block *out = NULL;
  for (uint32_t c = CLASSES; c-- > 0 && kept_bytes > 0;) {
    while (kept[c] != NULL && used_bytes + kept_bytes > most_bytes) {
      block *b = kept[c];
      kept[c] = b->next;
      kept_bytes -= b->bytes;
      b->next = out;
      out = b;
    }
  }
  return out;
}

static void free_all(block *list) {
  while (list != NULL) {
    block *next = list->next;
    free(list);
    list = next;
  }
}

static block *take(uint32_t class, size_t bytes) {
  pthread_mutex_lock(&lock);
  block *b = kept[class];
  if (b != NULL) {
    kept[class] = b->next;
    kept_bytes -= bytes;
  }
  used_bytes += bytes;
  block *over = used_bytes + kept_bytes > most_bytes ? evict() : NULL;
  pthread_mutex_unlock(&lock);
  free_all(over);
  return b;
}

void br_block_free(void *p) {
  if (p == NULL) return;
  block *b = (block *)p - 1;
  size_t bytes = b->bytes;
  uint32_t class = class_of(&bytes);
  if (class != NO_CLASS) {
    pthread_mutex_lock(&lock);
    used_bytes -= bytes;
    if (!BR_KEEP_NOTHING && used_bytes + kept_bytes + bytes <= most_bytes) {
      b->next = kept[class];
      kept[class] = b;
      kept_bytes += bytes;
      b = NULL;
    }
    pthread_mutex_unlock(&lock);
  }
  free(b);
}

void *br_block_grow(void *p, size_t old_bytes, size_t bytes) {
  block *old = p != NULL ? (block *)p - 1 : NULL;
  if (old != NULL && old->bytes >= bytes) return p;
  uint32_t class = class_of(&bytes);
  if (class == NO_CLASS && (old == NULL || old->bytes < BR_BLOCK_LEAST_BYTES)) {
    block *b = br_realloc(old, sizeof *b + bytes);
    b->bytes = bytes;
    return b + 1;
  }
  block *b = class != NO_CLASS ? take(class, bytes) : NULL;
  if (b == NULL) b = br_malloc(sizeof *b + bytes);
  b->bytes = bytes;
  if (old_bytes > 0) memcpy(b + 1, p, old_bytes);
  br_block_free(p);
  return b + 1;
}

void br_blocks_keep(uint64_t most) {
  pthread_mutex_lock(&lock);
  most_bytes = most;
  block *over = evict();
  pthread_mutex_unlock(&lock);
  free_all(over);
}

void br_blocks_trim(void) {
  pthread_mutex_lock(&lock);
  uint64_t most = most_bytes;
  most_bytes = 0;
  block *all = evict();
  most_bytes = most;
  pthread_mutex_unlock(&lock);
  free_all(all);
}

uint64_t br_blocks_kept_bytes(void) {
  pthread_mutex_lock(&lock);
  uint64_t bytes = kept_bytes;
  pthread_mutex_unlock(&lock);
  return bytes;
}
