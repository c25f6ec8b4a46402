/* SPDX-License-Identifier: Apache-2.0
 * The executor's main thread: channel in, channel out, reservations, ticks.
 * Order: setup comes first and once, answered by ready; then run, cancel, outputs, drops in any order; shutdown or the end of
 * the channel ends the process. Threads: the main one runs the loop; tasks send events and wait for reservations. Nothing here
 * waits, but a task's thread for its reservation: BR_EXECUTOR_RESERVE_WAIT_MS. With a task in the middle of DuckDB the process
 * leaves by _exit: all that it holds (descriptors, memory, files in its own directory) is the kernel's or the worker's to clean. */
#include "executor/function_link.h"

#include "base/blocks.h"
#include "base/budget.h"
#include "base/mem.h"
#include "base/util.h"
#include "shuffle/clients.h"
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct br_waiter {
  struct br_waiter *next;
  uint64_t request;
  bool answered, granted;
} br_waiter;

/* ---- events to the worker */

void br_executor_send(br_executor *x, const Brant__Pb__ExecutorEvent *e, const int *fds, int n_fds) {
  br_buf b = {0};
  br_pb_pack(&e->base, &b);
  br_channel_send(x->channel, b.data, b.len, fds, n_fds);
  br_buf_free(&b);
}

void br_executor_send_failed(br_executor *x, const br_attempt_id *id, const br_error *why) {
  Brant__Pb__AttemptId pid;
  br_attempt_to_pb(id, &pid);
  Brant__Pb__TaskFailed failed = BRANT__PB__TASK_FAILED__INIT;
  failed.id = &pid;
  failed.error = br_error_to_pb(why);
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_FAILED;
  e.failed = &failed;
  br_executor_send(x, &e, NULL, 0);
  brant__pb__error__free_unpacked(failed.error, NULL);
}

/* ---- reservations */

static struct timespec monotonic_in(uint64_t ms) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  ts.tv_sec += (time_t)(ms / 1000);
  ts.tv_nsec += (long)(ms % 1000) * 1000000;
  if (ts.tv_nsec >= 1000000000) ts.tv_sec++, ts.tv_nsec -= 1000000000;
  return ts;
}

static void unlink_waiter(br_executor *x, br_waiter *w) {
  for (br_waiter **p = &x->waiters; *p; p = &(*p)->next) {
    if (*p != w) continue;
    *p = w->next;
    return;
  }
}

bool br_executor_reserve(void *task, uint64_t bytes) {
  br_etask *t = task;
  br_executor *x = t->x;
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t->id, &id);
  Brant__Pb__Reserve r = BRANT__PB__RESERVE__INIT;
  r.id = &id, r.bytes = bytes;
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_RESERVE;
  e.reserve = &r;
  br_waiter w = {0};
  struct timespec until = monotonic_in(BR_EXECUTOR_RESERVE_WAIT_MS);
  pthread_mutex_lock(&x->lock);
  r.request = w.request = ++x->last_request;
  w.next = x->waiters;
  x->waiters = &w;
  br_executor_send(x, &e, NULL, 0);
  while (!w.answered && !atomic_load(&t->cancelled))
    if (pthread_cond_timedwait(&x->answered, &x->lock, &until) == ETIMEDOUT) break;
  unlink_waiter(x, &w);
  pthread_mutex_unlock(&x->lock);
  return w.answered && w.granted; /* a grant that comes too late is the worker's to settle when the attempt ends */
}

static void on_reserved(br_executor *x, const Brant__Pb__ReserveReply *r) {
  pthread_mutex_lock(&x->lock);
  for (br_waiter *w = x->waiters; w; w = w->next) {
    if (w->request != r->request) continue;
    w->answered = true;
    w->granted = r->granted;
  }
  pthread_cond_broadcast(&x->answered);
  pthread_mutex_unlock(&x->lock);
}

void br_executor_wake_waiters(br_executor *x) {
  pthread_mutex_lock(&x->lock);
  pthread_cond_broadcast(&x->answered);
  pthread_mutex_unlock(&x->lock);
}

/* ---- the end */

static bool idle(const br_executor *x) {
  for (size_t i = 0; i < BR_EXECUTOR_MAX_TASKS; i++)
    if (x->tasks[i]) return false;
  return true;
}

static void leave(br_executor *x, const br_error *why) {
  if (why && why->code && !x->failure.code) {
    x->failure = *why;
    br_log(BR_LOG_ERROR, "%s", why->message);
  }
  x->leaving = true;
  if (!idle(x)) _exit(x->failure.code ? 1 : 0);
  br_loop_stop(x->loop);
}

/* What tasks took is another process's now. As long as tasks follow each other, only when it is much: the next one would ask for
 * the same pages again. All of it (blocks, threads) when nothing has run for a while. */
static void trim(br_executor *x) {
  bool cold = idle(x) && br_now_ms() - x->ended_ms >= BR_EXECUTOR_COLD_MS;
  if (cold) {
    br_blocks_trim();
    br_threads_trim(x->threads);
    x->warm = false;
  }
  if (cold || mallinfo2().fordblks > x->freed_bytes + x->allocator_keeps_bytes) {
    malloc_trim(0);
    x->freed_bytes = mallinfo2().fordblks; /* it counts what went back page by page, too */
  }
  x->trimmed_ms = br_now_ms();
  x->trim_due = false;
}

void br_executor_task_ended(void *task) {
  br_etask *t = task;
  br_executor *x = t->x;
  for (size_t i = 0; i < BR_EXECUTOR_MAX_TASKS; i++)
    if (x->tasks[i] == t) x->tasks[i] = NULL;
  pthread_mutex_destroy(&t->lock);
  protobuf_c_message_free_unpacked(t->message, NULL);
  free(t);
  x->ended_ms = br_now_ms();
  x->warm = true;
  if (x->ended_ms - x->trimmed_ms >= BR_EXECUTOR_TRIM_MS)
    trim(x);
  else
    x->trim_due = true;
}

/* An event without content, so that the worker can tell a stopped process from one that has nothing to say. */
static void send_alive(br_executor *x) {
  uint64_t now = br_now_ms();
  if (!x->ready || now - x->alive_ms < BR_EXECUTOR_ALIVE_MS) return;
  x->alive_ms = now;
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  br_executor_send(x, &e, NULL, 0);
}

static void on_tick(void *arg) {
  br_executor *x = arg;
  send_alive(x);
  for (size_t i = 0; i < BR_EXECUTOR_MAX_TASKS; i++)
    if (x->tasks[i]) br_etask_progress(x->tasks[i]);
  if ((x->trim_due && br_now_ms() - x->trimmed_ms >= BR_EXECUTOR_TRIM_MS) ||
      (x->warm && idle(x) && br_now_ms() - x->ended_ms >= BR_EXECUTOR_COLD_MS))
    trim(x);
  if (!atomic_load(&x->broken)) return;
  if (!x->broken_since_ms) x->broken_since_ms = br_now_ms();
  if (br_now_ms() - x->broken_since_ms < BR_EXECUTOR_BROKEN_EXIT_MS) return;
  br_log(BR_LOG_ERROR, "DuckDB reported an internal error: this executor ends");
  _exit(1);
}

/* ---- commands */

/* DuckDB's allocator keeps what was freed, by default 128 MiB a thread: more than a small executor has. */
static br_status limit_allocator(br_executor *x, uint64_t memory_bytes, br_error *err) {
  uint64_t keep = memory_bytes / BR_EXECUTOR_ALLOCATOR_SHARE;
  if (keep > BR_EXECUTOR_ALLOCATOR_MOST_BYTES) keep = BR_EXECUTOR_ALLOCATOR_MOST_BYTES;
  x->allocator_keeps_bytes = keep;
  static const char *const names[] = {"allocator_flush_threshold", "allocator_bulk_deallocation_flush_threshold"};
  br_session *s = NULL;
  br_status status = BR_OK;
  BR_TRY(br_session_open(x->engine, &s, err));
  for (size_t i = 0; i < sizeof names / sizeof *names && status == BR_OK; i++) {
    char sql[128];
    snprintf(sql, sizeof sql, "SET GLOBAL %s = '%" PRIu64 "B'", names[i], keep);
    status = br_session_execute(s, sql, err);
  }
  br_session_close(s);
  return status;
}

/* Within what the tasks' map outputs may take anyway. */
static void keep_blocks(const Brant__Pb__ExecutorSetup *s) {
  uint64_t bytes = s->scatter_buffer_bytes < BR_EXECUTOR_KEPT_BYTES ? s->scatter_buffer_bytes : BR_EXECUTOR_KEPT_BYTES;
  br_blocks_keep(bytes * (s->slots > 0 ? s->slots : 1));
}

static br_status on_setup(br_executor *x, const Brant__Pb__ExecutorSetup *s, br_error *err) {
  if (x->ready) return br_fail(err, BR_CORRUPT, BR_BLAME_EXECUTOR, "the worker sent a second setup");
  br_log_set_name("executor", s->worker);
  x->worker = s->worker;
  x->temp_dir = br_strdup(s->temp_dir);
  x->shuffle_dir = br_strdup(s->shuffle_dir);
  x->secret = br_strdup(s->secret);
  x->read_buffer_bytes = s->read_buffer_bytes;
  x->scatter_buffer_bytes = s->scatter_buffer_bytes;
  keep_blocks(s);
  x->peer_silent_ms = br_reader_silent_ms(s->silent_ms);
  char *spill = br_asprintf("%s/duckdb", s->temp_dir);
  br_engine_options o = {.threads = s->threads,
                         .memory_bytes = s->duckdb_memory_bytes,
                         .temp_quota_bytes = s->temp_quota_bytes,
                         .temp_dir = spill,
                         .extension_dir = s->extension_dir[0] ? s->extension_dir : NULL};
  br_status status;
  /* Its parent is the worker's to make: one that died meanwhile has no directory any more, and gets none again. */
  if (mkdir(spill, 0700) != 0 && errno != EEXIST) {
    status = br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot make directory %s", spill);
    goto done;
  }
  BR_TRY_GOTO(br_engine_open(&o, &x->engine, err));
  BR_TRY_GOTO(limit_allocator(x, s->duckdb_memory_bytes, err));
  x->sessions = br_sessions_new(x->engine);
  x->warm_most_bytes = br_process_anon_bytes(getpid()) + x->allocator_keeps_bytes + BR_EXECUTOR_WARM_BYTES;
  x->ready = true;
  Brant__Pb__ExecutorReady r = BRANT__PB__EXECUTOR_READY__INIT;
  r.version = (char *)BRANT_VERSION;
  r.pid = (int32_t)getpid();
  r.duckdb_version = (char *)br_engine_version();
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_READY;
  e.ready = &r;
  br_executor_send(x, &e, NULL, 0);
done:
  free(spill);
  return status;
}

static void on_run(br_executor *x, ProtobufCMessage *message) {
  const Brant__Pb__ExecTask *run = ((Brant__Pb__ExecutorCommand *)message)->run;
  br_attempt_id id = br_attempt_from_pb(run->task ? run->task->id : NULL);
  br_error err = {0};
  if (br_etask_start(x, message, &err) != BR_OK) br_executor_send_failed(x, &id, &err);
}

static void on_cancel(br_executor *x, const Brant__Pb__AttemptId *p) {
  br_attempt_id id = br_attempt_from_pb(p);
  for (size_t i = 0; i < BR_EXECUTOR_MAX_TASKS; i++)
    if (x->tasks[i] && br_attempt_equal(&x->tasks[i]->id, &id)) br_etask_cancel(x->tasks[i]);
}

/* Takes the descriptors that it uses: *used of them. */
static br_status on_outputs(br_executor *x, const Brant__Pb__LocalOutputs *o, const int *fds, int n_fds, int *used,
                            br_error *err) {
  for (size_t i = 0; i < o->n_local; i++) {
    const Brant__Pb__LocalOutput *l = o->local[i];
    if (!l->fd_attached || *used == n_fds)
      return br_fail(err, BR_CORRUPT, BR_BLAME_EXECUTOR, "the worker sent a map output without its file descriptor");
    br_attempt_id id = br_attempt_from_pb(l->id);
    br_outputs_put(x->outputs, &id, fds[(*used)++], l->in_memory, l->file_bytes);
  }
  return BR_OK;
}

/* Numbers of workers are not used again, so the list is also right for readers that are opened later (br_einputs_open asks). */
static void on_peer_gone(br_executor *x, uint32_t worker) {
  pthread_mutex_lock(&x->lock);
  br_map_put(x->gone_peers, worker, x);
  pthread_mutex_unlock(&x->lock);
  for (size_t i = 0; i < BR_EXECUTOR_MAX_TASKS; i++)
    if (x->tasks[i]) br_etask_peer_gone(x->tasks[i], worker);
}

bool br_executor_peer_gone(br_executor *x, uint32_t worker) {
  pthread_mutex_lock(&x->lock);
  bool gone = br_map_get(x->gone_peers, worker) != NULL;
  pthread_mutex_unlock(&x->lock);
  return gone;
}

static void on_drop_query(br_executor *x, uint64_t query) {
  br_outputs_drop(x->outputs, query, NULL);
  if (x->sessions) br_sessions_drop(x->sessions, query);
}

/* Takes over m. */
static br_status handle(br_executor *x, Brant__Pb__ExecutorCommand *m, const int *fds, int n_fds, int *used,
                        br_error *err) {
  br_status status = BR_OK;
  bool is_setup = m->what_case == BRANT__PB__EXECUTOR_COMMAND__WHAT_SETUP;
  if (!x->ready && !is_setup && m->what_case != BRANT__PB__EXECUTOR_COMMAND__WHAT_SHUTDOWN) {
    status = br_fail(err, BR_CORRUPT, BR_BLAME_EXECUTOR, "the worker sent a command before the setup");
    goto done;
  }
  switch (m->what_case) {
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_SETUP: status = on_setup(x, m->setup, err); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_RUN: on_run(x, &m->base); return BR_OK; /* it keeps m */
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_CANCEL: on_cancel(x, m->cancel); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_RESERVED: on_reserved(x, m->reserved); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_OUTPUTS: status = on_outputs(x, m->outputs, fds, n_fds, used, err); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_DROP: br_outputs_drop(x->outputs, m->drop->query, &m->drop->stage); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_DROP_QUERY: on_drop_query(x, m->drop_query); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_DROP_OUTPUT: {
      br_attempt_id id = br_attempt_from_pb(m->drop_output);
      br_outputs_drop_attempt(x->outputs, &id);
      break;
    }
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_UDF_READY:
      br_executor_udf_answer(x, m->udf_ready, true, fds, n_fds, used);
      break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_UDF_CLOSED:
      br_executor_udf_answer(x, m->udf_closed, false, fds, n_fds, used);
      break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_PEER_GONE: on_peer_gone(x, m->peer_gone); break;
    case BRANT__PB__EXECUTOR_COMMAND__WHAT_SHUTDOWN: leave(x, NULL); break;
    default: break; /* of a later version */
  }
done:
  protobuf_c_message_free_unpacked(&m->base, NULL);
  return status;
}

static void on_message(void *arg, const void *data, size_t n, int *fds, int n_fds) {
  br_executor *x = arg;
  br_error err = {0};
  int used = 0;
  ProtobufCMessage *m = br_pb_unpack(&brant__pb__executor_command__descriptor, data, n, &err);
  if (m && !x->leaving && handle(x, (Brant__Pb__ExecutorCommand *)m, fds, n_fds, &used, &err) == BR_OK)
    err.code = BR_OK;
  else if (m && x->leaving)
    protobuf_c_message_free_unpacked(m, NULL);
  for (int i = used; i < n_fds; i++) close(fds[i]);
  if (err.code) leave(x, &err);
}

static void on_closed(void *arg, const br_error *why) {
  br_executor *x = arg;
  leave(x, why);
}

int br_executor_main(int fd) {
  br_executor *x = br_calloc(1, sizeof *x);
  br_error err = {0};
  br_status status;
  pthread_condattr_t attr;
  pthread_mutex_init(&x->lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&x->answered, &attr);
  pthread_condattr_destroy(&attr);
  x->outputs = br_outputs_new();
  x->threads = br_threads_new();
  x->gone_peers = br_map_new();
  BR_TRY_GOTO(br_loop_new(&x->loop, &err));
  BR_TRY_GOTO(br_channel_new(x->loop, fd, (br_channel_handler){on_message, on_closed, x}, &x->channel, &err));
  x->tick = br_timer_start(x->loop, BR_EXECUTOR_PROGRESS_MS, BR_EXECUTOR_PROGRESS_MS, on_tick, x);
  br_loop_run(x->loop);
  status = x->failure.code;
done:
  if (err.code) br_log(BR_LOG_ERROR, "%s", err.message);
  br_threads_free(x->threads);
  if (x->tick) br_timer_stop(x->tick);
  br_sessions_free(x->sessions);
  if (x->engine) br_engine_close(x->engine);
  br_outputs_free(x->outputs);
  br_channel_free(x->channel);
  if (x->loop) {
    br_clients_close(x->loop);
    br_loop_free(x->loop);
  }
  br_map_free(x->gone_peers);
  pthread_cond_destroy(&x->answered);
  pthread_mutex_destroy(&x->lock);
  free(x->temp_dir);
  free(x->shuffle_dir);
  free(x->secret);
  free(x);
  return status ? 1 : 0;
}
