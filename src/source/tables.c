/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits of DuckDB tables by ranges of row ids.
 * Order: any. Threads: the session's user. Bounds: at most one split a row group.
 */
#include "source/internal.h"

enum { ROW_GROUP_ROWS = 122880 }; /* DuckDB's default; borders elsewhere are right too, only slower */

static void qualified(const char *catalog, const char *schema, const char *table, br_buf *out) {
  br_buf_sql_ident(out, catalog);
  br_buf_char(out, '.');
  br_buf_sql_ident(out, schema);
  br_buf_char(out, '.');
  br_buf_sql_ident(out, table);
}

static void equals(const char *column, const char *value, br_buf *sql) {
  br_buf_printf(sql, " AND %s = ", column);
  br_buf_sql_literal(sql, value, strlen(value));
}

static br_status count(br_session *session, const char *sql, uint64_t *first, uint64_t *second, br_error *err) {
  br_table t;
  BR_TRY(br_session_table(session, sql, &t, err));
  const char *a = br_table_cell(&t, 0, 0), *b = t.columns > 1 ? br_table_cell(&t, 0, 1) : NULL;
  *first = a ? strtoull(a, NULL, 10) : 0;
  if (second) *second = b ? strtoull(b, NULL, 10) : 0;
  br_table_free(&t);
  return BR_OK;
}

/* True if "rowid" means DuckDB's. */
static br_status has_row_ids(br_session *session, const char *catalog, const char *schema, const char *table, bool *out,
                             br_error *err) {
  br_buf sql = {0};
  uint64_t own;
  br_buf_str(&sql, "SELECT count(*) FROM duckdb_columns() WHERE lower(column_name) = 'rowid'");
  equals("database_name", catalog, &sql);
  equals("schema_name", schema, &sql);
  equals("table_name", table, &sql);
  br_status status = count(session, br_buf_cstr(&sql), &own, NULL, err);
  *out = own == 0;
  br_buf_free(&sql);
  return status;
}

br_status br_table_splits(br_session *session, const char *catalog, const char *schema, const char *table,
                          uint64_t target_rows, uint32_t min_splits, uint32_t max_splits, br_table_split **out,
                          size_t *n, br_error *err) {
  br_buf sql = {0};
  uint64_t rows = 0, last = 0;
  bool row_ids = false;
  br_status status;
  BR_TRY_GOTO(has_row_ids(session, catalog, schema, table, &row_ids, err));
  br_buf_printf(&sql, "SELECT count(*)%s FROM ", row_ids ? ", max(rowid)" : "");
  qualified(catalog, schema, table, &sql);
  BR_TRY_GOTO(count(session, br_buf_cstr(&sql), &rows, &last, err));
  uint64_t groups = rows ? last / ROW_GROUP_ROWS + 1 : 1;
  uint64_t want = target_rows ? (rows + target_rows - 1) / target_rows : 1;
  if (want < min_splits) want = min_splits;
  if (max_splits && want > max_splits) want = max_splits;
  if (want > groups) want = groups;
  if (want < 1 || !row_ids) want = 1;
  br_table_split *splits = br_calloc(want, sizeof *splits);
  for (uint64_t i = 0; i < want; i++) {
    br_table_split *s = &splits[i];
    s->first_row = groups * i / want * ROW_GROUP_ROWS;
    s->last_row = i + 1 == want ? last : groups * (i + 1) / want * ROW_GROUP_ROWS - 1;
    s->rows = rows * (i + 1) / want - rows * i / want;
    s->whole_table = want == 1;
  }
  *out = splits;
  *n = want;
done:
  br_buf_free(&sql);
  return status;
}

void br_table_split_sql(const char *catalog, const char *schema, const char *table, const br_table_split *split,
                        br_buf *out) {
  if (split->whole_table) {
    qualified(catalog, schema, table, out);
    return;
  }
  br_buf_str(out, "(SELECT *, rowid FROM ");
  qualified(catalog, schema, table, out);
  br_buf_printf(out, " WHERE rowid BETWEEN %llu AND %llu)", (unsigned long long)split->first_row,
                (unsigned long long)split->last_row);
}
