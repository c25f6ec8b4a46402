/* SPDX-License-Identifier: Apache-2.0
 *
 * A socket that listens, on the loop: hands out accepted sockets.
 *
 * Order of calls: new, any number of accepted, free (allowed inside accepted). Threads: the loop's. Bounds: at most
 * ACCEPTS_A_TURN sockets a turn of the loop; the owner bounds how many it keeps.
 */
#include "net/socket.h"

#include "base/mem.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 64

struct br_listener {
  uv_poll_t poll; /* first: a uv_handle_t * is a br_listener * */
  br_loop *loop;
  int fd;
  bool closing;
  br_timer *pause;
  void (*accepted)(void *arg, int fd, const char *peer);
  void *arg;
};

static void on_ready(uv_poll_t *h, int status, int events);

static void resume(void *arg) {
  br_listener *s = arg;
  br_timer_stop(s->pause);
  s->pause = NULL;
  uv_poll_start(&s->poll, UV_READABLE, on_ready);
}

static void pause_accepting(br_listener *s, int errno_value) {
  br_log(BR_LOG_WARN, "cannot accept a connection: %s; trying again in %d ms", strerror(errno_value),
         BR_ACCEPT_PAUSE_MS);
  uv_poll_stop(&s->poll);
  s->pause = br_timer_start(s->loop, BR_ACCEPT_PAUSE_MS, 0, resume, s);
}

static void peer_name(const struct sockaddr_storage *a, char out[80]) {
  char host[INET6_ADDRSTRLEN] = "";
  if (a->ss_family == AF_INET) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)a;
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
    snprintf(out, 80, "%s:%d", host, ntohs(in->sin_port));
  } else if (a->ss_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)a;
    inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
    snprintf(out, 80, "[%s]:%d", host, ntohs(in->sin6_port));
  } else {
    snprintf(out, 80, "unix");
  }
}

static void on_ready(uv_poll_t *h, int status, int events) {
  br_listener *s = (br_listener *)h;
  (void)status, (void)events;
  for (int i = 0; i < ACCEPTS_A_TURN && !s->closing; i++) {
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    int fd = accept4(s->fd, (struct sockaddr *)&a, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) {
      pause_accepting(s, errno);
      return;
    }
    br_socket_options(fd, a.ss_family == AF_UNIX);
    char peer[80];
    peer_name(&a, peer);
    s->accepted(s->arg, fd, peer);
  }
}

static void freed(uv_handle_t *h) { free(h); }

br_status br_listener_new(br_loop *l, int fd, void (*accepted)(void *arg, int fd, const char *peer), void *arg,
                          br_listener **out, br_error *err) {
  br_listener *s = br_calloc(1, sizeof *s);
  s->loop = l, s->fd = fd, s->accepted = accepted, s->arg = arg;
  int r = uv_poll_init(br_loop_uv(l), &s->poll, fd);
  if (r) {
    close(fd);
    free(s);
    return br_fail_errno(err, -r, BR_BLAME_WORKER, "cannot watch a socket that listens");
  }
  r = uv_poll_start(&s->poll, UV_READABLE, on_ready);
  BR_ASSERT(r == 0);
  *out = s;
  return BR_OK;
}

void br_listener_free(br_listener *s) {
  if (!s) return;
  s->closing = true;
  br_timer_stop(s->pause);
  uv_poll_stop(&s->poll);
  close(s->fd);
  uv_close((uv_handle_t *)&s->poll, freed);
}
