/* SPDX-License-Identifier: Apache-2.0
 * See parameters.h. Order: any. Threads: any. Bounds: none of its own. */
#include "coordinator/parameters.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/engine.h"

void br_values_free(br_value *values, size_t n) {
  for (size_t i = 0; i < n; i++) {
    free(values[i].name);
    free(values[i].sql);
  }
  free(values);
}

void br_parameters_free(br_parameter *p, size_t n) {
  for (size_t i = 0; i < n; i++) free(p[i].name);
  free(p);
}

static bool name_start(char c) { return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }
static bool name_part(char c) { return name_start(c) || isdigit((unsigned char)c); }

/* At a '?' or '$': behind the parameter; NULL: a text in dollar quotes. */
static const char *parameter_end(const char *p) {
  const char *end = p + 1;
  if (*p == '$' && br_sql_skip(p) > end) return NULL;
  if (*p == '$' && name_start(*end)) {
    while (name_part(*end)) end++;
    return end;
  }
  while (isdigit((unsigned char)*end)) end++;
  return *p == '$' && end == p + 1 ? NULL : end;
}

typedef struct found {
  br_parameter *items;
  size_t n, capacity;
  unsigned long highest; /* number so far: ? is the next one */
  bool named, numbered;
} found;

static void add(found *f, const char *sql, const char *at, const char *end) {
  br_parameter p = {.at = (size_t)(at - sql), .end = (size_t)(end - sql)};
  if (name_start(at[1])) {
    f->named = true;
    p.name = br_strndup(at + 1, (size_t)(end - at) - 1);
  } else {
    unsigned long number = end > at + 1 ? strtoul(at + 1, NULL, 10) : f->highest + 1;
    if (number > f->highest) f->highest = number;
    f->numbered = true;
    p.name = br_asprintf("%lu", number);
  }
  br_grow((void **)&f->items, &f->capacity, f->n, sizeof *f->items);
  f->items[f->n++] = p;
}

br_status br_parameters(const char *sql, br_parameter **out, size_t *n, br_error *err) {
  found f = {0};
  for (const char *p = sql; *p != 0;) {
    const char *end = *p == '?' || *p == '$' ? parameter_end(p) : NULL;
    if (end != NULL) add(&f, sql, p, end);
    p = end != NULL ? end : br_sql_skip(p);
  }
  *out = f.items;
  *n = f.n;
  if (!f.named || !f.numbered) return BR_OK;
  br_parameters_free(f.items, f.n);
  return br_fail(err, BR_INVALID, BR_BLAME_USER,
                 "the statement has parameters with names ($name) and others without ($1, ?): use one kind");
}

/* As it may stand anywhere: numbers and texts as they are (a table function looks at them), the rest in parentheses. */
static void add_value(br_buf *b, const char *sql) {
  bool plain = *sql != 0 && strspn(sql, "0123456789.") == strlen(sql);
  if (*sql == '\'' && br_sql_skip(sql)[0] == 0) plain = true;
  br_buf_printf(b, plain ? "%s" : "(%s\n)", sql);
}

static const br_value *value_of(const char *name, const br_value *values, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcasecmp(values[i].name, name) == 0) return &values[i];
  return NULL;
}

static br_status check_used(const br_parameter *places, size_t n_places, const br_value *values, size_t n,
                            br_error *err) {
  for (size_t i = 0; i < n; i++) {
    bool used = false;
    for (size_t k = 0; k < n_places && !used; k++) used = strcasecmp(places[k].name, values[i].name) == 0;
    if (!used)
      return br_fail(err, BR_INVALID, BR_BLAME_USER, "there is a value for $%.100s, which the statement does not have",
                     values[i].name);
    if (value_of(values[i].name, values, n) != &values[i])
      return br_fail(err, BR_INVALID, BR_BLAME_USER, "there are two values for $%.100s", values[i].name);
  }
  return BR_OK;
}

br_status br_parameters_bind(const char *sql, const br_value *values, size_t n, char **out, br_error *err) {
  br_parameter *places = NULL;
  size_t n_places = 0, at = 0;
  br_buf b = {0};
  br_status status;
  BR_TRY(br_parameters(sql, &places, &n_places, err));
  BR_TRY_GOTO(check_used(places, n_places, values, n, err));
  for (size_t i = 0; i < n_places; i++) {
    const br_value *v = value_of(places[i].name, values, n);
    if (v == NULL) {
      status = br_fail(err, BR_INVALID, BR_BLAME_USER, "there is no value for the parameter $%.100s", places[i].name);
      goto done;
    }
    br_buf_add(&b, sql + at, places[i].at - at);
    if (places[i].at > 0 && name_part(sql[places[i].at - 1])) br_buf_char(&b, ' '); /* LIMIT$1 */
    add_value(&b, v->sql);
    at = places[i].end;
    if (name_part(sql[at])) br_buf_char(&b, ' ');
  }
  br_buf_str(&b, sql + at);
  *out = br_strdup(br_buf_cstr(&b));
done:
  br_parameters_free(places, n_places);
  br_buf_free(&b);
  return status;
}
