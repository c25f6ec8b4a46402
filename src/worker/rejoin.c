/* SPDX-License-Identifier: Apache-2.0
 * The lives of a worker process. A worker that lost its coordinator, or that was declared lost (it was stopped, or cut off), has
 * nothing of worth left: its tasks are stopped and its files removed, as at its end. One that somebody started by hand then looks
 * for the coordinator for --rejoin-wait, holding no file, no port and no executor meanwhile, and joins as a new member. One with a
 * parent ends: the parent starts another.
 * Bounds: REST_MS between lives, so that a membership that ends at once each time is no busy loop; CONNECT_MS for one look. Thread: one. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_MS 500
#define CONNECT_MS 1000

static bool connects(const struct addrinfo *a) {
  int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
  socklen_t n = sizeof error;
  if (fd < 0) return false;
  bool yes = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
  if (!yes && errno == EINPROGRESS) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    yes = poll(&p, 1, CONNECT_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0;
  }
  close(fd);
  return yes;
}

/* Somebody listens there. */
static bool is_there(const char *join) {
  char *host = NULL, *port = NULL;
  br_error err = {0};
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  bool yes = false;
  if (br_node_split_join(join, &host, &port, &err) == BR_OK && getaddrinfo(host, port, &hints, &list) == 0)
    for (struct addrinfo *a = list; a && !yes; a = a->ai_next) yes = connects(a);
  if (list) freeaddrinfo(list);
  free(host);
  free(port);
  return yes;
}

int br_rejoin_run(const br_node_options *o) {
  br_error err = {0};
  if (br_signals_keep(&err) != BR_OK) {
    br_log(BR_LOG_ERROR, "%s", err.message);
    return BR_NODE_EXIT_FAILED;
  }
  int code = br_node_main(o, 0);
  while (code == BR_NODE_EXIT_COORDINATOR_LOST && o->parent_fd < 0 && o->rejoin_wait_ms) {
    uint64_t until = br_now_ms() + o->rejoin_wait_ms;
    br_log_set_name("worker", 0);
    br_log(BR_LOG_WARN, "it joins again when there is a coordinator at %s, within %llu s", o->join,
           (unsigned long long)o->rejoin_wait_ms / 1000);
    do {
      if (br_signals_wait(REST_MS)) return BR_NODE_EXIT_OK;
    } while (!is_there(o->join) && br_now_ms() < until);
    if (br_now_ms() >= until) {
      br_log(BR_LOG_ERROR, "no coordinator at %s within %llu s: this worker ends", o->join,
             (unsigned long long)o->rejoin_wait_ms / 1000);
      return code;
    }
    code = br_node_main(o, until);
  }
  return code;
}
