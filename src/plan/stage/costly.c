/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages that do more with a row than read it: calls of users' functions, and of those built-in ones that take long. Few rows of them
 * are worth a task, so their sources are cut finer than by bytes, and their partitions are not put together.
 *
 * By the text: names of functions are quoted in it, and a text of the user's that holds the same is no harm (more tasks, the same rows).
 * Order of calls: any. Threads: none. Bounds: none.
 */
#include "plan/stage/stage.h"

#include <string.h>

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
