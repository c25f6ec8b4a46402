/* SPDX-License-Identifier: Apache-2.0
 * What processes load: a function's payload, in a memfd that each of them gets. It comes with the function's message, or, when it is
 * large, is fetched by the worker in pieces; whoever wants a connection meanwhile waits here.
 * Order: open; fetch, pieces, end (again after a failure). Loop thread. Bounds: the bytes that the message said;
 * BR_UDF_MAX_CONNECTIONS that wait. */
#include "udf/internal.h"

#include "base/mem.h"
#include "base/util.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

br_status br_udf_payload_open(br_udf_fn *fn, const Brant__Pb__Function *f, br_error *err) {
  fn->payload = memfd_create("brant-udf-payload", MFD_CLOEXEC);
  if (fn->payload < 0) return br_fail_errno(err, errno, BR_BLAME_WORKER, "cannot keep function %.100s", f->name);
  fn->payload_bytes = f->payload_bytes > f->payload.len ? f->payload_bytes : f->payload.len;
  fn->have_bytes = f->payload.len;
  return br_write_all(fn->payload, f->payload.data, f->payload.len, err);
}

bool br_udf_payload_here(const br_udf_fn *fn) { return fn->have_bytes == fn->payload_bytes && !fn->fetching; }

void br_udf_payload_fetch(br_udf_fn *fn) {
  const br_udf_options *o = &fn->pool->all->o;
  if (fn->fetching) return;
  fn->fetching = true;
  fn->have_bytes = 0;
  if (ftruncate(fn->payload, 0) != 0 || lseek(fn->payload, 0, SEEK_SET) != 0) /* never, of a memfd: said at the end */
    (void)!br_fail_errno(&fn->error, errno, BR_BLAME_WORKER, "cannot keep function %.100s", fn->f->name);
  o->fetch(o->arg, fn->f->id);
}

void br_udf_payload(br_udf_pools *all, uint64_t function, const void *data, size_t n) {
  br_udf_fn *fn = br_map_get(all->functions, function);
  if (!fn || !fn->fetching || fn->error.code) return;
  fn->have_bytes += n;
  if (fn->have_bytes > fn->payload_bytes)
    br_fail(&fn->error, BR_CORRUPT, BR_BLAME_INTERNAL, "function %.100s came with more than its %llu bytes",
            fn->f->name, (unsigned long long)fn->payload_bytes);
  else
    (void)!br_write_all(fn->payload, data, n, &fn->error);
}

/* Those that wait for the function, taken out of the list. */
static br_udf_waiting *take(br_udf_pools *all, uint64_t function) {
  br_udf_waiting *taken = NULL, **end = &taken;
  for (br_udf_waiting **at = &all->waiting; *at;) {
    br_udf_waiting *w = *at;
    if (w->function != function) {
      at = &w->next;
      continue;
    }
    *at = w->next;
    w->next = NULL;
    *end = w;
    end = &w->next;
    all->n_waiting--;
  }
  return taken;
}

void br_udf_wait_fail(br_udf_pools *all, uint64_t function, const br_error *err) {
  for (br_udf_waiting *w = take(all, function), *next; w; w = next) {
    next = w->next;
    all->o.ready(all->o.arg, w->owner, w->request, -1, 0, err);
    free(w);
  }
}

void br_udf_payload_end(br_udf_pools *all, uint64_t function, const br_error *err) {
  br_udf_fn *fn = br_map_get(all->functions, function);
  br_error why = *err;
  if (!fn || !fn->fetching) return;
  fn->fetching = false;
  if (fn->error.code) {
    why = fn->error; /* it stays so */
  } else if (why.code) {
    br_error_context(&why, "worker %u cannot get function %.100s from the coordinator", all->worker, fn->f->name);
  } else if (fn->have_bytes != fn->payload_bytes) {
    br_fail(&why, BR_LOST, BR_BLAME_WORKER, "worker %u got %llu of the %llu bytes of function %.100s", all->worker,
            (unsigned long long)fn->have_bytes, (unsigned long long)fn->payload_bytes, fn->f->name);
    fn->have_bytes = 0;
  }
  if (why.code) {
    br_udf_wait_fail(all, function, &why);
    return;
  }
  if (fn->start) br_udf_start(all, function);
  for (br_udf_waiting *w = take(all, function), *next; w; w = next) {
    next = w->next;
    br_udf_open(all, w->owner, w->request, function, &w->attempt);
    free(w);
  }
}

void br_udf_wait(br_udf_pools *all, void *owner, uint64_t request, uint64_t function, const br_attempt_id *attempt) {
  br_udf_waiting *w = br_calloc(1, sizeof *w), **end = &all->waiting;
  *w = (br_udf_waiting){.owner = owner, .request = request, .function = function, .attempt = *attempt};
  while (*end) end = &(*end)->next;
  *end = w;
  all->n_waiting++;
}

bool br_udf_wait_forget(br_udf_pools *all, const void *owner, uint64_t request) {
  bool any = false;
  for (br_udf_waiting **at = &all->waiting; *at;) {
    br_udf_waiting *w = *at;
    if (w->owner != owner || (request && w->request != request)) {
      at = &w->next;
      continue;
    }
    *at = w->next;
    free(w);
    all->n_waiting--;
    any = true;
  }
  return any;
}

void br_udf_wait_free(br_udf_pools *all) {
  while (all->waiting) {
    br_udf_waiting *w = all->waiting;
    all->waiting = w->next;
    free(w);
  }
  all->n_waiting = 0;
}
