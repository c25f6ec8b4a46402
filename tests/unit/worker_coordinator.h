/* SPDX-License-Identifier: Apache-2.0
 * A coordinator for tests: a Flight server that real brant-worker processes join. Its loop has a thread of its own; the test's
 * thread sends commands and waits for events. Every wait is for a condition, with a bound. */
#ifndef BRANT_TESTS_WORKER_COORDINATOR_H
#define BRANT_TESTS_WORKER_COORDINATOR_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "engine/engine.h"
#include "flight/flight.h"
#include "proto/proto.h"
#include "shuffle/clients.h"
#include "shuffle/shuffle.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000 /* generous: sanitizers, busy machines */
#define MAX_WORKERS 8
#define MAX_EVENTS 4096
#define MAX_MAPS 512

extern char **environ;

typedef enum ev_kind { EV_STARTED, EV_DONE, EV_FAILED, EV_LOST, EV_LEAVING, EV_DRAINING, EV_OUTPUT_LOST } ev_kind;
typedef struct ev {
  ev_kind kind;
  uint32_t worker;
  br_attempt_id id; /* of LOST: the first that ran */
  int pid, status;  /* LOST */
  size_t running;   /* LOST */
  br_error error;
  uint64_t rows_in, rows_out, bytes_out, remote_bytes_in, spill_bytes, partitions, partition_rows[64];
} ev;

typedef struct member {
  br_flight_call *call;
  bool gone;
  char uri[256], unix_path[256], host_id[256];
  int pid;
  uint32_t slots;
  uint64_t last_seq, reports, pss_bytes, executors;
} member;

typedef struct coord {
  br_loop *loop;
  br_flight_server *server;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  member members[MAX_WORKERS]; /* worker w is members[w - 1] */
  uint32_t n_members;
  ev events[MAX_EVENTS];
  size_t n_events;
  int port;
  bool closed, refuse_reports;
  char dir[256];     /* temporary directory of the test */
  br_engine *engine; /* to make files and schemas */
  br_session *session;
  pid_t workers[MAX_WORKERS];
  size_t n_workers;
} coord;

/* ---- the loop's side */

static inline ev *new_event(coord *c, ev_kind kind, uint32_t worker) {
  assert_true(c->n_events < MAX_EVENTS);
  ev *e = &c->events[c->n_events++];
  *e = (ev){.kind = kind, .worker = worker};
  return e;
}

static inline void send_now(br_flight_call *call, const Brant__Pb__Command *m) {
  br_buf b = {0};
  br_pb_pack(&m->base, &b);
  br_flight_call_result(call, b.data, b.len);
  br_buf_free(&b);
}

static inline void send_peer(coord *c, uint32_t to, uint32_t about) {
  member *a = &c->members[about - 1];
  Brant__Pb__Peer p = BRANT__PB__PEER__INIT;
  p.worker = about, p.incarnation = 7;
  p.uri = a->uri, p.unix_path = a->unix_path, p.host_id = a->host_id;
  Brant__Pb__Command m = BRANT__PB__COMMAND__INIT;
  m.what_case = BRANT__PB__COMMAND__WHAT_PEER;
  m.peer = &p;
  if (!c->members[to - 1].gone) send_now(c->members[to - 1].call, &m);
}

static inline void on_join(coord *c, br_flight_call *call, const Brant__Pb__JoinRequest *j) {
  member *m = &c->members[c->n_members++];
  *m = (member){.call = call, .pid = j->pid, .slots = j->slots};
  snprintf(m->uri, sizeof m->uri, "%s", j->uri);
  snprintf(m->unix_path, sizeof m->unix_path, "%s", j->unix_path);
  snprintf(m->host_id, sizeof m->host_id, "%s", j->host_id);
  Brant__Pb__Welcome w = BRANT__PB__WELCOME__INIT;
  w.worker = c->n_members, w.incarnation = 7, w.heartbeat_ms = 200, w.silent_ms = 10000;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_WELCOME;
  cmd.welcome = &w;
  send_now(call, &cmd);
  for (uint32_t i = 1; i < c->n_members; i++) {
    send_peer(c, c->n_members, i);
    send_peer(c, i, c->n_members);
  }
}

static inline void on_report(coord *c, const Brant__Pb__Report *r) {
  member *m = &c->members[r->worker - 1];
  assert_int_equal(r->incarnation, 7);
  m->reports++;
  if (r->seq <= m->last_seq) return;
  m->last_seq = r->seq;
  if (r->gauge) m->pss_bytes = r->gauge->pss_bytes, m->executors = r->gauge->executors;
  for (size_t i = 0; i < r->n_started; i++) new_event(c, EV_STARTED, r->worker)->id = br_attempt_from_pb(r->started[i]);
  for (size_t i = 0; i < r->n_done; i++) {
    ev *e = new_event(c, EV_DONE, r->worker);
    const Brant__Pb__TaskStats *s = r->done[i]->stats;
    e->id = br_attempt_from_pb(r->done[i]->id);
    e->rows_in = s->rows_in, e->rows_out = s->rows_out, e->bytes_out = s->bytes_out;
    e->remote_bytes_in = s->remote_bytes_in;
    e->spill_bytes = s->spill_bytes;
    e->partitions = s->n_partition_rows;
    for (size_t k = 0; k < s->n_partition_rows && k < 64; k++) e->partition_rows[k] = s->partition_rows[k];
  }
  for (size_t i = 0; i < r->n_failed; i++) {
    ev *e = new_event(c, EV_FAILED, r->worker);
    e->id = br_attempt_from_pb(r->failed[i]->id);
    br_error_from_pb(r->failed[i]->error, &e->error);
  }
  for (size_t i = 0; i < r->n_executor_lost; i++) {
    ev *e = new_event(c, EV_LOST, r->worker);
    const Brant__Pb__ExecutorLost *l = r->executor_lost[i];
    e->pid = l->pid, e->status = l->status, e->running = l->n_running;
    if (l->n_running) e->id = br_attempt_from_pb(l->running[0]);
    br_error_from_pb(l->error, &e->error);
  }
  for (size_t i = 0; i < r->n_outputs_lost; i++)
    new_event(c, EV_OUTPUT_LOST, r->worker)->id = br_attempt_from_pb(r->outputs_lost[i]);
  if (r->leaving) new_event(c, EV_LEAVING, r->worker);
  if (r->draining) new_event(c, EV_DRAINING, r->worker);
}

static inline br_status coord_action(void *arg, br_flight_call *call, const char *type, const void *body, size_t n,
                                     br_error *err) {
  coord *c = arg;
  bool join = strcmp(type, "join") == 0;
  ProtobufCMessage *m =
      br_pb_unpack(join ? &brant__pb__join_request__descriptor : &brant__pb__report__descriptor, body, n, err);
  if (!m) return err->code;
  br_status status = BR_OK;
  pthread_mutex_lock(&c->lock);
  if (join) {
    Brant__Pb__JoinRequest *j = (Brant__Pb__JoinRequest *)m;
    if (strcmp(j->version, BRANT_VERSION) != 0)
      status = br_fail(err, BR_VERSION, BR_BLAME_USER, "another version");
    else
      on_join(c, call, j);
  } else {
    on_report(c, (Brant__Pb__Report *)m);
    br_flight_call_end(call, NULL);
  }
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  protobuf_c_message_free_unpacked(m, NULL);
  return status;
}

static inline br_status coord_get(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                                  br_error *err) {
  (void)arg, (void)call, (void)ticket, (void)n, (void)src;
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "nothing here");
}

static inline void coord_call_closed(void *arg, br_flight_call *call) {
  coord *c = arg;
  pthread_mutex_lock(&c->lock);
  for (uint32_t i = 0; i < c->n_members; i++)
    if (c->members[i].call == call) c->members[i].gone = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static inline void *coord_thread(void *arg) {
  coord *c = arg;
  br_loop_run(c->loop);
  return NULL;
}

static inline void coord_open_server_on_loop(void *arg) {
  coord *c = arg;
  br_error err = {0};
  br_flight_handlers h = {.arg = c, .do_get = coord_get, .do_action = coord_action, .call_closed = coord_call_closed};
  br_flight_server_options o = {.host = "127.0.0.1", .port = c->port};
  assert_int_equal(br_flight_server_new(c->loop, &o, &h, &c->server, &err), BR_OK);
  pthread_mutex_lock(&c->lock);
  c->port = br_flight_server_port(c->server);
  c->closed = false;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

/* ---- the test's side */

static inline struct timespec wait_end(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  ts.tv_sec += WAIT_MS / 1000;
  return ts;
}

static inline void coord_open(coord *c) {
  br_error err = {0};
  memset(c, 0, sizeof *c);
  const char *tmp = getenv("TMPDIR");
  snprintf(c->dir, sizeof c->dir, "%s/brant-test-XXXXXX", tmp ? tmp : "/tmp");
  assert_non_null(mkdtemp(c->dir));
  prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of a killed worker come to us, so that we see them end */
  pthread_condattr_t attr;
  pthread_mutex_init(&c->lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&c->changed, &attr);
  pthread_condattr_destroy(&attr);
  assert_int_equal(br_loop_new(&c->loop, &err), BR_OK);
  coord_open_server_on_loop(c);
  assert_int_equal(pthread_create(&c->thread, NULL, coord_thread, c), 0);
  br_engine_options eo = {.threads = 1, .memory_bytes = 256u << 20};
  assert_int_equal(br_engine_open(&eo, &c->engine, &err), BR_OK);
  assert_int_equal(br_session_open(c->engine, &c->session, &err), BR_OK);
}

static inline void coord_run_sql(coord *c, const char *sql) {
  br_error err = {0};
  if (br_session_execute(c->session, sql, &err) != BR_OK) fail_msg("%s: %s", sql, err.message);
}

/* The server goes as if the process had died. */
static inline void coord_close_server_on_loop(void *arg) {
  coord *c = arg;
  br_flight_server_free(c->server);
  c->server = NULL;
  pthread_mutex_lock(&c->lock);
  c->closed = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static inline void coord_close_server(coord *c) {
  struct timespec end = wait_end();
  br_loop_post(c->loop, coord_close_server_on_loop, c);
  pthread_mutex_lock(&c->lock);
  while (!c->closed) assert_int_equal(pthread_cond_timedwait(&c->changed, &c->lock, &end), 0);
  pthread_mutex_unlock(&c->lock);
}

/* Another coordinator at the same port. */
static inline void coord_reopen_server(coord *c) {
  struct timespec end = wait_end();
  br_loop_post(c->loop, coord_open_server_on_loop, c);
  pthread_mutex_lock(&c->lock);
  while (c->closed) assert_int_equal(pthread_cond_timedwait(&c->changed, &c->lock, &end), 0);
  pthread_mutex_unlock(&c->lock);
}

static inline pid_t start_worker(coord *c, ...) {
  char join[64], path[512];
  const char *bin = getenv("BRANT_TEST_BIN_DIR"); /* to try a worker of another build */
  const char *argv[32] = {"brant-worker", "--join", join, "--temp-dir", c->dir, "--memory", "512MiB", "--threads", "2"};
  int n = 9;
  va_list ap;
  va_start(ap, c);
  for (const char *a; (a = va_arg(ap, const char *));) argv[n++] = a;
  va_end(ap);
  snprintf(join, sizeof join, "127.0.0.1:%d", c->port);
  snprintf(path, sizeof path, "%s/brant-worker", bin ? bin : BRANT_BUILD_DIR);
  pid_t pid;
  assert_int_equal(posix_spawn(&pid, path, NULL, NULL, (char **)argv, environ), 0);
  c->workers[c->n_workers++] = pid;
  return pid;
}

static inline void wait_members(coord *c, uint32_t n) {
  struct timespec end = wait_end();
  pthread_mutex_lock(&c->lock);
  while (c->n_members < n) assert_int_equal(pthread_cond_timedwait(&c->changed, &c->lock, &end), 0);
  pthread_mutex_unlock(&c->lock);
}

static inline void wait_gone(coord *c, uint32_t worker) {
  struct timespec end = wait_end();
  pthread_mutex_lock(&c->lock);
  while (!c->members[worker - 1].gone) assert_int_equal(pthread_cond_timedwait(&c->changed, &c->lock, &end), 0);
  pthread_mutex_unlock(&c->lock);
}

static inline const ev *find_event(const coord *c, ev_kind kind, const br_attempt_id *id) {
  for (size_t i = 0; i < c->n_events; i++)
    if (c->events[i].kind == kind && (!id || br_attempt_equal(&c->events[i].id, id))) return &c->events[i];
  return NULL;
}

/* An event of this kind for this attempt (NULL: any). A task that fails instead of being done ends the test with its message. */
static inline ev wait_event(coord *c, ev_kind kind, const br_attempt_id *id) {
  struct timespec end = wait_end();
  const ev *e;
  pthread_mutex_lock(&c->lock);
  while (!(e = find_event(c, kind, id))) {
    const ev *f = kind == EV_DONE ? find_event(c, EV_FAILED, id) : NULL;
    if (f) fail_msg("task failed: %s", f->error.message);
    if (pthread_cond_timedwait(&c->changed, &c->lock, &end) != 0) fail_msg("no event %d within %d ms", kind, WAIT_MS);
  }
  ev copy = *e;
  pthread_mutex_unlock(&c->lock);
  return copy;
}

typedef struct posted {
  coord *c;
  uint32_t worker;
  br_buf bytes;
} posted;

static inline void send_on_loop(void *arg) {
  posted *p = arg;
  member *m = &p->c->members[p->worker - 1];
  if (!m->gone) br_flight_call_result(m->call, p->bytes.data, p->bytes.len);
  br_buf_free(&p->bytes);
  free(p);
}

static inline void send_command(coord *c, uint32_t worker, const Brant__Pb__Command *m) {
  posted *p = br_calloc(1, sizeof *p);
  p->c = c, p->worker = worker;
  br_pb_pack(&m->base, &p->bytes);
  br_loop_post(c->loop, send_on_loop, p);
}

/* ---- tasks */

typedef struct in {
  uint32_t number, stage, version, first, last, map_first, map_last;
  Brant__Pb__InputKind kind;
  const char *const *types;
  size_t n_types;
  bool ordered;
} in;

typedef struct task {
  br_attempt_id id;
  const char *sql;
  Brant__Pb__PartitionKind kind;
  uint32_t partitions;
  const char *const *types; /* of the output */
  size_t n_types;
  const in *inputs;
  size_t n_inputs;
  const char *const *prelude;
  size_t n_prelude;
  const char *setting, *value;
  uint64_t deadline_ms;
  bool ordered, publish, alone;
  const char *const *passes;
  size_t n_passes;
} task;

#define TYPES(...) \
  .types = (const char *const[]){__VA_ARGS__}, .n_types = sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)

static inline void run_task(coord *c, uint32_t worker, task t) {
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t.id, &id);
  Brant__Pb__TaskOutput o = BRANT__PB__TASK_OUTPUT__INIT;
  o.kind = t.kind, o.partitions = t.partitions ? t.partitions : 1;
  o.types = (char **)t.types, o.n_types = t.n_types, o.codec = (char *)"lz4", o.ordered = t.ordered;
  o.publish = t.publish;
  Brant__Pb__TaskInput inputs[4], *refs[4];
  Brant__Pb__PartitionRef ranges[4];
  for (size_t i = 0; i < t.n_inputs; i++) {
    const in *x = &t.inputs[i];
    brant__pb__partition_ref__init(&ranges[i]);
    ranges[i].query = t.id.query, ranges[i].stage = x->stage, ranges[i].table_version = x->version;
    ranges[i].first = x->first, ranges[i].last = x->last, ranges[i].map_first = x->map_first,
    ranges[i].map_last = x->map_last;
    brant__pb__task_input__init(&inputs[i]);
    inputs[i].number = x->number, inputs[i].kind = x->kind, inputs[i].ref = &ranges[i], inputs[i].ordered = x->ordered;
    inputs[i].types = (char **)x->types, inputs[i].n_types = x->n_types;
    refs[i] = &inputs[i];
  }
  Brant__Pb__Setting s = BRANT__PB__SETTING__INIT, *settings = &s;
  s.name = (char *)t.setting, s.value = (char *)t.value;
  Brant__Pb__Task m = BRANT__PB__TASK__INIT;
  m.id = &id, m.sql = (char *)(t.sql ? t.sql : ""), m.output = &o, m.inputs = refs, m.n_inputs = t.n_inputs;
  m.prelude = (char **)t.prelude, m.n_prelude = t.n_prelude;
  if (t.setting) m.settings = &settings, m.n_settings = 1;
  m.deadline_ms = t.deadline_ms;
  m.alone = t.alone, m.passes = (char **)t.passes, m.n_passes = t.n_passes;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_RUN;
  cmd.run = &m;
  send_command(c, worker, &cmd);
}

static inline void cancel_task(coord *c, uint32_t worker, br_attempt_id id) {
  Brant__Pb__AttemptId p;
  br_attempt_to_pb(&id, &p);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_CANCEL;
  cmd.cancel = &p;
  send_command(c, worker, &cmd);
}

static inline void drop_query(coord *c, uint64_t query) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_DROP_QUERY;
  cmd.drop_query = query;
  for (uint32_t w = 1; w <= c->n_members; w++) send_command(c, w, &cmd);
}

static inline void drop_output(coord *c, uint32_t worker, br_attempt_id id) {
  Brant__Pb__AttemptId p;
  br_attempt_to_pb(&id, &p);
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_DROP_OUTPUT;
  cmd.drop_output = &p;
  send_command(c, worker, &cmd);
}

static inline void retire_stage(coord *c, uint64_t query, uint32_t stage) {
  Brant__Pb__DropStage d = BRANT__PB__DROP_STAGE__INIT;
  d.query = query, d.stage = stage;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_RETIRE;
  cmd.retire = &d;
  for (uint32_t w = 1; w <= c->n_members; w++) send_command(c, w, &cmd);
}

/* Map m of the stage is on worker where[m], made by its attempt 0 (growing: being made). To all workers. */
static inline void send_any_table(coord *c, uint64_t query, uint32_t stage, uint32_t version, uint32_t partitions,
                                  const uint32_t *where, uint32_t maps, bool growing) {
  Brant__Pb__OutputEntry entries[MAX_MAPS], *refs[MAX_MAPS];
  for (uint32_t m = 0; m < maps; m++) {
    brant__pb__output_entry__init(&entries[m]);
    entries[m].map = m, entries[m].worker = where[m], entries[m].incarnation = 7, entries[m].growing = growing;
    refs[m] = &entries[m];
  }
  Brant__Pb__OutputTable t = BRANT__PB__OUTPUT_TABLE__INIT;
  t.query = query, t.stage = stage, t.version = version, t.partitions = partitions, t.maps = maps;
  t.entries = refs, t.n_entries = maps;
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_TABLE;
  cmd.table = &t;
  for (uint32_t w = 1; w <= c->n_members; w++) send_command(c, w, &cmd);
}

static inline void send_table(coord *c, uint64_t query, uint32_t stage, uint32_t version, uint32_t partitions,
                              const uint32_t *where, uint32_t maps) {
  send_any_table(c, query, stage, version, partitions, where, maps, false);
}

/* ---- results: rows of partitions of one map output, read over the worker's socket */

static inline br_status read_output(coord *c, uint32_t worker, br_attempt_id id, uint32_t version, uint32_t first,
                                    uint32_t last, const char *const *types, size_t n_types, const char *secret,
                                    int64_t *cells, size_t max_cells, size_t *n_rows, br_error *err) {
  br_schema *schema = NULL;
  br_reader *r = NULL;
  br_status status;
  *n_rows = 0;
  BR_TRY_GOTO(br_session_schema(c->session, types, NULL, n_types, &schema, err));
  br_read_remote remote = {.uri = c->members[worker - 1].uri, .worker = worker, .incarnation = 7, .outputs = 1};
  br_reader_options o = {.loop = c->loop,
                         .schema = schema,
                         .query = id.query,
                         .stage = id.stage,
                         .table_version = version,
                         .first = first,
                         .last = last,
                         .map_first = id.task,
                         .map_last = id.task + 1,
                         .remote = &remote,
                         .n_remote = 1,
                         .ordered = true,
                         .buffer_bytes = 1 << 20,
                         .secret = secret,
                         .retry = 3,
                         .retry_ms = 20};
  BR_TRY_GOTO(br_reader_open(&o, &r, err));
  for (br_batch *b = NULL;; br_batch_unref(b)) {
    BR_TRY_GOTO(br_reader_next(r, &b, err));
    if (!b) break;
    struct ArrowArrayView v;
    assert_int_equal(ArrowArrayViewInitFromSchema(&v, br_schema_arrow(schema), NULL), 0);
    assert_int_equal(ArrowArrayViewSetArray(&v, br_batch_arrow(b), NULL), 0);
    for (int64_t i = 0; i < br_batch_rows(b); i++, ++*n_rows)
      for (size_t k = 0; k < n_types; k++) {
        assert_true(*n_rows * n_types + k < max_cells);
        cells[*n_rows * n_types + k] = ArrowArrayViewGetIntUnsafe(v.children[k], i);
      }
    ArrowArrayViewReset(&v);
  }
done:
  if (r) br_reader_free(r);
  br_schema_unref(schema);
  return status;
}

/* ---- processes */

static inline bool process_runs(pid_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  const char *p = strrchr(text, ')');
  return p && p[1] && p[2] != 'Z' && p[2] != 'X';
}

/* Children of pid that run. */
static inline size_t children_of(pid_t pid, pid_t *out, size_t max) {
  DIR *d = opendir("/proc");
  size_t n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    pid_t p = (pid_t)atoi(e->d_name);
    char path[64], text[512];
    if (p <= 0) continue;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)p);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *q = strrchr(text, ')');
    if (q && q[2] != 'Z' && atoi(q + 4) == pid && n < max) out[n++] = p;
  }
  closedir(d);
  return n;
}

#define WAIT_UNTIL(cond)                                                          \
  do {                                                                            \
    uint64_t until_ = br_now_ms() + WAIT_MS;                                      \
    while (!(cond)) {                                                             \
      if (br_now_ms() > until_) fail_msg("not within %d ms: %s", WAIT_MS, #cond); \
      poll(NULL, 0, 5);                                                           \
    }                                                                             \
  } while (0)

static inline bool reaped(pid_t pid, int *status) { return waitpid(pid, status, WNOHANG) == pid; }

static inline int wait_exit(coord *c, pid_t pid) {
  int status = 0;
  WAIT_UNTIL(reaped(pid, &status));
  for (size_t i = 0; i < c->n_workers; i++)
    if (c->workers[i] == pid) c->workers[i] = 0;
  return status;
}

/* Entries of the test's directory whose name begins with brant-. */
static inline size_t homes(const coord *c) {
  DIR *d = opendir(c->dir);
  size_t n = 0;
  for (struct dirent *e; (e = readdir(d));) n += strncmp(e->d_name, "brant-", 6) == 0;
  closedir(d);
  return n;
}

/* Workers still there get the coordinator's shutdown: they must end well, and nothing may be left behind. */
static inline void coord_close(coord *c) {
  Brant__Pb__Command cmd = BRANT__PB__COMMAND__INIT;
  cmd.what_case = BRANT__PB__COMMAND__WHAT_SHUTDOWN;
  cmd.shutdown = 1;
  for (uint32_t w = 1; w <= c->n_members; w++) send_command(c, w, &cmd);
  for (size_t i = 0; i < c->n_workers; i++) {
    if (!c->workers[i]) continue;
    int status = wait_exit(c, c->workers[i]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  if (c->server) coord_close_server(c);
  br_loop_stop(c->loop);
  pthread_join(c->thread, NULL);
  br_clients_close(c->loop);
  br_loop_free(c->loop);
  br_session_close(c->session);
  br_engine_close(c->engine);
  pid_t left[8];
  while (waitpid(-1, NULL, WNOHANG) > 0) continue; /* orphans that came to us and have ended */
  assert_int_equal(children_of(getpid(), left, 8), 0);
  assert_int_equal(homes(c), 0);
  br_remove_tree(c->dir);
  pthread_cond_destroy(&c->changed);
  pthread_mutex_destroy(&c->lock);
}

/* A failed test must not leave processes either. */
static inline int coord_setup(void **state) {
  coord *c = br_calloc(1, sizeof *c);
  coord_open(c);
  *state = c;
  return 0;
}

static inline int coord_teardown(void **state) {
  coord *c = *state;
  for (size_t i = 0; i < c->n_workers; i++) {
    if (!c->workers[i]) continue;
    kill(c->workers[i], SIGKILL);
    waitpid(c->workers[i], NULL, 0);
  }
  br_remove_tree(c->dir);
  free(c);
  return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, coord_setup, coord_teardown)

#endif
