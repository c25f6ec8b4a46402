# SPDX-License-Identifier: Apache-2.0
"""Calls of users' functions as steps of stages, from SQL: what the plan makes of them, and how rows, errors and cancels go through the
executors' queues. The functions themselves are tested in test_udf.py."""
import sys
import threading
import time

import brant
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

N = 200_000


@brant.func.batch(return_dtype="BIGINT")
def twice(x: "pyarrow.Array"):
    import pyarrow.compute as pc
    return pc.multiply(x, 2)


@brant.func.batch(return_dtype="VARCHAR")
def mix(a: "pyarrow.Array", b: "pyarrow.Array"):
    import pyarrow.compute as pc
    return pc.binary_join_element_wise(pc.cast(a, "string"), pc.cast(b, "string"), "-")


@brant.func
def words(s: str) -> list[str]:
    return s.split(" ")


@brant.func.batch(return_dtype="BIGINT", batch_size=5)
def fives(x: list):
    return [len(x)] * len(x)


@brant.func.batch(return_dtype="BIGINT", batch_size=7)
def sevens(x: list):
    return [len(x)] * len(x)


@brant.func.batch(return_dtype="BIGINT", batch_size=3000)
def thousands(x: list):
    return [len(x)] * len(x)


@brant.func
def slow(x: int) -> int:
    import time
    time.sleep(0.01)
    return x


@brant.func
def fails(x: int) -> int:
    if x == 77_777:
        raise ValueError("not this one")
    return x


@brant.func.batch(return_dtype="VARCHAR")
def same(x: "pyarrow.Array"):
    return x


@brant.func(deterministic=False)
def no_arguments() -> int:
    return 7


FORMATS = {"twice": ["arrow"], "mix": ["arrow", "arrow"], "fives": ["list"], "sevens": ["list"], "thousands": ["list"], "same": ["arrow"]}
FUNCTIONS = {f.__name__: f for f in (twice, mix, words, fives, sevens, thousands, slow, fails, same, no_arguments)}


def named(session, text):
    """$twice(x): the name that the function has in the session."""
    for name, function in FUNCTIONS.items():
        if f"${name}(" in text:
            f = function._function(None, FORMATS.get(name, []))
            f.register(session)
            text = text.replace(f"${name}(", f.name + "(")
    return text


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "t.parquet"
    i = pa.array(range(N), pa.int64())
    table = pa.table({"i": i, "g": pc.cast(pc.divide(i, 3), "int64"), "s": pa.array([f"w{k} x{k % 5}" for k in range(N)])})
    pq.write_table(table, path, row_group_size=50_000)
    return str(path)


@pytest.fixture(scope="module")
def one(data):
    with brant.Session(workers=2, threads=1, memory=512 << 20) as s:
        yield lambda text: s.execute(named(s, text.replace("@t", f"'{data}'")))


def reference(text, data):
    c = duckdb.connect()
    c.execute("create macro f_twice(x) as (x * 2)::bigint; create macro f_mix(a, b) as a::varchar || '-' || b::varchar;"
              "create macro f_words(s) as string_split(s, ' ')")
    return c.execute(text.replace("$", "f_").replace("@t", f"'{data}'")).to_arrow_table()


def rows(table):
    return sorted(map(str, map(tuple, (r.values() for r in table.to_pylist()))))


@pytest.mark.parametrize("text", [
    "select i, $twice(i) from @t where i < 1000",
    "select sum($twice(i)), count(*) from @t",
    "select i from @t where $twice(i) % 1000 = 0",
    "select g % 10, sum($twice(i)) from @t group by all",
    "select $twice(g % 10), count(*) from @t group by all",
    "select $twice($twice(i)) from @t where i % 1000 = 0",
    "select $mix(i, s) from @t where i % 500 = 1",
    "select i, unnest($words(s)) from @t where i < 300",
    "select case when i % 2 = 0 then $twice(i) else -1 end from @t where i < 3000",
    "select a.i, b.g from @t a join @t b on $twice(a.i) = b.i where b.i < 500",
    "select a.i, b.i from @t a left join @t b on $twice(a.i) = b.i where a.i % 5000 = 0",
    "select i, row_number() over (partition by $twice(g % 7) order by i) from @t where i < 2000",
    "select max($twice(n)) from (select count(*) n from @t group by i % 7)",
    "select count(*), sum(d) from (select $twice(i) d from @t union all select $twice(g) from @t)",
    "select $twice(3)",
    "select $twice(x) from (values (1), (2), (null)) v(x)",
    "select distinct $twice(i % 3) from @t",
    "select $twice(i) from @t where false",
    "select i from @t where i in (select $twice(g) from @t where g < 50)",
    "with c as materialized (select i, $twice(i) d from @t where i < 100) select a.i, b.d from c a join c b on a.i = b.d",
])
def test_same_rows_as_sql(one, data, text):
    assert rows(one(text).arrow()) == rows(reference(text, data))


def test_order_is_kept(one):
    d = one("select $twice(i) as d from @t order by i").arrow()["d"]
    assert d.to_pylist() == [2 * k for k in range(N)]
    top = one("select i from @t order by $twice(-i) limit 3").arrow()["i"].to_pylist()
    assert top == [N - 1, N - 2, N - 3]


def test_batch_sizes(one):
    t = one("select i, $fives(i) as a, $sevens(i) as b from @t where i < 23 order by i").arrow()
    # a unit is the largest batch that a function of the step wants; the other takes it in its own sizes
    assert t["b"].to_pylist() == [7] * 21 + [2] * 2
    assert t["a"].to_pylist() == ([5] * 5 + [2] * 2) * 3 + [2] * 2
    sizes = one("select $thousands(i) as n from @t").arrow()["n"].to_pylist()
    tails = {n for n in sizes if n != 3000}
    assert sizes.count(3000) >= N - 3000 * 16 and len(tails) <= 16, "one smaller batch a task at most"


def test_without_arguments(one):
    t = one("select i, $no_arguments() as n from @t where i < 5").arrow()
    assert t["n"].to_pylist() == [7] * 5


def test_explain(data):
    with brant.Session(workers=2, threads=1, memory=512 << 20) as s:
        text = s.explain(named(s, f"select $twice(i + 1), s from '{data}'"))
        assert "in processes, over" in text and "twice()" in text and "twice_" not in text
        assert ", indeterminate" not in text
        text = s.explain(named(s, f"select sum($twice(i)) from '{data}'"), analyze=True)
        assert f"() over {N} rows" in text and "in queues" in text
        assert ", indeterminate" in s.explain(named(s, f"select $no_arguments() from '{data}'"))


def test_limit_wants_no_more(one):
    one("select $slow(i) from @t where i < 4").arrow()  # processes are there
    start = time.monotonic()
    assert one("select x from (select $slow(i) x from @t) limit 3").arrow().num_rows == 3  # of 2,000 seconds of work
    assert time.monotonic() - start < 60


def test_cancel_ends_at_once(one):
    result = one("select sum($slow(i)) from @t")
    timer = threading.Timer(1, result.cancel)
    timer.start()
    with pytest.raises(brant.Error) as e:
        result.arrow()
    assert e.value.code == "CANCELLED"
    assert one("select sum($twice(i)) s from @t").arrow()["s"].to_pylist()[0] == N * (N - 1)


def test_error_ends_all(one):
    with pytest.raises(brant.Error) as e:
        one("select sum($twice($fails(i))) from @t").arrow()
    assert "ValueError: not this one" in str(e.value) and "rows" in str(e.value) and e.value.blame == "USER"
    with pytest.raises(brant.Error) as e:
        one("select sum($twice(i // (i - 5000))) from @t where error('of sql') is null").arrow()
    assert "of sql" in str(e.value)


@pytest.mark.parametrize("text,why", [
    ("with recursive r(n) as (select 1::bigint union all select $twice(n) from r where n < 9) from r", "can't be cut into stages"),
    ("select list_transform([1, 2], lambda x: $twice(x))", "inside a lambda"),
    ("select a.i from @t a left join @t b on $mix(a.i, b.i) = '3-3'", "over both sides of a join"),
])
def test_where_it_cannot_be(one, text, why):
    with pytest.raises(brant.Error) as e:
        one(text).arrow()
    assert why in str(e.value)


def test_tables_are_filled(one):
    one("create table filled as select $twice(i) as n from range(5000) t(i)").arrow()
    one("insert into filled select $twice(i * 2) from range(5) t(i)").arrow()
    assert one("select count(*)::bigint as n, sum(n)::bigint as s from filled").arrow().to_pylist() == [{"n": 5005, "s": 4999 * 5000 + 2 * 20}]
    one("drop table filled").arrow()


def test_never_here(data):
    with brant.Session(distribute="never") as s:
        with pytest.raises(brant.Error) as e:
            s.execute(named(s, f"select $twice(i) from '{data}'")).arrow()
        assert "runs in workers only" in str(e.value)


def test_registered_anew_and_dropped():
    with brant.Session(workers=1, threads=1, memory=512 << 20) as s:
        body, text = twice._function(None, ["arrow"]), same._function(None, ["arrow"])
        native = s._native
        native.register_function("again", "BIGINT", body.payload, options_json=body.json, interpreter=sys.executable)
        with pytest.raises(brant.Error, match="already"):
            native.register_function("lower", "BIGINT", body.payload, options_json=body.json, interpreter=sys.executable)
        with pytest.raises(brant.Error, match="NO_SUCH_TYPE"):
            native.register_function("other", "NO_SUCH_TYPE", body.payload, options_json=body.json, interpreter=sys.executable)
        assert s.execute("select again(21::bigint) as x").arrow()["x"].to_pylist() == [42]
        native.register_function("AGAIN", "VARCHAR", text.payload, options_json=text.json, interpreter=sys.executable)
        assert s.execute("select again('a') as x").arrow()["x"].to_pylist() == ["a"]
        native.drop_function("again")
        with pytest.raises(brant.Error):
            s.execute("select again(1)").arrow()
        with pytest.raises(brant.Error, match="no function"):
            native.drop_function("again")


def test_ten_times_the_memory():
    """Rows stream: 2.6 GB go through a function both ways in a worker of 256 MiB."""
    limit, n = 256 << 20, 6_500_000
    with brant.Session(workers=1, threads=1, memory=limit) as s:
        result = s.execute(named(s, f"select sum(length($same(repeat('x', 400) || i))) as n from range({n}) r(i)"))
        assert result.arrow()["n"].to_pylist()[0] == 400 * n + sum(len(str(k)) for k in range(n))
        assert result.stats()["peak_memory_bytes"] < limit


def test_a_small_file_feeds_all_workers(tmp_path):
    """One row group of a few rows: a function that is slow has it from several tasks, on all workers."""
    path = tmp_path / "small.parquet"
    pq.write_table(pa.table({"i": pa.array(range(30), pa.int64())}), path)

    @brant.func
    def where(i: int) -> str:
        import os
        import time
        time.sleep(0.05)
        return f"{os.getppid()} {i}"  # of a worker

    with brant.Session(workers=3, threads=1, memory=512 << 20) as s:
        made = where._function(None, [])
        made.register(s)
        result = s.execute(f"select {made.name}(i) as w from '{path}'")
        got = [w.split() for w in result.arrow()["w"].to_pylist()]
        assert sorted(int(i) for _, i in got) == list(range(30))
        assert len({worker for worker, _ in got}) == 3
    with duckdb.connect() as c:  # the same rows, whatever the number of rows and parts
        for rows, parts in ((1, 4), (5, 4), (7, 3), (1000, 2)):
            pq.write_table(pa.table({"i": pa.array(range(rows), pa.int64())}), path, row_group_size=max(1, rows // 2))
            with brant.Session(workers=parts, threads=1, memory=512 << 20) as s:
                got = s.execute(named(s, f"select $twice(i) as d from '{path}' order by i")).arrow()["d"].to_pylist()
                assert got == [r[0] for r in c.execute(f"select i * 2 from '{path}' order by i").fetchall()]
