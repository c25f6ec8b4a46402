# SPDX-License-Identifier: Apache-2.0
"""Partitions, batches and row ids of frames, through stages; and what bug reports against others say of them."""

import json
import os
import pathlib
import re
import signal

import brant
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from brant import col
from brant import functions as f

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def df(session):
    return brant.range(1000, session=session).with_columns(k=col("id") % 7, s=f.concat("s", col("id") % 14))


def test_rows_stay_the_same(df):
    want = df.sort("id").to_arrow()
    for q in (
        df.repartition(4, "k"),
        df.repartition(3),
        df.repartition(2, col("k") + 1, "s"),
        df.into_partitions(5),
        df.into_batches(100),
        df.where("id >= 0").into_batches(7).repartition(3),
    ):
        assert q.columns == ["id", "k", "s"]
        assert q.sort("id").to_arrow().equals(want), q.sql()


def test_row_ids_are_unique(df):
    ids = df.repartition(4).with_row_id("row")
    assert ids.columns == ["row", "id", "k", "s"]
    assert ids.agg(col("row").count_distinct()).item() == 1000
    with pytest.raises(brant.Error, match="already"):
        df.with_row_id("S")


def test_as_reported_against_others(session, df):
    assert df.into_batches(4).select("s").distinct().count_rows() == 14
    assert brant.range(100, session=session).into_partitions(7).limit(10).count_rows() == 10
    few = brant.from_pydict({"a": ["x", "y", "z"]}, session=session)
    assert few.repartition(4).select(col("a").str.upper()).sort("a").to_pydict() == {"a": ["X", "Y", "Z"]}
    assert df.limit(10).cross_join(few).count_rows() == 30


def test_a_limit_before_a_cross_join(session, tmp_path):
    """The limit is counted over all tasks, once."""
    brant.range(20000, session=session).into_partitions(5).write_parquet(tmp_path / "t")
    for frame in (brant.read_parquet(tmp_path / "t", session=session), brant.range(1000, session=session)):
        few = frame.sort("id").limit(100)
        assert few.cross_join(brant.range(50, session=session).select(b="id")).agg(n=f.count(), s=col("id").sum()).to_pylist() == [
            {"n": 5000, "s": 50 * 4950}]
        assert frame.limit(100).cross_join(brant.range(50, session=session).select(b="id")).count_rows() == 5000
    big = brant.range(1_000_000, session=session).into_partitions(9)
    assert big.limit(10).count_rows() == len(big.limit(10).to_pylist()) == 10


@pytest.mark.parametrize("mode", ["auto", "staged", "eager"])
def test_a_selective_filter_with_a_limit_reads_little(mode, tmp_path):
    """What lies behind the first matches of each task is damaged: who reads it, fails."""
    (tmp_path / "t").mkdir()
    for i in range(16):
        path = tmp_path / "t" / f"{i:02}.parquet"
        pq.write_table(pa.table({"i": range(i * 100000, (i + 1) * 100000), "h": [hash((i, k)) for k in range(100000)]}), path, row_group_size=25000,
                       compression="none", use_dictionary=False)
        groups = pq.ParquetFile(path).metadata
        start = groups.row_group(1).column(0).data_page_offset
        end = max(groups.row_group(3).column(c).data_page_offset + groups.row_group(3).column(c).total_compressed_size for c in (0, 1))
        with open(path, "r+b") as file:
            file.seek(start)
            file.write(b"\xff" * (end - start))
    with brant.Session(workers=2, threads=1, mode=mode, distribute="always") as s:
        found = brant.read_parquet(tmp_path / "t", session=s).where(col("i") % 1000 == 7)
        rows = found.limit(10).to_pydict()
        assert len(rows["i"]) == 10 and all(i % 1000 == 7 for i in rows["i"])
        with pytest.raises(brant.Error):
            found.to_arrow()


@pytest.mark.parametrize("keys", [("id",), ()], ids=["by key", "by chance"])
def test_a_worker_is_killed_while_files_are_written(keys, tmp_path):
    """No partial files: all rows once and nothing else in the directory; or an error, and nothing at all."""
    workers, done = {}, []

    def look(text):
        e = json.loads(text)
        if e["type"] == "worker_joined":
            workers[e["worker"]] = e["pid"]
        if e["type"] == "task_done" and len(done) < 3:
            done.append(e["worker"])
            if len(done) == 3:
                os.kill(workers[e["worker"]], signal.SIGKILL)

    target = tmp_path / "out"
    with brant.Session(workers=2, threads=1, distribute="always", progress=False) as s:
        s.subscribe(look)
        frame = brant.range(2_000_000, session=s).repartition(8, *keys).select("id", s=f.concat("row ", col("id")))
        try:
            written = frame.write_parquet(target).to_pydict()
        except brant.errors.LostError:  # what chance made is lost after its file was counted: it can't be made the same way twice
            assert not keys and not (target.exists() and os.listdir(target))
            return
    assert len(done) == 3 and sorted(written["file"]) == sorted(os.listdir(target)) and sum(written["rows"]) == 2_000_000
    assert duckdb.sql(f"select count(*), count(distinct id), sum(id)::bigint, count(distinct s) from '{target}/*.parquet'").fetchone() == (
        2_000_000, 2_000_000, sum(range(2_000_000)), 2_000_000)


def test_a_stateful_function_before_into_partitions(session):
    """Over 1,000 rows; with more processes than cores."""
    @brant.cls(concurrency=3)
    class Counter:
        def __init__(self):
            self.seen = 0

        @brant.method(return_dtype=int, batch=True, batch_size=100)
        def number(self, ids: list) -> list:
            self.seen += len(ids)
            return [i * 2 for i in ids]

    frame = brant.range(1000, session=session).select("id", n=Counter().number(col("id"))).into_partitions(5)
    assert frame.agg(n=f.count(), s=col("n").sum()).to_pylist() == [{"n": 1000, "s": 999 * 1000}]
    assert sorted(frame.to_pydict()["n"]) == [i * 2 for i in range(1000)]


def test_asof_joins_of_sparse_groups(session, tmp_path):
    """Many groups with few rows each, some on one side alone, over several partitions: no match is lost."""
    con = duckdb.connect()
    for name, every, n in (("l", 3, 4000), ("r", 7, 3000)):
        for part in range(4):
            con.execute(f"COPY (SELECT hash(i * {every}) % 900 + {0 if name == 'l' else 50} AS g, hash(i) % 1000 AS t, i FROM range({n}) x(i) "
                        f"WHERE i % 4 = {part}) TO '{tmp_path}/{name}{part}.parquet'")
    left, right = (brant.read_parquet(f"{tmp_path}/{n}*.parquet", session=session) for n in "lr")
    session.set("partitions", 5)
    session.set("broadcast_bytes", "0")
    try:
        got = left.join_asof(right.select("g", "t", v=col("t")), on="t", by="g").agg(n=f.count(), m=col("v").count(), s=col("v").sum()).to_pylist()
    finally:
        session.set("partitions", 0)
        session.set("broadcast_bytes", str(32 << 20))
    n, m, s = con.execute(f"SELECT count(*), count(r.t), sum(r.t)::BIGINT FROM '{tmp_path}/l*.parquet' l ASOF LEFT JOIN '{tmp_path}/r*.parquet' r "
                          "ON l.g = r.g AND l.t >= r.t").fetchone()
    assert got == [{"n": n, "m": m, "s": s}] and 1000 < m < n == 4000


def test_a_join_broadcasts_what_is_asked(session, df, tmp_path):
    df.into_partitions(4).write_parquet(tmp_path / "files")
    df = brant.read_parquet(tmp_path / "files", session=session)
    few = df.where("id < 700").select("id", v=col("k") * 2)
    session.set("broadcast_bytes", "0")
    try:
        for rows, asked in ((700, df.join(few, on="id", strategy="broadcast")), (1000, df.join(brant.broadcast(few), on="id", how="left")),
                            (1000, few.join(df, on="id", how="right", strategy="broadcast")),
                            (700, df.join(few, on="id", how="semi", strategy="broadcast"))):
            assert "asked for" in asked.explain()
            assert asked.count_rows() == rows
        assert "asked for" not in df.join(few, on="id").explain()
    finally:
        session.set("broadcast_bytes", str(32 << 20))
    with pytest.raises(brant.Error, match="full join"):
        df.join(few, on="id", how="full", strategy="broadcast")
    with pytest.raises(brant.Error, match="DataFrame"):
        brant.broadcast(3)


@pytest.mark.parametrize("bad", [0, -1, True, "k", None, 1.5], ids=repr)
def test_wrong_numbers(df, bad):
    for method in (df.repartition, df.into_partitions, df.into_batches):
        with pytest.raises(brant.Error, match="1 or more"):
            method(bad)


def test_order_by_takes_the_new_names(session):
    df = brant.from_pydict({"x": [1, 2, 3], "k": [9, 5, 7]}, session=session)
    assert df.select(x="k", k="x").sort("x").to_pydict() == {"x": [5, 7, 9], "k": [2, 3, 1]}
    assert df.sort("x").select(x="k", k="x").to_pydict() == {"x": [9, 5, 7], "k": [1, 2, 3]}
    assert df.select(x=-col("x"), k="k").sort("x").limit(1).to_pydict() == {"x": [-3], "k": [7]}


def test_many_steps():
    with brant.Session(distribute="never") as s:
        df = brant.range(3, session=s)
        for _ in range(60):
            df = df.with_columns(id=col("id") + 1)
        assert df.sort("id").to_pydict() == {"id": [60, 61, 62]}
        for _ in range(2000):
            df = df.with_columns(id=col("id") + 1)
        with pytest.raises(brant.Error, match="collect"):
            df.sql()
        for n in range(300):
            df = (df if n else brant.range(3, session=s)).with_columns(**{f"c{n}": col("id") + n})
        assert df.sql().count("SELECT") == 2 and df.where("id = 2").select("c299").item() == 301


def test_the_parity_table_tells_the_truth():
    text = (DOCS / "api-parity.md").read_text()
    parts = dict(zip(re.findall(r"^## (\w+)", text, re.M), re.split(r"^## \w+.*$", text, flags=re.M)[1:]))
    for part, owner in (("DataFrame", brant.DataFrame), ("GroupedDataFrame", brant.GroupedDataFrame), ("Module", brant)):
        rows = re.findall(r"^\| (`.*?) \| (.*?) \|", parts[part], re.M)
        assert len(rows) > 3
        for names, answer in rows:
            for name in re.findall(r"`(\w+)`", names if answer == "=" else ""):
                assert hasattr(owner, name), f"{part}.{name}"
