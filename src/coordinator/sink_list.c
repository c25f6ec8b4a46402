/* SPDX-License-Identifier: Apache-2.0
 * Names: <attempt>/[pass-N/][key=value/…]f-K.brant becomes [key=value/…]part-<task>-<query>[-<K>]<extension>: a function of the plan
 * and the query alone, in the order of rows. Order: add or read, place, next. Threads: one. Bounds: memory is O(files). */
#include "coordinator/sink_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sink/sink.h"

#define DIGITS_LEAST 5u
#define PASS_FILES 100000u /* counters of a pass are above those of the one before */
#define NULL_PARTITION "__HIVE_DEFAULT_PARTITION__"

const char *const br_sink_list_types[BR_SINK_LIST_COLUMNS] = {"VARCHAR", "BIGINT", "BIGINT"};

void br_sink_list_add(br_sink_list *l, const char *staged, int64_t rows, uint64_t bytes) {
  br_grow((void **)&l->files, &l->cap, l->n, sizeof *l->files);
  l->files[l->n++] =
      (br_sink_file){.staged = br_strdup(staged), .path = br_strdup(staged), .rows = rows, .bytes = bytes};
}

void br_sink_list_cut(br_sink_list *l, size_t n) {
  while (l->n > n) {
    free(l->files[--l->n].staged);
    free(l->files[l->n].path);
  }
}

void br_sink_list_free(br_sink_list *l) {
  br_sink_list_cut(l, 0);
  free(l->files);
  *l = (br_sink_list){0};
}

br_status br_sink_list_read(br_sink_list *l, const br_batch *b, br_error *err) {
  struct ArrowArrayView v;
  br_schema *schema = br_batch_schema((br_batch *)(uintptr_t)b);
  br_status status = BR_OK;
  if (ArrowArrayViewInitFromSchema(&v, br_schema_arrow(schema), NULL) != NANOARROW_OK ||
      v.n_children != BR_SINK_LIST_COLUMNS || ArrowArrayViewSetArray(&v, br_batch_arrow(b), NULL) != NANOARROW_OK) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the list of a task's files can't be read");
    goto done;
  }
  for (int64_t i = 0; i < br_batch_rows(b); i++) {
    struct ArrowStringView path = ArrowArrayViewGetStringUnsafe(v.children[0], i);
    char *text = br_strndup(path.data, (size_t)path.size_bytes);
    int64_t rows = ArrowArrayViewIsNull(v.children[1], i) ? -1 : ArrowArrayViewGetIntUnsafe(v.children[1], i);
    br_sink_list_add(l, text, rows, (uint64_t)ArrowArrayViewGetIntUnsafe(v.children[2], i));
    free(text);
  }
done:
  ArrowArrayViewReset(&v);
  return status;
}

/* ---- names */

typedef struct place {
  uint32_t task, counter;
  const char *dirs; /* key=value/… with a slash behind, n bytes */
  size_t n_dirs;
} place;

/* Takes a staged path apart; it comes from another process. */
static bool parse_place(const char *staged, place *out) {
  uint64_t query;
  unsigned stage, attempt, pass = 0;
  int used = 0, more = 0;
  *out = (place){0};
  const char *p = strchr(staged, '/');
  if (p == NULL) return false;
  if (strncmp(staged, "local/", 6) != 0 &&
      (sscanf(staged, "q%" SCNx64 ".s%u.t%u.a%u/%n", &query, &stage, &out->task, &attempt, &used) != 4 ||
       staged + used != p + 1))
    return false;
  p++;
  if (sscanf(p, "pass-%u/%n", &pass, &more) == 1) p += more;
  const char *name = strrchr(p, '/');
  name = name ? name + 1 : p;
  out->dirs = p;
  out->n_dirs = (size_t)(name - p);
  int end = 0;
  if (sscanf(name, "f-%u.%n", &out->counter, &end) != 1 || end == 0) return false;
  out->counter += pass * PASS_FILES;
  return true;
}

static int by_path(const void *a, const void *b) {
  return strcmp(((const br_sink_file *)a)->path, ((const br_sink_file *)b)->path);
}

/* Files that were written for nothing. The first one stays if nothing else has rows: it has the columns. */
static void leave_out_empty(br_sink_list *l, bool keep_one) {
  size_t kept = 0;
  bool any = false;
  for (size_t i = 0; i < l->n; i++) any = any || l->files[i].rows != 0;
  for (size_t i = 0; i < l->n; i++) {
    if (l->files[i].rows != 0 || (!any && keep_one && kept == 0)) {
      l->files[kept++] = l->files[i];
      continue;
    }
    free(l->files[i].staged);
    free(l->files[i].path);
  }
  l->n = kept;
}

br_status br_sink_list_place(br_sink_list *l, const br_sink_names *names, br_error *err) {
  unsigned width = DIGITS_LEAST;
  for (uint64_t most = 100000; names->tasks > most; most *= 10) width++;
  leave_out_empty(l, names->keep_empty);
  for (size_t i = 0; i < l->n; i++) {
    br_sink_file *f = &l->files[i];
    place at;
    if (!parse_place(f->staged, &at))
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a task of a COPY wrote a file of a strange name: %s",
                     f->staged);
    bool counted = names->counted || at.counter > 0;
    char *name = br_sink_file_name(width, at.task, names->id, counted ? &at.counter : NULL, names->extension);
    free(f->path);
    f->path = br_asprintf("%.*s%s", (int)at.n_dirs, at.dirs, name);
    free(name);
  }
  if (l->n > 0) qsort(l->files, l->n, sizeof *l->files, by_path);
  return BR_OK;
}

uint64_t br_sink_list_rows(const br_sink_list *l) {
  uint64_t rows = 0;
  for (size_t i = 0; i < l->n; i++) rows += l->files[i].rows > 0 ? (uint64_t)l->files[i].rows : 0;
  return rows;
}

/* ---- for the caller */

br_status br_sink_list_schema(br_session *s, bool partitioned, br_schema **out, br_error *err) {
  const char *types[] = {"VARCHAR", "BIGINT", "BIGINT", "MAP(VARCHAR, VARCHAR)"};
  const char *names[] = {"file", "rows", "bytes", "partition"};
  return br_session_schema(s, types, names, partitioned ? 4 : 3, out, err);
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n bytes of a directory's name, %XX decoded, as an SQL text. */
static void add_decoded(br_buf *b, const char *p, size_t n) {
  br_buf text = {0};
  for (size_t i = 0; i < n; i++) {
    bool escaped = p[i] == '%' && i + 2 < n && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0;
    br_buf_char(&text, escaped ? (char)(hex(p[i + 1]) * 16 + hex(p[i + 2])) : p[i]);
    if (escaped) i += 2;
  }
  br_buf_sql_literal(b, br_buf_cstr(&text), text.len);
  br_buf_free(&text);
}

static void add_partition(br_buf *b, const char *path) {
  const char *end = strrchr(path, '/');
  br_buf_str(b, "MAP {");
  for (const char *p = path; end != NULL && p < end;) {
    const char *slash = strchr(p, '/'), *equals = memchr(p, '=', (size_t)(slash - p));
    if (equals != NULL) {
      const char *value = equals + 1;
      if (p != path) br_buf_str(b, ", ");
      add_decoded(b, p, (size_t)(equals - p));
      br_buf_str(b, ": ");
      if ((size_t)(slash - value) == strlen(NULL_PARTITION) &&
          strncmp(value, NULL_PARTITION, strlen(NULL_PARTITION)) == 0)
        br_buf_str(b, "NULL");
      else
        add_decoded(b, value, (size_t)(slash - value));
    }
    p = slash + 1;
  }
  br_buf_char(b, '}');
}

static void add_row(br_buf *b, const br_sink_file *f, bool partitioned) {
  br_buf_char(b, '(');
  br_buf_sql_literal(b, f->path, strlen(f->path));
  if (f->rows < 0)
    br_buf_str(b, ", NULL");
  else
    br_buf_printf(b, ", %" PRId64, f->rows);
  br_buf_printf(b, ", %" PRIu64 "%s", f->bytes, partitioned ? ", " : "");
  if (partitioned) add_partition(b, f->path);
  br_buf_char(b, ')');
}

br_status br_sink_list_next(br_sink_list *l, br_session *s, bool partitioned, br_batch **out, br_error *err) {
  *out = NULL;
  if (l->given == l->n) return BR_OK;
  size_t end = l->n - l->given > BR_SINK_LIST_BATCH_ROWS ? l->given + BR_SINK_LIST_BATCH_ROWS : l->n;
  br_local_stream *st = NULL;
  br_batch *none = NULL;
  br_buf b = {0};
  br_buf_printf(&b, "SELECT c0 AS file, c1::BIGINT AS rows, c2::BIGINT AS bytes%s FROM (VALUES ",
                partitioned ? ", c3::MAP(VARCHAR, VARCHAR) AS partition" : "");
  for (size_t i = l->given; i < end; i++) {
    if (i > l->given) br_buf_str(&b, ", ");
    add_row(&b, &l->files[i], partitioned);
  }
  br_buf_printf(&b, ") AS list(c0, c1, c2%s)", partitioned ? ", c3" : "");
  br_status status = br_session_stream(s, br_buf_cstr(&b), &st, err);
  if (status == BR_OK) status = br_local_stream_next(st, out, err);
  if (status == BR_OK)
    status = br_local_stream_next(st, &none, err); /* the first one has all: it may have 2,048 rows */
  br_batch_unref(none);
  br_local_stream_free(st);
  br_buf_free(&b);
  l->given = end;
  return status;
}
