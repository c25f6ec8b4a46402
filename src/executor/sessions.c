/* SPDX-License-Identifier: Apache-2.0
 * DuckDB connections with a query's prelude and settings already done, kept between the tasks of that query; without a prelude, for
 * later queries with the same settings too. With the last of those that have one the attached files are closed, so that others
 * may write them between queries.
 * Order: take, run, give; drop when the query is over. Threads: any; a prelude runs under its own mutex, since two
 * connections of one instance that ATTACH the same database at once would race. Bound: BR_EXECUTOR_MAX_IDLE_SESSIONS idle ones,
 * the oldest is closed first. */
#include "executor/executor.h"

#include "base/mem.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct idle {
  uint64_t query; /* 0: any */
  bool prelude;
  char *setup; /* the statements that were run: a task with others needs another session */
  br_session *session;
} idle;

struct br_sessions {
  br_engine *engine;
  pthread_mutex_t lock, prelude_lock;
  idle idle[BR_EXECUTOR_MAX_IDLE_SESSIONS];
  size_t n_idle;        /* oldest first */
  bool attached;        /* some prelude has attached a file; as n_open */
  atomic_size_t n_open; /* of those with a prelude, who alone take prelude_lock: to attach and to detach */
};

br_sessions *br_sessions_new(br_engine *e) {
  br_sessions *s = br_calloc(1, sizeof *s);
  s->engine = e;
  pthread_mutex_init(&s->lock, NULL);
  pthread_mutex_init(&s->prelude_lock, NULL);
  return s;
}

/* Nobody has a query here: DETACH all. What can't be closed now is tried again after the next query. */
static void detach_all(br_sessions *s) {
  br_session *session = NULL;
  br_table t;
  br_error ignored;
  br_buf b = {0};
  if (br_session_open(s->engine, &session, &ignored) != BR_OK) return;
  if (br_session_table(session, "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND path IS NOT NULL",
                       &t, &ignored) == BR_OK) {
    for (size_t i = 0; i < t.rows; i++) {
      br_buf_clear(&b);
      br_buf_str(&b, "DETACH DATABASE IF EXISTS ");
      br_buf_sql_ident(&b, br_table_cell(&t, i, 0));
      br_status unused = br_session_execute(session, br_buf_cstr(&b), &ignored);
      (void)unused;
    }
    br_table_free(&t);
  }
  br_buf_free(&b);
  br_session_close(session);
}

/* The loop's thread too, which must not wait for a prelude: whoever holds the lock has a session that is counted (then that one closes
 * the files in the end), or is here, and looks again once it has let go of it. The fences: of two that meet, one sees the other. */
static void close_session(br_sessions *s, br_session *session, bool prelude) {
  br_session_close(session);
  if (!prelude || atomic_fetch_sub(&s->n_open, 1) != 1) return;
  atomic_thread_fence(memory_order_seq_cst);
  for (bool closed = false; !closed && atomic_load(&s->n_open) == 0;) {
    if (pthread_mutex_trylock(&s->prelude_lock) != 0) return;
    closed = atomic_load(&s->n_open) == 0;
    if (closed && s->attached) {
      detach_all(s);
      s->attached = false;
    }
    pthread_mutex_unlock(&s->prelude_lock);
    atomic_thread_fence(memory_order_seq_cst);
  }
}

static void idle_close(br_sessions *s, idle *i) {
  close_session(s, i->session, i->prelude);
  free(i->setup);
}

void br_sessions_free(br_sessions *s) {
  if (!s) return;
  for (size_t i = 0; i < s->n_idle; i++) idle_close(s, &s->idle[i]);
  pthread_mutex_destroy(&s->lock);
  pthread_mutex_destroy(&s->prelude_lock);
  free(s);
}

static void add_setting(br_buf *b, const Brant__Pb__Setting *set) {
  br_buf_str(b, "SET ");
  br_buf_sql_ident(b, set->name);
  br_buf_str(b, " = ");
  br_buf_sql_literal(b, set->value, strlen(set->value));
}

static char *setup_text(const Brant__Pb__Task *t) {
  br_buf b = {0};
  for (size_t i = 0; i < t->n_settings; i++) {
    add_setting(&b, t->settings[i]);
    br_buf_str(&b, ";\n");
  }
  for (size_t i = 0; i < t->n_prelude; i++) br_buf_printf(&b, "%s;\n", t->prelude[i]);
  return br_buf_take(&b);
}

/* Out of the list; the caller owns its parts. With the lock held. */
static idle remove_idle(br_sessions *s, size_t i) {
  idle found = s->idle[i];
  s->n_idle--;
  memmove(&s->idle[i], &s->idle[i + 1], (s->n_idle - i) * sizeof *s->idle);
  return found;
}

static br_session *find_idle(br_sessions *s, uint64_t query, const char *setup) {
  br_session *found = NULL;
  pthread_mutex_lock(&s->lock);
  for (size_t i = s->n_idle; i-- > 0 && !found;) {
    if ((s->idle[i].query != query && s->idle[i].query != 0) || strcmp(s->idle[i].setup, setup) != 0) continue;
    idle it = remove_idle(s, i);
    free(it.setup);
    found = it.session;
  }
  pthread_mutex_unlock(&s->lock);
  return found;
}

/* Settings before the prelude: a session's search path or time zone may matter to it. */
static br_status prepare(br_session *session, const Brant__Pb__Task *t, br_error *err) {
  br_buf b = {0};
  br_status status = BR_OK;
  for (size_t i = 0; i < t->n_settings; i++) {
    br_buf_clear(&b);
    add_setting(&b, t->settings[i]);
    status = br_session_execute(session, br_buf_cstr(&b), err);
    if (status) {
      br_error_context(err, "setting %s", t->settings[i]->name);
      goto done;
    }
  }
  for (size_t i = 0; i < t->n_prelude; i++) {
    status = br_session_execute(session, t->prelude[i], err);
    if (status) {
      br_error_context(err, "statement before the query, on an executor");
      goto done;
    }
  }
done:
  br_buf_free(&b);
  return status;
}

br_status br_sessions_take(br_sessions *s, const Brant__Pb__Task *t, br_session **out, br_error *err) {
  char *setup = setup_text(t);
  br_session *session = find_idle(s, t->id->query, setup);
  free(setup);
  if (session) {
    *out = session;
    return BR_OK;
  }
  BR_TRY(br_session_open(s->engine, &session, err));
  bool prelude = t->n_prelude > 0;
  if (prelude) {
    atomic_fetch_add(&s->n_open, 1); /* before the lock: see close_session */
    pthread_mutex_lock(&s->prelude_lock);
    s->attached = true;
  }
  br_status status = prepare(session, t, err);
  if (prelude) pthread_mutex_unlock(&s->prelude_lock);
  if (status) {
    close_session(s, session, prelude);
    return status;
  }
  *out = session;
  return BR_OK;
}

void br_sessions_give(br_sessions *s, const Brant__Pb__Task *t, br_session *session, bool reuse) {
  if (!session) return;
  if (!reuse) {
    close_session(s, session, t->n_prelude > 0);
    return;
  }
  idle oldest = {0};
  pthread_mutex_lock(&s->lock);
  if (s->n_idle == BR_EXECUTOR_MAX_IDLE_SESSIONS) oldest = remove_idle(s, 0);
  s->idle[s->n_idle++] =
      (idle){.query = t->id->query, .prelude = t->n_prelude > 0, .setup = setup_text(t), .session = session};
  pthread_mutex_unlock(&s->lock);
  if (oldest.session) idle_close(s, &oldest);
}

void br_sessions_drop(br_sessions *s, uint64_t query) {
  idle gone[BR_EXECUTOR_MAX_IDLE_SESSIONS];
  size_t n = 0;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->n_idle;) {
    if (s->idle[i].query != query)
      i++;
    else if (s->idle[i].prelude)
      gone[n++] = remove_idle(s, i);
    else
      s->idle[i++].query = 0;
  }
  pthread_mutex_unlock(&s->lock);
  for (size_t i = 0; i < n; i++) idle_close(s, &gone[i]);
}
