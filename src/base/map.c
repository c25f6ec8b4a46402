/* SPDX-License-Identifier: Apache-2.0
 * Hash maps by open addressing, linear probing, load <= 3/4. A removed slot becomes a tombstone, so that an iteration may
 * remove the entry it just returned; rehashing drops the tombstones. Not thread-safe. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

static char tombstone_mark;
#define TOMBSTONE ((void *)&tombstone_mark)

typedef struct slot {
  uint64_t key;
  void *value; /* NULL: free, TOMBSTONE: removed */
} slot;

struct br_map {
  slot *slots;
  size_t capacity, count, used; /* used counts tombstones too */
};

static uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

br_map *br_map_new(void) { return br_calloc(1, sizeof(br_map)); }

void br_map_free(br_map *m) {
  if (m == NULL) return;
  free(m->slots);
  free(m);
}

static slot *find(const br_map *m, uint64_t key) {
  if (m->capacity == 0) return NULL;
  for (size_t i = mix(key) & (m->capacity - 1);; i = (i + 1) & (m->capacity - 1)) {
    slot *s = &m->slots[i];
    if (s->value == NULL) return NULL;
    if (s->value != TOMBSTONE && s->key == key) return s;
  }
}

static void insert_new(br_map *m, uint64_t key, void *value) {
  size_t i = mix(key) & (m->capacity - 1);
  while (m->slots[i].value != NULL && m->slots[i].value != TOMBSTONE) i = (i + 1) & (m->capacity - 1);
  if (m->slots[i].value == NULL) m->used++;
  m->slots[i] = (slot){key, value};
  m->count++;
}

static void make_room(br_map *m) {
  if ((m->used + 1) * 4 <= m->capacity * 3) return;
  slot *old = m->slots;
  size_t old_capacity = m->capacity;
  m->capacity = 16;
  while (m->capacity < (m->count + 1) * 2) m->capacity *= 2;
  m->slots = br_calloc(m->capacity, sizeof *m->slots);
  m->count = m->used = 0;
  for (size_t i = 0; i < old_capacity; i++)
    if (old[i].value != NULL && old[i].value != TOMBSTONE) insert_new(m, old[i].key, old[i].value);
  free(old);
}

void *br_map_get(const br_map *m, uint64_t key) {
  slot *s = find(m, key);
  return s ? s->value : NULL;
}

void *br_map_put(br_map *m, uint64_t key, void *value) {
  BR_ASSERT(value != NULL);
  slot *s = find(m, key);
  if (s != NULL) {
    void *old = s->value;
    s->value = value;
    return old;
  }
  make_room(m);
  insert_new(m, key, value);
  return NULL;
}

void *br_map_remove(br_map *m, uint64_t key) {
  slot *s = find(m, key);
  if (s == NULL) return NULL;
  void *old = s->value;
  s->value = TOMBSTONE;
  m->count--;
  return old;
}

size_t br_map_count(const br_map *m) { return m->count; }

bool br_map_next(const br_map *m, size_t *it, uint64_t *key, void **value) {
  for (; *it < m->capacity; (*it)++) {
    slot *s = &m->slots[*it];
    if (s->value == NULL || s->value == TOMBSTONE) continue;
    if (key != NULL) *key = s->key;
    if (value != NULL) *value = s->value;
    (*it)++;
    return true;
  }
  return false;
}

/* ---- strings: a map from the hash to a chain of entries */
typedef struct sentry {
  struct sentry *next;
  void *value;
  char key[];
} sentry;

struct br_smap {
  br_map *by_hash;
  size_t count;
};

br_smap *br_smap_new(void) {
  br_smap *m = br_calloc(1, sizeof *m);
  m->by_hash = br_map_new();
  return m;
}

void br_smap_free(br_smap *m) {
  if (m == NULL) return;
  void *v = NULL;
  for (size_t it = 0; br_map_next(m->by_hash, &it, NULL, &v);)
    for (sentry *e = v; e != NULL;) {
      sentry *next = e->next;
      free(e);
      e = next;
    }
  br_map_free(m->by_hash);
  free(m);
}

static uint64_t hash_string(const char *s) { return XXH3_64bits(s, strlen(s)); }

static sentry *sfind(const br_smap *m, const char *key) {
  sentry *e = br_map_get(m->by_hash, hash_string(key));
  while (e != NULL && strcmp(e->key, key) != 0) e = e->next;
  return e;
}

void *br_smap_get(const br_smap *m, const char *key) {
  sentry *e = sfind(m, key);
  return e ? e->value : NULL;
}

void *br_smap_put(br_smap *m, const char *key, void *value) {
  BR_ASSERT(value != NULL);
  sentry *e = sfind(m, key);
  if (e != NULL) {
    void *old = e->value;
    e->value = value;
    return old;
  }
  uint64_t h = hash_string(key);
  size_t n = strlen(key);
  e = br_malloc(sizeof *e + n + 1);
  memcpy(e->key, key, n + 1);
  e->value = value;
  e->next = br_map_get(m->by_hash, h);
  br_map_put(m->by_hash, h, e);
  m->count++;
  return NULL;
}

void *br_smap_remove(br_smap *m, const char *key) {
  uint64_t h = hash_string(key);
  sentry *head = br_map_get(m->by_hash, h);
  for (sentry **at = &head; *at != NULL; at = &(*at)->next) {
    sentry *e = *at;
    if (strcmp(e->key, key) != 0) continue;
    void *old = e->value;
    *at = e->next;
    free(e);
    if (head == NULL)
      br_map_remove(m->by_hash, h);
    else
      br_map_put(m->by_hash, h, head);
    m->count--;
    return old;
  }
  return NULL;
}

size_t br_smap_count(const br_smap *m) { return m->count; }

/* *it holds the slot in its upper bits and the position in the chain in the low 16. */
bool br_smap_next(const br_smap *m, size_t *it, const char **key, void **value) {
  for (;;) {
    size_t slot_at = *it >> 16, depth = *it & 0xffff, next = slot_at;
    void *v = NULL;
    if (!br_map_next(m->by_hash, &next, NULL, &v)) return false;
    if (next != slot_at + 1) depth = 0; /* free slots were passed over: a new chain */
    sentry *e = v;
    for (size_t d = 0; d < depth && e != NULL; d++) e = e->next;
    if (e == NULL) {
      *it = next << 16;
      continue;
    }
    *it = ((next - 1) << 16) | (depth + 1);
    if (key != NULL) *key = e->key;
    if (value != NULL) *value = e->value;
    return true;
  }
}
