/* SPDX-License-Identifier: Apache-2.0
 * Which of the session's views and macros a query needs that runs as its own text: those that it names, and those that these name. The others
 * stay here; they may well read what this process alone has (tables in memory, types, schemas), and executors could not make them.
 * Order: once, before the query is given to the driver. Threads: the caller's. Bounds: each needed text is looked at once for each name. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/query.h"
#include "coordinator/tokens.h"

typedef struct subject {
  char *schema, *name; /* of [[catalog.]schema.]name; NULL: there is none */
} subject;

/* What CREATE | DROP | ALTER … VIEW | MACRO | FUNCTION [IF [NOT] EXISTS] is about. */
static subject subject_of(const char *sql) {
  const char *p = sql, *t;
  size_t n;
  subject s = {0};
  char *next;
  bool kind = false;
  while (!kind && br_token_next(&p, &t, &n))
    kind = br_token_is(t, n, "view") || br_token_is(t, n, "macro") || br_token_is(t, n, "function");
  if (kind && br_token_take(&p, "if")) {
    br_token_take(&p, "not");
    br_token_take(&p, "exists");
  }
  while (kind && br_token_name(&p, &next)) {
    free(s.schema);
    s.schema = s.name;
    s.name = next;
    if (!br_token_take(&p, ".")) break;
  }
  return s;
}

static bool names(const char *text, const char *name) {
  const char *p = text, *t;
  size_t n;
  bool found = false;
  while (!found && br_token_next(&p, &t, &n)) {
    if (*t == '\'') continue;
    char *token = br_token_unquote(t, n);
    found = strcasecmp(token, name) == 0;
    free(token);
  }
  return found;
}

/* With its schema, unless USE may have said that. */
static bool needs(const char *text, const subject *s, bool used) {
  return names(text, s->name) && (s->schema == NULL || used || names(text, s->schema));
}

void br_query_keep_views(br_query *q, const char *sql) {
  size_t n = q->n_prelude_views, n_texts = 1, kept = 0;
  subject *subjects = br_calloc(n + 1, sizeof *subjects);
  bool *needed = br_calloc(n + 1, sizeof *needed), used = false;
  const char **texts = br_calloc(n + 1, sizeof *texts); /* the query, then what it needs */
  texts[0] = sql;
  for (size_t i = 0; i < n; i++) {
    subjects[i] = subject_of(q->prelude_views[i]);
    needed[i] = subjects[i].name == NULL; /* USE, SET */
    used = used || needed[i];
  }
  for (size_t k = 0; k < n_texts; k++)
    for (size_t i = 0; i < n; i++) {
      if (needed[i] || !needs(texts[k], &subjects[i], used)) continue;
      needed[i] = true;
      texts[n_texts++] = q->prelude_views[i];
    }
  for (size_t i = 0; i < n; i++) {
    if (needed[i])
      q->prelude_views[kept++] = q->prelude_views[i];
    else
      free(q->prelude_views[i]);
    free(subjects[i].schema);
    free(subjects[i].name);
  }
  q->n_prelude_views = kept;
  free(subjects);
  free(needed);
  free(texts);
}
