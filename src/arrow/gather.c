/* SPDX-License-Identifier: Apache-2.0
 *
 * Purpose: make blocks for br_colset_scatter larger than an engine's vectors. 2,048 rows over 512 partitions are 4 a partition:
 *   each cache line is written half, and pushed out before its other half comes. 8,192 rows write whole lines, and the pages of
 *   the partitions are looked up a quarter as often.
 * Order of calls: new, then add until it has no room, columns and clear, in turns; free.
 * Threads: one owner.
 * Bounds: BR_GATHER_ROWS rows in all columns and TEXT_SHARE of that for strings that aren't inline, within most_bytes.
 */
#include "arrow/gather.h"

#include "arrow/builder.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

#define TEXT_SHARE 2u /* of the columns' bytes: half for strings */

struct br_gather {
  uint32_t n_columns, rows;
  uint64_t text_bytes, text_len; /* text_len: in use */
  char *text;                    /* of strings that aren't inline */
  uint64_t (*validity)[BR_GATHER_ROWS / 64];
  br_vec columns[];
};

static uint32_t width_of(const br_vec *v) {
  switch (v->kind) {
    case BR_VEC_BOOL: return 1;
    case BR_VEC_FIXED: return v->width;
    case BR_VEC_STRING:
    case BR_VEC_INTERVAL: return 16;
    default: return 0;
  }
}

static bool is_flat(const br_vec *v) { return v->kind == BR_VEC_NULL || width_of(v) > 0; }

br_gather *br_gather_new(const br_vec *columns, uint32_t n_columns, uint64_t most_bytes) {
  uint64_t row_bytes = 0;
  for (uint32_t k = 0; k < n_columns; k++) {
    if (!is_flat(&columns[k])) return NULL;
    row_bytes += width_of(&columns[k]);
  }
  uint64_t bytes = row_bytes * BR_GATHER_ROWS, text = bytes / TEXT_SHARE;
  if (bytes + text > most_bytes) return NULL;
  br_gather *s = br_calloc(1, sizeof *s + n_columns * sizeof *s->columns);
  s->n_columns = n_columns;
  s->text_bytes = text;
  s->text = br_malloc(text + 1);
  s->validity = br_malloc(n_columns * sizeof *s->validity + 1);
  memset(s->validity, 0xff, n_columns * sizeof *s->validity);
  for (uint32_t k = 0; k < n_columns; k++) {
    s->columns[k] = columns[k];
    s->columns[k].data = br_malloc((size_t)width_of(&columns[k]) * BR_GATHER_ROWS + 1);
    s->columns[k].validity = NULL;
  }
  return s;
}

void br_gather_free(br_gather *s) {
  if (s == NULL) return;
  for (uint32_t k = 0; k < s->n_columns; k++) free((void *)s->columns[k].data);
  free(s->text);
  free(s->validity);
  free(s);
}

static void add_validity(br_gather *s, uint32_t k, const br_vec *v, uint32_t rows) {
  uint64_t *to = s->validity[k];
  for (uint32_t i = 0; i < rows; i += 64) {
    uint64_t nulls = ~v->validity[i / 64];
    if (rows - i < 64) nulls &= ((uint64_t)1 << (rows - i)) - 1;
    if (nulls == 0) continue;
    uint32_t at = s->rows + i, shift = at % 64;
    to[at / 64] &= ~(nulls << shift);
    if (shift > 0 && nulls >> (64 - shift) != 0) to[at / 64 + 1] &= ~(nulls >> (64 - shift));
    s->columns[k].validity = to;
  }
}

static void add_strings(br_gather *s, const br_vec *v, br_vec_string *to, uint32_t rows) {
  const br_vec_string *from = v->data;
  for (uint32_t i = 0; i < rows; i++) {
    if (v->validity != NULL && br_vec_is_null(v, i)) {
      to[i].length = 0;
      continue;
    }
    to[i] = from[i];
    if (from[i].length <= sizeof from[i].inlined) continue;
    char *text = s->text + s->text_len;
    memcpy(text, br_vec_string_pointer(&from[i]), from[i].length);
    memcpy(to[i].inlined + 4, &text, sizeof text);
    s->text_len += from[i].length;
  }
}

/* Of strings that aren't inline. */
static uint64_t text_of(const br_vec *v, uint32_t rows) {
  const br_vec_string *from = v->data;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < rows; i++)
    if (from[i].length > sizeof from[i].inlined && (v->validity == NULL || !br_vec_is_null(v, i)))
      bytes += from[i].length;
  return bytes;
}

bool br_gather_add(br_gather *s, const br_vec *columns, uint32_t rows) {
  uint64_t text_bytes = 0;
  if (rows > BR_GATHER_ROWS - s->rows) return false;
  for (uint32_t k = 0; k < s->n_columns; k++)
    if (columns[k].kind == BR_VEC_STRING) text_bytes += text_of(&columns[k], rows);
  if (text_bytes > s->text_bytes - s->text_len) return false;
  for (uint32_t k = 0; k < s->n_columns; k++) {
    const br_vec *v = &columns[k];
    size_t width = width_of(v);
    char *to = (char *)s->columns[k].data + s->rows * width;
    if (v->kind == BR_VEC_STRING)
      add_strings(s, v, (br_vec_string *)(void *)to, rows);
    else if (width > 0)
      memcpy(to, v->data, rows * width);
    if (v->validity != NULL) add_validity(s, k, v, rows);
  }
  s->rows += rows;
  return true;
}

uint32_t br_gather_rows(const br_gather *s) { return s->rows; }
const br_vec *br_gather_columns(const br_gather *s) { return s->columns; }

void br_gather_clear(br_gather *s) {
  for (uint32_t k = 0; k < s->n_columns; k++) {
    if (s->columns[k].validity != NULL) memset(s->validity[k], 0xff, sizeof s->validity[k]);
    s->columns[k].validity = NULL;
  }
  s->rows = 0;
  s->text_len = 0;
}
