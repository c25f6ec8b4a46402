/* SPDX-License-Identifier: Apache-2.0
 * Ctrl-C. A handler may do little, so it writes one byte to a pipe; a thread reads it and cancels the query. The second signal
 * while the first is being handled ends the program at once (workers see the pipe close and end too). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cli/cli.h"

static int pipe_fds[2] = {-1, -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static brant_query *current;
static atomic_int count;

static void on_signal(int sig) {
  int saved = errno;
  if (atomic_fetch_add(&count, 1) >= 1) _exit(128 + sig);
  ssize_t ignored = write(pipe_fds[1], "x", 1);
  (void)ignored;
  errno = saved;
}

static void *wait_signals(void *arg) {
  (void)arg;
  char c;
  for (;;) {
    ssize_t n = read(pipe_fds[0], &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return NULL;
    pthread_mutex_lock(&lock);
    if (current != NULL) brant_query_cancel(current);
    pthread_mutex_unlock(&lock);
  }
}

void cli_interrupt_install(void) {
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

void cli_interrupt_query(brant_query *q) {
  pthread_mutex_lock(&lock);
  current = q;
  if (q != NULL && count > 0) brant_query_cancel(q); /* it came between two queries */
  pthread_mutex_unlock(&lock);
}

bool cli_interrupted(void) { return count > 0; }
void cli_interrupt_reset(void) { count = 0; }
