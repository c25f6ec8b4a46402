/* SPDX-License-Identifier: Apache-2.0
 * Open-addressing hash maps to pointers, keyed by uint64_t or by string (the map copies the string). Not thread-safe.
 * Values are not owned. Iteration order is unspecified: sort what a person or a test will see. */
#ifndef BRANT_BASE_MAP_H
#define BRANT_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct br_map br_map; /* uint64_t -> void* */
br_map *br_map_new(void);
void br_map_free(br_map *m);
void *br_map_get(const br_map *m, uint64_t key);        /* NULL: not there */
void *br_map_put(br_map *m, uint64_t key, void *value); /* returns the value it replaced, or NULL; value not NULL */
void *br_map_remove(br_map *m, uint64_t key);           /* returns the removed value, or NULL */
size_t br_map_count(const br_map *m);
/* for (size_t it = 0; br_map_next(m, &it, &key, &value);) — removing the entry just returned is allowed. */
bool br_map_next(const br_map *m, size_t *it, uint64_t *key, void **value);

typedef struct br_smap br_smap; /* string -> void* */
br_smap *br_smap_new(void);
void br_smap_free(br_smap *m);
void *br_smap_get(const br_smap *m, const char *key);
void *br_smap_put(br_smap *m, const char *key, void *value);
void *br_smap_remove(br_smap *m, const char *key);
size_t br_smap_count(const br_smap *m);
bool br_smap_next(const br_smap *m, size_t *it, const char **key, void **value);

#endif
