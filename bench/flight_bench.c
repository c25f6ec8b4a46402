/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast one Flight connection is: a server in a child process (this program again, by posix_spawn), a client here, over
 * loopback TCP and a Unix socket, beside plain sockets in the same run. Prints GiB/s and CPU seconds a GiB, of both
 * processes together; medians of --runs (5).
 *
 * flight_bench [--runs N] [--mib N a run] [--batch-kib N] [--streams N]
 */
#include "base/mem.h"
#include "base/util.h"
#include "flight/flight.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_BYTES 600 /* about what a batch of ten columns has */
#define MAX_RUNS 101

extern char **environ;

typedef struct settings {
  long runs, mib, batch_kib, streams;
} settings;
typedef struct sample {
  double seconds, cpu, gib;
} sample;

static void die(const char *what) {
  fprintf(stderr, "flight_bench: %s: %s\n", what, strerror(errno));
  exit(1);
}

/* ---- the child: serves until its standard input closes */

typedef struct bench_source {
  const uint8_t *body;
  size_t bytes;
  uint64_t left;
} bench_source;
static uint8_t *batch;
static size_t batch_bytes;
static const uint8_t head[HEAD_BYTES];

static void keep_body(void *owner) { (void)owner; } /* the batch outlives everything */

static br_pull next(void *arg, br_flight_data *out, br_error *err) {
  bench_source *s = arg;
  (void)err;
  if (s->left == 0) return BR_PULL_END;
  s->left--;
  out->head = head, out->head_bytes = sizeof head;
  out->body = (br_span){s->body, s->bytes, keep_body, NULL};
  return BR_PULL_DATA;
}

static br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                        br_error *err) {
  (void)arg, (void)call, (void)err;
  char text[32] = "";
  memcpy(text, ticket, n < 31 ? n : 31);
  bench_source *s = br_calloc(1, sizeof *s);
  *s = (bench_source){batch, batch_bytes, strtoull(text, NULL, 10)};
  *src = (br_flight_source){next, free, s};
  return BR_OK;
}

/* Child's CPU so far, so that the parent can take the difference over a run. */
static br_status do_action(void *arg, br_flight_call *call, const char *type, const void *body, size_t n,
                           br_error *err) {
  (void)arg, (void)type, (void)body, (void)n, (void)err;
  double cpu = br_cpu_seconds();
  br_flight_call_result(call, &cpu, sizeof cpu);
  br_flight_call_end(call, NULL);
  return BR_OK;
}

static void on_stdin(uv_poll_t *h, int status, int events) {
  (void)status, (void)events;
  br_loop_stop(h->data);
}

static int serve_flight(const char *unix_path) {
  br_loop *l;
  br_error err = {0};
  br_flight_server *s;
  br_flight_server_options o = {.host = "127.0.0.1", .unix_path = unix_path};
  br_flight_handlers h = {.do_get = do_get, .do_action = do_action};
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

/* A connection asks with the number of batches, gets them, then the child's CPU. */
static void serve_raw_once(int fd) {
  uint64_t n;
  while (read(fd, &n, sizeof n) == sizeof n) {
    br_error err = {0};
    double before = br_cpu_seconds(), cpu;
    for (uint64_t i = 0; i < n; i++)
      if (br_write_all(fd, batch, batch_bytes, &err)) return;
    cpu = br_cpu_seconds() - before;
    if (br_write_all(fd, &cpu, sizeof cpu, &err)) return;
  }
}

static int serve_raw(const char *unix_path) {
  struct sockaddr_un u = {.sun_family = AF_UNIX};
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int fds[2] = {socket(AF_INET, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_STREAM, 0)};
  strncpy(u.sun_path, unix_path, sizeof u.sun_path - 1);
  if (bind(fds[0], (struct sockaddr *)&a, sizeof a) || bind(fds[1], (struct sockaddr *)&u, sizeof u)) die("bind");
  for (int i = 0; i < 2; i++)
    if (listen(fds[i], 8)) die("listen");
  getsockname(fds[0], (struct sockaddr *)&a, &n);
  printf("%d\n", ntohs(a.sin_port));
  fflush(stdout);
  for (int i = 0; i < 2; i++) { /* the parent comes first over TCP, then over the Unix socket */
    int c = accept(fds[i], NULL, NULL);
    if (c < 0) die("accept");
    serve_raw_once(c);
    close(c);
  }
  unlink(unix_path);
  return 0;
}

/* ---- the parent */

typedef struct child {
  pid_t pid;
  int in, port;
  char path[100];
} child;

static void spawn_child(child *c, const char *kind, long batch_kib) {
  char exe[1000], kib[20];
  int in[2], out[2];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n < 0 || pipe(in) || pipe(out)) die("start");
  exe[n] = 0;
  snprintf(c->path, sizeof c->path, "/tmp/brant-flight-bench-%d-%s.sock", (int)getpid(), kind);
  snprintf(kib, sizeof kib, "%ld", batch_kib);
  posix_spawn_file_actions_t fa;
  posix_spawn_file_actions_init(&fa);
  posix_spawn_file_actions_adddup2(&fa, in[0], 0);
  posix_spawn_file_actions_adddup2(&fa, out[1], 1);
  posix_spawn_file_actions_addclose(&fa, in[1]);
  char *argv[] = {exe, (char *)"--serve", (char *)kind, c->path, kib, NULL};
  if (posix_spawn(&c->pid, exe, &fa, NULL, argv, environ)) die("spawn");
  posix_spawn_file_actions_destroy(&fa);
  close(in[0]);
  close(out[1]);
  c->in = in[1];
  char port[16] = "";
  if (read(out[0], port, sizeof port - 1) <= 0) die("the child gave no port");
  close(out[0]);
  c->port = atoi(port);
}

static void stop_child(child *c) {
  close(c->in);
  waitpid(c->pid, NULL, 0);
}

typedef struct run {
  br_loop *l;
  br_flight_client *client;
  long streams, open;
  uint64_t bytes;
  double child_cpu;
  br_error err;
  struct one {
    struct run *run;
    br_flight_stream *s;
  } one[64];
} run;

static void on_data(void *arg, const void *h, size_t hn, const void *app, size_t an, void *body, size_t n) {
  struct one *o = arg;
  (void)h, (void)app, (void)an;
  o->run->bytes += n;
  br_flight_body_free(body);
  br_flight_stream_consume(o->s, hn + n);
}
static void on_end(void *arg, const br_error *err) {
  struct one *o = arg;
  if (err->code) o->run->err = *err;
  if (--o->run->open == 0) br_loop_stop(o->run->l);
}
static void on_cpu(void *arg, const void *body, size_t n) {
  struct one *o = arg;
  if (n == sizeof(double)) memcpy(&o->run->child_cpu, body, n);
}

static double child_cpu(run *r) {
  r->open = 1;
  r->one[0].run = r;
  br_flight_action(r->client, "cpu", NULL, 0, (br_flight_sink){&r->one[0], NULL, on_cpu, on_end});
  br_loop_run(r->l);
  return r->child_cpu;
}

static sample flight_run(run *r, const settings *o) {
  uint64_t batches = (uint64_t)o->mib * 1024 / (uint64_t)o->batch_kib / (uint64_t)o->streams;
  char ticket[32];
  int n = snprintf(ticket, sizeof ticket, "%llu", (unsigned long long)batches);
  double child0 = child_cpu(r), cpu0 = br_cpu_seconds();
  uint64_t t0 = br_now_us();
  r->bytes = 0;
  r->open = o->streams;
  for (long i = 0; i < o->streams; i++) {
    r->one[i].run = r;
    r->one[i].s = br_flight_get(r->client, ticket, (size_t)n, (br_flight_sink){&r->one[i], on_data, NULL, on_end});
  }
  br_loop_run(r->l);
  sample s = {.seconds = (double)(br_now_us() - t0) * 1e-6, .cpu = br_cpu_seconds() - cpu0};
  s.cpu += child_cpu(r) - child0;
  s.gib = (double)r->bytes / (1 << 30);
  if (r->err.code) {
    fprintf(stderr, "flight_bench: %s\n", r->err.message);
    exit(1);
  }
  return s;
}

static int raw_connect(const child *c, bool on_unix) {
  struct sockaddr_un u = {.sun_family = AF_UNIX};
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)c->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  memcpy(u.sun_path, c->path, sizeof c->path);
  int fd = socket(on_unix ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
  if (on_unix ? connect(fd, (struct sockaddr *)&u, sizeof u) : connect(fd, (struct sockaddr *)&a, sizeof a))
    die("connect");
  return fd;
}

static void read_exactly(int fd, void *p, size_t n) {
  for (size_t got = 0; got < n;) {
    ssize_t r = read(fd, (char *)p + got, n - got);
    if (r <= 0) die("read");
    got += (size_t)r;
  }
}

static sample raw_run(int fd, const settings *o) {
  uint64_t batches = (uint64_t)o->mib * 1024 / (uint64_t)o->batch_kib;
  double cpu0 = br_cpu_seconds(), there;
  uint64_t t0 = br_now_us();
  if (write(fd, &batches, sizeof batches) != sizeof batches) die("write");
  for (uint64_t i = 0; i < batches; i++) read_exactly(fd, batch, batch_bytes);
  read_exactly(fd, &there, sizeof there);
  sample s = {.seconds = (double)(br_now_us() - t0) * 1e-6, .cpu = br_cpu_seconds() - cpu0 + there};
  s.gib = (double)batches * (double)batch_bytes / (1 << 30);
  return s;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print(const char *name, const sample *s, long n) {
  double rate[MAX_RUNS], cpu[MAX_RUNS];
  for (long i = 0; i < n; i++) rate[i] = s[i].gib / s[i].seconds, cpu[i] = s[i].cpu / s[i].gib;
  qsort(rate, (size_t)n, sizeof *rate, by_value);
  qsort(cpu, (size_t)n, sizeof *cpu, by_value);
  printf("%-12s %6.2f GiB/s  %5.3f CPU s/GiB   (%.2f .. %.2f GiB/s)\n", name, rate[n / 2], cpu[n / 2], rate[0],
         rate[n - 1]);
}

static void flight_runs(const child *c, bool on_unix, const settings *o, sample *out) {
  br_error err = {0};
  char uri[200];
  if (on_unix)
    snprintf(uri, sizeof uri, "unix:%s", c->path);
  else
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", c->port);
  run r = {.streams = o->streams};
  if (br_loop_new(&r.l, &err) || br_flight_client_new(r.l, uri, NULL, &r.client, &err)) {
    fprintf(stderr, "flight_bench: %s\n", err.message);
    exit(1);
  }
  (void)flight_run(&r, o); /* warm */
  for (long i = 0; i < o->runs; i++) out[i] = flight_run(&r, o);
  br_flight_client_free(r.client);
  br_loop_free(r.l);
}

static void measure(const settings *o) {
  static sample flight[2][MAX_RUNS], raw[2][MAX_RUNS];
  child f, p;
  spawn_child(&f, "flight", o->batch_kib);
  spawn_child(&p, "raw", o->batch_kib);
  for (int on_unix = 0; on_unix < 2; on_unix++) {
    flight_runs(&f, on_unix, o, flight[on_unix]);
    int fd = raw_connect(&p, on_unix);
    (void)raw_run(fd, o);
    for (long i = 0; i < o->runs; i++) raw[on_unix][i] = raw_run(fd, o);
    close(fd);
    print(on_unix ? "flight unix" : "flight tcp", flight[on_unix], o->runs);
    print(on_unix ? "raw unix" : "raw tcp", raw[on_unix], o->runs);
  }
  stop_child(&f);
  stop_child(&p);
}

static long number(const char *s, long most) {
  char *end;
  long v = strtol(s ? s : "", &end, 10);
  if (!s || *end || v < 1 || v > most) {
    fprintf(stderr, "flight_bench: want a number of 1 to %ld\n", most);
    exit(2);
  }
  return v;
}

int main(int argc, char **argv) {
  settings o = {.runs = 5, .mib = 4096, .batch_kib = 4224, .streams = 1};
  bool serves = argc == 5 && strcmp(argv[1], "--serve") == 0;
  for (int i = 1; !serves && i < argc; i += 2) {
    if (strcmp(argv[i], "--runs") == 0)
      o.runs = number(argv[i + 1], MAX_RUNS);
    else if (strcmp(argv[i], "--mib") == 0)
      o.mib = number(argv[i + 1], 1 << 20);
    else if (strcmp(argv[i], "--batch-kib") == 0)
      o.batch_kib = number(argv[i + 1], 1 << 20);
    else if (strcmp(argv[i], "--streams") == 0)
      o.streams = number(argv[i + 1], 64);
    else
      return fprintf(stderr, "usage: flight_bench [--runs N] [--mib N] [--batch-kib N] [--streams N]\n"), 2;
  }
  batch_bytes = (size_t)(serves ? number(argv[4], 1 << 20) : o.batch_kib) << 10;
  batch = br_malloc(batch_bytes);
  memset(batch, 1, batch_bytes);
  if (serves) return strcmp(argv[2], "raw") == 0 ? serve_raw(argv[3]) : serve_flight(argv[3]);
  measure(&o);
  free(batch);
  return 0;
}
