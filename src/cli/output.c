/* SPDX-License-Identifier: Apache-2.0
 * Prints a result. CSV and JSON are written by DuckDB's own writers, and a table's cells are DuckDB's own text, over the result
 * stream as input(0): so every type looks as DuckDB shows it. Arrow goes out as it came, enums as texts. One thread; rows stream through, but
 * for a table, which keeps the rows that it will show. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "arrow/ipc.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "coordinator/handle.h"
#include "coordinator/session.h"

#define CELL_WIDTH_MAX 60 /* columns of a terminal */

typedef struct result_input {
  struct ArrowArrayStream stream;
  br_schema *schema;
  cli_progress *progress;
} result_input;

static br_status next_batch(void *arg, br_batch **out, br_error *err) {
  result_input *r = arg;
  struct ArrowArray a;
  *out = NULL;
  if (r->stream.get_next(&r->stream, &a) != 0)
    return br_fail(err, BR_EXECUTION, BR_BLAME_USER, "%s", r->stream.get_last_error(&r->stream));
  if (a.release == NULL) return BR_OK;
  return br_batch_new(r->schema, &a, 0, out, err);
}

static br_status open_input(brant_query *q, result_input *r, br_error *err) {
  struct ArrowSchema schema;
  memset(r, 0, sizeof *r);
  BR_TRY(br_query_text_stream(q, &r->stream, err));
  if (r->stream.get_schema(&r->stream, &schema) != 0)
    return br_fail(err, BR_EXECUTION, BR_BLAME_USER, "%s", r->stream.get_last_error(&r->stream));
  return br_schema_new(&schema, &r->schema, err);
}

static void close_input(result_input *r) {
  if (r->stream.release != NULL) r->stream.release(&r->stream);
  br_schema_unref(r->schema);
}

/* ---- csv, json */

/* DuckDB writes to a path. /dev/stdout would be opened anew: a file that standard output appends to would be cut to nothing, and
 * a socket can't be opened. So it writes to a pipe of ours, and a thread carries the bytes over. */
typedef struct pump {
  int fds[2];
  pthread_t thread;
  br_error err; /* of writing to standard output */
  cli_progress *progress;
} pump;

static void *carry(void *arg) {
  pump *p = arg;
  char chunk[65536];
  for (;;) {
    ssize_t n = read(p->fds[0], chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) cli_progress_hide(p->progress);
    if (n <= 0 || br_write_all(STDOUT_FILENO, chunk, (size_t)n, &p->err) != BR_OK) break;
  }
  close(p->fds[0]); /* nobody reads any more: the writer's next write fails */
  return NULL;
}

static br_status start_pump(pump *p, br_error *err) {
  br_error_clear(&p->err);
  if (pipe2(p->fds, O_CLOEXEC) != 0) return br_fail_errno(err, errno, BR_BLAME_INTERNAL, "cannot make a pipe");
  int rc = pthread_create(&p->thread, NULL, carry, p);
  if (rc == 0) return BR_OK;
  close(p->fds[0]);
  close(p->fds[1]);
  return br_fail_errno(err, rc, BR_BLAME_INTERNAL, "cannot start a thread");
}

static br_status copy_to(br_session *on, result_input *r, int fd, const char *options, br_error *err) {
  br_run_input in = {.number = 0, .schema = r->schema, .ordered = true, .next = next_batch, .arg = r};
  char *sql = br_asprintf("COPY (SELECT * FROM input(0)) TO '/dev/fd/%d' (%s)", fd, options);
  br_local_stream *st = NULL;
  br_batch *count = NULL;
  br_status status = br_session_stream_over(on, sql, &in, 1, &st, err);
  while (status == BR_OK && (status = br_local_stream_next(st, &count, err)) == BR_OK && count != NULL)
    br_batch_unref(count);
  br_local_stream_free(st);
  free(sql);
  return status;
}

static br_status copy_out(br_session *on, result_input *r, const char *options, br_error *err) {
  pump p = {.progress = r->progress};
  BR_TRY(start_pump(&p, err));
  br_status status = copy_to(on, r, p.fds[1], options, err);
  close(p.fds[1]);
  pthread_join(p.thread, NULL);
  if (p.err.code == BR_OK) return status;
  *err = p.err;
  return (br_status)err->code;
}

/* ---- arrow */

static br_status write_arrow(result_input *r, br_error *err) {
  br_buf head = {0}, body = {0}, frame = {0};
  br_batch *b = NULL;
  br_status status = BR_OK;
  cli_progress_hide(r->progress);
  BR_TRY_GOTO(br_ipc_encode_schema(r->schema, &head, err));
  BR_TRY_GOTO(br_ipc_frame(&head, NULL, &frame, err));
  BR_TRY_GOTO(br_write_all(STDOUT_FILENO, frame.data, frame.len, err));
  while ((status = next_batch(r, &b, err)) == BR_OK && b != NULL) {
    br_buf_clear(&head);
    br_buf_clear(&body);
    br_buf_clear(&frame);
    status = br_ipc_encode_array(b, BR_CODEC_NONE, &head, &body, err);
    br_batch_unref(b);
    if (status != BR_OK) goto done;
    BR_TRY_GOTO(br_ipc_frame(&head, &body, &frame, err));
    BR_TRY_GOTO(br_write_all(STDOUT_FILENO, frame.data, frame.len, err));
  }
  if (status == BR_OK) status = br_write_all(STDOUT_FILENO, br_ipc_end_mark, sizeof br_ipc_end_mark, err);
done:
  br_buf_free(&head);
  br_buf_free(&body);
  br_buf_free(&frame);
  return status;
}

/* ---- table */

typedef struct cell_table {
  size_t columns, rows, total; /* rows kept of total */
  char **cells;
  size_t cap;
  int *width;
} cell_table;

static int text_width(const char *s) {
  mbstate_t st = {0};
  int width = 0;
  wchar_t c;
  for (size_t n; *s != 0 && (n = mbrtowc(&c, s, MB_CUR_MAX, &st)) != 0; s += n) {
    if (n == (size_t)-1 || n == (size_t)-2) return width + (int)strlen(s);
    int w = wcwidth(c);
    width += w > 0 ? w : 0;
  }
  return width;
}

/* Line ends as escapes; cut at CELL_WIDTH_MAX. */
static char *cell_text(const char *s, size_t n) {
  br_buf b = {0};
  for (size_t i = 0; i < n; i++) {
    if (s[i] == '\n')
      br_buf_str(&b, "\\n");
    else if (s[i] == '\t')
      br_buf_str(&b, "\\t");
    else if (s[i] == '\r')
      br_buf_str(&b, "\\r");
    else if ((unsigned char)s[i] < 32)
      br_buf_printf(&b, "\\x%02x", (unsigned char)s[i]);
    else
      br_buf_char(&b, s[i]);
    if (b.len > CELL_WIDTH_MAX * 4) break;
  }
  char *text = br_strdup(br_buf_cstr(&b));
  br_buf_free(&b);
  while (text_width(text) > CELL_WIDTH_MAX) {
    size_t len = strlen(text);
    do len--;
    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80);
    text[len] = 0;
    if (text_width(text) <= CELL_WIDTH_MAX - 1) {
      char *cut = br_asprintf("%s…", text);
      free(text);
      return cut;
    }
  }
  return text;
}

static void add_cell(cell_table *t, size_t column, char *text) {
  br_grow((void **)&t->cells, &t->cap, t->columns * t->rows + column, sizeof *t->cells);
  t->cells[t->columns * t->rows + column] = text;
  int w = text_width(text);
  if (w > t->width[column]) t->width[column] = w;
}

static void add_rows(cell_table *t, const br_batch *b, size_t max_rows, struct ArrowArrayView *view) {
  int64_t n = br_batch_rows(b);
  for (int64_t i = 0; i < n; i++) {
    t->total++;
    if (max_rows != 0 && t->rows >= max_rows) continue;
    for (size_t c = 0; c < t->columns; c++) {
      const struct ArrowArrayView *v = view->children[c];
      if (ArrowArrayViewIsNull(v, i)) {
        add_cell(t, c, br_strdup("NULL"));
      } else {
        struct ArrowStringView s = ArrowArrayViewGetStringUnsafe(v, i);
        add_cell(t, c, cell_text(s.data, (size_t)s.size_bytes));
      }
    }
    t->rows++;
  }
}

static void pad(const char *text, int width) {
  fputs(text, stdout);
  for (int w = text_width(text); w < width; w++) putchar(' ');
}

static void print_rule(const cell_table *t, const char *left, const char *mid, const char *right) {
  fputs(left, stdout);
  for (size_t c = 0; c < t->columns; c++) {
    if (c > 0) fputs(mid, stdout);
    for (int w = 0; w < t->width[c] + 2; w++) fputs("─", stdout);
  }
  puts(right);
}

static void print_table(const cell_table *t, char **names) {
  print_rule(t, "┌", "┬", "┐");
  for (size_t c = 0; c < t->columns; c++) {
    fputs("│ ", stdout);
    pad(names[c], t->width[c]);
    putchar(' ');
  }
  puts("│");
  print_rule(t, "├", "┼", "┤");
  for (size_t r = 0; r < t->rows; r++) {
    for (size_t c = 0; c < t->columns; c++) {
      fputs("│ ", stdout);
      pad(t->cells[r * t->columns + c], t->width[c]);
      putchar(' ');
    }
    puts("│");
  }
  print_rule(t, "└", "┴", "┘");
  if (t->total > t->rows)
    printf("%zu rows (%zu shown: --max-rows 0 shows all, --format csv is for files)\n", t->total, t->rows);
  else
    printf("%zu row%s\n", t->total, t->total == 1 ? "" : "s");
}

static br_status collect(br_local_stream *st, cell_table *t, size_t max_rows, br_error *err) {
  struct ArrowArrayView view;
  br_batch *b = NULL;
  br_status status = BR_OK;
  if (ArrowArrayViewInitFromSchema(&view, br_schema_arrow(br_local_stream_schema(st)), NULL) != NANOARROW_OK)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot read the result's schema");
  while ((status = br_local_stream_next(st, &b, err)) == BR_OK && b != NULL) {
    if (ArrowArrayViewSetArray(&view, br_batch_arrow(b), NULL) != NANOARROW_OK)
      status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot read the result's rows");
    else
      add_rows(t, b, max_rows, &view);
    br_batch_unref(b);
    if (status != BR_OK) break;
  }
  ArrowArrayViewReset(&view);
  return status;
}

static br_status write_table(br_session *on, result_input *r, size_t max_rows, br_error *err) {
  br_run_input in = {.number = 0, .schema = r->schema, .ordered = true, .next = next_batch, .arg = r};
  const struct ArrowSchema *schema = br_schema_arrow(r->schema);
  size_t n = (size_t)br_schema_columns(r->schema);
  char **names = br_calloc(n, sizeof *names);
  cell_table t = {.columns = n, .width = br_calloc(n, sizeof *t.width)};
  for (size_t c = 0; c < n; c++) {
    const char *name = schema->children[c]->name;
    names[c] = cell_text(name ? name : "", name ? strlen(name) : 0);
    t.width[c] = text_width(names[c]);
  }
  br_local_stream *st = NULL;
  br_status status = br_session_stream_over(on, "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM input(0)", &in, 1, &st, err);
  if (status == BR_OK) status = collect(st, &t, max_rows, err);
  br_local_stream_free(st);
  if (status == BR_OK) {
    cli_progress_hide(r->progress);
    print_table(&t, names);
  }
  for (size_t i = 0; i < t.rows * n; i++) free(t.cells[i]);
  for (size_t c = 0; c < n; c++) free(names[c]);
  free(t.cells);
  free(t.width);
  free(names);
  return status;
}

/* ---- plans: the lines of the last column as they are */

static br_status write_lines(result_input *r, br_error *err) {
  struct ArrowArrayView view;
  br_batch *b = NULL;
  br_status status = BR_OK;
  int64_t last = br_schema_columns(r->schema) - 1;
  if (ArrowArrayViewInitFromSchema(&view, br_schema_arrow(r->schema), NULL) != NANOARROW_OK)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot read the result's schema");
  while ((status = next_batch(r, &b, err)) == BR_OK && b != NULL) {
    if (ArrowArrayViewSetArray(&view, br_batch_arrow(b), NULL) != NANOARROW_OK)
      status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot read the result's rows");
    for (int64_t i = 0; status == BR_OK && i < br_batch_rows(b); i++) {
      struct ArrowStringView line = ArrowArrayViewGetStringUnsafe(view.children[last], i);
      printf("%.*s%s", (int)line.size_bytes, line.data,
             line.size_bytes > 0 && line.data[line.size_bytes - 1] == '\n' ? "" : "\n");
    }
    br_batch_unref(b);
    if (status != BR_OK) break;
  }
  ArrowArrayViewReset(&view);
  return status;
}

/* The query's own error says more than "input failed". */
static void prefer_query_error(brant_query *q, br_error *err) {
  brant_error be;
  if (brant_query_error(q, &be) != 0) br_fail(err, (br_code)be.code, (br_blame)be.blame, "%s", be.message);
}

int cli_print_result(brant_session *s, brant_query *q, const cli_options *o, cli_progress *p, brant_error *out) {
  br_error err;
  br_error_clear(&err);
  result_input r;
  br_session *on = NULL;
  br_status status = open_input(q, &r, &err);
  r.progress = p;
  if (status == BR_OK && br_schema_columns(r.schema) > 0) {
    if (o->format != FORMAT_ARROW) status = br_session_open(s->engine, &on, &err);
    if (status == BR_OK) switch (o->format) {
        case FORMAT_ARROW: status = write_arrow(&r, &err); break;
        case FORMAT_CSV: status = copy_out(on, &r, "FORMAT csv, HEADER true", &err); break;
        case FORMAT_JSON: status = copy_out(on, &r, "FORMAT json", &err); break;
        case FORMAT_TABLE: status = o->plain ? write_lines(&r, &err) : write_table(on, &r, o->max_rows, &err); break;
      }
    if (status == BR_OK && fflush(stdout) != 0)
      status = br_fail_errno(&err, errno, BR_BLAME_USER, "cannot write to standard output");
  }
  close_input(&r);
  if (on != NULL) br_session_close(on);
  if (status != BR_OK) {
    prefer_query_error(q, &err);
    br_error_export(&err, out);
  }
  return status;
}
