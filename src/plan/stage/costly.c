/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that do more with a row than read it: calls of users' functions, and of those built-in ones that take long. Few rows of them
 * are worth a task, so their sources are cut finer than by bytes, and their partitions are not put together. Joins without an equality
 * are much work, too, for few rows: tasks that were planned for them stay.
 *
 * By the text: names of functions are quoted in it, and a text of the user's that holds the same is no harm (more tasks, the same rows).
 * Order of calls: any. Threads: none. Bounds: none.
 */
#include "plan/stage/stage.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const struct {
  const char *name;
  uint64_t rows;
} costly[] = {
    {"__url_download", 1}, /* waits for a server */
    {"minhash", 512},      /* of pages, some KB each: 20 µs a row */
    {"__strip_text", 512},
};

static void fewer(uint64_t *rows, uint64_t other) {
  if (*rows == 0 || other < *rows) *rows = other;
}

uint64_t br_costly_function(const char *name) {
  for (size_t i = 0; i < sizeof costly / sizeof *costly; i++)
    if (!strcmp(costly[i].name, name)) return costly[i].rows;
  return 0;
}

static bool calls(const char *sql, const char *name) {
  size_t n = strlen(name);
  for (const char *s = strstr(sql, name); s; s = strstr(s + n, name))
    if (s > sql && s[-1] == '"' && !strncmp(s + n, "\"(", 2)) return true;
  return false;
}

uint64_t br_stage_costly_rows(const br_stage *s) {
  uint64_t rows = s->n_steps > 0 ? 1 : 0;
  for (size_t i = 0; i < sizeof costly / sizeof *costly; i++)
    if (calls(s->sql, costly[i].name)) fewer(&rows, costly[i].rows);
  return rows;
}

/* ---- few rows, much work */

static bool equality_in_line(const char *at) {
  size_t n = strcspn(at, "\n");
  static const char *const equal[] = {" = ", " IS NOT DISTINCT FROM "};
  for (size_t i = 0; i < sizeof equal / sizeof *equal; i++) {
    const char *hit = strstr(at, equal[i]);
    if (hit && hit < at + n) return true;
  }
  return false;
}

/* Has each join's condition, in the line where it begins, an equality, or one side one row? If not, few rows may be much work, and may
 * make many. */
static bool joins_by_equality(const char *sql) {
  size_t without = 0;
  for (const char *at = sql; *at;) {
    int64_t ignored;
    bool on = !strncmp(at, " ON ", 4), one_row = !strncmp(at, BR_JOIN_ONE_ROW, strlen(BR_JOIN_ONE_ROW));
    if (on && !equality_in_line(at)) return false;
    without -= on && without > 0;
    without += !one_row && !strncmp(at, "JOIN ", 5) && at > sql && (at[-1] == ' ' || at[-1] == '\n');
    at += br_stage_piece(sql, at, &ignored);
  }
  return without == 0;
}

bool br_stage_much_work(const br_stage *s) { return br_stage_costly_rows(s) > 0 || !joins_by_equality(s->sql); }

static bool follows(const br_stage *s, const bool *of_its_tasks) {
  for (size_t i = 0; s->rule == BR_TASKS_FORWARD && i < s->n_inputs; i++)
    if (s->inputs[i].kind == BR_EX_FORWARD && of_its_tasks[s->inputs[i].producer]) return true;
  return false;
}

bool br_stage_leads_to_much_work(const br_stages *s, uint32_t stage) {
  bool much = br_stage_much_work(&s->stages[stage]);
  bool *of_its_tasks = br_calloc(s->n_stages, sizeof *of_its_tasks);
  of_its_tasks[stage] = true;
  for (size_t i = stage + 1; i < s->n_stages && !much; i++) {
    of_its_tasks[i] = follows(&s->stages[i], of_its_tasks);
    much = of_its_tasks[i] && br_stage_much_work(&s->stages[i]);
  }
  free(of_its_tasks);
  return much;
}
