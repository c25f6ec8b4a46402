/* SPDX-License-Identifier: Apache-2.0
 * Pools: functions (one a pool, or the methods of one object), how many processes each has, who is connected to which, and what is said when one ends.
 * A new connection goes to the process with the fewest. Below the pool's number a new process is started rather than a second connection given.
 * A process that ended stays as a record until the owners of its connections have asked why. Loop thread. Bounds: pool.h. */
#include "udf/internal.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static br_udf_fn *find(const br_udf_pools *all, uint64_t function) { return br_map_get(all->functions, function); }

/* ---- functions */

static void fail_waiting(const br_udf_fn *fn) {
  br_error err = {0};
  br_fail(&err, BR_CANCELLED, BR_BLAME_TASK, "function %.100s was dropped", fn->f->name);
  br_udf_wait_fail(fn->pool->all, fn->f->id, &err);
}

static void pool_free(br_udf_pool *pool) {
  while (pool->processes) {
    br_udf_process *p = pool->processes;
    pool->processes = p->next;
    br_udf_process_free(p);
  }
  while (pool->functions) {
    br_udf_fn *fn = pool->functions;
    pool->functions = fn->next;
    br_map_remove(pool->all->functions, fn->f->id);
    fail_waiting(fn);
    if (fn->payload >= 0) close(fn->payload);
    brant__pb__function__free_unpacked(fn->f, NULL);
    free(fn);
  }
  free(pool);
}

/* The pool that f shares with others; NULL: there is none yet. */
static br_udf_pool *find_shared(const br_udf_pools *all, const Brant__Pb__Function *f) {
  uint64_t key;
  void *v;
  if (!f->pool[0]) return NULL;
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);)
    if (strcmp(((br_udf_pool *)v)->f->pool, f->pool) == 0) return v;
  return NULL;
}

void br_udf_function(br_udf_pools *all, const Brant__Pb__Function *f) {
  br_udf_fn *fn = find(all, f->id), **end;
  br_error err = {0};
  br_buf b = {0};
  if (fn) {
    fn->dropped = fn->pool->dropped = false;
    return;
  }
  fn = br_calloc(1, sizeof *fn);
  (void)!br_udf_payload_open(fn, f, &fn->error);
  Brant__Pb__Function copy = *f; /* shallow: packed at once */
  copy.payload = (ProtobufCBinaryData){0};
  br_pb_pack(&copy.base, &b);
  fn->f = (Brant__Pb__Function *)br_pb_unpack(&brant__pb__function__descriptor, b.data, b.len, &err);
  br_buf_free(&b);
  BR_ASSERT(fn->f);
  br_map_put(all->functions, f->id, fn);
  br_udf_pool *pool = find_shared(all, f);
  if (!pool) {
    pool = br_calloc(1, sizeof *pool);
    *pool = (br_udf_pool){.all = all, .key = f->id, .f = fn->f, .used_ms = br_now_ms()};
    br_map_put(all->pools, pool->key, pool);
  }
  pool->dropped = false;
  fn->pool = pool;
  for (end = &pool->functions; *end; end = &(*end)->next) continue;
  *end = fn;
  if (!fn->error.code && !br_udf_payload_here(fn)) br_udf_payload_fetch(fn);
}

static uint32_t wanted_processes(const br_udf_pool *pool) {
  const Brant__Pb__Function *f = pool->f;
  double each = f->cpus > 0 ? f->cpus : 1, fit = (double)pool->all->o.cores / each;
  uint32_t n = f->worker_processes ? f->worker_processes : f->concurrency;
  if (!n) n = fit < 1 ? 1 : (uint32_t)fit;
  if (f->gpus > 0) {
    uint32_t most = br_udf_gpus_processes(pool->all, f->gpus);
    if (n > most) n = most ? most : 1; /* one, whose start says what is missing */
  }
  return n < BR_UDF_MAX_PROCESSES ? n : BR_UDF_MAX_PROCESSES;
}

static br_status add_process(br_udf_fn *fn, br_udf_process **out, br_error *err) {
  br_udf_pool *pool = fn->pool;
  if (pool->rest_until_ms > br_now_ms()) {
    *err = pool->bad_start;
    return err->code;
  }
  BR_TRY(br_udf_process_start(fn, out, err));
  (*out)->next = pool->processes;
  pool->processes = *out;
  pool->n_processes++;
  return BR_OK;
}

static uint32_t count_alive(const br_udf_pool *pool) {
  uint32_t n = 0;
  for (const br_udf_process *p = pool->processes; p; p = p->next) n += br_udf_process_alive(p);
  return n;
}

void br_udf_start(br_udf_pools *all, uint64_t function) {
  br_udf_fn *fn = find(all, function);
  br_error err = {0};
  br_udf_process *p;
  if (!fn || fn->error.code || all->stopping) return;
  br_udf_pool *pool = fn->pool;
  pool->used_ms = br_now_ms();
  if (!br_udf_payload_here(fn)) {
    fn->start = true;
    br_udf_payload_fetch(fn);
    return;
  }
  uint32_t n = wanted_processes(pool);
  for (uint32_t i = count_alive(pool); i < n; i++)
    if (add_process(fn, &p, &err) != BR_OK) {
      br_log(BR_LOG_INFO, "%s", err.message); /* whoever opens a connection is told */
      return;
    }
}

/* The caller holds no process of it. */
static void drop_if_empty(br_udf_pool *pool) {
  if (!pool->dropped || pool->processes) return;
  br_map_remove(pool->all->pools, pool->key);
  pool_free(pool);
}

/* Processes without connections may go. */
static void let_go(br_udf_pool *pool) {
  for (br_udf_process *p = pool->processes; p; p = p->next)
    if (!p->connections) br_udf_process_leave(p);
}

void br_udf_drop(br_udf_pools *all, uint64_t function) {
  br_udf_fn *fn = find(all, function);
  if (!fn) return;
  br_udf_pool *pool = fn->pool;
  fn->dropped = true;
  for (const br_udf_fn *other = pool->functions; other; other = other->next)
    if (!other->dropped) return;
  pool->dropped = true;
  let_go(pool);
  drop_if_empty(pool);
}

/* ---- processes */

void br_udf_process_ready(br_udf_process *p) { p->pool->bad_starts = 0; }

static bool is_gone(const br_udf_process *p) { return p->reaped && p->piped_out; }

static void remove_process(br_udf_process *p) {
  br_udf_pool *pool = p->pool;
  br_udf_process **at = &pool->processes;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  pool->n_processes--;
  br_udf_process_free(p);
}

static br_udf_connection *unlink_connection(br_udf_process *p, br_udf_connection *c) {
  br_udf_connection **at = &p->connections;
  while (*at != c) at = &(*at)->next;
  *at = c->next;
  p->n_connections--;
  p->pool->all->n_connections--;
  p->pool->used_ms = br_now_ms();
  return c;
}

static void answer_closed(br_udf_process *p, br_udf_connection *c) {
  const br_udf_options *o = &p->pool->all->o;
  br_error why = {0};
  br_udf_process_describe(p, c, &why);
  why.retryable = p->guilty && p->guilty != c->token;
  void *owner = c->owner;
  uint64_t request = c->request;
  free(unlink_connection(p, c));
  if (owner) o->closed(o->arg, owner, request, &why);
}

static void note_bad_start(br_udf_process *p) {
  br_udf_pool *pool = p->pool;
  if (p->ready || p->leaving || (p->killed && !p->why.code)) return;
  if (++pool->bad_starts < BR_UDF_BAD_STARTS) return;
  br_udf_process_describe(p, NULL, &pool->bad_start);
  pool->rest_until_ms = br_now_ms() + BR_UDF_BAD_START_REST_MS;
  pool->bad_starts = 0;
}

void br_udf_process_gone(br_udf_process *p) {
  br_udf_pools *all = p->pool->all;
  if (!all->stopping) {
    br_error why = {0};
    br_udf_process_describe(p, NULL, &why);
    br_log(p->leaving ? BR_LOG_DEBUG : BR_LOG_INFO, "%s", why.message);
    note_bad_start(p);
  }
  all->n_processes--;
  br_udf_gpus_give(p);
  for (br_udf_connection *c = p->connections, *next; c; c = next) {
    next = c->next;
    if (c->asked_ms || !c->owner || c->cancelled_ms) answer_closed(p, c);
  }
  if (!p->connections) remove_process(p);
  if (all->stopping && all->n_processes == 0 && all->o.stopped) all->o.stopped(all->o.arg);
}

/* ---- connections */

static br_status pick(br_udf_fn *fn, br_udf_process **out, br_error *err) {
  br_udf_pool *pool = fn->pool;
  br_udf_process *best = NULL;
  uint32_t alive = 0;
  for (br_udf_process *p = pool->processes; p; p = p->next) {
    if (!br_udf_process_alive(p)) continue;
    alive++;
    if (!best || p->n_connections < best->n_connections ||
        (p->n_connections == best->n_connections && p->ready > best->ready))
      best = p;
  }
  if ((!best || best->n_connections) && alive < wanted_processes(pool)) {
    br_error why = {0};
    if (add_process(fn, out, &why) == BR_OK) return BR_OK;
    if (!best) {
      *err = why;
      return err->code;
    }
  }
  *out = best;
  return BR_OK;
}

static br_status open_connection(br_udf_pools *all, br_udf_connection *c, uint64_t function, int *fd, int *pid,
                                 br_error *err) {
  br_udf_fn *fn = find(all, function);
  br_udf_process *p = NULL;
  if (all->stopping) return br_fail(err, BR_LOST, BR_BLAME_WORKER, "worker %u ends", all->worker);
  if (!fn)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "worker %u was not told of function %llu", all->worker,
                   (unsigned long long)function);
  if (all->n_connections + all->n_waiting >= BR_UDF_MAX_CONNECTIONS)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "more than %u connections to functions on one worker",
                   BR_UDF_MAX_CONNECTIONS);
  if (fn->error.code) {
    *err = fn->error;
    return err->code;
  }
  fn->pool->used_ms = br_now_ms();
  c->fn = fn;
  BR_TRY(pick(fn, &p, err));
  BR_TRY(br_udf_process_connect(p, c, fd, err));
  *pid = p->pid;
  c->next = p->connections;
  p->connections = c;
  p->n_connections++;
  all->n_connections++;
  return BR_OK;
}

void br_udf_open(br_udf_pools *all, void *owner, uint64_t request, uint64_t function, const br_attempt_id *attempt) {
  br_error err = {0};
  br_udf_fn *fn = find(all, function);
  if (fn && !all->stopping && !fn->error.code && !br_udf_payload_here(fn) &&
      all->n_connections + all->n_waiting < BR_UDF_MAX_CONNECTIONS) {
    br_udf_wait(all, owner, request, function, attempt);
    br_udf_payload_fetch(fn);
    return;
  }
  int fd = -1, pid = 0;
  br_udf_connection *c = br_calloc(1, sizeof *c);
  *c = (br_udf_connection){.owner = owner, .request = request, .token = ++all->last_token, .attempt = *attempt};
  if (open_connection(all, c, function, &fd, &pid, &err) != BR_OK) free(c);
  all->o.ready(all->o.arg, owner, request, fd, pid, &err);
}

static br_udf_connection *find_connection(br_udf_pools *all, const void *owner, uint64_t request, br_udf_process **of) {
  uint64_t key;
  void *v;
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);)
    for (br_udf_process *p = ((br_udf_pool *)v)->processes; p; p = p->next)
      for (br_udf_connection *c = p->connections; c; c = c->next)
        if (c->owner == owner && c->request == request) {
          *of = p;
          return c;
        }
  return NULL;
}

static void end_connection(br_udf_process *p, br_udf_connection *c) {
  free(unlink_connection(p, c));
  if (is_gone(p) && !p->connections)
    remove_process(p);
  else if (p->pool->dropped && !p->connections)
    br_udf_process_leave(p);
}

/* Nobody wants what it does for c any more. */
static void cancel(br_udf_process *p, br_udf_connection *c) {
  c->owner = NULL;
  if (is_gone(p) || p->status->token != c->token)
    end_connection(p, c);
  else
    c->cancelled_ms = br_now_ms(); /* the watch gives it some time */
}

static void kill_for(br_udf_process *p, Brant__Pb__UdfEnd end) {
  br_error why = {0};
  if (end == BRANT__PB__UDF_END__UDF_END_HUNG)
    br_fail(&why, BR_TIMEOUT, BR_BLAME_USER, "its process %d did not answer in time and was ended", p->pid);
  else
    br_fail(&why, BR_EXECUTION, BR_BLAME_USER,
            "its process %d answered with what is no result (did the function write to the descriptors of others?) and "
            "was ended",
            p->pid);
  br_udf_process_kill(p, &why);
}

void br_udf_close(br_udf_pools *all, void *owner, uint64_t request, Brant__Pb__UdfEnd end) {
  br_udf_process *p = NULL;
  br_udf_connection *c = find_connection(all, owner, request, &p);
  br_error why = {0};
  bool wants_answer = end == BRANT__PB__UDF_END__UDF_END_DIED || end == BRANT__PB__UDF_END__UDF_END_HUNG ||
                      end == BRANT__PB__UDF_END__UDF_END_BROKEN;
  if (!c) {
    if (br_udf_wait_forget(all, owner, request) || !wants_answer) return;
    br_fail(&why, BR_INTERNAL, BR_BLAME_INTERNAL, "worker %u knows of no such connection to a function", all->worker);
    all->o.closed(all->o.arg, owner, request, &why);
    return;
  }
  if (!wants_answer) {
    if (end == BRANT__PB__UDF_END__UDF_END_CANCELLED)
      cancel(p, c);
    else
      end_connection(p, c);
    return;
  }
  c->asked_ms = br_now_ms();
  if (end != BRANT__PB__UDF_END__UDF_END_DIED) kill_for(p, end);
  if (!is_gone(p)) {
    br_udf_process_reap(p); /* it may be dead already; this answers then, if all that it printed is here */
    return;
  }
  answer_closed(p, c);
  if (!p->connections) remove_process(p);
}

void br_udf_owner_gone(br_udf_pools *all, void *owner) {
  br_udf_wait_forget(all, owner, 0);
  for (bool again = true; again;) { /* ending a connection may end its pool: look anew after each */
    uint64_t key;
    void *v;
    again = false;
    for (size_t it = 0; !again && br_map_next(all->pools, &it, &key, &v);)
      for (br_udf_process *p = ((br_udf_pool *)v)->processes; p && !again; p = p->next)
        for (br_udf_connection *c = p->connections; c && !again; c = c->next)
          if (c->owner == owner) {
            cancel(p, c);
            again = true;
          }
  }
}

/* ---- time */

static void watch_cancelled(br_udf_process *p) {
  for (br_udf_connection *c = p->connections, *next; c; c = next) {
    next = c->next;
    if (c->cancelled_ms && p->status->token != c->token) free(unlink_connection(p, c));
  }
}

static void watch_pool(br_udf_pool *pool, uint64_t now) {
  bool connected = false;
  for (br_udf_process *p = pool->processes, *next; p; p = next) {
    next = p->next;
    connected |= p->connections != NULL;
    if (!p->reaped) watch_cancelled(p);
    br_udf_process_watch(p, now); /* may free it */
  }
  if (connected || pool->dropped || now - pool->used_ms < pool->all->o.idle_ms) return;
  let_go(pool);
}

static void on_watch(void *arg) {
  br_udf_pools *all = arg;
  uint64_t now = br_now_ms(), key;
  void *v;
  br_udf_reap(all);
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);) {
    watch_pool(v, now);
    drop_if_empty(v);
  }
}

void br_udf_reap(br_udf_pools *all) {
  uint64_t key;
  void *v;
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);)
    for (br_udf_process *p = ((br_udf_pool *)v)->processes, *next; p; p = next) {
      next = p->next;
      br_udf_process_reap(p);
    }
}

/* ---- life */

br_udf_pools *br_udf_pools_new(const br_udf_options *o) {
  br_udf_pools *all = br_calloc(1, sizeof *all);
  all->o = *o;
  if (!all->o.cores) all->o.cores = 1;
  all->functions = br_map_new();
  all->pools = br_map_new();
  all->watch = br_timer_start(o->loop, BR_UDF_WATCH_MS, BR_UDF_WATCH_MS, on_watch, all);
  br_udf_gpus_find(all);
  return all;
}

void br_udf_pools_set_worker(br_udf_pools *all, uint32_t worker) { all->worker = worker; }

void br_udf_pools_stop(br_udf_pools *all) {
  uint64_t key;
  void *v;
  all->stopping = true;
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);)
    for (br_udf_process *p = ((br_udf_pool *)v)->processes; p; p = p->next) br_udf_process_kill(p, NULL);
  br_udf_reap(all);
}

bool br_udf_pools_gone(const br_udf_pools *all) { return all->n_processes == 0; }

size_t br_udf_pids(const br_udf_pools *all, int *pids, size_t most) {
  uint64_t key;
  void *v;
  size_t n = 0;
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);)
    for (const br_udf_process *p = ((br_udf_pool *)v)->processes; p; p = p->next)
      if (!p->reaped && n < most) pids[n++] = p->pid;
  return n;
}

void br_udf_pools_free(br_udf_pools *all) {
  uint64_t key;
  void *v;
  if (!all) return;
  all->stopping = true;
  br_udf_wait_free(all);
  br_timer_stop(all->watch);
  for (size_t it = 0; br_map_next(all->pools, &it, &key, &v);) {
    br_map_remove(all->pools, key);
    pool_free(v);
  }
  br_map_free(all->pools);
  br_map_free(all->functions);
  br_udf_gpus_free(all);
  free(all);
}
