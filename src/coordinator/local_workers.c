/* SPDX-License-Identifier: Apache-2.0
 * Starts brant-worker processes by posix_spawn (never a fork: the caller may be a Python process with threads), found beside
 * this library or program. Each holds the read end of a pipe whose write end only we hold: it ends when we do, however we end.
 * The secret goes by the environment, not by the command line. One thread at a time. */
#include "coordinator/local_workers.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"

#define SECRET_ENV "BRANT_SECRET"
#define PARENT_FD 3
#define CONDEMNED_MS 1000 /* until a worker that is not a member any more is killed */

extern char **environ;

struct br_local_workers {
  br_local_workers_options o;
  char *join, *host, *secret, *temp_dir;
  int life[2];            /* pipe: children read it, we hold the write end */
  pid_t *pids;            /* 0: does not run */
  uint64_t *condemned_ms; /* 0: not */
  br_error why;           /* how the last one ended */
};

static char *numeric(const struct sockaddr *a, socklen_t n) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(a, n, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0) return NULL;
  return br_strdup(text);
}

/* The address that the default route leaves by: a UDP socket that is connected (to an address for documentation) and sends nothing. */
static char *default_route_address(bool v6) {
  struct sockaddr_storage own;
  socklen_t n = sizeof own;
  struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *to = NULL;
  char *text = NULL;
  if (getaddrinfo(v6 ? "2001:db8::1" : "192.0.2.1", "9", &hints, &to) != 0) return NULL;
  int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&own, &n) == 0)
    text = numeric((struct sockaddr *)&own, n);
  if (fd >= 0) close(fd);
  freeaddrinfo(to);
  return text;
}

static char *interface_address(bool v6) {
  struct ifaddrs *list = NULL;
  char *text = NULL;
  if (getifaddrs(&list) != 0) return NULL;
  for (struct ifaddrs *i = list; i != NULL && text == NULL; i = i->ifa_next)
    if (i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0 &&
        i->ifa_addr->sa_family == (v6 ? AF_INET6 : AF_INET))
      text = numeric(i->ifa_addr, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
  freeifaddrs(list);
  return text;
}

/* Who listens on all addresses is joined by its own children over loopback; workers of other hosts reach those at one address that
 * this host has: of the default route, else of an interface. */
static void name_hosts(br_local_workers *w, const char *listen, int port) {
  bool v6 = strchr(listen, ':') != NULL;
  const char *join = listen;
  if (strcmp(listen, "0.0.0.0") == 0 || strcmp(listen, "::") == 0) {
    join = v6 ? "::1" : "127.0.0.1";
    w->host = default_route_address(v6);
    if (w->host == NULL) w->host = interface_address(v6);
  }
  if (w->host == NULL) w->host = br_strdup(join);
  w->join = br_asprintf(v6 ? "[%s]:%d" : "%s:%d", join, port);
}

br_local_workers *br_local_workers_new(const br_local_workers_options *o) {
  br_local_workers *w = br_calloc(1, sizeof *w);
  w->o = *o;
  name_hosts(w, o->join_host, o->join_port);
  w->secret = br_strdup(o->secret);
  w->temp_dir = br_strdup(o->temp_dir);
  w->pids = br_calloc(o->count, sizeof *w->pids);
  w->condemned_ms = br_calloc(o->count, sizeof *w->condemned_ms);
  w->life[0] = w->life[1] = -1;
  return w;
}

/* brant-worker beside this code (the library or the program that holds it), or in BRANT_BIN_DIR. */
static br_status find_worker(char out[PATH_MAX], br_error *err) {
  const char *dir = getenv("BRANT_BIN_DIR");
  char own[PATH_MAX] = "";
  if (dir == NULL) {
    Dl_info info;
    char real[PATH_MAX];
    if (dladdr((void *)(uintptr_t)find_worker, &info) != 0 && info.dli_fname != NULL &&
        realpath(info.dli_fname, real) != NULL)
      snprintf(own, sizeof own, "%s", real);
    char *slash = strrchr(own, '/');
    if (slash != NULL) *slash = 0;
    dir = own;
  }
  static const char *const places[] = {"brant-worker", "../libexec/brant-worker", "../bin/brant-worker"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    snprintf(out, PATH_MAX, "%s/%s", dir, places[i]);
    if (access(out, X_OK) == 0) return BR_OK;
  }
  return br_fail(err, BR_NOT_FOUND, BR_BLAME_USER,
                 "cannot find the program brant-worker in %s: install it there or set BRANT_BIN_DIR", dir);
}

static char **child_environment(const char *secret, char **entry) {
  size_t n = 0;
  while (environ[n] != NULL) n++;
  char **env = br_calloc(n + 2, sizeof *env);
  size_t k = 0;
  for (size_t i = 0; i < n; i++)
    if (strncmp(environ[i], SECRET_ENV "=", sizeof SECRET_ENV) != 0) env[k++] = environ[i];
  *entry = br_asprintf(SECRET_ENV "=%s", secret);
  env[k] = *entry;
  return env;
}

static br_status spawn_one(br_local_workers *w, uint32_t number, const char *path, pid_t *pid, br_error *err) {
  char threads[16], memory[32], fd[16], executors[16], share[32];
  snprintf(share, sizeof share, "%u/%u", number, w->o.count);
  snprintf(threads, sizeof threads, "%u", w->o.threads);
  snprintf(memory, sizeof memory, "%llu", (unsigned long long)w->o.memory_bytes);
  snprintf(executors, sizeof executors, "%u", w->o.executors > 0 ? w->o.executors : 1);
  snprintf(fd, sizeof fd, "%d", PARENT_FD);
  char *argv[] = {(char *)"brant-worker",
                  (char *)"--join",
                  w->join,
                  (char *)"--uri-host",
                  w->host,
                  (char *)"--threads",
                  threads,
                  (char *)"--memory",
                  memory,
                  (char *)"--executors",
                  executors,
                  (char *)"--gpu-share",
                  share,
                  (char *)"--temp-dir",
                  w->temp_dir,
                  (char *)"--secret-env",
                  (char *)SECRET_ENV,
                  (char *)"--parent-fd",
                  fd,
                  NULL};
  posix_spawn_file_actions_t fa;
  posix_spawnattr_t attr;
  posix_spawn_file_actions_init(&fa);
  posix_spawnattr_init(&attr);
  posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&fa, STDERR_FILENO, STDOUT_FILENO); /* our standard output is for rows */
  posix_spawn_file_actions_adddup2(&fa, w->life[0], PARENT_FD);
  /* A group of its own: Ctrl-C at the terminal reaches us alone, and we end the workers in order. */
  sigset_t none, all;
  sigemptyset(&none);
  sigemptyset(&all);
  sigaddset(&all, SIGINT);
  sigaddset(&all, SIGTERM);
  sigaddset(&all, SIGPIPE);
  posix_spawnattr_setsigmask(&attr, &none);
  posix_spawnattr_setsigdefault(&attr, &all);
  posix_spawnattr_setpgroup(&attr, 0);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  char *entry = NULL;
  char **env = child_environment(w->secret, &entry);
  int rc = posix_spawn(pid, path, &fa, &attr, argv, env);
  free(env);
  free(entry);
  posix_spawnattr_destroy(&attr);
  posix_spawn_file_actions_destroy(&fa);
  if (rc != 0) return br_fail_errno(err, rc, BR_BLAME_WORKER, "cannot start %s", path);
  return BR_OK;
}

br_status br_local_workers_start(br_local_workers *w, br_error *err) {
  char path[PATH_MAX];
  br_local_workers_alive(w);
  BR_TRY(find_worker(path, err));
  if (w->life[0] < 0) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return br_fail_errno(err, errno, BR_BLAME_INTERNAL, "cannot make a pipe");
    /* away from PARENT_FD: dup2 onto itself would keep close-on-exec */
    w->life[0] = fcntl(fds[0], F_DUPFD_CLOEXEC, 10);
    w->life[1] = fcntl(fds[1], F_DUPFD_CLOEXEC, 10);
    close(fds[0]);
    close(fds[1]);
    if (w->life[0] < 0 || w->life[1] < 0)
      return br_fail_errno(err, errno, BR_BLAME_INTERNAL, "cannot duplicate a pipe");
  }
  for (uint32_t i = 0; i < w->o.count; i++)
    if (w->pids[i] == 0) BR_TRY(spawn_one(w, i, path, &w->pids[i], err));
  br_error_clear(&w->why);
  return BR_OK;
}

/* A worker that was killed could not remove its directory (brant-<16 hex digits>-w<pid>); its executors ended with it. */
static void remove_home(const br_local_workers *w, pid_t pid) {
  char *pattern = br_asprintf("brant-*-w%d", (int)pid);
  DIR *d = opendir(w->temp_dir);
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    if (fnmatch(pattern, e->d_name, 0) != 0) continue;
    char *path = br_asprintf("%s/%s", w->temp_dir, e->d_name);
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid()) br_remove_tree(path);
    free(path);
  }
  if (d != NULL) closedir(d);
  free(pattern);
}

static void describe_end(br_local_workers *w, pid_t pid, int st) {
  if (WIFSIGNALED(st))
    br_fail(&w->why, BR_LOST, BR_BLAME_WORKER, "a local worker (pid %d) was ended by signal %d (%s)", (int)pid,
            WTERMSIG(st), strsignal(WTERMSIG(st)));
  else
    br_fail(&w->why, BR_LOST, BR_BLAME_WORKER,
            "a local worker (pid %d) ended with exit code %d: its message is on standard error", (int)pid,
            WEXITSTATUS(st));
  w->why.retryable = WIFSIGNALED(st) || WEXITSTATUS(st) == 0; /* somebody ended it: another may live */
}

uint32_t br_local_workers_alive(br_local_workers *w) {
  uint32_t alive = 0;
  for (uint32_t i = 0; i < w->o.count; i++) {
    if (w->pids[i] == 0) continue;
    int st = 0;
    if (waitpid(w->pids[i], &st, WNOHANG) == 0) {
      alive++;
      if (w->condemned_ms[i] != 0 && br_now_ms() - w->condemned_ms[i] > CONDEMNED_MS) kill(w->pids[i], SIGKILL);
      continue;
    }
    describe_end(w, w->pids[i], st);
    remove_home(w, w->pids[i]);
    w->pids[i] = 0;
    w->condemned_ms[i] = 0;
  }
  return alive;
}

void br_local_workers_why(br_local_workers *w, br_error *why) {
  *why = w->why;
  br_error_clear(&w->why);
}

void br_local_workers_condemn(br_local_workers *w, int pid) {
  for (uint32_t i = 0; i < w->o.count; i++)
    if (w->pids[i] == pid && pid != 0 && w->condemned_ms[i] == 0) w->condemned_ms[i] = br_now_ms();
}

void br_local_workers_free(br_local_workers *w, uint64_t grace_ms) {
  if (w == NULL) return;
  if (w->life[1] >= 0) close(w->life[1]);
  if (w->life[0] >= 0) close(w->life[0]);
  uint64_t until = br_now_ms() + grace_ms;
  while (br_local_workers_alive(w) > 0 && br_now_ms() < until) poll(NULL, 0, 5);
  for (uint32_t i = 0; i < w->o.count; i++)
    if (w->pids[i] != 0) {
      kill(w->pids[i], SIGKILL); /* children of ours, not yet waited for: the pid is still theirs */
      waitpid(w->pids[i], NULL, 0);
      remove_home(w, w->pids[i]);
    }
  free(w->pids);
  free(w->condemned_ms);
  free(w->join);
  free(w->host);
  free(w->secret);
  free(w->temp_dir);
  free(w);
}
