/* SPDX-License-Identifier: Apache-2.0
 *
 * The distributed plan for programs: {"whole_query_reason", "stages": [{id, label, sql, types, inputs, scans, …}]}.
 * Threads: none. Bounds: none; the caller drops the object.
 */
#include "plan/stage/stage.h"

static json_t *text(const char *s) { return s ? json_string(s) : json_null(); }
static json_t *estimate(double v) { return v >= 0 ? json_real(v) : json_null(); }

static json_t *inputs_json(const br_stage *s) {
  json_t *list = json_array();
  for (size_t i = 0; i < s->n_inputs; i++)
    json_array_append_new(list, json_pack("{s:i, s:i, s:s, s:b}", "number", (int)s->inputs[i].number, "producer",
                                          (int)s->inputs[i].producer, "kind", br_exchange_name(s->inputs[i].kind),
                                          "ordered", s->inputs[i].ordered));
  return list;
}

static json_t *scans_json(const br_stage *s) {
  json_t *list = json_array();
  for (size_t i = 0; i < s->n_scans; i++) {
    const br_scan *scan = &s->scans[i].scan;
    json_t *files = json_array();
    for (size_t f = 0; f < scan->n_files; f++) json_array_append_new(files, json_string(scan->files[f]));
    json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:o, s:o, s:o}", "token", s->scans[i].token, "kind",
                                          scan->kind == BR_SCAN_TABLE     ? "table"
                                          : scan->kind == BR_SCAN_DATASET ? "dataset"
                                          : scan->kind == BR_SCAN_WARC    ? "warc"
                                          : scan->kind == BR_SCAN_TEXT    ? "text"
                                                                          : "parquet",
                                          "split", (int)i == s->split_scan, "table", text(scan->table), "files", files,
                                          "rows", estimate(s->scans[i].rows)));
  }
  return list;
}

static json_t *steps_json(const br_stage *s) {
  json_t *list = json_array();
  for (size_t i = 0; i < s->n_steps; i++) {
    const br_stage_step *step = &s->steps[i];
    json_t *calls = json_array(), *types = json_array();
    for (size_t c = 0; c < step->n_calls; c++) {
      json_t *arguments = json_array();
      for (size_t a = 0; a < step->calls[c].n_arguments; a++)
        json_array_append_new(arguments, json_integer((json_int_t)step->calls[c].arguments[a]));
      json_array_append_new(calls, json_pack("{s:s, s:o}", "function", step->calls[c].name, "arguments", arguments));
    }
    for (size_t t = 0; t < step->n_columns + step->n_calls; t++)
      json_array_append_new(types, json_string(step->types[t]));
    json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:o, s:o}", "number", (int)step->number, "sql", step->sql,
                                          "ordered", (int)step->ordered, "calls", calls, "types", types));
  }
  return list;
}

static json_t *stage_json(const br_stage *s) {
  json_t *types = json_array();
  for (size_t i = 0; i < s->n_columns; i++) json_array_append_new(types, json_string(s->types[i]));
  json_t *o = json_pack("{s:i, s:o, s:s, s:s, s:i, s:b, s:b}", "id", (int)s->id, "label", text(s->label), "tasks",
                        br_task_rule_name(s->rule), "output", br_exchange_name(s->output), "partitions",
                        (int)s->partitions, "ordered_output", s->ordered_output, "indeterminate", s->indeterminate);
  if (s->batch_rows) json_object_set_new(o, "batch_rows", json_integer(s->batch_rows));
  if (s->enough_rows) json_object_set_new(o, "enough_rows", json_integer((json_int_t)s->enough_rows));
  json_object_set_new(o, "sql", text(s->sql));
  json_object_set_new(o, "types", types);
  json_object_set_new(o, "keys", text(s->keys));
  json_object_set_new(o, "why", text(s->why));
  json_object_set_new(o, "one_task_reason", text(s->one_task_reason));
  json_object_set_new(o, "rows", estimate(s->rows));
  json_object_set_new(o, "bytes", estimate(s->bytes));
  json_object_set_new(o, "inputs", inputs_json(s));
  json_object_set_new(o, "scans", scans_json(s));
  if (s->n_steps) json_object_set_new(o, "steps", steps_json(s));
  return o;
}

json_t *br_stages_json(const br_stages *s) {
  json_t *list = json_array();
  for (size_t i = 0; i < s->n_stages; i++) json_array_append_new(list, stage_json(&s->stages[i]));
  return json_pack("{s:o, s:o}", "whole_query_reason", text(s->whole_query_reason), "stages", list);
}
