/* SPDX-License-Identifier: Apache-2.0
 *
 * The distributed plan for people: a tree with the result stage on top, and below each stage the exchanges that it reads.
 * A stage with several readers is printed at the first one. Threads: none. Bounds: recursion is as deep as the stages.
 */
#include "plan/stage/stage.h"

#include <string.h>

const char *br_exchange_name(br_exchange_kind k) {
  static const char *const names[] = {"FORWARD", "HASH", "RANGE", "SINGLE", "BROADCAST", "BOUNDS",
                                      "FILTER",  "WAIT", "KEYS",  "BLOOM",  "RESULT"};
  return (size_t)k < sizeof names / sizeof *names ? names[k] : "?";
}

const char *br_task_rule_name(br_task_rule r) {
  static const char *const names[] = {"one a split", "one a partition", "one a task before it", "one"};
  return (size_t)r < sizeof names / sizeof *names ? names[r] : "?";
}

static void indent(br_buf *out, unsigned depth) {
  for (unsigned i = 0; i < depth; i++) br_buf_str(out, "  ");
}

/* Every line of the text behind a bar. */
static void print_sql(br_buf *out, const char *sql, unsigned depth) {
  while (*sql) {
    size_t n = strcspn(sql, "\n");
    indent(out, depth);
    br_buf_str(out, "| ");
    br_buf_add(out, sql, n);
    br_buf_char(out, '\n');
    sql += n;
    if (*sql) sql++;
  }
}

static void print_rows(br_buf *out, const br_stage *s) {
  if (s->rows >= 0) br_buf_printf(out, ", about %.0f rows", s->rows);
  if (s->bytes >= 0) br_buf_printf(out, ", %.0f bytes", s->bytes);
}

static void print_exchange(br_buf *out, const br_stage *producer, const br_stage_input *in, size_t k, unsigned depth) {
  indent(out, depth);
  br_buf_printf(out, "input(%zu) <- %s", k, br_exchange_name(in->kind));
  if (producer->keys && in->kind == producer->output) br_buf_printf(out, "(%s)", producer->keys);
  if (in->kind == BR_EX_HASH || in->kind == BR_EX_RANGE) br_buf_printf(out, " into %u", producer->partitions);
  if (in->ordered) br_buf_str(out, ", in order");
  br_buf_printf(out, " from stage %u", producer->id);
  if (in->kind == BR_EX_FILTER)
    br_buf_printf(out, " (keys of the join's other side, if they turn out few%s)",
                  in->n_ranges ? "; what lies between the least and the greatest" : "");
  else if (in->kind == BR_EX_WAIT)
    br_buf_str(out, " (the join's other side: if it turns out small, this stage goes into the join)");
  else if (in->kind == BR_EX_KEYS)
    br_buf_str(out, " (if they turn out many, and few beside the rows that they would meet)");
  else if (in->kind == BR_EX_BLOOM)
    br_buf_str(out, " (a filter of the same keys, if it was made)");
  else if (producer->why)
    br_buf_printf(out, " (%s)", producer->why);
  br_buf_char(out, '\n');
}

/* "input(1) <- embed(c1), detect(c0, c2) over" and the SQL that gives their arguments. */
static void print_step(br_buf *out, const br_stage_step *step, unsigned depth) {
  indent(out, depth);
  br_buf_printf(out, "input(%u) <- ", step->number);
  for (size_t i = 0; i < step->n_calls; i++) {
    br_buf_printf(out, "%s%s(", i ? ", " : "", step->calls[i].name);
    for (size_t a = 0; a < step->calls[i].n_arguments; a++)
      br_buf_printf(out, "%sc%u", a ? ", " : "", step->calls[i].arguments[a]);
    br_buf_str(out, ")");
  }
  br_buf_printf(out, " in processes%s, over\n", step->ordered ? ", in order" : "");
  print_sql(out, step->sql, depth + 1);
}

static void print_stage(br_buf *out, const br_stages *s, uint32_t id, bool *seen, unsigned depth) {
  const br_stage *st = &s->stages[id];
  indent(out, depth);
  if (seen[id]) {
    br_buf_printf(out, "stage %u (above)\n", id);
    return;
  }
  seen[id] = true;
  br_buf_printf(out, "stage %u: %s\n", id, st->label ? st->label : "");
  indent(out, depth + 1);
  br_buf_printf(out, "tasks: %s", br_task_rule_name(st->rule));
  if (st->one_task_reason) br_buf_printf(out, " (%s)", st->one_task_reason);
  br_buf_printf(out, "; output: %s", br_exchange_name(st->output));
  print_rows(out, st);
  if (st->batch_rows) br_buf_printf(out, ", batches of %u rows", st->batch_rows);
  if (st->ordered_output) br_buf_str(out, ", ordered");
  if (st->indeterminate) br_buf_str(out, ", indeterminate");
  if (st->enough_rows > 0) br_buf_printf(out, ", until %llu rows are there", (unsigned long long)st->enough_rows);
  br_buf_char(out, '\n');
  for (size_t i = 0; i < st->n_scans; i++) {
    indent(out, depth + 1);
    br_buf_printf(out, "%s: %s%s", st->scans[i].token, st->scans[i].scan.table ? st->scans[i].scan.table : "files",
                  (int)i == st->split_scan ? ", split"
                  : st->scans[i].cut       ? ", cut at the same values"
                                           : ", read whole");
    if (st->scans[i].cut) br_buf_printf(out, " by %s", st->scans[i].sorted->name);
    if (!st->scans[i].scan.table) br_buf_printf(out, ", %zu", st->scans[i].scan.n_files);
    br_buf_char(out, '\n');
  }
  print_sql(out, st->sql, depth + 1);
  for (size_t i = st->n_steps; i-- > 0;) print_step(out, &st->steps[i], depth + 1);
  for (size_t i = 0; i < st->n_inputs; i++) {
    print_exchange(out, &s->stages[st->inputs[i].producer], &st->inputs[i], i, depth + 1);
    print_stage(out, s, st->inputs[i].producer, seen, depth + 2);
  }
}

void br_stages_print(const br_stages *s, br_buf *out) {
  if (s->whole_query_reason) {
    br_buf_printf(out, "the whole query runs as one task: %s\n", s->whole_query_reason);
    return;
  }
  if (!s->n_stages) return;
  bool *seen = br_calloc(s->n_stages, sizeof *seen);
  print_stage(out, s, (uint32_t)(s->n_stages - 1), seen, 0);
  free(seen);
}
