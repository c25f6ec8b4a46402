/* SPDX-License-Identifier: Apache-2.0
 * brant explain: the stages of a query; with --analyze also what running them measured. Earlier statements of the script (views,
 * settings) are run; the last one is explained. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const char usage[] =
    "brant explain [--analyze] [--format table|json] [options] \"select …\"\n"
    "Shows the stages of the last statement; those before it (CREATE VIEW, SET) are run first.\n\n";

static int explain_last(brant_session *s, const cli_options *o, char **statements, size_t n) {
  brant_error err;
  char *text = NULL;
  for (size_t i = 0; i + 1 < n; i++) {
    int code = cli_run_script(s, o, statements[i]);
    if (code != CLI_OK) return code;
  }
  char *bound = NULL;
  if (cli_params_bind(s, o, statements[n - 1], &bound, &err) != 0) return cli_failed(err.message);
  int failed =
      brant_explain(s, bound != NULL ? bound : statements[n - 1], o->analyze, o->format == FORMAT_JSON, &text, &err);
  brant_free(bound);
  if (failed != 0) return cli_failed(err.message);
  fputs(text, stdout);
  brant_free(text);
  return CLI_OK;
}

int cli_explain(int argc, char **argv) {
  cli_options o;
  int code = cli_parse(argc, argv, usage, &o);
  if (code >= 0) {
    cli_options_free(&o);
    return code;
  }
  brant_error err;
  char **statements = NULL;
  size_t n = 0;
  cli_interrupt_install(true);
  char *script = cli_read_script(&o);
  code = CLI_FAILED;
  if (script != NULL && brant_split(script, &statements, &n, &err) != 0) {
    cli_print_error(err.message);
  } else if (script != NULL && n == 0) {
    cli_print_error("there is no statement to explain");
    code = CLI_USAGE;
  } else if (script != NULL && (code = cli_params_check(&o, script)) == CLI_OK) {
    code = CLI_FAILED;
    brant_session *s = cli_open(&o);
    if (s != NULL) code = explain_last(s, &o, statements, n);
    cli_interrupt_session(NULL);
    brant_close(s);
  }
  brant_free(statements);
  free(script);
  cli_options_free(&o);
  return code;
}
