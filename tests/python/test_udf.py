# SPDX-License-Identifier: Apache-2.0
"""Users' functions in queries, on two real workers."""
import asyncio
import os
import time
import typing

import brant
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from brant import col


@pytest.fixture(scope="module")
def s():
    with brant.Session(workers=2, threads=1, memory=1 << 30, distribute="always") as s:
        yield s


def run(s, sql, *functions):
    """Rows of a query, with {0}, {1} … standing for functions."""
    made = []
    for f in functions:
        e = f._function(None, f._arguments)
        e.register(s)
        made.append(e.name)
    for i, name in enumerate(made):
        sql = sql.replace(f"{{{i}}}", name)
    return s.execute(sql).arrow()


@brant.func
def plus_one(x: int) -> int:
    return None if x is None else x + 1


@brant.func.batch(return_dtype=int)
def same(x: pa.Array):
    return x


def test_a_function_of_rows(s):
    t = run(s, "select i, {0}(i) as j from range(1000) t(i) order by i", plus_one)
    assert t.column("j").to_pylist() == list(range(1, 1001))


def test_a_million_rows_through_batches(s, tmp_path):
    """What a row costs: bench/udf_bench.py. Here, that it shares a call with thousands of others."""
    calls = str(tmp_path / "calls")

    @brant.func.batch(return_dtype=int, batch_size=8192)
    def noted(x: pa.Array):
        with open(calls, "a") as f:
            f.write(f"{len(x)}\n")
        return x

    t = run(s, "select count(*) n, sum({0}(i))::bigint s, min({1}(i)) l from range(1000000) t(i)", same, noted)
    assert t.to_pylist() == [{"n": 1000000, "s": 499999500000, "l": 0}]
    assert sorted(int(n) for n in open(calls)) == [1000000 % 8192] + [8192] * (1000000 // 8192)


def test_kinds_together(s):
    @brant.func
    def words(text: str) -> typing.Iterator[str]:
        yield from text.split()

    @brant.func
    async def slowly(x: int) -> str:
        await asyncio.sleep(0.001)
        return f"a b {x}"

    @brant.func.batch(return_dtype=float)
    def half(x: np.ndarray):
        return x / 2

    @brant.func.batch(return_dtype="VARCHAR")
    def upper(x: pd.Series):
        return x.str.upper()

    t = run(s, "select i, unnest({0}({1}(i))) w, {2}(i) h, {3}('x' || i) u from range(100) t(i) order by i, w", words, slowly, half, upper)
    assert t.num_rows == 300
    assert t.slice(3, 3).to_pylist() == [{"i": 1, "w": w, "h": 0.5, "u": "X1"} for w in ("1", "a", "b")]


def test_functions_of_functions_filters_groups_and_joins(s):
    @brant.func
    def parity(x: int) -> str:
        return "odd" if x % 2 else "even"

    t = run(s, "select {1}(a.i) p, count(*)::bigint n, sum({0}({0}(b.i)))::bigint s from range(100) a(i) join range(100) b(i) on {0}(a.i) = b.i"
            " where {0}(b.i) > 50 group by 1 order by 1", plus_one, parity)
    want = {"even": [b for b in range(51, 100) if b % 2], "odd": [b for b in range(50, 100) if b % 2 == 0]}
    assert t.to_pylist() == [{"p": k, "n": len(v), "s": sum(v) + 2 * len(v)} for k, v in want.items()]


def test_types_through_a_query(s):
    """Of the same value at the top, in a struct and in lists (each type alone: test_udf_process.py)."""
    values = {"b": "true", "i": "1::tinyint", "u": "18446744073709551615::ubigint", "d": "1.25::decimal(10,2)", "s": "'ä'", "x": "'abc'::blob",
              "t": "timestamp '2026-01-02 03:04:05.000006'", "l": "[1, 2]", "m": "map {'k': true}",
              "v": "interval '3 days'", "g": "'0123456789abcdef0123456789abcdef'::uuid", "a": "[1.5, 2.5]::float[2]",
              "z": "timestamptz '2026-01-02 03:04:05+00'"}
    struct = "STRUCT(b BOOLEAN, i TINYINT, u UBIGINT, d DECIMAL(10,2), s VARCHAR, x BLOB, t TIMESTAMP, l INTEGER[], m MAP(VARCHAR, BOOLEAN), " \
             "v INTERVAL, g UUID, a FLOAT[2], z TIMESTAMPTZ)"
    row = brant.func(lambda x: x, return_dtype=struct)
    batch = brant.func.batch(lambda x: x, return_dtype=struct)
    huge = brant.func(lambda x: None if x is None else x * 10 + 1, return_dtype="HUGEINT")
    value = "{" + ", ".join(f"'{k}': {v}" for k, v in values.items()) + "}"
    got = run(s, "select {0}(v) is not distinct from v as a, {1}(v) is not distinct from v as b, {2}(h)::varchar as h from "
              f"(select {value} as v, case i when 1 then null else 123456789012345678901234::hugeint end h from range(2) t(i))",
              row, batch, huge).to_pylist()
    assert got == [{"a": True, "b": True, "h": "1234567890123456789012341"}, {"a": True, "b": True, "h": None}]


def test_dataframe_and_constants(s):
    @brant.func
    def pick(x: int, table: dict, *, otherwise: str) -> str:
        return table.get(x, otherwise)

    brant.session._default = s
    try:
        df = brant.from_pydict({"i": list(range(5))}).select(plus_one(col("i")).alias("n"))
        out = df.with_column("t", pick(col("n"), {1: "one"}, otherwise="more")).sort("n").to_pydict()
        assert out == {"n": [1, 2, 3, 4, 5], "t": ["one", "more", "more", "more", "more"]}
        assert df.where(plus_one(col("n")) > 4).count_rows() == 2

        @brant.func
        def letters(n: int) -> typing.Iterator[str]:
            yield from "abc"[:n]

        got = df.where(col("n") <= 2).select("n", letters(col("n")).alias("l")).sort(["n", "l"]).to_pydict()
        assert got == {"n": [1, 2, 2], "l": ["a", "a", "b"]}
    finally:
        brant.session._default = None


# ---- classes


def test_state_is_made_once_a_process(s, tmp_path):
    @brant.cls(concurrency=3)
    class Model:
        def __init__(self, folder):
            open(os.path.join(folder, f"{os.getpid()}-{time.monotonic_ns()}"), "w").close()
            self.scale = 10

        @brant.method(return_dtype=int, batch=True, batch_size=100)
        def apply(self, x: np.ndarray):
            return x * self.scale

    f = Model(str(tmp_path)).apply
    for _ in range(3):  # warm between queries
        t = run(s, "select sum({0}(i))::bigint s from range(20000) t(i)", f)
        assert t.to_pylist() == [{"s": 10 * sum(range(20000))}]
    loads = os.listdir(tmp_path)
    assert len(loads) == len({name.split("-")[0] for name in loads}) and 1 <= len(loads) <= 3, loads
    print(f"\nmodel loaded {len(loads)} times by 3 queries of 200 batches")


def test_methods_of_one_object_share_its_processes(s, tmp_path):
    folder = str(tmp_path)

    @brant.cls(concurrency=2)
    class Model:
        def __init__(self, name):
            open(os.path.join(folder, f"{name}-{os.getpid()}-{time.monotonic_ns()}"), "w").close()
            self.scale, self.calls = 3, 0

        @brant.method(return_dtype=int, batch=True, batch_size=50)
        def scaled(self, x: np.ndarray):
            self.calls += 1
            return x * self.scale

        @brant.method(return_dtype=bool, timeout=30)
        def seen(self, x):
            return self.calls > 0  # by the other method

        @brant.method(return_dtype=int, on_error="ignore")
        def bad(self, x):
            return 1 // (x % 2)

        @brant.method(return_dtype=int, timeout=0.3, max_retries=0)
        def hangs(self, x):
            time.sleep(100)

    m = Model("a")
    # in one step, in two steps (a method of the other's result), in a filter
    t = run(s, "select sum({0}(i))::bigint a, sum({0}({0}(i)))::bigint b, bool_and({1}({0}(i))) c, count({2}(i))::bigint d "
               "from range(4000) t(i) where {1}({0}(i))", m.scaled, m.seen, m.bad)
    total = sum(range(4000))
    assert t.to_pylist() == [{"a": 3 * total, "b": 9 * total, "c": True, "d": 2000}]
    with pytest.raises(brant.Error, match=r"Model.hangs.*longer than 0.3 s"):
        run(s, "select {0}(i) from range(10) t(i)", m.hangs)
    assert run(s, "select sum({0}(i))::bigint a from range(40) t(i)", m.scaled).to_pylist() == [{"a": 3 * sum(range(40))}]
    loads = [name.split("-")[1] for name in os.listdir(folder)]
    assert len(loads) == len(set(loads)) <= 4, loads  # two, and what replaced a hung one
    other = Model("b").scaled  # another object, other processes
    assert run(s, "select sum({0}(i))::bigint a from range(40) t(i)", other).to_pylist() == [{"a": 3 * sum(range(40))}]
    assert any(name.startswith("b-") and name.split("-")[1] not in loads for name in os.listdir(folder))


def test_three_processes_on_two_cores_of_one_worker(s):
    @brant.func(concurrency=3, batch_size=10)
    def slow(x: int) -> int:
        time.sleep(0.001)
        return x

    t = run(s, "select sum({0}(i))::bigint s from range(3000) t(i)", slow)
    assert t.to_pylist() == [{"s": sum(range(3000))}]


def test_processes_take_cores():
    """A worker of two threads runs as many processes as their cpus fit into these."""
    def pids(own, cpus):
        @brant.func(cpus=cpus, batch_size=50)
        def slow(x: int) -> int:
            time.sleep(0.002)
            return os.getpid()

        return run(own, "select count(distinct {0}(i))::bigint n from range(2000) t(i)", slow).to_pylist()[0]["n"]

    with brant.Session(workers=1, threads=2, memory=1 << 30, distribute="always") as own:
        assert [pids(own, 2), pids(own, 1)] == [1, 2]


def test_stateful_functions_and_partitions(s):
    @brant.cls
    class Count:
        def __init__(self):
            self.n = 0

        @brant.method(return_dtype=int)
        def next(self, x):
            self.n += 1
            return self.n

    t = run(s, "select count(*)::bigint n, max(c) <= 1000 as ok from into_partitions((select {0}(i) c from range(1000) t(i)), 5)", Count().next)
    assert t.to_pylist() == [{"n": 1000, "ok": True}]


# ---- memory and numbers


def test_ten_times_the_memory_streams_through(capsys):
    limit, kilobyte, rows = 160 << 20, 1024, 1_640_000

    @brant.func.batch(return_dtype="VARCHAR")
    def through(x: pa.Array):
        return x

    with brant.Session(workers=1, threads=1, memory=limit, distribute="always") as own:
        made = through._function(None, through._arguments)
        made.register(own)
        begin = time.monotonic()
        r = own.execute(f"select count(*)::bigint n, sum(length({made.name}(repeat(chr(97 + (i % 26)::int), {kilobyte}))))::bigint b"
                        f" from range({rows}) t(i)")
        assert r.arrow().to_pylist() == [{"n": rows, "b": rows * kilobyte}]
        seconds, peak = time.monotonic() - begin, r.stats()["peak_memory_bytes"]
    with capsys.disabled():
        print(f"\n{rows * kilobyte / 1e9:.2f} GB through a function in {seconds:.1f} s ({rows * kilobyte / seconds / 1e6:.0f} MB/s), limit "
              f"{limit >> 20} MiB, most memory of the worker with all its processes {peak >> 20} MiB")
    assert rows * kilobyte > 10 * limit
    assert peak < limit + (300 << 20)  # a Python with pyarrow and DuckDB's own code are about 200 MiB
