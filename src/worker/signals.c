/* SPDX-License-Identifier: Apache-2.0
 * Signals of the worker. SIGTERM: drain, a second one: leave. SIGINT: leave. SIGUSR2: the parent's death (PR_SET_PDEATHSIG). SIGCHLD: an
 * executor, or a process of a function, ended.
 * Two sets of handles. A life's own (br_signals_watch) act on its node. Those of br_signals_keep, on a loop of their own, last as long as
 * the process: libuv gives a signal back its default action with the last handle for it, but what comes during the cleaning up,
 * or between two lives, must not end the process before its files are gone. They remember that somebody asked for the end.
 * Thread: the one of br_rejoin_run. */
#include "worker/node.h"

#include "base/util.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static const int watched[] = {SIGTERM, SIGINT, SIGUSR2, SIGCHLD};
#define WATCHED (sizeof watched / sizeof *watched)
#define KEPT 3u /* the first of them: SIGCHLD ends nobody */

static uv_loop_t kept_loop; /* turned by br_signals_wait alone */
static uv_signal_t kept[KEPT];
static bool asked;

/* ---- of the process */

static void remember(uv_signal_t *h, int number) {
  (void)h;
  asked |= number != SIGUSR2;
}

br_status br_signals_keep(br_error *err) {
  int r = uv_loop_init(&kept_loop);
  for (size_t i = 0; i < KEPT && r == 0; i++) {
    r = uv_signal_init(&kept_loop, &kept[i]);
    if (r == 0) r = uv_signal_start(&kept[i], remember, watched[i]);
  }
  if (r < 0) return br_fail(err, BR_INTERNAL, BR_BLAME_WORKER, "cannot watch a signal: %s", uv_strerror(r));
  return BR_OK;
}

bool br_signals_wait(uint64_t ms) {
  uint64_t until = br_now_ms() + ms;
  for (;;) {
    uv_run(&kept_loop, UV_RUN_NOWAIT);
    uint64_t now = br_now_ms();
    if (asked || now >= until) return asked;
    struct pollfd p = {.fd = uv_backend_fd(&kept_loop), .events = POLLIN};
    poll(&p, 1, (int)(until - now));
  }
}

/* ---- of a life */

static void drain(br_node *n) {
  if (n->draining || !n->worker || !n->o->drain_ms) {
    br_node_leave(n);
    return;
  }
  n->draining = true;
  n->drain_until_ms = br_now_ms() + n->o->drain_ms;
  br_log(BR_LOG_INFO, "asked to end: %zu tasks are finished and outputs stay readable for at most %llu s", n->n_tasks,
         (unsigned long long)n->o->drain_ms / 1000);
  br_link_drain(n);
}

static void on_signal(uv_signal_t *h, int number) {
  br_node *n = h->data;
  switch (number) {
    case SIGCHLD:
      br_children_reap(n);
      if (n->udf) br_udf_reap(n->udf);
      break;
    case SIGTERM: drain(n); break;
    case SIGUSR2:
      if (getppid() != n->parent_pid) /* else only the thread that started us ended */
        br_node_stop(n, BR_NODE_EXIT_OK, "its parent is gone");
      break;
    default: br_node_leave(n);
  }
}

br_status br_signals_watch(br_node *n, br_error *err) {
  for (size_t i = 0; i < WATCHED; i++) {
    uv_signal_t *h = &n->signals[n->n_signals];
    int r = uv_signal_init(br_loop_uv(n->loop), h);
    if (r == 0) {
      n->n_signals++;
      h->data = n;
      r = uv_signal_start(h, on_signal, watched[i]);
    }
    if (r < 0) return br_fail(err, BR_INTERNAL, BR_BLAME_WORKER, "cannot watch a signal: %s", uv_strerror(r));
  }
  return BR_OK;
}

void br_signals_unwatch(br_node *n) {
  for (int i = 0; i < n->n_signals; i++) uv_close((uv_handle_t *)&n->signals[i], NULL);
}
