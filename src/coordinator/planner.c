/* SPDX-License-Identifier: Apache-2.0
 *
 * From a SELECT to something that runs: DuckDB plans, the plan is cut into stages, sources into splits. Decides where it runs:
 * in this process (small inputs, what lives here), as one task, or distributed.
 *
 * Order: rewrite (true row counts into the text), plan, check what it reads, cut, split, count tasks. The caller's thread.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/util.h"
#include "coordinator/dataset.h"
#include "coordinator/session.h"
#include "coordinator/tokens.h"

#define SPLIT_LEAST_BYTES \
  (8u << 20) /* compressed, of the columns that are read; less costs more to start than it brings */
#define SPLIT_LEAST_ROWS 1000000u /* but so many rows do, whatever their bytes */
#define BYTES_A_WHOLE_BYTE 4u     /* of a split, for each byte that its task reads beside it */
#define SPLIT_MOST_BYTES (256u << 20)
#define TEXT_SPLIT_MOST_BYTES (32u << 20) /* a part of a file is held in memory while it is read */
#define PARTITION_BYTES (96u << 20)       /* of input for each partition of an exchange */
#define TASKS_PER_SLOT_BUILDING 2         /* of a stage with a broadcast join: each task builds the table again */
#define TASKS_PER_SLOT 3                  /* so that the last task of a stage is short */
#define TASKS_PER_SLOT_CALLING \
  2 /* at least, of a stage that calls functions which may take long for each row (stage/costly.c) */
#define SUMMARIES_PER_SLOT 2          /* columns differ in what they cost */
#define TASK_TARGET_BYTES (64u << 20) /* of a task that reads an exchange, once its size is known */
#define INLINE_SHARE \
  4 /* of less than so many times inline_bytes nothing is small: all of it is distributed, or runs here */
#define PARTITIONS_MOST 4096u
#define PART_LEAST_BYTES (1u << 20) /* less of a dataset is not worth a task of its own on the worker that has it */
#define TABLE_SPLIT_ROWS 2000000u
#define SPLITS_MOST 100000u
#define RECORD_BYTES (16u << 10) /* about, of a record of an archive */
#define DOWNLOADS_LEAST_BYTES \
  (4u << 10) /* of what URLs come from: some dozens are worth the workers, as each may take seconds */
#define TEXT_MOST_BYTES (BR_MESSAGE_MAX_BYTES - (2u << 20))

void br_prepared_free(br_prepared *p) {
  br_query_unref(p->query);
  free(p->sql);
  free(p->why_text);
  for (size_t i = 0; i < p->n_columns; i++) {
    free(p->names[i]);
    free(p->types[i]);
  }
  free(p->names);
  free(p->types);
  *p = (br_prepared){0};
}

static void run_here(br_prepared *p, const char *why) {
  p->local = true;
  p->local_why = why;
}

static bool starts_with(const char *s, const char *prefix) { return strncasecmp(s, prefix, strlen(prefix)) == 0; }

/* What only this process can answer: tables in its memory, and functions about the session itself. */
static const char *only_here(brant_session *s, const br_node *n, br_prepared *p) {
  if (n->kind == BR_NODE_GET) {
    const char *name = json_string_value(json_object_get(n->json, "name"));
    json_t *fd = json_object_get(n->json, "function_data");
    const char *catalog = json_string_value(json_object_get(fd, "catalog"));
    if (catalog != NULL && (strcmp(catalog, "memory") == 0 || strcmp(catalog, "temp") == 0)) {
      const char *table = json_string_value(json_object_get(fd, "table"));
      free(p->why_text);
      return p->why_text = br_asprintf("table %s lives in the memory of this process", table ? table : "?");
    }
    if (catalog != NULL && br_session_writes(s, catalog)) {
      free(p->why_text);
      return p->why_text = br_asprintf("%s is attached for writing, and so this process alone has it", catalog);
    }
    if (name != NULL && (starts_with(name, "duckdb_") || starts_with(name, "pragma_"))) {
      p->about_session = true;
      return "it asks about this session";
    }
  }
  for (size_t i = 0; i < n->n_children; i++) {
    const char *why = only_here(s, n->children[i], p);
    if (why != NULL) return why;
  }
  return NULL;
}

/* Whether rows of a top-n are joined. */
static bool joins_top_n(const br_node *n, bool joined) {
  if (n->kind == BR_NODE_TOP_N && joined) return true;
  joined = joined || n->kind == BR_NODE_JOIN || n->kind == BR_NODE_DELIM_JOIN;
  for (size_t i = 0; i < n->n_children; i++)
    if (joins_top_n(n->children[i], joined)) return true;
  return false;
}

/* ---- the sizes of things */

static uint32_t choose_partitions(const brant_session *s, uint64_t bytes, uint32_t slots) {
  if (s->settings.partitions > 0) return (uint32_t)s->settings.partitions;
  uint64_t n = bytes / PARTITION_BYTES + 1;
  if (n < slots) n = slots;
  n = (n + slots - 1) / slots * slots; /* whole waves */
  return n > PARTITIONS_MOST ? PARTITIONS_MOST : (uint32_t)n;
}

static bool builds_tables(const br_stage *st) {
  for (size_t i = 0; i < st->n_inputs; i++)
    if (st->inputs[i].kind == BR_EX_BROADCAST) return true;
  for (size_t i = 0; i < st->n_scans; i++)
    if ((int)i != st->split_scan && !st->scans[i].cut) return true; /* read whole by each task */
  return false;
}

/* Bytes that each task reads beside its split. */
static double bytes_read_whole(const br_stage *st) {
  double bytes = 0;
  for (size_t i = 0; i < st->n_scans; i++)
    if ((int)i != st->split_scan && !st->scans[i].cut && st->scans[i].bytes > 0) bytes += st->scans[i].bytes;
  return bytes;
}

/* How many splits of `bytes` (of the columns that are read) and `rows` are worth a task each. */
static uint64_t ideal_splits(const brant_session *s, const br_stage *st, uint64_t bytes, uint64_t rows,
                             uint32_t slots) {
  bool building = builds_tables(st);
  uint64_t most = (uint64_t)slots * (building ? TASKS_PER_SLOT_BUILDING : TASKS_PER_SLOT);
  uint64_t target = s->settings.split_bytes, whole = (uint64_t)bytes_read_whole(st);
  if (target > 0) return (bytes + target - 1) / target;
  target = bytes / most + 1;
  if (target < SPLIT_LEAST_BYTES) target = SPLIT_LEAST_BYTES;
  if (target < whole * BYTES_A_WHOLE_BYTE) target = whole * BYTES_A_WHOLE_BYTE;
  if (target > SPLIT_MOST_BYTES && !building) target = SPLIT_MOST_BYTES;
  uint64_t ideal = (bytes + target - 1) / target, by_rows = rows / SPLIT_LEAST_ROWS;
  if (by_rows > most) by_rows = most; /* many rows may be few bytes */
  return by_rows > ideal && whole == 0 ? by_rows : ideal;
}

/* How many splits a scan gets. A number that fits the number of files cuts no file (files of a table are mostly of one size):
 * a cut inside costs a row number for every row. */
static uint32_t choose_splits(const brant_session *s, const br_stage *st, uint64_t bytes, uint64_t rows, uint64_t files,
                              uint32_t slots) {
  uint64_t ideal = ideal_splits(s, st, bytes, rows, slots);
  if (br_stage_costly_rows(st) > 0 && ideal < (uint64_t)slots * TASKS_PER_SLOT_CALLING)
    ideal = (uint64_t)slots * TASKS_PER_SLOT_CALLING;
  if (ideal < slots) ideal = slots;
  for (uint64_t away = 0; files > 0 && away <= ideal / 2; away++) { /* the nearest one */
    uint64_t more = ideal + away, less = ideal - away < slots ? slots : ideal - away;
    if (files % more == 0 || more % files == 0) return (uint32_t)more;
    if (files % less == 0 || less % files == 0) return (uint32_t)less;
  }
  return ideal > SPLITS_MOST ? SPLITS_MOST : (uint32_t)ideal;
}

/* ---- splits */

/* decompile/ gives named arguments as text that follows an argument: ", a := 1". */
static const char *without_comma(const char *options) {
  return options != NULL && strncmp(options, ", ", 2) == 0 ? options + 2 : options;
}

static void pin(br_query *q, br_snapshot *files) {
  br_grow((void **)&q->snapshots, &q->cap_snapshots, q->n_snapshots, sizeof *q->snapshots);
  q->snapshots[q->n_snapshots++] = files;
}

/* The files of a scan as they are now; kept by the query, and checked once more when it ends. */
static br_status pin_files(brant_session *s, br_query *q, const br_scan *scan, br_snapshot **out, br_error *err) {
  /* Executors may run elsewhere; where a column shows the name, it stays as it was written. */
  bool named = scan->options != NULL && strstr(scan->options, "filename") != NULL;
  char **files = br_calloc(scan->n_files + 1, sizeof *files);
  for (size_t i = 0; i < scan->n_files; i++)
    files[i] = named ? br_strdup(scan->files[i]) : br_absolute_path(scan->files[i]);
  br_status status = br_source_snapshot(s->db, s->source, (const char *const *)files, scan->n_files, out, err);
  for (size_t i = 0; i < scan->n_files; i++) free(files[i]);
  free(files);
  BR_TRY(status);
  pin(q, *out);
  return BR_OK;
}

static char *whole_files(const br_snapshot *snap, const char *options) {
  size_t n = br_snapshot_files(snap);
  br_piece *pieces = br_calloc(n, sizeof *pieces);
  for (size_t i = 0; i < n; i++) pieces[i] = (br_piece){.file = (uint32_t)i, .whole_file = true};
  br_split all = {.pieces = pieces, .n = n};
  br_buf b = {0};
  br_split_sql(snap, &all, options, &b);
  free(pieces);
  return br_buf_take(&b);
}

/* One file a piece at most is cut inside only if the scan may be: whole_files_only joins and separates files alone. */
static void keep_files_whole(const br_snapshot *snap, br_split **splits, size_t *n) {
  br_splits_free(*splits, *n);
  *n = br_snapshot_files(snap);
  *splits = br_calloc(*n, sizeof **splits);
  size_t kept = 0;
  for (size_t i = 0; i < *n; i++) {
    const br_file *f = br_snapshot_file(snap, i);
    if (f->rows == 0) continue;
    br_piece *piece = br_calloc(1, sizeof *piece);
    *piece = (br_piece){
        .file = (uint32_t)i, .last_row = f->rows - 1, .rows = f->rows, .bytes = f->size_bytes, .whole_file = true};
    (*splits)[kept++] = (br_split){.pieces = piece, .n = 1, .rows = f->rows, .bytes = f->size_bytes};
  }
  *n = kept;
}

static void add_split(br_stage_run *r, char *sql, uint64_t rows) {
  r->split_sql = br_realloc(r->split_sql, (r->n_tasks + 1u) * sizeof *r->split_sql);
  r->split_sql[r->n_tasks++] = sql;
  r->split_rows += rows;
}

/* A part of a file is named by the numbers of its rows; DuckDB doesn't give these where a column has their name. */
static bool stay_whole(const br_scan *scan, const br_snapshot *snap) {
  static const char *const number = "file_row_number";
  return scan->whole_files_only || br_snapshot_bytes(snap, &number, 1) > 0;
}

/* The scan's files, and those of the scans that are cut with it. */
static br_status split_in_order(brant_session *s, br_query *q, br_stage_run *r, size_t i, const br_snapshot *snap,
                                const br_split *splits, size_t n, br_error *err) {
  br_status status = BR_OK;
  const br_snapshot **files = br_calloc(r->plan->n_scans, sizeof *files);
  for (size_t k = 0; k < r->plan->n_scans; k++) {
    br_snapshot *other = NULL;
    if (k != i && r->plan->scans[k].cut) BR_TRY_GOTO(pin_files(s, q, &r->plan->scans[k].scan, &other, err));
    files[k] = k == i ? snap : other;
  }
  br_cut_splits(q, r, files, splits, n);
done:
  free(files);
  return status;
}

static br_status split_files(brant_session *s, br_query *q, br_stage_run *r, size_t i, bool spread, uint32_t slots,
                             br_error *err) {
  const br_scan *scan = &r->plan->scans[i].scan;
  br_snapshot *snap = NULL;
  br_split *splits = NULL;
  bool **left_out = NULL;
  size_t n = 0;
  BR_TRY(pin_files(s, q, scan, &snap, err));
  if (!spread) {
    r->whole_sql[i] = whole_files(snap, without_comma(scan->options));
    return BR_OK;
  }
  uint64_t all = br_snapshot_bytes(snap, NULL, 0), bytes = all;
  bool whole = stay_whole(scan, snap);
  if (scan->prune != NULL && !whole) br_snapshot_prune(s->db, s->source, snap, scan->prune, &left_out, &bytes);
  double left = all > 0 ? (double)bytes / (double)all : 1, of_columns = r->plan->scans[i].bytes;
  if (of_columns >= 0 && s->settings.split_bytes == 0) bytes = (uint64_t)(of_columns * left);
  uint64_t rows = (uint64_t)((double)br_snapshot_rows(snap) * left);
  uint32_t want = choose_splits(s, r->plan, bytes, rows, br_snapshot_files(snap), slots);
  br_split_options o = {.min_splits = want,
                        .max_splits = want,
                        .left_out = (const bool *const *)left_out,
                        .cut_rows = br_stage_costly_rows(r->plan)};
  br_status status = br_snapshot_splits(snap, &o, &splits, &n, err);
  br_prune_free(snap, left_out);
  BR_TRY(status);
  if (whole) keep_files_whole(snap, &splits, &n);
  if (r->plan->scans[i].cut) {
    status = split_in_order(s, q, r, i, snap, splits, n, err);
    br_splits_free(splits, n);
    return status;
  }
  for (size_t k = 0; k < n; k++) {
    br_buf b = {0};
    br_split_sql(snap, &splits[k], without_comma(scan->options), &b);
    add_split(r, br_buf_take(&b), splits[k].rows);
  }
  if (q->adaptive) br_filter_facts(r, snap, splits, n);
  br_splits_free(splits, n);
  bool as_asked = whole || s->settings.split_bytes > 0 || br_stage_numbers_rows(r->plan);
  if (!as_asked && br_stage_costly_rows(r->plan) == 0 &&
      r->split_rows == br_snapshot_rows(snap)) { /* nothing was left out */
    r->split_files = snap;
    r->split_options = without_comma(scan->options);
  }
  return BR_OK;
}

static br_status split_table(brant_session *s, br_stage_run *r, size_t i, bool spread, uint32_t slots, br_error *err) {
  const br_scan *scan = &r->plan->scans[i].scan;
  br_table_split *splits = NULL;
  size_t n = 0;
  if (!spread) {
    br_table_split whole = {.whole_table = true};
    br_buf b = {0};
    br_table_split_sql(scan->catalog, scan->schema, scan->table, &whole, &b);
    r->whole_sql[i] = br_buf_take(&b);
    return BR_OK;
  }
  BR_TRY(
      br_table_splits(s->db, scan->catalog, scan->schema, scan->table, TABLE_SPLIT_ROWS, slots, 0, &splits, &n, err));
  for (size_t k = 0; k < n; k++) {
    br_buf b = {0};
    br_table_split_sql(scan->catalog, scan->schema, scan->table, &splits[k], &b);
    add_split(r, br_buf_take(&b), splits[k].rows);
  }
  free(splits);
  return BR_OK;
}

/* Of files that hold no row counts: as many bytes a task as of other files, fewer where rows cost more than reading them. */
static uint64_t bytes_a_split(const brant_session *s, const br_stage *st, uint64_t bytes, uint64_t row_bytes,
                              uint32_t slots, uint64_t most) {
  uint64_t target = s->settings.split_bytes, costly = br_stage_costly_rows(st);
  if (target == 0) {
    uint64_t least = costly > 0 ? costly * row_bytes : SPLIT_LEAST_BYTES;
    target = bytes / ((uint64_t)slots * (costly > 0 ? TASKS_PER_SLOT_CALLING : TASKS_PER_SLOT)) + 1;
    if (target < least) target = least;
  }
  return target < most ? target : most;
}

/* As many bytes a task as of other files; archives hold no row counts. */
static br_status split_archives(brant_session *s, br_query *q, br_stage_run *r, size_t i, bool spread, uint32_t slots,
                                br_error *err) {
  const br_scan *scan = &r->plan->scans[i].scan;
  const char *const *files = (const char *const *)scan->files;
  uint64_t bytes = 0, target;
  char **splits = NULL;
  size_t n = 0;
  BR_TRY(br_warc_bytes(s->db, files, scan->n_files, &bytes, err));
  target = bytes_a_split(s, r->plan, bytes, RECORD_BYTES, slots, SPLIT_MOST_BYTES);
  br_snapshot *pinned = NULL;
  br_status status =
      br_warc_splits(s->db, files, scan->n_files, scan->options, spread ? target : 0, &splits, &n, &pinned, err);
  if (pinned != NULL) pin(q, pinned);
  BR_TRY(status);
  if (!spread) r->whole_sql[i] = splits[0];
  for (size_t k = 0; spread && k < n; k++) add_split(r, splits[k], 0);
  free(splits);
  return BR_OK;
}

/* Parts that follow each other, as many a task as it takes for its share; of one worker, where they are not tiny. */
static void cut_dataset(br_dataset *d, br_stage_run *r, size_t i, const char *text, uint32_t slots) {
  uint32_t n = slots * TASKS_PER_SLOT < d->n_parts ? slots * TASKS_PER_SLOT : d->n_parts;
  uint32_t *at = br_calloc(d->n_parts + 1u, sizeof *at), first = 0, share = 1;
  uint64_t rows = 0, bytes = 0;
  r->datasets[i].cuts = br_calloc(d->n_parts + 2u, sizeof *r->datasets[i].cuts);
  br_dataset_workers(d, at);
  for (uint32_t p = 0; p < d->n_parts; p++) {
    rows += d->part_rows[p];
    bytes += d->part_bytes[p];
    bool elsewhere = p + 1 < d->n_parts && at[p + 1] != at[first] && bytes >= PART_LEAST_BYTES;
    bool full = p + 1 == (uint32_t)((uint64_t)d->n_parts * share / n);
    share += full;
    if (!full && !elsewhere) continue;
    add_split(r, br_strdup(text), rows);
    r->datasets[i].cuts[r->n_tasks] = first = p + 1;
    rows = bytes = 0;
  }
  free(at);
}

/* CSV and JSON: a part is held in memory while it is read, if it is one of a file. */
static br_status split_texts(brant_session *s, br_query *q, br_stage_run *r, size_t i, bool spread, uint32_t slots,
                             br_error *err) {
  const br_scan *scan = &r->plan->scans[i].scan;
  br_text_size size;
  br_text_splits splits;
  BR_TRY(br_text_estimate(s->db, scan->options, &size, err));
  uint64_t row_bytes = size.rows > 0 ? size.bytes / size.rows + 1 : size.bytes;
  uint64_t target = bytes_a_split(s, r->plan, size.bytes, row_bytes, slots, TEXT_SPLIT_MOST_BYTES);
  const br_stage_scan *of = &r->plan->scans[i];
  br_text_test *tests = br_calloc(of->n_tests + 1, sizeof *tests);
  for (size_t t = 0; t < of->n_tests; t++)
    tests[t] = (br_text_test){of->tests[t].condition, of->tests[t].names, of->tests[t].n_names};
  br_status status = br_text_split(s->db, scan->options, spread ? target : 0, tests, of->n_tests, &splits, err);
  free(tests);
  BR_TRY(status);
  if (splits.files != NULL) pin(q, splits.files);
  if (!spread) r->whole_sql[i] = splits.sql[0];
  for (size_t k = 0; spread && k < splits.n; k++) add_split(r, splits.sql[k], 0);
  if (spread) r->split_rows = size.rows;
  free(splits.sql);
  return BR_OK;
}

static br_status split_dataset(brant_session *s, br_stage_run *r, size_t i, bool spread, uint32_t slots,
                               br_error *err) {
  br_dataset *d = br_dataset_find(s, r->plan->scans[i].scan.table);
  if (d == NULL)
    return br_fail(err, BR_INVALID, BR_BLAME_USER, "there is no dataset %s in this session",
                   r->plan->scans[i].scan.table);
  char *text = br_asprintf("input(%zu)", BR_DATASET_INPUT + i);
  r->datasets[i].dataset = br_dataset_ref(d);
  br_driver_offer(s->driver, d);
  if (!spread) {
    r->whole_sql[i] = text;
    return BR_OK;
  }
  cut_dataset(d, r, i, text, slots);
  free(text);
  return BR_OK;
}

static br_status split_stage(brant_session *s, br_query *q, br_stage_run *r, uint32_t slots, br_error *err) {
  const br_stage *st = r->plan;
  BR_TRY(br_session_check_interrupt(s, err));
  r->whole_sql = br_calloc(st->n_scans, sizeof *r->whole_sql);
  r->datasets = br_calloc(st->n_scans + 1, sizeof *r->datasets);
  for (size_t i = 0; i < st->n_scans; i++) {
    bool spread = (int)i == st->split_scan && st->rule == BR_TASKS_SPLITS;
    if (!spread && st->scans[i].cut) continue; /* with the split one */
    if (st->scans[i].scan.kind == BR_SCAN_DATASET)
      BR_TRY(split_dataset(s, r, i, spread, slots, err));
    else if (st->scans[i].scan.kind == BR_SCAN_TABLE)
      BR_TRY(split_table(s, r, i, spread, slots, err));
    else if (st->scans[i].scan.kind == BR_SCAN_WARC)
      BR_TRY(split_archives(s, q, r, i, spread, slots, err));
    else if (st->scans[i].scan.kind == BR_SCAN_TEXT)
      BR_TRY(split_texts(s, q, r, i, spread, slots, err));
    else
      BR_TRY(split_files(s, q, r, i, spread, slots, err));
  }
  return BR_OK;
}

/* Compressed bytes of the files and columns that a plan reads, for the decisions that depend on size. */
static br_status plan_bytes(brant_session *s, br_node *n, br_arena *arena, uint64_t *bytes, br_error *err) {
  br_scan scan;
  bool is_scan = false;
  if (n->kind == BR_NODE_GET) BR_TRY(br_scan_of(arena, n, &is_scan, &scan, err));
  if (is_scan && scan.kind == BR_SCAN_PARQUET && scan.n_files > 0) {
    br_snapshot *snap = NULL;
    json_t *names = json_object_get(n->json, "names"), *indexes = json_object_get(n->json, "column_indexes"),
           *at = NULL;
    const char **columns = br_arena_alloc(arena, (json_array_size(indexes) + 1) * sizeof *columns);
    size_t k = 0, i = 0;
    json_array_foreach(indexes, i, at) {
      const char *name = json_string_value(json_array_get(names, (size_t)br_json_u64(json_object_get(at, "index"))));
      if (name != NULL) columns[k++] = name;
    }
    BR_TRY(br_source_snapshot(s->db, s->source, (const char *const *)scan.files, scan.n_files, &snap, err));
    n->source_bytes = (double)br_snapshot_bytes(snap, columns, k);
    n->source_rows = (double)br_snapshot_rows(snap);
    br_sorted_columns(n, snap, arena);
    *bytes += (uint64_t)n->source_bytes;
    br_snapshot_free(snap);
  } else if (is_scan && scan.kind == BR_SCAN_WARC) {
    uint64_t size = 0;
    BR_TRY(br_warc_bytes(s->db, (const char *const *)scan.files, scan.n_files, &size, err));
    *bytes += size;
  } else if (is_scan && scan.kind == BR_SCAN_TEXT) {
    br_text_size size;
    BR_TRY(br_text_estimate(s->db, scan.options, &size, err));
    *bytes += size.bytes;
    n->one_part = size.one_part;
  } else if (is_scan && scan.kind == BR_SCAN_DATASET) {
    const br_dataset *d = br_dataset_find(s, scan.table);
    if (d != NULL) *bytes += d->bytes;
    n->one_part = d != NULL && d->n_parts == 1;
  } else if (is_scan && scan.kind == BR_SCAN_TABLE) {
    *bytes += n->rows > 0 ? (uint64_t)(n->rows * 8.0 * (double)n->n_columns) : 0;
  }
  for (size_t i = 0; i < n->n_children; i++) BR_TRY(plan_bytes(s, n->children[i], arena, bytes, err));
  return BR_OK;
}

/* ---- the query */

static char **copy_texts(const br_texts *t, size_t *n) {
  char **out = br_calloc(t->count + 1, sizeof *out);
  for (size_t i = 0; i < t->count; i++) out[i] = br_strdup(t->items[i]);
  *n = t->count;
  return out;
}

static br_query *new_query(brant_session *s, br_planned *planned) {
  br_query *q = br_query_new(s->query_base | ++s->next_query);
  q->n_columns = planned->columns;
  q->names = br_calloc(planned->columns + 1, sizeof *q->names);
  q->types = br_calloc(planned->columns + 1, sizeof *q->types);
  for (size_t i = 0; i < planned->columns; i++) {
    q->names[i] = br_strdup(planned->names[i]);
    q->types[i] = br_strdup(planned->types[i]);
  }
  q->prelude = copy_texts(&s->attach, &q->n_prelude);
  q->n_settings = s->setting_names.count;
  q->settings = br_calloc(q->n_settings + 1, sizeof *q->settings);
  for (size_t i = 0; i < q->n_settings; i++) {
    brant__pb__setting__init(&q->settings[i]);
    q->settings[i].name = br_strdup(s->setting_names.items[i]);
    q->settings[i].value = br_strdup(s->setting_values.items[i]);
  }
  q->codec = s->settings.codec;
  q->deadline_ms = s->settings.timeout_ms;
  q->broadcast_bytes = s->settings.broadcast_bytes;
  q->filter_bytes = s->settings.filter_bytes;
  q->bloom_bytes = s->settings.bloom_bytes;
  q->bloom_keys = s->settings.bloom_keys;
  q->adaptive = s->settings.adaptive != 0;
  q->task_target_bytes = s->settings.task_target_bytes;
  if (q->task_target_bytes == 0 && s->settings.partitions == 0) q->task_target_bytes = TASK_TARGET_BYTES;
  q->least_passes = (uint32_t)s->settings.task_passes;
  q->max_running = s->options.executors;
  return q;
}

/* Files of the files backend appear whole, at their commit: there is nothing to follow. auto: eager while all that is read, and so what is shuffled, should fit into the workers' memory: nothing then waits for a disk
 * that its readers are waiting for too. */
static bool choose_eager(const brant_session *s, uint64_t bytes) {
  uint64_t most = s->settings.eager_bytes ? s->settings.eager_bytes : br_driver_memory_bytes(s->driver) / 2;
  if (s->settings.files_backend) return false;
  if (s->options.mode == BRANT_MODE_AUTO) return bytes <= most;
  return s->options.mode == BRANT_MODE_EAGER;
}

static br_status fill_query(brant_session *s, br_query *q, br_stages *stages, uint32_t slots, br_error *err) {
  q->stages = stages;
  q->n_runs = stages->n_stages;
  q->runs = br_calloc(q->n_runs, sizeof *q->runs);
  for (size_t i = 0; i < q->n_runs; i++) {
    q->runs[i].plan = &stages->stages[i];
    BR_TRY(split_stage(s, q, &q->runs[i], slots, err));
  }
  return br_query_count_tasks(q, err);
}

/* True sizes are worth more than what an exchange's reader gains by following it (docs/decisions/008). */
static bool adapts(const br_query *q) {
  for (size_t i = 0; i < q->n_runs; i++)
    if (br_query_adapts_much(q, (uint32_t)i)) return true;
  return false;
}

/* The plan, cut; or the whole query as one stage with the reason. */
static br_status cut(brant_session *s, br_plan *plan, const char *sql, const br_planned *planned, uint64_t bytes,
                     uint32_t slots, bool calls, br_stages **out, br_error *err) {
  br_distribute_options o = {
      .partitions = choose_partitions(s, bytes, slots),
      .broadcast_bytes = (double)s->settings.broadcast_bytes,
      .inline_bytes = bytes / INLINE_SHARE >= s->settings.inline_bytes ? (double)s->settings.inline_bytes : 0,
      .sort_one_task_rows = (double)s->settings.sort_one_task_rows,
      .two_step_aggregate = s->settings.two_step_aggregate != 0,
      .sorted_scans = s->settings.sorted_scans != 0,
      .run_time_filters = s->settings.filter_bytes > 0,
      .bloom_filters = s->settings.adaptive != 0 && s->settings.bloom_bytes > 0,
      .bloom_rows = (double)s->settings.bloom_keys,
      .joins_in_place = s->settings.adaptive != 0 && s->settings.broadcast_bytes > 0};
  br_stages *stages = NULL;
  o.spread = slots;
  o.functions = br_functions_all(s->functions, &o.n_functions);
  if (calls) BR_TRY(br_plan_steps(plan, o.functions, o.n_functions, err));
  BR_TRY(br_distribute(plan, &o, &stages, err));
  if (stages->n_stages == 0 || stages->whole_query_reason != NULL) {
    if (calls) {
      br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER, "the query calls a user's function and can't be cut into stages: %s",
              stages->whole_query_reason ? stages->whole_query_reason : "the plan has none");
      br_stages_free(stages);
      return err->code;
    }
    *out = br_whole_query(sql, planned,
                          stages->whole_query_reason ? stages->whole_query_reason : "the plan has no stages");
    br_stages_free(stages);
    return BR_OK;
  }
  *out = stages;
  return BR_OK;
}

/* Does it read a dataset? remote: one that lies on the workers. */
static bool reads_dataset(const brant_session *s, const br_plan *plan, const br_node *n, bool remote) {
  br_scan scan;
  bool is_scan = false;
  br_error ignored;
  if (n->kind == BR_NODE_GET && br_scan_of(plan->arena, n, &is_scan, &scan, &ignored) == BR_OK && is_scan &&
      scan.kind == BR_SCAN_DATASET) {
    const br_dataset *d = br_dataset_find(s, scan.table);
    if (!remote || (d != NULL && d->store == NULL)) return true;
  }
  for (size_t i = 0; i < n->n_children; i++)
    if (reads_dataset(s, plan, n->children[i], remote)) return true;
  return false;
}

/* Rows of a dataset come to a task once; a recursion reads them in each of its rounds. */
static bool reads_in_recursion(const brant_session *s, const br_plan *plan, const br_node *n) {
  if (n->kind == BR_NODE_RECURSIVE_CTE && reads_dataset(s, plan, n, false)) return true;
  for (size_t i = 0; i < n->n_children; i++)
    if (reads_in_recursion(s, plan, n->children[i])) return true;
  return false;
}

static bool only_describes(const char *sql) {
  const char *t = sql;
  return br_token_take(&t, "describe") || br_token_take(&t, "desc") || br_token_take(&t, "show");
}

/* Enough to decide without workers: true if it runs in this process. */
static bool decide_here(brant_session *s, const br_plan *plan, const br_planned *planned, uint64_t bytes, bool force,
                        bool calls, br_prepared *p) {
  const char *why = plan != NULL ? only_here(s, plan->root, p) : NULL;
  if (why == NULL && planned->refused != NULL && s->has_local_tables)
    why = "its plan can't be sent elsewhere, and this session has tables in its memory";
  if (why == NULL && only_describes(p->sql)) why = "it runs nothing";
  if (why == NULL && plan != NULL && (br_plan_calls(plan, "nextval") || br_plan_calls(plan, "currval")))
    why = "it calls a function of sequences, which count here";
  if (why == NULL && planned->columns == 0) why = "it stands for several statements";
  if (why == NULL && s->options.distribute == BRANT_DISTRIBUTE_NEVER) why = "distribute is never";
  if (why == NULL && plan != NULL && reads_in_recursion(s, plan, plan->root))
    why = "a recursion reads a table of the session's again and again";
  if (why == NULL && plan != NULL && reads_dataset(s, plan, plan->root, true)) return false;
  bool downloads = plan != NULL && bytes >= DOWNLOADS_LEAST_BYTES && br_plan_calls(plan, "__url_download");
  if (why == NULL && !force && !calls && !downloads && s->options.distribute == BRANT_DISTRIBUTE_AUTO &&
      bytes < s->settings.small_bytes)
    why = "its inputs are smaller than small_bytes";
  if (why != NULL) run_here(p, why);
  return why != NULL;
}

/* A query that calls users' functions runs in workers, and only in stages. */
static br_status refuse_calls(const br_prepared *p, const br_planned *planned, br_error *err) {
  const char *why = p->local ? p->local_why : planned->refused;
  if (why == NULL) return BR_OK;
  return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                 "the query calls a user's function, which runs in workers only, but %s", why);
}

/* Does a stage's text fit into a message to a worker, with room for its split and inputs? Long constants are written into it, and what goes
 * along with a text of its own holds values of variables. */
static bool texts_fit(const br_stages *stages, const br_texts *views) {
  size_t along = 0;
  for (size_t i = 0; i < views->count; i++) along += strlen(views->items[i]);
  for (size_t i = 0; i < stages->n_stages; i++) {
    size_t bytes = along + strlen(stages->stages[i].sql);
    for (size_t k = 0; k < stages->stages[i].n_steps; k++) bytes += strlen(stages->stages[i].steps[k].sql);
    if (bytes > TEXT_MOST_BYTES) return false;
  }
  return true;
}

static br_status distribute_query(brant_session *s, br_plan *plan, br_planned *planned, uint64_t bytes, bool calls,
                                  br_prepared *p, br_error *err) {
  BR_TRY(br_session_workers(s, err));
  uint32_t slots = br_driver_slots(s->driver), most = s->options.executors;
  if (most > 0 && slots > most) slots = most;
  if (slots == 0) slots = 1;
  br_stages *stages = NULL;
  if (plan == NULL)
    stages = br_whole_query(p->sql, planned, planned->refused);
  else if (!calls && s->options.distribute == BRANT_DISTRIBUTE_AUTO && slots == 1 && s->writable.count == 0 &&
           !reads_dataset(s, plan, plan->root, false))
    stages =
        br_whole_query(p->sql, planned, "there is one executor, and DuckDB with all of its threads needs no stages");
  else
    BR_TRY(cut(s, plan, p->sql, planned, bytes, slots, calls, &stages, err));
  if (plan != NULL && stages->whole_query_reason != NULL &&
      (s->writable.count > 0 || reads_dataset(s, plan, plan->root, false))) {
    p->why_text = br_strdup(stages->whole_query_reason); /* executors may not have what its text names */
    br_stages_free(stages);
    run_here(p, p->why_text);
    return BR_OK;
  }
  br_texts views = {0};
  const char *here = stages->whole_query_reason != NULL ? br_views_needed(s, p->sql, &views) : NULL;
  if (here != NULL) {
    br_stages_free(stages);
    run_here(p, here);
    return BR_OK;
  }
  if (!texts_fit(stages, &views)) {
    br_stages_free(stages);
    br_texts_free(&views);
    if (calls || (plan != NULL && reads_dataset(s, plan, plan->root, true)))
      return br_fail(err, BR_UNSUPPORTED, BR_BLAME_USER,
                     "a task's text would be longer than %u MiB: put long constants into a table",
                     TEXT_MOST_BYTES >> 20);
    run_here(p, "a task's text would be longer than a message to a worker");
    return BR_OK;
  }
  p->query = new_query(s, planned);
  p->query->prelude_views = views.items;
  p->query->n_prelude_views = views.count;
  p->query->slots = slots;
  p->query->threads = br_driver_threads(s->driver);
  if (calls) {
    br_status status = br_functions_use(s, p->query, stages, err);
    if (status != BR_OK) {
      br_stages_free(stages);
      return status;
    }
  }
  p->query->eager = choose_eager(s, bytes);
  BR_TRY(fill_query(s, p->query, stages, slots, err));
  if (s->options.mode == BRANT_MODE_AUTO && s->settings.eager_bytes == 0 && adapts(p->query)) p->query->eager = false;
  return BR_OK;
}

/* A plan with CSV and JSON scans in it, if DuckDB takes the text with these written so that it can serialise them. */
static br_status plan_text(brant_session *s, const char *sql, br_planned *planned, br_error *err) {
  char *text = NULL;
  BR_TRY(br_source_text_scans(s->db, sql, &text, err));
  br_status status = text != NULL ? br_session_plan(s->db, text, planned, err) : BR_OK;
  bool tried = text != NULL;
  free(text);
  if (tried && (status == BR_OK || status == BR_CANCELLED)) return status;
  return br_session_plan(s->db, sql, planned, err); /* its errors show the user's own text */
}

static br_status estimate(brant_session *s, const br_planned *planned, br_plan *plan, br_error *err) {
  char *explain = NULL;
  BR_TRY(br_session_estimates(s->db, planned, &explain, err));
  br_status status = explain != NULL ? br_plan_estimate(plan, explain, err) : BR_OK;
  free(explain);
  return status;
}

static bool reads_kind(br_plan *plan, const br_node *n, br_scan_kind kind) {
  br_scan scan;
  bool is_scan = false;
  br_error ignored;
  if (n->kind == BR_NODE_GET && br_scan_of(plan->arena, n, &is_scan, &scan, &ignored) == BR_OK && is_scan &&
      scan.kind == kind)
    return true;
  for (size_t i = 0; i < n->n_children; i++)
    if (reads_kind(plan, n->children[i], kind)) return true;
  return false;
}

/* The plan of out->sql; NULL where it can't be read, and planned says why. *estimated: with rows, which what runs here does without,
 * unless the size of a table is known by them alone. */
static br_status plan_statement(brant_session *s, const br_prepared *out, br_planned *planned, br_plan **plan,
                                uint64_t *bytes, bool *estimated, br_error *err) {
  BR_TRY(plan_text(s, out->sql, planned, err));
  BR_TRY(br_session_check_interrupt(s, err));
  if (planned->refused != NULL) return BR_OK;
  br_status status = br_plan_parse(planned->json, NULL, plan, err);
  if (status == BR_UNSUPPORTED) {
    planned->refused = br_strdup(err->message);
    return BR_OK;
  }
  BR_TRY(status);
  *estimated = reads_kind(*plan, (*plan)->root, BR_SCAN_TABLE);
  if (*estimated) BR_TRY(estimate(s, planned, *plan, err));
  *bytes = 0; /* of what is read, views included, instead of what the text names */
  return plan_bytes(s, (*plan)->root, (*plan)->arena, bytes, err);
}

/* Planned again as several, if it is a SUMMARIZE that gains by it. */
static br_status spread_summarize(brant_session *s, br_prepared *out, br_planned *planned, br_plan **plan,
                                  uint64_t *bytes, bool *estimated, br_error *err) {
  char *text = NULL;
  if (*plan == NULL || !br_is_summarize(out->sql)) return BR_OK;
  BR_TRY(br_session_workers(s, err));
  BR_TRY(br_summarize_spread(s, out->sql, (size_t)br_driver_slots(s->driver) * SUMMARIES_PER_SLOT, &text, err));
  if (text == NULL) return BR_OK;
  free(out->sql);
  out->sql = text;
  br_plan_free(*plan);
  br_planned_free(planned);
  *plan = NULL;
  *planned = (br_planned){0};
  return plan_statement(s, out, planned, plan, bytes, estimated, err);
}

br_status br_prepare(brant_session *s, const char *sql, bool force, br_prepared *out, br_error *err) {
  br_planned planned = {0};
  br_plan *plan = NULL;
  uint64_t bytes = 0;
  bool estimated = false;
  br_status status = BR_OK;
  *out = (br_prepared){0};
  BR_TRY_GOTO(br_source_rewrite(s->db, s->source, sql, &out->sql, &bytes, err));
  uint64_t bound = br_functions_bound(s->functions);
  BR_TRY_GOTO(plan_statement(s, out, &planned, &plan, &bytes, &estimated, err));
  out->top_n_in_join = plan != NULL && joins_top_n(plan->root, false);
  bool calls = br_functions_bound(s->functions) != bound;
  bool here = decide_here(s, plan, &planned, bytes, force, calls, out);
  if (calls) BR_TRY_GOTO(refuse_calls(out, &planned, err));
  if (!here && !calls) BR_TRY_GOTO(spread_summarize(s, out, &planned, &plan, &bytes, &estimated, err));
  if (!here && plan != NULL && !estimated) BR_TRY_GOTO(estimate(s, &planned, plan, err));
  if (!here) status = distribute_query(s, plan, &planned, bytes, calls, out, err);
done:
  br_plan_free(plan);
  br_planned_free(&planned);
  if (status != BR_OK) br_prepared_free(out);
  return status;
}
