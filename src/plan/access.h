/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of a JSON object that came from outside: each getter takes NULL and wrong types and answers with "nothing".
 * Internal to plan/.
 */
#ifndef BRANT_PLAN_ACCESS_H
#define BRANT_PLAN_ACCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

static inline json_t *br_j_get(const json_t *object, const char *key) { return json_object_get(object, key); }

/* "" when it is missing or no string. */
static inline const char *br_j_str(const json_t *object, const char *key) {
  const char *s = json_string_value(json_object_get(object, key));
  return s ? s : "";
}

static inline bool br_j_is(const json_t *object, const char *key, const char *value) {
  return !strcmp(br_j_str(object, key), value);
}

static inline bool br_j_true(const json_t *object, const char *key) {
  return json_is_true(json_object_get(object, key));
}

/* Number of elements of an array field; 0 when it is missing or no array. */
static inline size_t br_j_count(const json_t *object, const char *key) {
  return json_array_size(json_object_get(object, key));
}

static inline json_t *br_j_at(const json_t *object, const char *key, size_t i) {
  return json_array_get(json_object_get(object, key), i);
}

/* The field when it is there and not null, else NULL. */
static inline json_t *br_j_some(const json_t *object, const char *key) {
  json_t *j = json_object_get(object, key);
  return json_is_null(j) ? NULL : j;
}

#endif
