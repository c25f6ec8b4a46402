/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages under construction: opened by a scan or by reading an exchange, merged where two relations meet, closed where
 * rows must change place. Closing prints the final text: every stored column with its type, inputs numbered from 0, and
 * checks that each input is read exactly once (an input is a stream).
 *
 * Order of calls: br_open_new, br_open_input / scans, br_open_merge, br_close. Threads: none. Bounds: none of its own; the
 * arena grows with the plan.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

br_open *br_open_new(br_dist *d, br_rule rule) {
  br_open *o = br_arena_alloc(d->arena, sizeof *o);
  o->rule = rule;
  o->split_scan = -1;
  return o;
}

void *br_grown(br_dist *d, void *items, size_t *cap, size_t count, size_t item_bytes) {
  if (count < *cap) return items;
  size_t want = *cap ? *cap * 2 : 4;
  void *more = br_arena_alloc(d->arena, want * item_bytes);
  if (count) memcpy(more, items, count * item_bytes);
  *cap = want;
  return more;
}

static void add_input(br_dist *d, br_open *o, br_stage_input in) {
  o->inputs = br_grown(d, o->inputs, &o->cap_inputs, o->n_inputs, sizeof *o->inputs);
  o->inputs[o->n_inputs++] = in;
}

uint32_t br_open_input(br_dist *d, br_open *o, uint32_t producer, br_exchange_kind kind, bool ordered) {
  br_stage_input in = {.number = d->next_number++, .producer = producer, .kind = kind, .ordered = ordered};
  add_input(d, o, in);
  if (d->out->stages[producer].indeterminate) o->indeterminate = true;
  return in.number;
}

static void add_scan(br_dist *d, br_open *o, br_stage_scan s) {
  o->scans = br_grown(d, o->scans, &o->cap_scans, o->n_scans, sizeof *o->scans);
  o->scans[o->n_scans++] = s;
}

void br_open_scan(br_dist *d, br_open *o, br_stage_scan s, bool split) {
  if (split) o->split_scan = (int)o->n_scans;
  add_scan(d, o, s);
}

void br_open_step(br_dist *d, br_open *o, br_stage_step s) {
  o->steps = br_grown(d, o->steps, &o->cap_steps, o->n_steps, sizeof *o->steps);
  o->steps[o->n_steps++] = s;
}

static const char *joined(br_dist *d, const char *a, const char *separator, const char *b) {
  if (!a || !*a) return b;
  if (!b || !*b) return a;
  return br_arena_printf(d->arena, "%s%s%s", a, separator, b);
}

void br_open_label(br_dist *d, br_open *o, const char *fmt, ...) {
  va_list ap;
  br_buf b = {0};
  va_start(ap, fmt);
  br_buf_vprintf(&b, fmt, ap);
  va_end(ap);
  o->label = joined(d, o->label, ", ", br_arena_strdup(d->arena, br_buf_cstr(&b)));
  br_buf_free(&b);
}

void br_open_why(br_dist *d, br_open *o, const char *fmt, ...) {
  va_list ap;
  br_buf b = {0};
  va_start(ap, fmt);
  br_buf_vprintf(&b, fmt, ap);
  va_end(ap);
  o->why = joined(d, o->why, "; ", br_arena_strdup(d->arena, br_buf_cstr(&b)));
  br_buf_free(&b);
}

static br_rule merged_rule(br_rule a, br_rule b) {
  if (a == BR_RULE_NONE) return b;
  BR_ASSERT(b == BR_RULE_NONE || (a == b && (a == BR_RULE_ONE || a == BR_RULE_PARTITIONS || a == BR_RULE_SPLITS)));
  return a;
}

br_open *br_open_merge(br_dist *d, const br_open *a, const br_open *b) {
  br_open *o = br_open_new(d, merged_rule(a->rule, b->rule));
  for (size_t i = 0; i < a->n_inputs; i++) add_input(d, o, a->inputs[i]);
  for (size_t i = 0; i < b->n_inputs; i++) add_input(d, o, b->inputs[i]);
  for (size_t i = 0; i < a->n_scans; i++) br_open_scan(d, o, a->scans[i], (int)i == a->split_scan);
  for (size_t i = 0; i < b->n_scans; i++) br_open_scan(d, o, b->scans[i], (int)i == b->split_scan);
  for (size_t i = 0; i < a->n_steps; i++) br_open_step(d, o, a->steps[i]);
  for (size_t i = 0; i < b->n_steps; i++) br_open_step(d, o, b->steps[i]);
  const br_open *keyed = b->rule == BR_RULE_NONE ? a : a->rule == BR_RULE_NONE ? b : NULL;
  if (keyed) {
    o->key_producer = keyed->key_producer;
    o->key_at = keyed->key_at;
    o->n_key_at = keyed->n_key_at;
    o->key_bytes = keyed->key_bytes;
  }
  o->indeterminate = a->indeterminate || b->indeterminate;
  o->chance = a->chance || b->chance;
  o->heavy = a->heavy || b->heavy;
  o->batch_rows = a->batch_rows ? a->batch_rows : b->batch_rows;
  o->reason = a->reason ? a->reason : b->reason;
  o->label = joined(d, a->label, ", ", b->label);
  o->why = joined(d, a->why, "; ", b->why);
  return o;
}

void br_keep_sides(br_open *o, const char *before, const char *after) {
  if (o->sides_of == before) o->sides_of = after;
}

void br_may_leave_out(br_drel *r, const char *row_columns) {
  for (size_t i = 0; i < r->n_branches; i++) {
    if (br_count_text(r->branches[i].sql, BR_GROUPS_BEGIN) > 2) continue; /* another step's marks: both stay */
    r->branches[i].open->row_columns = row_columns;
    r->branches[i].open->rows_sql = r->branches[i].sql;
  }
}

/* Whoever reads the stage task by task, or in order, may rely on what is together. */
static void forget_sides(br_open *o, const br_drel *r, size_t branch, const br_closing *c) {
  if (o->sides_of == r->branches[branch].sql && c->output != BR_EX_FORWARD && !r->ordered) return;
  for (size_t i = 0; i < o->n_inputs; i++) o->inputs[i].side = 0;
}

void br_one_task(br_drel *r, const char *reason) {
  br_open *o = r->branches[0].open;
  if (o->rule != BR_RULE_NONE) return;
  o->rule = BR_RULE_ONE;
  if (!o->reason) o->reason = reason;
}

bool br_is_one(const br_drel *r) {
  return r->n_branches == 1 && (r->branches[0].open->rule == BR_RULE_ONE || r->branches[0].open->rule == BR_RULE_NONE);
}

bool br_is_constant(const br_drel *r) { return r->n_branches == 1 && r->branches[0].open->rule == BR_RULE_NONE; }

br_drel br_drel_new(br_dist *d, br_open *open, const char *sql, const br_node *n) {
  br_drel r = {.n_branches = 1,
               .needed = d->needs[n->id],
               .n_columns = n->n_columns,
               .binds = n->binds,
               .types = n->types,
               .rows = -1,
               .bytes = -1};
  r.branches = br_arena_alloc(d->arena, sizeof *r.branches);
  r.branches[0] = (br_branch){.open = open, .sql = sql, .plain_read = -1};
  br_set_rows(&r, n->rows);
  return r;
}

br_rel br_branch_rel(const br_drel *r, size_t branch) {
  return (br_rel){.sql = r->branches[branch].sql, .n_columns = r->n_columns, .binds = r->binds, .types = r->types};
}

/* A guess at the bytes of one value; strings and nested values are unknown until stages have run. */
double br_value_bytes(const json_t *type) {
  static const struct {
    const char *id;
    double bytes;
  } sizes[] = {{"BOOLEAN", 1},   {"TINYINT", 1},  {"UTINYINT", 1}, {"SMALLINT", 2}, {"USMALLINT", 2}, {"INTEGER", 4},
               {"UINTEGER", 4},  {"FLOAT", 4},    {"DATE", 4},     {"HUGEINT", 16}, {"UHUGEINT", 16}, {"UUID", 16},
               {"INTERVAL", 16}, {"VARCHAR", 20}, {"BLOB", 32},    {"ENUM", 12},    {"LIST", 64},     {"STRUCT", 48},
               {"MAP", 64},      {"ARRAY", 64},   {"UNION", 32}};
  const char *id = br_j_str(type, "id");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (!strcmp(id, sizes[i].id)) return sizes[i].bytes;
  return 8;
}

static double row_bytes(const br_drel *r) {
  double sum = 1;
  for (size_t i = 0; i < r->n_columns; i++)
    if (!r->needed || r->needed[i]) sum += br_value_bytes(r->types[i]);
  return sum;
}

void br_set_rows(br_drel *r, double rows) {
  r->rows = rows;
  r->bytes = rows < 0 ? -1 : rows * row_bytes(r);
}

/* ---- columns */

void br_more_columns(br_dist *d, const br_drel *r, size_t more, json_t ***types, br_bind **binds, bool **needed) {
  size_t m = r->n_columns, n = m + more;
  *types = br_arena_alloc(d->arena, n * sizeof **types);
  *binds = br_arena_alloc(d->arena, n * sizeof **binds);
  *needed = br_arena_alloc(d->arena, n);
  for (size_t i = 0; i < n; i++) {
    if (i < m) (*types)[i] = r->types[i];
    (*binds)[i] = i < m ? r->binds[i] : (br_bind){.table = UINT64_MAX, .column = UINT64_MAX};
    (*needed)[i] = i >= m || !r->needed || r->needed[i];
  }
}

/* ---- types on the way: enums travel as strings */

static bool has_enum(const json_t *type) {
  if (br_j_is(type, "id", "ENUM")) return true;
  const json_t *info = br_j_some(type, "type_info");
  const json_t *child = br_j_some(info, "child_type");
  if (child && has_enum(child)) return true;
  for (size_t i = 0; i < br_j_count(info, "child_types"); i++)
    if (has_enum(br_j_get(br_j_at(info, "child_types", i), "second"))) return true;
  return false;
}

/* In place, on a deep copy. */
static void enums_to_strings(json_t *type) {
  if (br_j_is(type, "id", "ENUM")) {
    json_object_set_new(type, "id", json_string("VARCHAR"));
    json_object_set_new(type, "type_info", json_null());
    return;
  }
  json_t *info = br_j_some(type, "type_info");
  json_t *child = br_j_some(info, "child_type");
  if (child) enums_to_strings(child);
  for (size_t i = 0; i < br_j_count(info, "child_types"); i++)
    enums_to_strings(br_j_get(br_j_at(info, "child_types", i), "second"));
}

br_status br_travel_type(br_dist *d, const json_t *type, const char **out, br_error *err) {
  br_status status = BR_OK;
  br_buf b = {0};
  json_t *copy = NULL;
  if (!type)
    return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "a column whose type the plan does not tell must change place");
  if (br_j_is(type, "id", "NULL")) { /* what DuckDB makes of an untyped NULL on its way out */
    *out = "INTEGER";
    return BR_OK;
  }
  if (has_enum(type)) {
    copy = json_deep_copy(type);
    enums_to_strings(copy);
  }
  BR_TRY_GOTO(br_emit_type(copy ? copy : type, &b, err));
  *out = br_arena_strdup(d->arena, br_buf_cstr(&b));
done:
  json_decref(copy);
  br_buf_free(&b);
  return status;
}

/* Does a reader have to cast the column back to its type? */
bool br_cast_back(const json_t *type) {
  static const char *const lost[] = {"TIME_NS", "BIGNUM", "VARIANT", "NULL"};
  if (has_enum(type)) return true;
  for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
    if (br_j_is(type, "id", lost[i])) return true;
  return br_j_is(br_j_some(type, "type_info"), "alias", "JSON");
}

/* ---- closing */

/* Past a quoted piece that starts at s. */
static const char *after_quotes(const char *s) {
  char q = *s++;
  while (*s) {
    if (*s++ != q) continue;
    if (*s != q) return s;
    s++;
  }
  return s;
}

static bool word_char(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Line ends outside quotes get two blanks more. */
static void add_indented(br_buf *b, const char *sql) {
  while (*sql) {
    const char *end = *sql == '\'' || *sql == '"' ? after_quotes(sql) : sql + 1;
    br_buf_add(b, sql, (size_t)(end - sql));
    if (*sql == '\n') br_buf_str(b, "  ");
    sql = end;
  }
}

const char *br_block(br_dist *d, const char *sql) {
  br_buf b = {0};
  if (!strchr(sql, '\n') && strlen(sql) < 60) return br_arena_printf(d->arena, "(%s)", sql);
  br_buf_str(&b, "(\n  ");
  add_indented(&b, sql);
  br_buf_str(&b, "\n)");
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* "t.c1 DESC" as "c1 DESC", for people. */
const char *br_without_alias(br_dist *d, const char *sql) {
  br_buf b = {0};
  for (const char *s = sql; *s;) {
    if (*s == '\'' || *s == '"') {
      const char *end = after_quotes(s);
      br_buf_add(&b, s, (size_t)(end - s));
      s = end;
    } else if (!strncmp(s, "t.c", 3) && (s == sql || !word_char(s[-1]))) {
      s += 2;
    } else {
      br_buf_char(&b, *s++);
    }
  }
  const char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* How often the text reads input `number`. */
size_t br_count_input(const char *sql, uint32_t number) {
  size_t count = 0;
  int64_t at;
  for (const char *s = sql; *s;) {
    s += br_stage_piece(sql, s, &at);
    if (at == (int64_t)number) count++;
  }
  return count;
}

size_t br_count_text(const char *sql, const char *token) {
  size_t count = 0, n = strlen(token);
  for (const char *s = strstr(sql, token); s; s = strstr(s + n, token)) count++;
  return count;
}

static size_t final_number(const br_open *o, int64_t number) {
  for (size_t i = 0; i < o->n_inputs; i++)
    if (o->inputs[i].number == number) return i;
  for (size_t i = 0; i < o->n_steps; i++)
    if (o->steps[i].number == number) return o->n_inputs + i;
  BR_ASSERT(!"a text reads what its stage has not");
  return 0;
}

/* Inputs get the numbers 0, 1, … in the order of the list, then the steps. */
static char *renumbered(br_dist *d, const br_open *o, const char *sql) {
  br_buf b = {0};
  size_t length = 0;
  int64_t number;
  for (const char *s = sql; *s; s += length) {
    length = br_stage_piece(sql, s, &number);
    if (number < 0) {
      br_buf_add(&b, s, length);
      continue;
    }
    br_buf_printf(&b, "input(%zu)", final_number(o, number));
  }
  char *text = br_arena_strdup(d->arena, br_buf_cstr(&b));
  br_buf_free(&b);
  return text;
}

/* The marks around a FILTER input's text carry its number too. By way of numbers that none has: an old one may be another's new one. */
static const char *renumbered_filters(br_dist *d, const br_open *o, const char *sql) {
  for (uint32_t i = 0; i < o->n_inputs; i++)
    if (o->inputs[i].kind == BR_EX_FILTER || o->inputs[i].kind == BR_EX_BLOOM)
      sql = br_stage_renumber_filter(d->arena, sql, o->inputs[i].number, UINT32_MAX - i);
  for (uint32_t i = 0; i < o->n_inputs; i++)
    if (o->inputs[i].kind == BR_EX_FILTER || o->inputs[i].kind == BR_EX_BLOOM)
      sql = br_stage_renumber_filter(d->arena, sql, UINT32_MAX - i, i);
  return sql;
}

const char *br_final_text(br_dist *d, const br_open *o, const char *sql) {
  return renumbered_filters(d, o, renumbered(d, o, sql));
}

/* In the stage's own text and those of its steps together. */
static size_t count_reads(const br_open *o, const char *sql, uint32_t number) {
  size_t count = br_count_input(sql, number);
  for (size_t i = 0; i < o->n_steps; i++) count += br_count_input(o->steps[i].sql, number);
  return count;
}

static size_t count_tokens(const br_open *o, const char *sql, const char *token) {
  size_t count = br_count_text(sql, token);
  for (size_t i = 0; i < o->n_steps; i++) count += br_count_text(o->steps[i].sql, token);
  return count;
}

static br_status read_once(const br_open *o, const char *sql, uint32_t number, br_error *err) {
  size_t count = count_reads(o, sql, number);
  if (count == 1) return BR_OK;
  return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "a stage reads input(%u) %zu times instead of once: %.600s",
                 number, count, sql);
}

static br_status check_sources(const br_open *o, const char *sql, br_error *err) {
  for (size_t i = 0; i < o->n_inputs; i++)
    if (o->inputs[i].kind != BR_EX_BOUNDS && o->inputs[i].kind != BR_EX_WAIT)
      BR_TRY(read_once(o, sql, o->inputs[i].number, err));
  for (size_t i = 0; i < o->n_steps; i++) BR_TRY(read_once(o, sql, o->steps[i].number, err));
  for (size_t i = 0; i < o->n_scans; i++)
    if (count_tokens(o, sql, o->scans[i].token) != 1)
      return br_fail(err, BR_UNSUPPORTED, BR_BLAME_NONE, "the query's own text holds %s, which stands for a scan",
                     o->scans[i].token);
  return BR_OK;
}

/* The stored columns are numbered without gaps. */
static br_status closing_text(br_dist *d, const br_drel *r, size_t branch, const br_closing *c, br_stage *s,
                              br_error *err) {
  br_status status = BR_OK;
  br_buf b = {0};
  const bool *needed = c->output == BR_EX_RESULT ? NULL : r->needed;
  br_buf_str(&b, "SELECT ");
  for (size_t i = 0; i < r->n_columns; i++) {
    if (needed && !needed[i]) continue;
    size_t at = s->n_columns++;
    BR_TRY_GOTO(br_travel_type(d, r->types[i], &s->types[at], err));
    br_buf_printf(&b, "%sCAST(t.c%zu AS %s) AS c%zu", at ? ", " : "", i, s->types[at], at);
  }
  if (c->tail) br_buf_printf(&b, "%s%s AS c%zu", s->n_columns ? ", " : "", c->tail, s->n_columns);
  br_buf_printf(&b, "\nFROM %s t", br_block(d, r->branches[branch].sql));
  s->sql = br_buf_cstr(&b);
  BR_TRY_GOTO(check_sources(r->branches[branch].open, s->sql, err));
  s->sql = br_final_text(d, r->branches[branch].open, s->sql);
done:
  br_buf_free(&b);
  return status;
}

static br_task_rule task_rule(br_rule r) {
  switch (r) {
    case BR_RULE_SPLITS: return BR_TASKS_SPLITS;
    case BR_RULE_PARTITIONS: return BR_TASKS_PARTITIONS;
    case BR_RULE_FORWARD: return BR_TASKS_FORWARD;
    case BR_RULE_NONE:
    case BR_RULE_ONE: break;
  }
  return BR_TASKS_ONE;
}

br_status br_close(br_dist *d, const br_drel *r, size_t branch, const br_closing *c, uint32_t *id, br_error *err) {
  br_open *o = r->branches[branch].open;
  br_stages *out = d->out;
  br_stage s = {0};
  s.types = br_arena_alloc(d->arena, (r->n_columns + 1) * sizeof *s.types);
  BR_TRY(closing_text(d, r, branch, c, &s, err));
  s.id = (uint32_t)out->n_stages;
  for (size_t i = 0; i < o->n_steps; i++)
    o->steps[i].sql = br_final_text(d, o, o->steps[i].sql); /* before the numbers change */
  forget_sides(o, r, branch, c);
  s.inputs = o->inputs;
  s.n_inputs = o->n_inputs;
  for (size_t i = 0; i < s.n_inputs; i++) s.inputs[i].number = (uint32_t)i;
  s.scans = o->scans;
  s.n_scans = o->n_scans;
  s.steps = o->steps;
  s.n_steps = o->n_steps;
  if (o->row_columns && o->rows_sql == r->branches[branch].sql && c->output == BR_EX_HASH)
    s.row_columns = o->row_columns;
  else if (o->row_columns)
    s.sql = br_stage_without_groups(d->arena, s.sql);
  for (size_t i = 0; i < s.n_steps; i++) s.steps[i].number = (uint32_t)(s.n_inputs + i);
  s.split_scan = o->rule == BR_RULE_SPLITS ? o->split_scan : -1;
  s.rule = task_rule(o->rule);
  s.output = c->output;
  s.partitions = c->partitions;
  s.keys = c->keys;
  s.ordered_output = r->ordered;
  s.indeterminate = o->indeterminate;
  s.chance = o->chance;
  s.batch_rows = o->batch_rows;
  s.enough_rows = o->enough_rows;
  s.enough_of = o->enough_of;
  s.rows = r->rows < 0 ? -1 : r->rows / (double)r->n_branches;
  s.bytes = r->bytes < 0 ? -1 : r->bytes / (double)r->n_branches;
  s.why = joined(d, c->why, "; ", o->why);
  s.one_task_reason = s.rule == BR_TASKS_ONE ? (o->reason ? o->reason : BR_WHY_CONSTANTS) : NULL;
  s.label = o->label ? o->label : "read";
  if (br_find_twin(d, &s, id)) return BR_OK;
  out->stages = br_grown(d, out->stages, &d->cap_stages, out->n_stages, sizeof *out->stages);
  out->stages[out->n_stages++] = s;
  *id = s.id;
  return BR_OK;
}
