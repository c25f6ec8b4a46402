/* SPDX-License-Identifier: Apache-2.0
 * brant_set and RESET: our own settings, and DuckDB's, which are set here and, when they may change results, on every executor
 * before a query (as its settings; a RESET travels in the prelude, since only DuckDB knows the default). The caller's thread.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"
#include "shuffle/shuffle.h"

#define MAX_PARTITIONS 65536u

void br_settings_default(br_settings *s) {
  *s = (br_settings){.broadcast_bytes = 32u << 20,
                     .small_bytes = 64u << 20,
                     .sort_one_task_rows = 1000000,
                     .filter_bytes = 32u << 20,
                     .two_step_aggregate = true};
  snprintf(s->codec, sizeof s->codec, "none");
}

/* ---- our own */

static br_status set_bool(const char *name, const char *value, bool *out, br_error *err) {
  static const char *const yes[] = {"true", "1", "on"}, *const no[] = {"false", "0", "off"};
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
    if (strcasecmp(value, yes[i]) != 0 && strcasecmp(value, no[i]) != 0) continue;
    *out = strcasecmp(value, yes[i]) == 0;
    return BR_OK;
  }
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "%s is true or false, not %s", name, value);
}

static br_status set_partitions(const char *value, uint32_t *out, br_error *err) {
  uint64_t v = 0;
  BR_TRY(br_parse_bytes(value, &v, err));
  if (v > MAX_PARTITIONS)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "partitions must be between 0 (chosen by size) and %u, not %s",
                   MAX_PARTITIONS, value);
  *out = (uint32_t)v;
  return BR_OK;
}

static br_status set_codec(const char *value, br_settings *o, br_error *err) {
  br_codec codec;
  BR_TRY(br_codec_parse(value, &codec, err));
  snprintf(o->codec, sizeof o->codec, "%s", br_codec_name(codec));
  return BR_OK;
}

static br_status set_backend(const char *value, br_settings *o, br_error *err) {
  bool files = strcasecmp(value, br_files_backend.name) == 0;
  if (!files && strcasecmp(value, br_flight_backend.name) != 0)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "shuffle_backend is flight or files, not %s", value);
  o->files_backend = files;
  return BR_OK;
}

/* Seen to be writable here; what dead sessions left in it goes. */
static br_status set_shuffle_dir(const char *value, br_settings *o, br_error *err) {
  char *path = value[0] ? br_absolute_path(value) : br_strdup("");
  size_t removed = 0;
  br_status status = BR_OK;
  if (strlen(path) >= sizeof o->shuffle_dir)
    status =
        br_fail(err, BR_INVALID, BR_BLAME_USER, "shuffle_dir has more than %zu characters", sizeof o->shuffle_dir - 1);
  else if (path[0])
    status = br_files_dirs_check(path, &removed, err);
  if (status == BR_OK) strcpy(o->shuffle_dir, path);
  free(path);
  return status;
}

/* True: it is one of ours (set or refused in *status). */
static bool set_own(br_settings *o, const char *name, const char *value, br_status *status, br_error *err) {
  struct {
    const char *name;
    uint64_t *to;
  } sizes[] = {{"broadcast_bytes", &o->broadcast_bytes},
               {"small_bytes", &o->small_bytes},
               {"sort_one_task_rows", &o->sort_one_task_rows},
               {"split_bytes", &o->split_bytes},
               {"filter_bytes", &o->filter_bytes},
               {"timeout_ms", &o->timeout_ms}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strcasecmp(name, sizes[i].name) == 0) {
      *status = br_parse_bytes(value, sizes[i].to, err);
      return true;
    }
  if (strcasecmp(name, "partitions") == 0)
    *status = set_partitions(value, &o->partitions, err);
  else if (strcasecmp(name, "shuffle_compression") == 0)
    *status = set_codec(value, o, err);
  else if (strcasecmp(name, "two_step_aggregate") == 0)
    *status = set_bool(name, value, &o->two_step_aggregate, err);
  else if (strcasecmp(name, "shuffle_backend") == 0)
    *status = set_backend(value, o, err);
  else if (strcasecmp(name, "shuffle_dir") == 0)
    *status = set_shuffle_dir(value, o, err);
  else
    return false;
  return true;
}

static bool reset_own(br_settings *o, const char *name) {
  static const char *const flags[] = {"partitions", "shuffle_compression", "two_step_aggregate", "shuffle_backend",
                                      "shuffle_dir"};
  br_settings d;
  br_settings_default(&d);
  struct {
    const char *name;
    uint64_t *to, from;
  } sizes[] = {{"broadcast_bytes", &o->broadcast_bytes, d.broadcast_bytes},
               {"small_bytes", &o->small_bytes, d.small_bytes},
               {"sort_one_task_rows", &o->sort_one_task_rows, d.sort_one_task_rows},
               {"split_bytes", &o->split_bytes, d.split_bytes},
               {"filter_bytes", &o->filter_bytes, d.filter_bytes},
               {"timeout_ms", &o->timeout_ms, d.timeout_ms}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strcasecmp(name, sizes[i].name) == 0) {
      *sizes[i].to = sizes[i].from;
      return true;
    }
  if (strcasecmp(name, flags[0]) == 0)
    o->partitions = d.partitions;
  else if (strcasecmp(name, flags[1]) == 0)
    memcpy(o->codec, d.codec, sizeof o->codec);
  else if (strcasecmp(name, flags[2]) == 0)
    o->two_step_aggregate = d.two_step_aggregate;
  else if (strcasecmp(name, flags[3]) == 0)
    o->files_backend = d.files_backend;
  else if (strcasecmp(name, flags[4]) == 0)
    memcpy(o->shuffle_dir, d.shuffle_dir, sizeof o->shuffle_dir);
  else
    return false;
  return true;
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
  if (status == BR_OK && !local_setting(name)) {
    forget(s, name);
    br_texts_add(&s->setting_names, name);
    br_texts_add(&s->setting_values, value);
  }
  br_buf_free(&sql);
  return status;
}

br_status br_settings_reset(brant_session *s, const char *name, br_error *err) {
  if (reset_own(&s->settings, name)) return BR_OK;
  char *text = reset_text(name);
  br_status status = br_session_execute(s->db, text, err);
  if (status == BR_OK && !local_setting(name)) {
    forget(s, name); /* an executor that ran an earlier query may still have the old value */
    br_texts_add(&s->attach, text);
  }
  free(text);
  return status;
}

int brant_set(brant_session *s, const char *name, const char *value, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_status status = BR_OK;
  if (!set_own(&s->settings, name, value, &status, &e)) status = set_duckdb(s, name, value, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}
