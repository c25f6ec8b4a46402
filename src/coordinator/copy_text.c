/* SPDX-License-Identifier: Apache-2.0
 * COPY (select) TO 'target' (options), COPY table [(columns)] TO …: found by tokens; DuckDB has checked the syntax, and checks the
 * options that are passed on to it. Order: br_copy_parse, br_copy_text_free. Threads: any. Bounds: none of its own. */
#include "coordinator/copy_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/util.h"
#include "coordinator/tokens.h"

void br_copy_text_free(br_copy_text *c) {
  free(c->select);
  free(c->target);
  free(c->format);
  free(c->options);
  free(c->extension);
  *c = (br_copy_text){0};
}

/* table, or table (columns), between COPY and TO. */
static char *select_table(const char *from, const char *to) {
  const char *p = from, *t, *columns = NULL, *columns_end = NULL, *table_end = from;
  size_t n;
  while (p < to && br_token_next(&p, &t, &n) && t < to) {
    if (n == 1 && *t == '(') {
      columns = p;
      if (br_token_close(p, &columns_end) == NULL) return NULL;
      break;
    }
    table_end = t + n;
  }
  if (table_end == from) return NULL;
  if (columns == NULL) return br_asprintf("SELECT * FROM %.*s", (int)(table_end - from), from);
  return br_asprintf("SELECT %.*s FROM %.*s", (int)(columns_end - columns), columns, (int)(table_end - from), from);
}

/* What is copied; *p moves behind TO. False: something else. */
static bool parse_source(const char **p, br_copy_text *out) {
  const char *t, *from, *end;
  size_t n;
  if (!br_token_next(p, &t, &n) || !br_token_is(t, n, "copy")) return false;
  if (!br_token_next(p, &t, &n)) return false;
  const char *start = t;
  if (n == 1 && *t == '(') {
    from = *p;
    *p = br_token_close(from, &end);
    if (*p == NULL) return false;
    out->select = br_strndup(from, (size_t)(end - from));
    return br_token_next(p, &t, &n) && br_token_is(t, n, "to");
  }
  for (int depth = 0; !(depth == 0 && br_token_is(t, n, "to"));) {
    depth += br_token_depth(t, n);
    if (depth == 0 && (br_token_is(t, n, "from") || br_token_is(t, n, "database"))) return false;
    if (!br_token_next(p, &t, &n)) return false;
  }
  out->select = select_table(start, t);
  return out->select != NULL;
}

/* ---- options */

typedef struct option {
  char *name;
  const char *text; /* of its value, n bytes; 0: none */
  size_t n;
} option;

static bool truth(const option *o) {
  if (o->n == 0) return true;
  char *v = br_token_unquote(o->text, o->n);
  bool no = strcasecmp(v, "false") == 0 || strcasecmp(v, "off") == 0 || strcmp(v, "0") == 0;
  free(v);
  return !no;
}

/* Its value as text. Free it. */
static char *word(const option *o) { return br_token_unquote(o->text, o->n); }

static char character(const option *o) {
  char *v = word(o), c = v[0];
  free(v);
  return c;
}

/* name value, up to a comma or the closing bracket. *p moves behind it. False: no option there. */
static bool next_option(const char **p, const char *end, option *o) {
  const char *t, *last = NULL, *at = *p;
  size_t n;
  *o = (option){0};
  if (at >= end || !br_token_next(&at, &t, &n) || t >= end) return false;
  o->name = br_token_unquote(t, n);
  for (int depth = 0; at < end && br_token_next(&at, &t, &n) && t < end;) {
    if (depth == 0 && n == 1 && *t == ',') break;
    depth += br_token_depth(t, n);
    if (o->text == NULL) o->text = t;
    last = t + n;
  }
  if (last != NULL) o->n = (size_t)(last - o->text);
  *p = at;
  return true;
}

typedef struct options {
  br_buf passed;
  bool many, overwrite, append, ignore, explicit_format, row_groups;
  uint64_t file_bytes;
  char *pattern, *compression;
} options;

static void pass_on(options *all, const option *o) {
  if (all->passed.len > 0) br_buf_str(&all->passed, ", ");
  br_buf_sql_ident(&all->passed, o->name);
  if (o->n > 0) {
    br_buf_char(&all->passed, ' ');
    br_buf_add(&all->passed, o->text, o->n);
  }
}

static void set_text(char **to, const option *o) {
  free(*to);
  *to = word(o);
}

/* Ours, not to be passed on. */
static bool own_option(br_copy_text *c, options *all, const option *o) {
  const char *name = o->name;
  if (strcasecmp(name, "format") == 0) {
    set_text(&c->format, o);
    all->explicit_format = true;
  } else if (strcasecmp(name, "per_thread_output") == 0) {
    all->many = all->many || truth(o);
  } else if (strcasecmp(name, "overwrite") == 0) {
    all->overwrite = truth(o);
  } else if (strcasecmp(name, "overwrite_or_ignore") == 0) {
    all->ignore = truth(o);
  } else if (strcasecmp(name, "append") == 0) {
    all->append = truth(o);
  } else if (strcasecmp(name, "write_empty_file") == 0) {
    c->write_empty = truth(o);
  } else if (strcasecmp(name, "filename_pattern") == 0) {
    set_text(&all->pattern, o);
  } else if (strcasecmp(name, "file_extension") == 0) {
    char *e = word(o);
    free(c->extension);
    c->extension = br_asprintf("%s%s", e[0] == '.' || e[0] == 0 ? "" : ".", e);
    free(e);
  } else {
    return strcasecmp(name, "return_files") == 0 || strcasecmp(name, "return_stats") == 0 ||
           strcasecmp(name, "use_tmp_file") == 0;
  }
  return true;
}

static void look_at(br_copy_text *c, options *all, const option *o) {
  const char *name = o->name;
  if (strcasecmp(name, "partition_by") == 0) c->partitioned = true;
  if (strcasecmp(name, "file_size_bytes") == 0 || strcasecmp(name, "row_groups_per_file") == 0) c->split = true;
  if (strncasecmp(name, "row_group", 9) == 0) all->row_groups = true;
  if (strcasecmp(name, "file_size_bytes") == 0) {
    br_error ignored; /* DuckDB checks it */
    char *v = word(o);
    if (br_parse_bytes(v, &all->file_bytes, &ignored) != BR_OK) all->file_bytes = 0;
    free(v);
  }
  if (strcasecmp(name, "compression") == 0) set_text(&all->compression, o);
  if (strcasecmp(name, "header") == 0) c->header = truth(o);
  if (strcasecmp(name, "quote") == 0) c->quote = character(o);
  if (strcasecmp(name, "escape") == 0) c->escape = character(o);
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcasecmp(s + n - m, end) == 0;
}

static char *format_of_name(const char *target) {
  char *name = br_strdup(target);
  for (size_t n = strlen(name); n > 1 && name[n - 1] == '/';) name[--n] = 0;
  if (ends_with(name, ".gz")) name[strlen(name) - 3] = 0;
  if (ends_with(name, ".zst")) name[strlen(name) - 4] = 0;
  const char *format = ends_with(name, ".parquet")                                                           ? "parquet"
                       : ends_with(name, ".json") || ends_with(name, ".jsonl") || ends_with(name, ".ndjson") ? "json"
                                                                                                             : "csv";
  free(name);
  return br_strdup(format);
}

static char *default_extension(const br_copy_text *c, const options *all) {
  const char *more = "";
  if (all->compression != NULL && strcmp(c->format, "parquet") != 0) {
    if (strcasecmp(all->compression, "gzip") == 0 || strcasecmp(all->compression, "gz") == 0) more = ".gz";
    if (strcasecmp(all->compression, "zstd") == 0) more = ".zst";
  }
  return br_asprintf(".%s%s", c->format, more);
}

static br_status check_directory(const br_copy_text *c, const options *all, br_error *err) {
  if (strcmp(c->format, "parquet") != 0 && strcmp(c->format, "csv") != 0 && strcmp(c->format, "json") != 0)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "COPY writes several files as parquet, csv or json, and not as %s", c->format);
  if (all->pattern != NULL)
    return br_fail(
        err, BR_UNSUPPORTED, BR_BLAME_USER,
        "FILENAME_PATTERN can't be chosen: files are named part-<task>-<query>, so that they are unique and in "
        "the order of rows");
  if (all->overwrite && all->append)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "OVERWRITE and APPEND exclude each other");
  if (c->extension != NULL && (strchr(c->extension, '/') != NULL || c->extension[0] == 0))
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "FILE_EXTENSION is not the end of a file's name: '%s'",
                   c->extension);
  return BR_OK;
}

/* What the options mean together. */
static br_status conclude(br_copy_text *c, options *all, br_error *err) {
  size_t n = strlen(c->target);
  if (c->format == NULL) c->format = format_of_name(c->target);
  for (char *p = c->format; *p != 0; p++) *p = (char)tolower((unsigned char)*p);
  c->directory = all->many || c->partitioned || c->split || (n > 0 && c->target[n - 1] == '/');
  c->mode = all->overwrite ? BR_SINK_OVERWRITE : all->append || all->ignore ? BR_SINK_APPEND : BR_SINK_NEW;
  if (!all->row_groups && strcmp(c->format, "parquet") == 0) c->file_bytes = all->file_bytes;
  if (c->escape == 0) c->escape = c->quote; /* DuckDB's default is a doubled quote */
  if (!c->directory) {
    c->mode = BR_SINK_REPLACE;
    if (all->explicit_format) { /* else DuckDB looks at the name */
      br_buf b = {0};
      br_buf_str(&b, "FORMAT ");
      br_buf_sql_ident(&b, c->format);
      if (all->passed.len > 0) br_buf_printf(&b, ", %s", br_buf_cstr(&all->passed));
      br_buf_free(&all->passed);
      all->passed = b;
    }
  } else {
    BR_TRY(check_directory(c, all, err));
    if (c->extension == NULL) c->extension = default_extension(c, all);
  }
  c->options = br_strdup(br_buf_cstr(&all->passed));
  return BR_OK;
}

br_status br_copy_parse(const char *sql, bool *is, br_copy_text *out, br_error *err) {
  const char *p = sql, *t, *end = NULL;
  size_t n;
  options all = {0};
  option o;
  br_status status = BR_OK;
  *is = false;
  *out = (br_copy_text){.quote = '"', .header = true, .write_empty = true};
  if (!parse_source(&p, out) || !br_token_next(&p, &t, &n) || *t != '\'') goto done;
  out->target = br_token_unquote(t, n);
  bool more = br_token_next(&p, &t, &n);
  if (more && br_token_is(t, n, "with")) more = br_token_next(&p, &t, &n);
  if (more) {
    const char *options_at = p;
    if (n != 1 || *t != '(' || (p = br_token_close(p, &end)) == NULL || br_token_next(&p, &t, &n)) goto done;
    while (next_option(&options_at, end, &o)) {
      look_at(out, &all, &o);
      if (!own_option(out, &all, &o)) pass_on(&all, &o);
      free(o.name);
    }
  }
  *is = true;
  status = conclude(out, &all, err);
done:
  br_buf_free(&all.passed);
  free(all.pattern);
  free(all.compression);
  if (!*is || status != BR_OK) br_copy_text_free(out);
  return status;
}
