/* SPDX-License-Identifier: Apache-2.0
 * What the subcommands share: options of a session, output formats, progress, Ctrl-C. One file a subcommand. */
#ifndef BRANT_CLI_CLI_H
#define BRANT_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "brant.h"

/* Exit codes. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_PIPE = 141, CLI_SIGNAL = 128 }; /* + the signal */

typedef enum cli_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON, FORMAT_ARROW } cli_format;

typedef struct cli_options {
  brant_options session;
  cli_format format;
  bool format_given;
  const char *file; /* --file */
  bool analyze, stats, quiet;
  bool no_workers; /* --workers 0: needs external ones */
  bool plain;      /* a table of lines: printed as they are */
  bool progress;   /* standard error is a terminal */
  size_t max_rows; /* of a table */
  const char **set_names, **set_values;
  size_t n_set;
  brant_param *params; /* --param */
  size_t n_params;
  char timeout_ms[24]; /* --timeout, as the setting takes it; "": none */
  const char *events;  /* file for the event stream */
  char **rest;
  int n_rest; /* positional arguments */
} cli_options;

/* Parse what follows the subcommand. usage is printed for --help (exit 0) and pointed at on errors. Returns an exit code, or
 * -1 to go on. */
int cli_parse(int argc, char **argv, const char *usage, cli_options *o);
void cli_options_free(cli_options *o);

/* The script: --file, the arguments joined, or standard input. NULL after a message. free() it. */
char *cli_read_script(const cli_options *o);
/* A session with the options applied; NULL after a message. */
brant_session *cli_open(const cli_options *o);
/* Run every statement of a script, printing results. Stops at the first failure. Returns an exit code. */
int cli_run_script(brant_session *s, const cli_options *o, const char *script);

/* "brant: error: <message>" on standard error. */
void cli_print_error(const char *message);

/* params.c: NAME=TEXT or NAME:=SQL (changed); false: neither. */
bool cli_param_add(cli_options *o, char *pair);
/* Each has a statement that wants it: an exit code, after a message. */
int cli_params_check(const cli_options *o, const char *script);
/* The statement with the values that it wants: *out NULL: it wants none; else brant_free it. Not 0: *err is filled. */
int cli_params_bind(brant_session *s, const cli_options *o, const char *sql, char **out, brant_error *err);

typedef struct cli_progress cli_progress;

/* output.c: print one result to standard output in o->format. */
int cli_print_result(brant_session *s, brant_query *q, const cli_options *o, cli_progress *p, brant_error *err);

/* progress.c: a line on standard error while a query runs; nothing unless o->progress. */
cli_progress *cli_progress_start(brant_query *q, bool wanted);
/* Rows come now: the line goes if they go to a terminal too. Any thread. NULL is fine. */
void cli_progress_hide(cli_progress *p);
void cli_progress_stop(cli_progress *p);

/* interrupt.c: Ctrl-C (SIGINT, SIGTERM) stops what the session does and cancels the query that is set here. */
void cli_interrupt_install(bool exits); /* exits: a signal ends the program, soon in any case */
void cli_interrupt_session(brant_session *s);
void cli_interrupt_query(brant_query *q); /* NULL: none */
int cli_interrupted(void);                /* the exit code of the signal that came, 0: none */
/* After a failure: what the program exits with. The message is printed, unless nobody reads standard output any more: then
 * there is no failure to tell of. */
int cli_failed(const char *message);
void cli_interrupt_reset(void);
void cli_interrupt_idle(bool is_idle); /* at the prompt: further signals don't end the program */

int cli_sql(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_worker(int argc, char **argv);
int cli_recover(int argc, char **argv);
int cli_prompt(int argc, char **argv);

#endif
