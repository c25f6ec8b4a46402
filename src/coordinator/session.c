/* SPDX-License-Identifier: Apache-2.0
 * A session: its options, settings, and the caller's DuckDB. Thread, port and workers are in session_workers.c.
 * Order: brant_open, any number of statements, brant_close. The caller's thread. */
#include "coordinator/session.h"
#include "shuffle/clients.h"
#include "shuffle/shuffle.h"

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

void br_texts_remove(br_texts *t, size_t i) {
  free(t->items[i]);
  memmove(&t->items[i], &t->items[i + 1], (--t->count - i) * sizeof *t->items);
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

/* ---- opening */

static uint32_t cores(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (uint32_t)n : 1;
}

/* Workers that are started later must mean the same directory. */
static char *absolute(const char *dir) {
  char *cwd = dir[0] != '/' ? getcwd(NULL, 0) : NULL;
  char *out = cwd ? br_asprintf("%s/%s", cwd, dir) : br_strdup(dir);
  free(cwd);
  return out;
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
  s->temp_dir = absolute(tmp && *tmp ? tmp : "/tmp");
  o.temp_dir = s->temp_dir;
  o.listen_host = br_strdup(o.listen_host ? o.listen_host : "127.0.0.1");
  if (o.secret == NULL) o.secret = getenv(BR_SECRET_ENV);
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
  if (s->store != NULL) br_store_free(s->store);
  if (s->store_dir != NULL) rmdir(s->store_dir);
  free(s->store_dir);
  free(s->datasets);
  br_source_free(s->source);
  if (s->db != NULL) br_session_close(s->db);
  if (s->engine != NULL) br_engine_close(s->engine);
  br_functions_free(s->functions);
  br_events_free(s->events);
  br_texts_free(&s->attach);
  br_texts_free(&s->views);
  br_texts_free(&s->variable_names);
  br_texts_free(&s->variable_texts);
  br_texts_free(&s->schemas);
  br_texts_free(&s->detached);
  free(s->use);
  br_texts_free(&s->writable);
  br_texts_free(&s->prepared_names);
  br_texts_free(&s->prepared_texts);
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
  br_engine_options eo = {
      .threads = cores() > 2 ? cores() : 2, /* DuckDB never ends some ASOF joins on one (docs/plan-json.md) */
      .memory_bytes = available < LOCAL_MEMORY_BYTES ? available : LOCAL_MEMORY_BYTES,
      .temp_dir = NULL,
      .extension_dir = getenv("BRANT_EXTENSION_DIR")};
  BR_TRY(br_engine_open(&eo, &s->engine, err));
  BR_TRY(br_session_open(s->engine, &s->db, err));
  BR_TRY(br_settings_share_zone(s, err));
  s->source = br_source_new();
  s->functions = br_functions_new();
  return BR_OK;
}

int brant_open(const brant_options *options, brant_session **out, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  brant_session *s = br_calloc(1, sizeof *s);
  atomic_init(&s->refs, 1);
  pthread_mutex_init(&s->lock, NULL);
  br_settings_default(&s->settings);
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

br_status br_session_at_home(brant_session *s, char **path, br_error *err) {
  br_table t;
  char *given = *path;
  if (given[0] != '~' || (given[1] != '/' && given[1] != 0)) return BR_OK;
  BR_TRY(br_session_table(s->db, "SELECT current_setting('home_directory')", &t, err));
  const char *home = t.rows > 0 ? br_table_cell(&t, 0, 0) : NULL;
  if (home == NULL || home[0] == 0) home = getenv("HOME");
  if (home != NULL && home[0] != 0) {
    *path = br_asprintf("%s%s", home, given + 1);
    free(given);
  }
  br_table_free(&t);
  return BR_OK;
}
