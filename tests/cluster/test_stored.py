# SPDX-License-Identifier: Apache-2.0
"""CREATE TABLE AS and INSERT … SELECT into an attached DuckDB file and into a directory while processes die: all rows or none. Faults follow
what is seen (a task that started, a file that grows), never a clock."""
import os
import signal
import threading

import brantlib
import duckdb
import paths
import pytest
from harness import Live, assert_error, wait_for

ROWS = "SELECT l_orderkey AS a, l_linenumber AS b, md5(md5(l_comment)) AS h FROM '{}/lineitem/*.parquet'"
MANY = "SELECT l_orderkey AS a, r AS b, md5(l_comment || r) AS h FROM '{}/lineitem/*.parquet', range(12) t(r)"
SPLITS = {"split_bytes": "200000"}


@pytest.fixture(scope="module")
def right(small):
    return duckdb.sql(f"SELECT count(*), sum(hash(a, b, h)) FROM ({ROWS.format(small)})").fetchone()


def content(path):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute("SELECT count(*), sum(hash(a, b, h)) FROM t").fetchone()


def tables(path):
    with duckdb.connect(str(path)) as con:
        return con.execute("SELECT table_name, estimated_size FROM duckdb_tables() ORDER BY ALL").fetchall()


def in_thread(work):
    out = {}

    def run():
        try:
            out["answer"] = work()
        except Exception as e:
            out["error"] = e
    t = threading.Thread(target=run)
    t.start()
    return t, out


@pytest.mark.parametrize("mode", ["staged", "eager"])
@pytest.mark.parametrize("who", ["executor", "worker"])
def test_someone_dies(box, small, right, who, mode):
    path = box.dir / "s.duckdb"
    with Live(box, workers=3, memory=512 << 20, settings=SPLITS, mode=mode) as live:
        live.session.run(f"ATTACH '{path}' AS s (READ_WRITE)")
        # in the order of a: no row leaves the last stage before the first one is over
        t, out = in_thread(lambda: live.session.run(f"CREATE TABLE s.t AS {ROWS.format(small)} ORDER BY h, a, b"))
        worker = live.wait("task_started")["worker"]
        os.kill(live.executor_pid(worker) if who == "executor" else live.worker_pid(worker), signal.SIGKILL)
        t.join()
        assert "error" not in out, out
        table, stats = out["answer"]
        assert table.to_pylist() == [{"Count": right[0]}] and stats.executors_lost + stats.workers_lost >= 1
        live.session.run("DETACH s")
    assert content(path) == right
    box.assert_clean()


@pytest.mark.parametrize("statement, signal_number", [
    ("INSERT INTO s.t {}", signal.SIGKILL), ("CREATE TABLE s.u AS {}", signal.SIGKILL), ("CREATE OR REPLACE TABLE s.t AS {}", signal.SIGINT),
    ("BEGIN; DELETE FROM s.t; INSERT INTO s.t {}; COMMIT", signal.SIGKILL), ("INSERT INTO s.t {}", signal.SIGINT)])
def test_this_process_dies_while_it_stores(box, small, statement, signal_number):
    path = box.dir / "s.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE t AS SELECT 1::BIGINT AS a, 2::BIGINT AS b, 'x' AS h")
    before = path.stat().st_size
    c = box.sql(f"ATTACH '{path}' AS s (READ_WRITE); {statement.format(MANY.format(small))}", options=["--set", "split_bytes=200000"])
    wait_for(lambda: path.stat().st_size > before + (2 << 20), 60, "rows in the file")
    c.signal(signal_number)
    c.end()
    assert c.code == (130 if signal_number == signal.SIGINT else -signal_number), c.text()
    assert tables(path) == [("t", 1)]
    with duckdb.connect(str(path)) as con:
        assert con.execute("FROM t").fetchall() == [(1, 2, "x")]
    box.assert_clean(35)


def test_a_failure_while_it_stores(box, small):
    """Rows are in the file already when the query fails: they go."""
    path = box.dir / "s.duckdb"
    with Live(box, workers=2, memory=512 << 20, settings={**SPLITS, "killer_executors": "1"}) as live:
        live.session.run(f"ATTACH '{path}' AS s (READ_WRITE)")
        live.session.run("CREATE TABLE s.t (a BIGINT, b BIGINT, h VARCHAR)")
        size = path.stat().st_size
        t, out = in_thread(lambda: live.session.run(f"INSERT INTO s.t {MANY.format(small)}"))
        wait_for(lambda: path.stat().st_size > size + (1 << 20), 60, "rows in the file")
        for w in (1, 2):
            os.kill(live.executor_pid(w), signal.SIGKILL)
        t.join()
        assert isinstance(out.get("error"), brantlib.BrantError), out
        assert live.session.run("SELECT count(*) AS n FROM s.t")[0].to_pylist() == [{"n": 0}]
        live.session.run("INSERT INTO s.t VALUES (1, 1, 'after')")
        live.session.run("DETACH s")
    assert tables(path) == [("t", 1)]


@pytest.mark.parametrize("how", ["deadline", "interrupt"])
def test_stopped(box, small, how):
    path = box.dir / "s.duckdb"
    with Live(box, workers=3, memory=512 << 20, settings=SPLITS) as live:
        live.session.run(f"ATTACH '{path}' AS s (READ_WRITE)")
        size = path.stat().st_size
        if how == "deadline":
            live.session.set("timeout_ms", "1500")
        t, out = in_thread(lambda: live.session.run(f"CREATE TABLE s.t AS {MANY.format(small)}"))
        if how == "interrupt":
            wait_for(lambda: path.stat().st_size > size + (1 << 20), 60, "rows in the file")
            while t.is_alive():
                live.session.interrupt()
                t.join(0.02)
        t.join()
        assert out["error"].code == ("TIMEOUT" if how == "deadline" else "CANCELLED"), out
        live.session.set("timeout_ms", "0")
        with pytest.raises(brantlib.BrantError, match="does not exist"):
            live.session.run("FROM s.t")
        assert live.session.run(f"CREATE TABLE s.t AS SELECT count(*) AS n FROM '{small}/lineitem/*.parquet'")[0].to_pylist() == [{"Count": 1}]
    box.assert_clean()


def test_directory(box, small, right):
    """As a COPY's (test_sinks.py): a killed writer leaves nothing that a reader finds, and what follows cleans up."""
    target = box.dir / "out"
    target.mkdir()
    c = box.sql(f"INSERT INTO '{target}/' {MANY.format(small)}", options=["--set", "split_bytes=200000"])
    wait_for(lambda: paths.found(target, ".brant-*/q*/**/f-*"), 60, "a staged file")
    c.signal(signal.SIGKILL)
    c.end()
    assert not paths.found(target, "**/*.parquet")
    wait_for(lambda: not box.left(), 35, "the end of the workers")
    assert box.sql(f"INSERT INTO '{target}/' {ROWS.format(small)}").end().code == 0
    got = duckdb.sql(f"SELECT count(*), sum(hash(a, b, h)) FROM read_parquet('{target}/*.parquet')").fetchone()
    assert got == right and not list(target.glob(".brant-*"))
    c = box.sql(f"INSERT INTO '{target}/' SELECT a, b, CASE WHEN a = 300000 THEN error('no more') ELSE h END FROM ({ROWS.format(small)})").end()
    assert_error(c, "no more")
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{target}/*.parquet')").fetchone()[0] == right[0]
