/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of a CSV or JSON reader, taken apart: read_csv(['a.csv', 'b.csv'], header = true). Only calls whose arguments are constants
 * are understood: names of files as literals, options without calls of functions in them.
 *
 * Order: any. Threads: any. Bounds: none but the text.
 */
#include "source/internal.h"
#include <strings.h>

static const struct {
  const char *name;
  br_text_kind kind;
} readers[] = {{"read_csv", BR_TEXT_CSV},
               {"read_csv_auto", BR_TEXT_CSV},
               {"read_json", BR_TEXT_JSON},
               {"read_json_auto", BR_TEXT_JSON},
               {"read_ndjson", BR_TEXT_NDJSON},
               {"read_ndjson_auto", BR_TEXT_NDJSON},
               {"read_json_objects", BR_TEXT_OBJECTS},
               {"read_json_objects_auto", BR_TEXT_OBJECTS},
               {"read_ndjson_objects", BR_TEXT_NDJSON_OBJECTS}};

static int reader(const char *name, size_t n) {
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
    if (strlen(readers[i].name) == n && strncasecmp(name, readers[i].name, n) == 0) return (int)i;
  return -1;
}

bool br_text_is_reader(const char *function) { return reader(function, strlen(function)) >= 0; }

static const char *blank(const char *p) {
  while (*p && br_sql_is_blank(p)) p = br_sql_skip(p);
  return p;
}

/* 'it''s' at *p, which moves behind it. NULL: no plain literal. */
static const char *literal(br_arena *mem, const char **p) {
  const char *end;
  if (**p != '\'') return NULL;
  end = br_sql_skip(*p);
  char *out = br_arena_alloc(mem, (size_t)(end - *p) + 1), *to = out;
  for (const char *at = *p + 1; at < end - 1; at++) {
    *to++ = *at;
    if (*at == '\'') at++;
  }
  *to = 0;
  *p = blank(end);
  return out;
}

static bool files(br_text_call *c, const char **p) {
  size_t capacity = 1;
  bool list = **p == '[';
  for (const char *q = *p; *q; q++) capacity += *q == ',';
  c->patterns = br_arena_alloc(c->mem, capacity * sizeof *c->patterns);
  if (list) *p = blank(*p + 1);
  do {
    const char *one = literal(c->mem, p);
    if (!one || c->n_patterns == capacity) return false;
    c->patterns[c->n_patterns++] = one;
  } while (list && **p == ',' && (*p = blank(*p + 1)));
  if (!list) return true;
  if (**p != ']') return false;
  *p = blank(*p + 1);
  return true;
}

static bool word(const char *p) { return *p == '_' || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z'); }

/* The value up to the ',' or ')' that ends it. NULL: something that is no constant. */
static const char *value(br_text_call *c, const char **p) {
  const char *start = *p, *end = start;
  int depth = 0;
  for (const char *at = start; *at;) {
    if (depth == 0 && (*at == ',' || *at == ')')) {
      *p = at;
      return end > start ? br_arena_strndup(c->mem, start, (size_t)(end - start)) : NULL;
    }
    if (*at == '[' || *at == '{' || *at == '(') depth++;
    if (*at == ']' || *at == '}' || *at == ')') depth--;
    if (*at == '$' || *at == '?' || *at == ';' || depth < 0) return NULL;
    bool name = word(at), space = br_sql_is_blank(at);
    at = br_sql_skip(at);
    if (!space) end = at;
    if (name && *blank(at) == '(') return NULL; /* a function */
  }
  return NULL;
}

static bool argument(br_text_call *c, const char **p) {
  const char *name = *p, *end;
  if (!word(name)) return false;
  end = br_sql_skip(name);
  *p = blank(end);
  if ((*p)[0] == ':' && (*p)[1] == '=')
    *p = blank(*p + 2);
  else if ((*p)[0] == '=' && (*p)[1] == '>')
    *p = blank(*p + 2);
  else if ((*p)[0] == '=')
    *p = blank(*p + 1);
  else
    return false;
  char *lower = br_arena_strndup(c->mem, name, (size_t)(end - name));
  for (char *q = lower; *q; q++)
    if (*q >= 'A' && *q <= 'Z') *q = (char)(*q - 'A' + 'a');
  br_text_argument *a = &c->arguments[c->n_arguments++];
  a->name = lower;
  a->value = value(c, p);
  return a->value != NULL;
}

bool br_text_call_parse(const char *text, br_text_call *out) {
  const char *p = blank(text), *end;
  size_t most = 1;
  *out = (br_text_call){.mem = br_arena_new()};
  if (!*p) return false;
  end = br_sql_skip(p);
  int which = reader(p, (size_t)(end - p));
  p = blank(end);
  if (which < 0 || *p != '(') return false;
  out->kind = readers[which].kind;
  out->function = readers[which].name;
  for (const char *q = p; *q; q++) most += *q == ',';
  out->arguments = br_arena_alloc(out->mem, most * sizeof *out->arguments);
  p = blank(p + 1);
  if (!files(out, &p)) return false;
  while (*p == ',') {
    p = blank(p + 1);
    if (out->n_arguments == most || !argument(out, &p)) return false;
  }
  return *p == ')' && !*blank(p + 1);
}

const char *br_text_argument_of(const br_text_call *c, const char *name) {
  for (size_t i = c->n_arguments; i-- > 0;) /* of an option that is given twice the last one counts */
    if (strcmp(c->arguments[i].name, name) == 0) return c->arguments[i].value;
  return NULL;
}
