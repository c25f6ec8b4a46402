/* SPDX-License-Identifier: Apache-2.0
 * One process of a pool: started, given connections, watched, ended.
 * Its descriptors: 0 nothing, 1 and 2 one pipe that is always drained here (the last BR_UDF_OUTPUT_KEPT_BYTES are kept for messages), 3 the
 * channel (net/channel.h), which has: worker → process `S` + JSON (descriptors: payload, status page), then `C` + u64 token (descriptor: a
 * connection), and `F` as `S` without the page before the first connection to another function of its pool; process → worker `R` once it has loaded, `L` + a line for
 * the log. It is the leader of a process group, which ends with it. It dies with the worker: by
 * PR_SET_PDEATHSIG, which it asks for itself, and when its channel closes.
 * Watched each BR_UDF_WATCH_MS: private memory against the function's limit, the time of the batch under way. Loop thread. */
#include "udf/internal.h"

#include "base/buf.h"
#include "base/budget.h"
#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHANNEL_FD 3
#define STATUS_BYTES 4096u
#define OOM_SCORE "900" /* of 1000: before executors (600) and the worker; raising needs no right */
#define READS_A_WAKE 16
#define LOG_BYTES 2000u
#define TAIL_BYTES 1100u /* of its output in a message */

extern char **environ;

/* ---- what it prints */

static void keep(br_udf_process *p, const char *data, size_t n) {
  for (size_t done = 0; done < n;) {
    size_t at = p->output_bytes % BR_UDF_OUTPUT_KEPT_BYTES, room = BR_UDF_OUTPUT_KEPT_BYTES - at;
    size_t part = n - done < room ? n - done : room;
    memcpy(p->output + at, data + done, part);
    p->output_bytes += part;
    done += part;
  }
}

static void on_poll_closed(uv_handle_t *h) {
  br_udf_process *p = h->data;
  p->handle_open = false;
  if (p->pipe == -2) free(p); /* br_udf_process_free was here */
}

static void close_pipe(br_udf_process *p) {
  if (p->pipe < 0) return;
  uv_close((uv_handle_t *)&p->poll, on_poll_closed);
  close(p->pipe);
  p->pipe = -1;
  p->piped_out = true;
}

static void drain(br_udf_process *p) {
  static _Thread_local char buffer[65536];
  for (int i = 0; i < READS_A_WAKE && p->pipe >= 0; i++) {
    ssize_t n = read(p->pipe, buffer, sizeof buffer);
    if (n > 0)
      keep(p, buffer, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
      close_pipe(p);
    else if (errno == EAGAIN)
      return;
  }
}

static void on_pipe(uv_poll_t *poll, int status, int events) {
  br_udf_process *p = poll->data;
  (void)events;
  if (status < 0)
    close_pipe(p);
  else
    drain(p);
  if (p->reaped && p->piped_out) br_udf_process_gone(p);
}

/* The end of it as text: whole lines, without the list of modules that Python's fault handler prints. */
static void tail(const br_udf_process *p, br_buf *out) {
  uint64_t have = p->output_bytes < BR_UDF_OUTPUT_KEPT_BYTES ? p->output_bytes : BR_UDF_OUTPUT_KEPT_BYTES;
  br_buf all = {0};
  for (uint64_t i = p->output_bytes - have; i < p->output_bytes; i++) {
    char c = p->output[i % BR_UDF_OUTPUT_KEPT_BYTES];
    br_buf_char(&all, c == '\n' || c == '\t' || (unsigned char)c >= ' ' ? c : '?');
  }
  const char *text = br_buf_cstr(&all), *modules = strstr(text, "\nExtension modules: ");
  size_t n = modules ? (size_t)(modules - text) : all.len;
  while (n && (text[n - 1] == '\n' || text[n - 1] == ' ')) n--;
  size_t from = n > TAIL_BYTES ? n - TAIL_BYTES : 0;
  if (from) {
    const char *line = memchr(text + from, '\n', n - from);
    if (line && (size_t)(line - text) + 1 < n) from = (size_t)(line - text) + 1;
    while (from < n && ((unsigned char)text[from] & 0xc0) == 0x80) from++; /* not inside a character */
  }
  br_buf_add(out, text + from, n - from);
  br_buf_free(&all);
}

/* ---- start */

static bool is_set(const char *name) {
  const char *v = getenv(name);
  return v && v[0];
}

/* Threads of numeric libraries: the cores that the function asked for, else a fair part of the worker's. */
static unsigned threads_of(const br_udf_pool *pool) {
  double cpus = pool->f->cpus > 0 ? pool->f->cpus : (double)pool->all->o.cores / (pool->started ? pool->started : 1);
  return cpus < 1 ? 1 : (unsigned)cpus;
}

/* A NULL-terminated list; own: how many at its end are to be freed. */
static char **environment(const br_udf_process *p, size_t *own) {
  static const char *const thread_names[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"};
  size_t n = 0, k = 0;
  while (environ[n]) n++;
  char **env = br_calloc(n + 8, sizeof *env);
  for (size_t i = 0; i < n; i++) {
    if (strncmp(environ[i], "BRANT_SECRET=", 13) == 0) continue; /* the cluster's, none of the function's business */
    if (p->n_gpus && strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) == 0) continue;
    env[k++] = environ[i];
  }
  size_t first = k;
  if (p->n_gpus) {
    char *list = br_udf_gpus_text(p);
    env[k++] = br_asprintf("CUDA_VISIBLE_DEVICES=%s", list);
    free(list);
  }
  for (size_t i = 0; i < sizeof thread_names / sizeof *thread_names; i++)
    if (!is_set(thread_names[i])) env[k++] = br_asprintf("%s=%u", thread_names[i], threads_of(p->pool));
  if (!is_set("PYTHONUNBUFFERED")) env[k++] = br_strdup("PYTHONUNBUFFERED=1");
  if (!is_set("PYTHONFAULTHANDLER")) env[k++] = br_strdup("PYTHONFAULTHANDLER=1");
  *own = k - first;
  return env;
}

static const char *program_of(const br_udf_pool *pool) {
  const br_udf_options *o = &pool->all->o;
  if (o->command) return o->command;
  return pool->f->interpreter[0] ? pool->f->interpreter : o->python ? o->python : "python3";
}

static int spawn(br_udf_process *p, int channel, int output) {
  const br_udf_options *o = &p->pool->all->o;
  char *argv[5] = {NULL};
  int k = 0;
  argv[k++] = (char *)program_of(p->pool);
  if (!o->command && o->script) {
    argv[k++] = (char *)o->script;
  } else if (!o->command) {
    argv[k++] = (char *)"-m";
    argv[k++] = (char *)"brant.udf_process";
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attr;
  sigset_t none, defaults;
  size_t own = 0, n = 0;
  char **env = environment(p, &own);
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attr);
  sigemptyset(&none);
  sigfillset(&defaults);
  sigdelset(&defaults, SIGKILL);
  sigdelset(&defaults, SIGSTOP);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawn_file_actions_adddup2(&actions, channel, CHANNEL_FD);
  posix_spawnattr_setsigmask(&attr, &none);
  posix_spawnattr_setsigdefault(&attr, &defaults);
  posix_spawnattr_setpgroup(&attr, 0);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  int r = posix_spawnp(&pid, argv[0], &actions, &attr, argv, env);
  if (r == 0) p->pid = pid;
  posix_spawnattr_destroy(&attr);
  posix_spawn_file_actions_destroy(&actions);
  while (env[n]) n++;
  for (size_t i = 0; i < own; i++) free(env[n - 1 - i]);
  free(env);
  return r;
}

static void raise_oom_score(int pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/oom_score_adj", pid);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : write(fd, OOM_SCORE, sizeof OOM_SCORE - 1); /* best effort */
  if (n < 0) br_log(BR_LOG_DEBUG, "oom_score_adj of a function's process cannot be raised");
  if (fd >= 0) close(fd);
}

static void on_message(void *arg, const void *data, size_t n, int *fds, int n_fds) {
  br_udf_process *p = arg;
  const char *text = data;
  for (int i = 0; i < n_fds; i++) close(fds[i]);
  if (n >= 1 && text[0] == 'R' && !p->ready) {
    p->ready = true;
    br_udf_process_ready(p);
  } else if (n >= 1 && text[0] == 'L') {
    br_log(BR_LOG_WARN, "%.*s", (int)(n - 1 < LOG_BYTES ? n - 1 : LOG_BYTES), text + 1);
  }
}

static void on_closed(void *arg, const br_error *why) {
  br_udf_process *p = arg;
  (void)why;
  p->closed = true; /* it ends, or is broken: the watch sees to it */
  p->exit_ms = br_now_ms();
  br_udf_process_reap(p);
}

static void json_string(br_buf *b, const char *s) {
  br_buf_char(b, '"');
  for (; *s; s++) {
    if ((unsigned char)*s < ' ')
      br_buf_printf(b, "\\u%04x", (unsigned)*s);
    else if (*s == '"' || *s == '\\')
      br_buf_printf(b, "\\%c", *s);
    else
      br_buf_char(b, *s);
  }
  br_buf_char(b, '"');
}

static bool knows(const br_udf_process *p, const br_udf_fn *fn) {
  for (size_t i = 0; i < p->n_told; i++)
    if (p->told[i] == fn->f->id) return true;
  return false;
}

/* `S` and the status page, once, or `F`: a function. */
static void tell(br_udf_process *p, char kind, const br_udf_fn *fn, int status_fd) {
  const Brant__Pb__Function *f = fn->f;
  br_buf b = {0};
  br_grow((void **)&p->told, &p->cap_told, p->n_told, sizeof *p->told);
  p->told[p->n_told++] = f->id;
  br_buf_char(&b, kind);
  br_buf_printf(&b,
                "{\"version\":\"%s\",\"worker\":%u,\"process\":%u,\"function\":%" PRIu64 ",\"payload_bytes\":%" PRIu64
                ",\"name\":",
                BRANT_VERSION, p->pool->all->worker, p->number, f->id, fn->payload_bytes);
  json_string(&b, f->name);
  br_buf_str(&b, ",\"return_type\":");
  json_string(&b, f->return_type);
  br_buf_printf(&b, ",\"options\":%s}", f->options_json[0] ? f->options_json : "{}");
  int fds[2] = {fn->payload, status_fd};
  br_channel_send(p->channel, b.data, b.len, fds, status_fd >= 0 ? 2 : 1);
  br_buf_free(&b);
}

static br_status map_status(br_udf_process *p, int *fd, br_error *err) {
  *fd = memfd_create("brant-udf-status", MFD_CLOEXEC);
  void *at = *fd < 0 || ftruncate(*fd, STATUS_BYTES) != 0 ? MAP_FAILED
                                                          : mmap(NULL, STATUS_BYTES, PROT_READ, MAP_SHARED, *fd, 0);
  if (at == MAP_FAILED)
    return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make a page to watch a function's process");
  p->status = at;
  return BR_OK;
}

br_status br_udf_process_start(br_udf_fn *fn, br_udf_process **out, br_error *err) {
  br_udf_pool *pool = fn->pool;
  br_loop *loop = pool->all->o.loop;
  br_udf_process *p = br_calloc(1, sizeof *p);
  int pair[2] = {-1, -1}, output[2] = {-1, -1}, status_fd = -1, r;
  br_status status = BR_OK;
  p->pool = pool;
  p->pipe = -1;
  p->number = ++pool->started;
  p->output = br_malloc(BR_UDF_OUTPUT_KEPT_BYTES);
  BR_TRY_GOTO(map_status(p, &status_fd, err));
  if (pool->f->gpus > 0) BR_TRY_GOTO(br_udf_gpus_take(p, err));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 || pipe2(output, O_CLOEXEC) != 0) {
    status = br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make the sockets of a function's process");
    goto done;
  }
  r = spawn(p, pair[1], output[1]);
  if (r) {
    status = br_fail(err, BR_EXECUTION, BR_BLAME_USER, "cannot start \"%s\" for function %.100s on worker %u: %s",
                     program_of(pool), pool->f->name, pool->all->worker, strerror(r));
    goto done;
  }
  raise_oom_score(p->pid);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  r = uv_poll_init(br_loop_uv(loop), &p->poll, output[0]);
  if (r < 0) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_WORKER, "cannot watch a function's output: %s", uv_strerror(r));
    goto done;
  }
  p->pipe = output[0], output[0] = -1;
  p->poll.data = p;
  p->handle_open = true;
  uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_pipe);
  r = pair[0], pair[0] = -1; /* the channel owns it, also when that fails */
  BR_TRY_GOTO(br_channel_new(loop, r, (br_channel_handler){on_message, on_closed, p}, &p->channel, err));
  tell(p, 'S', fn, status_fd);
  pool->all->n_processes++;
  *out = p;
done:
  if (pair[0] >= 0) close(pair[0]);
  if (pair[1] >= 0) close(pair[1]);
  if (output[0] >= 0) close(output[0]);
  if (output[1] >= 0) close(output[1]);
  if (status_fd >= 0) close(status_fd);
  if (status) br_udf_process_free(p);
  return status;
}

br_status br_udf_process_connect(br_udf_process *p, br_udf_connection *c, int *fd, br_error *err) {
  int pair[2];
  unsigned char m[9] = {'C'};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make a socket between an executor and a function");
  if (!knows(p, c->fn)) tell(p, 'F', c->fn, -1);
  for (int i = 0; i < 8; i++) m[1 + i] = (unsigned char)(c->token >> (8 * i));
  br_channel_send(p->channel, m, sizeof m, &pair[1], 1);
  close(pair[1]);
  *fd = pair[0];
  return BR_OK;
}

/* ---- end */

bool br_udf_process_alive(const br_udf_process *p) {
  return p->pid > 0 && !p->reaped && !p->killed && !p->leaving && !p->closed;
}

void br_udf_process_kill(br_udf_process *p, const br_error *why) {
  if (p->pid <= 0 || p->reaped || p->killed) return;
  p->killed = true;
  if (why) p->why = *why;
  kill(-p->pid, SIGKILL);
}

void br_udf_process_leave(br_udf_process *p) {
  if (!br_udf_process_alive(p)) return;
  p->leaving = true;
  p->exit_ms = br_now_ms();
  br_channel_free(p->channel);
  p->channel = NULL;
}

void br_udf_process_reap(br_udf_process *p) {
  siginfo_t info = {0};
  if (p->pid <= 0 || p->reaped) return;
  if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != p->pid) return;
  kill(-p->pid, SIGKILL); /* its children; while it isn't reaped the group's number is its own */
  if (waitpid(p->pid, &p->wait_status, WNOHANG) != p->pid) return;
  p->reaped = true;
  p->ended_ms = br_now_ms();
  p->guilty = p->status->token;
  drain(p);
  if (p->piped_out) br_udf_process_gone(p);
}

static const br_udf_connection *busy_with(const br_udf_process *p, uint64_t token) {
  const br_udf_connection *c = p->connections;
  while (c && c->token != token) c = c->next;
  return token ? c : NULL;
}

void br_udf_process_describe(const br_udf_process *p, const br_udf_connection *c, br_error *why) {
  br_buf b = {0};
  if (!c) c = busy_with(p, p->guilty);
  const char *function = c ? c->fn->f->name : p->pool->f->name;
  const char *where = p->status->loading ? " while it loaded the function" : "";
  char rows[96] = "";
  if (p->guilty && p->status->rows)
    snprintf(rows, sizeof rows, " in a batch of %" PRIu64 " rows from row %" PRIu64, p->status->rows,
             p->status->first_row);
  if (p->why.code) {
    br_buf_printf(&b, "%s", p->why.message);
  } else if (WIFSIGNALED(p->wait_status)) {
    int sig = WTERMSIG(p->wait_status);
    const char *name = sigabbrev_np(sig);
    br_buf_printf(&b, "its process %d was ended by signal %d (SIG%s)%s%s%s", p->pid, sig, name ? name : "?", where,
                  rows,
                  p->killed        ? ": the worker replaced it"
                  : sig == SIGKILL ? ": out of memory, or somebody killed it"
                                   : "");
  } else {
    br_buf_printf(&b, "its process %d ended with exit code %d%s%s", p->pid, WEXITSTATUS(p->wait_status), where, rows);
  }
  size_t before = b.len;
  br_buf_str(&b, "\nthe last that it printed:\n");
  size_t after = b.len;
  tail(p, &b);
  if (b.len == after) b.data[b.len = before] = 0;
  br_fail(why, BR_EXECUTION, BR_BLAME_USER, "function %.100s on worker %u: %s", function, p->pool->all->worker,
          br_buf_cstr(&b));
  br_buf_free(&b);
}

/* ---- watch */

static void check_memory(br_udf_process *p) {
  uint64_t limit = p->pool->f->memory_bytes, used = br_process_anon_bytes(p->pid);
  if (used > p->peak_bytes) p->peak_bytes = used;
  if (!limit || used <= limit) return;
  char has[16], may[16];
  br_error why = {0};
  br_format_bytes(used, has);
  br_format_bytes(limit, may);
  br_fail(&why, BR_EXECUTION, BR_BLAME_USER,
          "its process %d used %s of memory, more than its limit of %s (option memory), and was ended", p->pid, has,
          may);
  br_udf_process_kill(p, &why);
}

static void check_time(br_udf_process *p) {
  const br_udf_connection *c = busy_with(p, p->status->token);
  const Brant__Pb__Function *f = c ? c->fn->f : p->pool->f;
  uint64_t since = p->status->since_us, limit_us = f->timeout_ms * 1000, now = br_now_us();
  if (!limit_us || !since || p->status->loading || now < since || now - since <= limit_us) return;
  br_error why = {0};
  br_fail(&why, BR_TIMEOUT, BR_BLAME_USER,
          "a batch of %" PRIu64 " rows from row %" PRIu64
          " took longer than %g s (option timeout): its process %d was ended",
          p->status->rows, p->status->first_row, (double)f->timeout_ms / 1000, p->pid);
  br_udf_process_kill(p, &why);
}

static void check_connections(br_udf_process *p, uint64_t now_ms) {
  br_error why = {0};
  for (const br_udf_connection *c = p->connections; c; c = c->next) {
    if (c->asked_ms && now_ms - c->asked_ms > BR_UDF_REAP_WAIT_MS) {
      br_fail(&why, BR_EXECUTION, BR_BLAME_USER, "its process %d closed a connection in the middle", p->pid);
      br_udf_process_kill(p, &why);
    } else if (c->cancelled_ms && p->status->token == c->token && now_ms - c->cancelled_ms > BR_UDF_CANCEL_MS) {
      br_udf_process_kill(p, NULL);
    }
  }
}

void br_udf_process_watch(br_udf_process *p, uint64_t now_ms) {
  if (p->reaped) {
    if (!p->piped_out && now_ms - p->ended_ms > BR_UDF_PIPE_WAIT_MS) {
      close_pipe(p);
      br_udf_process_gone(p);
    }
    return;
  }
  if (p->killed) return;
  check_connections(p, now_ms);
  if ((p->leaving || p->closed) && now_ms - p->exit_ms > BR_UDF_EXIT_MS) br_udf_process_kill(p, NULL);
  if (p->killed) return;
  check_memory(p);
  check_time(p);
}

void br_udf_process_end(br_udf_process *p) {
  br_udf_process_kill(p, NULL);
  while (!p->reaped && waitpid(p->pid, &p->wait_status, 0) < 0 && errno == EINTR) continue;
  p->reaped = true;
  p->ended_ms = br_now_ms();
  br_udf_gpus_give(p); /* the rest of it goes when its output was read to the end */
}

void br_udf_process_free(br_udf_process *p) {
  if (p->pid > 0 && !p->reaped) {
    kill(-p->pid, SIGKILL);
    while (waitpid(p->pid, &p->wait_status, 0) < 0 && errno == EINTR) continue;
  }
  br_udf_gpus_give(p);
  br_channel_free(p->channel);
  while (p->connections) {
    br_udf_connection *c = p->connections;
    p->connections = c->next;
    free(c);
  }
  close_pipe(p);
  if (p->status) munmap((void *)(uintptr_t)p->status, STATUS_BYTES);
  p->status = NULL;
  free(p->output);
  free(p->told);
  p->told = NULL;
  p->output = NULL;
  p->pipe = -2;
  if (!p->handle_open) free(p);
}
