/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of users' functions: each branch's text so far becomes a step of its stage, with the columns that are still needed and the
 * arguments of the calls; the branch goes on over input(k) of the step. Rows stay in their task, and in their order.
 *
 * Threads: none. Bounds: none.
 */
#include "plan/distribute/distribute.h"

#include <string.h>

#define BR_SPREAD_LEAST_ROWS 8

typedef struct step {
  br_dist *d;
  const br_node *n;
  const br_drel *r;
  size_t n_passed; /* columns of the input */
  br_stage_step *out;
  int64_t *passed_at;  /* [n_passed] which column of the step's SQL; -1: not needed above */
  int64_t *results_at; /* [n_calls] which of the step's columns; -1: nobody needs it */
  br_buf columns;      /* of the SELECT */
} step;

static bool needed(const step *s, size_t column) { return s->d->needs[s->n->id][column]; }

static br_status add_column(step *s, const char *text, json_t *type, size_t *at, br_error *err) {
  *at = s->out->n_columns++;
  BR_TRY(br_travel_type(s->d, type, &s->out->types[*at], err));
  br_buf_printf(&s->columns, "%sCAST(%s AS %s) AS c%zu", *at ? ", " : "", text, s->out->types[*at], *at);
  return BR_OK;
}

static br_status add_argument(step *s, const json_t *arg, uint32_t *out, br_error *err) {
  br_rel over = br_branch_rel(s->r, 0);
  br_buf text = {0};
  size_t at;
  if (br_j_is(arg, "expression_class", "BOUND_REF")) {
    uint64_t i = br_json_u64(br_j_get(arg, "index"));
    if (i < s->n_passed && s->passed_at[i] >= 0) {
      *out = (uint32_t)s->passed_at[i];
      return BR_OK;
    }
  }
  br_status status = br_emit_expr(s->d->emit, arg, &over, "t", &text, err);
  if (status == BR_OK) status = add_column(s, br_buf_cstr(&text), br_expr_type(arg), &at, err);
  if (status == BR_OK) *out = (uint32_t)at;
  br_buf_free(&text);
  return status;
}

static br_status add_call(step *s, size_t i, br_error *err) {
  const json_t *call = br_j_at(s->n->json, "calls", i);
  const br_udf *f = br_plan_udf(call, s->d->o->functions, s->d->o->n_functions);
  size_t n_args = br_j_count(call, "children");
  if (!f) return br_fail(err, BR_INTERNAL, BR_BLAME_INTERNAL, "the plan calls a function that is not registered");
  uint32_t *args = br_arena_alloc(s->d->arena, (n_args + 1) * sizeof *args);
  for (size_t a = 0; a < n_args; a++) BR_TRY(add_argument(s, br_j_at(call, "children", a), &args[a], err));
  s->results_at[i] = (int64_t)s->out->n_calls; /* behind the columns, whose number is not known yet */
  s->out->calls[s->out->n_calls++] = (br_step_call){
      .function = f->id, .name = br_arena_strdup(s->d->arena, f->name), .arguments = args, .n_arguments = n_args};
  return BR_OK;
}

static br_status fill_step(step *s, br_error *err) {
  size_t n_calls = s->n->n_columns - s->n_passed, n_args = 0, at;
  for (size_t i = 0; i < n_calls; i++) n_args += br_j_count(br_j_at(s->n->json, "calls", i), "children");
  s->out->types = br_arena_alloc(s->d->arena, (s->n->n_columns + n_args + 2) * sizeof *s->out->types);
  s->out->calls = br_arena_alloc(s->d->arena, (n_calls + 1) * sizeof *s->out->calls);
  s->passed_at = br_arena_alloc(s->d->arena, (s->n_passed + 1) * sizeof *s->passed_at);
  s->results_at = br_arena_alloc(s->d->arena, (n_calls + 1) * sizeof *s->results_at);
  for (size_t i = 0; i < s->n_passed; i++) {
    s->passed_at[i] = -1;
    if (!needed(s, i)) continue;
    BR_TRY(add_column(s, br_arena_printf(s->d->arena, "t.c%zu", i), s->r->types[i], &at, err));
    s->passed_at[i] = (int64_t)at;
  }
  for (size_t i = 0; i < n_calls; i++) {
    s->results_at[i] = -1;
    if (needed(s, s->n_passed + i)) BR_TRY(add_call(s, i, err));
  }
  if (!s->out->n_columns) BR_TRY(add_column(s, "0", br_type_plain("INTEGER"), &at, err)); /* rows need a place */
  for (size_t i = 0; i < n_calls; i++) {
    if (s->results_at[i] < 0) continue;
    s->results_at[i] += (int64_t)s->out->n_columns;
    BR_TRY(br_travel_type(s->d, s->n->types[s->n_passed + i], &s->out->types[s->results_at[i]], err));
  }
  return BR_OK;
}

/* Column i of the node over the step's columns. */
static br_status add_read(step *s, size_t i, br_buf *b, br_error *err) {
  json_t *type = s->n->types[i];
  br_buf text = {0};
  br_status status = BR_OK;
  int64_t at = i < s->n_passed ? s->passed_at[i] : s->results_at[i - s->n_passed];
  br_buf_str(b, i ? ", " : "");
  if (at >= 0 && !br_cast_back(type)) {
    br_buf_printf(b, "i.c%lld AS c%zu", (long long)at, i);
    return BR_OK;
  }
  const char *value = at >= 0 ? br_arena_printf(s->d->arena, "i.c%lld", (long long)at) : "NULL";
  if (type) BR_TRY_GOTO(br_emit_type(type, &text, err));
  if (type)
    br_buf_printf(b, "CAST(%s AS %s) AS c%zu", value, br_buf_cstr(&text), i);
  else
    br_buf_printf(b, "%s AS c%zu", value, i);
done:
  br_buf_free(&text);
  return status;
}

static void label(step *s, br_open *o) {
  br_buf b = {0};
  for (size_t i = 0; i < s->out->n_calls; i++) br_buf_printf(&b, "%s%s()", i ? ", " : "", s->out->calls[i].name);
  br_open_label(s->d, o, "%s", br_buf_cstr(&b));
  br_buf_free(&b);
}

static br_status one_branch(step *s, size_t branch, br_branch *out, br_error *err) {
  br_status status = BR_OK;
  br_buf read = {0};
  br_open *o = s->r->branches[branch].open;
  br_stage_step mine = *s->out;
  bool step = mine.n_calls > 0; /* nobody needs the results: no step, the same columns */
  mine.number = s->d->next_number++;
  mine.sql = br_arena_printf(s->d->arena, "SELECT %s\nFROM %s t", br_buf_cstr(&s->columns),
                             br_block(s->d, s->r->branches[branch].sql));
  if (step) {
    br_open_step(s->d, o, mine);
    label(s, o);
  }
  br_buf_str(&read, "SELECT ");
  for (size_t i = 0; i < s->n->n_columns; i++) BR_TRY_GOTO(add_read(s, i, &read, err));
  if (step)
    br_buf_printf(&read, "\nFROM input(%u) i", mine.number);
  else
    br_buf_printf(&read, "\nFROM %s i", br_block(s->d, mine.sql));
  *out = (br_branch){.open = o, .sql = br_arena_strdup(s->d->arena, br_buf_cstr(&read)), .plain_read = -1};
done:
  br_buf_free(&read);
  return status;
}

static bool chance(const step *s) {
  for (size_t i = 0; i < s->out->n_calls; i++)
    for (size_t f = 0; f < s->d->o->n_functions; f++)
      if (s->d->o->functions[f].id == s->out->calls[i].function && !s->d->o->functions[f].deterministic) return true;
  return false;
}

br_status br_dist_calls(br_dist *d, const br_node *n, br_drel *out, br_error *err) {
  br_status status = BR_OK;
  br_drel child;
  BR_TRY(br_walk(d, n->children[0], &child, err));
  br_one_task(&child, BR_WHY_CONSTANTS); /* not once a task of a reader */
  BR_TRY(br_spread_few(d, &child, BR_SPREAD_LEAST_ROWS, err));
  step s = {.d = d, .n = n, .r = &child, .n_passed = n->children[0]->n_columns};
  s.out = br_arena_alloc(d->arena, sizeof *s.out);
  s.out->ordered = child.ordered;
  s.out->rows = child.rows < 0 ? -1 : child.rows / (double)child.n_branches;
  BR_TRY_GOTO(fill_step(&s, err));
  br_branch *branches = br_arena_alloc(d->arena, child.n_branches * sizeof *branches);
  for (size_t i = 0; i < child.n_branches; i++) BR_TRY_GOTO(one_branch(&s, i, &branches[i], err));
  *out = child;
  out->branches = branches;
  out->needed = d->needs[n->id];
  out->n_columns = n->n_columns;
  out->binds = n->binds;
  out->types = n->types;
  br_set_rows(out, n->rows);
  br_mark_chance(out, chance(&s));
done:
  br_buf_free(&s.columns);
  return status;
}
