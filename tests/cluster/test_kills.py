# SPDX-License-Identifier: Apache-2.0
"""Processes that die or stop in the middle of a query. Faults follow events of the query, never a clock."""
import os
import signal
import subprocess
import threading
import time

import brantlib
import compare
import duckdb
import pytest
from harness import SECOND_S, Live, alive, children, marked, rows, wait_for

# Long enough in every stage that a fault which follows an event comes in the middle: hashing comments is slow.
FIRST = "select l_linenumber as k, count(*) as n, sum(length(md5(l_comment))) as s from {} group by all order by all"
# An exchange of all rows, then work over them.
SECOND = ("select k % 10 as k, count(*) as n, sum(s) as s from (select l_orderkey as k, sum(length(md5(l_comment))) as s from {} "
          "group by all) group by all order by all")
ALL_ROWS = ["--set", "two_step_aggregate=false"]


@pytest.fixture(scope="module")
def lines(big):
    return f"'{big}/lineitem/*.parquet'"


@pytest.fixture(scope="module")
def right(lines):
    """{query: rows} by one DuckDB."""
    con = duckdb.connect(config={"threads": 2})
    return {q: con.execute(q.format(lines)).fetchall() for q in (FIRST, SECOND)}


def numbers(tuples):
    return [tuple(int(v) for v in t) for t in tuples]


def finish(q):
    """(rows, stats) of a query that was submitted."""
    try:
        return numbers(compare.rows_of(q.table())), q.stats()
    finally:
        q.free()


# ---- executors


@pytest.mark.parametrize("query", [FIRST, SECOND])
def test_executor_is_killed(box, lines, right, query):
    with Live(box, workers=3, memory=512 << 20, settings={"two_step_aggregate": "false"}) as live:
        q = live.session.submit(query.format(lines))
        if query is SECOND:
            live.wait("stage_done", stage=0)
        victim = live.wait("task_started", stage=0 if query is FIRST else 1)["worker"]
        pid = live.executor_pid(victim)
        os.kill(pid, signal.SIGKILL)
        got, stats = finish(q)
        assert got == right[query]
        assert stats.executors_lost >= 1 and stats.workers_lost == 0, (stats.executors_lost, stats.workers_lost)
        lost = live.of("executor_lost")
        assert len(lost) == 1 and lost[0]["pid"] == pid and "SIGKILL" in lost[0]["message"]
        assert live.executor_pid(victim) != pid
        again, stats = live.run(query.format(lines))
        assert numbers(again) == right[query] and stats.executors_lost == 0
    box.assert_clean()


class Killer(threading.Thread):
    """Kills what `victim` names, until `stop`."""

    def __init__(self, victim):
        super().__init__()
        self.victim, self.over = victim, threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            try:
                os.kill(self.victim(), signal.SIGKILL)
            except (AssertionError, ProcessLookupError):
                pass  # nothing happened for a while, or it ended by itself

    def stop(self):
        self.over.set()
        self.join()


def test_task_that_kills_its_executors(box, lines):
    """A task that takes an executor along each time is taken as the reason: a clear error, not a loop."""
    with Live(box, workers=1, memory=512 << 20, settings={"split_bytes": "1GB"}) as live:
        live.run("select 1")

        def victim():
            live.wait("task_started", seconds=1, task=0)
            return live.executor_pid(1)

        killer = Killer(victim)
        q = live.session.submit(FIRST.format(lines))
        try:
            with pytest.raises(brantlib.BrantError) as e:
                q.table()
        finally:
            killer.stop()
            q.free()
        assert "executor" in e.value.message and "SIGKILL" in e.value.message, e.value
        assert 3 <= len(live.of("executor_lost")) <= 5
    box.assert_clean()


def test_executor_is_stopped(box, lines, right):
    """SIGSTOP: it answers nothing, the worker replaces it. (No second attempt, which would be quicker.)"""
    with Live(box, workers=3, memory=512 << 20, settings={"straggler_percent": 0}) as live:
        q = live.session.submit(FIRST.format(lines))
        pid = live.executor_pid(live.wait("task_started")["worker"])
        os.kill(pid, signal.SIGSTOP)
        got, stats = finish(q)
        assert got == right[FIRST]
        assert stats.executors_lost >= 1
        assert not alive(pid)
    box.assert_clean()


# ---- workers


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("query", [FIRST, SECOND])
def test_worker_is_killed(box, lines, right, query, workers):
    """Its running tasks and its outputs are gone: they are made again elsewhere, or on the one that replaces it."""
    with Live(box, workers=workers, memory=512 << 20, settings={"two_step_aggregate": "false"}) as live:
        q = live.session.submit(query.format(lines))
        if query is SECOND:
            live.wait("stage_done", stage=0)
        victim = live.wait("task_done", stage=0 if query is FIRST else 1)["worker"]
        pid = live.worker_pid(victim)
        os.kill(pid, signal.SIGKILL)
        got, stats = finish(q)
        assert got == right[query]
        assert stats.workers_lost == 1
        live.wait("worker_joined")  # the one that replaces it
        assert numbers(live.run(query.format(lines))[0]) == right[query]
        assert len(children(os.getpid(), "brant-worker")) == workers
    box.assert_clean()


@pytest.mark.parametrize("mode", ["staged", "eager"])
def test_worker_is_killed_when_a_limit_is_full(box, lines, mode):
    """What counted is made again whole, also of tasks that were left out: there are as many rows as are wanted, each once."""
    wanted = 300000
    inner = f"select l_orderkey, l_comment from {lines} where l_linenumber = 1 and length(md5(l_comment)) = 32 limit {wanted}"
    sql = f"select count(*), count(distinct l_orderkey), sum(length(md5(repeat(l_comment, 30)))) from ({inner})"
    with Live(box, workers=3, memory=512 << 20, mode=mode, settings={"split_bytes": "2MiB"}) as live:
        q = live.session.submit(sql)
        live.wait("task_assigned", enough=True)
        pid = live.worker_pid(live.of("task_done")[0]["worker"])
        os.kill(pid, signal.SIGKILL)
        got, stats = finish(q)
        assert got == [(wanted, wanted, 32 * wanted)]
        assert stats.workers_lost == 1 and live.of("output_lost")
        again = [e for e in live.of("task_assigned") if e["attempt"] > 1]
        assert again and not any(e["enough"] for e in again)
        first = [e for e in live.of("task_assigned") if e["stage"] == 0 and e["attempt"] == 1]
        assert sum(e["enough"] for e in first) > len(first) // 2
    box.assert_clean()


def test_worker_is_killed_while_rows_pass_ungrouped(box, lines):
    """Some tasks have grouped their rows, later ones don't; what the lost worker had of both is made again as it was."""
    query = ("select count(*), sum(n), sum(s), max(m) from (select l_orderkey * 8 + l_linenumber as k, count(*) as n, sum(l_quantity) as s, "
             f"max(length(md5(l_comment))) as m from {lines} group by k)")
    want = duckdb.connect(config={"threads": 2}).execute(query).fetchall()
    for mode in ("staged", "eager"):
        with Live(box, workers=3, memory=512 << 20, settings={"split_bytes": 4 << 20}, mode=mode) as live:
            q = live.session.submit(query)
            assert live.wait("stage_adapted")["what"].startswith("rows move as they are")
            victim = live.wait("task_done", stage=0)["worker"]
            os.kill(live.worker_pid(victim), signal.SIGKILL)
            try:
                got, stats = compare.rows_of(q.table()), q.stats()
            finally:
                q.free()
            assert [tuple(float(v) for v in t) for t in got] == [tuple(float(v) for v in t) for t in want]
            assert stats.workers_lost == 1
            again = {}
            for e in live.of("task_done"):
                if e["stage"] == 0:
                    again.setdefault(e["task"], set()).add(e["rows"])
            assert all(len(rows) == 1 for rows in again.values()), again
            assert any(e["attempt"] > 1 for e in live.of("task_assigned") if e["stage"] == 0)


def test_worker_is_killed_after_a_join_was_planned_again(box, big, lines):
    """A side that turned out small is read whole by the tasks that make the other one: what the lost worker had of it is made again."""
    query = (f"select l_shipmode, count(*), sum(l_quantity), max(l_comment) from {lines} l join "
             f"(from '{big}/orders/*.parquet' where o_orderkey % 1000 = 1) o on l_orderkey = o_orderkey group by all")
    want = sorted(duckdb.connect(config={"threads": 2}).execute(query).fetchall())
    with Live(box, workers=3, memory=512 << 20, settings={"broadcast_bytes": 1 << 20}, mode="staged") as live:
        q = live.session.submit(query)
        victim = live.wait("task_done", stage=0)["worker"]
        told = live.wait("stage_adapted")
        assert told["stage"] == 1 and told["tasks"] == 0 and told["what"].startswith("runs in stage")
        join = int(told["what"].split()[-1])
        live.wait("task_started", stage=join)
        os.kill(live.worker_pid(victim), signal.SIGKILL)
        try:
            got, stats = sorted(compare.rows_of(q.table())), q.stats()
        finally:
            q.free()
        assert [(m, int(n), float(s), c) for m, n, s, c in got] == [(m, n, float(s), c) for m, n, s, c in want]
        assert stats.workers_lost == 1
        tasks = {e["task"] for e in live.of("task_started") if e["stage"] == 0}
        assert sum(e["stage"] == 0 for e in live.of("task_started")) > len(tasks)
        assert not [e for e in live.of("task_started") if e["stage"] == 1]
    box.assert_clean()


def test_worker_is_stopped(box, lines, right):
    """SIGSTOP: silent for 10 s, then it's lost, killed and replaced."""
    with Live(box, workers=3, memory=512 << 20) as live:
        q = live.session.submit(FIRST.format(lines))
        pid = live.worker_pid(live.wait("task_done")["worker"])
        os.kill(pid, signal.SIGSTOP)
        got, stats = finish(q)
        assert got == right[FIRST] and stats.workers_lost == 1
        wait_for(lambda: not alive(pid), 5, "the stopped worker is killed")
        assert len(wait_for(lambda: len(children(os.getpid(), "brant-worker")) == 3 and children(os.getpid(), "brant-worker"), 5, "3 workers"))
    box.assert_clean()


def test_worker_that_always_dies(box, lines):
    """Each new one is killed too: the query ends with a clear error."""
    with Live(box, workers=1, memory=512 << 20) as live:
        q = live.session.submit(FIRST.format(lines))
        killer = Killer(lambda: live.wait("worker_joined", seconds=1)["pid"])
        try:
            with pytest.raises(brantlib.BrantError) as e:
                q.table()
        finally:
            killer.stop()
            q.free()
        assert "worker" in e.value.message and e.value.code == "LOST", e.value
    box.assert_clean()


# ---- the caller


def started(box, lines, **kw):
    """A query in the middle: some tasks done, others running."""
    c = box.sql(SECOND.format(lines), options=ALL_ROWS, events=True, **kw)
    c.events.wait("task_done", stage=0)
    return c


def test_caller_is_killed(box, lines):
    """Workers see the pipe close, end their executors, and remove their directories."""
    c = started(box, lines)
    assert len(c.executor_pids()) == 3
    c.signal(signal.SIGKILL)
    c.end(5)
    assert c.code == -signal.SIGKILL
    box.assert_clean(5)


def test_caller_and_workers_are_killed_at_once(box, lines, small):
    """Nobody is left to clean up: executors go with their workers, directories with the next worker on this node."""
    c = started(box, lines)
    pids = [c.pid, *c.worker_pids()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    c.end(5)
    wait_for(lambda: not marked(box.mark), 5, "executors end with their workers")
    left = {p.name for p in box.temp.iterdir()}
    assert len(left) == 3
    c = box.sql(f"select count(*) from '{small}/orders/*.parquet'", workers=1).end()
    assert c.code == 0 and rows(c.out) == [("150000",)]
    box.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_in_the_middle(box, lines, number):
    c = started(box, lines)
    c.signal(number)
    c.started = time.monotonic()
    c.end(10)
    assert c.code == 128 + number, c.text()
    assert c.seconds < SECOND_S + 0.5, f"{c.seconds:.2f} s from the signal to the end"
    assert c.text().count("\n") <= 1 and "cancelled" in c.text(), c.text()
    box.assert_clean(1)


def test_signal_before_workers_have_joined(box, lines):
    """A worker program that never joins: the signal ends the wait."""
    slow = box.dir / "bin"
    slow.mkdir()
    (slow / "brant-worker").write_text("#!/bin/sh\necho $$ > \"$0.started\"\nexec cat <&3 >/dev/null\n")  # until the pipe closes
    (slow / "brant-worker").chmod(0o755)
    c = box.sql(FIRST.format(lines), workers=1, env={"BRANT_BIN_DIR": str(slow)})
    wait_for((slow / "brant-worker.started").exists, 20, "the worker program started")
    c.signal(signal.SIGINT)
    c.end(10)
    assert c.code == 130 and c.seconds < 5, (c.code, c.text())
    box.assert_clean()


def test_signal_while_it_reads_the_script(box):
    r, w = os.pipe()
    c = box.brant("sql", stdin=r)
    wait_for(lambda: b"pipe" in os.readlink(f"/proc/{c.pid}/fd/0").encode() and caught(c.pid, signal.SIGINT), 10, "it handles signals")
    c.signal(signal.SIGINT)
    c.end(5)
    os.close(w)
    os.close(r)
    assert c.code == 130, c.text()


def threads_cpu(pid):
    """CPU seconds of a process so far."""
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def caught(pid, number):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("query", [
    "select sum(hash(range)) from range(1000000000000)",
    # DuckDB does not look at its interrupt flag for minutes in this join: the program leaves anyway
    "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range = -1"])
def test_signal_in_a_query_of_this_process(box, query):
    """Small inputs, long work: no worker, the caller's own DuckDB is stopped."""
    c = box.brant("sql", "--distribute", "never", "--format", "csv", "select 'started' as s", query)
    assert c.p.stdout.readline() == b"s\n" and c.p.stdout.readline() == b"started\n"
    busy = threads_cpu(c.pid)
    wait_for(lambda: threads_cpu(c.pid) > busy + 0.3, 30, "it works")
    c.signal(signal.SIGINT)
    c.started = time.monotonic()
    c.end(10)
    assert c.code == 130 and c.seconds < SECOND_S + 0.5, (c.code, c.seconds, c.text())
    assert c.text() == "brant: error: the query was cancelled\n"


def test_two_signals(box, lines):
    """The second one ends the program at once; workers clean up by themselves."""
    c = started(box, lines)
    c.signal(signal.SIGINT)
    c.signal(signal.SIGINT)
    c.end(5)
    assert c.code == 130, c.text()
    box.assert_clean(5)


def test_standard_output_is_closed_early(box, lines):
    """brant sql … | head -1"""
    c = box.sql(f"select * from {lines}", stdout=subprocess.PIPE)
    first = c.p.stdout.readline()
    c.p.stdout.close()
    c.p.stdout = None
    c.end()
    assert first.startswith(b"l_orderkey,l_partkey,")
    assert c.code == 141 and c.err == b"", (c.code, c.text())
    box.assert_clean()


@pytest.mark.parametrize("format", ["table", "json", "arrow"])
def test_standard_output_is_closed_before(box, small, format):
    r, w = os.pipe()
    os.close(r)
    c = box.sql(f"select * from '{small}/customer/*.parquet'", workers=1, options=["--format", format], stdout=w)
    os.close(w)
    c.end()
    assert c.code == 141 and c.err == b"", (c.code, c.text())
    box.assert_clean()


def test_full_disk_behind_standard_output(box, small):
    """Not a closed pipe: that is an error and says so."""
    with open("/dev/full", "wb") as full:
        c = box.sql(f"select * from '{small}/customer/*.parquet'", workers=1, stdout=full).end()
    assert c.code == 1 and "space" in c.text(), (c.code, c.text())


# ---- before the query


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_is_ended_before_it_joins(box, lines, right, number):
    """As soon as its process is there: mostly before it has joined. The session starts another."""
    c = box.sql(FIRST.format(lines), workers=3)
    pid = wait_for(c.worker_pids, 20, "a worker")[0]
    os.kill(pid, number)
    assert c.end().code == 0, c.text()
    assert numbers(rows(c.out)) == right[FIRST]


def test_workers_that_die_again_and_again(box):
    """Not without end: after some the query says so."""
    c = box.sql("select 1", workers=1)
    done, seen = threading.Event(), set()

    def kill_all():
        while not done.is_set():
            for pid in c.worker_pids():
                if pid not in seen:
                    seen.add(pid)
                    os.kill(pid, signal.SIGKILL)
            done.wait(0.005)

    t = threading.Thread(target=kill_all)
    t.start()
    try:
        c.end()
    finally:
        done.set()
        t.join()
    if c.code != 0:  # else a worker was quicker
        assert "died within" in c.text() and len(seen) == 7, c.text()
