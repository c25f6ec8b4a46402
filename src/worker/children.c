/* SPDX-License-Identifier: Apache-2.0
 * The executors: started beside the worker's own binary, watched, replaced.
 * A child's life: spawn (socket pair at its descriptor 3) → setup → ready → tasks → its channel closes and it's reaped, in either
 * order: only then is it lost, since the last messages of a dead process still count. A new one starts at once; the third
 * death within BR_NODE_CRASH_WINDOW_MS makes the next start wait BR_NODE_CRASH_BACKOFF_MS. Loop thread. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_FD 3 /* BR_EXECUTOR_FD of the executor */

extern char **environ;

typedef struct sent_output {
  br_attempt_id id;
} sent_output;

static void clear_sent(br_child *c, uint64_t query, const uint32_t *stage_or_all, bool all) {
  const char *key;
  void *v;
  if (!c->sent) return;
  for (size_t it = 0; br_smap_next(c->sent, &it, &key, &v);) {
    sent_output *s = v;
    if (!all && (s->id.query != query || (stage_or_all && s->id.stage != *stage_or_all))) continue;
    char copy[64];
    br_attempt_format(&s->id, copy);
    br_smap_remove(c->sent, copy);
    free(s);
  }
}

/* ---- messages */

void br_child_send(br_child *c, const Brant__Pb__ExecutorCommand *m, const int *fds, int n_fds) {
  if (!c->channel || c->closed) return;
  br_buf b = {0};
  br_pb_pack(&m->base, &b);
  br_channel_send(c->channel, b.data, b.len, fds, n_fds);
  br_buf_free(&b);
}

void br_children_broadcast(br_node *n, const Brant__Pb__ExecutorCommand *m) {
  for (uint32_t i = 0; i < n->o->executors; i++)
    if (n->children[i].ready) br_child_send(&n->children[i], m, NULL, 0);
}

static uint64_t share(uint64_t bytes, uint32_t percent, uint32_t parts) { return bytes / 100 * percent / parts; }

static void send_setup(br_child *c) {
  const br_node *n = c->node;
  uint32_t executors = n->o->executors, tasks = executors * n->o->slots;
  Brant__Pb__ExecutorSetup s = BRANT__PB__EXECUTOR_SETUP__INIT;
  s.worker = n->worker, s.incarnation = n->incarnation;
  s.threads = n->o->threads > executors ? n->o->threads / executors : 1;
  s.duckdb_memory_bytes = share(n->o->memory_bytes, BR_NODE_DUCKDB_PERCENT, executors);
  s.read_buffer_bytes = share(n->o->memory_bytes, BR_NODE_READ_PERCENT, tasks);
  s.scatter_buffer_bytes = share(n->o->memory_bytes, BR_NODE_SCATTER_PERCENT, tasks);
  s.temp_quota_bytes = share(n->o->disk_bytes, 100 - BR_NODE_DISK_STORE_PERCENT, executors);
  s.temp_dir = c->dir;
  s.shuffle_dir = n->home.shuffle_dir;
  s.extension_dir = n->o->extension_dir ? n->o->extension_dir : (char *)"";
  s.secret = n->o->secret;
  s.slots = n->o->slots;
  s.silent_ms = n->link.silent_ms; /* a peer that is silent for so long will be lost: its readers give up as well */
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_SETUP;
  m.setup = &s;
  br_child_send(c, &m, NULL, 0);
}

/* ---- descriptors of map outputs */

typedef struct lending {
  br_child *child;
  Brant__Pb__LocalOutput *local[BR_CHANNEL_MAX_FDS];
  int fds[BR_CHANNEL_MAX_FDS];
  int n;
} lending;

static void flush_lending(lending *l) {
  if (!l->n) return;
  Brant__Pb__LocalOutputs o = BRANT__PB__LOCAL_OUTPUTS__INIT;
  o.n_local = (size_t)l->n;
  o.local = l->local;
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_OUTPUTS;
  m.outputs = &o;
  br_child_send(l->child, &m, l->fds, l->n);
  for (int i = 0; i < l->n; i++) close(l->fds[i]);
  l->n = 0;
}

static br_status output_fd(br_child *c, Brant__Pb__LocalOutput *l, const br_attempt_id *id, int *fd, br_error *err) {
  br_store *store = c->node->store;
  bool in_memory = false;
  *fd = br_store_fd(store, id, &in_memory, &l->file_bytes);
  if (*fd >= 0) {
    l->in_memory = in_memory;
    l->fd_attached = 1;
    return BR_OK;
  }
  br_mapfile *there = br_store_get(store, id->query, id->stage, id->task, id->attempt);
  if (there) {
    br_mapfile_unref(there);
    return br_fail(err, BR_IO, BR_BLAME_WORKER, "no file descriptor is free to pass a map output (see ulimit -n)");
  }
  char text[64];
  br_attempt_format(id, text);
  br_fail(err, BR_FETCH, BR_BLAME_FETCH, "map output %s is not in this worker's store any more", text);
  err->has_lost = true;
  err->lost = (br_map_output_id){.made_by = *id, .worker = c->node->worker, .incarnation = c->node->incarnation};
  err->worker = c->node->worker;
  return err->code;
}

br_status br_child_lend(br_child *c, const Brant__Pb__ResolvedInput *r, br_error *err) {
  lending l = {.child = c};
  br_status status = BR_OK;
  for (size_t i = 0; i < r->n_local; i++) {
    br_attempt_id id = br_attempt_from_pb(r->local[i]->id);
    char key[64];
    br_attempt_format(&id, key);
    if (br_smap_get(c->sent, key)) continue;
    BR_TRY_GOTO(output_fd(c, r->local[i], &id, &l.fds[l.n], err));
    l.local[l.n++] = r->local[i];
    sent_output *s = br_malloc(sizeof *s);
    s->id = id;
    br_smap_put(c->sent, key, s);
    if (l.n == BR_CHANNEL_MAX_FDS) flush_lending(&l);
  }
done:
  flush_lending(&l); /* also after a failure: what was marked as sent must be */
  for (size_t i = 0; i < r->n_local; i++) r->local[i]->fd_attached = 0;
  return status;
}

void br_children_forget(br_node *n, uint64_t query, const uint32_t *stage_or_all) {
  for (uint32_t i = 0; i < n->o->executors; i++) clear_sent(&n->children[i], query, stage_or_all, false);
}

void br_children_forget_output(br_node *n, const br_attempt_id *id) {
  Brant__Pb__AttemptId pid;
  char key[64];
  br_attempt_to_pb(id, &pid);
  br_attempt_format(id, key);
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_DROP_OUTPUT;
  m.drop_output = &pid;
  for (uint32_t i = 0; i < n->o->executors; i++) {
    br_child *c = &n->children[i];
    sent_output *s = c->sent ? br_smap_remove(c->sent, key) : NULL;
    if (s) br_child_send(c, &m, NULL, 0);
    free(s);
  }
}

/* ---- the end of a child */

void br_child_kill(br_child *c) {
  if (c->pid <= 0 || c->reaped) return;
  c->killed = true;
  kill(c->pid, SIGKILL);
}

static void describe_end(const br_child *c, br_error *why) {
  if (WIFSIGNALED(c->status)) {
    int sig = WTERMSIG(c->status);
    const char *name = sigabbrev_np(sig);
    br_fail(why, BR_LOST, BR_BLAME_EXECUTOR, "executor %d was ended by signal %d (SIG%s)%s", c->pid, sig,
            name ? name : "?",
            c->killed        ? ": the worker replaced it"
            : sig == SIGKILL ? ": out of memory, or somebody killed it"
                             : "");
  } else {
    br_fail(why, BR_LOST, BR_BLAME_EXECUTOR, "executor %d ended with exit code %d", c->pid, WEXITSTATUS(c->status));
  }
  why->retryable = true;
}

/* Its channel is closed and it's reaped. */
static void child_lost(br_child *c) {
  br_node *n = c->node;
  br_attempt_id *ids = NULL;
  br_channel_free(c->channel);
  c->channel = NULL;
  describe_end(c, &c->why);
  br_udf_owner_gone(n->udf, c);
  size_t n_ids = br_tasks_lost(n, c, &ids);
  if (!n->stopping) {
    br_log(c->given_up ? BR_LOG_INFO : BR_LOG_WARN, "%s, with %zu tasks", c->why.message, n_ids);
    br_link_executor_lost(n, c->pid, c->status, ids, n_ids, &c->why);
  }
  free(ids);
  br_remove_tree(c->dir);
  free(c->dir);
  c->dir = NULL;
  clear_sent(c, 0, NULL, true);
  c->pid = 0;
  c->ready = false;
  c->running = 0;
  uint64_t now = br_now_ms();
  if (!c->given_up) { /* else it did nothing wrong */
    memmove(&c->deaths_ms[1], &c->deaths_ms[0], sizeof c->deaths_ms - sizeof c->deaths_ms[0]);
    c->deaths_ms[0] = now;
  }
  uint64_t oldest = c->deaths_ms[BR_NODE_CRASH_COUNT - 1];
  c->since_ms = oldest && now - oldest < BR_NODE_CRASH_WINDOW_MS ? now + BR_NODE_CRASH_BACKOFF_MS : now;
  if (n->stopping)
    br_node_check_stopped(n);
  else
    br_children_tick(n);
}

static void on_closed(void *arg, const br_error *why) {
  br_child *c = arg;
  c->closed = true;
  c->ready = false;
  c->closed_ms = br_now_ms();
  if (why->code == BR_CORRUPT) {
    br_log(BR_LOG_ERROR, "executor %d: %s", c->pid, why->message);
    br_child_kill(c);
  }
  br_children_reap(c->node); /* it may be dead already: SIGCHLD and this come in any order */
}

void br_children_reap(br_node *n) {
  for (uint32_t i = 0; i < n->o->executors; i++) {
    br_child *c = &n->children[i];
    if (c->pid > 0 && !c->reaped && waitpid(c->pid, &c->status, WNOHANG) == c->pid) c->reaped = true;
    if (c->pid > 0 && c->reaped && c->closed) child_lost(c);
  }
}

/* ---- the start of a child */

static void on_ready(br_child *c, const Brant__Pb__ExecutorReady *r) {
  if (strcmp(r->version, BRANT_VERSION) != 0 || r->pid != c->pid) {
    br_log(BR_LOG_ERROR, "brant-executor is version %.40s, brant-worker %s: the installation is mixed", r->version,
           BRANT_VERSION);
    br_node_stop(c->node, BR_NODE_EXIT_FAILED, "the executor is of another version");
    return;
  }
  c->ready = true;
  br_tasks_dispatch(c->node);
}

static void on_message(void *arg, const void *data, size_t bytes, int *fds, int n_fds) {
  br_child *c = arg;
  br_error err = {0};
  c->heard_ms = br_now_ms();
  ProtobufCMessage *m = br_pb_unpack(&brant__pb__executor_event__descriptor, data, bytes, &err);
  Brant__Pb__ExecutorEvent *e = (Brant__Pb__ExecutorEvent *)m;
  if (!m || (!c->ready && e->what_case != BRANT__PB__EXECUTOR_EVENT__WHAT_READY)) {
    br_log(BR_LOG_ERROR, "executor %d broke the protocol: %s", c->pid,
           m ? "a message before it was ready" : err.message);
    for (int i = 0; i < n_fds; i++) close(fds[i]);
    br_child_kill(c);
  } else if (!c->ready) {
    for (int i = 0; i < n_fds; i++) close(fds[i]);
    on_ready(c, e->ready);
  } else {
    br_tasks_event(c, e, fds, n_fds);
  }
  if (m) protobuf_c_message_free_unpacked(m, NULL);
}

static int spawn(const char *path, int fd, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attr;
  sigset_t none, defaults;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attr);
  sigemptyset(&none);
  sigfillset(&defaults);
  sigdelset(&defaults, SIGKILL);
  sigdelset(&defaults, SIGSTOP);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fd, CHILD_FD); /* also when it is that already: clears close-on-exec */
  posix_spawnattr_setsigmask(&attr, &none);
  posix_spawnattr_setsigdefault(&attr, &defaults);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  char *argv[] = {(char *)"brant-executor", NULL};
  int r = posix_spawn(pid, path, &actions, &attr, argv, environ);
  posix_spawnattr_destroy(&attr);
  posix_spawn_file_actions_destroy(&actions);
  return r;
}

static br_status start(br_child *c, br_error *err) {
  br_node *n = c->node;
  int pair[2] = {-1, -1}, r;
  pid_t pid;
  br_status status;
  c->ready = c->closed = c->reaped = c->killed = c->given_up = false;
  c->since_ms = br_now_ms();
  c->dir = br_asprintf("%s/e%u-%u", n->home.dir, c->number, ++c->starts);
  BR_TRY_GOTO(br_mkdir_p(c->dir, err));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    status = br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make a socket for an executor");
    goto done;
  }
  BR_TRY_GOTO(br_channel_new(n->loop, pair[0], (br_channel_handler){on_message, on_closed, c}, &c->channel, err));
  r = spawn(n->executor_path, pair[1], &pid);
  if (r) {
    status = br_fail_errno(err, r, BR_BLAME_WORKER, "cannot start %s", n->executor_path);
    goto done;
  }
  c->pid = pid;
  if (n->worker) send_setup(c);
done:
  if (pair[1] >= 0) close(pair[1]);
  if (status) {
    br_channel_free(c->channel);
    c->channel = NULL;
    br_remove_tree(c->dir);
    free(c->dir);
    c->dir = NULL;
  }
  return status;
}

br_status br_children_start(br_node *n, br_error *err) {
  for (uint32_t i = 0; i < n->o->executors; i++) {
    br_child *c = &n->children[i];
    c->node = n;
    c->number = i;
    c->sent = br_smap_new();
  }
  for (uint32_t i = 0; i < n->o->executors; i++) BR_TRY(start(&n->children[i], err));
  return BR_OK;
}

void br_children_setup(br_node *n) {
  for (uint32_t i = 0; i < n->o->executors; i++)
    if (n->children[i].channel && !n->children[i].closed) send_setup(&n->children[i]);
}

void br_children_tick(br_node *n) {
  uint64_t now = br_now_ms();
  bool slept = n->ticked_ms && now - n->ticked_ms > BR_NODE_EXECUTOR_SILENT_MS / 2; /* we were stopped, not they */
  n->ticked_ms = now;
  for (uint32_t i = 0; i < n->o->executors && slept; i++) n->children[i].heard_ms = now;
  for (uint32_t i = 0; i < n->o->executors && !n->stopping; i++) {
    br_child *c = &n->children[i];
    br_error err = {0};
    if (c->pid == 0) {
      if (now >= c->since_ms && start(c, &err) != BR_OK) {
        br_log(BR_LOG_ERROR, "%s", err.message);
        c->why = err;
        c->since_ms = now + BR_NODE_CRASH_BACKOFF_MS;
      }
    } else if (c->closed && !c->reaped && now - c->closed_ms > BR_NODE_REAP_WAIT_MS) {
      br_child_kill(c);
    } else if (c->ready && !c->killed && now - c->heard_ms > BR_NODE_EXECUTOR_SILENT_MS) {
      br_log(BR_LOG_WARN, "executor %d has said nothing for %u ms: it is replaced", c->pid, BR_NODE_EXECUTOR_SILENT_MS);
      br_child_kill(c);
    } else if (!c->closed && !c->ready && n->worker && now - c->since_ms > BR_NODE_EXECUTOR_START_MS) {
      br_log(BR_LOG_ERROR, "executor %d did not get ready within %u ms", c->pid, BR_NODE_EXECUTOR_START_MS);
      br_child_kill(c);
    }
  }
  br_children_reap(n);
}

/* ---- stopping */

void br_children_stop(br_node *n) {
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_SHUTDOWN;
  m.shutdown = 1;
  for (uint32_t i = 0; i < n->o->executors; i++) {
    br_child *c = &n->children[i];
    if (c->pid <= 0) continue;
    if (c->ready && !c->running)
      br_child_send(c, &m, NULL, 0);
    else
      br_child_kill(c);
  }
}

bool br_children_gone(const br_node *n) {
  for (uint32_t i = 0; i < n->o->executors; i++)
    if (n->children[i].pid > 0) return false;
  return true;
}

void br_children_free(br_node *n) {
  for (uint32_t i = 0; i < n->o->executors; i++) {
    br_child *c = &n->children[i];
    if (c->pid > 0 && !c->reaped) {
      kill(c->pid, SIGKILL);
      while (waitpid(c->pid, &c->status, 0) < 0 && errno == EINTR) continue;
    }
    br_channel_free(c->channel);
    clear_sent(c, 0, NULL, true);
    if (c->sent) br_smap_free(c->sent);
    free(c->dir);
  }
}
