/* SPDX-License-Identifier: Apache-2.0
 * A session: its options, settings, and the caller's DuckDB. Thread, port and workers are in session_workers.c.
 * Order: brant_open, any number of statements, brant_close. The caller's thread. */
#include "coordinator/session.h"
#include "shuffle/clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/budget.h"
#include "base/mem.h"
#include "base/util.h"

#define LOCAL_MEMORY_BYTES (1ull << 30) /* hard limit of the DuckDB in the caller's process */

void br_texts_add(br_texts *t, const char *text) {
  br_grow((void **)&t->items, &t->capacity, t->count, sizeof *t->items);
  t->items[t->count++] = br_strdup(text);
}

void br_texts_free(br_texts *t) {
  for (size_t i = 0; i < t->count; i++) free(t->items[i]);
  free(t->items);
  *t = (br_texts){0};
}

void br_error_export(const br_error *from, brant_error *to) {
  memset(to, 0, sizeof *to);
  to->code = (int)from->code;
  to->blame = (int)from->blame;
  to->sys_errno = from->sys_errno;
  to->worker = from->worker;
  snprintf(to->message, sizeof to->message, "%s", from->message);
}

static void default_settings(br_settings *s) {
  *s = (br_settings){.broadcast_bytes = 32u << 20,
                     .small_bytes = 64u << 20,
                     .sort_one_task_rows = 1000000,
                     .two_step_aggregate = true};
  snprintf(s->codec, sizeof s->codec, "none");
}

/* ---- opening */

static uint32_t cores(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (uint32_t)n : 1;
}

static void fill_options(brant_session *s, const brant_options *given) {
  brant_options o = BRANT_OPTIONS_INIT;
  if (given != NULL) memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
  o.size = sizeof o;
  if (o.workers == 0 && o.external_workers == 0) o.workers = 1;
  uint32_t here = o.workers > 0 ? o.workers : 1;
  if (o.threads == 0) o.threads = cores() / here > 0 ? cores() / here : 1;
  if (o.memory_bytes == 0) o.memory_bytes = br_memory_available_bytes() * 7 / 10 / here;
  if (o.wait_workers == 0) o.wait_workers = o.workers + o.external_workers;
  const char *tmp = o.temp_dir ? o.temp_dir : getenv("TMPDIR");
  s->temp_dir = br_strdup(tmp && *tmp ? tmp : "/tmp");
  o.temp_dir = s->temp_dir;
  o.listen_host = br_strdup(o.listen_host ? o.listen_host : "127.0.0.1");
  if (o.secret == NULL && o.external_workers > 0) o.secret = getenv(BR_SECRET_ENV);
  if (o.secret != NULL && *o.secret)
    s->secret = br_strdup(o.secret);
  else if (o.external_workers == 0)
    s->secret = br_asprintf("%016llx%016llx", (unsigned long long)br_random_u64(), (unsigned long long)br_random_u64());
  o.secret = s->secret;
  s->options = o;
}

static br_status check_temp_dir(const char *dir, br_error *err) {
  br_error why;
  if (br_mkdir_p(dir, &why) != BR_OK)
    return br_fail(err, why.code, BR_BLAME_USER, "the temp directory can't be made: %s: give another with --temp-dir",
                   why.message);
  if (access(dir, W_OK | X_OK) != 0)
    return br_fail(err, BR_PERMISSION, BR_BLAME_USER,
                   "the temp directory %s can't be written: give another with --temp-dir", dir);
  return BR_OK;
}

void br_session_free(brant_session *s) {
  br_source_free(s->source);
  if (s->db != NULL) br_session_close(s->db);
  if (s->engine != NULL) br_engine_close(s->engine);
  br_events_free(s->events);
  br_texts_free(&s->attach);
  br_texts_free(&s->views);
  br_texts_free(&s->detached);
  br_texts_free(&s->setting_names);
  br_texts_free(&s->setting_values);
  free((char *)(uintptr_t)s->options.listen_host);
  free(s->temp_dir);
  free(s->secret);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

static br_status open_session(brant_session *s, br_error *err) {
  if (s->secret == NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "workers that others start need a secret that both sides know: set " BR_SECRET_ENV
                   " to the same text here and for each brant worker");
  if (s->options.workers > 0 && s->options.memory_bytes < BRANT_MEMORY_LEAST_BYTES)
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "%llu MiB of memory a worker are too few, %u MiB are needed: use fewer workers or give them more",
                   (unsigned long long)(s->options.memory_bytes >> 20), BRANT_MEMORY_LEAST_BYTES >> 20);
  BR_TRY(check_temp_dir(s->temp_dir, err));
  /* A limit, not a reservation: queries in this process are small ones by rule. */
  uint64_t available = br_memory_available_bytes() / 2;
  br_engine_options eo = {.threads = cores(),
                          .memory_bytes = available < LOCAL_MEMORY_BYTES ? available : LOCAL_MEMORY_BYTES,
                          .temp_dir = NULL,
                          .extension_dir = getenv("BRANT_EXTENSION_DIR")};
  BR_TRY(br_engine_open(&eo, &s->engine, err));
  BR_TRY(br_session_open(s->engine, &s->db, err));
  s->source = br_source_new();
  return BR_OK;
}

int brant_open(const brant_options *options, brant_session **out, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  brant_session *s = br_calloc(1, sizeof *s);
  atomic_init(&s->refs, 1);
  pthread_mutex_init(&s->lock, NULL);
  default_settings(&s->settings);
  fill_options(s, options);
  s->events = br_events_new();
  s->query_base = br_random_u64() & 0x7fffffff00000000ull; /* names directories: unique in the cluster */
  br_status status = open_session(s, &e);
  if (status != BR_OK) {
    br_error_export(&e, err);
    br_session_free(s);
    return status;
  }
  *out = s;
  return 0;
}

/* ---- settings */

static br_status set_u64(const char *value, uint64_t *out, br_error *err) { return br_parse_bytes(value, out, err); }

/* True: it is one of ours (set or refused in *status). */
static bool set_own(brant_session *s, const char *name, const char *value, br_status *status, br_error *err) {
  br_settings *o = &s->settings;
  uint64_t v = 0;
  struct {
    const char *name;
    uint64_t *to;
  } sizes[] = {{"broadcast_bytes", &o->broadcast_bytes},
               {"small_bytes", &o->small_bytes},
               {"sort_one_task_rows", &o->sort_one_task_rows},
               {"split_bytes", &o->split_bytes},
               {"timeout_ms", &o->timeout_ms}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strcasecmp(name, sizes[i].name) == 0) {
      *status = set_u64(value, sizes[i].to, err);
      return true;
    }
  if (strcasecmp(name, "partitions") == 0) {
    *status = set_u64(value, &v, err);
    if (*status == BR_OK && v > 65536)
      *status = br_fail(err, BR_INVALID, BR_BLAME_USER,
                        "partitions must be between 0 (chosen by size) and 65536, not %s", value);
    if (*status == BR_OK) o->partitions = (uint32_t)v;
    return true;
  }
  if (strcasecmp(name, "shuffle_compression") == 0) {
    br_codec codec;
    *status = br_codec_parse(value, &codec, err);
    if (*status == BR_OK) snprintf(o->codec, sizeof o->codec, "%s", br_codec_name(codec));
    return true;
  }
  if (strcasecmp(name, "two_step_aggregate") == 0) {
    o->two_step_aggregate = strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
    *status = BR_OK;
    return true;
  }
  return false;
}

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

int brant_set(brant_session *s, const char *name, const char *value, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_status status = BR_OK;
  br_buf sql = {0};
  if (set_own(s, name, value, &status, &e)) goto done;
  if (strcasecmp(name, "integer_division") == 0 && strcasecmp(value, "false") != 0 && strcmp(value, "0") != 0) {
    status = br_fail(
        &e, BR_UNSUPPORTED, BR_BLAME_USER,
        "integer_division can't be changed: DuckDB leaves it out of its plans, so a distributed / would still be a "
        "division of doubles; write // instead");
    goto done;
  }
  br_buf_str(&sql, "SET ");
  br_buf_sql_ident(&sql, name);
  br_buf_str(&sql, " = ");
  br_buf_sql_literal(&sql, value, strlen(value));
  status = br_session_execute(s->db, br_buf_cstr(&sql), &e);
  if (status == BR_OK && !local_setting(name)) {
    br_texts_add(&s->setting_names, name);
    br_texts_add(&s->setting_values, value);
  }
done:
  br_buf_free(&sql);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

int brant_subscribe(brant_session *s, brant_event_fn fn, void *arg, brant_error *err) {
  (void)err;
  br_events_subscribe(s->events, fn, arg);
  return 0;
}

const char *brant_version(void) { return BRANT_VERSION; }
void brant_free(void *p) { free(p); }

int brant_split(const char *script, char ***statements, size_t *count, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  char **texts = NULL;
  size_t *offsets = NULL, n = 0;
  br_status status = br_sql_split(script, &texts, &offsets, &n, &e);
  if (status != BR_OK) {
    br_error_export(&e, err);
    return status;
  }
  size_t bytes = (n + 1) * sizeof(char *); /* one block: the pointers, then the texts */
  for (size_t i = 0; i < n; i++) bytes += strlen(texts[i]) + 1;
  char **block = br_malloc(bytes);
  char *at = (char *)(block + n + 1);
  for (size_t i = 0; i < n; i++) {
    size_t len = strlen(texts[i]) + 1;
    memcpy(at, texts[i], len);
    block[i] = at;
    at += len;
    free(texts[i]);
  }
  block[n] = NULL;
  free(texts);
  free(offsets);
  *statements = block;
  *count = n;
  return 0;
}
