/* SPDX-License-Identifier: Apache-2.0
 * Least and greatest values of output columns, for run-time filters of other stages. Each writing thread has its own, which are put
 * together when it ends. Order: open, then new, see, end (or abandon) a thread, then tell. Threads: new and end lock; see is a thread's
 * own. Bounds: 24 bytes a column and thread. */
#include "executor/executor.h"

#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

static void widen(br_eranges_one *r, int64_t least, int64_t greatest) {
  if (!r->any || least < r->least) r->least = least;
  if (!r->any || greatest > r->greatest) r->greatest = greatest;
  r->any = true;
}

#define SEE(type)                                                             \
  static void see_##type(const br_vec *v, uint32_t rows, br_eranges_one *r) { \
    const type *data = v->data;                                               \
    type least = 0, greatest = 0;                                             \
    bool any = false;                                                         \
    for (uint32_t i = 0; i < rows; i++) {                                     \
      if (v->validity && !(v->validity[i / 64] >> (i % 64) & 1)) continue;    \
      if (!any) least = greatest = data[i];                                   \
      any = true;                                                             \
      least = data[i] < least ? data[i] : least;                              \
      greatest = data[i] > greatest ? data[i] : greatest;                     \
    }                                                                         \
    if (any) widen(r, (int64_t)least, (int64_t)greatest);                     \
  }

SEE(int8_t)
SEE(int16_t)
SEE(int32_t)
SEE(int64_t)
SEE(uint8_t)
SEE(uint16_t)
SEE(uint32_t)

static const struct {
  const char *type;
  br_eranges_see see;
} kinds[] = {{"TINYINT", see_int8_t},    {"SMALLINT", see_int16_t},
             {"INTEGER", see_int32_t},   {"BIGINT", see_int64_t},
             {"UTINYINT", see_uint8_t},  {"USMALLINT", see_uint16_t},
             {"UINTEGER", see_uint32_t}, {"DATE", see_int32_t},
             {"TIMESTAMP", see_int64_t}, {"TIMESTAMP WITH TIME ZONE", see_int64_t}};

void br_eranges_open(br_eranges *r, const Brant__Pb__TaskOutput *o) {
  r->columns = br_calloc(o->n_ranged + 1, sizeof *r->columns);
  r->all = br_calloc(o->n_ranged + 1, sizeof *r->all);
  for (size_t i = 0; i < o->n_ranged; i++)
    for (size_t k = 0; o->ranged[i] < o->n_types && k < sizeof kinds / sizeof *kinds; k++)
      if (!strcmp(o->types[o->ranged[i]], kinds[k].type))
        r->columns[r->n++] = (br_eranges_column){.column = o->ranged[i], .see = kinds[k].see};
  pthread_mutex_init(&r->lock, NULL);
}

br_eranges_one *br_eranges_new(const br_eranges *r) { return r->n ? br_calloc(r->n, sizeof(br_eranges_one)) : NULL; }

void br_eranges_look(const br_eranges *r, br_eranges_one *own, const br_vec *columns, uint32_t n_columns,
                     uint32_t rows) {
  for (size_t i = 0; i < r->n; i++) {
    const br_eranges_column *c = &r->columns[i];
    if (c->column < n_columns && columns[c->column].kind == BR_VEC_FIXED) c->see(&columns[c->column], rows, &own[i]);
  }
}

void br_eranges_end(br_eranges *r, br_eranges_one *own) {
  pthread_mutex_lock(&r->lock);
  for (size_t i = 0; i < r->n; i++)
    if (own[i].any) widen(&r->all[i], own[i].least, own[i].greatest);
  pthread_mutex_unlock(&r->lock);
  free(own);
}

void br_eranges_tell(const br_eranges *r, Brant__Pb__TaskStats *s) {
  Brant__Pb__ColumnRange *each = br_calloc(r->n + 1, sizeof *each);
  s->ranges = br_calloc(r->n + 1, sizeof *s->ranges);
  s->ranges[r->n] = NULL;
  for (size_t i = 0; i < r->n; i++) {
    brant__pb__column_range__init(&each[i]);
    each[i].column = r->columns[i].column;
    each[i].any = r->all[i].any, each[i].least = r->all[i].least, each[i].greatest = r->all[i].greatest;
    s->ranges[i] = &each[i];
  }
  s->n_ranges = r->n;
  if (!r->n) free(each);
}

void br_eranges_told(Brant__Pb__TaskStats *s) {
  if (s->n_ranges) free(s->ranges[0]); /* all of them */
  free(s->ranges);
}

void br_eranges_close(br_eranges *r) {
  if (!r->columns) return;
  free(r->columns);
  free(r->all);
  pthread_mutex_destroy(&r->lock);
  *r = (br_eranges){0};
}
