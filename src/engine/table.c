/* SPDX-License-Identifier: Apache-2.0
 *
 * A small result as text.
 * Order: any. Threads: the session's user. Bounds: the whole result is in memory: for footers, settings and tests.
 */
#include "engine/internal.h"
#include <string.h>

/* Each column cast to VARCHAR, names kept; NULL when there is nothing to cast or the statement can't be wrapped. */
static char *as_text(const char *sql, duckdb_prepared_statement ps) {
  idx_t n = duckdb_prepared_statement_column_count(ps), others = 0;
  for (idx_t i = 0; i < n; i++) others += duckdb_prepared_statement_column_type(ps, i) != DUCKDB_TYPE_VARCHAR;
  if (!others || duckdb_prepared_statement_type(ps) != DUCKDB_STATEMENT_TYPE_SELECT) return NULL;
  br_buf out = {0};
  br_buf_str(&out, "SELECT ");
  for (idx_t i = 0; i < n; i++) {
    const char *name = duckdb_prepared_statement_column_name(ps, i);
    br_buf_printf(&out, "%sCAST(c%llu AS VARCHAR) AS ", i ? ", " : "", (unsigned long long)i);
    br_buf_sql_ident(&out, name);
    duckdb_free((void *)name);
  }
  br_buf_printf(&out, " FROM (%s\n) AS brant_result(", sql);
  for (idx_t i = 0; i < n; i++) br_buf_printf(&out, "%sc%llu", i ? ", " : "", (unsigned long long)i);
  br_buf_char(&out, ')');
  return br_buf_take(&out);
}

static char *string_cell(duckdb_vector v, idx_t row) {
  uint64_t *validity = duckdb_vector_get_validity(v);
  if (validity && !duckdb_validity_row_is_valid(validity, row)) return NULL;
  duckdb_string_t *s = (duckdb_string_t *)duckdb_vector_get_data(v) + row;
  return br_strndup(duckdb_string_t_data(s), duckdb_string_t_length(*s));
}

static void add_chunk(br_table *t, duckdb_data_chunk chunk, size_t *capacity) {
  size_t rows = duckdb_data_chunk_get_size(chunk), need = (t->rows + rows) * t->columns;
  if (need > *capacity) {
    *capacity = need * 2;
    t->cells = br_realloc(t->cells, *capacity * sizeof *t->cells);
  }
  for (size_t c = 0; c < t->columns; c++) {
    duckdb_vector v = duckdb_data_chunk_get_vector(chunk, c);
    for (size_t r = 0; r < rows; r++) t->cells[(t->rows + r) * t->columns + c] = string_cell(v, r);
  }
  t->rows += rows;
}

static void read_result(duckdb_result *r, br_table *out) {
  size_t capacity = 0;
  bool text = true;
  out->columns = duckdb_column_count(r);
  out->names = br_calloc(out->columns + 1, sizeof *out->names);
  for (size_t i = 0; i < out->columns; i++) {
    out->names[i] = br_strdup(duckdb_column_name(r, i));
    text = text && duckdb_column_type(r, i) == DUCKDB_TYPE_VARCHAR;
  }
  if (text) {
    for (duckdb_data_chunk chunk; (chunk = duckdb_fetch_chunk(*r)) != NULL; duckdb_destroy_data_chunk(&chunk))
      add_chunk(out, chunk, &capacity);
    return;
  }
  out->rows = duckdb_row_count(r); /* the counts that INSERT and the like answer with */
  out->cells = br_calloc(out->rows * out->columns + 1, sizeof *out->cells);
  for (size_t i = 0; i < out->rows * out->columns; i++) {
    char *cell = duckdb_value_varchar(r, i % out->columns, i / out->columns);
    if (cell) out->cells[i] = br_strdup(cell);
    duckdb_free(cell);
  }
}

static br_status prepare(br_session *s, const char *sql, duckdb_prepared_statement *ps, br_error *err) {
  BR_TRY(br_stmt_prepare_last(s, sql, ps, err));
  char *wrapped = as_text(sql, *ps);
  if (!wrapped) return BR_OK;
  duckdb_prepared_statement again = NULL;
  if (duckdb_prepare(s->con, wrapped, &again) == DuckDBSuccess) {
    duckdb_destroy_prepare(ps);
    *ps = again;
  } else
    duckdb_destroy_prepare(&again);
  free(wrapped);
  return BR_OK;
}

br_status br_session_table(br_session *s, const char *sql, br_table *out, br_error *err) {
  duckdb_prepared_statement ps = NULL;
  duckdb_result r;
  br_status status;
  memset(out, 0, sizeof *out);
  br_session_begin(s);
  BR_TRY_GOTO(br_gate_enter(s, BR_MODE_DEFAULT, err));
  status = prepare(s, sql, &ps, err);
  br_gate_leave(s);
  if (status != BR_OK) goto done;
  BR_TRY_GOTO(br_stmt_execute(s, ps, false, &r, err));
  read_result(&r, out);
  duckdb_destroy_result(&r);
done:
  if (ps) duckdb_destroy_prepare(&ps);
  br_session_end(s);
  return status;
}

const char *br_table_cell(const br_table *t, size_t row, size_t column) {
  BR_ASSERT(row < t->rows && column < t->columns);
  return t->cells[row * t->columns + column];
}

void br_table_free(br_table *t) {
  for (size_t i = 0; i < t->rows * t->columns; i++) free(t->cells[i]);
  for (size_t i = 0; t->names && i < t->columns; i++) free(t->names[i]);
  free(t->cells);
  free(t->names);
  memset(t, 0, sizeof *t);
}
