/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of run-time filters inside a stage's SQL, found by their marks: cut out, filled in, numbered anew. A mark is a comment, so
 * that the SQL of a plan is whole with any of them as it stands; what is in quotes is the user's. Order of calls: any. Threads: none.
 * Bounds: none.
 */
#include "plan/stage/stage.h"

#include <string.h>

/* Where it first stands outside of quotes; NULL: nowhere. */
static const char *find_mark(const char *sql, const char *mark) {
  size_t n = strlen(mark);
  int64_t ignored;
  if (!strstr(sql, mark)) return NULL;
  for (const char *at = sql; *at; at += br_stage_piece(sql, at, &ignored))
    if (!strncmp(at, mark, n)) return at;
  return NULL;
}

char *br_stage_without_filter(br_arena *arena, const char *sql, uint32_t input) {
  char *begin = br_arena_printf(arena, BR_FILTER_BEGIN, input);
  const char *from = find_mark(sql, begin), *to = from ? find_mark(from, BR_FILTER_END) : NULL;
  if (!to) return br_arena_strdup(arena, sql);
  return br_arena_printf(arena, "%.*s%s", (int)(from - sql), sql, to + strlen(BR_FILTER_END));
}

/* The first such mark becomes the text. */
static char *replaced(br_arena *arena, const char *sql, const char *mark, const char *with) {
  const char *at = find_mark(sql, mark);
  if (!at) return br_arena_strdup(arena, sql);
  return br_arena_printf(arena, "%.*s%s%s", (int)(at - sql), sql, with, at + strlen(mark));
}

char *br_stage_with_range(br_arena *arena, const char *sql, uint32_t input, const char *condition) {
  return replaced(arena, sql, br_arena_printf(arena, BR_FILTER_RANGE, input),
                  condition ? br_arena_printf(arena, "WHERE %s", condition) : "");
}

char *br_stage_renumber_filter(br_arena *arena, const char *sql, uint32_t input, uint32_t now) {
  char *out = replaced(arena, sql, br_arena_printf(arena, BR_FILTER_BEGIN, input),
                       br_arena_printf(arena, BR_FILTER_BEGIN, now));
  return replaced(arena, out, br_arena_printf(arena, BR_FILTER_RANGE, input),
                  br_arena_printf(arena, BR_FILTER_RANGE, now));
}

char *br_stage_with_blocks(br_arena *arena, const char *sql, uint32_t blocks) {
  return replaced(arena, sql, BR_BLOOM_BLOCKS, br_arena_printf(arena, "%u", blocks));
}
