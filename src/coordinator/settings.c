/* SPDX-License-Identifier: Apache-2.0
 * brant_set and RESET: our own settings, and DuckDB's, which are set here and, when they may change results, on every executor
 * before a query (as its settings; a RESET travels in the prelude, since only DuckDB knows the default). The caller's thread.
 */
#include <stdlib.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"
#include "shuffle/shuffle.h"
#include "shuffle/shuffle.h"

/* ---- our own */

typedef enum setting_kind { SET_BYTES, SET_COUNT, SET_MS, SET_FLAG, SET_CODEC, SET_BACKEND, SET_DIR } setting_kind;
typedef struct own_setting {
  const char *name;
  size_t at; /* in br_settings */
  setting_kind kind;
  bool zero;            /* 0 is allowed too, below `least` */
  bool cluster;         /* of the scheduler: not to be changed once it is there */
  uint64_t least, most; /* of numbers */
} own_setting;

#define AT(field) .name = #field, .at = offsetof(br_settings, field)
#define DAY_MS 86400000ull
#define MANY_BYTES (1ull << 60)

static const own_setting own[] = {
    {AT(partitions), .kind = SET_COUNT, .zero = true, .least = 1, .most = 65536},
    {AT(broadcast_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(small_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(eager_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(sort_one_task_rows), .kind = SET_COUNT, .most = MANY_BYTES},
    {AT(split_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(filter_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(bloom_bytes), .kind = SET_BYTES, .most = 256u << 20}, /* BR_BLOOM_MAX_BLOCKS */
    {AT(bloom_keys), .kind = SET_COUNT, .most = MANY_BYTES},
    {AT(inline_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(dataset_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(two_step_aggregate), .kind = SET_FLAG},
    {AT(adaptive), .kind = SET_FLAG},
    {AT(sorted_scans), .kind = SET_FLAG},
    {AT(task_target_bytes), .kind = SET_BYTES, .most = MANY_BYTES},
    {AT(timeout_ms), .kind = SET_MS, .most = 365 * DAY_MS},
    {AT(task_passes), .kind = SET_COUNT, .most = 64},
    {.name = "shuffle_compression", .at = offsetof(br_settings, codec), .kind = SET_CODEC},
    {.name = "shuffle_backend", .at = offsetof(br_settings, files_backend), .kind = SET_BACKEND},
    {AT(shuffle_dir), .kind = SET_DIR},
    {AT(task_attempts), .kind = SET_COUNT, .cluster = true, .least = 1, .most = 100},
    {AT(task_backoff_first_ms), .kind = SET_MS, .cluster = true, .least = 1, .most = 600000},
    {AT(task_backoff_max_ms), .kind = SET_MS, .cluster = true, .least = 1, .most = 3600000},
    {AT(no_worker_ms), .kind = SET_MS, .cluster = true, .least = 100, .most = 7 * DAY_MS},
    {AT(worker_silent_ms), .kind = SET_MS, .cluster = true, .least = 1000, .most = 3600000},
    {AT(killer_executors), .kind = SET_COUNT, .cluster = true, .least = 1, .most = 100},
    {AT(cancel_ms), .kind = SET_MS, .cluster = true, .least = 100, .most = 3600000},
    {AT(probe_ms), .kind = SET_MS, .cluster = true, .least = 50, .most = 60000},
    {AT(straggler_percent), .kind = SET_COUNT, .zero = true, .cluster = true, .least = 101, .most = 1000000},
    {AT(straggler_done_percent), .kind = SET_COUNT, .cluster = true, .least = 1, .most = 100},
    {AT(straggler_min_ms), .kind = SET_MS, .cluster = true, .least = 1, .most = DAY_MS},
    {AT(split_passes), .kind = SET_COUNT, .cluster = true, .least = 2, .most = 64},
};

void br_settings_default(br_settings *s) {
  *s = (br_settings){.broadcast_bytes = 32u << 20,
                     .small_bytes = 64u << 20,
                     .sort_one_task_rows = 1000000,
                     .filter_bytes = 32u << 20,
                     .bloom_bytes = 0,
                     .bloom_keys = 200000,
                     .inline_bytes = 1u << 20,
                     .two_step_aggregate = 1,
                     .adaptive = 1,
                     .sorted_scans = 1,
                     .task_attempts = 4,
                     .task_backoff_first_ms = 200,
                     .task_backoff_max_ms = 10000,
                     .no_worker_ms = 60000,
                     .worker_silent_ms = 10000,
                     .killer_executors = 3,
                     .cancel_ms = 30000,
                     .probe_ms = 5000,
                     .straggler_percent = 150,
                     .straggler_done_percent = 75,
                     .straggler_min_ms = 2000,
                     .split_passes = 4};
  snprintf(s->codec, sizeof s->codec, "none");
}

br_sched_options br_settings_sched(const br_settings *s) {
  return (br_sched_options){.max_attempts = (uint32_t)s->task_attempts,
                            .backoff_first_ms = (uint32_t)s->task_backoff_first_ms,
                            .backoff_max_ms = (uint32_t)s->task_backoff_max_ms,
                            .no_worker_ms = (uint32_t)s->no_worker_ms,
                            .silent_ms = (uint32_t)s->worker_silent_ms,
                            .killer_executors = (uint32_t)s->killer_executors,
                            .cancel_ms = (uint32_t)s->cancel_ms,
                            .probe_ms = (uint32_t)s->probe_ms,
                            .straggler_percent = s->straggler_percent > 0 ? (uint32_t)s->straggler_percent : UINT32_MAX,
                            .straggler_done_percent = (uint32_t)s->straggler_done_percent,
                            .straggler_min_ms = (uint32_t)s->straggler_min_ms,
                            .split_passes = (uint32_t)s->split_passes};
}

static br_status set_flag(const char *name, const char *value, uint64_t *out, br_error *err) {
  static const char *const yes[] = {"true", "1", "on"}, *const no[] = {"false", "0", "off"};
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
    if (strcasecmp(value, yes[i]) != 0 && strcasecmp(value, no[i]) != 0) continue;
    *out = strcasecmp(value, yes[i]) == 0;
    return BR_OK;
  }
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is true or false, not %s", name, value);
}

static br_status set_number(const own_setting *o, const char *value, uint64_t *out, br_error *err) {
  uint64_t v = 0;
  br_error bad;
  bool number = br_parse_bytes(value, &v, &bad) == BR_OK; /* 4, 1e6, 64MiB */
  if (number && ((v == 0 && o->zero) || (v >= o->least && v <= o->most))) {
    *out = v;
    return BR_OK;
  }
  if (!number && o->kind == SET_BYTES) return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s: %s", o->name, bad.message);
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s must be %sbetween %llu and %llu%s, not %s", o->name,
                 o->zero ? "0 or " : "", (unsigned long long)o->least, (unsigned long long)o->most,
                 o->kind == SET_MS      ? " milliseconds"
                 : o->kind == SET_BYTES ? " bytes"
                                        : "",
                 value);
}

static br_status set_codec(const char *value, char out[8], br_error *err) {
  br_codec codec;
  BR_TRY(br_codec_parse(value, &codec, err));
  snprintf(out, 8, "%s", br_codec_name(codec));
  return BR_OK;
}

static br_status set_backend(const char *value, uint64_t *files, br_error *err) {
  if (strcasecmp(value, "flight") != 0 && strcasecmp(value, "files") != 0)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "shuffle_backend is flight or files, not %s", value);
  *files = strcasecmp(value, "files") == 0;
  return BR_OK;
}

static br_status set_dir(const own_setting *o, const char *value, char *out, br_error *err) {
  size_t removed = 0;
  if (*value != 0 && (*value != '/' || strlen(value) >= BR_SHUFFLE_DIR_BYTES))
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is an absolute path of less than %d bytes, not '%.200s'",
                   o->name, BR_SHUFFLE_DIR_BYTES, value);
  if (*value != 0) BR_TRY(br_files_dirs_check(value, &removed, err));
  if (removed > 0)
    br_log(BR_LOG_INFO, "%zu shuffle directories of sessions that died were removed from %s", removed, value);
  snprintf(out, BR_SHUFFLE_DIR_BYTES, "%s", value);
  return BR_OK;
}

static const own_setting *find_own(const char *name) {
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strcasecmp(name, own[i].name) == 0) return &own[i];
  return NULL;
}

static br_status check_cluster(const brant_session *s, const own_setting *o, br_error *err) {
  if (!o->cluster || s->driver == NULL) return BR_OK;
  return br_fail(err, BR_INVALID, BR_BLAME_USER,
                 "%s can be set before the first query that runs on workers: they are there now", o->name);
}

static br_status set_own(brant_session *s, const own_setting *o, const char *value, br_error *err) {
  void *to = (char *)&s->settings + o->at;
  BR_TRY(check_cluster(s, o, err));
  switch (o->kind) {
    case SET_FLAG: return set_flag(o->name, value, to, err);
    case SET_CODEC: return set_codec(value, to, err);
    case SET_BACKEND: return set_backend(value, to, err);
    case SET_DIR: return set_dir(o, value, to, err);
    case SET_BYTES:
    case SET_COUNT:
    case SET_MS: break;
  }
  return set_number(o, value, to, err);
}

static br_status reset_own(brant_session *s, const own_setting *o, br_error *err) {
  br_settings d;
  BR_TRY(check_cluster(s, o, err));
  br_settings_default(&d);
  size_t n = o->kind == SET_CODEC ? sizeof d.codec : o->kind == SET_DIR ? sizeof d.shuffle_dir : sizeof(uint64_t);
  memcpy((char *)&s->settings + o->at, (const char *)&d + o->at, n);
  return BR_OK;
}

/* ---- DuckDB's */

/* Settings of this process alone: never sent to executors. */
static bool local_setting(const char *name) {
  static const char *const names[] = {"threads",
                                      "worker_threads",
                                      "memory_limit",
                                      "max_memory",
                                      "temp_directory",
                                      "max_temp_directory_size",
                                      "disabled_optimizers",
                                      "explain_output",
                                      "enable_profiling",
                                      "profiling_mode",
                                      "profile_output",
                                      "enable_progress_bar",
                                      "enable_progress_bar_print",
                                      "preserve_insertion_order",
                                      "access_mode",
                                      "extension_directory"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcasecmp(name, names[i]) == 0) return true;
  return false;
}

/* Where names without a schema are looked for. */
static bool is_place(const char *name) {
  return strcasecmp(name, "schema") == 0 || strcasecmp(name, "search_path") == 0;
}

static char *reset_text(const char *name) {
  br_buf b = {0};
  br_buf_str(&b, "RESET ");
  br_buf_sql_ident(&b, name);
  return br_buf_take(&b);
}

/* What executors were told of it so far. */
static void forget(brant_session *s, const char *name) {
  for (size_t i = s->setting_names.count; i-- > 0;)
    if (strcasecmp(s->setting_names.items[i], name) == 0) {
      br_texts_remove(&s->setting_names, i);
      br_texts_remove(&s->setting_values, i);
    }
  char *text = reset_text(name);
  for (size_t i = s->attach.count; i-- > 0;)
    if (strcasecmp(s->attach.items[i], text) == 0) br_texts_remove(&s->attach, i);
  free(text);
}

br_status br_settings_share_zone(brant_session *s, br_error *err) {
  br_table t = {0};
  BR_TRY(br_session_table(s->db, "SELECT current_setting('TimeZone')", &t, err));
  const char *zone = t.rows > 0 ? br_table_cell(&t, 0, 0) : NULL;
  if (zone != NULL) {
    br_texts_add(&s->setting_names, "TimeZone");
    br_texts_add(&s->setting_values, zone);
  }
  br_table_free(&t);
  return BR_OK;
}

static br_status set_duckdb(brant_session *s, const char *name, const char *value, br_error *err) {
  br_buf sql = {0};
  if (strcasecmp(name, "integer_division") == 0 && strcasecmp(value, "false") != 0 && strcmp(value, "0") != 0)
    return br_fail(
        err, BR_UNSUPPORTED, BR_BLAME_USER,
        "integer_division can't be changed: DuckDB leaves it out of its plans, so a distributed / would still be a "
        "division of doubles; write // instead");
  br_buf_str(&sql, "SET ");
  br_buf_sql_ident(&sql, name);
  br_buf_str(&sql, " = ");
  br_buf_sql_literal(&sql, value, strlen(value));
  br_status status = br_session_execute(s->db, br_buf_cstr(&sql), err);
  if (status == BR_OK && is_place(name)) {
    status = br_place_note(s, br_buf_cstr(&sql), err);
  } else if (status == BR_OK && !local_setting(name)) {
    forget(s, name);
    br_texts_add(&s->setting_names, name);
    br_texts_add(&s->setting_values, value);
  }
  br_buf_free(&sql);
  return status;
}

br_status br_settings_reset(brant_session *s, const char *name, br_error *err) {
  const own_setting *o = find_own(name);
  if (o != NULL) return reset_own(s, o, err);
  char *text = reset_text(name);
  br_status status = br_session_execute(s->db, text, err);
  if (status == BR_OK && is_place(name)) {
    status = br_place_note(s, text, err);
  } else if (status == BR_OK && !local_setting(name)) {
    forget(s, name); /* an executor that ran an earlier query may still have the old value */
    br_texts_add(&s->attach, text);
  }
  free(text);
  return status;
}

int brant_set(brant_session *s, const char *name, const char *value, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  const own_setting *o = find_own(name);
  br_status status = o != NULL ? set_own(s, o, value, &e) : set_duckdb(s, name, value, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}
