/* SPDX-License-Identifier: Apache-2.0
 * Steps of a task: a SQL text whose rows get more columns by users' functions, and then are an input of a later text. All of a task's
 * steps run at once. In each, a pump reads the SQL as units of rows; lanes take units, send the arguments to processes and wait for the
 * results; what comes out is put back in order and read by DuckDB as input(k).
 *
 *   pump: session → units (BR_STEP_QUEUE_BYTES) → lanes: function connections → done, in order (BR_STEP_QUEUE_BYTES) → br_estep_next
 *
 * Order: start, the task's own text, stop. Threads: a pump and `connections` lanes a step; DuckDB's threads read. Bounds: the two queues, and
 * BR_UDF_IN_FLIGHT units a lane; a unit is as large as BR_STEP_UNIT_BYTES allows. Each wait ends by stop, which everybody may call: cancel,
 * a failure of any part, or the task's text that wants no more. */
#include "executor/function.h"

#include "arrow/view.h"
#include "base/mem.h"
#include "base/util.h"
#include "udf/frames.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BR_STEP_QUEUE_BYTES \
  (16u << 20) /* of each of the two queues, or a quarter of the task's read buffer if that is less */
#define BR_STEP_QUEUE_LEAST_BYTES (1u << 20)
#define BR_STEP_UNIT_BYTES (8u << 20)
#define BR_STEP_UNIT_ROWS 8192u /* without a batch size; fewer while one takes longer than: */
#define BR_STEP_UNIT_LEAST_ROWS 1u
#define BR_STEP_UNIT_US 50000u
#define BR_STEP_MOST_DOUBLINGS 8u
#define BR_STEP_UNITS_A_LANE 2u /* in the queue: their size should fit what the last ones took */
#define BR_STEP_MOST_LANES 256u
#define BR_STEP_CANCEL_MS 50u /* an interrupt before a statement runs is lost: it comes again */

typedef struct unit {
  struct unit *next;
  uint64_t number, first_row, sent_us;
  br_batch *batch;
} unit;

typedef struct done {
  struct done *next;
  br_batch *batch;
} done;

typedef struct br_estep br_estep;
typedef struct lane {
  br_estep *step;
  pthread_t thread;
  bool started;
  br_function **functions; /* [n_calls]; NULL: not opened yet. Under the step's lock */
  unit *under_way[BR_UDF_IN_FLIGHT];
  uint32_t n;
} lane;

struct br_estep {
  br_etask *task;
  const Brant__Pb__Step *pb;
  br_schema *schema;                /* of input(number) */
  br_schema *columns;               /* of the SQL */
  br_schema **arguments, **results; /* [n_calls] */
  const char ***argument_types;     /* [n_calls][n_arguments] */
  uint64_t queue_bytes;
  br_session *session; /* under task->lock: whoever cancels holds it */
  pthread_t pump;
  bool pumping;
  lane *lanes;
  uint32_t n_lanes;

  pthread_mutex_t lock; /* for what follows */
  pthread_cond_t changed;
  unit *units, **units_end;
  done *out, **out_end;
  uint64_t units_bytes, out_bytes, peak_bytes;
  uint64_t made, delivered; /* units */
  uint32_t n_units, idle;   /* in the queue; lanes that wait for one */
  bool sql_ended, stopped;
  double us_per_row; /* of the last unit; 0: none yet */
  br_error error;
  uint64_t rows, bytes, batches, wait_us, retries;
};

struct br_esteps {
  br_estep *steps;
  size_t n;
  Brant__Pb__StepStats *stats; /* of all passes, one a step */
  Brant__Pb__StepStats **stat_refs;
  bool running;
};

static br_status stopped(br_error *err) {
  return br_fail(err, BR_CANCELLED, BR_BLAME_TASK, "the task needs no more rows of this step");
}

static void note_peak(br_estep *s) {
  uint64_t now = s->units_bytes + s->out_bytes;
  if (now > s->peak_bytes) s->peak_bytes = now;
}

/* The first failure counts. What waits is woken; nothing else is produced. */
static void fail_step(br_estep *s, const br_error *why) {
  pthread_mutex_lock(&s->lock);
  if (!s->error.code && !s->stopped) s->error = *why;
  s->stopped = true;
  for (uint32_t i = 0; i < s->n_lanes; i++)
    for (size_t c = 0; c < s->pb->n_calls; c++)
      if (s->lanes[i].functions && s->lanes[i].functions[c]) br_function_stop(s->lanes[i].functions[c]);
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

/* br_run_input.cancel of who reads it, and of a cancelled task: never into the session of the reader. */
static void stop_step(void *arg) {
  br_estep *s = arg;
  br_error why;
  pthread_mutex_lock(&s->lock);
  bool over = s->sql_ended && s->delivered == s->made; /* whoever read it may say that he is done */
  pthread_mutex_unlock(&s->lock);
  if (over) return;
  (void)!stopped(&why);
  fail_step(arg, &why);
}

/* ---- out: DuckDB reads */

static br_status step_next(void *arg, br_batch **out, br_error *err) {
  br_estep *s = arg;
  br_status status = BR_OK;
  *out = NULL;
  pthread_mutex_lock(&s->lock);
  while (!s->out && !s->stopped && !(s->sql_ended && s->delivered == s->made)) pthread_cond_wait(&s->changed, &s->lock);
  done *d = s->out;
  if (s->error.code) {
    *err = s->error;
    status = err->code;
  } else if (s->stopped) {
    status = stopped(err);
  } else if (d) {
    s->out = d->next;
    if (!s->out) s->out_end = &s->out;
    s->out_bytes -= br_batch_bytes(d->batch);
    *out = d->batch;
    free(d);
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

/* The rows of unit `number`, when its turn has come and there is room. Takes over the list. */
static br_status deliver(br_estep *s, uint64_t number, done *list, uint64_t rows, uint64_t bytes, br_error *err) {
  br_status status = BR_OK;
  pthread_mutex_lock(&s->lock);
  while (!s->stopped && (s->delivered != number || (s->out && s->out_bytes + bytes > s->queue_bytes)))
    pthread_cond_wait(&s->changed, &s->lock);
  if (s->stopped) {
    status = stopped(err);
  } else {
    *s->out_end = list;
    while (*s->out_end) s->out_end = &(*s->out_end)->next;
    list = NULL;
    s->out_bytes += bytes;
    s->rows += rows, s->bytes += bytes;
    s->delivered++;
    note_peak(s);
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  while (list) {
    done *d = list;
    list = d->next;
    br_batch_unref(d->batch);
    free(d);
  }
  return status;
}

/* ---- lanes */

static uint32_t batch_rows(const Brant__Pb__StepCall *c) { return c->batch_rows; }

/* Rows of one unit: the largest batch that a function wants. */
static uint32_t unit_rows(br_estep *s) {
  uint32_t rows = 0;
  for (size_t i = 0; i < s->pb->n_calls; i++)
    if (batch_rows(s->pb->calls[i]) > rows) rows = batch_rows(s->pb->calls[i]);
  if (rows) return rows;
  pthread_mutex_lock(&s->lock);
  double us = s->us_per_row;
  uint64_t made = s->made;
  pthread_mutex_unlock(&s->lock);
  if (us <= 0) { /* nobody knows: a row for each lane, then more and more */
    uint64_t round = made / s->n_lanes;
    return 1u << (round < BR_STEP_MOST_DOUBLINGS ? round : BR_STEP_MOST_DOUBLINGS);
  }
  double fit = BR_STEP_UNIT_US / us;
  if (fit > BR_STEP_UNIT_ROWS) return BR_STEP_UNIT_ROWS;
  return fit < BR_STEP_UNIT_LEAST_ROWS ? BR_STEP_UNIT_LEAST_ROWS : (uint32_t)fit;
}

/* The next unit; *out NULL: none now (wait false), or none any more. */
static br_status take_unit(br_estep *s, bool wait, unit **out, br_error *err) {
  br_status status = BR_OK;
  *out = NULL;
  pthread_mutex_lock(&s->lock);
  s->idle += wait;
  while (wait && !s->units && !s->sql_ended && !s->stopped) pthread_cond_wait(&s->changed, &s->lock);
  s->idle -= wait;
  if (s->stopped) {
    status = stopped(err);
  } else if (s->units && (wait || s->n_units > s->idle)) { /* a second one only if all lanes have a first */
    *out = s->units;
    s->units = (*out)->next;
    if (!s->units) s->units_end = &s->units;
    s->n_units--;
    s->units_bytes -= br_batch_bytes((*out)->batch);
    (*out)->next = NULL;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return status;
}

static void free_unit(unit *u) {
  if (!u) return;
  br_batch_unref(u->batch);
  free(u);
}

static br_status open_function(lane *l, size_t call, br_error *err) {
  br_estep *s = l->step;
  if (l->functions[call]) return BR_OK;
  br_function_options o = {.task = s->task,
                           .call = s->pb->calls[call],
                           .argument_types = s->argument_types[call],
                           .result = s->results[call]};
  br_function *f = NULL;
  br_status status = br_function_new(&o, &f, err);
  if (status != BR_OK) return status;
  pthread_mutex_lock(&s->lock);
  l->functions[call] = f; /* from here on a stop reaches it */
  bool late = s->stopped;
  pthread_mutex_unlock(&s->lock);
  if (late) return stopped(err);
  return br_function_open(f, err);
}

/* Rows [first, first + rows) of a unit as arguments. */
static br_status arguments_of(br_estep *s, size_t call, const unit *u, int64_t first, int64_t rows, br_batch **out,
                              br_error *err) {
  const Brant__Pb__StepCall *c = s->pb->calls[call];
  br_view_column *columns = br_calloc(c->n_arguments + 1, sizeof *columns);
  for (size_t i = 0; i < c->n_arguments; i++)
    columns[i] = (br_view_column){.from = u->batch, .column = (int)c->arguments[i], .first = first};
  br_status status = br_batch_view(s->arguments[call], columns, c->n_arguments, rows, out, err);
  free(columns);
  return status;
}

static br_status send_rows(lane *l, size_t call, const unit *u, int64_t first, int64_t rows, br_error *err) {
  br_batch *args = NULL;
  BR_TRY(open_function(l, call, err));
  BR_TRY(arguments_of(l->step, call, u, first, rows, &args, err));
  br_status status = br_function_send(l->functions[call], args, u->first_row + (uint64_t)first, err);
  br_batch_unref(args);
  return status;
}

/* How many batches a call makes of a unit. */
static int64_t slices(const br_estep *s, size_t call, const unit *u) {
  int64_t rows = br_batch_rows(u->batch), each = batch_rows(s->pb->calls[call]);
  return !each || each >= rows ? 1 : (rows + each - 1) / each;
}

static bool one_batch_each(const br_estep *s, const unit *u) {
  for (size_t c = 0; c < s->pb->n_calls; c++)
    if (slices(s, c, u) > 1) return false;
  return true;
}

/* Results of one call over a unit, in order. */
typedef struct results {
  br_batch **v;
  size_t n;
} results;

static br_status call_in_slices(lane *l, size_t call, const unit *u, results *r, br_error *err) {
  int64_t n = slices(l->step, call, u), rows = br_batch_rows(u->batch), sent = 0;
  int64_t each = n == 1 ? rows : batch_rows(l->step->pb->calls[call]);
  r->v = br_calloc((size_t)n, sizeof(br_batch *));
  while ((int64_t)r->n < n) {
    while (sent < n && sent - (int64_t)r->n < (int64_t)BR_UDF_IN_FLIGHT) {
      int64_t first = sent * each, count = rows - first < each ? rows - first : each;
      BR_TRY(send_rows(l, call, u, first, count, err));
      sent++;
    }
    BR_TRY(br_function_receive(l->functions[call], &r->v[r->n], err));
    r->n++;
  }
  return BR_OK;
}

/* The unit's columns with the results beside them: a batch up to each row where some call's batch ends. */
static br_status combine(br_estep *s, const unit *u, const results *r, done **list, uint64_t *bytes, br_error *err) {
  size_t n_columns = (size_t)br_schema_columns(s->columns), n_calls = s->pb->n_calls;
  int64_t rows = br_batch_rows(u->batch);
  br_view_column *v = br_calloc(n_columns + n_calls, sizeof *v);
  size_t *at = br_calloc(n_calls, sizeof *at);
  int64_t *used = br_calloc(n_calls, sizeof *used);
  done **end = list;
  br_status status = BR_OK;
  for (int64_t first = 0; first < rows && status == BR_OK;) {
    int64_t count = rows - first;
    for (size_t c = 0; c < n_calls; c++) {
      int64_t left = br_batch_rows(r[c].v[at[c]]) - used[c];
      if (left < count) count = left;
    }
    for (size_t i = 0; i < n_columns; i++) v[i] = (br_view_column){.from = u->batch, .column = (int)i, .first = first};
    for (size_t c = 0; c < n_calls; c++)
      v[n_columns + c] = (br_view_column){.from = r[c].v[at[c]], .column = 0, .first = used[c]};
    done *d = br_calloc(1, sizeof *d);
    status = br_batch_view(s->schema, v, n_columns + n_calls, count, &d->batch, err);
    if (status != BR_OK) {
      free(d);
      break;
    }
    *end = d;
    end = &d->next;
    *bytes += br_batch_bytes(d->batch);
    first += count;
    for (size_t c = 0; c < n_calls; c++) {
      used[c] += count;
      if (used[c] < br_batch_rows(r[c].v[at[c]])) continue;
      used[c] = 0;
      at[c]++;
    }
  }
  free(v);
  free(at);
  free(used);
  return status;
}

static void free_results(results *r, size_t n) {
  for (size_t c = 0; c < n; c++) {
    for (size_t i = 0; i < r[c].n; i++) br_batch_unref(r[c].v[i]);
    free(r[c].v);
  }
  free(r);
}

static void count_unit(br_estep *s, const unit *u, uint64_t since_us) {
  uint64_t us = br_now_us() - since_us;
  int64_t rows = br_batch_rows(u->batch);
  pthread_mutex_lock(&s->lock);
  s->wait_us += us;
  s->batches++;
  if (rows > 0) s->us_per_row = (double)us / (double)rows;
  pthread_mutex_unlock(&s->lock);
}

/* The oldest unit under way of the lane, whose arguments were sent unless they go in slices. */
static br_status finish_unit(lane *l, br_error *err) {
  br_estep *s = l->step;
  unit *u = l->under_way[0];
  results *r = br_calloc(s->pb->n_calls, sizeof *r);
  done *list = NULL;
  uint64_t bytes = 0, since_us = br_now_us();
  br_status status = BR_OK;
  bool sent = one_batch_each(s, u);
  for (size_t c = 0; c < s->pb->n_calls && status == BR_OK; c++) {
    if (!sent) {
      status = call_in_slices(l, c, u, &r[c], err);
      continue;
    }
    r[c].v = br_calloc(1, sizeof(br_batch *));
    status = br_function_receive(l->functions[c], &r[c].v[0], err);
    if (status == BR_OK) r[c].n = 1;
  }
  if (status == BR_OK) {
    count_unit(s, u, since_us);
    status = combine(s, u, r, &list, &bytes, err);
  }
  uint64_t number = u->number, rows = (uint64_t)br_batch_rows(u->batch);
  free_results(r, s->pb->n_calls);
  memmove(l->under_way, l->under_way + 1, --l->n * sizeof *l->under_way);
  free_unit(u);
  if (status == BR_OK) return deliver(s, number, list, rows, bytes, err);
  while (list) {
    done *d = list;
    list = d->next;
    br_batch_unref(d->batch);
    free(d);
  }
  return status;
}

/* Units whose arguments were sent wait in their processes while the next one is sent. */
static br_status work(lane *l, br_error *err) {
  br_estep *s = l->step;
  for (;;) {
    unit *u = NULL;
    bool room = l->n < BR_UDF_IN_FLIGHT && (!l->n || one_batch_each(s, l->under_way[l->n - 1]));
    if (room) BR_TRY(take_unit(s, l->n == 0, &u, err));
    if (!u && !l->n) return BR_OK;
    if (u) {
      bool sends = one_batch_each(s, u);
      while (!sends && l->n) { /* slices go alone */
        br_status status = finish_unit(l, err);
        if (status != BR_OK) {
          free_unit(u);
          return status;
        }
      }
      l->under_way[l->n++] = u;
      for (size_t c = 0; c < s->pb->n_calls && sends; c++) BR_TRY(send_rows(l, c, u, 0, br_batch_rows(u->batch), err));
      if (sends && l->n < BR_UDF_IN_FLIGHT) continue;
    }
    BR_TRY(finish_unit(l, err));
  }
}

static void *lane_thread(void *arg) {
  lane *l = arg;
  br_estep *s = l->step;
  br_error err = {0};
  if (work(l, &err) != BR_OK) fail_step(s, &err);
  while (l->n) free_unit(l->under_way[--l->n]);
  for (size_t c = 0; c < s->pb->n_calls; c++) {
    pthread_mutex_lock(&s->lock);
    br_function *f = l->functions[c];
    l->functions[c] = NULL;
    if (f) s->retries += br_function_retries(f);
    pthread_mutex_unlock(&s->lock);
    br_function_close(f);
  }
  return NULL;
}

/* ---- the pump */

static br_status put_unit(br_estep *s, br_batch *b, uint64_t first_row, br_error *err) {
  unit *u = br_calloc(1, sizeof *u);
  br_status status = BR_OK;
  *u = (unit){.batch = b, .first_row = first_row};
  pthread_mutex_lock(&s->lock);
  while (!s->stopped && s->units &&
         (s->units_bytes + br_batch_bytes(b) > s->queue_bytes || s->n_units >= s->n_lanes * BR_STEP_UNITS_A_LANE))
    pthread_cond_wait(&s->changed, &s->lock);
  if (s->stopped) {
    status = stopped(err);
  } else {
    u->number = s->made++;
    *s->units_end = u;
    s->units_end = &u->next;
    s->n_units++;
    s->units_bytes += br_batch_bytes(b);
    note_peak(s);
    u = NULL;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  free_unit(u);
  return status;
}

static br_status check_columns(const br_estep *s, br_local_stream *st, br_error *err) {
  br_buf why = {0};
  br_status status = BR_OK;
  if (!br_schema_same_types(s->columns, br_local_stream_schema(st), &why))
    status = br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "step %u gives other columns than the plan says: %s",
                     s->pb->number, br_buf_cstr(&why));
  br_buf_free(&why);
  return status;
}

static br_status pump_rows(br_estep *s, br_local_stream *st, br_error *err) {
  uint64_t unit_bytes = s->queue_bytes < BR_STEP_UNIT_BYTES ? s->queue_bytes : BR_STEP_UNIT_BYTES;
  BR_TRY(check_columns(s, st, err));
  for (uint64_t row = 0;;) {
    br_batch *b = NULL;
    br_local_stream_exact(st, unit_rows(s), unit_bytes);
    BR_TRY(br_local_stream_next(st, &b, err));
    if (!b) return BR_OK;
    uint64_t rows = (uint64_t)br_batch_rows(b);
    BR_TRY(put_unit(s, b, row, err));
    row += rows;
  }
}

static void *pump_thread(void *arg) {
  br_estep *s = arg;
  br_error err = {0};
  br_local_stream *st = NULL;
  br_run_input *inputs = br_calloc(s->task->n_inputs + s->task->pb->task->n_steps + 1, sizeof *inputs);
  size_t n = br_esteps_inputs(s->task, s->pb, inputs);
  br_status status = br_session_stream_over(s->session, s->pb->sql, inputs, n, &st, &err);
  if (status == BR_OK) status = pump_rows(s, st, &err);
  br_local_stream_free(st);
  free(inputs);
  if (status != BR_OK) {
    fail_step(s, &err);
    return NULL;
  }
  pthread_mutex_lock(&s->lock);
  s->sql_ended = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* ---- start */

static br_status make_schemas(br_estep *s, br_error *err) {
  const Brant__Pb__Step *pb = s->pb;
  br_session *on = s->session;
  size_t n_columns = pb->n_types - pb->n_calls;
  const char *const *types = (const char *const *)pb->types;
  BR_TRY(br_session_schema(on, types, NULL, pb->n_types, &s->schema, err));
  BR_TRY(br_session_schema(on, types, NULL, n_columns, &s->columns, err));
  for (size_t c = 0; c < pb->n_calls; c++) {
    const Brant__Pb__StepCall *call = pb->calls[c];
    s->argument_types[c] = br_calloc(call->n_arguments + 1, sizeof(char *));
    for (size_t i = 0; i < call->n_arguments; i++) {
      if (call->arguments[i] >= n_columns)
        return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a call in step %u has an argument that is no column",
                       pb->number);
      s->argument_types[c][i] = pb->types[call->arguments[i]];
    }
    const char *const *arguments = (const char *const *)s->argument_types[c];
    if (call->n_arguments) {
      BR_TRY(br_session_schema(on, arguments, NULL, call->n_arguments, &s->arguments[c], err));
    } else {
      struct ArrowSchema none;
      ArrowSchemaInit(&none);
      if (ArrowSchemaSetTypeStruct(&none, 0) != NANOARROW_OK)
        return br_fail(err, BR_OUT_OF_MEMORY, BR_BLAME_TASK, "no memory for a schema");
      BR_TRY(br_schema_new(&none, &s->arguments[c], err));
    }
    BR_TRY(br_session_schema(on, &types[n_columns + c], NULL, 1, &s->results[c], err));
  }
  return BR_OK;
}

static br_status check_step(const Brant__Pb__Step *pb, br_error *err) {
  if (pb->sql[0] && pb->n_calls && pb->n_types > pb->n_calls) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "step %u of a task came without its SQL, types or calls",
                 pb->number);
}

static void init_step(br_estep *s, br_etask *t, const Brant__Pb__Step *pb) {
  *s = (br_estep){.task = t, .pb = pb};
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  s->units_end = &s->units;
  s->out_end = &s->out;
  s->arguments = br_calloc(pb->n_calls + 1, sizeof(br_schema *));
  s->results = br_calloc(pb->n_calls + 1, sizeof(br_schema *));
  s->argument_types = br_calloc(pb->n_calls + 1, sizeof(char **));
  uint64_t bytes = t->x->read_buffer_bytes / 4;
  if (bytes > BR_STEP_QUEUE_BYTES) bytes = BR_STEP_QUEUE_BYTES;
  s->queue_bytes = bytes < BR_STEP_QUEUE_LEAST_BYTES ? BR_STEP_QUEUE_LEAST_BYTES : bytes;
  for (size_t c = 0; c < pb->n_calls; c++)
    if (pb->calls[c]->connections > s->n_lanes) s->n_lanes = pb->calls[c]->connections;
  if (!s->n_lanes) s->n_lanes = 1;
  if (s->n_lanes > BR_STEP_MOST_LANES) s->n_lanes = BR_STEP_MOST_LANES;
  s->lanes = br_calloc(s->n_lanes, sizeof *s->lanes);
  for (uint32_t i = 0; i < s->n_lanes; i++) {
    s->lanes[i].step = s;
    s->lanes[i].functions = br_calloc(pb->n_calls, sizeof(br_function *));
  }
}

static br_status prepare_step(br_estep *s, br_error *err) {
  br_session *session = NULL;
  BR_TRY(check_step(s->pb, err));
  BR_TRY(br_sessions_take(s->task->x->sessions, s->task->pb->task, &session, err));
  pthread_mutex_lock(&s->task->lock);
  s->session = session;
  pthread_mutex_unlock(&s->task->lock);
  return make_schemas(s, err);
}

static br_status start_threads(br_estep *s, br_error *err) {
  for (uint32_t i = 0; i < s->n_lanes; i++) {
    int r = pthread_create(&s->lanes[i].thread, NULL, lane_thread, &s->lanes[i]);
    if (r) return br_fail_errno(err, r, BR_BLAME_EXECUTOR, "cannot start a thread for a step");
    s->lanes[i].started = true;
  }
  int r = pthread_create(&s->pump, NULL, pump_thread, s);
  if (r) return br_fail_errno(err, r, BR_BLAME_EXECUTOR, "cannot start a thread for a step");
  s->pumping = true;
  return BR_OK;
}

br_status br_esteps_start(br_etask *t, br_error *err) {
  const Brant__Pb__Task *task = t->pb->task;
  if (!task->n_steps) return BR_OK;
  br_esteps *all = t->steps;
  if (!all) {
    all = br_calloc(1, sizeof *all);
    all->stats = br_calloc(task->n_steps, sizeof *all->stats);
    all->stat_refs = br_calloc(task->n_steps, sizeof(Brant__Pb__StepStats *));
    for (size_t i = 0; i < task->n_steps; i++) {
      brant__pb__step_stats__init(&all->stats[i]);
      all->stats[i].number = task->steps[i]->number;
      all->stat_refs[i] = &all->stats[i];
    }
  }
  br_estep *steps = br_calloc(task->n_steps, sizeof *steps);
  for (size_t i = 0; i < task->n_steps; i++) init_step(&steps[i], t, task->steps[i]);
  pthread_mutex_lock(&t->lock);
  all->steps = steps;
  all->n = task->n_steps;
  t->steps = all; /* from here on a cancel reaches them */
  pthread_mutex_unlock(&t->lock);
  for (size_t i = 0; i < all->n; i++) BR_TRY(prepare_step(&steps[i], err));
  all->running = true;
  for (size_t i = 0; i < all->n; i++) BR_TRY(start_threads(&steps[i], err));
  return BR_OK;
}

/* ---- what reads what */

static bool reads(const Brant__Pb__Step *step, uint32_t number) {
  for (size_t i = 0; i < step->n_reads; i++)
    if (step->reads[i] == number) return true;
  return false;
}

static bool read_by(const Brant__Pb__Task *task, const Brant__Pb__Step *reader, uint32_t number) {
  if (reader) return reads(reader, number);
  for (size_t i = 0; i < task->n_steps; i++)
    if (reads(task->steps[i], number)) return false;
  return true;
}

size_t br_esteps_inputs(br_etask *t, const Brant__Pb__Step *reader, br_run_input *out) {
  const Brant__Pb__Task *task = t->pb->task;
  size_t n = 0;
  for (size_t i = 0; i < t->n_inputs; i++) {
    const br_einput *in = &t->inputs[i];
    if (in->pb->kind == BRANT__PB__INPUT_KIND__INPUT_BOUNDS || !read_by(task, reader, in->pb->number)) continue;
    out[n++] = br_einput_bind(&t->inputs[i]);
  }
  for (size_t i = 0; t->steps && i < t->steps->n; i++) {
    br_estep *s = &t->steps->steps[i];
    if (!read_by(task, reader, s->pb->number)) continue;
    /* one reader: more of them would hold DuckDB's threads while they wait for processes */
    out[n++] = (br_run_input){.number = s->pb->number,
                              .schema = s->schema,
                              .ordered = true,
                              .next = step_next,
                              .cancel = stop_step,
                              .arg = s};
  }
  return n;
}

/* ---- the end */

void br_esteps_cancel(br_etask *t) {
  for (size_t i = 0; t->steps && i < t->steps->n; i++) {
    br_estep *s = &t->steps->steps[i];
    stop_step(s);
    if (s->session) br_session_cancel(s->session);
  }
}

static void free_step(br_estep *s, bool reuse) {
  pthread_mutex_lock(&s->task->lock);
  br_session *session = s->session;
  s->session = NULL;
  pthread_mutex_unlock(&s->task->lock);
  br_sessions_give(s->task->x->sessions, s->task->pb->task, session, reuse);
  while (s->units) {
    unit *u = s->units;
    s->units = u->next;
    free_unit(u);
  }
  while (s->out) {
    done *d = s->out;
    s->out = d->next;
    br_batch_unref(d->batch);
    free(d);
  }
  for (uint32_t i = 0; i < s->n_lanes; i++) free(s->lanes[i].functions);
  for (size_t c = 0; c < s->pb->n_calls; c++) {
    br_schema_unref(s->arguments[c]);
    br_schema_unref(s->results[c]);
    free(s->argument_types[c]);
  }
  free(s->lanes);
  free(s->arguments);
  free(s->results);
  free(s->argument_types);
  br_schema_unref(s->schema);
  br_schema_unref(s->columns);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
}

static void add_stats(Brant__Pb__StepStats *to, const br_estep *s) {
  to->rows += s->rows, to->bytes += s->bytes, to->batches += s->batches;
  to->wait_us += s->wait_us, to->retries += s->retries;
  if (s->peak_bytes > to->peak_bytes) to->peak_bytes = s->peak_bytes;
}

static void join_pump(br_estep *s) {
  for (;;) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)BR_STEP_CANCEL_MS * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    if (pthread_timedjoin_np(s->pump, NULL, &until) != ETIMEDOUT) return;
    pthread_mutex_lock(&s->lock);
    bool stop = s->stopped;
    pthread_mutex_unlock(&s->lock);
    if (stop) br_session_cancel(s->session);
  }
}

static void join_step(br_estep *s) {
  if (s->pumping) join_pump(s);
  for (uint32_t i = 0; i < s->n_lanes; i++)
    if (s->lanes[i].started) pthread_join(s->lanes[i].thread, NULL);
}

void br_esteps_stop(br_etask *t) {
  br_esteps *all = t->steps;
  if (!all || !all->steps) return;
  bool over = true; /* each step ran to its end: nothing has to be stopped */
  for (size_t i = 0; i < all->n; i++) {
    br_estep *s = &all->steps[i];
    pthread_mutex_lock(&s->lock);
    over = over && s->sql_ended && s->delivered == s->made && !s->stopped;
    pthread_mutex_unlock(&s->lock);
  }
  if (!over) {
    pthread_mutex_lock(&t->lock);
    br_esteps_cancel(t);
    pthread_mutex_unlock(&t->lock);
  }
  for (size_t i = 0; i < all->n; i++) join_step(&all->steps[i]);
  pthread_mutex_lock(&t->lock);
  br_estep *steps = all->steps;
  size_t n = all->n;
  all->steps = NULL;
  all->n = 0;
  pthread_mutex_unlock(&t->lock);
  for (size_t i = 0; i < n; i++) {
    add_stats(&all->stats[i], &steps[i]);
    free_step(&steps[i], over);
  }
  free(steps);
}

void br_esteps_stats(br_etask *t, Brant__Pb__TaskStats *s) {
  if (!t->steps) return;
  s->n_steps = t->pb->task->n_steps;
  s->steps = t->steps->stat_refs;
}

void br_esteps_free(br_etask *t) {
  br_esteps *all = t->steps;
  if (!all) return;
  br_esteps_stop(t);
  pthread_mutex_lock(&t->lock);
  t->steps = NULL;
  pthread_mutex_unlock(&t->lock);
  free(all->stats);
  free(all->stat_refs);
  free(all);
}
