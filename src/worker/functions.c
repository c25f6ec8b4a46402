/* SPDX-License-Identifier: Apache-2.0
 * The pools of users' functions (udf/pool.h) within the worker: what executors ask goes there, answers go back. Loop thread. */
#include "worker/node.h"

#include "base/mem.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* udf_process.py of this installation, seen from the program's directory: in the Python package that holds it, in its parent, or in a
 * build tree. */
static char *find_script(const char *executor_path) {
  static const char *const places[] = {"udf_process.py", "../udf_process.py", "python/brant/udf_process.py",
                                       "../python/brant/udf_process.py"};
  const char *slash = strrchr(executor_path, '/');
  size_t dir = slash ? (size_t)(slash - executor_path) + 1 : 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    char *path = br_asprintf("%.*s%s", (int)dir, executor_path, places[i]);
    if (access(path, R_OK) == 0) return path;
    free(path);
  }
  return NULL;
}

static void answer(br_child *c, Brant__Pb__UdfReady *r, bool closed, const br_error *err, const int *fds, int n_fds) {
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  if (err && err->code) r->error = br_error_to_pb(err);
  if (closed) {
    m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_UDF_CLOSED;
    m.udf_closed = r;
  } else {
    m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_UDF_READY;
    m.udf_ready = r;
  }
  br_child_send(c, &m, fds, n_fds);
  if (r->error) brant__pb__error__free_unpacked(r->error, NULL);
}

static void on_ready(void *arg, void *owner, uint64_t request, int fd, int pid, const br_error *err) {
  Brant__Pb__UdfReady r = BRANT__PB__UDF_READY__INIT;
  (void)arg;
  r.request = request, r.pid = pid;
  answer(owner, &r, false, err, &fd, fd >= 0 ? 1 : 0);
  if (fd >= 0) close(fd);
}

static void on_closed(void *arg, void *owner, uint64_t request, const br_error *why) {
  Brant__Pb__UdfReady r = BRANT__PB__UDF_READY__INIT;
  (void)arg;
  r.request = request;
  answer(owner, &r, true, why, NULL, 0);
}

/* ---- payloads that the coordinator serves */

typedef struct download {
  br_node *n;
  uint64_t function;
  br_flight_stream *stream;
} download;

static void on_piece(void *arg, const void *head, size_t head_bytes, const void *app, size_t app_bytes, void *body,
                     size_t body_bytes) {
  download *d = arg;
  (void)head, (void)app, (void)app_bytes;
  if (d->n->udf) br_udf_payload(d->n->udf, d->function, body, body_bytes);
  br_flight_body_free(body);
  br_flight_stream_consume(d->stream, head_bytes + body_bytes);
}

static void on_all(void *arg, const br_error *err) {
  download *d = arg;
  if (d->n->udf) br_udf_payload_end(d->n->udf, d->function, err);
  free(d);
}

static void fetch(void *arg, uint64_t function) {
  br_node *n = arg;
  br_buf b = {0};
  download *d = br_calloc(1, sizeof *d);
  Brant__Pb__Ticket t = BRANT__PB__TICKET__INIT;
  d->n = n, d->function = function;
  t.function = function, t.worker = n->worker, t.incarnation = n->incarnation;
  br_pb_pack(&t.base, &b);
  d->stream = br_flight_get(n->link.client, b.data, b.len, (br_flight_sink){.arg = d, .data = on_piece, .end = on_all});
  br_buf_free(&b);
}

static void on_stopped(void *arg) { br_node_check_stopped(arg); }

void br_functions_open(br_node *n) {
  const char *command = getenv("BRANT_UDF_COMMAND"), *python = getenv("BRANT_PYTHON");
  n->udf_script = find_script(n->executor_path);
  br_udf_options o = {.loop = n->loop,
                      .cores = n->o->threads,
                      .script = n->udf_script,
                      .python = python && python[0] ? python : NULL,
                      .command = command && command[0] ? command : NULL,
                      .gpus_given = n->o->gpus_given,
                      .gpus = n->o->gpus,
                      .gpu_share = n->o->gpu_share,
                      .gpu_shares = n->o->gpu_shares,
                      .idle_ms = n->o->udf_idle_ms,
                      .ready = on_ready,
                      .closed = on_closed,
                      .fetch = fetch,
                      .stopped = on_stopped,
                      .arg = n};
  n->udf = br_udf_pools_new(&o);
}

void br_functions_event(br_child *c, const Brant__Pb__ExecutorEvent *e) {
  br_udf_pools *udf = c->node->udf;
  if (e->what_case == BRANT__PB__EXECUTOR_EVENT__WHAT_UDF_OPEN) {
    br_attempt_id id = br_attempt_from_pb(e->udf_open->id);
    br_udf_open(udf, c, e->udf_open->request, e->udf_open->function, &id);
  } else {
    br_udf_close(udf, c, e->udf_close->request, e->udf_close->end);
  }
}

void br_functions_free(br_node *n) {
  br_udf_pools_free(n->udf);
  n->udf = NULL;
  free(n->udf_script);
}
