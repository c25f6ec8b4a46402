# SPDX-License-Identifier: Apache-2.0
"""COPY … TO a directory: all files of the committed attempts appear at once, or none; nothing else is left, whoever dies and when."""
import os
import signal

import faults
import paths
import pytest
import workload
from shim import Shim

QUERIES = workload.all_queries()
COPY = "COPY ({}) TO '{}/' (FORMAT parquet)"


@pytest.fixture
def target(box):
    return box.dir / "target"


def everything(target):
    return [str(p.relative_to(target)) for p in paths.found(target, "**/*")]


def content_is_right(answers, query, target, files=None):
    """What is in the directory is the query's answer; no more files than the manifest's."""
    there = [p for p in everything(target)]
    assert there and all(p.endswith(".parquet") for p in there), there
    if files is not None:
        assert there == sorted(files), (there, files)
    table = answers.con.execute(f"SELECT * FROM read_parquet('{target}/*.parquet')").to_arrow_table()
    assert answers.difference(query, table) is None, answers.difference(query, table)


@pytest.mark.parametrize("name, fault", [
    pytest.param("group", "kill-worker:actor@task_done.s1#3", marks=pytest.mark.short), ("group", "kill-worker:actor@task_started.s1#2"),
    ("group", "kill-worker:owner@stage_done#1"), ("group", "kill-executor:actor@task_started.s1#2"),
    ("group", "term-worker:owner@task_done.s1#2"), ("join", "kill-worker:w2@bytes#900000"), ("map", "kill-worker:actor@task_done#4"),
    ("map", "kill-worker:actor@task_done#8")])
def test_someone_dies_while_files_are_written(make_cluster, check, answers, target, mode, name, fault):
    c = make_cluster(mode=mode, relays="bytes" in fault)
    q = workload.Query(name, QUERIES[name].sql, False, QUERIES[name].settings)
    run = faults.Run(c, q, [fault]).go(COPY.format(q.sql, target))
    assert run.fired() and run.error is None, f"{run.error} {run.summary()}"
    print(run.summary())
    manifest = run.table.to_pylist()
    content_is_right(answers, q, target, [m["file"] for m in manifest])
    assert sum(m["rows"] for m in manifest) == answers.con.execute(f"SELECT count(*) FROM ({q.sql})").fetchone()[0]
    assert {m["file"]: m["bytes"] for m in manifest} == {p.name: p.stat().st_size for p in target.iterdir()}
    c.close()
    c.over = True


def test_stopped_worker_writes_after_the_commit(make_cluster, answers, target):
    """A worker that hangs while its task writes, is declared lost, and goes on after the commit: its files are nobody's."""
    c = make_cluster(settings={"worker_silent_ms": "1500"})
    q = QUERIES["group"]
    run = faults.Run(c, q, ["stop-worker:actor@task_started.s1#2"])
    stopped = run.cluster.workers
    hooks, run.on_event = [], lambda condition, do: hooks.append(do)  # it goes on when the commit is over, not when it is lost
    run.go(COPY.format(q.sql, target))
    assert run.fired() and run.error is None, f"{run.error} {run.summary()}"
    for w in stopped:
        w.go_on()
    content_is_right(answers, q, target, [m["file"] for m in run.table.to_pylist()])
    c.close()
    c.over = True
    content_is_right(answers, q, target, [m["file"] for m in run.table.to_pylist()])


def copy_by_command(box, shim_env, text, **kw):
    return box.sql(text, workers=2, memory="256MB", options=["--mode", "staged"], env=shim_env, **kw)


def lines():
    import tpch
    return f"select l_orderkey, count(*) as n, max(l_comment) as c from '{tpch.folder('0.1')}/lineitem/*.parquet' group by all"


@pytest.mark.parametrize("do", ["kill", "after"])
@pytest.mark.parametrize("nth", [1, pytest.param(3, marks=pytest.mark.short), 2, 4])
def test_coordinator_dies_while_it_commits(box, answers, target, nth, do):
    """At each rename: the journal, each file, the journal's end. Afterwards there is nothing; or everything once anybody opens it."""
    query = workload.Query("sink", "select l_orderkey, count(*) as n, max(l_comment) as c from lineitem group by all")
    shim = Shim(box.dir)
    c = copy_by_command(box, shim.env("rename", str(target), do, nth, "brant"), COPY.format(lines(), target)).end()
    assert shim.fired(), "the fault never fired"
    assert c.code == -signal.SIGKILL
    box.assert_clean()
    committed = nth > 1 or do == "after"
    empty = f"COPY (select 1::bigint as l_orderkey, 1::bigint as n, '' as c where false) TO '{target}/' (FORMAT parquet, APPEND)"
    assert copy_by_command(box, None, empty).end().code == 0
    if committed:
        table = answers.con.execute(f"SELECT * FROM read_parquet('{target}/*.parquet') WHERE n > 0").to_arrow_table()
        assert answers.difference(query, table) is None
    else:
        assert answers.con.execute(f"SELECT count(*) FROM read_parquet('{target}/*.parquet')").fetchone() == (0,)
    assert all(p.endswith(".parquet") for p in everything(target)), everything(target)
    box.assert_clean()


@pytest.mark.parametrize("call, match, nth", [("rename", "", 1), ("rename", "", 2), ("rename", "", 3), ("fsync", "", 1), ("fsync", "journal", 1)])
def test_disk_errors_while_it_commits(box, target, call, match, nth):
    """One clear error; the target is as before."""
    shim = Shim(box.dir)
    target.mkdir()
    c = copy_by_command(box, shim.env(call, match or str(target), "eio", nth, "brant"), COPY.format(lines(), target)).end()
    assert shim.fired(), "the fault never fired"
    assert c.code == 1 and c.text().count("brant: error: ") == 1, c.text()
    assert everything(target) == [], everything(target)
    box.assert_clean()


def test_disk_full_while_files_are_written(box, target):
    shim = Shim(box.dir)
    c = copy_by_command(box, shim.env("write", str(target), "enospc", 0, "brant-executor"), COPY.format(lines(), target)).end()
    assert shim.fired(), "the fault never fired"
    assert c.code == 1 and "space" in c.text().lower(), c.text()
    assert everything(target) == [], everything(target)
    box.assert_clean()


def test_interrupt_while_files_are_written(box, target):
    c = copy_by_command(box, None, COPY.format(lines(), target), events=True)
    c.events.wait("task_started", stage=1)
    os.kill(c.pid, signal.SIGINT)
    c.end(10)
    assert c.code == 130, (c.code, c.text())
    assert everything(target) == [], everything(target)
    box.assert_clean()
