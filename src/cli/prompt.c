/* SPDX-License-Identifier: Apache-2.0
 * The prompt: statements over several lines until a semicolon, history in ~/.brant_history (bounded), Ctrl-C cancels what runs
 * or clears the line, Ctrl-D ends. libedit reads the lines; without a terminal, standard input is a script. */
#include <editline/readline.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"

#define HISTORY_LINES 2000

static const char usage[] =
    "brant [options]: a prompt. Statements end with a semicolon; .help lists the dot commands.\n\n";

static const char help[] =
    ".explain select …;     the stages of a query\n"
    ".format table|csv|json how results are printed\n"
    ".stats                 a line about each run, on or off\n"
    ".quit                  the end (Ctrl-D too)\n";

static void history_path(char out[PATH_MAX]) {
  const char *home = getenv("HOME");
  snprintf(out, PATH_MAX, "%s/.brant_history", home ? home : ".");
}

static void explain(brant_session *s, const char *sql) {
  brant_error err;
  char *text = NULL;
  if (brant_explain(s, sql, 0, 0, &text, &err) != 0)
    cli_print_error(err.message);
  else
    fputs(text, stdout);
  brant_free(text);
}

/* False: the end. */
static bool dot_command(brant_session *s, cli_options *o, char *line) {
  static const char *const formats[] = {"table", "csv", "json"};
  if (strcmp(line, ".quit") == 0 || strcmp(line, ".exit") == 0) return false;
  if (strncmp(line, ".explain ", 9) == 0) {
    explain(s, line + 9);
  } else if (strcmp(line, ".stats") == 0) {
    o->stats = !o->stats;
    printf("stats are %s\n", o->stats ? "on" : "off");
  } else if (strncmp(line, ".format ", 8) == 0) {
    for (int i = 0; i < 3; i++)
      if (strcmp(line + 8, formats[i]) == 0) o->format = (cli_format)i;
  } else {
    fputs(help, stdout);
  }
  return true;
}

static bool ends_statement(const br_buf *b) {
  size_t n = b->len;
  while (n > 0 && strchr(" \t\r\n", b->data[n - 1]) != NULL) n--;
  return n > 0 && b->data[n - 1] == ';';
}

static void loop(brant_session *s, cli_options *o) {
  br_buf text = {0};
  for (;;) {
    cli_interrupt_idle(true);
    char *line = readline(text.len == 0 ? "brant> " : "  ...> ");
    cli_interrupt_idle(false);
    if (line == NULL && cli_interrupted() == CLI_SIGNAL + SIGINT) { /* Ctrl-C, and nothing runs: a new line */
      cli_interrupt_reset();
      br_buf_clear(&text);
      putchar('\n');
      continue;
    }
    if (line == NULL) break;
    if (text.len == 0 && line[0] == '.') {
      add_history(line);
      bool go_on = dot_command(s, o, line);
      free(line);
      if (!go_on) break;
      continue;
    }
    br_buf_str(&text, line);
    br_buf_char(&text, '\n');
    free(line);
    if (!ends_statement(&text)) {
      if (strspn(br_buf_cstr(&text), " \t\r\n") == text.len) br_buf_clear(&text);
      continue;
    }
    text.data[text.len - 1] = 0; /* history keeps it without the last line end */
    add_history(text.data);
    cli_interrupt_reset();
    cli_run_script(s, o, text.data);
    cli_interrupt_reset();
    br_buf_clear(&text);
  }
  br_buf_free(&text);
}

int cli_prompt(int argc, char **argv) {
  cli_options o;
  int code = cli_parse(argc, argv, usage, &o);
  if (code >= 0) {
    cli_options_free(&o);
    return code;
  }
  if (!isatty(STDIN_FILENO)) {
    cli_options_free(&o);
    return cli_sql(argc, argv);
  }
  cli_interrupt_install(false);
  brant_session *s = cli_open(&o);
  if (s == NULL) {
    cli_options_free(&o);
    return CLI_FAILED;
  }
  char path[PATH_MAX];
  history_path(path);
  using_history();
  stifle_history(HISTORY_LINES);
  read_history(path);
  printf("brant %s. Statements end with a semicolon; .help lists the dot commands.\n", brant_version());
  loop(s, &o);
  write_history(path);
  putchar('\n');
  cli_interrupt_session(NULL);
  brant_close(s);
  cli_options_free(&o);
  return CLI_OK;
}
