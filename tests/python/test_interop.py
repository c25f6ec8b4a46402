# SPDX-License-Identifier: Apache-2.0
"""Results in other libraries, through the Arrow C stream: pandas, polars, pyarrow, DuckDB, numpy (torch: tests/python_apps); their types; memory; threads.
A result is made once by brant and once by DuckDB itself, and what the library has of both is compared."""
import datetime
import decimal
import gc
import resource
import threading

import brant
import duckdb
import numpy
import pandas
import polars
import pyarrow as pa
import pytest

TYPES = {
    "bool": "i % 2 = 0",
    "tinyint": "i::tinyint",
    "smallint": "(i * -100)::smallint",
    "integer": "i::integer",
    "bigint": "i * 10000000000",
    "utinyint": "i::utinyint",
    "ubigint": "18446744073709551615::ubigint - i::ubigint",
    "float": "i::float / 4",
    "double": "case i when 1 then 'nan' when 2 then 'inf' when 3 then '-inf' else i / 8 end::double",
    "decimal4": "(i * 1.5)::decimal(4, 1)",
    "decimal18": "(i * 123456789.123)::decimal(18, 3)",
    "decimal38": "(i * -12345678901234567890.5)::decimal(38, 10)",
    "hugeint": "i::hugeint * 1000000000000000000000000 - 7",
    "varchar": "repeat('é', i::int) || '\\0x'",
    "blob": "('\\x00\\xff' || i::varchar)::blob",
    "date": "date '1969-12-30' + i::int",
    "time": "time '23:59:59.999999' - to_seconds(i)",
    "timestamp": "timestamp '1900-01-01 00:00:00.000001' + to_days(i::int)",
    "timestamp_s": "(timestamp '2020-01-01' + to_days(i::int))::timestamp_s",
    "timestamp_ms": "(timestamp '2020-01-01 00:00:00.5' + to_days(i::int))::timestamp_ms",
    "timestamp_ns": "(timestamp '2020-01-01 00:00:00.25' + to_days(i::int))::timestamp_ns",
    "timestamptz": "timestamptz '2020-03-29 00:30:00+00' + to_hours(i)",
    "interval": "to_months(i::int) + to_days(3) + to_seconds(i)",
    "enum": "(case i % 2 when 0 then 'even' else 'odd' end)::enum('odd', 'even', 'never')",
    "list": "case when i = 4 then [] else [i, null, i + 1] end",
    "list_of_lists": "[[i], [], null]",
    "array": "[i, i * 2, null]::bigint[3]",
    "struct": "{'a': i, 'b': {'c': 'x' || i, 'd': null::date}}",
    "map": "map([i, i + 100], ['x', null])",
    "list_of_structs": "[{'k': i, 'v': [i::decimal(5, 2)]}]",
}


@pytest.fixture(scope="module", params=["workers", "caller"])
def engine(request):
    """With everything through stages and workers, and in this process."""
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always" if request.param == "workers" else "never") as s:
        yield s


def _query(expression, nulls):
    value = f"case when i = 2 then null else {expression} end" if nulls else expression
    return f"select i, {value} as v from range(6) t(i) order by i"


def _duckdb(sql):
    """DuckDB's own answer; its HUGEINT and wide sums are FLOAT64 there, so it's asked for decimals."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection.execute(sql).to_arrow_table()


def _same(a, b):
    """Equal, with NaN equal to itself."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


# ---- types, by pyarrow


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("name", TYPES)
def test_types(engine, name, nulls):
    if name == "array" and nulls:
        pytest.skip("DuckDB has no CASE over arrays")
    sql = _query(TYPES[name], nulls)
    engine.set("TimeZone", "UTC")
    got = engine.execute(sql).arrow()
    got.validate(full=True)
    want = _duckdb(sql.replace("::hugeint * 1000000000000000000000000 - 7", "::decimal(38, 0) * 1000000000000000000000000 - 7"))
    assert _same(got["v"].to_pylist(), want["v"].to_pylist())
    assert got["v"].null_count == want["v"].null_count
    if name != "enum":  # which integers index it is nobody's business
        got_type, want_type = got.schema.field("v").type, want.schema.field("v").type
        assert got_type.equals(want_type), (got_type, want_type)


def test_columns_of_nulls_only(engine):
    sql = "select null as n, null::int as i, null::varchar[] as l, {'a': null::blob} as s from range(3)"
    t = engine.execute(sql).arrow()
    t.validate(full=True)
    assert t.to_pylist() == [{"n": None, "i": None, "l": None, "s": {"a": None}}] * 3


def test_empty_results_have_their_types(engine):
    sql = "select i, i::varchar as s, [i] as l, {'a': 1.5} as st, null as n from range(10) t(i) where i > 100"
    want = _duckdb(sql).schema
    t = engine.execute(sql).arrow()
    assert t.num_rows == 0 and t.schema.names == want.names
    assert [f.type for f in t.schema][:4] == [f.type for f in want][:4]
    assert engine.execute(sql).arrow().to_pandas().shape == (0, 5)
    assert polars.from_arrow(engine.execute(sql).arrow()).shape == (0, 5)


def test_statements_without_rows(engine):
    t = engine.execute("create or replace temp view only_a_view as select 1").arrow()
    assert t.num_rows == 0


def test_columns_with_the_same_or_odd_names(engine):
    t = engine.execute('select 1 as a, 2 as a, 3 as "ü """, 4 as "x.y", 5 as " "').arrow()
    assert [c[0].as_py() for c in t.columns] == [1, 2, 3, 4, 5]
    assert t.schema.names == ["a", "a", 'ü "', "x.y", " "]


# ---- other libraries

MIXED = """select i, i % 2 = 0 as b, (i % 100 * 0.5)::decimal(4, 1) as m4, i * 0.5 as x, 'name ' || i as s,
    date '2020-02-28' + i::int as d, (i * 1.25)::decimal(12, 2) as m,
           case when i % 3 = 0 then null else i end as maybe, timestamptz '2020-01-01 12:00:00+00' + to_hours(i) as at, [i, i] as l
           from range(10000) t(i) order by i"""


@pytest.fixture(scope="module")
def mixed():
    return _duckdb(MIXED)


def test_pandas(engine, mixed):
    engine.set("TimeZone", "UTC")
    got = engine.execute(MIXED).arrow().to_pandas()
    pandas.testing.assert_frame_equal(got, mixed.to_pandas())
    assert got["b"].dtype == bool and got["b"][:2].tolist() == [True, False]
    assert got["m"][3] == decimal.Decimal("3.75") and str(got["at"].dtype).endswith("UTC]")
    assert got["maybe"].isna().sum() == 3334


def test_pandas_takes_the_stream_itself(engine):
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("this pandas has no from_arrow")
    got = pandas.DataFrame.from_arrow(engine.execute("select i, 'a' || i as s from range(5) t(i) order by i"))
    assert got["s"].tolist() == ["a0", "a1", "a2", "a3", "a4"]


def test_polars_takes_the_stream_itself(engine, mixed):
    engine.set("TimeZone", "UTC")
    got = polars.DataFrame(engine.execute(MIXED))
    assert got.equals(polars.from_arrow(mixed)) and got.schema["m"] == polars.Decimal(12, 2)
    assert got.schema["b"] == polars.Boolean and got.schema["m4"] == polars.Decimal(4, 1)
    assert got["at"].dtype == polars.Datetime("us", "UTC") and got["maybe"].null_count() == 3334


def test_pyarrow_takes_the_stream_itself(engine, mixed):
    engine.set("TimeZone", "UTC")
    assert pa.table(engine.execute(MIXED)).equals(mixed)
    reader = pa.RecordBatchReader.from_stream(engine.execute(MIXED))
    assert reader.schema.equals(mixed.schema) and reader.read_all().equals(mixed)


def test_pyarrow_asks_for_another_schema(engine):
    """The engine may give its own schema: then whoever asked has to convert."""
    wanted = pa.schema([("i", pa.int64())])
    t = pa.RecordBatchReader.from_stream(engine.execute("select i from range(3) t(i) order by i"), schema=wanted).read_all()
    assert t["i"].to_pylist() == [0, 1, 2]


def test_duckdb_reads_the_stream(engine):
    result = engine.execute("select i, i % 7 as k from range(100000) t(i)").reader()
    assert duckdb.connect().execute("select k, count(*), sum(i) from result group by k order by k").fetchall() == \
        duckdb.execute("select i % 7 as k, count(*), sum(i) from range(100000) t(i) group by k order by k").fetchall()


def test_numpy(engine):
    t = engine.execute("select i, i / 4 as x from range(5000) t(i) order by i").arrow()
    batch = t.combine_chunks().to_batches()[0]
    i = batch.column(0).to_numpy(zero_copy_only=True)
    assert i.dtype == numpy.int64 and numpy.array_equal(i, numpy.arange(5000))
    assert numpy.array_equal(batch.column(1).to_numpy(), numpy.arange(5000) / 4)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "pydict"])
def test_there_and_back(session, library):
    """Data of a library becomes a frame, and comes back the same."""
    table = pa.table({"i": pa.array([1, 2, None], pa.int32()), "s": ["a", None, "ü"], "d": [datetime.date(2020, 1, 1)] * 3,
                      "x": [0.5, float("inf"), -1.0], "l": [[1], [], None], "m": pa.array([decimal.Decimal("1.50")] * 3, pa.decimal128(9, 2))})
    if library == "pandas":
        back = brant.from_pandas(table.to_pandas(types_mapper=pandas.ArrowDtype), session=session).to_arrow()
    elif library == "polars":
        back = polars.DataFrame(brant.from_arrow(polars.from_arrow(table), session=session)).to_arrow()
    elif library == "pydict":
        back = brant.from_pydict(table.to_pydict(), session=session).to_arrow()
    else:
        back = brant.from_arrow(table, session=session).to_arrow()
    assert back.to_pydict() == table.to_pydict()


# ---- memory, threads, half-read results

TEN_MEGABYTES = "select i, i * 2 as j, 'a text of some length ' || i as s from range(220000) t(i)"


def test_memory_of_results_is_given_back(session):
    """50 results of 10 MB, each dropped: this process does not keep them."""
    def read():
        t = session.execute(TEN_MEGABYTES).arrow()
        assert t.num_rows == 220000 and t.nbytes > 9_000_000
    for _ in range(5):
        read()
    gc.collect()
    before = _resident()
    for _ in range(50):
        read()
    gc.collect()
    assert _resident() - before < 100 << 20, f"{(_resident() - before) >> 20} MB more after 500 MB of results"


def _resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def test_results_are_not_copied(session):
    """What pyarrow has of a result is the engine's memory: its own pool gets nothing."""
    before = pa.total_allocated_bytes()
    t = session.execute(TEN_MEGABYTES).arrow()
    assert t.nbytes > 9 << 20 and pa.total_allocated_bytes() - before < 1 << 20
    polars_too = polars.DataFrame(session.execute(TEN_MEGABYTES).reader().read_all())
    assert polars_too.height == 220000 and pa.total_allocated_bytes() - before < 1 << 20


def test_batches_outlive_their_query_and_session():
    with brant.Session(workers=1, threads=1, memory=1 << 30, distribute="always") as s:
        batches = list(s.execute("select i, 'x' || i as s from range(50000) t(i) order by i").batches())
    gc.collect()
    t = pa.Table.from_batches(batches)
    t.validate(full=True)
    assert t["i"].to_pylist() == list(range(50000)) and t["s"][49999].as_py() == "x49999"


def test_the_stream_is_read_in_another_thread(session):
    got = []
    reader = session.execute("select i from range(300000) t(i)").reader()
    t = threading.Thread(target=lambda: got.append(sum(b.num_rows for b in reader)))
    t.start()
    t.join(60)
    assert got == [300000]


@pytest.mark.parametrize("batches", [0, 1])
def test_half_read_then_dropped(session, batches):
    """The rest is not waited for, nothing is left, and the session works on."""
    for _ in range(5):
        it = session.execute("select i from range(3000000) t(i)").batches()
        for _ in range(batches):
            assert next(it).num_rows > 0
        del it
    gc.collect()
    assert session.execute("select 7 as a").arrow().to_pydict() == {"a": [7]}


def test_a_result_is_read_once(session):
    r = session.execute("select 1 as a")
    assert r.arrow().to_pydict() == {"a": [1]}
    with pytest.raises(brant.Error):
        r.arrow()


def test_an_error_on_the_way_reaches_other_libraries(session):
    """They know only the text of the error; it must be there."""
    sql = "select cast('x' || i as int) as v from range(10) t(i)"
    for read in (polars.DataFrame, pa.table):
        with pytest.raises(Exception, match="(?i)convert"):
            read(session.execute(sql))
    with pytest.raises(brant.errors.ExecutionError, match="(?i)convert"):
        session.execute(sql).arrow()


# ---- the few rows of a show(), read without pyarrow

SIMPLE = {"bool", "tinyint", "smallint", "integer", "bigint", "utinyint", "ubigint", "float", "double", "decimal4", "decimal18", "decimal38",
          "hugeint", "varchar", "date", "timestamp", "timestamptz"}


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("name", TYPES)
def test_small_results_are_the_same_without_pyarrow(session, name, nulls):
    if name == "array" and nulls:
        pytest.skip("DuckDB has no CASE over arrays")
    from brant import rows
    sql = _query(TYPES[name], nulls)
    session.set("TimeZone", "Europe/Berlin")
    try:
        got, want = rows.read(session.execute(sql)), session.execute(sql).arrow()
    finally:
        session.set("TimeZone", "UTC")
    assert isinstance(got, rows.Rows) == (name in SIMPLE)
    assert (got.num_rows, got.num_columns, list(got.column_names)) == (6, 2, ["i", "v"])
    assert _same(got.columns[1].to_pylist(), want["v"].to_pylist())
    assert _same(got.slice(2, 3).columns[0].to_pylist(), [2, 3, 4])


def test_small_results_beyond_pythons_dates_and_errors(session):
    from brant import rows
    got = rows.read(session.execute("select 'infinity'::date as a, '-infinity'::timestamp as b, null as c, 'ü' as d"))
    assert [c.to_pylist() for c in got.columns] == [["(after year 9999)"], ["(before year 1)"], [None], ["ü"]]
    assert got.types == ["DATE", "TIMESTAMP", '"NULL"', "VARCHAR"] or got.types[2] == "INTEGER"
    assert rows.read(session.execute("select 1 as a where false")).num_rows == 0
    with pytest.raises(brant.errors.ExecutionError, match="(?i)convert"):
        rows.read(session.execute("select cast('x' || i as int) as v from range(10) t(i)"))


def test_a_show_imports_no_pyarrow(tmp_path):
    """From a cold process to a table of a small file: what takes time is not loaded."""
    import os
    import subprocess
    import sys
    path = str(tmp_path / "small.parquet")
    duckdb.sql(f"copy (select i, 'x' || i as s, i / 2 as h, date '2020-01-01' + i::int as d from range(100) t(i)) to '{path}'")
    tree = os.path.dirname(os.path.dirname(os.path.abspath(brant.__file__)))
    code = (f"import sys; sys.path.insert(0, {tree!r}); import brant; assert not [m for m in sys.modules if m.startswith('brant.')]; "
            f"brant.read_parquet({path!r}).show(); assert 'pyarrow' not in sys.modules and 'pandas' not in sys.modules")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and "2020-01-02" in out.stdout, out.stdout + out.stderr
