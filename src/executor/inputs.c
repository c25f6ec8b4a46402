/* SPDX-License-Identifier: Apache-2.0
 * The inputs of one task: readers over partitions, local outputs mapped, remote ones fetched on the loop's thread.
 * Order: open (all readers at once, so that they prefetch together), first (waits outside of DuckDB until each has a batch or is
 * known empty; bounds are read whole), next (from DuckDB's threads), close. Every wait ends by br_reader_cancel. Bounds: the
 * executor's read_buffer_bytes, shared by the task's inputs; BR_EXECUTOR_MAX_BOUNDS_BYTES of sort keys. */
#include "executor/executor.h"

#include "base/mem.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FETCH_TRIES 7u /* pauses of 20, 40, … 1280 ms: 2.5 s altogether */
#define FETCH_RETRY_MS 20u

static const Brant__Pb__ResolvedInput *resolved(const Brant__Pb__ExecTask *t, uint32_t number) {
  for (size_t i = 0; i < t->n_inputs; i++)
    if (t->inputs[i]->number == number) return t->inputs[i];
  return NULL;
}

/* An output that can't be opened is lost, whatever is wrong with its bytes or its disk; what this process lacks is not its fault. */
static br_status cannot_open(const br_attempt_id *id, br_error *err) {
  br_error cause = *err;
  int e = cause.sys_errno;
  if (cause.code != BR_CORRUPT && cause.code != BR_NOT_FOUND &&
      (cause.code != BR_IO || e == EMFILE || e == ENFILE || e == ENOMEM))
    return cause.code;
  br_fail(err, BR_FETCH, BR_BLAME_FETCH, "cannot read the output of task %u of stage %u on this node: %s", id->task,
          id->stage, cause.message);
  err->has_lost = true;
  err->lost.made_by = *id;
  err->sys_errno = e;
  return BR_FETCH;
}

static br_status collect_local(br_etask *t, const Brant__Pb__ResolvedInput *r, br_read_local *local, br_error *err) {
  for (size_t i = 0; i < r->n_local; i++) {
    br_attempt_id id = br_attempt_from_pb(r->local[i]->id);
    if (br_outputs_get(t->x->outputs, &id, &local[i].file, err) != BR_OK) return cannot_open(&id, err);
    local[i].map = id.task;
  }
  return BR_OK;
}

static void collect_files(const Brant__Pb__ResolvedInput *r, br_read_file *file) {
  for (size_t i = 0; i < r->n_file; i++) {
    const Brant__Pb__SharedFile *f = r->file[i];
    file[i] = (br_read_file){
        .map = f->map, .attempt = (uint16_t)f->attempt, .worker = f->worker, .incarnation = f->incarnation};
  }
}

static char *source_uri(const Brant__Pb__RemoteSource *s) {
  return s->unix_path[0] ? br_asprintf("unix:%s", s->unix_path) : br_strdup(s->uri);
}

static br_status open_reader(br_einput *in, const Brant__Pb__ResolvedInput *r, uint64_t buffer_bytes, br_error *err) {
  br_etask *t = in->task;
  const Brant__Pb__PartitionRef *ref = in->pb->ref;
  br_read_local *local = br_calloc(r->n_local + 1, sizeof *local);
  br_read_remote *remote = br_calloc(r->n_remote + 1, sizeof *remote);
  br_read_file *file = br_calloc(r->n_file + 1, sizeof *file);
  const br_shuffle_backend *backend = r->shared_dir[0] ? &br_files_backend : &br_flight_backend;
  br_status status;
  BR_TRY_GOTO(collect_local(t, r, local, err));
  collect_files(r, file);
  for (size_t i = 0; i < r->n_remote; i++) {
    const Brant__Pb__RemoteSource *s = r->remote[i];
    remote[i] = (br_read_remote){
        .uri = source_uri(s), .worker = s->worker, .incarnation = s->incarnation, .outputs = s->outputs};
  }
  br_reader_options o = {.loop = t->x->loop,
                         .schema = in->schema,
                         .query = ref->query,
                         .stage = ref->stage,
                         .table_version = ref->table_version,
                         .first = ref->first,
                         .last = ref->last,
                         .map_first = ref->map_first,
                         .map_last = ref->map_last,
                         .local = local,
                         .n_local = r->n_local,
                         .remote = remote,
                         .n_remote = r->n_remote,
                         .ordered = in->pb->ordered,
                         .map_peers = true,
                         .buffer_bytes = buffer_bytes,
                         .secret = t->x->secret[0] ? t->x->secret : NULL,
                         .retry = FETCH_TRIES, /* a task may be here before its peers have heard of the outputs */
                         .retry_ms = FETCH_RETRY_MS,
                         .silent_ms = t->x->peer_silent_ms,
                         .shared_dir = r->shared_dir[0] ? r->shared_dir : NULL,
                         .file = file,
                         .n_file = r->n_file};
  br_reader *reader = NULL;
  BR_TRY_GOTO(backend->reader_open(&o, &reader, err));
  pthread_mutex_lock(
      &t->lock); /* not while it opens: the main thread takes this lock, and a reader may need that thread */
  in->reader = reader;
  for (size_t i = 0; i < r->n_remote; i++)
    if (br_executor_peer_gone(t->x, r->remote[i]->worker)) br_reader_peer_gone(reader, r->remote[i]->worker);
  pthread_mutex_unlock(&t->lock);
done:
  for (size_t i = 0; i < r->n_local; i++)
    if (local[i].file) br_mapfile_unref(local[i].file);
  for (size_t i = 0; i < r->n_remote; i++) free((char *)remote[i].uri);
  free(local);
  free(remote);
  free(file);
  return status;
}

static br_status open_input(br_einput *in, uint64_t buffer_bytes, br_error *err) {
  const Brant__Pb__TaskInput *pb = in->pb;
  const Brant__Pb__ResolvedInput *r = resolved(in->task->pb, pb->number);
  if (!pb->ref || !r || !pb->n_types) {
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "input(%u) of a task came without its partitions or its types",
                   pb->number);
  }
  if (pb->kind == BRANT__PB__INPUT_KIND__INPUT_BOUNDS && in->task->sink.bounds) return BR_OK; /* of an earlier pass */
  BR_TRY(br_session_schema(in->task->session, (const char *const *)pb->types, NULL, pb->n_types, &in->schema, err));
  return open_reader(in, r, buffer_bytes, err);
}

br_status br_einputs_open(br_etask *t, br_error *err) {
  const Brant__Pb__Task *task = t->pb->task;
  t->inputs = br_calloc(task->n_inputs + 1, sizeof *t->inputs);
  for (size_t i = 0; i < task->n_inputs; i++) {
    t->inputs[i].task = t;
    t->inputs[i].pb = task->inputs[i];
    pthread_mutex_init(&t->inputs[i].lock, NULL);
  }
  pthread_mutex_lock(&t->lock);
  t->n_inputs = task->n_inputs; /* from here on a cancel reaches the readers */
  pthread_mutex_unlock(&t->lock);
  uint64_t share = t->x->read_buffer_bytes / (t->n_inputs ? t->n_inputs : 1);
  if (share < BR_EXECUTOR_MIN_READ_BYTES) share = BR_EXECUTOR_MIN_READ_BYTES;
  for (size_t i = 0; i < t->n_inputs; i++) {
    br_status status = open_input(&t->inputs[i], share, err);
    if (status) {
      br_error_context(err, "input(%u)", task->inputs[i]->number);
      return status;
    }
    if (atomic_load(&t->cancelled)) return br_fail(err, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
  }
  return BR_OK;
}

/* ---- bounds: one column of sort keys */

typedef struct key {
  const void *data;
  uint32_t bytes;
} key;

static int compare_keys(const void *pa, const void *pb) {
  const key *a = pa, *b = pb;
  uint32_t n = a->bytes < b->bytes ? a->bytes : b->bytes;
  int c = n ? memcmp(a->data, b->data, n) : 0;
  return c ? c : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Offsets and lengths go to *spans as pairs of uint32; the bytes to the sink's bound_data. */
static br_status add_bounds(br_esink *s, const br_batch *b, br_buf *spans, br_error *err) {
  struct ArrowArrayView view;
  struct ArrowError why;
  br_status status = BR_OK;
  const struct ArrowArray *array = br_batch_arrow((br_batch *)b);
  const struct ArrowSchema *schema = br_schema_arrow(br_batch_schema((br_batch *)b));
  if (ArrowArrayViewInitFromSchema(&view, schema, &why) != 0 || ArrowArrayViewSetArray(&view, array, &why) != 0) {
    status = br_fail(err, BR_CORRUPT, BR_BLAME_INTERNAL, "bounds of a range exchange: %s", why.message);
    goto done;
  }
  if (view.n_children != 1 || (view.children[0]->storage_type != NANOARROW_TYPE_BINARY &&
                               view.children[0]->storage_type != NANOARROW_TYPE_LARGE_BINARY)) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "bounds of a range exchange are not one BLOB column");
    goto done;
  }
  for (int64_t i = 0; i < array->length; i++) {
    if (ArrowArrayViewIsNull(view.children[0], i)) continue;
    struct ArrowBufferView v = ArrowArrayViewGetBytesUnsafe(view.children[0], i);
    if ((uint64_t)v.size_bytes + s->bound_data.len > BR_EXECUTOR_MAX_BOUNDS_BYTES) {
      status = br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                       "the sort keys that divide a range exchange take more than %u MiB: sort by shorter columns",
                       BR_EXECUTOR_MAX_BOUNDS_BYTES >> 20);
      goto done;
    }
    uint32_t span[2] = {(uint32_t)s->bound_data.len, (uint32_t)v.size_bytes};
    br_buf_add(spans, span, sizeof span);
    br_buf_add(&s->bound_data, v.data.data, (size_t)v.size_bytes);
  }
done:
  ArrowArrayViewReset(&view);
  return status;
}

/* Sorted, and exactly partitions - 1 of them: with fewer keys than wanted the last one is repeated (keys equal to it are spread,
 * all others keep their place), with none at all everything goes to the last partition. */
static br_status set_bounds(br_esink *s, const br_buf *spans, uint32_t partitions, br_error *err) {
  size_t n = spans->len / (2 * sizeof(uint32_t));
  if (n > partitions - 1) {
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a range exchange into %u partitions came with %zu bounds",
                   partitions, n);
  }
  key *keys = br_calloc(n + 1, sizeof *keys);
  for (size_t i = 0; i < n; i++) {
    uint32_t span[2];
    memcpy(span, spans->data + i * sizeof span, sizeof span);
    keys[i] = (key){.data = s->bound_data.data + span[0], .bytes = span[1]};
  }
  qsort(keys, n, sizeof *keys, compare_keys);
  s->n_bounds = partitions - 1;
  s->bounds = br_calloc(partitions, sizeof *s->bounds);
  s->bound_bytes = br_calloc(partitions, sizeof *s->bound_bytes);
  for (uint32_t i = 0; i < s->n_bounds; i++) {
    const key *k = n ? &keys[i < n ? i : n - 1] : NULL;
    s->bounds[i] = k && k->data ? k->data : "";
    s->bound_bytes[i] = k ? k->bytes : 0;
  }
  free(keys);
  return BR_OK;
}

static br_status read_bounds(br_etask *t, br_einput *in, br_error *err) {
  br_buf spans = {0};
  br_status status;
  if (t->sink.bounds) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a task came with two bounds inputs");
    goto done;
  }
  for (;;) {
    br_batch *b = NULL;
    BR_TRY_GOTO(br_reader_next(in->reader, &b, err));
    if (!b) break;
    status = add_bounds(&t->sink, b, &spans, err);
    br_batch_unref(b);
    if (status) goto done;
  }
  uint32_t partitions = t->pb->task->output->partitions;
  status = set_bounds(&t->sink, &spans, partitions ? partitions : 1, err);
done:
  br_buf_free(&spans);
  return status;
}

br_status br_einputs_first(br_etask *t, br_error *err) {
  for (size_t i = 0; i < t->n_inputs; i++) {
    br_einput *in = &t->inputs[i];
    br_status status;
    if (!in->reader) continue; /* bounds that are here from an earlier pass */
    if (in->pb->kind == BRANT__PB__INPUT_KIND__INPUT_BOUNDS) {
      status = read_bounds(t, in, err);
    } else {
      status = br_reader_next(in->reader, &in->first, err);
      in->empty = !in->first;
    }
    if (status) {
      br_error_context(err, "input(%u)", in->pb->number);
      return status;
    }
  }
  return BR_OK;
}

br_status br_einput_next(void *arg, br_batch **out, br_error *err) {
  br_einput *in = arg;
  pthread_mutex_lock(&in->lock);
  *out = in->first;
  in->first = NULL;
  pthread_mutex_unlock(&in->lock);
  if (*out || in->empty) return BR_OK;
  return br_reader_next(in->reader, out, err);
}

/* The statement was cancelled or failed elsewhere: nobody may go on waiting for this input. */
void br_einput_stop(void *arg) {
  br_einput *in = arg;
  br_reader_cancel(in->reader);
}

br_run_input br_einput_bind(br_einput *in) {
  return (br_run_input){.number = in->pb->number,
                        .schema = in->schema,
                        .rows = in->empty ? 0 : in->pb->rows,
                        .rows_known = in->empty || in->pb->rows_known,
                        .ordered = in->pb->ordered,
                        .next = br_einput_next,
                        .cancel = br_einput_stop,
                        .arg = in};
}

void br_einputs_close(br_etask *t) {
  pthread_mutex_lock(&t->lock);
  size_t n = t->n_inputs;
  t->n_inputs = 0; /* no cancel reaches the readers any more */
  for (size_t i = 0; i < n; i++) {
    if (!t->inputs[i].reader) continue;
    br_reader_stats r = br_reader_stats_now(t->inputs[i].reader);
    t->read.rows += r.rows, t->read.bytes += r.bytes;
    t->read.remote_bytes += r.remote_bytes, t->read.wait_us += r.wait_us;
  }
  pthread_mutex_unlock(&t->lock);
  for (size_t i = 0; i < n; i++) {
    br_einput *in = &t->inputs[i];
    if (in->first) br_batch_unref(in->first);
    if (in->reader) br_reader_free(in->reader);
    br_schema_unref(in->schema);
    pthread_mutex_destroy(&in->lock);
  }
  free(t->inputs);
  t->inputs = NULL;
}
