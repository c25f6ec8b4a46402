/* SPDX-License-Identifier: Apache-2.0
 *
 * brant's own nodes in SQL. `repartition((SELECT …), 8, k)` where a table stands becomes
 *   (SELECT * EXCLUDE (m) FROM (SELECT *, __brant_repartition(8, k) AS m FROM (SELECT …) AS repartition) WHERE m)
 * with a volatile marker that reaches the plan as a projection and a filter (plan/distribute/own.c). The text is edited where
 * the calls stand, from token to token, so everything else stays as it was written. A table's name may stand for the subquery.
 *
 * Order: one call a statement, before DuckDB sees it. Threads: any. Bounds: DEPTH_MOST calls inside each other.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

#define DEPTH_MOST 200
#define ARGUMENTS_MOST 64
#define MARK "__brant_node"

typedef struct piece {
  const char *at;
  size_t n;
} piece;

typedef struct call {
  const char *name;
  size_t n_arguments;
  piece arguments[ARGUMENTS_MOST];
  const char *end; /* behind the closing parenthesis */
} call;

static const char *node_name(const char *t, size_t n) {
  static const char *const names[] = {"repartition", "into_partitions", "into_batches", "broadcast"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (br_token_is(t, n, names[i])) return names[i];
  return NULL;
}

static piece trimmed(const char *from, const char *to) {
  const char *p = from, *t, *first = NULL, *last = from;
  size_t n;
  while (p < to && br_token_next(&p, &t, &n) && t < to) {
    if (first == NULL) first = t;
    last = t + n;
  }
  return first ? (piece){first, (size_t)(last - first)} : (piece){from, 0};
}

/* The arguments of the call whose name ends at p. False: no call, or it has no end (DuckDB will say so). */
static br_status read_call(const char *p, const char *end, call *c, bool *is_call, br_error *err) {
  const char *t, *from;
  size_t n, depth = 1;
  *is_call = false;
  if (!br_token_next(&p, &t, &n) || t >= end || *t != '(') return BR_OK;
  for (from = p; br_token_next(&p, &t, &n) && t < end;) {
    if (*t == '(' || *t == '[' || *t == '{') depth++;
    if (*t == ')' || *t == ']' || *t == '}') depth--;
    if (depth > 0 && !(depth == 1 && *t == ',')) continue;
    if (c->n_arguments == ARGUMENTS_MOST)
      return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s() takes at most %d keys", c->name, ARGUMENTS_MOST - 2);
    c->arguments[c->n_arguments++] = trimmed(from, t);
    from = p;
    if (depth > 0) continue;
    c->end = p;
    *is_call = true;
    return BR_OK;
  }
  return BR_OK;
}

static bool is_broadcast(const call *c) { return strcmp(c->name, "broadcast") == 0; }

static br_status check(const call *c, br_error *err) {
  if (is_broadcast(c) && c->n_arguments == 1 && c->arguments[0].n > 0) return BR_OK;
  if (is_broadcast(c))
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "broadcast((SELECT …)) takes a subquery or a table");
  bool keys = strcmp(c->name, "repartition") == 0, number = c->n_arguments >= 2 && c->arguments[1].n > 0;
  for (size_t i = 0; number && i < c->arguments[1].n; i++)
    number = c->arguments[1].at[i] >= '0' && c->arguments[1].at[i] <= '9';
  uint64_t n = number && c->arguments[1].n < 11 ? strtoull(c->arguments[1].at, NULL, 10) : 0;
  uint64_t most = strcmp(c->name, "into_batches") == 0 ? INT32_MAX : 65536;
  bool good = n >= 1 && n <= most && (keys || c->n_arguments == 2);
  for (size_t i = 0; i < c->n_arguments; i++) good = good && c->arguments[i].n > 0;
  if (good) return BR_OK;
  return br_fail(err, BR_INVALID, BR_BLAME_USER,
                 "%s((SELECT …), n%s) takes a subquery or a table, a whole number from 1 to %llu%s", c->name,
                 keys ? ", key, …" : "", (unsigned long long)most, keys ? ", and keys" : "");
}

static br_status rewrite(const char *from, const char *end, size_t depth, br_buf *out, bool *any, br_error *err);

static br_status print_call(const call *c, size_t depth, br_buf *out, br_error *err) {
  const piece *source = &c->arguments[0];
  bool any;
  br_buf_printf(out, "(SELECT * EXCLUDE (" MARK ") FROM (SELECT *, __brant_%s(%.*s", c->name,
                is_broadcast(c) ? 1 : (int)c->arguments[1].n, is_broadcast(c) ? "1" : c->arguments[1].at);
  for (size_t i = 2; i < c->n_arguments; i++) {
    br_buf_str(out, ", ");
    BR_TRY(rewrite(c->arguments[i].at, c->arguments[i].at + c->arguments[i].n, depth + 1, out, &any, err));
  }
  br_buf_str(out, ") AS " MARK " FROM ");
  BR_TRY(rewrite(source->at, source->at + source->n, depth + 1, out, &any, err));
  if (*source->at == '(') br_buf_printf(out, " AS %s", c->name);
  br_buf_str(out, ") WHERE " MARK ")");
  return BR_OK;
}

/* Does a table stand here? before: the token in front, NULL: the argument of another node begins. */
static bool table_place(const char *before, size_t n, const call *c) {
  if (before == NULL || br_token_is(before, n, "from") || br_token_is(before, n, "join")) return true;
  return (*before == ',' || *before == '(') && c->n_arguments > 0 && *c->arguments[0].at == '(';
}

static br_status rewrite(const char *from, const char *end, size_t depth, br_buf *out, bool *any, br_error *err) {
  const char *p = from, *done = from, *t, *before = NULL;
  size_t n, before_n = 0;
  if (depth > DEPTH_MOST)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "more than %d calls of repartition() and its like inside each other",
                   DEPTH_MOST);
  while (br_token_next(&p, &t, &n) && t < end) {
    call c = {.name = node_name(t, n)};
    bool is_call = false;
    if (c.name != NULL) BR_TRY(read_call(p, end, &c, &is_call, err));
    if (is_call && table_place(before, before_n, &c) && (before != NULL || depth > 0)) {
      BR_TRY(check(&c, err));
      br_buf_add(out, done, (size_t)(t - done));
      BR_TRY(print_call(&c, depth, out, err));
      p = done = c.end;
      *any = true;
      before = c.end - 1, before_n = 1;
      continue;
    }
    before = t, before_n = n;
  }
  br_buf_add(out, done, (size_t)(end - done));
  return BR_OK;
}

br_status br_node_text(const char *sql, char **out, br_error *err) {
  br_buf b = {0};
  bool any = false;
  *out = NULL;
  br_status status = rewrite(sql, sql + strlen(sql), 0, &b, &any, err);
  if (status == BR_OK && any) *out = br_buf_take(&b);
  br_buf_free(&b);
  return status;
}
