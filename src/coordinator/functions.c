/* SPDX-License-Identifier: Apache-2.0
 * Registering users' functions, and which of them a query uses.
 * Order: brant_register_function, any queries, brant_drop_function. The session's thread. Bounds: BR_FUNCTIONS_MOST registrations a
 * session, BR_FUNCTION_PAYLOAD_MOST_BYTES each. */
#include "coordinator/functions.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "coordinator/session.h"

typedef struct function {
  Brant__Pb__Function pb;
  char *name, *shown, *pool, *return_type, *interpreter, *options_json; /* shown: in messages and plans */
  br_payload *payload;
  bool dropped;
} function;

struct br_functions {
  function **items; /* in the order of ids: items[id - 1] */
  size_t n, capacity;
  _Atomic uint64_t bound;
  br_udf *live;
};

br_functions *br_functions_new(void) { return br_calloc(1, sizeof(br_functions)); }

static void forget_content(function *f) {
  free(f->return_type);
  free(f->interpreter);
  free(f->pool);
  free(f->options_json);
  br_payload_unref(f->payload);
  f->payload = NULL;
  f->return_type = f->interpreter = f->options_json = f->pool = NULL;
}

void br_functions_free(br_functions *f) {
  if (f == NULL) return;
  for (size_t i = 0; i < f->n; i++) {
    forget_content(f->items[i]);
    free(f->items[i]->name);
    free(f->items[i]->shown);
    free(f->items[i]);
  }
  free(f->items);
  free(f->live);
  free(f);
}

uint64_t br_functions_bound(const br_functions *f) { return atomic_load(&f->bound); }

const br_udf *br_functions_all(br_functions *f, size_t *n) {
  free(f->live);
  f->live = br_calloc(f->n + 1, sizeof *f->live);
  *n = 0;
  for (size_t i = 0; i < f->n; i++)
    if (!f->items[i]->dropped)
      f->live[(*n)++] = (br_udf){
          .id = f->items[i]->pb.id, .name = f->items[i]->shown, .deterministic = f->items[i]->pb.deterministic != 0};
  return f->live;
}

static function *find(const br_functions *f, const char *name) {
  for (size_t i = 0; i < f->n; i++)
    if (!f->items[i]->dropped && strcasecmp(f->items[i]->name, name) == 0) return f->items[i];
  return NULL;
}

/* ---- registering */

static br_status check_name(const char *name, br_error *err) {
  size_t n = name != NULL ? strlen(name) : 0;
  bool ok = n > 0 && n <= BR_FUNCTION_NAME_MOST_BYTES && !isdigit((unsigned char)name[0]) &&
            strncasecmp(name, BR_UDF_PREFIX, strlen(BR_UDF_PREFIX)) != 0;
  for (size_t i = 0; i < n; i++) ok = ok && (isalnum((unsigned char)name[i]) || name[i] == '_');
  if (ok) return BR_OK;
  return br_fail(
      err, BR_INVALID, BR_BLAME_USER,
      "a function's name is at most %u letters, digits and _, and starts with none of the digits: not \"%.200s\"",
      BR_FUNCTION_NAME_MOST_BYTES, name != NULL ? name : "");
}

/* A text of the options, cut after BR_FUNCTION_NAME_MOST_BYTES; otherwise if it isn't there. */
static char *option_text(const brant_function *f, const char *name, const char *otherwise) {
  json_t *options = f->options_json != NULL ? json_loads(f->options_json, 0, NULL) : NULL;
  const char *text = json_string_value(json_object_get(options, name));
  if (text == NULL || text[0] == 0) text = otherwise;
  char *out = br_strndup(text, strnlen(text, BR_FUNCTION_NAME_MOST_BYTES));
  json_decref(options);
  return out;
}

/* Its name for people: names in SQL may be made ones. */
static char *shown_name(const brant_function *f) { return option_text(f, "shown", f->name); }

static br_status check_options(const br_functions *all, const brant_function *f, const char *name, br_error *err) {
  if (f->return_type == NULL || f->return_type[0] == 0)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "function %s needs the SQL type that it returns", name);
  if (f->payload_bytes > BR_FUNCTION_PAYLOAD_MOST_BYTES)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "function %s takes %zu bytes with all that it refers to, more than %u: let it load large data "
                   "itself, from files",
                   name, f->payload_bytes, BR_FUNCTION_PAYLOAD_MOST_BYTES);
  if (f->concurrency > BR_FUNCTION_MOST_PROCESSES)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "concurrency %u of function %s is more than %u", f->concurrency,
                   name, BR_FUNCTION_MOST_PROCESSES);
  if (!(f->cpus >= 0) || !(f->gpus >= 0))
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "cpus and gpus of function %s can't be negative", name);
  if (all->n >= BR_FUNCTIONS_MOST)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "more than %u functions were registered in this session: open a new one", BR_FUNCTIONS_MOST);
  return BR_OK;
}

static br_status check(const br_functions *all, const brant_function *f, br_error *err) {
  BR_TRY(check_name(f->name, err));
  char *shown = shown_name(f);
  br_status status = check_options(all, f, shown, err);
  free(shown);
  return status;
}

/* DuckDB has functions of its own, which a macro would hide. */
static br_status check_free(brant_session *s, const char *name, br_error *err) {
  br_buf sql = {0};
  br_table t = {0};
  if (find(s->functions, name) != NULL) return BR_OK;
  br_buf_str(&sql, "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = lower(");
  br_buf_sql_literal(&sql, name, strlen(name));
  br_buf_str(&sql, ")");
  br_status status = br_session_table(s->db, br_buf_cstr(&sql), &t, err);
  if (status == BR_OK && strcmp(br_table_cell(&t, 0, 0), "0") != 0)
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "there is a function %s already: choose another name", name);
  if (t.cells != NULL || t.names != NULL) br_table_free(&t);
  br_buf_free(&sql);
  return status;
}

static char *real_name(uint64_t id) { return br_asprintf(BR_UDF_PREFIX "%llu", (unsigned long long)id); }

/* The name that people write, for every number of arguments. */
static br_status make_macro(brant_session *s, const char *name, uint64_t id, br_error *err) {
  br_buf sql = {0};
  char *real = real_name(id);
  br_buf_str(&sql, "CREATE OR REPLACE TEMP MACRO ");
  br_buf_sql_ident(&sql, name);
  for (uint32_t n = 0; n <= BR_FUNCTION_MOST_ARGUMENTS; n++) {
    br_buf_str(&sql, n > 0 ? ", (" : " (");
    for (uint32_t i = 0; i < n; i++) br_buf_printf(&sql, "%sbrant_arg%u", i > 0 ? ", " : "", i);
    br_buf_printf(&sql, ") AS %s(", real);
    for (uint32_t i = 0; i < n; i++) br_buf_printf(&sql, "%sbrant_arg%u", i > 0 ? ", " : "", i);
    br_buf_str(&sql, ")");
  }
  br_status status = br_session_execute(s->db, br_buf_cstr(&sql), err);
  free(real);
  br_buf_free(&sql);
  return status;
}

static function *new_function(const brant_function *from, uint64_t id) {
  function *f = br_calloc(1, sizeof *f);
  f->name = br_strdup(from->name);
  f->shown = shown_name(from);
  f->pool = option_text(from, "pool", "");
  f->return_type = br_strdup(from->return_type);
  f->interpreter = br_strdup(from->interpreter != NULL ? from->interpreter : "");
  f->options_json = br_strdup(from->options_json != NULL ? from->options_json : "{}");
  f->payload = br_payload_new(from->payload, from->payload_bytes);
  brant__pb__function__init(&f->pb);
  f->pb.id = id;
  f->pb.name = f->shown;
  f->pb.pool = f->pool;
  f->pb.return_type = f->return_type;
  f->pb.interpreter = f->interpreter;
  f->pb.options_json = f->options_json;
  f->pb.payload_bytes = from->payload_bytes;
  f->pb.batch_size = from->batch_size;
  f->pb.concurrency = from->concurrency;
  f->pb.cpus = from->cpus;
  f->pb.gpus = from->gpus;
  f->pb.memory_bytes = from->memory_bytes;
  f->pb.max_retries = from->max_retries;
  f->pb.timeout_ms = from->timeout_ms;
  f->pb.deterministic = from->deterministic != 0;
  return f;
}

/* Its processes go when no query calls it any more. */
static void drop(brant_session *s, function *f) {
  f->dropped = true;
  if (s->driver != NULL) br_driver_drop_function(s->driver, f->pb.id);
  forget_content(f);
}

static br_status register_function(brant_session *s, const brant_function *f, br_error *err) {
  br_functions *all = s->functions;
  uint64_t id = all->n + 1;
  BR_TRY(check(all, f, err));
  BR_TRY(check_free(s, f->name, err));
  char *real = real_name(id);
  char *shown = shown_name(f);
  char *message = br_asprintf("%s() runs in the processes of workers and can't be called here", shown);
  br_status status = br_session_plan_function(s->db, real, f->return_type, message, &all->bound, err);
  if (status != BR_OK) br_error_context(err, "function %s", shown);
  free(shown);
  free(real);
  free(message);
  BR_TRY(status);
  function *before = find(all, f->name), *now = new_function(f, id);
  br_grow((void **)&all->items, &all->capacity, all->n, sizeof *all->items);
  all->items[all->n++] = now; /* the id is taken, also if the macro fails */
  status = make_macro(s, f->name, id, err);
  if (status != BR_OK)
    drop(s, now);
  else if (before != NULL)
    drop(s, before);
  return status;
}

int brant_register_function(brant_session *s, const brant_function *function, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  brant_function f = BRANT_FUNCTION_INIT;
  memcpy(&f, function, function->size < sizeof f ? function->size : sizeof f);
  br_status status = register_function(s, &f, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

int brant_drop_function(brant_session *s, const char *name, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_status status = BR_OK;
  function *f = find(s->functions, name);
  if (f == NULL) {
    status = br_fail(&e, BR_NOT_FOUND, BR_BLAME_USER, "there is no function %.200s", name);
  } else {
    br_buf sql = {0};
    br_buf_str(&sql, "DROP MACRO IF EXISTS temp.");
    br_buf_sql_ident(&sql, f->name);
    status = br_session_execute(s->db, br_buf_cstr(&sql), &e);
    br_buf_free(&sql);
    drop(s, f);
  }
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

/* ---- a query */

static bool calls(const br_stages *stages, uint64_t id) {
  for (size_t i = 0; i < stages->n_stages; i++)
    for (size_t k = 0; k < stages->stages[i].n_steps; k++)
      for (size_t c = 0; c < stages->stages[i].steps[k].n_calls; c++)
        if (stages->stages[i].steps[k].calls[c].function == id) return true;
  return false;
}

br_status br_functions_use(brant_session *s, br_query *q, const br_stages *stages, br_error *err) {
  br_functions *all = s->functions;
  uint32_t gpus = br_driver_most_gpus(s->driver);
  q->functions = br_calloc(all->n + 1, sizeof *q->functions);
  for (size_t i = 0; i < all->n; i++) {
    const function *f = all->items[i];
    if (f->dropped || !calls(stages, f->pb.id)) continue;
    if (f->pb.gpus > gpus)
      return br_fail(err, BR_INVALID, BR_BLAME_USER,
                     "function %s wants %g GPUs a process, and no worker has more than %u (brant worker --gpus N)",
                     f->shown, f->pb.gpus, gpus);
    q->functions[q->n_functions++] = (br_query_function){.id = f->pb.id,
                                                         .batch_rows = f->pb.batch_size,
                                                         .concurrency = f->pb.concurrency,
                                                         .max_retries = f->pb.max_retries,
                                                         .timeout_ms = f->pb.timeout_ms,
                                                         .gpus = f->pb.gpus};
    br_driver_function(s->driver, &f->pb, f->payload);
  }
  return BR_OK;
}
