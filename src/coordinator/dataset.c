/* SPDX-License-Identifier: Apache-2.0
 * See dataset.h. What the caller gives goes through DuckDB once, so that all types of Arrow that it reads become those that are
 * stored, into one map output after the other. Order: register or persist, queries, drop. The caller's thread; references from any.
 * Bounds: PART_ROWS rows or PART_BYTES a part; memory of the session's store (dataset_bytes), then its disk. */
#include "coordinator/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "arrow/decode.h"
#include "base/mem.h"
#include "base/util.h"
#include "coordinator/session.h"

#define PART_ROWS 131072u
#define PART_BYTES (32u << 20)
#define SCATTER_BYTES (64u << 20)
#define READ_BYTES (32u << 20)
#define IMPORT_NAME "__brant_import"

br_dataset *br_dataset_ref(br_dataset *d) {
  atomic_fetch_add(&d->refs, 1);
  return d;
}

void br_dataset_unref(br_dataset *d) {
  if (d == NULL || atomic_fetch_sub(&d->refs, 1) != 1) return;
  if (d->store != NULL) br_store_drop_query(d->store, d->id);
  for (size_t i = 0; i < d->n_columns; i++) free(d->types[i]);
  free(d->types);
  free(d->part_rows);
  free(d->part_bytes);
  br_schema_unref(d->schema);
  free(d->name);
  free(d->view);
  brant_query *held = d->held;
  free(d);
  brant_query_free(held);
}

uint32_t br_dataset_version(br_dataset *d) {
  if (d->run == NULL) return 1;
  pthread_mutex_lock(&d->run->lock);
  uint32_t version = d->run->table_versions;
  pthread_mutex_unlock(&d->run->lock);
  return version;
}

void br_dataset_workers(br_dataset *d, uint32_t *out) {
  memset(out, 0, d->n_parts * sizeof *out);
  if (d->run == NULL || d->run->shared_dir != NULL) return;
  pthread_mutex_lock(&d->run->lock);
  for (uint32_t i = 0; i < d->n_parts; i++)
    if (d->run->results[i].ready) out[i] = d->run->results[i].id.worker;
  pthread_mutex_unlock(&d->run->lock);
}

br_dataset *br_dataset_find(const brant_session *s, const char *name) {
  for (size_t i = 0; i < s->n_datasets; i++)
    if (strcasecmp(s->datasets[i]->name, name) == 0) return s->datasets[i];
  return NULL;
}

/* ---- reading here */

static void free_reference(void *arg) { br_dataset_unref(arg); }

static br_status open_store_reader(br_dataset *d, br_reader **reader, br_error *err) {
  br_status status = BR_OK;
  br_read_local *local = br_calloc(d->n_parts + 1u, sizeof *local);
  for (uint32_t i = 0; i < d->n_parts && status == BR_OK; i++) {
    local[i] = (br_read_local){.file = br_store_get(d->store, d->id, 0, i, 1), .map = i};
    if (local[i].file == NULL)
      status = br_fail(err, BR_IO, BR_BLAME_WORKER, "part %u of the table %s is not readable any more", i, d->name);
  }
  br_reader_options o = {.schema = d->schema,
                         .query = d->id,
                         .table_version = 1,
                         .last = 1,
                         .map_last = d->n_parts,
                         .local = local,
                         .n_local = d->n_parts,
                         .ordered = true,
                         .buffer_bytes = READ_BYTES};
  if (status == BR_OK) status = br_reader_open(&o, reader, err);
  for (uint32_t i = 0; i < d->n_parts; i++) br_mapfile_unref(local[i].file);
  free(local);
  return status;
}

/* What this process has, or what the workers have and is fetched part by part. */
typedef struct here {
  br_reader *reader;
  br_rows *rows;
} here;

static br_status open_here(void *arg, void **out, br_error *err) {
  br_dataset *d = arg;
  here *h = br_calloc(1, sizeof *h);
  br_status status = BR_OK;
  if (d->store != NULL)
    status = open_store_reader(d, &h->reader, err);
  else
    h->rows = br_rows_open_kept(br_query_session(d->held), d->run, d->schema);
  if (status != BR_OK) {
    free(h);
    return status;
  }
  *out = h;
  return BR_OK;
}

static br_status next_here(void *arg, br_batch **out, br_error *err) {
  here *h = arg;
  return h->rows != NULL ? br_rows_next(h->rows, out, err) : br_reader_next(h->reader, out, err);
}

static void close_here(void *arg) {
  here *h = arg;
  if (h->reader != NULL) br_reader_free(h->reader);
  br_rows_free(h->rows);
  free(h);
}

/* ---- names */

static br_status make_view(brant_session *s, const br_dataset *d, br_error *err) {
  br_buf sql = {0};
  br_buf_str(&sql, d->view != NULL ? "CREATE TEMP VIEW " : "CREATE VIEW ");
  br_buf_sql_ident(&sql, d->view != NULL ? d->view : d->name);
  br_buf_str(&sql, " AS SELECT * FROM dataset(");
  br_buf_sql_literal(&sql, d->name, strlen(d->name));
  br_buf_char(&sql, ')');
  br_status status = br_session_execute(s->db, br_buf_cstr(&sql), err);
  br_buf_free(&sql);
  return status;
}

static void drop_view(brant_session *s, const br_dataset *d) {
  br_error ignored;
  br_buf sql = {0};
  br_buf_str(&sql, d->view != NULL ? "DROP VIEW IF EXISTS temp." : "DROP VIEW IF EXISTS ");
  br_buf_sql_ident(&sql, d->view != NULL ? d->view : d->name);
  br_status status = br_session_execute(s->db, br_buf_cstr(&sql), &ignored);
  (void)status; /* a query of its own that runs still holds it: it has no rows any more, then */
  br_buf_free(&sql);
}

/* The session takes the reference, also on failure. */
static br_status publish(brant_session *s, br_dataset *d, bool view, br_error *err) {
  br_engine_dataset table = {.schema = d->schema,
                             .rows = d->rows,
                             .arg = br_dataset_ref(d),
                             .open = open_here,
                             .next = next_here,
                             .close = close_here,
                             .free = free_reference};
  br_status status = br_engine_dataset_put(s->engine, d->name, &table, err);
  if (status == BR_OK && view) {
    status = make_view(s, d, err);
    if (status != BR_OK) br_engine_dataset_drop(s->engine, d->name);
  }
  if (status != BR_OK) {
    br_dataset_unref(d);
    return status;
  }
  br_grow((void **)&s->datasets, &s->cap_datasets, s->n_datasets, sizeof *s->datasets);
  s->datasets[s->n_datasets++] = d;
  s->has_local_tables = true; /* what can't be taken apart can read it only here */
  return BR_OK;
}

static void forget(brant_session *s, size_t i) {
  br_dataset *d = s->datasets[i];
  memmove(&s->datasets[i], &s->datasets[i + 1], (--s->n_datasets - i) * sizeof *s->datasets);
  drop_view(s, d);
  br_engine_dataset_drop(s->engine, d->name);
  if (s->driver != NULL) br_driver_withdraw(s->driver, d->id);
  br_dataset_unref(d);
}

void br_datasets_drop_all(brant_session *s) {
  while (s->n_datasets > 0) forget(s, s->n_datasets - 1);
}

bool br_datasets_drop(brant_session *s, const char *name) {
  for (size_t i = 0; i < s->n_datasets; i++) {
    if (strcasecmp(s->datasets[i]->name, name) != 0) continue;
    forget(s, i);
    return true;
  }
  return false;
}

int brant_drop_table(brant_session *s, const char *name, brant_error *err) {
  br_error e;
  if (br_datasets_drop(s, name)) return 0;
  br_fail(&e, BR_NOT_FOUND, BR_BLAME_USER, "there is no table %.200s that was registered or persisted", name);
  br_error_export(&e, err);
  return BR_NOT_FOUND;
}

/* ---- the caller's stream */

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

/* A name that none of those before has, by which DuckDB can tell the columns apart. Free it. */
static char *fresh_name(const char *name, size_t at, const char *const *before, size_t n) {
  bool taken = !*name;
  for (size_t j = 0; j < n && !taken; j++) taken = strcasecmp(before[j], name) == 0;
  if (!taken) return br_strdup(name);
  char *first = br_asprintf("%s_%zu", *name ? name : "column", at), *out = fresh_name(first, at, before, n);
  free(first);
  return out;
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
    char *fresh = fresh_name(c->name ? c->name : "", i, before, i);
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

static br_status check_name(const brant_session *s, const char *name, br_error *err) {
  if (name == NULL || *name == 0) return br_fail(err, BR_INVALID, BR_BLAME_USER, "a table needs a name");
  if (br_dataset_find(s, name) != NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "there is a table %.200s already: drop it first", name);
  return BR_OK;
}

static br_dataset *dataset_new(const char *name, uint64_t id) {
  br_dataset *d = br_calloc(1, sizeof *d);
  atomic_init(&d->refs, 1);
  d->name = br_strdup(name);
  d->id = id;
  return d;
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
  BR_TRY(check_name(s, name, err));
  BR_TRY(open_store(s, err));
  x.d = dataset_new(name, s->query_base | ++s->next_query);
  x.d->store = s->store;
  x.dir = s->store_dir;
  BR_TRY_GOTO(take_schema(&x, err));
  BR_TRY_GOTO(find_types(s, &x, err));
  BR_TRY_GOTO(br_session_open(s->engine, &on, err));
  BR_TRY_GOTO(run_import(s, on, &x, err));
  br_dataset *d = x.d;
  x.d = NULL;
  status = publish(s, d, true, err);
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

/* ---- a result that stays */

static char **unique_names(const br_query *q) {
  char **out = br_calloc(q->n_columns + 1, sizeof *out);
  for (size_t i = 0; i < q->n_columns; i++) out[i] = fresh_name(q->names[i], i, (const char *const *)out, i);
  return out;
}

static br_status describe_result(brant_session *s, br_dataset *d, br_error *err) {
  br_query *q = d->run;
  const br_stage_run *last = &q->runs[q->n_runs - 1];
  d->stage = (uint32_t)q->n_runs - 1;
  d->types = br_calloc(last->plan->n_columns + 1, sizeof *d->types);
  for (; d->n_columns < last->plan->n_columns; d->n_columns++)
    d->types[d->n_columns] = br_strdup(last->plan->types[d->n_columns]);
  d->n_parts = last->n_tasks;
  d->part_rows = br_calloc(d->n_parts + 1u, sizeof *d->part_rows);
  d->part_bytes = br_calloc(d->n_parts + 1u, sizeof *d->part_bytes);
  pthread_mutex_lock(&q->lock);
  for (uint32_t i = 0; i < d->n_parts; i++) {
    d->rows += d->part_rows[i] = last->tasks[i].rows_out;
    d->bytes += d->part_bytes[i] = last->tasks[i].bytes_out;
  }
  pthread_mutex_unlock(&q->lock);
  char **names = unique_names(q);
  br_status status = br_session_schema(s->db, (const char *const *)d->types, (const char *const *)names, d->n_columns,
                                       &d->schema, err);
  for (size_t i = 0; i < q->n_columns; i++) free(names[i]);
  free(names);
  return status;
}

static br_status persist(brant_session *s, brant_query *query, const char *name, bool view, br_error *err) {
  br_query *q = br_query_inside(query);
  BR_TRY(check_name(s, name, err));
  br_driver_keep_result(s->driver, q);
  BR_TRY(br_query_wait_result(query, err));
  br_dataset *d = dataset_new(name, q->id);
  br_query_hold(query);
  d->held = query;
  d->run = q;
  br_status status = describe_result(s, d, err);
  if (status == BR_OK) return publish(s, d, view, err);
  br_dataset_unref(d);
  return status;
}

int brant_query_persist(brant_query *query, const char *name, brant_error *err) {
  brant_session *s = br_query_session(query);
  struct ArrowArrayStream stream;
  br_error e;
  br_error_clear(&e);
  if (br_query_inside(query) == NULL) { /* it runs in this process: its rows are given like any others */
    br_status given = br_query_stored_stream(query, &stream, &e);
    if (given == BR_OK) return brant_register_arrow(s, name, &stream, err);
    br_error_export(&e, err);
    return given;
  }
  br_status status = br_query_take(query, &e);
  if (status == BR_OK) status = persist(s, query, name, true, &e);
  if (status != BR_OK) br_error_export(&e, err);
  return status;
}

/* ---- temporary tables */

br_status br_dataset_keep_result(brant_session *s, brant_query *q, const char *name, br_error *err) {
  BR_TRY(br_query_take(q, err));
  return persist(s, q, name, false, err);
}

br_status br_dataset_show(brant_session *s, const char *name, const char *view, br_error *err) {
  br_dataset *d = br_dataset_find(s, name);
  if (d == NULL) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "there is no dataset %s", name);
  d->view = br_strdup(view);
  return make_view(s, d, err);
}
