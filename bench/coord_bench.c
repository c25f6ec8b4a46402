/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 *
 * What a wide shuffle costs the coordinator: a real driver with its port, scheduler and query; workers that only say that a task is
 * done, with the statistics of a real one, in a process of their own. Prints the memory that the coordinator's process grew by at
 * its peak, and tasks a second. Fails when a shuffle of 10,000 x 8,000 costs LIMIT_MIB or more.
 * Staged, then eager. coord_bench [MAPS] [PARTITIONS] [WORKERS] [SLOTS]     default: 10,000 maps, 8,000 partitions, 8 workers, 16 slots
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/driver.h"

#define SECRET "bench"
#define LIMIT_MIB 50
#define WAIT_MS 20000
#define MAX_WORKERS 256

extern char **environ;

/* ---- workers that do nothing: the other process */

typedef struct fake {
  br_loop *loop;
  br_flight_client *client;
  uint32_t worker, incarnation, partitions;
  uint64_t seq;
  bool reporting;
  Brant__Pb__AttemptId *todo; /* told to run, not reported yet */
  size_t n_todo, cap_todo;
} fake;

static void report(fake *f);

static void on_reported(void *arg, const br_error *err) {
  fake *f = arg;
  if (err->code != BR_OK) exit(1); /* the bench is over */
  f->reporting = false;
  if (f->n_todo > 0) report(f);
}

static void report(fake *f) {
  size_t n = f->n_todo;
  Brant__Pb__TaskDone *done = br_calloc(n, sizeof *done), **refs = br_calloc(n, sizeof *refs);
  Brant__Pb__TaskStats *stats = br_calloc(n, sizeof *stats);
  uint64_t *rows = br_calloc(f->partitions, sizeof *rows);
  uint32_t *logs = br_calloc(f->partitions, sizeof *logs);
  for (uint32_t i = 0; i < f->partitions; i++) rows[i] = 1000 + i % 200, logs[i] = 130;
  for (size_t i = 0; i < n; i++) {
    brant__pb__task_done__init(&done[i]);
    brant__pb__task_stats__init(&stats[i]);
    stats[i].rows_out = 8000000;
    stats[i].bytes_out = 512u << 20;
    stats[i].wall_us = 2000000;
    stats[i].n_partition_rows = stats[i].n_partition_log_bytes = f->todo[i].stage == 0 ? f->partitions : 1;
    stats[i].partition_rows = rows;
    stats[i].partition_log_bytes = logs;
    done[i].id = &f->todo[i];
    done[i].stats = &stats[i];
    refs[i] = &done[i];
  }
  Brant__Pb__Report r = BRANT__PB__REPORT__INIT;
  r.worker = f->worker;
  r.incarnation = f->incarnation;
  r.seq = ++f->seq;
  r.done = refs;
  r.n_done = n;
  br_buf b = {0};
  br_pb_pack(&r.base, &b);
  f->n_todo = 0;
  f->reporting = true;
  br_flight_action(f->client, "report", b.data, b.len, (br_flight_sink){.arg = f, .end = on_reported});
  br_buf_free(&b);
  free(done);
  free(refs);
  free(stats);
  free(rows);
  free(logs);
}

static void on_command(void *arg, const void *body, size_t n) {
  fake *f = arg;
  br_error err;
  Brant__Pb__Command *c = (Brant__Pb__Command *)br_pb_unpack(&brant__pb__command__descriptor, body, n, &err);
  if (c == NULL) exit(1);
  if (c->what_case == BRANT__PB__COMMAND__WHAT_WELCOME) {
    f->worker = c->welcome->worker;
    f->incarnation = c->welcome->incarnation;
  } else if (c->what_case == BRANT__PB__COMMAND__WHAT_RUN) {
    br_grow((void **)&f->todo, &f->cap_todo, f->n_todo, sizeof *f->todo);
    f->todo[f->n_todo++] = *c->run->id;
    if (!f->reporting) report(f);
  }
  protobuf_c_message_free_unpacked(&c->base, NULL);
}

static void on_parted(void *arg, const br_error *err) {
  (void)arg, (void)err;
  exit(0);
}

static int workers_main(char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  uint32_t n = (uint32_t)atoi(argv[3]), slots = (uint32_t)atoi(argv[4]), partitions = (uint32_t)atoi(argv[5]);
  br_error err;
  br_loop *loop = NULL;
  char uri[64];
  snprintf(uri, sizeof uri, "tcp://127.0.0.1:%s", argv[2]);
  if (br_loop_new(&loop, &err) != BR_OK) return 1;
  for (uint32_t i = 0; i < n; i++) {
    fake *f = br_calloc(1, sizeof *f);
    f->loop = loop;
    f->partitions = partitions;
    br_flight_client_options o = {.bearer = SECRET};
    if (br_flight_client_new(loop, uri, &o, &f->client, &err) != BR_OK) return 1;
    Brant__Pb__JoinRequest j = BRANT__PB__JOIN_REQUEST__INIT;
    j.version = (char *)(uintptr_t)BRANT_VERSION;
    j.secret = (char *)(uintptr_t)SECRET;
    j.uri = (char *)(uintptr_t) "tcp://127.0.0.1:1";
    j.host_id = (char *)(uintptr_t) "bench";
    j.slots = slots;
    br_buf b = {0};
    br_pb_pack(&j.base, &b);
    br_flight_action(f->client, "join", b.data, b.len,
                     (br_flight_sink){.arg = f, .result = on_command, .end = on_parted});
    br_buf_free(&b);
  }
  br_loop_run(loop);
  return 0;
}

/* ---- the coordinator */

typedef struct start {
  br_loop *loop;
  br_events *events;
  br_driver *driver;
  br_error err;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool done;
} start;

static void start_driver(void *arg) {
  start *s = arg;
  br_driver_options o = {.host = "127.0.0.1", .secret = SECRET};
  (void)!br_driver_new(s->loop, &o, s->events, &s->driver, &s->err);
  pthread_mutex_lock(&s->lock);
  s->done = true;
  pthread_cond_signal(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

static void end_driver(void *arg) {
  start *s = arg;
  br_driver_free(s->driver);
  br_loop_stop(s->loop);
}

static void *loop_main(void *arg) {
  br_loop_run(arg);
  return NULL;
}

static br_query *make_query(uint32_t maps, uint32_t partitions) {
  static const char *types[] = {"BIGINT", "VARCHAR"};
  br_error err;
  br_arena *a = br_arena_new();
  br_stages *p = br_arena_alloc(a, sizeof *p);
  p->arena = a;
  p->n_stages = 2;
  p->stages = br_arena_alloc(a, 2 * sizeof *p->stages);
  p->stages[0] = (br_stage){.sql = "SELECT c0, c1, hash(c0) FROM t",
                            .types = types,
                            .n_columns = 2,
                            .split_scan = -1,
                            .rule = BR_TASKS_SPLITS,
                            .output = BR_EX_HASH,
                            .partitions = partitions};
  br_stage_input *in = br_arena_alloc(a, sizeof *in);
  *in = (br_stage_input){.kind = BR_EX_HASH};
  p->stages[1] = (br_stage){.id = 1,
                            .sql = "SELECT * FROM input(0)",
                            .types = types,
                            .n_columns = 2,
                            .split_scan = -1,
                            .rule = BR_TASKS_PARTITIONS,
                            .output = BR_EX_RESULT,
                            .partitions = 1,
                            .inputs = in,
                            .n_inputs = 1};
  br_query *q = br_query_new(42);
  q->stages = p;
  q->n_runs = 2;
  q->runs = br_calloc(2, sizeof *q->runs);
  for (size_t i = 0; i < 2; i++) q->runs[i].plan = &p->stages[i];
  q->runs[0].n_tasks = maps;
  if (br_query_count_tasks(q, &err) != BR_OK) {
    fprintf(stderr, "%s\n", err.message);
    exit(1);
  }
  return q;
}

/* As the caller of a query does, but for the rows. */
static void read_results(br_driver *d, br_query *q) {
  for (size_t at = 0; at < q->n_results; at++) {
    pthread_mutex_lock(&q->lock);
    while (!q->results[at].ready && q->state != BR_QUERY_FAILED) pthread_cond_wait(&q->changed, &q->lock);
    if (q->state == BR_QUERY_FAILED) {
      fprintf(stderr, "%s\n", q->error.message);
      exit(1);
    }
    br_attempt_id id = q->results[at].id.made_by;
    q->results[at].read = true;
    pthread_mutex_unlock(&q->lock);
    br_driver_result_read(d, &id);
  }
  pthread_mutex_lock(&q->lock);
  while (q->state == BR_QUERY_RUNNING || q->state == BR_QUERY_NEW) pthread_cond_wait(&q->changed, &q->lock);
  pthread_mutex_unlock(&q->lock);
}

/* KiB; peak since the last reset. */
static long resident_kib(const char *field) {
  char line[256];
  long kib = 0;
  FILE *f = fopen("/proc/self/status", "re");
  while (f != NULL && fgets(line, sizeof line, f) != NULL)
    if (strncmp(line, field, strlen(field)) == 0) sscanf(line + strlen(field), "%ld", &kib);
  if (f != NULL) fclose(f);
  return kib;
}

static void reset_peak(void) {
  FILE *f = fopen("/proc/self/clear_refs", "we");
  if (f == NULL) return;
  fputs("5", f);
  fclose(f);
}

static pid_t spawn_workers(int port, uint32_t workers, uint32_t slots, uint32_t partitions) {
  char text[4][16];
  snprintf(text[0], 16, "%d", port);
  snprintf(text[1], 16, "%u", workers);
  snprintf(text[2], 16, "%u", slots);
  snprintf(text[3], 16, "%u", partitions);
  char *argv[] = {(char *)"coord_bench", (char *)"--workers", text[0], text[1], text[2], text[3], NULL};
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) != 0) exit(1);
  return pid;
}

static bool run(uint32_t maps, uint32_t partitions, uint32_t workers, uint32_t slots, bool eager) {
  start s = {.events = br_events_new()};
  pthread_t thread;
  br_error err;
  pthread_mutex_init(&s.lock, NULL);
  pthread_cond_init(&s.changed, NULL);
  if (br_loop_new(&s.loop, &err) != BR_OK || pthread_create(&thread, NULL, loop_main, s.loop) != 0) exit(1);
  br_loop_post(s.loop, start_driver, &s);
  pthread_mutex_lock(&s.lock);
  while (!s.done) pthread_cond_wait(&s.changed, &s.lock);
  pthread_mutex_unlock(&s.lock);
  pid_t pid = spawn_workers(br_driver_port(s.driver), workers, slots, partitions);
  if (br_driver_wait_workers(s.driver, workers, WAIT_MS, &err) != BR_OK) {
    fprintf(stderr, "%s\n", err.message);
    exit(1);
  }
  reset_peak();
  long before = resident_kib("VmRSS:");
  uint64_t t0 = br_now_us();
  br_query *q = make_query(maps, partitions);
  q->eager = eager;
  br_driver_submit(s.driver, q);
  read_results(s.driver, q);
  double seconds = (double)(br_now_us() - t0) * 1e-6;
  double mib = (double)(resident_kib("VmHWM:") - before) / 1024;
  printf("%s shuffle %u x %u, %u workers x %u slots: %.1f MiB at the peak, %.0f bytes a task, %.0f tasks/s (%.2f s)\n",
         eager ? "eager" : "staged", maps, partitions, workers, slots, mib, mib * 1048576 / (maps + partitions),
         (maps + partitions) / seconds, seconds);
  br_query_unref(q);
  br_loop_post(s.loop, end_driver, &s);
  pthread_join(thread, NULL);
  br_loop_free(s.loop);
  br_events_free(s.events);
  waitpid(pid, NULL, 0);
  return mib < LIMIT_MIB;
}

static uint32_t number(int argc, char **argv, int i, uint32_t otherwise, uint32_t most) {
  unsigned long v = argc > i ? strtoul(argv[i], NULL, 10) : otherwise;
  return v > 0 && v <= most ? (uint32_t)v : otherwise;
}

int main(int argc, char **argv) {
  if (argc == 6 && strcmp(argv[1], "--workers") == 0) return workers_main(argv);
  uint32_t maps = number(argc, argv, 1, 10000, 1000000), partitions = number(argc, argv, 2, 8000, 65536);
  uint32_t workers = number(argc, argv, 3, 8, MAX_WORKERS), slots = number(argc, argv, 4, 16, 1024);
  bool staged = run(maps, partitions, workers, slots, false), eager = run(maps, partitions, workers, slots, true);
  return staged && eager ? 0 : 1;
}
