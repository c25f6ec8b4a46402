# SPDX-License-Identifier: Apache-2.0
"""One test for each class of failure: user, fetch, worker, memory, cancelled, internal. What is checked is the class (code and blame), in the
event stream and at the C API, and what the scheduler did about it: never a text, but that the right statement is named."""
import contextlib
import os
import signal
import sys
import threading

import brantlib
import duckdb
import paths
import pytest
from harness import Live, free_port, task_of, wait_for

MIB = 1 << 20
ENDLESS = "select count(*) from range(100000000000) t(i) where hash(i) = 3"


def failure(q):
    """(code, blame), message of a query that must fail."""
    with pytest.raises(brantlib.BrantError) as e:
        q.table()
    q.free()
    return (e.value.code, e.value.blame), e.value.message


def classes(live, type):
    return [(e["code"], e["blame"]) for e in live.of(type)]


def goes_on(live):
    assert live.run("select count(*) from range(10)")[0] == [(10,)]


def test_user(box, small):
    """Wrong from the start to the end of time: one attempt, the statement is named."""
    with Live(box, workers=2, memory=256 * MIB) as live:
        q = live.session.submit(f"select sum(case when l_orderkey = 40000 then error('the row') else 1 end) from '{small}/lineitem/*.parquet'")
        kind, message = failure(q)
        assert kind == ("INVALID", "USER") or kind == ("EXECUTION", "USER"), kind
        assert "the row" in message and "lineitem" in message, message
        assert classes(live, "query_failed") == [kind]
        failed = live.of("task_failed")
        assert (failed[0]["code"], failed[0]["blame"]) == kind and failed[0]["attempt"] == 1
        assert not [e for e in live.of("task_assigned") if e["attempt"] > 1]
        goes_on(live)
    box.assert_clean()


def test_fetch(box, big):
    """Outputs on disk that are cut short: those who read them fail with FETCH and name the output; it is made again, nothing else is."""
    settings = {"two_step_aggregate": "false", "partitions": 16, "straggler_percent": 0}
    source = f"'{big}/lineitem/*.parquet' where l_orderkey <= 3000000"
    text = (f"select count(*) as n, sum(length(c))::bigint as s from (select l_orderkey, l_linenumber, max(l_comment) as c from {source} "
            "group by all)")
    with Live(box, workers=2, memory=128 * MIB, settings=settings) as live:
        q = live.session.submit(text)
        live.wait("stage_done", stage=0)
        cut = [f for f, size in paths.sizes(box.temp, "brant-*/shuffle/**/*").items() if size > 0]
        for f in cut:
            os.truncate(f, 0)
        assert cut, "some outputs are on disk"
        table = q.table()
        q.free()
        con = duckdb.connect(config={"threads": 2})
        want = con.execute(f"select count(*), sum(length(l_comment)) from {source}").fetchall()
        assert [(table.column("n")[0].as_py(), table.column("s")[0].as_py())] == want
        failed = [e for e in live.of("task_failed") if e["code"] != "CANCELLED"]
        assert failed and {(e["code"], e["blame"]) for e in failed} == {("FETCH", "FETCH")}, failed
        lost = {(e["query"], e["lost_stage"], e["lost_task"]) for e in failed if e["has_lost"]}
        again = {task_of(e) for e in live.of("task_assigned") if e["attempt"] > 1}
        assert lost and lost <= again and {s for _, s, _ in again} <= {0, 1}
        assert not classes(live, "query_failed")
    box.assert_clean()


def test_worker(box):
    """No worker left: the query waits for another one, and then fails. One that comes in time does the work."""
    join = f"127.0.0.1:{free_port()}"
    workers = [box.worker(join, secret="s")]
    with Live(box, workers=0, external_workers=1, listen_port=int(join.rsplit(":", 1)[1]), secret="s", settings={"no_worker_ms": 1000}) as live:
        q = live.session.submit(ENDLESS)
        live.wait("task_started")
        workers[0].signal(signal.SIGKILL)
        assert failure(q)[0] == ("LOST", "WORKER")
        assert classes(live, "query_failed") == [("LOST", "WORKER")]
        workers.append(box.worker(join, secret="s"))
        live.wait("worker_joined", worker=2)
        goes_on(live)
    for w in workers:
        w.end(10)
    box.assert_clean()


def test_memory(box, big):
    """One group larger than an executor has: tried alone, in passes if it can be, then the class is memory and says what to change."""
    with Live(box, workers=1, memory=128 * MIB, settings={"two_step_aggregate": "false"}) as live:
        q = live.session.submit(f"select length(string_agg(l_comment, '')) from '{big}/lineitem/*.parquet'")
        kind, message = failure(q)
        assert kind == ("OUT_OF_MEMORY", "TASK"), (kind, message)
        assert classes(live, "query_failed") == [kind]
        failed = [e for e in live.of("task_failed") if e["code"] == "OUT_OF_MEMORY"]
        assert failed and {e["blame"] for e in failed} == {"TASK"}
        task = task_of(failed[0])
        tries = [e for e in live.of("task_assigned") if task_of(e) == task]
        assert len(tries) == 4 and not tries[0]["alone"] and all(e["alone"] for e in tries[1:]), tries
        assert not live.of("executor_lost")
        goes_on(live)
    box.assert_clean()


@pytest.mark.parametrize("how, kind", [("cancel", ("CANCELLED", "USER")), ("timeout", ("TIMEOUT", "USER"))])
def test_cancelled(box, how, kind):
    with Live(box, workers=1, memory=256 * MIB, settings={"timeout_ms": 500} if how == "timeout" else {}) as live:
        q = live.session.submit(ENDLESS)
        live.wait("task_started")
        if how == "cancel":
            q.cancel()
        assert failure(q)[0] == kind
        wait_for(lambda: live.of("query_failed") and live.of("task_failed"), 5, "the query's end and the attempt's answer")
        assert classes(live, "query_failed") == [kind]
        assert [e["code"] for e in live.of("task_failed")] == ["CANCELLED"]
        assert not [e for e in live.of("task_assigned") if e["attempt"] > 1], "nobody tries a cancelled task again"
        live.session.set("timeout_ms", 0)
        goes_on(live)
    box.assert_clean()


# ---- internal: an executor that breaks the protocol

FAKE = '''#!{python}
import os, socket, struct
s = socket.socket(fileno=3)
def varint(n):
    out = b""
    while n > 127: out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
def field(k, v): return varint(k << 3) + varint(v) if isinstance(v, int) else varint(k << 3 | 2) + varint(len(v)) + v
def parse(b):
    found, i = {{}}, 0
    def number():
        nonlocal i
        n = shift = 0
        while True:
            n, i, last, shift = n | (b[i] & 127) << shift, i + 1, b[i] < 128, shift + 7
            if last: return n
    while i < len(b):
        key = number()
        if key & 7 == 0: found[key >> 3] = number()
        elif key & 7 == 1: found[key >> 3], i = b[i:i + 8], i + 8
        else:
            n = number()
            found[key >> 3], i = b[i:i + n], i + n
    return found
def send(b): s.sendall(struct.pack("<II", len(b), 0) + b)
def exactly(n):
    b = b""
    while len(b) < n:
        more = s.recv(n - len(b))
        if not more: os._exit(0)
        b += more
    return b
send(field(1, field(1, b"{version}") + field(2, os.getpid()) + field(3, b"x")))  # ready
while True:
    n, _ = struct.unpack("<II", exactly(8))
    m = parse(exactly(n))
    if 2 in m: send(field(3, field(1, parse(parse(m[2])[1])[1])))  # run: "done", without any output
    if 6 in m: break
'''


def test_internal(box):
    """An executor says that a task is done and hands over nothing: a bug of ours, which is told as one, with the task's SQL."""
    bin = box.dir / "bin"
    bin.mkdir()
    version = brantlib._load().brant_version().decode()
    for name in ("brant-worker", "brant"):
        os.link(brantlib.BUILD / name, bin / name) if os.stat(brantlib.BUILD).st_dev == os.stat(bin).st_dev else \
            (bin / name).write_bytes((brantlib.BUILD / name).read_bytes())
        (bin / name).chmod(0o755)
    (bin / "brant-executor").write_text(FAKE.format(python=sys.executable, version=version))
    (bin / "brant-executor").chmod(0o755)
    os.environ["BRANT_BIN_DIR"] = str(bin)
    try:
        with Live(box, workers=1, memory=256 * MIB) as live:
            kind, message = failure(live.session.submit("select 42 as the_answer"))
            assert kind == ("INTERNAL", "EXECUTOR"), (kind, message)
            assert "the_answer" in message or "42" in message, message
            assert classes(live, "query_failed") == [kind]
            assert {(e["code"], e["blame"]) for e in live.of("task_failed")} == {kind}
    finally:
        del os.environ["BRANT_BIN_DIR"]
    box.assert_clean()


# ---- killers


def test_killer_task(box, small):
    """Each executor that runs it dies: after three it is taken for the cause, its SQL is named. Another query goes on meanwhile."""
    with Live(box, workers=2, memory=256 * MIB) as live:
        goes_on(live)
        live.wait("query_done")
        bad = live.session.submit(ENDLESS)
        number = live.wait("query_started")["query"]
        over = threading.Event()
        dead = []

        def kill():
            while not over.is_set():
                with contextlib.suppress(AssertionError, ProcessLookupError):
                    e = live.wait("task_started", seconds=0.5, query=number)
                    pid = live.executor_pid(e["worker"])
                    os.kill(pid, signal.SIGKILL)
                    dead.append(pid)

        t = threading.Thread(target=kill)
        t.start()
        other = [live.session.submit(f"select l_linenumber as k, count(*) as n from '{small}/lineitem/*.parquet' group by all order by all")
                 for _ in range(3)]
        kind, message = failure(bad)
        over.set()
        t.join()
        assert kind == ("LOST", "EXECUTOR") and "hash" in message and "3 executors" in message, (kind, message)
        assert len(dead) == 3 and len(live.of("executor_lost")) == 3
        for q in other:
            assert sum(q.table().column("n").to_pylist()) == 600572
            q.free()
        assert [e["query"] for e in live.of("query_failed")] == [number]
    box.assert_clean()
