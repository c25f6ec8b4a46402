/* SPDX-License-Identifier: Apache-2.0
 * brant worker: becomes brant-worker, found beside this program. It is a program of its own so that it does not link DuckDB. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_worker(int argc, char **argv) {
  (void)argc;
  char path[PATH_MAX + 32], own[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
  const char *dir = getenv("BRANT_BIN_DIR");
  if (n > 0) {
    own[n] = 0;
    char *slash = strrchr(own, '/');
    if (slash != NULL) *slash = 0;
    if (dir == NULL) dir = own;
  }
  snprintf(path, sizeof path, "%s/brant-worker", dir ? dir : ".");
  argv[0] = path;
  execv(path, argv);
  fprintf(stderr, "brant: error: cannot run %s: %s\n", path, strerror(errno));
  return CLI_FAILED;
}
