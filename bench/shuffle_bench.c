/* SPDX-License-Identifier: Apache-2.0
 * links: br_shuffle
 *
 * What moving rows costs: partition and encode into a map output; serve it from a child process (this program again, by
 * posix_spawn) and fetch it over loopback TCP; decode it where it is. Beside them plain loopback TCP with the same number of
 * bytes, in the same run. Rows have 74 bytes: four BIGINT, two DOUBLE, one DATE, one string of 18 bytes on average (with its
 * offset 22). Prints GB/s, CPU seconds a GB (both processes), medians of --runs. A GB is 10^9 bytes of the encoded output.
 *
 * shuffle_bench [--rows N] [--partitions N[,N]] [--runs N] [--threads N] [--disk DIR] [--codec none|lz4|zstd] [--follow yes|no]
 *   defaults: 30,000,000 rows, 64,512 partitions, 3 runs, 2 threads, memory. --rows 2000000 --runs 1 takes 2 s.
 *   --disk: the output is a file in DIR, written past a node that refuses memory; --codec is for its chunks.
 *   --follow: as if somebody read while it is written: chunks are told and begin small. Prints their number and messages.
 */
#include "base/mem.h"
#include "base/util.h"
#include "flight/flight.h"
#include "proto/proto.h"
#include "shuffle/clients.h"
#include "shuffle/mapfile.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_ROWS 2048u
#define BLOCKS 64u /* of different rows; they are written again and again */
#define COLUMNS 8
#define MAX_RUNS 51
#define MAX_THREADS 32
#define OUTPUT_FD 3 /* in the child */
#define PORT_FD 4
#define RAW_BUFFER_BYTES (4u << 20)

extern char **environ;

typedef struct settings {
  uint64_t rows;
  uint32_t partitions[8], n_partitions, runs, threads;
  const char *disk;
  br_codec codec;
  bool follow;
  const char *self;
} settings;

typedef struct block {
  int64_t numbers[4][BLOCK_ROWS];
  double doubles[2][BLOCK_ROWS];
  int32_t date[BLOCK_ROWS];
  unsigned char strings[BLOCK_ROWS * 16];
  char text[BLOCK_ROWS * 32];
  uint64_t hash[BLOCK_ROWS];
  uint32_t partition[BLOCK_ROWS];
  br_vec columns[COLUMNS + 1];
} block;

static void die(const br_error *err) {
  fprintf(stderr, "shuffle_bench: %s\n", err->message);
  exit(1);
}
#define MUST(expr)                  \
  do {                              \
    if ((expr) != BR_OK) die(&err); \
  } while (0)

/* ---- rows */
static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static void fill_string(block *b, uint32_t i, uint64_t *random) {
  uint32_t length = 8 + (uint32_t)(next_random(random) % 21);
  char *text = b->text + 32 * (size_t)i;
  unsigned char *slot = b->strings + 16 * (size_t)i;
  for (uint32_t k = 0; k < length; k++) text[k] = (char)('a' + next_random(random) % 26);
  memset(slot, 0, 16);
  memcpy(slot, &length, 4);
  memcpy(slot + 4, text, length <= 12 ? length : 4);
  if (length > 12) memcpy(slot + 8, &text, sizeof text);
}

static block *make_blocks(void) {
  block *blocks = br_malloc(BLOCKS * sizeof *blocks);
  uint64_t random = 88172645463325252ull;
  for (uint32_t k = 0; k < BLOCKS; k++) {
    block *b = &blocks[k];
    for (uint32_t i = 0; i < BLOCK_ROWS; i++) {
      for (int c = 0; c < 4; c++) b->numbers[c][i] = (int64_t)(next_random(&random) % 6000000);
      for (int c = 0; c < 2; c++) b->doubles[c][i] = (double)(next_random(&random) % 100000) / 100;
      b->date[i] = (int32_t)(8000 + next_random(&random) % 2500);
      b->hash[i] = next_random(&random);
      fill_string(b, i, &random);
    }
    for (int c = 0; c < 4; c++) b->columns[c] = (br_vec){.kind = BR_VEC_FIXED, .width = 8, .data = b->numbers[c]};
    for (int c = 0; c < 2; c++) b->columns[4 + c] = (br_vec){.kind = BR_VEC_FIXED, .width = 8, .data = b->doubles[c]};
    b->columns[6] = (br_vec){.kind = BR_VEC_FIXED, .width = 4, .data = b->date};
    b->columns[7] = (br_vec){.kind = BR_VEC_STRING, .data = b->strings};
    b->columns[8] = (br_vec){.kind = BR_VEC_FIXED, .width = 4, .data = b->partition};
  }
  return blocks;
}

static void place_blocks(block *blocks, uint32_t partitions) {
  for (uint32_t k = 0; k < BLOCKS; k++)
    for (uint32_t i = 0; i < BLOCK_ROWS; i++) blocks[k].partition[i] = (uint32_t)(blocks[k].hash[i] % partitions);
}

static br_schema *make_schema(void) {
  static const enum ArrowType types[COLUMNS] = {NANOARROW_TYPE_INT64,  NANOARROW_TYPE_INT64,  NANOARROW_TYPE_INT64,
                                                NANOARROW_TYPE_INT64,  NANOARROW_TYPE_DOUBLE, NANOARROW_TYPE_DOUBLE,
                                                NANOARROW_TYPE_DATE32, NANOARROW_TYPE_STRING};
  struct ArrowSchema s;
  br_schema *out = NULL;
  br_error err = {0};
  char name[8];
  ArrowSchemaInit(&s);
  if (ArrowSchemaSetTypeStruct(&s, COLUMNS) != 0) exit(1);
  for (int i = 0; i < COLUMNS; i++) {
    snprintf(name, sizeof name, "c%d", i);
    if (ArrowSchemaSetType(s.children[i], types[i]) != 0 || ArrowSchemaSetName(s.children[i], name) != 0) exit(1);
  }
  MUST(br_schema_new(&s, &out, &err));
  return out;
}

/* ---- measuring */
typedef struct sample {
  double seconds, cpu, bytes;
} sample;

typedef struct series {
  const char *name;
  double gb_per_s[MAX_RUNS], cpu_per_gb[MAX_RUNS];
  uint32_t n;
} series;

static void add_sample(series *s, sample m) {
  s->gb_per_s[s->n] = m.bytes / 1e9 / m.seconds;
  s->cpu_per_gb[s->n++] = m.cpu / (m.bytes / 1e9);
}

static int by_value(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

static void print_series(series *s, uint32_t partitions) {
  qsort(s->gb_per_s, s->n, sizeof(double), by_value);
  qsort(s->cpu_per_gb, s->n, sizeof(double), by_value);
  printf("%10u  %-22s %8.2f GB/s %8.3f CPU s/GB   (%.2f to %.2f)\n", partitions, s->name, s->gb_per_s[s->n / 2],
         s->cpu_per_gb[s->n / 2], s->gb_per_s[0], s->gb_per_s[s->n - 1]);
}

static sample since(uint64_t start_us, double start_cpu, uint64_t bytes) {
  return (sample){
      .seconds = (double)(br_now_us() - start_us) / 1e6, .cpu = br_cpu_seconds() - start_cpu, .bytes = (double)bytes};
}

/* ---- partition and encode */
typedef struct write_job {
  br_writer *w;
  block *blocks;
  uint64_t rows;
  uint32_t first_block;
} write_job;

static void *write_rows(void *arg) {
  write_job *j = arg;
  void *state = NULL;
  br_error err = {0};
  MUST(br_writer_thread(j->w, &state, &err));
  for (uint64_t done = 0, k = j->first_block; done < j->rows; k++) {
    uint32_t n = j->rows - done < BLOCK_ROWS ? (uint32_t)(j->rows - done) : BLOCK_ROWS;
    MUST(br_writer_write(j->w, state, j->blocks[k % BLOCKS].columns, COLUMNS + 1, n, &err));
    done += n;
  }
  MUST(br_writer_thread_end(j->w, state, &err));
  return NULL;
}

static bool refuse(void *arg, uint64_t bytes) {
  (void)arg;
  (void)bytes;
  return false;
}

/* Of one output; told under the output's lock. */
static uint64_t told_chunks, told_messages;

static void count_told(void *arg, const br_publication *p) {
  (void)arg;
  told_chunks += p->n;
  told_messages++;
}

static sample bench_write(const settings *s, br_schema *schema, block *blocks, uint32_t partitions,
                          br_map_output *out) {
  br_error err = {0};
  br_writer *w = NULL;
  pthread_t ids[MAX_THREADS];
  write_job jobs[MAX_THREADS];
  br_writer_options o = {.id = {.query = 1},
                         .schema = schema,
                         .kind = BR_PART_HASH,
                         .partitions = partitions,
                         .codec_disk = s->codec,
                         .scatter_buffer_bytes = 256u << 20,
                         .spill_dir = s->disk};
  told_chunks = told_messages = 0;
  if (s->follow) o.publish = (br_publisher){count_told, NULL};
  if (s->disk != NULL) o.reserver.reserve = refuse;
  uint64_t start = br_now_us();
  double cpu = br_cpu_seconds();
  MUST(br_writer_open(&o, &w, &err));
  for (uint32_t i = 0; i < s->threads; i++) {
    jobs[i] =
        (write_job){.w = w, .blocks = blocks, .rows = s->rows / s->threads, .first_block = i * BLOCKS / s->threads};
    pthread_create(&ids[i], NULL, write_rows, &jobs[i]);
  }
  for (uint32_t i = 0; i < s->threads; i++) pthread_join(ids[i], NULL);
  MUST(br_writer_commit(w, out, &err));
  sample m = since(start, cpu, out->bytes);
  br_writer_free(w);
  return m;
}

/* ---- the child: serves its output, or plain bytes, to one connection */
static br_mapfile *served;
static br_loop *serving_loop;

static br_status do_get(void *arg, br_flight_call *call, const void *ticket, size_t n, br_flight_source *src,
                        br_error *err) {
  (void)arg;
  Brant__Pb__Ticket *t = (Brant__Pb__Ticket *)br_pb_unpack(&brant__pb__ticket__descriptor, ticket, n, err);
  if (t == NULL) return err->code;
  uint32_t map = 0;
  br_serve_set set = {.files = &served, .maps = &map, .n = 1};
  br_status status = br_serve_source(serving_loop, call, &set, t->ref->first, t->ref->last, t->ordered, src, err);
  brant__pb__ticket__free_unpacked(t, NULL);
  return status;
}

static void tell_port(int port) {
  if (write(PORT_FD, &port, sizeof port) != sizeof port) exit(1);
  close(PORT_FD);
}

static int child_serve(bool in_memory, uint64_t file_bytes) {
  br_error err = {0};
  br_flight_server *server = NULL;
  br_flight_server_options o = {.host = "127.0.0.1"};
  br_flight_handlers h = {.do_get = do_get};
  MUST(br_mapfile_open(OUTPUT_FD, in_memory, file_bytes, &served, &err));
  MUST(br_loop_new(&serving_loop, &err));
  MUST(br_flight_server_new(serving_loop, &o, &h, &server, &err));
  tell_port(br_flight_server_port(server));
  br_loop_run(serving_loop); /* until it is killed */
  return 0;
}

static int child_raw(uint64_t bytes) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, 1) != 0 || getsockname(fd, (struct sockaddr *)&a, &n) != 0)
    return 1;
  char *buffer = br_calloc(1, RAW_BUFFER_BYTES);
  tell_port(ntohs(a.sin_port));
  int c = accept(fd, NULL, NULL);
  while (bytes > 0) {
    ssize_t sent = send(c, buffer, bytes < RAW_BUFFER_BYTES ? bytes : RAW_BUFFER_BYTES, MSG_NOSIGNAL);
    if (sent <= 0) return 1;
    bytes -= (uint64_t)sent;
  }
  close(c);
  return 0;
}

typedef struct child {
  pid_t pid;
  int port;
} child;

static child start_child(const settings *s, const char *mode, int output_fd, uint64_t bytes) {
  int pipe_fds[2];
  char number[32];
  child c;
  posix_spawn_file_actions_t actions;
  snprintf(number, sizeof number, "%llu", (unsigned long long)bytes);
  char *argv[] = {(char *)s->self, (char *)mode, number, NULL};
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) exit(1);
  int source = output_fd >= 0 ? fcntl(output_fd, F_DUPFD_CLOEXEC, 10) : -1,
      port = fcntl(pipe_fds[1], F_DUPFD_CLOEXEC, 10);
  posix_spawn_file_actions_init(&actions);
  if (source >= 0) posix_spawn_file_actions_adddup2(&actions, source, OUTPUT_FD);
  posix_spawn_file_actions_adddup2(&actions, port, PORT_FD);
  if (posix_spawn(&c.pid, s->self, &actions, NULL, argv, environ) != 0) exit(1);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  close(port);
  if (source >= 0) close(source);
  if (read(pipe_fds[0], &c.port, sizeof c.port) != sizeof c.port) exit(1);
  close(pipe_fds[0]);
  return c;
}

static double end_child(child c) {
  struct rusage u;
  kill(c.pid, SIGKILL);
  wait4(c.pid, NULL, 0, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* ---- fetch, decode, raw */
static void *read_batches(void *arg) {
  br_reader *r = arg;
  br_error err = {0};
  for (;;) {
    br_batch *b = NULL;
    MUST(br_reader_next(r, &b, &err));
    if (b == NULL) return NULL;
    br_batch_unref(b);
  }
}

static void read_all(const settings *s, const br_reader_options *o) {
  br_error err = {0};
  br_reader *r = NULL;
  pthread_t ids[MAX_THREADS];
  MUST(br_reader_open(o, &r, &err));
  for (uint32_t i = 0; i < s->threads; i++) pthread_create(&ids[i], NULL, read_batches, r);
  for (uint32_t i = 0; i < s->threads; i++) pthread_join(ids[i], NULL);
  if (br_reader_stats_now(r).rows != s->rows / s->threads * s->threads) {
    fprintf(stderr, "shuffle_bench: rows are missing\n");
    exit(1);
  }
  br_reader_free(r);
}

static void *run_loop(void *loop) {
  br_loop_run(loop);
  return NULL;
}

static void close_and_stop(void *loop) {
  br_clients_close(loop);
  br_loop_stop(loop);
}

static sample bench_fetch(const settings *s, br_schema *schema, uint32_t partitions, const br_map_output *out) {
  br_error err = {0};
  br_loop *loop = NULL;
  pthread_t thread;
  child c = start_child(s, out->in_memory ? "--serve-memory" : "--serve-disk", out->fd, out->file_bytes);
  char uri[64];
  snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", c.port);
  MUST(br_loop_new(&loop, &err));
  pthread_create(&thread, NULL, run_loop, loop);
  br_read_remote remote = {.uri = uri, .worker = 1, .outputs = 1};
  br_reader_options o = {
      .loop = loop, .schema = schema, .last = partitions, .remote = &remote, .n_remote = 1, .buffer_bytes = 32u << 20};
  uint64_t start = br_now_us();
  double cpu = br_cpu_seconds();
  read_all(s, &o);
  sample m = since(start, cpu, out->bytes);
  m.cpu += end_child(c);
  br_loop_post(loop, close_and_stop, loop);
  pthread_join(thread, NULL);
  br_loop_free(loop);
  return m;
}

static sample bench_decode(const settings *s, br_schema *schema, uint32_t partitions, const br_map_output *out) {
  br_error err = {0};
  br_read_local local = {0};
  MUST(br_mapfile_open(fcntl(out->fd, F_DUPFD_CLOEXEC, 0), out->in_memory, out->file_bytes, &local.file, &err));
  br_reader_options o = {.schema = schema, .last = partitions, .local = &local, .n_local = 1};
  uint64_t start = br_now_us();
  double cpu = br_cpu_seconds();
  read_all(s, &o);
  sample m = since(start, cpu, out->bytes);
  br_mapfile_unref(local.file);
  return m;
}

static sample bench_raw(const settings *s, uint64_t bytes) {
  child c = start_child(s, "--raw", -1, bytes);
  struct sockaddr_in a = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)c.port)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  char *buffer = br_calloc(1, RAW_BUFFER_BYTES);
  uint64_t start = br_now_us(), left = bytes;
  double cpu = br_cpu_seconds();
  if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) exit(1);
  while (left > 0) {
    ssize_t got = recv(fd, buffer, RAW_BUFFER_BYTES, 0);
    if (got <= 0) exit(1);
    left -= (uint64_t)got;
  }
  sample m = since(start, cpu, bytes);
  close(fd);
  free(buffer);
  m.cpu += end_child(c);
  return m;
}

/* ---- main */
static void bench_partitions(const settings *s, br_schema *schema, block *blocks, uint32_t partitions) {
  series write = {.name = "partition + encode"}, fetch = {.name = "serve + fetch + decode"},
         raw = {.name = "plain TCP"}, decode = {.name = s->disk != NULL ? "local read + decode" : "local decode"};
  uint64_t bytes = 0, rows = 0;
  place_blocks(blocks, partitions);
  for (uint32_t i = 0; i < s->runs; i++) {
    br_map_output out = {.fd = -1};
    add_sample(&write, bench_write(s, schema, blocks, partitions, &out));
    add_sample(&fetch, bench_fetch(s, schema, partitions, &out));
    add_sample(&raw, bench_raw(s, out.bytes));
    add_sample(&decode, bench_decode(s, schema, partitions, &out));
    bytes = out.bytes;
    rows = out.rows;
    if (out.path != NULL) unlink(out.path);
    br_map_output_free(&out);
  }
  print_series(&write, partitions);
  print_series(&fetch, partitions);
  print_series(&raw, partitions);
  print_series(&decode, partitions);
  printf("%10u  %.1f bytes a row as stored\n", partitions, (double)bytes / (double)rows);
  if (s->follow)
    printf("%10u  %llu chunks told in %llu messages\n", partitions, (unsigned long long)told_chunks,
           (unsigned long long)told_messages);
}

static uint64_t number_of(const char *text, uint64_t least, uint64_t most) {
  char *end;
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (errno != 0 || *end != 0 || n < least || n > most) {
    fprintf(stderr, "shuffle_bench: %s is not a number from %llu to %llu\n", text, (unsigned long long)least,
            (unsigned long long)most);
    exit(2);
  }
  return n;
}

static void parse_partitions(settings *s, const char *list) {
  char *copy = br_strdup(list), *rest = NULL;
  s->n_partitions = 0;
  for (char *p = strtok_r(copy, ",", &rest); p != NULL && s->n_partitions < 8; p = strtok_r(NULL, ",", &rest))
    s->partitions[s->n_partitions++] = (uint32_t)number_of(p, 2, 65536);
  free(copy);
}

static void parse_option(settings *s, const char *name, const char *value) {
  br_error err = {0};
  if (strcmp(name, "--rows") == 0)
    s->rows = number_of(value, 1000, 1ull << 40);
  else if (strcmp(name, "--runs") == 0)
    s->runs = (uint32_t)number_of(value, 1, MAX_RUNS);
  else if (strcmp(name, "--threads") == 0)
    s->threads = (uint32_t)number_of(value, 1, MAX_THREADS);
  else if (strcmp(name, "--partitions") == 0)
    parse_partitions(s, value);
  else if (strcmp(name, "--disk") == 0)
    s->disk = value;
  else if (strcmp(name, "--codec") == 0)
    MUST(br_codec_parse(value, &s->codec, &err));
  else if (strcmp(name, "--follow") == 0)
    s->follow = strcmp(value, "yes") == 0;
  else {
    fprintf(stderr, "shuffle_bench: unknown option %s\n", name);
    exit(2);
  }
}

int main(int argc, char **argv) {
  settings s = {.rows = 30000000,
                .partitions = {64, 512},
                .n_partitions = 2,
                .runs = 3,
                .threads = 2,
                .codec = BR_CODEC_LZ4,
                .self = "/proc/self/exe"};
  if (argc == 3 && strcmp(argv[1], "--raw") == 0) return child_raw(strtoull(argv[2], NULL, 10));
  if (argc == 3 && strncmp(argv[1], "--serve-", 8) == 0)
    return child_serve(strcmp(argv[1] + 8, "memory") == 0, strtoull(argv[2], NULL, 10));
  for (int i = 1; i + 1 < argc; i += 2) parse_option(&s, argv[i], argv[i + 1]);
  if (argc % 2 == 0) {
    fprintf(stderr, "shuffle_bench: %s needs a value\n", argv[argc - 1]);
    return 2;
  }
  br_schema *schema = make_schema();
  block *blocks = make_blocks();
  printf("%10s  %llu rows, %u threads, %u runs, %s\n", "partitions", (unsigned long long)s.rows, s.threads, s.runs,
         s.disk != NULL ? s.disk : "memory");
  for (uint32_t i = 0; i < s.n_partitions; i++) bench_partitions(&s, schema, blocks, s.partitions[i]);
  free(blocks);
  br_schema_unref(schema);
  return 0;
}
