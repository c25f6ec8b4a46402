/* SPDX-License-Identifier: Apache-2.0
 *
 * The binding: include/brant.h as Python types, in the limited API (one build for every Python from 3.9 on). Nothing here knows the
 * engine: Session and Query are its handles, results leave as Arrow C streams in capsules, without a copy.
 *
 * Order: Session(...) -> submit(sql) -> Query -> stream() once. A Query holds its Session.
 * Threads: the GIL is given up in every call that may wait. Calls on one session are one at a time (a lock); cancel, interrupt, close and
 * stats come from any thread. What waits in the main thread looks for Ctrl-C every SIGNAL_CHECK_MS: the work goes on in a helper
 * thread meanwhile, is cancelled on a signal, and awaited (the engine ends a cancelled query within a second).
 * Bounds: one helper thread a waiting call.
 * After a fork: threads, locks and workers of a session are the parent's. In the child its calls are errors, and nothing of it is ended.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "_read.h"
#include "brant.h"

#define SIGNAL_CHECK_MS 50

static PyObject *error_type; /* brant.Error, set by brant/errors.py through set_error_type */

typedef struct session_object {
  PyObject_HEAD brant_session *session; /* NULL: closed; under `life` */
  brant_query *persisting;              /* what a call with `lock` waits for; under `life` */
  pthread_mutex_t life;  /* held for moments: who interrupts a session knows that it's not freed meanwhile */
  pthread_mutex_t lock;  /* one call at a time; close takes it, too, so a call that has it has a session */
  PyObject *subscribers; /* list: kept as long as the session may call them */
  pid_t home;            /* the process that made it */
} session_object;

typedef struct query_object {
  PyObject_HEAD brant_query *query;
  session_object *session;
  bool interrupted; /* Ctrl-C came while it was read */
} query_object;

static PyTypeObject *session_type, *query_type;
static pthread_t main_thread; /* only there Python runs signal handlers */

/* ---- errors */

static PyObject *raise_error(const brant_error *e) {
  PyObject *type = error_type ? error_type : PyExc_RuntimeError;
  PyObject *value = error_type
                        ? PyObject_CallFunction(type, "siiiI", e->message, e->code, e->blame, e->sys_errno, e->worker)
                        : PyUnicode_FromString(e->message);
  if (value == NULL) return NULL;
  PyErr_SetObject(error_type ? (PyObject *)Py_TYPE(value) : type, value);
  Py_DECREF(value);
  return NULL;
}

static PyObject *set_error_type(PyObject *module, PyObject *type) {
  (void)module;
  Py_XDECREF(error_type);
  Py_INCREF(type);
  error_type = type;
  Py_RETURN_NONE;
}

/* ---- waiting with an ear for Ctrl-C */

typedef struct job {
  int (*work)(void *arg, brant_error *err);
  void (*stop)(void *arg); /* may be called again and again */
  void *arg;
  brant_error err;
  int status;
  bool done;
  pthread_mutex_t lock;
  pthread_cond_t ended;
} job;

static void *run_job(void *arg) {
  job *j = arg;
  int status = j->work(j->arg, &j->err);
  pthread_mutex_lock(&j->lock);
  j->status = status;
  j->done = true;
  pthread_cond_signal(&j->ended);
  pthread_mutex_unlock(&j->lock);
  return NULL;
}

static const struct timespec *in_ms(struct timespec *until, long ms) {
  clock_gettime(CLOCK_REALTIME, until);
  until->tv_nsec += ms * 1000000L;
  until->tv_sec += until->tv_nsec / 1000000000L;
  until->tv_nsec %= 1000000000L;
  return until;
}

static bool await(job *j, long ms) {
  struct timespec until;
  in_ms(&until, ms);
  pthread_mutex_lock(&j->lock);
  if (!j->done) pthread_cond_timedwait(&j->ended, &j->lock, &until);
  bool done = j->done;
  pthread_mutex_unlock(&j->lock);
  return done;
}

/* Without the GIL. Runs the work; *signalled: a signal handler raised meanwhile (its exception is set) and the work was stopped. */
static int run_waiting(job *j, bool *signalled) {
  pthread_t thread;
  *signalled = false;
  j->done = false;
  pthread_mutex_init(&j->lock, NULL);
  pthread_cond_init(&j->ended, NULL);
  if (!pthread_equal(pthread_self(), main_thread) || pthread_create(&thread, NULL, run_job, j) != 0) {
    j->status = j->work(j->arg, &j->err); /* without an ear */
  } else {
    while (!await(j, SIGNAL_CHECK_MS)) {
      PyGILState_STATE gil = PyGILState_Ensure();
      if (!*signalled && PyErr_CheckSignals() != 0)
        *signalled = true; /* in other threads than the main one it does nothing */
      PyGILState_Release(gil);
      if (*signalled) j->stop(j->arg);
    }
    pthread_join(thread, NULL);
  }
  pthread_mutex_destroy(&j->lock);
  pthread_cond_destroy(&j->ended);
  return j->status;
}

/* ---- Session */

static brant_session *session_of(session_object *s) {
  pthread_mutex_lock(&s->life);
  brant_session *session = s->session;
  pthread_mutex_unlock(&s->life);
  return session;
}

static bool is_home(const session_object *s) { return s->home == getpid(); }

static brant_error not_home(const session_object *s) {
  brant_error e = {.code = BRANT_INVALID, .blame = BRANT_BLAME_USER};
  snprintf(e.message, sizeof e.message,
           "this session belongs to process %ld, from which this one was forked: frames of the default session work in "
           "both, others need a session that is made here",
           (long)s->home);
  return e;
}

static bool opened(session_object *s) {
  if (!is_home(s)) {
    brant_error e = not_home(s);
    raise_error(&e);
    return false;
  }
  if (session_of(s) != NULL) return true;
  PyErr_SetString(PyExc_ValueError, "this session is closed");
  return false;
}

/* Without the GIL: the session for one call, until leave; NULL: another thread has closed it since `opened`. */
static brant_session *enter(session_object *s, brant_error *err) {
  pthread_mutex_lock(&s->lock);
  brant_session *session = session_of(s);
  if (session != NULL) return session;
  pthread_mutex_unlock(&s->lock);
  *err = (brant_error){.code = BRANT_INVALID, .blame = BRANT_BLAME_USER, .message = "this session is closed"};
  return NULL;
}

static void leave(session_object *s) { pthread_mutex_unlock(&s->lock); }

static void interrupt(session_object *s) {
  pthread_mutex_lock(&s->life);
  if (s->session != NULL) brant_interrupt(s->session);
  pthread_mutex_unlock(&s->life);
}

static int set_distribute(const char *text, int *out) {
  static const char *const names[] = {"auto", "always", "never"};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, names[i]) == 0) return *out = i, 0;
  PyErr_Format(PyExc_ValueError, "distribute is auto, always or never, not %s", text);
  return -1;
}

static int set_mode(const char *text, int *out) {
  static const char *const names[] = {"auto", "staged", "eager"};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, names[i]) == 0) return *out = i, 0;
  PyErr_Format(PyExc_ValueError, "mode is auto, staged or eager, not %s", text);
  return -1;
}

static PyObject *session_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  static char *names[] = {"workers",     "threads",     "memory_bytes",     "temp_dir", "mode",      "distribute",
                          "listen_host", "listen_port", "external_workers", "secret",   "executors", NULL};
  brant_options o = BRANT_OPTIONS_INIT;
  unsigned long long memory = 0;
  const char *temp = NULL, *mode = "auto", *distribute = "auto", *host = NULL, *secret = NULL;
  brant_error err;
  int status;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "|$IIKzsszIIzI", names, &o.workers, &o.threads, &memory, &temp, &mode,
                                   &distribute, &host, &o.listen_port, &o.external_workers, &secret, &o.executors))
    return NULL;
  if (set_mode(mode, &o.mode) != 0 || set_distribute(distribute, &o.distribute) != 0) return NULL;
  o.memory_bytes = memory;
  o.temp_dir = temp;
  o.listen_host = host;
  o.secret = secret;
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  session_object *s = (session_object *)alloc(type, 0);
  if (s == NULL) return NULL;
  pthread_mutex_init(&s->life, NULL);
  pthread_mutex_init(&s->lock, NULL);
  s->home = getpid();
  s->subscribers = PyList_New(0);
  Py_BEGIN_ALLOW_THREADS status = brant_open(&o, &s->session, &err);
  Py_END_ALLOW_THREADS if (status != 0) {
    s->session = NULL;
    Py_DECREF(s);
    return raise_error(&err);
  }
  return (PyObject *)s;
}

/* What another thread waits for in a call of this session is stopped. */
static void stop_call(session_object *s, brant_session *session) {
  brant_interrupt(session);
  pthread_mutex_lock(&s->life);
  brant_query_cancel(s->persisting);
  pthread_mutex_unlock(&s->life);
}

static void close_session(session_object *s) {
  struct timespec until;
  if (!is_home(s)) return;
  pthread_mutex_lock(&s->life);
  brant_session *session = s->session;
  s->session = NULL;
  pthread_mutex_unlock(&s->life);
  if (session == NULL) return;
  Py_BEGIN_ALLOW_THREADS while (pthread_mutex_timedlock(&s->lock, in_ms(&until, SIGNAL_CHECK_MS)) != 0)
      stop_call(s, session);
  brant_close(session);
  pthread_mutex_unlock(&s->lock);
  Py_END_ALLOW_THREADS
}

static PyObject *session_close(PyObject *self, PyObject *unused) {
  (void)unused;
  close_session((session_object *)self);
  Py_RETURN_NONE;
}

static void free_object(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static void session_dealloc(PyObject *self) {
  session_object *s = (session_object *)self;
  close_session(s);
  Py_XDECREF(s->subscribers);
  if (is_home(s)) {
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->life);
  }
  free_object(self);
}

static PyObject *session_set(PyObject *self, PyObject *args) {
  session_object *s = (session_object *)self;
  const char *name, *value;
  brant_error err;
  brant_session *session;
  int status = BRANT_INVALID;
  if (!PyArg_ParseTuple(args, "ss", &name, &value) || !opened(s)) return NULL;
  Py_BEGIN_ALLOW_THREADS if ((session = enter(s, &err)) != NULL) {
    status = brant_set(session, name, value, &err);
    leave(s);
  }
  Py_END_ALLOW_THREADS if (status != 0) return raise_error(&err);
  Py_RETURN_NONE;
}

typedef struct statement {
  session_object *s;
  const char *sql;
  brant_query *query;
  int analyze, json;
  char *text;
  brant_param *params;
  size_t n_params;
} statement;

static int do_submit(void *arg, brant_error *err) {
  statement *st = arg;
  brant_session *session = enter(st->s, err);
  if (session == NULL) return err->code;
  int status = brant_submit(session, st->sql, &st->query, err);
  leave(st->s);
  return status;
}

static int do_explain(void *arg, brant_error *err) {
  statement *st = arg;
  brant_session *session = enter(st->s, err);
  if (session == NULL) return err->code;
  int status = brant_explain(session, st->sql, st->analyze, st->json, &st->text, err);
  leave(st->s);
  return status;
}

/* params: a sequence of (name or None, SQL). */
static int do_bind(void *arg, brant_error *err) {
  statement *st = arg;
  brant_session *session = enter(st->s, err);
  if (session == NULL) return err->code;
  int status = brant_bind(session, st->sql, st->params, st->n_params, &st->text, err);
  leave(st->s);
  return status;
}

static void stop_statement(void *arg) { interrupt(((statement *)arg)->s); }

/* False: an exception is set. */
static bool run_statement(statement *st, int (*work)(void *, brant_error *)) {
  job j = {.work = work, .stop = stop_statement, .arg = st};
  bool signalled;
  int status;
  Py_BEGIN_ALLOW_THREADS status = run_waiting(&j, &signalled);
  Py_END_ALLOW_THREADS if (!signalled && status == 0) return true;
  if (status == 0) {
    Py_BEGIN_ALLOW_THREADS if (st->query) brant_query_cancel(st->query);
    brant_query_free(st->query);
    brant_free(st->text);
    Py_END_ALLOW_THREADS
  }
  if (!signalled) raise_error(&j.err);
  return false;
}

static PyObject *session_submit(PyObject *self, PyObject *args) {
  statement st = {.s = (session_object *)self};
  if (!PyArg_ParseTuple(args, "s", &st.sql) || !opened(st.s)) return NULL;
  if (!run_statement(&st, do_submit)) return NULL;
  allocfunc alloc = (allocfunc)PyType_GetSlot(query_type, Py_tp_alloc);
  query_object *q = (query_object *)alloc(query_type, 0);
  if (q == NULL) {
    brant_query_free(st.query);
    return NULL;
  }
  q->query = st.query;
  q->session = st.s;
  Py_INCREF(self);
  return (PyObject *)q;
}

static PyObject *session_explain(PyObject *self, PyObject *args) {
  statement st = {.s = (session_object *)self};
  if (!PyArg_ParseTuple(args, "s|pp", &st.sql, &st.analyze, &st.json) || !opened(st.s)) return NULL;
  if (!run_statement(&st, do_explain)) return NULL;
  PyObject *out = PyUnicode_FromString(st.text);
  brant_free(st.text);
  return out;
}

/* bind(sql, [(name or None, value as SQL), …]): the statement with the values in it. */
static PyObject *session_bind(PyObject *self, PyObject *args) {
  statement st = {.s = (session_object *)self};
  PyObject *list, *out = NULL;
  if (!PyArg_ParseTuple(args, "sO!", &st.sql, &PyList_Type, &list) || !opened(st.s)) return NULL;
  st.n_params = (size_t)PyList_Size(list);
  st.params = calloc(st.n_params + 1, sizeof *st.params);
  if (st.params == NULL) return PyErr_NoMemory();
  for (size_t i = 0; i < st.n_params; i++)
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "zs", &st.params[i].name, &st.params[i].value))
      goto done;
  if (run_statement(&st, do_bind)) {
    out = PyUnicode_FromString(st.text);
    brant_free(st.text);
  }
done:
  free(st.params);
  return out;
}

static PyObject *session_listen(PyObject *self, PyObject *unused) {
  session_object *s = (session_object *)self;
  brant_error err;
  brant_session *session;
  int status = BRANT_INVALID, port = 0;
  (void)unused;
  if (!opened(s)) return NULL;
  Py_BEGIN_ALLOW_THREADS if ((session = enter(s, &err)) != NULL) {
    status = brant_listen(session, &port, &err);
    leave(s);
  }
  Py_END_ALLOW_THREADS if (status != 0) return raise_error(&err);
  return PyLong_FromLong(port);
}

static PyObject *session_interrupt(PyObject *self, PyObject *unused) {
  (void)unused;
  if (is_home((session_object *)self)) interrupt((session_object *)self);
  Py_RETURN_NONE;
}

/* The engine's own thread. */
static void on_event(void *arg, const char *json) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *done = PyObject_CallFunction(arg, "s", json);
  if (done == NULL) PyErr_WriteUnraisable(arg);
  Py_XDECREF(done);
  PyGILState_Release(gil);
}

static PyObject *session_subscribe(PyObject *self, PyObject *callable) {
  session_object *s = (session_object *)self;
  brant_error err;
  brant_session *session;
  int status = BRANT_INVALID;
  if (!PyCallable_Check(callable)) {
    PyErr_SetString(PyExc_TypeError, "subscribe wants a function of one text");
    return NULL;
  }
  if (!opened(s) || PyList_Append(s->subscribers, callable) != 0) return NULL;
  Py_BEGIN_ALLOW_THREADS if ((session = enter(s, &err)) != NULL) {
    status = brant_subscribe(session, on_event, callable, &err);
    leave(s);
  }
  Py_END_ALLOW_THREADS if (status != 0) return raise_error(&err);
  Py_RETURN_NONE;
}

/* register_function(name, return_type, payload, **options): see brant_function. */
static PyObject *session_register_function(PyObject *self, PyObject *args, PyObject *kw) {
  static char *names[] = {"name",        "return_type", "payload",       "interpreter", "options_json",
                          "batch_size",  "concurrency", "cpus",          "gpus",        "memory_bytes",
                          "max_retries", "timeout_ms",  "deterministic", NULL};
  session_object *s = (session_object *)self;
  brant_function f = BRANT_FUNCTION_INIT;
  Py_ssize_t bytes = 0;
  const char *payload = NULL;
  unsigned long long memory = 0, timeout = 0;
  brant_error err;
  brant_session *session;
  int status = BRANT_INVALID;
  f.deterministic = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "ssy#|zzIIddKIKp", names, &f.name, &f.return_type, &payload, &bytes,
                                   &f.interpreter, &f.options_json, &f.batch_size, &f.concurrency, &f.cpus, &f.gpus,
                                   &memory, &f.max_retries, &timeout, &f.deterministic) ||
      !opened(s))
    return NULL;
  f.payload = payload, f.payload_bytes = (size_t)bytes;
  f.memory_bytes = memory, f.timeout_ms = timeout;
  Py_BEGIN_ALLOW_THREADS if ((session = enter(s, &err)) != NULL) {
    status = brant_register_function(session, &f, &err);
    leave(s);
  }
  Py_END_ALLOW_THREADS if (status != 0) return raise_error(&err);
  Py_RETURN_NONE;
}

static PyObject *session_drop_function(PyObject *self, PyObject *args) {
  session_object *s = (session_object *)self;
  const char *name;
  brant_error err;
  brant_session *session;
  int status = BRANT_INVALID;
  if (!PyArg_ParseTuple(args, "s", &name) || !opened(s)) return NULL;
  Py_BEGIN_ALLOW_THREADS if ((session = enter(s, &err)) != NULL) {
    status = brant_drop_function(session, name, &err);
    leave(s);
  }
  Py_END_ALLOW_THREADS if (status != 0) return raise_error(&err);
  Py_RETURN_NONE;
}

/* ---- tables from Arrow */

typedef struct given_table {
  session_object *s;
  brant_query *query; /* of persist */
  const char *name;
  struct ArrowArrayStream stream;
} given_table;

static int do_register(void *arg, brant_error *err) {
  given_table *t = arg;
  brant_session *session = enter(t->s, err);
  if (session == NULL) {
    t->stream.release(&t->stream);
    return err->code;
  }
  int status = brant_register_arrow(session, t->name, &t->stream, err);
  leave(t->s);
  return status;
}

static void set_persisting(session_object *s, brant_query *query) {
  pthread_mutex_lock(&s->life);
  s->persisting = query;
  pthread_mutex_unlock(&s->life);
}

static int do_persist(void *arg, brant_error *err) {
  given_table *t = arg;
  if (enter(t->s, err) == NULL) return err->code;
  set_persisting(t->s, t->query);
  int status = brant_query_persist(t->query, t->name, err);
  set_persisting(t->s, NULL);
  leave(t->s);
  return status;
}

static void stop_register(void *arg) { interrupt(((given_table *)arg)->s); }
static void stop_persist(void *arg) { brant_query_cancel(((given_table *)arg)->query); }

static PyObject *wait_for_table(given_table *t, int (*work)(void *, brant_error *), void (*stop)(void *)) {
  job j = {.work = work, .stop = stop, .arg = t};
  bool signalled;
  int status;
  Py_BEGIN_ALLOW_THREADS status = run_waiting(&j, &signalled);
  Py_END_ALLOW_THREADS if (signalled) return NULL;
  if (status != 0) return raise_error(&j.err);
  Py_RETURN_NONE;
}

static PyObject *session_register_arrow(PyObject *self, PyObject *args) {
  given_table t = {.s = (session_object *)self};
  PyObject *data, *capsule;
  if (!PyArg_ParseTuple(args, "sO", &t.name, &data) || !opened(t.s)) return NULL;
  if (PyCapsule_IsValid(data, "arrow_array_stream")) {
    Py_INCREF(data);
    capsule = data;
  } else {
    capsule = PyObject_CallMethod(data, "__arrow_c_stream__", NULL);
    if (capsule == NULL) return NULL;
  }
  struct ArrowArrayStream *from = PyCapsule_GetPointer(capsule, "arrow_array_stream");
  if (from != NULL && from->release == NULL) {
    PyErr_SetString(PyExc_ValueError, "this Arrow stream was taken already");
    from = NULL;
  }
  if (from == NULL) {
    Py_DECREF(capsule);
    return NULL;
  }
  t.stream = *from; /* moved: the capsule has nothing to release any more */
  from->release = NULL;
  Py_DECREF(capsule);
  return wait_for_table(&t, do_register, stop_register);
}

static PyObject *session_drop_table(PyObject *self, PyObject *args) {
  session_object *s = (session_object *)self;
  const char *name;
  brant_error err;
  brant_session *session;
  int status = BRANT_INVALID;
  if (!PyArg_ParseTuple(args, "s", &name) || !opened(s)) return NULL;
  Py_BEGIN_ALLOW_THREADS if ((session = enter(s, &err)) != NULL) {
    status = brant_drop_table(session, name, &err);
    leave(s);
  }
  Py_END_ALLOW_THREADS if (status != 0) return raise_error(&err);
  Py_RETURN_NONE;
}

static PyObject *query_persist(PyObject *self, PyObject *args) {
  query_object *q = (query_object *)self;
  given_table t = {.s = q->session, .query = q->query};
  if (!PyArg_ParseTuple(args, "s", &t.name) || !opened(t.s)) return NULL;
  return wait_for_table(&t, do_persist, stop_persist);
}

static PyMethodDef session_methods[] = {
    {"set", session_set, METH_VARARGS,
     "set(name, value): a setting of brant (docs/settings.md) or of DuckDB, as text."},
    {"submit", session_submit, METH_VARARGS, "submit(sql) -> Query: start one statement."},
    {"bind", session_bind, METH_VARARGS,
     "bind(sql, [(name or None, value as SQL), ...]) -> str: the statement with values in the place of its "
     "parameters."},
    {"explain", session_explain, METH_VARARGS,
     "explain(sql, analyze=False, json=False) -> str: the stages; analyze runs it first."},
    {"subscribe", session_subscribe, METH_O,
     "subscribe(callable): called with each event as a JSON text, from the engine's thread; return soon."},
    {"register_function", (PyCFunction)(void (*)(void))session_register_function, METH_VARARGS | METH_KEYWORDS,
     "register_function(name, return_type, payload, **options): a function of the user's, for SQL (include/brant.h)."},
    {"drop_function", session_drop_function, METH_VARARGS, "drop_function(name): new queries don't know it any more."},
    {"register_arrow", session_register_arrow, METH_VARARGS,
     "register_arrow(name, data): what data's __arrow_c_stream__ (or such a capsule) gives becomes a table of the "
     "session."},
    {"drop_table", session_drop_table, METH_VARARGS,
     "drop_table(name): forget a table that was registered or persisted."},
    {"listen", session_listen, METH_NOARGS, "listen(): let workers join from now on; returns the port."},
    {"interrupt", session_interrupt, METH_NOARGS, "interrupt(): stop the submit or explain under way. Any thread."},
    {"close", session_close, METH_NOARGS, "close(): cancel what runs, end the local workers, remove their files."},
    {NULL, NULL, 0, NULL}};

/* ---- the result as a stream that hears Ctrl-C */

typedef struct heard_stream {
  struct ArrowArrayStream inner;
  query_object *query; /* a reference */
  struct ArrowArray *into;
  char error[2048];
} heard_stream;

static int do_next(void *arg, brant_error *err) {
  heard_stream *h = arg;
  (void)err;
  return h->inner.get_next(&h->inner, h->into);
}

static void stop_stream(void *arg) { brant_query_cancel(((heard_stream *)arg)->query->query); }

static bool heard_elsewhere(heard_stream *h) {
  if (is_home(h->query->session)) return false;
  snprintf(h->error, sizeof h->error, "%s", not_home(h->query->session).message);
  return true;
}

static int heard_schema(struct ArrowArrayStream *s, struct ArrowSchema *out) {
  heard_stream *h = s->private_data;
  if (heard_elsewhere(h)) return EINVAL;
  return h->inner.get_schema(&h->inner, out);
}

static int heard_next(struct ArrowArrayStream *s, struct ArrowArray *out) {
  heard_stream *h = s->private_data;
  job j = {.work = do_next, .stop = stop_stream, .arg = h};
  bool signalled;
  if (heard_elsewhere(h)) return EINVAL;
  h->into = out;
  PyGILState_STATE state = PyGILState_Ensure(); /* who reads may hold the GIL or not: afterwards nobody here does */
  PyThreadState *saved = PyEval_SaveThread();
  int status = run_waiting(&j, &signalled);
  PyEval_RestoreThread(saved);
  PyGILState_Release(state);
  if (!signalled) return status;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyErr_Clear(); /* nobody between us and Python would carry it: whoever reads raises KeyboardInterrupt (Query.interrupted) */
  h->query->interrupted = true;
  PyGILState_Release(gil);
  if (status == 0 && out->release) out->release(out);
  snprintf(h->error, sizeof h->error, "stopped by a signal");
  return ECANCELED;
}

static const char *heard_error(struct ArrowArrayStream *s) {
  heard_stream *h = s->private_data;
  return h->error[0] ? h->error : h->inner.get_last_error(&h->inner);
}

static void heard_release(struct ArrowArrayStream *s) {
  heard_stream *h = s->private_data;
  if (is_home(h->query->session)) h->inner.release(&h->inner);
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF(h->query);
  PyGILState_Release(gil);
  free(h);
  s->release = NULL;
}

static void free_stream_capsule(PyObject *capsule) {
  struct ArrowArrayStream *s = PyCapsule_GetPointer(capsule, "arrow_array_stream");
  if (s == NULL) return;
  if (s->release) s->release(s);
  free(s);
}

/* ---- Query */

static PyObject *query_stream(PyObject *self, PyObject *args) {
  query_object *q = (query_object *)self;
  PyObject *requested = NULL;
  brant_error err;
  int status;
  if (!PyArg_ParseTuple(args, "|O", &requested)) return NULL;
  if (!is_home(q->session)) {
    err = not_home(q->session);
    return raise_error(&err);
  }
  struct ArrowArrayStream *s = calloc(1, sizeof *s);
  heard_stream *h = calloc(1, sizeof *h);
  if (s == NULL || h == NULL) {
    free(s);
    free(h);
    return PyErr_NoMemory();
  }
  Py_BEGIN_ALLOW_THREADS status = brant_query_stream(q->query, &h->inner, &err);
  Py_END_ALLOW_THREADS if (status != 0) {
    free(s);
    free(h);
    return raise_error(&err);
  }
  h->query = q;
  Py_INCREF(self);
  *s = (struct ArrowArrayStream){heard_schema, heard_next, heard_error, heard_release, h};
  PyObject *capsule = PyCapsule_New(s, "arrow_array_stream", free_stream_capsule);
  if (capsule == NULL) {
    s->release(s);
    free(s);
  }
  return capsule;
}

static PyObject *query_cancel(PyObject *self, PyObject *unused) {
  (void)unused;
  query_object *q = (query_object *)self;
  if (!is_home(q->session)) Py_RETURN_NONE;
  Py_BEGIN_ALLOW_THREADS brant_query_cancel(q->query);
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

/* Raises the query's first error, if it has one. */
static PyObject *query_check(PyObject *self, PyObject *unused) {
  (void)unused;
  query_object *q = (query_object *)self;
  brant_error err;
  if (q->interrupted) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return NULL;
  }
  if (!is_home(q->session)) {
    err = not_home(q->session);
    return raise_error(&err);
  }
  if (brant_query_error(q->query, &err) != 0) return raise_error(&err);
  Py_RETURN_NONE;
}

static PyObject *query_stats(PyObject *self, PyObject *unused) {
  (void)unused;
  brant_stats t = {.size = sizeof t};
  query_object *q = (query_object *)self;
  if (!is_home(q->session)) {
    brant_error err = not_home(q->session);
    return raise_error(&err);
  }
  brant_query_stats(q->query, &t);
  return Py_BuildValue(
      "{s:I,s:I,s:I,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:d,s:i,s:i,s:K,s:K,s:K,s:K,s:K,s:K,s:s}", "stages",
      t.stages, "stages_done", t.stages_done, "tasks", t.tasks, "tasks_done", t.tasks_done, "tasks_running",
      t.tasks_running, "rows_read", (unsigned long long)t.rows_read, "rows_out", (unsigned long long)t.rows_out,
      "rows_shuffled", (unsigned long long)t.rows_shuffled, "bytes_shuffled", (unsigned long long)t.bytes_shuffled,
      "bytes_fetched", (unsigned long long)t.bytes_fetched, "spilled_bytes", (unsigned long long)t.spilled_bytes,
      "peak_memory_bytes", (unsigned long long)t.peak_memory_bytes, "coordinator_memory_bytes",
      (unsigned long long)t.coordinator_memory_bytes, "seconds", t.seconds, "cpu_seconds", t.cpu_seconds, "distributed",
      t.distributed, "eager", t.eager, "retries", (unsigned long long)t.retries, "executors_lost",
      (unsigned long long)t.executors_lost, "workers_lost", (unsigned long long)t.workers_lost, "second_attempts",
      (unsigned long long)t.second_attempts, "outputs_lost", (unsigned long long)t.outputs_lost, "tasks_again",
      (unsigned long long)t.tasks_again, "text", t.text);
}

static void query_dealloc(PyObject *self) {
  query_object *q = (query_object *)self;
  brant_query *query = is_home(q->session) ? q->query : NULL;
  Py_BEGIN_ALLOW_THREADS brant_query_free(query);
  Py_END_ALLOW_THREADS Py_DECREF(q->session);
  free_object(self);
}

static PyMethodDef query_methods[] = {
    {"__arrow_c_stream__", query_stream, METH_VARARGS,
     "__arrow_c_stream__(requested_schema=None): the result as a PyCapsule, once; batches come as they are ready."},
    {"cancel", query_cancel, METH_NOARGS, "cancel(): stop it; any thread, any time."},
    {"check", query_check, METH_NOARGS,
     "check(): raise the query's first error, or KeyboardInterrupt if Ctrl-C stopped it."},
    {"persist", query_persist, METH_VARARGS,
     "persist(name): wait for the result and keep it where it is, on the workers, as a table of the session."},
    {"stats", query_stats, METH_NOARGS, "stats() -> dict: how far it is, or how it was (bytes, seconds). Any thread."},
    {NULL, NULL, 0, NULL}};

/* ---- the module */

static PyType_Slot session_slots[] = {
    {Py_tp_new, session_new},
    {Py_tp_dealloc, session_dealloc},
    {Py_tp_methods, session_methods},
    {Py_tp_doc,
     "One engine: Session(*, workers, threads, memory_bytes, temp_dir, mode, distribute, listen_host, listen_port,\n"
     "external_workers, secret, executors). include/brant.h says what each is; 0 and None are the defaults there."},
    {0, NULL}};
static PyType_Spec session_spec = {"brant._native.Session", sizeof(session_object), 0, Py_TPFLAGS_DEFAULT,
                                   session_slots};

static PyType_Slot query_slots[] = {{Py_tp_dealloc, query_dealloc},
                                    {Py_tp_methods, query_methods},
                                    {Py_tp_doc, "A statement under way; Session.submit makes it."},
                                    {0, NULL}};
static PyType_Spec query_spec = {"brant._native.Query", sizeof(query_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, query_slots};

static PyObject *split_script(PyObject *module, PyObject *args) {
  (void)module;
  const char *script;
  char **statements;
  size_t n;
  brant_error err;
  if (!PyArg_ParseTuple(args, "s", &script)) return NULL;
  if (brant_split(script, &statements, &n, &err) != 0) return raise_error(&err);
  PyObject *out = PyList_New((Py_ssize_t)n);
  for (size_t i = 0; out && i < n; i++) PyList_SetItem(out, (Py_ssize_t)i, PyUnicode_FromString(statements[i]));
  brant_free(statements);
  return out;
}

static PyObject *version(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return PyUnicode_FromString(brant_version());
}

static PyMethodDef module_methods[] = {
    {"read_columns", brant_read_columns, METH_O,
     "read_columns(capsule) -> (names, formats, lists of values), or None, unread, if a type is not simple."},
    {"split", split_script, METH_VARARGS, "split(script) -> list: its statements, cut at semicolons."},
    {"version", version, METH_NOARGS, "version() -> str"},
    {"set_error_type", set_error_type, METH_O,
     "set_error_type(factory): called as factory(message, code, blame, errno, worker), gives the exception to raise."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT,
                                        "brant._native",
                                        "The engine behind the package brant.",
                                        -1,
                                        module_methods,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__native(void); /* what Python looks for */
PyMODINIT_FUNC PyInit__native(void) {
  PyObject *m = PyModule_Create(&module_def);
  main_thread = pthread_self();
  if (m == NULL) return NULL;
  session_type = (PyTypeObject *)PyType_FromSpec(&session_spec);
  query_type = (PyTypeObject *)PyType_FromSpec(&query_spec);
  if (session_type == NULL || query_type == NULL || PyModule_AddObject(m, "Session", (PyObject *)session_type) != 0 ||
      PyModule_AddObject(m, "Query", (PyObject *)query_type) != 0)
    return NULL;
  Py_INCREF(session_type); /* the module has one reference, this file the other */
  Py_INCREF(query_type);
  return m;
}
