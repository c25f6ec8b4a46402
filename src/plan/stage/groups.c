/* SPDX-License-Identifier: Apache-2.0
 *
 * A stage whose last step groups its rows before they move, so that fewer move (a partial aggregate, a local DISTINCT), and the same
 * stage without that step: each row is a group of its own. What reads the rows groups them again and makes the same of both. Where nearly
 * every row has a key of its own, grouping them twice costs more than it saves (coordinator/adapt_groups.c decides, task by task).
 *
 * The two places that differ are marked by comments, so that the SQL is whole as it stands. Order of calls: any. Threads: none.
 * Bounds: none.
 */
#include "plan/stage/stage.h"

#include <string.h>

static bool starts(const char *at, const char *mark) { return !strncmp(at, mark, strlen(mark)); }

/* Each marked piece becomes the next of `with` (NULL: it stays); the marks go. What is quoted is no mark. */
static char *replaced(br_arena *arena, const char *sql, const char *const *with) {
  br_buf b = {0};
  bool inside = false;
  for (const char *at = sql; *at;) {
    int64_t ignored;
    if (starts(at, inside ? BR_GROUPS_END : BR_GROUPS_BEGIN)) {
      if (!inside && with) br_buf_str(&b, *with++);
      at += strlen(inside ? BR_GROUPS_END : BR_GROUPS_BEGIN);
      inside = !inside;
      continue;
    }
    size_t n = br_stage_piece(sql, at, &ignored);
    if (!inside || !with) br_buf_add(&b, at, n);
    at += n;
  }
  char *text = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

char *br_stage_of_rows(br_arena *arena, const br_stage *s) {
  return replaced(arena, s->sql, (const char *const[]){s->row_columns, ""});
}

char *br_stage_without_groups(br_arena *arena, const char *sql) { return replaced(arena, sql, NULL); }
