/* SPDX-License-Identifier: Apache-2.0
 * The command line of brant-worker: parsed once, before anything runs. A value out of its bounds is an error, never a guess. */
#include "worker/node.h"

#include "base/budget.h"
#include "base/mem.h"
#include "base/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEFAULT_MEMORY_PERCENT 80u
#define DEFAULT_SECRET_ENV "BRANT_SECRET"
#define MAX_SECRET_BYTES 1000 /* it travels as a bearer token */
#define MIN_MEMORY_BYTES (128u << 20)

const char br_node_usage[] =
    "usage: brant-worker --join HOST:PORT [options]\n"
    "  --join HOST:PORT       the coordinator\n"
    "  --uri-host HOST        how peers reach this worker (default: the address that reaches the coordinator)\n"
    "  --listen HOST          what to listen on (default: --uri-host if that is a loopback address, else 0.0.0.0)\n"
    "  --port PORT            to listen on (default: any free one)\n"
    "  --threads N            of DuckDB, all executors together (default: the CPUs of this process)\n"
    "  --memory SIZE          of the worker and its executors (default: 80 % of what the cgroup or the machine has)\n"
    "  --disk SIZE            for shuffle and temporary files (default: no limit but the disk)\n"
    "  --temp-dir DIR         where this worker makes its directory (default: TMPDIR or /tmp)\n"
    "  --executors N          processes that run tasks (default: 1)\n"
    "  --slots N              tasks at once in each executor (default: 1)\n"
    "  --extension-dir DIR    of DuckDB (default: DuckDB's own)\n"
    "  --secret-env NAME      environment variable with the cluster's secret (default: BRANT_SECRET, if it is set)\n"
    "  --host-id NAME         workers with the same one use Unix sockets between them (default: host name and boot)\n"
    "  --drain SECONDS        after SIGTERM: finish tasks and serve what others need, at most that long (default: 60)\n"
    "  --join-wait SECONDS    how long to look for the coordinator at the start (default: 60)\n"
    "  --rejoin-wait SECONDS  how long to look for it when it is lost; 0: this worker ends (default: 60)\n"
    "  --gpus N               GPUs for users' functions (default: those of CUDA_VISIBLE_DEVICES, else /dev/nvidia<n>)\n"
    "  --gpu-share K/N        every N-th of them, from number K on: for several workers on one machine\n"
    "  --udf-idle SECONDS     processes of users' functions end after so long without use (default: 60)\n"
    "  --parent-fd N          a pipe: its end is the parent's, and this worker's too\n";

enum {
  O_JOIN = 256,
  O_URI_HOST,
  O_LISTEN,
  O_PORT,
  O_THREADS,
  O_MEMORY,
  O_DISK,
  O_TEMP,
  O_EXECUTORS,
  O_SLOTS,
  O_EXTENSION,
  O_SECRET,
  O_HOST_ID,
  O_DRAIN,
  O_JOIN_WAIT,
  O_REJOIN_WAIT,
  O_UDF_IDLE,
  O_GPUS,
  O_GPU_SHARE,
  O_PARENT
};

static const struct option long_options[] = {{"join", 1, NULL, O_JOIN},
                                             {"uri-host", 1, NULL, O_URI_HOST},
                                             {"listen", 1, NULL, O_LISTEN},
                                             {"port", 1, NULL, O_PORT},
                                             {"threads", 1, NULL, O_THREADS},
                                             {"memory", 1, NULL, O_MEMORY},
                                             {"disk", 1, NULL, O_DISK},
                                             {"temp-dir", 1, NULL, O_TEMP},
                                             {"executors", 1, NULL, O_EXECUTORS},
                                             {"slots", 1, NULL, O_SLOTS},
                                             {"extension-dir", 1, NULL, O_EXTENSION},
                                             {"secret-env", 1, NULL, O_SECRET},
                                             {"host-id", 1, NULL, O_HOST_ID},
                                             {"drain", 1, NULL, O_DRAIN},
                                             {"join-wait", 1, NULL, O_JOIN_WAIT},
                                             {"rejoin-wait", 1, NULL, O_REJOIN_WAIT},
                                             {"udf-idle", 1, NULL, O_UDF_IDLE},
                                             {"gpus", 1, NULL, O_GPUS},
                                             {"gpu-share", 1, NULL, O_GPU_SHARE},
                                             {"parent-fd", 1, NULL, O_PARENT},
                                             {"help", 0, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static br_status number(const char *option, const char *text, unsigned long min, unsigned long max, uint32_t *out,
                        br_error *err) {
  char *end;
  errno = 0;
  unsigned long v = strtoul(text, &end, 10);
  if (errno || end == text || *end || text[0] == '-' || v < min || v > max) {
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "--%s %.40s: a number from %lu to %lu is wanted", option, text, min,
                   max);
  }
  *out = (uint32_t)v;
  return BR_OK;
}

static br_status take_share(const char *v, br_node_options *o, br_error *err) {
  int end = 0;
  if (sscanf(v, "%4u/%4u%n", &o->gpu_share, &o->gpu_shares, &end) == 2 && v[end] == 0 && o->gpu_share < o->gpu_shares)
    return BR_OK;
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "--gpu-share %.40s: K/N is wanted, K from 0 to N - 1", v);
}

static void set(char **field, const char *value) {
  free(*field);
  *field = br_strdup(value);
}

static br_status take_secret(br_node_options *o, const char *name, br_error *err) {
  const char *value = getenv(name);
  if (!value || !value[0])
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "--secret-env %.100s: this environment variable is empty or not set",
                   name);
  for (const char *p = value; *p; p++)
    if (*p <= ' ' || *p > '~' || p - value >= MAX_SECRET_BYTES)
      return br_fail(err, BR_INVALID, BR_BLAME_USER,
                     "--secret-env %.100s: 1 to %d printable ASCII characters without spaces are wanted", name,
                     MAX_SECRET_BYTES);
  set(&o->secret, value);
  return BR_OK;
}

static br_status take_bytes(const char *option, const char *text, uint64_t *out, br_error *err) {
  br_status status = br_parse_bytes(text, out, err);
  if (status) br_error_context(err, "--%s", option);
  return status;
}

static br_status take_seconds(const char *option, const char *text, uint64_t *out_ms, br_error *err) {
  uint32_t seconds = 0;
  BR_TRY(number(option, text, 0, BR_NODE_MAX_WAIT_S, &seconds, err));
  *out_ms = 1000ull * seconds;
  return BR_OK;
}

static br_status take(br_node_options *o, int c, const char *v, br_error *err) {
  uint32_t n = 0;
  switch (c) {
    case O_JOIN: set(&o->join, v); return BR_OK;
    case O_URI_HOST: set(&o->uri_host, v); return BR_OK;
    case O_LISTEN: set(&o->listen, v); return BR_OK;
    case O_TEMP: set(&o->temp_dir, v); return BR_OK;
    case O_HOST_ID: set(&o->host_id, v); return BR_OK;
    case O_EXTENSION: set(&o->extension_dir, v); return BR_OK;
    case O_SECRET: return take_secret(o, v, err);
    case O_MEMORY: return take_bytes("memory", v, &o->memory_bytes, err);
    case O_DISK: return take_bytes("disk", v, &o->disk_bytes, err);
    case O_DRAIN: return take_seconds("drain", v, &o->drain_ms, err);
    case O_JOIN_WAIT: return take_seconds("join-wait", v, &o->join_wait_ms, err);
    case O_REJOIN_WAIT: return take_seconds("rejoin-wait", v, &o->rejoin_wait_ms, err);
    case O_GPUS: o->gpus_given = true; return number("gpus", v, 0, 64, &o->gpus, err);
    case O_GPU_SHARE: return take_share(v, o, err);
    case O_UDF_IDLE: return take_seconds("udf-idle", v, &o->udf_idle_ms, err);
    case O_THREADS: return number("threads", v, 0, 4096, &o->threads, err);
    case O_EXECUTORS: return number("executors", v, 1, BR_NODE_MAX_EXECUTORS, &o->executors, err);
    case O_SLOTS: return number("slots", v, 1, BR_NODE_MAX_SLOTS, &o->slots, err);
    case O_PORT:
      BR_TRY(number("port", v, 0, 65535, &n, err));
      o->port = (int)n;
      return BR_OK;
    case O_PARENT:
      BR_TRY(number("parent-fd", v, 3, 1u << 20, &n, err));
      o->parent_fd = (int)n;
      return BR_OK;
    default: return BR_OK;
  }
}

/* "host:port", the last colon counts (IPv6 in brackets). */
br_status br_node_split_join(const char *join, char **host, char **port, br_error *err) {
  const char *colon = strrchr(join, ':');
  uint32_t ignored;
  if (!colon || colon == join)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "--join %.200s: HOST:PORT is wanted", join);
  BR_TRY(number("join", colon + 1, 1, 65535, &ignored, err));
  bool brackets = join[0] == '[' && colon[-1] == ']';
  *host = brackets ? br_strndup(join + 1, (size_t)(colon - join) - 2) : br_strndup(join, (size_t)(colon - join));
  *port = br_strdup(colon + 1);
  return BR_OK;
}

/* The local address of a route to the coordinator: a UDP socket that is connected and sends nothing. */
static char *address_towards(const char *host, const char *port) {
  struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
  char text[INET6_ADDRSTRLEN + 1] = "";
  if (getaddrinfo(host, port, &hints, &list) != 0) return NULL;
  for (struct addrinfo *a = list; a && !text[0]; a = a->ai_next) {
    struct sockaddr_storage own;
    socklen_t n = sizeof own;
    int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &n) == 0)
      getnameinfo((struct sockaddr *)&own, n, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    close(fd);
  }
  freeaddrinfo(list);
  return text[0] ? br_strdup(text) : NULL;
}

static bool loopback(const char *host) {
  return !strncmp(host, "127.", 4) || !strcmp(host, "localhost") || !strcmp(host, "::1");
}

static br_status check_network(br_node_options *o, br_error *err) {
  char *host = NULL, *port = NULL;
  BR_TRY(br_node_split_join(o->join, &host, &port, err));
  if (!o->uri_host) o->uri_host = address_towards(host, port);
  br_status status = BR_OK;
  if (o->uri_host && (!strcmp(o->uri_host, "0.0.0.0") || !strcmp(o->uri_host, "::"))) {
    status = br_fail(err, BR_INVALID, BR_BLAME_USER,
                     "--uri-host %s is no address that others can reach: name one of this machine, or leave it out",
                     o->uri_host);
    goto done;
  }
  if (!o->uri_host) {
    status = br_fail(err, BR_NETWORK, BR_BLAME_USER,
                     "--join %.200s: the host is unknown or has no route; is the name right?", o->join);
    goto done;
  }
  if (!o->listen) o->listen = br_strdup(loopback(o->uri_host) ? o->uri_host : "0.0.0.0");
  if (!loopback(o->listen) && !o->secret[0]) {
    status =
        br_fail(err, BR_PERMISSION, BR_BLAME_USER,
                "listening on %.100s without a secret would let anybody read the data: set BRANT_SECRET", o->listen);
  }
done:
  free(host);
  free(port);
  return status;
}

static br_status check_memory(br_node_options *o, br_error *err) {
  uint64_t available = br_memory_available_bytes();
  if (!o->memory_bytes) o->memory_bytes = available / 100 * DEFAULT_MEMORY_PERCENT;
  if (available && o->memory_bytes > available) {
    br_log(BR_LOG_WARN, "--memory is more than the cgroup or the machine has: %llu MiB are used",
           (unsigned long long)(available >> 20));
    o->memory_bytes = available;
  }
  if (o->memory_bytes < MIN_MEMORY_BYTES)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "--memory: at least %u MiB are needed", MIN_MEMORY_BYTES >> 20);
  return BR_OK;
}

br_status br_node_options_parse(int argc, char **argv, br_node_options *o, br_error *err) {
  *o = (br_node_options){.parent_fd = -1,
                         .slots = 1,
                         .executors = 1,
                         .drain_ms = BR_NODE_DRAIN_S * 1000u,
                         .join_wait_ms = BR_NODE_JOIN_S * 1000u,
                         .rejoin_wait_ms = BR_NODE_JOIN_S * 1000u,
                         .udf_idle_ms = BR_NODE_UDF_IDLE_S * 1000u,
                         .secret = br_strdup("")};
  optind = 1;
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
    if (c == 'h') {
      o->help = true;
      return BR_OK;
    }
    if (c == '?')
      return br_fail(err, BR_INVALID, BR_BLAME_USER, "unknown option, or its value is missing: %.100s",
                     argv[optind - 1]);
    BR_TRY(take(o, c, optarg, err));
  }
  if (optind < argc) return br_fail(err, BR_INVALID, BR_BLAME_USER, "unexpected argument: %.100s", argv[optind]);
  if (!o->join) return br_fail(err, BR_INVALID, BR_BLAME_USER, "--join HOST:PORT is missing");
  const char *secret = getenv(DEFAULT_SECRET_ENV);
  if (!o->secret[0] && secret && secret[0]) BR_TRY(take_secret(o, DEFAULT_SECRET_ENV, err));
  if (!o->threads) o->threads = uv_available_parallelism();
  if (!o->temp_dir) {
    const char *tmp = getenv("TMPDIR");
    o->temp_dir = br_strdup(tmp && tmp[0] ? tmp : "/tmp");
  }
  BR_TRY(check_network(o, err));
  return check_memory(o, err);
}

void br_node_options_free(br_node_options *o) {
  char *all[] = {o->join, o->uri_host, o->listen, o->temp_dir, o->secret, o->host_id, o->extension_dir};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}
