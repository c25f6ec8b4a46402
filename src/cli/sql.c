/* SPDX-License-Identifier: Apache-2.0
 * brant sql: run statements and print what they give. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "engine/engine.h"

static const char usage[] =
    "brant sql [options] \"select …\" | --file q.sql | < q.sql\n"
    "Tables are file paths and globs ('data/*.parquet'), views made in the same script, or tables of an attached "
    "DuckDB file.\n\n";

/* What ran more than once; nothing where nothing did. */
static void print_again(const brant_stats *st) {
  if (st->retries + st->second_attempts + st->outputs_lost + st->workers_lost + st->executors_lost == 0) return;
  fprintf(stderr,
          "%llu attempts were repeated, %llu of them for outputs that were lost (%llu), %llu were second ones beside "
          "stragglers; "
          "%llu workers lost, executors under %llu tasks\n",
          (unsigned long long)st->retries, (unsigned long long)st->tasks_again, (unsigned long long)st->outputs_lost,
          (unsigned long long)st->second_attempts, (unsigned long long)st->workers_lost,
          (unsigned long long)st->executors_lost);
}

static void print_stats(brant_query *q) {
  brant_stats st = {.size = sizeof st};
  brant_query_stats(q, &st);
  char shuffled[16], fetched[16], spilled[16], peak[16], own[16];
  br_format_bytes(st.bytes_shuffled, shuffled);
  br_format_bytes(st.bytes_fetched, fetched);
  br_format_bytes(st.spilled_bytes, spilled);
  br_format_bytes(st.peak_memory_bytes, peak);
  br_format_bytes(st.coordinator_memory_bytes, own);
  if (st.distributed)
    fprintf(stderr,
            "%llu rows in %.3f s: %u stages, %u tasks, %s shuffled (%s over sockets), %s spilled, %.2f CPU s, largest "
            "worker %s, coordinator %s\n",
            (unsigned long long)st.rows_out, st.seconds, st.stages, st.tasks, shuffled, fetched, spilled,
            st.cpu_seconds, peak, own);
  else
    fprintf(stderr, "%llu rows in %.3f s in this process: %.2f CPU s, %s\n", (unsigned long long)st.rows_out,
            st.seconds, st.cpu_seconds, own);
  print_again(&st);
}

static bool is_explain(const char *sql) {
  while (*sql != 0 && br_sql_is_blank(sql)) sql = br_sql_skip(sql);
  return strncasecmp(sql, "explain", 7) == 0 && (sql[7] == '(' || (sql[7] != 0 && br_sql_is_blank(sql + 7)));
}

static int run_one(brant_session *s, const cli_options *given, const char *sql) {
  cli_options copy = *given, *o = &copy;
  copy.plain = is_explain(sql);
  brant_query *q = NULL;
  brant_error err;
  char *bound = NULL;
  if (cli_interrupted() != 0) return cli_interrupted();
  if (cli_params_bind(s, o, sql, &bound, &err) != 0) return cli_failed(err.message);
  int failed = brant_submit(s, bound != NULL ? bound : sql, &q, &err);
  brant_free(bound);
  if (failed != 0) return cli_failed(err.message);
  cli_interrupt_query(q);
  cli_progress *p = cli_progress_start(q, o->progress);
  int code = cli_print_result(s, q, o, p, &err);
  cli_progress_stop(p);
  cli_interrupt_query(NULL);
  if (code != 0) {
    code = cli_failed(err.message);
  } else if (o->stats) {
    print_stats(q);
  }
  brant_query_free(q);
  return code;
}

int cli_run_script(brant_session *s, const cli_options *o, const char *script) {
  char **statements = NULL;
  size_t n = 0;
  brant_error err;
  if (brant_split(script, &statements, &n, &err) != 0) {
    cli_print_error(err.message);
    return CLI_FAILED;
  }
  int code = CLI_OK;
  for (size_t i = 0; i < n && code == CLI_OK; i++) code = run_one(s, o, statements[i]);
  brant_free(statements);
  return code;
}

int cli_sql(int argc, char **argv) {
  cli_options o;
  int code = cli_parse(argc, argv, usage, &o);
  if (code >= 0) {
    cli_options_free(&o);
    return code;
  }
  cli_interrupt_install(true);
  char *script = cli_read_script(&o);
  int params = script ? cli_params_check(&o, script) : CLI_OK;
  brant_session *s = script && params == CLI_OK ? cli_open(&o) : NULL;
  code = s                   ? cli_run_script(s, &o, script)
         : cli_interrupted() ? cli_interrupted()
         : params == CLI_OK  ? CLI_FAILED
                             : params;
  cli_interrupt_session(NULL);
  brant_close(s);
  free(script);
  cli_options_free(&o);
  return code;
}
