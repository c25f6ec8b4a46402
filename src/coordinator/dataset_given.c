/* SPDX-License-Identifier: Apache-2.0
 * Tables that the caller gives as Arrow streams. What is given goes through DuckDB once, so that all types of Arrow that it reads become
 * those that are stored, into one map output after the other. Order: register, queries, drop. The caller's thread.
 * Bounds: PART_ROWS rows or PART_BYTES a part; memory of the session's store (dataset_bytes), then its disk. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/decode.h"
#include "base/mem.h"
#include "base/util.h"
#include "coordinator/dataset.h"
#include "coordinator/session.h"

#define PART_ROWS 131072u
#define PART_BYTES (32u << 20)
#define SCATTER_BYTES (64u << 20)
#define IMPORT_NAME "__brant_import"

typedef struct intake {
  brant_session *session;
  br_dataset *d;
  struct ArrowArrayStream *stream;
  struct ArrowSchema source; /* of the stream, with unique names */
  bool encoded;              /* some of it is: dictionaries, runs */
  br_schema *given;          /* decoded */
  uint64_t bytes;            /* read of it */
  bool ended;
  /* the part being written */
  br_schema *stored;
  br_writer *writer;
  void *state;
  uint64_t part_rows, part_start_bytes, reserved;
  char *dir;
  size_t cap_rows, cap_bytes;
} intake;

static br_status stream_failed(intake *x, int code, br_error *err) {
  const char *why = x->stream->get_last_error ? x->stream->get_last_error(x->stream) : NULL;
  return br_fail(err,
                 code == ENOMEM      ? BR_OUT_OF_MEMORY
                 : code == ECANCELED ? BR_CANCELLED
                                     : BR_EXECUTION,
                 BR_BLAME_USER, "the stream of the table %s failed: %s", x->d->name,
                 why && *why ? why : strerror(code));
}

static uint64_t view_bytes(const struct ArrowArrayView *v) {
  uint64_t sum = 0;
  for (int i = 0; i < NANOARROW_MAX_FIXED_BUFFERS; i++)
    if (v->buffer_views[i].data.data != NULL) sum += (uint64_t)v->buffer_views[i].size_bytes;
  for (int64_t i = 0; i < v->n_children; i++) sum += view_bytes(v->children[i]);
  return v->dictionary ? sum + view_bytes(v->dictionary) : sum;
}

/* Looks at it before anybody believes it. */
static br_status check_array(intake *x, const struct ArrowArray *a, uint64_t *bytes, br_error *err) {
  struct ArrowArrayView view;
  struct ArrowError why;
  int code = ArrowArrayViewInitFromSchema(&view, &x->source, &why);
  if (code == 0) code = ArrowArrayViewSetArray(&view, a, &why);
  if (code == 0) code = ArrowArrayViewValidate(&view, NANOARROW_VALIDATION_LEVEL_DEFAULT, &why);
  *bytes = code == 0 ? view_bytes(&view) : 0;
  ArrowArrayViewReset(&view);
  if (code == 0) return BR_OK;
  return br_fail(err, BR_INVALID, BR_BLAME_USER, "a batch of the table %s does not fit its schema: %s", x->d->name,
                 why.message);
}

static br_status next_given(void *arg, br_batch **out, br_error *err) {
  intake *x = arg;
  struct ArrowArray array = {0};
  uint64_t bytes;
  *out = NULL;
  if (x->ended) return BR_OK;
  BR_TRY(br_session_check_interrupt(x->session, err));
  int code = x->stream->get_next(x->stream, &array);
  if (code != 0) return stream_failed(x, code, err);
  if (array.release == NULL) {
    x->ended = true;
    return BR_OK;
  }
  br_status status = check_array(x, &array, &bytes, err);
  if (status != BR_OK) {
    array.release(&array);
    return status;
  }
  x->bytes += bytes;
  if (x->encoded) BR_TRY(br_array_decode(&x->source, br_schema_arrow(x->given), &array, err));
  return br_batch_new(x->given, &array, bytes, out, err);
}

/* ---- the parts */

static bool reserve(void *arg, uint64_t bytes) {
  intake *x = arg;
  if (!br_store_reserve(x->d->store, bytes)) return false;
  x->reserved += bytes;
  return true;
}

static br_status begin_part(intake *x, br_error *err) {
  br_writer_options o = {.id = {.query = x->d->id, .task = x->d->n_parts, .attempt = 1},
                         .schema = x->stored,
                         .kind = BR_PART_SINGLE,
                         .partitions = 1,
                         .ordered = true,
                         .codec_memory = BR_CODEC_NONE,
                         .codec_disk = BR_CODEC_LZ4,
                         .scatter_buffer_bytes = SCATTER_BYTES,
                         .spill_dir = x->dir,
                         .reserver = {.reserve = reserve, .arg = x}};
  x->part_rows = 0;
  x->part_start_bytes = x->bytes;
  x->reserved = 0;
  BR_TRY(br_writer_open(&o, &x->writer, err));
  return br_writer_thread(x->writer, &x->state, err);
}

static br_status end_part(intake *x, br_error *err) {
  br_dataset *d = x->d;
  br_map_output out = {.fd = -1};
  br_attempt_id id = {.query = d->id, .task = d->n_parts, .attempt = 1};
  br_status status = br_writer_thread_end(x->writer, x->state, err);
  x->state = NULL;
  if (status == BR_OK) status = br_writer_commit(x->writer, &out, err);
  if (status != BR_OK) return status;
  br_writer_free(x->writer);
  x->writer = NULL;
  size_t cap = x->cap_rows;
  br_grow((void **)&d->part_rows, &x->cap_rows, d->n_parts, sizeof *d->part_rows);
  br_grow((void **)&d->part_bytes, &cap, d->n_parts, sizeof *d->part_bytes);
  d->part_rows[d->n_parts] = out.rows;
  d->part_bytes[d->n_parts] = out.bytes;
  d->rows += out.rows;
  d->bytes += out.bytes;
  BR_TRY(br_store_add(d->store, &id, &out, err));
  d->n_parts++;
  return BR_OK;
}

static br_status sink_open(void *arg, const br_schema *columns, br_error *err) {
  intake *x = arg;
  (void)err;
  x->stored = br_schema_ref((br_schema *)(uintptr_t)columns);
  return BR_OK;
}

static br_status sink_begin(void *arg, void **state, br_error *err) {
  (void)err;
  *state = arg;
  return BR_OK;
}

static br_status sink_write(void *arg, void *state, const br_vec *columns, uint32_t n, uint32_t rows, br_error *err) {
  intake *x = arg;
  (void)state;
  if (x->writer == NULL) BR_TRY(begin_part(x, err));
  BR_TRY(br_writer_write(x->writer, x->state, columns, n, rows, err));
  x->part_rows += rows;
  return x->part_rows >= PART_ROWS || x->bytes - x->part_start_bytes >= PART_BYTES ? end_part(x, err) : BR_OK;
}

static br_status sink_end(void *arg, void *state, br_error *err) {
  intake *x = arg;
  (void)state;
  return x->writer != NULL ? end_part(x, err) : BR_OK;
}

static void sink_abandon(void *arg, void *state) { (void)arg, (void)state; }

static void abandon_part(intake *x) {
  if (x->writer == NULL) return;
  if (x->state != NULL) br_writer_thread_abandon(x->writer, x->state);
  br_writer_free(x->writer);
  br_store_unreserve(x->d->store, x->reserved);
}

static br_status run_import(brant_session *s, br_session *on, intake *x, br_error *err) {
  char *scratch = br_asprintf("%s/import", x->dir);
  br_run_input in = {.schema = x->given, .ordered = true, .next = next_given, .arg = x};
  br_run_sink sink = {.arg = x,
                      .open = sink_open,
                      .thread_begin = sink_begin,
                      .write = sink_write,
                      .thread_end = sink_end,
                      .abandon = sink_abandon};
  br_run run = {.sql = "SELECT * FROM input(0)",
                .inputs = &in,
                .n_inputs = 1,
                .sink = &sink,
                .ordered = true,
                .scratch_dir = scratch};
  (void)s;
  br_status status = br_mkdir_p(scratch, err);
  if (status == BR_OK) status = br_session_run(on, &run, err);
  free(run.stats.profile_json);
  rmdir(scratch);
  free(scratch);
  return status;
}

/* ---- names and types */

/* What DuckDB can't read, found here, where the column can be named. */
static br_status check_type(const intake *x, const struct ArrowSchema *column, const struct ArrowSchema *s,
                            br_error *err) {
  size_t n = strlen(s->format);
  bool wide = strncmp(s->format, "d:", 2) == 0 && n > 4 && strcmp(s->format + n - 4, ",256") == 0;
  if (wide || strncmp(s->format, "+ud", 3) == 0)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                   "the column \"%s\" of the table %s holds %s of Arrow, which DuckDB does not have: cast it first",
                   column->name, x->d->name, wide ? "decimals of 256 bits" : "a dense union");
  for (int64_t i = 0; i < s->n_children; i++) BR_TRY(check_type(x, column, s->children[i], err));
  return BR_OK;
}

static br_status take_schema(intake *x, br_error *err) {
  struct ArrowSchema given = {0};
  int code = x->stream->get_schema(x->stream, &given);
  if (code != 0) return stream_failed(x, code, err);
  if (given.format == NULL || strcmp(given.format, "+s") != 0 || given.n_children < 1) {
    if (given.release) given.release(&given);
    return br_fail(err, BR_INVALID, BR_BLAME_USER,
                   "the table %s needs a stream of record batches with at least one column", x->d->name);
  }
  struct ArrowSchema own;
  code = ArrowSchemaDeepCopy(&given, &own);
  given.release(&given);
  if (code != 0)
    return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_USER, "no memory for the columns of the table %s", x->d->name);
  const char **before = br_calloc((size_t)own.n_children, sizeof *before);
  for (size_t i = 0; i < (size_t)own.n_children && code == 0; i++) {
    struct ArrowSchema *c = own.children[i];
    char *fresh = br_dataset_column(c->name ? c->name : "", i, before, i);
    code = ArrowSchemaSetName(c, fresh);
    before[i] = c->name;
    free(fresh);
  }
  free(before);
  x->source = own;
  struct ArrowSchema plain;
  if (code == 0) {
    BR_TRY(br_schema_decode(&x->source, &plain, &x->encoded, err));
    br_status status = BR_OK;
    for (int64_t i = 0; i < plain.n_children && status == BR_OK; i++)
      status = check_type(x, plain.children[i], plain.children[i], err);
    if (status != BR_OK) {
      plain.release(&plain);
      return status;
    }
    return br_schema_new(&plain, &x->given, err);
  }
  return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_USER, "no memory for the columns of the table %s", x->d->name);
}

static br_status never(void *arg, void **reader, br_error *err) {
  (void)arg, (void)reader;
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "only its columns are asked for");
}

/* The SQL types that DuckDB makes of the columns. */
static br_status find_types(brant_session *s, intake *x, br_error *err) {
  br_dataset *d = x->d;
  br_engine_dataset here = {.schema = x->given, .arg = x, .open = never};
  br_table t = {0};
  BR_TRY(br_engine_dataset_put(s->engine, IMPORT_NAME, &here, err));
  br_status status = br_session_table(s->db, "DESCRIBE SELECT * FROM dataset('" IMPORT_NAME "')", &t, err);
  br_engine_dataset_drop(s->engine, IMPORT_NAME);
  if (status != BR_OK) return status;
  d->types = br_calloc(t.rows + 1, sizeof *d->types);
  const char **names = br_calloc(t.rows + 1, sizeof *names);
  for (d->n_columns = 0; d->n_columns < t.rows; d->n_columns++) {
    names[d->n_columns] = br_table_cell(&t, d->n_columns, 0);
    d->types[d->n_columns] = br_strdup(br_table_cell(&t, d->n_columns, 1));
  }
  status = br_session_schema(s->db, (const char *const *)d->types, names, d->n_columns, &d->schema, err);
  free(names);
  br_table_free(&t);
  return status;
}

static br_status open_store(brant_session *s, br_error *err) {
  if (s->store != NULL) return BR_OK;
  s->store_dir = br_asprintf("%s/brant-data-%ld-%llx", s->temp_dir, (long)getpid(), (unsigned long long)s->query_base);
  BR_TRY(br_mkdir_p(s->store_dir, err));
  uint64_t bytes = s->settings.dataset_bytes ? s->settings.dataset_bytes : br_memory_available_bytes() / 8;
  br_store_options o = {.dir = s->store_dir, .memory_bytes = bytes};
  return br_store_new(&o, &s->store, err);
}

static br_status register_stream(brant_session *s, const char *name, struct ArrowArrayStream *stream, br_error *err) {
  intake x = {.session = s, .stream = stream};
  br_session *on = NULL;
  br_status status;
  atomic_store(&s->interrupted, false);
  BR_TRY(br_dataset_check_name(s, name, err));
  BR_TRY(open_store(s, err));
  x.d = br_dataset_new(name, s->query_base | ++s->next_query);
  x.d->store = s->store;
  x.dir = s->store_dir;
  BR_TRY_GOTO(take_schema(&x, err));
  BR_TRY_GOTO(find_types(s, &x, err));
  BR_TRY_GOTO(br_session_open(s->engine, &on, err));
  BR_TRY_GOTO(run_import(s, on, &x, err));
  br_dataset *d = x.d;
  x.d = NULL;
  status = br_dataset_publish(s, d, true, err);
done:
  if (x.d != NULL) abandon_part(&x);
  if (on != NULL) br_session_close(on);
  br_schema_unref(x.given);
  if (x.source.release != NULL) x.source.release(&x.source);
  br_schema_unref(x.stored);
  br_dataset_unref(x.d);
  return status;
}

int brant_register_arrow(brant_session *s, const char *name, struct ArrowArrayStream *stream, brant_error *err) {
  br_error e;
  br_error_clear(&e);
  br_status status = register_stream(s, name, stream, &e);
  if (stream->release != NULL) stream->release(stream);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}
