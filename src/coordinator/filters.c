/* SPDX-License-Identifier: Apache-2.0
 *
 * Run-time filters: what a join's one side turned out to be decides what is done to the rows of the other before they are shuffled.
 *   keys     read by each task (a FILTER input), when they are few enough for the rows that they look at
 *   Bloom    a filter of them, read instead, when they are many (bloom.c)
 *   range    between the least and the greatest of them: a condition on the scanned column, by which DuckDB leaves row groups out
 *   splits   whose footers say that they have no such value get no task; also by the keys of a side that is broadcast
 *
 * A range is of every attempt that was ever told of, so one that is made again by chance can only widen it, and whoever runs after that
 * is given the wider one. Splits are left out only where nothing is by chance (adapt.c).
 * Order: facts when the splits are planned; count as attempts end; splits once, before the stage starts; pays and text for each attempt.
 * Threads: facts on the caller's, the rest with the query's lock. Bounds: 24 bytes a split and filter key.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/query.h"

#define FILTER_ROWS_A_KEY 4 /* a filter must have four rows to look at for each key that it reads, */
#define FILTER_ROWS_A_KEY_ALL \
  64 /* and many if the keys are those of all rows of a table, which mostly find a partner */
#define FILTER_BATCHES \
  4u /* the batches that the keys are read with, other columns too, may have so many times filter_bytes */
#define FIRST_DAY (-719162) /* 0001-01-01 */
#define LAST_DAY 2932896    /* 9999-12-31 */
#define SECONDS_A_DAY 86400
#define MICROS 1000000

/* ---- facts about splits: a key of a filter with a source is "placed" */

static size_t count_placed(const br_stage *s) {
  size_t n = 0;
  for (size_t i = 0; i < s->n_inputs; i++)
    for (size_t k = 0; k < s->inputs[i].n_ranges; k++) n += s->inputs[i].ranges[k].source != NULL;
  return n;
}

static bool kind_of(const char *type, br_range_kind *kind) {
  *kind = strcmp(type, "DATE") == 0 ? BR_RANGE_DATE : BR_RANGE_INTEGER;
  return *kind == BR_RANGE_DATE || strcmp(type, "BIGINT") == 0;
}

static void place_key(br_stage_run *r, size_t at, const br_filter_key *key, const br_snapshot *snap,
                      const br_split *splits, size_t n) {
  br_range_kind kind;
  for (size_t k = 0; k < n && kind_of(key->type, &kind); k++)
    r->split_facts[k].keys[at] = br_split_range(snap, &splits[k], key->source, kind);
}

void br_filter_facts(br_stage_run *r, const br_snapshot *snap, const br_split *splits, size_t n) {
  const br_stage *s = r->plan;
  size_t placed = count_placed(s), at = 0;
  if (placed == 0 || n == 0 || br_stage_numbers_rows(s)) return;
  r->split_facts = br_calloc(n, sizeof *r->split_facts);
  r->split_ranges = br_calloc(n * placed, sizeof *r->split_ranges);
  for (size_t k = 0; k < n; k++)
    r->split_facts[k] = (br_split_facts){.rows = splits[k].rows, .keys = r->split_ranges + k * placed};
  for (size_t i = 0; i < s->n_inputs; i++)
    for (size_t k = 0; k < s->inputs[i].n_ranges; k++)
      if (s->inputs[i].ranges[k].source != NULL) place_key(r, at++, &s->inputs[i].ranges[k], snap, splits, n);
}

void br_filter_facts_free(br_stage_run *r) {
  free(r->split_ranges);
  free(r->split_facts);
  r->split_ranges = NULL;
  r->split_facts = NULL;
}

/* ---- ranges of keys */

static const Brant__Pb__ColumnRange *told(const Brant__Pb__TaskStats *s, uint32_t column) {
  for (size_t i = 0; i < s->n_ranges; i++)
    if (s->ranges[i]->column == column) return s->ranges[i];
  return NULL;
}

void br_filter_count(br_stage_run *r, const Brant__Pb__TaskStats *s) {
  for (size_t i = 0; i < r->plan->n_ranged; i++) {
    const Brant__Pb__ColumnRange *t = told(s, r->plan->ranged[i]);
    br_key_range *all = &r->ranges[i];
    if (t == NULL) all->unknown = true;
    if (t == NULL || !t->any) continue;
    if (!all->any || t->least < all->least) all->least = t->least;
    if (!all->any || t->greatest > all->greatest) all->greatest = t->greatest;
    all->any = true;
  }
}

const br_key_range *br_filter_range(const br_query *q, const br_stage_input *in, const br_filter_key *key) {
  const br_stage_run *p = &q->runs[in->producer];
  for (size_t i = 0; i < p->plan->n_ranged && p->done == p->n_tasks; i++)
    if (p->plan->ranged[i] == key->column) return p->ranges[i].unknown ? NULL : &p->ranges[i];
  return NULL;
}

static bool disjoint(const br_range *split, const br_key_range *keys) {
  if (!split->known) return false;
  return !keys->any || split->greatest < keys->least || split->least > keys->greatest;
}

static bool within(const br_range *split, const br_key_range *keys) {
  return split->known && keys->any && split->least >= keys->least && split->greatest <= keys->greatest;
}

/* ---- splits */

static bool may_meet(const br_query *q, const br_stage_run *r, uint32_t split) {
  const br_stage *s = r->plan;
  size_t at = 0;
  for (size_t i = 0; i < s->n_inputs; i++) {
    bool chance = s->inputs[i].n_ranges > 0 && br_query_by_chance(q, s->inputs[i].producer);
    for (size_t k = 0; k < s->inputs[i].n_ranges; k++) {
      if (s->inputs[i].ranges[k].source == NULL) continue;
      const br_range *have = &r->split_facts[split].keys[at++];
      const br_key_range *keys = chance ? NULL : br_filter_range(q, &s->inputs[i], &s->inputs[i].ranges[k]);
      if (keys != NULL && disjoint(have, keys)) return false;
    }
  }
  return true;
}

uint32_t br_filter_splits(const br_query *q, br_stage_run *r) {
  uint32_t kept = 0;
  if (r->split_facts == NULL) return r->n_tasks;
  r->split_rows = 0;
  for (uint32_t i = 0; i < r->n_tasks; i++) {
    if (!may_meet(q, r, i)) continue;
    char *sql = r->split_sql[kept];
    br_split_facts facts = r->split_facts[kept];
    r->split_sql[kept] = r->split_sql[i], r->split_sql[i] = sql;
    r->split_facts[kept] = r->split_facts[i], r->split_facts[i] = facts;
    r->split_rows += r->split_facts[kept++].rows;
  }
  return kept;
}

/* ---- the text of a task */

static bool keys_are_few(const br_query *q, const br_stage_run *keys, const br_stage_input *in) {
  if (keys->bytes_out <= q->filter_bytes) return true;
  return in->key_bytes > 0 && keys->rows_out <= q->filter_bytes / in->key_bytes &&
         keys->bytes_out <= q->filter_bytes * FILTER_BATCHES;
}

/* Nothing was left out of what its scan read. */
static bool is_whole_table(const br_stage_run *r) {
  for (size_t i = 0; i < r->plan->n_inputs; i++)
    if (r->plan->inputs[i].kind == BR_EX_FILTER) return false; /* splits may be gone */
  return r->plan->rule == BR_TASKS_SPLITS && r->split_rows > 0 && r->rows_out >= r->split_rows;
}

uint64_t br_filter_rows(const br_query *q, const br_stage_run *r) {
  uint64_t rows = r->split_rows;
  for (size_t i = 0; i < r->plan->n_inputs; i++)
    if (!br_exchange_helps(r->plan->inputs[i].kind)) rows += br_stage_rows(&q->runs[r->plan->inputs[i].producer]);
  return rows;
}

bool br_filter_pays(const br_query *q, const br_stage_run *r, const br_stage_input *in) {
  const br_stage_run *keys = &q->runs[in->producer];
  uint64_t rows = br_filter_rows(q, r), a_key = is_whole_table(keys) ? FILTER_ROWS_A_KEY_ALL : FILTER_ROWS_A_KEY;
  if (br_bloom_instead(q, r, in)) return false;
  if (r->joins_in_place && r->plan->rows >= 0 && r->plan->rows < (double)rows) rows = (uint64_t)r->plan->rows;
  return keys_are_few(q, keys, in) && keys->rows_out <= rows / a_key;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* "1992-01-31" of a number of days since 1970; false: a year that would need other words. */
static bool add_date(br_buf *b, int64_t days) {
  int64_t z = days + 719468, era, of_era, year_of_era, of_year, month;
  if (days < FIRST_DAY || days > LAST_DAY) return false;
  era = floor_div(z, 146097);
  of_era = z - era * 146097;
  year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
  of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  month = (5 * of_year + 2) / 153;
  int64_t day = of_year - (153 * month + 2) / 5 + 1, number = month < 10 ? month + 3 : month - 9;
  br_buf_printf(b, "%04d-%02d-%02d", (int)(year_of_era + era * 400 + (number <= 2)), (int)number, (int)day);
  return true;
}

static bool add_moment(br_buf *b, int64_t micros, const char *zone) {
  int64_t seconds = floor_div(micros, MICROS), days = floor_div(seconds, SECONDS_A_DAY);
  int64_t of_day = seconds - days * SECONDS_A_DAY;
  if (!add_date(b, days)) return false;
  br_buf_printf(b, " %02d:%02d:%02d.%06d%s", (int)(of_day / 3600), (int)(of_day / 60 % 60), (int)(of_day % 60),
                (int)(micros - seconds * MICROS), zone);
  return true;
}

/* A literal of the type; false: it is too far out to be written. */
static bool add_value(br_buf *b, const char *type, int64_t value) {
  bool ok;
  if (strcmp(type, "BIGINT") == 0) {
    br_buf_printf(b, "%lld", (long long)value);
    return value > INT64_MIN;
  }
  br_buf_printf(b, "CAST('");
  if (strcmp(type, "DATE") == 0)
    ok = add_date(b, value);
  else
    ok = add_moment(b, value, strcmp(type, "TIMESTAMP") == 0 ? "" : "+00");
  br_buf_printf(b, "' AS %s)", type);
  return ok;
}

/* The condition that a key's range puts on the rows of a task; nothing where it is not known, or says nothing new. */
static void add_condition(br_buf *b, const br_filter_key *key, const br_key_range *keys, const br_range *split) {
  br_buf one = {0};
  if (keys == NULL || (split != NULL && within(split, keys))) return;
  if (!keys->any) {
    br_buf_printf(b, "%sfalse", b->len ? " AND " : "");
    return;
  }
  br_buf_printf(&one, "%s BETWEEN ", key->text);
  bool ok = add_value(&one, key->type, keys->least);
  br_buf_str(&one, " AND ");
  ok = ok && add_value(&one, key->type, keys->greatest);
  if (ok) br_buf_printf(b, "%s%s", b->len ? " AND " : "", br_buf_cstr(&one));
  br_buf_free(&one);
}

char *br_filter_text(const br_query *q, const br_stage_run *r, uint32_t task, char *sql, br_arena *arena) {
  const br_stage *s = r->plan;
  size_t placed = 0;
  for (size_t i = 0; i < s->n_inputs; i++) {
    const br_stage_input *in = &s->inputs[i];
    br_buf b = {0};
    for (size_t k = 0; k < in->n_ranges; k++) {
      const br_range *split = NULL;
      if (in->ranges[k].source != NULL && r->split_facts != NULL) split = &r->split_facts[task].keys[placed++];
      if (in->kind == BR_EX_FILTER) add_condition(&b, &in->ranges[k], br_filter_range(q, in, &in->ranges[k]), split);
    }
    if (in->kind == BR_EX_FILTER) sql = br_stage_with_range(arena, sql, (uint32_t)i, b.len ? br_buf_cstr(&b) : NULL);
    bool goes = in->kind == BR_EX_FILTER ? !br_filter_pays(q, r, in) : in->kind == BR_EX_BLOOM && !br_bloom_made(q, in);
    if (goes) sql = br_stage_without_filter(arena, sql, (uint32_t)i);
    br_buf_free(&b);
  }
  return s->makes_bloom ? br_stage_with_blocks(arena, sql, r->bloom_blocks) : sql;
}
