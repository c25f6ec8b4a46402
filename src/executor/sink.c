/* SPDX-License-Identifier: Apache-2.0
 * Between the engine's sink and the shuffle's writer. Order: prepare, bind, the run, then commit or close. The writer opens
 * when the SQL's columns are known (or at the commit of a statement without rows); its columns are checked against the plan's,
 * so that a difference is seen here and not by the readers. Threads: DuckDB's, as engine.h says. */
#include "executor/executor.h"

#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

br_status br_esink_prepare(br_esink *s, br_error *err) {
  br_etask *t = s->task;
  const Brant__Pb__TaskOutput *o = t->pb->task->output;
  if (!o || !o->n_types) {
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a task came without the types of its output");
  }
  if (o->kind == BRANT__PB__PARTITION_KIND__PART_RANGE && o->partitions > 1 && !s->bounds) {
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a task with a range exchange came without a bounds input");
  }
  br_eranges_open(&s->ranges, o);
  return br_session_schema(t->session, (const char *const *)o->types, NULL, o->n_types, &s->schema, err);
}

static br_status open_writer(br_esink *s, br_error *err) {
  br_etask *t = s->task;
  const Brant__Pb__TaskOutput *o = t->pb->task->output;
  br_codec codec = BR_CODEC_LZ4;
  if (o->codec[0]) BR_TRY(br_codec_parse(o->codec, &codec, err));
  char id[64];
  br_attempt_format(&t->id, id);
  char *dir = br_asprintf("%s/%s", t->x->shuffle_dir, id);
  const br_shuffle_backend *backend = o->shared_dir[0] ? &br_files_backend : &br_flight_backend;
  br_writer_options w = {
      .id = t->id,
      .schema = s->schema,
      .kind = o->kind == BRANT__PB__PARTITION_KIND__PART_HASH    ? BR_PART_HASH
              : o->kind == BRANT__PB__PARTITION_KIND__PART_RANGE ? BR_PART_RANGE
                                                                 : BR_PART_SINGLE,
      .partitions = o->partitions ? o->partitions : 1,
      .ordered = o->ordered,
      .codec_memory = BR_CODEC_NONE,
      .codec_disk = codec,
      .batch_rows = o->batch_rows,
      .scatter_buffer_bytes = t->x->scatter_buffer_bytes,
      .spill_dir = dir,
      .reserver = {.reserve = br_executor_reserve, .arg = t},
      .bounds = s->bounds,
      .bound_bytes = s->bound_bytes,
      .n_bounds = s->n_bounds,
      .shared_dir = o->shared_dir[0] ? o->shared_dir : NULL,
  };
  if (o->publish && !o->shared_dir[0]) w.publish = (br_publisher){br_epublish, t};
  br_writer *writer = NULL;
  br_status status = backend->writer_open(&w, &writer, err);
  pthread_mutex_lock(&t->lock);
  s->writer = writer;
  pthread_mutex_unlock(&t->lock);
  free(dir);
  return status;
}

/* The SQL's columns without the trailing one, which is never stored. */
static br_status stored_columns(const br_schema *columns, bool trailing, br_schema **out, br_error *err) {
  struct ArrowSchema copy;
  if (ArrowSchemaDeepCopy(br_schema_arrow(columns), &copy) != NANOARROW_OK)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for the columns of a task");
  if (trailing) {
    if (copy.n_children < 1) {
      ArrowSchemaRelease(&copy);
      return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the task's SQL has no column for the partition");
    }
    struct ArrowSchema *last = copy.children[--copy.n_children];
    ArrowSchemaRelease(last);
    ArrowFree(last);
    copy.children[copy.n_children] = NULL;
  }
  return br_schema_new(&copy, out, err);
}

static br_status sink_open(void *arg, const br_schema *columns, br_error *err) {
  br_esink *s = arg;
  bool trailing = s->task->pb->task->output->kind != BRANT__PB__PARTITION_KIND__PART_SINGLE;
  br_schema *stored = NULL;
  br_buf why = {0};
  br_status status;
  BR_TRY_GOTO(stored_columns(columns, trailing, &stored, err));
  if (!br_schema_same_types(stored, s->schema, &why)) {
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the task's SQL gives other columns than the plan says: %s",
                     br_buf_cstr(&why));
    goto done;
  }
  if (!s->writer) status = open_writer(s, err); /* all passes write to one */
done:
  br_schema_unref(stored);
  br_buf_free(&why);
  return status;
}

/* Of a writing thread. */
typedef struct sink_thread {
  void *writer;
  br_eranges_one *ranges; /* NULL: none are asked for */
} sink_thread;

static br_status sink_begin(void *arg, void **state, br_error *err) {
  br_esink *s = arg;
  sink_thread *t = br_calloc(1, sizeof *t);
  br_status status = br_writer_thread(s->writer, &t->writer, err);
  if (status == BR_OK) {
    t->ranges = br_eranges_new(&s->ranges);
    *state = t;
  } else {
    free(t);
  }
  return status;
}

static br_status sink_write(void *arg, void *state, const br_vec *columns, uint32_t n_columns, uint32_t rows,
                            br_error *err) {
  br_esink *s = arg;
  sink_thread *t = state;
  if (atomic_load_explicit(&s->task->cancelled, memory_order_relaxed))
    return br_fail(err, BR_CANCELLED, BR_BLAME_TASK, "the task was cancelled");
  if (t->ranges) br_eranges_look(&s->ranges, t->ranges, columns, n_columns, rows);
  BR_TRY(br_writer_write(s->writer, t->writer, columns, n_columns, rows, err));
  atomic_fetch_add_explicit(&s->rows, rows, memory_order_relaxed);
  return BR_OK;
}

static br_status sink_end(void *arg, void *state, br_error *err) {
  br_esink *s = arg;
  sink_thread *t = state;
  br_status status = br_writer_thread_end(s->writer, t->writer, err);
  if (t->ranges) br_eranges_end(&s->ranges, t->ranges);
  free(t);
  return status;
}

static void sink_abandon(void *arg, void *state) {
  br_esink *s = arg;
  sink_thread *t = state;
  br_writer_thread_abandon(s->writer, t->writer);
  free(t->ranges);
  free(t);
}

void br_esink_bind(br_esink *s, br_run_sink *out) {
  *out = (br_run_sink){.arg = s,
                       .open = sink_open,
                       .thread_begin = sink_begin,
                       .write = sink_write,
                       .thread_end = sink_end,
                       .abandon = sink_abandon};
}

br_status br_esink_commit(br_esink *s, br_map_output *out, br_error *err) {
  if (!s->writer) BR_TRY(open_writer(s, err));
  return br_writer_commit(s->writer, out, err);
}

void br_esink_publish(br_esink *s) {
  pthread_mutex_lock(&s->task->lock);
  if (s->writer) br_writer_publish(s->writer);
  pthread_mutex_unlock(&s->task->lock);
}

void br_esink_close(br_esink *s) {
  pthread_mutex_lock(&s->task->lock);
  br_writer *writer = s->writer;
  s->writer = NULL;
  pthread_mutex_unlock(&s->task->lock);
  if (writer) br_writer_free(writer);
  br_schema_unref(s->schema);
  free(s->bounds);
  free(s->bound_bytes);
  br_buf_free(&s->bound_data);
  br_eranges_close(&s->ranges);
  s->schema = NULL, s->bounds = NULL, s->bound_bytes = NULL;
}
