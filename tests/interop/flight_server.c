/* SPDX-License-Identifier: Apache-2.0
 *
 * A Flight server for tests/interop/test_flight_pyarrow.py: tables of id int64, x double, s string, made on the fly.
 * flight_server [bearer token]: prints its port, serves until its standard input closes.
 *
 * Tickets: "table <rows> <rows a batch>", "fail", "fail-later". Actions: "echo", "count" (body: how many results), "fail".
 */
#include "arrow/ipc.h"
#include "base/mem.h"
#include "base/util.h"
#include "flight/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
  br_schema *schema;
  int64_t rows, each, at;
  bool said_schema, fails;
  br_buf head;
} table;

static br_status make_schema(br_schema **out, br_error *err) {
  static const char *const names[] = {"id", "x", "s"};
  static const enum ArrowType types[] = {NANOARROW_TYPE_INT64, NANOARROW_TYPE_DOUBLE, NANOARROW_TYPE_STRING};
  struct ArrowSchema s;
  ArrowSchemaInit(&s);
  int r = ArrowSchemaSetTypeStruct(&s, 3);
  for (int i = 0; i < 3 && !r; i++) {
    r = ArrowSchemaSetType(s.children[i], types[i]);
    if (!r) r = ArrowSchemaSetName(s.children[i], names[i]);
  }
  if (r) {
    ArrowSchemaRelease(&s);
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot make a schema");
  }
  return br_schema_new(&s, out, err);
}

static int fill_rows(struct ArrowArray *a, int64_t from, int64_t n) {
  int r = ArrowArrayStartAppending(a);
  for (int64_t i = from; i < from + n && !r; i++) {
    char text[32];
    int len = snprintf(text, sizeof text, "row %lld", (long long)i);
    r = ArrowArrayAppendInt(a->children[0], i);
    if (!r) r = i % 7 ? ArrowArrayAppendDouble(a->children[1], (double)i / 2) : ArrowArrayAppendNull(a->children[1], 1);
    if (!r) r = ArrowArrayAppendString(a->children[2], (struct ArrowStringView){text, len});
    if (!r) r = ArrowArrayFinishElement(a);
  }
  return r ? r : ArrowArrayFinishBuildingDefault(a, NULL);
}

static br_status encode_rows(table *t, int64_t n, br_buf *body, br_error *err) {
  struct ArrowArray a;
  br_batch *b = NULL;
  if (ArrowArrayInitFromSchema(&a, (struct ArrowSchema *)br_schema_arrow(t->schema), NULL) || fill_rows(&a, t->at, n))
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "cannot make a batch");
  BR_TRY(br_batch_new(t->schema, &a, 0, &b, err));
  br_status status = br_ipc_encode_array(b, BR_CODEC_NONE, &t->head, body, err);
  br_batch_unref(b);
  return status;
}

static br_pull fail_pull(br_error *err) {
  br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "it broke: 50%% done, \xc3\xa4\nsecond line");
  return BR_PULL_ERROR;
}

static br_pull next(void *arg, br_flight_data *out, br_error *err) {
  table *t = arg;
  br_buf_clear(&t->head);
  if (!t->said_schema) {
    t->said_schema = true;
    if (br_ipc_encode_schema(t->schema, &t->head, err)) return BR_PULL_ERROR;
    *out = (br_flight_data){.head = t->head.data, .head_bytes = t->head.len};
    return BR_PULL_DATA;
  }
  if (t->at == t->rows) return t->fails ? fail_pull(err) : BR_PULL_END;
  int64_t n = t->rows - t->at < t->each ? t->rows - t->at : t->each;
  br_buf body = {0};
  if (encode_rows(t, n, &body, err)) {
    br_buf_free(&body);
    return BR_PULL_ERROR;
  }
  t->at += n;
  *out = (br_flight_data){.head = t->head.data, .head_bytes = t->head.len, .app = "meta", .app_bytes = 4};
  out->body = (br_span){body.data, body.len, free, body.data};
  return BR_PULL_DATA;
}

static void free_table(void *arg) {
  table *t = arg;
  br_schema_unref(t->schema);
  br_buf_free(&t->head);
  free(t);
}

static br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                        br_error *err) {
  char text[64] = "";
  long long rows = 0, each = 0;
  (void)arg, (void)call;
  memcpy(text, ticket, n < 63 ? n : 63);
  bool later = strcmp(text, "fail-later") == 0;
  if (later) strcpy(text, "table 10 5");
  if (strcmp(text, "fail") == 0) {
    (void)fail_pull(err);
    return err->code;
  }
  if (sscanf(text, "table %lld %lld", &rows, &each) != 2 || rows < 0 || each < 1)
    return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER, "no such ticket: '%s'", text);
  table *t = br_calloc(1, sizeof *t);
  *t = (table){.rows = rows, .each = each, .fails = later};
  *src = (br_flight_source){next, free_table, t};
  return make_schema(&t->schema, err);
}

static br_status do_action(void *arg, br_flight_call *call, const char *type, const void *body, size_t n,
                           br_error *err) {
  (void)arg;
  char text[32] = "";
  memcpy(text, body, n < 31 ? n : 31);
  if (strcmp(type, "echo") == 0) {
    br_flight_call_result(call, body, n);
  } else if (strcmp(type, "count") == 0) {
    for (int i = 0, most = atoi(text); i < most; i++) {
      int len = snprintf(text, sizeof text, "%d", i);
      br_flight_call_result(call, text, (size_t)len);
    }
  } else {
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "no action '%s'", type);
  }
  br_flight_call_end(call, NULL);
  return BR_OK;
}

/* FlightDescriptor of a path with one part: type PATH, path. */
static void path_descriptor(const char *name, br_buf *out) {
  br_buf_add(out, "\x08\x01\x1a", 3);
  br_buf_char(out, (char)strlen(name));
  br_buf_str(out, name);
}

static br_status encode_info(const void *descriptor, size_t n, br_buf *out, br_error *err) {
  br_schema *schema = NULL;
  br_buf head = {0};
  br_status status = make_schema(&schema, err);
  if (status == BR_OK) status = br_ipc_encode_schema(schema, &head, err);
  if (status == BR_OK) br_flight_info_encode(out, head.data, head.len, descriptor, n, "table 100 10", 12, 100, 4000);
  br_schema_unref(schema);
  br_buf_free(&head);
  return status;
}

static br_status list_flights(void *arg, void (*emit)(void *ctx, const void *p, size_t n), void *ctx, br_error *err) {
  static const char *const names[] = {"first", "second"};
  (void)arg;
  for (int i = 0; i < 2; i++) {
    br_buf d = {0}, info = {0};
    path_descriptor(names[i], &d);
    br_status status = encode_info(d.data, d.len, &info, err);
    if (status == BR_OK) emit(ctx, info.data, info.len);
    br_buf_free(&d);
    br_buf_free(&info);
    if (status != BR_OK) return status;
  }
  return BR_OK;
}

static br_status get_flight_info(void *arg, const void *descriptor, size_t n, br_buf *info, br_error *err) {
  (void)arg;
  return encode_info(descriptor, n, info, err);
}

static void on_stdin(uv_poll_t *h, int status, int events) {
  (void)status, (void)events;
  br_loop_stop(h->data);
}

int main(int argc, char **argv) {
  static const char *const actions[] = {"echo", "the body back", "count", "that many results", NULL};
  br_loop *l;
  br_error err = {0};
  br_flight_server *s;
  br_flight_server_options o = {.host = "127.0.0.1", .bearer = argc > 1 ? argv[1] : NULL};
  br_flight_handlers h = {.do_get = do_get,
                          .do_action = do_action,
                          .list_flights = list_flights,
                          .get_flight_info = get_flight_info,
                          .actions = actions};
  if (br_loop_new(&l, &err) || br_flight_server_new(l, &o, &h, &s, &err)) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  uv_poll_t in = {.data = l};
  uv_poll_init(br_loop_uv(l), &in, 0);
  uv_poll_start(&in, UV_READABLE | UV_DISCONNECT, on_stdin);
  printf("%d\n", br_flight_server_port(s));
  fflush(stdout);
  br_loop_run(l);
  br_flight_server_free(s);
  br_loop_free(l);
  return 0;
}
