/* SPDX-License-Identifier: Apache-2.0
 * A worker's life: directory, store, server, executors, join; then the loop; then everything backwards. A process may live several
 * (rejoin.c); nothing of one is in the next.
 * It ends by br_node_stop: asked to (shutdown, signal, drained), coordinator or parent gone. Idle executors get BR_NODE_STOP_GRACE_MS, then
 * SIGKILL; all of it takes at most BR_NODE_STOP_MS. Whatever way it ends but by SIGKILL, its directory is removed; after a
 * SIGKILL the executors see their channel close (and get SIGKILL from the kernel), and the next worker on the node cleans up. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- outputs by name */

void br_node_output_key(uint64_t query, uint32_t stage, uint32_t task, char out[64]) {
  snprintf(out, 64, "q%" PRIx64 ".s%" PRIu32 ".t%" PRIu32, query, stage, task);
}

void br_node_output_put(br_node *n, const br_attempt_id *id) {
  char key[64];
  br_node_output_key(id->query, id->stage, id->task, key);
  br_attempt_id *there = br_smap_get(n->outputs, key);
  if (there) {
    if (id->attempt > there->attempt) *there = *id; /* as the store does */
    return;
  }
  br_attempt_id *copy = br_malloc(sizeof *copy);
  *copy = *id;
  br_smap_put(n->outputs, key, copy);
}

static void outputs_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all, bool all) {
  const char *key;
  void *v;
  for (size_t it = 0; br_smap_next(n->outputs, &it, &key, &v);) {
    br_attempt_id *id = v;
    if (!all && (id->query != query || (stage_or_all && id->stage != *stage_or_all))) continue;
    char copy[64];
    br_node_output_key(id->query, id->stage, id->task, copy);
    br_smap_remove(n->outputs, copy);
    free(id);
  }
}

void br_node_outputs_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all) {
  outputs_drop(n, query, stage_or_all, false);
}

/* ---- stopping */

void br_node_check_stopped(br_node *n) {
  if (n->stopping && br_children_gone(n) && (!n->udf || br_udf_pools_gone(n->udf)) && !n->sampling)
    br_loop_stop(n->loop);
}

void br_node_stop(br_node *n, int exit_code, const char *why) {
  if (n->stopping) return;
  n->stopping = true;
  n->exit_code = exit_code;
  n->stop_ms = br_now_ms();
  /* A parent that ends takes its coordinator along: nothing to warn of. */
  bool lost = exit_code == BR_NODE_EXIT_COORDINATOR_LOST;
  br_log(lost && n->o->parent_fd < 0 ? BR_LOG_WARN : BR_LOG_INFO, "this worker %s: %s",
         lost ? "stops its tasks and removes its files" : "ends", why);
  br_children_stop(n);
  if (n->udf) br_udf_pools_stop(n->udf);
  br_node_check_stopped(n);
}

static void stop_tick(br_node *n) {
  uint64_t passed = br_now_ms() - n->stop_ms;
  if (passed > BR_NODE_STOP_GRACE_MS)
    for (uint32_t i = 0; i < n->o->executors; i++) br_child_kill(&n->children[i]);
  br_children_reap(n);
  if (passed > BR_NODE_STOP_MS) br_loop_stop(n->loop);
  br_node_check_stopped(n);
}

void br_node_leave(br_node *n) {
  if (n->leaving || n->stopping) return;
  n->leaving = true;
  n->stop_ms = br_now_ms();
  br_link_leave(n);
}

static void on_tick(void *arg) {
  br_node *n = arg;
  if (n->stopping) {
    stop_tick(n);
    return;
  }
  if (n->leaving && br_now_ms() - n->stop_ms > BR_NODE_LEAVE_MS) {
    br_node_stop(n, BR_NODE_EXIT_OK, "asked to end");
    return;
  }
  if (n->draining && !n->leaving && br_now_ms() >= n->drain_until_ms) {
    br_log(BR_LOG_WARN, "it was not released within --drain %llu s: it leaves with what others may still need",
           (unsigned long long)n->o->drain_ms / 1000);
    br_node_leave(n);
  }
  br_link_tick(n);
  if (n->stopping) return;
  br_children_tick(n);
  br_tasks_tick(n);
}

static void on_parent(uv_poll_t *p, int status, int events) {
  br_node *n = p->data;
  char ignored[64];
  (void)events;
  ssize_t r = status < 0 ? 0 : read(n->o->parent_fd, ignored, sizeof ignored);
  if (r > 0 || (r < 0 && (errno == EAGAIN || errno == EINTR))) return;
  uv_poll_stop(p);
  br_node_stop(n, BR_NODE_EXIT_OK, "its parent is gone");
}

static br_status watch_parent(br_node *n, br_error *err) {
  int fd = n->o->parent_fd;
  if (fd < 0) return BR_OK;
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return br_fail_errno(err, errno, BR_BLAME_USER, "--parent-fd %d is not an open file descriptor", fd);
  n->parent_pid = (int)getppid();
  prctl(PR_SET_PDEATHSIG, SIGUSR2);
  int r = uv_poll_init(br_loop_uv(n->loop), &n->parent_poll, fd);
  if (r == 0) {
    n->parent_polled = true;
    n->parent_poll.data = n;
    r = uv_poll_start(&n->parent_poll, UV_READABLE | UV_DISCONNECT, on_parent);
  }
  if (r < 0) return br_fail(err, BR_INVALID, BR_BLAME_USER, "--parent-fd %d: not a pipe: %s", fd, uv_strerror(r));
  return BR_OK;
}

static void close_handles(br_node *n) {
  br_signals_unwatch(n);
  if (n->parent_polled) uv_close((uv_handle_t *)&n->parent_poll, NULL);
  uv_run(br_loop_uv(n->loop), UV_RUN_NOWAIT); /* the handles live in *n: let libuv forget them */
}

/* ---- names */

static br_status find_executor(br_node *n, br_error *err) {
  char own[PATH_MAX];
  ssize_t r = readlink("/proc/self/exe", own, sizeof own - 1);
  if (r <= 0) return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot find this program's own file");
  own[r] = 0;
  char *slash = strrchr(own, '/');
  if (slash) *slash = 0;
  n->executor_path = br_asprintf("%s/brant-executor", own);
  if (access(n->executor_path, X_OK) != 0)
    return br_fail_errno(err, errno, BR_BLAME_WORKER, "brant-executor must be beside brant-worker: %s",
                         n->executor_path);
  return BR_OK;
}

static br_status open_store(br_node *n, br_error *err) {
  br_store_options o = {.dir = n->home.shuffle_dir,
                        .memory_bytes = n->o->memory_bytes / 100 * BR_NODE_STORE_PERCENT,
                        .disk_bytes = n->o->disk_bytes / 100 * BR_NODE_DISK_STORE_PERCENT};
  return br_store_new(&o, &n->store, err);
}

static void name_socket(br_node *n) {
  n->unix_path = br_asprintf("%s/s", n->home.dir);
  if (strlen(n->unix_path) < sizeof((struct sockaddr_un *)0)->sun_path) return;
  br_log(BR_LOG_INFO, "the path of --temp-dir is too long for a Unix socket: peers on this node use TCP");
  free(n->unix_path);
  n->unix_path = NULL;
}

static br_status open_node(br_node *n, br_error *err) {
  BR_TRY(find_executor(n, err));
  BR_TRY(br_loop_new(&n->loop, err));
  BR_TRY(br_signals_watch(n, err)); /* before there is anything to clean up */
  br_home_remove_dead(n->o->temp_dir);
  BR_TRY(br_home_create(n->o->temp_dir, &n->home, err));
  name_socket(n);
  BR_TRY(open_store(n, err));
  BR_TRY(watch_parent(n, err));
  BR_TRY(br_serve_open(n, err));
  br_functions_open(n);
  BR_TRY(br_children_start(n, err));
  return br_link_open(n, err);
}

int br_node_main(const br_node_options *o, uint64_t rejoin_until_ms) {
  br_node *n = br_calloc(1, sizeof *n);
  br_error err = {0};
  n->o = o;
  n->rejoins = rejoin_until_ms != 0;
  n->join_until_ms = n->rejoins ? rejoin_until_ms : br_now_ms() + o->join_wait_ms;
  n->home.lock_fd = -1;
  n->link.last = &n->link.first;
  n->tables = br_tables_new();
  n->outputs = br_smap_new();
  n->host_id = o->host_id ? br_strdup(o->host_id) : br_host_id();
  if (open_node(n, &err) == BR_OK) {
    n->tick = br_timer_start(n->loop, BR_NODE_TICK_MS, BR_NODE_TICK_MS, on_tick, n);
    br_loop_run(n->loop);
  } else {
    br_log(BR_LOG_ERROR, "%s", err.message);
    n->exit_code = BR_NODE_EXIT_FAILED;
  }
  n->stopping = true;
  br_children_free(n);
  br_functions_free(n);
  br_link_close(n);
  if (n->server) br_flight_server_free(n->server);
  if (n->tick) br_timer_stop(n->tick);
  if (n->loop) close_handles(n);
  br_tasks_free(n);
  if (n->loop) br_loop_free(n->loop);
  br_store_free(n->store);
  br_tables_free(n->tables);
  outputs_drop(n, 0, NULL, true);
  br_smap_free(n->outputs);
  br_home_remove(&n->home);
  free(n->uri);
  free(n->unix_path);
  free(n->executor_path);
  free(n->host_id);
  int code = n->exit_code;
  free(n);
  return code;
}
