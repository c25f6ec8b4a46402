/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses, and sockets that listen.
 *
 * Order of calls: none; every function stands alone. Threads: any. Bounds: a host name of 255 bytes, a path of 107.
 */
#include "net/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 512
#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES 4
#define UNACKED_MS 60000 /* data that a vanished peer never acknowledges */

static br_status parse_tcp(const char *uri, const char *rest, br_address *out, br_error *err) {
  const char *colon = strrchr(rest, ':');
  const char *host = rest;
  size_t n = colon ? (size_t)(colon - rest) : 0;
  if (n >= 2 && host[0] == '[' && host[n - 1] == ']') host++, n -= 2;
  char *end = NULL;
  long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : -1;
  if (n == 0 || n >= sizeof out->host || port < 1 || port > 65535 || *end)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "bad address '%.300s': want tcp://host:port", uri);
  memcpy(out->host, host, n);
  out->port = (int)port;
  bool v6 = strchr(out->host, ':') != NULL;
  snprintf(out->text, sizeof out->text, v6 ? "[%s]:%d" : "%s:%d", out->host, out->port);
  return BR_OK;
}

br_status br_address_parse(const char *uri, br_address *out, br_error *err) {
  memset(out, 0, sizeof *out);
  if (strncmp(uri, "tcp://", 6) == 0) return parse_tcp(uri, uri + 6, out, err);
  if (strncmp(uri, "unix:", 5) != 0)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "bad address '%.300s': want tcp://host:port or unix:/path", uri);
  size_t n = strlen(uri + 5);
  if (n == 0 || n >= sizeof out->path)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "bad address '%.300s': a Unix socket's path has 1 to %zu bytes", uri,
                   sizeof out->path - 1);
  out->is_unix = true;
  memcpy(out->path, uri + 5, n + 1);
  snprintf(out->text, sizeof out->text, "unix:%s", out->path);
  return BR_OK;
}

static int listen_at(const struct addrinfo *ai) {
  int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0) return fd;
  int e = errno;
  close(fd);
  errno = e;
  return -1;
}

br_status br_listen_tcp(const char *host, int port, int *fd, int *bound_port, br_error *err) {
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *list = NULL;
  int r = getaddrinfo(host, service, &hints, &list);
  if (r) return br_fail(err, BR_INVALID, BR_BLAME_USER, "cannot listen on %s:%d: %s", host, port, gai_strerror(r));
  *fd = -1;
  int e = EADDRNOTAVAIL;
  for (const struct addrinfo *ai = list; ai && *fd < 0; ai = ai->ai_next) {
    *fd = listen_at(ai);
    if (*fd < 0) e = errno;
  }
  freeaddrinfo(list);
  if (*fd < 0 && e == EADDRINUSE) {
    br_fail_errno(err, e, BR_BLAME_USER, "cannot listen on %s:%d (choose another port, or 0 for any)", host, port);
    return err->code;
  }
  if (*fd < 0) return br_fail_errno(err, e, BR_BLAME_USER, "cannot listen on %s:%d", host, port);
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  getsockname(*fd, (struct sockaddr *)&a, &n);
  *bound_port =
      ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
  return BR_OK;
}

/* True when `path` is a socket that nobody listens on: left by a process that was killed. */
static bool stale_socket(const struct sockaddr_un *a) {
  struct stat st;
  if (lstat(a->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  bool refused = connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
  close(fd);
  return refused;
}

br_status br_listen_unix(const char *path, int *out, br_error *err) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof a.sun_path)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "cannot listen on unix:%.300s: the path is longer than %zu bytes",
                   path, sizeof a.sun_path - 1);
  strcpy(a.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make a socket for unix:%s", path);
  int r = bind(fd, (const struct sockaddr *)&a, sizeof a);
  if (r != 0 && errno == EADDRINUSE && stale_socket(&a)) {
    unlink(path);
    r = bind(fd, (const struct sockaddr *)&a, sizeof a);
  }
  if (r != 0 || listen(fd, LISTEN_BACKLOG) != 0) {
    int e = errno;
    close(fd);
    return br_fail_errno(err, e, BR_BLAME_USER, "cannot listen on unix:%s", path);
  }
  *out = fd;
  return BR_OK;
}

void br_socket_options(int fd, bool is_unix) {
  if (is_unix) return;
  int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, probes = KEEPALIVE_PROBES,
      unacked = UNACKED_MS;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked, sizeof unacked);
}
