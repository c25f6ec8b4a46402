/* SPDX-License-Identifier: Apache-2.0
 * --param: values for $1, ? and $name of the statements of a script. Order: add while options are parsed, check the script, bind each
 * statement. Bounds: none of its own. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "coordinator/parameters.h"
#include "coordinator/tokens.h"

bool cli_param_add(cli_options *o, char *pair) {
  size_t n = 0;
  while (isalnum((unsigned char)pair[n]) || pair[n] == '_' || (unsigned char)pair[n] >= 0x80) n++;
  bool sql = pair[n] == ':' && pair[n + 1] == '=';
  if (n == 0 || (!sql && pair[n] != '=')) return false;
  pair[n] = 0;
  o->params = br_realloc(o->params, (o->n_params + 1) * sizeof *o->params);
  o->params[o->n_params++] =
      (brant_param){.name = pair, .type = sql ? NULL : "VARCHAR", .value = pair + n + (sql ? 2 : 1)};
  return true;
}

/* The parameters of a statement that is run as it stands; those of PREPARE get their values by EXECUTE. */
static br_status places_of(const char *sql, br_parameter **places, size_t *n, br_error *err) {
  const char *p = sql;
  *places = NULL, *n = 0;
  return br_token_take(&p, "prepare") ? BR_OK : br_parameters(sql, places, n, err);
}

static bool has(const br_parameter *places, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (strcasecmp(places[i].name, name) == 0) return true;
  return false;
}

int cli_params_check(const cli_options *o, const char *script) {
  char **statements = NULL;
  size_t n = 0;
  brant_error err;
  if (o->n_params == 0) return CLI_OK;
  if (brant_split(script, &statements, &n, &err) != 0) return cli_failed(err.message);
  bool *used = br_calloc(o->n_params, sizeof *used);
  int code = CLI_OK;
  for (size_t i = 0; i < n && code == CLI_OK; i++) {
    br_parameter *places;
    size_t n_places;
    br_error e;
    if (places_of(statements[i], &places, &n_places, &e) != BR_OK) {
      cli_print_error(e.message);
      code = CLI_FAILED;
      break;
    }
    for (size_t k = 0; k < o->n_params; k++) used[k] = used[k] || has(places, n_places, o->params[k].name);
    br_parameters_free(places, n_places);
  }
  for (size_t k = 0; k < o->n_params && code == CLI_OK; k++) {
    if (used[k]) continue;
    fprintf(stderr, "brant: error: --param %s: no statement has $%s\n", o->params[k].name, o->params[k].name);
    code = CLI_USAGE;
  }
  free(used);
  brant_free(statements);
  return code;
}

int cli_params_bind(brant_session *s, const cli_options *o, const char *sql, char **out, brant_error *err) {
  br_parameter *places;
  size_t n = 0, kept = 0;
  br_error e;
  *out = NULL;
  if (o->n_params == 0 || places_of(sql, &places, &n, &e) != BR_OK || n == 0) return CLI_OK;
  brant_param *params = br_calloc(o->n_params, sizeof *params);
  for (size_t k = 0; k < o->n_params; k++)
    if (has(places, n, o->params[k].name)) params[kept++] = o->params[k];
  int code = brant_bind(s, sql, params, kept, out, err);
  br_parameters_free(places, n);
  free(params);
  return code;
}
