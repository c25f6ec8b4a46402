/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaves: scans of files and tables (split over tasks), table functions, and subtrees that run whole in one task, whose
 * scans are read whole there. A scan's place in the text is a token, which a task replaces by the source of its split.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

static void keep_error(br_dist *d, br_status status, const br_error *err) {
  if (d->callback_status != BR_OK) return;
  d->callback_status = status;
  d->callback_error = *err;
}

static br_status take_error(br_dist *d, br_status status, br_error *err) {
  if (d->callback_status == BR_OK) return status;
  *err = d->callback_error;
  status = d->callback_status;
  d->callback_status = BR_OK;
  return status;
}

const char *br_scan_callback(void *arg, const br_node *get, uint32_t number) {
  br_dist *d = arg;
  br_stage_scan s = {
      .rows = get->rows, .one_part = get->one_part, .source_rows = get->source_rows, .bytes = get->source_bytes};
  br_error err;
  bool is_scan = false;
  (void)number;
  br_status status = br_scan_of(d->arena, get, &is_scan, &s.scan, &err);
  if (status != BR_OK) keep_error(d, status, &err);
  if (status != BR_OK || !is_scan) return NULL;
  s.number = d->next_number++;
  s.node = get->id + 1;
  s.token = br_arena_printf(d->arena, "__scan_%u__", s.number);
  br_open_scan(d, d->scanning, s, !d->scanning_whole);
  return s.token;
}

/* "orders" for .../orders/part-0.parquet, or the table's name. */
static const char *source_name(br_dist *d, const br_scan *s) {
  if (s->table) return s->table;
  if (s->kind == BR_SCAN_TEXT) return s->options;
  const char *end = strrchr(s->files[0], '/');
  if (!end || s->n_files == 1) return end ? end + 1 : s->files[0];
  const char *start = end;
  while (start > s->files[0] && start[-1] != '/') start--;
  return br_arena_strndup(d->arena, start, (size_t)(end - start));
}

/* The names of folders, or of files, leave none of them. */
static br_status no_files(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_rel rel;
  br_open *o = br_open_new(d, BR_RULE_NONE);
  BR_TRY(br_emit_node(d->emit, n, NULL, &rel, err));
  br_open_label(d, o, "no files");
  *out = br_drel_new(d, o, rel.sql, n);
  return BR_OK;
}

/* Has some value more than half of what one of `parts` tasks should have? It would all be one task's. */
static bool has_heavy_value(const br_sorted_column *c, size_t parts) {
  size_t step = BR_SORTED_POINTS / (2 * parts);
  if (step == 0) step = 1;
  for (size_t k = 0; k + step <= BR_SORTED_POINTS; k++)
    if (c->at[k] == c->at[k + step]) return true;
  return false;
}

/* Files that lie in the order of a column keep rows together that agree in it, if they are cut at its values. The first such column
 * that something above reads. */
static br_status keep_order(br_dist *d, const br_node *n, const br_scan *s, br_drel *r, br_error *err) {
  br_open *o = r->branches[0].open;
  size_t spread = d->o->spread > 1 ? (size_t)d->o->spread : 1, least = 2 * spread;
  if (!d->o->sorted_scans || o->rule != BR_RULE_SPLITS || s->whole_files_only || s->file_row_number) return BR_OK;
  for (size_t i = 0; i < n->n_sorted; i++) {
    const br_sorted_column *c = &n->sorted[i];
    br_hash_keys key = br_hash_keys_new(d, 1);
    if (c->groups < least || has_heavy_value(c, spread) || (r->needed && !r->needed[c->column])) continue;
    BR_TRY(br_hash_key_column(d, r, c->column, &key, err));
    br_set_clustering(d, r, &key, false);
    br_sorted_column *own = br_arena_alloc(d->arena, sizeof *own);
    *own = *c;
    own->name = br_arena_strdup(d->arena, c->name);
    r->sorted = o->scans[o->split_scan].sorted = own;
    return BR_OK;
  }
  return BR_OK;
}

static br_status scan(br_dist *d, const br_node *n, const br_scan *s, br_drel *out, br_error *err) {
  if (s->kind == BR_SCAN_PARQUET && !s->n_files) return no_files(d, n, out, err);
  br_open *o = br_open_new(d, s->unsplittable ? BR_RULE_ONE : BR_RULE_SPLITS);
  br_rel rel;
  d->scanning = o;
  d->scanning_whole = s->unsplittable;
  BR_TRY(take_error(d, br_emit_node(d->emit, n, NULL, &rel, err), err));
  br_open_label(d, o, "scan %s", source_name(d, s));
  if (s->unsplittable) {
    o->reason = BR_WHY_SCAN;
    br_open_why(d, o, "%s", s->why ? s->why : "");
  }
  if (o->rule == BR_RULE_SPLITS && o->split_scan < 0)
    return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a scan was printed without asking for its source");
  *out = br_drel_new(d, o, rel.sql, n);
  br_mark_chance(out, br_j_some(br_j_get(n->json, "extra_info"), "sample_options") != NULL);
  return keep_order(d, n, s, out, err);
}

/* ---- filters above CSV and JSON, whose reader takes none: what they say of the names of folders leaves files out */

static void used_columns(const json_t *j, const br_drel *r, bool *used) {
  const char *key;
  json_t *value;
  size_t i;
  if (json_is_object(j)) {
    int64_t at = br_expr_column(j, r);
    if (at >= 0) used[at] = true;
    json_object_foreach((json_t *)j, key, value) used_columns(value, r, used);
  } else if (json_is_array(j)) {
    json_array_foreach(j, i, value) used_columns(value, r, used);
  }
}

/* condition NULL: it reads no column, or something of a row that has no name. Names stay out of the text: they would mean something there. */
static br_status folder_test(br_dist *d, const br_node *get, const json_t *expr, const br_drel *r, br_folder_test *out,
                             br_error *err) {
  bool *used = br_arena_alloc(d->arena, r->n_columns + 1), any = false;
  const char **names = br_arena_alloc(d->arena, (r->n_columns + 1) * sizeof *names);
  br_rel over = br_branch_rel(r, 0);
  br_buf condition = {0};
  *out = (br_folder_test){.names = names, .n_names = r->n_columns};
  used_columns(expr, r, used);
  for (size_t c = 0; c < r->n_columns; c++) {
    const char *name = used[c] ? br_scan_name(get, c) : NULL;
    if (used[c] && !name) return BR_OK;
    names[c] = name ? br_arena_strdup(d->arena, name) : NULL;
    any = any || name;
  }
  if (!any) return BR_OK;
  br_status status = br_emit_expr(d->emit, expr, &over, "t", &condition, err);
  if (status == BR_OK) out->condition = br_arena_strdup(d->arena, br_buf_cstr(&condition));
  br_buf_free(&condition);
  return status;
}

br_status br_filter_texts(br_dist *d, const br_node *filter, br_drel *child, br_error *err) {
  const br_node *get = filter->children[0];
  br_open *o = child->branches[0].open;
  size_t n = br_j_count(filter->json, "expressions");
  if (get->kind != BR_NODE_GET || child->n_branches != 1 || o->rule != BR_RULE_SPLITS || o->n_scans != 1) return BR_OK;
  br_stage_scan *s = &o->scans[0];
  if (s->scan.kind != BR_SCAN_TEXT) return BR_OK;
  s->tests = br_arena_alloc(d->arena, (n + 1) * sizeof *s->tests);
  for (size_t i = 0; i < n; i++) {
    const json_t *expr = br_j_at(filter->json, "expressions", i);
    if (br_volatile(expr)) continue;
    BR_TRY(folder_test(d, get, expr, child, &s->tests[s->n_tests], err));
    s->n_tests += s->tests[s->n_tests].condition != NULL;
  }
  return BR_OK;
}

/* Functions that give the same rows in any process and may stand in every task of a stage. */
static bool constant_function(const char *name) {
  static const char *const names[] = {"range",      "generate_series", "unnest",   "repeat",
                                      "repeat_row", "json_each",       "json_tree"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

/* Functions that read files: the same in any process of the cluster, but only once. */
static bool file_function(const char *name) {
  static const char *const names[] = {"glob",
                                      "read_text",
                                      "read_blob",
                                      "read_csv",
                                      "read_csv_auto",
                                      "read_json",
                                      "read_json_auto",
                                      "read_ndjson",
                                      "read_ndjson_auto",
                                      "read_json_objects",
                                      "read_ndjson_objects",
                                      "read_parquet",
                                      "parquet_scan",
                                      "parquet_metadata",
                                      "parquet_schema",
                                      "parquet_file_metadata",
                                      "parquet_kv_metadata",
                                      "sniff_csv",
                                      "parquet_full_metadata",
                                      "parquet_bloom_probe",
                                      "read_warc",
                                      "warc_cuts"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

static br_status table_function(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  const char *name = br_j_str(n->json, "name");
  br_rel rel;
  if (!constant_function(name) && !file_function(name))
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "%s() shows the state of this session and is asked here", name);
  br_open *o = br_open_new(d, constant_function(name) ? BR_RULE_NONE : BR_RULE_ONE);
  BR_TRY(br_emit_node(d->emit, n, NULL, &rel, err));
  o->heavy = true;
  br_open_label(d, o, "%s()", name);
  o->reason = BR_WHY_TABLE_FUNCTION;
  *out = br_drel_new(d, o, rel.sql, n);
  return BR_OK;
}

br_status br_dist_scan(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_scan s;
  bool is_scan;
  BR_TRY(br_scan_of(d->arena, n, &is_scan, &s, err));
  return is_scan ? scan(d, n, &s, out, err) : table_function(d, n, out, err);
}

/* ---- one-task regions */

uint32_t br_subtree_end(const br_node *n) {
  uint32_t end = n->id + 1;
  for (size_t i = 0; i < n->n_children; i++) end = br_subtree_end(n->children[i]);
  return end;
}

/* A reference out of the region: what it names is gathered into the region's task. */
static br_status outer_reference(br_dist *d, const br_node *ref, const char **sql, br_error *err) {
  br_open *region = d->scanning;
  br_drel r;
  BR_TRY(br_dist_reference(d, ref, &r, err));
  BR_TRY(br_exchange_single(d, &r, region->reason, r.ordered, err));
  br_open *merged = br_open_merge(d, region, r.branches[0].open);
  *region = *merged;
  *sql = r.branches[0].sql;
  return BR_OK;
}

const char *br_reference_callback(void *arg, const br_node *ref) {
  br_dist *d = arg;
  const char *sql = NULL;
  br_error err;
  if (!d->region || !ref->source) return NULL;
  if (ref->source->id >= d->region->id && ref->source->id < d->region_end) return NULL;
  br_status status = outer_reference(d, ref, &sql, &err);
  if (status != BR_OK) keep_error(d, status, &err);
  return sql;
}

static bool any_volatile(const br_node *n) {
  if (br_volatile(br_j_get(n->json, "expressions"))) return true;
  for (size_t i = 0; i < n->n_children; i++)
    if (any_volatile(n->children[i])) return true;
  return false;
}

br_status br_region(br_dist *d, const br_node *n, const char *reason, br_drel *out, br_error *err) {
  br_open *o = br_open_new(d, BR_RULE_ONE);
  br_rel rel;
  o->reason = reason;
  o->heavy = true;
  d->scanning = o;
  d->scanning_whole = true;
  d->region = n;
  d->region_end = br_subtree_end(n);
  br_status status = take_error(d, br_emit_tree(d->emit, n, &rel, err), err);
  d->region = NULL;
  BR_TRY(status);
  br_open_label(d, o, "%s", reason);
  *out = br_drel_new(d, o, rel.sql, n);
  br_mark_chance(out, any_volatile(n));
  return BR_OK;
}
