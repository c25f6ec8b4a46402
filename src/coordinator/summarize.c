/* SPDX-License-Identifier: Apache-2.0
 * SUMMARIZE over what is only read, filtered and projected: its aggregates (quantiles, distinct values) need all values of a column in one
 * task, so as one statement it is one task. The columns are dealt to several SUMMARIZEs instead, each of which reads its own alone.
 * Order: one call a statement. The caller's thread. Bounds: none of its own. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

/* Read again for each of them, rows must be the same, and reading must be all that it costs. */
static bool only_read(const br_node *n) {
  if (n->kind == BR_NODE_GET) return true;
  return (n->kind == BR_NODE_PROJECTION || n->kind == BR_NODE_FILTER) && n->n_children == 1 &&
         only_read(n->children[0]);
}

static bool by_chance(const char *sql) {
  static const char *const words[] = {"random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "nextval", "setseed"};
  const char *p = sql, *t;
  size_t n;
  while (br_token_next(&p, &t, &n))
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (br_token_is(t, n, words[i])) return true;
  return false;
}

static bool unique(char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < i; k++)
      if (strcasecmp(names[i], names[k]) == 0) return false;
  return true;
}

/* Rows of what is summarized: a SELECT, or the name of a table or file. Free it. */
static char *rows_of(const char *what) {
  static const char *const words[] = {"select", "from", "with", "values", "table", "("};
  const char *p = what, *end = what + strlen(what);
  bool select = false;
  for (size_t i = 0; i < sizeof words / sizeof *words && !select; i++) select = br_token_take(&p, words[i]);
  while (end > what && strchr("; \t\r\n", end[-1]) != NULL) end--;
  return br_asprintf(select ? "%.*s" : "SELECT * FROM %.*s", (int)(end - what), what);
}

static char *in_groups(const char *rows, char *const *names, size_t n, size_t groups) {
  br_buf b = {0};
  for (size_t g = 0; g < groups; g++) {
    br_buf_str(&b, g > 0 ? "\nUNION ALL " : "");
    br_buf_str(&b, "SELECT * FROM (SUMMARIZE SELECT ");
    for (size_t first = g * n / groups, i = first; i < (g + 1) * n / groups; i++) {
      if (i > first) br_buf_str(&b, ", ");
      br_buf_sql_ident(&b, names[i]);
    }
    br_buf_printf(&b, " FROM (%s\n) AS brant_rows)", rows);
  }
  return br_buf_take(&b);
}

bool br_is_summarize(const char *sql) {
  const char *p = sql;
  return br_token_take(&p, "summarize");
}

br_status br_summarize_spread(brant_session *s, const char *sql, size_t groups, char **out, br_error *err) {
  const char *p = sql;
  br_planned planned = {0};
  br_plan *plan = NULL;
  *out = NULL;
  if (!br_token_take(&p, "summarize") || groups < 2 || by_chance(p)) return BR_OK;
  char *rows = rows_of(p);
  br_status status;
  BR_TRY_GOTO(br_session_plan(s->db, rows, &planned, err));
  if (planned.refused != NULL || br_plan_parse(planned.json, NULL, &plan, err) != BR_OK) goto done;
  if (groups > planned.columns) groups = planned.columns;
  if (groups > 1 && only_read(plan->root) && unique(planned.names, planned.columns))
    *out = in_groups(rows, planned.names, planned.columns, groups);
done:
  br_plan_free(plan);
  br_planned_free(&planned);
  free(rows);
  return status;
}
