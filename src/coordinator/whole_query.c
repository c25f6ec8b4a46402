/* SPDX-License-Identifier: Apache-2.0
 *
 * A query that is not cut: one stage of one task that runs the caller's own text, since its plan can't be written back or there is one
 * executor alone.
 *
 * Order: instead of cutting. Any thread. Bounds: the text.
 */
#include <string.h>

#include "coordinator/session.h"

/* The type with every ENUM('a', 'b') in it written as VARCHAR. */
static const char *enum_as_varchar(br_arena *a, const char *type) {
  br_buf b = {0};
  while (*type != 0) {
    if (strncmp(type, "ENUM(", 5) != 0) {
      br_buf_char(&b, *type++);
      continue;
    }
    br_buf_str(&b, "VARCHAR");
    bool quoted = false;
    for (type += 5; *type != 0 && (quoted || *type != ')'); type++)
      if (*type == '\'') quoted = !quoted;
    if (*type != 0) type++;
  }
  const char *out = br_arena_strdup(a, br_buf_cstr(&b));
  br_buf_free(&b);
  return out;
}

br_stages *br_whole_query(const char *sql, const br_planned *planned, const char *why) {
  br_arena *a = br_arena_new();
  br_stages *out = br_arena_alloc(a, sizeof *out);
  out->arena = a;
  out->whole_query_reason = br_arena_strdup(a, why);
  out->n_stages = 1;
  br_stage *st = out->stages = br_arena_alloc(a, sizeof *st);
  br_buf b = {0};
  br_buf_str(&b, "SELECT ");
  const char **types = br_arena_alloc(a, (planned->columns + 1) * sizeof *types);
  for (size_t i = 0; i < planned->columns; i++) {
    /* enums are stored as VARCHAR, like in every other result */
    bool is_enum = strstr(planned->types[i], "ENUM(") != NULL;
    types[i] = enum_as_varchar(a, planned->types[i]);
    br_buf_printf(&b, is_enum ? "%sCAST(c%zu AS %s) AS c%zu" : "%sc%zu", i ? ", " : "", i, types[i], i);
  }
  br_buf_printf(&b, " FROM (%s\n) AS whole(", sql);
  for (size_t i = 0; i < planned->columns; i++) br_buf_printf(&b, "%sc%zu", i ? ", " : "", i);
  br_buf_str(&b, ")");
  *st = (br_stage){.sql = br_arena_strdup(a, br_buf_cstr(&b)),
                   .types = types,
                   .n_columns = planned->columns,
                   .split_scan = -1,
                   .rule = BR_TASKS_ONE,
                   .output = BR_EX_RESULT,
                   .partitions = 1,
                   .ordered_output = true,
                   .rows = -1,
                   .bytes = -1,
                   .one_task_reason = out->whole_query_reason,
                   .label = "the whole query"};
  br_buf_free(&b);
  return out;
}
