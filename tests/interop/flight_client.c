/* SPDX-License-Identifier: Apache-2.0
 *
 * A Flight client for tests/interop/test_flight_pyarrow.py, of tables with id int64, x double, s string.
 * flight_client <uri> <token or -> get <ticket> | action <type> <body>
 * Prints one JSON object: what it read, or the error.
 */
#include "arrow/ipc.h"
#include "base/mem.h"
#include "flight/flight.h"

#include <stdio.h>
#include <string.h>

typedef struct reading {
  br_loop *l;
  br_flight_stream *s;
  br_schema *schema;
  long long batches, rows, sum, nulls, text_bytes, app_bytes, results;
  br_buf result;
  br_error err;
} reading;

static void free_body(void *body) { br_flight_body_free(body); }

static br_status read_batch(reading *r, const void *head, size_t head_bytes, void *body, size_t body_bytes,
                            br_error *err) {
  br_batch *b = NULL;
  br_ipc_body owned = {body, body_bytes, free_body, body};
  struct ArrowArrayView v;
  BR_TRY(br_ipc_decode_batch(r->schema, head, head_bytes, owned, &b, err));
  if (ArrowArrayViewInitFromSchema(&v, br_schema_arrow(r->schema), NULL) ||
      ArrowArrayViewSetArray(&v, br_batch_arrow(b), NULL))
    return br_fail(err, BR_CORRUPT, BR_BLAME_FETCH, "cannot view a batch");
  r->batches++;
  r->rows += br_batch_rows(b);
  for (int64_t i = 0; i < br_batch_rows(b); i++) {
    r->sum += ArrowArrayViewGetIntUnsafe(v.children[0], i);
    r->nulls += ArrowArrayViewIsNull(v.children[1], i);
    r->text_bytes += ArrowArrayViewGetStringUnsafe(v.children[2], i).size_bytes;
  }
  ArrowArrayViewReset(&v);
  br_batch_unref(b);
  return BR_OK;
}

static void on_data(void *arg, const void *head, size_t head_bytes, const void *app, size_t app_bytes, void *body,
                    size_t body_bytes) {
  reading *r = arg;
  (void)app;
  r->app_bytes += (long long)app_bytes;
  br_status status;
  if (!r->schema) {
    status = br_ipc_decode_schema(head, head_bytes, &r->schema, &r->err);
    br_flight_body_free(body);
  } else {
    status = read_batch(r, head, head_bytes, body, body_bytes, &r->err);
  }
  if (status == BR_OK) {
    br_flight_stream_consume(r->s, head_bytes + body_bytes);
    return;
  }
  br_flight_stream_cancel(r->s);
  br_loop_stop(r->l);
}

static void on_result(void *arg, const void *body, size_t n) {
  reading *r = arg;
  r->results++;
  br_buf_clear(&r->result);
  br_buf_add(&r->result, body, n);
}

static void on_end(void *arg, const br_error *err) {
  reading *r = arg;
  if (err->code) r->err = *err;
  br_loop_stop(r->l);
}

static void print_text(const char *name, const char *s, size_t n) {
  printf(",\"%s\":\"", name);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\' || c < 0x20)
      printf("\\u%04x", c);
    else
      putchar(c);
  }
  putchar('"');
}

int main(int argc, char **argv) {
  reading r = {0};
  br_flight_client *c = NULL;
  br_flight_client_options o = {.connect_ms = 10000};
  if (argc < 5) return fprintf(stderr, "usage: flight_client uri token|- get ticket | action type body\n"), 2;
  if (strcmp(argv[2], "-") != 0) o.bearer = argv[2];
  if (br_loop_new(&r.l, &r.err) || br_flight_client_new(r.l, argv[1], &o, &c, &r.err))
    return fprintf(stderr, "%s\n", r.err.message), 2;
  br_flight_sink sink = {&r, on_data, on_result, on_end};
  if (strcmp(argv[3], "get") == 0)
    r.s = br_flight_get(c, argv[4], strlen(argv[4]), sink);
  else
    r.s = br_flight_action(c, argv[4], argc > 5 ? argv[5] : "", argc > 5 ? strlen(argv[5]) : 0, sink);
  br_loop_run(r.l);
  br_flight_client_free(c);
  br_loop_free(r.l);
  printf(
      "{\"batches\":%lld,\"rows\":%lld,\"sum\":%lld,\"nulls\":%lld,\"text_bytes\":%lld,\"app_bytes\":%lld,\"results\":%"
      "lld",
      r.batches, r.rows, r.sum, r.nulls, r.text_bytes, r.app_bytes, r.results);
  print_text("last", br_buf_cstr(&r.result), r.result.len);
  print_text("code", br_code_name(r.err.code), strlen(br_code_name(r.err.code)));
  print_text("message", r.err.message, strlen(r.err.message));
  puts("}");
  br_schema_unref(r.schema);
  br_buf_free(&r.result);
  return r.err.code ? 1 : 0;
}
