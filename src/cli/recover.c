/* SPDX-License-Identifier: Apache-2.0
 * brant recover: what dead writers left in the target directories of COPY … TO is finished or removed. */
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "sink/sink.h"

static const char usage[] =
    "brant recover DIRECTORY…\n"
    "Finish the commit of a COPY … TO that was cut off after its journal was written, and remove what others left that "
    "died\n"
    "before theirs. The next COPY to the same directory does the same.\n";

static int recover(const char *dir) {
  br_sink_recovery r;
  br_error err;
  struct stat st;
  br_error_clear(&err);
  br_status status = BR_OK;
  if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
    status = br_fail(&err, BR_NOT_FOUND, BR_BLAME_USER, "%s is not a directory", dir);
  if (status == BR_OK) status = br_sink_recover(dir, &r, &err);
  if (status != BR_OK) {
    cli_print_error(err.message);
    return CLI_FAILED;
  }
  printf("%s: %zu commits finished, %zu removed, %zu still being written\n", dir, r.finished, r.removed, r.busy);
  return CLI_OK;
}

int cli_recover(int argc, char **argv) {
  if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
    fputs(usage, argc < 2 ? stderr : stdout);
    return argc < 2 ? CLI_USAGE : CLI_OK;
  }
  int code = CLI_OK;
  for (int i = 1; i < argc; i++) {
    int one = recover(argv[i]);
    if (one != CLI_OK) code = one;
  }
  return code;
}
