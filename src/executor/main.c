/* SPDX-License-Identifier: Apache-2.0
 * brant-executor: started by a worker with a socket at descriptor 3, never by hand. It dies with its worker, and is the first
 * that the kernel takes when memory runs out: losing it costs its running attempts only. */
#include "executor/executor.h"

#include "base/util.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define OOM_SCORE "600" /* of 1000; raising needs no right */

static void die_first(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  ssize_t n = write(fd, OOM_SCORE, sizeof OOM_SCORE - 1); /* best effort: not every container lets us */
  if (n < 0) br_log(BR_LOG_INFO, "oom_score_adj cannot be raised");
  close(fd);
}

static void raise_descriptor_limit(void) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= r.rlim_max) return;
  r.rlim_cur = r.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &r) != 0) br_log(BR_LOG_INFO, "the limit of open files stays at its soft value");
}

int main(int argc, char **argv) {
  (void)argv;
  int type = 0;
  socklen_t n = sizeof type;
  if (argc != 1 || getsockopt(BR_EXECUTOR_FD, SOL_SOCKET, SO_TYPE, &type, &n) != 0) {
    fprintf(stderr, "brant-executor %s is started by brant-worker, not by hand\n", BRANT_VERSION);
    return 2;
  }
  /* A worker that died before this line closed its end of the socket: the loop sees that. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN); /* a terminal's Ctrl-C is the caller's to handle */
  fcntl(BR_EXECUTOR_FD, F_SETFD, FD_CLOEXEC);
  die_first();
  raise_descriptor_limit();
  br_log_set_name("executor", 0);
  return br_executor_main(BR_EXECUTOR_FD);
}
