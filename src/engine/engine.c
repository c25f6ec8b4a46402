/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing instances and sessions; cancel and progress.
 * Order: br_engine_open, br_session_open…close, br_engine_close. Threads: a session has one user at a time, except for
 * cancel, cancelled and progress, which any thread may call while the session lives.
 */
#include "engine/functions.h"
#include "engine/internal.h"
#include <string.h>

const char *br_engine_version(void) { return duckdb_library_version(); }

static br_status set_option(duckdb_config config, const char *name, const char *value, br_error *err) {
  if (duckdb_set_config(config, name, value) == DuckDBSuccess) return BR_OK;
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "DuckDB does not take the option %s = '%s'", name, value);
}

static br_status set_bytes(duckdb_config config, const char *name, uint64_t bytes, br_error *err) {
  char text[32];
  snprintf(text, sizeof text, "%lluB", (unsigned long long)bytes);
  return set_option(config, name, text, err);
}

static br_status configure(duckdb_config config, const br_engine_options *o, br_error *err) {
  /* Lossless: hugeint, uuid, bit and others travel as Arrow extension types; 1.5 gives decimals their own width.
   * window_self_join reads the child of a window twice, and input(k) can be read once. */
  static const char *const fixed[][2] = {
      {"autoinstall_known_extensions", "false"}, {"autoload_known_extensions", "true"},
      {"allow_unsigned_extensions", "false"},    {"arrow_lossless_conversion", "true"},
      {"arrow_output_version", "1.5"},           {"disabled_optimizers", "window_self_join"}};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) BR_TRY(set_option(config, fixed[i][0], fixed[i][1], err));
  if (o->threads) {
    char text[16];
    snprintf(text, sizeof text, "%u", o->threads);
    BR_TRY(set_option(config, "threads", text, err));
  }
  if (o->memory_bytes) BR_TRY(set_bytes(config, "memory_limit", o->memory_bytes, err));
  BR_TRY(set_option(config, "temp_directory", o->temp_dir ? o->temp_dir : "", err));
  if (o->temp_dir && o->temp_quota_bytes)
    BR_TRY(set_bytes(config, "max_temp_directory_size", o->temp_quota_bytes, err));
  if (o->extension_dir) BR_TRY(set_option(config, "extension_directory", o->extension_dir, err));
  return BR_OK;
}

br_status br_engine_open(const br_engine_options *o, br_engine **out, br_error *err) {
  br_status status = BR_OK;
  br_engine *e = br_calloc(1, sizeof *e);
  duckdb_config config = NULL;
  char *message = NULL;
  pthread_mutex_init(&e->mutex, NULL);
  br_gate_init(&e->gate);
  e->sessions = br_map_new();
  e->datasets = br_smap_new();
  e->ranges = br_file_ranges_new();
  if (duckdb_create_config(&config) != DuckDBSuccess) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "DuckDB could not make a configuration");
    goto done;
  }
  BR_TRY_GOTO(configure(config, o, err));
  if (duckdb_open_ext(NULL, &e->db, config, &message) != DuckDBSuccess) {
    status = br_fail(err, BR_INVALID, BR_BLAME_USER, "cannot start DuckDB: %s", message ? message : "no reason given");
    goto done;
  }
  if (duckdb_connect(e->db, &e->helper) != DuckDBSuccess) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "cannot connect to the DuckDB instance just started");
    goto done;
  }
  duckdb_connection_get_arrow_options(e->helper, &e->arrow);
  BR_TRY_GOTO(br_input_register(e, err));
  BR_TRY_GOTO(br_sink_register(e, err));
  BR_TRY_GOTO(br_functions_register(e, err));
  BR_TRY_GOTO(br_nodes_register(e, err));
  BR_TRY_GOTO(br_dataset_function_register(e, err));
  BR_TRY_GOTO(br_text_scan_register(e, err));
  BR_TRY_GOTO(br_file_range_register(e, err));
  *out = e;
  e = NULL;
done:
  if (message) duckdb_free(message);
  if (config) duckdb_destroy_config(&config);
  if (e) br_engine_close(e);
  return status;
}

void br_engine_close(br_engine *e) {
  if (!e) return;
  BR_ASSERT(br_map_count(e->sessions) == 0);
  if (e->arrow) duckdb_destroy_arrow_options(&e->arrow);
  if (e->helper) duckdb_disconnect(&e->helper);
  if (e->db) duckdb_close(&e->db);
  br_map_free(e->sessions);
  br_datasets_free(e);
  br_file_ranges_free(e->ranges);
  br_gate_destroy(&e->gate);
  pthread_mutex_destroy(&e->mutex);
  free(e);
}

static uint64_t context_id(duckdb_client_context context) {
  uint64_t id = duckdb_client_context_get_connection_id(context);
  duckdb_destroy_client_context(&context);
  return id;
}

br_session *br_session_of(br_engine *e, duckdb_client_context context) {
  uint64_t id = context_id(context);
  pthread_mutex_lock(&e->mutex);
  br_session *s = br_map_get(e->sessions, id);
  pthread_mutex_unlock(&e->mutex);
  return s;
}

br_status br_session_open(br_engine *e, br_session **out, br_error *err) {
  br_session *s = br_calloc(1, sizeof *s);
  s->engine = e;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_cond_init(&s->idle, NULL);
  if (duckdb_connect(e->db, &s->con) != DuckDBSuccess) {
    pthread_mutex_destroy(&s->mutex);
    free(s);
    return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR,
                   "cannot connect to DuckDB: the instance was invalidated by a fatal error");
  }
  duckdb_client_context context = NULL;
  duckdb_connection_get_client_context(s->con, &context);
  s->id = context_id(context);
  pthread_mutex_lock(&e->mutex);
  BR_ASSERT(br_map_put(e->sessions, s->id, s) == NULL);
  pthread_mutex_unlock(&e->mutex);
  /* Progress is counted, and printed nowhere. */
  duckdb_result r;
  duckdb_state state = duckdb_query(s->con,
                                    "SET enable_progress_bar_print = false; SET enable_progress_bar = true; "
                                    "SET progress_bar_time = 0",
                                    &r);
  br_status status = BR_OK;
  if (state != DuckDBSuccess) status = br_duckdb_fail(err, duckdb_result_error_type(&r), duckdb_result_error(&r));
  duckdb_destroy_result(&r);
  if (status != BR_OK) {
    br_session_close(s);
    return status;
  }
  *out = s;
  return BR_OK;
}

void br_session_close(br_session *s) {
  if (!s) return;
  pthread_mutex_lock(&s->engine->mutex);
  br_map_remove(s->engine->sessions, s->id);
  pthread_mutex_unlock(&s->engine->mutex);
  duckdb_disconnect(&s->con);
  pthread_cond_destroy(&s->idle);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

void br_session_begin(br_session *s) {
  pthread_mutex_lock(&s->mutex);
  while (s->busy) { /* one statement at a time; a thread would wait for itself for ever */
    BR_ASSERT(!pthread_equal(s->user, pthread_self()));
    pthread_cond_wait(&s->idle, &s->mutex);
  }
  s->busy = true;
  s->user = pthread_self();
  atomic_store(&s->cancelled, false);
  pthread_mutex_unlock(&s->mutex);
}

void br_session_end(br_session *s) {
  br_file_ranges_end(s->engine->ranges, s->id);
  pthread_mutex_lock(&s->mutex);
  struct br_held *held = s->held;
  s->held = NULL;
  s->busy = false;
  atomic_store(&s->cancelled, false);
  pthread_cond_signal(&s->idle);
  pthread_mutex_unlock(&s->mutex);
  br_held_free(held);
}

void br_session_cancel(br_session *s) {
  pthread_mutex_lock(&s->mutex);
  if (s->busy) {
    atomic_store(&s->cancelled, true);
    if (s->run)
      for (size_t i = 0; i < s->run->run->n_inputs; i++) {
        const br_run_input *in = &s->run->run->inputs[i];
        if (in->cancel) in->cancel(in->arg);
      }
    duckdb_interrupt(s->con);
  }
  pthread_mutex_unlock(&s->mutex);
}

bool br_session_cancelled(const br_session *s) { return atomic_load(&s->cancelled); }

/* DuckDB knows nothing of the progress of input(k): there, what was fed of what there is. */
static double inputs_progress(const br_run_ctx *c) {
  double fed = 0, all = 0;
  for (size_t i = 0; i < c->run->n_inputs; i++) {
    if (!c->run->inputs[i].rows_known) return -1;
    fed += (double)atomic_load(&c->inputs[i].rows_fed);
    all += (double)c->run->inputs[i].rows;
  }
  if (all <= 0) return -1;
  return fed < all ? fed / all : 1;
}

double br_session_progress(br_session *s) {
  double progress = -1;
  pthread_mutex_lock(&s->mutex);
  if (s->busy && s->run && s->run->run->n_inputs && s->run->inputs)
    progress = inputs_progress(s->run);
  else if (s->busy) {
    progress = duckdb_query_progress(s->con).percentage / 100;
    if (progress > 1) progress = 1;
  }
  pthread_mutex_unlock(&s->mutex);
  return progress < 0 ? -1 : progress;
}
