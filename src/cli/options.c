/* SPDX-License-Identifier: Apache-2.0
 * Options that every subcommand takes, and the session made of them. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"

#define MAX_SCRIPT_BYTES (64u << 20)

static const char common[] =
    "Options\n"
    "  --workers N            local worker processes (default 1)\n"
    "  --threads N            threads a worker (default: cores / workers)\n"
    "  --memory SIZE          memory a worker, such as 512MB or 4GiB (default: 70 % of the machine / workers)\n"
    "  --external-workers N   wait for N workers that others start: BRANT_SECRET=... brant worker --join HOST:PORT; "
    "then "
    "there are\n"
    "                         no local ones unless --workers says so\n"
    "  --listen HOST:PORT     where workers join (default 127.0.0.1 and any port)\n"
    "  --temp-dir DIR         spilling and shuffle files (default: $TMPDIR or /tmp)\n"
    "  --executors N          most tasks of a query at once, and executor processes of all local workers together\n"
    "                         (default: one executor a worker)\n"
    "  --mode auto|eager|staged\n"
    "                         staged: a stage starts when its inputs are complete; eager: it reads while they are "
    "written;\n"
    "                         auto: staged where stages are planned again with true sizes (adaptive), else eager\n"
    "                         when the inputs fit into half of the workers' memory (eager_bytes)\n"
    "  --timeout TIME         a query that has not ended by then fails: 500ms, 30s, 5m, 1h (default: none)\n"
    "  --distribute auto|always|never\n"
    "                         auto: inputs below small_bytes (64 MiB) run in this process; always: even tiny ones go "
    "through\n"
    "                         stages and workers\n"
    "  --format table|csv|json|arrow\n"
    "                         json: one object a line; arrow: an IPC stream (default: table)\n"
    "  --set NAME=VALUE       a setting of brant (docs/settings.md) or of DuckDB; may be repeated\n"
    "  --param NAME=TEXT      a value for $NAME in the statements, or for $1 and ? if NAME is a number; taken as the "
    "type\n"
    "                         that its place wants. NAME:=SQL: an expression, such as d:=\"DATE '2024-01-01'\". May be "
    "repeated\n"
    "  --file FILE            read the statements from a file\n"
    "  --max-rows N           rows shown of a table (default 200; 0: all)\n"
    "  --stats                a line about the run on standard error\n"
    "  --events FILE          write the event stream, one JSON object a line\n"
    "  --no-progress          no progress line, also on a terminal\n";

enum {
  OPT_WORKERS = 256,
  OPT_THREADS,
  OPT_MEMORY,
  OPT_TEMP,
  OPT_MODE,
  OPT_DISTRIBUTE,
  OPT_FORMAT,
  OPT_SET,
  OPT_PARAM,
  OPT_FILE,
  OPT_ROWS,
  OPT_STATS,
  OPT_EVENTS,
  OPT_QUIET,
  OPT_ANALYZE,
  OPT_LISTEN,
  OPT_EXTERNAL,
  OPT_EXECUTORS,
  OPT_TIMEOUT,
  OPT_HELP
};

static const struct option longs[] = {{"workers", 1, NULL, OPT_WORKERS},
                                      {"threads", 1, NULL, OPT_THREADS},
                                      {"memory", 1, NULL, OPT_MEMORY},
                                      {"temp-dir", 1, NULL, OPT_TEMP},
                                      {"mode", 1, NULL, OPT_MODE},
                                      {"distribute", 1, NULL, OPT_DISTRIBUTE},
                                      {"format", 1, NULL, OPT_FORMAT},
                                      {"set", 1, NULL, OPT_SET},
                                      {"file", 1, NULL, OPT_FILE},
                                      {"max-rows", 1, NULL, OPT_ROWS},
                                      {"stats", 0, NULL, OPT_STATS},
                                      {"events", 1, NULL, OPT_EVENTS},
                                      {"no-progress", 0, NULL, OPT_QUIET},
                                      {"analyze", 0, NULL, OPT_ANALYZE},
                                      {"listen", 1, NULL, OPT_LISTEN},
                                      {"external-workers", 1, NULL, OPT_EXTERNAL},
                                      {"executors", 1, NULL, OPT_EXECUTORS},
                                      {"timeout", 1, NULL, OPT_TIMEOUT},
                                      {"param", 1, NULL, OPT_PARAM},
                                      {"help", 0, NULL, OPT_HELP},
                                      {NULL, 0, NULL, 0}};

void cli_print_error(const char *message) { fprintf(stderr, "brant: error: %s\n", message); }

static int usage_error(const char *what, const char *value) {
  fprintf(stderr, "brant: error: %s%s%s (see --help)\n", what, value ? ": " : "", value ? value : "");
  return CLI_USAGE;
}

/* A number from 1 to most. */
static bool number(const char *text, unsigned long most, unsigned long *out) {
  char *end = NULL;
  errno = 0;
  *out = strtoul(text, &end, 10);
  return errno == 0 && end != text && *end == 0 && *out <= most && text[0] != '-';
}

static int choose(const char *text, const char *const *names, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(text, names[i]) == 0) return i;
  return -1;
}

static int add_setting(cli_options *o, char *pair) {
  char *eq = strchr(pair, '=');
  if (eq == NULL || eq == pair) return usage_error("--set wants NAME=VALUE, not", pair);
  *eq = 0;
  o->set_names = br_realloc(o->set_names, (o->n_set + 1) * sizeof *o->set_names);
  o->set_values = br_realloc(o->set_values, (o->n_set + 1) * sizeof *o->set_values);
  o->set_names[o->n_set] = pair;
  o->set_values[o->n_set++] = eq + 1;
  return -1;
}

static int set_mode(cli_options *o, const char *v) {
  static const char *const names[] = {"auto", "staged", "eager"}; /* enum brant_mode */
  int i = choose(v, names, 3);
  if (i < 0) return usage_error("--mode is auto, eager or staged, not", v);
  o->session.mode = i;
  return -1;
}

static int set_timeout(cli_options *o, const char *v) {
  static const struct {
    const char *unit;
    double ms;
  } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
  char *end = NULL;
  double n = strtod(v, &end);
  for (size_t i = 0; end != v && i < sizeof units / sizeof *units; i++)
    if (strcmp(end, units[i].unit) == 0 && n * units[i].ms >= 1 && n * units[i].ms < 1e10) {
      snprintf(o->timeout_ms, sizeof o->timeout_ms, "%.0f", n * units[i].ms);
      return -1;
    }
  return usage_error("--timeout wants a time with its unit, such as 500ms, 30s, 5m or 1h, not", v);
}

static int set_format(cli_options *o, const char *v) {
  static const char *const names[] = {"table", "csv", "json", "arrow"};
  int i = choose(v, names, 4);
  if (i < 0) return usage_error("--format is table, csv, json or arrow, not", v);
  o->format = (cli_format)i;
  o->format_given = true;
  return -1;
}

static int set_memory(const char *v, uint64_t *out) {
  br_error err;
  if (br_parse_bytes(v, out, &err) != BR_OK) {
    br_error_context(&err, "--memory");
    return usage_error(err.message, NULL);
  }
  if (*out < BRANT_MEMORY_LEAST_BYTES) return usage_error("--memory must be at least 128MiB a worker, not", v);
  return -1;
}

static int set_listen(cli_options *o, char *v) {
  char *colon = strrchr(v, ':');
  unsigned long port = 0;
  if (colon == NULL || !number(colon + 1, 65535, &port)) return usage_error("--listen wants HOST:PORT, not", v);
  *colon = 0;
  if (*v == '[' && colon > v && colon[-1] == ']') { /* IPv6 */
    colon[-1] = 0;
    v++;
  }
  o->session.listen_host = v;
  o->session.listen_port = (int)port;
  return -1;
}

static int one_option(cli_options *o, int c, char *v, const char *usage) {
  static const char *const distribute[] = {"auto", "always", "never"};
  unsigned long n = 0;
  switch (c) {
    case OPT_WORKERS:
      if (!number(v, 1024, &n)) return usage_error("--workers wants a number from 1 to 1024, not", v);
      o->session.workers = (uint32_t)n;
      o->no_workers = n == 0;
      return -1;
    case OPT_EXTERNAL:
      if (!number(v, 4096, &n) || n == 0)
        return usage_error("--external-workers wants a number from 1 to 4096, not", v);
      o->session.external_workers = (uint32_t)n;
      return -1;
    case OPT_THREADS:
      if (!number(v, 1024, &n) || n == 0) return usage_error("--threads wants a number from 1 to 1024, not", v);
      o->session.threads = (uint32_t)n;
      return -1;
    case OPT_MEMORY: return set_memory(v, &o->session.memory_bytes);
    case OPT_EXECUTORS:
      if (!number(v, 4096, &n) || n == 0) return usage_error("--executors wants a number from 1 to 4096, not", v);
      o->session.executors = (uint32_t)n;
      return -1;
    case OPT_TIMEOUT: return set_timeout(o, v);
    case OPT_TEMP: o->session.temp_dir = v; return -1;
    case OPT_MODE: return set_mode(o, v);
    case OPT_DISTRIBUTE:
      o->session.distribute = choose(v, distribute, 3);
      return o->session.distribute < 0 ? usage_error("--distribute is auto, always or never, not", v) : -1;
    case OPT_FORMAT: return set_format(o, v);
    case OPT_SET: return add_setting(o, v);
    case OPT_PARAM: return cli_param_add(o, v) ? -1 : usage_error("--param wants NAME=TEXT or NAME:=SQL, not", v);
    case OPT_FILE: o->file = v; return -1;
    case OPT_ROWS:
      if (!number(v, 1000000000, &n)) return usage_error("--max-rows wants a number, not", v);
      o->max_rows = n;
      return -1;
    case OPT_STATS: o->stats = true; return -1;
    case OPT_EVENTS: o->events = v; return -1;
    case OPT_QUIET: o->progress = false; return -1;
    case OPT_ANALYZE: o->analyze = true; return -1;
    case OPT_LISTEN: return set_listen(o, v);
    case OPT_HELP:
      fputs(usage, stdout);
      fputs(common, stdout);
      return CLI_OK;
    default: return CLI_USAGE;
  }
}

int cli_parse(int argc, char **argv, const char *usage, cli_options *o) {
  *o = (cli_options){.session = BRANT_OPTIONS_INIT, .max_rows = 200, .progress = isatty(STDERR_FILENO) == 1};
  optind = 1;
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":", longs, NULL)) != -1;) {
    if (c == ':') return usage_error("this option wants a value", argv[optind - 1]);
    if (c == '?') return usage_error("there is no such option", argv[optind - 1]);
    int code = one_option(o, c, optarg, usage);
    if (code >= 0) return code;
  }
  if (o->no_workers && o->session.external_workers == 0)
    return usage_error("--workers 0 leaves nobody to run a query: give --external-workers N, or --distribute never",
                       NULL);
  o->rest = argv + optind;
  o->n_rest = argc - optind;
  return -1;
}

void cli_options_free(cli_options *o) {
  free(o->set_names);
  free(o->set_values);
  free(o->params);
}

static char *read_all(FILE *f, const char *name) {
  br_buf b = {0};
  char chunk[65536];
  size_t n = 0;
  while ((n = fread(chunk, 1, sizeof chunk, f)) > 0 && b.len <= MAX_SCRIPT_BYTES) br_buf_add(&b, chunk, n);
  if (ferror(f) || b.len > MAX_SCRIPT_BYTES) {
    if (cli_interrupted() == 0)
      fprintf(stderr, "brant: error: cannot read %s: %s\n", name,
              ferror(f) ? strerror(errno) : "it is larger than 64 MiB");
    br_buf_free(&b);
    return NULL;
  }
  return br_buf_take(&b);
}

char *cli_read_script(const cli_options *o) {
  if (o->file != NULL) {
    FILE *f = fopen(o->file, "re");
    if (f == NULL) {
      fprintf(stderr, "brant: error: cannot open %s: %s\n", o->file, strerror(errno));
      return NULL;
    }
    char *text = read_all(f, o->file);
    fclose(f);
    return text;
  }
  if (o->n_rest == 0) return read_all(stdin, "standard input");
  br_buf b = {0};
  for (int i = 0; i < o->n_rest; i++) {
    if (i > 0) br_buf_str(&b, "; ");
    br_buf_str(&b, o->rest[i]);
  }
  return br_buf_take(&b);
}

static void write_event(void *arg, const char *json) {
  FILE *f = arg;
  fprintf(f, "%s\n", json);
  fflush(f);
}

static bool subscribe(brant_session *s, const char *path, brant_error *err) {
  FILE *f = fopen(path, "we"); /* stays open until the program ends: events come to the last */
  if (f == NULL) {
    snprintf(err->message, sizeof err->message, "cannot write %s: %s", path, strerror(errno));
    return false;
  }
  return brant_subscribe(s, write_event, f, err) == 0;
}

brant_session *cli_open(const cli_options *o) {
  brant_session *s = NULL;
  brant_error err;
  if (brant_open(&o->session, &s, &err) != 0) {
    cli_print_error(err.message);
    return NULL;
  }
  bool ok = o->events == NULL || subscribe(s, o->events, &err);
  if (ok && o->timeout_ms[0]) ok = brant_set(s, "timeout_ms", o->timeout_ms, &err) == 0;
  for (size_t i = 0; ok && i < o->n_set; i++) ok = brant_set(s, o->set_names[i], o->set_values[i], &err) == 0;
  if (ok) {
    cli_interrupt_session(s);
    return s;
  }
  cli_print_error(err.message);
  brant_close(s);
  return NULL;
}
