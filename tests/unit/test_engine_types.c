/* SPDX-License-Identifier: Apache-2.0
 * links: br_engine
 * Every SQL type out through the sink, through Arrow IPC, and back through input(k) with identical values; nulls; slices at
 * odd places; nested vectors that are not flat inside. */
#include "engine_fixture.h"

typedef struct type_case {
  const char *name, *type, *value; /* value: an expression over i (BIGINT) */
} type_case;

static const type_case cases[] = {
    {"bool", "BOOLEAN", "i % 3 = 0"},
    {"i8", "TINYINT", "(i % 256 - 128)"},
    {"i16", "SMALLINT", "(i * 7 % 65536 - 32768)"},
    {"i32", "INTEGER", "(i * 1000003 % 4294967296 - 2147483648)"},
    {"i64", "BIGINT", "i * 1000000007 * (1 - i % 2 * 2)"},
    {"u8", "UTINYINT", "i % 256"},
    {"u16", "USMALLINT", "i * 7 % 65536"},
    {"u32", "UINTEGER", "i * 1000003 % 4294967296"},
    {"u64", "UBIGINT", "18446744073709551615::UBIGINT - i::UBIGINT"},
    {"i128", "HUGEINT", "i::HUGEINT * 1000000000000000000000 * (1 - i % 2 * 2)"},
    {"u128", "UHUGEINT", "340282366920938463463374607431768211455::UHUGEINT - i::UHUGEINT"},
    {"f32", "FLOAT", "CASE WHEN i % 97 = 0 THEN 'nan'::FLOAT WHEN i % 98 = 0 THEN '-inf'::FLOAT ELSE i / 3.0 END"},
    {"f64", "DOUBLE", "CASE WHEN i % 97 = 0 THEN 'nan'::DOUBLE WHEN i % 98 = 0 THEN 'inf'::DOUBLE ELSE -i / 7.0 END"},
    {"dec4", "DECIMAL(4,1)", "(i % 9000) / 10.0 - 450"},
    {"dec9", "DECIMAL(9,3)", "-i / 8.0"},
    {"dec18", "DECIMAL(18,2)", "i * 123456789.25"},
    {"dec38", "DECIMAL(38,5)", "(i - 5000)::DECIMAL(38,5) * 1000000000000000000000"},
    {"str", "VARCHAR",
     "CASE i % 4 WHEN 0 THEN '' WHEN 1 THEN 'abcdefghijkl' WHEN 2 THEN 'größer als zwölf Bytes: ' || i ELSE 'x' || i "
     "END"},
    {"blob", "BLOB", "encode(repeat(chr((i % 127)::INTEGER + 1), (i % 30)::INTEGER)) || '\\x00\\xFF'::BLOB"},
    {"json", "JSON", "('{\"a\": ' || i || '}')"},
    {"bit", "BIT", "bitstring((i % 2)::VARCHAR || '01101', (6 + i % 20)::INTEGER)"},
    {"bignum", "BIGNUM", "(i::VARCHAR || repeat('9', (i % 40)::INTEGER))::BIGNUM"},
    {"uuid", "UUID", "md5(i::VARCHAR)::UUID"},
    {"date", "DATE", "DATE '1900-01-01' + (i * 11)::INTEGER"},
    {"time", "TIME", "TIME '00:00:00' + to_microseconds(i * 86399999 % 86400000000)"},
    {"timetz", "TIMETZ",
     "(lpad((i % 24)::VARCHAR, 2, '0') || ':30:15.25' || CASE WHEN i % 2 = 0 THEN '+05:30' ELSE '-11' END)::TIMETZ"},
    {"timens", "TIME_NS", "TIME_NS '10:11:12.123456789'"},
    {"ts", "TIMESTAMP", "TIMESTAMP '1969-12-31 23:59:59.5' + to_microseconds(i * 1234567891)"},
    {"ts_s", "TIMESTAMP_S", "TIMESTAMP '2020-01-01' + to_seconds(i)"},
    {"ts_ms", "TIMESTAMP_MS", "TIMESTAMP '2020-01-01' + to_milliseconds(i * 7)"},
    {"ts_ns", "TIMESTAMP_NS", "make_timestamp_ns(i * 1000000007)"},
    {"tstz", "TIMESTAMPTZ", "TIMESTAMPTZ '2020-06-01 12:00:00+02' + to_seconds(i)"},
    {"interval", "INTERVAL",
     "to_months((i % 100 - 50)::INTEGER) + to_days((i % 40)::INTEGER) - to_microseconds(i * 977)"},
    {"list", "INTEGER[]", "range(i % 5)"},
    {"list_s", "VARCHAR[]", "['a' || i, NULL, 'a text of more than twelve bytes ' || i, '']"},
    {"list_list", "BIGINT[][]", "[range(i % 3), NULL, [], [i, NULL]]"},
    {"list_uuid", "UUID[]", "[md5(i::VARCHAR)::UUID, NULL, md5((i + 1)::VARCHAR)::UUID]"},
    {"list_bool", "BOOLEAN[]", "[i % 2 = 0, NULL, true]"},
    {"list_dec", "DECIMAL(9,2)[]", "[i / 4.0, NULL]"},
    {"sliced", "BIGINT[]", "list_slice([i, i + 1, i + 2, i + 3], (i % 4) + 1, 3)"},
    {"struct", "STRUCT(x BIGINT, \"y z\" VARCHAR, l DOUBLE[])",
     "{'x': i, 'y z': CASE WHEN i % 7 = 0 THEN NULL ELSE 's' || i END, 'l': [i / 2, NULL]}"},
    {"struct_const", "STRUCT(k INTEGER, v BIGINT, n STRUCT(t VARCHAR))",
     "{'k': 7, 'v': i, 'n': {'t': 'always the same long text'}}"},
    {"struct_null", "STRUCT(k INTEGER, v BIGINT)", "CASE WHEN i % 3 = 0 THEN NULL ELSE {'k': 1, 'v': i} END"},
    {"list_struct", "STRUCT(k BIGINT, v VARCHAR)[]",
     "CASE WHEN i % 4 = 0 THEN [] ELSE [{'k': i, 'v': 'q' || i}, NULL, {'k': NULL, 'v': NULL}] END"},
    {"map", "MAP(VARCHAR, BIGINT)", "map(['k', 'key ' || i], [i, NULL])"},
    {"map_nested", "MAP(INTEGER, STRUCT(a UUID)[])", "map([(i % 9)::INTEGER], [[{'a': md5(i::VARCHAR)::UUID}]])"},
    {"array", "BIGINT[3]", "[i, NULL, i + 2]::BIGINT[3]"},
    {"array_s", "VARCHAR[2][]", "[['a' || i, NULL], NULL, ['longer than twelve bytes', '']]::VARCHAR[2][]"},
    {"union", "UNION(num BIGINT, str VARCHAR, l INTEGER[])",
     "CASE i % 3 WHEN 0 THEN union_value(num := i)::UNION(num BIGINT, str VARCHAR, l INTEGER[]) WHEN 1 THEN "
     "union_value(str := 's' || i)::UNION(num "
     "BIGINT, str VARCHAR, l INTEGER[]) ELSE union_value(l := [i::INTEGER, NULL])::UNION(num BIGINT, str VARCHAR, l "
     "INTEGER[]) END"},
#define U "::UNION(n BIGINT, s VARCHAR)"
    {"union_list", "UNION(n BIGINT, s VARCHAR)[]",
     "CASE WHEN i % 4 = 0 THEN [] ELSE [union_value(n := i)" U ", NULL, union_value(s := 'text of union ' || i)" U
     "] END"},
    {"union_struct", "STRUCT(u UNION(n BIGINT, s VARCHAR), k INTEGER)",
     "{'u': CASE WHEN i % 2 = 0 THEN union_value(n := i)" U " ELSE union_value(s := 's' || i)" U " END, 'k': 1}"},
    {"union_array", "UNION(n BIGINT, s VARCHAR)[2]", "[union_value(n := i)" U ", union_value(s := 's' || i)" U "]"},
    {"union_map", "MAP(VARCHAR, UNION(n BIGINT, s VARCHAR))",
     "map(['k' || i, 'l'], [union_value(s := 's' || i)" U ", NULL])"},
    {"nothing", "INTEGER", "NULL"},
};
enum { N_CASES = sizeof cases / sizeof *cases, ROWS = 10000 };

static int make_tables(void **state) {
  if (fixture_open(state)) return 1;
  fixture *f = *state;
  for (size_t i = 0; i < N_CASES; i++) {
    char *sql = br_asprintf(
        "CREATE TABLE \"%s\"(i BIGINT, v %s); INSERT INTO \"%s\" SELECT i, CAST(%s AS %s) FROM range(%d) t(i) WHERE i "
        "%% 5 > 0; "
        "INSERT INTO \"%s\" SELECT i, (SELECT v FROM \"%s\" WHERE i < 0) FROM range(%d) t(i) WHERE i %% 5 = 0",
        cases[i].name, cases[i].type, cases[i].name, cases[i].value, cases[i].type, ROWS, cases[i].name, cases[i].name,
        ROWS);
    br_error err = {0};
    if (br_session_execute(f->session, sql, &err) != BR_OK) fail_msg("%s: %s", cases[i].name, err.message);
    free(sql);
  }
  return 0;
}

/* Cut every batch to pieces of `step` rows that start anywhere in its buffers. */
static size_t cut(collect *c, int64_t step, br_batch ***out) {
  size_t n = 0;
  br_batch **pieces = br_calloc(ROWS + 1, sizeof *pieces);
  for (size_t i = 0; i < c->n; i++)
    for (int64_t at = 0; at < br_batch_rows(c->batches[i]); at += step) {
      struct ArrowArray whole;
      br_batch_export(c->batches[i], &whole);
      int64_t rows = br_batch_rows(c->batches[i]) - at;
      whole.offset += at;
      whole.length = rows < step ? rows : step;
      OK(br_batch_new(c->schema, &whole, 1, &pieces[n++], &err));
    }
  *out = pieces;
  return n;
}

static void sorted_equal(fixture *f, const type_case *t, collect *first, br_batch **batches, size_t n,
                         const char *how) {
  served in = {.batches = batches, .n = n, .rows = ROWS};
  br_run_input input = served_input(&in, 0, first->schema);
  /* Both directions of EXCEPT ALL. */
  for (int turn = 0; turn < 2; turn++) {
    in.next = 0;
    collect *again = collect_new();
    br_run_sink sink = collect_sink(again);
    char *sql = br_asprintf(turn ? "SELECT i FROM (SELECT i, v FROM \"%s\" EXCEPT ALL SELECT c0, c1 FROM input(0))"
                                 : "SELECT c0 FROM (SELECT c0, c1 FROM input(0) EXCEPT ALL SELECT i, v FROM \"%s\")",
                            t->name);
    br_run run = {.sql = sql, .inputs = &input, .n_inputs = 1, .sink = &sink, .scratch_dir = f->scratch};
    br_error err = {0};
    if (br_session_run(f->session, &run, &err) != BR_OK) fail_msg("%s (%s): %s", t->name, how, err.message);
    if (again->rows)
      fail_msg("%s (%s): %llu rows differ, direction %d, first i = %lld", t->name, how, (unsigned long long)again->rows,
               turn, (long long)batch_int64(again->batches[0], 0, 0));
    free(sql);
    collect_free(again);
  }
}

static void round_trips(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < N_CASES; i++) {
    char *sql = br_asprintf("SELECT i AS c0, v AS c1 FROM \"%s\"", cases[i].name);
    collect *c = run_over(f, sql, NULL, NULL, 0, false);
    assert_int_equal(c->rows, ROWS);
    assert_int_equal(br_schema_columns(c->schema), 2);
    br_schema *announced; /* what the planner says before the task runs */
    OK(br_session_schema(f->session, (const char *const[]){"BIGINT", cases[i].type}, NULL, 2, &announced, &err));
    br_buf why = {0};
    if (!br_schema_same_types(announced, c->schema, &why)) fail_msg("%s: %s", cases[i].name, br_buf_cstr(&why));
    br_buf_free(&why);
    br_schema_unref(announced);
    sorted_equal(f, &cases[i], c, c->batches, c->n, "whole");
    static const int64_t steps[] = {1013, 2049};
    for (size_t k = 0; k < 2; k++) {
      br_batch **pieces;
      size_t n = cut(c, steps[k], &pieces);
      sorted_equal(f, &cases[i], c, pieces, n, k ? "pieces of 2049" : "pieces of 1013");
      for (size_t p = 0; p < n; p++) br_batch_unref(pieces[p]);
      free(pieces);
    }
    collect_free(c);
    free(sql);
  }
}

/* The types that input(k) announces to SQL are those that went in. */
static void type_names(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < N_CASES; i++) {
    char *sql = br_asprintf("SELECT v AS c0 FROM \"%s\" LIMIT 10", cases[i].name);
    collect *c = run_over(f, sql, NULL, NULL, 0, false);
    free(sql);
    sql = br_asprintf("SELECT count(*) FILTER (typeof(c0) <> typeof(CAST(NULL AS %s))) FROM input(0)", cases[i].type);
    collect *out = run_over(f, sql, c->schema, c->batches, c->n, false);
    if (batch_int64(out->batches[0], 0, 0) != 0)
      fail_msg("%s comes back as another type than %s", cases[i].name, cases[i].type);
    collect_free(out);
    collect_free(c);
    free(sql);
  }
}

/* SQL's untyped NULL column; all columns of all types at once; local streams give the same types and values. */
static void together(void **state) {
  fixture *f = *state;
  br_buf sql = {0}, back = {0};
  br_buf_str(&sql, "SELECT t0.i, NULL AS n");
  for (size_t i = 0; i < N_CASES; i++) br_buf_printf(&sql, ", t%zu.v AS v%zu", i, i);
  br_buf_printf(&sql, " FROM \"%s\" t0", cases[0].name);
  for (size_t i = 1; i < N_CASES; i++) br_buf_printf(&sql, " JOIN \"%s\" t%zu USING (i)", cases[i].name, i);
  collect *c = run_over(f, br_buf_cstr(&sql), NULL, NULL, 0, false);
  assert_int_equal(c->rows, ROWS);
  br_buf_str(&back, "SELECT count(*) FROM input(0) a WHERE c0 >= 0");
  for (size_t i = 0; i < N_CASES; i++)
    br_buf_printf(&back, " AND c%zu IS NOT DISTINCT FROM (SELECT v FROM \"%s\" b WHERE b.i = a.c0)", i + 2,
                  cases[i].name);
  collect *out = run_over(f, br_buf_cstr(&back), c->schema, c->batches, c->n, false);
  assert_int_equal(batch_int64(out->batches[0], 0, 0), ROWS);
  collect_free(out);

  br_local_stream *st;
  OK(br_session_stream(f->session, br_buf_cstr(&sql), &st, &err));
  br_buf why = {0};
  if (!br_schema_same_types(br_local_stream_schema(st), c->schema, &why)) fail_msg("%s", br_buf_cstr(&why));
  assert_string_equal(br_schema_arrow(br_local_stream_schema(st))->children[1]->name, "n");
  br_batch *batches[64], *b;
  size_t n = 0;
  for (;;) {
    OK(br_local_stream_next(st, &b, &err));
    if (!b) break;
    assert_true(n < 64);
    batches[n++] = b;
  }
  br_local_stream_free(st);
  out = run_over(f, br_buf_cstr(&back) + 0, c->schema, batches, n, false);
  assert_int_equal(batch_int64(out->batches[0], 0, 0), ROWS);
  collect_free(out);
  for (size_t i = 0; i < n; i++) br_batch_unref(batches[i]);
  collect_free(c);
  br_buf_free(&why);
  br_buf_free(&sql);
  br_buf_free(&back);
}

static void enums_refused(void **state) {
  fixture *f = *state;
  collect *c = collect_new();
  br_run_sink sink = collect_sink(c);
  br_run run = {.sql = "SELECT 'a'::ENUM('a', 'b')", .sink = &sink, .scratch_dir = f->scratch};
  br_error err = {0};
  assert_int_equal(br_session_run(f->session, &run, &err), BR_UNSUPPORTED);
  assert_int_equal(err.blame, BR_BLAME_USER);
  assert_non_null(strstr(err.message, "cast it to VARCHAR"));
  assert_int_equal(c->opens, 0);
  collect_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips), cmocka_unit_test(type_names),
                                     cmocka_unit_test(together), cmocka_unit_test(enums_refused)};
  return cmocka_run_group_tests(tests, make_tables, fixture_close);
}
