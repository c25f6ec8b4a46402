/* SPDX-License-Identifier: Apache-2.0
 * One attempt: session, inputs, the run, the commit, its report.
 * Order: br_etask_start gives it to a thread that does everything, says how it went and posts br_executor_task_ended; cancel and
 * progress come from the main thread meanwhile. A cancel is repeated at each tick until the thread has ended, since an
 * interrupt before the statement runs is lost. Bound: BR_EXECUTOR_MAX_TASKS at once. */
#include "executor/executor.h"

#include "base/budget.h"
#include "base/mem.h"
#include "base/util.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static br_status cancelled(const br_etask *t, br_error *err) {
  if (atomic_load(&t->timed_out)) {
    return br_fail(err, BR_TIMEOUT, BR_BLAME_USER, "the task ran longer than its deadline of %llu ms",
                   (unsigned long long)t->pb->task->deadline_ms);
  }
  return br_fail(err, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
}

static br_status take_session(br_etask *t, br_error *err) {
  br_session *s = NULL;
  BR_TRY(br_sessions_take(t->x->sessions, t->pb->task, &s, err));
  pthread_mutex_lock(&t->lock);
  t->session = s;
  pthread_mutex_unlock(&t->lock);
  return BR_OK;
}

/* last: no other pass comes. */
static br_status run_sql(br_etask *t, bool last, br_run_stats *stats, br_error *err) {
  char *scratch = br_asprintf("%s/run", t->x->temp_dir); /* of all tasks: making one costs more than planning a task */
  br_run_input *inputs = br_calloc(t->n_inputs + t->pb->task->n_steps + 1, sizeof *inputs);
  br_run_sink sink;
  br_run_stats files = {0};
  char *manifest = NULL;
  br_status status;
  BR_TRY_GOTO(br_mkdir_p(scratch, err));
  br_esink_bind(&t->sink, &sink);
  br_run run = {.sql = t->sql,
                .inputs = inputs,
                .n_inputs = br_esteps_inputs(t, NULL, inputs),
                .sink = &sink,
                .ordered = t->pb->task->output->ordered,
                .profile = t->pb->task->profile,
                .count_groups = t->pb->task->count_groups,
                .scratch_dir = scratch,
                .keep_scratch = true};
  if (t->pb->task->sink) {
    BR_TRY_GOTO(br_efiles_write(t, run.sql, run.inputs, run.n_inputs, &files, err));
    if (!last) {
      *stats = files;
      goto done;
    }
    run.sql = manifest = br_efiles_manifest(t);
    run.n_inputs = 0;
  }
  status = br_session_run(t->session, &run, err);
  *stats = run.stats;
  stats->cpu_us += files.cpu_us;
done:
  free(manifest);
  free(scratch);
  free(inputs);
  return status;
}

static void add_stats(br_run_stats *all, const br_run_stats *one) {
  all->wall_us += one->wall_us, all->cpu_us += one->cpu_us, all->rows_out += one->rows_out;
  all->spill_bytes += one->spill_bytes;
  all->grouped_rows += one->grouped_rows, all->groups += one->groups;
  if (one->peak_memory_bytes > all->peak_memory_bytes) all->peak_memory_bytes = one->peak_memory_bytes;
  if (!one->profile_json) return;
  free(all->profile_json);
  all->profile_json = one->profile_json; /* of the last pass */
}

/* One SQL over inputs that are opened for it; they stay open after the last pass, for its report. */
static br_status run_pass(br_etask *t, const char *sql, bool last, br_run_stats *all, br_error *err) {
  br_run_stats stats = {0};
  t->sql = sql;
  BR_TRY(br_einputs_open(t, err));
  BR_TRY(br_einputs_first(t, err));
  if (!t->sink.schema) BR_TRY(br_esink_prepare(&t->sink, err));
  if (atomic_load(&t->cancelled)) return cancelled(t, err);
  br_status status = br_esteps_start(t, err);
  if (status == BR_OK) status = run_sql(t, last, &stats, err);
  br_esteps_stop(t);
  add_stats(all, &stats);
  if (status == BR_OK && atomic_load(&t->cancelled)) return cancelled(t, err);
  if (status == BR_OK && !last) br_einputs_close(t);
  return status;
}

static br_status work(br_etask *t, br_run_stats *stats, br_map_output *out, br_error *err) {
  const Brant__Pb__Task *task = t->pb->task;
  BR_TRY(take_session(t, err));
  if (!task->n_passes) BR_TRY(run_pass(t, task->sql, true, stats, err));
  for (size_t i = 0; i < task->n_passes; i++) BR_TRY(run_pass(t, task->passes[i], i + 1 == task->n_passes, stats, err));
  return br_esink_commit(&t->sink, out, err);
}

/* ---- how it went */

static uint32_t log_bytes(uint64_t bytes) { return bytes ? 1 + (uint32_t)(8 * log2((double)bytes)) : 0; }

static void input_stats(br_etask *t, Brant__Pb__TaskStats *s) {
  s->rows_in = t->read.rows, s->bytes_in = t->read.bytes;
  s->remote_bytes_in = t->read.remote_bytes, s->fetch_wait_us = t->read.wait_us;
  for (size_t i = 0; i < t->n_inputs; i++) {
    if (!t->inputs[i].reader) continue;
    br_reader_stats r = br_reader_stats_now(t->inputs[i].reader);
    s->rows_in += r.rows;
    s->bytes_in += r.bytes;
    s->remote_bytes_in += r.remote_bytes;
    s->fetch_wait_us += r.wait_us;
  }
}

static void send_done(br_etask *t, const br_run_stats *run, const br_map_output *o) {
  uint32_t partitions = t->pb->task->output->partitions ? t->pb->task->output->partitions : 1;
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t->id, &id);
  Brant__Pb__TaskStats s = BRANT__PB__TASK_STATS__INIT;
  input_stats(t, &s);
  s.rows_out = o->rows, s.bytes_out = o->bytes;
  s.wall_us = br_now_us() - t->start_us, s.cpu_us = run->cpu_us;
  s.spill_bytes = run->spill_bytes + o->spilled_bytes;
  s.peak_memory_bytes = run->peak_memory_bytes;
  if (run->profile_json) s.profile_json = run->profile_json;
  s.grouped_rows = run->grouped_rows, s.groups = run->groups;
  br_esteps_stats(t, &s);
  br_eranges_tell(&t->sink.ranges, &s);
  s.n_partition_log_bytes = s.n_partition_rows = partitions;
  s.partition_log_bytes = br_calloc(partitions, sizeof *s.partition_log_bytes);
  for (uint32_t i = 0; i < partitions; i++) s.partition_log_bytes[i] = log_bytes(o->partition_bytes[i]);
  s.partition_rows = o->partition_rows;
  Brant__Pb__ExecDone done = BRANT__PB__EXEC_DONE__INIT;
  done.id = &id, done.stats = &s;
  done.file_bytes = o->file_bytes, done.index_offset = o->index_offset;
  done.path = o->path ? o->path : (char *)"";
  done.in_memory = o->in_memory, done.reserved_bytes = o->reserved_bytes;
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_DONE;
  e.done = &done;
  br_executor_send(t->x, &e, &o->fd, o->fd >= 0 ? 1 : 0); /* none: a file that has its place */
  br_eranges_told(&s);
  free(s.partition_log_bytes);
}

static size_t utf8_floor(const char *s, size_t n) {
  while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--;
  return n;
}

static void append(br_error *e, const char *text) {
  size_t have = strlen(e->message), room = sizeof e->message - 1 - strlen(text);
  if (have > room) have = utf8_floor(e->message, room);
  strcpy(e->message + have, text);
}

/* A user reads which SQL it was: the message is cut first, so that there is always room for it. */
static void append_sql(br_error *e, const br_etask *t) {
  const char *sql = t->sql ? t->sql : t->pb->task->sql;
  size_t n = strlen(sql);
  bool cut = n > BR_EXECUTOR_SQL_IN_ERROR_BYTES;
  if (cut) n = utf8_floor(sql, BR_EXECUTOR_SQL_IN_ERROR_BYTES);
  char id[64];
  br_attempt_format(&t->id, id);
  char *tail = br_asprintf("\n  in task %s: %.*s%s", id, (int)n, sql, cut ? "..." : "");
  append(e, tail);
  free(tail);
}

/* What to do. DuckDB's own advice is for a process of one's own, so it is cut off. */
static void add_advice(br_error *e, const char *shared_dir) {
  if (e->code == BR_OUT_OF_MEMORY) {
    /* DuckDB has no type for a full disk under its temporary files: it says that memory could not be made free. */
    char *full = strstr(e->message, "\nThis limit was set by the 'max_temp_directory_size'");
    char *advice = strstr(e->message, "\nPossible solutions");
    if (advice) *advice = 0;
    if (full) {
      *full = 0;
      e->code = BR_NO_SPACE;
    } else {
      append(e, "; give the workers more memory (--memory), or each task less to do (--set partitions=N)");
    }
  }
  if (e->code == BR_NO_SPACE && e->blame != BR_BLAME_USER) {
    bool shared = shared_dir[0] && strstr(e->message, shared_dir);
    append(e, shared ? ": free some, or choose another directory with --set shuffle_dir"
                     : ": no space is left there: free some, or choose another directory with --temp-dir");
  }
}

static void send_failed(br_etask *t, br_error *e) {
  /* A cancelled statement may fail in any way: what counts is that somebody asked for it. A user's error came first. */
  bool broken = e->blame == BR_BLAME_EXECUTOR;
  if (atomic_load(&t->cancelled) && e->blame != BR_BLAME_USER && !broken) cancelled(t, e);
  e->has_attempt = true;
  e->attempt = t->id;
  if (broken) atomic_store(&t->x->broken, true);
  add_advice(e, t->pb->task->output->shared_dir);
  if (e->blame == BR_BLAME_USER && e->code != BR_NO_SPACE && !t->function_failed) append_sql(e, t);
  br_executor_send_failed(t->x, &t->id, e);
}

static void send_started(br_etask *t) {
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t->id, &id);
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_STARTED;
  e.started = &id;
  br_executor_send(t->x, &e, NULL, 0);
}

/* The next task, of another query too, finds it as a new one would be. */
static bool as_new(const br_etask *t) { return t->sql != NULL && strcasestr(t->sql, "setseed") == NULL; }

static void close_session(br_etask *t, bool reuse) {
  pthread_mutex_lock(&t->lock);
  br_session *s = t->session;
  t->session = NULL;
  pthread_mutex_unlock(&t->lock);
  br_sessions_give(t->x->sessions, t->pb->task, s, reuse);
}

static void run_task(void *arg) {
  br_etask *t = arg;
  br_run_stats stats = {0};
  br_map_output out = {.fd = -1};
  br_error err = {0};
  send_started(t);
  br_status status = work(t, &stats, &out, &err);
  close_session(t, status == BR_OK && as_new(t));  /* before the report: the next task of this query finds it */
  if (status == BR_OK) send_done(t, &stats, &out); /* before the inputs close: their statistics go along */
  br_einputs_close(t);
  br_esteps_free(t);
  br_esink_close(&t->sink);
  br_efiles_close(t, status == BR_OK);
  if (status == BR_OK)
    br_map_output_free(&out);
  else
    send_failed(t, &err); /* what it wrote is gone */
  free(stats.profile_json);
  if (br_process_anon_bytes(getpid()) > t->x->warm_most_bytes) br_threads_leave();
  br_loop_post(t->x->loop, br_executor_task_ended, t);
}

/* ---- main thread */

static br_status check(const Brant__Pb__ExecTask *p, br_error *err) {
  if (!p->task || !p->task->id || !p->task->output || (!p->task->sql[0] && !p->task->n_passes))
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a task without id, SQL or output");
  return BR_OK;
}

br_status br_etask_start(br_executor *x, ProtobufCMessage *message, br_error *err) {
  Brant__Pb__ExecutorCommand *command = (Brant__Pb__ExecutorCommand *)message;
  br_etask *t = NULL;
  br_status status;
  BR_TRY_GOTO(check(command->run, err));
  size_t slot = 0;
  while (slot < BR_EXECUTOR_MAX_TASKS && x->tasks[slot]) slot++;
  if (slot == BR_EXECUTOR_MAX_TASKS) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "more than %u tasks for one executor", BR_EXECUTOR_MAX_TASKS);
    goto done;
  }
  t = br_calloc(1, sizeof *t);
  t->x = x, t->message = message, t->pb = command->run;
  t->id = br_attempt_from_pb(command->run->task->id);
  t->start_us = br_now_us();
  t->sink.task = t;
  pthread_mutex_init(&t->lock, NULL);
  x->tasks[slot] = t;
  status = br_threads_run(x->threads, run_task, t, err);
  if (status == BR_OK) return BR_OK;
  x->tasks[slot] = NULL;
  pthread_mutex_destroy(&t->lock);
  free(t);
done:
  protobuf_c_message_free_unpacked(message, NULL);
  return status;
}

void br_etask_cancel(br_etask *t) {
  atomic_store(&t->cancelled, true);
  pthread_mutex_lock(&t->lock);
  if (t->session) br_session_cancel(t->session);
  for (size_t i = 0; i < t->n_inputs; i++)
    if (t->inputs[i].reader) br_reader_cancel(t->inputs[i].reader);
  br_esteps_cancel(t);
  pthread_mutex_unlock(&t->lock);
  br_executor_wake_waiters(t->x);
}

void br_etask_peer_gone(br_etask *t, uint32_t worker) {
  pthread_mutex_lock(&t->lock);
  for (size_t i = 0; i < t->n_inputs; i++)
    if (t->inputs[i].reader) br_reader_peer_gone(t->inputs[i].reader, worker);
  pthread_mutex_unlock(&t->lock);
}

void br_etask_progress(br_etask *t) {
  uint64_t deadline_ms = t->pb->task->deadline_ms;
  if (deadline_ms && !atomic_load(&t->cancelled) && br_now_us() - t->start_us > deadline_ms * 1000)
    atomic_store(&t->timed_out, true);
  if (atomic_load(&t->timed_out) || atomic_load(&t->cancelled)) {
    br_etask_cancel(t);
    return;
  }
  br_esink_publish(&t->sink);
  Brant__Pb__TaskProgress p = BRANT__PB__TASK_PROGRESS__INIT;
  Brant__Pb__TaskStats in = BRANT__PB__TASK_STATS__INIT;
  pthread_mutex_lock(&t->lock);
  input_stats(t, &in);
  p.fraction = t->session ? br_session_progress(t->session) : -1;
  pthread_mutex_unlock(&t->lock);
  p.rows = t->pb->task->n_inputs ? in.rows_in : atomic_load(&t->sink.rows);
  p.bytes = in.bytes_in;
  if (p.rows == t->sent_rows && p.fraction == t->sent_fraction) return;
  t->sent_rows = p.rows, t->sent_fraction = p.fraction;
  Brant__Pb__AttemptId id;
  br_attempt_to_pb(&t->id, &id);
  p.id = &id;
  Brant__Pb__ExecutorEvent e = BRANT__PB__EXECUTOR_EVENT__INIT;
  e.what_case = BRANT__PB__EXECUTOR_EVENT__WHAT_PROGRESS;
  e.progress = &p;
  br_executor_send(t->x, &e, NULL, 0);
}
