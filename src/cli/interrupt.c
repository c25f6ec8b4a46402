/* SPDX-License-Identifier: Apache-2.0
 * Ctrl-C. A handler may do little, so it writes one byte to a pipe; a thread reads it and stops the session and the query, again
 * every AGAIN_MS until they have ended, since a statement between two steps can miss it. What has not ended GIVE_UP_MS later
 * (DuckDB looks seldom in some joins) is left behind: the program ends, as it does at once for a second signal. Workers see the pipe
 * close and end too. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/util.h"
#include "cli/cli.h"

#define AGAIN_MS 50
#define GIVE_UP_MS 800

static int pipe_fds[2] = {-1, -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static brant_session *session;
static brant_query *current;
static atomic_int came;  /* the signal; 0: none */
static atomic_bool told; /* its message was printed */
static atomic_bool idle; /* nothing runs: no signal is one too many */
static bool may_give_up;

static void on_signal(int sig) {
  int saved = errno, none = 0;
  if (!atomic_compare_exchange_strong(&came, &none, sig) && !idle) _exit(CLI_SIGNAL + sig);
  ssize_t ignored = write(pipe_fds[1], "x", 1);
  (void)ignored;
  errno = saved;
}

static void stop(void) {
  pthread_mutex_lock(&lock);
  if (came != 0 && session != NULL) brant_interrupt(session);
  if (came != 0 && current != NULL) brant_query_cancel(current);
  pthread_mutex_unlock(&lock);
}

static void *wait_signals(void *arg) {
  (void)arg;
  struct pollfd p = {.fd = pipe_fds[0], .events = POLLIN};
  uint64_t since_ms = 0;
  for (;;) {
    char c;
    int n = poll(&p, 1, came != 0 ? AGAIN_MS : -1);
    if (n > 0 && read(pipe_fds[0], &c, 1) == 0) return NULL;
    if (n > 0) since_ms = br_now_ms();
    stop();
    if (came == 0 || !may_give_up || br_now_ms() - since_ms < GIVE_UP_MS) continue;
    if (!atomic_exchange(&told, true)) cli_print_error("the query was cancelled");
    _exit(CLI_SIGNAL + came);
  }
}

void cli_interrupt_install(bool exits) {
  may_give_up = exits;
  if (pipe_fds[0] >= 0 || pipe2(pipe_fds, O_CLOEXEC) != 0) return;
  pthread_t t;
  sigset_t all, old; /* the thread itself takes no signals */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  if (pthread_create(&t, NULL, wait_signals, NULL) == 0) pthread_detach(t);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  struct sigaction sa = {.sa_handler = on_signal};
  sigaction(SIGINT, &sa, NULL);
  sigaction(SIGTERM, &sa, NULL);
  signal(SIGPIPE, SIG_IGN);
}

void cli_interrupt_session(brant_session *s) {
  pthread_mutex_lock(&lock);
  session = s;
  pthread_mutex_unlock(&lock);
}

void cli_interrupt_query(brant_query *q) {
  pthread_mutex_lock(&lock);
  current = q;
  pthread_mutex_unlock(&lock);
  stop(); /* it came between two queries */
}

int cli_interrupted(void) { return came != 0 ? CLI_SIGNAL + came : 0; }
void cli_interrupt_idle(bool is_idle) { idle = is_idle; }
void cli_interrupt_reset(void) {
  came = 0;
  told = false;
}

static bool reader_gone(void) {
  struct pollfd p = {.fd = STDOUT_FILENO};
  return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

int cli_failed(const char *message) {
  if (cli_interrupted() == 0 && reader_gone()) return CLI_PIPE;
  if (cli_interrupted() == 0 || !atomic_exchange(&told, true)) cli_print_error(message);
  return cli_interrupted() != 0 ? cli_interrupted() : CLI_FAILED;
}
