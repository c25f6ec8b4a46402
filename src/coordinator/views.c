/* SPDX-License-Identifier: Apache-2.0
 * Which of the session's views and macros a query needs that runs as its own text: those whose name is a word of it, within quotes too
 * (query_table('v'), query('FROM v'), FROM 'v'), and those that these name. One too many does no harm, unless it reads what this process
 * alone has (tables in memory, types, schemas): executors could not make it. One too few is worse: executors keep what earlier queries
 * made, so a name that is left out may stand for an old definition there. Hence the last part of a name decides; what stands before it
 * only where it is a schema or catalog that executors have not. For a connection beside the session's own: which variables it needs.
 * Order: once, before the query is given to the driver or run here. Threads: the caller's. Bounds: each needed text is looked through once, texts
 * within its quotes MOST_DEPTH deep. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "base/mem.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

#define MOST_DEPTH 8

/* What CREATE | DROP | ALTER … VIEW | MACRO | FUNCTION is about; in small letters. */
typedef struct subject {
  char *name;    /* without what it is in. NULL: USE, SET */
  char *renamed; /* ALTER … RENAME TO this one */
  char *place;   /* the schema or catalog, if only this process has it */
} subject;

typedef struct search {
  br_smap *named; /* of all subjects' words, whether some text has it: to a bool of flags */
  bool *flags;
  size_t n_flags;
  bool any;    /* some text computes names */
  size_t most; /* bytes of a text that is looked through when it is needed: the caller does without longer ones */
} search;

/* The session's texts: variables, then views and macros. */
static size_t count_texts(const brant_session *s) { return s->variable_texts.count + s->views.count; }
static const char *text_of(const brant_session *s, size_t i) {
  size_t n = s->variable_texts.count;
  return i < n ? s->variable_texts.items[i] : s->views.items[i - n];
}

/* ---- statements */

static bool is_place_everywhere(const char *name) {
  return strcmp(name, "main") == 0 || strcmp(name, "temp") == 0 || strcmp(name, "memory") == 0;
}

/* [[catalog.]schema.]name */
static void take_names(const char **p, subject *s) {
  char *next;
  while (br_token_name(p, &next)) {
    if (s->name != NULL && !is_place_everywhere(s->name)) {
      free(s->place);
      s->place = s->name;
    } else {
      free(s->name);
    }
    s->name = br_token_small(next);
    if (!br_token_take(p, ".")) return;
  }
}

static subject subject_of(const char *sql) {
  const char *p = sql, *t;
  size_t n;
  subject s = {0};
  bool kind = false;
  while (!kind && br_token_next(&p, &t, &n))
    kind = br_token_is(t, n, "view") || br_token_is(t, n, "macro") || br_token_is(t, n, "function");
  if (!kind) return s;
  if (br_token_take(&p, "if")) {
    br_token_take(&p, "not");
    br_token_take(&p, "exists");
  }
  take_names(&p, &s);
  if (br_token_take(&p, "rename") && br_token_take(&p, "to") && br_token_name(&p, &s.renamed))
    br_token_small(s.renamed);
  return s;
}

/* May a text use it that does not name it? Operators are functions, and some syntax is. */
static bool is_syntax(const char *name) {
  static const char *const functions[] = {
      "array_extract", "array_slice", "concat",           "count_star",      "date_part",        "divide",
      "ilike_escape",  "like_escape", "list_apply",       "list_filter",     "list_value",       "list_transform",
      "ltrim",         "map",         "not_ilike_escape", "not_like_escape", "overlay",          "position",
      "row",           "rtrim",       "strpos",           "struct_extract",  "struct_pack",      "substring",
      "timezone",      "trim",        "unnest",           "contains",        "regexp_full_match"};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (strcmp(name, functions[i]) == 0) return true;
  const char *c = name;
  while (*c && *c != '_' && !isalnum((unsigned char)*c) && (unsigned char)*c < 128) c++;
  return *c == 0;
}

/* ---- texts */

/* What is within the quotes of the text at t. Free it. */
static char *within(const char *t, size_t n) {
  if (*t == '$') {
    const char *second = memchr(t + 1, '$', n - 1);
    size_t tag = second != NULL ? (size_t)(second - t) + 1 : 1;
    return br_strndup(t + tag, n >= 2 * tag ? n - 2 * tag : n - tag);
  }
  if (*t != '\'') t++, n--; /* e'' */
  if (n < 2 || t[n - 1] != '\'') return br_strndup(t + 1, n - 1);
  return br_token_unquote(t, n);
}

static bool is_quoted(const char *t, size_t n) {
  return *t == '\'' || (n > 1 && (*t == '$' || ((*t == 'e' || *t == 'E') && t[1] == '\'')));
}

static bool takes_names(const char *word) {
  return strcmp(word, "query") == 0 || strcmp(word, "query_table") == 0 || strcmp(word, "getvariable") == 0;
}

/* Behind a function that takes names: are the arguments in brackets nothing but texts? They are looked through like others. */
static bool plain_arguments(const char *p) {
  const char *t, *end;
  size_t n;
  if (!br_token_take(&p, "(") || br_token_close(p, &end) == NULL) return true;
  bool plain = true;
  while (plain && p < end && br_token_next(&p, &t, &n))
    plain = t >= end || *t == '\'' || *t == '[' || *t == ']' || *t == ',' || br_token_is(t, n, "true") ||
            br_token_is(t, n, "false") || (n > 1 && *t == '$');
  return plain;
}

static void look_through(search *s, const char *text, int depth);

static void look_within(search *s, const char *t, size_t n, int depth) {
  char *text = within(t, n);
  if (depth < MOST_DEPTH)
    look_through(s, text, depth + 1);
  else
    s->any = true;
  free(text);
}

static void look_through(search *s, const char *text, int depth) {
  const char *p = text, *t;
  size_t n;
  while (br_token_next(&p, &t, &n)) {
    bool quoted = is_quoted(t, n);
    char *word = br_token_small(quoted ? within(t, n) : br_token_unquote(t, n));
    bool *flag = br_smap_get(s->named, word);
    if (flag != NULL) *flag = true;
    if (takes_names(word) && !plain_arguments(p)) s->any = true;
    free(word);
    if (quoted) look_within(s, t, n, depth);
  }
}

/* ---- the two together */

static void expect(search *s, const char *word) {
  if (word != NULL && br_smap_get(s->named, word) == NULL) br_smap_put(s->named, word, &s->flags[s->n_flags++]);
}

static bool is_named(const search *s, const char *word) { return word != NULL && *(bool *)br_smap_get(s->named, word); }

static bool is_needed(const search *s, const subject *of) {
  if (of->name == NULL) return true;
  if (of->place != NULL && !is_named(s, of->place)) return false;
  return s->any || is_named(s, of->name) || is_named(s, of->renamed) || is_syntax(of->name);
}

static void find_needed(search *s, const brant_session *of, const subject *subjects, bool *needed) {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count_texts(of); i++) {
      if (needed[i] || !is_needed(s, &subjects[i])) continue;
      needed[i] = more = true;
      if (strlen(text_of(of, i)) <= s->most) look_through(s, text_of(of, i), 0);
    }
  }
}

static const char *const of_sequences[] = {"nextval", "currval"};
#define N_OF_SEQUENCES (sizeof of_sequences / sizeof *of_sequences)

/* Why can the text not run in an executor? */
static const char *only_here(const search *s, const brant_session *of, const bool *needed) {
  if (of->used_here) return "it is a text of its own, and USE names what this process alone has";
  if (s->any && of->has_local_tables)
    return "it is a text of its own that computes names, and this session has tables in its memory";
  for (size_t i = 0; i < of->schemas.count; i++)
    if (is_named(s, of->schemas.items[i])) return "it is a text of its own, and names a schema of this process";
  for (size_t i = 0; i < N_OF_SEQUENCES; i++)
    if (is_named(s, of_sequences[i])) return "it is a text of its own, and calls a function of sequences";
  for (size_t i = 0; i < of->variable_texts.count; i++)
    if (needed[i] && text_of(of, i)[0] == 0) return "no text tells the value of a variable that it reads";
  return NULL;
}

static subject *find_subjects(const brant_session *s, search *all) {
  size_t n = count_texts(s);
  subject *subjects = br_calloc(n + 1, sizeof *subjects);
  for (size_t i = 0; i < n; i++) {
    if (i < s->variable_texts.count)
      subjects[i].name = br_strdup(s->variable_names.items[i]);
    else
      subjects[i] = subject_of(text_of(s, i));
    expect(all, subjects[i].name);
    expect(all, subjects[i].renamed);
    expect(all, subjects[i].place);
  }
  for (size_t i = 0; i < s->schemas.count; i++) expect(all, s->schemas.items[i]);
  for (size_t i = 0; i < N_OF_SEQUENCES; i++) expect(all, of_sequences[i]);
  return subjects;
}

/* Which of the session's texts the text needs: free it. all: to be closed. */
static bool *search_text(search *all, const brant_session *s, const char *sql, size_t most) {
  size_t n = count_texts(s);
  bool *needed = br_calloc(n + 1, sizeof *needed);
  *all = (search){.named = br_smap_new(),
                  .flags = br_calloc(3 * n + s->schemas.count + N_OF_SEQUENCES, sizeof *all->flags),
                  .most = most};
  subject *subjects = find_subjects(s, all);
  look_through(all, sql, 0);
  find_needed(all, s, subjects, needed);
  for (size_t i = 0; i < n; i++) {
    free(subjects[i].name);
    free(subjects[i].renamed);
    free(subjects[i].place);
  }
  free(subjects);
  return needed;
}

static void close_search(search *all) {
  br_smap_free(all->named);
  free(all->flags);
}

const char *br_views_needed(const brant_session *s, const char *sql, br_texts *out) {
  search all;
  bool *needed = search_text(&all, s, sql, SIZE_MAX);
  const char *why = only_here(&all, s, needed);
  *out = (br_texts){0};
  for (size_t i = 0; i < count_texts(s) && why == NULL; i++)
    if (needed[i]) br_texts_add(out, text_of(s, i));
  close_search(&all);
  free(needed);
  return why;
}

/* May a query read what no text that is known here defines? A view of an attached file, or one made after USE; a generated column. */
static bool has_unseen(const brant_session *s) { return s->attach.count > 0 || s->use != NULL || s->has_local_tables; }

bool br_variables_needed(const brant_session *s, const char *sql, size_t most, br_texts *out) {
  search all = {0};
  bool *needed = NULL, fits = true;
  size_t bytes = 0;
  *out = (br_texts){0};
  if (s->variable_texts.count == 0) return true;
  if (!has_unseen(s)) needed = search_text(&all, s, sql, most);
  for (size_t i = 0; i < s->variable_texts.count && fits; i++) {
    if (needed != NULL && !needed[i]) continue;
    const char *text = s->variable_texts.items[i];
    bytes += strlen(text);
    fits = text[0] != 0 && bytes <= most;
    if (fits) br_texts_add(out, text);
  }
  if (!fits) br_texts_free(out);
  if (needed != NULL) close_search(&all);
  free(needed);
  return fits;
}
