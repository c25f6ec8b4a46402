/* SPDX-License-Identifier: Apache-2.0
 *
 * Connecting a socket without blocking the loop.
 *
 * Order of calls: start, then done or cancel. Threads: the loop's; names are resolved on a pool thread, in an object of
 * its own that outlives a cancelled br_connect. Bounds: bound_ms over resolving and all addresses of the name.
 */
#include "net/socket.h"

#include "base/mem.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct lookup {
  uv_getaddrinfo_t req; /* first */
  br_connect *owner;    /* NULL: cancelled */
} lookup;

struct br_connect {
  br_loop *loop;
  br_address address;
  uint32_t bound_ms;
  void (*done)(void *arg, int fd, const br_error *err);
  void *arg;
  br_timer *bound, *soon;
  lookup *lookup;
  struct addrinfo *list, *at; /* from uv_getaddrinfo; at: the next to try */
  int fd, last_errno;
  uv_poll_t *poll;
};

static void freed(uv_handle_t *h) { free(h); }

static void drop_poll(br_connect *c) {
  if (!c->poll) return;
  uv_poll_stop(c->poll);
  uv_close((uv_handle_t *)c->poll, freed);
  c->poll = NULL;
}

static void drop_socket(br_connect *c) {
  drop_poll(c);
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
}

void br_connect_cancel(br_connect *c) {
  if (!c) return;
  drop_socket(c);
  br_timer_stop(c->bound);
  br_timer_stop(c->soon);
  if (c->lookup) {
    c->lookup->owner = NULL;
    (void)uv_cancel((uv_req_t *)&c->lookup->req); /* may be running: its callback finds no owner */
  }
  uv_freeaddrinfo(c->list);
  free(c);
}

static void finish(br_connect *c, int fd, const br_error *err) {
  void (*done)(void *arg, int fd, const br_error *err) = c->done;
  void *arg = c->arg;
  if (fd >= 0) c->fd = -1;
  br_connect_cancel(c);
  done(arg, fd, err);
}

static void fail(br_connect *c) {
  br_error err = {0};
  br_fail(&err, BR_NETWORK, BR_BLAME_FETCH, "cannot connect to %s: %s", c->address.text, strerror(c->last_errno));
  err.sys_errno = c->last_errno;
  err.retryable = true;
  finish(c, -1, &err);
}

static void succeed(br_connect *c) {
  br_error none = {0};
  drop_poll(c);
  br_socket_options(c->fd, c->address.is_unix);
  finish(c, c->fd, &none);
}

static void timed_out(void *arg) {
  br_connect *c = arg;
  br_error err = {0};
  br_fail(&err, BR_TIMEOUT, BR_BLAME_FETCH, "cannot connect to %s: no answer within %u ms", c->address.text,
          c->bound_ms);
  err.retryable = true;
  finish(c, -1, &err);
}

static void try_next(br_connect *c);

static void on_poll(uv_poll_t *h, int status, int events) {
  br_connect *c = h->data;
  (void)status, (void)events;
  int e = 0;
  socklen_t n = sizeof e;
  if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &n) != 0) e = errno;
  if (e == 0) {
    succeed(c);
    return;
  }
  c->last_errno = e;
  drop_socket(c);
  try_next(c);
}

/* 0 under way or connected, else errno. */
static int try_address(br_connect *c, int family, const struct sockaddr *a, socklen_t n, bool *connected) {
  *connected = false;
  c->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) return errno;
  if (connect(c->fd, a, n) == 0) {
    *connected = true;
    return 0;
  }
  if (errno != EINPROGRESS) return errno; /* Unix: EAGAIN is a full backlog */
  c->poll = br_calloc(1, sizeof *c->poll);
  c->poll->data = c;
  int r = uv_poll_init(br_loop_uv(c->loop), c->poll, c->fd);
  if (r) {
    free(c->poll);
    c->poll = NULL;
    return -r;
  }
  BR_ASSERT(uv_poll_start(c->poll, UV_WRITABLE, on_poll) == 0);
  return 0;
}

static void try_next(br_connect *c) {
  while (c->at) {
    const struct addrinfo *ai = c->at;
    c->at = ai->ai_next;
    bool connected;
    int e = try_address(c, ai->ai_family, ai->ai_addr, ai->ai_addrlen, &connected);
    if (connected) succeed(c);
    if (e == 0) return;
    c->last_errno = e;
    drop_socket(c);
  }
  fail(c);
}

static void resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list) {
  lookup *k = (lookup *)req;
  br_connect *c = k->owner;
  free(k);
  if (!c) {
    uv_freeaddrinfo(list);
    return;
  }
  c->lookup = NULL;
  if (status) {
    br_error err = {0};
    br_fail(&err, BR_NETWORK, BR_BLAME_FETCH, "cannot resolve the host of %s: %s", c->address.text,
            uv_strerror(status));
    err.retryable = status == UV_EAI_AGAIN;
    finish(c, -1, &err);
    return;
  }
  c->list = c->at = list;
  try_next(c);
}

static void start_unix(br_connect *c) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  memcpy(a.sun_path, c->address.path, sizeof a.sun_path);
  bool connected;
  c->last_errno = try_address(c, AF_UNIX, (const struct sockaddr *)&a, sizeof a, &connected);
  if (connected)
    succeed(c);
  else if (c->last_errno)
    fail(c);
}

static void start_tcp(br_connect *c) {
  char service[16];
  snprintf(service, sizeof service, "%d", c->address.port);
  struct addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  /* Numbers need no pool thread, which may be busy for long. */
  hints.ai_flags |= AI_NUMERICHOST;
  if (getaddrinfo(c->address.host, service, &hints, &c->list) == 0) {
    c->at = c->list;
    try_next(c);
    return;
  }
  hints.ai_flags &= ~AI_NUMERICHOST;
  c->list = NULL;
  c->lookup = br_calloc(1, sizeof *c->lookup);
  c->lookup->owner = c;
  int r = uv_getaddrinfo(br_loop_uv(c->loop), &c->lookup->req, resolved, c->address.host, service, &hints);
  if (r == 0) return;
  free(c->lookup);
  c->lookup = NULL;
  c->last_errno = -r;
  fail(c);
}

static void start(void *arg) {
  br_connect *c = arg;
  br_timer_stop(c->soon);
  c->soon = NULL;
  if (c->address.is_unix)
    start_unix(c);
  else
    start_tcp(c);
}

br_connect *br_connect_start(br_loop *l, const br_address *a, uint32_t bound_ms,
                             void (*done)(void *arg, int fd, const br_error *err), void *arg) {
  br_connect *c = br_calloc(1, sizeof *c);
  c->loop = l, c->address = *a, c->bound_ms = bound_ms, c->done = done, c->arg = arg, c->fd = -1;
  c->bound = br_timer_start(l, bound_ms, 0, timed_out, c);
  c->soon = br_timer_start(l, 0, 0, start, c); /* so that done never runs inside this call */
  return c;
}
