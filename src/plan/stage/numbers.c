/* SPDX-License-Identifier: Apache-2.0
 *
 * The places in a stage's SQL that depend on which task of how many runs it.
 *
 * Order of calls: any. Threads: none. Bounds: none.
 */
#include "plan/stage/stage.h"

#include <stdlib.h>
#include <string.h>

static bool word_char(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Row j of the R rows of task t lies at (t + j / R) / tasks of the whole, if the tasks have equally many. A task whose rows all
 * go to one partition need not count them. */
static void add_partition(br_buf *b, uint64_t n, uint64_t task, uint64_t tasks) {
  uint64_t first = task * n / tasks, last = ((task + 1) * n - 1) / tasks;
  if (first == last) {
    br_buf_printf(b, "CAST(%llu AS INTEGER)", (unsigned long long)first);
    return;
  }
  br_buf_printf(
      b,
      "CAST((%llu * count(*) OVER () + row_number() OVER () - 1)::HUGEINT * %llu // (%llu * count(*) OVER ()) "
      "AS INTEGER)",
      (unsigned long long)task, (unsigned long long)n, (unsigned long long)tasks);
}

/* The length of a function that is replaced at `at`, 0 if there is none. */
static size_t replaced(const char *sql, const char *at, uint32_t task, uint32_t tasks, br_buf *b) {
  if (*at != 'b' || (at > sql && word_char(at[-1]))) return 0;
  if (!strncmp(at, BR_TASK_NUMBER, strlen(BR_TASK_NUMBER))) {
    br_buf_printf(b, "%u", task);
    return strlen(BR_TASK_NUMBER);
  }
  if (strncmp(at, BR_INTO_PARTITION, strlen(BR_INTO_PARTITION)) != 0) return 0;
  char *end;
  unsigned long n = strtoul(at + strlen(BR_INTO_PARTITION), &end, 10);
  if (*end != ')' || n == 0) return 0;
  add_partition(b, n, task, tasks ? tasks : 1);
  return (size_t)(end + 1 - at);
}

char *br_stage_task_sql(br_arena *arena, const char *sql, uint32_t task, uint32_t tasks) {
  br_buf b = {0};
  for (const char *at = sql; *at;) {
    int64_t ignored;
    size_t n = replaced(sql, at, task, tasks, &b);
    if (n == 0) {
      n = br_stage_piece(sql, at, &ignored);
      br_buf_add(&b, at, n);
    }
    at += n;
  }
  char *text = br_arena_strdup(arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

bool br_stage_numbers_rows(const br_stage *s) {
  return s->sql && (strstr(s->sql, BR_TASK_NUMBER) != NULL || strstr(s->sql, BR_INTO_PARTITION) != NULL);
}
