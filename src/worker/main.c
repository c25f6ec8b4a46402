/* SPDX-License-Identifier: Apache-2.0
 * brant-worker: one a node. See README.md. */
#include "worker/node.h"

#include "base/util.h"
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
  br_node_options o = {0};
  br_error err = {0};
  sigset_t none; /* a parent that blocks signals in the thread that starts us hands that down: SIGTERM must come */
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGPIPE, SIG_IGN);
  br_log_set_name("worker", 0);
  if (br_node_options_parse(argc, argv, &o, &err) != BR_OK) {
    fprintf(stderr, "brant-worker: %s (see --help)\n", err.message);
    br_node_options_free(&o);
    return BR_NODE_EXIT_USAGE;
  }
  if (o.help) {
    fputs(br_node_usage, stdout);
    br_node_options_free(&o);
    return BR_NODE_EXIT_OK;
  }
  struct rlimit r; /* a map output in memory is a descriptor */
  if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0) br_log(BR_LOG_INFO, "the limit of open files stays at its soft value");
  }
  int code = br_rejoin_run(&o);
  br_node_options_free(&o);
  return code;
}
