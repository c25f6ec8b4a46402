# SPDX-License-Identifier: Apache-2.0
"""Enums in results: the dictionary that DuckDB gives, on workers and in this process, wherever the enum lies in its type."""
import duckdb
import pyarrow as pa
import pytest

import brantlib

ODD = "ENUM('it''s', 'a)b', '', 'ENUM(', 'ü', 'x, y')"
FEW, MANY, MOST = ("ENUM(" + ", ".join(f"'v{i}'" for i in range(n)) + ")" for n in (255, 256, 70000))
COLUMNS = {
    "plain": f"(['it''s', 'a)b', '', 'ENUM(', 'ü', 'x, y'])[1 + i % 7]::{ODD}", "of_bytes": f"('v' || i % 255)::{FEW}",
    "of_shorts": f"('v' || i % 256)::{MANY}",
    "of_words": f"('v' || (i * 997) % 70000)::{MOST}", "none": f"NULL::{ODD}", "some": f"CASE WHEN i % 3 > 0 THEN 'ü' END::{ODD}",
    "list": f"CASE WHEN i % 5 > 0 THEN ['ü', NULL, 'a)b'][:i % 4] END::{ODD}[]", "array": f"CASE WHEN i % 5 > 0 THEN ['', 'ü'] END::{ODD}[2]",
    "struct": f"CASE WHEN i % 4 > 0 THEN {{'a': 'ü', 'b': {{'c': ['a)b']}}, 'i': i}} END::STRUCT(a {ODD}, b STRUCT(c {ODD}[]), i BIGINT)",
    "map": f"MAP {{'ü': ['x, y', NULL], '': NULL}}::MAP({ODD}, {ODD}[])", "list_of_structs": f"[{{'e': 'ü'}}, NULL]::STRUCT(e {ODD})[]",
    "beside": "i::VARCHAR",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    d = tmp_path_factory.mktemp("enums")
    for n in range(3):
        duckdb.sql(f"COPY (SELECT i FROM range({n * 3000}, {(n + 1) * 3000}) t(i)) TO '{d}/{n}.parquet'")
    return f"'{d}/*.parquet'"


@pytest.fixture(scope="module", params=["always", "never"])
def session(request):
    with brantlib.Session(workers=2 if request.param == "always" else 0, threads=1, distribute=request.param) as s:
        s.how = request.param
        yield s


def right(sql):
    return duckdb.sql(sql).fetch_arrow_table()


def same(got, want):
    assert [f.type for f in got.schema] == [f.type for f in want.schema]
    got.validate(full=True)
    assert got.to_pylist() == want.to_pylist()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column(session, files, name):
    sql = f"SELECT i, {COLUMNS[name]} AS x FROM {files} ORDER BY i"
    table, stats = session.run(sql)
    assert stats.distributed == (session.how == "always")
    same(table, right(sql))


def test_all_of_them(session, files):
    sql = f"SELECT i, {', '.join(f'{c} AS {n}' for n, c in COLUMNS.items() if n != 'of_words')} FROM {files} ORDER BY i LIMIT 1000 OFFSET 2500"
    same(session.run(sql)[0], right(sql))


def test_through_stages(session, files):
    """Grouped, joined, sorted in the order of the enum, and compared with another."""
    e = f"(['ü', 'a)b', 'x, y'])[1 + i % 3]::{ODD}"
    for sql in (f"SELECT {e} AS x, count(*) AS n FROM {files} GROUP BY x ORDER BY x", f"SELECT max(x) AS m, min(x) AS l FROM (SELECT {e} AS x FROM {files})",
                f"SELECT a.x, b.i FROM (SELECT i, {e} AS x FROM {files}) a JOIN (SELECT i, {e} AS x FROM {files}) b ON a.x = b.x AND a.i = b.i ORDER BY b.i",
                f"SELECT x, list(DISTINCT x) AS l FROM (SELECT {e} AS x FROM {files}) GROUP BY x ORDER BY x",
                f"SELECT * FROM (SELECT {e} AS x FROM {files}) WHERE x < 'ENUM(' ORDER BY x LIMIT 5"):
        same(session.run(sql)[0], right(sql))


def test_no_rows(session, files):
    for sql in (f"SELECT i, {COLUMNS['plain']} AS x, {COLUMNS['list']} AS l FROM {files} WHERE i < 0", f"SELECT NULL::{ODD} AS x"):
        same(session.run(sql)[0], right(sql))


def test_a_union_of_types(session, files):
    sql = f"SELECT i, CASE WHEN i % 2 = 0 THEN union_value(n := i) ELSE union_value(e := 'ü'::{ODD})::UNION(n BIGINT, e {ODD}) END AS x FROM {files} ORDER BY i"
    got, want = session.run(sql)[0], right(sql)
    assert got["x"].to_pylist() == want["x"].to_pylist()
    assert got.schema.field("x").type.field(1).type == want.schema.field("x").type.field(1).type == pa.dictionary(pa.uint8(), pa.string())


def test_given_back(session, files):
    """A result is a table again."""
    sql = f"SELECT i, {COLUMNS['plain']} AS x, {COLUMNS['list_of_structs']} AS l FROM {files}"
    session.register("back", session.run(sql)[0])
    try:
        same_rows = session.run("SELECT i, x, l FROM back ORDER BY i")[0].to_pylist()
        assert same_rows == right(sql + " ORDER BY i").to_pylist()
    finally:
        session.drop_table("back")


def test_named_types_and_statements():
    with brantlib.Session(workers=0, distribute="never") as s:
        s.run("CREATE TYPE size AS ENUM ('s', 'm', 'l')")
        s.run("CREATE TABLE t AS SELECT unnest(['m', NULL, 'l'])::size AS x")
        assert s.run("SELECT x FROM t")[0]["x"].combine_chunks().equals(pa.chunked_array([pa.DictionaryArray.from_arrays(
            pa.array([1, None, 2], pa.uint8()), ["s", "m", "l"])]).combine_chunks())
