/* SPDX-License-Identifier: Apache-2.0
 * brant: the one command. Finds the subcommand; without one, a prompt. */
#include <locale.h>
#include <string.h>

#include "cli/cli.h"

static const char usage[] =
    "brant: SQL over files, on one machine or many\n"
    "\n"
    "  brant                       a prompt with history\n"
    "  brant sql \"select …\"        run statements (or --file q.sql, or from standard input)\n"
    "  brant explain \"select …\"    show the stages; --analyze runs them and adds what was measured\n"
    "  brant worker --join H:P     a worker that joins a coordinator\n"
    "  brant recover DIR…          finish or remove what a COPY left that was cut off\n"
    "  brant version\n"
    "\n"
    "  brant <command> --help      the options of a command\n";

int main(int argc, char **argv) {
  setlocale(LC_ALL, "");
  if (argc < 2 || (argv[1][0] == '-' && strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0 &&
                   strcmp(argv[1], "--version") != 0))
    return cli_prompt(argc, argv);
  const char *cmd = argv[1];
  if (strcmp(cmd, "sql") == 0) return cli_sql(argc - 1, argv + 1);
  if (strcmp(cmd, "explain") == 0) return cli_explain(argc - 1, argv + 1);
  if (strcmp(cmd, "worker") == 0) return cli_worker(argc - 1, argv + 1);
  if (strcmp(cmd, "recover") == 0) return cli_recover(argc - 1, argv + 1);
  if (strcmp(cmd, "version") == 0 || strcmp(cmd, "--version") == 0) {
    printf("brant %s\n", brant_version());
    return CLI_OK;
  }
  if (strcmp(cmd, "help") == 0 || strcmp(cmd, "--help") == 0 || strcmp(cmd, "-h") == 0) {
    fputs(usage, stdout);
    return CLI_OK;
  }
  fprintf(stderr, "brant: error: no command '%s'\n\n%s", cmd, usage);
  return CLI_USAGE;
}
