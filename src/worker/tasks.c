/* SPDX-License-Identifier: Apache-2.0
 * The attempts of this worker: from the coordinator's run to the report of how it ended.
 * An attempt waits until an executor is ready and has a free slot (at most BR_NODE_QUEUE_WAIT_MS), gets its inputs resolved and
 * runs there. What it reserved in the store is remembered here, so that it's settled whatever way it ends. A cancelled
 * attempt that has not ended BR_NODE_CANCEL_KILL_MS later takes its executor along (with others in it: BR_NODE_CANCEL_KILL_OTHERS_MS).
 * Loop thread. */
#include "worker/node.h"

#include "base/mem.h"
#include "base/util.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static br_wtask *find(const br_node *n, const br_attempt_id *id) {
  for (size_t i = 0; i < n->n_tasks; i++)
    if (br_attempt_equal(&n->tasks[i]->id, id)) return n->tasks[i];
  return NULL;
}

const br_wtask *br_tasks_find(const br_node *n, const br_attempt_id *id) { return find(n, id); }

static char *attempt_dir(const br_node *n, const br_attempt_id *id) {
  char text[64];
  br_attempt_format(id, text);
  return br_asprintf("%s/%s", n->home.shuffle_dir, text);
}

/* Out of the list, with all that it held. */
static void end_task(br_node *n, br_wtask *t) {
  for (size_t i = 0; i < n->n_tasks; i++) {
    if (n->tasks[i] != t) continue;
    memmove(&n->tasks[i], &n->tasks[i + 1], (n->n_tasks - i - 1) * sizeof *n->tasks);
    n->n_tasks--;
    break;
  }
  if (t->child) {
    t->child->running--;
    if (t->task->alone) t->child->alone = false;
    char *dir = attempt_dir(n, &t->id);
    br_remove_tree(dir);
    free(dir);
  }
  if (t->granted_bytes) br_store_unreserve(n->store, t->granted_bytes);
  protobuf_c_message_free_unpacked(t->command, NULL);
  free(t);
}

static void fail_task(br_node *n, br_wtask *t, br_error *why) {
  why->has_attempt = true;
  why->attempt = t->id;
  if (why->has_lost && !why->lost.worker) {
    why->lost.worker = n->worker;
    why->lost.incarnation = n->incarnation;
  }
  br_link_failed(n, &t->id, why);
  br_grow_failed(n, &t->id, why);
  end_task(n, t);
}

static void fail_cancelled(br_node *n, br_wtask *t) {
  br_error why = {0};
  br_fail(&why, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
  fail_task(n, t, &why);
}

/* ---- start */

static br_status send_run(br_node *n, br_wtask *t, br_child *c, br_error *err) {
  size_t count = t->task->n_inputs;
  Brant__Pb__ResolvedInput *inputs = br_calloc(count + 1, sizeof *inputs), **refs = br_calloc(count + 1, sizeof *refs);
  br_buf b = {0};
  br_status status = BR_OK;
  for (size_t i = 0; i < count; i++) {
    brant__pb__resolved_input__init(&inputs[i]);
    refs[i] = &inputs[i];
  }
  for (size_t i = 0; i < count; i++) {
    BR_TRY_GOTO(br_tables_resolve(n, t->task->inputs[i], &inputs[i], err));
    BR_TRY_GOTO(br_child_lend(c, &inputs[i], err));
  }
  Brant__Pb__ExecTask run = BRANT__PB__EXEC_TASK__INIT;
  run.task = t->task;
  run.n_inputs = count;
  run.inputs = refs;
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_RUN;
  m.run = &run;
  br_pb_pack(&m.base, &b);
  if (b.len > BR_MESSAGE_MAX_BYTES) {
    status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "a task's message takes %zu bytes, more than the %u allowed",
                     b.len, BR_MESSAGE_MAX_BYTES);
    goto done;
  }
  br_channel_send(c->channel, b.data, b.len, NULL, 0);
done:
  for (size_t i = 0; i < count; i++) br_resolved_free(&inputs[i]);
  free(inputs);
  free(refs);
  br_buf_free(&b);
  return status;
}

static bool can_take(const br_node *n, const br_child *c) {
  return c->ready && !c->killed && !c->alone && c->running < n->o->slots;
}

/* The one with the least to do, but `not`. */
static br_child *free_child(br_node *n, const br_child * not ) {
  br_child *best = NULL;
  for (uint32_t i = 0; i < n->o->executors; i++) {
    br_child *c = &n->children[i];
    if (c != not &&can_take(n, c) && (!best || c->running < best->running)) best = c;
  }
  return best;
}

static bool start_task(br_node *n, br_wtask *t, br_child *c) {
  br_error err = {0};
  if (send_run(n, t, c, &err) != BR_OK) {
    fail_task(n, t, &err);
    return false;
  }
  t->child = c;
  t->since_ms = br_now_ms();
  c->running++;
  c->alone = t->task->alone;
  return true;
}

/* Oldest first: nobody overtakes, but for one that must run alone and waits for an executor to become idle: others are kept away from
 * that executor meanwhile (`idle_soon`), except outputs that may be read while they are written, since what runs there may
 * wait for them. */
void br_tasks_dispatch(br_node *n) {
  br_child *idle_soon = NULL;
  for (size_t i = 0; i < n->n_tasks && !n->stopping;) {
    br_wtask *t = n->tasks[i];
    if (t->child) {
      i++;
      continue;
    }
    br_child *c = free_child(n, idle_soon);
    if (t->task->alone && c && c->running) {
      if (!idle_soon) idle_soon = c;
      i++;
      continue;
    }
    if (!c && idle_soon && t->task->output && t->task->output->publish && can_take(n, idle_soon)) c = idle_soon;
    if (!c && !idle_soon) return;
    if (!c || start_task(n, t, c)) i++;
  }
}

void br_tasks_run(br_node *n, ProtobufCMessage *command) {
  Brant__Pb__Task *task = ((Brant__Pb__Command *)command)->run;
  br_attempt_id id = br_attempt_from_pb(task->id);
  if (find(n, &id)) {
    protobuf_c_message_free_unpacked(command, NULL);
    return;
  }
  br_wtask *t = br_calloc(1, sizeof *t);
  *t = (br_wtask){.id = id, .command = command, .task = task, .since_ms = br_now_ms()};
  br_grow((void **)&n->tasks, &n->tasks_capacity, n->n_tasks, sizeof *n->tasks);
  n->tasks[n->n_tasks++] = t;
  if (task->output && task->output->publish && !task->output->shared_dir[0]) br_grow_expect(n, t);
  br_error err = {0};
  if (n->n_tasks > BR_NODE_MAX_QUEUED_TASKS) {
    br_fail(&err, BR_INTERNAL, BR_BLAME_INTERNAL, "more than %u tasks for one worker", BR_NODE_MAX_QUEUED_TASKS);
    fail_task(n, t, &err);
    return;
  }
  br_tasks_dispatch(n);
}

/* ---- cancel and drop */

void br_tasks_cancel(br_node *n, const br_attempt_id *id) {
  br_wtask *t = find(n, id);
  if (!t || t->cancel_ms) return;
  if (!t->child) {
    fail_cancelled(n, t);
    return;
  }
  t->cancel_ms = br_now_ms();
  Brant__Pb__AttemptId pid;
  br_attempt_to_pb(id, &pid);
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_CANCEL;
  m.cancel = &pid;
  br_child_send(t->child, &m, NULL, 0);
}

void br_tasks_drop(br_node *n, uint64_t query, const uint32_t *stage_or_all) {
  for (size_t i = n->n_tasks; i-- > 0;) { /* backwards: a task that waits goes at once */
    br_wtask *t = n->tasks[i];
    if (t->id.query != query || (stage_or_all && t->id.stage != *stage_or_all)) continue;
    t->dropped = true;
    br_attempt_id id = t->id;
    br_tasks_cancel(n, &id);
  }
  br_grow_drop(n, query, stage_or_all);
}

static uint64_t patience_ms(const br_node *n, const br_child *c) {
  for (size_t i = 0; i < n->n_tasks; i++)
    if (n->tasks[i]->child == c && !n->tasks[i]->cancel_ms) return BR_NODE_CANCEL_KILL_OTHERS_MS;
  return BR_NODE_CANCEL_KILL_MS;
}

void br_tasks_drop_attempt(br_node *n, const br_attempt_id *id) {
  br_wtask *t = find(n, id);
  if (!t) return;
  t->dropped = true;
  br_tasks_cancel(n, id);
}

void br_tasks_tick(br_node *n) {
  uint64_t now = br_now_ms();
  br_node_report_evicted(n);
  for (size_t i = n->n_tasks; i-- > 0;) {
    br_wtask *t = n->tasks[i];
    if (t->child && t->cancel_ms && !t->child->killed && now - t->cancel_ms >= patience_ms(n, t->child)) {
      br_log(BR_LOG_INFO, "a cancelled task did not stop within %u ms: its executor is replaced",
             (unsigned)(now - t->cancel_ms));
      t->child->given_up = true;
      br_child_kill(t->child);
    }
    if (t->child || now - t->since_ms < BR_NODE_QUEUE_WAIT_MS || free_child(n, NULL)) continue;
    br_error err = {0};
    bool any = false; /* all slots busy is no failure: the task waits for its turn */
    for (uint32_t k = 0; k < n->o->executors; k++) any |= n->children[k].ready;
    if (any) continue;
    br_fail(&err, BR_LOST, BR_BLAME_EXECUTOR, "no executor could be started within %u ms; the last one: %s",
            BR_NODE_QUEUE_WAIT_MS, n->children[0].why.code ? n->children[0].why.message : "not ready yet");
    err.retryable = true;
    fail_task(n, t, &err);
  }
}

/* ---- what executors say */

static void discard_output(br_map_output *o) {
  if (o->path) unlink(o->path);
  br_map_output_free(o);
}

/* The message into *o, which takes the descriptor. */
static br_status take_output(const br_node *n, const br_wtask *t, const Brant__Pb__ExecDone *d, int *fds, int n_fds,
                             br_map_output *o, br_error *err) {
  *o = (br_map_output){.fd = -1};
  uint32_t partitions = t->task->output && t->task->output->partitions ? t->task->output->partitions : 1;
  size_t prefix = strlen(n->home.shuffle_dir);
  if (n_fds != 1 || !d->stats || d->stats->n_partition_rows != partitions || (!d->in_memory && !d->path[0]) ||
      (d->path[0] &&
       (strncmp(d->path, n->home.shuffle_dir, prefix) != 0 || d->path[prefix] != '/' || strstr(d->path, "..")))) {
    return br_fail(err, BR_INTERNAL, BR_BLAME_EXECUTOR, "an executor handed over a map output that is not one");
  }
  o->fd = fds[0];
  fds[0] = -1;
  o->in_memory = d->in_memory;
  o->path = d->path[0] ? br_strdup(d->path) : NULL;
  o->file_bytes = d->file_bytes, o->index_offset = d->index_offset;
  o->rows = d->stats->rows_out, o->bytes = d->stats->bytes_out;
  o->reserved_bytes = d->reserved_bytes < t->granted_bytes ? d->reserved_bytes : t->granted_bytes;
  return BR_OK;
}

/* The files backend: the output is in its place already, there is nothing to keep here. */
static void on_done_shared(br_node *n, br_wtask *t, const Brant__Pb__ExecDone *d) {
  if (t->dropped) {
    br_files_abandon(t->task->output->shared_dir, &t->id);
    fail_cancelled(n, t);
    return;
  }
  br_link_done(n, &t->id, d->stats);
  end_task(n, t);
}

static bool is_shared(const br_wtask *t) { return t->task->output && t->task->output->shared_dir[0]; }

static void on_done(br_child *c, const Brant__Pb__ExecDone *d, int *fds, int n_fds) {
  br_node *n = c->node;
  br_attempt_id id = br_attempt_from_pb(d->id);
  br_wtask *t = find(n, &id);
  br_map_output o;
  br_error err = {0};
  if (!t || t->child != c) return;
  if (is_shared(t) && n_fds == 0 && d->stats) {
    on_done_shared(n, t, d);
    return;
  }
  if (take_output(n, t, d, fds, n_fds, &o, &err) != BR_OK) {
    fail_task(n, t, &err);
    br_child_kill(c);
    return;
  }
  if (t->dropped) {
    discard_output(&o);
    fail_cancelled(n, t);
    return;
  }
  t->granted_bytes -= o.reserved_bytes; /* the store settles these, also when it fails */
  if (br_store_add(n->store, &id, &o, &err) != BR_OK) {
    if (err.code == BR_CORRUPT) err.retryable = true; /* its disk did not keep what was written: another may */
    fail_task(n, t, &err);
    return;
  }
  if (br_grow_committed(n, &id, &err) != BR_OK) {
    br_store_drop_output(n->store, &id);
    fail_task(n, t, &err);
    br_child_kill(c);
    return;
  }
  br_node_output_put(n, &id);
  br_link_done(n, &id, d->stats);
  end_task(n, t);
}

static void on_failed(br_child *c, const Brant__Pb__TaskFailed *f) {
  br_node *n = c->node;
  br_attempt_id id = br_attempt_from_pb(f->id);
  br_wtask *t = find(n, &id);
  if (!t || t->child != c) return;
  br_error why;
  br_error_from_pb(f->error, &why);
  if (!why.code) br_fail(&why, BR_INTERNAL, BR_BLAME_INTERNAL, "an executor failed a task without saying why");
  bool broken = why.blame == BR_BLAME_EXECUTOR;
  if (why.code == BR_NO_SPACE) br_store_make_disk_room(n->store); /* for the next attempt */
  fail_task(n, t, &why);
  if (broken) br_child_kill(c); /* its DuckDB must not be used again */
}

static void on_progress(br_child *c, const Brant__Pb__TaskProgress *p) {
  br_attempt_id id = br_attempt_from_pb(p->id);
  br_wtask *t = find(c->node, &id);
  if (!t || t->child != c) return;
  t->rows = p->rows, t->bytes = p->bytes, t->fraction = p->fraction;
  t->progress_due = true;
  br_link_progress(c->node);
}

static void on_reserve(br_child *c, const Brant__Pb__Reserve *r) {
  br_attempt_id id = br_attempt_from_pb(r->id);
  br_wtask *t = find(c->node, &id);
  Brant__Pb__ReserveReply reply = BRANT__PB__RESERVE_REPLY__INIT;
  reply.request = r->request;
  reply.granted = t && t->child == c && !t->dropped && br_store_reserve(c->node->store, r->bytes);
  if (reply.granted) t->granted_bytes += r->bytes;
  br_node_report_evicted(c->node); /* which may have made the room */
  Brant__Pb__ExecutorCommand m = BRANT__PB__EXECUTOR_COMMAND__INIT;
  m.what_case = BRANT__PB__EXECUTOR_COMMAND__WHAT_RESERVED;
  m.reserved = &reply;
  br_child_send(c, &m, NULL, 0);
}

static void on_published(br_child *c, const Brant__Pb__Published *p, int *fds, int n_fds) {
  br_node *n = c->node;
  br_attempt_id id = br_attempt_from_pb(p->id);
  br_wtask *t = find(n, &id);
  br_error err = {0};
  if (!t || t->child != c || t->dropped) return;
  if (br_grow_published(n, t, p, fds, n_fds, &err) == BR_OK) return;
  fail_task(n, t, &err);
  br_child_kill(c);
}

static void on_started(br_child *c, const Brant__Pb__AttemptId *p) {
  br_attempt_id id = br_attempt_from_pb(p);
  br_wtask *t = find(c->node, &id);
  if (t && t->child == c) br_link_started(c->node, &id);
}

void br_tasks_event(br_child *c, const Brant__Pb__ExecutorEvent *e, int *fds, int n_fds) {
  br_node *n = c->node;
  bool ended = false;
  switch (e->what_case) {
    case BRANT__PB__EXECUTOR_EVENT__WHAT_STARTED: on_started(c, e->started); break;
    case BRANT__PB__EXECUTOR_EVENT__WHAT_DONE: on_done(c, e->done, fds, n_fds), ended = true; break;
    case BRANT__PB__EXECUTOR_EVENT__WHAT_FAILED: on_failed(c, e->failed), ended = true; break;
    case BRANT__PB__EXECUTOR_EVENT__WHAT_PROGRESS: on_progress(c, e->progress); break;
    case BRANT__PB__EXECUTOR_EVENT__WHAT_PUBLISHED: on_published(c, e->published, fds, n_fds); break;
    case BRANT__PB__EXECUTOR_EVENT__WHAT_RESERVE: on_reserve(c, e->reserve); break;
    case BRANT__PB__EXECUTOR_EVENT__WHAT_UDF_OPEN:
    case BRANT__PB__EXECUTOR_EVENT__WHAT_UDF_CLOSE: br_functions_event(c, e); break;
    default: break; /* of a later version */
  }
  for (int i = 0; i < n_fds; i++)
    if (fds[i] >= 0) close(fds[i]);
  if (!ended) return;
  br_gauge_sample(n, false); /* memory is highest about now */
  br_tasks_dispatch(n);
}

/* ---- the end */

size_t br_tasks_lost(br_node *n, br_child *c, br_attempt_id **ids) {
  size_t count = 0;
  *ids = br_calloc(n->n_tasks + 1, sizeof **ids);
  for (size_t i = n->n_tasks; i-- > 0;) {
    br_wtask *t = n->tasks[i];
    if (t->child != c) continue;
    if (is_shared(t)) br_files_abandon(t->task->output->shared_dir, &t->id);
    if (t->cancel_ms) {
      fail_cancelled(n, t); /* nobody wants it: it isn't the one that killed the executor either */
      continue;
    }
    if (c->given_up) {
      br_error why = {0};
      br_fail(&why, BR_LOST, BR_BLAME_WORKER, "its executor was replaced, since a cancelled task in it did not stop");
      why.retryable = true;
      fail_task(n, t, &why);
      continue;
    }
    (*ids)[count++] = t->id;
    br_grow_failed(n, &t->id, &c->why);
    end_task(n, t);
  }
  return count;
}

void br_tasks_free(br_node *n) {
  while (n->n_tasks) end_task(n, n->tasks[n->n_tasks - 1]);
  free(n->tasks);
  br_grow_free(n);
}
