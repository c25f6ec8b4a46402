/* SPDX-License-Identifier: Apache-2.0
 * links: br_coordinator
 * COPY … TO taken apart, and what is left to DuckDB. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "coordinator/copy_text.h"
#include "coordinator/sink_list.h"
#include <string.h>

static br_copy_text parsed(const char *sql) {
  br_copy_text c;
  br_error err;
  bool is = false;
  assert_int_equal(br_copy_parse(sql, &is, &c, &err), BR_OK);
  assert_true(is);
  return c;
}

static void sources(void **state) {
  (void)state;
  static const struct {
    const char *sql, *select, *target;
  } cases[] = {
      {"COPY (SELECT 1) TO 'x.csv'", "SELECT 1", "x.csv"},
      {"copy(select ')', \"a)\" from t -- )\n)to 'it''s.csv'", "select ')', \"a)\" from t -- )\n", "it's.csv"},
      {"COPY t TO 'x'", "SELECT * FROM t", "x"},
      {"COPY /* c */ \"a to b\".\"T\" TO 'x' -- end", "SELECT * FROM \"a to b\".\"T\"", "x"},
      {"COPY t(a, \"b, c\") TO 'x'", "SELECT a, \"b, c\" FROM t", "x"},
      {"COPY (FROM t SELECT (1), [2], {'to': 3}) TO 'x/'", "FROM t SELECT (1), [2], {'to': 3}", "x/"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_copy_text c = parsed(cases[i].sql);
    assert_string_equal(c.select, cases[i].select);
    assert_string_equal(c.target, cases[i].target);
    br_copy_text_free(&c);
  }
}

static void not_ours(void **state) {
  (void)state;
  static const char *const cases[] = {"COPY t FROM 'x.csv'",
                                      "COPY t (a, b) FROM 'x.csv' (HEADER)",
                                      "COPY FROM DATABASE a TO b",
                                      "COPY t TO ('a' || 'b')",
                                      "COPY t TO 'x' CSV HEADER",
                                      "COPY t TO x",
                                      "COPY",
                                      "SELECT 1",
                                      "COPY (SELECT 1",
                                      "EXPORT DATABASE 'x'",
                                      "COPY t TO 'x' (FORMAT csv"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_copy_text c;
    br_error err;
    bool is = true;
    assert_int_equal(br_copy_parse(cases[i], &is, &c, &err), BR_OK);
    assert_false(is);
    assert_null(c.select);
  }
}

static void options_of_a_file(void **state) {
  (void)state;
  br_copy_text c = parsed("COPY t TO 'x.parquet'");
  assert_false(c.directory);
  assert_string_equal(c.format, "parquet");
  assert_string_equal(c.options, ""); /* DuckDB looks at the name too */
  assert_int_equal(c.mode, BR_SINK_REPLACE);
  br_copy_text_free(&c);
  c = parsed(
      "COPY t TO 'x' WITH (FORMAT 'Csv', HEADER false, DELIMITER ',', QUOTE '\"', RETURN_STATS, USE_TMP_FILE true, "
      "PER_THREAD_OUTPUT false)");
  assert_false(c.directory);
  assert_string_equal(c.options, "FORMAT \"csv\", \"HEADER\" false, \"DELIMITER\" ',', \"QUOTE\" '\"'");
  assert_false(c.header);
  br_copy_text_free(&c);
}

static void options_of_a_directory(void **state) {
  (void)state;
  br_copy_text c = parsed("COPY t TO 'x' (FORMAT parquet, PARTITION_BY (a, \"b,c\"), COMPRESSION zstd, OVERWRITE)");
  assert_true(c.directory && c.partitioned && !c.split);
  assert_int_equal(c.mode, BR_SINK_OVERWRITE);
  assert_string_equal(c.options, "\"PARTITION_BY\" (a, \"b,c\"), \"COMPRESSION\" zstd");
  assert_string_equal(c.extension, ".parquet");
  br_copy_text_free(&c);
  c = parsed(
      "COPY t TO 'x.csv' (FILE_SIZE_BYTES '10MB', COMPRESSION 'gzip', APPEND, QUOTE '!', ESCAPE '\\', WRITE_EMPTY_FILE "
      "0)");
  assert_true(c.directory && c.split && !c.partitioned && !c.write_empty);
  assert_int_equal(c.mode, BR_SINK_APPEND);
  assert_string_equal(c.format, "csv");
  assert_string_equal(c.extension, ".csv.gz");
  assert_int_equal(c.quote, '!');
  assert_int_equal(c.escape, '\\');
  br_copy_text_free(&c);
  c = parsed("COPY t TO 'x/' (FORMAT json, FILE_EXTENSION 'ndjson')");
  assert_true(c.directory);
  assert_int_equal(c.mode, BR_SINK_NEW);
  assert_string_equal(c.extension, ".ndjson");
  br_copy_text_free(&c);
}

static void refused(void **state) {
  (void)state;
  static const struct {
    const char *sql, *says;
    br_code code;
  } cases[] = {{"COPY t TO 'x/' (FORMAT xlsx)", "xlsx", BR_UNSUPPORTED},
               {"COPY t TO 'x/' (FILENAME_PATTERN 'a')", "FILENAME_PATTERN", BR_UNSUPPORTED},
               {"COPY t TO 'x/' (OVERWRITE, APPEND)", "exclude", BR_INVALID},
               {"COPY t TO 'x/' (FILE_EXTENSION '/etc')", "FILE_EXTENSION", BR_INVALID}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    br_copy_text c;
    br_error err;
    bool is;
    assert_int_equal(br_copy_parse(cases[i].sql, &is, &c, &err), cases[i].code);
    assert_non_null(strstr(err.message, cases[i].says));
  }
}

/* ---- names */

static void names_of_files(void **state) {
  (void)state;
  br_sink_list l = {0};
  br_error err;
  br_sink_names names = {.id = "ab", .extension = ".csv", .tasks = 1000001, .counted = false, .keep_empty = true};
  br_sink_list_add(&l, "qab.s1.t7.a2/f-0.brant", 3, 1);
  br_sink_list_add(&l, "qab.s1.t1000000.a1/pass-2/k=1/f-12.brant", 0, 1);
  br_sink_list_add(&l, "qab.s1.t8.a1/pass-2/k=1/f-12.brant", -1, 1);
  assert_int_equal(br_sink_list_place(&l, &names, &err), BR_OK);
  assert_int_equal(l.n, 2); /* the one without rows is left out */
  assert_string_equal(l.files[0].path, "k=1/part-0000008-ab-200012.csv");
  assert_string_equal(l.files[1].path, "part-0000007-ab.csv");
  br_sink_list_free(&l);
  br_sink_list_add(&l, "local/f-0.brant", 0, 1);
  br_sink_list_add(&l, "qab.s1.t7.a2/f-0.brant", 0, 1);
  names.tasks = 8;
  assert_int_equal(br_sink_list_place(&l, &names, &err), BR_OK);
  assert_int_equal(l.n, 1); /* one stays for its columns */
  assert_string_equal(l.files[0].path, "part-00000-ab.csv");
  br_sink_list_free(&l);
  static const char *const strange[] = {"f-0.brant", "x/f-0.brant", "qab.s1.t7.a2", "qab.s1.t7.a2/x",
                                        "qab.s1.t7.a2/f-.brant"};
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
    br_sink_list_add(&l, strange[i], 1, 1);
    assert_int_equal(br_sink_list_place(&l, &names, &err), BR_INTERNAL);
    br_sink_list_free(&l);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sources),           cmocka_unit_test(not_ours),
      cmocka_unit_test(options_of_a_file), cmocka_unit_test(options_of_a_directory),
      cmocka_unit_test(refused),           cmocka_unit_test(names_of_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
